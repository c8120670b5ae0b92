# SPDX-License-Identifier: BSD-3-Clause
"""The clients of Ceph that gateways are, and which of them belong to gateways that have gone.

Whenever the lock of an image changes, Ceph waits up to 5 s for each client that watches the image and does not answer, until it gives that client up (30 s).
A gateway that died while it owned a group is fenced by the next owner. One that owned nothing is not, so other gateways ask what it has left behind to answer,
and have it blocklisted if it does not. One that answers, because only its varve-cluster has ended or cannot reach etcd, is left alone. So is one that has the
lock of the image by which it is asked: it is fenced when the lock is taken."""
import re

from .state import clients, has_all_clients

WATCH_S = 60        # Ceph has given a client up by then


def parts(text):
    """The addresses in "[v2:IP:PORT/NONCE,v1:IP:PORT/NONCE]"."""
    return re.sub(r"v[12]:", "", text.strip("[]")).split(",")


class Clients:
    def __init__(self, me):
        self.me = me
        self.seen = {}      # those of each gateway, when the keys were looked at last; None: of this one now
        self.gone = {}      # by client: its gateway, and when it was found to have gone
        self.asked = {}     # of these: for which groups, without one that needs it; and whether the daemon could ask

    def look(self, state, lease, own, now):
        """own: the clients that this gateway is at the moment, of which now is the time in seconds. What stands under its name and another lease is an earlier process's."""
        before = self.seen
        self.seen = {g.id: self.clients_of(g) for g in state.gateways.values() if g.id != self.me or g.lease != lease}
        self.seen[None] = set(own)
        present = set().union(*self.seen.values())
        for gateway, known in before.items():
            for client in known - present:
                self.gone.setdefault(client, (gateway or self.me, now))
        self.gone = {c: (g, at) for c, (g, at) in self.gone.items() if c not in present and now - at < WATCH_S}
        self.asked = {c: groups for c, groups in self.asked.items() if c in self.gone}

    def clients_of(self, gateway):
        """Of one that does not tell all of them, nobody knows which it has given up: those that were known stay."""
        return clients(gateway.facts) if has_all_clients(gateway.facts) else self.seen.get(gateway.id) or clients(gateway.facts)

    def to_ask(self):
        """Those that may be waited for, and when each was found to have gone."""
        return {c: at for c, (_, at) in self.gone.items()}

    def next_group(self, groups):
        """The first for which one was not asked; or None."""
        return next((n for n in sorted(groups) for c in self.gone if n not in self.asked.get(c, ())), None)

    def note_asked(self, n, could, groups):
        """Those that could be asked for all groups now, and are there still."""
        asked = sorted(c for c in self.gone if n not in self.asked.get(c, ()))
        for client in asked:
            self.asked.setdefault(client, {})[n] = could
        return [c for c in asked if all(self.asked[c].get(other) for other in groups)]

    def forget(self, address):
        """Its gateway: it has been blocklisted."""
        found = [c for c in self.gone if address in parts(c)]
        return [self.gone.pop(c)[0] for c in found]
