#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 600
# budget: VARVE_LVOL_FORMAT_SECONDS=20
"""A stock program must find nothing wrong with a store that varve has closed. A second reader of the format (lvol_format_lib.py) walks every page of it:
of the two samples that a stock program made, before and after varve had them open, and of stores on which varve did anything, from a seed: after each few
operations the store is closed, and read as the stock program would read it. The data of all volumes must be those that hosts wrote. VARVE_SEED repeats
the operations of a run."""
import lzma
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from appliance_lib import BUILD, DEADLINE, TOP, Daemon, RpcError, check, main, wait_for
from lvol_format_lib import ID_HIGH, PAGE, LvolImage
from lvol_tool import contents
from nvmf_tcp_lib import Queue, TcpTarget, crc32c

MIB = 1 << 20
SECONDS = float(os.environ.get("VARVE_LVOL_FORMAT_SECONDS", "20"))
SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
VOLUMES = 12                            # at most so many at a time


def sample(kind, folder):
    path = Path(folder) / kind
    path.write_bytes(lzma.decompress((TOP / f"unittest/data/stock_lvstore_{kind}.img.xz").read_bytes()))
    return path


def judge(path, why=""):
    store = LvolImage(path)
    check(not store.faults, f"{why}: the stock program would refuse it: {store.faults[:10]}")
    return store


def attach(d, path):
    d.call("bdev_uring_create", name="A0", filename=str(path), block_size=4096)
    d.call("bdev_wait_for_examine")


def tool(*arguments):
    p = subprocess.run([BUILD / "bin/varve-lvol", *map(str, arguments)], capture_output=True, timeout=DEADLINE, check=False)
    return p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode()


def closed_by_varve(path, change=None):
    with Daemon() as d:
        attach(d, path)
        if change:
            change(d)
        check(d.stop() == 0, d.log())


# ---- The samples ----

def test_the_judge_finds_nothing_in_a_store_that_was_closed():
    with tempfile.TemporaryDirectory() as folder:
        store = judge(sample("clean", folder))
        check({n: (v.own, len(v.clusters), v.parent and store.by_id[v.parent].name) for n, v in store.volumes.items()} ==
              {"thick": (8, 8, None), "thin": (0, 16, "snap1"), "snap1": (3, 16, None), "clone1": (2, 16, "snap1")}, "the volumes")
        for name in store.volumes:
            check(store.read(name) == contents(name), f"{name} differs")
        dirty = LvolImage(sample("dirty", folder))
        check(dirty.faults[0] == "superblock: clean is 0, not 1" and all("metadata page 8 " in f for f in dirty.faults[1:]), dirty.faults)
        check(dirty.read("late") == contents("late"), "the volume that the masks do not have yet")


