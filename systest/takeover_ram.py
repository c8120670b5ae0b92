#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# sanitize
# beside
"""varve --takeover with RAM disks: what is on them passes to the new process, and stays with the old one if that fails at whichever step."""
import json
import os
import pathlib
import signal
import socket
import sys
import threading

from appliance_lib import DEADLINE, Client, RpcError, check, main, wait_for
from nvmf_lib import preload, verifying, wait_io
from takeover import RECONNECT, TIMEOUT, TROUBLE, Served, Successor, everything, wait_filled
from takeover_steps import GIVEN_UP, PREDECESSOR, SUCCESSOR, Step


def ram_files(d):
    """The files of shared memory that RAM disks are in: their inodes and the blocks that they have."""
    files = set()
    for fd in pathlib.Path(f"/proc/{d.pid}/fd").iterdir():
        try:
            if "/memfd:varve_ram" in os.readlink(fd):
                stat = fd.stat()
                files.add((stat.st_ino, stat.st_blocks))
        except FileNotFoundError:
            pass
    return files


def test_verified_io_on_ram_disks_goes_on_through_upgrades():
    for trtype in ("TCP", "RDMA"):
        with Served(trtype=trtype, ram=True) as a:
            a.add_malloc("Large", 40)
            a.add_ns("Large")
            with verifying(a, 1, *RECONNECT) as one, verifying(a, 2, *RECONNECT) as two:
                for host in (one, two):
                    wait_filled(a, host)
                before = everything(a)
                with Successor(a) as b:
                    check(a.wait_exit() == 0, a.log())
                    wait_io(b, [one, two])
                    check(everything(b) == before, f"{everything(b)}\n{before}")
                    (file, _), = ram_files(b)
                    with Successor(b) as c:
                        check(b.wait_exit() == 0, b.log())
                        wait_io(c, [one, two])
                        check({f for f, _ in ram_files(c)} == {file}, "what is shared is not copied again")
                        for host in (one, two):
                            host.check_perfect(host.stop(), reconnects=2)
                        c.stop_clean()


def test_a_ram_disk_that_is_deleted_gives_its_memory_back():
    with Served(trtype="TCP", ram=True) as a:
        a.add_malloc("Large", 64)
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            (_, blocks), = ram_files(b)
            check(blocks >= (64 << 20) / 512, blocks)
            b.call("bdev_malloc_delete", name="Large")

            def gives_back():
                (_, left), = ram_files(b)
                return left <= blocks - (64 << 20) / 512
            wait_for(gives_back, "its memory to be given back")
            b.stop_clean()


def test_a_successor_that_is_killed_at_any_step_leaves_ram_disks_as_they_are():
    for step in (*SUCCESSOR, *PREDECESSOR):
        with Step(step, ram=True) as s:
            s.new.process.kill()
            check(s.new.wait_exit() == -signal.SIGKILL, s.logs())
            s.release()
            s.check_goes_on()


UNHEARD = {"VARVE_TROUBLE_LOSE": '"serving"'}
NOT_HEARD = "nothing was heard of the other process's end"


def test_what_hosts_have_written_to_a_successor_that_ends_is_not_lost():
    """The old process does not hear that the new one serves, which it does. The new one stops in order, too, when it has given up waiting for an answer."""
    for killed in (True, False):
        with Served(trtype="TCP", ram=True) as a, verifying(a, 1, *RECONNECT) as host:
            wait_filled(a, host)
            with Successor(a, "--takeover-timeout", "600", env=preload(TROUBLE) | UNHEARD) as b:
                wait_io(b, [host], more=2000)
                if killed:
                    b.process.kill()
                else:
                    wait_for(lambda: NOT_HEARD in b.log(), lambda: f"its end of waiting:\n{b.log()}")
                    b.process.terminate()
                check(b.wait_exit() == (-signal.SIGKILL if killed else 0), b.log())
                a.goes_on()
                wait_io(a, [host], more=2000)
                host.check_perfect(host.stop(), reconnects=2)


def test_a_successor_that_heard_nothing_gives_memory_back_when_the_old_process_has_ended():
    with Served(trtype="TCP", ram=True) as a:
        for name in ("One", "Two"):
            a.add_malloc(name, 64)
        with Successor(a, "--takeover-timeout", "600", env=preload(TROUBLE) | UNHEARD) as b:
            wait_for(lambda: NOT_HEARD in b.log(), lambda: f"its end of waiting:\n{b.log()}")
            (_, blocks), = ram_files(b)
            b.call("bdev_malloc_delete", name="One")
            check(ram_files(b) == ram_files(a) and {n for _, n in ram_files(b)} == {blocks}, "the old process may go on with it")
            a.process.kill()
            a.process.wait()
            wait_for(lambda: f"process {a.pid}, which has been taken over from, has ended" in b.log(), lambda: f"that to be seen:\n{b.log()}")
            b.call("bdev_malloc_delete", name="Two")

            def gives_back():
                (_, left), = ram_files(b)
                return left <= blocks - (64 << 20) / 512
            wait_for(gives_back, "its memory to be given back")
            b.stop_clean(NOT_HEARD)


