#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root
# beside
# limit: 600
# sanitize
"""Integrity bdevs with the whole daemon: a byte that changes in the file is found by hosts' reads and by a scrub, and told; after kill -9 no right data is called wrong, and
everything that was written is there; a volume store stands on one; the saved configuration makes it again."""
import contextlib
import os
import random
import subprocess
import sys
import threading

from appliance_lib import BUILD, DEADLINE, Daemon, Failure, RpcError, check, main, wait_for
from metrics import parse, scrape
from nvmf_tcp_lib import Closed, TcpTarget, disk, host

MIB = 1 << 20
BLOCK = 4096
BASE = {"block_size": 512}
UNRECOVERED_READ_ERROR = 0x281


def attach(d, path, **params):
    d.call("bdev_uring_create", name="A0", filename=str(path), **BASE)
    check(d.call("bdev_integrity_create", name="I0", base_bdev_name="A0", **params) == "I0", "the name")


def info(d):
    [i] = d.call("bdev_integrity_get_bdevs", name="I0")
    return i


def closed(d):
    wait_for(lambda: info(d)["regions_open"] == 0 and info(d)["regions_unknown"] == 0, "regions to be closed")


def write(queue, nsid, lba, data):
    check(queue.write(lba, data, bs=BLOCK, nsid=nsid, in_capsule=False).code == 0, "a write")


def read(queue, nsid, lba, blocks=1):
    return queue.good(queue.rw_sqe(2, lba, blocks, nsid), length=blocks * BLOCK).data


def code(queue, nsid, lba, blocks=1):
    return queue.read(lba, blocks, bs=BLOCK, nsid=nsid).code & 0x7ff


def data_first(path, mark):
    """The byte of the file at which the block is that contains mark."""
    at = path.read_bytes().find(mark)
    check(at > 0 and at % BLOCK == 0, at)
    return at


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x40]))
        os.fsync(f.fileno())


# ---- What is found ----

def test_a_byte_that_changes_is_found_by_a_host_and_by_a_scrub():
    rng = random.Random(1)
    data = rng.randbytes(8 * BLOCK)
    with disk(16) as path, TcpTarget() as d:
        attach(d, path, format=True)
        with host(d, "I0") as (queue, nsid):
            write(queue, nsid, 300, data)
            check(read(queue, nsid, 300, 8) == data, "what the host reads")
            at = data_first(path, data[:BLOCK]) + 5 * BLOCK + 1000
            flip(path, at)
            check(code(queue, nsid, 305) == UNRECOVERED_READ_ERROR, "the wrong block was read")
            check(code(queue, nsid, 300, 8) == UNRECOVERED_READ_ERROR, "the wrong block was read among others")
            check(read(queue, nsid, 300, 5) == data[:5 * BLOCK], "the blocks before it")
            words = f"bdev I0: the data of block 305 is wrong (bdev A0, block {at // 512 // 8 * 8})"
            wait_for(lambda: words in d.log(), f"{words} in the log")
            [first, *_] = wait_for(lambda: d.notifications("bdev_integrity_error"), "a notification")
            check(first["ctx"] == "I0" and "block 305" in str(first), first)
            check(info(d)["errors"] == 2, info(d))
            doctor = subprocess.run([BUILD / "bin/varve-doctor", "-p", str(d.pid)], capture_output=True, text=True, timeout=DEADLINE)
            check("bdev I0 on bdev A0: 2 reads have found wrong data" in doctor.stdout, doctor)
            d.call("bdev_integrity_scrub_start", name="I0", mib_per_second=1000)
            scrub = wait_for(lambda: not info(d)["scrub"]["running"] and info(d)["scrub"], "the scrub to end")
            check(scrub["completed"] and scrub["blocks_wrong"] == 1 and scrub["first_wrong"] == [305], scrub)
            check(scrub["blocks_failed"] == 0 and scrub["blocks_unchecked"] == info(d)["num_blocks"] - 8, scrub)
            write(queue, nsid, 305, data[:BLOCK])
            check(read(queue, nsid, 305) == data[:BLOCK], "the block that was written again")
        closed(d)
        d.call("bdev_integrity_delete", name="I0")
        flip(path, at)
        check(d.call("bdev_integrity_create", name="I0", base_bdev_name="A0") == "I0", "the name")
        with host(d, "I0") as (queue, nsid):
            check(code(queue, nsid, 305) == UNRECOVERED_READ_ERROR, "a byte that changed while the bdev was closed")


