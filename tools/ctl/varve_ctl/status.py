# SPDX-License-Identifier: BSD-3-Clause
"""status: one screen of 24 lines and 80 columns."""
import json
import shutil
import sys
import time

from .client import clean, size_text

LINES = 24
FULL = 100              # per cent: what bdev_lvol_get_lvstores says of a full store
OLD_US = 10_000_000     # a command or a removal that takes longer is stuck
RECENT_US = 3600 * 1_000_000
ALERTS = ("bdev_slow_io", "bdev_nvme_lost", "bdev_nvme_failed", "bdev_nvme_health", "bdev_nvme_path_lost", "nvmf_keep_alive_expired", "nvmf_quiesce_late",
          "nvmf_auth_failed", "nvmf_host_refused", "config_refused", "appliance_not_taken_back")


def age_text(us):
    s = us / 1e6
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if s >= length:
            return f"{s / length:.0f} {unit}"
    return f"{s:.0f} s"


def count(n, noun):
    return f"{n} {noun}{'' if n == 1 else 's'}"


def look(client):
    """All that is shown, as one object."""
    s = {"state": client.call("appliance_get_state")}
    for key, method in (("reactors", "framework_get_reactors"), ("bdevs", "bdev_get_bdevs"), ("subsystems", "nvmf_get_subsystems"),
                        ("inflight", "nvmf_get_inflight"), ("qos_groups", "bdev_get_qos_groups"),
                        ("remote", "bdev_nvme_get_controllers"), ("stores", "bdev_lvol_get_lvstores")):
        s[key] = client.ask(method, [])
    s["reactors"] = s["reactors"].get("reactors", []) if isinstance(s["reactors"], dict) else []
    s["controllers"] = {x["nqn"]: client.ask("nvmf_subsystem_get_controllers", [], nqn=x["nqn"]) for x in s["subsystems"] if x.get("subtype") == "NVMe"}
    # Asynchronous Event Requests wait for events: that is their purpose.
    s["inflight"] = [c for c in s["inflight"] if (c.get("qid"), c.get("opcode")) != (0, 12)]
    events = client.ask("notify_get_notifications", [], all=True)
    now = time.time() * 1e6
    s["alerts"] = [e for e in events if e["type"] in ALERTS and now - e.get("time_us", 0) < RECENT_US]
    return s


def paths_of(controller):
    return controller.get("ctrlrs", [])


def problems(s):
    """What is wrong now, in words."""
    found = []
    if s["state"]["state"] != "RUNNING":
        found.append(f"it is in the state {s['state']['state']}")
    lost = s["state"].get("not_taken_back", 0)
    if lost:
        found.append(f"{count(lost, 'thing')} lost in a failed take-over (log: not taken back)")
    for b in s["bdevs"]:
        if b.get("state", "ready") != "ready" and b.get("state_us", 0) > OLD_US:
            found.append(f"bdev {b['name']} is {b['state']} for {age_text(b['state_us'])}")
    old = [c for c in s["inflight"] if c.get("age_us", 0) > OLD_US]
    if old:
        found.append(f"{count(len(old), 'command')} of hosts for more than {age_text(OLD_US)}")
    for c in s["remote"]:
        down = [p for p in paths_of(c) if p.get("state", "enabled") not in ("enabled", "connected")]
        if down:
            found.append(f"{c['name']}: {len(down)} of {count(len(paths_of(c)), 'path')} not connected")
    for x in s.get("stores", []):
        if x.get("space_reached") == FULL:
            found.append(f"volume store {x['name']} is full{' but for what is reserved' if x.get('reserved_clusters') else ': first writes to thin volumes fail'}")
        missing = x.get("reserved_missing_clusters", 0)
        if missing:
            found.append(f"volume store {x['name']}: {size_text(missing * x['cluster_size'])} that volumes reserved are not there")
        pages = x.get("reserved_missing_md_pages", 0)
        if pages:
            found.append(f"volume store {x['name']}: {count(pages, 'metadata page')} that volumes reserved are not there")
    return found


def store_lines(s):
    """Of volumes. Nothing, where there is no store."""
    stores = s.get("stores", [])
    lines = [f"  stores      {len(stores)}"] if stores else []
    for x in stores:
        total, free, reserved = (size_text(x.get(k, 0) * x["cluster_size"]) for k in ("total_data_clusters", "free_clusters", "reserved_clusters"))
        lines.append(f"              {x['name']}: {free} of {total} free{f', {reserved} of it reserved' if x.get('reserved_clusters') else ''}")
    return lines


