# SPDX-License-Identifier: BSD-3-Clause
"""The small NVMe/TCP initiator of nvmf_tcp_lib.py over TLS: `openssl s_client` makes the handshake and the records. Keys and identities are
computed by Python (unittest/tls/vectors.py)."""
import base64
import importlib.util
import json
import os
import pathlib
import socket
import subprocess
import tempfile

from appliance_lib import DEADLINE, TOP, check
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT
from nvmf_tcp_lib import Queue, TcpTarget

spec = importlib.util.spec_from_file_location("tls_vectors", TOP / "unittest/tls/vectors.py")
vectors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(vectors)


def raw_key(seed, length=32):
    return bytes((seed * 29 + 13 * i) & 0xFF for i in range(length))


# name: bytes, hash
KEYS = {"psk": (raw_key(1), 1), "plain": (raw_key(2), 0), "longer": (raw_key(3, 48), 2), "plain-longer": (raw_key(4, 48), 0), "other": (raw_key(5), 1)}


def credential(name="psk", version=1, hostnqn=HOSTNQN, subnqn=NQN, compat=0):
    key, how = KEYS[name]
    return vectors.credential(key, how, version, compat, hostnqn, subnqn)


def add_keys(daemon, names=KEYS):
    for name in names:
        path = daemon.folder / f"{name}.tls"
        path.touch(mode=0o600)
        path.write_text(vectors.text(*KEYS[name]) + "\n")
        daemon.call("keyring_file_add_key", name=name, path=str(path))


# VARVE_KTLS=target, host or target,host: the kernel has the records of these; lab_tcp_ktls.sh runs tests with it in a guest whose kernel can.
KTLS = os.environ.get("VARVE_KTLS", "").split(",")
KTLS_CONFIG = {"subsystems": [{"subsystem": "sock", "config": [{"method": "sock_impl_set_options", "params": {"impl_name": "ssl", "enable_ktls": True}}]}]}


FOLDER = tempfile.TemporaryDirectory(prefix="varve-test-")


def ktls_options():
    """Options of a varve that has the kernel asked for the records."""
    path = pathlib.Path(FOLDER.name) / "ktls.json"
    path.write_text(json.dumps(KTLS_CONFIG))
    return ("-c", path)


def by_kernel(side):
    """Options of a varve that is the target, or the host."""
    return ktls_options() if side in KTLS else ()


def kernel_has_tls():
    """Whether the kernel takes records of connections at all."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as s:
        try:
            s.setsockopt(socket.IPPROTO_TCP, 31, b"tls")    # TCP_ULP
            return True
        except OSError:
            return False


# What a side calls that has TLS and a kernel that takes its records: sweeps of faults come by them.
KERNEL_CALLS = (("recvmsg", "kernel.c"), ("sendmsg", "kernel.c")) if kernel_has_tls() else ()


class TlsTarget(TcpTarget):
    """A target whose listener demands TLS, with a host that has the key `psk`."""

    def __init__(self, *options, psk="psk", **kwargs):
        super().__init__(*by_kernel("target"), *options, listen=False, **kwargs)
        add_keys(self)
        self.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=False)
        if psk:
            self.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN, psk=psk)
        self.add_malloc("M0")
        self.add_ns("M0")
        self.add_listener()

    def add_listener(self, nqn=NQN):
        self.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=self.listen_address(), secure_channel=True)


class Client:
    """openssl s_client: `sock` is what goes through it."""

    def __init__(self, identity=None, psk=None, port=PORT, options=("-quiet", "-tls1_3"), address=ADDRESS):
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(DEADLINE)
        key = ["-psk_identity", identity, "-psk", psk.hex()] if psk else []
        with theirs:
            self.errors = tempfile.TemporaryFile()
            self.process = subprocess.Popen(["openssl", "s_client", "-connect", f"{address}:{port}", *options, *key], stdin=theirs, stdout=theirs,
                                            stderr=self.errors)

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def close(self):
        """What it said."""
        self.sock.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(DEADLINE)
        return self.said()

    def ends_by_itself(self):
        """Waits for its end; returns what came from the other side, and what it says."""
        data = b""
        while more := self.sock.recv(65536):
            data += more
        self.process.wait(DEADLINE)
        self.sock.close()
        return data, self.said()


def der(tag, content):
    """An element in DER."""
    n = len(content)
    length = bytes([n]) if n < 128 else bytes([0x80 | (n.bit_length() + 7) // 8]) + n.to_bytes((n.bit_length() + 7) // 8, "big")
    return bytes([tag]) + length + content


def session(psk, suite, at):
    """A session of OpenSSL that has a PSK for a cipher suite: -psk has only those for TLS_AES_128_GCM_SHA256. In PEM, for -psk_session."""
    text = der(0x30, der(2, b"\1") + der(2, b"\3\4") + der(4, suite.to_bytes(2, "big")) + der(4, b"") + der(4, psk) + der(0xA1, der(2, at.to_bytes(at.bit_length() // 8 + 1, "big")))
               + der(0xA2, der(2, (7200).to_bytes(2, "big"))))
    return b"-----BEGIN SSL SESSION PARAMETERS-----\n" + base64.encodebytes(text) + b"-----END SSL SESSION PARAMETERS-----\n"


class TlsQueue(Queue):
    def __init__(self, *args, key="psk", version=1, subnqn=NQN, tls=("-quiet", "-tls1_3"), tls_hostnqn=HOSTNQN, compat=0, **kwargs):
        self.tls_options = (credential(key, version, tls_hostnqn, subnqn, compat), tls)
        super().__init__(*args, **kwargs)

    def open_socket(self, address, port):
        (identity, psk), options = self.tls_options
        self.client = Client(identity, psk, port, options, address)
        return self.client.sock

    def close(self):
        return self.client.close()


def both(size=32, **options):
    """An admin queue and an I/O queue of one controller."""
    admin = TlsQueue(**options).enable()
    return admin, TlsQueue(qid=1, cntlid=admin.cntlid, size=size, **options)


def check_gone(t):
    """No connection, and nothing that a connection had, is left."""
    t.wait_empty()
    check(not t.controllers(), t.controllers())
