#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# sanitize
# beside
"""varve --takeover: another process takes over from one that serves; hosts see one short disconnect, and whatever becomes of either process, one of
them serves, never two."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, DEADLINE, VARVE, Client, Daemon, RpcError, check, main, wait_for
from nvmf_lib import PORT, Target, preload, verifying, wait_io
from service import WATCHDOG_USEC, Manager, pause

sys.path.insert(0, str(BUILD / "tools/ctl"))
from varve_ctl import client as ctl_client, upgrade  # noqa: E402

TROUBLE = BUILD / "systest" / "libtakeover-trouble.so"
TIMEOUT = 20        # seconds; a slow machine gets to the place where a successor is held before that is over
RECONNECT = ("--loss-timeout", "-1", "-t", "100000")


def everything(d):
    return {s["subsystem"]: d.call("framework_get_config", name=s["subsystem"], whole=True) for s in d.call("framework_get_subsystems")}


class Successor(Target):
    """Takes over from another target, at the same socket, and in its folder."""

    def __init__(self, before, *options, ready=True, env=None, program=VARVE):
        self.program = program
        Daemon.__init__(self, "-m", "[0]", "-s", "512", "--takeover", str(before.path), *options, path=before.path, ready=False,
                        env={**preload(), **(env or {})})
        self.port, self.trtype = before.port, before.trtype
        if ready:
            try:
                self.wait_serving()
            except BaseException:
                self.__exit__()
                raise

    def wait_serving(self):
        def serves():
            check(self.process.poll() is None, f"the successor ended with {self.process.poll()}:\n{self.log()}")
            return "is running" in self.log()
        wait_for(serves, lambda: f"the successor to serve:\n{self.log()}")

    def __exit__(self, *exc):
        """The socket is the other one's perhaps."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.trace_file.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def failed(self, *words):
        """Waits for its end, which is a failure that its log explains."""
        status = self.wait_exit()
        check(status == 1 and all(w in self.log() for w in words), f"ended with {status}, not for {words}:\n{self.log()}")


class Served(Target):
    """A target with a file as namespace 1, or a RAM disk."""

    def __init__(self, *options, ram=False, **kwargs):
        super().__init__(*options, **kwargs)
        try:
            if ram:
                self.add_malloc("Disk")
            else:
                self.add_file("Disk", self.folder / "disk", 16)
            self.add_ns("Disk")
        except BaseException:
            self.__exit__()
            raise

    def goes_on(self, times=1):
        """Waits until it serves again after a successor has failed."""
        wait_for(lambda: self.log().count("is running, process") > times, lambda: f"it to go on:\n{self.log()}")
        check("left out" not in self.log() and "ignored:" not in self.log(), self.log())


def test_verified_io_goes_on_through_an_upgrade():
    for trtype in ("TCP", "RDMA"):
        with Served(trtype=trtype) as a, verifying(a, 1, *RECONNECT) as host:
            wait_filled(a, host)
            before = everything(a)
            with Successor(a) as b:
                check(a.wait_exit() == 0, a.log())
                check(everything(b) == before, f"{everything(b)}\n{before}")
                check(b.call("appliance_get_state")["pid"] == b.pid, "the socket is the successor's")
                wait_io(b, [host])
                host.check_perfect(host.stop(), reconnects=1)
                b.stop_clean()


def test_upgrades_follow_each_other():
    with Served(trtype="TCP") as a, verifying(a, 1, *RECONNECT) as host:
        wait_filled(a, host)
        before = everything(a)
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            wait_io(b, [host])
            with Successor(b) as c:
                check(b.wait_exit() == 0, b.log())
                wait_io(c, [host])
                check(everything(c) == before, everything(c))
                host.check_perfect(host.stop(), reconnects=2)
                c.stop_clean()


def wait_filled(target, host):
    """Until the host has written its whole region once, and is measured: before that it has no result."""
    wait_io(target, [host], more=2000)


def hold(folder):
    """Holds a successor before it listens. Its environment, and the file that holds it."""
    file = folder / "hold"
    file.touch()
    return {**preload(TROUBLE), "VARVE_TROUBLE_PORT": str(PORT), "VARVE_TROUBLE_HOLD": str(file)}, file


