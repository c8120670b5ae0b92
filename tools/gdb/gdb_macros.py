# SPDX-License-Identifier: BSD-3-Clause
"""The way in that guides for SPDK's users show:

    (gdb) python
    >import sys
    >sys.path.append('/usr/share/varve/gdb')
    >import gdb_macros
    >end
    (gdb) spdk_load_macros

It loads the commands of varve.py, which stands beside this file."""
import os

import gdb

FOLDER = os.path.dirname(os.path.realpath(__file__))


class LoadMacros(gdb.Command):
    """spdk_load_macros [--reload]: defines varve's commands for gdb, among them those with the names that SPDK's have."""

    def __init__(self):
        super().__init__("spdk_load_macros", gdb.COMMAND_DATA)
        self.loaded = False

    def invoke(self, arg, from_tty):
        words = gdb.string_to_argv(arg)
        if words not in ([], ["--reload"]):
            raise gdb.GdbError(f"spdk_load_macros takes --reload or nothing, not '{arg}'")
        if self.loaded and not words:
            return
        script = os.path.join(FOLDER, "varve.py")
        if not os.path.exists(script):
            raise gdb.GdbError(f"{script} is not there: gdb_macros.py needs the whole folder that it is from")
        gdb.execute(f"source {script}")
        self.loaded = True


LoadMacros()
