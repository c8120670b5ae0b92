# SPDX-License-Identifier: BSD-3-Clause
"""A trace file: how its writer ended, and what was still going on then."""
import json
import os
import signal

from . import program
from .report import Unable, seconds

FILE_MAX = 512 << 20
READ_LIMIT_S = 300
ENDS = {"RPC_BEGIN": "RPC_END", "BDEV_IO_START": "BDEV_IO_DONE", "NVME_PCIE_SUBMIT": "NVME_PCIE_COMPLETE",
        "BDEV_NVME_IO_START": "BDEV_NVME_IO_DONE", "RBD_IO_SUBMIT": "RBD_IO_DONE"}
KINDS = {"RPC_BEGIN": "RPC calls", "BDEV_IO_START": "bdev I/O", "NVME_PCIE_SUBMIT": "NVMe commands",
         "BDEV_NVME_IO_START": "I/O of the NVMe driver", "RBD_IO_SUBMIT": "I/O that Ceph has"}
# What every transport of the target names the tracepoints of its requests (nvmf/transport.h): <prefix>NEW, <prefix>COMPLETED, and between
# these the states.
REQUEST_NEW, REQUEST_EXECUTING = "_REQ_NEW", "_REQ_EXECUTING"
REQUEST_KIND = "NVMe-oF commands"


def read(path):
    """varve-trace's JSON of it."""
    tool = program.tool("varve-trace")
    if tool is None:
        raise Unable("varve-trace is neither beside varve-doctor nor in the path: a trace cannot be read")
    try:
        size = os.stat(path).st_size
    except OSError as e:
        raise Unable(f"{path}: {e.strerror}") from None
    if size > FILE_MAX:
        raise Unable(f"{path} has {size >> 20} MB, too much for here: varve-trace --summary -f {path}")
    status, out, err = program.run([tool, "-j", "-f", path], READ_LIMIT_S)
    if status != 0:
        raise Unable(err.strip().splitlines()[-1] if err.strip() else f"varve-trace ended with status {status}")
    try:
        trace = json.loads(out)
    except (ValueError, RecursionError):
        raise Unable(f"{path}: varve-trace's output is no JSON") from None
    if not isinstance(trace, dict) or not isinstance(trace.get("entries"), list):
        raise Unable(f"{path}: varve-trace's output has no events")
    return trace


def signal_name(n):
    return signal.Signals(n).name if n in signal.Signals.__members__.values() else f"signal {n}"


def check_end(report, path, app):
    state, crash = app.get("state"), app.get("crash")
    who = f"process {app.get('pid')} ({app.get('version') or app.get('name') or 'unknown'})"
    if isinstance(crash, dict):
        what = crash.get("text") or f"{signal_name(crash.get('signal'))} at address {crash.get('address', 0):#x}"
        report.found("writer", f"{who} crashed: {what}, in thread {crash.get('thread')}", f"varve-trace -f {path} --last 10ms; varve-doctor -c CORE, if there is one")
    elif state == "gone":
        report.found("writer", f"{who} ended without a word: killed, or the machine went down",
                     "journalctl -k | grep -i 'killed process'; varve-trace -f " + path + " --last 10ms")
    else:
        report.ok("writer", f"{who}: {state or 'unknown'}")


def begins_and_ends(trace):
    """({tracepoint that begins an object: that which ends it}, {prefix of a transport's requests: tracepoint that begins them})"""
    begins = {t.get("name") for t in trace.get("tpoints", []) if isinstance(t, dict) and t.get("new_object")}
    requests = {b.removesuffix("NEW"): b for b in begins if isinstance(b, str) and b.endswith(REQUEST_NEW)}
    return ENDS | {begin: prefix + "COMPLETED" for prefix, begin in requests.items()}, requests


def unfinished(trace, names):
    """{kind: [(age in ticks, last event, owner, object id)]}, the oldest first, of what began in the trace and did not end in it."""
    ends, requests = begins_and_ends(trace)
    begins = {end: begin for begin, end in ends.items()}
    open_, last_tsc = {}, 0
    for e in trace["entries"]:
        name, what = names.get(e.get("tpoint")), (e.get("object") or {})
        last_tsc = max(last_tsc, e.get("tsc", 0))
        if name in ends:
            open_[name, what.get("value")] = [e["tsc"], name, e.get("owner"), what.get("id"), e.get("args")]
        if name in begins:
            open_.pop((begins[name], what.get("value")), None)
        for prefix, begin in requests.items():
            if name and name.startswith(prefix) and (begin, what.get("value")) in open_:
                open_[begin, what.get("value")][1] = name
    found = {}
    for (begin, _), (start, state, owner, number, args) in open_.items():
        if waits_by_nature(begin, state, owner):
            continue
        found.setdefault(begin, []).append((last_tsc - start, state, owner, number, args))
    return {k: sorted(v, key=lambda x: -x[0]) for k, v in found.items()}


def waits_by_nature(begin, state, owner):
    """Asynchronous Event Requests, of which the trace does not say more than that they are on an admin queue."""
    return begin.endswith(REQUEST_NEW) and state.endswith(REQUEST_EXECUTING) and " qid 0 " in str(owner)


def check_unfinished(report, path, trace, age_s):
    names = {t.get("id"): t.get("name") for t in trace.get("tpoints", []) if isinstance(t, dict)}
    rate = trace.get("tsc_rate") or 0
    if rate <= 0:
        raise Unable(f"{path} has no clock rate")
    old = {k: [x for x in v if x[0] > age_s * rate] for k, v in unfinished(trace, names).items()}
    for kind, objects in old.items():
        for age, state, owner, number, args in objects[:3]:
            what = f" {args[0]}" if kind == "RPC_BEGIN" and args else ""
            report.found(KINDS.get(kind, REQUEST_KIND), f"{number}{what}{' of ' + str(owner) if owner else ''} did not end: {seconds(age * 1e6 / rate)} old, "
                         f"last seen in {state}", f"varve-trace -f {path} --life {number}")
        if len(objects) > 3:
            report.found(KINDS.get(kind, REQUEST_KIND), f"and {len(objects) - 3} more did not end", f"varve-trace -f {path} --summary")
    if not any(old.values()):
        report.ok("objects", f"{len(trace['entries'])} events; all that began more than {age_s:g} s before the end also ended")


def check_loss(report, trace):
    lost = sum(n for ring in trace.get("lcores", []) for k, n in ring.get("lost", {}).items() if k != "overwritten" and isinstance(n, int))
    if lost or trace.get("problems"):
        report.found("file", f"{lost} entries of it are damaged" + "".join(f"; {p}" for p in trace.get("problems", [])[:3]), None)
    else:
        report.ok("file", "whole")


def examine(report, path, age_s):
    report.title = f"varve-doctor: trace {path}"
    try:
        trace = read(path)
        if isinstance(trace.get("app"), dict):
            check_end(report, path, trace["app"])
        check_loss(report, trace)
        check_unfinished(report, path, trace, age_s)
    except Unable as e:
        report.unknown("trace", str(e))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        report.unknown("trace", f"{path} makes no sense ({type(e).__name__})")
