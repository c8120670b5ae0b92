#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 300
# sanitize
"""The target over TCP, judged by an initiator that was written from the specification (nvmf_tcp_lib.py): connecting, discovery, reads and
writes of all sizes in every form, digests, alignment."""
import pathlib
import random
import socket
import struct
import subprocess
import sys

from appliance_lib import BUILD, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT
from nvmf_tcp_lib import DISCOVERY, R2T, Queue, TcpTarget

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


def write_and_read_all_sizes(t, rng, in_capsule=4096, **options):
    admin, q = both(t, **options)
    with admin, q:
        shadow = bytearray(q.read(0, 256).data + q.read(256, 256).data)
        for i in range(40):
            blocks = SIZES[i % len(SIZES)]
            lba = rng.randrange(512 - blocks)
            data = rng.randbytes(blocks * BS)
            c = q.write(lba, data, in_capsule=blocks * BS <= in_capsule and rng.random() < 0.5)
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


def test_capsules_of_8_kib_are_whole():
    """Each write that fits comes in its capsule, up to the last block of 8 KiB; then a mixture of all forms."""
    rng = random.Random(18)
    with TcpTarget(in_capsule_data_size=8192) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        for hdgst, ddgst in ((0, 0), (1, 1)):
            admin, q = both(t, hdgst=hdgst, ddgst=ddgst)
            with admin, q:
                for lba in range(8):
                    for blocks in (15, 16, 1, 9, 8, 16):
                        data = rng.randbytes(blocks * BS)
                        q.received.clear()
                        check(q.write(lba, data).status == 0, f"write of {blocks} blocks in a capsule")
                        check(R2T not in q.received, "an R2T for data that were in the capsule")
                        check(q.read(lba, blocks).data == data, f"{blocks} blocks at {lba} are others than those in the capsule")
                data = [rng.randbytes(8192) for _ in range(31)]
                cids = [q.start(q.rw_sqe(1, 16 * i, 16), d) for i, d in enumerate(data)]
                check(all(q.finish(cid).status == 0 for cid in cids), "writes at once")
                check(q.read(0, 248).data + q.read(248, 248).data == b"".join(data), "capsules that were under way at once")
            write_and_read_all_sizes(t, rng, in_capsule=8192, hdgst=hdgst, ddgst=ddgst)
        t.wait_empty()
        t.stop_clean()


