#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 120
# sanitize
"""Each method of SPDK's JSON-RPC is there with its parameters, as clients give them, or doc/compat.md says why not: stock_methods.json against
rpc_describe_methods."""
import re
import sys

from appliance_lib import TOP, Daemon, check, main
from stock_lib import refused_by, stock_methods

INTEGERS = {"uint8", "uint16", "int32", "uint32", "uint64"}
KINDS = {"boolean": {"boolean"}, "string": {"string", "uuid", "enum"}, "uuid": {"uuid"}, "array": {"array"}, "bitmask": {"array"}, "object": {"object"}}
# Where the schema has another type than programs send: systest/stock_rpc.py and bdev_modules/rbd/systest.py send what they do.
SENT_AS = {("nvmf_create_target", "discovery_filter"): "string", ("bdev_rbd_create", "config"): "object",
           ("bdev_rbd_register_cluster", "config_param"): "object"}
# What doc/compat.md explains, and these tables do not show: values that are refused, and names that only older clients send. stock_rpc.py and the modules' tests try them.
NOT_IN_THE_TABLE = {("nvmf_create_subsystem", "max_discard_size_kib"),
                    ("nvmf_create_subsystem", "max_write_zeroes_size_kib")}


def is_integer_that_fits(kind, ours):
    """Whether no value of theirs is refused for its type alone."""
    bits, our_bits = (int(re.sub(r"\D", "", k)) for k in (kind, ours["type"]))
    return our_bits >= bits or ours.get("max", 0) > 0


def wrong_kind(kind, ours):
    """What is wrong with the type of a parameter of ours, or None."""
    if kind.startswith("one of "):
        values = kind.split()[2:]
        if ours["type"] == "string":
            return None
        return f"lacks {set(values) - set(ours.get('values', []))}" if set(values) - set(ours.get("values", [])) else None
    if kind in INTEGERS:
        return None if ours["type"] in INTEGERS and is_integer_that_fits(kind, ours) else f"is {ours['type']}, theirs is {kind}"
    return None if ours["type"] in KINDS[kind] else f"is {ours['type']}, theirs is {kind}"


def faults(method, theirs, ours, prefix=""):
    """What a client cannot give, or must give although it need not: [(parameter, what is wrong)]."""
    ours = {p["name"]: p for p in ours}
    found = [(prefix + name, "is required") for name, p in ours.items() if p.get("required") and name + "!" not in theirs]
    for key, kind in theirs.items():
        name = key.rstrip("!")
        if name not in ours:
            found.append((prefix + name, "is not there"))
        elif isinstance(kind, dict):
            found += faults(method, kind, ours[name].get("fields", []), f"{prefix}{name}.")
        else:
            why = wrong_kind(SENT_AS.get((method, prefix + name), kind), ours[name])
            found += [(prefix + name, why)] if why else []
            found += [(prefix + name, "takes one value only")] if "only" in ours[name] else []
    return found


def rows(heading):
    """The cells of each row of a table of doc/compat.md."""
    table = (TOP / "doc/compat.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")][2:]


def explained():
    """What doc/compat.md says of methods and parameters that are not there: sets of names of methods, where * stands for any end, and {method: names}."""
    methods = {name for row in rows("Methods that are not there") for name in re.findall(r"`(\w+\*?)`", row[0])}
    parameters = {}
    for row in rows("Parameters that are not there"):
        head, _, tail = row[0].partition(":")
        for method in re.findall(r"`(\w+)`", head):
            parameters.setdefault(method, set()).update(re.findall(r"`([\w.*]+)`", tail))
    return methods, parameters


def is_named(name, patterns):
    return any(name == p or p.endswith("*") and name.startswith(p[:-1]) for p in patterns)


def test_each_method_is_there_or_explained():
    patterns, _ = explained()
    with Daemon() as d:
        there = set(d.call("rpc_get_methods", include_aliases=True))
    methods = set(stock_methods())
    check(len(methods) > 200 and len(methods & there) > 150, f"{len(methods)} methods, {len(methods & there)} are there")
    forgotten = sorted(m for m in methods - there if not is_named(m, patterns))
    check(not forgotten, f"neither there nor in doc/compat.md: {forgotten}")
    unknown = [p for p in patterns if not any(is_named(m, [p]) for m in methods)]
    check(not unknown, f"doc/compat.md names what SPDK has not: {unknown}")
    present = [m for m in there if is_named(m, patterns)]
    check(not present, f"doc/compat.md says why they are not there, and they are: {present}")


