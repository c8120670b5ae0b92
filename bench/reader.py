# SPDX-License-Identifier: BSD-3-Clause
"""varve-trace on a made-up file with a million events of two lcores, printing to /dev/null: events per second of processor time (user
and system, so that other load on the machine does not count), as text, as JSON and as a summary, and the memory of the largest of
the three. Medians of runs in turns."""
import os
import pathlib
import statistics
import subprocess
import tempfile

BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", pathlib.Path(__file__).resolve().parent.parent / "build"))
LCORES, REQUESTS, EVENTS_EACH, TURNS = 2, 31250, 16, 7
VARIANTS = {"text": [], "json": ["-j"], "summary": ["--summary"]}


def run(path, options):
    """Processor seconds and peak megabytes of one run."""
    with open(os.devnull, "wb") as null:
        p = subprocess.Popen([BUILD / "bin" / "varve-trace", "-f", path, *options], stdout=null)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0, p.returncode
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    found = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sample"
        subprocess.run([BUILD / "bench" / "trace-sample", path, str(REQUESTS), str(LCORES), "1000", "0"], check=True)
        for turn in range(TURNS + 1):
            for name, options in VARIANTS.items():
                figures = run(path, options)
                if turn > 0:    # the first warms up
                    found[name].append(figures)
    events = LCORES * REQUESTS * EVENTS_EACH
    for name, figures in found.items():
        print(f"reader.{name}_events_per_s {events / statistics.median(f[0] for f in figures):.0f} events/s")
    print(f"reader.peak_mb {max(f[1] for figures in found.values() for f in figures):.1f} MB")


main()
