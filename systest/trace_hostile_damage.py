#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# sanitize
# limit: 300
# beside
"""Trace files that are damaged in one place: each field of the heads set to extremes, the file cut at each border between sections and at random,
under the views of varve-trace in turn and under varve-doctor; and files that shrink, change or are replaced while they are followed.
VARVE_SEED chooses which view meets which damage."""
import fcntl
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

from appliance_lib import BUILD, DEADLINE, Daemon, check, main, wait_for
from trace_hostile import VIEWS, sample, view

SEED = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
TOOL, DOCTOR = BUILD / "bin" / "varve-trace", BUILD / "bin" / "varve-doctor"
SECTIONS = ("main", "owner", "mask", "owner_type", "object", "tpoint", "lcore", "stamps", "info", "loss")
# Fields of a section's head, of a ring's and of a tracepoint's: (offset, struct format)
SECTION_FIELDS = [(0, "H"), (2, "H"), (4, "I"), (0, "Q"), (8, "Q"), (16, "Q"), (24, "Q"), (128, "Q"), (136, "Q")]
RING_FIELDS = [(0, "i"), (24, "Q"), (32, "Q"), (40, "Q")]
TPOINT_FIELDS = [(0, "B"), (24, "H"), (26, "B"), (27, "B"), (28, "B"), (29, "B"), (44, "B"), (45, "B"), (158, "B"), (159, "B")]
CLOCK = 408     # of INFO: the first of its later clocks, after how many there were


def recorded():
    """What a daemon left behind: with stamps, INFO and LOSS."""
    with Daemon("-e", "rpc,thread", "--num-trace-entries", "256") as d:
        for _ in range(200):
            d.call("rpc_get_methods")
        d.stop()
        return d.trace_file.read_bytes()


