#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 120
# beside
"""The nvmf methods: shapes of their answers, what they refuse and how they say it, saving and loading."""
import json
import os
import sys

from appliance_lib import BUILD, Daemon, RpcError, check, main, wait_for
from nvmf_lib import Host, Target

NQN = "nqn.2016-06.io.spdk:cnode1"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
HOST = "nqn.2014-08.org.nvmexpress:uuid:0a7b6f7c-0b5e-4d8c-b13a-6b0d0d0d0d0d"
PORT = 40000 + os.getpid() % 1250 * 16      # tests run beside each other
ADDRESS = {"trtype": "RDMA", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": str(PORT)}


def daemon(*options, **kwargs):
    """With a software RDMA device."""
    return Daemon(*options, env={"LD_PRELOAD": str(BUILD / "softverbs" / "libsoftverbs.so")}, **kwargs)


def refuses(d, method, words, **params):
    try:
        result = d.call(method, **params)
    except RpcError as e:
        check(all(w in e.message for w in words), f"{method}: \"{e.message}\" does not say {words}")
        return
    check(False, f"{method}({params}) answered {result}")


def fill(d):
    d.call("bdev_malloc_create", name="M0", num_blocks=2048, block_size=512, uuid="11111111-2222-3333-4444-555555555555")
    d.call("bdev_null_create", name="N0", num_blocks=2048, block_size=4096)
    check(d.call("nvmf_create_transport", trtype="RDMA", max_queue_depth=64, in_capsule_data_size=8192) is True, "transport")
    check(d.call("nvmf_create_subsystem", nqn=NQN, serial_number="0001", model_number="Model", max_namespaces=8) is True, "subsystem")
    check(d.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "M0", "eui64": "0123456789abcdef"}) == 1, "first nsid")
    check(d.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "N0", "nsid": 5, "no_auto_visible": True,
                                                              "nguid": "00112233445566778899AABBCCDDEEFF"}) == 5, "chosen nsid")
    check(d.call("nvmf_ns_add_host", nqn=NQN, nsid=5, host=HOST) is True, "namespace's host")
    check(d.call("nvmf_subsystem_add_host", nqn=NQN, host=HOST) is True, "host")
    check(d.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=ADDRESS) is True, "listener")
    check(d.call("nvmf_discovery_add_referral", address={"trtype": "RDMA", "traddr": "192.0.2.7", "trsvcid": "8009"}) is True, "referral")


