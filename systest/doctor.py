#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""varve-doctor: each thing that it is to find is made to happen, on a daemon of its own; and what it reads may be anything."""
# needs: root gdb
# limit: 900
import contextlib
import ctypes
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, TOP, VARVE, Client, Daemon, check, main, wait_for
from liar_lib import LIES, Liar
from nvmf_lib import HOSTNQN, NQN, Host, Target, wait_io

DOCTOR = BUILD / "bin" / "varve-doctor"
SLOW = 300              # seconds that one run may take on a busy machine
NO_PID = 1 << 23        # above every pid_max


class Finding:
    """One run: status, text, and its lines by check."""

    def __init__(self, *arguments, cwd=None):
        p = subprocess.run([DOCTOR, "-w", "60", *map(str, arguments)], capture_output=True, text=True, timeout=SLOW, cwd=cwd,
                           stdin=subprocess.DEVNULL, errors="replace")
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
        f = Finding("-p", d.pid, "-d", d.folder).expect(0, "Nothing was found.", "ok     RPC", "RUNNING", "ok     reactors", "ok     I/O",
                                                         "ok     libraries", "as asked for by --no-huge", "ok     USDT", "rpc recorded")
        check("FOUND" not in f.text, f.text)
        result = json.loads(Finding("-p", d.pid, "-d", d.folder, "-j").text)
        check(result["status"] == 0 and {"check", "result", "text"} <= set(result["checks"][0]), result)


def test_a_program_that_does_not_run_is_said_so():
    with folder() as f:
        Finding("-n", "varve-none", "-d", f, cwd=f).expect(1, "no process runs a program named varve-none", "ok     core", "hugepages")
        Finding("-p", NO_PID, "-d", f, cwd=f).expect(1, f"process {NO_PID} does not run")


def test_the_only_running_one_is_the_default_and_several_are_a_question():
    with folder() as f:
        name = f"vdoc{os.getpid() % 100000}"
        shutil.copy(VARVE, f / name)
        with program(f / name), Daemon() as a:
            Finding("-n", name, "-d", f).expect(0, f"process {a.pid}")
            with Daemon() as b:
                Finding("-n", name, "-d", f).expect(2, "several processes run", str(a.pid), str(b.pid), "-p PID")


def test_a_crash_is_found_in_the_core_and_in_the_trace():
    with Daemon("-e", "rpc", "-s", "64") as d:
        d.process.send_signal(signal.SIGSEGV)
        d.process.wait(SLOW)
        shm = d.folder / "shm"
        shm.mkdir()
        copy = shm / d.trace_file.name
        shutil.copy(d.trace_file, copy)
        f = Finding("-p", d.pid, "-d", shm, cwd=d.folder).expect(1, "does not run", "crashed: SIGSEGV", f"varve-trace -f {copy}")
        Finding("-t", copy).expect(1, "crashed: SIGSEGV", "in thread varve", "FOUND  writer")
        cores = list(d.folder.glob("core*"))
        if not cores:
            check(pathlib.Path("/proc/sys/kernel/core_pattern").read_text()[0] in "|/" or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0,
                  "there is no core")
            return
        f.expect(1, "FOUND  core", f"is of process {d.pid}", "SIGSEGV", f"varve-doctor -c {cores[0]}")
        Finding("-c", cores[0]).expect(1, "got SIGSEGV", "ok     libraries", "FOUND  memory       it crashed: SIGSEGV", "all lists are whole")
        Finding("-c", cores[0], "-e", BUILD / "bin" / "varve-perf").expect(1, "is of build", "the files here are not those of the process")
        stripped = d.folder / "stripped"
        subprocess.run(["strip", "-s", "-o", stripped, VARVE], check=True)
        Finding("-c", cores[0], "-e", stripped).expect(1, "has no debug information", "-e PROGRAM")
        check_damaged_cores(d.folder, cores[0])


