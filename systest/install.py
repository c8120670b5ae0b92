#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# beside
"""`meson install` into a folder of its own: everything is there, and runs from there without the tree."""
import atexit
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, TOP, Client, Skip, check, main, wait_for
from nvmf_lib import ADDRESS, PORT

OPTION = {o["name"]: o["value"] for o in json.loads(subprocess.check_output(["meson", "introspect", "--buildoptions", BUILD]))}
NQN = "nqn.2026-11.io.varve:example"
PAGES = ("operations.md", "host.md", "security.md", "compat.md", "rpc.md")
PROGRAMS = ("varve", "varve-rpc", "varve-ctl", "varve-cluster", "varve-trace", "varve-top", "varve-doctor", "varve-perf", "varve-lvol", "varve-bpftrace", "varve-setup", "softverbs")
if (BUILD / "bin/varve-gateway").exists():      # only with its libraries
    PROGRAMS += ("varve-gateway",)


@functools.cache
def install():
    """The folder, made once for all tests."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-install-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    p = subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder], capture_output=True,
                       text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stdout + p.stderr)
    return folder


class Installed:
    """Programs run from where `meson install` has put them."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=install(), prefix="run-"))
        self.daemon = None
        self.root = install()
        self.prefix = self.root / OPTION["prefix"].lstrip("/")
        self.bin, self.share, self.lib = self.prefix / "bin", self.prefix / "share", self.prefix / "lib/varve"
        etc = pathlib.Path(OPTION["prefix"]) / OPTION["sysconfdir"]
        self.etc = self.root / str(etc).lstrip("/")
        self.socket = self.folder / "rpc.sock"
        self.env = {"PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin", "VARVE_RPC_SOCKET": str(self.socket), "HOME": str(self.folder),
                    "TERM": "dumb"}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
            pathlib.Path(f"/dev/shm/varve_trace.pid{self.daemon.pid}").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command, status=(0,), **kwargs):
        p = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=2 * DEADLINE, cwd="/", env=self.env,
                           stdin=subprocess.DEVNULL, **kwargs)
        check(p.returncode in status, f"{command} ended with {p.returncode}: {p.stdout}{p.stderr}")
        return p.stdout + p.stderr

    def start(self, *options):
        """The example's configuration, on a port of our own, over the software device."""
        example = (self.share / "doc/varve/examples/example.json").read_text()
        check('"4420"' in example, example)
        config = self.folder / "config.json"
        config.write_text(example.replace('"4420"', f'"{PORT}"'))
        self.log = self.folder / "log"
        with open(self.log, "wb") as log:
            self.daemon = subprocess.Popen(["softverbs", "varve", "--no-huge", "--no-pci", "-s", "256", "-m", "[0]", "-e", "bdev,nvmf_rdma",
                                            "-c", config, "-r", self.socket, *options], cwd="/", env=self.env, stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log)
        wait_for(self.answers, lambda: f"the daemon: {self.log.read_text()}")

    def answers(self):
        check(self.daemon.poll() is None, f"varve ended with {self.daemon.poll()}: {self.log.read_text()}")
        try:
            c = Client(self.socket)
        except OSError:
            return False
        c.call("framework_wait_init")
        c.close()
        return True


def test_everything_is_where_it_belongs():
    with Installed() as i:
        for f in PROGRAMS:
            check(os.access(i.bin / f, os.X_OK), f"{f} is missing")
        for f in ("varve-usdt-names", "libsoftverbs.so", "keep-trace"):
            check((i.lib / f).exists(), f"{f} is missing")
        for f in ("varve/bt/iops.bt", "varve/gdb/varve.py", "varve/gdb/gdb_macros.py", "varve/doctor/varve_doctor/main.py", "doc/varve/operations.md",
                  "doc/varve/examples/example.json", f"gdb/auto-load{OPTION['prefix']}/bin/varve-gdb.py"):
            check((i.share / f).exists(), f"{f} is missing")
        check(json.loads((i.etc / "varve/varve.json").read_text()) == {"subsystems": []}, "the default configuration")
        check((i.etc / "default/varve").exists(), "/etc/default/varve")
        for f in PAGES:
            check((i.share / "doc/varve" / f).exists(), f)
        for f in ("bash-completion/completions/varve-rpc", "bash-completion/completions/varve-ctl", "fish/vendor_completions.d/varve.fish"):
            check((i.share / f).exists(), f)
        check(list(i.share.glob("zsh/*/_varve")) and os.access(i.lib / "varve-complete", os.X_OK), "completion")
        of_tests = [str(f) for f in i.prefix.rglob("*") if re.search(r"unit-|bench-|fuzz-|__pycache__", f.name)]
        check(not of_tests, of_tests)
        tree = [str(f) for f in i.prefix.rglob("*") if f.is_symlink() and not f.resolve().is_relative_to(i.root)]
        check(not tree, f"links out of it: {tree}")


