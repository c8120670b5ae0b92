#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""varve --takeover: statistics go on, and a controller id that was given is not given again soon."""
import json
import pathlib
import shutil
import socket
import sys
import tempfile
import threading

from appliance_lib import check, main, wait_for
from metrics import parse, scrape, scrape_anew
from nvmf_lib import HOSTNQN, NQN, PORT, Host, verifying, wait_io
from nvmf_tcp_lib import DISCOVERY, HOSTID, Queue
from takeover import RECONNECT, Served, Successor, hold, wait_filled, wait_held

ADDRESS = f"127.0.0.1:{PORT + 5}"
METRICS = ("--metrics", ADDRESS)
OTHER_HOST = "nqn.2026-11.io.varve:other"
INVALID_PARAMETERS = 0x182      # the status of Connect, and in the result the offset of what is wrong
CNTLID_IN_DATA = 16 | 1 << 16
# Counts of the process itself begin anew, as its start time says; and a controller's errors have its id as a label.
ANEW = ("varve_reactor_", "varve_thread_", "varve_poller_", "varve_buffer_", "varve_trace_", "varve_state_", "varve_nvme_fence", "varve_lvol_",
        "varve_nvmf_host_errors_total")


def counters(t):
    """{sample without its value: value} of all counters and of the parts of histograms."""
    scrape_anew(t, ADDRESS)
    text = scrape(ADDRESS)
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE "))
    found = {}
    for sample, number in (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")):
        name = sample.split("{", 1)[0]
        kind = kinds.get(name) or kinds[name.rsplit("_", 1)[0]]
        if kind != "gauge" and not name.startswith(ANEW):
            found[sample] = float(number)
    return found


def numbers(tree, path=""):
    """{path: number} of an answer."""
    if isinstance(tree, dict):
        return {k: v for name, x in tree.items() for k, v in numbers(x, f"{path}.{x.get('name', name) if isinstance(x, dict) else name}").items()}
    if isinstance(tree, list):
        return {k: v for i, x in enumerate(tree)
                for k, v in numbers(x, f"{path}.{x.get('name', x.get('trtype', i)) if isinstance(x, dict) else i}").items()}
    return {path: tree} if isinstance(tree, (int, float)) and not isinstance(tree, bool) else {}


def rpc_counters(t):
    """What the methods show that counts; not what is there at the moment, and not the time."""
    now = ("tick_rate", "ticks", "bytes_now", "current_", "pending_bdev_io", "group_bytes", "connections", "connection_bytes", "memory_regions",
           "registered_bytes", "min_", "queue_depth", "in_flight", "time_in_queue")
    found = numbers({"bdev_get_iostat": t.call("bdev_get_iostat"), "nvmf_get_stats": t.call("nvmf_get_stats")})
    return {k: v for k, v in found.items() if not k.rsplit(".", 1)[1].startswith(now)}


def check_goes_on(before, after):
    lost = {k: (v, after.get(k)) for k, v in before.items() if v != 0 and after.get(k, -1) < v}
    check(not lost, f"(before, after): {lost}")


def add_limits(t):
    t.call("nvmf_subsystem_set_qos_limit", nqn=NQN, rw_ios_per_sec=1000000)
    t.call("nvmf_subsystem_set_qos_limit", nqn=NQN, host=HOSTNQN, rw_ios_per_sec=1000000)
    t.call("bdev_qos_group_create", name="g", rw_ios_per_sec=1000000)
    t.call("bdev_set_qos_group", name="Disk", group="g")


def add_errors(t):
    """A bdev that fails, as namespace 2; its reads are errors of the target, too."""
    t.call("bdev_null_create", name="Null", block_size=512, num_blocks=4096)
    t.call("bdev_error_create", base_name="Null")
    t.add_ns("EE_Null")
    t.call("bdev_error_inject_error", name="EE_Null", io_type="read", error_type="failure", num=3)
    with Connected() as host:
        check([host.io.read(0, 1, nsid=2).status != 0 for _ in range(4)] == [True] * 3 + [False], "three errors")
    t.wait_empty()


class Connected:
    """A host with an I/O queue."""

    def __init__(self, hostnqn=HOSTNQN):
        self.hostnqn = hostnqn
        self.admin = Queue(hostnqn=hostnqn).enable()
        self.io = Queue(qid=1, cntlid=self.admin.cntlid, hostnqn=hostnqn)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.io.close()
        self.admin.close()


def test_counters_go_on_over_two_transports():
    for trtype in ("TCP", "RDMA"):
        with Served(*METRICS, trtype=trtype) as a:
            add_limits(a)
            if trtype == "TCP":
                add_errors(a)
            with verifying(a, 1, *RECONNECT) as host:
                wait_filled(a, host)
                before, rpc_before = counters(a), rpc_counters(a)
                told = {k.split("{")[0] for k, v in before.items() if v != 0}
                check(told >= {"varve_bdev_ios_total", "varve_bdev_bytes_total", "varve_bdev_latency_seconds_bucket", "varve_nvmf_latency_seconds_bucket",
                               "varve_nvmf_host_commands_total", "varve_nvmf_limit_ios_total", "varve_qos_group_ios_total", "varve_nvmf_commands_total",
                               "varve_nvmf_device_requests_total"}, told)
                check(trtype != "TCP" or told >= {"varve_bdev_errors_total", "varve_nvmf_failed_commands_total"}, told)
                with Successor(a, *METRICS) as b:
                    check_goes_on(before, counters(b))
                    check_goes_on(rpc_before, rpc_counters(b))
                    check(a.wait_exit() == 0, a.log())
                    wait_io(b, [host])
                    host.check_perfect(host.stop(), reconnects=1)
                    b.stop_clean()


def reads_of(t):
    """As each of the places has them that should count the same commands."""
    t.wait_empty()
    found = counters(t)
    stat = t.call("bdev_get_iostat", name="Disk")["bdevs"][0]
    host = f'subsystem="{NQN}",host="{HOSTNQN}"'
    return {"limit": found[f'varve_nvmf_limit_ios_total{{{host},op="read"}}'], "group": found['varve_qos_group_ios_total{group="g",bdev="Disk",op="read"}'],
            "host": found[f"varve_nvmf_host_commands_total{{{host}}}"], "target": t.groups("completed_nvme_io"),
            "bdev": found['varve_bdev_ios_total{bdev="Disk",op="read"}'], "histogram": found['varve_bdev_latency_seconds_count{bdev="Disk",op="read"}'],
            "iostat": stat["num_read_ops"], "blocks": stat["bytes_read"] // 512}


def expect_reads(t, n, connects, loads):
    """n reads of a block by hosts that have connected so often (the Connect of an I/O queue is a command, too). When a bdev is made, its first eight blocks are looked at."""
    wanted = {"limit": n, "group": n, "host": n + connects, "target": n + connects, "bdev": n + loads, "histogram": n + loads, "iostat": n + loads, "blocks": n + 8 * loads}
    wait_for(lambda: reads_of(t) == wanted, lambda: f"{wanted}, not {reads_of(t)}")


def read_some(n):
    with Connected() as host:
        for i in range(n):
            check(host.io.read(i, 1).status == 0, "a read")


def test_each_command_is_counted_once_over_take_overs_and_one_that_fails():
    with Served(*METRICS, trtype="TCP") as a:
        add_limits(a)
        read_some(10)
        expect_reads(a, 10, 1, 1)
        env, file = hold(a.folder)
        with Successor(a, *METRICS, ready=False, env=env) as b:
            wait_held(file, b)
            b.process.kill()
            a.goes_on()
        read_some(7)
        expect_reads(a, 17, 2, 2)
        with Successor(a, *METRICS) as b:
            check(a.wait_exit() == 0, a.log())
            expect_reads(b, 17, 2, 3)
            read_some(3)
            with Successor(b, *METRICS) as c:
                check(b.wait_exit() == 0, b.log())
                expect_reads(c, 20, 3, 4)
                c.call("bdev_reset_iostat", name="Disk", mode="all")
                check(c.call("bdev_get_iostat", name="Disk")["bdevs"][0]["num_read_ops"] == 0, "a reset is one")
                c.stop_clean()


def test_what_is_made_anew_begins_anew():
    """What was counted is not for an object that an operator makes under an old name."""
    with Served(*METRICS, trtype="TCP") as a:
        read_some(5)
        with Successor(a, *METRICS) as b:
            check(a.wait_exit() == 0, a.log())
            b.remove_ns(1)
            b.call("bdev_uring_delete", name="Disk")
            b.add_file("Disk", b.folder / "other", 16)
            check(b.call("bdev_get_iostat", name="Disk")["bdevs"][0]["num_read_ops"] <= 1, "of a new bdev, whose first blocks are looked at")
            b.stop_clean()


def connect_stale(cntlid, hostnqn):
    """A host has not noticed: it connects an I/O queue to the controller that it had."""
    queue = Queue(qid=1, connect=False)
    c = queue.connect(cntlid, NQN, 32, hostnqn, hostid=HOSTID)
    queue.close()
    return c.code, c.result


def check_ids(given, first):
    """Hosts connect again in another order. None gets an id of before, with which another connection might come."""
    with Connected(OTHER_HOST) as other, Connected() as second, Connected() as one:
        ids = [x.admin.cntlid for x in (other, second, one)]
        check(ids == list(range(first, first + 3)), f"{ids}, first {first}")
        for cntlid, hostnqn in given:
            answer = connect_stale(cntlid, hostnqn)
            check(answer == (INVALID_PARAMETERS, CNTLID_IN_DATA), f"Connect to {cntlid}: {answer}")
        check(all(x.io.read(0, 1).status == 0 for x in (other, second, one)), "their own queues work")
        return [(x.admin.cntlid, x.hostnqn) for x in (other, second, one)]


def discovery_id():
    with Queue(nqn=DISCOVERY) as q:
        return q.cntlid


def test_an_old_controller_id_joins_no_other_controller():
    """Two controllers of one host, for two paths, and one of another. With the same ids again, a late Connect of the one path would
    join the other's controller: host and host id are the same."""
    with Served(trtype="TCP") as a:
        given = check_ids([], 1)
        check(discovery_id() == 1, "the first discovery controller")
        a.wait_empty()
        env, file = hold(a.folder)
        with Successor(a, ready=False, env=env) as b:
            wait_held(file, b)
            b.process.kill()
            a.goes_on()
        given += check_ids(given, 4)
        check(discovery_id() == 2, "the second")
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            check_ids(given, 7)
            check(discovery_id() == 3, "the third")
            b.stop_clean()


def test_ids_of_a_small_range_go_on_from_its_start():
    with Served(trtype="TCP") as a:
        nqn = NQN + "-small"
        a.add_subsystem(nqn, min_cntlid=5, max_cntlid=6)
        with Queue(nqn=nqn) as first, Queue(nqn=nqn) as second:
            check((first.cntlid, second.cntlid) == (5, 6), "the ids that there are")
        a.wait_empty()
        with Queue(nqn=nqn) as q:
            check(q.cntlid == 5, q.cntlid)
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            with Queue(nqn=nqn) as q:
                check(q.cntlid == 6, q.cntlid)
            b.stop_clean()


class Predecessor:
    """Another version of varve, which hands over a configuration and statistics of its own."""
    trtype, port = "TCP", PORT

    def __init__(self, config, statistics):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-"))
        self.path = self.folder / "rpc.sock"
        self.config = {"subsystems": [{"subsystem": "bdev", "config": [{"method": m, "params": p} for m, p in config]}]}
        self.statistics = statistics
        self.parted = False
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.hand_over, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def hand_over(self):
        c, _ = self.listener.accept()
        text = ""
        while piece := c.recv(65536):
            text += piece.decode()
            try:
                message, text = json.loads(text), ""
            except ValueError:
                continue
            for answer in self.answers(message):
                c.sendall(json.dumps(answer).encode())

    def answers(self, message):
        if message.get("serving"):
            self.parted = True
            return [{"parted": True}]
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": self.config}
        if message["params"]["dry_run"]:
            return [answer]
        self.listener.close()
        self.path.unlink()
        return [answer, {"handed_over": self.config, "reservations": [], "keys": [], "statistics": self.statistics}]


NULL_BDEV = ("bdev_null_create", {"name": "M", "block_size": 512, "num_blocks": 4096})


def test_statistics_that_cannot_be_read_are_not_worth_the_take_over():
    wrong = {"bdev": {"M": {"ios": "x"}, "N": {"ios": [41] * 3}}, "later": 7}
    with Predecessor([NULL_BDEV, ("bdev_null_create", {**NULL_BDEV[1], "name": "N"})], wrong) as a, Successor(a) as b:
        check(a.parted, "it hears that it is not needed any more")
        check("the statistics of 2 objects of the other process cannot be read" in b.log(), b.log())
        reads = {x["name"]: x["num_read_ops"] for x in b.call("bdev_get_iostat")["bdevs"]}
        check(reads["M"] < 41 <= reads["N"], reads)
        b.stop_clean("cannot be read")


def test_a_group_keeps_what_bdevs_have_counted_that_are_not_there_again():
    counts = {"ios": [10, 20], "bytes": [5120, 10240]}
    kept = {"qos_group": {"g": {"ios": [1, 2]}}, "qos_group members: g": {"Gone": counts, "M": {"ios": [100, 200]}}}
    group = [("bdev_qos_group_create", {"name": "g"}), NULL_BDEV, ("bdev_set_qos_group", {"name": "M", "group": "g"})]
    with Predecessor(group, kept) as a, Successor(a) as b:
        found = b.call("bdev_get_qos_groups")[0]
        check((found["reads"], found["writes"], found["bytes_read"]) == (111, 222, 5120), found)
        b.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
