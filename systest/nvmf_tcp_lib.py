# SPDX-License-Identifier: BSD-3-Clause
"""A small NVMe/TCP initiator, written from the specifications (NVMe TCP Transport 1.0c, Base 2.0) and from nothing of varve's: it judges the
target's bytes. Every PDU that arrives is checked: lengths, alignment, flags, order, digests. It blocks, and keeps no state beyond a command."""
import contextlib
import pathlib
import socket
import struct
import tempfile

from appliance_lib import DEADLINE, check
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT, Target

ICREQ, ICRESP, H2C_TERM, C2H_TERM, CAPSULE_CMD, CAPSULE_RESP, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9
F_HDGST, F_DDGST, F_LAST, F_SUCCESS = 1, 2, 4, 8
HLEN = {ICRESP: 128, C2H_TERM: 24, CAPSULE_RESP: 24, C2H_DATA: 24, R2T: 24}
INVALID_FIELD, SEQUENCE, HEADER_DIGEST, OUT_OF_RANGE, LIMIT, UNSUPPORTED = 1, 2, 3, 4, 5, 6
SGL_IN_CAPSULE, SGL_TRANSPORT = 0x01, 0x5A
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
HOSTID = b"\x11" * 16
TRANSIENT = 0x22


def _table():
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        yield n


TABLE = list(_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 0xFF] ^ crc >> 8
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


class Closed(Exception):
    """The target has closed the connection."""


class Terminated(Exception):
    """The target has sent C2HTermReq."""

    def __init__(self, fes, fei, pdu):
        super().__init__(f"C2HTermReq: FES {fes}, FEI {fei}, {len(pdu)} bytes of the PDU in error")
        self.fes, self.fei, self.pdu = fes, fei, pdu


class Pdu:
    def __init__(self, type, flags, header, data):
        self.type, self.flags, self.header, self.data = type, flags, header, data


