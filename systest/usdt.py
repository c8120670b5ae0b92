#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""bpftrace on the probes: every shipped script compiles and attaches, probes fire as often as they should, with the right arguments."""
# needs: root bpf
# limit: 600
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from appliance_lib import Daemon, RpcError, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target as NvmfTarget

TOP = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("VARVE_BUILD", TOP / "build")).resolve()
TARGET = BUILD / "unittest/usdt/usdt-target"
WRAPPER = BUILD / "bin/bpftrace.sh"
failed = False


def check(name, ok, why=""):
    global failed
    failed |= not ok
    print(f"PASS usdt.{name}" if ok else f"FAIL usdt.{name}: {why.strip()[-600:]!r}", flush=True)


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


class Tracer:
    """The wrapper with a script, to which a probe is added that says when everything is attached."""

    def __init__(self, pid, script, arguments):
        self.out = tempfile.NamedTemporaryFile("r")
        self.script = tempfile.NamedTemporaryFile("w", suffix=".bt")
        self.script.write(script + '\ninterval:ms:100 { printf("attached\\n"); }\n')
        self.script.flush()
        self.process = subprocess.Popen([WRAPPER, str(pid), self.script.name, *arguments], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "BPF_OUTFILE": self.out.name})

    def output(self):
        return Path(self.out.name).read_text().replace("attached\n", "")

    def wait_for(self, pattern, raw=False, seconds=120):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if re.search(pattern, Path(self.out.name).read_text() if raw else self.output()):
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        return False

    def stop(self):
        """Everything that was printed, maps at the end included; and what went to stderr."""
        self.process.send_signal(signal.SIGINT)
        try:
            said = self.process.communicate(timeout=120)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            said = self.process.communicate()[0]
        return self.output() + said


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

    fired, text = trace(shipped("nvme.bt"), ["nvme_ctrlr_state", "nvme_qpair_state"], wanted="queue pair")
    check("nvme_names_the_states", fired and re.search(r"0000:01:00\.0 +from [A-Z_ ]+ to [A-Z_ ]+", text)
          and "0000:01:00.0 queue pair 3 from CONNECTING to READY" in text, text)

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


def test_perf():
    if not shutil.which("perf"):
        print("SKIP usdt.perf_lists_every_probe: perf is not installed")
        return
    names = set(re.findall(r"^USDT_PROBE\((\w+)", (TOP / "usdt/probes.def").read_text(), re.M))
    with tempfile.TemporaryDirectory() as folder:
        output_of("perf", "--buildid-dir", folder, "buildid-cache", "--add", BUILD / "bin/varve")
        text = output_of("perf", "--buildid-dir", folder, "list", "--raw-dump", "sdt")
    found = set(re.findall(r"sdt_varve:(\w+)", text))
    check("perf_lists_every_probe", names <= found, str(names - found))


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60).stdout


def test_other_tracers():
    names = set(re.findall(r"^USDT_PROBE\((\w+)", (TOP / "usdt/probes.def").read_text(), re.M))
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


def probes_of_ours():
    """{probe: [(type, name)]} of usdt/probes.def; arg0 is the time stamp."""
    text = re.sub(r'"\s*"', "", (TOP / "usdt/probes.def").read_text())
    return {m[1]: re.findall(r"\(((?:const )?\w+(?: \*)?), (\w+), \"", m[2])
            for m in re.finditer(r'^USDT_PROBE\((\w+), "[^"]*"(.*?)\)\s*$(?=\n\s*(?:USDT|/|$))', text, re.M | re.S)}


SHOWN = 40      # of each probe: some fire a hundred thousand times a second


def printing(probes):
    """A script that prints the first of each probe's events with all arguments."""
    def one(name, arguments):
        texts = {"const char *": "%s", "int32_t": "%d", "const void *": "%llx"}
        formats = "".join(f" {n}=<{texts.get(t, '%llu')}>" for t, n in arguments)
        values = "".join(", " + {"const char *": f"str(arg{i})", "int32_t": f"(int32)arg{i}"}.get(t, f"arg{i}")
                         for i, (t, _) in enumerate(arguments, 1))
        return f'usdt:__EXE__:{name} /@n_{name} < {SHOWN}/ {{ @n_{name}++; printf("{name}{formats}\\n"{values}); }}'
    return "\n".join(one(n, a) for n, a in probes.items())


