#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# sanitize
# limit: 400
# beside
"""Truncated, scrambled and foreign files under every option of varve-trace: a message and status 1, or what is left of it; never a crash,
never a document that cannot be parsed."""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, check, main

TOOL = BUILD / "bin" / "varve-trace"
LIMIT = 200

# Name: options; OUT is a path that does not exist yet.
VIEWS = {
    "text": [], "json": ["-j"], "ticks": ["-t"], "summary": ["--summary"], "by owner": ["--by-owner"],
    "summary json": ["--summary", "-j"], "slowest": ["--slowest", "5"], "slowest json": ["--slowest", "5", "-j"],
    "life": ["--life", "r1"], "age": ["--age", "1ms"], "unfinished": ["--unfinished", "--slowest", "3"], "window": ["--last", "1ms"],
    "filter": ["-l", "group=bdev,owner=host1"], "lcore": ["-c", "1"], "perfetto": ["--perfetto", "OUT"], "ctf": ["--ctf", "OUT"],
    "html": ["--html", "OUT"], "follow": ["-F", "--from-start", "--for", "1ms"],
    "record": ["--record", "OUT", "--from-start", "--for", "1ms", "--entries", "1024"],
}


def sample():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sample"
        subprocess.run([BUILD / "bench" / "trace-sample", path, "40", "2", "20", "1"], check=True, timeout=LIMIT)
        return path.read_bytes()


def view(folder, path, name):
    out = folder / "out"
    options = [out if o == "OUT" else o for o in VIEWS[name]]
    p = subprocess.run([TOOL, "-f", path, *map(str, options)], capture_output=True, timeout=LIMIT)
    check(p.returncode in (0, 1), f"{name}: status {p.returncode}: {p.stderr[-600:].decode(errors='replace')}")
    check(b"Sanitizer" not in p.stderr and b"runtime error:" not in p.stderr, f"{name}: {p.stderr[-3000:].decode(errors='replace')}")
    check(p.returncode == 0 or p.stderr.startswith(b"varve-trace: "), f"{name}: no message: {p.stderr[:200]}")
    if p.returncode == 0 and "-j" in options:
        json.loads(p.stdout)
    if p.returncode == 0 and name == "perfetto":
        json.loads(out.read_text())
    if p.returncode == 0 and name == "html":
        text = out.read_text()
        json.loads(text.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    shutil.rmtree(out, ignore_errors=True)
    if out.exists():
        out.unlink()
    return p.returncode


def test_what_is_no_trace_file_is_refused_by_every_view():
    with tempfile.TemporaryDirectory() as name:
        folder, whole = pathlib.Path(name), sample()
        inputs = {"empty": b"", "text": b"no trace\n" * 100, "zeroes": bytes(8192), "ones": b"\xff" * 8192, "header": whole[:112]}
        for what, content in inputs.items():
            path = folder / what
            path.write_bytes(content)
            for v in VIEWS:
                check(view(folder, path, v) == 1, f"{what} was accepted by {v}")
        os.mkfifo(folder / "fifo")
        for path in (folder / "fifo", folder, "/dev/null", folder / "absent"):
            check(view(folder, path, "text") == 1, f"{path} was accepted")


def test_truncated_files_yield_what_is_left_or_a_message():
    with tempfile.TemporaryDirectory() as name:
        folder, whole = pathlib.Path(name), sample()
        path = folder / "cut"
        for part in (0.02, 0.5, 0.86, 0.97):
            path.write_bytes(whole[:int(len(whole) * part)])
            for v in VIEWS:
                view(folder, path, v)


def test_scrambled_files_never_crash_a_view():
    with tempfile.TemporaryDirectory() as name:
        folder, whole = pathlib.Path(name), sample()
        path, chance = folder / "scrambled", random.Random(6)
        tables = len(whole) - 2 * 48 * 1024     # rings are at the end
        for n in range(4):
            content = bytearray(whole)
            for _ in range(40):
                at = chance.randrange(16 if n % 2 else tables, len(whole))
                content[at:at + 8] = chance.randbytes(min(8, len(whole) - at))
            path.write_bytes(content)
            for v in VIEWS:
                view(folder, path, v)


def test_output_that_cannot_be_written_is_an_error():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "sample"
        path.write_bytes(sample())
        for options in ([], ["-j"], ["--summary"], ["--slowest", "2"]):
            with open("/dev/full", "wb") as full:
                p = subprocess.run([TOOL, "-f", path, *options], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
            check(p.returncode == 1 and "No space left" in p.stderr, f"{options}: {p.returncode} {p.stderr}")


if __name__ == "__main__":
    main(sys.modules[__name__])
