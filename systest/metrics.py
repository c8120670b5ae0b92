#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 240
# sanitize
# beside
"""Metrics: the format, what is told, and clients that mean no good."""
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time

from appliance_lib import BUILD, DEADLINE, Daemon, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target, wait_io

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\d+(?:\.\d+)?)\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\Z)')


def parse_labels(text):
    labels = {}
    while text:
        m = LABEL.match(text)
        check(m and m[1] not in labels and not m[1].startswith("__"), text)
        labels[m[1]] = re.sub(r"\\(.)", lambda e: "\n" if e[1] == "n" else e[1], m[2])
        text = text[m.end():]
    return labels


def parse(text):
    """The exposition format 0.0.4, and the conventions that promtool holds against: {name: [(labels, value)]}."""
    check(text.endswith("\n") and "\r" not in text, "lines")
    families, name, seen = {}, None, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, help_text = line[7:].split(" ", 1)
            check(NAME.match(name) and name not in families and help_text, line)
            families[name] = []
        elif line.startswith("# TYPE "):
            kind = line.removeprefix(f"# TYPE {name} ")
            check(kind in ("counter", "gauge", "histogram") and not families[name], line)
            check((kind == "counter") == name.endswith("_total"), line)
        else:
            m = SAMPLE.match(line)
            check(m and m[1] in ([name + s for s in ("_bucket", "_sum", "_count")] if kind == "histogram" else [name]), line)
            labels = parse_labels(m[2]) if m[2] is not None else {}
            key = (m[1], tuple(sorted(labels.items())))
            check(key not in seen, f"twice: {line}")
            seen.add(key)
            families.setdefault(m[1], []).append((labels, float(m[3])))
    return families


def value(families, name, **labels):
    found = [v for have, v in families[name] if all(have.get(k) == w for k, w in labels.items())]
    check(len(found) == 1, f"{name} {labels}: {families[name]}")
    return found[0]


def scrape(address):
    """What a client nobody here wrote makes of it."""
    c = http.client.HTTPConnection(address, timeout=DEADLINE)
    c.request("GET", "/metrics")
    r = c.getresponse()
    body = r.read().decode()
    check(r.status == 200 and r.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", r.headers)
    c.close()
    return body


def scrape_anew(t, address):
    """One that was collected after the call: a scrape may be given again for a second."""
    age = t.call("appliance_get_state")["age_us"] / 1e6
    families = lambda: parse(scrape(address))
    return wait_for(lambda: next((f for f in [families()] if f["varve_state_age_seconds"][0][1] >= age), None), "a scrape of now")


def connect(address):
    host, port = address.rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=DEADLINE)
    return s


def ask(address, data):
    """Everything that comes back."""
    with connect(address) as s:
        s.sendall(data)
        answer = b""
        try:
            while chunk := s.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
        return answer.decode()


def test_the_format_is_what_prometheus_reads():
    with Target("--metrics", "127.0.0.1:0") as t:
        address = t.call("metrics_get_status")["address"]
        t.add_malloc('odd"name\\')
        t.add_malloc("M0")
        t.add_ns("M0", nsid=1)
        text = scrape(address)
        families = parse(text)
        check(value(families, "varve_state", state="RUNNING") == 1, "state")
        check(value(families, "varve_bdev_size_bytes", bdev='odd"name\\') == 16 << 20, "an odd name")
        check(value(families, "varve_nvmf_subsystem_namespaces", subsystem=NQN) == 1, "namespaces")
        check({labels["result"] for labels, _ in families["varve_nvme_fences_ended_total"]} >= {"disabled", "cross_reset", "time", "not_waited"} and
              value(families, "varve_nvme_fences") == 0, "fences")
        machines = {m["name"]: m["violations"] for m in t.call("framework_get_state_machines")}
        told = {labels["machine"]: v for labels, v in families["varve_state_violations_total"]}
        check("appliance" in machines and told == machines and not any(told.values()), f"{told} against {machines}")
        for prefix in ("varve_reactor_", "varve_thread_", "varve_poller_", "varve_bdev_", "varve_nvmf_", "varve_trace_"):
            check([f for f in families if f.startswith(prefix) and families[f]], prefix)
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            print("SKIP metrics.prometheus_client: python3-prometheus-client is not installed")
            return
        theirs = {s.name: s for f in text_string_to_metric_families(text) for s in f.samples}
        check({n for n in families if families[n]} <= set(theirs), set(families) - set(theirs))


