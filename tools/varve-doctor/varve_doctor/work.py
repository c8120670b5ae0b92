# SPDX-License-Identifier: BSD-3-Clause
"""Checks by RPC: the load of the reactors, and I/O that does not end."""
from . import program, rpc
from .control import PINNED, is_reactor
from .report import seconds

SHOWN = 5
BUSY = 0.95
FULL = 100              # per cent: what bdev_lvol_get_lvstores says of a full store


def reactors(client):
    answer = client.call("framework_get_reactors")
    return {rpc.member(r, "lcore", int): r for r in rpc.objects(rpc.member(answer, "reactors", list), "reactors")}


def pollers(client):
    """{(thread, poller id): poller}"""
    found = {}
    for t in rpc.objects(rpc.member(client.call("thread_get_pollers"), "threads", list), "threads"):
        for kind in ("active_pollers", "timed_pollers"):
            for p in rpc.objects(t.get(kind, []), kind):
                found[rpc.member(t, "name", str), rpc.member(p, "id", int)] = p
    return found


def share_busy(before, after):
    busy, idle = (rpc.member(after, k, int) - rpc.member(before, k, int) for k in ("busy", "idle"))
    return busy / (busy + idle) if busy + idle > 0 else 0.0


def busiest(before, after, threads):
    """The poller of these threads that found work most often meanwhile: (thread, name, rounds with work, rounds)."""
    best = ("", "", 0, 0)
    for key, p in after.items():
        b = before.get(key)
        if b is None or key[0] not in threads:
            continue
        busy, runs = (rpc.member(p, k, int) - rpc.member(b, k, int) for k in ("busy_count", "run_count"))
        if busy > best[2]:
            best = (key[0], rpc.member(p, "name", str), busy, runs)
    return best


class Sample:
    """The reactors over a while."""

    def __init__(self, process, client, interval_s):
        before, polled = reactors(client), pollers(client)
        self.cpu = {t.tid: share for t, share in process.cpu_shares(interval_s) if is_reactor(t)}
        self.after, polled_after = reactors(client), pollers(client)
        self.busy = {n: share_busy(before[n], r) if n in before else 0.0 for n, r in self.after.items()}
        self.polled = polled, polled_after

    def why(self, reactor):
        names = {x.get("name") for x in rpc.objects(reactor.get("lw_threads", []), "lw_threads")}
        thread, poller, busy, runs = busiest(*self.polled, names)
        return (f"poller {poller} of thread {thread} found work in {busy} of {runs} rounds" if busy else
                "no poller found work: it is messages or descriptors")


def check_reactors(report, process, client, interval_s):
    s = Sample(process, client, interval_s)
    if any(share > BUSY for share in s.busy.values()):
        s = Sample(process, client, interval_s)         # one burst is not a habit
    mode = client.call("appliance_get_state").get("poll_mode", "")
    words = []
    for lcore, r in sorted(s.after.items()):
        used = s.cpu.get(rpc.member(r, "tid", int), 0.0)
        words.append(f"{lcore}: {s.busy[lcore]:.0%} busy, {used:.0%} of a CPU")
        if s.busy[lcore] > BUSY:
            report.found("reactors", f"reactor {lcore} is {s.busy[lcore]:.0%} busy: {s.why(r)}",
                         f"varve-rpc thread_get_pollers, twice; perf top -t {r['tid']}; nvmf_get_stats says whether it is I/O")
        elif used > PINNED and mode != "busy" and not r.get("in_interrupt"):
            words[-1] += " (polling all the time: some poller has no descriptor to wait for, or I/O comes and goes)"
    report.ok("reactors", f"{'; '.join(words)}" + ("; polling is what --poll-mode busy is" if mode == "busy" else ""))


def group_text(first, n):
    whose = f"host {first['hostnqn']}, qid {first['qid']}, cid {first['cid']}" if first.get("hostnqn") else "a host that has not connected yet"
    where = f"LBA {first['lba']}, {first['num_blocks']} blocks, " if first.get("num_blocks") else ""
    return (f"{first.get('command', 'a command')} of {whose}: {where}{seconds(first['age_us'])} old, {first['state']}, waits for "
            f"{first.get('waits_for') or 'nothing known'}{f' (and {n - 1} more like it)' if n > 1 else ''}")


