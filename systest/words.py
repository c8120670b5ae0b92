#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""What people type and read: varve-rpc without a daemon, its tables and sizes, processes by their number, and the dry run of a configuration."""
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, VARVE, VARVE_RPC, Daemon, check, main, wait_for


def run(*command, **env):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL,
                       env={**os.environ, **env})
    return p.returncode, p.stdout, p.stderr


def on_a_terminal(*command):
    """What a program prints on a terminal of 80 columns."""
    master, slave = pty.openpty()
    p = subprocess.Popen([str(c) for c in command], stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "COLUMNS": "80", "TERM": "dumb"})
    os.close(slave)
    text = b""
    try:
        while block := os.read(master, 65536):
            text += block
    except OSError:     # the end of a terminal
        pass
    os.close(master)
    check(p.wait(DEADLINE) == 0, text)
    return text.decode().replace("\r\n", "\n")


def test_methods_are_known_without_a_daemon_and_are_those_of_a_daemon():
    with Daemon() as d:
        described = d.call("rpc_describe_methods")
        none = {"VARVE_RPC_SOCKET": str(d.folder / "none")}
        status, out, err = run(VARVE_RPC, "--list", **none)
        check(status == 0 and out.split() == [m["name"] for m in described] and "no varve answers" in err, f"{status} {err}")
        check(d.rpc("--list")[1] == out, "the daemon's list")
        for m in described[::9] + [m for m in described if "alias" in m][:1]:
            for name in [m["name"], m.get("alias", m["name"])]:
                status, out, _ = run(VARVE_RPC, name, "--help", **none)
                check(status == 0 and out == d.rpc(name, "--help")[1], f"{name}: {out}")
        status, out, err = run(VARVE, "--describe-rpc")
        check(status == 0 and json.loads(out) == described, f"--describe-rpc: {err}")
        status, out, err = run(VARVE_RPC, "bdev_get_bdvs", "--help", **none)
        check((status, out) == (1, "") and "did you mean bdev_get_bdevs?" in err, f"{status} {err}")
        # Whoever names a socket wants that daemon.
        status, out, err = run(VARVE_RPC, "-s", d.folder / "none", "--list")
        check((status, out) == (3, "") and "cannot connect" in err, f"{status} {err}")


def test_a_daemon_is_found_by_its_process():
    with Daemon() as d:
        d.call("metrics_start", address=f"unix:{d.folder}/metrics.sock")     # another socket, which does not speak JSON
        status, out, err = run(VARVE_RPC, "-p", d.process.pid, "appliance_get_state", VARVE_RPC_SOCKET="/no/such")
        check(status == 0 and json.loads(out)["pid"] == d.process.pid, f"{status} {err}")
        for pid, status, word in ((os.getpid(), 3, "listens on no Unix socket"), ("x", 2, "not the number of a process"), (0, 2, "not the number"),
                                  (2 ** 22 + 1, 3, "there is none")):
            got = run(VARVE_RPC, "-p", pid, "log_get_level")
            check(got[0] == status and got[1] == "" and word in got[2], f"{pid}: {got}")
    with Daemon("--no-rpc-server", ready=False) as d:
        wait_for(lambda: "is running" in d.log(), "the daemon to run")
        got = run(VARVE_RPC, "-p", d.process.pid, "log_get_level")
        check(got[0] == 3 and "listens on no Unix socket" in got[2], got)


def test_people_get_tables_and_programs_json():
    with Daemon() as d:
        check(d.rpc("bdev_malloc_create", "name=Ram", "size=1M", "block_size=4K")[:2] == (0, "Ram\n"), "units")
        check(d.rpc("bdev_null_create", "name=Null0", "size=1G", "block_size=512")[:2] == (0, "Null0\n"), "units")
        bdevs = {b["name"]: b for b in json.loads(d.rpc("bdev_get_bdevs")[1])}
        check(bdevs["Ram"]["num_blocks"] == 256 and bdevs["Ram"]["block_size"] == 4096 and bdevs["Null0"]["num_blocks"] == 1 << 21, bdevs)
        out = on_a_terminal(VARVE_RPC, "-s", d.path, "bdev_get_bdevs")
        check(out.split("\n")[0].split()[:3] == ["name", "aliases", "product_name"] and "1.0M" in out and "1.0G" in out and "-o wide" in out, out)
        check(max(map(len, out.split("\n"))) <= 80, out)
        check(out == d.rpc("-o", "table", "bdev_get_bdevs")[1] or len(d.rpc("-o", "table", "bdev_get_bdevs")[1]) > len(out), "-o table")
        check(json.loads(on_a_terminal(VARVE_RPC, "-s", d.path, "-o", "json", "bdev_get_bdevs")), "-o json")
        check("supported_io_types.read" in d.rpc("-o", "wide", "bdev_get_bdevs")[1], "-o wide")
        check('\n- "name": "Null0"\n' in "\n" + d.rpc("-o", "yaml", "bdev_get_bdevs", "name=Null0")[1], "-o yaml")
        check(d.rpc("-o", "json", "log_get_level")[1] == '"DISABLED"\n' and d.rpc("-o", "table", "log_get_level")[1] == "DISABLED\n", "a string")
        status, _, err = d.rpc("-o", "xml", "bdev_get_bdevs")
        check(status == 2 and "json, table, wide, yaml" in err, err)
        status, _, err = d.rpc("bdev_malloc_create", "name=R2", "size=1000", "block_size=512")
        check(status == 2 and "not a multiple of block_size" in err, err)