def test_lists_have_the_shapes_that_clients_decode():
    with daemon() as d:
        fill(d)
        discovery, s = d.call("nvmf_get_subsystems")
        check(discovery["nqn"] == DISCOVERY and discovery["subtype"] == "Discovery", discovery)
        check(s["nqn"] == NQN and s["subtype"] == "NVMe" and s["state"] == "active", s)
        check(s["listen_addresses"] == [ADDRESS] and s["hosts"] == [{"nqn": HOST}] and s["allow_any_host"] is False, s)
        check(s["serial_number"] == "0001" and s["model_number"] == "Model" and s["max_namespaces"] == 8, s)
        check(s["min_cntlid"] == 1 and s["max_cntlid"] == 65519, s)
        a, b = s["namespaces"]
        check(a["nsid"] == 1 and a["bdev_name"] == a["name"] == "M0" and a["anagrpid"] == 1, a)
        check(a["uuid"] == "11111111-2222-3333-4444-555555555555" and a["nguid"] == "11111111222233334444555555555555", a)
        check(a["eui64"] == "0123456789ABCDEF", a)
        check(b["nsid"] == 5 and b["nguid"] == "00112233445566778899AABBCCDDEEFF" and b["hosts"] == [{"nqn": HOST}], b)
        check(d.call("nvmf_get_subsystems", nqn=NQN)[0]["nqn"] == NQN, "only one")

        t, = d.call("nvmf_get_transports")
        check(t["trtype"] == "RDMA" and t["max_queue_depth"] == 64 and t["in_capsule_data_size"] == 8192, t)
        check({"max_io_qpairs_per_ctrlr", "max_io_size", "io_unit_size", "max_aq_depth", "num_shared_buffers",
               "buf_cache_size", "dif_insert_or_strip", "zcopy", "abort_timeout_sec"} <= set(t), t)
        stats = d.call("nvmf_get_stats")
        check(stats["tick_rate"] > 0, stats)
        for g in stats["poll_groups"]:
            check({"name", "admin_qpairs", "io_qpairs", "current_admin_qpairs", "current_io_qpairs", "pending_bdev_io",
                   "completed_nvme_io", "transports"} <= set(g), g)
            check(g["transports"][0]["trtype"] == "RDMA" and "pending_data_buffer" in g["transports"][0], g)
        check(d.call("nvmf_subsystem_get_controllers", nqn=NQN) == [], "nobody is connected")
        check(d.call("nvmf_subsystem_get_qpairs", nqn=NQN) == [], "nobody is connected")
        check(d.call("nvmf_subsystem_get_listeners", nqn=NQN)[0]["address"] == ADDRESS, "listeners")
        check(d.call("nvmf_get_inflight") == [], "nothing is outstanding")
        check(d.call("nvmf_get_targets") == ["nvmf_tgt"], "targets")
        r, = d.call("nvmf_discovery_get_referrals")
        check(r["address"] == {"trtype": "RDMA", "adrfam": "IPv4", "traddr": "192.0.2.7", "trsvcid": "8009"}, r)
        check(r["subnqn"] == DISCOVERY and r["secure_channel"] is False, r)
        kinds = [n["type"] for n in d.call("notify_get_notifications", all=True)]
        check("nvmf_ns_add" in kinds and "nvmf_subsystem_create" in kinds, kinds)