def test_the_numbers_are_those_of_the_rpcs():
    with Target("-e", "bdev") as t:
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.call("bdev_delay_create", base_bdev_name="EE_M0", name="D0", avg_read_latency=2000, p99_read_latency=2000,
               avg_write_latency=0, p99_write_latency=0)
        t.add_ns("D0", nsid=1)
        check(t.call("metrics_get_status")["address"] is None, "off by default")
        address = t.call("metrics_start", address="127.0.0.1:0")
        perf = None
        for _ in range(5):
            with Host(t, "-w", "randread", "-t", "3600", "-q", "4", nsid=1) as h:
                wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 100, "some I/O")
                if not h.is_running():
                    continue
                wait_for(lambda: value(parse(scrape(address)), "varve_bdev_queue_depth", bdev="D0") > 0, "I/O in flight")
                families = parse(scrape(address))
                check(value(families, "varve_nvmf_host_io_queue_pairs", host=HOSTNQN) >= 1, "the host")
                check(sum(v for _, v in families["varve_nvmf_queue_pairs"]) >= 2, "queue pairs")
                wait_for(lambda: parse(scrape(address))["varve_nvmf_requests"], "requests by state")
                t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="failure", num=1)
                wait_for(lambda: parse(scrape(address))["varve_bdev_errors_total"], "an error")
                perf = h.stop()
                break
        t.wait_empty()
        stat = next(b for b in t.call("bdev_get_iostat", name="D0")["bdevs"])
        wait_for(lambda: value(parse(scrape(address)), "varve_bdev_ios_total", bdev="D0", op="read") == stat["num_read_ops"],
                 f"{stat['num_read_ops']} reads")
        families = scrape_anew(t, address)
        check(value(families, "varve_bdev_bytes_total", bdev="D0", op="read") == stat["bytes_read"], "bytes")
        check(value(families, "varve_bdev_failed_total", bdev="M0") == 0, "the disk is well")
        failed = value(families, "varve_bdev_failed_total", bdev="EE_M0")
        check(1 <= failed <= sum(v for have, v in families["varve_bdev_errors_total"] if have["bdev"] == "EE_M0"), failed)
        check(perf, "the host ended each time")
        check_times(t, families, perf["read"])
        check(sum(v for _, v in families["varve_nvmf_commands_total"]) == t.groups("completed_nvme_io"), "commands")
        check(sum(v for _, v in families["varve_trace_slots_total"]) > 0, "the trace")


def test_bdevs_come_and_go_while_all_are_asked():
    """200 namespaces that a host reads; others are made and deleted meanwhile. Each scrape is whole, and bdev_get_iostat has those that stay."""
    with Target("--metrics", "127.0.0.1:0", trtype="TCP", listen=False) as t:
        t.call("nvmf_delete_subsystem", nqn=NQN)
        t.add_subsystem(NQN, max_namespaces=200)
        address, rpc, stop = t.call("metrics_get_status")["address"], t.client(), threading.Event()
        stay = [f"N{i}" for i in range(200)]
        for name in stay:
            rpc.call("bdev_null_create", name=name, num_blocks=2048, block_size=512)
            t.add_ns(name)
        turns = [0]

        def churn():
            other = t.client()
            while not stop.is_set():
                for i in range(20):
                    other.call("bdev_null_create", name=f"X{i}", num_blocks=2048, block_size=512)
                for i in range(20):
                    other.call("bdev_null_delete", name=f"X{i}")
                turns[0] += 1
            other.close()
        churner = threading.Thread(target=churn)
        with Host(t, "-w", "randread", "-q", "4", "-t", "3600", nsid=1) as h:
            wait_io(t, [h], 100)
            churner.start()
            try:
                for _ in range(10):
                    before = turns[0]
                    families = parse(scrape(address))
                    told = {labels["bdev"] for labels, _ in families["varve_bdev_size_bytes"]}
                    check(set(stay) <= told and all(name[0] in "NX" for name in told), told)
                    asked = rpc.call("bdev_get_iostat")["bdevs"]
                    check([b["name"] for b in asked if b["name"][0] == "N"] == stay, asked)
                    wait_for(lambda: turns[0] > before, "bdevs that come and go")
                twice = rpc.call("bdev_get_iostat", names=["N0", "N1", "N0", "N0"])["bdevs"]
                check([b["name"] for b in twice] == ["N0", "N1", "N0", "N0"] and twice[0]["num_read_ops"] > 0, twice)
                check(twice[1]["num_read_ops"] == 0 and twice[3]["num_read_ops"] >= twice[2]["num_read_ops"] >= twice[0]["num_read_ops"], twice)
            finally:
                stop.set()
                churner.join()
            h.stop()
        rpc.close()
        t.stop_clean()


