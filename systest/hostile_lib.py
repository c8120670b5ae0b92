# SPDX-License-Identifier: BSD-3-Clause
"""A target with a host that behaves and one that does not."""
import json
import os
import subprocess
import sys
import time

from appliance_lib import BUILD, DEADLINE, Failure, check, wait_for
from auth import add_keys
from nvmf_lib import ADDRESS, HOSTNQN, NQN, Target, preload, verifying, wait_io

HOSTILE = BUILD / "systest" / "hostile" / "hostile-host"
HOSTILE_NQN = "nqn.2026-11.io.varve:hostile"
ANA_NQN = NQN + ":ana"
RESERVED_NQN = NQN + ":reserved"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
KEYED_NQN = HOSTILE_NQN + ":keyed"
KEY = bytes(range(31, 63)).hex()     # what is in the keyring's "key"


BATCH = 2500        # cases that one process of hostile-host sends where a time is given


class Hostile:
    """hostile-host as a process of its own."""

    def __init__(self, target, cases, seed, *args, nqn=NQN):
        self.output = target.folder / "hostile"
        self.errors = target.folder / "hostile.err"
        command = [HOSTILE, "-a", ADDRESS, "-p", str(target.port), "-n", nqn, "-c", str(cases), "-S", str(seed), "--hostnqn", HOSTILE_NQN,
                   "--keyed", KEYED_NQN, "--key", KEY, "--deadline", str(DEADLINE * 1000), *args]
        if nqn == NQN:      # good_target's, which stays as it is
            command += ["--ana", ANA_NQN, "--discovery", DISCOVERY, "--reserved", RESERVED_NQN]
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


# Bytes of data and of metadata in a block, and the type of protection information, which may come first.
METADATA = ((512, 8, 1, False), (4096, 64, 2, True), (512, 16, 3, False), (512, 8, 0, False))


def add_victims(t, nqn=NQN):
    """Namespace 1 is the good host's alone, 2 and 3 are anybody's, and so are those with metadata after them. One host has to authenticate. The
    target has the keys."""
    for name in ("good", "tame", "wild"):
        t.add_malloc(name)
    t.add_ns("good", nqn, nsid=1, no_auto_visible=True)
    t.call("nvmf_ns_add_host", nqn=nqn, nsid=1, host=HOSTNQN)
    t.add_ns("tame", nqn, nsid=2)
    t.add_ns("wild", nqn, nsid=3)
    for nsid, (block, md, dif, first) in enumerate(METADATA, 4):
        name = t.call("bdev_malloc_create", name=f"metadata{nsid}", block_size=block, num_blocks=(4 << 20) // block, md_size=md,
                      md_interleave=True, dif_type=dif, dif_is_head_of_md=first)
        t.add_ns(name, nqn, nsid=nsid)
    t.call("nvmf_subsystem_add_host", nqn=nqn, host=KEYED_NQN, dhchap_key="key", dhchap_ctrlr_key="ctrlr")


def add_asymmetric(t, nqn=ANA_NQN):
    """A group in each state, with one namespace: the first can be used."""
    t.add_subsystem(nqn, ana_reporting=True, max_namespaces=8)
    for group, state in enumerate(("optimized", "non_optimized", "inaccessible", "persistent_loss", "change"), 1):
        t.add_ns(t.add_malloc(f"asymmetric{group}", 1), nqn, nsid=group, anagrpid=group)
        t.call("nvmf_subsystem_listener_set_ana_state", nqn=nqn, listen_address=t.listen_address(), ana_state=state, anagrpid=group)


def good_target(**transport):
    t = Target(cores="[0]", **transport)
    try:
        add_keys(t)
        add_victims(t)
        add_asymmetric(t)
        t.add_listener(DISCOVERY)
        t.add_subsystem(RESERVED_NQN)
        t.add_ns(t.add_malloc("reserved", 1), RESERVED_NQN, nsid=1)
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


