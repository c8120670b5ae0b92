#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
# sanitize
"""Hosts over TCP that break the rules, are slow, or go in the middle of something: each gets the answer that the specification requires, or
its end, and nobody else notices."""
import pathlib
import socket
import struct
import sys

from appliance_lib import check, main, wait_for
from nvmf_lib import NQN, PORT
from nvmf_tcp_lib import (CAPSULE_CMD, DISCOVERY, F_LAST, H2C_DATA, H2C_TERM, HEADER_DIGEST, ICREQ, INVALID_FIELD, LIMIT, OUT_OF_RANGE, R2T,
                          SEQUENCE, TRANSIENT, Closed, Connection, Queue, TcpTarget)

BS = 512


class Fixture:
    """A target with a RAM disk, and a host that stays. At the end that host is served as before, and nothing of the others is left."""

    def __init__(self, **options):
        self.options = options

    def __enter__(self):
        self.target = t = TcpTarget(**self.options).__enter__()
        t.add_malloc("M0")
        t.add_ns("M0")
        self.admin = Queue()
        self.admin.enable()
        self.good = self.queue()
        self.pattern = bytes(range(256)) * 16
        check(self.good.write(0, self.pattern).status == 0, "write")
        return self

    def queue(self, qid=1, **options):
        return Queue(qid=qid, cntlid=self.admin.cntlid, **options)

    def __exit__(self, *error):
        try:
            if error[0] is None:
                check(self.good.read(0, 8).data == self.pattern, "the host that stayed reads something else")
                wait_for(lambda: self.target.num_qpairs() == 2, "the others to be gone")
                self.good.close()
                self.admin.close()
                self.target.wait_empty()
                self.target.stop_clean()
        finally:
            self.target.__exit__(*error)


def raw(type, flags=0, hlen=0, pdo=0, plen=0, rest=b""):
    return struct.pack("<BBBBI", type, flags, hlen, pdo, plen) + rest


def icreq(pfv=0, hpda=0, dgst=0, hlen=128, plen=128):
    return raw(ICREQ, 0, hlen, 0, plen, struct.pack("<HBBI112x", pfv, hpda, dgst, 0))


def expect_term(c, what, fes, fei=None):
    term = c.ends()
    check(term is not None, f"{what}: closed without C2HTermReq")
    check(term.fes == fes and (fei is None or term.fei == fei), f"{what}: {term}, expected FES {fes}, FEI {fei}")
    check(term.pdu, f"{what}: the PDU in error is missing")
    c.close()


def test_first_pdu_must_be_a_good_icreq():
    with Fixture():
        for what, pdu, fes, fei in (
                ("a command first", raw(CAPSULE_CMD, 0, 72, 0, 72, bytes(64)), SEQUENCE, None),
                ("PFV 1", icreq(pfv=1), None, 8),
                ("HPDA 32", icreq(hpda=32), INVALID_FIELD, 10),
                ("HLEN 127", icreq(hlen=127), INVALID_FIELD, 2),
                ("PLEN 129", icreq(plen=129), INVALID_FIELD, 4),
                ("a type that does not exist", raw(0x42, 0, 8, 0, 8), INVALID_FIELD, 0),
                ("a PDU that controllers send", raw(R2T, 0, 24, 0, 24, bytes(16)), None, None)):
            c = Connection(initialize=False)
            c.sock.sendall(pdu)
            term = c.ends()
            check(term is not None and term.fes != 0, f"{what}: no C2HTermReq")
            check(fes is None or term.fes == fes, f"{what}: {term}")
            check(fei is None or term.fei == fei, f"{what}: {term}")
            check(term.pdu == pdu[:len(term.pdu)] and len(term.pdu) >= 8, f"{what}: the PDU in error is {term.pdu.hex()}")
            c.close()


def test_hosts_that_stop_in_the_middle_of_the_beginning():
    with Fixture():
        for n in (0, 1, 7, 8, 9, 127):
            c = Connection(initialize=False)
            c.sock.sendall(icreq()[:n])
            c.close()
        c = Connection()
        c.sock.sendall(raw(CAPSULE_CMD, 0, 72, 72, 72 + 1024, bytes(500)))
        c.close()


