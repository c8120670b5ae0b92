#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# quick
# beside
"""What a gateway's varve-cluster does, turn by turn, with an etcd and daemons in memory: answers that are lost, calls that fail half-way, leases that end
at the worst moment."""
import contextlib
import json
import signal
import subprocess
import sys
import time
import types

from appliance_lib import DEADLINE, TOP, check, main, wait_for

sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "tools" / "cluster"))
from varve_cluster import agent, daemon, etcd, state, watch as watching  # noqa: E402

PREFIX = "/varve/t/"
TTL_S = 3600        # no lease ends by itself
watching.boottime_us = lambda: 10**12       # what was read is never old by itself


class FakeEtcd:
    """Keys with revisions and leases."""

    def __init__(self):
        self.keys, self.revision, self.leases = {}, 0, set()
        self.lose = None        # the answer of the next change of this key is lost, and the change comes later
        self.late = None
        self.on_read = None     # called once, when keys have been read
        self.reads = 0
        self.seconds = 0        # that each lease has

    def entries(self, prefix):
        self.reads += 1
        answer = [etcd.Entry(k[len(prefix):], value, at, lease, created) for k, (value, at, lease, created) in sorted(self.keys.items())]
        hook, self.on_read = self.on_read, None
        if hook:
            hook()
        return answer

    def change(self, key, revision, value, lease=0, absent=None):
        if self.lose == key:
            self.lose, self.late = None, (key, revision, value, lease, absent)
            raise etcd.EtcdError("timed out")
        old = self.keys.get(key, ("", 0, 0, 0))
        if old[1] != revision or absent in self.keys:
            return False
        self.revision += 1
        if value is None:
            del self.keys[key]
        else:
            self.keys[key] = (value, self.revision, lease, old[3] or self.revision)
        return True

    def come_late(self):
        late, self.late = self.late, None
        return self.change(*late)

    def grant(self, ttl_s):
        self.revision += 1
        self.leases.add(self.revision)
        return self.revision, ttl_s

    def keep_alive(self, lease):
        return TTL_S if lease in self.leases else 0

    def left(self, lease):
        """A lease ends when it has to, if no test says otherwise."""
        return self.seconds, TTL_S if lease in self.leases else 0

    def revoke(self, lease):
        self.leases.discard(lease)
        self.keys = {k: v for k, v in self.keys.items() if v[2] != lease}


class FakeDaemon(daemon.Daemon):
    """A subsystem with two groups, of which the first has two namespaces, and one listener."""

    def __init__(self, low):
        super().__init__("/none", "n", 1)
        self.low = low
        self.groups = {"F1": 1, "F2": 2, "G1": 1}
        self.owned, self.calls, self.errors = set(), [], {}
        self.ana = {1: "inaccessible", 2: "inaccessible"}
        self.addresses_of = [{"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.1", "trsvcid": str(low)}]
        self.told = [{"address": {"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.9", "trsvcid": "4420"}, "subnqn": daemon.DISCOVERY}]     # by an operator
        self.blocks = 8192
        self.ceph_client = None          # of Ceph
        self.silent = set()         # clients that do not answer
        self.locked = {}            # clients by bdevs: they have the locks
        self.asked = []             # for which clients, by which bdev

    def call(self, method, timeout_s=None, **params):
        name = params.get("name")
        self.calls.append((method, name))
        if (method, name) in self.errors:
            raise self.errors[method, name]
        return getattr(self, method)(**params)

    def bdev_get_owners(self):
        return [{"name": b, "state": "owner" if b in self.owned else "standby"} for b in self.groups]

    def nvmf_get_subsystems(self):
        namespaces = [{"nsid": i, "bdev_name": b, "anagrpid": n, "nguid": f"{i:032x}"} for i, (b, n) in enumerate(self.groups.items(), 1)]
        return [{"nqn": "n", "ana_reporting": True, "min_cntlid": self.low, "max_cntlid": self.low + 99, "namespaces": namespaces}]

    def bdev_get_bdevs(self, name):
        return [{"name": name, "block_size": 512, "num_blocks": self.blocks,
                 "driver_specific": {"rbd": {"client": self.ceph_client, "lost": False}} if self.ceph_client else {}}]

    def bdev_rbd_fence_silent(self, name, clients, until_us):
        check(until_us > daemon.boottime_us(), "a lease that has ended")
        self.asked.append((name, clients))
        check(until_us <= daemon.boottime_us() + daemon.ASK_S * 1000000, "nobody waits so long, and knows who has come back by then")
        found = self.silent & set(clients.split(",")) - {self.locked.get(name)}
        self.silent -= found
        return sorted(found)

    def nvmf_subsystem_get_listeners(self, nqn):
        return [{"address": a, "ana_states": [{"ana_group": n, "ana_state": s} for n, s in self.ana.items()]} for a in self.addresses_of]

    def nvmf_discovery_get_referrals(self):
        return self.told

    def nvmf_discovery_add_referral(self, address):
        check(address not in [r["address"] for r in self.told], "once")
        self.told.append({"address": address, "subnqn": daemon.DISCOVERY})

    def nvmf_discovery_remove_referral(self, address):
        check(address in [r["address"] for r in self.told], "it is there")
        self.told = [r for r in self.told if r["address"] != address]

    def ports_told(self):
        return [r["address"]["trsvcid"] for r in self.told]

    def nvmf_get_transports(self):
        return [{"trtype": "TCP", "masked_oncs": ["nvmcpys"]}, {"trtype": "RDMA"}]

    def nvmf_subsystem_listener_set_ana_state(self, nqn, listen_address, ana_state, anagrpid):
        self.ana[anagrpid] = ana_state

    def bdev_own(self, name, until_us, fence=False):
        check(until_us > daemon.boottime_us(), "a lease that has ended")
        self.owned.add(name)

    def bdev_disown(self, name):
        self.owned.discard(name)

    def owned_groups(self):
        return {n for n in (1, 2) if {b for b, g in self.groups.items() if g == n} <= self.owned}


