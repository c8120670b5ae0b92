# SPDX-License-Identifier: BSD-3-Clause
"""A group of two bdevs with one limit, a tenth of what they do without: RAM disks of one target over TCP on the loopback interface, 4 KiB random reads of a host
each. The target has the first core, the hosts share the last one. What goes through is counted twice, by the group and by the statistics of the bdevs; a
difference of more than what is in flight ends the benchmark. On a machine that is busy otherwise a reactor does not run for longer than half the burst time, and a
bdev loses what is guaranteed to it for that time. Medians of turns in which each case runs once:

    qos_group.unlimited_iops         what both do without a limit
    qos_group.limit_iops             the limit
    qos_group.iops, bdev_iops        what both do with it, as the group and as the bdevs count
    qos_group.percent                of the limit; wanted: 98 to 102
    qos_group.smaller_percent        the part of the one that gets less, of a half; hosts ask for as much as each other; wanted: 90 at least
    qos_group.minimum_iops           what a bdev does to which 80 % are guaranteed, beside one whose host has four times as many in flight
    qos_group.minimum_percent        of what is guaranteed; wanted: 98 at least
    qos_group.burst_ios              what goes beyond the rate in the first second after a pause, with a burst time of 500 ms
    qos_group.burst_percent          of what that time allows; wanted: 90 to 102"""
import collections
import contextlib
import pathlib
import statistics
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from nvmf_lib import HOSTNQN, Host, Target, wait_io  # noqa: E402

TURNS, SECONDS = 3, 2
BURST_MS = 500
DEPTHS = {"One": 128, "Two": 32}
IN_FLIGHT = 2 * sum(DEPTHS.values())
figures = collections.defaultdict(list)


@contextlib.contextmanager
def host(t, name, depth):
    with Host(t, "-w", "randread", "-q", str(depth), "-t", "600", nsid=list(DEPTHS).index(name) + 1, hostnqn=f"{HOSTNQN}:{name}") as h:
        yield h
        if h.stop()["errors"]:
            sys.exit(f"bench qos_group: varve-perf had errors: {h.errors.read_text()}")


def look(t):
    """(time, {bdev: reads} as the group has counted them, the same as the bdevs have)."""
    [g] = t.call("bdev_get_qos_groups", name="g")
    return (time.monotonic(), {b["name"]: b["reads"] for b in g["bdevs"]},
            {b["name"]: b["num_read_ops"] for b in t.call("bdev_get_iostat")["bdevs"] if b["name"] in DEPTHS})


def rates(t):
    """I/O per second of each bdev, by the group and by the bdevs."""
    start, *before = look(t)
    time.sleep(SECONDS)
    end, *after = look(t)
    grown = [{b: after[i][b] - before[i][b] for b in DEPTHS} for i in range(2)]
    for b in DEPTHS:
        if abs(grown[0][b] - grown[1][b]) > IN_FLIGHT + (end - start) * 0.02 * grown[0][b]:
            sys.exit(f"bench qos_group: {b}: the group has counted {grown[0][b]}, the bdev {grown[1][b]}")
    return [{b: n / (end - start) for b, n in g.items()} for g in grown]


def both(t):
    with host(t, "One", DEPTHS["Two"]) as a, host(t, "Two", DEPTHS["Two"]) as b:
        wait_io(t, [a, b], 2000)
        return rates(t)


def limited(t, limit):
    by_group, by_bdev = both(t)
    total = sum(by_group.values())
    figures["limit_iops"].append(limit)
    figures["iops"].append(total)
    figures["bdev_iops"].append(sum(by_bdev.values()))
    figures["percent"].append(100 * total / limit)
    figures["smaller_percent"].append(200 * min(by_group.values()) / total)


def guaranteed(t, limit):
    minimum = limit * 8 // 10
    t.call("bdev_set_qos_group", name="Two", group="g", min_rw_ios_per_sec=minimum)
    with host(t, "One", DEPTHS["One"]) as a, host(t, "Two", DEPTHS["Two"]) as b:
        wait_io(t, [a, b], 2000)
        by_group, _ = rates(t)
    t.call("bdev_set_qos_group", name="Two", group="g", min_rw_ios_per_sec=0)
    figures["minimum_iops"].append(by_group["Two"])
    figures["minimum_percent"].append(100 * by_group["Two"] / minimum)


def burst(t, limit):
    """From the first I/O on: how far the count gets ahead of the rate."""
    t.call("bdev_qos_group_set_limit", name="g", rw_ios_per_sec=limit, burst_ms=BURST_MS)
    time.sleep(2 * BURST_MS / 1000)
    begin = look(t)[1]["One"]
    with host(t, "One", DEPTHS["One"]) as h:
        before = start = time.monotonic()
        ahead = 0
        while time.monotonic() < start + 1:
            now, count, _ = look(t)
            if count["One"] - begin <= 16:  # of what a host reads when it connects
                before = start = time.monotonic()
            if not h.is_running():
                sys.exit(f"bench qos_group: varve-perf ended: {h.errors.read_text()}")
            ahead = max(ahead, count["One"] - begin - limit * (now - before))
    t.call("bdev_qos_group_set_limit", name="g", rw_ios_per_sec=limit, burst_ms=20)
    figures["burst_ios"].append(ahead)
    figures["burst_percent"].append(100 * ahead / (limit * BURST_MS / 1000))


def turn(t):
    t.call("bdev_qos_group_set_limit", name="g", rw_ios_per_sec=0)
    figures["unlimited_iops"].append(sum(both(t)[0].values()))
    limit = max(1000, int(figures["unlimited_iops"][0]) // 10)
    t.call("bdev_qos_group_set_limit", name="g", rw_ios_per_sec=limit, burst_ms=20)
    limited(t, limit)
    guaranteed(t, limit)
    burst(t, limit)


with Target(trtype="TCP") as target:
    target.call("bdev_qos_group_create", name="g", rw_ios_per_sec=1000000)
    for bdev in DEPTHS:
        target.add_malloc(bdev, 64)
        target.add_ns(bdev)
        target.call("bdev_set_qos_group", name=bdev, group="g")
    for _ in range(TURNS):
        turn(target)
for figure, values in figures.items():
    unit = "%" if figure.endswith("percent") else "IOPS" if figure.endswith("iops") else "count"
    print(f"qos_group.{figure} {statistics.median(values):.{1 if unit == '%' else 0}f} {unit}", flush=True)
