#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# once
# sanitize
"""Calls of every method, while the daemon runs and before it starts, with parameters that are wrong in one way, made from what the daemon says of
its methods; clients that flood, or
never read; and configuration files that are none. Beside it a host does verified I/O. VARVE_SEED chooses other calls."""
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import sys
import threading
import time

from appliance_lib import DEADLINE, Client, Daemon, Failure, check, main, wait_for
from hostile_lib import good_host, good_target, wait_verifying
from nvmf_lib import NQN, PORT, Target, wait_io

SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
# Ends the daemon, waits for its end, or writes a file outside the test's folder.
LEFT_OUT = {"spdk_kill_instance", "env_dpdk_get_mem_stats"}
OTHER = NQN + ":other"
INVALID_PARAMS = -32602
# Parameters that mean the good host's things when they are left out or guessed: never right here.
NAMES = {"nqn": OTHER, "subnqn": OTHER, "bdev_name": "m1", "name": "m1", "host": "nqn.2026-11.io.varve:nobody",
         "filename": "no-such-file", "directory": "no-such-folder", "traddr": "127.0.0.1", "trsvcid": "1"}
# Some elements are right for some parameter.
GOOD_ARRAYS = ([], ["m1"], ["sha256", "null"], ["transport"], [1, 2, 3], [128, 193], [None, [[{}]], 10**30], ["m1"] * 5000, list(range(5000)))
WRONG_ELEMENTS = (None, 1.5, -1, 10**30, True, [], [[[[]]]], {}, {"x": [1]})
LIMITS = {"uint8": 255, "uint16": 65535, "int32": 2**31 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}


def number(x):
    """Numbers too big for JSON come as text."""
    return int(x, 0) if isinstance(x, str) else x


# Parameters whose values no message shows; rpc_param_is_secret() says which.
SECRET = re.compile(r"^(?!key_name$|keyring_key$).*(?:key|psk|secret|passw|token)", re.I)


def given(rng, params, more=0):
    """What is required, and each of the rest with the probability `more`."""
    return {p["name"]: good_value(rng, p, more) for p in params if p.get("required") or rng.random() < more}


def good_value(rng, p, more=0):
    """One of the right type; its meaning may be wrong."""
    kind = p["type"]
    if "only" in p:
        return p["only"]
    if kind in LIMITS:
        low, high = number(p.get("min", 0)), number(p.get("max", LIMITS[kind]))
        if "timeout" in p["name"]:      # who may wait for a day is answered after a day
            return min(low + 1, high)
        return rng.choice([low, high, min(low + 1, high), rng.randint(low, high)]) if rng.random() < 0.3 else min(low + 1, high)
    if kind == "enum":
        return rng.choice(p["values"])
    if kind in ("bool", "boolean"):
        return rng.random() < 0.5
    if kind == "uuid":
        return "01234567-89ab-4cde-8f01-23456789abc%x" % rng.randrange(16)
    if kind == "array":
        return rng.choice(GOOD_ARRAYS) if more else []
    if kind == "object":
        return given(rng, p.get("fields", []), more)
    return NAMES.get(p["name"], rng.choice(["m1", "none", "x" * 30]))


def wrong_values(rng, p):
    """Those that the type forbids, and no others."""
    kind = p["type"]
    if kind in LIMITS:
        low, high = number(p.get("min", 0 if kind != "int32" else -2**31)), number(p.get("max", LIMITS[kind]))
        values = [low - 1, high + 1, True, "many", 1.5, [], {}, -2**63, 2**64, 10**30]
    elif kind in ("bool", "boolean"):
        values = [0, 1, "true", [], {}, 1.0]
    elif kind == "enum":
        values = ["no such", 5, [], {}, True, p["values"][0] + "x", ""]
    elif kind == "uuid":
        values = ["", "no uuid", 1, "01234567-89ab-4cde-8f01-23456789abcg", [], "0" * 300]
    elif kind == "array":
        values = [{}, "", 1, True]
    elif kind == "object":
        values = [[], "", 1, False]
    else:
        values = [1, True, [], {}, 1.5]
    null = p["only"] is None if "only" in p else p.get("help", "").startswith("no effect: ")     # some of these may be null, their usual value
    return rng.sample(values + [None] * (not null), 3)