def check_damaged_cores(where, core):
    """Cut, scrambled, and no core at all."""
    rng, whole = random.Random(7), core.stat().st_size
    head = core.read_bytes()[:1 << 20]
    for n in (0, 1, 63, 64, 500, 4096, 65536, whole // 2, whole - 1):
        cut = where / "cut"
        shutil.copy(core, cut)
        os.truncate(cut, n)
        Finding("-c", cut, "-e", "/bin/true") if n < whole // 2 else Finding("-c", cut).expect(1, "it is cut short")
    for i in range(8):
        data = bytearray(head)
        for _ in range(1 << i):
            data[rng.randrange(4096)] = rng.randrange(256)
        (where / "scrambled").write_bytes(data)
        check(Finding("-c", where / "scrambled", "-e", "/bin/true").status != 0, "a scrambled core is healthy")
    for name, data in (("empty", b""), ("text", b"not a core\n" * 100), ("random", rng.randbytes(100000))):
        (where / name).write_bytes(data)
        Finding("-c", where / name).expect(2, "?      core")
    Finding("-c", where / "none").expect(2, "No such file")
    Finding("-c", VARVE).expect(2, "is no core file")
    Finding("-c", where).expect(2)


def test_damaged_traces_give_a_reason():
    rng = random.Random(9)
    with Daemon("-e", "rpc") as d:
        d.stop(signal.SIGKILL)
        whole = d.trace_file.read_bytes()
        Finding("-t", d.trace_file).expect(1, "ended without a word")
        f = d.folder / "trace"
        for n in (0, 1, 15, 16, 4096, 100000, len(whole) // 2, len(whole) - 1):
            f.write_bytes(whole[:n])
            check(Finding("-t", f).status != 0, f"{n} bytes of a trace are healthy")
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


def test_io_and_an_rpc_that_do_not_end():
    with Target("-e", "rpc,bdev,nvmf_rdma", "--rpc-deadline", "0") as t, hanging(t, 2):
        f = Finding("-p", t.pid, "-d", t.folder, "-a", "1")
        f.expect(1, "FOUND  I/O", "read of host " + HOSTNQN + ":hung", "BDEV, waits for module", "and 1 more like it",
                 "those commands are with bdev EE_M1", "varve_inflight")
        check("RPC calls    0 outstanding" in f.text, f.text)
        client = t.client()
        client.send({"jsonrpc": "2.0", "id": 1, "method": "nvmf_subsystem_remove_ns", "params": {"nqn": NQN, "nsid": 1}})
        wait_for(lambda: any(c["age_us"] > 1500000 for c in t.call("rpc_get_calls")), "the call to hang", SLOW)
        Finding("-p", t.pid, "-d", t.folder, "-a", "1").expect(1, "FOUND  RPC calls", "nvmf_subsystem_remove_ns has not been answered")
        client.close()
        t.stop(signal.SIGKILL)
        Finding("-t", t.trace_file, "-a", "1").expect(1, "FOUND  NVMe-oF commands", "last seen in RDMA_REQ_EXECUTING", "FOUND  bdev I/O",
                                                      "FOUND  RPC calls", "nvmf_subsystem_remove_ns", "ended without a word", "--life r")


def test_buffers_that_are_exhausted():
    with Target(num_shared_buffers=64) as t, hanging(t, 120):
        wait_for(lambda: any(r["waits_for"] == "data buffer" for r in t.call("nvmf_get_inflight")), "a command without a buffer", SLOW)
        Finding("-p", t.pid, "-d", t.folder, "-a", "1").expect(1, "FOUND  buffers", "commands wait for data buffers", "num_shared_buffers")


def connected(path, process):
    """A client, or None as long as nobody listens."""
    check(process.poll() is None, "varve ended")
    try:
        return Client(path)
    except OSError:
        return None


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
    Finding("-h").expect(0, "exit status")


if __name__ == "__main__":
    main(sys.modules[__name__])
