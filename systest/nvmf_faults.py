#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# once
# long
# beside
"""A fault at every call of the verbs, of memory and of the system, at every kind of completion and in every state of every state
machine: the process lives, another connection's verified I/O notices nothing, and all that was taken is given back.

Each scenario is run twice to record the sites it comes by, then once more for each site with a fault there. VARVE_FAULTS_SECONDS bounds
the time of each of the two tests (0: every site of every scenario); sites are taken in an order that VARVE_SEED makes, so that runs of
different seeds cover different ones. VARVE_FAULTS_ONLY is a text that the site's name must contain."""
import json
import os
import random
import subprocess
import sys
import time

from appliance_lib import Daemon, Failure, RpcError, check, main, wait_for
from faults_lib import BREAK, KILL, PROGRAM, Area, name_sites
from nvmf_lib import ADDRESS, NQN, PORT, Host, Target, preload, verifying, wait_io

SECONDS = float(os.environ.get("VARVE_FAULTS_SECONDS", "80"))
SEED = int(os.environ.get("VARVE_SEED", "1"))
ONLY = os.environ.get("VARVE_FAULTS_ONLY", "")
VICTIM = NQN + ":victim"
ANA = [{"ana_state": s} for s in ("inaccessible", "optimized")]


class Victim(Target):
    """varve-faults with a host of its own at work on a namespace of its own, which is to notice nothing."""
    program = PROGRAM

    def __init__(self):
        self.area = Area()
        self.steady = None
        try:
            Daemon.__init__(self, "-m", "[0]", "-s", "512", env={**preload(), **self.area.env()})
        except BaseException:
            self.area.close()
            raise
        self.port = PORT
        try:
            self.call("nvmf_create_transport", trtype="RDMA")
            self.add_subsystem(NQN)
            self.call("bdev_malloc_create", name="Steady", block_size=512, num_blocks=32768)
            self.add_ns("Steady", nsid=1)
            self.steady = verifying(self, 1, "-t", "36000", "-q", "4", "--kato", "0", "--rate", "2000", hostnqn=NQN + ":steady")
            wait_io(self, [self.steady], 50)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc):
        if self.steady is not None and self.steady.is_running():
            self.steady.kill()
        super().__exit__(*exc)
        self.area.close()

    def end(self):
        result = self.steady.stop()
        self.steady.check_perfect(result)
        return result["read"]["ios"] + result["write"]["ios"]


def tolerant(t, method, **params):
    """A call that may fail, or whose connection may end."""
    try:
        return t.call(method, **params)
    except (RpcError, Failure, OSError):
        return None


