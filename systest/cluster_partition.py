#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root etcd nft
# limit: 900
# beside
"""A gateway that others still reach is cut off from etcd, from hosts, or from Ceph, in a network of the test's own where packets are dropped. Hosts with
paths to both gateways verify what they read: doc/ceph.md says what happens."""
import pathlib
import shutil
import subprocess
import sys

from appliance_lib import DEADLINE, VARVE, Skip, check, main, wait_for
from cluster_lib import GROUPS, LEASE_S, CephGateway, ceph_scene, enter_network, hosts_at_work, need_network, scene, status, tell

GROUP_ID = 20001        # of the process group ids by which the first gateway's packets are known
OSD_PORTS = "6800-7568"


def nft(text):
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True, timeout=DEADLINE)


def drop(*rules):
    """These packets are dropped, and no others."""
    nft("table inet cut { chain out { type filter hook output priority 0; }\n }\nflush chain inet cut out\n" + "".join(f"add rule inet cut out {r} drop\n" for r in rules))


def work_of(s, n):
    """What hosts have had done of a group, by both gateways."""
    return sum(b["num_read_ops"] + b["num_write_ops"] for g in s.gateways for b in g.call("bdev_get_iostat", name=f"F{n}")["bdevs"])


def wait_work(s, n):
    before = work_of(s, n)
    wait_for(lambda: work_of(s, n) > before + 50, s.account)


def owner(s, n):
    return status(s)["groups"][str(n)]["owner"]


def test_a_gateway_is_cut_off_from_hosts():
    """It has its lease, so it keeps its groups, until an operator moves them."""
    need_network()
    drop()
    with scene() as s:
        s.wait_settled()
        a, b = s.gateways
        with hosts_at_work(s, patient=False):
            n, = a.owned()
            other, = b.owned()
            check(tell(s.etcd, "move", str(other), "b").returncode == 0, "move")       # it stays there when the other one comes
            token = status(s)["groups"][str(n)]["token"]
            drop(f"tcp dport {a.port}", f"tcp sport {a.port}")
            wait_for(lambda: a.num_qpairs() == 0, "the hosts to be lost")
            done = work_of(s, n)
            wait_work(s, other)
            check(work_of(s, n) == done and status(s)["groups"][str(n)]["token"] == token and a.owned() == {n}, s.account())
            check(tell(s.etcd, "move", str(n), "b").returncode == 0, "move")
            s.wait_owned_by(b)
            wait_work(s, n)
            drop()
            for k in GROUPS:
                check(tell(s.etcd, "move", str(k), "any").returncode == 0, "any")
            s.wait_settled()
            for k in GROUPS:
                wait_work(s, k)


class KnownGateway(CephGateway):
    """The first one's packets are known by its group id."""

    def __init__(self, number, folder, server):
        if number == 0:
            self.program = pathlib.Path(folder) / "varve"
            self.program.write_text(f'#!/bin/sh\nexec setpriv --regid {GROUP_ID} --clear-groups {VARVE} "$@"\n')
            self.program.chmod(0o755)
        super().__init__(number, folder, server)


def cut_from_etcd(s):
    """It stops when its lease ends; the other one fences it."""
    a, b = s.gateways
    a.wire.cut = True
    s.wait_owned_by(b)
    check(a.owned() == set(), a.owned())
    for n in GROUPS:
        wait_work(s, n)
    a.wire.cut = False
    s.wait_settled()
    for n in GROUPS:
        wait_work(s, n)


def cut_from_ceph(s):
    """Its I/O waits, and its groups stay with it as long as it has its lease: its varve-cluster must be stopped."""
    a, b = s.gateways
    n, = a.owned()
    other, = b.owned()
    token = status(s)["groups"][str(n)]["token"]
    ceph = KnownGateway.ceph
    drop(f"meta skgid {GROUP_ID} tcp dport {{ {ceph.port}, {ceph.port + 1}, {OSD_PORTS} }}")
    wait_for(lambda: any(x["command"] in ("read", "write") and x["age_us"] > LEASE_S * 1000000 for x in a.call("nvmf_get_inflight")),
             lambda: f"a command to wait for longer than a lease: {a.call('nvmf_get_inflight')[:3]}")
    wait_work(s, other)
    check(status(s)["groups"][str(n)]["token"] == token and a.owned() == {n}, s.account())
    a.end_agent()
    s.wait_owned_by(b)
    for k in GROUPS:
        wait_work(s, k)
    drop()
    wait_for(lambda: "blocklisted" in a.log() and not a.owned(), a.log)
    for k in GROUPS:
        wait_work(s, k)
    a.kill()
    s.again(0)
    s.wait_settled()


def test_a_gateway_is_cut_off_from_etcd_and_from_ceph():
    need_network()
    if not shutil.which("ceph-mon"):
        raise Skip("needs ceph")
    drop()
    with ceph_scene(KnownGateway) as s:
        s.wait_settled()
        with hosts_at_work(s, patient=False):      # what waits at a gateway without Ceph ends when hosts abort it
            cut_from_etcd(s)
            cut_from_ceph(s)



if __name__ == "__main__":
    enter_network()
    main(sys.modules[__name__])