def test_a_scrub_is_slow_if_it_is_told_to_and_can_be_stopped():
    with disk(1024) as path, TcpTarget() as d:     # a quarter of an hour
        attach(d, path, format=True)
        d.call("bdev_integrity_scrub_start", name="I0", mib_per_second=1)
        wait_for(lambda: info(d)["scrub"]["blocks_read"] > 0, "the scrub to read")
        d.call("bdev_integrity_scrub_stop", name="I0")
        scrub = wait_for(lambda: not info(d)["scrub"]["running"] and info(d)["scrub"], "the scrub to end")
        check(not scrub["completed"], scrub)
        d.call("bdev_integrity_scrub_start", name="I0", mib_per_second=1)
        d.call("bdev_integrity_delete", name="I0")


def test_what_is_on_a_disk_is_not_lost_by_accident():
    with disk(16) as path, TcpTarget() as d:
        path.write_bytes(b"precious" * (2 * MIB))
        d.call("bdev_uring_create", name="A0", filename=str(path), **BASE)
        for params, words in (({}, "format: true"), ({"uuid": "00000000-0000-4000-8000-000000000001"}, "format: true")):
            try:
                d.call("bdev_integrity_create", name="I0", base_bdev_name="A0", **params)
                raise Failure("a disk without a superblock was taken")
            except RpcError as e:
                check(words in e.message, e.message)
        check(path.read_bytes() == b"precious" * (2 * MIB), "something was written")
        d.call("bdev_integrity_create", name="I0", base_bdev_name="A0", format=True)
        uuid = info(d)["uuid"]
        d.call("bdev_integrity_delete", name="I0")
        try:
            d.call("bdev_integrity_create", name="I0", base_bdev_name="A0", format=True)
            raise Failure("a disk was formatted again")
        except RpcError as e:
            check(uuid in e.message, e.message)


# ---- What is told while it runs ----

def trace_lines(d):
    p = subprocess.run([BUILD / "bin/varve-trace", "-p", str(d.pid)], capture_output=True, text=True, timeout=DEADLINE, check=True)
    return [line for line in p.stdout.splitlines() if "INTEGRITY_" in line]


def test_metrics_and_the_trace_have_what_it_does():
    data = random.Random(2).randbytes(4 * BLOCK)
    with disk() as path, TcpTarget("-e", "integrity", "--metrics", "127.0.0.1:0") as d:
        attach(d, path, format=True)
        address = d.call("metrics_get_status")["address"]
        def figure(name):
            [(_, value)] = parse(scrape(address))["varve_integrity_" + name]
            return value
        with host(d, "I0") as (queue, nsid):
            def is_seen_open():
                write(queue, nsid, 512, data)       # it is closed again after seconds
                return figure("open_regions") == 1
            wait_for(is_seen_open, "an open region")
            check(read(queue, nsid, 512, 4) == data, "what was read")
            flip(path, data_first(path, data[:BLOCK]) + BLOCK)
            check(code(queue, nsid, 513) == UNRECOVERED_READ_ERROR, "a wrong block")
            wait_for(lambda: (figure("checked_blocks_total"), figure("wrong_blocks_total"), figure("read_only")) == (5, 1, 0), lambda: scrape(address))
            closed(d)
            wait_for(lambda: figure("metadata_bytes_total") > 0 and figure("open_regions") == 0, lambda: scrape(address))
        d.call("bdev_integrity_scrub_start", name="I0", mib_per_second=1000)
        wait_for(lambda: info(d)["scrub"]["completed"], "the scrub to end")
        wait_for(lambda: figure("scrubbed_blocks") == info(d)["num_blocks"] and figure("scrub_running") == 0, lambda: scrape(address))
        lines = trace_lines(d)
        count = {name: sum(f"INTEGRITY_{name} " in line for line in lines) for name in ("REGION_OPENED", "REGION_CLOSED", "WRONG_BLOCK", "PAGE_WRONG", "PAGE_FAILED")}
        check(count["REGION_OPENED"] == count["REGION_CLOSED"] > 0 and (count["WRONG_BLOCK"], count["PAGE_WRONG"], count["PAGE_FAILED"]) == (2 + 1, 0, 0), f"{count}: {lines}")
        check(any("INTEGRITY_SCRUB_READ " in line for line in lines) and all("I0" in line for line in lines), lines)