def test_what_is_wrong_is_named_with_what_is_allowed():
    with daemon() as d:
        refuses(d, "nvmf_create_transport", ["trtype", "PIGEON", "RDMA"], trtype="PIGEON")
        refuses(d, "nvmf_create_transport", ["max_io_size", "12345", "powers of two"], trtype="RDMA", max_io_size=12345)
        refuses(d, "nvmf_create_transport", ["tgt_name", "other"], trtype="RDMA", tgt_name="other")
        refuses(d, "nvmf_subsystem_add_listener", ["nqn", NQN], nqn=NQN, listen_address=ADDRESS)
        fill(d)
        refuses(d, "nvmf_create_transport", ["rdma", "exists"], trtype="rdma")
        refuses(d, "nvmf_create_subsystem", [NQN, "name"], nqn=NQN)
        refuses(d, "nvmf_create_subsystem", ["nqn", "iqn.x", "nqn.yyyy-mm"], nqn="iqn.x")
        refuses(d, "nvmf_create_subsystem", ["serial_number", "21", "20"], nqn=NQN + "a", serial_number="x" * 21)
        refuses(d, "nvmf_create_subsystem", ["model_number", "0x"], nqn=NQN + "a", model_number="\u00e9")
        refuses(d, "nvmf_create_subsystem", ["cntlid", "10", "5"], nqn=NQN + "a", min_cntlid=10, max_cntlid=5)
        refuses(d, "nvmf_subsystem_add_ns", ["bdev_name", "nosuch"], nqn=NQN, namespace={"bdev_name": "nosuch"})
        refuses(d, "nvmf_subsystem_add_ns", ["bdev_name", "M0"], nqn=NQN, namespace={"bdev_name": "M0"})
        refuses(d, "nvmf_subsystem_add_ns", ["nguid", "32"], nqn=NQN, namespace={"bdev_name": "M0", "nguid": "12"})
        d.call("bdev_null_create", name="N1", num_blocks=2048, block_size=4096)
        refuses(d, "nvmf_subsystem_add_ns", ["nsid", "5", "in use"], nqn=NQN, namespace={"bdev_name": "N1", "nsid": 5})
        refuses(d, "nvmf_subsystem_add_ns", ["nsid", "9", "1 to 8"], nqn=NQN, namespace={"bdev_name": "N1", "nsid": 9})
        refuses(d, "nvmf_subsystem_remove_ns", ["nsid", "7"], nqn=NQN, nsid=7)
        refuses(d, "nvmf_ns_add_host", ["nsid", "1", "visible"], nqn=NQN, nsid=1, host=HOST)
        refuses(d, "nvmf_subsystem_add_host", ["host", HOST, "already", "exists"], nqn=NQN, host=HOST)
        refuses(d, "nvmf_subsystem_add_host", ["host", "nonsense", "nqn."], nqn=NQN, host="nonsense")
        refuses(d, "nvmf_subsystem_remove_host", ["host", HOST + "0", "No such"], nqn=NQN, host=HOST + "0")
        refuses(d, "nvmf_ns_add_host", ["host", HOST, "namespace 5", "already"], nqn=NQN, nsid=5, host=HOST)
        refuses(d, "nvmf_ns_remove_host", ["host", HOST + "0", "namespace 5"], nqn=NQN, nsid=5, host=HOST + "0")
        refuses(d, "nvmf_get_subsystems", [NQN + "x", "No such device"], nqn=NQN + "x")
        refuses(d, "nvmf_delete_subsystem", [NQN + "x", "Invalid parameters"], nqn=NQN + "x")
        refuses(d, "nvmf_subsystem_add_ns", ["nqn", DISCOVERY, "namespaces"], nqn=DISCOVERY, namespace={"bdev_name": "N1"})
        refuses(d, "nvmf_subsystem_remove_listener", [NQN, "RDMA 127.0.0.1 1"], nqn=NQN, listen_address={**ADDRESS, "trsvcid": "1"})
        refuses(d, "nvmf_subsystem_add_listener", ["exists"], nqn=NQN, listen_address=ADDRESS)
        refuses(d, "nvmf_subsystem_add_listener", ["adrfam", "IPv5"], nqn=NQN, listen_address={**ADDRESS, "adrfam": "IPv5"})
        refuses(d, "nvmf_subsystem_add_listener", ["trtype", "TCP", "nvmf_create_transport"], nqn=NQN,
                listen_address={**ADDRESS, "trtype": "TCP"})
        refuses(d, "nvmf_subsystem_add_listener", ["192.0.2.1"], nqn=NQN, listen_address={**ADDRESS, "traddr": "192.0.2.1"})
        for field, value, allowed in (("trsvcid", "0", "1 to 65535"), ("trsvcid", "99999", "1 to 65535"), ("trsvcid", "04420", "1 to 65535"),
                                      ("trsvcid", "http", "1 to 65535"), ("traddr", "localhost", "numeric IPv4"), ("traddr", "127.0.0.256", "numeric IPv4"),
                                      ("traddr", "::1", "numeric IPv4"), ("adrfam", "IB", "IPv4 and IPv6"), ("adrfam", "IPv6", "numeric IPv6")):
            named = f'listen_address.{"traddr" if value == "IPv6" else field}"'
            refuses(d, "nvmf_subsystem_add_listener", [named, allowed], nqn=NQN, listen_address={**ADDRESS, field: value})
            if value != "IB":
                refuses(d, "nvmf_discovery_add_referral", [named.replace("listen_", ""), allowed], address={**ADDRESS, field: value})
        for cntlids in ({"min_cntlid": 0}, {"max_cntlid": 0}, {"min_cntlid": 65520}, {"max_cntlid": 65520}):
            refuses(d, "nvmf_create_subsystem", [*cntlids, "65519"], nqn=NQN + "a", **cntlids)
        refuses(d, "nvmf_discovery_remove_referral", ["address", DISCOVERY, "RDMA 192.0.2.8 8009"],
                address={"trtype": "RDMA", "traddr": "192.0.2.8", "trsvcid": "8009"})
        refuses(d, "nvmf_discovery_add_referral", ["address", DISCOVERY, "RDMA 192.0.2.7 8009", "exists"], address={"trtype": "RDMA", "traddr": "192.0.2.7", "trsvcid": "8009"})
        refuses(d, "nvmf_set_max_subsystems", [], max_subsystems=5)
        check(len(d.call("nvmf_get_subsystems")) == 2, "nothing of this has changed anything")


