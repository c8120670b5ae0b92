#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
# sanitize
"""Secure channel concatenation: DH-HMAC-CHAP on a connection without TLS generates a key, by which the host's next connections are made over TLS.
The target judged by a host whose authentication and keys are Python's, and whose TLS is that of openssl s_client; then varve's own host."""
import contextlib
import importlib.util
import os
import signal
import socket
import struct
import sys
import threading

from appliance_lib import DEADLINE, TOP, RpcError, check, main, wait_for
from auth import add_keys
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT, Target, verifying, wait_io
from nvmf_tcp_lib import Closed, Queue, TcpTarget
from nvmf_tls_lib import Client, check_gone, vectors as tls

spec = importlib.util.spec_from_file_location("dhchap_vectors", TOP / "unittest/dhchap/vectors.py")
chap = importlib.util.module_from_spec(spec)
spec.loader.exec_module(chap)

BACK_PORT = PORT + 20000
OTHER = "nqn.2026-11.io.varve:other"
EXPECTED = ("authentication", "closed the connection", "not allowed to connect", "was refused", "handshake", "lost")
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1}
RAW = {seed: bytes((seed * 31 + i) & 0xFF for i in range(length)) for seed, length in ((1, 32), (2, 64), (4, 32))}     # as auth.secret()
ICREQ = struct.pack("<BBBBIHBBI112x", 0, 0, 128, 0, 128, 0, 0, 0, 0)
NEW, REPLACE = 2, 3
SEND, RECEIVE = 5, 6
FAILED, SCC_MISMATCH, HASH_UNUSABLE, INCORRECT_PAYLOAD = 1, 3, 4, 6


class Refused(Exception):
    def __init__(self, why):
        super().__init__(f"AUTH_Failure1: {why}")
        self.why = why


class ConcatTarget(TcpTarget):
    """A target with a host that has to authenticate, on a listener that does not demand TLS."""

    def __init__(self, hosts=(HOSTNQN,), **kwargs):
        super().__init__(**kwargs)
        add_keys(self)
        self.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=False)
        for host in hosts:
            self.call("nvmf_subsystem_add_host", nqn=NQN, host=host, dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        self.add_malloc("M0")
        self.add_ns("M0")

    def set_keys(self, **keys):
        self.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN, **keys)


class ChapMixin:
    """Authentication by Python."""

    transaction = 7

    def auth_sqe(self, fctype, length):
        return self.sqe(0x7F, fctype, struct.pack("<BBBBI", 0, 1, 1, 0xE9, length))

    def send_message(self, message):
        self.good(self.auth_sqe(SEND, len(message)), message)

    def receive_message(self, id):
        data = self.good(self.auth_sqe(RECEIVE, 4096), length=4096).data
        if data[:2] == b"\x00\xf1":
            raise Refused(data[7])
        check(data[:2] == bytes((1, id)) and struct.unpack_from("<H", data, 4)[0] == self.transaction, data[:8].hex())
        return data

    def negotiate(self, sc_c, hashes, groups):
        self.send_message(struct.pack("<BBHHBB", 0, 0, 0, self.transaction, sc_c, 1) + struct.pack("<BBBB", 1, 0, len(hashes), len(groups)) +
                          bytes(hashes).ljust(30, b"\0") + bytes(groups).ljust(30, b"\0"))
        return self.receive_message(1)

    def authenticate(self, sc_c=0, hashes=(1,), groups=(1,), mutual=False, challenges=None, hostnqn=HOSTNQN, key=RAW[1], seqnum=None):
        """Returns hash and generated key."""
        data = self.negotiate(sc_c, hashes, groups)
        size, hash_id, group, dh_len, s1 = struct.unpack_from("<BxBBHI", data, 6)
        name = chap.HASHES[hash_id]
        check(group in groups and hash_id in hashes, f"hash {hash_id}, group {group}")
        of_ctrlr, value = data[16:16 + size], data[16 + size:16 + size + dh_len]
        p, private = chap.prime(*chap.GROUPS[group]), int.from_bytes(os.urandom(32), "big")
        shared = pow(int.from_bytes(value, "big"), private, p).to_bytes(dh_len, "big")
        challenges = sc_c != 0 or mutual if challenges is None else challenges
        of_host = os.urandom(size) if challenges else bytes(size)
        s2 = seqnum if seqnum is not None else 77 if mutual else 0
        response = chap.respond(key, name, of_ctrlr, s1, self.transaction, "HostHost", hostnqn, NQN, shared, sc_c)
        self.send_message(struct.pack("<BBHHBBBBHI", 1, 2, 0, self.transaction, size, 0, challenges, 0, dh_len, s2) + response + of_host +
                          pow(2, private, p).to_bytes(dh_len, "big"))
        data = self.receive_message(3)
        check(data[8] == mutual, f"Success1: RVALID {data[8]}")
        if mutual:
            ctrlr_key = chap.transform(RAW[2], 3, NQN)
            expected = chap.respond(ctrlr_key, name, of_host, s2, self.transaction, "Controller", NQN, hostnqn, shared, sc_c)
            check(data[16:16 + size] == expected, "the controller's response")
            self.send_message(struct.pack("<BBHH10x", 1, 4, 0, self.transaction))
        return hash_id, chap.generate_psk(name, shared, of_ctrlr, of_host)


