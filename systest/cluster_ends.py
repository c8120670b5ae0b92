#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 120
# quick
# beside
"""How long a gateway waits for one that has gone, turn by turn, with an etcd and daemons in memory: one that may serve still is left its groups, and others are not
waited for."""
import sys

from appliance_lib import check, main
from cluster_agent import TTL_S, Gateway, alone, owner, three_in_ceph, two
from varve_cluster import daemon, etcd, state, watch as watching
from varve_cluster.ends import Ends


def test_a_lease_that_ends_too_early_is_waited_for():
    store, a, b = two()
    store.seconds = TTL_S - 1
    b.agent.keys.ends.seen.clear()
    b.turn()
    a.end_lease()
    b.turn(4)
    b.check_serves({2})
    check(owner(store, 1)["owner"] == "a", "it may serve")
    a.agent.lease.keep()
    a.turn(4)
    b.turn(4)
    a.check_serves({1})
    # it does not come back
    b.agent.keys.ends.seen.clear()
    b.turn()
    a.end_lease()
    b.turn(2)
    b.check_serves({2})
    b.agent.keys.ends.ends_us["a"] = watching.boottime_us()
    b.turn(2)
    b.check_serves({1, 2})


def leaves(a, b, store):
    """a ends, and its lease with it, before it was due."""
    store.seconds = TTL_S - 1
    b.agent.keys.ends.seen.clear()
    b.turn()
    a.agent.watch.stop.set()
    a.agent.lease.join = lambda _: None
    a.agent.leave()


def test_a_gateway_that_ends_is_not_waited_for():
    store, a, b = two()
    leaves(a, b, store)
    check(owner(store, 1)["owner"] == "", owner(store, 1))
    b.turn(2)
    b.check_serves({1, 2})


def test_a_gateway_whose_daemon_has_died_is_not_waited_for():
    """systemd ends varve-cluster with it."""
    check(not daemon.Daemon("/none/socket", "n", 1).may_serve(["F1"]), "nobody is there")
    for died, expected in ((daemon.NoDaemon("no such file"), {1, 2}), (daemon.DaemonError("timed out"), {2})):
        store, a, b = two()
        for method in ("bdev_get_owners", "nvmf_subsystem_get_listeners"):
            a.daemon.errors[method, None] = died
        for name in ("F1", "G1"):
            a.daemon.errors["bdev_disown", name] = died
        leaves(a, b, store)
        b.turn(3)
        b.check_serves(expected)


def test_a_gateway_whose_io_does_not_end_is_not_waited_for():
    """Ceph does not answer it: what it has begun is fenced."""
    for states, expected in ((("draining", "giving"), {1, 2}), (("draining", "owner"), {2}), (("standby", "taking"), {2})):
        store, a, b = two()
        for name in ("F1", "G1"):
            a.daemon.errors["bdev_disown", name] = daemon.DaemonError("timed out")
        a.daemon.bdev_get_owners = lambda states=states: [{"name": n, "state": s} for n, s in zip(("F1", "G1"), states)] + [{"name": "F2", "state": "owner"}]
        leaves(a, b, store)
        b.turn(3)
        b.check_serves(expected)


def test_a_group_that_was_only_claimed_is_not_waited_for():
    store, a, b = two()
    a.agent.drop(1, "of the test")
    leaves(a, b, store)
    b.turn(3)
    b.check_serves({1, 2})


def test_a_second_program_of_one_gateway_that_ends_leaves_its_groups():
    store, a = alone()
    second = Gateway("a", 0, store)
    second.turn(2)
    second.agent.lease.join = lambda _: None
    second.agent.leave()
    a.turn(2)
    a.check_serves({1, 2})
    check({owner(store, n)["owner"] for n in (1, 2)} == {"a"}, store.keys)


