#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# apart
# once
"""Old writes never land behind new ones: two targets over one file, a front that has both as paths, hosts that know every write they had
acknowledged. One after the other: what ends a connection or gives a path up. Then all at once from a seed: VARVE_SEED repeats a run,
VARVE_STALE_SECONDS makes it longer.

The last tests switch off the fences of the front, and must find old data."""
import concurrent.futures
import os
import signal
import sys
import time

from appliance_lib import DEADLINE, RpcError, check, main, wait_for
from nvmf_lib import Host
from nvmf_stale_lib import FENCE_MS, KATO_MS, SHARED, STORE, Scene, sweep

SECONDS = float(os.environ.get("VARVE_STALE_SECONDS", "10"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
UNFENCED = {"fence_timeout_ms": 0}
WRITES = 10     # in flight at the left target before something happens to it
ABSENT = "did not run for"                              # a target's log
OUTWAITED = "keep-alive and quiesce times have passed"  # a front's


def waiting(back):
    """Reads and writes, on queue pairs that have not ended."""
    return sum(x["command"] in ("read", "write") for x in back.call("nvmf_get_inflight"))


def check_not_stale(scene):
    """There may be errors."""
    check(scene.miscompares() == 0, scene.account())


class Slow:
    """The front's I/O goes to the left target, where it waits: for a rate limit, for a bdev that hangs, or for a store
    that is stopped."""

    def __init__(self, scene, where):
        self.scene, self.where = scene, where
        self.front, self.host = scene.fronts[0], scene.hosts[0]
        self.left, self.right = scene.backs
        check(self.front.current() == {self.left.port}, self.front.io_paths())

    def begin(self):
        if self.where == "rate":
            self.left.set_rate(2)
        elif self.where == "store":
            self.scene.stores[0].pause()
        else:
            self.left.hang(32)
        wait_for(lambda: waiting(self.left) >= WRITES, "commands to wait at the left target")

    def end(self):
        if self.where == "rate":
            self.left.set_rate(0)
        elif self.where == "store":
            self.scene.stores[0].go_on()
        else:
            self.left.unhang()

    def wait_failover(self):
        """Commands go by the other path; those that wait may still be held."""
        before = self.right.groups("completed_nvme_io")
        wait_for(lambda: self.front.current() == {self.right.port}, "I/O to go by the other path")
        wait_for(lambda: self.right.groups("completed_nvme_io") - before > 20, "I/O by the other path")


def finish(scene):
    """What waited at the left target has its time, while the hosts write and read all blocks again. A target that has ended is started
    once more; then all blocks are read through each front and target, and from the file."""
    scene.work(400)
    scene.start_again()
    scene.settle()
    scene.stop_hosts()
    scene.check_store()
    return scene


# ---- What ends a connection, and what takes that back ----

def listener_removed(slow):
    slow.left.remove_listener()
    slow.wait_failover()
    slow.scene.work(100)
    slow.end()
    wait_for(lambda: waiting(slow.left) == 0, "the left target's commands to end")
    slow.left.add_listener(SHARED)


def namespace_removed(slow):
    slow.left.remove_ns(1, SHARED)
    slow.wait_failover()
    slow.scene.work(100)
    slow.end()
    slow.left.add_shared_ns()


def host_removed(slow):
    slow.left.call("nvmf_subsystem_remove_host", nqn=SHARED, host=slow.front.hostnqn)
    slow.wait_failover()
    slow.scene.work(100)
    slow.end()
    slow.left.call("nvmf_subsystem_add_host", nqn=SHARED, host=slow.front.hostnqn)


def reset(slow):
    """It may be answered only when what waits has ended: meanwhile the store goes on."""
    try:
        slow.front.reset(slow.left)
    except RpcError as e:
        slow.scene.say(f"reset: {e}")
    slow.front.prefer(slow.right)
    slow.scene.work(100)
    slow.end()
    wait_for(lambda: waiting(slow.left) == 0, "the left target's commands to end")


def stopped(slow):
    """What has been sent to the target meanwhile waits in its receive queues."""
    slow.left.process.send_signal(signal.SIGSTOP)
    slow.wait_failover()
    slow.scene.work(100)
    slow.left.process.send_signal(signal.SIGCONT)
    slow.end()


class Stopped:
    """The left target, stopped. The first thing that it hears when it goes on is to carry out at once what waits for the rate limit: only an
    absence that it notices before all else keeps it from that."""

    def __init__(self, slow):
        self.slow, self.absences = slow, slow.left.log().count(ABSENT)
        self.client = slow.left.client()
        self.client.call("rpc_get_methods")     # the connection is accepted
        self.begun = time.monotonic()
        slow.left.process.send_signal(signal.SIGSTOP)
        wait_for(slow.left.is_stopped, "the target to stop")
        self.client.send({"jsonrpc": "2.0", "method": "bdev_set_qos_limit", "id": 2, "params": {"name": STORE, "rw_ios_per_sec": 0}})

    def go_on(self):
        left = self.slow.left
        left.process.send_signal(signal.SIGCONT)
        check("result" in (self.client.receive() or {}), left.log()[-4000:])
        self.client.close()
        wait_for(lambda: left.log().count(ABSENT) > self.absences, "the target to notice its absence")


def stopped_past_the_fence(slow):
    """Time ends the fence, and the writes go elsewhere, before the target goes on with those that it has."""
    outwaited = slow.front.log().count(OUTWAITED)
    target = Stopped(slow)
    wait_for(lambda: sum(f["held"] for f in slow.front.fences()) > 0, "the fence to hold writes")
    wait_for(lambda: slow.front.log().count(OUTWAITED) > outwaited and not slow.front.fences(), lambda: f"time to end the fence: {slow.front.fences()}")
    slow.wait_failover()
    slow.scene.work(100)
    target.go_on()


def stopped_past_the_keep_alive(slow):
    """Nothing holds the writes: they go elsewhere as soon as the front has lost the target."""
    target = Stopped(slow)
    slow.wait_failover()
    slow.scene.work(100)
    wait_for(lambda: time.monotonic() > target.begun + 2 * KATO_MS / 1000, "two keep-alive timeouts to pass")
    target.go_on()


def terminated(slow):
    slow.left.process.send_signal(signal.SIGTERM)
    slow.wait_failover()
    check(slow.left.wait_exit() == 0, slow.left.log()[-4000:])


def killed(slow):
    """Its store has its writes, and goes on while the fence lasts."""
    slow.begin()
    slow.left.process.kill()
    slow.left.process.wait()
    slow.wait_failover()
    slow.scene.work(100)
    slow.end()


def hung(slow):
    wait_for(lambda: waiting(slow.left) == 0, "the front's timeouts to end what hangs")
    slow.scene.work(100)
    slow.end()


def come_back(slow):
    """Both paths are back, nothing is held any more, I/O goes to the left target again, and all blocks are read and written."""
    scene, front = slow.scene, slow.front
    wait_for(lambda: front.is_settled() and not front.fences(), lambda: f"both paths to be back: {front.io_paths()} {front.fences()}")
    front.prefer(slow.left)
    wait_for(lambda: front.current() == {slow.left.port}, "I/O to go to the left target again")
    scene.work(400)


def run_acts(options, *acts):
    """Each is taken back before the next; the last ends the target."""
    with Scene(options=options) as scene:
        slow = Slow(scene, "rate")
        for act in acts:
            scene.say(act.__name__)
            slow.begin()
            act(slow)
            come_back(slow)
            check(not scene.is_seen(), scene.account())
        slow.begin()
        terminated(slow)
        finish(scene).check_perfect()
        return slow.front.log()


def test_what_ends_a_connection_leaves_no_write_behind():
    run_acts({}, listener_removed, namespace_removed, host_removed, reset, stopped, stopped_past_the_fence)


def test_the_target_alone_leaves_no_write_behind():
    """The front has no fence: what was lost goes elsewhere at once, and only the target keeps the old writes from landing."""
    log = run_acts(UNFENCED, listener_removed, host_removed, reset, stopped_past_the_keep_alive)
    check("it is not waited for (fence_timeout_ms 0)" in log and "fence begun" not in log, log[-4000:])


def run_hung(options, judge):
    with Scene(options=options) as scene:
        slow = Slow(scene, "hang")
        slow.begin()
        hung(slow)
        finish(scene)
        judge(scene)


def test_a_store_that_hangs_for_longer_than_all_timers_leaves_no_write_behind():
    """The target answers, so the controller is disabled, and all that it had ends, before anything goes elsewhere."""
    run_hung({"timeout_us": 1000000, "action_on_timeout": "reset"}, Scene.check_perfect)


def test_commands_that_a_timeout_aborts_leave_no_write_behind():
    """They fail: a submitter may write again after that."""
    run_hung({"timeout_us": 1000000, "action_on_timeout": "abort"}, check_not_stale)


def names_of_oldest(back, qid):
    """The commands of a queue pair that are oldest, to a millisecond, as the target names one that does not end."""
    commands = [x for x in back.call("nvmf_get_inflight") if x["qid"] == qid]
    oldest = max(x["age_us"] for x in commands)
    return tuple(f"{x['command']} (cid {x['cid']}, nsid {x['nsid']}, LBA {x['lba']}, {x['num_blocks']} blocks) has been under way for "
                 for x in commands if x["age_us"] >= oldest - 1000)


def check_named(slow, notice):
    """The notification and the log name what does not end."""
    subsystem, host, _, qid = notice["ctx"].split()
    check((subsystem, host) == (SHARED, slow.front.hostnqn), notice)
    check(notice["reason"].startswith(names_of_oldest(slow.left, int(qid))) and f"waits for: module of bdev {STORE}" in notice["reason"], notice)
    check(f"not all has ended: {notice['reason']}" in slow.left.log(), slow.left.log()[-4000:])


def test_a_store_that_stalls_under_a_living_target_is_named_and_waited_for():
    """It stalls for longer than all of the target's timers. The front keeps the connection, and what the target refuses goes elsewhere; what has
    begun goes nowhere else. (fence_timeout_ms: also if a slow machine ends the connection.)"""
    with Scene(options={"fence_timeout_ms": 120000}) as scene, concurrent.futures.ThreadPoolExecutor() as pool:
        slow = Slow(scene, "store")
        slow.begin()
        begun, end = waiting(slow.left), time.monotonic() + FENCE_MS / 1000 + 1
        removal = pool.submit(slow.left.remove_listener)
        notices = wait_for(lambda: slow.left.notifications("nvmf_quiesce_late"), "the target to say that commands have not ended")
        check_named(slow, notices[0])
        before = slow.right.groups("completed_nvme_io")
        with Host(slow.front, "-w", "randread", "-q", "1", "--region", "64k", "--region-start", "1M", "-t", "36000", nsid=1):
            wait_for(lambda: slow.right.groups("completed_nvme_io") - before > 20, "other I/O to go by the other path")
        wait_for(lambda: time.monotonic() > end, "all of the target's timers to pass")
        check(waiting(slow.left) >= begun and not removal.done(), f"{waiting(slow.left)} of {begun} commands are left: {slow.left.log()[-4000:]}")
        slow.end()
        removal.result(DEADLINE)
        slow.wait_failover()
        slow.left.add_listener(SHARED)
        finish(scene).check_perfect()


# ---- Two targets that are peers: one proves that the other has ended a controller, or says that it cannot ----

def stopped_until_asked(slow):
    """The right target is asked, and can say nothing before the left one goes on."""
    slow.left.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: [f["state"] for f in slow.front.fences()] == ["cross_reset"], lambda: f"the right target to be asked: {slow.front.fences()}")
    slow.scene.work(100)
    check(slow.front.fences()[0]["held"] > 0, slow.front.fences())
    slow.left.process.send_signal(signal.SIGCONT)
    wait_for(lambda: "another controller of the subsystem has reset it" in slow.front.log(), "the left target to end the controller")
    slow.end()


def test_a_peer_proves_that_a_controller_has_ended_or_time_passes():
    """Stopped, the left target cannot be asked, and goes on in time; killed, it cannot, while its store goes on later: then time has to pass."""
    with Scene() as scene:
        for a, b in (scene.backs, reversed(scene.backs)):
            a.add_peer(b)
        slow = Slow(scene, "rate")
        slow.begin()
        stopped_until_asked(slow)
        come_back(slow)
        check(not scene.is_seen(), scene.account())
        killed(Slow(scene, "store"))
        finish(scene).check_perfect()
        check("was not reset by controller" in slow.front.log() and "quiesce times have passed" in slow.front.log(), slow.front.log()[-4000:])


def test_everything_at_once():
    with Scene(num_fronts=2, rate=200, depth=8) as scene:
        sweep(scene, SECONDS, SEED)
        scene.finish()
        print(f"# seed {SEED}: {len(scene.events)} events")


# ---- Without what protects the writes ----

def stale_writes(scene):
    print(f"# {scene.miscompares()} miscompares")
    return scene.miscompares()


def test_without_the_fence_a_killed_target_leaves_writes_behind():
    for _ in range(4):
        with Scene(options=UNFENCED) as scene:
            killed(Slow(scene, "store"))
            finish(scene)
            if stale_writes(scene):
                return
    check(False, "4 rounds without the fence, and no old data: the tests with it prove nothing")


def test_without_the_fence_the_sweep_finds_stale_writes():
    """Each sweep ends with the first old data that a host finds."""
    for i in range(4):
        with Scene(num_fronts=2, rate=400, depth=8, options=UNFENCED) as scene:
            sweep(scene, 30, SEED + i, scene.is_seen)
            if scene.is_seen():
                print(f"# seed {SEED + i}: found after {time.monotonic() - scene.begun:.0f} s")
                return
    check(False, f"4 sweeps without the fence from seed {SEED} on, and no old data: the sweep with it proves nothing")


if __name__ == "__main__":
    main(sys.modules[__name__])
