# SPDX-License-Identifier: BSD-3-Clause
"""varve beside what others have, in turns: a table of medians, with the least and the greatest value, for a page or a report.

    recorder      an event with four arguments: varve's recorder, DPDK's rte_trace, LTTng-UST (Debian: liblttng-ust-dev, lttng-tools)
    files         4 KiB random reads with io_uring: varve-perf, fio (Debian: fio)
    encryption    AES-XTS of 4 KiB: a crypto bdev over a null bdev, OpenSSL alone in the same program
    targets       reads of 4 KiB and of 128 KiB over NVMe/TCP, and over NVMe/RDMA with softverbs, by the same host (varve-perf): varve, and the
                  target of $VARVE_PEER

$VARVE_PEER is the folder of a built tree whose build/bin/nvmf_tgt speaks the same JSON-RPC. What is not there is named, and left out. CPU time per
I/O is that of the target's reactors.

A figure is the median of all turns, with the least and the greatest; `ratio` is the median of the turns' own ratios, above 1 where varve is better.
Wants a quiet machine: the last lines say how busy it was.

Arguments name parts; without any it does all. --smoke: each figure once, of a moment."""
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "systest"), str(TOP / "bench")]
import uring  # noqa: E402
from appliance_lib import Client, Failure, RpcError, check, wait_for  # noqa: E402
from nvmf_lib import ADDRESS, PORT, preload  # noqa: E402

BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build"))
PEER = os.environ.get("VARVE_PEER")
SMOKE = "--smoke" in sys.argv[1:]
TURNS, WINDOW = (1, 0.1) if SMOKE else (5, 1)      # WINDOW: seconds of a measurement of CPU time
CPUS = sorted(os.sched_getaffinity(0))
NQN = "nqn.2026-11.io.varve:compare"
LIMIT = 120


class Table:
    def __init__(self):
        self.rows, self.absent = [], []

    def leave_out(self, what, why):
        self.absent.append(f"{what}: {why}")

    def add(self, what, unit, ours, peer, theirs, less_is_better):
        """ours, theirs: a value for each turn."""
        ratios = [t / o if less_is_better else o / t for o, t in zip(ours, theirs)]
        self.rows.append((what, shown(ours, unit), peer, shown(theirs, unit), f"{statistics.median(ratios):.2f}"))

    def print(self):
        print("| what | varve | beside | its figure | ratio |\n| --- | --- | --- | --- | --- |")
        for row in self.rows:
            print("| " + " | ".join(row) + " |")
        for line in self.absent:
            print(f"\nLeft out: {line}.")


def shown(values, unit):
    """The median, and from where to where the values are."""
    digits = 0 if min(values) >= 1000 else 1 if min(values) >= 10 else 2
    middle, least, most = (f"{v:.{digits}f}" for v in (statistics.median(values), min(values), max(values)))
    return f"{middle} {unit}" if len(values) == 1 else f"{middle} {unit} ({least} to {most})"


# ---- The recorder ----

def lttng_session():
    """A session that keeps the newest events in memory, as our recorder does. Returns what ends it, or None and why there is none."""
    if shutil.which("lttng") is None:
        return None, "needs lttng-tools and liblttng-ust-dev"
    if subprocess.run(["pidof", "lttng-sessiond"], capture_output=True).returncode != 0:
        return None, "no lttng-sessiond runs (lttng-sessiond --daemonize)"
    for command in (("create", "varve-compare", "--snapshot"), ("enable-channel", "-u", "c", "--overwrite", "--subbuf-size=1M", "--num-subbuf=4"),
                    ("enable-event", "-u", "bench:*", "-c", "c"), ("start",)):
        run = subprocess.run(["lttng", *command], capture_output=True, text=True, timeout=LIMIT)
        if run.returncode != 0:
            subprocess.run(["lttng", "destroy", "varve-compare"], capture_output=True, timeout=LIMIT)
            return None, f"lttng {command[0]} said: {(run.stdout + run.stderr).strip()}"
    return lambda: subprocess.run(["lttng", "destroy", "varve-compare"], capture_output=True, timeout=LIMIT), None


