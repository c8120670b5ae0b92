#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 600
"""Time in the block layer and time in its modules, as the trace tells them apart: held against the delay of a delay bdev, the waits that
bdev_get_iostat counts, and the children that a split I/O must have."""
import json
import re
import subprocess
import sys

from appliance_lib import BUILD, DEADLINE, check, main
from nvmf_lib import NQN, Host, Target

TOOL = BUILD / "bin/varve-trace"
DELAY_US = 20000
STATES = ("BDEV_IO_START", "BDEV_IO_LIMITED", "BDEV_IO_DISPATCH", "BDEV_IO_SPLIT", "BDEV_IO_NOMEM", "BDEV_IO_DONE")


def tool(t, *arguments):
    p = subprocess.run([TOOL, "-f", t.trace_file, *arguments], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0, p.stderr)
    return p.stdout


class Io:
    """One I/O of a bdev: [(tracepoint, tsc)], and its address."""

    def __init__(self, address, ctx, blocks):
        self.address, self.ctx, self.blocks, self.events = address, ctx, blocks, []

    def spent(self, state):
        """Ticks in a state."""
        return sum(later - tsc for (name, tsc), (_, later) in zip(self.events, self.events[1:]) if name == state)

    def names(self):
        return [name for name, _ in self.events]


def ios(t, bdev):
    """Those I/Os of a bdev that have ended; the events of each must be in an order that is possible."""
    document = json.loads(tool(t, "-j"))
    points = {p["id"]: p for p in document["tpoints"]}
    open_ios, ended = {}, []
    for e in document["entries"]:
        name = points[e["tpoint"]]["name"]
        if name not in STATES or e.get("owner") != bdev:
            continue
        address = e["object"]["value"]
        arguments = dict(zip((a["name"] for a in points[e["tpoint"]]["args"]), e["args"]))
        if name == "BDEV_IO_START":
            open_ios[address] = Io(address, arguments["ctx"], e["size"])
        if address not in open_ios:
            continue        # it began before the ring does
        io = open_ios[address]
        check(arguments["ctx"] == io.ctx, f"{name} of {address:x}: ctx {arguments['ctx']} instead of {io.ctx}")
        io.events.append((name, e["tsc"]))
        if name == "BDEV_IO_DONE":
            ended.append(open_ios.pop(address))
    for io in ended:
        check(re.fullmatch("START( LIMITED)?(( DISPATCH NOMEM)* DISPATCH| SPLIT)? DONE", " ".join(n.removeprefix("BDEV_IO_") for n in io.names())), io.names())
    return ended, document["tsc_rate"]


def run(t, *arguments, count=40):
    with Host(t, "-w", "randread", "-o", "4k", "--ios", str(count), "-t", "3600", *arguments, nsid=1) as h:
        h.result(600)
    t.wait_empty()


def stat(t, bdev, key):
    return t.call("bdev_get_iostat", name=bdev)["bdevs"][0][key]


