# SPDX-License-Identifier: BSD-3-Clause
"""A gateway's part in its cluster: it keeps its lease, takes groups that have no owner, and hands over what it should.

The lease is counted on this machine's CLOCK_BOOTTIME from the moment of the request, and ends a quarter earlier here than in etcd. The daemon knows its
end for each bdev that it owns, and stops by itself then: whatever happens to this program, no two gateways serve a group. A former owner that does not
answer is fenced by the lock of what is stored (bdev_own with fence), before the group is optimized here."""
import json
import sys
import threading
import time

from .clients import Clients
from .daemon import ASK_S, Daemon, DaemonError, NoDevice, boottime_us
from .etcd import Etcd, EtcdError, OtherLeader
from .questions import NO_ANSWER, Questions
from .state import Group, able, addresses, conflict, fit, is_free, printable, referred_to, to_give, wanted_by
from .watch import Keys, Leases, Watch

TAKE_S = 60     # to fence a client of Ceph, and to take its lock
LEAVE_LEASES = 10   # for which something that failed is left alone


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
        self.broken = None              # the thread has ended, because of this

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
        try:
            self.keep_once()
        except OtherLeader:
            self.keep_once()        # one election may come between

    def keep_once(self):
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
            except OtherLeader as e:
                self.tell(str(e))
            except EtcdError as e:
                self.tell(f"etcd cannot be reached: {e}")
            except Exception as e:      # pylint: disable=broad-except
                self.broken = f"the lease cannot be kept: {type(e).__name__}: {e}"
                return
            self.stop.wait(self.ttl_s / 8)

    def tell(self, why):
        """Once for each change."""
        if (why is None) != (self.said is None):
            say(why or "etcd answers again")
        self.said = why


