#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 120
# beside
"""scripts/check.py on a small tree: it passes as it is, and each rule, broken once, is told with the file that breaks it."""
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from appliance_lib import DEADLINE, TOP, Skip, check, main

SPDX = "/* SPDX-License-Identifier: BSD-3-Clause */\n"
SPDX_PY = "# SPDX-License-Identifier: BSD-3-Clause\n"
MD = "<!-- SPDX-License-Identifier: BSD-3-Clause -->\n"
COPIED = ("scripts/check.py", "scripts/check_tracepoints.py", "scripts/doxygen_filter.py", ".clang-format", "doc/Doxyfile", "doc/glossary.md")
FILES = {
    "util/door.h": SPDX + "/* Doors. */\n#ifndef UTIL_DOOR_H\n#define UTIL_DOOR_H\n\n/* Opens a door. 0, or a negative errno. Any thread. */\n"
                          "int door_open(int number);\n\n#endif\n",
    "util/door.c": SPDX + '#include "util/door.h"\n\n#include <stdio.h>\n\nint door_open(int number)\n{\n\tTRACE(DOOR_OPEN, 0, 0, 0);\n'
                          '\treturn printf("%d is open", number);\n}\n',
    "thread/loop.c": SPDX + '#include "util/door.h"\n\nint loop_run(void)\n{\n\treturn door_open(1);\n}\n',
    "nvmf/internal.h": SPDX + "/* The room's own. */\nint nvmf_own(void);\n",
    "nvme/internal.h": SPDX + "/* The room's own. */\nint nvme_own(void);\n",
    "nvme/pcie/pcie.c": SPDX + "int nvme_pcie_poll(void)\n{\n\treturn 0;\n}\n",
    "bdev_modules/null/null.h": SPDX + "/* A kind of bdev. */\n",
    "bdev_modules/malloc/malloc.c": SPDX + "int malloc_bytes(void)\n{\n\treturn 0;\n}\n",
    "trace/tracepoints.def": SPDX + 'TRACE_TPOINT(DOOR, 0, DOOR_OPEN, NONE, NONE, OLD, "a door opens")\n',
    "doc/doors.md": MD + "# Doors\n\nSee `util/door.h` and [the words](glossary.md#words).\n",
    "CONTRIBUTING.md": MD + "A module is `bdev_modules/NAME/`.\n",
}
NEEDS = {"format": "clang-format", "doxygen": "doxygen", "function_names": "ctags", "prefixes": "ctags", "lengths": "ctags"}


class Tree:
    """A repository of its own."""

    def __init__(self, folder):
        self.top = folder
        for name in COPIED:
            self.write(name, (TOP / name).read_text())
        for name, text in FILES.items():
            self.write(name, text)
        for name in re.findall(r"`([a-z_]+/[\w./]*\w\.[ch])`", (TOP / "doc/glossary.md").read_text()):
            self.write(name, SPDX)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True, stdin=subprocess.DEVNULL)

    def write(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, rule):
        """Its status and its output."""
        p = subprocess.run([sys.executable, self.top / "scripts/check.py", rule], cwd=self.top, text=True, capture_output=True,
                           timeout=DEADLINE, stdin=subprocess.DEVNULL)
        return p.returncode, p.stdout + p.stderr

    def passes(self, rule):
        status, told = self.run(rule)
        check(status == 0 and told.strip() == f"PASS {rule}", f"{rule}: {told}")

    @contextlib.contextmanager
    def changed(self, name, text):
        path = self.top / name
        before = path.read_text() if path.exists() else None
        self.write(name, text)
        try:
            yield
        finally:
            path.unlink() if before is None else path.write_text(before)

    def told(self, rule, name, text, what):
        """With this file the rule fails, in one line, with this in it."""
        with self.changed(name, text):
            status, told = self.run(rule)
            check(status == 1 and told.startswith(f"FAIL {rule}: ") and what in told and told.count("FAIL") == 1, f"{rule}, {what}: {status}, {told}")


@contextlib.contextmanager
def tree(rule):
    if rule in NEEDS and not shutil.which(NEEDS[rule]):
        raise Skip(f"{NEEDS[rule]} is not installed")
    with tempfile.TemporaryDirectory(prefix="varve-check-") as folder:
        t = Tree(Path(folder))
        t.passes(rule)
        yield t


def function(name, lines=1):
    return f"int {name}(void)\n{{\n" + "\treturn 0;\n" * lines + "}\n"


def test_format():
    with tree("format") as t:
        t.told("format", "thread/loop.c", FILES["thread/loop.c"].replace("\treturn", "    return"), "thread/loop.c is not as .clang-format has it")
        t.told("format", ".clang-format", "BasedOnStyle: no-such-style\n", "clang-format: ")


def test_names_of_functions():
    with tree("function_names") as t:
        t.told("function_names", "thread/other.c", SPDX + "static " + function("door_open"), "door_open() is in thread/other.c, util/door.c")
    with tree("prefixes") as t:
        t.told("prefixes", "thread/other.c", SPDX + "static " + function("nvmf_find"), "thread/other.c: nvmf_find(): the prefix nvmf_ belongs to")


def test_lengths():
    with tree("lengths") as t:
        t.told("lengths", "thread/other.c", SPDX + function("other_run", 81), "thread/other.c: other_run() has ")
        t.told("lengths", "util/long.h", SPDX + "\n" * 1000, "util/long.h has 1001 lines")


