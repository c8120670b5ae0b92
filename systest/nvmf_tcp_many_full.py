#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 3600
# once
# long
# beside
"""Ten thousand hosts over TCP at a time (nvmf_tcp_many.py has some hundred)."""
import sys

from appliance_lib import Skip, main
from nvmf_tcp_many_lib import many, may_open

HOSTS = 10000


def test_ten_thousand_hosts_are_served_and_go_without_a_trace():
    if not may_open(HOSTS + 1000):
        raise Skip(f"a process may not have {HOSTS + 1000} descriptors here (ulimit -Hn)")
    many(HOSTS)


if __name__ == "__main__":
    main(sys.modules[__name__])
