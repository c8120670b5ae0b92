#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# beside
"""The protocol of several gateways (doc/ceph.md) as a model: every interleaving of two gateways, a group, etcd and Ceph's blocklist, with crashes,
pauses, partitions, restarts of etcd and slow clocks. A gateway acts on what it has read of etcd's keys before: they may have changed since, its watch may say
so late or, when its revision was compacted or its member is cut off, not at all. Its requests may be carried out late, also when it has given them up. No two gateways may
write, nor serve, none may serve what another one owns, and no group may be without an owner for longer than two leases while a gateway is reachable. Each of
the protocol's rules is left out once, and what that breaks must be found."""
import collections
import os
import sys

from appliance_lib import check, main

TTL = 4             # ticks of a lease, as etcd counts
MARGIN = 2          # a gateway's lease ends so much earlier by its own clock: 1 for a slow clock, 1 to end what it does
LEASE = TTL - MARGIN
ORPHAN = 2 * TTL    # ticks that a group may have no owner
SILENCE = 1         # ticks after which keys are read again although the watch says nothing: the end of each of the two leases is noticed so much later
WATCH = 3 * TTL     # ticks for which Ceph waits for a client that does not answer; if leases are short, no lock can be taken meanwhile
FAULTS = int(os.environ.get("VARVE_MODEL_FAULTS", "2"))     # 3 need minutes
NONE = -1

RUN, PAUSED, WAKING, CRASHED = "run", "paused", "waking", "crashed"
IDLE, ASKING, CLAIMED, ACTIVE, LEAVING, GIVING = "idle", "asking", "claimed", "active", "leaving", "giving"
# What a gateway has read of the group: nothing that it may use; nobody owns it; its owner has no lease; its owner has one; itself, by a claim under
# its present lease whose answer it has had and that is the last, or by another.
UNKNOWN, NOBODYS, GONE, OTHERS, MINE, OWN = "unknown", "nobody's", "gone", "other's", "mine", "own"
DONE, REFUSED = "done", "refused"       # answers

# A gateway. up: its process; link: it reaches etcd; left: ticks of its lease by its own clock; sent: (kind, age) of a message on its way, kind one of
# grant, keep (requests), granted, kept (answers), or None; phase: of the group; view: what was read of it; changed: the group's key has
# changed since; old: the view has not been what is in etcd for a tick; request: a change of the key on its way, as (owner, changed since it was read, whether the
# other gateway must be absent), or its answer; late: one that was given up and may still be carried out; mine: the last change of the key is a claim of this
# gateway, which knows it; io: a write is on its way to Ceph; old_io: one of a client that this gateway was before; blocked: Ceph has blocklisted its client;
# orphan: ticks for which it was reachable and the group had no owner; doubt: ticks for which the other gateway may serve although it has no lease, for all
# that this one knows; patience: ticks that a move may still take, or that Ceph still waits for the other
# gateway's client.
Gateway = collections.namedtuple("Gateway", "up link left sent phase view changed old request late mine io old_io blocked orphan patience doubt")
# lease: ticks of each gateway's, as etcd counts; owner: of the group, with the present token; lock: whose client has the
# lock of what is stored; surprised: None, or what kind of gateway was fenced that should not have been.
State = collections.namedtuple("State", "gateways lease owner lock etcd faults slow surprised")

START = State((Gateway(RUN, True, 0, None, IDLE, UNKNOWN, False, False, None, None, False, False, False, False, 0, 0, 0),) * 2, (0, 0), NONE, NONE, True, FAULTS, 1, None)
RULES = ("blocklist", "revision", "absent", "request", "expire", "takeover", "old_client", "move", "reread", "present", "reclaim", "watch", "silent", "confirm", "early", "anew")


def with_gateway(s, g, **changes):
    new = s.gateways[g]._replace(**changes)
    return State((s.gateways[0], new) if g else (new, s.gateways[1]), *s[1:])


def with_lease(s, g, ticks):
    lease = list(s.lease)
    lease[g] = ticks
    return s._replace(lease=tuple(lease))


def is_healthy(s, g):
    return s.gateways[g].up == RUN and s.gateways[g].link and s.etcd