class Gateway:
    def __init__(self, name, number, store, known=None):
        """known: the daemon, with which it begins anew."""
        self.etcd, self.daemon = store, known or FakeDaemon(1 + 1000 * number)
        self.agent = agent.Agent({"gateway": name, "cluster": "t", "nqn": "n", "lease_s": TTL_S, "rpc_socket": "/none", "etcd": {"endpoints": ["http://x"]}})
        a = self.agent
        a.etcd = a.keys.etcd = a.lease.etcd = a.leases.etcd = store
        a.daemon = a.lease.daemon_ = self.daemon
        a.facts, a.groups = self.daemon.facts()
        a.lease.keep()

    def turn(self, times=1):
        """Whether to look again at once. A question to Ceph has its answer in the same turn."""
        for _ in range(times):
            again = self.agent.try_turn()
            self.agent.leases.ask()
            while self.agent.questions.under_way:
                wait_for(lambda: not self.agent.questions.answers.empty(), "an answer")
                again = self.agent.try_turn()
        return again

    def check_serves(self, groups):
        check(self.agent.lease.owned.keys() == groups and self.daemon.owned_groups() == groups, f"{self.agent.lease.owned} {self.daemon.owned}")
        check({n for n, s in self.daemon.ana.items() if s == "optimized"} == groups, self.daemon.ana)

    def end_lease(self):
        self.etcd.revoke(self.agent.lease.id)
        self.agent.lease.keep()


@contextlib.contextmanager
def ahead(gateway, leases, steps=None):
    """So many leases later. It has looked at the cluster twice in each of them; or, steps: so often in all of them."""
    count = int(leases * 2) if steps is None else steps
    try:
        for i in range(1, count + 1):
            later = leases * TTL_S * i / count
            agent.time = types.SimpleNamespace(monotonic=lambda later=later: time.monotonic() + later)
            gateway.turn()
        yield
    finally:
        agent.time = time


def owner(store, n):
    return json.loads(store.keys[f"{PREFIX}groups/{n}"][0])


def alone():
    store = FakeEtcd()
    g = Gateway("a", 0, store)
    g.turn(4)
    g.check_serves({1, 2})
    return store, g


def two():
    store, a = alone()
    b = Gateway("b", 1, store)
    for _ in range(4):
        a.turn()
        b.turn()
    a.check_serves({1})
    b.check_serves({2})
    return store, a, b


def test_each_change_is_made_by_what_was_just_read():
    store = FakeEtcd()
    g = Gateway("a", 0, store)
    g.turn(2)
    check(len(g.agent.lease.owned) == 1, "one at a time")
    reads = store.reads
    g.turn()
    g.check_serves({1, 2})
    check(store.reads == reads + 1, "it was read again")


def test_keys_that_are_watched_are_read_when_they_change():
    store, a, b = two()
    watch = a.agent.watch
    watch.active = True
    watch.note_change()
    a.turn()
    reads = store.reads
    a.turn(3)
    check(store.reads == reads, "nothing has changed")
    watch.note_change()
    a.turn()
    check(store.reads == reads + 1, "something has")
    a.agent.keys.read_us -= TTL_S * 250000
    a.turn(2)
    check(store.reads == reads + 2, "a member that is cut off says nothing")
    a.agent.keys.read_us -= 2000001
    a.turn(2)
    check(store.reads == reads + 3, "also if the lease is long")
    watch.active = False
    a.turn(2)
    check(store.reads == reads + 5, "they are not watched")
    # what it changes itself
    watch.active = True
    store.keys[f"{PREFIX}moves/1"] = ("b", 1, 0, 1)
    watch.note_change()
    a.turn()
    a.turn()
    check(store.reads == reads + 7 and owner(store, 1)["owner"] == "b", owner(store, 1))
    b.turn(2)           # group 2 goes to a then, which has none
    b.check_serves({1})


