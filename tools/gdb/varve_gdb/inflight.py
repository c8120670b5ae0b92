# SPDX-License-Identifier: BSD-3-Clause
"""Every outstanding request: NVMe-oF commands, and I/O of block devices that does not belong to such a command."""
from . import bdev, command, nvme_commands, nvmf, ticks, transport
from .command import survive, table
from .memory import Unreadable, enum_name, follow, number, read, string
from .program import function_at

WHERES = {"PAUSED": "paused namespace", "FUSED": "other half of a fused pair", "CONTROL": "control thread", "HELD": "an event"}


class Request:
    """A row of varve_inflight."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


def little(value):
    return int.from_bytes(read(int(value.address), value.type.sizeof), "little")


def describe_command(sqe, qid):
    """(name, cid, lba, blocks) of a submission queue entry."""
    opcode, cid = number(sqe["opcode"]), little(sqe["cid"])
    raw = read(int(sqe.address), 64)
    if opcode == 0x7f:
        return nvme_commands.fabrics_name(raw[4]) or f"fabrics {raw[4]:#x}", cid, None, None
    if qid == 0:
        return nvme_commands.admin_name(opcode) or f"admin {opcode:#x}", cid, None, None
    lba, blocks = nvme_commands.lba_range(opcode, raw)
    return nvme_commands.io_name(opcode) or f"opcode {opcode:#x}", cid, lba, blocks


def bdev_name(req):
    view = follow(req["ns_view"], "a request's namespace")
    channel = follow(view["ch"], "a namespace's channel") if view is not None else None
    return string(follow(channel["bdev"], "a channel's bdev")["name"]) if channel is not None else "-"


def state_of(owner, req):
    """(state, what it waits for, since when, what makes it wait less)"""
    where = enum_name(req["where"], "enum nvmf_request_where", "NVMF_REQUEST_")
    if where == "TRANSPORT":
        n, since = owner.state_of(req)
        state = owner.states[n] if n < len(owner.states) else None
        return owner.state_text(n), (state.waits_for if state else "") or "-", since, state.remedy if state else ""
    if where == "BDEV":
        return where, "bdev: " + bdev.io_state(req["bdev_io"]), number(req["where_ticks"]), ""
    return where, WHERES.get(where, "-"), number(req["where_ticks"]), ""


def nvmf_request(owner, req, qpair, thread):
    sqe = follow(req["sqe"], "a request's command")
    if sqe is None:
        raise Unreadable("it has no command")
    name, cid, lba, blocks = describe_command(sqe, number(qpair["qid"]))
    state, waits, since, remedy = state_of(owner, req)
    return Request(start=number(req["start_ticks"]), since=since, state=state, waits=waits, remedy=remedy, thread=thread, command=name,
                   cid=cid, lba=lba, blocks=blocks, qid=number(qpair["qid"]), host=string(qpair["hostnqn"]), subsystem=nvmf.subnqn_of(qpair),
                   bdev=bdev_name(req) if state in ("BDEV", "PAUSED") else "-", address=int(req.address),
                   io=int(req["bdev_io"].address) if state == "BDEV" else 0)


def nvmf_requests():
    for thread, qpair in survive(nvmf.all_qpairs()):
        for owner, req in survive(outstanding(qpair)):
            try:
                yield nvmf_request(owner, req, qpair, thread)
            except Unreadable as e:
                print(f"error: request at {int(req.address):#x}: {e}")


def outstanding(qpair):
    """(its transport, struct nvmf_request)"""
    owner = transport.of_qpair(qpair)
    if owner is not None:
        for req in transport.requests(qpair, owner):
            yield owner, req


def bdev_requests(known):
    """I/O in flight in block devices that is not in `known`: child I/O, and I/O of other users."""
    for core in survive(bdev.cores()):
        for channel in survive(bdev.channels(core)):
            for io in survive(bdev.in_flight(channel)):
                if int(io.address) not in known:
                    yield Request(start=number(io["submit_ticks"]), since=number(io["submit_ticks"]), state="bdev I/O",
                                  waits="bdev: " + bdev.io_state(io), remedy="", thread="", command=bdev.io_type(io), cid=None,
                                  lba=number(io["offset_blocks"]), blocks=number(io["num_blocks"]), qid=None,
                                  host="for " + function_at(io["cb"]), subsystem="", bdev=string(bdev.bdev_of(core)["name"]),
                                  address=int(io.address), io=int(io.address))


def all_requests():
    """Oldest first."""
    fabric = list(nvmf_requests())
    found = fabric + list(bdev_requests({r.io for r in fabric}))
    return sorted(found, key=lambda r: r.start)


def show(n):
    return "-" if n is None else n


def print_inflight(_):
    """Every outstanding request, oldest first: age, state and for how long, what it waits for, host, bdev, LBA, blocks."""
    at, known = ticks.now()
    found = all_requests()
    print(f"Outstanding: {len(found)} (ages as of {known})")
    table(("age", "state", "for", "waits for", "command", "qid", "cid", "bdev", "LBA", "blocks", "host", "subsystem", "address"),
          [(ticks.age(r.start, at), r.state, ticks.age(r.since, at), r.waits, r.command, show(r.qid), show(r.cid), r.bdev, show(r.lba),
            show(r.blocks), r.host or "-", r.subsystem or "-", f"{r.address:#x}") for r in found])


def register():
    command.add(("varve_inflight",), print_inflight)
