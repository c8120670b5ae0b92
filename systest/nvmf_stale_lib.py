# SPDX-License-Identifier: BSD-3-Clause
"""Two targets (left and right) that have one file, each through a varve of its own, its store, which can be stopped: then writes have begun that
the target cannot take back. Fronts reach the file through both targets, and hosts of the fronts verify what they read. Old writes must not land behind new ones, whatever happens to the targets and the connections."""
import collections
import concurrent.futures
import json
import pathlib
import random
import signal
import shutil
import subprocess
import tempfile
import threading
import time

from appliance_lib import DEADLINE, VARVE, Daemon, Failure, RpcError, check, wait_for
from faults_lib import PROGRAM, Area
from nvmf_lib import NQN, NUM_CPUS, PERF, PORT, Host, Target, preload, wait_io

SHARED = "nqn.2026-11.io.varve:shared"
UUID = "8d1f6c1e-55b1-4a5e-9f0e-0123456789ab"
KATO_MS = 2000
QUIESCE_MS = 2500           # quiesce_limit_ms of the targets, whose CQT is that and a quarter of KATO_MS
FENCE_MS = 3 * KATO_MS + QUIESCE_MS + KATO_MS // 4      # how long a front waits for a target that says nothing
REGION_KB = 128             # of each host: small, so that each block is often written and read
STORE = "EE_Slow"           # a bdev with faults over one with delays over the file
# Writes that have begun and hang, in a process that is stopped meanwhile, end within the time of a fence (3 x KATO + CQT): later ones may land
# behind newer ones (doc/host.md has that window).
HANG_MS = 1500
STALL_MS = 2000
PAUSE_MS = 4000
CALM = {"avg_read": 0, "p99_read": 0, "avg_write": 0, "p99_write": 0}


class Store(Target):
    """What a back's device is. It outlives the back's process."""

    def __init__(self, number, disk):
        super().__init__(port=PORT + 20008 + number)
        try:
            self.add_file("F0", disk, mb=4, shared=True)
            self.add_ns("F0", nsid=1)
        except BaseException:
            self.__exit__()
            raise

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def where(self):
        return {**self.listen_address(), "subnqn": NQN}


class Back(Target):
    """One of the two that have the file. What it is called, and where it listens, outlives the process. Fronts reach it over trtype."""

    def __init__(self, number, store, hosts, faults=False):
        """faults: calls of verbs, memory and system can be made to fail (faults_lib.py)."""
        self.number, self.port = number, PORT + 20000 + number
        self.area = Area() if faults else None
        self.program = PROGRAM if faults else VARVE
        try:
            Daemon.__init__(self, "-m", "[0,1]" if NUM_CPUS > 1 else "[0]", "-s", "512", "--wait-for-rpc", ready=False,
                            env={**preload(), **(self.area.env() if faults else {})})
        except BaseException:
            self.close_area()
            raise
        try:
            wait_for(self.connect, "the RPC socket").close()
            self.call("nvmf_set_config", quiesce_limit_ms=QUIESCE_MS)
            self.call("framework_start_init")
            self.call("nvmf_create_transport", trtype=self.trtype)
            self.call("nvmf_create_subsystem", nqn=SHARED, serial_number="SHARED", ana_reporting=True, max_namespaces=8,
                      min_cntlid=1 + 1000 * number, max_cntlid=1000 + 1000 * number)
            self.call("bdev_nvme_set_options", keep_alive_timeout_ms=60000)      # a stopped store is waited for
            self.call("bdev_nvme_attach_controller", name="F", ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, **store.where())
            self.call("bdev_delay_create", name="Slow", base_bdev_name="Fn1", **{f"{x}_latency": us for x, us in CALM.items()})
            self.call("bdev_error_create", base_name="Slow")
            self.add_shared_ns()
            for host in hosts:
                self.call("nvmf_subsystem_add_host", nqn=SHARED, host=host)
            self.add_listener(SHARED)
        except BaseException:
            self.__exit__()
            raise

    def add_shared_ns(self):
        self.call("nvmf_subsystem_add_ns", nqn=SHARED, namespace={"bdev_name": STORE, "uuid": UUID, "nsid": 1, "anagrpid": 1})

    def add_peer(self, other):
        self.call("nvmf_subsystem_add_peer", nqn=SHARED, path=str(other.path), timeout_ms=60000)

    def remove_listener(self):
        self.call("nvmf_subsystem_remove_listener", nqn=SHARED, listen_address=self.listen_address())

    def set_ana(self, state):
        self.call("nvmf_subsystem_listener_set_ana_state", nqn=SHARED, listen_address=self.listen_address(), ana_state=state)

    def set_rate(self, ios_per_sec):
        """0: no limit."""
        self.call("bdev_set_qos_limit", name=STORE, rw_ios_per_sec=ios_per_sec)

    def set_delay(self, us):
        for kind in CALM:
            self.call("bdev_delay_update_latency", delay_bdev_name="Slow", latency_type=kind, latency_us=us)

    def hang(self, num):
        self.call("bdev_error_inject_error", name=STORE, io_type="write", error_type="pending", num=num)

    def unhang(self):
        self.call("bdev_error_inject_error", name=STORE, io_type="clear", error_type="pending", num=0)
        self.call("bdev_error_resume_pending", name=STORE)

    def where(self):
        return {**self.listen_address(), "subnqn": SHARED}

    def is_stopped(self):
        return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        super().__exit__(*exc)
        self.close_area()

    def close_area(self):
        if self.area is not None:
            self.area.close()
            self.area = None