def fields(params, *path):
    """Those of all depths: (path, parameter)."""
    for p in params:
        yield (*path, p["name"]), p
        if "only" not in p:
            yield from fields(p.get("fields", []), *path, p["name"])


def changed(rng, params, path, *value):
    """What is needed, and the field at the path with the value, or without one."""
    chosen = given(rng, params)
    if len(path) > 1:
        inner, = [p for p in params if p["name"] == path[0]]
        chosen[path[0]] = changed(rng, inner["fields"], path[1:], *value)
    elif value:
        chosen[path[0]] = value[0]
    else:
        del chosen[path[0]]
    return chosen


def raw(method, params, number=1):
    """params: JSON text, or bytes that are none."""
    params = params if isinstance(params, bytes) else params.encode()
    return b'{"jsonrpc":"2.0","method":"%s","id":%d,"params":%s}' % (method.encode(), number, params)


class Calls:
    """One client after the other, since some of what is sent ends the connection."""

    def __init__(self, daemon):
        self.daemon, self.client, self.made = daemon, None, 0

    def answer(self, data):
        """The daemon's answer, which is always a good one; None: it ended the connection after saying why, or said nothing."""
        check(self.daemon.process.poll() is None, f"varve ended with {self.daemon.process.poll()}:\n{self.daemon.log()[-5000:]}")
        if self.client is None:
            self.client = self.daemon.client()
        self.made += 1
        try:
            self.client.send(data)
            a = self.client.receive()
        except (BrokenPipeError, ConnectionResetError):
            a = None
        except TimeoutError:
            raise Failure(f"no answer to {data[:300]}") from None
        if a is None:
            self.client.close()
            self.client = None
            return None
        check(isinstance(a, dict) and a.get("jsonrpc") == "2.0" and "id" in a and ("result" in a) != ("error" in a), f"{data[:300]}: {a}")
        if "error" in a:
            e = a["error"]
            check(isinstance(e.get("code"), int) and isinstance(e.get("message"), str) and e["message"], f"{data[:300]}: {a}")
        return a

    def rejected(self, data, *words):
        """Rejected as bad parameters, in a message that has all the words."""
        a = self.answer(data)
        check(a is not None and "error" in a, f"{data[:300]}: answered {a}")
        check(a["error"]["code"] == INVALID_PARAMS and all(w in a["error"]["message"] for w in words),
              f"{data[:300]}: {a['error']}, expected the words {words}")
        return a


def bad_field(rng, calls, m, path, p):
    shown = '"%s"' % ".".join(path)

    def call(*value):
        return raw(m["name"], json.dumps(changed(rng, m["params"], path, *value)))
    for value in wrong_values(rng, p):
        words = [shown]
        if value is None or isinstance(value, int):
            words.append("not shown, for it may be a secret" if SECRET.search(path[-1]) and type(value) is int else json.dumps(value))
        if "values" in p and isinstance(value, str):
            words += p["values"][:1]
        calls.rejected(call(value), *words)
    if p.get("required"):
        calls.rejected(call(), shown, "missing")


def bad_elements(rng, calls, m, path):
    """Of an array: the answer names the first wrong one, and shows it."""
    shown = '"%s' % ".".join(path)

    def call(value):
        return raw(m["name"], json.dumps(changed(rng, m["params"], path, value)))
    for element in WRONG_ELEMENTS:
        calls.rejected(call([element]), f'{shown}[0]" is {json.dumps(element, separators=(",", ":"))}')
    for text in ("no such \u00e4", "z" * 5000, ""):     # what is of no such name need not be a wrong parameter
        a = calls.answer(call([text]))
        check("error" in a and ".".join(path) + "[0]" in a["error"]["message"], f"{m['name']}: {a}")
    calls.rejected(call([None] * 100000), shown)
    calls.rejected(call([[[{}]] * 50] * 2000), shown)


def bad_parameters(rng, calls, m):
    for path, p in fields(m["params"]):
        bad_field(rng, calls, m, path, p)
        if p["type"] == "array" and "only" not in p:
            bad_elements(rng, calls, m, path)
        if "fields" in p and "only" not in p:
            calls.rejected(raw(m["name"], json.dumps(changed(rng, m["params"], (*path, "no_such"), 1))), '"%s.no_such"' % ".".join(path), "unknown")
    calls.rejected(raw(m["name"], json.dumps({**given(rng, m["params"]), "no_such": 1})), '"no_such"', "unknown")


