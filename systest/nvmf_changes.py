#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# apart
"""Management calls that overlap: changes that wait name what they wait for and hold up no others; what is being deleted is refused."""
import contextlib
import random
import subprocess
import sys
import threading

from appliance_lib import BUILD, RpcError, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target, wait_io

SECOND = "T2"
CHURN = "nqn.2026-11.io.varve:churn"
SLOW_US = 1200000


def error_of(t, method, **params):
    try:
        result = t.call(method, **params)
    except RpcError as e:
        return e.code, e.message
    check(False, f"{method} answered {result}")


def doctor(t):
    done = subprocess.run([BUILD / "bin" / "varve-doctor", "-p", str(t.pid), "-r", t.path, "-d", t.folder, "-a", "1"], capture_output=True, text=True,
                          check=False)
    return done.stdout + done.stderr


@contextlib.contextmanager
def stuck():
    """A target with two namespaces, one of which does not end two reads."""
    with Target("-e", "rpc", "--rpc-deadline", "1") as t:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.add_malloc("M2")
        t.call("bdev_error_create", base_name="M1")
        t.add_ns("M0", nsid=1)
        t.add_ns("EE_M1", nsid=2)
        with Host(t, "-w", "randread", "-q", "32", "-t", "3600", nsid=1) as busy, \
                Host(t, "-w", "randread", "-q", "2", "-t", "3600", nsid=2, hostnqn=HOSTNQN + ":2") as h:
            wait_io(t, [busy, h])
            t.call("bdev_error_inject_error", name="EE_M1", io_type="read", error_type="pending", num=2)
            wait_for(lambda: sum(r["hostnqn"].endswith(":2") and r["state"] == "BDEV" and r["age_us"] > 500000
                                 for r in t.call("nvmf_get_inflight")) == 2, "two reads to hang")
            yield t, busy


def test_a_stuck_removal_names_what_it_waits_for_and_holds_up_no_other_change():
    with stuck() as (t, busy):
        code, message = error_of(t, "nvmf_subsystem_remove_ns", nqn=NQN, nsid=2)
        check(code == -110 and "it waits for the end of 2 commands of namespace 2 (bdev EE_M1)" in message, message)
        call, = t.call("rpc_get_calls")
        check("namespace 2 (bdev EE_M1)" in call["waits_for"], call)
        change, = t.call("nvmf_get_subsystems", nqn=NQN)[0]["changes"]
        check(change["change"] == "removal of namespace 2" and change["begun"] and "bdev EE_M1" in change["waits_for"], change)
        said = doctor(t)
        check("removal of namespace 2" in said and "bdev EE_M1" in said, said)
        _, message = error_of(t, "nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "M2", "nsid": 2})
        check("nsid\" is 2: its namespace is being removed" in message, message)
        for _ in range(3):      # changes of others go on
            t.add_ns("M2", nsid=3)
            t.remove_ns(3)
        wait_io(t, [busy])
        t.call("bdev_error_resume_pending", name="EE_M1")
        wait_for(lambda: t.call("rpc_get_calls") == [], "the removal to end")
        check("changes" not in t.call("nvmf_get_subsystems", nqn=NQN)[0], "it is over")
        check([n["nsid"] for n in t.call("nvmf_get_subsystems", nqn=NQN)[0]["namespaces"]] == [1], "the others stay")


def saved(t, name):
    return [(e["method"], e.get("params") or {}) for e in t.call("framework_get_config", name=name)]


def test_what_is_being_deleted_is_not_saved():
    with stuck() as (t, _):
        error_of(t, "nvmf_subsystem_remove_ns", nqn=NQN, nsid=2)
        check([p["namespace"]["nsid"] for m, p in saved(t, "nvmf") if m == "nvmf_subsystem_add_ns"] == [1], saved(t, "nvmf"))
        uuid = t.call("bdev_get_bdevs", name="EE_M1")[0]["uuid"]
        error_of(t, "bdev_malloc_delete", name="M1")
        check([p["name"] for m, p in saved(t, "bdev") if m == "bdev_malloc_create"] == ["M0", "M2"], saved(t, "bdev"))
        waits = [p for m, p in saved(t, "bdev") if m == "bdev_error_create"]
        check(waits == [{"base_name": "M1", "uuid": uuid}], f"what stood on it waits for it to come back, and is saved once: {waits}")


def test_a_subsystem_is_deleted_although_a_removal_is_stuck():
    with stuck() as (t, _):
        error_of(t, "nvmf_subsystem_remove_ns", nqn=NQN, nsid=2)
        # What the bdev holds back is taken back; a host that submits again at once what has failed does not keep its controller.
        check(t.call("nvmf_delete_subsystem", nqn=NQN) is True, "within the deadline of 1 s")
        wait_for(lambda: t.call("rpc_get_calls") == [], "the deletion and the removal to end")
        check([s["nqn"] for s in t.call("nvmf_get_subsystems") if s["nqn"] == NQN] == [], "it is gone")
        check(sorted(b["name"] for b in t.call("bdev_get_bdevs")) == ["EE_M1", "M0", "M1", "M2"], "the bdevs stay")
        for name in ("M0", "M2"):
            check(t.call("bdev_malloc_delete", name=name) is True, name)


def test_the_removal_of_a_host_has_a_time_of_its_own():
    with Target("--rpc-deadline", "600") as t:
        add_slow(t, 15000000)
        t.add_ns("slow")
        t.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN)
        t.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=False)
        with Host(t, "-w", "randread", "-q", "1", "-t", "3600"):
            wait_for(lambda: any(x["command"] == "read" and x["age_us"] < 5000000 for x in t.call("nvmf_get_inflight")), "a slow read")
            code, message = error_of(t, "nvmf_subsystem_remove_host", nqn=NQN, host=HOSTNQN, timeout_ms=100)
            check(code == -110 and "Timeout reached during host removal" in message and "100 ms" in message, message)
            check(t.call("nvmf_get_subsystems", nqn=NQN)[0]["hosts"] == [], "it is not allowed any more")
            code, message = error_of(t, "nvmf_subsystem_remove_host", nqn=NQN, host=HOSTNQN, timeout_ms=100)
            check(code == -2, f"a second removal: {message}")
            wait_for(lambda: t.call("nvmf_subsystem_get_controllers", nqn=NQN) == [], "its connections to end")
        t.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN)
        check(t.call("nvmf_subsystem_remove_host", nqn=NQN, host=HOSTNQN, timeout_ms=1) is True, "a host without connections")