def histogram(families, name, **labels):
    """Its sum, its count, and [(bound, I/Os up to it)]."""
    buckets = [(float(have["le"]), v) for have, v in families[name + "_bucket"] if all(have.get(k) == w for k, w in labels.items())]
    check(len(buckets) == 30 and buckets == sorted(buckets) and buckets[-1][0] == float("inf"), buckets)
    check([n for _, n in buckets] == sorted(n for _, n in buckets), buckets)
    count = value(families, name + "_count", **labels)
    check(count == buckets[-1][1], (count, buckets))
    return value(families, name + "_sum", **labels), count, buckets


def quantile_bounds(buckets, share):
    """The bounds of the bucket that a quantile is in."""
    i = next(i for i, (_, n) in enumerate(buckets) if n >= share * buckets[-1][1])
    return buckets[i - 1][0] if i > 0 else 0, buckets[i][0]


def test_histograms_are_those_of_the_ios():
    """Count and sum against the statistics of bdevs and target, percentiles against those that the host measures, on a bdev that
    takes its time: 20 ms for a read, 100 ms for a write."""
    with Target("--metrics", "127.0.0.1:0") as t:
        t.add_malloc("M0")
        t.call("bdev_delay_create", base_bdev_name="M0", name="D0", avg_read_latency=20000, p99_read_latency=20000,
               avg_write_latency=100000, p99_write_latency=100000)
        t.add_ns("D0", nsid=1)
        address = t.call("metrics_get_status")["address"]
        check("varve_nvmf_latency_seconds_count" not in parse(scrape(address)), "a series before the first command")
        with Host(t, "-w", "randrw", "-t", "3600", "-q", "4", nsid=1) as h:
            wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 200, "some I/O")
            check(h.is_running(), "the host ended")
            live = scrape_anew(t, address)
            _, count, _ = histogram(live, "varve_nvmf_latency_seconds", host=HOSTNQN, subsystem=NQN)
            check(0 < count <= value(live, "varve_nvmf_host_commands_total", host=HOSTNQN), count)
            perf = h.stop()
        t.wait_empty()
        families, stat = scrape_anew(t, address), t.call("bdev_get_iostat", name="D0")
        rate, stat = stat["tick_rate"], stat["bdevs"][0]
        for op, least in (("read", 0.02), ("write", 0.1)):
            total, count, buckets = histogram(families, "varve_bdev_latency_seconds", bdev="D0", op=op)
            check(count == stat[f"num_{op}_ops"] == value(families, "varve_bdev_ios_total", bdev="D0", op=op), (op, count, stat))
            check(abs(total - stat[f"{op}_latency_ticks"] / rate) < 0.001 * total, (op, total, stat))
            check(buckets[-1][1] > 0 and not [n for bound, n in buckets if bound < least and n > 0], (op, buckets))
            low, _ = quantile_bounds(buckets, 0.5)
            check(low <= perf[op]["latency_us"]["p50"] * 1.1e-6, (op, low, perf[op]))
        total, count, buckets = histogram(families, "varve_nvmf_latency_seconds", host=HOSTNQN, subsystem=NQN)
        check(count == value(families, "varve_nvmf_host_commands_total", host=HOSTNQN, subsystem=NQN) == t.groups("completed_nvme_io"), count)
        ios = {op: stat[f"num_{op}_ops"] for op in ("read", "write")}
        least = ios["read"] * 0.02 + ios["write"] * 0.1
        check(total > 0.5 * least, (total, least))
        check(value(families, "varve_nvmf_host_bytes_total", host=HOSTNQN) > 0, "bytes")
        check(histogram(scrape_anew(t, address), "varve_nvmf_latency_seconds", host=HOSTNQN)[1] == count, "it changes while nothing happens")


