#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""trace_*: tracepoints switched while the daemon runs, and the shapes that clients decode."""
# quick
# sanitize
# beside
import subprocess
import sys

from appliance_lib import BUILD, DEADLINE, Daemon, RpcError, check, main


def trace_of(d):
    p = subprocess.run([BUILD / "bin" / "varve-trace", "-f", d.trace_file], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stderr)
    return p.stdout


def refused(d, method, **params):
    try:
        d.call(method, **params)
    except RpcError as e:
        return f"{e.code}: {e.message}"
    check(False, f"{method} {params} was accepted")


def test_groups_are_switched_while_it_runs():
    with Daemon() as d:
        check(d.call("trace_get_info")["tpoint_group_mask"] == "0x0", "something is on at the start")
        check(d.call("trace_enable_tpoint_group", name="rpc") is True, "enabled")
        check(d.call("trace_get_info")["tpoint_group_mask"] == "0x4", "rpc is on")
        d.call("log_get_flags")
        check(d.call("trace_disable_tpoint_group", name="rpc") is True, "disabled")
        d.call("log_get_level")
        text = trace_of(d)
        check("log_get_flags" in text and "log_get_level" not in text, text)


def test_single_tracepoints_are_switched():
    with Daemon() as d:
        d.call("trace_set_tpoint_mask", name="rpc", tpoint_mask="0x2")
        d.call("trace_set_tpoint_mask", name="bdev", tpoint_mask=5)
        masks = d.call("trace_get_tpoint_group_mask")
        check(masks["rpc"]["tpoint_mask"] == "0x2" and masks["bdev"]["tpoint_mask"] == "0x5", masks)
        on = {t["name"]: t["enabled"] for t in masks["rpc"]["tpoints"]}
        check(on == {"RPC_BEGIN": False, "RPC_END": True}, on)
        d.call("trace_clear_tpoint_mask", name="bdev", tpoint_mask=1)
        check(d.call("trace_get_info")["bdev"]["tpoint_mask"] == "0x4", "cleared")
        d.call("trace_enable_tpoint_group", name="thread:THREAD_IOCH_PUT,nvmf_rdma:ff")
        info = d.call("trace_get_info")
        check(info["thread"]["tpoint_mask"] == "0x2" and info["nvmf_rdma"]["tpoint_mask"] == "0xff", info)


def test_results_have_the_shape_that_clients_decode():
    with Daemon("-e", "bdev") as d:
        info = d.call("trace_get_info")
        check(info["tpoint_shm_path"] == str(d.trace_file) and info["tpoint_group_mask"] == "0x8", info)
        check(list(info)[:2] == ["tpoint_shm_path", "tpoint_group_mask"], info)
        check(info["bdev"] == {"mask": "0x8", "tpoint_mask": "0xffffffffffffffff"}, info["bdev"])
        check(info["nvmf_rdma"] == {"mask": "0x10", "tpoint_mask": "0x0"}, info["nvmf_rdma"])
        masks = d.call("trace_get_tpoint_group_mask")
        check(list(masks["bdev"]) == ["enabled", "mask", "tpoint_mask", "tpoints"], masks["bdev"])
        check(masks["bdev"]["tpoints"][0] == {"name": "BDEV_IO_START", "tpoint_id": 0, "enabled": True}, masks["bdev"])
        check(masks["scheduler"]["enabled"] is False, masks["scheduler"])


def test_all_is_every_group():
    with Daemon("--num-trace-entries", "1024") as d:
        d.call("trace_enable_tpoint_group", name="all")
        check(all(g["tpoint_mask"] == "0xffffffffffffffff" for g in d.call("trace_get_info").values() if isinstance(g, dict)), "all")
        d.call("trace_disable_tpoint_group", name="all")
        check(d.call("trace_get_info")["tpoint_group_mask"] == "0x0", "none")


def test_clear_hides_what_was_before():
    with Daemon("-e", "rpc") as d:
        d.call("log_get_flags")
        d.call("trace_clear")
        d.call("log_get_level")
        text = trace_of(d)
        check("log_get_level" in text and "log_get_flags" not in text, text)


def test_stats_count_what_was_recorded():
    with Daemon("-e", "rpc") as d:
        before = next(s for s in d.call("trace_get_stats")["slots"] if s["thread"] == "control")
        d.call("log_get_flags")
        stats = d.call("trace_get_stats")
        after = next(s for s in stats["slots"] if s["thread"] == "control")
        check(after["recorded"] > before["recorded"] > 0 and after["overwritten"] == 0, after)
        check(any(s["thread"].startswith("reactor") and s["attached"] and s["num_entries"] == 32768 for s in stats["slots"]), stats)
        check(stats["no_slot"] == 0 and stats["threads_refused"] == 0, stats)


def test_wrong_names_list_the_right_ones():
    with Daemon() as d:
        why = refused(d, "trace_enable_tpoint_group", name="bdve")
        check("bdve" in why and "nvmf_rdma" in why, why)
        why = refused(d, "trace_enable_tpoint_group", name="bdev:NOTHING")
        check("NOTHING" in why and "BDEV_IO_START" in why, why)
        why = refused(d, "trace_set_tpoint_mask", name="bdve", tpoint_mask=1)
        check("bdve" in why and "nvmf_rdma" in why, why)
        why = refused(d, "trace_enable_tpoint_group", name="help")
        check("trace_get_tpoint_group_mask" in why, why)


def test_without_tracing_it_says_so():
    with Daemon("--num-trace-entries", "0") as d:
        for method, params in (("trace_enable_tpoint_group", {"name": "bdev"}), ("trace_clear", {}),
                               ("trace_set_tpoint_mask", {"name": "bdev", "tpoint_mask": 1})):
            why = refused(d, method, **params)
            check("tracing is off" in why and "-19" in why, why)
        info = d.call("trace_get_info")
        check(info["tpoint_shm_path"] == "" and info["tpoint_group_mask"] == "0x0", info)
        check(d.call("trace_get_stats")["slots"] == [], "no rings")


if __name__ == "__main__":
    main(sys.modules[__name__])
