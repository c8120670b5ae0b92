#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 180
# sanitize
# beside
"""The bdev_* methods: shapes of their results, errors that name what is wrong, saving and loading."""
import base64
import json
import os
import sys
import threading

from appliance_lib import Daemon, Failure, RpcError, check, main, readable, wait_for

UUID = "11111111-2222-3333-4444-555555555555"


def fails(daemon, words, method, **params):
    """The call is an error whose text has all the words."""
    try:
        result = daemon.call(method, **params)
    except RpcError as e:
        for word in words:
            check(word in e.message, f"{method}{params}: '{word}' is not in '{e.message}'")
        return e.code
    raise Failure(f"{method}{params} answered {result}")


def names(daemon):
    return [b["name"] for b in daemon.call("bdev_get_bdevs")]


def test_created_bdevs_are_listed_in_the_stock_shape():
    with Daemon() as d:
        check(d.call("bdev_malloc_create", num_blocks=2048, block_size=512, uuid=UUID) == "Malloc0", "default name")
        check(d.call("bdev_null_create", name="Null0", num_blocks=1 << 20, block_size=4096) == "Null0", "name")
        check(names(d) == ["Malloc0", "Null0"], "order")
        for key in ["Malloc0", UUID, UUID.upper()]:
            [b] = d.call("bdev_get_bdevs", name=key)
            check(b["name"] == "Malloc0", key)
        expected = {"name": "Malloc0", "aliases": [], "product_name": "Malloc disk", "block_size": 512, "num_blocks": 2048,
                    "uuid": UUID, "claimed": False, "zoned": False, "driver_specific": {}, "state": "ready",
                    "assigned_rate_limits": {"rw_ios_per_sec": 0, "rw_mbytes_per_sec": 0, "r_mbytes_per_sec": 0,
                                             "w_mbytes_per_sec": 0}}
        for key, value in expected.items():
            check(b[key] == value, f"{key}: {b[key]}")
        check(all(b["supported_io_types"][t] for t in ["read", "write", "unmap", "flush", "reset", "write_zeroes", "compare",
                                                       "compare_and_write", "abort", "copy", "verify",
                                                       "write_uncorrectable"]), b["supported_io_types"])
        check(not b["supported_io_types"]["nvme_admin"], "nvme_admin")
        check(d.call("bdev_malloc_delete", name="Malloc0") is True, "delete")
        check(names(d) == ["Null0"], "deleted")


def test_metadata_is_shown_and_saved():
    with Daemon() as d:
        d.call("bdev_malloc_create", name="m", num_blocks=16, block_size=4096, md_size=16, md_interleave=True, dif_type=2,
               dif_is_head_of_md=True)
        d.call("bdev_null_create", name="n", num_blocks=16, block_size=512, md_size=8)
        m, n = d.call("bdev_get_bdevs")
        for key, value in [("block_size", 4112), ("physical_block_size", 4096), ("md_size", 16), ("md_interleave", True), ("dif_type", 2),
                           ("dif_is_head_of_md", True), ("dif_pi_format", 0),
                           ("enabled_dif_check_types", {"reftag": True, "apptag": False, "guard": True})]:
            check(m[key] == value, f"{key}: {m[key]}")
        check((n["block_size"], n["md_size"], n["dif_type"]) == (520, 8, 0), n)
        check("enabled_dif_check_types" not in n, n)
        saved = {c["params"]["name"]: c["params"] for c in d.call("framework_get_config", name="bdev") if "name" in c.get("params", {})}
        check(saved["m"].items() >= {"block_size": 4096, "md_size": 16, "md_interleave": True, "dif_type": 2,
                                     "dif_is_head_of_md": True}.items(), saved)
        check(saved["n"].items() >= {"block_size": 512, "md_size": 8, "dif_type": 0}.items() and "md_interleave" not in saved["n"], saved)


