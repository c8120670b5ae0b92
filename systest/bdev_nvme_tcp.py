#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
# sanitize
"""The host driver over TCP: varve-perf and bdev_nvme against a varve that serves TCP, beside RDMA, killed and started again."""
import socket
import struct
import sys

from appliance_lib import DEADLINE, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT, Target, verifying, wait_io
from nvmf_tcp_lib import Queue
from stock_lib import check_stock_takes

DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
UUID = "8d1f6c1e-55b1-4a5e-9f0e-0123456789ab"
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1}


class Back(Target):
    """A target of one of two transports; all of them have the same namespace, a file."""

    def __init__(self, number, disk=None, trtype="TCP", **transport):
        super().__init__(cores="[0]", port=PORT + 20000 + number, trtype=trtype, listen=False, **transport)
        try:
            self.call("nvmf_delete_subsystem", nqn=NQN)
            self.add_subsystem(NQN, serial_number="SHARED", min_cntlid=1 + 1000 * number, max_cntlid=1000 + 1000 * number)
            if disk is None:
                self.add_malloc("M0")
                self.add_ns("M0")
            else:
                self.add_file("F0", disk, shared=True)
                self.add_ns("F0", uuid=UUID, nsid=1)
        except BaseException:
            self.__exit__()
            raise

    def where(self):
        return {**self.listen_address(), "subnqn": NQN}

    def kill(self):
        self.process.kill()
        self.process.wait()


class Front(Target):
    """Attaches what backs have, and serves it again."""

    def __init__(self, trtype="TCP"):
        super().__init__(cores="[1]", port=PORT, trtype=trtype)

    def attach(self, back, name="Nvme0", **params):
        return self.call("bdev_nvme_attach_controller", name=name, **{**back.where(), **QUICK, **params})

    def current(self, bdev="Nvme0n1"):
        """Transports of the paths that I/O takes now."""
        groups = self.call("bdev_nvme_get_io_paths", name=bdev)["poll_groups"]
        return {p["transport"]["trtype"] for g in groups for p in g["io_paths"] if p["current"]}

    def states(self, name="Nvme0"):
        return [c["state"] for c in self.call("bdev_nvme_get_controllers", name=name)[0]["ctrlrs"]]


def run(target, *args, ios=600):
    with verifying(target, 1, "--ios", str(ios), *args) as h:
        h.check_perfect(h.result())


def test_io_of_all_sizes_and_depths_is_verified():
    with Back(0) as t:
        for size in ("512", "4k", "8k", "12k", "64k", "128k"):
            for depth in ("1", "32"):
                run(t, "-o", size, "-q", depth, ios=300)
        run(t, "-o", "4k", "-q", "16", "-P", "4", ios=4000)
        t.wait_empty()
        t.stop_clean()


def test_io_with_digests_is_verified():
    with Back(0, in_capsule_data_size=4096, max_io_size=65536) as t:
        for digests in (["--hdgst"], ["--ddgst"], ["--hdgst", "--ddgst"]):
            for size in ("512", "4k", "20k", "64k"):
                run(t, "-o", size, "-q", "16", *digests, ios=300)
        t.wait_empty()
        t.stop_clean()


def test_a_bdev_over_tcp_is_served_again():
    with Front() as f, Back(0) as b:
        check(f.attach(b, hdgst=True, ddgst=True, priority="2", hostnqn=HOSTNQN) == ["Nvme0n1"], "the bdev")
        c, = f.call("bdev_nvme_get_controllers", name="Nvme0")[0]["ctrlrs"]
        check(c["trid"]["trtype"] == "TCP" and c["trid"]["trsvcid"] == str(b.port), c)
        params, = [m["params"] for m in f.call("framework_get_config", name="bdev") if m["method"] == "bdev_nvme_attach_controller"]
        check((params["trtype"], params["hdgst"], params["ddgst"], params["priority"]) == ("TCP", True, True, "2"), params)
        f.add_ns("Nvme0n1")
        run(f, "-o", "128k", "-q", "8", ios=300)
        run(f, "-o", "4k", "-q", "32", ios=3000)
        wait_for(lambda: f.controllers() == [], "the hosts to be gone")
        check(f.call("bdev_nvme_detach_controller", name="Nvme0") is True, "detach")
        b.wait_empty()
        f.stop_clean()


