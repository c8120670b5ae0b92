# SPDX-License-Identifier: BSD-3-Clause
"""gdb loads this file by itself for the program in the same folder (build/bin/varve), if that folder is in the auto-load safe path:

    gdb -iex 'add-auto-load-safe-path build/bin' -p PID

When installed, it is in gdb's own folder (/usr/share/gdb/auto-load/usr/bin), and no option is needed."""
import os

import gdb


def find():
    here = [os.path.dirname(os.path.abspath(find.__code__.co_filename))]
    if gdb.current_objfile() is not None:
        here.append(os.path.dirname(gdb.current_objfile().filename))
    for folder in ("../tools/gdb", "../share/varve/gdb"):
        for start in here:
            script = os.path.normpath(os.path.join(start, folder, "varve.py"))
            if os.path.exists(script):
                return script
    return None


script = find()
if script:
    gdb.execute("source " + script)
else:
    gdb.write("varve-gdb.py: its commands are not installed here; load them by: source .../tools/gdb/varve.py\n", gdb.STDERR)