def is_serving(gw):
    return gw.phase == ACTIVE and gw.up == RUN and not gw.blocked


def is_silent(gw):
    """Its client watches what is stored, and does not answer."""
    return gw.up in (PAUSED, CRASHED) and not gw.blocked


def view_of(s, g):
    """What a gateway reads now."""
    if s.owner == g:
        return MINE if s.gateways[g].mine else OWN
    return NOBODYS if s.owner == NONE else OTHERS if s.lease[s.owner] > 0 else GONE


def is_outdated(s, g):
    gw = s.gateways[g]
    return gw.view != view_of(s, g) or gw.changed


def read(s, g):
    return with_gateway(s, g, view=view_of(s, g), changed=False, old=False)


def idle(gw):
    """A gateway that has no part in the group; a request that is on its way is carried out later, or not."""
    flies = isinstance(gw.request, tuple)
    return {"phase": IDLE, "patience": 0, "request": None, "late": gw.request if flies else gw.late}


def forget_requests(gw):
    """etcd has restarted: they are lost."""
    return gw._replace(**{**(idle(gw) if isinstance(gw.request, tuple) else {}), "sent": None, "late": None})


def change_key(s, g, to, is_known):
    """The group's key has another owner, by a request of gateway g: other requests, and what was read before, are of the key as it was."""
    def touched(request):
        return (request[0], True, request[2]) if isinstance(request, tuple) else request
    gateways = tuple(x._replace(changed=x.view in (NOBODYS, GONE, OWN), request=touched(x.request), late=touched(x.late), mine=i == g == to and is_known)
                     for i, x in enumerate(s.gateways))
    return s._replace(owner=to, gateways=gateways)


def swapped(s):
    """The same with the gateways in each other's place."""
    def turn(request):
        return (1 - request[0], *request[1:]) if isinstance(request, tuple) else request

    def turned(gw):
        if gw.late is None and not isinstance(gw.request, tuple):
            return gw
        return gw._replace(request=turn(gw.request), late=turn(gw.late))
    return State((turned(s.gateways[1]), turned(s.gateways[0])), s.lease[::-1], s.owner if s.owner == NONE else 1 - s.owner,
                 s.lock if s.lock == NONE else 1 - s.lock, *s[4:])