def test_the_descriptors_that_are_announced_have_room_in_a_capsule():
    """SPDK's hosts refuse a transfer of several pieces where MSDBD is 16 and a capsule has no room for 16 descriptors."""
    for given, wanted in ((0, 256), (240, 256), (272, 272)):
        with daemon() as d:
            d.call("nvmf_create_transport", trtype="RDMA", in_capsule_data_size=given)
            [t] = d.call("nvmf_get_transports", trtype="RDMA")
            check(t["in_capsule_data_size"] == wanted, f"{given} becomes {t['in_capsule_data_size']}")
            check((f"in_capsule_data_size is {given}; it becomes {wanted}" in d.log()) == (given != wanted), d.log())


def test_statistics_show_devices_before_the_first_connection():
    with daemon() as d:
        d.call("nvmf_create_transport", trtype="RDMA")
        groups = d.call("nvmf_get_stats")["poll_groups"]
        check(all(t["devices"] == [] for g in groups for t in g["transports"]), groups)
        d.call("nvmf_create_subsystem", nqn=NQN)
        d.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=ADDRESS)
        for g in d.call("nvmf_get_stats")["poll_groups"]:
            device, = g["transports"][0]["devices"]
            check(device["name"] and device["requests"] == 0 and device["memory_regions"] > 0, device)


def test_times_in_the_bdev_are_a_part_of_those_in_the_target_and_at_the_host():
    """Both time the first 64 I/Os exactly, so it holds however busy the machine is."""
    with Target() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        with Host(t, "-w", "randrw", "-q", "8", "--ios", "60") as h:
            host = h.result()
        wait_for(lambda: t.num_qpairs() == 0, "the host to go")
        stats = t.call("nvmf_get_stats")
        bdev, = t.call("bdev_get_iostat", name="M0")["bdevs"]
        check(bdev["num_read_ops"] + bdev["num_write_ops"] == 60, bdev)
        inside = bdev["read_latency_ticks"] + bdev["write_latency_ticks"]
        target = sum(d["request_latency"] for g in stats["poll_groups"] for x in g["transports"] for d in x["devices"])
        at_host = sum(host[kind]["ios"] * host[kind]["latency_us"]["mean"] for kind in ("read", "write")) * stats["tick_rate"] / 1e6
        check(0 < inside < target, f"{inside} ticks in the bdev, {target} in the target")
        check(inside < at_host, f"{inside} ticks in the bdev, {at_host} at the host")


def test_figures_agree_with_those_of_the_host_and_of_the_bdev():
    with Target() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        with Host(t, "-w", "randrw", "-q", "8", "--ios", "3000") as h:
            host = h.result()
        reads, writes = host["read"]["ios"], host["write"]["ios"]
        check(reads + writes == 3000 and host["errors"] == 0, host)
        wait_for(lambda: t.num_qpairs() == 0, "the host to go")
        bdev, = t.call("bdev_get_iostat", name="M0")["bdevs"]
        check((bdev["num_read_ops"], bdev["num_write_ops"]) == (reads, writes), (bdev, host))
        check((bdev["bytes_read"], bdev["bytes_written"]) == (reads * 4096, writes * 4096), bdev)
        check(t.groups("completed_nvme_io") == 3001 and t.groups("failed_nvme_io") == 0, "and the I/O queue's Connect")
        check(t.groups("admin_qpairs") == 1 and t.groups("io_qpairs") == 1, "of one host")
        devices = [d for g in t.call("nvmf_get_stats")["poll_groups"] for x in g["transports"] for d in x["devices"]]
        requests, sends = (sum(d[x] for d in devices) for x in ("requests", "total_send_wrs"))
        check(3001 < requests < 3050, f"{requests}: and a few on the admin queue")
        check(abs(sends - requests - reads) < 20, f"{sends} sends: an answer each, the data of {reads} reads, and the admin queue's")


