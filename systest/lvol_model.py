#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# spare
# once
# limit: 300
# budget: VARVE_LVOL_SECONDS=10
"""Random operations on a volume store and on a model of it in memory, which are compared after each few, with crashes between: the unit test
lvol_live.test_random_operations, again and again for VARVE_LVOL_SECONDS, or until it has done 1 million operations. VARVE_SEED is the first seed."""
import os
import re
import subprocess
import sys
import time

from appliance_lib import BUILD, check, main

SECONDS = float(os.environ.get("VARVE_LVOL_SECONDS", "10"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000000))
RUNS = 40                   # at a time, each of 250 operations with a seed of its own
ENOUGH = 1000000


def some_runs(seed):
    """(operations, crashes) of the runs from that seed on."""
    p = subprocess.run([BUILD / "unittest/unit-lvol_live", "test_random_operations"], capture_output=True, text=True, timeout=250, check=False,
                       env={**os.environ, "VARVE_SEED": str(seed), "VARVE_LVOL_RUNS": str(RUNS)})
    counts = re.search(r"(\d+) operations, (\d+) crashes, 0 failures", p.stdout)
    check(p.returncode == 0 and counts, f"VARVE_SEED={seed}: {p.returncode}: {p.stdout[-3000:]}{p.stderr[-3000:]}")
    return int(counts[1]), int(counts[2])


def test_random_operations_do_what_the_model_says():
    end, seed, operations, crashes = time.monotonic() + SECONDS, SEED, 0, 0
    while operations == 0 or (operations < ENOUGH and time.monotonic() < end):
        done, crashed = some_runs(seed)
        operations, crashes, seed = operations + done, crashes + crashed, seed + RUNS
    check(crashes > 0, "no crash")
    print(f"{operations} operations, {crashes} crashes, seeds {SEED} to {seed - 1}", flush=True)


if __name__ == "__main__":
    main(sys.modules[__name__])
