#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 400
# sanitize
# beside
"""The console's server: what it answers, to whom, and what it costs. What the page makes of it: console_browser.py."""
import errno
import http.client
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

from appliance_lib import BUILD, DEADLINE, Daemon, Skip, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target
from nvmf_tcp_lib import Queue

HOSTILE = 'nqn.2026-11.io.varve:<script>alert(1)</script>"&'
FIGURES = ("iops", "bytes_per_s", "p50_ns", "p99_ns", "depth_milli")


def get(address, path, status=200, headers=None, method="GET"):
    def ask():
        c = http.client.HTTPConnection(address, timeout=DEADLINE)
        c.request(method, path, headers=headers or {})
        r = c.getresponse()
        answer = r, r.read()
        c.close()
        return None if r.status == 503 else answer

    r, body = wait_for(ask, f"an answer other than 503: {path}")      # 503: ask again
    check(r.status == status, (path, r.status, body[:200]))
    return body, r.headers


def api(address, path):
    body, headers = get(address, f"/api/{path}")
    check(headers["Content-Type"] == "application/json", headers)
    return json.loads(body)


def series(address, kind):
    return {s["name"]: s for s in api(address, f"series?kind={kind}")["series"]}


def history(address, kind, name, span="minutes"):
    return api(address, f"history?kind={kind}&name={urllib.parse.quote(name)}&span={span}")


def test_the_page_is_complete_and_strict():
    with Target("--metrics", "127.0.0.1:0", trtype="TCP") as t:
        address = t.call("metrics_get_status")["address"]
        for path, kind in (("/", "text/html"), ("/console.js", "text/javascript"), ("/console.css", "text/css"), ("/console.svg", "image/svg+xml")):
            body, headers = get(address, path)
            check(headers["Content-Type"].startswith(kind) and body, headers)
            policy = headers["Content-Security-Policy"]
            check("default-src 'none'" in policy and "script-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy, policy)
            check(headers["X-Content-Type-Options"] == "nosniff" and headers["Cross-Origin-Resource-Policy"] == "same-origin", headers)
            text = body.decode().replace("http://www.w3.org/2000/svg", "")
            for outside in ("http:", "https:", "//cdn", "innerHTML", "eval(", "onclick=", "style=", "document.write"):
                check(outside not in text, (path, outside))
            check("<script>" not in text, path)
        get(address, "/console.js", 405, method="POST")
        get(address, "/console.html", 404)


def test_pages_of_other_sites_get_nothing():
    """A name of another site may be made to point here (DNS rebinding); the browser then asks for that name."""
    with Target("--metrics", "127.0.0.1:0", trtype="TCP") as t:
        address = t.call("metrics_get_status")["address"]
        port = address.rsplit(":", 1)[1]
        for path in ("/", "/metrics", "/api/state", "/api/topology"):
            for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example"):
                body, _ = get(address, path, 403, {"Host": host})
                check(b"localhost" in body, body)
            for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}"):
                get(address, path, 200, {"Host": host})
        for path, status in (("/", 200), ("/console.js", 200), ("/metrics", 403), ("/metrics?1", 403), ("/api/state", 403)):
            get(address, path, status, {"Sec-Fetch-Site": "cross-site"})
            get(address, path, 200, {"Sec-Fetch-Site": "same-origin"})
        _, headers = get(address, "/api/state", headers={"Origin": "http://evil.example"})
        check(not [h for h in headers if h.lower().startswith("access-control")], headers)


def test_the_host_is_judged_on_a_unix_socket_too():
    """ssh -L makes a TCP port of it, to which a browser connects for any site."""
    with Daemon() as d:
        path = d.folder / "metrics.sock"
        d.call("metrics_start", address=f"unix:{path}")
        for target in ("/", "/metrics", "/api/state"):
            for host, status in (("evil.example", 403), ("localhost:9464", 200)):
                with socket.socket(socket.AF_UNIX) as s:
                    s.settimeout(DEADLINE)
                    s.connect(str(path))
                    s.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                    with s.makefile("rb") as answer:
                        line = answer.readline()
                check(line.startswith(f"HTTP/1.1 {status} ".encode()), (target, host, line))


