# SPDX-License-Identifier: BSD-3-Clause
"""Until when a gateway that has gone may serve. Pure.

One that dies, stops or is cut off prolongs its lease no more, and serves no more when etcd ends the lease. But etcd may end a lease that was prolonged just
now: a leader that was stopped, and does not know that another one was elected, has the leases ended that nobody has prolonged with it (until etcd 3.5.13).
The gateway serves then until it is told, or until its own count ends. So gateways look again and again how long the leases of the others have. A lease that
ends when it had to is over; otherwise, or if nobody has looked, its gateway is given the time of a lease."""
import collections

Seen = collections.namedtuple("Seen", "lease asked_us left_s ttl_s")     # left_s: whole seconds, at asked_us or later


class Ends:
    def __init__(self, me, ttl_s):
        self.me, self.ttl_s = me, ttl_s
        self.seen = {}      # by gateway: what etcd has said last of its lease
        self.ends_us = {}   # by gateway that has gone and owns a group: it does not serve any more then

    def look(self, state, now_us):
        """Keys that have been read, now. Those that are found to have gone, and may serve: for how many seconds."""
        gone = {g.owner for g in state.groups.values()} - state.gateways.keys() - {"", self.me}
        new = {g: self.may_serve_s(g, now_us) for g in gone - self.ends_us.keys()}
        self.ends_us = {g: now_us + int(new[g] * 1000000) if g in new else self.ends_us[g] for g in gone}
        self.seen = {g: s for g, s in self.seen.items() if g in state.gateways and state.gateways[g].lease == s.lease}
        return {g: s for g, s in new.items() if s > 0}

    def may_serve_s(self, gateway, now_us):
        seen = self.seen.get(gateway)
        if seen is None:
            return self.ttl_s
        was_due = seen.asked_us + seen.left_s * 1000000 <= now_us
        is_fresh = now_us - seen.asked_us <= seen.ttl_s * 500000     # a gateway prolongs its lease several times in such a while
        return 0 if was_due and is_fresh else seen.ttl_s

    def to_ask(self, state, now_us):
        """Gateways, and their leases, of which etcd should say how long they have."""
        def is_old(seen):
            return seen is None or now_us - seen.asked_us > seen.ttl_s * 125000
        return [(g.id, g.lease) for g in state.gateways.values() if g.id != self.me and is_old(self.seen.get(g.id))]

    def note(self, gateway, lease, asked_us, left_s, ttl_s):
        """What etcd has said, of a request that was sent at asked_us. ttl_s: what the lease has when it is prolonged; 0: it is not there any more."""
        if ttl_s > 0:
            self.seen[gateway] = Seen(lease, asked_us, max(left_s, 0), ttl_s)

    def may_serve(self, gateway, now_us):
        return now_us < self.ends_us.get(gateway, 0)
