#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 600
# sanitize
"""Volumes with the whole daemon: what a stock daemon made is opened and answered as it answered, hosts' data are right through all changes, and
everything is there again after a clean stop and after a kill."""
import contextlib
import json
import lzma
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from appliance_lib import BUILD, DEADLINE, TOP, Daemon, RpcError, check, main, wait_for
from lvol_tool import contents
from metrics import parse, scrape
from nvmf_lib import NQN, Host, wait_io
from nvmf_tcp_lib import Queue, TcpTarget

DATA = TOP / "unittest/data"
TOOL = BUILD / "bin/varve-lvol"
MIB = 1 << 20
OPEN, CLOSED = 4, 3


@contextlib.contextmanager
def image(kind=None, mb=128):
    """A file that outlives daemons: a stock store, or zeroes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "disk"
        if kind:
            path.write_bytes(lzma.decompress((DATA / f"stock_lvstore_{kind}.img.xz").read_bytes()))
        else:
            with open(path, "wb") as f:
                f.truncate(mb * MIB)
        yield path


def attach(d, path, block_size=4096):
    d.call("bdev_uring_create", name="A0", filename=str(path), block_size=block_size)


def version(path):
    with open(path, "rb") as f:
        return int.from_bytes(f.read(12)[8:], "little")


def check_tool(path):
    """The offline tool, which reads everything, finds nothing wrong with it."""
    p = subprocess.run([TOOL, "check", path], capture_output=True, text=True, timeout=DEADLINE, check=False)
    check(p.returncode == 0 and " 0 problems" in p.stdout, f"varve-lvol check: {p.returncode}: {p.stdout}{p.stderr}")


def stop_and_check(d, path):
    check(d.stop() == 0, f"the end:\n{d.log()}")
    check(version(path) == CLOSED, f"version {version(path)} after a clean stop")
    check_tool(path)


def refused(d, code, words, method, **params):
    try:
        answer = d.call(method, **params)
    except RpcError as e:
        check(e.code == code and all(w in e.message for w in words), f"{method} {params}: {e.code}: {e.message}")
    else:
        check(False, f"{method} {params} answered {answer}")


def read_volume(d, alias, size):
    """What a host reads."""
    nsid = d.add_ns(alias)
    with Queue(port=d.port) as admin:
        admin.enable()
        with Queue(port=d.port, qid=1, cntlid=admin.cntlid) as queue:
            blocks = 16
            data = b"".join(queue.good(queue.rw_sqe(2, lba, blocks, nsid), length=blocks * 4096).data for lba in range(0, size // 4096, blocks))
    d.remove_ns(nsid)
    return data


# ---- Stores that a stock daemon made ----

def test_a_stock_store_is_opened_and_answered_as_it_was():
    theirs = json.loads((DATA / "stock_lvols.json").read_text())
    stores = json.loads((DATA / "stock_lvstores.json").read_text())
    for kind, count in (("clean", 4), ("dirty", 5)):
        with image(kind) as path, TcpTarget() as d:
            attach(d, path)
            ours = d.call("bdev_lvol_get_lvols")
            check(ours == [v | {"num_reserved_clusters": 0} for v in theirs[:count]], f"{kind}: {ours}")
            ours = d.call("bdev_lvol_get_lvstores")
            more = {"reserved_clusters": 0, "reserved_missing_clusters": 0, "reserved_md_pages": 0, "reserved_missing_md_pages": 0, "space_thresholds": [80, 90, 95], "space_reached": 0}
            pages = [{k: o[k] for k in ("md_pages", "free_md_pages")} for o in ours]
            check(ours == [s | more | p for s, p in zip(stores, pages, strict=True)], f"{kind}: {ours}")
            check(all(0 < p["free_md_pages"] < p["md_pages"] for p in pages), f"{kind}: {ours}")
            check(version(path) == OPEN, "while it is open other programs must refuse it")
            [clone] = d.call("bdev_get_bdevs", name="lvs0/clone1")
            check(clone["name"] == clone["uuid"] == "9ac30390-2d44-4695-b74b-27ef2ef1c2b9" and clone["product_name"] == "Logical Volume", clone)
            check(clone["driver_specific"]["lvol"] == {
                "lvol_store_uuid": "14ace1d1-a1e1-4f1d-838e-f8c5b0aed151", "base_bdev": "A0", "thin_provision": True, "num_allocated_clusters": 2, "num_reserved_clusters": 0,
                "snapshot": False, "clone": True, "base_snapshot": "snap1", "esnap_clone": False}, clone)
            [snapshot] = d.call("bdev_get_bdevs", name="lvs0/snap1")
            check(sorted(snapshot["driver_specific"]["lvol"]["clones"]) == ["clone1", "thin"], snapshot)
            check(d.call("bdev_get_bdevs", name="A0")[0]["claimed"], "the store's bdev is claimed")
            for volume in ("thick", "snap1", "clone1"):
                expected = contents(volume)
                check(read_volume(d, f"lvs0/{volume}", len(expected)) == expected, f"{kind}: {volume} differs")
            stop_and_check(d, path)


def test_a_store_on_smaller_blocks_than_its_own():
    with image("dirty") as path, TcpTarget() as d:
        attach(d, path, block_size=512)
        d.call("bdev_wait_for_examine")
        [v] = d.call("bdev_get_bdevs", name="lvs0/thick")
        check(v["block_size"] == 4096, v)
        for volume in ("thick", "snap1", "clone1"):
            expected = contents(volume)
            check(read_volume(d, f"lvs0/{volume}", len(expected)) == expected, f"{volume} differs")
        d.call("bdev_lvol_create", lvs_name="lvs0", lvol_name="new", size_in_mib=8, thin_provision=True)
        nsid = d.add_ns("lvs0/new")
        with Host(d, "-w", "randrw", "--verify", "-t", "600", "-q", "8", nsid=nsid) as host:
            wait_io(d, [host])
            d.call("bdev_lvol_snapshot", lvol_name="lvs0/new", snapshot_name="of_new")
            wait_io(d, [host])
        d.remove_ns(nsid)
        for volume in ("thick", "snap1", "clone1"):
            expected = contents(volume)
            check(read_volume(d, f"lvs0/{volume}", len(expected)) == expected, f"{volume} differs after I/O of another volume")
        stop_and_check(d, path)


def test_a_stock_store_is_changed_and_closed():
    with image("dirty") as path:
        with TcpTarget() as d:
            attach(d, path)
            d.call("bdev_lvol_snapshot", lvol_name="lvs0/thick", snapshot_name="snap2")
            d.call("bdev_lvol_delete", name="lvs0/late")
            d.call("bdev_lvol_rename", old_name="lvs0/thick", new_name="thicker")
            d.call("bdev_lvol_inflate", name="lvs0/clone1")
            d.call("bdev_lvol_create", lvs_name="lvs0", lvol_name="new", size_in_mib=3, thin_provision=True)
            stop_and_check(d, path)
        for volume, now in (("thick", "thicker"), ("thick", "snap2"), ("thin", "thin"), ("clone1", "clone1")):
            data = subprocess.run([TOOL, "read", path, now], capture_output=True, timeout=DEADLINE, check=True).stdout
            check(data == contents(volume), f"{now} differs")
        with Daemon() as d:
            attach(d, path)
            names = sorted(v["name"] for v in d.call("bdev_lvol_get_lvols", lvs_name="lvs0"))
            check(names == ["clone1", "new", "snap1", "snap2", "thicker", "thin"], names)
            stop_and_check(d, path)


# ---- Hosts ----

def new_store(d, path, **params):
    attach(d, path)
    return d.call("bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs", cluster_sz=MIB, **params)


def test_data_are_right_through_changes():
    with image() as path, TcpTarget() as d:
        new_store(d, path)
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=16, thin_provision=True)
        nsid = d.add_ns("lvs/v")
        with Host(d, "-w", "randrw", "--verify", "--region", "8M", "-t", "600", "-q", "8", nsid=nsid) as host:
            wait_io(d, [host])
            for i in range(4):
                d.call("bdev_lvol_snapshot", lvol_name="lvs/v", snapshot_name=f"s{i}")
                wait_io(d, [host])
                d.call("bdev_lvol_clone", snapshot_name=f"lvs/s{i}", clone_name=f"c{i}")
                d.call("bdev_lvol_resize", name="lvs/v", size_in_mib=17 + i)
                wait_io(d, [host])
                if i > 0:
                    d.call("bdev_lvol_delete", name=f"lvs/c{i - 1}")
                    d.call("bdev_lvol_delete", name=f"lvs/s{i - 1}")
                    wait_io(d, [host])
            d.call("bdev_lvol_decouple_parent", name="lvs/v")
            wait_io(d, [host])
            host.check_perfect(host.stop())
        check(d.call("bdev_get_bdevs", name="lvs/v")[0]["num_blocks"] == 20 * MIB // 4096, "the last size")
        stop_and_check(d, path)


def test_a_deleted_volume_takes_its_namespace_along():
    with image() as path, TcpTarget() as d:
        new_store(d, path)
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=16, thin_provision=True)
        nsid = d.add_ns("lvs/v")
        with Host(d, "-w", "randwrite", "--region", "8M", "-t", "600", "-q", "8", nsid=nsid) as host:
            wait_io(d, [host])
            d.call("bdev_lvol_delete", name="lvs/v")
            host.kill()
        check(d.call("bdev_lvol_get_lvols") == [], "it is gone")
        [store] = d.call("bdev_lvol_get_lvstores")
        wait_for(lambda: d.call("bdev_lvol_get_lvstores")[0]["free_clusters"] == store["total_data_clusters"], "its clusters to be free")
        stop_and_check(d, path)


def test_what_was_written_is_there_after_a_kill():
    with image() as path, tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        with TcpTarget() as d:
            new_store(d, path)
            d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=16, thin_provision=True)
            nsid = d.add_ns("lvs/v")
            host = Host(d, "-w", "randrw", "--verify", "--region", "2M", "-t", "600", "-q", "8", "--loss-timeout", "300", "--ledger", str(ledger), nsid=nsid)
            wait_io(d, [host], more=1500)     # beyond the first 512, which write the region
            d.call("bdev_lvol_snapshot", lvol_name="lvs/v", snapshot_name="s")
            wait_io(d, [host])
            d.stop(signal.SIGKILL)
            check(version(path) == OPEN, "it was not closed")
            shutil.copy(path, f"{path}.killed")
            check_tool(f"{path}.killed")
            with TcpTarget(listen=False) as d2:
                attach(d2, path)
                check(sorted(v["name"] for v in d2.call("bdev_lvol_get_lvols")) == ["s", "v"], "both are there")
                check(d2.add_ns("lvs/v") == nsid, "as before")
                with host:
                    d2.add_listener()
                    wait_io(d2, [host])
                    host.check_perfect(host.stop(), reconnects=1)
                with Host(d2, "--check-ledger", str(ledger), nsid=nsid) as reader:
                    result = reader.result()
                check(result["errors"] == 0 and result["miscompares"] == 0 and result["read"]["ios"] > 0, f"{result}\n{reader.errors.read_text()}")
                stop_and_check(d2, path)


def test_a_full_store_goes_on_with_what_it_has():
    with image(mb=32) as path, TcpTarget() as d:
        new_store(d, path)
        [store] = d.call("bdev_lvol_get_lvstores")
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=64, thin_provision=True)
        nsid = d.add_ns("lvs/v")
        with Queue(port=d.port) as admin:
            admin.enable()
            with Queue(port=d.port, qid=1, cntlid=admin.cntlid) as queue:
                block, per_cluster, full = bytes(range(256)) * 16, 256, None
                for n in range(64):
                    status = queue.command(queue.rw_sqe(1, n * per_cluster, 1, nsid), block).code
                    if status != 0:
                        full = full or (n, status)
                check(full == (store["free_clusters"], 0x81), f"full after {full}: Capacity Exceeded (81h) was due after {store['free_clusters']}")
                check(queue.command(queue.rw_sqe(1, 0, 1, nsid), block[::-1]).code == 0, "an overwrite")
                check(queue.good(queue.rw_sqe(2, 0, 1, nsid), length=4096).data == block[::-1], "and what it wrote")
        stop_and_check(d, path)


def space_events(d):
    events = [n for n in d.call("notify_get_notifications", all=True) if n["type"].startswith("bdev_lvol_space_")]
    for n in events:
        check("clusters of 1024 KiB are in use" in n["reason"], n)
    return [(n["type"].removeprefix("bdev_lvol_space_"), n["ctx"]) for n in events]


def space_of(d):
    [store] = d.call("bdev_lvol_get_lvstores")
    return store["space_thresholds"], store["space_reached"]


def test_a_store_that_fills_tells_of_it():
    with image(mb=64) as path, TcpTarget("--metrics", "127.0.0.1:0") as d:
        new_store(d, path, space_thresholds=[50, 75])
        [store] = d.call("bdev_lvol_get_lvstores")
        total, metrics = store["total_data_clusters"], d.call("metrics_get_status")["address"]
        def told():
            return parse(scrape(metrics))["varve_lvol_store_space_reached_percent"]
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="small", size_in_mib=1)
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=128, thin_provision=True)
        nsid = d.add_ns("lvs/v")
        expected = [("low", "lvs 50"), ("low", "lvs 75"), ("out", "lvs 100")]
        with Queue(port=d.port) as admin:
            admin.enable()
            with Queue(port=d.port, qid=1, cntlid=admin.cntlid) as queue:
                for n in range(1, total):  # the small volume has the first one
                    queue.good(queue.rw_sqe(1, n * 256, 1, nsid), bytes(4096))
                    due = sum((n + 1) * 100 >= t * total for t in (50, 75, 100))
                    if due != sum(n * 100 >= t * total for t in (50, 75, 100)):
                        wait_for(lambda: len(space_events(d)) >= due, f"event {due}")
                    check(space_events(d) == expected[:due], f"{n + 1} of {total} clusters: {space_events(d)}")
                check(queue.command(queue.rw_sqe(1, total * 256, 1, nsid), bytes(4096)).code == 0x81, "Capacity Exceeded")
        check(space_of(d) == ([50, 75], 100) and space_events(d) == expected, f"{space_of(d)}, {space_events(d)}")
        wait_for(lambda: [v for _, v in told()] == [100], "the metric")
        def doctor_says(words):
            doctor = subprocess.run([BUILD / "bin/varve-doctor", "-p", str(d.pid), "-w", "60"], capture_output=True, text=True, timeout=DEADLINE, check=False)
            check(doctor.returncode == 1 and "volume store lvs on bdev A0" in doctor.stdout and words in doctor.stdout, doctor.stdout)
            return doctor.stdout
        doctor_says("it is full: first writes to thin volumes fail")
        # One cluster is free for a while: no first write fails then.
        d.call("bdev_lvol_delete", name="lvs/small")
        wait_for(lambda: space_of(d)[1] == 75, "its cluster to be free")
        said = doctor_says("its threshold of 75 % is reached")
        check("writes to thin volumes fail" not in said, said)
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="small", size_in_mib=1)
        wait_for(lambda: space_of(d)[1] == 100, "the store to be full again")
        expected += [("regained", "lvs 100"), ("out", "lvs 100")]
        check(space_events(d) == expected, space_events(d))
        d.remove_ns(nsid)
        d.call("bdev_lvol_delete", name="lvs/small")
        d.call("bdev_lvol_delete", name="lvs/v")
        wait_for(lambda: space_of(d)[1] == 0, "its clusters to be free")
        kinds = [kind for kind, _ in space_events(d)[len(expected):]]
        check(kinds and set(kinds) == {"regained"} and space_events(d)[-1] == ("regained", "lvs 50"), space_events(d))
        for line in ("lvol store lvs fills", "lvol store lvs is full", "lvol store lvs has space again"):
            check(line in d.log(), f"{line} is not in the log")
        d.call("bdev_lvol_set_space_thresholds", lvs_name="lvs", space_thresholds=[10])
        for bad in ([0], [100], [50, 50], ["50"], list(range(1, 10))):
            refused(d, -32602, ["space_thresholds"], "bdev_lvol_set_space_thresholds", lvs_name="lvs", space_thresholds=bad)
        refused(d, -32602, ["space_thresholds"], "bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="other", space_thresholds=[-1])
        stop_and_check(d, path)


def test_thresholds_are_kept_and_told_at_the_start():
    with image(mb=32) as path:
        with Daemon() as d:
            new_store(d, path)
            check(space_of(d) == ([80, 90, 95], 0), space_of(d))
            d.call("bdev_lvol_set_space_thresholds", lvs_name="lvs", space_thresholds=[10])
            d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=16)
            check(space_of(d) == ([10], 10) and space_events(d) == [("low", "lvs 10")], space_events(d))
            stop_and_check(d, path)
        with Daemon() as d:
            attach(d, path)
            check(space_of(d) == ([10], 10) and space_events(d) == [("low", "lvs 10")], space_events(d))
            d.call("bdev_lvol_set_space_thresholds", lvs_name="lvs", space_thresholds=[])
            check(space_of(d) == ([], 0) and space_events(d)[1:] == [("regained", "lvs 10")], space_events(d))
            d.call("bdev_lvol_set_space_thresholds", lvs_name="lvs")
            check(space_of(d)[0] == [80, 90, 95], space_of(d))
            stop_and_check(d, path)


# ---- Reservations ----

def write_clusters(d, alias, clusters):
    """First writes, one by one; their status codes."""
    nsid = d.add_ns(alias)
    with Queue(port=d.port) as admin:
        admin.enable()
        with Queue(port=d.port, qid=1, cntlid=admin.cntlid) as queue:
            codes = [queue.command(queue.rw_sqe(1, n * 256, 1, nsid), bytes(4096)).code for n in clusters]
    d.remove_ns(nsid)
    return codes


def reserved(d):
    [store] = d.call("bdev_lvol_get_lvstores")
    return store["reserved_clusters"], {v["name"]: v["num_reserved_clusters"] for v in d.call("bdev_lvol_get_lvols") if v["num_reserved_clusters"]}


def test_a_volume_finds_what_it_has_reserved():
    with image(mb=64) as path:
        with TcpTarget("--metrics", "127.0.0.1:0") as d:
            new_store(d, path, space_thresholds=[50])
            [store] = d.call("bdev_lvol_get_lvstores")
            total = store["total_data_clusters"]
            d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="mine", size_in_mib=32, thin_provision=True, reserved_in_mib=4)
            d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="other", size_in_mib=128, thin_provision=True)
            check(reserved(d) == (4, {"mine": 4}), reserved(d))
            # What is wrong is named, with what would be right.
            refused(d, -22, ["reserved_in_mib", "33 clusters", "its size, 32"], "bdev_lvol_set_reservation", name="lvs/mine", reserved_in_mib=33)
            refused(d, -22, ["reserved_in_mib", "5 clusters", "its size, 4"], "bdev_lvol_create", lvs_name="lvs", lvol_name="x", size_in_mib=4, reserved_in_mib=5)
            refused(d, -28, ["reserved_in_mib", f"{total} clusters", f"at most {total - 4} are"], "bdev_lvol_set_reservation", name="lvs/other", reserved_in_mib=total)
            refused(d, -28, ["reserved_in_mib", f"{total} clusters", f"at most {total - 4} are"], "bdev_lvol_create", lvs_name="lvs", lvol_name="x",
                    size_in_mib=128, thin_provision=True, reserved_in_mib=total)
            # Reserved ones count as used.
            half = (total + 1) // 2
            d.call("bdev_lvol_set_reservation", name="lvs/mine", reserved_in_mib=half)
            check(space_of(d)[1] == 50, space_of(d))
            [low] = [n for n in d.call("notify_get_notifications", all=True) if n["type"] == "bdev_lvol_space_low"]
            check(f"{half} of {total} clusters of 1024 KiB are in use or reserved" in low["reason"], low)
            d.call("bdev_lvol_set_reservation", name="lvs/mine", reserved_in_mib=6)
            check(space_of(d)[1] == 0 and reserved(d) == (6, {"mine": 6}), reserved(d))
            check(d.call("bdev_get_bdevs", name="lvs/mine")[0]["driver_specific"]["lvol"]["num_reserved_clusters"] == 6, "bdev_get_bdevs")
            figures = parse(scrape(d.call("metrics_get_status")["address"]))
            check([v for _, v in figures["varve_lvol_store_reserved_bytes"]] == [6 * MIB], figures["varve_lvol_store_reserved_bytes"])
            check(sorted(v for _, v in figures["varve_lvol_reserved_bytes"]) == [0, 6 * MIB], figures["varve_lvol_reserved_bytes"])
            # The other one takes all that it gets.
            codes = write_clusters(d, "lvs/other", range(total - 6 + 1))
            check(codes == [0] * (total - 6) + [0x81], codes)
            wait_for(lambda: space_of(d)[1] == 100, "the store to be full")
            refused(d, -28, ["room"], "bdev_lvol_create", lvs_name="lvs", lvol_name="x", size_in_mib=1)
            check(write_clusters(d, "lvs/mine", range(2)) == [0, 0] and reserved(d)[0] == 4, reserved(d))
            refused(d, -28, ["has reserved 6 clusters", "need 2 free ones", "0 are free"], "bdev_lvol_snapshot", lvol_name="lvs/mine", snapshot_name="s")
            ctl = subprocess.run([BUILD / "bin/varve-ctl", "-p", str(d.process.pid), "status"], capture_output=True, text=True, timeout=DEADLINE, check=False)
            check("lvs: 4.0M of " in ctl.stdout and "4.0M of it reserved" in ctl.stdout and "is full but for what is reserved" in ctl.stdout, ctl.stdout)
            doctor = subprocess.run([BUILD / "bin/varve-doctor", "-p", str(d.pid), "-w", "60"], capture_output=True, text=True, timeout=DEADLINE, check=False)
            check("4 reserved for volumes" in doctor.stdout and "are not there" not in doctor.stdout, doctor.stdout)
            d.process.send_signal(signal.SIGKILL)
            d.process.wait(DEADLINE)
        with TcpTarget() as d:
            attach(d, path)
            check(reserved(d) == (4, {"mine": 6}), reserved(d))
            check(write_clusters(d, "lvs/other", [total - 6]) == [0x81], "what is reserved is so after a crash")
            check(write_clusters(d, "lvs/mine", range(7)) == [0] * 6 + [0x81], "it has all that it has reserved")
            d.call("bdev_lvol_delete", name="lvs/other")
            wait_for(lambda: d.call("bdev_lvol_get_lvstores")[0]["free_clusters"] == total - 6, "its clusters to be free")
            d.call("bdev_lvol_snapshot", lvol_name="lvs/mine", snapshot_name="s")
            check(reserved(d) == (6, {"mine": 6}), reserved(d))
            refused(d, -1, ["read-only"], "bdev_lvol_set_reservation", name="lvs/s", reserved_in_mib=1)
            stop_and_check(d, path)


# ---- Tracing ----

def test_the_trace_has_what_a_store_does():
    with image() as path, TcpTarget("-e", "lvol") as d:
        new_store(d, path)
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=4, thin_provision=True)
        nsid = d.add_ns("lvs/v")
        with Queue(port=d.port) as admin:
            admin.enable()
            with Queue(port=d.port, qid=1, cntlid=admin.cntlid) as queue:
                queue.good(queue.rw_sqe(1, 256, 1, nsid), bytes(4096))
                d.call("bdev_lvol_snapshot", lvol_name="lvs/v", snapshot_name="s")
                queue.good(queue.rw_sqe(1, 256, 1, nsid), bytes(4096))
        p = subprocess.run([BUILD / "bin/varve-trace", "-p", str(d.pid)], capture_output=True, text=True, timeout=DEADLINE, check=True)
        found = {}
        for line in p.stdout.splitlines():
            for word in line.split():
                if word.startswith("LVOL_"):
                    found.setdefault(word, []).append(line)
        counts = {name: len(lines) for name, lines in found.items()}
        # The bdev was looked at, then a store was made; the batches of two changes and of two first writes.
        check(counts == {"LVOL_STORE_STATE": 2, "LVOL_JOURNAL": 4, "LVOL_COMMITTED": 4, "LVOL_COPY_BEGIN": 2, "LVOL_COPY_END": 2, "LVOL_ALLOCATED": 2,
                         "LVOL_CHANGE_WAITS": 1, "LVOL_CHANGE_ENDED": 2}, f"{counts}\n{p.stdout}")
        check("snapshot" in found["LVOL_CHANGE_WAITS"][0] and all(w in found["LVOL_STORE_STATE"][-1] for w in ("A0", "lvs")), p.stdout)
        stop_and_check(d, path)


# ---- Clones of other bdevs ----

def degraded(d):
    return {v["name"]: v["is_degraded"] for v in d.call("bdev_lvol_get_lvols", lvs_name="lvs")}


def test_a_clone_of_a_bdev_is_there_when_that_is():
    with image() as path, image(mb=4) as other:
        text = bytes(range(1, 256)) * 16448 + b"end"
        other.write_bytes(text + bytes(4 * MIB - len(text)))
        want = text + bytes(4 * MIB - len(text))
        with TcpTarget() as d:
            new_store(d, path)
            refused(d, -19, ["Image"], "bdev_lvol_clone_bdev", bdev="Image", lvs_name="lvs", clone_name="c")
            d.call("bdev_uring_create", name="Image", filename=str(other), block_size=512)
            uuid = d.call("bdev_lvol_clone_bdev", bdev="Image", lvs_name="lvs", clone_name="c")
            check(read_volume(d, "lvs/c", 4 * MIB) == want, "what the image has")
            [info] = d.call("bdev_get_bdevs", name="lvs/c")
            lvol = info["driver_specific"]["lvol"]
            check(info["name"] == uuid and lvol["esnap_clone"] and not lvol["clone"] and lvol["external_snapshot_name"] == "Image", lvol)
            d.call("bdev_uring_delete", name="Image")
            check(degraded(d) == {"c": True}, "it waits for its bdev")
            refused(d, -19, ["lvs/c"], "bdev_get_bdevs", name="lvs/c")
            d.call("bdev_uring_create", name="Image", filename=str(other), block_size=512)
            d.call("bdev_wait_for_examine")
            check(degraded(d) == {"c": False}, "it is back")
            stop_and_check(d, path)
        with TcpTarget() as d:
            attach(d, path)
            check(degraded(d) == {"c": True}, "its bdev is not there yet")
            d.call("bdev_uring_create", name="Image", filename=str(other), block_size=512)
            d.call("bdev_wait_for_examine")
            nsid = d.add_ns("lvs/c")
            with Host(d, "-w", "randrw", "--verify", "--region", "4M", "-t", "600", "-q", "8", nsid=nsid) as host:
                wait_io(d, [host], more=1500)     # beyond the first 1024, which write the region
                d.call("bdev_lvol_snapshot", lvol_name="lvs/c", snapshot_name="s")
                wait_io(d, [host])
                d.call("bdev_lvol_inflate", name="lvs/c")
                wait_io(d, [host])
                host.check_perfect(host.stop())
            check(degraded(d) == {"c": False, "s": False}, "both have what they need")
            d.call("bdev_uring_delete", name="Image")
            check(degraded(d) == {"c": False, "s": True}, "the inflated one needs no other")
            d.call("bdev_lvol_delete", name="lvs/s")
            check(list(degraded(d)) == ["c"], "one whose bdev is not there can be deleted")
            stop_and_check(d, path)
        check(other.read_bytes() == want, "the image is as it was")


# ---- The daemon ----

def test_a_saved_configuration_finds_the_volumes_again():
    with image() as path, tempfile.TemporaryDirectory() as folder:
        with TcpTarget() as d:
            new_store(d, path)
            uuid = d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=16)
            d.add_ns("lvs/v")
            status, config, errors = d.rpc("save_config")
            check(status == 0, errors)
            check("lvol" not in config, "found stores need no calls")
            stop_and_check(d, path)
        saved = Path(folder) / "config.json"
        saved.write_text(config)
        with Daemon("-c", str(saved), "-s", "512") as d:
            [subsystem] = [s for s in d.call("nvmf_get_subsystems") if s["nqn"] == NQN]
            check([n["bdev_name"] for n in subsystem["namespaces"]] == [uuid], subsystem)
            stop_and_check(d, path)


def test_stores_are_closed_with_what_they_stand_on():
    with image() as path, Daemon() as d:
        for base, make, delete in (("P0", "bdev_passthru_create", "bdev_passthru_delete"), ("A0", None, "bdev_uring_delete")):
            attach(d, path)
            if make:
                d.call(make, base_bdev_name="A0", name=base)
            d.call("bdev_wait_for_examine")
            d.call("bdev_lvol_create_lvstore", bdev_name=base, lvs_name="lvs", cluster_sz=MIB)
            d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=4)
            check(version(path) == OPEN, "open")
            d.call(delete, name=base)
            check(version(path) == CLOSED and d.call("bdev_lvol_get_lvstores") == [], f"{base}: the store was closed")
            if make:
                d.call("bdev_uring_delete", name="A0")
            check_tool(path)
            attach(d, path)
            check([v["alias"] for v in d.call("bdev_lvol_get_lvols")] == ["lvs/v"], "found again")
            d.call("bdev_lvol_delete_lvstore", lvs_name="lvs")
            d.call("bdev_uring_delete", name="A0")


def test_errors_are_those_that_clients_know():
    with image() as path, Daemon() as d:
        attach(d, path)
        refused(d, -19, ["Nobody"], "bdev_lvol_create_lvstore", bdev_name="Nobody", lvs_name="lvs")
        refused(d, -22, ["cluster"], "bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs", cluster_sz=70000)
        uuid = d.call("bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs")
        refused(d, -17, ["lvs"], "bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs")
        refused(d, -1, ["claimed"], "bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs2")
        refused(d, -22, ["UUID"], "bdev_lvol_create", lvol_name="v", size_in_mib=4)
        refused(d, -22, ["UUID"], "bdev_lvol_create", lvol_name="v", size_in_mib=4, lvs_name="lvs", uuid=uuid)
        refused(d, -19, ["other"], "bdev_lvol_create", lvol_name="v", size_in_mib=4, lvs_name="other")
        refused(d, -28, ["room"], "bdev_lvol_create", lvol_name="v", size_in_mib=4096, lvs_name="lvs")
        d.call("bdev_lvol_create", lvol_name="v", size_in_mib=4, uuid=uuid)
        refused(d, -17, ["lvs/v"], "bdev_lvol_create", lvol_name="v", size_in_mib=4, uuid=uuid)
        refused(d, -19, ["lvs/w"], "bdev_lvol_delete", name="lvs/w")
        refused(d, -19, ["A0"], "bdev_lvol_delete", name="A0")
        refused(d, -1, ["read-only"], "bdev_lvol_clone", snapshot_name="lvs/v", clone_name="c")
        d.call("bdev_lvol_snapshot", lvol_name="lvs/v", snapshot_name="s")
        d.call("bdev_lvol_clone", snapshot_name="lvs/s", clone_name="c")
        refused(d, -16, ["several clones"], "bdev_lvol_delete", name="lvs/s")
        refused(d, -17, ["lvs/c"], "bdev_lvol_rename", old_name="lvs/v", new_name="c")
        refused(d, -1, ["read-only"], "bdev_lvol_resize", name="lvs/s", size_in_mib=8)
        refused(d, -32602, ["size_in_mib"], "bdev_lvol_resize", name="lvs/v")
        refused(d, -32602, ["size_in_mib"], "bdev_lvol_resize", name="lvs/v", size_in_mib=8, size=8 * MIB)
        refused(d, -22, ["volume", "found again"], "bdev_lvol_create_lvstore", bdev_name="lvs/v", lvs_name="inner")
        stop_and_check(d, path)


if __name__ == "__main__":
    main(sys.modules[__name__])
