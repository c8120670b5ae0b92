#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 240
# beside
"""varve-top: on a terminal, in batch mode, as JSON; and the calls that a stock spdk_top makes."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from appliance_lib import BUILD, DEADLINE, Daemon, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target

TOP = BUILD / "bin" / "varve-top"
VIEWS = ["reactors", "threads", "pollers", "bdevs", "subsystems", "hosts", "requests", "buffers", "trace", "latencies",
         "volumes"]


class Screen:
    """What a VT100 shows of a program: as much of it as ncurses uses with TERM=vt100."""

    def __init__(self, *options, lines=40, columns=160, term="vt100", stdin=None):
        self.lines, self.columns = lines, columns
        self.cells = [[" "] * columns for _ in range(lines)]
        self.y = self.x = 0
        self.region = 0, lines - 1      # the lines that scroll
        self.rest = ""
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ.update(TERM=term, LC_ALL="C")
            if stdin:
                os.dup2(os.open(stdin, os.O_RDONLY), 0)
            os.execv(TOP, [str(TOP), *map(str, options)])
        self.pid, self.status = pid, None
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def scroll(self, down):
        """One line on, or back; at the edge of the region its lines move."""
        top, bottom = self.region
        if self.y == (bottom if down else top):
            self.cells.pop(top if down else bottom)
            self.cells.insert(bottom if down else top, [" "] * self.columns)
        else:
            self.y += 1 if down else -1

    def control(self, parameters, final):
        numbers = [int(n) if n else 0 for n in parameters.lstrip("?").split(";")]
        n = max(numbers[0], 1)
        if final in "Hf":
            self.y, self.x = n - 1, (max(numbers[1], 1) if len(numbers) > 1 else 1) - 1
        elif final in "ABCD":
            self.y += {"A": -n, "B": n}.get(final, 0)
            self.x += {"C": n, "D": -n}.get(final, 0)
        elif final == "r":
            self.region = n - 1, (numbers[1] if len(numbers) > 1 else self.lines) - 1
            self.y = self.x = 0
        elif final == "J":
            for y in range(self.y if numbers[0] == 0 else 0, self.lines):
                start = self.x if y == self.y and numbers[0] == 0 else 0
                self.cells[y][start:] = [" "] * (self.columns - start)
        elif final == "K":
            start, end = (0, self.x + 1) if numbers[0] == 1 else (self.x, self.columns)
            self.cells[self.y][start:end] = [" "] * (end - start)
        else:
            check(final in "mhl", f"a control sequence that is not known here: {parameters}{final}")

    def plain(self, c):
        if c == "\r":
            self.x = 0
        elif c == "\n":
            self.scroll(True)
        elif c == "\b":
            self.x -= 1
        elif c == "\t":
            self.x = self.x // 8 * 8 + 8
        elif c >= " " and 0 <= self.y < self.lines and 0 <= self.x < self.columns:
            self.cells[self.y][self.x] = c
            self.x += 1
        self.y = min(max(self.y, 0), self.lines - 1)
        self.x = min(max(self.x, 0), self.columns - 1 if c != " " else self.columns)

    def feed(self, text):
        text = re.sub(r"\$<\d+[*/]*>", "", self.rest + text)
        while text:
            m = re.match(r"\x1b\[([?0-9;]*)([A-Za-z])", text)
            if m:
                self.control(m[1], m[2])
                text = text[m.end():]
            elif text[0] == "\x1b":
                m = re.match(r"\x1b(?:[()][A-Z0-9]|[=>78MDE])", text)
                if not m:
                    break           # the rest has yet to come
                if text[1] in "DEM":
                    self.x = 0 if text[1] == "E" else self.x
                    self.scroll(text[1] != "M")
                text = text[m.end():]
            else:
                self.plain(text[0])
                text = text[1:]
        self.rest = text

    def update(self):
        while self.status is None and select.select([self.fd], [], [], 0)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                return
            self.feed(data.decode())

    def text(self):
        self.update()
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def wait(self, *wanted, without=()):
        try:
            wait_for(lambda: (lambda t: all(w in t for w in wanted) and not any(w in t for w in without))(self.text()),
                     f"{wanted} without {without}", 2 * DEADLINE)
        except Exception:
            print(self.text())
            raise

    def key(self, keys):
        os.write(self.fd, keys.encode())

    def wait_end(self):
        wait_for(lambda: (self.update(), self.status is not None)[1], "varve-top to end")
        return self.status

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.status is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def run(daemon, *options, timeout=DEADLINE):
    p = subprocess.run([TOP, "-s", daemon.path, "-d", "0.2", *options], capture_output=True, text=True, timeout=timeout)
    return p.returncode, p.stdout, p.stderr


def look(daemon, *options):
    status, out, err = run(daemon, "-j", *options)
    check(status == 0 and len(out.splitlines()) == 1, err)
    return json.loads(out)


@contextlib.contextmanager
def busy_target(**transport):
    with Target("-e", "bdev", **transport) as t:
        t.add_malloc("M0")
        t.call("bdev_delay_create", base_bdev_name="M0", name="D0", avg_read_latency=2000, p99_read_latency=2000,
               avg_write_latency=2000, p99_write_latency=2000)
        t.add_ns("D0", nsid=1)
        for last in (False, False, False, False, True):
            with Host(t, "-w", "randrw", "-t", "3600", "-q", "8", nsid=1) as h:
                wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 20, "some I/O")
                check(h.is_running() or not last, "varve-perf cannot connect")
                if h.is_running():
                    yield t
                    return


def test_json_tells_of_everything():
    json_tells_of_everything()


def test_json_tells_of_everything_over_tcp():
    json_tells_of_everything(trtype="TCP")


def json_tells_of_everything(**transport):
    with busy_target(**transport) as t:
        t.call("trace_set_trigger", name="errors", type="io_error")
        o = wait_for(lambda: (lambda x: x if x["requests"] and any(b["name"] == "D0" and (b["iops"] or 0) > 0 for b in x["bdevs"])
                              else None)(look(t)), "I/O")
        check([k for k in VIEWS if k not in o] == [] and o["pid"] == t.pid and o["state"] == "RUNNING", list(o))
        check(o["version"].startswith("varve") and o["interval_s"] > 0, o["interval_s"])
        d0 = next(b for b in o["bdevs"] if b["name"] == "D0")
        check(d0["queue_depth"] is not None and d0["errors"] == 0 and d0["read_bytes_per_s"] + d0["write_bytes_per_s"] > 0, d0)
        check(max(d0["read_latency_us"] or 0, d0["write_latency_us"] or 0) >= 1000, d0)
        check(any(h["hostnqn"] == HOSTNQN and h["subnqn"] == NQN and h["qid"] == 1 and h["state"] == "enabled" for h in o["hosts"]), o["hosts"])
        sub = next(s for s in o["subsystems"] if s["nqn"] == NQN)
        check(sub["namespaces"] == 1 and sub["controllers"] == 1 and sub["qpairs"] >= 2 and sub["state"] == "active", sub)
        check(all(r["count"] > 0 and r["state"] and r["longest_us"] is not None for r in o["requests"]), o["requests"])
        r = o["reactors"][0]
        check(r["lcore"] == 0 and r["state"] in ("polling", "sleeping") and 0 <= r["busy_percent"] <= 100, r)
        check(any(p["runs"] > 0 for p in o["pollers"]) and any(x["thread"] == "reactor_0" and x["recorded"] > 0 for x in o["trace"]), "counts")
        check(any(x["thread"] == "trigger errors" and x["fired"] == 0 for x in o["trace"]), o["trace"])
        check(any(b["resource"] == "data buffer" for b in o["buffers"]) or any(b["resource"] == "small buffer" for b in o["buffers"]), o["buffers"])


def percentiles_are_those_of_the_delay(t, o):
    """Of the host, whose reads and writes take 2 ms or longer; and since the beginning, by the method."""
    [h] = o["latencies"]
    check(h["hostnqn"] == HOSTNQN and h["subnqn"] == NQN and h["iops"] > 0 and h["bytes_per_s"] > 0, h)
    check(1500 <= h["p50_us"] <= h["p99_us"] and h["mean_us"] >= 1500, h)
    answer = t.call("nvmf_get_host_latencies")
    [told] = answer["hosts"]
    check(len(told["counts"]) == len(answer["bounds_ns"]) + 1 and 0 < sum(told["counts"]) <= told["commands"], told)
    check(told["p50_ns"] <= told["p99_ns"] and sum(n for n, bound in zip(told["counts"], answer["bounds_ns"]) if bound < 2000000) <= 1, told)


def test_percentiles_of_hosts_fit_a_small_terminal():
    with busy_target() as t:
        o = wait_for(lambda: (lambda x: x if x["latencies"] and x["latencies"][0]["p50_us"] is not None else None)(look(t)), "commands of the host")
        percentiles_are_those_of_the_delay(t, o)
        with Screen("-s", t.path, "-d", "0.5", lines=24, columns=80) as s:
            s.wait("1 R", "9 T", "0 L")
            s.key("0")
            s.wait("0 Latencies", "HOST", "P50", "P99", "IOPS", "B/s", HOSTNQN, "1 of 1 rows")
            wait_for(lambda: re.search(re.escape(HOSTNQN) + r" +[\d.]+(us|ms) +[\d.]+(us|ms|s) +[1-9]", s.text()), lambda: f"figures:\n{s.text()}")
            check(all(len(x) <= 80 for x in s.text().splitlines()), s.text())
            s.key("\r")
            s.wait("Enter back", "P50", "P99", "MEAN", NQN, "max ")
            s.key("\r\t")
            s.wait("v Volumes", "VOLUME")
            s.key("\t")
            s.wait("1 Reactors", "LCORE")
            s.key("q")
            check(s.wait_end() == 0, s.status)
    with Daemon() as d:
        check(look(d)["latencies"] == [], "without a host")


def test_volumes_are_shown_with_what_they_have():
    with Target() as t:
        t.call("bdev_malloc_create", name="M0", num_blocks=16384, block_size=4096)
        t.call("bdev_lvol_create_lvstore", bdev_name="M0", lvs_name="lvs", cluster_sz=1 << 20)
        t.call("bdev_lvol_create", lvs_name="lvs", lvol_name="thick", size_in_mib=4)
        t.call("bdev_lvol_create", lvs_name="lvs", lvol_name="thin", size_in_mib=8, thin_provision=True, reserved_in_mib=2)
        t.call("bdev_lvol_snapshot", lvol_name="lvs/thick", snapshot_name="snap")
        t.add_ns("lvs/thin", nsid=1)
        with Host(t, "-w", "randwrite", "--region", "1M", "-t", "3600", "-q", "8", nsid=1) as h:
            wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 20, "some I/O")
            found = wait_for(lambda: (lambda v: v if (v["lvs/thin"]["iops"] or 0) > 0 else None)({v["alias"]: v for v in look(t, "-v", "volumes")["volumes"]}), "I/O")
        have = {n: (v["kind"], v["own_bytes"], v["reserved_bytes"]) for n, v in found.items()}
        check(have == {"lvs/thick": ("clone", 0, 0), "lvs/snap": ("snapshot", 4 << 20, 0), "lvs/thin": ("thin", 1 << 20, 2 << 20)}, have)
        check(found["lvs/thin"]["write_bytes_per_s"] > 0 and found["lvs/thin"]["read_latency_us"] is None and found["lvs/thin"]["queue_depth"] is not None, found)
        with Screen("-s", t.path, "-d", "0.2") as s:
            s.wait("1 Reactors", "0 Latencies", "v Volumes", "1-9 0 v view")
            s.key("v")
            s.wait("VOLUME", "lvs/snap", "lvs/thin", "3 of 3 rows")


def test_batch_sorts_filters_and_chooses():
    with Daemon() as d:
        for name in ("Zebra", "apple", "Mango"):
            d.call("bdev_null_create", name=name, num_blocks=1024, block_size=512)
        status, out, err = run(d, "-b")
        check(status == 0 and all(f"\n{t}\n" in out for t in ("Reactors", "Threads", "Pollers", "Bdevs", "Subsystems", "Trace")), out + err)
        def names(*options):
            return [b["name"] for b in look(d, "-v", "bdevs", *options)["bdevs"]]
        check(names("-o", "name") == ["apple", "Mango", "Zebra"], names("-o", "name"))
        check(names("-o", "name", "-r") == ["Zebra", "Mango", "apple"], "reversed")
        check(names("-f", "MAN") == ["Mango"] and "threads" not in look(d, "-v", "bdevs"), "filtered")
        status, out, _ = run(d, "-j", "-n", "3")
        check(status == 0 and len(out.splitlines()) == 3, out)


def test_wrong_usage_and_nobody_there():
    with Daemon() as d:
        for options, word in [(["-v", "nosuch"], "bdevs"), (["-d", "x"], "number"), (["-o", "nosuch"], "lcore"), (["extra"], "extra"),
                              (["-n", "1.5"], "whole number"), ([], "terminal")]:
            status, _, err = run(d, *options)
            check(status == 2 and word in err, (options, err))
        check(run(d, "--help")[1].startswith("Usage: varve-top"), "help")
        d.stop()
        status, _, err = run(d, "-b")
        check(status == 3 and str(d.path) in err, err)


def test_the_screen_shows_sorts_filters_and_pauses():
    with Daemon() as d:
        d.call("bdev_null_create", name="Null0", num_blocks=1024, block_size=512)
        d.call("bdev_null_create", name="Other", num_blocks=1024, block_size=512)
        with Screen("-s", d.path, "-d", "0.2") as s:
            s.wait("varve-top", f"process {d.pid}", "RUNNING", "1 Reactors", "9 Trace", "LCORE", "BUSY%")
            s.key("4")
            s.wait("BDEV", "IOPS", "Null0", "Other", "2 of 2 rows")
            s.key("/null\r")
            s.wait('Only rows with "null"', "Null0", "1 of 1 rows", without=["Other"])
            s.key("/\r")
            s.wait("Null0", "Other")
            s.key("p")
            s.wait("PAUSED")
            d.call("bdev_null_create", name="Late", num_blocks=1024, block_size=512)
            s.key("sS")
            s.key("p")
            s.wait("Late", without=["PAUSED"])
            s.key("h")
            s.wait("Tab, left, right")
            s.key("x")
            s.wait("Late")
            s.key("\t")
            s.wait("SUBSYSTEM", "nqn.2014-08.org.nvmexpress.discovery")
            s.key("+")
            s.wait("every 0.4 s")
            s.key("q")
            check(s.wait_end() == 0, s.status)


def test_enter_shows_one_row_with_its_history():
    with busy_target() as t:
        with Screen("-s", t.path, "-d", "0.1", "-v", "bdevs", lines=24, columns=80) as s:
            s.wait("BDEV", "D0", "M0", "2 of 2 rows")
            s.key("n/D0\r")
            s.wait('Only rows with "D0"', "1 of 1 rows")
            s.key("\r")
            s.wait("Enter back", "IOPS", "READ/s", "RD LAT", "WAIT QOS/s", "ERRORS", "max ", without=["1 of 1 rows"])

            def spark():
                [line] = [x for x in s.text().splitlines() if x.startswith("IOPS ")]
                found = re.fullmatch(r"IOPS +\S+ +([ _.=+*#-]*?) +max (\S+)", line)
                return found and len(found[1]) >= 10 and "#" in found[1] and found[2] != "0"
            wait_for(spark, "ten looks at I/O", 2 * DEADLINE)
            check(all(len(x) <= 80 for x in s.text().splitlines()), s.text())
            t.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=1)
            t.call("bdev_delay_delete", name="D0")
            s.wait("It is not there any more.", "D0", "ERRORS")
            s.key("\r")
            s.wait('Only rows with "D0"', "0 of 0 rows")
            s.key("\r/\r")
            s.wait("1 of 1 rows", "M0")
            s.key("\r")
            s.wait("Enter back", "M0")
            s.key("5")
            s.wait("SUBSYSTEM", "of 2 rows", without=["Enter back"])
            s.key("q")
            check(s.wait_end() == 0, s.status)


def test_the_selected_row_is_always_on_the_screen():
    with Daemon() as d:
        for i in range(40):
            d.call("bdev_null_create", name=f"Null{i:02}", num_blocks=1024, block_size=512)
        with Screen("-s", d.path, "-d", "0.2", "-v", "bdevs", "-o", "name", lines=24, columns=80) as s:
            s.wait("Null00", "Null18", "19 of 40 rows", without=["Null19"])
            s.key("\x1bOB" * 19)
            s.wait("Null01", "Null19", without=["Null00"])
            s.key("\r")
            s.wait("Enter back", "Null19")
            s.key("\x1b")
            s.wait("19 of 40 rows")
            s.key("\x1bOA" * 25)
            s.wait("Null00", without=["Null19"])
            s.key("\r")
            s.wait("Enter back", "Null00", without=["Null19"])
            s.key("q")
            check(s.wait_end() == 0, s.status)


class Colours:
    """What is written to a terminal that has colours."""

    def __init__(self, d, **env):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", LC_ALL="C", **env)
            os.execv(TOP, [str(TOP), "-s", str(d.path), "-d", "0.2"])
        self.pid, self.text = pid, ""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))

    def wait(self, what):
        def found():
            if select.select([self.fd], [], [], 0)[0]:
                self.text += os.read(self.fd, 65536).decode("ascii", "replace")
            return what in self.text

        wait_for(found, lambda: f"{what}: {self.text!r}")
        return self.text

    def end(self):
        os.write(self.fd, b"q")
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def test_what_is_wrong_is_red_where_colours_are_wanted():
    for env, wanted in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)):
        with Daemon() as d:
            c = Colours(d, **env)
            c.wait("RUNNING")
            d.process.kill()
            text = c.wait("No answer")
            red = re.search(r"\x1b\[(?:\d+;)*31m(?:\x1b\[[\d;]*m)*No answer", text)
            check((red is not None) == wanted and ("36m" in text) == wanted, (env, text))
            c.end()


def test_columns_that_do_not_fit_are_reached():
    with Daemon() as d:
        d.call("bdev_null_create", name="Null0", num_blocks=1024, block_size=512)
        with Screen("-s", d.path, "-d", "0.2", "-v", "bdevs", lines=24, columns=80) as s:
            s.wait("BDEV", "IOPS", "Null0", without=["ERRORS"])
            s.key(">" * 20)
            s.wait("BDEV", "Null0", "ERRORS", without=["IOPS"])
            s.key("<" * 20)
            s.wait("BDEV", "IOPS", "Null0", without=["ERRORS"])
            s.key("q")
            check(s.wait_end() == 0, s.status)


def test_it_ends_well_by_signals_and_with_its_terminal():
    with Daemon() as d:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            with Screen("-s", d.path, "-d", "0.1") as s:
                s.wait("LCORE")
                os.kill(s.pid, number)
                check(s.wait_end() == 0, f"{number.name}: {s.status}")
        # nohup, and then the terminal is closed: it does not spin on what has no keys any more
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            s = Screen("-s", d.path, "-d", "0.1")
        finally:
            signal.signal(signal.SIGHUP, before)
        try:
            s.wait("LCORE")
            os.close(s.fd)
            wait_for(lambda: os.waitpid(s.pid, os.WNOHANG)[0], "varve-top to end without its terminal")
        except Exception:
            os.kill(s.pid, 9)
            raise
        for term in ("nosuchterm", ""):
            with Screen("-s", d.path, term=term) as s:
                check(s.wait_end() == 2 and f'TERM is "{term}"' in s.text(), f"{term}: {s.status} {s.text()}")
        with Screen("-s", d.path, stdin="/dev/null") as s:
            check(s.wait_end() == 2 and "stdin is no terminal" in s.text(), f"{s.status} {s.text()}")


def test_objects_may_come_and_go_and_the_daemon_restart():
    with Daemon() as d:
        with Screen("-s", d.path, "-d", "0.1", "-v", "bdevs") as s:
            s.wait("BDEV")
            for i in range(10):
                d.call("bdev_null_create", name=f"Null{i}", num_blocks=1024, block_size=512)
                s.wait(f"Null{i}")
                d.call("bdev_null_delete", name=f"Null{i}")
            s.wait("BDEV", without=["Null9"])
            d.call("bdev_null_create", name="Last", num_blocks=1024, block_size=512)
            s.wait("Last")
            d.process.kill()
            d.process.wait()
            s.wait("No answer", "Last")
            with Daemon(path=d.path) as again:
                s.wait(f"process {again.pid}", without=["No answer", "Last"])
                s.key("q")
                check(s.wait_end() == 0, s.status)


# What spdk_top makes of each object: the members it wants, with their types, and those it can do without. It refuses an object in which
# one is missing, or that has another.
STOCK = {
    "thread": ({"name": str, "id": int, "cpumask": str, "busy": int, "idle": int, "active_pollers_count": int, "timed_pollers_count": int,
                "paused_pollers_count": int}, {}),
    "pollers": ({"name": str, "id": int, "active_pollers": list, "timed_pollers": list, "paused_pollers": list}, {}),
    "poller": ({"name": str, "id": int, "state": str, "run_count": int, "busy_count": int}, {"period_ticks": int}),
    "reactor": ({"lcore": int, "tid": int, "busy": int, "idle": int, "in_interrupt": bool, "irq": int, "sys": int,
                 "usr": int, "numa_id": int, "lw_threads": list}, {"core_freq": int}),
    "lw_thread": ({"name": str, "id": int, "cpumask": str, "elapsed": int}, {}),
    "channels": ({"name": str, "id": int, "io_channels": list}, {}),
    "channel": ({"name": str, "ref": int}, {}),
}


def stock(kind, objects):
    """Objects decode as a stock client does it; there is one at least."""
    wanted, optional = STOCK[kind]
    check(objects, f"no {kind}")
    for o in objects:
        check(wanted.keys() <= o.keys() and o.keys() <= wanted.keys() | optional.keys(), (kind, o))
        for key, value in o.items():
            check(type(value) is {**wanted, **optional}[key] and (type(value) is not int or value >= 0), (kind, key, o))


def jiffies():
    """Of each CPU in programs, in the kernel and in interrupts."""
    cpus = [line.split() for line in open("/proc/stat", encoding="ascii") if line.startswith("cpu") and not line.startswith("cpu ")]
    return {int(c[0][3:]): (int(c[1]), int(c[3]), int(c[6]) + int(c[7])) for c in cpus}


def test_a_stock_top_gets_what_it_expects():
    """The calls that spdk_top makes, in its order, decoded as strictly as it does."""
    with busy_target() as d:
        check(d.call("framework_wait_init") is True, "framework_wait_init")
        earlier = jiffies()
        reactors = d.call("framework_get_reactors")
        later = jiffies()
        for r in reactors["reactors"]:
            times = [earlier[r["lcore"]], (r["usr"], r["sys"], r["irq"]), later[r["lcore"]]]
            check(all(a <= b <= c for a, b, c in zip(*times)) and any(times[1]), f"lcore {r['lcore']}: user, system, interrupts: {times}")
        check(isinstance(reactors["tick_rate"], int) and reactors["pid"] == d.pid, reactors)
        stock("reactor", reactors["reactors"])
        stock("lw_thread", [t for r in reactors["reactors"] for t in r["lw_threads"]])
        threads = d.call("thread_get_stats")
        check(isinstance(threads["tick_rate"], int), threads)
        stock("thread", threads["threads"])
        pollers = d.call("thread_get_pollers")["threads"]
        stock("pollers", pollers)
        stock("poller", [p for t in pollers for k in ("active_pollers", "timed_pollers", "paused_pollers") for p in t[k]])
        check(all(p["period_ticks"] > 0 for t in pollers for p in t["timed_pollers"]), pollers)
        check({t["id"] for t in pollers} == {t["id"] for t in threads["threads"]}, "threads")
        channels = d.call("thread_get_io_channels")["threads"]
        stock("channels", channels)
        stock("channel", [c for t in channels for c in t["io_channels"]])
        scheduler = d.call("framework_get_scheduler")
        check(scheduler.get("governor_name") is None and d.call("framework_get_governor") == {}, "a governor, though the scheduler is static")
        check(type(scheduler["scheduler_period"]) is int and type(scheduler["scheduler_name"]) is str, scheduler)
        version = d.call("spdk_get_version")
        check(isinstance(version["version"], str) and {"major", "minor", "patch", "suffix"} <= set(version["fields"]), version)


def test_what_is_ours_is_told_on_demand():
    with busy_target() as d:
        for method, list_of, ours in (("framework_get_reactors", lambda a: a["reactors"], {"sleeps"}),
                                      ("thread_get_stats", lambda a: a["threads"],
                                       {"lcore", "timers_count", "descriptors_count", "channels_count", "pending_messages"}),
                                      ("thread_get_pollers", lambda a: [p for t in a["threads"] for p in t["active_pollers"]], {"ticks"})):
            plain, detailed = list_of(d.call(method)), list_of(d.call(method, detail=True))
            check(plain and detailed and all(o.keys() - ours == plain[0].keys() and ours <= o.keys() for o in detailed), detailed)


if __name__ == "__main__":
    main(sys.modules[__name__])
