#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# apart
"""varve-gateway: who may call what by HTTP, and what clients of drivers see."""
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import warnings

from appliance_lib import DEADLINE, TOP, Daemon, RpcError, Skip, check, main, wait_for
from gateway_lib import PASSWORDS, Gateway, UnixConnection, add_user, basic, run_gateway
from nvmf_lib import ADDRESS, PORT, preload
from stock_calls import play_driver_of_volumes

# Methods that operators may not call, each with a reason in tools/gateway/roles.c.
ADMIN = {"spdk_kill_instance", "framework_hand_over", "keyring_file_add_key", "keyring_file_remove_key", "keyring_get_keys", "bdev_nvme_set_keys", "nvmf_subsystem_set_keys",
         "bdev_nvme_send_cmd", "bdev_aio_create", "bdev_uring_create", "env_dpdk_get_mem_stats", "trace_set_blackbox", "nvmf_subsystem_add_peer",
         "metrics_start"}
CHANGES = re.compile(r"(^|_)(set|create|delete|add|remove|start|stop|enable|disable|clear|reset|kill|attach|detach|inject|resume|update|resize|rescan|send|allow|"
                     r"examine|load|save|grow|rename|suspend)(_|$)")


def version(id_=1):
    return {"jsonrpc": "2.0", "id": id_, "method": "spdk_get_version"}


def test_answers_are_those_of_the_daemon():
    with Daemon() as d, Gateway(d) as g:
        check("varve" in g.call("reader", "spdk_get_version")["version"], "a result")
        status, answer = g.post({"id": 1, "method": "bdev_get_bdevs", "params": {"name": "none"}}, "reader")
        check(status == 200 and answer["error"]["code"] == -19, f"an error of the daemon: {status} {answer}")
        status, answer = g.post([version(1), version("x")], "reader")
        check(status == 200 and sorted(str(a["id"]) for a in answer) == ["1", "x"], f"a batch: {answer}")
        check(g.post({"method": "log_set_level", "params": {"level": "INFO"}}, "operator") == (204, None), "a notification")
        check(g.call("reader", "log_get_level") == "INFO", "the notification was not carried out")
        check(g.post(b' {"id":1.50, "method":"log_get_level"} \n', "reader")[0] == 200, "blanks")
        check(b'"id":18446744073709551616,' in g.request("POST", "/x/y", b'{"id":18446744073709551616,"method":"log_get_level"}', basic("reader"))[2],
              "an id is not echoed as it was, or a path is refused")


def test_without_a_user_nothing_is_told():
    with Daemon() as d, Gateway(d) as g:
        for headers in ({}, {"Authorization": "Basic"}, {"Authorization": "Bearer x"}, basic("reader", "wrong"), basic("nobody", "wrong"), basic("boss", "")):
            status, reply, text = g.request("POST", "/", json.dumps(version()), headers)
            check(status == 401 and reply["WWW-Authenticate"].startswith("Basic realm="), f"{headers}: {status} {reply}")
            check(b"varve v" not in text, text)
        for verb, url in (("GET", "/"), ("GET", "/openapi.json"), ("PUT", "/"), ("GET", "/none")):
            check(g.request(verb, url)[0] == 401, f"{verb} {url}")
        check(g.request("GET", "/none", headers=basic("reader"))[0] == 404, "a page that is not there")
        check(g.request("PUT", "/", b"x", basic("reader"))[0] == 405, "PUT")
        check(json.loads(g.request("GET", "/healthz")[2]) == {"daemon_answers": True}, "health")
        log = g.log()
        check("user reader, method unknown: 401" in log and "127.0.0.1:" in log and "wrong" not in log.replace("a wrong password", ""), log)


def test_each_method_needs_its_role():
    with Daemon() as d, Gateway(d, "--rate", "0") as g:
        allowed = {name: set() for name in PASSWORDS}
        methods = d.call("rpc_describe_methods")
        names = {m["name"] for m in methods} | {m["alias"] for m in methods if "alias" in m}
        check(len(names) > 100, names)
        for method in sorted(names):
            for user in ("reader", "operator") if method in ADMIN else ("reader", "operator", "boss"):
                # Not carried out in any case: no method has such a parameter.
                status, answer = g.post({"id": 1, "method": method, "params": {"no such parameter": 1}}, user)
                check(status in (200, 403) and "error" in answer, f"{method} of {user}: {status} {answer}")
                if status == 200:
                    allowed[user].add(method)
        check(names - allowed["operator"] == ADMIN & names, f"not for operators: {sorted(names - allowed['operator'] ^ ADMIN & names)}")
        check(ADMIN <= names | {"bdev_uring_create"}, f"not there: {ADMIN - names}")
        check(allowed["boss"] == names - ADMIN, "the admin")
        changing = {m for m in allowed["reader"] if CHANGES.search(m) and "_get_" not in m} - {"bdev_wait_for_examine"}
        check(not changing, f"readers may call {changing}")
        for method in ("bdev_get_bdevs", "get_bdevs", "nvmf_get_subsystems", "rpc_get_methods", "framework_get_config"):
            check(method in allowed["reader"], f"readers may not call {method}")
        check(len(allowed["reader"]) < len(allowed["operator"]) < len(names), "roles are alike")


