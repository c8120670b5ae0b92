# SPDX-License-Identifier: BSD-3-Clause
"""Start to RPC-ready, resident memory without and with a RAM disk of 64 MB (whose pages count from when they are touched), and idle
CPU of a daemon with one core and no hugepages; and the round trip of a small RPC."""
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "systest"))
from appliance_lib import Client, Daemon, RpcError  # noqa: E402

STARTS = 9
IDLE_SECONDS = 5
ROUND_TRIPS = 2000
DISK_MB = 64


def start_ms():
    begin = time.monotonic()
    with Daemon(ready=False) as d:
        while True:
            try:
                client = Client(d.path)
                break
            except OSError:
                time.sleep(0.0005)
        client.call("framework_wait_init")
        return (time.monotonic() - begin) * 1000


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ")[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(client):
    stats = client.call("env_dpdk_get_mem_stats")
    pathlib.Path(stats["filename"]).unlink(missing_ok=True)
    return stats["resident_bytes"] / 2**20


def round_trip_us(client):
    times = []
    for _ in range(ROUND_TRIPS):
        begin = time.monotonic()
        client.call("log_get_level")
        times.append((time.monotonic() - begin) * 1e6)
    return statistics.median(times)


def main():
    print(f"start.ready_ms {statistics.median(start_ms() for _ in range(STARTS)):.1f} ms")
    with Daemon() as d:
        client = d.client()
        print(f"start.rss_without_disk_mb {resident_mb(client):.1f} MB")
        try:
            client.call("bdev_malloc_create", name="Malloc0", num_blocks=DISK_MB * 2048, block_size=512)
        except RpcError as e:
            print(f"bench start: no RAM disk: {e}", file=sys.stderr)
        print(f"start.rss_mb {resident_mb(client):.1f} MB")
        before = cpu_seconds(d.pid)
        time.sleep(IDLE_SECONDS)
        print(f"idle.cpu_percent {(cpu_seconds(d.pid) - before) / IDLE_SECONDS * 100:.2f} %")
        print(f"rpc.round_trip_us {round_trip_us(client):.1f} us")


if __name__ == "__main__":
    main()
