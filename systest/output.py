#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 180
# sanitize
# beside
"""What the programs print arrives, or their exit status says that it did not; and it goes nowhere else."""
import os
import pathlib
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, VARVE, Daemon, Skip, check, main, wait_for

BIN = BUILD / "bin"
PERF = ["varve-perf", "--no-huge", "-b", "null:1M", "--ios", "100"]
ALONE = [["varve", "-h"], ["varve", "-v"], ["varve", "-e", "help"], ["varve-trace", "-h"], ["varve-trace", "--list"], ["varve-perf", "-h"],
         PERF, [*PERF, "-j"], ["varve-top", "-h"], ["varve-top", "--version"], ["varve-rpc", "-h"], ["varve-rpc", "-v"], ["varve-usdt-names"]]
WITH_DAEMON = [["varve-rpc", "--list"], ["varve-rpc", "save_config"], ["varve-rpc", "log_get_level"], ["varve-rpc", "log_get_level", "--help"],
               ["varve-rpc", "--markdown"], ["varve-rpc", "-"], ["varve-top", "-b", "-d", "0.1"], ["varve-top", "-j", "-d", "0.1"],
               ["varve-doctor"]]
LOST = {"varve-rpc": 4, "varve-doctor": 2}  # otherwise 1


def run(command, d=None, close=(), **where):
    name, *options = command
    if name == "varve-doctor":
        options += ["-p", str(d.pid), "-d", str(d.folder)]
    env = {**os.environ, "VARVE_RPC_SOCKET": str(d.path)} if d else None
    return subprocess.run([BIN / name, *options], env=env, input='{"method":"log_get_level","id":7}', stderr=subprocess.PIPE, text=True,
                          timeout=DEADLINE, preexec_fn=lambda: [os.close(fd) for fd in close], **where)


def must_be_told(p, command):
    check(p.returncode == LOST.get(command[0], 1), f"{command}: ended with {p.returncode}: {p.stderr}")
    check("Traceback" not in p.stderr and "Sanitizer" not in p.stderr, p.stderr)


def test_a_full_disk_is_told_by_the_exit_status():
    with Daemon() as d, open("/dev/full", "w") as full:
        for command in ALONE + WITH_DAEMON:
            p = run(command, d, stdout=full)
            must_be_told(p, command)
            check(command[0] in p.stderr and ("No space left" in p.stderr or "writing failed" in p.stderr), f"{command}: {p.stderr}")


# With a stdout that is closed the first descriptor that a program opens, the daemon's socket for one, would have its number.
def test_a_stdout_that_is_closed_is_told_by_the_exit_status():
    with Daemon() as d:
        for command in ALONE + WITH_DAEMON:
            must_be_told(run(command, d, close=[1]), command)
        check(d.call("log_get_level") == "DISABLED", "the daemon lives")


def test_the_daemons_log_goes_into_no_descriptor_of_its_own():
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "sock"
        p = subprocess.Popen([VARVE, "--no-huge", "--no-pci", "-r", path, "--num-trace-entries", "0"],
                             preexec_fn=lambda: os.closerange(0, 3))
        try:
            wait_for(path.exists, "the RPC socket")
            names = [os.readlink(f"/proc/{p.pid}/fd/{fd}") for fd in range(3)]
            check(names == ["/dev/null"] * 3, names)
            p.terminate()
            check(p.wait(DEADLINE) == 0, p.returncode)
        finally:
            p.kill()


def test_softverbs_without_a_command_is_no_success():
    if os.environ.get("VARVE_SANITIZED"):
        raise Skip("the sanitizers' runtime would have to come first in every program")
    for arguments, status in (([], 2), ([""], 126), (["/no/such/program"], 127), (["true"], 0), (["false"], 1), (["-h"], 0)):
        p = subprocess.run([BIN / "softverbs", *arguments], capture_output=True, text=True, timeout=DEADLINE)
        check(p.returncode == status and (status == 0 or arguments == ["false"] or p.stderr), f"{arguments}: {p.returncode} {p.stderr}")


if __name__ == "__main__":
    main(sys.modules[__name__])
