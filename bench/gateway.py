# SPDX-License-Identifier: BSD-3-Clause
"""How long hosts wait when something happens to the gateway that serves their group: two gateways, etcd of three members, leases of 4 s, and a host with
paths over TCP to both that verifies what it reads, 500 I/Os a second. Its keep-alive timeout is 2 s, and it does not wait before it repeats a write elsewhere
(fence_timeout_ms is 0; Linux never waits): the gateways fence each other. The longest time that an I/O took; medians of turns in which each case comes once.
First on files:

    gateway.outage_moved_ms      an operator moves the group
    gateway.outage_ended_ms      the owner's varve-cluster ends, as in a rolling restart
    gateway.outage_upgraded_ms   both gateways are ended and started again, one after the other
    gateway.outage_killed_ms     both programs of the owner are killed
    gateway.outage_cut_ms        the owner is cut off from etcd
    gateway.outage_hosts_ms      the owner is cut off from hosts, and an operator moves the group at once
    gateway.outage_etcd_ms       all members of etcd are killed and started again
    gateway.outage_ms            the largest of these; wanted: 5000 at most

then on images of a Ceph, the same as gateway.outage_ceph_moved_ms and so on, gateway.outage_ceph_ms, and two that files do not have:

    gateway.outage_ceph_stopped_ms   both programs of the owner get SIGSTOP
    gateway.outage_ceph_lost_ms      the owner is cut off from Ceph, and an operator ends its varve-cluster at once. It is not in gateway.outage_ceph_ms: I/O
                                     that waits at the owner waits until the host gives it up, after a time that is a setting of the host

Without etcd, nft or a network of its own (unshare -n) it says so, and has no figures; without ceph-mon, only those of files."""
import collections
import contextlib
import pathlib
import shutil
import statistics
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from appliance_lib import Skip, wait_for  # noqa: E402
from cluster_lib import check_aborted_only, enter_network, need_network, scene, tell  # noqa: E402
from cluster_members_lib import CLIENTS  # noqa: E402
from cluster_random_lib import KATO_MS  # noqa: E402
from cluster_schedules_lib import OSD_PORTS, Cuts, ScheduledGateway, gateways_there, store, stored_somewhere  # noqa: E402
from nvmf_lib import NQN, NUM_CPUS, PORT, Host, Target, wait_io  # noqa: E402

TURNS, LEASE_S = 3, 4
NSID = 1
ScheduledGateway.lease_s = LEASE_S


class Cases:
    """What happens to the owner of the group, a, when the other gateway is b."""

    def __init__(self, s, ceph):
        self.scene, self.ceph, self.cuts = s, ceph, Cuts()
        self.names = ["moved", "ended", "upgraded", "killed", "cut", "hosts", "etcd"] + (["stopped", "lost"] if ceph else [])

    def moved(self, a, b):
        if tell(self.scene.etcd, "move", str(NSID), b.name).returncode != 0:
            sys.exit("bench gateway: the group cannot be moved")

    def ended(self, a, b):
        a.end_agent()

    def upgraded(self, a, b):
        for g in (a, b):
            g.end_agent()
            g.stop()
            self.scene.again(g.number)
            wait_for(lambda name=g.name: name in gateways_there(self.scene.etcd), self.scene.account)

    def killed(self, a, b):
        a.kill()

    def stopped(self, a, b):
        a.pause()

    def cut(self, a, b):
        self.cuts.set("it", f"meta skgid {a.group_id} tcp dport {CLIENTS}")

    def hosts(self, a, b):
        self.cuts.set("it", f"tcp dport {a.port}", f"tcp sport {a.port}")
        self.moved(a, b)

    def lost(self, a, b):
        self.cuts.set("it", f"meta skgid {a.group_id} tcp dport {{ {self.ceph.port}, {self.ceph.port + 1}, {OSD_PORTS} }}")
        a.end_agent()

    def etcd(self, a, b):
        for m in self.scene.etcd.members:
            m.kill()
        for m in self.scene.etcd.members:
            m.start()
        self.scene.etcd.wait_whole()

    def mend(self, name, a):
        self.cuts.set("it")
        if name in ("moved", "hosts"):
            tell(self.scene.etcd, "move", str(NSID), "any")
        if name == "stopped":
            a.go_on()
        wait_for(self.is_mended, self.scene.account)

    def is_mended(self):
        for i, g in enumerate(self.scene.gateways):
            if g.process.poll() is not None or g.is_lost():
                self.scene.again(i)
            elif g.agent.poll() is not None:
                g.start_agent()
        return self.scene.settled()


@contextlib.contextmanager
def front_of(s):
    with Target(cores=f"[{NUM_CPUS - 1}]", port=PORT + 10, trtype="TCP") as front:
        front.call("bdev_nvme_set_options", keep_alive_timeout_ms=KATO_MS)
        for g in s.gateways:
            front.call("bdev_nvme_attach_controller", name="N", ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, fence_timeout_ms=0, subnqn=NQN, **g.listen_address())
        front.add_ns(f"Nn{NSID}", nsid=NSID)
        yield front


def outage(cases, front, name):
    """In one case, in ms."""
    s = cases.scene
    a = next(g for g in s.gateways if NSID in g.owned())
    b = next(g for g in s.gateways if g is not a)
    with Host(front, "-w", "randrw", "--verify", "-q", "4", "--region", "256k", "--rate", "500", "-t", "3600", nsid=NSID) as h:
        wait_io(front, [h])
        getattr(cases, name)(a, b)
        if name in ("upgraded", "etcd"):
            wait_for(lambda: any(NSID in g.owned() for g in s.gateways), s.account)
        else:
            wait_for(lambda: NSID in b.owned(), s.account)
        wait_io(front, [h], 100)
        result = h.stop()
        if name == "lost":
            check_aborted_only(h, result)
        else:
            h.check_perfect(result)
    cases.mend(name, a)
    return max(result[kind]["latency_us"]["max"] for kind in ("read", "write")) / 1000


def measure(prefix, kind, ceph):
    figures = collections.defaultdict(list)
    with scene(kind, store=store) as s:
        s.wait_settled()
        cases = Cases(s, ceph)
        with front_of(s) as front:
            for _ in range(TURNS):
                for name in cases.names:
                    figures[name].append(outage(cases, front, name))
    medians = {name: statistics.median(values) for name, values in figures.items()}
    for name, value in medians.items():
        print(f"{prefix}_{name}_ms {value:.0f} ms")
    print(f"{prefix}_ms {max(value for name, value in medians.items() if name != 'lost'):.0f} ms", flush=True)


def main():
    need_network()
    measure("gateway.outage", ScheduledGateway, None)
    with stored_somewhere() as (kind, ceph):
        if ceph:
            measure("gateway.outage_ceph", kind, ceph)
        else:
            print("bench gateway: ceph-mon is not installed: there are no figures with a Ceph", file=sys.stderr)


missing = [program for program in ("etcd", "nft") if shutil.which(program) is None]
if missing:
    print(f"bench gateway: {', '.join(missing)} is not installed", file=sys.stderr)
else:
    enter_network()
    try:
        main()
    except Skip as e:
        print(f"bench gateway: {e}", file=sys.stderr)
