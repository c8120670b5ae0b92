# SPDX-License-Identifier: BSD-3-Clause
"""A noisy neighbour: two hosts of one target over TCP on the loopback interface, 4 KiB random reads of a RAM disk each. The quiet one has 4 in flight, the
noisy one 128, or is held by a limit of a tenth of what it does without. The target has the first core. The hosts share the last one: part of what the quiet host
feels of its neighbour is their fight for that core, so it is also measured beside one that asks for no more than the limit by itself. Medians of turns in which each case runs once:

    qos.quiet_alone_iops, quiet_alone_p99_us          the quiet host without a neighbour
    qos.quiet_unlimited_iops, quiet_unlimited_p99_us  beside the noisy host
    qos.quiet_limited_iops, quiet_limited_p99_us      beside the noisy host under its limit
    qos.quiet_polite_iops, quiet_polite_p99_us        beside a host that asks for as much as that limit, 32 in flight at most
    qos.noisy_unlimited_iops, noisy_limited_iops      what the noisy host does meanwhile
    qos.noisy_limit_iops                              the limit
    qos.limited_p99_percent                           by how much the limited neighbour moves the quiet host's p99, compared with no neighbour
    qos.excess_p99_percent                            the same, compared with the polite one; wanted: 20 at most"""
import collections
import pathlib
import statistics
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from nvmf_lib import NQN, Host, Target, wait_io  # noqa: E402

TURNS, SECONDS = 5, 3
QUIET, NOISY = "nqn.2026-11.io.varve:quiet", "nqn.2026-11.io.varve:noisy"
figures = collections.defaultdict(list)


def result_of(host, result):
    if result["errors"]:
        sys.exit(f"bench qos: varve-perf had errors: {host.errors.read_text()}")
    return result["read"]


def quiet(t, case):
    with Host(t, "-w", "randread", "-q", "4", "-t", str(SECONDS), nsid=1, hostnqn=QUIET) as h:
        read = result_of(h, h.result())
    figures[f"quiet_{case}_iops"].append(read["iops"])
    figures[f"quiet_{case}_p99_us"].append(read["latency_us"]["p99"])


def beside_noisy(t, case, *asks):
    with Host(t, "-w", "randread", *(asks or ("-q", "128")), "-t", "600", nsid=2, hostnqn=NOISY) as h:
        wait_io(t, [h], 1000)
        quiet(t, case)
        figures[f"noisy_{case}_iops"].append(result_of(h, h.stop())["iops"])


def limit_noisy(t, iops):
    t.call("nvmf_subsystem_set_qos_limit", nqn=NQN, host=NOISY, rw_ios_per_sec=iops)


def turn(t):
    quiet(t, "alone")
    beside_noisy(t, "unlimited")
    limit = max(1000, int(figures["noisy_unlimited_iops"][0]) // 10)
    limit_noisy(t, limit)
    figures["noisy_limit_iops"].append(limit)
    beside_noisy(t, "limited")
    limit_noisy(t, 0)
    beside_noisy(t, "polite", "-q", "32", "--rate", str(limit))


with Target(trtype="TCP") as target:
    for name in ("Quiet", "Noisy"):
        target.add_malloc(name, 64)
        target.add_ns(name)
    for _ in range(TURNS):
        turn(target)
medians = {name: statistics.median(values) for name, values in figures.items()}
for name, value in medians.items():
    print(f"qos.{name} {value:.{1 if name.endswith('_us') else 0}f} {'us' if name.endswith('_us') else 'IOPS'}")
for name, than in ("limited", "alone"), ("excess", "polite"):
    print(f"qos.{name}_p99_percent {(medians['quiet_limited_p99_us'] / medians[f'quiet_{than}_p99_us'] - 1) * 100:.1f} %", flush=True)
