#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# sanitize
# beside
"""Cross-Controller Reset: a host has the controllers that it has lost ended through others, in one varve and between two that export one
subsystem, whatever the other varve does meanwhile."""
import base64
import signal
import struct
import sys
import threading

from appliance_lib import Daemon, check, main, wait_for
from nvmf_lib import HOSTNQN, PORT, Target, preload

SHARED = "nqn.2026-11.io.varve:shared"
IMMEDIATE, IN_PROGRESS = 1, 0x13f
FOREVER_US = 600_000_000
KATO_MS = 3600_000


class Node(Target):
    """One of two varves that export SHARED. Writes to its namespace take as long as it is told."""

    def __init__(self, number):
        super().__init__(cores="[0]", port=PORT + 20000 * number)
        try:
            self.number = number
            self.add_shared()
        except BaseException:
            self.__exit__()
            raise

    def add_shared(self):
        self.add_subsystem(SHARED, min_cntlid=1 + 1000 * self.number, max_cntlid=1000 + 1000 * self.number)
        if not self.call("bdev_get_bdevs"):
            self.add_malloc("M0")
            self.call("bdev_delay_create", name="D0", base_bdev_name="M0", avg_read_latency=0, p99_read_latency=0, avg_write_latency=0,
                      p99_write_latency=0)
        self.add_ns("D0", nqn=SHARED)

    def slow(self, us):
        for kind in ("avg_write", "p99_write"):
            self.call("bdev_delay_update_latency", delay_bdev_name="D0", latency_type=kind, latency_us=us)

    def only(self):
        """The only controller's name, as Identify has it."""
        c = self.controllers(SHARED)
        check(len(c) == 1, c)
        return c[0]

    def exists(self, name):
        return any(c["cirn"] == name["cirn"] for c in self.controllers(SHARED))

    def peer(self):
        peers = [s["peers"] for s in self.call("nvmf_get_subsystems", nqn=SHARED)]
        return peers[0][0]

    def add_peer(self, other, timeout_ms=60000):
        self.call("nvmf_subsystem_add_peer", nqn=SHARED, path=str(other.path), timeout_ms=timeout_ms)


class Host(Daemon):
    """A host with one controller, and raw commands for it."""

    def __init__(self, node):
        super().__init__("-m", "[1]", "-s", "512", env=preload())
        try:
            self.call("bdev_nvme_attach_controller", name="N", hostnqn=HOSTNQN, subnqn=SHARED, **node.listen_address())
        except BaseException:
            self.__exit__()
            raise

    def command(self, opcode, kind="admin", cdw=(0, 0, 0, 0, 0, 0), **params):
        sqe = struct.pack("<BBHI32x6I", opcode, 0, 0, 1 if kind == "io" else 0, *cdw)
        return {"name": "N", "cmd_type": kind, "data_direction": "h2c", "cmdbuf": base64.urlsafe_b64encode(sqe).decode(), **params}

    def reset(self, name):
        """Has its controller reset another one: the status and dword 0."""
        cirn = int(name["cirn"], 16)
        cdw = (name["cntlid"] | name["ciu"] << 16, 0, cirn & 0xffffffff, cirn >> 32, 0, 0)
        answer = self.call("bdev_nvme_send_cmd", **self.command(0x38, cdw=cdw))
        cpl = base64.urlsafe_b64decode(answer["cpl"])
        return struct.unpack("<H", cpl[14:16])[0] >> 1 & 0x7ff, struct.unpack("<I", cpl[:4])[0]

    def write(self, node):
        """Begins a write that does not end soon; again, if the host's queues were not back yet."""
        data = base64.urlsafe_b64encode(bytes(512)).decode()
        request = {"jsonrpc": "2.0", "id": 1, "method": "bdev_nvme_send_cmd", "params": self.command(1, "io", data=data, timeout_ms=300000)}
        client = self.client()

        def under_way():
            if any(c["command"] == "write" for c in node.call("nvmf_get_inflight")):
                return True
            client.send(request)
            return False
        wait_for(under_way, "a write to be under way")
        return client


