# SPDX-License-Identifier: BSD-3-Clause
"""gdb loads this by itself for the program beside which it lies (build/bin/varve), if its folder is in the auto-load safe path:

    gdb -iex 'add-auto-load-safe-path build/bin' -p PID

Installed, it lies in gdb's own folder (/usr/share/gdb/auto-load/usr/bin), and nothing needs to be said."""
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
