#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# sanitize
# beside
"""varve-lvol on stores that another program made: one that was closed, and one whose program was killed. What they hold is known."""
import contextlib
import fcntl
import json
import lzma
import os
import struct
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from appliance_lib import BUILD, DEADLINE, TOP, check, main
from nvmf_tcp_lib import crc32c

DATA = TOP / "unittest/data"
TOOL = BUILD / "bin/varve-lvol"
MIB = 1 << 20
MD_FIRST, PAGE = 4, 4096


@contextlib.contextmanager
def store(kind):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.img"
        path.write_bytes(lzma.decompress((DATA / f"stock_lvstore_{kind}.img.xz").read_bytes()))
        yield path


def run(*arguments, status=0, **options):
    p = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, timeout=DEADLINE, **options)
    check(p.returncode == status, f"{arguments}: {p.returncode}, not {status}: {p.stderr.decode()}")
    return p.stdout, p.stderr.decode()


def block(which, number):
    return struct.pack("<QQ", which, number) * 256


def contents(volume):
    """What the volumes' writers wrote: block by block, None for zeroes."""
    size = {"thick": 2048, "thin": 4096, "snap1": 4096, "clone1": 4096, "late": 1024}[volume]
    known = {b: (2, b - 512) for b in range(512, 1280)} if volume in ("thin", "snap1", "clone1") else {}
    if volume == "thick":
        known = {b: (1, b) for b in range(2048)}
    if volume == "clone1":
        known.update({b: (3, b - 600) for b in range(600, 856)})
    return b"".join(block(*known[b]) if b in known else bytes(PAGE) for b in range(size))


def test_volumes_are_listed_as_their_maker_listed_them():
    theirs = json.loads((DATA / "stock_lvols.json").read_text())
    for kind, count in (("clean", 4), ("dirty", 5)):
        with store(kind) as path:
            ours = json.loads(run("list", "--json", path)[0])
            snapshots = {v["name"]: v.pop("base_snapshot", None) for v in ours}
            check(ours == [v | {"num_reserved_clusters": 0} for v in theirs[:count]], f"{kind}: {ours}")
            check(snapshots["thin"] == snapshots["clone1"] == "snap1" and snapshots["thick"] is None, snapshots)
            text = run("list", path)[0].decode()
            check("store lvs0, UUID 14ace1d1-a1e1-4f1d-838e-f8c5b0aed151, 95 clusters of 1024 KiB" in text, text)
            check(("was not closed" in text) == (kind == "dirty"), text)


def test_volumes_hold_what_was_written():
    with store("dirty") as path:
        for volume in ("thick", "thin", "snap1", "clone1", "late"):
            check(run("read", path, volume)[0] == contents(volume), f"{volume} differs")
        check(run("read", path, "lvs0/thick")[0] == contents("thick"), "by alias")
        check(run("read", path, "9ac30390-2d44-4695-b74b-27ef2ef1c2b9")[0] == contents("clone1"), "by UUID")


def test_parts_of_a_volume_are_read():
    with store("clean") as path:
        whole = contents("clone1")
        for offset, size in ((0, 1), (599 * PAGE + 5, 3 * PAGE), (2 * MIB - 3, 7), (3 * MIB, 5 * MIB), (16 * MIB, 0), (16 * MIB - 1, 1)):
            check(run("read", "-O", offset, "-n", size, path, "clone1")[0] == whole[offset:offset + size], (offset, size))
        check(run("read", "-O", "15M", path, "clone1")[0] == whole[15 * MIB:], "up to the end")
        for options in (["-O", 16 * MIB + 1], ["-n", 16 * MIB + 1], ["-O", "16M", "-n", 1]):
            check("clone1 has 16777216 bytes" in run("read", *options, path, "clone1", status=2)[1], options)


def test_good_stores_have_no_problems():
    for kind, words in (("clean", "4 volumes, 13 of 95 clusters in use, 0 problems"), ("dirty", "5 volumes, 13 of 95 clusters in use, 0 problems; it was not closed")):
        with store(kind) as path:
            check(words in run("check", path)[0].decode(), kind)


def test_damage_is_found_wherever_it_is():
    with store("clean") as path:
        good = path.read_bytes()
        for page in range(8):
            damaged = bytearray(good)
            damaged[(MD_FIRST + page) * PAGE + 100] ^= 1
            path.write_bytes(damaged)
            check(f"metadata page {page}: crc" in run("check", path, status=1)[1], page)
        for page, name in ((1, "metadata pages"), (2, "clusters"), (3, "metadata page")):
            damaged = bytearray(good)
            damaged[page * PAGE + 5] ^= 0x40 if page < 3 else 0x10
            path.write_bytes(damaged)
            check(name in run("check", path, status=1)[1], name)
        damaged = bytearray(good)
        damaged[28] ^= 1
        path.write_bytes(damaged)
        check("; there is no copy of it" in run("check", path, status=1)[1], "the superblock")
        path.write_bytes(good)
        check(b"its superblock has no copy: varve makes one" in run("check", path)[0], "another program made the store")


def test_a_damaged_volume_is_not_read_and_the_others_are():
    with store("clean") as path:
        image = bytearray(path.read_bytes())
        image[(MD_FIRST + 5) * PAGE + 100] ^= 1
        path.write_bytes(image)
        for volume in ("clone1", "thin"):
            error = run("read", path, volume, status=1)[1]
            check("is damaged" in error, error)
        check(run("read", path, "thick")[0] == contents("thick"), "thick")


