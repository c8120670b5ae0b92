# SPDX-License-Identifier: BSD-3-Clause
"""The target over softverbs (or the RDMA device of this machine, at the address in $VARVE_RDMA_ADDRESS): varve on the first core,
varve-perf on the last, 4 KiB random reads.

    nvmf_rdma.iops_qd128, iops_qd32     of a RAM disk
    nvmf_rdma.iops_q8, q16 ... q256     the same at each depth, one turn after the other
    nvmf_rdma.fair_ratio                two hosts at depth 128, a namespace each: IOPS of the slower one by those of the faster one
    nvmf_rdma.share_ns                  of the target's own code per I/O: what perf(1) says of cpu_ns; left out where perf cannot run
    nvmf_rdma.null_iops_qd128           of a null device
    nvmf_rdma.lat1_us                   median at depth 1, RAM disk
    nvmf_rdma.cpu_ns                    of the target's reactor while it was busy, per I/O (depth 128, RAM disk); time in which
                                        others had its CPU does not count
    nvmf_rdma.null_cpu_ns               the same, null device
    nvmf_rdma.iops_per_core             what a core of the target's would do if it were never idle: 1e9 / cpu_ns
    nvmf_rdma.verbs_ns                  what of it is verbs and moving data: cpu_ns less own_ns
and what bench-nvmf_rdma_own prints: own_ns and its kin."""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from appliance_lib import Daemon  # noqa: E402

BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build"))
ADDRESS = os.environ.get("VARVE_RDMA_ADDRESS", "")
PRELOAD = {} if ADDRESS else {"LD_PRELOAD": str(BUILD / "softverbs" / "libsoftverbs.so")}
NQN = "nqn.2026-11.io.varve:bench"
PORT = str(20000 + os.getpid() % 20000)
TURNS, SECONDS = 5, 2
DEPTHS = (8, 16, 32, 64, 128, 256)


def start_perf(nsid, depth, *args):
    return subprocess.Popen(
        [BUILD / "bin" / "varve-perf", "--json", "--quiet", "--busy", "-n", str(nsid), "-q", str(depth), "-t", str(SECONDS), *args,
         "-r", f"trtype:RDMA adrfam:IPv4 traddr:{ADDRESS or '127.0.0.1'} trsvcid:{PORT} subnqn:{NQN}"],
        stdout=subprocess.PIPE, env={**os.environ, **PRELOAD})


def ended(process):
    out, _ = process.communicate(timeout=60)
    if process.returncode != 0:
        sys.exit(f"bench nvmf_rdma: varve-perf ended with {process.returncode}")
    return json.loads(out)["read"]


def perf(nsid, depth):
    return ended(start_perf(nsid, depth))


def fair_ratio():
    """Of two hosts on RAM disks of their own."""
    hosts = [start_perf(nsid, 128, "--hostnqn", f"nqn.2026-11.io.varve:host{nsid}") for nsid in (1, 3)]
    try:
        iops = [ended(h)["iops"] for h in hosts]
    finally:
        for h in hosts:
            h.kill()
    return min(iops) / max(iops)


def own_share(daemon):
    """Of the samples of the daemon's reactor under load: the part in the program itself; None: perf does not run here."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        host = start_perf(1, 128)
        try:
            rc = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-p", str(daemon.pid), "-o", data, "--", "sleep", "1"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        except FileNotFoundError:
            rc = 127
        ended(host)
        if rc != 0:
            return None
        report = subprocess.run(["perf", "report", "-i", data, "--stdio", "-q", "--sort", "dso"], capture_output=True, text=True).stdout
    found = re.search(r"^\s*([0-9.]+)%\s+varve\s*$", report, re.M)
    return float(found.group(1)) / 100 if found else None


def busy_ns(daemon):
    stats = daemon.call("thread_get_stats")
    return sum(t["busy"] for t in stats["threads"] if t["name"] != "control") * 1e9 / stats["tick_rate"]


def on_cpu_ns(daemon):
    """Of the reactor, which polls and would be there always."""
    for task in pathlib.Path(f"/proc/{daemon.pid}/task").iterdir():
        if (task / "comm").read_text().startswith("reactor"):
            return int((task / "schedstat").read_text().split()[0])


def measured(daemon, nsid, depth):
    """The result of a run, and the target's CPU time per I/O."""
    busy, on_cpu, start = busy_ns(daemon), on_cpu_ns(daemon), time.monotonic_ns()
    result = perf(nsid, depth)
    had_it = (on_cpu_ns(daemon) - on_cpu) / (time.monotonic_ns() - start)
    return result, (busy_ns(daemon) - busy) * had_it / result["ios"]


def set_up(call):
    call("bdev_malloc_create", name="Ram", block_size=4096, num_blocks=16384)
    call("bdev_null_create", name="Null", block_size=4096, num_blocks=1 << 20)
    call("bdev_malloc_create", name="Ram2", block_size=4096, num_blocks=16384)
    call("nvmf_create_transport", trtype="RDMA", max_queue_depth=256)
    call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True)
    for name in ("Ram", "Null", "Ram2"):
        call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": name})
    call("nvmf_subsystem_add_listener", nqn=NQN, listen_address={
        "trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS or "127.0.0.1", "trsvcid": PORT})


def measure(daemon):
    """All variants in turns, so that the machine's noise hits all alike."""
    found = {name: [] for name in ("iops_qd128", "iops_qd32", "null_iops_qd128", "lat1_us", "cpu_ns", "null_cpu_ns",
                                  *(f"iops_q{q}" for q in DEPTHS), "fair_ratio", "share_ns")}
    for _ in range(TURNS):
        r, ns = measured(daemon, 1, 128)
        found["cpu_ns"].append(ns)
        found["iops_qd128"].append(r["iops"])
        found["iops_qd32"].append(perf(1, 32)["iops"])
        r, ns = measured(daemon, 2, 128)
        found["null_cpu_ns"].append(ns)
        found["null_iops_qd128"].append(r["iops"])
        found["lat1_us"].append(perf(1, 1)["latency_us"]["p50"])
        for q in DEPTHS:
            found[f"iops_q{q}"].append(perf(1, q)["iops"])
        found["fair_ratio"].append(fair_ratio())
        share = own_share(daemon)
        if share is not None:
            found["share_ns"].append(share * found["cpu_ns"][-1])
    if not found["share_ns"]:
        print("bench nvmf_rdma: perf(1) cannot record here: no share_ns", file=sys.stderr)
    return {name: statistics.median(values) for name, values in found.items() if values}


def unit_of(name):
    return "us" if name.endswith("us") else "ns" if name.endswith("ns") else "ratio" if name.endswith("ratio") else "IOPS"


def main():
    own = subprocess.run([BUILD / "bench" / "bench-nvmf_rdma_own"], stdout=subprocess.PIPE, check=True, text=True).stdout
    print(own, end="", flush=True)
    own_ns = next(float(line.split()[1]) for line in own.splitlines() if line.startswith("nvmf_rdma.own_ns "))
    with Daemon("--poll-mode", "busy", "-m", "[0]", env=PRELOAD) as daemon:
        set_up(daemon.call)
        result = measure(daemon)
    for name, value in result.items():
        print(f"nvmf_rdma.{name} {value:.3f} {unit_of(name)}")
    print(f"nvmf_rdma.iops_per_core {1e9 / result['cpu_ns']:.0f} IOPS")
    print(f"nvmf_rdma.verbs_ns {result['cpu_ns'] - own_ns:.3f} ns")


main()
