#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# budget: VARVE_FAULTS_SECONDS=40
# once
# long
# beside
"""The sweep of nvmf_faults.py with a target that serves over TCP: a fault at every call on sockets, of memory and of the system on the way."""
import re
import sys

from appliance_lib import check, main
from faults_lib import SEED, sweep  # noqa: F401 (main() names the seed)
from nvmf_faults import Faulty, Scenario


class FaultyTcp(Faulty):
    trtype = "TCP"


class TcpScenario(Scenario):
    ALL = ("subsystem", "host", "small", "killed", "removed", "unwelcome", "keyed")


CALLS = (("socket", "listen.c"), ("setsockopt", "listen.c"), ("bind", "listen.c"), ("listen", "listen.c"), ("getaddrinfo", "listen.c"),
         ("accept4", "listen.c"), ("setsockopt", "qpair.c"), ("getsockname", "qpair.c"), ("getnameinfo", "qpair.c"), ("epoll_ctl", "qpair.c"),
         ("epoll_wait", "group.c"), ("recvmsg", "receiver.c"), ("sendmsg", "send.c"), ("send", "send.c"), ("shutdown", "close.c"), ("epoll_ctl", "close.c"),
         ("recv", "close.c"), ("malloc", "close.c"), ("malloc", "qpair.c"), ("calloc", "qpair.c"), ("calloc", "request.c"))


def test_a_fault_at_every_site_of_a_target_over_tcp_harms_nobody_else():
    names = sweep(FaultyTcp, TcpScenario)
    missing = [c for c in CALLS if not any(re.match(rf"{c[0]} in \S+ {c[1]}:", n) for n in names)]
    check(not missing, f"no scenario comes by {missing}")


if __name__ == "__main__":
    main(sys.modules[__name__])
