#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bpftrace on the probes: every shipped script compiles and attaches, probes fire as often as they should, with the right arguments."""
# needs: root bpf
# limit: 600
# apart
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from appliance_lib import BUILD, TOP, Daemon, RpcError, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target as NvmfTarget
from usdt_lib import WRAPPER, Tracer, check, finish, kernel_tracepoints, probes_needed, probes_of_ours

TARGET = BUILD / "unittest/usdt/usdt-target"


class Target:
    """A process that fires every probe when told to; a tracer must be attached to the probes given."""

    def __init__(self, *probes):
        self.process = subprocess.Popen([TARGET, *probes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def fire(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        return "" if said == "fired\n" else said or "the target died"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def trace(script, probes, arguments=(), wanted=None):
    """Runs a script on a target that fires; what it printed until `wanted` (a pattern) was there, and at its end."""
    with Target(*probes) as target:
        tracer = Tracer(target.process.pid, script, arguments)
        if not tracer.wait_for("attached", raw=True):
            return False, "it does not attach: " + tracer.stop()
        why = target.fire()
        if not why and wanted:
            tracer.wait_for(wanted)
        text = tracer.stop()
        return not why, why + text


def shipped(name):
    return (BUILD / "bin" / name).read_text()


def test_arguments():
    script = """
usdt:__EXE__:test_none { @none = count(); @tsc = arg0; }
usdt:__EXE__:test_args
{
    printf("text=%s negative=%d big=%llx pointer=%llx later=%d pid=%d\\n",
           str(arg1), (int32)arg2, arg3, arg4, arg0 >= @tsc, pid == __PID__);
}
"""
    fired, text = trace(script, ["test_none", "test_args"], wanted="pid=")
    check("arguments_arrive_with_their_values",
          fired and "text=a string negative=-5 big=fffffffffffffffe pointer=123456789abc later=1 pid=1" in text, text)
    check("probe_fires_once_per_event", "@none: 1\n" in text, text)


def test_scripts_of_other_programs():
    """As the guides of SPDK's users have them: an interpreter, includes, blocks of their own, another program, its provider."""
    script = """#!/usr/bin/env bpftrace
#include <linux/types.h>
#define LIMIT 2
// BEGIN { of a comment
BEGIN { printf("it begins\\n"); @limit = LIMIT; }
usdt:/opt/spdk/build/bin/spdk_tgt:spdk:nvmf_tgt_state { printf("target is %s, %s\\n", @target[arg1], @nvmf_tgt[arg1]); }
usdt:__EXE__:spdk:nvmf_subsystem_change_state /@limit == LIMIT/ { printf("%s to %s\\n", str(arg1), @subsystem[arg2]); }
usdt:/opt/spdk/build/bin/spdk_tgt:spdk:event_exec /arg3 == 0/ { @events[usym(arg1), arg2] = count(); }
usdt:__EXE__:spdk:nvmf_tgt_pause_polling,
usdt:__EXE__:nvmf_tgt_resume_polling { printf("polling of %s\\n", str(arg1)); }
END { printf("a target runs in %s\\n", @target[4]); }
"""
    fired, text = trace(script, ["nvmf_tgt_state", "nvmf_subsystem_change_state", "event_exec"], wanted=" to ACTIVE")
    check("scripts_for_spdk_run", fired and "it begins\n" in text and "target is NONE, NONE\n" in text
          and "nqn.2014-08.org.nvmexpress.discovery to ACTIVE\n" in text and "a target runs in RUNNING\n" in text, text)
    check("a_reactor_runs_events", "@events[a_message, 10]: 3\n" in text, text)
    check("probes_that_are_not_there_are_left_out_and_named", all(text.count(f"probe nvmf_tgt_{x}_polling is left out") == 1 for x in ("pause", "resume")), text)
    check("tables_are_not_printed_behind_an_end_of_its_own", "@target" not in text and "@nvmf_tgt" not in text and "@limit: 2" in text, text)


def test_scripts_without_a_probe_that_is_left():
    with tempfile.NamedTemporaryFile("w", suffix=".bt") as script:
        script.write(" #define LIMIT 2\nusdt:__EXE__:spdk:nvmf_tgt_pause_polling/arg1 < LIMIT/ { @target[arg1] = count(); }\n")
        script.flush()
        p = subprocess.run([WRAPPER, str(os.getpid()), script.name], text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    check("a_script_without_a_probe_that_is_left_is_refused", p.returncode == 1 and not p.stdout
          and "probe nvmf_tgt_pause_polling is left out" in p.stderr and p.stderr.endswith(": no probe is left\n"), f"{p.returncode} {p.stdout} {p.stderr}")


def test_scripts():
    fired, text = trace(shipped("iops.bt"), ["bdev_io_submit"], wanted=r"@submits\[Null0, WRITE\]: 500")
    check("iops_counts_submits_and_blocks", fired and "@submits[Malloc0, READ]: 1000" in text
          and "@blocks[Malloc0, READ]: 8000" in text and "@submits[Null0, WRITE]: 500" in text, text)

    fired, text = trace(shipped("latency.bt"), ["bdev_io_done"])
    histogram = re.search(r"@latency_us\[Malloc0, READ\]:.*?\n(.*?)\n\n", text, re.S)
    counts = [int(n) for n in re.findall(r"\)? +(\d+) \|", histogram[1])] if histogram else []
    check("latency_has_a_histogram_of_the_good_and_a_count_of_the_bad",
          fired and sum(counts) == 990 and "@errors[Malloc0, READ, 641]: 10" in text, text)
    check("state_tables_are_not_printed", "@bdev_io_type" not in text, text)

    fired, text = trace(shipped("slow.bt"), ["bdev_io_done"], ["1000000"], wanted="blocks:")
    check("slow_shows_only_what_is_over_the_limit",
          fired and len(re.findall(r"Malloc0 READ at block 616, 8 blocks: \d{8,} us, status 0", text)) == 1
          and text.count(" at block ") == 1, text)

    fired, text = trace(shipped("rpc.bt"), ["rpc_begin", "rpc_end"], wanted=r"(?s)(ends.*){3}")
    check("rpc_shows_calls", fired and text.count("bdev_get_bdevs begins") == 3
          and text.count("bdev_get_bdevs ends with -19 after 250 us") == 3, text)

    fired, text = trace(shipped("send_msg.bt"), ["thread_send_msg"], wanted=r"@messages\[1, 2")
    check("send_msg_names_the_function", fired and "@messages[1, 2, a_message]: 3" in text, text)

    fired, text = trace(shipped("sched.bt"), ["dynsched_move", "dynsched_balance"], wanted="moves from")
    check("sched_names_thread_and_cores", fired and "thread 7, worker, moves from core 3 to 0" in text and "@moves[worker]: 1" in text
          and "@periods: 2" in text, text)

    fired, text = trace(shipped("nvme.bt"), ["nvme_ctrlr_state", "nvme_qpair_state"], wanted="queue pair")
    check("nvme_names_the_states", fired and re.search(r"0000:01:00\.0 +from [A-Z_ ]+ to [A-Z_ ]+", text)
          and "0000:01:00.0 queue pair 3 from CONNECTING to READY" in text, text)

    fired, text = trace(shipped("nvmf_timeout.bt"), ["bdev_nvme_ctrlr_reset", "bdev_nvme_ctrlr_reconnect_delay"], wanted="ready again")
    lines = [line.split(": ", 1)[1] for line in sorted(re.findall(r"^\d+\.\d{6}: .*", text, re.M))]
    check("nvmf_timeout_tells_of_lost_controllers", fired and lines == ["Nvme0 is lost or being reset",
          "Nvme0 could not be reached, and will be tried again", "Nvme0 is ready again"], text)

    fired, text = trace(shipped("states.bt"), ["nvmf_req_state"])
    counts = {m[1]: sum(int(n) for n in re.findall(r"\)? +(\d+) \|", m[2]))
              for m in re.finditer(r"@state_us\[(\w+)\]:.*?\n(.*?)\n\n", text + "\n\n", re.S)}
    check("states_counts_each_state_that_was_left", fired and counts == {"NEW": 6, "EXECUTING": 5, "COMPLETED": 5}, text)
    check("states_keeps_its_notes_to_itself", "@_since" not in text and "@rdma_req_state" not in text, text)

    probes = ["nvmf_tgt_state", "nvmf_subsystem_change_state", "nvmf_subsystem_change_state_done", "nvmf_pg_change_state",
              "nvmf_pg_change_state_done", "nvmf_ctrlr_state", "nvmf_qpair_state"]
    fired, text = trace(shipped("nvmf.bt"), probes, wanted="queue pair")
    discovery = "nqn.2014-08.org.nvmexpress.discovery"
    lines = sorted(re.findall(r"^\d+\.\d{6}: .*", text, re.M))
    expected = ["nvmf_tgt reached state NONE", f"{discovery} change state from INACTIVE to ACTIVE start",
                f"{discovery} on thread 2 state to ACTIVE start", f"{discovery} on thread 2 state to ACTIVE done",
                f"{discovery} change state from INACTIVE to ACTIVE done",
                f"{discovery} change state from ACTIVE to PAUSED failed: -16",
                f"controller 0xc0de of {discovery}, host nqn.host: from DISABLED to READY",
                "queue pair 0xbeef (qid 3), host nqn.host: from CONNECTING to ENABLED"]
    check("nvmf_shows_state_changes_in_the_form_that_is_known",
          fired and [line.split(": ", 1)[1] for line in lines] == expected, text)


def test_system_calls():
    if subprocess.run([*kernel_tracepoints(), "test", "-e", "/sys/kernel/tracing/events/syscalls"]).returncode:
        print("SKIP usdt.system_calls: this kernel has no tracepoints of system calls")
        return
    fired, text = trace(shipped("readv.bt"), [], wanted=None)
    histogram = re.search(r"@bytes:.*?\n\[16, 32\) +(\d+) \|", text, re.S)
    check("readv_counts_bytes_and_errors", fired and histogram and histogram[1] == "3" and "@errors[9]: 1\n" in text, text)
    fired, text = trace(shipped("syscalls.bt"), [], wanted=r"sys_enter_readv\]: 4")
    check("syscalls_names_and_counts_them", fired and "@calls[tracepoint:syscalls:sys_enter_readv]: 4\n" in text, text)


def test_daemon():
    with Daemon() as d:
        tracer = Tracer(d.pid, shipped("rpc.bt"), ())
        attached = tracer.wait_for("attached", raw=True)
        for _ in range(5):
            d.call("log_get_flags")
        try:
            d.call("trace_enable_tpoint_group", name="nosuch")
        except RpcError:
            pass
        tracer.wait_for("trace_enable_tpoint_group ends")
        text = tracer.stop()
    check("daemon_shows_each_call_once", attached and text.count("log_get_flags begins\n") == 5
          and len(re.findall(r"log_get_flags ends with 0 after \d+ us", text)) == 5, text)
    check("daemon_shows_the_error_of_a_call", "trace_enable_tpoint_group ends with -32602 after " in text, text)


def test_live_io():
    """Each script that watches I/O, on a target that serves a host."""
    with NvmfTarget() as t:
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.add_ns("EE_M0", nsid=1)
        tracers = {name: Tracer(t.pid, shipped(name), arguments) for name, arguments in
                   [("iops.bt", ()), ("latency.bt", ()), ("slow.bt", ("0",)), ("states.bt", ()), ("nvmf.bt", ()), ("send_msg.bt", ())]}
        try:
            attached = [n for n, tracer in tracers.items() if tracer.wait_for("attached", raw=True, seconds=120)]
            check("live_scripts_attach", len(attached) == len(tracers), str(attached))
            for _ in range(5):      # one that cannot connect, on a slow machine, is started again
                with Host(t, "-w", "randread", "-o", "4k", "-q", "4", "-t", "3600", nsid=1) as h:
                    wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 200, "some I/O", 120)
                    if not h.is_running():
                        continue
                    tracers["iops.bt"].wait_for(r"@submits\[EE_M0, READ\]", seconds=60)
                    t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="failure", num=1)
                    wait_for(lambda: t.call("bdev_get_iostat", name="EE_M0")["bdevs"][0]["io_error"] or not h.is_running(), "an error", 120)
                    break
        finally:
            texts = {n: tracer.stop() for n, tracer in tracers.items()}
    submits, blocks = (re.search(rf"@{m}\[EE_M0, READ\]: (\d+)", texts["iops.bt"]) for m in ("submits", "blocks"))
    check("live_iops_counts_reads_of_8_blocks", submits and blocks and int(blocks[1]) >= 8 * int(submits[1]) - 800, texts["iops.bt"])
    check("live_latency_of_the_bdev", "@latency_us[EE_M0, READ]" in texts["latency.bt"] and "@errors[EE_M0, READ, " in texts["latency.bt"],
          texts["latency.bt"])
    check("live_slow_names_blocks", re.search(r"EE_M0: READ at block \d+, 8 blocks: \d+ us|EE_M0 READ at block \d+, 8 blocks: \d+ us",
                                              texts["slow.bt"]), texts["slow.bt"])
    check("live_states_of_requests", "@state_us[EXECUTING]" in texts["states.bt"] and "@state_us[COMPLETING" in texts["states.bt"],
          texts["states.bt"])
    check("live_nvmf_names_the_host", re.search(rf"controller 0x[0-9a-f]+ of {re.escape(NQN)}, host {re.escape(HOSTNQN)}: from DISABLED to READY",
                                                texts["nvmf.bt"]), texts["nvmf.bt"])
    check("live_send_msg_names_functions", re.search(r"@messages\[\d+, \d+, [a-z_]+\]: \d+", texts["send_msg.bt"]), texts["send_msg.bt"])


def test_live_scheduler():
    """Two idle poll groups on two cores gather on the first."""
    script = """
usdt:__EXE__:dynsched_move { printf("%d %s from %d to %d\\n", arg1, str(arg2), arg3, arg4); }
usdt:__EXE__:dynsched_balance { printf("%d threads, %d moved\\n", arg1, arg2); }
"""
    with Daemon("-m", "[0-1]") as d:
        tracer = Tracer(d.pid, script, ())
        try:
            attached = tracer.wait_for("attached", raw=True)
            groups = {t["name"]: t["id"] for t in d.call("thread_get_stats")["threads"]}
            d.call("framework_set_scheduler", name="dynamic", period=1000)
            name = "nvmf_tgt_poll_group_001"
            moved = tracer.wait_for(rf"(?m)^{groups[name]} {name} from 1 to 0$")
            told = tracer.wait_for(r"(?m)^2 threads, 1 moved$") and tracer.wait_for(r"(?m)^2 threads, 0 moved$")
        finally:
            text = tracer.stop()
    check("live_scheduler_tells_of_each_move_and_period", attached and moved and told, text)


def test_perf():
    if not shutil.which("perf"):
        print("SKIP usdt.perf_lists_every_probe: perf is not installed")
        return
    names = set(probes_of_ours())
    with tempfile.TemporaryDirectory() as folder:
        output_of("perf", "--buildid-dir", folder, "buildid-cache", "--add", BUILD / "bin/varve")
        text = output_of("perf", "--buildid-dir", folder, "list", "--raw-dump", "sdt")
    found = set(re.findall(r"sdt_varve:(\w+)", text))
    check("perf_lists_every_probe", names <= found, str(names - found))


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60).stdout


def test_other_tracers():
    check("every_probe_was_found", len(probes_of_ours()) == (TOP / "usdt/probes.def").read_text().count("\nUSDT_PROBE("), str(probes_of_ours()))
    names = set(probes_of_ours())
    varve = BUILD / "bin/varve"
    found = set(re.findall(r"Provider: varve\n +Name: (\w+)", output_of("readelf", "-n", varve)))
    check("readelf_shows_every_probe", names <= found, str(names - found))
    found = set(re.findall(r":varve:(\w+)", output_of("bpftrace", "-l", f"usdt:{varve}:*")))
    check("bpftrace_lists_every_probe", names <= found, str(names - found))
    if shutil.which("gdb"):
        text = output_of("gdb", "-iex", "set debuginfod enabled off", "-batch", "-ex", "info probes stap varve", varve)
        check("gdb_shows_every_probe", names <= set(text.split()), text)
    else:
        print("SKIP usdt.gdb_shows_every_probe: gdb is not installed")


def test_every_script_is_tested():
    ours = {p.name for p in (TOP / "usdt/bt").glob("*.bt")}
    named = set(re.findall(r'trace\(shipped\("([a-z_]+\.bt)"', Path(__file__).read_text()))
    check("every_shipped_script_is_run_here", ours == named, str(ours ^ named))
    missing = {p for p in ours if not (BUILD / "bin" / p).exists()}
    check("every_shipped_script_is_installed", not missing, str(missing))


def test_wrapper():
    def run(*args, wrapper=WRAPPER, cwd="/"):
        p = subprocess.run([wrapper, *args], cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        return p.returncode, p.stdout, p.stderr

    code, _, err = run("99999999", "iops.bt")
    check("unknown_process_is_an_error", code == 1 and "99999999 does not exist" in err, err)
    code, _, err = run("x", "iops.bt")
    check("pid_that_is_none_is_an_error", code == 1 and "'x' is not a process id" in err, err)
    code, _, err = run(str(os.getpid()), "nothing.bt")
    check("unknown_script_is_an_error", code == 1 and "no script 'nothing.bt'" in err, err)
    with Target("test_none") as target:
        pid = str(target.process.pid)
        code, out, err = run("-n", pid, "iops.bt")
        others = [run("-n", pid, name, wrapper=wrapper, cwd=cwd)[1] for wrapper, name, cwd in (
            (WRAPPER, "scripts/bpf/iops.bt", "/"), (TOP / "scripts/bpftrace.sh", "scripts/bpf/iops.bt", TOP),
            (TOP / "scripts/bpftrace.sh", "bpf/iops.bt", TOP / "scripts"))]
        target.process.kill()
    check("placeholders_are_replaced", code == 0 and f"usdt:{TARGET}:bdev_io_submit" in out and "__" not in out, out + err)
    check("scripts_are_found_by_the_paths_of_guides", others == [out] * 3, str([t[:200] for t in others]))
    check("tables_of_the_script_are_there", '@bdev_io_type[1] = "READ";' in out and "clear(@bdev_io_type);" in out
          and "@nvme_ctrlr" not in out, out)


probes_needed(TARGET)
test_wrapper()
test_arguments()
test_scripts_of_other_programs()
test_scripts_without_a_probe_that_is_left()
test_scripts()
test_system_calls()
test_daemon()
test_live_io()
test_live_scheduler()
test_other_tracers()
test_perf()
test_every_script_is_tested()
finish()
