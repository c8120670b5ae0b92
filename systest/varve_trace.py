#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# sanitize
# limit: 400
# beside
"""varve-trace on a file that a stock target (SPDK 26.05) wrote, against what the stock reader printed for it, and varve-trace's options.

The stock output was made with the stock reader's own flaws. Where they could make a difference:
 - Its merge is keyed by (tsc, lcore), so of two events of one lcore with the same tsc one is lost. There are none such in the sample
   (checked below), so not one event may differ.
 - Its text has times from 32-bit floats: at 6.5 s since the start they are rounded to half a microsecond, and so are the ages of old
   objects. The text comparison therefore allows a time to differ by the float's rounding, and everything else not at all. The JSON has
   integers and must be equal.
"""
import collections
import fcntl
import json
import lzma
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
TOOL = Path(os.environ.get("VARVE_BUILD", TOP / "build")) / "bin" / "varve-trace"
SAMPLE = "stock_nvmf_trace.pid29299"


def sample(suffix=""):
    return lzma.open(TOP / "unittest" / "data" / (SAMPLE + suffix + ".xz")).read()


def run(*args, status=0):
    p = subprocess.run([TOOL, *map(str, args)], capture_output=True, timeout=60)
    assert p.returncode == status, f"{args}: status {p.returncode}, expected {status}: {p.stderr.decode()[:300]}"
    return p.stdout.decode(), p.stderr.decode()


def lines(*args):
    """The event lines of a text output."""
    return [l for l in run(*args)[0].splitlines() if re.match(r".{16} +\d+: ", l)]


class Work:
    """A folder with the unpacked sample, as it lies in /dev/shm."""

    def __init__(self, folder):
        self.dir = Path(folder)
        self.file = self.dir / SAMPLE
        self.bytes = sample()
        self.file.write_bytes(self.bytes)


# ---- Against the stock reader ----

def test_json_is_the_stock_readers_event_for_event(w):
    stock = json.loads(sample(".json"))
    ours = json.loads(run("-f", w.file, "-j")[0])
    for key in ("tsc_rate", "tpoints", "owners"):
        assert ours[key] == stock[key], f"{key} differs"
    same_tsc = collections.Counter((e["lcore"], e["tsc"]) for e in ours["entries"])
    assert max(same_tsc.values()) == 1, "two events have one tsc: the stock reader would have lost one"
    assert len(ours["entries"]) == len(stock["entries"]), f"{len(ours['entries'])} events, not {len(stock['entries'])}"
    for n, (a, b) in enumerate(zip(ours["entries"], stock["entries"])):
        a.pop("state", None)  # ours alone
        for key in a.keys() | b.keys():
            assert a.get(key) == b.get(key), f"event {n}, {key}: {a.get(key)}, stock has {b.get(key)}"


def test_text_is_the_stock_readers_but_for_its_float_times(w):
    def take_apart(line):
        line = re.sub(r" since: .*", "", line)  # ours alone
        times = re.findall(r"\d+\.\d{3}(?= )", line)
        return re.sub(r" +\d+\.\d{3} +", " T ", line + " ").rstrip(), [float(t) for t in times]

    def float_step(us):
        return max(2.0 ** -23 * us * 2, 0.001)

    stock, ours = sample(".txt").decode().splitlines(), run("-f", w.file)[0].splitlines()
    assert len(stock) == len(ours), f"{len(ours)} lines, not {len(stock)}"
    for n, (a, b) in enumerate(zip(ours, stock)):
        (a_text, a_times), (b_text, b_times) = take_apart(a), take_apart(b)
        assert a_text == b_text, f"line {n}: {a_text!r}, stock has {b_text!r}"
        assert len(a_times) == len(b_times)
        for x, y in zip(a_times, b_times):
            assert abs(x - y) <= float_step(max(x, y)), f"line {n}: time {x}, stock has {y}"


# ---- Choosing events ----