def test_what_was_read_under_an_earlier_lease_takes_nothing():
    """Another gateway had the group meanwhile."""
    store, a, b = two()
    a.agent.watch.active = True
    a.turn(2)
    a.end_lease()
    b.turn(3)
    b.check_serves({1, 2})
    a.agent.lease.keep()        # the watch says nothing, and little time has passed
    a.daemon.calls.clear()
    a.turn(3)
    check(not any(m == "bdev_own" for m, _ in a.daemon.calls), a.daemon.calls)
    a.agent.watch.note_change()
    for g in (a, b, a, b, a, b):
        g.agent.watch.note_change()
        g.turn()
    check(len(a.agent.lease.owned) == len(b.agent.lease.owned) == 1, "they share again")


def test_a_claim_by_what_has_changed_meanwhile_is_refused():
    store, a = alone()
    a.agent.drop(2, "of the test")
    a.agent.watch.active = True
    store.keys[f"{PREFIX}groups/2"] = (json.dumps({"owner": "gone", "token": 5}), 1000, 0, 1)
    a.agent.watch.note_change()
    known = a.agent.keys.state()
    a.agent.keys.ends.ends_us["gone"] = 1       # long ago
    store.keys[f"{PREFIX}groups/2"] = (json.dumps({"owner": "b", "token": 77}), 1001, 0, 1)
    a.daemon.calls.clear()
    check(a.agent.keys.state() is known, "it does not know")
    a.turn()
    check(owner(store, 2) == {"owner": "b", "token": 77} and not any(m == "bdev_own" for m, _ in a.daemon.calls), owner(store, 2))
    check(a.agent.keys.state() is not known, "it looks again")


def test_a_claim_of_a_lease_that_has_ended_takes_nothing():
    store = FakeEtcd()
    g = Gateway("a", 0, store)
    g.turn()

    def end_and_begin():
        g.end_lease()
        g.agent.lease.keep()
    g.daemon.calls.clear()
    store.on_read = end_and_begin
    g.turn()
    check(not any(m == "bdev_own" for m, _ in g.daemon.calls), g.daemon.calls)
    g.turn(4)
    g.check_serves({1, 2})


def test_a_hand_over_that_comes_late_changes_nothing():
    for late_first in (False, True):
        store, a, b = two()
        store.keys[f"{PREFIX}moves/1"] = ("b", 1, 0, 1)
        store.lose = f"{PREFIX}groups/1"
        a.turn()
        a.check_serves(set())
        if late_first:
            store.on_read = lambda store=store: check(store.come_late(), "it was carried out")     # behind what was read
            a.turn()
            a.check_serves(set())
            b.turn(2)       # group 2 goes to a then, which has none
            b.check_serves({1})
            continue
        token = owner(store, 1)["token"]
        del store.keys[f"{PREFIX}moves/1"]
        a.turn()
        a.check_serves({1})
        check(owner(store, 1) == {"owner": "a", "token": token + 1}, owner(store, 1))
        check(not store.come_late() and owner(store, 1)["owner"] == "a", "it was carried out")
        for g in (a, b, a, b):
            g.turn()
        a.check_serves({1})


def test_a_take_that_fails_half_way_leaves_nothing():
    for call in (("bdev_own", "G1"), ("nvmf_subsystem_listener_set_ana_state", None)):
        store = FakeEtcd()
        g = Gateway("a", 0, store)
        g.turn()
        g.daemon.errors[call] = daemon.DaemonError("no \x1b")
        g.turn(4)
        check(not {"F1", "G1"} & g.daemon.owned and g.daemon.ana[1] == "inaccessible", g.daemon.owned)
        check(("bdev_own", "F1") in g.daemon.calls, g.daemon.calls)
        found = state.decode_state(store.entries(PREFIX)).gateways["a"].facts
        check(found["waits"].get("1") == "no ?", found)        # other gateways can read it
        token = owner(store, 1)["token"]
        g.turn(4)
        check(owner(store, 1)["token"] == token, "one claim is enough")
        g.daemon.errors.clear()
        g.turn(4)
        g.check_serves({1, 2})


