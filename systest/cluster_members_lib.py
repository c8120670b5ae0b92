# SPDX-License-Identifier: BSD-3-Clause
"""An etcd of three members, each in a network of its own, which can be killed, stopped and cut off."""
import contextlib
import http.client
import json
import pathlib
import shutil
import subprocess
import tempfile

from appliance_lib import DEADLINE, check, wait_for
from cluster_lib import need_network

NETWORK = "10.77.0"
CLIENTS, PEERS = 2379, 2380


def ip(*words, pid=None):
    subprocess.run([*(["nsenter", "-t", str(pid), "-n"] if pid else []), "ip", *words], check=True, timeout=DEADLINE)


class Member:
    """One of three, in a network that a process keeps; `link` is its only way to others."""

    def __init__(self, number, folder, options):
        self.number, self.name, self.folder, self.options = number, f"m{number}", folder, options
        self.address, self.link = f"{NETWORK}.{11 + number}", f"link{number}"
        self.process = None
        self.keeper = subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up && echo up && exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        check(self.keeper.stdout.readline() == b"up\n", "a network")
        ip("link", "add", self.link, "type", "veth", "peer", "name", "out", "netns", str(self.keeper.pid))
        ip("link", "set", self.link, "master", "hub", "up")
        ip("address", "add", f"{self.address}/24", "dev", "out", pid=self.keeper.pid)
        ip("link", "set", "out", "up", pid=self.keeper.pid)

    def start(self):
        client, peer = f"http://{self.address}:{CLIENTS}", f"http://{self.address}:{PEERS}"
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(["nsenter", "-t", str(self.keeper.pid), "-n", "etcd", *self.options, "--name", self.name, "--data-dir", self.folder / self.name,
                                             "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                                             "--initial-advertise-peer-urls", peer,
                                             "--initial-cluster", ",".join(f"m{i}=http://{NETWORK}.{11 + i}:{PEERS}" for i in range(3))],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def status(self):
        """Of the member, by etcd's own words; {}: it does not answer."""
        connection = http.client.HTTPConnection(self.address, CLIENTS, timeout=1)
        try:
            connection.request("POST", "/v3/maintenance/status", "{}")
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()

    def leads(self):
        s = self.status()
        return s.get("leader", "0") != "0" and s["leader"] == s["header"]["member_id"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def set_link(self, state):
        """Packets on the way are lost; nobody is told."""
        ip("link", "set", self.link, state)

    def close(self):
        if self.process is not None:
            self.kill()
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "delete", self.link)
        self.keeper.kill()
        self.keeper.wait()


class ThreeMembers:
    """In place of an EtcdServer."""
    port = 1        # of the gateways' wires, which are not used here

    def __init__(self, options=()):
        """options: of each etcd."""
        need_network()
        self.options = options
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-etcd-"))
        self.members = []

    def __enter__(self):
        try:
            ip("link", "add", "hub", "type", "bridge")
            ip("address", "add", f"{NETWORK}.1/24", "dev", "hub")
            ip("link", "set", "hub", "up")
            for i in range(3):
                self.members.append(Member(i, self.folder, self.options))
            for m in self.members:
                m.start()
            self.leader()
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def endpoints():
        return [f"http://{NETWORK}.{11 + i}:{CLIENTS}" for i in range(3)]

    def account(self):
        return "\n".join(f.read_text()[-2000:] for f in self.folder.glob("*.log"))

    def leader(self):
        """One that others follow: it has been elected."""
        def find():
            return next((m for m in self.members if m.leads() and sum(x.status().get("leader") == m.status().get("leader") for x in self.members) >= 2), None)
        return wait_for(find, self.account)

    def follower(self):
        leader = self.leader()
        return next(m for m in self.members if m is not leader)

    def wait_whole(self):
        """All three follow one leader."""
        def is_whole():
            leaders = {m.status().get("leader", "0") for m in self.members}
            return len(leaders) == 1 and leaders != {"0"}
        wait_for(is_whole, self.account)

    def __exit__(self, *exc):
        for m in self.members:
            m.close()
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "delete", "hub")
        shutil.rmtree(self.folder, ignore_errors=True)