def figures_of(command):
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT).stdout
    return {line.split()[0].split(".")[1]: float(line.split()[1]) for line in out.splitlines()}


def recorder(table):
    end, why = lttng_session()
    program = [BUILD / "bench" / "bench-trace_peers"]
    try:
        if end is not None and subprocess.run([*program, "--lttng"], capture_output=True, timeout=LIMIT).returncode != 0:
            why = "bench-trace_peers was built without liblttng-ust-dev, or its session does not record"
        turns = [figures_of([*program, *(["--lttng"] if why is None else [])]) for _ in range(TURNS)]
    finally:
        if end is not None:
            end()
    for name, peer in (("rte_trace_event_ns", "DPDK's rte_trace"), ("lttng_event_ns", "LTTng-UST")):
        if name in turns[0]:
            table.add("an event with four arguments", "ns", [t["varve_event_ns"] for t in turns], peer, [t[name] for t in turns], True)
    if why is not None:
        table.leave_out("LTTng-UST", why)


# ---- Files ----

def files(table):
    if shutil.which("fio") is None:
        table.leave_out("fio", "needs Debian's fio")
        return
    if SMOKE:
        uring.SECONDS, uring.MEGABYTES = "1", 32
    with uring.made_file() as path:
        for depth in uring.DEPTHS:
            turns = [(uring.varve(path, depth), uring.fio(path, depth)) for _ in range(TURNS)]
            table.add(f"4 KiB random reads of a file, q{depth}", "IOPS", [t[0] for t in turns], "fio, io_uring", [t[1] for t in turns], False)


# ---- Encryption ----

def encryption(table):
    turns = []
    for _ in range(TURNS):
        turns.append(figures_of([BUILD / "bench" / "bench-crypto"]))
    for operation in ("write", "read"):
        table.add(f"AES-XTS, 4 KiB {operation}s", "GB/s", [t[f"{operation}_4k_gbps"] for t in turns], "OpenSSL alone",
                  [t[f"evp_{operation}_4k_gbps"] for t in turns], False)


# ---- Targets ----

