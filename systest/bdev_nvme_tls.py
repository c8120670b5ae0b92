#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
# sanitize
"""The host driver over TLS: varve-perf and bdev_nvme against a varve that demands TLS, and handshakes against openssl s_server, which knows nothing
of NVMe. Keys and identities are computed by Python (unittest/tls/vectors.py)."""
import json
import socket
import subprocess
import sys
import tempfile
import threading

from appliance_lib import DEADLINE, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT, Host, Target, verifying, wait_io
from nvmf_tls_lib import KEYS, TlsTarget, add_keys, by_kernel, credential, vectors

BACK_PORT = PORT + 20000
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1}


def key_file(daemon, name="psk"):
    path = daemon.folder / f"{name}.tls"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(vectors.text(*KEYS[name]) + "\n")
    return str(path)


def run(target, *args, key="psk", ios=300):
    with verifying(target, 1, "--psk", key_file(target, key), "--ios", str(ios), *args) as h:
        h.check_perfect(h.result())


def test_io_of_all_sizes_and_digests_is_verified():
    with TlsTarget() as t:
        for size in ("512", "4k", "8k", "12k", "64k", "128k"):
            for depth in ("1", "32"):
                run(t, "-o", size, "-q", depth)
        for digests in (["--hdgst"], ["--ddgst"], ["--hdgst", "--ddgst"]):
            for size in ("512", "20k", "128k"):
                run(t, "-o", size, "-q", "16", *digests)
        run(t, "-o", "4k", "-q", "16", "-P", "4", ios=4000)
        t.wait_empty()
        t.stop_clean()


def test_keys_of_all_kinds_connect():
    for name in ("plain", "longer", "plain-longer"):
        with TlsTarget(psk=name) as t:
            run(t, "-o", "16k", "-q", "8", key=name)
            t.wait_empty()
            check(t.refusals() == [], t.refusals())
            t.stop_clean()


def test_what_a_discovery_service_lists_is_connected_over_tls():
    with Front() as f, TlsTarget(port=BACK_PORT) as b:
        plain = {**b.listen_address(), "trsvcid": str(BACK_PORT + 1)}           # the log itself is read without encryption
        b.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=plain)
        start = {"name": "d", "hostnqn": HOSTNQN, "attach_timeout_ms": 2000 * DEADLINE, **plain, **QUICK}
        for wrong, words in (({"psk": "nothing"}, "nothing"), ({"psk": "psk", "trtype": "RDMA"}, "TLS")):
            try:
                check(False, f.call("bdev_nvme_start_discovery", **{**start, **wrong}))
            except RpcError as e:
                check("psk" in e.message and words in e.message, e.message)
        check(f.call("bdev_nvme_start_discovery", psk="psk", ddgst=True, **start) is True, "discovery")
        f.add_ns("d0n1")
        with verifying(f, 1, "-o", "20k", "-q", "16", "--ios", "500") as h:
            h.check_perfect(h.result())
        config = f.call("framework_get_config", name="bdev")
        params, = [m["params"] for m in config if m["method"] == "bdev_nvme_start_discovery"]
        check((params["psk"], params["ddgst"], params.get("hdgst")) == ("psk", True, None), params)
        wait_for(lambda: f.controllers() == [], "the host to be gone")
        check(f.call("bdev_nvme_stop_discovery", name="d") is True, "stop")
        f.stop_clean()


class Front(Target):
    """Attaches what the back has."""

    def __init__(self):
        super().__init__(*by_kernel("host"), cores="[1]", port=PORT, trtype="TCP")
        add_keys(self)

    def attach(self, name="Nvme0", **params):
        where = {"trtype": "TCP", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(BACK_PORT), "subnqn": NQN, "hostnqn": HOSTNQN}
        return self.call("bdev_nvme_attach_controller", name=name, **{**where, **QUICK, **params})

    def attach_fails(self, *words, **params):
        try:
            check(False, f"attached with {params}: {self.attach(**params)}")
        except RpcError as e:
            check(all(w in e.message for w in words), f"{params}: {e.message}")


def test_a_bdev_over_tls_is_served_again():
    with Front() as f, TlsTarget(port=BACK_PORT) as b:
        check(f.attach(psk="psk", ddgst=True) == ["Nvme0n1"], "the bdev")
        f.add_ns("Nvme0n1")
        for size, depth in (("128k", "8"), ("4k", "32")):
            with verifying(f, 1, "-o", size, "-q", depth, "--ios", "1000" if by_kernel("host") == () else "200") as h:      # a guest is slow
                h.check_perfect(h.result())
        config = [f.call("framework_get_config", name=n) for n in ("bdev", "keyring")]
        params, = [m["params"] for m in config[0] if m["method"] == "bdev_nvme_attach_controller"]
        check(params["psk"] == "psk", params)
        check(not any(k.hex() in json.dumps(config) + f.log() for k, _ in KEYS.values()), "a key is in the configuration or the log")
        wait_for(lambda: f.controllers() == [], "the hosts to be gone")
        check(f.call("bdev_nvme_detach_controller", name="Nvme0") is True, "detach")
        b.wait_empty()
        check(b.refusals() == [], b.refusals())
        f.stop_clean()


def test_a_target_that_derives_as_older_libnvme_is_reached():
    with Front() as f, TlsTarget(port=BACK_PORT, psk=None) as b:
        b.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN, psk="psk", psk_compat=True)
        f.attach_fails("TLS handshake", psk="psk", ctrlr_loss_timeout_sec=0, reconnect_delay_sec=0)
        check(f.attach(psk="psk", psk_compat=True) == ["Nvme0n1"], "the bdev")
        saved, = [m["params"] for m in f.call("framework_get_config", name="bdev") if m["method"] == "bdev_nvme_attach_controller"]
        check(saved["psk_compat"] is True, saved)
        f.add_ns("Nvme0n1")
        with verifying(f, 1, "-o", "4k", "-q", "8", "--ios", "500") as h:
            h.check_perfect(h.result())
        f.stop_clean()


