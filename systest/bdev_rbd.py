#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: ceph
# limit: 700
# beside
"""Images of a real Ceph (a monitor, a manager and an OSD that the test starts), served over RDMA and TCP: what hosts write is what `rbd export`
finds; images that others resize; a cluster that is killed, stopped, or does not want this client any more."""
import contextlib
import datetime
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys

from appliance_lib import BUILD, DEADLINE, TOP, RpcError, check, main, wait_for
from ceph_lib import Ceph
from cluster_lib import check_aborted_only
from nvmf_lib import PORT, Target, verifying, wait_io
from nvmf_tcp_lib import Queue, TcpTarget

BS = 4096
MIB = 1 << 20


@contextlib.contextmanager
def serving(kind=Target, mib=32):
    """A Ceph with an image, and a target that serves it as namespace 1."""
    with Ceph() as ceph, kind() as t:
        ceph.image("rbd/image", mib)
        t.call("bdev_rbd_register_cluster", name="c", config_file=str(ceph.conf))
        add(t, "R0", "image", nsid=1)
        t.call("bdev_wait_for_examine")
        yield ceph, t


def add(t, name, image, nsid, **params):
    t.call("bdev_rbd_create", name=name, pool_name="rbd", rbd_name=image, block_size=BS, cluster_name="c", **params)
    t.add_ns(name, nsid=nsid)


def blocks_of(t, name):
    return t.call("bdev_get_bdevs", name=name)[0]["num_blocks"]


def refused(t, words, method, **params):
    try:
        t.call(method, **params)
    except RpcError as e:
        check(all(w in str(e) for w in words), f"{e}: {words}")
    else:
        check(False, f"{method} was not refused: {words}")


@contextlib.contextmanager
def queues(t):
    with Queue(port=t.port) as admin:
        admin.enable()
        with Queue(qid=1, cntlid=admin.cntlid, port=t.port) as io:
            yield io


