# SPDX-License-Identifier: BSD-3-Clause
"""varve-faults, as the tests use it: the sites at which it makes calls, calls that fail on request (systest/faults/faults.h), and the sweep over
all sites that a row of scenarios comes by."""
import base64
import collections
import json
import mmap
import os
import pathlib
import random
import re
import struct
import subprocess
import tempfile
import threading
import time
import zlib

from appliance_lib import BUILD, DEADLINE, Daemon, Failure, RpcError, check, wait_for
from nvmf_lib import NQN, PORT, Target, preload, verifying, wait_io

PROGRAM = BUILD / "systest" / "varve-faults"
SITES, DEPTH = 8192, 3
HEADER = struct.Struct("<QqqqIiIIi12x")
SITE = struct.Struct("<Q3QQqqq40s16x")
BREAK, KILL, DELAY, LIE = range(4)
BY_NAME = 2


class Site:
    """A place that a call is made from, with its callers; or a state, or a kind of completion."""

    def __init__(self, index, fields):
        self.index = index
        self.key, *self.pcs, self.detail, self.hits, self.faults, self.live, name = fields
        self.name = name.split(b"\0")[0].decode()

    def is_state(self):
        return "_state" in self.name or "qpair" in self.name and "ibv" not in self.name and "rdma" not in self.name


class Area:
    """The file that varve-faults and the test have mapped."""

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="varve-faults-")
        self.file.truncate(HEADER.size + SITES * SITE.size)
        self.path = pathlib.Path(self.file.name)
        self.map = mmap.mmap(self.file.fileno(), HEADER.size + SITES * SITE.size)

    def env(self):
        return {"VARVE_FAULTS": str(self.path)}

    def sites(self):
        """Those that have been seen, by key."""
        check(struct.unpack_from("<I", self.map, 44)[0] == 0, "the table of sites is full")
        found = {}
        for i in range(SITES):
            at = HEADER.size + i * SITE.size
            if self.map[at:at + 8] != bytes(8):
                s = Site(i, SITE.unpack_from(self.map, at))
                found[s.key] = s
        return found

    def hits(self):
        return {s.key: s.hits for s in self.sites().values()}

    def live(self):
        """What was given at each site and not given back."""
        return {s.key: s.live for s in self.sites().values() if s.live}

    def arm(self, key, skip=0, times=1, action=BREAK, victim=0):
        struct.pack_into("<qqq", self.map, 8, skip, times, 0)
        struct.pack_into("<i", self.map, 48, 0)
        struct.pack_into("<Ii", self.map, 32, action, victim)
        struct.pack_into("<Q", self.map, 0, key)

    def arm_all(self, name, times=1 << 40):
        """All sites whose name begins so (11 letters at most), those too that have not been seen."""
        struct.pack_into("<12s", self.map, 52, name.encode())
        self.arm(BY_NAME, times=times)

    def set_victim(self, pid):
        struct.pack_into("<i", self.map, 36, pid)

    def disarm(self):
        """Returns how often it has failed."""
        struct.pack_into("<Q", self.map, 0, 0)
        return self.fired()

    def fired(self):
        return struct.unpack_from("<q", self.map, 24)[0]

    def effects(self):
        """What faults at changes of state have broken or killed since arm()."""
        return struct.unpack_from("<i", self.map, 48)[0]

    def protect(self):
        """Queue pairs that there are are left alone from now on; later ones are not."""
        struct.pack_into("<I", self.map, 40, 1)

    def close(self):
        self.map.close()
        self.file.close()


def symbols(addresses):
    """Where each is: {address: "function file:line"}."""
    addresses = sorted({a for a in addresses if a})
    out = subprocess.run(["addr2line", "-f", "-s", "-e", PROGRAM], input="\n".join(hex(a - 1) for a in addresses), capture_output=True,
                         text=True, check=True).stdout.splitlines()
    return {a: f"{out[2 * i]} {out[2 * i + 1].split(' ')[0]}" for i, a in enumerate(addresses)}


