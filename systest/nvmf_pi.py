#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 300
# sanitize
"""Metadata and protection information from host to disk: passed, made, stripped, checked, over the software RDMA device."""
import base64
import struct
import sys

from appliance_lib import DEADLINE, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT, Host, Target, verifying, wait_io

BACK_PORT, FRONT_PORT = PORT, PORT + 20000
PRACT, GUARD, APP, REF, STORAGE = 1 << 29, 1 << 28, 1 << 27, 1 << 26, 1 << 24
WRITE, READ, COMPARE, WRITE_ZEROES, VERIFY = 1, 2, 5, 8, 0xc


def back(**transport):
    return Target(cores="[0]", port=BACK_PORT, **transport)


def front():
    return Target(cores="[1]", port=FRONT_PORT)


def attach(f, **params):
    return f.call("bdev_nvme_attach_controller", name="Nvme0", trtype="RDMA", adrfam="IPv4", traddr=ADDRESS, trsvcid=str(BACK_PORT),
                  subnqn=NQN, **params)


def malloc(d, name, block_size, md_size, dif_type=1, md_interleave=True, **params):
    return d.call("bdev_malloc_create", name=name, block_size=block_size, num_blocks=(16 << 20) // block_size, md_size=md_size,
                  md_interleave=md_interleave, dif_type=dif_type, **params)


def crc(data):
    """Of T10, bit by bit: not the one under test."""
    c = 0
    for byte in data:
        c ^= byte << 8
        for _ in range(8):
            c = (c << 1 ^ (0x8bb7 if c & 0x8000 else 0)) & 0xffff
    return c


def reflected_crc(data, polynomial, ones):
    c = ones
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (polynomial if c & 1 else 0)
    return c ^ ones


def crc32c(data):
    return reflected_crc(data, 0x82f63b78, (1 << 32) - 1)


def crc64(data):
    return reflected_crc(data, 0x9a6c9329ac4bc9b5, (1 << 64) - 1)


def tuple_of(data, ref, app, pi_format=0, storage=0):
    """Protection information of a block (NVM 5.2.1)."""
    if pi_format == 1:
        return struct.pack(">IHHQ", crc32c(data), app, storage, ref)
    if pi_format == 2:
        return struct.pack(">QHHI", crc64(data), app, ref >> 32, ref & (1 << 32) - 1)
    return struct.pack(">HHI", crc(data), app, ref)


def protected(blocks, ref, app, pi_format=0, storage=0):
    return b"".join(b + tuple_of(b, ref + i, app, pi_format, storage) for i, b in enumerate(blocks))


class Raw:
    """Commands of our own on the controller that front has attached."""

    def __init__(self, daemon):
        self.daemon = daemon

    def run(self, opcode, lba, blocks, prinfo, ref=0, app=0, data=None, length=0, nsid=1, storage=0):
        """(status, data)"""
        params = {"data": base64.urlsafe_b64encode(data).decode()} if data else {"data_len": length} if length else {}
        cmd = struct.pack("<BBHIII24xIIIIII", opcode, 0, 0, nsid, storage, ref >> 32, lba, 0, blocks - 1 | prinfo, 0, ref & (1 << 32) - 1, app)
        r = self.daemon.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="io", data_direction="c2h" if length else "h2c",
                             cmdbuf=base64.urlsafe_b64encode(cmd).decode(), **params)
        status = struct.unpack("<H", base64.urlsafe_b64decode(r["cpl"])[14:16])[0] >> 1 & 0x7ff
        return status, base64.urlsafe_b64decode(r["data"]) if length else None


