#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 240
# sanitize
# beside
"""varve-perf: block devices inside its process, several targets, mixes, results, complaints."""
import fcntl
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from appliance_lib import DEADLINE, check, main, wait_for
from nvmf_lib import NQN, NUM_CPUS, PERF, PORT, Host, Target, preload, verifying, wait_io

F_OFD_SETLK = 37     # <fcntl.h>; Python has it not everywhere
PERCENTILES = ("p1", "p10", "p50", "p90", "p99", "p99.9", "p99.99")


def perf(*args, status=0, env=None):
    p = subprocess.run([PERF, "--no-huge", "-m", f"[{NUM_CPUS - 1}]", *args], capture_output=True, text=True, timeout=2 * DEADLINE,
                       stdin=subprocess.DEVNULL, env=env and {**os.environ, **env})
    check(p.returncode == status, f"{args}: ended with {p.returncode}: {p.stdout}{p.stderr}")
    check("Sanitizer" not in p.stderr, p.stderr)
    return p


def result(*args):
    return json.loads(perf("-j", *args).stdout)


def test_a_ram_disk_in_the_process_is_driven_and_verified():
    r = result("-b", "malloc:16M", "-w", "randrw", "-M", "70", "--verify", "--ios", "20000", "-q", "8")
    check(r["verified"] and r["miscompares"] == 0 and r["errors"] == 0, r)
    check(r["read"]["ios"] + r["write"]["ios"] == 20000, r)
    check(13000 < r["read"]["ios"] < 15000, f"of 20000 I/Os, 70 % reads: {r['read']['ios']} reads")
    for kind in ("read", "write"):
        times = [r[kind]["latency_us"][p] for p in PERCENTILES]
        check(times == sorted(times) and r[kind]["latency_us"]["min"] <= times[0] * 1.01, r[kind])
        check(times[-1] <= r[kind]["latency_us"]["max"], r[kind])


def test_a_file_gets_what_was_written():
    with tempfile.TemporaryDirectory() as folder:
        disk = pathlib.Path(folder) / "disk"
        with open(disk, "wb") as f:
            f.truncate(8 << 20)
        r = result("-b", f"file:{disk}", "-w", "randrw", "--verify", "--ios", "2000", "-o", "16k")
        check(r["miscompares"] == 0 and r["errors"] == 0 and r["io_size"] == 16384, r)
        with open(disk, "rb") as f:
            check(any(f.read(4096)), "the file is still empty")
        before = disk.read_bytes()
        r = result("-b", f"file:{disk}", "--ios", "2000")
        check(r["read"]["ios"] == 2000 and r["write"]["ios"] == 0 and disk.read_bytes() == before, "reading changed it")


