#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1500
# budget: VARVE_STALE_SECONDS=30
# once
# long
"""nvmf_stale.py's sweep for a longer time (VARVE_STALE_SECONDS; scripts/soak.sh sets it), half of it with faults of memory, verbs and system calls in
both targets. VARVE_SEED repeats a run. The last lines have what was counted, of each half and of both:

    VARVE_STALE_SECONDS=600 systest/nvmf_stale_soak.py"""
import collections
import os
import sys
import time

from appliance_lib import check, main
from nvmf_stale_lib import Scene, sweep

SECONDS = float(os.environ.get("VARVE_STALE_SECONDS", "120"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
ROUND = 60      # seconds, after which all blocks are checked in the store itself
FAULTS = max(1, SECONDS / 2 // 15)      # that must have taken effect: a busy machine with two CPUs has managed three times as many and more
LONGER = 240    # seconds, for which a slow machine goes on until they have
TOTAL = collections.Counter()
FAULT_SITES = set()


def count(scene, counts):
    for c in (counts, TOTAL):
        c.update(reads=scene.reads(), writes=scene.writes(), lost=scene.lost(), stale=scene.stale(), errors=scene.errors(),
                 armed=scene.faults_armed, faults=scene.faults_fired, events=len(scene.events))
    FAULT_SITES.update(scene.fault_sites)


def verdict(what, c):
    print(f"# {what}: {c['reads'] + c['writes']} operations verified ({c['reads']} reads, {c['writes']} writes), {c['lost']} lost, "
          f"{c['stale']} stale, {c['errors']} ended with an error; {c['faults']} of {c['armed']} faults took effect "
          f"({len(FAULT_SITES)} sites so far), {c['events']} events, {c['seconds']} s", flush=True)


def rounds(what, judge, faults_wanted=0, **params):
    begin, seed, counts = time.monotonic(), SEED, collections.Counter()
    end = begin + SECONDS / 2
    try:
        while time.monotonic() < end or (counts["faults"] < faults_wanted and time.monotonic() < end + LONGER):
            with Scene(num_fronts=2, rate=300, depth=8, **params) as scene:
                try:
                    sweep(scene, min(ROUND, max(end - time.monotonic(), 5)), seed)
                    scene.settle()
                    scene.stop_hosts()
                    scene.check_store()
                finally:
                    count(scene, counts)
                judge(scene)
                print(f"# seed {seed}: {len(scene.events)} events, {scene.errors()} errors", flush=True)
            seed += 1
    finally:
        for c in (counts, TOTAL):
            c.update(seconds=round(time.monotonic() - begin))
        verdict(what, counts)
    check(counts["reads"] > 0 and counts["writes"] > 0 and counts["events"] > 0, counts)
    check(counts["faults"] >= faults_wanted, counts)


def check_not_stale(scene):
    """A fault may end a command with an error; no write that was acknowledged is lost, and no old one comes back."""
    check(scene.miscompares() == 0, scene.account())


def test_two_targets_have_one_store():
    rounds("two targets with one store", Scene.check_perfect)


def test_two_targets_have_one_store_and_faults():
    rounds("two targets with one store, and faults", check_not_stale, FAULTS, faults=True)
    verdict("in all", TOTAL)


if __name__ == "__main__":
    main(sys.modules[__name__])