def check_passed_made_and_checked(interleave):
    """The target's namespace has extended blocks; the host's raw commands bring and want protection information, and its
    bdev has it made and stripped by the target."""
    blocks = [bytes(i * 31 + j * 7 & 255 for j in range(512)) for i in range(4)]
    with back() as b, front() as f:
        b.add_ns(malloc(b, "M0", 512, 8, md_interleave=interleave))
        check(b.call("bdev_get_bdevs", name="M0")[0]["md_interleave"] is interleave, "shown by the target")
        bdev, = attach(f, prchk_guard=True, prchk_reftag=True)
        shown = f.call("bdev_get_bdevs", name=bdev)[0]
        check([shown[k] for k in ("block_size", "md_size", "md_interleave", "dif_type", "dif_is_head_of_md")] == [520, 8, True, 1, False], shown)
        check(shown["enabled_dif_check_types"] == {"guard": True, "reftag": True, "apptag": False}, shown)
        raw = Raw(f)
        never = b"".join(bytes(512) + b"\xff" * 8 for _ in range(4))
        check(raw.run(READ, 40, 4, GUARD | REF, 40, length=4 * 520) == (0, never), "never written, not to be checked")
        good = protected(blocks, 40, 0x1234)
        check(raw.run(WRITE, 40, 4, GUARD | APP | REF, 40, 0xffff1234, good)[0] == 0, "written")
        check(raw.run(READ, 40, 4, GUARD | APP | REF, 40, 0xffff1234, length=4 * 520) == (0, good), "read as it was")
        check(raw.run(READ, 40, 4, PRACT | GUARD | REF, 40, length=4 * 512) == (0, b"".join(blocks)), "stripped")
        check(raw.run(READ, 40, 4, APP, 0, 0xffff1235, length=4 * 520)[0] == 0x283, "application tag")
        check(raw.run(READ, 40, 4, REF, 41, length=4 * 520)[0] == 0x181, "a reference tag that type 1 cannot have")
        check(raw.run(WRITE, 50, 4, REF, 50, data=good)[0] == 0x284, "blocks that are for elsewhere")
        bad = bytearray(good)
        bad[2 * 520 + 100] ^= 1
        check(raw.run(WRITE, 40, 4, GUARD, data=bytes(bad))[0] == 0x282, "the guard is checked when it is written")
        check(raw.run(READ, 40, 4, 0, length=4 * 520) == (0, good), "nothing has changed")
        check(raw.run(WRITE, 40, 4, 0, data=bytes(bad))[0] == 0, "unchecked, the bad block is stored")
        check(raw.run(READ, 40, 4, PRACT | GUARD, length=4 * 512)[0] == 0x282, "and found when it is read")
        check(raw.run(VERIFY, 40, 4, GUARD)[0] == 0x282 and raw.run(VERIFY, 40, 2, GUARD)[0] == 0, "and by Verify")
        check("bdev M0: read of block 42: the guard is" in b.log(), b.log())
        check(raw.run(WRITE, 40, 4, 0, data=good)[0] == 0, "mended")
        check(raw.run(COMPARE, 40, 4, GUARD | REF, 40, data=good)[0] == 0, "the same")
        check(raw.run(COMPARE, 40, 4, 0, data=bytes(bad))[0] == 0x285, "not the same")
        check(raw.run(WRITE_ZEROES, 44, 2, PRACT, 44, 0x66)[0] == 0, "zeroes")
        check(raw.run(READ, 44, 2, GUARD | REF, 44, length=2 * 520) == (0, protected([bytes(512)] * 2, 44, 0x66)), "protected zeroes")
        check(raw.run(WRITE, 7, 1, PRACT, 7, 0x55, blocks[0])[0] == 0, "made by the target")
        check(raw.run(READ, 7, 1, 0, length=520) == (0, protected(blocks[:1], 7, 0x55)), "as it should be")
        f.add_ns(bdev)
        with verifying(f, 1, "-q", "8", "-t", str(DEADLINE)) as h:
            wait_io(f, [h], 1500)  # it fills its region first
            h.check_perfect(h.stop())
        f.call("bdev_nvme_detach_controller", name="Nvme0")
        b.wait_empty()
        b.stop_clean("the guard is", "the reference tag is", "the application tag is")


def test_protection_information_is_passed_made_and_checked():
    check_passed_made_and_checked(True)


def test_a_namespace_has_extended_blocks_also_where_metadata_is_kept_apart():
    """Fabrics have no other way (Base 3.3.1.2)."""
    check_passed_made_and_checked(False)


