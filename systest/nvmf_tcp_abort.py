#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 300
# sanitize
"""Writes over TCP that end while the target waits for their data: they are aborted, or what they belong to goes. Data that come later go
nowhere, and neither end the connection nor become data of another command."""
import struct
import sys

from appliance_lib import check, main, wait_for
from nvmf_lib import NQN
from nvmf_tcp_hostile import Fixture, expect_term, r2t_of
from nvmf_tcp_lib import F_LAST, H2C_DATA, INVALID_FIELD, OUT_OF_RANGE, R2T, Queue, TcpTarget

ABORT_REQ, PATH_ERROR = 0x07, 0x360
BS = 512


def abort(admin, qid, cid):
    """Whether the target says that it has aborted the command."""
    return admin.good(admin.sqe(0x08, 0, struct.pack("<HH", qid, cid))).result & 1 == 0


def data_pdu(q, cid, ttag, offset, data, last=True, **wrong):
    return q.pdu(H2C_DATA, struct.pack("<HHII4x", cid, ttag, offset, len(data)), data, F_LAST if last else 0, **wrong)


def r2t(q, lba, blocks):
    """Begins a write of 0xee, and returns its cid and tag."""
    cid = q.start(q.rw_sqe(1, lba, blocks), b"\xee" * blocks * BS, in_capsule=False)
    pdu = q.receive()
    check(pdu.type == R2T, f"a PDU of type {pdu.type}")
    cccid, ttag, offset, length = struct.unpack_from("<HHII", pdu.header, 8)
    check((cccid, offset, length) == (cid, 0, blocks * BS), (cccid, offset, length))
    return cid, ttag


def test_late_data_of_an_aborted_write_go_nowhere():
    for digests in (False, True):
        with Fixture() as f:
            q = f.queue(2, hdgst=digests, ddgst=digests)
            for lba, blocks, pieces in ((0, 8, 1), (0, 1, 1), (0, 256, 4)):
                cid, ttag = r2t(q, lba, blocks)
                check(abort(f.admin, 2, cid), "a write whose data are awaited was not aborted")
                check(q.finish(cid).code == ABORT_REQ, "its status")
                check(f.good.read(0, 8).data == f.pattern, "the aborted write has changed its blocks")
                again, tag = r2t(q, 1000, blocks)       # has the request of the aborted one
                check(tag != ttag, "a tag that is still in use was given away")
                n = blocks * BS // pieces
                for i in range(pieces):
                    wrong = {"data_digest": b"\1\2\3\4"} if digests and i == 0 else {}      # is of no interest any more
                    q.sock.sendall(data_pdu(q, cid, ttag, n * i, b"\xdd" * n, i == pieces - 1, **wrong))
                q.sock.sendall(data_pdu(q, again, tag, 0, b"\xbb" * blocks * BS))
                check(q.finish(again).status == 0, "the write behind it")
                check(q.read(1000, blocks).data == b"\xbb" * blocks * BS, "the write behind it has the data of the aborted one")
                check(f.good.read(0, 8).data == f.pattern, "late data have been written")
            q.close()


def test_write_is_aborted_in_the_middle_of_its_data():
    with Fixture() as f:
        for n in (1, 23, 24, 25, 24 + 4096, 24 + 8192 - 1):
            q = f.queue(2, ddgst=n % 2 == 1)
            cid, ttag = r2t(q, 0, 16)
            pdu = data_pdu(q, cid, ttag, 0, b"\xdd" * 8192)
            q.sock.sendall(pdu[:n])
            check(abort(f.admin, 2, cid), f"not aborted after {n} bytes")
            check(q.finish(cid).code == ABORT_REQ, "its status")
            q.sock.sendall(pdu[n:])
            check(q.read(0, 8).data == f.pattern, f"aborted after {n} bytes, and written")
            check(q.write(2000, b"\x77" * 8192, in_capsule=False).status == 0 and q.read(2000, 16).data == b"\x77" * 8192, "a write after it")
            q.close()
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")


def test_second_piece_comes_after_the_abort():
    with Fixture() as f:
        q = f.queue(2)
        cid, ttag = r2t(q, 0, 16)
        q.sock.sendall(data_pdu(q, cid, ttag, 0, b"\xdd" * 4096, False))
        check(abort(f.admin, 2, cid), "not aborted between its pieces")
        check(q.finish(cid).code == ABORT_REQ, "its status")
        q.sock.sendall(data_pdu(q, cid, ttag, 4096, b"\xdd" * 4096))
        check(q.read(0, 8).data == f.pattern, "late data have been written")
        q.close()


def test_late_data_have_to_keep_the_rules():
    with Fixture() as f:
        for what, change, fes, fei in (
                ("wrong CCCID", (1, 0, 0, 8192), INVALID_FIELD, 8), ("a tag of nobody", (0, 3, 0, 8192), INVALID_FIELD, 10),
                ("beyond the beginning", (0, 0, 4096, 4096), OUT_OF_RANGE, None), ("too much", (0, 0, 0, 8196), OUT_OF_RANGE, None)):
            q = f.queue(2)
            cid, ttag = r2t(q, 0, 16)
            check(abort(f.admin, 2, cid), "not aborted")
            check(q.finish(cid).code == ABORT_REQ, "its status")
            q.sock.sendall(data_pdu(q, cid + change[0], ttag + change[1], change[2], bytes(change[3])))
            expect_term(q, what, fes, fei)
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")
        q = f.queue(2)
        cid, ttag = r2t(q, 0, 16)
        check(abort(f.admin, 2, cid), "not aborted")
        check(q.finish(cid).code == ABORT_REQ, "its status")
        q.sock.sendall(data_pdu(q, cid, ttag, 0, bytes(8192)) * 2)
        expect_term(q, "late data once more", INVALID_FIELD, 10)