def test_figures_are_those_of_the_io():
    with Target("--metrics", "127.0.0.1:0", trtype="TCP") as t:
        t.add_malloc("M0")
        t.call("bdev_delay_create", base_bdev_name="M0", name="D0", avg_read_latency=20000, p99_read_latency=20000,
               avg_write_latency=20000, p99_write_latency=20000)
        t.add_ns("D0", nsid=1)
        address = t.call("metrics_get_status")["address"]
        with Host(t, "-w", "randrw", "-t", "3600", "-q", "4", nsid=1) as h:
            path = f"{HOSTNQN} {NQN}"
            names = (("node", ""), ("subsystem", NQN), ("host", HOSTNQN), ("path", path), ("bdev", "D0"))
            wait_for(lambda: not h.is_running() or all((series(address, k).get(n) or {"p99_ns": None})["p99_ns"] for k, n in names), "figures")
            check(h.is_running(), "the host ended")
            for kind, name in names:
                points = history(address, kind, name)
                check(points["step_s"] == 1 and all(len(points[f]) == len(points["iops"]) for f in FIGURES), points)
                iops = max(v for v in points["iops"] if v is not None)
                times = [v for v in points["p50_ns"] if v is not None]
                check(0 < iops <= 4 / 0.02 * 1.5, (kind, points["iops"]))    # four at a time, 20 ms each
                check(max(times) >= 19e6, (kind, times))
            check(history(address, "node", "", "hour")["step_s"] == 10, "the hour")
            by_second = history(address, "node", "", "hour&step=1")
            check(by_second["step_s"] == 1 and by_second["span_s"] == 3600 and max(v for v in by_second["iops"] if v is not None) > 0, by_second)
            check(all(len(by_second[f]) == len(by_second["iops"]) <= 3600 for f in FIGURES), by_second)
            in_bdev = lambda commands: [c for c in commands if c["state"] in ("BDEV", "PREEMPTED")]      # others have none
            commands = wait_for(lambda: next((x for x in [api(address, "inflight")["commands"]] if in_bdev(x)), None), "commands under way")
            check(all(c["host"] == HOSTNQN and c["age_us"] >= 0 for c in commands), commands)
            check(all(c["bdev"] == "D0" for c in in_bdev(commands)), commands)
            ages = [c["age_us"] for c in commands]
            check(ages == sorted(ages, reverse=True), ages)
            h.stop()
        for wrong in ("history", "history?kind=bdev", "history?kind=bdev&name=none", "history?kind=x&name=D0", "series", "series?kind=%00", "x",
                      "history?kind=bdev&name=D0&span=hour&step=1", "history?kind=node&name=&span=day", "history?kind=node&name=&step=2"):
            get(address, f"/api/{wrong}", 404)


def look(address, query=""):
    """What a worker thread found, which is asked for until it has."""
    return wait_for(lambda: next((a for a in [api(address, f"trace?{query}")] if a["state"] not in ("pending", "busy")), None), "a look at the trace")


def shown(answer):
    return [e for e in answer["events"] if e["shown"]]


