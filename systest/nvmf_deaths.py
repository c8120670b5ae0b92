#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 240
# sanitize
# beside
"""Hosts and targets that are killed: a few here, hundreds in nvmf_deaths_full.py. VARVE_KILLS and VARVE_RESTARTS (of each kind) set
how many, VARVE_SEED repeats a run."""
import os
import random
import signal
import subprocess
import sys
import time

from appliance_lib import check, main, wait_for
from nvmf_lib import NQN, PORT, Host, Target, verifying, wait_io

KILLS = int(os.environ.get("VARVE_KILLS", "25"))
RESTARTS = int(os.environ.get("VARVE_RESTARTS", "3"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))


def kill_somewhere(t, h, rng, whole):
    """At any moment of its start, or once it is connected, or at work: a random time, for what is tested is any moment."""
    after = rng.choice(("start", "connected", "at work"))
    if after != "start":
        wait_for(lambda: len(t.controllers()) == 2, "the host to be connected")
    if after == "at work":
        wait_io(t, [h], rng.randint(50, 1000))
    try:
        h.process.wait(rng.uniform(0, 1.2 * whole if after == "start" else 0.2 * whole))
        check(False, f"varve-perf ended:\n{h.errors.read_text()}")
    except subprocess.TimeoutExpired:
        h.kill()
    return after


def test_hosts_killed_at_random_points_leave_nothing_and_disturb_nobody():
    rng = random.Random(SEED)
    with Target() as t:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.add_file("F0", t.folder / "disk")
        for bdev in ("M0", "M1", "F0"):
            t.add_ns(bdev)
        for _ in range(2):      # what comes with the first hosts stays
            with Host(t, "-t", "3600", "-P", "4") as h:
                wait_io(t, [h])
                h.stop()
        t.wait_empty()
        held = t.held()
        start = time.monotonic()
        with verifying(t, 1, "-t", "3600", "-q", "8", hostnqn=NQN + ":steady") as steady:
            wait_for(lambda: t.controllers(), "the host to be connected")
            wait_io(t, [steady])
            whole = time.monotonic() - start        # from the start of a host to some I/O
            steady_qpairs = t.num_qpairs()
            when = []
            for _ in range(KILLS):
                with Host(t, "-w", "randrw", "-t", "3600", "-q", "32", "-o", rng.choice(["4k", "64k"]), "-P", "2",
                          nsid=rng.choice([2, 3])) as h:
                    when.append(kill_somewhere(t, h, rng, whole))
                if when[-1] != "start":     # else the next host would be taken for connected while this one is still there
                    wait_for(lambda: len(t.controllers()) == 1, "the dead host's controller to be gone")
            wait_for(lambda: t.num_qpairs() == steady_qpairs, "the queue pairs of the dead to be gone")
            check(len(t.controllers()) == 1, t.controllers())
            wait_io(t, [steady])
            result = steady.stop()
            steady.check_perfect(result)
        print(f"# {KILLS} kills: {', '.join(f'{when.count(x)} {x}' for x in sorted(set(when)))}; seed {SEED}; the target has seen "
              f"{t.groups('admin_qpairs')} admin and {t.groups('io_qpairs')} I/O queue pairs")
        t.wait_empty(held)
        t.stop_clean()


def start_target(disk, port):
    t = Target(port=port)
    try:
        t.add_file("F0", disk)
        t.add_ns("F0", nsid=1, uuid="11111111-2222-3333-4444-555555555555")
    except BaseException:
        t.__exit__()
        raise
    return t


def restart_under_a_host(end):
    """The file keeps what was acknowledged; what was not is repeated by the host."""
    with Target(port=PORT + 1) as other:
        other.add_malloc("M0")
        other.add_ns("M0", nsid=1)
        disk = other.folder / "disk"
        t = start_target(disk, PORT)
        try:
            with verifying(t, 1, "-t", "3600", "-q", "8", "--loss-timeout", "60") as h, \
                    verifying(other, 1, "-t", "3600", "-q", "4") as neighbour:
                h.errors = h.errors.rename(other.folder / "errors")
                h.output = h.output.rename(other.folder / "output")
                wait_for(t.controllers, "the host to be connected")
                for _ in range(RESTARTS):
                    wait_io(t, [h], 500)
                    end(t)
                    t.__exit__()
                    t = start_target(disk, PORT)
                    wait_for(t.controllers, "the host to come back")
                wait_io(t, [h], 500)
                result = h.stop()
                h.check_perfect(result, RESTARTS)
                print(f"# {RESTARTS} restarts, {result['repeated']} commands repeated")
                neighbour.check_perfect(neighbour.stop())
            t.wait_empty()
            t.stop_clean()
        finally:
            t.__exit__()
        other.wait_empty()
        other.stop_clean()


def test_a_target_killed_under_a_host_is_found_again_with_all_data():
    restart_under_a_host(lambda t: t.process.kill() or t.process.wait())


def test_a_target_stopped_under_a_host_is_found_again_with_all_data():
    restart_under_a_host(lambda t: t.stop_clean("is refused: the target is being started or stopped"))


def test_a_host_that_stops_answering_is_dropped_after_its_keep_alive_time():
    """Frozen, not dead: only the timer can tell."""
    with Target() as t:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.add_ns("M0", nsid=1)
        t.add_ns("M1", nsid=2)
        with verifying(t, 2, "-t", "3600", "-q", "4", hostnqn=NQN + ":steady") as steady, \
                Host(t, "-w", "randrw", "-t", "3600", "-q", "8", "--kato", "1000", "--loss-timeout", "60", nsid=1) as frozen:
            wait_for(lambda: len(t.controllers()) == 2, "both hosts to be connected")
            wait_for(lambda: t.call("bdev_get_iostat", name="M0")["bdevs"][0]["num_write_ops"] > 0, "it to have a queue for I/O")
            frozen.process.send_signal(signal.SIGSTOP)
            wait_for(lambda: len(t.controllers()) == 1, "the frozen host to be dropped")
            check("keep-alive" in t.log(), t.log())
            frozen.process.send_signal(signal.SIGCONT)
            wait_for(lambda: len(t.controllers()) == 2,
                     lambda: f"the host to come back: {frozen.is_running()} {frozen.errors.read_text()}\n{t.log()}")
            wait_io(t, [steady, frozen])
            result = frozen.stop()
            check(result["errors"] == 0 and result["reconnects"] == 1, result)
            steady.check_perfect(steady.stop())
        t.wait_empty()
        t.stop_clean("keep-alive")


if __name__ == "__main__":
    main(sys.modules[__name__])