def wait_held(file, successor):
    wait_for(pathlib.Path(f"{file}.held").exists, lambda: f"the successor to get there:\n{successor.log()}")


class Case:
    """A target with a host that verifies, and what they must be like at the end."""

    def __init__(self):
        self.target = Served(trtype="TCP")
        try:
            self.host = verifying(self.target, 1, *RECONNECT)
            wait_filled(self.target, self.host)
            self.before = everything(self.target)
        except BaseException:
            self.target.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.host.__exit__()
        self.target.__exit__()

    def check_end(self, server, *may_complain, reconnects=(1,)):
        """reconnects: how many are possible."""
        check(everything(server) == self.before, f"{everything(server)}\n{self.before}")
        wait_io(server, [self.host])
        result = self.host.stop()
        self.host.check_perfect(result, reconnects=result["reconnects"] if result["reconnects"] in reconnects else reconnects[0])
        server.stop_clean(*may_complain)


def test_a_successor_that_ends_before_it_serves_changes_nothing():
    for number in (signal.SIGKILL, signal.SIGTERM):
        with Case() as c:
            env, file = hold(c.target.folder)
            with Successor(c.target, ready=False, env=env) as b:
                wait_held(file, b)
                b.process.send_signal(number)
                if number == signal.SIGTERM:
                    file.unlink()
                check(b.wait_exit() == (0 if number == signal.SIGTERM else -number), b.log())
                c.target.goes_on()
            # Before a successor looks at the signal it listens, so the host may have reached it, and lose it again.
            c.check_end(c.target, "ended without having taken over", reconnects=(1, 2) if number == signal.SIGTERM else (1,))


def test_a_successor_that_cannot_listen_or_open_a_bdev_changes_nothing():
    for why in ("VARVE_TROUBLE_PORT", "VARVE_TROUBLE_FILE"):
        with Case() as c:
            value = PORT if why == "VARVE_TROUBLE_PORT" else c.target.folder / "disk"
            with Successor(c.target, ready=False, env={**preload(TROUBLE), why: str(value)}) as b:
                b.failed("nvmf_subsystem_add_listener" if why == "VARVE_TROUBLE_PORT" else "bdev_uring_create")
                c.target.goes_on()
            c.check_end(c.target, "ended without having taken over")


def test_a_successor_that_hangs_is_killed_and_changes_nothing():
    for stopped in (False, True):
        with Case() as c:
            env, file = hold(c.target.folder)
            with Successor(c.target, "--takeover-timeout", str(TIMEOUT), ready=False, env=env) as b:
                wait_held(file, b)
                if stopped:
                    b.process.send_signal(signal.SIGSTOP)
                check(b.wait_exit() == -signal.SIGKILL, b.log())
                c.target.goes_on()
            c.check_end(c.target, "ended without having taken over", "neither serves nor has ended")


def test_a_predecessor_that_is_killed_after_it_gave_up_all_is_not_missed():
    with Case() as c:
        env, file = hold(c.target.folder)
        with Successor(c.target, ready=False, env=env) as b:
            wait_held(file, b)
            c.target.process.kill()
            c.target.process.wait()
            file.unlink()
            b.wait_serving()
            c.check_end(b, "nothing was heard of the other process's end")


def test_a_predecessor_that_stands_still_does_not_come_back():
    with Case() as c:
        env, file = hold(c.target.folder)
        with Successor(c.target, "--takeover-timeout", str(TIMEOUT), ready=False, env=env) as b:
            wait_held(file, b)
            c.target.process.send_signal(signal.SIGSTOP)
            file.unlink()
            b.wait_serving()
            pause(TIMEOUT)
            # Its time is over: it has heard that the other one serves before it may act on that.
            c.target.process.send_signal(signal.SIGCONT)
            check(c.target.wait_exit() == 0 and "is killed" not in c.target.log(), c.target.log())
            c.check_end(b, "nothing was heard of the other process's end")


