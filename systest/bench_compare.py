#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 600
"""The comparison with others runs, and its table has all that it promises, or says what is left out. The other target is varve itself, by another name."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, TOP, check, main

LIMIT = 500
ROW = re.compile(r"\| (?P<what>[^|]+) \| (?P<ours>[\d.]+) (?P<unit>[^|]+) \| (?P<peer>[^|]+) \| (?P<theirs>[\d.]+) (?P=unit) \| (?P<ratio>[\d.]+) \|")
TARGETS = [f"NVMe/{trtype}, reads of {kib} KiB, q{depth}" for trtype in ("TCP", "RDMA") for kib, depth in ((4, 1), (4, 32), (4, 128), (128, 32))]


def compare(peer, *parts):
    """The table's rows by name and peer, and what is left out."""
    p = subprocess.run([sys.executable, TOP / "bench/compare.py", "--smoke", *parts], capture_output=True, text=True, timeout=LIMIT,
                       env={**os.environ, "VARVE_PEER": str(peer)})
    check(p.returncode == 0, f"status {p.returncode}: {p.stderr}\n{p.stdout}")
    rows = [line for line in p.stdout.splitlines() if line.startswith("|")]
    found = [ROW.fullmatch(line) for line in rows[2:]]
    check(rows[0].count("|") == 6 and all(found), p.stdout)
    check(re.search(r"^20\d\d-\d\d-\d\d, varve .*, 1 turns\.\nLoad average before \d", p.stdout, re.M), f"no machine and date: {p.stdout}")
    return {(m["what"], m["peer"]): m for m in found}, re.findall(r"^Left out: (.*)\.$", p.stdout, re.M)


def test_each_comparison_is_in_the_table_or_left_out_with_its_reason():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        peer = pathlib.Path(folder) / "build/bin/nvmf_tgt"
        peer.parent.mkdir(parents=True)
        peer.symlink_to(BUILD / "bin" / "varve")
        rows, absent = compare(folder)
    for m in rows.values():
        check(float(m["ours"]) > 0 and float(m["theirs"]) > 0 and float(m["ratio"]) > 0, m[0])
    event = "an event with four arguments"
    wanted = [(event, "DPDK's rte_trace"), ("AES-XTS, 4 KiB writes", "OpenSSL alone"), ("AES-XTS, 4 KiB reads", "OpenSSL alone")]
    wanted += [(what, "nvmf_tgt") for what in TARGETS] + [(f"{what}: CPU of the target", "nvmf_tgt") for what in TARGETS if not what.endswith("q1")]
    optional = {"LTTng-UST": [(event, "LTTng-UST")], "fio": [(f"4 KiB random reads of a file, q{q}", "fio, io_uring") for q in (1, 32, 128)]}
    for name, of_it in optional.items():
        if not any(line.startswith(f"{name}: ") for line in absent):
            wanted += of_it
    check(sorted(rows) == sorted(wanted), f"{sorted(rows)}, left out: {absent}")


def test_a_target_that_is_not_there_is_left_out():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        rows, absent = compare(folder, "targets")
    check(len(absent) == 1 and absent[0].startswith("another target: ") and folder in absent[0] and not rows, (absent, rows))


def test_a_target_that_does_not_start_is_left_out():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        peer = pathlib.Path(folder) / "build/bin/nvmf_tgt"
        peer.parent.mkdir(parents=True)
        peer.write_text("#!/bin/sh\necho no hugepages\nexit 1\n")
        peer.chmod(0o755)
        rows, absent = compare(folder, "targets")
    check([line.split(":")[0] for line in absent] == ["nvmf_tgt over TCP", "nvmf_tgt over RDMA"] and "no hugepages" in absent[0] and not rows, (absent, rows))


def test_a_part_that_there_is_not_is_refused():
    p = subprocess.run([sys.executable, TOP / "bench/compare.py", "everything"], capture_output=True, text=True, timeout=LIMIT)
    check(p.returncode == 1 and "recorder, files, encryption, targets" in p.stderr, p)


if __name__ == "__main__":
    main(sys.modules[__name__])
