# SPDX-License-Identifier: BSD-3-Clause
"""A second reader of volume stores, which shares nothing with lvol/: it was written from a description of the format and from two stores that a stock
program made. It walks every page of the metadata, and names all that the stock program would refuse, or would take for something else.

    store = LvolImage(path)         store.faults: a list of sentences; store.volumes: {name: LvolImageVolume}
    store.read("v")                 what a host reads of a volume
"""
import mmap
import struct
import uuid

from nvmf_tcp_lib import crc32c

PAGE = 4096
NONE32 = 0xFFFFFFFF
ID_HIGH = 1 << 32
IN_PAGE = 512                       # clusters that a page of extents has
SUPER = struct.Struct("<8sIIIQIIIIIII16sIIQII")
FIELDS = ("signature", "version", "length", "clean", "super_id", "cluster_size", "page_mask", "page_mask_len", "cluster_mask", "cluster_mask_len", "md_first",
          "md_len", "type", "id_mask", "id_mask_len", "size", "io_unit", "md_page_size")
THIN, INTERNAL, TABLE, EXTERNAL = 1, 2, 4, 8
PADDING, RLE, XATTR, FLAGS, XATTR_INTERNAL, EXTENT_TABLE, EXTENT_PAGE = range(7)


def crc_is_good(page):
    return crc32c(page[:-4]) == page[-4:]


class LvolImageVolume:
    def __init__(self, root):
        self.root, self.id = root, ID_HIGH | root
        self.pages, self.flags, self.xattrs, self.internal = [], None, {}, {}
        self.clusters = []          # of the device; 0: none
        self.table = None           # clusters that a table of extents is for
        self.table_pages = []       # of extents, in order; 0: none
        self.runs = False

    def text(self, name):
        return self.xattrs.get(name, b"").rstrip(b"\0").decode(errors="replace")

    @property
    def name(self):
        return self.text("name")

    @property
    def own(self):
        return sum(c != 0 for c in self.clusters)

    @property
    def parent(self):
        """The id of its snapshot, or None."""
        snap = self.internal.get("SNAP")
        return struct.unpack("<Q", snap)[0] if snap and len(snap) == 8 else None


