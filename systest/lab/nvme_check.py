#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check DEVICE BLOCK_SIZE BYTES: that the first BYTES of DEVICE are blocks as varve-perf --verify writes them (tools/perf/pattern.h): every 16
bytes begin with their block's LBA and the generation of one write; the last 16 bytes begin with the writer, the same in all blocks.
Used in the guest by lab/nvme_pcie.sh."""
import struct
import sys

device, block_size, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
writers = set()
with open(device, "rb") as f:
    for lba in range(size // block_size):
        *cells, last = struct.iter_unpack("<QII", f.read(block_size))
        lbas, generations = {c[0] for c in cells}, {c[1] for c in cells}
        writers.add(last[0])
        if lbas != {lba} or len(generations) != 1 or 0 in generations:
            sys.exit(f"{device}: LBA {lba} holds LBAs {sorted(lbas)[:3]}, generations {sorted(generations)[:3]}")
        if len(writers) != 1:
            sys.exit(f"{device}: LBA {lba} is of another writer: {sorted(map(hex, writers))}")
print(f"{device}: {size // block_size} blocks as they were written")
