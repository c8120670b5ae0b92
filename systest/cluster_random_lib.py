# SPDX-License-Identifier: BSD-3-Clause
"""Gateways of a cluster to which anything may happen at any time, an observer that knows when two of them own a group, or one serves without a lease,
and hosts that know each write that they had acknowledged."""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from appliance_lib import BUILD, DEADLINE, TOP, Client, Failure, RpcError, check, wait_for
from cluster_lib import BEGUN, CLUSTER, GROUPS, EtcdServer, Gateway, scene, tell
from nvmf_lib import NQN, NUM_CPUS, PORT, Host, Target, wait_io
from nvmf_stale_lib import REGION_KB, Actor, attempt, check_ledger

sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "tools" / "cluster"))
from varve_cluster import etcd, state  # noqa: E402

LEASE_S = 4
KATO_MS = 2000          # of the front; with QUIESCE_MS its fence takes 3 x KATO_MS + KATO_MS / 4 + QUIESCE_MS
QUIESCE_MS = 1500
LATE_S = 2              # a daemon that runs looks at its leases four times a second
RETURN = {"x86_64": b"\xc3", "aarch64": b"\xc0\x03\x5f\xd6"}        # the instruction
NOTE = "/memfd:varve-bdev-files"        # in /proc/PID/fd: what a varve has locked; each change makes a new one
MUTANT_UNTIL = ("name=bdev, until_us=until_us, **params", "name=bdev, until_us=until_us + 3600000000, **params")


class RandomGateway(Gateway):
    def __init__(self, number, folder, server, **settings):
        config = folder / "varve.json"
        config.write_text(json.dumps({"subsystems": [{"subsystem": "nvmf", "config": [
            {"method": "nvmf_set_config", "params": {"quiesce_limit_ms": QUIESCE_MS}}]}]}))
        self.options = ("-c", str(config))
        super().__init__(number, folder, server, **{"lease_s": LEASE_S, **settings})

    def set_rate(self, ios_per_sec):
        """Of the storage; 0: no limit."""
        for n in GROUPS:
            self.call("bdev_set_qos_limit", name=f"F{n}", rw_ios_per_sec=ios_per_sec)


class LocksGranted(RandomGateway):
    """A wrong one: two processes have the lock of a file."""
    libraries = (BUILD / "systest" / "libgrant-locks.so",)


class Blind(RandomGateway):
    """A wrong one: its daemon does not look at its leases."""

    def __init__(self, *a, **settings):
        super().__init__(*a, **settings)
        make_return_at_once(self.pid, "owner_timer")


def make_return_at_once(pid, function):
    """Overwrites the beginning of a function of a process."""
    program = os.readlink(f"/proc/{pid}/exe")
    found = re.findall(rf"^([0-9a-f]+) t {function}$", subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout, re.M)
    check(len(found) == 1, f"what this changes has changed: {function}")
    first = next(line for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith(program))
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(int(first.split("-")[0], 16) + int(found[0], 16))
        memory.write(RETURN[os.uname().machine])


class Endless(RandomGateway):
    """A wrong one: its daemon is not told when the lease ends."""


