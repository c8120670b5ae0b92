#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
# sanitize
"""NVMe/TCP over TLS: the target judged by openssl s_client, which makes handshake and records, under an initiator that was written from the
specification, and by gnutls-cli; keys and identities are computed by Python. Who gets in, who does not, and what is told of it."""
import contextlib
import json
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

from appliance_lib import DEADLINE, Daemon, RpcError, Skip, check, main, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT
from nvmf_tcp_lib import DISCOVERY, Queue
from nvmf_tls_lib import KEYS, Client, TlsQueue, TlsTarget, both, check_gone, credential, kernel_has_tls, ktls_options, session

BS = 512
OTHER = "nqn.2026-11.io.varve:other"
STRANGER = "nqn.2026-11.io.varve:stranger"
SECRETS = [k.hex() for k, _ in KEYS.values()]


def io_of_all_sizes(t, rounds=12, **options):
    rng = random.Random(rounds)
    admin, q = both(**options)
    with admin, q:
        for blocks in (1, 2, 7, 8, 9, 31, 32, 33, 64, 255, 256) * (rounds // 4):
            lba, data = rng.randrange(512 - blocks), rng.randbytes(blocks * BS)
            check(q.write(lba, data, in_capsule=len(data) <= 4096 and rng.random() < 0.5).status == 0, f"write of {blocks} blocks")
            c = q.read(lba, blocks)
            check(c.status == 0 and c.data == data, f"read of {blocks} blocks")
    t.wait_empty()


def test_io_over_tls_is_verified():
    with TlsTarget() as t:
        for version in (0, 1):
            io_of_all_sizes(t, version=version)
        io_of_all_sizes(t, hdgst=True, ddgst=True)
        t.stop_clean()


def test_the_kernel_has_the_records_if_it_can_and_is_asked():
    has_tls = kernel_has_tls()
    for options, records in ((), "openssl"), (ktls_options(), "kernel" if has_tls else "openssl"):
        with TlsTarget(*options) as t:
            admin, q = both()
            with admin, q:
                told = {p["tls_records"] for p in t.call("nvmf_subsystem_get_qpairs", nqn=NQN)}
                check(told == {records}, f"{told}, expected {records}")
            io_of_all_sizes(t, rounds=4)
            check(t.log().count("TLS: the kernel") == (1 if options else 0), t.log())
            check(t.log().count("does not encrypt and decrypt records") == (1 if options and not has_tls else 0), t.log())
            check(not any(s in t.log() for s in SECRETS), "a key is in the log")
            t.stop_clean("TLS: the kernel does not")


def test_a_key_that_is_not_transformed_connects():
    with TlsTarget(psk="plain") as t:
        for version in (0, 1):
            io_of_all_sizes(t, rounds=4, key="plain", version=version)
        t.stop_clean()


def test_commands_under_way_at_once_over_tls():
    with TlsTarget() as t:
        admin, q = both(size=64)
        with admin, q:
            data = {i: random.Random(i).randbytes(32768) for i in range(24)}
            for cid in [q.start(q.rw_sqe(1, 64 * i, 64), d, in_capsule=False) for i, d in data.items()]:
                check(q.finish(cid).status == 0, "write")
            cids = {i: q.start(q.rw_sqe(2, 64 * i, 64), length=32768) for i in data}
            for i, cid in cids.items():
                check(q.finish(cid).data == data[i], f"read {i}")
        check_gone(t)
        t.stop_clean()


def test_groups_of_any_kind_connect():
    """Also those that s_client does not offer first, which costs it a second ClientHello; but none whose arithmetic takes very long."""
    with TlsTarget() as t:
        for groups in ("X25519", "P-256", "P-384", "X448", "P-521", "ffdhe3072", "ffdhe2048:X25519", "ffdhe8192:X25519"):
            with TlsQueue(tls=("-quiet", "-tls1_3", "-groups", groups)) as admin:
                admin.enable()
        for groups in ("ffdhe4096", "ffdhe6144:ffdhe8192"):
            refused(t, "TLS: no suitable key share", *credential(), ("-quiet", "-tls1_3", "-groups", groups))
        for suites in ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256"):
            with TlsQueue(tls=("-quiet", "-tls1_3", "-ciphersuites", suites)) as admin:
                admin.enable()
        io_of_all_sizes(t, rounds=4, tls=("-quiet", "-tls1_3", "-maxfraglen", "512"))      # many small records
        check_gone(t)
        t.stop_clean()


def of_session(folder, name, version=1, wrong=b""):
    """Options of s_client for a key of 48 bytes, which needs TLS_AES_256_GCM_SHA384; the identity is given by itself. wrong: instead of the key."""
    identity, psk = credential(name, version)
    check(len(psk) == 48, f"a PSK of {len(psk)} bytes")
    path = folder / f"{name}.session"
    path.write_bytes(session(wrong or psk, 0x1302, int(time.time()) - 1))
    return ("-quiet", "-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384", "-psk_session", str(path), "-psk_identity", identity)


class SessionQueue(Queue):
    """As TlsQueue, with a session that s_client takes from a file."""

    def __init__(self, *args, tls, **kwargs):
        self.tls_options = tls
        super().__init__(*args, **kwargs)

    def open_socket(self, address, port):
        self.client = Client(port=port, options=self.tls_options, address=address)
        return self.client.sock

    def close(self):
        return self.client.close()


def test_aes_256_and_sha_384_are_judged_by_openssl():
    """PSKs of 48 bytes; what s_client decrypts is what was written."""
    rng = random.Random(384)
    for name in ("longer", "plain-longer"):
        with TlsTarget(psk=name) as t:
            for version in (0, 1):
                options = of_session(t.folder, name, version)
                with SessionQueue(tls=options).enable() as admin, SessionQueue(qid=1, cntlid=admin.cntlid, tls=options) as q:
                    for blocks in (1, 8, 33, 256):
                        data = rng.randbytes(blocks * BS)
                        check(q.write(0, data, in_capsule=len(data) <= 4096).status == 0, f"write of {blocks} blocks")
                        check(q.read(0, blocks).data == data, f"read of {blocks} blocks")
            check_gone(t)
            refused(t, "has another key than the psk for", options=of_session(t.folder, name, wrong=bytes(48)))
            t.stop_clean()


def gnutls(t, identity, psk, priority="NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK"):
    """Makes a handshake by gnutls-cli, which ends when its input does; returns its status, and what it says."""
    p = subprocess.run(["gnutls-cli", "--pskusername", identity, "--pskkey", psk.hex(), "--priority", priority, "--no-ca-verification", "-p", str(PORT), ADDRESS],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE)
    return p.returncode, p.stdout.decode(errors="replace")


def test_handshakes_are_judged_by_gnutls():
    if shutil.which("gnutls-cli") is None:
        raise Skip("gnutls-cli is not installed (gnutls-bin)")
    with TlsTarget() as t:
        for version in (0, 1):
            for group in ("GROUP-X25519", "GROUP-SECP256R1", "GROUP-SECP384R1"):
                _, said = gnutls(t, *credential(version=version), f"NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:-GROUP-ALL:+{group}")
                check("Handshake was completed" in said and "TLS1.3" in said and "PSK" in said and "AES-128-GCM" in said, said)
        check(t.refusals() == [], t.refusals())
        identity, psk = credential()
        status, said = gnutls(t, identity, bytes(len(psk)))
        check(status != 0 and "Handshake was completed" not in said, said)
        wait_for(lambda: len(t.refusals()) == 1, "the refusal to be told")
        check("has another key than the psk for" in t.refusals()[0], t.refusals())
        check_gone(t)
        t.stop_clean()


def test_the_kernel_connects_over_tls():
    raise Skip("the kernel's host has TLS since 6.7, with tlshd (ktls-utils); Debian 12, whose kernel the lab's guests have, has neither")


def refused(t, why, identity=None, psk=None, options=("-quiet", "-tls1_3")):
    before = len(t.refusals())
    data, said = Client(identity, psk, options=options).ends_by_itself()
    check(data == b"", data)
    check(said != "", "s_client saw no alert and no error")
    wait_for(lambda: len(t.refusals()) > before, f"the refusal to be told: {why}")
    check(why in t.refusals()[-1], (why, t.refusals()[-1]))
    check(t.log().count(why) >= 1, f"the log lacks {why}")
    return said


@contextlib.contextmanager
def beside_a_good_host():
    """What happens here disturbs no host that is connected, and no key gets into the log. At most 10 refusals: the log has no more lines of them in a second."""
    with TlsTarget() as t:
        t.call("nvmf_create_subsystem", nqn=OTHER, serial_number="O", allow_any_host=True)
        with TlsQueue() as good:
            good.enable()
            yield t
            check(good.identify(1)[:2] != b"", "the good host")
        check_gone(t)
        t.stop_clean()
        check(not any(s in t.log() for s in SECRETS), "a key is in the log")


def test_wrong_keys_are_refused():
    with beside_a_good_host() as t:
        identity0, psk0 = credential(version=0)
        identity1, psk1 = credential(version=1)
        refused(t, "has another key than the psk for", identity0, psk1)
        refused(t, "has another key than the psk for", identity1, psk0)
        refused(t, "has another key than the psk for", identity1, bytes(32))
        refused(t, "is of another key than the one of host", *credential("other"))
        refused(t, "is of another key than the one of host", *credential("plain"))
        refused(t, f"host {STRANGER} has no psk for {NQN}", *credential(hostnqn=STRANGER))
        refused(t, f"has no psk for {OTHER}", *credential(subnqn=OTHER))
        refused(t, f"has no psk for {OTHER}", *credential(subnqn=OTHER, version=0))


def test_wrong_identities_and_offers_are_refused():
    with beside_a_good_host() as t:
        identity1, psk1 = credential(version=1)
        for wrong in ("Client_identity", "NVMe2R01 a b", "NVMe1R01 " + HOSTNQN + " " + NQN, "NVMe0G01 " + HOSTNQN + " " + NQN, "\x01\x02", "x" * 120):
            refused(t, "identity is not one of NVMe/TCP", wrong, psk1)
        refused(t, "it offers no pre-shared key")
        refused(t, "TLS:", identity1, psk1, ("-quiet", "-tls1_2"))
        refused(t, "TLS:", identity1, psk1, ("-quiet", "-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"))


def test_the_host_of_the_key_is_the_host_of_connect():
    with TlsTarget() as t:
        t.call("nvmf_subsystem_add_host", nqn=NQN, host=STRANGER, psk="other")
        t.call("nvmf_create_subsystem", nqn=OTHER, serial_number="O", allow_any_host=True)
        t.add_listener(OTHER)
        t.call("nvmf_subsystem_add_host", nqn=OTHER, host=HOSTNQN, psk="plain")
        host = f'HOSTNQN is "{STRANGER}": allowed is "{HOSTNQN}", whose key its TLS connection was made with'
        for n, (kwargs, why) in enumerate((({"hostnqn": STRANGER}, host), ({"nqn": OTHER}, f'its TLS connection was made with its key for "{NQN}"'), ({"hostnqn": STRANGER, "nqn": OTHER}, host)), 1):
            with TlsQueue(connect=False) as q:
                c = q.connect(0xFFFF, kwargs.get("nqn", NQN), 32, kwargs.get("hostnqn", HOSTNQN))
                check(c.code == 0x184, f"{kwargs}: status {c.status:#x}")     # Connect Invalid Host
                wait_for(lambda w=why, n=n: len(t.refusals()) == n and w in t.refusals()[-1], why)
        with TlsQueue(nqn=OTHER, key="plain", subnqn=OTHER) as q:
            q.enable()
        check_gone(t)
        t.stop_clean("is not allowed")


def test_a_controller_has_all_its_queues_over_tls_or_none():
    with TlsTarget() as t:
        address = {**t.listen_address(), "trsvcid": str(PORT + 20000)}
        t.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=address)
        for secure, other in ((TlsQueue, Queue), (Queue, TlsQueue)):
            ports = {TlsQueue: PORT, Queue: PORT + 20000}
            with secure(port=ports[secure]) as admin, other(qid=1, port=ports[other], connect=False) as q:
                admin.enable()
                c = q.connect(admin.cntlid, NQN, 32, HOSTNQN)
                check(c.code == 0x184, f"status {c.status:#x}")     # Connect Invalid Host
                with secure(qid=1, cntlid=admin.cntlid, port=ports[secure]) as q:
                    check(q.read(0, 1).status == 0, "I/O")
        check_gone(t)
        t.stop_clean("is not allowed")