class File:
    """A whole one, and where its parts are."""

    def __init__(self, content):
        self.content = content
        count, = struct.unpack_from("<H", content, 8)
        self.sections = dict(zip(SECTIONS, struct.unpack_from(f"<{count}Q", content, 16)))
        rings, = struct.unpack_from("<H", content, self.sections["lcore"])
        self.rings = [at for at in struct.unpack_from(f"<{rings}Q", content, self.sections["lcore"] + 128) if at != 0]
        self.tpoints = [at for at in range(self.sections["tpoint"] + 128, self.sections["lcore"] - 189, 190) if content[at] != 0]

    def fields(self):
        yield from ((f"header+{at}", at, kind) for at, kind in [(0, "Q"), (8, "H"), *((16 + 8 * i, "Q") for i in range(len(self.sections)))])
        for name, start in self.sections.items():
            if start != 0:
                yield from ((f"{name}+{at}", start + at, kind) for at, kind in SECTION_FIELDS)
        if self.sections.get("info"):
            yield from ((f"info+{at}", self.sections["info"] + at, "Q") for at in (200, 208, 240, 376, CLOCK - 8, CLOCK))
        for n, start in enumerate(self.rings[:2]):
            yield from ((f"ring {n}+{at}", start + at, kind) for at, kind in RING_FIELDS)
        for start in random.Random(SEED).sample(self.tpoints, 3):
            yield from ((f"tracepoint at {start}+{at}", start + at, kind) for at, kind in TPOINT_FIELDS)

    def damages(self):
        """(what it is, the bytes) for each extreme of each field."""
        for name, at, kind in self.fields():
            bits = 8 * struct.calcsize(kind)
            was = int.from_bytes(self.content[at:at + bits // 8], "little")
            for value in {0, 1, was - 1, was + 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << bits) - 1, (1 << bits) - 2} - {was}:
                changed = (value % (1 << bits)).to_bytes(bits // 8, "little")
                yield f"{name} is {value}, was {was}", self.content[:at] + changed + self.content[at + bits // 8:]

    def borders(self):
        starts = [16, 16 + 8 * len(self.sections), *self.sections.values(), *self.rings, *(at + 48 for at in self.rings), len(self.content)]
        return sorted({at + more for at in starts for more in (-1, 0, 1, 8) if 0 <= at + more < len(self.content)})

    def cuts(self):
        chance = random.Random(SEED)
        for at in [*self.borders(), *(chance.randrange(len(self.content)) for _ in range(40))]:
            yield f"cut to {at} of {len(self.content)} bytes", self.content[:at]


class Turns:
    """Each view meets the next damage in its turn, beginning anywhere."""

    def __init__(self, folder):
        self.folder, self.path, self.count = folder, folder / "damaged", 0
        self.names = random.Random(SEED).sample(sorted(VIEWS), len(VIEWS))
        self.refused = 0

    def show(self, what, content, views=2):
        self.path.write_bytes(content)
        for _ in range(views):
            self.count += 1
            try:
                self.refused += view(self.folder, self.path, self.names[self.count % len(self.names)])
            except Exception as e:
                raise type(e)(f"VARVE_SEED={SEED}: {what}: {e}") from None


def show_all(harm, views, least):
    """What harm(file) makes of both files, some views each; at least so many looks, of which some are refused."""
    with tempfile.TemporaryDirectory() as name:
        turns = Turns(pathlib.Path(name))
        for content in (recorded(), sample()):
            for what, damaged in harm(File(content)):
                turns.show(what, damaged, views)
        check(turns.count > least and 0 < turns.refused < turns.count, f"{turns.refused} of {turns.count} were refused")


def test_each_field_at_its_extremes_under_the_views_in_turn():
    print(f"VARVE_SEED={SEED}")
    show_all(File.damages, 1, 500)


def test_cuts_at_each_border_and_anywhere_under_the_views_in_turn():
    show_all(File.cuts, 2, 200)


def test_doctor_tells_of_damage_without_falling_over_it():
    with tempfile.TemporaryDirectory() as name:
        path, file = pathlib.Path(name) / "damaged", File(recorded())
        chosen = random.Random(SEED).sample(list(file.damages()), 12) + random.Random(SEED).sample(list(file.cuts()), 6)
        for what, content in chosen:
            path.write_bytes(content)
            p = subprocess.run([DOCTOR, "-t", path], capture_output=True, text=True, errors="replace", timeout=DEADLINE)
            check(p.returncode in (0, 1, 2) and "Traceback" not in p.stdout + p.stderr and p.stdout, f"VARVE_SEED={SEED}: {what}: {p.stdout}{p.stderr}")


# ---- While it is followed ----

class Followed:
    """A file that a writer, which is this process, seems to hold, and a follower that has printed what was there."""

    def __init__(self, folder, *options):
        self.path, self.out, self.err = folder / "followed", folder / "out", folder / "err"
        self.path.write_bytes(recorded())
        self.file = open(self.path, "r+b")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([TOOL, "-f", self.path, "-F", "--from-start", *options], stdout=out, stderr=err)

    def wait_printed(self):
        wait_for(lambda: self.out.stat().st_size > 1000 or self.process.poll() is not None, "events to be printed")
        check(self.process.poll() is None, f"it has ended: {self.err.read_text()}")
        return self

    def ends(self, status, words):
        check(self.process.wait(DEADLINE) == status, f"status {self.process.returncode}: {self.err.read_text()}")
        check(words in self.err.read_text(), f"{words} is not in {self.err.read_text()}")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.wait()
        self.file.close()


def test_a_file_that_shrinks_while_it_is_followed_is_an_error():
    for options in ([], ["-j"], ["-l", "group=rpc"]):
        for size in (0, 4096, None):    # None: within the first ring
            with tempfile.TemporaryDirectory() as name, Followed(pathlib.Path(name), *options) as f:
                f.wait_printed()
                os.truncate(f.path, File(f.path.read_bytes()).rings[0] + 40 if size is None else size)
                f.ends(1, "varve-trace: the file cannot be followed any longer: it has become shorter")
                if "-j" in options:
                    json.loads(f.out.read_text())


def test_a_file_that_is_replaced_while_it_is_followed_ends_with_its_writer():
    with tempfile.TemporaryDirectory() as name, Followed(pathlib.Path(name)) as f:
        f.wait_printed()
        other = pathlib.Path(name) / "other"
        other.write_bytes(b"something else\n" * 100)
        os.rename(other, f.path)
        f.file.close()
        f.ends(0, "the process that wrote this file is gone")


def test_a_file_whose_rings_begin_anew_while_it_is_followed_is_an_error():
    with tempfile.TemporaryDirectory() as name, Followed(pathlib.Path(name)) as f:
        f.wait_printed()
        for ring in File(f.path.read_bytes()).rings:
            os.pwrite(f.file.fileno(), bytes(8), ring + 40)
        f.ends(1, "varve-trace: the file cannot be followed any longer: its rings begin anew")


def test_damage_while_a_file_is_followed_or_captured_never_ends_in_a_crash():
    chance = random.Random(SEED)
    for n in range(6):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            capture = folder / "capture"
            with Followed(folder, *(["--record", capture, "--entries", "1024"] if n % 2 else [])) as f:
                if n % 2 == 0:
                    f.wait_printed()
                else:
                    wait_for(capture.exists, "the capture to begin")
                file = File(f.path.read_bytes())
                for _ in range(300):
                    at = chance.choice([chance.randrange(len(file.content) - 8), chance.choice(file.rings) + 40])
                    os.pwrite(f.file.fileno(), chance.randbytes(8), at)
                f.process.send_signal(signal.SIGINT)
                status = f.process.wait(DEADLINE)
                said = f.err.read_text(errors="replace")
                check(status in (0, 1) and "Sanitizer" not in said, f"VARVE_SEED={SEED}: status {status}: {said}")
                check(status == 0 or said.startswith("varve-trace: "), said)
            if capture.exists():
                p = subprocess.run([TOOL, "-f", capture], capture_output=True, timeout=DEADLINE)
                check(p.returncode in (0, 1) and (p.returncode == 0 or p.stderr) and b"Sanitizer" not in p.stderr,
                      f"VARVE_SEED={SEED}: the capture: {p.stderr}")


if __name__ == "__main__":
    main(sys.modules[__name__])
