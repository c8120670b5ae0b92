# SPDX-License-Identifier: BSD-3-Clause
"""Schedules of two events that overlap, for two gateways with an etcd of three members and, where its packages are, a Ceph. Partitions are rules of nftables
in a network of the test's own. A schedule has ended when each group has an owner again and hosts have had I/O done of each."""
import contextlib
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

from appliance_lib import DEADLINE, VARVE, Failure, RpcError, check, wait_for
from ceph_lib import Ceph
from cluster_lib import CLUSTER, GROUPS, CephGateway, tell
from cluster_members_lib import CLIENTS, ThreeMembers
from cluster_random_lib import OperatorEvents, PlaceEvents, ProgramEvents, RandomGateway, RandomScene, random_scene
from nvmf_stale_lib import Actor, check_ledger

LEASE_S = 2
OLD = os.environ.get("VARVE_OLD")       # a built tree of an earlier version, with which gateways begin
MIXED = 5               # schedules with it, before gateways are upgraded
GROUP_ID = 20001        # of the first gateway's processes: their packets are known by it
OSD_PORTS = "6800-7568"
# Elections are quick, because leases are.
store = functools.partial(ThreeMembers, ("--heartbeat-interval", "100", "--election-timeout", "500"))


class Cuts:
    """Packets that are dropped."""

    def __init__(self):
        self.rules = {}

    def set(self, who, *rules):
        """Those of `who` from now on; without rules: none."""
        self.rules[who] = rules
        lines = "".join(f"add rule inet cut out {r} drop\n" for found in self.rules.copy().values() for r in found)
        text = f"table inet cut {{ chain out {{ type filter hook output priority 0; }}\n }}\nflush chain inet cut out\n{lines}"
        subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True, timeout=DEADLINE)


class ScheduledGateway(RandomGateway):
    """Both programs run with a group id of their own."""
    cluster = CLUSTER       # its varve-cluster
    lease_s = LEASE_S
    old = set()             # the numbers of those of the earlier version

    def __init__(self, number, folder, server):
        self.group_id = GROUP_ID + number
        is_old = number in self.old
        varve = pathlib.Path(OLD) / "build/bin/varve" if is_old else VARVE
        cluster = pathlib.Path(OLD) / "tools/cluster/varve-cluster" if is_old else self.cluster
        self.program = folder / f"varve{number}"
        self.program.write_text(f'#!/bin/sh\nexec setpriv --regid {self.group_id} --clear-groups {varve} "$@"\n')
        self.program.chmod(0o755)
        self.program_of_agent = folder / f"varve-cluster{number}.py"
        self.program_of_agent.write_text(f"import os, sys\nos.setgid({self.group_id})\nos.execv(sys.executable, [sys.executable, {str(cluster)!r}, *sys.argv[1:]])\n")
        super().__init__(number, folder, server, lease_s=self.lease_s, etcd={"endpoints": server.endpoints()})

    def is_lost(self):
        """Whether Ceph has blocklisted it. Until it is started again, it can have no group."""
        try:
            return any(b["driver_specific"].get("rbd", {}).get("lost") for b in self.call("bdev_get_bdevs"))
        except (OSError, Failure, RpcError):
            return False


class CephScheduledGateway(CephGateway, ScheduledGateway):
    """On images of Ceph."""


class AroundEvents(PlaceEvents):
    """What is around a gateway, in a network of the test's own."""

    def __init__(self, s, number):
        super().__init__(s, number)
        self.all = [self.cut_from_etcd, self.cut_from_hosts, self.slow] + ([self.cut_from_ceph] if s.ceph else [])

    def cut_for_a_while(self, actor, what, *rules):
        who = f"{what} of {self.number}"
        self.say(f"{what} cannot be reached")
        self.scene.cuts.set(who, *rules)
        actor.rest(0.1, 2.2 * self.scene.lease_s)
        self.scene.cuts.set(who)
        self.say(f"{what} can be reached")

    def group_id(self):
        return self.scene.gateways[self.number].group_id

    def cut_from_etcd(self, actor):
        self.cut_for_a_while(actor, "etcd", f"meta skgid {self.group_id()} tcp dport {CLIENTS}")

    def cut_from_hosts(self, actor):
        port = self.scene.gateways[self.number].port
        self.cut_for_a_while(actor, "hosts", f"tcp dport {port}", f"tcp sport {port}")

    def cut_from_ceph(self, actor):
        ceph = self.scene.ceph
        self.cut_for_a_while(actor, "Ceph", f"meta skgid {self.group_id()} tcp dport {{ {ceph.port}, {ceph.port + 1}, {OSD_PORTS} }}")