class Fired:
    """What such a script printed."""

    def __init__(self, text):
        self.text = text
        self.events = [(m[1], dict(re.findall(r" (\w+)=<(.*?)>", m[2]))) for m in re.finditer(r"^(\w+)((?: \w+=<.*?>)+)$", text, re.M)]

    def has(self, probe, /, **arguments):
        """That a probe has fired with these arguments, among others."""
        seen = [a for n, a in self.events if n == probe]
        check(f"life_{probe}", any(all(a.get(k) == str(v) for k, v in arguments.items()) for a in seen), f"wanted {arguments} of {seen[:8]}")


OTHER = "nqn.2026-11.io.varve:usdt"


def live_through(t):
    """A subsystem from its making to its end, a host from its coming to its going, a bdev whose I/O waits, fails and hangs. What the RPCs say
    meanwhile."""
    facts = {"thread": {x["name"]: x["id"] for x in t.call("thread_get_stats")["threads"]}}
    t.add_malloc("M0")
    t.call("bdev_error_create", base_name="M0")
    t.call("nvmf_create_subsystem", nqn=OTHER, serial_number="U1")
    t.call("nvmf_subsystem_add_host", nqn=OTHER, host=HOSTNQN)
    t.call("nvmf_subsystem_add_listener", nqn=OTHER, listen_address=t.listen_address())
    t.call("nvmf_subsystem_add_ns", nqn=OTHER, namespace={"bdev_name": "EE_M0", "nsid": 3})
    t.call("bdev_set_qos_limit", name="EE_M0", rw_ios_per_sec=1000)
    t.call("trace_set_trigger", name="bad", type="io_error", action="notify")
    for _ in range(5):          # one that cannot connect, on a slow machine, is started again
        with Host(t, "-w", "randread", "-o", "4k", "-q", "4", "-t", "3600", nqn=OTHER, nsid=3) as h:
            wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 50, "some I/O", 120)
            if not h.is_running():
                continue
            facts["qpairs"] = t.call("nvmf_subsystem_get_qpairs", nqn=OTHER)
            t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="failure", num=1)
            wait_for(lambda: any(x["fired"] for x in t.call("trace_get_triggers")["triggers"]), "the trigger", 120)
            t.call("bdev_set_timeout", name="EE_M0", timeout_us=1000000)
            t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="pending", num=1)
            facts["hung"] = wait_for(lambda: [r for r in t.call("nvmf_get_inflight") if r["state"] == "BDEV" and r["age_us"] > 2500000],
                                     "a read to hang", 120)[0]
            break
    t.call("bdev_error_resume_pending", name="EE_M0")
    t.wait_empty()
    t.call("nvmf_subsystem_remove_ns", nqn=OTHER, nsid=3)
    t.call("nvmf_subsystem_remove_listener", nqn=OTHER, listen_address=t.listen_address())
    t.call("nvmf_subsystem_remove_host", nqn=OTHER, host=HOSTNQN)
    t.call("nvmf_delete_subsystem", nqn=OTHER)
    return facts


