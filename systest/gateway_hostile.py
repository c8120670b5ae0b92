#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# apart
"""Clients that mean ill to varve-gateway: without credentials, slow, many, with bytes that are no HTTP or no JSON, and with wrong calls of every method. A good client is served all the while.
VARVE_SEED chooses other bytes."""
import http.client
import json
import os
import random
import resource
import socket
import sys
import time

from appliance_lib import DEADLINE, Daemon, Failure, check, main, wait_for
from gateway_lib import Gateway, basic
from hostile_rpc import LEFT_OUT, OTHER, Calls, bad_parameters, bad_texts

SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
SECONDS = 60        # for the calls of all methods; a machine that is busy makes those of some
GOOD = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "spdk_get_version"}).encode()


def serves(g, what):
    status, answer = g.post(GOOD, "reader")
    check(status == 200 and "result" in answer, f"seed {SEED}: {what}: the good client gets {status} {answer}")


def head(*lines, verb="POST", url="/"):
    return "\r\n".join([f"{verb} {url} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def authorization(name):
    return "Authorization: " + basic(name)["Authorization"]


def status_of(data):
    """0: none"""
    return int(data[9:12]) if data.startswith(b"HTTP/1.") else 0


def exchange(g, data):
    """What comes back until the gateway has answered and closed, or closed."""
    got = b""
    with g.raw() as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while more := s.recv(65536):
                got += more
        except OSError:     # it did not want all of it
            pass
    return got


def mangled(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at:at + rng.randint(1, 20)]
        elif kind == 2:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 20)))
        else:
            data[at:at] = data[rng.randrange(len(data)):][:200]
        data = data or bytearray(b"x")
    return bytes(data)


def test_ten_thousand_requests_without_the_right_credentials():
    """On connections that are kept where the gateway keeps them. Nothing of what they ask for is done."""
    rng = random.Random(SEED)
    kill = b'{"id":1,"method":"spdk_kill_instance","params":{"sig_name":"SIGKILL"}}'
    with Daemon() as d, Gateway(d) as g:
        serves(g, "before")
        fds, counts, c = g.fds(), {}, g.connect()
        for i in range(10000):
            headers = rng.choice([{}, basic("boss", str(rng.random())), basic(f"user{i}", "x"), {"Authorization": "Basic " + "A" * rng.randrange(400)},
                                  {"Authorization": rng.choice(["Basic", "Basic :", "Digest x", "Bearer " + "x" * 100])}])
            try:
                c.request("POST", rng.choice(["/", "/x", "/healthz/.."]), rng.choice([kill, mangled(rng, kill), b"", b"[" * 50]), headers)
                r = c.getresponse()
                counts[r.status] = counts.get(r.status, 0) + 1
                r.read()
            except (http.client.HTTPException, OSError):
                c.close()
                c = g.connect()
        c.close()
        check(set(counts) == {401, 429} and sum(counts.values()) > 9000, f"seed {SEED}: {counts}")
        check(d.process.poll() is None, "the daemon was ended")
        serves(g, "after")
        wait_for(lambda: g.fds() <= fds + 2, lambda: f"descriptors to be closed: {g.fds()}, {fds} before")
        check(len(g.log()) < 1000000, f"{len(g.log())} bytes of log")


def test_bytes_that_are_no_http():
    rng = random.Random(SEED)
    body = GOOD
    models = [head(f"Content-Length: {len(body)}", authorization("reader")) + body,
              head("Transfer-Encoding: chunked", authorization("reader")) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
              head(verb="GET", url="/healthz"), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)]
    with Daemon() as d, Gateway(d, "--client-timeout", "20", "--rate", "0") as g:
        for i in range(1000):
            exchange(g, mangled(rng, rng.choice(models)))
        serves(g, "after the fuzzer")
        check(d.process.poll() is None and g.process.poll() is None, "somebody died")


def test_a_fuzzer_with_credentials():
    """Bodies whose JSON is mangled: the daemon gets what is JSON-RPC, and answers it."""
    rng = random.Random(SEED)
    with Daemon() as d, Gateway(d, "--rate", "0") as g:
        c = g.connect()
        models = [GOOD, b'[{"id":1,"method":"log_get_level"},{"method":"bdev_get_bdevs","params":{"name":"x"}}]']
        for i in range(2000):
            c.request("POST", "/", mangled(rng, rng.choice(models)), basic("reader"))
            r = c.getresponse()
            text = r.read()
            check(r.status in (200, 204, 400, 403), f"seed {SEED}: {r.status} {text}")
            check(r.status == 204 or json.loads(text), "an answer")
        c.close()
        serves(g, "after the fuzzer")
        check(d.process.poll() is None, "the daemon was ended")