def test_filters_choose_by_tracepoint_group_owner_object_and_text(w):
    entries = json.loads(run("-f", w.file, "-j")[0])["entries"]

    def count(condition):
        n = sum(1 for e in entries if condition(e))
        assert n > 0
        return n

    cases = [
        (["-l", "tpoint=BDEV_IO_*"], count(lambda e: e["tpoint"] in (192, 193))),
        (["-l", "bdev_io_start"], count(lambda e: e["tpoint"] == 192)),
        (["-l", "group=bdev"], count(lambda e: e["tpoint"] // 64 == 3)),
        (["-l", "group=0x3,group=thread"], count(lambda e: e["tpoint"] // 64 in (3, 10))),
        (["-l", "owner=cnode2"], count(lambda e: "cnode2" in e.get("owner", ""))),
        (["-l", "owner=t262"], count(lambda e: e.get("poller") == "t262")),
        (["-l", "object=r41"], count(lambda e: "r41" in (e.get("object", {}).get("id"), e.get("related")))),
        (["--object", "r41"], count(lambda e: "r41" in (e.get("object", {}).get("id"), e.get("related")))),
        (["-l", "object=0x7f96454f9070"], count(lambda e: e.get("object", {}).get("value") == 0x7f96454f9070)),
        (["-l", "group=bdev,owner=bdev_Null0"],
         count(lambda e: e["tpoint"] // 64 == 3 and e.get("owner") == "bdev_Null0")),
        (["-l", "group=bdev", "-l", "object=r41"],
         count(lambda e: e["tpoint"] // 64 == 3 and e.get("related") == "r41")),
        (["-c", "0"], len(entries)),
    ]
    for args, expected in cases:
        got = len(lines("-f", w.file, *args))
        assert got == expected, f"{args}: {got} events, expected {expected}"


def test_a_life_is_one_request_from_end_to_end(w):
    entries = json.loads(run("-f", w.file, "-j", "--life", "i26")[0])["entries"]
    ids = {e["object"]["id"] for e in entries}
    assert ids == {"r41", "i26", "s52"}, ids
    assert len(entries) == 15 and entries[0]["tpoint"] == 320 and entries[-1]["tpoint"] == 333, len(entries)


def test_time_windows_are_exact(w):
    every = json.loads(run("-f", w.file, "-j")[0])
    first, last = every["first_tsc"], every["entries"][-1]["tsc"]
    for args, low, high in (
            (["--since", "5628594.845us"], first + 2 * 5628594845, last),
            (["--until", "5628594.845us"], first, first + 2 * 5628594845),
            (["--since", "5.6s", "--until", "5.7s"], first + 2 * 5600000000, first + 2 * 5700000000),
            (["--last", "1ms"], last - 2000000, last)):
        expected = [e for e in every["entries"] if low <= e["tsc"] <= high]
        got = json.loads(run("-f", w.file, "-j", *args)[0])["entries"]
        assert expected and got == expected, f"{args}: {len(got)} events, expected {len(expected)}"


def test_ticks_are_the_tscs(w):
    got = lines("-f", w.file, "-t", "--life", "r41")
    tsc = [e["tsc"] for e in json.loads(run("-f", w.file, "-j", "--life", "r41")[0])["entries"]]
    assert [int(l.split(":")[1].split()[0]) for l in got] == tsc


# ---- Time per state ----

def test_the_summary_is_what_the_events_say(w):
    document = json.loads(run("-f", w.file, "-j")[0])
    times = collections.defaultdict(list)
    for e in document["entries"]:
        if "state" in e:
            times[e["state"]["tpoint"]].append(e["state"]["time"])
    states = {s["tpoint"]: s for s in json.loads(run("-f", w.file, "-j", "--summary")[0])["states"]}
    assert states.keys() == times.keys() and len(states) > 10
    for tpoint, s in states.items():
        t = sorted(times[tpoint])
        rank = lambda percent: t[(len(t) * percent + 99) // 100 - 1]
        thousandth = t[(len(t) * 999 + 999) // 1000 - 1]
        expected = (len(t), t[0], rank(50), rank(90), rank(99), thousandth, t[-1], sum(t))
        got = tuple(s[k] for k in ("count", "min", "median", "p90", "p99", "p999", "max", "total"))
        assert got == expected, f"{s['name']}: {got}, expected {expected}"
    text = run("-f", w.file, "--summary")[0]
    assert re.search(r"^TCP_REQ_EXECUTING +212 +0\.394 +1\.694 ", text, re.M), text


def made_up(w, requests=400, lcores=2, slow_every=100, unfinished=1):
    """A trace of a busy target: 16 events a request, some slow in the drive, some never finished."""
    path = w.dir / "made_trace.1"
    subprocess.run([TOOL.parent.parent / "bench" / "trace-sample", path, *map(str, (requests, lcores, slow_every, unfinished))],
                   check=True, timeout=60)
    return path


def objects_of(entries):
    """By id: when it began, when its last event was, the owners and states of its events, its parent."""
    objects = {}
    for e in entries:
        o = objects.setdefault(e["object"]["id"], {"start": e["tsc"], "owner": None, "parent": None, "states": []})
        o["last"] = e["tsc"]
        o["owner"] = o["owner"] or e.get("owner")
        o["parent"] = o["parent"] or e.get("related")
        o["tpoint"] = e["tpoint"]
        if "state" in e:
            o["states"].append(e["state"]["time"])
    return objects


def test_the_summary_by_owner_is_what_the_events_say(w):
    path = made_up(w)
    document = json.loads(run("-f", path, "-j")[0])
    objects = objects_of(document["entries"])
    end = next(t["id"] for t in document["tpoints"] if t["name"] == "RDMA_REQ_COMPLETED")
    times = collections.defaultdict(list)
    for name, o in objects.items():
        if name[0] == "r" and o["tpoint"] == end:
            times[o["owner"]].append(o["last"] - o["start"])
    summary = json.loads(run("-f", path, "-j", "--summary")[0])
    rows = {r["owner"]: r for r in summary["by_owner"] if r["object_prefix"] == "r"}
    assert rows.keys() == times.keys() and len(rows) == 8, rows.keys()
    for owner, row in rows.items():
        t = sorted(times[owner])
        assert (row["count"], row["min"], row["max"], row["total"]) == (len(t), t[0], t[-1], sum(t)), owner
        assert sum(s["total"] for s in row["states"]) >= row["total"]
    requests = next(r for r in summary["lives"] if r["object_prefix"] == "r")
    assert (requests["count"], requests["unfinished"]) == (798, 2), requests
    text = run("-f", path, "--by-owner")[0]
    assert "Not finished: 2 objects r" in text and re.search(r"^    RDMA_REQ_EXECUTING ", text, re.M), text
    assert re.search(r"^Nvme0n1\n  objects i .* 100.0% in BDEV_IO_START$", text, re.M), text


def test_the_summary_by_owner_shows_requests_with_the_bdev_that_served_them(w):
    path = made_up(w)
    document = json.loads(run("-f", path, "-j")[0])
    objects = objects_of(document["entries"])
    end = next(t["id"] for t in document["tpoints"] if t["name"] == "RDMA_REQ_COMPLETED")
    times, states = collections.defaultdict(list), collections.Counter()
    for name, o in objects.items():
        parent = objects.get(o["parent"])
        if name[0] == "i" and parent is not None and parent["tpoint"] == end:
            times[o["owner"]].append(parent["last"] - parent["start"])
            states[o["owner"]] += sum(parent["states"])
    by_owner = json.loads(run("-f", path, "-j", "--by-owner")[0])["by_owner"]
    rows = {r["owner"]: r for r in by_owner if r["object_prefix"] == "r" and r["owner"] in times}
    assert rows.keys() == times.keys() and times, rows.keys()
    for owner, row in rows.items():
        assert (row["count"], row["max"], row["total"]) == (len(times[owner]), max(times[owner]), sum(times[owner])), owner
        assert sum(s["total"] for s in row["states"]) >= states[owner], owner
    text = run("-f", path, "--by-owner")[0]
    assert re.search(r"^Nvme0n1\n  objects r .*(\n    RDMA_REQ_.*){3}", text, re.M), text


def test_the_slowest_come_with_their_chain_and_the_state_to_blame(w):
    path = made_up(w)
    objects = objects_of(json.loads(run("-f", path, "-j")[0])["entries"])
    expected = sorted((o["last"] - o["start"] for n, o in objects.items() if n[0] == "r" and len(o["states"]) == 9), reverse=True)
    slowest = json.loads(run("-f", path, "-j", "--slowest", "7")[0])["slowest"]
    finished = [s["time"] for s in slowest if s["finished"]]
    assert finished == expected[:len(finished)] and len(finished) >= 5, (finished, expected[:7])
    assert [s["time"] for s in slowest] == sorted((s["time"] for s in slowest), reverse=True)
    for s in slowest:
        assert s["culprit"]["name"] == "NVME_PCIE_SUBMIT" and s["culprit"]["id"][0] == "p", s["culprit"]
        assert s["culprit"]["owner"] == "0000:01:00.0 qid:1"
        ids = {e["object"]["id"][0] for e in s["entries"]}
        assert ids == set("riNp") and len(s["entries"]) == (16 if s["finished"] else 8), (ids, len(s["entries"]))
        assert all(s["entries"][i]["tsc"] <= s["entries"][i + 1]["tsc"] for i in range(len(s["entries"]) - 1))
    text = run("-f", path, "--slowest", "7")[0]
    assert re.search(r"^r\d+ took 20\d+\.\d+ us, of which 20\d+\.\d+ \(99%\) after NVME_PCIE_SUBMIT of p\d+, 0000:01:00.0 qid:1$",
                     text, re.M), text
    hosts = json.loads(run("-f", path, "-j", "--slowest", "100", "-l", "owner=host2")[0])["slowest"]
    assert len(hosts) == 100 and all("host2" in s["entries"][0]["owner"] for s in hosts)


def test_objects_are_chosen_by_age_and_by_not_having_finished(w):
    path = made_up(w)
    objects = objects_of(json.loads(run("-f", path, "-j")[0])["entries"])
    old = {n for n, o in objects.items() if o["last"] - o["start"] >= 2000 * 10000}
    entries = json.loads(run("-f", path, "-j", "--age", "10ms")[0])["entries"]
    waiting = json.loads(run("-f", path, "-j", "--unfinished")[0])["entries"]
    ids, unfinished = {e["object"]["id"] for e in entries}, {e["object"]["id"] for e in waiting}
    assert old and old <= ids and ids - old <= unfinished, (ids ^ old)
    assert sorted(i[0] for i in unfinished) == sorted("riNp" * 2), unfinished
    slowest = json.loads(run("-f", path, "-j", "--slowest", "9", "--unfinished")[0])["slowest"]
    assert len(slowest) == 2 and not any(s["finished"] for s in slowest)


def test_states_are_times_between_an_objects_events(w):
    last = {}
    for e in json.loads(run("-f", w.file, "-j")[0])["entries"]:
        key = e.get("object", {}).get("id")
        if key is None:
            continue
        expected = {"tpoint": last[key][0], "time": e["tsc"] - last[key][1]} if key in last else None
        assert e.get("state") == expected, e
        last[key] = e["tpoint"], e["tsc"]


# ---- Files ----

def test_without_options_the_most_recent_file_is_read(w):
    old = w.dir / "varve_trace.pid7"
    old.write_bytes(w.bytes)
    os.utime(old, (1, 1))
    (w.dir / "nonsense_trace.pid8").write_bytes(b"no trace")  # newer, but no trace file
    out, err = run("-d", w.dir)
    assert SAMPLE in err and len(out) > 1000000, err
    assert "varve_trace.pid7" in run("-d", w.dir, "-s", "varve")[1]
    run("-d", w.dir, "-p", "7")
    run("-d", w.dir, "-s", "stock_nvmf", "-p", "29299")
    (w.dir / "varve_trace.3").write_bytes(w.bytes)
    run("-d", w.dir, "-i", "3")
    assert "varve_trace.4" in run("-d", w.dir, "-i", "4", status=1)[1]
    assert "no readable trace file of other" in run("-d", w.dir, "-s", "other", status=1)[1]


def with_info(stock):
    """The sample with a section INFO, as ours have it."""
    sections = struct.unpack_from("<7Q", stock, 16)
    out = bytearray(stock[:16]) + bytearray(80) + bytearray(stock[72:])
    shift = 80 - 56
    struct.pack_into("<QH", out, 0, len(out) + 2048, 9)
    struct.pack_into("<9Q", out, 16, *(s + shift for s in sections), 0, len(out))
    lcores = sections[6] + shift + 128
    offset, = struct.unpack_from("<Q", out, lcores)
    struct.pack_into("<Q", out, lcores, offset + shift)
    return bytes(out) + struct.pack("<HH", 1, 64) + bytes(2044)


def test_list_and_remove_dead_go_by_the_lock(w):
    ours = with_info(w.bytes)
    live, dead = w.dir / "varve_trace.pid1", w.dir / "varve_trace.pid2"
    stock = w.dir / f"nvmf_trace.pid{os.getpid()}"  # its "writer" runs
    w.file.unlink()
    for f, content in ((live, ours), (dead, ours), (stock, w.bytes)):
        f.write_bytes(content)
    with open(live) as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        listed = {l.split()[-1]: l.split()[0] for l in run("-d", w.dir, "--list")[0].splitlines()[1:]}
        assert listed == {str(live): "live", str(dead): "dead", str(stock): "unknown"}, listed
        out = run("-d", w.dir, "--remove-dead")[0]
    assert out == f"removed {dead}\n", out
    assert live.exists() and stock.exists() and not dead.exists()


def test_damaged_files_are_refused_or_read_in_part_but_never_crash_it(w):
    for size in (0, 10, 100, 3000, 2342700):
        w.file.write_bytes(w.bytes[:size])
        err = run("-f", w.file, status=1)[1]
        assert str(w.file) in err, err
    w.file.write_bytes(w.bytes[:2400000])
    out, err = run("-f", w.file, "-j")
    assert "truncated" in err and len(json.loads(out)["entries"]) > 1000, err
    for where in range(0, 2400000, 7919):
        scrambled = bytearray(w.bytes)
        scrambled[where:where + 64] = bytes((b * 31 + where) & 0xff for b in range(64))
        if where % 4 == 0:
            continue  # every fourth is enough
        w.file.write_bytes(scrambled)
        p = subprocess.run([TOOL, "-f", w.file, "-j"], capture_output=True, timeout=60)
        assert p.returncode in (0, 1), f"at {where}: {p.returncode} {p.stderr.decode()[:500]}"
        if p.returncode == 0:
            json.loads(p.stdout)


def test_hostile_texts_are_escaped(w):
    scrambled = bytearray(w.bytes)
    at = scrambled.index(b"bdev_Null0\0")
    hostile = b'\x1b[2J"\\\xff\xc3\xa4\0'
    scrambled[at:at + len(hostile)] = hostile
    w.file.write_bytes(scrambled)
    assert json.loads(run("-f", w.file, "-j")[0])["owners"]["259"] == '\x1b[2J"\\\ufffd\u00e4'
    assert '\\x1b[2J"\\\\xff\u00e4' in run("-f", w.file)[0]


# ---- Following ----

def test_following_a_file_that_nobody_writes_ends_with_it(w):
    w.file.write_bytes(with_info(w.bytes))
    every = [re.sub(r"^(.{16} +\d+:) +\S+", r"\1", l).split() for l in lines("-f", w.file)]
    followed, err = run("-f", w.file, "-F", "--from-start")
    got = [re.sub(r"^(.{16} +\d+:) +\S+", r"\1", l).split() for l in followed.splitlines()]
    assert "is gone" in err and got == every, (err, len(got), len(every))
    document = json.loads(run("-f", w.file, "-F", "--from-start", "-j")[0])
    assert len(document["entries"]) == len(every)


def test_following_a_dead_stock_targets_file_ends(w):
    """No lock tells of its writer; the process id in its name does, as for --list."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    w.file.unlink()
    w.file = w.dir / f"nvmf_trace.pid{gone.pid}"
    w.file.write_bytes(w.bytes)
    assert "is gone" in run("-f", w.file, "-F")[1]
    assert "is gone" in run("-f", w.file, "--record", w.dir / "capture", "--entries", "1024")[1]


def test_following_ends_cleanly_when_interrupted(w):
    w.file.rename(w.dir / "a.copy")  # nothing says that its writer is gone
    w.file = w.dir / "a.copy"
    p = subprocess.Popen([TOOL, "-f", w.file, "-F", "--from-start", "-j"], stdout=subprocess.PIPE)
    begin = p.stdout.readline()  # it runs
    p.send_signal(signal.SIGINT)
    document = begin + p.stdout.read()
    assert p.wait(timeout=30) == 0
    json.loads(document)


def test_times_since_the_event_before(w):
    def times(*args):
        lines = [line for line in run("-f", w.file, *args)[0].splitlines() if re.match(r".{16} [ \d]\d: ", line)]
        return [round(1000 * float(re.match(r".{16} [ \d]\d: +([\d.]+)", line)[1])) for line in lines]
    for some in ([], ["-l", "tpoint=*_DONE"], ["-c", "0"]):
        since_first, since_before = times(*some), times("-T", *some)
        assert len(since_first) > 10 and since_before[0] == 0, some
        # Both are rounded down to nanoseconds.
        assert all(abs(b - a - d) <= 1 for a, b, d in zip(since_first, since_first[1:], since_before[1:])), some
    assert times("-T") == times("--delta")
    ticks, since = ([int(re.match(r".{16} [ \d]\d: +(\d+) ", line)[1]) for line in run("-f", w.file, "-t", *more)[0].splitlines()
                     if re.match(r".{16} [ \d]\d: ", line)] for more in ([], ["-T"]))
    assert since == [0] + [b - a for a, b in zip(ticks, ticks[1:])]


# ---- The command line ----

def test_wrong_input_is_an_error_that_names_it(w):
    for args, text in (
            (["-c", "x"], '-c: "x" is not a number from 0 to 65535'),
            (["-p", "-3"], '-p: "-3" is not a number'),
            (["--since", "5"], '--since: "5" is not a time; give a number with ns, us, ms or s'),
            (["--last", "1.ms"], '"1.ms" is not a time'),
            (["-l", "group=nope"], 'group "nope" is unknown; give one of'),
            (["-l", "object=nope"], '"nope" is neither an id such as r12'),
            (["-l", "object=0x"], '"0x" is neither an id such as r12'),
            (["-l", "object=0x7f00,object=0x7fzz"], '"0x7fzz" is neither an id such as r12'),
            (["--object", "0x10000000000000000"], '"0x10000000000000000" is neither an id such as r12'),
            (["-l", ""], "an empty filter"),
            (["--life", "12"], '"12" is not the id of an object'),
            (["-F", "--summary"], "-F goes with neither"),
            (["-F", "--slowest", "1"], "-F goes with neither"),
            (["--slowest", "0"], "how many?"),
            (["--slowest", "x"], '--slowest: "x" is not a number'),
            (["--summary", "--slowest", "1"], "different views"),
            (["--ctf", "a", "-j"], "only means something where something is printed"),
            (["--for", "1s"], "--for only means something with -F"),
            (["--record", "a", "--entries", "3"], "3 is not a power of two"),
            (["-F", "--perfetto", "a"], "need the whole trace"),
            (["--age", "1"], '--age: "1" is not a time'),
            (["--from-start"], "only means something with -F"),
            (["-f", "a", "-p", "1"], "give one of them"),
            (["-f", "a", "-s", "varve"], "-s only means something without it"),
            (["--list", "-p", "1"], "not at one file"),
            (["--remove-dead", "--summary"], "no other view goes with them"),
            (["--list", "-j"], "no other view goes with them"),
            (["-t", "-j"], "-t only means something where text is printed"),
            (["-t", "--html", "a"], "-t only means something where text is printed"),
            (["--entries", "1024"], "--entries only means something with --record"),
            (["a_file"], '"a_file" is no option'),
            (["-T", "-j"], "-T only means something where events are printed as text"),
            (["-T", "--summary"], "-T only means something where events are printed as text"),
            (["-l", "group=bdve"], 'or a number from 0 to 19; did you mean "bdev"?'),
            (["--sumary"], "varve-trace: did you mean --summary?"),
            (["--slowset=3"], "varve-trace: did you mean --slowest?"),
            (["--nonsense"], "--nonsense")):
        err = run(*args, status=2)[1]
        assert text in err, f"{args}: {err}"
    for name, more in (("NOPE", "\n"), ("BDEV_IO_STRAT", '; did you mean "BDEV_IO_START"?\n'), ("NOPE_*", "\n")):
        for option in ([], ["--summary"], ["-F", "--from-start", "--for", "1ms"]):
            said = run("-f", w.file, "-l", "tpoint=BDEV_IO_DONE", "-l", f"tpoint={name}", *option, status=1)
            assert said == ("", f'varve-trace: -l: no tracepoint is called "{name}"{more}'), said
    for path in ("/etc/passwd", "/etc/hostname", TOP / "README.md", TOOL):
        assert ": not a trace file" in run("-f", path, status=1)[1], path
    assert "no object r9999" in run("-f", w.file, "--life", "r9999", status=1)[1]
    assert "lcore 3 has no ring" in run("-f", w.file, "-c", "3", status=1)[1]
    assert "/nonexistent" in run("-f", "/nonexistent", status=1)[1]


def test_help_names_every_option_that_works(w):
    text = run("-h")[0]
    source = (TOP / "tools" / "varve-trace-options.c").read_text()
    for name in re.findall(r'^\t\{"([a-z-]+)", (?:no|required)_argument', source, re.M):
        assert f"--{name}" in text, name


def main():
    failed = False
    for name, test in list(globals().items()):
        if not name.startswith("test_") or not any(p in name for p in sys.argv[1:] or [""]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Work(folder))
                print("PASS", "varve_trace." + name, flush=True)
            except Exception as e:
                failed = True
                where = traceback.extract_tb(e.__traceback__)[-1].lineno
                print(f"FAIL varve_trace.{name}: line {where}: {type(e).__name__} {str(e)[:400]}", flush=True)
    return failed


sys.exit(main())
