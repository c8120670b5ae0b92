#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# apart
# once
"""nvmf_stale.py with targets that serve over TCP, where a front's disconnect may find what was sent before it still in a target's socket: with the
front's fences, by the target alone, and without what protects the writes, which must find old data. VARVE_SEED repeats the sweep."""
import sys

from appliance_lib import check, main
from nvmf_stale import SEED, UNFENCED, Slow, finish, host_removed, killed, listener_removed, reset, run_acts, stale_writes, stopped_past_the_keep_alive
from nvmf_stale_lib import Back, Scene, sweep

Back.trtype = "TCP"
SECONDS = 5


def test_what_ends_a_connection_over_tcp_leaves_no_write_behind():
    run_acts({}, listener_removed, host_removed, reset)


def test_the_target_alone_leaves_no_write_behind_over_tcp():
    log = run_acts(UNFENCED, listener_removed, stopped_past_the_keep_alive)
    check("it is not waited for (fence_timeout_ms 0)" in log and "fence begun" not in log, log[-4000:])


def test_everything_at_once_over_tcp():
    with Scene(rate=200, depth=8) as scene:
        sweep(scene, SECONDS, SEED)
        scene.finish()
        print(f"# seed {SEED}: {len(scene.events)} events")


def test_without_the_fence_a_killed_target_leaves_writes_behind_over_tcp():
    for _ in range(4):
        with Scene(options=UNFENCED) as scene:
            killed(Slow(scene, "store"))
            finish(scene)
            if stale_writes(scene):
                return
    check(False, "4 rounds without the fence, and no old data: the tests with it prove nothing")


if __name__ == "__main__":
    main(sys.modules[__name__])
