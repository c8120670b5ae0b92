#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 180
# sanitize
"""Copy, Verify and Write Uncorrectable from a host through a varve that re-exports a namespace of another one: what the bdev has itself
(the remote one, whose target is at malloc) and what the bdev layer makes of reads and writes (io_uring)."""
import base64
import struct
import sys

from appliance_lib import RpcError, check, main
from nvmf_lib import ADDRESS, NQN, PORT, Target

BACK_PORT, FRONT_PORT = PORT, PORT + 20000
FLUSH, WRITE, READ, WRITE_UNCOR, VERIFY, COPY = 0x00, 0x01, 0x02, 0x04, 0x0c, 0x19
LBA_RANGE, INVALID_FIELD, INVALID_OPCODE, INVALID_NS_OR_FORMAT = 0x80, 0x02, 0x01, 0x0b
SIZE_LIMIT, OVERLAP, READ_ERROR = 0x183, 0x187, 0x281
BS, BLOCKS = 512, 32768


def attach(d, port, name):
    return d.call("bdev_nvme_attach_controller", name=name, trtype="RDMA", adrfam="IPv4", traddr=ADDRESS, trsvcid=str(port), subnqn=NQN)


def pattern(n, seed):
    return b"".join(bytes([seed + i & 255]) * BS for i in range(n))