def merge(out, result):
    """Adds up what hostile-host says of itself."""
    for name in ("cases", "failures", "controllers", "seconds"):
        out[name] += result[name]
    for kind, count in result["kinds"].items():
        out["kinds"][kind] = out["kinds"].get(kind, 0) + count


def beside(t, out, cases, seed, limit, seconds):
    """A hostile host beside a good one; False if the target has ended of it. With `seconds`: as many batches of the cases as begin within them."""
    with good_host(t, "-t", "3600") as h:
        wait_verifying(t, h)
        begin, left = time.monotonic(), cases
        try:
            while left > 0 and (not seconds or time.monotonic() - begin < seconds):
                hostile = Hostile(t, min(left, BATCH if seconds else left), seed)
                result = hostile.result(t, limit)
                merge(out, result)
                out["asked"] += min(left, BATCH if seconds else left)
                out["why"] += hostile.errors.read_text() if result["failures"] else ""
                wait_io(t, [h])
                left, seed = left - BATCH if seconds else 0, seed + 1
        except Failure as e:
            out["why"] += str(e)
            if t.process.poll() is not None:
                out["crashes"] = 1
                out["log"] = t.log()
                return False
        good = h.stop()
        out["lost"] += good["errors"] + good["miscompares"] + good["reconnects"] + (not good["verified"])
        out["verified_ops"] += good["read"]["ios"] + good["write"]["ios"]
        out["beside"].append(latency(good))
    return True


def attack(cases, limit=600, seed=None, turns=1, seconds=0, **transport):
    """A good host alone, then beside a hostile one, in turns that share the cases: `alone` and `beside` have the latency of each turn. With
    `seconds`, only as many of the cases as are begun in that time of a turn, in batches, each with the next seed. Returns what came of it; raises
    only if the good host cannot even begin."""
    seed = seed or int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
    out = {"seed": seed, "cases": 0, "asked": 0, "kinds": {}, "failures": 0, "controllers": 0, "seconds": 0, "why": "", "verified_ops": 0, "lost": 0, "leaked": 0,
           "crashes": 0, "log": "", "alone": [], "beside": []}
    with good_target(**transport) as t:
        Hostile(t, 300, seed - 1).result(t, limit)      # what comes with the first host stays
        for turn in range(turns):
            with good_host(t, "-t", "2") as h:
                out["alone"].append(latency(h.result()))
            t.wait_empty()
            if turn == 0:
                held = t.held()
            if not beside(t, out, cases // turns + (turn < cases % turns), seed + turn, limit, seconds):
                return out
        out["leaked"] = left_behind(t, held)
        t.stop_clean("hostile", "a capsule of less", "more commands than", "is not allowed to connect",
                     "did not end; its queue pair", "the guard is", "the reference tag is", "the application tag is")
    return out


def run(cases, limit=600, seconds=0, **transport):
    """An attack in which nothing may go wrong."""
    r = attack(cases, limit, seconds=seconds, **transport)
    check(r["crashes"] == 0, f"seed {r['seed']}: {r['why']}\n{r['log'][-5000:]}")
    check(not r["why"] and r["failures"] == 0, f"seed {r['seed']}: {r['failures']} failures\n{r['why']}")
    check(r["cases"] == r["asked"] > 0 and (seconds or r["asked"] == cases), f"{r['cases']} of {r['asked']} cases")
    check(r["lost"] == 0 and r["leaked"] == 0, f"seed {r['seed']}: {r['lost']} lost, {r['leaked']} leaked")
    before, after = r["alone"][0], r["beside"][0]
    print(f"# seed {r['seed']}: {r['cases']} cases, {r['controllers']} controllers, {r['seconds']} s; {r['verified_ops']} verified I/Os, latency of the "
          f"good host {before[0]:.0f} us median, {before[1]:.0f} us p99 alone; {after[0]:.0f} and {after[1]:.0f} beside: x{after[0] / before[0]:.2f}")
    print(f"# {r['kinds']}")
    return r