class Plain(ChapMixin, Queue):
    pass


class Secured(ChapMixin, Queue):
    """Over TLS with a generated key. The target does not ask for authentication again."""

    def __init__(self, generated, *args, tls_hostnqn=HOSTNQN, **kwargs):
        self.credential = tls.generated_credential(generated[1], generated[0], tls_hostnqn, NQN)
        super().__init__(*args, **kwargs)

    def open_socket(self, address, port):
        self.client = Client(*self.credential, port, ("-quiet", "-tls1_3"), address)
        return self.client.sock

    def connect(self, *args, **kwargs):
        c = super().connect(*args, **kwargs)
        check(c.result >> 16 == 0, f"AUTHREQ {c.result >> 16}")
        return c

    def close(self):
        return self.client.close()


def generate(hostnqn=HOSTNQN, **kwargs):
    with Plain(hostnqn=hostnqn) as q:
        return q.authenticate(NEW, hostnqn=hostnqn, **kwargs)


def gone(s):
    """Whether the target closes the connection before it has sent anything."""
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True


@contextlib.contextmanager
def secured_controller(generated, **kwargs):
    """Its admin queue and an I/O queue."""
    with Secured(generated, **kwargs) as admin:
        admin.enable()
        with Secured(generated, qid=1, cntlid=admin.cntlid, **kwargs) as q:
            yield admin, q


def use(generated, **kwargs):
    with secured_controller(generated, **kwargs) as (_, q):
        data = os.urandom(4096)
        check(q.write(8, data).status == 0 and q.read(8, 8).data == data, "I/O over TLS")


def is_refused(t, generated, *words):
    client = Client(*tls.generated_credential(generated[1], generated[0], HOSTNQN, NQN))
    check(client.ends_by_itself()[0] == b"", "something came from the target")
    if words:
        wait_for(lambda: any(all(w in r for w in words) for r in t.refusals()), f"a notification with {words}: {t.refusals()}")


def test_the_generated_key_connects_over_tls():
    with ConcatTarget() as t:
        for params in ({}, {"mutual": True}, {"hashes": (3, 1), "groups": (0, 2), "mutual": True}):
            use(generate(**params))
        for hashes in ((1, 2, 3), (2,)):        # s_client has a PSK for AES-128-GCM with SHA-256 only; varve's host takes both, below
            check(generate(hashes=hashes)[0] == 2, "the strongest hash function that TLS has")
        check_gone(t)
        check(t.refusals() == [], t.refusals())
        t.stop_clean(*EXPECTED)


def refuses(why, q, *args, **kwargs):
    try:
        check(False, f"authenticated: {q.authenticate(*args, **kwargs)}")
    except Refused as e:
        check(e.why == why, f"{args} {kwargs}: {e}, not {why}")


