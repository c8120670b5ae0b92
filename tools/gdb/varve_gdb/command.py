# SPDX-License-Identifier: BSD-3-Clause
"""The common part of all commands: names, arguments, and messages instead of tracebacks."""
import gdb

from . import program
from .memory import Unreadable, text_of


class Command(gdb.Command):
    """A command that calls run(argument) and has its documentation. The argument is one text: a name, or an expression with all
    its spaces and quotes."""

    def __init__(self, name, run, arguments):
        self.__doc__ = f"{name} {arguments}".strip() + "\n\n" + (run.__doc__ or "")
        self.name, self.run, self.arguments = name, run, arguments
        super().__init__(name, gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION if arguments else gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        argument = argument.strip()
        if (argument and not self.arguments) or (not argument and self.arguments and not self.arguments.startswith("[")):
            raise gdb.GdbError(f"Usage: {self.name} {self.arguments}".rstrip())
        program.check()
        try:
            self.run(argument)
        except (Unreadable, gdb.MemoryError) as e:
            raise gdb.GdbError(f"{self.name}: {e}") from None
        except gdb.error as e:
            raise gdb.GdbError(f"{self.name}: {text_of(e)}") from None
        except (KeyError, TypeError, ValueError, OverflowError, StopIteration, AttributeError) as e:
            raise gdb.GdbError(f"{self.name}: the memory makes no sense, or this is another version of varve "
                               f"({type(e).__name__}: {text_of(e)})") from None


def add(names, run, arguments=""):
    for name in names:
        Command(name, run, arguments)


def both(name):
    """varve's name, and the one of stock scripts that people are used to."""
    return ("varve_" + name, "spdk_" + name)


def address_of(text):
    """An address: a number or an expression."""
    try:
        value = gdb.parse_and_eval(text)
        kind = value.type.strip_typedefs().code
        if kind in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            value = value.address
        return int(value) & (1 << 64) - 1
    except (gdb.error, TypeError) as e:
        raise gdb.GdbError(f"\"{text}\" is no address: {text_of(e)}") from None


def survive(elements):
    """The elements of a walk until it fails; then a line says why, and the command continues."""
    while True:
        try:
            element = next(elements)
        except StopIteration:
            return
        except Unreadable as e:
            print(f"error: {e}")
            return
        yield element


def table(head, rows):
    """Columns as wide as they have to be; numbers to the right."""
    rows = [[str(c) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    right = [bool(rows) and all(r[i][:1].isdigit() or r[i] in ("-", "") for r in rows) for i in range(len(head))]
    for row in [head, *rows]:
        cells = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right))
        print("  ".join(cells).rstrip())