def test_second_icreq_ends_the_connection():
    with Fixture() as f:
        q = f.queue(2)
        q.sock.sendall(icreq())
        expect_term(q, "a second ICReq", SEQUENCE)


def test_wrong_sizes_end_the_connection():
    with Fixture() as f:
        for what, wrong, fei in (("HLEN", {"hlen": 71}, (2,)), ("PLEN", {"plen": 71}, (3, 4)), ("PLEN", {"plen": 0xffffffff}, None)):
            q = f.queue(2)
            q.start(q.rw_sqe(2, 0, 8), length=4096, **wrong)
            term = q.ends()
            check(term is not None and term.fes in (INVALID_FIELD, LIMIT, OUT_OF_RANGE), f"{what} {wrong}: {term}")
            check(fei is None or term.fei in fei, f"{what} {wrong}: {term}")
            q.close()
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")


def test_more_data_in_a_capsule_than_was_agreed():
    with Fixture() as f:
        for n in (4608, 8704):
            q = f.queue(2)
            q.start(q.rw_sqe(1, 100, n // BS), bytes(n))
            term = q.ends()
            check(term is not None and term.fes in (LIMIT, INVALID_FIELD, OUT_OF_RANGE), f"{n} bytes in a capsule: {term}")
            q.close()
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")


def test_wrong_header_digest_ends_the_connection():
    with Fixture() as f:
        q = f.queue(2, hdgst=True)
        q.start(q.rw_sqe(2, 0, 8), length=4096, header_digest=b"\1\2\3\4")
        term = q.ends()
        check(term is not None and term.fes == HEADER_DIGEST, f"{term}")
        q.close()


def test_wrong_data_digest_fails_the_command_and_writes_nothing():
    with Fixture() as f:
        with f.queue(2, ddgst=True) as q:
            c = q.write(0, bytes(4096), data_digest=b"\1\2\3\4")
            check(c.code == TRANSIENT, f"in the capsule: status {c.status:#x}")
            check(q.read(0, 8).data == f.pattern, "a write with a wrong digest has been carried out")
            cid = q.start(q.rw_sqe(1, 0, 8), bytes(4096), in_capsule=False)
            r2t = q.receive()
            check(r2t.type == R2T, r2t.type)
            cccid, ttag, _, length = struct.unpack_from("<HHII", r2t.header, 8)
            for at in (0, 2048):
                wrong = {"data_digest": b"\1\2\3\4"} if at == 0 else {}
                q.send(H2C_DATA, struct.pack("<HHII4x", cccid, ttag, at, 2048), bytes(2048), F_LAST if at else 0, **wrong)
            c = q.finish(cid)
            check(c.code == TRANSIENT, f"in H2CData: status {c.status:#x}")
            check(q.read(0, 8).data == f.pattern, "a write with a wrong digest has been carried out")


def r2t_of(q, blocks=16, lba=64):
    """Begins a write, and takes its R2T."""
    cid = q.start(q.rw_sqe(1, lba, blocks), bytes(blocks * BS), in_capsule=False)
    pdu = q.receive()
    check(pdu.type == R2T, pdu.type)
    cccid, ttag, offset, length = struct.unpack_from("<HHII", pdu.header, 8)
    check((cccid, offset, length) == (cid, 0, blocks * BS), (cccid, offset, length))
    return cid, ttag, length


def test_data_that_nobody_asked_for():
    with Fixture() as f:
        for what, change, fes, fei in (
                ("unknown TTAG", lambda c, t: (c, t ^ 0x4000, 0, 4096, 0), INVALID_FIELD, 10),
                ("TTAG of nobody", lambda c, t: (c, t + 1, 0, 4096, 0), INVALID_FIELD, 10),
                ("wrong CCCID", lambda c, t: (c + 1, t, 0, 4096, 0), INVALID_FIELD, 8),
                ("DATAO beyond the beginning", lambda c, t: (c, t, 4096, 4096, F_LAST), OUT_OF_RANGE, None),
                ("LAST_PDU too early", lambda c, t: (c, t, 0, 4096, F_LAST), INVALID_FIELD, 1),
                ("LAST_PDU missing", lambda c, t: (c, t, 0, 8192, 0), INVALID_FIELD, 1),
                ("more than was asked for", lambda c, t: (c, t, 0, 12288, F_LAST), OUT_OF_RANGE, None)):
            q = f.queue(2)
            cid, ttag, _ = r2t_of(q)
            cccid, tag, offset, length, flags = change(cid, ttag)
            q.send(H2C_DATA, struct.pack("<HHII4x", cccid, tag, offset, length), bytes(length), flags)
            expect_term(q, what, fes, fei)
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")


def test_data_of_an_answered_command():
    with Fixture() as f:
        q = f.queue(2)
        cid, ttag, length = r2t_of(q)
        data = q.pdu(H2C_DATA, struct.pack("<HHII4x", cid, ttag, 0, length), bytes(length), F_LAST)
        q.sock.sendall(data)
        check(q.finish(cid).status == 0, "write")
        q.sock.sendall(data)
        expect_term(q, "data once more", INVALID_FIELD, 10)


def test_more_commands_than_the_queue_has_entries():
    with Fixture() as f:
        q = f.queue(2, size=4)
        for i in range(5):
            q.start(q.rw_sqe(1, 200 + 16 * i, 16), bytes(16 * BS), in_capsule=False)
        term = q.ends()
        check(term is not None and term.fes == SEQUENCE, f"{term}")
        q.close()


def test_termreq_arrives_behind_data_that_the_host_has_not_read():
    """Although the host has sent more behind what is wrong, which the target does not read: a socket with unread bytes is closed by a reset."""
    with Fixture() as f:
        for blocks in (32, 128):
            q = f.queue(2)
            done = f.target.groups("completed_nvme_io") + 6
            cids = [q.start(q.rw_sqe(2, 0, blocks), length=blocks * BS) for _ in range(6)]
            wait_for(lambda d=done: f.target.groups("completed_nvme_io") == d and f.target.call("nvmf_get_inflight") == [], "all data to be sent")
            q.sock.sendall(icreq() + bytes(65536))
            wait_for(lambda: f.target.num_qpairs() == 2, "the target to end the connection")
            for cid in cids:
                c = q.finish(cid)
                check(c.status == 0 and c.data[:8 * BS] == f.pattern, f"read {cid} of {blocks} blocks")
            expect_term(q, f"behind {len(cids)} reads of {blocks} blocks", SEQUENCE)


def test_h2ctermreq_ends_the_connection():
    with Fixture() as f:
        q = f.queue(2)
        q.sock.sendall(raw(H2C_TERM, 0, 24, 0, 48, struct.pack("<HI10x", 1, 12) + bytes(24)))
        check(q.ends() is None, "a TermReq was answered with one")
        q.close()
        check("H2CTermReq" in f.target.log(), "the log does not tell of it")


def test_commands_behind_connect_wait_for_it():
    with Fixture() as f:
        q = f.queue(2, connect=False)
        data = (b"\x11" * 16 + struct.pack("<H", f.admin.cntlid)).ljust(256, b"\0") + NQN.encode().ljust(256, b"\0")
        data = (data + b"nqn.2026-11.io.varve:host".ljust(256, b"\0")).ljust(1024, b"\0")
        held, real = [], q.sock
        q.sock = type("Hold", (), {"sendall": lambda self, b: held.append(b), "recv": lambda self, n: real.recv(n), "close": lambda self: real.close()})()
        cids = [q.start(q.sqe(0x7F, nsid=1, specific=struct.pack("<HHHBxI", 0, 2, 31, 4, 0)), data)]
        cids += [q.start(q.rw_sqe(2, 0, 8), length=4096) for _ in range(20)]
        real.sendall(b"".join(held))
        q.sock = real
        for cid in cids:
            c = q.finish(cid)
            check(c.status == 0 and c.data in (b"", f.pattern), f"cid {cid}: status {c.status:#x}")
        q.close()


def test_bytes_that_come_one_by_one():
    with Fixture() as f:
        q = f.queue(2, hdgst=True, ddgst=True)
        real, pieces = q.sock, []

        class Slow:
            def sendall(self, b):
                for i in range(len(b)):
                    real.sendall(b[i:i + 1])
                pieces.append(len(b))

            def __getattr__(self, name):
                return getattr(real, name)
        q.sock = Slow()
        check(q.write(300, b"\x5a" * 1024).status == 0, "write in the capsule")
        check(q.write(302, b"\xa5" * 1024, in_capsule=False).status == 0, "write with R2T")
        check(q.read(300, 4).data == b"\x5a" * 1024 + b"\xa5" * 1024, "read")
        q.close()


def test_host_that_does_not_read_holds_up_nobody_else():
    with Fixture() as f:
        slow = f.queue(2, size=64)
        cids = [slow.start(slow.rw_sqe(2, 0, 256), length=131072) for _ in range(60)]
        for _ in range(50):
            check(f.good.read(0, 8).data == f.pattern, "read beside it")
        first = slow.finish(cids[0]).data
        check(first[:4096] == f.pattern and not any(first[4096:]), "the slow host's data")
        for cid in cids[1:]:
            check(slow.finish(cid).data == first, "the slow host's data")
        slow.close()


def test_writes_wait_for_buffers_and_all_end():
    with Fixture(num_shared_buffers=8, buf_cache_size=0, zcopy=False) as f:
        q = f.queue(2, size=64)
        data = [bytes([i]) * 131072 for i in range(40)]
        cids = [q.start(q.rw_sqe(1, 256 + 256 * i, 256), data[i], in_capsule=False) for i in range(40)]
        for cid in cids:
            check(q.finish(cid).status == 0, "write")
        for i in range(40):
            check(q.read(256 + 256 * i, 256).data == data[i], f"write {i}")
        q.close()


def test_host_goes_while_its_data_are_awaited():
    with Fixture() as f:
        for partial in (False, True):
            q = f.queue(2)
            cid, ttag, length = r2t_of(q)
            r2t_of(q, lba=128)
            if partial:
                pdu = q.pdu(H2C_DATA, struct.pack("<HHII4x", cid, ttag, 0, length), bytes(length), F_LAST)
                q.sock.sendall(pdu[:2000])
            q.close()
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")


def test_write_that_does_not_come_completely_changes_nothing():
    with Fixture() as f:
        q = f.queue(2)
        cid, ttag, length = r2t_of(q, lba=0)
        q.sock.sendall(q.pdu(H2C_DATA, struct.pack("<HHII4x", cid, ttag, 0, length), b"\xee" * length, F_LAST)[:24 + 3000])
        check(f.good.read(0, 8).data == f.pattern, "part of a write can be read")
        q.close()
        wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")
        check(f.good.read(0, 8).data == f.pattern, "part of a write can be read after its host has gone")


def test_hosts_that_neither_send_nor_read_are_disconnected():
    with Fixture(ack_timeout=2000) as f:
        silent = f.queue(2)
        r2t_of(silent)
        deaf = f.queue(3, size=128)
        deaf.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)    # or the kernel takes it all in its place
        for i in range(120):
            deaf.start(deaf.rw_sqe(2, 0, 256), length=131072)
        wait_for(lambda: f.target.num_qpairs() == 2, "both to be disconnected")
        log = f.target.log()
        check("does not send the data of its commands in time" in log and "takes too little of what it is sent" in log, log)
        silent.close()
        deaf.close()


def test_host_that_sends_its_data_too_slowly_is_disconnected():
    """It moves enough bytes: with other commands."""
    with Fixture(ack_timeout=500) as f:
        slow = f.queue(2)
        r2t_of(slow)

        def gone():
            try:
                check(slow.read(0, 128).status == 0, "read")
            except (OSError, Closed):
                return True
            return False
        wait_for(gone, "it to be disconnected")
        check("does not send the data of its commands in time" in f.target.log(), f.target.log())
        slow.close()


def test_listener_is_removed_while_data_are_awaited():
    with TcpTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin = Queue()
        admin.enable()
        q = Queue(qid=1, cntlid=admin.cntlid)
        r2t_of(q)
        t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=t.listen_address())
        for connection in (q, admin):
            check(connection.ends() is None, "a TermReq")
            connection.close()
        t.wait_empty()
        t.add_listener()
        with Queue() as again:
            again.enable()
        t.wait_empty()
        t.stop_clean()