def test_the_trace_is_shown_as_it_is_recorded():
    with Target("--metrics", "127.0.0.1:0", "-e", "bdev,nvmf_tcp", trtype="TCP") as t:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.add_ns("M0", nsid=1)
        t.add_ns("M1", nsid=2)
        address = t.call("metrics_get_status")["address"]
        groups = {g["name"]: g["on"] for g in look(address)["groups"]}
        check(groups["bdev"] and groups["nvmf_tcp"] and not groups["thread"], groups)
        with Host(t, "-w", "randrw", "-t", "3600", "-q", "4", nsid=1) as h, Host(t, "-w", "randread", "-t", "3600", "-q", "1", nsid=2, hostnqn=HOSTNQN + "2"):
            done = wait_for(lambda: next((a for a in [look(address, "group=bdev&text=m0")] for e in shown(a) if e["tpoint"] == "BDEV_IO_DONE"), None), "an I/O")
            check(h.is_running(), "the host ended")
            check(all(e["owner"] == "M0" and e["tpoint"].startswith("BDEV_IO_") for e in shown(done)), done)
            times = [e["time_us"] for e in done["events"]]
            check(times == sorted(times) and done["matching"] >= len(shown(done)) and len(shown(done)) <= 100 and len(done["events"]) <= 600, done)
            io = [e for e in shown(done) if e["tpoint"] == "BDEV_IO_DONE" and e["family"] is not None][-1]
            life = [e for e in done["events"] if e["family"] == io["family"]]
            names = [e["tpoint"] for e in life]
            check(names.index("BDEV_IO_START") < names.index("BDEV_IO_DONE") < names.index("TCP_REQ_EXECUTED"), names)
            start = life[names.index("BDEV_IO_START")]
            check(start["object"] == io["object"] and start["parent"] in {e["object"] for e in life if e["tpoint"].startswith("TCP_REQ_")}, life)
            check("offset: " in start["args"] and io["since_ns"] > 0 and io["thread"] == "reactor_0", (start, io))
            check("0x" not in json.dumps(done) and io["object"][0] == "i", "addresses are nothing for everybody")
            wait_for(lambda: {e["owner"] for e in shown(look(address, "text=M1"))} == {"M1"}, "the other bdev alone")
            check(shown(look(address, "text=no%20such%20bdev")) == [], "nothing")
        for wrong in ("group=none", "group=%", "text=%00", "text=" + 64 * "x"):
            get(address, f"/api/trace?{wrong}", 404)


def test_a_look_at_the_trace_has_the_io_that_the_recorder_has():
    """The same fields as varve-trace tells of the same event."""
    with Target("--metrics", "127.0.0.1:0", "-e", "bdev,nvmf_tcp", trtype="TCP") as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        address = t.call("metrics_get_status")["address"]
        with Host(t, "-w", "randread", "--ios", "40", "-q", "2", nsid=1) as h:
            check(h.wait() == 0, "the host")
        told = wait_for(lambda: next((s for s in [shown(look(address, "group=bdev"))] if any(e["tpoint"] == "BDEV_IO_DONE" for e in s)), None), "I/O")
        trace = json.loads(subprocess.run([BUILD / "bin" / "varve-trace", "-p", str(t.pid), "-j"], check=True, capture_output=True, text=True).stdout)
        names = {p["id"]: p["name"] for p in trace["tpoints"]}
        kept = [e for e in trace["entries"] if names[e["tpoint"]].startswith("BDEV_")][-len(told):]
        check([e["tpoint"] for e in told] == [names[e["tpoint"]] for e in kept], (told, kept))
        check([e["owner"] for e in told] == [e.get("owner") for e in kept] and [e["size"] for e in told] == [e.get("size", 0) for e in kept], (told, kept))


def test_looks_at_the_trace_are_limited_however_many_ask():
    with Daemon("--metrics", "127.0.0.1:0", "-e", "all") as d:
        address = d.call("metrics_get_status")["address"]
        threads = lambda: len(os.listdir(f"/proc/{d.pid}/task"))
        before = threads()
        # Twelve ask in different ways: four are looked for, unless this machine takes seconds to ask.
        wait_for(lambda: [api(address, f"trace?text={i}")["state"] for i in range(12)].count("busy") >= 8, "too many")
        check(threads() <= before + 1, "one look at a time")
        begin, looks, last = time.monotonic(), 1, look(address, "text=0")["ago_us"]
        for _ in range(100):
            ago = look(address, "text=0")["ago_us"]
            looks, last = looks + (ago < last), ago
        check(looks <= time.monotonic() - begin + 2, f"{looks} looks in {time.monotonic() - begin} s: at most one a second")
        api(address, "trace?text=last")
        d.call("metrics_stop")
        wait_for(lambda: threads() == before, "the last look's end")
        d.call("metrics_start", address="127.0.0.1:0")
        check(look(d.call("metrics_get_status")["address"])["state"] == "done", "looks after a new start")
        api(d.call("metrics_get_status")["address"], "trace?text=x")
        check(d.stop() == 0, d.log())