def name_sites(sites):
    """{key: text}"""
    where = symbols(pc for s in sites for pc in s.pcs)
    names = {}
    for s in sites:
        chain = " < ".join(where[pc] for pc in s.pcs if pc)
        names[s.key] = f"{s.name}{'' if not s.detail else f' [{s.detail:#x}]'}{' in ' if chain else ''}{chain}"
    return names


# The sweep. VARVE_FAULTS_SECONDS bounds its time (0: every site of every scenario), VARVE_FAULTS_ONLY is a text that a site's name must
# contain. Each kind of site is tried once at first, always the same one. VARVE_SEED makes the order of all others, and so what time cuts off:
# by default it is another one in each run, so that in time all are tried.
SECONDS = float(os.environ.get("VARVE_FAULTS_SECONDS", "400"))
SEED = int(os.environ.get("VARVE_SEED", "0")) or time.time_ns() % 1000000
ONLY = os.environ.get("VARVE_FAULTS_ONLY", "")
STATE = re.compile(r"(nvme|nvmf|bdev_nvme)_[a-z_]+( |$)")
ONCE = 1        # seconds; what a fault has left is then looked at a second time
WORKERS = 2     # each is five processes at work, and more have kept each other from starting in time
RATE = 200      # I/O per second of each steady host: enough to notice what it should not, and leaves the CPUs to the faults

# What of the trace shows faults: the lines of the log, changes of state, I/O that ended with an error, what devices and the connection
# manager report. Rings that hold what a scenario brings, however long a fault makes it.
TRACE = ("-e", "appliance,nvmf,nvme,bdev:BDEV_IO_DONE+BDEV_STATE+BDEV_DIF_ERROR,nvmf_rdma:RDMA_IBV_ASYNC_EVENT+RDMA_CM_ASYNC_EVENT",
         "--num-trace-entries", str(1 << 18))

