#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 240
# sanitize
"""What programs written for SPDK's JSON-RPC send, as they send it, and what they read from the answers.

Such clients give every switch of a command, false where it was not set, and an object of options even if it is empty. stock_lib.py says what the tables
are; those of modules of block devices are in their folders."""
import base64
import json
import os
import sys
import zlib

from appliance_lib import Daemon, check, main, wait_for
from module_lib import of_modules
from nvmf_lib import ADDRESS, PORT, preload
from stock_lib import EXISTS, INVALID, NO_DEVICE, NO_KEY, UNKNOWN, UUID, Error, check_stock_takes, each, keys, play, wrong

BACK_PORT, FRONT_PORT = PORT, PORT + 20000
NQN, HOSTNQN = "nqn.2016-06.io.spdk:cnode1", "nqn.2016-06.io.spdk:host1"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"

# ---- At start-up ----

# All switches of bdev_nvme_set_options; older clients do not know all of them.
NVME_SWITCHES = {"delay_cmd_submit": True, "disable_auto_failback": False, "generate_uuids": False, "nvme_error_stat": False,
                 "io_path_stat": False, "allow_accel_sequence": False, "enable_flush": False}
STARTUP = [
    ("rpc_get_methods", {"current": True, "include_aliases": False}, lambda a: "framework_start_init" in a and "bdev_get_bdevs" not in a),
    ("rpc_get_methods", {"current": False, "include_aliases": True}, lambda a: "bdev_get_bdevs" in a),
    ("spdk_get_version", {}, lambda a: a["version"] and all(type(a["fields"][f]) is int for f in ("major", "minor", "patch"))),
    ("log_set_flag", {"flag": "all"}, True),
    ("log_clear_flag", {"flag": "all"}, True),
    ("log_set_level", {"level": "NOTICE"}, True),
    ("log_set_level", {"level": "notice"}, True),
    ("log_get_level", {}, "NOTICE"),
    ("log_set_print_level", {"level": "NOTICE"}, True),
    ("log_get_print_level", {}, "NOTICE"),
    ("log_enable_timestamps", {"enabled": True}, True),
    ("log_get_flags", {}, lambda a: a and all(type(v) is bool for v in a.values())),
    ("iobuf_set_options", {"enable_numa": False}, True),
    ("iobuf_set_options", {"small_pool_count": 8192, "large_pool_count": 1024, "enable_numa": False}, True),
    ("iobuf_set_options", {"small_pool_count": 8192, "large_pool_count": 1024, "small_bufsize": 8192, "large_bufsize": 135168,
                           "enable_numa": False}, True),
    ("bdev_set_options", {}, True),
    ("bdev_set_options", {"bdev_auto_examine": True}, True),
    ("bdev_set_options", {"bdev_io_pool_size": 65535, "bdev_io_cache_size": 256, "bdev_auto_examine": True, "iobuf_small_cache_size": 128,
                          "iobuf_large_cache_size": 16}, True),
    ("nvmf_set_max_subsystems", {"max_subsystems": 1024}, True),
    ("nvmf_set_config", {"admin_cmd_passthru": {}}, True),
    ("nvmf_set_config", {"discovery_filter": "match_any", "admin_cmd_passthru": {"identify_ctrlr": False}, "dup_host_policy": "allow"}, True),
    ("nvmf_set_config", {"admin_cmd_passthru": {}, "poll_groups_mask": "0x1", "discovery_filter": "transport,address,svcid",
                         "dhchap_digests": ["sha256", "sha384", "sha512"],
                         "dhchap_dhgroups": ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"]}, True),
    ("nvmf_set_config", {"admin_cmd_passthru": {}, "discovery_filters": ["transport", "svcid"]}, True),
    wrong("nvmf_set_config", {"admin_cmd_passthru": {}, "discovery_filters": ["port"]}, "discovery_filters[0]", "port", "svcid"),
    wrong("nvmf_set_config", {"admin_cmd_passthru": {}, "discovery_filters": [], "discovery_filter": "match_any"}, "discovery_filter", "one"),
    wrong("nvmf_set_config", {"admin_cmd_passthru": {"identify_ctrlr": True}}, "admin_cmd_passthru.identify_ctrlr", "true", "expected false"),
    ("nvmf_set_config", {"admin_cmd_passthru": {}, "dup_host_policy": "restrict_per_listener"}, True),
    wrong("nvmf_set_config", {"admin_cmd_passthru": {}, "dup_host_policy": "refuse"}, "dup_host_policy", "refuse", "restrict_per_listener"),
    ("nvmf_set_config", {"admin_cmd_passthru": {}, "dup_host_policy": "allow"}, True),
    ("nvmf_set_crdt", {"crdt1": 1, "crdt2": 2, "crdt3": 3}, True),
    ("bdev_nvme_set_options", dict(NVME_SWITCHES), True),
    ("bdev_nvme_set_options", {**NVME_SWITCHES, "multipath_opts": {}}, True),
    ("bdev_nvme_set_options", {**NVME_SWITCHES, "bdev_retry_count": -1, "ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1,
                               "fast_io_fail_timeout_sec": 0, "multipath_opts": {"policy": "active_active"}}, True),
    ("bdev_nvme_set_options", {**NVME_SWITCHES, "rdma_umr_per_io": False, "enable_flush": True, "disable_auto_failback": True, "action_on_timeout": "abort",
                               "timeout_us": 30000000, "timeout_admin_us": 0, "keep_alive_timeout_ms": 10000, "arbitration_burst": 2,
                               "low_priority_weight": 1, "medium_priority_weight": 2, "high_priority_weight": 3,
                               "nvme_adminq_poll_period_us": 10000, "nvme_ioq_poll_period_us": 0, "io_queue_requests": 512,
                               "transport_retry_count": 4, "bdev_retry_count": 3, "transport_ack_timeout": 18, "ctrlr_loss_timeout_sec": 0,
                               "reconnect_delay_sec": 0, "fast_io_fail_timeout_sec": 0, "transport_tos": 0, "rdma_srq_size": 0,
                               "rdma_max_cq_size": 0, "rdma_cm_event_timeout_ms": 1000, "tcp_connect_timeout_ms": 0,
                               "dhchap_digests": ["sha256", "sha384", "sha512"], "dhchap_dhgroups": ["null", "ffdhe2048"],
                               "multipath_opts": {"policy": "active_active", "selector": "queue_depth", "min_io": 4}}, True),
    *(wrong("bdev_nvme_set_options", {**NVME_SWITCHES, name: value}, f'"{name}" is {json.dumps(value)}', f"expected {json.dumps(only)}: ")
      for name, value, only in (("generate_uuids", True, False),)),
    ("bdev_nvme_set_options", {**NVME_SWITCHES, "nvme_error_stat": True, "io_path_stat": True}, True),
    ("bdev_nvme_set_options", {**NVME_SWITCHES, "delay_cmd_submit": False, "allow_accel_sequence": True, "rdma_umr_per_io": True, "rdma_srq_size": 128,
                               "rdma_max_cq_size": 128, "tcp_connect_timeout_ms": 10, "nvme_ioq_poll_period_us": 10}, True),
    wrong("bdev_nvme_set_options", {"rdma_srq_size": -1}, "rdma_srq_size", "-1", "0 to 4294967295"),
    wrong("bdev_nvme_set_options", {"transport_retry_count": 8}, "transport_retry_count", "8", "0 to 7"),
    wrong("bdev_nvme_set_options", {"transport_ack_timeout": 32}, "transport_ack_timeout", "32", "0 to 31"),
    wrong("bdev_nvme_set_options", {"arbitration_burst": 8}, "arbitration_burst", "8", "0 to 7"),
    ("keyring_get_keys", {}, []),
    ("bdev_get_bdevs", {}, Error(-1, "framework_start_init")),
    ("framework_start_init", {}, True),
    ("framework_wait_init", {}, True),
    ("framework_get_subsystems", {}, each("subsystem", "depends_on")),
    ("nvmf_set_max_subsystems", {"max_subsystems": 16}, Error(-1)),
]

# ---- Block devices ----

MALLOC_SWITCHES = {"md_interleave": False, "dif_is_head_of_md": False}
BDEVS = [
    ("bdev_malloc_create", {"num_blocks": 8192, "block_size": 4096, "name": "M1", "uuid": UUID, **MALLOC_SWITCHES}, "M1"),
    ("bdev_malloc_create", {"num_blocks": 8192, "block_size": 4096, "name": "M2"}, "M2"),
    ("bdev_get_bdevs", {}, each("name", "aliases", "product_name", "block_size", "num_blocks", "uuid", "assigned_rate_limits", "claimed",
                                "zoned", "supported_io_types", "driver_specific")),
    ("bdev_get_bdevs", {"name": "M1", "timeout": 0}, lambda a: a[0]["uuid"] == UUID and a[0]["product_name"] == "Malloc disk"),
    ("bdev_get_bdevs", {"name": "none"}, Error(NO_DEVICE, "none")),
    ("bdev_examine", {"name": "M1"}, True),
    ("bdev_wait_for_examine", {}, True),
    ("bdev_get_iostat", {"per_channel": False}, lambda a: a["tick_rate"] > 0 and each("name", "bytes_read", "num_read_ops", "bytes_written",
                                                                                      "num_write_ops", "read_latency_ticks")(a["bdevs"])),
    ("bdev_get_iostat", {"name": "M1", "per_channel": False}, lambda a: len(a["bdevs"]) == 1),
    ("bdev_get_iostat", {"per_channel": False, "names": ["M1", "M2"], "reset_mode": "maxmin"}, lambda a: len(a["bdevs"]) == 2),
    ("bdev_get_iostat", {"name": "M1", "per_channel": True, "reset_mode": "none"}, keys("name", "channels")),
    ("bdev_get_iostat", {"name": "none", "per_channel": False}, Error(NO_DEVICE, "none")),
    ("bdev_reset_iostat", {}, True),
    ("bdev_reset_iostat", {"name": "M1", "mode": "all"}, True),
    ("bdev_enable_histogram", {"name": "M1", "enable": True}, True),
    ("bdev_get_histogram", {"name": "M1"}, keys("histogram", "bucket_shift", "tsc_rate")),
    ("bdev_enable_histogram", {"name": "M1", "enable": False}, True),
    ("bdev_enable_histogram", {"name": "M1", "enable": True, "opc": "read", "granularity": 5, "min_nsec": 0, "max_nsec": 1000000000}, True),
    ("bdev_set_qd_sampling_period", {"name": "M1", "period": 1000}, True),
    ("bdev_set_qos_limit", {"name": "M1", "rw_ios_per_sec": 20000}, True),
    ("bdev_set_qos_limit", {"name": "M1", "rw_ios_per_sec": 0, "rw_mbytes_per_sec": 0, "r_mbytes_per_sec": 100, "w_mbytes_per_sec": 100}, True),
    ("bdev_set_qos_limit", {"name": "M1", "r_mbytes_per_sec": 0, "w_mbytes_per_sec": 0}, True),
]


# ---- NVMe over fabrics ----

TRANSPORT_SWITCHES = {"no_srq": False, "c2h_success": True, "zcopy": False, "dif_insert_or_strip": False, "no_wr_batching": False,
                      "disable_mappable_bar0": False, "disable_adaptive_irq": False, "disable_shadow_doorbells": False,
                      "disable_command_passthru": False}
SUBSYSTEM_SWITCHES = {"allow_any_host": False, "ana_reporting": False, "passthrough": False, "enable_nssr": False}
LISTEN = {"trtype": "rdma", "traddr": ADDRESS, "trsvcid": str(FRONT_PORT), "adrfam": "ipv4"}
SECOND, THIRD = ({**LISTEN, "trsvcid": str(FRONT_PORT + n)} for n in (1, 2))
NVMF = [
    ("nvmf_get_transports", {}, []),
    ("nvmf_create_transport", {"trtype": "RDMA", **TRANSPORT_SWITCHES, "max_queue_depth": 128, "max_io_qpairs_per_ctrlr": 127,
                               "in_capsule_data_size": 4096, "max_io_size": 131072, "io_unit_size": 8192, "max_aq_depth": 128,
                               "num_shared_buffers": 4095, "buf_cache_size": 32, "num_cqe": 4096, "max_srq_depth": 4096,
                               "sock_priority": 0, "acceptor_backlog": 100, "abort_timeout_sec": 1, "control_msg_num": 32,
                               "acceptor_poll_rate": 10000, "ack_timeout": 0, "data_wr_pool_size": 0, "kas": 10, "min_kato": 10000}, True),
    ("nvmf_create_transport", {"trtype": "RDMA", **TRANSPORT_SWITCHES}, Error(EXISTS, "Transport type 'RDMA' already exists")),
    wrong("nvmf_create_transport", {"trtype": "RDMA", **TRANSPORT_SWITCHES, "disable_mappable_bar0": 1}, '"disable_mappable_bar0" is 1', "true or false"),
    wrong("nvmf_create_transport", {"trtype": "FC", **TRANSPORT_SWITCHES}, "trtype", "FC", "RDMA", "TCP"),
    ("nvmf_create_transport", {"trtype": "TCP", **TRANSPORT_SWITCHES, "max_queue_depth": 128, "sock_priority": 0, "control_msg_num": 32}, True),
    ("nvmf_get_transports", {"trtype": "RDMA"}, each("trtype", "max_queue_depth", "max_io_qpairs_per_ctrlr", "in_capsule_data_size",
                                                     "max_io_size", "io_unit_size", "max_aq_depth", "num_shared_buffers", "abort_timeout_sec")),
    ("nvmf_create_target", {"name": "other", "max_subsystems": 0, "discovery_filter": "match_any"}, "other"),
    ("nvmf_get_targets", {}, lambda a: "other" in a and len(a) == 2),
    ("nvmf_create_transport", {"trtype": "RDMA", "tgt_name": "other", "no_srq": False, "c2h_success": True, "disable_mappable_bar0": True,
                               "disable_adaptive_irq": True, "disable_shadow_doorbells": True, "disable_command_passthru": True}, True),
    ("nvmf_create_subsystem", {"nqn": NQN, "serial_number": "OTHER", "tgt_name": "other", "model_number": "SPDK bdev Controller",
                               "max_namespaces": 0, "min_cntlid": 1, "max_cntlid": 65519}, True),
    ("nvmf_get_subsystems", {"tgt_name": "other", "nqn": NQN}, lambda a: [s["nqn"] for s in a] == [NQN]),
    ("nvmf_get_subsystems", {"nqn": "nqn.2016-06.io.spdk:none"}, Error(NO_DEVICE, "none")),
    ("nvmf_delete_target", {"name": "other"}, True),
    ("nvmf_create_subsystem", {"nqn": NQN, **SUBSYSTEM_SWITCHES}, True),
    ("nvmf_delete_subsystem", {"nqn": NQN}, True),
    ("nvmf_create_subsystem", {"nqn": NQN, **SUBSYSTEM_SWITCHES, "allow_any_host": True, "serial_number": "SPDK00000000000001"}, True),
    ("nvmf_delete_subsystem", {"nqn": NQN}, True),
    ("nvmf_create_subsystem", {"nqn": NQN, **SUBSYSTEM_SWITCHES, "ana_reporting": True, "serial_number": "SPDK00000000000001",
                               "model_number": "SPDK_Controller1", "max_namespaces": 8, "min_cntlid": 1, "max_cntlid": 65519,
                               "max_discard_size_kib": 0, "max_write_zeroes_size_kib": 0, "dmrsl": 2097152, "wzsl": 12}, True),
    ("nvmf_create_subsystem", {"nqn": NQN, **SUBSYSTEM_SWITCHES}, Error(EXISTS, NQN)),
    *(wrong("nvmf_create_subsystem", {"nqn": NQN + "x", **SUBSYSTEM_SWITCHES, name: value}, f'"{name}" is', "expected")
      for name, value in (("passthrough", True), ("enable_nssr", True), ("max_discard_size_kib", 4),
                          ("max_write_zeroes_size_kib", 4))),
    ("nvmf_subsystem_add_ns", {"nqn": NQN, "namespace": {"bdev_name": "M1", "no_auto_visible": False, "hide_metadata": False}}, 1),
    ("nvmf_subsystem_remove_ns", {"nqn": NQN, "nsid": 1}, True),
    ("nvmf_subsystem_add_ns", {"nqn": NQN, "namespace": {"bdev_name": "M1", "nsid": 3, "nguid": "ABCDEF0123456789ABCDEF0123456789",
                                                         "eui64": "ABCDEF0123456789", "uuid": UUID, "anagrpid": 2,
                                                         "no_auto_visible": True, "hide_metadata": False}}, 3),
    ("nvmf_subsystem_add_ns", {"nqn": NQN, "namespace": {"bdev_name": "none", "no_auto_visible": False, "hide_metadata": False}},
     Error(INVALID, "none")),
    ("nvmf_ns_add_host", {"nqn": NQN, "nsid": 3, "host": HOSTNQN}, True),
    ("nvmf_ns_remove_host", {"nqn": NQN, "nsid": 3, "host": HOSTNQN}, True),
    ("nvmf_subsystem_set_ns_ana_group", {"nqn": NQN, "nsid": 3, "anagrpid": 3}, True),
    ("nvmf_subsystem_add_host", {"nqn": NQN, "host": HOSTNQN}, True),
    ("nvmf_subsystem_add_host", {"nqn": NQN, "host": HOSTNQN + "x", "psk": "key0"}, Error(NO_KEY, "key0")),      # the target has TCP, too
    ("nvmf_subsystem_remove_host", {"nqn": NQN, "host": HOSTNQN + "x"}, Error(-2)),
    ("nvmf_subsystem_remove_host", {"nqn": NQN, "host": HOSTNQN, "timeout_ms": 60000}, True),
    ("nvmf_subsystem_allow_any_host", {"nqn": NQN, "allow_any_host": True}, True),
    ("nvmf_subsystem_allow_any_host", {"nqn": NQN, "allow_any_host": False}, True),
    ("nvmf_subsystem_add_listener", {"nqn": NQN, "listen_address": LISTEN, "secure_channel": False}, True),
    ("nvmf_subsystem_add_listener", {"nqn": NQN, "listen_address": SECOND, "secure_channel": False, "ana_state": "non_optimized"}, True),
    ("nvmf_subsystem_add_listener", {"nqn": NQN, "listen_address": THIRD, "secure_channel": True, "sock_impl": "ssl", "numa_id": 0}, True),
    ("nvmf_subsystem_remove_listener", {"nqn": NQN, "listen_address": THIRD}, True),
    wrong("nvmf_subsystem_add_listener", {"nqn": NQN, "listen_address": THIRD, "secure_channel": 1}, "secure_channel", "true or false"),
    ("nvmf_subsystem_add_listener", {"nqn": DISCOVERY, "listen_address": LISTEN, "secure_channel": False}, True),
    ("nvmf_subsystem_listener_set_ana_state", {"nqn": NQN, "ana_state": "inaccessible", "listen_address": SECOND}, True),
    ("nvmf_subsystem_listener_set_ana_state", {"nqn": NQN, "ana_state": "optimized", "listen_address": SECOND, "anagrpid": 3}, True),
    ("nvmf_subsystem_get_listeners", {"nqn": NQN}, each("address", "ana_states")),
    ("nvmf_subsystem_remove_listener", {"nqn": NQN, "listen_address": SECOND}, True),
    ("nvmf_subsystem_get_controllers", {"nqn": NQN}, []),
    ("nvmf_subsystem_get_qpairs", {"nqn": NQN}, []),
    ("nvmf_subsystem_get_qpairs", {"nqn": "nqn.2016-06.io.spdk:none"}, Error(INVALID, "none", "Invalid parameters")),
    ("nvmf_get_subsystems", {}, lambda a: a[0]["subtype"] == "Discovery" and keys("namespaces", "serial_number", "model_number", "max_namespaces",
                                                                                 "hosts", "listen_addresses", "allow_any_host")(a[1])),
    ("nvmf_discovery_add_referral", {"address": {"trtype": "rdma", "traddr": "192.0.2.8", "trsvcid": "8009", "adrfam": "ipv4"},
                                     "secure_channel": False}, True),
    ("nvmf_discovery_add_referral", {"address": {"trtype": "tcp", "traddr": "192.0.2.9", "trsvcid": "8009"}, "secure_channel": False}, True),
    wrong("nvmf_discovery_add_referral", {"address": {"trtype": "pigeon", "traddr": "192.0.2.9"}, "secure_channel": False}, "trtype", "TCP"),
    ("nvmf_discovery_get_referrals", {}, each("address", "secure_channel", "subnqn")),
    ("nvmf_discovery_remove_referral", {"address": {"trtype": "rdma", "traddr": "192.0.2.8", "trsvcid": "8009"}, "subnqn": DISCOVERY}, True),
    ("nvmf_get_stats", {}, lambda a: a["tick_rate"] > 0 and each("name", "admin_qpairs", "io_qpairs", "transports")(a["poll_groups"])),
]

# ---- What watches ----

MONITOR = [
    ("thread_get_stats", {}, lambda a: a["tick_rate"] > 0 and each("name", "id", "cpumask", "busy", "idle", "active_pollers_count",
                                                                   "timed_pollers_count", "paused_pollers_count")(a["threads"])),
    ("thread_get_pollers", {}, lambda a: a["tick_rate"] > 0 and each("name", "id", "active_pollers", "timed_pollers", "paused_pollers")(a["threads"])),
    ("thread_get_io_channels", {}, lambda a: each("name", "io_channels")(a["threads"])),
    ("framework_get_reactors", {}, lambda a: a["pid"] > 0 and each("lcore", "busy", "idle", "in_interrupt", "lw_threads")(a["reactors"])),
    ("iobuf_get_stats", {}, lambda a: all(keys("module", "small_pool", "large_pool")(m) for m in a)),
    ("notify_get_types", {}, lambda a: "bdev_register" in a),
    ("notify_get_notifications", {}, each("type", "ctx", "id")),
    ("notify_get_notifications", {"id": 0, "max": 1}, lambda a: len(a) == 1),
    ("trace_get_info", {}, keys("tpoint_shm_path", "tpoint_group_mask", "bdev")),
    ("trace_enable_tpoint_group", {"name": "bdev"}, True),
    ("trace_set_tpoint_mask", {"name": "bdev", "tpoint_mask": 1}, True),
    ("trace_clear_tpoint_mask", {"name": "bdev", "tpoint_mask": 1}, True),
    ("trace_get_tpoint_group_mask", {}, lambda a: keys("enabled", "mask")(a["bdev"])),
    ("trace_disable_tpoint_group", {"name": "all"}, True),
    ("env_dpdk_get_mem_stats", {}, keys("filename")),
    ("framework_get_pci_devices", {}, list),
    ("framework_get_config", {"name": "bdev"}, each("method")),
    ("framework_get_config", {"name": "none"}, Error(INVALID, "none")),
    ("bdev_raid_create", {"base_bdevs": ["M1"], "name": "R0"}, Error(UNKNOWN, "bdev_raid_create")),
]


def daemon(*options, **kwargs):
    return Daemon("-m", "[0]", "-s", "512", *options, env=preload(), **kwargs)


def test_startup():
    with daemon("--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        play(d, STARTUP)


def test_block_devices_subsystems_and_what_watches_them():
    with daemon() as d:
        play(d, BDEVS)
        play(d, NVMF)
        play(d, MONITOR)


def test_modules_of_block_devices():
    for calls in of_modules("stock"):
        with daemon() as d:
            play(d, calls(d.folder))


def test_keys():
    secret = bytes(range(32))
    with daemon() as d:
        path = d.folder / "key"
        path.write_text("DHHC-1:00:" + base64.b64encode(secret + zlib.crc32(secret).to_bytes(4, "little")).decode() + ":")
        os.chmod(path, 0o600)
        play(d, [("keyring_file_add_key", {"name": "key0", "path": str(path)}, True),
                 ("keyring_file_add_key", {"name": "key0", "path": str(path)}, Error(EXISTS, "key0")),
                 ("keyring_get_keys", {}, each("name", "removed", "probed", "refcnt", "path")),
                 ("nvmf_create_subsystem", {"nqn": NQN, **SUBSYSTEM_SWITCHES}, True),
                 ("nvmf_subsystem_add_host", {"nqn": NQN, "host": HOSTNQN, "dhchap_key": "key0"}, True),
                 ("nvmf_subsystem_set_keys", {"nqn": NQN, "host": HOSTNQN, "dhchap_key": "key0", "dhchap_ctrlr_key": "key0"}, True),
                 ("nvmf_subsystem_remove_host", {"nqn": NQN, "host": HOSTNQN}, True),
                 ("keyring_file_remove_key", {"name": "key0"}, True)])
        path.write_text("NVMeTLSkey-1:01:" + base64.b64encode(secret + zlib.crc32(secret).to_bytes(4, "little")).decode() + ":")
        play(d, [("keyring_file_add_key", {"name": "key0", "path": str(path)}, True),
                 ("nvmf_create_transport", {"trtype": "TCP"}, True),
                 ("nvmf_subsystem_add_host", {"nqn": NQN, "host": HOSTNQN, "psk": "key0"}, True),
                 ("nvmf_subsystem_remove_host", {"nqn": NQN, "host": HOSTNQN}, True),
                 ("keyring_file_remove_key", {"name": "key0"}, True)])


# ---- NVMe controllers ----

ATTACH_SWITCHES = {"prchk_reftag": False, "prchk_guard": False, "hdgst": False, "ddgst": False, "allow_unrecognized_csi": False}
BACK = {"trtype": "rdma", "traddr": ADDRESS, "adrfam": "ipv4", "trsvcid": str(BACK_PORT), "subnqn": NQN}
BACK_LISTEN = {"trtype": "RDMA", "traddr": ADDRESS, "adrfam": "IPv4", "trsvcid": str(BACK_PORT)}
CONTROLLERS = [
    ("bdev_nvme_get_controllers", {}, []),
    ("bdev_nvme_attach_controller", {"name": "Nvme0", **BACK, **ATTACH_SWITCHES}, ["Nvme0n1"]),
    ("bdev_nvme_attach_controller", {"name": "Nvme0", **BACK, **ATTACH_SWITCHES, "multipath": "disable"}, Error(-114, "Nvme0")),
    ("bdev_nvme_detach_controller", {"name": "Nvme0"}, True),
    ("bdev_nvme_attach_controller", {"name": "Nvme0", **BACK, **ATTACH_SWITCHES, "multipath_opts": {}}, ["Nvme0n1"]),
    ("bdev_nvme_get_controllers", {"name": "Nvme0"}, lambda a: each("state", "trid", "cntlid", "host")(a[0]["ctrlrs"])),
    ("bdev_nvme_get_io_paths", {"name": "Nvme0n1"}, keys("poll_groups")),
    ("bdev_nvme_set_multipath_policy", {"name": "Nvme0n1", "policy": "active_active", "selector": "round_robin", "rr_min_io": 2}, True),
    ("bdev_nvme_get_transport_statistics", {}, keys("poll_groups")),
    ("bdev_nvme_get_controller_health_info", {"name": "Nvme0"}, keys("model_number", "serial_number", "temperature_celsius")),
    ("bdev_nvme_reset_controller", {"name": "Nvme0"}, True),
    ("bdev_nvme_disable_controller", {"name": "Nvme0"}, True),
    ("bdev_nvme_get_controllers", {"name": "Nvme0"}, lambda a: a[0]["ctrlrs"][0]["state"] == "disabled"),
    ("bdev_nvme_disable_controller", {"name": "Nvme0"}, Error(-114, "disabled already")),
    ("bdev_nvme_enable_controller", {"name": "Nvme0"}, True),
    ("bdev_nvme_get_controllers", {"name": "Nvme0"}, lambda a: a[0]["ctrlrs"][0]["state"] == "enabled"),
    ("bdev_nvme_add_error_injection", {"name": "Nvme0", "cmd_type": "io", "opc": 2, "do_not_submit": False, "timeout_in_us": 0,
                                       "err_count": 1, "sct": 0, "sc": 0}, True),
    ("bdev_nvme_remove_error_injection", {"name": "Nvme0", "cmd_type": "io", "opc": 2}, True),
    ("bdev_nvme_detach_controller", {"name": "Nvme0", "hostaddr": "192.0.2.1"}, Error(NO_DEVICE, "hostaddr", "192.0.2.1")),
    ("bdev_nvme_detach_controller", {"name": "Nvme0", **BACK}, True),
    ("bdev_nvme_attach_controller", {"name": "Nvme1", **BACK, **ATTACH_SWITCHES, "hostnqn": HOSTNQN, "hostaddr": ADDRESS,
                                     "hostsvcid": str(BACK_PORT + 9), "fabrics_connect_timeout_us": 30000000, "multipath": "multipath",
                                     "num_io_queues": 4, "ctrlr_loss_timeout_sec": 30, "reconnect_delay_sec": 2, "fast_io_fail_timeout_sec": 10,
                                     "max_bdevs": 16, "priority": "3", "disable_sq_flow_control": True, "hdgst": True, "ddgst": True,
                                     "multipath_opts": {"policy": "active_active", "selector": "queue_depth", "min_io": 2}}, ["Nvme1n1"]),
    ("bdev_nvme_get_controllers", {"name": "Nvme1"}, lambda a: a[0]["ctrlrs"][0]["host"] == {"nqn": HOSTNQN, "addr": ADDRESS,
                                                                                            "svcid": str(BACK_PORT + 9)}),
    ("bdev_get_bdevs", {"name": "Nvme1n1"}, lambda a: a[0]["product_name"] == "NVMe disk"),
    ("bdev_nvme_detach_controller", {"name": "Nvme1", "hostaddr": ADDRESS, "hostsvcid": str(BACK_PORT + 9)}, True),
    ("bdev_nvme_detach_controller", {"name": "Nvme1"}, Error(NO_DEVICE, "Nvme1")),
    *(wrong("bdev_nvme_attach_controller", {"name": "Nvme2", **BACK, **ATTACH_SWITCHES, name: value}, f'"{name}" is', "expected")
      for name, value in (("hdgst", 1), ("ddgst", None), ("allow_unrecognized_csi", True), ("priority", 3))),
    wrong("bdev_nvme_attach_controller", {"name": "Nvme2", **BACK, **ATTACH_SWITCHES, "psk": "key0"}, '"psk" is', "key0", "no such key"),
    wrong("bdev_nvme_attach_controller", {"name": "Nvme2", **BACK, **ATTACH_SWITCHES, "trtype": "fc"}, "trtype", "fc", "RDMA, TCP or PCIe"),
    wrong("bdev_nvme_attach_controller", {"name": "Nvme2", **BACK, **ATTACH_SWITCHES, "priority": "16"}, "priority", "16", "0 to 15"),
    wrong("bdev_nvme_attach_controller", {"name": "Nvme2", "trtype": "PCIe", "traddr": "0000:00:1f.0", **ATTACH_SWITCHES,
                                          "hostaddr": ADDRESS}, "hostaddr", "PCIe"),
    wrong("bdev_nvme_attach_controller", {"name": "Nvme2", **BACK, **ATTACH_SWITCHES, "hostsvcid": "4421"}, "hostsvcid", "hostaddr"),
    ("bdev_nvme_start_discovery", {"name": "disc", "trtype": "rdma", "traddr": ADDRESS, "adrfam": "ipv4", "trsvcid": str(BACK_PORT),
                                   "wait_for_attach": True, "attach_timeout_ms": 30000}, True),
    ("bdev_nvme_get_discovery_info", {}, each("name", "trid", "referrals")),
    ("bdev_nvme_stop_discovery", {"name": "disc"}, True),
]


def add_back(b):
    play(b, [("bdev_malloc_create", {"num_blocks": 32768, "block_size": 512, "name": "M0", **MALLOC_SWITCHES}, "M0"),
             ("nvmf_create_transport", {"trtype": "RDMA", **TRANSPORT_SWITCHES}, True),
             ("nvmf_create_subsystem", {"nqn": NQN, **SUBSYSTEM_SWITCHES, "allow_any_host": True}, True),
             ("nvmf_subsystem_add_ns", {"nqn": NQN, "namespace": {"bdev_name": "M0", "no_auto_visible": False, "hide_metadata": False}}, 1),
             ("nvmf_subsystem_add_listener", {"nqn": NQN, "listen_address": BACK_LISTEN, "secure_channel": False}, True),
             ("nvmf_subsystem_add_listener", {"nqn": DISCOVERY, "listen_address": BACK_LISTEN, "secure_channel": False}, True)])


def test_controllers():
    with daemon() as b, daemon() as f:
        add_back(b)
        play(f, CONTROLLERS)


GET_ARBITRATION = base64.urlsafe_b64encode(bytes([0x0a]) + bytes(39) + bytes([1]) + bytes(23)).decode()


def test_options_reach_the_controller():
    def is_set(answer):
        return base64.urlsafe_b64decode(answer["cpl"])[:4] == bytes([2, 1, 2, 3])
    with daemon() as b, daemon() as f:
        add_back(b)
        play(f, [("bdev_nvme_set_options", {**NVME_SWITCHES, "arbitration_burst": 2, "low_priority_weight": 1, "medium_priority_weight": 2,
                                            "high_priority_weight": 3, "transport_retry_count": 4, "transport_ack_timeout": 18,
                                            "transport_tos": 32, "rdma_cm_event_timeout_ms": 30000}, True),
                 ("bdev_nvme_attach_controller", {"name": "Nvme0", **BACK, **ATTACH_SWITCHES}, ["Nvme0n1"]),
                 ("bdev_nvme_send_cmd", {"name": "Nvme0", "cmd_type": "admin", "data_direction": "c2h", "cmdbuf": GET_ARBITRATION,
                                         "data_len": 0}, is_set),
                 ("bdev_nvme_set_options", dict(NVME_SWITCHES), Error(-16, "Nvme0"))])


READ_A_BLOCK = base64.urlsafe_b64encode(bytes([2, 0, 0, 0, 1]) + bytes(59)).decode()


def test_latencies_are_counted_below_borders_in_microseconds():
    read = ("bdev_nvme_send_cmd", {"name": "Nvme0", "cmd_type": "io", "data_direction": "c2h", "cmdbuf": READ_A_BLOCK, "data_len": 512}, keys("cpl", "data"))
    with daemon() as b, daemon() as f:
        add_back(b)
        play(f, [("bdev_nvme_attach_controller", {"name": "Nvme0", **BACK, **ATTACH_SWITCHES}, ["Nvme0n1"]),
                 ("bdev_wait_for_examine", {}, True)])      # it reads a new bdev once, to find a volume store
        play(b, [("bdev_enable_histogram", {"name": "M0", "enable": True}, True)])
        play(f, [read, read])
        play(b, [("bdev_get_histogram_borders", {"name": "M0", "borders": [0, 86400000000]}, lambda a: a["borders_count"] == [0, 2, 2])])


# ---- Configurations ----

# As another program writes it: every option with its value, subsystems that have no methods here with nothing in them.
WRITTEN = {"subsystems": [
    {"subsystem": "keyring", "config": []},
    {"subsystem": "iobuf", "config": [
        {"method": "iobuf_set_options", "params": {"small_pool_count": 8192, "large_pool_count": 1024, "small_bufsize": 8192,
                                                   "large_bufsize": 135168, "enable_numa": False}}]},
    {"subsystem": "sock", "config": None},
    {"subsystem": "bdev", "config": [
        {"method": "bdev_set_options", "params": {"bdev_io_pool_size": 65535, "bdev_io_cache_size": 256, "bdev_auto_examine": True,
                                                  "iobuf_small_cache_size": 128, "iobuf_large_cache_size": 16}},
        {"method": "bdev_nvme_set_options", "params": {
            "action_on_timeout": "none", "timeout_us": 0, "timeout_admin_us": 0, "keep_alive_timeout_ms": 10000, "arbitration_burst": 0,
            "low_priority_weight": 0, "medium_priority_weight": 0, "high_priority_weight": 0, "nvme_adminq_poll_period_us": 10000,
            "nvme_ioq_poll_period_us": 0, "io_queue_requests": 0, "delay_cmd_submit": True, "transport_retry_count": 4, "bdev_retry_count": 3,
            "transport_ack_timeout": 0, "ctrlr_loss_timeout_sec": 0, "reconnect_delay_sec": 0, "fast_io_fail_timeout_sec": 0,
            "disable_auto_failback": False, "generate_uuids": False, "transport_tos": 0, "nvme_error_stat": False, "rdma_srq_size": 0,
            "io_path_stat": False, "allow_accel_sequence": False, "rdma_max_cq_size": 0, "rdma_cm_event_timeout_ms": 0,
            "dhchap_digests": ["sha256", "sha384", "sha512"],
            "dhchap_dhgroups": ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"], "rdma_umr_per_io": False,
            "tcp_connect_timeout_ms": 0, "enable_flush": False}},
        {"method": "bdev_nvme_set_hotplug", "params": {"period_us": 100000, "enable": False}},
        {"method": "bdev_malloc_create", "params": {"name": "Malloc0", "num_blocks": 16384, "block_size": 512, "physical_block_size": 512,
                                                    "uuid": UUID, "optimal_io_boundary": 0, "md_size": 0, "dif_type": 0,
                                                    "dif_is_head_of_md": False, "dif_pi_format": 0}},
        {"method": "bdev_wait_for_examine"}]},
    {"subsystem": "nvmf", "config": [
        {"method": "nvmf_set_config", "params": {"discovery_filter": "match_any", "admin_cmd_passthru": {"identify_ctrlr": False},
                                                 "dhchap_digests": ["sha256", "sha384", "sha512"], "dhchap_dhgroups": ["null", "ffdhe2048"]}},
        {"method": "nvmf_set_max_subsystems", "params": {"max_subsystems": 1024}},
        {"method": "nvmf_set_crdt", "params": {"crdt1": 0, "crdt2": 0, "crdt3": 0}},
        {"method": "nvmf_create_transport", "params": {
            "trtype": "RDMA", "max_queue_depth": 128, "max_io_qpairs_per_ctrlr": 127, "in_capsule_data_size": 4096, "max_io_size": 131072,
            "io_unit_size": 8192, "max_aq_depth": 128, "num_shared_buffers": 4095, "buf_cache_size": 32, "dif_insert_or_strip": False,
            "zcopy": False, "num_cqe": 4096, "max_srq_depth": 4096, "no_srq": False, "acceptor_backlog": 100, "no_wr_batching": False,
            "abort_timeout_sec": 1, "ack_timeout": 0, "data_wr_pool_size": 0}},
        {"method": "nvmf_create_subsystem", "params": {"nqn": NQN, "allow_any_host": True, "serial_number": "SPDK00000000000001",
                                                       "model_number": "SPDK bdev Controller", "max_namespaces": 32, "min_cntlid": 1,
                                                       "max_cntlid": 65519, "ana_reporting": False}},
        {"method": "nvmf_subsystem_add_host", "params": {"nqn": NQN, "host": HOSTNQN}},
        {"method": "nvmf_subsystem_add_ns", "params": {"nqn": NQN, "namespace": {
            "nsid": 1, "bdev_name": "Malloc0", "nguid": "F0E1D2C3B4A5469788796A5B4C3D2E1F", "uuid": UUID, "no_auto_visible": False}}},
        {"method": "nvmf_subsystem_add_listener", "params": {
            "nqn": NQN, "listen_address": {"trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(FRONT_PORT)},
            "secure_channel": False}}]},
]}


def test_parameters_without_effect_are_named_once_in_the_log():
    usual, asked = {"delay_cmd_submit": True, "rdma_srq_size": 0}, {"delay_cmd_submit": False, "rdma_srq_size": 128}
    with daemon() as d:
        d.call("bdev_nvme_set_options", **usual)
        check("no effect" not in d.log(), d.log())
        for _ in range(2):
            d.call("bdev_nvme_set_options", **asked)
        for name, value in asked.items():
            line = f'bdev_nvme_set_options: parameter "{name}" is {json.dumps(value)}: taken, no effect: '
            check(d.log().count(line) == 1, f"{line!r} in {d.log()}")
        saved = d.call("framework_get_config", name="bdev")
        check(not any(name in e.get("params", {}) for e in saved for name in asked), saved)


def load(d, config):
    """As stock clients load: what may be called is called, then the start-up goes on, then the rest."""
    left = [entry for s in config["subsystems"] for entry in s["config"] or []]
    unknown = {e["method"] for e in left} - set(d.call("rpc_get_methods"))
    check(not unknown, unknown)
    while left:
        allowed = d.call("rpc_get_methods", current=True)
        now = [e for e in left if e["method"] in allowed]
        left = [e for e in left if e["method"] not in allowed]
        for e in now:
            d.call(e["method"], **e.get("params", {}))
        if "framework_start_init" in allowed:
            d.call("framework_start_init")
        else:
            check(not left, f"not loaded: {left}")


def save(d):
    """As stock clients save: a subsystem may depend on those before it."""
    known, subsystems = set(), []
    for s in d.call("framework_get_subsystems"):
        check(set(s["depends_on"]) <= known, s)
        known.add(s["subsystem"])
        subsystems.append({"subsystem": s["subsystem"], "config": d.call("framework_get_config", name=s["subsystem"])})
    return {"subsystems": subsystems}


def test_configuration_of_another_program_is_loaded_and_saved():
    with daemon("--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        load(d, WRITTEN)
        saved = save(d)
        check([s["nqn"] for s in d.call("nvmf_get_subsystems", nqn=NQN)] == [NQN], "the subsystem")
    methods = {e["method"]: e.get("params") for s in saved["subsystems"] for e in s["config"] or []}
    check(methods["bdev_nvme_set_options"]["transport_retry_count"] == 4, methods["bdev_nvme_set_options"])
    check(methods["nvmf_create_subsystem"]["serial_number"] == "SPDK00000000000001", methods["nvmf_create_subsystem"])
    with daemon("--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        load(d, saved)
        check(save(d) == saved, "saved again, it is another one")


def test_what_a_stock_client_saves_of_a_node_is_taken_by_a_stock_target():
    """As long as nothing is set that only varve has: such clients write whole answers, and keep nothing apart."""
    with daemon() as d:
        for trtype in ("RDMA", "TCP"):
            d.call("nvmf_create_transport", trtype=trtype)
        d.call("bdev_malloc_create", name="M", num_blocks=2048, block_size=512)
        d.call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True)
        d.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "M"})
        saved = save(d)
        check_stock_takes({"subsystems": [{**s, "config": s["config"] or []} for s in saved["subsystems"]]})


if __name__ == "__main__":
    main(sys.modules[__name__])
