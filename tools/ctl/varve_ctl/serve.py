# SPDX-License-Identifier: BSD-3-Clause
"""serve, unserve: a file or bdev as a namespace of a subsystem of its own."""
import os
import re
import stat

from .client import Steps, Trouble, clean, quoted, size_of

PREFIX = "nqn.2026-11.io.varve:"
LOCAL = ("127.", "::1")


def find_bdev(client, what):
    """The bdev of that name, or with that file; None."""
    path = os.path.realpath(what)
    for b in client.call("bdev_get_bdevs"):
        files = [v.get("filename") for v in (b.get("driver_specific") or {}).values() if isinstance(v, dict)]
        if b["name"] == what or what in b.get("aliases", []) or path in [os.path.realpath(f) for f in files if f]:
            return b
    return None


def name_for(path):
    return re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.splitext(os.path.basename(path))[0]) or "file"


def removal_of(client, nqn, bdev_name, **tgt_name):
    """The calls that remove the namespace of a bdev, whose number the daemon knows."""
    return [("nvmf_subsystem_remove_ns", {"nqn": nqn, "nsid": n["nsid"], **tgt_name}) for s in client.call("nvmf_get_subsystems", **tgt_name)
            if s["nqn"] == nqn for n in s.get("namespaces", []) if n.get("bdev_name", n.get("name")) == bdev_name]


def make_file(path, size):
    """Makes a file without blocks, and says whether it did."""
    if os.path.exists(path):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
            raise Trouble(f"{path} is neither a file nor a block device")
        return False
    if size is None:
        raise Trouble(f"there is no bdev and no file \"{clean(path)}\"; --size 1G makes the file")
    length = size_of(size)
    with open(path, "xb") as f:
        f.truncate(length)
    return True


def make_bdev(client, steps, what, size):
    """The bdev's name. A file that was made here stays if a later step fails: it is said."""
    bdev = find_bdev(client, what)
    if bdev is not None:
        return bdev["name"]
    path = os.path.realpath(what)
    name = name_for(path)
    if any(name == b["name"] or name in b.get("aliases", []) for b in client.call("bdev_get_bdevs")):
        raise Trouble(f"{clean(path)} would be the bdev {name}, and another bdev has that name")
    if make_file(path, size):
        print(f"made {clean(path)}, {size.upper()}, without blocks")
    steps.do("bdev_uring_create", [("bdev_uring_delete", {"name": name})], name=name, filename=path)
    return name