class LvolImage:
    def __init__(self, path):
        self.faults, self.volumes, self.by_id = [], {}, {}
        with open(path, "rb") as f:
            self.data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self.super = dict(zip(FIELDS, SUPER.unpack_from(self.data), strict=True))
        self.check_super()
        if self.faults and not self.walkable():
            return
        self.total_clusters = self.super["size"] // self.super["cluster_size"]
        self.masks = {kind: self.mask(kind, first, bits) for kind, (first, bits) in enumerate((
            ("page_mask", self.super["md_len"]), ("cluster_mask", self.total_clusters), ("id_mask", self.super["md_len"])))}
        self.walk()
        self.check_relations()
        self.check_masks()

    def close(self):
        self.data.close()

    def fault(self, text):
        self.faults.append(text)

    def page(self, number):
        return self.data[number * PAGE:(number + 1) * PAGE]

    def md(self, number):
        return self.page(self.super["md_first"] + number)

    # ---- The superblock and the masks ----

    def walkable(self):
        s = self.super
        return s["signature"] == b"SPDKBLOB" and s["cluster_size"] >= PAGE and 0 < s["md_first"] + s["md_len"] <= len(self.data) // PAGE and s["size"] <= len(self.data)

    def check_super(self):
        s, page = self.super, self.page(0)
        for field, good in (("signature", b"SPDKBLOB"), ("version", 3), ("length", PAGE), ("clean", 1), ("type", b"LVOLSTORE".ljust(16, b"\0")), ("super_id", ID_HIGH),
                            ("md_page_size", PAGE)):
            if s[field] != good:
                self.fault(f"superblock: {field} is {s[field]}, not {good}")
        if not crc_is_good(page):
            self.fault("superblock: crc")
        if any(page[SUPER.size:-4]):
            self.fault("superblock: bytes that are reserved are not zero")
        if s["size"] > len(self.data) or s["size"] < s["cluster_size"]:
            self.fault(f"superblock: size {s['size']} on a device of {len(self.data)}")
        if s["cluster_size"] == 0 or s["cluster_size"] % PAGE:
            self.fault(f"superblock: cluster_size {s['cluster_size']}")
        if s["io_unit"] == 0 or PAGE % s["io_unit"]:
            self.fault(f"superblock: io_unit {s['io_unit']}")
        parts = [(0, 1), *((s[p], s[f"{p}_len"]) for p in ("page_mask", "cluster_mask", "id_mask")), (s["md_first"], s["md_len"])]
        for (first, size), (behind, _) in zip(parts, [*parts[1:], (len(self.data) // PAGE, 0)], strict=True):
            if size == 0 or first + size > behind:
                self.fault(f"superblock: pages {first} to {first + size - 1} are not below {behind}")

    def mask(self, kind, where, bits):
        first, pages = self.super[where], self.super[f"{where}_len"]
        raw = self.data[first * PAGE:(first + pages) * PAGE]
        found_kind, found_bits = struct.unpack_from("<BI", raw.ljust(5, b"\0"))
        if found_kind != kind or found_bits != bits or 5 + (bits + 7) // 8 > len(raw):
            self.fault(f"{where}: type {found_kind} of {found_bits} bits in {pages} pages, not type {kind} of {bits}")
            return set()
        number = int.from_bytes(raw[5:], "little")
        if number >> bits:
            self.fault(f"{where}: bits behind its end are set")
        return {8 * i + b for i, byte in enumerate(raw[5:]) if byte for b in range(8) if byte >> b & 1}

    # ---- Volumes ----

    def is_root(self, number):
        """What a scan of the metadata takes for the beginning of a volume."""
        page = self.md(number)
        return struct.unpack_from("<QI", page) == (ID_HIGH | number, 0) and crc_is_good(page)

    def walk(self):
        roots = {n for n in range(self.super["md_len"]) if any(self.md(n)[:8]) and self.is_root(n)}
        for number in sorted(roots - self.masks[2]):
            self.fault(f"metadata page {number} is no volume's, and a scan finds one in it")
        for number in sorted(self.masks[2] - roots):
            self.fault(f"metadata page {number} is a volume's, and there is none in it")
        for number in sorted(roots & self.masks[2] if self.super["clean"] else roots):
            volume = LvolImageVolume(number)
            self.by_id[volume.id] = volume
            self.walk_volume(volume)

    def walk_volume(self, v):
        number, seen = v.root, set()
        while number != NONE32:
            if number >= self.super["md_len"] or number in seen:
                return self.fault(f"volume {v.root}: its chain goes to metadata page {number}")
            seen.add(number)
            page = self.md(number)
            volume, sequence = struct.unpack_from("<QI", page)
            if not crc_is_good(page) or volume != v.id or sequence != len(v.pages):
                return self.fault(f"volume {v.root}: metadata page {number}: crc, or id {volume:#x}, or sequence {sequence}")
            v.pages.append(number)
            self.descriptors(v, page[16:4088])
            [number] = struct.unpack_from("<I", page, 4088)
        self.extents(v)
        return None

    def descriptors(self, v, room):
        at = 0
        while at + 5 <= len(room):
            kind, length = struct.unpack_from("<BI", room, at)
            if kind == PADDING and length == 0:
                if any(room[at:]):
                    self.fault(f"volume {v.root}: bytes behind its last descriptor")
                return
            value, at = room[at + 5:at + 5 + length], at + 5 + length
            if at > len(room) or kind not in (RLE, XATTR, FLAGS, XATTR_INTERNAL, EXTENT_TABLE):
                self.fault(f"volume {v.root}: descriptor {kind} of {length} bytes")
                return
            self.descriptor(v, kind, value)

    def descriptor(self, v, kind, value):
        if kind == FLAGS:
            good = len(value) == 24 and v.flags is None
            v.flags = struct.unpack_from("<QQQ", value.ljust(24, b"\0"))
            if not good or v.flags[0] & ~15 or v.flags[1] & ~1 or v.flags[2] & ~3:
                self.fault(f"volume {v.root}: flags {v.flags}")
            return
        if v.flags is None:
            self.fault(f"volume {v.root}: descriptor {kind} before its flags")
        if kind in (XATTR, XATTR_INTERNAL):
            name_length, value_length = struct.unpack_from("<HH", value.ljust(4, b"\0"))
            of_kind = v.xattrs if kind == XATTR else v.internal
            name = value[4:4 + name_length].decode(errors="replace")
            if len(value) != 4 + name_length + value_length or not name or name in of_kind:
                self.fault(f"volume {v.root}: attribute {name}")
            of_kind[name] = value[4 + name_length:]
        elif kind == RLE:
            v.runs = True
            if len(value) % 8:
                self.fault(f"volume {v.root}: runs of {len(value)} bytes")
            for first, count in struct.iter_unpack("<II", value[:len(value) // 8 * 8]):
                v.clusters += [first + i if first else 0 for i in range(count)]
        else:
            self.table_part(v, value)

    def table_part(self, v, value):
        clusters = struct.unpack_from("<Q", value.ljust(8, b"\0"))[0]
        if len(value) % 8 or not value or v.table not in (None, clusters):
            self.fault(f"volume {v.root}: a table of {len(value)} bytes for {clusters} clusters, before for {v.table}")
        v.table = clusters
        for page, count in struct.iter_unpack("<II", value[8:len(value) // 8 * 8]):
            if count == 0 or (page != 0 and count != 1):
                self.fault(f"volume {v.root}: {count} pages of extents at {page}")
            v.table_pages += [page] * min(count, 1 << 24)

    def extents(self, v):
        if v.flags is None or (v.table is None) == (not v.runs) or bool(v.flags[0] & TABLE) != (v.table is not None):
            self.fault(f"volume {v.root}: flags {v.flags}, a table: {v.table}, runs: {v.runs}")
        if v.table is None:
            return
        if len(v.table_pages) != -(-v.table // IN_PAGE):
            self.fault(f"volume {v.root}: {len(v.table_pages)} pages of extents for {v.table} clusters")
        for i, number in enumerate(v.table_pages):
            here = min(IN_PAGE, v.table - i * IN_PAGE)
            v.clusters += self.extent_page(v, number, i * IN_PAGE, here) if number else [0] * here

    def extent_page(self, v, number, start, here):
        page = self.md(number) if number < self.super["md_len"] else bytes(PAGE)
        _, sequence = struct.unpack_from("<QI", page)
        kind, length, first = struct.unpack_from("<BII", page, 16)
        [following] = struct.unpack_from("<I", page, 4088)
        found = (length - 4) // 4
        if not crc_is_good(page) or sequence != 0 or following != NONE32 or (kind, length % 4, first) != (EXTENT_PAGE, 0, start) or not here <= found <= IN_PAGE:
            self.fault(f"volume {v.root}: page of extents {number}: crc, sequence {sequence}, next {following:#x}, kind {kind}, {found} clusters from {first}, not {here} from {start}")
            return [0] * here
        clusters = struct.unpack_from(f"<{found}I", page, 25)
        if any(clusters[here:]):
            self.fault(f"volume {v.root}: page of extents {number} has clusters behind the end")
        return list(clusters[:here])

    # ---- What belongs together ----

    def check_relations(self):
        uuids = set()
        for v in self.by_id.values():
            name, text = v.xattrs.get("name", b""), v.xattrs.get("uuid", b"")
            if not 0 < len(v.name) < 64 or len(name) > 64 or (v.id != ID_HIGH and not name.endswith(b"\0")):
                self.fault(f"volume {v.root}: name {name}")
            try:
                uuid.UUID(v.text("uuid"))
                good = v.text("uuid") not in uuids and len(text) == 37
            except ValueError:
                good = False
            if not good:
                self.fault(f"volume {v.root}: uuid {text}")
            uuids.add(v.text("uuid"))
            if v.id != ID_HIGH:
                if v.name in self.volumes:
                    self.fault(f"two volumes are called {v.name}")
                self.volumes[v.name] = v
            self.check_parent(v)
            if not v.flags[0] & THIN and 0 in v.clusters:
                self.fault(f"volume {v.root} is thick, and lacks clusters")
        if ID_HIGH not in self.by_id:
            self.fault("the volume that names the store is missing")

    def check_parent(self, v):
        if (v.internal and not v.flags[0] & INTERNAL) or set(v.internal) - {"SNAP", "EXTSNAP"} or len(v.internal) > 1:
            self.fault(f"volume {v.root}: flags {v.flags} with internal attributes {sorted(v.internal)}")
        if ("EXTSNAP" in v.internal) != bool(v.flags[0] & EXTERNAL):
            self.fault(f"volume {v.root}: flags {v.flags}, an external snapshot: {'EXTSNAP' in v.internal}")
        if "SNAP" in v.internal:
            parent = self.by_id.get(v.parent)
            if parent is None or parent.id == ID_HIGH or not parent.flags[1] & 1 or not v.flags[0] & THIN:
                self.fault(f"volume {v.root}: it is a clone of {v.parent}, which is missing or can be written")
        seen, at = set(), v
        while at is not None and at.parent is not None:
            if at.id in seen:
                self.fault(f"volume {v.root}: its snapshots go in a circle")
                break
            seen.add(at.id)
            at = self.by_id.get(at.parent)

    def check_masks(self):
        used_by, pages = {}, {}
        for cluster in range(-(-(self.super["md_first"] + self.super["md_len"]) * PAGE // self.super["cluster_size"])):
            used_by[cluster] = "the metadata"
        for v in self.by_id.values():
            for cluster in filter(None, v.clusters):
                if cluster in used_by or cluster >= self.total_clusters:
                    self.fault(f"volume {v.root}: cluster {cluster} is that of {used_by.get(cluster, 'nobody: it is behind the end')}")
                used_by[cluster] = f"volume {v.root}"
            for number in [*v.pages, *filter(None, v.table_pages)]:
                if number in pages:
                    self.fault(f"volume {v.root}: metadata page {number} is that of {pages[number]}")
                pages[number] = f"volume {v.root}"
        for what, mask, used in (("metadata page", self.masks[0], set(pages)), ("cluster", self.masks[1], set(used_by))):
            for number in sorted(mask ^ used):
                self.fault(f"{what} {number} is marked as {'used' if number in mask else 'free'}, and is that of {'nobody' if number in mask else 'a volume'}")

    # ---- Data ----

    def read(self, name, external=b""):
        """What a host reads; external: the data of the bdev that the volume, or a snapshot of it, is a clone of."""
        size, chain = self.super["cluster_size"], []
        v = self.volumes[name]
        length = len(v.clusters)
        while v is not None:
            chain.append(v)
            v = self.by_id.get(v.parent)
        base = external if chain[-1].flags[0] & EXTERNAL else b""
        out = []
        for i in range(length):
            at = next((v.clusters[i] for v in chain if i < len(v.clusters) and v.clusters[i]), 0)
            out.append(self.data[at * size:(at + 1) * size] if at else base[i * size:(i + 1) * size].ljust(size, b"\0"))
        return b"".join(out)
