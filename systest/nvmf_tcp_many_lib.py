# SPDX-License-Identifier: BSD-3-Clause
"""Many hosts of a target over TCP, each with a controller of its own, made by nvmf_tcp_lib.py."""
import resource

from appliance_lib import check, wait_for
from nvmf_lib import HOSTNQN, verifying, wait_io
from nvmf_tcp_lib import Queue, TcpTarget


def may_open(files):
    """Whether this process and what it starts may have so many descriptors each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < files:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


def memory(t):
    """Connections, and the bytes that they have."""
    stats = [x for g in t.call("nvmf_get_stats")["poll_groups"] for x in g["transports"]]
    return sum(x["connections"] for x in stats), sum(x["connection_bytes"] for x in stats)


def resident(t):
    with open(f"/proc/{t.pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))


def many(hosts):
    """All connect, and each is served while all others are there and one more does verified I/O; then all go at once."""
    with TcpTarget(max_aq_depth=32) as t:
        t.add_malloc("good")
        t.add_ns("good", nsid=1)
        before = resident(t)
        with verifying(t, 1, "-q", "4", "-t", "36000", "--rate", "500") as good:
            wait_io(t, [good], 100)
            queues = []
            for i in range(hosts):
                queues.append(Queue(hostnqn=f"{HOSTNQN}:{i}", size=2))
                queues[-1].enable()
            n, told = memory(t)
            check(n == hosts + 2, f"{n} connections")
            check(len({q.cntlid for q in queues}) == hosts, "controllers share an id")
            for q in queues:
                check(q.property_get(0x1C) & 1, "a controller that is not ready")
            print(f"# {hosts} hosts: {told / n / 1024:.1f} KiB for each connection; the process has grown by {(resident(t) - before) / hosts / 1024:.1f} KiB for each")
            wait_io(t, [good], 100)
            for q in queues:
                q.close()
            wait_for(lambda: t.num_qpairs() == 2, "all of them to be gone", 300)
            wait_io(t, [good], 100)
            good.check_perfect(good.stop())
        t.wait_empty()
        t.stop_clean()