def test_a_group_of_which_something_is_left_is_not_handed_over():
    store, a, b = two()
    a.daemon.errors = {("bdev_own", "F1"): daemon.DaemonError("no"), ("bdev_disown", "G1"): daemon.DaemonError("busy")}
    a.agent.drop(1, "of the test")
    a.turn()
    a.agent.waits_since[1] -= 2 * TTL_S
    a.turn(4)
    check(owner(store, 1)["owner"] == "a", owner(store, 1))
    del a.daemon.errors["bdev_disown", "G1"]
    a.turn(4)
    check(owner(store, 1)["owner"] == "b", owner(store, 1))
    b.turn(2)
    check(1 in b.daemon.owned_groups() and not a.daemon.owned, b.daemon.owned)


def test_what_is_not_served_is_made_inaccessible():
    _, a, b = two()
    a.daemon.ana[2] = "optimized"
    a.turn()
    a.check_serves({1})
    b.daemon.errors["nvmf_subsystem_listener_set_ana_state", None] = daemon.DaemonError("busy")
    b.end_lease()
    b.turn()
    check(b.daemon.ana[2] == "optimized" and not b.daemon.owned, "it could not be made inaccessible")
    b.daemon.errors.clear()
    b.turn()
    check(b.daemon.ana[2] == "inaccessible", b.daemon.ana)


def test_a_second_program_of_one_gateway_changes_nothing():
    store, a = alone()
    second = Gateway("a", 0, store)
    second.daemon = second.agent.daemon = a.daemon
    second.turn(3)
    a.turn(3)
    a.check_serves({1, 2})
    check(second.agent.in_use and not second.agent.lease.owned, "it waits")


def test_of_two_that_do_not_fit_the_later_one_goes():
    store = FakeEtcd()
    a, b = Gateway("a", 0, store), Gateway("b", 0, store)
    for g in (a, b):
        g.agent.register(state.State({}, {}, {}), g.agent.lease.id)       # neither has seen the other
    a.turn(3)
    try:
        b.turn()
    except agent.Fatal as e:
        check("min_cntlid" in str(e) and not b.daemon.owned, e)
    else:
        check(False, "both stay")
    b.end_lease()
    a.turn(3)
    a.check_serves({1, 2})


def test_a_deleted_bdev_is_the_reason_of_its_group_alone():
    for when in ("before", "owned"):
        store = FakeEtcd()
        g = Gateway("a", 0, store)
        g.turn(4 if when == "owned" else 1)
        for method in ("bdev_get_bdevs", "bdev_own", "bdev_disown"):
            g.daemon.errors[method, "F2"] = daemon.NoDevice("there is no bdev 'F2'")
        g.daemon.owned.discard("F2")
        g.agent.lease.keep()
        g.turn(6)
        g.check_serves({1})
        check("F2" in g.agent.waits[2] and 1 not in g.agent.waits, g.agent.waits)
    # another gateway gets it
    store, a, b = two()
    for method in ("bdev_get_bdevs", "bdev_own", "bdev_disown"):
        b.daemon.errors[method, "F2"] = daemon.NoDevice("there is no bdev 'F2'")
    b.agent.drop(2, "of the test")
    b.turn()
    b.agent.waits_since[2] -= 2 * TTL_S
    b.turn(2)
    a.turn()
    a.check_serves({1, 2})


def test_a_group_that_waits_holds_up_no_hand_over():
    store = FakeEtcd()
    a, b = Gateway("a", 0, store), Gateway("b", 1, store)
    a.daemon.errors["bdev_own", "F2"] = daemon.DaemonError("in use")
    a.turn(4)
    a.check_serves({1})
    b.turn(2)
    store.keys[f"{PREFIX}moves/1"] = ("b", 1, 0, 1)
    a.turn()
    check(owner(store, 1)["owner"] == "b", owner(store, 1))


def test_io_that_does_not_end_does_not_make_a_group_flap():
    store, a, b = two()
    b.end_lease()
    a.turn(3)
    a.check_serves({1, 2})
    b.agent.lease.keep()
    a.daemon.errors["bdev_disown", "F2"] = a.daemon.errors["bdev_disown", "F1"] = daemon.DaemonError("timed out")
    a.daemon.calls.clear()
    for _ in range(12):
        b.turn()
        a.turn()
    a.check_serves({1, 2})
    tries = [name for method, name in a.daemon.calls if method == "bdev_disown"]
    check(len(tries) == len(set(tries)) == 3, tries)      # each bdev once
    a.daemon.errors.clear()
    a.agent.kept_at = {n: at - 11 * TTL_S for n, at in a.agent.kept_at.items()}
    for _ in range(4):
        a.turn()
        b.turn()
    check(len(a.agent.lease.owned) == 1 and len(b.agent.lease.owned) == 1, "it goes later")


def test_sizes_follow_and_refuse_only_who_comes():
    store, a, b = two()
    a.daemon.blocks = 9000
    a.turn()
    b.turn()
    check(state.decode_state(store.entries(PREFIX)).gateways["a"].facts["namespaces"]["1"]["blocks"] == 9000, "the new size")
    c = Gateway("c", 2, store)
    try:
        c.turn(2)
    except agent.Fatal as e:
        check("blocks of namespace 1" in str(e), e)
    else:
        check(False, "it was let in")


