# SPDX-License-Identifier: BSD-3-Clause
"""What a transport of the target tells about itself: its tables (struct nvmf_transport_ops), which lie in the program's data, so that a core
has them too. Nothing here, and nothing that uses it, knows a transport by name."""
import gdb

from .memory import Unreadable, check_pointer, follow, number, read, string

REQUESTS_MAX = 1 << 20
STATES_MAX = 32
FIELDS_MAX = 16


class State:
    """A row of the transport's states (struct nvmf_transport_state)."""

    def __init__(self, row):
        self.name = string(row["trace_name"])
        self.waits_for = string(row["waits_for"])
        self.remedy = string(row["remedy"])
        self.known = number(row["class"]) != 0


class Transport:
    """The tables of one transport."""

    def __init__(self, ops):
        self.name = string(ops["name"])
        count = number(ops["n_states"])
        if count > STATES_MAX:
            raise Unreadable(f"transport {self.name}: there cannot be {count} states")
        self.states = [State(ops["states"][n]) for n in range(count)]
        self.state_offset, self.ticks_offset = number(ops["state_offset"]), number(ops["state_ticks_offset"])
        self.fields = list(self.read_fields(ops["qpair_fields"]))

    @staticmethod
    def read_fields(table):
        """(name, offset, size, offset and size of the second number, names of values)"""
        if number(table) == 0:
            return
        for n in range(FIELDS_MAX):
            row = table[n]
            if number(row["name"]) == 0:
                return
            names = [string(row["names"][i]) for i in range(number(row["n_names"]))] if number(row["names"]) != 0 else []
            yield (string(row["name"]), number(row["offset"]), number(row["size"]), number(row["of_offset"]), number(row["of_size"]), names)

    def state_text(self, n):
        return self.states[n].name if n < len(self.states) and self.states[n].known else f"{n} (no such state)"

    def state_of(self, req):
        """(its number, since when)"""
        at = int(req.address)
        return read(at + self.state_offset, 1)[0], int.from_bytes(read(at + self.ticks_offset, 8), "little")

    def values(self, qpair):
        """{heading: text} of the fields that the transport shows of a queue pair."""
        at, texts = int(qpair.address), {}
        for name, offset, size, of_offset, of_size, names in self.fields:
            n = int.from_bytes(read(at + offset, size), "little")
            text = names[n] if n < len(names) else f"{n} (no such state)" if names else str(n)
            texts[name] = text + (f"/{int.from_bytes(read(at + of_offset, of_size), 'little')}" if of_size else "")
        return texts


known = {}


def of_qpair(qpair):
    """The Transport of a queue pair; None: it has none yet."""
    transport = follow(qpair["transport"], "a queue pair's transport")
    ops = follow(transport["ops"], "a transport's functions") if transport is not None else None
    if ops is None:
        return None
    key = gdb.current_progspace().filename, gdb.selected_inferior().pid, int(ops.address)
    if key not in known:
        known[key] = Transport(ops)
    return known[key]


def requests(qpair, transport):
    """The struct nvmf_request of a queue pair that are outstanding. Of the others only state and owner are read: there are thousands."""
    array = follow(qpair["requests"], "a queue pair's array of requests")
    if array is None:
        return
    kind = gdb.lookup_type("struct nvmf_request")
    owner = next(f.bitpos // 8 for f in kind.fields() if f.name == "qpair")
    idle = STATES_MAX - 1
    count, stride, first = number(array["count"]), number(array["stride"]), number(array["first"])
    if first == 0 or count == 0:
        return
    check_pointer(first, "the array of requests")
    if count > REQUESTS_MAX or stride < kind.sizeof or stride > 1 << 24:
        raise Unreadable(f"there cannot be {count} requests of {stride} bytes")
    for i in range(count):
        at = first + i * stride
        if read(at + transport.state_offset, 1)[0] == idle:
            continue
        if int.from_bytes(read(at + owner, 8), "little") == int(qpair.address):
            yield gdb.Value(at).cast(kind.pointer()).dereference()
