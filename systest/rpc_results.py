#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 300
# beside
"""Answers of a daemon that serves I/O have the shapes that the registry says they have (rpc/rpc.h explains the notation)."""
import base64
import os
import re
import sys

from appliance_lib import RpcError, check, main
from module_lib import of_modules
from nvmf_lib import HOSTNQN, NQN, PORT, Host, Target, wait_io

PLAIN = {"int": lambda v: isinstance(v, int) and not isinstance(v, bool) or isinstance(v, str) and re.fullmatch("0x[0-9a-f]+", v),
         "string": lambda v: isinstance(v, str), "bool": lambda v: isinstance(v, bool), "null": lambda v: v is None,
         "true": lambda v: v is True, "any": lambda v: True}


class Shape:
    """Parses the notation by descent; every alternative is a function (value, where) -> what is wrong, or None."""

    def __init__(self, text):
        self.tokens = re.findall(r"\.\.\.|[\w*]+\??|[][{}:,|]", text)
        check("".join(self.tokens) == re.sub(r"\s", "", text), f"not in the notation: {text}")
        self.judge = self.alternatives()
        check(not self.tokens, f"left over: {self.tokens} of {text}")

    def take(self, *wanted):
        check(self.tokens and (not wanted or self.tokens[0] in wanted), f"{wanted} expected at {self.tokens[:5]}")
        return self.tokens.pop(0)

    def alternatives(self):
        choices = [self.one()]
        while self.tokens and self.tokens[0] == "|":
            self.take("|")
            choices.append(self.one())

        def judge(value, where):
            wrong = [c(value, where) for c in choices]
            return None if None in wrong else " and ".join(wrong)
        return judge

    def one(self):
        token = self.take("[", "{", *PLAIN)
        if token == "[":
            item = self.alternatives()
            self.take("]")
            return lambda v, at: f"{at} is no array" if not isinstance(v, list) else \
                next((w for i, x in enumerate(v) for w in [item(x, f"{at}[{i}]")] if w), None)
        if token == "{":
            return self.fields()
        return lambda v, at: None if PLAIN[token](v) else f"{at} is {v!r}, no {token}"

    def fields(self):
        known, needed, others, more = {}, set(), None, False
        while self.tokens[0] != "}":
            key = self.take()
            if key == "...":
                more = True
            else:
                self.take(":")
                shape = self.alternatives()
                if key == "*":
                    others = shape
                else:
                    known[key.rstrip("?")] = shape
                    needed |= set() if key.endswith("?") else {key}
            if self.tokens[0] != "}":
                self.take(",")
        self.take("}")

        def judge(value, at):
            if not isinstance(value, dict):
                return f"{at} is no object"
            if needed - set(value):
                return f"{at} has no {sorted(needed - set(value))}"
            for key, x in value.items():
                shape = known.get(key, others)
                wrong = shape(x, f"{at}.{key}") if shape else None if more else f"{at}.{key} is not written down"
                if wrong:
                    return wrong
            return None
        return judge


class Watched:
    """Calls of a daemon, each answer held against its shape."""

    def __init__(self, d):
        self.d = d
        methods = d.call("rpc_describe_methods")
        self.shapes = {m["name"]: Shape(m["result"]) for m in methods}
        self.seen = set()

    def call(self, method, **params):
        answer = self.d.call(method, **params)
        if method in self.shapes:
            wrong = self.shapes[method].judge(answer, method)
            check(not wrong, f"{wrong}: {str(answer)[:2000]}")
            self.seen.add(method)
        return answer


def test_the_notation_is_understood():
    for text, good, bad in (("int", [0, "0x8000000000000000"], [True, "1", None]), ("[string]", [[], ["a"]], [[1], "a"]),
                            ("{a: int, b?: string|null}", [{"a": 1}, {"a": 1, "b": None}], [{}, {"a": 1, "c": 2}, {"a": 1, "b": 2}]),
                            ("{a: int, ...}", [{"a": 1, "c": 2}], [{"c": 2}]), ("{a: int, *: bool}", [{"a": 1, "x": True}], [{"a": 1, "x": 1}])):
        for value in good:
            check(Shape(text).judge(value, "x") is None, f"{value} is {text}")
        for value in bad:
            check(Shape(text).judge(value, "x") is not None, f"{value} is not {text}")


