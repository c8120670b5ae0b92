#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 500
# sanitize
"""TLS records that somebody on the way changes, one fault for each connection: in the handshake, and among the commands of a queue. The target ends
the connection, gives wrong bytes to nobody, and a good host beside goes on. VARVE_CASES and VARVE_SEED choose others; VARVE_ONLY sends one case
alone."""
import contextlib
import os
import random
import select
import socket
import struct
import sys
import threading

from appliance_lib import DEADLINE, check, main, wait_for
from nvmf_lib import ADDRESS, PORT, verifying, wait_io
from nvmf_tcp_lib import Closed, Terminated
from nvmf_tls_lib import KEYS, TlsQueue, TlsTarget, check_gone, vectors

SEED = int(os.environ.get("VARVE_SEED", random.randrange(1 << 31)))
CASES = int(os.environ.get("VARVE_CASES", "48" if os.environ.get("VARVE_SANITIZED") else "64"))
CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, DATA = 20, 21, 22, 23


def record(kind, payload, length=None, version=0x0303):
    return struct.pack(">BHH", kind, version, len(payload) if length is None else length) + payload


class Relay:
    """Between openssl s_client and the target: takes the host's records apart. `fault(relay, record)` gives what is sent in place of the record with
    the number `at`, counted from the ClientHello; None: and then the connection is cut."""

    def __init__(self, at, fault):
        self.at, self.fault, self.seen, self.kept, self.faulty = at, fault, 0, b"", False
        self.server = socket.create_server((ADDRESS, 0))
        self.server.settimeout(DEADLINE)
        self.port = self.server.getsockname()[1]
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.ended_by_target = False

    def take_records(self, data):
        """What is to be sent of it."""
        self.kept += data
        out = b""
        while len(self.kept) >= 5 and len(self.kept) >= 5 + (n := struct.unpack(">H", self.kept[3:5])[0]):
            one, self.kept = self.kept[:5 + n], self.kept[5 + n:]
            if one[0] == CHANGE_CIPHER_SPEC:        # it has no meaning in TLS 1.3, and may come more than once
                out += one
                continue
            if self.seen == self.at:
                self.faulty = True
                one = self.fault(self, one)
                if one is None:
                    return None
            self.seen += 1
            out += one
        return out

    def from_target(self, target):
        """What has come from it; its end, also by a reset, is b""."""
        try:
            data = target.recv(65536)
        except ConnectionError:
            data = b""
        self.ended_by_target |= not data
        return data

    def to_target(self, target, data):
        """False: the connection is not to go on."""
        try:
            if data is None:
                target.shutdown(socket.SHUT_WR)
                while self.from_target(target):
                    pass
                return False
            target.sendall(data)
        except ConnectionError:
            self.ended_by_target = True
        return not self.ended_by_target

    def forward(self, host, target):
        while True:
            for s in select.select([host, target], [], [], DEADLINE)[0]:
                if s is target:
                    data = self.from_target(target)
                    if not data:
                        return
                    host.sendall(data)
                elif not (data := host.recv(65536)) or not self.to_target(target, self.take_records(data)):
                    return

    def run(self):
        with self.server, self.server.accept()[0] as host, socket.create_connection((ADDRESS, PORT), timeout=DEADLINE) as target:
            with contextlib.suppress(OSError):      # the host has ended
                self.forward(host, target)
            with contextlib.suppress(OSError):      # the target is not told of that: it ends the connection because of the fault
                while self.faulty and not self.ended_by_target:
                    self.from_target(target)


def flipped(rng, data, at_least=0):
    wrong = bytearray(data)
    wrong[rng.randrange(at_least, len(wrong))] ^= 1 << rng.randrange(8)
    return bytes(wrong)


