#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# sanitize
# beside
"""varve-ctl: short words for what people do all day; each may be repeated, and a failure half-way leaves nothing behind."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from appliance_lib import BUILD, DEADLINE, TOP, VARVE_RPC, Daemon, RpcError, check, main, wait_for
from auth import secret
from nvmf_lib import ADDRESS, NUM_CPUS, PERF, PORT, preload
from stock_lib import check_stock_takes

CTL = BUILD / "bin/varve-ctl"
sys.path.insert(0, str(BUILD / "tools/ctl"))
from varve_ctl import client, config, main as ctl_main, serve, status  # noqa: E402


class Ctl(Daemon):
    def __init__(self, *options):
        super().__init__(*options, env=preload())

    def ctl(self, *words, status=0, cwd=None):
        p = subprocess.run([CTL, "-s", self.path, *map(str, words)], capture_output=True, text=True, timeout=2 * DEADLINE, stdin=subprocess.DEVNULL,
                           cwd=cwd or self.folder)
        check(p.returncode == status and "Traceback" not in p.stderr, f"{words}: {p.returncode}: {p.stdout}{p.stderr}\n{self.log()[-2000:]}")
        return p.stdout, p.stderr

    def everything(self):
        return {s["subsystem"]: self.call("framework_get_config", name=s["subsystem"], whole=True) for s in self.call("framework_get_subsystems")}


WHERE = f"{ADDRESS}:{PORT}"


def test_a_file_is_served_in_one_word_and_taken_back_in_another():
    for transport in ("--tcp", "--rdma"):
        with Ctl() as d:
            out, err = d.ctl("-v", "serve", "disk.img", "--size", "32M", transport, "--address", WHERE)
            check("disk is served as nqn.2026-11.io.varve:disk" in out and "varve-rpc bdev_uring_create name=disk" in err, f"{out}{err}")
            check((d.folder / "disk.img").stat().st_size == 32 << 20, "the file")
            command = next(line for line in out.splitlines() if "varve-perf" in line).split("'")[1]
            p = subprocess.run([PERF, "--no-huge", "-m", f"[{NUM_CPUS - 1}]", "-r", command, "-w", "randrw", "--verify", "--ios", "2000"],
                               capture_output=True, text=True, timeout=2 * DEADLINE, env={**os.environ, **preload()}, stdin=subprocess.DEVNULL)
            check(p.returncode == 0 and "0 miscompares" in p.stdout, f"{p.stdout}{p.stderr}")
            before = d.everything()
            out, err = d.ctl("-v", "serve", d.folder / "disk.img", transport, "--address", WHERE)
            check("already served" in out and err == "" and d.everything() == before, f"{out}{err}")
            wait_for(lambda: d.call("nvmf_subsystem_get_controllers", nqn="nqn.2026-11.io.varve:disk") == [], "the host to go")
            out, _ = d.ctl("unserve", "disk.img")
            check("removed: subsystem" in out and "its file stays" in out and (d.folder / "disk.img").exists(), out)
            check(d.call("bdev_get_bdevs") == [] and "is not served" in d.ctl("unserve", "disk.img")[0], "unserved twice")


def test_the_page_shows_what_is_printed():
    section = (TOP / "README.md").read_text().split("## Three commands")[1].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    at = lines.index("$ ./varve-ctl serve /tmp/disk.img --size 1G")
    with Ctl() as d:
        out = d.ctl("serve", "disk.img", "--size", "1G", "--address", WHERE)[0].replace(str(d.folder.resolve()), "/tmp").replace(str(PORT), "4420")
        check(out.splitlines() == lines[at + 1:at + 5], f"{out}{lines}")
        check(lines[at + 5][4:] == out.splitlines()[3].strip(), lines[at + 5])


def test_a_bdev_is_served_and_stays():
    with Ctl() as d:
        d.call("bdev_null_create", name="N", num_blocks=1024, block_size=512)
        d.ctl("serve", "N", "--address", WHERE, "--nqn", "nqn.2026-11.io.varve:mine")
        d.ctl("unserve", "N")
        check([b["name"] for b in d.call("bdev_get_bdevs")] == ["N"], d.call("bdev_get_bdevs"))


def test_what_is_printed_as_a_command_is_quoted():
    """A bdev's name may have all that is printable."""
    with Ctl() as d:
        name = "N;touch${IFS}pwned'$(touch pwned)`touch pwned`"
        d.call("bdev_null_create", name=name, num_blocks=1024, block_size=512)
        out, err = d.ctl("-v", "serve", name, "--address", WHERE, "--nqn", "nqn.2026-11.io.varve:a;touch${IFS}pwned$(touch pwned)")
        lines = [line for line in (out + err).splitlines() if line.startswith("  ")]
        check(len(lines) > 4 and any("bdev_name=N" in line for line in lines), lines)
        for line in lines:      # what the shell makes of it, with the programs left out
            p = subprocess.run(["bash", "-c", f"varve-rpc() {{ :; }}; nvme() {{ :; }}; varve-perf() {{ :; }}\n{line}"], cwd=d.folder, capture_output=True,
                               text=True, timeout=DEADLINE)
            check(p.returncode == 0 and p.stderr == "" and not (d.folder / "pwned").exists(), f"{line}: {p}")


def test_a_failure_half_way_leaves_nothing():
    with Ctl() as d:
        d.call("nvmf_create_transport", trtype="TCP")
        d.call("bdev_null_create", name="N", num_blocks=1024, block_size=512)
        before = d.everything()
        # No interface has that address (TEST-NET-1): the last call fails.
        _, err = d.ctl("serve", "N", "--address", "192.0.2.1", "--any-host", status=1)
        check("no interface has that address" in err and "what was done before is undone" in err and d.everything() == before, err)
        _, err = d.ctl("serve", "N", "--address", "192.0.2.1", status=2)
        check("who may connect" in err and d.everything() == before, err)
        _, err = d.ctl("serve", "nosuch", status=1)
        check("there is no bdev and no file" in err, err)
        _, err = d.ctl("serve", "/dev/tty", status=1)
        check("neither a file nor a block device" in err, err)
        _, err = d.ctl("serve", "x", "--size", "lots", status=2)
        check("not a size" in err and not (d.folder / "x").exists(), err)


def test_hosts_that_would_lose_something_are_named():
    with Ctl() as d:
        d.ctl("serve", "a.img", "--size", "16M", "--address", WHERE)
        nqn = "nqn.2026-11.io.varve:a"
        out, err = d.ctl("-v", "connect", WHERE, nqn)
        check("Nvme0: bdevs Nvme0n1" in out and "bdev_nvme_attach_controller" in err, f"{out}{err}")
        check("connected already" in d.ctl("connect", WHERE, nqn)[0], "a second time")
        host = d.call("nvmf_subsystem_get_controllers", nqn=nqn)[0]["hostnqn"]
        _, err = d.ctl("unserve", "a.img", status=1)
        check(host in err and "--force" in err and d.call("nvmf_subsystem_get_controllers", nqn=nqn), err)
        d.ctl("serve", "Nvme0n1", "--address", WHERE, "--nqn", "nqn.2026-11.io.varve:again")
        _, err = d.ctl("disconnect", "Nvme0", status=1)
        check("Nvme0n1 is served by nqn.2026-11.io.varve:again" in err, err)
        d.ctl("unserve", "Nvme0n1")
        check("is disconnected" in d.ctl("disconnect", "Nvme0")[0] and "is not connected" in d.ctl("disconnect", "Nvme0")[0], "disconnect")