def check_times(t, families, perf):
    """A block device that delays, the RAM disk below it, and the host that reads: whose times contain whose is known."""
    rate = t.call("bdev_get_iostat")["tick_rate"]
    mean = {}
    for b in t.call("bdev_get_iostat")["bdevs"]:
        told = value(families, "varve_bdev_io_seconds_total", bdev=b["name"], op="read")
        check(abs(told - b["read_latency_ticks"] / rate) < 0.001 * told + 1e-6, (told, b))
        check(0 < b["min_read_latency_ticks"] <= b["max_read_latency_ticks"], b)
        mean[b["name"]] = told * 1e6 / b["num_read_ops"]
    check(0 < mean["M0"] < mean["D0"] and 0 < mean["EE_M0"] < mean["D0"], mean)
    check(2000 * 0.95 < mean["D0"] < perf["latency_us"]["mean"] * 1.1, (mean, perf))


# Where each column of varve-top is told: a family; two, of which it is a quotient of rates; or why it is not. Columns that name a row are labels.
LABELS = {"lcore", "name", "alias", "thread", "id", "nqn", "hostnqn", "subnqn", "cntlid", "qid", "peer", "who", "resource", "state", "waits_for", "kind"}
COLUMNS = {
    "reactors": {"tid": None, "busy_percent": "varve_reactor_busy_seconds_total", "state": "varve_reactor_sleeping",
                 "sleeps_per_s": "varve_reactor_sleeps_total", "sys_percent": "varve_reactor_system_seconds_total",
                 "irq_percent": "varve_reactor_interrupt_seconds_total", "threads": "varve_thread_lcore", "thread_names": "varve_thread_lcore"},
    "threads": {"lcore": "varve_thread_lcore", "busy_percent": "varve_thread_busy_seconds_total", "active_pollers": "varve_thread_pollers",
                "timed_pollers": "varve_thread_pollers", "paused_pollers": "varve_thread_pollers", "timers": "varve_thread_timers",
                "channels": "varve_thread_channels", "pending_messages": "varve_thread_pending_messages", "cpumask": None},
    "pollers": {"kind": "varve_poller_period_seconds", "cpu_percent": "varve_poller_seconds_total", "runs_per_s": "varve_poller_runs_total",
                "busy_per_s": "varve_poller_busy_runs_total", "busy_percent": "varve_poller_busy_runs_total",
                "period_us": "varve_poller_period_seconds", "runs": "varve_poller_runs_total"},
    "bdevs": {"iops": "varve_bdev_ios_total", "read_iops": "varve_bdev_ios_total", "write_iops": "varve_bdev_ios_total",
              "read_bytes_per_s": "varve_bdev_bytes_total", "write_bytes_per_s": "varve_bdev_bytes_total",
              "read_latency_us": "varve_bdev_io_seconds_total", "write_latency_us": "varve_bdev_io_seconds_total",
              "queue_depth": "varve_bdev_queue_depth", "resource_waits_per_s": "varve_bdev_waits_total",
              "rate_limit_waits_per_s": "varve_bdev_waits_total", "qos_group": "varve_qos_group_ios_total", "errors": "varve_bdev_errors_total"},
    "subsystems": {"state": "varve_nvmf_subsystem_state", "state_us": None, "namespaces": "varve_nvmf_subsystem_namespaces",
                   "controllers": "varve_nvmf_subsystem_controllers", "qpairs": "varve_nvmf_subsystem_queue_pairs",
                   "inflight": "varve_nvmf_subsystem_requests", "oldest_us": "varve_nvmf_subsystem_oldest_request_seconds",
                   "listeners": "varve_nvmf_subsystem_listeners"},
    "hosts": {"state": "varve_nvmf_queue_pair_state", "state_us": "varve_nvmf_queue_pair_state_age_seconds",
              "peer": "varve_nvmf_queue_pair_state", "inflight": "varve_nvmf_queue_pair_requests",
              "oldest_us": "varve_nvmf_queue_pair_oldest_request_seconds", "thread": "varve_nvmf_queue_pair_state"},
    "requests": {"state": "varve_nvmf_requests", "count": "varve_nvmf_requests", "longest_us": "varve_nvmf_request_longest_state_seconds",
                 "mean_us": None, "oldest_us": "varve_nvmf_request_oldest_seconds", "oldest_hostnqn": None},
    "buffers": {"at_hand_per_s": "varve_buffer_gets_at_hand_total", "fetched_per_s": "varve_buffer_gets_fetched_total",
                "waits_per_s": "varve_buffer_waits_total", "waits": "varve_buffer_waits_total"},
    "trace": {"slots": "varve_trace_ring_slots", "slots_per_s": "varve_trace_slots_total",
              "overwritten_per_s": "varve_trace_overwritten_slots_total", "recorded": "varve_trace_slots_total",
              "overwritten": "varve_trace_overwritten_slots_total", "holds_us": "varve_trace_ring_slots",
              "fired": "varve_trace_triggers_fired_total", "last_cause": None},
    "latencies": {"p50_us": "varve_nvmf_latency_seconds_bucket", "p99_us": "varve_nvmf_latency_seconds_bucket", "mean_us": "varve_nvmf_latency_seconds_sum",
                  "iops": "varve_nvmf_host_commands_total", "bytes_per_s": "varve_nvmf_host_bytes_total"},
    "volumes": {"kind": None, "own_bytes": "varve_lvol_own_bytes", "reserved_bytes": "varve_lvol_reserved_bytes", "iops": "varve_bdev_ios_total",
                "read_bytes_per_s": "varve_bdev_bytes_total", "write_bytes_per_s": "varve_bdev_bytes_total",
                "read_latency_us": "varve_bdev_io_seconds_total", "write_latency_us": "varve_bdev_io_seconds_total",
                "queue_depth": "varve_bdev_queue_depth"},
}
# What is not told, and why it need not be.
NOT_TOLD = {("reactors", "tid"): "a name of the operating system's", ("threads", "cpumask"): "a setting", ("subsystems", "state_us"):
            "Prometheus keeps since when a state is told", ("requests", "mean_us"): "the longest and the oldest are told",
            ("requests", "oldest_hostnqn"): "told per queue pair", ("trace", "last_cause"): "a text for people; the notification has it",
            ("volumes", "kind"): "a setting"}