def test_programs_run_from_there():
    with Installed() as i:
        for f in PROGRAMS:
            check("sage" in i.run(i.bin / f, "-h") or f in ("varve-setup", "varve-bpftrace", "softverbs"), f)
        i.start()
        pid = i.daemon.pid
        check("0.1.0" in i.run("varve-rpc", "spdk_get_version"), "varve-rpc")
        perf = i.run("softverbs", "varve-perf", "--no-huge", "-m", "[0]", "-s", "128", "-j", "--quiet", "-w", "randrw", "--verify", "-q", "4",
                     "--region", "1M", "--ios", "300", "-t", "3600", "-n", "1", "-r",
                     f"trtype:RDMA adrfam:IPv4 traddr:{ADDRESS} trsvcid:{PORT} subnqn:{NQN}")
        result = json.loads(perf)
        check(result["verified"] and result["miscompares"] == 0 and result["errors"] == 0, result)
        check("BDEV_IO_DONE" in i.run("varve-trace", "-p", pid), "varve-trace")
        check("Malloc0" in i.run("varve-top", "--batch", "-v", "bdevs"), "varve-top")
        check("RUNNING" in i.run("varve-doctor", "-p", pid, status=(0, 1)), "varve-doctor")
        text = i.run("varve-bpftrace", "-n", pid, "iops.bt")
        check(f"{i.bin}/varve" in text and "__EXE__" not in text and "BEGIN" in text, text)
        i.daemon.send_signal(signal.SIGTERM)
        check(i.daemon.wait(DEADLINE) == 0, i.log.read_text())


def test_gdb_loads_its_commands_by_itself():
    if not shutil.which("gdb"):
        raise Skip("needs gdb")
    with Installed() as i:
        # gdb looks for the whole path under its folder; here that begins with ours.
        scripts = i.folder / "auto-load"
        at = pathlib.Path(f"{scripts}{i.bin}")
        at.parent.mkdir(parents=True)
        at.symlink_to(i.share / f"gdb/auto-load{OPTION['prefix']}/bin")
        text = i.run("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", f"set auto-load scripts-directory {scripts}",
                     "-iex", f"add-auto-load-safe-path {i.root}", "-ex", "help varve_inflight", i.bin / "varve")
        check("Undefined" not in text and "outstanding" in text.lower(), text)


def unit_text(i, name):
    unit = i.prefix / "lib/systemd/system" / name
    if OPTION["systemd_unit_dir"]:
        unit = i.root / OPTION["systemd_unit_dir"].lstrip("/") / name
    return unit.read_text()


def check_unit(i, name, exposure):
    text = unit_text(i, name)
    for program in re.findall(r"^Exec\w+=(\S+)", text, re.M):
        check(program in ("/bin/sh", "/bin/kill") or (i.root / program.lstrip("/")).exists(), f"{program} is not installed")
    copy = i.folder / name
    copy.write_text(re.sub(r"Documentation=.*\n", "", text.replace(OPTION["prefix"] + "/", f"{i.prefix}/")))
    said = i.run("systemd-analyze", "verify", "--man=no", copy)
    check(name not in said, said)
    # It fails above this exposure (in tenths, of 100): some restriction is gone.
    i.run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={exposure}", copy)


def test_no_unit_is_enabled():
    """Whoever installs varve decides what is started: no link in a folder of a target, no preset, and the package's script enables nothing."""
    with Installed() as i:
        units = [p for p in i.root.rglob("*.service") if not str(p).startswith(str(i.folder))]
        check({p.name for p in units} >= {"varve.service", "varve-gateway.service"} & {f"{n}.service" for n in PROGRAMS}, units)
        found = [p for p in i.root.rglob("*") if p.is_symlink() and ".service" in p.name or p.suffix in (".wants", ".requires", ".preset")]
        check(not found, f"these enable units: {found}")
    rules = (TOP / "debian/rules").read_text()
    check(re.search(r"^override_dh_installsystemd:\n\tdh_installsystemd .*--no-enable --no-start", rules, re.M), rules)


