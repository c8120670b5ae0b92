#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root
# limit: 1500
# long
# spare
"""The Debian package: it is built from debian/, has no errors, and dpkg installs it, upgrades it, removes it and purges it, of which nothing is left."""
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
    # nobody has to carry it anywhere: it need not be the smallest
    env = {"DEB_BUILD_OPTIONS": f"parallel={os.cpu_count()} nocheck", "DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    if os.path.isdir("/usr/lib/ccache"):        # debhelper gives the compiler a home of its own, and so an empty cache
        env.update(PATH=f"/usr/lib/ccache:{os.environ['PATH']}", CCACHE_BASEDIR=str(tree), CCACHE_DIR=run("ccache", "--get-config", "cache_dir").strip())
    run("dpkg-buildpackage", "-b", "-us", "-uc", cwd=tree, env=env)
    package, = where.glob("varve_*.deb")
    changes, = where.glob("varve_*.changes")
    return package, changes


def check_lintian(changes):
    if not shutil.which("lintian"):
        print("SKIP debian_package.lintian: it is not installed")
        return
    p = subprocess.run(["lintian", "--allow-root", changes], capture_output=True, text=True, timeout=HOURS)
    check(p.returncode != 1, f"lintian could not do it: {p.stderr[-2000:]}")
    errors = [x for x in p.stdout.splitlines() if x.startswith("E:")]
    check(not errors, errors)


MOUNT = """
mount -t tmpfs -o size=512m varve-package "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
echo mounted
exec cat
"""


# A service manager that keeps what it is asked for; what forbids services, and has all manual pages looked through, goes.
PREPARE = """
mkdir -p /run/systemd/system
printf '#!/bin/sh\\necho "$@" >>/asked\\n' >/usr/local/bin/systemctl
chmod 755 /usr/local/bin/systemctl
touch /asked
rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update
"""


class Root:
    """This machine, with everything that is installed on it, of which nothing is changed: an overlay in a mount namespace. A service manager
    seems to run there, and what it is asked for is kept."""

    # dpkg's own, and what this class puts there
    OWN = ("var/lib/dpkg", "var/log", "var/lib/man-db/auto-update", "usr/sbin/policy-rc.d", "usr/local/bin/systemctl", "asked", "varve.deb")

    def __init__(self, where, package):
        where.mkdir()
        self.root = where / "root"
        self.holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-ec", MOUNT, "sh", where], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "mounted\n":
            raise Skip(f"needs overlayfs in a mount namespace: {self.holder.communicate()[1].strip()}")
        self.seen = pathlib.Path(f"/proc/{self.holder.pid}/root{where}")
        shutil.copy(package, self.path("varve.deb"))
        self.run("sh", "-ec", PREPARE)

    def path(self, name):
        """To look at. What writes is run inside: an absolute symbolic link would lead out."""
        return self.seen / "root" / name

    def run(self, *command):
        return run("nsenter", "-t", self.holder.pid, "-m", "chroot", self.root, *command,
                   env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})

    def dpkg(self, *args):
        return self.run("dpkg", "--force-confold", *args)

    def status(self):
        return self.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", "varve").strip()

    def asked(self):
        return self.path("asked").read_text().splitlines()

    def changed(self):
        """Files that are not as on the machine, and folders that have the package's name."""
        upper = self.seen / "upper"
        names = [str(f.relative_to(upper)) for f in upper.rglob("*") if not f.is_dir() or "varve" in f.name]
        return [n for n in names if not n.startswith(self.OWN)]

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()


def check_installed(root):
    check(root.status() == "ii", root.status())
    version = root.run("varve", "--version")
    check("varve v0.1.0" in version, version)
    for program in ("varve", "varve-rpc", "varve-ctl", "varve-trace", "varve-top", "varve-doctor", "varve-perf", "varve-lvol", "varve-setup", "varve-bpftrace", "softverbs"):
        root.run(f"/usr/bin/{program}", "-h")
        check(any(root.path("usr/share/man").glob(f"man*/{program}.*.gz")), f"{program} has no page")
    root.run("softverbs", "/usr/bin/varve", "-v")
    unit = root.path("lib/systemd/system/varve.service").read_text()
    check("ExecStart=/usr/bin/varve -c ${VARVE_CONFIG}" in unit and "/usr/lib/varve/keep-trace" in unit, unit)
    conffiles = root.path("var/lib/dpkg/info/varve.conffiles").read_text().split()
    check(set(conffiles) == {"/etc/default/varve", "/etc/varve/varve.json"}, conffiles)
    check(not any(root.path("etc/systemd/system").rglob("*varve*")), "it is enabled")
    check(not any("start" in a for a in root.asked()), root.asked())


def check_life(root):
    """Installed, configured, upgraded, removed and purged, as an operator does."""
    root.dpkg("-i", "/varve.deb")
    check_installed(root)
    settings = root.path("etc/default/varve")
    trace, reservation = root.path("var/lib/varve/traces/one"), root.path("var/lib/varve/one.reservation")
    root.run("sh", "-ec", """echo VARVE_OPTIONS=-v >>/etc/default/varve
        mkdir -p /var/lib/varve/traces
        touch /var/lib/varve/traces/one /var/lib/varve/one.reservation""")
    root.dpkg("-i", "/varve.deb")
    check(root.status() == "ii" and not any("stop" in a for a in root.asked()), f"after an upgrade: {root.status()}, {root.asked()}")
    root.dpkg("-r", "varve")
    check(root.status() == "rc" and "stop varve.service" in root.asked(), f"removed: {root.status()}, {root.asked()}")
    check("VARVE_OPTIONS=-v" in settings.read_text() and trace.exists(), "what is the operator's went with a removal")
    left = [c for c in root.changed() if not c.startswith(("etc/", "var/lib/varve", "var/lib/systemd/deb-systemd-helper"))]
    check(not left, f"left after a removal: {left}")
    root.dpkg("--purge", "varve")
    left = [c for c in root.changed() if c not in ("var/lib/varve", "var/lib/varve/one.reservation")]
    check(not left, f"left after a purge: {left}")
    check(reservation.exists(), "a purge took the hosts' reservations along")


def test_it_builds_installs_runs_and_goes():
    if not shutil.which("dpkg-buildpackage") or not shutil.which("dh"):
        raise Skip("needs dpkg-dev and debhelper")
    where = pathlib.Path(tempfile.mkdtemp(prefix="varve-deb-"))
    try:
        package, changes = build(where)
        check_lintian(changes)
        root = Root(where / "machine", package)
        try:
            check_life(root)
        finally:
            root.close()
    finally:
        shutil.rmtree(where, ignore_errors=True)


if __name__ == "__main__":
    main(sys.modules[__name__])