class HttpCalls(Calls):
    """The calls of hostile_rpc.py by HTTP, of a user who may do all, on one connection as long as the gateway keeps it."""

    def __init__(self, daemon, gateway):
        super().__init__(daemon)
        self.gateway, self.connection = gateway, gateway.connect()
        self.fresh, self.again = True, 0        # whether nothing has been answered on the connection yet; how often the gateway had closed it

    def alive(self, data):
        check(self.daemon.process.poll() is None and self.gateway.process.poll() is None, f"seed {SEED}: somebody died at {data[:300]}")

    def exchange(self, data):
        self.connection.request("POST", "/", data, basic("boss"))
        return self.connection.getresponse()

    def post(self, data):
        """The answer. A connection that is kept may be closed by the gateway meanwhile: then once more, on a new one."""
        try:
            return self.exchange(data)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.connection.close()
            if self.fresh:
                raise
            self.alive(data)
            self.fresh, self.again = True, self.again + 1
            check(self.again <= 10, f"seed {SEED}: connections that are kept are closed again and again, now at {data[:300]}")
            return self.exchange(data)      # it connects again

    def answer(self, data):
        self.alive(data)
        self.made += 1
        try:
            r = self.post(data)
            text = r.read()
        except (http.client.HTTPException, OSError) as e:
            self.alive(data)
            raise Failure(f"seed {SEED}: {data[:300]}: {e!r}") from e
        self.fresh = False
        check(r.status in (200, 400), f"seed {SEED}: {data[:300]}: {r.status} {text[:300]}")
        a = json.loads(text)
        check(isinstance(a, dict) and ("result" in a) != ("error" in a), f"seed {SEED}: {data[:300]}: {a}")
        if "error" in a:
            check(type(a["error"]["code"]) is int and a["error"]["message"], f"seed {SEED}: {data[:300]}: {a}")
        return a


def test_every_method_rejects_by_http_what_its_parameters_forbid():
    """As on the socket: with the words that name the parameter, its value and what is allowed. Methods in another order each time, until the time is over."""
    rng = random.Random(SEED)
    with Daemon() as d, Gateway(d, "--rate", "0") as g:
        d.call("bdev_malloc_create", name="m1", block_size=512, num_blocks=2048)
        d.call("nvmf_create_subsystem", nqn=OTHER)
        d.call("nvmf_subsystem_add_ns", nqn=OTHER, namespace={"bdev_name": "m1", "nsid": 1})
        methods = [m for m in d.call("rpc_describe_methods") if m["name"] not in LEFT_OUT and "runtime" in m["states"]]
        rng.shuffle(methods)
        print(f"# seed {SEED}", flush=True)
        calls, end = HttpCalls(d, g), time.monotonic() + SECONDS
        for n, m in enumerate(methods):
            if n > 10 and time.monotonic() > end:
                break
            bad_parameters(rng, calls, m)
            bad_texts(rng, calls, m)
        print(f"# seed {SEED}: {calls.made} calls of {n + 1} of {len(methods)} methods")
        calls.connection.close()
        serves(g, "after the wrong calls")
        check(d.call("spdk_get_version"), "the daemon goes on")


def test_heads_and_bodies_that_are_too_long():
    with Daemon() as d, Gateway(d) as g:
        ok = authorization("reader")
        for what, data in (("a header", head(ok, "X: " + "x" * 100000)), ("many headers", head(ok, *[f"X{i}: {'y' * 50}" for i in range(2000)])),
                           ("a URL", head(ok, url="/" + "x" * 100000))):
            check(status_of(exchange(g, data)) in (0, 400, 413, 414, 431), f"{what}: {exchange(g, data)[:100]}")
        check(status_of(exchange(g, head(ok, "Content-Length: 4194305") + b"x" * 1000)) == 413, "a length")
        for text in ("99999999999999999999999", "-1", "x"):
            check(status_of(exchange(g, head(ok, f"Content-Length: {text}") + b"{}")) in (0, 400, 413), f"length {text}")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        check(status_of(exchange(g, head(ok, "Transfer-Encoding: chunked") + chunk * 70)) in (0, 413), "chunks")
        before = g.rss_kb()
        for _ in range(20):     # without credentials nothing is kept
            check(status_of(exchange(g, head("Transfer-Encoding: chunked") + chunk * 60)) in (0, 401), "chunks without credentials")
        check(g.rss_kb() < before + 20000, f"{before} kB, then {g.rss_kb()}")
        long = json.dumps({"id": 1, "method": "bdev_get_bdevs", "params": {"name": "x" * 3000000}}).encode()
        check(g.post(long, "reader")[0] == 200, "3 MB are allowed")
        serves(g, "after")


