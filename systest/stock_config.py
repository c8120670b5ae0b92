#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 120
# sanitize
# beside
"""A configuration that an SPDK target of 26.09-pre saved, stock_config.json: varve loads it, has the same node, and saves the same calls."""
import json
import re
import sys

from appliance_lib import DEADLINE, TOP, Daemon, check, main, wait_for
from nvmf_lib import PORT, preload
from stock_lib import check_stock_takes

NO_EFFECT = {"accel_set_options", "bdev_raid_set_options"}
NQN = "nqn.2016-06.io.spdk:cnode1"


def stock_file(folder, keep=lambda entry: True):
    """The file with addresses of this machine, of the entries that are to be kept: its tree and its path."""
    tree = json.loads((TOP / "systest/stock_config.json").read_text())
    with open(folder / "aio.img", "wb") as f:
        f.truncate(16 << 20)
    for section in tree["subsystems"]:
        section["config"] = [e for e in section["config"] if keep(e)]
        for e in section["config"]:
            params = e.get("params", {})
            if "filename" in params:
                params["filename"] = str(folder / "aio.img")
            if "listen_address" in params:
                params["listen_address"]["trsvcid"] = str(PORT)
    path = folder / "stock.json"
    path.write_text(json.dumps(tree))
    return tree, path


def entries_of(tree):
    return [(e["method"], e.get("params", {})) for s in tree["subsystems"] for e in s["config"]]


def target(path, *options):
    return Daemon("-s", "512", "-c", path, *options, env=preload())


def is_default(key, value):
    """Whether a call means the same without this parameter."""
    if isinstance(value, dict):
        return not any(value.values())
    return value in (0, -1, []) or (key, value) in {("dup_host_policy", "allow"), ("delay_cmd_submit", True)}


def is_same(method, key, given, now):
    if method == "bdev_malloc_create" and key == "block_size":      # SPDK saves that of data and metadata
        return given - given % 512 == now
    if isinstance(given, dict):
        return all(now.get(k) == v for k, v in given.items())
    return given == now


def check_saved(entries, saved):
    """Each call of the file is in what was saved, with the same values."""
    for method, params in entries:
        if method in NO_EFFECT or method == "bdev_nvme_set_hotplug" and not params["enable"]:
            continue
        same = [p for m, p in saved if m == method and all(p.get(k) == params.get(k) for k in ("name", "base_name", "nqn", "impl_name"))]
        check(len(same) == 1, f"{method} {params}: saved are {same}")
        for key, value in params.items():
            now = same[0].get(key)
            check(is_default(key, value) if now is None else is_same(method, key, value, now), f"{method}: {key} is {now}, the file has {value}")


def check_bdevs(d, entries):
    made = {b["name"]: b for b in d.call("bdev_get_bdevs")}
    wanted = {p.get("name") or f"EE_{p['base_name']}": p for m, p in entries if re.fullmatch("bdev_.*_create", m)}
    check(set(made) == set(wanted), f"{sorted(made)} are there, the file makes {sorted(wanted)}")
    for name, params in wanted.items():
        for key in ("uuid", "num_blocks", "block_size", "physical_block_size"):
            check(key not in params or made[name][key] == params[key], f"{name}: {key} is {made[name][key]}")
        for key in ("md_size", "dif_type"):
            check(made[name].get(key, 0) == params.get(key, 0), f"{name}: {key} is {made[name].get(key)}")
        if params.get("md_size", 0):    # SPDK does not save md_interleave: the size tells it
            check(made[name]["md_interleave"] is (params["block_size"] % 512 != 0), f"{name}: {made[name]}")


def check_target(d, entries):
    [subsystem] = [s for s in d.call("nvmf_get_subsystems") if s["nqn"] == NQN]
    given = {m: p for m, p in entries if p.get("nqn") == NQN}
    for key in ("serial_number", "model_number", "max_namespaces", "min_cntlid", "max_cntlid", "allow_any_host"):
        check(subsystem[key] == given["nvmf_create_subsystem"][key], f"{key}: {subsystem}")
    check([h["nqn"] for h in subsystem["hosts"]] == [given["nvmf_subsystem_add_host"]["host"]], subsystem)
    [namespace], wanted = subsystem["namespaces"], given["nvmf_subsystem_add_ns"]["namespace"]
    check(all(namespace[k] == wanted[k] for k in ("nsid", "bdev_name", "nguid", "uuid", "anagrpid")), namespace)
    [listener], wanted = subsystem["listen_addresses"], given["nvmf_subsystem_add_listener"]["listen_address"]
    check(all(listener[k] == v for k, v in wanted.items()), listener)
    [referral] = d.call("nvmf_discovery_get_referrals")
    check(referral["address"]["traddr"] == "192.0.2.8" and referral["address"]["trsvcid"] == "8009", referral)