def test_pages_of_other_sites_can_do_nothing():
    """A browser that knows the credentials sends them with what a page of another site makes it send."""
    def level(value):
        return {"id": 1, "method": "log_set_level", "params": {"level": value}}
    with Daemon() as d, Gateway(d) as g:
        d.call("log_set_level", level="WARNING")
        for fields in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site", "Origin": "https://other.example"},
                       {"Sec-Fetch-Site": ""}, {"Origin": "https://other.example"}, {"Origin": "null"}):
            status, answer = g.post(level("INFO"), "boss", **fields)
            check(status == 403 and "another site" in answer["error"]["message"], f"{fields}: {status} {answer}")
            check(g.request("GET", "/openapi.json", headers={**basic("boss"), **fields})[0] == 403, f"GET with {fields}")
            check(d.call("log_get_level") == "WARNING", f"{fields}: it was carried out")
        check(g.request("GET", "/healthz", headers={"Sec-Fetch-Site": "cross-site"})[0] == 200, "what is open to all")
        for number, fields in enumerate(({"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin", "Origin": f"http://127.0.0.1:{g.port}"})):
            check(g.post(level(("ERROR", "INFO")[number]), "operator", **fields)[0] == 200, f"{fields}")
            check(d.call("log_get_level") == ("ERROR", "INFO")[number], f"{fields}: it was not carried out")