def test_failed_connect_may_be_tried_again():
    with Fixture() as f:
        q = f.queue(2, connect=False)
        c = q.connect(f.admin.cntlid, "nqn.2026-11.io.varve:nobody", 32, "nqn.2026-11.io.varve:host")
        check(c.status != 0, "Connect to nobody")
        c = q.connect(f.admin.cntlid, NQN, 32, "nqn.2026-11.io.varve:host")
        check(c.status == 0, f"Connect: {c.status:#x}")
        check(q.read(0, 8).data == f.pattern, "read")
        q.close()


def test_connect_data_may_be_asked_for():
    with Fixture() as f:
        q = f.queue(2, connect=False)
        data = (b"\x11" * 16 + struct.pack("<H", f.admin.cntlid)).ljust(256, b"\0") + NQN.encode().ljust(256, b"\0")
        data = (data + b"nqn.2026-11.io.varve:host".ljust(256, b"\0")).ljust(1024, b"\0")
        c = q.command(q.sqe(0x7F, nsid=1, specific=struct.pack("<HHHBxI", 0, 2, 31, 4, 0)), data, in_capsule=False)
        check(c.status == 0, f"Connect: {c.status:#x}")
        check(q.read(0, 8).data == f.pattern, "read")
        q.close()


def set_features(q, data, **how):
    """Host Behavior Support, which discovery controllers do not have."""
    return q.start(q.sqe(0x09, 0, struct.pack("<II", 0x16, 0)), data, **how)