def test_what_varve_top_shows_is_told():
    compare_with_varve_top("RDMA")


def test_what_varve_top_shows_is_told_over_tcp():
    families = compare_with_varve_top("TCP")
    for name in ("reads", "read_bytes", "sends", "sent_bytes", "requests"):
        check(value(families, f"varve_nvmf_device_{name}_total", transport="TCP") > 0, name)


def compare_with_varve_top(trtype):
    """Each column has its family with samples, or a reason; and what does not change from look to look is the same."""
    with Target("-e", "bdev", trtype=trtype) as t:
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.add_ns("EE_M0", nsid=1)
        t.call("bdev_qos_group_create", name="gold", rw_ios_per_sec=1000000)
        t.call("bdev_set_qos_group", name="EE_M0", group="gold")
        t.call("trace_set_trigger", name="errors", type="io_error")
        t.add_malloc("M1")
        t.call("bdev_lvol_create_lvstore", bdev_name="M1", lvs_name="lvs", cluster_sz=1 << 20)
        t.call("bdev_lvol_create", lvs_name="lvs", lvol_name="thin", size_in_mib=8, thin_provision=True, reserved_in_mib=2)
        t.call("bdev_lvol_create", lvs_name="lvs", lvol_name="thick", size_in_mib=4)
        address = t.call("metrics_start", address="127.0.0.1:0")
        with Host(t, "-w", "randread", "-t", "3600", "-q", "2", nsid=1) as h:
            wait_io(t, [h])
            t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="failure", num=1)
            wait_for(lambda: parse(scrape(address))["varve_bdev_errors_total"], "an error")
            t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="pending", num=2)
            wait_for(lambda: sum(r["state"] == "BDEV" and r["age_us"] > 1000000 for r in t.call("nvmf_get_inflight")) == 2, "reads to hang")
            p = subprocess.run([BUILD / "bin" / "varve-top", "-s", t.path, "-j", "-d", "0.2"], capture_output=True, text=True, timeout=DEADLINE)
            check(p.returncode == 0, p.stderr)
            top, families = json.loads(p.stdout), scrape_anew(t, address)
            check_columns(top, families)
            check_values(top, families)
            return families


