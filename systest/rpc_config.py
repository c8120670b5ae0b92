#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 180
# sanitize
# beside
"""The JSON configuration, varve-rpc, and that the documentation knows every method."""
import json
import os
import stat
import subprocess
import sys

from appliance_lib import TOP, DEADLINE, VARVE, VARVE_RPC, Daemon, check, main, wait_for
from stock_lib import check_stock_takes


def write_config(folder, entries, subsystem="bdev"):
    path = folder / "config.json"
    path.write_text(json.dumps({"subsystems": [{"subsystem": subsystem, "config": entries}]}))
    return path


# One entry per kind of state that can be saved, as far as this build has the methods.
ENTRIES = [
    {"method": "bdev_malloc_create", "params": {"name": "Malloc0", "num_blocks": 2048, "block_size": 512,
                                                "uuid": "11111111-2222-3333-4444-555555555555"}},
    {"method": "bdev_malloc_create", "params": {"name": "Malloc1", "num_blocks": 256, "block_size": 4096}},
    {"method": "bdev_null_create", "params": {"name": "Null0", "num_blocks": 1 << 30, "block_size": 4096}},
    {"method": "bdev_delay_create", "params": {"base_bdev_name": "Null0", "name": "Delay0", "avg_read_latency": 10,
                                               "p99_read_latency": 20, "avg_write_latency": 30, "p99_write_latency": 40}},
    {"method": "bdev_error_create", "params": {"base_name": "Malloc1"}},
    {"method": "bdev_set_qos_limit", "params": {"name": "Malloc0", "rw_ios_per_sec": 20000}},
]


def fill(daemon):
    methods = set(daemon.call("rpc_get_methods"))
    for e in ENTRIES:
        if e["method"] in methods:
            daemon.call(e["method"], **e["params"])


def save(daemon):
    status, out, err = daemon.rpc("save_config")
    check(status == 0, err)
    return out


def test_saving_loading_and_saving_gives_the_same_bytes():
    with Daemon() as a:
        fill(a)
        first = save(a)
    with Daemon("-c", "/dev/null", ready=False) as none:
        check(none.wait_exit() == 1, "an empty configuration is no configuration")
    with Daemon("--wait-for-rpc", ready=False) as b:
        wait_for(b.connect, "the RPC socket").close()
        status, _, err = b.rpc("load_config", input=first)
        check(status == 0, err)
        check(save(b) == first, f"load_config: {first}\n{save(b)}")
        path = b.folder / "saved.json"
        check(b.rpc("save_config", str(path))[0] == 0 and path.read_text() == first, "save_config FILE")
        with Daemon("-c", path) as c:
            check(save(c) == first, f"-c: {first}\n{save(c)}")


def test_options_set_before_the_start_come_over_those_of_the_file():
    with Daemon() as holder:
        path = write_config(holder.folder, [{"method": "bdev_set_options", "params": {"nomem_timeout_ms": 1234}},
                                            {"method": "iobuf_set_options", "params": {"small_pool_count": 3000}},
                                            {"method": "log_set_level", "params": {"level": "INFO"}},
                                            {"method": "bdev_null_create", "params": {"name": "N", "num_blocks": 8, "block_size": 512}}])
        with Daemon("-c", path, "--wait-for-rpc", ready=False) as d:
            c = wait_for(d.connect, "the RPC socket")
            check(c.call("log_get_level") == "INFO", "the file's options are there when clients are")
            c.call("bdev_set_options", nomem_timeout_ms=777)
            c.call("log_set_level", level="ERROR")
            check(c.call("framework_start_init") is True, "start_init")
            [bdev] = [e["params"] for e in d.call("framework_get_config", name="bdev") if e["method"] == "bdev_set_options"]
            check(bdev["nomem_timeout_ms"] == 777 and c.call("log_get_level") == "ERROR", bdev)
            [iobuf] = [e["params"] for e in d.call("framework_get_config", name="iobuf")]
            check(iobuf["small_pool_count"] == 3000, iobuf)
            check([b["name"] for b in c.call("bdev_get_bdevs")] == ["N"], "the file's bdev")