def own_address():
    """Of this machine, for others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("198.51.100.1", 9))     # nothing is sent
        except OSError:
            raise Skip("needs an IPv4 address beside loopback") from None
        return s.getsockname()[0]


def test_roles_hold_by_tls_beyond_loopback():
    address = own_address()
    with tempfile.TemporaryDirectory() as folder, Daemon() as d:
        with Gateway(d, tls=certificate(pathlib.Path(folder), "far", address), address=address) as g:
            for method, allowed in (("log_get_level", ("reader", "operator", "boss")), ("bdev_wait_for_examine", ("reader", "operator", "boss")),
                                    ("bdev_malloc_delete", ("operator", "boss")), ("keyring_get_keys", ("boss",))):
                for user in PASSWORDS:
                    status, answer = g.post({"id": 1, "method": method}, user)
                    check(status == (200 if user in allowed else 403) and (status == 200 or user in g.log()), f"{method} of {user}: {status} {answer}")
                check(g.post({"id": 1, "method": method})[0] == 401, f"{method} of nobody")
                check(g.post({"id": 1, "method": method}, "boss", "wrong")[0] == 401, f"{method} with a wrong password")
            described = {user: g.request("GET", "/openapi.json", headers=basic(user))[2] for user in PASSWORDS}
            for method, users in ((b'"bdev_malloc_delete"', ("operator", "boss")), (b'"keyring_get_keys"', ("boss",))):
                check(tuple(user for user in PASSWORDS if method in described[user]) == users, f"{method} is described to others")
            with g.raw() as plain:
                plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                check(b"daemon_answers" not in plain.recv(4096), "HTTP without TLS is answered")
            g.stop()


def test_no_batch_or_key_gets_past_the_role():
    with Daemon() as d, Gateway(d) as g:
        kill = '"method":"spdk_kill_instance","params":{"sig_name":"SIGTERM"}'
        for body, expected in ((f'[{{"id":1,"method":"log_get_level"}},{{"id":2,{kill}}}]', 403),
                               (f'{{"id":1,"method":"log_get_level",{kill}}}', 400),
                               (f'{{"id":1,{kill},"method":"log_get_level"}}', 400),
                               (f'{{"id":1,"method":"log_get_level"}}{{"id":2,{kill}}}', 400),
                               (f'{{"id":1,"method":"log_get_level"}}\n[{{"id":2,{kill}}}]', 400),
                               (f'{{"id":1,"method":"log_get_level"}}\0{{"id":2,{kill}}}', 400),
                               ('{"id":1,"\\u006dethod":"spdk\\u005fkill_instance","params":{"sig_name":"SIGTERM"}}', 403),
                               (f'[[{{"id":2,{kill}}}]]', 400), ("[]", 400), ("", 400), ("5", 400), ('{"id":1}', 400), ("[" * 100, 400)):
            status, answer = g.post(body.encode(), "operator")
            check(status == expected and answer["error"]["message"], f"{body}: {status} {answer}")
        check(g.post(b'{"id":1,"method":"log_get_\xff"}', "operator")[0] == 400, "invalid UTF-8")
        check(d.process.poll() is None and d.call("log_get_level"), "the daemon was ended")
        check(g.post({"id": 1, "method": "spdk_kill_instance", "params": {"sig_name": "SIGTERM"}}, "boss")[0] == 200, "the admin may not end it")
        check(d.wait_exit() == 0, "the daemon")


def test_a_daemon_that_goes_and_comes_back():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sock"
        with Gateway(path) as g:
            status, answer = g.post(version(), "reader")
            check(status == 503 and str(path) in answer["error"]["message"], f"{status} {answer}")
            check(g.request("GET", "/healthz")[0] == 503, "health without a daemon")
            check(g.request("GET", "/openapi.json", headers=basic("reader"))[0] == 503, "openapi without a daemon")
            with Daemon(path=path):
                check(g.post(version(), "reader")[0] == 200, "with the daemon")
                wait_for(lambda: g.request("GET", "/healthz")[0] == 200, "health with a daemon")
            check(g.post(version(), "reader")[0] == 503, "the daemon was killed")


def test_a_daemon_that_does_not_answer_or_hangs_up():
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = pathlib.Path(folder) / "sock"
        listener.bind(str(path))
        listener.listen(8)
        with Gateway(path, "--call-timeout", "1", "--max-calls", "1") as g:
            status, answer = g.post(version(), "reader")
            check(status == 504 and "may still be carried out" in answer["error"]["message"], f"{status} {answer}")
            waits = g.connect()
            listener.accept()[0].close()
            waits.request("POST", "/", json.dumps(version()), basic("reader"))
            taken = listener.accept()[0]
            check(json.loads(taken.recv(4096)) == version(), "what the daemon gets")
            check(g.post(version(), "reader")[0] == 429, "more calls than are allowed at once")
            taken.close()
            r = waits.getresponse()
            check(r.status == 502, f"a daemon that hung up: {r.status}")
            waits.close()


def test_the_description_is_that_of_the_methods():
    with Daemon() as d, Gateway(d) as g:
        methods = {m["name"]: m for m in d.call("rpc_describe_methods")}
        documents = {name: json.loads(g.request("GET", "/openapi.json", headers=basic(name))[2]) for name in PASSWORDS}
        schemas = documents["boss"]["components"]["schemas"]
        check(set(schemas) == set(methods) | {"call"}, set(schemas) ^ set(methods))
        check(documents["boss"]["openapi"].startswith("3.0"), documents["boss"]["openapi"])
        check([c["$ref"].rsplit("/", 1)[1] for c in schemas["call"]["oneOf"]] == list(methods), "the choice")
        for name, m in methods.items():
            params = schemas[name]["properties"]["params"]
            check(list(params["properties"]) == [p["name"] for p in m["params"]], name)
            check(params.get("required", []) == [p["name"] for p in m["params"] if p.get("required")], name)
            check(("params" in schemas[name]["required"]) == ("required" in params), name)
            check(all("type" in p for p in params["properties"].values()), f"{name}: a parameter without a type: {params}")
        check("spdk_kill_instance" not in documents["operator"]["components"]["schemas"], "an operator's")
        check("bdev_malloc_create" not in documents["reader"]["components"]["schemas"], "a reader's")


def test_drivers_calls_work_in_their_order():
    calls = json.loads((TOP / "systest/gateway_calls.json").read_text())
    with Daemon("-s", "512", env=preload()) as d, Gateway(d) as g:
        for driver in [name for name in calls if name != "about"]:
            for entry in calls[driver]:
                text = json.dumps(entry.get("params", {})).replace('"NQN"', '"nqn.2026-11.io.varve:driver"')
                params = json.loads(text.replace('"ADDRESS"', f'"{ADDRESS}"').replace('"PORT"', f'"{PORT}"'))
                result = g.call("operator", entry["method"], **params)
                check("result" not in entry or result == entry["result"], f"{driver}: {entry}: {result}")
                first = result[-1] if isinstance(result, list) else result
                check(all(k in first for k in entry.get("keys", [])), f"{driver}: {entry}: {result}")


class Operator:
    """Calls by HTTP, as a test of the socket makes them."""

    def __init__(self, gateway):
        self.gateway = gateway

    def call(self, method, **params):
        status, answer = self.gateway.post({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}, "operator")
        check(status == 200, f"{method}: {status} {answer}")
        if "error" in answer:
            raise RpcError(answer["error"])
        return answer["result"]


def test_drivers_of_volumes_work_in_their_order():
    for client in ("CSI driver", "Cinder"):
        with Daemon("-s", "512", env=preload()) as d, Gateway(d) as g:
            play_driver_of_volumes(d, client, Operator(g))


def run_openssl(*args):
    p = subprocess.run(["openssl", *args], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stderr)


def request_of(folder, name, *more):
    """The arguments of a new key and of a request for it."""
    return ("req", *more, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}", "-keyout", folder / f"{name}.key")


def certificate(folder, name, address="127.0.0.1"):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    run_openssl(*request_of(folder, name, "-x509"), "-days", "1", "-addext", f"subjectAltName=IP:{address}", "-out", cert)
    key.chmod(0o600)
    return cert, key


def dated_certificate(folder, name, first, last):
    """As certificate(), valid from one year to another."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    run_openssl(*request_of(folder, name, "-new"), "-out", folder / "request")
    (folder / "index").write_text("")
    (folder / "ca.cnf").write_text(f"[ca]\ndefault_ca=a\n[a]\ndatabase={folder}/index\nnew_certs_dir={folder}\ndefault_md=sha256\npolicy=p\nrand_serial=yes\n"
                                   f"[p]\ncommonName=supplied\n")
    run_openssl("ca", "-batch", "-notext", "-selfsign", "-config", folder / "ca.cnf", "-keyfile", key, "-in", folder / "request", "-out", cert,
                "-startdate", f"{first}0101000000Z", "-enddate", f"{last}0101000000Z")
    key.chmod(0o600)
    return cert, key


