#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 300
# sanitize
"""Connect in the whole program, by an initiator of its own (nvmf_tcp_lib.py): hosts without a name, which SPDK's perf and identify are; and what a host that is
refused, the log and the notifications say: what was wrong, its value, and what is allowed."""
import re
import struct
import sys

from appliance_lib import check, main, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT
from nvmf_tcp_lib import DISCOVERY, HOSTID, ICREQ, ICRESP, Connection, Queue, TcpTarget

UNNAMED = f"(unnamed) {ADDRESS}"
INVALID_PARAMETERS, INVALID_HOST, SEQUENCE_ERROR = 0x182, 0x184, 0x00C
OF_DATA = 1 << 16       # of the result of a refused Connect: the byte is one of the data
CNTLID, SUBNQN, HOST = OF_DATA | 16, OF_DATA | 256, OF_DATA | 512
SQSIZE = 44


def test_a_host_without_a_name_goes_by_its_address():
    with TcpTarget() as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        with Queue(nqn=DISCOVERY, hostnqn="") as discovery:
            discovery.enable()
            check(NQN.encode() in discovery.log_page(0x70, 4096), "the discovery log")
        with Queue(hostnqn="") as admin:
            admin.enable()
            with Queue(qid=1, cntlid=admin.cntlid, hostnqn="") as io:
                data = bytes(range(256)) * 16
                check(io.write(3, data).status == 0 and io.read(3, 8).data == data, "its I/O")
                [ctrlr] = t.call("nvmf_subsystem_get_controllers", nqn=NQN)
                check(ctrlr["hostnqn"] == UNNAMED and ctrlr["num_io_qpairs"] == 1, ctrlr)
                check({q["hostnqn"] for q in t.call("nvmf_subsystem_get_qpairs", nqn=NQN)} == {UNNAMED}, "its queue pairs")
        check(t.notifications("nvmf_host_connect")[-1]["ctx"].startswith(f"{NQN} {UNNAMED} "), t.notifications("nvmf_host_connect"))
        check(f"{UNNAMED} from {ADDRESS} connects to {NQN}" in t.log(), t.log())
        t.wait_empty()
        t.stop_clean()


def uuid(byte):
    return re.sub(r"(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", f"{byte:02x}" * 16)


def connect_with(sqe_bytes, reserved):
    """An admin queue whose Connect has those bytes of the command, {offset: value}, and that value in all reserved bytes of its data."""
    q = Queue(connect=False)
    data = bytearray([reserved]) * 1024
    data[0:18] = HOSTID + struct.pack("<H", 0xFFFF)
    data[256:512], data[512:768] = NQN.encode().ljust(256, b"\0"), HOSTNQN.encode().ljust(256, b"\0")
    sqe = bytearray(q.sqe(0x7F, nsid=1, specific=struct.pack("<HHHBxI", 0, 0, 31, 4, 0)))
    for at, value in sqe_bytes:
        sqe[at] |= value
    answer = q.command(bytes(sqe), bytes(data))
    check(answer.status == 0, f"refused with {answer.status:#x}, result {answer.result:#x}")
    return q


def test_names_and_identifiers_that_say_nothing_are_taken():
    """A host NQN that is no NQN, and a HOSTID of zeroes, which two hosts may have at once."""
    with TcpTarget() as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        for name in ("oldhost", "host with blanks", "nqn.2014-08"):
            with Queue(hostnqn=name) as q:
                q.enable()
                [ctrlr] = t.call("nvmf_subsystem_get_controllers", nqn=NQN)
                check(ctrlr["hostnqn"] == name, ctrlr)
            wait_for(lambda: t.call("nvmf_subsystem_get_controllers", nqn=NQN) == [], "the host to go")
        with Queue(connect=False) as a, Queue(connect=False) as b:
            for q, name in ((a, HOSTNQN), (b, HOSTNQN + "2")):
                c = q.connect(0xFFFF, NQN, 32, name, hostid=bytes(16))
                check(c.status == 0, f"{c.status:#x}")
            check({x["hostid"] for x in t.call("nvmf_subsystem_get_controllers", nqn=NQN)} == {uuid(0)}, "both are there")


