#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# long
# beside
"""What runs out: work requests, buffers, descriptors, memory regions and queues of the device, disk space, room in /dev/shm. Work waits, or fails and
says why; when there is room again, it goes on by itself. Another host's verified I/O notices nothing."""
import errno
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, VARVE, Daemon, RpcError, Skip, check, main, wait_for
from faults_lib import PROGRAM, Area
from nvmf_lib import NQN, PORT, Host, Target, preload, verifying, wait_io

OTHER = NQN + ":other"
TRACE = BUILD / "bin" / "varve-trace"


def test_a_command_that_needs_more_work_requests_than_the_pool_has_is_carried_out():
    with Target(io_unit_size=4096, data_wr_pool_size=0, zcopy=False) as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        with verifying(t, 1, "--ios", "400", "-q", "16", "-o", "128k") as h:
            h.check_perfect(h.result())
        t.wait_empty()
        t.stop_clean()


def test_who_finds_no_buffer_waits_for_one():
    with Target(num_shared_buffers=36, buf_cache_size=0, iobuf_small_cache_size=0, iobuf_large_cache_size=0, zcopy=False) as t:
        t.call("bdev_malloc_create", name="M0", block_size=512, num_blocks=32768)
        t.call("bdev_delay_create", name="D0", base_bdev_name="M0", avg_read_latency=2000, p99_read_latency=2000, avg_write_latency=2000,
               p99_write_latency=2000)
        t.add_ns("D0", nsid=1)
        with verifying(t, 1, "-t", "600", "-q", "64", "-o", "128k", "--region", "16M") as h:
            wait_for(lambda: transport(t)["pending_data_buffer"] > 0 or not h.is_running(), "somebody to wait")
            wait_io(t, [h])
            h.check_perfect(h.stop())
        t.wait_empty()
        t.stop_clean()


def transport(t):
    return t.call("nvmf_get_stats")["poll_groups"][0]["transports"][0]