def test_a_plain_connection_from_before_reads_no_discovery_log():
    with TlsTarget() as t:
        t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=t.listen_address())
        t.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=t.listen_address())
        with Queue(connect=False) as q:
            t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=t.listen_address())
            t.add_listener()
            c = q.connect(0xFFFF, DISCOVERY, 32, HOSTNQN)
            check(c.code == 0x184, f"status {c.status:#x}")
            wait_for(lambda: any("its connection is not encrypted" in r for r in t.refusals()), "the refusal")
        t.wait_empty()


def test_a_key_itself_in_place_of_its_name_is_not_logged():
    """A target without TLS takes it, without effect."""
    key = "NVMeTLSkey-1:00:c2VjcmV0:"
    with Daemon("-m", "[0]", "-s", "512") as d:
        d.call("nvmf_create_subsystem", nqn=NQN, serial_number="S")
        d.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN, psk=key)
        check('nvmf_subsystem_add_host: parameter "psk": taken, no effect' in d.log(), d.log())
        check("NVMeTLSkey-1:" not in d.log() and key not in d.log(), d.log())
        check(d.stop() == 0, d.log())


def test_discovery_over_tls_says_that_it_is_demanded():
    with TlsTarget() as t, TlsQueue(nqn=DISCOVERY) as admin:
        admin.enable()
        log = admin.log_page(0x70, 1024 * 3)
        entry, = [e for e in (log[1024 * i:1024 * (i + 1)] for i in range(1, 3)) if e[256:512].rstrip(b"\0") == NQN.encode()]
        check(entry[3] & 3 == 1 and entry[768] == 2, f"TREQ {entry[3]}, SECTYPE {entry[768]}")


