# SPDX-License-Identifier: BSD-3-Clause
"""diff, apply: a configuration file against the running one. Entries are calls; those that both have in common are left out."""
import json
import re

from .client import Steps, Trouble, clean, words_of
from .serve import removal_of

IDENTITY = ("name", "base_name", "nqn", "trtype", "traddr", "trsvcid", "listen_address", "host", "hostnqn", "subnqn", "nsid", "anagrpid", "impl_name")
# Of some methods one more parameter does, also if only one of two calls has it.
IDENTITY_OF = {"nvmf_subsystem_add_peer": "path", "nvmf_discovery_add_referral": "address", "nvmf_subsystem_set_qos_limit": "host"}
# How a call is taken back: the method, and which of its parameters name the object.
INVERSE = {
    "bdev_delay_create": ("bdev_delay_delete", ("name",)),
    "nvmf_create_subsystem": ("nvmf_delete_subsystem", ("nqn",)),
    "nvmf_subsystem_add_host": ("nvmf_subsystem_remove_host", ("nqn", "host")),
    "nvmf_subsystem_add_listener": ("nvmf_subsystem_remove_listener", ("nqn", "listen_address")),
    "bdev_malloc_create": ("bdev_malloc_delete", ("name",)),
    "bdev_null_create": ("bdev_null_delete", ("name",)),
    "bdev_uring_create": ("bdev_uring_delete", ("name",)),
    "bdev_aio_create": ("bdev_aio_delete", ("name",)),
    "bdev_passthru_create": ("bdev_passthru_delete", ("name",)),
    "bdev_rbd_create": ("bdev_rbd_delete", ("name",)),
    "bdev_rbd_register_cluster": ("bdev_rbd_unregister_cluster", ("name",)),
    "bdev_qos_group_create": ("bdev_qos_group_delete", ("name",)),
    "metrics_start": ("metrics_stop", ()),
    "keyring_file_add_key": ("keyring_file_remove_key", ("name",)),
    "nvmf_ns_add_host": ("nvmf_ns_remove_host", ("nqn", "nsid", "host")),
    "nvmf_subsystem_add_peer": ("nvmf_subsystem_remove_peer", ("nqn", "path")),
    "nvmf_discovery_add_referral": ("nvmf_discovery_remove_referral", ("address", "subnqn")),
}
# What of a path of a controller tells it from the others.
PATH = ("name", "trtype", "adrfam", "traddr", "trsvcid", "subnqn", "hostaddr", "hostsvcid")
# What comes back with the object when its removal is undone, but without this.
LOST = {"bdev_malloc_create": "the data of {name}", "nvmf_create_subsystem": "connections and reservations of hosts at {nqn}",
        "nvmf_subsystem_add_ns": "reservations of {namespace[bdev_name]}"}
HOST_LIMIT = "nvmf_subsystem_set_qos_limit"            # of a host, with its minimums, or of all hosts of a subsystem together
GUARANTEES = ("bdev_set_qos_group", HOST_LIMIT)         # minimums, which add up to no more than a limit that another call sets
ANA_STATE = "nvmf_subsystem_listener_set_ana_state"     # of a group
# Each saved configuration has them, and they make nothing.
PASSING = ("bdev_wait_for_examine",)
COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.S)


def without_comments(text):
    """Comments become blanks, so that the places in messages stay right."""
    return COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)


def agrees(part, whole):
    """Whether whole has all of part. What is off, 0 or empty may be left out."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(agrees(v, whole[k]) if k in whole else is_off(v) for k, v in part.items())
    return part == whole


def is_off(value):
    return all(map(is_off, value.values())) if isinstance(value, dict) else value in (False, 0, "")


def flat(entries):
    for e in entries or []:
        if isinstance(e, list):
            yield from flat(e)
        else:
            yield e


def merge(into, more):
    for k, v in more.items():
        if isinstance(v, dict) and isinstance(into.get(k), dict):
            merge(into[k], v)
        else:
            into[k] = v


def overlap(a, b):
    return all(overlap(a[k], b[k]) if isinstance(a[k], dict) and isinstance(b[k], dict) else a[k] == b[k] for k in a.keys() & b.keys())


def as_saved(e):
    """A QoS group is saved without its limits, which have a call of their own. An ANA state that SPDK's targets lack is in a parameter of its own, and ana_state takes it."""
    p = e["params"]
    if "own_ana_state" in p:
        return [{**e, "params": {**{k: v for k, v in p.items() if k != "own_ana_state"}, "ana_state": p["own_ana_state"]}}]
    if e["method"] != "bdev_qos_group_create" or p.keys() <= {"name"}:
        return [e]
    return [{**e, "params": {k: v for k, v in p.items() if k == "name"}}, {"method": "bdev_qos_group_set_limit", "params": p}]


