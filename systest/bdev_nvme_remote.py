#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 300
# sanitize
"""A varve that re-exports a namespace of another one: hosts -> front -> back, over the software RDMA device."""
import base64
import json
import struct
import sys

from appliance_lib import DEADLINE, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT, Host, Target, verifying, wait_io

BACK_PORT, FRONT_PORT = PORT, PORT + 20000
UUID, OTHER_UUID = "8d1f6c1e-55b1-4a5e-9f0e-0123456789ab", "8d1f6c1e-55b1-4a5e-9f0e-0123456789cd"
NGUID = "fedcba98765432100123456789abcdef"
# a back end that is killed carries out nothing any more, so its fence need not take the standard's time
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1, "fence_timeout_ms": 1000}


def back(**transport):
    return Target(cores="[0]", port=BACK_PORT, **transport)


def front(*options):
    return Target(*options, cores="[1]", port=FRONT_PORT)


def where(port=BACK_PORT, nqn=NQN):
    return {"trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(port), "subnqn": nqn}


def attach(f, name="Nvme0", **params):
    return f.call("bdev_nvme_attach_controller", name=name, **{**where(), **params})


def state(f, name="Nvme0"):
    return f.call("bdev_nvme_get_controllers", name=name)[0]["ctrlrs"][0]["state"]


def bdevs(d):
    return [b["name"] for b in d.call("bdev_get_bdevs")]


def news(d, kind):
    return [n["ctx"] for n in d.call("notify_get_notifications", all=True) if n["type"] == kind]


def refused(d, words, method, **params):
    try:
        result = d.call(method, **params)
    except RpcError as e:
        check(all(w in e.message for w in words), f"{method}: \"{e.message}\" does not say {words}")
        return
    check(False, f"{method}({params}) answered {result}")


def test_remote_namespaces_are_bdevs_in_the_stock_shape():
    with back() as b, front() as f:
        b.add_malloc("M0")
        b.add_malloc("M1")
        b.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "M0", "uuid": UUID})
        b.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "M1", "nsid": 7, "uuid": OTHER_UUID, "nguid": NGUID})
        check(attach(f) == ["Nvme0n1", "Nvme0n7"], "names")
        d, other = f.call("bdev_get_bdevs")
        check(other["uuid"].replace("-", "") == NGUID, f"one that has an NGUID and another UUID: {other}")
        check(d["product_name"] == "NVMe disk" and d["block_size"] == 512 and d["num_blocks"] == 32768 and d["uuid"] == UUID, d)
        check(all(d["supported_io_types"][t] for t in ("read", "write", "unmap", "flush", "reset", "nvme_admin", "nvme_io",
                                                       "write_zeroes", "compare", "compare_and_write", "abort")), d)
        n, = d["driver_specific"]["nvme"]
        check(n["trid"] == where() and n["ns_data"]["id"] == 1 and n["vs"]["nvme_version"] == "2.0", n)
        check(n["ctrlr_data"]["serial_number"] == "V1", n)
        c, = f.call("bdev_nvme_get_controllers")
        check(c["name"] == "Nvme0" and len(c["ctrlrs"]) == 1, c)
        c, = c["ctrlrs"]
        check(c["state"] == "enabled" and c["trid"] == where() and c["cntlid"] == n["ctrlr_data"]["cntlid"], c)
        check(c["host"]["nqn"].startswith("nqn.") and c["bdevs"] == ["Nvme0n1", "Nvme0n7"] and c["last_error"] == "", c)
        health = f.call("bdev_nvme_get_controller_health_info", name="Nvme0")
        check(health["serial_number"] == "V1" and health["percentage_used"] == 0, health)
        check(health["traddr"] == where()["traddr"], health)
        check(f.call("bdev_nvme_detach_controller", name="Nvme0") is True, "detach")
        check(bdevs(f) == [] and f.call("bdev_nvme_get_controllers") == [], "all is gone")
        check(news(f, "bdev_nvme_connected") == news(f, "bdev_nvme_detached") == ["Nvme0"], "news")
        f.stop_clean()
        b.wait_empty()
        b.stop_clean()