def test_the_delay_of_a_module_is_the_modules():
    with Target("-e", "bdev", zcopy=False) as t:
        t.add_malloc("M")
        latency = {f"{p}_{k}_latency": DELAY_US for p in ("avg", "p99") for k in ("read", "write")}
        t.call("bdev_delay_create", name="D", base_bdev_name="M", **latency,
               p999_read_latency=DELAY_US, p999_write_latency=DELAY_US)
        t.add_ns("D")
        run(t, "-q", "4")
        (slow, rate), (fast, _) = ios(t, "D"), ios(t, "M")
        check(len(slow) >= 40 and len(slow) == stat(t, "D", "num_read_ops"), f"{len(slow)} I/Os of {stat(t, 'D', 'num_read_ops')}")
        for io in slow:
            check(io.names() == ["BDEV_IO_START", "BDEV_IO_DISPATCH", "BDEV_IO_DONE"], io.names())
            check(io.spent("BDEV_IO_DISPATCH") >= DELAY_US * rate // 1000000, f"{io.events} at {rate} Hz")
        layer = sum(io.spent("BDEV_IO_START") for io in slow)
        check(layer < sum(io.spent("BDEV_IO_DISPATCH") for io in slow), "the layer kept them longer than the module")
        # What the delay bdev has its base do happens while the I/O is with it.
        check(len(fast) == len(slow), f"{len(fast)} I/Os of the base")
        for io in fast:
            inside = [s for s in slow if s.events[1][1] <= io.events[0][1] and io.events[-1][1] <= s.events[-1][1]]
            check(inside, f"{io.events} is in none of {[s.events for s in slow]}")
        # Two numbers in the summary, which is of the same events.
        for name in ("BDEV_IO_START", "BDEV_IO_DISPATCH"):
            row = re.search(rf"^{name} +(\d+) ", tool(t, "--summary", "-l", "owner=D"), re.M)
            check(row and int(row[1]) == len(slow), tool(t, "--summary", "-l", "owner=D"))


def test_waits_for_a_rate_limit_are_the_layers():
    with Target("-e", "bdev", zcopy=False) as t:
        t.add_malloc("M")
        t.add_ns("M")
        t.call("bdev_set_qos_limit", name="M", rw_ios_per_sec=1000)
        run(t, "-q", "16", count=3000)
        done, _ = ios(t, "M")
        waits = stat(t, "M", "num_qos_waits")
        check(waits > 100 and len(done) > 1000, f"{waits} waits, {len(done)} I/Os")
        waited = sorted(done, key=lambda io: io.spent("BDEV_IO_LIMITED"))[-100:]
        held = [io for io in done if "BDEV_IO_LIMITED" in io.names()]
        check(len(held) > 100, f"{len(held)} of {waits} have the event")
        limit, module = (sorted(io.spent(s) for io in waited)[50] for s in ("BDEV_IO_LIMITED", "BDEV_IO_DISPATCH"))
        check(limit > module, f"median at the limit {limit}, in the module {module}")


def test_a_module_without_room_is_waited_for_in_the_layer():
    with Target("-e", "bdev", zcopy=False) as t:
        t.add_malloc("M")
        t.call("bdev_error_create", base_name="M")
        t.add_ns("EE_M")
        t.call("bdev_error_inject_error", name="EE_M", io_type="read", error_type="nomem", num=5)
        run(t, "-q", "2")
        done, _ = ios(t, "EE_M")
        waited = [io for io in done if "BDEV_IO_NOMEM" in io.names()]
        check(len(waited) == stat(t, "EE_M", "num_nomem_waits") > 0, f"{len(waited)} of {stat(t, 'EE_M', 'num_nomem_waits')}")
        check(sum(io.names().count("BDEV_IO_NOMEM") for io in done) == 5, [io.names() for io in waited])


def test_an_io_that_is_split_has_children():
    """The layer reads blocks with protection information into buffers of its own, by other I/Os of the same bdev."""
    with Target("-e", "bdev", zcopy=False) as t:
        t.call("bdev_malloc_create", name="M", block_size=512, num_blocks=32768, md_size=8, md_interleave=True, dif_type=1)
        t.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "M", "hide_metadata": True})
        run(t, "-q", "2")
        done, _ = ios(t, "M")
        parents = [io for io in done if "BDEV_IO_SPLIT" in io.names()]
        children = [io for io in done if "BDEV_IO_DISPATCH" in io.names()]
        check(len(parents) >= 40 and len(parents) + len(children) == len(done), f"{len(parents)} parents, {len(children)} children, {len(done)} in all")
        for p in parents:
            own = [c for c in children if c.ctx == p.address and p.events[0][1] <= c.events[0][1] and c.events[-1][1] <= p.events[-1][1]]
            check(sum(c.blocks for c in own) == p.blocks == 8, f"{p.events} of {p.blocks} blocks has {[c.events for c in own]}")


def test_each_event_is_recorded_alone():
    for name in ("BDEV_IO_START", "BDEV_IO_DISPATCH", "BDEV_IO_DONE"):
        with Target("-e", f"bdev:{name}", zcopy=False) as t:
            t.add_malloc("M")
            t.add_ns("M")
            run(t, "-q", "2")
            document = json.loads(tool(t, "-j"))
            names = {p["id"]: p["name"] for p in document["tpoints"]}
            seen = [names[e["tpoint"]] for e in document["entries"] if names[e["tpoint"]].startswith("BDEV_IO_")]
            check(set(seen) == {name} and len(seen) >= 40, f"{name}: {len(seen)} of {set(seen)}")


if __name__ == "__main__":
    main(sys.modules[__name__])
