# SPDX-License-Identifier: BSD-3-Clause
"""Pretty-printers: states that are kept in a byte, lists of <sys/queue.h>, commands and completions on the wire."""
import re

import gdb

from . import nvme_commands
from .memory import Unreadable, list_parts, number, printable, read, walk

SHOWN = 16
SGL_TYPES = {0: "data block", 1: "bit bucket", 2: "segment", 3: "last segment", 4: "keyed data block", 5: "transport data block",
             15: "vendor specific"}
SGL_SUBTYPES = {0: "address", 1: "offset", 10: "transport", 15: "invalidate key"}
STATUS_TYPES = {0: "generic", 1: "command specific", 2: "media", 3: "path", 7: "vendor specific"}


def raw(value):
    """A structure's bytes: from the process, or from gdb's own copy if it is no variable."""
    if value.address is not None:
        return read(int(value.address), value.type.sizeof)
    return bytes(int(b) for b in (value.cast(gdb.lookup_type("unsigned char").array(value.type.sizeof - 1))[i]
                                  for i in range(value.type.sizeof)))


def careful(describe):
    def to_string(self):
        try:
            return describe(self)
        except (Unreadable, gdb.error, KeyError, TypeError, ValueError) as e:
            return f"<unreadable: {e}>"
    return to_string


class Printer:
    def __init__(self, value):
        self.value = value


def sgl_text(data):
    kind, subtype = data[15] >> 4, data[15] & 15
    address = int.from_bytes(data[:8], "little")
    what = f"{SGL_TYPES.get(kind, f'type {kind:#x}')}, {SGL_SUBTYPES.get(subtype, f'subtype {subtype:#x}')}"
    if kind == 4:
        return f"{what}: {address:#x}, {int.from_bytes(data[8:11], 'little')} bytes, key {int.from_bytes(data[11:15], 'little'):#x}"
    return f"{what}: {address:#x}, {int.from_bytes(data[8:12], 'little')} bytes"


class Sgl(Printer):
    @careful
    def to_string(self):
        return sgl_text(raw(self.value))


class Sqe(Printer):
    """A capsule's command. Only its queue knows whether it is an admin command."""

    @careful
    def to_string(self):
        data = raw(self.value)
        opcode, flags, cid, nsid = data[0], data[1], int.from_bytes(data[2:4], "little"), int.from_bytes(data[4:8], "little")
        if opcode == 0x7f:
            what = f"fabrics {nvme_commands.fabrics_name(data[4]) or f'{data[4]:#x}'}"
        else:
            names = [n for n in (nvme_commands.io_name(opcode), nvme_commands.admin_name(opcode)) if n]
            what = f"opcode {opcode:#x} ({' or admin '.join(names) or 'unknown'}), nsid {nsid}"
            lba, blocks = nvme_commands.lba_range(opcode, data)
            what += f", LBA {lba}" if lba is not None else ""
            what += f", {blocks} blocks" if blocks is not None else ""
        words = " ".join(f"{int.from_bytes(data[40 + 4 * i:44 + 4 * i], 'little'):#x}" for i in range(6))
        return f"cid {cid}, {what}, flags {flags:#x}, cdw10-15 {words}, {sgl_text(data[24:40])}"


class Cqe(Printer):
    @careful
    def to_string(self):
        data = raw(self.value)
        status = int.from_bytes(data[14:16], "little") >> 1
        kind, code = status >> 8 & 7, status & 255
        text = "success" if status & 0x7ff == 0 else f"{STATUS_TYPES.get(kind, f'type {kind}')} status {code:#x}"
        return (f"cid {int.from_bytes(data[12:14], 'little')}, {text}{', do not retry' if status & 0x4000 else ''}, "
                f"result {int.from_bytes(data[:8], 'little'):#x}, sqid {int.from_bytes(data[10:12], 'little')}, "
                f"sqhd {int.from_bytes(data[8:10], 'little')}")


class List(Printer):
    """The addresses of the elements. The head does not say which member links them: it is the one member that is such a link; if there are
    several, only the first element is shown."""

    def link_of(self, element, following):
        links = [f.name for f in element.fields() if f.name and f.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT
                 and following in {g.name for g in f.type.strip_typedefs().fields()}]
        if len(links) != 1 and "link" in links:
            return "link"
        return links[0] if len(links) == 1 else None

    @careful
    def to_string(self):
        first, following = list_parts(self.value, None)
        if number(first) == 0:
            return "empty list"
        target = first.type.target()
        link = self.link_of(target.strip_typedefs(), following)
        if link is None:
            return f"list of {target}, the first at {number(first):#x}"
        shown, n, end = [], 0, ""
        try:
            for e in walk(self.value, link, "list"):
                n += 1
                if n <= SHOWN:
                    shown.append(f"{int(e.address):#x}")
        except Unreadable as e:
            end = f"; BROKEN: {e}"
        return f"list of {n} {target} by {link}: {' '.join(shown)}{' ...' if n > SHOWN else ''}{end}"


class WithStates(Printer):
    """A structure whose states are bytes: all fields, those with the names of their enumeration."""
    states = {}

    def children(self):
        for field in self.value.type.strip_typedefs().fields():
            if field.name is None:
                continue
            value = self.value[field.name]
            if field.name in self.states:
                try:
                    value = value.cast(gdb.lookup_type(self.states[field.name]))
                except gdb.error:
                    pass
            yield field.name, value

    def to_string(self):
        return None


def with_states(**states):
    return type("WithStates", (WithStates,), {"states": {k: f"enum {v}" for k, v in states.items()}})


class Text(Printer):
    """A host's or subsystem's address."""

    @careful
    def to_string(self):
        def part(name):
            return printable(read(int(self.value[name].address), self.value[name].type.sizeof).split(b"\0")[0])
        return f"{part('trtype')} {part('traddr')}:{part('trsvcid')}"


BY_NAME = {
    "nvme_sqe": Sqe, "nvme_cqe": Cqe, "nvme_sgl_desc": Sgl, "nvme_sgl_keyed": Sgl, "nvme_sgl_plain": Sgl, "nvmf_address": Text,
    "nvmf_fabrics_sqe": Sqe, "nvmf_connect_sqe": Sqe, "nvmf_property_set_sqe": Sqe, "nvmf_property_get_sqe": Sqe,
    "bdev_io": with_states(type="bdev_io_type", state="bdev_io_state"),
    "nvmf_request": with_states(where="nvmf_request_where"),
    "nvmf_qpair": with_states(state="nvmf_qpair_state"),
    "nvmf_subsystem_view": with_states(state="nvmf_view_state"),
}
TRANSPORT_REQUEST = re.compile(r"nvmf_[a-z0-9]+_request")
HEADS = {"tqh_first", "stqh_first", "lh_first", "slh_first"}


def choose(value):
    kind = value.type.strip_typedefs()
    if kind.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
        return None
    if kind.name in BY_NAME:
        return BY_NAME[kind.name](value)
    fields = kind.fields()
    if TRANSPORT_REQUEST.fullmatch(kind.name or "") and any(f.name == "state" for f in fields):
        return with_states(state=kind.name + "_state")(value)
    if fields and fields[0].name in HEADS:
        return List(value)
    return None


def register():
    choose.name = "varve"
    choose.enabled = True
    gdb.pretty_printers[:] = [p for p in gdb.pretty_printers if getattr(p, "name", None) != "varve"]
    gdb.pretty_printers.append(choose)
