#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
"""Every command line of doc/tracing.md is run against a target with a bdev that makes one in a thousand of its reads slow, as in the
page's worked case; and what the page says of that case is checked: alive, on the file that a killed process left, on its core alone."""
# needs: gdb
# beside
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, TOP, VARVE, Skip, check, main, wait_for
from nvmf_lib import Host, Target

PAGE = (TOP / "doc" / "tracing.md").read_text()
LIMIT = 200
PROGRAMS = "varve|varve-trace|varve-rpc|babeltrace2|kill|cp|gdb"
DOCUMENT_PID = re.search(r"^    kill -SEGV (\d+)$", PAGE, re.M)[1]
DOCUMENT_REQUEST = re.search(r"--life (r\d+)$", PAGE, re.M)[1]
SLOW_US = int(re.search(r"p999_read_latency=(\d+)", PAGE)[1])     # far longer than a busy machine keeps any other request


def command_lines():
    """The commands of the page: indented lines that begin with a program that it speaks of."""
    found = re.findall(rf"^    ((?:{PROGRAMS})(?: .*)?)$", PAGE, re.M)
    return [re.sub(r"\s+#.*", "", line) for line in found]


def making():
    return next(line for line in command_lines() if line.startswith("varve-rpc bdev_delay_create "))


def around_death():
    """The command lines up to the kill, it, the one on the file that was left, those on the core, and the rest."""
    lines = [line for line in command_lines() if not line.startswith("varve ") and line != making()]
    kill = next(i for i, line in enumerate(lines) if line.startswith("kill "))
    return lines[:kill], lines[kill], lines[kill + 1], lines[kill + 2:kill + 6], lines[kill + 6:]


class Case:
    """The target of the page, started as it says, with a fast and a slow bdev that have been read until a slow read is over."""

    def __init__(self, trtype="RDMA"):
        start = next(line for line in command_lines() if line.startswith("varve ")).replace("nvmf_rdma", f"nvmf_{trtype.lower()}")
        self.target = Target(*shlex.split(start)[1:], trtype=trtype)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-doc-"))

    def __enter__(self):
        try:
            self.prepare()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        self.target.__exit__()
        shutil.rmtree(self.folder)

    def prepare(self):
        t = self.target
        t.call("trace_set_blackbox", directory=str(self.folder))    # the page sets triggers
        t.add_malloc("Ram")
        t.add_malloc("Base")
        # A folder of its own instead of /dev/shm: others' files come and go there.
        (self.folder / t.trace_file.name).symlink_to(t.trace_file)
        self.shims()
        self.run(making())
        t.add_ns("Ram")
        t.add_ns("Slow")
        with Host(t, "-q", "4", "--rate", "400", "-t", "3600", nsid=1), Host(t, "-q", "4", "--rate", "400", "-t", "3600", nsid=2):
            wait_for(self.slow_one, "a slow read", LIMIT)
        self.request = self.slow_one()["id"]

    def shims(self):
        """The programs by their names, told where to look."""
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        for name, options in (("varve-trace", f"-d {self.folder}"), ("varve-rpc", f"-s {self.target.path}")):
            shim = bin_folder / name
            shim.write_text(f'#!/bin/sh\nexec {BUILD}/bin/{name} {options} "$@"\n')
            shim.chmod(0o755)

    def run(self, line):
        line = line.replace("/tmp/", f"{self.folder}/").replace("build/bin/varve", str(VARVE)).replace("tools/gdb/", f"{TOP}/tools/gdb/")
        line = line.replace(f"core.{DOCUMENT_PID}", str(next(self.target.folder.glob("core*"), "core")))
        line = re.sub(rf"\b{DOCUMENT_PID}\b", str(self.target.pid), line)
        if "request" in vars(self):
            line = line.replace(DOCUMENT_REQUEST, self.request)
        p = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=LIMIT, cwd=self.folder,
                           env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        check(p.returncode == 0, f"{line}: status {p.returncode}: {p.stderr[-400:]}")
        return p.stdout

    def slow_one(self):
        """The slowest read of Slow, once it is one that was delayed."""
        document = json.loads(self.run(f"varve-trace -j -p {DOCUMENT_PID} --slowest 1 -l owner=Slow"))
        slowest = document["slowest"][0] if document["slowest"] else None
        delayed = slowest and slowest["finished"] and slowest["time"] * 10**6 // document["tsc_rate"] >= SLOW_US
        return slowest if delayed else None


def check_summary(text):
    """One I/O in a thousand of Slow is slow, and not one in a hundred; the state to blame is named."""
    row = re.search(r"^Slow\n  objects i \(type 0x2\) +(\d+) +([\d. ]+?) +(?:100\.0|9\d\.\d)% in BDEV_IO_DISPATCH$", text, re.M)
    check(row, text)
    minimum, median, p90, p99, p999, maximum = map(float, row[2].split())
    check(minimum <= median <= p90 <= p99 < SLOW_US <= maximum and p999 <= maximum, row[0])


def check_the_case(chain, trtype="RDMA"):
    check(re.search(r"^r\d+ took .* after BDEV_IO_DISPATCH of i\d+, Slow$", chain, re.M), f"the state to blame: {chain[:2000]}")
    for name in (f"{trtype}_REQ_NEW", "BDEV_IO_START", "BDEV_IO_DISPATCH", "BDEV_IO_DONE", f"{trtype}_REQ_COMPLETED"):
        check(f" {name} " in chain, f"{name} is not in the chain")