def test_what_was_made_can_be_removed():
    with daemon() as d:
        fill(d)
        check(d.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=1) is True, "remove_ns")
        check(d.call("nvmf_ns_remove_host", nqn=NQN, nsid=5, host=HOST) is True, "ns_remove_host")
        d.call("bdev_null_delete", name="N0")
        check(d.call("nvmf_get_subsystems", nqn=NQN)[0]["namespaces"] == [], "a bdev takes its namespace along")
        check(d.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=True) is True, "allow_any_host")
        check(d.call("nvmf_subsystem_remove_host", nqn=NQN, host=HOST) is True, "remove_host")
        check(d.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=ADDRESS) is True, "remove_listener")
        check(d.call("nvmf_discovery_remove_referral", address={"trtype": "RDMA", "traddr": "192.0.2.7", "trsvcid": "8009"}), "referral")
        check(d.call("nvmf_delete_subsystem", nqn=NQN) is True, "delete_subsystem")
        check(len(d.call("nvmf_get_subsystems")) == 1, "the discovery subsystem stays")
        check(d.call("nvmf_delete_subsystem", nqn=DISCOVERY) is True and len(d.call("nvmf_get_subsystems")) == 1, "even if it is deleted")
        check(d.call("nvmf_create_target", name="second") == "second", "create_target")
        check(d.call("nvmf_create_subsystem", nqn=NQN, tgt_name="second") is True, "in the second target")
        check(len(d.call("nvmf_get_subsystems")) == 1, "not in the first")
        check(d.call("nvmf_delete_target", name="second") is True, "delete_target")
        refuses(d, "nvmf_delete_target", ['"name"', "second"], name="second")
        check(d.call("nvmf_get_targets") == ["nvmf_tgt"], "targets")
        check(d.stop() == 0, d.log())


def test_reservation_files_are_checked_and_saved():
    with daemon() as d:
        fill(d)
        d.call("bdev_null_create", name="N4", num_blocks=2048, block_size=512)
        path = d.folder / "reservation"

        def add(ptpl_file):
            return {"nqn": NQN, "namespace": {"bdev_name": "N4", "nsid": 7, "ptpl_file": str(ptpl_file)}}
        refuses(d, "nvmf_subsystem_add_ns", ["ptpl_file", "relative", "log"], **add("relative"))
        refuses(d, "nvmf_subsystem_add_ns", ["ptpl_file", "/no/such"], **add("/no/such/file"))
        path.write_text("varve-reservation 1\nnamespace 12\n")
        refuses(d, "nvmf_subsystem_add_ns", ["ptpl_file", str(path)], **add(path))
        check(f"{path}: line 2" in d.log(), d.log())
        check(path.read_text().endswith("12\n"), "what is refused is left as it is")
        path.unlink()
        check(d.call("nvmf_subsystem_add_ns", **add(path)) == 7, "add_ns")
        ns = d.call("nvmf_get_subsystems", nqn=NQN)[0]["namespaces"][-1]
        check(ns["ptpl_file"] == str(path) and "reservation" not in ns, ns)
        check(f'"ptpl_file": "{path}"' in save(d), "it is saved")


SECOND = {**ADDRESS, "trsvcid": str(PORT + 1)}


def ana_states(d):
    return [{x["ana_group"]: x["ana_state"] for x in lis["ana_states"]}
            for lis in d.call("nvmf_subsystem_get_listeners", nqn=NQN + "ana")]


def fill_ana(d):
    nqn = NQN + "ana"
    d.call("bdev_null_create", name="N2", num_blocks=2048, block_size=512)
    check(d.call("nvmf_create_subsystem", nqn=nqn, ana_reporting=True, max_namespaces=4, allow_any_host=True) is True, "subsystem")
    check(d.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": "N2", "anagrpid": 2}) == 1, "namespace")
    check(d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=ADDRESS) is True, "listener")
    check(d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=SECOND, ana_state="non_optimized") is True, "listener")
    check(d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=SECOND, ana_state="inaccessible",
                 anagrpid=3) is True, "state of a group")