def test_metadata_apart_from_the_data_is_shown_and_saved():
    wanted = [("block_size", 4096), ("physical_block_size", 4096), ("md_size", 16), ("md_interleave", False), ("dif_type", 2),
              ("dif_is_head_of_md", True), ("dif_pi_format", 0), ("enabled_dif_check_types", {"reftag": True, "apptag": False, "guard": True})]
    with Daemon() as d:
        d.call("bdev_malloc_create", name="m", num_blocks=16, block_size=4096, md_size=16, dif_type=2, dif_is_head_of_md=True)
        d.call("bdev_malloc_create", name="in the size", num_blocks=16, block_size=4112, md_size=16)
        d.call("bdev_error_create", base_name="m")
        bdevs = {b["name"]: b for b in d.call("bdev_get_bdevs")}
        for name in "m", "EE_m":    # what stands on it shows it too
            for key, value in wanted:
                check(bdevs[name][key] == value, f"{name}: {key}: {bdevs[name][key]}")
        check((bdevs["in the size"]["block_size"], bdevs["in the size"]["md_interleave"]) == (4112, True), bdevs)
        saved = {c["params"]["name"]: c["params"] for c in d.call("framework_get_config", name="bdev") if "name" in c.get("params", {})}
        check(saved["m"].items() >= {"block_size": 4096, "md_size": 16, "dif_type": 2, "dif_is_head_of_md": True}.items()
              and "md_interleave" not in saved["m"], saved)
        check(saved["in the size"].items() >= {"block_size": 4096, "md_interleave": True}.items(), saved)


def test_longer_guards_are_shown_and_saved():
    with Daemon() as d:
        made = [("bdev_malloc_create", "m1", 1), ("bdev_malloc_create", "m2", 2), ("bdev_null_create", "n1", 1), ("bdev_null_create", "n2", 2)]
        for method, name, pi_format in made:
            d.call(method, name=name, num_blocks=16, block_size=4096, md_size=16, dif_type=1, dif_pi_format=pi_format)
        d.call("bdev_malloc_create", name="unused", num_blocks=16, block_size=4096, md_size=16, dif_pi_format=2)    # there is nothing to format
        d.call("bdev_error_create", base_name="m2")
        bdevs = {b["name"]: b for b in d.call("bdev_get_bdevs")}
        for _, name, pi_format in [*made, ("", "EE_m2", 2)]:
            check((bdevs[name]["md_size"], bdevs[name]["dif_type"], bdevs[name]["dif_pi_format"]) == (16, 1, pi_format), bdevs[name])
        check("dif_pi_format" not in bdevs["unused"], bdevs["unused"])
        saved = {c["params"]["name"]: c for c in d.call("framework_get_config", name="bdev") if "name" in c.get("params", {})}
        for method, name, pi_format in made:
            check(saved[name]["method"] == method and saved[name]["params"]["dif_pi_format"] == pi_format, saved[name])


