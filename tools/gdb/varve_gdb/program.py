# SPDX-License-Identifier: BSD-3-Clause
"""varve's static variables, from which its objects are found; and whether there is a program and a process at all."""
import gdb

from .memory import Unreadable, number, text_of

NOTHING = "There is no process and no core to look at: attach PID, or gdb PROGRAM CORE."


def is_stripped():
    return gdb.lookup_global_symbol("thread_create") is None


def build_id_of_program():
    for objfile in gdb.objfiles():
        if objfile.filename and "/vdso" not in objfile.filename and not objfile.filename.startswith("system-supplied"):
            return getattr(objfile, "build_id", None)
    return None


def check():
    """Raises a gdb.GdbError that says what is missing before any command can work."""
    if not gdb.objfiles():
        raise gdb.GdbError("No program is loaded: give gdb the varve binary that this process or core is of.")
    if is_stripped():
        name = gdb.current_progspace().filename or "This program"
        build = build_id_of_program()
        raise gdb.GdbError(
            f"{name} has no debug information (it is stripped, or not varve): varve's structures cannot be read.\n"
            "Load the binary that it was stripped from: `symbol-file PATH/TO/varve`" +
            (f", the one with build id {build}." if build else "."))
    if not gdb.selected_inferior().pid:
        raise gdb.GdbError(NOTHING)


def is_live():
    connection = getattr(gdb.selected_inferior(), "connection", None)
    return connection is not None and connection.type in ("native", "extended-remote", "remote")


def static(name, file):
    """A variable of one file of the tree, such as the static `threads` of thread/thread.c."""
    try:
        return gdb.parse_and_eval(f"'{file}'::{name}")
    except gdb.error as e:
        raise Unreadable(f"{name} of {file} cannot be read ({text_of(e)}): another version of varve?") from None


def function_at(pointer):
    """"nvmf_io_done" for a pointer to a function."""
    address = number(pointer)
    block = gdb.block_for_pc(address) if address else None
    while block is not None and block.function is None:
        block = block.superblock
    return block.function.name if block is not None else f"{address:#x}"