# Faults that neither the log nor the trace says anything of, and why they need not: what a site's name matches.
SILENT = (
    (r"^nvmf_\w+_(state|state_done)\b|^nvmf_(poll_group|transport)_|^nvme_ctrlr_state \[0x(e0f|f10)\]",
     "a queue pair that comes into the error state by itself, with nothing but flushed work, is what a host leaves behind that goes: the line is the same"),
    (r"^nvme_ctrlr_state \[0x111\]|^bdev_nvme_qpair_state \[0x(203|300)\]|^bdev_nvme_state \[0x104\]",
     "an attempt that has failed (CONNECT to BACK_OFF), a path that is being or has just been stopped (UP, STOPPING, IDLE: its controller is being "
     "reset or detached) and a controller that is being detached (UP to DETACHING) have nothing left to lose"),
    (r"^ibv_get_cq_event |^rdma_get_cm_event |^ibv_get_async_event ", "there is none: what it says each time at the end"),
    (r"^rdma_disconnect |^rdma_destroy_id |^rdma_destroy_qp ", "it has ended already, or ends in any case"),
    (r"^(recv|read) in conn_|^(sendmsg|send|write) in rpc_outq_send ", "a client has left, as clients do: log flag rpc_conn"),
    (r"^(write|epoll_pwait2|epoll_wait) in (reactor_notify|epoll_wait_ns|poll_sockets) ", "a signal: it is done again"),
    (r"^write in resv_write_all resv_store", "a signal: it is done again (the test of the reservation's file has the other errors)"),
    (r"^unlink in resv_write_new resv_store", "there is nothing in its place, or the new file cannot be made, and that is told"),
    (r"^write in log_write ", "the log itself"),
    (r"^rte_malloc_socket in heap_alloc", "a heap that is full grows"),
    (r"^calloc in fd_source_add_for \S+ < poller_enter ", "what has no descriptor to wait for is polled all the time: its reactor stays awake"),
    (r"^malloc in write_all_settings ", "they are all written, in another order"),
    (r"^nvme completion \[0xc\]", "a request for events need not be answered; one that is refused is told of"),
    (r"^nvme completion \[0x(10[12]|17f017f)\]", "one that is never answered is lost with its connection, if that ends before its time is up, as one does "
     "in each row, and is carried out by another; one that ends with an error is told of"),
    (r"^madvise ", "an advice: without it a dump is larger, or pages are small"),
    (r"^getnameinfo in name_(socket_)?address |^getsockname in name_local_address ", "the address is left out where it would be shown"),
    (r"^(fopen64|opendir|read|fstat64) in (env_memory_read|hugepages_read_number|cgroup_available|env_cgroup_available|cgroup_file_pages|env_available_bytes|env_available_ordinary_bytes|env_mem_stats) ",
     "how much memory there is is for a refusal in time only: the allocation tells as well"),
    (r"^io_uring_submit in uring_submit_prepared ", "it is done again"),
    (r"^access in blackbox_set_opts ", "a parameter that cannot be: the caller is told"),
    (r"^getsockname in metrics_note_address |^setsockopt in metrics_listen_tcp ", "shown is what was asked for; a port that is not free yet is named when it is bound"),
    (r"^OPENSSL_\w+ in (challenge_augment|hmac_compute|hmac_run) hash|^OPENSSL_\w+ in (dh_secret_derive|dh_key_generate) dh",
     "what OpenSSL keeps to be faster, it does without: the authentication succeeds. (When it does not, both say so.)"),
    (r"^(epoll_ctl|malloc|shutdown) in nvmf_tcp_socket_leave |^recv in nvmf_tcp_leaver_readable |^shutdown in nvme_tcp_qpair_stop ",
     "the connection has ended already: its socket is closed at once, and does not wait for its host to close"),
    (r"^recvmsg in receive |^recv in read_socket session|^sendmsg in (send_pieces|zerocopy_sendmsg) |^send in nvmf_tcp_qpair_send_now ", "the host has gone, as hosts do: the trace has the end of its queue pair"),
    (r"^recvmsg in tcp_zerocopy_read ", "what the kernel has to tell it tells the next time"),
    (r"^recv in look_at_record ", "a host tries again with the other version of its identity, as where a target closes the connection over one that it does not know"),
    (r"^malloc in waiter_add ctrlr\.c:\d+ < entry_detach discovery", "the controller is detached nevertheless: only nobody waits for it"),
)
# Those of which only the log says nothing, and only the trace.
SILENT_IN = {
    "log": (
        (r"^bdev completion ", "the host is told by the status of its command; the trace and the statistics have it"),
    ),
    "trace": (
    ),
}


class Victim(Target):
    """varve-faults with a host of its own at work on a namespace of its own, which is to notice nothing."""
    program = PROGRAM
    options = ()        # that it is started with

    def __init__(self, worker=0):
        self.area = Area()
        self.steady = []
        try:
            Daemon.__init__(self, "-m", "[0]", "-s", "512", *TRACE, *self.options, env={**preload(*self.libraries), **self.area.env()})
        except BaseException:
            self.area.close()
            raise
        self.port = PORT + 2 * worker
        try:
            self.call("nvmf_create_transport", trtype=self.trtype)
            self.add_subsystem(NQN)
            self.call("bdev_malloc_create", name="Steady", block_size=512, num_blocks=32768)
            self.add_ns("Steady", nsid=1)
            self.begin()
            self.steady.append(self.host(1))
            wait_for(lambda: self.num_qpairs() == 2 * len(self.steady), "the steady hosts to be connected")
            wait_io(self, self.steady, 50)
            self.area.protect()
        except BaseException:
            self.__exit__()
            raise

    def begin(self):
        """For more that is steady."""

    def host(self, nsid):
        return verifying(self, nsid, "-t", "36000", "-q", "4", "--kato", "0", "--rate", str(RATE), hostnqn=f"{NQN}:{nsid}:steady")

    def __exit__(self, *exc):
        for h in self.steady:
            if h.is_running():
                h.kill()
        super().__exit__(*exc)
        self.area.close()

    def check_steady(self):
        for h in self.steady:
            check(h.is_running(), f"the other host ended:\n{h.errors.read_text()}")

    def end(self):
        """What has been verified."""
        results = [h.stop() for h in self.steady]
        try:
            for h, r in zip(self.steady, results):
                h.check_perfect(r)
        except Failure as e:
            raise Failure(f"{e}\nwhat the log says of it:\n" + "\n".join(x for x in self.log().splitlines() if ":steady" in x)) from None
        return sum(r["read"]["ios"] + r["write"]["ios"] for r in results)


