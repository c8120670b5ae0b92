#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 240
# beside
"""The start of a daemon: what it says of its memory, what keeps it from starting, what does not, and several at once."""
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, VARVE, Daemon, Skip, check, main, wait_for

NOBODY = 65534


def refused(*options):
    """What it says when it does not start."""
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        p = subprocess.run([VARVE, "--no-pci", "-r", f"{folder}/rpc.sock", *options], capture_output=True, text=True, timeout=DEADLINE)
        check(p.returncode in (1, 2), f"{options}: status {p.returncode}\n{p.stderr}")
        check(os.listdir(folder) == [], f"{options}: it leaves {os.listdir(folder)}")
        return p.stderr


class Odd:
    """A varve in surroundings of its own: the shell commands `prepare` are run in its mount namespace; unprivileged if asked for."""

    def __init__(self, prepare, *options, unprivileged=False):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            raise Skip("needs root and mount namespaces")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-"))
        varve = VARVE
        if unprivileged:
            # Where everybody may read it: the build folder may be another's.
            varve = self.folder / "varve"
            shutil.copy(VARVE, varve)
            os.chown(self.folder, NOBODY, NOBODY)
            os.chmod(varve, 0o755)
        drop = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups " if unprivileged else ""
        command = shlex.join([str(varve), "--no-pci", "-r", str(self.folder / "rpc.sock"), *options])
        self.log_path = self.folder / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(["unshare", "-m", "sh", "-ec", f"{prepare}\nexec {drop}{command}"], cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_running(self):
        def running():
            check(self.process.poll() is None, f"ended with {self.process.poll()}:\n{self.log()}")
            return "is running" in self.log()
        wait_for(running, "it to run")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(DEADLINE) == 0, self.log())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        pathlib.Path(f"/dev/shm/varve_trace.pid{self.process.pid}").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def test_the_first_line_says_which_memory_and_why():
    with Daemon() as d:
        check("Memory: ordinary pages, no hugepages (as asked for)" in d.log().splitlines()[0], d.log())
    # Without --no-huge it is the machine that decides.
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        with open(f"{folder}/log", "wb") as log:
            p = subprocess.Popen([VARVE, "--no-pci", "--num-trace-entries", "0", "-r", f"{folder}/rpc.sock"], stdout=log, stderr=log)

        def text():
            return pathlib.Path(f"{folder}/log").read_text()
        try:
            wait_for(lambda: "is running" in text() or p.poll() is not None, "it to run")
            check(re.search(r"Memory: (hugepages|ordinary pages, no hugepages) \(.*hugepages.*\)", text().splitlines()[0]), text())
        finally:
            p.terminate()
            p.wait(DEADLINE)


def test_memory_and_cores_that_cannot_be_had_are_refused_with_advice():
    for options, words in (
            (["--no-huge", "-s", "8"], ["8 MB", "-s", "at least 16 MB"]),
            (["--no-huge", "-s", "16000000"], ["16000000 MB", "-s", "available", "ask for less", "vm.nr_hugepages"]),
            (["--no-huge", "-s", "100000000"], ["-s", "100000000", "16777216"]),
            (["--no-huge", "-m", "[1000]"], ["core 1000 does not exist", "-m"]),
            (["--no-huge", "-m", "0-1023"], ["does not exist", "-m"])):
        text = refused(*options)
        check(all(w in text for w in words), f"{options}: {words} are not all in: {text}")


def test_hugepages_that_cannot_be_looked_at_are_no_obstacle():
    with Odd("mount -t tmpfs -o mode=0 none /sys/kernel/mm/hugepages", unprivileged=True) as d:
        d.wait_running()
        check("the kernel's hugepages cannot be read: Permission denied" in d.log(), d.log())
        d.stop()


def test_hugepages_that_the_kernel_does_not_give_are_told_with_a_way_out():
    """Two GB are free, says a /sys of our own; the kernel, which has none, gives none."""
    if int(pathlib.Path("/proc/sys/vm/nr_hugepages").read_text()) != 0:
        raise Skip("this machine has hugepages")
    pages = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    with Odd(f"mount -t tmpfs none /sys/kernel/mm/hugepages; mkdir {pages}; "
             f"for f in nr_hugepages free_hugepages; do echo 1024 >{pages}/$f; done") as d:
        check(d.process.wait(DEADLINE) == 1, d.log())
        check("DPDK's EAL does not start" in d.log() and "--no-huge" in d.log(), d.log())


def test_a_full_dev_shm_means_no_tracing_and_a_warning():
    with Odd("mount -t tmpfs -o size=64k none /dev/shm", "--no-huge", "-e", "bdev") as d:
        d.wait_running()
        for words in ("no room for the trace file", "64 KiB are free", "--num-trace-entries", "There will be no tracing"):
            check(words in d.log(), d.log())
        p = subprocess.run([BUILD / "bin/varve-rpc", "-s", d.folder / "rpc.sock", "trace_get_info"], capture_output=True, text=True,
                           timeout=DEADLINE)
        check(p.returncode == 0 and '"tpoint_shm_path": ""' in p.stdout, p.stdout + p.stderr)
        d.stop()


def test_a_lock_limit_means_a_warning_and_tracing_goes_on():
    with Odd("ulimit -l 0", "--no-huge", "-e", "bdev", unprivileged=True) as d:
        d.wait_running()
        check("cannot be locked in memory" in d.log() and "ulimit -l" in d.log() and "LimitMEMLOCK" in d.log(), d.log())
        check("There will be no tracing" not in d.log(), d.log())
        d.stop()


def test_many_instances_start_at_once_and_each_has_its_own():
    daemons = []
    try:
        for _ in range(4):
            daemons.append(Daemon("-e", "rpc", ready=False))
        for d in daemons:
            d.wait_ready()
        for i, d in enumerate(daemons):
            d.call("bdev_malloc_create", name=f"M{i}", block_size=512, num_blocks=2048)
        for i, d in enumerate(daemons):
            check([b["name"] for b in d.call("bdev_get_bdevs")] == [f"M{i}"], "another's bdevs")
            check(d.call("trace_get_info")["tpoint_shm_path"] == str(d.trace_file), "another's trace")
        check(len({d.call("framework_get_reactors")["pid"] for d in daemons}) == 4, "pids")
        for d in daemons:
            check(d.stop() == 0, d.log())
    finally:
        for d in daemons:
            d.__exit__()


def test_an_instance_id_in_use_leaves_the_first_ones_trace_alone():
    number = str(20000 + os.getpid() % 12000)
    path = pathlib.Path(f"/dev/shm/varve_trace.{number}")
    try:
        with Daemon("-i", number, "-e", "rpc") as first, Daemon("-i", number, "-e", "rpc") as second:
            check(first.call("trace_get_info")["tpoint_shm_path"] == str(path), "where the first one's is")
            check(second.call("trace_get_info")["tpoint_shm_path"] == "", "the second one has none")
            check("There will be no tracing" in second.log() and str(path) in second.log(), second.log())
            check(second.stop() == 0 and path.exists(), second.log())
            check(first.call("log_get_level") and first.stop() == 0, first.log())
    finally:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.modules[__name__])
