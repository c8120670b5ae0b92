#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# budget: VARVE_FAULTS_SECONDS=60
# once
# long
# beside
"""A fault at every call of the verbs, of memory and of the system, at every kind of completion and in every state of every state
machine: the process lives, another connection's verified I/O notices nothing, and all that was taken is given back.

Each scenario is run to record the sites it comes by, then again with a fault at each (faults_lib.py)."""
import base64
import contextlib
import json
import pathlib
import random
import struct
import sys
import time

from appliance_lib import Daemon, Failure, RpcError, check, main, wait_for
from faults_lib import ONLY, PROGRAM, SECONDS, SEED, Area, Victim, add_keys, name_sites, strict, sweep, tolerant
from nvmf_lib import ADDRESS, NQN, PORT, Host, preload

VICTIM = NQN + ":victim"
UUID = "8d1f6c1e-55b1-4a5e-9f0e-0123456789ac"
REGISTER, REPORT, ACQUIRE, RELEASE = 0x0d, 0x0e, 0x11, 0x15     # of reservations: NVM Command Set
ANA = [{"ana_state": s} for s in ("inaccessible", "optimized")]


class Initiator(Daemon):
    """A host that has keys, and sends any command: a varve without faults."""

    def __init__(self):
        super().__init__("-m", "[0]", "-s", "128", env=preload())
        try:
            self.call("bdev_nvme_set_options", dhchap_digests=["sha256"], dhchap_dhgroups=["ffdhe2048"])
            add_keys(self)
        except BaseException:
            self.__exit__()
            raise