def test_chunks_and_pipelines_are_understood():
    with Daemon() as d, Gateway(d) as g:
        ok = authorization("reader")
        chunks = b"".join(b"1\r\n%c\r\n" % b for b in GOOD) + b"0\r\n\r\n"
        check(status_of(exchange(g, head(ok, "Transfer-Encoding: chunked") + chunks)) == 200, "single bytes in chunks")
        answers = exchange(g, (head(ok, f"Content-Length: {len(GOOD)}") + GOOD) * 100)
        check(answers.count(b"HTTP/1.1 200") == 100 and answers.count(b'"result"') == 100, f"{answers.count(b'HTTP/1.1 200')} of 100")
        mixed = head(f"Content-Length: {len(GOOD)}") + GOOD + head(ok, f"Content-Length: {len(GOOD)}") + GOOD
        check(exchange(g, mixed).count(b'"result"') == 1, "credentials count for one request only")


def test_slow_clients_are_ended():
    with Daemon() as d, Gateway(d, "--client-timeout", "1") as g:
        ok = authorization("reader")
        slow = {"silent": b"", "in a head": b"POST / HT", "in a body": head(ok, "Content-Length: 1000") + b"{", "in a refused body": head("Content-Length: 1000") + b"{",
                "in a chunk": head(ok, "Transfer-Encoding: chunked") + b"100\r\n{"}
        socks = {}
        for what, data in slow.items():
            socks[what] = g.raw()
            socks[what].sendall(data)
        drip = g.raw()      # a byte at a time, for ever
        drip.setblocking(False)
        serves(g, "beside the slow ones")
        for what, s in socks.items():
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            s.close()

        def ended():
            try:
                drip.send(b"x")
                return False
            except BlockingIOError:
                return False
            except OSError:
                return True
        wait_for(ended, "the end of one that sends a byte at a time")
        drip.close()
        serves(g, "after the slow ones")


def test_one_that_does_not_read_its_answers_is_ended():
    with Daemon() as d, Gateway(d, "--client-timeout", "1", "--rate", "0") as g:
        body = b'{"id":1,"method":"rpc_describe_methods"}'
        with g.raw() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(DEADLINE)
            data = (head(authorization("reader"), f"Content-Length: {len(body)}") + body)
            try:
                for _ in range(2000):
                    s.sendall(data * 10)
            except TimeoutError:
                check(False, "it is still there")
            except OSError:
                pass
        serves(g, "after it")


def test_a_thousand_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with Daemon() as d, Gateway(d, "--max-connections", "64", "--client-timeout", "2") as g:
        before = g.fds()
        socks = []
        for _ in range(1000):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", g.port))
            socks.append(s)
        wait_for(lambda: g.fds() > 50, "connections to be taken")
        check(g.fds() < 100, f"{g.fds()} descriptors, 64 connections are allowed")

        def served():
            try:
                return g.post(GOOD, "reader")[0] == 200
            except OSError:     # the gateway is full: what is too much is turned away
                return False
        wait_for(served, "the good client's turn: the others are slow, and ended")
        for s in socks:
            s.close()
        wait_for(lambda: g.fds() <= before, "the end of the connections that were taken")
        wait_for(served, "the good client after a thousand: those that wait to be taken fill the gateway for a moment")
        check(d.call("spdk_get_version"), "the daemon")
        g.stop()


def test_it_ends_while_calls_are_under_way():
    with Daemon("--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        with Gateway(d) as g:
            c = g.connect()
            c.request("POST", "/", b'{"id":1,"method":"framework_wait_init"}', basic("reader"))
            wait_for(lambda: "framework_wait_init" in str(d.call("rpc_get_calls")), "the call")
            g.stop()
            check("Ends although calls are under way" in g.log(), g.log())
            c.close()


if __name__ == "__main__":
    main(sys.modules[__name__])