def test_what_hosts_write_is_in_the_image():
    rng = random.Random(1)
    with serving(TcpTarget) as (ceph, t):
        expected = bytearray(32 * MIB)
        with queues(t) as io:
            for _ in range(60):
                blocks = rng.choice((1, 2, 7, 16, 32))
                # also across the objects, which have 4 MiB
                lba = rng.choice((rng.randrange(8192 - blocks), 1024 - blocks // 2, 3072 - blocks // 2))
                data = rng.randbytes(blocks * BS)
                check(io.write(lba, data, bs=BS, in_capsule=blocks == 1).code == 0, lba)
                expected[lba * BS:lba * BS + len(data)] = data
            zeroes = io.sqe(8, 1, (512).to_bytes(8, "little") + (15).to_bytes(4, "little"))
            check(io.command(zeroes).code == 0, "Write Zeroes")
            expected[512 * BS:528 * BS] = bytes(16 * BS)
            check(io.command(io.sqe(0, 1)).code == 0, "Flush")
            for _ in range(30):
                lba, blocks = rng.randrange(8192 - 32), 32
                check(io.read(lba, blocks, bs=BS).data == bytes(expected[lba * BS:(lba + blocks) * BS]), lba)
        check(ceph.export("rbd/image") == bytes(expected), "the image has other data")
        t.stop_clean()


def test_hosts_are_told_of_objects_and_stripes():
    """Those of the image and of another one, whose bytes are dealt out to two objects in turn, 64 KiB to each."""
    with serving(TcpTarget) as (ceph, t):
        ceph.run("rbd", "create", "-s", "32M", "--object-size", "1M", "--stripe-unit", "64K", "--stripe-count", "2", "rbd/striped")
        add(t, "R1", "striped", nsid=2)
        rng = random.Random(2)
        expected = bytearray(32 * MIB)
        with Queue(port=t.port) as admin:
            admin.enable()
            for nsid, boundary, nows in ((1, 4 * MIB, 0), (2, MIB // 16, MIB // 8 // BS - 1)):       # NOWS counts from 0; none above MDTS, 128 KiB
                found = admin.identify(0, nsid)
                told = [int.from_bytes(found[at:at + 2], "little") for at in (46, 72)]
                check(told == [boundary // BS, nows], f"NOIOB and NOWS of namespace {nsid}: {told}")
            info = t.call("bdev_get_bdevs", name="R1")[0]
            check(info["optimal_write_size"] == 32, info)
            rbd = info["driver_specific"]["rbd"]
            check((rbd["object_bytes"], rbd["stripe_bytes"], rbd["stripe_count"]) == (MIB, MIB // 16, 2), rbd)
            with Queue(qid=1, cntlid=admin.cntlid, port=t.port) as io:
                for _ in range(20):
                    lba, data = rng.randrange(8192 - 32), rng.randbytes(32 * BS)
                    check(io.write(lba, data, nsid=2, bs=BS, in_capsule=False).code == 0, lba)
                    expected[lba * BS:(lba + 32) * BS] = data
                zeroes = io.sqe(8, 2, (4000).to_bytes(8, "little") + (99).to_bytes(4, "little"))
                check(io.command(zeroes).code == 0, "Write Zeroes")
                expected[4000 * BS:4100 * BS] = bytes(100 * BS)
        check(ceph.export("rbd/striped") == bytes(expected), "the image has other data")
        t.stop_clean()


def compare_and_write(q, lba, expected, data, nsid, bs):
    """Of one block or more: the status codes of the Compare and the Write."""
    cids = []
    for opcode, half, what in ((5, 1, expected), (1, 2, data)):
        sqe = bytearray(q.rw_sqe(opcode, lba, len(what) // bs, nsid))
        sqe[1] |= half
        cids.append(q.start(bytes(sqe), what))
    return [q.finish(cid).code for cid in cids]


def test_compare_and_write():
    """librbd does it for a sector of 512 bytes."""
    with serving(TcpTarget) as (ceph, t):
        t.call("bdev_rbd_create", name="R512", pool_name="rbd", rbd_name="image", block_size=512, cluster_name="c")
        t.add_ns("R512", nsid=2)
        with queues(t) as io:
            for nsid, bs in ((1, BS), (2, 512)):
                old, new = io.read(9, 1, bs=bs, nsid=nsid).data, bytes([nsid]) * bs
                check(compare_and_write(io, 9, old, new, nsid, bs) == [0, 0], f"{bs}: they are equal")
                check(io.read(9, 1, bs=bs, nsid=nsid).data == new, bs)
                check(compare_and_write(io, 9, old, old, nsid, bs) == [0x285, 9], f"{bs}: they differ")
                check(io.read(9, 1, bs=bs, nsid=nsid).data == new, bs)
        t.stop_clean()


def test_verified_io_goes_on_while_the_image_is_resized_and_snapshotted():
    with serving() as (ceph, t):
        with verifying(t, 1, "-q", "16", "-o", "4096", "-t", "3600", "--region", "256K") as h:
            wait_io(t, [h])
            check(t.call("bdev_rbd_resize", name="R0", new_size=48) is True, "resize")
            check(blocks_of(t, "R0") == 48 * MIB // BS, "its new size")
            ceph.run("rbd", "resize", "--no-progress", "-s", "64M", "rbd/image")
            wait_for(lambda: blocks_of(t, "R0") == 64 * MIB // BS, "the size that somebody else gave it")
            ceph.run("rbd", "snap", "create", "--no-progress", "rbd/image@before")
            wait_io(t, [h])
            add(t, "S", "image", nsid=2, snapshot="before")
            check("write" in t.call("bdev_get_bdevs", name="S")[0]["supported_io_types"], "the snapshot")
            h.check_perfect(h.stop())
        refused(t, ["multiple", "67108864"], "bdev_rbd_resize", name="R0", new_size=63)
        refused(t, ["read-only"], "bdev_rbd_resize", name="S", new_size=128)
        t.stop_clean()


def test_an_osd_that_is_killed_and_comes_back_loses_nothing():
    with serving() as (ceph, t):
        with verifying(t, 1, "-q", "16", "-o", "4096", "-t", "3600", "--region", "256K") as h:
            wait_io(t, [h])
            ceph.kill_osd()
            # what waits is named
            wait_for(lambda: any(i["state"] == "module" for b in t.call("bdev_get_inflight", name="R0") for i in b["inflight"]), "I/O that waits")
            ceph.start_osd()
            wait_io(t, [h], 400)
            h.check_perfect(h.stop())
        t.stop_clean()


def waits(t, seconds=2):
    """I/O has waited for the cluster for so long."""
    return any(i["state"] == "module" and i["age_us"] > seconds * 1000000 for b in t.call("bdev_get_inflight", name="R0") for i in b["inflight"])


def test_a_cluster_that_is_stopped_for_a_minute_loses_nothing():
    """Hosts abort what has waited for 30 s."""
    with serving() as (ceph, t):
        with verifying(t, 1, "-q", "4", "-o", "4096", "-t", "3600", "--region", "256K") as h:
            wait_io(t, [h])
            for name in ceph.processes:
                ceph.signal(name, signal.SIGSTOP)
            wait_for(lambda: waits(t, 60), "I/O to wait for a minute", 2 * DEADLINE)
            for name in ceph.processes:
                ceph.signal(name, signal.SIGCONT)
            wait_io(t, [h], 400)
            check_aborted_only(h, h.stop())
        t.stop_clean()


def test_a_pool_that_is_full_and_grows_loses_nothing():
    with serving() as (ceph, t):
        with verifying(t, 1, "-q", "4", "-o", "4096", "-t", "3600", "--region", "256K") as h:
            wait_io(t, [h])
            ceph.run("ceph", "osd", "pool", "set-quota", "rbd", "max_objects", "1")
            wait_for(lambda: waits(t), "I/O to wait")
            ceph.run("ceph", "osd", "pool", "set-quota", "rbd", "max_objects", "0")
            wait_io(t, [h], 400)
            h.check_perfect(h.stop())
        t.stop_clean()


def test_a_client_that_is_blocklisted_acknowledges_nothing_any_more():
    with serving(TcpTarget) as (ceph, t):
        with queues(t) as io:
            check(io.write(0, b"a" * BS, bs=BS).code == 0, "a write before")
            watchers = json.loads(ceph.run("rbd", "status", "--format", "json", "rbd/image"))["watchers"]
            ceph.run("ceph", "osd", "blocklist", "add", watchers[0]["address"])
            # the OSD knows it a moment later
            code = wait_for(lambda: io.write(0, b"a" * BS, bs=BS).code, "a write to be refused")
            check(code >> 8 == 3, f"hosts are told to try another controller: {code:#x}")
            check(io.write(1, b"b" * BS, bs=BS).code != 0, "a write after")
        wait_for(lambda: "Ceph has blocklisted this client" in t.log(), "the log")
        events = t.call("notify_get_notifications", all=True)
        check([e["ctx"] for e in events if e["type"] == "bdev_rbd_lost"] == ["R0"], events)
        check(t.call("bdev_get_bdevs", name="R0")[0]["driver_specific"]["rbd"]["lost"], "it is shown")
        wait_for(lambda: t.controllers() == [], "the host to be gone")
        check(t.call("bdev_rbd_delete", name="R0") is True and t.call("bdev_rbd_unregister_cluster", name="c") is True, "deletion")
        # a new connection is another client
        t.call("bdev_rbd_register_cluster", name="c", config_file=str(ceph.conf))
        add(t, "R0", "image", nsid=1)
        with queues(t) as io:
            check(io.read(0, 1, bs=BS).data == b"a" * BS, "what was acknowledged")
        t.stop_clean("bdev R0: ")


def test_a_node_is_made_again_from_its_saved_configuration():
    with serving() as (ceph, t):
        ceph.run("rbd", "namespace", "create", "rbd/tenant")
        ceph.image("rbd/tenant/other", 16)
        t.call("bdev_rbd_create", pool_name="rbd", rbd_name="other", rados_namespace="tenant", block_size=512, read_only=True,
               config={"mon_host": f"[v2:127.0.0.1:{ceph.port}/0]", "auth_client_required": "none", "auth_cluster_required": "none",
                       "auth_service_required": "none"})
        saved = t.call("framework_get_config", name="bdev")
        calls = [c for c in saved if c["method"].startswith("bdev_rbd_")]
        check([c["method"] for c in calls] == ["bdev_rbd_register_cluster", "bdev_rbd_create", "bdev_rbd_create"], calls)
        shown = t.call("bdev_get_bdevs")
        check(shown[1]["name"] == "Ceph0", shown[1])
        check(t.call("bdev_rbd_delete", name="Ceph0") is True and t.call("bdev_rbd_delete", name="R0") is True, "deletion")
        check(t.call("bdev_rbd_unregister_cluster", name="c") is True, "unregister")
        refused(t, ["c"], "bdev_rbd_get_clusters_info", name="c")
        for c in calls:
            t.call(c["method"], **c["params"])

        def comparable(bdevs):
            for b in bdevs:
                check("/" in b["driver_specific"]["rbd"].pop("client"), "the address of a client, which is a new one now")
            return [{k: v for k, v in b.items() if k not in ("claimed", "claimed_by", "claim_type", "state_us")} for b in bdevs]
        for now, before in zip(comparable(t.call("bdev_get_bdevs")), comparable(shown), strict=True):
            check(now == before, [(k, now.get(k), before.get(k)) for k in now.keys() | before.keys() if now.get(k) != before.get(k)])
        cluster, = t.call("bdev_rbd_get_clusters_info")
        check(cluster["cluster_name"] == "c" and cluster["users"] == 1 and cluster["connected"], cluster)
        t.stop_clean()


def test_what_cannot_be_had_is_explained():
    with serving() as (ceph, t):
        create = {"pool_name": "rbd", "rbd_name": "image", "block_size": BS, "cluster_name": "c"}
        refused(t, ["pool_name 'nobody'"], "bdev_rbd_create", **{**create, "pool_name": "nobody"})
        refused(t, ["image 'nothing'"], "bdev_rbd_create", **{**create, "rbd_name": "nothing"})
        refused(t, ["cluster_name 'd'"], "bdev_rbd_create", **{**create, "cluster_name": "d"})
        refused(t, ["snapshot none"], "bdev_rbd_create", snapshot="none", **create)
        refused(t, ["user_id", "cluster_name"], "bdev_rbd_create", user_id="admin", **create)
        refused(t, ["1 use it"], "bdev_rbd_unregister_cluster", name="c")
        refused(t, ["config_file", "/none"], "bdev_rbd_register_cluster", name="d", config_file="/none")
        refused(t, ["no_such_thing"], "bdev_rbd_register_cluster", name="d", config_param={"no_such_thing": "1"})
        refused(t, ["config_param", "string"], "bdev_rbd_register_cluster", name="d", config_param={"mon_host": 1})
        # nobody listens there
        refused(t, ["no connection"], "bdev_rbd_register_cluster", name="d", config_param={
            "mon_host": "v2:127.0.0.1:1/0", "client_mount_timeout": "2", "auth_client_required": "none"})
        t.stop_clean()


def test_a_cluster_that_does_not_answer_does_not_keep_the_daemon():
    with serving() as (ceph, t):
        ceph.signal("osd.0", signal.SIGSTOP)
        t.stop_clean("it could not be closed within", "still waiting for bdev to stop")
        check("image 'image' of pool 'rbd'" in t.log(), t.log())


def test_an_opening_that_waits_is_listed():
    """Also when its client has gone."""
    with serving() as (ceph, t):
        ceph.image("rbd/other", 16)
        ceph.signal("osd.0", signal.SIGSTOP)
        client = t.connect()
        client.send({"jsonrpc": "2.0", "id": 1, "method": "bdev_rbd_create",
                     "params": {"name": "R1", "pool_name": "rbd", "rbd_name": "other", "block_size": BS, "cluster_name": "c"}})

        def waiting():
            return [c.get("waits_for", "") for c in t.call("rpc_get_calls") if c["method"] == "bdev_rbd_create"]
        wait_for(lambda: any("job 'open' of image 'other' of pool 'rbd'" in w and w.endswith("in rbd_open") for w in waiting()), "what it waits for")
        client.close()
        job, = (j for j in t.call("bdev_rbd_get_jobs") if j.get("rbd_name") == "other")
        check(job["job"] == "open" and job["bdev"] == "R1" and job["cluster_name"] == "c" and job["call"] == "rbd_open", job)
        ceph.signal("osd.0", signal.SIGCONT)
        wait_for(lambda: t.call("bdev_rbd_get_jobs") == [], "the end of all of it")
        t.stop_clean()


def test_images_have_no_threads_of_their_own():
    with serving(TcpTarget) as (_, t):
        def threads():
            return len(os.listdir(f"/proc/{t.pid}/task"))
        with queues(t) as io:
            check(io.read(0, 1, bs=BS).code == 0, "librbd has made what it makes at first")
        wait_for(lambda: t.call("bdev_rbd_get_jobs") == [], "the end of what was begun")
        before = threads()
        for n in range(50):
            t.call("bdev_rbd_create", name=f"I{n}", pool_name="rbd", rbd_name="image", block_size=BS, cluster_name="c")
        # a worker's thread ends a moment after its job
        wait_for(lambda: threads() <= before, lambda: f"{threads()} threads to become {before} with 50 images more")
        t.stop_clean()


def test_the_rights_that_the_manual_tells_suffice_to_fence():
    """The command is that of doc/ceph.md."""
    command, = re.findall(r"^    ceph auth get-or-create client\.varve (.*) -o .*$", (TOP / "doc/ceph.md").read_text(), re.M)
    with Ceph(cephx=True) as ceph, TcpTarget() as a, TcpTarget(port=PORT + 1) as b:
        ceph.image("rbd/image", 32)
        key = ceph.folder / "varve.keyring"
        key.write_text(ceph.run("ceph", "auth", "get-or-create", "client.varve", *shlex.split(command)))
        refused(a, ["no connection"], "bdev_rbd_register_cluster", name="c", user_id="nobody", key_file=str(key), config_file=str(ceph.conf))
        for t in (a, b):
            t.call("bdev_rbd_register_cluster", name="c", user_id="varve", key_file=str(key), config_file=str(ceph.conf))
            add(t, "R0", "image", nsid=1, standby=True)
        client = a.call("bdev_get_bdevs", name="R0")[0]["driver_specific"]["rbd"]["client"]
        a.call("bdev_own", name="R0")
        a.process.send_signal(signal.SIGSTOP)
        # because it has the lock
        b.call("bdev_own", name="R0", fence=True)
        with queues(b) as io:
            check(io.write(0, b"b" * BS, bs=BS).code == 0, "the new owner writes")
        listed = ceph.run("ceph", "osd", "blocklist", "ls")
        check(any(line.split()[0] in client for line in listed.splitlines() if ":" in line), f"{listed} {client}")
        a.process.send_signal(signal.SIGCONT)
        # because it does not answer
        a.call("bdev_rbd_delete", name="R0")
        a.call("bdev_rbd_unregister_cluster", name="c")
        a.call("bdev_rbd_register_cluster", name="c", user_id="varve", key_file=str(key), config_file=str(ceph.conf))
        add(a, "R0", "image", nsid=1, standby=True)
        client = a.call("bdev_get_bdevs", name="R0")[0]["driver_specific"]["rbd"]["client"]
        check(b.call("bdev_rbd_fence_silent", name="R0", clients=client) == [], "it answers")
        a.process.send_signal(signal.SIGSTOP)
        fenced = b.call("bdev_rbd_fence_silent", name="R0", clients=client)
        check(len(fenced) == 1 and fenced[0] in client, f"{fenced} {client}")
        a.process.send_signal(signal.SIGCONT)


def trace_of(t):
    """Lines by tracepoint, the oldest first."""
    p = subprocess.run([BUILD / "bin/varve-trace", "-p", str(t.pid)], capture_output=True, text=True, timeout=DEADLINE, check=True)
    found = {}
    for line in p.stdout.splitlines():
        for word in line.split():
            if word.startswith("RBD_"):
                found.setdefault(word, []).append(line)
    return found


def test_the_trace_and_the_list_in_flight_have_what_an_image_waits_for():
    with Ceph() as ceph, TcpTarget("-e", "rbd") as t:
        ceph.image("rbd/image", 32)
        t.call("bdev_rbd_register_cluster", name="c", config_file=str(ceph.conf))
        add(t, "R0", "image", nsid=1, standby=True)
        with queues(t) as io:
            check(io.write(0, b"0" * BS, bs=BS).code >> 8 == 3, "a standby refuses")
            t.call("bdev_own", name="R0")
            check(io.write(0, b"1" * BS, bs=BS).code == 0, "the owner writes")
            ceph.signal("osd.0", signal.SIGSTOP)
            cid = io.start(io.rw_sqe(1, 0, 1), b"2" * BS)
            words = wait_for(lambda: [i["waits_for"] for b in t.call("bdev_get_inflight", name="R0") for i in b["inflight"] if "waits_for" in i], "what it waits for")
            check(re.fullmatch(r"Ceph: nothing of this thread has ended for \d+ s", words[0]), words)
            found = trace_of(t)
            check([len(found[name]) for name in ("RBD_LOCK", "RBD_IO_SUBMIT", "RBD_IO_DONE")] == [2, 2, 1], found)
            check(all(re.search(r"why: *0\b", line) for line in found["RBD_IO_REFUSED"]), found)
            ceph.signal("osd.0", signal.SIGCONT)
            check(io.finish(cid).code == 0, "it goes on")
            t.call("bdev_disown", name="R0")
            t.call("bdev_own", name="R0")
            ceph.run("ceph", "osd", "blocklist", "add", t.call("bdev_get_bdevs", name="R0")[0]["driver_specific"]["rbd"]["client"])
            wait_for(lambda: io.write(0, b"a" * BS, bs=BS).code >> 8 == 3 and "Ceph has blocklisted this client" in t.log(), t.log)
        found = trace_of(t)
        check(len(found["RBD_IO_SUBMIT"]) == len(found["RBD_IO_DONE"]) and len(found["RBD_LOCK"]) >= 6 and len(found["RBD_LOST"]) == 1, found)
        check("Ceph has blocklisted this client" in found["RBD_LOST"][0] and re.search(r"why: *1\b", found["RBD_IO_REFUSED"][-1]), found)


def test_one_of_two_gateways_writes_to_an_image():
    with Ceph() as ceph, TcpTarget() as a, TcpTarget(port=PORT + 1) as b:
        ceph.image("rbd/image", 32)
        for t in (a, b):
            t.call("bdev_rbd_register_cluster", name="c", config_file=str(ceph.conf))
            add(t, "R0", "image", nsid=1, standby=True)
        with queues(a) as qa, queues(b) as qb:
            check(qa.write(0, b"0" * BS, bs=BS).code >> 8 == 3, "a standby refuses")
            a.call("bdev_own", name="R0")
            check(qa.write(0, b"a" * BS, bs=BS).code == 0, "the owner writes")
            check(qb.write(0, b"b" * BS, bs=BS).code >> 8 == 3, "the other one does not")
            refused(b, ["has the lock", "fence"], "bdev_own", name="R0")
            # handed over: nobody is blocklisted
            a.call("bdev_disown", name="R0")
            b.call("bdev_own", name="R0")
            check(qb.read(0, 1, bs=BS).data == b"a" * BS and qb.write(0, b"b" * BS, bs=BS).code == 0, "the next owner")
            check(qa.write(0, b"c" * BS, bs=BS).code >> 8 == 3, "no longer")
            b.call("bdev_disown", name="R0")
            a.call("bdev_own", name="R0", fence=True)
            check(qa.write(0, b"b" * BS, bs=BS).code == 0 and not b.call("bdev_get_bdevs", name="R0")[0]["driver_specific"]["rbd"]["lost"], "nobody had the lock")
            # taken away from one that is stopped, with a write that it has taken and not carried out
            a.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, a.process.pid, os.WSTOPPED)  # until its last thread has stopped, it may carry out a write, and rightly
            late = qa.start(qa.rw_sqe(1, 0, 1), b"l" * BS)
            b.call("bdev_own", name="R0", fence=True)
            check(qb.write(0, b"n" * BS, bs=BS).code == 0, "the new owner writes at once")
            ends = [x.split()[1][:10] for x in ceph.run("ceph", "osd", "blocklist", "ls").splitlines() if ":" in x]
            check(any((datetime.date.fromisoformat(x) - datetime.date.today()).days > 300 for x in ends), f"the old one stays blocklisted: {ends}")
            a.process.send_signal(signal.SIGCONT)
            code = qa.finish(late).code
            check(code >> 8 == 3, f"the old owner's write is not acknowledged: {code:#x}")
            check(qb.read(0, 1, bs=BS).data == b"n" * BS, "nor carried out")
            wait_for(lambda: a.call("bdev_get_owners")[0]["state"] == "standby", "the old owner to know")
            refused(a, ["is lost"], "bdev_own", name="R0")
        # as a new client it may have the image again
        a.call("bdev_rbd_delete", name="R0")
        a.call("bdev_rbd_unregister_cluster", name="c")
        a.call("bdev_rbd_register_cluster", name="c", config_file=str(ceph.conf))
        add(a, "R0", "image", nsid=1, standby=True)
        b.call("bdev_disown", name="R0")
        a.call("bdev_own", name="R0")
        # of one that was killed, without and with a word about it
        a.process.kill()
        a.process.wait()
        b.call("bdev_own", name="R0", fence=True)
        ceph.run("rbd", "create", "-s", "8M", "--image-feature", "layering", "rbd/plain")
        add(b, "P", "plain", nsid=2, standby=True)
        refused(b, ["exclusive-lock"], "bdev_own", name="P")
        b.call("bdev_rbd_delete", name="P")
        check(b.stop() == 0, b.log())


def test_a_standby_has_no_cache_and_does_not_fence_its_own_client():
    with Ceph() as ceph, TcpTarget() as t:
        ceph.image("rbd/image", 32)
        t.call("bdev_rbd_register_cluster", name="c", config_file=str(ceph.conf))
        image = {"pool_name": "rbd", "rbd_name": "image", "block_size": BS, "standby": True}
        for name, value in (("rbd_cache", "true"), ("rbd_persistent_cache_mode", "ssd")):
            for kind, of in (("image", "rbd/image"), ("pool", "rbd")):
                ceph.run("rbd", "config", kind, "set", of, name, value)
                refused(t, [name, value, kind], "bdev_rbd_create", name="S", cluster_name="c", **image)
                ceph.run("rbd", "config", kind, "rm", of, name)
        t.call("bdev_rbd_register_cluster", name="d", config_file=str(ceph.conf), config_param={"rbd_cache": "true"})
        refused(t, ["rbd_cache", "connection"], "bdev_rbd_create", name="S", cluster_name="d", **image)
        t.call("bdev_rbd_create", name="S", cluster_name="c", **image)
        # a bdev that is no standby has the lock when it has written
        add(t, "R", "image", nsid=1)
        with queues(t) as q:
            check(q.write(0, b"r" * BS, bs=BS).code == 0, "it writes")
            refused(t, ["in use by this process"], "bdev_own", name="S", fence=True)
            check(q.write(0, b"s" * BS, bs=BS).code == 0, "it still writes")
        t.call("bdev_rbd_delete", name="R")
        t.call("bdev_own", name="S", fence=True)
        t.call("bdev_rbd_create", name="U", cluster_name="c", **image)
        refused(t, ["in use by bdev 'S' of this process"], "bdev_own", name="U", fence=True)
        check(t.stop() == 0, t.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
