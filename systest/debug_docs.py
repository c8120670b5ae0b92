#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every command line of doc/gdb.md and of the tree in doc/operations.md is run on a target with a command that does not end. In the pages
a line that begins with "$ " is for the shell, and "(gdb) " for the gdb that was started last."""
# needs: root gdb
# limit: 900
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys

from appliance_lib import BUILD, TOP, check, main, wait_for
from nvmf_lib import HOSTNQN, Host, Target, wait_io

SLOW = 240              # seconds for what ends by itself
ENDLESS = ("strace ", "bpftrace.sh ")   # run until interrupted
GDB = "gdb -nx -batch -iex 'set debuginfod enabled off' "
# What must not be in the output of a command that is right.
WRONG = re.compile(r"Undefined (?:info )?command|No symbol|[Ii]nvalid option|unrecognized option|unknown option|not found$"
                   r"|No such file or directory\.$|Traceback|Python Exception|There is no process|is no address|^Usage:|syntax error"
                   r"|cannot connect", re.M)
HARMLESS = re.compile(r"^\d+\t\.\./sysdeps/.*: No such file or directory\.$", re.M)     # the C library's source


def command_lines(page):
    """The shell commands of a page: gdb's with the commands typed into it."""
    found = []
    for line in page.splitlines():
        m = re.match(r" {4,}(\$|\(gdb\)) (.*)", line)
        if m and m[1] == "$":
            found.append(m[2])
        elif m:
            check(found and found[-1].startswith("gdb"), f"no gdb was started for {line}")
            found[-1] += " -ex " + shlex.quote(m[2])
    return found


def fill_in(command, values):
    for name, value in values.items():
        command = re.sub(rf"\b{name}\b", str(value), command)
    command = command.replace("build/", f"{BUILD}/")
    return GDB + command[4:] if command.startswith("gdb ") else command


def perf_works(t):
    """Containers may not be let."""
    return subprocess.run(["perf", "record", "-o", t.folder / "perf.try", "true"], capture_output=True, timeout=SLOW).returncode == 0


def run(command, values, t):
    program = shlex.split(command)[0]
    if shutil.which(program, path=t.env["PATH"]) is None or (program == "perf" and not perf_works(t)):
        print(f"# {program} is not installed, or not allowed to work here: {command}")
        return
    saved = t.folder / "saved"
    saved.unlink(missing_ok=True)
    full = fill_in(command, {**values, "FILE": saved if "save FILE" in command or " -o FILE" in command else values["FILE"]})
    endless = command.startswith(ENDLESS)
    p = subprocess.run(["timeout", "-s", "INT", "-k", "60", "5" if endless else str(SLOW), "bash", "-c", full], env=t.env, cwd=TOP,
                       capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    said = HARMLESS.sub("", p.stdout + p.stderr)
    # varve-doctor finds what is wrong here; grep -c counts nothing; gdb's status is that of its last command.
    allowed = {0, 1} if command.startswith(("varve-doctor", "grep -c", "gdb")) else {0, 124, 130} if endless else {0}
    check(p.returncode in allowed and not WRONG.search(said), f"{full}\nended with {p.returncode}:\n{said[-2000:]}")
    for line in saved.parent.glob("saved*"):
        line.unlink()


def started(t):
    """A target with a read that hangs; what the words of the pages stand for."""
    for name in ("Malloc0", "Malloc1"):
        t.add_malloc(name)
    t.call("bdev_error_create", base_name="Malloc1")
    for name in ("Malloc0", "EE_Malloc1"):
        t.add_ns(name)
    host = Host(t, "-w", "randread", "-q", "1", "-t", "3600", nsid=2, hostnqn=HOSTNQN)
    try:
        wait_io(t, [host])
        t.call("bdev_error_inject_error", name="EE_Malloc1", io_type="read", error_type="pending", num=1)
        hung = wait_for(lambda: [r for r in t.call("nvmf_get_inflight") if r["state"] == "BDEV" and r["age_us"] > 1000000],
                        "a read to hang", SLOW)
    except BaseException:
        host.kill()
        raise
    return host, {"PID": t.pid, "REQUEST": hung[0]["object"], "FILE": t.trace_file, "CORE": t.folder / "core.test"}


def run_page(name, start="", end=None):
    text = (TOP / "doc" / name).read_text()
    text = text[text.index(start):]
    lines = command_lines(text[:text.index(end)] if end else text)
    check(len(lines) > 5, f"{name} has only {lines}")
    with Target("-e", "rpc,bdev,nvmf_rdma", "-s", "192") as t:
        t.env = {**os.environ, "TERM": "dumb", "VARVE_RPC_SOCKET": str(t.path), "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
        host, values = started(t)
        try:
            make_core(t, values["CORE"])
            for line in lines:
                run(line, values, t)
        finally:
            host.kill()
        check(t.process.poll() is None, f"varve ended:\n{t.log()}")
    print(f"# {name}: {len(lines)} command lines")


def make_core(t, path):
    subprocess.run(["gcore", "-o", t.folder / "core", str(t.pid)], check=True, capture_output=True, timeout=SLOW)
    (t.folder / f"core.{t.pid}").rename(path)


def test_gdb_md():
    run_page("gdb.md")


def test_the_tree_of_operations_md():
    run_page("operations.md", "## When something is wrong", "## After a crash")


def test_the_kernel_is_asked_for_what_a_core_should_have():
    with Target("-s", "192") as t:
        bits = int(open(f"/proc/{t.pid}/coredump_filter", encoding="ascii").read(), 16)
        check(bits & 0x48 == 0x48, f"{bits:#x}")
        soft, hard = resource.prlimit(t.pid, resource.RLIMIT_CORE)
        check(soft == hard, f"{soft} of {hard}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(sys.modules[__name__])
