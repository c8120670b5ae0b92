#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""What notify_get_notifications tells of hosts, namespaces, listeners and paths, and why."""
import re
import signal
import sys

from appliance_lib import DEADLINE, RpcError, check, main, wait_for
from hostile_lib import Hostile, good_target
from nvmf_lib import ADDRESS, NQN, PORT, Host, Target, wait_io

HOST, FROZEN, STRANGER = (NQN + x for x in (":welcome", ":frozen", ":stranger"))


def expect(d, kind, ctx, reason=None, number=1):
    """The number-th of the kind has this context and reason; returns it."""
    wait_for(lambda: len(d.notifications(kind)) >= number, f"{kind}")
    found = d.notifications(kind)[number - 1]
    check(found["ctx"] == ctx, f"{kind}: {found}")
    told = found.get("reason")
    check((reason in told) if reason else told is None, f"{kind}: reason {told}")
    check(found["time_us"] > 1700000000000000, found)
    return found


def test_hosts_that_come_and_go():
    with Target() as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        expect(t, "nvmf_listener_add", f"{NQN} RDMA {ADDRESS} {PORT}")
        expect(t, "nvmf_ns_add", f"{NQN} 1")
        t.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=False)
        t.call("nvmf_subsystem_add_host", nqn=NQN, host=HOST)
        t.call("nvmf_subsystem_add_host", nqn=NQN, host=FROZEN)
        with Host(t, "-w", "randread", "-t", "10", nsid=1, hostnqn=STRANGER) as h:
            expect(t, "nvmf_host_refused", f"{NQN} {STRANGER}", "not among the subsystem's hosts")
            h.kill()
        check(t.notifications("nvmf_host_connect") == [], "the stranger was let in")
        with Host(t, "-w", "randread", "-t", "3600", nsid=1, hostnqn=HOST) as h:
            expect(t, "nvmf_host_connect", f"{NQN} {HOST} 1")
            wait_io(t, [h])
            h.stop()
        last = expect(t, "nvmf_host_disconnect", f"{NQN} {HOST} 1", "connection ended")
        with Host(t, "-w", "randread", "-t", "3600", "--kato", "3000", "--loss-timeout", "1", nsid=1, hostnqn=FROZEN) as h:
            wait_io(t, [h])
            h.process.send_signal(signal.SIGSTOP)
            expired = expect(t, "nvmf_keep_alive_expired", f"{NQN} {FROZEN} 2", "keep-alive timeout is 3000 ms")
            gone = expect(t, "nvmf_host_disconnect", f"{NQN} {FROZEN} 2", "keep-alive", number=2)
            h.kill()
        check(last["id"] < expired["id"] < gone["id"], "the order")
        t.wait_empty()


def test_what_the_connection_manager_refuses():
    """Field, value and what is allowed, in the log and as a notification: a few hosts of hostile-host at a time, of which a seed decides what is wrong. Of many at
    once not all are told of, in the log or as notifications."""
    wanted = {r"RECFMT is (?P<value>\d+): allowed is 0", r"HSQSIZE of queue \d+ is (?P<value>\d+): allowed are 1 to (?P<most>\d+)", r"HRQSIZE of queue \d+ is 0: allowed are 1 or more"}
    with good_target() as t:
        def told(pattern):
            return [m for m in (re.match(pattern, n["reason"]) for n in t.notifications("nvmf_host_refused")) if m]

        def logged(pattern):
            return [line for line in t.log().splitlines() if ADDRESS in line and re.search(pattern, line)]

        missing = set(wanted)
        for seed in range(1, 33):
            if missing:
                Hostile(t, 100, seed, "--kind", "connection request").result(t, DEADLINE)
                missing = {pattern for pattern in missing if not (told(pattern) and logged(pattern))}
        check(not missing, f"{missing}: {t.notifications('nvmf_host_refused')}\n{t.log()[-3000:]}")
        for m in (m for pattern in wanted for m in told(pattern)):
            check("most" not in m.groupdict() or not 1 <= int(m["value"]) <= int(m["most"]), m[0])


def test_what_the_operator_changes():
    with Target() as t:
        nqn = NQN + ":ana"
        t.add_subsystem(nqn, ana_reporting=True)
        t.add_ns(t.add_malloc("M0"), nqn=nqn, nsid=3)
        with Host(t, "-w", "randread", "-t", "3600", "--loss-timeout", "1", nqn=nqn, nsid=3) as h:
            wait_io(t, [h])
            t.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=t.listen_address(), ana_state="non_optimized", anagrpid=3)
            expect(t, "nvmf_ana_change", f"{nqn} RDMA {ADDRESS} {PORT} 3 non_optimized")
            t.call("nvmf_subsystem_set_ns_ana_group", nqn=nqn, nsid=3, anagrpid=1)
            expect(t, "nvmf_ana_change", f"{nqn} namespace 3 1", number=2)
            t.remove_ns(3, nqn)
            expect(t, "nvmf_ns_remove", f"{nqn} 3")
            t.call("nvmf_subsystem_remove_listener", nqn=nqn, listen_address=t.listen_address())
            expect(t, "nvmf_listener_remove", f"{nqn} RDMA {ADDRESS} {PORT}")
            expect(t, "nvmf_host_disconnect", f"{nqn} nqn.2026-11.io.varve:host 1", "its listener was removed")
            h.kill()
        t.call("nvmf_delete_subsystem", nqn=nqn)
        expect(t, "nvmf_subsystem_destroy", nqn)
        known = set(t.call("notify_get_types", all=True))
        check({n["type"] for n in t.call("notify_get_notifications", all=True)} <= known, "types that are not listed")


