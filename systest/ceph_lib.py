# SPDX-License-Identifier: BSD-3-Clause
"""A Ceph of one node, for tests: a monitor, a manager and one OSD on a file, on ports and in a folder of their own."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import uuid

from appliance_lib import DEADLINE, Failure, wait_for
from nvmf_lib import PORT

CONFIG = """\
[global]
fsid = {fsid}
mon initial members = a
mon host = [v2:127.0.0.1:{v2}/0,v1:127.0.0.1:{v1}/0]
auth cluster required = {auth}
auth service required = {auth}
auth client required = {auth}
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
run dir = {folder}/run
admin socket = {folder}/run/$cluster-$name.$pid.asok
pid file = {folder}/run/$name.pid
log file = {folder}/log/$name.log
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd
keyring = {keyring}
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
mon data avail warn = 2
mon data avail crit = 1
osd objectstore = bluestore
bluestore block size = 2147483648
bluestore block create = true
bluestore cache autotune = false
bluestore cache size = 67108864
osd memory target = 939524096
mgr initial modules =
mgr disabled modules = {modules}
ms bind ipv6 = false
[client]
admin socket =
log file =
"""
# None of the manager's is needed, and each is Python that it loads when it starts.
MODULES = pathlib.Path("/usr/share/ceph/mgr")
LIMIT = DEADLINE * 2


class Ceph:
    """Runs until it is left. conf: its configuration file. With cephx it has keys; otherwise anybody is client.admin."""

    def __init__(self, pools=("rbd",), cephx=False):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-ceph-"))
        self.conf = self.folder / "ceph.conf"
        self.port = PORT + 12
        for name in ("mon", "mgr", "osd", "log", "run"):
            (self.folder / name).mkdir()
        self.fsid = str(uuid.uuid4())
        self.processes = {}
        self.keyring = self.folder / "keyring" if cephx else None
        self.conf.write_text(CONFIG.format(fsid=self.fsid, folder=self.folder, v2=self.port, v1=self.port + 1, auth="cephx" if cephx else "none",
                                           keyring=self.keyring or "/dev/null",
                                           modules=",".join(sorted(x.name for x in MODULES.glob("[a-z]*") if x.is_dir()))))
        try:
            self.start(pools)
        except BaseException:
            self.__exit__()
            raise

    def run(self, *command, check=True, limit=LIMIT):
        p = subprocess.run([str(c) for c in command], env={**os.environ, "CEPH_CONF": str(self.conf)}, capture_output=True, text=True,
                           stdin=subprocess.DEVNULL, timeout=limit)
        if check and p.returncode != 0:
            logs = "".join(f"{x}:\n{x.read_text(errors='replace')[-1500:]}\n" for x in (self.folder / "log").iterdir())
            raise Failure(f"{' '.join(map(str, command))}: {p.returncode}: {p.stdout[-1000:]}{p.stderr[-1000:]}\n{logs}")
        return p.stdout

    def begin(self, name, *command):
        """In the foreground, so that it ends with the test whatever happens."""
        with open(self.folder / "log" / f"{name}.out", "ab") as out:
            self.processes[name] = subprocess.Popen([*command, "-f"], env={**os.environ, "CEPH_CONF": str(self.conf)}, stdin=subprocess.DEVNULL,
                                                    stdout=out, stderr=out)

    def start(self, pools):
        monmap = self.folder / "monmap"
        self.run("monmaptool", "--create", "--clobber", "--fsid", self.fsid, "--addv", "a",
                 f"[v2:127.0.0.1:{self.port},v1:127.0.0.1:{self.port + 1}]", monmap)
        if self.keyring:
            self.run("ceph-authtool", "--create-keyring", self.keyring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
            self.run("ceph-authtool", self.keyring, "--gen-key", "-n", "client.admin", *(w for kind in ("mon", "osd", "mgr") for w in ("--cap", kind, "allow *")))
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, *(("--keyring", self.keyring) if self.keyring else ()))
        self.begin("mon.a", "ceph-mon", "-i", "a")
        if self.keyring:
            self.add_key("mgr.x", "mon", "allow profile mgr", "osd", "allow *")
            self.add_key("osd.0", "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
        self.begin("mgr.x", "ceph-mgr", "-i", "x")
        number = str(uuid.uuid4())
        self.run("ceph", "osd", "new", number)
        self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", number)
        self.start_osd()
        for pool in pools:
            self.run("ceph", "osd", "pool", "create", pool, "8")
            self.run("rbd", "pool", "init", pool)

    def add_key(self, name, *caps):
        """Into the cluster and the keyring."""
        with open(self.keyring, "a", encoding="utf-8") as f:
            f.write(self.run("ceph", "auth", "get-or-create", name, *caps))

    def start_osd(self):
        self.begin("osd.0", "ceph-osd", "-i", "0", "--crush-location", "root=default host=h1")
        wait_for(lambda: "1 up" in self.run("ceph", "osd", "stat"), "the OSD to be up", LIMIT)

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def kill_osd(self):
        self.processes["osd.0"].kill()
        self.processes["osd.0"].wait()

    def image(self, name, mib):
        self.run("rbd", "create", "-s", f"{mib}M", name)

    def export(self, name):
        """What is in an image: bytes."""
        path = self.folder / "export"
        self.run("rbd", "export", "--no-progress", name, path)
        data = path.read_bytes()
        path.unlink()
        return data

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for p in self.processes.values():
            p.kill()
            p.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
