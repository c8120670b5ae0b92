# SPDX-License-Identifier: BSD-3-Clause
"""Commands and printers for varve in gdb:  source tools/gdb/varve.py

The package in this folder is loaded again each time, so that changes can be tried without leaving gdb."""
import os
import sys


def load():
    # Not __file__: when one script sources another, gdb leaves it at the first one's.
    folder = os.path.dirname(os.path.abspath(load.__code__.co_filename))
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
    for name in [m for m in sys.modules if m == "varve_gdb" or m.startswith("varve_gdb.")]:
        del sys.modules[name]
    sys.dont_write_bytecode = True      # the folder may belong to another user
    import varve_gdb
    varve_gdb.register()


load()
