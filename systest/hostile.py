#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# once
# sanitize
"""Hosts that keep to nothing, beside one that does its verified I/O: `hostile-host` sends them and knows what the specification wants
answered. VARVE_CASES and VARVE_SEED choose others; a failure names the case, which `hostile-host --only N` sends again by itself."""
import os
import sys

from appliance_lib import main
from hostile_lib import run

CASES = int(os.environ.get("VARVE_CASES", "10000" if os.environ.get("VARVE_SANITIZED") else "5000"))


def test_hostile_hosts_get_what_the_specification_says_and_harm_nobody():
    run(CASES)


def test_without_shared_receives_and_with_few_buffers_too():
    run(CASES // 4, no_srq=True, zcopy=False, num_shared_buffers=64, buf_cache_size=4)


if __name__ == "__main__":
    main(sys.modules[__name__])
