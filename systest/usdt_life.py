#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every probe fires, with the right arguments: two daemons, a target and a front that attaches its namespaces, are watched from before their
start to their end, with a tracer at all probes at once."""
# needs: root bpf
# limit: 600
# apart
import os
import re
import subprocess
import time

from appliance_lib import BUILD, TOP, VARVE, Daemon, RpcError, wait_for
from auth import add_keys
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT, Host, Target, preload
from usdt_lib import Fired, Tracer, check, finish, printing, probes_needed, probes_of_ours

PATHS, OTHER, SECRET = (f"nqn.2026-11.io.varve:usdt-{x}" for x in ("paths", "other", "secret"))
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1}
# What these daemons do not fire, and who sees it.
ELSEWHERE = {"test_none": "usdt.py", "test_args": "usdt.py", "dynsched_move": "usdt.py", "dynsched_balance": "usdt.py"}
# Numbers of usdt/probes.def.
READ = 1
NVME_READ = 2
ANA_INACCESSIBLE = 3
AUTH_FAILED = 1


class Watched(Target):
    """A daemon that waits for framework_start_init until its tracer is there."""
    tracer = None

    def __init__(self, cores, port):
        Daemon.__init__(self, "-m", cores, "-s", "512", "-e", "bdev", "--wait-for-rpc", ready=False, env=preload())
        self.port = port
        try:
            wait_for(self.connect, "the RPC socket").close()
            self.tracer = Tracer(self.pid, printing(probes_of_ours()), ())
        except BaseException:
            self.__exit__()
            raise

    def begin(self, few_buffers=True, **transport):
        check("attaches_to_all", self.tracer.wait_for("attached", raw=True), self.tracer.output())
        if few_buffers:
            self.call("iobuf_set_options", small_pool_count=64, large_pool_count=8)
        self.call("framework_start_init")
        self.call_over(self.client(), "framework_wait_init")
        self.call("nvmf_create_transport", trtype="RDMA", **transport)
        self.add_subsystem(NQN)
        self.threads = {x["name"]: x["id"] for x in self.call("thread_get_stats")["threads"]}
        self.group = next(i for n, i in self.threads.items() if n.startswith("nvmf_tgt_poll_group"))

    def saw(self, pattern):
        if not self.tracer.wait_for(f"(?m)^{pattern}"):
            check(f"saw {pattern}", False, self.tracer.output())

    def end(self):
        """Stops it, and says what its probes have fired."""
        self.stop()
        return Fired(self.tracer.stop())

    def __exit__(self, *exc):
        super().__exit__(*exc)
        if self.tracer:
            self.tracer.process.kill()
            self.tracer.process.wait()


def with_host(t, does, *options, **where):
    """Calls does() beside a host with I/O; one that cannot connect, on a slow machine, is started again."""
    for _ in range(5):
        before = t.groups("completed_nvme_io")
        with Host(t, "-t", "3600", *options, **where) as h:
            wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > before + 50, "some I/O", 120)
            if h.is_running():
                return does()
    return check("host_has_io", False, "no host could connect")


# --- What the target lives through ---

def subsystem_begins(t):
    t.add_malloc("M0")
    t.call("bdev_error_create", base_name="M0")
    t.call("nvmf_create_subsystem", nqn=OTHER, serial_number="U1")
    t.call("nvmf_subsystem_add_host", nqn=OTHER, host=HOSTNQN)
    t.add_listener(OTHER)
    t.add_ns("EE_M0", nqn=OTHER, nsid=3)
    t.call("bdev_null_create", name="Hidden", num_blocks=64, block_size=512)
    t.call("nvmf_subsystem_add_ns", nqn=OTHER, namespace={"bdev_name": "Hidden", "nsid": 4, "no_auto_visible": True})
    for method in ("nvmf_ns_add_host", "nvmf_ns_remove_host"):
        t.call(method, nqn=OTHER, nsid=4, host=HOSTNQN)


def subsystem_ends(t):
    t.remove_ns(3, nqn=OTHER)
    t.remove_ns(4, nqn=OTHER)
    t.call("nvmf_subsystem_remove_listener", nqn=OTHER, listen_address=t.listen_address())
    t.call("nvmf_subsystem_remove_host", nqn=OTHER, host=HOSTNQN)
    t.call("nvmf_delete_subsystem", nqn=OTHER)
    t.saw("nvmf_subsystem_destroy ")


def inject(t, **params):
    t.call("bdev_error_inject_error", name="EE_M0", io_type="read", **params)


def io_goes_wrong(t):
    """A bdev whose I/O is held back, finds no room, fails and hangs; what the RPCs say of it."""
    facts = {"qpairs": t.call("nvmf_subsystem_get_qpairs", nqn=OTHER)}
    inject(t, error_type="nomem", num=1)
    wait_for(lambda: t.call("bdev_get_iostat", name="EE_M0")["bdevs"][0]["num_nomem_waits"], "a read without room", 120)
    inject(t, error_type="failure", num=1)
    wait_for(lambda: any(x["fired"] for x in t.call("trace_get_triggers")["triggers"]), "the trigger", 120)
    t.call("bdev_set_timeout", name="EE_M0", timeout_us=1000000)
    inject(t, error_type="pending", num=1)
    facts["hung"] = wait_for(lambda: [r for r in t.call("nvmf_get_inflight") if r["state"] == "BDEV" and r["age_us"] > 2500000],
                             "a read to hang", 120)[0]
    return facts


def live_through(t):
    subsystem_begins(t)
    t.call("bdev_set_qos_limit", name="EE_M0", rw_ios_per_sec=1000)
    t.call("trace_set_trigger", name="bad", type="io_error", action="notify")
    facts = with_host(t, lambda: io_goes_wrong(t), "-w", "randread", "-o", "4k", "-q", "4", nqn=OTHER, nsid=3)
    facts["descriptors"] = os.listdir(f"/proc/{t.pid}/fd")
    t.call("bdev_error_resume_pending", name="EE_M0")
    t.wait_empty()
    subsystem_ends(t)
    with_host(t, lambda: t.saw("buffer_wait "), "-w", "read", "-o", "128k", "-q", "16", nsid=1)
    t.wait_empty()
    t.call("bdev_qos_group_create", name="slow", rw_ios_per_sec=200)
    t.call("bdev_set_qos_group", name=t.call("nvmf_get_subsystems", nqn=NQN)[0]["namespaces"][0]["bdev_name"], group="slow")
    with_host(t, lambda: t.saw("qos_group_wait "), "-w", "read", "-o", "4k", "-q", "16", nsid=1)
    t.wait_empty()
    t.call("bdev_qos_group_delete", name="slow")
    t.call("nvmf_subsystem_set_qos_limit", nqn=NQN, host=HOSTNQN, rw_ios_per_sec=200)
    with_host(t, lambda: t.saw("nvmf_qos_wait "), "-w", "read", "-o", "4k", "-q", "16", nsid=1)
    t.wait_empty()
    return facts


# --- What the front lives through ---

def discovery(f, t):
    t.add_listener(DISCOVERY)
    f.call("bdev_nvme_start_discovery", name="d", **t.listen_address(), **QUICK, wait_for_attach=True)
    f.call("bdev_nvme_stop_discovery", name="d")


def authentication(f, t):
    for d in (t, f):
        add_keys(d)
    t.call("nvmf_create_subsystem", nqn=SECRET, serial_number="U2")
    t.call("nvmf_subsystem_add_host", nqn=SECRET, host=HOSTNQN, dhchap_key="key", dhchap_ctrlr_key="ctrlr")
    t.add_listener(SECRET)
    where = {**t.listen_address(), "subnqn": SECRET, "hostnqn": HOSTNQN}
    f.call("bdev_nvme_set_options", dhchap_dhgroups=["ffdhe2048"])
    f.call("bdev_nvme_attach_controller", name="S", **where, dhchap_key="key", dhchap_ctrlr_key="ctrlr")
    f.call("bdev_nvme_detach_controller", name="S")
    try:
        f.call("bdev_nvme_attach_controller", name="S", **where, dhchap_key="other")
        check("wrong_key_is_refused", False, "it was let in")
    except RpcError as e:
        check("wrong_key_is_refused", "authentication failed" in e.message, e.message)


class Paths:
    """A namespace that the front has from two ports of the target, and exports."""

    def __init__(self, f, t):
        self.f, self.t = f, t
        self.address = [t.listen_address(), {**t.listen_address(), "trsvcid": str(t.port + 1)}]
        t.add_malloc("M2")
        t.call("nvmf_create_subsystem", nqn=PATHS, serial_number="U3", allow_any_host=True, ana_reporting=True)
        t.add_ns("M2", nqn=PATHS, nsid=1)
        for address in self.address:
            t.call("nvmf_subsystem_add_listener", nqn=PATHS, listen_address=address)
            f.call("bdev_nvme_attach_controller", name="N", subnqn=PATHS, **address, **QUICK)
        f.add_ns("Nn1", nsid=1)

    def ctrlrs(self):
        return self.f.call("bdev_nvme_get_controllers", name="N")[0]["ctrlrs"]

    def paths(self):
        return [p for g in self.f.call("bdev_nvme_get_io_paths", name="Nn1")["poll_groups"] for p in g["io_paths"]]

    def current(self):
        return [p["transport"]["trsvcid"] for p in self.paths() if p["current"]]

    def set_ana(self, state):
        self.t.call("nvmf_subsystem_listener_set_ana_state", nqn=PATHS, listen_address=self.address[0], ana_state=state)

    def change(self):
        """Beside I/O: the path changes; then the controllers are reset."""
        first, second = (a["trsvcid"] for a in self.address)
        wait_for(lambda: self.current() == [first], "I/O by the first path")
        cntlid = {c["trid"]["trsvcid"]: c["cntlid"] for c in self.ctrlrs()}[first]
        self.set_ana("inaccessible")
        # an I/O that is refused takes the second path before the state of the first one is read
        wait_for(lambda: self.current() == [second] and "inaccessible" in [p["ana_state"] for p in self.paths()], "I/O by the second path")
        self.set_ana("optimized")
        self.f.call("bdev_nvme_reset_controller", name="N")
        wait_for(lambda: [c["state"] for c in self.ctrlrs()] == ["enabled"] * 2, "both paths to be back")
        return cntlid

    def go(self):
        """Without a listener the front comes back in vain, and without the namespace it lets go."""
        self.t.call("nvmf_subsystem_remove_listener", nqn=PATHS, listen_address=self.address[1])
        self.f.saw("bdev_nvme_ctrlr_reconnect_delay ")
        self.f.remove_ns(1)
        self.f.call("bdev_nvme_detach_controller", name="N")


# --- What must have been seen ---

def functions():
    """Names of varve's own."""
    return set(subprocess.run(["nm", "--defined-only", "-f", "posix", VARVE], capture_output=True, text=True, check=True).stdout.split())


