#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# sanitize
# limit: 240
# beside
"""What varve-trace writes for other programs: Perfetto's JSON against a schema, CTF as babeltrace2 reads it, captures."""
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, TOP, check, main, wait_for

TOOL = BUILD / "bin" / "varve-trace"
REQUESTS, LCORES, EVENTS = 300, 2, 16
LIMIT = 200  # seconds for one program


def run(*args, status=0):
    p = subprocess.run([TOOL, *map(str, args)], capture_output=True, text=True, timeout=LIMIT)
    check(p.returncode == status, f"{args}: status {p.returncode}, expected {status}: {p.stderr[:300]}")
    return p.stdout, p.stderr


class Folder:
    """A folder with a made-up trace: some requests slow, the last of each lcore never finished."""

    def __enter__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="varve-export-"))
        self.file = self.dir / "made_trace.1"
        subprocess.run([BUILD / "bench" / "trace-sample", self.file, str(REQUESTS), str(LCORES), "100", "1"], check=True,
                       timeout=LIMIT)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir)

    def entries(self, *args):
        return json.loads(run("-f", self.file, "-j", *args)[0])["entries"]


# ---- Perfetto ----

NUMBER = (int, float)
# What the Chrome trace event format asks of each phase that is used: key -> type.
SCHEMA = {
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER, "args": dict},
    "i": {"name": str, "pid": int, "tid": int, "ts": NUMBER, "s": str, "args": dict},
    "s": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int},
    "f": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "id": int, "bp": str},
}


def check_schema(document):
    check(set(document) == {"displayTimeUnit", "otherData", "traceEvents"}, set(document))
    for e in document["traceEvents"]:
        wanted = SCHEMA.get(e.get("ph"))
        check(wanted is not None, f"unknown phase: {e}")
        check(set(e) == set(wanted) | {"ph"}, f"keys: {e}")
        for key, kind in wanted.items():
            check(isinstance(e[key], kind), f"{key}: {e}")
        check(e.get("ts", 0) >= 0 and e.get("dur", 0) >= 0, f"negative: {e}")
        check(e["ph"] != "M" or e["name"] in ("process_name", "thread_name") and isinstance(e["args"]["name"], str), e)
        check(e["ph"] != "i" or e["s"] in "gpt", e)


def ns(us):
    return round(us * 1000)


def slices_by_thread(events):
    threads = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            threads[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e))
    return threads


def check_nesting(threads):
    """Slices of a thread either nest or do not touch: otherwise a viewer draws nonsense."""
    for slices in threads.values():
        stack = []
        for begin, end, e in sorted(slices, key=lambda s: (s[0], -s[1], s[2]["cat"] != "object")):
            while stack and stack[-1] <= begin and not (stack[-1] == begin == end):
                stack.pop()
            check(not stack or end <= stack[-1], f"overlaps the slice before it: {e}")
            stack.append(end)


def perfetto(folder, *args):
    path = folder.dir / "perfetto.json"
    path.unlink(missing_ok=True)
    out, _ = run("-f", folder.file, "--perfetto", path, *args)
    check(out == "", out)
    document = json.loads(path.read_text())
    check_schema(document)
    check_nesting(slices_by_thread(document["traceEvents"]))
    return document["traceEvents"]


def test_perfettos_json_keeps_to_the_schema_and_has_every_object_and_state():
    with Folder() as f:
        events, entries = perfetto(f), f.entries()
        objects = {e["object"]["id"] for e in entries}
        slices = [e for e in events if e["ph"] == "X"]
        check({e["name"] for e in slices if e["cat"] == "object"} == objects, "objects")
        check(sum(e["cat"] == "state" for e in slices) == len(entries), "states")
        slow = max((e for e in slices if e["cat"] == "state" and e["name"] == "NVME_PCIE_SUBMIT"), key=lambda e: e["dur"])
        check(20000 <= slow["dur"] <= 21000 and slow["args"]["arg opc"] == "2", slow)
        check(sum(e["args"].get("finished") is False for e in slices) == 4 * LCORES, "unfinished")


def test_flows_lead_from_a_parents_slice_to_its_childs():
    with Folder() as f:
        events = perfetto(f)
        threads = slices_by_thread(events)
        ends = collections.defaultdict(dict)
        for e in events:
            if e["ph"] in "sf":
                ends[e["id"]][e["ph"]] = e
        check(len(ends) == 3 * REQUESTS * LCORES, f"{len(ends)} flows")

        def around(e):
            return [s for begin, end, s in threads[e["pid"], e["tid"]] if begin <= ns(e["ts"]) <= end]

        for pair in list(ends.values())[:60]:
            check(set(pair) == {"s", "f"}, pair)
            parent, child = around(pair["s"]), around(pair["f"])
            check(parent and any(s["cat"] == "object" and ns(s["ts"]) == ns(pair["f"]["ts"]) for s in child), pair)