def descriptors(t):
    """What they are of, counted."""
    found = collections.Counter()
    for fd in pathlib.Path(f"/proc/{t.pid}/fd").iterdir():
        try:
            found[re.sub(r"[0-9]+", "#", os.readlink(fd))] += 1
        except OSError:         # closed meanwhile
            pass
    return found


def strict(t, method, **params):
    return t.call(method, **params)


def tolerant(t, method, **params):
    """A call that may fail, or whose connection may end."""
    try:
        return t.call(method, **params)
    except (RpcError, Failure, OSError):
        return None


def secret(seed):
    raw = bytes(seed + i for i in range(32))
    return f"DHHC-1:00:{base64.b64encode(raw + struct.pack('<I', zlib.crc32(raw))).decode()}:"


def add_keys(daemon, say=strict):
    """What scenarios authenticate with: a host's key, and a controller's."""
    for name, seed in (("key", 1), ("ctrlr", 2)):
        path = daemon.folder / f"{name}.key"
        path.touch(mode=0o600)
        path.write_text(secret(seed) + "\n")
        say(daemon, "keyring_file_add_key", name=name, path=str(path))


def said(text):
    """What a log says, without its times and numbers."""
    return {re.sub(r"0x[0-9a-f]+|[0-9]+", "#", line.partition("]")[2]) for line in text.splitlines()}


def shown(trace):
    """What a trace (varve-trace -j) shows, without its times, numbers and objects."""
    tpoints = {t["id"]: (t["name"], [a["name"] for a in t["args"]]) for t in trace["tpoints"]}
    lines, last, found = [], {}, set()      # last: of each ring; long lines are in several events
    for e in trace["entries"]:
        name, args = tpoints[e["tpoint"]]
        args = dict(zip(args, e.get("args", [])))
        if name == "LOG_LINE":
            if args["at"] == 0:
                last[e["lcore"]] = []
                lines.append(last[e["lcore"]])
            last.get(e["lcore"], []).append(args["text"])
        elif args.get("status") != 0:
            found.add((name, *(v for k, v in args.items() if k in ("old", "new", "type", "status", "why"))))
    return found | {re.sub(r"0x[0-9a-f]+|[0-9]+", "#", "".join(x)) for x in lines}


Fault = collections.namedtuple("Fault", "scenario step key skip action")


class Recorder:
    """Makes calls, and notes what sites each comes by first, and how often."""

    def __init__(self, area):
        self.area = area
        self.before = self.hits = area.hits()
        self.steps = []

    def __call__(self, t, method, **params):
        result = t.call(method, **params)
        self.steps.append(self.since())
        return result

    def since(self):
        before, self.hits = self.hits, self.area.hits()
        return {k: n - before.get(k, 0) for k, n in self.hits.items() if n > before.get(k, 0)}

    def sites(self):
        """[(key, step or None, times)]"""
        rest, found = self.since(), {}
        for step, hits in enumerate(self.steps):
            for k, n in hits.items():
                found.setdefault(k, (k, step, n))
        total = {k: n - self.before.get(k, 0) for k, n in self.hits.items()}
        return list(found.values()) + [(k, None, total[k]) for k in rest if k not in found]


class Injector:
    """Makes calls, some of them with a fault; such a call is made once more, so that the next ones find what they need."""

    def __init__(self, sweep, faults):
        self.sweep, self.faults, self.step = sweep, {f.step: f for f in faults}, 0

    def __call__(self, t, method, **params):
        fault = self.faults.pop(self.step, None)
        self.step += 1
        if fault is None:
            return tolerant(t, method, **params)
        area, mark = self.sweep.t.area, self.sweep.mark()
        area.arm(fault.key, fault.skip, action=fault.action)
        result = tolerant(t, method, **params)
        # what is not there, or not yet, is to be looked at alone
        if not area.disarm() or not self.sweep.took_effect(fault) or not all(self.sweep.news(fault.scenario, mark).values()):
            self.sweep.plan.put_back(fault)
        else:
            self.sweep.plan.done(fault)
        return result if result is not None else tolerant(t, method, **params)


