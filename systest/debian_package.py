#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root
# limit: 1500
# long
# beside
"""The Debian package: it is built from debian/, has no errors, and installs, runs and is purged in a root folder of its own."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from appliance_lib import TOP, Skip, check, main

HOURS = 1400        # seconds: a machine with much else to do takes its time


def run(*command, env=None, cwd=None):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=HOURS, stdin=subprocess.DEVNULL, cwd=cwd,
                       env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})})
    check(p.returncode == 0, f"{command} ended with {p.returncode}: {(p.stdout + p.stderr)[-3000:]}")
    return p.stdout + p.stderr


def build(where):
    """A package of the tree as it is."""
    tree = where / "varve"
    shutil.copytree(TOP, tree, ignore=shutil.ignore_patterns("build*.log", "build", "build-*", ".git", ".lab", "__pycache__"), symlinks=True)
    env = {"DEB_BUILD_OPTIONS": f"parallel={os.cpu_count()}"}
    if os.path.isdir("/usr/lib/ccache"):
        env.update(PATH=f"/usr/lib/ccache:{os.environ['PATH']}", CCACHE_BASEDIR=str(tree))
    run("dpkg-buildpackage", "-b", "-us", "-uc", cwd=tree, env=env)
    package, = where.glob("varve_*.deb")
    changes, = where.glob("varve_*.changes")
    return package, changes


def check_lintian(changes):
    if not shutil.which("lintian"):
        print("SKIP debian_package.lintian: it is not installed")
        return
    p = subprocess.run(["lintian", "--allow-root", changes], capture_output=True, text=True, timeout=HOURS)
    errors = [x for x in p.stdout.splitlines() if x.startswith("E:")]
    check(not errors, errors)


def check_installed(root, package):
    """Not configured by dpkg, which would run this machine's programs in the root; the scripts are looked at instead."""
    admin = root / "var/lib/dpkg"
    for folder in ("info", "updates", "triggers"):
        (admin / folder).mkdir(parents=True)
    for file in ("status", "available"):
        (admin / file).touch()
    dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-not-root", "--force-script-chrootless", "--log=/dev/null"]
    run(*dpkg, "--unpack", package)
    version = run(root / "usr/bin/varve", "--version")
    check("varve v0.1.0" in version, version)
    for program in ("varve", "varve-rpc", "varve-trace", "varve-top", "varve-doctor", "varve-perf", "varve-setup", "varve-bpftrace", "softverbs"):
        run(root / "usr/bin" / program, "-h")
        check(any((root / "usr/share/man").glob(f"man*/{program}.*.gz")), f"{program} has no page")
    run(root / "usr/bin/softverbs", root / "usr/bin/varve", "-v")
    unit = (root / "lib/systemd/system/varve.service").read_text()
    check("ExecStart=/usr/bin/varve -c ${VARVE_CONFIG}" in unit and "/usr/lib/varve/keep-trace" in unit, unit)
    conffiles = (admin / "info/varve.conffiles").read_text().split()
    check(set(conffiles) == {"/etc/default/varve", "/etc/varve/varve.json"}, conffiles)
    for script in admin.glob("info/varve.p*"):
        run("sh", "-n", script)
    run(*dpkg, "--purge", "varve")
    left = [str(f.relative_to(root)) for f in root.rglob("*") if "varve" in f.name]
    check(not left, f"left after a purge: {left}")


def test_it_builds_installs_runs_and_goes():
    if not shutil.which("dpkg-buildpackage") or not shutil.which("dh"):
        raise Skip("needs dpkg-dev and debhelper")
    where = pathlib.Path(tempfile.mkdtemp(prefix="varve-deb-"))
    try:
        package, changes = build(where)
        check_lintian(changes)
        root = where / "root"
        root.mkdir()
        check_installed(root, package)
    finally:
        shutil.rmtree(where, ignore_errors=True)


if __name__ == "__main__":
    main(sys.modules[__name__])
