#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check DEVICE BLOCK_SIZE BYTES: that the first BYTES of DEVICE are blocks as varve-perf --verify writes them (tools/perf/pattern.h): every 16
bytes begin with their block's LBA and the generation of one write; the last 16 bytes begin with the writer, the same in all blocks.
Used in the guest by lab/nvme_pcie.sh, where a loop over all cells of all blocks takes an emulated CPU seconds: so many blocks at once are compared
with themselves, moved by a cell, and only blocks that differ are looked at closely."""
import struct
import sys

AT_ONCE = 256       # blocks


def number(data):
    return int.from_bytes(data, "little")


def why_wrong(first, blocks, block_size, writers):
    """What is wrong with the first bad one of some blocks, or None; block by block."""
    for n in range(len(blocks) // block_size):
        *cells, last = struct.iter_unpack("<QII", blocks[n * block_size:(n + 1) * block_size])
        lbas, generations = {c[0] for c in cells}, {c[1] for c in cells}
        writers.add(last[0])
        if lbas != {first + n} or len(generations) != 1 or 0 in generations:
            return f"LBA {first + n} holds LBAs {sorted(lbas)[:3]}, generations {sorted(generations)[:3]}"
        if len(writers) != 1:
            return f"LBA {first + n} is of another writer: {sorted(map(hex, writers))}"
    return None


def are_right(first, blocks, block_size, writers):
    """The same for all blocks together: every cell but the last is like the one in front of it, and the first is as it should be."""
    n = len(blocks) // block_size
    like = number(((b"\xff" * 12 + bytes(4)) * (block_size // 16 - 2) + bytes(32)) * n)
    ends = list(struct.iter_unpack(f"<QI{block_size - 28}xQ8x", blocks))
    found = writers | {writer for _, _, writer in ends}
    return ((number(blocks[16:]) ^ number(blocks[:-16])) & like == 0 and [lba for lba, _, _ in ends] == list(range(first, first + n))
            and all(generation for _, generation, _ in ends) and len(found) == 1)


def main():
    device, block_size, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    writers = set()
    with open(device, "rb") as f:
        for first in range(0, size // block_size, AT_ONCE):
            wanted = min(AT_ONCE, size // block_size - first) * block_size
            blocks = f.read(wanted)
            if len(blocks) != wanted:
                sys.exit(f"{device}: only {len(blocks)} of {wanted} bytes come from LBA {first} on")
            if not are_right(first, blocks, block_size, writers):
                sys.exit(f"{device}: {why_wrong(first, blocks, block_size, writers) or f'no good block from LBA {first} on'}")
            writers.add(number(blocks[-16:-8]))
    print(f"{device}: {size // block_size} blocks as they were written")


if __name__ == "__main__":
    main()
