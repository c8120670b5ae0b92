#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 120
# sanitize
"""varve-rpc and a daemon that does not describe its methods, as SPDK's: numbers go as strings where such a daemon takes strings."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from appliance_lib import DEADLINE, TOP, VARVE_RPC, Daemon, check, main
from liar_lib import Liar
from stock_lib import stock_methods

NQN = "nqn.2026-11.io.varve:a"
CALLS = [
    (["bdev_malloc_create", "name=7", "block_size=512", "num_blocks=64", "uuid=123"],
     {"name": "7", "block_size": 512, "num_blocks": 64, "uuid": "123"}),
    (["nvmf_create_subsystem", f"nqn={NQN}", "serial_number=00012", "model_number=42", "allow_any_host=true", "max_namespaces=8"],
     {"nqn": NQN, "serial_number": "00012", "model_number": "42", "allow_any_host": True, "max_namespaces": 8}),
    (["nvmf_subsystem_add_ns", f"nqn={NQN}", "namespace.bdev_name=7", "namespace.nsid=3", "namespace.nguid=1"],
     {"nqn": NQN, "namespace": {"bdev_name": "7", "nsid": 3, "nguid": "1"}}),
    (["nvmf_subsystem_add_listener", f"nqn={NQN}", "listen_address.trtype=RDMA", "listen_address.traddr=127.0.0.1", "listen_address.trsvcid=14420"],
     {"nqn": NQN, "listen_address": {"trtype": "RDMA", "traddr": "127.0.0.1", "trsvcid": "14420"}}),
    (["bdev_nvme_attach_controller", "name=1", "trtype=RDMA", "traddr=127.0.0.1", "trsvcid=14420", "hostsvcid=1", "num_io_queues=2"],
     {"name": "1", "trtype": "RDMA", "traddr": "127.0.0.1", "trsvcid": "14420", "hostsvcid": "1", "num_io_queues": 2}),
]


def test_numbers_go_as_strings():
    got = []

    def answer(request):
        if request["method"] == "rpc_describe_methods":
            return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Method not found"}}).encode()
        got.append((request["method"], request.get("params")))
        return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": True}).encode()

    with tempfile.TemporaryDirectory(prefix="varve-undescribed-") as f, Liar(pathlib.Path(f), answer) as daemon:
        for arguments, params in CALLS:
            p = subprocess.run([VARVE_RPC, "-s", daemon.path, *arguments], capture_output=True, text=True, timeout=DEADLINE)
            check(p.returncode == 0 and p.stdout == "true\n" and not p.stderr, f"{arguments}: {p}")
            check(got.pop() == (arguments[0], params) and not got, f"{arguments}: {got}")


def test_the_method_that_was_meant_is_named():
    """With any daemon that lists its methods."""
    def answer(request):
        if request["method"] == "rpc_get_methods":
            return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": ["bdev_malloc_create", "bdev_get_bdevs"]}).encode()
        return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Method not found"}}).encode()

    with tempfile.TemporaryDirectory(prefix="varve-undescribed-") as f, Liar(pathlib.Path(f), answer) as daemon:
        for arguments, hint in ((["bdev_create_malloc"], "varve-rpc: did you mean bdev_malloc_create?\n"),
                                (["bdev_get_bdev", "name=1"], "varve-rpc: did you mean bdev_get_bdevs?\n"),
                                (["bdev_get_bdev", "--help"], "varve-rpc: did you mean bdev_get_bdevs?\n"), (["what"], "")):
            p = subprocess.run([VARVE_RPC, "-s", daemon.path, *arguments], capture_output=True, text=True, timeout=DEADLINE)
            first, _, rest = p.stderr.partition("\n")
            check(p.returncode == 1 and "Method not found" in first and rest == hint, f"{arguments}: {p}")


def test_what_the_daemon_proposes_is_not_said_twice():
    with Daemon() as d:
        p = subprocess.run([VARVE_RPC, "-s", d.path, "bdev_create_malloc"], capture_output=True, text=True, timeout=DEADLINE)
        said = ('varve-rpc: bdev_create_malloc: there is no method "bdev_create_malloc"; did you mean "bdev_malloc_create"? '
                'rpc_get_methods lists all methods (Method not found) (-32601)\n')
        check(p.returncode == 1 and p.stderr == said, str(p))


def test_the_key_and_the_option_that_were_meant_are_named():
    with Daemon() as d:
        for arguments, status, hint in ((["bdev_null_create", "nmae=a", "block_size=512", "num_blocks=8"], 1, "varve-rpc: nmae: did you mean name?\n"),
                                        (["--sokcet", "x", "log_get_level"], 2, "varve-rpc: did you mean --socket?\nSee varve-rpc --help.\n")):
            p = subprocess.run([VARVE_RPC, "-s", d.path, *arguments], capture_output=True, text=True, timeout=DEADLINE)
            check(p.returncode == status and p.stderr.partition("\n")[2] == hint, f"{arguments}: {p}")


def known_strings():
    text = (TOP / "tools/varve-rpc-strings.c").read_text()
    return re.findall(r'^\t"(\w+)",$', text, re.M)


def kinds(parameters):
    """(name, type) of parameters, and of members of objects."""
    for key, kind in parameters.items():
        if isinstance(kind, dict):
            yield from kinds(kind)
        else:
            yield key.rstrip("!"), kind


# A name that is that of a number in another method; and one that is a string in one method, and in another one for older clients.
OTHERWISE = {("bdev_enable_histogram", "opc"), ("nvmf_create_target", "discovery_filter")}


def test_the_list_is_sorted_and_agrees_with_spdks_methods():
    strings = known_strings()
    check(strings == sorted(set(strings)) and len(strings) > 50, strings)
    seen = 0
    for method, parameters in stock_methods().items():
        for name, kind in kinds(parameters):
            if not kind.startswith("one of ") and (method, name) not in OTHERWISE:     # no number is such a value
                seen += name in strings
                check((kind in ("string", "uuid")) == (name in strings), f"{method}: {name} is {kind} there")
    check(seen > 200, f"only {seen} parameters were compared")


if __name__ == "__main__":
    main(sys.modules[__name__])