class Target:
    """A target with a RAM disk. Its command line and what is asked of it are the same for both."""

    def __init__(self, program, trtype):
        self.address = {"trtype": trtype, "adrfam": "IPv4", "traddr": "127.0.0.1" if trtype == "TCP" else ADDRESS, "trsvcid": str(PORT)}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-compare-"))
        self.socket = self.folder / "rpc.sock"
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen([program, "--no-huge", "-s", "1024", "-u", "-m", hex(1 << CPUS[0]), "-r", self.socket], stdout=log,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.folder,
                                            env={**os.environ, **(preload() if trtype == "RDMA" else {})})
        try:
            self.set_up(trtype)
        except BaseException:
            self.__exit__()
            raise

    def set_up(self, trtype):
        client = self.client = wait_for(self.connect, "the RPC socket")
        client.call("framework_wait_init")
        client.call("nvmf_create_transport", trtype=trtype)
        client.call("bdev_malloc_create", name="M0", block_size=4096, num_blocks=16384)
        client.call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True, serial_number="COMPARE")
        client.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "M0"})
        client.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=self.address)

    def connect(self):
        check(self.process.poll() is None, f"the target ended: {(self.folder / 'log').read_text(errors='replace')[-2000:]}")
        try:
            return Client(self.socket)
        except OSError:
            return None

    def cpu_ns(self):
        """Of all reactors."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks if (t / "comm").read_text().startswith("reactor"))

    def reads(self):
        """How many the RAM disk has ended."""
        return self.client.call("bdev_get_iostat", name="M0")["bdevs"][0]["num_read_ops"]

    def read(self, size, depth):
        """I/Os per second, and the CPU time of the target for each in ns: that of a moment in which I/O runs, for a target that polls takes it at any time."""
        where = " ".join(f"{key}:{value}" for key, value in self.address.items())
        before = self.reads()
        with subprocess.Popen([BUILD / "bin" / "varve-perf", "--json", "--quiet", "--busy", "-m", f"[{CPUS[-1]}]", "-w", "randread", "-o", str(size),
                               "-q", str(depth), "-t", str(LIMIT if SMOKE else 2 * WINDOW), "-r", f"{where} subnqn:{NQN}"], stdout=subprocess.PIPE,
                              env={**os.environ, **(preload() if self.address["trtype"] == "RDMA" else {})}) as perf:
            try:
                wait_for(lambda: self.reads() > before or perf.poll() is not None, "the first read")
                ops, cpu = self.reads(), self.cpu_ns()
                time.sleep(WINDOW)
                ops, cpu = self.reads() - ops, self.cpu_ns() - cpu
                if SMOKE:
                    perf.terminate()    # it says what it has measured
                out = perf.communicate(timeout=LIMIT)[0]
            except BaseException:
                perf.kill()     # leaving waits for it
                raise
        check(perf.returncode == 0 and ops > 0, f"varve-perf ended with {perf.returncode}; {ops} reads in {WINDOW} s")
        return json.loads(out)["read"]["iops"], cpu / ops

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        pathlib.Path(f"/dev/shm/varve_trace.pid{self.process.pid}").unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


SHAPES = ((4096, 1), (4096, 32), (4096, 128), (131072, 32))


def measured(program, trtype):
    with Target(program, trtype) as target:
        return {shape: target.read(*shape) for shape in SHAPES}


def targets(table):
    peer = pathlib.Path(PEER or "") / "build/bin/nvmf_tgt"
    if PEER is None or not os.access(peer, os.X_OK):
        table.leave_out("another target", f"{peer} is no program" if PEER else "VARVE_PEER names none")
        return
    for trtype in ("TCP", "RDMA"):
        try:
            turns = [{program: measured(program, trtype) for program in (BUILD / "bin" / "varve", peer)} for _ in range(TURNS)]
        except (Failure, RpcError, OSError, subprocess.SubprocessError) as e:
            table.leave_out(f"{peer.name} over {trtype}", " ".join(str(e).split())[:300])
            continue
        for size, depth in SHAPES:
            ours, theirs = ([t[program][size, depth] for t in turns] for program in (BUILD / "bin" / "varve", peer))
            what = f"NVMe/{trtype}, reads of {size >> 10} KiB, q{depth}"
            table.add(what, "IOPS", [o[0] for o in ours], peer.name, [t[0] for t in theirs], False)
            if depth > 1:
                table.add(f"{what}: CPU of the target", "ns per I/O", [o[1] for o in ours], peer.name, [t[1] for t in theirs], True)


# ---- The machine ----

def print_machine(load_before):
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    commit = subprocess.run(["git", "-C", TOP, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    print(f"\n{datetime.date.today()}, varve {commit or 'of unknown commit'}, {len(CPUS)} CPUs {model[1] if model else platform.machine()}, "
          f"Linux {platform.release()}, {TURNS} turns.\n"
          f"Load average before {load_before:.2f}, at the end {os.getloadavg()[0]:.2f}: {'a quiet machine' if load_before < 0.5 else 'A BUSY MACHINE'} at first.")


def main():
    load, table = os.getloadavg()[0], Table()
    parts = {part.__name__: part for part in (recorder, files, encryption, targets)}
    names = [a for a in sys.argv[1:] if a != "--smoke"] or list(parts)
    if not set(names) <= set(parts):
        sys.exit(f"bench compare: there are {', '.join(parts)} and --smoke, not {' '.join(names)}")
    try:
        for part in map(parts.get, names):
            print(f"{part.__name__} ...", file=sys.stderr, flush=True)
            part(table)
    finally:        # what was measured is printed, whatever fails later
        table.print()
        print_machine(load)


if __name__ == "__main__":
    main()
