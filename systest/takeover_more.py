#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# sanitize
# beside
"""varve --takeover: what happens at the worst moment, and what must not be lost by an attempt that fails."""
import ctypes
import os
import pathlib
import random
import signal
import sys
import tempfile

from appliance_lib import Daemon, check, main, wait_for
from config_random_lib import Back, Maker, start
from nvmf_lib import PORT, preload, verifying, wait_io
from takeover import RECONNECT, TIMEOUT, TROUBLE, Case, Served, Successor, everything, hold, wait_filled, wait_held

PIDFD_GETFD = 438       # the number of the system call


def test_what_a_successor_says_when_it_is_killed_already_does_not_count():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as name:
        env, file = hold(pathlib.Path(name))
        with Served(trtype="TCP", env={**preload(TROUBLE), "VARVE_TROUBLE_LATE": str(file)}) as a, verifying(a, 1, *RECONNECT) as host:
            wait_filled(a, host)
            before = everything(a)
            with Successor(a, "--takeover-timeout", str(TIMEOUT), ready=False, env=env) as b:
                wait_held(file, b)
                check(b.wait_exit() == -signal.SIGKILL, b.log())
                check(pathlib.Path(f"{file}.said").exists(), f"it never said that it serves:\n{b.log()}")
                a.goes_on()
            check(everything(a) == before, f"{everything(a)}\n{before}")
            wait_io(a, [host])
            result = host.stop()
            check(result["reconnects"] in (1, 2), result)       # to the successor, too, before it was killed
            host.check_perfect(result, reconnects=result["reconnects"])
            a.stop_clean("ended without having taken over", "neither serves nor has ended")


def test_a_successor_that_may_ignore_errors_does_not_when_it_takes_over():
    for why in ("VARVE_TROUBLE_PORT", "VARVE_TROUBLE_FILE"):
        with Case() as c:
            value = PORT if why == "VARVE_TROUBLE_PORT" else c.target.folder / "disk"
            with Successor(c.target, "--json-ignore-init-errors", ready=False, env={**preload(TROUBLE), why: str(value)}) as b:
                b.failed("nvmf_subsystem_add_listener" if why == "VARVE_TROUBLE_PORT" else "bdev_uring_create")
                c.target.goes_on()
            c.check_end(c.target, "ended without having taken over")


def test_all_that_can_be_configured_is_taken_back():
    seed = int(os.environ.get("VARVE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"# VARVE_SEED={seed}", flush=True)
    rng = random.Random(seed)
    with Back(), Daemon("-m", "[0-1]", "-s", "512", "--wait-for-rpc", ready=False, env=preload()) as a:
        a.port, a.trtype = PORT, "TCP"
        start(a, rng)
        Maker(a, rng).run()
        before, ran = everything(a), a.log().count("ignored:")
        # It loads all, and fails at the last thing that it does before it would serve.
        with Successor(a, "-m", "[0-1]", "--takeover-force", "--metrics", f"unix:{a.folder}/none/metrics", ready=False) as b:
            b.failed("no metrics")
            wait_for(lambda: a.log().count("is running, process") == 2, lambda: f"it to go on:\n{a.log()}")
        check("left out" not in a.log() and a.log().count("ignored:") == ran, a.log())
        check(everything(a) == before, f"{everything(a)}\n{before}")
        check(a.stop() == 0, a.log())


def descriptor_of(process, path):
    """A copy of a process's descriptor of a file, which keeps the file's lock when the process is gone."""
    number = next(int(x.name) for x in pathlib.Path(f"/proc/{process.pid}/fd").iterdir() if os.readlink(x) == str(path))
    pidfd = os.pidfd_open(process.pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd, number, 0)
        check(copy >= 0, os.strerror(ctypes.get_errno()))
        return copy
    finally:
        os.close(pidfd)


def test_a_file_whose_lock_outlives_the_successor_is_waited_for():
    with Case() as c:
        env, file = hold(c.target.folder)
        with Successor(c.target, ready=False, env=env) as b:
            wait_held(file, b)
            lock = descriptor_of(b.process, c.target.folder / "disk")
            b.process.kill()
            try:
                wait_for(lambda: "repeated for some seconds" in c.target.log(), lambda: f"it to find the file in use:\n{c.target.log()}")
            finally:
                os.close(lock)
            c.target.goes_on()
        c.check_end(c.target, "ended without having taken over", "repeated for some seconds")


if __name__ == "__main__":
    main(sys.modules[__name__])