def test_who_may_connect_is_as_asked():
    nqn, hosts = "nqn.2026-11.io.varve:a", ["nqn.2026-11.io.varve:host1", "nqn.2026-11.io.varve:host2"]
    with Ctl() as d:
        def access():
            s = next(s for s in d.call("nvmf_get_subsystems") if s["nqn"] == nqn)
            return s["allow_any_host"], sorted(h["nqn"] for h in s["hosts"])

        def serve_(*words, status=0):
            return d.ctl("serve", "a.img", "--size", "16M", "--address", WHERE, *words, status=status)

        serve_()
        check(access() == (True, []), access())
        d.ctl("connect", WHERE, nqn)        # a host that is not named
        out, _ = serve_("--host", hosts[0])
        check(access() == (False, hosts[:1]) and f"was open to any host: only {hosts[0]} may connect to it now" in out, f"{access()}{out}")
        wait_for(lambda: d.call("nvmf_subsystem_get_controllers", nqn=nqn) == [], "the other host to go")
        out, _ = serve_("--host", hosts[1])
        check(access() == (False, hosts) and "open" not in out, f"{access()}{out}")
        out, _ = serve_()
        check(access() == (False, hosts) and "already served" in out, f"{access()}{out}")
        out, _ = serve_("--any-host")
        check(access() == (True, hosts) and "was closed: any host may connect to it now" in out, f"{access()}{out}")
        # It is closed, and then the last call fails: it is open as before.
        before = d.everything()
        _, err = d.ctl("-v", "serve", "a.img", "--address", "192.0.2.1", "--host", hosts[0], status=1)
        check("allow_any_host=false" in err and "allow_any_host=true" in err and "undone" in err and d.everything() == before, err)
        d.ctl("disconnect", "Nvme0")
        d.ctl("unserve", "a.img", "--force")
        serve_("--host", hosts[0], "--any-host")
        check(access() == (True, hosts[:1]), access())


def test_bdevs_that_carry_others_are_not_removed():
    with Ctl() as d:
        d.ctl("serve", "a.img", "--size", "16M", "--address", WHERE)
        nqn = "nqn.2026-11.io.varve:a"
        d.ctl("connect", WHERE, nqn)
        for name, word in (("Nvme0n1", "disconnect"), ("b", "unserve")):
            if name == "b":
                d.ctl("serve", "b.img", "--size", "16M", "--address", WHERE)
                d.call("nvmf_delete_subsystem", nqn="nqn.2026-11.io.varve:b")
            what = "Nvme0" if name == "Nvme0n1" else "b.img"
            delay = {key: 1 for key in ("avg_read_latency", "p99_read_latency", "avg_write_latency", "p99_write_latency")}
            d.call("bdev_delay_create", base_bdev_name=name, name="Slow", **delay)
            before = d.everything()
            _, err = d.ctl(word, what, status=1)
            check(name in err and "claimed by Slow" in err and "--force" in err and d.everything() == before, err)
            d.call("bdev_delay_delete", name="Slow")
            d.call("bdev_lvol_create_lvstore", bdev_name=name, lvs_name="store")
            _, err = d.ctl(word, what, status=1)
            check("claimed by lvol" in err and len(d.call("bdev_lvol_get_lvstores")) == 1, err)
            d.ctl(word, what, "--force")
            check(d.call("bdev_lvol_get_lvstores") == [] and name not in [b["name"] for b in d.call("bdev_get_bdevs")], "--force")


def test_status_fits_one_screen():
    with Ctl() as d:
        for i in range(30):
            d.call("bdev_null_create", name=f"Null{i}", num_blocks=1024, block_size=512)
        d.ctl("serve", "Null7", "--address", WHERE)
        check("QoS" not in d.ctl("status")[0], "no group, no line")
        for i in range(9):
            d.call("bdev_qos_group_create", name=f"group{i}", rw_ios_per_sec=70 + i, w_mbytes_per_sec=3)
        d.call("bdev_set_qos_group", name="Null7", group="group0")
        out, _ = d.ctl("status")
        check("QoS groups  9\n" in out and "group0: 70 I/Os/s, 3 MiB/s written; 1 bdev; 0 I/Os have waited" in out, out)
        lines = out.splitlines()
        check(len(lines) < 24 and max(map(len, lines)) <= 80 and "health      ok" in out, out)
        check("bdevs       30, 15.0M; 1 served" in out and "Null7" in out and "more" in out and f"TCP {ADDRESS}:{PORT}" in out, out)
        j = json.loads(d.ctl("status", "-j")[0])
        check(j["problems"] == [] and len(j["bdevs"]) == 30, j["problems"])
        for word in ("reactors", "bdevs", "subsystems", "hosts", "paths", "alerts"):
            check(word in out or word == "reactors", out)
        p = subprocess.run([CTL, "-p", str(d.process.pid), "status"], capture_output=True, text=True, timeout=DEADLINE)
        check(p.returncode == 0 and f"process {d.process.pid}" in p.stdout, p)
        text = d.ctl("top", "-b", "-v", "bdevs", "-d", "0.1")[0]
        check("Null3" in text, text)
        rows = json.loads(d.ctl("top", "-j", "-v", "bdevs", "-d", "0.1")[0].splitlines()[-1])["bdevs"]
        check({r["name"]: r["qos_group"] for r in rows if r["name"] in ("Null7", "Null3")} == {"Null7": "group0", "Null3": None}, rows)


def test_status_tells_what_is_wrong():
    bdev = {"name": "B", "state": "removing", "state_us": 20_000_000, "block_size": 512, "num_blocks": 8}
    s = {"state": {"state": "RUNNING", "version": "v", "pid": 1, "age_us": 90_000_000}, "bdevs": [bdev], "subsystems": [], "controllers": {}, "reactors": [],
         "inflight": [{"age_us": 11_000_000}] * 2, "remote": [{"name": "R", "ctrlrs": [{"state": "failed", "trid": {}}, {"state": "enabled", "trid": {}}]}],
         "qos_groups": [], "alerts": [{"type": "bdev_slow_io", "ctx": "\x1b[2J" + "x" * 100, "time_us": 0, "id": 1}] * 50}
    check(status.problems(s) == ["bdev B is removing for 20 s", "2 commands of hosts for more than 10 s", "R: 1 of 2 paths not connected"], status.problems(s))
    text = status.text_of(s)
    store = {"name": "lvs", "cluster_size": 1 << 20, "total_data_clusters": 96, "free_clusters": 32, "reserved_clusters": 0, "reserved_missing_clusters": 0, "reserved_missing_md_pages": 0, "space_reached": 0}
    check("  stores " not in text, text)
    s["stores"] = [store, store | {"name": "two", "reserved_clusters": 8}]
    text = status.text_of(s)
    check("stores      2" in text and "lvs: 32.0M of 96.0M free\n" in text and "two: 32.0M of 96.0M free, 8.0M of it reserved" in text, text)
    check("3 problems" in text, text)
    s["stores"] = [store | {"space_reached": 100}, store | {"reserved_clusters": 40, "reserved_missing_clusters": 8, "reserved_missing_md_pages": 3, "space_reached": 100}]
    full = "volume store lvs is full: first writes to thin volumes fail"
    check(status.problems(s)[3:] == [full, "volume store lvs is full but for what is reserved", "volume store lvs: 8.0M that volumes reserved are not there",
                                       "volume store lvs: 3 metadata pages that volumes reserved are not there"], status.problems(s))
    s["stores"] = []
    text = status.text_of(s)
    check("3 problems" in text and "\x1b" not in text and len(text.splitlines()) < 24 and max(map(len, text.splitlines())) <= 80, text)