@contextlib.contextmanager
def second_target(t, bdev="slow"):
    """A second target, which takes a while to be deleted: a host's read is slow."""
    t.call("nvmf_create_target", name=SECOND)
    t.call("nvmf_create_transport", trtype="RDMA", tgt_name=SECOND)
    t.call("nvmf_create_subsystem", nqn=CHURN, tgt_name=SECOND, allow_any_host=True)
    t.call("nvmf_subsystem_add_ns", nqn=CHURN, tgt_name=SECOND, namespace={"bdev_name": bdev})
    address = {**t.listen_address(), "trsvcid": str(t.port + 1)}
    t.call("nvmf_subsystem_add_listener", nqn=CHURN, tgt_name=SECOND, listen_address=address)
    trid = t.trid(CHURN).replace(f"trsvcid:{t.port}", f"trsvcid:{t.port + 1}")
    with Host(t, "-r", trid, "-q", "1", "-w", "randread", "-t", "3600") as h:
        wait_for(lambda: t.call("nvmf_subsystem_get_qpairs", nqn=CHURN, tgt_name=SECOND)[1:] and
                 (bdev != "slow" or any(x["command"] == "read" for x in t.call("nvmf_get_inflight", tgt_name=SECOND))), "a slow read")
        yield h


def add_slow(t, slow_us=SLOW_US):
    t.add_malloc("base")
    us = {f"{kind}_{what}_latency": slow_us for kind in ("avg", "p99") for what in ("read", "write")}
    t.call("bdev_delay_create", name="slow", base_bdev_name="base", **us)


def test_a_target_that_stops_slowly_does_not_keep_the_hosts_of_another():
    with Target() as t:
        add_slow(t, 4000000)
        t.add_ns("slow")
        t.add_malloc("M0")
        with Host(t, "-q", "1", "-w", "randread", "-t", "3600") as first, second_target(t, "M0") as other:
            wait_for(lambda: any(x["command"] == "read" and x["age_us"] < 500000 for x in t.call("nvmf_get_inflight")), "a slow read")
            t.process.terminate()
            wait_for(lambda: not other.is_running(), "the other target's host to be disconnected")
            check(first.is_running(), "the slow target is still stopping")
            check(t.process.wait(60) == 0, t.log())