def test_the_export_is_of_what_was_chosen():
    with Folder() as f:
        some = {e["name"] for e in perfetto(f, "--age", "10ms") if e.get("cat") == "object"}
        check(0 < len(some) < 60, len(some))
        stock = f.dir / "stock"
        subprocess.run(["sh", "-c", 'xz -dc "$1" > "$2"', "-", TOP / "unittest/data/stock_nvmf_trace.pid29299.xz", stock], check=True)
        f.file = stock
        check(any(e["ph"] == "i" for e in perfetto(f)), "no instants")


# ---- CTF ----

def babeltrace(path):
    p = subprocess.run(["babeltrace2", path], capture_output=True, text=True, timeout=LIMIT)
    check(p.returncode == 0, f"babeltrace2: {p.stderr[-500:]}")
    return p.stdout.splitlines()


def test_babeltrace_reads_the_same_events_with_the_same_times():
    if not shutil.which("babeltrace2"):
        print("SKIP trace_export.test_babeltrace_reads_the_same_events_with_the_same_times: babeltrace2 is not installed")
        return
    with Folder() as f:
        stock = f.dir / "stock_trace.2"
        subprocess.run(["sh", "-c", 'xz -dc "$1" > "$2"', "-", TOP / "unittest/data/stock_nvmf_trace.pid29299.xz", stock], check=True)
        for path in (f.file, stock):
            f.file = path
            document = json.loads(run("-f", path, "-j")[0])
            names = {t["id"]: t["name"] for t in document["tpoints"]}
            run("-f", path, "--ctf", f"{path}.ctf")
            read = babeltrace(f"{path}.ctf")
            check(len(read) == len(document["entries"]), f"{len(read)} events, expected {len(document['entries'])}")
            first = document["entries"][0]["tsc"]
            got, expected = collections.defaultdict(list), collections.defaultdict(list)
            for line, e in zip(read, document["entries"]):
                m = re.match(r"\[(\d+):(\d+):(\d+)\.(\d+)\] \(.*?\) (\S+): \{ cpu_id = (\d+) \}", line)
                h, minute, s, fraction, name, cpu = m.groups()
                got[int(cpu)].append((((int(h) * 60 + int(minute)) * 60 + int(s)) * 10**9 + int(fraction), name))
                expected[e["lcore"]].append(((e["tsc"] - first) * 10**9 // document["tsc_rate"], names[e["tpoint"]]))
            check(got.keys() == expected.keys(), "lcores")
            for lcore in got:
                # babeltrace2 turns ticks into nanoseconds by floating point: the last one may differ.
                for (at, name), (wanted_at, wanted_name) in zip(got[lcore], expected[lcore]):
                    check(name == wanted_name and abs(at - wanted_at) <= 1, f"{name} at {at}, expected {wanted_name} at {wanted_at}")
        io = next(line for line in babeltrace(f"{f.dir}/made_trace.1.ctf") if " BDEV_IO_START:" in line)
        for text in ('owner = "Nvme0n', "size = 8", 'id = "i0"', 'related = "r', "arg_offset = ", "arg_qd = 32"):
            check(text in io, f"{text} is not in {io}")


def test_nothing_is_written_over():
    with Folder() as f:
        kept = f.dir / "kept"
        kept.write_text("precious")
        for option in ("--perfetto", "--html", "--record"):
            check("File exists" in run("-f", f.file, option, kept, status=1)[1], option)
        run("-f", f.file, "--ctf", f.dir / "ctf")
        check("File exists" in run("-f", f.file, "--ctf", f.dir / "ctf", status=1)[1], "--ctf")
        check(kept.read_text() == "precious", "it was written over")
        check("only a page that varve-trace has made is replaced" in run("-f", f.file, "--html", kept, status=1)[1], "--html names no way out")


def test_a_page_is_replaced_by_a_page():
    with Folder() as f:
        page = f.dir / "page.html"
        run("-f", f.file, "--html", page)
        first = page.read_text()
        run("-f", f.file, "--html", page, "-l", "group=bdev")
        check(page.read_text() != first and page.read_text().startswith("<!DOCTYPE html>"), "the page is the old one")
        run("-f", f.file, "--html", page)
        check(page.read_text() == first and page.stat().st_mode & 0o777 == 0o600, "the page is another one")
        check("File exists" in run("-f", f.file, "--perfetto", page, status=1)[1], "--perfetto replaces pages")
        check(page.read_text() == first and {p.name for p in f.dir.iterdir() if "page" in p.name} == {"page.html"}, "something was left behind")

        # If the page cannot be written, the old one stays.
        limited = subprocess.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "sh", TOOL, "-f", f.file, "--html", page], capture_output=True, text=True)
        check(limited.returncode == 1 and "writing failed" in limited.stderr and page.read_text() == first, limited)
        check({p.name for p in f.dir.iterdir() if "page" in p.name} == {"page.html"}, "something was left behind")
        check("No such file" in run("-f", f.file, "--perfetto", "/nonexistent/x", status=1)[1], "no folder")