def read(path):
    """The entries of a file, those under "varve" joined to the ones that they belong to."""
    try:
        with open(path, encoding="utf-8") as f:
            tree = json.loads(without_comments(f.read()))
        entries = {s["subsystem"]: list(flat(s.get("config"))) for s in tree["subsystems"]}
        for section in tree.get("varve", []):
            known, taken = entries.setdefault(section["subsystem"], []), []
            others = list(known)    # not those of the section itself, which may differ in what one of them lacks
            for own in section["config"]:
                at = next((e for e in others if e["method"] == own["method"] and id(e) not in taken and "params" in e
                           and overlap(own.get("params", {}), e["params"])), None)
                if at is None:
                    known.append(own)
                else:
                    merge(at["params"], own.get("params", {}))
                    taken.append(id(at))
        found = [{"method": e["method"], "params": e.get("params") or {}} for part in entries.values() for e in part if e["method"] not in PASSING]
        if not all(isinstance(e["method"], str) and isinstance(e["params"], dict) for e in found):
            raise TypeError
        return [x for e in found for x in as_saved(e)]
    except OSError as e:
        raise Trouble(f"{path}: {e.strerror}", 2) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise Trouble(f"{path}: {e if isinstance(e, ValueError) else 'it does not have the form of a configuration'}; `varve --check {path}` says more", 2) from None


def takes_whole(client):
    """A daemon that is older says everything anyway."""
    methods = client.ask("rpc_describe_methods", [])
    return any(m["name"] == "framework_get_config" and any(p["name"] == "whole" for p in m.get("params", [])) for m in methods)


def running(client):
    """With what is as usual: a file may have that, too."""
    whole = {"whole": True} if takes_whole(client) else {}
    found = [{"method": e["method"], "params": e.get("params") or {}} for s in client.call("framework_get_subsystems")
             for e in flat(client.call("framework_get_config", name=s["subsystem"], **whole)) if e["method"] not in PASSING]
    return [x for e in found for x in as_saved(e)]


def own_identity(entry):
    """The parameter of IDENTITY_OF; one that is off may be left out."""
    value = entry["params"].get(IDENTITY_OF.get(entry["method"]))
    return None if value is None or is_off(value) else value


def same_object(a, b):
    if a["method"] != b["method"]:
        return False
    keys = [k for k in IDENTITY if k in a["params"] and k in b["params"]]
    both = [(a["params"][k], b["params"][k]) for k in keys]
    if a["method"] == "nvmf_subsystem_add_ns":
        both.append((a["params"].get("namespace", {}).get("bdev_name"), b["params"].get("namespace", {}).get("bdev_name")))
    both.append((own_identity(a), own_identity(b)))
    return a["params"].get("tgt_name") == b["params"].get("tgt_name") and all(agrees(x, y) for x, y in both)


def compare(wanted, now):
    """(added, changed, gone): entries of the file without a running one, pairs that differ, running ones without an entry."""
    left, added, changed = list(now), [], []
    for w in wanted:
        exact = next((n for n in left if n["method"] == w["method"] and agrees(own_identity(w), own_identity(n)) and agrees(w["params"], n["params"])), None)
        near = exact or next((n for n in left if same_object(w, n)), None)
        if near is None:
            added.append(w)
            continue
        left.remove(near)
        if exact is None:
            changed.append((w, near))
    return added, changed, left


def sets_options(entry):
    return "_set_" in entry["method"]


def bdevs_of(entry):
    """A pattern for the names of the bdevs that an entry makes."""
    return re.compile(re.escape(str(entry["params"].get("name"))) + (r"(n\d+)?" if entry["method"] == "bdev_nvme_attach_controller" else ""))


def is_listener_of(entry, group_state):
    """Whether an entry makes the listener that an ANA group has a state of its own at."""
    return (entry["method"] == "nvmf_subsystem_add_listener" and subsystem_of(entry) == subsystem_of(group_state)
            and overlap(entry["params"]["listen_address"], group_state["params"]["listen_address"]))


def stays(setting, gone):
    """Whether what it is set for stays (a bdev and its QoS group; a listener): otherwise it ends anyway."""
    p = setting["params"]
    if subsystem_of(setting):
        return not any((setting["method"] == ANA_STATE and is_listener_of(g, setting)) or
                       g["method"] == "nvmf_create_subsystem" and subsystem_of(g) == subsystem_of(setting) for g in gone)
    return not any(g["params"].get("name") == p.get("group") if g["method"] == "bdev_qos_group_create" else
                   g["method"].startswith("bdev_") and g["method"].endswith(("_create", "_attach_controller")) and bdevs_of(g).fullmatch(str(p.get("name"))) for g in gone)