class Model:
    """rules: those that hold; a mutation leaves one out. silent: the watch may say nothing."""

    def __init__(self, rules=RULES, silent=True):
        self.rules = frozenset(rules)
        self.silent = silent

    # --- What a gateway must do at once: it happens before the next tick ---

    def steps(self, s, g):
        gw = s.gateways[g]
        if gw.up == WAKING:     # it was paused: what it finds first is that its lease has ended, or has not
            yield with_gateway(s, g, up=RUN, **self.after_lease(gw))
            return
        if gw.up != RUN:
            return
        if gw.phase != IDLE and (gw.blocked or (gw.left == 0 and "expire" in self.rules)):
            yield with_gateway(s, g, **idle(gw))
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
        return idle(gw) if gw.left == 0 and "expire" in self.rules else {}

    def lease_steps(self, s, g, gw):
        if gw.sent is None and gw.left < LEASE and (gw.left != 0 or gw.phase == IDLE):
            yield with_gateway(s, g, sent=("keep" if gw.left != 0 else "grant", 0))
        elif gw.sent is not None and gw.sent[0] == "grant":
            yield with_gateway(with_lease(s, g, TTL), g, sent=("granted", gw.sent[1]))
        elif gw.sent is not None and gw.sent[0] == "keep":
            if s.lease[g] == 0:
                yield with_gateway(s, g, sent=None, left=0)
            else:
                yield with_gateway(with_lease(s, g, TTL), g, sent=("kept", gw.sent[1]))
        elif gw.sent is not None:
            age = gw.sent[1] if "request" in self.rules else 0
            new = {"view": UNKNOWN, "changed": False, "old": False} if gw.sent[0] == "granted" and "present" in self.rules else {}
            anew = {"mine": False} if gw.sent[0] == "granted" and "anew" in self.rules else {}
            yield with_gateway(s, g, sent=None, left=max(gw.left, LEASE - age), **new, **anew)

    def group_steps(self, s, g, gw):
        told = gw.old and "reread" in self.rules if self.silent else is_outdated(s, g)
        if gw.phase in (IDLE, ACTIVE) and gw.left > 0 and (gw.view == UNKNOWN or told):
            yield read(s, g)
        if gw.request is not None:
            yield self.carry_out(s, g, gw.request) if isinstance(gw.request, tuple) else self.take_answer(s, g, gw)
        elif gw.phase == IDLE and gw.left > 0:
            yield from self.claim(s, g, gw)
        elif gw.phase == CLAIMED:
            yield from self.lock(s, g, gw)
        elif gw.phase == ACTIVE and gw.view in (NOBODYS, GONE, OTHERS):
            yield with_gateway(s, g, **idle(gw))
        elif gw.phase == LEAVING and not gw.io:
            yield with_gateway(s._replace(lock=NONE), g, phase=GIVING, patience=0, request=(1 - g, not gw.mine, False), view=UNKNOWN, changed=False, old=False, mine=False)
        elif gw.phase == LEAVING and gw.patience == 0 and "move" in self.rules:     # I/O that does not end: the move is taken back
            yield with_gateway(s, g, phase=ACTIVE)

    def claim(self, s, g, gw):
        """By what was read, however long ago."""
        if gw.view == MINE or (gw.view == OWN and "reclaim" not in self.rules):
            yield with_gateway(s, g, phase=CLAIMED, patience=WATCH)
        elif gw.view == OWN or (gw.view in (NOBODYS, GONE) and "takeover" in self.rules and not (gw.view == GONE and gw.doubt > 0)):
            yield with_gateway(s, g, phase=ASKING, request=(g, gw.changed, gw.view == GONE), view=UNKNOWN, changed=False, old=False, mine=False)

    def is_allowed(self, s, g, request):
        _, changed, absent = request
        return not (changed and "revision" in self.rules) and not (absent and s.lease[1 - g] > 0 and "absent" in self.rules)

    def carry_out(self, s, g, request):
        if not self.is_allowed(s, g, request):
            return with_gateway(s, g, request=REFUSED)
        return with_gateway(change_key(s, g, request[0], True), g, request=DONE)

    @staticmethod
    def take_answer(s, g, gw):
        claimed = gw.request == DONE and gw.phase == ASKING
        return with_gateway(s, g, request=None, **({"phase": CLAIMED, "patience": WATCH} if claimed else {"phase": IDLE}))

    def lock(self, s, g, gw):
        """Whoever has the lock is fenced. So is a gateway that has gone, owned nothing, and does not answer: Ceph would wait for it."""
        silent = is_silent(s.gateways[1 - g])
        gone = s.lease[1 - g] == 0 and (silent or "silent" not in self.rules) and "watch" in self.rules
        if s.lock == 1 - g:
            yield self.fence(s, g, "blocklist" in self.rules)
        elif gone:
            answers = s.gateways[1 - g].up == RUN and not s.gateways[1 - g].blocked
            yield self.fence(s._replace(surprised=s.surprised or ("answers" if answers else None)), g, True)
        elif not silent or gw.patience == 0:
            yield self.fence(s, g, False)

    def fence(self, s, g, other):
        """other: the other gateway is blocklisted first. Then the lock is this one's."""
        if s.lock == 1 - g and is_serving(s.gateways[s.lock]) and s.owner == g:
            s = s._replace(surprised="serves")
        if other:
            s = with_gateway(s, 1 - g, blocked=True, io=False, old_io=False)
        if s.lock == g and "old_client" in self.rules:
            s = with_gateway(s, g, old_io=False)
        return with_gateway(s._replace(lock=g), g, phase=ACTIVE, patience=0)

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
            if gw.up == RUN and gw.link and s.etcd and gw.view != UNKNOWN and is_outdated(s, g):     # the watch has said so
                yield read(s, g)
            if s.etcd and isinstance(gw.request, tuple):
                yield self.carry_out(s, g, gw.request)
            if gw.late is not None:
                yield from self.come_late(s, g, gw)
            if s.faults > 0:
                yield from self.faults(s._replace(faults=s.faults - 1), g, gw)
        if not s.etcd:      # all members have restarted: each lease that had not ended begins again
            yield s._replace(etcd=True, lease=tuple(TTL if x else 0 for x in s.lease))
        elif s.faults > 0:
            yield s._replace(etcd=False, faults=s.faults - 1, gateways=tuple(forget_requests(x) for x in s.gateways))

    def come_late(self, s, g, gw):
        """A request that was given up, or never comes."""
        gone = with_gateway(s, g, late=None)
        yield gone
        if s.etcd and self.is_allowed(s, g, gw.late):
            yield change_key(gone, g, gw.late[0], False)

    def faults(self, s, g, gw):
        if gw.up == RUN:
            yield with_gateway(s, g, up=PAUSED)
        if gw.up != CRASHED:
            yield with_gateway(s, g, up=CRASHED, left=0, sent=None, **idle(gw), view=UNKNOWN, changed=False, old=False, mine=False, io=False,
                               old_io=gw.old_io or (gw.io and not gw.blocked), blocked=False)
        if gw.link:     # requests to etcd end, and their answers are lost
            ended = {**idle(gw), "mine": gw.mine and gw.request is None} if gw.phase in (ASKING, GIVING) else {}
            yield with_gateway(s, g, link=False, sent=None if gw.sent and gw.sent[0] not in ("granted", "kept") else gw.sent, **ended)
        if s.owner == g and s.lease[g] > 0 and gw.left > 0:     # such a leader has the lease ended that it has not seen prolonged
            yield self.end_early(s, g)
        if gw.sent and gw.sent[0] == "keep" and gw.link and s.etcd and "confirm" not in self.rules:     # answered by who was etcd's leader before, and does not know
            yield with_gateway(s, g, sent=("kept", gw.sent[1]))
        if gw.phase == ACTIVE and gw.up == RUN:     # the operator moves the group
            yield with_gateway(s, g, phase=LEAVING, patience=LEASE)

    def end_early(self, s, g):
        """The other gateway sees that it was too early."""
        return with_gateway(with_lease(s, g, 0), 1 - g, doubt=TTL if "early" in self.rules else 0)

    def doubt_after_tick(self, s, g, passed):
        """A gateway that cannot ask how long the other's lease lasts knows nothing later."""
        if "early" not in self.rules:
            return 0
        return TTL if not is_healthy(s, g) else 0 if s.lease[1 - g] > 0 else max(0, s.gateways[g].doubt - passed)

    def ticks(self, s, busy):
        """Time passes, unless a healthy gateway has something to do: it needs no longer than a tick for each. busy: has it, of each gateway."""
        for g, gw in enumerate(s.gateways):
            if busy[g] and gw.up == RUN and (is_healthy(s, g) or gw.left == 0):
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
            new.append(gw._replace(left=max(0, gw.left - passed), sent=sent, patience=max(0, gw.patience - passed), doubt=self.doubt_after_tick(s, g, passed),
                                   old=gw.view != UNKNOWN and is_outdated(s, g),
                                   orphan=gw.orphan + 1 if is_healthy(s, g) and not served else 0))
        lease = tuple(max(0, x - 1) for x in s.lease) if s.etcd else s.lease
        return s._replace(gateways=tuple(new), lease=lease)

    def simple(self, s):
        """One of the states that do not differ in what can come of them."""
        for g, gw in enumerate(s.gateways):
            changes = {}
            if gw.view != UNKNOWN and (gw.phase not in (IDLE, ACTIVE) or (gw.left == 0 and "present" in self.rules)):    # it is not used
                changes |= {"view": UNKNOWN, "changed": False, "old": False}
            if s.lease[1 - g] > 0:      # there is nothing to doubt
                changes |= {"doubt": 0}
            if gw.phase == CLAIMED and not is_silent(s.gateways[1 - g]):     # nobody is waited for
                changes |= {"patience": 0}
            if "revision" in self.rules:
                changes |= {"request": REFUSED} if isinstance(gw.request, tuple) and gw.request[1] else {}
                changes |= {"late": None} if gw.late and gw.late[1] else {}
            if changes:
                s = with_gateway(s, g, **changes)
        return swapped(s) if hash(s.gateways[0]) > hash(s.gateways[1]) else s

    def next(self, s):
        steps = [list(self.steps(s, g)) for g in range(2)]
        yield from steps[0]
        yield from steps[1]
        yield from self.events(s)
        yield from self.ticks(s, steps)

    # --- What must never be ---

    def wrong(self, s):
        for g, gw in enumerate(s.gateways):
            other = s.gateways[1 - g]
            if other.phase == ACTIVE and not other.blocked and (gw.old_io or (gw.io and not gw.blocked)):
                return "two writers"
            if is_serving(gw) and gw.left > 0 and s.owner != g:
                return "a gateway serves what it does not own"
            if gw.phase == ACTIVE and gw.old_io:
                return "a write of a client that the owner was before"
            if gw.orphan > ORPHAN + (2 * SILENCE if self.silent else 0):
                return "no owner"
        if sum(is_serving(x) for x in s.gateways) > 1:
            return "two gateways serve"
        return f"a gateway is fenced that {s.surprised}" if s.surprised else None

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
            for n in map(self.simple, self.next(s)):
                if n not in before:
                    before[n] = s
                    todo.append(n)
        return None, [], len(before)


