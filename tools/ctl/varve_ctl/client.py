# SPDX-License-Identifier: BSD-3-Clause
"""Calls to the daemon, which are shown with -v, and taken back if a later one fails."""
import contextlib
import dataclasses
import errno
import json
import os
import re
import shlex
import signal
import socket
import struct
import sys
import threading
import time


class Trouble(Exception):
    """What is printed, and the exit status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


class Refused(Trouble):
    """The daemon answered with an error: the call was not carried out."""


class Unreachable(Trouble):
    """There is no connection to the daemon: the call was not made."""


def explain(error):
    """What is printed for an error, and the exit status. None: it is a fault of this program."""
    if isinstance(error, Trouble):
        return str(error), error.status
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 1
    if isinstance(error, (KeyError, TypeError, AttributeError)):
        return f"the daemon's answer is not of the form that this version knows ({error!r})", 3
    if isinstance(error, OSError):
        return f"{clean(error.filename) + ': ' if error.filename else ''}{error.strerror or error}", 1
    return None


def clean(text):
    """Without what could control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def quoted(text):
    """As one word of a shell."""
    return shlex.quote(clean(text))


def words_of(method, params):
    """The call as a command line of varve-rpc."""
    def pairs(value, prefix=""):
        for k, v in value.items():
            if isinstance(v, dict):
                yield from pairs(v, f"{prefix}{k}.")
            else:
                yield f"{prefix}{k}={v if isinstance(v, str) else json.dumps(v)}"
    return " ".join(["varve-rpc", clean(method), *map(quoted, pairs(params))])


class Client:
    def __init__(self, path, timeout_s, verbose):
        self.path, self.timeout_s, self.verbose = path, timeout_s, verbose
        self.decoder = json.JSONDecoder()

    def call(self, method, **params):
        """The result. Calls that change something are shown with -v, those that ask with -vv."""
        if self.verbose > (1 if "_get_" in method or method == "rpc_describe_methods" else 0):
            print(f"  {words_of(method, params)}", file=sys.stderr)
        request = {"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {})}
        try:
            with self.connect() as s:
                answer = self.exchange(s, request)
        except TimeoutError:
            raise Trouble(f"{method}: no answer within {self.timeout_s} s; it may yet be carried out (rpc_get_calls)", 3) from None
        except OSError as e:
            raise Trouble(f"{method}: the connection broke ({e.strerror or e}); it may have been carried out", 3) from None
        if not isinstance(answer, dict) or ("result" not in answer and not isinstance(answer.get("error"), dict)):
            raise Trouble(f"{method}: what came is not an answer", 3)
        if "result" not in answer:
            # A call that has not ended at the daemon's deadline goes on.
            kind = Trouble if answer["error"].get("code") == -errno.ETIMEDOUT else Refused
            raise kind(f"{method}: {clean(answer['error'].get('message'))}")
        return answer["result"]

    def connect(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The kernel waits for room in the backlog; with a timeout of Python's it would fail at once.
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(self.timeout_s), int(self.timeout_s % 1 * 1e6) + 1))
            s.connect(self.path)
        except OSError as e:
            s.close()
            raise Unreachable(f"cannot connect to {clean(self.path)}: {e.strerror or e} (is varve running? -s or -p chooses another)", 3) from None
        return s

    def exchange(self, s, request):
        end, data = time.monotonic() + self.timeout_s, b""
        s.settimeout(self.timeout_s)
        s.sendall(json.dumps(request).encode())
        while True:
            s.settimeout(max(end - time.monotonic(), 0.001))
            piece = s.recv(1 << 20)
            data += piece
            if data.rstrip().endswith(b"}") or not piece:
                try:
                    return json.loads(data)
                except (ValueError, RecursionError):
                    if not piece:
                        raise Trouble(f"{request['method']}: the daemon closed the connection; it may have been carried out", 3) from None
            if time.monotonic() >= end:
                raise TimeoutError

    def ask(self, method, default, **params):
        """The same for what only informs: a daemon may lack the method, or be in another state."""
        try:
            return self.call(method, **params)
        except Refused:
            return default


@dataclasses.dataclass
class Step:
    """A call, and the calls that take it back: a list, or a function that finds them when they are needed; None: nothing does.
    lost: what these do not bring back."""
    method: str
    params: dict
    undo: object
    lost: str
    answered: bool = False

    def text(self, why=""):
        said = [] if self.answered else ["may have been carried out"]
        return words_of(self.method, self.params) + (f" ({'; '.join(said + [why] * bool(why))})" if said or why else "")


@contextlib.contextmanager
def uninterrupted():
    """Control-C has no effect meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Steps:
    """Calls that belong together. Whatever ends them early, those before it are undone; what cannot be undone is said."""

    def __init__(self, client):
        self.client, self.steps = client, []

    def do(self, method, undo=None, lost="", **params):
        step = Step(method, params, undo, lost)
        self.steps.append(step)
        try:
            result = self.client.call(method, **params)
        except (Refused, Unreachable):
            self.steps.pop()
            raise
        step.answered = True
        return result

    def take_back(self, step):
        """What is left of it, in words."""
        try:
            calls = step.undo() if callable(step.undo) else step.undo
            if calls is None or (calls == [] and not step.answered):
                return step.text()
            for method, params in calls:
                self.client.call(method, **params)
        except Exception as e:  # whatever it is, the steps before this one are to be undone too
            return step.text((explain(e) or (repr(e), 1))[0])
        return ""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if error is None:
            return False
        with uninterrupted():
            steps = self.steps[::-1]
            left = [text for text in map(self.take_back, steps) if text]
            lost = [s.lost for s in steps if s.lost]
        said = "\nwhat was done before is undone" if steps and not left else "\nleft as it is: " + "\n               ".join(left) if left else ""
        said += f"\nnot brought back: {clean(', '.join(lost))}" if lost else ""
        known = explain(error)
        if known is None:
            print(f"varve-ctl: {said.strip()}", file=sys.stderr)
            return False
        raise Trouble(known[0] + said, known[1]) from None


def socket_of(pid):
    """The RPC socket of a process: of those on which it listens, the one that answers with JSON."""
    try:
        held = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        with open(f"/proc/{pid}/net/unix", encoding="utf-8", errors="replace") as f:
            lines = [line.split(maxsplit=7) for line in f.read().splitlines()[1:]]
    except OSError as e:
        raise Trouble(f"-p {pid}: {e.strerror}", 3) from None
    for words in lines:
        if len(words) == 8 and words[3] == "00010000" and f"socket:[{words[6]}]" in held and not words[7].startswith("@"):
            path = words[7] if words[7].startswith("/") else f"/proc/{pid}/cwd/{words[7]}"
            try:
                Client(path, 5, 0).call("spdk_get_version")
                return path
            except Trouble:
                continue
    raise Trouble(f"-p {pid}: it has no socket that answers JSON-RPC", 3)


def size_text(number):
    for unit in ("", "K", "M", "G", "T", "P"):
        if number < 1023.95 or unit == "P":
            return f"{number:.1f}{unit}" if unit else str(number)
        number /= 1024
    return ""


def size_of(text):
    m = re.fullmatch(r"(\d+)([KMGT]?)", text.upper())
    if not m or int(m[1]) == 0:
        raise Trouble(f"\"{clean(text)}\" is not a size such as 64M or 1G", 2)
    return int(m[1]) << (10 * " KMGT".index(m[2] or " "))