def test_the_units_are_accepted():
    if not shutil.which("systemd-analyze"):
        raise Skip("needs systemd-analyze")
    with Installed() as i:
        check_unit(i, "varve.service", 32)
        if "varve-gateway" in PROGRAMS:
            check_unit(i, "varve-gateway.service", 30)


def test_fewer_rights_have_the_figures_of_the_page():
    """The drop-in of doc/security.md, and what it says to enter instead."""
    if not shutil.which("systemd-analyze"):
        raise Skip("needs systemd-analyze")
    page = (TOP / "doc/security.md").read_text()
    fewer = re.search(r"^    \[Service\]\n((?:    .*\n)+)", page, re.M)[1].replace("    ", "")
    instead = re.search(r"`(CapabilityBoundingSet=[^`]+)` instead, which gives\s+([0-9.]+)", page)
    reached = re.search(r"You can reach ([0-9.]+) if", page)[1]
    with Installed() as i:
        for lines, figure in (fewer, reached), (re.sub(r"CapabilityBoundingSet=CAP_.*", instead[1], fewer), instead[2]):
            check(lines.count("CapabilityBoundingSet=CAP_") == 1, lines)
            name = f"fewer-{figure}.service"
            (i.folder / name).write_text(unit_text(i, "varve.service").replace("[Install]", f"{lines}[Install]"))
            said = i.run("systemd-analyze", "security", "--offline=true", "--no-pager", i.folder / name)
            found = re.search(r"exposure level for \S+: ([0-9.]+)", said)[1]
            check(float(found) <= float(figure), f"{lines}{found}, and the page says {figure}")


def test_the_trace_of_a_daemon_that_died_is_kept():
    with Installed() as i:
        kept, shm = i.folder / "traces", i.folder / "shm"
        shm.mkdir()
        i.start()
        trace = pathlib.Path(f"/dev/shm/varve_trace.pid{i.daemon.pid}")
        pidfile = i.folder / "pid"
        i.run(i.lib / "keep-trace", "--started", pidfile, str(i.daemon.pid))
        check(pidfile.read_text().split() == [str(i.daemon.pid)], pidfile.read_text())
        check("still there" in i.run(i.lib / "keep-trace", pidfile, kept) and trace.exists(), "a living daemon's")
        i.daemon.kill()
        i.daemon.wait()
        i.env.update(SERVICE_RESULT="signal", EXIT_CODE="killed", EXIT_STATUS="KILL")
        check("its trace is" in i.run(i.lib / "keep-trace", pidfile, kept) and not trace.exists(), "it is left in memory")
        copy = kept / trace.name
        check("signal (killed KILL)" in (kept / f"{trace.name}.txt").read_text(), "the note")
        check("BDEV" in i.run("varve-trace", "-f", copy), "it cannot be read")
        check(f"pid{i.daemon.pid}" in i.run("varve-trace", "-d", kept, "--list"), "it is not listed")
        i.env["VARVE_SHM"] = str(shm)
        dead = subprocess.Popen(["true"])       # ids of processes that are no more
        dead.wait()
        for n in range(7):
            (shm / f"varve_trace.pid{4194304 + n}").write_text(str(n))     # above the highest there can be
            pidfile.write_text(str(4194304 + n))
            if copy.exists():
                os.utime(copy, (n, n))
            i.run(i.lib / "keep-trace", pidfile, kept)
        left = sorted(f.name for f in kept.iterdir() if f.suffix != ".txt")
        check(len(left) == 5 and copy.name not in left, left)
        pidfile.write_text("../../etc")
        check("no process id" in i.run(i.lib / "keep-trace", pidfile, kept, status=(1,)), "nonsense")
        check(i.run(i.lib / "keep-trace", i.folder / "none", kept) == "", "a daemon that never got ready")


def test_the_trace_of_a_daemon_with_a_number_is_kept_by_its_process():
    with Installed() as i:
        kept, pidfile, trace = i.folder / "traces", i.folder / "pid", pathlib.Path("/dev/shm/varve_trace.3407")
        i.start("-i", "3407")
        pid = i.daemon.pid
        i.run(i.lib / "keep-trace", "--started", pidfile, str(pid))
        i.daemon.kill()
        i.daemon.wait()
        check(trace.exists(), "it has another name")
        check("its trace is" in i.run(i.lib / "keep-trace", pidfile, kept) and not trace.exists(), "it is left in memory")
        check("BDEV" in i.run("varve-trace", "-f", kept / f"varve_trace.pid{pid}"), "it cannot be read")


if __name__ == "__main__":
    main(sys.modules[__name__])