def test_errors_name_the_field_and_the_value():
    with Daemon() as d:
        fails(d, ["block_size 1000", "512"], "bdev_malloc_create", num_blocks=1, block_size=1000)
        fails(d, ["num_blocks 0"], "bdev_null_create", name="n", num_blocks=0, block_size=512)
        fails(d, ["md_size 12"], "bdev_malloc_create", num_blocks=1, block_size=512, md_size=12)
        fails(d, ["dif_pi_format 3", "must be 0"], "bdev_malloc_create", num_blocks=1, block_size=512, md_size=16, dif_type=1, dif_pi_format=3)
        fails(d, ["md_size 8", "dif_pi_format 1", "16, 32, 64"], "bdev_malloc_create", num_blocks=1, block_size=512, md_size=8, dif_type=1,
              dif_pi_format=1)
        fails(d, ["dif_type 4"], "bdev_malloc_create", num_blocks=1, block_size=512, md_size=16, dif_type=4)
        fails(d, ["dif_type 1", "md_size is 0"], "bdev_malloc_create", num_blocks=1, block_size=512, dif_type=1)
        fails(d, ["md_size 12"], "bdev_malloc_create", num_blocks=1, block_size=512, md_size=12, md_interleave=True)
        fails(d, ["md_size 70000"], "bdev_null_create", name="n", num_blocks=1, block_size=512, md_size=70000)
        fails(d, ["dif_type -1"], "bdev_null_create", name="n", num_blocks=1, block_size=512, md_size=8, dif_type=-1)
        fails(d, ["dif_type 1", "md_size is 0"], "bdev_null_create", name="n", num_blocks=1, block_size=512, dif_type=1)
        fails(d, ["dif_pi_format 256", "must be 0"], "bdev_null_create", name="n", num_blocks=1, block_size=512, md_size=16, dif_type=1,
              dif_pi_format=256)
        fails(d, ["md_size 8", "dif_pi_format 2", "16, 32, 64"], "bdev_null_create", name="n", num_blocks=1, block_size=512, md_size=8,
              dif_type=1, dif_pi_format=2)
        fails(d, ["num_blocks"], "bdev_malloc_create", num_blocks=1 << 48, block_size=512)
        fails(d, ["'nosuch'"], "bdev_get_bdevs", name="nosuch")
        fails(d, ["no such bdev"], "bdev_null_delete", name="nosuch")
        fails(d, ["the name of the base has 0 bytes"], "bdev_delay_create", name="d", base_bdev_name="", avg_read_latency=1,
              p99_read_latency=1, avg_write_latency=1, p99_write_latency=1)
        fails(d, ["/nonexistent"], "bdev_aio_create", name="a", filename="/nonexistent", block_size=512)
        d.call("bdev_null_create", name="n", num_blocks=8, block_size=512)
        fails(d, ["'n'"], "bdev_null_create", name="n", num_blocks=8, block_size=512)
        fails(d, ["rw_ios_per_sec"], "bdev_set_qos_limit", name="n")
        fails(d, ["period 5"], "bdev_set_qd_sampling_period", name="n", period=5)
        fails(d, ["opc 'x'"], "bdev_enable_histogram", name="n", enable=True, opc="x")
        fails(d, ["not enabled"], "bdev_get_histogram", name="n")
        fails(d, ["names[1]", "'x'"], "bdev_get_iostat", names=["n", "x"])
        fails(d, ["per_channel"], "bdev_get_iostat", per_channel=True)
        fails(d, ["new_size 0"], "bdev_null_resize", name="n", new_size=0)
        fails(d, ["another kind"], "bdev_malloc_delete", name="n")
        check(fails(d, ["io_type", "read"], "bdev_error_inject_error", name="n", io_type="x", error_type="failure") == -32602, "")


def test_what_would_end_or_hang_the_daemon_is_refused():
    with Daemon() as d:
        fails(d, ["num_blocks 17179869184", "8388608 MB", "available"], "bdev_malloc_create", block_size=512, num_blocks=1 << 34)
        fifo = d.folder / "fifo"
        os.mkfifo(fifo)
        for readonly in (True, False):
            fails(d, [str(fifo), "neither a regular file nor a block device"], "bdev_aio_create", name="a", filename=str(fifo),
                  block_size=512, readonly=readonly)
        fails(d, ["/dev/zero", "neither"], "bdev_uring_create", name="a", filename="/dev/zero")
        check(names(d) == [], "nothing was made")


def test_get_bdevs_waits_for_a_bdev_to_come():
    with Daemon() as d:
        check(fails(d, ["Late0"], "bdev_get_bdevs", name="Late0", timeout=50) == -19, "too late")
        answers = []
        waiter = threading.Thread(target=lambda: answers.append(d.call("bdev_get_bdevs", name="Late0", timeout=60000)))
        waiter.start()
        wait_for(lambda: d.call("bdev_null_create", name=f"Other{len(names(d))}", num_blocks=8, block_size=512), "another one")
        check(not answers, "another bdev is not the one")
        d.call("bdev_null_create", name="Late0", num_blocks=8, block_size=512)
        waiter.join(30)
        check(answers and answers[0][0]["name"] == "Late0", answers)


