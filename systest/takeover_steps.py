#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# sanitize
# beside
"""varve --takeover, step by step: whichever of the two processes is killed, hangs or is told to stop, and at whichever step, one of them serves with all that
was there, or, if varve was told to stop, none."""
import pathlib
import signal
import sys
import tempfile

from appliance_lib import check, main, wait_for
from nvmf_lib import PORT, preload, verifying, wait_io
from takeover import RECONNECT, TIMEOUT, TROUBLE, Served, Successor, everything, wait_filled

# Where a process can be held, in the order of the steps, and by what.
SUCCESSOR = {"asks": {"VARVE_TROUBLE_SAY": '"dry_run":true'}, "begins": {"VARVE_TROUBLE_SAY": '"dry_run":false'}, "loads": {"VARVE_TROUBLE_PORT": str(PORT)},
             "says": {"VARVE_TROUBLE_SAY": '"serving"'}}
PREDECESSOR = {"stops": {"VARVE_TROUBLE_UNLINK": "/rpc.sock"}, "gives": {"VARVE_TROUBLE_SAY": '"handed_over"'}}
GIVEN_UP = ("stops", "gives", "loads", "says")      # the predecessor serves nothing any more


class Step:
    """A take-over under verified I/O that is held at a step."""

    def __init__(self, step, *options, ram=False):
        self.step = step
        self.folder = tempfile.TemporaryDirectory(prefix="varve-test-")
        self.file = pathlib.Path(self.folder.name) / "hold"
        hold = {**preload(TROUBLE), "VARVE_TROUBLE_HOLD": str(self.file)}
        self.old = Served(trtype="TCP", ram=ram, env={**hold, **PREDECESSOR[step]} if step in PREDECESSOR else None)
        self.host = self.new = None
        try:
            self.host = verifying(self.old, 1, *RECONNECT)
            wait_filled(self.old, self.host)
            self.before = everything(self.old)
            self.file.touch()
            self.new = Successor(self.old, *options, ready=False, env={**hold, **SUCCESSOR[step]} if step in SUCCESSOR else None)
            wait_for(pathlib.Path(f"{self.file}.held").exists, lambda: f"it to get to the step {step}:\n{self.logs()}")
        except BaseException:
            self.__exit__()
            raise

    def logs(self):
        return f"{self.step}:\n{self.old.log()}\n--- the successor ---\n{self.new.log() if self.new else ''}"

    def release(self):
        self.file.unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.release()
        for x in (self.new, self.host, self.old):
            if x is not None:
                x.__exit__()
        self.folder.cleanup()

    def check_serves(self, server):
        check(everything(server) == self.before, f"{everything(server)}\n{self.before}")
        wait_io(server, [self.host])
        result = self.host.stop()
        # A successor that is held when it says that it serves has let the host in.
        allowed = (0,) if self.step not in GIVEN_UP else (1, 2) if self.step == "says" and server is self.old else (1,)
        check(result["reconnects"] in allowed, f"{self.step}: {result}")
        self.host.check_perfect(result, reconnects=result["reconnects"])
        check(server.stop() == 0, self.logs())

    def check_goes_on(self):
        if self.step in GIVEN_UP:
            self.old.goes_on()
        else:
            check(self.old.log().count("is running, process") == 1, self.logs())
        check(self.old.call("appliance_get_state")["not_taken_back"] == 0, self.logs())
        self.check_serves(self.old)


def test_a_successor_that_is_killed_at_any_step_changes_nothing():
    for step in (*SUCCESSOR, *PREDECESSOR):
        with Step(step) as s:
            s.new.process.kill()
            check(s.new.wait_exit() == -signal.SIGKILL, s.logs())
            s.release()
            s.check_goes_on()


def test_a_predecessor_that_is_killed_before_it_gave_all_ends_the_attempt_and_is_not_missed_later():
    for step in (*SUCCESSOR, *PREDECESSOR):
        with Step(step) as s:
            s.old.process.kill()
            s.old.process.wait()
            s.release()
            if step in ("loads", "says"):
                s.new.wait_serving()
                s.check_serves(s.new)
            else:
                s.new.failed("nothing was taken over")


def test_a_successor_that_hangs_once_something_was_given_up_is_killed_at_its_deadline():
    for step in GIVEN_UP:
        with Step(step, "--takeover-timeout", str(TIMEOUT)) as s:
            if step in PREDECESSOR:
                s.new.process.send_signal(signal.SIGSTOP)
                s.release()
            check(s.new.wait_exit() == -signal.SIGKILL, s.logs())
            s.release()
            s.check_goes_on()


def test_a_successor_that_hangs_before_takes_nothing_away():
    for step in ("asks", "begins"):
        with Step(step) as s:
            wait_io(s.old, [s.host])
            check(s.old.call("appliance_get_state")["state"] == "RUNNING", s.logs())
            s.new.process.kill()
            s.check_goes_on()


def test_varve_that_is_told_to_stop_stops_at_any_step():
    for step in (*SUCCESSOR, *PREDECESSOR):
        with Step(step) as s:
            s.old.process.send_signal(signal.SIGTERM)
            if step == "loads":     # it is told at once, and sees it when it has bound the address
                wait_for(lambda: "this process is to stop" in s.old.log(), s.logs)
            s.release()
            check(s.old.wait_exit() == 0, s.logs())
            status = s.new.wait_exit()
            # It is told by a signal, as from everybody who wants it to stop, or that there is nothing to take over.
            check(status in ((0,) if step in ("loads", "says", "gives") else (1,)), f"ended with {status}: {s.logs()}")
            if step == "stops":
                check("does not take over: this process stops" in s.old.log() and "that process stops" in s.new.log(), s.logs())
            check("is running, process" not in s.new.log() or step == "says", s.logs())


if __name__ == "__main__":
    main(sys.modules[__name__])
