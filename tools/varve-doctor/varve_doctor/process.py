# SPDX-License-Identifier: BSD-3-Clause
"""A process as /proc shows it."""
import os
import re
import stat
import time

from . import elf
from .report import Unable

TICKS = os.sysconf("SC_CLK_TCK")
# x86-64; others are shown by number.
SYSCALLS = {0: "read", 1: "write", 7: "poll", 23: "select", 35: "nanosleep", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg",
            72: "fcntl", 73: "flock", 74: "fsync", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 257: "openat", 281: "epoll_pwait",
            441: "epoll_pwait2"}


def read_text(path):
    with open(path, "rb") as f:
        return f.read().decode("utf-8", "replace")


def program_of(pid):
    """The path of the program, and whether that file has been replaced or removed."""
    path = os.readlink(f"/proc/{pid}/exe")
    gone = path.endswith(" (deleted)")
    return path[:-len(" (deleted)")] if gone else path, gone


def find(name):
    """The processes that run a program of that name."""
    found = []
    for pid in sorted(int(p) for p in os.listdir("/proc") if p.isdigit()):
        try:
            if os.path.basename(program_of(pid)[0]) == name:
                found.append(pid)
        except OSError:
            continue
    return found


class Thread:
    def __init__(self, pid, tid):
        text = read_text(f"/proc/{pid}/task/{tid}/stat")
        fields = text[text.rindex(")") + 2:].split()
        self.tid, self.name = tid, text[text.index("(") + 1:text.rindex(")")]
        self.state, self.cpu_ticks = fields[0], int(fields[11]) + int(fields[12])


def has_ended(pid):
    """Whether a process is over, and only its parent has not asked for its status yet."""
    try:
        return Thread(pid, pid).state in "ZX"
    except (OSError, ValueError, IndexError):
        return True


class Process:
    def __init__(self, pid):
        self.pid = pid
        try:
            self.program, self.replaced = program_of(pid)
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}") and not has_ended(pid):
                raise Unable(f"process {pid} has no program: it is a kernel thread") from None
            raise ProcessLookupError from None
        except PermissionError:
            raise Unable(f"process {pid} is another user's: run this as root") from None
        self.arguments = read_text(f"/proc/{pid}/cmdline").split("\0")[:-1]
        self.status = dict(line.split(":", 1) for line in read_text(f"/proc/{pid}/status").splitlines() if ":" in line)

    def field(self, name):
        return self.status.get(name, "").strip()

    def threads(self):
        found = []
        for tid in sorted(int(t) for t in os.listdir(f"/proc/{self.pid}/task")):
            try:
                found.append(Thread(self.pid, tid))
            except (OSError, ValueError, IndexError):
                continue
        return found

    def tracer_of(self, tid):
        m = re.search(r"^TracerPid:\s*(\d+)", read_text(f"/proc/{self.pid}/task/{tid}/status"), re.M)
        return m[1] if m else "0"

    def age_s(self):
        text = read_text(f"/proc/{self.pid}/stat")
        start = int(text[text.rindex(")") + 2:].split()[19]) / TICKS
        return time.clock_gettime(time.CLOCK_BOOTTIME) - start

    def cpu_shares(self, seconds):
        """(thread, share of a CPU) over a while."""
        before, start = {t.tid: t for t in self.threads()}, time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - start
        return [(t, (t.cpu_ticks - before[t.tid].cpu_ticks) / TICKS / elapsed) for t in self.threads() if t.tid in before]

    def doing(self, tid):
        """Which system call a thread is in, in words."""
        try:
            words = read_text(f"/proc/{self.pid}/task/{tid}/syscall").split()
        except OSError:
            return None
        if not words or words[0] == "running":
            return "running"
        return f"in the system call {SYSCALLS.get(int(words[0]), words[0])}" if words[0].isdigit() else None

    def option(self, *names):
        """The value of one of its command line options, or None."""
        for i, a in enumerate(self.arguments):
            for n in names:
                if a == n:
                    return self.arguments[i + 1] if i + 1 < len(self.arguments) else ""
                if n.startswith("--") and a.startswith(n + "="):
                    return a[len(n) + 1:]
                if not n.startswith("--") and a.startswith(n) and len(a) > 2 and not a.startswith("--"):
                    return a[2:]
        return None

    def sockets(self):
        """Paths of the Unix sockets on which it listens."""
        inodes = set()
        try:
            for fd in os.listdir(f"/proc/{self.pid}/fd"):
                m = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{self.pid}/fd/{fd}"))
                if m:
                    inodes.add(m[1])
        except FileNotFoundError:
            pass
        except PermissionError:
            raise Unable("its descriptors cannot be seen: run this as root") from None
        found = []
        for line in read_text(f"/proc/{self.pid}/net/unix").splitlines()[1:]:
            words = line.split(maxsplit=7)
            if len(words) == 8 and words[3] == "00010000" and words[6] in inodes and not words[7].startswith("@"):
                found.append(words[7])
        return found

    def mapped_objects(self):
        """(base address, path, gone) of the code that is mapped from files: the program and its libraries."""
        bases, code = {}, set()
        for line in read_text(f"/proc/{self.pid}/maps").splitlines():
            words = line.split(maxsplit=5)
            if len(words) < 6 or not words[5].startswith("/") or words[5].startswith(("/memfd:", "/dev/", "/SYSV", "/anon_hugepage")):
                continue
            start, offset, path = int(words[0].split("-")[0], 16), int(words[2], 16), words[5]
            if offset == 0 and path not in bases:
                bases[path] = start
            if "x" in words[1]:
                code.add(path)
        for path in sorted(code & set(bases)):
            gone = path.endswith(" (deleted)")
            yield bases[path], path[:-len(" (deleted)")] if gone else path, gone

    def read_memory(self, address, length):
        try:
            with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as f:
                f.seek(address)
                data = f.read(length)
        except (OSError, OverflowError, ValueError) as e:
            raise Unable(f"its memory at {address:#x} cannot be read: {getattr(e, 'strerror', e)}") from None
        if len(data) != length:
            raise Unable(f"its memory at {address:#x} cannot be read")
        return data

    def build_id(self):
        return elf.build_id_of_file(f"/proc/{self.pid}/exe")


def is_regular(path):
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