def plain(initial=b""):
    s = socket.create_connection((ADDRESS, PORT), timeout=DEADLINE)
    if initial:
        s.sendall(initial)
    return s


def gone(s):
    try:
        return s.recv(4096)
    except ConnectionResetError:
        return b""


ICREQ = struct.pack("<BBBBIHBBI112x", 0, 0, 128, 0, 128, 0, 0, 0, 0)


def test_a_host_without_tls_gets_a_closed_connection():
    with TlsTarget() as t:
        for n, first in enumerate((ICREQ, b"\0", b"GET / HTTP/1.0\r\n\r\n", b"\x17\x03\x03\0\x10" + bytes(16), b"\x16\x02\0\0\x10" + bytes(16), b"\x16\x03\1\xff\xff")):
            with plain(first) as s:
                check(gone(s) == b"", "it was answered")
            wait_for(lambda n=n: len(t.refusals()) > n, "the refusal")
            check("does not begin with TLS, which is demanded here (secure_channel)" in t.refusals()[-1], t.refusals()[-1])
        check("does not begin with TLS" in t.log(), "the log")
        check_gone(t)
        t.stop_clean()


def client_hello():
    """What s_client sends first, caught by a listener of ours."""
    with socket.create_server((ADDRESS, 0)) as trap:
        trap.settimeout(DEADLINE)
        client = Client(*credential(), port=trap.getsockname()[1])
        with trap.accept()[0] as s:
            s.settimeout(DEADLINE)
            hello = s.recv(5)
            while len(hello) < 5 + struct.unpack(">H", hello[3:5])[0]:
                hello += s.recv(4096)
        client.close()
    return hello