def test_changes_in_a_target_that_is_being_deleted_are_refused():
    with Target() as t:
        add_slow(t)
        t.add_malloc("late")
        with second_target(t):
            c = t.client()
            c.send({"jsonrpc": "2.0", "id": 1, "method": "nvmf_delete_target", "params": {"name": SECOND}})
            wait_for(lambda: t.call("rpc_get_calls"), "the deletion to begin")
            for method, params in (("nvmf_create_subsystem", {"nqn": NQN}), ("nvmf_delete_subsystem", {"nqn": CHURN}),
                                   ("nvmf_subsystem_add_ns", {"nqn": CHURN, "namespace": {"bdev_name": "late"}}),
                                   ("nvmf_create_transport", {"trtype": "RDMA"})):
                _, message = error_of(t, method, tgt_name=SECOND, **params)
                check(f"target {SECOND} is in state STOP_SUBSYSTEMS: it is being deleted" in message, (method, message))
            check("nvmf_create_target" not in [m for m, _ in saved(t, "nvmf")], "it is not saved")
            check(not [p for _, p in saved(t, "nvmf") if p.get("tgt_name") == SECOND], "nor what it has")
            code, message = error_of(t, "nvmf_create_target", name=SECOND)
            check(code == -17 and "cannot be made yet" in message, message)
            check(c.receive()["result"] is True, "it is deleted")
            c.close()
        check(t.call("bdev_malloc_delete", name="late") is True, "nobody has it")
        check(t.stop() == 0, t.log())


def test_a_name_of_what_is_being_deleted_is_not_free_yet():
    with Target() as t:
        add_slow(t)
        t.add_ns("slow")
        with Host(t, "-q", "1", "-w", "randread", "-t", "3600"):
            wait_for(lambda: any(x["command"] == "read" for x in t.call("nvmf_get_inflight")), "a slow read")
            c = t.client()
            c.send({"jsonrpc": "2.0", "id": 1, "method": "nvmf_delete_subsystem", "params": {"nqn": NQN}})
            wait_for(lambda: t.call("rpc_get_calls"), "the deletion to begin")
            code, message = error_of(t, "nvmf_create_subsystem", nqn=NQN)
            check(code == -17 and f"subsystem {NQN} is in state ACTIVE: it is being deleted" in message, message)
            check(c.receive()["result"] is True, "it is deleted")
            c.close()
        check(t.call("nvmf_create_subsystem", nqn=NQN) is True, "now it is")


def churn(t, number, stop):
    """One client's changes of the second target, without looking at the answers."""
    rnd, c = random.Random(number), t.client()
    with contextlib.suppress(OSError, EOFError):
        while not stop.is_set():
            nqn = rnd.choice((CHURN, f"{CHURN}{number}"))
            method, params = rnd.choice((
                ("nvmf_create_subsystem", {"nqn": nqn, "allow_any_host": True}), ("nvmf_delete_subsystem", {"nqn": f"{CHURN}{number}"}),
                ("nvmf_subsystem_add_ns", {"nqn": nqn, "namespace": {"bdev_name": f"m{number}", "nsid": rnd.randrange(2, 5)}}),
                ("nvmf_subsystem_remove_ns", {"nqn": nqn, "nsid": rnd.randrange(1, 5)}),
                ("nvmf_subsystem_add_host", {"nqn": nqn, "host": HOSTNQN}), ("nvmf_subsystem_remove_host", {"nqn": nqn, "host": HOSTNQN}),
                ("nvmf_get_subsystems", {}), ("nvmf_get_stats", {}), ("nvmf_get_inflight", {}),
                ("nvmf_discovery_add_referral", {"address": {"trtype": "TCP", "traddr": "192.0.2.1", "trsvcid": "8009"}}),
                ("nvmf_discovery_remove_referral", {"address": {"trtype": "TCP", "traddr": "192.0.2.1", "trsvcid": "8009"}})))
            with contextlib.suppress(RpcError):
                c.call(method, tgt_name=SECOND, **params)
    c.close()


def test_a_target_is_deleted_while_clients_change_it():
    with Target() as t:
        add_slow(t)
        for i in range(2):
            t.add_malloc(f"m{i}")
        for trial in range(3):
            with second_target(t):
                stop = threading.Event()
                clients = [threading.Thread(target=churn, args=(t, i, stop), daemon=True) for i in range(2)]
                for c in clients:
                    c.start()
                check(t.call("nvmf_delete_target", name=SECOND) is True, f"trial {trial}")
                stop.set()
                for c in clients:
                    c.join(60)
                    check(not c.is_alive(), "a client hangs")
        for i in range(2):
            check(t.call("bdev_malloc_delete", name=f"m{i}") is True, "nobody has it")
        check(t.stop() == 0, t.log())
        check("Sanitizer" not in t.log(), t.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
