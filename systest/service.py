#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# apart
# sanitize
"""What a service manager hears of a daemon: sd_notify's messages, and a watchdog that follows the reactors."""
import shutil
import socket
import sys
import tempfile
import time

from appliance_lib import Daemon, check, main, wait_for
from doctor import thread_stopped

LOOK = 0.25         # seconds between two signs: a quarter of the watchdog's time
WATCHDOG_USEC = str(int(4 * LOOK * 1e6))


class Manager:
    """Listens as a service manager does."""

    def __init__(self, abstract=False):
        self.folder = tempfile.mkdtemp(prefix="varve-service-")
        name = f"{self.folder}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + name if abstract else name)
        self.socket.setblocking(False)
        self.heard = []
        self.env = {"NOTIFY_SOCKET": "@" + name if abstract else name}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.socket.close()
        shutil.rmtree(self.folder)

    def listen(self):
        """All that was said until now."""
        while True:
            try:
                self.heard.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return self.heard

    def wait(self, message, what):
        wait_for(lambda: any(m.startswith(message) for m in self.listen()), lambda: f"{what}; heard: {self.heard}")

    def wait_signs(self, number):
        before = self.listen().count("WATCHDOG=1")
        wait_for(lambda: self.listen().count("WATCHDOG=1") >= before + number, lambda: f"signs of the watchdog; heard: {self.heard}")

    def check_silence(self, why):
        """After the look that may have been due before, none leads to a sign."""
        pause(3 * LOOK)
        before = self.listen().count("WATCHDOG=1")
        pause(4 * LOOK)
        check(self.listen().count("WATCHDOG=1") == before, why)


def pause(seconds):
    end = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() > end, "time to pass")


def test_ready_and_stopping_are_told_once_in_order():
    for abstract in (False, True):
        with Manager(abstract) as m, Daemon(ready=False, env=m.env) as d:
            m.wait("READY=1", "the start")
            d.call("rpc_get_methods", current=True)
            m.wait("STATUS=running, RPC socket", "the status")
            check(d.stop() == 0, d.log())
            told = [x for x in m.listen() if not x.startswith("STATUS=")]
            check(told == ["READY=1", "STOPPING=1"], m.heard)
            check(m.heard.index("STATUS=CONFIG") < m.heard.index("READY=1") < m.heard.index("STOPPING=1"), m.heard)


def test_a_daemon_that_waits_for_its_start_is_ready():
    with Manager() as m, Daemon("--wait-for-rpc", ready=False, env=m.env) as d:
        m.wait("READY=1", "the RPC server")
        m.wait("STATUS=waiting for framework_start_init", "the status")
        d.call("framework_start_init")
        m.wait("STATUS=running", "the status")
        check(d.stop() == 0 and m.listen().count("READY=1") == 1, m.heard)


def test_a_start_that_fails_is_never_ready():
    with Manager() as m, Daemon("-c", "/nonexistent.json", ready=False, env=m.env) as d:
        check(d.wait_exit() == 1, d.log())
        check("STATUS=FAILED" in m.listen() and "READY=1" not in m.heard, m.heard)


def test_the_watchdog_follows_reactors_asleep_and_awake():
    for mode in ("adaptive", "busy"):
        with Manager() as m, Daemon("--poll-mode", mode, "-m", "[0]", env={**m.env, "WATCHDOG_USEC": WATCHDOG_USEC}) as d:
            m.wait_signs(3)
            reactor = d.call("framework_get_reactors")["reactors"][0]["tid"]
            with thread_stopped(reactor):
                m.check_silence("a sign although a reactor hangs")
                d.call("rpc_get_methods", current=True)     # the control thread is well
                check(f"(OS thread {reactor}) makes no rounds" in d.log(), d.log())
                check(any("makes no rounds" in x for x in m.heard), m.heard)
            m.wait_signs(2)
            wait_for(lambda: "all reactors make rounds again" in d.log(), "the log to say so")
            if mode == "adaptive":
                with thread_stopped(d.pid):
                    m.check_silence("a sign although the control thread hangs")
                m.wait_signs(2)
            check(d.stop() == 0, d.log())


def test_a_watchdog_for_somebody_else_is_not_served():
    for variable in ({"WATCHDOG_PID": "1", "WATCHDOG_USEC": WATCHDOG_USEC}, {"WATCHDOG_USEC": "soon"}, {}):
        with Manager() as m, Daemon(env={**m.env, **variable}) as d:
            m.wait("READY=1", "the start")
            check(d.stop() == 0, d.log())
            check("WATCHDOG=1" not in m.listen(), m.heard)
            check(("is not a number" in d.log()) == ("soon" in variable.values()), d.log())


def test_a_socket_that_is_none_does_no_harm():
    for path in ("relative", "/" + "x" * 200, "/nonexistent/notify", "@"):
        with Daemon(env={"NOTIFY_SOCKET": path}) as d:
            check(d.stop() == 0, d.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
