# SPDX-License-Identifier: BSD-3-Clause
"""Does the RPC socket answer, and if not, why?"""
from . import rpc
from .report import Unable, seconds

PINNED = 0.9            # share of a CPU


def is_reactor(thread):
    return thread.name.startswith("reactor_")


def find_socket(process, given):
    """The path of its RPC socket."""
    if given:
        return given
    found = process.sockets()
    named = process.option("-r", "--rpc-socket")
    if named and named in found:
        return named
    if len(found) > 1:
        found = [p for p in found if p == "/var/tmp/varve.sock"] or found
    return found[0] if found else None


def check_threads(report, process):
    """False if a thread is stopped: it would never answer, and asking it would make other threads wait as well."""
    stopped = [t for t in process.threads() if t.state in "tT"]
    for t in stopped:
        tracer = process.tracer_of(t.tid)
        why, following = (f"traced by process {tracer}", f"ps -p {tracer}") if t.state == "t" else ("by a signal", f"kill -CONT {process.pid}")
        report.found("threads", f"{t.name} ({t.tid}) is stopped, {why}: what it serves stands still", following)
    return not stopped


def explain_silence(report, process, what):
    """Reports what the control thread, the process's first one, does instead of answering."""
    doing = process.doing(process.pid)
    report.found("RPC", f"{what}; the control thread is {doing or 'doing something that only root can see'}",
                 f"gdb -p {process.pid} -batch -ex 'thread apply all bt' (or strace -p {process.pid})")
    for t, share in process.cpu_shares(1.0):
        if is_reactor(t) and share > PINNED:
            report.found("reactors", f"{t.name} (thread {t.tid}) uses {share:.0%} of a CPU meanwhile: a poller or a message that does not "
                         "return keeps it, and the control thread waits for it",
                         f"perf top -t {t.tid}; gdb -p {process.pid} -batch -ex 'thread apply all bt'")


def check_rpc(report, process, given, wait_s):
    """A client, if somebody answers; otherwise None, with the reason in the report."""
    try:
        path = find_socket(process, given)
    except Unable as e:
        report.unknown("RPC", str(e))
        return None
    if path is None:
        report.found("RPC", "it listens on no socket: it is starting, stopping, or has another name in -r",
                     f"gdb -p {process.pid} -batch -ex bt")
        return None
    client = rpc.Client(path, wait_s)
    try:
        state = client.call("appliance_get_state")
        name = rpc.member(state, "state", str)
        age = rpc.member(state, "age_us", int)
    except rpc.NoAnswer as e:
        explain_silence(report, process, f"{path}: {e}")
        return None
    except rpc.Refused as e:
        report.found("RPC", str(e), f"ss -xlp | grep {process.pid}")
        return None
    except rpc.BadAnswer as e:
        report.found("RPC", f"{path} gives no sense: {e}", f"varve-rpc -s {path} appliance_get_state")
        return None
    if name == "RUNNING":
        report.ok("RPC", f"{path} answers; RUNNING for {seconds(age)}")
    else:
        report.found("RPC", f"{path} answers, but the daemon is in state {name} for {seconds(age)}", f"varve-rpc -s {path} rpc_get_calls")
    if state.get("not_taken_back", 0) != 0:     # older daemons lack it
        report.found("take-over", "one has failed, and not all is as before: the log names what (not taken back)", f"varve-rpc -s {path} appliance_get_state")
    return client


def check_calls(report, client, old_us):
    """Finds calls that hang while others are answered."""
    old = []
    calls = rpc.objects(client.call("rpc_get_calls"), "rpc_get_calls")
    for c in calls:
        # The purpose of this one is to wait.
        if rpc.member(c, "age_us", int) > old_us and rpc.member(c, "method", str) != "framework_wait_init":
            old.append(c)
    for c in old[:5]:
        waits = f"; it waits for {c['waits_for']}" if c.get("waits_for") else ""
        report.found("RPC calls", f"{c['method']} has not been answered for {seconds(c['age_us'])}, while others are{waits}",
                     "varve-trace -l group=rpc,group=nvmf (with -e rpc,nvmf): what happened after its RPC_BEGIN; varve-rpc nvmf_get_inflight")
    if not old:
        report.ok("RPC calls", f"{len(calls)} outstanding, none for long")


def check_states(report, client):
    """Finds transitions of state machines that must not be."""
    machines = rpc.objects(client.call("framework_get_state_machines"), "framework_get_state_machines")
    bad = [(rpc.member(m, "name", str), m["violations"]) for m in machines if rpc.member(m, "violations", int)]
    for name, count in bad:
        report.found("states", f"{name} went {count} times from a state to one that must not follow: a fault in varve",
                     "the log has the states, and which object it was: grep 'must not follow'; varve-trace shows LOG_LINE")
    if not bad:
        report.ok("states", f"{len(machines)} state machines: every transition was allowed")
