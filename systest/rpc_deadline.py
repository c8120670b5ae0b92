#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# apart
"""A call whose work does not end is answered at its deadline; the work goes on, and ends when it can."""
import contextlib
import json
import sys

from appliance_lib import RpcError, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target, wait_io

OPTIONS = ("-e", "rpc", "--rpc-deadline", "1")
REMOVE = {"method": "nvmf_subsystem_remove_ns", "params": {"nqn": NQN, "nsid": 2}}


@contextlib.contextmanager
def hanging():
    """A target, a host whose I/O works, and one that waits for two reads that do not end before they are told to."""
    with Target(*OPTIONS) as t:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.call("bdev_error_create", base_name="M1")
        t.add_ns("M0")
        t.add_ns("EE_M1")
        with Host(t, "-w", "randread", "-q", "2", "-t", "3600", nsid=1) as busy, \
                Host(t, "-w", "randread", "-q", "2", "-t", "3600", nsid=2, hostnqn=HOSTNQN + ":2") as h:
            wait_io(t, [busy, h])
            t.call("bdev_error_inject_error", name="EE_M1", io_type="read", error_type="pending", num=2)
            wait_for(lambda: sum(r["hostnqn"].endswith(":2") and r["state"] == "BDEV" and r["age_us"] > 500000
                                 for r in t.call("nvmf_get_inflight")) == 2, "two reads to hang")
            yield t, busy


def calls(t):
    return [(c["method"], c["timed_out"]) for c in t.call("rpc_get_calls")]


def is_timeout(error, method):
    check(error["code"] == -110, error)
    check(f"{method} has not ended within 1 s" in error["message"] and "rpc_get_calls" in error["message"], error)


def times_out(t, method, **params):
    try:
        check(False, f"{method} answered {t.call(method, **params)}")
    except RpcError as e:
        is_timeout({"code": e.code, "message": e.message}, method)


def test_a_deletion_that_waits_for_io_is_answered_and_goes_on():
    with hanging() as (t, busy):
        times_out(t, "bdev_error_delete", name="EE_M1")
        check(calls(t) == [("bdev_error_delete", True)], calls(t))
        wait_io(t, [busy])
        check(t.call("bdev_error_resume_pending", name="EE_M1") is True, "the I/O goes on")
        wait_for(lambda: calls(t) == [], "the deletion to end")
        check(sorted(b["name"] for b in t.call("bdev_get_bdevs")) == ["M0", "M1"], "the bdev is still there")
        check("bdev_error_delete, whose client was answered with a timeout, ended after" in t.log(), t.log())
        wait_io(t, [busy])


def test_clients_that_leave_and_batches():
    with hanging() as (t, busy):
        gone = t.client()
        gone.send({"jsonrpc": "2.0", "id": 1, **REMOVE})
        wait_for(lambda: calls(t), "the call to begin")
        gone.close()
        c = t.client()
        c.send([{"jsonrpc": "2.0", "id": 7, "method": "bdev_error_delete", "params": {"name": "EE_M1"}}, {"id": 8, "method": "log_get_level"}])
        answer = {a["id"]: a for a in c.receive()}
        is_timeout(answer[7]["error"], "bdev_error_delete")
        check(answer[8]["result"], answer)
        check(c.call("log_get_level") == answer[8]["result"], "the connection is of use")
        wait_for(lambda: calls(t) == [(REMOVE["method"], True), ("bdev_error_delete", True)], lambda: f"both to be past it: {calls(t)}")
        t.call("bdev_error_resume_pending", name="EE_M1")
        wait_for(lambda: calls(t) == [], "the calls to end")
        wait_io(t, [busy])


def test_what_a_client_gives_time_to_has_it():
    with Target(*OPTIONS) as t:
        c = t.client()
        c.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "bdev_get_bdevs", "params": {"name": "X", "timeout": 3000}}).encode())
        answer = c.receive()
        check("in the time given" in answer["error"]["message"], answer)


def test_the_daemon_ends_with_such_a_call():
    with Target(*OPTIONS) as t:
        t.add_malloc("M0")
        us = {f"{kind}_{what}_latency": 4000000 for kind in ("avg", "p99") for what in ("read", "write")}
        t.call("bdev_delay_create", name="D", base_bdev_name="M0", **us)
        t.add_ns("D")
        with Host(t, "-w", "randread", "-q", "8", "-t", "3600", nsid=1):
            wait_for(lambda: t.call("nvmf_get_inflight"), "I/O to be under way")
            c = t.client()
            c.send({"jsonrpc": "2.0", "id": 1, "method": "bdev_delay_delete", "params": {"name": "D"}})
            # Mostly it is past its deadline before the I/O has ended.
            wait_for(lambda: all(timed_out for _, timed_out in calls(t)), "the call to be past its deadline, or to have ended")
            check(t.stop() == 0, f"ended with {t.process.returncode}:\n{t.log()}")
            check("Sanitizer" not in t.log(), t.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