def test_each_parameter_is_there_or_explained():
    _, excused = explained()
    used = set()
    with Daemon() as d:
        ours = {m["name"]: m["params"] for m in d.call("rpc_describe_methods")}
    found = []
    for method in sorted(set(stock_methods()) & set(ours)):
        for parameter, why in faults(method, stock_methods()[method], ours[method]):
            patterns = [p for p in excused.get(method, ()) if is_named(parameter, [p])]
            used.update((method, p) for p in patterns)
            found += [] if patterns else [f"{method}: {parameter} {why}"]
    check(not found, "\n".join(found))
    rest = {(m, p) for m, names in excused.items() for p in names} - used - NOT_IN_THE_TABLE
    check(not rest, f"doc/compat.md explains what is as in SPDK: {rest}")


def test_each_client_has_a_test_or_a_reason_why_not():
    clients = rows("Clients")
    check(len(clients) > 15 and all(len(row) == 5 and all(row) for row in clients), f"client, version, what, result, test: {clients}")
    for row in clients:
        names = [x for x in re.findall(r"`([\w/.]+)`", row[4]) if x.endswith((".py", ".sh", ".c"))]
        missing = [x for x in names if not (TOP / x).is_file() and not (TOP / "systest" / x).is_file()]
        check(not missing, f"{row[0]}: there is no {missing}")
        check(names or row[4].startswith("none: "), f"{row[0]}: no test, and no reason why not")


def test_each_liberal_decision_has_a_test_that_plays_the_host():
    hosts = rows("Hosts")
    check(len(hosts) > 4 and all(len(row) == 5 and all(row) for row in hosts), f"what, who, answer, why, test: {hosts}")
    for row in hosts:
        named = re.fullmatch(r"`(\w+\.py)`: `(test_\w+)`", row[4])
        check(named and f"\ndef {named[2]}(" in (TOP / "systest" / named[1]).read_text(), f"{row[0]}: there is no {row[4]}")


def test_the_checker_finds_what_is_wrong():
    ours = [{"name": "a", "type": "string", "required": True}, {"name": "n", "type": "uint8"}, {"name": "e", "type": "enum", "values": ["x", "y"]},
            {"name": "o", "type": "object", "fields": [{"name": "m", "type": "boolean", "only": False}]}]
    good = {"a!": "string", "n": "uint8", "e": "one of y x", "o": {}}
    check(faults("m", good, ours) == [], faults("m", good, ours))
    for change, wanted in (({"n": "uint16"}, "n"), ({"n": "string"}, "n"), ({"e": "one of x z"}, "e"), ({"more": "boolean"}, "more"), ({"o": {"m": "boolean"}}, "o.m"),
                           ({"o": {"k": "boolean"}}, "o.k")):
        check([p for p, _ in faults("m", {**good, **change}, ours)] == [wanted], f"{change}: {faults('m', {**good, **change}, ours)}")
    check(faults("m", {"a": "string"}, ours) == [("a", "is required")], "what must be given although it need not")


def test_what_a_target_of_spdk_refuses_in_a_saved_configuration_is_found():
    table = {"a!": "string", "n": "uint16", "i": "int32", "e": "one of x y", "u": "uuid", "l": "bitmask", "b": "boolean", "o": {"m!": "boolean"}}
    uuid = "11111111-2222-3333-4444-555555555555"
    good = {"a": "", "n": 65535, "i": -1, "e": "x", "u": uuid, "l": [], "b": False, "o": {"m": True}}
    check(refused_by(good, table) == [], refused_by(good, table))
    for change in ({"a": 1}, {"n": 65536}, {"n": -1}, {"n": True}, {"n": "1"}, {"i": 1 << 31}, {"i": -(1 << 31) - 1}, {"e": "z"}, {"u": uuid[1:]}, {"l": "x"}, {"b": 0}, {"o": {}},
                   {"o": {"m": 1}}, {"o": {"m": True, "k": 1}}, {"o": 1}, {"a": None}, {"more": 1}):
        found = refused_by({**good, **change}, table)
        check(len(found) == 1 and next(iter(change)) in found[0], f"{change}: {found}")
    check(refused_by({"a": ""}, table) == [] and refused_by({}, table) == ["a is required"], "what is required")


if __name__ == "__main__":
    main(sys.modules[__name__])