def test_saving_takes_the_place_of_files_and_of_nothing_else():
    with Daemon() as d:
        text, real, link, fifo = save(d), d.folder / "real.json", d.folder / "link.json", d.folder / "fifo"
        real.write_text("old")
        real.chmod(0o640)
        link.symlink_to("real.json")
        status, _, err = d.rpc("save_config", str(link))
        check(status == 0 and link.is_symlink() and real.read_text() == text, err)
        check(stat.S_IMODE(real.stat().st_mode) == 0o640, oct(real.stat().st_mode))
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDWR)  # holds what is written
        status, _, err = d.rpc("save_config", str(fifo))
        check(status == 0 and fifo.is_fifo() and os.read(reader, 1 << 20).decode() == text, err)
        os.close(reader)
        check(d.rpc("save_config", "/dev/stdout") == (0, text, ""), "to a pipe by name")
        behind = d.folder / "behind"
        behind.write_text("what was there\n")
        with open(behind, "a", encoding="utf-8") as f:
            subprocess.run([VARVE_RPC, "-s", d.path, "save_config", "/dev/stdout"], stdout=f, timeout=DEADLINE, check=True)
        check(behind.read_text() == "what was there\n" + text, "to a file by that name")
        (d.folder / "void").symlink_to("nowhere/at/all")
        for path in ("void", "nowhere/file", "."):
            status, _, err = d.rpc("save_config", str(d.folder / path))
            check(status == 4 and str(d.folder / path) in err, err)
        check((d.folder / "void").is_symlink(), "a link that leads nowhere was replaced")
        check(sorted(p.name for p in d.folder.glob("*json*")) == ["link.json", "real.json"], "something is left beside the file")


def test_loading_into_a_running_daemon_leaves_out_what_is_for_the_start():
    with Daemon() as a:
        config = json.loads(save(a))
        entries = [e["method"] for s in config["subsystems"] for e in s["config"]]
        late = set(entries) & (set(a.call("rpc_get_methods")) - set(a.call("rpc_get_methods", current=True)))
        check(late, entries)
        status, _, err = a.rpc("load_config", input=json.dumps(config))
        check(status == 0, err)
        for method in late:
            check(f'left out "{method}"' in err, err)
        config["subsystems"].append({"subsystem": "x", "config": [{"method": "nosuch", "params": {}}]})
        status, _, err = a.rpc("load_config", input=json.dumps(config))
        check(status == 1 and 'no method "nosuch"' in err, err)


def test_the_saved_form_is_the_stock_one():
    with Daemon() as d:
        fill(d)
        saved = json.loads(save(d))
        names = [s["subsystem"] for s in d.call("framework_get_subsystems")]
        check([s["subsystem"] for s in saved["subsystems"]] == names, "all subsystems, in their order")
        for s in saved["subsystems"]:
            whole = d.call("framework_get_config", name=s["subsystem"], whole=True)
            check([e["method"] for e in s["config"]] == [e["method"] for e in whole], s["subsystem"])
            check(all(set(e) <= {"method", "params"} for e in s["config"]), s)
            check(all(e["params"].items() <= w["params"].items() for e, w in zip(s["config"], whole) if "params" in e), s)
        own, = [s["config"] for s in saved["varve"] if s["subsystem"] == "bdev"]
        check({"nomem_timeout_ms", "split_children"} == set(own[0]["params"]), own)
        check_stock_takes(saved)
        check(d.call("framework_get_config", name=names[0], with_batches=True) ==
              d.call("framework_get_config", name=names[0]) if names else True, "with_batches")


OWN = {"bdev_delay_create": {"p999_read_latency": 9}, "bdev_set_options": {"nomem_timeout_ms": 1234, "split_children": 7},
       "bdev_set_timeout": {"name": "D", "timeout_us": 5000000}}


