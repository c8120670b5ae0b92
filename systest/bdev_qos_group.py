#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""Groups of bdevs that share rate limits, under verified I/O of hosts over RDMA and TCP: what goes through in all, minimums, what waits and what that is said to
wait for, members and groups that come and go meanwhile, hosts and targets that end while commands wait. Counts are compared with those of the bdevs."""
import json
import re
import sys
import time
import urllib.request

from appliance_lib import DEADLINE, Daemon, Failure, RpcError, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Target, verifying, wait_io

OTHER = "nqn.2026-11.io.varve:neighbour"
IOPS, BURST_MS = 400, 50
NAMES = ("one", "two")


def two_bdevs(trtype="TCP"):
    t = Target(trtype=trtype)
    for name in NAMES:
        t.add_malloc(name)
        t.add_ns(name)
    t.call("bdev_wait_for_examine")
    return t


def group(t, name="g"):
    [g] = t.call("bdev_get_qos_groups", name=name)
    return g


def member(t, bdev, name="g"):
    [b] = [b for b in group(t, name)["bdevs"] if b["name"] == bdev]
    return b


def done(of):
    return of["reads"] + of["writes"]


def join(t, bdev, **params):
    check(t.call("bdev_set_qos_group", name=bdev, **params) is True, f"{bdev} {params}")


def bdev_counts(t, name):
    s = t.call("bdev_get_iostat", name=name)["bdevs"][0]
    return {"reads": s["num_read_ops"], "writes": s["num_write_ops"], "bytes_read": s["bytes_read"], "bytes_written": s["bytes_written"]}


def waiting(t):
    """What each I/O that waits for a limit is said to wait for."""
    return [i.get("waits_for") for b in t.call("bdev_get_inflight") for i in b["inflight"] if i["state"] == "wait_qos"]


def is_limited(t):
    """So many I/Os as the limit allows in the time that has passed, with what idle time saves up, and those in flight. (A machine that is slow has fewer.)"""
    start, before = time.monotonic(), done(group(t))
    wait_for(lambda: done(group(t)) - before >= IOPS, "a second's worth of I/O")
    went, passed = done(group(t)) - before, time.monotonic() - start
    check(went <= IOPS * (passed + BURST_MS / 1000) + 4, f"{went} I/Os in {passed:.2f} s: {IOPS} a second are allowed")


def check_metrics(t):
    """They grow meanwhile: between two answers of the method."""
    address = t.call("metrics_start", address="127.0.0.1:0")

    def scrape():
        text = urllib.request.urlopen(f"http://{address}/metrics", timeout=DEADLINE).read().decode()
        return {(m[1], m[2], m[3]): float(m[4]) for m in
                re.finditer(r'^varve_qos_group_(\w+)\{group="g",bdev="([^"]*)"(?:,op="(\w+)")?\} (\S+)$', text, re.M)}
    before, shown, after = {b: member(t, b) for b in NAMES}, scrape(), {b: member(t, b) for b in NAMES}
    for bdev in NAMES:
        for family, op, field, unit in (("ios_total", "read", "reads", 1), ("ios_total", "write", "writes", 1), ("bytes_total", "read", "bytes_read", 1),
                                        ("bytes_total", "write", "bytes_written", 1), ("waits_total", None, "waits", 1),
                                        ("waited_seconds_total", None, "waited_us", 1e-6)):
            value = shown[family, bdev, op]
            check(before[bdev][field] * unit <= value + 1e-9 and value <= after[bdev][field] * unit + 1e-9, f"{family} {bdev}: {before} {shown} {after}")
    t.call("metrics_stop")


def has_its_minimum(t):
    """Nearly all is guaranteed to the second. (Its host may be too slow for that, in a second when others use the machine.)"""
    before = {b: done(member(t, b)) for b in NAMES}
    wait_for(lambda: done(member(t, "two")) - before["two"] >= IOPS, "its minimum")
    went = {b: done(member(t, b)) - before[b] for b in NAMES}
    return went["two"] > 4 * went["one"]


def share(trtype):
    with two_bdevs(trtype) as t:
        begin = {b: bdev_counts(t, b) for b in NAMES}
        t.call("bdev_qos_group_create", name="g", rw_ios_per_sec=1000000)
        for b in NAMES:
            join(t, b, group="g")
        with verifying(t, 1, "-q", "16", "-t", "3600") as a, verifying(t, 2, "-q", "16", "-t", "3600", hostnqn=OTHER) as b:
            wait_io(t, [a, b], 2000)
            t.call("bdev_qos_group_set_limit", name="g", rw_ios_per_sec=IOPS, burst_ms=BURST_MS)
            wait_for(lambda: "rate limit of the group g" in waiting(t), "an I/O that waits")
            is_limited(t)
            before = {b: done(member(t, b)) for b in NAMES}
            wait_for(lambda: all(done(member(t, b)) >= before[b] + 100 for b in NAMES), "both to get their parts")
            join(t, "two", min_rw_ios_per_sec=IOPS - 10)
            is_limited(t)
            wait_for(lambda: has_its_minimum(t), "a second in which the first got little more than what the second leaves it")
            check_metrics(t)
            g = group(t)
            check(g["waits"] > 0 and g["waited_us"] > 0 and g["burst_ms"] == BURST_MS and g["rw_ios_per_sec"] == IOPS, g)
            waits = member(t, "one")["waits"]
            check(t.call("bdev_get_iostat", name="one")["bdevs"][0]["num_qos_waits"] >= waits > 0, g)
            t.call("bdev_qos_group_set_limit", name="g", rw_ios_per_sec=0, w_mbytes_per_sec=2)
            wait_io(t, [a, b], 1000)
            t.call("bdev_qos_group_set_limit", name="g", w_mbytes_per_sec=0)
            wait_io(t, [a, b], 2000)
            for h in (a, b):
                h.check_perfect(h.stop())
        t.wait_empty()
        for name in NAMES:
            now, counted = bdev_counts(t, name), member(t, name)
            check({k: now[k] - begin[name][k] for k in now} == {k: counted[k] for k in now}, f"the bdev: {begin[name]} to {now}; the group: {counted}")
        t.stop_clean()


def test_two_bdevs_share_a_budget_over_rdma():
    share("RDMA")


def test_two_bdevs_share_a_budget_over_tcp():
    share("TCP")


def test_members_and_groups_come_and_go_under_io():
    with two_bdevs() as t:
        with verifying(t, 1, "-q", "16", "-t", "3600") as a, verifying(t, 2, "-q", "16", "-t", "3600", hostnqn=OTHER) as b:
            for turn in range(5):
                t.call("bdev_qos_group_create", name="g", rw_mbytes_per_sec=1, burst_ms=5)
                t.call("bdev_qos_group_create", name="h", rw_ios_per_sec=100 + turn)
                for name in NAMES:
                    join(t, name, group="g", min_rw_ios_per_sec=5)
                wait_for(lambda: waiting(t).count("rate limit of the group g") >= 10, "I/O that waits")
                join(t, "one", group="h", min_rw_ios_per_sec=50)
                wait_for(lambda: "rate limit of the group h" in waiting(t), "I/O that waits for the other group")
                t.call("bdev_set_qos_limit", name="two", rw_ios_per_sec=10 if turn % 2 else 100000)
                join(t, "two", group="")
                check([x["name"] for x in group(t)["bdevs"]] == [] and "qos_group" not in t.call("bdev_get_bdevs", name="two")[0], group(t))
                if turn % 2:
                    wait_for(lambda: "rate limit of the bdev" in waiting(t), "the bdev's own limit")
                t.call("bdev_set_qos_limit", name="two", rw_ios_per_sec=0)
                for name in "gh":
                    t.call("bdev_qos_group_delete", name=name)
                check(t.call("bdev_get_qos_groups") == [], "no group")
                wait_io(t, [a, b], 2000)
            for h in (a, b):
                h.check_perfect(h.stop())
        t.wait_empty()
        t.stop_clean()


def slow_group(t):
    """In which an I/O would wait for days."""
    t.call("bdev_qos_group_create", name="g", rw_ios_per_sec=1)
    for name in NAMES:
        join(t, name, group="g")


def test_nobody_is_kept_by_io_that_waits_for_days():
    """Neither a host that is killed, nor the removal of a namespace or a bdev."""
    with two_bdevs() as t:
        slow_group(t)
        with verifying(t, 1, "-q", "8", "-t", "3600") as a, verifying(t, 2, "-q", "8", "-t", "3600", hostnqn=OTHER) as b:
            wait_for(lambda: len(waiting(t)) >= 12, "I/O that waits")
            t.remove_ns(2)
            t.call("bdev_malloc_delete", name="two")
            check([x["name"] for x in group(t)["bdevs"]] == ["one"], group(t))
            a.kill()
            wait_for(lambda: all(c["hostnqn"] != HOSTNQN for c in t.controllers()), "the host that was killed to be forgotten")
            b.kill()
        t.wait_empty()
        check(waiting(t) == [], "nothing is left")
        t.stop_clean()


def test_the_target_ends_while_io_waits_for_days():
    with two_bdevs() as t:
        slow_group(t)
        with verifying(t, 1, "-q", "8", "-t", "3600") as a, verifying(t, 2, "-q", "8", "-t", "3600", hostnqn=OTHER) as b:
            wait_for(lambda: len(waiting(t)) >= 12, "I/O that waits")
            t.stop_clean()
            for h in (a, b):
                h.kill()


def refused(d, words, method, **params):
    try:
        d.call(method, **params)
    except RpcError as e:
        check(all(w in e.message for w in words), f"{method} {params}: {e.message}")
        return
    raise Failure(f"{method} {params} was accepted")


def test_what_cannot_be_kept_is_refused():
    with Daemon() as d:
        for name in NAMES:
            d.call("bdev_null_create", name=name, num_blocks=64, block_size=512)
        d.call("bdev_qos_group_create", name="g", rw_ios_per_sec=1000, w_mbytes_per_sec=10)
        refused(d, ["'g'", "already"], "bdev_qos_group_create", name="g")
        refused(d, ["1 to 63 bytes"], "bdev_qos_group_create", name="g" * 64)
        refused(d, ["r_mbytes_per_sec 1000001", "at most 1000000"], "bdev_qos_group_create", name="h", r_mbytes_per_sec=1000001)
        refused(d, ["at least one of"], "bdev_qos_group_set_limit", name="g")
        refused(d, ["'none'", "bdev_get_qos_groups"], "bdev_qos_group_set_limit", name="none", rw_ios_per_sec=1)
        refused(d, ["'none'"], "bdev_qos_group_delete", name="none")
        refused(d, ["'none'"], "bdev_get_qos_groups", name="none")
        refused(d, ["name", "none"], "bdev_set_qos_group", name="none", group="g")
        refused(d, ["group", "'none'"], "bdev_set_qos_group", name="one", group="none")
        refused(d, ["'one'", "in no QoS group"], "bdev_set_qos_group", name="one", min_rw_ios_per_sec=1)
        refused(d, ["group", "min_rw_ios_per_sec"], "bdev_set_qos_group", name="one")
        refused(d, ["group", "'one'", "minimums"], "bdev_set_qos_group", name="one", group="", min_w_mbytes_per_sec=1)
        refused(d, ["min_rw_ios_per_sec 1001", "'g'", "1000"], "bdev_set_qos_group", name="one", group="g", min_rw_ios_per_sec=1001)
        refused(d, ["min_r_mbytes_per_sec 1000001"], "bdev_set_qos_group", name="one", group="g", min_r_mbytes_per_sec=1000001)
        join(d, "one", group="g", min_rw_ios_per_sec=600, min_w_mbytes_per_sec=6, min_r_mbytes_per_sec=7)
        refused(d, ["min_w_mbytes_per_sec 5", "has 10", "6 are guaranteed"], "bdev_set_qos_group", name="two", group="g", min_w_mbytes_per_sec=5)
        refused(d, ["group", "minimums"], "bdev_set_qos_group", name="one", group="", min_rw_ios_per_sec=0)
        refused(d, ["group", "min_rw_ios_per_sec"], "bdev_set_qos_group", name="one")
        check(member(d, "one")["min_w_mbytes_per_sec"] == 6, "as before")
        join(d, "two", group="g", min_w_mbytes_per_sec=4)
        refused(d, ["rw_ios_per_sec 599", "600"], "bdev_qos_group_set_limit", name="g", rw_ios_per_sec=599)
        refused(d, ["r_mbytes_per_sec 6", "7"], "bdev_qos_group_set_limit", name="g", r_mbytes_per_sec=6)
        d.call("bdev_qos_group_set_limit", name="g", w_mbytes_per_sec=0, burst_ms=5)
        d.call("bdev_qos_group_set_limit", name="g", burst_ms=70)
        check({k: v for k, v in group(d).items() if k.endswith("per_sec") or k == "burst_ms"} ==
              {"rw_ios_per_sec": 1000, "rw_mbytes_per_sec": 0, "r_mbytes_per_sec": 0, "w_mbytes_per_sec": 0, "burst_ms": 70}, group(d))
        join(d, "one", min_rw_ios_per_sec=1000)
        check(member(d, "one")["min_rw_ios_per_sec"] == 1000 and member(d, "one")["min_w_mbytes_per_sec"] == 6, group(d))
        saved = d.call("framework_get_config", name="bdev")
        file = d.folder / "config.json"
        file.write_text(json.dumps({"subsystems": [{"subsystem": "bdev", "config": saved}]}))
        with Daemon("-c", file) as e:
            check(e.call("bdev_get_qos_groups") == d.call("bdev_get_qos_groups") and e.call("framework_get_config", name="bdev") == saved, "saved")
        d.call("bdev_null_delete", name="one")
        check([b["name"] for b in group(d)["bdevs"]] == ["two"], group(d))
        d.call("bdev_qos_group_delete", name="g")


if __name__ == "__main__":
    main(sys.modules[__name__])
