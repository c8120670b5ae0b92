#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1500
# budget: VARVE_STALE_SECONDS=60
# once
# long
"""nvmf_stale.py's sweep for two minutes in all, half of them with faults of memory, verbs and system calls in both targets. VARVE_STALE_SECONDS
sets another time (scripts/soak.sh does), VARVE_SEED repeats a run."""
import os
import sys
import time

from appliance_lib import check, main
from nvmf_stale_lib import Scene, sweep

SECONDS = float(os.environ.get("VARVE_STALE_SECONDS", "120"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
ROUND = 60      # seconds, after which all blocks are checked in the store itself


def rounds(judge, **params):
    end, seed = time.monotonic() + SECONDS / 2, SEED
    while time.monotonic() < end:
        with Scene(num_fronts=2, rate=300, depth=8, **params) as scene:
            sweep(scene, min(ROUND, max(end - time.monotonic(), 5)), seed)
            scene.settle()
            scene.stop_hosts()
            scene.check_store()
            judge(scene)
            print(f"# seed {seed}: {len(scene.events)} events, {scene.errors()} errors", flush=True)
        seed += 1


def test_two_targets_have_one_store():
    rounds(Scene.check_perfect)


def check_not_stale(scene):
    """A fault may end a command with an error; no write that was acknowledged is lost, and no old one comes back."""
    check(scene.miscompares() == 0, scene.account())


def test_two_targets_have_one_store_and_faults():
    rounds(check_not_stale, faults=True)


if __name__ == "__main__":
    main(sys.modules[__name__])
