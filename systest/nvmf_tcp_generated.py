#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# once
# beside
# sanitize
"""Thousands of generated hostile hosts over TCP beside one that does verified I/O. VARVE_CASES and VARVE_SEED choose others; a failure names seed
and case, and VARVE_ONLY sends that case alone."""
import os
import sys

from appliance_lib import check, main
from nvmf_tcp_generated_lib import CONVERSATION, Generator, attack

CASES = int(os.environ.get("VARVE_CASES", "3000" if os.environ.get("VARVE_SANITIZED") else "10000"))


def test_hostile_hosts_get_what_the_specification_says_and_harm_nobody():
    counts = attack(CASES)
    check(len(counts) == len(Generator.KINDS) or CASES < 1000 or "VARVE_ONLY" in os.environ, counts)


def test_hosts_go_after_each_byte_of_a_conversation():
    attack(CONVERSATION, "truncated")


def test_with_few_buffers_too():
    attack(CASES // 10, num_shared_buffers=64, buf_cache_size=0, c2h_success=False)


if __name__ == "__main__":
    main(sys.modules[__name__])
