# SPDX-License-Identifier: BSD-3-Clause
"""The parts of ELF needed here: build ids, notes of probes, and the description of the process in a core.
Every offset is checked: files may be truncated, or anything else."""
import os
import struct

from .report import Unable

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
PROGRAM = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
ET_CORE, PT_LOAD, PT_NOTE, SHT_NOBITS = 4, 1, 4, 8
NT_GNU_BUILD_ID, NT_PRSTATUS, NT_PRPSINFO, NT_FILE = 3, 1, 3, 0x46494c45
NOTES_MAX = 16 << 20
HEADERS_MAX = 1 << 16


class Elf:
    """read(offset, length) gives exactly that, or raises Unable."""

    def __init__(self, read, name):
        self.read, self.name = read, name
        try:
            head = HEADER.unpack(read(0, HEADER.size))
        except struct.error:
            raise Unable(f"{name}: too short to be an ELF file") from None
        if head[0][:6] != b"\x7fELF\x02\x01":
            raise Unable(f"{name} is not a 64-bit little-endian ELF file")
        self.type, self.shstrndx = head[1], head[13]
        self.programs = self.table(head[5], head[9], head[10], PROGRAM)
        self.sections_at = head[6], head[11], head[12]

    def table(self, offset, size, count, kind):
        if count == 0:
            return []
        if size != kind.size or count > HEADERS_MAX:
            raise Unable(f"{self.name}: its headers make no sense")
        data = self.read(offset, size * count)
        return [kind.unpack_from(data, i * size) for i in range(count)]

    def sections(self):
        """(name, type, offset, size)"""
        sections = self.table(*self.sections_at, SECTION)
        if self.shstrndx >= len(sections):
            return
        names = self.read(sections[self.shstrndx][4], min(sections[self.shstrndx][5], 1 << 20))
        for s in sections:
            yield names[s[0]:].split(b"\0")[0].decode("utf-8", "replace"), s[1], s[4], s[5]

    def notes(self, base=None):
        """(name, type, description). base: the file is mapped there, and its segments are read by address."""
        for p in self.programs:
            if p[0] != PT_NOTE:
                continue
            size = p[5]
            if size > NOTES_MAX:
                raise Unable(f"{self.name}: {size} bytes of notes")
            yield from parse_notes(self.read(p[2] if base is None else p[3], size))

    def build_id(self, base=None):
        for name, kind, description in self.notes(base):
            if name == b"GNU" and kind == NT_GNU_BUILD_ID:
                return description.hex()
        return None


def parse_notes(data):
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        at += 12
        name = data[at:at + name_size].rstrip(b"\0")
        at += (name_size + 3) & ~3
        if at + size > len(data):
            return
        yield name, kind, data[at:at + size]
        at += (size + 3) & ~3


def file_reader(f, name):
    size = os.fstat(f.fileno()).st_size

    def read(offset, length):
        if offset < 0 or length < 0 or offset + length > size:
            raise Unable(f"{name} is truncated: {length} bytes at {offset} are wanted, it has {size}")
        f.seek(offset)
        data = f.read(length)
        if len(data) != length:
            raise Unable(f"{name} cannot be read whole")
        return data
    return read


def open_elf(path):
    try:
        f = open(path, "rb")
    except OSError as e:
        raise Unable(f"{path}: {e.strerror}") from None
    return Elf(file_reader(f, str(path)), str(path))


def build_id_of_file(path):
    return open_elf(path).build_id()


def build_id_in_memory(read, base, name):
    """Of an ELF object that is mapped at base: read(address, length)."""
    return Elf(lambda offset, length: read(base + offset, length), name).build_id(base=base)


def has_probes(path, provider=b"varve"):
    elf = open_elf(path)
    for name, kind, offset, size in elf.sections():
        if name == ".note.stapsdt" and kind != SHT_NOBITS:
            return provider + b"\0" in elf.read(offset, min(size, NOTES_MAX))
    return False


def is_stripped(path):
    return not any(name == ".debug_info" for name, *_ in open_elf(path).sections())


class Core:
    def __init__(self, path):
        self.elf = open_elf(path)
        if self.elf.type != ET_CORE:
            raise Unable(f"{path} is no core file")
        self.path = str(path)
        self.signal, self.pid, self.name, self.files = 0, 0, "", []
        for name, kind, data in self.elf.notes():
            if name == b"CORE":
                self.take_note(kind, data)
        self.loads = [p for p in self.elf.programs if p[0] == PT_LOAD]
        if not self.files:
            raise Unable(f"{path} does not say which files were mapped: it is truncated, or not of Linux")

    def take_note(self, kind, data):
        if kind == NT_PRSTATUS and not self.signal and len(data) >= 36:
            self.signal = struct.unpack_from("<h", data, 12)[0]
        elif kind == NT_PRPSINFO and len(data) >= 136:
            self.pid = struct.unpack_from("<i", data, 24)[0]
            self.name = data[40:56].split(b"\0")[0].decode("utf-8", "replace")
        elif kind == NT_FILE:
            self.files = list(self.parse_files(data))

    @staticmethod
    def parse_files(data):
        """(start, end, offset in pages, path)"""
        if len(data) < 16:
            return
        count, _ = struct.unpack_from("<QQ", data)
        if count > (len(data) - 16) // 24:
            return
        names = data[16 + 24 * count:].split(b"\0")
        for i in range(min(count, len(names))):
            yield (*struct.unpack_from("<QQQ", data, 16 + 24 * i), names[i].decode("utf-8", "replace"))

    def read(self, address, length):
        for p in self.loads:
            if p[3] <= address and address + length <= p[3] + p[5]:
                return self.elf.read(p[2] + address - p[3], length)
        raise Unable(f"{self.path} has no memory at {address:#x}")

    def objects(self):
        """(base, path) of what is mapped from its beginning."""
        seen = set()
        for start, _, offset, path in self.files:
            if offset == 0 and path not in seen:
                seen.add(path)
                yield start, path

    def program(self):
        """The path of the program: the object named like the process, or the first that is a file."""
        files = [p for _, p in self.objects() if p.startswith("/") and not p.startswith(("/dev/", "/memfd:"))]
        named = [p for p in files if self.name and os.path.basename(p)[:15] == self.name]
        return (named or files or [None])[0]

    def is_whole(self):
        """Whether the file is as long as its headers say."""
        size = os.path.getsize(self.path)
        return all(p[2] + p[5] <= size for p in self.loads)
