#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 120
# sanitize
"""The limits of Write Zeroes and deallocations that a subsystem has: hosts are told, what exceeds them is refused, and a varve as host stays below them."""
import struct
import sys

from appliance_lib import check, main
from nvmf_copy import BACK_PORT, BLOCKS, BS, FRONT_PORT, Disk, attach, pattern
from nvmf_lib import NQN, Target

WRITE_ZEROES, DSM, IDENTIFY_NVM_CTRLR = 0x08, 0x09, 0x06
INVALID_FIELD, SIZE_LIMIT = 0x02, 0x183
LIMITS = {"dmrsl": 100, "wzsl": 3}      # 32 KiB are 64 blocks


def deallocate(disk, lba, n):
    return disk.status(DSM, struct.pack("<IIQ", 0, n, lba), cdw10=0, cdw11=4)


def limited_target(d, bdev):
    """The target's subsystem, made again with the limits."""
    d.call("nvmf_delete_subsystem", nqn=NQN)
    d.add_subsystem(NQN, **LIMITS)
    d.add_ns(bdev)


def test_limits_are_told_and_kept():
    with Target(cores="[0]", port=BACK_PORT) as back, Target(cores="[1]", port=FRONT_PORT) as front, \
            Target(cores="[0]", port=FRONT_PORT + 1) as host:
        limited_target(back, back.add_malloc("M0"))
        saved = [e["params"] for e in back.call("framework_get_config", name="nvmf") if e["method"] == "nvmf_create_subsystem"]
        check([{k: s[k] for k in LIMITS} for s in saved] == [LIMITS], saved)
        attach(host, BACK_PORT, "Nvme0")
        disk = Disk(host, 1)
        check(struct.unpack_from("<xBxxI", disk.identify(IDENTIFY_NVM_CTRLR)) == (LIMITS["wzsl"], LIMITS["dmrsl"]), "WZSL, DMRSL")
        data = pattern(120, 1)
        disk.write(0, data)
        check(disk.status(WRITE_ZEROES, cdw12=64) == INVALID_FIELD, "Write Zeroes of 65 blocks")
        check(deallocate(disk, 0, 101) == SIZE_LIMIT, "a range of 101 blocks")
        check(disk.read(0, 120) == data, "what was refused changed nothing")
        check(disk.status(WRITE_ZEROES, cdw12=63) == 0, "Write Zeroes of 64 blocks")
        check(disk.read(0, 120) == bytes(64 * BS) + data[64 * BS:], "64 zeroes")
        check(deallocate(disk, 0, 100) == 0, "a range of 100 blocks")
        host.call("bdev_nvme_detach_controller", name="Nvme0")

        check(attach(front, BACK_PORT, "Nvme0") == ["Nvme0n1"], "the namespace with limits")
        front.add_ns("Nvme0n1")
        attach(host, FRONT_PORT, "Nvme0")
        disk.write(1000, data)
        check(disk.status(WRITE_ZEROES, cdw10=900, cdw12=999) == 0, "Write Zeroes of 1000 blocks, which the varve between them divides")
        check(disk.read(1000, 120) == bytes(120 * BS), "zeroes")
        disk.write(1000, data)
        check(deallocate(disk, 0, BLOCKS) == 0, "a range of all blocks, divided likewise")
        check(disk.read(1000, 120) == bytes(120 * BS), "deallocated")


if __name__ == "__main__":
    main(sys.modules[__name__])
