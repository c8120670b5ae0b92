# SPDX-License-Identifier: BSD-3-Clause
"""The clients of Ceph that gateways are, and which of them belong to gateways that have gone.

Whenever the lock of an image changes, Ceph waits up to 5 s for each client that watches the image and does not answer, until it gives that client up (30 s).
A gateway that died while it owned a group is fenced by the next owner. One that owned nothing is not, so other gateways ask what it has left behind to answer,
and have it blocklisted if it does not. One that answers, because only its varve-cluster has ended or cannot reach etcd, is left alone."""
import re

from .state import clients

WATCH_S = 60        # Ceph has given a client up by then


def parts(text):
    """The addresses in "[v2:IP:PORT/NONCE,v1:IP:PORT/NONCE]"."""
    return re.sub(r"v[12]:", "", text.strip("[]")).split(",")


class Clients:
    def __init__(self, me):
        self.me = me
        self.seen = {}      # those of each gateway, when the keys were looked at last; None: of this one now
        self.gone = {}      # by client: its gateway, and when it was found to have gone
        self.asked = set()  # of these: without a group that needs it

    def look(self, state, lease, own, now):
        """own: the clients that this gateway is at the moment, of which now is the time in seconds. What stands under its name and another lease is an earlier process's."""
        before = self.seen
        self.seen = {g.id: clients(g.facts) for g in state.gateways.values() if g.id != self.me or g.lease != lease}
        self.seen[None] = set(own)
        present = set().union(*self.seen.values())
        for gateway, known in before.items():
            for client in known - present:
                self.gone.setdefault(client, (gateway or self.me, now))
        self.gone = {c: (g, at) for c, (g, at) in self.gone.items() if c not in present and now - at < WATCH_S}
        self.asked &= self.gone.keys()

    def to_ask(self, owner=None):
        """Those that may be waited for. Not those of owner, which is fenced because it has the lock."""
        return sorted(c for c, (g, _) in self.gone.items() if g != owner)

    def not_asked(self):
        return sorted(self.gone.keys() - self.asked)

    def forget(self, address):
        """Its gateway: it has been blocklisted."""
        found = [c for c in self.gone if address in parts(c)]
        return [self.gone.pop(c)[0] for c in found]