class Plan:
    """What is to be done, shared by the workers, and what has been found."""

    def __init__(self, scenarios):
        self.scenarios = scenarios
        self.end = 0            # of the time for faults, once they are known
        self.lock, self.starting = threading.Lock(), threading.Lock()
        self.ready = threading.Event()
        self.names, self.work, self.tried = {}, [], set()
        self.planned = 0        # sites that the scenarios come by: the others are those of the start, which has a sweep of its own, and of clean()
        self.problems, self.silent = [], {where: set() for where in SILENT_IN}
        self.cut = set()        # sites that time left no fault for
        self.injected = self.verified = self.deaths = 0
        self.broken = None

    def make(self, recorded, names):
        """recorded: {scenario: Recorder.sites()}. Faults in different calls of a scenario go together, all others alone."""
        self.names, seen, chains = names, set(), {}
        for scenario, sites in recorded.items():
            for key, step, times in sites:
                if key in seen or ONLY not in names[key]:
                    continue
                seen.add(key)
                for action in (BREAK, KILL) if names[key].startswith(("nvmf_", "nvme ")) else (BREAK,):
                    for skip in sorted({0, times - 1} if times < 50 else {0, times // 2}):
                        fault = Fault(scenario, step, key, skip, action)
                        if step is None:
                            self.work.append([fault])
                        else:
                            chains.setdefault((scenario, step), []).append(fault)
        self.planned = len(seen)
        mixed = random.Random(1)
        for (scenario, _), faults in chains.items():
            mixed.shuffle(faults)
        for scenario in recorded:
            steps = [f for (s, _), f in chains.items() if s == scenario]
            for i in range(max(map(len, steps), default=0)):
                self.work.append([f[i] for f in steps if i < len(f)])
        self.order()
        self.end = time.monotonic() + SECONDS
        self.ready.set()

    def order(self):
        """The last is done first: at the end are the first of each kind."""
        random.Random(1).shuffle(self.work)
        first, rest, kinds = [], [], set()
        for faults in self.work:
            found = {self.names[f.key].split(" ")[0] for f in faults}
            (rest if found <= kinds else first).append(faults)
            kinds |= found
        random.Random(SEED).shuffle(rest)
        self.work = rest + first[::-1]

    def take(self):
        with self.lock:
            if SECONDS and time.monotonic() > self.end:
                self.cut |= {f.key for faults in self.work for f in faults}
                self.work = []
            return self.work.pop() if self.work else None

    def put_back(self, fault):
        with self.lock:
            self.work.append([fault._replace(step=None)])

    def done(self, fault):
        with self.lock:
            self.injected += 1
            self.tried.add(fault.key)

    def report(self):
        silent = "; ".join(f"silent in the {where} {len(found)} ({len(self.unexplained(where))} of them unexplained)"
                           for where, found in self.silent.items())
        print(f"# sites {len(self.names)}, in scenarios {self.planned}, tried {len(self.tried)}, {silent}; cut off by time {len(self.cut - self.tried)} sites; "
              f"VARVE_SEED={SEED}")
        if os.environ.get("VARVE_FAULTS_SILENT"):
            print("\n".join(f"# silent in the {where}: {x}" for where, found in self.silent.items() for x in sorted(found)))
        print(f"trust.sites {len(self.names)} count")
        print(f"trust.faults {self.injected} count")
        print(f"trust.verified_ops {self.verified} count")
        print(f"trust.crashes {self.deaths} count")
        print(f"trust.leaked {sum('x ' in p or 'held' in p for p in self.problems)} count")

    def unexplained(self, where):
        reasons = SILENT + SILENT_IN[where]
        return sorted(x for x in self.silent[where] if not any(re.search(pattern, x) for pattern, _ in reasons))

    def check(self):
        check(not self.broken, f"{self.broken}")
        check(not self.problems, f"{len(self.problems)} faults did harm; the first: {self.problems and self.problems[0]}")
        silent = [f"of which the {where} says nothing, and SILENT no reason: {x}" for where in self.silent for x in self.unexplained(where)]
        check(not silent or SECONDS, "faults " + "\n".join(silent))
        for x in silent:        # which ones time leaves is the machine's doing: the whole sweep must have none
            print("#", x)
        check(self.tried, "no site was tried")
        check(any(n.startswith(("completion ", "recvmsg in receive ")) for n in self.names.values()), "no work of a victim was seen: nobody is one")


class Sweep:
    """A worker: a process with its faults, and what it was like before any."""

    def __init__(self, plan, make, worker):
        self.plan, self.make, self.worker = plan, make, worker
        self.t = None

    def start(self):
        self.t = self.make(self.worker)
        self.scenario = self.plan.scenarios(self.t)
        self.usual = {}
        for name in self.scenario.ALL:          # what comes with the first use stays
            mark = self.mark()
            for _ in range(2):
                self.play(name, strict)
            self.usual[name] = self.found(mark)
        self.baseline = self.live()
        self.held = self.t.held()
        self.descriptors = descriptors(self.t)
        self.qpairs = self.t.num_qpairs()

    def stop(self):
        if self.t is not None:
            verified = self.t.end()
            with self.plan.lock:
                self.plan.verified += verified
            self.close()

    def close(self):
        if self.t is not None:
            self.t.__exit__()
            self.t = None

    def mark(self):
        """Where the log is now; the trace begins here."""
        self.t.call("trace_clear")
        return self.t.log_path.stat().st_size

    def found(self, mark):
        """What log and trace say since a mark."""
        with open(self.t.log_path, errors="replace") as f:
            f.seek(mark)
            log = said(f.read())
        out = subprocess.run([BUILD / "bin" / "varve-trace", "-j", "-f", self.t.trace_file], capture_output=True, text=True, timeout=DEADLINE)
        check(out.returncode == 0, f"varve-trace: {out.stderr}")
        return {"log": log, "trace": shown(json.loads(out.stdout))}

    def news(self, scenario, mark):
        """What they do not say without a fault."""
        return {where: found - self.usual[scenario][where] for where, found in self.found(mark).items()}

    def play(self, name, say):
        getattr(self.scenario, name)(say)
        fired = self.t.area.disarm()
        self.scenario.clean()
        return fired

    def record(self):
        """The sites that the scenarios come by."""
        recorded = {}
        for name in self.scenario.ALL:
            mark = self.mark()
            recorder = Recorder(self.t.area)
            getattr(self.scenario, name)(recorder)
            recorded[name] = recorder.sites()       # what only clean() comes by has no fault here, but perhaps in another one
            self.scenario.clean()
            for where, found in self.found(mark).items():
                self.usual[name][where] |= found
        self.plan.make(recorded, name_sites(self.t.area.sites().values()))

    def live(self):
        """What was given at each place and not given back, whoever called from there: what is made anew may be so on another way."""
        found = collections.Counter()
        for s in self.t.area.sites().values():
            found[s.name, s.pcs[0]] += s.live
        return found

    def more(self):
        """What is held and was not at the beginning."""
        return self.live() - self.baseline

    def leaks(self):
        more = self.more()
        where = symbols(pc for _, pc in more)
        return "; ".join(f"{n} x {name} in {where.get(pc)}" for (name, pc), n in more.items())

    def check_harmless(self):
        """Nobody but the victim has noticed, and nothing of it is left. False: memory is."""
        t = self.t
        check(t.process.poll() is None, "the process is gone")
        t.check_steady()
        wait_for(lambda: t.num_qpairs() == self.qpairs, "the queue pairs to be gone")
        end = time.monotonic() + ONCE
        while self.more() and time.monotonic() < end:
            time.sleep(0.01)
        if self.more():
            return False
        wait_for(lambda: t.holds_no_more(self.held), lambda: f"what was held before ({self.held}); now: {t.held()}, of it {self.opened()}")
        return True

    def opened(self):
        """Descriptors that were not there at the beginning."""
        return sorted((descriptors(self.t) - self.descriptors).elements())

    def inject(self, fault):
        t, mark = self.t, self.mark()
        t.area.arm(fault.key, fault.skip, action=fault.action)
        if self.play(fault.scenario, tolerant) == 0:
            return
        if not self.check_harmless():
            self.look_again([fault], lambda: self.inject_again(fault))
        if not self.took_effect(fault):
            return
        self.plan.done(fault)
        for where, news in self.news(fault.scenario, mark).items():
            if not news:
                with self.plan.lock:
                    self.plan.silent[where].add(self.plan.names[fault.key])

    def took_effect(self, fault):
        """At a change of state nobody may have been connected that could have been struck."""
        return not STATE.match(self.plan.names[fault.key]) or self.t.area.effects() != 0

    def inject_again(self, fault):
        self.t.area.arm(fault.key, fault.skip, action=fault.action)
        return self.play(fault.scenario, tolerant)

    def look_again(self, faults, again):
        """Tables and spares grow once, and stay: what leaks does so a second time. Not asked of OpenSSL that finds no memory: it keeps
        the last 16 errors of each thread, and where they were."""
        grown, lossy = self.more(), any(self.plan.names[f.key].startswith("OPENSSL_") for f in faults)

        def lost():
            return [x for x in self.more() - grown if not (lossy and x[0].startswith("OPENSSL_"))]
        if not again():     # nothing came by there this time: the memory was given back late, or it is lost
            wait_for(lambda: not self.more(), lambda: "what was taken to be given back: " + self.leaks(), 20)
            return
        wait_for(lambda: not lost(), lambda: "what was taken to be given back: " + self.leaks(), 20)
        self.baseline |= self.live()

    def chain(self, faults):
        def run():
            self.play(faults[0].scenario, Injector(self, faults))
            return True
        run()
        if not self.check_harmless():
            self.look_again(faults, run)

    def one(self, faults):
        if self.t is None:
            with self.plan.starting:        # one by one: nothing may fail for want of a CPU while no fault is asked for
                self.start()
        try:
            if len(faults) == 1 and faults[0].step is None:
                self.inject(faults[0])
            else:
                self.chain(faults)
        except (Failure, RpcError, OSError) as e:
            self.trouble(faults, e)

    def trouble(self, faults, e):
        what = f"{faults[0].scenario}: " + " and ".join(f"{self.plan.names[f.key]}, action {f.action}, skip {f.skip}" for f in faults) + f": {e}"
        print("# " + what.replace("\n", "\n# "), flush=True)
        try:
            status = self.t.process.wait(5 if isinstance(e, OSError) or "closed" in str(e) else 0.1)
        except subprocess.TimeoutExpired:
            status = None
        print("# the process", "is there" if status is None else f"ended with {status}", "and last said",
              "\n# " + "\n# ".join(self.t.log().splitlines()[-60:]), flush=True)
        with self.plan.lock:
            self.plan.problems.append(what)
            self.plan.deaths += status is not None
        self.close()

    def run(self):
        try:
            if self.worker == 0:
                self.start()
                self.record()
            self.plan.ready.wait()
            while (faults := self.plan.take()) is not None:
                self.one(faults)
            self.stop()
        except BaseException as e:      # said by whoever waits for the thread
            self.plan.broken = self.plan.broken or e
            self.plan.ready.set()
        finally:
            self.close()


def sweep(make, scenarios, workers=WORKERS):
    """Every site that scenarios(target) comes by, with targets that make(worker) makes. Returns their names."""
    plan = Plan(scenarios)
    threads = [threading.Thread(target=Sweep(plan, make, i).run) for i in range(workers)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    plan.report()
    plan.check()
    return plan.names.values()
