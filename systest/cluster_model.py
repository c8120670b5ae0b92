#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# beside
"""The protocol of several gateways (doc/ceph.md) as a model: every interleaving of two gateways, a group, etcd and Ceph's blocklist, with crashes,
pauses, partitions, restarts of etcd and slow clocks. No two gateways may write, nor serve, and no group may be without an owner for longer than two
leases while a gateway is reachable. Each of the protocol's rules is left out once, and what that breaks must be found."""
import collections
import os
import sys

from appliance_lib import check, main

TTL = 4             # ticks of a lease, as etcd counts
MARGIN = 2          # a gateway's lease ends so much earlier by its own clock: 1 for a slow clock, 1 to end what it does
LEASE = TTL - MARGIN
ORPHAN = 2 * TTL    # ticks that a group may have no owner
FAULTS = int(os.environ.get("VARVE_MODEL_FAULTS", "2"))     # 3 need minutes
NONE = -1

RUN, PAUSED, WAKING, CRASHED = "run", "paused", "waking", "crashed"
IDLE, SEEN, CLAIMED, ACTIVE, LEAVING = "idle", "seen", "claimed", "active", "leaving"
AS_IDLE = {"phase": IDLE, "stale": False, "patience": 0}

# A gateway. up: its process; link: it reaches etcd; left: ticks of its lease by its own clock; sent: (kind, age) of a message on its way, kind one of
# grant, keep (requests), granted (an answer), or None; phase: of the group; stale: the group's token has
# changed since; io: a write is on its way to Ceph; old_io: one of a client that this gateway was before; blocked: Ceph has blocklisted its client;
# orphan: ticks for which it was reachable and the group had no owner; patience: ticks that a move may still take.
Gateway = collections.namedtuple("Gateway", "up link left sent phase stale io old_io blocked orphan patience")
# lease: ticks of each gateway's, as etcd counts; owner: of the group, with the present token; lock: whose client has the
# lock of what is stored; surprised: a gateway was fenced that still served, by one
# that knew the present token.
State = collections.namedtuple("State", "gateways lease owner lock etcd faults slow surprised")

START = State((Gateway(RUN, True, 0, None, IDLE, False, False, False, False, 0, 0),) * 2, (0, 0), NONE, NONE, True, FAULTS, 1, False)
RULES = ("blocklist", "token", "request", "expire", "takeover", "old_client", "move")


def with_gateway(s, g, **changes):
    gateways = list(s.gateways)
    gateways[g] = gateways[g]._replace(**changes)
    return s._replace(gateways=tuple(gateways))


def with_lease(s, g, ticks):
    lease = list(s.lease)
    lease[g] = ticks
    return s._replace(lease=tuple(lease))


def is_healthy(s, g):
    return s.gateways[g].up == RUN and s.gateways[g].link and s.etcd


def is_serving(gw):
    return gw.phase == ACTIVE and gw.up == RUN and not gw.blocked


