# SPDX-License-Identifier: BSD-3-Clause
"""A client of the RPC socket that checks everything it receives."""
import json
import socket
import time

from .report import clean

ANSWER_MAX = 256 << 20


class NoAnswer(Exception):
    """Nobody answered in time."""


class BadAnswer(Exception):
    """The bytes received are no answer, or the answer is an error."""


class Refused(Exception):
    """Nobody listens."""


class Client:
    def __init__(self, path, wait_s):
        self.path, self.wait_s = path, wait_s

    def call(self, method, **params):
        """The result."""
        end = time.monotonic() + self.wait_s
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.settimeout(self.wait_s)
                s.connect(self.path)
                s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {})}).encode())
                return self.result(method, self.receive(s, end))
        except (TimeoutError, BlockingIOError):
            raise NoAnswer(f"{method}: no answer within {self.wait_s:g} s") from None
        except OSError as e:
            raise Refused(f"cannot connect to {self.path}: {e.strerror or e}") from None

    @staticmethod
    def receive(s, end):
        data = b""
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            s.settimeout(left)
            piece = s.recv(1 << 20)
            data += piece
            # An incomplete answer does not end in a brace.
            if data.rstrip().endswith(b"}"):
                try:
                    return json.loads(data)
                except (ValueError, RecursionError):
                    pass
            if not piece:
                what = f"after {len(data)} bytes that are no JSON" if data else "without an answer"
                raise BadAnswer("the connection was closed " + what)
            if len(data) > ANSWER_MAX:
                raise BadAnswer(f"more than {ANSWER_MAX} bytes and no end")

    @staticmethod
    def result(method, answer):
        if not isinstance(answer, dict):
            raise BadAnswer(f"{method}: the answer is no object")
        if isinstance(answer.get("error"), dict):
            raise BadAnswer(f"{method}: {clean(answer['error'].get('message', 'an error without a message'))}")
        if "result" not in answer:
            raise BadAnswer(f"{method}: the answer has no result")
        return answer["result"]


def objects(value, what):
    """A list of objects, as it should be."""
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise BadAnswer(f"{what} is not a list of objects")
    return value


def member(value, name, kind):
    """A member of an object, of the type it should have."""
    if not isinstance(value, dict) or not isinstance(value.get(name), kind) or (kind is int and isinstance(value.get(name), bool)):
        raise BadAnswer(f"\"{name}\" is missing or of the wrong type in an answer")
    return value[name]