def test_handshakes_that_are_cut_off_or_never_end():
    with TlsTarget() as t:
        hello = client_hello()
        check(len(hello) > 100, hello)
        silent = [plain(), plain(hello[:1]), plain(hello[:50]), plain(hello)]
        for n in (1, 4, 5, 6, 20, len(hello) // 2, len(hello) - 1, len(hello)):
            with plain(hello[:n]) as s:
                s.shutdown(socket.SHUT_WR)
                while gone(s):      # ServerHello and alert, where the whole of it has come
                    pass
        wrong = bytearray(hello)
        for at in (5, 6, 9, 11, 60, len(hello) - 1, len(hello) - 40):
            wrong[at] ^= 0x55
            with plain(bytes(wrong)) as s:
                while gone(s):
                    pass
            wrong[at] ^= 0x55
        with plain() as s:          # byte by byte it is as good as at once
            for b in hello:
                s.sendall(bytes([b]))
            answer = gone(s)
            check(answer[:3] == b"\x16\x03\x03", f"{answer[:20]}")
        io_of_all_sizes(t, rounds=4)
        for s in silent:            # those have had their time
            with s:
                while gone(s):
                    pass
        wait_for(lambda: "the handshake was not made in time" in t.log(), "the log")
        check_gone(t)
        t.stop_clean()


def test_a_handshake_has_only_so_many_records():
    with TlsTarget() as t:
        hello = client_hello()
        with plain() as s:
            with contextlib.suppress(OSError):      # it may be gone before the last
                for b in hello[5:]:
                    s.sendall(hello[:3] + struct.pack(">HB", 1, b))
            while gone(s):
                pass
        wait_for(lambda: any("in more than 64 records" in r for r in t.refusals()), "the refusal")
        check_gone(t)
        t.stop_clean()


def test_those_with_an_open_handshake_do_not_keep_the_target_from_ending():
    with TlsTarget() as t:
        hello = client_hello()
        waiting = [plain(), plain(hello[:10]), plain(hello)]
        t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=t.listen_address())
        for s in waiting:
            with s:
                while gone(s):
                    pass
        t.add_listener()
        waiting = [plain(), plain(hello[:10]), plain(hello)]
        t.stop_clean()
        for s in waiting:
            s.close()