def test_a_predecessor_that_is_killed_when_all_was_given_takes_no_ram_disk_along():
    for step in ("loads", "says"):
        with Step(step, ram=True) as s:
            s.old.process.kill()
            s.old.process.wait()
            s.release()
            s.new.wait_serving()
            s.check_serves(s.new)


def test_a_successor_that_hangs_leaves_ram_disks_as_they_are():
    for step in GIVEN_UP:
        with Step(step, "--takeover-timeout", str(TIMEOUT), ram=True) as s:
            if step in PREDECESSOR:
                s.new.process.send_signal(signal.SIGSTOP)
                s.release()
            check(s.new.wait_exit() == -signal.SIGKILL, s.logs())
            s.release()
            s.check_goes_on()


def test_ram_disks_in_a_successor_that_stops_by_itself_are_taken_back():
    """One whose configuration cannot be loaded ends in order, after it has got the RAM disks."""
    with Served(trtype="TCP", ram=True) as a, verifying(a, 1, *RECONNECT) as host:
        wait_filled(a, host)
        a.add_file("File", a.folder / "file")
        (a.folder / "file").rename(a.folder / "elsewhere")
        before = everything(a)
        with Successor(a, ready=False) as b:
            b.failed("file")
        wait_for(lambda: a.log().count("is running, process") == 2, lambda: f"it to go on:\n{a.log()}")
        check(a.call("appliance_get_state")["not_taken_back"] == 1, "the file")
        check(everything(a) != before, "the file is missing")
        wait_io(a, [host])
        host.check_perfect(host.stop(), reconnects=1)


def test_what_is_too_much_is_refused_with_the_numbers():
    with Served(trtype="TCP", ram=True) as a:
        a.add_malloc("Large", 1025)
        with Successor(a, ready=False) as b:
            b.failed("RAM disks of 1041 MB would be copied", "more than 1024 MB")
        check(a.log().count("is running, process") == 1, a.log())
        a.call("bdev_malloc_delete", name="Large")
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            b.stop_clean()


class OlderPredecessor(threading.Thread):
    """Listens at a target's socket in its place, when it has stopped, and hands over a configuration. It knows no RAM disks, and judges parameters."""
    known = ("pid", "dry_run", "force", "timeout_s")

    def __init__(self, target, config):
        super().__init__()
        self.config, self.said = config, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(target.path))
        self.listener.listen()
        self.listener.settimeout(DEADLINE)
        self.start()

    def answer(self, params):
        for name in params:
            if name not in self.known:
                return {"error": {"code": -32602, "message": f'parameter "{name}" is unknown: known ones are {", ".join(self.known)} (Invalid parameters)'}}
        return {"result": self.config if params["dry_run"] else True}

    def run(self):
        connection, _ = self.listener.accept()
        connection.settimeout(DEADLINE)
        self.listener.close()
        text = ""
        while received := connection.recv(65536).decode():
            text += received
            try:
                message = json.loads(text)
            except ValueError:
                continue
            text = ""
            self.said.append(message)
            if "serving" in message:
                connection.sendall(b'{"parted":true}')
                break
            answer = self.answer(message["params"])
            connection.sendall(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | answer).encode())
            if answer.get("result") is True:
                pathlib.Path(connection.getsockname()).unlink()
                connection.sendall(json.dumps({"handed_over": self.config, "keys": []}).encode())
        connection.close()


def test_a_predecessor_that_knows_no_ram_disks_is_taken_over():
    with Served(trtype="TCP") as a:
        before = everything(a)
        config = a.call("framework_hand_over", pid=os.getpid(), dry_run=True)
        check(a.stop() == 0, a.log())
        old = OlderPredecessor(a, config)
        with Successor(a) as b:
            old.join()
            check("a version that cannot hand over what is on RAM disks" in b.log(), b.log())
            check([m["params"]["dry_run"] for m in old.said[:-1]] == [True, True, False] and old.said[-1] == {"serving": True}, old.said)
            check(everything(b) == before, f"{everything(b)}\n{before}")
            b.stop_clean("a version that cannot hand over what is on RAM disks")


def test_a_caller_that_does_not_take_ram_disks_over_is_refused():
    with Served(trtype="TCP", ram=True) as a:
        client = Client(a.path)
        try:
            client.call("framework_hand_over", pid=os.getpid(), dry_run=True)
            check(False, "handed over")
        except RpcError as e:
            check("what is on bdev Disk (Malloc disk) is in this process's memory, and would be lost" in e.message, e.message)
        check(client.call("framework_hand_over", pid=os.getpid(), dry_run=True, ram_disks=True)["subsystems"], "the configuration")


if __name__ == "__main__":
    main(sys.modules[__name__])
