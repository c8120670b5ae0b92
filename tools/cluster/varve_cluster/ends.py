# SPDX-License-Identifier: BSD-3-Clause
"""Until when a gateway that has gone may serve.

One that dies, stops or is cut off prolongs its lease no more, and serves no more when etcd ends the lease. But etcd may end a lease that was prolonged just
now: a leader that was stopped, and does not know that another one was elected, has the leases ended that nobody has prolonged with it (until etcd 3.5.13).
The gateway serves then until it is told, or until its own count ends. So gateways look again and again how long the leases of the others have. A lease that
ends when it had to is over; otherwise, or if it was not looked at lately, its gateway is given the time of a lease."""
import collections
import threading

# lease: the one that it had then; left_s: whole seconds, at asked_us or later; gone_us: when etcd said that the lease is not there any more, or None
Seen = collections.namedtuple("Seen", "lease asked_us left_s ttl_s gone_us", defaults=(None,))


class Ends:
    """Threads may use it at once."""

    def __init__(self, me, ttl_s):
        self.me, self.ttl_s = me, ttl_s
        self.lock = threading.Lock()
        self.leases = {}    # of other gateways that are there and own a group
        self.seen = {}      # by gateway: what etcd has said last of its lease
        self.ends_us = {}   # by gateway that has gone and owns a group: it does not serve any more then

    def look(self, state, now_us):
        """Keys that have been read, now. Those that are found to have gone, and may serve: for how many seconds."""
        owners = {g.owner for g in state.groups.values()} - {"", self.me}
        gone = owners - state.gateways.keys()
        with self.lock:
            new = {g: self.until_us(g, now_us) for g in gone - self.ends_us.keys()}
            self.ends_us = {g: new[g] if g in new else self.ends_us[g] for g in gone}
            self.leases = {g: state.gateways[g].lease for g in owners - gone}
            self.seen = {g: s for g, s in self.seen.items() if g in state.gateways and state.gateways[g].lease == s.lease}
        return {g: -((now_us - at) // 1000000) for g, at in new.items() if at > now_us}

    def until_us(self, gateway, now_us):
        """When one that has gone serves no more."""
        seen = self.seen.get(gateway)
        if seen is None:
            return now_us + self.ttl_s * 1000000
        found_us = now_us if seen.gone_us is None else seen.gone_us
        was_due = seen.asked_us + seen.left_s * 1000000 <= found_us
        is_fresh = found_us - seen.asked_us <= seen.ttl_s * 500000     # a gateway prolongs its lease several times in such a while
        return found_us + (0 if was_due and is_fresh else seen.ttl_s * 1000000)

    def to_ask(self):
        """Gateways, and their leases, of which etcd should say how long they have."""
        with self.lock:
            return sorted(self.leases.items())

    def note(self, gateway, lease, asked_us, left_s, ttl_s, now_us):
        """What etcd has said until now, of a request that was sent at asked_us. ttl_s: what the lease has when it is prolonged; 0: it is not there any more."""
        with self.lock:
            seen = self.seen.get(gateway)
            if self.leases.get(gateway) != lease:
                return          # the keys have been read since
            if ttl_s > 0:
                self.seen[gateway] = Seen(lease, asked_us, max(left_s, 0), ttl_s)
            elif seen is not None and seen.lease == lease and seen.gone_us is None:
                self.seen[gateway] = seen._replace(gone_us=now_us)

    def may_serve(self, gateway, now_us):
        return now_us < self.ends_us.get(gateway, 0)
