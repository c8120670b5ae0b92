#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every command line of doc/gdb.md, doc/operations.md and doc/usdt.md is run on a target with a command that does not end, but for those that are
named here with the reason (those of doc/tracing.md: doc_tracing.py). In the pages a line that begins with "$ " is for the shell, and "(gdb) " for the
gdb that was started last; elsewhere a line is a command if it begins with a program that the pages speak of."""
# needs: root gdb
# limit: 900
# apart
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys

from appliance_lib import BUILD, TOP, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target, wait_io

SLOW = 240              # seconds for what ends by itself
ENDLESS = ("strace ", "bpftrace.sh ", "varve-top --json -n 0 ", "perf record ")     # run until interrupted
PLAIN = re.compile(r" {4}((?:varve|varve-rpc|varve-trace|varve-top|varve-doctor|scripts/\S+|meson|systemctl|curl|readelf|bpftrace|perf|gdb)(?: .*)?)$")
# What is not run here, and why.
EXEMPT = {
    "varve": "it is what runs; options: appliance_start.py, rpc_config.py, metrics.py",
    "varve -m ": "it needs four cores and hugepages", "varve --metrics ": "it is what runs; metrics.py",
    "varve --takeover ": "it ends what runs; takeover.py",
    "varve 0.1.0 crashed": "output, not a command",
    "meson install ": "install.py runs it into a folder", "systemctl ": "it needs systemd; service.py",
    "scripts/setup.sh": "it changes who has the machine's drives and memory; the lab runs it",
    "scripts/bpftrace.sh PID SCRIPT.bt": "a form, not a command; usdt.py runs every script",
    "varve-top": "it wants a terminal; top.py has one",
    "varve-rpc bdev_nvme_": "it needs another target; bdev_nvme_remote.py has one",
    "varve-rpc nvmf_publish_mdns_prr": "it needs avahi-daemon; nvmf_mdns.py has one of its own",
    "perf buildid-cache ": "it changes perf's cache for all; usdt.py does it with one of its own",
    "perf probe ": "it changes the kernel's probes for all; usdt.py does it", "perf record -e sdt_": "it needs perf probe",
}
ALONE = ("varve", "varve-top")      # exempt without options only
GDB = "gdb -nx -batch -iex 'set debuginfod enabled off' "
# What must not be in the output of a command that is right.
WRONG = re.compile(r"Undefined (?:info )?command|No symbol|[Ii]nvalid option|unrecognized option|unknown option|not found$"
                   r"|No such file or directory\.$|Traceback|Python Exception|There is no process|is no address|^Usage:|syntax error"
                   r"|cannot connect", re.M)
TLS_KEY = "NVMeTLSkey-1:01:Aw4ZJC86RVBbZnF8h5KdqLO+ydTf6vUACxYhLDdCTVhhy7Ks:"
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


def plain_lines(page):
    """The shell commands of a page that have no prompt, comments left out."""
    joined = page.replace("\\\n", " ")
    return [re.sub(r"\s+#.*", "", m[1]).strip() for m in map(PLAIN.match, joined.splitlines()) if m]


def why_exempt(command):
    return next((why for start, why in EXEMPT.items() if command == start or (start not in ALONE and command.startswith(start))), None)


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
        print(f"SKIP debug_docs: {program} is not installed, or not allowed to work here: {command}")
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


def run_plain(name, more):
    """The lines of a page without a prompt. more: what else stands for something there, by the text to be replaced."""
    lines = plain_lines((TOP / "doc" / name).read_text())
    to_run = [line for line in lines if why_exempt(line) is None]
    check(len(to_run) >= 3, f"{name} has only {to_run} of {lines}")
    with Target("-e", "rpc,bdev,nvmf_rdma", "-s", "192") as t:
        t.env = {**os.environ, "TERM": "dumb", "VARVE_RPC_SOCKET": str(t.path), "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
        host, values = started(t)
        try:
            values["NQN"] = NQN
            texts = more(t)
            for line in to_run:
                for text, instead in texts.items():
                    line = line.replace(text, str(instead))
                for one in line.split("; "):
                    run(one, values, t)
        finally:
            host.kill()
        check(t.process.poll() is None, f"varve ended:\n{t.log()}")
    print(f"# {name}: {len(to_run)} of {len(lines)} command lines")


def places(t):
    """The folders and the address that the page speaks of are others here."""
    (t.folder / t.trace_file.name).symlink_to(t.trace_file)
    address = t.call("metrics_start", address="127.0.0.1:0")
    for name, text in (("tls", TLS_KEY), ("tls2", TLS_KEY)):
        (t.folder / f"{name}.key").touch(mode=0o600)
        (t.folder / f"{name}.key").write_text(text)
    return {"/etc/varve/tls": t.folder / "tls", "/etc/varve/varve.json": t.folder / "saved.json", "/var/lib/varve/traces": t.folder, "127.0.0.1:9464": address,
            "192.0.2.1": "127.0.0.1", "name=Db": "name=Malloc0", "name=Logs": "name=Malloc1"}


def test_the_plain_lines_of_operations_md():
    run_plain("operations.md", places)


def test_the_plain_lines_of_usdt_md():
    run_plain("usdt.md", lambda t: {})


def test_each_exemption_is_of_a_line():
    lines = [line for name in ("operations.md", "usdt.md") for line in plain_lines((TOP / "doc" / name).read_text())]
    for start in EXEMPT:
        check(any(line == start or (start not in ALONE and line.startswith(start)) for line in lines), f"no line begins with {start}")


def make_core(t, path):
    subprocess.run(["gcore", "-o", t.folder / "core", str(t.pid)], check=True, capture_output=True, timeout=SLOW)
    (t.folder / f"core.{t.pid}").rename(path)


def test_gdb_md():
    run_page("gdb.md")


def test_the_tree_of_operations_md():
    run_page("operations.md", "## When something is wrong", "## After a crash")


def left_out(pid):
    """MB of a process's own memory that a core of it will not have."""
    blocks = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", (pathlib.Path("/proc") / str(pid) / "smaps").read_text(), flags=re.M)
    return sum(int(re.search(r"^Size: +(\d+) kB", b, re.M)[1]) for b in blocks
               if re.search(r"^VmFlags:.* dd\b", b, re.M) and "memfd:softverbs" not in b) >> 10


def test_ram_disks_and_data_buffers_are_left_out_of_a_core():
    with Target() as t:
        before = left_out(t.pid)
        check(before >= 32, f"{before} MB: the transport's data buffers are not among them")
        t.add_malloc("M0", 64)
        check(left_out(t.pid) >= before + 60, f"{before} MB, then {left_out(t.pid)} MB")


def test_the_kernel_is_asked_for_what_a_core_should_have():
    with Target("-s", "192") as t:
        bits = int(open(f"/proc/{t.pid}/coredump_filter", encoding="ascii").read(), 16)
        check(bits & 0x48 == 0x48, f"{bits:#x}")
        soft, hard = resource.prlimit(t.pid, resource.RLIMIT_CORE)
        check(soft == hard, f"{soft} of {hard}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main(sys.modules[__name__])
