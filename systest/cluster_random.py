#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: etcd
# limit: 900
# budget: VARVE_CLUSTER_SECONDS=20
# beside
"""Several gateways, with a real etcd, to which anything happens at any time: daemons, agents and etcd are stopped, killed and started, a gateway is
cut off from etcd, storage is slow, groups are moved. Never do two gateways own a group, none serves without a lease, no acknowledged write is
lost, and no older one comes back. VARVE_SEED repeats the events, not their timing; VARVE_CLUSTER_SECONDS sets how long
it takes with two and with three gateways together.

The last tests break a fence, which must be found."""
import collections
import os
import sys
import time

from appliance_lib import check, main
from cluster_random_lib import Blind, Endless, LocksGranted, ProgramEvents, endless_agent, happen, random_scene

SECONDS = float(os.environ.get("VARVE_CLUSTER_SECONDS", "20"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
ROUND = 60      # seconds, after which all blocks are checked in the files
FIND = 240      # seconds in which what is broken must be found


def rounds(number):
    total, seed, end = collections.Counter(), SEED, time.monotonic() + SECONDS / 2
    while total["rounds"] == 0 or time.monotonic() < end:
        with random_scene(number=number) as (r, observer):
            happen(r, observer, r.kinds(), min(ROUND, max(end - time.monotonic(), 5)), seed)
            if not observer.found:
                r.finish()
            counts = r.counts()
            check(not observer.found and counts["lost"] == counts["stale"] == 0 and r.errors_are_of_time(),
                  f"seed {seed}: {counts}, {observer.found[:3]}\n{r.account()}")
            check(observer.failure is None and observer.looks and observer.etcd_looks, f"seed {seed}: {observer.failure}, {observer.looks} looks")
            total.update(counts, rounds=1, events=len(r.events), looks=observer.looks, etcd_looks=observer.etcd_looks)
        seed += 1
    print(f"# {number} gateways, seeds {SEED} to {seed - 1}: {total['events']} events, {total['reads']} reads and {total['writes']} writes verified, "
          f"{total['lost']} lost, {total['stale']} stale, {total['errors']} ended after 30 s; locks were looked at {total['looks']} times, leases {total['etcd_looks']} times", flush=True)


def test_two_gateways():
    rounds(2)


def test_three_gateways():
    rounds(3)


def found(kind, event, word):
    with random_scene(kind) as (r, observer):
        happen(r, observer, [[getattr(ProgramEvents(r, i), event)] for i in range(2)], FIND, SEED)
        check(any(word in text for text in observer.found), f"{observer.found[:3]}\n{r.account()}")
        print(f"# found after {len(r.events)} events: {observer.found[0]}", flush=True)


def test_a_lock_that_all_are_granted_is_found():
    found(LocksGranted, "stop_both", "two owners")


def test_a_lease_that_the_daemon_does_not_know_is_found():
    with endless_agent():
        found(Endless, "stop_agent", "serves group")


def test_a_daemon_that_does_not_look_at_its_lease_is_found():
    found(Blind, "stop_agent", "although its lease has ended")


if __name__ == "__main__":
    main(sys.modules[__name__])