def test_samples_are_good_after_varve_had_them():
    def change(d):
        d.call("bdev_lvol_snapshot", lvol_name="lvs0/thick", snapshot_name="snap2")
        d.call("bdev_lvol_rename", old_name="lvs0/thick", new_name="thicker")
        d.call("bdev_lvol_inflate", name="lvs0/clone1")
        d.call("bdev_lvol_create", lvs_name="lvs0", lvol_name="new", size_in_mib=3, thin_provision=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("clean", "dirty"):
            path = sample(kind, folder)
            names = {"thick", "thin", "snap1", "clone1"} | ({"late"} if kind == "dirty" else set())
            closed_by_varve(path)
            store = judge(path, f"{kind}, opened and closed")
            check(set(store.volumes) == names and all(store.read(n) == contents(n) for n in names), f"{kind}: {sorted(store.volumes)}")
            closed_by_varve(path, change)
            store = judge(path, f"{kind}, changed")
            now = {n: n for n in names - {"thick"}} | {"thicker": "thick", "snap2": "thick"}
            check(set(store.volumes) == {*now, "new"}, f"{kind}: {sorted(store.volumes)}")
            check(all(store.read(n) == contents(was) for n, was in now.items()) and not any(store.read("new")), f"{kind}: data differ")


def with_crc(page):
    return bytes(page[:-4]) + crc32c(page[:-4])


def test_a_damaged_superblock_is_made_anew_from_its_copy_when_an_operator_says_so():
    with tempfile.TemporaryDirectory() as folder:
        path = sample("clean", folder)
        closed_by_varve(path)
        good = path.read_bytes()
        check("no copy" not in tool("check", path)[1], "varve has made one")
        damaged = good[:8] + os.urandom(PAGE - 8) + good[PAGE:]
        path.write_bytes(damaged)
        status, out, error = tool("check", path)
        check(status == 1 and "superblock: crc is " in error and "; its copy is used" in error and "4 volumes, 13 of 95" in out, f"{status} {out} {error}")
        check(path.read_bytes() == damaged and tool("read", path, "thick")[0] == 0, "a check changes nothing")
        with Daemon() as d:
            attach(d, path)
            wait_for(lambda: "varve-lvol repair --superblock" in d.log(), "the log says what to do")
            check(d.call("bdev_lvol_get_lvstores") == [], "it is not opened")
            check(d.stop() == 0, d.log())
        status, _, error = tool("repair", path)
        check(status == 1 and "use --superblock if nothing else" in error, error)
        check(path.read_bytes() == damaged, "nothing was written")
        status, out, error = tool("repair", "--superblock", path)
        check(status == 0 and "its superblock and masks were made anew" in out and path.read_bytes()[:PAGE] == good[:PAGE], f"{out} {error}")
        judge(path, "repaired")
        with Daemon() as d:
            attach(d, path)
            check(len(d.call("bdev_lvol_get_lvols")) == 4, "its volumes")
            check(d.stop() == 0, d.log())
        judge(path, "opened and closed")


def test_a_disk_that_was_partitioned_is_no_store_any_more():
    with tempfile.TemporaryDirectory() as folder:
        path = sample("clean", folder)
        closed_by_varve(path)
        disk = path.read_bytes()
        disk = disk[:446] + struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0x83, 0, 0, 0, 2048, 100000).ljust(64, b"\0") + b"\x55\xaa" + disk[512:]
        path.write_bytes(disk)
        with Daemon() as d:
            attach(d, path)
            wait_for(lambda: "it has a partition table" in d.log(), "the log says why")
            check(d.stop() == 0, d.log())
        status, _, error = tool("repair", "--superblock", path)
        check(status == 1 and "it has a partition table" in error, error)
        check(path.read_bytes() == disk, "nothing was written")


def test_the_judge_names_each_damage():
    """Damage to bytes of the closed sample: (page, offset, what is put there, whether the page's checksum is made right, what the judge says)."""
    root = 4 + 6                                            # clone1's, whose page of extents is page 11
    cases = [(0, 8, struct.pack("<I", 4), True, "version is 4"), (0, 12, struct.pack("<I", 512), True, "length"), (0, 16, bytes(4), True, "clean is 0"),
             (0, 28, b"\1", False, "superblock: crc"), (0, 36, struct.pack("<I", 2), True, "not below"), (0, 44, bytes(4), True, "not below"),
             (0, 52, struct.pack("<I", 60000), True, "not below"), (0, 56, b"X", True, "type"), (0, 80, struct.pack("<Q", 96 * MIB + 4096), True, "size"),
             (0, 92, struct.pack("<I", 8192), True, "md_page_size"), (0, 88, struct.pack("<I", 3000), True, "io_unit"), (0, 3600, b"VARVEOPN", True, "reserved"),
             (1, 0, b"\1", False, "page_mask: type 1"), (1, 1, b"\x5f", False, "of 95 bits"), (1, 5, b"\xfe", False, "metadata page 0 is marked as free"),
             (1, 6, b"\1", False, "metadata page 8 is marked as used"), (1, 5 + 12, b"\1", False, "behind its end"), (2, 5, b"\xfb", False, "cluster 2 is marked as free"),
             (2, 9, b"\1", False, "cluster 32 is marked as used"), (3, 5, b"\x2b", False, "metadata page 6 is no volume's"),
             (3, 5, b"\x7b", False, "metadata page 4 is a volume's"), (root, 100, b"\1", False, "and there is none"), (root, 21, b"\x17", True, "flags"),
             (root, 29, b"\2", True, "flags"), (root, 4088, struct.pack("<I", 6), True, "its chain goes to metadata page 6"), (root, 45, b"\7", True, "descriptor 7"),
             (root + 1, 50, b"\1", False, "page of extents 7: crc"), (root + 1, 21, struct.pack("<I", 512), True, "from 512, not 16 from 0"),
             (root + 1, 25, struct.pack("<I", 1), True, "cluster 1 is that of"), (root + 1, 25, struct.pack("<I", 96), True, "behind the end"),
             (root - 1, 29, bytes(1), True, "which is missing or can be written"), (5, 21, b"\4\0\0\0\0\0\0\0\1", True, None)]
    with tempfile.TemporaryDirectory() as folder:
        path = sample("clean", folder)
        good = path.read_bytes()
        for number, at, what, right, words in cases:
            page = bytearray(good[number * PAGE:(number + 1) * PAGE])
            page[at:at + len(what)] = what
            path.write_bytes(good[:number * PAGE] + (with_crc(page) if right else bytes(page)) + good[(number + 1) * PAGE:])
            faults = LvolImage(path).faults
            check(not faults if words is None else any(words in f for f in faults), f"page {number}, offset {at}: {faults}")
        stale = bytearray(good[root * PAGE:(root + 1) * PAGE])
        struct.pack_into("<Q", stale, 0, ID_HIGH | 50)
        path.write_bytes(good[:54 * PAGE] + with_crc(stale) + good[55 * PAGE:])
        check(any("metadata page 50 is no volume's, and a scan" in f for f in LvolImage(path).faults), "a volume that would come back to life")


