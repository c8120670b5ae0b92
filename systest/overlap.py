#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# sanitize
# beside
"""Operations that overlap, in the whole program: RPC clients create, change and delete targets, subsystems, namespaces, listeners, hosts, bdevs and
controllers of a remote target at the same time, while hosts connect, do I/O and die, and while the remote target changes too. Each client draws its
operations from a seed; what a client alone uses must answer as it expects, what clients share may succeed or fail. Afterwards the configuration is
saved, everything is deletable and gone, the daemon stops clean, and another one loads the configuration.

unittest/overlap does the same at the level of single messages, with interleavings that can be repeated.

VARVE_OVERLAP_SECONDS sets how long (default 20), VARVE_SEED repeats the operations of a run."""
import json
import os
import random
import sys
import threading
import time

from appliance_lib import DEADLINE, Client, Daemon, Failure, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, PORT, Host, Target, preload

SECONDS = int(os.environ.get("VARVE_OVERLAP_SECONDS", 20))
ROUND_SECONDS = 20
DOMAIN = "nqn.2026-11.io.varve"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
BACK_PORT = PORT + 20000
SLOW_US = 300000
CLIENTS = 4
SOON = {"ctrlr_loss_timeout_sec": 2, "reconnect_delay_sec": 1}
INTERNAL = -32603


def where(port):
    return {"trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(port)}


class Back(Target):
    """The remote target: two subsystems with a namespace each."""

    NQNS = (f"{DOMAIN}:r0", f"{DOMAIN}:r1")

    def __init__(self):
        super().__init__(port=BACK_PORT)
        try:
            self.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=where(BACK_PORT))
            for n in range(2):
                self.add_malloc(f"M{n}", mb=1)
            self.heal()
        except BaseException:
            self.__exit__()
            raise

    def heal(self):
        """All that the remote target is to have."""
        for n, nqn in enumerate(self.NQNS):
            for method, params in (("nvmf_create_subsystem", {"serial_number": f"R{n}", "allow_any_host": True}),
                                   ("nvmf_subsystem_add_ns", {"namespace": {"bdev_name": f"M{n}", "nsid": 1}}),
                                   ("nvmf_subsystem_add_listener", {"listen_address": where(BACK_PORT)})):
                try:
                    self.call(method, nqn=nqn, **params)
                except RpcError:
                    pass    # it is there


class Worker(threading.Thread):
    """One client."""

    def __init__(self, path, seed, stop):
        super().__init__(daemon=True)
        self.path, self.rng, self.stop_event = path, random.Random(seed), stop
        self.error, self.calls, self.done, self.last = None, 0, {}, None

    def call(self, method, **params):
        self.last = (method, params)
        self.calls += 1
        try:
            result = self.client.call(method, **params)
        except RpcError as e:
            check(e.code != INTERNAL, f"{method} {params}: {e.code} {e.message}")
            return None
        self.done[method] = self.done.get(method, 0) + 1
        return result if result is not None else True

    def must(self, method, **params):
        result = self.call(method, **params)
        check(result is not None, f"{method} {params} failed, and nobody else uses it")
        return result

    def run(self):
        try:
            self.client = Client(self.path)
            while not self.stop_event.is_set():
                self.step()
            self.client.close()
        except Exception as e:  # told by the main thread
            self.error = f"{type(e).__name__}: {e}; the last call: {self.last}"


class Gardener(Worker):
    """Changes the remote target under the feet of the other daemon."""

    def step(self):
        r, nqn = self.rng, self.rng.choice(Back.NQNS)
        n = Back.NQNS.index(nqn)
        choice = r.randrange(7)
        if choice == 0:
            self.call("nvmf_subsystem_remove_ns", nqn=nqn, nsid=1)
        elif choice == 1:
            self.call("nvmf_subsystem_remove_listener", nqn=nqn, listen_address=where(BACK_PORT))
        elif choice == 2:
            self.call("nvmf_delete_subsystem", nqn=nqn)
        else:
            self.call("nvmf_create_subsystem", nqn=nqn, serial_number=f"R{n}", allow_any_host=True)
            self.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": f"M{n}", "nsid": 1})
            self.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=where(BACK_PORT))
        self.stop_event.wait(r.random() * 1.5)


