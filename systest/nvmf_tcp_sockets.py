#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root
# beside
# limit: 300
# sanitize
"""Options of the sockets of NVMe/TCP, of the target and of the host: what the kernel says of the sockets that the processes have."""
import ctypes
import json
import os
import pathlib
import socket
import sys

from appliance_lib import RpcError, Skip, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT, verifying
from nvmf_tcp_lib import Connection, TcpTarget

SYS_PIDFD_GETFD = 438
FRONT = PORT + 21000
# Less than the least limit that kernels have, and not what a socket has by itself. The kernel tells twice of what it was given.
OPTIONS = {"recv_buf_size": 100000, "send_buf_size": 60000, "enable_quickack": True}
STOCK = {"recv_buf_size": 4096, "send_buf_size": 4096, "enable_recv_pipe": True, "enable_quickack": False, "enable_placement_id": 0,
         "enable_zerocopy_send_server": True, "enable_zerocopy_send_client": False, "zerocopy_threshold": 0, "tls_version": 0, "enable_ktls": False}
CONFIG = [{"method": "sock_set_default_impl", "params": {"impl_name": "posix"}},
          {"method": "sock_impl_set_options", "params": {"impl_name": "posix", **OPTIONS}},
          {"method": "sock_impl_set_options", "params": {"impl_name": "ssl", **STOCK}}]


def sockets_of(pid):
    """Copies of all connected TCP sockets of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd, found = os.pidfd_open(pid), []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if not os.readlink(entry).startswith("socket:"):
                continue
        except FileNotFoundError:
            continue
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(entry.name), 0)
        if fd < 0:
            continue    # closed meanwhile
        s = socket.socket(fileno=fd)
        try:
            s.getpeername()
            found.append(s) if s.family == socket.AF_INET else s.close()
        except OSError:
            s.close()
    os.close(pidfd)
    return found


def settings(sockets):
    return {(s.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY), s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
            for s in sockets}


def of_target(t):
    return [s for s in sockets_of(t.pid) if s.getsockname()[1] == PORT]


def of_host(f):
    return [s for s in sockets_of(f.pid) if s.getpeername()[1] == PORT]


def close_all(sockets):
    for s in sockets:
        s.close()


def configured(path):
    path.write_text(json.dumps({"subsystems": [{"subsystem": "sock", "config": CONFIG}]}))
    return path


def attach(front, **params):
    front.call("bdev_nvme_attach_controller", name="N", trtype="TCP", adrfam="IPv4", traddr=ADDRESS, trsvcid=str(PORT), subnqn=NQN, **params)


def check_both_ends(options, target_priority, host_priority, wanted):
    with TcpTarget(*options, sock_priority=target_priority) as t, TcpTarget(*options, port=FRONT, listen=False) as front:
        t.add_malloc("M0")
        t.add_ns("M0")
        attach(front, **({"priority": str(host_priority)} if host_priority else {}))
        there, here = of_target(t), of_host(front)
        try:
            check(len(there) >= 1 and len(here) >= 1, f"{there} {here}")
            check({p for p, _, _ in settings(there)} == {target_priority}, f"SO_PRIORITY of the target: {settings(there)}")
            check({p for p, _, _ in settings(here)} == {host_priority}, f"SO_PRIORITY of the host: {settings(here)}")
            for sockets in there, here:
                sizes = {(r, s) for _, r, s in settings(sockets)}
                check((sizes == {wanted}) if wanted else (2 * OPTIONS["recv_buf_size"], 2 * OPTIONS["send_buf_size"]) not in sizes, f"SO_RCVBUF, SO_SNDBUF: {sizes}")
        finally:
            close_all(there + here)
        with verifying(t, 1, "--ios", "300", "-o", "64k", "-q", "8") as h:
            h.check_perfect(h.result())
        front.call("bdev_nvme_detach_controller", name="N")
        t.wait_empty()
        front.stop_clean()
        t.stop_clean()


def test_sockets_of_both_ends_have_what_was_configured():
    with TcpTarget(listen=False) as scratch:
        path = configured(scratch.folder / "sock.json")
        check_both_ends(("-c", path), 5, 3, (2 * OPTIONS["recv_buf_size"], 2 * OPTIONS["send_buf_size"]))


def test_sockets_are_as_the_kernel_has_them_without_options():
    check_both_ends((), 0, 0, None)


def test_options_are_told_and_saved():
    with TcpTarget(listen=False) as scratch:
        path = configured(scratch.folder / "sock.json")
        with TcpTarget("-c", path, listen=False) as t:
            zero = {k: type(v)(0) for k, v in STOCK.items()}
            check(t.call("sock_impl_get_options", impl_name="posix") == {**zero, **OPTIONS}, t.call("sock_impl_get_options", impl_name="posix"))
            check(t.call("sock_impl_get_options", impl_name="ssl") == STOCK, t.call("sock_impl_get_options", impl_name="ssl"))
            check(t.call("sock_impl_get_options", impl_name="uring") == zero, "uring")
            check(t.call("sock_get_default_impl") == {"impl_name": "posix"}, t.call("sock_get_default_impl"))
            check(t.call("framework_get_config", name="sock") == CONFIG, t.call("framework_get_config", name="sock"))
            check(t.log().count("taken without effect") == 1, t.log())
            for method, params in (("sock_impl_get_options", {"impl_name": "tcp"}), ("sock_impl_set_options", {"impl_name": "posix", **OPTIONS})):
                try:
                    t.call(method, **params)
                    check(False, f"{method} {params}")
                except RpcError as e:
                    check("tcp" in str(e) or "start" in str(e), e)
            t.stop_clean()
        check(scratch.call("framework_get_config", name="sock") == [], "what was not set is saved")


def placed(placement, folder):
    path = folder / "placement.json"
    path.write_text(json.dumps({"subsystems": [{"subsystem": "sock", "config": [
        {"method": "sock_impl_set_options", "params": {"impl_name": "posix", "enable_placement_id": placement}}]}]}))
    return TcpTarget("-c", path, cores="[0-1]")


def connections(t):
    return [g["transports"][0]["connections"] for g in t.call("nvmf_get_stats")["poll_groups"]]


def added(t, number):
    """How many of so many new connections are in each poll group, and the connections."""
    before = connections(t)
    found = [Connection() for _ in range(number)]
    wait_for(lambda: sum(connections(t)) == sum(before) + number, "the connections")
    return [now - then for now, then in zip(connections(t), before)], found


def test_connections_that_come_in_by_one_cpu_share_a_poll_group():
    """On the loopback interface that is the CPU of the host."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise Skip("one CPU")
    with TcpTarget(listen=False) as scratch, placed(2, scratch.folder) as t:
        try:
            os.sched_setaffinity(0, usable[:1])
            there, first = added(t, 5)
            check(sorted(there) == [0, 5], there)
            os.sched_setaffinity(0, usable[1:2])
            others, second = added(t, 4)
            check(sorted(others) == [0, 4] and others != there and others[there.index(5)] == 0, f"{others}, beside {there}")
        finally:
            os.sched_setaffinity(0, usable)
        close_all(first + second)
        t.wait_empty()
        t.stop_clean()


def test_without_a_number_connections_are_spread():
    """Nothing on the loopback interface has a NAPI id."""
    with TcpTarget(listen=False) as scratch:
        for placement in 0, 1, 3:
            with placed(placement, scratch.folder) as t:
                there, found = added(t, 6)
                check(there == [3, 3], there)
                check(t.log().count("taken without effect") == (placement == 3), t.log())
                close_all(found)
                t.wait_empty()
                t.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