def test_too_many_handshakes_are_refused():
    with TlsTarget(max_anonymous_per_host=3) as t:
        held = [plain() for _ in range(3)]
        with plain() as s:
            check(gone(s) == b"", "answered")
        wait_for(lambda: any("too many handshakes with this address" in r for r in t.refusals()), "the refusal")
        for s in held:
            s.close()
        wait_for(lambda: sum("closed the connection in the handshake" in r for r in t.refusals()) == 3, "the ends")
        with TlsQueue() as q:
            q.enable()
        t.stop_clean()


def test_a_host_that_derives_as_older_libnvme_connects():
    with TlsTarget(psk=None) as t:
        t.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN, psk="psk", psk_compat=True)
        for version in (0, 1):
            with TlsQueue(version=version, compat=1) as q:
                q.enable()
        refused(t, "psk_compat says", *credential())
        refused(t, "(psk_compat)", *credential(version=0))
        host, = t.call("nvmf_get_subsystems", nqn=NQN)[0]["hosts"]
        check(host == {"nqn": HOSTNQN, "psk": "psk", "psk_compat": True}, host)
        saved, = [m["params"] for m in t.call("framework_get_config", name="nvmf") if m["method"] == "nvmf_subsystem_add_host"]
        check(saved["psk_compat"] is True, saved)
        t.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN, psk="other")
        with TlsQueue(key="other", compat=1) as q:
            q.enable()
        t.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN, psk_compat=False)
        refused(t, "psk_compat says", *credential("other", compat=1))
        with TlsQueue(key="other") as q:
            q.enable()
        try:
            check(False, t.call("nvmf_subsystem_set_keys", nqn=NQN, host=STRANGER, psk_compat=True))
        except RpcError as e:
            check("is not among the subsystem's hosts" in e.message, e.message)
        check_gone(t)
        t.stop_clean()


def test_a_key_is_rotated_without_disconnecting():
    with TlsTarget() as t:
        admin, q = both()
        with admin, q:
            t.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN, psk="other")
            check(q.write(0, b"x" * 512).status == 0 and q.read(0, 1).data == b"x" * 512, "I/O goes on")
            refused(t, "is of another key than the one of host", *credential())
            with TlsQueue(qid=2, cntlid=admin.cntlid, key="other") as second:
                check(second.read(0, 1).data == b"x" * 512, "I/O with the new key")
            t.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN)
            with TlsQueue(qid=2, cntlid=admin.cntlid, key="other") as second:
                check(second.read(0, 1).status == 0, "a call without psk leaves it")
            t.call("keyring_file_remove_key", name="other")
            with TlsQueue(qid=2, cntlid=admin.cntlid, key="other") as second:
                check(second.read(0, 1).status == 0, "the host keeps a key that is removed from the keyring")
            t.call("nvmf_subsystem_remove_host", nqn=NQN, host=HOSTNQN)
            refused(t, f"host {HOSTNQN} has no psk", *credential("other"))
        check_gone(t)
        t.stop_clean()


def test_keys_of_the_connection_are_updated():
    """s_client sends KeyUpdate for a line K, and asks for one with it; k does not ask."""
    with TlsTarget() as t:
        with TlsQueue(tls=("-brief", "-tls1_3")) as admin:
            admin.enable()
            for n, letter in enumerate(b"KkKK", 1):
                admin.sock.sendall(bytes([letter]) + b"\n")
                wait_for(lambda n=n: admin.client.said().count("KEYUPDATE") == n, "s_client to send KeyUpdate")
                for _ in range(3):
                    check(len(admin.identify(1)) == 4096, "Identify")
        check_gone(t)
        t.stop_clean()


def test_a_key_update_ends_a_connection_whose_records_the_kernel_has():
    if not kernel_has_tls():
        raise Skip("this kernel has no module tls, or has not loaded it")
    with TlsTarget(*ktls_options()) as t:
        for letter in b"kK":
            with TlsQueue(tls=("-brief", "-tls1_3")) as admin:
                admin.enable()
                before = t.log().count("changes its keys (KeyUpdate)")
                admin.sock.sendall(bytes([letter]) + b"\n")
                wait_for(lambda n=before: t.log().count("changes its keys (KeyUpdate)") == n + 1, "the log to tell of it")
                check("internal error" in admin.client.ends_by_itself()[1], "s_client has got no alert")
        check_gone(t)
        t.stop_clean("TLS: the kernel does not")