class Front(Target):
    """Serves the shared namespace as its own; it reaches it through every back."""

    def __init__(self, number, options):
        super().__init__(cores=f"[{number % NUM_CPUS}]", port=PORT + number)
        self.hostnqn = front_nqn(number)
        try:
            self.call("bdev_nvme_set_options", **{"keep_alive_timeout_ms": KATO_MS, **options})
        except BaseException:
            self.__exit__()
            raise

    def attach(self, back):
        self.call("bdev_nvme_attach_controller", name="Nvme0", hostnqn=self.hostnqn, ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1,
                  **back.where())

    def ctrlrs(self):
        return self.call("bdev_nvme_get_controllers", name="Nvme0")[0]["ctrlrs"]

    def fences(self):
        return self.call("bdev_nvme_get_controllers", name="Nvme0")[0]["fences"]

    def io_paths(self):
        return [p for g in self.call("bdev_nvme_get_io_paths", name="Nvme0n1")["poll_groups"] for p in g["io_paths"]]

    def current(self):
        """Ports of the paths that I/O takes now."""
        return {int(p["transport"]["trsvcid"]) for p in self.io_paths() if p["current"]}

    def is_settled(self):
        return [c["state"] for c in self.ctrlrs()] == ["enabled"] * 2 and all(p["accessible"] and p["connected"] for p in self.io_paths())

    def reset(self, back):
        for c in self.ctrlrs():
            if c["trid"]["trsvcid"] == str(back.port):
                self.call("bdev_nvme_reset_controller", name="Nvme0", cntlid=c["cntlid"])

    def prefer(self, back):
        for c in self.ctrlrs():
            if c["trid"]["trsvcid"] == str(back.port):
                self.call("bdev_nvme_set_preferred_path", name="Nvme0n1", cntlid=c["cntlid"])


def front_nqn(number):
    return f"{NQN}:front{number}"