class Disk:
    """A namespace, by raw commands of the daemon whose controller Nvme0 it is on."""

    def __init__(self, daemon, nsid):
        self.daemon, self.nsid = daemon, nsid

    def send(self, opcode, data=None, data_len=0, admin=False, cdw10=0, cdw11=0, cdw12=0):
        cmd = struct.pack("<B3xI32xIII12x", opcode, self.nsid, cdw10, cdw11, cdw12)
        more = {"data": base64.urlsafe_b64encode(data).decode()} if data else {"data_len": data_len} if data_len else {}
        answer = self.daemon.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="admin" if admin else "io",
                                  data_direction="c2h" if data_len else "h2c", cmdbuf=base64.urlsafe_b64encode(cmd).decode(), **more)
        dw0, _, _, _, status = struct.unpack("<IIHHxxH", base64.urlsafe_b64decode(answer["cpl"]))
        return status >> 1 & 0x7ff, dw0, base64.urlsafe_b64decode(answer.get("data", ""))

    def status(self, *args, **kwargs):
        return self.send(*args, **kwargs)[0]

    def identify(self, cns):
        status, _, data = self.send(6, data_len=4096, admin=True, cdw10=cns)
        check(status == 0, f"identify {cns}: {status:x}")
        return data

    def write(self, lba, data):
        check(self.status(WRITE, data, cdw10=lba, cdw12=len(data) // BS - 1) == 0, f"write {lba}")

    def read(self, lba, n):
        status, _, data = self.send(READ, data_len=n * BS, cdw10=lba, cdw12=n - 1)
        return data if status == 0 else status

    def copy(self, to, *ranges, form=0):
        """(status, dword 0); ranges are (from, number of blocks)."""
        data = b"".join(struct.pack("<8xQH22x" if form == 1 else "<8xQH14x", lba, n - 1) for lba, n in ranges)
        status, dw0, _ = self.send(COPY, data, cdw10=to, cdw12=len(ranges) - 1 | form << 8)
        return status, dw0


# Each raw command has a queue pair of its own, which takes its time: no more of them than say something new.

def copies(disk):
    data = pattern(200, 1)
    disk.write(0, data)
    check(disk.copy(3000, (100, 50), (0, 1), (199, 1), (7, 40)) == (0, 0), "four ranges")
    gathered = data[100 * BS:150 * BS] + data[:BS] + data[199 * BS:] + data[7 * BS:47 * BS]
    check(disk.copy(20000, (0, 5000)) == (0, 0), "more than a transfer may have")
    check(disk.read(20000, 200) == data, "its first blocks")
    check(disk.read(23000, 92) == gathered, "the blocks of four ranges, one behind the other, and of their copy")
    check(disk.status(VERIFY, cdw12=BLOCKS - 1) == 0, "verify all")


def wrong_copies(disk):
    for what, expected, to, ranges in (
            ("one range too many", SIZE_LIMIT, 23000, [(0, 1)] * 129),
            ("a range too long", SIZE_LIMIT, 0, [(0, 16385)]),
            ("from beyond the end", LBA_RANGE, 23000, [(0, 1), (BLOCKS - 1, 2)]),
            ("onto itself", OVERLAP, 10, [(3, 8)])):
        check(disk.copy(to, *ranges) == (expected, 0), what)
    check(disk.copy(23000, (0, 1), form=2)[0] == INVALID_FIELD, "a format that is not there")
    check(disk.copy(23000, (0, 1), form=1)[0] == INVALID_NS_OR_FORMAT, "a format of namespaces with longer tags")
    check(disk.read(23000, 1) == pattern(1, 101), "what was refused changed nothing")
    check(disk.status(VERIFY, cdw10=BLOCKS - 1, cdw12=1) == LBA_RANGE, "verify beyond the end")


def passed_through(front, disk):
    """What is listed is saved, and gets to the next target, which has nothing of the kind."""
    saved = front.call("framework_get_config", name="nvmf")
    added = [m["params"]["namespace"] for m in saved if m["method"] == "nvmf_subsystem_add_ns"]
    check(added[0]["passthru_io"] == [0x82] and added[0]["passthru_admin"] == [0xc0, 0xc2] and "passthru_io" not in added[1], added)
    for bad in ({"passthru_io": [0x83]}, {"passthru_admin": [0xbc]}, {"passthru_io": ["x"]}, {"passthru_admin": [256]}):
        refused(front, ["passthru", "bits 1:0"], bdev_name="U0", **bad)
    check(disk.status(0xc2, admin=True, data_len=512) == INVALID_OPCODE, "the next target has no such admin command")


def refused(d, words, **namespace):
    try:
        d.call("nvmf_subsystem_add_ns", nqn=NQN, namespace=namespace)
    except RpcError as e:
        check(all(w in e.message for w in words), e.message)
        return
    check(False, f"{namespace} was taken")


def test_blocks_are_copied_verified_and_made_uncorrectable_through_two_varves():
    with Target(cores="[0]", port=BACK_PORT) as back, Target(cores="[1]", port=FRONT_PORT) as front, \
            Target(cores="[0]", port=FRONT_PORT + 1) as host:
        back.add_ns(back.add_malloc("M0"))
        check(attach(front, BACK_PORT, "Nvme0") == ["Nvme0n1"], "the remote namespace")
        front.add_ns("Nvme0n1", passthru_io=[0x82], passthru_admin=[0xc0, 0xc2])
        front.add_ns(front.add_file("U0", front.folder / "disk"))
        types = {b["name"]: b["supported_io_types"] for b in front.call("bdev_get_bdevs")}
        check(all(types["Nvme0n1"][t] for t in ("copy", "verify", "write_uncorrectable")), types["Nvme0n1"])
        check(types["U0"]["copy"] and types["U0"]["verify"] and not types["U0"]["write_uncorrectable"], types["U0"])
        attach(host, FRONT_PORT, "Nvme0")
        remote, file = Disk(host, 1), Disk(host, 2)
        check(struct.unpack_from("<H", remote.identify(1), 520)[0] & 0x182 == 0x182, "ONCS")
        check(struct.unpack_from("<HIB", remote.identify(0), 74) == (16384, 131072, 127), "MSSRL, MCL, MSRC")
        copies(remote)
        wrong_copies(remote)
        copies(file)
        passed_through(front, remote)
        check(file.status(WRITE_UNCOR) == INVALID_OPCODE, "the file's blocks cannot be made uncorrectable")
        check(remote.status(WRITE_UNCOR, cdw10=100, cdw12=9) == 0, "write uncorrectable")
        check(remote.read(99, 1) != READ_ERROR and remote.read(109, 1) == READ_ERROR, "uncorrectable blocks")
        check(remote.status(VERIFY, cdw12=199) == READ_ERROR, "verify finds them")
        check(remote.copy(2000, (0, 10), (90, 20), (0, 10)) == (READ_ERROR, 1), "copy stops at them, and says so")
        remote.write(100, pattern(10, 50))
        check(remote.read(100, 10) == pattern(10, 50) and remote.status(VERIFY, cdw12=199) == 0, "written, they are good again")
        inner = front.call("bdev_get_iostat", name="Nvme0n1")["bdevs"][0]
        check(inner["num_copy_ops"] > 0 and inner["num_read_ops"] < inner["num_copy_ops"] + 60, inner)


if __name__ == "__main__":
    main(sys.modules[__name__])
