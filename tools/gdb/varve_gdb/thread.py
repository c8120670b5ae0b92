# SPDX-License-Identifier: BSD-3-Clause
"""Threads, their channels, and io_devices."""
from . import command, ticks
from .command import survive
from .memory import Unreadable, follow, number, string, walk
from .program import static

LCORE_NONE = (1 << 32) - 1


def threads():
    return walk(static("threads", "thread/thread.c"), "link", "threads")


def io_devices():
    return walk(static("io_devices", "thread/channel.c"), "link", "io_devices")


def channels(thread):
    return walk(thread["channels"], "link", f"channels of thread {string(thread['name'])}")


def device_name(channel):
    device = follow(channel["dev"], "the channel's device")
    return string(device["name"]) if device is not None else "(no device)"


def place(thread):
    """Which reactor a thread is on."""
    reactor = follow(thread["reactor"], "the thread's reactor")
    if reactor is None:
        return "no reactor"
    if number(reactor["control"]):
        return "the control thread"
    return f"reactor {number(reactor['lcore'])}"


def print_threads(_):
    """Threads: name, where they run, and their channels with devices and reference counts."""
    rows = list(survive(threads()))
    print(f"Threads: {len(rows)}")
    for t in rows:
        print(f"{string(t['name'])}: id {number(t['id'])}, on {place(t)}, struct thread at {int(t.address):#x}")
        for c in survive(channels(t)):
            try:
                print(f"    channel of {device_name(c)}, references {number(c['refs'])}, struct io_channel at {int(c.address):#x}")
            except Unreadable as e:
                print(f"    error: {e}")


def print_io_devices(_):
    """io_devices: name, how many channels they have, and on which threads, with reference counts."""
    users = {}
    for t in survive(threads()):
        for c in survive(channels(t)):
            users.setdefault(number(c["dev"]), []).append((string(t["name"]), number(c["refs"])))
    found = list(survive(io_devices()))
    print(f"io_devices: {len(found)}")
    for d in found:
        refs = users.get(int(d.address), [])
        print(f"{string(d['name'])}: channels {number(d['channels'])}, references {sum(n for _, n in refs)}, "
              f"struct io_device at {int(d.address):#x}")
        for name, n in refs:
            print(f"    thread {name}: references {n}")


def pollers(thread):
    for kind in ("active", "timed", "paused"):
        for p in walk(thread[kind], "link", f"{kind} pollers of {string(thread['name'])}"):
            yield kind, p


def reactor_rows(at):
    """Of each reactor: name, what it was doing, since when."""
    for r in ticks.reactors():
        control = number(r["control"])
        doing = "sleeping" if number(r["sleeping"]) else "in a round" if number(r["in_round"]) else "between rounds"
        yield ("control" if control else f"reactor_{number(r['lcore'])}", number(r["tid"]), doing, ticks.age(r["now"], at), r)


def register():
    command.add(command.both("print_threads"), print_threads)
    command.add(command.both("print_io_devices"), print_io_devices)
