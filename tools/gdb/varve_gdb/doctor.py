# SPDX-License-Identifier: BSD-3-Clause
"""Walks all structures and names what is stuck or damaged, each with the next command. varve-doctor reads these lines."""
import signal

import gdb

from . import bdev, command, doctor_nvmf, thread, ticks, trace
from .memory import Unreadable, follow, number, string, text_of, walk
from .program import function_at, is_live, static

STUCK_S = 10
ROUND_S = 1


class Report:
    def __init__(self, stuck_s):
        self.at, self.known = ticks.now()
        self.stuck = int(stuck_s * ticks.hz())
        self.count = 0

    def ok(self, text):
        print(f"ok: {text}")

    def found(self, text, following=None):
        self.count += 1
        print(f"FOUND: {text}")
        if following:
            print(f"  next: {following}")

    def is_old(self, since):
        return since != 0 and self.at - since > self.stuck

    def age(self, since):
        return ticks.age(since, self.at)


# Of struct trace_file_info's crash_flags.
CRASH_CODE, CRASH_SENT = 1, 2
SI_KERNEL = 128


def how_the_signal_came(info):
    """" sent by process 4711 (bash), uid 0", or the address of the fault."""
    address = number(info["crash_address"])
    try:
        flags = number(info["crash_flags"])
    except gdb.error:
        flags = 0       # a core of an older version has no such member
    if flags & CRASH_SENT:
        pid, name = number(info["crash_sender"]), string(info["crash_sender_name"])
        if pid == number(info["pid"]):
            return "raised by itself"
        return f"sent by process {pid}{f' ({name})' if name else ''}, uid {number(info['crash_sender_uid'])}"
    if flags & CRASH_CODE and (number(info["crash_code"]) <= 0 or number(info["crash_code"]) == SI_KERNEL):
        return "raised by the kernel"
    if flags == 0 and address == 0:
        return "sent or at address 0x0 (the core does not say which)"
    return f"at address {address:#x}"


def check_crash(report):
    try:
        info = ticks.trace_info()
    except Unreadable:
        report.ok("the recorder's memory is not here: whether it crashed is not known from it")
        return
    if info is None or not number(info["crash_tsc"]):
        report.ok("no crash is noted")
        return
    n = number(info["crash_signal"])
    name = signal.Signals(n).name if n in signal.Signals.__members__.values() else f"signal {n}"
    report.found(f"it crashed: {name} {how_the_signal_came(info)}, in thread {string(info['crash_thread'])} "
                 f"({number(info['crash_tid'])})", "thread apply all bt, then varve_trace")


def frames_of(tid):
    """Names of the functions on a thread's stack, innermost first, and gdb's number of the thread."""
    for t in gdb.selected_inferior().threads():
        if t.ptid[1] == tid or t.ptid[2] == tid:
            before = gdb.selected_thread()
            try:
                t.switch()
                frame, names = gdb.newest_frame(), []
                while frame is not None and len(names) < 64:
                    names.append(frame.name() or "?")
                    frame = frame.older()
                return t.num, names
            except gdb.error:
                return t.num, []
            finally:
                if before is not None:
                    before.switch()
    return None, []


def where(names):
    """The part of a stack that says what is going on."""
    known = [n for n in names if n != "?"]
    return " < ".join(known[:5]) or "its stack cannot be read"


def check_reactors(report):
    n = 0
    for name, tid, doing, age, r in thread.reactor_rows(report.at):
        n += 1
        if number(r["request"]) or (number(r["in_round"]) and report.at - number(r["now"]) > ROUND_S * ticks.hz()):
            gdb_thread, names = frames_of(tid)
            report.found(f"{name} has been {doing} for {age}: {where(names)}",
                         f"thread apply {gdb_thread} bt" if gdb_thread else None)
    report.ok(f"{n} reactors looked at") if n else report.found("there are no reactors: it has not got so far, or is at its end")


def check_threads(report):
    threads = channels = pollers = 0
    for t in thread.threads():
        threads += 1
        channels += sum(1 for _ in thread.channels(t))
        for _, p in thread.pollers(t):
            pollers += 1
            if function_at(p["fn"]).startswith("0x"):
                report.found(f"poller {string(p['name'])} of {string(t['name'])} calls no function: {function_at(p['fn'])}",
                             f"print *(struct poller *){int(p.address):#x}")
    devices = sum(1 for _ in thread.io_devices())
    report.ok(f"{threads} threads, {channels} channels, {pollers} pollers, {devices} io_devices: all lists are whole")