class MemberEvents:
    """etcd's members, one of them or all."""

    def __init__(self, s):
        self.scene = s
        self.all = [self.restart_all, self.restart_all, self.kill_one, self.stop_leader, self.cut_one]

    def restart_all(self, actor):
        self.scene.say("etcd: SIGKILL, all members")
        for m in self.scene.etcd.members:
            m.kill()
        actor.rest(0, 1.5 * self.scene.lease_s)
        for m in self.scene.etcd.members:
            m.start()
        self.scene.etcd.wait_whole()
        self.scene.say("all members of etcd are started")

    def kill_one(self, actor):
        m = actor.rng.choice(self.scene.etcd.members)
        self.scene.say(f"etcd: SIGKILL, {m.name}")
        m.kill()
        actor.rest(0, 1.5 * self.scene.lease_s)
        m.start()
        self.scene.etcd.wait_whole()
        self.scene.say(f"{m.name} is started")

    def stop_leader(self, actor):
        m = self.scene.etcd.leader()
        self.scene.say(f"etcd: SIGSTOP, {m.name}, the leader")
        m.signal(signal.SIGSTOP)
        actor.rest(0.1, 1.5 * self.scene.lease_s)
        m.signal(signal.SIGCONT)
        self.scene.etcd.wait_whole()
        self.scene.say(f"etcd: SIGCONT, {m.name}")

    def cut_one(self, actor):
        m = actor.rng.choice(self.scene.etcd.members)
        self.scene.say(f"etcd: {m.name} is cut off")
        m.set_link("down")
        actor.rest(0.1, 1.5 * self.scene.lease_s)
        m.set_link("up")
        self.scene.etcd.wait_whole()
        self.scene.say(f"etcd: {m.name} is back")


class CephEvents:
    def __init__(self, s):
        self.scene = s
        self.all = [self.stop_osd]

    def stop_osd(self, actor):
        self.scene.say("Ceph: SIGSTOP, OSD")
        self.scene.ceph.signal("osd.0", signal.SIGSTOP)
        actor.rest(0.1, 1.5 * self.scene.lease_s)
        self.scene.ceph.signal("osd.0", signal.SIGCONT)
        self.scene.say("Ceph: SIGCONT, OSD")


def gateways_there(etcd):
    """By varve-cluster status; none if etcd does not answer."""
    p = tell(etcd, "status", "--json")
    return json.loads(p.stdout)["gateways"] if p.returncode == 0 else {}


class UpgradeEvents:
    """As doc/ceph.md tells an operator: one gateway after the other. An earlier version becomes the present one."""

    def __init__(self, s):
        self.scene = s
        self.all = [self.upgrade]

    def upgrade(self, _):
        for i in range(len(self.scene.gateways)):
            g = self.scene.gateways[i]
            self.scene.say(f"{g.name}: upgrade")
            g.end_agent()
            check(g.stop() == 0, g.log())
            ScheduledGateway.old.discard(i)
            self.scene.again(i)
            wait_for(lambda name=g.name: name in gateways_there(self.scene.etcd), self.scene.account)
            self.scene.say(f"{g.name}: upgraded")


