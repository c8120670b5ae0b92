# SPDX-License-Identifier: BSD-3-Clause
"""What looking costs: a target at full speed (varve on the first core, varve-perf on the last, 4 KiB reads of a null device, bdev and
nvmf_rdma recorded) while varve-trace runs beside it, as one would in production: niced, and not on the target's core. Each short run with
the tool is compared with the runs without it before and after; medians of all. On a machine where others compute too the figures are theirs.

    snapshot.cost_percent     throughput lost to `--summary`, 100 times in all, at most two a second
    snapshot.target_percent   the CPU time per I/O that the target's reactors spent more: with two CPUs the tool takes the rest of the loss
                              from the initiator, whose core it shares
    snapshot.runs             how many there were: fewer than 100 if the host left no time for them even in four times as many runs
    snapshot.cpu_ms           the CPU time of one
    follow.cost_percent       throughput lost to `-F`, printing to /dev/null
    follow.target_percent
    blackbox.cost_percent     the same with a trigger of every kind set, none of which fires, and no tool
    blackbox.target_percent"""
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import threading

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from appliance_lib import Daemon  # noqa: E402

BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build"))
ADDRESS = os.environ.get("VARVE_RDMA_ADDRESS", "")
PRELOAD = {} if ADDRESS else {"LD_PRELOAD": str(BUILD / "softverbs" / "libsoftverbs.so")}
NQN = "nqn.2026-11.io.varve:bench"
TURNS, SECONDS, SNAPSHOTS = int(os.environ.get("TURNS", "10")), 5, 10


def busy_ticks(call):
    return sum(t["busy"] for t in call("thread_get_stats")["threads"])


def iops_and_cost(call):
    """Of one run: I/O per second, and the ticks that the target's threads were busy per I/O."""
    busy = busy_ticks(call)
    out = subprocess.run(
        [BUILD / "bin" / "varve-perf", "--json", "--quiet", "-n", "1", "-q", "32", "-t", str(SECONDS),
         "-r", f"trtype:RDMA adrfam:IPv4 traddr:{ADDRESS or '127.0.0.1'} trsvcid:4421 subnqn:{NQN}"],
        stdout=subprocess.PIPE, check=True, timeout=600, env={**os.environ, **PRELOAD}).stdout
    rate = json.loads(out)["read"]["iops"]
    return rate, (busy_ticks(call) - busy) / (rate * SECONDS)


class Looker(threading.Thread):
    """Runs the tool `times` times, evenly within the run, or once until stopped."""

    def __init__(self, path, options, times):
        super().__init__()
        self.command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), "nice", "-n", "19", BUILD / "bin" / "varve-trace", "-f", path, *options]
        self.times, self.end, self.process = times, threading.Event(), None
        self.cpu_ms = []

    def run(self):
        with open(os.devnull, "wb") as null:
            while len(self.cpu_ms) < self.times and not self.end.wait(SECONDS / SNAPSHOTS):
                self.process = subprocess.Popen(self.command, stdout=null, stderr=null)
                _, _, used = os.wait4(self.process.pid, 0)
                self.cpu_ms.append(1000 * (used.ru_utime + used.ru_stime))

    def stop(self):
        self.end.set()
        if self.times == 1:
            os.kill(self.process.pid, signal.SIGTERM)
        self.join()


def with_tool(call, path, options, times):
    looker = Looker(path, options, times)
    looker.start()
    try:
        rate, ticks = iops_and_cost(call)
    finally:
        looker.stop()
    return rate, ticks, looker.cpu_ms


TRIGGERS = {"request_age": 60000000, "state_age": 60000000, "reactor_stall": 60000000, "io_error": None, "qpair_error": None, "keep_alive_loss": None}


def with_triggers(call):
    for name, limit_us in TRIGGERS.items():
        call("trace_set_trigger", name=name, type=name, action="notify", **({"limit_us": limit_us} if limit_us else {}))
    try:
        return iops_and_cost(call)
    finally:
        for name in TRIGGERS:
            call("trace_remove_trigger", name=name)


LOOKS = {"snapshot": (["--summary"], SNAPSHOTS), "follow": (["-F"], 1), "blackbox": None}


def measure(daemon, name):
    """Turns of one look, each beside a run without it; those of snapshots until there were a hundred, if the host leaves time for them at all."""
    lost = {"cost": [], "target": []}
    cpu_ms, turns = [], 0
    before = iops_and_cost(daemon.call)
    while turns < TURNS or (name == "snapshot" and len(cpu_ms) < 10 * SNAPSHOTS and turns < 4 * TURNS):
        rate, ticks, *used = with_tool(daemon.call, daemon.trace_file, *LOOKS[name]) if LOOKS[name] else with_triggers(daemon.call)
        after = iops_and_cost(daemon.call)
        lost["cost"].append(1 - rate / ((before[0] + after[0]) / 2))
        lost["target"].append(ticks / ((before[1] + after[1]) / 2) - 1)
        cpu_ms += used[0] if used else []
        before = after
        turns += 1
    for what, values in lost.items():
        print(f"{name}.{what}_percent {100 * statistics.median(values):.2f} %", flush=True)
    if name == "snapshot":
        print(f"snapshot.runs {len(cpu_ms)} runs")
        print(f"snapshot.cpu_ms {statistics.median(cpu_ms):.1f} ms", flush=True)


def main():
    with Daemon("--poll-mode", "busy", "-m", "[0]", "-e", "bdev,nvmf_rdma", env=PRELOAD) as daemon:
        call = daemon.call
        call("bdev_null_create", name="Null", block_size=4096, num_blocks=1 << 20)
        call("nvmf_create_transport", trtype="RDMA")
        call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True)
        call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "Null"})
        call("nvmf_subsystem_add_listener", nqn=NQN, listen_address={
            "trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS or "127.0.0.1", "trsvcid": "4421"})
        for name in sys.argv[1:] or LOOKS:
            measure(daemon, name)


main()
