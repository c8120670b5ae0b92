#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 240
# sanitize
"""Errors that clients of SPDK's targets compare, stock_errors.json: the code, and the words that they look for. After each, the node is as it was."""
import json
import sys

from appliance_lib import TOP, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, Host, Target, wait_io
from stock_lib import Error

DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
NAMES = {"NQN": NQN, "NONE": NQN + ":none", "NEW": NQN + ":new", "HOSTNQN": HOSTNQN, "DISCOVERY": DISCOVERY, "ADDRESS": ADDRESS}


def filled(value, names):
    if isinstance(value, dict):
        return {k: filled(v, names) for k, v in value.items()}
    return names.get(value, value) if isinstance(value, str) else value


def rows(t):
    names = {**NAMES, "PORT": str(t.port)}
    for row in json.loads((TOP / "systest/stock_errors.json").read_text())["rows"]:
        yield row["method"], filled(row["params"], names), row.get("code"), [names.get(w, w) for w in row["words"]]


def make_node(t):
    for name in ("M0", "M1", "M2"):
        t.add_malloc(name)
    t.add_ns("M0", nsid=1)
    t.call("bdev_delay_create", name="D", base_bdev_name="M1", avg_read_latency=1, p99_read_latency=1, avg_write_latency=1, p99_write_latency=1)


def is_wrong(answer, code, words):
    """What is wrong with an error, or None."""
    if code is not None and answer.code != code:
        return f"error {answer.code} instead of {code}: {answer.message}"
    wanted = [*words, *([Error.STANDARD[code]] if code in Error.STANDARD else [])]
    missing = [w for w in wanted if w not in answer.message]
    return f"'{answer.message}' lacks {missing}" if missing else None


def test_errors_have_the_codes_and_words_that_clients_compare():
    with Target() as t:
        make_node(t)
        before, found, count = t.rpc("save_config")[1], [], 0
        for method, params, code, words in rows(t):
            count += 1
            try:
                found.append(f"{method} {params} answered {t.call(method, **params)}")
            except RpcError as e:
                why = is_wrong(e, code, words)
                found += [f"{method} {params}: {why}"] if why else []
        check(not found and count >= 50, f"{count} rows:\n" + "\n".join(found))
        check(t.rpc("save_config")[1] == before, "a call that is refused changes nothing")


def test_a_row_that_does_not_fit_is_found():
    e = RpcError({"code": -32602, "message": "nsid is 7 (Invalid parameters)"})
    check(is_wrong(e, -32602, ["nsid"]) is None and is_wrong(e, None, ["7"]) is None, "what fits")
    check(is_wrong(e, -19, ["nsid"]) and is_wrong(e, -32602, ["8"]) and is_wrong(e, None, ["8"]), "what does not")
    check(is_wrong(RpcError({"code": -32602, "message": "nsid is 7"}), -32602, ["nsid"]), "the words of the code")


def test_deleting_everything_leaves_an_empty_discovery_subsystem():
    with Target() as t:
        make_node(t)
        t.add_listener(DISCOVERY)
        for s in t.call("nvmf_get_subsystems"):     # as clients do that delete everything: in the order of the list, the discovery subsystem first
            check(t.call("nvmf_delete_subsystem", nqn=s["nqn"]) is True, s["nqn"])
        [left] = t.call("nvmf_get_subsystems")
        check(left["nqn"] == DISCOVERY and left["listen_addresses"] == [] and left["state"] == "active", left)
        check("hosts find all others there" in t.log(), t.log())
        check(t.call("nvmf_delete_subsystem", nqn=DISCOVERY) is True, "once more")
        t.add_subsystem(NQN)
        t.add_ns("M0", nsid=1)
        t.add_listener(DISCOVERY)
        with Host(t, "-w", "randread", "-q", "4", "-t", "600") as h:
            wait_io(t, [h])     # what is made afterwards serves hosts


def test_a_host_that_is_still_connected_to_discovery_is_disconnected():
    with Target(listen=False) as t, Target(listen=False) as f:    # otherwise it comes back through the listener of another subsystem
        t.add_listener(DISCOVERY)
        f.call("bdev_nvme_start_discovery", name="d", **t.listen_address())
        wait_for(lambda: t.call("nvmf_subsystem_get_qpairs", nqn=DISCOVERY), "the service to connect")
        check(t.call("nvmf_delete_subsystem", nqn=DISCOVERY) is True, "delete")
        check(t.call("nvmf_subsystem_get_qpairs", nqn=DISCOVERY) == [], "it has gone when the call is answered")


if __name__ == "__main__":
    main(sys.modules[__name__])