def test_a_configuration_is_compared_and_applied():
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        wanted, saved = pathlib.Path(f) / "wanted.json", pathlib.Path(f) / "saved.json"
        d.ctl("serve", "disk.img", "--size", "16M", "--address", WHERE)
        d.call("bdev_delay_create", base_bdev_name=d.call("bdev_malloc_create", name="Ram", num_blocks=2048, block_size=512), name="Slow",
               avg_read_latency=1, p99_read_latency=1, avg_write_latency=1, p99_write_latency=1)
        d.ctl("save", saved)
        check(d.ctl("diff", saved) == ("", ""), "the same")
        before = d.everything()
        check("nothing to do" in d.ctl("apply", saved)[0] and d.everything() == before, "applied without a change")
        entries = [{"method": "bdev_null_create", "params": {"name": "New", "num_blocks": 64, "block_size": 512}},
                   {"method": "nvmf_subsystem_add_ns", "params": {"nqn": "nqn.2026-11.io.varve:disk", "namespace": {"bdev_name": "New"}}}]
        tree = json.loads(saved.read_text())
        parts = {s["subsystem"]: s["config"] for s in tree["subsystems"]}
        parts["bdev"].append(entries[0])
        parts["nvmf"].append(entries[1])
        wanted.write_text("# with comments\n" + json.dumps(tree, indent=1) + " // at the end")
        out, _ = d.ctl("diff", wanted, status=1)
        check([line[:30] for line in out.splitlines()] == ["+ varve-rpc bdev_null_create n", "+ varve-rpc nvmf_subsystem_add"], out)
        d.ctl("apply", "--dry-run", wanted)
        check(d.everything() == before, "a dry run")
        _, err = d.ctl("-v", "apply", wanted)
        check(err.count("varve-rpc") == 2 and d.ctl("diff", wanted) == ("", ""), err)
        out, _ = d.ctl("diff", saved, status=1)
        check(out.count("- varve-rpc") == 2, out)
        check("2 running and not in" in d.ctl("apply", saved)[0] and len(d.call("bdev_get_bdevs")) == 4, "without --prune")
        d.ctl("apply", "--prune", saved)
        check(d.everything() == before and d.ctl("diff", saved) == ("", ""), d.everything())
        # The second of two calls fails: the first is undone.
        parts["bdev"].append({"method": "bdev_null_create", "params": {"name": "Bad", "num_blocks": 64, "block_size": 7}})
        wanted.write_text(json.dumps(tree))
        _, err = d.ctl("apply", wanted, status=1)
        check("block_size" in err and "undone" in err and d.everything() == before, err)
        # What exists otherwise is not changed in part.
        parts["bdev"][:] = [e for e in parts["bdev"] if e.get("params", {}).get("name") not in ("Bad",)]
        next(e for e in parts["bdev"] if e["method"] == "bdev_malloc_create")["params"]["num_blocks"] = 4096
        wanted.write_text(json.dumps(tree))
        out, err = d.ctl("apply", wanted, status=1)
        check("~ varve-rpc bdev_malloc_create" in out and "Nothing was done" in err and d.everything() == before, f"{out}{err}")
        wanted.write_text('{"subsystems": oops}')
        check("varve --check" in d.ctl("diff", wanted, status=2)[1], "no configuration")
        check("No such file" in d.ctl("apply", "/no/such", status=2)[1], "no file")


def bad_end(tree):
    """The configuration, and at its end a bdev that is refused."""
    tree = json.loads(json.dumps(tree))
    next(s for s in tree["subsystems"] if s["subsystem"] == "bdev")["config"].append(
        {"method": "bdev_null_create", "params": {"name": "Bad", "num_blocks": 64, "block_size": 7}})
    return json.dumps(tree)


def test_what_is_pruned_comes_back_if_a_later_call_fails():
    nqn = "nqn.2026-11.io.varve:gone"
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file = pathlib.Path(f) / "file.json"
        d.call("nvmf_create_transport", trtype="TCP")
        d.ctl("save", file)
        tree = json.loads(file.read_text())
        check("bdev_wait_for_examine" in file.read_text(), "a saved configuration has it")
        d.call("bdev_malloc_create", name="Ram", num_blocks=2048, block_size=512)
        d.call("bdev_delay_create", base_bdev_name="Ram", name="Slow", avg_read_latency=1, p99_read_latency=1, avg_write_latency=1, p99_write_latency=1)
        d.call("bdev_set_qos_limit", name="Slow", rw_mbytes_per_sec=7)
        d.call("bdev_qos_group_create", name="Slow", rw_ios_per_sec=7000)
        for name in ("Slow", "Ram"):
            d.call("bdev_set_qos_group", name=name, group="Slow", min_rw_ios_per_sec=3000)
        d.call("bdev_enable_histogram", name="Ram", enable=True)
        d.call("nvmf_create_subsystem", nqn=nqn, ana_reporting=True, serial_number="S1")
        d.call("nvmf_subsystem_add_host", nqn=nqn, host="nqn.2026-11.io.varve:host")
        d.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": "Slow", "nsid": 7, "no_auto_visible": True})
        d.call("nvmf_ns_add_host", nqn=nqn, nsid=7, host="nqn.2026-11.io.varve:host")
        d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address={"trtype": "TCP", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT)})
        d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, ana_state="non_optimized", anagrpid=3,
               listen_address={"trtype": "TCP", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT)})
        (d.folder / "key").touch(mode=0o600)
        (d.folder / "key").write_text(secret(1, 32, 0) + "\n")
        d.call("keyring_file_add_key", name="k", path=str(d.folder / "key"))
        d.call("metrics_start", address=f"unix:{d.folder}/metrics")
        d.call("nvmf_subsystem_add_peer", nqn=nqn, path="/nobody/there")
        for service in ("1", "2"):
            d.call("nvmf_discovery_add_referral", address={"trtype": "TCP", "adrfam": "IPv4", "traddr": "192.0.2.9", "trsvcid": service})
        before = d.everything()
        # All is removed, and then the last call fails.
        file.write_text(bad_end(tree))
        _, err = d.ctl("-v", "apply", "--prune", file, status=1)
        check("nvmf_delete_subsystem" in err and "bdev_malloc_delete" in err and "what was done before is undone" in err and d.everything() == before,
              f"{err}{before}{d.everything()}")
        check(f"not brought back: the data of Ram, connections and reservations of hosts at {nqn}" in err, err)
        for word in ("keyring_file_remove_key", "metrics_stop", "nvmf_discovery_remove_referral", "nvmf_subsystem_add_peer", "bdev_set_qos_limit name=Slow"):
            check(word in err, f"{word}: {err}")
        # What cannot be taken back is told before the first call, and to who only asks.
        d.call("bdev_error_create", base_name=d.call("bdev_null_create", name="N", num_blocks=1024, block_size=512))
        before = d.everything()
        file.write_text(json.dumps(tree))
        for dry in ((), ("--dry-run",)):
            _, err = d.ctl("-v", "apply", "--prune", *dry, file, status=1)
            check("take this back: varve-rpc bdev_error_create base_name=N uuid=" in err and "Nothing was done" in err and "_delete" not in err and d.everything() == before, err)
        d.call("bdev_error_delete", name="EE_N")
        d.ctl("apply", "--prune", file)
        check(d.ctl("diff", file) == ("", "") and d.call("bdev_get_bdevs") == [], "pruned")