def test_a_namespace_that_changes_its_size():
    with Target() as t:
        t.call("bdev_null_create", name="N0", block_size=512, num_blocks=65536)
        t.add_ns("N0", nsid=2)
        check(t.notifications("nvmf_ns_resize") == [], "it has not changed yet")
        for number, mb in enumerate((64, 16), 1):
            t.call("bdev_null_resize", name="N0", new_size=mb)
            expect(t, "nvmf_ns_resize", f"{NQN} 2", number=number)
        t.remove_ns(2)
        t.call("bdev_null_resize", name="N0", new_size=32)
        check(len(t.notifications("nvmf_ns_resize")) == 2, "a namespace that is gone has changed its size")


def test_a_bdev_that_is_deleted_while_it_is_served():
    with Target() as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        t.add_ns(t.add_malloc("M1"), nsid=2)
        check(t.call("bdev_malloc_delete", name="M1") is True, "an answer as SPDK's targets have")
        expect(t, "nvmf_ns_lost", f"{NQN} 2", "bdev M1 is going; 0 connected controllers have the namespace")
        check(not [x for x in t.log().splitlines() if "*WARNING*" in x and "bdev M1 is going" in x], "a warning, and no host has lost it")
        try:
            t.call("bdev_malloc_delete", name="M0", force=False)
            check(False, "it was deleted")
        except RpcError as e:
            check(e.code == -16 and "nvmf" in e.message, e.message)
        with Host(t, "-w", "randread", "-t", "3600", nsid=1) as h:
            wait_io(t, [h])
            check(t.call("bdev_malloc_delete", name="M0") is True, "an answer")
            expect(t, "nvmf_ns_lost", f"{NQN} 1", "bdev M0 is going; 1 connected controllers have the namespace", number=2)
            expect(t, "nvmf_ns_remove", f"{NQN} 1", number=2)
            wait_for(lambda: "bdev M0 is going, and namespace 1 with it" in t.log(), "the log")
            check([x for x in t.log().splitlines() if "*WARNING*" in x and "bdev M0 is going" in x], "a warning")
            h.kill()
        t.add_ns(t.add_malloc("M2"), nsid=1)
        t.remove_ns(1)
        check(len(t.notifications("nvmf_ns_lost")) == 2, "a namespace that is removed is not lost")


def test_io_that_takes_too_long():
    with Target() as t:
        t.call("bdev_delay_create", name="D0", base_bdev_name=t.add_malloc("M0"), avg_read_latency=300000, p99_read_latency=300000,
               avg_write_latency=0, p99_write_latency=0)
        t.add_ns("D0", nsid=1)
        t.call("bdev_set_timeout", name="D0", timeout_us=50000)
        with Host(t, "-w", "randread", "-t", "3600", "-q", "1", "-o", "4k", nsid=1) as h:
            wait_for(lambda: len(t.notifications("bdev_slow_io")) > 1, "two slow reads")
            t.call("bdev_set_timeout", name="D0", timeout_us=0)
            slow = t.notifications("bdev_slow_io")
            for n in slow:
                told = re.fullmatch(r"D0 read \d+\+8 \S.* (\d+) us", n["ctx"])
                check(told and int(told[1]) >= 50000 and "reason" not in n, n)
            wait_io(t, [h], 3)
            check(t.notifications("bdev_slow_io") == slow, "without a limit, nothing is too slow")
            h.stop()


def test_a_lost_controller_and_its_path():
    with Target(port=PORT + 20000) as f:
        with Target() as b:
            b.add_ns(b.add_malloc("M0"), nsid=1)
            f.call("bdev_nvme_attach_controller", name="Nvme0", **b.listen_address(), subnqn=NQN, ctrlr_loss_timeout_sec=-1,
                   reconnect_delay_sec=1)
            expect(f, "bdev_nvme_connected", "Nvme0")
            f.call("bdev_nvme_reset_controller", name="Nvme0")
            path = f"Nvme0 RDMA {ADDRESS} {PORT}"
            lost = expect(f, "bdev_nvme_path_lost", path, "reset")
            expect(f, "bdev_nvme_lost", "Nvme0", "reset")
            expect(f, "bdev_nvme_path_regained", path)
            expect(f, "bdev_nvme_connected", "Nvme0", number=2)
            check(lost["id"] < f.notifications("bdev_nvme_path_regained")[0]["id"], "the order")
            b.process.kill()
        expect(f, "bdev_nvme_path_lost", path, " ", number=2)


if __name__ == "__main__":
    main(sys.modules[__name__])