def test_findings_tell_what_is_wrong():
    with Target("--metrics", "127.0.0.1:0", trtype="TCP") as t:
        address = t.call("metrics_get_status")["address"]
        check(api(address, "state")["findings"] == [], "well")
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.add_ns("EE_M0", nsid=1)
        t.call("trace_set_trigger", name="errors", type="io_error")
        with Host(t, "-w", "randread", "-t", "3600", "-q", "2", nsid=1) as h:
            wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 100, "some I/O")
            wait_for(lambda: (series(address, "bdev").get("EE_M0") or {"iops": 0})["iops"], "the bdev's series")
            t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="failure", num=1)
            texts = lambda: [f["text"] for f in api(address, "state")["findings"]]
            wait_for(lambda: [x for x in texts() if x.startswith("I/O on EE_M0 failed")], texts)
            wait_for(lambda: [x for x in texts() if x.startswith("trigger errors fired")], texts)
            trigger = api(address, "state")["triggers"][0]
            check(trigger["name"] == "errors" and trigger["fired"] >= 1, trigger)
        t.call("nvmf_create_subsystem", nqn="nqn.2026-11.io.varve:deaf", allow_any_host=True)
        wait_for(lambda: [x for x in texts() if "deaf has no listener" in x], texts)


def test_names_are_told_as_they_are():
    """A host may call itself anything; JSON carries it as text."""
    with Target("--metrics", "127.0.0.1:0", trtype="TCP") as t:
        t.add_malloc('<img src=x onerror="alert(1)">')
        t.add_ns('<img src=x onerror="alert(1)">', nsid=1)
        address = t.call("metrics_get_status")["address"]
        with Host(t, "-w", "randread", "-t", "3600", "-q", "2", nsid=1, hostnqn=HOSTILE) as h:
            wait_for(lambda: not h.is_running() or HOSTILE in series(address, "host"), "the host")
            check(h.is_running(), "the host ended")
            topology = api(address, "topology")
            check([c["host"] for s in topology["subsystems"] for c in s["controllers"]] == [HOSTILE], topology)
            check('<img src=x onerror="alert(1)">' in [b["name"] for b in topology["bdevs"]], topology)
            check(history(address, "host", HOSTILE)["step_s"] == 1, "by its name")


def test_bases_are_those_that_a_bdev_stands_on():
    """Snapshots and clones are told by the volume's name, which may be that of another bdev."""
    with Daemon("--metrics", "127.0.0.1:0") as d:
        address = d.call("metrics_get_status")["address"]
        for name in ("A0", "snap", "v"):
            d.call("bdev_malloc_create", name=name, num_blocks=65536, block_size=512)
        d.call("bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs", cluster_sz=1 << 20)
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=4, thin_provision=True)
        d.call("bdev_lvol_snapshot", lvol_name="lvs/v", snapshot_name="snap")
        d.call("bdev_delay_create", base_bdev_name="lvs/v", name="D0", avg_read_latency=1, p99_read_latency=1, avg_write_latency=1, p99_write_latency=1)
        bdevs = api(address, "topology")["bdevs"]
        by_name = {b.get("alias", b["name"]): b for b in bdevs}
        check(len(by_name) == 6, bdevs)
        told = {name: b["bases"] for name, b in by_name.items()}
        check(told == {"A0": [], "snap": [], "v": [], "lvs/v": ["A0"], "lvs/snap": ["A0"], "D0": [by_name["lvs/v"]["name"]]}, told)


