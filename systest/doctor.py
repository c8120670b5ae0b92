#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""varve-doctor: each thing that it is to find is made to happen, on a daemon of its own; and what it reads may be anything."""
# needs: root gdb
# limit: 900
# beside
import contextlib
import ctypes
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import types
import urllib.request

from appliance_lib import BUILD, TOP, VARVE, Client, Daemon, Skip, check, main, wait_for
from core_lib import Core
from liar_lib import LIES, Liar
from nvmf_lib import HOSTNQN, NQN, Host, Target, wait_io

TRACE = BUILD / "bin" / "varve-trace"
DOCTOR = BUILD / "bin" / "varve-doctor"
SLOW = 300              # seconds that one run may take on a busy machine
SECTION_INFO, INFO_CRASH_FLAGS = 8, 264      # of trace_file.h
NO_PID = 1 << 23        # above every pid_max


class Finding:
    """One run: status, text, and its lines by check."""

    def __init__(self, *arguments, cwd=None, **env):
        p = subprocess.run([DOCTOR, "-w", "60", *map(str, arguments)], capture_output=True, text=True, timeout=SLOW, cwd=cwd,
                           stdin=subprocess.DEVNULL, errors="replace", env={**os.environ, **env})
        self.status, self.text = p.returncode, p.stdout + p.stderr
        check("Traceback" not in self.text and self.status in (0, 1, 2), f"status {self.status}\n{self.text}")

    def expect(self, status, *words):
        check(self.status == status, f"status {self.status}, not {status}:\n{self.text}")
        for w in words:
            check(w in self.text, f"{w} is not in\n{self.text}")
        return self


@contextlib.contextmanager
def program(path):
    """Daemons of this program instead of the one that was built."""
    Daemon.program = path
    try:
        yield
    finally:
        Daemon.program = VARVE


@contextlib.contextmanager
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-doctor-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def hanging(t, commands, **options):
    """A host whose reads do not end."""
    t.add_malloc("M1")
    t.call("bdev_error_create", base_name="M1")
    t.add_ns("EE_M1")
    with Host(t, "-w", "randread", "-q", str(commands), "-t", "3600", nsid=1, hostnqn=HOSTNQN + ":hung", **options) as h:
        wait_io(t, [h])
        t.call("bdev_error_inject_error", name="EE_M1", io_type="read", error_type="pending", num=1000)
        wait_for(lambda: sum(r["state"] == "BDEV" and r["age_us"] > 2000000 for r in t.call("nvmf_get_inflight")), "reads to hang", SLOW)
        yield h


def test_a_healthy_daemon_is_healthy():
    with Daemon("-e", "rpc") as d:
        f = Finding("-p", d.pid, "-d", d.folder).expect(0, "Nothing was found.", "ok     RPC", "RUNNING", "ok     reactors", "ok     I/O", "ok     states",
                                                         "ok     libraries", "as asked for by --no-huge", "ok     USDT", "rpc recorded")
        check("FOUND" not in f.text, f.text)
        result = json.loads(Finding("-p", d.pid, "-d", d.folder, "-j").text)
        check(result["status"] == 0 and {"check", "result", "text"} <= set(result["checks"][0]), result)


def test_a_program_that_does_not_run_is_said_so():
    with folder() as f:
        Finding("-n", "varve-none", "-d", f, cwd=f).expect(1, "no process runs a program named varve-none", "ok     core", "hugepages")
        Finding("-p", NO_PID, "-d", f, cwd=f).expect(1, f"process {NO_PID} does not run")


