# SPDX-License-Identifier: BSD-3-Clause
"""An image of a Ceph (a monitor, a manager and an OSD that are started for it) through varve over TCP, in turns with fio's rbd engine on the same image: 4 KiB
random reads and writes, rbd_cache off for both. All share the CPUs; the OSD takes most of them.

    rbd.read_iops_q1, q32, q128             through varve, by varve-perf; and write_iops_
    rbd.fio_read_iops_q1, q32, q128         fio; and fio_write_iops_
    rbd.read_ratio_q1, q32, q128            the one by the other, the median of all turns; and write_ratio_; wanted: 0.9 or more
    rbd.read_cpu_us_q1, q32, q128           CPU time of varve per I/O, librbd's threads included; and write_cpu_us_
    rbd.fio_read_cpu_us_q1, q32, q128       of fio per I/O, without its start; and fio_write_cpu_us_
    rbd.threads                             that varve has more than before, when it is connected and has an image open
    rbd.connected_mb                        varve's resident memory when it is connected, without images
    rbd.images1000_mb                       varve's resident memory with 1000 images open over one connection; wanted: 1024 at most
    rbd.images1000_idle_percent             of a CPU that it takes then, without I/O; and images1_idle_percent; wanted: 0; librbd 16 takes
                                            0.004 for each image: the timers of its rate limits (doc/ceph.md)

It takes four minutes. --smoke: each figure once, of a moment, and with 20 images (rbd.images20_mb): they mean nothing, but all that prints them has run.
Without Ceph and fio it says so, and has no figures."""
import collections
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from ceph_lib import Ceph  # noqa: E402
from nvmf_lib import Host, Target  # noqa: E402

SMOKE = "--smoke" in sys.argv[1:]
TURNS, SECONDS, IMAGES, IDLE_SECONDS, MIB = (1, 1, 20, 1, 16) if SMOKE else (3, 3, 1000, 20, 256)
DEPTHS = (1, 32, 128)
BS = 4096
figures = collections.defaultdict(list)


def cpu_seconds(pid):
    """Of all threads that it has now: nanoseconds on a CPU, in the first field."""
    return sum(int((t / "schedstat").read_text().split()[0]) for t in pathlib.Path(f"/proc/{pid}/task").iterdir()) / 1e9


def threads(t):
    return len(os.listdir(f"/proc/{t.pid}/task"))


def resident_mb(t):
    stats = t.call("env_dpdk_get_mem_stats")
    pathlib.Path(stats["filename"]).unlink(missing_ok=True)
    return stats["resident_bytes"] / 2**20


def fio(ceph, *args):
    """What it says of its job, and the CPU seconds of all its processes."""
    out = ceph.folder / "fio.json"
    p = subprocess.Popen(["fio", "--name=job", "--ioengine=rbd", "--clientname=admin", "--pool=rbd", "--rbdname=image", f"--bs={BS}", f"--output={out}",
                          "--output-format=json", *args], env={**os.environ, "CEPH_CONF": str(ceph.conf)}, stdin=subprocess.DEVNULL)
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        sys.exit(f"bench rbd: fio ended with {p.returncode}")
    return json.loads(out.read_text())["jobs"][0], used.ru_utime + used.ru_stime


def fill(ceph):
    fio(ceph, "--rw=write", "--bs=1M", "--iodepth=8", f"--size={MIB}M")


def start_cost(ceph):
    return min(fio(ceph, "--rw=randread", "--iodepth=1", "--number_ios=1", f"--size={MIB}M")[1] for _ in range(2))


def fio_turn(ceph, kind, depth, start):
    job, cpu = fio(ceph, f"--rw=rand{kind}", f"--iodepth={depth}", f"--size={MIB}M", "--time_based", f"--runtime={SECONDS}", "--norandommap")
    ios = job[kind]["total_ios"]
    figures[f"fio_{kind}_iops_q{depth}"].append(job[kind]["iops"])
    figures[f"fio_{kind}_cpu_us_q{depth}"].append(max(cpu - start, 0) / ios * 1e6)
    return job[kind]["iops"]


def varve_turn(t, kind, depth):
    before = cpu_seconds(t.pid)
    with Host(t, "-w", f"rand{kind}", "-o", str(BS), "-q", str(depth), "-t", str(SECONDS), nsid=1) as h:
        result = h.result()
    if result["errors"]:
        sys.exit(f"bench rbd: varve-perf had errors: {h.errors.read_text()}")
    figures[f"{kind}_iops_q{depth}"].append(result[kind]["iops"])
    figures[f"{kind}_cpu_us_q{depth}"].append((cpu_seconds(t.pid) - before) / result[kind]["ios"] * 1e6)
    return result[kind]["iops"]


def connect(ceph, t):
    before = threads(t)
    t.call("bdev_rbd_register_cluster", name="c", config_file=str(ceph.conf))
    figures["connected_mb"].append(resident_mb(t))
    t.call("bdev_rbd_create", name="R0", pool_name="rbd", rbd_name="image", block_size=BS, cluster_name="c")
    figures["threads"].append(threads(t) - before)


def load(ceph, t):
    fill(ceph)
    t.add_ns("R0", nsid=1)
    start = start_cost(ceph)
    for _ in range(TURNS):
        for kind in ("read", "write"):
            for depth in DEPTHS:
                theirs = fio_turn(ceph, kind, depth, start)
                figures[f"{kind}_ratio_q{depth}"].append(varve_turn(t, kind, depth) / theirs)


def idle_percent(t):
    before, begun = cpu_seconds(t.pid), time.monotonic()
    time.sleep(IDLE_SECONDS)    # the time that it takes
    return (cpu_seconds(t.pid) - before) / (time.monotonic() - begun) * 100


def open_many(ceph, t):
    figures["images1_idle_percent"].append(idle_percent(t))
    for i in range(1, IMAGES):
        ceph.image(f"rbd/image{i}", 4)
        t.call("bdev_rbd_create", name=f"R{i}", pool_name="rbd", rbd_name=f"image{i}", block_size=BS, cluster_name="c")
    figures[f"images{IMAGES}_mb"].append(resident_mb(t))
    figures[f"images{IMAGES}_idle_percent"].append(idle_percent(t))


UNITS = (("_iops", "IOPS"), ("_ratio", "ratio"), ("_cpu_us", "us"), ("_mb", "MiB"), ("_percent", "%"), ("threads", "threads"))


def main():
    with contextlib.ExitStack() as stack:
        ceph = stack.enter_context(Ceph())
        ceph.conf.write_text(ceph.conf.read_text() + "rbd cache = false\n")
        ceph.image("rbd/image", MIB)
        t = stack.enter_context(Target(trtype="TCP"))
        connect(ceph, t)
        load(ceph, t)
        open_many(ceph, t)
    for name, values in figures.items():
        print(f"rbd.{name} {statistics.median(values):.3f} {next(unit for part, unit in UNITS if part in name)}", flush=True)


lacks = [program for program in ("ceph-mon", "ceph-osd", "fio") if shutil.which(program) is None]
if lacks:
    print(f"bench rbd: not installed: {', '.join(lacks)} (Debian's ceph-mon, ceph-mgr, ceph-osd, fio)", file=sys.stderr)
else:
    main()