def test_hosts_are_told_of_other_gateways():
    store, a, b = two()
    for g, other in ((a, "1001"), (b, "1")):
        g.turn(2)
        check(g.daemon.ports_told() == ["4420", other], g.daemon.told)
    # another address
    b.daemon.addresses_of.append({"trtype": "RDMA", "adrfam": "IPv4", "traddr": "192.0.2.2", "trsvcid": "7"})
    b.daemon.addresses_of.append({"trtype": "TCP", "adrfam": "IPv4", "traddr": "0.0.0.0", "trsvcid": "8"})
    b.turn()
    a.turn()
    check(a.daemon.ports_told() == ["4420", "7", "1001"] or a.daemon.ports_told() == ["4420", "1001", "7"], a.daemon.told)
    # the daemon was started again beside it
    del a.daemon.told[1:]
    a.turn()
    check(sorted(a.daemon.ports_told()) == ["1001", "4420", "7"], a.daemon.told)
    # one that is gone is named for ten leases
    b.end_lease()
    a.turn(4)
    a.check_serves({1, 2})
    check(len(a.daemon.told) == 3, a.daemon.told)
    a.daemon.errors["nvmf_discovery_remove_referral", None] = daemon.DaemonError("busy")
    with ahead(a, 9):
        check(len(a.daemon.told) == 3 and not a.agent.refused, "they stay so long")
    with ahead(a, 11):
        check(len(a.daemon.told) == 3 and len(a.agent.refused) == 2, "they are not removed")
        a.daemon.errors.clear()
        a.turn()
        check(len(a.daemon.told) == 3, "it is not tried at once")
    with ahead(a, 12.5):
        check(a.daemon.ports_told() == ["4420"], "what an operator has told stays")
    # and again when it is back
    b.agent.lease.keep()
    b.turn()
    a.turn(2)       # first it hands a group over
    check(len(a.daemon.told) == 3, a.daemon.told)
    # groups do not depend on it
    for method in ("nvmf_discovery_get_referrals", "nvmf_discovery_add_referral"):
        c = Gateway("c", 2, FakeEtcd())
        c.daemon.errors[method, None] = daemon.DaemonError("no")
        c.agent.named = set(a.agent.named)
        c.turn(4)
        c.check_serves({1, 2})
        check(c.agent.not_referred == "no", c.agent.not_referred)
    # an address that cannot be named does not keep others from it
    del a.daemon.told[1:]

    def refuse_rdma(address, add=a.daemon.nvmf_discovery_add_referral):
        if address["trtype"] == "RDMA":
            raise daemon.DaemonError("no RDMA")
        add(address)
    a.daemon.nvmf_discovery_add_referral = refuse_rdma
    a.turn(2)
    check(a.daemon.ports_told() == ["4420", "1001"] and a.agent.not_referred == "no RDMA", a.daemon.told)
    calls = a.daemon.calls.count(("nvmf_discovery_add_referral", None))
    a.turn(5)
    check(a.daemon.calls.count(("nvmf_discovery_add_referral", None)) == calls and a.agent.not_referred == "no RDMA", "left alone for a lease")
    del a.daemon.nvmf_discovery_add_referral
    with ahead(a, 2):
        check(len(a.daemon.told) == 3 and a.agent.not_referred is None, a.daemon.told)
    check(state.referred_to(state.State({}, {}, {}), "a") == set(), "nobody is there")


def test_referrals_outlive_neither_a_restart_nor_their_gateway():
    """Of varve-cluster: its daemon has them still, and an operator's configuration may have saved them."""
    store, a, b = two()
    a.turn(2)
    check(a.daemon.ports_told() == ["4420", "1001"], a.daemon.told)
    store.revoke(a.agent.lease.id)
    again = Gateway("a", 0, store, a.daemon)
    again.turn(4)
    b.end_lease()
    again.turn(4)
    again.check_serves({1, 2})
    check(again.daemon.ports_told() == ["4420", "1001"], again.daemon.told)
    with ahead(again, 11):
        check(again.daemon.ports_told() == ["4420"], again.daemon.told)


def test_time_without_etcd_is_no_absence():
    """It may have been suspended, too. Other gateways come back after it."""
    _, a, b = two()
    a.turn(2)
    for gone_before in (False, True):
        b.end_lease()
        if gone_before:
            a.turn(4)
        with ahead(a, 11, steps=1):
            check(a.daemon.ports_told() == ["4420", "1001"], f"{gone_before} {a.daemon.told}")
            b.agent.lease.keep()
            b.turn(4)
            a.turn(2)
            check(not a.agent.gone_at and a.daemon.ports_told() == ["4420", "1001"], a.daemon.told)


