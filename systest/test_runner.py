#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
"""scripts/run_tests.py, which runs all tests: with jobs that are made up, what fails is told, and the rest is done."""
import contextlib
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import threading
import types

from appliance_lib import TOP, check, main

spec = importlib.util.spec_from_file_location("run_tests", TOP / "scripts/run_tests.py")
run_tests = importlib.util.module_from_spec(spec)
sys.modules["run_tests"] = run_tests
spec.loader.exec_module(run_tests)
Job, Stage = run_tests.Job, run_tests.Stage


def job(name, text, status=0, **more):
    return Job(name, ["sh", "-c", f"printf '{text}\\n'; exit {status}"], **more)


@contextlib.contextmanager
def logs():
    """Logs are in a folder of their own; what is printed is kept."""
    before = run_tests.LOGS
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder, contextlib.redirect_stdout(io.StringIO()) as out:
        run_tests.LOGS = pathlib.Path(folder)
        try:
            yield out
        finally:
            run_tests.LOGS = before


def fails():
    raise OSError("no room for the corpus")


def test_a_job_is_judged_by_its_lines_and_its_status():
    with logs():
        done = [j.run() for j in (job("good", "PASS a\\nSKIP b: why"), job("bad", "PASS a\\nFAIL b: why", 1), job("ended", "PASS a", 3),
                                  job("silence", ""), Job("late", ["sleep", "600"], limit=0))]
    found = [(j.name, j.passed, len(j.skipped), j.failed) for j in done]
    check(found[0] == ("good", 1, 1, []) and found[1] == ("bad", 1, 0, ["b: why"]), found)
    check("ended with status 3" in found[2][3][0] and "said nothing" in found[3][3][0] and "not done after 0 s" in found[4][3][0], found)


def test_a_job_that_passes_the_second_time_has_passed_and_keeps_its_first_failure():
    with logs() as out:
        j = Job("twice", ["sh", "-c", f"[ -e {run_tests.LOGS}/once ] && echo PASS a && exit; touch {run_tests.LOGS}/once; echo FAIL a: why; exit 1"])
        j.run_and_report()
        j.again()
    check(j.passed == 1 and j.failed == [] and j.first == ["a: why"] and "again twice" in out.getvalue(), (j, out.getvalue()))


def test_a_finding_of_a_sanitizer_is_not_tried_again():
    with logs():
        j = job("found", "ERROR: AddressSanitizer: x\\nFAIL a: why", 1)
        j.run()
        j.again()
    check(j.failed == ["a: why"] and j.first == [], j)


def test_a_stage_that_cannot_be_prepared_leaves_the_others():
    apart = [job(f"apart{i}", "PASS a", company="apart") for i in range(3)]
    stages = [Stage("broken", lambda: [job("never", "PASS a")], spare=True), Stage("raises", fails, spare=True),
              Stage("good", lambda: [job("one", "PASS a"), job("two", "FAIL b: why", 1)], spare=True)]
    stages[0].build = lambda command: False
    with logs() as out:
        spare = run_tests.run_apart(apart, stages, [])
    check([j.passed for j in apart] == [1, 1, 1], apart)
    check(sorted((j.name, j.passed, len(j.failed)) for j in spare) == [("build/broken", 0, 1), ("build/raises", 0, 1), ("one", 1, 0), ("two", 0, 1)], spare)
    check("raises: no room for the corpus" in out.getvalue(), out.getvalue())


def test_a_job_that_cannot_be_run_leaves_the_others():
    apart = [job("gone", "PASS a", company="apart"), job("good", "PASS a", company="apart")]
    apart[0].command = ["/none"]
    apart[0].log = lambda: pathlib.Path("/none/log")
    with logs():
        run_tests.run_apart(apart, [], [])
        apart[0].again()
    check("could not be run: FileNotFoundError" in apart[0].failed[0] and apart[1].passed == 1, apart)


def rooms(free, spells, least=2):
    """The room of a crew after each spell in which so many of two CPUs were free and jobs waited."""
    now = [0.0]
    before, run_tests.time = run_tests.time, types.SimpleNamespace(monotonic=lambda: now[0])
    try:
        crew, found = run_tests.Crew(lambda: now[0] * free, least, lambda: False), []
        crew.cpus, crew.most, crew.room = 2, 6, 3
        for _ in range(spells):
            for _ in range(9):
                crew.running = crew.room
                crew.has_room()
                now[0] += crew.SPELL / 8
            found.append(crew.room)
        return found
    finally:
        run_tests.time = before


def test_while_cpus_are_free_more_jobs_run_and_while_none_is_fewer():
    check(rooms(0.8, 5) == [4, 5, 6, 6, 6], rooms(0.8, 5))
    check(rooms(0.3, 3) == [3, 3, 3], rooms(0.3, 3))
    check(rooms(0.0, 3) == [2, 2, 2], rooms(0.0, 3))
    check(rooms(0.0, 3, 1) == [2, 1, 1], rooms(0.0, 3, 1))


def test_a_job_begins_at_once_where_there_is_room():
    crew = run_tests.Crew(lambda: 0.0, memory=lambda: False)
    crew.running = crew.room - 1
    check(crew.has_room() and not crew.samples, crew.samples)
    crew.running = crew.room
    check(not crew.has_room(), crew.room)


def test_what_runs_at_a_low_priority_counts_as_free():
    hz, stat = os.sysconf("SC_CLK_TCK"), "cpu 1000 200 30 4000 50 6 7 8 9 10\ncpu0 1 2 3 4"
    check(run_tests.idle_seconds(stat) == 4000 / hz and run_tests.free_seconds(stat) == 4200 / hz, run_tests.free_seconds(stat))
    check(run_tests.idle_seconds() > 0 and run_tests.free_seconds() > 0, "of this machine")


def test_where_memory_is_short_one_job_runs():
    check(run_tests.memory_is_short("MemTotal: 16384 kB\nMemFree: 1 kB\nMemAvailable: 4095 kB\n"), "less than a quarter")
    check(not run_tests.memory_is_short("MemTotal: 16384 kB\nMemFree: 1 kB\nMemAvailable: 4096 kB\n"), "a quarter")
    crew = run_tests.Crew(lambda: 0.0, memory=lambda: True)
    check(crew.has_room(), "the only one")
    crew.running = 1
    check(not crew.has_room(), "a second one")


def test_jobs_of_a_crew_all_run():
    jobs = [job(f"job{i}", "PASS a") for i in range(10)]
    crew = run_tests.Crew()
    with logs():
        threads = [threading.Thread(target=crew.run, args=(j,)) for j in jobs]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    check(all(j.passed == 1 for j in jobs) and crew.running == 0, (jobs, crew.running))


def test_an_interrupt_ends_what_runs_and_begins_nothing():
    before, run_tests.STOP = run_tests.STOP, os.eventfd(0)
    try:
        with logs():
            j = Job("long", ["sleep", "600"], limit=600)
            t = threading.Thread(target=j.run_and_report)
            t.start()
            os.eventfd_write(run_tests.STOP, 1)
            t.join(60)
            later = job("later", "PASS a").run()
        check(not t.is_alive() and "interrupted" in (j.failed + j.skipped)[0] and later.skipped == ["later: interrupted"], (j, later))
    finally:
        os.close(run_tests.STOP)
        run_tests.STOP = before


if __name__ == "__main__":
    main(sys.modules[__name__])