def test_the_protocol_holds():
    for silent in (False, True):
        why, way, states = Model(silent=silent).explore()
        check(why is None, f"{why}:\n" + "\n".join(map(str, way[-12:])))
        check(states > 10000, f"only {states} states")
        print(f"# {states} states{', with a watch that may say nothing' if silent else ''}", flush=True)


def found(rule, expected):
    """rule: one, or several that are left out together."""
    model = Model(r for r in RULES if r not in rule.split())
    why, way, states = model.explore(faults=1)
    if why is None:
        why, way, states = model.explore()
    check(why in expected, f"without the rule {rule}: {why} in {states} states")
    print(f"# without {rule}: {why}, after {len(way) - 1} steps, {states} states", flush=True)


def test_a_blocklist_that_is_left_out_is_found():
    found("blocklist", ["two writers"])


STOLEN = ["two writers", "two gateways serve", "a gateway is fenced that serves", "a gateway serves what it does not own"]


def test_a_change_of_a_key_that_has_changed_since_it_was_read_is_found():
    found("revision", STOLEN)


def test_a_claim_to_a_group_whose_owner_has_come_back_is_found():
    """An owner that comes back claims its group anew, so that the rule which refuses such a claim only keeps the group where it is."""
    found("absent anew", STOLEN)


def test_keys_that_were_read_under_an_earlier_lease_are_found():
    found("present", STOLEN)