def test_one_of_two_paths_is_pruned():
    nqn = "nqn.2026-11.io.varve:a"
    with Ctl() as target, Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file = pathlib.Path(f) / "file.json"
        target.ctl("serve", "a.img", "--size", "16M", "--address", WHERE)
        target.ctl("serve", "a.img", "--address", f"{ADDRESS}:{PORT + 1}")
        d.ctl("connect", WHERE, nqn)
        d.ctl("save", file)
        before = d.everything()
        d.ctl("connect", f"{ADDRESS}:{PORT + 1}", nqn, "--name", "Nvme0")
        both = d.everything()
        check(both != before, both)
        wrong = pathlib.Path(f) / "wrong.json"
        wrong.write_text(bad_end(json.loads(file.read_text())))
        _, err = d.ctl("apply", "--prune", wrong, status=1)
        check("undone" in err and d.everything() == both, f"{err}{both}{d.everything()}")
        d.ctl("apply", "--prune", file)
        check(d.everything() == before and [b["name"] for b in d.call("bdev_get_bdevs")] == ["Nvme0n1"], d.everything())


def test_states_and_keys_that_spdk_lacks_are_saved_apart_and_come_back():
    nqn, hosts = "nqn.2026-11.io.varve:own", [f"nqn.2026-11.io.varve:h{n}" for n in range(3)]
    where = [{"trtype": "TCP", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT + n)} for n in range(3)]
    with tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file = pathlib.Path(f) / "file.json"
        seen = own_states_saved(file, nqn, hosts, where)
        # Entries that are alike but for their states stand in front of those that the own ones belong to.
        own_states_loaded(file, nqn, where, seen)


def own_states_saved(file, nqn, hosts, where):
    with Ctl() as d:
        d.call("nvmf_create_transport", trtype="TCP")
        d.call("nvmf_create_subsystem", nqn=nqn, ana_reporting=True, max_namespaces=6)
        for n, host in enumerate(hosts):
            d.call("nvmf_subsystem_add_host", nqn=nqn, host=host, psk_compat=n == 1)
        d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=where[0], ana_state="inaccessible")
        d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=where[1], ana_state="change")
        d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=where[2], ana_state="inaccessible", own_ana_state="persistent_loss")
        for group, state in ((2, "inaccessible"), (4, "persistent_loss"), (5, "optimized")):
            for address in where[:2]:
                d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=address, ana_state=state, anagrpid=group)
        for method, more in (("nvmf_subsystem_add_listener", {}), ("nvmf_subsystem_listener_set_ana_state", {"anagrpid": 1})):
            try:
                d.call(method, nqn=nqn, listen_address={**where[0], "trsvcid": str(PORT + 3)}, ana_state="optimized", own_ana_state="change", **more)
                check(False, f"{method} takes two states")
            except RpcError as e:
                check('"own_ana_state" is "change"' in e.message and "inaccessible" in e.message, e.message)
        seen = d.call("nvmf_subsystem_get_listeners", nqn=nqn), d.call("nvmf_get_subsystems", nqn=nqn)[0]["hosts"]
        states = [[g["ana_state"] for g in x["ana_states"]] for x in seen[0]]
        check(states == [["inaccessible"] * 3 + ["persistent_loss", "optimized", "inaccessible"], ["change", "inaccessible", "change", "persistent_loss", "optimized", "change"],
                         ["persistent_loss"] * 6], states)
        for save in (lambda: d.ctl("save", file), lambda: d.rpc("save_config", str(file))):
            save()
            tree = json.loads(file.read_text())
            check_stock_takes(tree)
            check(d.ctl("diff", file) == ("", ""), "the file is the configuration that runs")
        # What SPDK's rpc.py gets and saves: nothing is apart there, so it has the state that comes next to an own one.
        plain = {"subsystems": [{"subsystem": "nvmf", "config": [e for e in d.call("framework_get_config", name="nvmf") if e["method"] != "nvmf_subsystem_add_host"]}]}
        check_stock_takes(plain)
        own = [e["params"] for e in plain["subsystems"][0]["config"] if e["params"].get("listen_address") == where[2]]
        check([x["ana_state"] for x in own] == ["inaccessible"] and "ANA state persistent_loss of " + nqn in d.log(), own)
        return seen


def own_states_loaded(file, nqn, where, seen):
    with Ctl("-c", file) as d:
        now = d.call("nvmf_subsystem_get_listeners", nqn=nqn), d.call("nvmf_get_subsystems", nqn=nqn)[0]["hosts"]
        check(now == seen, f"{now} was {seen}")
        d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=where[1], ana_state="inaccessible", anagrpid=4)
        out, _ = d.ctl("diff", file, status=1)
        check("persistent_loss" in out and '"ana_state": "inaccessible"' in out, out)
        d.ctl("apply", file)
        check((d.call("nvmf_subsystem_get_listeners", nqn=nqn), d.ctl("diff", file)) == (seen[0], ("", "")), d.call("nvmf_subsystem_get_listeners", nqn=nqn))
        # Groups of which the file says nothing have the state of their listener.
        for n, state in ((0, "optimized"), (1, "persistent_loss")):
            d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=where[n], ana_state=state, anagrpid=6)
        out, _ = d.ctl("diff", file, status=1)
        lines = out.splitlines()
        check(len(lines) == 2 and all(x.startswith("- varve-rpc nvmf_subsystem_listener_set_ana_state ") and x.endswith("anagrpid=6") for x in lines), out)
        check("optimized" in lines[0] and "persistent_loss" in lines[1], out)
        out, _ = d.ctl("apply", file)
        check("2 running and not in" in out and d.ctl("diff", file, status=1)[0], out)
        d.ctl("apply", "--prune", file)
        check((d.call("nvmf_subsystem_get_listeners", nqn=nqn), d.ctl("diff", file)) == (seen[0], ("", "")), d.call("nvmf_subsystem_get_listeners", nqn=nqn))
        # With the listener its groups go.
        d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address={**where[0], "trsvcid": str(PORT + 3)})
        d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address={**where[0], "trsvcid": str(PORT + 3)}, ana_state="non_optimized", anagrpid=2)
        out, _ = d.ctl("diff", file, status=1)
        check([x.split()[2] for x in out.splitlines()] == ["nvmf_subsystem_add_listener"], out)
        d.ctl("apply", "--prune", file)
        check((d.call("nvmf_subsystem_get_listeners", nqn=nqn), d.ctl("diff", file)) == (seen[0], ("", "")), d.call("nvmf_subsystem_get_listeners", nqn=nqn))


