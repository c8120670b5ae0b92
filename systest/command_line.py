#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 240
# apart
"""Options that scripts for stock daemons use, in whole daemons: what they change is seen from outside."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from appliance_lib import DEADLINE, VARVE, Daemon, RpcError, check, main, wait_for



def refused(*options):
    p = subprocess.run([VARVE, "--no-huge", "--no-pci", "-r", "/tmp/varve-test-none.sock", *options], capture_output=True, text=True,
                       timeout=DEADLINE)
    check(p.returncode in (1, 2), f"{options}: status {p.returncode}\n{p.stderr}")
    return p.stderr


def refusal(daemon, method, **params):
    try:
        result = daemon.call(method, **params)
    except RpcError as e:
        return e
    check(False, f"{method} answers {result}")


def test_lcores_have_the_numbers_and_cpus_that_are_asked_for():
    cpu = min(os.sched_getaffinity(0))
    with Daemon("--lcores", f"3@{cpu},5@{cpu}", "-p", "5") as d:
        check([r["lcore"] for r in d.call("framework_get_reactors")["reactors"]] == [3, 5], d.log())
        check(d.stop() == 0, d.log())
    text = refused("--lcores", "0@1000")
    check("core 1000 does not exist" in text, text)
    text = refused("-m", f"[{cpu}]", "-p", "900")
    check("main core (-p) 900" in text and str(cpu) in text, text)


def test_options_without_effect_are_in_the_log():
    with Daemon("-R", "--huge-dir", "/mnt/huge", "--iova-mode", "pa", "--msg-mempool-size", "2048", "-g", "-n", "4",
                "--interrupt-mode", "--base-virtaddr", "0x200000000000", "--env-context", "--log-level=lib.eal:notice") as d:
        for option in ("--huge-unlink", "--huge-dir", "--iova-mode", "--msg-mempool-size", "--single-file-segments", "--mem-channels"):
            check(f"{option}" in d.log() and d.log().count(f"{option} ") == 1, f"{option}: {d.log()}")
        maps = pathlib.Path(f"/proc/{d.pid}/maps").read_text()
        check(any(line.startswith("2000000") for line in maps.splitlines()), f"nothing is at the address:\n{maps}")
        check(d.call("appliance_get_state")["poll_mode"] == "adaptive", "it polls")


def test_notices_are_silenced():
    with Daemon("--silence-noticelog") as d:
        check("*NOTICE*" not in d.log() and d.call("log_get_print_level") == "WARNING", d.log())
        check(d.stop() == 0 and "*NOTICE*" not in d.log(), d.log())


def test_only_allowed_methods_may_be_called():
    with Daemon("--rpcs-allowed", "framework_wait_init,rpc_get_methods,bdev_get_bdevs,no_such_method") as d:
        check(d.call("bdev_get_bdevs") == [], "bdevs")
        check(sorted(d.call("rpc_get_methods")) == ["bdev_get_bdevs", "framework_wait_init", "rpc_get_methods"], "methods")
        e = refusal(d, "spdk_kill_instance", sig_name="SIGTERM")
        check(e.code == -32601 and "--rpcs-allowed" in e.message, e)
        check('no method "no_such_method"' in d.log(), d.log())


def test_the_configuration_may_call_what_clients_may_not():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        config = pathlib.Path(folder, "c.json")
        config.write_text('{"subsystems": [{"subsystem": "bdev", "config": [{"method": "bdev_null_create", "params": '
                          '{"name": "N", "num_blocks": 8, "block_size": 512}}]}]}')
        with Daemon("-c", str(config), "--rpcs-allowed", "framework_wait_init,bdev_get_bdevs") as d:
            check([b["name"] for b in d.call("bdev_get_bdevs")] == ["N"], "the bdev")
            check(refusal(d, "bdev_null_delete", name="N").code == -32601, "it may be deleted")


def test_without_an_rpc_server_there_is_no_socket():
    with Daemon("--no-rpc-server", "-f", "pid", ready=False) as d:
        wait_for(lambda: "is running" in d.log() or d.process.poll() is not None, "it to run")
        check("RPC socket none" in d.log(), d.log())
        check(not d.path.exists(), "there is a socket")
        os.kill(d.pid, signal.SIGUSR1)
        wait_for(lambda: "state RUNNING" in d.log(), "the state in the log")
        check(d.stop() == 0, d.log())


def test_the_process_id_is_in_the_file_while_it_runs():
    with Daemon("-f", "pid") as d:
        pid_file = d.folder / "pid"
        check(pid_file.read_text() == f"{d.pid}\n", pid_file.read_text())
        # One that cannot start leaves it alone.
        p = subprocess.run([VARVE, *Daemon.base, "-r", d.path, "-f", pid_file], capture_output=True, text=True, timeout=DEADLINE)
        check(p.returncode == 1, p.stderr)
        check(pid_file.read_text() == f"{d.pid}\n", "another's number")
        check(d.stop() == 0, d.log())
        check(not pid_file.exists(), "the file stays")
    text = refused("-f", "/no/such/folder/pid")
    check("/no/such/folder/pid" in text and "No such file" in text, text)


class Locking(Daemon):
    base = ["--no-huge", "--no-pci", "--lcores", f"0@{min(os.sched_getaffinity(0))}"]


def lock_file():
    return pathlib.Path(f"/var/tmp/spdk_cpu_lock_{min(os.sched_getaffinity(0)):03}")


def pid_in_lock():
    return int.from_bytes(lock_file().read_bytes(), sys.byteorder)


def test_two_that_use_one_core_are_told():
    with Locking() as a:
        if pid_in_lock() != a.pid:
            # Another program of this machine has the core: then this one must have said so.
            check("is used by" in a.log(), a.log())
            return
        with Locking() as b:
            check(f"is used by process {a.pid} (varve) too" in b.log(), b.log())
            e = refusal(b, "framework_enable_cpumask_locks")
            check(e.code == -32603 and "Failed to claim CPU core: " in e.message and str(a.pid) in e.message, e)
            check(a.call("framework_enable_cpumask_locks") is True, "what it has already")
            check(a.call("framework_disable_cpumask_locks") is True and not lock_file().exists(), "the lock stays")
            check(b.call("framework_enable_cpumask_locks") is True and pid_in_lock() == b.pid, "the lock")
            b.process.kill()
            b.process.wait(DEADLINE)
            # What a killed one leaves behind holds nobody up.
            check(a.call("framework_enable_cpumask_locks") is True and pid_in_lock() == a.pid, "the lock of a dead one")
        check(a.stop() == 0 and not lock_file().exists(), a.log())


def test_locks_can_be_left_out():
    with Daemon() as d:
        check("is used by" not in d.log(), d.log())
        check(not lock_file().exists() or pid_in_lock() != d.pid, "it has the lock")


if __name__ == "__main__":
    main(sys.modules[__name__])
