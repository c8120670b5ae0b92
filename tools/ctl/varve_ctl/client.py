# SPDX-License-Identifier: BSD-3-Clause
"""Calls to the daemon, which are shown with -v, and taken back if a later one fails."""
import json
import os
import re
import shlex
import socket
import sys
import time


class Trouble(Exception):
    """What is printed, and the exit status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


class Refused(Trouble):
    """The daemon answered with an error."""


def clean(text):
    """Without what could control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


def words_of(method, params):
    """The call as a command line of varve-rpc."""
    def pairs(value, prefix=""):
        for k, v in value.items():
            if isinstance(v, dict):
                yield from pairs(v, f"{prefix}{k}.")
            else:
                yield f"{prefix}{k}={v if isinstance(v, str) else json.dumps(v)}"
    return clean(" ".join(["varve-rpc", method, *map(shlex.quote, pairs(params))]))


class Client:
    def __init__(self, path, timeout_s, verbose):
        self.path, self.timeout_s, self.verbose = path, timeout_s, verbose
        self.decoder = json.JSONDecoder()

    def call(self, method, **params):
        """The result. Calls that change something are shown with -v, those that ask with -vv."""
        if self.verbose > (1 if "_get_" in method else 0):
            print(f"  {words_of(method, params)}", file=sys.stderr)
        try:
            answer = self.exchange({"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {})})
        except (TimeoutError, BlockingIOError):
            raise Trouble(f"{method}: no answer within {self.timeout_s} s; it may yet be carried out (rpc_get_calls)", 3) from None
        except OSError as e:
            raise Trouble(f"cannot connect to {self.path}: {e.strerror or e} (is varve running? -s or -p chooses another)", 3) from None
        if not isinstance(answer, dict) or ("result" not in answer and not isinstance(answer.get("error"), dict)):
            raise Trouble(f"{method}: what came is not an answer", 3)
        if "result" not in answer:
            raise Refused(f"{method}: {clean(answer['error'].get('message'))}")
        return answer["result"]

    def exchange(self, request):
        end, data = time.monotonic() + self.timeout_s, b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(self.timeout_s)
            s.connect(self.path)
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
                            raise Trouble("the daemon closed the connection", 3) from None
                if time.monotonic() >= end:
                    raise TimeoutError

    def ask(self, method, default, **params):
        """The same for what only informs: a daemon may lack the method, or be in another state."""
        try:
            return self.call(method, **params)
        except Refused:
            return default


class Steps:
    """Calls that belong together. If one fails, those before it are undone; what cannot be undone is said."""

    def __init__(self, client):
        self.client, self.undo = client, []

    def do(self, method, undo=None, **params):
        result = self.client.call(method, **params)
        self.undo.append((method, params, undo))
        return result

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if error is None or not isinstance(error, (Trouble, KeyboardInterrupt)):
            return False
        left = []
        for method, params, undo in reversed(self.undo):
            try:
                if undo is None:
                    left.append(words_of(method, params))
                else:
                    self.client.call(undo[0], **undo[1])
            except Trouble as e:
                left.append(f"{words_of(method, params)} ({e})")
        text = f"{error or 'interrupted'}"
        if self.undo:
            text += "\nwhat was done before is undone" if not left else "\nleft as it is: " + "\n               ".join(left)
        raise Trouble(text, getattr(error, "status", 1)) from None


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
