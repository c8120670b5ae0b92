#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 180
# sanitize
# beside
"""What the RPC server does with clients of all kinds."""
import json
import os
import pathlib
import random
import resource
import signal
import socket
import stat
import sys

from appliance_lib import Client, Daemon, check, main, readable, wait_for


def request(method, id_=1, **params):
    return json.dumps({"jsonrpc": "2.0", "method": method, "id": id_, **({"params": params} if params else {})}).encode()


def test_a_pretty_printed_request_in_single_bytes_is_answered():
    with Daemon() as d:
        c = d.client()
        text = json.dumps({"jsonrpc": "2.0", "method": "spdk_get_version", "id": "ä}{\"]["}, indent=4, ensure_ascii=False)
        for b in text.encode():
            c.send(bytes([b]))
        answer = c.receive()
        check(answer["id"] == "ä}{\"][" and "version" in answer["result"], answer)


def test_ids_are_echoed_byte_for_byte():
    with Daemon() as d:
        for raw in ["1.50", "18446744073709551616", "-0", "1E5", "null", '"\\u0041\\n"', "1e400"]:
            c = d.client()
            c.send(b'{"method":"log_get_level","id":' + raw.encode() + b"}")
            text = c.sock.recv(4096).decode()
            check(f'"id":{raw},' in text, f"{raw} came back as {text}")


def test_a_thousand_pipelined_requests_are_all_answered():
    with Daemon() as d:
        c = d.client()
        c.send(b"".join(request("log_get_level", i) for i in range(1000)))
        check(sorted(c.receive()["id"] for _ in range(1000)) == list(range(1000)), "an answer is missing or double")
        check(not readable(c.sock), "there is more than was asked for")


def test_a_batch_is_answered_by_one_array():
    with Daemon() as d:
        c = d.client()
        c.send([{"method": "log_get_level", "id": 1}, {"method": "log_get_level"}, 5, {"method": "nosuch", "id": "x"}])
        answers = c.receive()
        check(isinstance(answers, list) and len(answers) == 3, answers)
        by_id = {a["id"]: a for a in answers}
        check("result" in by_id[1] and by_id[None]["error"]["code"] == -32600 and by_id["x"]["error"]["code"] == -32601, answers)


def test_notifications_are_done_and_not_answered():
    with Daemon() as d:
        c = d.client()
        c.send({"method": "log_set_level", "params": {"level": "INFO"}})
        c.send([{"method": "log_enable_timestamps", "params": {"enabled": True}}])
        check(c.call("log_get_level") == "INFO", "the notification was not done")


def test_a_deferred_answer_does_not_hold_up_those_behind_it():
    with Daemon("--wait-for-rpc", ready=False) as d:
        c = wait_for(d.connect, "the RPC socket")
        c.send(request("framework_wait_init", "late"))
        c.send(request("log_get_level", "early"))
        check(c.receive()["id"] == "early", "the second request was not answered first")
        calls = c.call("rpc_get_calls")
        check([x["method"] for x in calls] == ["framework_wait_init"] and calls[0]["age_us"] > 0, calls)
        other = d.client()
        check(other.call("framework_start_init") is True, "start_init")
        check(c.receive() == {"jsonrpc": "2.0", "id": "late", "result": True}, "the deferred answer")


def test_what_cannot_be_understood_is_answered_and_ends_the_connection():
    with Daemon() as d:
        for junk, code in [(b"hello", -32700), (b"[" * 100, -32700), (b'{"a":"' + b"x" * (5 << 20), -32600)]:
            c = d.client()
            try:
                c.send(junk)
            except (BrokenPipeError, ConnectionResetError):
                pass
            answer = c.receive()
            check(answer["error"]["code"] == code and answer["id"] is None, answer)
            check(c.receive() is None, "the connection is still open")


def test_junk_does_not_lose_the_answer_to_a_call_before_it():
    with Daemon("--wait-for-rpc", ready=False) as d:
        c = wait_for(d.connect, "the RPC socket")
        c.send(request("framework_wait_init", "late") + b"}")
        check(c.receive()["error"]["code"] == -32700, "the junk")
        check(d.client().call("framework_start_init") is True, "start_init")
        check(c.receive() == {"jsonrpc": "2.0", "id": "late", "result": True}, "the deferred answer")
        check(c.receive() is None, "the connection is still open")


