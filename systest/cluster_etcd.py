#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root etcd
# limit: 900
# beside
"""varve-cluster with an etcd of three members, each in a network of its own: a member is killed, the leader is stopped, a member is cut off from the others
and from the gateways, two members are gone. As long as two members have each other, groups are owned and can be moved; otherwise nobody serves when the
leases have ended. A host with paths to both gateways does verified I/O all the time."""
import contextlib
import http.client
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from appliance_lib import DEADLINE, check, main, wait_for
from cluster_lib import LEASE_S, Gateway, enter_network, hosts_at_work, need_network, scene, status, tell

NETWORK = "10.77.0"
CLIENTS, PEERS = 2379, 2380


def ip(*words, pid=None):
    subprocess.run([*(["nsenter", "-t", str(pid), "-n"] if pid else []), "ip", *words], check=True, timeout=DEADLINE)


class Member:
    """One of three, in a network that a process keeps; `link` is its only way to others."""

    def __init__(self, number, folder):
        self.number, self.name, self.folder = number, f"m{number}", folder
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
            self.process = subprocess.Popen(["nsenter", "-t", str(self.keeper.pid), "-n", "etcd", "--name", self.name, "--data-dir", self.folder / self.name,
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

    def __init__(self):
        need_network()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-etcd-"))
        self.members = []

    def __enter__(self):
        try:
            ip("link", "add", "hub", "type", "bridge")
            ip("address", "add", f"{NETWORK}.1/24", "dev", "hub")
            ip("link", "set", "hub", "up")
            for i in range(3):
                self.members.append(Member(i, self.folder))
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


class ThreeGateway(Gateway):
    def __init__(self, number, folder, server):
        super().__init__(number, folder, server, etcd={"endpoints": server.endpoints()})


def check_goes_on(s, work):
    """Groups are owned, served, and moved."""
    work()
    for name in ("a", "b"):
        p = wait_for(lambda name=name: (lambda p: p if p.returncode == 0 else None)(tell(s.etcd, "move", "1", name)), s.account)
        check(p.returncode == 0, p.stderr)
        wait_for(lambda name=name: 1 in s.gateways["ab".index(name)].owned(), s.account)
        work()
    check(tell(s.etcd, "move", "1", "any").returncode == 0, "any")
    s.wait_settled()


def tokens(s):
    """Of each group: another one, if it was owned anew."""
    return {n: g["token"] for n, g in status(s)["groups"].items()}


def with_three(act):
    with scene(ThreeGateway, store=ThreeMembers) as s:
        s.wait_settled()
        before = tokens(s)
        with hosts_at_work(s, patient=False) as work:
            act(s, work, before)


def check_tokens(s, work, what, before, is_certain):
    """Without a follower nothing is elected: for longer than a lease no group is given away. An election may take longer than a lease has left."""
    end = time.monotonic() + (1.5 * LEASE_S if is_certain else 0)
    work()
    while time.monotonic() < end:
        work()
    after = tokens(s)
    check(after == before or not is_certain, f"{what}: the tokens were {before} and are {after}\n{s.account()}")
    print(f"# {what}: the groups were {'not given away meanwhile' if after == before else 'owned anew'}", flush=True)


def test_a_member_is_killed_and_comes_back():
    def act(s, work, before):
        for choose in (s.etcd.follower, s.etcd.leader):
            m = choose()
            m.kill()
            s.etcd.leader()
            check_tokens(s, work, f"a {choose.__name__} was killed", before, choose == s.etcd.follower)
            check_goes_on(s, work)
            m.start()
            s.etcd.wait_whole()
            s.wait_settled()
            before = tokens(s)
    with_three(act)


def test_the_leader_is_stopped_and_goes_on():
    def act(s, work, before):
        m = s.etcd.leader()
        m.signal(signal.SIGSTOP)
        wait_for(lambda: any(x.leads() for x in s.etcd.members if x is not m), s.etcd.account)
        check_tokens(s, work, "the leader was stopped", before, False)
        check_goes_on(s, work)
        m.signal(signal.SIGCONT)
        check_goes_on(s, work)
    with_three(act)


def test_a_member_is_cut_off():
    def act(s, work, before):
        for choose in (s.etcd.leader, s.etcd.follower):
            m = choose()
            m.set_link("down")
            wait_for(lambda m=m: any(x.leads() for x in s.etcd.members if x is not m), s.etcd.account)
            check_tokens(s, work, f"a {choose.__name__} was cut off", before, choose == s.etcd.follower)
            check_goes_on(s, work)
            m.set_link("up")
            s.etcd.wait_whole()
            check_goes_on(s, work)
            before = tokens(s)
    with_three(act)


def test_without_a_quorum_nobody_serves_beyond_the_leases():
    def act(s, work, _):
        for m in s.etcd.members[:2]:
            m.set_link("down")
        wait_for(lambda: not any(g.owned() for g in s.gateways), s.account)
        for m in s.etcd.members[:2]:
            m.set_link("up")
        s.wait_settled()
        work()
        for m in s.etcd.members[1:]:
            m.kill()
        wait_for(lambda: not any(g.owned() for g in s.gateways), s.account)
        for m in s.etcd.members[1:]:
            m.start()
        s.wait_settled()
        check_goes_on(s, work)
    with_three(act)


if __name__ == "__main__":
    enter_network()
    main(sys.modules[__name__])
