# SPDX-License-Identifier: BSD-3-Clause
"""What a gateway knows of etcd's keys. While etcd can be watched, the keys are read when the watch says so, and some times in a lease besides: a member of
etcd that is cut off from the others says nothing. Otherwise they are read each time that they are asked for.

What is known may be as old as that. It does no harm: a change of a key is refused by etcd if another one has come before, and a group that this gateway owns
can be taken from it only when its lease has ended; with another lease it looks for its own name under that one first."""
import threading

from .daemon import boottime_us
from .ends import Ends
from .etcd import Etcd, EtcdError
from .state import decode_state

OLD_S = 2       # a watch that says nothing may be dead


class Watch(threading.Thread):
    """Wakes a gateway when keys have changed."""

    def __init__(self, settings, prefix, ttl_s, say):
        super().__init__(daemon=True)
        self.etcd = Etcd(settings, ttl_s / 4)
        self.prefix, self.ttl_s, self.say = prefix, ttl_s, say
        self.stop = threading.Event()
        self.wake = threading.Event()       # there is something to do; cleared by who has waited for it
        self.changes = 0                    # counts what has changed, or may have
        self.active = False
        self.said = None

    def run(self):
        while not self.stop.is_set():
            try:
                self.follow()
            except EtcdError as e:
                self.end(str(e))
            except Exception as e:      # pylint: disable=broad-except
                self.end(f"{type(e).__name__}: {e}")        # the gateway goes on without

    def follow(self):
        for _ in self.etcd.watch(self.prefix, self.ttl_s):
            self.active = True
            self.note_change()
            if self.said is not None:
                self.said = None
                self.say("etcd is watched again")

    def note_change(self):
        self.changes += 1
        self.wake.set()

    def end(self, why):
        self.active = False
        self.note_change()
        if self.said is None:
            self.said = why
            self.say(f"etcd cannot be watched, its keys are read again and again instead: {why}")
        self.stop.wait(self.ttl_s / 8)


class Leases(threading.Thread):
    """Asks how long the leases of other gateways have, again and again: also while a group is taken or given, which may take longer than a lease."""

    def __init__(self, settings, ends, ttl_s, stop):
        super().__init__(daemon=True)
        self.etcd = Etcd(settings, ttl_s / 4)
        self.ends, self.ttl_s, self.stop = ends, ttl_s, stop

    def run(self):
        while not self.stop.wait(self.ttl_s / 8):
            self.ask()

    def ask(self):
        for gateway, lease in self.ends.to_ask():
            asked_us = boottime_us()
            try:
                left_s, ttl_s = self.etcd.left(lease)
            except EtcdError:
                continue        # it is not known: that gateway may have to be waited for
            self.ends.note(gateway, lease, asked_us, left_s, ttl_s, boottime_us())


class Keys:
    """The keys of a cluster. To be used by one thread."""

    def __init__(self, etcd, watch, prefix, ttl_s, me):
        self.etcd, self.watch, self.prefix = etcd, watch, prefix
        self.ends = Ends(me, ttl_s)
        self.old_us = int(min(ttl_s / 4, OLD_S) * 1000000)      # what was read is used so long, at most
        self.known, self.read_us = None, 0
        self.changes = 0                        # those that were known of before it was read

    def state(self):
        if self.known is None or not self.watch.active or self.watch.changes != self.changes or boottime_us() - self.read_us > self.old_us:
            self.known = None
            self.changes, self.read_us = self.watch.changes, boottime_us()
            state = decode_state(self.etcd.entries(self.prefix))
            self.look_at_leases(state)
            self.known = state
        return self.known

    def look_at_leases(self, state):
        for gateway, seconds in self.ends.look(state, boottime_us()).items():
            self.watch.say(f"gateway {gateway} has gone, and nothing says that its lease was over: its groups are left to it for {seconds} s")

    def may_serve(self, gateway):
        """Whether a gateway that has gone may serve what it owned."""
        return self.ends.may_serve(gateway, boottime_us())

    def change(self, key, revision, value, lease=0, absent=None):
        """Whether it was done. What was known is old then, whatever the answer is."""
        self.known = None
        return self.etcd.change(self.prefix + key, revision, value, lease, absent=None if absent is None else self.prefix + absent)