def ended(status_is):
    """Of usdt_result(): the status, and that it took some time."""
    return lambda result: status_is(int(result) & 0xffff) and int(result) >> 16 > 0


def states(old, new):
    return old << 8 | new


def check_life_of_target(t, fired):
    for old, new in ((5, 6), (6, 7), (7, 8)):
        fired.has("appliance_state", old=old, new=new)
    for state in (1, 2, 3, 4, 5, 6, 7):
        fired.has("nvmf_tgt_state", state=state)
    fired.has("nvmf_tgt_add_transport", transport="RDMA", tgt="nvmf_tgt")
    fired.has("nvmf_transport_poll_group_create", transport="RDMA", thread=t.group)
    for name in ("nvmf_create_poll_group", "nvmf_destroy_poll_group_qpairs", "nvmf_destroy_poll_group"):
        fired.has(name, thread=t.group)


def check_subsystem(t, fired):
    address = t.listen_address()
    where = {k: address[k] for k in ("trtype", "traddr", "trsvcid")}
    for name in ("nvmf_subsystem_create", "nvmf_subsystem_destroy"):
        fired.has(name, subnqn=OTHER)
    fired.has("nvmf_subsystem_change_state", subnqn=OTHER, requested=1, state=0)
    fired.has("nvmf_subsystem_change_state_done", subnqn=OTHER, requested=1, original=0, status=0)
    for name in ("nvmf_subsystem_add_host", "nvmf_subsystem_remove_host"):
        fired.has(name, subnqn=OTHER, hostnqn=HOSTNQN)
    for name in ("nvmf_subsystem_add_listener", "nvmf_subsystem_remove_listener"):
        fired.has(name, subnqn=OTHER, **where)
    for name in ("nvmf_subsystem_add_ns", "nvmf_subsystem_remove_ns"):
        fired.has(name, subnqn=OTHER, nsid=3)
    for name in ("nvmf_ns_add_host", "nvmf_ns_remove_host"):
        fired.has(name, subnqn=OTHER, nsid=4, hostnqn=HOSTNQN)
    fired.has("nvmf_pg_change_state", subnqn=OTHER, requested=1, thread=t.group)
    fired.has("nvmf_pg_change_state_done", subnqn=OTHER, state=1, thread=t.group)
    fired.has("nvmf_poll_group_add_subsystem", subnqn=OTHER, thread=t.group)
    fired.has("nvmf_poll_group_remove_subsystem", subnqn=OTHER, thread=t.group, group=lambda x: int(x, 16) != 0)