WRONG = """# the target of room 3
{"subsystems": [
  {"subsystem": "bdevv", "config": [      // a misspelling
    {"method": "bdev_malloc_create", "params": {"name": "Ram", "num_blocks": "many", "blok_size": 512}},
    {"method": "bdev_nul_create", "params": {"name": "N", "num_blocks": 8, "block_size": 512}} /* another */
  ]}
]}
"""


def test_a_configuration_is_checked_without_starting_anything():
    with tempfile.TemporaryDirectory(prefix="varve-words-") as f:
        path = pathlib.Path(f) / "a.json"
        path.write_text(WRONG)
        status, out, err = run(VARVE, "--check", path)
        places = [line.split(": ")[0] for line in err.splitlines()]
        check(status == 1 and out == "" and places == [f"{path}:{p}" for p in ("3:17", "4:86", "4:38", "5:6")] + ["varve"], err)
        check('did you mean "bdev"?' in err and 'did you mean "bdev_null_create"?' in err and "4 errors" in err, err)
        status, _, err = run(VARVE, "-c", path, "--no-huge", "--no-pci", "-r", f"{f}/rpc.sock")
        check(status == 1 and 'there is no subsystem "bdevv"; did you mean "bdev"?' in err, err)
        good = WRONG.replace("bdevv", "bdev").replace('"many"', "8").replace("blok", "block").replace("nul_", "null_")
        path.write_text(good)
        check(run(VARVE, "--check", path) == (0, f"{path}: no errors\n", ""), run(VARVE, "--check", path))
        with Daemon("-c", path) as d:
            check([b["name"] for b in d.call("bdev_get_bdevs")] == ["Ram", "N"], d.log())
        with Daemon() as d:
            status, _, err = d.rpc("load_config", input=WRONG)
            check(status == 2 and 'stdin: there is no subsystem "bdevv"; did you mean "bdev"?' in err and d.call("bdev_get_bdevs") == [], err)
            check(d.rpc("load_config", path)[0] == 0 and len(d.call("bdev_get_bdevs")) == 2, "comments for load_config")
        path.write_text("{\n  \"subsystems\": oops }")
        status, _, err = run(VARVE, "--check", path)
        check(status == 1 and err.startswith(f"{path}:2:") and "oops" in err, err)
        check(run(VARVE, "--check", f)[0] == 1 and run(VARVE, "--check", "/no/such")[0] == 1 and run(VARVE, "--check", path, "x")[0] == 2, "files")


def test_options_of_the_daemon_that_were_meant_are_named():
    for given, meant in (("--confg", "config"), ("--tpoint-grup=all", "tpoint-group")):
        status, _, err = run(VARVE, given)
        check(status == 2 and f'did you mean "{meant}"?' in err, err)


def test_options_and_words_of_tools_that_were_meant_are_named():
    for arguments, meant in ((("varve-rpc", "--outptu=json"), "--output"), (("varve-trace", "--slowst", "3"), "--slowest"), (("varve-top", "--delya", "1"), "--delay"),
                             (("varve-perf", "--verfy"), "--verify"), (("varve-lvol", "--jsno", "show"), "--json"), (("varve-doctor", "--progam=x"), "--program"),
                             (("varve-ctl", "serv", "x"), "serve"), (("varve-ctl", "serve", "--sise=1G", "x"), "--size"), (("varve-ctl", "--sockt=x", "status"), "--socket")):
        status, out, err = run(BUILD / "bin" / arguments[0], *arguments[1:])
        check(status in (1, 2) and out == "" and "did you mean" in err and meant in err.split("did you mean")[1], (arguments, status, err))
        status, out, err = run(BUILD / "bin" / arguments[0], "--qqqqqq")
        check("did you mean" not in err and err != "", (arguments[0], err))


if __name__ == "__main__":
    main(sys.modules[__name__])
