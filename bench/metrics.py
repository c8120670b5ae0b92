# SPDX-License-Identifier: BSD-3-Clause
"""What it takes to tell of 1000 null bdevs, each a namespace with a channel on the target's only core:

    metrics.scrape1000_idle_ms, scrape1000_busy_ms      /metrics, as the scraper sees it; medians. Busy: a host reads at depth 128
    metrics.iostat1000_idle_ms, iostat1000_busy_ms      bdev_get_iostat"""
import pathlib
import statistics
import sys
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from appliance_lib import wait_for  # noqa: E402
from nvmf_lib import NQN, Host, Target, wait_io  # noqa: E402

BDEVS, TURNS = 1000, 9


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    if text.count("\nvarve_bdev_size_bytes{") != BDEVS:
        sys.exit("bench metrics: bdevs are missing in the answer")


def iostat(client):
    if len(client.call("bdev_get_iostat")["bdevs"]) != BDEVS:
        sys.exit("bench metrics: bdevs are missing in the answer")


def median_ms(fn):
    """Between turns, answers that are given again grow old."""
    times = []
    for _ in range(TURNS):
        time.sleep(1.1)
        start = time.monotonic()
        fn()
        times.append((time.monotonic() - start) * 1000)
    return statistics.median(times)


def measure(address, client, load):
    print(f"metrics.scrape{BDEVS}_{load}_ms {median_ms(lambda: scrape(address)):.1f} ms")
    print(f"metrics.iostat{BDEVS}_{load}_ms {median_ms(lambda: iostat(client)):.1f} ms", flush=True)


with Target("--metrics", "127.0.0.1:0", trtype="TCP", listen=False) as t:
    t.call("nvmf_delete_subsystem", nqn=NQN)
    t.add_subsystem(NQN, max_namespaces=BDEVS)
    rpc = t.client()
    for i in range(BDEVS):
        rpc.call("bdev_null_create", name=f"N{i}", num_blocks=1 << 20, block_size=4096)
        rpc.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": f"N{i}"})
    where = t.call("metrics_get_status")["address"]
    with Host(t, "-w", "none", "-t", "600", nsid=1):
        wait_for(lambda: t.num_qpairs() >= 2, "the host")
        measure(where, rpc, "idle")
    with Host(t, "-w", "randread", "-q", "128", "-t", "600", nsid=1) as host:
        wait_io(t, [host], 1000)
        measure(where, rpc, "busy")
