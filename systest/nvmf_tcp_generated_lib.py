# SPDX-License-Identifier: BSD-3-Clause
"""Generated hostile hosts over TCP, and a model of what they must get: a C2HTermReq with one of the reasons that apply, a status, or the end of
the connection. The model is written from the specifications (NVMe TCP Transport 1.0c), and knows nothing of the target's code."""
import contextlib
import os
import random
import socket
import struct
import time

from appliance_lib import Failure, check, wait_for
from nvmf_lib import HOSTNQN, NQN, verifying, wait_io
from nvmf_tcp_lib import (C2H_DATA, C2H_TERM, CAPSULE_CMD, CAPSULE_RESP, F_DDGST, F_HDGST, F_LAST, H2C_DATA, H2C_TERM, HEADER_DIGEST, ICREQ, ICRESP,
                          INVALID_FIELD, LIMIT, OUT_OF_RANGE, R2T, SEQUENCE, TRANSIENT, UNSUPPORTED, Closed, Connection, Queue, TcpTarget, Terminated,
                          crc32c)

BS, AREA = 512, 8192            # blocks of the namespace that hostile hosts share: each case has 64 of its own
ABORT_REQ = 0x07
ANY = None                      # as a FEI: any
BORDERS8 = (0, 1, 2, 3, 4, 7, 8, 12, 15, 16, 23, 24, 25, 31, 32, 64, 71, 72, 73, 76, 80, 96, 127, 128, 129, 144, 200, 252, 254, 255)
BORDERS16 = (0, 1, 2, 31, 32, 33, 63, 64, 255, 256, 0x7fff, 0x8000, 0xfffe, 0xffff)
BORDERS32 = (0, 1, 2, 3, 4, 5, 7, 8, 23, 24, 25, 71, 72, 73, 76, 511, 512, 513, 536, 584, 4095, 4096, 4097, 8191, 8192, 8193, 8268, 131071, 131072, 131073,
             131096, 131100, 0x7fffffff, 0x80000000, 0xfffffffc, 0xffffffff)
CONVERSATION = 128 + (72 + 1024) + (72 + 512) + 72 + (24 + 1024) + 1     # ICReq, Connect, a write in its capsule, one with R2T; and all of it
HLEN = {ICREQ: 128, H2C_TERM: 24, CAPSULE_CMD: 72, H2C_DATA: 24}


class Wanted:
    """What may come: (FES, FEI) of a C2HTermReq; whether the connection may go on as if nothing had been wrong."""

    def __init__(self):
        self.terms, self.alive = set(), False

    def term(self, fes, fei=ANY):
        self.terms.add((fes, fei))

    def has(self, term):
        return any(term.fes == fes and fei in (ANY, term.fei) for fes, fei in self.terms)


def judge(pdu, q, awaited=None, initialized=True):
    """A PDU that a host sends on connection q. awaited: (cid, ttag, received, length) of the R2T that waits for data. All rules that it breaks count,
    for a target may look at them in any order, and ends with the first that it sees."""
    w = Wanted()
    kind, flags, hlen, pdo, plen = struct.unpack_from("<BBBBI", pdu)
    if kind not in HLEN:
        w.term(INVALID_FIELD, 0)
        if not initialized or kind in (ICRESP, C2H_TERM, CAPSULE_RESP, C2H_DATA, R2T):
            w.term(SEQUENCE)
        return w
    if kind != H2C_TERM and (kind == ICREQ) == initialized:
        w.term(SEQUENCE)
    if hlen != HLEN[kind]:
        w.term(INVALID_FIELD, 2)
    if kind == H2C_TERM:
        if not 24 <= plen <= 152:
            w.term(INVALID_FIELD, 4)
        return w
    if kind == ICREQ:
        if plen != 128:
            w.term(INVALID_FIELD, 4)
        judge_icreq(w, pdu)
        return w
    head = HLEN[kind] + 4 * q.hdgst
    if bool(flags & F_HDGST) != q.hdgst:
        w.term(INVALID_FIELD, 1)
    if kind == CAPSULE_CMD and plen == head:
        w.alive = bool(flags & F_DDGST)         # of no data: not said
    else:
        judge_data(w, q, kind, flags, head, pdo, plen)
    if q.hdgst and len(pdu) >= head and pdu[head - 4:head] != crc32c(pdu[:head - 4]):
        w.term(HEADER_DIGEST)
    if kind == H2C_DATA:
        judge_h2c_data(w, q, pdu, flags, plen - pdo - 4 * q.ddgst, awaited)
    return w


