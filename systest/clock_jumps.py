#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# apart
"""The clock of the day is set by hours under I/O: nobody who is there notices, and what is to time out or to come back does so. And a process
that was stopped for longer than everybody's keep-alive timeouts goes on where it was."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

from appliance_lib import BUILD, DEADLINE, Daemon, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, PORT, Host, Target, preload, verifying, wait_io

TRACE = BUILD / "bin" / "varve-trace"
HOUR = 3600
BUSY, IDLE = HOSTNQN + ":busy", HOSTNQN + ":idle"


def read(path, *options):
    p = subprocess.run([TRACE, "-f", path, *options], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stderr)
    return p.stdout


class Clock:
    """The clock of the day of all programs that are given env()."""

    def __init__(self, path):
        self.path, self.suspended = path, 0
        self.path.write_bytes(bytes(16))

    def put(self, at, seconds):
        with open(self.path, "r+b") as f:
            f.seek(at)
            f.write(struct.pack("q", seconds * 10**9))

    def set(self, seconds):
        """So many seconds ahead of the kernel's."""
        self.put(0, seconds)

    def suspend(self, seconds):
        """As if the system had been suspended for so long, and the TSC had stood still."""
        self.suspended += seconds
        self.put(8, self.suspended)

    def env(self):
        return {**preload(BUILD / "systest" / "libset-clock.so"), "VARVE_CLOCK_FILE": str(self.path)}


class Jumping(Target):
    def __init__(self):
        self.clock = Clock(pathlib.Path(f"/dev/shm/varve-clock-{os.getpid()}"))
        Daemon.__init__(self, "-m", "[0]", "-s", "512", "-e", "bdev,nvmf", "--num-trace-entries", "4096", env=self.clock.env())
        self.port = PORT
        try:
            self.call("nvmf_create_transport", trtype="RDMA")
            self.add_subsystem(NQN)
            self.add_malloc("M0")
            self.add_malloc("M1")
            self.call("bdev_error_create", base_name="M1")
            self.add_ns("M0", nsid=1)
            self.add_ns("EE_M1", nsid=2)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.clock.path.unlink(missing_ok=True)

    def verifying(self, *args, **kwargs):
        return verifying(self, 1, "-t", "3600", "-q", "4", "--rate", "2000", *args, env=self.clock.env(), **kwargs)

    def reading(self, *args, **kwargs):
        return Host(self, "-w", "randread", "-t", "3600", "-q", "1", *args, nsid=2, env=self.clock.env(), **kwargs)

    def cntlids(self, hostnqn):
        return [c["cntlid"] for c in self.controllers() if c["hostnqn"] == hostnqn]

    def wait_both(self, hosts, more=20):
        """Until each host, of which only one reads a namespace, has read more; returns their cntlids. The commands of both together may be those
        of the busy one, while the other one still starts: varve-perf gives up if it cannot connect at first."""
        for bdev, host in zip(("M0", "EE_M1"), hosts):
            wanted = self.reads(bdev) + more

            def read(b=bdev, h=host, n=wanted):
                check(h.is_running(), f"varve-perf ended with {h.process.returncode}:\n{h.errors.read_text()}")
                return self.reads(b) >= n
            wait_for(read, lambda b=bdev, h=host: f"reads of {b}: {self.controllers()}\n{self.call('nvmf_get_inflight')}\n"
                     f"{h.errors.read_text()}\n{self.log()[-3000:]}")
        return [self.cntlids(h) for h in (BUSY, IDLE)]

    def reads(self, bdev):
        return self.call("bdev_get_iostat", name=bdev)["bdevs"][0]["num_read_ops"]

    def hours_ahead(self):
        """What the target's clock says, by an event's time."""
        self.add_malloc("X", 1)
        event = self.call("notify_get_notifications", all=True)[-1]
        self.call("bdev_malloc_delete", name="X")
        return round((event["time_us"] / 1e6 - time.time()) / HOUR)

    def copy(self):
        """A black box's file; its name."""
        fired = self.call("trace_get_triggers")["triggers"][0]["fired"]
        self.call("bdev_error_inject_error", name="EE_M1", io_type="read", error_type="failure", num=1)

        def done():
            t = self.call("trace_get_triggers")["triggers"][0]
            return t["last_file"] if t["fired"] > fired else None
        return wait_for(done, "a copy")


# Hours ahead, one after the other: forward, back to before the start, far ahead, right.
JUMPS = (3, -5, 24 * 365, 0)


def test_hosts_and_keep_alives_do_not_notice():
    with Jumping() as t, t.verifying("--kato", "4000", hostnqn=BUSY) as busy, t.reading("--rate", "1", "--kato", "4000", hostnqn=IDLE) as idle:
        there = t.wait_both([busy, idle], 1)
        for hours in JUMPS:
            t.clock.set(hours * HOUR)
            check(t.hours_ahead() == hours, f"{t.hours_ahead()} hours ahead, not {hours}")
            wait_io(t, [busy, idle], 2000)
        check([t.cntlids(h) for h in (BUSY, IDLE)] == there, (there, t.controllers()))
        busy.check_perfect(busy.stop())
        result = idle.stop()
        check(result["errors"] == 0 and result["reconnects"] == 0, idle.errors.read_text())
        t.wait_empty()
        t.stop_clean()


def test_a_silent_host_still_times_out_and_comes_back():
    with Jumping() as t, t.verifying("--kato", "1000", "--loss-timeout", "-1", hostnqn=BUSY) as busy:
        wait_io(t, [busy])
        for n, hours in enumerate((-5, 3)):
            busy.process.send_signal(signal.SIGSTOP)
            t.clock.set(hours * HOUR)
            wait_for(lambda: t.cntlids(BUSY) == [], "the silent host to be dropped")
            busy.process.send_signal(signal.SIGCONT)
            t.clock.set(-hours * HOUR)
            wait_for(lambda: t.cntlids(BUSY) != [], "it to come back")
            wait_io(t, [busy])
        result = busy.stop()
        busy.check_perfect(result, result["reconnects"])
        check(result["reconnects"] > n, result)