def test_what_is_written_is_for_its_owner_only():
    """The trace is; what is made of it names the same hosts."""
    before = os.umask(0)
    try:
        with Folder() as f:
            for option in ("--perfetto", "--html", "--ctf", "--record"):
                out = f.dir / option
                run("-f", f.file, option, out, *(["--entries", "1024", "--for", "1ms"] if option == "--record" else []))
                mode = out.stat().st_mode & 0o777
                check(mode == (0o700 if option == "--ctf" else 0o600), f"{option}: {mode:o}")
    finally:
        os.umask(before)


# ---- Captures ----

def test_a_capture_of_a_file_is_the_file():
    with Folder() as f:
        path = f.dir / "capture_trace.3"
        err = run("-f", f.file, "--record", path, "--from-start", "--for", "0.1s")[1]
        check(f"{REQUESTS * LCORES * EVENTS - 8 * LCORES} events" in err and "0 entries were lost" in err, err)
        check(json.loads(run("-f", path, "-j")[0])["entries"] == f.entries(), "the events differ")
        check(path.stat().st_size < 2 * f.file.stat().st_size + (1 << 20), "its size, though rings of 4194304 entries were asked for")
        none = f.dir / "none_trace.6"
        run("-f", f.file, "--record", none, "--for", "0.1s")
        check(none.stat().st_size < 4 << 20 and json.loads(run("-f", none, "-j")[0])["entries"] == [], f"an empty one has {none.stat().st_size} bytes")
        some = f.dir / "some_trace.4"
        run("-f", f.file, "--record", some, "--from-start", "--for", "0.1s", "-l", "group=bdev")
        check(len(json.loads(run("-f", some, "-j")[0])["entries"]) == len(f.entries("-l", "group=bdev")), "the filter")
        small = f.dir / "small_trace.5"
        run("-f", f.file, "--record", small, "--from-start", "--for", "0.1s", "--entries", "1024")
        rings = json.loads(run("-f", small, "-j")[0])["lcores"]
        check(all(r["num_entries"] == 1024 and r["lost"]["overwritten"] == r["written"] - 1024 for r in rings), rings)


def test_a_capture_of_a_busy_process_has_whole_events_and_counts_what_it_lost():
    """The writer is stopped with its file's ring lapped, so that entries are lost for certain."""
    with tempfile.TemporaryDirectory() as folder:
        writer = subprocess.Popen([BUILD / "unittest/trace/trace-writer"], stdout=subprocess.PIPE, text=True)
        source = pathlib.Path(writer.stdout.readline().strip())
        path = pathlib.Path(folder) / "capture_trace.1"
        try:
            p = subprocess.Popen([TOOL, "-f", source, "--record", path, "--entries", "65536"], stderr=subprocess.PIPE, text=True)
            wait_for(lambda: path.exists() and sum(r["written"] for r in rings_of(path)) > 1000, "the capture to have events", LIMIT)
            p.send_signal(signal.SIGSTOP)
            before = sum(r["written"] for r in rings_of(source))
            wait_for(lambda: sum(r["written"] for r in rings_of(source)) > before + 4 * 2 * 16384, "the rings to be lapped", LIMIT)
            p.send_signal(signal.SIGCONT)
            seen = sum(r["written"] for r in rings_of(path))
            wait_for(lambda: sum(r["written"] for r in rings_of(path)) > seen + 100, "the capture to go on", LIMIT)
            p.send_signal(signal.SIGINT)
            err = p.communicate(timeout=LIMIT)[1]
        finally:
            writer.kill()
            writer.wait()
            writer.stdout.close()
            source.unlink(missing_ok=True)
        check(p.returncode == 0, err)
        lost = int(re.search(r"; (\d+) entries were lost", err)[1])
        check(lost > 16384, err)
        document = json.loads(run("-f", path, "-j")[0])
        marks = [e for e in document["entries"] if e["tpoint"] == 1279]
        check(marks, "no mark says that entries were lost")
        check(sum(r["lost"]["missed"] for r in document["lcores"]) <= lost, "more is missed than was lost")
        last = 0
        for e in document["entries"]:
            check(e["tsc"] >= last, f"out of order: {e}")
            last = e["tsc"]
            if e["tpoint"] != 1279:
                seq, inverse, low, after = e["args"]
                check(inverse == seq ^ (2**64 - 1) and low == seq & (2**32 - 1) and after == seq + 1, f"torn: {e}")
        check("TRACE_LOST" in run("-f", path, "-l", "tpoint=TRACE_LOST")[0], "text")


def rings_of(path):
    """The counters of a file's rings. A summary: events as text would take the writer's time."""
    p = subprocess.run([TOOL, "-f", path, "-j", "--summary"], capture_output=True, text=True, timeout=LIMIT)
    return json.loads(p.stdout)["lcores"] if p.returncode == 0 else []


if __name__ == "__main__":
    main(sys.modules[__name__])