class Meddler(threading.Thread):
    """Between a host and the target: hands on what each of them sends. Once asked to, it keeps back `good` pieces of what the host sends, and hands them on
    with the next one, of which it changes a byte."""

    def __init__(self):
        super().__init__(daemon=True)
        self.trap = socket.create_server((ADDRESS, 0))
        self.port = self.trap.getsockname()[1]
        self.good, self.held = None, []
        self.start()

    def from_host(self, data):
        if self.good is None:
            return data
        self.held.append(data)
        if len(self.held) <= self.good:
            return b""
        changed = bytearray(b"".join(self.held))
        changed[-1] ^= 1
        return changed

    def run(self):
        host, target = self.trap.accept()[0], plain()
        with self.trap, host, target, contextlib.suppress(OSError):
            while True:
                for s in select.select([host, target], [], [])[0]:
                    data = s.recv(65536)
                    if not data:
                        return
                    if s is host:
                        target.sendall(self.from_host(data))
                    else:
                        host.sendall(data)


def test_a_record_that_was_changed_on_its_way_is_told():
    """Also if it comes at once with a good one, whose command is answered meanwhile."""
    with TlsTarget() as t:
        for good in range(3):
            between = Meddler()
            with TlsQueue(port=between.port) as admin:
                admin.enable()
                check(len(admin.identify(1)) == 4096, "Identify")
                between.good = good
                for n in range(good + 1):
                    admin.start(admin.sqe(6, specific=struct.pack("<I", 1)), length=4096)
                    wait_for(lambda n=n, b=between: len(b.held) > n, "the record")
                wait_for(lambda n=good: t.log().count("bad record mac") == n + 1, "the log to tell of it")
            between.join(DEADLINE)
            check_gone(t)
        t.stop_clean()


def test_listeners_hosts_and_the_configuration():
    with TlsTarget() as t:
        host, = t.call("nvmf_get_subsystems", nqn=NQN)[0]["hosts"]
        check(host == {"nqn": HOSTNQN, "psk": "psk"}, host)
        t.call("nvmf_create_subsystem", nqn=OTHER, serial_number="O", allow_any_host=True)
        for secure in ({}, {"secure_channel": False}):
            try:
                t.call("nvmf_subsystem_add_listener", nqn=OTHER, listen_address=t.listen_address(), **secure)
                check(False, "one address, with and without TLS")
            except RpcError as e:
                check("secure_channel" in e.message and "another subsystem listens" in e.message, e.message)
        t.add_listener(OTHER)
        for params, why in (({"psk": "nothing"}, "no such key"), ({"dhchap_key": "psk"}, "for TLS (NVMeTLSkey-1), not for DH-HMAC-CHAP")):
            try:
                t.call("nvmf_subsystem_add_host", nqn=OTHER, host=STRANGER, **params)
                check(False, f"{params} was taken")
            except RpcError as e:
                check(why in e.message, e.message)
        check(t.call("nvmf_get_subsystems", nqn=OTHER)[0]["hosts"] == [], "the host is not there")
        config = t.call("framework_get_config", name="nvmf")
        check([m["params"]["psk"] for m in config if m["method"] == "nvmf_subsystem_add_host"] == ["psk"], config)
        check([m["params"]["secure_channel"] for m in config if m["method"] == "nvmf_subsystem_add_listener"] == [True, True], config)
        text = json.dumps([config, t.call("framework_get_config", name="keyring"), t.call("keyring_get_keys")]) + t.log()
        check(not any(s in text for s in SECRETS) and "NVMeTLSkey-1:0" not in text, "a key is in the configuration or the log")
        t.stop_clean()


def test_a_saved_configuration_serves_tls_again():
    with TlsTarget() as t:
        config = {"subsystems": [{"subsystem": n, "config": t.call("framework_get_config", name=n)} for n in ("keyring", "bdev", "nvmf")]}
        path = t.folder / "saved.json"
        path.write_text(json.dumps(config))
        t.stop_clean()
        again = Daemon("-m", "[0]", "-s", "512", "-c", str(path))
        with again:
            admin, q = both()
            with admin, q:
                check(q.write(0, b"y" * 512).status == 0 and q.read(0, 1).data == b"y" * 512, "I/O")
            check(again.stop() == 0, again.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