def test_clients_that_leave_cannot_let_calls_wait_without_end():
    with Daemon() as d:
        call = {"jsonrpc": "2.0", "method": "bdev_get_bdevs", "id": 1, "params": {"name": "late", "timeout": 86400000}}
        gone = d.connect()
        gone.send(json.dumps(call).encode() * 1024)
        wait_for(lambda: len(d.call("rpc_get_calls")) == 1024, "1024 calls to wait")
        gone.close()
        code = fails(d, ["timeout 1", "1024"], "bdev_get_bdevs", name="late", timeout=1)
        check(code == -11, code)
        check(fails(d, ["no bdev"], "bdev_get_bdevs", name="x" * 256, timeout=86400000) == -19, "no bdev has such a name")
        check(d.call("bdev_null_create", name="late", num_blocks=8, block_size=512) == "late", "others are served")
        check(d.call("rpc_get_calls") == [], "what was waited for has come")
        fails(d, ["later", "has come"], "bdev_get_bdevs", name="later", timeout=1)


def test_iostat_has_the_stock_shape():
    with Daemon() as d:
        for name in ["a", "b"]:
            d.call("bdev_null_create", name=name, num_blocks=8, block_size=512)
        stat = d.call("bdev_get_iostat")
        check(stat["tick_rate"] > 0 and stat["ticks"] > 0, stat)
        check([b["name"] for b in stat["bdevs"]] == ["a", "b"], stat)
        keys = {"name", "bytes_read", "num_read_ops", "bytes_written", "num_write_ops", "bytes_unmapped", "num_unmap_ops",
                "bytes_copied", "num_copy_ops", "io_error", "driver_specific"}
        keys |= {f"{m}{k}_latency_ticks" for m in ["", "max_", "min_"] for k in ["read", "write", "unmap", "copy"]}
        check(keys <= set(stat["bdevs"][0]), keys - set(stat["bdevs"][0]))
        check([b["name"] for b in d.call("bdev_get_iostat", names=["b"])["bdevs"]] == ["b"], "names")
        check("queue_depth" not in stat["bdevs"][0], "no sampling")
        d.call("bdev_set_qd_sampling_period", name="a", period=1000)
        one = d.call("bdev_get_iostat", names=["a"])["bdevs"][0]
        check(one["queue_depth_polling_period"] == 1000 and one["queue_depth"] == 0, one)
        check(d.call("bdev_get_iostat", names=["a"], per_channel=True)["channels"] == [], "no channels")
        check(d.call("bdev_reset_iostat", name="a", mode="maxmin") is True and d.call("bdev_reset_iostat") is True, "reset")


def under_way(daemon, method, params, meanwhile):
    """Makes the call until it has been seen under way by another client, which then calls meanwhile(). Its answer, or the error."""
    asking, looking = daemon.client(), daemon.client()

    def attempt():
        asking.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        seen = False
        while not seen and not readable(asking.sock):
            seen = any(c["method"] == method for c in looking.call("rpc_get_calls"))
        if seen:
            meanwhile()
        answer = asking.receive()
        return answer if seen else None

    return wait_for(attempt, f"{method} to be seen under way")


def test_statistics_of_many_bdevs_let_other_calls_through():
    with Daemon() as d:
        for i in range(1024):
            d.call("bdev_null_create", name=f"n{i}", num_blocks=8, block_size=512)
        for params in ({}, {"reset_mode": "all"}):
            answer = under_way(d, "bdev_get_iostat", params, lambda: None)
            check([b["name"] for b in answer["result"]["bdevs"]] == names(d), "all of them, in their order")
        check(d.call("bdev_reset_iostat") is True, "reset")       # too short to be seen under way


