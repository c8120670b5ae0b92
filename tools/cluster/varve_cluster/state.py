# SPDX-License-Identifier: BSD-3-Clause
"""What etcd says about a cluster, and what a gateway makes of it. Pure.

Keys, behind /varve/CLUSTER/: gateways/ID, which ends with the gateway's lease; groups/N: the owner and the token, a number that grows with each change
of the owner; moves/N: the gateway on which an operator wants a group
to be, as long as that gateway is there."""
import collections
import json
import re

from .etcd import EtcdError

Gateway = collections.namedtuple("Gateway", "id lease revision facts created", defaults=(0,))     # created: the revision at which it came
Group = collections.namedtuple("Group", "owner token revision", defaults=("", 0, 0))
Move = collections.namedtuple("Move", "to revision")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")     # of clusters and gateways
ADDRESS = ("trtype", "adrfam", "traddr", "trsvcid")        # of a listener
ADDRESS_MAX = 256       # of each of these fields
LISTENERS_MAX = 64      # of a gateway, of which hosts are told
CLIENTS_MAX = 64        # of a gateway, by which it is known to Ceph
CLIENT_MAX = 512        # of their addresses
NUMBER_MAX = 1 << 62
State = collections.namedtuple("State", "gateways groups moves")


def decode_object(entry):
    try:
        value = json.loads(entry.value)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise EtcdError(f"key {entry.key[:80]!r}: its value is no JSON object: {entry.value[:80]!r}")
    return value


def decode_field(entry, value, name, kind):
    field = value.get(name)
    good = isinstance(field, kind) and not isinstance(field, bool)
    if not good or (kind is int and not 0 <= field < NUMBER_MAX) or (kind is str and not field.isprintable()):
        raise EtcdError(f"key {entry.key[:80]!r}: {name} is {field!r:.80}, which is not of the kind {kind.__name__}")
    return field


def decode_name(entry, name):
    if not NAME.fullmatch(name):
        raise EtcdError(f"key {entry.key[:80]!r}: {name[:80]!r} is no name of a gateway")
    return name


def group_of(entry, name):
    if not (name.isascii() and name.isdigit() and len(name) <= 9):
        raise EtcdError(f"key {entry.key[:80]!r}: {name[:40]!r} is no ANA group")
    return int(name)


def decode_facts(entry):
    value = decode_object(entry)
    for name, kind in {"nqn": str, "min_cntlid": int, "max_cntlid": int, "namespaces": dict, "waits": dict}.items():
        decode_field(entry, value, name, kind)
    if not all(isinstance(x, str) and x.isprintable() for pair in value["waits"].items() for x in pair):
        raise EtcdError(f"key {entry.key[:80]!r}: waits has values that are no text")
    for nsid, ns in value["namespaces"].items():
        if not nsid.isprintable() or not isinstance(ns, dict):
            raise EtcdError(f"key {entry.key[:80]!r}: namespace {nsid[:40]!r} is no object")
        for name, kind in {"nguid": str, "anagrpid": int, "block_size": int, "blocks": int}.items():
            decode_field(entry, ns, name, kind)
    return value


def decode_state(entries):
    state = State({}, {}, {})
    for e in entries:
        kind, _, name = e.key.partition("/")
        if kind == "gateways":
            state.gateways[decode_name(e, name)] = Gateway(name, e.lease, e.mod_revision, decode_facts(e), e.create_revision)
        elif kind == "groups":
            value = decode_object(e)
            owner = decode_field(e, value, "owner", str)
            state.groups[group_of(e, name)] = Group(decode_name(e, owner) if owner else "", decode_field(e, value, "token", int), e.mod_revision)
        elif kind == "moves":
            state.moves[group_of(e, name)] = Move(decode_name(e, e.value), e.mod_revision)
        else:
            raise EtcdError(f"key {e.key[:80]!r} is not one of a cluster")
    return state


def printable(text):
    """What may stand in the facts of a gateway: decode_facts() refuses other text."""
    return "".join(c if c.isprintable() else "?" for c in text)[:400]


def is_address(value):
    """Another version may write more about an address."""
    return isinstance(value, dict) and all(isinstance(x, str) and x.isprintable() and len(x) <= ADDRESS_MAX for x in (value.get(name) for name in ADDRESS))


def addresses(facts):
    """Of a gateway's listeners; one of an earlier version does not tell them. What is no address is left out: no group depends on it."""
    listeners = facts.get("listeners")
    return {tuple(a[name] for name in ADDRESS) for a in (listeners[:LISTENERS_MAX] if isinstance(listeners, list) else []) if is_address(a)}