def test_a_predecessor_that_dies_before_it_gave_anything_up_ends_the_attempt():
    with Served(trtype="TCP") as a:
        a.process.send_signal(signal.SIGSTOP)
        with Successor(a, ready=False) as b:
            wait_for(lambda: "Memory:" in b.log(), "the successor's start")
            a.process.kill()
            b.failed("nothing was taken over")


def test_only_one_takes_over_at_a_time():
    with Case() as c:
        env, file = hold(c.target.folder)
        with Successor(c.target, ready=False, env=env) as b:
            wait_held(file, b)
            # The socket is the first one's already, which does not answer while it is held.
            with Successor(c.target, "--takeover-timeout", "2", ready=False) as second:
                second.failed("nothing was taken over")
            file.unlink()
            b.wait_serving()
            check(c.target.wait_exit() == 0, c.target.log())
            c.check_end(b)


def test_two_at_once_end_with_one_that_serves():
    with Case() as c:
        with Successor(c.target, ready=False) as b, Successor(c.target, ready=False) as other:
            both = [b, other]
            wait_for(lambda: any("is running" in s.log() for s in both), lambda: f"one to serve:\n{b.log()}{other.log()}")
            wait_for(lambda: any(s.process.poll() is not None for s in [c.target, *both]), "one to end")
            check(c.target.wait_exit() == 0, c.target.log())

            def settled():
                return sum(s.process.poll() is None for s in both) == 1 or all("is running" in s.log() for s in both)
            wait_for(settled, "the other to end, or to follow")
            wait_for(lambda: sum(s.process.poll() is None for s in both) == 1, "one to be left")
            left = next(s for s in both if s.process.poll() is None)
            left.wait_serving()
            followed = all("is running" in s.log() for s in both)
            # The second one may follow before the host has reached the first.
            c.check_end(left, reconnects=(1, 2) if followed else (1,))


def change_key(a, text="DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"):
    """Adds a key whose file is gone: it stands against a take-over, unless that is forced."""
    path = a.folder / "key"
    path.touch(0o600)
    path.write_text(text)
    a.call("keyring_file_add_key", name="changed", path=str(path))
    path.unlink()


def test_what_would_be_lost_is_named_and_lost_only_by_force():
    with Served(trtype="TCP") as a:
        change_key(a)
        with Successor(a, ready=False) as b:
            b.failed('would not get key "changed"', "--takeover-force")
        check(a.call("appliance_get_state")["state"] == "RUNNING", "it never stopped")
        check(a.log().count("is running, process") == 1, a.log())


def test_who_calls_must_be_who_takes_over():
    with Served(trtype="TCP") as a:
        client = Client(a.path)
        for pid in (1, a.pid):
            try:
                client.call("framework_hand_over", pid=pid)
                check(False, "handed over to somebody else")
            except RpcError as e:
                check("the caller is not that process" in e.message, e.message)
        check(a.call("appliance_get_state")["state"] == "RUNNING", "it never stopped")
        check(client.call("framework_hand_over", pid=os.getpid(), dry_run=True)["subsystems"], "the configuration")


def test_files_and_addresses_pass_to_the_successor():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as name:
        folder = pathlib.Path(name)
        options = ("-f", str(folder / "pid"), "--metrics", f"unix:{folder}/metrics")
        with Served(*options, trtype="TCP") as a:
            before = (folder / "metrics").stat()
            with Successor(a, *options) as b:
                check(a.wait_exit() == 0, a.log())
                check(int((folder / "pid").read_text()) == b.pid, "the file with the process id")
                now = (folder / "metrics").stat()
                check((now.st_ino, now.st_ctime_ns) != (before.st_ino, before.st_ctime_ns), "the socket of metrics: inodes are used again")
                b.stop_clean()
            check(not any(folder.iterdir()), "the successor removes them at its end")


def test_a_service_manager_hears_whom_to_watch():
    with Manager() as m, Served(trtype="TCP", env={**m.env, "WATCHDOG_USEC": WATCHDOG_USEC}) as a:
        m.wait("READY=1", "the start")
        with Successor(a) as b:
            m.wait(f"MAINPID={b.pid}", "the change")
            check(a.wait_exit() == 0, a.log())
            m.wait_signs(3)     # of the successor, which was told of the manager
            check("STOPPING=1" not in m.listen() and m.heard.count("READY=1") == 2, m.heard)
            check(b.stop() == 0 and "STOPPING=1" in m.listen(), m.heard)


