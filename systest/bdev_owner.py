#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""Bdevs that are standbys until bdev_own: one of several processes uses the file, all others refuse; a lease ends by itself; a host with paths to
two targets follows, and finds what it wrote."""
import contextlib
import pathlib
import shutil
import sys
import tempfile
import time

from appliance_lib import RpcError, check, main, wait_for
from nvmf_lib import NQN, NUM_CPUS, PORT, Host, Target, wait_io
from nvmf_tcp_lib import Queue

BS = 512
UUID = "8d1f6c1e-55b1-4a5e-9f0e-0123456789ab"


class Gateway(Target):
    """One of two that have a file, as namespace 1, and own it not yet."""
    trtype = "TCP"

    def __init__(self, number, disk):
        self.number = number
        super().__init__(cores=f"[{number % NUM_CPUS}]", port=PORT + number, listen=False, trtype="TCP")
        try:
            self.call("nvmf_delete_subsystem", nqn=NQN)
            self.add_subsystem(NQN, listen=False, ana_reporting=True, max_namespaces=8, min_cntlid=1 + 1000 * number, max_cntlid=1000 + 1000 * number)
            self.add_file("F", disk, mb=4, standby=True, uuid=UUID)
            self.add_ns("F", nsid=1, anagrpid=1, uuid=UUID)
            self.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=self.listen_address(), ana_state="inaccessible")
        except BaseException:
            self.__exit__()
            raise

    def set_ana(self, state):
        self.call("nvmf_subsystem_listener_set_ana_state", nqn=NQN, listen_address=self.listen_address(), ana_state=state)

    def own(self, **params):
        self.call("bdev_own", name="F", **params)

    def disown(self):
        self.call("bdev_disown", name="F")

    def owner(self):
        return self.call("bdev_get_owners")[0]

    @contextlib.contextmanager
    def queue(self):
        with Queue(port=self.port) as admin:
            admin.enable()
            with Queue(qid=1, cntlid=admin.cntlid, port=self.port) as io:
                yield io


@contextlib.contextmanager
def two_gateways():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-owner-"))
    try:
        with Gateway(0, folder / "disk") as a, Gateway(1, folder / "disk") as b:
            yield a, b
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refused(words, call):
    try:
        call()
    except RpcError as e:
        check(all(w in str(e) for w in words), f"{e}: {words}")
    else:
        check(False, f"was not refused: {words}")


def compare_and_write(q, lba, expected, data):
    """The status codes of a fused pair."""
    pair = []
    for opcode, fuse in ((5, 1), (1, 2)):
        sqe = bytearray(q.rw_sqe(opcode, lba, 1))
        sqe[1] |= fuse
        pair.append(bytes(sqe))
    cids = [q.start(sqe, block) for sqe, block in zip(pair, (expected, data), strict=True)]
    return [q.finish(c).code for c in cids]


def boottime_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def test_one_of_two_processes_uses_the_file():
    with two_gateways() as (a, b):
        a.set_ana("optimized")
        b.set_ana("optimized")
        with a.queue() as qa, b.queue() as qb:
            check(qa.write(0, b"0" * BS).code >> 8 == 3 and qa.read(0, 1).code >> 8 == 3, "a standby refuses, so that hosts try another controller")
            codes = compare_and_write(qa, 3, bytes(BS), b"0" * BS)
            check([c >> 8 for c in codes] == [3, 3], f"... also of a fused pair: {codes}")
            a.own()
            check(compare_and_write(qa, 3, bytes(BS), b"1" * BS) == [0, 0] and qa.read(3, 1).data == b"1" * BS, "the owner carries one out")
            check(a.owner() == {"name": "F", "state": "owner"} and b.owner()["state"] == "standby", a.owner())
            check(qa.write(0, b"a" * BS).code == 0, "the owner writes")
            refused([f"process {a.pid}", "'F'"], b.own)
            refused([f"process {a.pid}"], lambda: b.own(fence=True))
            check(qb.write(0, b"b" * BS).code >> 8 == 3, "the other one does not")
            a.own()
            a.disown()
            a.disown()
            check(qa.write(0, b"c" * BS).code >> 8 == 3, "no longer")
            b.own()
            check(qb.read(0, 1).data == b"a" * BS and qb.write(0, b"b" * BS).code == 0, "the new owner finds what was written")
            refused([f"process {b.pid}"], a.own)
        b.process.kill()
        b.process.wait()
        wait_for(lambda: owned(a), "the lock of a process that was killed")
        with a.queue() as qa:
            check(qa.read(0, 1).data == b"b" * BS, "what the dead owner wrote")
        a.stop_clean("no longer")


def owned(gateway, **params):
    try:
        gateway.own(**params)
        return True
    except RpcError as e:
        check("in use" in str(e), e)
        return False


def test_a_lease_ends_by_itself():
    with two_gateways() as (a, b):
        refused(["until_us"], lambda: a.own(until_us=0))
        check(a.owner() == {"name": "F", "state": "standby"}, a.owner())
        refused(["until_us", "passed"], lambda: a.own(until_us=boottime_us()))
        a.own(until_us=boottime_us() + 3600 * 1000000)
        check(0 < a.owner()["lease_us"] <= 3600 * 1000000, a.owner())
        refused(["in use"], b.own)
        a.own(until_us=boottime_us() + 5000000)
        wait_for(lambda: owned(b, until_us=boottime_us() + 3600 * 1000000), "the lease to end")
        check(a.owner() == {"name": "F", "state": "standby"}, a.owner())
        events = a.call("notify_get_notifications", all=True)
        check([(e["ctx"], e.get("reason")) for e in events if e["type"] == "bdev_owner_ended"] == [("F", "its lease has ended")], events)
        b.own()
        check("lease_us" not in b.owner(), b.owner())
        a.stop_clean("its lease has ended")
        b.stop_clean()


def test_what_cannot_be_is_refused():
    with two_gateways() as (a, _):
        a.call("bdev_malloc_create", name="M", block_size=512, num_blocks=64)
        refused(["'M'", "standby"], lambda: a.call("bdev_own", name="M"))
        refused(["'none'"], lambda: a.call("bdev_disown", name="none"))
        file = a.call("bdev_get_bdevs", name="F")[0]["driver_specific"]["uring"]["filename"]
        for other in ("shared", "readonly"):
            refused(["standby", other], lambda other=other: a.call("bdev_uring_create", name="G", filename=file, standby=True, **{other: True}))
        a.own()
        a.call("bdev_uring_create", name="G", filename=file, standby=True)
        refused(["in use by bdev 'F' of this process"], lambda: a.call("bdev_own", name="G"))
        a.call("bdev_uring_delete", name="F")
        check([o["name"] for o in a.call("bdev_get_owners")] == ["G"], "those that are left")
        a.call("bdev_own", name="G")
        a.stop_clean()


def test_a_host_follows_the_owner_and_finds_what_it_wrote():
    with two_gateways() as (a, b), Target(cores=f"[{NUM_CPUS - 1}]", port=PORT + 2, trtype="TCP") as front:
        a.own()
        a.set_ana("optimized")
        for g in (a, b):
            front.call("bdev_nvme_attach_controller", name="N", ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, subnqn=NQN, **g.listen_address())
        front.add_ns("Nn1", nsid=1)
        with Host(front, "-w", "randrw", "--verify", "-q", "8", "--region", "256k", "-t", "3600", nsid=1) as h:
            wait_io(front, [h])
            old, new = a, b
            for _ in range(10):
                old.set_ana("inaccessible")
                old.disown()
                new.own()
                new.set_ana("optimized")
                wait_io(front, [h])
                old, new = new, old
            # without a word to the hosts: the refusals alone lead them to the other one
            old.disown()
            new.own()
            old.set_ana("inaccessible")
            new.set_ana("optimized")
            wait_io(front, [h])
            h.check_perfect(h.stop())
        for g in (front, a, b):
            check(g.stop() == 0, g.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
