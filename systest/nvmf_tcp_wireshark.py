#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root tshark
# beside
# limit: 600
"""Wireshark judges the bytes: it dissects what hosts and targets say to each other on the loopback interface. No PDU of ours may be malformed
or have a wrong digest, and it must count as many PDUs and bytes as the target's counters and the hosts do.

One combination is left out: padding before data that have a digest. Wireshark (4.0) takes the padding for data, computes the digest over
bytes behind the PDU, and calls the PDU malformed."""
import pathlib
import random
import socket
import struct
import sys
import tempfile
import threading

import nvmf_tcp_abort
import nvmf_tcp_hostile
from appliance_lib import DEADLINE, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT, Host, verifying
from nvmf_tcp import both, write_and_read_all_sizes
from nvmf_tcp_lib import (C2H_DATA, C2H_TERM, CAPSULE_CMD, CAPSULE_RESP, DISCOVERY, H2C_DATA, H2C_TERM, ICREQ, ICRESP, R2T, Connection, Queue,
                          TcpTarget)
from wireshark_lib import captured, check_no_fault

AERS = 4    # Asynchronous Event Requests of our host, which are outstanding when it goes
FORMS = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 31), (1, 0, 5))     # header and data digests, alignment


class Hosts:
    """Follows the connections of nvmf_tcp_lib.py: by the host's port, what has arrived there."""

    def __enter__(self):
        self.all, self.real = {}, Connection.open_socket
        hosts = self

        def open_socket(connection, *args):
            sock = hosts.real(connection, *args)
            hosts.all[sock.getsockname()[1]] = connection
            return sock
        Connection.open_socket = open_socket
        return self

    def __exit__(self, *_):
        Connection.open_socket = self.real


def check_as_hosts_saw(hosts, seen, in_full=True):
    """Each PDU that a host has taken was dissected. in_full: and no other, for it took all."""
    check(hosts.all, "no host was there")
    for port, connection in hosts.all.items():
        for type in (ICRESP, C2H_TERM, CAPSULE_RESP, C2H_DATA, R2T):
            there, here = seen.answered[port].types[type], connection.received.count(type)
            check(there == here if in_full else there >= here, f"port {port}: {there} PDUs of type {type}, and the host has taken {here}")


def counters(t):
    return t.call("nvmf_get_stats")["poll_groups"][0]["transports"][0]["devices"][0]


def check_as_target_counted(t, before, hosts, seen):
    now = counters(t)
    count = {name: now[name] - before[name] for name in ("requests", "r2ts", "terminations", "read_bytes", "sent_bytes", "digest_errors")}
    sent, answered = seen.sent, seen.answered
    icresp = 128 * seen.total(answered, ICRESP)     # are not among the bytes that are counted
    check(count == {"requests": seen.total(sent, CAPSULE_CMD), "r2ts": seen.total(answered, R2T), "terminations": seen.total(answered, C2H_TERM),
                    "read_bytes": seen.total(sent), "sent_bytes": seen.total(answered) - icresp,
                    "digest_errors": sum(d.digests["ddgst", False] for d in sent.values())},
          f"the target counted {count}; dissected: {[(p, dict(d.types), d.bytes) for p, d in [*sent.items(), *answered.items()] if d.types]}")
    for port, d in sent.items():
        unanswered = d.types[CAPSULE_CMD] - answered[port].types[CAPSULE_RESP] - answered[port].successes
        check(0 <= unanswered <= (0 if port in hosts.all else AERS), f"port {port}: {unanswered} commands without an answer")
    return count


class Served(TcpTarget):
    def __enter__(self):
        super().__enter__()
        self.add_malloc("M0")
        self.add_ns("M0")
        self.add_listener(DISCOVERY)
        return self


def judged(t, act, faultless=("sent", "answered")):
    """Lets Wireshark watch act(), which leaves no connection; what it has seen, and what the target has counted."""
    before = {}

    def watched():
        before.update(counters(t))
        with Hosts() as hosts:
            act()
        t.wait_empty()
        return hosts
    hosts, seen = captured(t.folder, t.port, watched)
    for side in faultless:
        check_no_fault(getattr(seen, side))
    return hosts, seen, check_as_target_counted(t, before, hosts, seen)


def test_our_host_and_our_target():
    """Of all sizes, in capsules and by R2T, with digests."""
    def act():
        for size, digests in (("512", ()), ("4k", ("--hdgst",)), ("8k", ("--ddgst",)), ("64k", ("--hdgst", "--ddgst")), ("128k", ())):
            with verifying(t, 1, "--ios", "300", "-o", size, "-q", "16", *digests) as h:
                h.check_perfect(h.result())

    with Served() as t:
        _, seen, count = judged(t, act)
        check(count["r2ts"] > 100 and seen.total(seen.sent, H2C_DATA) > 100 and seen.total(seen.answered, C2H_DATA) > 500, count)
        for name in ("hdgst", "ddgst"):
            for side in (seen.sent, seen.answered):
                check(sum(d.digests[name, True] for d in side.values()) > 200, f"few digests: {name}")
        t.stop_clean()


