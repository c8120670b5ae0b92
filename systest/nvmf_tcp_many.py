#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# beside
"""Many hosts over TCP at a time, and more than there may be."""
import resource
import sys

from appliance_lib import check, main, wait_for
from nvmf_lib import HOSTNQN
from nvmf_tcp_lib import DISCOVERY, Closed, Connection, Queue, TcpTarget
from nvmf_tcp_many_lib import many, memory


def test_300_hosts_are_served_and_go_without_a_trace():
    many(300)


def test_more_unknown_hosts_than_allowed_are_refused_with_a_reason():
    with TcpTarget(max_anonymous=20) as t:
        idle = [Connection() for _ in range(20)]
        check(all(Connection(initialize=False).at_end() for _ in range(3)), "a connection above the limit was taken")
        check("is refused: there are 20 connections of hosts that are not known (max_anonymous)" in t.log(), t.log())
        for c in idle:
            c.close()
        wait_for(lambda: memory(t)[0] == 0, "all to be gone")
        t.wait_empty()
        t.stop_clean()


def test_discovery_hosts_take_little_memory():
    with TcpTarget() as t:
        queues = [Queue(nqn=DISCOVERY, hostnqn=f"{HOSTNQN}:{i}", size=32).enable() for i in range(50)]
        n, told = memory(t)
        print(f"# {told / n / 1024:.1f} KiB for each of {n} connections to the discovery service")
        check(n == 50 and told / n < 256 * 1024, (n, told))
        for q in queues:
            q.close()
        t.wait_empty()
        t.stop_clean()


def test_no_descriptor_is_left_and_hosts_wait():
    """They are told in the log, and are served when there are descriptors again; who is connected notices nothing."""
    with TcpTarget() as t:
        first = Queue().enable()
        soft, hard = resource.prlimit(t.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(t.pid, resource.RLIMIT_NOFILE, (0, hard))      # new ones; those that are open stay
        waits = Connection(initialize=False)
        with open(t.log_path) as log:       # no call: its connection would need a descriptor
            text = []

            def said():
                text.append(log.read())
                return "cannot be accepted: Too many open files; hosts have to wait" in "".join(text)
            wait_for(said, "the reason in the log")
        check(first.property_get(0x1C) & 1, "who is connected")
        resource.prlimit(t.pid, resource.RLIMIT_NOFILE, (soft, hard))
        try:
            waits.initialize(False, False, 0, 0)
        except Closed:
            check(False, "the host that waited was not served")
        waits.close()
        first.close()
        t.wait_empty()
        t.stop_clean("cannot be accepted: Too many open files")


if __name__ == "__main__":
    main(sys.modules[__name__])