def test_protection_information_passes_a_target_that_has_it_from_another():
    """Host, target in the middle, target with the blocks: what the host sends is checked where the blocks are."""
    blocks = [bytes(i * 13 + j * 5 & 255 for j in range(512)) for i in range(4)]
    with back() as b, front() as f:
        b.add_ns(malloc(b, "M0", 512, 8))
        b.add_ns(malloc(b, "M1", 512, 8), nsid=2)
        bdevs = attach(f, prchk_guard=True, prchk_reftag=True)
        f.add_ns(bdevs[0])
        f.add_ns(bdevs[1], nsid=2, hide_metadata=True)
        b.call("bdev_nvme_attach_controller", name="Nvme0", trtype="RDMA", adrfam="IPv4", traddr=ADDRESS, trsvcid=str(FRONT_PORT), subnqn=NQN)
        host, below = Raw(b), Raw(f)
        good = protected(blocks, 40, 0x1234)
        check(host.run(WRITE, 40, 4, GUARD | APP | REF, 40, 0xffff1234, good)[0] == 0, "written")
        check(below.run(READ, 40, 4, 0, length=4 * 520) == (0, good), "it lies there as it was sent")
        check(host.run(READ, 40, 4, GUARD | APP | REF, 40, 0xffff1234, length=4 * 520) == (0, good), "and comes back so")
        check(host.run(READ, 40, 4, PRACT | GUARD | REF, 40, length=4 * 512) == (0, b"".join(blocks)), "stripped")
        bad = bytearray(good)
        bad[520 + 3] ^= 1
        check(host.run(WRITE, 40, 4, GUARD | REF, 40, data=bytes(bad))[0] == 0x282, "guard")
        check(host.run(WRITE, 44, 4, REF, 44, data=good)[0] == 0x284, "reference tag")
        check(host.run(WRITE, 40, 4, APP, 0, 0xffff1235, good)[0] == 0x283, "application tag")
        check("bdev M0: write of block 41: the guard is" in b.log() and "the guard is" not in f.log(), "the last one has checked")
        check(host.run(WRITE, 40, 4, 0, data=bytes(bad))[0] == 0, "unchecked")
        check(host.run(READ, 40, 4, GUARD, length=4 * 520)[0] == 0x282 and host.run(VERIFY, 40, 4, GUARD)[0] == 0x282, "found")
        check(host.run(WRITE, 50, 4, PRACT, 50, 0x77, b"".join(blocks))[0] == 0, "made")
        check(below.run(READ, 50, 4, 0, length=4 * 520) == (0, protected(blocks, 50, 0x77)), "as it should be")
        check(host.run(WRITE, 60, 4, 0, data=b"".join(blocks), nsid=2)[0] == 0, "hidden")
        check(below.run(READ, 60, 4, 0, length=4 * 520, nsid=2) == (0, protected(blocks, 60, 0)), "made all the same")
        check(host.run(READ, 60, 4, 0, length=4 * 512, nsid=2) == (0, b"".join(blocks)), "and left out")
        bad = bytearray(protected(blocks, 60, 0))
        bad[520 + 3] ^= 1
        check(below.run(WRITE, 60, 4, 0, data=bytes(bad), nsid=2)[0] == 0 and host.run(READ, 60, 4, 0, length=4 * 512, nsid=2)[0] == 0x282,
              "what goes bad below is found by the options of the controller")
        b.call("bdev_nvme_detach_controller", name="Nvme0")
        f.call("bdev_nvme_detach_controller", name="Nvme0")


