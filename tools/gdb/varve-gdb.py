# SPDX-License-Identifier: BSD-3-Clause
"""gdb loads this by itself for the program beside which it lies (build/bin/varve), if its folder is in the auto-load safe path:

    gdb -iex 'add-auto-load-safe-path build/bin' -p PID
"""
import os

import gdb


def find():
    here = os.path.dirname(os.path.abspath(find.__code__.co_filename))
    for folder in ("../tools/gdb", "../share/varve/gdb"):
        script = os.path.normpath(os.path.join(here, folder, "varve.py"))
        if os.path.exists(script):
            return script
    return None


script = find()
if script:
    gdb.execute("source " + script)
else:
    gdb.write("varve-gdb.py: its commands are not installed here; load them by: source .../tools/gdb/varve.py\n", gdb.STDERR)
