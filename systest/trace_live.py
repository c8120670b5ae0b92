#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
"""Recorder and reader together: snapshots of a process that records as fast as it can on two lcores, copies of its file, and the
file after kill -9; and events printed as they are recorded. Each event carries arguments that must agree with each other."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, check, main, wait_for

SNAPSHOTS = 100
LOW32, LOW64 = 2**32 - 1, 2**64 - 1


class Writer:
    def __enter__(self):
        self.process = subprocess.Popen([BUILD / "unittest/trace/trace-writer"], stdout=subprocess.PIPE, text=True)
        self.path = pathlib.Path(self.process.stdout.readline().strip())
        check(self.path.exists(), "the writer did not start")
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __exit__(self, *_):
        self.kill()
        self.process.stdout.close()
        self.path.unlink(missing_ok=True)


def read(path):
    p = subprocess.run([BUILD / "bin/varve-trace", "-f", path, "-j"], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stderr)
    return json.loads(p.stdout)


def check_entries(entries):
    """Whole events in the order of time."""
    last = 0
    for e in entries:
        seq, inverse, low, after = e["args"]
        check(inverse == seq ^ LOW64 and low == seq & LOW32 and after == seq + 1 and e["size"] == low
              and e["object"]["value"] == 3 * seq & LOW64, f"a torn event: {e}")
        check(e["tsc"] >= last, f"out of order: {e}")
        last = e["tsc"]


def check_events(trace):
    """Whole events in order, and every slot that was written accounted for. Their number."""
    check_entries(trace["entries"])
    for ring in trace["lcores"]:
        lost = sum(ring["lost"].values())
        check(2 * ring["events"] + lost == ring["written"], f"slots are missing in the count: {ring}")
    return len(trace["entries"])


def test_a_hundred_snapshots_of_a_running_process_are_whole():
    with Writer() as w:
        total = sum(check_events(read(w.path)) for _ in range(SNAPSHOTS))
        check(total > 0, "not one event in all of them")
        print(f"{SNAPSHOTS} snapshots, {total} events")


def test_plain_copies_of_a_running_process_file_are_whole():
    total = 0
    with Writer() as w, tempfile.TemporaryDirectory() as folder:
        for n in range(20):
            copy = os.path.join(folder, f"copy{n}")
            if n % 2:
                subprocess.run(["cp", w.path, copy], check=True)
            else:
                subprocess.run(["dd", f"if={w.path}", f"of={copy}", "bs=4k", "status=none"], check=True)
            total += check_events(read(copy))
    check(total > 0, "not one event in all of them")
    print(f"20 copies, {total} events")


def test_the_file_of_a_killed_process_has_everything_up_to_its_end():
    for _ in range(10):
        with Writer() as w:
            before = read(w.path)
            w.kill()
            after = read(w.path)
            count = check_events(after)
            # Rings are full but for the event that was under way.
            full = sum(r["num_entries"] // 2 for r in after["lcores"] if r["written"] >= r["num_entries"])
            check(full - 4 * len(after["lcores"]) <= count, f"{count} events of {full}: {after['lcores']}")
            check(after["app"]["state"] == "gone", after["app"])
            for ring, earlier in zip(after["lcores"], before["lcores"]):
                check(ring["written"] > earlier["written"], "the end is missing")


def written(path):
    """Slots that were written until now. By a summary: events as text would take the writer's time."""
    p = subprocess.run([BUILD / "bin/varve-trace", "-f", path, "-j", "--summary"], capture_output=True, text=True, timeout=DEADLINE)
    return sum(r["written"] for r in json.loads(p.stdout)["lcores"]) if p.returncode == 0 else 0


