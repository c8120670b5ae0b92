# SPDX-License-Identifier: BSD-3-Clause
"""A target with a host that behaves and one that does not."""
import json
import os
import subprocess
import sys
import time

from appliance_lib import BUILD, DEADLINE, Failure, check, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, Target, preload, verifying, wait_io

HOSTILE = BUILD / "systest" / "hostile" / "hostile-host"
HOSTILE_NQN = "nqn.2026-11.io.varve:hostile"


class Hostile:
    """hostile-host as a process of its own."""

    def __init__(self, target, cases, seed, *args):
        self.output = target.folder / "hostile"
        self.errors = target.folder / "hostile.err"
        command = [HOSTILE, "-a", ADDRESS, "-p", str(target.port), "-n", NQN, "-c", str(cases), "-S", str(seed), "--hostnqn", HOSTILE_NQN,
                   "--deadline", str(DEADLINE * 1000), *args]
        with open(self.output, "wb") as out, open(self.errors, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**os.environ, **preload()})

    def result(self, target, limit):
        def done():
            check(target.process.poll() is None, f"varve ended with {target.process.poll()}:\n{target.log()[-5000:]}")
            return self.process.poll() is not None
        try:
            wait_for(done, lambda: f"hostile-host to end:\n{self.errors.read_text()}", limit)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        check(self.process.returncode in (0, 1), f"hostile-host ended with {self.process.returncode}:\n{self.errors.read_text()}")
        return json.loads(self.output.read_text())


def good_target(**transport):
    """Namespace 1 is the good host's alone, 2 and 3 are anybody's."""
    t = Target(cores="[0]", **transport)
    try:
        for name in ("good", "tame", "wild"):
            t.add_malloc(name)
        t.add_ns("good", nsid=1, no_auto_visible=True)
        t.call("nvmf_ns_add_host", nqn=NQN, nsid=1, host=HOSTNQN)
        t.add_ns("tame", nsid=2)
        t.add_ns("wild", nsid=3)
    except BaseException:
        t.__exit__()
        raise
    return t


def latency(result):
    """Of all I/O: median and 99th percentile, in microseconds."""
    r, w = result["read"], result["write"]
    ios = max(1, r["ios"] + w["ios"])
    return tuple((r["latency_us"][p] * r["ios"] + w["latency_us"][p] * w["ios"]) / ios for p in ("p50", "p99"))


def good_host(t, *args):
    return verifying(t, 1, "-q", "4", *args)


def wait_verifying(t, h):
    """Until it has written its region and verifies what it reads: before that it has no result."""
    wait_io(t, [h], 3000)


def left_behind(t, held):
    """How many things more a target without hosts has than before, once it had the time to let go of them."""
    try:
        t.wait_empty(held)
    except Failure as e:
        print(f"left: {e}", file=sys.stderr)
        now = t.held()
        return max(1, sum(max(0, now[x] - held[x]) for x in now))
    return 0


def attack(cases, limit=600, seed=None, **transport):
    """A good host alone, then beside a hostile one. Returns what came of it; raises only if the good host cannot even begin."""
    seed = seed or int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
    out = {"seed": seed, "cases": 0, "kinds": {}, "failures": 0, "why": "", "verified_ops": 0, "lost": 0, "leaked": 0, "crashes": 0, "log": ""}
    with good_target(**transport) as t:
        with good_host(t, "-t", "2") as h:      # what comes with the first host stays
            out["alone"] = latency(h.result())
        Hostile(t, 300, seed + 1).result(t, limit)
        t.wait_empty()
        held = t.held()
        with good_host(t, "-t", "3600") as h:
            wait_verifying(t, h)
            hostile = Hostile(t, cases, seed)
            try:
                out.update(hostile.result(t, limit))
                wait_io(t, [h])
            except Failure as e:
                out["why"] = str(e)
                if t.process.poll() is not None:
                    out["crashes"] = 1
                    out["log"] = t.log()
                    return out
            out["why"] += hostile.errors.read_text() if out["failures"] else ""
            beside = h.stop()
            out["lost"] = beside["errors"] + beside["miscompares"] + beside["reconnects"] + (not beside["verified"])
            out["verified_ops"] = beside["read"]["ios"] + beside["write"]["ios"]
            out["beside"] = latency(beside)
        out["leaked"] = left_behind(t, held)
        t.stop_clean("hostile", "a capsule of less", "more commands than", "was rejected with status", "a connection from",
                     "did not end; its queue pair")
    return out


def run(cases, limit=600, **transport):
    """An attack in which nothing may go wrong."""
    r = attack(cases, limit, **transport)
    check(r["crashes"] == 0, f"seed {r['seed']}: {r['why']}\n{r['log'][-5000:]}")
    check(not r["why"] and r["failures"] == 0, f"seed {r['seed']}: {r['failures']} failures\n{r['why']}")
    check(r["cases"] == cases, f"{r['cases']} of {cases} cases")
    check(r["lost"] == 0 and r["leaked"] == 0, f"seed {r['seed']}: {r['lost']} lost, {r['leaked']} leaked")
    before, after = r["alone"], r["beside"]
    print(f"# seed {r['seed']}: {cases} cases, {r['controllers']} controllers, {r['seconds']} s; {r['verified_ops']} verified I/Os, latency of the "
          f"good host {before[0]:.0f} us median, {before[1]:.0f} us p99 alone; {after[0]:.0f} and {after[1]:.0f} beside: x{after[0] / before[0]:.2f}")
    print(f"# {r['kinds']}")
    return r