# ---- Anything, from a seed ----

class Maker:
    """Random operations on the volumes of one store, and what each volume must read as."""

    def __init__(self, rng, d, path, cluster):
        self.rng, self.d, self.path, self.cluster = rng, d, path, cluster
        self.data, self.read_only, self.count, self.done = {}, set(), 0, []
        d.call("bdev_uring_create", name="A0", filename=str(path), block_size=4096)
        d.call("bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs", cluster_sz=cluster)

    def new_name(self):
        self.count += 1
        return f"v{self.count}"

    def any(self, writable=False):
        names = [n for n in self.data if not writable or n not in self.read_only]
        return self.rng.choice(names) if names else None

    def attempt(self, method, **params):
        """None if there is a reason to refuse it: no room, too many clones, it is so already."""
        try:
            answer = self.d.call(method, **params)
        except RpcError as e:
            check(e.code in (-1, -16, -17, -22, -28), f"{method} {params}: {e.code} {e.message}")
            self.done.append(f"{method} {params}: {e.message}")
            return None
        self.done.append(f"{method} {params}")
        return answer

    def size(self, name):
        [b] = self.d.call("bdev_get_bdevs", name=f"lvs/{name}")
        return b["num_blocks"] * b["block_size"]

    def queue_of(self, name, fn):
        nsid = self.d.add_ns(f"lvs/{name}")
        with Queue(port=self.d.port) as admin:
            admin.enable()
            with Queue(port=self.d.port, qid=1, cntlid=admin.cntlid) as queue:
                answer = fn(queue, nsid)
        self.d.remove_ns(nsid)
        return answer

    def create(self):
        name, mib = self.new_name(), self.rng.choice((1, 3, 8, 40))
        thin = mib == 40 or self.rng.random() < 0.6
        if self.attempt("bdev_lvol_create", lvs_name="lvs", lvol_name=name, size_in_mib=mib, thin_provision=thin):
            self.data[name] = bytearray(self.size(name))

    def write(self):
        name = self.any(writable=True)
        if name is None:
            return
        data, writes = self.data[name], []
        for _ in range(self.rng.randint(1, 12)):
            blocks = self.rng.randint(1, 16)
            lba = self.rng.randrange(len(data) // 4096 - blocks)
            writes.append((lba, struct.pack("<QQ", self.count, self.rng.getrandbits(63)) * 256 * blocks))

        def send(queue, nsid):
            for lba, what in writes:
                code = queue.write(lba, what, 4096, nsid, in_capsule=len(what) == 4096).code
                check(code in (0, 0x81), f"a write of {name}: status {code:#x}")
                if code == 0:
                    data[lba * 4096:lba * 4096 + len(what)] = what
        self.queue_of(name, send)
        self.done.append(f"{len(writes)} writes of {name}")

    def unmap(self):
        """What is read afterwards is what must be read from then on."""
        name = self.any(writable=True)
        if name is None:
            return
        data = self.data[name]
        first = self.rng.randrange(len(data) // self.cluster) * self.cluster
        size = min(self.cluster * self.rng.randint(1, 3), len(data) - first, 4 * MIB)

        def send(queue, nsid):
            queue.good(queue.sqe(9, nsid, struct.pack("<II", 0, 4)), struct.pack("<IIQ", 0, size // 4096, first // 4096))
            for at in range(first, first + size, 16 * 4096):
                data[at:at + 16 * 4096] = queue.read(at // 4096, 16, 4096, nsid).data
        self.queue_of(name, send)
        self.done.append(f"unmap of {name} at {first}, {size} bytes")

    def snapshot(self):
        name, new = self.any(), self.new_name()
        if name and self.attempt("bdev_lvol_snapshot", lvol_name=f"lvs/{name}", snapshot_name=new):
            self.data[new] = bytearray(self.data[name])
            self.read_only.add(new)

    def clone(self):
        if self.read_only:
            name, new = self.rng.choice(sorted(self.read_only)), self.new_name()
            if self.attempt("bdev_lvol_clone", snapshot_name=f"lvs/{name}", clone_name=new):
                self.data[new] = bytearray(self.data[name])

    def resize(self):
        name = self.any(writable=True)
        if name and self.attempt("bdev_lvol_resize", name=f"lvs/{name}", size_in_mib=self.rng.choice((1, 2, 5, 9, 34, 70))):
            data, size = self.data[name], self.size(name)
            self.data[name] = data[:size] + bytes(size - min(size, len(data)))

    def delete(self):
        name = self.any()
        if name and self.attempt("bdev_lvol_delete", name=f"lvs/{name}"):
            del self.data[name]
            self.read_only.discard(name)

    def rename(self):
        name, new = self.any(), self.new_name() + "x" * self.rng.choice((0, 20, 55))
        if name and self.attempt("bdev_lvol_rename", old_name=f"lvs/{name}", new_name=new):
            self.data[new] = self.data.pop(name)
            if name in self.read_only:
                self.read_only.remove(name)
                self.read_only.add(new)

    def set_read_only(self):
        name = self.any(writable=True)
        if name and len(self.data) - len(self.read_only) > 3 and self.attempt("bdev_lvol_set_read_only", name=f"lvs/{name}"):
            self.read_only.add(name)

    def set_reservation(self):
        name = self.any(writable=True)
        if name:
            self.attempt("bdev_lvol_set_reservation", name=f"lvs/{name}", reserved_in_mib=self.rng.choice((0, 1, 4)))

    def fill(self):
        """inflate or decouple."""
        name = self.any(writable=True)
        if name:
            self.attempt(self.rng.choice(("bdev_lvol_inflate", "bdev_lvol_decouple_parent")), name=f"lvs/{name}")

    def set_parent(self):
        """To a snapshot of itself or of one that reads the same."""
        pairs = [(a, b) for a in self.data for b in self.read_only if a != b and a not in self.read_only and self.data[a] == self.data[b]]
        if pairs:
            a, b = self.rng.choice(pairs)
            self.attempt("bdev_lvol_set_parent", lvol_name=f"lvs/{a}", parent_name=f"lvs/{b}")

    def set_space_thresholds(self):
        self.attempt("bdev_lvol_set_space_thresholds", lvs_name="lvs", space_thresholds=sorted(self.rng.sample(range(1, 100), self.rng.randint(0, 8))))

    def grow(self):
        if self.path.stat().st_size < 192 * MIB:
            self.close_and_judge()
            os.truncate(self.path, self.path.stat().st_size + 16 * MIB)
            attach(self.d, self.path)
            self.attempt("bdev_lvol_grow_lvstore", lvs_name="lvs")

    OFTEN = ("create", "write", "write", "write", "snapshot", "snapshot", "clone", "unmap", "resize", "delete", "delete")
    SELDOM = ("rename", "set_read_only", "set_reservation", "fill", "set_parent", "set_space_thresholds", "grow")

    def step(self):
        what = self.rng.choice(self.OFTEN * 2 + self.SELDOM)
        if len(self.data) >= VOLUMES and what in ("create", "snapshot", "clone"):
            what = "delete"
        getattr(self, what)()

    def compare(self, path):
        store = judge(path, "; ".join(self.done[-40:]))
        check(set(store.volumes) == set(self.data), f"{sorted(store.volumes)}, not {sorted(self.data)}")
        for name, data in self.data.items():
            check(store.read(name) == data, f"{name} differs; {'; '.join(self.done[-40:])}")
        return store

    def close_and_judge(self):
        own = {v["name"]: v["num_allocated_clusters"] for v in self.d.call("bdev_lvol_get_lvols")}
        self.d.call("bdev_uring_delete", name="A0")
        store = self.compare(self.path)
        check({n: v.own for n, v in store.volumes.items()} == own, f"{own} were answered")


def run_operations(rng, cluster, folder):
    """Some steps, with the store closed and judged between them, and a kill at the end."""
    path = Path(folder) / "store"
    with open(path, "wb") as f:
        f.truncate(128 * MIB)
    with TcpTarget() as d:
        maker = Maker(rng, d, path, cluster)
        for _ in range(6):
            for _ in range(10):
                maker.step()
            maker.close_and_judge()
            attach(d, path)
        for _ in range(10):
            maker.step()
        d.stop(signal.SIGKILL)
    killed = LvolImage(path)
    check("superblock: version is 4, not 3" in killed.faults, f"a store that was not closed must be refused: {killed.faults}")
    shutil.copy(path, f"{path}.killed")
    closed_by_varve(path)
    maker.compare(path)
    p = subprocess.run([BUILD / "bin/varve-lvol", "repair", f"{path}.killed"], capture_output=True, text=True, timeout=DEADLINE, check=False)
    check(p.returncode == 0, f"repair: {p.stdout}{p.stderr}")
    maker.compare(f"{path}.killed")
    return len(maker.done)


def test_stores_are_good_after_anything():
    print(f"the seed is {SEED}", flush=True)
    rng, end, operations, rounds = random.Random(SEED), time.monotonic() + SECONDS, 0, 0
    clusters = [64 << 10, MIB, 4 * MIB]
    while rounds < len(clusters) or time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            operations += run_operations(rng, clusters[rounds % len(clusters)], folder)
        rounds += 1
    print(f"{operations} operations on {rounds} stores", flush=True)


def test_clones_of_a_bdev_are_kept():
    with tempfile.TemporaryDirectory() as folder:
        path, other = Path(folder) / "store", Path(folder) / "other"
        other.write_bytes(os.urandom(3 * MIB) + b"end".ljust(MIB, b"\0"))
        with open(path, "wb") as f:
            f.truncate(64 * MIB)
        with Daemon() as d:
            d.call("bdev_uring_create", name="A0", filename=str(path), block_size=4096)
            d.call("bdev_uring_create", name="Image", filename=str(other), block_size=4096, uuid=str(uuid.UUID(int=7)))
            d.call("bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs", cluster_sz=MIB)
            d.call("bdev_lvol_clone_bdev", bdev="Image", lvs_name="lvs", clone_name="c")
            d.call("bdev_lvol_snapshot", lvol_name="lvs/c", snapshot_name="s")
            d.call("bdev_lvol_clone_bdev", bdev="Image", lvs_name="lvs", clone_name="copy")
            d.call("bdev_lvol_decouple_parent", name="lvs/copy")
            check(d.stop() == 0, d.log())
        store = judge(path)
        check(store.volumes["s"].internal.keys() == {"EXTSNAP"} and store.volumes["c"].internal.keys() == {"SNAP"} and not store.volumes["copy"].internal, "the parents")
        check(all(store.read(n, other.read_bytes()) == other.read_bytes() for n in ("s", "c", "copy")) and store.read("copy") == other.read_bytes(), "the data")


if __name__ == "__main__":
    main(sys.modules[__name__])
