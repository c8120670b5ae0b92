#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# long
# beside
"""A build without the optional modules of block devices: the daemon has neither these modules nor their methods, and serves the others."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from appliance_lib import BUILD, TOP, check, main

OPTIONAL = ("rbd", "uring")       # modules that a meson option of that name leaves out


def run(*command, **kwargs):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, **kwargs)
    check(p.returncode == 0, f"{command}: {p.stdout[-3000:]}{p.stderr[-3000:]}")
    return p.stdout


def modules_of(build):
    line, = (line for line in run(build / "bin/varve", "-h").splitlines() if line.startswith("Modules of block devices"))
    return line.split(":")[1].split()


def check_build(build, left_out):
    kinds = modules_of(build)
    check(set(modules_of(BUILD)) - set(kinds) == left_out, f"{kinds} without {left_out}")
    # The daemon of that build, by the tests that need no more than a daemon and the other modules.
    code = (f"from appliance_lib import Daemon, check\nwith Daemon() as d:\n    methods = d.call('rpc_describe_methods')\n"
            f"    check(not [m for m in methods if m.get('module') in {left_out}], methods)\n"
            f"    check({{m['module'] for m in methods if 'module' in m}} == set({kinds}), methods)\n"
            f"    d.call('bdev_malloc_create', name='m', num_blocks=2048, block_size=512)\n"
            f"    check(d.call('bdev_get_bdevs')[0]['name'] == 'm', 'the bdev')\n")
    run(sys.executable, "-c", code, cwd=TOP / "systest", env={**os.environ, "VARVE_BUILD": str(build)})
    pages = {Path(p).parent.name for p in run("meson", "introspect", "--installed", build).split('"') if p.endswith("/README.md") and "bdev_modules" in p}
    check(pages == set(kinds), f"the pages that are installed: {pages}")


def test_a_build_without_optional_modules():
    left_out = set(OPTIONAL) & set(modules_of(BUILD))
    # With the options of the release build and as deep in the tree, so that the compiler's cache has nearly all of it.
    with tempfile.TemporaryDirectory(prefix="build-without-", dir=TOP) as folder:
        build = Path(folder)
        run("meson", "setup", build, TOP, *(f"-D{name}=disabled" for name in OPTIONAL), "-Dtests=false")
        run("ninja", "-C", build, "bin/varve", "bin/varve-rpc", "bin/varve-perf")
        check_build(build, left_out)


if __name__ == "__main__":
    main(sys.modules[__name__])
