#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: ceph
# limit: 900
# budget: VARVE_RBD_FAULTS_SECONDS=60
# once
# long
# beside
"""Every call that varve makes of librados and librbd fails, is late, or is answered with what cannot be, with a real Ceph: the process lives, a host on another
bdev notices nothing, somebody is told, and all goes right the next time, with nothing left over. VARVE_SEED chooses the order, in which each kind of fault
of each function comes before the others, and VARVE_RBD_FAULTS_SECONDS bounds the time (0: each fault). VARVE_FAULTS_ONLY is a text that the site's name must contain."""
import collections
import os
import random
import re
import struct
import sys
import time

from appliance_lib import TOP, Daemon, Failure, RpcError, check, main
from ceph_lib import Ceph
from faults_lib import BREAK, DELAY, LIE, ONCE, ONLY, Victim, name_sites, said, strict, symbols, tolerant
from nvmf_lib import NQN, preload
from nvmf_tcp_lib import Closed, Queue, Terminated

SECONDS = float(os.environ.get("VARVE_RBD_FAULTS_SECONDS", "60"))
SEED = int(os.environ.get("VARVE_SEED", "0")) or time.time_ns() % 1000000
VICTIM = NQN + ":victim"
BS, MIB = 512, 16      # of larger blocks Compare and Write is emulated
LATE_MS = 300
# They return nothing, and only free memory or note a name.
LEFT_ALONE = {"rados_ioctx_set_namespace", "rbd_config_image_list_cleanup", "rbd_lock_get_owners_cleanup", "rbd_watchers_list_cleanup", "rados_buffer_free", "rbd_aio_release"}
LIES = {"rbd_stat": 5, "rbd_get_stripe_unit": 4, "rbd_get_stripe_count": 4, "rbd_get_features": 2, "rados_getaddrs": 2, "rados_notify2": 2, "rbd_lock_get_owners": 2, "rbd_aio_get_return_value": 4}
ERRORS = {"rbd_aio_get_return_value": 6}        # kinds of failure, where there are several
NEVER_FAIL = {"rados_shutdown", "rados_ioctx_destroy", "rbd completion"}       # they return nothing
FENCE = {"rbd_get_id", "rados_notify2", "rbd_lock_get_owners", "rados_blocklist_add", "rbd_lock_break"}      # called if another client watches the image and has its lock
# Failures that nobody is told of, and why.
SILENT = {"rbd_close": "the image is closed nevertheless", "rbd_update_unwatch": "the same",
          "rbd_aio_create_completion": "the I/O waits, and is tried again"}


def functions():
    """The module's list of what it uses."""
    return set(re.findall(r"X\((\w+)\)", (TOP / "bdev_modules/rbd/library.h").read_text()))


class RbdVictim(Victim):
    def begin(self):
        self.call("nvmf_create_transport", trtype="TCP")
        self.tcp = self.port + 1
        self.call("nvmf_create_subsystem", nqn=VICTIM, serial_number="V2", allow_any_host=True)
        self.call("nvmf_subsystem_add_listener", nqn=VICTIM, listen_address={"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": str(self.tcp)})


class Other(Daemon):
    """Another client of the cluster, which has the lock before it is taken away."""

    def __init__(self, conf):
        self.conf = conf
        super().__init__("-m", "[0]", "-s", "128", env=preload())

    def ceph_client(self):
        """Its address, also if that is known no more."""
        bdevs = self.call("bdev_get_bdevs")
        return bdevs[0]["driver_specific"]["rbd"]["client"] if bdevs else "127.0.0.1:0/1"

    def watch(self):
        tolerant(self, "bdev_rbd_delete", name="O")
        tolerant(self, "bdev_rbd_unregister_cluster", name="c")
        self.call("bdev_rbd_register_cluster", name="c", config_file=self.conf)
        self.call("bdev_rbd_create", name="O", pool_name="rbd", rbd_name="image", block_size=BS, cluster_name="c", standby=True)

    def take(self):
        self.call("bdev_own", name="O", fence=True)