def test_an_address_that_has_moved_here_is_referred_to_no_more():
    _, a, b = two()
    a.turn(2)
    moved = b.daemon.addresses_of.pop()
    b.daemon.addresses_of.append({**moved, "trsvcid": "5"})
    a.daemon.addresses_of.append(moved)
    a.turn(2)
    check(a.daemon.ports_told() == ["4420"], a.daemon.told)      # b has not said yet that it has it no more
    b.turn(2)
    a.turn(2)
    check(a.daemon.ports_told() == ["4420", "5"], a.daemon.told)


def test_groups_come_before_referrals():
    _, a, b = two()
    a.turn(2)
    del a.daemon.told[1:]
    b.end_lease()
    a.daemon.calls.clear()
    a.turn(4)
    a.check_serves({1, 2})
    calls = [method for method, _ in a.daemon.calls]
    check("bdev_own" in calls and calls.index("bdev_own") < calls.index("nvmf_discovery_add_referral"), calls)


# --- Clients of Ceph ---

def three_in_ceph():
    """Two that own a group each, and c, which owns none."""
    store = FakeEtcd()
    found = [Gateway(name, i, store) for i, name in enumerate("abc")]
    for i, g in enumerate(found):
        g.daemon.ceph_client = f"127.0.0.1:0/{i}"
    for _ in range(4):
        for g in found:
            g.turn()
    found[2].check_serves(set())
    return store, *found


def test_a_client_of_a_gateway_that_has_gone_is_asked_at_once():
    store, a, b, c = three_in_ceph()
    facts = state.decode_state(store.entries(PREFIX)).gateways["c"].facts
    check(facts["clients"] == ["127.0.0.1:0/2"], facts)
    a.turn(2)
    check(a.daemon.asked == [], "all are there")
    c.end_lease()
    a.turn(3)
    check(a.daemon.asked == [("G1", "127.0.0.1:0/2"), ("F2", "127.0.0.1:0/2")], f"once for each group: it answers: {a.daemon.asked}")
    # it may have become silent since: before a lock changes it is asked again
    a.daemon.silent = {"127.0.0.1:0/2"}
    store.keys[f"{PREFIX}moves/1"] = ("b", 1, 0, 1)
    a.daemon.calls.clear()
    a.turn()
    calls = [method for method, _ in a.daemon.calls]
    check(calls.index("bdev_rbd_fence_silent") < calls.index("nvmf_subsystem_listener_set_ana_state") < calls.index("bdev_disown"), calls)
    check(a.agent.clients.gone == {}, "it is blocklisted")
    # the other one asks by itself
    b.turn()
    check(("F1", "127.0.0.1:0/2") in b.daemon.asked or ("G1", "127.0.0.1:0/2") in b.daemon.asked, b.daemon.asked)


def test_all_that_may_be_waited_for_are_asked_when_a_group_is_taken():
    _, a, b, c = three_in_ceph()
    b.end_lease()
    c.end_lease()
    a.daemon.locked = {"F2": "127.0.0.1:0/1"}
    a.daemon.silent = {"127.0.0.1:0/1", "127.0.0.1:0/2"}
    a.turn()
    a.check_serves({1, 2})
    check(a.daemon.asked == [("F2", "127.0.0.1:0/1,127.0.0.1:0/2")] and a.agent.clients.gone.keys() == {"127.0.0.1:0/1"}, a.daemon.asked)
    a.turn(2)
    check(a.daemon.asked[1:] == [("G1", "127.0.0.1:0/1")] and a.agent.clients.gone == {}, a.daemon.asked)


def test_what_the_old_owner_was_before_is_asked_when_its_group_is_taken():
    """It has no lock, so that nobody fences it for that."""
    _, a, b, c = three_in_ceph()
    b.daemon.ceph_client = "127.0.0.1:0/11"
    b.turn(2)
    a.turn(3)
    a.daemon.asked.clear()
    b.end_lease()
    c.end_lease()
    a.daemon.locked, a.daemon.silent = {"F2": "127.0.0.1:0/11"}, {"127.0.0.1:0/1", "127.0.0.1:0/11"}
    a.turn()
    a.check_serves({1, 2})
    check(a.daemon.asked == [("F2", "127.0.0.1:0/1,127.0.0.1:0/11,127.0.0.1:0/2")] and "127.0.0.1:0/1" not in a.agent.clients.gone, a.daemon.asked)


