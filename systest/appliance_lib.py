# SPDX-License-Identifier: BSD-3-Clause
"""A running varve for system tests, a client of its socket, and the runner of a file's tests."""
import glob
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build")).resolve()
VARVE = BUILD / "bin" / "varve"
VARVE_RPC = BUILD / "bin" / "varve-rpc"
DEADLINE = 180 if os.environ.get("VARVE_SANITIZED") else 90


class Failure(Exception):
    pass


class Skip(Exception):
    """What the test needs is not there."""


def check(condition, why):
    if not condition:
        raise Failure(why)


def wait_for(condition, what, deadline=DEADLINE):
    """Polls condition() until it is true; returns what it returned. what: a text, or a function that says it then."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, f"waited {deadline} s for {what() if callable(what) else what}")
        time.sleep(0.01)


class RpcError(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.code, self.message = error["code"], error["message"]


class Client:
    """Speaks as stock clients do: one request, then reads until the answer can be parsed."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A connect that waits for room in the backlog fails at once on a socket with Python's timeout.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", DEADLINE, 0))
        self.sock.connect(str(path))
        self.sock.settimeout(DEADLINE)
        self.buffer = ""
        self.last_id = 0

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else json.dumps(data).encode())

    def receive(self):
        """The next message; None: the daemon closed the connection."""
        while True:
            text = self.buffer.lstrip()
            try:
                value, end = json.JSONDecoder().raw_decode(text)
                self.buffer = text[end:]
                return value
            except ValueError:
                pass
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self.buffer += data.decode()

    def call(self, method, **params):
        self.last_id += 1
        request = {"jsonrpc": "2.0", "method": method, "id": self.last_id}
        if params:
            request["params"] = params
        self.send(json.dumps(request, indent=2).encode())
        answer = self.receive()
        check(answer is not None, f"{method}: the daemon closed the connection")
        check(answer["id"] == self.last_id and answer["jsonrpc"] == "2.0", f"{method}: answered {answer}")
        if "error" in answer:
            raise RpcError(answer["error"])
        return answer["result"]


class Daemon:
    program = VARVE
    base = ["--no-huge", "--no-pci", "--disable-cpumask-locks"]     # tests run side by side, on the same cores

    def __init__(self, *options, ready=True, path=None, env=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-"))
        self.path = path or self.folder / "rpc.sock"
        self.log_path = self.folder / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([self.program, *self.base, "-r", self.path,
                                             "--rpc-deadline", str(DEADLINE), *options], cwd=self.folder,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            env={**os.environ, **(env or {})})
        self.pid = self.process.pid
        self.trace_file = pathlib.Path(f"/dev/shm/varve_trace.pid{self.pid}")
        if ready:
            try:
                self.wait_ready()
            except BaseException:
                self.__exit__()
                raise

    def log(self):
        return self.log_path.read_text(errors="replace")

    def client(self):
        return Client(self.path)

    def connect(self):
        """A client, or None as long as nobody listens."""
        try:
            return self.client()
        except OSError:
            check(self.process.poll() is None, f"varve ended with {self.process.poll()}:\n{self.log()}")
            return None

    def wait_ready(self):
        self.call_over(wait_for(self.connect, "the RPC socket"), "framework_wait_init")

    def call(self, method, **params):
        return self.call_over(self.client(), method, **params)

    def notifications(self, kind):
        """Those of a type, the oldest first."""
        return [n for n in self.call("notify_get_notifications", all=True) if n["type"] == kind]

    def call_over(self, client, method, **params):
        """One call. If there is no answer because the daemon has ended, says how."""
        try:
            return client.call(method, **params)
        except Failure as e:
            raise Failure(f"{e}; varve {self.how_it_is()}:\n{self.log()[-4000:]}") from None
        finally:
            client.close()

    def how_it_is(self):
        try:
            return f"ended with {self.process.wait(1)}"     # its sockets close before it can be waited for
        except subprocess.TimeoutExpired:
            return "is running"

    def wait_exit(self):
        try:
            return self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise Failure(f"varve did not end:\n{self.log()}") from None

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.wait_exit()

    def rpc(self, *args, **kwargs):
        """Runs varve-rpc; returns (status, stdout, stderr)."""
        p = subprocess.run([VARVE_RPC, "-s", self.path, *args], capture_output=True, text=True, timeout=DEADLINE, **kwargs)
        return p.returncode, p.stdout, p.stderr

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for f in [self.trace_file, *glob.glob(f"{self.path}*")]:
            pathlib.Path(f).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def readable(sock, seconds=0):
    return bool(select.select([sock], [], [], seconds)[0])


def main(module):
    """Runs the functions test_* of a module, or those whose names contain an argument. A failure names the module's SEED, if it has one."""
    failed = 0
    seed = f" (VARVE_SEED={module.SEED})" if hasattr(module, "SEED") else ""
    for name, function in list(vars(module).items()):
        if not name.startswith("test_") or not (len(sys.argv) == 1 or any(a in name for a in sys.argv[1:])):
            continue
        label = f"{pathlib.Path(sys.argv[0]).stem}.{name}"
        try:
            function()
            print(f"PASS {label}", flush=True)
        except Skip as e:
            print(f"SKIP {label}: {e}", flush=True)
        except Exception as e:  # any failure of one test must not hide the others
            failed += 1
            print(f"FAIL {label}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}{seed}", flush=True)
            traceback.print_exc()
    sys.exit(failed != 0)
