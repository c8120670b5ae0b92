#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 300
# sanitize
"""The target over TCP, judged by an initiator that was written from the specification (nvmf_tcp_lib.py): connecting, discovery, reads and
writes of all sizes in every form, digests, alignment."""
import random
import struct
import sys

from appliance_lib import check, main
from nvmf_lib import ADDRESS, NQN, PORT
from nvmf_tcp_lib import DISCOVERY, Queue, TcpTarget

BS, BLOCKS = 512, 32768
SIZES = (1, 2, 7, 8, 9, 16, 17, 64, 255, 256)  # blocks: up to max_io_size


def fill(n, seed):
    return random.Random(seed).randbytes(n)


def test_discovery_log_names_the_listener():
    with TcpTarget() as t:
        with Queue(nqn=DISCOVERY) as admin:
            admin.enable()
            log = admin.log_page(0x70, 1024 * 3)
            entries = [log[1024 * i:1024 * (i + 1)] for i in range(1, 3)]
            mine = [e for e in entries if e[256:512].rstrip(b"\0") == NQN.encode()]
            check(len(mine) == 1, entries)
            trtype, adrfam, subtype = struct.unpack_from("<BBB", mine[0])
            check((trtype, adrfam, subtype) == (3, 1, 2), mine[0][:32])
            check(mine[0][32:64].strip(b" \0") == str(PORT).encode() and mine[0][512:768].rstrip(b" \0") == ADDRESS.encode(), mine[0])
            check(mine[0][768] == 0, "SECTYPE")
        t.wait_empty()
        t.stop_clean()


def test_identify_tells_what_the_transport_has():
    with TcpTarget(in_capsule_data_size=8192) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        with Queue() as admin:
            admin.enable()
            controller = admin.identify(1)
            ioccsz, iorcsz = struct.unpack_from("<II", controller, 1792)
            sgls, = struct.unpack_from("<I", controller, 536)
            check(ioccsz == (64 + 8192) // 16 and iorcsz == 1, (ioccsz, iorcsz))
            check(sgls & 1 << 21 and sgls & 1 << 20, f"SGLS {sgls:#x}")
            nsze, = struct.unpack_from("<Q", admin.identify(0, 1))
            check(nsze == BLOCKS, nsze)


def both(t, size=32, **options):
    """An admin queue and an I/O queue of one controller."""
    admin = Queue(**options)
    admin.enable()
    return admin, Queue(qid=1, cntlid=admin.cntlid, size=size, **options)


def write_and_read_all_sizes(t, rng, **options):
    admin, q = both(t, **options)
    with admin, q:
        shadow = bytearray(q.read(0, 256).data + q.read(256, 256).data)
        for i in range(40):
            blocks = SIZES[i % len(SIZES)]
            lba = rng.randrange(512 - blocks)
            data = rng.randbytes(blocks * BS)
            c = q.write(lba, data, in_capsule=blocks * BS <= 4096 and rng.random() < 0.5)
            check(c.status == 0, f"write of {blocks} blocks: {c.status:#x}")
            shadow[lba * BS:(lba + blocks) * BS] = data
            blocks = rng.choice(SIZES)
            lba = rng.randrange(512 - blocks)
            c = q.read(lba, blocks)
            check(c.status == 0 and c.data == shadow[lba * BS:(lba + blocks) * BS], f"read of {blocks} blocks at {lba}")


def test_reads_and_writes_of_all_sizes():
    with TcpTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        for n, (hdgst, ddgst, hpda) in enumerate(((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 31), (0, 0, 31), (1, 1, 5))):
            write_and_read_all_sizes(t, random.Random(n), hdgst=hdgst, ddgst=ddgst, hpda=hpda)
        t.wait_empty()
        t.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