def test_a_message_that_is_no_json_is_answered_and_the_next_one_is_served():
    with Daemon() as d:
        c = d.client()
        c.send(b'{"id": tru}' + request("log_get_level", 2))
        check(c.receive()["error"]["code"] == -32700, "the parse error")
        check(c.receive()["id"] == 2, "the next request")


def test_a_stream_that_ends_inside_a_message_is_answered():
    with Daemon() as d:
        c = d.client()
        c.send(request("log_get_level") + b'{"method"')
        c.sock.shutdown(socket.SHUT_WR)
        check(c.receive()["result"], "the whole request")
        check(c.receive()["error"]["code"] == -32700, "the cut one")
        check(c.receive() is None, "the connection is still open")


def test_requests_before_a_half_close_are_all_answered():
    with Daemon() as d:
        c = d.client()
        c.send(b"".join(request("rpc_describe_methods", i) for i in range(50)))
        c.sock.shutdown(socket.SHUT_WR)
        check([c.receive()["id"] for _ in range(50)] == list(range(50)), "answers")
        check(c.receive() is None, "the connection is still open")


def test_a_client_that_reads_nothing_holds_up_nobody():
    with Daemon() as d:
        slow, sent = d.client(), 0
        slow.sock.setblocking(False)
        big = b"".join(request("rpc_describe_methods", i) for i in range(100))
        try:
            while sent < 64 << 20:
                sent += slow.sock.send(big)
        except BlockingIOError:
            pass
        check(0 < sent < 64 << 20, "the daemon read without bound from a client that takes no answers")
        check(d.call("log_get_level"), "another client is not served")
        rss = int(open(f"/proc/{d.pid}/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
        check(os.environ.get("VARVE_SANITIZED") or rss < 200 << 20, f"{rss} bytes of memory")
        slow.sock.setblocking(True)
        first = slow.receive()
        check(first["id"] == 0, "the slow client is served when it reads again")


def test_a_client_that_goes_away_does_no_harm():
    with Daemon("--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        for data in (request("framework_wait_init"), request("rpc_describe_methods") * 200, b'{"method":'):
            c = d.client()
            c.send(data)
            c.close()
        check(d.call("framework_start_init") is True, "the daemon goes on")
        check(d.stop() == 0, d.log())


def test_clients_that_come_cut_and_go_at_random_do_no_harm():
    random.seed(1)
    stream = b"".join([request("rpc_describe_methods"), b'[{"method":"log_get_level","id":1},7]', request("nosuch"),
                       request("framework_wait_init", "x"), b'{"id":1e400,"method":"log_get_flags"} [] {} \n'] * 5)
    with Daemon() as d:
        clients = []
        for _ in range(2000):
            if clients and (len(clients) == 60 or random.random() < 0.2):
                clients.pop(random.randrange(len(clients)))[0].close()
                continue
            if not clients or random.random() < 0.3:
                clients.append([d.client(), 0])
                clients[-1][0].sock.setblocking(False)
            c = random.choice(clients)
            n = random.randrange(1, 200)
            try:
                c[1] = (c[1] + c[0].sock.send((stream + stream)[c[1]:c[1] + n])) % len(stream)
                if random.random() < 0.5:
                    c[0].sock.recv(random.randrange(1, 4096))
            except BlockingIOError:
                pass
        for c, _ in clients:
            c.close()
        wait_for(lambda: d.connect().call("rpc_get_calls") == [], "all calls to end")
        check(d.stop() == 0, d.log())


def test_a_daemon_out_of_descriptors_serves_again_when_it_has_some():
    with Daemon() as d:
        served = d.client()
        served.call("log_get_level")
        limits = resource.prlimit(d.pid, resource.RLIMIT_NOFILE)
        used = max(int(f) for f in os.listdir(f"/proc/{d.pid}/fd")) + 1
        resource.prlimit(d.pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        waiting = d.client()
        wait_for(lambda: "cannot accept" in d.log(), "the complaint in the log")
        check(served.call("log_get_level"), "those that are connected are served")
        resource.prlimit(d.pid, resource.RLIMIT_NOFILE, limits)
        check(waiting.call("log_get_level"), "the one that waited is served")


def test_more_clients_than_allowed_are_told_so():
    with Daemon() as d:
        clients = [d.client() for _ in range(64)]
        check(all(c.call("log_get_level") for c in clients), "64 clients are served")
        refused = d.client()
        check("64" in refused.receive()["error"]["message"], "the reason")
        check(refused.receive() is None, "the connection is still open")
        clients.pop().close()

        def served():
            c = d.client()
            c.send(request("log_get_level"))
            try:
                return "result" in (c.receive() or {})
            except OSError:
                return False
            finally:
                c.close()
        wait_for(served, "room after a client left")


def test_the_list_of_memory_goes_through_no_link():
    with Daemon() as d:
        listed, victim = pathlib.Path(f"/tmp/varve_mem_dump.pid{d.pid}.txt"), d.folder / "victim"
        victim.write_text("precious")
        listed.symlink_to(victim)
        try:
            check(d.call("env_dpdk_get_mem_stats")["filename"] == str(listed), "another file")
            check(victim.read_text() == "precious" and not listed.is_symlink(), "it went through the link")
            check(stat.S_IMODE(listed.stat().st_mode) == 0o600, oct(listed.stat().st_mode))
        finally:
            listed.unlink()


def test_the_socket_has_the_mode_asked_for():
    with Daemon() as d:
        check(stat.S_IMODE(os.stat(d.path).st_mode) == 0o600, "the default mode is 0600")
    with Daemon("--rpc-mode", "0666") as d:
        check(stat.S_IMODE(os.stat(d.path).st_mode) == 0o666, "0666")


def test_a_socket_in_use_is_an_error_and_stays():
    with Daemon() as first:
        with Daemon(path=first.path, ready=False) as second:
            check(second.wait_exit() == 1, "the second instance must fail")
            check("in use" in second.log() and str(first.pid) in second.log(), second.log())
            check(first.call("log_get_level"), "the first one is still served")
            second.path = second.folder / "none"  # the socket is the first one's to remove


def test_the_socket_of_a_killed_daemon_is_replaced():
    with Daemon() as first:
        first.stop(signal.SIGKILL)
        check(os.path.exists(first.path), "a killed daemon leaves its socket")
        with Daemon(path=first.path) as second:
            check(second.call("log_get_level"), "the new one is served")
            check(second.stop() == 0, second.log())
            check(not os.path.exists(second.path), "a clean stop removes the socket")


def test_errors_name_the_parameter_and_what_is_allowed():
    with Daemon() as d:
        c = d.client()
        for text, words in [
                ({"method": "log_set_level", "params": {"level": "LOUD"}}, ["level", "LOUD", "WARNING"]),
                ({"method": "log_set_level", "params": {}}, ["level", "missing"]),
                ({"method": "log_set_level", "params": {"levle": 1, "level": "INFO"}}, ["levle", "level"]),
                ({"method": "log_set_level", "params": [1]}, ["by name"])]:
            c.send({**text, "id": 1})
            error = c.receive()["error"]
            check(error["code"] == -32602 and all(w in error["message"] for w in words), error)


def test_start_up_methods_and_run_time_methods_are_told_apart():
    with Daemon("--wait-for-rpc", ready=False) as d:
        c = wait_for(d.connect, "the RPC socket")
        everything, now = set(c.call("rpc_get_methods")), set(c.call("rpc_get_methods", current=True))
        check("framework_start_init" in now and "framework_get_config" in everything - now, "before the start")
        c.send(request("framework_get_config", name="bdev"))
        check(c.receive()["error"]["code"] == -1, "refused before the start")
        c.call("framework_start_init")
        now = set(c.call("rpc_get_methods", current=True))
        check("framework_get_config" in now and "framework_start_init" not in now, "after the start")


if __name__ == "__main__":
    main(sys.modules[__name__])