def test_what_is_wrong_is_said():
    with back() as b, front() as f:
        b.add_ns(b.add_malloc("M0"))
        refused(f, ["no NVMe controller 'x'"], "bdev_nvme_detach_controller", name="x")
        refused(f, ["no NVMe controller 'x'"], "bdev_nvme_get_controllers", name="x")
        refused(f, ["no bdev 'x'"], "bdev_get_inflight", name="x")
        refused(f, ["trtype 'FC'", "RDMA", "TCP"], "bdev_nvme_attach_controller", name="x", **{**where(), "trtype": "FC"})
        refused(f, ["subnqn ''"], "bdev_nvme_attach_controller", name="x", trtype="RDMA", traddr=ADDRESS)
        refused(f, ["trsvcid '99999'", "1 to 65535"], "bdev_nvme_attach_controller", name="x", **{**where(), "trsvcid": "99999"})
        refused(f, ["traddr 'nowhere'", "IPv4"], "bdev_nvme_attach_controller", name="x", **{**where(), "traddr": "nowhere"})
        refused(f, ["adrfam 'ib'"], "bdev_nvme_attach_controller", name="x", **{**where(), "adrfam": "ib"})
        refused(f, ["psk"], "bdev_nvme_attach_controller", name="x", psk="1", **where())
        refused(f, ["multipath", "disable"], "bdev_nvme_attach_controller", name="x", multipath="both", **where())
        refused(f, ["reconnect_delay_sec 0"], "bdev_nvme_attach_controller", name="x", ctrlr_loss_timeout_sec=-1, **where())
        refused(f, ["nobody listens"], "bdev_nvme_attach_controller", name="x", **where(port=BACK_PORT + 1))
        refused(f, ["Connect was refused"], "bdev_nvme_attach_controller", name="x", **where(nqn=NQN + "x"))
        attach(f)
        refused(f, ["'Nvme0'", "exists"], "bdev_nvme_attach_controller", name="Nvme0", **where())
        refused(f, ["traddr '192.0.2.1'", ADDRESS], "bdev_nvme_detach_controller", name="Nvme0", traddr="192.0.2.1")
        refused(f, ["NSSRS"], "bdev_nvme_reset_controller", name="Nvme0", subsystem=True)
        refused(f, ["cntlid 4711"], "bdev_nvme_reset_controller", name="Nvme0", cntlid=4711)
        refused(f, ["'Nvme0'"], "bdev_nvme_set_options", bdev_retry_count=1)
        b.add_ns(b.add_malloc("M1"))
        refused(f, ["max_bdevs is 1"], "bdev_nvme_attach_controller", name="y", max_bdevs=1, **where())
        check(bdevs(f)[0] == "Nvme0n1", bdevs(f))


def test_raw_commands_and_their_completions():
    with back() as b, front() as f:
        b.add_ns(b.add_malloc("M0"))
        attach(f)

        def command(opcode, nsid=0, cdw10=0, cdw12=0):
            return base64.urlsafe_b64encode(struct.pack("<BBHI32xIIIIII", opcode, 0, 0, nsid, cdw10, 0, cdw12, 0, 0, 0)).decode()

        def status(answer):
            cpl = base64.urlsafe_b64decode(answer["cpl"])
            check(len(cpl) == 16, cpl)
            return struct.unpack("<H", cpl[14:])[0] >> 1 & 0x7ff
        r = f.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="admin", data_direction="c2h", data_len=4096,
                   cmdbuf=command(6, cdw10=1))
        check(status(r) == 0 and base64.urlsafe_b64decode(r["data"])[4:6] == b"V1", r)
        data = bytes(i * 7 & 255 for i in range(1024))
        r = f.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="io", data_direction="h2c",
                   data=base64.urlsafe_b64encode(data).decode(), cmdbuf=command(1, nsid=1, cdw10=5, cdw12=1))
        check(status(r) == 0, r)
        r = f.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="io", data_direction="c2h", data_len=1024,
                   cmdbuf=command(2, nsid=1, cdw10=5, cdw12=1))
        check(status(r) == 0 and base64.urlsafe_b64decode(r["data"]) == data, "what was written is read")
        r = f.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="io", data_direction="c2h", data_len=512,
                   cmdbuf=command(2, nsid=1, cdw10=1 << 30))
        check(status(r) == 0x80, "LBA out of range")
        r = f.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="admin", data_direction="h2c", cmdbuf=command(0, cdw10=1))
        check(status(r) == 1, "queues are the driver's")
        refused(f, ["cmdbuf", "64"], "bdev_nvme_send_cmd", name="Nvme0", cmd_type="io", data_direction="h2c", cmdbuf="AAAA")