def check_columns(top, families):
    views = {name: rows for name, rows in top.items() if isinstance(rows, list)}
    check(views.keys() == COLUMNS.keys(), f"views: {views.keys() ^ COLUMNS.keys()}")
    for view, rows in views.items():
        check(rows, f"{view} is empty")
        columns = rows[0].keys()
        unknown = columns - COLUMNS[view].keys() - LABELS
        check(not unknown and COLUMNS[view].keys() <= columns, f"{view}: {unknown}, {COLUMNS[view].keys() - columns}")
        for column, family in COLUMNS[view].items():
            check((family is None) == ((view, column) in NOT_TOLD), f"{view}.{column}: neither told nor excused, or both")
            check(family is None or families.get(family), f"{view}.{column}: {family} has no samples")


def check_values(top, families):
    for r in top["threads"]:
        told = [v for have, v in families["varve_thread_lcore"] if have["id"] == str(r["id"])]
        check(told == ([] if r["lcore"] is None else [r["lcore"]]), r)
        for kind in ("active", "timed", "paused"):
            check(value(families, "varve_thread_pollers", id=str(r["id"]), kind=kind) == r[kind + "_pollers"], r)
    for r in top["pollers"]:
        if r["period_us"] is not None:
            told = value(families, "varve_poller_period_seconds", thread=r["thread"], poller=r["name"])
            check(abs(told * 1e6 - r["period_us"]) < 1, (told, r))
    for r in top["subsystems"]:
        for column in ("controllers", "qpairs", "listeners", "namespaces", "inflight"):
            check(value(families, COLUMNS["subsystems"][column], subsystem=r["nqn"]) == r[column], (column, r))
    check(len(families["varve_nvmf_queue_pair_state"]) == len(top["hosts"]) >= 2, top["hosts"])
    for r in top["hosts"]:
        which = {"subsystem": r["subnqn"], "host": r["hostnqn"], "cntlid": str(r["cntlid"]), "qid": str(r["qid"])}
        check(value(families, "varve_nvmf_queue_pair_state", **which, peer=r["peer"], thread=r["thread"]) == 1, r)
        check(value(families, "varve_nvmf_queue_pair_requests", **which) == r["inflight"], r)
        oldest = value(families, "varve_nvmf_queue_pair_oldest_request_seconds", **which)
        check(oldest * 1e6 >= (r["oldest_us"] or 0) and (oldest > 0) == (r["qid"] == 1), (oldest, r))
    check(len(families["varve_lvol_own_bytes"]) == len(top["volumes"]) == 2, top["volumes"])
    for r in top["volumes"]:
        for column in ("own_bytes", "reserved_bytes"):
            check(value(families, COLUMNS["volumes"][column], volume=r["alias"]) == r[column], (column, r))
    for r in top["trace"]:
        if r["slots"] is not None:
            check(value(families, "varve_trace_ring_slots", thread=r["thread"]) == r["slots"], r)


