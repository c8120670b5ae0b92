#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# beside
# limit: 60
"""Tracepoints and probes have the numbers, names and arguments that readers and scripts for SPDK know, stock_names.json, or doc/compat.md says why not. Unit tests hold
the pages that are read here against the program: usdt and trace/reference.c."""
import json
import re
import subprocess
import sys

from appliance_lib import TOP, VARVE, check, main

TABLE = json.loads((TOP / "systest/stock_names.json").read_text())


def cells(text):
    return [[c.strip() for c in line.strip().strip("|").split("|")] for line in text.splitlines() if line.startswith("| ") and "---" not in line][1:]


def sections(page, level):
    """{heading: text}"""
    return {s.split("\n", 1)[0]: s.split("\n", 1)[1] for s in re.split(rf"^{level} ", (TOP / page).read_text(), flags=re.M)[1:]}


def tracepoints():
    """{group: (number, {name: (number, whether it makes its object, arguments)})}"""
    found = {}
    for group, text in sections("doc/tracepoints.md", "##").items():
        if head := re.search(r"^Group (0x\w+), ", text, re.M):
            found[group] = int(head[1], 16), {name: (int(n), what.endswith("(new)"), args) for n, name, _, what, args, *_ in cells(text)}
    return found


def explained():
    row = next(line for line in (TOP / "doc/compat.md").read_text().splitlines() if line.startswith("| numbers, names and arguments of tracepoints"))
    return set(re.findall(r"`([A-Z_0-9]+)`", row))


def faults(group, theirs, number, ours, absent):
    """What is wrong with the tracepoints of a group."""
    found = [] if number == theirs["number"] else [f"group {group} is number {number}"]
    for name, (n, makes, args) in theirs["tracepoints"].items():
        if name in absent:
            found += [f"{k} has number {n} of {name}" for k, v in ours.items() if v[0] == n]
        elif name not in ours:
            found.append(f"{name} is neither there nor in doc/compat.md")
        elif ours[name][:2] != (n, makes) or not (ours[name][2] + ", ").startswith(args + ", " if args else ""):
            found.append(f"{name} is {ours[name]}, not {(n, makes, args)}")
    return found


def test_tracepoints():
    ours, absent = tracepoints(), explained()
    known = {name for g in TABLE["groups"].values() for name in g["tracepoints"]}
    check(len(known) > 50 and absent <= known, f"doc/compat.md names what SPDK has not: {absent - known}")
    found = [f for group, theirs in TABLE["groups"].items() for f in faults(group, theirs, *ours[group], absent)]
    found += [f"{name} is there: doc/compat.md says that it is not" for g in ours.values() for name in g[1] if name in absent]
    check(not found, "\n".join(found))


def test_objects_and_owners():
    for kind in ("objects", "owners"):
        ours = {name: (int(number, 16), prefix) for number, name, prefix, *_ in cells(sections("doc/tracepoints.md", "##")[kind.capitalize()])}
        wrong = {name: ours.get(name) for name, (number, prefix) in TABLE[kind].items() if ours.get(name) != (number, prefix or ours[name][1])}
        check(not wrong, f"{kind}: {wrong}")


def test_probes():
    """More arguments may follow those that scripts know."""
    notes = subprocess.run(["readelf", "-n", VARVE], capture_output=True, text=True, check=True).stdout
    ours = {name: len(args.split()) - 1 for name, args in re.findall(r"Provider: varve\n +Name: (\w+)\n.*\n +Arguments: (.*)", notes)}
    wrong = {name: ours.get(name) for name, n in TABLE["probes"].items() if ours.get(name, -1) < n}
    check(len(TABLE["probes"]) > 40 and not wrong, f"arguments that scripts know, and ours: {wrong}")


def test_the_checker_finds_what_is_wrong():
    theirs = {"number": 3, "tracepoints": {"A": [0, True, "x:int8"], "B": [1, False, ""], "GONE": [2, False, ""]}}
    good = {"A": (0, True, "x:int8, y:int4"), "B": (1, False, "z:int4")}
    check(faults("g", theirs, 3, good, {"GONE"}) == [], faults("g", theirs, 3, good, {"GONE"}))
    for number, change, absent in ((4, {}, {"GONE"}), (3, {"A": (1, True, "x:int8")}, {"GONE"}), (3, {"A": (0, False, "x:int8")}, {"GONE"}), (3, {"A": (0, True, "x:int80")}, {"GONE"}),
                                   (3, {"A": (0, True, "")}, {"GONE"}), (3, {"OTHER": (2, False, "")}, {"GONE"}), (3, {}, set())):
        check(len(faults("g", theirs, number, {**good, **change}, absent)) == 1, f"{number} {change} {absent}: {faults('g', theirs, number, {**good, **change}, absent)}")


if __name__ == "__main__":
    main(sys.modules[__name__])