class Model:
    """rules: those that hold; a mutation leaves one out."""

    def __init__(self, rules=RULES):
        self.rules = frozenset(rules)

    # --- What a gateway must do at once: it happens before the next tick ---

    def steps(self, s, g):
        gw = s.gateways[g]
        if gw.up == WAKING:     # it was paused: what it finds first is that its lease has ended, or has not
            yield with_gateway(s, g, up=RUN, **self.after_lease(gw))
            return
        if gw.up != RUN:
            return
        if gw.phase != IDLE and (gw.blocked or (gw.left == 0 and "expire" in self.rules)):
            yield with_gateway(s, g, **AS_IDLE)
            return
        if gw.phase == IDLE and gw.blocked:     # it is started again, and is a new client of Ceph
            yield with_gateway(s, g, blocked=False, io=False)
            return
        if gw.phase == IDLE and s.lock == g and not gw.io and not gw.old_io and gw.left == 0:    # its I/O has ended
            yield s._replace(lock=NONE)
            return
        if not (gw.link and s.etcd):
            return
        yield from self.lease_steps(s, g, gw)
        yield from self.group_steps(s, g, gw)

    def after_lease(self, gw):
        return AS_IDLE if gw.left == 0 and "expire" in self.rules else {}

    def lease_steps(self, s, g, gw):
        if gw.sent is None and gw.left < LEASE and (gw.left != 0 or gw.phase == IDLE):
            yield with_gateway(s, g, sent=("keep" if gw.left != 0 else "grant", 0))
        elif gw.sent is not None and gw.sent[0] == "grant":
            yield with_gateway(with_lease(s, g, TTL), g, sent=("granted", gw.sent[1]))
        elif gw.sent is not None and gw.sent[0] == "keep":
            if s.lease[g] == 0:
                yield with_gateway(s, g, sent=None, left=0)
            else:
                yield with_gateway(with_lease(s, g, TTL), g, sent=("granted", gw.sent[1]))
        elif gw.sent is not None:
            age = gw.sent[1] if "request" in self.rules else 0
            yield with_gateway(s, g, sent=None, left=max(gw.left, LEASE - age))

    def group_steps(self, s, g, gw):
        if gw.phase == IDLE and gw.left > 0 and s.owner == g:
            yield with_gateway(s, g, phase=CLAIMED)
        elif gw.phase == IDLE and gw.left > 0 and (s.owner == NONE or s.lease[s.owner] == 0) and "takeover" in self.rules:
            yield with_gateway(s, g, phase=SEEN, stale=False)
        elif gw.phase == SEEN and "token" in self.rules and (gw.stale or (s.owner != NONE and s.lease[s.owner] > 0)):
            yield with_gateway(s, g, **AS_IDLE)
        elif gw.phase == SEEN:
            s = with_gateway(s._replace(owner=g), g, **{**AS_IDLE, "phase": CLAIMED})
            yield with_gateway(s, 1 - g, stale=True) if s.gateways[1 - g].phase == SEEN else s
        elif gw.phase == CLAIMED:
            yield self.fence(s, g)
        elif gw.phase == LEAVING and not gw.io:
            yield with_gateway(s._replace(owner=NONE, lock=NONE), g, **AS_IDLE)
        elif gw.phase == LEAVING and gw.patience == 0 and "move" in self.rules:     # I/O that does not end: the move is taken back
            yield with_gateway(s, g, phase=ACTIVE)

    def fence(self, s, g):
        """Whoever has the lock is blocklisted, and then the lock is this gateway's."""
        if s.lock == 1 - g and is_serving(s.gateways[s.lock]) and s.owner == g:
            s = s._replace(surprised=True)
        if s.lock == 1 - g and "blocklist" in self.rules:
            s = with_gateway(s, s.lock, blocked=True, io=False, old_io=False)
        if s.lock == g and "old_client" in self.rules:
            s = with_gateway(s, g, old_io=False)
        return with_gateway(s._replace(lock=g), g, phase=ACTIVE)

    # --- What may happen at any time ---

    def events(self, s):
        for g, gw in enumerate(s.gateways):
            if gw.up in (RUN, WAKING) and gw.phase == ACTIVE and not gw.io and not gw.blocked:
                yield with_gateway(s, g, io=True)
            if gw.io and not gw.blocked:
                yield with_gateway(s, g, io=False)
            if gw.old_io:
                yield with_gateway(s, g, old_io=False)
            if gw.up == PAUSED:
                yield with_gateway(s, g, up=WAKING)
            if gw.up == CRASHED:
                yield with_gateway(s, g, up=RUN)
            if not gw.link:
                yield with_gateway(s, g, link=True)
            if s.faults > 0:
                yield from self.faults(s._replace(faults=s.faults - 1), g, gw)
        if not s.etcd:      # all members have restarted: each lease that had not ended begins again
            yield s._replace(etcd=True, lease=tuple(TTL if x else 0 for x in s.lease))
        elif s.faults > 0:
            yield s._replace(etcd=False, faults=s.faults - 1, gateways=tuple(x._replace(sent=None) for x in s.gateways))

    def faults(self, s, g, gw):
        if gw.up == RUN:
            yield with_gateway(s, g, up=PAUSED)
        if gw.up != CRASHED:
            yield with_gateway(s, g, up=CRASHED, left=0, sent=None, **AS_IDLE, io=False,
                               old_io=gw.old_io or (gw.io and not gw.blocked), blocked=False)
        if gw.link:
            yield with_gateway(s, g, link=False, sent=None if gw.sent and gw.sent[0] != "granted" else gw.sent)
        if gw.phase == ACTIVE and gw.up == RUN:     # the operator moves the group
            yield with_gateway(s, g, phase=LEAVING, patience=LEASE)

    def ticks(self, s):
        """Time passes, unless a healthy gateway has something to do: it needs no longer than a tick for each."""
        for g, gw in enumerate(s.gateways):
            if gw.up == RUN and any(True for _ in self.steps(s, g)) and (is_healthy(s, g) or gw.left == 0):
                return
        yield self.tick(s, NONE)
        if s.slow > 0:
            for g in range(2):
                yield self.tick(s._replace(slow=s.slow - 1), g)

    def tick(self, s, slow):
        served = any(is_serving(x) for x in s.gateways)
        new = []
        for g, gw in enumerate(s.gateways):
            passed = 0 if g == slow else 1
            sent = gw.sent and (gw.sent[0], min(gw.sent[1] + passed, LEASE))
            new.append(gw._replace(left=max(0, gw.left - passed), sent=sent, patience=max(0, gw.patience - passed),
                                   orphan=gw.orphan + 1 if is_healthy(s, g) and not served else 0))
        lease = tuple(max(0, x - 1) for x in s.lease) if s.etcd else s.lease
        return s._replace(gateways=tuple(new), lease=lease)

    def next(self, s):
        for g in range(2):
            yield from self.steps(s, g)
        yield from self.events(s)
        yield from self.ticks(s)

    # --- What must never be ---

    @staticmethod
    def wrong(s):
        for g, gw in enumerate(s.gateways):
            other = s.gateways[1 - g]
            if other.phase == ACTIVE and not other.blocked and (gw.old_io or (gw.io and not gw.blocked)):
                return "two writers"
            if gw.phase == ACTIVE and gw.old_io:
                return "a write of a client that the owner was before"
            if gw.orphan > ORPHAN:
                return "no owner"
        if sum(is_serving(x) for x in s.gateways) > 1:
            return "two gateways serve"
        return "a gateway is fenced that serves" if s.surprised else None

    def explore(self, faults=FAULTS):
        """What is wrong and how it came to it, or None; and how many states there are."""
        start = START._replace(faults=faults)
        before = {start: None}
        todo = collections.deque([start])
        while todo:
            s = todo.popleft()
            why = self.wrong(s)
            if why:
                way = [s]
                while before[way[-1]] is not None:
                    way.append(before[way[-1]])
                return why, way[::-1], len(before)
            for n in self.next(s):
                if n not in before:
                    before[n] = s
                    todo.append(n)
        return None, [], len(before)