def judge_icreq(w, pdu):
    pfv, hpda = struct.unpack_from("<HB", pdu, 8)
    if pfv:
        w.term(UNSUPPORTED, 8)
    if hpda > 31:
        w.term(INVALID_FIELD, 10)


def judge_data(w, q, kind, flags, head, pdo, plen):
    if pdo < head or pdo % (4 * (q.cpda + 1)):
        w.term(INVALID_FIELD, 3)
    if bool(flags & F_DDGST) != q.ddgst:
        w.term(INVALID_FIELD, 1)
    data = plen - pdo - 4 * q.ddgst
    if data <= 0:
        w.term(INVALID_FIELD, 4)
    if data > (q.maxh2cdata if kind == H2C_DATA else 4096):
        w.term(LIMIT)


def judge_h2c_data(w, q, pdu, flags, data, awaited):
    cccid, ttag, offset, length = struct.unpack_from("<HHII", pdu, 8)
    if offset % 4:
        w.term(INVALID_FIELD, 12)
    if length != data:
        w.term(INVALID_FIELD, 16)
    if awaited is None or ttag != awaited[1]:
        w.term(INVALID_FIELD, 10)
        return
    cid, _, received, whole = awaited
    if cccid != cid:
        w.term(INVALID_FIELD, 8)
    if offset != received or length > whole - received:
        w.term(OUT_OF_RANGE)
    if bool(flags & F_LAST) != (offset + length == whole):
        w.term(INVALID_FIELD, 1)


def icreq(pfv=0, hpda=0, dgst=0, maxr2t=0, hlen=128, plen=128, flags=0, pdo=0):
    return struct.pack("<BBBBIHBBI112x", ICREQ, flags, hlen, pdo, plen, pfv, hpda, dgst, maxr2t)


def h2c_data(q, cid, ttag, offset, data, last, **wrong):
    return q.pdu(H2C_DATA, struct.pack("<HHII4x", cid, ttag, offset, len(data)), data, F_LAST if last else 0, **wrong)


def send(c, data):
    """The target may have ended the connection already."""
    try:
        c.sock.sendall(data)
    except OSError:
        pass


def expect(c, wanted, what):
    """The end that the model allows."""
    check(wanted.terms, f"{what}: the model allows no end")
    term = c.ends()
    check(term is not None, f"{what}: closed without C2HTermReq, wanted {wanted.terms}")
    check(wanted.has(term), f"{what}: {term}, wanted {wanted.terms}")
    c.close()


