# SPDX-License-Identifier: BSD-3-Clause
"""A gateway's part in its cluster: it keeps its lease, takes groups that have no owner, and hands over what it should.

The lease is counted on this machine's CLOCK_BOOTTIME from the moment of the request, and ends a quarter earlier here than in etcd. The daemon knows its
end for each bdev that it owns, and stops by itself then: whatever happens to this program, no two gateways serve a group. A former owner that does not
answer is fenced by the lock of what is stored (bdev_own with fence), before the group is optimized here."""
import json
import sys
import threading
import time

from .daemon import Daemon, DaemonError, boottime_us
from .etcd import Etcd, EtcdError
from .state import Group, conflict, decode_state, is_free, to_give, wanted_by

TAKE_S = 60     # to fence a client of Ceph, and to take its lock


class Fatal(Exception):
    """What an operator must mend first."""


def say(text):
    print(f"varve-cluster: {text}", file=sys.stderr, flush=True)


class Lease(threading.Thread):
    """Keeps the gateway's lease in etcd, and that of the daemon's bdevs with it."""

    def __init__(self, config):
        super().__init__(daemon=True)
        self.ttl_s = config["lease_s"]
        self.etcd = Etcd(config["etcd"], self.ttl_s / 4)
        self.daemon_ = Daemon(config["rpc_socket"], config["nqn"], self.ttl_s / 4)
        self.stop = threading.Event()
        self.lock = threading.Lock()    # held while bdevs' leases are prolonged: who ends one takes it out of `owned` before
        self.id, self.until_us = 0, 0
        self.owned = {}                 # bdevs by group
        self.lapsed = set()             # groups that were owned when the lease ended
        self.trouble = {}               # why a group's bdevs cannot be prolonged
        self.said = None

    def valid(self):
        with self.lock:
            return self.id if boottime_us() < self.until_us else 0

    def set_until(self, asked_us, ttl_s):
        """An answer to a request that was sent at asked_us."""
        with self.lock:
            self.until_us = asked_us + int(ttl_s * 750000)
            for n, bdevs in self.owned.items():
                try:
                    self.daemon_.own(bdevs, self.until_us)
                    self.trouble.pop(n, None)
                except DaemonError as e:
                    self.trouble[n] = str(e)

    def keep(self):
        asked_us = boottime_us()
        if self.id == 0:
            new, ttl_s = self.etcd.grant(self.ttl_s)
            with self.lock:
                self.id = new
        else:
            ttl_s = self.etcd.keep_alive(self.id)
        if ttl_s > 0:
            self.set_until(asked_us, ttl_s)
            return
        say("the lease has ended in etcd")
        with self.lock:
            self.lapsed.update(self.owned)
            self.owned.clear()
            self.id, self.until_us = 0, 0

    def run(self):
        while not self.stop.is_set():
            try:
                self.keep()
                self.tell(None)
            except EtcdError as e:
                self.tell(str(e))
            self.stop.wait(self.ttl_s / 8)

    def tell(self, why):
        """Once for each change."""
        if (why is None) != (self.said is None):
            say(f"etcd cannot be reached: {why}" if why else "etcd answers again")
        self.said = why


