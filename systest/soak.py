#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1500
# budget: VARVE_SOAK_SECONDS=30
# once
# long
"""Everything at random around hosts that verify what they read: connects, kills, namespaces that come and go, ANA changes, resets, RPCs that
are refused, bdevs that fail or have another size, listeners, masking, reservations, copies, discovery, threads that move, by themselves too, authentication with keys
that change, hostile hosts on a subsystem of their own, snapshots of the trace and the black box's copies, faults of memory, verbs and system
calls. One of the hosts has its namespace from another varve, which has it from this one. At the end memory, descriptors, queue pairs and buffers are
as at the beginning.

Threads move where there are more than two CPUs. It has the machine to itself, and the scheduler is to have no
autogroups (scripts/run_tests.py, scripts/soak.sh): on two CPUs, the reactors of all programs together have kept the kernel's own threads from running
for more than a minute.

VARVE_SOAK_SECONDS sets how long (default five minutes), VARVE_SEED repeats a run. scripts/soak.sh is for longer ones."""
import base64
import json
import os
import pathlib
import random
import re
import socket
import struct
import subprocess
import sys
import time

from appliance_lib import BUILD, DEADLINE, Daemon, Failure, RpcError, check, main, wait_for
from auth import add_keys
from faults_lib import BREAK, KILL, PROGRAM, Area
from hostile_lib import Hostile, add_victims
from nvmf_lib import ADDRESS, NQN, NUM_CPUS, PORT, Host, Target, preload, verifying, wait_io

SECONDS = float(os.environ.get("VARVE_SOAK_SECONDS", "300"))
SEED = int(os.environ.get("VARVE_SEED", "1"))
OTHER = NQN + ":other"
KEYED = NQN + ":keyed"
STRANGE = NQN + ":strange"
INITIATOR = NQN + ":initiator"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
FILE_MB = 16                # at the beginning and at the end
STEADY_QPAIRS = 6           # of two hosts and of the varve between
HOSTILE_CASES = 2000        # at most, of one hostile host
PROGRESS_SECONDS = 30
# Where a fault is borne by everybody: it ends no connection of a host that is to notice nothing, and no call is lost without an answer.
FAULTS = ("malloc", "calloc", "aligned_alloc", "strdup", "asprintf", "vasprintf", "json", "rdma_create_qp", "rdma_accept", "ibv_create",
          "ibv_post_send", "ibv_post_recv", "completion", "nvmf_req_state", "nvmf_qpair_state", "nvmf_ctrlr_state", "bdev completion",
          "open64", "socket", "epoll_ctl", "io_uring_submit", "pthread_create")


def buffers_used(t):
    """Of the shared pools, by requests: those that threads have at hand are not."""
    dump = pathlib.Path(t.call("env_dpdk_get_mem_stats")["filename"])
    used = re.findall(r"(\d+) in the main pool, \d+ at hand of threads, (\d+) in use", dump.read_text())
    dump.unlink()
    check(used and int(used[0][0]) > 0, "the account of the buffers cannot be read")
    return sum(int(n) for _, n in used)


class Soaked(Target):
    """varve-faults; what the first subsystem's hosts use is protected."""
    program = PROGRAM

    def __init__(self):
        self.area = Area()
        try:
            Daemon.__init__(self, "-m", "[0-1]" if NUM_CPUS > 2 else "[0]", "-s", "512", env={**preload(), **self.area.env()})
        except BaseException:
            self.area.close()
            raise
        self.port = PORT
        try:
            self.call("nvmf_create_transport", trtype="RDMA")
            self.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=self.listen_address())
            self.add_subsystem(NQN)
            for name in ("SteadyMemory", "SteadyRemote"):
                self.add_malloc(name)
            self.add_file("SteadyFile", self.folder / "steady", FILE_MB)
            for nsid, name in enumerate(("SteadyMemory", "SteadyFile", "SteadyRemote"), 1):
                self.add_ns(name, nsid=nsid)
            for name in ("M1", "M2"):
                self.add_malloc(name)
            self.call("bdev_error_create", base_name="M2")
            self.add_subsystem(OTHER, ana_reporting=True)
            self.add_ns("M1", OTHER, nsid=1)
            self.add_ns("EE_M2", OTHER, nsid=2)
            self.add_malloc("M3")
            self.add_subsystem(KEYED, allow_any_host=False)
            self.add_ns("M3", KEYED, nsid=1)
            add_keys(self)
            self.call("nvmf_subsystem_add_host", nqn=KEYED, host=INITIATOR, dhchap_key="key", dhchap_ctrlr_key="ctrlr")
            self.add_subsystem(STRANGE)
            add_victims(self, STRANGE)
            self.box = self.folder / "box"
            self.box.mkdir()
            self.call("trace_set_blackbox", directory=str(self.box), max_files=2)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.area.close()

    def resident_bytes(self):
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024

    def buffers_got(self):
        """So far, by the transport."""
        module, = [m for m in self.call("iobuf_get_stats") if m["module"] == "nvmf_RDMA"]
        return sum(module[p][x] for p in ("small_pool", "large_pool") for x in ("cache", "main"))