def test_ana_states_are_kept_per_listener_and_group():
    with daemon() as d:
        fill(d)
        fill_ana(d)
        nqn = NQN + "ana"
        check(ana_states(d) == [{g: "optimized" for g in (1, 2, 3, 4)},
                                {1: "non_optimized", 2: "non_optimized", 3: "inaccessible", 4: "non_optimized"}], ana_states(d))
        s, = d.call("nvmf_get_subsystems", nqn=nqn)
        check(s["ana_reporting"] is True and s["namespaces"][0]["anagrpid"] == 2, s)
        check(d.call("nvmf_subsystem_set_ns_ana_group", nqn=nqn, nsid=1, anagrpid=3) is True, "set_ns_ana_group")
        check(d.call("nvmf_get_subsystems", nqn=nqn)[0]["namespaces"][0]["anagrpid"] == 3, "the new group")
        for state in ("persistent_loss", "change", "inaccessible", "optimized"):
            d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=ADDRESS, ana_state=state)
            check(set(ana_states(d)[0].values()) == {state}, ana_states(d))
        quiet = d.call("nvmf_subsystem_get_listeners", nqn=NQN)[0]["ana_states"]
        check({s["ana_state"] for s in quiet} == {"optimized"}, f"of a subsystem that does not report them: {quiet}")
        kinds = [n["type"] for n in d.call("notify_get_notifications", max=1000, all=True)]
        check("nvmf_ana_change" in kinds, kinds)
        change = {"nqn": nqn, "listen_address": ADDRESS, "ana_state": "inaccessible"}
        refuses(d, "nvmf_subsystem_listener_set_ana_state", ["ana_state", "sleepy", "non_optimized"], **{**change, "ana_state": "sleepy"})
        refuses(d, "nvmf_subsystem_listener_set_ana_state", ["anagrpid", "5", "1 to 4"], **change, anagrpid=5)
        refuses(d, "nvmf_subsystem_listener_set_ana_state", [str(PORT + 2), "does not listen"],
                **{**change, "listen_address": {**ADDRESS, "trsvcid": str(PORT + 2)}})
        refuses(d, "nvmf_subsystem_listener_set_ana_state", ["ana_reporting"], **{**change, "nqn": NQN})
        refuses(d, "nvmf_subsystem_add_listener", ["ana_reporting"], **{**change, "nqn": NQN, "listen_address": SECOND})
        refuses(d, "nvmf_subsystem_set_ns_ana_group", ["anagrpid", "5", "1 to 4"], nqn=nqn, nsid=1, anagrpid=5)
        refuses(d, "nvmf_subsystem_set_ns_ana_group", ["nsid", "3"], nqn=nqn, nsid=3, anagrpid=1)
        d.call("bdev_null_create", name="N3", num_blocks=2048, block_size=512)
        refuses(d, "nvmf_subsystem_add_ns", ["anagrpid", "9", "1 to 4"], nqn=nqn, namespace={"bdev_name": "N3", "anagrpid": 9})


def save(d):
    status, out, err = d.rpc("save_config")
    check(status == 0, err)
    return out