def test_what_is_reserved_is_not_looked_at():
    """Newer hosts give a meaning to it: reserved bytes of ICReq and bits of its digests, of Connect and its data, and of commands."""
    with TcpTarget() as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        with Connection(initialize=False) as c:
            c.sock.sendall(struct.pack("<BBBBIHBBI", ICREQ, 0, 128, 0, 128, 0, 0, 0xFC, 0) + b"\xff" * 112)
            pdu = c.receive()
            check((pdu.type, pdu.header[11]) == (ICRESP, 0), f"{pdu.type} {pdu.header.hex()}: digests that nobody has asked for")
        everywhere = [(at, 0xFF) for at in (*range(8, 24), 47, *range(52, 64))]
        for sqe_bytes in ([(46, 0xF0)], everywhere):        # CATTR; bytes 8 to 23, 47 and 52 to 63
            with connect_with(sqe_bytes, reserved=0xFF) as q:
                q.enable()
                check(len(q.identify(1)) == 4096, "Identify")
                check(q.command(bytearray(q.sqe(0x06, 0xFFFFFFFF, struct.pack("<IIII", 1, 0, 0xFFFFFFFF, 0xFFFFFFFF))), length=4096).status == 0,
                      "Identify Controller with a namespace id and reserved dwords")
            wait_for(lambda: t.call("nvmf_subsystem_get_controllers", nqn=NQN) == [], "the host to go")


RESV_REGISTER, RESV_ACQUIRE, RESV_RELEASE, IEKEY, WRITE_EXCLUSIVE, CONFLICT = 0x0D, 0x11, 0x15, 1 << 3, 1 << 8, 0x083


def test_linux_before_6_0_releases_its_reservation_with_iekey():
    """It sets the bit where it gives its key. A wrong key is none all the same. Its "clear" is an unregister."""
    with TcpTarget() as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        with Queue() as admin:
            admin.enable()
            with Queue(qid=1, cntlid=admin.cntlid) as q:
                def reservation(opcode, cdw10, *keys):
                    return q.command(q.sqe(opcode, 1, struct.pack("<I", cdw10)), struct.pack(f"<{len(keys)}Q", *keys)).code

                check(reservation(RESV_REGISTER, 3 << 30, 0, 7) == 0x002, "CPTPL without a file for it")
                check("CPTPL is 3" in t.log() and "has no ptpl_file" in t.log(), t.log())
                check(reservation(RESV_REGISTER, 0, 0, 7) == 0 and reservation(RESV_ACQUIRE, WRITE_EXCLUSIVE, 7, 0) == 0, "register and acquire")
                check(reservation(RESV_RELEASE, WRITE_EXCLUSIVE | IEKEY, 8) == CONFLICT, "released with a wrong key")
                check(q.command(q.sqe(0x0E, 1, struct.pack("<II", 15, 1)), length=64).data[4] == 1, "the reservation is there")
                check(reservation(RESV_RELEASE, WRITE_EXCLUSIVE | IEKEY, 7) == 0, "released with the right key")
                check(q.command(q.sqe(0x0E, 1, struct.pack("<II", 15, 1)), length=64).data[4] == 0, "and it is gone")
                check(reservation(RESV_REGISTER, 1 | IEKEY, 7, 0) == 0, "unregistered")


def test_what_comes_too_late_for_its_queue_or_page_is_answered():
    """Abort of a command of a queue that has ended, and the discovery log behind its end."""
    with TcpTarget() as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        with Queue() as admin:
            admin.enable()
            c = admin.command(admin.sqe(0x08, 0, struct.pack("<I", 3 | 5 << 16)))
            check((c.status, c.result & 1) == (0, 1), f"status {c.status:#x}, result {c.result:#x}")
        with Queue(nqn=DISCOVERY) as discovery:
            discovery.enable()
            numrec, = struct.unpack_from("<Q", discovery.log_page(0x70, 1024), 8)
            for offset in (1024 * (numrec + 1), 1024 * (numrec + 5), 1 << 40):
                piece = discovery.command(discovery.sqe(0x02, 0, struct.pack("<IIQ", 0x70 | 1023 << 16, 0, offset)), length=4096)
                check((piece.status, piece.data) == (0, bytes(4096)), f"from {offset}: {piece.status:#x}")