class Scene:
    def __init__(self, victim, other, conf):
        self.t, self.other, self.conf = victim, other, conf
        self.writes = 0
        self.failures = []      # of the present play: what callers and hosts are told

    def say(self, how, method, **params):
        if how is strict:
            return self.t.call(method, **params)
        try:
            return self.t.call(method, **params)
        except RpcError as e:
            self.failures.append(f"{method}: {e}")
        except (Failure, OSError) as e:
            check(self.t.process.poll() is None, f"varve has ended: {e}\n{self.t.log()[-3000:]}")
            self.failures.append(f"{method}: {e}")
        return None

    def play(self, how, contended=False):
        """Each function of the module's list is called; those of FENCE if another client has the lock."""
        say = lambda method, **params: self.say(how, method, **params)      # noqa: E731
        self.failures = []
        image = {"pool_name": "rbd", "rbd_name": "image", "block_size": BS, "cluster_name": "c"}
        say("bdev_rbd_register_cluster", name="c", config_file=self.conf)
        say("bdev_rbd_create", name="R", standby=True, **image)
        if contended:
            self.other.watch()
            say("bdev_rbd_fence_silent", name="R", clients=self.other.ceph_client())
            self.other.take()
        say("bdev_rbd_fence_silent", name="R", clients=self.other.ceph_client())
        say("bdev_own", name="R", fence=True)
        say("nvmf_subsystem_add_ns", nqn=VICTIM, namespace={"bdev_name": "R", "nsid": 1})
        self.io(how)
        say("bdev_rbd_resize", name="R", new_size=MIB)
        say("bdev_rbd_create", name="S", snapshot="s", **image)
        say("bdev_disown", name="R")
        self.clean(how)

    def clean(self, how):
        self.say(how, "nvmf_subsystem_remove_ns", nqn=VICTIM, nsid=1)
        for name in ("S", "R"):
            self.say(how, "bdev_rbd_delete", name=name)
        self.say(how, "bdev_rbd_unregister_cluster", name="c")

    def io(self, how):
        """Writes something new, and reads it back if it was acknowledged; and one of each other command."""
        self.writes += 1
        data = self.writes.to_bytes(8, "little") * (BS // 8)
        codes = []
        try:
            with Queue(port=self.t.tcp, nqn=VICTIM) as admin:
                admin.enable()
                with Queue(qid=1, cntlid=admin.cntlid, port=self.t.tcp, nqn=VICTIM) as q:
                    written = q.write(0, data, bs=BS).code
                    codes = [written, *other_commands(q, data)]
                    found = q.read(0, 1, bs=BS)
                    codes.append(found.code)
                    check(written or found.code or found.data == data, "what was acknowledged is not there")
        except (Closed, Terminated, OSError) as e:
            codes.append(str(e))
        if any(codes):
            check(how is not strict, f"I/O ended with {codes}: {self.t.log()[-600:]}")
            self.failures.append(f"I/O: {codes}")


def other_commands(q, data):
    """Flush, Write Zeroes, Deallocate, Compare and Write: their status codes."""
    codes = [q.command(q.sqe(0, 1)).code, q.command(q.rw_sqe(8, 2, 2)).code]
    codes.append(q.command(q.sqe(9, 1, struct.pack("<II", 0, 4)), struct.pack("<IIQ", 0, 2, 4)).code)
    fused = []
    for opcode, half in ((5, 1), (1, 2)):
        sqe = bytearray(q.rw_sqe(opcode, 0, 1))
        sqe[1] |= half
        fused.append(q.start(bytes(sqe), data))
    return codes + [q.finish(cid).code for cid in fused]


Fault = collections.namedtuple("Fault", "key name action number")


def faults_of(sites):
    """sites: {key: name of the function}. The first of each function and action come first."""
    found = []
    for key, name in sites.items():
        found += [Fault(key, name, BREAK, i) for i in range(ERRORS.get(name, 1))] if name not in NEVER_FAIL else []
        found += [Fault(key, name, DELAY, LATE_MS)] if not name.startswith("rbd_aio_") else []      # these queue only
        found += [Fault(key, name, LIE, i) for i in range(LIES.get(name, 0))]
    random.Random(SEED).shuffle(found)
    first, rest, kinds = [], [], set()
    for f in found:
        (rest if (f.name, f.action) in kinds else first).append(f)
        kinds.add((f.name, f.action))
    return first + rest


class Sweep:
    def __init__(self, scene):
        self.scene, self.t = scene, scene.t
        self.tried = collections.Counter()
        for contended in (True, False, True, False):      # what comes with the first use stays
            scene.play(strict, contended)
        self.sites = {key: s.name for key, s in self.t.area.sites().items() if s.name.startswith(("rados_", "rbd_", "rbd "))}
        self.where = name_sites([s for key, s in self.t.area.sites().items() if key in self.sites])
        self.usual = said(self.t.log())
        self.live = self.live_now()

    def live_now(self):
        """What was given at each place and not given back."""
        found = collections.Counter()
        for s in self.t.area.sites().values():
            found[s.name, s.pcs[0]] += s.live
        return found

    def more(self):
        """What is held that was not before; clients may not be gone yet."""
        end = time.monotonic() + ONCE
        while self.live_now() - self.live and time.monotonic() < end:
            time.sleep(0.01)
        return self.live_now() - self.live

    def strike(self, fault):
        """Whether it came to it."""
        mark = self.t.log_path.stat().st_size
        self.t.area.arm(fault.key, action=fault.action, victim=fault.number)
        self.scene.play(tolerant, fault.name in FENCE)
        fired = self.t.area.disarm()
        check(self.t.process.poll() is None, "the process is gone")
        self.t.check_steady()
        with open(self.t.log_path, errors="replace") as f:
            f.seek(mark)
            news = said(f.read()) - self.usual
        failures = list(self.scene.failures)
        if fired and fault.action == BREAK and fault.name not in SILENT:
            check(news or failures, "nobody is told")
        if fired and fault.action == DELAY:
            check(not failures, f"it is late only, and fails: {failures}")
        self.scene.play(strict)
        return fired

    def try_one(self, fault):
        if not self.strike(fault):
            return
        grown = self.more()
        if grown:       # tables grow once, leaks each time
            self.live = self.live_now()
            self.strike(fault)
            more = {k: n for k, n in self.more().items() if k in grown}
            where = symbols(pc for _, pc in more)
            check(not more, f"left over: {[(n, name, where.get(pc)) for (name, pc), n in more.items()]}")
        self.tried[fault.action] += 1

    def run(self):
        problems, end = [], time.monotonic() + SECONDS
        plan = [f for f in faults_of(self.sites) if ONLY in self.where[f.key]]
        for fault in plan:
            if SECONDS and time.monotonic() > end:
                break
            try:
                self.try_one(fault)
            except (Failure, RpcError) as e:
                problems.append(f"{self.where[fault.key]}, action {fault.action} {fault.number}: {e}")
                if self.t.process.poll() is not None or len(problems) > 4:
                    break
        print(f"# sites {len(self.sites)}; {self.tried[BREAK]} calls failed, {self.tried[DELAY]} were late, {self.tried[LIE]} answered what cannot be; "
              f"{len(plan) - sum(self.tried.values())} of {len(plan)} left out; VARVE_SEED={SEED}", flush=True)
        check(not problems, "\n".join(problems) + f"\n{self.t.log()[-3000:]}")


def test_a_fault_at_every_call_of_the_libraries():
    with Ceph() as ceph:
        ceph.image("rbd/image", MIB)
        ceph.run("rbd", "snap", "create", "--no-progress", "rbd/image@s")
        with RbdVictim() as victim, Other(str(ceph.conf)) as other:
            sweep = Sweep(Scene(victim, other, str(ceph.conf)))
            missing = functions() - LEFT_ALONE - set(sweep.sites.values())
            check(not missing, f"no play comes by {missing}")
            sweep.run()
            check(victim.end() > 0, "the other host did nothing")


if __name__ == "__main__":
    main(sys.modules[__name__])
