#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""The end of a daemon with I/O in flight: by a signal, by two, and by a kill."""
import json
import signal
import subprocess
import sys
import time

from appliance_lib import BUILD, DEADLINE, Daemon, check, main, wait_for
from nvmf_lib import NQN, PORT, Host, Target, preload, wait_io

HELD = 8        # I/Os that the delay device sits on
SLOW_US = 3000000
STUCK_US = 600000000
AGAIN = 0.6     # seconds from which on a signal is a second one (appliance/signals.c)


def slow_target(us, *options):
    """A target whose namespace takes `us` for every I/O."""
    t = Target(*options)
    t.add_malloc("M0")
    latencies = {f"{p}_{op}_latency": us for p in ("avg", "p99") for op in ("read", "write")}
    t.call("bdev_delay_create", name="D0", base_bdev_name="M0", **latencies)
    t.add_ns("D0", nsid=1)
    return t


def loaded(t):
    """A host with HELD reads outstanding on the slow namespace."""
    host = Host(t, "-w", "read", "-q", str(HELD), "-t", "3600", nsid=1)
    try:
        wait_for(lambda: len(t.call("bdev_get_inflight", name="D0")[0]["inflight"]) >= HELD, "I/O in flight")
    except BaseException:
        host.kill()
        raise
    return host


def test_a_stop_with_io_in_flight_is_clean():
    for number in (signal.SIGINT, signal.SIGTERM):
        with slow_target(SLOW_US) as t, loaded(t) as host:
            t.process.send_signal(number)
            check(t.wait_exit() == 0, f"status {t.process.returncode}\n{t.log()}")
            check("*ERROR*" not in t.log() and "Sanitizer" not in t.log(), t.log())
            check(not t.path.exists(), "the socket is left")
            host.kill()


def test_an_rpc_stop_with_io_in_flight_is_clean():
    with slow_target(SLOW_US) as t, loaded(t) as host:
        check(t.call("spdk_kill_instance", sig_name="SIGTERM") is True, "the answer")
        check(t.wait_exit() == 0, t.log())
        check("*ERROR*" not in t.log() and "Sanitizer" not in t.log(), t.log())
        host.kill()


def test_a_second_signal_ends_what_cannot_stop():
    for first, second in ((signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGINT)):
        with slow_target(STUCK_US) as t, loaded(t) as host:
            t.process.send_signal(first)
            wait_for(lambda: "stopping: " in t.log(), "the stop to begin")
            sent = time.monotonic()
            wait_for(lambda: time.monotonic() - sent > AGAIN, "the second signal to count as one")
            check(t.process.poll() is None, f"it ended although I/O was in flight:\n{t.log()}")
            t.process.send_signal(second)
            check(t.wait_exit() == 128 + second, f"status {t.process.returncode}\n{t.log()}")
            check("a second signal: exit at once" in t.log(), t.log())
            host.kill()


def test_a_stop_that_takes_long_says_what_it_waits_for():
    with slow_target(STUCK_US) as t, loaded(t) as host:
        t.process.send_signal(signal.SIGTERM)
        wait_for(lambda: "still waiting for nvmf to stop" in t.log(), "the log to name what it waits for")
        t.process.kill()
        host.kill()


class HeldTarget(Target):
    """A target in which large registrations of memory do not return while the file `hold` is there (systest/hold_registration.c)."""

    def __init__(self):
        self.port = PORT
        first, *rest = preload()["LD_PRELOAD"].rsplit(":", 1)   # what the sanitized build wants to be first stays so
        libraries = [*([first] if rest else []), str(BUILD / "systest" / "libhold-registration.so"), *(rest or [first])]
        Daemon.__init__(self, "-m", "[0]", "-s", "512", env={"LD_PRELOAD": ":".join(libraries), "VARVE_HOLD": "hold"})
        try:
            self.call("nvmf_create_transport", trtype="RDMA")
            self.add_subsystem(NQN)
        except BaseException:
            self.__exit__()
            raise
        self.hold, self.held = self.folder / "hold", self.folder / "hold.held"


def test_signals_are_served_while_a_bdev_is_made_at_the_stop():
    """Its memory is being registered on a worker thread: the control thread must not end protection domains, which waits for that thread."""
    with HeldTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        with Host(t, "-w", "randread", "-t", "3600", "-q", "1", nsid=1) as host:
            wait_io(t, [host])
            t.hold.touch()
            client = t.client()
            client.send({"jsonrpc": "2.0", "id": 1, "method": "bdev_malloc_create", "params": {"name": "M1", "block_size": 512, "num_blocks": 131072}})
            wait_for(t.held.exists, "the registration of the bdev's memory")
            t.process.send_signal(signal.SIGTERM)
            wait_for(lambda: "stopping: " in t.log(), "the stop to begin")
            for _ in range(20):     # the first of them may be served before anything is stopped
                lines = t.log().count("state STOPPING")
                t.process.send_signal(signal.SIGUSR1)
                wait_for(lambda: t.log().count("state STOPPING") > lines, "the answer to SIGUSR1", 20)
            t.hold.unlink()
            check(t.wait_exit() == 0, t.log())
            check("*ERROR*" not in t.log() and "Sanitizer" not in t.log(), t.log())
            host.kill()


def test_the_same_signal_twice_at_once_is_one():
    """As a terminal and a service manager send it to a whole group, or `timeout` to its child."""
    with slow_target(SLOW_US) as t, loaded(t) as host:
        t.process.send_signal(signal.SIGINT)
        t.process.send_signal(signal.SIGINT)
        check(t.wait_exit() in (0, 130), t.log())   # 130: this test was held up between the two
        host.kill()


def test_after_a_kill_under_load_the_trace_is_whole_and_ends_with_the_end():
    with Target("-e", "bdev,nvmf_rdma", "--num-trace-entries", "16384") as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        with Host(t, "-w", "randrw", "-q", "16", "-t", "3600", nsid=1) as host:
            start = t.groups("completed_nvme_io")
            wait_for(lambda: t.groups("completed_nvme_io") > start + 500, "I/O to be carried out")
            before = read(t.trace_file)
            wait_for(lambda: t.groups("completed_nvme_io") > start + 1000, "more I/O to be carried out")
            t.process.kill()
            t.process.wait()
            after = read(t.trace_file)
            host.kill()
        check(after["app"]["state"] == "gone", after["app"])
        check(after["entries"] and after["entries"][-1]["tsc"] > before["entries"][-1]["tsc"], "the end is missing")
        times = [e["tsc"] for e in after["entries"]]
        check(times == sorted(times), "events are not in order of time")


def read(path):
    p = subprocess.run([BUILD / "bin/varve-trace", "-f", path, "-j"], capture_output=True, text=True, timeout=2 * DEADLINE)
    check(p.returncode == 0, p.stderr)
    return json.loads(p.stdout)


if __name__ == "__main__":
    main(sys.modules[__name__])