def bad_texts(rng, calls, m):
    name, rest = m["name"], json.dumps(given(rng, m["params"]))[1:-1]
    comma = "," if rest else ""
    first = m["params"][0]["name"] if m["params"] else "x"
    for params in ("[1]", '"text"', "5", "true", '{"%s":%s}' % (first, '{"a":' * 50 + "1" + "}" * 50),
                   '{"%s":%s%s%s}' % (first, "[" * 55, "]" * 55, comma + rest), '{"%s":%s}' % (first, "[" * 5000),
                   '{%s%s"%s":1,"%s":2}' % (rest, comma, first, first),
                   b'{"%s":"\xff\xfe\xc0"}' % first.encode(), b'{"%s":"\x01"}' % first.encode(), '{"%s":"a\\u0000b"}' % first, b'{"%s":"\\ud800"}' % first.encode(),
                   '{"%s":"%s"}' % (first, "y" * rng.choice([1000, 300000])), '{"%s":1e400}' % first, '{"%s":-0}' % first,
                   '{"%s":%s}' % (first, "9" * 400)):
        a = calls.answer(raw(name, params))
        if a is None or "error" in a and a["error"]["code"] == -32700:
            calls.client = None     # what follows in the stream is anybody's guess


def random_good(rng, calls, m):
    for _ in range(3):
        calls.answer(raw(m["name"], json.dumps(given(rng, m["params"], 0.4))))


def prepare(t):
    t.add_malloc("m1")
    t.add_subsystem(OTHER)
    t.add_ns("m1", OTHER, nsid=1)


def test_every_method_rejects_what_its_parameters_forbid_and_says_what_is_allowed():
    rng = random.Random(SEED)
    with good_target() as t:
        prepare(t)
        methods = [m for m in t.call("rpc_describe_methods") if m["name"] not in LEFT_OUT and "runtime" in m["states"]]
        calls = Calls(t)
        with good_host(t, "-t", "3600") as h:
            wait_verifying(t, h)
            for m in methods:
                bad_parameters(rng, calls, m)
                bad_texts(rng, calls, m)
            wait_io(t, [h])
            result = h.stop()
            h.check_perfect(result)
        print(f"# seed {SEED}: {calls.made} calls of {len(methods)} methods")
        check(t.call("spdk_get_version"), "the daemon goes on")
        check("Sanitizer" not in t.log(), t.log())
        check(t.stop() == 0, t.log()[-5000:])


class Waiting(Daemon):
    """A daemon that waits to be told to start."""

    def __init__(self):
        super().__init__("--wait-for-rpc", ready=False)
        try:
            wait_for(self.connect, "the RPC socket").close()
        except BaseException:
            self.__exit__()
            raise

    def startup_methods(self):
        return [m for m in self.call("rpc_describe_methods") if m["name"] not in LEFT_OUT and "startup" in m["states"]]

    def start(self):
        check(self.call("framework_start_init") is True, "not started")
        self.wait_ready()


def test_every_method_of_the_startup_rejects_what_its_parameters_forbid_too():
    """And what was rejected has changed nothing: the daemon starts as if it had not been called."""
    rng = random.Random(SEED)
    with Waiting() as t:
        methods = t.startup_methods()
        only = [m["name"] for m in methods if m["states"] == ["startup"]]
        check(len(only) > 4 and "nvmf_set_config" in only and "iobuf_set_options" in only, only)
        calls = Calls(t)
        for m in methods:
            bad_parameters(rng, calls, m)
            bad_texts(rng, calls, m)
        print(f"# seed {SEED}: {calls.made} calls of {len(methods)} methods, {len(only)} of them at startup only")
        t.start()
        saved = t.call("framework_get_config", name="nvmf"), t.call("framework_get_config", name="iobuf")
        check(t.stop() == 0, t.log()[-5000:])
        check("Sanitizer" not in t.log(), t.log())
    with Daemon() as d:
        check(saved == (d.call("framework_get_config", name="nvmf"), d.call("framework_get_config", name="iobuf")), saved)