def ask_unix(path, target, method="GET", small=False):
    """A connection, the status and the fields of the answer. small: with the smallest buffer."""
    s = socket.socket(socket.AF_UNIX)
    if small:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    s.settimeout(DEADLINE)
    s.connect(str(path))
    s.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = s.recv(1)
        check(byte, head)
        head += byte
    lines = head.decode().split("\r\n")
    return s, int(lines[0].split()[1]), dict(x.split(": ", 1) for x in lines[1:] if x)


def get_unix(path, target, method="GET"):
    s, status, fields = ask_unix(path, target, method)
    with s, s.makefile("rb") as f:
        return status, f.read(), fields


class Box(Daemon):
    """With a folder of the black box, and the console on a Unix socket."""

    def __init__(self, **params):
        super().__init__()
        try:
            self.box, self.socket = self.folder / "box", self.folder / "metrics.sock"
            self.box.mkdir()
            self.call("trace_set_blackbox", directory=str(self.box))
            self.call("metrics_start", address=f"unix:{self.socket}", **params)
        except BaseException:
            self.__exit__()
            raise

    def copy_name(self, cause="io_error"):
        """Of the form that the daemon gives them, by a trigger that has fired or by hand."""
        app = pathlib.Path(json.loads(get_unix(self.socket, "/api/state")[1])["trace_file"]).name.split("_trace.")[0]
        return f"{app}_blackbox.20261121T231502.123456Z.{cause}.pid1"

    def listed(self):
        return json.loads(get_unix(self.socket, "/api/copies")[1])


def test_copies_of_the_black_box_are_handed_out_if_that_is_asked_for():
    with Box(copies=True) as d:
        name, data = d.copy_name(), bytes(range(256)) * 4096 + b"end"
        (d.box / name).write_bytes(data)
        found = wait_for(lambda: next((x for x in [d.listed()] if x["copies"]), None), "the list")
        check(found == {"directory": str(d.box), "offered": True, "complete": True, "copies": [
            {"name": name, "bytes": len(data), "time": "2026-11-21T23:15:02.123456Z", "cause": "io_error"}]}, found)
        status, body, fields = get_unix(d.socket, f"/api/copy?name={name}")
        check(status == 200 and body == data and fields["Content-Type"] == "application/octet-stream", (status, len(body), fields))
        status, body, fields = get_unix(d.socket, f"/api/copy?name={name}", "HEAD")
        check(status == 200 and body == b"" and fields["Content-Length"] == str(len(data)), (status, fields))
        check(d.call("metrics_get_status")["copies"] is True and f"Metrics are at unix:{d.socket}, with the copies" in d.log(), d.log())
        saved = d.call("framework_get_config", name="metrics")
        check(saved == [{"method": "metrics_start", "params": {"address": f"unix:{d.socket}", "copies": True}}], saved)
        d.call("metrics_stop")
        status, _, err = d.rpc("metrics_start", "address=127.0.0.1:0", "copies=true")
        check(status != 0 and "unix:PATH" in err, err)
        check(d.rpc("metrics_start", "address=127.0.0.1:0", "copies=false")[0] == 0, "without copies")
    with Box() as d:
        name = d.copy_name()
        (d.box / name).write_bytes(b"x")
        wait_for(lambda: d.listed()["copies"], "the list")
        status, body, _ = get_unix(d.socket, f"/api/copy?name={name}")
        check(not d.listed()["offered"] and status == 403 and b"copies=true" in body, ("off by default", status, body))
        check(d.call("metrics_get_status")["copies"] is False and f"Metrics are at unix:{d.socket}\n" in d.log(), d.log())


def test_a_folder_that_cannot_be_read_is_told_from_an_empty_one():
    with Box() as d:
        check(d.listed() == {"directory": str(d.box), "offered": False, "complete": True, "copies": []}, d.listed())
        d.box.rmdir()
        found = wait_for(lambda: next((x for x in [d.listed()] if "error" in x), None), "the error")
        check(found == {"directory": str(d.box), "offered": False, "complete": False, "error": os.strerror(errno.ENOENT), "copies": []}, found)
        d.box.mkdir()
        wait_for(lambda: "error" not in d.listed(), "the folder again")