def test_when_a_gateway_that_has_gone_serves_no_more():
    def cluster(*there):
        return state.State({g: state.Gateway(g, lease, 1, {}) for g, lease in there}, {1: state.Group("a", 1, 1), 2: state.Group("b", 1, 2), 3: state.Group()}, {})
    for asked_s, left_s, gone_s, expected in ((0, 3, 3, 0), (0, 3, 2.9, 8), (0, 0, 0, 0), (0, -1, 1, 0), (0, 4, 4, 0), (0, 4, 4.1, 8), (0, 7, 7, 8), (0, 0, 5, 8)):
        ends = Ends("b", 10)
        check(ends.look(cluster(("a", 5), ("b", 6)), 0) == {} and ends.to_ask() == [("a", 5)], "it is there")
        ends.note("a", 5, asked_s * 10**6, left_s, 8, 0)
        now_us = int(gone_s * 10**6)
        check(ends.look(cluster(("b", 6)), now_us) == ({"a": 8} if expected else {}), f"{left_s} {gone_s}")
        check(ends.look(cluster(("b", 6)), now_us + 1) == {}, "told once")
        check(ends.may_serve("a", now_us + 7999999) == (expected > 0) and not ends.may_serve("a", now_us + 8000000), f"{left_s} {gone_s}")
        check(not ends.may_serve("b", now_us) and not ends.may_serve("", now_us), "this one, and nobody")
        check(ends.look(cluster(("a", 7)), now_us) == {} and not ends.may_serve("a", now_us), "it is back")
        check(ends.look(cluster(("b", 6)), now_us) == {"a": 10} and ends.may_serve("a", now_us + 9999999), "its lease of now was not looked at")
        ends.note("a", 7, 0, 3, 8, 0)
        check("a" not in ends.seen and ends.to_ask() == [], "it has gone meanwhile")
        check(ends.look(cluster(("a", 9), ("b", 6), ("c", 3)), 0) == {} and ends.to_ask() == [("a", 9)], "one that owns nothing is not waited for")


def test_a_lease_is_over_when_etcd_has_said_so():
    """The keys may be read much later."""
    def cluster(*there):
        return state.State({g: state.Gateway(g, lease, 1, {}) for g, lease in there}, {1: state.Group("a", 1, 1)}, {})
    for left_s, found_s, waits_s in ((3, 4, 0), (3, 2, 5), (4, 5, 8)):
        ends = Ends("b", 10)
        ends.look(cluster(("a", 5)), 0)
        ends.note("a", 5, 0, left_s, 8, 0)
        ends.note("a", 4, 0, -1, 0, 1)      # another lease
        ends.note("a", 5, found_s * 10**6, -1, 0, found_s * 10**6)
        ends.note("a", 5, 20 * 10**6, -1, 0, 20 * 10**6)        # it was gone before
        check(ends.until_us("a", 30 * 10**6) == (found_s + (8 if waits_s else 0)) * 10**6, f"{left_s} {found_s}")
        check(ends.look(cluster(), 5 * 10**6) == ({"a": waits_s} if waits_s else {}), f"{left_s} {found_s}")


def test_a_lease_that_ends_while_another_group_is_taken_is_not_waited_for():
    """Ceph may need longer for that than a lease."""
    store, a, b, c = three_in_ceph()
    frozen, at = watching.boottime_us, [watching.boottime_us()]
    due = {a.agent.lease.id: at[0], b.agent.lease.id: at[0] + TTL_S * 300000}
    store.left = lambda lease: ((due[lease] - at[0]) // 10**6, TTL_S) if lease in store.leases else (-1, 0)
    own = c.daemon.bdev_own

    def own_late(name, **more):
        for _ in range(10):
            at[0] += TTL_S * 100000
            if at[0] >= max(due.values()) and b.agent.lease.id:
                b.end_lease()
            c.agent.leases.ask()        # on a thread of its own
        own(name, **more)
    try:
        watching.boottime_us = lambda: at[0]
        c.turn()
        a.end_lease()
        c.daemon.bdev_own = own_late
        c.turn()
        c.check_serves({1})
        c.daemon.bdev_own = own
        c.turn(2)
        c.check_serves({1, 2})
    finally:
        watching.boottime_us = frozen


def test_an_error_about_one_lease_hides_no_other():
    store, a, b, c = three_in_ceph()
    usual = store.left

    def fail_for_a(lease):
        if lease == a.agent.lease.id:
            raise etcd.EtcdError("timed out")
        return usual(lease)
    store.left = fail_for_a
    c.agent.keys.ends.seen.clear()
    c.turn()
    check(c.agent.keys.ends.seen.keys() == {"b"}, c.agent.keys.ends.seen)


def test_without_an_answer_about_a_lease_it_is_waited_for():
    store, a, b = two()

    def fail(_):
        raise etcd.EtcdError("timed out")
    store.left = fail
    b.agent.keys.ends.seen.clear()
    b.turn(2)
    a.end_lease()
    b.turn(2)
    b.check_serves({2})
    b.agent.keys.ends.ends_us["a"] = watching.boottime_us()
    b.turn(2)
    b.check_serves({1, 2})


if __name__ == "__main__":
    main(sys.modules[__name__])