def check_commands(report, process, client, old_us):
    """Finds NVMe-oF commands that do not end."""
    inflight = rpc.objects(client.call("nvmf_get_inflight"), "nvmf_get_inflight")
    for r in inflight:
        rpc.member(r, "age_us", int), rpc.member(r, "state", str)
    old = [r for r in inflight if r["age_us"] > old_us and r["state"] != "HELD"]
    groups = {}
    for r in sorted(old, key=lambda r: -r["age_us"]):
        groups.setdefault((r.get("hostnqn"), r["state"], r.get("nsid"), r.get("waits_for")), []).append(r)
    for same in list(groups.values())[:SHOWN]:
        report.found("I/O", group_text(same[0], len(same)),
                     program.gdb_line(process.pid, "varve_inflight", f"varve_trace 50 {same[0].get('object', '')}"))
    if not old:
        report.ok("I/O", f"{len(inflight)} NVMe-oF commands outstanding, none for long")
    return inflight


def check_changes(report, client, old_us):
    """Finds changes of subsystems that do not end."""
    n, old = 0, []
    for name in client.call("nvmf_get_targets"):
        for s in rpc.objects(client.call("nvmf_get_subsystems", tgt_name=name), "nvmf_get_subsystems"):
            for c in rpc.objects(s.get("changes", []), "changes"):
                n += 1
                if rpc.member(c, "age_us", int) > old_us:
                    old.append((s.get("nqn"), c))
    for nqn, c in sorted(old, key=lambda x: -x[1]["age_us"])[:SHOWN]:
        report.found("changes", f"{c.get('change')} of {nqn} has not ended for {seconds(c['age_us'])}: it waits for {c.get('waits_for')}",
                     "varve-rpc nvmf_get_inflight shows the commands; varve-rpc nvmf_get_subsystems all changes")
    if not old:
        report.ok("changes", f"{n} changes of subsystems under way, none for long")


def check_buffers(report, client, inflight):
    waiting = [r for r in inflight if r.get("waits_for") == "data buffer"]  # of whichever transport
    stats = rpc.objects(rpc.member(client.call("nvmf_get_stats"), "poll_groups", list), "poll_groups")
    ever = sum(rpc.member(t, "pending_data_buffer", int) for g in stats for t in rpc.objects(g.get("transports", []), "transports"))
    if waiting:
        oldest = max(r["age_us"] for r in waiting)
        report.found("buffers", f"{len(waiting)} commands wait for data buffers, the oldest for {seconds(oldest)}; "
                     f"there were {ever} such waits",
                     "nvmf_create_transport with more num_shared_buffers; varve-rpc nvmf_get_inflight shows who holds them")
    else:
        report.ok("buffers", f"no command waits for a data buffer; {ever} ever did")


def check_bdev_io(report, process, client, old_us, known):
    """Finds I/O of block devices that does not end and does not belong to those commands."""
    n, old = 0, []
    for b in rpc.objects(client.call("bdev_get_inflight"), "bdev_get_inflight"):
        for io in rpc.objects(rpc.member(b, "inflight", list), "inflight"):
            n += 1
            if rpc.member(io, "age_us", int) > old_us:
                old.append((rpc.member(b, "name", str), io))
    old.sort(key=lambda x: -x[1]["age_us"])
    mine = [x for x in old if x[1].get("ctx") not in known]
    for name, io in mine[:SHOWN]:
        report.found("bdev I/O", f"{io.get('type')} of bdev {name}, block {io.get('offset_blocks')}: {seconds(io['age_us'])} old, state "
                     f"{io.get('state')}", program.gdb_line(process.pid, f"varve_bdev_io {io.get('io')}"))
    if len(mine) > SHOWN:
        report.found("bdev I/O", f"and {len(mine) - SHOWN} more as old", "varve-rpc bdev_get_inflight")
    if old and not mine:
        report.found("bdev I/O", f"those commands are with bdev {', '.join(sorted({n for n, _ in old}))} (state "
                     f"{', '.join(sorted({str(io.get('state')) for _, io in old}))})", "varve-rpc bdev_get_inflight; the log of that device")
    if not old:
        report.ok("bdev I/O", f"{n} outstanding, none for long")


