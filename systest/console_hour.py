#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: chromium
# limit: 300
# budget: VARVE_CONSOLE_SECONDS=20
# beside
"""The console while a browser has it open, for VARVE_CONSOLE_SECONDS (at night an hour), of a daemon under load: the memory that it takes, and its pages. bench/console.py
measures the CPU time."""
import os
import sys
import time

from appliance_lib import check, main, wait_for
from console import api, series
from console_browser import busy_target, check_page, show
from nvmf_lib import HOSTNQN, Host, wait_io
from nvmf_many import resident_bytes
from service import pause
from webdriver import Browser

SECONDS = max(20.0, float(os.environ.get("VARVE_CONSOLE_SECONDS", "20")))
MOST_BYTES = 10e6
VIEWS = ("overview", "load", "topology", "inflight", "blackbox")


def requests(t):
    return t.call("metrics_get_status")["requests"]


def turn_pages(b, address, seconds):
    """Shows each view for a part of the time. How often it has turned to another."""
    turn, end = 0, time.monotonic() + seconds
    while turn < len(VIEWS) or time.monotonic() < end:
        show(b, address, VIEWS[turn % len(VIEWS)])
        check_page(b, VIEWS[turn % len(VIEWS)])
        pause(min(seconds / len(VIEWS), 60))
        turn += 1
    return turn


def test_a_console_that_is_open_takes_little_memory():
    t, address = busy_target()
    with t, Host(t, "-w", "randrw", "-t", "36000", "-q", "4", nsid=9) as h:
        wait_io(t, [h])
        wait_for(lambda: (series(address, "host").get(HOSTNQN) or {"iops": 0})["iops"], "figures")
        with Browser() as b:
            show(b, address, "overview")
            before, asked = resident_bytes(t), requests(t)
            turns = turn_pages(b, address, SECONDS)
            grown, asked = resident_bytes(t) - before, requests(t) - asked
            check(asked >= turns, f"the browser has asked for {asked} answers while it showed {turns} views")
        check(h.is_running(), f"the host ended: {h.errors.read_text()}")
        print(f"# {grown / 1e6:.1f} MB more, history {api(address, 'state')['history_bytes'] / 1e6:.1f} MB")
        check(grown <= MOST_BYTES, f"{grown} bytes more")


if __name__ == "__main__":
    main(sys.modules[__name__])