def test_black_box_files_are_kept_in_the_order_they_were_made():
    with Jumping() as t:
        box = t.folder / "box"
        box.mkdir()
        t.call("trace_set_blackbox", directory=str(box), max_files=3)
        t.call("trace_set_trigger", name="errors", type="io_error", holdoff_us=0)
        with t.reading("--rate", "200") as h:
            wait_io(t, [h])
            made = []
            for hours in (3, 3, 3, -5, -5, -5, -5):
                t.clock.set(hours * HOUR)
                made.append(t.copy())
                check(h.is_running(), h.errors.read_text())
            check(len(set(made)) == len(made), made)
            check(sorted(str(f) for f in box.iterdir()) == sorted(made[-3:]), (made, list(box.iterdir())))
            text = read(made[-1])
            check("Black box: trigger errors (io_error) at 20" in text, text[:1000])
            trace = json.loads(read(made[-1], "-j"))
            seconds = [(c["tsc"] / trace["tsc_rate"], c["realtime_ns"] / 1e9) for c in trace["clocks"]]
            check(all(abs(day - seconds[0][1] - (ticks - seconds[0][0])) < 60 for ticks, day in seconds),
                  f"the times of events are stretched: {seconds}")


def wait_seconds(seconds):
    """The condition is time itself."""
    end = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() > end, "time to pass")


def pause_everybody(t, hosts, seconds):
    """As a virtual machine that is suspended, with target and hosts in it; they wake in one order, and then in the other."""
    processes = (t.process, *(h.process for h in hosts))
    for order in (processes, processes[::-1]):
        for p in processes:
            p.send_signal(signal.SIGSTOP)
        wait_seconds(seconds)
        for p in order:
            p.send_signal(signal.SIGCONT)
        wait_io(t, hosts, 2000)


def test_a_short_pause_of_everybody_is_nobody_elses_silence():
    with Jumping() as t, t.verifying("--kato", "10000", hostnqn=BUSY) as busy, t.reading("--rate", "1", "--kato", "10000", hostnqn=IDLE) as idle:
        there = t.wait_both([busy, idle], 1)
        pause_everybody(t, [busy, idle], 4)
        check([t.cntlids(h) for h in (BUSY, IDLE)] == there, (there, t.controllers()))
        busy.check_perfect(busy.stop())
        check(idle.stop()["reconnects"] == 0, idle.errors.read_text())


def test_a_pause_for_the_keep_alive_timeout_ends_connections_and_loses_nothing():
    """A target cannot know that its hosts were paused with it, and not sending elsewhere what had not been answered."""
    with Jumping() as t, t.verifying("--kato", "2000", "--loss-timeout", "-1", hostnqn=BUSY) as busy, \
            t.reading("--kato", "2000", "--loss-timeout", "-1", hostnqn=IDLE) as idle:
        there = t.wait_both([busy, idle])
        pause_everybody(t, [busy, idle], 5)
        t.wait_both([busy, idle])
        check(all(t.cntlids(h) != c for h, c in zip((BUSY, IDLE), there)), (there, t.controllers()))
        for host in (busy, idle):
            result = host.stop()
            check(result["errors"] == 0 and result["miscompares"] == 0 and result["reconnects"] > 0, (result, host.errors.read_text()))
        check("did not run for" in t.log(), t.log())


def test_a_suspension_that_the_tsc_does_not_show_is_an_absence():
    """The hosts were not suspended, and have long given up a target that was away for longer than their timeouts."""
    with Jumping() as t, t.verifying("--kato", "20000", "--loss-timeout", "-1", hostnqn=BUSY) as busy, \
            t.reading("--kato", "120000", "--loss-timeout", "-1", hostnqn=IDLE) as idle:
        there = t.wait_both([busy, idle])
        for _ in range(3):
            t.clock.suspend(10)         # shorter than both timeouts
            t.wait_both([busy, idle])
            check([t.cntlids(h) for h in (BUSY, IDLE)] == there, (there, t.controllers()))
            t.clock.suspend(60)         # longer than one of them
            wait_for(lambda before=there[0]: t.cntlids(BUSY) not in ([], before), lambda: f"{t.controllers()}\n{t.log()[-3000:]}")
            there = t.wait_both([busy, idle])
        check("did not run for" in t.log(), t.log()[-3000:])
        check(idle.stop()["reconnects"] == 0, idle.errors.read_text())
        result = busy.stop()
        busy.check_perfect(result, result["reconnects"])
        check(result["reconnects"] == 3, result)


def stop_and_go_on(t, waits, leaves):
    there = t.wait_both([waits, leaves])[0]
    t.process.send_signal(signal.SIGSTOP)
    wait_seconds(4)
    t.process.send_signal(signal.SIGCONT)
    wait_io(t, [waits, leaves], 2000)
    check(t.wait_both([waits, leaves])[0] == there, t.controllers())
    waits.check_perfect(waits.stop())
    check(leaves.stop()["errors"] == 0, leaves.errors.read_text())


def test_a_target_that_was_stopped_goes_on_with_who_waited_and_takes_in_who_left():
    with Jumping() as t, t.verifying("--kato", "0", hostnqn=BUSY) as waits:
        wait_io(t, [waits], 1200)       # 1024 of them fill its region
        with t.reading("--kato", "1000", "--loss-timeout", "-1", hostnqn=IDLE) as leaves:
            stop_and_go_on(t, waits, leaves)


if __name__ == "__main__":
    main(sys.modules[__name__])