# ---- After kill -9 ----

class Writer(threading.Thread):
    """Writes numbered blocks until the daemon dies, and knows which were answered."""

    def __init__(self, queue, nsid, rng, known):
        super().__init__()
        self.queue, self.nsid, self.rng, self.known, self.count = queue, nsid, rng, known, 0

    def run(self):
        with contextlib.suppress(OSError, Closed, Failure):
            while True:
                lba, data = self.rng.randrange(3000), self.rng.randbytes(8) * (BLOCK // 8)
                old = self.known.get(lba, [bytes(BLOCK)])
                self.known[lba] = [*old, data]              # either, until it is answered
                write(self.queue, self.nsid, lba, data)
                self.known[lba] = [data]
                self.count += 1


def test_after_kill_9_all_that_was_written_is_there():
    rng, known = random.Random(4), {}
    with disk(16) as path:
        for life in range(3):
            with TcpTarget() as d:
                attach(d, path, **({"format": True} if life == 0 else {}))
                check((info(d)["regions_unclean"] > 0) == (life > 0), info(d))
                with contextlib.suppress(OSError, Closed, Failure), host(d, "I0") as (queue, nsid):
                    for lba, allowed in known.items():
                        found = read(queue, nsid, lba)
                        if found not in allowed:
                            sys.exit(f"FAIL {path}: block {lba} has {found[:8].hex()}, not one of {[a[:8].hex() for a in allowed]}")
                        known[lba] = [found]
                    check(info(d)["errors"] == 0, info(d))
                    check(life == 0 or "it was not closed" in d.log(), d.log())
                    writer = Writer(queue, nsid, rng, known)
                    writer.start()
                    wait_for(lambda: writer.count > 300, "300 writes")
                    d.process.kill()
                    d.process.wait()
                    writer.join()
                check(d.process.poll() is not None, "nothing was killed")


# ---- With others ----

def test_a_volume_store_stands_on_it_and_the_configuration_makes_it_again():
    rng = random.Random(5)
    data = rng.randbytes(64 * BLOCK)
    with disk(64) as path:
        with TcpTarget() as d:
            attach(d, path, format=True)
            uuid = info(d)["uuid"]
            d.call("bdev_lvol_create_lvstore", bdev_name="I0", lvs_name="s", cluster_sz=1 << 20)
            d.call("bdev_lvol_create", lvs_name="s", lvol_name="v", size_in_mib=8, thin_provision=True)
            with host(d, "s/v") as (queue, nsid):
                for n in range(0, 64, 8):
                    write(queue, nsid, 100 + n, data[n * BLOCK:(n + 8) * BLOCK])
            status, saved, wrong = d.rpc("save_config")
            check(status == 0 and d.stop() == 0, wrong)
        config = path.parent / "config.json"
        config.write_text(saved)
        check("format" not in saved and uuid in saved, saved)
        with Daemon("-c", config) as d:
            d.call("bdev_wait_for_examine")
            check(info(d)["uuid"] == uuid and info(d)["regions_unclean"] == 0, info(d))
            check("s/v" in str(d.call("bdev_get_bdevs")), d.call("bdev_get_bdevs"))
            check(d.stop() == 0, d.log())
        with TcpTarget() as d:
            attach(d, path, uuid=uuid)
            d.call("bdev_wait_for_examine")
            with host(d, "s/v") as (queue, nsid):
                for n in range(0, 64, 8):
                    check(read(queue, nsid, 100 + n, 8) == data[n * BLOCK:(n + 8) * BLOCK], "after a restart")
            check(info(d)["errors"] == 0, info(d))
            flip(path, data_first(path, data[:BLOCK]) + 7)
            with host(d, "s/v") as (queue, nsid):
                check(code(queue, nsid, 100) == UNRECOVERED_READ_ERROR, "a wrong block of a volume was read")


if __name__ == "__main__":
    main(sys.modules[__name__])