def check_host(t, fired, facts):
    ours = {e["qpair"] for e in fired.of("nvmf_qpair_state") if e["hostnqn"] == HOSTNQN}
    ctrlrs = {e["ctrlr"] for e in fired.of("nvmf_ctrlr_state") if e["subnqn"] == OTHER}
    its = {"qpair": ours.__contains__, "thread": t.group}
    for name in ("nvmf_poll_group_add_qpair", "nvmf_poll_group_remove_qpair", "nvmf_poll_group_drain_qpair"):
        fired.has(name, **its)
    fired.has("nvmf_transport_poll_group_add", **its, qid=0)
    fired.has("nvmf_transport_poll_group_remove", **its, qid=1)
    fired.has("nvmf_qpair_disconnect", **its, why=lambda text: len(text) > 5)
    fired.has("nvmf_transport_qpair_fini", qpair=ours.__contains__)
    fired.has("nvmf_ctrlr_create", ctrlr=ctrlrs.__contains__, subnqn=OTHER, thread=t.group)
    fired.has("nvmf_ctrlr_destruct", ctrlr=ctrlrs.__contains__, thread=lambda n: int(n) != t.group)
    for name in ("nvmf_subsystem_add_ctrlr", "nvmf_subsystem_remove_ctrlr"):
        fired.has(name, subnqn=OTHER, hostnqn=HOSTNQN, ctrlr=ctrlrs.__contains__)
    fired.has("nvmf_ctrlr_state", subnqn=OTHER, hostnqn=HOSTNQN)
    for q in facts["qpairs"]:
        fired.has("nvmf_ctrlr_add_qpair", qid=q["qid"], subnqn=OTHER, hostnqn=q["hostnqn"], qpair=ours.__contains__)
        fired.has("nvmf_qpair_state", qid=q["qid"], hostnqn=q["hostnqn"])
    fired.has("nvmf_ctrlr_add_io_qpair", qid=1, thread=t.group, qpair=ours.__contains__, ctrlr=ctrlrs.__contains__)
    fired.has("nvmf_req_state", hostnqn=HOSTNQN, qid=1, opcode=NVME_READ, states=lambda n: int(n) >> 8 != int(n) & 0xff)


