# SPDX-License-Identifier: BSD-3-Clause
"""The last trace events, out of the process or the core: the file in /dev/shm is not needed."""
import gdb

from . import command, ring, ticks
from .command import address_of
from .memory import Unreadable, number, read, string
from .program import static

DEFAULT_EVENTS = 50


def recorder():
    state = static("trace_state", "trace/trace.c")
    if not number(state["on"]):
        raise gdb.GdbError("Tracing is off in this process (--num-trace-entries 0, or the file could not be made): there are no events.")
    start, size = number(state["map"]["file"]), number(state["map"]["size"])
    try:
        return ring.Recorder(lambda offset, length: read(start + offset, length), size)
    except Unreadable:
        raise gdb.GdbError(
            f"The recorder's memory ({size} bytes at {start:#x}) is not in this core: it was made with a coredump_filter without bit 3 "
            f"(0x8).\nIts file may still exist: varve-trace -f {string(state['map']['path'])}") from None


def save(r, path):
    """The whole of it as a file for varve-trace."""
    try:
        with open(path, "xb") as f:
            for at in range(0, r.size, 1 << 20):
                f.write(r.read(at, min(1 << 20, r.size - at)))
    except OSError as e:
        raise gdb.GdbError(f"{path}: {e.strerror}") from None
    print(f"{r.size} bytes written. Read it with: varve-trace -f {path}")


def chosen(text):
    """(how many, which): [N] [OBJECT]. A large number is an address."""
    first, _, rest = text.partition(" ")
    if first.isdigit() and int(first) < 1 << 24:
        return max(int(first), 1), address_of(rest) if rest.strip() else None
    return DEFAULT_EVENTS, address_of(text) if text else None


def related(address):
    """Events of an object, and those of others that name it, such as a bdev I/O its NVMe-oF request."""
    if address is None:
        return lambda event: True
    text = f"{address:#x}"
    return lambda event: event.object == address or any(value == text for _, value in event.args)


def microseconds(ticks_, rate):
    return f"{ticks_ * 1000000 // rate}.{ticks_ * 1000000000 // rate % 1000:03}"


def print_event(r, event, first):
    args = " ".join(f"{name}: {value}" for name, value in event.args)
    thing = f"object: {event.object:#x} " if event.object else ""
    size = f"size: {event.size} " if event.size else ""
    owner = r.owner(event.owner, event.tsc)
    print(f"{event.thread or '-':<12} {event.lcore:>2} {microseconds(event.tsc - first, r.rate):>14}  {event.tpoint.name:<23} "
          f"{size}{thing}{args}{'  (' + owner + ')' if owner else ''}".rstrip())


def print_trace(text):
    """The last N (50) trace events of all rings in the order of time; with an object (an address or an expression), those about it.

varve_trace save FILE writes the recorder's memory into a file for varve-trace."""
    r = recorder()
    if text.startswith("save "):
        save(r, text[5:].strip())
        return
    most, wanted = chosen(text)
    events = []
    for n in r.rings():
        try:
            events += r.last(n, most, related(wanted))
        except (ring.BadRing, Unreadable) as e:
            print(f"error: ring {n}: {e}")
    events = sorted(events, key=lambda e: e.tsc)[-most:]
    at, known = ticks.now()
    if not events:
        print("No event is recorded" + (f" of {wanted:#x}." if wanted is not None else ": varve-rpc trace_enable_tpoint_group switches on."))
        return
    print(f"Events: {len(events)}; the last one {ticks.duration(at - events[-1].tsc)} before the end ({known}). Times in us.")
    for event in events:
        print_event(r, event, events[0].tsc)


def guarded(text):
    try:
        print_trace(text)
    except ring.BadRing as e:
        raise Unreadable(str(e)) from None


guarded.__doc__ = print_trace.__doc__


def register():
    command.add(("varve_trace",), guarded, "[N] [OBJECT] | save FILE")