class Scenario:
    """What is done; each leaves nothing behind. say: how a call is made."""

    def __init__(self, target):
        self.t = target

    def bdevs(self, say):
        t = self.t
        with open(t.folder / "disk", "ab") as f:
            f.truncate(1 << 20)
        say(t, "bdev_malloc_create", name="M", block_size=512, num_blocks=256)
        say(t, "bdev_null_create", name="N", block_size=512, num_blocks=256)
        say(t, "bdev_uring_create", name="U", filename=str(t.folder / "disk"), block_size=512)
        say(t, "bdev_delay_create", name="D", base_bdev_name="M", avg_read_latency=10, p99_read_latency=10, avg_write_latency=10,
            p99_write_latency=10)
        say(t, "bdev_error_create", base_name="N")
        say(t, "bdev_error_inject_error", name="EE_N", io_type="read", error_type="failure", num=1)
        say(t, "bdev_set_qos_limit", name="M", rw_ios_per_sec=20000)
        say(t, "bdev_enable_histogram", name="U", enable=True)
        say(t, "bdev_get_histogram", name="U")
        say(t, "bdev_enable_histogram", name="U", enable=False)
        say(t, "bdev_null_resize", name="N", new_size=2)
        for method in ("bdev_get_bdevs", "bdev_get_iostat", "bdev_get_inflight", "bdev_wait_for_examine", "framework_get_config"):
            say(t, method, **({"name": "bdev"} if method == "framework_get_config" else {}))

    def subsystem(self, say):
        t, at = self.t, self.t.listen_address()
        say(t, "bdev_null_create", name="N", block_size=512, num_blocks=256)
        say(t, "nvmf_create_subsystem", nqn=VICTIM, serial_number="V2", ana_reporting=True)
        say(t, "nvmf_subsystem_add_listener", nqn=VICTIM, listen_address=at)
        say(t, "nvmf_subsystem_add_host", nqn=VICTIM, host=NQN + ":h")
        say(t, "nvmf_subsystem_add_ns", nqn=VICTIM, namespace={"bdev_name": "N", "nsid": 1, "no_auto_visible": True})
        say(t, "nvmf_ns_add_host", nqn=VICTIM, nsid=1, host=NQN + ":h")
        say(t, "nvmf_subsystem_set_ns_ana_group", nqn=VICTIM, nsid=1, anagrpid=1)
        for state in ANA:
            say(t, "nvmf_subsystem_listener_set_ana_state", nqn=VICTIM, listen_address=at, **state)
        for method in ("nvmf_subsystem_get_listeners", "nvmf_subsystem_get_controllers", "nvmf_subsystem_get_qpairs"):
            say(t, method, nqn=VICTIM)
        say(t, "framework_get_config", name="nvmf")
        say(t, "nvmf_discovery_add_referral", address={**at, "trsvcid": "9"})
        say(t, "nvmf_discovery_get_referrals")
        say(t, "nvmf_ns_remove_host", nqn=VICTIM, nsid=1, host=NQN + ":h")
        say(t, "nvmf_subsystem_remove_host", nqn=VICTIM, host=NQN + ":h")
        say(t, "nvmf_subsystem_remove_ns", nqn=VICTIM, nsid=1)
        say(t, "nvmf_subsystem_remove_listener", nqn=VICTIM, listen_address=at)

    def looks(self, say):
        """Every method that only shows."""
        for method in ("appliance_get_state", "env_dpdk_get_mem_stats", "framework_get_pci_devices", "framework_get_reactors",
                       "framework_get_subsystems", "iobuf_get_stats", "log_get_flags", "log_get_level", "metrics_get_status",
                       "notify_get_types", "notify_get_notifications", "nvmf_get_inflight", "nvmf_get_stats", "nvmf_get_subsystems",
                       "nvmf_get_targets", "nvmf_get_transports", "rpc_describe_methods", "rpc_get_calls", "rpc_get_methods",
                       "spdk_get_version", "thread_get_io_channels", "thread_get_pollers", "thread_get_stats", "trace_get_info",
                       "trace_get_stats", "trace_get_tpoint_group_mask", "trace_get_triggers", "bdev_nvme_get_controllers"):
            say(self.t, method)
        say(self.t, "metrics_start", address="127.0.0.1:0")
        say(self.t, "metrics_get_status")
        say(self.t, "log_set_level", level="NOTICE")
        say(self.t, "trace_set_trigger", name="x", type="request_age", limit_us=1000000000, action="notify")

    def exported(self, say):
        t = self.t
        say(t, "bdev_malloc_create", name="M", block_size=512, num_blocks=16384)
        say(t, "nvmf_create_subsystem", nqn=VICTIM, serial_number="V2", allow_any_host=True)
        say(t, "nvmf_subsystem_add_listener", nqn=VICTIM, listen_address=t.listen_address())
        say(t, "nvmf_subsystem_add_ns", nqn=VICTIM, namespace={"bdev_name": "M", "nsid": 1})

    def host(self, say, *more, kill=False):
        """Connects, does I/O with data in the capsule and without, and goes."""
        self.exported(say)
        with Host(self.t, "-w", "randrw", "--ios", "300", "-q", "8", "-o", "16k", "--region", "2M", *more, nqn=VICTIM, nsid=1,
                  hostnqn=VICTIM + ":h") as h:
            self.t.area.set_victim(h.process.pid)
            if kill:
                tries = 0
                while h.is_running() and tries < 500 and len(tolerant(self.t, "nvmf_get_inflight") or []) < 2:
                    tries += 1
                h.kill()
            h.wait()
            self.t.area.set_victim(0)
            if say is strict and not kill:
                check(h.result()["errors"] == 0, h.errors.read_text())

    def small(self, say):
        self.host(say, "-o", "512", "--verify")

    def killed(self, say):
        self.host(say, "-t", "60", "--ios", "100000000", kill=True)

    def removed(self, say):
        """The subsystem goes while a host is at work on it."""
        t = self.t
        self.exported(say)
        with Host(t, "-w", "randrw", "-t", "60", "-q", "8", nqn=VICTIM, nsid=1, hostnqn=VICTIM + ":h") as h:
            t.area.set_victim(h.process.pid)
            wait_for(lambda: not h.is_running() or tolerant(t, "nvmf_subsystem_get_qpairs", nqn=VICTIM), "the host to be there or gone")
            say(t, "nvmf_subsystem_remove_ns", nqn=VICTIM, nsid=1)
            say(t, "nvmf_delete_subsystem", nqn=VICTIM)
            wait_for(lambda: not h.is_running() or tolerant(t, "nvmf_get_subsystems") is not None, "an answer")
            h.kill()
            t.area.set_victim(0)

    ALL = ("bdevs", "subsystem", "looks", "host", "small", "killed", "removed")

    def clean(self):
        """Takes away what is left, now that nothing fails any more; returns when all is gone."""
        t = self.t
        names = [b["name"] for b in t.call("bdev_get_bdevs")]
        if VICTIM in [s["nqn"] for s in t.call("nvmf_get_subsystems")]:
            t.call("nvmf_delete_subsystem", nqn=VICTIM)
        for r in t.call("nvmf_discovery_get_referrals"):
            t.call("nvmf_discovery_remove_referral", address=r["address"])
        for name, kind in (("D", "delay"), ("EE_N", "error"), ("M", "malloc"), ("N", "null"), ("U", "uring")):
            if name in names:
                t.call(f"bdev_{kind}_delete", name=name)
        if t.call("metrics_get_status")["address"]:
            t.call("metrics_stop")
        for x in t.call("trace_get_triggers")["triggers"]:
            t.call("trace_remove_trigger", name=x["name"])


