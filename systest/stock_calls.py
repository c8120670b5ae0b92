#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 240
# sanitize
"""What gateways and drivers of storage services call, in their order: stock_calls.json. Calls of rooms that varve does not have yet are listed as waiting: they are
answered with "Method not found", and this test fails as soon as they are not, so that the list stays true."""
import collections
import json
import sys

from appliance_lib import TOP, Daemon, RpcError, check, main
from nvmf_lib import ADDRESS, HOSTNQN, PORT, Target, preload
from stock_lib import UNKNOWN

NQN, BACK = "nqn.2026-11.io.varve:gateway", "nqn.2026-11.io.varve:test"


def calls_of(client, names):
    def filled(value):
        if isinstance(value, dict):
            return {k: filled(v) for k, v in value.items()}
        return names.get(value, value) if isinstance(value, str) else value
    for entry in json.loads((TOP / "systest/stock_calls.json").read_text())[client]:
        yield {**entry, "params": filled(entry["params"])}


def check_answer(what, entry, answer):
    check("code" not in entry and "waits" not in entry, f"{what} answered {answer}: is it there now? Then stock_calls.json has to say what it answers")
    if "result" in entry:
        check(answer == entry["result"] and type(answer) is type(entry["result"]), f"{what} answered {answer}")
    else:
        last = answer[-1] if isinstance(answer, list) and answer else answer
        missing = [k for k in entry["keys"] if k not in last]
        check(not missing, f"{what} answered {answer}, which lacks {missing}")


def play(d, client, names):
    """The methods that wait, by the room that they wait for."""
    waiting = collections.defaultdict(set)
    for entry in calls_of(client, names):
        what = f"{client}: {entry['method']} {json.dumps(entry['params'])}"
        try:
            check_answer(what, entry, d.call(entry["method"], **entry["params"]))
        except RpcError as e:
            code = UNKNOWN if "waits" in entry else entry.get("code")
            check(e.code == code and entry.get("why", "") in e.message, f"{what}: error {e.code}: {e.message}")
            if "waits" in entry:
                waiting[entry["waits"]].add(entry["method"])
    for room, methods in sorted(waiting.items()):
        print(f"# {client}: NOT TRIED, waiting for {room}: {' '.join(sorted(methods))}")
    return waiting


def names_for(d):
    path = d.folder / "aio.img"
    with open(path, "wb") as f:
        f.truncate(1 << 20)
    return {"NQN": NQN, "BACK": BACK, "HOST": HOSTNQN, "ADDRESS": ADDRESS, "PORT": str(PORT), "BACK_PORT": str(PORT + 20000), "FILE": str(path)}


def test_opi_spdk_bridge():
    with Target(port=PORT + 20000) as back, Daemon("-s", "512", env=preload()) as d:
        back.add_malloc("M0")
        back.add_ns("M0", nsid=1)
        waiting = play(d, "opi-spdk-bridge", names_for(d))
        check(set(waiting) == {"virtio"}, waiting)
        check(d.call("bdev_get_bdevs") == [] and d.call("bdev_nvme_get_controllers") == [], "all is deleted")


def play_driver_of_volumes(d, client, by=None):
    """by: whoever carries the calls to d; without it the socket."""
    d.call("nvmf_create_transport", trtype="RDMA")
    d.call("bdev_malloc_create", name="Base", num_blocks=32768, block_size=4096)
    store = d.call("bdev_lvol_create_lvstore", bdev_name="Base", lvs_name="lvs0", cluster_sz=1 << 20)
    waiting = play(by or d, client, {**names_for(d), "STORE": store})
    check(not waiting and d.call("bdev_lvol_get_lvols") == [], waiting)
    d.call("bdev_malloc_delete", name="Base")
    check(d.call("bdev_get_bdevs") == [] and len(d.call("nvmf_get_subsystems")) == 1, "all is deleted")


def test_csi_driver_and_cinder():
    for client in ("CSI driver", "Cinder"):
        with Daemon("-s", "512", env=preload()) as d:
            play_driver_of_volumes(d, client)


if __name__ == "__main__":
    main(sys.modules[__name__])
