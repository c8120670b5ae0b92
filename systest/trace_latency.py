#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 900
"""Times that statistics give, held against the trace of the same I/Os: request_latency of nvmf_get_stats against the times from a request's arrival
to its completion, and the latencies of bdev_get_iostat against those from an I/O's start to its end; over both transports.

The trace has each time exactly. The statistics have it of samples, and estimate the others (util/latency.h). With a slow bdev and few I/Os at a time
nearly all are samples. With a faster one and many at a time most are estimated: there a CPU that is taken away in the middle of a round may spoil the
sum of one run, but not that of each."""
import json
import subprocess
import sys
import time

from appliance_lib import BUILD, DEADLINE, check, main
from nvmf_lib import Host, Target

TOOL = BUILD / "bin/varve-trace"
# of the bdev: its delay, how many I/Os at a time and in all, and by which part of the trace's sum the statistics may be wrong
EXACT = {"us": 20000, "depth": 4, "ios": 200, "tolerance": 0.02}
ESTIMATED = {"us": 1000, "depth": 32, "ios": 1200, "tolerance": 0.05}
ATTEMPTS_S = 120


def trace(t):
    p = subprocess.run([TOOL, "-f", t.trace_file, "-j"], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stderr)
    document = json.loads(p.stdout)
    names = {p["id"]: p["name"] for p in document["tpoints"]}
    return [(names[e["tpoint"]], e) for e in document["entries"]]


def spans(events, first, last, since):
    """(begin, end, owner) of what began after `since`: from the tracepoint `first` of an object to its `last`."""
    begun, found = {}, []
    for name, e in events:
        if name == first:
            begun[e["object"]["value"]] = e["tsc"]
        elif name == last and begun.get(e["object"]["value"], 0) > since:
            found.append((begun.pop(e["object"]["value"]), e["tsc"], e.get("owner", "")))
    return found


def is_admin(request):
    return "qid 0 at " in request[2]


def without_held(requests):
    """Without those that were parked for an event: on an admin queue, from before all I/O until after it. That is no latency."""
    io = [r for r in requests if not is_admin(r)]
    check(io, requests)
    begin, end = min(b for b, _, _ in io), max(e for _, e, _ in io)
    held = [r for r in requests if is_admin(r) and r[0] < begin and r[1] > end]
    check(len(held) <= 4, held)
    return [r for r in requests if r not in held]


def devices(t):
    return [d for g in t.call("nvmf_get_stats")["poll_groups"] for x in g["transports"] for d in x["devices"]]


def told(t, bdev):
    """What the statistics say: requests and their ticks, the bdev's reads and writes and their ticks."""
    b, = t.call("bdev_get_iostat", name=bdev)["bdevs"]
    d = devices(t)
    return {"requests": sum(x["requests"] for x in d), "request": sum(x["request_latency"] for x in d),
            "reads": b["num_read_ops"], "read": b["read_latency_ticks"], "writes": b["num_write_ops"], "write": b["write_latency_ticks"]}


def run(t, bdev, trtype, *arguments):
    """What a host's I/O adds to the statistics, and the same as the trace has it."""
    events = trace(t)
    since = events[-1][1]["tsc"] if events else 0
    before = told(t, bdev)
    with Host(t, *arguments, "-o", "4k", "-t", "3600", nsid=1) as h:
        result = h.result(600)
    check(result["errors"] == 0, result)
    t.wait_empty()
    after = told(t, bdev)
    events = trace(t)
    p = trtype + "_REQ_"
    requests = spans(events, p + "NEW", p + "EXECUTED", since)
    ios = [s for s in spans(events, "BDEV_IO_START", "BDEV_IO_DONE", since) if s[2] == bdev]
    return {k: after[k] - before[k] for k in after}, without_held(requests), ios


def compare(added, requests, ios):
    """The statistics' times and the trace's: [(what, told, traced)]. All that was counted must be in the trace."""
    check(len(ios) == added["reads"] + added["writes"], f"{len(ios)} I/Os in the trace: {added}")
    check(len(ios) < len(requests) <= added["requests"] <= len(requests) + 5, f"{len(requests)} requests in the trace: {added}")
    return [("request_latency", added["request"], sum(e - b for b, e, _ in requests)),
            ("bdev_get_iostat", added["read"] + added["write"], sum(e - b for b, e, _ in ios))]


def wrong(pairs, tolerance):
    return [p for p in pairs if not abs(p[1] - p[2]) <= tolerance * p[2]]


def agrees_in_one_run(t, bdev, trtype, kind):
    deadline = time.monotonic() + ATTEMPTS_S
    arguments = ["-w", "randrw", "-q", str(kind["depth"]), "--ios", str(kind["ios"])]
    while wrong(pairs := compare(*run(t, bdev, trtype, *arguments)), kind["tolerance"]):
        print(f"# beyond {kind['tolerance']:.0%}: {pairs}", flush=True)
        check(time.monotonic() < deadline, f"in no run do times agree within {kind['tolerance']:.0%}: {pairs}")
    print(f"# {trtype}, {kind['us']} us: {[(what, f'{a / b:.4f}') for what, a, b in pairs]} of the trace's", flush=True)
    rate = t.call("nvmf_get_stats")["tick_rate"]
    for what, ticks, _ in pairs:
        check(ticks >= kind["ios"] * kind["us"] * rate // 1000000 * (1 - kind["tolerance"]), f"{what}: {ticks} ticks at {rate} Hz")


def compare_over(trtype):
    with Target("-e", f"nvmf_{trtype.lower()},bdev", zcopy=False, trtype=trtype) as t:
        for i, kind in enumerate((EXACT, ESTIMATED)):
            delays = {f"{p}_{k}_latency": kind["us"] for p in ("avg", "p99", "p999") for k in ("read", "write")}
            t.call("bdev_delay_create", name=f"D{i}", base_bdev_name=t.add_malloc(f"M{i}"), **delays)
            t.add_ns(f"D{i}", nsid=1)
            agrees_in_one_run(t, f"D{i}", trtype, kind)
            t.remove_ns(1)


def test_times_of_rdma_are_those_of_the_trace():
    compare_over("RDMA")


def test_times_of_tcp_are_those_of_the_trace():
    compare_over("TCP")


if __name__ == "__main__":
    main(sys.modules[__name__])
