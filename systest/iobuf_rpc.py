#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 300
# sanitize
# beside
"""The data buffers that all share: their options, and statistics that are true."""
import json
import sys

from appliance_lib import Daemon, RpcError, check, main, wait_for
from nvmf_lib import Host, Target, preload

DEFAULTS = {"small_pool_count": 8192, "large_pool_count": 1024, "small_bufsize": 8192, "large_bufsize": 135168, "enable_numa": False}


def fails(d, words, method, **params):
    try:
        d.call(method, **params)
    except RpcError as e:
        check(all(str(w) in e.message for w in words), f"{words} are not all in: {e.message}")
        return e.code
    check(False, f"{method} {params} succeeded")


def saved(d):
    config = d.call("framework_get_config", name="iobuf")
    check(len(config) == 1 and config[0]["method"] == "iobuf_set_options", config)
    return config[0]["params"]


def config_file(d, **options):
    path = d.folder / "iobuf.json"
    path.write_text(json.dumps({"subsystems": [
        {"subsystem": "iobuf", "config": [{"method": "iobuf_set_options", "params": options}]}]}))
    return path


def stats(d, module):
    for m in d.call("iobuf_get_stats"):
        check(set(m) == {"module", "small_pool", "large_pool"}, m)
        check(set(m["small_pool"]) == set(m["large_pool"]) == {"cache", "main", "retry", "cache_size"}, m)
        if m["module"] == module:
            return m
    check(False, f"no {module} in the statistics")


def gets(stat):
    return stat["cache"] + stat["main"]


def test_options_are_set_before_the_start_only_and_are_checked():
    with Daemon("--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        check(d.call("iobuf_set_options", small_pool_count=100, enable_numa=True) is True, "the answer")
        check(d.call("iobuf_set_options", large_bufsize=65536) is True, "the answer")
        for name, low, high in (("small_pool_count", 64, 4194304), ("large_pool_count", 8, 4194304),
                                ("small_bufsize", 4096, 16777216), ("large_bufsize", 8192, 16777216)):
            for value in (0, low - 1, high + 1):
                check(fails(d, [name, value, low, high], "iobuf_set_options", **{name: value}) == -32602, name)
        fails(d, ["small_bufsize", 131072, "large_bufsize", 65536], "iobuf_set_options", small_bufsize=131072)
        fails(d, ["nosuch", "small_pool_count", "enable_numa"], "iobuf_set_options", nosuch=1)
        check("iobuf_set_options" in d.call("rpc_get_methods", current=True), "may be called now")
        fails(d, ["iobuf_get_stats"], "iobuf_get_stats")
        d.call("framework_start_init")
        check(saved(d) == {**DEFAULTS, "small_pool_count": 100, "enable_numa": True, "large_bufsize": 65536}, saved(d))
        fails(d, ["iobuf_set_options"], "iobuf_set_options", small_pool_count=200)
        check("iobuf_set_options" not in d.call("rpc_get_methods", current=True), "may not be called any more")


def test_options_are_saved_and_loaded():
    with Daemon() as d:
        check(saved(d) == DEFAULTS, saved(d))
        options = {"small_pool_count": 300, "large_pool_count": 30, "small_bufsize": 16384, "large_bufsize": 262144,
                   "enable_numa": False}
        with Daemon("-c", config_file(d, **options)) as e:
            check(saved(e) == options, saved(e))
            order = [s["subsystem"] for s in e.call("framework_get_subsystems")]
            check(order.index("iobuf") < order.index("bdev"), f"what uses them comes later: {order}")


def test_the_statistics_count_the_commands():
    with Target(zcopy=False) as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)

        def run(ios, size):
            before = stats(t, "nvmf_RDMA")
            with Host(t, "-w", "read", "-o", size, "--ios", str(ios), "-q", "4", nsid=1) as h:
                result = h.result()
                check(result["errors"] == 0 and result["read"]["ios"] == ios, result)
            t.wait_empty()
            after = stats(t, "nvmf_RDMA")
            check(all(after["large_pool"][x] == 0 for x in ("cache", "main", "retry")), after)
            check(after["small_pool"]["retry"] == before["small_pool"]["retry"], after)
            return gets(after["small_pool"]) - gets(before["small_pool"])
        few, many, wide = run(100, "4k"), run(350, "4k"), run(100, "32k")
        check(many - few == 250, f"250 more commands took {many - few} more buffers")
        check(wide - few == 300, f"100 commands of four buffers instead of one took {wide - few} more")
        t.stop_clean()


def test_too_few_buffers_make_commands_wait_which_is_told():
    with Daemon() as d:
        path = config_file(d, small_pool_count=64, large_pool_count=8)
        with Target("-c", path, zcopy=False, buf_cache_size=4) as t:
            t.add_malloc("M0")
            t.add_ns("M0", nsid=1)
            with Host(t, "-w", "read", "-o", "128k", "--ios", "300", "-q", "16", nsid=1) as h:
                result = h.result()
                check(result["errors"] == 0 and result["read"]["ios"] == 300, result)
            t.wait_empty()
            retry = stats(t, "nvmf_RDMA")["small_pool"]["retry"]
            told = sum(x["pending_data_buffer"] for g in t.call("nvmf_get_stats")["poll_groups"] for x in g["transports"])
            check(retry > 0 and retry == told, f"{retry} waits, and {told} in nvmf_get_stats")
            t.stop_clean()


def test_large_units_use_the_large_buffers():
    with Target(zcopy=False, io_unit_size=131072) as t:
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        with Host(t, "-w", "read", "-o", "128k", "--ios", "100", "-q", "4", nsid=1) as h:
            check(h.result()["errors"] == 0, "the I/O")
        t.wait_empty()
        s = stats(t, "nvmf_RDMA")
        check(gets(s["large_pool"]) == 100 and gets(s["small_pool"]) > 0, s)
        t.stop_clean()


def test_transports_say_which_buffer_option_is_wrong():
    with Daemon() as d:
        for name, value, words in (("io_unit_size", 0, ["1 to 135168"]), ("io_unit_size", 135169, ["1 to 135168"]),
                                   ("num_shared_buffers", 0, ["1 to"])):
            code = fails(d, [name, value, *words], "nvmf_create_transport", trtype="RDMA", **{name: value})
            check(code == -32602, code)


def test_a_transport_with_too_few_buffers_is_not_made_and_may_be_tried_again():
    with Daemon() as other, Daemon("-c", config_file(other, small_pool_count=64), env=preload()) as d:
        fails(d, ["RDMA", "data buffers of 8192 bytes", "small_pool_count"], "nvmf_create_transport", trtype="RDMA", max_io_size=1048576)
        check(d.call("nvmf_get_transports") == [], "what failed is not there")
        check(d.call("nvmf_create_transport", trtype="RDMA", max_io_size=16384) is True, "the second try")
        check(d.stop() == 0, d.log())


def test_transport_cache_sizes_are_kept():
    with Target(buf_cache_size=7, iobuf_large_cache_size=3) as t:
        o = t.call("nvmf_get_transports")[0]
        check((o["buf_cache_size"], o["iobuf_small_cache_size"], o["iobuf_large_cache_size"]) == (7, 7, 3), o)


if __name__ == "__main__":
    main(sys.modules[__name__])
