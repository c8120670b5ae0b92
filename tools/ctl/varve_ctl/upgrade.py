# SPDX-License-Identifier: BSD-3-Clause
"""Another varve takes the place of the one that runs, with the same options."""
import os
import shutil
import subprocess
import time

from .client import Refused, Trouble, Unreachable, clean

# Whether each takes an argument. --wait-for-rpc: the other one's start is over, and its configuration is taken over.
OPTIONS = {"--takeover": True, "--takeover-timeout": True, "--takeover-force": False, "--wait-for-rpc": False}
LOOK_S = 0.05


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


def log_of(pid):
    """The daemon's log, if it is a file or a terminal that can be opened; otherwise this program's standard error."""
    try:
        return os.open(f"/proc/{pid}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.dup(2)


def start(client, o, pid, program):
    options = without_takeover(read_list(pid, "cmdline")[1:])
    more = ["--takeover", os.path.abspath(client.path), *(["--takeover-force"] if o.force else []),
            *(["--takeover-timeout", str(o.limit)] if o.limit is not None else [])]
    log = log_of(pid)
    try:
        return subprocess.Popen([program, *options, *more], cwd=f"/proc/{pid}/cwd", env=dict(x.split("=", 1) for x in read_list(pid, "environ") if "=" in x),
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    finally:
        os.close(log)


def serves(client, pid):
    """Whether that process answers at the socket, and runs."""
    try:
        state = client.ask("appliance_get_state", {})
    except Unreachable:
        return False    # between the two
    except Trouble:
        return False    # the connection broke: the old one stops
    return state.get("pid") == pid and state.get("state") == "RUNNING"


def upgrade(client, o, beside):
    pid = client.call("appliance_get_state")["pid"]
    program = program_of(o.binary, beside)
    try:    # tells why it is refused before anything is started; the new process asks again
        client.call("framework_hand_over", pid=os.getpid(), dry_run=True, force=o.force)
    except Refused as e:
        raise Trouble(str(e).replace("force (--takeover-force)", "--force"), 1) from None
    new = start(client, o, pid, program)
    while not serves(client, new.pid):
        status = new.poll()
        if status is not None:
            raise Trouble(f"process {new.pid} ended with {status} and has not taken over: its reason is in the log of process {pid}, which goes on", 1)
        time.sleep(LOOK_S)
    print(f"process {new.pid} has taken over from {pid}")
