#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 200
# sanitize
"""dup_host_policy: a host may have several controllers of a subsystem through one listener, or only one."""
import json
import sys
import tempfile

from appliance_lib import RpcError, check, main, wait_for
from nvmf_lib import NQN, PORT, Target

OTHER = PORT + 1


def attach(f, t, name, port=None, nqn=NQN):
    address = {**t.listen_address(), **({"trsvcid": str(port)} if port else {})}
    return f.call("bdev_nvme_attach_controller", name=name, subnqn=nqn, **address)


def is_refused(f, t, name, port=None):
    try:
        return check(False, f"{name} is attached: {attach(f, t, name, port)}")
    except RpcError as e:
        return e.message


def make(t):
    for n, nqn in enumerate((NQN, NQN + ":more")):
        t.add_malloc(f"M{n}")
        if n:
            t.add_subsystem(nqn)
        t.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": f"M{n}"})
    t.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address={**t.listen_address(), "trsvcid": str(OTHER)})


def controllers(t):
    return t.call("nvmf_subsystem_get_controllers", nqn=NQN)


def test_a_host_may_connect_twice():
    with Target() as t, Target(listen=False) as f:
        make(t)
        attach(f, t, "A")
        attach(f, t, "B")
        check(len(controllers(t)) == 2, controllers(t))


def check_restricted(t, f):
    make(t)
    attach(f, t, "A")
    for _ in range(2):
        is_refused(f, t, "B")
        check("has controller" in t.log() and "restrict_per_listener" in t.log(), t.log())
        check(len(controllers(t)) == 1, controllers(t))
    attach(f, t, "C", OTHER)                # through another listener
    is_refused(f, t, "D", OTHER)
    attach(f, t, "E", nqn=NQN + ":more")    # of another subsystem
    f.call("bdev_nvme_start_discovery", name="d", **t.listen_address())
    f.call("bdev_nvme_stop_discovery", name="d")
    f.call("bdev_nvme_reset_controller", name="A")      # its old controller has ended by then
    f.call("bdev_nvme_detach_controller", name="A")
    wait_for(lambda: len(controllers(t)) == 1, "the first controller to be gone")
    attach(f, t, "B")
    saved = json.loads(t.rpc("save_config")[1])
    [config] = [e["params"] for s in saved["subsystems"] for e in s["config"] or [] if e["method"] == "nvmf_set_config"]
    check(config["dup_host_policy"] == "restrict_per_listener", config)


def test_a_host_has_one_controller_for_each_listener():
    config = {"subsystems": [{"subsystem": "nvmf", "config": [{"method": "nvmf_set_config", "params": {"dup_host_policy": "restrict_per_listener"}}]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        with Target("-c", file.name) as t, Target(listen=False) as f:
            check_restricted(t, f)


def test_another_target_has_a_policy_of_its_own():
    with Target() as t:
        t.call("nvmf_create_target", name="second", dup_host_policy="restrict_per_listener")
        saved = json.loads(t.rpc("save_config")[1])
        [made] = [e["params"] for s in saved["subsystems"] for e in s["config"] or [] if e["method"] == "nvmf_create_target"]
        check(made["dup_host_policy"] == "restrict_per_listener", made)


if __name__ == "__main__":
    main(sys.modules[__name__])