def set_descriptors(t, soft):
    hard = resource.prlimit(t.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(t.pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_nothing_new_comes_and_what_is_there_goes_on():
    with Target() as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        with Host(t, "-t", "3600", nsid=1) as h:     # what comes with the first host stays
            wait_io(t, [h])
            h.stop()
        t.wait_empty()
        held = t.held()
        with verifying(t, 1, "-t", "3600", "-q", "4", "--kato", "0", hostnqn=NQN + ":steady") as steady:
            wait_io(t, [steady])
            client = t.client()         # is in before the limit
            client.call("nvmf_get_stats")
            before = resource.prlimit(t.pid, resource.RLIMIT_NOFILE)[0]
            set_descriptors(t, max(int(x) for x in os.listdir(f"/proc/{t.pid}/fd")) + 1)
            try:
                client.call("bdev_uring_create", name="U0", filename=str(t.log_path), block_size=512)
                check(False, "a file was opened without a descriptor")
            except RpcError as e:
                check("open files" in e.message or "memory" in e.message.lower(), e.message)
            with Host(t, "-t", "5", "--ios", "10", nsid=1) as none:
                check(none.wait() != 0 or none.result()["errors"] == 0, "a host got neither in nor an error")
            size = client.call("nvmf_get_stats")["poll_groups"][0]["completed_nvme_io"]
            wait_for(lambda: client.call("nvmf_get_stats")["poll_groups"][0]["completed_nvme_io"] > size + 200,
                     lambda: f"the steady host to go on: {steady.errors.read_text()}")
            set_descriptors(t, before)
            client.close()
            with verifying(t, 1, "--ios", "500", "-q", "4", "--region", "64k", hostnqn=NQN + ":later") as later:
                check(later.result()["errors"] == 0, later.errors.read_text())
            steady_result = steady.stop()
            check(steady_result["errors"] == 0 and steady_result["reconnects"] == 0, steady_result)
        t.wait_empty(held)
        check(t.stop() == 0, t.log())


class Faulty(Target):
    program = PROGRAM

    def __init__(self):
        self.area = Area()
        try:
            Daemon.__init__(self, "-m", "[0]", "-s", "512", env={**preload(), **self.area.env()})
        except BaseException:
            self.area.close()
            raise
        self.port = PORT
        try:
            self.call("nvmf_create_transport", trtype="RDMA")
            for nqn, bdev in ((NQN, "Steady"), (OTHER, "M")):
                self.add_subsystem(nqn)
                self.add_malloc(bdev)
                self.add_ns(bdev, nqn, nsid=1)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.area.close()


# A device that gives no more of a kind, for as long as it lasts; what a host that connects then hears or sees.
SHORTAGES = ("rdma_create_qp", "rdma_accept", "ibv_post_send", "ibv_poll_cq", "ibv_post_srq_recv")


def test_a_device_that_gives_no_more_refuses_new_hosts_until_it_does():
    with Faulty() as t, verifying(t, 1, "-t", "3600", "-q", "4", "--kato", "0", hostnqn=NQN + ":steady") as steady:
        wait_io(t, [steady])
        t.area.protect()
        for _ in range(2):
            with Host(t, "--ios", "200", "-q", "8", nqn=OTHER, nsid=1) as h:
                check(h.result()["errors"] == 0, h.errors.read_text())
        wait_for(lambda: t.num_qpairs() == 2, "the first host to be gone")
        held, tried = t.held(), 0
        for site in [s for s in t.area.sites().values() if s.name in SHORTAGES]:
            lasting = site.name in ("rdma_create_qp", "rdma_accept", "ibv_post_send")
            t.area.arm(site.key, times=1 << 40 if lasting else 3)
            with Host(t, "--ios", "200", "-t", "10", "-q", "8", nqn=OTHER, nsid=1) as h:
                if lasting:
                    wait_for(lambda: t.area.fired() > 0 or not h.is_running(), f"{site.name} to fail")
                    wait_io(t, [steady], 50)
                    h.kill()
                else:
                    check(h.result()["errors"] == 0, f"{site.name}: {h.errors.read_text()}")
            tried += t.area.disarm() > 0
            with Host(t, "--ios", "200", "-q", "8", nqn=OTHER, nsid=1) as h:
                check(h.result()["errors"] == 0, f"after {site.name}: {h.errors.read_text()}")
        check(tried >= 3, f"{tried} shortages")
        wait_for(lambda: t.num_qpairs() == 2, "the hosts to be gone")
        steady.check_perfect(steady.stop())
        t.wait_empty(held)


def failing_reads(t, nsid):
    """What a host that reads blocks never written is told, all the time."""
    with Host(t, "-w", "randread", "--ios", "100", "-q", "8", nqn=OTHER, nsid=nsid) as h:
        return h.result()["errors"], h.errors.read_text()


def test_memory_that_the_device_does_not_take_is_no_use_until_it_does():
    """RAM disks in memory of their own, of which the device wants to know nothing: hosts of those have an error, and of no others; afterwards the
    device is asked again, with nobody's help."""
    with Faulty() as t, verifying(t, 1, "-t", "3600", "-q", "4", "--kato", "0", hostnqn=NQN + ":steady") as steady:
        wait_io(t, [steady])
        t.area.protect()
        t.area.arm_all("ibv_reg_mr")
        for nsid, mb in ((2, 64), (3, 4)):
            t.add_malloc(f"New{nsid}", mb)
            t.add_ns(f"New{nsid}", OTHER, nsid=nsid)
        check(t.area.fired() >= 2 and t.log().count("could not be registered") >= 2, t.log())
        for nsid in (2, 3):
            errors, text = failing_reads(t, nsid)
            check(errors == 100 and text.count(f"read of namespace {nsid} failed: internal error") > 0, f"{errors} errors: {text}")
        with verifying(t, 1, "--ios", "500", "-q", "8", nqn=OTHER) as h:    # another disk, a new connection
            h.check_perfect(h.result())
        fired = t.area.fired()
        wait_for(lambda: t.area.fired() >= fired + 2, "the device to be asked again")
        check(failing_reads(t, 3)[0] == 100, "it has not taken it")
        t.area.disarm()
        wait_for(lambda: t.log().count("are registered now") >= 2, "the device to take it")
        for nsid in (2, 3):
            with verifying(t, nsid, "--ios", "2000", "-q", "8", nqn=OTHER) as h:
                h.check_perfect(h.result())
        wait_for(lambda: t.num_qpairs() == 2, "the hosts to be gone")
        regions = t.held()["memory regions"]
        for nsid in (2, 3):
            t.remove_ns(nsid, OTHER)
            t.call("bdev_malloc_delete", name=f"New{nsid}")
        wait_for(lambda: t.held()["memory regions"] == regions - 2, lambda: f"{regions} memory regions to be two less: {t.held()}")
        steady.check_perfect(steady.stop())
        check(t.stop() == 0, t.log())


def mount(folder, kilobytes):
    folder.mkdir()
    p = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", folder], capture_output=True, text=True, check=False)
    if p.returncode != 0:
        raise Skip(f"no file system of our own can be mounted: {p.stderr.strip()}")


NO_ROOM = "capacity exceeded"


def fill_and_make_room(t, folder):
    with Host(t, "-w", "write", "-t", "3600", "-q", "4", "-o", "64k", nsid=1) as h:
        wait_for(lambda: t.groups("failed_nvme_io") > 0, "a write to find no room")
        check(h.is_running(), h.errors.read_text())
        check(h.stop()["errors"] > 0 and f"write of namespace 1 failed: {NO_ROOM}" in h.errors.read_text(), h.errors.read_text())
        failures = [x for x in h.errors.read_text().splitlines() if " failed: " in x]
        check(all(x.endswith(NO_ROOM) for x in failures), failures)
    with Host(t, "-w", "read", "--ios", "50", "-q", "4", "-o", "64k", nsid=1) as h:     # reads need none
        check(h.result()["errors"] == 0, h.errors.read_text())
    subprocess.run(["mount", "-o", "remount,size=16384k", folder], check=True)
    with Host(t, "-w", "write", "--ios", "50", "-q", "4", "-o", "64k", nsid=1) as h:
        check(h.result()["errors"] == 0, h.errors.read_text())
    with verifying(t, 1, "--ios", "200", "-q", "4", "-o", "64k") as h:
        h.check_perfect(h.result())


def test_a_full_disk_under_a_file_is_an_error_of_the_write_and_passes():
    with Target() as t:
        small = t.folder / "small"
        mount(small, 2048)
        try:
            t.add_file("F0", small / "disk", mb=8)      # with holes: more than there is room for
            t.add_ns("F0", nsid=1)
            t.add_ns(t.add_file("Steady", t.folder / "steady"), nsid=2)
            with verifying(t, 2, "-t", "3600", "-q", "4", "--kato", "0", hostnqn=NQN + ":steady") as steady:
                wait_io(t, [steady], 1500)      # it has filled its region
                fill_and_make_room(t, small)
                steady.check_perfect(steady.stop())
            t.wait_empty()
            check(t.stop() == 0, t.log())
        finally:
            if t.process.poll() is None:
                t.process.kill()
                t.process.wait()
            subprocess.run(["umount", small], check=False)


def test_a_full_dev_shm_is_named_at_the_start():
    """In a mount namespace of its own, where there is room for nothing."""
    script = 'mount -t tmpfs -o size=16k none /dev/shm && exec "$0" --no-huge --no-pci -s 64 -m "[0]" -r "$1"'
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        raise Skip("no mount namespace can be made")
    path = f"/tmp/varve-exhaustion-{os.getpid()}.sock"
    p = subprocess.Popen(["unshare", "-m", "sh", "-c", script, str(VARVE), path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(lambda: p.poll() is not None or os.path.exists(path), "it to start or to end")
        if p.poll() is None:
            p.terminate()
        out = p.communicate(timeout=90)[0]
    finally:
        if p.poll() is None:
            p.kill()
            p.wait()
        for x in (path, path + ".lock"):
            if os.path.exists(x):
                os.unlink(x)
    check("/dev/shm" in out or "No space" in out, f"status {p.returncode}, without a word about /dev/shm:\n{out}")
    check(p.returncode in (0, 1), f"ended with {p.returncode}:\n{out}")


SHM_KB = 12288


class Boxed(Target):
    """varve with a /dev/shm of its own, in which there is little room: the trace, and a copy or two of it."""

    def __init__(self):
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
            raise Skip("no mount namespace can be made")
        with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as f:
            f.write(f'#!/bin/sh\nexec unshare -m sh -c \'mount -t tmpfs -o size={SHM_KB}k none /dev/shm && exec "$0" "$@"\' {VARVE} "$@"\n')
        self.program = pathlib.Path(f.name)
        self.program.chmod(0o755)
        super().__init__("-e", "bdev,nvmf_rdma", "--num-trace-entries", "4096")
        self.shm = pathlib.Path(f"/proc/{self.pid}/root/dev/shm")
        self.live = self.shm / f"varve_trace.pid{self.pid}"
        (self.shm / "box").mkdir()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.program.unlink()

    def fill(self):
        with open(self.shm / "fill", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError as e:
                check(e.errno == errno.ENOSPC, e)

    def fire(self):
        """A trigger, and what became of its copy: the counters of copies and of failed ones."""
        before = self.call("trace_get_triggers")
        self.call("bdev_error_inject_error", name="EE_M1", io_type="read", error_type="failure", num=1)

        def done():
            now = self.call("trace_get_triggers")
            return now if now["copies"] + now["copies_failed"] > before["copies"] + before["copies_failed"] else None
        after = wait_for(done, "a copy to be made or to fail")
        return after["copies"] - before["copies"], after["copies_failed"] - before["copies_failed"]

    def events(self):
        """Of the reactor, in the live file, which other tools read while it is written."""
        p = subprocess.run([TRACE, "-f", self.live, "-j"], capture_output=True, text=True, check=False, timeout=DEADLINE)
        check(p.returncode == 0, p.stderr)
        return [e for e in json.loads(p.stdout)["entries"] if e["lcore"] == 0]


def test_a_full_dev_shm_at_run_time_ends_nothing_and_passes():
    with Boxed() as t:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.call("bdev_error_create", base_name="M1")
        t.add_ns("M0", nsid=1)
        t.add_ns("EE_M1", nsid=2)
        t.call("trace_set_blackbox", directory="/dev/shm/box", max_files=1)
        t.call("trace_set_trigger", name="errors", type="io_error", holdoff_us=0)
        blocks = t.live.stat()
        check(blocks.st_blocks * 512 >= blocks.st_size, "the trace file has holes: a write to one would end the process when there is no room")
        with verifying(t, 1, "-t", "3600", "-q", "4", "--kato", "0", hostnqn=NQN + ":steady") as steady, \
                Host(t, "-w", "randread", "-t", "3600", "-q", "1", "--rate", "200", nsid=2, hostnqn=NQN + ":failing") as failing:
            wait_io(t, [steady, failing])
            t.fill()
            last = t.events()[-1]["tsc"]
            wait_io(t, [steady, failing], 4096)        # some entries each: the ring is written all over
            check(t.events()[0]["tsc"] > last, "recording stood still")
            check(t.fire() == (0, 1), "a copy was made, of which there was no room")
            check("box/" in t.log() and "No space left on device" in t.log(), t.log())
            check(not list((t.shm / "box").iterdir()), "a piece of a copy was left")
            t.add_malloc("New")                         # what is made anew needs no room there: memory, and a host's connection
            t.add_ns("New", nsid=3)
            with verifying(t, 3, "--ios", "500", "-q", "4", hostnqn=NQN + ":new") as new:
                new.check_perfect(new.result())
            p = subprocess.run([TRACE, "-f", t.live, "--record", t.shm / "record", "--entries", "4096", "--for", "10s"], capture_output=True, text=True,
                               check=False, timeout=DEADLINE)
            check(p.returncode != 0 and "No space left on device" in p.stderr, (p.returncode, p.stderr))
            (t.shm / "record").unlink(missing_ok=True)
            (t.shm / "fill").unlink()
            check(t.fire() == (1, 0), f"no copy although there is room again:\n{t.log()}")
            kept = list((t.shm / "box").iterdir())
            check(len(kept) == 1 and kept[0].stat().st_size > blocks.st_size, kept)
            check(failing.is_running(), failing.errors.read_text())
            steady.check_perfect(steady.stop())
        check(t.stop() == 0, t.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
