#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 180
# sanitize
# beside
"""The daemon's life: start, stop, signals, crash."""
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys

from appliance_lib import BUILD, DEADLINE, VARVE, Daemon, check, main, wait_for


def run(*options):
    p = subprocess.run([VARVE, *options], capture_output=True, text=True, timeout=DEADLINE)
    return p.returncode, p.stdout, p.stderr


def test_signals_that_stop_do_so_cleanly():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with Daemon() as d:
            check(d.stop(number) == 0, d.log())
            check(not os.path.exists(d.path) and not os.path.exists(f"{d.path}.lock"), "the socket is left")
            check("stopping" in d.log() and "ERROR" not in d.log(), d.log())


def test_a_stop_while_it_waits_for_rpc_is_clean():
    with Daemon("--wait-for-rpc", ready=False) as d:
        c = wait_for(d.connect, "the RPC socket")
        c.send({"method": "framework_wait_init", "id": 1})
        check(c.call("log_get_level"), "served while waiting")
        d.process.send_signal(signal.SIGTERM)
        check("error" in c.receive(), "who waits for the start is told that it will not be")
        check(d.wait_exit() == 0, d.log())


def test_the_state_and_its_age_are_told():
    with Daemon("--wait-for-rpc", ready=False) as d:
        c = wait_for(d.connect, "the RPC socket")
        check(c.call("appliance_get_state")["state"] == "WAIT", "before framework_start_init")
        c.call("framework_start_init")
        state = c.call("appliance_get_state")
        check(state["state"] == "RUNNING" and state["pid"] == d.pid and state["trace_file"] == str(d.trace_file), state)
        check(0 < state["age_us"] < 1e9, state)


def test_spdk_kill_instance_answers_and_stops():
    for sig_name in ("SIGTERM", "15"):
        with Daemon() as d:
            check(d.call("spdk_kill_instance", sig_name=sig_name) is True, "the answer")
            check(d.wait_exit() == 0, d.log())


def test_the_signal_of_a_file_that_may_not_grow_does_not_end_it():
    with Daemon() as d:
        d.process.send_signal(signal.SIGXFSZ)
        d.process.send_signal(signal.SIGUSR1)  # comes after it
        wait_for(lambda: "state RUNNING" in d.log(), "the state in the log")
        check(d.stop() == 0, d.log())


def test_sigusr1_logs_the_state():
    with Daemon() as d:
        d.process.send_signal(signal.SIGUSR1)
        wait_for(lambda: "state RUNNING" in d.log(), "the state in the log")
        check(d.stop() == 0, d.log())


def test_an_unrecorded_trace_file_is_removed_and_a_recorded_one_stays():
    with Daemon("--num-trace-entries", "64") as d:
        check(d.trace_file.exists(), "there is a trace file")
        check(d.stop() == 0, d.log())
        check(not d.trace_file.exists(), "nothing was recorded, but the file is left")
    with Daemon("-e", "rpc,appliance") as d:
        check(d.stop() == 0, d.log())
        check(d.trace_file.exists(), "what was recorded is gone")
    with Daemon("--num-trace-entries", "0") as d:
        check(not d.trace_file.exists(), "no tracing, no file")


def test_the_start_says_how_to_trace():
    with Daemon("-e", "bdev,rpc") as d:
        for line in ("Tracepoint Group Mask bdev,rpc specified.",
                     f"Use 'varve-trace -s varve -p {d.pid}' to capture a snapshot of events at runtime.",
                     f"Or copy /dev/shm/varve_trace.pid{d.pid} for offline analysis/debug."):
            check(re.search(r"app\.c: .*" + re.escape(line), d.log()), f"{line} is not in\n{d.log()}")


def test_rpc_calls_states_and_the_log_are_in_the_trace():
    with Daemon("-e", "rpc,appliance") as d:
        d.call("log_get_flags")
        d.stop(signal.SIGKILL)
        p = subprocess.run([BUILD / "bin" / "varve-trace", "-f", d.trace_file], capture_output=True, text=True, timeout=DEADLINE)
        check(p.returncode == 0, p.stderr)
        for word in ("RPC_BEGIN", "RPC_END", "log_get_flags", "APPLIANCE_STATE",
                     "LOG_LINE", "Tracepoint Group Mask rpc,appliance specified."):
            check(word in p.stdout, f"{word} is not in\n{p.stdout}")


