#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 3600
# once
# long
# beside
"""A hundred thousand generated hostile hosts over TCP (nvmf_tcp_generated.py has a tenth of them). VARVE_CASES and VARVE_SEED choose others."""
import os
import sys

from appliance_lib import main
from nvmf_tcp_generated_lib import attack

CASES = int(os.environ.get("VARVE_CASES", "100000"))


def test_a_hundred_thousand_hostile_cases_beside_verified_io():
    attack(CASES)


if __name__ == "__main__":
    main(sys.modules[__name__])