def check_longer_guards(pi_format):
    """Type 2, whose reference tags the host chooses: one that a guard of 16 bits has no room for."""
    blocks = [bytes(i * 31 + j * 7 & 255 for j in range(512)) for i in range(4)]
    ref, both, tag = 0x7ffffffffffe, PRACT | GUARD | REF, 0xabcd if pi_format == 1 else 0
    with back() as b, front() as f:
        b.add_ns(malloc(b, "M0", 512, 16, 2, dif_pi_format=pi_format))
        b.add_ns(malloc(b, "M1", 512, 16, 1, dif_pi_format=pi_format), nsid=2)
        b.add_ns(malloc(b, "M2", 512, 32, 1, dif_pi_format=pi_format), nsid=3, hide_metadata=True)
        bdevs = attach(f, prchk_guard=True, prchk_reftag=True)
        shown = f.call("bdev_get_bdevs", name=bdevs[0])[0]
        check([shown[k] for k in ("block_size", "md_size", "dif_type", "dif_pi_format")] == [528, 16, 2, pi_format], shown)
        raw = Raw(f)
        good = protected(blocks, ref, 0x1234, pi_format, tag)
        check(raw.run(WRITE, 40, 4, GUARD | APP | REF | STORAGE, ref, 0xffff1234, good, storage=tag)[0] == 0, "written")
        check(raw.run(READ, 40, 4, GUARD | APP | REF | STORAGE, ref, 0xffff1234, length=4 * 528, storage=tag) == (0, good), "read as it was")
        check(raw.run(READ, 40, 4, both, ref, length=4 * 512) == (0, b"".join(blocks)), "stripped")
        check(raw.run(READ, 42, 2, both, ref + 2, length=2 * 512) == (0, b"".join(blocks[2:])), "the tag has gone on")
        check(raw.run(READ, 40, 4, both, ref ^ 1 << 40, length=4 * 512)[0] == 0x284, "reference tag")
        check(raw.run(READ, 40, 4, APP, 0, 0xffff1235, length=4 * 528)[0] == 0x283, "application tag")
        check(raw.run(READ, 40, 4, STORAGE, ref, length=4 * 528, storage=tag ^ 1)[0] == (0x288 if pi_format == 1 else 0), "storage tag")
        bad = bytearray(good)
        bad[2 * 528 + 100] ^= 1
        check(raw.run(WRITE, 40, 4, GUARD, data=bytes(bad))[0] == 0x282, "the guard is checked when it is written")
        check(raw.run(READ, 40, 4, 0, length=4 * 528) == (0, good), "nothing has changed")
        check(raw.run(WRITE, 40, 4, 0, data=bytes(bad))[0] == 0 and raw.run(READ, 40, 4, GUARD, length=4 * 528)[0] == 0x282, "found when it is read")
        check(raw.run(VERIFY, 40, 4, GUARD)[0] == 0x282 and raw.run(VERIFY, 40, 2, GUARD)[0] == 0, "and by Verify")
        check(raw.run(WRITE, 7, 1, PRACT, ref, 0x55, blocks[0], storage=tag)[0] == 0, "made by the target")
        check(raw.run(READ, 7, 1, 0, length=528) == (0, protected(blocks[:1], ref, 0x55, pi_format, tag)), "as it should be")
        check(raw.run(READ, 7, 1, REF, 8, length=528, nsid=2)[0] == 0x181, "a reference tag that type 1 cannot have")
        f.add_ns(bdevs[1])
        with verifying(f, 1, "-q", "8", "-t", str(DEADLINE)) as h:      # varve-perf has it made and stripped
            wait_io(f, [h], 1500)
            h.check_perfect(h.stop())
        f.add_ns(bdevs[2])
        with verifying(f, 2, "-q", "8", "-t", str(DEADLINE)) as h:
            wait_io(f, [h], 1500)
            h.check_perfect(h.stop())
        f.call("bdev_nvme_detach_controller", name="Nvme0")
        b.wait_empty()
        b.stop_clean("the guard is", "the reference tag is", "the application tag is", "the storage tag is")


def test_guards_of_32_bits():
    check_longer_guards(1)


def test_guards_of_64_bits():
    check_longer_guards(2)