def test_startup_calls_that_could_be_right_are_followed_by_a_start_or_a_reason():
    rng = random.Random(SEED)
    with Waiting() as t:
        calls = Calls(t)
        methods = [m for m in t.startup_methods() if not m["name"].startswith("framework_")]
        rng.shuffle(methods)
        for m in methods:
            random_good(rng, calls, m)
        check(t.call("spdk_get_version"), "the daemon goes on")
        print(f"# seed {SEED}: {calls.made} calls")
        answer = calls.answer(raw("framework_start_init", "{}"))
        status = t.stop() if answer is not None and "result" in answer else t.wait_exit()
        check(status in (0, 1), f"ended with {status}:\n{t.log()[-5000:]}")
        check(status == 0 or "*ERROR*" in t.log(), t.log()[-5000:])
        check("Sanitizer" not in t.log(), t.log())


def test_calls_that_could_be_right_leave_the_daemon_alive():
    """Right types with any meaning, without a host: what they do is what was asked for."""
    rng = random.Random(SEED)
    with good_target() as t:
        prepare(t)
        calls = Calls(t)
        methods = [m for m in t.call("rpc_describe_methods") if m["name"] not in LEFT_OUT]
        rng.shuffle(methods)
        for m in methods:
            random_good(rng, calls, m)
        print(f"# seed {SEED}: {calls.made} calls")
        check(t.call("spdk_get_version"), "the daemon goes on")
        check(t.stop() == 0, t.log()[-5000:])
        check("Sanitizer" not in t.log(), t.log())


def test_ten_thousand_connections_are_served_or_told_no():
    with good_target() as t:
        with good_host(t, "-t", "3600") as h:
            wait_verifying(t, h)
            held = [t.client() for _ in range(40)]
            refused = 0
            for n in range(10000):
                s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", DEADLINE, 0))     # as Client does
                s.connect(str(t.path))
                held.append(s)
                if len(held) > 200:     # as many as this process can afford
                    old = held.pop(random.randrange(40, len(held)))
                    refused += said_no(old)
                    old.close()
            check(refused > 0, "nobody was told that there are too many")
            for s in held[40:]:
                s.close()
            check(held[0].call("spdk_get_version") and held[39].call("spdk_get_version"), "those who came first are served")
            for c in held[:40]:
                c.close()
            wait_for(lambda: served(t), "new clients to be served again")
            wait_io(t, [h])
            h.check_perfect(h.stop())
        t.stop_clean("RPC client refused")


def said_no(s):
    try:
        return b"clients already" in s.recv(4096, socket.MSG_DONTWAIT)
    except (BlockingIOError, ConnectionResetError):
        return False


def served(t):
    c = Client(t.path)
    try:
        return c.call("spdk_get_version")
    except (Failure, ConnectionError):
        return None
    finally:
        c.close()


def test_clients_that_never_read_do_not_hold_up_the_io():
    with good_target() as t:
        with good_host(t, "-t", "3600") as h:
            wait_verifying(t, h)
            deaf = [t.client() for _ in range(8)]
            for c in deaf:
                c.sock.setblocking(False)
                try:
                    for _ in range(2000):
                        c.sock.send(raw("rpc_describe_methods", "{}") * 20)
                except BlockingIOError:
                    pass
            wait_io(t, [h])
            check(t.call("spdk_get_version"), "another client is not served")
            h.check_perfect(h.stop())
        t.stop_clean()


def test_requests_while_the_daemon_ends_are_answered_or_cut_off():
    rng = random.Random(SEED)
    with good_target() as t:
        methods = [m["name"] for m in t.call("rpc_describe_methods") if m["name"] not in LEFT_OUT and not any(
            p.get("required") for p in m["params"])]
        ended, odd = threading.Event(), []

        def ask(seed):
            mine = random.Random(seed)
            while not ended.is_set():
                try:
                    a = Calls(t).answer(raw(mine.choice([x for x in methods if "get" in x]), "{}"))
                    if a is not None and "result" not in a and "error" not in a:
                        odd.append(a)
                except (OSError, Failure):      # it has gone
                    return
        threads = [threading.Thread(target=ask, args=(rng.random(),)) for _ in range(4)]
        for x in threads:
            x.start()
        t.call("spdk_get_version")
        status = t.stop()
        ended.set()
        for x in threads:
            x.join()
        check(status == 0, f"ended with {status}:\n{t.log()[-5000:]}")
        check(not odd and "Sanitizer" not in t.log(), odd or t.log())