def strict(t, method, **params):
    return t.call(method, **params)


class Sweep:
    def __init__(self):
        self.t = None
        self.injected = self.verified = self.deaths = 0
        self.sites = {}
        self.problems = []
        self.silent = []

    def start(self):
        self.t = Victim()
        self.scenario = Scenario(self.t)
        for name in Scenario.ALL:       # what comes with the first use stays
            for _ in range(2):
                self.run(name, strict)
        self.baseline = self.t.area.live()
        self.held = self.t.held()

    def stop(self):
        if self.t is not None:
            self.verified += self.t.end()
            self.t.__exit__()
            self.t = None

    def run(self, name, say):
        getattr(self.scenario, name)(say)
        fired = self.t.area.disarm()
        self.scenario.clean()
        return fired

    def record(self, name):
        """The sites that a scenario comes by: [(key, times)]"""
        before = self.t.area.hits()
        self.run(name, strict)
        now = self.t.area.hits()
        return [(k, n - before.get(k, 0)) for k, n in now.items() if n > before.get(k, 0)]

    def settled(self):
        """Everything as at the beginning."""
        t = self.t
        live = t.area.live()
        more = {k: n - self.baseline.get(k, 0) for k, n in live.items() if n > self.baseline.get(k, 0)}
        return None if more else True

    def leaks(self):
        live, sites = self.t.area.live(), self.t.area.sites()
        more = {k: n - self.baseline.get(k, 0) for k, n in live.items() if n > self.baseline.get(k, 0)}
        names = name_sites([sites[k] for k in more])
        return "; ".join(f"{n} x {names[k]}" for k, n in more.items())

    def inject(self, scenario, key, name, skip, action):
        t = self.t
        size = t.log_path.stat().st_size
        t.area.arm(key, skip, action=action)
        fired = self.run(scenario, tolerant)
        if fired == 0:
            return False
        self.injected += 1
        check(t.process.poll() is None, "the process is gone")
        check(t.steady.is_running(), f"the other host ended:\n{t.steady.errors.read_text()}")
        wait_for(lambda: len(t.controllers()) == 1 and t.num_qpairs() == 2, "the queue pairs to be gone")
        wait_for(self.settled, self.leaks)
        wait_for(lambda: t.holds_no_more(self.held), lambda: f"what was held before ({self.held}); now: {t.held()}")
        if t.log_path.stat().st_size == size:
            self.silent.append(name)
        return True


def all_sites(sweep):
    """Every (scenario, key, times) with each key in the first scenario that comes by it."""
    todo = {}
    for scenario in Scenario.ALL:
        for key, times in sweep.record(scenario):
            todo.setdefault(key, (scenario, times))
    return todo


def report(sweep, todo, tried):
    sites = set(todo)
    print(f"# sites {len(sites)}, tried {len(tried)}, silent {len(sweep.silent)}; seed {SEED}")
    if os.environ.get("VARVE_FAULTS_SILENT"):
        print("\n".join(f"# silent: {x}" for x in sorted(sweep.silent)))
    print(f"trust.sites {len(sites)} count")
    print(f"trust.faults {sweep.injected} count")
    print(f"trust.verified_ops {sweep.verified} count")
    print(f"trust.crashes {sweep.deaths} count")
    print(f"trust.leaked {sum('x ' in p or 'held' in p for p in sweep.problems)} count")