def name_of_peer(g, trusted=None):
    context = ssl.create_default_context(cafile=trusted or g.tls[0])
    with context.wrap_socket(g.raw(), server_hostname="127.0.0.1") as s:
        return dict(x[0] for x in s.getpeercert()["subject"])["commonName"], s.version()


def test_tls():
    with tempfile.TemporaryDirectory() as folder, Daemon() as d:
        folder = pathlib.Path(folder)
        cert, key = certificate(folder, "first")
        other = certificate(folder, "second")
        with Gateway(d, tls=(cert, key)) as g:
            check(g.call("reader", "log_get_level"), "by TLS")
            check(name_of_peer(g) == ("first", "TLSv1.3"), "the certificate")
            try:
                ssl.create_default_context(cafile=other[0]).wrap_socket(g.raw(), server_hostname="127.0.0.1")
                check(False, "another certificate is taken for its own")
            except ssl.SSLCertVerificationError:
                pass
            with g.raw() as plain:
                plain.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
                check(b"HTTP/1.1 200" not in plain.recv(4096), "HTTP without TLS is answered")
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.load_verify_locations(cert)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                old.minimum_version, old.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, ssl.TLSVersion.TLSv1_1
            try:
                old.wrap_socket(g.raw(), server_hostname="127.0.0.1")
                check(False, "TLS 1.1 is spoken")
            except (ssl.SSLError, OSError):
                pass
            kept = g.connect()
            kept.request("POST", "/", json.dumps(version()), basic("reader"))
            check(kept.getresponse().read(), "before the other certificate")
            for there, new in ((cert, other[0]), (key, other[1])):
                there.write_bytes(new.read_bytes())
            g.hangup()
            g.wait_log("Loaded again")
            check(name_of_peer(g)[0] == "second", "it is not in use")
            kept.request("POST", "/", json.dumps(version()), basic("reader"))
            check(kept.getresponse().status == 200, "a connection that was there before")
            kept.close()
            for there, new in zip((cert, key), dated_certificate(folder, "old", 2001, 2002)):
                there.write_bytes(new.read_bytes())
            g.hangup()
            g.wait_log("the certificate has expired")
            check(name_of_peer(g, other[0])[0] == "second", "one that has expired is in use")
            key.write_text("no key")
            g.hangup()
            g.wait_log("Not all was loaded again", times=2)
            check("The certificate: " in g.log() and name_of_peer(g, other[0])[0] == "second", g.log())
            g.stop()