class ScheduledScene(RandomScene):
    lease_s = LEASE_S

    def __init__(self, s, front, number, ceph=None):
        self.ceph, self.cuts = ceph, Cuts()
        super().__init__(s, front, number)
        self.times, self.count = {}, {}     # seconds of each schedule, by its seed; how often each event was
        self.exported = 0

    def lists(self):
        """Events by what they happen to, which is one at a time. One that is there several times is drawn as often."""
        found = {g.name: ProgramEvents(self, i).all for i, g in enumerate(self.gateways)}
        found |= {f"around {g.name}": AroundEvents(self, i).all for i, g in enumerate(self.gateways)}
        found |= {"etcd": MemberEvents(self).all, "operator": OperatorEvents(self).all * 3, "upgrade": UpgradeEvents(self).all * 2}
        return found | ({"ceph": CephEvents(self).all * 2} if self.ceph else {})

    def draw(self, rng):
        """Two events that can be under way at once."""
        lists = self.lists()
        upgrades = lists["upgrade"] if not ScheduledGateway.old or len(self.times) >= MIXED else lists.pop("upgrade")
        events = [(name, e) for name, found in lists.items() for e in found]
        programs = {g.name for g in self.gateways}
        while True:
            (one, first), (other, second) = rng.sample(events, 2)
            if ScheduledGateway.old and len(self.times) >= MIXED:
                one, first = "upgrade", upgrades[0]
            names = {one, other}
            if one != other and not ("upgrade" in names and names & programs):
                return [first, second]

    def schedule(self, seed):
        """Two events at once."""
        self.play_events(seed, self.draw(random.Random(seed)))

    def play_events(self, seed, found):
        """At once; then all must go on."""
        rng, begun = random.Random(seed), time.monotonic()
        self.say(f"schedule {seed}: {' and '.join(e.__name__ for e in found)}")
        for e in found:
            self.count[e.__name__] = self.count.get(e.__name__, 0) + 1
        actors = [Once(self, rng.getrandbits(32), [e]) for e in found]
        for a in actors:
            a.start()
        for a in actors:
            a.join(4 * DEADLINE)
            if a.is_alive() or a.failure:
                raise Failure(f"{'an event did not end' if a.is_alive() else repr(a.failure)}\n{self.account()}") from a.failure
        self.settle()
        self.times[seed] = time.monotonic() - begun

    def settle(self):
        """Gateways that Ceph has blocklisted are started again, as an operator does, until each group has an owner, and hosts have had something done of it."""
        before = [self.work(n) for n in GROUPS]
        wait_for(self.mended, lambda: f"each group to have one owner\n{self.account()}")
        wait_for(lambda: self.mended() and all(self.work(n) > done + 20 for n, done in zip(GROUPS, before)), lambda: f"hosts' I/O\n{self.account()}")
        self.say("each group has an owner, and hosts' I/O is carried out")

    def mended(self):
        for i, g in enumerate(self.gateways):
            if g.agent.poll() is not None:
                raise Failure(f"varve-cluster of {g.name} has ended:\n{self.account()}")
            if g.is_lost():
                self.say(f"{g.name}: blocklisted")
                self.again(i)
        if not all(h.is_running() for h in self.hosts):
            raise Failure(f"a host has ended\n{self.account()}")
        return self.settled()

    def work(self, n):
        """What hosts have had done of a group, by whichever gateway."""
        return sum(b["num_read_ops"] + b["num_write_ops"] for b in self.front.call("bdev_get_iostat", name=f"Nn{n}")["bdevs"])

    def stored(self, n):
        """What is in the image (`rbd export`), or the file."""
        if self.ceph is None:
            return super().stored(n)
        path = self.inner.folder / f"export{n}.{self.exported}"
        self.exported += 1
        path.write_bytes(self.ceph.export(f"rbd/image{n}"))
        return path

    def keep_old(self):
        """What is stored before it begins."""
        return {n: self.stored(n) if self.ceph else shutil.copy(self.stored(n), f"{self.stored(n)}.old") for n in GROUPS}

    def check_judge(self, old):
        """What was stored before must be found to be wrong."""
        for n, path in old.items():
            result, _ = check_ledger(f"group {n}", self.ledger(n), "-b", f"file:{path}")
            check(result["miscompares"] > 0, f"group {n}: the judge takes what was stored before for what is stored now")


class Once(Actor):
    """Makes one event."""

    def run(self):
        try:
            self.rest(0, 0.5)
            self.events[0](self)
        except BaseException as e:  # pylint: disable=broad-except
            self.failure = e


@contextlib.contextmanager
def stored_somewhere():
    """Gives the kind of gateways, and the Ceph that they have their images in, or None."""
    if shutil.which("ceph-mon") is None:
        yield ScheduledGateway, None
        return
    with Ceph() as ceph:
        CephScheduledGateway.ceph = ceph
        for n in GROUPS:
            ceph.image(f"rbd/image{n}", 4)
        yield CephScheduledGateway, ceph


@contextlib.contextmanager
def scheduled_scene(kind, ceph=None):
    ScheduledGateway.old = {0, 1} if OLD and kind.cluster == CLUSTER else set()
    with random_scene(kind, 2, store, functools.partial(ScheduledScene, ceph=ceph)) as (r, observer):
        try:
            yield r, observer
        finally:
            for who in list(r.cuts.rules):
                r.cuts.set(who)