class Pair:
    """left with the host `lost`, right with the host `asker`, which is the same host."""

    def __enter__(self):
        self.parts = []
        try:
            self.left, self.right = self.add(Node(0)), self.add(Node(1))
            self.lost, self.asker = self.add(Host(self.left)), self.add(Host(self.right))
            return self
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def add(self, part):
        self.parts.append(part)
        return part

    def __exit__(self, *exc):
        for p in self.parts:
            p.__exit__(*exc)

    def fails(self, name, why):
        """The reset of a controller fails, and the reason is told."""
        before = len(self.right.notifications("nvmf_cross_reset_failed"))
        status, dw0 = self.asker.reset(name)
        check((status, dw0) == (0, 0), f"status {status:#x}, dw0 {dw0}")
        wait_for(lambda: len(self.right.notifications("nvmf_cross_reset_failed")) > before, "the reset to fail")
        told = self.right.notifications("nvmf_cross_reset_failed")[-1]
        check(told["ctx"] == f"{SHARED} {HOSTNQN}" and why in told["reason"], told)


def test_a_controller_of_the_same_process():
    with Node(0) as node, Host(node) as lost:
        name = node.only()
        with Host(node) as asker:
            status, dw0 = asker.reset({**name, "cirn": hex(int(name["cirn"], 16) ^ 1)})
            check(status == 2, f"another CIRN: {status:#x}")
            node.slow(2_000_000)
            client = lost.write(node)
            status, dw0 = asker.reset(name)
            check((status, dw0) == (0, 0), f"the write is not waited for: {status:#x} {dw0}")
            check(asker.reset(name)[0] in (IN_PROGRESS, 0), "twice")
            wait_for(lambda: node.notifications("nvmf_cross_reset_done"), "the reset")
            check(not node.exists(name), "it is still there")
            check(node.notifications("nvmf_cross_reset")[0]["ctx"] == f"{SHARED} {HOSTNQN} {name['cntlid']}", "what was told")
            check(asker.reset(name) == (0, IMMEDIATE), "it is gone")
            client.close()
        gone = [n for n in node.notifications("nvmf_host_disconnect") if n["ctx"] == f"{SHARED} {HOSTNQN} {name['cntlid']}"]
        check("Cross-Controller Reset" in gone[0]["reason"], gone)


def test_a_controller_of_a_peer():
    with Pair() as p:
        name = p.left.only()
        p.fails(name, "no peers")
        p.right.add_peer(p.left)
        p.left.add_peer(p.right)
        check(p.asker.reset(name) == (0, IMMEDIATE), "an idle controller is reset at once")
        check(not p.left.exists(name), "it is still there")
        check(p.asker.reset(name) == (0, IMMEDIATE), "again")
        check(p.right.peer() == {"path": str(p.left.path), "timeout_ms": 60000, "ended": 2, "unknown": 0, "failed": 0}, p.right.peer())
        wait_for(lambda: len(p.left.controllers(SHARED)) == 1, "the host to come back")
        name = p.left.only()
        p.left.slow(3_000_000)
        client = p.lost.write(p.left)
        check(p.asker.reset(name) == (0, 0), "not immediate")
        entries = [e for c in p.right.controllers(SHARED) for e in c.get("cross_resets", [])]
        check(any(e["cntlid"] == name["cntlid"] and e["ciu"] == name["ciu"] for e in entries), entries)
        wait_for(lambda: len(p.right.notifications("nvmf_cross_reset_done")) == 3, "the reset")
        check(not p.left.exists(name), "it is still there")
        client.close()


