# SPDX-License-Identifier: BSD-3-Clause
"""How long hosts wait when a group of namespaces goes from one gateway to another: two gateways on the same files, etcd of one member, leases of 4 s, and
a host with paths over TCP to both that verifies what it reads, 500 I/Os a second. The longest time that an I/O took; medians of turns in which each case comes once:

    gateway.outage_moved_ms      an operator moves the group
    gateway.outage_ended_ms      the owner's varve-cluster ends, as in a rolling restart
    gateway.outage_killed_ms     both programs of the owner are killed
    gateway.outage_cut_ms        the owner is cut off from etcd
    gateway.outage_ms            the largest of these; wanted: 5000 at most

Without etcd it says so, and has no figures."""
import collections
import contextlib
import pathlib
import shutil
import statistics
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from appliance_lib import wait_for  # noqa: E402
from cluster_lib import Gateway, scene, tell  # noqa: E402
from nvmf_lib import NQN, NUM_CPUS, PORT, Host, Target, wait_io  # noqa: E402

TURNS, LEASE_S = 5, 4
NSID = 1


class ShortLease(Gateway):
    def __init__(self, number, folder, server):
        super().__init__(number, folder, server, lease_s=LEASE_S)


def owner(s):
    return next(g for g in s.gateways if NSID in g.owned())


def moved(s, a, b):
    if tell(s.etcd, "move", str(NSID), b.name).returncode != 0:
        sys.exit("bench gateway: the group cannot be moved")


def ended(s, a, b):
    a.end_agent()


def killed(s, a, b):
    a.kill()


def cut(s, a, b):
    a.wire.cut = True


def mend(s, case, a):
    if case is moved:
        tell(s.etcd, "move", str(NSID), "any")
    elif case is ended:
        a.start_agent()
    elif case is killed:
        s.again(a.number)
    else:
        a.wire.cut = False
    s.wait_settled()


@contextlib.contextmanager
def front_of(s):
    with Target(cores=f"[{NUM_CPUS - 1}]", port=PORT + 10, trtype="TCP") as front:
        for g in s.gateways:
            front.call("bdev_nvme_attach_controller", name="N", ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, subnqn=NQN, **g.listen_address())
        front.add_ns(f"Nn{NSID}", nsid=NSID)
        yield front


def outage(s, front, case):
    """Of one hand-over, in ms."""
    a = owner(s)
    b = next(g for g in s.gateways if g is not a)
    with Host(front, "-w", "randrw", "--verify", "-q", "4", "--region", "256k", "--rate", "500", "-t", "3600", nsid=NSID) as h:
        wait_io(front, [h])
        case(s, a, b)
        wait_for(lambda: NSID in b.owned(), s.account)
        wait_io(front, [h], 100)
        result = h.stop()
        h.check_perfect(result)
    mend(s, case, a)
    return max(result[kind]["latency_us"]["max"] for kind in ("read", "write")) / 1000


def main():
    figures = collections.defaultdict(list)
    with scene(ShortLease) as s:
        s.wait_settled()
        with front_of(s) as front:
            for _ in range(TURNS):
                for case in (moved, ended, killed, cut):
                    figures[case.__name__].append(outage(s, front, case))
    medians = {name: statistics.median(values) for name, values in figures.items()}
    for name, value in medians.items():
        print(f"gateway.outage_{name}_ms {value:.0f} ms")
    print(f"gateway.outage_ms {max(medians.values()):.0f} ms", flush=True)


if shutil.which("etcd") is None:
    print("bench gateway: etcd is not installed (Debian's etcd-server)", file=sys.stderr)
else:
    main()