def test_a_gateway_that_is_back_is_not_asked():
    """It may be slow to answer."""
    _, a, _, c = three_in_ceph()
    c.end_lease()
    ask, read_bdev = a.daemon.bdev_rbd_fence_silent, a.daemon.bdev_get_bdevs

    def come_back(name, clients, until_us):
        found = ask(name, clients, until_us)
        c.agent.lease.keep()
        c.turn()
        return found
    a.daemon.bdev_rbd_fence_silent = come_back
    a.turn(4)
    check(a.daemon.asked == [("G1", "127.0.0.1:0/2")], a.daemon.asked)
    # between two bdevs of a group, by two connections
    a.daemon.bdev_get_bdevs = lambda name: [{**read_bdev(name)[0], "driver_specific": {"rbd": {"client": f"127.0.0.1:0/{name}", "lost": False}}}]
    a.turn(2)
    c.end_lease()
    a.daemon.asked.clear()
    a.turn(4)
    check([clients for name, clients in a.daemon.asked if "0/2" in clients] == ["127.0.0.1:0/0,127.0.0.1:0/2"], a.daemon.asked)


def test_clients_are_not_asked_without_the_keys():
    """What is known of other gateways is old then."""
    store, a, b, c = three_in_ceph()
    c.end_lease()
    b.end_lease()
    a.agent.watch.active = True
    a.agent.watch.note_change()

    def fail(_):
        raise etcd.EtcdError("of the test")
    entries, change = store.entries, store.change

    def change_and_fail(*args, **kwargs):
        store.entries = fail
        return change(*args, **kwargs)
    store.change = change_and_fail
    a.turn()
    check(a.daemon.asked == [], a.daemon.asked)
    a.check_serves({1, 2})
    store.entries, store.change = entries, change
    a.turn(3)
    check(a.daemon.asked != [], "later")


def test_clients_that_cannot_be_asked_are_asked_once_for_each_group():
    _, a, b, c = three_in_ceph()
    for name in ("G1", "F2"):
        a.daemon.errors["bdev_rbd_fence_silent", name] = daemon.DaemonError("timed out")

    def calls():
        found = [name for method, name in a.daemon.calls if method == "bdev_rbd_fence_silent"]
        a.daemon.calls.clear()
        return found
    c.end_lease()
    a.turn()
    check(calls() == ["G1"], "one")
    check(a.turn() and calls() == ["F2"], "the next, at once")
    check(not a.turn() and calls() == [], "no more")
    # a group that has no owner, or that waits here, comes first
    c.agent.lease.keep()
    c.turn(2)
    a.turn()
    c.end_lease()
    a.agent.waits = {2: "of the test"}
    a.agent.waits_at = {2: time.monotonic()}
    a.turn()
    check(calls() == [], "a group waits here")
    a.agent.waits.clear()
    b.end_lease()
    able_to = a.daemon.groups.pop("F2"), a.agent.groups.pop(2)
    a.turn()
    check(calls() == ["G1"], f"{able_to}: not one of this gateway's")
    a.agent.stop.set()
    a.agent.clients.asked.clear()
    a.turn(2)
    check(calls() == [], "the program ends")


def test_a_group_without_an_owner_is_waited_for_before_clients_are_asked():
    store, a, b, c = three_in_ceph()
    c.turn()
    b.end_lease()
    store.keys[f"{PREFIX}moves/2"] = ("c", 1, 0, 1)
    a.turn(2)
    check(a.agent.clients.gone and a.daemon.asked == [], "c has not taken it yet")
    c.turn()
    c.check_serves({2})
    a.turn(2)
    check([name for name, _ in a.daemon.asked] == ["G1", "F2"], a.daemon.asked)


def test_of_a_gateway_with_too_many_clients_none_is_taken_for_gone():
    store, a, _, c = three_in_ceph()

    def tell(clients):
        key = f"{PREFIX}gateways/c"
        value, *rest = store.keys[key]
        store.keys[key] = (json.dumps({**json.loads(value), "clients": sorted(clients)}), *rest)
        a.turn()
    many = [f"127.0.0.1:0/2{i:02}" for i in range(64)]
    tell(many)
    a.agent.clients.gone.clear()
    tell(many + ["127.0.0.1:0/1000"])
    check(a.agent.clients.gone == {}, a.agent.clients.gone)
    tell(many + ["127.0.0.1:0/1000", "127.0.0.1:0/1001"])
    check(a.agent.clients.gone == {}, a.agent.clients.gone)
    tell(many[1:])
    check(a.agent.clients.gone.keys() == {many[0]}, a.agent.clients.gone)
    c.end_lease()
    a.turn()
    check(a.agent.clients.gone.keys() == set(many), "with the gateway itself")