class Generator:
    """Sends cases to a target. Case n of a seed is always the same."""

    def __init__(self, target, seed):
        self.t, self.seed, self.n, self.qid = target, seed, 0, 1
        self.admin = Queue(nqn=NQN, hostnqn=HOSTNQN + ":wild").enable()
        self.keeper = self.connect(1)
        self.slow = []          # connections that are in the middle of something: [connection, rest of their bytes]
        self.counts = {}

    def close(self):
        for c, _ in self.slow:
            c.close()
        self.keeper.close()
        self.admin.close()

    def connect(self, qid, **options):
        return Queue(qid=qid, cntlid=self.admin.cntlid, hostnqn=HOSTNQN + ":wild", **options)

    def queue(self, size=32, hpda=0, **options):
        """An I/O queue with random digests. The one that had its id before may not be quite gone."""
        digests = {"hdgst": self.rng.random() < 0.4, "ddgst": self.rng.random() < 0.4}
        self.qid = self.qid % 100 + 2

        def connected():
            q = Queue(qid=self.qid, connect=False, hpda=hpda, **{**digests, **options})
            try:
                if q.connect(self.admin.cntlid, NQN, size, HOSTNQN + ":wild").status == 0:
                    return q
            except Closed:
                pass
            q.close()
            return None
        return wait_for(connected, f"queue {self.qid} to be connected")

    def bytes(self, n):
        return self.rng.randbytes(n)

    def lba(self):
        return self.n % (AREA // 64) * 64

    def r2t(self, q, blocks, data=None):
        """Begins a write; returns its cid and tag."""
        cid = q.start(q.rw_sqe(1, self.lba(), blocks, nsid=2), data or bytes(blocks * BS), in_capsule=False)
        pdu = q.receive()
        check(pdu.type == R2T, f"a PDU of type {pdu.type}")
        cccid, ttag, offset, length = struct.unpack_from("<HHII", pdu.header, 8)
        check((cccid, offset, length) == (cid, 0, blocks * BS), f"R2T: {cccid}, {offset}, {length}")
        return cid, ttag

    def note(self, blocks=8):
        """Writes what a refused write must leave as it is."""
        data = self.bytes(blocks * BS)
        check(self.keeper.write(self.lba(), data[:4096], nsid=2).status == 0, "a write of the host that stays")
        return data[:4096]

    def check_is(self, data, what):
        came = self.keeper.read(self.lba(), len(data) // BS, nsid=2).data
        at = next((i for i, (x, y) in enumerate(zip(came, data)) if x != y), None)
        check(came == data, f"{what}: the blocks are not what they have to be from byte {at} on: {came[at or 0:][:8].hex()}")

    def works(self, q, what):
        data = self.bytes(BS)
        check(q.write(self.lba(), data, nsid=2).status == 0, f"{what}: a write after it")
        check(q.read(self.lba(), 1, nsid=2).data == data, f"{what}: a read after it")
        q.close()

    # ---- Cases ----

    def case_truncated(self, at=None):
        """A host that goes after any byte of a conversation."""
        at = self.rng.randrange(CONVERSATION) if at is None else at
        self.qid = self.qid % 100 + 2
        c = Queue(initialize=False, connect=False, qid=self.qid)
        left = [at]

        class Cut:
            def sendall(self, data):
                sock.sendall(data[:left[0]])
                left[0] -= len(data)
                if left[0] <= 0:
                    raise EOFError

            def __getattr__(self, name):
                return getattr(sock, name)
        sock, c.sock = c.sock, Cut()
        try:
            c.sock.sendall(icreq())
            c.receive()
            if c.connect(self.admin.cntlid, NQN, 32, HOSTNQN + ":wild").status == 0:
                c.write(self.lba(), bytes(BS), nsid=2)
                c.write(self.lba(), bytes(2 * BS), nsid=2, in_capsule=False)
        except EOFError:
            pass
        if self.rng.random() < 0.3:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))      # RST, no FIN
        elif self.rng.random() < 0.3:
            sock.shutdown(socket.SHUT_WR)
        c.close()

    def case_in_pieces(self):
        """All is well, but comes in pieces."""
        q = self.queue(hpda=self.rng.choice(BORDERS8[:14]) & 31)
        sock, rng = q.sock, self.rng

        class Pieces:
            def sendall(self, data):
                while data:
                    n = rng.choice((1, 1, 2, 3, 7, 8, 9, 23, 24, 25, 71, 72, 73, 500, 5000))
                    sock.sendall(data[:n])
                    data = data[n:]

            def __getattr__(self, name):
                return getattr(sock, name)
        q.sock = Pieces()
        blocks = self.rng.choice((1, 2, 8))
        data = self.bytes(blocks * BS)
        check(q.write(self.lba(), data, nsid=2, in_capsule=self.rng.random() < 0.5).status == 0, "a write in pieces")
        check(q.read(self.lba(), blocks, nsid=2).data == data, "what was written in pieces")
        q.close()

    def case_icreq(self):
        """The first PDU has any values."""
        rng = self.rng
        fields = {"pfv": rng.choice((0, 0, 0, 1, 0xffff)), "hpda": rng.choice((0, 1, 30, 31, 32, 33, 255)), "dgst": rng.choice((0, 1, 2, 3, 4, 255)),
                  "maxr2t": rng.choice(BORDERS32), "hlen": rng.choice((128, 128, 128, *BORDERS8)), "plen": rng.choice((128, 128, 128, *BORDERS32))}
        c = Connection(initialize=False)
        pdu = icreq(**fields)
        send(c, pdu)
        wanted = judge(pdu, c, initialized=False)
        if wanted.terms:
            expect(c, wanted, f"ICReq {fields}")
            return
        resp = c.receive()
        check(resp.type == ICRESP and resp.header[11] == fields["dgst"] & 3, f"ICReq {fields}: ICResp {resp.header[:16].hex()}")
        c.close()

    def case_first(self):
        """Some other PDU first, or noise."""
        c = Connection(initialize=False)
        kind = self.rng.randrange(256)
        pdu = struct.pack("<BBBBI", kind, self.rng.choice((0, 1, 2, 3, 4, 255)), self.rng.choice(BORDERS8), self.rng.choice(BORDERS8),
                          self.rng.choice(BORDERS32)) + self.bytes(152)
        if kind == ICREQ or kind == H2C_TERM:
            pdu = bytes([CAPSULE_CMD]) + pdu[1:]
        send(c, pdu)
        expect(c, judge(pdu, c, initialized=False), f"{pdu[:8].hex()} first")

    def case_order(self):
        """A PDU that does not belong here, on a connection that works."""
        q = self.queue()
        kind = self.rng.choice((ICREQ, ICRESP, C2H_TERM, CAPSULE_RESP, H2C_DATA, C2H_DATA, R2T, 8, 10, 0x42, 0xff))
        pdu = icreq() if kind == ICREQ else q.pdu(kind, self.bytes(16), bytes(64) if kind in (H2C_DATA, C2H_DATA) else b"")
        send(q, pdu)
        expect(q, judge(pdu, q), f"type {kind} on a connection that works")

    def case_header(self):
        """One or two fields of a command's header are wrong."""
        q = self.queue()
        sqe = q.rw_sqe(1, self.lba(), 1, nsid=2)
        data = b"" if self.rng.random() < 0.3 else self.bytes(BS)
        sgl = struct.pack("<QI3xB", 0, BS, 0x01 if data else 0x5A)
        noted = self.note()
        good = bytearray(q.pdu(CAPSULE_CMD, sqe[:24] + sgl + sqe[40:], data))
        for field in self.rng.sample(("flags", "hlen", "pdo", "plen"), self.rng.choice((1, 1, 2))):
            if field == "flags":
                good[1] ^= self.rng.choice((F_HDGST, F_DDGST, F_HDGST | F_DDGST))
            elif field == "plen":
                struct.pack_into("<I", good, 4, self.rng.choice(BORDERS32))
            else:
                good[2 if field == "hlen" else 3] = self.rng.choice(BORDERS8)
        if q.hdgst:
            good[72:76] = crc32c(good[:72])
        wanted = judge(bytes(good), q)
        send(q, good)
        if wanted.terms and not wanted.alive:
            expect(q, wanted, f"a command's header {good[:8].hex()}")
            self.check_is(noted, f"a command's header {good[:8].hex()}")
        else:
            q.close()           # it is not whole, or has data of another length: see case_lengths

    def case_h2c_header(self):
        """Any fields of H2CData are wrong."""
        q = self.queue()
        blocks = self.rng.choice((1, 2, 16))
        noted = self.note()
        cid, ttag = self.r2t(q, blocks)
        good = bytearray(h2c_data(q, cid, ttag, 0, self.bytes(blocks * BS), True))
        for field in self.rng.sample(("flags", "hlen", "pdo", "plen", "cccid", "ttag", "datao", "datal"), self.rng.choice((1, 1, 2, 3))):
            if field in ("hlen", "pdo"):
                good[2 if field == "hlen" else 3] = self.rng.choice(BORDERS8)
            elif field == "flags":
                good[1] ^= self.rng.choice((F_HDGST, F_DDGST, F_LAST))
            elif field in ("cccid", "ttag"):
                struct.pack_into("<H", good, 8 if field == "cccid" else 10, self.rng.choice(BORDERS16))
            else:
                struct.pack_into("<I", good, {"plen": 4, "datao": 12, "datal": 16}[field], self.rng.choice(BORDERS32))
        if q.hdgst:
            good[24:28] = crc32c(good[:24])
        wanted = judge(bytes(good), q, (cid, ttag, 0, blocks * BS))
        send(q, good)
        if wanted.terms:
            expect(q, wanted, f"H2CData {good[:24].hex()}")
            self.check_is(noted, f"H2CData {good[:24].hex()}")
        else:
            q.close()

    def case_pieces_of_data(self):
        """Data in several PDUs, one of which may be wrong: it overlaps, leaves a hole, is last too early or not at all, comes again."""
        q = self.queue()
        noted = self.note(16)
        data = self.bytes(16 * BS)
        cid, ttag = self.r2t(q, 16, data)
        cuts = sorted({0, len(data), *(4 * self.rng.randrange(len(data) // 4) for _ in range(self.rng.randrange(4)))})
        bad = self.rng.randrange(2 * len(cuts))
        at = 0
        for i, (begin, end) in enumerate(zip(cuts, cuts[1:])):
            last = end == len(data)
            if i == bad:
                begin += self.rng.choice((0, -4, 4, -512, 512, 8192))
                end += self.rng.choice((0, -4, 4, 4096))
                last ^= self.rng.random() < 0.5
                begin, end = max(begin, 0), max(end, begin + 4)
            piece = (data * 3)[begin:end]
            pdu = h2c_data(q, cid, ttag, begin, piece, last)
            wanted = judge(pdu, q, (cid, ttag, at, len(data)))
            send(q, pdu)
            if wanted.terms:
                expect(q, wanted, f"data {begin} to {end} of {len(data)}, last {last}, {at} have come")
                self.check_is(noted, "data with a wrong piece")
                return
            at = end
            if at == len(data):
                break
        if at < len(data):      # the wrong one was shorter, but not wrong
            send(q, h2c_data(q, cid, ttag, at, data[at:], True))
        check(q.finish(cid).status == 0, "a write in several pieces")
        self.check_is(data[:4096], "a write in several pieces")
        pdu = h2c_data(q, cid, ttag, 0, data, True)
        if bad % 2:
            send(q, pdu)
            expect(q, judge(pdu, q), "data after the end")
        else:
            self.works(q, "a write in several pieces")

    def case_digests(self):
        """A digest that does not fit: of a header it ends the connection, of data it ends the command."""
        q = self.queue(hdgst=True, ddgst=True)
        noted, wrong, blocks = self.note(), self.bytes(4), self.rng.choice((1, 8))
        if self.rng.random() < 0.3:
            pdu = q.pdu(CAPSULE_CMD, q.rw_sqe(2, self.lba(), 1, nsid=2), header_digest=wrong)
            send(q, pdu)
            expect(q, judge(pdu, q), "a wrong header digest")
            return
        if self.rng.random() < 0.5:
            cid = q.start(q.rw_sqe(1, self.lba(), blocks, nsid=2), self.bytes(blocks * BS), data_digest=wrong)
        else:
            cid, ttag = self.r2t(q, blocks)
            send(q, h2c_data(q, cid, ttag, 0, self.bytes(blocks * BS), True, data_digest=wrong))
        check(q.finish(cid).code == TRANSIENT, "a wrong data digest")
        self.check_is(noted, "a wrong data digest")
        self.works(q, "a wrong data digest")

    def case_aborted(self):
        """A write is aborted at any time of its data."""
        q = self.queue()
        noted, data = self.note(16), self.bytes(16 * BS)
        cid, ttag = self.r2t(q, 16, data)
        pdu = h2c_data(q, cid, ttag, 0, data, True)
        at = self.rng.choice((0, 1, 8, 24, 28, 100, 4096, len(pdu) - 1, len(pdu)))
        send(q, pdu[:at])
        gone = self.admin.good(self.admin.sqe(0x08, 0, struct.pack("<HH", q.qid, cid))).result & 1 == 0
        check(gone or at == len(pdu), f"not aborted after {at} of {len(pdu)} bytes")
        send(q, pdu[at:])
        c = q.finish(cid)
        check(c.code == (ABORT_REQ if gone else 0), f"status {c.code:#x} after {at} of {len(pdu)} bytes")
        self.check_is(noted if gone else data[:4096], f"aborted after {at} of {len(pdu)} bytes")
        self.works(q, "a write that was aborted")

    def case_lengths(self):
        """The SGL says something else than the PDU or the command has."""
        q = self.queue()
        noted = self.note()
        data = self.bytes(self.rng.choice((4, 508, 512, 516, 1024, 4096)))
        length = self.rng.choice((*BORDERS32, len(data)))
        offset = self.rng.choice((0, 0, 1, 4, 512, 0xffffffff, 1 << 63))
        kind = self.rng.choice((0x01, 0x01, 0x5A, 0x40, 0x00, 0x10, 0x20, 0x30, 0xFF, self.rng.randrange(256)))
        sqe = q.rw_sqe(1, self.lba(), 1, nsid=2)
        cid, = struct.unpack_from("<H", sqe, 2)
        q.under_way[cid] = [bytes(BS), bytearray(), 0]
        send(q, q.pdu(CAPSULE_CMD, sqe[:24] + struct.pack("<QI3xB", offset, length, kind) + sqe[40:], data))
        inside = kind == 0x01 and length >= BS and offset + length <= len(data)
        asked = kind == 0x5A and length >= BS
        c = q.finish(cid)
        what = f"SGL {kind:#x}, {offset}, {length} with {len(data)} bytes: status {c.status:#x}"
        if c.status == 0:
            check(inside or asked, what)
            self.check_is(data[offset:offset + BS] if inside else bytes(BS), what)
        else:       # more than the command has may be refused
            check(not (inside or asked) or length != BS or offset != 0, what)
            self.check_is(noted, what)
        self.works(q, "an SGL")

    def case_too_much_in_capsule(self):
        q = self.queue()
        noted = self.note()
        n = self.rng.choice((4100, 4608, 8192, 8196, 8704, 65536))
        pdu = q.pdu(CAPSULE_CMD, q.rw_sqe(1, self.lba(), 1, nsid=2), bytes(n))
        send(q, pdu)
        expect(q, judge(pdu, q), f"{n} bytes in a capsule")
        self.check_is(noted, f"{n} bytes in a capsule")

    def case_flood(self):
        """More commands than the queue has entries."""
        q = self.queue(size=4)
        wanted = Wanted()
        wanted.term(SEQUENCE)
        for i in range(5 + self.rng.randrange(4)):
            send(q, q.pdu(CAPSULE_CMD, q.rw_sqe(1, self.lba() + i, 1, nsid=2)[:24] + struct.pack("<QI3xB", 0, BS, 0x5A) + q.rw_sqe(1, self.lba() + i, 1)[40:]))
        expect(q, wanted, "more commands than entries")

    def case_terminates(self):
        """The host ends the connection, with any reason."""
        q = self.queue()
        cid, ttag = self.r2t(q, 8) if self.rng.random() < 0.5 else (0, 0)
        plen = self.rng.choice((24, 25, 48, 151, 152, 23, 153, *BORDERS32))
        pdu = struct.pack("<BBBBIHIxx8x", H2C_TERM, self.rng.randrange(256), 24, self.rng.randrange(256), plen, self.rng.choice(BORDERS16),
                          self.rng.choice(BORDERS32)) + self.bytes(128)
        wanted = judge(pdu, q)
        send(q, pdu)
        if wanted.terms:
            expect(q, wanted, f"H2CTermReq of {plen} bytes")
        else:
            check(q.ends() is None, "a TermReq was answered with one")
            q.close()

    def case_noise(self):
        """Bytes without any sense; then the end comes from either side."""
        q = self.queue() if self.rng.random() < 0.5 else Connection()
        send(q, self.bytes(self.rng.choice((8, 64, 512, 4096))))
        q.close()

    def case_storm(self):
        """Many connect at once and go at once, each at another step."""
        some = []
        for i in range(8):
            c = Connection(initialize=False)
            send(c, icreq()[:self.rng.choice((0, 8, 127, 128, 128))])
            some.append(c)
        self.rng.shuffle(some)
        for c in some:
            c.close()

    def case_slow(self):
        """A host that sends a byte now and then: it goes on while other cases run, and is served when it has sent all."""
        if len(self.slow) < 16 and self.rng.random() < 0.5:
            c = Connection(initialize=False)
            self.slow.append([c, icreq()])
        for entry in list(self.slow):
            c, rest = entry
            n = self.rng.choice((1, 1, 1, 5, 40))
            send(c, rest[:n])
            entry[1] = rest[n:]
            if not entry[1]:
                try:
                    check(c.receive().type == ICRESP, "the answer to a slow host")
                except Closed:
                    pass        # its time was up
                c.close()
                self.slow.remove(entry)

    KINDS = (("truncated", 22), ("in_pieces", 6), ("icreq", 8), ("first", 6), ("order", 8), ("header", 12), ("h2c_header", 12), ("pieces_of_data", 8),
             ("digests", 5), ("aborted", 5), ("lengths", 6), ("too_much_in_capsule", 2), ("flood", 2), ("terminates", 5), ("noise", 3), ("storm", 1),
             ("slow", 3))

    def run(self, n, kind=None, *args):
        self.n, self.rng = n, random.Random(f"{self.seed}:{n}")
        kind = kind or self.rng.choices([k for k, _ in self.KINDS], [w for _, w in self.KINDS])[0]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        try:
            getattr(self, f"case_{kind}")(*args)
        except (Failure, Closed, Terminated, OSError) as e:
            raise Failure(f"seed {self.seed}, case {n} ({kind}): {type(e).__name__}: {e}") from e


def held(t):
    """What the kernel holds for it. (wait_empty() looks at what it holds itself.)"""
    return {"descriptors": len(os.listdir(f"/proc/{t.pid}/fd")), "threads": len(os.listdir(f"/proc/{t.pid}/task"))}


GOOD_HOST = ("-q", "4", "--rate", "500")


def median_us(result):
    """That of its reads or of its writes, whichever is greater."""
    return max(result[kind]["latency_us"]["p50"] for kind in ("read", "write"))


def median_alone(t):
    """Of a good host that shares the target with nobody."""
    with verifying(t, 1, *GOOD_HOST, "-t", "3") as h:
        r = h.result()
        h.check_perfect(r)
    t.wait_empty()
    return median_us(r)


@contextlib.contextmanager
def victim(**transport):
    """A target with a namespace for the good host and one for hostile ones."""
    with TcpTarget(cores="[0]", **transport) as t:
        t.add_malloc("good")
        t.add_ns("good", nsid=1)
        t.add_malloc("wild", AREA * BS >> 20)
        t.add_ns("wild", nsid=2)
        yield t
        t.stop_clean()


def seed_of_run():
    return int(os.environ.get("VARVE_SEED", "0")) or time.time_ns() % 1000000


def beside_good_host(t, seed, numbers, kind=None, seconds=0):
    """Sends the cases of these numbers while a good host does verified I/O. How many of each kind there were, and the good host's result."""
    before = held(t)
    with verifying(t, 1, *GOOD_HOST, "-t", "36000") as good:
        wait_io(t, [good], 300)
        begin = time.monotonic()
        g = Generator(t, seed)
        for n in numbers:
            if seconds and time.monotonic() - begin > seconds:
                break
            g.run(n, *((kind, n) if kind else ()))
            if n % 500 == 0:
                check(t.process.poll() is None and good.is_running(), f"seed {seed}, case {n}: target or good host ended\n{t.log()[-3000:]}")
        g.close()
        wait_io(t, [good], 100)
        r = good.stop()
        good.check_perfect(r)
    t.wait_empty()
    wait_for(lambda: all(n <= before[k] for k, n in held(t).items()), lambda: f"what was held before ({before}); now: {held(t)}")
    return g.counts, r


def attack(cases, kind=None, seconds=0, strict=False, **transport):
    """Generated cases beside a good host; or one after the other of a kind, each told its number. With `seconds`, only those that begin within them.
    strict: the good host's median latency may be twice what it is without hostile ones, and no more."""
    seed = seed_of_run()
    only = os.environ.get("VARVE_ONLY")
    with victim(**transport) as t:
        alone = median_alone(t)
        begin, cpu = time.monotonic(), time.process_time()
        counts, r = beside_good_host(t, seed, [int(only)] if only else range(cases), kind, seconds)
        took, cpu = time.monotonic() - begin, time.process_time() - cpu
    print(f"# seed {seed}: {sum(counts.values())} of {cases} cases, {took:.0f} s, {cpu:.0f} s of CPU of the generator; {r['read']['ios'] + r['write']['ios']} "
          "verified I/Os beside")
    beside = median_us(r)
    print(f"# the good host's median latency: {alone:.0f} us alone, {beside:.0f} us beside them")
    print(f"# {dict(sorted(counts.items()))}", flush=True)
    check(not strict or beside <= 2 * alone, f"the good host's median latency went from {alone:.0f} to {beside:.0f} us")
    return counts


def attack_in_turns(cases, turns):
    """A good host alone, and then beside hostile ones, in turns that share the cases. How many cases there were, how many I/Os were verified beside
    them, and the median latencies of each turn, alone and beside them."""
    seed, tried, verified, latencies = seed_of_run(), 0, 0, []
    with victim() as t:
        for turn in range(turns):
            alone = median_alone(t)
            counts, r = beside_good_host(t, seed, range(turn, cases, turns))
            tried += sum(counts.values())
            verified += r["read"]["ios"] + r["write"]["ios"]
            latencies.append((alone, median_us(r)))
    return tried, verified, latencies