def test_what_must_not_start_does_not():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        cert, key = certificate(folder, "a")
        other = certificate(folder, "b")
        users = folder / "users"
        add_user(users, "ann", "read", "password of ann")

        def refused(why, *args, status=1):
            got, said = run_gateway("-s", folder / "none", "--users", users, *args)
            check(got == status and why in said, f"{args}: {got} {said}")

        refused("can be reached from other machines", "-l", "0.0.0.0:1")
        refused("can be reached from other machines", "-l", "[::]:18444")
        refused("--listen is missing", status=2)
        refused("varve-gateway: did you mean --max-calls?", "--max-cals=3", status=2)
        for address in ("127.0.0.1", "localhost:80", "127.0.0.1:0", "127.0.0.1:65536", "::1:80", "[::1:80", ":80", "unix:", "unix:" + "x" * 200):
            refused("", "-l", address)
        refused("need each other", "-l", "127.0.0.1:1", "--cert", cert, status=2)
        refused("not a number", "-l", "127.0.0.1:1", "--rate", "many", status=2)
        local = ("-l", f"unix:{folder}/listen")
        refused("a.pem", *local, "--cert", cert, "--key", other[1])
        refused(str(folder / "none"), *local, "--cert", folder / "none", "--key", key)
        for name, first, last, why in (("old", 2001, 2002, "the certificate has expired"), ("new", 2800, 2801, "the certificate is not yet valid")):
            dated = dated_certificate(folder, name, first, last)
            refused(f"{name}.pem: {why}", *local, "--cert", dated[0], "--key", dated[1])
            refused(f"{name}.pem: {why}", "-l", "127.0.0.1:1", "--cert", dated[0], "--key", dated[1])
        key.chmod(0o644)
        refused("must not be readable for all", *local, "--cert", cert, "--key", key)
        key.chmod(0o600)
        users.chmod(0o640)
        refused("only its owner", *local)
        users.chmod(0o600)
        text = users.read_text()
        users.write_text(text + text)
        refused("line 2: this user has a line already", *local)
        users.unlink()
        refused("No such file", *local)
        os.mkfifo(users, 0o600)
        refused("not an ordinary file", *local)


def test_users_are_added_changed_and_loaded_again():
    with Daemon() as d, Gateway(d) as g:
        check((g.users.stat().st_mode & 0o777) == 0o600, "the mode of the file")
        check(not any(p in g.users.read_text() for p in PASSWORDS.values()), "a password is readable")
        for args, text, why in ((("--add-user", "new"), "x" * 8, "needs --role"), (("--add-user", "new", "--role", "root"), "x" * 8, "is not read"),
                                (("--add-user", "a:b", "--role", "read"), "x" * 8, "the name must be"),
                                (("--add-user", "new", "--role", "read"), "short", "8 to 256 bytes"),
                                (("--add-user", "new", "--role", "read"), "x" * 300, "8 to 256 bytes"),
                                (("--add-user", "new", "--role", "read"), "", "no password")):
            status, said = run_gateway("--users", g.users, *args, text=text)
            check(status != 0 and why in said and len(g.users.read_text().splitlines()) == 3, f"{args}: {status} {said}")
        check(g.post(version(), "reader")[0] == 200, "before")
        add_user(g.users, "reader", "read", "another password")
        add_user(g.users, "new", "operate", "password of new")
        check(g.post(version(), "new", "password of new")[0] == 401, "too early")
        g.hangup()
        g.wait_log("Loaded again")
        check(g.post(version(), "reader")[0] == 401, "the old password")
        check(g.post(version(), "reader", "another password")[0] == 200, "the new password")
        check(g.post(version(), "new", "password of new")[0] == 200, "the new user")
        g.users.chmod(0o644)
        g.hangup()
        g.wait_log("Not all was loaded again")
        check(g.post(version(), "new", "password of new")[0] == 200, "those before stay")


def test_a_unix_socket():
    with Daemon() as d, tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "http"
        with Gateway(d, "-l", f"unix:{path}") as g:
            check((path.stat().st_mode & 0o777) == 0o600, oct(path.stat().st_mode))
            for headers, expected in (({}, 401), (basic("reader"), 200)):
                c = UnixConnection(str(path))
                c.request("POST", "/", json.dumps(version()), headers)
                check(c.getresponse().status == expected, f"{expected}")
                c.close()
            g.process.kill()
            g.process.wait()
            check(path.exists(), "a socket is left behind")
            with Gateway(d, "-l", f"unix:{path}") as again:
                again.stop()
            check(not path.exists(), "the socket stays")


def test_connections_are_kept():
    with Daemon() as d, Gateway(d) as g:
        c = g.connect()
        for i in range(20):
            c.request("POST", "/", json.dumps(version(i)), basic("reader"))
            r = c.getresponse()
            check(r.status == 200 and json.loads(r.read())["id"] == i, f"request {i}")
        c.close()
        g.stop()
        check("under way" not in g.log(), g.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
