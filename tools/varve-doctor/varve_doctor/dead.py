# SPDX-License-Identifier: BSD-3-Clause
"""No process runs: looks at what it left behind."""
import glob
import os

from . import elf, environment, trace
from .process import is_regular, read_text
from .report import Unable

TRIED = 64


def cores_of(name, pid):
    """Cores in this folder and where core_pattern puts them, the newest first."""
    pattern = read_text("/proc/sys/kernel/core_pattern").strip()
    folders = {os.getcwd()} | ({os.path.dirname(pattern)} if pattern.startswith("/") else set())
    files = [p for f in folders for p in glob.glob(os.path.join(glob.escape(f), "*core*")) if is_regular(p) and not os.path.islink(p)]
    found = []
    for path in sorted(files, key=lambda p: os.stat(p).st_mtime, reverse=True)[:TRIED]:
        try:
            core = elf.Core(path)
        except Unable:
            continue
        names = {os.path.basename(p) for _, p in core.objects()}
        if (name in names or core.name == name[:15]) and pid in (None, core.pid):
            found.append((path, core))
    return found, pattern


def check_cores(report, name, pid):
    found, pattern = cores_of(name, pid)
    if found:
        path, core = found[0]
        signal = f", of {trace.signal_name(core.signal)}" if core.signal else ""
        older = f"; there are {len(found) - 1} older ones" if len(found) > 1 else ""
        report.found("core", f"{path} is of process {core.pid}{signal}{older}", f"varve-doctor -c {path}")
    else:
        following = "coredumpctl list varve" if pattern.startswith("|") else \
            "ls -t /path/where/it/was/started/core*; no core: LimitCORE=infinity in its unit, ulimit -c unlimited in a shell"
        report.ok("core", f"none here, and none where core_pattern ({pattern}) puts them")
        report.lines[-1]["next"] = following


def check_trace(report, name, pid, options):
    dead = environment.dead_traces(options.dir, name)
    if pid is not None:
        dead = [p for p in dead if p.endswith(f".pid{pid}")]
    if not dead:
        report.ok("trace", f"no trace file of a dead {name} in {options.dir}")
        return
    # The newest file says how its process ended.
    title = report.title
    trace.examine(report, dead[0], options.age)
    report.title = title


def examine(report, name, pid, options):
    report.title = f"varve-doctor: {f'process {pid}' if pid is not None else f'no process runs {name}'}"
    report.found("process", f"process {pid} does not run" if pid is not None else f"no process runs a program named {name}",
                 "systemctl status varve; journalctl -u varve -e: the end of its log is a crash report, or says what to do")
    check_cores(report, name, pid)
    check_trace(report, name, pid, options)
    pages = list(environment.hugepages())
    report.ok("hugepages", f"{environment.hugepages_text(pages)}" +
              ("" if any(free for _, _, free in pages) else "; the next start will take ordinary pages (scripts/setup.sh hugepages MB)"))
    environment.check_shm(report, options.dir)