def test_a_fault_at_every_site_harms_nobody_else():
    sweep = Sweep()
    end = time.monotonic() + SECONDS
    tried = set()
    todo = {}
    try:
        sweep.start()
        todo = all_sites(sweep)
        names = name_sites([s for k, s in sweep.t.area.sites().items() if k in todo])
        work = [(k, *todo[k], a) for k in todo for a in ((BREAK, KILL) if names[k].startswith(("nvmf_", "nvme_")) else (BREAK,))
                if ONLY in names[k]]
        random.Random(SEED).shuffle(work)
        for key, scenario, times, action in work:
            if SECONDS and time.monotonic() > end:
                break
            if sweep.t is None:
                sweep.start()
            try:
                for skip in {0, times - 1} if times < 50 else {0, times // 2}:
                    if sweep.inject(scenario, key, names[key], skip, action):
                        tried.add(key)
            except (Failure, RpcError, OSError) as e:
                sweep.problems.append(f"{scenario}, action {action}: {names[key]}: {e}")
                print("# " + sweep.problems[-1].replace("\n", "\n# "), flush=True)
                try:
                    status = sweep.t.process.wait(5 if isinstance(e, OSError) or "closed" in str(e) else 0.1)
                except subprocess.TimeoutExpired:
                    status = None
                if status is not None:
                    sweep.deaths += 1
                    print("# the process ended with", status, "\n# " + "\n# ".join(sweep.t.log().splitlines()[-30:]), flush=True)
                sweep.t.__exit__()
                sweep.t = None
        sweep.stop()
    finally:
        if sweep.t is not None:
            sweep.t.__exit__()
        report(sweep, todo, tried)
    check(not sweep.problems, f"{len(sweep.problems)} faults did harm; the first: {sweep.problems and sweep.problems[0]}")
    check(len(tried) > 50 or ONLY, f"only {len(tried)} sites were tried")


# What a daemon that starts and stops comes by. Its sites are few, each start is a process of its own.

CONFIG = {"subsystems": [
    {"subsystem": "bdev", "config": [
        {"method": "bdev_malloc_create", "params": {"name": "M", "num_blocks": 256, "block_size": 512}}]},
    {"subsystem": "nvmf", "config": [
        {"method": "nvmf_create_transport", "params": {"trtype": "RDMA"}},
        {"method": "nvmf_create_subsystem", "params": {"nqn": NQN, "serial_number": "V1", "allow_any_host": True}},
        {"method": "nvmf_subsystem_add_ns", "params": {"nqn": NQN, "namespace": {"bdev_name": "M"}}},
        {"method": "nvmf_subsystem_add_listener", "params": {"nqn": NQN, "listen_address": {
            "trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT + 1)}}}]}]}


class Started(Daemon):
    program = PROGRAM


def start_and_stop(area, config):
    """Returns (status, log, whether it ever listened)."""
    with Started("-m", "[0]", "-s", "64", "-c", config, ready=False, env={**preload(), **area.env()}) as d:
        client = None
        end = time.monotonic() + 90
        while d.process.poll() is None and client is None:
            check(time.monotonic() < end, f"neither started nor ended:\n{d.log()}")
            try:
                client = d.client()
            except OSError:
                time.sleep(0.01)
        if client is not None:
            try:
                client.call("framework_wait_init")
            except (RpcError, Failure, OSError):    # it gave up meanwhile
                pass
            client.close()
            d.process.terminate()
        return d.wait_exit(), d.log(), client is not None


def test_a_fault_at_any_site_of_the_start_is_borne_or_named():
    """It starts nevertheless, or ends with a status and says why; in no case does it die or hang."""
    end = time.monotonic() + SECONDS / 2
    area = Area()
    problems, faults = [], 0
    try:
        with open(area.path.with_suffix(".json"), "w") as f:
            json.dump(CONFIG, f)
        status, log, up = start_and_stop(area, f.name)
        check(status == 0 and up, log)
        sites = list(area.sites().values())
        names = name_sites(sites)
        work = [s.key for s in sites if ONLY in names[s.key]]
        random.Random(SEED).shuffle(work)
        for key in work:
            if SECONDS and time.monotonic() > end:
                break
            area.arm(key)
            try:
                status, log, up = start_and_stop(area, f.name)
                said = [x for x in log.splitlines() if "*ERROR*" in x or x.startswith(("varve:", "varve-faults:", "EAL:"))]
                if not area.disarm():
                    continue
                faults += 1
                named = "PANIC in eal_" in log      # DPDK's own way to end, which names the cause
                if not named and (status not in (0, 1, 2) or (status != 0 and not said)):
                    problems.append(f"{names[key]}: ended with {status}, saying:\n{log}")
            except Failure as e:
                problems.append(f"{names[key]}: {e}")
            if problems and problems[-1].startswith(names[key]):
                print("# " + problems[-1].replace("\n", "\n# "), flush=True)
    finally:
        area.path.with_suffix(".json").unlink(missing_ok=True)
        area.close()
    print(f"# start: {len(work)} sites, {faults} faults; seed {SEED}")
    print(f"trust.start_faults {faults} count")
    check(not problems, f"{len(problems)} faults were not borne; the first: {problems and problems[0]}")
    check(faults > 20 or ONLY, f"only {faults} faults")


if __name__ == "__main__":
    main(sys.modules[__name__])