def test_abort_of_a_write_whose_request_still_has_late_data():
    """It remembers one command's. The second is not aborted, and goes on."""
    with Fixture() as f:
        q = f.queue(2, size=4)
        first, old = r2t(q, 0, 16)
        check(abort(f.admin, 2, first) and q.finish(first).code == ABORT_REQ, "the first was not aborted")
        second, new = r2t(q, 1000, 16)
        check(not abort(f.admin, 2, second), "it cannot remember another one")
        q.sock.sendall(data_pdu(q, second, new, 0, b"\xbb" * 8192))
        check(q.finish(second).status == 0 and q.read(1000, 16).data == b"\xbb" * 8192, "the second")
        q.sock.sendall(data_pdu(q, first, old, 0, b"\xdd" * 8192))
        for _ in range(5):
            cid, ttag = r2t(q, 0, 16)
            check(abort(f.admin, 2, cid) and q.finish(cid).code == ABORT_REQ, "aborted again, now that they have come")
            q.sock.sendall(data_pdu(q, cid, ttag, 0, b"\xdd" * 8192))
        check(q.read(0, 8).data == f.pattern, "late data have been written")
        q.close()


def test_all_writes_of_a_queue_are_aborted_and_their_data_come():
    with Fixture() as f:
        q = f.queue(2, size=32)
        tags = dict(r2t(q, 16 * i, 16) for i in range(31))
        check(len(set(tags.values())) == 31, tags)
        for cid in tags:
            check(abort(f.admin, 2, cid), "not aborted")
        for cid in tags:
            check(q.finish(cid).code == ABORT_REQ, "its status")
        more = [r2t(q, 1000 + 16 * i, 16) for i in range(31)]
        check(not {t for _, t in more} & set(tags.values()), "tags that are in use")
        for (cid, ttag), (late, old) in zip(more, tags.items()):
            q.sock.sendall(data_pdu(q, late, old, 0, b"\xdd" * 8192) + data_pdu(q, cid, ttag, 0, bytes([cid % 251]) * 8192))
        for i, (cid, _) in enumerate(more):
            check(q.finish(cid).status == 0 and q.read(1000 + 16 * i, 16).data == bytes([cid % 251]) * 8192, f"write {i}")
        check(q.read(0, 8).data == f.pattern, "late data have been written")
        q.close()


def test_host_goes_with_late_data_under_way():
    with Fixture() as f:
        for partial in (False, True):
            q = f.queue(2)
            cid, ttag = r2t(q, 0, 16)
            check(abort(f.admin, 2, cid) and q.finish(cid).code == ABORT_REQ, "not aborted")
            if partial:
                q.sock.sendall(data_pdu(q, cid, ttag, 0, b"\xdd" * 8192)[:5000])
            q.close()
            wait_for(lambda: f.target.num_qpairs() == 2, "the queue pair to be gone")


def test_aborted_writes_give_their_buffers_back():
    with Fixture(num_shared_buffers=8, buf_cache_size=0, zcopy=False) as f:
        q = f.queue(2, size=64)
        cids = [q.start(q.rw_sqe(1, 1000, 256), bytes(131072), in_capsule=False) for _ in range(40)]
        waits = q.start(q.rw_sqe(1, 2000, 256), b"\x55" * 131072, in_capsule=False)
        wait_for(lambda: len(f.target.call("nvmf_get_inflight")) == 41, "all to be there")
        check(all(abort(f.admin, 2, cid) for cid in cids), "not aborted")
        check(q.finish(waits).status == 0, "the write that had no buffer")
        check(all(q.finish(cid).code == ABORT_REQ for cid in cids), "the status of one that was aborted")
        check(q.read(2000, 256).data == b"\x55" * 131072, "its data")
        q.close()


def test_listener_is_removed_and_the_write_is_answered():
    """It may be submitted on another path."""
    with TcpTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin = Queue().enable()
        q = Queue(qid=1, cntlid=admin.cntlid)
        cid, _, _ = r2t_of(q)
        t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=t.listen_address())
        check(q.finish(cid).code == PATH_ERROR, "the status of a write that was taken back")
        for connection in (q, admin):
            check(connection.ends() is None, "a TermReq")
            connection.close()
        t.wait_empty()
        t.stop_clean()


def test_namespace_is_removed_while_data_are_awaited():
    """That waits for nothing of the host's. The command ends when its data come."""
    with Fixture() as f:
        f.target.add_malloc("M1")
        f.target.add_ns("M1", nsid=2)
        q = f.queue(2)
        cid = q.start(q.rw_sqe(1, 0, 16, nsid=2), bytes(8192), in_capsule=False)
        pdu = q.receive()
        check(pdu.type == R2T, pdu.type)
        f.target.remove_ns(2)
        f.target.call("bdev_malloc_delete", name="M1")
        q.answer_r2t(pdu)
        check(q.finish(cid).code == PATH_ERROR, "the status of a write whose namespace has gone")
        other = q.start(q.rw_sqe(1, 0, 16, nsid=2), bytes(8192), in_capsule=False)
        check(q.finish(other).code != 0, "a write to a namespace that is gone")
        q.close()


if __name__ == "__main__":
    main(sys.modules[__name__])