@contextlib.contextmanager
def endless_agent():
    """A copy of varve-cluster that tells its daemon a lease of an hour."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-mutant-"))
    try:
        shutil.copytree(CLUSTER.parent, folder / "cluster")
        path = folder / "cluster" / "varve_cluster" / "daemon.py"
        text = path.read_text()
        check(text.count(MUTANT_UNTIL[0]) == 1, "what this changes has changed: daemon.py")
        path.write_text(text.replace(*MUTANT_UNTIL))
        Endless.program_of_agent = folder / "cluster" / "varve-cluster"
        yield Endless.program_of_agent
    finally:
        shutil.rmtree(folder)


def locked_note(pid):
    """An identity and the files that a process has locked for its bdevs; None: it has none. It can be read of a process that is stopped."""
    try:
        for fd in os.scandir(f"/proc/{pid}/fd"):
            if os.readlink(fd.path).startswith(NOTE):
                return os.stat(fd.path).st_ino, pathlib.Path(fd.path).read_text()
    except OSError:     # it has ended, or has another note by now
        pass
    return None


def files_of(note):
    return {tuple(line.split()[:2]) for line in note[1].splitlines()} if note else set()


class Observer(threading.Thread):
    """Looks again and again, until it is told to end. What it finds stays in `found`."""

    def __init__(self, s):
        super().__init__(daemon=True)
        self.scene = s
        self.etcd = etcd.Etcd({"endpoints": s.etcd.endpoints()}, 1)
        self.over = threading.Event()
        self.found, self.failure = [], None
        self.looks = self.etcd_looks = 0
        self.ended = {}     # by gateway and group: since when a lease has been seen as ended
        self.missing = {}       # since when a gateway has no name in etcd

    def run(self):
        try:
            while not self.over.wait(0.03):
                self.look_at_locks()
                self.look_at_leases()
        except BaseException as e:  # pylint: disable=broad-except
            self.failure = e

    def note(self, text):
        self.scene.say(text)
        self.found.append(text)

    def look_at_locks(self):
        """What two gateways have before a moment and, unchanged, after it, they have at once."""
        gateways = list(self.scene.gateways)
        before = [locked_note(g.pid) for g in gateways]
        after = [locked_note(g.pid) for g in gateways]
        held = [(g.name, files_of(x)) for g, x, y in zip(gateways, before, after) if x is not None and y is not None and x == y]
        for i, (name, files) in enumerate(held):
            for other, others in held[:i]:
                if files & others:
                    self.note(f"two owners: {other} and {name} have locked {files & others}")
        self.looks += 1

    def entries(self):
        try:
            return self.etcd.entries("/varve/test/")
        except etcd.EtcdError:
            return None

    def look_at_leases(self):
        """A gateway that serves has its groups: if nothing in etcd has changed while it was asked. So it has a lease, or etcd has ended it too early, and it
        stops when its own count ends."""
        before = self.entries()
        now = state.decode_state(before) if before is not None else None
        self.missing = {g.name: self.missing.get(g.name, time.monotonic()) for g in self.scene.gateways if now is not None and g.name not in now.gateways}
        late = {name for name, since in self.missing.items() if time.monotonic() > since + 0.75 * self.scene.lease_s}
        owned = [(g.name, *owned_now(g)) for g in self.scene.gateways]
        self.look_at_ended({(name, n) for name, _, ended in owned for n in ended})
        if before is None or before != self.entries():
            return
        self.etcd_looks += 1
        for name, groups, _ in owned:
            for n in groups:
                owner = now.groups.get(n, state.Group()).owner
                if owner != name or name in late:
                    self.note(f"{name} serves group {n}: in etcd {owner!r} owns it, and there are {sorted(now.gateways)}")

    def look_at_ended(self, keys):
        """A gateway that was stopped and has just gone on may answer before it looks at its leases, which have ended: Ceph, or the file's lock, keeps it from
        writing. It looks soon."""
        now = time.monotonic()
        self.ended = {key: self.ended.get(key, now) for key in keys}
        for (name, n), since in self.ended.items():
            if now - since > LATE_S:
                self.note(f"{name} says for {now - since:.1f} s that it owns group {n}, although its lease has ended")


def owned_now(gateway):
    """The groups that a gateway serves, and those that it says to own although their lease has ended; none if it does not answer soon."""
    try:
        client = Client(gateway.path)
    except OSError:
        return set(), set()
    try:
        client.sock.settimeout(0.2)
        owned = {int(o["name"][1:]): o.get("lease_us", 1) for o in client.call("bdev_get_owners") if o["state"] == "owner"}
        return {n for n, left in owned.items() if left > 0}, {n for n, left in owned.items() if left == 0}
    except (OSError, Failure, RpcError, ValueError):
        return set(), set()
    finally:
        client.close()


# ---- What happens ----

class ProgramEvents:
    """The two programs of a gateway."""

    def __init__(self, s, number):
        self.scene, self.number = s, number
        self.all = [self.stop_daemon, self.stop_agent, self.stop_both, self.stop_both, self.kill_agent, self.end_agent, self.kill_daemon, self.kill_both]

    def gateway(self):
        return self.scene.gateways[self.number]

    def say(self, text):
        self.scene.say(f"{self.gateway().name}: {text}")

    def stop(self, actor, what, *processes):
        self.say(f"SIGSTOP, {what}")
        for p in processes:
            p.send_signal(signal.SIGSTOP)
        actor.rest(0.1, 2.2 * self.scene.lease_s)
        for p in processes:
            p.send_signal(signal.SIGCONT)
        self.say(f"SIGCONT, {what}")
        actor.rest(0, self.scene.lease_s)

    def stop_daemon(self, actor):
        self.stop(actor, "varve", self.gateway().process)

    def stop_agent(self, actor):
        self.stop(actor, "varve-cluster", self.gateway().agent)

    def stop_both(self, actor):
        self.stop(actor, "both", self.gateway().agent, self.gateway().process)

    def kill_agent(self, actor):
        self.say("SIGKILL, varve-cluster")
        self.gateway().agent.kill()
        self.gateway().agent.wait()
        actor.rest(0, 1.5 * self.scene.lease_s)
        self.gateway().start_agent()
        self.say("varve-cluster is started")

    def end_agent(self, actor):
        self.say("SIGTERM, varve-cluster")
        agent = self.gateway().agent
        agent.terminate()
        check(agent.wait(DEADLINE) in (0, -signal.SIGTERM), self.gateway().agent_log())     # the signal: it had just begun
        actor.rest(0, self.scene.lease_s / 2)
        self.gateway().start_agent()
        self.say("varve-cluster is started")

    def kill_daemon(self, actor):
        """Its varve-cluster goes on for a while."""
        self.say("SIGKILL, varve")
        self.gateway().process.kill()
        self.gateway().process.wait()
        actor.rest(0, self.scene.lease_s)
        self.again()

    def kill_both(self, actor):
        self.say("SIGKILL, both")
        self.gateway().kill()
        actor.rest(0, self.scene.lease_s)
        self.again()

    def again(self):
        self.scene.again(self.number)
        self.say("both are started")


class PlaceEvents:
    """What is around a gateway. It may be another one afterwards."""

    def __init__(self, s, number):
        self.scene, self.number = s, number
        self.all = [self.cut, self.slow]

    def say(self, text):
        self.scene.say(f"{'abc'[self.number]}: {text}")

    def cut(self, actor):
        wire = self.scene.gateways[self.number].wire
        self.say("etcd cannot be reached")
        wire.cut = True
        actor.rest(0.1, 2.2 * self.scene.lease_s)
        wire.cut = False
        self.say("etcd can be reached")
        actor.rest(0, 3 * self.scene.lease_s)

    def slow(self, actor):
        rate = actor.rng.choice([2, 5, 20])
        self.say(f"{rate} I/Os per second")
        gateway = self.scene.gateways[self.number]
        attempt(gateway.set_rate, rate)
        actor.rest(0.5, 1.5 * self.scene.lease_s)
        attempt(gateway.set_rate, 0)
        self.say("storage as before")


class EtcdEvents:
    def __init__(self, s):
        self.scene = s
        self.all = [self.stop, self.restart]

    def stop(self, actor):
        self.scene.say("etcd: SIGSTOP")
        self.scene.etcd.process.send_signal(signal.SIGSTOP)
        actor.rest(0.1, 1.5 * self.scene.lease_s)
        self.scene.etcd.process.send_signal(signal.SIGCONT)
        self.scene.say("etcd: SIGCONT")
        actor.rest(0, 3 * self.scene.lease_s)

    def restart(self, actor):
        self.scene.say("etcd: SIGKILL")
        self.scene.etcd.stop()
        actor.rest(0, 1.5 * self.scene.lease_s)
        self.scene.etcd.start()
        self.scene.say("etcd is started")
        actor.rest(0, 3 * self.scene.lease_s)


class OperatorEvents:
    def __init__(self, s):
        self.scene = s
        self.all = [self.move]

    def move(self, actor):
        n, to = actor.rng.choice(GROUPS), actor.rng.choice([*(g.name for g in self.scene.gateways), "any"])
        p = tell(self.scene.etcd, "move", str(n), to)
        self.scene.say(f"move {n} {to}: {'done' if p.returncode == 0 else p.stderr.strip()[-100:]}")


# ---- The scene ----

class RandomScene:
    """Gateways, a front with a host for each group, an observer; what is happening is said."""

    lease_s = LEASE_S

    def __init__(self, s, front, number):
        self.inner, self.front, self.number = s, front, number
        self.begun, self.events, self.agents_said = BEGUN, [], []
        self.results, self.checks = [], []
        for g in s.gateways:
            front.call("bdev_nvme_attach_controller", name="N", ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, subnqn=NQN, **g.listen_address())
        for n in GROUPS:
            front.add_ns(f"Nn{n}", nsid=n)
        self.hosts = [self.make_host(n) for n in GROUPS]

    gateways = property(lambda self: self.inner.gateways)
    etcd = property(lambda self: self.inner.etcd)

    def again(self, number):
        """What its varve-cluster has said is kept."""
        gateway = self.gateways[number]
        self.agents_said.append(f"{gateway.name}, until {time.monotonic() - self.begun:.3f} s:\n{gateway.agent_log()[-3000:]}")
        self.inner.again(number)

    def make_host(self, n):
        return Host(self.front, "-w", "randrw", "--verify", "--region", f"{REGION_KB}k", "-q", "8", "--rate", "400", "-t", "36000", "--ledger", str(self.ledger(n)), nsid=n, hostnqn=f"{NQN}:host{n}")

    def ledger(self, n):
        return self.inner.folder / f"ledger{n}"

    def say(self, text):
        self.events.append(f"{time.monotonic() - self.begun:8.3f} s  {text}")

    def account(self):
        logs = [*self.agents_said, *(f"{g.name}:\n{g.agent_log()[-3000:]}" for g in self.gateways)]
        return "\n".join([*self.events, *logs, self.etcd.account(), *(h.errors.read_text()[-3000:] for h in self.hosts if h.errors.exists())])

    def kinds(self):
        """Lists of events, one of each of which may be under way at a time."""
        numbers = range(len(self.gateways))
        return [*(ProgramEvents(self, i).all for i in numbers), *(PlaceEvents(self, i).all for i in numbers), EtcdEvents(self).all, OperatorEvents(self).all]

    def settled(self):
        """Each group has one owner."""
        return sorted(n for g in self.gateways for n in g.owned()) == list(GROUPS)

    def finish(self):
        """Nothing happens any more: all goes on, and each block is what was written last, by the front and in the files."""
        for g in self.gateways:
            g.set_rate(0)
        wait_for(self.settled, lambda: f"each group to have one owner\n{self.account()}")
        wait_io(self.front, self.hosts)
        self.results = [h.stop() for h in self.hosts]
        for n in GROUPS:
            self.check_blocks(n, "-r", self.front.trid(), "-n", str(n), "--hostnqn", f"{NQN}:host{n}")
        for part in (self.front, *self.gateways):
            check(part.stop() == 0, f"varve ended with {part.process.returncode}:\n{part.log()[-8000:]}")
        for n in GROUPS:
            self.check_blocks(n, "-b", f"file:{self.stored(n)}")

    def stored(self, n):
        """A file with what is stored of a group, when no gateway serves it any more."""
        return self.inner.folder / f"disk{n}"

    def errors_are_of_time(self):
        """A host aborts a command after 30 s, which no gateway may be there to answer."""
        lines = [x for h in self.hosts for x in h.errors.read_text().splitlines() if "*ERROR*" in x]
        return self.counts()["errors"] == 0 or (lines != [] and all(x.endswith("abort requested") for x in lines))

    def check_blocks(self, n, *where):
        result, said = check_ledger(f"group {n}", self.ledger(n), *where)
        if result["miscompares"]:
            self.say(f"group {n}, {where[0]}, when all had ended:\n{said}")
        self.checks.append(result)

    def counts(self):
        sums = {"reads": sum(r["read"]["ios"] for r in self.results + self.checks), "writes": sum(r["write"]["ios"] for r in self.results)}
        return sums | {"lost": sum(r["miscompares"] for r in self.checks), "stale": sum(r["miscompares"] for r in self.results),
                       "errors": sum(r["errors"] for r in self.results)}


@contextlib.contextmanager
def random_scene(kind=RandomGateway, number=2, store=EtcdServer, make=RandomScene):
    with scene(kind, number, store) as s, Target(cores=f"[{NUM_CPUS - 1}]", port=PORT + 10, trtype="TCP") as front:
        front.call("bdev_nvme_set_options", keep_alive_timeout_ms=KATO_MS)
        r = make(s, front, number)
        observer = Observer(r)
        try:
            wait_for(r.settled, r.account)
            wait_io(front, r.hosts)
            observer.start()
            yield r, observer
        finally:
            observer.over.set()
            if observer.ident is not None:
                observer.join(DEADLINE)
            for h in r.hosts:
                h.__exit__()


def happen(r, observer, kinds, seconds, seed):
    """Everything at once for so long, or until something is found."""
    rng = random.Random(seed)
    actors = [Actor(r, rng.getrandbits(32), events) for events in kinds]
    for a in actors:
        a.start()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and not observer.found and not any(x.failure for x in (observer, *actors)):
            if not all(h.is_running() for h in r.hosts):
                raise Failure(f"a host has ended\n{r.account()}")
            time.sleep(0.1)     # the time that it takes
    finally:
        for a in actors:
            a.over.set()
        for a in actors:
            a.join(2 * DEADLINE)
    for x in (observer, *actors):
        if x.failure:
            raise Failure(f"{type(x.failure).__name__}: {x.failure}\n{r.account()}") from x.failure
    check(not any(a.is_alive() for a in actors), f"an event did not end:\n{r.account()}")
