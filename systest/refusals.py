#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 240
# sanitize
"""A call that is refused, and an entry of a configuration that is refused: the caller, the log and a notification say what was wrong, the value, and what is allowed;
none but the caller hears of a secret."""
import json
import sys

from appliance_lib import Daemon, RpcError, check, main, wait_for
from nvmf_lib import NQN, preload

SECRET = "DHHC-1:00:c2VjcmV0LW9mLWEtaG9zdC1vZi0zMi1ieXRlcy0hIQ5XX4Q=:"
ADDRESS = {"trtype": "RDMA", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "1"}
NS = {"bdev_name": "none"}

# Method, parameters, and words of the reason: the parameter, its value, what is allowed.
WRONG = [
    ("bdev_none", {}, ["there is no method", "bdev_none"]),
    ("bdev_maloc_create", {}, ["there is no method", "bdev_maloc_create", 'did you mean "bdev_malloc_create"?']),
    ("bdev_malloc_create", {"num_blocks": 8}, ["block_size", "is missing"]),
    ("bdev_malloc_create", {"num_blocks": "many", "block_size": 512}, ["num_blocks", '"many"', "an integer"]),
    ("bdev_malloc_create", {"num_blocks": 8, "block_size": 512, "colour": 1}, ["colour", "known ones are"]),
    ("bdev_get_bdevs", {"timeout": 86400001}, ["timeout", "86400001", "0 to 86400000"]),
    ("bdev_set_qos_limit", {"name": "x", "rw_ios_per_sec": -1}, ["rw_ios_per_sec", "-1", "0 to"]),
    ("bdev_qos_group_create", {"name": ""}, ["name", '""', "1 to 63 bytes"]),
    ("bdev_qos_group_create", {"name": "g", "burst_ms": 60001}, ["burst_ms", "60001", "5 to 60000"]),
    ("bdev_qos_group_set_limit", {"name": "g", "burst_ms": 4}, ["burst_ms", "4", "5 to 60000"]),
    ("bdev_nvme_set_options", {"action_on_timeout": "wait"}, ["action_on_timeout", '"wait"', '"reset"']),
    ("bdev_nvme_attach_controller", {"name": "N", "trtype": "PIGEON", "traddr": "x"}, ["trtype", "PIGEON", "RDMA"]),
    ("bdev_nvme_attach_controller", {"name": "N", "trtype": "RDMA", "traddr": "127.0.0.1", "subnqn": "x"}, ["subnqn", "'x'"]),
    ("framework_get_config", {"name": "none"}, ["none"]),
    ("log_set_level", {"level": "LOUD"}, ["level", '"LOUD"', '"ERROR"']),
    ("thread_set_cpumask", {"id": 1, "cpumask": "0"}, ["cpumask"]),
    ("trace_enable_tpoint_group", {"name": "none"}, ["name", "none", "bdev"]),
    ("nvmf_create_subsystem", {"nqn": "x"}, ["nqn", '"x"', "allowed is nqn."]),
    ("nvmf_create_subsystem", {"nqn": NQN, "min_cntlid": 9, "max_cntlid": 8}, ["min_cntlid", "9", "1 to 65519"]),
    ("nvmf_create_subsystem", {"nqn": NQN, "passthrough": True}, ["passthrough", "true", "expected false"]),
    ("nvmf_subsystem_add_ns", {"nqn": NQN, "namespace": NS}, ["nqn", NQN, "no such subsystem"]),
    ("nvmf_subsystem_add_listener", {"nqn": NQN, "listen_address": {**ADDRESS, "adrfam": "IPv5"}}, ["nqn", NQN]),
    ("nvmf_create_transport", {"trtype": "RDMA", "max_queue_depth": 1}, ["max_queue_depth", "1"]),
    ("nvmf_discovery_add_referral", {"address": {**ADDRESS, "trtype": "PIGEON"}}, ["trtype", "PIGEON", "TCP"]),
    ("nvmf_set_crdt", {}, ["only during start-up"]),
]
# The word in the log for the parameter whose value is not told.
SECRETS = [
    ("nvmf_subsystem_add_host", {"nqn": NQN, "host": "x", "dhchap_key": {"k": SECRET}}, "dhchap_key"),
    ("nvmf_subsystem_add_host", {"nqn": SECRET, "host": "x"}, "nqn"),
    ("bdev_nvme_attach_controller", {"name": "N", "trtype": "RDMA", "traddr": "x", "psk": SECRET}, "psk"),
    ("bdev_nvme_attach_controller", {"name": "N", "trtype": SECRET, "traddr": "127.0.0.1"}, "trtype"),
]


