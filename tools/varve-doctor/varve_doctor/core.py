# SPDX-License-Identifier: BSD-3-Clause
"""A core file: which program, the same libraries?, and what tools/gdb finds in it."""
import os
import re

from . import elf, program
from .report import Unable
from .trace import signal_name

GDB_LIMIT_S = 600


def check_objects(report, core, given):
    """Whether the files on disk are those that the process had in memory."""
    stale, n, program_path = [], 0, core.program()
    for base, name in core.objects():
        if not name.startswith("/") or name.startswith(("/dev/", "/memfd:")) or name.endswith(" (deleted)"):
            continue
        try:
            had = elf.build_id_in_memory(core.read, base, name)
        except Unable:
            continue        # no ELF file, or its head is not in the core
        n += 1
        file = given if given and name == program_path else name
        try:
            has = elf.build_id_of_file(file)
        except Unable as e:
            stale.append(str(e))
            continue
        if had != has:
            stale.append(f"{file} is of build {has}, the core of {had}")
    if stale:
        report.found("libraries", f"the files here are not those of the process: {'; '.join(stale[:4])}",
                     "varve-doctor -c CORE -e PROGRAM, with the program of that build; set sysroot in gdb for libraries")
    else:
        report.ok("libraries", f"{n} objects: build ids as on disk")


def run_gdb(report, path, core_path, age_s):
    script = program.gdb_script()
    gdb = program.tool("gdb")
    if gdb is None or script is None:
        report.unknown("memory", "gdb is not installed" if gdb is None else "tools/gdb/varve.py is not found", "apt-get install gdb")
        return
    status, out, err = program.run([gdb, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", path, core_path,
                                    "-ex", f"source {script}", "-ex", f"varve_doctor {age_s:g}"], GDB_LIMIT_S)
    lines = out.splitlines()
    seen = 0
    for i, line in enumerate(lines):
        m = re.match(r"(ok|FOUND): (.*)", line)
        if m:
            seen += 1
            following = re.match(r"  next: (.*)", lines[i + 1]) if i + 1 < len(lines) else None
            report.add("ok" if m[1] == "ok" else "found", "memory", m[2], following and f"{following[1]}   (in gdb)")
    if not seen:
        said = err.strip().splitlines() or [f"status {status}"]
        why = [x for x in said if "debug information" in x] or [x for x in said if "core" in x.lower() or "varve" in x] or said
        report.unknown("memory", f"gdb: {why[0]}",
                       "varve-doctor -c CORE -e PROGRAM, with the program that is not stripped" if "debug information" in err else None)


def examine(report, path, given, age_s):
    report.title = f"varve-doctor: core {path}"
    try:
        core = elf.Core(path)
        if core.signal:
            report.found("end", f"{core.name or 'it'} (process {core.pid}) got {signal_name(core.signal)}",
                         f"gdb {given or 'PROGRAM'} {path} -ex 'thread apply all bt'")
        else:
            report.ok("end", f"{core.name or 'it'} (process {core.pid}) was alive when the core was taken")
        if not core.is_whole():
            report.found("core", "it is cut short: the disk was full, or the limit of its size too small", "ulimit -c unlimited; df")
        check_objects(report, core, given)
        executable = given or core.program()
    except Unable as e:
        report.unknown("core", str(e))
        return
    if executable is None or not os.path.exists(executable):
        report.unknown("memory", f"the program {executable or ''} is not here", "varve-doctor -c CORE -e PROGRAM")
        return
    try:
        run_gdb(report, executable, path, age_s)
    except Unable as e:
        report.unknown("memory", str(e))
