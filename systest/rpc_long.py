#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""A call that takes long holds nobody else up; and who calls a control thread that is held up itself is told so."""
import pathlib
import signal
import socket
import sys
import tempfile

from appliance_lib import Client, Daemon, RpcError, Skip, check, main, wait_for
from nvmf_lib import NQN, Target, verifying, wait_io
from takeover_more import Slow, slow_registration

LARGE_MB = 512


def need_memory():
    with open("/proc/meminfo", encoding="ascii") as f:
        available = next(int(x.split()[1]) for x in f if x.startswith("MemAvailable:"))
    if available < 3 * LARGE_MB << 10:
        raise Skip(f"{available >> 10} MB of memory are available")


def resident_mb(t):
    for line in pathlib.Path(f"/proc/{t.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) >> 10


def begin(t, name, mb=LARGE_MB):
    """A client that has asked for a large bdev; its memory takes a while."""
    c = t.client()
    c.send({"jsonrpc": "2.0", "id": 1, "method": "bdev_malloc_create", "params": {"name": name, "block_size": 512, "num_blocks": mb * 2048}})
    wait_for(lambda: [x["method"] for x in t.call("rpc_get_calls")] == ["bdev_malloc_create"], "the call to be under way while another is answered")
    return c


def test_memory_is_allocated_while_one_large_region_is_registered():
    """The registration of one region does not end, and calls that allocate memory for devices are answered."""
    with tempfile.TemporaryDirectory(prefix="varve-test-") as name:
        file = pathlib.Path(name) / "hold"
        with Slow(env=slow_registration(file)) as t:
            file.touch()
            slow = Client(t.path)
            slow.send({"jsonrpc": "2.0", "id": 1, "method": "nvmf_subsystem_add_listener", "params": {"nqn": NQN, "listen_address": {**t.listen_address(), "trtype": "RDMA"}}})
            wait_for(pathlib.Path(f"{file}.held").exists, lambda: f"the registration to begin:\n{t.log()}")
            for i in range(8):      # each with a buffer of its own
                t.call("bdev_null_create", name=f"Null{i}", block_size=512, num_blocks=4096)
            t.call("env_dpdk_get_mem_stats")
            t.add_malloc("Ram", 4)
            t.add_ns("Ram")
            with verifying(t, 2) as host:
                wait_io(t, [host])
                t.remove_ns(2)
                t.call("bdev_malloc_delete", name="Ram")
                check([c["method"] for c in t.call("rpc_get_calls")] == ["nvmf_subsystem_add_listener"], t.call("rpc_get_calls"))
            file.unlink()
            check(slow.receive()["result"] is True, "the listener")
            check(t.stop() == 0, t.log())


def test_others_are_answered_while_a_large_bdev_gets_its_memory():
    need_memory()
    with Target() as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        with verifying(t, 1, "-t", "3600", "-q", "4", "--kato", "2000") as h:
            wait_io(t, [h])
            c = begin(t, "Large")
            check(c.receive()["result"] == "Large", "it is there in the end")
            check(t.call("bdev_get_bdevs", name="Large")[0]["num_blocks"] == LARGE_MB * 2048, "its size")
            t.add_ns("Large", nsid=2)
            with verifying(t, 2, "--ios", "200", "-q", "4", hostnqn="nqn.2026-11.io.varve:other") as other:
                other.check_perfect(other.result())
            h.check_perfect(h.stop())
            c.close()
        t.wait_empty()
        t.stop_clean()


def create(name, number, mb=64):
    return {"jsonrpc": "2.0", "id": number, "method": "bdev_malloc_create", "params": {"name": name, "block_size": 512, "num_blocks": mb * 2048}}


def ask(name, number):
    return {"jsonrpc": "2.0", "id": number, "method": "bdev_get_bdevs", "params": {"name": name}}


def test_what_a_client_sends_behind_a_large_bdev_may_use_it():
    need_memory()
    with Target() as t:
        c = t.client()
        for request in (create("A", 1), ask("A", 2), create("B", 3), ask("B", 4)):
            c.send(request)
        check([c.receive()["id"] for _ in range(4)] == [1, 2, 3, 4], "in turn")
        c.send([create("C", 5), ask("C", 6), create("D", 7), ask("D", 8)])
        answers = c.receive()
        check(sorted(x["id"] for x in answers) == [5, 6, 7, 8] and all("result" in x for x in answers), answers)
        c.send([create("E", 9), ask("E", 10)])
        c.close()       # while it waits
        wait_for(lambda: "E" in [b["name"] for b in t.call("bdev_get_bdevs")], "what was begun to be done")
        t.stop_clean()


def test_a_name_that_is_taken_meanwhile_is_an_error_and_the_memory_is_given_back():
    need_memory()
    with Daemon("-s", "256") as t:
        c = begin(t, "X")
        t.call("bdev_null_create", name="X", num_blocks=100, block_size=512)
        answer = c.receive()
        check("X" in answer["error"]["message"] and answer["error"]["code"] == -17, answer)
        check(t.call("bdev_get_bdevs")[0]["product_name"] == "Null disk", "whose name it was first")
        wait_for(lambda: resident_mb(t) < LARGE_MB, "the memory to be given back")
        c.close()
        t.call("bdev_null_delete", name="X")
        two = [begin(t, "A", 256)]
        two.append(t.client())
        two[1].send({"jsonrpc": "2.0", "id": 2, "method": "bdev_malloc_create", "params": {"name": "B", "block_size": 512, "num_blocks": 256 * 2048}})
        check([x.receive()["result"] for x in two] == ["A", "B"], "two at once")
        try:
            t.call("bdev_malloc_create", name="Huge", block_size=4096, num_blocks=1 << 40)
            check(False, "more memory than there is")
        except RpcError as e:
            check("memory are available" in e.message, e.message)
        for x in two:
            x.close()


def test_the_daemon_ends_while_a_bdev_gets_its_memory():
    need_memory()
    with Daemon("-s", "256") as t:
        c = begin(t, "X")
        check(t.stop() == 0, f"ended with {t.process.returncode}:\n{t.log()}")
        check("Sanitizer" not in t.log(), t.log())
        c.close()


def test_who_calls_a_control_thread_that_is_held_up_is_told_where_to_look():
    with Daemon("-s", "256") as t:
        t.process.send_signal(signal.SIGSTOP)
        status, out, err = t.rpc("-t", "1", "log_get_level")
        check((status, out) == (3, "") and "no answer within 1 s" in err, (status, out, err))
        check("no other call either: its control thread is held up" in err and "varve-doctor" in err, err)
        waiting = fill(t.path)
        status, out, err = t.rpc("-t", "1", "log_get_level")
        check((status, out) == (3, "") and "nobody takes the connections" in err and "varve-doctor" in err, (status, out, err))
        t.process.send_signal(signal.SIGCONT)
        for s in waiting:
            s.close()
        wait_for(lambda: t.rpc("log_get_level")[0] == 0, "it to answer again")


def fill(path):
    """As many connections as wait there."""
    waiting = []
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.setblocking(False)
        try:
            s.connect(str(path))
        except BlockingIOError:
            s.close()
            return waiting
        waiting.append(s)


def test_who_calls_a_method_that_hangs_is_told_that_others_work():
    with Daemon("-s", "256", "--wait-for-rpc", ready=False) as t:
        wait_for(t.connect, "the RPC socket").close()
        status, out, err = t.rpc("-t", "1", "framework_wait_init")     # waits for framework_start_init
        check((status, out) == (3, "") and "answers other calls and goes on with this one: rpc_get_calls" in err, (status, out, err))


if __name__ == "__main__":
    main(sys.modules[__name__])
