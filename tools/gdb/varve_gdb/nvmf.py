# SPDX-License-Identifier: BSD-3-Clause
"""The NVMe-oF target: subsystems, controllers, queue pairs."""
import gdb

from . import command, ticks, transport
from .command import survive, table
from .memory import Unreadable, check_pointer, enum_name, follow, number, read, string, walk
from .program import static

SUBSYSTEMS_MAX = 1 << 16
NAMESPACES_MAX = 1 << 16
SUBTYPES = {1: "discovery", 2: "NVMe"}
EVERY_NS = (1 << 32) - 1


def targets():
    return walk(static("tgts", "nvmf/tgt.c"), "link", "targets")


def groups(target):
    return walk(target["groups"], "link", "poll groups")


def qpairs(group):
    return walk(group["qpairs"], "group_link", "queue pairs of a poll group")


def array(first, count, most, what):
    """(index, element) of an array of pointers with holes."""
    if number(first) == 0:
        return
    if count > most:
        raise Unreadable(f"there cannot be {count} {what}")
    check_pointer(number(first), f"the array of {what}")
    for i in range(count):
        element = follow(first[i], f"number {i} of the {what}")
        if element is not None:
            yield i, element


def subsystems(target):
    return (s for _, s in array(target["subsystems"], number(target["max_subsystems"]), SUBSYSTEMS_MAX, "subsystems"))


def all_subsystems():
    for target in targets():
        yield from subsystems(target)


def namespaces(subsystem):
    return (n for _, n in array(subsystem["ns"], number(subsystem["max_nsid"]), NAMESPACES_MAX, "namespaces"))


def controllers(subsystem):
    return walk(subsystem["ctrlrs"], "link", f"controllers of {string(subsystem['nqn'])}")


def subsystem_state(s):
    return enum_name(s["state"], "enum nvmf_subsystem_state", "NVMF_SUBSYSTEM_")


def qpair_state(q):
    return enum_name(q["state"], "enum nvmf_qpair_state", "NVMF_QPAIR_")


def address_text(a):
    return f"{string(a['trtype'])} {string(a['traddr'])}:{string(a['trsvcid'])}"


def subnqn_of(qpair):
    """The subsystem a connected queue pair belongs to."""
    view = follow(qpair["view"], "a queue pair's view")
    if view is None:
        return ""
    return string(follow(view["subsystem"], "a view's subsystem")["nqn"])


def print_subsystems(_):
    """NVMe-oF subsystems: NQN, id, state, namespaces, controllers, listeners."""
    rows = []
    for s in survive(all_subsystems()):
        try:
            rows.append((number(s["index"]), SUBTYPES.get(number(s["subtype"]), "?"), subsystem_state(s),
                         sum(1 for _ in namespaces(s)), sum(1 for _ in controllers(s)),
                         ", ".join(address_text(follow(x["listen"])["address"]) for x in walk(s["listeners"], "link", "listeners")) or "-",
                         string(s["nqn"])))
        except Unreadable as e:
            print(f"error: subsystem at {int(s.address):#x}: {e}")
    print(f"NVMe-oF subsystems: {len(rows)}")
    table(("id", "type", "state", "namespaces", "controllers", "listens on", "NQN"), rows)


def print_views(s):
    """Each poll group's view of the subsystem, which shows what delays a change."""
    target = follow(s["tgt"], "its target")
    for group in survive(groups(target)):
        if number(group["views"]) == 0:
            continue
        view = follow(group["views"][number(s["index"])], "a view")
        if view is None:
            continue
        state = enum_name(view["state"], "enum nvmf_view_state", "NVMF_VIEW_")
        name = string(follow(group["thread"], "a poll group's thread")["name"])
        print(f"    on {name}: {state}, commands held back {number(view['num_paused'])}")
        for i in range(min(number(view["max_nsid"]), NAMESPACES_MAX)):
            ns = follow(view["ns"][i], "a namespace's view")
            if ns is not None:
                print(f"        namespace {number(ns['nsid'])}: outstanding {number(ns['outstanding'])}"
                      f"{', paused' if number(ns['paused']) else ''}")