ROUNDS = 10
CHANGERS = 5


class Changer(threading.Thread):
    """A client that makes things and takes them away, over and over, until the daemon ends its connection. What it asks for may be refused, since
    others do the same; what it is told is an answer to what it asked."""

    def __init__(self, target, number, seed):
        super().__init__(daemon=True)
        self.target, self.number, self.rng = target, number, random.Random(seed)
        self.answered, self.problem = 0, None
        self.last_id, self.waiting = 0, {}      # what is not answered yet: id to method
        self.done = set()

    def calls(self):
        """In an order in which each can be carried out, for somebody alone."""
        t, mine, nqn = self.target, f"c{self.number}", f"{NQN}:c{self.number}"
        at = {**t.listen_address(), "trsvcid": str(PORT + 1 + self.number)}
        nobody = {**t.listen_address(), "trsvcid": str(PORT + 15)}
        again = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1}
        return [("bdev_malloc_create", {"name": mine, "block_size": 512, "num_blocks": 2048}),
                ("bdev_error_create", {"base_name": mine}),
                ("nvmf_create_subsystem", {"nqn": nqn, "serial_number": "V2", "allow_any_host": True, "ana_reporting": True}),
                ("nvmf_subsystem_add_listener", {"nqn": nqn, "listen_address": at}),
                ("nvmf_subsystem_add_ns", {"nqn": nqn, "namespace": {"bdev_name": f"EE_{mine}", "nsid": 1}}),
                ("bdev_nvme_attach_controller", {"name": f"a{self.number}", "subnqn": NQN, **nobody}),
                ("bdev_nvme_attach_controller", {"name": f"a{self.number}", "subnqn": NQN, **t.listen_address(), **again}),
                ("bdev_nvme_start_discovery", {"name": f"d{self.number}", **(nobody if self.number % 2 else at), **again}),
                ("nvmf_subsystem_listener_set_ana_state", {"nqn": nqn, "listen_address": at, "ana_state": "inaccessible"}),
                ("metrics_start", {"address": f"unix:{t.folder}/metrics"}),
                ("framework_get_config", {"name": "bdev"}),
                ("framework_get_config", {"name": "nvmf"}),
                ("bdev_nvme_stop_discovery", {"name": f"d{self.number}"}),
                ("bdev_nvme_detach_controller", {"name": f"a{self.number}"}),
                ("nvmf_subsystem_remove_ns", {"nqn": nqn, "nsid": 1}),
                ("nvmf_subsystem_remove_listener", {"nqn": nqn, "listen_address": at}),
                ("metrics_stop", {}),
                ("nvmf_delete_subsystem", {"nqn": nqn}),
                ("bdev_malloc_delete", {"name": mine})]

    def send(self, client, calls):
        """Some at once: they are all begun, or wait in the daemon."""
        text = b""
        for method, params in calls:
            self.last_id += 1
            self.waiting[self.last_id] = method
            text += raw(method, json.dumps(params), self.last_id)
        client.send(text)

    def take(self, client):
        """False: the connection has ended, and not in the middle of an answer."""
        a = client.receive()
        if a is None:
            check(not client.buffer, f"the connection ended within an answer: {client.buffer[:300]}")
            return False
        method = self.waiting.pop(a.get("id"), None)
        check(a.get("jsonrpc") == "2.0" and ("result" in a) != ("error" in a) and method is not None, f"answered {a}")
        check("result" in a or a["error"]["message"], a)
        self.answered += 1
        self.done |= {method} if "result" in a else set()
        return True

    def ask(self, client):
        calls = self.calls()
        while True:
            for i in range(0, len(calls), 3):
                try:
                    self.send(client, calls[i:i + 3])
                except (BrokenPipeError, ConnectionResetError):
                    pass        # what was answered before can still be read
                while len(self.waiting) > self.rng.choice([0, 2, 4]):
                    if not self.take(client):
                        return

    def run(self):
        try:
            client = self.target.client()
            try:
                self.ask(client)
            finally:
                client.close()
        except Exception as e:
            self.problem = f"{type(e).__name__}: {e}; waiting for {self.waiting}"