def test_our_discovery():
    with Served() as t, TcpTarget(cores="[1]", port=PORT + 20000) as front:
        def act():
            front.call("bdev_nvme_start_discovery", name="d", wait_for_attach=True, **t.listen_address())
            check([x["name"] for x in front.call("bdev_get_bdevs")] == ["d0n1"], "the bdev that is listed")
            front.call("bdev_nvme_stop_discovery", name="d")
            wait_for(lambda: front.call("bdev_get_bdevs") == [], "its end")

        _, seen, _ = judged(t, act)
        check(len([d for d in seen.sent.values() if d.types[ICREQ]]) >= 2, "a connection to discovery, and one to what it lists")


def test_what_the_target_answers_to_a_host_that_is_not_ours():
    def act():
        for n, (hdgst, ddgst, hpda) in enumerate(FORMS):
            write_and_read_all_sizes(t, random.Random(n), hdgst=hdgst, ddgst=ddgst, hpda=hpda)
        with Queue(nqn=DISCOVERY) as admin:
            admin.enable()
            admin.log_page(0x70, 3072)
            check(admin.command(admin.sqe(0xEE)).status != 0, "an opcode that is not there")
        admin, q = both(t)
        with admin, q:
            for blocks in (1, 8, 256):
                check(q.read(1 << 30, blocks).status != 0, "a read beyond the end")
                check(q.write(1 << 30, bytes(512 * blocks), in_capsule=blocks <= 8).status != 0, "a write beyond the end")
                check(q.read(0, blocks, nsid=7).status != 0, "a namespace that is not there")

    with Served() as t:
        hosts, seen, count = judged(t, act)
        check_as_hosts_saw(hosts, seen)
        check(count["terminations"] == 0, count)
        t.stop_clean()


def test_wrong_data_digests_are_seen_by_both():
    def act():
        admin, q = both(t, ddgst=True)
        with admin, q:
            for n in range(20):
                c = q.write(8 * n, bytes(4096), **({"data_digest": b"\1\2\3\4"} if n % 2 else {}))
                check((c.status == 0) == (n % 2 == 0), f"{n}: status {c.status:#x}")

    with Served() as t:
        hosts, seen, count = judged(t, act, ("answered",))
        check(count["digest_errors"] == 10, count)
        check_as_hosts_saw(hosts, seen)


def watch_other_test(test, **kwargs):
    """Wireshark watches a test of another file; only what the target has sent must be faultless."""
    def act():
        with Hosts() as hosts:
            test(**kwargs)
        return hosts

    with tempfile.TemporaryDirectory() as folder:
        hosts, seen = captured(pathlib.Path(folder), PORT, act)
    check_no_fault(seen.answered)
    check_as_hosts_saw(hosts, seen, False)
    return seen


def test_what_the_target_answers_to_hosts_that_break_the_rules():
    h = nvmf_tcp_hostile
    for test, terms in ((h.test_first_pdu_must_be_a_good_icreq, 7), (h.test_second_icreq_ends_the_connection, 1),
                        (h.test_wrong_sizes_end_the_connection, 3), (h.test_more_data_in_a_capsule_than_was_agreed, 2),
                        (h.test_wrong_header_digest_ends_the_connection, 1), (h.test_data_that_nobody_asked_for, 7),
                        (h.test_data_of_an_answered_command, 1), (h.test_h2ctermreq_ends_the_connection, 0)):
        seen = watch_other_test(test)
        there = seen.total(seen.answered, C2H_TERM)
        check(there == terms, f"{test.__name__}: {there} C2HTermReq, {terms} expected")


def test_what_the_target_answers_after_aborts():
    a = nvmf_tcp_abort
    for test in (a.test_write_is_aborted_in_the_middle_of_its_data, a.test_second_piece_comes_after_the_abort,
                 a.test_all_writes_of_a_queue_are_aborted_and_their_data_come):
        seen = watch_other_test(test)
        check(seen.total(seen.answered, R2T) >= 1, f"{test.__name__}: no R2T")


def test_how_our_host_ends_a_connection():
    """A target that answers ICReq with a version that does not exist, and one that sends a PDU that only hosts send."""
    def answer(server, pdu):
        with server.accept()[0] as s:
            s.settimeout(DEADLINE)
            s.sendall(pdu)
            while s.recv(4096):
                pass

    icresp = struct.pack("<BBBBIHBBI112x", ICRESP, 0, 128, 0, 128, 1, 0, 0, 131072)
    command = struct.pack("<BBBBI", CAPSULE_CMD, 0, 72, 0, 72) + bytes(64)
    for pdu in (icresp, command):
        with tempfile.TemporaryDirectory() as folder, socket.create_server((ADDRESS, PORT)) as server:
            server.settimeout(DEADLINE)

            def act():
                peer = threading.Thread(target=answer, args=(server, pdu), daemon=True)
                peer.start()
                where = f"trtype:TCP adrfam:IPv4 traddr:{ADDRESS} trsvcid:{PORT} subnqn:{NQN}"
                with Host(type("Nobody", (), {"folder": pathlib.Path(folder)}), "-r", where) as h:
                    check(h.wait() == 1, "varve-perf has taken it for a target")
                peer.join(DEADLINE)
                check(not peer.is_alive(), "the connection did not end")
            _, seen = captured(pathlib.Path(folder), PORT, act)
        check_no_fault(seen.sent)
        check(seen.total(seen.sent, ICREQ) == 1 and seen.total(seen.sent, H2C_TERM) == 1, [dict(d.types) for d in seen.sent.values()])


if __name__ == "__main__":
    main(sys.modules[__name__])