def test_a_file_of_spdk_gives_the_same_node_and_is_saved_again():
    with Daemon("--wait-for-rpc", ready=False) as holder:
        tree, path = stock_file(holder.folder)
        entries = entries_of(tree)
        with target(path) as d:
            check_bdevs(d, entries)
            check_target(d, entries)
            for method in NO_EFFECT:
                check(d.log().count(f"{method} is taken without effect") == 1, f"{method}: {d.log()}")
            status, first, err = d.rpc("save_config")
            check(status == 0, err)
        check_saved(entries, entries_of(json.loads(first)))
        check_stock_takes(json.loads(first))
        path.write_text(first)
        with target(path) as d:
            check_bdevs(d, entries)
            check_target(d, entries)
            check(d.rpc("save_config")[1] == first, "what was saved and loaded is saved as it was")


def test_options_that_a_client_sets_before_the_start_come_over_those_of_the_file():
    with Daemon("--wait-for-rpc", ready=False) as holder:
        _, path = stock_file(holder.folder)
        with Daemon("-s", "512", "-c", path, "--wait-for-rpc", ready=False, env=preload()) as d:
            c = wait_for(d.connect, "the RPC socket")
            c.call("bdev_nvme_set_options", bdev_retry_count=7)     # in the file it stands behind bdevs
            c.call("bdev_set_options", iobuf_small_cache_size=31)
            c.call("framework_start_init")
            options = {e["method"]: e["params"] for e in d.call("framework_get_config", name="bdev") if e["method"].endswith("_set_options")}
            check(options["bdev_nvme_set_options"]["bdev_retry_count"] == 7, options)
            check(options["bdev_set_options"]["iobuf_small_cache_size"] == 31, options)
            check(options["bdev_nvme_set_options"]["keep_alive_timeout_ms"] == 10000, "the others are those of the file")


def test_a_batch_in_a_file_is_loaded_in_its_order():
    null = [{"method": "bdev_null_create", "params": {"name": f"N{n}", "num_blocks": 8, "block_size": 512}} for n in range(4)]
    text = json.dumps({"subsystems": [{"subsystem": "bdev", "config": [null[0], [null[1], null[2]], null[3]]}]})
    with Daemon() as d:
        check(d.rpc("load_config", input=text)[0] == 0, "load_config")
        names = [b["name"] for b in d.call("bdev_get_bdevs")]
        path = d.folder / "batch.json"
        path.write_text(text)
        with Daemon("-c", path) as other:
            check(names == ["N0", "N1", "N2", "N3"] == [b["name"] for b in other.call("bdev_get_bdevs")], names)


def test_what_cannot_be_made_is_named_and_costs_nothing_else():
    with Daemon("--wait-for-rpc", ready=False) as holder:
        tree, path = stock_file(holder.folder)
        bdevs = next(s["config"] for s in tree["subsystems"] if s["subsystem"] == "bdev")
        [at] = [i for i, e in enumerate(bdevs) if e.get("params", {}).get("name") == "M3"]
        bdevs[at]["params"]["dif_pi_format"] = 3
        path.write_text(json.dumps(tree))
        with target(path, "--json-ignore-init-errors") as d:
            entries = [e for e in entries_of(tree) if e[1].get("name") != "M3"]
            check_bdevs(d, entries)
            check_target(d, entries)
            check(re.search(rf'subsystem "bdev", config\[{at}\] \(bdev_malloc_create\): .*dif_pi_format 3', d.log()), d.log())
            check(f"1 of {len(entries) + 1} entries were left out or failed" in d.log(), d.log())


