# SPDX-License-Identifier: BSD-3-Clause
"""The longest time that an I/O of a host takes while another process takes over from its target (varve --takeover), in verified I/O over TCP and RDMA, and
the part of it in which nothing listens: from the stop of the old process until the new one serves. An error or a miscompare is a failure.

    takeover.tcp.stall_ms, takeover.rdma.stall_ms   the longest I/O; wanted: 1000 or less
    takeover.tcp.closed_ms, takeover.rdma.closed_ms nothing listens"""
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "systest"))
from appliance_lib import wait_for  # noqa: E402
from nvmf_lib import verifying, wait_io  # noqa: E402
from takeover import RECONNECT, Served, Successor, wait_filled  # noqa: E402

TURNS = 5
STAMP = r"^\[\d+-\d+-\d+ (\d+):(\d+):([\d.]+)\].*"


def second_of(log, text):
    hours, minutes, seconds = re.search(STAMP + text, log, re.M).groups()
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def turn(trtype):
    """(longest I/O, time in which nothing listened) in ms."""
    with Served(trtype=trtype) as old, verifying(old, 1, *RECONNECT) as host:
        wait_filled(old, host)
        with Successor(old) as new:
            wait_for(lambda: old.process.poll() is not None, "the old process to end")
            wait_io(new, [host])
            result = host.stop()
            host.check_perfect(result, reconnects=1)
            closed = second_of(new.log(), "is running") - second_of(old.log(), "handing over to")
            return max(result[x]["latency_us"]["max"] for x in ("read", "write")) / 1000, closed % 86400 * 1000


def main():
    turns = {t: [] for t in ("TCP", "RDMA")}
    begin = time.monotonic()
    for _ in range(TURNS):
        for trtype, results in turns.items():
            results.append(turn(trtype))
    for trtype, results in turns.items():
        print(f"takeover.{trtype.lower()}.stall_ms {statistics.median(r[0] for r in results):.0f} ms")
        print(f"takeover.{trtype.lower()}.closed_ms {statistics.median(r[1] for r in results):.0f} ms")
    print(f"bench takeover: {TURNS} turns in {time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