def check_io(fired, facts):
    read = {"bdev": "EE_M0", "type": READ, "num_blocks": 8}
    fired.has("bdev_io_submit", **read)
    fired.has("bdev_io_done", **read, result=ended(lambda status: status == 0))
    for name in ("qos_wait", "nomem_wait"):
        fired.has(name, **read, offset_blocks=lambda n: int(n) % 8 == 0)
    fired.has("qos_group_wait", group="slow", type=READ, num_blocks=8)
    fired.has("nvmf_qos_wait", hostnqn=HOSTNQN, subnqn=NQN, opcode=NVME_READ, all=0)
    fired.has("buffer_wait", user="nvmf_RDMA", name=HOSTNQN, bytes=131072)
    fired.has("trace_trigger", name="bad", type="io_error", us=0)
    fired.has("slow_io", bdev="EE_M0", offset_blocks=facts["hung"]["lba"], num_blocks=facts["hung"]["num_blocks"],
              age_ticks=lambda n: int(n) > 0)


def check_threads_and_calls(t, fired, facts):
    ours = functions()
    fired.has("rpc_begin", method="nvmf_create_subsystem")
    fired.has("rpc_end", method="nvmf_create_subsystem", status=0)
    fired.has("thread_send_msg", to=t.group, fn=ours.__contains__)
    for name in ("msg_exec", "timerfd_exec"):
        fired.has(name, fn=ours.__contains__)
    fired.has("event_exec", fn="thread_move_in", arg=lambda x: int(x, 16) != 0, arg2=0)
    fired.has("interrupt_fd_process", name="rpc_server", fn="server_accept", fd=facts["descriptors"].__contains__)


