#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
# sanitize
"""Data that the kernel sends without a copy (MSG_ZEROCOPY), of a target and of a varve that is its host, on the loopback interface. Its kernel
copies and says so, after which nothing more is asked for; with systest/never_copied.c it does not say so."""
import json
import random
import socket
import sys

from appliance_lib import BUILD, DEADLINE, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT, preload, verifying, wait_io
from nvmf_tcp_lib import Queue, TcpTarget
from nvmf_tls_lib import TlsTarget

FRONT = PORT + 21000
THRESHOLD = 8192
OPTIONS = {"enable_zerocopy_send_server": True, "enable_zerocopy_send_client": True, "zerocopy_threshold": THRESHOLD}
NEVER_COPIED = BUILD / "systest" / "libnever-copied.so"


def configured(folder, threshold=THRESHOLD):
    """The options, in a file."""
    path = folder / "sock.json"
    options = {"impl_name": "posix", **OPTIONS, "zerocopy_threshold": threshold}
    path.write_text(json.dumps({"subsystems": [{"subsystem": "sock", "config": [{"method": "sock_impl_set_options", "params": options}]}]}))
    return path


def started(folder, port=PORT, libraries=(), **more):
    """A target with zero copy."""
    return TcpTarget("-c", configured(folder), port=port, env=preload(*libraries), **more)


def counters(t):
    devices = [d for g in t.call("nvmf_get_stats")["poll_groups"] for x in g["transports"] for d in x["devices"]]
    return sum(d["zerocopy_sends"] for d in devices), sum(d["zerocopy_copied"] for d in devices)


def attach(front, **more):
    return front.call("bdev_nvme_attach_controller", name="N", trtype="TCP", adrfam="IPv4", traddr=ADDRESS, trsvcid=str(PORT), subnqn=NQN, num_io_queues=2,
                      ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, **more)[0]


def test_a_kernel_that_copies_is_asked_once_for_each_connection():
    with TcpTarget(listen=False) as scratch, started(scratch.folder) as t, started(scratch.folder, FRONT, listen=False) as front:
        t.add_malloc("M0")
        t.add_ns("M0")
        front.add_ns(attach(front))
        front.add_listener()
        with verifying(front, 1, "--ios", "2000", "-o", "64k", "-q", "16") as h:
            h.check_perfect(h.result())
        front.call("bdev_nvme_detach_controller", name="N")
        t.wait_empty()
        for x in t, front:
            sends, copied = counters(x)
            check(0 < sends == copied < 200, f"{sends} sends without a copy, {copied} of them copied")
            check(x.log().count("MSG_ZEROCOPY: the kernel has copied data") == 1, x.log())
            x.stop_clean()


def test_reads_below_the_threshold_are_copied():
    with TcpTarget(listen=False) as scratch, started(scratch.folder) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        for size, wanted in ((THRESHOLD - 512, 0), (THRESHOLD, 1)):
            admin = Queue()
            admin.enable()
            with admin, Queue(1, admin.cntlid) as q:
                check(q.read(0, size // 512).status == 0, "a read")
            t.wait_empty()
            check(counters(t)[0] == wanted, f"{counters(t)} after a read of {size} bytes")
        t.stop_clean()


def test_connections_over_tls_and_targets_without_the_option_copy():
    with TcpTarget(listen=False) as scratch:
        with TlsTarget("-c", configured(scratch.folder)) as t:
            with verifying(t, 1, "--psk", str(t.folder / "psk.tls"), "--ios", "300", "-o", "64k", "-q", "8") as h:
                h.check_perfect(h.result())
            check(counters(t) == (0, 0), counters(t))
            t.stop_clean()
        scratch.add_malloc("M0")
        scratch.add_ns("M0")
        scratch.add_listener()
        with verifying(scratch, 1, "--ios", "300", "-o", "64k", "-q", "8") as h:
            h.check_perfect(h.result())
        check(counters(scratch) == (0, 0), counters(scratch))
        scratch.stop_clean()


def upset(t, front, rng):
    """Something that ends connections while data are under way."""
    what = rng.randrange(3)
    if what == 0:
        front.call("bdev_nvme_reset_controller", name="N")
    elif what == 1:
        t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=t.listen_address())
        t.add_listener()
    else:
        with verifying(t, 2, "-o", "128k", "-q", "16", "-t", "36000") as h:
            wait_io(t, [h], 100)
            h.kill()


def test_resets_with_data_under_way_show_no_wrong_byte():
    """A host verifies what it reads of a varve that is a host itself, and whose connections end all the time."""
    seed = random.randrange(1 << 32)
    print(f"# seed {seed}")
    rng = random.Random(seed)
    with TcpTarget(listen=False) as scratch, started(scratch.folder, libraries=[NEVER_COPIED]) as t, \
            started(scratch.folder, FRONT, libraries=[NEVER_COPIED], listen=False) as front:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.add_ns("M0")
        t.add_ns("M1")
        before = t.held()
        front.call("bdev_nvme_set_options", bdev_retry_count=-1)
        attach(front)
        front.add_ns("Nn1")
        front.add_listener()
        with verifying(front, 1, "-t", "36000", "-o", "64k", "-q", "16") as h:
            wait_io(front, [h])
            for _ in range(15):
                upset(t, front, rng)
                wait_io(front, [h], 50)
            h.check_perfect(h.stop())
        front.call("bdev_nvme_detach_controller", name="N")
        t.wait_empty(before)
        for x in t, front:
            sends, copied = counters(x)
            check(sends > 200 and copied == 0, f"{sends} sends without a copy, {copied} of them copied")
            check("refers to" not in x.log(), x.log())
            x.stop_clean("connection", "queue pair", "controller", "Nn1", "path")


def test_a_host_that_takes_nothing_is_let_go():
    """It asks for much, reads none of it, and stays; the target ends its connection, and what was under way is given back."""
    with TcpTarget(listen=False) as scratch, started(scratch.folder, libraries=[NEVER_COPIED]) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        before = t.held()
        admin = Queue()
        admin.enable()
        q = Queue(1, admin.cntlid)
        for _ in range(24):
            q.start(q.rw_sqe(2, 0, 256), length=256 * 512)
        wait_for(lambda: counters(t)[0] > 0, "data to be sent")
        t.call("nvmf_delete_subsystem", nqn=NQN)
        t.wait_empty(before)
        q.close()
        admin.close()
        t.stop_clean("connection", "queue pair")


class Narrow(Queue):
    """A host that has room for few bytes."""

    def open_socket(self, address, port):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(DEADLINE)
        s.connect((address, port))
        return s


def test_a_host_that_keeps_a_buffer_without_taking_its_data_is_disconnected():
    """The socket of the target takes all of the data, so that nothing is left to be sent."""
    with TcpTarget(listen=False) as scratch, started(scratch.folder, libraries=[NEVER_COPIED], ack_timeout=1000) as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        admin = Queue()
        admin.enable()
        with admin, Narrow(1, admin.cntlid) as q:
            q.start(q.rw_sqe(2, 0, 48), length=48 * 512)
            wait_for(lambda: counters(t)[0] > 0, "the data to be sent")
            wait_for(lambda: "it takes too little of what it is sent" in t.log(), "the connection to be ended")
            wait_for(lambda: t.num_qpairs() == 1, "the connection to be gone")
        t.wait_empty()
        t.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
