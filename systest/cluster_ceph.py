#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: ceph etcd
# limit: 600
# beside
"""Two gateways to images of a real Ceph, a real etcd, and a host with paths to both that does verified I/O: one is killed, and one is stopped with I/O
under way and goes on when the other one serves its images: it has been blocklisted, and nothing of it is carried out any more. One that owned nothing is blocklisted if it does not answer."""
import json
import sys

from appliance_lib import check, main, wait_for
from cluster_lib import GROUPS, ceph_scene, hosts_at_work, status, tell


def test_a_gateway_that_is_killed_or_stopped_is_fenced():
    with ceph_scene() as s:
        s.wait_settled()
        with hosts_at_work(s) as work:
            a, b = s.gateways
            a.kill()
            s.wait_owned_by(b)
            work()
            s.again(0)
            s.wait_settled()
            work()
            s.gateways[1].pause()
            s.wait_owned_by(s.gateways[0])
            work()
            s.gateways[1].go_on()
            work()
            wait_for(lambda: "blocklisted" in b.log(), b.log)
            wait_for(lambda: set(g["owner"] for g in status(s)["groups"].values()) == {"a"} and s.gateways[0].owned() == set(GROUPS)
                     and b.owned() == set(), s.account)
            work()
            # it is a new client when it is started again
            b.kill()
            s.again(1)
            s.wait_settled()
            work()
            print(json_of(status(s)), flush=True)


def lost(gateway):
    return gateway.call("bdev_get_bdevs", name="F1")[0]["driver_specific"]["rbd"]["lost"]


def test_a_gateway_that_owns_nothing_is_fenced_only_if_it_does_not_answer():
    """Ceph would wait for its client whenever a lock changes, 5 s each time."""
    with ceph_scene(number=3) as s:
        wait_for(lambda: sorted(len(g.owned()) for g in s.gateways) == [0, 1, 1], s.account)
        spare, = (g for g in s.gateways if not g.owned())
        others = [g for g in s.gateways if g is not spare]
        client = spare.call("bdev_get_bdevs", name="F1")[0]["driver_specific"]["rbd"]["client"]
        wait_for(lambda: spare.name in status(s)["gateways"], s.account)
        check(status(s)["gateways"][spare.name]["clients"] == [client], status(s))
        # its varve lives, and answers
        spare.agent.kill()
        spare.agent.wait()
        wait_for(lambda: all(f"client {client} of Ceph, which gateway {spare.name} is, answers" in g.agent_log() for g in others), s.account)
        check(not lost(spare) and "blocklisted" not in "".join(g.log() for g in others), s.account())
        spare.start_agent()
        wait_for(lambda: spare.name in status(s)["gateways"], s.account)
        # both programs are stopped, as a machine that hangs
        spare.pause()
        wait_for(lambda: any(f"of Ceph, which gateway {spare.name} was, does not answer: it is blocklisted" in g.agent_log() for g in others), s.account)
        watchers = json.loads(s.gateways[0].ceph.run("rbd", "status", "--format", "json", "rbd/image1"))["watchers"]
        check(len(watchers) == 2 and all(w["address"] not in client for w in watchers), watchers)
        group = min(others[0].owned())
        tell(s.etcd, "move", str(group), others[1].name)
        wait_for(lambda: group in others[1].owned(), s.account)
        spare.go_on()
        wait_for(lambda: lost(spare), spare.log)


def json_of(cluster):
    return "# " + str(cluster["groups"])


if __name__ == "__main__":
    main(sys.modules[__name__])