def test_a_secure_channel_is_refused_where_there_can_be_none():
    with ConcatTarget() as t:
        for why, sc_c, params in ((SCC_MISMATCH, 1, {}), (SCC_MISMATCH, 4, {}), (SCC_MISMATCH, 255, {}), (SCC_MISMATCH, REPLACE, {}),
                                  (SCC_MISMATCH, NEW, {"groups": (0,)}), (SCC_MISMATCH, NEW, {"groups": ()}), (SCC_MISMATCH, NEW, {"groups": (0, 9)}),
                                  (HASH_UNUSABLE, NEW, {"hashes": (3,)}), (INCORRECT_PAYLOAD, NEW, {"challenges": False}),
                                  (INCORRECT_PAYLOAD, 0, {"challenges": True, "seqnum": 0})):
            with Plain() as q:
                refuses(why, q, sc_c, **params)
        with Plain() as q:                                      # a wrong key generates nothing
            refuses(FAILED, q, NEW, key=RAW[4])
        with Plain() as admin:
            admin.authenticate()
            admin.enable()
            with Plain(qid=1, cntlid=admin.cntlid) as q:
                refuses(SCC_MISMATCH, q, NEW)
        generated = generate()
        with Secured(generated) as admin:
            refuses(SCC_MISMATCH, admin, NEW)
        with secured_controller(generated) as (admin, q):
            refuses(SCC_MISMATCH, q, REPLACE)
            check(admin.identify(1)[:2] != b"", "the admin queue goes on")
        check_gone(t)
        t.stop_clean(*EXPECTED)


def test_tls_before_there_is_a_key_is_refused():
    with ConcatTarget() as t:
        nothing = (1, bytes(32))
        is_refused(t, nothing)                  # the listener takes it for an ICReq
        generated = generate()
        is_refused(t, nothing, "no such generated psk")
        with Plain() as q:                      # and one without TLS, meanwhile
            q.authenticate()
            q.enable()
        use(generated)
        check_gone(t)
        t.stop_clean(*EXPECTED)


def test_hosts_over_tls_are_refused_where_there_is_no_room_and_others_are_not():
    with ConcatTarget(max_anonymous_per_host=3) as t:
        generate()
        t.process.send_signal(signal.SIGSTOP)           # what each of them begins with has come when the target looks
        held = [socket.create_connection((ADDRESS, PORT), timeout=DEADLINE) for _ in range(3)]
        late = [socket.create_connection((ADDRESS, PORT), timeout=DEADLINE) for _ in range(2)]
        for s, first in zip(late, (b"\x16\x03\x01", ICREQ)):
            s.sendall(first)
        t.process.send_signal(signal.SIGCONT)
        check(gone(late[0]), "the one with TLS was answered")
        check(late[1].recv(1) == b"\x01", "no ICResp")
        check(any("too many handshakes with this address" in r for r in t.refusals()), t.refusals())
        for s in held + late:
            s.close()
        check_gone(t)
        t.stop_clean(*EXPECTED)


def test_who_connects_without_a_word_is_no_refused_host():
    with ConcatTarget() as t:
        generate()
        silent = socket.create_connection((ADDRESS, PORT), timeout=DEADLINE)
        with socket.create_connection((ADDRESS, PORT), timeout=DEADLINE) as s:
            s.shutdown(socket.SHUT_WR)
            check(gone(s), "it was answered")
        check(gone(silent), "it was answered")          # it has had its time
        silent.close()
        check(t.refusals() == [] and "is refused" not in t.log(), t.log())
        with socket.create_connection((ADDRESS, PORT), timeout=DEADLINE) as s:
            s.sendall(b"\x16")
            s.shutdown(socket.SHUT_WR)
            check(gone(s), "it was answered")
        check(any("closed the connection in the handshake" in r for r in t.refusals()), t.refusals())
        check_gone(t)
        t.stop_clean(*EXPECTED)


def test_hosts_at_once_have_keys_of_their_own():
    with ConcatTarget(hosts=(HOSTNQN, OTHER)) as t:
        hosts = [HOSTNQN, OTHER] * 3
        queues = [Plain(hostnqn=h) for h in hosts]
        data = {}
        errors = []

        def run(i):
            try:
                data[i] = queues[i].authenticate(NEW, hostnqn=hosts[i], mutual=i % 3 == 0)
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(hosts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not errors, errors)
        for q in queues:
            q.close()
        check(len({k for _, k in data.values()}) == len(hosts), "the keys are different")
        for i, h in enumerate(hosts):
            use(data[i], hostnqn=h, tls_hostnqn=h)
        with Secured(data[0], connect=False) as q:      # of another host
            c = q.connect(0xFFFF, NQN, 32, OTHER)
            check(c.status != 0, "Connect of another host")
        t.stop_clean(*EXPECTED)