def change(w):
    """What can be called without much ado, on bdevs of its own."""
    for answers in of_modules("answers"):
        answers(w.call, w.d.folder)
    w.call("bdev_malloc_create", name="X", num_blocks=2048, block_size=512)
    w.call("bdev_set_qos_limit", name="X", rw_ios_per_sec=100000)
    w.call("bdev_qos_group_create", name="g", rw_ios_per_sec=100000)
    w.call("bdev_qos_group_set_limit", name="g", rw_mbytes_per_sec=1000, burst_ms=50)
    w.call("bdev_set_qos_group", name="X", group="g", min_rw_ios_per_sec=1000)
    check(w.call("bdev_get_qos_groups")[0]["bdevs"][0]["min_rw_ios_per_sec"] == 1000, "the minimum")
    check(w.call("bdev_get_bdevs", name="X")[0]["qos_group"] == "g", "the group of a bdev")
    w.call("bdev_qos_group_create", name="other")
    w.call("bdev_qos_group_delete", name="other")
    w.call("bdev_set_qd_sampling_period", name="X", period=1000)
    w.call("bdev_set_timeout", name="X", timeout_us=1000000)
    w.call("bdev_enable_histogram", name="X", enable=True)
    w.call("bdev_get_histogram", name="X")
    w.call("bdev_get_histogram_borders", name="X", borders=[0, 10])
    w.call("bdev_reset_iostat")
    w.call("bdev_wait_for_examine")
    w.call("bdev_examine", name="X")
    w.call("nvmf_create_subsystem", nqn=NQN + ":x", serial_number="X", ana_reporting=True)
    w.call("nvmf_subsystem_add_ns", nqn=NQN + ":x", namespace={"bdev_name": "X"})
    w.call("nvmf_subsystem_add_listener", nqn=NQN + ":x", listen_address=w.d.listen_address())
    w.call("nvmf_subsystem_get_listeners", nqn=NQN + ":x")
    w.call("nvmf_subsystem_listener_set_ana_state", nqn=NQN + ":x", listen_address=w.d.listen_address(), ana_state="non_optimized", anagrpid=1)
    w.call("nvmf_subsystem_set_qos_limit", nqn=NQN + ":x", host=HOSTNQN, rw_ios_per_sec=1000, min_rw_mbytes_per_sec=10)
    w.call("nvmf_subsystem_get_qos_limits", nqn=NQN + ":x")
    w.call("nvmf_subsystem_set_ns_ana_group", nqn=NQN + ":x", nsid=1, anagrpid=2)
    w.call("nvmf_discovery_add_referral", address=w.d.listen_address())
    w.call("nvmf_discovery_get_referrals")
    w.call("nvmf_discovery_remove_referral", address=w.d.listen_address())
    w.call("nvmf_create_target", name="other")
    w.call("nvmf_delete_target", name="other")
    w.call("nvmf_get_subsystems")
    w.call("nvmf_subsystem_remove_listener", nqn=NQN + ":x", listen_address=w.d.listen_address())
    w.call("nvmf_subsystem_remove_ns", nqn=NQN + ":x", nsid=1)
    w.call("nvmf_delete_subsystem", nqn=NQN + ":x")
    w.call("bdev_malloc_delete", name="X")
    for method, params in (("log_set_level", {"level": "INFO"}), ("log_set_flag", {"flag": "bdev"}), ("log_clear_flag", {"flag": "bdev"}),
                           ("trace_clear", {}), ("framework_wait_init", {}), ("framework_hand_over", {"pid": os.getpid(), "dry_run": True, "force": True}), ("trace_disable_tpoint_group", {"name": "rpc"}),
                           ("trace_enable_tpoint_group", {"name": "rpc"}), ("trace_clear_tpoint_mask", {"name": "rpc", "tpoint_mask": 1}),
                           ("trace_set_tpoint_mask", {"name": "rpc", "tpoint_mask": 1}), ("metrics_start", {"address": "127.0.0.1:0"}),
                           ("metrics_get_status", {}), ("metrics_stop", {}),
                           ("trace_set_trigger", {"name": "shape", "type": "request_age", "limit_us": 86400000000, "action": "notify"}),
                           ("trace_get_triggers", {}), ("trace_remove_trigger", {"name": "shape"})):
        w.call(method, **params)