def test_hosts_without_protection_information_have_it_inserted_and_stripped():
    sizes = [("512", 512, 8, 1, 4096), ("4k", 4096, 64, 2, 16384), ("64k", 65536, 8, 1, 65536), ("apart", 4096, 16, 1, 16384)]
    with back(dif_insert_or_strip=True) as b:
        for nsid, (name, block, md, dif, _) in enumerate(sizes, 1):
            b.add_ns(malloc(b, name, block, md, dif, dif_is_head_of_md=nsid == 2, md_interleave=name != "apart"), nsid=nsid)
        for nsid, (*_, io_size) in enumerate(sizes, 1):
            with verifying(b, nsid, "-q", "8", "-o", str(io_size), "-t", str(DEADLINE)) as h:
                wait_io(b, [h], 500 + (4 << 20) // io_size)
                h.check_perfect(h.stop())
        check(b.call("nvmf_get_transports")[0]["dif_insert_or_strip"] is True, "shown")
        b.wait_empty()
        b.stop_clean()


def test_corruption_below_is_an_error_of_its_own_above():
    with back(dif_insert_or_strip=True) as b, front() as f:
        malloc(b, "M0", 4096, 8)
        b.call("bdev_error_create", base_name="M0")
        b.add_ns("EE_M0")
        attach(f)
        raw, data = Raw(f), bytes(range(256)) * 16
        check(raw.run(WRITE, 3, 1, 0, data=data)[0] == 0, "written")
        inject = {"name": "EE_M0", "error_type": "corrupt_data", "num": 1, "corrupt_offset": 700, "corrupt_value": 8}
        b.call("bdev_error_inject_error", io_type="read", **inject)
        check(raw.run(READ, 3, 1, 0, length=4096)[0] == 0x282, "read")
        check("bdev EE_M0: read of block 3: the guard is" in b.log(), b.log())
        b.call("bdev_error_inject_error", io_type="write", **inject)
        check(raw.run(WRITE, 3, 1, 0, data=data[::-1])[0] == 0x282, "write")
        check("bdev M0: write of block 3: the guard is" in b.log(), b.log())
        check(raw.run(READ, 3, 1, 0, length=4096) == (0, data), "what was there is there")


def test_one_namespace_hides_its_metadata_and_is_saved_so():
    with back() as b, front() as f:
        b.add_ns(malloc(b, "M0", 512, 8), hide_metadata=True)
        b.add_ns(malloc(b, "M1", 512, 8))
        attach(f)
        raw = Raw(f)
        check(raw.run(READ, 0, 1, 0, length=512)[0] == 0, "plain")
        check(raw.run(READ, 0, 1, 0, length=512, nsid=2)[0] != 0, "extended blocks are longer")
        check(raw.run(READ, 0, 1, 0, length=520, nsid=2)[0] == 0, "so long")
        saved = [c["params"]["namespace"] for c in b.call("framework_get_config", name="nvmf") if c["method"] == "nvmf_subsystem_add_ns"]
        check([n.get("hide_metadata", False) for n in saved] == [True, False], saved)


def test_blocks_of_64_kib_of_a_file():
    with back() as b:
        path = b.folder / "disk"
        with open(path, "wb") as file:
            file.truncate(16 << 20)
        b.add_ns(b.call("bdev_uring_create", name="U0", filename=str(path), block_size=65536))
        with verifying(b, 1, "-q", "4", "-o", "131072", "-t", str(DEADLINE)) as h:
            wait_io(b, [h], 100)
            h.check_perfect(h.stop())


def test_a_new_size_reaches_hosts_that_are_at_work():
    with back() as b, front() as f:
        b.call("bdev_null_create", name="N0", block_size=4096, num_blocks=4096, md_size=8, dif_type=1)
        b.add_ns("N0")
        bdev, = attach(f)
        f.add_ns(bdev)
        with Host(f, "-w", "randrw", "-q", "4", "-t", str(DEADLINE), nsid=1) as h:
            wait_io(f, [h])
            for mb in (64, 8, 32):
                b.call("bdev_null_resize", name="N0", new_size=mb)
                wait_for(lambda: f.call("bdev_get_bdevs", name=bdev)[0]["num_blocks"] == mb << 8, "the new size")
                if mb != 8: # where it may be beyond the end
                    wait_io(f, [h])
            check(h.is_running(), "the host has gone on")


def use_new_blocks(raw, first, end):
    """Writes and reads again the first and the last of them, and some between."""
    def blocks(lba):
        return b"".join(struct.pack("<QQ", lba + i, end) * 32 for i in range(8))
    at = [*range(first, end - 8, (end - 8 - first) // 5), end - 8]
    for lba in at:
        check(raw.run(WRITE, lba, 8, 0, data=blocks(lba))[0] == 0, f"write of block {lba}")
    for lba in at:
        check(raw.run(READ, lba, 8, 0, length=8 * 512) == (0, blocks(lba)), f"block {lba} is not as it was written")
    check(raw.run(WRITE, end - 7, 8, 0, data=blocks(0))[0] == 0x80, "a write beyond the new end")


def test_a_file_that_grows_under_verified_io_has_room_for_another_host():
    with back() as b, front() as f:
        path, mb = b.folder / "disk", 16
        b.add_ns(b.add_file("U0", path, mb))
        bdev, = attach(f)
        with verifying(b, 1, "-q", "8", "--region", "16M", "-t", "3600") as h:
            wait_io(b, [h], 4096 + 500)     # it fills its region first: all there is
            check(Raw(f).run(READ, mb << 11, 1, 0, length=512)[0] == 0x80, "blocks that are not there yet")
            for grown in (32, 40):
                with open(path, "r+b") as file:
                    file.truncate(grown << 20)
                check(b.call("bdev_uring_rescan", name="U0") is True, "rescan")
                wait_for(lambda: f.call("bdev_get_bdevs", name=bdev)[0]["num_blocks"] == grown << 11, "the other host to see the new size")
                use_new_blocks(Raw(f), mb << 11, grown << 11)
                wait_io(b, [h], 2000)
                mb = grown
            h.check_perfect(h.stop())
        f.call("bdev_nvme_detach_controller", name="Nvme0")
        b.wait_empty()
        b.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
