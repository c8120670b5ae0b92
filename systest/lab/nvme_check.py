#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check DEVICE BLOCK_SIZE BYTES: that every 16 bytes of the first BYTES of DEVICE begin with the LBA they belong to, as varve-perf
--verify has written them, with one generation per block. Used in the guest by lab/nvme_pcie.sh."""
import struct
import sys

device, block_size, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(device, "rb") as f:
    for lba in range(size // block_size):
        block = f.read(block_size)
        lbas = struct.unpack(f"<{block_size // 8}Q", block)[::2]
        generations = struct.unpack(f"<{block_size // 4}I", block)[2::4]
        if set(lbas) != {lba} or len(set(generations)) != 1 or generations[0] == 0:
            sys.exit(f"{device}: LBA {lba} holds LBAs {sorted(set(lbas))[:3]}, generations {sorted(set(generations))[:3]}")
print(f"{device}: {size // block_size} blocks as they were written")