def check_authentication(fired):
    def step(old, new, why, **more):
        fired.has("nvmf_auth_state", hostnqn=HOSTNQN, states=states(old, new), why=why, **more)
    for old, new in ((0, 1), (1, 2), (2, 3), (3, 4), (4, 6)):
        step(old, new, 0, qid=0)
    step(2, 5, AUTH_FAILED, qid=0)


def check_driver(f, fired):
    where = {"traddr": ADDRESS}
    fired.has("nvme_ctrlr_state", **where, subnqn=PATHS, old=13, new=14)
    for qid in (0, 1):
        fired.has("nvme_qpair_state", **where, qid=qid, old=1, new=2)
    read = {"qid": 1, "opcode": NVME_READ}
    fired.has("nvme_cmd_submit", **read, nsid=1)
    sent = {(e["qpair"], e["qid"], e["cid"]) for e in fired.of("nvme_cmd_submit")}
    # The first thousand of each are kept: those of the second half may have been sent by then without being among them.
    done = {(e["qpair"], e["qid"], e["cid"]) for e in fired.of("nvme_cmd_complete")[:500]}
    fired.has("nvme_cmd_complete", **read, result=ended(lambda status: status == 0))
    check("commands_complete_by_the_queue_and_id_they_were_sent_with", done and done <= sent, sorted(done - sent)[:8])


def volumes(t):
    """A store that is made, changed under writes, fails, and goes. Its names for bdevs."""
    t.add_malloc("M2")
    t.call("bdev_error_create", base_name="M2")
    t.call("bdev_lvol_create_lvstore", bdev_name="EE_M2", lvs_name="lvs", cluster_sz=65536)
    uuid = t.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=8, thin_provision=True)
    t.add_ns("lvs/v", nsid=9)
    with_host(t, lambda: t.call("bdev_lvol_snapshot", lvol_name="lvs/v", snapshot_name="s"), "-w", "randwrite", "-o", "4k", "-q", "2", nsid=9)
    with_host(t, lambda: None, "-w", "randwrite", "-o", "4k", "-q", "2", nsid=9)
    t.remove_ns(9)
    t.call("bdev_error_inject_error", name="EE_M2", io_type="write", error_type="failure", num=1000)
    try:
        t.call("bdev_lvol_rename", old_name="lvs/v", new_name="w")
        check("a_failing_store_says_so", False, "it was renamed")
    except RpcError as e:
        check("a_failing_store_says_so", e.code == -5, str(e))
    t.call("bdev_error_delete", name="EE_M2")
    return uuid


