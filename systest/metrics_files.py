#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 240
# beside
"""The alert rules and the dashboard in service/metrics: promtool takes them, and each metric that they name is told by a daemon that works."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

from appliance_lib import DEADLINE, Skip, check, main, wait_for
from metrics import parse, scrape
from nvmf_lib import Host, Target

FILES = pathlib.Path(__file__).resolve().parent.parent / "service" / "metrics"
RULES, DASHBOARD = FILES / "varve-alerts.yml", FILES / "varve-dashboard.json"
NAME = re.compile(r"\bvarve_[a-z0-9_]+")


def promtool(*arguments, **more):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE, **more)


def need_promtool():
    if not shutil.which("promtool"):
        raise Skip("promtool (Debian: prometheus) is not installed")


def expressions():
    """Each expression of the dashboard, with what Grafana puts in."""
    board = json.loads(DASHBOARD.read_text())
    found = [t["expr"] for p in board["panels"] for t in p["targets"]]
    check(len(found) >= 20, found)
    return [e.replace("$__rate_interval", "1m").replace("$instance", ".*") for e in found]


def test_promtool_takes_the_rules():
    need_promtool()
    p = promtool("check", "rules", RULES)
    check(p.returncode == 0 and "rules found" in p.stdout, p.stdout + p.stderr)


def test_promtool_takes_the_queries_of_the_dashboard():
    need_promtool()
    rules = [{"record": f"q{i}", "expr": e} for i, e in enumerate(expressions())]
    p = promtool("check", "rules", "/dev/stdin", input=json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    check(p.returncode == 0 and f"{len(rules)} rules found" in p.stdout, p.stdout + p.stderr)


def test_an_alert_fires_for_what_it_is_for():
    """One alert of counters, one of a histogram."""
    need_promtool()
    bucket = 'varve_nvmf_latency_seconds_bucket{instance="a",job="varve",subsystem="s",host="h",le="%s"}'
    series = [{"series": 'varve_bdev_failed_total{instance="a",job="varve",bdev="b"}', "values": "0 0 0 5+0x20"},
              {"series": bucket % "0.1", "values": "0+10x30"}, {"series": bucket % "0.2", "values": "0+20x30"},
              {"series": bucket % "+Inf", "values": "0+20x30"}]
    def alert(name, when, labels):
        return {"alertname": name, "eval_time": when, "exp_alerts": [] if labels is None else [{"exp_labels": labels}]}
    series += [{"series": f'varve_lvol_store_space_reached_percent{{instance="a",job="varve",store="{s}"}}', "values": v}
               for s, v in (("low", "0 0 0 90+0x20"), ("full", "0 0 0 100+0x20"), ("good", "0+0x23"))]
    error = {"severity": "warning", "instance": "a", "bdev": "b"}
    low = {"severity": "warning", "instance": "a", "store": "low"}
    full = {"severity": "critical", "instance": "a", "store": "full"}
    slow = {"severity": "warning", "instance": "a", "subsystem": "s", "host": "h"}
    test = {"rule_files": [str(RULES)], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series,
                       "alert_rule_test": [alert("VarveBdevErrors", "2m", None), alert("VarveBdevErrors", "5m", error),
                                           alert("VarveStoreFills", "2m", None), alert("VarveStoreFills", "5m", low),
                                           alert("VarveStoreFull", "2m", None), alert("VarveStoreFull", "5m", full),
                                           alert("VarveHostSlow", "3m", None), alert("VarveHostSlow", "15m", slow)]}]}
    p = promtool("test", "rules", "/dev/stdin", input=json.dumps(test))
    # promtool compares the annotations, which this test does not repeat: what must agree is the labels.
    told = re.findall(r"got:\[\s*(?:\d+:\s*Labels:(\{[^}]*\}))?", p.stdout + p.stderr)
    for labels in (error, slow, low, full):
        check(any(all(f'{k}="{v}"' in t for k, v in labels.items()) for t in told), p.stdout + p.stderr)


def test_each_metric_that_they_name_is_told():
    names = set(NAME.findall(RULES.read_text())) | {n for e in expressions() for n in NAME.findall(e)}
    check(len(names) >= 15, names)
    with Target("--metrics", "127.0.0.1:0", "-e", "bdev") as t:
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.add_malloc("M1")
        t.call("bdev_lvol_create_lvstore", bdev_name="M1", lvs_name="lvs", cluster_sz=65536)
        t.add_ns("EE_M0", nsid=1)
        t.call("trace_set_trigger", name="errors", type="io_error")
        address = t.call("metrics_get_status")["address"]
        with Host(t, "-w", "randrw", "-t", "3600", "-q", "2", nsid=1) as h:
            wait_for(lambda: not h.is_running() or t.groups("completed_nvme_io") > 100, "some I/O")
            t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="failure", num=1)
            wait_for(lambda: parse(scrape(address))["varve_bdev_errors_total"], "an error")
            t.call("bdev_error_inject_error", name="EE_M0", io_type="all", error_type="pending", num=2)
            wait_for(lambda: parse(scrape(address))["varve_nvmf_requests"], "commands that hang")
            text = scrape(address)
            families = parse(text)
            missing = {n for n in names if not families.get(n) and not families.get(n + "_bucket")}
            check(not missing, f"no samples of {missing}")
            need_promtool()
            p = promtool("check", "metrics", input=text)
            check(p.returncode == 0, p.stdout + p.stderr)


if __name__ == "__main__":
    main(sys.modules[__name__])
