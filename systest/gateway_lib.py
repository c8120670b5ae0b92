# SPDX-License-Identifier: BSD-3-Clause
"""A varve-gateway before a running varve, and HTTP requests to it."""
import base64
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import tempfile

from appliance_lib import BUILD, DEADLINE, Daemon, Skip, check, wait_for

GATEWAY = BUILD / "bin" / "varve-gateway"
PASSWORDS = {"reader": "reads only", "operator": "operates it", "boss": "may do all"}
ROLES = {"reader": "read", "operator": "operate", "boss": "admin"}


def run_gateway(*args, text=""):
    p = subprocess.run([GATEWAY, *args], input=text, capture_output=True, text=True, timeout=DEADLINE)
    return p.returncode, p.stdout + p.stderr


def add_user(path, name, role, password):
    status, said = run_gateway("--users", path, "--add-user", name, "--role", role, text=password + "\n")
    check(status == 0, said)


def basic(name, password=None):
    text = f"{name}:{PASSWORDS[name] if password is None else password}"
    return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(self.host)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Gateway:
    """With the users of PASSWORDS, on a port of its own; `daemon` may be a path where nobody listens."""

    def __init__(self, daemon, *options, tls=None, ready=True, address="127.0.0.1"):
        if not GATEWAY.exists():
            raise Skip("built without varve-gateway")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-gateway-"))
        self.users, self.log_path, self.address, self.port, self.tls = self.folder / "users", self.folder / "log", address, free_port(), tls
        for name, password in PASSWORDS.items():
            add_user(self.users, name, ROLES[name], password)
        path = daemon.path if isinstance(daemon, Daemon) else daemon
        cert = ["--cert", tls[0], "--key", tls[1]] if tls else []
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([GATEWAY, "-l", f"{address}:{self.port}", "-s", path, "--users", self.users, *cert, *options],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if ready:
            self.wait_log("listens on")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_log(self, text, times=1):
        def found():
            check(self.process.poll() is None, f"the gateway ended with {self.process.poll()}: {self.log()[-2000:]}")
            return self.log().count(text) >= times
        wait_for(found, lambda: f"{text!r} in the log: {self.log()[-2000:]}")

    def connect(self):
        if self.tls is None:
            return http.client.HTTPConnection(self.address, self.port, timeout=DEADLINE)
        return http.client.HTTPSConnection(self.address, self.port, timeout=DEADLINE, context=ssl.create_default_context(cafile=self.tls[0]))

    def raw(self):
        return socket.create_connection((self.address, self.port), timeout=DEADLINE)

    def request(self, verb, url, body=None, headers=None):
        """(status, headers, body)"""
        c = self.connect()
        try:
            c.request(verb, url, body, headers or {})
            r = c.getresponse()
            return r.status, r.headers, r.read()
        finally:
            c.close()

    def post(self, body, name=None, password=None, **headers):
        """(status, the answer as JSON); body: bytes or JSON"""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, text = self.request("POST", "/", body, {**(basic(name, password) if name else {}), **headers})
        return status, json.loads(text) if text else None

    def call(self, name, method, /, **params):
        status, answer = self.post({"jsonrpc": "2.0", "id": 7, "method": method, **({"params": params} if params else {})}, name)
        check(status == 200 and answer["id"] == 7 and "result" in answer, f"{method} of {name}: {status} {answer}")
        return answer["result"]

    def hangup(self):
        self.process.send_signal(signal.SIGHUP)

    def rss_kb(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0])

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(DEADLINE) == 0, self.log()[-2000:])

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for f in self.folder.iterdir():
            f.unlink()
        self.folder.rmdir()