def test_settings_of_an_object_are_sent_with_its_name():
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file, saved = pathlib.Path(f) / "file.json", pathlib.Path(f) / "saved.json"
        for name in ("A", "B"):
            d.call("bdev_null_create", name=name, num_blocks=1024, block_size=512)
            d.call("bdev_set_qos_limit", name=name, rw_mbytes_per_sec=7)
            d.call("bdev_qos_group_create", name=name, rw_ios_per_sec=5000)
            d.call("bdev_set_qos_group", name=name, group="A", min_rw_ios_per_sec=10)
        where = {"trtype": "TCP", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT)}
        nqn = "nqn.2026-11.io.varve:groups"
        d.call("nvmf_create_transport", trtype="TCP")
        d.call("nvmf_create_subsystem", nqn=nqn, ana_reporting=True, allow_any_host=True)
        d.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=where)
        for group in (2, 5):
            d.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=where, ana_state="non_optimized", anagrpid=group)
        d.ctl("save", saved)
        before = d.everything()
        tree = json.loads(saved.read_text())
        entries = [e for s in tree["subsystems"] + tree["varve"] for e in s["config"] or []]
        next(e for e in entries if e["method"] == "bdev_set_qos_limit" and e["params"]["name"] == "B")["params"]["rw_mbytes_per_sec"] = 9
        next(e for e in entries if e["method"] == "bdev_set_qos_group" and e["params"]["name"] == "B")["params"].update(group="B", min_rw_ios_per_sec=0)
        next(e for e in entries if e["method"] == "bdev_qos_group_set_limit" and e["params"]["name"] == "B")["params"].update(rw_ios_per_sec=0, burst_ms=5)
        next(e for e in entries if e["method"].endswith("set_ana_state") and e["params"]["anagrpid"] == 5)["params"]["ana_state"] = "inaccessible"
        next(e for e in entries if e["method"] == "bdev_nvme_set_options")["params"]["bdev_retry_count"] = 4
        file.write_text(bad_end(tree))
        out, err = d.ctl("-v", "apply", file, status=1)
        check(out.count("~ ") == 5 and "undone" in err and "not brought back" not in err and d.everything() == before, f"{out}{err}{d.everything()}")
        check("varve-rpc bdev_nvme_set_options bdev_retry_count=4\n" in err and "varve-rpc bdev_nvme_set_options bdev_retry_count=3\n" in err, err)
        file.write_text(json.dumps(tree))
        d.ctl("apply", file)
        check(d.ctl("diff", file) == ("", "") and d.ctl("diff", saved, status=1)[0].count("~ ") == 5, "applied")
        d.ctl("apply", saved)
        check(d.everything() == before, "and back")
        # What is off is not saved: a file that says so is the same.
        for e in entries:
            if e["method"] == "bdev_null_create":
                e["params"].update(md_size=0, dif_type=0, dif_is_head_of_md=False)
            if e["method"] == "nvmf_subsystem_add_listener":
                e["params"]["secure_channel"] = False
        next(e for e in entries if e["method"] == "bdev_set_qos_limit" and e["params"]["name"] == "B")["params"].update(rw_mbytes_per_sec=7, r_mbytes_per_sec=0)
        next(e for e in entries if e["method"] == "bdev_set_qos_group" and e["params"]["name"] == "B")["params"].update(group="A", min_rw_ios_per_sec=10)
        next(e for e in entries if e["method"] == "bdev_qos_group_set_limit" and e["params"]["name"] == "B")["params"].update(rw_ios_per_sec=5000, burst_ms=20)
        next(e for e in entries if e["method"].endswith("set_ana_state") and e["params"]["anagrpid"] == 5)["params"]["ana_state"] = "non_optimized"
        next(e for e in entries if e["method"] == "bdev_nvme_set_options")["params"]["bdev_retry_count"] = 3
        file.write_text(json.dumps(tree))
        check(d.ctl("diff", file) == ("", ""), "what is off")
        # What the daemon did not say cannot be set back: it is told.
        next(e for e in entries if e["method"] == "bdev_set_qos_limit" and e["params"]["name"] == "B")["params"]["w_mbytes_per_sec"] = 3
        file.write_text(bad_end(tree))
        _, err = d.ctl("apply", file, status=1)
        check("not brought back: w_mbytes_per_sec of varve-rpc bdev_set_qos_limit name=B" in err, err)


def test_the_limit_of_all_hosts_is_not_that_of_one():
    """Of which the file's entry has less: it has no host."""
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file, nqn, host = pathlib.Path(f) / "file.json", "nqn.2026-11.io.varve:limits", "nqn.2026-11.io.varve:host"
        d.call("nvmf_create_subsystem", nqn=nqn, allow_any_host=True)
        d.call("nvmf_subsystem_set_qos_limit", nqn=nqn, host=host, rw_ios_per_sec=1000)
        d.ctl("save", file)
        tree = json.loads(file.read_text())
        config = next(s["config"] for s in tree["subsystems"] + tree["varve"] if any(e["method"] == "nvmf_subsystem_set_qos_limit" for e in s["config"] or []))
        at = next(i for i, e in enumerate(config) if e["method"] == "nvmf_subsystem_set_qos_limit")
        config.insert(at, {"method": "nvmf_subsystem_set_qos_limit", "params": {"nqn": nqn, "rw_ios_per_sec": 1000}})
        file.write_text(json.dumps(tree))
        out, _ = d.ctl("diff", file, status=1)
        check(out == f"+ varve-rpc nvmf_subsystem_set_qos_limit nqn={nqn} rw_ios_per_sec=1000\n", out)
        d.ctl("apply", file)
        check(d.ctl("diff", file) == ("", "") and "nothing to do" in d.ctl("apply", file)[0], "applied")
        have = {q["host"]: q["rw_ios_per_sec"] for q in d.call("nvmf_subsystem_get_qos_limits", nqn=nqn)}
        check(have == {host: 1000, None: 1000}, have)


def applied_and_undone(d, file, tree, *words):
    """First with an end that is refused, after which all is as before; then for good."""
    before = d.everything()
    file.write_text(bad_end(tree))
    _, err = d.ctl("-v", "apply", *words, file, status=1)
    check("what was done before is undone" in err and "left as it is" not in err and "not brought back" not in err and d.everything() == before, f"{err}{before}{d.everything()}")
    file.write_text(json.dumps(tree))
    d.ctl("diff", file, status=1)
    d.ctl("apply", *words, file)
    check(d.ctl("diff", file) == ("", ""), "applied")
    after = d.everything()
    check(after != before, after)
    return after


