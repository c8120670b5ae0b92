#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# quick
# beside
"""What varve-cluster makes of answers of etcd that are wrong: a message, never an exception that it does not know, and never a state that is none.
The decisions of gateways that look at one state agree."""
import base64
import contextlib
import http.server
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading

from appliance_lib import DEADLINE, TOP, check, main

sys.dont_write_bytecode = True
sys.path.insert(0, str(TOP / "tools" / "cluster"))
from varve_cluster import agent, etcd, state  # noqa: E402

SEED = int(os.environ.get("VARVE_SEED") or random.SystemRandom().getrandbits(32))
ROUNDS = 20000
PREFIX = "/varve/test/"


def namespace(group):
    return {"nguid": "00" * 16, "anagrpid": group, "block_size": 512, "blocks": 8192}


FACTS = {"nqn": "n", "min_cntlid": 1, "max_cntlid": 1000, "namespaces": {"1": namespace(1), "2": namespace(2)}, "waits": {},
         "listeners": [{"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.1", "trsvcid": "4420"}]}
OTHER = {**FACTS, "min_cntlid": 1001, "max_cntlid": 2000}


def b64(text):
    return base64.b64encode(text.encode()).decode()


def kv(key, value, **more):
    return {"key": b64(PREFIX + key), "value": b64(value if isinstance(value, str) else json.dumps(value)), "mod_revision": "7", **more}


def good_answer():
    return {"header": {"revision": "9"}, "count": "5", "kvs": [
        kv("gateways/a", FACTS, lease="11"), kv("gateways/b", OTHER, lease="12"), kv("groups/1", {"owner": "a", "token": 3}),
        kv("groups/2", {"owner": "gone", "token": 1}), kv("moves/1", "b")]}


def decode(data):
    return state.decode_state(etcd.decode_range(etcd.decode_answer(200, data), PREFIX))


def refused(data, word, status=200):
    try:
        state.decode_state(etcd.decode_range(etcd.decode_answer(status, data), PREFIX))
    except etcd.EtcdError as e:
        check(word in str(e), f"{e}: {word}")
    else:
        check(False, f"was taken: {data!r:.200}")


def test_a_good_answer_is_read():
    s = decode(json.dumps(good_answer()).encode())
    check(set(s.gateways) == {"a", "b"} and s.gateways["b"].lease == 12 and s.gateways["b"].facts == OTHER, s)
    check(s.groups == {1: state.Group("a", 3, 7), 2: state.Group("gone", 1, 7)} and s.moves == {1: state.Move("b", 7)}, s)
    check(decode(b"{}") == state.State({}, {}, {}), "no keys")
    check(not state.is_free(s, 1) and state.is_free(s, 2) and state.is_free(s, 3), "owners")


def test_wrong_answers_name_what_is_wrong():
    for data in (b"", b"nonsense", b"[]", b"5", b"null", b'{"kvs": [', b"\xff\xfe", b"[" * 100000):
        refused(data, "object")
    refused(b"<html>", "HTTP 502", 502)
    refused(b'{"error": "etcdserver: request timed out"}', "request timed out", 503)
    refused(b'{"kvs": 5}', "kvs")
    refused(b'{"kvs": [5]}', "kv")
    refused(b'{"kvs": [], "more": true}', "part")
    for change, word in (({"key": "%"}, "a key"), ({"key": b64("/other/x")}, "not asked for"), ({"key": 5}, "a key"), ({"value": "%%"}, "value"),
                         ({"value": base64.b64encode(b"\xff").decode()}, "value"), ({"mod_revision": "x"}, "mod_revision"), ({"mod_revision": None}, "mod_revision"),
                         ({"mod_revision": "9" * 30}, "mod_revision"), ({"mod_revision": "--5"}, "mod_revision"), ({"mod_revision": "5-"}, "mod_revision"),
                         ({"mod_revision": "\u0665"}, "mod_revision"), ({"create_revision": "x"}, "create_revision"), ({"mod_revision": True}, "mod_revision"), ({"lease": "1.5"}, "lease")):
        refused(json.dumps({"kvs": [{**kv("gateways/a", FACTS), **change}]}).encode(), word)
    for key, value, word in (("gateways/", FACTS, "name of a gateway"), ("gateways/a\x1b[2J", FACTS, "name of a gateway"), ("groups/x", {"owner": "a", "token": 1}, "ANA group"),
                             ("groups/1", {}, "owner"), ("groups/1", {"owner": "a", "token": -1}, "token"), ("groups/1", {"owner": "a", "token": True}, "token"),
                             ("groups/1", {"owner": "\x1b", "token": 1}, "owner"), ("groups/1", "[]", "object"), ("moves/1", "", "name of a gateway"),
                             ("moves/-1", "a", "ANA group"), ("others/1", "a", "not one of a cluster"), ("gateways/a", {**FACTS, "waits": {"1": 5}}, "waits"),
                             ("gateways/a", {**FACTS, "min_cntlid": "1"}, "min_cntlid"),
                             ("gateways/a", {**FACTS, "namespaces": {"1": "00"}}, "namespace '1'"),
                             ("gateways/a", {**FACTS, "namespaces": {"1": {**namespace(1), "blocks": "1"}}}, "blocks"),
                             ("gateways/a", {**FACTS, "namespaces": {"1": {**namespace(1), "nguid": "\x1b"}}}, "nguid"), ("gateways/a", {**FACTS, "waits": {"1": "\ud800"}}, "waits")):
        refused(json.dumps({"kvs": [kv(key, value)]}).encode(), word)


