# SPDX-License-Identifier: BSD-3-Clause
"""A target with a host that behaves and one that does not."""
import json
import os
import subprocess
import time

from appliance_lib import BUILD, DEADLINE, check, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, NUM_CPUS, Host, Target, preload, verifying, wait_io

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


def run(cases, limit=600, seed=None, **transport):
    """Returns what came of it: what both hosts said, and the good host's latency alone and in company."""
    seed = seed or int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
    with good_target(**transport) as t:
        with good_host(t, "-t", "2") as h:      # what comes with the first host stays
            alone = h.result()
        Hostile(t, 300, seed + 1).result(t, limit)
        t.wait_empty()
        held = t.held()
        with good_host(t, "-t", "3600") as h:
            wait_verifying(t, h)
            hostile = Hostile(t, cases, seed)
            found = hostile.result(t, limit)
            check(h.is_running(), f"the good host ended:\n{h.errors.read_text()}")
            wait_io(t, [h])
            beside = h.stop()
            h.check_perfect(beside)
        check(found["failures"] == 0, f"seed {seed}: {found['failures']} failures\n{hostile.errors.read_text()}")
        check(found["cases"] == cases, found)
        t.wait_empty(held)
        t.stop_clean("hostile", "a capsule of less", "more commands than", "was rejected with status", "a connection from",
                     "did not end; its queue pair")
    before, after = latency(alone), latency(beside)
    ios = beside["read"]["ios"] + beside["write"]["ios"]
    print(f"# seed {seed}: {cases} cases, {found['controllers']} controllers, {found['seconds']} s; {ios} verified I/Os, latency of the good host "
          f"{before[0]:.0f} us median, {before[1]:.0f} us p99 alone; {after[0]:.0f} and {after[1]:.0f} beside: x{after[0] / before[0]:.2f}")
    print(f"# {found['kinds']}")
    return {"cases": cases, "verified": ios, "alone": before, "beside": after, "kinds": found["kinds"], "seconds": found["seconds"]}