def test_a_bdev_that_is_deleted_during_the_statistics():
    with Daemon() as d:
        asked = [f"n{i}" for i in range(1023)] + ["last"]
        for name in asked[:-1]:
            d.call("bdev_null_create", name=name, num_blocks=8, block_size=512)

        def ask(params, is_late):
            """An answer for which the bdev was deleted in time; None if it came too late."""
            d.call("bdev_null_create", name="last", num_blocks=8, block_size=512)
            answer = under_way(d, "bdev_get_iostat", params, lambda: d.call("bdev_null_delete", name="last"))
            return None if is_late(answer) else answer

        error = wait_for(lambda: ask({"names": asked}, lambda answer: "result" in answer), "one that is missed")["error"]
        check(error["code"] == -19 and "names[1023]" in error["message"] and "'last' was deleted" in error["message"], error)
        answer = wait_for(lambda: ask({}, lambda answer: answer["result"]["bdevs"][-1]["name"] == "last"), "one that is left out")
        check([b["name"] for b in answer["result"]["bdevs"]] == asked[:-1], "all others")
        is_late = lambda answer: answer["result"]["bdevs"][-1]["name"] == "last"
        answer = wait_for(lambda: ask({"names": asked, "reset_mode": "all"}, is_late), "one that is left out of a reset")
        check([b["name"] for b in answer["result"]["bdevs"]] == asked[:-1], "what was set back is told")


def test_a_call_behind_the_statistics_waits_for_them():
    with Daemon() as d:
        for i in range(1000):
            d.call("bdev_null_create", name=f"n{i}", num_blocks=8, block_size=512)
        c = d.client()
        calls = [("bdev_get_iostat", {}), ("bdev_null_delete", {"name": "n999"})]
        c.send(json.dumps([{"jsonrpc": "2.0", "id": i, "method": m, "params": p} for i, (m, p) in enumerate(calls)]).encode())
        first, second = sorted(c.receive(), key=lambda a: a["id"])
        check(len(first["result"]["bdevs"]) == 1000 and second["result"] is True, "the bdev was there when it was asked for")


def test_a_bdev_that_is_used_is_kept_if_the_client_asks():
    with Daemon() as d:
        d.call("bdev_null_create", name="base", num_blocks=8, block_size=512)
        d.call("bdev_delay_create", name="top", base_bdev_name="base", avg_read_latency=0, p99_read_latency=0, avg_write_latency=0,
               p99_write_latency=0)
        check(fails(d, ["name 'base'", "top uses it", "force is false"], "bdev_null_delete", name="base", force=False) == -16, "its code")
        check(names(d) == ["base", "top"], "both are there")
        check(d.call("bdev_delay_delete", name="top", force=False) is True, "nobody uses that one")
        d.call("bdev_delay_create", name="top", base_bdev_name="base", avg_read_latency=0, p99_read_latency=0, avg_write_latency=0,
               p99_write_latency=0)
        check(d.call("bdev_null_delete", name="base") is True and names(d) == [], "as SPDK's targets do")
        check(fails(d, ["no such bdev"], "bdev_null_delete", name="base", force=False) == -19, "none")


def test_histogram_can_be_decoded():
    with Daemon() as d:
        d.call("bdev_null_create", name="a", num_blocks=8, block_size=512)
        d.call("bdev_enable_histogram", name="a", enable=True)
        h = d.call("bdev_get_histogram", name="a")
        buckets = base64.b64decode(h["histogram"])
        check(h["granularity"] == 7 and h["min_range"] == 0 and h["max_range"] == 58 and h["tsc_rate"] > 0, h["max_range"])
        check(len(buckets) == 8 * ((h["max_range"] - h["min_range"]) << h["granularity"]), len(buckets))
        borders = d.call("bdev_get_histogram_borders", name="a", borders=[1000, 2000])
        check(borders == {"borders": [1000, 2000], "borders_count": [0, 0, 0]}, borders)
        fails(d, ["borders[1]"], "bdev_get_histogram_borders", name="a", borders=[2, 1])
        fails(d, ["borders[0]", "86400000000"], "bdev_get_histogram_borders", name="a", borders=[86400000001])
        d.call("bdev_enable_histogram", name="a", enable=False)
        fails(d, ["not enabled"], "bdev_get_histogram", name="a")