def test_life():
    """Every probe attached at once, with all its arguments, through the life of a subsystem and a host; against what the RPCs said."""
    probes = probes_of_ours()
    check("life_knows_every_probe", len(probes) == (TOP / "usdt/probes.def").read_text().count("\nUSDT_PROBE("), str(len(probes)))
    with NvmfTarget("-e", "bdev") as t:
        tracer = Tracer(t.pid, printing(probes), ())
        try:
            check("life_attaches_to_all", tracer.wait_for("attached", raw=True), "it does not attach")
            facts = live_through(t)
            tracer.wait_for(r"(?m)^nvmf_subsystem_destroy ")
        finally:
            f = Fired(tracer.stop())
        address = t.listen_address()
    group = next(i for n, i in facts["thread"].items() if n.startswith("nvmf_tgt_poll_group"))
    where = {"trtype": address["trtype"], "traddr": address["traddr"], "trsvcid": address["trsvcid"]}
    for name in ("nvmf_subsystem_create", "nvmf_subsystem_destroy", "nvmf_subsystem_change_state", "nvmf_subsystem_remove_ctrlr"):
        f.has(name, subnqn=OTHER)
    for name in ("nvmf_subsystem_add_host", "nvmf_subsystem_remove_host", "nvmf_subsystem_add_ctrlr", "nvmf_ctrlr_state"):
        f.has(name, subnqn=OTHER, hostnqn=HOSTNQN)
    for name in ("nvmf_subsystem_add_listener", "nvmf_subsystem_remove_listener"):
        f.has(name, subnqn=OTHER, **where)
    for name in ("nvmf_subsystem_add_ns", "nvmf_subsystem_remove_ns"):
        f.has(name, subnqn=OTHER, nsid=3)
    f.has("nvmf_subsystem_change_state_done", subnqn=OTHER, status=0)
    for name in ("nvmf_pg_change_state", "nvmf_pg_change_state_done", "nvmf_poll_group_add_subsystem", "nvmf_poll_group_remove_subsystem"):
        f.has(name, subnqn=OTHER, thread=group)
    for name in ("nvmf_poll_group_add_qpair", "nvmf_poll_group_remove_qpair", "nvmf_qpair_disconnect", "nvmf_poll_group_drain_qpair",
                 "nvmf_transport_poll_group_add"):
        f.has(name, thread=group)
    f.has("nvmf_transport_poll_group_remove", thread=group, qid=1)
    f.has("nvmf_transport_qpair_fini")
    f.has("nvmf_ctrlr_create", subnqn=OTHER)
    f.has("nvmf_ctrlr_destruct")
    for q in facts["qpairs"]:
        f.has("nvmf_ctrlr_add_qpair", qid=q["qid"], subnqn=OTHER, hostnqn=q["hostnqn"])
        f.has("nvmf_qpair_state", qid=q["qid"], hostnqn=q["hostnqn"])
    f.has("nvmf_ctrlr_add_io_qpair", qid=1, thread=group)
    f.has("nvmf_req_state", hostnqn=HOSTNQN, qid=0)
    f.has("bdev_io_submit", bdev="EE_M0", num_blocks=8)
    f.has("bdev_io_done", bdev="EE_M0", num_blocks=8)
    f.has("qos_wait", bdev="EE_M0", num_blocks=8)
    f.has("trace_trigger", name="bad", type="io_error", us=0)
    f.has("rpc_begin", method="nvmf_create_subsystem")
    f.has("rpc_end", method="nvmf_create_subsystem", status=0)
    f.has("slow_io", bdev="EE_M0", offset_blocks=facts["hung"]["lba"], num_blocks=facts["hung"]["num_blocks"])
    for name in ("thread_send_msg", "msg_exec", "timerfd_exec", "interrupt_fd_process"):
        f.has(name)


def test_every_script_is_tested():
    ours = {p.name for p in (TOP / "usdt/bt").glob("*.bt")}
    named = set(re.findall(r'trace\(shipped\("([a-z_]+\.bt)"', Path(__file__).read_text()))
    check("every_shipped_script_is_run_here", ours == named, str(ours ^ named))
    missing = {p for p in ours if not (BUILD / "bin" / p).exists()}
    check("every_shipped_script_is_installed", not missing, str(missing))


def test_wrapper():
    def run(*args):
        p = subprocess.run([WRAPPER, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)
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
        target.process.kill()
    check("placeholders_are_replaced", code == 0 and f"usdt:{TARGET}:bdev_io_submit" in out and "__" not in out, out + err)
    check("tables_of_the_script_are_there", '@bdev_io_type[1] = "READ";' in out and "clear(@bdev_io_type);" in out
          and "@nvme_ctrlr" not in out, out)


for program in (TARGET, WRAPPER):
    if not program.exists():
        print(f"SKIP usdt: {program} is not built")
        sys.exit()
if b"stapsdt" not in TARGET.read_bytes():
    print("SKIP usdt: built without <sys/sdt.h>")
    sys.exit()
test_wrapper()
test_arguments()
test_scripts()
test_daemon()
test_live_io()
test_life()
test_other_tracers()
test_perf()
test_every_script_is_tested()
sys.exit(failed)