def test_qos_groups_change_in_an_order_that_is_possible():
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file, saved = pathlib.Path(f) / "file.json", pathlib.Path(f) / "saved.json"
        d.call("bdev_qos_group_create", name="g", rw_ios_per_sec=1000)
        for name, ios in (("A", 600), ("B", 400), ("C", 0)):
            d.call("bdev_null_create", name=name, num_blocks=64, block_size=512)
            if ios != 0:
                d.call("bdev_set_qos_group", name=name, group="g", min_rw_ios_per_sec=ios)
        d.ctl("save", saved)
        first = d.everything()

        def changed():
            """The configuration, its entries of bdevs, and a function that finds one."""
            tree = json.loads(saved.read_text())
            entries = next(s for s in tree["subsystems"] if s["subsystem"] == "bdev")["config"]
            sections = [e for s in tree["subsystems"] + tree["varve"] for e in s["config"] or []]
            return tree, entries, lambda method, name: next(e for e in sections if e["method"] == method and e["params"]["name"] == name)["params"]

        def and_back(*words):
            d.ctl("apply", *words, saved)
            check(d.everything() == first and d.ctl("diff", saved) == ("", ""), d.everything())

        # A bdev goes into a group that is new, with a minimum that its old one could not give it; another that is in none, too.
        tree, entries, of = changed()
        entries += [{"method": "bdev_qos_group_create", "params": {"name": "new"}}, {"method": "bdev_qos_group_set_limit", "params": {"name": "new", "rw_ios_per_sec": 5000}},
                    {"method": "bdev_set_qos_group", "params": {"name": "C", "group": "new", "min_rw_ios_per_sec": 2000}}]
        of("bdev_set_qos_group", "B").update(group="new", min_rw_ios_per_sec=3000)
        of("bdev_set_qos_group", "A").update(min_rw_ios_per_sec=1000)
        applied_and_undone(d, file, tree)
        groups = {g["name"]: {b["name"]: b["min_rw_ios_per_sec"] for b in g["bdevs"]} for g in d.call("bdev_get_qos_groups")}
        check(groups == {"g": {"A": 1000}, "new": {"B": 3000, "C": 2000}}, groups)
        and_back("--prune")
        # A limit is lowered with the minimums.
        tree, entries, of = changed()
        of("bdev_qos_group_set_limit", "g").update(rw_ios_per_sec=100)
        of("bdev_set_qos_group", "A").update(min_rw_ios_per_sec=60)
        of("bdev_set_qos_group", "B").update(min_rw_ios_per_sec=40)
        applied_and_undone(d, file, tree)
        and_back()
        # Two bdevs exchange their minimums.
        tree, entries, of = changed()
        of("bdev_set_qos_group", "A").update(min_rw_ios_per_sec=400)
        of("bdev_set_qos_group", "B").update(min_rw_ios_per_sec=600)
        applied_and_undone(d, file, tree)
        and_back()
        # The group goes, and its bdevs into another.
        tree, entries, of = changed()
        for e in (e for s in tree["subsystems"] + tree["varve"] for e in s["config"] or []):
            if e["method"].startswith("bdev_qos_group_"):
                e["params"]["name"] = "other"
            elif e["method"] == "bdev_set_qos_group":
                e["params"]["group"] = "other"
        applied_and_undone(d, file, tree, "--prune")
        check([(g["name"], len(g["bdevs"])) for g in d.call("bdev_get_qos_groups")] == [("other", 2)], d.call("bdev_get_qos_groups"))
        and_back("--prune")


def test_limits_and_minimums_of_hosts_change_in_an_order_that_is_possible():
    """Both ways: without an order one of the two is refused, wherever the entries stand in the file."""
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file, saved, nqn = pathlib.Path(f) / "file.json", pathlib.Path(f) / "saved.json", "nqn.2026-11.io.varve:limits"
        limit, hosts = "nvmf_subsystem_set_qos_limit", [f"nqn.2026-11.io.varve:host{x}" for x in "abc"]
        d.call("nvmf_create_subsystem", nqn=nqn, allow_any_host=True)
        d.call(limit, nqn=nqn, rw_ios_per_sec=1000, r_mbytes_per_sec=100)
        d.call(limit, nqn=nqn, host=hosts[0], rw_ios_per_sec=5000, min_rw_ios_per_sec=600, min_r_mbytes_per_sec=10)
        d.call(limit, nqn=nqn, host=hosts[1], min_rw_ios_per_sec=400, min_r_mbytes_per_sec=90)
        d.ctl("save", saved)
        first = d.everything()

        def apply(backwards, *words, all_hosts, a, b, more=()):
            """The entries get those values; None: there is no such entry. The calls that it takes are in the log of -v."""
            tree = json.loads(saved.read_text())
            for section in tree["subsystems"] + tree["varve"]:
                if section["subsystem"] != "nvmf":
                    continue
                config = [e for e in section["config"] or [] if e["method"] != limit]
                wanted = [{"nqn": nqn, "host": h, **p} if h else {"nqn": nqn, **p} for h, p in ((None, all_hosts), (hosts[0], a), (hosts[1], b)) if p is not None]
                wanted += more
                section["config"] = config + ([{"method": limit, "params": p} for p in (reversed(wanted) if backwards else wanted)] if section in tree["varve"] else [])
            applied_and_undone(d, file, tree, *words)
            have = {q["host"]: q for q in d.call("nvmf_subsystem_get_qos_limits", nqn=nqn)}
            d.ctl("apply", *words, saved)
            check(d.everything() == first and d.ctl("diff", saved) == ("", ""), d.everything())
            return have

        for backwards in (False, True):
            # All become less, and then, on the way back, more.
            have = apply(backwards, all_hosts={"rw_ios_per_sec": 100, "r_mbytes_per_sec": 5}, a={"rw_ios_per_sec": 50, "min_rw_ios_per_sec": 60, "min_r_mbytes_per_sec": 1},
                         b={"min_rw_ios_per_sec": 40, "min_r_mbytes_per_sec": 4})
            check((have[None]["rw_ios_per_sec"], have[hosts[0]]["min_rw_ios_per_sec"], have[hosts[0]]["rw_ios_per_sec"]) == (100, 60, 50), have)
            # The hosts exchange their minimums; one kind of them becomes more and one less.
            apply(backwards, all_hosts={"rw_ios_per_sec": 1000, "r_mbytes_per_sec": 200}, a={"rw_ios_per_sec": 5000, "min_rw_ios_per_sec": 400, "min_r_mbytes_per_sec": 110},
                  b={"min_rw_ios_per_sec": 600, "min_r_mbytes_per_sec": 90})
            # A host is left out, and another has what was guaranteed to it.
            have = apply(backwards, "--prune", all_hosts={"rw_ios_per_sec": 700, "r_mbytes_per_sec": 100}, a={"rw_ios_per_sec": 5000, "min_rw_ios_per_sec": 300, "min_r_mbytes_per_sec": 10}, b=None,
                         more=[{"nqn": nqn, "host": hosts[2], "min_rw_ios_per_sec": 400}])
            check(hosts[1] not in have and have[hosts[2]]["min_rw_ios_per_sec"] == 400, have)


def test_what_is_as_usual_and_limits_beside_a_group_are_compared_like_all():
    config = {"subsystems": [{"subsystem": "bdev", "config": [
        {"method": "bdev_set_options", "params": {"nomem_timeout_ms": 5000}},
        {"method": "bdev_qos_group_create", "params": {"name": "gold", "rw_ios_per_sec": 50000}}]},
        {"subsystem": "nvmf", "config": [{"method": "nvmf_create_transport", "params": {"trtype": "TCP", "max_anonymous": 32768}}]}]}
    with tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file, saved = pathlib.Path(f) / "file.json", pathlib.Path(f) / "saved.json"
        file.write_text(json.dumps(config))
        with Ctl("-c", file) as d:
            check(d.ctl("diff", file) == ("", ""), "what was loaded differs")
            d.ctl("save", saved)
            check("nomem_timeout_ms" in saved.read_text() and d.ctl("diff", saved) == ("", ""), saved.read_text())
            d.call("bdev_set_options", nomem_timeout_ms=7000)
            d.ctl("diff", saved, status=1)
            d.ctl("apply", saved)
            options, = [e["params"] for e in d.everything()["bdev"] if e["method"] == "bdev_set_options"]
            check(options["nomem_timeout_ms"] == 5000, options)
            config["subsystems"][0]["config"][1]["params"]["rw_ios_per_sec"] = 60000
            file.write_text(json.dumps(config))
            d.ctl("apply", file)
            check(d.call("bdev_get_qos_groups")[0]["rw_ios_per_sec"] == 60000 and d.ctl("diff", file) == ("", ""), "the limit")