def check_controllers(report, client):
    """Finds controllers of the NVMe driver that are not connected."""
    bad, n = [], 0
    for b in rpc.objects(client.call("bdev_nvme_get_controllers"), "bdev_nvme_get_controllers"):
        for c in rpc.objects(b.get("ctrlrs", []), "ctrlrs"):
            n += 1
            state = str(c.get("state", "")).lower()
            if state not in ("", "enabled", "ready", "up"):
                bad.append(f"{b.get('name')}: {state}{', ' + str(c['last_error']) if c.get('last_error') else ''}")
    if bad:
        report.found("controllers", "; ".join(bad[:SHOWN]), "varve-rpc bdev_nvme_get_controllers")
    elif n:
        report.ok("controllers", f"{n} of the NVMe driver, all usable")


def reserved_of(s, name="reserved_clusters"):
    """A number of clusters or pages. An older varve does not tell of them: 0."""
    return rpc.member({name: 0} | s, name, int)


def store_text(s):
    total, free, size = (rpc.member(s, k, int) for k in ("total_data_clusters", "free_clusters", "cluster_size"))
    reserved = reserved_of(s)
    kept = f", {reserved} reserved for volumes" if reserved else ""
    return f"volume store {s.get('name')} on bdev {s.get('base_bdev')}: {free} of {total} clusters free ({free * size >> 20} MiB), without those on their way back{kept}"


def check_stores(report, client):
    """Finds volume stores without room for first writes, or with little. Not every varve has the module."""
    if "bdev_lvol_get_lvstores" not in client.call("rpc_get_methods"):
        return
    stores = rpc.objects(client.call("bdev_lvol_get_lvstores"), "bdev_lvol_get_lvstores")
    bad = [s for s in stores if rpc.member(s, "space_reached", int)]
    for s in sorted(bad, key=lambda s: -s["space_reached"])[:SHOWN]:
        full = f"it is full: first writes to thin volumes fail{', but for what is reserved' if reserved_of(s) else ''}"
        what = full if s["space_reached"] == FULL else f"its threshold of {s['space_reached']} % is reached"
        report.found("stores", f"{store_text(s)}; {what}",
                     f"varve-rpc bdev_lvol_get_lvols lvs_name={s.get('name')}: delete volumes or snapshots, or enlarge its bdev and bdev_lvol_grow_lvstore")
    if len(bad) > SHOWN:
        report.found("stores", f"and {len(bad) - SHOWN} more", "varve-rpc bdev_lvol_get_lvstores")
    broken = [s for s in stores if reserved_of(s, "reserved_missing_clusters")]
    for s in broken[:SHOWN]:
        report.found("stores", f"{store_text(s)}; {s['reserved_missing_clusters']} of the reserved ones are not there: another program has filled the store",
                     f"varve-rpc bdev_lvol_get_lvols lvs_name={s.get('name')}: delete volumes or snapshots, or reserve less (bdev_lvol_set_reservation)")
    few = [s for s in stores if reserved_of(s, "md_pages") and reserved_of(s, "free_md_pages") <= reserved_of(s, "reserved_md_pages")]
    for s in few[:SHOWN]:
        free, pages, kept, missing = (reserved_of(s, k) for k in ("free_md_pages", "md_pages", "reserved_md_pages", "reserved_missing_md_pages"))
        gone = f", and {missing} of these are not there: another program, or an older varve, has filled the store" if missing else ""
        report.found("stores", f"{store_text(s)}; {free} of {pages} metadata pages are free, and volumes reserve {kept}{gone}: new volumes, snapshots and some first writes fail",
                     f"varve-rpc bdev_lvol_get_lvols lvs_name={s.get('name')}: delete volumes or snapshots, or reserve nothing for some (bdev_lvol_set_reservation)")
    if stores and not bad and not broken and not few:
        report.ok("stores", f"{len(stores)} volume stores, none has reached a threshold of space")