def test_injected_errors_reach_commands():
    flush = base64.urlsafe_b64encode(struct.pack("<BBHI56x", 0, 0, 0, 1)).decode()

    def status(f):
        answer = f.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="io", data_direction="h2c", cmdbuf=flush)
        return struct.unpack("<H", base64.urlsafe_b64decode(answer["cpl"])[14:16])[0] >> 1

    with back() as b, front() as f:
        b.add_ns(b.add_malloc("M0"))
        attach(f)
        inject = {"name": "Nvme0", "cmd_type": "io", "opc": 0}
        check(status(f) == 0, "no error")
        f.call("bdev_nvme_add_error_injection", **inject, sct=2, sc=0x81)
        check(status(f) == 0x281, "the injected one")
        check(status(f) == 0, "once only")
        f.call("bdev_nvme_add_error_injection", **inject, do_not_submit=True, timeout_in_us=1000, err_count=5, sct=0, sc=6)
        check(status(f) == 6, "not sent")
        f.call("bdev_nvme_remove_error_injection", **inject)
        check(status(f) == 0, "no error")
        refused(f, ["no error is injected"], "bdev_nvme_remove_error_injection", **inject)
        refused(f, ["only with do_not_submit"], "bdev_nvme_add_error_injection", **inject, timeout_in_us=1)
        f.call("bdev_nvme_detach_controller", name="Nvme0")


def test_raw_command_without_an_answer_times_out():
    flush = base64.urlsafe_b64encode(struct.pack("<BBHI56x", 0, 0, 0, 1)).decode()
    command = {"name": "Nvme0", "cmd_type": "io", "data_direction": "h2c", "cmdbuf": flush}
    with back() as b, front() as f:
        b.add_ns(b.add_malloc("M0"))
        attach(f)
        f.call("bdev_nvme_add_error_injection", name="Nvme0", cmd_type="io", opc=0, do_not_submit=True, timeout_in_us=20_000_000)
        refused(f, ["within the 200 ms", "still under way"], "bdev_nvme_send_cmd", **command, timeout_ms=200)
        check("cpl" in f.call("bdev_nvme_send_cmd", **command, timeout_ms=60000), "the next one has its answer")
        f.call("bdev_nvme_detach_controller", name="Nvme0")     # the first is still under way


def test_verified_io_through_two_varves_survives_resets():
    with back() as b, front() as f:
        b.add_ns(b.add_malloc("M0"))
        f.add_ns(attach(f, **QUICK)[0])
        with verifying(f, 1, "-q", "8", "-t", str(2 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            for _ in range(5):
                wait_io(f, [h])
                check(f.call("bdev_nvme_reset_controller", name="Nvme0") is True, "reset")
            wait_io(f, [h])
            h.check_perfect(h.stop())
        check(f.call("bdev_nvme_get_controllers")[0]["ctrlrs"][0]["resets"] == 5, "resets")
        check(len(news(f, "bdev_nvme_lost")) == 5 and len(news(f, "bdev_nvme_connected")) == 6, "news")
        stats = f.call("bdev_nvme_get_transport_statistics")
        device = stats["poll_groups"][0]["transports"][0]["devices"][0]
        check(device["dev_name"] == "Nvme0" and device["completions"] > 1000, stats)
        f.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=1)
        f.call("bdev_nvme_detach_controller", name="Nvme0")
        f.wait_empty()
        f.stop_clean()
        b.stop_clean()


def test_back_end_that_is_killed_and_comes_back_loses_nothing():
    with front() as f:
        disk = f.folder / "disk"
        b = back(listen=False)
        try:
            def export():       # the listener last: a controller that comes back without the namespace takes the bdev away
                b.add_file("F0", disk)
                b.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "F0", "uuid": UUID})
                b.add_listener()
            export()
            f.add_ns(attach(f, **QUICK)[0])
            with verifying(f, 1, "-q", "8", "-t", str(2 * DEADLINE)) as h:
                wait_io(f, [h], 1500)       # the first 1024 of them fill the region
                for _ in range(3):
                    wait_io(f, [h])
                    b.process.kill()
                    b.process.wait()
                    wait_for(lambda: state(f) != "enabled", "the loss to be noticed")
                    b.__exit__()
                    b = back(listen=False)
                    export()
                    wait_for(lambda: state(f) == "enabled", "the controller to be back")
                wait_io(f, [h])
                h.check_perfect(h.stop())
            check(bdevs(f) == ["Nvme0n1"], "the bdev stays")
        finally:
            b.__exit__()