def test_nobody_at_the_port_is_named():
    with Front() as f:
        try:
            f.call("bdev_nvme_attach_controller", name="Nvme0", trtype="TCP", adrfam="IPv4", traddr=ADDRESS, trsvcid=str(PORT + 20015),
                   subnqn=NQN)
            check(False, "attached to nobody")
        except RpcError as e:
            check("TCP connection: Connection refused" in e.message, e.message)


def test_a_target_that_is_killed_and_started_again_loses_nothing():
    with Front() as f:
        disk = f.folder / "disk"
        back = Back(0, disk)
        try:
            f.attach(back, ddgst=True)
            f.add_ns("Nvme0n1")
            with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
                for _ in range(2):
                    wait_io(f, [h], 1000)
                    back.kill()
                    wait_for(lambda: f.states() != ["enabled"], "the loss to be noticed")
                    back.__exit__()
                    back = Back(0, disk)
                    wait_for(lambda: f.states() == ["enabled"], "the controller to be back")
                wait_io(f, [h], 1000)
                h.check_perfect(h.stop())
        finally:
            back.__exit__()


def test_paths_over_tcp_and_rdma_are_one_bdev():
    with Front(trtype="RDMA") as f:
        disk = f.folder / "disk"
        tcp, rdma = Back(0, disk), Back(1, disk, trtype="RDMA")
        try:
            check(f.attach(tcp) == ["Nvme0n1"] and f.attach(rdma) == ["Nvme0n1"], "one bdev")
            f.add_ns("Nvme0n1")
            with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
                wait_io(f, [h], 1000)
                check(f.current() == {"TCP"}, "the first that was attached")
                tcp.kill()
                wait_for(lambda: f.current() == {"RDMA"}, "I/O to go over RDMA")
                wait_io(f, [h], 1000)
                tcp.__exit__()
                tcp = Back(0, disk)
                wait_for(lambda: f.current() == {"TCP"}, "I/O to go back to TCP")
                wait_io(f, [h], 1000)
                rdma.kill()
                wait_io(f, [h], 1000)
                h.check_perfect(h.stop())
        finally:
            tcp.__exit__()
            rdma.__exit__()


def test_a_discovery_service_over_tcp_attaches_what_it_lists():
    with Front() as f, Back(0) as b:
        b.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=b.listen_address())
        check(f.call("bdev_nvme_start_discovery", name="d", wait_for_attach=True, **b.listen_address(), **QUICK) is True, "discovery")
        check([x["name"] for x in f.call("bdev_get_bdevs")] == ["d0n1"], "the bdev that is listed")
        b.remove_ns(1)
        wait_for(lambda: f.call("bdev_get_bdevs") == [], "the namespace to be gone")
        check(f.call("bdev_nvme_stop_discovery", name="d") is True, "stop")
        f.stop_clean()


def test_digests_of_a_discovery_service_are_those_of_all_its_connections():
    with Front() as f, Back(0) as b:
        b.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=b.listen_address())
        params = {"name": "d", "wait_for_attach": True, "hdgst": True, "ddgst": True, **b.listen_address(), **QUICK}
        check(f.call("bdev_nvme_start_discovery", **params) is True, "discovery")
        with socket.create_server((ADDRESS, 0)) as s:           # a service that is referred to: what it is asked for
            s.settimeout(DEADLINE)
            b.call("nvmf_discovery_add_referral", address={**b.listen_address(), "trsvcid": str(s.getsockname()[1])})
            with s.accept()[0] as c:
                c.settimeout(DEADLINE)
                icreq = c.recv(128, socket.MSG_WAITALL)
                check(len(icreq) == 128 and icreq[0] == 0 and icreq[11] == 3, icreq.hex())      # DGST: HDGST_ENABLE, DDGST_ENABLE
        f.add_ns("d0n1")
        run(f, "-o", "20k", "-q", "16")
        saved, = [m["params"] for m in f.call("framework_get_config", name="bdev") if m["method"] == "bdev_nvme_start_discovery"]
        check({k: saved[k] for k in ("hdgst", "ddgst")} == {"hdgst": True, "ddgst": True}, saved)
        wait_for(lambda: f.controllers() == [], "the host to be gone")
        check(f.call("bdev_nvme_stop_discovery", name="d") is True, "stop")
        f.stop_clean()