def ctl(target, *words, status=0):
    p = subprocess.run([BUILD / "bin/varve-ctl", "-s", target.path, "upgrade", *map(str, words)], capture_output=True, text=True, timeout=2 * DEADLINE,
                       stdin=subprocess.DEVNULL)
    check(p.returncode == status and "Traceback" not in p.stderr, f"{words}: {p.returncode}: {p.stdout}{p.stderr}\n{target.log()[-3000:]}")
    return p.stdout + p.stderr


def test_one_word_upgrades_with_the_same_options_and_log():
    with Case() as c:
        for reconnects in (1, 2):       # the second one takes over from one that has taken over
            old = c.target.call("appliance_get_state")["pid"]
            out = ctl(c.target)
            new = int(re.fullmatch(f"process ([0-9]+) has taken over from {old}\n", out)[1])
            try:
                check(everything(c.target) == c.before, everything(c.target))
                wait_io(c.target, [c.host])
                check(f"is running, process {new}," in c.target.log(), c.target.log())
                words = pathlib.Path(f"/proc/{new}/cmdline").read_bytes().split(b"\0")
                check(words.count(b"--takeover") == 1 and words.count(b"-m") == 1, words)
                if reconnects == 2:
                    c.host.check_perfect(c.host.stop(), reconnects=reconnects)
            except BaseException:
                os.kill(new, signal.SIGKILL)
                raise
        os.kill(new, signal.SIGTERM)
        wait_for(lambda: not c.target.path.exists(), "the end")
        wait_for(lambda: not pathlib.Path(f"/proc/{new}/fd/2").exists(), "the end")


def test_one_word_upgrades_a_daemon_that_waited_for_its_start():
    with Daemon("--wait-for", ready=False, env=preload()) as a:     # as getopt_long() has it, it may be shortened
        wait_for(a.connect, "the RPC socket").close()
        a.call("framework_start_init")
        out = ctl(a)
        new = int(re.fullmatch(f"process ([0-9]+) has taken over from {a.pid}\n", out)[1])
        try:
            check(a.wait_exit() == 0, a.log())
            check(b"wait-for" not in pathlib.Path(f"/proc/{new}/cmdline").read_bytes(), "it waits for nothing")
        finally:
            os.kill(new, signal.SIGTERM)
        wait_for(lambda: not pathlib.Path(f"/proc/{new}/fd/2").exists(), "the end")


def test_options_that_are_not_copied_may_be_shortened():
    for words, left in ((["-m", "[0]", "--takeover", "a", "-u"], ["-m", "[0]", "-u"]), (["--takeover=a", "-u"], ["-u"]),
                        (["--takeover-t", "9", "--takeover-ti=9", "--takeover-f", "--w", "--wait-for-rpc", "-u"], ["-u"]),
                        (["--metrics", "a", "--", "--version", "--takeover-timeoutx", "-w"],) * 2):
        check(upgrade.without_takeover(words) == left, f"{words}: {upgrade.without_takeover(words)}")


def test_one_word_does_not_take_a_daemon_out_of_its_service():
    unit = "/system.slice/varve.service"
    real = upgrade.unit_of_process

    class Options:
        binary, force, limit = str(VARVE), False, None

    with Manager() as m, Served(trtype="TCP", env=m.env) as a:
        change_key(a)
        try:
            upgrade.unit_of_process = lambda pid: unit if pid == a.pid else real(pid)
            upgrade.upgrade(ctl_client.Client(str(a.path), DEADLINE, 0), Options, None)
            check(False, "out of its service")
        except ctl_client.Trouble as e:
            check("systemctl reload varve.service lets" in str(e) and 'would not get key "changed"' in str(e), e)
        finally:
            upgrade.unit_of_process = real
        check(a.log().count("is running, process") == 1 and a.call("appliance_get_state")["pid"] == a.pid, a.log())
        a.call("keyring_file_remove_key", name="changed")
        new = int(re.fullmatch(f"process ([0-9]+) has taken over from {a.pid}\n", ctl(a))[1])      # in the same control group
        try:
            m.wait(f"MAINPID={new}", "the change")
            check(a.wait_exit() == 0, a.log())
        finally:
            os.kill(new, signal.SIGTERM)
        wait_for(lambda: not pathlib.Path(f"/proc/{new}/fd/2").exists(), "the end")


