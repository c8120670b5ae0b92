# SPDX-License-Identifier: BSD-3-Clause
"""diff, apply: a configuration file against the running one. Entries are calls; those that both have in common are left out."""
import json
import re

from .client import Steps, Trouble, clean, words_of
from .serve import removal_of

IDENTITY = ("name", "base_name", "nqn", "trtype", "traddr", "trsvcid", "listen_address", "host", "hostnqn", "subnqn")
# How a call is taken back: the method, and which of its parameters name the object.
INVERSE = {
    "bdev_nvme_attach_controller": ("bdev_nvme_detach_controller", ("name",)),
    "bdev_delay_create": ("bdev_delay_delete", ("name",)),
    "nvmf_create_subsystem": ("nvmf_delete_subsystem", ("nqn",)),
    "nvmf_subsystem_add_host": ("nvmf_subsystem_remove_host", ("nqn", "host")),
    "nvmf_subsystem_add_listener": ("nvmf_subsystem_remove_listener", ("nqn", "listen_address")),
    "bdev_malloc_create": ("bdev_malloc_delete", ("name",)),
    "bdev_null_create": ("bdev_null_delete", ("name",)),
    "bdev_uring_create": ("bdev_uring_delete", ("name",)),
    "bdev_aio_create": ("bdev_aio_delete", ("name",)),
    "bdev_passthru_create": ("bdev_passthru_delete", ("name",)),
}
COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|#[^\n]*|/\*.*?\*/', re.S)


def without_comments(text):
    """Comments become blanks, so that the places in messages stay right."""
    return COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)


def agrees(part, whole):
    """Whether whole has all of part."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(k in whole and agrees(v, whole[k]) for k, v in part.items())
    return part == whole


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


def read(path):
    """The entries of a file, those under "varve" joined to the ones that they belong to."""
    try:
        with open(path, encoding="utf-8") as f:
            tree = json.loads(without_comments(f.read()))
        entries = {s["subsystem"]: list(flat(s.get("config"))) for s in tree["subsystems"]}
        for section in tree.get("varve", []):
            known, taken = entries.setdefault(section["subsystem"], []), []
            for own in section["config"]:
                at = next((e for e in known if e["method"] == own["method"] and id(e) not in taken and "params" in e
                           and overlap(own.get("params", {}), e["params"])), None)
                if at is None:
                    known.append(own)
                else:
                    merge(at["params"], own.get("params", {}))
                    taken.append(id(at))
        found = [{"method": e["method"], "params": e.get("params") or {}} for part in entries.values() for e in part]
        if not all(isinstance(e["method"], str) and isinstance(e["params"], dict) for e in found):
            raise TypeError
        return found
    except OSError as e:
        raise Trouble(f"{path}: {e.strerror}", 2) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise Trouble(f"{path}: {e if isinstance(e, ValueError) else 'it does not have the form of a configuration'}; `varve --check {path}` says more", 2) from None


def running(client):
    return [{"method": e["method"], "params": e.get("params") or {}} for s in client.call("framework_get_subsystems")
            for e in flat(client.call("framework_get_config", name=s["subsystem"]))]


def same_object(a, b):
    if a["method"] != b["method"]:
        return False
    keys = [k for k in IDENTITY if k in a["params"] and k in b["params"]]
    both = [(a["params"][k], b["params"][k]) for k in keys]
    if a["method"] == "nvmf_subsystem_add_ns":
        both.append((a["params"].get("namespace", {}).get("bdev_name"), b["params"].get("namespace", {}).get("bdev_name")))
    return all(agrees(x, y) for x, y in both)


def compare(wanted, now):
    """(added, changed, gone): entries of the file without a running one, pairs that differ, running ones without an entry."""
    left, added, changed = list(now), [], []
    for w in wanted:
        exact = next((n for n in left if n["method"] == w["method"] and agrees(w["params"], n["params"])), None)
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


def differences(wanted, now):
    """As compare(), but options that the file does not name are not gone: the daemon has them anyway."""
    added, changed, gone = compare(wanted, now)
    return added, changed, [g for g in gone if not sets_options(g) and g["method"] != "nvmf_create_transport"]


def only_different(w, n):
    return {k: v for k, v in w["params"].items() if n["params"].get(k) != v}


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
    method, keys = INVERSE.get(entry["method"], (None, ()))
    return [(method, {**{k: p[k] for k in keys}, **tgt_name})] if method and all(k in p for k in keys) else None


def remove(client, steps, gone):
    """Takes back what runs and is not in the file, last first: a subsystem takes its parts with it."""
    dead = {g["params"].get("nqn") for g in gone if g["method"] == "nvmf_create_subsystem"}
    for g in reversed(gone):
        if g["method"] != "nvmf_create_subsystem" and g["method"].startswith("nvmf_") and g["params"].get("nqn") in dead:
            continue
        calls = inverse(client, g)
        if calls is None:
            raise Trouble(f"it is not known how to take this back: {words_of(g['method'], g['params'])}")
        for method, params in calls() if callable(calls) else calls:
            steps.do(method, [(g["method"], g["params"])], **params)


def apply(client, o):
    added, changed, gone = differences(read(o.file), running(client))
    fixed = [(w, n) for w, n in changed if not sets_options(w)]
    show(added, changed, gone if o.prune else [])
    if fixed:
        raise Trouble(f"{len(fixed)} of these cannot be changed while they exist (marked ~): remove them first, or restart with -c {o.file}. Nothing was done")
    if not (added or changed or (gone and o.prune)):
        print("nothing to do")
    if gone and not o.prune:
        print(f"{len(gone)} running and not in {o.file}: --prune removes them")
    if o.dry_run:
        return 0

    allowed = set(client.call("rpc_get_methods", current=True, include_aliases=True))
    late = [e["method"] for e in added + [w for w, _ in changed] if e["method"] not in allowed]
    if late:
        raise Trouble(f"only at start-up, or not in this daemon: {', '.join(sorted(set(late)))}. Nothing was done")
    with Steps(client) as steps:
        if o.prune:
            remove(client, steps, gone)
        for w, n in changed:
            steps.do(w["method"], [(n["method"], {k: n["params"][k] for k in only_different(w, n) if k in n["params"]})], **only_different(w, n))
        for a in added:
            steps.do(a["method"], inverse(client, a), **a["params"])
    return 0