def test_io_without_flow_control_of_sqs_is_verified():
    for trtype in ("TCP", "RDMA"):
        with Front(trtype) as f, Back(0, trtype=trtype) as b:
            check(f.attach(b, disable_sq_flow_control=True) == ["Nvme0n1"], "the bdev")
            f.add_ns("Nvme0n1")
            for size, depth in (("512", "32"), ("4k", "128"), ("128k", "8")):
                run(f, "-o", size, "-q", depth)
            saved, = [m["params"] for m in f.call("framework_get_config", name="bdev") if m["method"] == "bdev_nvme_attach_controller"]
            check(saved["disable_sq_flow_control"] is True, saved)
            f.stop_clean()


HINTS = ("preferred_write_granularity", "preferred_write_alignment", "optimal_write_size", "preferred_unmap_granularity", "preferred_unmap_alignment")


def test_what_a_bdev_prefers_is_told_to_its_hosts():
    """By Identify; a bdev of the namespace prefers the same, and so does what stands on it and is served again."""
    most = 256                                                                          # blocks of a transport's max_io_size
    cases = (({}, (0, 0, 0, 0, 0)),
             (dict(zip(HINTS, (16, 8, 64, 48, 16))), (16, 8, 64, 48, 16)),
             (dict(zip(HINTS, (8, 16, 64, 32, 48))), (16, 16, 64, 48, 48)),             # granularities that are no multiples of the alignments
             (dict(zip(HINTS, (1, 1, most, 1, 65536))), (1, 1, most, 65536, 65536)),
             (dict(zip(HINTS, (1, 1, most + 1, 65536, 1))), (1, 1, 0, 65536, 1)),       # a write of more than MDTS
             (dict(zip(HINTS, (most, 2 * most, 0, 1, 1))), (most, 1, 0, 1, 1)),
             (dict(zip(HINTS, (2 * most, most, 0, 1, 1))), (most, most, 0, 1, 1)),
             ({"physical_block_size": 4096}, (8, 8, 0, 8, 8)),
             ({"physical_block_size": 4096, "preferred_write_granularity": 4, "preferred_unmap_granularity": 1}, (8, 8, 0, 8, 8)),
             ({"physical_block_size": 4096, "preferred_unmap_granularity": 2048}, (8, 8, 0, 2048, 8)),
             ({"physical_block_size": 1 << 20}, (1, 1, 0, 2048, 2048)),
             (dict(zip(HINTS, (8, 8, 60, 8, 8))), (8, 8, 0, 8, 8)),                     # no multiple of the granularity, as NOWS has to be
             (dict(zip(HINTS, (65537, 8, 0, 8, 65537))), (8, 8, 0, 8, 1)))              # more than the fields hold
    with Back(0) as b, Front() as f:
        b.remove_ns(1)
        for nsid, (params, _) in enumerate(cases, 1):
            b.add_ns(b.call("bdev_null_create", name=f"N{nsid}", num_blocks=131072, block_size=512, **params), nsid=nsid)
        log = b.log()
        for nsid, (params, _) in enumerate(cases, 1):
            granularity, size = params.get(HINTS[0], 0), params.get(HINTS[2], 0)
            check((f"N{nsid} prefers more than 65536 blocks" in log) == any(params.get(h, 0) > 65536 for h in HINTS), f"{params}: {log}")
            check((f"N{nsid}: optimal_write_size {size} is no multiple" in log) == bool(granularity and size % granularity), f"{params}: {log}")
        check(set(f.attach(b)) == {f"Nvme0n{n}" for n in range(1, len(cases) + 1)}, "the bdevs")
        for nsid in range(1, len(cases) + 1):
            f.add_ns(f.call("bdev_passthru_create", name=f"P{nsid}", base_bdev_name=f"Nvme0n{nsid}"), nsid=nsid)
        for port in (b.port, f.port):
            with Queue(port=port) as q:
                q.enable()
                for nsid, (_, wanted) in enumerate(cases, 1):
                    data = q.identify(0, nsid)
                    fields = struct.unpack_from("<5H", data, 64)     # NPWG, NPWA, NPDG, NPDA, NOWS
                    told = tuple(x + 1 for x in fields[:2]) + (fields[4] + 1 if fields[4] else 0,) + tuple(x + 1 for x in fields[2:4])
                    check(told[0] % told[1] == 0 and told[3] % told[4] == 0 and told[2] % told[0] == 0 and max(told[:3]) <= most, f"namespace {nsid}: {told}")
                    check((told if data[24] & 0x10 else (0,) * 5) == wanted and (data[24] & 0x10 or not any(fields)), f"{port}, namespace {nsid}: {fields}, not {wanted}")
        for nsid, (_, wanted) in enumerate(cases, 1):
            [bdev] = f.call("bdev_get_bdevs", name=f"Nvme0n{nsid}")
            check(tuple(bdev.get(h, 0) for h in HINTS) == wanted, f"{bdev}: not {wanted}")