def test_bdevs_exchange_their_qos_groups():
    """Neither group has room for both minimums, also on the way back; and a limit rises for a bdev that comes."""
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file, saved = pathlib.Path(f) / "file.json", pathlib.Path(f) / "saved.json"
        for name, group, ios in (("A", "g", 600), ("B", "h", 900)):
            d.call("bdev_qos_group_create", name=group, rw_ios_per_sec=1000)
            d.call("bdev_null_create", name=name, num_blocks=64, block_size=512)
            d.call("bdev_set_qos_group", name=name, group=group, min_rw_ios_per_sec=ios)
        d.ctl("save", saved)
        for where in ({"A": ("h", 600), "B": ("g", 900)}, {"A": ("g", 600), "B": ("g", 3000)}):
            tree = json.loads(saved.read_text())
            for e in (e for s in tree["subsystems"] + tree["varve"] for e in s["config"] or []):
                if e["method"] == "bdev_set_qos_group":
                    group, ios = where[e["params"]["name"]]
                    e["params"].update(group=group, min_rw_ios_per_sec=ios)
                elif e["method"] == "bdev_qos_group_set_limit" and e["params"]["name"] == "g" and "3000" in str(where):
                    e["params"].update(rw_ios_per_sec=5000)
            applied_and_undone(d, file, tree)
            d.ctl("apply", saved)
            check(d.ctl("diff", saved) == ("", ""), "and back")


def test_a_bdev_in_a_qos_group_that_the_file_does_not_have_it_in():
    with Ctl() as d, tempfile.TemporaryDirectory(prefix="varve-ctl-") as f:
        file, with_it, without = pathlib.Path(f) / "file.json", pathlib.Path(f) / "with.json", pathlib.Path(f) / "without.json"
        d.call("bdev_null_create", name="A", num_blocks=64, block_size=512)
        d.call("bdev_qos_group_create", name="g", rw_ios_per_sec=1000)
        d.ctl("save", without)
        before = d.everything()
        d.call("bdev_set_qos_group", name="A", group="g", min_rw_ios_per_sec=10)
        d.call("bdev_enable_histogram", name="A", enable=True)
        d.ctl("save", with_it)
        out, _ = d.ctl("diff", without, status=1)
        check(out.count("- ") == 2 and "- varve-rpc bdev_set_qos_group name=A group=g" in out, out)
        check("2 running and not in" in d.ctl("apply", without)[0] and d.call("bdev_get_bdevs")[0]["qos_group"] == "g", "without --prune")
        check(applied_and_undone(d, file, json.loads(without.read_text()), "--prune") == before, d.everything())
        applied_and_undone(d, file, json.loads(with_it.read_text()))
        check(d.ctl("diff", with_it) == ("", ""), "and back")
        # What goes with its bdev, or its group, is not shown besides.
        for method, gone in (("bdev_null_delete", "bdev_null_create name=A"), ("bdev_qos_group_delete", "bdev_qos_group_create name=g")):
            with Ctl("-c", without) as e:
                e.call(method, name="A" if "null" in method else "g")
                e.ctl("save", file)
            out, _ = d.ctl("diff", file, status=1)
            check(f"- varve-rpc {gone}" in out and "bdev_set_qos_group" not in out, out)


def test_save_writes_what_the_daemon_loaded():
    """Also if it was started with a relative path, and whoever saves is in another folder."""
    with tempfile.TemporaryDirectory(prefix="varve-ctl-") as home, tempfile.TemporaryDirectory(prefix="varve-ctl-") as elsewhere:
        own = pathlib.Path(home) / "own.json"
        own.write_text('{"subsystems": []}')
        deep = pathlib.Path(elsewhere) / "1/2/3/4/5/6/7/8/9"
        deep.mkdir(parents=True)
        # The daemon runs in a new folder: eight folders up is / for it, and is not for who saves.
        with Ctl("-c", f"../../../../../../../..{own}") as d:
            d.call("bdev_null_create", name="Kept", num_blocks=64, block_size=512)
            d.ctl("save", cwd=deep)
            check('"Kept"' in own.read_text(), own.read_text())
            d.call("bdev_null_delete", name="Kept")
            own.unlink()
            _, err = d.ctl("save", status=2)
            check("is no file: varve-ctl save FILE" in err and not own.exists(), err)
    with Ctl() as d:
        _, err = d.ctl("save", status=2)
        check("without a configuration" in err, err)
    try:
        ctl_main.file_of({"config_file": "own.json", "pid": 0})
        check(False, "a process that cannot be seen")
    except client.Trouble as e:
        check("cannot be seen" in str(e) and ctl_main.file_of({"config_file": "/x/own.json", "pid": 0}) == "/x/own.json", e)


def test_parts():
    check(json.loads(config.without_comments('{"a": "#//x", # c\n "b": 1 /* { */ } // d')) == {"a": "#//x", "b": 1}, "comments")
    check(serve.address_of("[::1]:44") == ("::1", "44", "IPv6") and serve.address_of("1.2.3.4") == ("1.2.3.4", "4420", "IPv4"), "addresses")
    check(serve.address_of("2001:db8::1") == ("2001:db8::1", "4420", "IPv6") and serve.name_for("/x/a b.img") == "a_b", "names")
    check(config.agrees({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}) and not config.agrees({"a": 1}, {}), "agrees")
    check(config.agrees({"a": 0, "b": False, "c": "", "d": {"e": 0}}, {}) and not config.agrees({"d": {"e": 0, "f": 1}}, {}), "what is off")
    check(not config.agrees({"a": 0}, {"a": 1}) and not config.agrees({"a": None}, {}) and not config.agrees({"a": [1]}, {}), "what is not")
    key = {"method": "keyring_file_add_key", "params": {"name": "k", "path": "/a"}}
    check(config.same_object(key, {**key, "params": {"name": "k", "path": "/b"}}), "a key in another file is the same key")
    peer = {"method": "nvmf_subsystem_add_peer", "params": {"nqn": "q", "path": "/a"}}
    check(not config.same_object(peer, {**peer, "params": {"nqn": "q", "path": "/b"}}), "peers")
    referral = {"method": "nvmf_discovery_add_referral", "params": {"address": {"traddr": "a"}}}
    check(not config.same_object(referral, {**referral, "params": {"address": {"traddr": "b"}}}), "referrals")
    there = {"method": "nvmf_create_subsystem", "params": {"nqn": "q", "tgt_name": "t"}}
    check(not config.same_object(there, {**there, "params": {"nqn": "q"}}), "a subsystem of another target")


class Fake:
    """Answers calls as told: {method: what is raised}. Calls that take back are made under Control-C."""

    def __init__(self, **raised):
        self.raised, self.calls = raised, []

    def call(self, method, **params):
        self.calls.append((method, params))
        if method.startswith("un"):
            os.kill(os.getpid(), signal.SIGINT)
        if method in self.raised:
            raise self.raised[method]
        return True