def bdev_lines(s):
    served = {n.get("bdev_name", n.get("name")): (x["nqn"], n["nsid"]) for x in s["subsystems"] for n in x.get("namespaces", [])}
    total = sum(b["block_size"] * b["num_blocks"] for b in s["bdevs"])
    n_served = sum(b["name"] in served for b in s["bdevs"])
    lines = [f"  bdevs       {len(s['bdevs'])}, {size_text(total)}; {n_served} served"]
    for b in sorted(s["bdevs"], key=lambda b: (b["name"] not in served, b["name"])):
        to = "namespace %d of %s" % (served[b["name"]][1], served[b["name"]][0]) if b["name"] in served else "claimed by " + str(b.get("claimed_by")) if b.get("claimed") else "free"
        group = f"; QoS group {b['qos_group']}" if b.get("qos_group") else ""
        lines.append(f"              {b['name']:<12} {size_text(b['block_size'] * b['num_blocks']):>7}  {to}{group}")
    return lines


LIMITS = (("rw_ios_per_sec", "I/Os/s"), ("rw_mbytes_per_sec", "MiB/s"), ("r_mbytes_per_sec", "MiB/s read"), ("w_mbytes_per_sec", "MiB/s written"))


def qos_group_lines(s):
    """None, where there is no group."""
    lines = [f"  QoS groups  {len(s['qos_groups'])}"]
    for g in s["qos_groups"]:
        limits = ", ".join(f"{g[key]} {unit}" for key, unit in LIMITS if g[key]) or "no limit"
        lines.append(f"              {g['name']}: {limits}; {count(len(g['bdevs']), 'bdev')}; {g['waits']} I/Os have waited")
    return lines if s["qos_groups"] else []


def subsystem_lines(s):
    lines = [f"  subsystems  {len(s['controllers'])}"]
    for x in s["subsystems"]:
        if x.get("subtype") != "NVMe":
            continue
        where = ", ".join(f"{a['trtype']} {a['traddr']}:{a['trsvcid']}" for a in x["listen_addresses"]) or "no listener"
        lines.append(f"              {x['nqn']}: {count(len(x['namespaces']), 'namespace')}; {where}")
    return lines


def host_lines(s):
    hosts = {}
    for controllers in s["controllers"].values():
        for c in controllers:
            hosts.setdefault(c["hostnqn"], [0, 0])
            hosts[c["hostnqn"]][0] += 1
            hosts[c["hostnqn"]][1] += c.get("num_io_qpairs", 0)
    lines = [f"  hosts       {len(hosts)}; {count(len(s['inflight']), 'command')} outstanding"]
    return lines + [f"              {h}: {count(n, 'controller')}, {count(q, 'I/O queue')}" for h, (n, q) in sorted(hosts.items())]


def path_lines(s):
    all_paths = [(c["name"], p) for c in s["remote"] for p in paths_of(c)]
    lines = [f"  paths       {len(all_paths)}"]
    for name, p in all_paths:
        t = p.get("trid") or {}
        lines.append(f"              {name}: {t.get('trtype')} {t.get('traddr')}:{t.get('trsvcid')} {p.get('state', '')}")
    return lines


def alert_lines(s):
    now = time.time() * 1e6
    lines = [f"  alerts      {len(s['alerts'])} in the last hour"]
    return lines + [f"              {age_text(now - e['time_us'])} ago: {e['type']} {e['ctx']} {e.get('reason') or ''}" for e in reversed(s["alerts"])]


def fit(blocks, room):
    """Blocks of lines, of which each keeps its head; the longest are cut first, and say by how much."""
    limit = max(map(len, blocks))
    while sum(min(len(b), limit) for b in blocks) > room and limit > 1:
        limit -= 1
    lines = []
    for b in blocks:
        cut = len(b) > limit
        lines += b[:limit - 1 if cut and limit > 1 else limit]
        if cut and limit > 1:
            lines.append(f"              ... and {len(b) - limit + 1} more")
    return lines


def text_of(s, columns=80, lines=LINES):
    state, wrong = s["state"], problems(s)
    busy = [100 * r["busy"] / max(r["busy"] + r["idle"], 1) for r in s["reactors"]]
    head = [f"varve {state['version']}, process {state['pid']}, {state['state']} for {age_text(state['age_us'])}",
            f"  health      {'ok' if not wrong else count(len(wrong), 'problem') + '; varve-doctor -p ' + str(state['pid']) + ' says more'}"]
    cores = [f"  cores       {len(busy)}, busy {max(busy, default=0):.0f} % at most since the start"]
    blocks = [head + [f"              {w}" for w in wrong[:4]] + cores, bdev_lines(s), qos_group_lines(s), store_lines(s), subsystem_lines(s), host_lines(s), path_lines(s), alert_lines(s)]
    out = fit(blocks, lines - 1)
    return "\n".join(clean(line)[:columns].rstrip() for line in out)


def status(client, o):
    """0: all is well, 1: something is wrong."""
    s = look(client)
    if o.json:
        print(json.dumps({"problems": problems(s), **s}, indent=2))
    elif sys.stdout.isatty():
        size = shutil.get_terminal_size((80, LINES))
        print(text_of(s, size.columns, max(size.lines, LINES)))
    else:
        print(text_of(s))
    return 1 if problems(s) else 0