class Operator(Worker):
    """Changes everything of the daemon. Names with its number are its own."""

    def __init__(self, number, *args):
        super().__init__(*args)
        self.number, self.own = number, False
        self.pace = self.rng.choice([0, 0.01, 0.1])     # seconds between operations: hosts need some to do I/O
        self.groups = [self.targets, self.subsystems, self.namespaces, self.namespaces, self.bdevs, self.bdevs, self.remotes, self.look,
                       self.own_things]

    def step(self):
        self.rng.choice(self.groups)()
        if self.pace:
            self.stop_event.wait(self.pace)

    def some_tgt(self):
        return self.rng.choice(["nvmf_tgt", "nvmf_tgt", "T1"])

    def some_sub(self):
        """Of which target it is in."""
        return {"tgt_name": self.some_tgt(), "nqn": f"{DOMAIN}:s{self.rng.randrange(3)}"}

    def some_bdev(self):
        return self.rng.choice(["m0", "m1", "m2", "slow", "slow", "p0", "EE_m2", "n0", "R0n1", "R1n1"])

    def some_port(self, sub):
        """Targets cannot listen on the same port."""
        return where(PORT + self.rng.randrange(3) + 4 * (sub["tgt_name"] == "T1"))

    def targets(self):
        choice = self.rng.randrange(6)
        if choice == 0:
            self.call("nvmf_delete_target", name="T1")
        elif choice == 1:
            self.call("nvmf_create_target", name="T1")
            self.call("nvmf_create_transport", trtype="RDMA", tgt_name="T1")
        elif choice == 2:
            self.call("nvmf_discovery_add_referral", tgt_name=self.some_tgt(), address=where(9000 + self.rng.randrange(3)))
        elif choice == 3:
            self.call("nvmf_discovery_remove_referral", tgt_name=self.some_tgt(), address=where(9000 + self.rng.randrange(3)))

    def subsystems(self):
        r, sub = self.rng, self.some_sub()
        choice = r.randrange(10)
        host = f"{DOMAIN}:h{r.randrange(3)}"
        if choice <= 2:
            self.call("nvmf_create_subsystem", allow_any_host=r.random() < .7, ana_reporting=r.random() < .5, serial_number="V1", **sub)
            self.call("nvmf_subsystem_add_listener", listen_address=self.some_port(sub), **sub)
        elif choice == 3:
            self.call("nvmf_delete_subsystem", **sub)
        elif choice == 4:
            self.call("nvmf_subsystem_add_listener", listen_address=self.some_port(sub), **sub)
        elif choice == 5:
            self.call("nvmf_subsystem_remove_listener", listen_address=self.some_port(sub), **sub)
        elif choice == 6:
            self.call("nvmf_subsystem_add_host", host=host, **sub)
        elif choice == 7:
            self.call("nvmf_subsystem_remove_host", host=host, **sub)
        elif choice == 8:
            self.call("nvmf_subsystem_allow_any_host", allow_any_host=r.random() < .6, **sub)
        else:
            self.call("nvmf_subsystem_listener_set_ana_state", listen_address=self.some_port(sub),
                      ana_state=r.choice(["optimized", "inaccessible", "change"]), **sub)

    def namespaces(self):
        r, sub, nsid = self.rng, self.some_sub(), self.rng.randrange(1, 6)
        choice = r.randrange(8)
        host = f"{DOMAIN}:h{r.randrange(3)}"
        if choice <= 3:
            self.call("nvmf_subsystem_add_ns", namespace={"bdev_name": self.some_bdev(), "nsid": nsid, "no_auto_visible": r.random() < .2}, **sub)
        elif choice <= 5:
            self.call("nvmf_subsystem_remove_ns", nsid=nsid, **sub)
        elif choice == 6:
            self.call("nvmf_subsystem_set_ns_ana_group", nsid=nsid, anagrpid=r.randrange(1, 8), **sub)
        else:
            self.call(r.choice(["nvmf_ns_add_host", "nvmf_ns_remove_host"]), nsid=nsid, host=host, **sub)

    def slow(self):
        self.call("bdev_delay_create", name="slow", base_bdev_name="m1", avg_read_latency=SLOW_US, p99_read_latency=SLOW_US,
                  avg_write_latency=SLOW_US, p99_write_latency=SLOW_US)

    def bdevs(self):
        r, n = self.rng, self.rng.randrange(3)
        name = self.some_bdev()
        actions = [
            lambda: self.call("bdev_malloc_create", name=f"m{n}", block_size=512, num_blocks=8192),
            lambda: self.call("bdev_malloc_delete", name=f"m{n}"),
            lambda: self.call("bdev_null_create", name="n0", block_size=512, num_blocks=8192),
            lambda: self.call("bdev_null_resize", name="n0", new_size=r.randrange(4, 12)),
            lambda: self.call("bdev_null_delete", name="n0"),
            self.slow,
            self.slow,
            lambda: self.call("bdev_delay_delete", name="slow"),
            lambda: self.call("bdev_delay_update_latency", delay_bdev_name="slow", latency_type="avg_read", latency_us=r.choice([0, SLOW_US])),
            lambda: self.call("bdev_passthru_create", name="p0", base_bdev_name=r.choice(["m0", "R0n1"])),
            lambda: self.call("bdev_passthru_delete", name="p0"),
            lambda: self.call("bdev_error_create", base_name="m2"),
            lambda: self.call("bdev_error_inject_error", name="EE_m2", io_type="all", error_type=r.choice(["failure", "pending", "nomem"]), num=3),
            lambda: self.call("bdev_error_resume_pending", name="EE_m2"),
            lambda: self.call("bdev_error_delete", name="EE_m2"),
            lambda: self.call("bdev_set_qos_limit", name=name, rw_ios_per_sec=r.choice([0, 1000, 2000])),
            lambda: self.call("bdev_qos_group_create", name=r.choice("gh"), rw_ios_per_sec=2000),
            lambda: self.call("bdev_qos_group_delete", name=r.choice("gh")),
            lambda: self.call("bdev_qos_group_set_limit", name=r.choice("gh"), rw_ios_per_sec=r.choice([0, 1000, 2000])),
            lambda: self.call("bdev_set_qos_group", name=name, group=r.choice("gh"), min_rw_ios_per_sec=r.choice([0, 300, 1000, 2000])),
            lambda: self.call("bdev_set_qos_group", name=name, group=r.choice(["g", "h", ""])),
            lambda: self.call("bdev_set_timeout", name=name, timeout_us=r.choice([0, 500000, 1000000])),
            lambda: self.call("bdev_set_qd_sampling_period", name=name, period=r.choice([0, 10000])),
            lambda: self.call("bdev_enable_histogram", name=name, enable=r.random() < .5),
        ]
        r.choice(actions)()

    def remotes(self):
        r, n = self.rng, self.rng.randrange(2)
        choice = r.randrange(8)
        if choice <= 2:
            self.call("bdev_nvme_attach_controller", name=f"R{n}", subnqn=Back.NQNS[n], **where(BACK_PORT), **SOON)
        elif choice == 3:
            self.call("bdev_nvme_detach_controller", name=f"R{n}")
        elif choice == 4:
            self.call("bdev_nvme_reset_controller", name=f"R{n}")
        elif choice == 5 and self.number == 0:
            self.call("bdev_nvme_start_discovery", name="D", **where(BACK_PORT), **SOON)
        elif choice == 6:
            self.call("bdev_nvme_stop_discovery", name="D")
        else:
            self.call("bdev_nvme_get_controllers")

    def look(self):
        r = self.rng
        method = r.choice(["nvmf_get_stats", "nvmf_get_inflight", "nvmf_get_subsystems", "nvmf_get_transports"])
        self.call(method, tgt_name=self.some_tgt())
        self.call(r.choice(["nvmf_subsystem_get_controllers", "nvmf_subsystem_get_qpairs", "nvmf_subsystem_get_listeners"]), **self.some_sub())
        self.call(r.choice(["bdev_get_bdevs", "bdev_get_iostat", "bdev_get_inflight", "nvmf_get_targets", "thread_get_io_channels"]))
        if r.random() < .2:
            for s in ("bdev", "nvmf"):
                self.must("framework_get_config", name=s)

    def own_things(self):
        """Nobody else knows these: each answer is known beforehand."""
        name, nqn = f"own{self.number}", f"{DOMAIN}:own{self.number}"
        if not self.own:
            self.must("bdev_malloc_create", name=name, block_size=512, num_blocks=2048)
            self.must("nvmf_create_subsystem", nqn=nqn, allow_any_host=True, serial_number="V1")
            check(self.must("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": name}) == 1, "the first nsid")
            check(self.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": name}) is None, "a bdev was added twice")
            self.must("nvmf_subsystem_add_listener", nqn=nqn, listen_address=where(PORT))
        elif self.rng.random() < .5:
            self.must("bdev_malloc_delete", name=name)      # the namespace goes with it
            check(self.call("nvmf_subsystem_remove_ns", nqn=nqn, nsid=1) is None, "a namespace outlived its bdev")
            self.must("nvmf_delete_subsystem", nqn=nqn)
        else:
            self.must("nvmf_delete_subsystem", nqn=nqn)
            self.must("bdev_malloc_delete", name=name)
        self.own = not self.own


class Hosts:
    """Two hosts at a time that connect to something, do I/O as long as they can, and are killed."""

    def __init__(self, node, rng):
        self.node, self.rng, self.hosts, self.started = node, rng, [], 0

    def step(self):
        for host in [h for h in self.hosts if not h.is_running() or self.rng.random() < .1]:
            host.kill()
            check("Sanitizer" not in host.errors.read_text(), host.errors.read_text())
            self.hosts.remove(host)
        if len(self.hosts) < 2:
            nqn = f"{DOMAIN}:{self.rng.choice(['s0', 's1', 's2', 'own0', 'own1'])}"
            trid = f"trtype:RDMA adrfam:IPv4 traddr:{ADDRESS} trsvcid:{PORT + self.rng.choice([0, 0, 1, 4])} subnqn:{nqn}"
            self.hosts.append(Host(self.node, "-w", "randrw", "-q", str(self.rng.choice([1, 8, 64])), "-t", "10", "-r", trid,
                                   hostnqn=f"{DOMAIN}:h{self.rng.randrange(3)}"))
            self.started += 1

    def end(self):
        for host in self.hosts:
            host.kill()
        self.hosts = []


class Node(Target):
    def __init__(self):
        super().__init__()
        try:
            self.call("nvmf_delete_subsystem", nqn=f"{DOMAIN}:test")
        except BaseException:
            self.__exit__()
            raise

    def bdevs(self):
        return {b["name"]: b["product_name"] for b in self.call("bdev_get_bdevs")}

    def attempt(self, method, **params):
        try:
            self.call(method, **params)
        except RpcError:
            pass

    def let_all_end(self):
        """Nothing is slow or stuck any more."""
        for kind in ("avg_read", "avg_write", "p99_read", "p99_write"):
            self.attempt("bdev_delay_update_latency", delay_bdev_name="slow", latency_type=kind, latency_us=0)
        self.attempt("bdev_error_inject_error", name="EE_m2", io_type="clear", error_type="failure")
        self.attempt("bdev_error_resume_pending", name="EE_m2")

    def delete_bdevs(self):
        for name in self.bdevs():
            for kind in ("passthru", "delay", "error", "null", "malloc"):
                self.attempt(f"bdev_{kind}_delete", name=name)
        return not self.bdevs()

    def delete_everything(self):
        self.attempt("bdev_nvme_stop_discovery", name="D")
        self.attempt("nvmf_delete_target", name="T1")
        for s in self.call("nvmf_get_subsystems"):
            if s["subtype"] != "Discovery":
                self.call("nvmf_delete_subsystem", nqn=s["nqn"])
        for r in self.call("nvmf_discovery_get_referrals"):
            self.call("nvmf_discovery_remove_referral", address=r["address"])
        for c in self.call("bdev_nvme_get_controllers"):
            self.attempt("bdev_nvme_detach_controller", name=c["name"])
        wait_for(lambda: self.call("bdev_nvme_get_controllers") == [], "the remote controllers to go")
        wait_for(self.delete_bdevs, lambda: f"all bdevs to go: {self.bdevs()}")
        check([t for t in self.call("nvmf_get_targets") if t != "nvmf_tgt" and t.get("name") != "nvmf_tgt"] == [], "a target is left")
        check(len(self.call("nvmf_get_subsystems")) == 1, self.call("nvmf_get_subsystems"))
        wait_for(lambda: self.num_qpairs() == 0, "all queue pairs to go")
        check(self.call("nvmf_get_inflight") == [], "commands are left")


def save(daemon):
    status, out, err = daemon.rpc("save_config")
    check(status == 0, err)
    return out


def run_clients(node, back, seed, end):
    stop, rng = threading.Event(), random.Random(seed)
    workers = [Operator(n, node.path, seed * 100 + n, stop) for n in range(CLIENTS)] + [Gardener(back.path, seed * 100 + 99, stop)]
    hosts = Hosts(node, rng)
    for w in workers:
        w.start()
    try:
        while time.monotonic() < end and not any(w.error for w in workers):
            hosts.step()
            time.sleep(0.2)
            check(node.process.poll() is None and back.process.poll() is None, "a daemon has ended")
        stop.set()
        release_end = time.monotonic() + DEADLINE
        while any(w.is_alive() for w in workers) and time.monotonic() < release_end:
            node.let_all_end()
            time.sleep(0.2)
    finally:
        hosts.end()
    for w in workers:
        check(not w.is_alive(), f"no answer: {w.last}")
        check(w.error is None, f"{w.error}; varve {node.how_it_is()}\n{node.log()[-5000:]}")
    return workers, hosts.started


def one_round(seed, seconds):
    with Back() as back, Node() as node:
        workers, started = run_clients(node, back, seed, time.monotonic() + seconds)
        node.let_all_end()
        back.heal()
        saved = save(node)
        node.delete_everything()
        check(node.stop() == 0, f"ended with {node.process.returncode}:\n{node.log()[-5000:]}")
        check("Sanitizer" not in node.log(), node.log()[-5000:])
        load(node, saved)
        check(back.stop() == 0, back.log()[-5000:])
        done = {}
        for w in workers:
            for method, n in w.done.items():
                done[method] = done.get(method, 0) + n
        return sum(w.calls for w in workers), done, started


def load(node, saved):
    """What was saved can be loaded."""
    config = node.folder / "config.json"
    config.write_text(saved)
    with Daemon("-m", "[0]", "-s", "512", "-c", config, env=preload()) as other:
        names = {s["subsystem"]: len(s["config"] or []) for s in json.loads(save(other))["subsystems"]}
        check(names.get("nvmf", 0) > 0, names)
        check(other.stop() == 0, other.log()[-5000:])


def test_operations_of_clients_and_hosts_that_overlap():
    given = os.environ.get("VARVE_SEED")
    seed = int(given) if given else random.SystemRandom().getrandbits(30)
    end, rounds = time.monotonic() + SECONDS, 0
    while not rounds or time.monotonic() < end:
        print(f"# seed {seed}", flush=True)
        seconds = max(2, min(ROUND_SECONDS, end - time.monotonic()))
        try:
            calls, done, started = one_round(seed, seconds)
        except (Failure, RpcError) as e:
            raise Failure(f"seed {seed}: {e}") from None
        print(f"# {calls} calls, {sum(done.values())} of them successful, {started} hosts", flush=True)
        print("# " + " ".join(f"{m}:{n}" for m, n in sorted(done.items())), flush=True)
        rounds, seed = rounds + 1, seed + 1


if __name__ == "__main__":
    main(sys.modules[__name__])
