# SPDX-License-Identifier: BSD-3-Clause
"""The environment of a varve: libraries, hugepages, probes, /dev/shm, cores."""
import fcntl
import glob
import os
import re

from . import elf
from .process import is_regular, read_text
from .report import Unable, megabytes

FULL_SHARE = 0.25       # the share of a file system that dead files may take before it is reported
FEW_FREE = 16 << 20     # bytes: less may not be enough for the next start
MANY = 16               # dead files that have not been removed


def check_libraries(report, process):
    """Whether the code that runs is the code that is installed."""
    stale, unknown, n = [], [], 0
    for base, path, gone in process.mapped_objects():
        n += 1
        if gone:
            stale.append(f"{path} (removed or replaced)")
            continue
        try:
            running = elf.build_id_in_memory(process.read_memory, base, path)
            installed = elf.build_id_of_file(path)
        except Unable as e:
            unknown.append(str(e))
            continue
        if running != installed:
            stale.append(f"{path} (build id {installed} on disk, {running} in memory)")
    if stale:
        report.found("libraries", f"it runs code that is no longer installed: {'; '.join(stale[:4])}"
                     f"{f' and {len(stale) - 4} more' if len(stale) > 4 else ''}. A crash after an upgrade looks like this",
                     "restart it, in its maintenance window")
    elif unknown:
        report.unknown("libraries", unknown[0])
    else:
        report.ok("libraries", f"the {n} objects in memory are those on disk")


def hugepages():
    """(size in bytes, all, free) of each size there is."""
    for folder in sorted(glob.glob("/sys/kernel/mm/hugepages/hugepages-*kB")):
        size = int(re.search(r"-(\d+)kB$", folder)[1]) << 10
        yield size, int(read_text(folder + "/nr_hugepages")), int(read_text(folder + "/free_hugepages"))


def hugepages_text(pages):
    return ", ".join(f"{free} of {n} free of {size >> 20} MB each" for size, n, free in pages) or "none: this kernel has no hugepages"


def judge_hugepages(report, asked_off, used_kb, wanted_mb, pages):
    """Pure: what /proc and /sys say, judged."""
    have = hugepages_text(pages)
    if asked_off:
        report.ok("hugepages", "ordinary pages, as asked for by --no-huge")
    elif used_kb:
        report.ok("hugepages", f"{used_kb >> 10} MB in use; {have}")
    else:
        need = f"it asks for {wanted_mb} MB" if wanted_mb else "it takes what -s says"
        report.found("hugepages", f"too few were free when it started, so it runs on ordinary pages ({need}; {have})",
                     f"scripts/setup.sh hugepages {wanted_mb or 1024}, then restart it; or start it with --no-huge if that is meant")


def check_hugepages(report, process):
    used = re.match(r"(\d+) kB", process.field("HugetlbPages"))
    mb = process.option("-s", "--mem-size")
    judge_hugepages(report, "--no-huge" in process.arguments, int(used[1]) if used else 0, int(mb) if mb and mb.isdigit() else 0,
                    list(hugepages()))


def check_probes(report, process):
    try:
        if elf.has_probes(f"/proc/{process.pid}/exe"):
            report.ok("USDT", f"the probes are in the program: bpftrace -p {process.pid} -l 'usdt:*'")
        else:
            report.found("USDT", "the program has no probes: bpftrace, perf and SystemTap find nothing in it",
                         "apt-get install systemtap-sdt-dev; scripts/build.sh -Dusdt=enabled")
    except Unable as e:
        report.unknown("USDT", str(e))


def is_held(path):
    """Whether a process holds the lock on its trace file. A lock that cannot be tried counts as held."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)


def may_be_written(path):
    """Stock programs do not lock their files: the process id in the name is used instead."""
    m = re.search(r"\.pid(\d+)$", path)
    return is_held(path) or (m and os.path.exists(f"/proc/{m[1]}"))


def dead_traces(folder, name=None):
    """Trace files whose writer is gone, the newest first. name: of this program only."""
    pattern = f"{glob.escape(name) if name else '*'}_trace.*"
    files = glob.glob(os.path.join(glob.escape(folder), pattern))
    found = [p for p in files if not os.path.islink(p) and is_regular(p) and not may_be_written(p)]
    return sorted(found, key=lambda p: os.stat(p).st_mtime, reverse=True)


def check_shm(report, folder):
    try:
        fs = os.statvfs(folder)
    except OSError as e:
        report.unknown("trace files", f"{folder}: {e.strerror}")
        return
    dead = dead_traces(folder)
    size, free = sum(os.stat(p).st_blocks * 512 for p in dead), fs.f_bavail * fs.f_frsize
    text = f"{len(dead)} files of dead processes, {megabytes(size)}; {megabytes(free)} are free in {folder}"
    if len(dead) >= MANY or dead and (size > FULL_SHARE * fs.f_blocks * fs.f_frsize or free < FEW_FREE):
        report.found("trace files", text + ". The next start may find no room", f"varve-trace --list -d {folder}; "
                     f"varve-trace --remove-dead -d {folder}, when none of them is wanted any more")
    elif free < FEW_FREE:
        report.found("trace files", text, f"du -x {folder}")
    else:
        report.ok("trace files", text)


def check_cores(report, process):
    """Whether a crash would leave a core."""
    limits = read_text(f"/proc/{process.pid}/limits")
    soft = re.search(r"^Max core file size +(\S+)", limits, re.M)
    pattern = read_text("/proc/sys/kernel/core_pattern").strip()
    if soft and soft[1] == "0":
        report.ok("core dumps", "a crash leaves no core: the limit of its size is 0 (the trace file stays in any case)")
    else:
        report.ok("core dumps", f"a crash leaves a core; core_pattern is {pattern}")
