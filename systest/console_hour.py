#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: chromium
# limit: 300
# budget: VARVE_CONSOLE_SECONDS=20
# beside
"""What the console costs a daemon under load while a browser has it open, for VARVE_CONSOLE_SECONDS (at night an hour): CPU time of all threads but the reactors, as the
kernel counts it, and memory, both compared with the same time without a browser. The control thread's own count of the time in which it had work is the second source."""
import os
import pathlib
import sys
import time

from appliance_lib import check, main, wait_for
from console import api, series
from console_browser import busy_target, check_page, show
from nvmf_lib import HOSTNQN, Host, wait_io
from service import pause
from webdriver import Browser

SECONDS = max(20.0, float(os.environ.get("VARVE_CONSOLE_SECONDS", "20")))
MOST_CPU, MOST_BYTES = 0.005, 10e6
ALONE_SECONDS = 10
VIEWS = ("overview", "load", "topology", "inflight", "blackbox")


def cpu_seconds(t):
    """Of all threads but the reactors (schedstat: nanoseconds on a CPU)."""
    total = 0
    for task in pathlib.Path(f"/proc/{t.pid}/task").iterdir():
        try:
            if not (task / "comm").read_text().startswith("reactor"):
                total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):     # it has ended: a look's worker, whose part is lost
            pass
    return total / 1e9


def stat_seconds(t):
    """Of the control thread, as another file of the kernel's has it, in steps of 10 ms."""
    fields = pathlib.Path(f"/proc/{t.pid}/task/{t.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_seconds(t):
    """Of the control thread, as it counts itself: while others have the CPUs it is more."""
    answer = t.call("thread_get_stats")
    [control] = [x for x in answer["threads"] if x["name"] == "control"]
    return control["busy"] / answer["tick_rate"]


def resident_bytes(t):
    return int(pathlib.Path(f"/proc/{t.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Cost:
    """From its beginning on."""

    def __init__(self, t):
        self.t, self.start = t, time.monotonic()
        self.cpu, self.stat, self.own = cpu_seconds(t), stat_seconds(t), own_seconds(t)

    def end(self):
        """Shares of a core: of the kernel's count, of its other one, and of the daemon's."""
        passed = time.monotonic() - self.start
        return [(now - before) / passed for now, before in
                ((cpu_seconds(self.t), self.cpu), (stat_seconds(self.t), self.stat), (own_seconds(self.t), self.own))]


def test_a_console_that_is_open_costs_little():
    t, address = busy_target()
    with t, Host(t, "-w", "randrw", "-t", "36000", "-q", "4", nsid=9) as h:
        wait_io(t, [h])
        wait_for(lambda: (series(address, "host").get(HOSTNQN) or {"iops": 0})["iops"], "figures")
        cost = Cost(t)
        pause(ALONE_SECONDS)
        alone = cost.end()
        with Browser() as b:
            show(b, address, "overview")
            before, cost, end = resident_bytes(t), Cost(t), time.monotonic() + SECONDS
            turn = 0
            while time.monotonic() < end:       # each view for a part of the time
                show(b, address, VIEWS[turn % len(VIEWS)])
                check_page(b, VIEWS[turn % len(VIEWS)])
                pause(min(SECONDS / len(VIEWS), 60))
                turn += 1
            open_ = cost.end()
            grown = resident_bytes(t) - before
            check(turn >= len(VIEWS), turn)
        check(h.is_running(), f"the host ended: {h.errors.read_text()}")
        shown = "; ".join(f"{what}: {100 * a:.3f} % alone, {100 * o:.3f} % open" for what, a, o in zip(("kernel", "kernel's stat, control thread", "own"), alone, open_))
        print(f"# {shown}; {grown / 1e6:.1f} MB more, history {api(address, 'state')['history_bytes'] / 1e6:.1f} MB")
        check(open_[0] > 0 and open_[2] > alone[2], f"nothing was counted: {shown}")
        check(open_[0] - alone[0] <= MOST_CPU, shown)
        check(grown <= MOST_BYTES, f"{grown} bytes more")
        # The sources agree: the control thread's part is no more than all, and its own count no less than the kernel's, but for steps and what it does not count.
        check(open_[1] <= open_[0] + 0.005 and open_[2] >= 0.5 * open_[1] - 0.005, shown)


if __name__ == "__main__":
    main(sys.modules[__name__])