def test_a_clean_stop_is_in_the_trace_to_the_last_state():
    with Daemon("-e", "appliance") as d:
        check(d.stop() == 0, d.log())
        p = subprocess.run([BUILD / "bin" / "varve-trace", "-f", d.trace_file], capture_output=True, text=True, timeout=DEADLINE)
        check(p.returncode == 0, p.stderr)
        states = [line for line in p.stdout.splitlines() if "APPLIANCE_STATE" in line]
        check(re.search(r"old: +8 +new: +9\b", states[-1]), f"STOPPING, STOPPED is not the last state in\n{p.stdout}")
        check("Not recorded" not in p.stdout, p.stdout)


def crash_and_check(d, number):
    check(d.stop(number) == -number, f"varve must die of signal {number}")
    log = d.log()
    build = subprocess.run([VARVE, "--version"], capture_output=True, text=True).stdout
    check(re.search(r"crashed: " + signal.Signals(number).name, log), log)
    check(re.search(r"build id: ([0-9a-f]+)", log)[1] in build, "the build id")
    check(re.search(r"thread: +\S+ \(\d+\)", log), "the thread")
    check("main+0x" in log and "addr2line" in log, "the backtrace")
    check(f"varve-trace -f {d.trace_file}" in log, "where the trace is")
    check(d.trace_file.exists(), "the trace file itself")


def test_a_crash_is_reported_and_left_to_the_kernel():
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT, signal.SIGBUS):
        with Daemon("-d") as d:
            crash_and_check(d, number)


def test_a_crash_on_a_reactor_names_it():
    with Daemon("-d") as d:
        tid = d.call("framework_get_reactors")["reactors"][0]["tid"]
        tgkill = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
        check(ctypes.CDLL(None).syscall(tgkill, d.pid, tid, int(signal.SIGSEGV)) == 0, "tgkill")
        check(d.wait_exit() == -signal.SIGSEGV, "varve must die")
        check(re.search(r"thread: +reactor_0 \(" + str(tid), d.log()), d.log())


def test_the_line_numbers_of_a_crash_can_be_told():
    with Daemon("-d") as d:
        d.stop(signal.SIGSEGV)
        command = re.search(r"addr2line -pfie .*", d.log())[0].split()
        p = subprocess.run(command, capture_output=True, text=True)
        check("main.c:" in p.stdout, p.stdout)


def test_the_command_line_is_checked():
    for options, words in [
            (["--nosuch"], ["--nosuch"]), (["-m", "x"], ["-m", "x"]), (["-e", "nosuch"], ["nosuch", "bdev"]),
            (["-c", "/no/such.json"], ["/no/such.json"]), (["extra"], ["extra"]),
            (["-r", "relative"], ["relative", "absolute"])]:
        status, _, err = run("--no-huge", "--no-pci", *options)
        check(status in (1, 2) and all(w in err for w in words), f"{options}: {status} {err}")


def test_a_core_that_does_not_exist_is_named():
    status, _, err = run("--no-huge", "--no-pci", "-m", "[1000]", "-r", "/tmp/varve-test-none.sock")
    check(status == 1 and "1000" in err, err)
    check(not os.path.exists("/tmp/varve-test-none.sock"), "a socket is left")


def test_help_version_and_tracepoint_help_are_printed():
    status, out, _ = run("--help")
    check(status == 0 and "--wait-for-rpc" in out and "-e," in out, out)
    status, out, _ = run("-v")
    check(status == 0 and re.match(r"varve v\d+\.\d+\.\d+ \(build [0-9a-f]+\)", out), out)
    status, out, _ = run("-e", "help")
    check(status == 0 and "bdev" in out and "RPC_BEGIN" in out, out)


def test_two_instances_run_side_by_side():
    with Daemon() as a, Daemon() as b:
        check(a.call("framework_get_reactors")["pid"] == a.pid and b.call("framework_get_reactors")["pid"] == b.pid, "pids")
        check(a.stop() == 0 and b.stop() == 0, a.log() + b.log())


def test_an_idle_daemon_sleeps():
    with Daemon() as d:
        wait_for(lambda: all(r["in_interrupt"] for r in d.call("framework_get_reactors")["reactors"]), "the reactors to sleep")

        def states():
            return {p.read_text().rsplit(") ")[1][0] for p in pathlib.Path(f"/proc/{d.pid}/task").glob("*/stat")}
        wait_for(lambda: states() == {"S"}, "all threads to sleep")


if __name__ == "__main__":
    main(sys.modules[__name__])