def test_includes():
    with tree("includes") as t:
        for name, header, what in (
                ("util/up.c", '"thread/loop.h"', "util/up.c includes thread/loop.h: util/ may use nothing"),
                ("nvmf_rdma/up.c", '"nvmf/internal.h"', "nvmf/internal.h, which is private to nvmf/"),
                ("nvmf_rdma/up.c", '<nvmf/internal.h>', "headers of the tree are named from its top"),
                ("nvmf_rdma/up.c", '"../nvmf/internal.h"', "headers of the tree are named from its top"),
                ("bdev_modules/malloc/malloc.c", '"bdev_modules/null/null.h"', "a folder of bdev_modules/ may use of the others"),
                ("nvme/pcie/pcie.c", '"nvme/internal.h"', "a folder of nvme/ may use of the others"),
                ("attic/up.c", '"util/door.h"', "attic/up.c is in no room")):
            with t.changed("thread/loop.h", SPDX):
                t.told("includes", name, f"{SPDX}#include {header}\n", what)


def test_words():
    with tree("words") as t:
        t.told("words", "thread/other.c", SPDX + "/* A hopeless case. */\n", "/* A hopeless case. */': doc/glossary.md has another word")
        t.told("words", "thread/other.c", SPDX + 'const char *text = "a forsaken one";\n', "another word for 'forsaken'")
        t.told("words", "thread/other.c", SPDX + function("loop_let_go"), "thread/other.c: loop_let_go: ")
        t.told("words", "doc/doors.md", MD + "Nobody lets go of a door.\n", "doc/doors.md: 'lets go'")
        t.told("words", "doc/glossary.md", (TOP / "doc/glossary.md").read_text().replace("| hopeless |", "| useless |"), "instead of 'hopeless'")


def test_spdx():
    with tree("spdx") as t:
        t.told("spdx", "thread/other.c", function("other_run"), "thread/other.c does not begin with its SPDX line")
        t.told("spdx", "doc/more.md", "# More\n", "doc/more.md does not begin")


def test_paths():
    with tree("paths") as t:
        t.told("paths", "doc/doors.md", MD + "See `util/window.h`.\n", "doc/doors.md names util/window.h, which is not there")
        t.told("paths", "doc/doors.md", MD + "See `bdev_modules/null/README.md`.\n", "doc/doors.md names bdev_modules/null/README.md")
        t.told("paths", "doc/doors.md", MD + "See `test_doors_open`.\n", "doc/doors.md names test_doors_open, which is not there")
        with t.changed("unittest/util/door.c", SPDX + "static void test_doors_open(void)\n{\n}\n"), t.changed("doc/doors.md", MD + "See `test_doors_open`.\n"):
            t.passes("paths")
        with t.changed("unittest/util/door.c", SPDX + "static void test_doors_open(void)\n{\n}\n"), \
                t.changed("systest/locks.py", "def test_locks_shut():\n    pass\n\n\ndef test_locks_open():\n    pass\n"):
            good = "| `unittest/util/door.c`: `test_doors_open`; `systest/locks.py`: `test_locks_shut`, and later `test_locks_open` | `test_doors_open` |\n"
            with t.changed("doc/doors.md", MD + good):
                t.passes("paths")
            for before, after, what in (
                    ("`test_doors_open`;", "`test_locks_shut`;", "test_locks_shut of unittest/util/door.c"),
                    ("`test_locks_shut`, and later `test_locks_open`", "`test_locks_shut`,\nand `test_doors_open`", "test_doors_open of systest/locks.py")):
                t.told("paths", "doc/doors.md", MD + good.replace(before, after), f"doc/doors.md names {what}, which is not there")
        t.told("paths", "doc/doors.md", MD + "See [windows](windows.md#glass).\n", "doc/doors.md links to windows.md")


def test_figures():
    with tree("figures") as t, t.changed("bench/door.py", SPDX_PY + '"""Doors.\n\n    door.open_ns   to open one\n    read_ratio"""\nclosed_ns = 1\n'), \
            t.changed("bench/door_own.c", SPDX + "/* own_ns: a door alone */\nint closed_ns;\n"):
        with t.changed("doc/doors.md", MD + "`door.open_ns`, `door.read_ratio`, `door.own_ns`, `door.py`, `window.open_ns`\n"):
            t.passes("figures")
        for wrong in ("closed_ns", "open_n", "shut_ns"):
            t.told("figures", "doc/doors.md", MD + f"`door.{wrong}`\n", f"doc/doors.md names the figure door.{wrong}, which is in the head of no bench/door*")
        t.told("figures", "doc/performance.md", MD + "`window.open_ns`\n", "doc/performance.md names the figure window.open_ns: there is no bench/window")


def test_tracepoints():
    with tree("tracepoints") as t:
        t.told("tracepoints", "trace/tracepoints.def", FILES["trace/tracepoints.def"] + 'TRACE_TPOINT(DOOR, 1, DOOR_SHUT, NONE, NONE, OLD, "")\n',
               "declares DOOR_SHUT, and no TRACE(DOOR_SHUT, ...)")


def test_doxygen():
    with tree("doxygen") as t:
        header = FILES["util/door.h"]
        t.told("doxygen", "util/door.h", header.replace("\n\n#endif", "\nint door_shut(int number);\n\n#endif"), "door_shut")
        t.told("doxygen", "util/door.h", header.replace("/* Opens a door. 0, or a negative errno. Any thread. */\n", ""), "door_open")
        t.told("doxygen", "scripts/doxygen_filter.py", "raise SystemError\n", "doxygen ended with")


if __name__ == "__main__":
    os.environ["GIT_CONFIG_GLOBAL"] = os.environ["GIT_CONFIG_SYSTEM"] = os.devnull
    main(sys.modules[__name__])