def check_state_machines(report):
    machines = violations = 0
    for m in walk(static("machines", "util/state_machine.c"), "link", "state machines"):
        machines += 1
        count = number(m["violations"])
        violations += count
        if count:
            report.found(f"{string(m['name'])} went {count} times from a state to one that must not follow: a fault in varve",
                         "the log has the states, and which object it was: grep 'must not follow'")
    if not violations:
        report.ok(f"{machines} state machines: every transition was allowed")


def check_rpc(report):
    calls = 0
    # Calls have times of CLOCK_MONOTONIC, which the recorder relates to ticks.
    for call in walk(static("outstanding", "rpc/dispatch.c"), "link", "RPC calls"):
        calls += 1
        method = string(follow(call["method"], "a call's method")["name"])
        age_s = (monotonic_ns(report) - number(call["begin_ns"])) / 1e9
        if age_s * ticks.hz() > report.stuck:
            report.found(f"the RPC {method} has not been answered for {age_s:.1f} s", f"varve_trace 100 {int(call.address):#x}")
    report.ok(f"{calls} RPC calls outstanding")


def monotonic_ns(report):
    info = ticks.trace_info()
    if info is None:
        return 0
    start = info["start"]
    return number(start["monotonic_ns"]) + (report.at - number(start["tsc"])) * 10**9 // ticks.hz()


def check_bdevs(report):
    n = 0
    for core in bdev.cores():
        n += 1
        name, state = string(bdev.bdev_of(core)["name"]), bdev.state_name(core)
        if state != "ready" and report.is_old(number(core["state_ticks"])):
            report.found(f"bdev {name} has been {state} for {report.age(core['state_ticks'])}", f"varve_find_bdev {name}")
        resets = [r for r in walk(core["resets"], "link", "resets")]
        if resets and report.is_old(number(resets[0]["started_ticks"])):
            report.found(f"a reset of bdev {name} has been going on for {report.age(resets[0]['started_ticks'])}",
                         f"varve_find_bdev {name}")
        for channel in bdev.channels(core):
            # The process may have been stopped between counting and linking.
            if abs(sum(1 for _ in bdev.in_flight(channel)) - number(channel["qd"])) > 1:
                report.found(f"bdev {name} counts {number(channel['qd'])} I/Os in flight on {bdev.thread_name(channel)}, its list has "
                             "another number", f"print *(struct bdev_channel *){int(channel.address):#x}")
    report.ok(f"{n} bdevs looked at")


def check_trace(report):
    if not number(static("trace_state", "trace/trace.c")["on"]):
        report.ok("tracing is off: there are no events to look at")
        return
    try:
        r = trace.recorder()
    except gdb.GdbError as e:
        report.ok(str(e).split("\n", maxsplit=1)[0])
        return
    events = sum(r.history(n)[3] for n in r.rings() if r.history(n))
    report.ok(f"{events} trace entries were written: varve_trace shows the last")


CHECKS = (check_crash, check_reactors, check_threads, check_state_machines, check_rpc, check_bdevs, doctor_nvmf.check_requests,
          doctor_nvmf.check_buffers, doctor_nvmf.check_qpairs, doctor_nvmf.check_subsystems, check_trace)


def run_doctor(seconds):
    """What looks wrong: a crash, reactors that hang, RPCs and requests that have waited for more than SECONDS (10), exhausted buffers,
changes that do not end, transitions that must not be, lists that are broken. Each with the next command."""
    try:
        stuck_s = float(seconds) if seconds else STUCK_S
    except ValueError:
        raise gdb.GdbError(f"\"{seconds}\" is no number of seconds.") from None
    report = Report(stuck_s)
    print(f"{'Process' if is_live() else 'Core of process'} {gdb.selected_inferior().pid}; ages as of {report.known}")
    for check in CHECKS:
        try:
            check(report)
        except trace.ring.BadRing as e:
            report.found(f"the recorder's memory is damaged: {e}")
        except (Unreadable, gdb.MemoryError) as e:
            report.found(f"memory is damaged, or not in this core: {e}", "thread apply all bt")
        except (gdb.error, KeyError, TypeError, ValueError, AttributeError) as e:
            # If one check fails, because the program is of another version, the others still run.
            report.found(f"{check.__name__} makes no sense of this program: {text_of(e)}", "the scripts of the version that runs")
    print(f"{report.count} found" if report.count else "Nothing looks wrong.")


def register():
    command.add(("varve_doctor",), run_doctor, "[SECONDS]")