def test_a_process_that_is_dying_is_not_well():
    with Daemon("-e", "rpc") as d:
        d.process.kill()
        wait_for(lambda: pathlib.Path(f"/proc/{d.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z", "it to be dead, with a status that nobody has fetched")
        f = Finding("-p", d.pid, "-d", d.folder, cwd=d.folder).expect(1, f"process {d.pid} does not run")
        check("ok     process" not in f.text and "ok     RPC" not in f.text, f.text)
    sys.path.insert(0, str(TOP / "tools/varve-doctor"))
    from varve_doctor import live, report
    for dumping, healthy in (("0", True), ("1", False)):
        dying = types.SimpleNamespace(pid=1, age_s=lambda: 1.0, field=lambda name, dumping=dumping: {"State": "D (disk sleep)", "CoreDumping": dumping}.get(name, ""))
        r = report.Report()
        check(live.check_process(r, dying) is healthy, r.lines)
        check(healthy or "writes its core" in r.lines[0]["text"], r.lines)


def test_the_only_running_one_is_the_default_and_several_are_a_question():
    with folder() as f:
        name = f"vdoc{os.getpid() % 100000}"
        shutil.copy(VARVE, f / name)
        with program(f / name), Daemon() as a:
            Finding("-n", name, "-d", f).expect(0, f"process {a.pid}")
            with Daemon() as b:
                Finding("-n", name, "-d", f).expect(2, "several processes run", f"-p {a.pid}: {a.path}: ", f"-p {b.pid}: {b.path}: ", "-p PID", f"-r {b.path}")


def check_old_file(trace, old):
    """The trace of a writer that did not note how the signal came."""
    data = bytearray(trace.read_bytes())
    at = struct.unpack_from("<Q", data, 16 + 8 * SECTION_INFO)[0] + INFO_CRASH_FLAGS
    check(any(data[at:at + 32]), "nothing is there to remove")
    data[at:at + 32] = bytes(32)
    old.write_bytes(data)
    Finding("-t", old).expect(1, "crashed: SIGSEGV, sent or at address 0x0 (the file does not say which)")


def test_a_fault_is_told_from_a_signal_that_was_sent():
    """A call of a function that is not there: the unwinder cannot even begin."""
    with Daemon("-e", "rpc", "-s", "64") as d:
        subprocess.run(["gdb", "-nx", "-batch", "-p", str(d.pid), "-ex", "set $sp = $sp - 8", "-ex", "set *(long *)$sp = $pc",
                        "-ex", "set $pc = 0x10"], capture_output=True, timeout=SLOW)
        check(d.process.wait(SLOW) == -signal.SIGSEGV, d.log())
        log = d.log()
        check("crashed: SIGSEGV at address 0x10: not mapped" in log and "[0x10]" in log and f"varve-trace -f {d.trace_file}" in log, log)
        Finding("-t", d.trace_file).expect(1, "crashed: SIGSEGV at address 0x10: not mapped, in thread varve")
        text = subprocess.run([TRACE, "-f", d.trace_file, "-c", "0"], capture_output=True, text=True, timeout=SLOW).stdout
        check("Crashed: SIGSEGV at address 0x10: not mapped, in thread varve" in text, text[:600])


def test_a_crash_is_found_in_the_core_and_in_the_trace():
    with Daemon("-e", "rpc", "-s", "64") as d:
        sent = f"sent by process {os.getpid()} ({pathlib.Path('/proc/self/comm').read_text().strip()}), uid {os.getuid()}"
        d.process.send_signal(signal.SIGSEGV)
        d.process.wait(SLOW)
        shm = d.folder / "shm"
        shm.mkdir()
        copy = shm / d.trace_file.name
        shutil.copy(d.trace_file, copy)
        f = Finding("-p", d.pid, "-d", shm, cwd=d.folder).expect(1, "does not run", f"crashed: SIGSEGV {sent}", f"varve-trace -f {copy}")
        Finding("-t", copy).expect(1, f"crashed: SIGSEGV {sent}", "in thread varve", "FOUND  writer")
        check_old_file(copy, shm / "old_trace")
        cores = list(d.folder.glob("core*"))
        if not cores:
            check(pathlib.Path("/proc/sys/kernel/core_pattern").read_text()[0] in "|/" or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0,
                  "there is no core")
            raise Skip("core_pattern sends cores elsewhere, or none may be written: only the trace was looked at")
        f.expect(1, "FOUND  core", f"is of process {d.pid}", "SIGSEGV", f"varve-doctor -c {cores[0]}")
        Finding("-c", cores[0]).expect(1, "got SIGSEGV", "ok     libraries", f"FOUND  memory       it crashed: SIGSEGV {sent}", "all lists are whole")
        Finding("-c", cores[0], "-e", BUILD / "bin" / "varve-perf").expect(1, "is of build", "the files here are not those of the process")
        stripped = d.folder / "stripped"
        subprocess.run(["strip", "-s", "-o", stripped, VARVE], check=True)
        Finding("-c", cores[0], "-e", stripped).expect(1, "has no debug information", "-e PROGRAM")
        cut = d.folder / "cut"
        shutil.copy(cores[0], cut)
        os.truncate(cut, cut.stat().st_size // 2)
        Finding("-c", cut).expect(1, "FOUND  core         it is cut short")


THREADS, BDEVS = "'thread/thread.c'::threads.tqh_first", "'bdev/bdev.c'::bdevs.tqh_first"
# (what, where, what comes there: an expression or bytes, the reason that is to be given)
CORE_DAMAGE = [
    ("a list that loops", f"&{THREADS}->link.tqe_next", THREADS, "threads: after 1 elements the list comes back to"),
    ("a wild pointer", f"&{BDEVS}->bdev", b"A" * 8, "a bdev is the wild pointer 0x4141414141414141"),
    ("a name that is nowhere", f"&{BDEVS}->bdev->name", struct.pack("<Q", 8), "bytes at 0x8 are not in this process or core"),
    ("an unmapped pointer", f"&{THREADS}->channels.tqh_first", struct.pack("<Q", 0x7f00dead0000), "channels of thread control: element 1: "),
    ("another size of the recorder", "&trace_state.map.size", struct.pack("<Q", 1 << 20), "the recorder's memory does not begin with"),
]


def test_a_core_that_is_well_and_what_is_wrong_in_a_damaged_one():
    with Daemon("-e", "rpc") as d:
        d.call("bdev_malloc_create", name="M0", block_size=512, num_blocks=2048)
        core = Core(d)
        Finding("-c", core.path).expect(0, "was alive when the core was taken", "ok     libraries", "all lists are whole", "Nothing was found")
        values = core.evaluate([e for _, where, what, _ in CORE_DAMAGE for e in (where, what) if isinstance(e, str)])
        for name, where, what, why in CORE_DAMAGE:
            with core.overwritten(values[where], struct.pack("<Q", values[what]) if isinstance(what, str) else what):
                check(why in (f := Finding("-c", core.path).expect(1, "FOUND  memory")).text, f"{name}: {f.text}")
        Finding("-c", core.path).expect(0, "Nothing was found")
        damaged = d.folder / "damaged"
        build = bytes.fromhex(re.search("[0-9a-f]{40}", subprocess.run([VARVE, "--version"], capture_output=True, text=True).stdout)[0])
        damaged.write_bytes(core.path.read_bytes().replace(build, build[::-1]))
        Finding("-c", damaged).expect(1, "FOUND  libraries", f"{VARVE} is of build {build.hex()}, the core of {build[::-1].hex()}")
        check_cores_that_are_none(d.folder, core.path)


def check_cores_that_are_none(where, core):
    """Cut, scrambled, and no core at all."""
    rng, whole, head = random.Random(7), core.stat().st_size, open(core, "rb").read(1 << 20)
    damaged = where / "damaged"
    for n in (0, 63, 64, 500, 4096, 65536, whole // 2):        # what gcore writes last are the notes
        shutil.copy(core, damaged)
        os.truncate(damaged, n)
        Finding("-c", damaged, "-e", VARVE).expect(2, "?      core", "is truncated: ", f"it has {n}\n", "Nothing could be looked at")
    for i in range(8):          # whatever may be told of these, it is told: Finding looks after that
        data = bytearray(head)
        for _ in range(1 << i):
            data[rng.randrange(4096)] = rng.randrange(256)
        damaged.write_bytes(data)
        Finding("-c", damaged, "-e", VARVE)
    for name, data in (("empty", b""), ("text", b"not a core\n" * 100), ("random", rng.randbytes(100000))):
        (where / name).write_bytes(data)
        Finding("-c", where / name).expect(2, "?      core")
    Finding("-c", where / "none").expect(2, "No such file")
    Finding("-c", VARVE).expect(2, "is no core file")
    Finding("-c", where).expect(2)


def trace_places(data):
    """Where things are in a trace file: sections, the first history with an event, and that event."""
    sections = struct.unpack_from("<7Q", data, 16)
    places = dict(zip(("main", "owner", "mask", "owner_type", "object", "tpoint", "lcore"), sections))
    places["history"], = struct.unpack_from("<Q", data, places["lcore"] + 128)
    for i in range(struct.unpack_from("<H", data, places["lcore"])[0]):
        at, = struct.unpack_from("<Q", data, places["lcore"] + 128 + 8 * i)
        _, ids, written = struct.unpack_from("<QQQ", data, at + 24) if at else (0, 0, 0)
        if written:
            places["event"] = at + 48 + 8 * ids
            return places
    raise AssertionError("no event was recorded")


# (what, where and how far from there, what comes there, status, the reason that is to be given)
TRACE_DAMAGE = [
    ("no clock", "main", 0, bytes(8), 2, "tsc_rate is 0, must be the ticks per second"),
    ("no sections", None, 8, bytes(2), 2, "num_sections is 0, must be at least 7"),
    ("no definitions", "tpoint", 0, bytes(2), 2, "section TPOINT is missing, empty or cut off"),
    ("rings elsewhere", None, 16 + 8 * 6, b"\xff" * 8, 2, "section LCORE_OFFSETS is missing, empty or cut off"),
    ("a ring of three", "history", 24, struct.pack("<Q", 3), 1, "ring of lcore 0: num_entries is 3, must be a power of two"),
    ("a file that was larger", None, 0, struct.pack("<Q", 1 << 50), 1, "the file is truncated: it has "),
    ("an event that nobody knows", "event", 8, struct.pack("<H", 1279), 1, "1 entries of it are damaged"),
    ("an event of another time", "event", 0, b"\xff" * 8, 1, "entries of it are damaged"),
]


def test_a_trace_that_is_well_and_what_is_wrong_in_a_damaged_one():
    with Daemon("-e", "rpc") as d:
        d.stop()
        whole = d.trace_file.read_bytes()
        Finding("-t", d.trace_file).expect(0, ": stopped", "ok     file         whole", "Nothing was found")
        f, places = d.folder / "trace", {None: 0, **trace_places(whole)}
        for _, where, further, what, status, why in TRACE_DAMAGE:
            at = places[where] + further
            f.write_bytes(whole[:at] + what + whole[at + len(what):])
            Finding("-t", f).expect(status, why)
        for n, status, why in ((0, 2, "not a trace file: it has 0 bytes"), (15, 2, "not a trace file: it has 15 bytes"), (16, 2, "ends within its section table"),
                               (4096, 2, "section TPOINT is missing"), (len(whole) // 2, 2, "section LCORE_OFFSETS is missing"),
                               (len(whole) - 1, 1, f"it has {len(whole) - 1} bytes of {len(whole)}")):
            f.write_bytes(whole[:n])
            Finding("-t", f).expect(status, why)
        rng = random.Random(9)
        for i in range(10):
            data = bytearray(whole)
            for _ in range(1 << i):
                data[rng.randrange(len(data) if i % 2 else 4096)] = rng.randrange(256)
            f.write_bytes(data)
            Finding("-t", f)
        for data in (b"text\n", rng.randbytes(100000)):
            f.write_bytes(data)
            Finding("-t", f).expect(2, "?      trace")
        Finding("-t", d.folder / "none").expect(2, "No such file")
        f = d.folder / "tr\u00e4ce"  # as a host may be called, on a terminal that has no such letter
        f.write_bytes(whole)
        Finding("-t", f, PYTHONIOENCODING="ascii").expect(0, "tr\\xe4ce", "ok     file         whole")


def test_a_killed_writer_is_told_from_one_that_ended():
    with Daemon("-e", "rpc") as d:
        d.stop(signal.SIGKILL)
        Finding("-t", d.trace_file).expect(1, "ended without a word")


PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


@contextlib.contextmanager
def thread_stopped(tid):
    """One thread of a process stands still."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    check(libc.ptrace(PTRACE_SEIZE, tid, None, None) == 0, f"ptrace: {os.strerror(ctypes.get_errno())}")
    check(libc.ptrace(PTRACE_INTERRUPT, tid, None, None) == 0, f"ptrace: {os.strerror(ctypes.get_errno())}")
    wait_for(lambda: pathlib.Path(f"/proc/{tid}/stat").read_text().rsplit(") ")[1][0] == "t", "the thread to stop")
    try:
        yield
    finally:
        os.waitpid(tid, 0x40000000)     # __WALL
        libc.ptrace(PTRACE_DETACH, tid, None, None)


def test_an_rpc_socket_that_does_not_answer():
    with Daemon() as d:
        tid = d.call("framework_get_reactors")["reactors"][0]["tid"]
        with thread_stopped(tid):
            f = Finding("-p", d.pid, "-d", d.folder).expect(1, f"reactor_0 ({tid}) is stopped, traced by process {os.getpid()}", "ok     RPC")
            client = d.client()
            client.send({"jsonrpc": "2.0", "id": 1, "method": "framework_get_reactors"})
            wait_for(lambda: pathlib.Path(f"/proc/{d.pid}/syscall").read_text().split()[0] == "202", "the control thread to wait")
            f = Finding("-p", d.pid, "-d", d.folder, "-w", "2")
            f.expect(1, "FOUND  RPC", "no answer within 2 s", "in the system call futex", f"gdb -p {d.pid}")
        check("result" in client.receive(), "it goes on")
        client.close()
        wait_for(lambda: Finding("-p", d.pid, "-d", d.folder).status == 0, "it to be healthy again", SLOW)


def test_a_stopped_process():
    with Daemon() as d:
        d.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: pathlib.Path(f"/proc/{d.pid}/stat").read_text().rsplit(") ")[1][0] == "T", "it to stop")
        Finding("-p", d.pid, "-d", d.folder, "-w", "1").expect(1, "is stopped, by a signal", f"kill -CONT {d.pid}")
        d.process.send_signal(signal.SIGCONT)


def test_a_reactor_that_a_poller_pins():
    """The poller's function becomes one that always says that it found work."""
    with Target() as t, contextlib.ExitStack() as stack:
        t.add_malloc("M0")
        t.add_ns("M0")
        wait_io(t, [stack.enter_context(Host(t, "-w", "randread", "-q", "2", "-t", "3600", nsid=1))])
        name = t.call("thread_get_stats")["threads"][1]["name"]
        p = subprocess.run(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-p", str(t.pid),
                            "-ex", "set var $t = 'thread/thread.c'::threads.tqh_first->link.tqe_next",
                            "-ex", "set var $t->active.tqh_first->fn = (int (*)(void *))bdev_io_size", "-ex", "echo pinned"],
                           capture_output=True, text=True, timeout=SLOW, stdin=subprocess.DEVNULL)
        check("pinned" in p.stdout and p.returncode == 0, p.stdout + p.stderr)
        t.call("thread_get_stats")      # wakes it
        Finding("-p", t.pid, "-d", t.folder).expect(1, "FOUND  reactors", "poller nvmf_rdma of thread " + name, "perf top -t")


def test_a_transition_that_must_not_be():
    """Counted in a live process by a debugger: there is no other way to have one."""
    with Daemon("--metrics", "127.0.0.1:0") as d:
        head = "'util/state_machine.c'::machines.slh_first"
        p = subprocess.run(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", "-p", str(d.pid),
                            "-ex", f"set var {head}->violations = 3", "-ex", f"printf \"<%s>\\n\", {head}->name"],
                           capture_output=True, text=True, timeout=SLOW, stdin=subprocess.DEVNULL)
        check(p.returncode == 0 and re.search("<.+>", p.stdout), p.stdout + p.stderr)
        name = re.search("<(.+)>", p.stdout)[1]
        counts = {m["name"]: m["violations"] for m in d.call("framework_get_state_machines")}
        check({n: v for n, v in counts.items() if v} == {name: 3}, counts)
        with urllib.request.urlopen(f"http://{d.call('metrics_get_status')['address']}/metrics", timeout=SLOW) as r:
            check(f'varve_state_violations_total{{machine="{name}"}} 3\n' in r.read().decode(), "the metric")
        Finding("-p", d.pid, "-d", d.folder).expect(1, f"FOUND  states       {name} went 3 times", "must not follow")
        Finding("-c", Core(d).path).expect(1, f"FOUND  memory       {name} went 3 times", "must not follow")


def find_what_does_not_end(trtype):
    with Target("-e", f"rpc,bdev,nvmf_{trtype.lower()}", "--rpc-deadline", "0", trtype=trtype) as t, hanging(t, 2):
        f = Finding("-p", t.pid, "-d", t.folder, "-a", "1")
        f.expect(1, "FOUND  I/O", "read of host " + HOSTNQN + ":hung", "BDEV, waits for module", "and 1 more like it",
                 "those commands are with bdev EE_M1", "varve_inflight")
        check("RPC calls    0 outstanding" in f.text, f.text)
        # What it proposes works where gdb trusts no folder.
        line = re.search(r"(gdb -p .*-ex varve_inflight .*)$", f.text, re.M)
        check(line, f.text)
        p = subprocess.run(line[1].replace("gdb -p", "gdb -nx -iex 'set debuginfod enabled off' -iex 'set auto-load no' -p", 1), shell=True,
                           capture_output=True, text=True, timeout=SLOW, stdin=subprocess.DEVNULL)
        check("Outstanding: " in p.stdout and "Events: " in p.stdout, f"{line[1]}: {p.stdout[-500:]}{p.stderr[-500:]}")
        client = t.client()
        client.send({"jsonrpc": "2.0", "id": 1, "method": "nvmf_subsystem_remove_ns", "params": {"nqn": NQN, "nsid": 1}})
        wait_for(lambda: any(c["age_us"] > 1500000 for c in t.call("rpc_get_calls")), "the call to hang", SLOW)
        Finding("-p", t.pid, "-d", t.folder, "-a", "1").expect(1, "FOUND  RPC calls", "nvmf_subsystem_remove_ns has not been answered")
        client.close()
        t.stop(signal.SIGKILL)
        Finding("-t", t.trace_file, "-a", "1").expect(1, "FOUND  NVMe-oF commands", f"last seen in {trtype}_REQ_EXECUTING", "FOUND  bdev I/O",
                                                      "FOUND  RPC calls", "nvmf_subsystem_remove_ns", "ended without a word", "--life r")


def test_io_and_an_rpc_that_do_not_end():
    find_what_does_not_end("RDMA")


def test_io_and_an_rpc_that_do_not_end_over_tcp():
    find_what_does_not_end("TCP")


def find_exhausted_buffers(trtype):
    with Target(num_shared_buffers=64, trtype=trtype) as t, hanging(t, 120):
        wait_for(lambda: any(r["waits_for"] == "data buffer" for r in t.call("nvmf_get_inflight")), "a command without a buffer", SLOW)
        Finding("-p", t.pid, "-d", t.folder, "-a", "1").expect(1, "FOUND  buffers", "commands wait for data buffers", "num_shared_buffers")


def test_buffers_that_are_exhausted():
    find_exhausted_buffers("RDMA")


def test_buffers_that_are_exhausted_over_tcp():
    find_exhausted_buffers("TCP")


def connected(path, process):
    """A client, or None as long as nobody listens."""
    check(process.poll() is None, "varve ended")
    try:
        return Client(path)
    except OSError:
        return None


def test_stores():
    """What is said of stores, also of an older varve, which tells of no reservations."""
    sys.path.insert(0, str(TOP / "tools" / "varve-doctor"))
    from varve_doctor.report import Report
    from varve_doctor.rpc import BadAnswer
    from varve_doctor.work import check_stores
    class Answers:
        def __init__(self, store):
            self.store = store
        def call(self, method):
            return ["bdev_lvol_get_lvstores"] if method == "rpc_get_methods" else [self.store]
    def said(**members):
        r = Report()
        check_stores(r, Answers({"name": "s", "base_bdev": "B", "total_data_clusters": 9, "free_clusters": 4, "cluster_size": 1 << 20, "space_reached": 0} | members))
        return [(line["result"], line["text"]) for line in r.lines]
    check([result for result, _ in said()] == ["ok"], said())
    full = "it is full: first writes to thin volumes fail"
    for members, ends in (({}, full), ({"reserved_clusters": 0}, full), ({"reserved_clusters": 4, "reserved_missing_clusters": 0}, full + ", but for what is reserved")):
        lines = said(space_reached=100, **members)
        check([result for result, _ in lines] == ["found"] and lines[0][1].endswith(ends), lines)
        check(("4 reserved for volumes" in lines[0][1]) == (members.get("reserved_clusters") == 4), lines)
    lines = said(reserved_clusters=6, reserved_missing_clusters=2)
    check([result for result, _ in lines] == ["found"] and "2 of the reserved ones are not there" in lines[0][1], lines)
    check([result for result, _ in said(md_pages=9, free_md_pages=4, reserved_md_pages=3)] == ["ok"], said())
    for members, ends in (({"free_md_pages": 0, "reserved_md_pages": 0}, "0 of 9 metadata pages are free, and volumes reserve 0: "),
                          ({"free_md_pages": 4, "reserved_md_pages": 4}, "4 of 9 metadata pages are free, and volumes reserve 4: "),
                          ({"free_md_pages": 2, "reserved_md_pages": 5, "reserved_missing_md_pages": 3}, "reserve 5, and 3 of these are not there: another program, or an older varve, has filled the store: ")):
        lines = said(md_pages=9, **members)
        check([result for result, _ in lines] == ["found"] and ends in lines[0][1], lines)
    for name in ("reserved_clusters", "reserved_missing_clusters", "md_pages"):
        with contextlib.suppress(BadAnswer):
            check(False, said(space_reached=100, **{name: "1"}))


def test_rekeys():
    """What is said of crypto bdevs that get another key."""
    sys.path.insert(0, str(TOP / "tools" / "varve-doctor"))
    from varve_doctor.report import Report
    from varve_doctor.work import check_rekeys
    class Answers:
        def __init__(self, rekeys):
            self.bdevs = [{"name": f"C{i}", "driver_specific": {"crypto": {"key_name": "old"} | r}} for i, r in enumerate(rekeys)]
        def call(self, method):
            return ["bdev_crypto_rekey"] if method == "rpc_get_methods" else [{"name": "M", "driver_specific": {}}, *self.bdevs]
    def said(*rekeys):
        r = Report()
        check_rekeys(r, Answers(rekeys))
        return [(line["result"], line["text"], line.get("next")) for line in r.lines]
    def rekey(state, **members):
        return {"rekey": {"state": state, "key_name": "new", "journal_bdev_name": "J", "position_blocks": 3, "num_blocks": 9} | members}
    check(said({}, {}) == [], said({}))
    check([line[0] for line in said(rekey("running"), {})] == ["ok"], said(rekey("running")))
    lines = said(rekey("running"), rekey("stopped"), rekey("failed", error="the base cannot be written"))
    check([line[0] for line in lines] == ["found", "found"], lines)
    check("bdev C1 has been stopped at block 3 of 9" in lines[0][1] and "bdev C2 has failed at block 3 of 9: the base cannot be written" in lines[1][1], lines)
    check(len(said(*[rekey("stopped")] * 7)) == 6 and said(*[rekey("stopped")] * 7)[5][1].startswith("and 2 more"), said(*[rekey("stopped")] * 7))


def test_integrity():
    sys.path.insert(0, str(TOP / "tools" / "varve-doctor"))
    from varve_doctor.report import Report
    from varve_doctor.rpc import BadAnswer
    from varve_doctor.work import check_integrity
    class Answers:
        def __init__(self, bdevs):
            self.bdevs = bdevs
        def call(self, method):
            return ["bdev_integrity_get_bdevs"] if method == "rpc_get_methods" else self.bdevs
    def said(n=1, **members):
        r = Report()
        one = {"name": "I", "base_bdev_name": "B", "read_only": False, "errors": 0, "checksum_pages_wrong": 0}
        check_integrity(r, Answers([one | members] * n))
        return [(line["result"], line["text"]) for line in r.lines]
    check(said(0) == [] and [result for result, _ in said()] == ["ok"], said())
    for members, words in (({"read_only": True}, "is read-only"), ({"errors": 3}, "3 reads have found wrong data"), ({"checksum_pages_wrong": 2}, "2 pages of checksums were wrong")):
        lines = said(**members)
        check([result for result, _ in lines] == ["found"] and words in lines[0][1] and "bdev I on bdev B" in lines[0][1], lines)
    check([text for _, text in said(7, errors=1)][-1] == "and 2 more", said(7, errors=1))
    with contextlib.suppress(BadAnswer):
        check(False, said(errors="1"))


def test_too_few_hugepages():
    sys.path.insert(0, str(TOP / "tools" / "varve-doctor"))
    from varve_doctor.environment import judge_hugepages
    from varve_doctor.report import Report
    for asked_off, used, result in ((True, 0, "ok"), (False, 65536, "ok"), (False, 0, "found")):
        r = Report()
        judge_hugepages(r, asked_off, used, 512, [(2 << 20, 4, 4)])
        check(r.lines[0]["result"] == result and ("4 of 4 free" in r.lines[0]["text"] or asked_off), r.lines)
    with folder() as f:
        with open(f / "log", "wb") as log:
            p = subprocess.Popen([VARVE, "--no-pci", "-r", f / "sock", "-s", "128"], cwd=f, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            with contextlib.closing(wait_for(lambda: connected(f / "sock", p), "it to run", SLOW)) as c:
                c.call("framework_wait_init")
                huge = c.call("appliance_get_state")["hugepages"]
            if huge:
                Finding("-p", p.pid, "-d", f).expect(0, "MB in use")
            else:
                Finding("-p", p.pid, "-d", f).expect(1, "FOUND  hugepages", "it asks for 128 MB", "scripts/setup.sh hugepages 128")
        finally:
            p.terminate()
            p.wait(SLOW)
            pathlib.Path(f"/dev/shm/varve_trace.pid{p.pid}").unlink(missing_ok=True)


def test_libraries_that_were_replaced():
    with folder() as f:
        name = f / "varve-upgraded"
        shutil.copy(VARVE, name)
        with program(name), Daemon() as d:
            Finding("-p", d.pid, "-d", d.folder).expect(0, "ok     libraries")
            name.unlink()
            shutil.copy(BUILD / "bin" / "varve-perf", name)
            Finding("-p", d.pid, "-d", d.folder).expect(1, "FOUND  libraries", f"{name} (removed or replaced)", "restart it")


def test_a_program_without_probes():
    with folder() as f:
        name = f / "varve-plain"
        subprocess.run(["objcopy", "--remove-section=.note.stapsdt", VARVE, name], check=True, capture_output=True)
        with program(name), Daemon() as d:
            Finding("-p", d.pid, "-d", d.folder).expect(1, "FOUND  USDT", "systemtap-sdt-dev")


def test_files_of_dead_processes_that_pile_up():
    with folder() as f, Daemon() as d:
        for i in range(15):
            (f / f"varve_trace.pid{NO_PID + i}").write_bytes(bytes(4096))
        (f / f"varve_trace.pid{d.pid}").write_bytes(bytes(4096))        # one that lives does not count
        Finding("-p", d.pid, "-d", f).expect(0, "15 files of dead processes")
        (f / f"spdk_trace.pid{NO_PID}").write_bytes(bytes(4096))
        Finding("-p", d.pid, "-d", f).expect(1, "16 files of dead processes", f"varve-trace --remove-dead -d {f}")
        check(len(list(f.iterdir())) == 17, "it removed something")


def test_answers_that_make_no_sense():
    with Daemon() as d:
        for lie in [*LIES, None]:
            with Liar(d.folder, lie) as liar:
                f = Finding("-p", d.pid, "-d", d.folder, "-r", liar.path, "-w", "2")
                check(f.status in (0, 1) and "\x1b" not in f.text, f"{lie!r:.60}: {f.text}")
                check(f.status == 1 or "?  " in f.text, f"{lie!r:.60} passes for healthy:\n{f.text}")
        Finding("-p", d.pid, "-d", d.folder, "-r", d.folder / "none").expect(1, "cannot connect")
        check(Finding("-p", d.pid, "-d", d.folder).status == 0, "the daemon itself is healthy")


def test_wrong_usage():
    for arguments in (["-p", "x"], ["-p", "0"], ["-a", "0"], ["-a", "nan"], ["--nosuch"], ["extra"], ["-c", "a", "-t", "b"], ["-p"]):
        Finding(*arguments).expect(2, "usage:")
    for option in ("-c", "-t"):  # from a variable that is not set: not what runs
        f = Finding(option, "")
        check(f.status == 2 and "process" not in f.text, f.text)
    Finding("-h").expect(0, "exit status")


if __name__ == "__main__":
    main(sys.modules[__name__])
