#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# budget: VARVE_HOSTILE_SECONDS=20
# once
# long
# beside
"""A hundred thousand hostile cases beside a host that does verified I/O (hostile.py does a few thousand), or as many of them as begin within
VARVE_HOSTILE_SECONDS. VARVE_CASES and VARVE_SEED choose others. On a machine of its own: VARVE_STRICT=1 wants the good host's latency at most doubled."""
import os
import sys

from appliance_lib import check, main
from hostile_lib import run

CASES = int(os.environ.get("VARVE_CASES", "100000"))
SECONDS = float(os.environ.get("VARVE_HOSTILE_SECONDS", "0"))


def test_generated_hostile_cases_for_a_time_beside_verified_io():
    r = run(CASES, seconds=SECONDS)
    if os.environ.get("VARVE_STRICT"):
        alone, beside = r["alone"][0][0], r["beside"][0][0]
        check(beside <= 2 * alone, f"the good host's median latency went from {alone:.0f} to {beside:.0f} us")


if __name__ == "__main__":
    main(sys.modules[__name__])