def changes_begun(s):
    """The changes that are under way."""
    return [op for op in walk(s["ops"], "link", "changes") if number(op["begun"])]


def print_change(s):
    """The changes that are under way, and what they wait for."""
    for op in changes_begun(s):
        kind = enum_name(op["kind"], "enum nvmf_op_kind", "NVMF_OP_").lower()
        print(f"    change under way: {kind}, nsid {number(op['nsid'])}; views that have not drained: {number(op['pending_views'])}")
    waiting = sum(1 for op in walk(s["ops"], "link", "changes") if not number(op["begun"]))
    if waiting:
        print(f"    changes that wait: {waiting}")


def print_subsystem(name):
    """All about the subsystem NQN (or a part of it): hosts, listeners, namespaces, controllers, the poll groups' views."""
    found = [s for s in survive(all_subsystems()) if name in string(s["nqn"])]
    exact = [s for s in found if string(s["nqn"]) == name]
    if not found:
        raise gdb.GdbError(f"No subsystem's NQN contains \"{name}\"; varve_print_nvmf_subsystems shows all.")
    at, _ = ticks.now()
    for s in exact or found:
        print(f"{string(s['nqn'])}: id {number(s['index'])}, struct nvmf_subsystem at {int(s.address):#x}")
        print(f"    state {subsystem_state(s)} for {ticks.age(s['state_ticks'], at)}")
        print(f"    serial number {string(s['serial_number'])}, model {string(s['model_number'])}")
        hosts = [string(h["nqn"]) for h in survive(walk(s["hosts"], "link", "hosts"))]
        print(f"    hosts: {'any' if number(s['allow_any_host']) else ', '.join(hosts) or 'none'}")
        for x in survive(walk(s["listeners"], "link", "listeners")):
            print(f"    listens on {address_text(follow(x['listen'])['address'])}")
        for n in survive(namespaces(s)):
            print(f"    namespace {number(n['nsid'])}: bdev {string(follow(n['bdev'], 'its bdev')['name'])}")
        for c in survive(controllers(s)):
            state = enum_name(c["state"], "enum nvmf_ctrlr_state", "NVMF_CTRLR_")
            print(f"    controller {number(c['cntlid'])}: {state} for {ticks.age(c['state_ticks'], at)}, "
                  f"I/O queue pairs {number(c['num_io_qpairs'])}, keep-alive {atomic(c['kato_ms'])} ms, host {string(c['hostnqn'])}")
        print_change(s)
        print_views(s)


def atomic(value):
    """An _Atomic integer: gdb reads it like any other."""
    return int.from_bytes(read(int(value.address), value.type.sizeof), "little")


def all_qpairs():
    """(group's thread, queue pair)"""
    for target in targets():
        for group in groups(target):
            name = string(follow(group["thread"], "a poll group's thread")["name"])
            for q in qpairs(group):
                yield name, q


def print_qpairs(_):
    """Queue pairs of the target: where they are, state and for how long, and what their transport shows of them: connection, commands."""
    at, _ = ticks.now()
    rows, columns = [], []
    for name, q in survive(all_qpairs()):
        try:
            owner = transport.of_qpair(q)
            texts = owner.values(q) if owner is not None else {}
            columns += [c for c in texts if c not in columns]
            rows.append(((name, number(q["qid"]), qpair_state(q), ticks.age(q["state_ticks"], at)), texts,
                         (address_text(q["peer_address"]), string(q["hostnqn"]) or "-", subnqn_of(q) or "-", f"{int(q.address):#x}")))
        except Unreadable as e:
            print(f"error: queue pair at {int(q.address):#x}: {e}")
    print(f"Queue pairs: {len(rows)}")
    table(("thread", "qid", "state", "for", *columns, "host address", "host", "subsystem", "struct nvmf_qpair"),
          [(*before, *(texts.get(c, "-") for c in columns), *behind) for before, texts, behind in rows])


def register():
    command.add(command.both("print_nvmf_subsystems"), print_subsystems)
    command.add(("varve_subsystem",), print_subsystem, "NQN")
    command.add(("varve_qpairs",), print_qpairs)