def check_rekeys(report, client):
    """Finds crypto bdevs that are half of them encrypted with the old key, and do not get on."""
    if "bdev_crypto_rekey" not in client.call("rpc_get_methods"):
        return
    halves = []
    for b in rpc.objects(client.call("bdev_get_bdevs"), "bdev_get_bdevs"):
        crypto = rpc.member(b, "driver_specific", dict).get("crypto")
        if isinstance(crypto, dict) and "rekey" in crypto:
            halves.append((rpc.member(b, "name", str), rpc.member(crypto, "rekey", dict)))
    idle = [(name, r) for name, r in halves if rpc.member(r, "state", str) in ("stopped", "failed")]
    for name, r in idle[:SHOWN]:
        why = f": {r['error']}" if r.get("error") else ""
        report.found("rekeys", f"the rekey of bdev {name} has {'failed' if r['state'] == 'failed' else 'been stopped'} at block {rpc.member(r, 'position_blocks', int)} of "
                     f"{rpc.member(r, 'num_blocks', int)}{why}",
                     f"varve-rpc bdev_crypto_rekey name={name} key_name={r.get('key_name')} journal_bdev_name={r.get('journal_bdev_name')} goes on with it")
    if len(idle) > SHOWN:
        report.found("rekeys", f"and {len(idle) - SHOWN} more", "varve-rpc bdev_get_bdevs")
    if halves and not idle:
        report.ok("rekeys", f"{len(halves)} under way; their journals are needed until they have ended")


def integrity_faults(b):
    """What is wrong with an integrity bdev, and what helps."""
    name, on = b.get("name"), f"bdev {b.get('name')} on bdev {b.get('base_bdev_name')}"
    if rpc.member(b, "read_only", bool):
        yield f"{on} is read-only: its checksums cannot be written", f"bdev_get_bdevs name={b.get('base_bdev_name')}; the log has the error; writes are tried again, and it is writable when one succeeds"
    wrong = rpc.member(b, "errors", int)
    if wrong:
        yield f"{on}: {wrong} reads have found wrong data", f"bdev_integrity_scrub_start name={name}; the log has the blocks: write them again, from a copy, and look at the base's device"
    pages = rpc.member(b, "checksum_pages_wrong", int)
    if pages:
        yield f"{on}: {pages} pages of checksums were wrong, and what they are for is not checked", f"bdev_integrity_get_bdevs name={name}; look at the base's device"


def check_integrity(report, client):
    """Finds bdevs whose data do not match their checksums. Not every varve has the module."""
    if "bdev_integrity_get_bdevs" not in client.call("rpc_get_methods"):
        return
    bdevs = rpc.objects(client.call("bdev_integrity_get_bdevs"), "bdev_integrity_get_bdevs")
    faults = [fault for b in bdevs for fault in integrity_faults(b)]
    for text, advice in faults[:SHOWN]:
        report.found("integrity", text, f"varve-rpc {advice}")
    if len(faults) > SHOWN:
        report.found("integrity", f"and {len(faults) - SHOWN} more", "varve-rpc bdev_integrity_get_bdevs")
    if bdevs and not faults:
        report.ok("integrity", f"{len(bdevs)} bdevs with checksums, nothing wrong was read")


def check_tracing(report, client):
    info = client.call("trace_get_info")
    if not isinstance(info, dict):
        raise rpc.BadAnswer("trace_get_info: the answer is no object")
    on = [name for name, g in info.items() if isinstance(g, dict) and str(g.get("tpoint_mask", "0x0")) not in ("0x0", "0")]
    stats = client.call("trace_get_stats")
    lost = sum(stats.get(k, 0) for k in ("no_slot", "threads_refused", "owner_table_full") if isinstance(stats.get(k), int))
    if not on:
        transports = ", ".join(sorted(name for name in info if name.startswith("nvmf_")))
        report.ok("tracing", f"nothing is recorded; for I/O: varve-rpc trace_enable_tpoint_group name=bdev (and {transports})")
    else:
        report.ok("tracing", f"{', '.join(on)} recorded; {lost} events not recorded for want of a place")


def ask(report, what, check):
    """Runs a check. An answer that makes no sense ends only this check."""
    try:
        check(report)
    except rpc.Refused as e:
        report.found(what, str(e), "the daemon has ended, or closed its socket: varve-doctor again")
    except rpc.BadAnswer as e:
        report.unknown(what, str(e))
    except (AttributeError, KeyError, TypeError, ValueError) as e:
        report.unknown(what, f"an answer makes no sense ({type(e).__name__})")