def check_ledger(what, ledger, *where):
    """Reads each block of a host's region once more. What varve-perf counted, and what it said."""
    p = subprocess.run([PERF, "--no-huge", "-m", f"[{NUM_CPUS - 1}]", "-s", "128", "-j", "--quiet", "--check-ledger", ledger, *where],
                       capture_output=True, text=True, timeout=DEADLINE, env=preload(), check=False)
    check(p.returncode in (0, 1) and p.stdout, f"{what}: varve-perf ended with {p.returncode}: {p.stderr}")
    result = json.loads(p.stdout)
    check(result["errors"] == 0 and result["read"]["ios"] == REGION_KB // 4, f"{what}: {result} {p.stderr}")
    return result, p.stderr


class Scene:
    """num_fronts fronts with one host each, on regions of their own. options: of the fronts' bdev_nvme_set_options."""

    def __init__(self, num_fronts=1, options=None, rate=400, depth=16, faults=False):
        self.num_fronts, self.options = num_fronts, options or {}
        self.rate, self.depth, self.faults = rate, depth, faults
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-stale-"))
        self.disk = self.folder / "disk"
        self.stores, self.backs, self.fronts, self.hosts, self.gone = [None, None], [None, None], [], [], []
        self.begun = time.monotonic()
        self.events = []
        self.results = []           # of the hosts
        self.checks = []            # of what is in the store when all has ended
        self.faults_armed = self.faults_fired = 0
        self.fault_sites = set()    # where they were
        self.ending = [False] * 2   # by back: it is about to end, for which its store must not hang
        self.store_lock = threading.Lock()
        self.configuring = [threading.Lock() for _ in range(2)]     # by back: no faults while it is held

    def __enter__(self):
        try:
            with concurrent.futures.ThreadPoolExecutor() as pool:
                for side in [pool.submit(self.make_side, i) for i in range(2)]:
                    side.result()
            for i in range(self.num_fronts):
                f = Front(i, self.options)
                self.fronts.append(f)
                for b in self.backs:
                    f.attach(b)
                f.add_ns("Nvme0n1")
            for i, f in enumerate(self.fronts):
                self.hosts.append(self.make_host(i, f))
            for f, h in zip(self.fronts, self.hosts):
                wait_io(f, [h], 200 + REGION_KB // 4)
            return self
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(self, *exc):
        for part in filter(None, (*self.hosts, *self.fronts, *self.backs, *self.stores, *self.gone)):
            part.__exit__(*exc)
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_side(self, number):
        self.stores[number] = Store(number, self.disk)
        self.backs[number] = self.make_back(number)

    def make_back(self, number):
        return Back(number, self.stores[number], [front_nqn(i) for i in range(self.num_fronts)], self.faults)

    def make_host(self, number, front):
        return Host(front, "-w", "randrw", "--verify", "--region", f"{REGION_KB}k", "--region-start", f"{number * REGION_KB}k",
                    "-q", str(self.depth), "--rate", str(self.rate), "-t", "36000", "--kato", "30000", "--ledger", str(self.ledger(number)),
                    nsid=1, hostnqn=f"{NQN}:host{number}")

    def ledger(self, number):
        return self.folder / f"ledger{number}"

    def say(self, text):
        self.events.append(f"{time.monotonic() - self.begun:8.3f} s  {text}")

    def restart(self, number, end):
        """Ends a back and starts it again. end(): how."""
        old = self.backs[number]
        end(old)
        self.gone.append(old)
        self.backs[number] = self.make_back(number)

    # ---- The end ----

    def start_again(self):
        """The backs that have ended."""
        for i, b in enumerate(self.backs):
            if b.process.poll() is not None:
                self.restart(i, lambda b: None)

    def settle(self):
        """Everything works again, and all that waited anywhere has had the time to be carried out."""
        for f in self.fronts:
            wait_for(f.is_settled, lambda f=f: f"both paths to be back: {f.io_paths()} {f.ctrlrs()}")
        self.work()

    def work(self, more=300):
        for f, h in zip(self.fronts, self.hosts):
            wait_io(f, [h], more)

    def stop_hosts(self):
        for h in self.hosts:
            self.results.append(h.stop())

    def check_store(self):
        """All blocks once more: through each front, from each target, and from the file. Returns the miscompares."""
        for i, f in enumerate(self.fronts):
            self.check_by(f"front {i}", i, "-r", f.trid(), "--hostnqn", f"{NQN}:host{i}")
            for b in self.backs:
                self.check_by(f"target {b.number}", i, "-r", b.trid(SHARED), "--hostnqn", f.hostnqn)
        for part in (*self.fronts, *self.backs, *self.stores):
            check(part.stop() == 0, f"varve ended with {part.process.returncode}:\n{part.log()[-8000:]}")
        for i in range(self.num_fronts):
            self.check_by("the file", i, "-b", f"file:{self.disk}")

    def check_by(self, what, number, *args):
        result, said = check_ledger(f"{what}, host {number}", self.ledger(number), *args)
        if result["miscompares"]:
            self.say(f"{what}, host {number}, when all had ended:\n{said}")
        self.checks.append(result)

    def is_seen(self):
        """Whether a host has found old data already."""
        return any("miscompare:" in h.errors.read_text() for h in self.hosts)

    def miscompares(self):
        return self.stale() + self.lost()

    def stale(self):
        """Blocks that a host read and that were not what was written last."""
        return sum(r["miscompares"] for r in self.results)

    def lost(self):
        """Blocks that are not in the store as they were written last, when all has ended."""
        return sum(r["miscompares"] for r in self.checks)

    def reads(self):
        return sum(r["read"]["ios"] for r in self.results + self.checks)

    def writes(self):
        return sum(r["write"]["ios"] for r in self.results)

    def errors(self):
        return sum(r["errors"] for r in self.results + self.checks)

    def account(self):
        """For a message."""
        return "\n".join([f"{self.miscompares()} miscompares, {self.errors()} errors", *self.events,
                          *(h.errors.read_text()[-4000:] for h in self.hosts if h.errors.exists())])

    def finish(self):
        """Stops all; what the hosts read, and what is in the store, must be right."""
        self.settle()
        self.stop_hosts()
        self.check_store()
        self.check_perfect()

    def errors_are_documented(self):
        """A write that was lost again and again, and held by a fence each time, is aborted by its host after 30 s."""
        return self.errors() == 0 or any("has had no answer for 30000 ms" in h.errors.read_text() for h in self.hosts)

    def check_perfect(self):
        check(self.miscompares() == 0 and self.errors_are_documented(), self.account())
        print(f"# {self.reads()} reads, {self.writes()} writes verified", flush=True)


# ---- Everything at once ----

class Actor(threading.Thread):
    """Makes one event after the other, each of which it takes back, until it is told to end."""

    def __init__(self, scene, seed, events):
        super().__init__(daemon=True)
        self.scene, self.rng, self.events = scene, random.Random(seed), events
        self.over = threading.Event()
        self.failure = None
        self.made = 0       # events

    def rest(self, low, high):
        self.over.wait(self.rng.uniform(low, high))

    def run(self):
        try:
            while not self.over.is_set():
                self.rest(0.2, 1.8)
                if not self.over.is_set():
                    self.made += 1
                    self.rng.choice(self.events)(self)
        except BaseException as e:  # pylint: disable=broad-except
            self.failure = e


def attempt(function, *args):
    """A call that may fail: its target may be ended or replaced meanwhile. False: it failed."""
    try:
        function(*args)
        return True
    except (RpcError, Failure, OSError):
        return False


class BackEvents:
    """What happens to one back: its connections and its process."""

    def __init__(self, scene, number, one_absent):
        self.scene, self.number = scene, number
        self.one_absent = one_absent    # held while the back is without its namespace: a front needs one path to keep its bdev
        self.all = [self.listener, self.ana, self.namespace, self.host, self.terminate, self.kill, *[self.pause] * 3,
                    *[self.kill_stalled] * 6]

    def back(self):
        return self.scene.backs[self.number]

    def say(self, text):
        self.scene.say(f"target {self.number}: {text}")

    def do(self, function, *args, **params):
        with self.scene.configuring[self.number]:
            return function(*args, **params)

    def listener(self, actor):
        self.say("listener removed")
        self.do(self.back().remove_listener)
        actor.rest(0, 3)
        self.do(self.back().add_listener, SHARED)
        self.say("listener added")

    def ana(self, actor):
        state = actor.rng.choice(["inaccessible", "non_optimized"])
        self.say(state)
        self.do(self.back().set_ana, state)
        actor.rest(0, 2)
        self.do(self.back().set_ana, "optimized")
        self.say("optimized")

    def namespace(self, actor):
        with self.one_absent:
            self.say("namespace removed")
            self.do(self.back().set_ana, "inaccessible")    # first: a command for a namespace that is not there fails
            self.wait_ana("inaccessible")
            self.do(self.back().remove_ns, 1, SHARED)
            actor.rest(0, 2)
            self.do(self.back().add_shared_ns)
            self.do(self.back().set_ana, "optimized")
            self.say("namespace added")
            for f in self.scene.fronts:
                wait_for(lambda f=f: any(p["transport"]["trsvcid"] == str(self.back().port) for p in f.io_paths()), "the namespace to be seen")

    def wait_ana(self, state):
        """Until no front would use the path."""
        for f in self.scene.fronts:
            wait_for(lambda f=f: not any(p["accessible"] for p in f.io_paths() if p["transport"]["trsvcid"] == str(self.back().port)),
                     f"{state} to be noticed")

    def host(self, actor):
        nqn = front_nqn(actor.rng.randrange(self.scene.num_fronts))
        self.say(f"host removed: {nqn}")
        self.do(self.back().call, "nvmf_subsystem_remove_host", nqn=SHARED, host=nqn)
        actor.rest(0, 2)
        self.do(self.back().call, "nvmf_subsystem_add_host", nqn=SHARED, host=nqn)
        self.say("host added")

    def pause(self, actor):
        """Often for a time in which its hosts give it up, but it forgives the absence: only a fence helps then. Otherwise shorter or longer."""
        ms = actor.rng.choice([actor.rng.uniform(0.5, 1) * KATO_MS, actor.rng.uniform(100, PAUSE_MS)])
        process = self.back().process
        self.say("SIGSTOP")
        process.send_signal(signal.SIGSTOP)
        actor.over.wait(ms / 1000)
        process.send_signal(signal.SIGCONT)
        self.say("SIGCONT")

    def terminate(self, actor):
        """It waits for what its store has begun, so the store must not hang for ever."""
        with self.scene.store_lock:
            self.scene.ending[self.number] = True
        attempt(self.back().unhang)

        def end(b):
            self.say("SIGTERM")
            check(b.stop() == 0, f"varve ended with {b.process.returncode}:\n{b.log()[-8000:]}")
            actor.rest(0, 1)
        self.do(self.scene.restart, self.number, end)
        self.scene.ending[self.number] = False
        self.say("started")

    def kill(self, actor):
        def end(b):
            self.say("SIGKILL")
            b.process.kill()
            b.process.wait()
            actor.rest(0, 1)
        self.do(self.scene.restart, self.number, end)
        self.say("started")


    def kill_stalled(self, actor):
        """Its store has some of its writes, and carries them out a little later."""
        store = self.scene.stores[self.number]

        def end(b):
            store.pause()
            actor.over.wait(actor.rng.uniform(0.2, 0.5))
            self.say("SIGKILL, while its store is stopped")
            b.process.kill()
            b.process.wait()
            actor.over.wait(actor.rng.uniform(0.3, 1))
            store.go_on()
        self.do(self.scene.restart, self.number, end)
        self.say("started")


class StoreEvents:
    """What happens to one back's store. Its process may be stopped or ended meanwhile."""

    def __init__(self, scene, number):
        self.scene, self.number = scene, number
        self.all = [self.rate, self.delay, self.hang, *[self.stall] * 3]

    def spell(self, actor, what, begin, end, longest_ms=3 * KATO_MS):
        back = self.scene.backs[self.number]
        self.scene.say(f"target {self.number}: {what}")
        attempt(begin, back)
        actor.rest(0.5, longest_ms / 1000)
        attempt(end, back)
        self.scene.say(f"target {self.number}: store as before")

    def rate(self, actor):
        self.spell(actor, "2 I/Os per second", lambda b: b.set_rate(2), lambda b: b.set_rate(0))

    def delay(self, actor):
        us = actor.rng.choice([20000, 500000, int(KATO_MS * 1500)])
        self.spell(actor, f"delay of {us} us", lambda b: b.set_delay(us), lambda b: b.set_delay(0))

    def hang(self, actor):
        def begin(back):
            with self.scene.store_lock:
                if not self.scene.ending[self.number]:
                    back.hang(64)
        self.spell(actor, "writes hang", begin, lambda b: b.unhang(), HANG_MS)


    def stall(self, actor):
        """What the back has begun stays with the store, also when the back is stopped or killed."""
        store = self.scene.stores[self.number]
        self.scene.say(f"store {self.number}: SIGSTOP")
        store.pause()
        actor.over.wait(actor.rng.uniform(100, STALL_MS) / 1000)
        store.go_on()
        self.scene.say(f"store {self.number}: SIGCONT")


class FrontEvents:
    def __init__(self, scene):
        self.scene = scene
        self.all = [self.reset, self.prefer]

    def choose(self, actor):
        return actor.rng.choice(self.scene.fronts), actor.rng.choice(self.scene.backs)

    def reset(self, actor):
        front, back = self.choose(actor)
        self.scene.say(f"{front.hostnqn} resets target {back.number}")
        done = attempt(front.reset, back)
        self.scene.say(f"{front.hostnqn} {'has reset' if done else 'could not reset'} target {back.number}")

    def prefer(self, actor):
        front, back = self.choose(actor)
        self.scene.say(f"{front.hostnqn} prefers target {back.number}")
        attempt(front.prefer, back)


# Where a fault ends no more than a connection or a command.
FAULT_SITES = ("malloc", "calloc", "aligned_alloc", "rdma_create_qp", "rdma_accept", "ibv_create", "ibv_post_send", "ibv_post_recv", "completion",
               "nvmf_req_state", "nvmf_qpair_state", "nvmf_ctrlr_state", "bdev completion", "io_uring_submit")
FAULT_S = 4     # a fault waits so long for its site to be passed


class FaultEvents:
    """Calls of one back fail: never while it is configured, for that must succeed."""

    def __init__(self, scene, number):
        self.scene, self.number = scene, number
        self.all = [self.fault]

    def fault(self, actor):
        """At a site that the I/O, connections or timers of this moment pass: one of long ago would not be passed again while it waits for that."""
        with self.scene.configuring[self.number]:
            back = self.scene.backs[self.number]
            before = back.area.hits()
            actor.rest(0.2, 0.5)
            sites = recently_hit(before, back.area.sites().values())
            if not sites or back.process.poll() is not None:
                return
            site = actor.rng.choice(sites)
            back.area.arm(site.key, actor.rng.randrange(min(5, site.hits - before.get(site.key, 0))))
            self.scene.faults_armed += 1
            end = time.monotonic() + FAULT_S
            while not back.area.fired() and time.monotonic() < end and not actor.over.wait(0.05):
                pass
            if back.area.disarm():
                self.scene.faults_fired += 1
                self.scene.fault_sites.add(site.key)
                self.scene.say(f"target {self.number}: a fault at {site.name}")


def recently_hit(before, sites):
    """Of the sites where a fault may be, those that were passed since `before` (hits by key), each kind (malloc, completion) as often as the
    others: most passages are those of I/O."""
    kinds = collections.defaultdict(list)
    for s in sites:
        if s.name.startswith(FAULT_SITES) and s.hits > before.get(s.key, 0):
            kinds[next(k for k in FAULT_SITES if s.name.startswith(k))].append(s)
    longest = max(map(len, kinds.values()), default=0)
    return [some[i % len(some)] for some in kinds.values() for i in range(longest)]


def sweep(scene, seconds, seed, until=lambda: False):
    """Everything at once for so long (5 s and more: each actor begins within 2 s), or until something is so."""
    rng = random.Random(seed)
    one_absent = threading.Lock()
    kinds = [BackEvents(scene, i, one_absent).all for i in range(2)] + [StoreEvents(scene, i).all for i in range(2)] + [FrontEvents(scene).all]
    if scene.faults:
        kinds += [FaultEvents(scene, i).all for i in range(2)]
    actors = [Actor(scene, rng.getrandbits(32), events) for events in kinds]
    scene.say(f"seed {seed}")
    for a in actors:
        a.start()
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and all(h.is_running() for h in scene.hosts) and not any(a.failure for a in actors) and not until():
            time.sleep(0.1)     # the time that the sweep takes
    finally:
        for a in actors:
            a.over.set()
        for a in actors:
            a.join(2 * DEADLINE)
    for a in actors:
        check(not a.is_alive(), f"an event did not end:\n{scene.account()}")
        if a.failure:
            raise Failure(f"{type(a.failure).__name__}: {a.failure}\n{scene.account()}") from a.failure
        check(a.made > 0 or time.monotonic() < end, f"{a.events[0].__qualname__} and the others like it: nothing was done\n{scene.account()}")
