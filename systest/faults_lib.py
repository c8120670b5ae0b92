# SPDX-License-Identifier: BSD-3-Clause
"""varve-faults, as the tests use it: the sites at which it makes calls, and calls that fail on request (systest/faults/faults.h)."""
import mmap
import pathlib
import struct
import subprocess
import tempfile

from appliance_lib import BUILD, check

PROGRAM = BUILD / "systest" / "varve-faults"
SITES, DEPTH = 8192, 3
HEADER = struct.Struct("<QqqqIiII16x")
SITE = struct.Struct("<Q3QQqqq40s16x")
BREAK, KILL = 0, 1


class Site:
    """A place that a call is made from, with its callers; or a state, or a kind of completion."""

    def __init__(self, index, fields):
        self.index = index
        self.key, *self.pcs, self.detail, self.hits, self.faults, self.live, name = fields
        self.name = name.split(b"\0")[0].decode()

    def is_state(self):
        return "_state" in self.name or "qpair" in self.name and "ibv" not in self.name and "rdma" not in self.name


class Area:
    """The file that varve-faults and the test have mapped."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="varve-faults-")
        self.file.truncate(HEADER.size + SITES * SITE.size)
        self.path = pathlib.Path(self.file.name)
        self.map = mmap.mmap(self.file.fileno(), HEADER.size + SITES * SITE.size)

    def env(self):
        return {"VARVE_FAULTS": str(self.path)}

    def sites(self):
        """Those that have been seen, by key."""
        check(struct.unpack_from("<I", self.map, 44)[0] == 0, "the table of sites is full")
        found = {}
        for i in range(SITES):
            at = HEADER.size + i * SITE.size
            if self.map[at:at + 8] != bytes(8):
                s = Site(i, SITE.unpack_from(self.map, at))
                found[s.key] = s
        return found

    def hits(self):
        return {s.key: s.hits for s in self.sites().values()}

    def live(self):
        """What was given at each site and not given back."""
        return {s.key: s.live for s in self.sites().values() if s.live}

    def arm(self, key, skip=0, times=1, action=BREAK, victim=0):
        struct.pack_into("<qqq", self.map, 8, skip, times, 0)
        struct.pack_into("<Ii", self.map, 32, action, victim)
        struct.pack_into("<Q", self.map, 0, key)

    def set_victim(self, pid):
        struct.pack_into("<i", self.map, 36, pid)

    def disarm(self):
        """Returns how often it has failed."""
        struct.pack_into("<Q", self.map, 0, 0)
        return self.fired()

    def fired(self):
        return struct.unpack_from("<q", self.map, 24)[0]

    def protect(self):
        """Queue pairs that there are are left alone from now on; later ones are not."""
        struct.pack_into("<I", self.map, 40, 1)

    def close(self):
        self.map.close()
        self.file.close()


def symbols(addresses):
    """Where each is: {address: "function file:line"}."""
    addresses = sorted({a for a in addresses if a})
    out = subprocess.run(["addr2line", "-f", "-s", "-e", PROGRAM], input="\n".join(hex(a - 1) for a in addresses), capture_output=True,
                         text=True, check=True).stdout.splitlines()
    return {a: f"{out[2 * i]} {out[2 * i + 1].split(' ')[0]}" for i, a in enumerate(addresses)}


def name_sites(sites):
    """{key: text}"""
    where = symbols(pc for s in sites for pc in s.pcs)
    names = {}
    for s in sites:
        chain = " < ".join(where[pc] for pc in s.pcs if pc)
        names[s.key] = f"{s.name}{'' if not s.detail else f' [{s.detail:#x}]'}{' in ' if chain else ''}{chain}"
    return names