class Faulty(Victim):
    """The target, and a host for what varve-perf does not do."""
    initiator = None

    def begin(self):
        self.reservation = pathlib.Path(f"/dev/shm/varve-test-reservation-{self.pid}")      # where it is on the disk at once
        self.initiator = Initiator()

    def __exit__(self, *exc):
        if self.initiator is not None:
            self.initiator.__exit__(*exc)
            for path in (self.reservation, self.reservation.with_suffix(".new")):
                path.unlink(missing_ok=True)
        super().__exit__(*exc)

    def check_steady(self):
        super().check_steady()
        check(self.initiator.process.poll() is None, f"a host of the target is gone:\n{self.initiator.log()}")


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
        say(t, "bdev_uring_rescan", name="U")
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
                       "nvmf_get_targets", "nvmf_get_transports", "rpc_get_calls", "rpc_get_methods",
                       "spdk_get_version", "thread_get_io_channels", "thread_get_pollers", "thread_get_stats", "trace_get_info",
                       "trace_get_stats", "trace_get_tpoint_group_mask", "trace_get_triggers", "bdev_nvme_get_controllers"):
            say(self.t, method)
        say(self.t, "metrics_start", address="127.0.0.1:0")
        say(self.t, "metrics_get_status")
        say(self.t, "log_set_level", level="NOTICE")
        say(self.t, "trace_set_trigger", name="x", type="request_age", limit_us=1000000000, action="notify")

    def described(self, say):
        """By itself, for it takes longer than all the others."""
        say(self.t, "rpc_describe_methods")

    def settings(self, say):
        t = self.t
        say(t, "nvmf_create_target", name="T2")
        say(t, "nvmf_create_subsystem", nqn=VICTIM, serial_number="V2", tgt_name="T2")
        say(t, "nvmf_delete_target", name="T2")
        say(t, "thread_set_cpumask", id=2, cpumask="[0]")
        say(t, "trace_set_blackbox", directory=str(t.folder), max_files=4)
        say(t, "bdev_nvme_set_hotplug", enable=False)

    def exported(self, say, bdev="M", any_host=True, **ns):
        t = self.t
        if bdev == "M":
            say(t, "bdev_malloc_create", name="M", block_size=512, num_blocks=16384)
        else:
            with open(t.folder / "big", "ab") as f:
                f.truncate(8 << 20)
            say(t, "bdev_uring_create", name="U", filename=str(t.folder / "big"), block_size=512)
        say(t, "nvmf_create_subsystem", nqn=VICTIM, serial_number="V2", allow_any_host=any_host)
        say(t, "nvmf_subsystem_add_listener", nqn=VICTIM, listen_address=t.listen_address())
        say(t, "nvmf_subsystem_add_ns", nqn=VICTIM, namespace={"bdev_name": bdev, "nsid": 1, **ns})

    def host(self, say, *more, kill=False, bdev="M"):
        """Connects, does I/O with data in the capsule and without, and goes."""
        self.exported(say, bdev)
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
            wait_for(self.is_gone, "a host's connections to be gone")
            if say is strict and not kill:
                check(h.result()["errors"] == 0, h.errors.read_text())

    def is_gone(self):
        """So that faults strike in the end of connections, too."""
        stats = tolerant(self.t, "nvmf_get_stats")
        return stats is None or sum(x["connections"] for g in stats["poll_groups"] for x in g["transports"]) <= 2 * len(self.t.steady)

    def small(self, say):
        self.host(say, "-o", "512", "--verify")

    def disk(self, say):
        self.host(say, bdev="U")

    def killed(self, say):
        self.host(say, "-t", "60", "--ios", "100000000", kill=True)

    @contextlib.contextmanager
    def at_work(self, say):
        """A host is, on a subsystem that is only for it."""
        t = self.t
        self.exported(say)
        with Host(t, "-w", "randrw", "-t", "60", "-q", "8", nqn=VICTIM, nsid=1, hostnqn=VICTIM + ":h") as h:
            t.area.set_victim(h.process.pid)
            wait_for(lambda: not h.is_running() or tolerant(t, "nvmf_subsystem_get_qpairs", nqn=VICTIM), "the host to be there or gone")
            yield h
            h.kill()
            t.area.set_victim(0)

    def removed(self, say):
        """The subsystem goes while a host is at work on it."""
        t = self.t
        with self.at_work(say) as h:
            say(t, "nvmf_subsystem_remove_ns", nqn=VICTIM, nsid=1)
            say(t, "nvmf_delete_subsystem", nqn=VICTIM)
            wait_for(lambda: not h.is_running() or tolerant(t, "nvmf_get_subsystems") is not None, "an answer")

    def unwelcome(self, say):
        """No host is let in any more, and one is there."""
        t = self.t
        with self.at_work(say):
            if say(t, "nvmf_subsystem_allow_any_host", nqn=VICTIM, allow_any_host=False):
                wait_for(lambda: t.process.poll() is not None or self.is_gone(), "the host to be gone, which is not let in any more")

    def attach(self, say, **keys):
        say(self.t.initiator, "bdev_nvme_attach_controller", name="R", **self.t.listen_address(), subnqn=VICTIM, num_io_queues=1,
            hostnqn=VICTIM + ":h", **keys)

    def detach(self, say):
        say(self.t.initiator, "bdev_nvme_detach_controller", name="R")

    def keyed(self, say):
        """A host says who it is and asks who the target is; then once more, with other keys."""
        t = self.t
        add_keys(t, say)
        self.exported(say, any_host=False)
        say(t, "nvmf_subsystem_add_host", nqn=VICTIM, host=VICTIM + ":h", dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        self.attach(say, dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        for names in (("ctrlr", "key"), ("key", "ctrlr")):
            keys = dict(zip(("dhchap_key", "dhchap_ctrlr_key"), names))
            say(t, "nvmf_subsystem_set_keys", nqn=VICTIM, host=VICTIM + ":h", **keys)
            say(t.initiator, "bdev_nvme_set_keys", name="R", **keys)
        self.detach(say)
        wait_for(lambda: t.process.poll() is not None or self.is_gone(), "the host's connections to be gone")

    def reserve(self, say, opcode, cdw10, *keys):
        """A command for a reservation."""
        cmd = struct.pack("<BxxxI32xII16x", opcode, 1, cdw10, opcode == REPORT)       # extended host identifiers
        answer = say(self.t.initiator, "bdev_nvme_send_cmd", name="R", cmd_type="io", cmdbuf=base64.urlsafe_b64encode(cmd).decode(),
                     **({"data_direction": "h2c", "data": base64.urlsafe_b64encode(struct.pack(f"<{len(keys)}Q", *keys)).decode()} if keys
                        else {"data_direction": "c2h", "data_len": 4096}))
        if say is strict:
            status = struct.unpack("<14xH", base64.urlsafe_b64decode(answer["cpl"]))[0] >> 1
            check(status == 0, f"command {opcode:#x} of reservations was answered with {status:#x}")

    def reserved(self, say):
        """A host registers, acquires a reservation, takes it from itself and gives it back. The target keeps it in a file, and reads that again. (All
        hosts of a machine are one for a target: they have the same host identifier.)"""
        t, ns = self.t, {"uuid": UUID, "ptpl_file": str(self.t.reservation)}
        self.exported(say, **ns)
        self.attach(say)
        self.reserve(say, REGISTER, 3 << 30, 0, 1)
        self.reserve(say, ACQUIRE, 1 << 8, 1, 0)
        self.reserve(say, ACQUIRE, 1 | 2 << 8, 1, 1)
        self.reserve(say, REPORT, 1023)
        self.reserve(say, RELEASE, 2 << 8, 1)
        say(t, "nvmf_subsystem_remove_ns", nqn=VICTIM, nsid=1)
        say(t, "nvmf_subsystem_add_ns", nqn=VICTIM, namespace={"bdev_name": "M", "nsid": 1, **ns})
        self.detach(say)
        wait_for(lambda: t.process.poll() is not None or self.is_gone(), "the host's connections to be gone")

    ALL = ("bdevs", "subsystem", "looks", "described", "settings", "host", "small", "disk", "killed", "removed", "unwelcome", "keyed", "reserved")

    def clean(self):
        """Takes away what is left, now that nothing fails any more; returns when all is gone."""
        t = self.t
        names = [b["name"] for method in ("bdev_get_bdevs", "bdev_get_waiting") for b in t.call(method)]
        if VICTIM in [s["nqn"] for s in t.call("nvmf_get_subsystems")]:
            t.call("nvmf_delete_subsystem", nqn=VICTIM)
        if "T2" in t.call("nvmf_get_targets"):
            t.call("nvmf_delete_target", name="T2")
        wait_for(self.is_detached, lambda: f"controllers to be gone: {t.initiator.call('bdev_nvme_get_controllers')}")
        for key in t.call("keyring_get_keys"):
            t.call("keyring_file_remove_key", name=key["name"])
        t.reservation.unlink(missing_ok=True)
        t.reservation.with_suffix(".new").unlink(missing_ok=True)      # it is left if taking it away is what fails
        for r in t.call("nvmf_discovery_get_referrals"):
            t.call("nvmf_discovery_remove_referral", address=r["address"])
        for name, kind in (("D", "delay"), ("EE_N", "error"), ("M", "malloc"), ("N", "null"), ("U", "uring")):
            if name in names:
                t.call(f"bdev_{kind}_delete", name=name)
        if t.call("metrics_get_status")["address"]:
            t.call("metrics_stop")
        for x in t.call("trace_get_triggers")["triggers"]:
            t.call("trace_remove_trigger", name=x["name"])

    def is_detached(self):
        names = [c["name"] for c in self.t.initiator.call("bdev_nvme_get_controllers")]
        for name in names:
            tolerant(self.t.initiator, "bdev_nvme_detach_controller", name=name)
        return not names


def test_a_fault_at_every_site_harms_nobody_else():
    sweep(Faulty, Scenario)


# What a daemon that starts and stops comes by. Its sites are few, each start is a process of its own.

CONFIG = {"subsystems": [
    {"subsystem": "bdev", "config": [
        {"method": "bdev_malloc_create", "params": {"name": "M", "num_blocks": 256, "block_size": 512}}]},
    {"subsystem": "nvmf", "config": [
        {"method": "nvmf_create_transport", "params": {"trtype": "RDMA"}},
        {"method": "nvmf_create_subsystem", "params": {"nqn": NQN, "serial_number": "V1", "allow_any_host": True}},
        {"method": "nvmf_subsystem_add_ns", "params": {"nqn": NQN, "namespace": {"bdev_name": "M"}}},
        {"method": "nvmf_subsystem_add_listener", "params": {"nqn": NQN, "listen_address": {
            "trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT + 9)}}}]}]}


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
