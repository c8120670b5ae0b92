# SPDX-License-Identifier: BSD-3-Clause
"""The recorder's rings, read from memory: the bytes that trace/trace_file.h describes. Does not use gdb."""
import struct

MAX_ENTRIES = 1 << 24
ENTRY = struct.Struct("<QHHIQ8s")
CONTINUATION = 1280
TPOINT_BYTES, TPOINTS = 190, 1280
OWNER_TYPE, OBJECT, TPOINT, OWNER, LCORES, STAMPS = 3, 4, 5, 1, 6, 7
ENTRIES_AT = 48 + 8 * TPOINTS
MASK32 = (1 << 32) - 1


class BadRing(Exception):
    pass


def text(data):
    data = data.split(b"\0")[0].decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in data)


class Tpoint:
    def __init__(self, data):
        self.name = text(data[:24])
        self.id, self.owner_type, self.object_type, self.new, count = struct.unpack_from("<HBBBB", data, 24)
        self.args = []
        for i in range(min(count, 8)):
            name, kind, size = struct.unpack_from("<14sBB", data, 30 + 16 * i)
            self.args.append((text(name), kind, size))


class Event:
    """Of one ring: time, tracepoint, owner, size, object, arguments as (name, text)."""

    def __init__(self, lcore, thread, tpoint, entry, data):
        self.tsc, _, self.owner, self.size, self.object, _ = entry
        self.lcore, self.thread, self.tpoint = lcore, thread, tpoint
        self.args = list(self.decode(tpoint, data))

    @staticmethod
    def decode(tpoint, data):
        at = 0
        for name, kind, size in tpoint.args:
            raw = data[at:at + size]
            at += size
            if kind == 2:
                yield name, text(raw)
            else:
                value = int.from_bytes(raw, "little")
                yield name, f"{value:#x}" if kind == 1 else str(value)


class Recorder:
    """read(offset, length) gives bytes of the file that is a memzone."""

    def __init__(self, read, size):
        self.read_raw, self.size = read, size
        head = self.read(0, 16)
        self.file_size, count = struct.unpack_from("<QH", head)
        if self.file_size != size or not 7 <= count <= 64:
            raise BadRing(f"the recorder's memory does not begin with a trace file's header (size {self.file_size}, {count} sections)")
        self.sections = struct.unpack(f"<{count}Q", self.read(16, 8 * count))
        self.rate, self.clear = struct.unpack("<QQ", self.read(self.sections[0], 16))
        if self.rate == 0:
            raise BadRing("the recorder has no clock rate")
        tpoints = self.read(self.section(TPOINT) + 128, TPOINTS * TPOINT_BYTES)
        self.tpoints = {}
        for i in range(TPOINTS):
            if tpoints[i * TPOINT_BYTES]:
                t = Tpoint(tpoints[i * TPOINT_BYTES:(i + 1) * TPOINT_BYTES])
                self.tpoints[i] = t
        self.owner_count, self.owner_size = struct.unpack("<HH", self.read(self.section(OWNER), 4))

    def read(self, offset, length):
        if offset < 0 or offset + length > self.size:
            raise BadRing(f"{length} bytes at offset {offset} are beyond the recorder's {self.size} bytes")
        return self.read_raw(offset, length)

    def section(self, n):
        if n >= len(self.sections) or self.sections[n] == 0:
            raise BadRing(f"the recorder's memory has no section {n}")
        return self.sections[n]

    def offsets(self, n):
        at = self.section(n)
        count = struct.unpack("<H", self.read(at, 2))[0]
        return struct.unpack(f"<{count}Q", self.read(at + 128, 8 * count))

    def owner(self, number, tsc):
        """The description of the owner of an event; "" if the id has been given to another owner since."""
        if number == 0 or number >= self.owner_count:
            return ""
        data = self.read(self.section(OWNER) + 128 + number * (9 + self.owner_size), 9 + self.owner_size)
        return text(data[9:]) if 0 < struct.unpack_from("<Q", data)[0] <= tsc else ""

    def history(self, n):
        """(lcore, thread, entries, next entry) of ring n, or None."""
        at = self.offsets(LCORES)[n]
        if at == 0:
            return None
        lcore, name, entries, _, following = struct.unpack("<i16s4xQQQ", self.read(at, 48))
        if not 1 <= entries <= MAX_ENTRIES or entries & (entries - 1):
            raise BadRing(f"ring {n} cannot have {entries} entries")
        return lcore, text(name), entries, following

    def rings(self):
        return range(len(self.offsets(LCORES)))

    def last(self, n, most, wanted):
        """The last `most` events of ring n for which wanted(event) holds, newest first. Torn entries are left out."""
        head = self.history(n)
        if head is None:
            return
        lcore, thread, entries, following = head
        ring = self.read(self.offsets(LCORES)[n] + ENTRIES_AT, 32 * entries)
        stamps = self.read(self.offsets(STAMPS)[n], 8 * entries)
        data, after, found = [], None, 0
        for i in range(following - 1, max(following - entries, 0) - 1, -1):
            slot = i & (entries - 1)
            entry = ENTRY.unpack_from(ring, 32 * slot)
            if struct.unpack_from("<Q", stamps, 8 * slot)[0] != (entry[0] & MASK32) << 32 | (i + 1) & MASK32 \
                    or (after is not None and entry[0] > after):
                data = []
                continue
            after = entry[0]
            if entry[1] == CONTINUATION:
                data.insert(0, ring[32 * slot + 10:32 * slot + 32])
                continue
            tpoint = self.tpoints.get(entry[1])
            if tpoint is not None and entry[0] >= self.clear:
                event = Event(lcore, thread, tpoint, entry, entry[5] + b"".join(data))
                if wanted(event):
                    yield event
                    found += 1
                    if found == most:
                        return
            data = []