def test_stacks_go_with_their_base_and_say_who_claims_it():
    with Daemon() as d:
        d.call("bdev_malloc_create", name="m", num_blocks=8, block_size=512)
        check(d.call("bdev_error_create", base_name="m") == "EE_m", "name")
        d.call("bdev_delay_create", name="d", base_bdev_name="EE_m", avg_read_latency=1, p99_read_latency=2,
               avg_write_latency=3, p99_write_latency=4)
        [m] = d.call("bdev_get_bdevs", name="m")
        check(m["claimed"] and m["claim_type"] == "exclusive_write" and m["claimed_by"] == "EE_m", m)
        [delay] = d.call("bdev_get_bdevs", name="d")
        check(delay["driver_specific"]["delay"]["base_bdev_name"] == "EE_m", delay["driver_specific"])
        check(d.call("bdev_delay_update_latency", delay_bdev_name="d", latency_type="p99_read", latency_us=9) is True, "update")
        # One by one, the averages first, as stock scripts do.
        for kind in ("avg_read", "avg_write", "p99_read", "p99_write"):
            check(d.call("bdev_delay_update_latency", delay_bdev_name="d", latency_type=kind, latency_us=31000000) is True, kind)
        fails(d, ["p99_read_latency 3600000001"], "bdev_delay_update_latency", delay_bdev_name="d", latency_type="p99_read",
              latency_us=3600000001)
        check(d.call("bdev_error_inject_error", name="EE_m", io_type="all", error_type="failure", num=3) is True, "inject")
        check(d.call("bdev_error_inject_error", name="EE_m", io_type="clear", error_type="failure") is True, "clear")
        check(d.call("bdev_error_resume_pending", name="EE_m") is True, "resume")
        check(d.call("bdev_get_inflight", name="d") == [{"name": "d", "inflight": []}], "inflight")
        check(d.call("bdev_malloc_delete", name="m") is True and names(d) == [], names(d))


def test_files_are_bdevs_under_both_names():
    with Daemon() as d:
        path = d.folder / "disk"
        path.write_bytes(bytes(1 << 20))
        d.call("bdev_aio_create", name="a", filename=str(path), block_size=4096, readonly=True)
        [a] = d.call("bdev_get_bdevs", name="a")
        check(a["product_name"] == "AIO disk" and a["num_blocks"] == 256, a)
        check(a["driver_specific"]["aio"]["filename"] == str(path) and a["driver_specific"]["aio"]["readonly"], a)
        with open(path, "ab") as f:
            f.truncate(2 << 20)
        check(d.call("bdev_aio_rescan", name="a") is True, "rescan")
        check(d.call("bdev_get_bdevs", name="a")[0]["num_blocks"] == 512, "rescanned")
        fails(d, ["uring"], "bdev_uring_rescan", name="a")
        fails(d, [str(path), "in use by bdev 'a' of this process"], "bdev_uring_create", name="u", filename=str(path))
        d.call("bdev_uring_create", name="u", filename=str(path), shared=True)
        check(d.call("bdev_get_bdevs", name="u")[0]["product_name"] == "URING bdev", "uring")
        check(d.call("bdev_uring_delete", name="u") is True and d.call("bdev_aio_delete", name="a") is True, "delete")


