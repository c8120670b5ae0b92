#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 300
# apart
"""The first session of README.md, command by command: each does what the page shows."""
import os
import re
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, TOP, check, main, wait_for
from nvmf_lib import PORT

PAGE = (TOP / "README.md").read_text()
SOCKET, PAGE_PORT = "/var/tmp/varve.sock", "4420"


def session():
    """[(command, what the page shows below it)]"""
    found = []
    text = PAGE[PAGE.index("## A first session"):PAGE.index("## More")].replace("\\\n", " ")
    for line in text.splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif line.startswith("    ") and found:
            found[-1][1].append(line[4:])
    return found


def masked(line):
    return re.sub(r"\d+", "N", line)


class Session:
    """A varve that the page's command has started; the page's process id, port and socket are others here."""

    def __init__(self, command, folder):
        check(command.endswith(" &") and " ./varve " in command, command)
        self.socket = folder / "rpc.sock"
        self.env = {**os.environ, "VARVE_RPC_SOCKET": str(self.socket)}
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(["bash", "-c", f"exec {command[:-2]} --no-pci -s 512 -r {self.socket}"], cwd=BUILD / "bin",
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.log = folder / "log"

    def started(self):
        check(self.process.poll() is None, self.log.read_text())
        return "is running" in self.log.read_text()

    def run(self, command):
        command = command.replace(PAGE_PORT, str(PORT))
        command = re.sub(r"(varve-trace -p) \d+", rf"\1 {self.process.pid}", command)
        p = subprocess.run(["bash", "-c", command], cwd=BUILD / "bin", env=self.env, capture_output=True, text=True, timeout=DEADLINE)
        check(p.returncode == 0, f"{command}: {p.returncode}: {p.stdout}{p.stderr}")
        return p.stdout

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        check(self.process.wait(DEADLINE) == 0, self.log.read_text())


def check_log(s, shown):
    said = [masked(re.sub(r"^.*(\*\w+\*: )", r"\1", x)).replace(masked(str(s.socket)), SOCKET) for x in s.log.read_text().splitlines()]
    for line in shown:
        line = "*NOTICE*: Memory: " if "Memory: " in line else masked(line)     # which pages: as the machine has them
        check(any(x.startswith(line) for x in said), f"the log has no \"{line}\": {said}")


def check_perf(out, shown):
    for page in [x for x in shown if x.strip()]:
        start = masked(page).split("N")[0].split("  ")[0] if page.startswith(("reads", "writes")) else None
        found = [x for x in out.splitlines() if (x.startswith(start) if start else masked(x).split() == masked(page).split())]
        check(found, f"no line like \"{page}\":\n{out}")
    check("0 errors; 0 miscompares" in out, out)


def check_summary(out, shown):
    lines = [x.split() for x in out.splitlines()]
    for page in [x.split() for x in shown if x != "..."]:
        if re.match(r"[A-Z]+_[A-Z0-9_]+$", page[0]):
            check(any(x[:1] == page[:1] and len(x) == len(page) for x in lines), f"no row like {page}:\n{out}")
        else:
            check(page in lines, f"no line {page}:\n{out}")


def check_life(s, command, shown):
    events = s.run(command.split(" --life")[0] + " -l tpoint=BDEV_IO_START")
    request = re.findall(r"id: *i\d+ +\((r\d+)\)", events)[-200:][0]    # some way from the end: its life is over
    out = s.run(re.sub(r"--life r\d+", f"--life {request}", command))
    for name in re.findall(r" ([A-Z]+_[A-Z0-9_]+) ", " ".join(shown)):
        check(f" {name} " in out, f"{name} is not in the life of {request}:\n{out}")


def test_the_first_session_does_what_the_page_shows():
    commands = session()
    check([c for c, _ in commands[:1]] == ["cd build/bin"] and len(commands) > 8, commands)
    with tempfile.TemporaryDirectory() as folder:
        s = Session(commands[1][0], type(TOP)(folder))
        trace = f"/dev/shm/varve_trace.pid{s.process.pid}"
        try:
            wait_for(s.started, "the daemon to run")
            check_log(s, commands[1][1])
            for command, shown in commands[2:]:
                if " --life " in command:
                    check_life(s, command, shown)
                    continue
                out = s.run(command)
                if "varve-perf" in command:
                    check_perf(out, shown)
                elif "--summary" in command:
                    check_summary(out, shown)
                else:
                    check(out.splitlines() == shown, f"{command}: {out}, not {shown}")
            saved = re.search(r"`varve-rpc (save_config \S+)`", PAGE)[1].split()
            s.run(f"./varve-rpc {saved[0]} {folder}/{saved[1]} && test -s {folder}/{saved[1]}")
        finally:
            s.end()
            if os.path.exists(trace):
                os.unlink(trace)


if __name__ == "__main__":
    main(sys.modules[__name__])
