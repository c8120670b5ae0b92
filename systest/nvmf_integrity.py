#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 180
# once
# sanitize
# beside
"""Verified I/O while all around it changes: namespaces, hosts, listeners, tracepoints. VARVE_SECONDS makes it longer."""
import os
import random
import sys
import time

from appliance_lib import RpcError, check, main, wait_for
from nvmf_lib import NQN, NUM_CPUS, Host, Target, verifying, wait_io

SECONDS = float(os.environ.get("VARVE_SECONDS", "12"))
OTHER = NQN + ":other"
GROUPS = ("nvmf_rdma", "bdev", "nvmf", "thread")


def cores():
    return "[0,1]" if NUM_CPUS > 1 else "[0]"


class Change:
    """The changes, one of which is made in each round, and how often each was."""

    def __init__(self, target, rng):
        self.target, self.rng = target, rng
        self.counts = {}
        self.groups_on = set()
        self.listens = True
        self.visitor = None

    def add_and_remove_namespace(self):
        nsid = self.target.add_ns("N0")
        self.target.call("nvmf_get_inflight")
        self.target.remove_ns(nsid)

    def namespace_under_io_goes_and_comes(self):
        """Of the other subsystem, where a visitor may be at work on it."""
        self.target.remove_ns(1, OTHER)
        self.target.add_ns("M1", OTHER, nsid=1)

    def host_comes_or_goes(self):
        if self.visitor is None:
            self.visitor = Host(self.target, "-w", "randrw", "-t", "30", "-q", "8", "--loss-timeout", "0", nqn=OTHER,
                                hostnqn="nqn.2026-11.io.varve:visitor")
        elif self.visitor.is_running() and self.rng.random() < 0.5:
            self.visitor.process.terminate()
        elif not self.visitor.is_running():
            self.visitor = None

    def listener_comes_or_goes(self):
        """Its hosts are disconnected with it; the first subsystem listens at the same address."""
        if self.listens:
            self.target.call("nvmf_subsystem_remove_listener", nqn=OTHER, listen_address=self.target.listen_address())
        else:
            self.target.add_listener(OTHER)
        self.listens = not self.listens

    def subsystem_comes_and_goes(self):
        self.target.add_subsystem(NQN + ":brief")
        self.target.call("nvmf_delete_subsystem", nqn=NQN + ":brief")

    def tracepoints_change(self):
        group = self.rng.choice(GROUPS)
        on = group not in self.groups_on
        self.target.call("trace_enable_tpoint_group" if on else "trace_disable_tpoint_group", name=group)
        (self.groups_on.add if on else self.groups_on.discard)(group)

    def look(self):
        for method in ("nvmf_get_stats", "nvmf_get_inflight", "nvmf_get_subsystems", "bdev_get_iostat"):
            self.target.call(method)
        self.target.call("nvmf_subsystem_get_qpairs", nqn=NQN)

    def one(self):
        f = self.rng.choice([self.add_and_remove_namespace, self.namespace_under_io_goes_and_comes, self.host_comes_or_goes,
                             self.listener_comes_or_goes, self.subsystem_comes_and_goes, self.tracepoints_change, self.look])
        f()
        self.counts[f.__name__] = self.counts.get(f.__name__, 0) + 1

    def end(self):
        if self.visitor is not None:
            self.visitor.process.terminate()
            self.visitor.wait()


def run(**transport):
    seed = int(os.environ.get("VARVE_SEED", time.time_ns() % 1000000))
    with Target(cores=cores(), **transport) as t:
        for name in ("M0", "M1"):
            t.add_malloc(name)
        t.add_file("F0", t.folder / "disk")
        t.call("bdev_null_create", name="N0", block_size=512, num_blocks=65536)
        t.add_ns("M0", nsid=1)
        t.add_ns("F0", nsid=2)
        t.add_subsystem(OTHER)
        t.add_ns("M1", OTHER, nsid=1)
        for nqn, nsid in ((NQN, 1), (NQN, 2), (OTHER, 1)) * 2:  # what comes with the first hosts stays
            with Host(t, "-t", "3600", "-P", "4", nqn=nqn, nsid=nsid) as h:
                wait_io(t, [h])
                h.stop()
        t.wait_empty()
        held = t.held()
        change = Change(t, random.Random(seed))
        with verifying(t, 1, "-t", "3600", "-q", "16", "-P", "2") as memory, \
                verifying(t, 2, "-t", "3600", "-q", "8", "-o", "16k", hostnqn=NQN + ":file") as file:
            wait_for(lambda: len(t.controllers()) == 2, "both hosts to be connected")
            wait_io(t, [memory, file])
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                change.one()
                check(memory.is_running() and file.is_running(), f"a host ended (seed {seed}):\n{memory.errors.read_text()}"
                      f"{file.errors.read_text()}")
            change.end()
            wait_io(t, [memory, file])
            for h in (memory, file):
                result = h.stop()
                h.check_perfect(result)
                print(f"# {result['read']['ios']} reads, {result['write']['ios']} writes verified")
        print(f"# seed {seed}: {change.counts}")
        t.wait_empty(held)
        t.stop_clean()


def test_verified_io_survives_all_changes():
    run()


def test_verified_io_survives_all_changes_without_srq_and_with_few_buffers():
    run(no_srq=True, zcopy=False, num_shared_buffers=64, buf_cache_size=4)


def test_removal_of_a_namespace_waits_for_its_io_and_loses_none():
    """A slow bdev: what was under way ends well, what comes later is refused; admin commands go on."""
    with Target() as t:
        t.add_malloc("M0")
        t.call("bdev_delay_create", name="D0", base_bdev_name="M0", avg_read_latency=200000, p99_read_latency=200000,
               avg_write_latency=200000, p99_write_latency=200000)
        t.add_ns("D0", nsid=1)
        with Host(t, "-w", "randread", "-t", "60", "-q", "8", "--kato", "2000", nsid=1) as h:
            wait_for(lambda: sum(x["state"] == "BDEV" for x in t.call("nvmf_get_inflight")) == 8, "eight reads")
            t.remove_ns(1)
            check("BDEV" not in [x["state"] for x in t.call("nvmf_get_inflight")], "a read is still at work on the namespace")
            wait_for(lambda: "failed: " in h.errors.read_text(), "a read to be refused")
            check("amespace" in h.errors.read_text(), h.errors.read_text())
            t.add_ns("D0", nsid=1)
            wait_io(t, [h], 20)
            result = h.stop()
            check(result["errors"] > 0 and result["read"]["ios"] > 0, result)
        t.wait_empty()
        t.stop_clean()


def test_an_unknown_subsystem_is_refused_without_harm():
    with Target() as t:
        h = Host(t, "-t", "1", nqn=NQN + ":none")
        check(h.wait() == 1 and "nqn.2026-11.io.varve:test:none" in h.errors.read_text(), h.errors.read_text())
        try:
            t.add_ns("none")
            check(False, "a namespace without a bdev was added")
        except RpcError as e:
            check("none" in e.message, e.message)
        t.wait_empty()
        t.stop_clean("none")


if __name__ == "__main__":
    main(sys.modules[__name__])
