#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# needs: root
# beside
"""The command lines of scripts/: what is wrong is said, and nothing is done. No hugepages are set aside here: the files of the kernel are others."""
import os
import pathlib
import subprocess
import sys
import tempfile

from appliance_lib import DEADLINE, TOP, check, main

SCRIPTS = TOP / "scripts"


def run(script, *arguments, **env):
    p = subprocess.run([SCRIPTS / script, *arguments], env={**os.environ, **env}, capture_output=True, text=True, timeout=DEADLINE,
                       stdin=subprocess.DEVNULL)
    return p.returncode, p.stdout, p.stderr


def test_hugepages_are_set_aside_whole_or_not_at_all():
    with tempfile.TemporaryDirectory() as folder:
        pool = pathlib.Path(folder) / "kernel/mm/hugepages/hugepages-2048kB"
        pool.mkdir(parents=True)
        count = pool / "nr_hugepages"
        (pool / "free_hugepages").write_text("7\n")
        for have, mb, want in (("7", "15", "8"), ("7", "14", "7"), ("7", "0", "7"), ("0", "1", "1")):
            count.write_text(have + "\n")
            status, out, err = run("setup.sh", "hugepages", mb, VARVE_SYSFS=folder)
            check(status == 0 and count.read_text().strip() == want and f"{want}, 7 free" in out, f"{mb}: {out}{err}")
        count.write_text("7\n")
        for words in (["99999999999999999999"], ["999999999"], ["100000000"], ["08"], ["-1"], ["x"], [""], [], ["8", "8"]):
            status, _, err = run("setup.sh", "hugepages", *words, VARVE_SYSFS=folder)
            check(status == 1 and "hugepages: '" in err and count.read_text() == "7\n", f"{words}: {status} {err} {count.read_text()}")


def test_numbers_of_the_soak_are_numbers():
    for words in (["0"], ["1x"], ["--minutes"], ["--minutes", "x"], ["--minutes", "08"], ["--minutes", "0"], ["1", "--seed", "-1"]):
        status, _, err = run("soak.sh", *words)
        check(status == 2 and "allowed is a whole number" in err, f"{words}: {status} {err}")


def test_help_is_all_that_it_does():
    for script in ("bench.sh", "bpftrace.sh", "build.sh", "coverage.sh", "demo.sh", "overlap.sh", "setup.sh", "soak.sh", "test.sh"):
        status, out, err = run(script, "-h")
        check(status == 0 and script in out and not err and "Built" not in out, f"{script}: {status} {out}{err}")


if __name__ == "__main__":
    main(sys.modules[__name__])