def test_many_keys_of_a_host_end_with_the_oldest():
    with ConcatTarget() as t:
        first = generate()
        with Secured(first) as admin:
            admin.enable()
            unused = generate()
            for _ in range(16):
                last = generate()
            is_refused(t, unused, "no such generated psk")
            with Secured(first, qid=1, cntlid=admin.cntlid) as q:       # a controller uses it
                check(q.read(0, 1).status == 0, "read")
        use(last)
        t.stop_clean(*EXPECTED)


def test_a_key_is_replaced_while_io_runs():
    with ConcatTarget() as t:
        generated = generate()
        with secured_controller(generated) as (admin, q):
            cids = [q.start(q.rw_sqe(2, 8 * i, 8), length=4096) for i in range(16)]
            replaced = admin.authenticate(REPLACE, mutual=True)
            check(all(q.finish(cid).status == 0 for cid in cids) and q.read(0, 1).status == 0, "I/O")
            is_refused(t, generated, "no such generated psk")
            with Secured(replaced, qid=2, cntlid=admin.cntlid) as second:
                check(second.read(0, 1).status == 0, "I/O with the new key")
            admin.authenticate()            # generates no key
            again = admin.authenticate(REPLACE)
            is_refused(t, replaced, "no such generated psk")
            check(q.read(0, 1).status == 0, "I/O")
        use(again)
        t.stop_clean(*EXPECTED)


def test_keys_go_with_the_hosts_key():
    with ConcatTarget() as t:
        generated = generate()
        t.set_keys(dhchap_key="new")
        is_refused(t, generated)
        t.set_keys(dhchap_key="key")
        is_refused(t, generated)
        generated = generate()
        q = Secured(generated, connect=False)           # the handshake is done when the key goes
        t.set_keys(dhchap_key="new")
        c = Queue.connect(q, 0xFFFF, NQN, 32, HOSTNQN)
        check(c.status == 0 and c.result >> 16 != 0, "it has to authenticate after all")
        q.close()
        t.set_keys(dhchap_key="key")
        generated = generate()
        t.call("nvmf_subsystem_remove_host", nqn=NQN, host=HOSTNQN)
        is_refused(t, generated)
        check_gone(t)
        t.stop_clean(*EXPECTED)


def test_an_authentication_that_ends_half_way_generates_nothing():
    with ConcatTarget() as t:
        for _ in range(3):
            with Plain() as q:
                q.negotiate(NEW, (1,), (1,))
        with Plain() as q:
            q.negotiate(NEW, (1,), (1,))
            t.call("nvmf_subsystem_remove_host", nqn=NQN, host=HOSTNQN)
            try:
                q.send_message(struct.pack("<BBHH", 1, 2, 0, q.transaction) + bytes(10 + 64 + 256))
                q.receive_message(3)
                check(False, "it goes on")
            except (Refused, Closed, ConnectionError):
                pass
        check_gone(t)
        t.stop_clean(*EXPECTED)


class Wiretap:
    """Forwards connections, and keeps the first byte that the host sends on each."""

    def __init__(self, port):
        self.port, self.first = port, []
        self.server = socket.create_server((ADDRESS, 0))
        self.listen = self.server.getsockname()[1]
        self.accepts = threading.Thread(target=self.accept, daemon=True)
        self.accepts.start()

    def accept(self):
        while True:
            try:
                host, _ = self.server.accept()
            except OSError:
                return
            try:
                ctrlr = socket.create_connection((ADDRESS, self.port))
            except OSError:         # the target has ended
                host.close()
                continue
            for source, sink, of_host in ((host, ctrlr, True), (ctrlr, host, False)):
                threading.Thread(target=self.forward, args=(source, sink, of_host), daemon=True).start()

    def forward(self, source, sink, of_host):
        with contextlib.suppress(OSError):
            data = source.recv(65536)
            if of_host and data:
                self.first.append(data[0])
            while data:
                sink.sendall(data)
                data = source.recv(65536)
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """A thread that still waits in accept() may go on with the next socket of this number, and take the connections of another test."""
        self.server.shutdown(socket.SHUT_RDWR)
        self.accepts.join()
        self.server.close()