def refusal(d, method, params):
    try:
        return check(False, f"{method} {params} answered {d.call(method, **params)}")
    except RpcError as e:
        return e


def is_told(d, method, params, words):
    """Makes the call. At most ten refusals in a second are told of, so it may take several."""
    e = refusal(d, method, params)
    check(all(w in e.message for w in words), f"{method} {params}: the caller hears '{e.message}', not {words}")
    return any(n["ctx"] == method and all(w in n["reason"] for w in words if len(e.message) < 200) for n in d.notifications("rpc_refused"))


def test_the_caller_the_log_and_a_notification_say_what_was_wrong():
    with Daemon("-s", "256", env=preload()) as d:
        for method, params, words in WRONG:
            wait_for(lambda: is_told(d, method, params, words), f"{method} {params} to be told of")
            lines = [x for x in d.log().splitlines() if f"RPC {method} was refused (" in x]
            check(any(all(w in x for w in words) for x in lines), f"{method} {params}: {lines}")
        check(d.call("notify_get_notifications") == [], "clients of SPDK's targets, which count notifications, see none of them")
        types = d.call("notify_get_types", all=True)
        check("rpc_refused" in types and "config_refused" in types, types)
        check(not {"rpc_refused", "config_refused"} & set(d.call("notify_get_types")), "not among the common types")


def test_answers_that_say_no_are_no_refusals():
    with Daemon("-s", "256", env=preload()) as d:
        before = len(d.notifications("rpc_refused"))
        e = refusal(d, "bdev_get_bdevs", {"name": "none"})
        check(e.code == -19 and len(d.notifications("rpc_refused")) == before and "was refused" not in d.log(), f"{e.code}: {d.log()}")


def test_secrets_are_told_to_the_caller_only():
    with Daemon("-s", "256", "-L", "rpc", env=preload()) as d:
        for method, params, name in SECRETS:
            wait_for(lambda: (refusal(d, method, params), any(n["ctx"] == method and f'"{name}"' in n["reason"] and "caller only" in n["reason"] for n in d.notifications("rpc_refused")))[1],
                     f"{method} {params} to be told of")
        check(SECRET[10:20] not in d.log() and SECRET[10:20] not in json.dumps(d.notifications("rpc_refused")), d.log())


def test_refused_entries_of_a_configuration_are_told():
    entries = [
        {"method": "bdev_null_create", "params": {"name": "N0", "num_blocks": 8, "block_size": 512}},
        {"method": "bdev_null_create", "params": {"name": "N1", "num_blocks": 8, "block_size": "big"}},
        {"method": "bdev_none_create", "params": {}},
        {"method": "bdev_null_create", "params": {"name": "N0", "num_blocks": 8, "block_size": 512}},
        {"method": "bdev_nvme_attach_controller", "params": {"name": "N", "trtype": "RDMA", "traddr": "127.0.0.1", "psk": SECRET}},
    ]
    wanted = [("bdev_null_create", ["config[1]", "block_size", '"big"']), ("bdev_none_create", ["config[2]", "there is no method"]),
              ("bdev_null_create", ["config[3]", "N0", "-17"]), ("bdev_nvme_attach_controller", ["config[4]", "psk", "caller only"])]
    with Daemon("--wait-for-rpc", ready=False) as holder:
        path = holder.folder / "wrong.json"
        path.write_text(json.dumps({"subsystems": [{"subsystem": "bdev", "config": entries}]}))
        with Daemon("-s", "256", "-c", path, "--json-ignore-init-errors", env=preload()) as d:
            found = d.notifications("config_refused")
            check(len(found) == len(wanted), found)
            for n, (method, words) in zip(found, wanted):
                check(n["ctx"] == method and all(w in n["reason"] or w in d.log() for w in words), f"{n} lacks {words}")
                check(any(all(w in x for w in words) for x in d.log().splitlines()), f"{words}: {d.log()}")
            check(SECRET[10:20] not in d.log() + json.dumps(found), d.log())
            check([b["name"] for b in d.call("bdev_get_bdevs")] == ["N0"], "the rest is there")


if __name__ == "__main__":
    main(sys.modules[__name__])