def test_strangers_who_are_asked_for_data_take_no_buffers():
    with Fixture(num_shared_buffers=36, buf_cache_size=0, iobuf_small_cache_size=0, iobuf_large_cache_size=0) as f:
        stranger = Queue(nqn=DISCOVERY, size=128).enable()
        cids = [set_features(stranger, bytes(512), in_capsule=False) for _ in range(120)]
        r2ts = [stranger.receive() for _ in cids]
        check(all(pdu.type == R2T for pdu in r2ts), [pdu.type for pdu in r2ts])
        for i in range(20):
            data = bytes([i]) * 8192
            check(f.good.write(1000, data, in_capsule=False).status == 0 and f.good.read(1000, 16).data == data, "I/O beside it")
        with Queue(nqn=DISCOVERY) as other:
            other.enable()
            check(len(other.log_page(0x70, 1024)) == 1024, "the log beside it")
        for pdu in r2ts:
            stranger.answer_r2t(pdu)
        for cid in cids:
            check(stranger.finish(cid).code == 2, "Set Features: not Invalid Field")
        stranger.close()


def auth_send(q, length, **how):
    return q.start(q.sqe(0x7F, 5, struct.pack("<BBBBI", 0, 1, 1, 0xE9, length)), bytes(length), **how)


def test_discovery_takes_little_memory_and_long_data_one_by_one():
    with Fixture() as f:
        before = sum(x["connection_bytes"] for g in f.target.call("nvmf_get_stats")["poll_groups"] for x in g["transports"])
        stranger = Queue(nqn=DISCOVERY, size=128).enable()
        after = sum(x["connection_bytes"] for g in f.target.call("nvmf_get_stats")["poll_groups"] for x in g["transports"])
        check(0 < after - before < 512 * 1024, f"a discovery connection takes {after - before} bytes")
        for n in (4, 512, 516, 4096):
            for in_capsule in (True, False):
                c = stranger.finish(auth_send(stranger, n, in_capsule=in_capsule))
                check(c.status != 0, "there is nobody to authenticate")
        first = auth_send(stranger, 4096, in_capsule=False)     # keeps the room until its data are there
        pdu = stranger.receive()
        check(pdu.type == R2T, pdu.type)
        check(stranger.finish(auth_send(stranger, 4096, in_capsule=False)).code == 0x0C, "a second one: not Command Sequence Error")
        for _ in range(3):
            check(stranger.finish(set_features(stranger, bytes(512))).code == 2, "Set Features")
        stranger.answer_r2t(pdu)
        check(stranger.finish(first).status != 0, "there is nobody to authenticate")
        auth_send(stranger, 4096, in_capsule=False)
        check(stranger.receive().type == R2T, "no R2T")
        auth_send(stranger, 4096)
        expect_term(stranger, "more in a capsule than there is room for", LIMIT)