def test_a_repaired_store_is_as_its_maker_would_have_closed_it():
    with store("clean") as path:
        good = path.read_bytes()
        check(b"is marked as closed" in run("repair", path)[0] and path.read_bytes() == good, "a good store stays as it is, byte by byte")
        image = bytearray(good)
        image[16] = 0                       # as if it had not been closed
        image[PAGE:4 * PAGE] = os.urandom(3 * PAGE)
        path.write_bytes(image)
        check("superblock: crc" not in run("repair", path)[1] and path.read_bytes() == good, "of masks that are lost")
    with store("dirty") as path:
        run("repair", path)
        check("5 volumes, 13 of 95 clusters in use, 0 problems\n" in run("check", path)[0].decode(), "closed")
        for volume in ("thick", "thin", "snap1", "clone1", "late"):
            check(run("read", path, volume)[0] == contents(volume), f"{volume} differs")


def test_a_repair_loses_a_damaged_volume_only_when_told_to():
    with store("clean") as path:
        image = bytearray(path.read_bytes())
        image[(MD_FIRST + 6) * PAGE + 100] ^= 1     # clone1
        path.write_bytes(image)
        out, error = run("repair", path, status=1)
        check("not repaired: volume 0x100000006" in error and "is not certain" in error and path.read_bytes() == image, error)
        check("it is not damaged" in run("repair", "-d", "thick", path, status=1)[1] and path.read_bytes() == image, "thick")
        check("there is no such volume" in run("repair", "-d", "none", path, status=1)[1] and path.read_bytes() == image, "none")
        check(b"dropped 0x100000006" in run("repair", "--drop", "0x100000006", path)[0], "dropped")
        check("3 volumes, 11 of 95 clusters in use, 0 problems" in run("check", path)[0].decode(), "its clusters are free")
        check(run("read", path, "thin")[0] == contents("thin"), "the snapshot's other clone")


def opened_by(image, machine, pid, started):
    """The same store, as the program of such a process leaves it while it has it open for writing."""
    boot = uuid.UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    md_pages = struct.unpack_from("<I", image, 52)[0]
    size = struct.unpack_from("<Q", image, 80)[0]
    page = bytearray(image[:PAGE])
    struct.pack_into("<I", page, 8, 4)
    struct.pack_into("<I", page, 16, 0)
    struct.pack_into("<8sIIQII16s16sQQI64s", page, PAGE - 512, b"VARVEOPN", 4, 0, size, md_pages - 8, 4, machine, boot, started, 1, pid, b"other\n")
    return bytes(page[:-4]) + crc32c(page[:-4]) + image[PAGE:]


def test_a_store_that_a_program_has_open_is_repaired_only_for_another_machine():
    try:
        machine = bytes.fromhex(Path("/etc/machine-id").read_text().strip())
    except (OSError, ValueError):
        machine = b""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    with store("clean") as path:
        good = path.read_bytes()
        if len(machine) == 16:
            image = opened_by(good, machine, os.getpid(), started)
            path.write_bytes(image)
            for command in ("list", "check"):
                check(f"process {os.getpid()}, which lives\n" in run(command, path)[0].decode(), command)
            for arguments in (["repair"], ["repair", "-d", "clone1"]):
                error = run(*arguments, path, status=1)[1]
                check("not repaired: the store is open: machine other?" in error and path.read_bytes() == image, error)
            path.write_bytes(opened_by(good, machine, os.getpid(), started + 1))
            check("which has ended\n" in run("list", path)[0].decode(), "another process has its pid")
            check(b"is marked as closed" in run("repair", path)[0] and path.read_bytes()[:PAGE] == good[:PAGE], "of one that has ended")
        path.write_bytes(opened_by(good, b"another machine.", os.getpid(), started))
        check("which may have it open\n" in run("check", path)[0].decode(), "another machine's")
        check(b"is marked as closed" in run("repair", path)[0] and path.read_bytes()[:PAGE] == good[:PAGE], "whoever calls for it knows")
        check("opened by" not in run("list", path)[0].decode(), "closed")


def test_what_is_no_store_is_named():
    with store("clean") as path:
        size = path.stat().st_size
        os.truncate(path, size - PAGE)
        check(f"size {size}, but the device has {size - PAGE} bytes" in run("list", path, status=1)[1], "too short")
        path.write_bytes(bytes(8192))
        check("there is no volume store" in run("list", path, status=1)[1], "zeroes")
        path.write_bytes(b"x")
        check("there is no volume store: 1 bytes are too few" in run("list", path, status=1)[1], "a byte")
        check("No such file" in run("list", path.parent / "none", status=2)[1], "none")
        check("neither a file nor a block device" in run("list", path.parent, status=2)[1], "a folder")


def test_a_store_that_is_in_use_is_left_alone():
    with store("clean") as path, open(path, "r+b") as f:
        fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhllhh", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0, 0))
        check("another program has it open" in run("check", path, status=2)[1], "locked")


def test_wrong_usage_says_what_is_allowed():
    for arguments, words in (([], "a command is missing"), (["mend"], "there is no command 'mend'"), (["list"], "another number of arguments"),
                             (["list", "a", "b"], "another number"), (["read", "a"], "another number"), (["check", "-j", "a"], "does not take -j"),
                             (["list", "-O", "1", "a"], "does not take -O"), (["read", "-O", "x", "a", "b"], "'x' is not a number of bytes"),
                             (["list", "--none", "a"], "--none")):
        check(words in run(*arguments, status=2)[1], f"{arguments}: {words}")
    check("Usage: varve-lvol" in run("-h")[0].decode(), "-h")
    with store("clean") as path:
        check("there is no volume none" in run("read", path, "none", status=1)[1], "none")
        p = subprocess.run([TOOL, "read", path, "thick"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, timeout=DEADLINE)
        check(p.returncode == 2 and b"writing failed" in p.stderr, f"a full disk: {p.returncode} {p.stderr}")


if __name__ == "__main__":
    main(sys.modules[__name__])