def test_what_a_service_is_and_who_belongs_to_it():
    for groups, unit in (("0::/system.slice/varve.service\n", "/system.slice/varve.service"), ("0::/\n", "/"), ("", ""),
                         ("0::/system.slice/varve.service/.control\n", "/system.slice/varve.service"),
                         ("12:cpu,cpuacct:/a.service\n1:name=systemd:/user.slice/session-2.scope\n0::/b.service\n", "/user.slice/session-2.scope"),
                         ("0::/user.slice/user-1.slice/user@1.service/app.slice/v:w.service\n", "/user.slice/user-1.slice/user@1.service/app.slice/v:w.service")):
        check(upgrade.unit_of(groups) == unit, f"{groups}: {upgrade.unit_of(groups)}")
    real = upgrade.unit_of_process
    try:
        for unit, manager, words in (("/a.slice/user@1.service/x.service", True, "systemctl --user reload x.service lets"), ("/a/b", True, "its manager's reload"),
                                     ("/mine", True, None), ("/a.service", False, None)):
            upgrade.unit_of_process = lambda pid, unit=unit: unit if pid == 1 else "/mine"
            why = upgrade.outside(1, {"NOTIFY_SOCKET": "/run/x"} if manager else {})
            check(why is None if words is None else words in why, f"{unit}: {why}")
    finally:
        upgrade.unit_of_process = real


def test_a_log_that_cannot_be_opened_is_not_the_callers():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        name = f"{folder}/fifo"
        os.mkfifo(name)
        reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(name, os.O_WRONLY)
        one, other = socket.socketpair()
        with one, other, subprocess.Popen(["sleep", "600"], stderr=one) as p, subprocess.Popen(["sleep", "600"], stderr=writer) as q:
            try:
                fd, why = upgrade.log_of(q.pid, False)      # somebody reads
                check(why is None and os.path.samestat(os.fstat(fd), os.fstat(writer)) and os.get_blocking(fd), why)
                os.close(fd)
                os.close(reader)                            # nobody does, which is not waited for
                for pid in (p.pid, q.pid):
                    fd, why = upgrade.log_of(pid, False)
                    check(fd is None and "cannot be opened for the new process" in why and not upgrade.is_same_log(pid), f"{fd}: {why}")
                    fd, why = upgrade.log_of(pid, True)
                    check(why is None and os.path.samestat(os.fstat(fd), os.fstat(2)), why)
                    os.close(fd)
            finally:
                p.kill()
                q.kill()
        os.close(writer)
    check(upgrade.is_same_log(os.getpid()), "its own")


def test_who_serves_is_told_when_the_old_process_is_gone():
    class Asked:
        def __init__(self, *states):
            self.states = list(states)

        def ask(self, method, params):
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            if state is None:
                raise ctl_client.Trouble("nobody listens", 1)
            return {"pid": 7, "state": state}

    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    for states, words in ((("RUNNING",), "process 7 serves"), ((None, None, "CONFIG", "RUNNING"), "process 7 serves"), ((None,), "nothing is served")):
        told = upgrade.outcome(Asked(*states), ended.pid, 0)
        check(told == f"which has ended, too: {words}", f"{states}: {told}")
    told = upgrade.outcome(Asked(None), os.getpid(), 0, limit=0)
    check("neither serves nor has ended" in told, told)


def test_one_word_says_why_there_is_no_upgrade():
    with Served(trtype="TCP") as a:
        check("is no program" in ctl(a, a.folder / "disk", status=2), "not a program")
        check("has not taken over" in ctl(a, "/bin/false", status=1), "a program that fails")
        change_key(a)
        out = ctl(a, status=1)
        check('would not get key "changed"' in out and "--force does it all the same" in out and a.log().count("is running") == 1, out)


if __name__ == "__main__":
    main(sys.modules[__name__])
