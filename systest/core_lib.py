# SPDX-License-Identifier: BSD-3-Clause
"""A core of a daemon that runs, and bytes in it that are overwritten: memory that is damaged in a known place."""
import contextlib
import struct
import subprocess

from appliance_lib import VARVE, check

SLOW = 300              # seconds that a gdb may take on a busy machine
PT_LOAD = 1


class Core:
    def __init__(self, d):
        """Of the daemon d, which goes on."""
        subprocess.run(["gcore", "-o", d.folder / "core", str(d.pid)], check=True, capture_output=True, timeout=SLOW)
        self.path = d.folder / f"core.{d.pid}"
        with open(self.path, "rb") as f:
            table, size, n = struct.unpack_from("<Q14xHH", f.read(64), 32)
            f.seek(table)
            headers = f.read(size * n)
        self.loads = [(offset, start, length) for kind, _, offset, start, _, length in
                      (struct.unpack_from("<IIQQQQ", headers, size * i) for i in range(n)) if kind == PT_LOAD]

    def evaluate(self, expressions):
        """{expression: the number that it has in the core}"""
        p = subprocess.run(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", VARVE, self.path,
                            *(x for e in expressions for x in ("-ex", f'printf "= %lu\\n", (unsigned long)({e})'))],
                           capture_output=True, text=True, timeout=SLOW, stdin=subprocess.DEVNULL)
        numbers = [int(line[2:]) for line in p.stdout.splitlines() if line.startswith("= ")]
        check(len(numbers) == len(expressions), p.stdout + p.stderr)
        return dict(zip(expressions, numbers))

    @contextlib.contextmanager
    def overwritten(self, address, data):
        """Has other bytes at an address of the process, which must be within one of its PT_LOADs."""
        places = [offset + address - start for offset, start, length in self.loads if start <= address and address + len(data) <= start + length]
        check(len(places) == 1, f"{address:#x} is in {len(places)} parts of the core")
        with open(self.path, "r+b") as f:
            f.seek(places[0])
            before = f.read(len(data))
            f.seek(places[0])
            f.write(data)
        try:
            yield
        finally:
            with open(self.path, "r+b") as f:
                f.seek(places[0])
                f.write(before)