def test_addresses_and_configuration():
    with Daemon() as d:
        path = d.folder / "metrics.sock"
        check(d.call("metrics_start", address=f"unix:{path}") == f"unix:{path}", "unix")
        check(path.stat().st_mode & 0o777 == 0o660, "for others, too")
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(DEADLINE)
            s.connect(str(path))
            s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = b""
            while chunk := s.recv(65536):
                answer += chunk
        check(parse(answer.decode().split("\r\n\r\n", 1)[1]), answer)
        saved = d.call("framework_get_config", name="metrics")
        check(saved == [{"method": "metrics_start", "params": {"address": f"unix:{path}"}}], saved)
        status, _, err = d.rpc("metrics_start", "address=127.0.0.1:0")
        check(status == 1 and str(path) in err, err)
        d.call("metrics_stop")
        check(not path.exists() and d.call("framework_get_config", name="metrics") == [], "nothing is left")
        status, _, err = d.rpc("metrics_start", "address=0.0.0.0:9464")
        check(status == 1 and "loopback" in err, err)
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = f"127.0.0.1:{other.getsockname()[1]}"
            status, _, err = d.rpc("metrics_start", f"address={taken}")
        why = f"cannot listen on {taken}: Address already in use"
        check(status == 1 and why in err and f"no metrics: {why}" in d.log(), f"{err}{d.log()}")
        config = d.folder / "c.json"
        config.write_text(json.dumps({"subsystems": [{"subsystem": "metrics", "config": saved}]}))
        with Daemon("-c", config) as e:
            check(e.call("metrics_get_status")["address"] == f"unix:{path}", "from the configuration")
    with Daemon("--metrics", "192.0.2.1:1", ready=False) as d:
        check(d.wait_exit() == 2 and "loopback" in d.log(), d.log())
    with Daemon("--metrics", "unix:/no/such/dir/sock", ready=False) as d:
        check(d.wait_exit() == 1 and "/no/such/dir" in d.log(), d.log())


def test_wrong_requests_are_answered_so():
    with Daemon("--metrics", "127.0.0.1:0") as d:
        address = d.call("metrics_get_status")["address"]
        for request, status in [(b"GET /nothing HTTP/1.1\r\n\r\n", "404"), (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
                                (b"GET /metrics HTTP/9.9\r\n\r\n", "505"), (b"\x16\x03\x01\x00\xa5\x01\n", "400"),
                                (b"GET /metrics HTTP/1.1\r\n" + b"X: " + 9000 * b"y", "431"), (b"\x00\xff\r\n\r\n", "400")]:
            answer = ask(address, request)
            check(answer.startswith(f"HTTP/1.1 {status} "), (request[:40], answer[:200]))
        head = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        check(head.startswith("HTTP/1.1 200") and head.endswith("\r\n\r\n"), head)
        check(d.call("metrics_get_status")["refused"] == 6, d.call("metrics_get_status"))
        parse(scrape(address))


def test_hostile_clients_hold_up_nobody():
    with Daemon("--metrics", "127.0.0.1:0") as d:
        address = d.call("metrics_get_status")["address"]
        silent = [connect(address) for _ in range(60)]            # ask nothing
        deaf = []
        for _ in range(20):                                        # ask, and never read
            s = connect(address)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            s.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            deaf.append(s)
        slow = [connect(address) for _ in range(8)]
        for s in slow:
            s.sendall(b"GET /met")
        for _ in range(5):
            parse(scrape(address))
            check(d.call("appliance_get_state")["state"] == "RUNNING", "RPCs go on")
        status = d.call("metrics_get_status")
        check(status["connections"] <= 16 and status["dropped"] >= 44, status)
        wait_for(lambda: d.call("metrics_get_status")["connections"] == 0, "the slow to be dropped", 60 + DEADLINE)
        flood = connect(address)
        end = time.monotonic() + DEADLINE
        try:
            while time.monotonic() < end:
                flood.sendall(65536 * b"z")
            check(False, "it takes a request without an end")
        except OSError:
            pass
        parse(scrape(address))
        for s in [*silent, *deaf, *slow, flood]:
            s.close()
        check(d.stop() == 0, d.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
