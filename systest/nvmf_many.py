#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 240
# apart
"""Many hosts and connections at a time."""
import pathlib
import sys

from appliance_lib import check, main, wait_for
from nvmf_lib import Host, Target

HOSTS, CONNECTIONS = 64, 250


def resident_bytes(target):
    for line in pathlib.Path(f"/proc/{target.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024


def transport(target):
    return target.call("nvmf_get_stats")["poll_groups"][0]["transports"][0]


def make_target(**options):
    t = Target(**options)
    t.call("bdev_null_create", name="N0", block_size=512, num_blocks=1 << 22)
    t.add_ns("N0", nsid=1)
    return t


def connect(target, wanted, *args):
    h = Host(target, "-w", "none", "-t", "3600", "--kato", "0", *args)

    def connected():
        check(h.is_running(), f"varve-perf ended:\n{h.errors.read_text()}")
        return target.num_qpairs() == wanted
    try:
        wait_for(connected, f"{wanted} queue pairs", 120)
    except BaseException:
        h.kill()
        raise
    return h


def test_without_batching_each_send_has_its_doorbell():
    for options in ({}, {"no_wr_batching": True}):
        with make_target(**options) as t:
            h = Host(t, "-w", "randread", "-q", "32", "--ios", "5000")
            check(h.wait() == 0, h.errors.read_text())
            sends = sum(d["total_send_wrs"] for d in transport(t)["devices"])
            doorbells = sum(d["send_doorbell_updates"] for d in transport(t)["devices"])
            check(sends > 5000 and (doorbells == sends) == ("no_wr_batching" in options), (options, sends, doorbells))
            t.wait_empty()
            t.stop_clean()


def test_64_hosts_have_a_controller_each_and_go_without_a_trace():
    with make_target() as t:
        more = [x for _ in range(HOSTS - 1) for x in ("-r", t.trid())]
        with connect(t, 2 * HOSTS, "-r", t.trid(), *more) as h:
            check(len({c["cntlid"] for c in t.controllers()}) == HOSTS, "controllers share an id")
            h.process.terminate()   # it may not have begun its run yet: there need not be a result
            check(h.wait() in (0, 1), h.errors.read_text())
        t.wait_empty()
        t.stop_clean()


def test_memory_is_told_and_1000_connections_fit_in_a_gigabyte():
    for options in ({}, {"no_srq": True}):
        with make_target(max_io_qpairs_per_ctrlr=CONNECTIONS, **options) as t:
            with connect(t, CONNECTIONS, "-q", "16", "-P", str(CONNECTIONS - 1)):
                told = transport(t)
                check(told["connections"] == CONNECTIONS, told)
                check((told["group_bytes"] > 10 << 20) != ("no_srq" in options), told)
                whole = resident_bytes(t)
                each = told["connection_bytes"] / CONNECTIONS
                print(f"# {options}: {whole >> 20} MB with {CONNECTIONS} connections, {each / 1024:.1f} kB each; "
                      f"{told['group_bytes'] >> 10} kB for the group")
                # whatever is there without connections counts four times here, too
                check(whole * 1000 / CONNECTIONS < 1 << 30, f"{whole} bytes with {CONNECTIONS} connections")
            t.wait_empty()
            t.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