class Agent:
    def __init__(self, config):
        self.me, self.nqn = config["gateway"], config["nqn"]
        prefix = f"/varve/{config['cluster']}/"
        self.ttl_s = config["lease_s"]
        self.etcd = Etcd(config["etcd"], self.ttl_s / 4)
        self.watch = Watch(config["etcd"], prefix, self.ttl_s, say)
        self.keys = Keys(self.etcd, self.watch, prefix, self.ttl_s, self.me)
        self.leases = Leases(config["etcd"], self.keys.ends, self.ttl_s, self.watch.stop)
        self.daemon = Daemon(config["rpc_socket"], config["nqn"], self.ttl_s)
        self.lease = Lease(config)
        self.facts, self.groups = None, {}
        self.waits = {}             # why a group waits, for status
        self.told = {}              # why a group waits, as it was said last
        self.waits_since = {}
        self.waits_at = {}          # when a group was found to wait last
        self.kept_at = {}           # when a group could not be handed over, because its I/O did not end
        self.claims = {}            # tokens that this process has written, and under which leases: no earlier request can change those groups any more
        self.named = set()          # addresses that hosts should be told of
        self.gone_at = {}           # for each of them that no gateway has any more, when that was found first
        self.named_at = 0           # when gateways were looked at for it last
        self.referred = set()       # addresses that hosts are told of, and that a gateway had
        self.refused = {}           # addresses that the daemon did not take or give up: when, and why
        self.clients = Clients(self.me)
        self.reached_by = {}        # the client of Ceph by which a bdev is reached
        self.questions = Questions(lambda *q: self.daemon.fence_silent(*q), self.watch.wake.set)
        self.answers = {}           # by bdev: the last one to a question, and when it was fetched
        self.stop = threading.Event()       # run()'s
        self.not_fenced = None      # why clients of gateways that have gone could not be asked
        self.after = 0              # the group that was changed last
        self.mine = False           # this gateway's name is this process's
        self.admitted = False       # this gateway was found to fit to the others
        self.in_use = False         # another process has, or had, this gateway's name
        self.not_referred = None    # why hosts could not be told of other gateways
        self.said = None            # why the last turn could not be ended

    def run(self, stop):
        self.stop = stop
        self.learn(stop)
        self.lease.start()
        self.watch.start()
        self.leases.start()
        try:
            while not stop.is_set():
                if not self.try_turn():
                    self.watch.wake.wait(min(max(self.ttl_s / 20, 0.1), 0.5))
                    self.watch.wake.clear()
        finally:
            self.leave()

    def try_turn(self):
        """Whether to look again at once."""
        if self.lease.broken:
            raise Fatal(self.lease.broken)
        try:
            again = self.turn()
            self.said = None
            return again
        except (EtcdError, DaemonError) as e:
            if str(e) != self.said:
                self.said = str(e)
                say(self.said)
            self.drop_all_if_ended()
        return False

    def learn(self, stop):
        said = None
        while not stop.is_set():
            try:
                self.facts, self.groups = self.daemon.facts()
                for t in self.daemon.offers_reservations():
                    say(f"transport {t}: reservations of hosts do not follow a group to another gateway: create it with masked_oncs=[\"reservs\"]")
                return
            except DaemonError as e:
                if str(e) != said:
                    said = str(e)
                    say(said)
                stop.wait(0.5)

    # --- One look at the cluster ---

    def turn(self):
        """Whether a group was taken or handed over, or clients were asked. A turn ends with its first change, which may take long: what was read before is old then."""
        self.note_answers()
        lease = self.lease.valid()
        self.look_at_bdevs()
        listeners = self.daemon.listeners()
        if self.mine:
            self.hide(listeners)
        self.facts["listeners"] = self.daemon.addresses(listeners)
        state = self.keys.state()
        self.look_at_clients(state, lease)
        self.drop_all_if_ended()
        if lease == 0 or not self.register(state, lease):
            return False
        waiting = [n for n in self.groups if n in self.waits]       # these are tried again and again, and hold up nothing else
        done = self.look_at_each(self.groups.keys() - waiting, state, lease, listeners)
        if done is None:
            give = to_give(state, self.me, self.groups, self.kept())
            if give is not None and give[0] in self.lease.owned:
                done = self.give(*give, state)
        if done is None:
            done = self.look_at_each(waiting, state, lease, listeners)
        if not done:                # what groups need comes first
            done = self.ask_gone(state)
            self.refer(state)
        return bool(done)

    def look_at_each(self, groups, state, lease, listeners):
        """Until something was done: look_at(). Begins behind the group of the last time."""
        for n in sorted(groups, key=lambda n: (n <= self.after, n)):
            done = self.look_at(n, state, lease, listeners)
            if done is not None:
                self.after = n
                return done
        return None

    def look_at_bdevs(self):
        """Sizes follow the bdevs, and groups wait whose bdevs are lost or deleted."""
        lost = None
        for n, bdevs in self.groups.items():
            for name, nsid in bdevs.items():
                try:
                    bdev = self.daemon.bdev(name)
                except NoDevice:
                    self.note_wait(n, f"bdev {name} is not there any more: start varve again")
                    continue
                self.facts["namespaces"][nsid].update(self.daemon.size(bdev))
                self.note_client(name, self.daemon.client(bdev))
                lost = name if self.daemon.is_lost(bdev) else lost
        for n in self.groups if lost is not None else ():
            self.note_wait(n, f"bdev {lost} is lost: Ceph has blocklisted this gateway's client, or the image is gone; start varve again")

    def note_client(self, name, client):
        if client is not None:
            self.reached_by[name] = client
            self.facts["clients"] = sorted(set(self.reached_by.values()))

    def note_wait(self, n, why):
        self.waits[n] = why
        self.waits_at[n] = time.monotonic()

    def hide(self, listeners):
        """Hosts are kept from what is not served here."""
        for n in self.groups:
            if n not in self.lease.owned:
                self.make_inaccessible(n, listeners)

    def kept(self):
        """Groups whose I/O did not end lately."""
        self.kept_at = {n: at for n, at in self.kept_at.items() if time.monotonic() - at < LEAVE_LEASES * self.ttl_s}
        return self.kept_at.keys()

    def register(self, state, lease):
        """Whether this gateway is in etcd, under its present lease."""
        facts = {**self.facts, "waits": {str(n): printable(why) for n, why in self.waits.items()}}
        known = state.gateways.get(self.me)
        for other in state.gateways.values():
            why = conflict(facts, other.id, other.facts, not self.admitted) if other.id != self.me else None
            if why is not None and (known is None or known.lease != lease or known.created > other.created):   # who comes later is refused
                raise Fatal(why)
        if known is not None and known.lease != lease:
            self.mine = False
            if not self.in_use:
                self.in_use = True
                say(f"gateway {self.me} is in use, or was until its lease ends")
            return False
        self.in_use = False
        if known is None or known.facts != facts:
            self.keys.change(f"gateways/{self.me}", known.revision if known else 0, json.dumps(facts), lease)
        self.mine = self.mine or known is not None
        self.admitted = self.admitted or known is not None
        return known is not None

    def look_at(self, n, state, lease, listeners):
        """None: nothing was done. Otherwise whether the group was taken."""
        group = state.groups.get(n, Group())
        if group.owner == self.me:
            return self.look_at_own(n, group, state, lease, listeners)
        if time.monotonic() - self.waits_at.get(n, 0) > LEAVE_LEASES * self.ttl_s:
            self.waits.pop(n, None)         # the reason may have gone: it may be tried again
            self.waits_at.pop(n, None)
        if n in self.lease.owned:
            self.drop(n, f"{group.owner} owns it")
            return False
        if is_free(state, n) and wanted_by(state, n, self.groups) == self.me and not self.keys.may_serve(group.owner):
            # not if the old owner has come back meanwhile
            return self.claim(n, group, state, lease, f"gateways/{group.owner}" if group.owner not in ("", *state.gateways) else None)
        return None

    def look_at_own(self, n, group, state, lease, listeners):
        if n in self.lease.owned:
            why = self.lease.trouble.get(n)
            if why is None and not self.daemon.is_optimized(n, listeners):
                why = "its listeners are not optimized any more: the daemon was started again"
            if why is None:
                return None
            self.drop(n, why)
            return False
        if self.claims.get(n) == (group.token, lease):
            return self.take(n, group, state, lease)
        # A hand-over whose answer was lost may still be carried out, and a claim that another gateway made while this one's name was not there; not behind this.
        return self.claim(n, group, state, lease)

    def claim(self, n, group, state, lease, absent=None):
        """Writes this gateway as the owner, if nothing has changed since the key was read, and takes the group then."""
        if not self.set_owner(n, group, self.me, absent):
            return False
        self.claims[n] = group.token + 1, lease
        return bool(self.take(n, Group(self.me, group.token + 1, 0), state, lease))

    def set_owner(self, n, group, owner, absent=None):
        self.claims.pop(n, None)
        value = json.dumps({"owner": owner, "token": group.token + 1})
        return self.keys.change(f"groups/{n}", group.revision, value, absent=absent)

    # --- What gateways that have gone have left in Ceph ---

    def look_at_clients(self, state, lease):
        self.clients.look(state, lease, set(self.reached_by.values()), time.monotonic())

    def ask_gone(self, state):
        """Early, so that nobody waits for them when a group changes its owner; for one group at a time. Not while a group needs this gateway. Whether they were
        asked."""
        n = self.clients.next_group(self.groups)
        if n is None or self.waits or self.questions.under_way or any(is_free(state, other) and fit(state, other, self.groups) for other in self.groups):
            return False
        return self.fence_silent(n)

    def fence_silent(self, n):
        """Before the locks of a group change. None: an answer has to come first, and the turn goes on. Otherwise whether they were asked."""
        for bdev in {self.reached_by[name]: name for name in self.groups[n] if name in self.reached_by}.values():
            if bdev in self.questions.under_way:
                return None
            answer = self.answer(bdev)
            if not answer.clients.issuperset(self.clients.to_ask().items()):
                if self.stop.is_set() or not self.look_again():
                    return False
                if self.clients.to_ask():
                    self.questions.begin(bdev, self.clients.to_ask(), self.lease.until_us)
                    return None
            if answer.error is not None:        # it is the same for the others
                break
        self.note_asked(n)
        return True

    def answer(self, bdev):
        """That to the last question. Not one that was left for longer: who answered then may be silent now."""
        answer, at = self.answers.get(bdev, (NO_ANSWER, 0))
        return answer if time.monotonic() - at < ASK_S else NO_ANSWER

    def note_asked(self, n):
        answers = [self.answer(bdev) for bdev in self.groups[n]]
        for bdev in self.groups[n]:
            self.answers.pop(bdev, None)
        for client in self.clients.note_asked(n, all(a.error is None for a in answers), self.groups):
            say(f"client {client} of Ceph, which gateway {self.clients.gone[client][0]} is, answers or watches nothing here: it is left alone")

    def note_answers(self):
        for answer in self.questions.take():
            self.answers[answer.bdev] = answer, time.monotonic()
            if answer.error is not None and self.not_fenced != answer.error:
                say(f"what gateways that have gone were in Ceph may be waited for: {answer.error}")
            self.not_fenced = answer.error
            for address in answer.fenced:
                say(f"client {address} of Ceph, which gateway {' '.join(self.clients.forget(address))} was, does not answer: it is blocklisted")

    def look_again(self):
        """Right before clients are asked: one that is back may be slow to answer, but is not to be fenced. Whether it is known who is there."""
        lease = self.lease.valid()
        try:
            if lease and self.clients.gone:
                self.look_at_clients(self.keys.state(), lease)
            return lease != 0
        except EtcdError:
            return False

    # --- What hosts are told of other gateways ---

    def refer(self, state):
        """The discovery log names the others, so that a host finds all by asking one. Referrals that somebody else has made stay, if no gateway has had that
        address since this program began."""
        self.name_addresses(state)
        try:
            present = self.daemon.referrals()
            self.referred |= referred_to(state, self.me) & present      # also what this program made before it was started again
            self.not_referred = self.change_referrals(self.named - present, (self.referred - self.named) & present)
            self.referred &= self.named | present       # the others were removed by somebody else
        except DaemonError as e:
            self.tell_not_referred(str(e))

    def name_addresses(self, state):
        """A gateway that is gone is named for a while: its hosts keep their paths to it until it is back. Time in which etcd was not read does not count:
        gateways that live may have to register again after it."""
        now, own = time.monotonic(), addresses(self.facts)
        there = referred_to(state, self.me) - own
        if now - self.named_at > self.ttl_s:
            self.gone_at = {}
        self.named_at = now
        gone_at = {a: self.gone_at.get(a, now) for a in self.named - there - own}       # an address may have moved to this gateway
        self.gone_at = {a: at for a, at in gone_at.items() if now - at < LEAVE_LEASES * self.ttl_s}
        self.named = there | self.gone_at.keys()

    def change_referrals(self, more, less):
        """All that can be; why one could not, or None. One that was refused is left alone for a lease."""
        now = time.monotonic()
        self.refused = {a: (at, why) for a, (at, why) in self.refused.items() if a in more | less and now - at < self.ttl_s}
        for address in sorted((more | less) - self.refused.keys()):
            try:
                if address in more:
                    self.daemon.refer(address)
                    self.referred.add(address)
                else:
                    self.daemon.stop_referring(address)
                    self.referred.discard(address)
            except DaemonError as e:
                self.refused[address] = now, str(e)
        whys = sorted({why for _, why in self.refused.values()})
        return self.tell_not_referred("; ".join(whys)) if whys else None

    def tell_not_referred(self, why):
        """Once for each reason."""
        if why != self.not_referred:
            self.not_referred = why
            say(f"hosts are not told of all other gateways: {why}")
        return why

    # --- What is done with a group ---

    def make_inaccessible(self, n, listeners=None):
        """Whether it is."""
        try:
            self.daemon.set_ana(n, "inaccessible", listeners)
            return True
        except DaemonError as e:
            say(f"group {n}: {e}")
            return False

    def take(self, n, group, state, lease):
        """Whether it is served; None: an answer has to come first. The claim to it is of the time when this gateway had that lease."""
        if self.fence_silent(n) is None:
            return None
        with self.lease.lock:
            until_us, present = self.lease.until_us, self.lease.id
        if lease == 0 or present != lease:
            return False
        try:
            self.daemon.own(self.groups[n], until_us, TAKE_S, fence=True)
            self.daemon.set_ana(n, "optimized")
        except DaemonError as e:
            self.wait_on(n, group, state, str(e), self.put_back(n))
            return False
        with self.lease.lock:
            held = self.lease.id == lease
            if held:
                self.lease.owned[n] = self.groups[n]
        if not held:
            self.put_back(n)
            return False
        for notes in (self.waits, self.waits_since, self.told):
            notes.pop(n, None)
        say(f"group {n} is served here, token {group.token}")
        return True

    def wait_on(self, n, group, state, why, is_back):
        """A group could not be taken. After a lease another gateway may have it, if nothing of it is left here."""
        if self.told.get(n) != why:
            self.told[n] = why
            say(f"group {n} waits: {why}")
        self.note_wait(n, why)
        since = self.waits_since.setdefault(n, time.monotonic())
        others = {g: count for g, count in able(state, n, self.groups).items() if g != self.me}
        if is_back and time.monotonic() - since > self.ttl_s and others and group.revision:
            self.waits_since.pop(n)
            self.set_owner(n, group, min(others, key=lambda g: (others[g], g)))

    def put_back(self, n):
        """Whether nothing of the group is served or owned here any more."""
        hidden = self.make_inaccessible(n)
        try:
            self.daemon.disown(self.groups[n], self.ttl_s)
            return hidden
        except DaemonError as e:
            say(f"group {n}: {e}")
            return False

    def forget(self, n):
        with self.lease.lock:
            self.lease.trouble.pop(n, None)
            self.lease.owned.pop(n, None)
            self.lease.lapsed.discard(n)

    def drop(self, n, why):
        say(f"group {n} is not served here any more: {why}")
        self.forget(n)
        self.put_back(n)

    def drop_all_if_ended(self):
        valid = self.lease.valid()
        with self.lease.lock:
            ended = sorted(self.lease.lapsed | (set() if valid else set(self.lease.owned)))
        for n in ended:
            self.drop(n, "the lease of this gateway has ended")

    def give(self, n, to, state):
        """Hands a group over. If its I/O does not end within a lease, it stays here. None: an answer has to come first."""
        if self.fence_silent(n) is None:
            return None
        say(f"group {n} goes to {to}")
        self.tell_of_reservations(n)
        self.forget(n)
        self.make_inaccessible(n)
        try:
            self.daemon.disown(self.groups[n], self.ttl_s)
        except DaemonError as e:
            say(f"group {n} stays here: {e}")
            self.kept_at[n] = time.monotonic()
            move = state.moves.get(n)
            if move is not None:
                self.keys.change(f"moves/{n}", move.revision, None)
            return True             # the next turn takes it again
        return self.set_owner(n, state.groups[n], to)

    def tell_of_reservations(self, n):
        try:
            if n in self.daemon.reserved():
                say(f"group {n}: hosts have registered for reservations with its namespaces; these do not follow the group (doc/ceph.md)")
        except DaemonError:
            pass            # it only tells

    def release(self):
        """Groups that nothing here may serve get no owner: nobody waits for this gateway then. What was claimed only, or what could not be put back because the
        daemon has died or Ceph does not answer, is none that it serves; who takes it fences the rest."""
        state = self.keys.state()
        known = state.gateways.get(self.me)
        if not self.mine or (known is not None and known.lease != self.lease.id):
            return          # they are another process's of this name
        for n, bdevs in self.groups.items():
            group = state.groups.get(n, Group())
            if group.owner == self.me and not self.daemon.may_serve(bdevs):
                self.set_owner(n, group, "")

    def leave(self):
        """The program ends: others may have what is owned here, at once."""
        self.lease.stop.set()
        self.watch.stop.set()
        self.lease.join(self.ttl_s)
        for n in sorted(self.lease.owned):
            self.drop(n, "varve-cluster ends")
        try:
            if self.lease.id:
                self.release()
                self.etcd.revoke(self.lease.id)
        except EtcdError as e:
            say(f"the lease ends later: {e}")