def test_listeners_of_one_gateway_do_not_matter_to_groups():
    """What is no address is left out; hosts are told of the others."""
    good = FACTS["listeners"][0]
    address = tuple(good[name] for name in state.ADDRESS)
    many = [{**good, "trsvcid": str(i)} for i in range(1, 1000)]
    for listeners, expected in (([{**good, "secure": "x"}], {address}), ({}, set()), (None, set()), ([5, None, [], good], {address}), ([{"trtype": "TCP"}], set()),
                                ([{**good, "traddr": "\x1b"}, good], {address}), ([{**good, "trsvcid": 4420}], set()), ([{**good, "traddr": "1" * 257}], set()),
                                (many, {(*address[:3], str(i)) for i in range(1, state.LISTENERS_MAX + 1)})):
        s = decode(json.dumps({"kvs": [kv("gateways/a", FACTS, lease="11"), kv("gateways/b", {**OTHER, "listeners": listeners}, lease="12"),
                                       kv("groups/1", {"owner": "a", "token": 3})]}).encode())
        check(s.gateways["b"].facts["listeners"] == listeners and state.referred_to(s, "b") == {address} - expected, listeners)
        check(state.referred_to(s, "a") == expected - {address}, f"{listeners} {state.referred_to(s, 'a')}")
        check(state.referred_to(s, "c") == expected | {address}, listeners)
        check(not state.is_free(s, 1) and state.is_free(s, 2) and state.wanted_by(s, 2, (1, 2)) == "b", listeners)


def test_lines_of_a_watch_are_read():
    for line in (b'{"result": {"created": true}}\n', b'{"result": {"header": {}, "events": [{"kv": {}}]}}\n', b'{"result": {}}'):
        etcd.decode_watch(line)
    for line, word in ((b"", "object"), (b"\n", "object"), (b"[]", "object"), (b'{"result": 5}', "ended"), (b"{}", "ended"), (b"\xff", "object"),
                       (b'{"error": {"message": "no leader"}}', "no leader"), (b'{"result": {"canceled": true, "compact_revision": "7"}}', "canceled"),
                       (b'{"result": {"created": true', "object")):
        try:
            etcd.decode_watch(line)
        except etcd.EtcdError as e:
            check(word in str(e), f"{line}: {e}")
        else:
            check(False, f"was taken: {line}")