class Front(Target):
    def __init__(self):
        super().__init__(cores="[1]", port=PORT, trtype="TCP")
        add_keys(self)

    def attach(self, port, **params):
        where = {"trtype": "TCP", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(port), "subnqn": NQN, "hostnqn": HOSTNQN, "concat": True}
        return self.call("bdev_nvme_attach_controller", name="Nvme0", **{**where, **QUICK, "dhchap_key": "key", **params})

    def attach_fails(self, port, *words, **params):
        try:
            check(False, f"attached with {params}: {self.attach(port, **params)}")
        except RpcError as e:
            check(all(w in e.message for w in words), f"{params}: {e.message}")


def test_the_host_driver_connects_over_tls_after_authentication():
    for params in ({}, {"dhchap_ctrlr_key": "ctrlr"}):
        with Front() as f, ConcatTarget(port=BACK_PORT) as b, Wiretap(BACK_PORT) as tap:
            check(f.attach(tap.listen, **params) == ["Nvme0n1"], "the bdev")
            check(tap.first[:2] == [0, 0x16], f"the first bytes of connections: {tap.first}")
            f.add_ns("Nvme0n1")
            with verifying(f, 1, "-o", "20k", "-q", "16", "--ios", "600") as h:
                h.check_perfect(h.result())
            check(len(tap.first) > 2 and set(tap.first[1:]) == {0x16}, f"the first bytes of connections: {tap.first}")
            saved, = [m["params"] for m in f.call("framework_get_config", name="bdev") if m["method"] == "bdev_nvme_attach_controller"]
            check(saved["concat"] is True, saved)
            wait_for(lambda: f.controllers() == [], "the host to be gone")
            check(f.call("bdev_nvme_detach_controller", name="Nvme0") is True, "detach")
            b.wait_empty()
            f.stop_clean(*EXPECTED)
            b.stop_clean(*EXPECTED)


def test_the_host_driver_comes_back_and_authenticates_again_while_io_runs():
    with Front() as f, ConcatTarget(port=BACK_PORT) as b, Wiretap(BACK_PORT) as tap:
        f.attach(tap.listen)
        f.add_ns("Nvme0n1")
        with verifying(f, 1, "-o", "4k", "-q", "16", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h])
            plain = tap.first.count(0)
            for key in ("new", "key"):
                b.set_keys(dhchap_key=key)
                check(f.call("bdev_nvme_set_keys", name="Nvme0", dhchap_key=key) is True, "other keys")
            check(tap.first.count(0) == plain, f"connections without TLS: {tap.first}, {plain} of them before")
            for _ in range(2):
                before = tap.first.count(0)
                check(f.call("bdev_nvme_reset_controller", name="Nvme0") is True, "reset")
                wait_for(lambda: f.call("bdev_nvme_get_controllers", name="Nvme0")[0]["ctrlrs"][0]["state"] == "enabled", "the controller")
                check(tap.first.count(0) > before, f"each reset begins without TLS: {tap.first}")       # again, if a handshake is late
            wait_io(f, [h], 1000)
            h.check_perfect(h.stop())
        f.stop_clean(*EXPECTED)
        b.stop_clean(*EXPECTED)


def test_what_cannot_be_encrypted_is_not_attached():
    with Front() as f, ConcatTarget(port=BACK_PORT) as b:
        once = {"ctrlr_loss_timeout_sec": 0, "reconnect_delay_sec": 0}
        f.attach_fails(BACK_PORT, "concat", "dhchap_key", dhchap_key="")
        f.attach_fails(BACK_PORT, "concat", "TLS", trtype="RDMA")
        f.attach_fails(BACK_PORT, "authenticate", dhchap_key="other", **once)
        b.set_keys()        # the target does not authenticate, and generates nothing
        f.attach_fails(BACK_PORT, "AUTH_Negotiate", **once)
        b.set_keys(dhchap_key="key")
        f.call("bdev_nvme_set_options", dhchap_dhgroups=["null"])
        f.attach_fails(BACK_PORT, "Diffie-Hellman group", **once)
        f.call("bdev_nvme_set_options", dhchap_dhgroups=["ffdhe2048"], dhchap_digests=["sha512"])
        f.attach_fails(BACK_PORT, "sha256 or sha384", **once)
        f.call("bdev_nvme_set_options", dhchap_digests=["sha384", "sha512"])
        check(f.attach(BACK_PORT) == ["Nvme0n1"], "the bdev")
        f.stop_clean(*EXPECTED)
        b.stop_clean(*EXPECTED)


if __name__ == "__main__":
    main(sys.modules[__name__])
