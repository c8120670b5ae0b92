# SPDX-License-Identifier: BSD-3-Clause
"""The current time of a stopped process or a core, and ages."""
import time

from .memory import Unreadable, follow, number
from .program import is_live, static

TRIES = (OSError, Unreadable)


def hz():
    n = number(static("ticks_hz", "env_dpdk/ticks.c"))
    if n == 0:
        raise Unreadable("the clock is not calibrated: varve has not got beyond its start")
    return n


def reactors():
    first = static("reactors", "thread/reactor.c")
    count = number(static("reactor_count", "thread/reactor.c"))
    if number(first) == 0:
        return
    if count > 4096:
        raise Unreadable(f"there cannot be {count} reactors")
    for i in range(count):
        yield follow(first + i, f"reactor {i}")


def trace_info():
    """struct trace_file_info of the recorder, or None."""
    return follow(static("trace_state", "trace/trace.c")["info"]) if number(static("trace_state", "trace/trace.c")["on"]) else None


def newest_round():
    return max((number(r["now"]) for r in reactors()), default=0)


def now():
    """(ticks, how they are known). A live process has a clock; a crashed one has noted the time; otherwise it is that of the last round
    of a reactor."""
    try:
        info = trace_info()
        if info is not None:
            if number(info["crash_tsc"]):
                return number(info["crash_tsc"]), "the crash"
            if is_live():
                start = info["start"]
                elapsed = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - number(start["monotonic_ns"])
                return number(start["tsc"]) + elapsed * hz() // 10**9, "now"
    except TRIES:
        pass
    return newest_round(), "the last round of a reactor, at most 10 s before the end"


def duration(ticks):
    """"1.234 s", in the unit that fits."""
    us = ticks * 1000000 / hz()
    if us < 0:
        return "0 us"
    if us < 1000:
        return f"{us:.0f} us"
    return f"{us / 1000:.1f} ms" if us < 1000000 else f"{us / 1e6:.2f} s"


def age(since, at):
    since = number(since)
    return duration(at - since) if since else "-"
