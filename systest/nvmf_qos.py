#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""Rate limits of hosts and of subsystems, over RDMA and TCP: what goes through is what the limit allows, others are not held, and limits change under
verified I/O. Counts are compared with those of the bdev."""
import json
import re
import subprocess
import sys
import time
import urllib.request

from appliance_lib import BUILD, DEADLINE, Daemon, Failure, RpcError, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target, preload, verifying, wait_io

OTHER = "nqn.2026-11.io.varve:neighbour"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
IOPS, BURST_MS = 300, 50
AT_ONCE = 8     # RATE_BATCH, of a first look
TURN_US = 2000  # RATE_TURN_US


def limits(t, host=None):
    found = [q for q in t.call("nvmf_subsystem_get_qos_limits", nqn=NQN) if q["host"] == host]
    return found[0] if found else None


def done(t, host):
    q = limits(t, host)
    return q["reads"] + q["writes"]


def bdev_counts(t, name):
    s = t.call("bdev_get_iostat", name=name)["bdevs"][0]
    return {"reads": s["num_read_ops"], "writes": s["num_write_ops"], "bytes_read": s["bytes_read"], "bytes_written": s["bytes_written"]}


def added(before, after):
    return {k: after[k] - before[k] for k in before}


def set_limit(t, **params):
    check(t.call("nvmf_subsystem_set_qos_limit", nqn=NQN, **params) is True, "set")


def check_metrics(t):
    """They grow meanwhile: between two answers of the method."""
    address = t.call("metrics_start", address="127.0.0.1:0")

    def scrape():
        text = urllib.request.urlopen(f"http://{address}/metrics", timeout=DEADLINE).read().decode()
        return {(m[1], m[2]): float(m[3]) for m in re.finditer(r'^varve_nvmf_limit_(\w+)\{subsystem="[^"]*",host="([^"]*)"(?:,op="read")?\} (\S+)$', text, re.M)}
    hosts = (HOSTNQN, None)
    before, shown, after = {h: limits(t, h) for h in hosts}, scrape(), {h: limits(t, h) for h in hosts}
    for host in hosts:
        for family, field, unit in (("waits_total", "waits", 1), ("waited_seconds_total", "waited_us", 1e-6), ("ios_total", "reads", 1), ("bytes_total", "bytes_read", 1)):
            value = shown[family, host or ""]
            check(before[host][field] * unit <= value + 1e-9 and value <= after[host][field] * unit + 1e-9, f"{before} {shown} {after}")
    t.call("metrics_stop")


def two_hosts(trtype, *arguments):
    t = Target(*arguments, trtype=trtype)
    for name in ("limited", "free"):
        t.add_malloc(name)
        t.add_ns(name)
    t.call("bdev_wait_for_examine")
    return t


def check_rate(t, host):
    """So many I/Os as the limit allows in the time that has passed, with what idle time saves up, and those in flight. (A machine that is slow has fewer.)"""
    start, before = time.monotonic(), done(t, host)
    wait_for(lambda: done(t, host) - before >= IOPS, "a second's worth of I/O")
    went, passed = done(t, host) - before, time.monotonic() - start
    check(went <= IOPS * (passed + BURST_MS / 1000) + 2, f"{went} I/Os in {passed:.2f} s: {IOPS} a second are allowed")


def attack(trtype):
    with two_hosts(trtype) as t:
        begin = bdev_counts(t, "limited")
        set_limit(t, host=HOSTNQN, rw_ios_per_sec=1000000)
        with verifying(t, 1, "-q", "16", "-t", "3600") as a, verifying(t, 2, "-q", "4", "-t", "3600", hostnqn=OTHER) as b:
            wait_io(t, [a, b], 3000)
            set_limit(t, host=HOSTNQN, rw_ios_per_sec=IOPS, burst_ms=BURST_MS)
            wait_for(lambda: any(c["state"] == "LIMITED" and c["waits_for"] == "rate limit" and c["hostnqn"] == HOSTNQN
                                 for c in t.call("nvmf_get_inflight")), "a command that waits")
            check_rate(t, HOSTNQN)
            wait_io(t, [b], 2000)   # the neighbour is not held
            check(not any(c["state"] == "LIMITED" and c["hostnqn"] == OTHER for c in t.call("nvmf_get_inflight")), "the neighbour waits")
            q = limits(t, HOSTNQN)
            check(q["waits"] > 0 and q["waited_us"] > 0 and q["rw_ios_per_sec"] == IOPS and q["burst_ms"] == BURST_MS, q)
            set_limit(t, rw_ios_per_sec=IOPS)       # of all together; of which both have something
            check_rate(t, None)
            before = done(t, HOSTNQN)
            wait_for(lambda: done(t, HOSTNQN) > before, "the first host's share")
            check(limits(t)["waits"] > 0, limits(t))
            check_metrics(t)
            set_limit(t, rw_ios_per_sec=0)
            check(limits(t) is None, "it was removed")
            set_limit(t, host=HOSTNQN, rw_ios_per_sec=0, w_mbytes_per_sec=2)
            wait_io(t, [a, b], 2000)
            set_limit(t, host=HOSTNQN, w_mbytes_per_sec=1000000)
            wait_io(t, [a, b], 2000)
            for h in (a, b):
                h.check_perfect(h.stop())
        t.wait_empty()
        q = limits(t, HOSTNQN)
        check(added(begin, bdev_counts(t, "limited")) == {k: q[k] for k in begin}, f"the bdev: {begin} to {bdev_counts(t, 'limited')}; the limit: {q}")
        t.stop_clean()


def test_hosts_over_rdma():
    attack("RDMA")


def test_hosts_over_tcp():
    attack("TCP")


def test_a_host_that_waits_for_minutes_does_not_hold_up_the_end():
    """Neither its own, nor that of its namespace, nor the target's."""
    with two_hosts("TCP") as t:
        set_limit(t, host=HOSTNQN, rw_ios_per_sec=1)
        set_limit(t, host=OTHER, rw_ios_per_sec=1)
        with verifying(t, 1, "-q", "8", "-t", "3600") as a, verifying(t, 2, "-q", "8", "-t", "3600", hostnqn=OTHER) as b:
            wait_for(lambda: sum(c["state"] == "LIMITED" for c in t.call("nvmf_get_inflight")) >= 10, "commands that wait")
            t.remove_ns(2)
            check([c for c in t.call("nvmf_get_inflight") if c["nsid"] == 2] == [], "commands of the namespace that was removed")
            a.kill()
            wait_for(lambda: all(c["hostnqn"] != HOSTNQN for c in t.controllers()), "the host that was killed to be forgotten")
            b.kill()
        t.wait_empty()
        t.stop_clean()