def test_the_protocol_holds():
    why, way, states = Model().explore()
    check(why is None, f"{why}:\n" + "\n".join(map(str, way[-12:])))
    check(states > 10000, f"only {states} states")
    print(f"# {states} states", flush=True)


def found(rule, expected):
    model = Model(r for r in RULES if r != rule)
    why, way, states = model.explore(faults=1)
    if why is None:
        why, way, states = model.explore()
    check(why in expected, f"without the rule {rule}: {why} in {states} states")
    print(f"# without {rule}: {why}, after {len(way) - 1} steps, {states} states", flush=True)


def test_a_blocklist_that_is_left_out_is_found():
    found("blocklist", ["two writers"])


def test_a_token_that_is_not_checked_is_found():
    found("token", ["two writers", "two gateways serve", "a gateway is fenced that serves"])


def test_a_lease_that_is_counted_from_the_answer_is_found():
    found("request", ["a gateway is fenced that serves"])


def test_a_gateway_that_serves_beyond_its_lease_is_found():
    found("expire", ["a gateway is fenced that serves"])


def test_a_takeover_that_is_left_out_is_found():
    found("takeover", ["no owner"])


def test_a_move_that_waits_for_ever_is_found():
    found("move", ["no owner"])


def test_an_old_client_that_is_not_fenced_is_found():
    found("old_client", ["a write of a client that the owner was before", "two writers"])


if __name__ == "__main__":
    main(sys.modules[__name__])