def address_of(text):
    """ADDRESS, ADDRESS:PORT, [ADDRESS]:PORT."""
    m = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]+)\](?::(\d+))?|([^:]+)(?::(\d+))?|([0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)", text)
    if not m:
        raise Trouble(f"\"{clean(text)}\" is not an address such as 192.0.2.1, 192.0.2.1:4420 or [2001:db8::1]:4420", 2)
    host = m[1] or m[3] or m[5]
    return host, m[2] or m[4] or "4420", "IPv6" if ":" in host else "IPv4"


def serve(client, o):
    host, port, family = address_of(o.address)
    trtype = "RDMA" if o.rdma else "TCP"
    if not o.host and not o.any_host and not host.startswith(LOCAL):
        raise Trouble(f"who may connect to {host}? --host NQN (may be repeated), or --any-host", 2)
    with Steps(client) as steps:
        name = make_bdev(client, steps, o.what, o.size)
        nqn = o.nqn or PREFIX + name
        if not any(t["trtype"] == trtype for t in client.call("nvmf_get_transports")):
            steps.do("nvmf_create_transport", trtype=trtype)
        have = next((s for s in client.call("nvmf_get_subsystems") if s["nqn"] == nqn), None)
        if have is None:
            open_to_all = o.any_host or not o.host
            steps.do("nvmf_create_subsystem", [("nvmf_delete_subsystem", {"nqn": nqn})], nqn=nqn, allow_any_host=open_to_all)
            have = {"hosts": [], "namespaces": [], "listen_addresses": [], "allow_any_host": open_to_all}
        said = let_in(steps, o, nqn, have)
        if name not in [n.get("bdev_name", n.get("name")) for n in have["namespaces"]]:
            steps.do("nvmf_subsystem_add_ns", lambda: removal_of(client, nqn, name), nqn=nqn, namespace={"bdev_name": name})
        where = {"trtype": trtype, "adrfam": family, "traddr": host, "trsvcid": port}
        if not any(all(str(a.get(k, "")).lower() == v.lower() for k, v in where.items()) for a in have["listen_addresses"]):
            steps.do("nvmf_subsystem_add_listener", [("nvmf_subsystem_remove_listener", {"nqn": nqn, "listen_address": where})], nqn=nqn, listen_address=where)
        changed = bool(steps.steps)
    if said:
        print(said)
    print(clean(f"{name} is {'' if changed else 'already '}served as {nqn} at {trtype} {host} port {port}"))
    # People copy these into a shell.
    print(f"  nvme connect -t {trtype.lower()} -a {quoted(host)} -s {port} -n {quoted(nqn)}")
    print(f"  varve-perf -r {quoted(f'trtype:{trtype} adrfam:{family} traddr:{host} trsvcid:{port} subnqn:{nqn}')} -w randrw --verify -t 2")


def let_in(steps, o, nqn, have):
    """Lets in the hosts that are named, before the others are shut out. What is said if the subsystem was open, or closed, until now."""
    for h in o.host:
        if h not in [x["nqn"] for x in have["hosts"]]:
            steps.do("nvmf_subsystem_add_host", [("nvmf_subsystem_remove_host", {"nqn": nqn, "host": h})], nqn=nqn, host=h)
    wanted = True if o.any_host else False if o.host else have["allow_any_host"]
    if wanted == have["allow_any_host"]:
        return ""
    steps.do("nvmf_subsystem_allow_any_host", [("nvmf_subsystem_allow_any_host", {"nqn": nqn, "allow_any_host": not wanted})],
             "" if wanted else f"connections of other hosts to {nqn}", nqn=nqn, allow_any_host=wanted)
    if wanted:
        return clean(f"{nqn} was closed: any host may connect to it now")
    hosts = sorted({x["nqn"] for x in have["hosts"]} | set(o.host))
    return clean(f"{nqn} was open to any host: only {', '.join(hosts)} may connect to it now")


def made_for(bdev, what):
    """A bdev that was named by its file was made for it; one that was named as such stays."""
    return bdev is not None and bdev["name"] != what and os.path.exists(what) and "uring" in (bdev.get("driver_specific") or {})


def unserve(client, o):
    bdev = find_bdev(client, o.what)
    name = bdev["name"] if bdev is not None else None
    found = [(s, n) for s in client.call("nvmf_get_subsystems") for n in s.get("namespaces", [])
             if s["nqn"] == o.what or (name is not None and n.get("bdev_name", n.get("name")) == name)]
    if not found:
        print(f"{clean(o.what)} is not served")
    nqns = sorted({s["nqn"] for s, _ in found})
    hosts = sorted({c["hostnqn"] for q in nqns for c in client.call("nvmf_subsystem_get_controllers", nqn=q)})
    if hosts and not o.force:
        raise Trouble(f"{len(hosts)} host{'s are' if len(hosts) > 1 else ' is'} connected, and would lose it: {clean(', '.join(hosts))}; --force does it all the same")
    done = []
    try:
        for q in nqns:
            mine = [n for s, n in found if s["nqn"] == q]
            everything = next(s for s, _ in found if s["nqn"] == q)["namespaces"]
            if len(mine) == len(everything):
                client.call("nvmf_delete_subsystem", nqn=q)
                done.append(f"subsystem {q}")
                continue
            for n in mine:
                client.call("nvmf_subsystem_remove_ns", nqn=q, nsid=n["nsid"])
                done.append(f"namespace {n['nsid']} of {q}")
        if made_for(bdev, o.what):
            # Its namespaces had a claim; who has one now needs the bdev for something else.
            user = next((b.get("claimed_by") or "somebody" for b in client.call("bdev_get_bdevs", name=name) if b["claimed"]), None)
            if user is not None and not o.force:
                raise Trouble(f"the bdev {clean(name)} stays: it is claimed by {clean(user)}, which would lose it; --force removes it all the same")
            client.call("bdev_uring_delete", name=name)
            done.append(f"bdev {name} (its file stays)")
    finally:
        for d in done:
            print(f"removed: {clean(d)}")
