# SPDX-License-Identifier: BSD-3-Clause
"""Names of NVMe commands, and whether they have an LBA range: read from the target's tables (nvmf/command.c)."""
import gdb

from .memory import number, string
from .program import static

_tables = {}


def _load(symbol):
    flags = {f.name: f.enumval for f in gdb.lookup_type("enum nvmf_command_flag").fields()}
    rows = static(symbol, "nvmf/command.c")
    low, high = rows.type.range()
    found = {}
    for opcode in range(low, high + 1):
        name, bits = string(rows[opcode]["name"]).replace("_", " "), number(rows[opcode]["flags"])
        if name:
            found[opcode] = name, bits & flags["NVMF_CMD_SLBA"] != 0, bits & flags["NVMF_CMD_NLB"] != 0
    return found


def _row(symbol, opcode):
    if symbol not in _tables:
        _tables[symbol] = _load(symbol)
    return _tables[symbol].get(opcode, ("", False, False))


def io_name(opcode):
    """ "read", or "" for an opcode that is no I/O command."""
    return _row("nvmf_io_commands", opcode)[0]


def admin_name(opcode):
    return _row("nvmf_admin_commands", opcode)[0]


def fabrics_name(fctype):
    return _row("nvmf_fabrics_commands", fctype)[0]


def lba_range(opcode, raw):
    """(first LBA, number of blocks) of an I/O command's 64 bytes; None where it has none."""
    _, has_slba, has_nlb = _row("nvmf_io_commands", opcode)
    return (int.from_bytes(raw[40:48], "little") if has_slba else None,
            int.from_bytes(raw[48:50], "little") + 1 if has_nlb else None)
