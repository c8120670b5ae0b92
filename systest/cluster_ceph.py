#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: ceph etcd
# limit: 600
# beside
"""Two gateways to images of a real Ceph, a real etcd, and a host with paths to both that does verified I/O: one is killed, and one is stopped with I/O
under way and goes on when the other one serves its images: it has been blocklisted, and nothing of it is carried out any more."""
import sys

from appliance_lib import check, main, wait_for
from cluster_lib import GROUPS, ceph_scene, hosts_at_work, status


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


def json_of(cluster):
    return "# " + str(cluster["groups"])


if __name__ == "__main__":
    main(sys.modules[__name__])
