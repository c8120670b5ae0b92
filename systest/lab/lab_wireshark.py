# SPDX-License-Identifier: BSD-3-Clause
"""In the guest: lab_wireshark.py PORT [SIDE:PDU:LEAST]... captures the port's packets, says "begun", and goes on until its input ends. Then Wireshark
dissects them. Ends with 1 if it finds a fault or a wrong digest, or fewer PDUs than LEAST (SIDE: sent, by hosts, or answered; PDU: its name in
nvmf_tcp_lib.py, or hdgst or ddgst: digests). Prints how many there were."""
import pathlib
import sys
import tempfile

import nvmf_tcp_lib
from appliance_lib import check
from wireshark_lib import Capture, Dissection, check_no_fault

TYPES = ("ICREQ", "ICRESP", "H2C_TERM", "C2H_TERM", "CAPSULE_CMD", "CAPSULE_RESP", "H2C_DATA", "C2H_DATA", "R2T")


def counts(of):
    names = {name: of_type(of, getattr(nvmf_tcp_lib, name)) for name in TYPES}
    return {**names, **{name: sum(d.digests[name, True] for d in of.values()) for name in ("hdgst", "ddgst")}}


def of_type(of, type):
    return sum(d.types[type] for d in of.values())


def main(port, *wanted):
    with tempfile.TemporaryDirectory() as folder:
        with Capture(pathlib.Path(folder), int(port)) as capture:
            print("begun", flush=True)
            sys.stdin.read()
            capture.stop()
        seen = Dissection(capture.file, int(port))
    there = {"sent": counts(seen.sent), "answered": counts(seen.answered)}
    for side, names in there.items():
        for name, n in names.items():
            print(f"{side} {name} {n}")
    for side in there:
        check_no_fault(getattr(seen, side))
        check(there[side]["H2C_TERM"] == there[side]["C2H_TERM"] == 0, f"{side}: a side has ended a connection because of what the other has sent")
    for side, name, least in (w.split(":") for w in wanted):
        check(there[side][name] >= int(least), f"{there[side][name]} {name} {side}, at least {least} expected")


main(*sys.argv[1:])