def ended(fake, *steps, raised=None):
    """Makes the calls, raises what is given; returns what is said of it, or what else comes out."""
    try:
        with client.Steps(fake) as s:
            for method, undo, *lost in steps:
                s.do(method, undo, *lost, name=method)
            raise raised
    except BaseException as e:
        return e


def test_whatever_ends_the_calls_those_before_are_undone():
    one, two = ("one", [("un1", {})]), ("two", [("un2", {}), ("un2b", {"a": 1})])
    for raised, word in ((client.Refused("no"), "no"), (KeyboardInterrupt(), "interrupted"), (KeyError("k"), "not of the form"), (OSError(5, "oh"), "oh")):
        fake = Fake()
        e = ended(fake, one, two, raised=raised)
        check(isinstance(e, client.Trouble) and word in str(e) and "what was done before is undone" in str(e), repr(e))
        check([m for m, _ in fake.calls] == ["one", "two", "un2", "un2b", "un1"], fake.calls)
    fake = Fake()
    check(isinstance(ended(fake, one, raised=ZeroDivisionError()), ZeroDivisionError) and fake.calls[-1] == ("un1", {}), fake.calls)
    # A call that was refused, or could not be made, is not there; one that was not answered may be.
    for raised in (client.Refused("no"), client.Unreachable("gone")):
        fake = Fake(two=raised)
        e = ended(fake, one, two)
        check([m for m, _ in fake.calls] == ["one", "two", "un1"] and "undone" in str(e), f"{fake.calls} {e}")
    for raised in (client.Trouble("no answer"), KeyboardInterrupt()):
        fake = Fake(two=raised)
        e = ended(fake, one, two)
        check([m for m, _ in fake.calls] == ["one", "two", "un2", "un2b", "un1"] and "undone" in str(e), f"{fake.calls} {e}")
        e = str(ended(Fake(two=raised, un2=client.Refused("there is none")), one, two))
        check("left as it is: varve-rpc two name=two (may have been carried out; there is none)" in e and "varve-rpc one" not in e, e)
        e = str(ended(Fake(two=raised), one, ("two", None)))
        check("left as it is: varve-rpc two name=two (may have been carried out)" in e, e)
        e = str(ended(Fake(two=raised), one, ("two", lambda: [])))
        check("may have been carried out" in e, e)
    # What cannot be undone is said, and does not keep the others from being undone.
    fake = Fake(un2=ValueError("odd"))
    e = str(ended(fake, one, two, ("three", None), ("four", [], "its data"), raised=client.Trouble("stop")))
    check("left as it is: varve-rpc three name=three\n" in e and "varve-rpc two name=two (ValueError('odd'))" in e and "not brought back: its data" in e
          and fake.calls[-1] == ("un1", {}), e)
    check(signal.getsignal(signal.SIGINT) == signal.default_int_handler, "Control-C works again")


class OlderDaemon:
    """A socket in front of a daemon, as of one before `whole` of framework_get_config, which says everything. known: whether it has rpc_describe_methods."""

    def __init__(self, d, folder, known):
        self.d, self.known, self.refused, self.path = d, known, [], f"{folder}/older-{known}.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.run, daemon=True).start()

    def result(self, method, params):
        if method == "rpc_describe_methods" and not self.known:
            raise RpcError({"code": -32601, "message": "Method not found"})
        if method != "framework_get_config":
            found = self.d.call(method, **params)
            return found if method != "rpc_describe_methods" else [{**m, "params": [p for p in m["params"] if p["name"] != "whole"]} for m in found]
        if "whole" in params:
            self.refused.append(params)
            raise RpcError({"code": -32602, "message": 'parameter "whole" is unknown'})
        return self.d.call(method, **params, whole=True)

    def run(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return      # the end
            with s:
                data, request, piece = b"", None, b"?"
                while request is None and piece:
                    piece = s.recv(65536)
                    data += piece
                    try:
                        request = json.loads(data)
                    except ValueError:
                        pass
                if request is None:
                    continue    # a client that has gone
                try:
                    answer = {"result": self.result(request["method"], request.get("params", {}))}
                except RpcError as e:
                    answer = {"error": {"code": e.code, "message": e.message}}
                s.sendall(json.dumps({"id": request["id"], **answer}).encode())


def test_a_daemon_that_is_older_is_compared_and_changed_too():
    with Ctl() as d:
        d.call("bdev_null_create", name="N0", num_blocks=1024, block_size=512)
        file = d.folder / "saved.json"
        d.ctl("save", file)
        for known in (True, False):
            older = OlderDaemon(d, d.folder, known)
            check(d.ctl("-s", older.path, "diff", file) == ("", ""), "the same")
            d.call("bdev_null_delete", name="N0")
            check("+ varve-rpc bdev_null_create name=N0" in d.ctl("-s", older.path, "diff", file, status=1)[0], "a bdev less")
            d.ctl("-s", older.path, "apply", file)
            check(d.call("bdev_get_bdevs")[0]["name"] == "N0" and older.refused == [], older.refused)
            older.listener.shutdown(socket.SHUT_RDWR)
            older.listener.close()


def test_an_answer_that_does_not_come_is_told_from_nobody_there():
    """A socket on which a connection ends after the request."""
    with tempfile.TemporaryDirectory(prefix="varve-ctl-") as f, socket.socket(socket.AF_UNIX) as listener:
        path = f"{f}/sock"
        listener.bind(path)
        listener.listen()

        def answer(*data):
            for d in data:
                s, _ = listener.accept()
                with s:
                    request = b""
                    while d is not None and not request.endswith(b"}}"):
                        request += s.recv(65536)
                    s.sendall(d or b"")     # None: closed with an unread request, which resets the connection

        late = b'{"id": 1, "error": {"code": -110, "message": "no end"}}'
        thread = threading.Thread(target=answer, args=(b"", None, late, b'{"id": 1, "error": {"code": -22, "message": "odd"}}'), daemon=True)
        thread.start()
        said = []
        for _ in range(4):
            try:
                client.Client(path, DEADLINE, 0).call("bdev_null_create", name="x" * 100000)
            except client.Trouble as e:
                said.append(e)
        thread.join(DEADLINE)
        check(not thread.is_alive() and len(said) == 4, said)
        for e in said[:2]:
            check(type(e) is client.Trouble and "may have been carried out" in str(e) and "cannot connect" not in str(e), repr(e))
        check(type(said[2]) is client.Trouble and isinstance(said[3], client.Refused), said)
    try:
        client.Client(path, DEADLINE, 0).call("bdev_null_create")
        check(False, "nobody listens")
    except client.Unreachable as e:
        check("cannot connect" in str(e), e)


def test_a_name_that_another_bdev_has():
    with Ctl() as d:
        d.call("bdev_null_create", name="disk", num_blocks=1024, block_size=512)
        before = d.everything()
        _, err = d.ctl("serve", "disk.img", "--size", "16M", "--address", WHERE, status=1)
        check("another bdev has that name" in err and d.everything() == before and not (d.folder / "disk.img").exists(), err)


def test_nobody_there():
    p = subprocess.run([CTL, "-s", "/no/such", "status"], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 3 and "cannot connect to /no/such" in p.stderr, p)
    p = subprocess.run([CTL, "-p", str(os.getpid()), "status"], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 3 and "no socket that answers" in p.stderr, p)
    p = subprocess.run([CTL], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 2, p)
    check(VARVE_RPC.exists(), "the build")


if __name__ == "__main__":
    main(sys.modules[__name__])