def test_nothing_but_copies_is_handed_out():
    with Box(copies=True) as d:
        name = d.copy_name()
        (d.folder / "secret").write_text("secret")
        (d.box / "secret").write_text("secret")
        (d.box / name).symlink_to(d.folder / "secret")
        os.mkfifo(d.box / d.copy_name("state_age"))
        (d.box / d.copy_name("request_age")).mkdir()
        for wrong in (name, d.copy_name("state_age"), d.copy_name("request_age"), d.copy_name("qpair_error"), "secret", "../secret", "..%2fsecret", "%2e%2e/secret",
                      str(d.folder / "secret"), "", ".", "%00", f"{name}%00", f"x/../{name}", f"{name}/", "a" * 5000):
            status, body, _ = get_unix(d.socket, f"/api/copy?name={wrong}")
            check(status == 404 and body == b"There is no such copy.\n", (wrong, status, body[:100]))
        for wrong in ("/api/copy", "/api/copy?", "/api/copy/secret", f"/api/copy?names={name}"):
            check(get_unix(d.socket, wrong)[0] == 404, wrong)
        check(d.listed()["copies"] == [], d.listed())


def test_a_copy_is_for_who_may_read_its_file():
    """The socket is for varve's group, too, of which a scraper may be."""
    if os.geteuid() != 0:
        raise Skip("not root")
    with Box(copies=True) as d:
        name, another, group = d.copy_name(), 65534, 54321
        copy = d.box / name
        copy.write_bytes(b"a copy")
        d.folder.chmod(0o711)

        def ask(target, groups):
            p = subprocess.run(["curl", "-q", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", d.socket, f"http://localhost{target}"], capture_output=True,
                               text=True, cwd="/", user=another, group=os.getegid(), extra_groups=groups, timeout=DEADLINE)
            check(p.returncode == 0, (p.returncode, p.stderr))
            return p.stdout
        for mode, owner, groups, status in ((0o600, os.getegid(), (), "403"), (0o640, group, (), "403"), (0o640, group, (7, group), "200"),
                                            (0o600, group, (7, group), "403"), (0o640, os.getegid(), (), "200")):
            os.chown(copy, -1, owner)
            copy.chmod(mode)
            answers = ask("/metrics", groups), ask(f"/api/copy?name={name}", groups)
            check(answers == ("200", status), (oct(mode), owner, groups, answers))
        status, body, _ = get_unix(d.socket, f"/api/copy?name={name}")
        check(status == 200 and body == b"a copy", "root, as varve is")


def test_the_documented_command_saves_a_copy_under_its_name():
    text = (pathlib.Path(__file__).parent.parent / "doc" / "console.md").read_text()
    line, = [x.strip() for x in text.splitlines() if x.startswith("    curl -sOJ ")]
    with Box(copies=True) as d:
        name, data, empty = d.copy_name(), pattern(0, 300000), d.folder / "empty"
        (d.box / name).write_bytes(data)
        empty.mkdir()
        command = line.replace("/run/varve/metrics.sock", str(d.socket)).replace("NAME", name)
        check(command.count(name) == 1 and command.count(str(d.socket)) == 1, command)
        subprocess.run(command, shell=True, check=True, cwd=empty, timeout=DEADLINE)
        check(os.listdir(empty) == [name], os.listdir(empty))
        check((empty / name).read_bytes() == data, "its bytes")


def pattern(offset, n):
    """n bytes that tell at which offset of a file they are, which is a multiple of 8."""
    return b"".join(i.to_bytes(8, "little") for i in range(offset // 8, (offset + n + 7) // 8))[:n]


class Reader(threading.Thread):
    """Reads a copy as fast as it can."""

    def __init__(self, path, target):
        super().__init__(daemon=True)
        self.sock, self.status, _ = ask_unix(path, target)
        self.got, self.ending, self.cut_off = 0, False, False
        self.start()

    def run(self):
        with self.sock:
            while not self.ending:
                n = len(self.sock.recv(1 << 20))
                self.cut_off = n == 0
                if self.cut_off:
                    return
                self.got += n

    def end(self):
        self.ending = True
        self.join(DEADLINE)


def test_readers_of_copies_leave_time_for_others():
    """Several read a large copy as fast as they can: the daemon makes pauses, others are served, and nobody is cut off."""
    with Box(copies=True) as d:
        name = d.copy_name()
        with open(d.box / name, "wb") as f:
            f.truncate(1 << 40)     # a hole
        target = f"/api/copy?name={name}"
        readers = [Reader(d.socket, target) for _ in range(4)]
        check([r.status for r in readers] == [200] * 4, [r.status for r in readers])
        pauses = lambda: d.call("metrics_get_status")["copies_paused"]
        for n in (0, 8):
            wait_for(lambda: pauses() > n, f"more pauses than {n}")
        status, body, _ = get_unix(d.socket, target)
        check(status == 503 and b"Too many copies" in body, (status, body))
        silent = []
        for _ in range(40):         # who make no request; the oldest of them go
            silent.append(socket.socket(socket.AF_UNIX))
            silent[-1].connect(str(d.socket))
        check(get_unix(d.socket, "/metrics")[0] == 200, "metrics meanwhile")
        before = [r.got for r in readers]
        wait_for(lambda: all(r.cut_off or r.got > b + (1 << 20) for r, b in zip(readers, before)), "each reader to go on")
        check(not any(r.cut_off for r in readers), "none was cut off")
        for s in silent:
            s.close()
        for r in readers:
            r.end()
        wait_for(lambda: get_unix(d.socket, target, "HEAD")[0] == 200, "room for another reader")
        last = Reader(d.socket, target)
        check(last.status == 200, last.status)
        check(d.stop() == 0, d.log())       # while it is sent
        last.end()


def test_a_copy_that_goes_or_is_read_slowly():
    with Box(copies=True) as d:
        name, size = d.copy_name(), 8 << 20
        data = pattern(0, size)
        (d.box / name).write_bytes(data)
        slow, status, fields = ask_unix(d.socket, f"/api/copy?name={name}", small=True)
        check(status == 200 and int(fields["Content-Length"]) == size, fields)
        check(json.loads(get_unix(d.socket, "/api/state")[1])["state"] == "RUNNING", "others are answered meanwhile")
        going, status, _ = ask_unix(d.socket, f"/api/copy?name={name}")
        check(status == 200, status)
        (d.box / name).unlink()
        with going, going.makefile("rb") as f:
            check(f.read() == data, "a file that has lost its name is read to its end")
        check(get_unix(d.socket, f"/api/copy?name={name}")[0] == 404, "it has gone")
        with slow:      # which has read nothing meanwhile: in time or too late, it gets no wrong byte
            got = b""
            while chunk := slow.recv(1 << 20):
                got += chunk
        check(len(got) > 0 and data.startswith(got), len(got))


def test_a_copy_that_becomes_shorter_or_is_not_read_on():
    with Box(copies=True) as d:
        name, size = d.copy_name(), 64 << 20
        dropped = d.call("metrics_get_status")["dropped"]
        with open(d.box / name, "wb") as f:
            f.truncate(size)
        shrinks, status, _ = ask_unix(d.socket, f"/api/copy?name={name}")
        check(status == 200, status)
        os.truncate(d.box / name, 1 << 20)
        with shrinks, shrinks.makefile("rb") as f:
            check(len(f.read()) < size, "the end is missing, and the peer sees that")
        wait_for(lambda: d.call("metrics_get_status")["dropped"] > dropped, "the count")
        wait_for(lambda: f"the answer with {name} ends after " in d.log(), "the line in the log")
        os.truncate(d.box / name, 1 << 40)      # a hole
        huge, status, fields = ask_unix(d.socket, f"/api/copy?name={name}")
        with huge:
            check(status == 200 and int(fields["Content-Length"]) == 1 << 40 and huge.recv(65536), fields)
            wait_for(lambda: d.call("metrics_get_status")["connections"] == 0, "that who does not go on to read is dropped")
        check(d.stop() == 0, d.log())


class Fleet(Target):
    """1000 namespaces in 100 subsystems, and a host of each that reads a block."""

    def __init__(self):
        super().__init__("--metrics", "127.0.0.1:0", trtype="TCP", listen=False)
        self.queues = []
        try:
            self.fill()
        except BaseException:
            self.__exit__()
            raise

    def fill(self):
        self.address = self.call("metrics_get_status")["address"]
        c = self.client()
        for i in range(1000):
            c.call("bdev_null_create", name=f"N{i}", num_blocks=2048, block_size=512)
        for s in range(100):
            nqn = f"nqn.2026-11.io.varve:many{s}"
            c.call("nvmf_create_subsystem", nqn=nqn, allow_any_host=True, max_namespaces=10)
            for i in range(10):
                c.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": f"N{10 * s + i}"})
            c.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=self.listen_address())
        c.close()
        for s in range(100):
            names = {"nqn": f"nqn.2026-11.io.varve:many{s}", "hostnqn": f"nqn.2026-11.io.varve:host{s}", "port": self.port}
            admin = Queue(**names)
            self.queues.append(admin.enable())
            self.queues.append(Queue(1, cntlid=admin.cntlid, **names))
            check(self.queues[-1].read(0, 1).status == 0, names)

    def __exit__(self, *exc):
        for q in self.queues:
            q.close()
        super().__exit__(*exc)


def test_a_thousand_namespaces_and_a_hundred_hosts_have_their_memory():
    """Less than 10 MB of history, and each object in the answers."""
    with Fleet() as t:
        kinds = {"node": 1, "bdev": 1000, "subsystem": 101, "host": 100, "path": 100}
        wait_for(lambda: all(len(series(t.address, k)) == n for k, n in kinds.items()), "the series")
        state = api(t.address, "state")
        check(state["counts"] == {"bdevs": 1000, "subsystems": 101, "namespaces": 1000, "controllers": 100}, state["counts"])
        check(not [f for f in state["findings"] if "history" in f["text"]], state["findings"])
        check(state["history_bytes"] < 10e6, state["history_bytes"])
        topology = api(t.address, "topology")
        check(len(topology["bdevs"]) == 1000 and len(topology["subsystems"]) == 101, "topology")
        check({c["host"] for s in topology["subsystems"] for c in s["controllers"]} == {f"nqn.2026-11.io.varve:host{s}" for s in range(100)}, "hosts")


def first_lines(address, paths):
    """Those of the answers. All are asked before the first is read, so that the daemon works while nobody else here does."""
    host, port = address.rsplit(":", 1)
    asked = []
    for path in paths:
        asked.append(socket.create_connection((host, int(port)), timeout=DEADLINE))
        asked[-1].sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    lines = []
    for s in asked:
        with s, s.makefile("rb") as answer:
            lines.append(answer.readline().decode())
            answer.read()
    return lines


def test_pages_take_a_part_of_the_time_and_none_of_the_scrapers():
    with Daemon("--metrics", "127.0.0.1:0") as d:
        address = d.call("metrics_get_status")["address"]
        for i in range(1000):
            d.call("bdev_null_create", name=f"N{i}", num_blocks=2048, block_size=512)
        wait_for(lambda: len(series(address, "bdev")) == 1000, "the series")
        turn = itertools.count()
        flood = lambda: first_lines(address, [f"/api/series?kind=bdev&x={next(turn)}" for _ in range(12)])
        lines = wait_for(lambda: [x for x in flood() if not x.startswith("HTTP/1.1 200 ")], "an answer that is refused")
        check(all(x.startswith("HTTP/1.1 503 ") for x in lines), lines)
        for i in range(4):
            lines = first_lines(address, [f"/metrics?{i}"])
            check(lines[0].startswith("HTTP/1.1 200 "), lines)
        api(address, "series?kind=bdev&x=later")


if __name__ == "__main__":
    main(sys.modules[__name__])
