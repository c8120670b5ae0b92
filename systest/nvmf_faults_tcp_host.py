#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# budget: VARVE_FAULTS_SECONDS=40
# long
# beside
"""The sweep of nvmf_faults_host.py with a host whose controllers are reached over TCP."""
import re
import sys

from appliance_lib import check, main
from faults_lib import SEED, sweep  # noqa: F401 (main() names the seed)
from nvmf_faults_host import Front, Scenario


class FrontTcp(Front):
    trtype = "TCP"


CALLS = (("socket", "connect.c"), ("setsockopt", "connect.c"), ("connect", "connect.c"), ("getsockopt", "connect.c"), ("epoll_create1", "connect.c"),
         ("epoll_ctl", "connect.c"), ("getaddrinfo", "connect.c"), ("recvmsg", "receiver.c"), ("sendmsg", "send.c"), ("shutdown", "qpair.c"))


def test_a_fault_at_every_site_of_a_host_over_tcp_harms_nobody_else():
    names = sweep(FrontTcp, Scenario)
    missing = [c for c in CALLS if not any(re.match(rf"{c[0]} in \S+ {c[1]}:", n) for n in names)]
    check(not missing, f"no scenario comes by {missing}")


if __name__ == "__main__":
    main(sys.modules[__name__])