def differences(wanted, now):
    """As compare(), but options that the file does not name are not gone: the daemon has them anyway. That a bdev is in a QoS group is no option, nor is the limit of a
    host, nor the state of an ANA group, which has that of the listener otherwise."""
    added, changed, gone = compare(wanted, now)
    return added, changed, [g for g in gone if (stays(g, gone) if g["method"] in (*GUARANTEES, ANA_STATE) else not sets_options(g)) and g["method"] != "nvmf_create_transport"]


def only_different(w, n):
    return {k: v for k, v in w["params"].items() if not agrees({k: v}, n["params"])}


def setting(w, n):
    """(what to call w with so that the running n becomes it, the undo, what that does not bring back). One of an object is sent whole."""
    new, object_of = only_different(w, n), {k: v for k, v in w["params"].items() if k in IDENTITY}
    send, old = (w["params"], n["params"]) if object_of else (new, {k: n["params"][k] for k in new if k in n["params"]})
    unknown = [k for k in new if k not in n["params"]]
    lost = f"{', '.join(unknown)} of {words_of(w['method'], object_of)}" if unknown and old else ""
    return send, [(n["method"], old)] if old else None, lost


def show(added, changed, gone):
    for g in gone:
        print(f"- {words_of(g['method'], g['params'])}")
    for w, n in changed:
        old = {k: n["params"].get(k) for k in only_different(w, n)}
        print(f"~ {words_of(w['method'], w['params'])}\n    now: {clean(json.dumps(old))}")
    for a in added:
        print(f"+ {words_of(a['method'], a['params'])}")


def diff(client, o):
    """0: the same, 1: they differ."""
    parts = differences(read(o.file), running(client))
    show(*parts)
    return 1 if any(parts) else 0


def inverse(client, entry):
    """The calls that take an entry back: a list, or a function that finds them; None: it is not known how."""
    p = entry["params"]
    tgt_name = {k: p[k] for k in ("tgt_name",) if k in p}
    if entry["method"] == "nvmf_subsystem_add_ns":
        return lambda: removal_of(client, p["nqn"], p["namespace"]["bdev_name"], **tgt_name)
    if entry["method"] == "bdev_nvme_attach_controller":
        return [("bdev_nvme_detach_controller", {k: p[k] for k in PATH if k in p})]
    if entry["method"] == "bdev_enable_histogram":
        return [(entry["method"], {"name": p["name"], "enable": False})]
    if entry["method"] == "bdev_set_qos_group":
        return [(entry["method"], {"name": p["name"], "group": ""})]
    if entry["method"] == HOST_LIMIT:
        rates = [k for k in p if k.endswith("_per_sec")]
        return [(HOST_LIMIT, {**{k: p[k] for k in ("nqn", "host", "tgt_name") if k in p}, **dict.fromkeys(rates, 0)})] if rates else None
    method, keys = INVERSE.get(entry["method"], (None, ()))
    return [(method, {**{k: p[k] for k in keys}, **tgt_name})] if method and all(k in p for k in keys) else None


def subsystem_of(entry):
    """Of a subsystem, or of a part of one: which."""
    p = entry["params"]
    return (p.get("tgt_name"), p["nqn"]) if entry["method"].startswith("nvmf_") and "nqn" in p else None


def removal(client, entry, now):
    """As inverse(), of a running entry: its namespace has its number, and its ANA group a listener with a state."""
    p = entry["params"]
    if entry["method"] == ANA_STATE:
        return [(ANA_STATE, {**p, "ana_state": n["params"]["ana_state"]}) for n in now if is_listener_of(n, entry)]
    if entry["method"] == "nvmf_subsystem_add_ns":
        return [("nvmf_subsystem_remove_ns", {**{k: v for k, v in p.items() if k in ("nqn", "tgt_name")}, "nsid": p["namespace"]["nsid"]})]
    return inverse(client, entry)


def group_of(entry):
    """Of a setting of a QoS group, or of a bdev in one: which."""
    key = {"bdev_qos_group_set_limit": "name", "bdev_set_qos_group": "group"}.get(entry["method"])
    return entry["params"].get(key) if key else None


def with_it(entry, now):
    """What the daemon forgets when a running entry is taken back, in the order in which it comes back."""
    if entry["method"] == "nvmf_create_subsystem":
        return [n for n in now if subsystem_of(n) == subsystem_of(entry)]
    if not entry["method"].startswith("bdev_") or entry["method"] == "bdev_set_qos_group":
        return [entry]
    if entry["method"] == "bdev_qos_group_create":
        return [entry] + [n for n in now if group_of(n) == entry["params"]["name"]]
    names = bdevs_of(entry)
    return [entry] + [n for n in now if sets_options(n) and n["method"].startswith("bdev_") and names.fullmatch(str(n["params"].get("name", "")))]


