#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
"""Recorder and reader together: snapshots of a process that records as fast as it can on two lcores, copies of its file, and the
file after kill -9. Each event carries arguments that must agree with each other."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, check, main

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


def check_events(trace):
    """Whole events in the order of time, and every slot that was written accounted for. Their number."""
    last = 0
    for e in trace["entries"]:
        seq, inverse, low, after = e["args"]
        check(inverse == seq ^ LOW64 and low == seq & LOW32 and after == seq + 1 and e["size"] == low
              and e["object"]["value"] == 3 * seq & LOW64, f"a torn event: {e}")
        check(e["tsc"] >= last, f"out of order: {e}")
        last = e["tsc"]
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


if __name__ == "__main__":
    main(sys.modules[__name__])