def test_a_file_that_others_read_may_be_read_and_not_written():
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "disk", "w+b") as f:
        f.truncate(1 << 20)
        fcntl.fcntl(f, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        r = result("-b", f"file:{f.name}", "--ios", "100")
        check(r["read"]["ios"] == 100 and r["errors"] == 0, r)
        check(f.name in perf("-b", f"file:{f.name}", "-w", "randrw", "--ios", "100", status=1).stderr, "a file that somebody reads was written")


def test_a_ledger_says_what_each_block_may_hold():
    """Two hosts share a file; an old block that comes back is found later, by another process."""
    with tempfile.TemporaryDirectory() as folder:
        disk, ledgers = pathlib.Path(folder) / "disk", [pathlib.Path(folder) / x for x in "AB"]
        with open(disk, "wb") as f:
            f.truncate(8 << 20)
        for i, ledger in enumerate(ledgers):
            write = ["-b", f"file:{disk}", "-w", "randrw", "--verify", "--region", "128k", "--region-start", f"{i}M",
                     "--seed", "7", "--hostnqn", f"nqn.2026-11.io.varve:{i}", "-P", "2", "-q", "4", "--ledger", str(ledger)]
            result(*write, "--ios", "600")
            before = disk.read_bytes()
            result(*write, "--ios", "3000")     # the same host and seed: what it wrote before is like a write that comes late
        for ledger in ledgers:
            r = result("-b", f"file:{disk}", "--check-ledger", str(ledger))
            check(r["miscompares"] == 0 and r["read"]["ios"] == 32 and r["write"]["ios"] == 0, r)
        other = before[(1 << 20) + 4096:(1 << 20) + 4608]
        for offset, block, words in (((1 << 20) + 512, before[(1 << 20) + 512:][:512], ["LBA 2049 ", "expected generation"]),
                                     (4096, other, ["LBA 8 ", "of another writer"]), (8192, bytes(512), ["LBA 16 ", "offset"]),
                                     ((1 << 20) + 512, other, ["LBA 2049 ", "another LBA's", "misplaced"])):
            now = bytearray(disk.read_bytes())
            if now[offset:offset + 512] == block:
                continue        # by chance
            (pathlib.Path(folder) / "bad").write_bytes(now[:offset] + block + now[offset + 512:])
            p = perf("-j", "-b", f"file:{folder}/bad", "--check-ledger", str(ledgers[offset >= 1 << 20]), status=1)
            check(json.loads(p.stdout)["miscompares"] == 1 and all(w in p.stderr for w in words), f"{p.stdout}{p.stderr} does not say {words}")
        ledgers[0].write_bytes(ledgers[0].read_bytes()[:-8])
        check("whole file" in perf("-b", f"file:{disk}", "--check-ledger", str(ledgers[0]), status=1).stderr, "a ledger that was cut")


def test_several_devices_and_queue_pairs_share_the_work():
    r = result("-b", "malloc:8M", "-b", "null:1G", "-P", "2", "--ios", "4000", "--rate", "1000000")
    check(r["read"]["ios"] == 4000 and r["errors"] == 0, r)


def times_slept(pid):
    """How often the threads of a process have waited."""
    return sum(int(line.split()[1]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir() for line in (task / "status").read_text().splitlines()
               if line.startswith("voluntary_ctxt"))


def test_a_host_with_a_low_rate_wakes_only_when_an_io_is_due():
    with Target(trtype="TCP") as t:
        t.add_malloc("M")
        t.add_ns("M")
        with verifying(t, 1, "-q", "32", "--rate", "40", "-t", "3600") as h:
            wait_io(t, [h], 20)
            before, slept = t.groups("completed_nvme_io"), times_slept(h.process.pid)
            wait_io(t, [h], 80)
            ios, slept = t.groups("completed_nvme_io") - before, times_slept(h.process.pid) - slept
            check(slept < 30 * ios, f"it slept {slept} times for {ios} I/Os")
            h.check_perfect(h.stop())


def test_an_open_loop_goes_on_whatever_becomes_of_its_ios():
    r = result("-b", "malloc:8M", "-P", "2", "--ios", "4000", "--rate", "20000", "--poisson", "-q", "64", "-w", "randrw", "--verify")
    check(r["read"]["ios"] + r["write"]["ios"] == 4000 and r["errors"] + r["miscompares"] + r["late"] == 0, r)
    # the last of 4000 arrivals comes after 0.2 s, with a standard deviation of 2 % of that
    check(r["seconds"] > 0.18, f"4000 I/Os, 20000 per second, took {r['seconds']} s")
    # a rate that nothing can keep up with: the time that I/Os wait counts, and those that still wait at the end are told
    r = result("-b", "null:1G", "-t", "1", "--rate", "4000000000", "--poisson", "-q", "4")
    check(r["late"] > r["read"]["ios"] > 0, r)
    check(r["read"]["latency_us"]["p50"] > 1e3, f"half of the I/Os took {r['read']['latency_us']['p50']} us from when they were due")
    out = perf("-b", "null:1G", "-t", "1", "--rate", "4000000000", "--poisson").stdout
    check("I/Os were due and had not begun" in out, out)


def test_a_table_is_printed_for_people():
    out = perf("-b", "null:1G", "--ios", "1000").stdout
    check("IOPS" in out and "99.9 %" in out and "1000 reads, 0 writes" in out and "0 errors" in out, out)


def test_what_is_wrong_is_said_with_what_is_allowed():
    for args, words in ((["-b", "foo"], ["--bdev 'foo'", "malloc:SIZE"]), (["-b", "malloc:3"], ["malloc:3", "1M or more"]),
                        (["-b", "file:/nonexistent"], ["/nonexistent", "No such file"]), ([], ["no target", "--bdev"]),
                        (["-b", "null:1G", "--verify"], ["--verify", "null"]), (["-b", "null:1G", "-w", "x"], ["randrw"]),
                        (["-b", "malloc:1M", "-o", "1000"], ["1000", "multiple of 512"]),
                        (["-b", "null:1G", "--dhchap-key", "/nonexistent"], ["--dhchap-key '/nonexistent'", "No such file"]),
                        (["-b", "null:1G", "--dhchap-key", __file__], ["--dhchap-key", "mode"]),
                        (["-b", "null:1G", "--dhchap-ctrlr-key", "x"], ["--dhchap-ctrlr-key goes with --dhchap-key"]),
                        (["-b", "malloc:1M", "-q", "1024"], ["too few"]), (["-b", "null:1G", "--poisson"], ["--poisson goes with --rate"]),
                        (["-b", "null:1G", "-t", "0"], ["--time '0'", "from 1"]),
                        (["-b", "malloc:1M", "--ledger", "/tmp/x"], ["--ledger goes with --verify"]),
                        (["-b", "malloc:1M", "--check-ledger", "/nonexistent"], ["/nonexistent", "No such file"]),
                        (["-b", "malloc:1M", "--check-ledger", "x", "--verify"], ["--check-ledger goes without"])):
        p = perf(*args, status=1)
        check(all(w in p.stderr for w in words), f"{args}: \"{p.stderr}\" does not say {words}")


def restarted(old, queues):
    """The target that takes the place of old one has room for so many queue pairs of a host."""
    if old is not None:
        old.__exit__()
    t = Target(max_io_qpairs_per_ctrlr=queues)
    t.add_malloc("M0")
    t.add_ns("M0", nsid=1)
    return t


def test_a_queue_that_is_refused_after_a_reconnection_is_asked_for_again():
    """A target that was away may lack what it had, for a while."""
    t = restarted(None, 4)
    try:
        with Target(port=PORT + 1) as folder, Host(t, "-w", "randread", "-t", "3600", "-P", "4", "--loss-timeout", "-1", nsid=1) as h:
            h.errors, h.output = (x.rename(folder.folder / x.name) for x in (h.errors, h.output))
            wait_io(t, [h])
            t = restarted(t, 2)
            wait_for(lambda: h.errors.read_text().count("a queue pair could not be connected") >= 4, "two attempts of two queue pairs")
            t = restarted(t, 4)
            wait_for(lambda: t.groups("current_io_qpairs") == 4, "all queue pairs")
            wait_io(t, [h])
            result = h.stop()
            check(result["errors"] == 0 and result["reconnects"] >= 3, result)
    finally:
        t.__exit__()


def test_a_queue_that_stays_refused_fails_when_the_controller_may_be_lost_no_longer():
    t = restarted(None, 4)
    try:
        with Target(port=PORT + 1) as folder, Host(t, "-w", "randread", "-t", "3600", "-P", "4", "--loss-timeout", "2", nsid=1) as h:
            h.errors, h.output = (x.rename(folder.folder / x.name) for x in (h.errors, h.output))
            wait_io(t, [h])
            t = restarted(t, 2)
            check(h.wait() == 1 and "a queue pair could not be connected" in h.errors.read_text(), h.errors.read_text())
    finally:
        t.__exit__()


def test_lines_of_the_log_are_not_written_on_the_progress():
    """On a terminal, where the line of progress is written over again and again."""
    master, terminal = os.openpty()
    os.set_blocking(master, False)
    text = bytearray()

    def read():
        try:
            text.extend(os.read(master, 65536))
        except BlockingIOError:
            pass
        return bytes(text)

    with Target(trtype="TCP") as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        h = subprocess.Popen([PERF, "--no-huge", "-m", f"[{NUM_CPUS - 1}]", "-s", "128", "-r", t.trid(), "-n", "1", "-w", "randread", "-t", "3600"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=terminal, env={**os.environ, **preload()})
        try:
            wait_for(lambda: b" IOPS " in read(), "progress")
            t.process.kill()
            wait_for(lambda: b"*: " in read().rpartition(b"\n")[0], "a line of the log")
            for line in [x for x in read().split(b"\n") if b"*: " in x]:
                before = line[:line.index(b"*: ")]
                check(b"IOPS" not in before.rsplit(b"\x1b[K", 1)[-1], line)
        finally:
            h.kill()
            h.wait()
            os.close(master)
            os.close(terminal)


def test_two_targets_are_driven_at_once():
    with Target() as one, Target(port=one.port + 1) as two:
        for t in (one, two):
            t.add_malloc("M0")
            t.add_ns("M0", nsid=1)
        with Host(one, "-r", one.trid(), "-r", two.trid(), "-w", "randrw", "--verify", "--region", "4M", "--ios", "2000") as h:
            r = h.result()
            check(r["miscompares"] == 0 and r["read"]["ios"] + r["write"]["ios"] == 2000, r)
        for t in (one, two):
            check(t.groups("completed_nvme_io") > 1000, "one target did nothing")
            t.wait_empty()
            t.stop_clean()


def test_queue_pairs_have_equal_shares():
    with Target() as t:
        for nsid, name in enumerate(("M0", "M1"), 1):
            t.add_malloc(name)
            t.add_ns(name, nsid=nsid)
        for queues, depth in (("1", "128"), ("8", "32")):
            before = [b["num_read_ops"] for b in t.call("bdev_get_iostat")["bdevs"]]
            with Host(t, "-w", "randread", "-P", queues, "-q", depth, "--ios", "200000") as h:
                h.result()
            ios = [b["num_read_ops"] - n for b, n in zip(t.call("bdev_get_iostat")["bdevs"], before)]
            check(len(ios) == 2 and min(ios) * 2 >= max(ios), f"{queues} queue pairs for each of two namespaces, depth {depth}: {ios} I/Os")
        t.stop_clean()


def test_each_of_many_namespaces_has_its_queue_pairs():
    many = NQN + "-many"
    with Target() as t:
        t.add_subsystem(many, max_namespaces=64)
        for i in range(40):
            t.call("bdev_null_create", name=f"N{i}", block_size=4096, num_blocks=1024)
            t.add_ns(f"N{i}", nqn=many)
        p = perf("-r", t.trid(many), "--ios", "4000", "-q", "1", "-t", "3600", env=preload())
        check("4000 reads" in p.stdout and "0 errors" in p.stdout and not p.stderr, p)


def test_too_few_queue_pairs_are_one_error_with_its_remedy():
    with Target(max_io_qpairs_per_ctrlr=3) as t:
        for i in range(4):
            t.call("bdev_null_create", name=f"N{i}", block_size=4096, num_blocks=1024)
            t.add_ns(f"N{i}")
        p = perf("-r", t.trid(), "--ios", "100", "-q", "1", status=1, env=preload())
        check(p.stderr == f"varve-perf: {NQN}: 4 namespaces with 1 queue pairs each need 4, and the controller grants 3; choose one "
              "namespace with -n, or give fewer --qpairs or cores\n", p.stderr)
        p = perf("-r", t.trid(), "--ios", "100", "-q", "1", "-n", "4", "-t", "3600", env=preload())
        check("100 reads" in p.stdout, p)


if __name__ == "__main__":
    main(sys.modules[__name__])
