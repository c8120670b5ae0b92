# SPDX-License-Identifier: BSD-3-Clause
"""varve_doctor's checks of the NVMe-oF target and of requests."""
from collections import Counter

from . import inflight, nvmf
from .memory import follow, length, number, string, walk

SHOWN = 5


def check_requests(report):
    found = inflight.all_requests()
    # An Asynchronous Event Request waits until there is an event.
    old = [r for r in found if r.state != "HELD" and report.is_old(r.start)]
    for r in old[:SHOWN]:
        whose = f"of host {r.host}, qid {r.qid}, cid {r.cid}" if r.qid is not None else r.host
        where = f", bdev {r.bdev}" if r.bdev != "-" else ""
        lba = f", LBA {r.lba}" if r.lba is not None else ""
        report.found(f"{r.command} {whose}{where}{lba} is {report.age(r.start)} old: {r.state}, waits for {r.waits}",
                     f"varve_bdev_io {r.io:#x}" if r.io else f"varve_trace 100 {r.address:#x}")
    if len(old) > SHOWN:
        report.found(f"and {len(old) - SHOWN} more as old", "varve_inflight")
    report.ok(f"{len(found)} requests outstanding")


def transport_buffers():
    """(thread, struct nvmf_buffer_group) of each transport in each poll group."""
    for target in nvmf.targets():
        for group in nvmf.groups(target):
            for tgroup in walk(group["tgroups"], "link", "transports of a poll group"):
                buffers = follow(tgroup["buffers"], "a transport's buffers")
                if buffers is not None:
                    yield string(follow(group["thread"], "a thread")["name"]), buffers


def limit_text(g):
    """What the transport may have."""
    limit = follow(g["channel"]["limit"], "the limit of buffers")
    return f"; of the transport's {number(limit['total'])} of {number(g['size'])} bytes {number(limit['left'])} are left" \
        if limit is not None else ""


def check_buffers(report):
    n = 0
    for name, g in transport_buffers():
        n += 1
        waiting = length(g["waiting"], "link", "requests that wait for buffers")
        if waiting:
            report.found(f"{waiting} requests wait for data buffers on {name}{limit_text(g)}",
                         "varve_inflight; more with nvmf_create_transport num_shared_buffers=N")
    report.ok(f"data buffers of {n} poll groups looked at")
    for (thread, waits, remedy), count in Counter((r.thread, r.waits, r.remedy) for r in inflight.nvmf_requests() if r.remedy).items():
        report.found(f"{count} requests wait for a {waits} on {thread}", remedy)


def check_qpairs(report):
    n = 0
    for name, q in nvmf.all_qpairs():
        n += 1
        state = nvmf.qpair_state(q)
        if state in ("NEW", "CONNECTING", "QUIESCING", "DISCONNECTING", "CLOSED") and report.is_old(number(q["state_ticks"])):
            report.found(f"queue pair {number(q['qid'])} of {string(q['hostnqn']) or 'a new host'} on {name} has been {state} for "
                         f"{report.age(q['state_ticks'])}", "varve_qpairs")
        if " (no such state)" in state:
            report.found(f"queue pair at {int(q.address):#x} is in state {state}", "varve_qpairs")
    report.ok(f"{n} queue pairs looked at")


def check_subsystems(report):
    n = 0
    for s in nvmf.all_subsystems():
        n += 1
        nqn = string(s["nqn"])
        for op in nvmf.changes_begun(s):
            if report.is_old(number(op["queued_ticks"])):
                report.found(f"a change of {nqn} has been under way for {report.age(op['queued_ticks'])}; {number(op['pending_views'])} "
                             "poll groups still have commands", f"varve_subsystem {nqn}")
        for c in nvmf.controllers(s):
            state = number(c["state"])
            if state >= 2 and report.is_old(number(c["state_ticks"])):
                name = nvmf.enum_name(c["state"], "enum nvmf_ctrlr_state", "NVMF_CTRLR_")
                report.found(f"controller {number(c['cntlid'])} of {nqn} has been {name} for {report.age(c['state_ticks'])}",
                             f"varve_subsystem {nqn}")
    report.ok(f"{n} subsystems looked at")