# What becomes of a record; each makes the connection end, wherever the record is.
FAULTS = {
    "cut off": lambda rng, r, one: None,
    "a byte changed": lambda rng, r, one: flipped(rng, one, 5),
    "twice": lambda rng, r, one: one + one,
    "of random bytes": lambda rng, r, one: record(DATA, rng.randbytes(rng.randrange(1, 600))),
    "shorter than it says": lambda rng, r, one: one[:5] + one[5:5 + (len(one) - 5) // 2] + record(DATA, bytes(len(one))),
    "longer than is allowed": lambda rng, r, one: record(DATA, bytes(16384 + 257)),
    "a length of 65535": lambda rng, r, one: record(DATA, bytes(20000), 65535),
    "no payload": lambda rng, r, one: record(DATA, b"") + one,
    "of an unknown kind": lambda rng, r, one: record(rng.choice((0, 19, 25, 255)), rng.randbytes(20)) + one,
    "of another version": lambda rng, r, one: record(rng.choice((DATA, HANDSHAKE)), rng.randbytes(20), version=rng.choice((0, 0x0200, 0x0400))),
    "a fatal alert in clear": lambda rng, r, one: record(ALERT, bytes((2, rng.randrange(256)))) + one,
    "an alert that is cut off": lambda rng, r, one: record(ALERT, b"\2") + one,
    "KeyUpdate in clear": lambda rng, r, one: record(HANDSHAKE, struct.pack(">I", 24 << 24 | 1) + b"\1") + one,
    "another ClientHello": lambda rng, r, one: record(HANDSHAKE, b"\1" + rng.randbytes(200)) + one,
    "HelloRequest": lambda rng, r, one: record(HANDSHAKE, bytes(4)) + one,
    "plain text": lambda rng, r, one: b"GET / HTTP/1.0\r\n\r\n" + one,
}


# Records that every connection has: ClientHello, Finished, ICReq, Connect. How many come later depends on how s_client cuts what it is given.
EARLY = (0, 1, 2, 3)


def send_case(rng, kind, at):
    """One connection; returns whether the fault was sent."""
    relay = Relay(at, lambda r, one: FAULTS[kind](rng, r, one))
    with contextlib.suppress(Closed, Terminated, OSError):
        with TlsQueue(port=relay.port, size=32) as q:
            q.enable()
            for _ in range(4):
                cids = [q.start(q.sqe(0x06, 0, struct.pack("<I", 1)), length=4096) for _ in range(4)]
                for cid in cids:
                    c = q.finish(cid)
                    check(c.status == 0 and len(c.data) == 4096 and c.data[4:24].strip() != b"", "Identify Controller")
    relay.thread.join(DEADLINE)
    check(not relay.thread.is_alive(), f"{kind}, record {at}: the connection does not end")
    check(not relay.faulty or relay.ended_by_target, f"{kind}, record {at}: the target goes on")
    return relay.faulty


def test_changed_records_end_their_connection_and_no_other():
    with TlsTarget() as t:
        path = t.folder / "host.tls"
        path.touch(mode=0o600)
        path.write_text(vectors.text(*KEYS["psk"]) + "\n")
        with verifying(t, 1, "--psk", str(path), "-o", "4k", "-q", "4", "-t", str(20 * DEADLINE)) as good:
            wait_io(t, [good], 3000)    # it has written its region
            sent = {}
            for n in range(CASES):
                rng = random.Random(f"{SEED} {n}")
                kind = list(FAULTS)[n % len(FAULTS)]
                at = rng.choice(EARLY if n < len(FAULTS) else (*EARLY, 3, 4, 5, 6, 8, 12, 20))
                if os.environ.get("VARVE_ONLY", str(n)) != str(n):
                    continue
                try:
                    sent[kind] = sent.get(kind, 0) + send_case(rng, kind, at)
                except Exception as e:
                    raise type(e)(f"case {n}: {e}") from e
            check("VARVE_ONLY" in os.environ or all(sent.values()), f"kinds that were never sent: {sent}")
            wait_io(t, [good], 100)
            good.check_perfect(good.stop())
        check_gone(t)
        check(t.stop() == 0 and "Sanitizer" not in t.log(), t.log())
        check(not any(k.hex() in t.log() for k, _ in KEYS.values()), "a key is in the log")


def test_handshakes_that_never_end_leave_a_good_host_alone():
    """Many, while hosts come and go."""
    with TlsTarget() as t, TlsQueue() as good:
        good.enable()
        silent = []
        for n in range(100):
            s = socket.create_connection((ADDRESS, PORT), timeout=DEADLINE)
            s.sendall((b"", b"\x16", b"\x16\x03\x01\x02\x00" + bytes(100))[n % 3])
            silent.append(s)
            if n % 20 == 0:
                with TlsQueue() as q:
                    q.enable()
        check(good.identify(1)[:2] != b"", "the good host")
        for s in silent:
            with s, contextlib.suppress(ConnectionResetError):
                while s.recv(4096):
                    pass
        wait_for(lambda: "not made in time" in t.log(), "the log")
        check(good.identify(1)[:2] != b"", "the good host")
        good.close()
        check_gone(t)
        check(t.stop() == 0 and "Sanitizer" not in t.log(), t.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