def spoil(rng, value):
    """The value with one thing in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return {**value, key: spoil(rng, value[key])} if rng.random() < 0.9 else {k: v for k, v in value.items() if k != key}
    if isinstance(value, list) and value and rng.random() < 0.9:
        i = rng.randrange(len(value))
        return value[:i] + [spoil(rng, value[i])] + value[i + 1:]
    if isinstance(value, str) and rng.random() < 0.7:
        with contextlib.suppress(ValueError):
            inner = bytearray(base64.b64decode(value, validate=True))
            if inner and rng.random() < 0.5:
                inner[rng.randrange(len(inner))] = rng.randrange(256)
                return base64.b64encode(inner).decode()
        with contextlib.suppress(ValueError):
            return b64(json.dumps(spoil(rng, json.loads(base64.b64decode(value, validate=True)))))
    return rng.choice([None, True, -1, 0, 1 << 70, 1.5, "", "x", "\ud800", [], {}, [[]], "9" * 400])


def test_random_damage_is_refused_or_harmless():
    rng = random.Random(SEED)
    taken = 0
    for _ in range(ROUNDS):
        answer = good_answer()
        for _ in range(rng.randint(1, 3)):
            answer = spoil(rng, answer)
        data = bytearray(json.dumps(answer).encode())
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)):]
        try:
            s = decode(bytes(data))
        except etcd.EtcdError:
            continue
        taken += 1
        for me in ("a", "b"):
            give = state.to_give(s, me, (1, 2))
            check(give is None or (s.groups[give[0]].owner == me and give[1] in s.gateways and give[1] != me), f"{s} {give}")
            other = s.gateways.get("b" if me == "a" else "a")
            state.conflict(FACTS, "x", other.facts if other else FACTS)
            check(all(isinstance(x, str) for address in state.referred_to(s, me) for x in address), s)
        check(all(state.wanted_by(s, n, (1, 2)) in (*s.gateways, None) for n in (1, 2)), s)
    check(0 < taken < ROUNDS, taken)
    print(f"# {taken} of {ROUNDS} damaged answers were taken", flush=True)


def test_gateways_that_do_not_fit_are_told():
    check(state.conflict(FACTS, "b", OTHER) is None, "these fit")
    changes = [({"nqn": "m"}, "nqn"), ({"min_cntlid": 1000}, "cntlid")]
    changes += [({"namespaces": {"1": {**namespace(1), name: value}}}, f"{name} of namespace 1")
                for name, value in (("nguid", "11" * 16), ("anagrpid", 2), ("block_size", 4096), ("blocks", 1))]
    for change, word in changes:
        check(word in state.conflict(FACTS, "b", {**OTHER, **change}), change)
    check(state.conflict(FACTS, "b", {**OTHER, **changes[-1][0]}, sizes=False) is None, "an image that is being resized")
    check(state.conflict(FACTS, "b", {**OTHER, "namespaces": {"2": namespace(2)}}) is None, "one that lacks a group")


def facts_of(*groups, **more):
    """One namespace in each group; of group 7, two."""
    namespaces = {str(n): namespace(n) for n in groups}
    return {**FACTS, "namespaces": {**namespaces, **({"8": namespace(7)} if 7 in groups else {})}, **more}


def test_only_gateways_with_all_namespaces_of_a_group_have_it():
    some = facts_of(1)
    some["namespaces"]["7"] = namespace(7)
    gateways = {"a": state.Gateway("a", 1, 1, facts_of(1, 7)), "b": state.Gateway("b", 1, 1, some), "c": state.Gateway("c", 1, 1, facts_of(2))}
    for owner, expected in (("gone", {"a"}), ("a", {"a"}), ("b", {"b"})):
        s = state.State(gateways, {7: state.Group(owner, 1, 1)}, {7: state.Move("c", 1)})
        check(state.able(s, 7, (7,)).keys() == expected and state.is_free(s, 7) == (owner == "gone"), owner)
        check(state.wanted_by(s, 7, (7,)) in expected and state.to_give(s, owner, (7,)) is None, owner)
    s = state.State(gateways, {7: state.Group("c", 1, 1)}, {})
    check(state.is_free(s, 7) and state.wanted_by(s, 7, (7,)) == "a", "an owner that was started again without the group")
    check(state.wanted_by(s, 9, (9,)) is None and not state.able(s, 9, (9,)), "nobody has it")
    # nobody can serve it now: one that has it tries it again, and none that has it not
    gateways = {**gateways, "a": state.Gateway("a", 1, 1, facts_of(1, 7, waits={"7": "x"}))}
    s = state.State(gateways, {7: state.Group("gone", 1, 1)}, {})
    check(state.wanted_by(s, 7, (7,)) == "a" and not state.able(s, 7, (7,)), "it waits")


def test_a_group_whose_io_does_not_end_stays():
    gateways = {g: state.Gateway(g, 1, 1, facts_of(1, 2)) for g in "ab"}
    s = state.State(gateways, {n: state.Group("a", 1, 1) for n in (1, 2)}, {})
    check(state.to_give(s, "a", (1, 2)) == (2, "b") and state.to_give(s, "a", (1, 2), {2}) == (1, "b"), "the other one goes")
    check(state.to_give(s, "a", (1, 2), {1, 2}) is None, "none goes")
    s = s._replace(moves={1: state.Move("b", 1)})
    check(state.to_give(s, "a", (1, 2)) == (1, "b") and state.to_give(s, "a", (1,), {1}) is None, "nor by command")


def test_groups_are_spread():
    gateways = {g: state.Gateway(g, 1, 1, facts_of(*range(1, 7))) for g in "abc"}
    owners = {n: state.Group("a", 1, 1) for n in range(1, 7)}
    moves = 0
    while True:
        s = state.State(gateways, owners, {})
        gives = [(g, state.to_give(s, g, owners)) for g in gateways]
        gives = [(g, x) for g, x in gives if x is not None]
        if not gives:
            break
        owners = {**owners, gives[0][1][0]: state.Group(gives[0][1][1], 1, 1)}
        moves += 1
        check(moves < 10, owners)
    check(sorted(x.owner for x in owners.values()) == list("aabbcc"), owners)


class Liar(http.server.BaseHTTPRequestHandler):
    answers = []

    def do_POST(self):
        status, data, length = self.answers[0]
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, *_):
        pass


def test_the_program_says_what_etcd_did():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = pathlib.Path(folder) / "c"
        config.write_text(json.dumps({"cluster": "test", "gateway": "a", "nqn": "n", "lease_s": 30,
                                      "etcd": {"endpoints": [f"http://127.0.0.1:{server.server_port}"]}}))
        for answer, word in (((200, b"nonsense", None), "object"), ((500, b"", None), "HTTP 500"), ((200, b'{"kvs"', 500), ""),
                             ((200, b" " * (etcd.ANSWER_MAX + 2), None), "longer"), ((200, json.dumps({"kvs": [kv("x/y", "")]}).encode(), None), "not one")):
            Liar.answers = [answer]
            p = subprocess.run([sys.executable, TOP / "tools/cluster/varve-cluster", "-c", config, "status"], capture_output=True, text=True, timeout=DEADLINE,
                               check=False)
            check(p.returncode == 1 and word in p.stderr and p.stderr.count("\n") == 1 and not p.stdout, p.stderr)
        server.shutdown()


def test_a_configuration_that_cannot_be_used_is_named():
    with tempfile.TemporaryDirectory() as folder:
        config, text = pathlib.Path(folder) / "c", pathlib.Path(folder) / "no.pem"
        text.write_text("no certificate")
        for etcd_of, words in (({"endpoints": ["http://127.0.0.1:x"]}, ["etcd.endpoints"]), ({"endpoints": ["http://127.0.0.1:70000"]}, ["etcd.endpoints"]),
                               ({"endpoints": ["http://[::1"]}, ["etcd.endpoints"]), ({"endpoints": ["http://:2379"]}, ["etcd.endpoints"]),
                               ({"ca": "/none/ca.pem"}, ["etcd.ca", "/none/ca.pem", "No such file"]), ({"cert": "/none/c.pem"}, ["etcd.cert", "/none/c.pem"]),
                               ({"cert": str(text), "key": "/none/key"}, ["etcd.key", "/none/key"]), ({"key": "a\0"}, ["etcd.key"]),
                               ({"ca": str(text)}, ["etcd.ca", str(text)]), ({"cert": str(text)}, ["etcd.cert", str(text)])):
            for word in ("status", "serve"):
                config.write_text(json.dumps({"cluster": "test", "gateway": "a", "nqn": "n", "etcd": {"endpoints": ["https://127.0.0.1:1"], **etcd_of}}))
                p = subprocess.run([sys.executable, TOP / "tools/cluster/varve-cluster", "-c", config, word], capture_output=True, text=True, timeout=DEADLINE, check=False)
                check(p.returncode == 1 and all(x in p.stderr for x in words) and p.stderr.count("\n") == 1 and not p.stdout, p.stderr)


def kept(answers):
    """What keep_alive() makes of these answers, one after the other."""
    one, left = etcd.Etcd({"endpoints": ["http://x"]}, 1), list(answers)
    one.call = lambda _path, _request: left.pop(0)
    try:
        return one.keep_alive(7), left
    except etcd.EtcdError as e:
        return f"{type(e).__name__}: {e}", left


def keep(term, ttl="8"):
    return {"result": {"header": {"raft_term": term}, "ID": "7", "TTL": ttl}}


def read(term):
    return {"header": {"raft_term": term}}


def test_a_lease_is_prolonged_by_the_present_leader_only():
    """By another one, it may end earlier than the answer says."""
    check(kept([keep("2"), read("2")]) == (8, []), "the present one")
    for terms in (("2", "3"), ("3", "2")):
        said = kept([keep(terms[0]), read(terms[1])])[0]
        check(said.startswith("OtherLeader") and all(f"term {t}" in said for t in terms), said)
    check(kept([keep("2", "0")]) == (0, []), "the lease has ended, whoever says so")
    for answers in ([keep(None), read("2")], [{"result": {"ID": "7", "TTL": "8"}}, read("2")], [keep("2"), {}], [keep("2"), read("x")], [keep("2"), {"header": []}]):
        check("raft_term" in str(kept(answers)[0]), f"{answers}: {kept(answers)}")
    check("another request" in kept([{"result": {"ID": "8"}}])[0], "another lease")


def test_a_lease_counts_from_the_request_that_has_prolonged_it():
    """What was asked of an earlier leader has prolonged nothing."""
    lease = agent.Lease({"lease_s": 8, "etcd": {"endpoints": ["http://x"]}, "rpc_socket": "/none", "nqn": "n"})
    now, said = [10**9], []

    def call(_path, _request):
        now[0] += 10**6
        return left.pop(0)
    lease.id, lease.etcd.call, lease.tell = 7, call, said.append
    usual, agent.boottime_us = agent.boottime_us, lambda: now[0]
    try:
        left = [keep("2"), read("3"), keep("3"), read("3")]
        lease.keep()
        check(lease.until_us == 10**9 + 2 * 10**6 + 6 * 10**6 and not left, lease.until_us)
        left = [keep("3"), read("4"), keep("5"), read("6"), keep("6"), read("6")]
        lease.stop.wait = lambda _: lease.stop.set()
        lease.run()
        check(len(said) == 1 and "term 5" in said[0] and "cannot be reached" not in said[0] and len(left) == 2, f"it is tried twice: {said}")
    finally:
        agent.boottime_us = usual


class Watched(http.server.BaseHTTPRequestHandler):
    """A watch whose lines are given, and which then stays open or ends."""
    protocol_version = "HTTP/1.1"
    status, lines, stays, over, fields = 200, [], False, threading.Event(), {}

    def do_POST(self):
        Watched.fields = dict(self.headers)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in self.lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        if self.status != 200:
            self.wfile.write(b"0\r\n\r\n")
        if self.stays:
            self.over.wait(DEADLINE)
        self.close_connection = True

    def log_message(self, *_):
        pass


def watch_all(server, idle_s):
    """How often the watch tells something, and why it ends; None: nothing came for so long."""
    one = etcd.Etcd({"endpoints": [f"http://127.0.0.1:{server.server_port}", "http://127.0.0.1:1", "http://127.0.0.1:x"]}, 3 * DEADLINE)
    times = 0
    try:
        for _ in one.watch(PREFIX, idle_s):
            times += 1
    except etcd.EtcdError as e:
        check(one.endpoints[0].netloc == "127.0.0.1:1" if times else all(x in str(e) for x in ("127.0.0.1:1: ", "127.0.0.1:x: ")), "others are asked, or will be")
        return times, str(e)
    check(one.endpoints[0].netloc == "127.0.0.1:1", "it may be cut off from the others, which says nothing: the next one is asked of another member")
    return times, None


def test_a_watch_ends_in_each_way():
    good = b'{"result": {"created": true}}\n'
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Watched) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for status, lines, times, word in ((200, [good, good, b'{"result": {"canceled": true}}\n'], 2, "canceled"), (200, [good], 1, ""), (200, [], 0, ""),
                                           (200, [good, b"nonsense\n"], 1, "object"), (200, [good[:9], good[9:], b"[]\n"], 1, "object"),
                                           (404, [b"Not Found"], 0, "HTTP 404"), (200, [b" " * (etcd.ANSWER_MAX + 2)], 0, "object")):
            Watched.status, Watched.lines = status, lines
            found = watch_all(server, DEADLINE)
            check(found[0] == times and found[1] is not None and word in found[1], f"{found}, expected {times}, {word}")
        Watched.status, Watched.lines, Watched.stays = 200, [good], True
        check(watch_all(server, 0.2) == (1, None), "nothing comes")
        check(Watched.fields["Grpc-Metadata-hasleader"] == "true", "a member without a leader ends it")
        # members that do not answer are passed over, without a word
        one = etcd.Etcd({"endpoints": ["http://127.0.0.1:x", "http://127.0.0.1:1", f"http://127.0.0.1:{server.server_port}"]}, 3 * DEADLINE)
        check(next(one.watch(PREFIX, DEADLINE)) is None, "it has begun")
        Watched.over.set()
        server.shutdown()


if __name__ == "__main__":
    main(sys.modules[__name__])