def test_a_file_has_one_owner():
    with Daemon() as d, Daemon() as e:
        path, other = d.folder / "disk", d.folder / "other"
        path.write_bytes(bytes(1 << 20))
        other.hardlink_to(path)
        create = {"name": "u", "filename": str(path), "block_size": 512}
        d.call("bdev_uring_create", **create)
        fails(e, [str(other), f"in use by process {d.pid} (varve", "bdev 'u'"], "bdev_uring_create", **{**create, "filename": str(other)})
        fails(e, [str(path), f"process {d.pid}"], "bdev_aio_create", **create, readonly=True)
        check(d.call("bdev_uring_delete", name="u") is True, "delete")
        d.call("bdev_uring_create", **create, shared=True)
        check(d.call("bdev_get_bdevs", name="u")[0]["driver_specific"]["uring"]["shared"], "shared is shown")
        fails(e, [f"process {d.pid}", "shared there"], "bdev_uring_create", **create)
        e.call("bdev_uring_create", **create, shared=True)
        check(d.call("bdev_uring_delete", name="u") is True, "delete")
        fails(d, [f"process {e.pid}"], "bdev_uring_create", **create)
        relative = os.path.relpath(path.resolve(), os.readlink(f"/proc/{e.pid}/cwd"))
        e.call("bdev_uring_create", name="r", filename=relative, block_size=512, shared=True)
        check(e.call("bdev_get_bdevs", name="r")[0]["driver_specific"]["uring"]["filename"] == str(path.resolve()), "a relative name is made absolute")


def test_everything_that_can_be_set_is_saved():
    with Daemon() as d:
        path = d.folder / "disk"
        path.write_bytes(bytes(1 << 20))
        d.call("bdev_set_options", bdev_io_pool_size=1000, nomem_timeout_ms=700)
        d.call("bdev_malloc_create", name="m", num_blocks=64, block_size=512, uuid=UUID, optimal_io_boundary=8)
        d.call("bdev_null_create", name="n", num_blocks=64, block_size=4096, preferred_write_granularity=4)
        d.call("bdev_error_create", base_name="m")
        d.call("bdev_delay_create", name="d", base_bdev_name="n", avg_read_latency=1, p99_read_latency=2,
               avg_write_latency=3, p99_write_latency=4)
        d.call("bdev_aio_create", name="a", filename=str(path), block_size=512, readonly=True)
        d.call("bdev_uring_create", name="u", filename=str(path), fallocate=True, shared=True)
        d.call("bdev_set_qos_limit", name="m", rw_ios_per_sec=5000, r_mbytes_per_sec=7)
        for name in ("idle", "busy"):
            d.call("bdev_qos_group_create", name=name)
        d.call("bdev_qos_group_set_limit", name="busy", rw_ios_per_sec=1000, w_mbytes_per_sec=3, burst_ms=70)
        d.call("bdev_set_qos_group", name="m", group="busy", min_rw_ios_per_sec=600, min_r_mbytes_per_sec=9)
        d.call("bdev_set_qos_group", name="n", group="busy", min_rw_ios_per_sec=400)
        d.call("bdev_set_qd_sampling_period", name="m", period=5000)
        d.call("bdev_set_timeout", name="m", timeout_us=30000000)
        d.call("bdev_enable_histogram", name="m", enable=True, opc="read", granularity=5, min_nsec=1000, max_nsec=10**9)
        first = d.call("framework_get_config", name="bdev")
        config = d.folder / "config.json"
        config.write_text(json.dumps({"subsystems": [{"subsystem": "bdev", "config": first}]}))
        with Daemon("-c", config) as e:
            second = e.call("framework_get_config", name="bdev")
            check(first == second, f"{first}\n{second}")
            check(names(e) == names(d), "names")
        methods = [m["method"] for m in first]
        check(methods[0] == "bdev_set_options" and methods[-1] == "bdev_wait_for_examine", methods)


def test_comings_and_goings_are_notified():
    with Daemon() as d:
        check({"bdev_register", "bdev_unregister"} <= set(d.call("notify_get_types")), "types")
        d.call("bdev_null_create", name="n", num_blocks=8, block_size=512)
        d.call("bdev_null_delete", name="n")
        events = [(e["type"], e["ctx"]) for e in d.call("notify_get_notifications", id=0, max=100) if e["type"].startswith("bdev_")]
        check(events == [("bdev_register", "n"), ("bdev_unregister", "n")], events)


if __name__ == "__main__":
    main(sys.modules[__name__])