def test_what_is_our_own_stands_apart_and_old_files_with_it_load():
    latencies = {"avg_read_latency": 1, "p99_read_latency": 2, "avg_write_latency": 3, "p99_write_latency": 4}
    with Daemon("--wait-for-rpc", ready=False) as holder:
        old = write_config(holder.folder, [
            {"method": "bdev_set_options", "params": OWN["bdev_set_options"]},
            {"method": "bdev_null_create", "params": {"name": "N", "num_blocks": 8, "block_size": 512}},
            {"method": "bdev_delay_create", "params": {"name": "D", "base_bdev_name": "N", **latencies, **OWN["bdev_delay_create"]}},
            {"method": "bdev_set_timeout", "params": OWN["bdev_set_timeout"]}])
        with Daemon("-c", old) as d:
            calls, first = d.call("framework_get_config", name="bdev"), save(d)
        for method, params in OWN.items():
            check(any(e["method"] == method and params.items() <= e["params"].items() for e in calls), calls)
        saved = json.loads(first)
        check_stock_takes(saved)
        own = {e["method"]: e["params"] for s in saved["varve"] for e in s["config"]}
        check(own["bdev_delay_create"] == {"name": "D", **OWN["bdev_delay_create"]} and own["bdev_set_timeout"] == OWN["bdev_set_timeout"], own)
        old.write_text(first)
        with Daemon("-c", old) as d:
            check(d.call("framework_get_config", name="bdev") == calls and save(d) == first, save(d))
        with Daemon("--wait-for-rpc", ready=False) as d:
            wait_for(d.connect, "the RPC socket").close()
            status, _, err = d.rpc("load_config", input=first)
            check(status == 0 and d.call("framework_get_config", name="bdev") == calls, err)
            status, _, err = d.rpc("load_config", input='{"subsystems": [], "varve": 5}')
            check(status == 2 and '"varve" must be an array' in err, err)
        old.write_text('{"subsystems": [], "varve": [{"config": 5}]}')
        with Daemon("-c", old, ready=False) as d:
            check(d.wait_exit() == 1 and 'each element of "varve"' in d.log(), d.log())


def test_a_wrong_configuration_changes_nothing_and_names_what_is_wrong():
    for entries, words in [
            ([{"method": "nosuch"}], ["config[0]", "nosuch", "--json-ignore-init-errors"]),
            ([{"method": "log_set_level", "params": {"level": "INFO"}}, {"method": "log_set_level", "params": {"level": "X"}}],
             ["config[1]", "log_set_level", "level", "X", "WARNING"]),
            ([{"method": "log_set_flag", "params": {"flag": "nosuch"}}], ["config[0]", "log_set_flag", "nosuch"])]:
        with Daemon() as holder:
            path = write_config(holder.folder, entries)
            with Daemon("-c", path, ready=False) as d:
                check(d.wait_exit() == 1, d.log())
                check(all(w in d.log() for w in [str(path), '"bdev"', *words]), f"{words}: {d.log()}")
                check("running" not in d.log(), d.log())


def test_all_wrong_entries_are_named_at_once():
    with Daemon("--wait-for-rpc", ready=False) as holder:
        path = write_config(holder.folder, [{"method": "nosuch"}, {"method": "log_set_level", "params": {"level": "X"}}, {"method": "log_get_flags"}])
        with Daemon("-c", path, ready=False) as d:
            check(d.wait_exit() == 1 and "config[0] (nosuch)" in d.log(), d.log())
            check('config[1] (log_set_level): parameter "level" is "X"' in d.log() and "config[2]" not in d.log(), d.log())