def test_what_cannot_be_encrypted_is_not_connected():
    with Front() as f, TlsTarget(port=BACK_PORT) as b:
        f.attach_fails("psk", "no such key", psk="nothing")
        f.attach_fails("psk", "only TCP", psk="psk", trtype="RDMA")
        f.attach_fails("TLS handshake", psk="other")
        wait_for(lambda: any("another key" in r for r in b.refusals()), "the target to tell of the wrong key")
        f.attach_fails("TLS handshake", psk="psk", hostnqn="nqn.2026-11.io.varve:stranger")
        f.attach_fails("ICResp")
        wait_for(lambda: any("does not begin with TLS" in r for r in b.refusals()), "the target to tell of the host without TLS")
        check(f.call("bdev_nvme_get_controllers") == [], "a controller is left")
        b.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=b.listen_address())
        b.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=b.listen_address())
        f.attach_fails("TLS handshake", psk="psk")          # the target speaks no TLS
        check(f.attach() == ["Nvme0n1"], "without TLS")
        f.call("bdev_nvme_detach_controller", name="Nvme0")
        b.wait_empty()


def test_a_key_is_rotated_and_a_lost_connection_comes_back():
    with Front() as f:
        with TlsTarget(port=BACK_PORT) as b:
            f.attach(psk="psk")
            f.add_ns("Nvme0n1")
            with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
                wait_io(f, [h], 1000)
                b.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN, psk="other")
                wait_io(f, [h], 1000)
                b.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN, psk="psk")
                for _ in range(2):
                    b.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=b.listen_address())
                    b.wait_empty()
                    b.add_listener()
                    wait_io(f, [h], 1000)
                h.check_perfect(h.stop())


class Server:
    """openssl s_server: shows what comes through it."""

    def __init__(self, *options):
        self.out, self.errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(["openssl", "s_server", "-accept", f"{ADDRESS}:{BACK_PORT}", "-tls1_3", *options], stdin=subprocess.PIPE,
                                        stdout=self.out, stderr=self.errors)
        wait_for(lambda: b"ACCEPT" in self.bytes(self.out), "s_server to listen")

    @staticmethod
    def bytes(file):
        file.seek(0)
        return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def connect_to(f, server, seen, **params):
    """varve connects, and is to be seen so by s_server; whatever comes of it, as s_server is no controller."""
    f.attach_fails("ICResp", fabrics_connect_timeout_us=20000000, **params)
    wait_for(lambda: seen(server.bytes(server.out)), f"s_server to see it: {server.bytes(server.out)} {server.bytes(server.errors)}")


ICREQ = b"\0\0\x80\0\x80\0\0\0"


def test_s_server_takes_identities_of_both_versions():
    with Front() as f:
        for version in (1, 0):
            identity, psk = credential(version=version)
            with Server("-nocert", "-psk_identity", identity, "-psk", psk.hex()) as s:
                connect_to(f, s, lambda out: ICREQ in out, psk="psk")
                wait_for(lambda s=s: b"CIPHER is TLS_AES_128_GCM_SHA256" in s.bytes(s.out) or b"Reused" in s.bytes(s.out), "the session")


def test_an_identity_of_version_0_is_tried_if_the_other_is_closed_upon():
    """As some targets do: without an alert."""
    with Front() as f, socket.create_server((ADDRESS, BACK_PORT)) as trap:
        trap.settimeout(DEADLINE)
        hellos = []

        def close_upon_hellos():
            for _ in range(2):
                with trap.accept()[0] as s:
                    s.settimeout(DEADLINE)
                    hello = s.recv(5)
                    while len(hello) < 5 + int.from_bytes(hello[3:5], "big"):
                        hello += s.recv(4096)
                    hellos.append(hello)

        server = threading.Thread(target=close_upon_hellos, daemon=True)
        server.start()
        f.attach_fails("TLS handshake", psk="psk")
        server.join(DEADLINE)
        check(["NVMe1R01" if b"NVMe1R01" in h else "NVMe0R01" if b"NVMe0R01" in h else h for h in hellos] == ["NVMe1R01", "NVMe0R01"], hellos)


def test_a_controller_that_proves_itself_with_something_else_is_refused():
    with Front() as f:
        key, cert = f.folder / "key.pem", f.folder / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-subj",
                        "/CN=localhost", "-days", "2"], check=True, capture_output=True, timeout=DEADLINE)
        with Server("-cert", cert, "-key", key) as s:
            f.attach_fails("TLS handshake", psk="psk")
            check(ICREQ not in s.bytes(s.out), "bytes of NVMe went to somebody without the key")
        identity, _ = credential()
        with Server("-nocert", "-psk_identity", identity, "-psk", "00" * 32) as s:
            f.attach_fails("TLS handshake", psk="psk")
            check(ICREQ not in s.bytes(s.out), "bytes of NVMe went to somebody with another key")


def test_varve_perf_says_what_is_wrong():
    with TlsTarget() as t:
        h = Host(t, "--psk", key_file(t, "other"), "-q", "1", "--ios", "1")
        check(h.process.wait(DEADLINE) != 0, "it did I/O with a wrong key")
        check("TLS handshake" in h.errors.read_text(), h.errors.read_text())
        check("key" in t.refusals()[-1], t.refusals())


if __name__ == "__main__":
    main(sys.modules[__name__])