def removals(client, gone, now):
    """[(calls, their undo, what that does not bring back)] for what runs and is not in the file, last first. A subsystem takes its parts with it."""
    dead = {subsystem_of(g) for g in gone if g["method"] == "nvmf_create_subsystem"}
    # The same for QoS groups, which go before their bdevs do.
    groups = {g["params"]["name"] for g in gone if g["method"] == "bdev_qos_group_create"}
    others = [n for n in now if n["method"] != "bdev_qos_group_set_limit" and group_of(n) not in groups]
    mine = [g for g in reversed(gone) if g["method"] == "nvmf_create_subsystem" or subsystem_of(g) not in dead]
    plan = [(removal(client, g, now), [(n["method"], n["params"]) for n in with_it(g, now if g["method"] == "bdev_qos_group_create" else others)], LOST.get(g["method"], "").format(**g["params"])) for g in mine]
    unknown = [words_of(g["method"], g["params"]) for g, (calls, _, _) in zip(mine, plan) if calls is None]
    if unknown:
        raise Trouble(f"it is not known how to take this back: {'; '.join(unknown)}. Nothing was done")
    return plan


def first_half(w, n):
    """Of minimums that change, or of a membership: the parameters with which a bdev leaves its group, or with which a bdev or host gives up minimums that are no longer
    guaranteed to it. This is always possible once all groups are there, and makes room for what limits, other bdevs and other hosts are to have."""
    p, old = w["params"], n["params"]
    if p.get("group", old.get("group")) != old.get("group"):
        return {"name": p["name"], "group": p["group"]} | ({k: 0 for k in p if k.startswith("min_")} if p["group"] else {})
    return {**old, **{k: min(v, old.get(k, 0)) for k, v in p.items() if k.startswith("min_")}}


def has_minimums(entry):
    """Whether a setting may guarantee something, of which there is a limit: to a bdev in a QoS group, or to a host."""
    return entry["method"] in GUARANTEES and (entry["method"] != HOST_LIMIT or own_identity(entry) is not None)


def changes(added, changed, dropped):
    """[(method, params, undo, what that does not bring back)] for all but what is made anew. Limits, QoS groups, their bdevs and hosts change in an order in which the
    minimums never add up to more than the limits, neither on the way there nor back. dropped: the groups that have been removed."""
    members = [(w, n, first_half(w, n)) for w, n in changed if has_minimums(w)]
    new = [a for a in added if a["method"] == "bdev_qos_group_create"]
    limits = [a for a in added if a["method"] == "bdev_qos_group_set_limit"]
    for a in new:
        yield a["method"], a["params"], inverse(None, a), ""
        for x in limits:
            if x["params"].get("name") == a["params"].get("name"):
                yield x["method"], x["params"], [], ""      # it goes again with its group
    for w, n, half in members:
        if half != n["params"]:
            yield w["method"], half, [(n["method"], {"name": w["params"]["name"], "group": ""} if n["params"].get("group") in dropped else n["params"])], ""
    for w, n in changed:
        if not has_minimums(w):
            params, undo, lost = setting(w, n)
            yield w["method"], params, undo, lost
    for a in limits:
        if all(a["params"].get("name") != g["params"].get("name") for g in new):
            yield a["method"], a["params"], None, ""
    for w, n, half in members:
        if not agrees(w["params"], half):
            yield w["method"], w["params"], [(n["method"], half)], ""


def apply(client, o):
    now = running(client)
    added, changed, gone = differences(read(o.file), now)
    fixed = [(w, n) for w, n in changed if not sets_options(w)]
    show(added, changed, gone if o.prune else [])
    if fixed:
        raise Trouble(f"{len(fixed)} of these cannot be changed while they exist (marked ~): remove them first, or restart with -c {o.file}. Nothing was done")
    if not (added or changed or (gone and o.prune)):
        print("nothing to do")
    if gone and not o.prune:
        print(f"{len(gone)} running and not in {o.file}: --prune removes them")
    plan = removals(client, gone, now) if o.prune else []
    allowed = set(client.call("rpc_get_methods", current=True, include_aliases=True))
    methods = [e["method"] for e in added + [w for w, _ in changed]] + [method for calls, _, _ in plan for method, _ in calls]
    late = [m for m in methods if m not in allowed]
    if late:
        raise Trouble(f"only at start-up, or not in this daemon: {', '.join(sorted(set(late)))}. Nothing was done")
    if o.dry_run:
        return 0
    with Steps(client) as steps:
        for calls, undo, lost in plan:
            for method, params in calls:
                steps.do(method, undo, lost, **params)
        dropped = {g["params"]["name"] for g in gone if g["method"] == "bdev_qos_group_create" and o.prune}
        for method, params, undo, lost in changes(added, changed, dropped):
            steps.do(method, undo, lost, **params)
        for a in added:
            if not a["method"].startswith("bdev_qos_group_"):
                steps.do(a["method"], inverse(client, a), **a["params"])
    return 0


