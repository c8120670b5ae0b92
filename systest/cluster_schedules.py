#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root etcd nft
# limit: 900
# budget: VARVE_SCHEDULES_SECONDS=1
# beside
"""Random schedules of two events at once, for two gateways with an etcd of three members and images of a real Ceph (files, where its packages are missing),
and hosts with paths to both that verify each block: kill -9, SIGSTOP and SIGCONT of one program or both, a gateway cut off from etcd, from Ceph or from hosts,
a member of etcd killed, stopped or cut off, all of etcd restarted, Ceph stopped, slow storage, groups moved by an operator, both gateways upgraded one after
the other. No acknowledged write is lost, no older one comes back, no two gateways serve a group. At the end of each round every block of the images (`rbd
export`) is compared with what hosts had acknowledged.

At least VARVE_SCHEDULES schedules (50) are tried, and more until VARVE_SCHEDULES_SECONDS are over. Each has a seed of its own, and VARVE_SEED is that of the
first: VARVE_SEED=7 VARVE_SCHEDULES=1 repeats the events of schedule 7, not their timing. For a night: VARVE_SCHEDULES_SECONDS=28800. VARVE_OLD is the
folder of an earlier version's source, built: the gateways of each round begin with it, and are upgraded in its sixth schedule."""
import collections
import os
import statistics
import sys
import time

from appliance_lib import check, main
from cluster_lib import enter_network, need_network
from cluster_random_lib import ProgramEvents, endless_agent
from cluster_schedules_lib import ScheduledGateway, scheduled_scene, stored_somewhere

SECONDS = float(os.environ.get("VARVE_SCHEDULES_SECONDS", "1"))
COUNT = int(os.environ.get("VARVE_SCHEDULES", "50"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
ROUND = 50      # schedules, after which all blocks are checked in the images
FIND = 20       # schedules in which what is broken must be found


def play(kind, ceph, seed, number):
    """A round: what was counted, how often each event was, and the seconds that each schedule took."""
    with scheduled_scene(kind, ceph) as (r, observer):
        old = r.keep_old()
        for i in range(number):
            r.schedule(seed + i)
            check(not observer.found and observer.failure is None, f"seed {seed + i}: {observer.found[:3]} {observer.failure}\n{r.account()}")
        r.finish()
        counts = r.counts() | {"found": len(observer.found), "looks": observer.etcd_looks}
        check(counts["lost"] == counts["stale"] == counts["found"] == 0 and r.errors_are_of_time(), f"seed {seed + number - 1}: {counts}\n{r.account()}")
        check(observer.looks and observer.etcd_looks, f"the observer has not looked: {counts}")
        r.check_judge(old)
        return counts, r.count, r.times


def test_random_schedules():
    need_network()
    total, events, times, end = collections.Counter(), collections.Counter(), {}, time.monotonic() + SECONDS
    with stored_somewhere() as (kind, ceph):
        while len(times) < COUNT or time.monotonic() < end:
            number = min(ROUND, COUNT - len(times)) if len(times) < COUNT else ROUND
            counts, found, took = play(kind, ceph, SEED + len(times), number)
            total.update(counts)
            events.update(found)
            times |= took
            print(f"# seeds {SEED} to {SEED + len(times) - 1}, {'Ceph' if ceph else 'files (ceph-mon is not installed)'}: {total['reads']} reads and {total['writes']} "
                  f"writes verified, {total['lost']} lost, {total['stale']} stale, {total['found']} split brain, {total['errors']} ended after 30 s; leases were "
                  f"looked at {total['looks']} times; a schedule took {statistics.median(times.values()):.1f} s (median), {max(times.values()):.1f} s at most (seed {max(times, key=times.get)})", flush=True)
    print(f"# events: {', '.join(f'{name} {n}' for name, n in sorted(events.items()))}", flush=True)


def test_a_lease_that_the_daemon_does_not_know_is_found():
    need_network()
    with endless_agent() as path:
        kind = type("EndlessGateway", (ScheduledGateway,), {"cluster": path})
        with scheduled_scene(kind) as (r, observer):
            stop = [ProgramEvents(r, i).stop_agent for i in range(2)]
            for i in range(FIND):
                if not observer.found:
                    r.play_events(SEED + i, [stop[i % 2]])
            check(any("serves group" in text for text in observer.found), f"{observer.found[:3]}\n{r.account()}")
            print(f"# found after {len(r.times)} events: {observer.found[0]}", flush=True)


if __name__ == "__main__":
    enter_network()
    main(sys.modules[__name__])