def test_back_end_that_stays_away_is_given_up():
    with front() as f:
        with back() as b:
            b.add_ns(b.add_malloc("M0"))
            f.add_ns(attach(f, ctrlr_loss_timeout_sec=3, reconnect_delay_sec=1, fast_io_fail_timeout_sec=1)[0])
            h = Host(f, "-w", "randread", "-q", "4", "-t", str(2 * DEADLINE), nsid=1)
            wait_io(f, [h])
            b.process.kill()
        wait_for(lambda: f.call("bdev_nvme_get_controllers") == [], "the controller to be detached")
        check(bdevs(f) == [], "its bdev is gone")
        h.process.terminate()
        check(h.wait() == 1, "the host's I/O failed")
        check(news(f, "bdev_nvme_failed") == ["Nvme0"], "news")
        check(f.stop() == 0, f.log())


def test_detach_under_io_ends_it_and_attaching_again_works():
    with back() as b, front() as f:
        b.add_ns(b.add_malloc("M0"))
        for _ in range(3):
            f.add_ns(attach(f)[0], nsid=1)
            with Host(f, "-w", "randrw", "-q", "16", "-t", str(2 * DEADLINE), nsid=1) as h:
                wait_io(f, [h])
                check(f.call("bdev_nvme_detach_controller", name="Nvme0") is True, "detach")
                check(bdevs(f) == [], "gone")
                h.stop()
        wait_for(lambda: b.num_qpairs() == 0, "connections to the back end to be gone")
        f.stop_clean("is going, and namespace")
        b.stop_clean()


def test_namespaces_come_and_go_with_the_back_end():
    with back() as b, front() as f:
        b.add_ns(b.add_malloc("M0"))
        b.add_malloc("M1")
        attach(f)
        b.add_ns("M1", nsid=2)
        wait_for(lambda: bdevs(f) == ["Nvme0n1", "Nvme0n2"], "the new namespace")
        b.remove_ns(1)
        wait_for(lambda: bdevs(f) == ["Nvme0n2"], "the namespace to go")
        f.call("bdev_nvme_detach_controller", name="Nvme0")


def test_stop_detaches_what_is_attached():
    with back() as b, front() as f:
        for name in ("M0", "M1", "M2"):
            b.add_ns(b.add_malloc(name))
        attach(f)
        f.add_ns("Nvme0n2")
        f.stop_clean()
        wait_for(lambda: b.call("nvmf_subsystem_get_controllers", nqn=NQN) == [], "its controller to be gone")


def test_configuration_brings_controllers_back():
    with back() as b:
        b.add_ns(b.add_malloc("M0"))
        with front() as f:
            f.call("bdev_nvme_set_options", action_on_timeout="reset", timeout_us=7000000, bdev_retry_count=-1, ctrlr_loss_timeout_sec=5,
                   reconnect_delay_sec=2, fast_io_fail_timeout_sec=3)
            attach(f, hostnqn="nqn.2026-11.io.varve:front", num_io_queues=3, fabrics_connect_timeout_us=4000000)
            f.call("bdev_delay_create", name="D0", base_bdev_name="Nvme0n1", avg_read_latency=1, p99_read_latency=1,
                   avg_write_latency=1, p99_write_latency=1)
            f.call("bdev_set_qos_limit", name="Nvme0n1", rw_ios_per_sec=20000)
            saved = f.call("framework_get_config", name="bdev")
            methods = [m["method"] for m in saved]
            check(methods.index("bdev_nvme_set_options") < methods.index("bdev_nvme_attach_controller")
                  < methods.index("bdev_delay_create"), methods)
            path = b.folder / "config.json"
            path.write_text(json.dumps({"subsystems": [{"subsystem": "bdev", "config": saved}]}))
        with front("-c", str(path)) as f:
            check(bdevs(f) == ["Nvme0n1", "D0"], bdevs(f))
            check(f.call("framework_get_config", name="bdev") == saved, "saved again, it is the same")
            c, = f.call("bdev_nvme_get_controllers")[0]["ctrlrs"]
            check(c["host"]["nqn"] == "nqn.2026-11.io.varve:front" and c["io_queues"] == 3, c)


if __name__ == "__main__":
    main(sys.modules[__name__])
