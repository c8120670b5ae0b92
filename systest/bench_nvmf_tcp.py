#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
"""The benchmark of NVMe/TCP runs, and prints each figure that it promises. What they are is not judged: other tests run beside it."""
import re
import subprocess
import sys

from appliance_lib import BUILD, TOP, Failure, check, main

LIMIT = 300
OF_LIGHT_HOST = [f"{kind}_{name}" for kind in ("read", "write") for name in ("q1", "q32", "q128")] + ["read_c16", "read_c256"]


def names():
    """name: unit."""
    for name in OF_LIGHT_HOST:
        operation, shape = name.split("_")
        yield f"{operation}_iops_{shape}", "IOPS"
        yield f"bare_{operation}_iops_{shape}", "IOPS"
        yield f"{operation}_ratio_{shape}", "ratio"
    for operation in ("read", "write"):
        yield f"{operation}_cpu_ns", "ns"
        yield f"{operation}_calls", "calls"
        for how in ("", "digest_", "tls_"):
            yield f"{how}{operation}_gbps", "GB/s"
        yield f"tls_{operation}_ratio", "ratio"
        yield f"tls_{operation}_of_bound", "ratio"
    yield from {"flat_ratio": "ratio", "host_iops_q32": "IOPS", "digest_iops_q32": "IOPS", "aes_gbps": "GB/s", "own_ns": "ns", "own_ns_conn1": "ns",
                "own_ns_conn256": "ns", "own_write_ns": "ns", "traced_own_ns": "ns", "events_per_io": "events", "calls_per_io": "calls",
                "write_calls_per_io": "calls"}.items()


def run(*args):
    try:
        p = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as e:
        raise Failure(f"{args[0]} did not end within {LIMIT} s: {e.stdout}") from None
    return p.returncode, p.stdout, p.stderr


def test_all_figures_are_printed():
    status, out, errors = run(sys.executable, TOP / "bench/nvmf_tcp.py", "--smoke")
    check(status == 0, f"status {status}: {errors}\n{out}")
    lines = [re.fullmatch(r"nvmf_tcp\.(\w+) (-?\d+\.\d+) (\S+)", line) for line in out.splitlines()]
    check(all(lines), out)
    found = {m[1]: (float(m[2]), m[3]) for m in lines}
    check(len(found) == len(lines), "a figure was printed twice")
    for name, unit in names():
        check(name in found and found[name][1] == unit, f"{name} in {unit} is missing:\n{out}")
        check(found[name][0] > 0, f"{name} is {found[name][0]}")
    check(found["idle_ticks"][1] == "ticks", found["idle_ticks"])
    # these do not depend on what else the machine does
    check(found["calls_per_io"][0] < 0.1, f"{found['calls_per_io'][0]} system calls for a read, 128 outstanding")
    check(found["write_calls_per_io"][0] < 0.2, f"{found['write_calls_per_io'][0]} system calls for a write, 128 outstanding")
    check(2 <= found["calls_per_io_conn256"][0] < 3, f"{found['calls_per_io_conn256'][0]} system calls for a read, 256 connections")


def test_wrong_arguments_are_refused():
    bare = BUILD / "bench" / "nvmf-tcp-bare"
    for args in ((), ("serve",), ("drive", "1", "0", "read"), ("drive", "1", "0", "read", "0", "1", "1", "x"), ("drive", "1", "0", "read", "1", "129", "1", "x")):
        status, out, errors = run(bare, *args)
        check(status != 0 and errors.startswith(("usage:", "nvmf_tcp_bare:")) and out == "", f"{args}: status {status}, {out}{errors}")


if __name__ == "__main__":
    main(sys.modules[__name__])
