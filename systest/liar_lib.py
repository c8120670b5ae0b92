# SPDX-License-Identifier: BSD-3-Clause
"""A server that answers RPC with lies: bytes that are no answer, and true answers with something wrong in them."""
import contextlib
import json
import socket
import threading


class Liar:
    """Listens. answer: bytes for every request, after which it hangs up; None: silence; or a function of a parsed request that returns
    bytes, asked again and again."""

    def __init__(self, where, answer):
        self.path, self.answer = where / "liar", answer
        self.path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen(16)
        self.kept = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                c, _ = self.socket.accept()
                if self.answer is None:
                    self.kept.append(c)
                elif callable(self.answer):
                    threading.Thread(target=self.talk, args=(c,), daemon=True).start()
                else:
                    c.recv(65536)
                    with contextlib.suppress(OSError):
                        c.sendall(self.answer)
                    c.close()

    def talk(self, c):
        text = ""
        with c, contextlib.suppress(OSError):
            while data := c.recv(65536):
                text += data.decode()
                with contextlib.suppress(ValueError):
                    while text.strip():
                        request, end = json.JSONDecoder().raw_decode(text.lstrip())
                        text = text.lstrip()[end:]
                        c.sendall(self.answer(request))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for c in self.kept:
            c.close()


def answer(result):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


RUNNING = {"state": "RUNNING", "age_us": 1}

# No answers at all, and answers to anything.
LIES = [b"", b"{", b"\xff\xfe\x00", b"null", b"[]", b"{}", b"[" * 100000, b'{"result":' * 5000 + b"}" * 5000, b"x" * 1000 + b"}",
        b'[{"id": 0, "result": NaN}]', b'[{"id": 0, "result": 1e999}]', b'[{"id": 18446744073709551616, "result": {}}]',
        b'[{"id": 1e3, "result": []}, {"id": "0"}, 7, null]', answer(None), answer([]), answer("RUNNING"),
        answer({"state": 7, "age_us": "x"}), answer({"state": "RUNNING", "age_us": -1}), answer(RUNNING),
        answer({**RUNNING, "reactors": [{}], "threads": [[]], "poll_groups": 3}), answer({**RUNNING, "reactors": [{"lcore": None}]}),
        answer({"state": "\x1b[2J\n", "age_us": 10**30}), b'{"error": {"message": "\\u001b[31m"}}', b'{"error": 3, "id": []}',
        answer([None, 3, [], {}]), answer("\x1b]0;title\x07\x9b31m\x7f"), b'{"result": "\x1b[2J"}', b'{"id": 1, "result": {"a": 1}} trailing {']


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


# What takes the place of something true.
WRONG = [None, True, -1, 0.5, -2**63, 2**63 - 1, 1e308, -1e308, "0xffffffffffffffff", "", "\x1b[2J\r\n\x07\x7f\u009b31m", "x" * 5000, [], {},
         [None], [[]], [{}], [1, "a", None, {}, []], {"": None}, {"name": {"name": []}}, nested(500)]


def members_replaced(value, wrong, deep=True):
    """The same tree with another thing as each leaf, or (deep false) as each member of the outermost object or of the objects in a list."""
    if isinstance(value, dict):
        return {k: members_replaced(v, wrong, deep) if deep else wrong for k, v in value.items()}
    if isinstance(value, list):
        return [members_replaced(v, wrong, deep) for v in value] if value else [wrong]
    return wrong


def elements_replaced(value, wrong):
    """The same tree with another thing as each element of each list."""
    if isinstance(value, dict):
        return {k: elements_replaced(v, wrong) for k, v in value.items()}
    return [wrong] * max(len(value), 1) if isinstance(value, list) else value


def distortions(answers):
    """(what it is, {method: result}) for each wrong thing in each kind of place."""
    for wrong in WRONG:
        name = f"{json.dumps(wrong):.40}"
        yield f"{name} for results", {m: wrong for m in answers}
        yield f"{name} for members", {m: members_replaced(a, wrong, deep=False) for m, a in answers.items()}
        yield f"{name} for leaves", {m: members_replaced(a, wrong) for m, a in answers.items()}
        yield f"{name} for elements", {m: elements_replaced(a, wrong) for m, a in answers.items()}


def answering(results):
    """For a Liar: answers each call with what there is for its method, otherwise with an error."""
    def one(call):
        method = call.get("method")
        said = {"result": results[method]} if method in results else {"error": {"code": -32601, "message": f"no {method}\x1b[31m"}}
        return {"jsonrpc": "2.0", "id": call.get("id"), **said}
    return lambda request: json.dumps([one(c) for c in request] if isinstance(request, list) else one(request)).encode()