def test_a_hand_over_that_comes_late_is_found():
    found("reclaim", STOLEN)


def test_keys_that_are_read_only_when_the_watch_says_so_are_found():
    found("reread", ["no owner"])


def test_a_lease_that_is_counted_from_the_answer_is_found():
    found("request", STOLEN)


def test_a_lease_that_an_earlier_leader_of_etcd_prolongs_is_found():
    found("confirm", STOLEN)


def test_a_lease_that_etcd_ends_too_early_is_found():
    found("early", STOLEN)


def test_a_claim_of_an_earlier_lease_is_found():
    """Another gateway's claim, made while this one's name was not there, may come when it is not there again."""
    found("anew", STOLEN)


def test_a_gateway_that_serves_beyond_its_lease_is_found():
    found("expire", ["a gateway is fenced that serves"])


def test_a_takeover_that_is_left_out_is_found():
    found("takeover", ["no owner"])


def test_a_move_that_waits_for_ever_is_found():
    found("move", ["no owner"])


def test_an_old_client_that_is_not_fenced_is_found():
    found("old_client", ["a write of a client that the owner was before", "two writers"])


def test_a_silent_client_that_is_waited_for_is_found():
    found("watch", ["no owner"])


def test_a_gateway_that_answers_and_is_fenced_is_found():
    found("silent", ["a gateway is fenced that answers"])


if __name__ == "__main__":
    main(sys.modules[__name__])