def test_fabrics_and_admin_data_at_the_border_of_8_kib():
    """Whatever in_capsule_data_size is, 8192 bytes may be in the capsule of such a command, and not four more. As data that are asked for, more may come."""
    with Fixture(in_capsule_data_size=4096) as f:
        for name, make in (("admin", lambda: Queue().enable()), ("I/O", lambda: f.queue(2))):
            with make() as q:
                for n in (4092, 4096, 4100, 8188, 8192):
                    for in_capsule in (True, False):
                        q.received.clear()
                        c = q.finish(auth_send(q, n, in_capsule=in_capsule))
                        check(c.status != 0, "this host does not authenticate")
                        check(not (in_capsule and R2T in q.received), f"{name} queue, {n} bytes: an R2T for data that were in the capsule")
                check(q.finish(auth_send(q, 8196, in_capsule=False)).status != 0, "this host does not authenticate")
                auth_send(q, 8196)
                expect_term(q, f"{name} queue, 8196 bytes in a capsule", LIMIT)
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")
        with f.queue(2) as q:       # an I/O command's data have the room that was agreed
            q.start(q.rw_sqe(1, 100, 9), bytes(9 * BS))
            expect_term(q, "4608 bytes in the capsule of a write", LIMIT)


def test_strangers_who_stay_cost_known_hosts_no_answers():
    with Fixture() as f:
        strangers = []
        for _ in range(300):
            c = Connection(initialize=False)
            c.sock.sendall(raw(0x42, 0, 8, 0, 8))
            check(c.ends() is not None or len(strangers) >= 256, "a stranger got no C2HTermReq")
            strangers.append(c)
        q = f.queue(2)
        q.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)   # so most of the data stay in the target's socket
        cids = [q.start(q.rw_sqe(2, 0, 256), length=131072) for _ in range(4)]
        wait_for(lambda: f.target.call("nvmf_get_inflight") == [], "the socket to take all answers")
        q.sock.sendall(icreq() + bytes(100000))     # closing a socket with unread bytes would take the answers back
        wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")
        check(all(q.finish(cid).data[:4096] == f.pattern for cid in cids), "the answers")
        expect_term(q, "a second ICReq", SEQUENCE)
        for c in strangers:
            c.close()


def socket_timer(port):
    """Of the target's end of a connection, as the kernel tells it."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        field = line.split()
        if int(field[1].split(":")[1], 16) == PORT and int(field[2].split(":")[1], 16) == port:
            return field[5].split(":")[0]
    return None


def test_vanished_hosts_are_looked_for():
    with Fixture() as f:
        for q in (f.admin, f.good):
            port = q.sock.getsockname()[1]
            wait_for(lambda p=port: socket_timer(p) == "02", "the keepalive timer of its socket")


def test_limit_of_unknown_hosts():
    with TcpTarget(max_anonymous=4) as t:
        idle = [Connection() for _ in range(4)]
        refused = Connection(initialize=False)
        check(refused.at_end(), "a fifth connection was taken")
        for c in idle:
            c.close()
        wait_for(lambda: sum(x["connections"] for g in t.call("nvmf_get_stats")["poll_groups"] for x in g["transports"]) == 0, "the four to be gone")

        def taken():
            """The four count until their memory is freed, which is a moment later."""
            try:
                return Queue(nqn=DISCOVERY)
            except Closed:
                return None
        with wait_for(taken, "the next one to be taken") as q:
            q.enable()
        t.wait_empty()


if __name__ == "__main__":
    main(sys.modules[__name__])
