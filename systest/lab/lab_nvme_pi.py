# SPDX-License-Identifier: BSD-3-Clause
"""In the guest: lab_nvme_pi.py PCI-ADDRESS. Protection information from a host's commands to a drive, by way of a target. Ends with 1 and says
what was wrong."""
import struct
import sys

import nvmf_pi
from appliance_lib import check
from nvmf_lib import Target
from nvmf_pi import APP, GUARD, PRACT, READ, REF, VERIFY, WRITE, Raw

WRITE_ZEROES = 8
TABLE = [nvmf_pi.crc(bytes([i])) for i in range(256)]
# nsid: data, metadata, type, at the beginning of the metadata, format; lab_nvme_pi.sh has the same list
NAMESPACES = {1: (512, 8, 1, False, 0), 2: (512, 8, 2, False, 0), 3: (4096, 16, 3, True, 0), 4: (4096, 64, 1, False, 0), 5: (65536, 8, 1, False, 0),
              6: (4096, 16, 1, False, 2), 7: (4096, 64, 2, True, 2)}


def crc(data):
    c = 0
    for byte in data:
        c = (c << 8 ^ TABLE[c >> 8 ^ byte]) & 0xffff
    return c


class Namespace:
    def __init__(self, raw, nsid):
        self.raw, self.nsid = raw, nsid
        self.data, self.md, self.type, self.first, self.format = NAMESPACES[nsid]
        self.pi = 16 if self.format else 8
        self.extended = self.data + self.md
        self.checks = GUARD | APP | (REF if self.type != 3 else 0)

    def blocks(self, n):
        return [bytes((i * 37 + j * 11 + self.nsid + (j >> 8)) & 255 for j in range(256)) * (self.data // 256) for i in range(n)]

    def block(self, data, ref, app):
        rest = bytes(self.md - self.pi)
        covered = data if self.first else data + rest
        info = struct.pack(">QHHI", nvmf_pi.crc64(covered), app, ref >> 32, ref & 0xffffffff) if self.format else struct.pack(">HHI", crc(covered), app, ref)
        return data + (info + rest if self.first else rest + info)

    def protected(self, blocks, ref, app):
        return b"".join(self.block(b, ref + (i if self.type != 3 else 0), app) for i, b in enumerate(blocks))

    def run(self, opcode, lba, n, prinfo, ref=0, app=0, data=None, length=0):
        return self.raw.run(opcode, lba, n, prinfo, ref, app, data, length * n, self.nsid)


def passed(ns):
    good = ns.protected(ns.blocks(3), 20, 0x1234)
    check(ns.run(WRITE, 20, 3, ns.checks, 20, 0xffff1234, good)[0] == 0, "written")
    check(ns.run(READ, 20, 3, ns.checks, 20, 0xffff1234, length=ns.extended) == (0, good), "read as it was")
    check(ns.run(VERIFY, 20, 3, ns.checks, 20, 0xffff1234)[0] == 0, "verified")
    return good


def refused(ns, good):
    bad = bytearray(good)
    bad[ns.extended + 100] ^= 1
    check(ns.run(WRITE, 20, 3, GUARD, 0, data=bytes(bad))[0] == 0x282, "a bad guard")
    check(ns.run(WRITE, 20, 3, APP, 0, 0xffff1235, good)[0] == 0x283, "another application tag")
    check(ns.type == 3 or ns.run(WRITE, 24, 3, REF, 24, data=good)[0] == 0x284, "blocks that are for elsewhere")
    check(ns.run(READ, 20, 3, 0, length=ns.extended) == (0, good), "nothing has changed")
    check(ns.run(WRITE, 20, 3, 0, data=bytes(bad))[0] == 0, "unchecked, it is stored")
    check(ns.run(READ, 20, 3, GUARD, length=ns.extended)[0] == 0x282, "and found")
    check(ns.run(VERIFY, 20, 3, GUARD)[0] == 0x282, "and by Verify")
    check(ns.run(READ, 20, 1, GUARD, length=ns.extended) == (0, good[:ns.extended]), "the one in front of it is good")


def made(ns):
    blocks = ns.blocks(3)
    plain = b"".join(blocks if ns.md == ns.pi else [b + bytes(ns.md) for b in blocks])
    length = ns.data if ns.md == ns.pi else ns.extended
    check(ns.run(WRITE, 30, 3, PRACT, 30, 0x77, plain)[0] == 0, "written")
    want = ns.protected(blocks, 30, 0x77)
    check(ns.run(READ, 30, 3, 0, length=ns.extended) == (0, want), "as it should be")
    check(ns.run(READ, 30, 3, PRACT | ns.checks, 30, 0xffff0077, length=length) == (0, plain if ns.md == ns.pi else want), "and stripped")


def zeroed(ns):
    check(ns.run(WRITE_ZEROES, 40, 3, PRACT, 40)[0] == 0, "zeroed")
    check(ns.run(READ, 40, 3, ns.checks & ~APP, 40, length=ns.extended) == (0, ns.protected([bytes(ns.data)] * 3, 40, 0)), "zeroes that pass")


class Drive(Target):
    base = ["--no-huge"]


def run(address):
    with Drive(cores="[0]", max_io_size=262144) as b, nvmf_pi.front() as f:
        bdevs = b.call("bdev_nvme_attach_controller", name="D", trtype="PCIe", traddr=address, prchk_guard=True, prchk_reftag=True)
        check(bdevs == [f"Dn{i}" for i in NAMESPACES], bdevs)
        for nsid, (data, md, dif, first, pi_format) in NAMESPACES.items():
            shown = b.call("bdev_get_bdevs", name=f"Dn{nsid}")[0]
            check([shown[k] for k in ("block_size", "md_size", "dif_type", "dif_is_head_of_md", "dif_pi_format")] == [data + md, md, dif, first, pi_format], shown)
            b.add_ns(f"Dn{nsid}", nsid=nsid)
        f.call("bdev_nvme_attach_controller", name="Nvme0", trtype="RDMA", adrfam="IPv4", traddr="127.0.0.1", trsvcid=str(b.port),
               subnqn="nqn.2026-11.io.varve:test")
        for nsid in NAMESPACES:
            ns = Namespace(Raw(f), nsid)
            print(f"namespace {nsid}")
            refused(ns, passed(ns))
            made(ns)
            zeroed(ns)


run(sys.argv[1])
