# SPDX-License-Identifier: BSD-3-Clause
"""Block devices and their I/O."""
import gdb

from . import command, ticks
from .command import address_of, survive, table
from .memory import Unreadable, enum_name, follow, number, read, string, walk
from .program import function_at, static


def cores():
    return walk(static("bdevs", "bdev/bdev.c"), "link", "bdevs")


def bdev_of(core):
    return follow(core["bdev"], "a bdev")


def aliases(core):
    return [string(a["name"]) for a in walk(core["aliases"], "link", "aliases")]


def channels(core):
    yield from walk(core["channels"], "link", f"channels of bdev {string(bdev_of(core)['name'])}")


def in_flight(channel):
    yield from walk(channel["inflight"], "link", f"I/O in flight on {thread_name(channel)}")


def thread_name(channel):
    owner = follow(channel["thread"], "a bdev channel's thread")
    return string(follow(owner["thread"], "a thread")["name"]) if owner is not None else "no thread"


def state_name(core):
    return enum_name(core["state"], "enum bdev_state", "BDEV_").lower()


def io_state(io):
    return enum_name(io["state"], "enum bdev_io_state", "BDEV_IO_").lower()


def io_type(io):
    return enum_name(io["type"], "enum bdev_io_type", "BDEV_IO_").lower()


def claim(core):
    for d in walk(core["descs"], "link", "descriptors"):
        if number(d["claim_type"]):
            return string(d["claim_owner"]) or "yes"
    return "-"


def uuid(b):
    text = read(int(b["uuid"].address), 16).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def print_bdevs(_):
    """Block devices: name, kind, state, size, who has claimed it, I/O in flight."""
    rows = []
    for core in survive(cores()):
        try:
            b = bdev_of(core)
            rows.append((string(b["name"]), string(b["product_name"]), state_name(core), number(b["num_blocks"]),
                         number(b["block_size"]), claim(core), sum(number(c["qd"]) for c in channels(core)),
                         f"{int(b.address):#x}"))
        except Unreadable as e:
            print(f"error: bdev at {number(core['bdev']):#x}: {e}")
    print(f"bdevs: {len(rows)}")
    table(("name", "kind", "state", "blocks", "block size", "claimed by", "in flight", "struct bdev"), rows)


def print_one(core):
    b = bdev_of(core)
    at, _ = ticks.now()
    print(f"{string(b['name'])}: {string(b['product_name'])}, struct bdev at {int(b.address):#x}")
    print(f"    state {state_name(core)} for {ticks.age(core['state_ticks'], at)}")
    print(f"    blocks {number(b['num_blocks'])} of {number(b['block_size'])} bytes, uuid {uuid(b)}")
    names = [a for a in aliases(core) if a]
    if names:
        print(f"    aliases {', '.join(names)}")
    print(f"    claimed by {claim(core)}, module {string(follow(b['module'])['name'])}")
    for c in survive(channels(core)):
        print(f"    channel of {thread_name(c)}: {number(c['qd'])} in flight, struct bdev_channel at {int(c.address):#x}")


def find_bdev(text):
    """Block devices whose name, alias or UUID contains SUBSTRING, in full."""
    found = 0
    for core in survive(cores()):
        try:
            b = bdev_of(core)
            if any(text.lower() in name.lower() for name in (string(b["name"]), uuid(b), *aliases(core))):
                found += 1
                print_one(core)
        except Unreadable as e:
            print(f"error: bdev at {number(core['bdev']):#x}: {e}")
    if not found:
        raise gdb.GdbError(f"No bdev has \"{text}\" in its name, aliases or UUID; varve_print_bdevs shows all.")


def known_io(address):
    """The bdev_io at an address, if it is one that is in flight; otherwise None."""
    for core in survive(cores()):
        for channel in survive(channels(core)):
            for io in survive(in_flight(channel)):
                if int(io.address) == address:
                    return io
    return None


def print_io(expression):
    """What the struct bdev_io at ADDR (an address or an expression) is doing: type, state, age, range, data, who waits for it."""
    address = address_of(expression)
    io = follow(gdb.Value(address).cast(gdb.lookup_type("struct bdev_io").pointer()), "ADDR")
    if io is None:
        raise gdb.GdbError("ADDR is NULL.")
    if known_io(address) is None:
        print("It is not in flight: what follows is what it was last used for.")
    channel = follow(io["ch"], "its channel")
    at, known = ticks.now()
    print(f"bdev_io {address:#x}: {io_type(io)}, state {io_state(io)}")
    print(f"    age {ticks.age(io['submit_ticks'], at)} (as of {known})")
    if channel is not None:
        print(f"    bdev {string(follow(channel['bdev'], 'its bdev')['name'])}, on {thread_name(channel)}")
    print(f"    blocks {number(io['offset_blocks'])} to {number(io['offset_blocks']) + max(number(io['num_blocks']), 1) - 1}, "
          f"{number(io['num_blocks'])} in all")
    print(f"    status {number(io['status']):#x}, child I/Os with the module {number(io['children'])}")
    print(f"    data in {number(io['iovcnt'])} buffers")
    for i in range(min(number(io["iovcnt"]), 16)):
        iov = (io["iovs"] + i).dereference()
        print(f"        {number(iov['iov_base']):#x}, {number(iov['iov_len'])} bytes")
    print(f"    ends in {function_at(io['cb'])}({number(io['cb_arg']):#x})")


def register():
    command.add(command.both("print_bdevs"), print_bdevs)
    command.add(command.both("find_bdev"), find_bdev, "SUBSTRING")
    command.add(("varve_bdev_io",), print_io, "ADDR")
