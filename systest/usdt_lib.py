# SPDX-License-Identifier: BSD-3-Clause
"""bpftrace on a program with our probes, and what it printed."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from appliance_lib import BUILD, TOP

WRAPPER = BUILD / "bin/bpftrace.sh"
NAME = Path(sys.argv[0]).stem
failed = False


def check(name, ok, why=""):
    global failed
    failed |= not ok
    print(f"PASS {NAME}.{name}" if ok else f"FAIL {NAME}.{name}: {why.strip()[-600:]!r}", flush=True)


def probes_needed(program):
    """Ends the test if there is nothing to look at."""
    for path in (program, WRAPPER):
        if not path.exists():
            print(f"SKIP {NAME}: {path} is not built")
            sys.exit()
    if b"stapsdt" not in program.read_bytes():
        print(f"SKIP {NAME}: built without <sys/sdt.h>")
        sys.exit()


def finish():
    sys.exit(failed)


def kernel_tracepoints():
    """A command in front that mounts tracefs for the tracer alone, where it is not mounted."""
    if Path("/sys/kernel/tracing/available_events").exists():
        return []
    return ["unshare", "-m", "sh", "-c", 'mount -t tracefs none /sys/kernel/tracing; exec "$@"', "sh"]


class Tracer:
    """The wrapper with a script, to which a probe is added that says when everything is attached."""

    def __init__(self, pid, script, arguments):
        self.out = tempfile.NamedTemporaryFile("r")
        self.script = tempfile.NamedTemporaryFile("w", suffix=".bt")
        self.script.write(script + '\ninterval:ms:100 { printf("attached\\n"); }\n')
        self.script.flush()
        self.process = subprocess.Popen([*kernel_tracepoints(), WRAPPER, str(pid), self.script.name, *arguments], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "BPF_OUTFILE": self.out.name})

    def output(self):
        return Path(self.out.name).read_text().replace("attached\n", "")

    def wait_for(self, pattern, raw=False, seconds=120):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if re.search(pattern, Path(self.out.name).read_text() if raw else self.output()):
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        return False

    def stop(self):
        """Everything that was printed, maps at the end included; and what went to stderr."""
        self.process.send_signal(signal.SIGINT)
        try:
            said = self.process.communicate(timeout=120)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            said = self.process.communicate()[0]
        return self.output() + said


def probes_of_ours():
    """{probe: [(type, name)]} of usdt/probes.def; arg0 is the time stamp."""
    text = re.sub(r'"\s*"', "", (TOP / "usdt/probes.def").read_text())
    return {m[1]: re.findall(r"\(((?:const )?\w+(?: \*)?), (\w+), \"", m[2])
            for m in re.finditer(r'^USDT_PROBE\((\w+), "[^"]*"(.*?)\)\s*$(?=\n\s*(?:USDT|/|$))', text, re.M | re.S)}


# Of each probe so many are shown, but of those that fire a hundred thousand times a second.
SHOWN, SHOWN_OF_BUSY = 1000, 40
BUSY = {"thread_send_msg", "msg_exec", "timerfd_exec", "interrupt_fd_process", "bdev_io_submit", "bdev_io_done", "qos_wait", "qos_group_wait", "nvmf_qos_wait", "buffer_wait"}


def printing(probes):
    """A script that prints the first of each probe's events with all arguments; of a function, its name."""
    def one(name, arguments):
        texts = {"const char *": "%s", "int32_t": "%d", "const void *": "%llx"}
        formats = "".join(f" {n}=<{'%s' if n == 'fn' else texts.get(t, '%llu')}>" for t, n in arguments)
        values = "".join(", " + (f"usym(arg{i})" if n == "fn" else {"const char *": f"str(arg{i})", "int32_t": f"(int32)arg{i}"}.get(t, f"arg{i}"))
                         for i, (t, n) in enumerate(arguments, 1))
        shown = SHOWN_OF_BUSY if name in BUSY else SHOWN
        return f'usdt:__EXE__:{name} /@n_{name} < {shown}/ {{ @n_{name}++; printf("{name}{formats}\\n"{values}); }}'
    return "\n".join(one(n, a) for n, a in probes.items())


class Fired:
    """What such a script printed. Remembers what was looked for, over all of them."""
    checked = set()

    def __init__(self, text):
        self.events = [(m[1], dict(re.findall(r" (\w+)=<(.*?)>", m[2]))) for m in re.finditer(r"^(\w+)((?: \w+=<.*?>)+)$", text, re.M)]

    def of(self, probe):
        return [a for n, a in self.events if n == probe]

    def has(self, probe, **arguments):
        """That a probe has fired with these arguments, among others: each a value, or a function that says whether it is one."""
        def fits(event):
            return all(k in event and (v(event[k]) if callable(v) else event[k] == str(v)) for k, v in arguments.items())
        assert arguments, f"no argument of {probe} is looked at"
        self.checked.add(probe)
        check(probe, any(fits(e) for e in self.of(probe)), f"wanted {arguments} of {self.of(probe)[:8]}")