class Initiator(Target):
    """Another varve, as a host of the target's: what varve-perf does not do. It exports SteadyRemote."""
    CONTROLLERS = {"R": (OTHER, {}), "K": (KEYED, {"dhchap_key": "key", "dhchap_ctrlr_key": "ctrlr"})}

    def __init__(self):
        super().__init__(cores="[0]", port=PORT + 20000)
        try:
            add_keys(self)
            self.call("bdev_nvme_set_options", keep_alive_timeout_ms=30000)    # of SteadyRemote's too, on a busy machine
            self.attach_to(NQN, "S")
            self.add_ns("Sn3", nsid=1)
        except BaseException:
            self.__exit__()
            raise

    def attach(self, name):
        nqn, keys = self.CONTROLLERS[name]
        self.attach_to(nqn, name, ctrlr_loss_timeout_sec=10, reconnect_delay_sec=1, **keys)

    def attach_to(self, nqn, name, **more):
        self.call("bdev_nvme_attach_controller", name=name, trtype="RDMA", traddr=ADDRESS, trsvcid=str(PORT), subnqn=nqn, hostnqn=INITIATOR,
                  num_io_queues=1, **more)

    def attached(self):
        return [c["name"] for c in self.call("bdev_nvme_get_controllers") if c["name"] in self.CONTROLLERS]

    def command(self, opcode, cdw10, cdw12, data=b""):
        command = struct.pack("<B3xI32xI4xI12x", opcode, 1, cdw10, cdw12)
        self.call("bdev_nvme_send_cmd", name="R", cmd_type="io", data_direction="h2c", timeout_ms=5000,
                  cmdbuf=base64.urlsafe_b64encode(command).decode(), **({"data": base64.urlsafe_b64encode(data).decode()} if data else {}))

    def reserve(self, opcode, cdw10, *keys):
        self.command(opcode, cdw10, 0, struct.pack(f"<{len(keys)}Q", *keys))

    def discover(self):
        """Starts it, or stops it."""
        if self.call("bdev_nvme_get_discovery_info"):
            self.call("bdev_nvme_stop_discovery", name="D")
        else:
            self.call("bdev_nvme_start_discovery", name="D", trtype="RDMA", traddr=ADDRESS, trsvcid=str(PORT), hostnqn=INITIATOR,
                      ctrlr_loss_timeout_sec=10, reconnect_delay_sec=1)


