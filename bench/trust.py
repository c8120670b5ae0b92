# SPDX-License-Identifier: BSD-3-Clause
"""What outsiders did to a target, and what came of it, from bounded runs over softverbs, and over TCP where that is said:

    trust.capsules                  hostile cases tried, and trust.capsules.KIND of each kind; VARVE_CASES chooses how many
    trust.wrong_answers             those that were not answered as the specification says
    trust.good_latency_alone_us     median latency of a host that does verified reads and writes (4 at a time, 4 KiB) while it is alone
    trust.good_latency_beside_us    the same, beside the hostile host
    trust.latency_ratio             of the two: to be at most 2
    trust.tcp_cases                 hostile cases tried over TCP (systest/nvmf_tcp_generated_lib.py): a tenth of VARVE_CASES
    trust.tcp_good_latency_alone_us, trust.tcp_good_latency_beside_us, trust.tcp_latency_ratio
                                    as above, over TCP, of a host that does 500 reads and writes a second
    trust.faults                    faults injected (systest/nvmf_faults.py, nvmf_faults_host.py); VARVE_FAULTS_SECONDS chooses for how long each
    trust.verified_ops              reads and writes of the hosts beside all that, checked byte by byte
    trust.lost                      of those, the ones that failed or came back wrong
    trust.leaked                    what the targets held more of afterwards
    trust.crashes                   targets that ended

The good host is alone and in company by turns, each turn with its share of the cases. The latencies are the medians of the turns' medians, and the
ratio is the median of the turns' ratios: what else the machine does meanwhile changes both sides of a turn, more or less. Hosts and target share its
CPUs, so with fewer than three the ratio has what the hostile host's own work costs in it.

Ends with 0 if nothing was answered wrongly, lost, leaked or crashed. The latencies are told, not judged."""
import os
import pathlib
import re
import statistics
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from appliance_lib import Failure  # noqa: E402
from hostile_lib import attack  # noqa: E402
from nvmf_tcp_generated_lib import attack_in_turns  # noqa: E402

CASES = int(os.environ.get("VARVE_CASES", "100000"))
SWEEPS = [TOP / "systest" / name for name in ("nvmf_faults.py", "nvmf_faults_host.py")]
TURNS = 5
FAULT_SECONDS = os.environ.get("VARVE_FAULTS_SECONDS", "80")


def print_latencies(what, pairs):
    """Those of a good host, alone and beside hostile ones, of each turn."""
    if pairs:
        print(f"trust.{what}good_latency_alone_us {statistics.median(a for a, _ in pairs):.1f} us")
        print(f"trust.{what}good_latency_beside_us {statistics.median(b for _, b in pairs):.1f} us")
        print(f"trust.{what}latency_ratio {statistics.median(b / a for a, b in pairs):.2f} x")


def hostile(sums):
    """Whether all of it was answered as it should be."""
    r = attack(CASES, limit=900, turns=TURNS)
    for kind, count in r["kinds"].items():
        print(f"trust.capsules.{re.sub('[^a-z]+', '_', kind)} {count} count")
    print(f"trust.capsules {r['cases']} count")
    print(f"trust.wrong_answers {r['failures']} count")
    print_latencies("", [(a[0], b[0]) for a, b in zip(r["alone"], r["beside"])])
    if r["why"] or r["log"]:
        print(f"trust: seed {r['seed']}: {r['why']}\n{r['log'][-5000:]}", file=sys.stderr)
    for name in ("verified_ops", "lost", "leaked", "crashes"):
        sums[name] += r[name]
    return r["failures"] == 0 and not r["why"] and r["cases"] == CASES


def hostile_over_tcp(sums):
    """The same over TCP, where the first case that is not answered as it should be ends it."""
    try:
        tried, verified, pairs = attack_in_turns(CASES // 10, TURNS)
    except Failure as e:
        print(f"trust: over TCP: {e}", file=sys.stderr)
        return False
    print(f"trust.tcp_cases {tried} count")
    print_latencies("tcp_", pairs)
    sums["verified_ops"] += verified
    return True


def faults(sweep, sums):
    """A sweep of faults prints lines like ours. Whether it passed, and how many faults there were."""
    p = subprocess.run([sys.executable, sweep], stdout=subprocess.PIPE, text=True, env={**os.environ, "VARVE_FAULTS_SECONDS": FAULT_SECONDS}, timeout=1800)
    found = dict(re.findall(r"^(trust\.\w+) (\d+) count$", p.stdout, re.M))
    if "trust.faults" not in found:
        print(f"{sweep.name} told no figures:\n{p.stdout[-2000:]}", file=sys.stderr)
        return False, 0
    if p.returncode != 0:
        print(f"{sweep.name} failed:\n{p.stdout[-5000:]}", file=sys.stderr)
    for name in sums:
        sums[name] += int(found.get(f"trust.{name}", 0))
    return p.returncode == 0, int(found["trust.faults"]) + int(found.get("trust.start_faults", 0))


def main():
    sums = dict.fromkeys(("verified_ops", "lost", "leaked", "crashes"), 0)
    try:
        right = hostile(sums)
    except Failure as e:
        print(f"trust: {e}", file=sys.stderr)
        return 1
    right = hostile_over_tcp(sums) and right
    swept = [faults(sweep, sums) for sweep in SWEEPS]
    print(f"trust.faults {sum(n for _, n in swept)} count")
    for name, value in sums.items():
        print(f"trust.{name} {value} count")
    return 0 if right and all(ok for ok, _ in swept) and sums["lost"] == sums["leaked"] == sums["crashes"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