def test_the_worked_case_and_every_command_line():
    before, _, _, _, after = around_death()
    alive = before + after
    check(len(alive) > 20, f"only {len(alive)} command lines were found")
    with Case() as case:
        shutil.copy(case.target.trace_file, case.folder / "varve_trace.copy")
        printed = {}
        for line in sorted(alive, key=lambda line: line.startswith("varve-rpc")):   # those change what is recorded
            if line.startswith("babeltrace2") and not shutil.which("babeltrace2"):
                continue
            printed[line] = case.run(line)
            check(not line.startswith("varve-trace ") or "--html" in line or "--perfetto" in line or "--ctf" in line or "--record" in line
                  or "-F" in line or "--unfinished" in line or printed[line], f"{line} printed nothing")
        summary = printed[f"varve-trace -p {DOCUMENT_PID} --summary"]
        check_summary(summary)
        check_the_case(printed[f"varve-trace -p {DOCUMENT_PID} --slowest 1 -l owner=Slow"])
        life = printed[f"varve-trace -p {DOCUMENT_PID} --life {DOCUMENT_REQUEST}"]
        check("BDEV_IO_START" in life and "RDMA_REQ_COMPLETED" in life, life)
        for name in ("trace.html", "trace.json", "trace.ctf/metadata", "capture"):
            check((case.folder / name).stat().st_size > 1000, name)


def test_the_worked_case_over_tcp():
    """The first commands of the page, with TCP instead of RDMA, as it says."""
    with Case("TCP") as case:
        summary, slowest, life = map(case.run, [line for line in around_death()[0] if line.startswith("varve-trace -p ")][:3])
        check_summary(summary)
        for state in ("NEW", "HAVE_BUFFER", "EXECUTING", "EXECUTED", "RDY_TO_COMPLETE", "TRANSFER_C2H"):
            check(re.search(rf"^TCP_REQ_{state} +\d", summary, re.M), f"TCP_REQ_{state}:\n{summary}")
            check(f" TCP_REQ_{state} " in life, f"TCP_REQ_{state}:\n{life}")
        check_the_case(slowest, "TCP")
        check("BDEV_IO_START" in life and "TCP_REQ_COMPLETED" in life, life)


def test_the_worked_case_from_what_a_killed_process_left():
    """First the file, then, without it, the core alone: the same three commands, the same answer."""
    _, kill, on_file, on_core, _ = around_death()
    check([line.split(" ")[0] for line in on_core] == ["gdb", "varve-trace", "varve-trace", "varve-trace"], on_core)
    with Case() as case:
        case.run(kill)
        check(case.target.wait_exit() == -signal.SIGSEGV, "it did not die of it")
        chain = case.run(on_file)
        check("(crashed)" in chain and "Crashed: SIGSEGV sent by process" in chain, chain[:600])
        check_the_case(chain)
        if not list(case.target.folder.glob("core*")):
            check(pathlib.Path("/proc/sys/kernel/core_pattern").read_text()[0] in "|/" or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0,
                  "there is no core")
            raise Skip("core_pattern sends cores elsewhere, or none may be written")
        case.target.trace_file.unlink()
        (case.folder / case.target.trace_file.name).unlink()
        saved, summary, slowest, life = (case.run(line) for line in on_core)
        check("bytes written" in saved, saved)
        check_summary(summary)
        check_the_case(slowest)
        check(events(slowest) == events(chain), "the core says otherwise than the file")
        check("BDEV_IO_START" in life and "RDMA_REQ_COMPLETED" in life, life)


def events(chain):
    """What happened in a chain, without the head, which tells where it was read from."""
    return chain[re.search(r"^r\d+ took ", chain, re.M).start():]


def test_what_the_page_shows_is_what_it_says():
    """The numbers in its examples belong together: the latency that was made, the summary, the chain, the request."""
    before, _, on_file, on_core, _ = around_death()
    shown = PAGE[:PAGE.index("## Recording")]
    check_summary(re.sub(r"^    ", "", shown, flags=re.M))
    took, blamed = re.search(rf"^    {DOCUMENT_REQUEST} took ([\d.]+) us, of which ([\d.]+) \(99%\) after BDEV_IO_DISPATCH of (i\d+), Slow$",
                             shown, re.M).groups()[:2]
    check(SLOW_US <= float(blamed) <= float(took), (took, blamed))
    slow = re.search(r"^    Slow\n.* ([\d.]+) +[\d.]+% in BDEV_IO_DISPATCH$", shown, re.M)[1]
    in_chain = re.search(r"^    .* BDEV_IO_DONE .* time: ([\d.]+) +since: ([\d.]+)$", shown, re.M).groups()
    check(in_chain == (slow, blamed), f"the slowest I/O of Slow took {slow} in the summary, {blamed} of it with the module; in the chain {in_chain}")
    check(set(re.findall(r"id: (r\d+) ", shown)) == {DOCUMENT_REQUEST}, "other requests")
    check(set(re.findall(r"(?:-p|(?<!sent by )process|kill -SEGV) (\d+)|core\.(\d+)", shown)) <= {(DOCUMENT_PID, ""), ("", DOCUMENT_PID)}, "other processes")
    check(all(any(line.replace(f"-p {DOCUMENT_PID}", "-f FILE").replace("FILE", "/tmp/varve_trace.saved") == c for c in on_core)
              for line in before[:3]), f"other commands for the core: {before[:3]} against {on_core}")
    check(before[1] == on_file, "another command for the file that was left")


if __name__ == "__main__":
    main(sys.modules[__name__])
