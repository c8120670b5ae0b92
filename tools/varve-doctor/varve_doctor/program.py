# SPDX-License-Identifier: BSD-3-Clause
"""The other tools, run with a limit."""
import os
import shlex
import shutil
import subprocess
import sys

from .report import Unable

HERE = os.path.dirname(os.path.realpath(sys.argv[0]))


def tool(name):
    """Beside this program, or in the path."""
    beside = os.path.join(HERE, name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name)


def gdb_script():
    for folder in ("../tools/gdb", "../gdb", "../share/varve/gdb"):
        path = os.path.normpath(os.path.join(HERE, folder, "varve.py"))
        if os.path.exists(path):
            return path
    return None


def gdb_line(pid, *commands):
    """A line for the shell that runs commands of tools/gdb on a process. It loads them itself: gdb does so only in folders that are trusted."""
    script = gdb_script()
    source = [f"source {script}"] if script else []
    return " ".join([f"gdb -p {pid} -batch", *(f"-ex {shlex.quote(c)}" for c in [*source, *commands])])


def run(command, limit_s):
    """(status, stdout, stderr)"""
    try:
        p = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise Unable(f"{os.path.basename(command[0])} was not done after {limit_s} s") from None
    except OSError as e:
        raise Unable(f"{command[0]}: {e.strerror}") from None
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")