def test_a_subsystem_that_is_refused_is_named_and_so_is_what_it_takes_along():
    """For a parameter that is refused before anything is called, and for one that is refused by the call."""
    for wrong, reason in (({"passthrough": True}, 'parameter "passthrough" is true'), ({"min_cntlid": 9, "max_cntlid": 8}, "Invalid cntlid range")):
        with Daemon("--wait-for-rpc", ready=False) as holder:
            tree, path = stock_file(holder.folder)
            entries = next(s["config"] for s in tree["subsystems"] if s["subsystem"] == "nvmf")
            with_it = [i for i, e in enumerate(entries) if e.get("params", {}).get("nqn") == NQN]
            made = with_it[0]
            check(entries[made]["method"] == "nvmf_create_subsystem" and len(with_it) == 4, f"the file has it, a host, a namespace and a listener: {entries}")
            entries[made]["params"].update(wrong)
            path.write_text(json.dumps(tree))
            with target(path, "--json-ignore-init-errors") as d:
                check([s["subtype"] for s in d.call("nvmf_get_subsystems")] == ["Discovery"], "nothing of it is there")
                check(re.search(rf'subsystem "nvmf", config\[{made}\] \(nvmf_create_subsystem\): .*{re.escape(reason)}', d.log()), d.log())
                for i in with_it[1:]:
                    check(re.search(rf'subsystem "nvmf", config\[{i}\] \({entries[i]["method"]}\): .*"nqn" is "{re.escape(NQN)}": there is no such subsystem', d.log()), d.log())
                check(f"4 of {len(entries_of(tree))} entries were left out or failed" in d.log(), d.log())
                told = [n["ctx"] for n in d.call("notify_get_notifications", all=True) if n["type"] == "config_refused"]
                check(told == [entries[i]["method"] for i in with_it], told)
                check_bdevs(d, entries_of(tree))
            with Daemon("-s", "512", "-c", path, ready=False, env=preload()) as d:      # without the option nothing is started
                check(d.process.wait(DEADLINE) == 1 and reason in d.log(), d.log())


def test_delay_and_error_bdevs_may_come_before_their_base():
    with Daemon() as d:
        late = {"name": "D", "base_bdev_name": "B", "avg_read_latency": 1, "p99_read_latency": 2, "avg_write_latency": 3, "p99_write_latency": 4}
        check(d.call("bdev_delay_create", **late) == "D" and d.call("bdev_error_create", base_name="D") == "EE_D", "asked for")
        waiting = [{"name": "D", "base_bdev_name": "B", "module": "delay"}, {"name": "EE_D", "base_bdev_name": "D", "module": "error"}]
        check(d.call("bdev_get_waiting") == waiting and not d.call("bdev_get_bdevs"), d.call("bdev_get_waiting"))
        status, first, err = d.rpc("save_config")
        calls = [e for e in entries_of(json.loads(first)) if e[0] in ("bdev_delay_create", "bdev_error_create")]
        check(status == 0 and calls == [("bdev_delay_create", late), ("bdev_error_create", {"base_name": "D"})], f"{calls} {err}")
        path = d.folder / "waiting.json"
        path.write_text(first)
        with Daemon("-c", path) as again:
            check(again.rpc("save_config")[1] == first and again.call("bdev_get_waiting") == waiting, "they wait again")
            again.call("bdev_error_delete", name="EE_D")
            check(again.call("bdev_get_waiting") == waiting[:1], "one is deleted")
        d.call("bdev_null_create", name="B", num_blocks=8, block_size=512)
        check([b["name"] for b in d.call("bdev_get_bdevs")] == ["B", "D", "EE_D"] and not d.call("bdev_get_waiting"), "all come")
        uuid = d.call("bdev_get_bdevs", name="EE_D")[0]["uuid"]
        d.call("bdev_null_delete", name="B")
        wait_for(lambda: d.call("bdev_get_waiting") == waiting, "the stack to go")
        d.call("bdev_null_create", name="B", num_blocks=8, block_size=512)
        check(d.call("bdev_get_bdevs", name="EE_D")[0]["uuid"] == uuid, "it comes back as it was")
        check(d.stop() == 0 and d.log().count("waits for its base") == 4, f"what ends with varve waits for nothing: {d.log()}")


def test_what_could_not_be_made_is_not_saved():
    late = {"avg_read_latency": 1, "p99_read_latency": 2, "avg_write_latency": 3, "p99_write_latency": 4}
    with Daemon() as d:
        for name in ("D0", "D1", "D2"):
            d.call("bdev_delay_create", name=name, base_bdev_name="C" if name == "D2" else "B", **late)
        d.call("bdev_null_create", name="D2", num_blocks=8, block_size=512)
        d.call("bdev_null_create", name="B", num_blocks=8, block_size=512)
        check([w["name"] for w in d.call("bdev_get_waiting")] == ["D2", "D1"] and "D1: its base B is there, but" in d.log(), d.log())
        status, first, err = d.rpc("save_config")
        check(status == 0, err)
        path = d.folder / "saved.json"
        path.write_text(first)
        with Daemon("-c", path) as again:       # a call that is refused would end it
            check({b["name"] for b in again.call("bdev_get_bdevs")} == {"D0", "D2", "B"} and not again.call("bdev_get_waiting"), first)
            check(again.rpc("save_config")[1] == first, "the same again")


if __name__ == "__main__":
    main(sys.modules[__name__])