def events(t, *names):
    """The arguments of each event of tracepoints, with its name, its core and the microsecond in which it was recorded."""
    p = subprocess.run([BUILD / "bin/varve-trace", "-f", t.trace_file, "-j"], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stderr)
    document = json.loads(p.stdout)
    points = {p["id"]: p for p in document["tpoints"]}
    found = [(points[e["tpoint"]], e) for e in document["entries"] if points[e["tpoint"]]["name"] in names]
    return [{"name": point["name"], "lcore": e["lcore"], "us": e["tsc"] * 1e6 / document["tsc_rate"], **dict(zip((a["name"] for a in point["args"]), e["args"]))}
            for point, e in found]


def test_what_is_counted_is_what_the_trace_has():
    """Of commands that wait for their host's limit, for that of all, and for one after the other."""
    with two_hosts("TCP", "-e", "nvmf") as t:
        with verifying(t, 1, "-q", "32", "-t", "3600") as a, verifying(t, 2, "-q", "32", "-t", "3600", hostnqn=OTHER) as b:
            wait_for(lambda: all(bdev_counts(t, n)["reads"] > 100 for n in ("limited", "free")), "what is verified to be written")
            set_limit(t, host=HOSTNQN, rw_ios_per_sec=IOPS // 2)
            set_limit(t, rw_ios_per_sec=IOPS * 3 // 2, burst_ms=1)
            wait_io(t, [a, b], 600)
            wait_for(lambda: sum(c["state"] == "LIMITED" for c in t.call("nvmf_get_inflight")) > 4 * AT_ONCE, "commands that wait")
            set_limit(t, rw_ios_per_sec=1000000000)     # what waits for it would all go at once
            for h in (a, b):
                h.check_perfect(h.stop())
        t.wait_empty()
        begun, passed = events(t, "NVMF_REQ_LIMITED"), events(t, "NVMF_REQ_LIMIT_PASSED")
        own, every = limits(t, HOSTNQN), limits(t)
        check(len(begun) == len(passed) > 500, f"{len(begun)} began to wait, {len(passed)} went on")
        check(sum(e["host_us"] for e in passed) == own["waited_us"] > 0, f"{own}: the trace has {sum(e['host_us'] for e in passed)} us")
        check(sum(e["all_us"] for e in passed) == every["waited_us"] > 0, f"{every}: the trace has {sum(e['all_us'] for e in passed)} us")
        # Whoever has waited for a while was counted; a cause that changed at once has no time.
        for q, begins, key in (own, 0, "host_us"), (every, 1, "all_us"):
            least = sum(e[key] > 0 for e in passed)
            check(max(least, sum(e["all"] == begins for e in begun)) <= q["waits"] <= len(begun), f"{q}: {least} of {len(begun)} in the trace")
        check(any(e["host_us"] and e["all_us"] for e in passed), "a command that waited for both")
        runs = [0]
        for e in passed:
            runs += [1] if e["nth"] == 1 else [runs.pop() + 1]
        check(next((n for n in runs if n > 3), None) == AT_ONCE, f"so many went at once: {runs}")
        t.stop_clean()


def turns(t):
    """Of the turns that a reactor had reserved: how many it took itself, by core, and how many another took from it although the limit had not been open for long.
    What comes after that tells nothing: a reactor that does not run misses its turn, rightly."""
    kept, stolen, claim = {0: 0, 1: 0}, 0, None
    for e in sorted(events(t, "NVMF_LIMIT_CLAIM", "NVMF_REQ_LIMIT_PASSED"), key=lambda e: e["us"]):
        if e["name"] == "NVMF_LIMIT_CLAIM":
            claim = e
        elif claim:
            late = e["us"] - claim["us"] - claim["open_us"]
            if e["lcore"] == claim["lcore"]:
                kept[e["lcore"]] += 1
            elif claim["open_us"] and late < TURN_US / 2:   # if it is open already, nobody knows since when
                stolen += 1
            claim = None
    return kept, stolen


def reactors_take_turns(**limit):
    with Target("-e", "nvmf", cores="[0,1]", trtype="TCP") as t:
        t.add_malloc("limited")
        t.add_ns("limited")
        set_limit(t, rw_ios_per_sec=2 * IOPS // 3, **limit)
        with Host(t, "-w", "randread", "-q", "32", "-P", "2", "-t", "3600", nsid=1) as a:
            wait_io(t, [a], 400)
            wait_for(lambda: min(turns(t)[0].values()) >= 30, "turns of two reactors")
            kept, stolen = turns(t)
            a.kill()
        check(stolen <= sum(kept.values()) / 10, f"of the turns that were reserved, {kept} were kept, and others took {stolen}")
        t.wait_empty()
        t.stop_clean()


def test_reactors_take_turns_at_a_limit_of_all_hosts():
    reactors_take_turns()


def test_reactors_take_turns_at_the_limit_of_a_host():
    reactors_take_turns(host=HOSTNQN)


def test_a_host_has_its_minimum_beside_a_noisy_one():
    """The noisy one has 128 commands at once, the other one four."""
    with two_hosts("TCP") as t:
        set_limit(t, rw_ios_per_sec=10 * IOPS)
        set_limit(t, host=HOSTNQN, min_rw_ios_per_sec=8 * IOPS)
        with verifying(t, 1, "-q", "4", "-t", "3600") as a, verifying(t, 2, "-q", "128", "-t", "3600", hostnqn=OTHER) as b:
            wait_io(t, [a, b], 1000)
            quiet, together = done(t, HOSTNQN), done(t, None)
            wait_for(lambda: done(t, None) - together >= 10 * IOPS, "a second's worth of I/O")
            share = (done(t, HOSTNQN) - quiet) / (done(t, None) - together)
            check(share > 0.5, f"of the limit it has {share:.2f}, 0.8 are guaranteed; without, it would have at most a half")
            set_limit(t, host=HOSTNQN, min_rw_ios_per_sec=0, rw_ios_per_sec=1000000)
            wait_io(t, [a, b], 500)
            for h in (a, b):
                h.check_perfect(h.stop())
        t.wait_empty()
        t.stop_clean()


def refused(t, words, **params):
    try:
        t.call("nvmf_subsystem_set_qos_limit", **params)
    except RpcError as e:
        check(all(w in e.message for w in words), f"{params}: {e.message}")
        return
    raise Failure(f"{params} was taken")


def test_limits_are_saved_and_wrong_ones_refused():
    with two_hosts("TCP") as t:
        refused(t, ("host", "no name", "NQN"), nqn=NQN, host="no name", rw_ios_per_sec=5)
        refused(t, ("nqn", "discovery"), nqn=DISCOVERY, rw_ios_per_sec=5)
        refused(t, ("rw_ios_per_sec", "min_rw_ios_per_sec", "at least one"), nqn=NQN, host=HOSTNQN)
        refused(t, ("r_mbytes_per_sec", "at most"), nqn=NQN, r_mbytes_per_sec=1 << 40)
        refused(t, ("burst_ms",), nqn=NQN, rw_ios_per_sec=5, burst_ms=0)
        refused(t, ("nowhere",), nqn="nqn.2026-11.io.varve:nowhere", rw_ios_per_sec=5)
        check(t.call("nvmf_subsystem_get_qos_limits", nqn=NQN) == [], "nothing was set")
        set_limit(t, host=HOSTNQN, rw_ios_per_sec=5000, burst_ms=500)
        set_limit(t, rw_mbytes_per_sec=100, w_mbytes_per_sec=50)
        set_limit(t, host=HOSTNQN, r_mbytes_per_sec=10)     # the others stay
        refused(t, ("host", "minimums"), nqn=NQN, min_rw_mbytes_per_sec=5)
        refused(t, ("min_rw_mbytes_per_sec", "101", "100"), nqn=NQN, host=OTHER, min_rw_mbytes_per_sec=101)
        set_limit(t, host=HOSTNQN, min_rw_mbytes_per_sec=60, min_w_mbytes_per_sec=20)
        refused(t, ("min_rw_mbytes_per_sec 41", "60 are guaranteed"), nqn=NQN, host=OTHER, min_rw_mbytes_per_sec=41)
        refused(t, ("rw_mbytes_per_sec 59", "60"), nqn=NQN, rw_mbytes_per_sec=59)
        saved = t.rpc("save_config")[1]
        want = t.call("nvmf_subsystem_get_qos_limits", nqn=NQN)
        check(len(want) == 2 and limits(t, HOSTNQN)["rw_ios_per_sec"] == 5000 and limits(t, HOSTNQN)["burst_ms"] == 500 and limits(t, HOSTNQN)["min_rw_mbytes_per_sec"] == 60, want)
        path = t.folder / "saved.json"
        path.write_text(saved)
        t.stop_clean()
        with Daemon("-m", "[0]", "-s", "512", "-c", str(path), env=preload()) as again:
            check(again.call("nvmf_subsystem_get_qos_limits", nqn=NQN) == want, again.call("nvmf_subsystem_get_qos_limits", nqn=NQN))
            check(again.rpc("save_config")[1] == saved, "saved once more")


if __name__ == "__main__":
    main(sys.modules[__name__])