class Agent:
    def __init__(self, config):
        self.me, self.nqn = config["gateway"], config["nqn"]
        self.prefix = f"/varve/{config['cluster']}/"
        self.ttl_s = config["lease_s"]
        self.etcd = Etcd(config["etcd"], self.ttl_s / 4)
        self.daemon = Daemon(config["rpc_socket"], config["nqn"], self.ttl_s)
        self.lease = Lease(config)
        self.facts, self.groups = None, {}
        self.waits = {}             # why a group waits, for status
        self.waits_since = {}
        self.waits_at = {}          # when a group was found to wait last
        self.in_use = False         # another process has, or had, this gateway's name
        self.said = None            # why the last turn could not be ended

    def run(self, stop):
        self.learn(stop)
        for n in self.groups:
            self.make_inaccessible(n)
        self.lease.start()
        while not stop.is_set():
            try:
                self.turn()
                self.said = None
            except (EtcdError, DaemonError) as e:
                if str(e) != self.said:
                    self.said = str(e)
                    say(self.said)
                self.drop_all_if_ended()
            stop.wait(min(max(self.ttl_s / 20, 0.1), 0.5))
        self.leave()

    def learn(self, stop):
        said = None
        while not stop.is_set():
            try:
                self.facts, self.groups = self.daemon.facts()
                return
            except DaemonError as e:
                if str(e) != said:
                    said = str(e)
                    say(said)
                stop.wait(0.5)

    # --- One look at the cluster ---

    def turn(self):
        lease = self.lease.valid()
        self.look_for_losses()
        state = decode_state(self.etcd.entries(self.prefix))
        self.drop_all_if_ended()
        if lease == 0 or not self.register(state, lease):
            return
        for n in sorted(self.groups):
            self.look_at(n, state)
        give = to_give(state, self.me, self.groups)
        if give is not None and give[0] in self.lease.owned:
            self.give(*give, state)

    def look_for_losses(self):
        lost = self.daemon.lost([b for bdevs in self.groups.values() for b in bdevs])
        for n in self.groups:
            if lost is not None:
                self.waits_at[n] = time.monotonic()
                self.waits[n] = f"bdev {lost} is lost: Ceph has blocklisted this gateway's client, or the image is gone; start varve again"

    def register(self, state, lease):
        """Whether this gateway is in etcd, under its present lease."""
        facts = {**self.facts, "waits": {str(n): why for n, why in self.waits.items()}}
        known = state.gateways.get(self.me)
        for other in state.gateways.values():
            why = conflict(facts, other.id, other.facts) if other.id != self.me else None
            if why is not None and known is None:       # who comes later is refused
                raise Fatal(why)
        if known is not None and known.lease != lease:
            if not self.in_use:
                self.in_use = True
                say(f"gateway {self.me} is in use, or was until its lease ends")
            return False
        self.in_use = False
        if known is None or known.facts != facts:
            self.etcd.change(f"{self.prefix}gateways/{self.me}", known.revision if known else 0, json.dumps(facts), lease)
        return known is not None

    def look_at(self, n, state):
        group = state.groups.get(n, Group())
        if group.owner == self.me and n not in self.lease.owned:
            self.take(n, group, state)
        elif group.owner == self.me and n in self.lease.trouble:
            self.drop(n, self.lease.trouble[n])
        elif group.owner == self.me and not self.daemon.is_optimized(n):
            self.drop(n, "its listeners are not optimized any more: the daemon was started again")
        elif group.owner != self.me and time.monotonic() - self.waits_at.get(n, 0) > 10 * self.ttl_s:
            self.waits.pop(n, None)         # the reason may have gone: it may be tried again
            self.waits_at.pop(n, None)
        if group.owner == self.me:
            return
        if n in self.lease.owned:
            self.drop(n, f"{group.owner} owns it")
        elif is_free(state, n) and wanted_by(state, n, self.groups) == self.me:
            # not if the old owner has come back meanwhile
            if self.set_owner(n, group, self.me, f"{self.prefix}gateways/{group.owner}" if group.owner else None):
                self.take(n, Group(self.me, group.token + 1, 0), state)

    def set_owner(self, n, group, owner, absent=None):
        value = json.dumps({"owner": owner, "token": group.token + 1})
        return self.etcd.change(f"{self.prefix}groups/{n}", group.revision, value, absent=absent)

    # --- What is done with a group ---

    def make_inaccessible(self, n):
        try:
            self.daemon.set_ana(n, "inaccessible")
        except DaemonError as e:
            say(f"group {n}: {e}")

    def take(self, n, group, state):
        with self.lease.lock:
            until_us, lease = self.lease.until_us, self.lease.id
        try:
            self.daemon.own(self.groups[n], until_us, TAKE_S, fence=True)
            self.daemon.set_ana(n, "optimized")
        except DaemonError as e:
            self.wait_on(n, group, state, str(e))
            return
        with self.lease.lock:
            if self.lease.id != lease:
                return          # the daemon's lease ends by itself
            self.lease.owned[n] = self.groups[n]
        self.waits.pop(n, None)
        self.waits_since.pop(n, None)
        say(f"group {n} is served here, token {group.token}")

    def wait_on(self, n, group, state, why):
        if self.waits.get(n) != why:
            say(f"group {n} waits: {why}")
        self.waits[n] = why
        self.waits_at[n] = time.monotonic()
        since = self.waits_since.setdefault(n, time.monotonic())
        others = [g for g in state.gateways.values() if g.id != self.me and str(n) not in g.facts["waits"]]
        if time.monotonic() - since > self.ttl_s and others and group.revision:
            self.waits_since.pop(n)
            self.set_owner(n, group, others[0].id)

    def forget(self, n):
        with self.lease.lock:
            self.lease.trouble.pop(n, None)
            self.lease.owned.pop(n, None)
            self.lease.lapsed.discard(n)

    def drop(self, n, why):
        say(f"group {n} is not served here any more: {why}")
        self.forget(n)
        self.make_inaccessible(n)
        try:
            self.daemon.disown(self.groups[n], self.ttl_s)
        except DaemonError as e:
            say(f"group {n}: {e}")

    def drop_all_if_ended(self):
        valid = self.lease.valid()
        with self.lease.lock:
            ended = sorted(self.lease.lapsed | (set() if valid else set(self.lease.owned)))
        for n in ended:
            self.drop(n, "the lease of this gateway has ended")

    def give(self, n, to, state):
        """Hands a group over. If its I/O does not end within a lease, it stays here."""
        say(f"group {n} goes to {to}")
        self.forget(n)
        self.make_inaccessible(n)
        try:
            self.daemon.disown(self.groups[n], self.ttl_s)
        except DaemonError as e:
            say(f"group {n} stays here: {e}")
            move = state.moves.get(n)
            if move is not None:
                self.etcd.change(f"{self.prefix}moves/{n}", move.revision, None)
            return              # the next turn takes it again
        self.set_owner(n, state.groups[n], to)

    def leave(self):
        """The program ends: others may have what is owned here, at once."""
        self.lease.stop.set()
        self.lease.join(self.ttl_s)
        owned = sorted(self.lease.owned)
        for n in owned:
            self.drop(n, "varve-cluster ends")
        try:
            if self.lease.id:
                self.etcd.revoke(self.lease.id)
        except EtcdError as e:
            say(f"the lease ends later: {e}")