class NullBack(Back):
    """Its namespace, always the same one, is a null bdev."""

    def __init__(self, **params):
        super().__init__(0)
        try:
            self.remove_ns(1)
            self.call("bdev_null_create", name="N0", num_blocks=131072, block_size=512, uuid=UUID, **params)
            self.add_ns("N0", uuid=UUID, nguid=UUID.replace("-", "").upper(), nsid=1)
        except BaseException:
            self.__exit__()
            raise


def test_what_a_namespace_does_not_prefer_any_more_is_not_told():
    """The bdev is the same one after its target was started again, and has what its namespace prefers now."""
    with Front() as f:
        back = NullBack(physical_block_size=4096, optimal_write_size=64)
        try:
            f.attach(back)
            f.add_ns("Nvme0n1")

            def told():
                [bdev] = f.call("bdev_get_bdevs", name="Nvme0n1")
                with Queue(port=f.port) as q:
                    q.enable()
                    data = q.identify(0, 1)
                return bdev["physical_block_size"], bdev.get("optimal_write_size", 0), data[24] >> 4 & 3, struct.unpack_from("<5H", data, 64)

            check(told() == (4096, 64, 1, (7, 7, 7, 7, 63)), told())
            for params, wanted in (({}, (512, 0, 0, (0,) * 5)), ({"physical_block_size": 8192}, (8192, 0, 1, (15, 15, 15, 15, 0)))):
                back.kill()
                wait_for(lambda: f.states() != ["enabled"], "the loss to be noticed")
                back.__exit__()
                back = NullBack(**params)
                wait_for(lambda: f.states() == ["enabled"], "the controller to be back")
                wait_for(lambda: told() == wanted, f"what the namespace prefers now: {wanted}")
        finally:
            back.__exit__()


def attachments(front):
    return {e["params"]["name"]: e["params"] for e in front.call("framework_get_config", name="bdev") if e["method"] == "bdev_nvme_attach_controller"}


def test_what_clients_of_spdk_save_of_an_attached_controller_spdk_takes():
    """They know nothing of the parameters that only varve has: those that are as usual are left out."""
    own = {"fence_timeout_ms": -1, "default_quiesce_time_ms": 5000}
    with Back(0) as back, Front() as front:
        front.attach(back)
        (front.folder / "disk").write_bytes(bytes(1 << 20))
        front.call("bdev_uring_create", name="U0", filename=str(front.folder / "disk"), block_size=512)
        subsystems = [s["subsystem"] for s in front.call("framework_get_subsystems")]
        check_stock_takes({"subsystems": [{"subsystem": s, "config": front.call("framework_get_config", name=s) or []} for s in subsystems]})
        check("Nvme0" in attachments(front), attachments(front))
        front.attach(back, name="Nvme1", fence_timeout_ms=7, hostnqn=HOSTNQN + ":1")
        front.attach(back, name="Nvme2", default_quiesce_time_ms=0, hostnqn=HOSTNQN + ":2")
        kept = {name: {k: v for k, v in p.items() if k in own} for name, p in attachments(front).items()}
        check(kept == {"Nvme0": {}, "Nvme1": {"fence_timeout_ms": 7}, "Nvme2": {"default_quiesce_time_ms": 0}}, kept)
        whole = [e["params"] for e in front.call("framework_get_config", name="bdev", whole=True) if e["method"] == "bdev_nvme_attach_controller"]
        check(all(own.keys() <= p.keys() for p in whole) and len(whole) == 3, whole)
    # With other defaults, what is as usual must be said, or it would be something else after a start.
    with Back(0) as back, Front() as front:
        front.call("bdev_nvme_set_options", fence_timeout_ms=7, default_quiesce_time_ms=9)
        front.attach(back)
        front.attach(back, name="Nvme1", **own, hostnqn=HOSTNQN + ":1")
        kept = {name: {k: v for k, v in p.items() if k in own} for name, p in attachments(front).items()}
        check(kept == {"Nvme0": {"fence_timeout_ms": 7, "default_quiesce_time_ms": 9}, "Nvme1": own}, kept)


if __name__ == "__main__":
    main(sys.modules[__name__])