def follow_lapped(*options):
    """(stdout, stderr, slots written while it was stopped) of a reader that follows, was stopped until its rings were lapped, and goes on."""
    with Writer() as w, tempfile.TemporaryDirectory() as folder:
        out, err = pathlib.Path(folder, "out"), pathlib.Path(folder, "err")
        with open(out, "wb") as o, open(err, "wb") as e:
            p = subprocess.Popen([BUILD / "bin/varve-trace", "-f", w.path, "-F", *options], stdout=o, stderr=e)
        try:
            wait_for(lambda: out.stat().st_size > 100000, "events to be printed")
            p.send_signal(signal.SIGSTOP)
            wait_for(lambda: pathlib.Path(f"/proc/{p.pid}/stat").read_text().rsplit(") ")[1][0] == "T", "it to stop")
            before = written(w.path)
            wait_for(lambda: written(w.path) > before + 4 * 2 * 16384, "the rings to be lapped")
            lapped, size = written(w.path) - before, out.stat().st_size
            p.send_signal(signal.SIGCONT)
            wait_for(lambda: out.stat().st_size > size + 100000, "more events to be printed")
            p.send_signal(signal.SIGINT)
            check(p.wait(DEADLINE) == 0, err.read_text())
        finally:
            p.kill()
            p.wait()
        check(w.process.poll() is None, "the writer ended")
        return out.read_text(), err.read_text(), lapped


def lost_in(lines):
    """{lcore: entries that lines say were lost}"""
    lost = {}
    for lcore, text in re.findall(r"^Lost on lcore \((\d+)\): (.*)$", lines, re.M):
        lost[lcore] = lost.get(lcore, 0) + sum(int(n) for n in re.findall(r"(\d+) entries", text))
    return lost


def test_following_a_writer_that_laps_it_says_what_was_lost():
    out, _, lapped = follow_lapped()
    lost = lost_in(out)
    check(lost and sum(lost.values()) > 16384, f"{lapped} slots were written meanwhile, lost: {lost}")
    events = re.findall(r"^.{16} +(\d+): +([\d.]+) .*$", out, re.M)
    check(len(events) > 100 and len({lcore for lcore, _ in events}) == 2, f"{len(events)} events")
    times = [float(t) for _, t in events]
    check(times == sorted(times), "out of order")
    # A busy machine may have let it be lapped before as well.
    first, last = out.index("Lost on lcore"), out.rindex("Lost on lcore")
    check(re.search(r"^.{16} +\d+: ", out[:last], re.M) and re.search(r"^.{16} +\d+: ", out[first:], re.M), "the lines are not where it was lost")


def test_following_as_json_says_it_beside():
    out, err, lapped = follow_lapped("-j")
    trace = json.loads(out)             # interrupted, it is JSON all the same
    check_entries(trace["entries"])
    check(len(trace["entries"]) > 100 and "Lost on" not in out, "events")
    check(sum(lost_in(err).values()) > 16384, f"{lapped} slots were written meanwhile: {err}")


def test_a_follower_whose_cpu_others_need_skips_and_says_so():
    with Writer() as w, tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "out")
        with open(out, "wb") as o:
            p = subprocess.Popen(["taskset", "-c", str(min(os.sched_getaffinity(0))), "nice", "-n", "19",
                                  BUILD / "bin/varve-trace", "-f", w.path, "-F"], stdout=o)
        try:
            wait_for(lambda: "entries skipped" in out.read_text() and out.stat().st_size > 1000000, "entries to be skipped")
            p.send_signal(signal.SIGINT)
            check(p.wait(DEADLINE) == 0, f"status {p.returncode}")
        finally:
            p.kill()
            p.wait()
        text = out.read_text()
    check(re.search(r"^Lost on lcore \(\d+\): \d+ entries overwritten, \d+ entries skipped", text, re.M), lost_in(text))
    times = [float(t) for t in re.findall(r"^.{16} +\d+: +([\d.]+) ", text, re.M)]
    check(len(times) > 1000 and times == sorted(times), f"{len(times)} events")


if __name__ == "__main__":
    main(sys.modules[__name__])
