#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# beside
"""What an operator does to a node while hosts do verified I/O: restarts it from its saved configuration, moves its threads; and memory
that adds up before, during and after."""
import sys

from appliance_lib import Daemon, Skip, check, main, wait_for
from nvmf_lib import NQN, NUM_CPUS, PORT, Target, preload, verifying, wait_io

RESTARTS = 2
MOVES = 8


class Configured(Target):
    """A target that gets everything from a file."""

    def __init__(self, config):
        Daemon.__init__(self, "-m", "[0]", "-s", "512", "-c", config, env=preload())
        self.port = PORT


def save(t, path):
    status, _, err = t.rpc("save_config", str(path))
    check(status == 0, err)
    return path


def test_hosts_ride_out_restarts_from_the_saved_configuration():
    with Target() as first:
        t, config = first, first.folder / "config.json"
        t.add_file("F0", first.folder / "disk")
        t.add_ns("F0", nsid=1, uuid="8d1f6c1e-55b1-4a5e-9f0e-0123456789ab")
        try:
            with verifying(t, 1, "-q", "8", "-t", "3600", "--loss-timeout", "180") as h:
                wait_io(t, [h], 1500)
                for _ in range(RESTARTS):
                    save(t, config)
                    t.stop_clean()
                    if t is not first:
                        t.__exit__()
                    t = Configured(config)
                    wait_io(t, [h], 500)
                h.check_perfect(h.stop(), RESTARTS)
            t.wait_empty()
            check(save(t, first.folder / "again.json").read_text() == config.read_text(), "the configuration changed on the way")
            t.stop_clean()
        finally:
            t.__exit__()


def memory(t):
    """Bytes in use: of the heap, and what is too large for it and mapped by itself."""
    m = t.call("env_dpdk_get_mem_stats")
    check(0 <= m["heap_largest_free_bytes"] <= m["heap_free_bytes"] <= m["heap_bytes"] <= m["dma_bytes"] + m["heap_bytes"], m)
    return m["heap_bytes"] - m["heap_free_bytes"] + m["mapped_bytes"]


def gets(t):
    module, = [m for m in t.call("iobuf_get_stats") if m["module"] == "nvmf_RDMA"]
    return module["small_pool"]["cache"] + module["small_pool"]["main"]


def test_memory_adds_up_before_during_and_after():
    with Target(zcopy=False) as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        idle = 0
        for n in range(3):
            with verifying(t, 1, "-q", "8", "-t", "3600") as h:
                before = gets(t), t.groups("completed_nvme_io")
                wait_io(t, [h], 1500)
                check(gets(t) > before[0], "buffers were used without being counted")
                memory(t)
                h.check_perfect(h.stop())
            t.wait_empty()
            if n < 2:   # the first ones leave memory that the next ones use again
                idle = max(idle, memory(t))
            else:
                wait_for(lambda: memory(t) <= idle, lambda: f"memory to come back: {memory(t)} bytes are in use, {idle} after the hosts before")
        with_disk = memory(t)
        size = 32 << 20
        t.call("bdev_malloc_create", name="M1", block_size=512, num_blocks=size // 512)
        check(memory(t) - with_disk >= size, "a RAM disk is not in the account")
        t.call("bdev_malloc_delete", name="M1")
        wait_for(lambda: memory(t) == with_disk, lambda: f"{memory(t) - with_disk} bytes more than before a RAM disk that is gone")
        t.stop_clean()


def test_threads_move_under_load():
    if NUM_CPUS < 2:
        raise Skip("needs two CPUs")
    with Target(cores="[0-1]") as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        with verifying(t, 1, "-q", "8", "-t", "3600", "-P", "2") as h:
            wait_io(t, [h], 1500)
            threads = [x for x in t.call("thread_get_stats", detail=True)["threads"] if x["lcore"] is not None]
            check(len(threads) >= 2, threads)
            for n in range(MOVES):
                for i, x in enumerate(threads):
                    check(t.call("thread_set_cpumask", id=x["id"], cpumask=f"{1 << (n + i) % 2:x}") is True, "the move")
                wait_io(t, [h])
                at = {x["id"]: x["lcore"] for x in t.call("thread_get_stats", detail=True)["threads"]}
                check(all(at[x["id"]] == (n + i) % 2 for i, x in enumerate(threads)), f"{at} after move {n}")
            h.check_perfect(h.stop())
        t.wait_empty()
        t.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