def test_errors_in_a_configuration_can_be_ignored():
    with Daemon() as holder:
        path = write_config(holder.folder, [{"method": "nosuch"}, {"method": "log_set_level", "params": {"level": "DEBUG"}},
                                            {"method": "log_set_flag", "params": {"flag": "nosuch"}}])
        with Daemon("-c", path, "--json-ignore-init-errors") as d:
            check(d.call("log_get_level") == "DEBUG", "what is right is done")
            check("nosuch" in d.log(), "what is wrong is logged")
            check("2 of 3 entries were left out or failed" in d.log(), d.log())


def test_varve_rpc_prints_results_and_errors():
    with Daemon() as d:
        check(d.rpc("log_get_level") == (0, "DISABLED\n", ""), d.rpc("log_get_level"))
        check(d.rpc("-j", "log_get_level")[1] == '"DISABLED"\n', "-j")
        check(json.loads(d.rpc("spdk_get_version")[1])["version"].startswith("varve"), "an object")
        status, out, err = d.rpc("log_set_level", "level=LOUD")
        check(status == 1 and out == "" and "LOUD" in err and "WARNING" in err, err)
        status, _, err = d.rpc("log_set_level", "level")
        check(status == 2 and "key=value" in err, err)
        check(d.rpc("nosuch")[0] == 1, "an unknown method")
        for words in (["--list", "log"], ["--markdown", "x"], ["save_config", "a", "b"], ["load_config", "a", "b"], ["-", "x"],
                      ["log_get_level", "--help", "x"]):
            status, _, err = d.rpc(*words)
            check(status == 2 and f'"{words[-1]}" is one argument too many' in err, f"{words}: {status} {err}")
        check(d.rpc("load_config", "/no/such") == (2, "", "varve-rpc: unable to open /no/such: No such file or directory\n"), "no file")


def test_varve_rpc_knows_the_methods_from_the_daemon():
    with Daemon() as d:
        names = d.rpc("--list")[1].split()
        check(names == d.call("rpc_get_methods") and names == sorted(names), "--list")
        for name in names:
            status, out, err = d.rpc(name, "--help")
            check(status == 0 and out.startswith(name + ": "), f"{name}: {out} {err}")


def test_varve_rpc_passes_raw_json():
    with Daemon() as d:
        status, out, _ = d.rpc("-", input='{"method":"log_get_level","id":7}[{"method":"log_get_level","id":8}]')
        check(status == 0 and '"id":7' in out.splitlines()[0] and out.splitlines()[1].startswith("["), out)
        # More than the daemon takes from who takes no answers.
        status, out, err = d.rpc("-", input="".join('{"method":"rpc_get_methods","id":%d}' % n for n in range(6000)))
        check(status == 0, err)
        check([json.loads(a)["id"] for a in out.splitlines()] == list(range(6000)), "the answers")
        status, out, _ = d.rpc("-", input="nonsense" * 100000)
        check(status in (0, 3) and '"code":-32700' in out, out)


def test_varve_rpc_says_when_nobody_answers():
    p = subprocess.run([VARVE_RPC, "-s", "/no/such.sock", "log_get_level"], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 3 and "/no/such.sock" in p.stderr, p.stderr)
    with Daemon("--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        status, _, err = d.rpc("-t", "1", "framework_wait_init")
        check(status == 3 and "1 s" in err, err)


def test_every_method_and_parameter_is_documented():
    with Daemon() as d:
        for m in d.call("rpc_describe_methods"):
            page = f"bdev_modules/{m['module']}/README.md" if "module" in m else "doc/rpc.md"
            text, head = (TOP / page).read_text(), f"### {m['name']}\n"
            check(head in text, f"{m['name']} is not in {page} (tools/varve-rpc-reference.sh writes the reference)")
            section = text.split(head)[1].split("\n### ")[0]
            if "result" in m:
                check(f"Answers `{m['result']}`." in section, f"{m['name']}: the shape of its result is not that in {page}")
            for p in m["params"]:
                check(f"`{p['name']}`" in section, f"{m['name']}: parameter {p['name']} is not in {page}")


if __name__ == "__main__":
    main(sys.modules[__name__])