def test_commands_under_way_at_once():
    rng = random.Random(5)
    with TcpTarget(c2h_success=False) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin, q = both(t, size=128)
        with admin, q:
            data = [rng.randbytes(rng.choice((512, 4096, 16384, 131072))) for _ in range(100)]
            cids = [q.start(q.rw_sqe(1, 256 * i, len(d) // BS), d, in_capsule=len(d) <= 4096 and i % 2 == 0) for i, d in enumerate(data)]
            for cid in cids:
                check(q.finish(cid).status == 0, "write")
            cids = [q.start(q.rw_sqe(2, 256 * i, len(d) // BS), length=len(d)) for i, d in enumerate(data)]
            for cid, d in zip(cids, data):
                c = q.finish(cid)
                check(c.status == 0 and c.data == d, "read")
                check(not c.told_by_data, "SUCCESS, though c2h_success is false")
        t.wait_empty()
        t.stop_clean()


def sends(t):
    return sum(d["sends"] for g in t.call("nvmf_get_stats")["poll_groups"] for x in g["transports"] for d in x["devices"])


def test_answers_of_many_commands_are_one_write_to_the_socket():
    """One for each answer would be 64. `sends` counts what a unit test compares with the calls of sendmsg()."""
    for c2h_success in (True, False):
        with TcpTarget(c2h_success=c2h_success) as t:
            t.add_malloc("M0")
            t.add_ns("M0")
            admin, q = both(t, size=128)
            with admin, q:
                for _ in range(5):
                    before = sends(t)
                    with q.together():
                        cids = [q.start(q.rw_sqe(2, 8 * i, 1), length=BS) for i in range(64)]
                    check(all(q.finish(cid).status == 0 for cid in cids), "reads")
                    check(sends(t) == before + 1, f"{sends(t) - before} writes to the socket for the answers of 64 reads")


def test_success_flag_needs_a_queue_without_flow_control():
    with TcpTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin, q = both(t)
        with admin, q:
            check(q.read(0, 8).told_by_data, "no SUCCESS flag")
            check(not q.write(0, bytes(512)).told_by_data, "a write has no data to tell by")
        admin, q = both(t, flow_control=True)
        with admin, q:
            for i in range(40):
                c = q.read(0, 8)
                check(c.sqhd == (i + 2) % 32, f"command {i}: SQHD {c.sqhd}")


def test_reads_with_digests_while_the_same_blocks_are_written():
    """The RAM disk's own memory must not be sent then: the digest would be that of other bytes."""
    with TcpTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin, reader = both(t, ddgst=True)
        with admin, reader, Queue(qid=2, cntlid=admin.cntlid, size=64) as writer:
            for turn in range(30):
                writes = [writer.start(writer.rw_sqe(1, 0, 256), bytes([turn + i & 255]) * 131072, in_capsule=False) for i in range(4)]
                reads = [reader.start(reader.rw_sqe(2, 0, 8), length=4096) for _ in range(16)]
                for cid in reads:
                    check(reader.finish(cid).status == 0, "read")
                for cid in writes:
                    check(writer.finish(cid).status == 0, "write")


def test_blocks_are_whole_however_slowly_they_are_read():
    """Other commands write them while they are on their way: the RAM disk's own memory must not be sent."""
    with TcpTarget(zcopy=True) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin, writer = both(t)
        with admin, writer, Queue(qid=2, cntlid=admin.cntlid, size=128) as reader:
            reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            check(writer.write(0, bytes([1]) * 131072, in_capsule=False).status == 0, "write")
            reads = [reader.start(reader.rw_sqe(2, 0, 256), length=131072) for _ in range(100)]
            first = reader.finish(reads[0])     # so some are on their way
            for turn in range(2, 12):
                check(writer.write(0, bytes([turn]) * 131072, in_capsule=False).status == 0, "write")
            reader.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            for c in (first, *map(reader.finish, reads[1:])):
                check(c.status == 0, "read")
                for lba in range(256):
                    block = c.data[lba * BS:(lba + 1) * BS]
                    check(block == block[:1] * BS and block[0] != 0, f"block {lba} has {set(block)}")


def test_listeners_of_all_kinds_and_their_removal():
    with TcpTarget(listen=False) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        for adrfam, traddr, to in (("IPv4", "0.0.0.0", "127.0.0.2"), ("IPv6", "::1", "::1"), ("IPv6", "::", "::1"), ("IPv4", "127.0.0.3", "127.0.0.3")):
            address = {"trtype": "TCP", "adrfam": adrfam, "traddr": traddr, "trsvcid": str(PORT)}
            try:
                t.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=address)
            except RpcError as e:
                check(adrfam == "IPv6" and not pathlib.Path("/proc/net/if_inet6").exists(), f"{traddr}: {e}")
                continue
            admin, q = both(t, address=to)
            check(q.read(0, 1).status == 0, "read")
            t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=address)
            for c in (q, admin):
                check(c.ends() is None, "a TermReq")
                c.close()
            t.wait_empty()
        refused = socket.socket()
        check(refused.connect_ex(("127.0.0.3", PORT)) != 0, "it still listens")
        t.stop_clean()


def rpc_sleeps(t):
    return t.call("framework_get_reactors", detail=True)["reactors"][0]["sleeps"]


def test_reactor_sleeps_and_wakes():
    with TcpTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin, q = both(t)
        with admin, q:
            for _ in range(5):
                before = rpc_sleeps(t)
                wait_for(lambda b=before: rpc_sleeps(t) >= b + 2, "the reactor to sleep")  # asking wakes it
                check(q.read(0, 8).status == 0, "read")


def test_requests_show_in_lists_statistics_and_traces():
    with TcpTarget("-e", "nvmf_tcp,bdev") as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin, q = both(t)
        with admin, q:
            cid = q.start(q.rw_sqe(1, 0, 8), bytes(4096), in_capsule=False)
            pdu = q.receive()
            check(pdu.type == R2T, pdu.type)
            mine = wait_for(lambda: [x for x in t.call("nvmf_get_inflight") if x["qid"] == 1], "the write to be listed")
            check(len(mine) == 1 and mine[0]["cid"] == cid and mine[0]["state"] == "transferring host to controller", mine)
            q.answer_r2t(pdu)
            check(q.finish(cid).status == 0 and q.read(0, 8).status == 0, "I/O")
            transport = t.call("nvmf_get_stats")["poll_groups"][0]["transports"][0]
            check(transport["trtype"] == "TCP" and transport["connections"] == 2, transport)
            device = transport["devices"][0]
            check(device["r2ts"] == 1 and device["requests"] >= 4 and device["sent_bytes"] > 4096 and device["reads"] > 0, device)
            saved = [x for s in t.call("framework_get_config", name="nvmf") for x in [s] if x["method"] == "nvmf_create_transport"]
            check(saved[0]["params"]["trtype"] == "TCP" and saved[0]["params"]["c2h_success"] is True, saved)
        summary = subprocess.run([BUILD / "bin" / "varve-trace", "-p", str(t.pid), "--summary"], capture_output=True, text=True, check=True).stdout
        for state in ("NEW", "HAVE_BUFFER", "AWAIT_R2T_ACK", "TX_H_TO_C", "RDY_TO_EXECUTE", "EXECUTING", "EXECUTED", "RDY_TO_COMPLETE", "TRANSFER_C2H"):
            check(f"TCP_REQ_{state} " in summary, f"TCP_REQ_{state} is missing:\n{summary}")


if __name__ == "__main__":
    main(sys.modules[__name__])