def refused(t, code, where, nqn, host, words, qid=0, cntlid=0xFFFF, size=32, hostnqn=HOSTNQN, hostid=HOSTID):
    """A Connect that is refused with this status and place of the field: what the log and the notification say of it."""
    with Queue(connect=False, qid=qid) as q:
        c = q.connect(cntlid, nqn, size, hostnqn, hostid=hostid)
        check((c.code, c.result) == (code, where), f"{words}: status {c.status:#x}, result {c.result:#x}")
    told = wait_for(lambda: [n for n in t.notifications("nvmf_host_refused") if words in n["reason"]], f"'{words}' to be told of")[-1]
    check(told["ctx"] == f"{nqn} {host}", told)
    check(any(words in line and host in line and nqn in line for line in t.log().splitlines()), f"'{words}' of {host}: {t.log()}")


def test_who_is_refused_is_told_what_was_wrong_its_value_and_what_is_allowed():
    other, stranger = NQN + ":other", HOSTNQN + ":stranger"
    with TcpTarget() as t, Queue() as good:
        good.enable()
        refused(t, INVALID_PARAMETERS, SUBNQN, other, HOSTNQN, f'SUBNQN is "{other}": allowed are the subsystems that listen at {ADDRESS} port {PORT}')
        refused(t, INVALID_PARAMETERS, SQSIZE, NQN, HOSTNQN, "SQSIZE is 255, for 256 entries: allowed are 2 to 128 entries", size=256)
        refused(t, INVALID_PARAMETERS, CNTLID, NQN, HOSTNQN, "CNTLID is 0x0009: allowed is 0xffff", cntlid=9)
        refused(t, INVALID_PARAMETERS, CNTLID, NQN, HOSTNQN, "CNTLID is 999: the subsystem has no such controller", qid=1, cntlid=999)
        refused(t, INVALID_PARAMETERS, HOST, NQN, stranger, f"HOSTNQN is \"{stranger}\": allowed is that of controller {good.cntlid}'s host, \"{HOSTNQN}\"",
                qid=1, cntlid=good.cntlid, hostnqn=stranger)
        refused(t, INVALID_PARAMETERS, OF_DATA, NQN, HOSTNQN, f"HOSTID is {uuid(0x22)}: allowed is that of controller {good.cntlid}'s host, {uuid(0x11)}", qid=1,
                cntlid=good.cntlid, hostid=b"\x22" * 16)
        with Queue(qid=1, cntlid=good.cntlid):
            refused(t, SEQUENCE_ERROR, 0, NQN, HOSTNQN, f"QID is 1: controller {good.cntlid} has that queue already", qid=1, cntlid=good.cntlid)
        t.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=False)
        refused(t, INVALID_HOST, 0, NQN, stranger, "it is not among the subsystem's hosts", hostnqn=stranger)
        refused(t, INVALID_HOST, 0, NQN, UNNAMED, "HOSTNQN is empty: allowed is that of one of the subsystem's hosts", hostnqn="")


def shown(name):
    """As utf8_quote() shows a name in 88 bytes."""
    b = name.replace('"', "'").encode()
    return f'"{b.decode()}"' if len(b) <= 85 else f'"{b[:41].decode(errors="ignore")}...{b[-41:].decode(errors="ignore")}"'


def test_what_hosts_call_themselves_and_others_cannot_be_taken_for_our_words():
    allowed = f": allowed are the subsystems that listen at {ADDRESS} port {PORT}"
    names = ["x: allowed is 0 (9999 more were not told)", 'x": allowed is 0 ("', "x" + "\u00e4" * 111, "\U0001f600" * 55, "n" * 222 + "a", "n" * 222 + "b"]
    texts = {name: f"SUBNQN is {shown(name)}{allowed}" for name in names}
    check(len(set(texts.values())) == len(names), texts)
    texts |= {f"nqn.2026-11.io.varve:a{c}b": "SUBNQN is not a name" for c in "\u2028\u202e\u2066"}
    with TcpTarget() as t:
        for n, (name, text) in enumerate(texts.items(), 1):
            with Queue(connect=False) as q:
                c = q.connect(0xFFFF, name, 32, HOSTNQN)
                check((c.code, c.result) == (INVALID_PARAMETERS, SUBNQN), f"{name!r}: status {c.status:#x}, result {c.result:#x}")
            wait_for(lambda n=n: len(t.notifications("nvmf_host_refused")) == n, f"{name!r} to be told of")
            told = t.notifications("nvmf_host_refused")[-1]
            check(told["reason"].startswith(text), f"{name!r}: {told}")
            check(text in t.log_path.read_text(encoding="utf-8", errors="strict"), f"{name!r}: {t.log()}")
        check(not set("\u2028\u202e\u2066") & set(t.log()), t.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