def tell_to_end(rng, t):
    number = rng.choice(["SIGTERM", "SIGTERM", "SIGINT", "SIGHUP"])
    if rng.random() < 0.5:
        t.process.send_signal(getattr(signal, number))
    else:
        check(t.call("spdk_kill_instance", sig_name=number) is True, number)


def things_left(t):
    return [str(f) for f in [*pathlib.Path("/dev/shm").glob(f"*pid{t.pid}*"), *t.folder.iterdir()] if f.is_socket() or f.name != "log"]


def test_requests_that_change_things_while_the_daemon_ends_are_answered_or_cut_off():
    """At another moment in each round: after some answers."""
    rng, done, answered, cut_off = random.Random(SEED), set(), 0, 0
    for n in range(ROUNDS):
        with Target(cores="[0]") as t:
            t.add_ns(t.add_malloc("m1"))
            changers = [Changer(t, i, rng.random()) for i in range(CHANGERS)]
            moment = rng.randrange(5, 400)
            for c in changers:
                c.start()
            wait_for(lambda: sum(c.answered for c in changers) >= moment or any(c.problem for c in changers), f"{moment} answers")
            tell_to_end(rng, t)
            status, log = t.wait_exit(), t.log()
            for c in changers:
                c.join(DEADLINE)
            what = f"seed {SEED}, round {n}, told to end after {moment} answers"
            check(status == 0, f"{what}: ended with {status}:\n{log[-5000:]}")
            problems = [c.problem for c in changers if c.problem or c.is_alive()]
            check(not problems and "Sanitizer" not in log and "runtime error" not in log, f"{what}: {problems}\n{log[-5000:]}")
            check(not things_left(t), f"{what}: left {things_left(t)}")
            done.update(*(c.done for c in changers))
            answered += sum(c.answered for c in changers)
            cut_off += sum(len(c.waiting) for c in changers)
    print(f"# seed {SEED}: {answered} calls were answered, {cut_off} were cut off")
    never = {method for method, _ in changers[0].calls()} - done
    check(not never and cut_off > 0, f"{cut_off} calls were cut off, {never} were never carried out")


GOOD_CONFIG = {"subsystems": [{"subsystem": "bdev", "config": [
    {"method": "bdev_malloc_create", "params": {"name": "c0", "num_blocks": 2048, "block_size": 512}}]}]}


def bad_configurations(rng):
    text = json.dumps(GOOD_CONFIG)
    for _ in range(4):
        yield text[:rng.randrange(1, len(text))], []
    yield "", []
    yield "[]", []
    yield '{"subsystems": 5}', ["subsystems"]
    yield '{"subsystems": [5]}', ["subsystems[0]"]
    yield '{"subsystems": [{"subsystem": 5, "config": []}]}', ["subsystem"]
    yield '{"subsystems": [{"subsystem": "bdev", "config": {}}]}', ["config"]
    yield '{"subsystems": [{"subsystem": "bdev", "config": [5]}]}', ["config[0]"]
    yield text.replace("bdev_malloc_create", "no_such_method"), ["config[0]", "no_such_method"]
    yield text.replace("2048", '"many"'), ["config[0]", "bdev_malloc_create", "num_blocks", "many"]
    yield text.replace("num_blocks", "nun_blocks"), ["config[0]", "nun_blocks"]
    yield text.replace('"c0"', '"' + "z" * 100000 + '"'), []
    yield "[" * 100000, []
    yield b"\xff\xfe\x00", []


def test_configurations_that_are_none_are_refused_and_say_where():
    rng = random.Random(SEED)
    with Daemon() as holder:
        path = holder.folder / "config.json"
        for text, words in bad_configurations(rng):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            with Daemon("-c", path, ready=False) as d:
                status = d.wait_exit()
                log = d.log()
                check(status == 1 and str(path) in log and all(w in log for w in words), f"{text[:200]}: ended with {status}: {log[:2000]}")
                check("Sanitizer" not in log, log)


if __name__ == "__main__":
    main(sys.modules[__name__])