class Connection:
    """A connection, with ICReq answered unless initialize is False."""

    def __init__(self, port=PORT, address=ADDRESS, hdgst=False, ddgst=False, hpda=0, maxr2t=0, initialize=True):
        self.sock = self.open_socket(address, port)
        self.buffer = b""
        self.hdgst = self.ddgst = False
        self.align = 4 * (hpda + 1)
        self.cpda, self.maxh2cdata = 0, 4096
        self.received = []      # types
        self.held = None        # by together(): PDUs that are not sent yet
        if initialize:
            self.initialize(hdgst, ddgst, hpda, maxr2t)

    def open_socket(self, address, port):
        sock = socket.create_connection((address, port), timeout=DEADLINE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def initialize(self, hdgst, ddgst, hpda, maxr2t):
        self.sock.sendall(struct.pack("<BBBBIHBBI112x", ICREQ, 0, 128, 0, 128, 0, hpda, hdgst | ddgst << 1, maxr2t))
        pdu = self.receive()
        check(pdu.type == ICRESP, f"the answer to ICReq is of type {pdu.type}")
        pfv, self.cpda, dgst, self.maxh2cdata = struct.unpack_from("<HBBI", pdu.header, 8)
        check(pfv == 0 and self.cpda <= 31 and not any(pdu.header[16:]), f"ICResp: {pdu.header.hex()}")
        check(dgst == hdgst | ddgst << 1, f"ICResp has digests {dgst}")
        check(self.maxh2cdata >= 4096 and self.maxh2cdata % 4 == 0, f"MAXH2CDATA is {self.maxh2cdata}")
        self.hdgst, self.ddgst = bool(hdgst), bool(ddgst)

    # ---- sending ----

    def pdu(self, type, header, data=b"", flags=0, **wrong):
        """The bytes of a PDU. header: what is behind the common header. wrong: hlen, pdo, plen, header_digest, data_digest."""
        hlen = 8 + len(header)
        pdo = 0
        if data:
            align = 4 * (self.cpda + 1)
            pdo = -(-(hlen + 4 * self.hdgst) // align) * align
        plen = (pdo + len(data) + 4 * self.ddgst) if data else hlen + 4 * self.hdgst
        flags |= F_HDGST * self.hdgst | F_DDGST * (self.ddgst and bool(data))
        head = struct.pack("<BBBBI", type, flags, wrong.get("hlen", hlen), wrong.get("pdo", pdo), wrong.get("plen", plen)) + header
        if self.hdgst:
            head += wrong.get("header_digest", crc32c(head))
        if data:
            head = head.ljust(pdo, b"\0") + data
            if self.ddgst:
                head += wrong.get("data_digest", crc32c(data))
        return head

    def send(self, *args, **kwargs):
        if self.held is not None:
            self.held.append(self.pdu(*args, **kwargs))
        else:
            self.sock.sendall(self.pdu(*args, **kwargs))

    @contextlib.contextmanager
    def together(self):
        """What is sent meanwhile goes out at its end, in one piece."""
        self.held = []
        yield
        held, self.held = self.held, None
        self.sock.sendall(b"".join(held))

    # ---- receiving ----

    def take(self, n):
        while len(self.buffer) < n:
            try:
                more = self.sock.recv(1 << 20)
            except ConnectionResetError:
                more = b""
            if not more:
                raise Closed(f"{len(self.buffer)} of {n} bytes were left")
            self.buffer += more
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def receive(self):
        common = self.take(8)
        type, flags, hlen, pdo, plen = struct.unpack("<BBBBI", common)
        check(type in HLEN, f"a PDU of type {type}")
        check(hlen == HLEN[type], f"type {type}: HLEN {hlen}")
        self.received.append(type)
        has_hdgst = self.hdgst and type not in (ICRESP, C2H_TERM)
        check(bool(flags & F_HDGST) == has_hdgst, f"type {type}: flags {flags:#x}, header digest")
        header = common + self.take(hlen - 8)
        if type == C2H_TERM:
            check(plen <= 152, f"a TermReq of {plen} bytes")
            fes, fei = struct.unpack_from("<HI", header, 8)
            raise Terminated(fes, fei, self.take(plen - hlen))
        if has_hdgst:
            check(self.take(4) == crc32c(header), f"type {type}: the header digest is wrong")
        head = hlen + 4 * has_hdgst
        if type != C2H_DATA:
            check(plen == head and pdo == 0 and not flags & F_DDGST, f"type {type}: PLEN {plen}, PDO {pdo}, flags {flags:#x}")
            return Pdu(type, flags, header, b"")
        check(pdo >= head and pdo % self.align == 0, f"C2HData: PDO {pdo}")
        check(not any(self.take(pdo - head)), "C2HData: padding is not 0")
        has_ddgst = bool(flags & F_DDGST)
        check(has_ddgst == self.ddgst, f"C2HData: flags {flags:#x}, data digest")
        data = self.take(plen - pdo - 4 * has_ddgst)
        if has_ddgst:
            check(self.take(4) == crc32c(data), "C2HData: the data digest is wrong")
        return Pdu(type, flags, header, data)

    def ends(self):
        """Waits for the end of the connection; returns the Terminated that came before it, or None."""
        term = None
        try:
            while True:
                self.receive()
        except Terminated as e:
            term = e
        except Closed:
            return None
        check(self.buffer == b"" and self.at_end(), "there is something behind C2HTermReq")
        return term

    def at_end(self):
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


class Completion:
    def __init__(self, cqe, data, told_by_data):
        self.result, self.sqhd, self.sqid, self.cid, status = struct.unpack("<QHHHH", cqe)
        self.status, self.data, self.told_by_data = status >> 1, data, told_by_data

    @property
    def code(self):
        """Status code type and code."""
        return self.status & 0x7FF


class Queue(Connection):
    """A queue: Connect has been sent. Commands are sent one by one, or, with start() and finish(), several at once."""

    def __init__(self, qid=0, cntlid=0xFFFF, nqn=NQN, size=32, hostnqn=HOSTNQN, flow_control=False, connect=True, kato=0, **options):
        super().__init__(**options)
        self.qid, self.next_cid, self.flow_control = qid, 1, flow_control
        self.under_way = {}     # cid: [data to send, data that came, bytes wanted]
        self.done = {}
        self.cntlid = cntlid
        if connect:
            c = self.connect(cntlid, nqn, size, hostnqn, kato)
            check(c.status == 0, f"Connect: status {c.status:#x}")
            self.cntlid = c.result & 0xFFFF

    def connect(self, cntlid, nqn, size, hostnqn, kato=0, hostid=HOSTID):
        data = (hostid + struct.pack("<H", cntlid)).ljust(256, b"\0") + nqn.encode().ljust(256, b"\0") + hostnqn.encode().ljust(256, b"\0")
        sqe = self.sqe(0x7F, nsid=1, specific=struct.pack("<HHHBxI", 0, self.qid, size - 1, 0 if self.flow_control else 4, kato))
        return self.command(sqe, data.ljust(1024, b"\0"))

    def sqe(self, opcode, nsid=0, specific=b"", cid=None):
        """nsid: of fabrics commands FCTYPE; specific: from dword 10 on."""
        if cid is None:
            cid, self.next_cid = self.next_cid, self.next_cid % 0xFFFE + 1
        return struct.pack("<BBHI", opcode, 0x40, cid, nsid) + bytes(32) + specific.ljust(24, b"\0")

    def start(self, sqe, data=b"", length=0, in_capsule=True, **wrong):
        """Sends a command. data: to the controller; length: bytes that it is to send. Returns the cid."""
        cid, = struct.unpack_from("<H", sqe, 2)
        inside = bool(data) and in_capsule
        sgl = struct.pack("<QI3xB", 0, len(data) or length, SGL_IN_CAPSULE if inside else SGL_TRANSPORT)
        self.under_way[cid] = [data, bytearray(length), 0]
        self.send(CAPSULE_CMD, sqe[:24] + sgl + sqe[40:], data if inside else b"", **wrong)
        return cid

    def answer_r2t(self, pdu):
        cccid, ttag, offset, length = struct.unpack_from("<HHII", pdu.header, 8)
        data = self.under_way[cccid][0]
        check(length > 0 and offset + length <= len(data) and not any(pdu.header[20:]), f"R2T of {length} bytes from {offset} on")
        at = offset
        while at < offset + length:
            n = min(self.maxh2cdata, offset + length - at)
            self.send(H2C_DATA, struct.pack("<HHII4x", cccid, ttag, at, n), data[at:at + n], F_LAST if at + n == offset + length else 0)
            at += n

    def take_data(self, pdu):
        cccid, rsvd, offset, length = struct.unpack_from("<HHII", pdu.header, 8)
        command = self.under_way[cccid]
        check(length == len(pdu.data) > 0 and rsvd == 0 and not any(pdu.header[20:]), f"C2HData: DATAL {length}")
        check(offset == command[2] and offset + length <= len(command[1]), f"C2HData: DATAO {offset}, DATAL {length}")
        command[1][offset:offset + length] = pdu.data
        command[2] = offset + length
        if pdu.flags & F_LAST:
            check(command[2] == len(command[1]), "C2HData: LAST_PDU before the end")
        if pdu.flags & F_SUCCESS:
            check(pdu.flags & F_LAST and not self.flow_control, "C2HData: SUCCESS")
            self.complete(struct.pack("<QHHHH", 0, 0, 0, cccid, 0), True)

    def complete(self, cqe, told_by_data=False):
        cid, = struct.unpack_from("<H", cqe, 12)
        check(cid in self.under_way, f"a response for cid {cid}, which is not outstanding")
        _, came, n = self.under_way.pop(cid)
        c = Completion(cqe, bytes(came), told_by_data)
        check(c.status != 0 or n == len(came), f"{n} of {len(came)} bytes of data")
        self.done[cid] = c

    def finish(self, cid):
        """Receives until the command has ended."""
        while cid not in self.done:
            pdu = self.receive()
            if pdu.type == R2T:
                self.answer_r2t(pdu)
            elif pdu.type == C2H_DATA:
                self.take_data(pdu)
            else:
                check(pdu.type == CAPSULE_RESP, f"a PDU of type {pdu.type}")
                self.complete(pdu.header[8:])
        return self.done.pop(cid)

    def command(self, *args, **kwargs):
        return self.finish(self.start(*args, **kwargs))

    def good(self, *args, **kwargs):
        c = self.command(*args, **kwargs)
        check(c.status == 0, f"status {c.status:#x}")
        return c

    # ---- commands ----

    def property_set(self, offset, value):
        self.good(self.sqe(0x7F, 0, struct.pack("<B3xIQ", 0, offset, value)))

    def property_get(self, offset, size=4):
        return self.good(self.sqe(0x7F, 4, struct.pack("<B3xI", size == 8, offset))).result

    def enable(self):
        self.property_set(0x14, 0x460001)
        while not self.property_get(0x1C) & 1:
            pass
        return self

    def identify(self, cns, nsid=0):
        return self.good(self.sqe(0x06, nsid, struct.pack("<I", cns)), length=4096).data

    def log_page(self, page, length):
        return self.good(self.sqe(0x02, 0, struct.pack("<I", page | (length // 4 - 1) << 16)), length=length).data

    def rw_sqe(self, opcode, lba, blocks, nsid=1):
        return self.sqe(opcode, nsid, struct.pack("<QI", lba, blocks - 1))

    def write(self, lba, data, bs=512, nsid=1, **kwargs):
        return self.command(self.rw_sqe(1, lba, len(data) // bs, nsid), data, **kwargs)

    def read(self, lba, blocks, bs=512, nsid=1, **kwargs):
        return self.command(self.rw_sqe(2, lba, blocks, nsid), length=blocks * bs, **kwargs)


@contextlib.contextmanager
def disk(mb=64):
    """A file that outlives daemons."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "disk"
        with open(path, "wb") as f:
            f.truncate(mb << 20)
        yield path


@contextlib.contextmanager
def host(d, bdev):
    """A host's queue, and the namespace that the bdev is there."""
    nsid = d.add_ns(bdev)
    with Queue(port=d.port) as admin:
        admin.enable()
        with Queue(port=d.port, qid=1, cntlid=admin.cntlid) as queue:
            yield queue, nsid
    d.remove_ns(nsid)


class TcpTarget(Target):
    """As Target, over TCP."""

    def __init__(self, *options, **kwargs):
        super().__init__(*options, trtype="TCP", **kwargs)

    def refusals(self):
        """The notifications of hosts that it has refused."""
        return [str(n) for n in self.notifications("nvmf_host_refused")]
