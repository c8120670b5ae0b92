# SPDX-License-Identifier: BSD-3-Clause
"""4 KiB random reads of a file through varve's io_uring module (varve-perf -b file:) and through fio's io_uring engine, on the same file
and CPU, in turns; the file is read past the page cache where its file system can. Needs fio (Debian: fio). $VARVE_URING_FILE names an
existing file or block device that is only read; without it a file of 256 MiB is made in $TMPDIR.

    uring.iops_q1, q32, q128        varve
    uring.fio_q1, q32, q128         fio
    uring.vs_fio_q1, q32, q128      varve by fio
    uring.vs_fio                    the least of these"""
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build"))
DEPTHS = (1, 32, 128)
TURNS, SECONDS, MEGABYTES = 5, "2", 256
CPU = (os.cpu_count() or 1) - 1


def varve(path, depth):
    out = subprocess.run([BUILD / "bin" / "varve-perf", "--json", "--quiet", "--busy", "--no-huge", "-m", f"[{CPU}]", "-b", f"file:{path}",
                          "-q", str(depth), "-t", SECONDS], stdout=subprocess.PIPE, check=True, timeout=120).stdout
    return json.loads(out)["read"]["iops"]


def is_direct(path):
    """Whether the file can be opened with O_DIRECT, as the module does."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
        return True
    except OSError:
        return False


def fio(path, depth):
    out = subprocess.run(["fio", "--name=read", f"--filename={path}", "--rw=randread", "--bs=4k", "--ioengine=io_uring", f"--iodepth={depth}",
                          f"--direct={int(is_direct(path))}", "--time_based", f"--runtime={SECONDS}", f"--cpus_allowed={CPU}", "--readonly",
                          "--norandommap", "--output-format=json"], stdout=subprocess.PIPE, check=True, timeout=120).stdout
    return json.loads(out)["jobs"][0]["read"]["iops"]


@contextlib.contextmanager
def made_file():
    """The path of a file that is on the disk."""
    with tempfile.NamedTemporaryFile() as f:
        for _ in range(MEGABYTES):
            f.write(os.urandom(1 << 20))
        f.flush()
        os.fsync(f.fileno())
        yield f.name


def measure(path):
    ratios = []
    for depth in DEPTHS:
        turns = [(varve(path, depth), fio(path, depth)) for _ in range(TURNS)]
        ours, theirs = (statistics.median(values) for values in zip(*turns))
        ratios.append(ours / theirs)
        print(f"uring.iops_q{depth} {ours:.0f} IOPS\nuring.fio_q{depth} {theirs:.0f} IOPS\nuring.vs_fio_q{depth} {ours / theirs:.3f} ratio", flush=True)
    print(f"uring.vs_fio {min(ratios):.3f} ratio")


def main():
    if shutil.which("fio") is None:
        sys.exit("bench uring: needs fio (apt-get install fio)")
    if os.environ.get("VARVE_URING_FILE"):
        measure(os.environ["VARVE_URING_FILE"])
        return
    with made_file() as path:
        measure(path)


if __name__ == "__main__":
    main()
