# SPDX-License-Identifier: BSD-3-Clause
"""Another varve takes the place of the one that runs, with the same options."""
import os
import shutil
import subprocess
import time

from .client import Refused, Trouble, clean

# Whether each takes an argument. --wait-for-rpc: the other one's start is over, and its configuration is taken over.
OPTIONS = {"--takeover": True, "--takeover-timeout": True, "--takeover-force": False, "--wait-for-rpc": False}
LOOK_S = 0.05
SETTLE_S = 2
OUTCOME_S = 60  # in which the old process serves again, or has ended


def option_of(name):
    """Which of the options a word of a daemon that runs is: it has taken the word, so what may be short for one of them is, and for no other."""
    if name in OPTIONS:
        return name
    found = [x for x in OPTIONS if x.startswith(name) and len(name) > len("--")]
    return found[0] if len(found) == 1 else None


def without_takeover(words):
    """The options of a daemon that may itself have taken over from another, or waited for its start, without those that say so."""
    left, words = [], iter(words)
    for word in words:
        name, equals, _ = word.partition("=")
        option = option_of(name)
        if option is None:
            left.append(word)
        elif OPTIONS[option] and not equals:
            next(words, None)
    return left


def read_list(pid, what):
    """The strings of a file in /proc."""
    try:
        with open(f"/proc/{pid}/{what}", "rb") as f:
            return [os.fsdecode(x) for x in f.read().split(b"\0")[:-1]]
    except OSError as e:
        raise Trouble(f"process {pid} cannot be looked at: {e.strerror} (an upgrade needs its user's rights)", 2) from None


def program_of(name, beside):
    if name is None:
        return beside("varve")
    found = shutil.which(name) if os.sep not in name else os.path.abspath(name)
    if found is None or not os.access(found, os.X_OK):
        raise Trouble(f"{clean(name)} is no program", 2)
    return found


def unit_of(groups):
    """The path of a service manager's unit, from a /proc/PID/cgroup; outside of units, of the control group."""
    paths = dict(line.split(":", 2)[1:] for line in groups.splitlines() if line.count(":") > 1)
    names = paths.get("name=systemd", paths.get("", "")).split("/")
    ends = [i for i, name in enumerate(names, 1) if name.endswith((".service", ".scope"))]
    return "/".join(names[:ends[-1]] if ends else names)


def unit_of_process(pid):
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as f:
            return unit_of(f.read())
    except OSError as e:
        raise Trouble(f"process {pid} cannot be looked at: {e.strerror}", 2) from None


def managed(environ):
    """Whether a service manager has started a process with that environment."""
    return bool(environ.get("NOTIFY_SOCKET"))


def outside(pid, environ):
    """Why a process that is started here would not be in the daemon's place for its service manager, or None."""
    unit = unit_of_process(pid) if managed(environ) else None
    if unit is None or unit == unit_of_process("self"):
        return None
    name = unit.rpartition("/")[2]
    how = f"systemctl {'--user ' if '/user@' in unit else ''}reload {clean(name)}" if name.endswith(".service") else "its manager's reload"
    return (f"process {pid} runs under a service manager, and this program in another control group: the new process would leave the service, which would "
            f"end; {how} lets another take over in there (--force does it here all the same)")


def log_of(pid, ours):
    """The daemon's log, open, and None; or None and why it cannot be opened. ours: this program's standard error is as good then."""
    try:    # a named pipe without a reader is not waited for
        log = os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as e:
        if ours:
            return os.dup(2), None
        return None, (f"the log of process {pid}, its standard error, cannot be opened for the new process: {e.strerror} (--force lets that one write to the "
                      "standard error of this program)")
    os.set_blocking(log, True)
    return log, None


def is_same_log(pid):
    """Whether this program's standard error is the daemon's."""
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/fd/2"), os.fstat(2))
    except OSError:
        return False


def start(client, o, pid, program, environ, log):
    options = without_takeover(read_list(pid, "cmdline")[1:])
    more = ["--takeover", os.path.abspath(client.path), *(["--takeover-force"] if o.force else []),
            *(["--takeover-timeout", str(o.limit)] if o.limit is not None else [])]
    return subprocess.Popen([program, *options, *more], cwd=f"/proc/{pid}/cwd", env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                            start_new_session=True)


def state_of(client, pid=None):
    """What the process, or with None whichever has the socket, says of itself when it serves; None: it does not, or not yet."""
    try:
        state = client.ask("appliance_get_state", {})
    except Trouble:     # also Unreachable: a process opens its RPC socket last
        return None
    return state if pid in (None, state.get("pid")) and state.get("state") == "RUNNING" else None


def server(client):
    """Who serves, in words. Another process may have taken over, and is about to say that it runs."""
    end = time.monotonic() + SETTLE_S
    while (state := state_of(client)) is None:
        if time.monotonic() > end:
            return "nothing is served"
        time.sleep(LOOK_S)
    return f"process {state['pid']} serves"


def told_of(lost):
    return f"which goes on, but {lost} of the things that it had are not as before: the log names each" if lost > 0 else "which goes on"


def outcome(client, pid, before, limit=OUTCOME_S):
    """What has become of the old process after the new one has failed, in words. That may take as long as locks of files last. before: how many things
    earlier attempts had cost. limit: seconds."""
    end = time.monotonic() + limit
    while True:
        state = state_of(client, pid)
        if state is not None:
            return told_of(state.get("not_taken_back", 0) - before)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                ended = f.read().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            ended = True
        if ended:
            return f"which has ended, too: {server(client)}"
        if time.monotonic() > end:
            return f"which neither serves nor has ended: varve-doctor -p {pid} looks at it"
        time.sleep(LOOK_S)


def reason_of(client, o):
    """Why the daemon would refuse, or None; it is asked before anything is started, and by the new process again."""
    try:
        client.call("framework_hand_over", pid=os.getpid(), dry_run=True, force=o.force, ram_disks=True)
    except Refused as e:
        return str(e).replace("force (--takeover-force)", "--force")
    return None


def begin(client, o, pid, program):
    """Starts the new process, unless something stands against it: then all of it is told."""
    environ = dict(x.split("=", 1) for x in read_list(pid, "environ") if "=" in x)
    left = None if o.force else outside(pid, environ)
    # A service manager gives the log of the service to what it starts to reload it.
    log, unseen = log_of(pid, o.force or is_same_log(pid) or (managed(environ) and left is None and not os.isatty(2)))
    try:
        reasons = [why for why in (left, unseen, reason_of(client, o)) if why is not None]
        if reasons:
            raise Trouble("; ".join(reasons), 1)
        return start(client, o, pid, program, environ, log)
    finally:
        if log is not None:
            os.close(log)


def upgrade(client, o, beside):
    state = client.call("appliance_get_state")
    pid, lost = state["pid"], state.get("not_taken_back", 0)
    new = begin(client, o, pid, program_of(o.binary, beside))
    while state_of(client, new.pid) is None:
        status = new.poll()
        if status is not None:
            raise Trouble(f"process {new.pid} ended with {status} and has not taken over: its reason is in the log of process {pid}, {outcome(client, pid, lost)}", 1)
        time.sleep(LOOK_S)
    print(f"process {new.pid} has taken over from {pid}")
