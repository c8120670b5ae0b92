# SPDX-License-Identifier: BSD-3-Clause
"""connect, disconnect: controllers of other targets."""
from .client import Trouble, clean
from .serve import address_of


def controllers(client):
    return client.call("bdev_nvme_get_controllers")


def has_path(controller, where):
    return any(all(str((c.get("trid") or {}).get(k, "")).lower() == v.lower() for k, v in where.items()) for c in controller["ctrlrs"])


def connect(client, o):
    host, port, family = address_of(o.address)
    where = {"trtype": "RDMA" if o.rdma else "TCP", "adrfam": family, "traddr": host, "trsvcid": port, "subnqn": o.nqn}
    now = controllers(client)
    have = next((c for c in now if has_path(c, where)), None)
    if have is not None:
        print(f"{have['name']} is connected already")
        return
    names = {c["name"] for c in now}
    name = o.name or next(f"Nvme{i}" for i in range(len(names) + 1) if f"Nvme{i}" not in names)
    bdevs = client.call("bdev_nvme_attach_controller", name=name, **where)
    print(f"{name}: {'another path' if name in names else 'bdevs ' + clean(', '.join(bdevs)) if bdevs else 'connected; it has no namespace for this host'}")


def users_of(client, controllers_of_it):
    """{bdev: its user, in words} for those of the bdevs of a controller that somebody would lose."""
    mine = {b for c in controllers_of_it["ctrlrs"] for b in c.get("bdevs", [])}
    served = {n.get("bdev_name", n.get("name")): f"served by {s['nqn']}" for s in client.ask("nvmf_get_subsystems", []) for n in s.get("namespaces", [])}
    claimed = {b["name"]: f"claimed by {b.get('claimed_by')}" for b in client.call("bdev_get_bdevs") if b["claimed"]}
    return {b: user for b, user in sorted({**claimed, **served}.items()) if b in mine}


def disconnect(client, o):
    have = next((c for c in controllers(client) if c["name"] == o.name), None)
    if have is None:
        print(f"{clean(o.name)} is not connected")
        return
    lost = users_of(client, have)
    if lost and not o.force:
        raise Trouble(clean(", ".join(f"{b} is {user}" for b, user in lost.items())) + "; --force disconnects all the same")
    client.call("bdev_nvme_detach_controller", name=o.name)
    print(f"{o.name} is disconnected")
