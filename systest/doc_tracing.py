#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
"""Every command line of doc/tracing.md is run against a target with a bdev that makes one in a hundred of its reads slow, as in the
page's worked case; and what the page says of that case is checked, alive and after kill -SEGV."""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, TOP, check, main, wait_for
from nvmf_lib import Host, Target

PAGE = (TOP / "doc" / "tracing.md").read_text()
LIMIT = 200
SLOW_US = 500000     # far longer than a busy machine keeps any other request
DOCUMENT_PID, DOCUMENT_REQUEST = "24147", "r3850"


def command_lines():
    """The commands of the page: indented lines that begin with a program that it speaks of."""
    found = re.findall(r"^    ((?:varve|varve-trace|varve-rpc|babeltrace2|kill|cp)(?: .*)?)$", PAGE, re.M)
    return [re.sub(r"\s+#.*", "", line) for line in found]


class Case:
    """The target of the page, started as it says, with a fast and a slow bdev that have been read until a slow read is over."""

    def __init__(self):
        start = next(line for line in command_lines() if line.startswith("varve "))
        self.target = Target(*shlex.split(start)[1:])
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
        t.call("bdev_delay_create", name="Slow", base_bdev_name="Base", avg_read_latency=0, p99_read_latency=SLOW_US,
               avg_write_latency=0, p99_write_latency=0)
        t.add_ns("Ram")
        t.add_ns("Slow")
        # A folder of its own instead of /dev/shm: others' files come and go there.
        (self.folder / t.trace_file.name).symlink_to(t.trace_file)
        self.shims()
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
        line = line.replace(DOCUMENT_PID, str(self.target.pid)).replace("/tmp/", f"{self.folder}/")
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


def check_the_case(chain):
    check(re.search(r"^r\d+ took .* after BDEV_IO_START of i\d+, Slow$", chain, re.M), f"the state to blame: {chain[:2000]}")
    for name in ("RDMA_REQ_NEW", "BDEV_IO_START", "BDEV_IO_DONE", "RDMA_REQ_COMPLETED"):
        check(f" {name} " in chain, f"{name} is not in the chain")


def test_the_worked_case_and_every_command_line():
    lines = [line for line in command_lines() if not line.startswith("varve ")]
    kill = next(i for i, line in enumerate(lines) if line.startswith("kill "))
    after_death = lines[kill + 1]
    alive = lines[:kill] + lines[kill + 2:]
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
        check(re.search(r"^Slow\n  objects i .* 100.0% in BDEV_IO_START$", summary, re.M), summary)
        check_the_case(printed[f"varve-trace -p {DOCUMENT_PID} --slowest 1 -l owner=Slow"])
        life = printed[f"varve-trace -p {DOCUMENT_PID} --life {DOCUMENT_REQUEST}"]
        check("BDEV_IO_START" in life and "RDMA_REQ_COMPLETED" in life, life)
        for name in ("trace.html", "trace.json", "trace.ctf/metadata", "capture"):
            check((case.folder / name).stat().st_size > 1000, name)


def test_the_worked_case_from_what_a_killed_process_left():
    lines = command_lines()
    kill = next(i for i, line in enumerate(lines) if line.startswith("kill "))
    with Case() as case:
        case.run(lines[kill])
        check(case.target.wait_exit() == -signal.SIGSEGV, "it did not die of it")
        chain = case.run(lines[kill + 1])
        check("(crashed)" in chain and "Crashed: signal 11" in chain, chain[:600])
        check_the_case(chain)


if __name__ == "__main__":
    main(sys.modules[__name__])