class Soak:
    def __init__(self, target, initiator, rng):
        self.t, self.initiator, self.rng = target, initiator, rng
        self.counts = {}
        self.hosts = []
        self.hostile, self.hostile_cases = None, 0
        self.undisturbed = True     # since the hostile host came: what it is told is what the specification says
        self.armed = False
        self.faults = 0
        self.hits = {}          # of the sites for faults, when one was last chosen
        self.refused = 0

    def say(self, method, **params):
        """A call that may be refused: a fault may be about, or what it is for gone."""
        return self.attempt(self.t.call, method, **params)

    def attempt(self, function, *args, **params):
        try:
            return function(*args, **params)
        except RpcError:
            self.refused += 1
        except (Failure, OSError):      # the connection fell to a fault
            check(self.t.process.poll() is None, f"varve ended with {self.t.process.poll()}:\n{self.t.log()}")
            self.refused += 1
        return None

    # What may happen. Each takes little time.

    def host_comes(self):
        if len(self.hosts) < 3:
            self.hosts.append(Host(self.t, "-w", self.rng.choice(["randrw", "randread", "rw"]), "-t", "3600", "-q",
                                   str(self.rng.choice([1, 8, 64])), "-o", self.rng.choice(["512", "4k", "64k", "128k"]), "-P",
                                   str(self.rng.choice([1, 2])), "--rate", "2000", "--kato", "5000", "--loss-timeout", str(self.rng.choice([0, 30])),
                                   nqn=OTHER, nsid=self.rng.choice([1, 2]), hostnqn=f"{OTHER}:h{self.rng.randrange(3)}"))

    def host_goes(self):
        if self.hosts:
            h = self.hosts.pop(self.rng.randrange(len(self.hosts)))
            if self.rng.random() < 0.5:
                h.kill()
            else:
                h.process.terminate()
                h.wait()

    def hostile_host_comes(self):
        """It stays while other things happen, or is waited for."""
        if self.hostile is None:
            self.hostile = Hostile(self.t, self.rng.randint(50, HOSTILE_CASES), self.rng.randrange(1 << 30), "--deadline", "20000", nqn=STRANGE)
            self.undisturbed = not self.armed
            if self.rng.random() < 0.5:
                self.hostile_host_goes()

    def hostile_host_goes(self):
        if self.hostile is not None:
            h, self.hostile = self.hostile, None
            if self.rng.random() < 0.3:
                h.process.kill()
                h.process.wait()
            else:
                self.judge_hostile(h)

    def judge_hostile(self, h):
        """It ends by itself. A fault may have met it: then it was answered otherwise, or not at all."""
        try:
            status = h.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            status = None
            h.process.kill()
            h.process.wait()
        allowed = (0,) if self.undisturbed else (0, 1, 2, None)     # 2: it could not begin
        check(status in allowed, f"the hostile host ended with {status}:\n{h.errors.read_text()[-5000:]}")
        if self.undisturbed:
            self.hostile_cases += json.loads(h.output.read_text())["cases"]

    def namespace_changes(self):
        nsid, bdev = self.rng.choice([(1, "M1"), (2, "EE_M2")])
        self.say("nvmf_subsystem_remove_ns", nqn=OTHER, nsid=nsid)
        self.say("nvmf_subsystem_add_ns", nqn=OTHER, namespace={"bdev_name": bdev, "nsid": nsid})

    def namespace_comes_and_goes(self):
        self.say("bdev_null_create", name="N", block_size=512, num_blocks=65536)
        self.say("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "N", "nsid": 3})
        self.say("bdev_null_resize", name="N", new_size=64)
        self.say("bdev_null_delete", name="N")

    def ana_changes(self):
        self.say("nvmf_subsystem_listener_set_ana_state", nqn=OTHER, listen_address=self.t.listen_address(),
                 ana_state=self.rng.choice(["optimized", "non_optimized", "inaccessible"]))

    def listener_changes(self):
        self.say("nvmf_subsystem_remove_listener", nqn=OTHER, listen_address=self.t.listen_address())
        self.say("nvmf_subsystem_add_listener", nqn=OTHER, listen_address=self.t.listen_address())

    def subsystem_comes_and_goes(self):
        self.say("nvmf_create_subsystem", nqn=NQN + ":brief", serial_number="V3")
        self.say("nvmf_subsystem_add_listener", nqn=NQN + ":brief", listen_address=self.t.listen_address())
        self.say("nvmf_delete_subsystem", nqn=NQN + ":brief")

    def bdev_fails(self):
        self.say("bdev_error_inject_error", name="EE_M2", io_type=self.rng.choice(["read", "write"]), error_type="failure",
                 num=self.rng.randint(1, 20))

    def fault(self):
        """The next call at a site, of a random kind, fails: mostly at one that was come by since the last time, for it will be again."""
        sites = [s for s in self.t.area.sites().values() if s.name.startswith(FAULTS)]
        busy = [s for s in sites if s.hits > self.hits.get(s.key, 0)]
        self.hits = {s.key: s.hits for s in sites}
        if sites:
            sites = busy if busy and self.rng.random() < 0.8 else sites
            victims = [h.process.pid for h in self.hosts if h.is_running()]
            self.undisturbed, self.armed = False, True
            action = self.rng.choice([BREAK, KILL]) if victims else BREAK
            self.t.area.arm(self.rng.choice(sites).key, self.rng.randrange(3), action=action, victim=self.rng.choice(victims or [0]))
            for _ in range(self.rng.randint(1, 4)):
                self.one(self.rng.choice([f for f in self.ALL if f != "fault"]))
            self.faults += self.t.area.disarm()
            self.armed = False

    def looks(self):
        for method in ("nvmf_get_stats", "nvmf_get_inflight", "nvmf_get_subsystems", "bdev_get_iostat", "thread_get_stats",
                       "iobuf_get_stats", "bdev_get_bdevs", "trace_get_stats"):
            self.say(method)

    def tracing_changes(self):
        self.say(self.rng.choice(["trace_enable_tpoint_group", "trace_disable_tpoint_group"]),
                 name=self.rng.choice(["nvmf_rdma", "bdev", "nvmf", "thread", "rpc"]))

    def client_leaves(self):
        """In the middle of a request, or without reading the answer."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            try:
                s.connect(str(self.t.path))
                s.sendall(self.rng.choice([b'{"jsonrpc":"2.0","id":1,"method":"bdev_get_bdevs"}', b'{"jsonrpc":', b"\xff{{{", b"[]"]))
            except OSError:
                pass

    def initiator_comes_and_goes(self):
        name = self.rng.choice(list(Initiator.CONTROLLERS))
        if name in self.initiator.attached():
            self.attempt(self.initiator.call, "bdev_nvme_detach_controller", name=name)
        else:
            self.attempt(self.initiator.attach, name)

    def controller_resets(self):
        for name in self.initiator.attached():
            self.attempt(self.initiator.call, "bdev_nvme_reset_controller", name=name)

    def keys_change(self):
        key = self.rng.choice(["key", "new"])
        self.say("nvmf_subsystem_set_keys", nqn=KEYED, host=INITIATOR, dhchap_key=key, dhchap_ctrlr_key="ctrlr")
        self.attempt(self.initiator.call, "bdev_nvme_set_keys", name="K", dhchap_key=key, dhchap_ctrlr_key="ctrlr")

    def reservation_changes(self):
        key = self.rng.randint(1, 3)
        command = self.rng.choice([(0x0d, 8, 0, key), (0x0d, 9, key, 0), (0x11, self.rng.randint(1, 6) << 8, key, 0), (0x11, 1 << 8 | 1, key, key),
                                   (0x15, 1 << 8, key), (0x15, 1, key)])       # register, unregister, acquire, preempt, release, clear
        self.attempt(self.initiator.reserve, *command)

    def blocks_are_copied_and_verified(self):
        at = [self.rng.randrange(30000) for _ in range(3)]
        ranges = b"".join(struct.pack("<8xQH14x", lba, self.rng.randrange(64)) for lba in at)
        self.attempt(self.initiator.command, 0x19, self.rng.randrange(30000), 2, ranges)
        self.attempt(self.initiator.command, 0x0c, at[0], self.rng.randrange(2000))

    def discovery_comes_and_goes(self):
        self.attempt(self.initiator.discover)

    def steady_file_has_another_size(self, mb=None):
        os.truncate(self.t.folder / "steady", (mb or self.rng.randint(FILE_MB // 2, 4 * FILE_MB)) << 20)
        return self.say("bdev_uring_rescan", name="SteadyFile")

    def thread_moves(self):
        threads = (self.say("thread_get_stats", detail=True) or {"threads": []})["threads"]
        movable = [x for x in threads if x["lcore"] is not None]
        if movable and NUM_CPUS > 2:
            self.say("thread_set_cpumask", id=self.rng.choice(movable)["id"], cpumask=self.rng.choice("123"))

    def scheduler_changes(self):
        """Every kind of decision: light threads gather, any load is too much, and what is usual."""
        limits = self.rng.choice([{"load_limit": 100, "core_limit": 95, "core_busy": 100}, {"load_limit": 0, "core_limit": 0, "core_busy": 0},
                                  {"load_limit": 20, "core_limit": 80, "core_busy": 95}])
        self.say("framework_set_scheduler", name=self.rng.choice(["dynamic", "dynamic", "static"]), period=self.rng.choice([1000, 20000, 300000]), **limits)

    def namespace_is_masked(self):
        self.say("nvmf_subsystem_remove_ns", nqn=OTHER, nsid=1)
        self.say("nvmf_subsystem_add_ns", nqn=OTHER, namespace={"bdev_name": "M1", "nsid": 1, "no_auto_visible": True})
        host = self.rng.choice([INITIATOR, f"{OTHER}:h{self.rng.randrange(3)}"])
        self.say("nvmf_ns_add_host", nqn=OTHER, nsid=1, host=host)
        if self.rng.random() < 0.5:
            self.say("nvmf_ns_remove_host", nqn=OTHER, nsid=1, host=host)

    def trigger_changes(self):
        if self.rng.random() < 0.3:
            self.say("trace_remove_trigger", name="any")
        else:
            self.say("trace_set_trigger", name="any", type=self.rng.choice(["io_error", "qpair_error", "keep_alive_loss"]),
                     action=self.rng.choice(["copy", "copy", "freeze", "notify"]), holdoff_us=0)
            self.bdev_fails()

    def snapshot_is_read(self):
        p = subprocess.run([BUILD / "bin" / "varve-trace", "-f", self.t.trace_file, "--summary"], capture_output=True, text=True, check=False,
                           timeout=DEADLINE)
        check(p.returncode >= 0 and "Sanitizer" not in p.stderr, (p.returncode, p.stderr))

    ALL = ("blocks_are_copied_and_verified", "discovery_comes_and_goes", "steady_file_has_another_size", "thread_moves", "scheduler_changes",
           "initiator_comes_and_goes", "initiator_comes_and_goes", "controller_resets", "keys_change", "reservation_changes",
           "reservation_changes", "namespace_is_masked", "trigger_changes", "snapshot_is_read", "host_comes", "host_comes", "host_goes",
           "hostile_host_comes", "hostile_host_goes", "namespace_changes", "namespace_comes_and_goes", "ana_changes", "listener_changes",
           "subsystem_comes_and_goes", "bdev_fails", "fault", "fault", "fault", "looks", "tracing_changes", "client_leaves")

    def one(self, name=None):
        name = name or self.rng.choice(self.ALL)
        getattr(self, name)()
        self.counts[name] = self.counts.get(name, 0) + 1

    def is_without_n(self):
        """Its deletion may be under way, its answer lost to a fault."""
        if "N" not in [b["name"] for b in self.t.call("bdev_get_bdevs")]:
            return True
        self.say("bdev_null_delete", name="N")
        return False

    def restore(self):
        """What the beginning was like."""
        t = self.t
        t.area.disarm()
        for h in self.hosts:
            h.kill()
        self.hosts.clear()
        if self.hostile is not None:
            self.judge_hostile(self.hostile)
            self.hostile = None
        if self.initiator.call("bdev_nvme_get_discovery_info"):
            self.initiator.discover()
        for name in self.initiator.attached():
            self.initiator.call("bdev_nvme_detach_controller", name=name)
        check(self.steady_file_has_another_size(FILE_MB) is True, "the file could not be looked at")
        self.say("trace_remove_trigger", name="any")
        check(self.say("framework_set_scheduler", name="static") is True, "the scheduler could not be set")
        wait_for(self.is_without_n, "N to be deleted")
        subsystems = {s["nqn"]: s for s in t.call("nvmf_get_subsystems")}
        if NQN + ":brief" in subsystems:
            t.call("nvmf_delete_subsystem", nqn=NQN + ":brief")
        other = subsystems[OTHER]
        if not other["listen_addresses"]:
            t.add_listener(OTHER)
        for nsid, bdev in ((1, "M1"), (2, "EE_M2")):
            if nsid in [n["nsid"] for n in other["namespaces"]]:    # masked, or reserved
                t.remove_ns(nsid, OTHER)
            t.add_ns(bdev, OTHER, nsid=nsid)
        t.call("bdev_error_inject_error", name="EE_M2", io_type="clear", error_type="failure", num=1)
        for group in ("nvmf_rdma", "bdev", "nvmf", "thread", "rpc"):
            t.call("trace_enable_tpoint_group", name=group)


def rounds(soak, steady, seconds):
    end = time.monotonic() + seconds
    told = time.monotonic()
    while time.monotonic() < end:
        soak.one()
        check(soak.t.process.poll() is None, f"varve ended with {soak.t.process.poll()}:\n{soak.t.log()[-20000:]}")
        for h in steady:
            check(h.is_running(), f"a steady host ended:\n{h.errors.read_text()}")
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            print(f"# {int(end - told)} s to go: {sum(soak.counts.values())} events, {soak.faults} faults, "
                  f"{soak.hostile_cases} hostile cases, {soak.refused} calls refused, "
                  f"{soak.t.groups('completed_nvme_io')} commands, {soak.t.resident_bytes() >> 20} MB", flush=True)


def test_everything_at_random_leaves_all_as_it_was():
    print(f"# seed {SEED}, {SECONDS:.0f} s", flush=True)
    verified = lost = leaked = crashed = 0
    soak = None
    t = Soaked()
    try:
        with t, Initiator() as initiator, \
                verifying(t, 1, "-t", "360000", "-q", "8", "--rate", "1500", "--kato", "0", hostnqn=NQN + ":1:steady") as memory, \
                verifying(t, 2, "-t", "360000", "-q", "4", "-o", "16k", "--rate", "250", "--kato", "0", hostnqn=NQN + ":2:steady") as file, \
                verifying(initiator, 1, "-t", "360000", "-q", "4", "--rate", "250", "--kato", "0", hostnqn=NQN + ":3:steady") as remote:
            steady = (memory, file, remote)
            wait_for(lambda: len(t.controllers()) == 3 and t.num_qpairs() == STEADY_QPAIRS, "the steady hosts to be connected")
            wait_for(lambda: initiator.num_qpairs() == 2, "the host of the varve between to be connected")
            wait_io(initiator, [remote], 750)
            wait_io(t, steady)
            t.area.protect()
            soak = Soak(t, initiator, random.Random(SEED))
            rounds(soak, steady, min(10, SECONDS / 4))      # what comes with the first use stays
            soak.restore()
            wait_for(lambda: t.num_qpairs() == STEADY_QPAIRS, "the visitors to be gone")
            got = t.buffers_got()
            held, live, resident = t.held(), t.area.live(), t.resident_bytes()
            rounds(soak, steady, SECONDS)
            soak.restore()
            wait_for(lambda: t.num_qpairs() == STEADY_QPAIRS, lambda: f"the visitors to be gone: {t.num_qpairs()} queue pairs")
            wait_io(t, steady)
            wait_io(initiator, [remote])
            result = [h.stop() for h in steady]
            for r in result:
                verified += r["read"]["ios"] + r["write"]["ios"]
                lost += r["miscompares"] + r["errors"] + r["reconnects"]
            for h, r in zip(steady, result):
                h.check_perfect(r)
            leaked = 1                  # until shown otherwise
            check(t.buffers_got() > got, "no buffer was used, or none counted")
            wait_for(lambda: initiator.num_qpairs() == 0 and buffers_used(initiator) == 0, lambda: f"{buffers_used(initiator)} buffers to be given back")
            initiator.call("bdev_nvme_detach_controller", name="S")
            t.wait_empty(held)
            wait_for(lambda: buffers_used(t) == 0, lambda: f"{buffers_used(t)} buffers to be given back")
            names = {k: s.name for k, s in t.area.sites().items()}

            def grown():
                """A little more of one kind is a cache, or text that is longer now; what leaks does so with every event."""
                allowed = 16 + sum(soak.counts.values()) // 50
                return {names.get(k): n - live.get(k, 0) for k, n in t.area.live().items() if n - live.get(k, 0) > allowed}
            wait_for(lambda: not grown(), lambda: f"memory to be given back: {grown()}")
            now = t.resident_bytes()
            check(now < resident + (64 << 20), f"{resident} bytes at the beginning, {now} at the end")
            leaked = 0
            print(f"# memory {resident >> 20} MB at the beginning, {now >> 20} MB at the end; {held} held; events: {soak.counts}")
            check(soak.hostile_cases > 0 or SECONDS < 300, "no hostile host was without a fault")
            check(initiator.stop() == 0, initiator.log())
            t.process.terminate()
            check(t.wait_exit() == 0, f"ended with {t.process.returncode}:\n{t.log()[-20000:]}")
    finally:
        for h in [*soak.hosts, *filter(None, [soak.hostile])] if soak else ():
            h.process.kill()
        crashed = int(t.process.returncode is not None and t.process.returncode < 0 and t.process.returncode != -9)
        print(f"trust.capsules {soak.hostile_cases if soak else 0} count\ntrust.faults {soak.faults if soak else 0} count\n"
              f"trust.verified_ops {verified} count\ntrust.lost {lost} count\n"
              f"trust.leaked {leaked} count\ntrust.crashes {crashed} count\n# seed {SEED}", flush=True)


if __name__ == "__main__":
    main(sys.modules[__name__])