def test_a_peer_that_is_stopped_dies_and_comes_back():
    with Pair() as p:
        name = p.left.only()
        p.right.add_peer(p.left, timeout_ms=500)
        p.left.process.send_signal(signal.SIGSTOP)
        p.fails(name, "no answer within 500 ms")
        check(p.right.only()["state"] == "ready", "the asker's controller")
        p.left.process.send_signal(signal.SIGCONT)
        wait_for(lambda: not p.left.exists(name), "the request that was given up to be carried out")
        check(p.asker.reset(name) == (0, IMMEDIATE), "asked again")
        wait_for(lambda: len(p.left.controllers(SHARED)) == 1, "the host to come back")
        name = p.left.only()
        p.left.slow(FOREVER_US)
        client = p.lost.write(p.left)
        p.fails(name, "no answer within 500 ms")  # a write that does not end
        check(p.left.exists(name), "it is not gone, and nobody says so")
        p.left.process.kill()
        p.left.process.wait()
        p.fails(name, "cannot be connected to")
        client.close()


def test_a_subsystem_that_was_made_again_does_not_know():
    with Pair() as p:
        name = p.left.only()
        p.right.add_peer(p.left)
        p.left.call("nvmf_delete_subsystem", nqn=SHARED)
        p.fails(name, "there is no such subsystem")
        p.left.add_shared()
        p.fails(name, "never was one of its own")


def test_what_happens_while_a_peer_is_asked():
    with Pair() as p:
        name = p.left.only()
        p.left.slow(FOREVER_US)
        client = p.lost.write(p.left)
        p.right.add_peer(p.left)
        check(p.asker.reset(name) == (0, 0), "not immediate")
        check(p.asker.reset(name) == (IN_PROGRESS, 0), "one at a time")
        p.right.call("nvmf_subsystem_remove_peer", nqn=SHARED, path=str(p.left.path))
        wait_for(lambda: p.right.notifications("nvmf_cross_reset_failed"), "the reset to fail")
        check("removed" in p.right.notifications("nvmf_cross_reset_failed")[0]["reason"], "why")
        p.right.add_peer(p.left)
        check(p.asker.reset(name) == (0, 0), "not immediate")
        p.right.call("nvmf_delete_subsystem", nqn=SHARED)
        client.close()
        p.right.stop_clean("which failed", "refused with status 0x13f", "removed from the subsystem")


def test_two_peers_that_ask_each_other():
    with Pair() as p:
        names = p.left.only(), p.right.only()
        p.right.add_peer(p.left)
        p.left.add_peer(p.right)
        answers = []

        def ask(host, name):
            try:
                answers.append(host.reset(name))
            except Exception as e:      # its own controller may be reset first
                answers.append(e)
        threads = [threading.Thread(target=ask, args=a) for a in ((p.asker, names[0]), (p.lost, names[1]))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wait_for(lambda: not p.left.exists(names[0]) or not p.right.exists(names[1]), lambda: f"one of them to be gone: {answers}")
        for node in (p.left, p.right):
            wait_for(lambda n=node: len(n.controllers(SHARED)) == 1, "the hosts to come back")
            check(node.call("nvmf_get_subsystems", nqn=SHARED)[0]["peers"] != [], "it answers")


def test_peers_are_saved_and_checked():
    with Node(0) as node:
        node.call("nvmf_subsystem_add_peer", nqn=SHARED, path="/run/other.sock")
        saved = [m for m in node.call("framework_get_config", name="nvmf") if m["method"] == "nvmf_subsystem_add_peer"]
        check(saved == [{"method": "nvmf_subsystem_add_peer", "params": {"nqn": SHARED, "path": "/run/other.sock", "timeout_ms": 10000}}], saved)
        for params, words in (({"path": "other.sock"}, ["path", "absolute"]), ({"path": "/" + 107 * "x"}, ["path", "107"]),
                              ({"path": "/run/other.sock"}, ["already"]), ({"path": "/x", "timeout_ms": 1}, ["timeout_ms", "100"])):
            status, _, err = node.rpc("nvmf_subsystem_add_peer", f"nqn={SHARED}", *(f"{k}={v}" for k, v in params.items()))
            check(status != 0 and all(w in err for w in words), err)
        node.call("nvmf_subsystem_remove_peer", nqn=SHARED, path="/run/other.sock")
        status, _, err = node.rpc("nvmf_subsystem_remove_peer", f"nqn={SHARED}", "path=/run/other.sock")
        check(status != 0 and "no such peer" in err, err)


if __name__ == "__main__":
    main(sys.modules[__name__])
