#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 3600
# budget: VARVE_HOSTILE_SECONDS=20
# once
# long
# beside
"""A hundred thousand generated hostile hosts over TCP (nvmf_tcp_generated.py has a tenth of them), or as many of them as begin within
VARVE_HOSTILE_SECONDS. VARVE_CASES and VARVE_SEED choose others. On a machine of its own: VARVE_STRICT=1 wants the good host's latency at most doubled."""
import os
import sys

from appliance_lib import main
from nvmf_tcp_generated_lib import attack

CASES = int(os.environ.get("VARVE_CASES", "100000"))
SECONDS = float(os.environ.get("VARVE_HOSTILE_SECONDS", "0"))


def test_generated_hostile_cases_for_a_time_beside_verified_io():
    attack(CASES, seconds=SECONDS, strict=bool(os.environ.get("VARVE_STRICT")))


if __name__ == "__main__":
    main(sys.modules[__name__])