def test_what_has_no_effect_over_rdma_is_kept_and_saved():
    key = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"
    keys = (key, " " + key, key.lower(), "DHHC-1:00:" + "c2VjcmV0" * 5 + ":", "ab" * 16, "ab" * 32 + "\n", "0x" + "cd" * 16, ":".join(["ef"] * 16), "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I=",
            "QmFyZWJhc2U2NG9mdGhpcnR5dHdvYnl0ZXNhbGxpbgg", "n" * 40, "name of a key", "n-" * 32, "\u00e9", "a/b", "")
    names = ("no-such-key", "n" * 39 + ".2", "n-" * 31 + "n", "tls_host.2026-11")
    psks = {f"{HOST}{n}": psk for n, psk in enumerate((*names, *keys, None))}
    label = "rack 7, shelf 2"
    with daemon() as d:
        d.call("nvmf_create_transport", trtype="RDMA")
        d.call("nvmf_create_subsystem", nqn=NQN, admin_label=label)
        d.call("nvmf_create_subsystem", nqn=NQN + "2", admin_label="")
        for words, bad in ((("Invalid admin_label", "256"), "x" * 256), (("Invalid admin_label", "0x0a"), "a\n")):
            refuses(d, "nvmf_create_subsystem", words, nqn=NQN + "3", admin_label=bad)
        for host, psk in psks.items():
            d.call("nvmf_subsystem_add_host", nqn=NQN, host=host, **({} if psk is None else {"psk": psk}))
        d.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=ADDRESS, secure_channel=True)
        d.call("nvmf_subsystem_add_listener", nqn=NQN + "2", listen_address=ADDRESS)     # it is one and the same way in
        check(not [k for k in keys if len(k) > 3 and k in d.log()] and d.log().count("parameter \"secure_channel\" is true: taken, no effect") == 1, d.log())
        text = save(d)
        check(not [k for k in keys if k and json.dumps(k)[1:-1] in text], text)
        config = d.folder / "config.json"
        config.write_text(text)
        check(d.stop() == 0, d.log())
        with daemon("-c", config) as other:
            check(save(other) == text, save(other))
            _, s, second = other.call("nvmf_get_subsystems")
            check(s["admin_label"] == label and "admin_label" not in second, f"{s} {second}")
            check(s["hosts"] == [{"nqn": h, **({"psk": p} if p in names else {})} for h, p in psks.items()], s["hosts"])
            calls = {e["method"]: e["params"] for e in other.call("framework_get_config", name="nvmf") if e["params"].get("nqn") == NQN}
            check(calls["nvmf_subsystem_add_listener"]["secure_channel"] is True and calls["nvmf_create_subsystem"]["admin_label"] == label, calls)
            # With a transport that has TLS, a start would not take a name of nothing.
            other.call("nvmf_create_transport", trtype="TCP")
            text = save(other)
            check(not [n for n in names if n in text] and f"psk of host {HOST}0 of {NQN} is not in the configuration" in other.log(), other.log())
            config.write_text(text)
        with daemon("-c", config) as third:
            check(save(third) == text, save(third))


def test_saving_loading_and_saving_gives_the_same_bytes():
    with daemon("--wait-for-rpc", ready=False) as a:
        wait_for(a.connect, "the RPC socket").close()
        a.call("nvmf_set_config", discovery_filter="address,svcid", poll_groups_mask="0x1")
        a.call("nvmf_set_max_subsystems", max_subsystems=77)
        a.call("nvmf_set_crdt", crdt1=10)
        a.call("framework_start_init")
        fill(a)
        fill_ana(a)
        a.call("nvmf_create_target", name="second", max_subsystems=4)
        a.call("nvmf_create_subsystem", nqn=NQN, tgt_name="second", allow_any_host=True)
        for tgt in ("nvmf_tgt", "second"):
            a.call("nvmf_subsystem_allow_any_host", nqn=DISCOVERY, tgt_name=tgt, allow_any_host=False)
            a.call("nvmf_subsystem_add_host", nqn=DISCOVERY, tgt_name=tgt, host=HOST)
        first = save(a)
        path = a.folder / "saved.json"
        path.write_text(first)
        check(a.stop() == 0, a.log())
        with daemon("-c", path) as b:
            check(save(b) == first, f"{first}\n{save(b)}")
            for tgt in ("nvmf_tgt", "second"):
                discovery, = b.call("nvmf_get_subsystems", nqn=DISCOVERY, tgt_name=tgt)
                check(discovery["allow_any_host"] is False and discovery["hosts"] == [{"nqn": HOST}], discovery)
            names = [x["subsystem"] for x in json.loads(first)["subsystems"]]
            check(names.index("nvmf") > names.index("bdev"), names)


if __name__ == "__main__":
    main(sys.modules[__name__])