def ask_nvme(w, back):
    """About the controller Nvme0, and a second service beside it."""
    identify = bytes([6]) + bytes(39) + bytes([1]) + bytes(23)
    w.call("bdev_nvme_get_controller_health_info", name="Nvme0")
    w.call("bdev_nvme_send_cmd", name="Nvme0", cmd_type="admin", data_direction="c2h", data_len=4096,
           cmdbuf=base64.urlsafe_b64encode(identify).decode())
    w.call("bdev_nvme_add_error_injection", name="Nvme0", cmd_type="admin", opc=0x18)
    w.call("bdev_nvme_remove_error_injection", name="Nvme0", cmd_type="admin", opc=0x18)
    cntlid = w.call("bdev_nvme_get_io_paths", name="Nvme0n1")["poll_groups"][0]["io_paths"][0]["cntlid"]
    w.call("bdev_nvme_get_path_iostat", name="Nvme0n1")
    w.call("bdev_nvme_set_preferred_path", name="Nvme0n1", cntlid=cntlid)
    w.call("bdev_nvme_set_multipath_policy", name="Nvme0n1", policy="active_active")
    w.call("bdev_nvme_start_discovery", name="disc", **back.listen_address(), wait_for_attach=True)
    w.call("bdev_nvme_get_discovery_info")
    w.call("bdev_nvme_stop_discovery", name="disc")


def test_answers_have_the_shapes_that_are_written_down():
    with Target() as back, Target("-e", "all", port=PORT + 20000) as t:
        back.add_ns(back.add_malloc("M0"), nsid=1)
        w = Watched(t)
        t.call("bdev_nvme_set_options", io_path_stat=True)
        check(len(w.shapes) > 80, f"methods are missing: {sorted(w.shapes)}")
        w.call("bdev_nvme_attach_controller", name="Nvme0", **back.listen_address(), subnqn=NQN, ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1)
        w.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "Nvme0n1"})
        w.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN)
        with Host(t, "-w", "randrw", "-t", "3600", "-q", "16", nsid=1) as h:
            wait_io(t, [h])
            for method in sorted(w.shapes):
                if re.search(r"(_|^)get_|^rpc_get|_version$", method):
                    try:
                        w.call(method)
                    except RpcError as e:
                        check("is missing" in e.message, f"{method}: {e.message}")
            for method in ("nvmf_subsystem_get_controllers", "nvmf_subsystem_get_qpairs", "nvmf_subsystem_get_listeners"):
                w.call(method, nqn=NQN)
            w.call("bdev_get_iostat", name="Nvme0n1", per_channel=True)
            w.call("sock_impl_get_options", impl_name="posix")
            for s in t.call("framework_get_subsystems"):
                w.call("framework_get_config", name=s["subsystem"])
            ask_nvme(w, back)
            change(w)
            h.stop()
        w.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=1)
        w.call("bdev_nvme_detach_controller", name="Nvme0")
        getters = {m for m in w.shapes if "get_" in m}
        check(getters <= w.seen, f"not called: {getters - w.seen}")
        print(f"# {len(w.seen)} methods of {len(w.shapes)} whose answers are written down")


if __name__ == "__main__":
    main(sys.modules[__name__])
