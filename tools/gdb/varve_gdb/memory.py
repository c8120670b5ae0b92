# SPDX-License-Identifier: BSD-3-Clause
"""Reading memory that may be corrupt, or not there: a core after a crash is the usual case. Every function
either returns the value asked for, or raises Unreadable with a line that says what is wrong and where."""
import gdb

LIST_MAX = 1 << 20      # elements; no list of varve has more
STRING_MAX = 1024
FIRSTS = {"tqh_first": "tqe_next", "stqh_first": "stqe_next", "lh_first": "le_next", "slh_first": "sle_next"}


class Unreadable(Exception):
    pass


def text_of(error):
    return " ".join(str(error).split())


def read(address, length):
    """Bytes of the process."""
    try:
        return bytes(gdb.selected_inferior().read_memory(address, length))
    except gdb.MemoryError:
        raise Unreadable(f"{length} bytes at {address:#x} are not in this process or core") from None
    except (gdb.error, OverflowError, ValueError) as e:
        raise Unreadable(f"{length} bytes at {address:#x}: {text_of(e)}") from None


def number(value):
    """A value as an integer. Reading it may fail."""
    try:
        return int(value)
    except (gdb.error, ValueError) as e:
        raise Unreadable(text_of(e)) from None


def check_pointer(address, what):
    if address & 7 or address < 4096 or address >> 47:
        raise Unreadable(f"{what} is the wild pointer {address:#x}")


def follow(pointer, what="a pointer"):
    """The structure that a pointer points to, after a check that it can be read; None for NULL."""
    address = number(pointer)
    if address == 0:
        return None
    check_pointer(address, what)
    target = pointer.dereference()
    read(address, max(target.type.sizeof, 1))
    return target


def printable(data):
    """Makes bytes from memory safe for a terminal: they must not move its cursor."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in data.decode("utf-8", "backslashreplace"))


def string(value):
    """The text of a char array or pointer; NULL is the empty text."""
    if value.type.strip_typedefs().code == gdb.TYPE_CODE_ARRAY:
        return printable(read(int(value.address), value.type.sizeof).split(b"\0")[0])
    address = number(value)
    if address == 0:
        return ""
    data = b""
    while b"\0" not in data and len(data) < STRING_MAX:
        start = address + len(data)
        data += read(start, min(64, 4096 - start % 4096))
    return printable(data.split(b"\0")[0])


def list_parts(head, link):
    fields = {f.name for f in head.type.strip_typedefs().fields()}
    first = next((f for f in FIRSTS if f in fields), None)
    if first is None:
        raise Unreadable(f"{head.type} is no list")
    return head[first], FIRSTS[first]


def walk(head, link, what):
    """The elements of a list of <sys/queue.h>, of whatever kind. Ends with Unreadable at the element where it is broken."""
    pointer, following = list_parts(head, link)
    seen = set()
    while True:
        address = number(pointer)
        if address == 0:
            return
        if address in seen:
            raise Unreadable(f"{what}: after {len(seen)} elements the list comes back to {address:#x}")
        if len(seen) == LIST_MAX:
            raise Unreadable(f"{what}: more than {LIST_MAX} elements, that cannot be")
        try:
            element = follow(pointer)
        except Unreadable as e:
            raise Unreadable(f"{what}: element {len(seen) + 1}: {e}") from None
        seen.add(address)
        yield element
        pointer = element[link][following]


def length(head, link, what):
    return sum(1 for _ in walk(head, link, what))


def container(value, type_name, member):
    """The structure that embeds value as its member."""
    outer = gdb.lookup_type(type_name)
    offset = next(f.bitpos // 8 for f in outer.fields() if f.name == member)
    return gdb.Value(int(value.address) - offset).cast(outer.pointer()).dereference()


def enum_name(value, type_name, prefix):
    """"ENABLED" for NVMF_QPAIR_ENABLED; for a number that is no state, a text that says so."""
    n = number(value)
    for field in gdb.lookup_type(type_name).fields():
        if field.enumval == n and field.name.startswith(prefix) and not field.name.endswith("_STATES"):
            return field.name[len(prefix):]
    return f"{n} (no such state)"