def is_client(value):
    return isinstance(value, str) and 0 < len(value) <= CLIENT_MAX and value.isascii() and value.isprintable() and " " not in value


def clients(facts):
    """Of Ceph, that a gateway is: their addresses. One of an earlier version, or with files, does not tell them."""
    found = facts.get("clients")
    return {c for c in (found[:CLIENTS_MAX] if isinstance(found, list) else []) if is_client(c)}


def has_all_clients(facts):
    """Whether clients() are all that it tells."""
    found = facts.get("clients")
    return not isinstance(found, list) or len(found) <= CLIENTS_MAX


def referred_to(state, me):
    """The addresses of other gateways, where hosts find their discovery services."""
    listeners = {g: addresses(gateway.facts) for g, gateway in state.gateways.items()}
    return set().union(*(found for g, found in listeners.items() if g != me)) - listeners.get(me, set())


def conflict(mine, other_id, other, sizes=True):
    """Why two gateways cannot serve one subsystem together; None: they can. sizes: these count, too; they differ for a moment when an image is resized."""
    if mine["nqn"] != other["nqn"]:
        return f"nqn: {mine['nqn']} here, {other['nqn']} on gateway {other_id}"
    if mine["min_cntlid"] <= other["max_cntlid"] and other["min_cntlid"] <= mine["max_cntlid"]:
        return (f"min_cntlid, max_cntlid: {mine['min_cntlid']} to {mine['max_cntlid']} here, {other['min_cntlid']} to {other['max_cntlid']} on gateway "
                f"{other_id}: they must be disjoint")
    for nsid in sorted(mine["namespaces"].keys() & other["namespaces"].keys()):
        here, there = mine["namespaces"][nsid], other["namespaces"][nsid]
        for name in ("nguid", "anagrpid", "block_size", *(("blocks",) if sizes else ())):
            if here[name] != there[name]:
                return f"{name} of namespace {nsid}: {here[name]} here, {there[name]} on gateway {other_id}: they must be the same"
    return None


def loads(state, groups):
    """How many of the groups each gateway has that is there."""
    counts = {g: 0 for g in state.gateways}
    for n in groups:
        owner = state.groups.get(n, Group()).owner
        if owner in counts:
            counts[owner] += 1
    return counts


def members(state, gateway, n):
    """The namespaces that a gateway has in a group."""
    return frozenset(nsid for nsid, ns in state.gateways[gateway].facts["namespaces"].items() if ns["anagrpid"] == n)


def fit(state, n, groups):
    """Of the gateways that have the same namespaces in a group as its owner has, or, if it has none, all that any gateway has: how many groups each has."""
    owner = state.groups.get(n, Group()).owner
    have = {g: members(state, g, n) for g in state.gateways}
    wanted = have.get(owner) or frozenset().union(*have.values())
    return {g: count for g, count in loads(state, groups).items() if wanted and have[g] == wanted}


def able(state, n, groups):
    """Those that could serve a group now."""
    return {g: count for g, count in fit(state, n, groups).items() if str(n) not in state.gateways[g].facts["waits"]}


def wanted_by(state, n, groups):
    """The gateway that should take a group which has no owner: where an operator wants it, or the one that has the fewest. If all wait for something, one of
    them tries it again."""
    counts = able(state, n, groups) or fit(state, n, groups)
    move = state.moves.get(n)
    if move is not None and move.to in counts:
        return move.to
    return min(counts, key=lambda g: (counts[g], g), default=None)


def is_free(state, n):
    """Whether a group's owner is not there, or has none of its namespaces: it was started again with others."""
    owner = state.groups.get(n, Group()).owner
    return owner not in state.gateways or not members(state, owner, n)


def to_give(state, me, groups, stay=()):
    """A group that I own and should hand over, and to whom; or None. stay: groups of mine that could not be handed over lately."""
    for n in sorted(groups):
        move = state.moves.get(n)
        if n not in stay and move is not None and move.to in able(state, n, groups) and state.groups.get(n, Group()).owner not in ("", move.to):
            return (n, move.to) if state.groups[n].owner == me else None
    if any(is_free(state, n) and fit(state, n, groups) for n in groups):
        return None
    have = loads(state, groups).get(me, 0)
    for n in sorted(groups, reverse=True):
        counts = able(state, n, groups)
        least = min(counts, key=lambda g: (counts[g], g), default=me)
        mine = state.groups.get(n, Group()).owner == me
        if mine and n not in stay and n not in state.moves and have - counts.get(least, have) >= 2:
            return n, least
    return None
