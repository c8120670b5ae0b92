# SPDX-License-Identifier: BSD-3-Clause
"""What the console costs a daemon under load while a browser has it open (needs chromium): CPU time, in percent of a core, of all threads but the reactors, over
VARVE_CONSOLE_SECONDS (20 by default), of which each view has a part; and over 10 s without a browser.

    console.cpu_percent                 with the browser less without it, as the kernel counts nanoseconds (schedstat)
    console.alone_cpu_percent           without it
    console.stat_cpu_percent            like the first, of the control thread only, as another file of the kernel's has it, in steps of 10 ms (stat)
    console.own_cpu_percent             like it, as the control thread counts itself the time in which it has work: while others have the CPUs it is more

Wanted: cpu_percent at most 0.5. stat_cpu_percent and own_cpu_percent are the second source: the part of the control thread is no more than all."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "systest"))
from appliance_lib import wait_for  # noqa: E402
from console import series  # noqa: E402
from console_browser import busy_target, show  # noqa: E402
from console_hour import SECONDS, turn_pages  # noqa: E402
from nvmf_lib import HOSTNQN, Host, wait_io  # noqa: E402
from webdriver import Browser  # noqa: E402

ALONE_SECONDS = 10


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
    fields = pathlib.Path(f"/proc/{t.pid}/task/{t.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_seconds(t):
    answer = t.call("thread_get_stats")
    [control] = [x for x in answer["threads"] if x["name"] == "control"]
    return control["busy"] / answer["tick_rate"]


def shares(t, while_this):
    """Percent of a core while a function runs, by each of the counts."""
    counts = (cpu_seconds, stat_seconds, own_seconds)
    before, start = [count(t) for count in counts], time.monotonic()
    while_this()
    passed = time.monotonic() - start
    return [100 * (count(t) - b) / passed for count, b in zip(counts, before)]


def main():
    t, address = busy_target()
    with t, Host(t, "-w", "randrw", "-t", "36000", "-q", "4", nsid=9) as h:
        wait_io(t, [h])
        wait_for(lambda: (series(address, "host").get(HOSTNQN) or {"iops": 0})["iops"], "figures")
        alone = shares(t, lambda: time.sleep(ALONE_SECONDS))
        with Browser() as b:
            show(b, address, "overview")
            opened = shares(t, lambda: turn_pages(b, address, SECONDS))
        if not h.is_running():
            sys.exit(f"bench console: the host ended: {h.errors.read_text()}")
    names = ("cpu", "stat_cpu", "own_cpu")
    print(f"console.alone_cpu_percent {alone[0]:.3f} %")
    for name, a, o in zip(names, alone, opened):
        print(f"console.{name}_percent {o - a:.3f} %")


if __name__ == "__main__":
    main()
