#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: ceph
# limit: 400
# beside
"""The benchmark of rbd runs, and prints each figure that it promises. What they are is not judged: other tests run beside it."""
import re
import shutil
import subprocess
import sys

from appliance_lib import TOP, Skip, check, main

LIMIT = 350


def names():
    """name: unit."""
    for kind in ("read", "write"):
        for depth in (1, 32, 128):
            yield f"{kind}_ratio_q{depth}", "ratio"
            for who in ("", "fio_"):
                yield f"{who}{kind}_iops_q{depth}", "IOPS"
                yield f"{who}{kind}_cpu_us_q{depth}", "us"
    yield from {"images1_idle_percent": "%", "images20_idle_percent": "%", "images20_mb": "MiB", "connected_mb": "MiB", "threads": "threads"}.items()


def test_all_figures_are_printed():
    if shutil.which("fio") is None:
        raise Skip("needs fio")
    p = subprocess.run([sys.executable, TOP / "bench/rbd.py", "--smoke"], capture_output=True, text=True, timeout=LIMIT, check=False)
    check(p.returncode == 0, f"status {p.returncode}: {p.stderr}\n{p.stdout}")
    lines = [re.fullmatch(r"rbd\.(\w+) (\d+\.\d+) (\S+)", line) for line in p.stdout.splitlines()]
    check(all(lines), p.stdout)
    found = {m[1]: (float(m[2]), m[3]) for m in lines}
    check(len(found) == len(lines) and found.keys() == dict(names()).keys(), f"{found.keys() ^ dict(names()).keys()}")
    for name, unit in names():
        check(found[name][1] == unit, f"{name} in {found[name][1]}")
        check(found[name][0] > 0 or name.endswith("percent") or name.startswith("fio_"), f"{name} is {found[name][0]}")


if __name__ == "__main__":
    main(sys.modules[__name__])