def test_a_client_that_is_back_or_long_gone_is_not_asked():
    store, a, b, c = three_in_ceph()
    a.daemon.errors["bdev_rbd_fence_silent", "G1"] = daemon.DaemonError("Method not found")
    c.end_lease()
    a.turn(2)
    check(a.agent.clients.gone and a.daemon.asked == [("F2", "127.0.0.1:0/2")], "an error keeps nothing else from it")
    check(a.agent.not_fenced is None, "and it was said")
    c.agent.lease.keep()
    c.turn()
    a.turn()
    check(a.agent.clients.gone == {}, a.agent.clients.gone)
    c.end_lease()
    a.turn()
    check(a.agent.clients.gone.keys() == {"127.0.0.1:0/2"}, a.agent.clients.gone)
    with ahead(a, 61 / TTL_S, steps=1):
        check(a.agent.clients.gone == {}, "Ceph has given it up")


def test_what_a_gateway_was_itself_is_asked_when_it_has_begun_anew():
    store, a = alone()
    a.daemon.ceph_client = "[v2:127.0.0.1:0/7,v1:127.0.0.1:0/8]"
    a.turn(2)
    # its daemon alone
    a.daemon.ceph_client, a.daemon.silent = "127.0.0.1:0/9", {"127.0.0.1:0/7"}
    a.daemon.bdev_rbd_fence_silent = lambda name, clients, until_us: a.daemon.asked.append(clients) or ["127.0.0.1:0/8"]
    a.turn()
    check(a.daemon.asked == ["[v2:127.0.0.1:0/7,v1:127.0.0.1:0/8]"] and a.agent.clients.gone == {}, a.daemon.asked)
    # both programs: not before the lease of the earlier ones has ended
    a.turn()
    again = Gateway("a", 0, store, FakeDaemon(1))
    again.daemon.ceph_client, again.daemon.silent, again.daemon.locked = "127.0.0.1:0/10", {"127.0.0.1:0/9"}, dict.fromkeys(("F2", "G1"), "127.0.0.1:0/9")
    again.turn(2)
    check(again.daemon.asked == [], again.daemon.asked)
    store.revoke(a.agent.lease.id)
    again.turn(3)
    again.check_serves({1, 2})
    check([clients for _, clients in again.daemon.asked] == ["127.0.0.1:0/9"] * 2 and again.daemon.silent, "who has the locks is fenced for that")


def test_what_is_no_client_is_left_out():
    for value, expected in ((None, set()), ({}, set()), ("127.0.0.1:0/1", set()), (["127.0.0.1:0/1", 5, None, [], "", " ", "a\n", "\u00e4", "x" * 513], {"127.0.0.1:0/1"}),
                            ([f"{i}" for i in range(100)], {f"{i}" for i in range(64)})):
        check(state.clients({"clients": value}) == expected, value)
    check(state.clients({}) == set(), "an earlier version")


def test_reservations_that_hosts_may_use_are_told():
    _, a = alone()
    check(a.daemon.offers_reservations() == ["TCP"], "of the listener")
    a.daemon.nvmf_get_transports = lambda: [{"trtype": "TCP", "masked_oncs": ["nvmcpys", "reservs"]}, {"trtype": "RDMA"}]
    check(a.daemon.offers_reservations() == [] and a.daemon.reserved() == set(), "hidden")
    found = a.daemon.nvmf_get_subsystems()
    found[0]["namespaces"][1]["reservation"] = {}
    a.daemon.nvmf_get_subsystems = lambda: found
    check(a.daemon.reserved() == {2}, "a group")


def test_a_lease_that_cannot_be_kept_ends_the_program():
    _, a = alone()

    def fail(_):
        raise KeyError("unexpected")
    a.agent.lease.etcd.keep_alive = fail
    a.agent.lease.run()         # returns
    try:
        a.turn()
    except agent.Fatal as e:
        check("KeyError" in str(e), e)
    else:
        check(False, "it goes on")


SIGNALLED = """
import os, signal, sys, threading, types
from varve_cluster import main

class Wake:
    def __init__(self):
        self.lock = threading.Lock()

    def set(self):
        with self.lock:
            print("woken", flush=True)

class Agent:
    def __init__(self, _):
        self.watch = types.SimpleNamespace(wake=Wake())

    def run(self, stop):
        with self.watch.wake.lock:      # as Event.wait() and clear() do
            os.kill(os.getpid(), int(sys.argv[1]))
            for _ in range(100000):
                pass
        stop.wait()
        print("ended", flush=True)

main.Agent = Agent
main.serve({}, None)
"""


def test_a_signal_waits_for_no_lock_that_its_thread_holds():
    for number in (signal.SIGTERM, signal.SIGINT):
        p = subprocess.run([sys.executable, "-B", "-c", SIGNALLED, str(int(number))], cwd=TOP / "tools" / "cluster", capture_output=True, text=True, timeout=DEADLINE,
                           check=False)
        check(p.returncode == 0 and "ended" in p.stdout, p.stdout + p.stderr)


if __name__ == "__main__":
    main(sys.modules[__name__])
