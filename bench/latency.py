# SPDX-License-Identifier: BSD-3-Clause
"""Latency against load: 4 KiB random reads of a RAM disk, varve on the first core, varve-perf on the last, over softverbs or the RDMA device
of this machine (at the address in $VARVE_RDMA_ADDRESS). First the capacity is measured with 128 outstanding; then I/Os are due at random
times (varve-perf --poisson), at 10 % to 95 % of the capacity, and latencies count from when an I/O was due.

    latency.TRANSPORT.capacity              I/Os per second
    latency.TRANSPORT.load50.p99_us ...     at 50 % of it; p50, p90, p99, p99.9, p99.99
    latency.TRANSPORT.load50.late           I/Os that had not begun at the end, if there are any: the load was too much

`scripts/bench.sh --svg=FILE latency` plots them too."""
import json
import os
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
sys.path.insert(0, str(TOP / "bench"))
from appliance_lib import Daemon  # noqa: E402
from plot import svg  # noqa: E402

BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build"))
ADDRESS = os.environ.get("VARVE_RDMA_ADDRESS", "")
SECONDS = os.environ.get("VARVE_LATENCY_SECONDS", "5")
PRELOAD = {} if ADDRESS else {"LD_PRELOAD": str(BUILD / "softverbs" / "libsoftverbs.so")}
NQN = "nqn.2026-11.io.varve:bench"
PORT = str(20000 + os.getpid() % 20000)
TRANSPORTS = ("RDMA",)
LOADS = (*range(10, 100, 10), 95)
PERCENTILES = ("p50", "p90", "p99", "p99.9", "p99.99")


def perf(transport, *args):
    out = subprocess.run(
        [BUILD / "bin" / "varve-perf", "--json", "--quiet", "--busy", "-t", SECONDS, *args,
         "-r", f"trtype:{transport} adrfam:IPv4 traddr:{ADDRESS or '127.0.0.1'} trsvcid:{PORT} subnqn:{NQN}"],
        stdout=subprocess.PIPE, check=True, timeout=60 + 2 * int(SECONDS), env={**os.environ, **PRELOAD}).stdout
    return json.loads(out)


def set_up(call, transport):
    call("bdev_malloc_create", name="Ram", block_size=4096, num_blocks=16384)
    call("nvmf_create_transport", trtype=transport, max_queue_depth=1024)
    call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True)
    call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "Ram"})
    call("nvmf_subsystem_add_listener", nqn=NQN, listen_address={
        "trtype": transport, "adrfam": "IPv4", "traddr": ADDRESS or "127.0.0.1", "trsvcid": PORT})


def measure(transport):
    """The results of varve-perf by load in per cent."""
    with Daemon("--poll-mode", "busy", "-m", "[0]", env=PRELOAD) as daemon:
        set_up(daemon.call, transport)
        capacity = perf(transport, "-q", "128")["read"]["iops"]
        print(f"latency.{transport.lower()}.capacity {capacity:.0f} IOPS", flush=True)
        results = {}
        for load in LOADS:
            rate = max(1, int(capacity * load / 100))
            results[load] = perf(transport, "-q", "1000", "--poisson", "--rate", str(rate))
            report(f"latency.{transport.lower()}.load{load}", results[load])
    return results


def report(name, result):
    for p in PERCENTILES:
        print(f"{name}.{p}_us {result['read']['latency_us'][p]:.1f} us", flush=True)
    if result["late"]:
        print(f"{name}.late {result['late']} I/Os", flush=True)


def table(transport, results):
    print(f"{transport}, us".ljust(10), *(p.rjust(10) for p in PERCENTILES), file=sys.stderr)
    for load, r in results.items():
        print(f"{load} %".ljust(10), *(f"{r['read']['latency_us'][p]:10.1f}" for p in PERCENTILES), file=sys.stderr)


def main():
    plots = []
    for transport in TRANSPORTS:
        results = measure(transport)
        table(transport, results)
        plots += [(f"{transport} {p}", [(load, r["read"]["latency_us"][p]) for load, r in results.items()]) for p in PERCENTILES]
    if os.environ.get("VARVE_BENCH_SVG"):
        pathlib.Path(os.environ["VARVE_BENCH_SVG"]).write_text(svg("Latency of 4 KiB reads against load", "load, % of capacity", "us", plots))


main()