def check_volumes(fired, uuid):
    for old, new in ((1, 2), (2, 3), (3, 4)):
        fired.has("lvol_store_state", bdev="EE_M2", store="lvs", old=old, new=new)
    fired.has("lvol_store_failed", bdev="EE_M2", store="lvs")
    for change in ("create", "snapshot", ""):
        fired.has("lvol_journal", store="lvs", change=change)
        fired.has("lvol_committed", store="lvs", change=change, status=0)
    fired.has("lvol_committed", store="lvs", change="rename", status=-5)
    fired.has("lvol_change_waits", store="lvs", volume="v", change="snapshot")
    fired.has("lvol_change_ended", store="lvs", volume="v", change="snapshot", status=0)
    fired.has("lvol_change_ended", store="lvs", volume="v", change="rename", status=-5)
    fired.has("lvol_copy_begin", bdev=uuid, source=0, external=0)
    copied = [e for e in fired.of("lvol_copy_begin") if e["source"] != "0"]
    check("first_writes_above_a_snapshot_copy", copied and all(e["bdev"] == uuid for e in copied), copied[:4])
    fired.has("lvol_copy_end", bdev=uuid, status=0)
    begun, allocated = ({(e["n"], e["cluster"]) for e in fired.of(name)} for name in ("lvol_copy_begin", "lvol_allocated"))
    check("clusters_are_allocated_that_were_made_whole", allocated and allocated <= begun, sorted(allocated - begun)[:8])
    Fired.checked.add("lvol_allocated")


def check_bdev_nvme(f, t, fired, cntlid):
    its = {"name": "N"}
    for name in ("bdev_nvme_ctrlr_reset", "bdev_nvme_ctrlr_reconnect", "bdev_nvme_ctrlr_reconnect_delay", "bdev_nvme_ctrlr_delete"):
        fired.has(name, **its)
    fired.has("bdev_nvme_ctrlr_release", **its, references=0)
    fired.has("bdev_nvme_destruct", **its, nsid=1)
    for state in (1, ANA_INACCESSIBLE):
        fired.has("bdev_nvme_ana_state", **its, nsid=1, cntlid=cntlid, state=state)
    for port in (t.port, t.port + 1):
        fired.has("bdev_nvme_io_path", **its, nsid=1, traddr=ADDRESS, trsvcid=port)
    fired.has("bdev_nvme_create_qpair", **its, qid=1, thread=f.group)
    for old, new in ((0, 1), (1, 2), (2, 1), (1, 4)):
        fired.has("bdev_nvme_state", **its, traddr=ADDRESS, old=old, new=new)
    for old, new in ((0, 1), (1, 2), (2, 3), (3, 0)):
        fired.has("bdev_nvme_qpair_state", **its, thread=f.group, old=old, new=new)
    for old, new in ((0, 1), (1, 4)):  # a reset disables the controller
        fired.has("bdev_nvme_fence_state", **its, traddr=ADDRESS, old=old, new=new)
    fired.has("bdev_nvme_discovery_state", name="d", subnqn=NQN, old=0, new=1)


def test_every_probe_fires_with_its_arguments():
    with Watched("[0]", PORT) as t, Watched("[1]", PORT + 20000) as f:
        t.begin(zcopy=False, buf_cache_size=4)
        f.begin()
        t.add_malloc("M1")
        t.add_ns("M1", nsid=1)
        discovery(f, t)
        facts = live_through(t)
        authentication(f, t)
        paths = Paths(f, t)
        cntlid = with_host(f, paths.change, "-w", "randread", "-o", "4k", "-q", "2", nsid=1)
        f.wait_empty()
        paths.go()
        of_front, of_target = f.end(), t.end()
    check_life_of_target(t, of_target)
    check_subsystem(t, of_target)
    check_host(t, of_target, facts)
    check_io(of_target, facts)
    check_threads_and_calls(t, of_target, facts)
    check_authentication(of_target)
    check_driver(f, of_front)
    check_bdev_nvme(f, t, of_front, cntlid)


def test_probes_of_volumes_fire():
    with Watched("[0]", PORT) as t:
        t.begin(few_buffers=False)
        uuid = volumes(t)
        fired = t.end()
    check_volumes(fired, uuid)


def test_no_probe_was_left_out():
    left = set(probes_of_ours()) - Fired.checked - set(ELSEWHERE)
    check("every_probe_was_seen", not left, str(sorted(left)))
    for probe, where in ELSEWHERE.items():
        check(f"{probe}_is_seen_by_{where}", f"usdt:__EXE__:{probe} " in (TOP / "systest" / where).read_text().replace("\n", " "), "it is not")


probes_needed(VARVE)
test_every_probe_fires_with_its_arguments()
test_probes_of_volumes_fire()
test_no_probe_was_left_out()
finish()
