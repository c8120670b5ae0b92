# SPDX-License-Identifier: BSD-3-Clause
"""Instructions per I/O, counted by valgrind's callgrind: these figures are nearly the same in every run, also on a busy machine. 4 KiB
random reads, 128 outstanding, one thread.

    instructions.target             the target's RDMA transport, the target and a null bdev, tracing off; fake verbs taken off
    instructions.target_traced      the same with the groups nvmf_rdma and bdev recorded
    instructions.fake               the fake verbs
    instructions.tcp, tcp_write, tcp_traced, tcp_fake, tcp_fake_write
                                    the same over TCP with fake system calls; tcp_write: 4 KiB in the capsule
    instructions.null, null_traced  the bdev layer and a null bdev
    instructions.nvme, nvme_traced  the NVMe driver on PCIe; the model of a controller taken off
    instructions.nvme_model         the model
    instructions.lvol_read, lvol_write
                                    a volume on a RAM disk; the RAM disk taken off
    instructions.lvol_base_read, lvol_base_write
                                    the RAM disk

For a profile by function, run what this program prints with --commands, and callgrind_annotate on the files."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build"))
# Valgrind counts each byte that a string instruction copies or clears: the C library's ways without one are counted instead.
NO_STRINGS = {"GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000"}
PROGRAMS = ("nvmf_rdma_own", "nvmf_tcp_own", "bdev", "nvme", "lvol")
# what is taken off: of the fake device, of the model
LESS = {"target": "fake", "target_traced": "fake", "tcp": "tcp_fake", "tcp_traced": "tcp_fake", "tcp_write": "tcp_fake_write", "nvme": "nvme_model", "nvme_traced": "nvme_model",
        "lvol_read": "lvol_base_read", "lvol_write": "lvol_base_write"}


def command(program, out):
    # Fair: a reactor that polls would otherwise keep valgrind's lock from the control thread.
    return ["valgrind", "--tool=callgrind", "--fair-sched=yes", "--collect-atstart=no", "--combine-dumps=no", f"--callgrind-out-file={out}",
            str(BUILD / "bench" / f"bench-{program}"), "--instructions"]


def totals(folder):
    """By name of a variant: the instructions of its dump."""
    found = {}
    for path in folder.iterdir():
        text = path.read_text()
        name = re.search(r"^desc: Trigger: Client Request: (\S+)$", text, re.M)
        total = re.search(r"^totals: (\d+)$", text, re.M)
        if name and total:
            found[name.group(1)] = int(total.group(1))
    return found


def counted(program):
    """Instructions per I/O of each variant of a program."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(command(program, pathlib.Path(folder) / "out"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **NO_STRINGS})
        if run.returncode != 0:
            sys.exit(f"bench instructions: bench-{program} failed in callgrind:\n{run.stderr}")
        ios = dict(line.split() for line in run.stdout.splitlines())
        dumps = totals(pathlib.Path(folder))
        missing = ios.keys() - dumps.keys()
        if missing:
            sys.exit(f"bench instructions: nothing was counted for {', '.join(sorted(missing))}: "
                     f"is bench-{program} built with <valgrind/callgrind.h> (Debian: valgrind)?")
        return {name: dumps[name] / int(n) for name, n in ios.items()}


def main():
    if shutil.which("valgrind") is None:
        sys.exit("bench instructions: needs valgrind (apt-get install valgrind, then build again)")
    if sys.argv[1:] == ["--commands"]:
        for program in PROGRAMS:
            print(" ".join(command(program, f"/tmp/callgrind.{program}")))
        return
    for program in PROGRAMS:
        figures = counted(program)
        figures.pop("warm")
        for name, value in figures.items():
            print(f"instructions.{name} {value - figures.get(LESS.get(name), 0):.1f} instructions", flush=True)


if __name__ == "__main__":
    main()
