#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""power_cut.py [DEVICE [ROUNDS]]: kill -9 of a process under a write workload with flushes, ROUNDS times (default 100): after each restart
every block whose write was acknowledged before an acknowledged flush must be there. DEVICE is as power-cut has it; default: a file,
through the uring bdev."""
# limit: 600
# beside
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("VARVE_BUILD", TOP / "build")).resolve() / "systest/power-cut"
BLOCKS = 512


def round_once(device, log, rng):
    """Starts the writer, lets it check what the last one left and send some flushes, and kills it. What it said, if it went wrong."""
    p = subprocess.Popen([PROGRAM, device, log], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    flushes = rng.randrange(1, 12)
    said = p.stdout.read(1 + flushes)               # "+", then a dot for each flush
    p.send_signal(signal.SIGKILL)
    rest, errors = p.communicate()
    if said != b"+" + b"." * flushes:
        return f"it ended by itself with {p.returncode}: {errors.decode(errors='replace').strip()[-400:]}"
    return None


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else None
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/log"
        if device is None:
            device = f"uring:{folder}/disk"
            with open(f"{folder}/disk", "wb") as f:
                f.truncate(BLOCKS * 4096)
        name = f"power_cut.{device.split(':')[0]}_keeps_what_was_flushed"
        for n in range(rounds):
            why = round_once(device, log, rng)
            if why is not None:
                sys.exit(f"FAIL {name}: round {n + 1} (SEED={seed}): {why}")
        p = subprocess.run([PROGRAM, device, log, "check"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        promised = os.path.getsize(log) // 8
        if p.returncode != 0:
            sys.exit(f"FAIL {name}: after {rounds} rounds (SEED={seed}): {p.stderr.strip()[-400:]}")
        if promised < rounds:
            sys.exit(f"FAIL {name}: only {promised} writes were promised")
        print(f"# {rounds} rounds, {promised} writes were acknowledged and flushed")
        print(f"PASS {name}")


if __name__ == "__main__":
    main()
