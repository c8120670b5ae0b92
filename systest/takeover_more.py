#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# sanitize
# beside
"""varve --takeover: what happens at the worst moment, and what must not be lost by an attempt that fails."""
import ctypes
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

from appliance_lib import BUILD, Client, Daemon, RpcError, Skip, check, main, wait_for
from auth import secret
from config_random_lib import Back, Maker, start
from nvmf_lib import HOSTNQN as HOST
from nvmf_lib import NQN, PORT, Target, preload, verifying, wait_io
from nvmf_tcp_lib import Queue
from service import Manager, pause
from takeover import RECONNECT, TIMEOUT, TROUBLE, Case, Served, Successor, ctl, everything, hold, wait_filled, wait_held

PIDFD_GETFD = 438       # the number of the system call


def test_what_a_successor_says_when_it_is_killed_already_does_not_count():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as name:
        env, file = hold(pathlib.Path(name))
        with Served(trtype="TCP", env={**preload(TROUBLE), "VARVE_TROUBLE_LATE": str(file)}) as a, verifying(a, 1, *RECONNECT) as host:
            wait_filled(a, host)
            before = everything(a)
            with Successor(a, "--takeover-timeout", str(TIMEOUT), ready=False, env=env) as b:
                wait_held(file, b)
                check(b.wait_exit() == -signal.SIGKILL, b.log())
                check(pathlib.Path(f"{file}.said").exists(), f"it never said that it serves:\n{b.log()}")
                a.goes_on()
            check(everything(a) == before, f"{everything(a)}\n{before}")
            wait_io(a, [host])
            result = host.stop()
            check(result["reconnects"] in (1, 2), result)       # to the successor, too, before it was killed
            host.check_perfect(result, reconnects=result["reconnects"])
            a.stop_clean("ended without having taken over", "neither serves nor has ended")


def test_a_successor_that_may_ignore_errors_does_not_when_it_takes_over():
    for why in ("VARVE_TROUBLE_PORT", "VARVE_TROUBLE_FILE"):
        with Case() as c:
            value = PORT if why == "VARVE_TROUBLE_PORT" else c.target.folder / "disk"
            with Successor(c.target, "--json-ignore-init-errors", ready=False, env={**preload(TROUBLE), why: str(value)}) as b:
                b.failed("nvmf_subsystem_add_listener" if why == "VARVE_TROUBLE_PORT" else "bdev_uring_create")
                c.target.goes_on()
            c.check_end(c.target, "ended without having taken over")


def test_all_that_can_be_configured_is_taken_back():
    seed = int(os.environ.get("VARVE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"# VARVE_SEED={seed}", flush=True)
    rng = random.Random(seed)
    with Back(), Daemon("-m", "[0-1]", "-s", "512", "--wait-for-rpc", ready=False, env=preload()) as a:
        a.port, a.trtype = PORT, "TCP"
        start(a, rng)
        Maker(a, rng).run()
        before, ran = everything(a), a.log().count("ignored:")
        # It loads all, and fails at the last thing that it does before it would serve.
        with Successor(a, "-m", "[0-1]", "--takeover-force", "--metrics", f"unix:{a.folder}/none/metrics", ready=False) as b:
            b.failed("no metrics")
            wait_for(lambda: a.log().count("is running, process") == 2, lambda: f"it to go on:\n{a.log()}")
        check("left out" not in a.log() and a.log().count("ignored:") == ran, a.log())
        check(everything(a) == before, f"{everything(a)}\n{before}")
        check(a.stop() == 0, a.log())


def descriptor_of(process, path):
    """A copy of a process's descriptor of a file, which keeps the file's lock when the process is gone."""
    number = next(int(x.name) for x in pathlib.Path(f"/proc/{process.pid}/fd").iterdir() if os.readlink(x) == str(path))
    pidfd = os.pidfd_open(process.pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, pidfd, number, 0)
        check(copy >= 0, os.strerror(ctypes.get_errno()))
        return copy
    finally:
        os.close(pidfd)


def test_a_file_whose_lock_outlives_the_successor_is_waited_for():
    with Case() as c:
        env, file = hold(c.target.folder)
        with Successor(c.target, ready=False, env=env) as b:
            wait_held(file, b)
            lock = descriptor_of(b.process, c.target.folder / "disk")
            b.process.kill()
            try:
                wait_for(lambda: "repeated for some seconds" in c.target.log(), lambda: f"it to find the file in use:\n{c.target.log()}")
            finally:
                os.close(lock)
            c.target.goes_on()
        c.check_end(c.target, "ended without having taken over", "repeated for some seconds")


def add_key(target, name="key0", number=0):
    path = target.folder / f"{name}.key"
    path.touch(mode=0o600)
    path.write_text(secret(number, 32, 0) + "\n")
    target.call("keyring_file_add_key", name=name, path=str(path))
    return path


def key_is_taken_back(is_removed):
    """The file of a key that a host has goes while a successor loads, which then dies."""
    with Served(trtype="TCP") as a:
        path = add_key(a)
        a.call("nvmf_subsystem_add_host", nqn=NQN, host="nqn.2026-11.io.varve:a", dhchap_key="key0")
        if is_removed:
            a.call("keyring_file_remove_key", name="key0")
        before = everything(a)
        env, file = hold(a.folder)
        with Successor(a, ready=False, env=env) as b:
            wait_held(file, b)
            path.unlink()
            b.process.kill()
            b.process.wait()
            a.goes_on()
        check(everything(a) == before, f"{everything(a)}\n{before}")
        check(a.call("appliance_get_state")["not_taken_back"] == 0, a.log())
        a.stop_clean("ended without having taken over")


def test_keys_are_taken_back_whatever_has_become_of_their_files():
    key_is_taken_back(is_removed=False)


def test_keys_that_were_removed_and_are_in_use_are_taken_back():
    key_is_taken_back(is_removed=True)


def test_keys_that_change_after_the_last_look_are_not_taken_over():
    for data, options in ((False, ()), (True, ("--takeover-force",))):
        with tempfile.TemporaryDirectory(prefix="varve-test-") as name:
            file = pathlib.Path(name) / "hold"
            with Served(trtype="TCP", env={**preload(TROUBLE), "VARVE_TROUBLE_HOLD": str(file), "VARVE_TROUBLE_SAY": '"handed_over"'}) as a:
                path = add_key(a)
                if data:
                    path.write_text(bytes(range(32)).hex())
                    a.call("keyring_file_add_key", name="data", path=str(path))
                    a.call("keyring_file_remove_key", name="key0")
                before = everything(a)
                file.touch()
                with Successor(a, *options, ready=False) as b:
                    wait_for(pathlib.Path(f"{file}.held").exists, lambda: f"all to be given up:\n{a.log()}")
                    path.write_text(bytes(range(1, 33)).hex() if data else secret(1, 32, 0))
                    file.unlink()
                    b.failed("is another key than the one")
                    wait_for(lambda: a.log().count("is running, process") == 2, lambda: f"it to go on:\n{a.log()}")
                check(everything(a) == before and a.call("appliance_get_state")["not_taken_back"] == 0, f"{everything(a)}\n{before}\n{a.log()}")
                with Successor(a, "--takeover-force", ready=not data) as b:
                    if data:        # nothing is meant to be written under another key, and it need not be given up to find that out
                        b.failed('another process would not get key "data" as this one has it')
                    else:
                        check(a.wait_exit() == 0, a.log())
                check(a.log().count("handing over to") == (1 if data else 2), a.log())


def test_nothing_is_handed_over_whose_key_cannot_be_read_again():
    with Served(trtype="TCP") as a:
        path = add_key(a)
        for text, why in ((secret(1, 32, 0), "another key than the one in use"), ("", "neither a DH-HMAC-CHAP secret"), (None, "No such file")):
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
            with Successor(a, ready=False) as b:
                b.failed('another process would not get key "key0" as this one has it', why)
            check(a.log().count("is running, process") == 1, a.log())


def expect_told(target, words):
    """What the tools of each day say of what a failed take-over has cost."""
    for command, said in ((["varve-ctl", "-s", target.path, "status"], words), (["varve-doctor", "-p", str(target.pid), "-d", str(target.folder)], "not all is as before")):
        p = subprocess.run([BUILD / "bin" / command[0], *command[1:]], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        check(said in " ".join(p.stdout.split()), f"{command}: {p.stdout}{p.stderr}")


def test_what_cannot_be_taken_back_is_told_and_fails_visibly():
    with Manager() as m, Served(trtype="TCP", env=m.env) as a:
        before, whole = a.log(), everything(a)
        env, file = hold(a.folder)
        with Successor(a, ready=False, env=env) as b:
            wait_held(file, b)
            shutil.move(a.folder / "disk", a.folder / "away")
            b.process.kill()
            # The manager reads: a status is not waited for.
            wait_for(lambda: m.listen() and a.log().count("is running, process") == 2, lambda: f"it to go on:\n{a.log()}")
        check("not taken back: bdev_uring_create of Disk" in a.log() and "not taken back" not in before, a.log())
        lost = a.call("appliance_get_state")["not_taken_back"]
        check(lost == 2, f"{lost}: the bdev and its namespace")
        told = [e["ctx"] for e in a.call("notify_get_notifications", all=True, max=1024) if e["type"] == "appliance_not_taken_back"]
        check("bdev_uring_create of Disk" in told and len(told) == lost, told)
        m.wait("STATUS=running, but without", "the status")
        expect_told(a, "2 things lost in a failed take-over")
        out = ctl(a, "/bin/false", status=1)
        check(out.endswith(f"process {a.pid}, which goes on\n"), f"what an attempt before has cost is not told of this one: {out}")
        file.touch()
        pathlib.Path(f"{file}.held").unlink()
        with Successor(a, ready=False, env=env) as b:
            wait_held(file, b)
            b.process.kill()
            wait_for(lambda: m.listen() and a.log().count("is running, process") == 3, lambda: f"it to go on:\n{a.log()}")
        check(a.call("appliance_get_state")["not_taken_back"] == lost, "another attempt takes nothing away")
        shutil.move(a.folder / "away", a.folder / "disk")
        for left, method in ((1, "bdev_uring_create"), (0, "nvmf_subsystem_add_ns")):
            a.call(method, **next(e["params"] for entries in whole.values() for e in entries or () if e["method"] == method))
            check(a.call("appliance_get_state")["not_taken_back"] == left, f"{method}: {everything(a)}\n{whole}")


def test_what_hosts_do_not_need_does_not_end_it():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as name:
        folder = pathlib.Path(name) / "away"
        folder.mkdir()
        options = ("-f", str(folder / "pid"), "--metrics", f"unix:{folder}/metrics")
        with Served(*options, trtype="TCP", path=folder / "rpc.sock") as a, verifying(a, 1, *RECONNECT) as host:
            wait_filled(a, host)
            before = everything(a)
            env, file = hold(a.folder)
            with Successor(a, *options, ready=False, env=env) as b:
                wait_held(file, b)
                shutil.rmtree(folder)
                b.process.kill()
                b.process.wait()
                a.goes_on()
            check(all(f"not taken back: {x}" in a.log() for x in ("metrics", "the file with the process id", "the RPC socket")), a.log())
            folder.mkdir()
            wait_for(a.path.exists, lambda: f"the RPC socket to come back:\n{a.log()}")
            check(everything(a) == before, f"{everything(a)}\n{before}")
            check(a.call("appliance_get_state")["not_taken_back"] == 2, "metrics and the file with the process id")
            a.call("metrics_start", address=f"unix:{folder}/metrics")
            check(a.call("appliance_get_state")["not_taken_back"] == 1, "metrics are there")
            wait_io(a, [host])
            host.check_perfect(host.stop(), reconnects=1)
            check(a.stop() == 0, a.log())


def test_a_process_of_another_unit_does_not_take_over():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as name, Manager() as m:
        groups = pathlib.Path(name) / "cgroup"
        groups.write_text("0::/system.slice/other.service\n")
        with Served(trtype="TCP", env={**preload(TROUBLE), **m.env, "VARVE_TROUBLE_CGROUP": str(groups)}) as a:
            with Successor(a, ready=False) as b:
                b.failed("/system.slice/other.service", "a service manager watches this process")
            check(a.log().count("is running, process") == 1, a.log())
            groups.write_text(pathlib.Path("/proc/self/cgroup").read_text())
            with Successor(a) as b:
                check(a.wait_exit() == 0, a.log())


TRIES = """
import json, os, socket, sys
os.setgid(65534)
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "framework_hand_over", "params": {"pid": os.getpid(), "force": True}}).encode())
print(s.recv(65536).decode())
"""


def test_a_process_of_another_user_does_not_take_over():
    if os.geteuid() != 0:
        raise Skip("only root can be another user")
    with Served(trtype="TCP") as a:
        os.chmod(a.folder, 0o711)
        os.chmod(a.path, 0o666)
        p = subprocess.run([sys.executable, "-c", TRIES, a.path], capture_output=True, text=True, timeout=60)
        check("belongs to user 65534" in p.stdout, p.stdout + p.stderr)
        check(a.call("appliance_get_state")["state"] == "RUNNING" and "handing over" not in a.log(), a.log())


def test_a_successor_tells_its_own_manager_when_the_predecessor_had_none():
    with Manager() as m, Served(trtype="TCP") as a, Successor(a, env={**preload(), **m.env}) as b:
        m.wait("READY=1", "the successor")
        check(a.wait_exit() == 0, a.log())
        check(b.stop() == 0 and "STOPPING=1" in m.listen() and not any(x.startswith("MAINPID") for x in m.heard), m.heard)


def waiting(port):
    """How many connections wait to be accepted at a port."""
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].rpartition(":")[2], 16) == port and words[3] == "0A":
            return int(words[4].rpartition(":")[2], 16)
    return None


def slow_registration(file):
    """The environment of a process whose large registrations of memory do not return while the file is there (hold_registration.c)."""
    first, *rest = preload()["LD_PRELOAD"].rsplit(":", 1)   # what the sanitized build wants to be first stays so
    libraries = [*([first] if rest else []), str(BUILD / "systest" / "libhold-registration.so"), *(rest or [first])]
    return {"LD_PRELOAD": ":".join(libraries), "VARVE_HOLD": str(file)}


class Slow(Served):
    """A target that listens over TCP, and then over RDMA, for which it registers its memory first."""

    def __init__(self, **kwargs):
        super().__init__(trtype="TCP", **kwargs)
        try:
            self.call("nvmf_create_transport", trtype="RDMA")
        except BaseException:
            self.__exit__()
            raise

    def add_slow_listener(self):
        self.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address={**self.listen_address(), "trtype": "RDMA"})


def test_hosts_wait_until_all_is_there():
    with Slow() as a, verifying(a, 1, *RECONNECT) as host:
        a.add_slow_listener()
        wait_filled(a, host)
        before = everything(a)
        file = a.folder / "hold"
        file.touch()
        with Successor(a, ready=False, env=slow_registration(file)) as b:
            wait_held(file, b)
            wait_for(lambda: waiting(PORT), "the host to connect again")
            pause(1)        # it would be accepted at once: the loop runs
            check(waiting(PORT), "a host is served before all is there")
            file.unlink()
            b.wait_serving()
            check(everything(b) == before, f"{everything(b)}\n{before}")
            wait_io(b, [host])
            host.check_perfect(host.stop(), reconnects=1)
            b.stop_clean()


def test_calls_that_come_while_one_is_under_way_are_refused_and_that_one_is_handed_over():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as name:
        file = pathlib.Path(name) / "hold"
        with Slow(env=slow_registration(file)) as a:
            file.touch()
            slow, late = Client(a.path), Client(a.path)
            slow.send({"jsonrpc": "2.0", "id": 1, "method": "nvmf_subsystem_add_listener",
                       "params": {"nqn": NQN, "listen_address": {**a.listen_address(), "trtype": "RDMA"}}})
            wait_for(pathlib.Path(f"{file}.held").exists, lambda: f"the registration:\n{a.log()}")
            with Successor(a, ready=False) as b:
                accepted = []

                def refused():
                    try:
                        late.call("nvmf_subsystem_add_host", nqn=NQN, host=f"{HOST}{len(accepted)}")
                    except RpcError as e:
                        return e.message
                    accepted.append(f"{HOST}{len(accepted)}")
                    return None
                said = wait_for(refused, "calls to be refused")
                check("another process is taking over" in said, said)
                file.unlink()
                check("result" in slow.receive(), "the call that was under way")
                b.wait_serving()
                check(a.wait_exit() == 0, a.log())
                listeners = [x["trtype"] for x in b.call("nvmf_get_subsystems")[1]["listen_addresses"]]
                check(sorted(listeners) == ["RDMA", "TCP"], listeners)
                hosts = [x["nqn"] for x in b.call("nvmf_get_subsystems")[1]["hosts"]]
                check(hosts == accepted, f"{hosts}; accepted: {accepted}")


REGISTER, ACQUIRE, REPORT, CONFLICT = 0x0D, 0x11, 0x0E, 0x83
WRITE_EXCLUSIVE = 1


class Reserving:
    """A host with an I/O queue."""

    def __init__(self, letter):
        hostid = letter * 16
        self.admin = Queue(connect=False)
        c = self.admin.connect(0xFFFF, NQN, 32, HOST, hostid=hostid)
        check(c.status == 0, f"Connect: {c.status:#x}")
        self.admin.enable()
        self.io = Queue(qid=1, connect=False)
        c = self.io.connect(c.result & 0xFFFF, NQN, 32, HOST, hostid=hostid)
        check(c.status == 0, f"Connect: {c.status:#x}")

    def resv(self, opcode, cdw10, key, second=0):
        return self.io.command(self.io.sqe(opcode, 1, struct.pack("<I", cdw10)), struct.pack("<QQ", key, second)).code

    def report(self):
        return self.io.good(self.io.sqe(REPORT, 1, struct.pack("<II", 4096 // 4 - 1, 1)), length=4096).data

    def close(self):
        self.io.close()
        self.admin.close()


def check_reserved(server, before):
    a, b = Reserving(b"a"), Reserving(b"b")
    check(a.report() == before, f"{a.report().hex()}\n{before.hex()}")
    check(a.io.write(0, bytes(512)).status == 0, "the holder may write")
    check(b.io.write(0, bytes(512)).code == CONFLICT, "others may not")
    a.close()
    b.close()


def test_reservations_that_no_file_keeps_are_carried_over_and_taken_back():
    with Served(trtype="TCP") as a:
        host = Reserving(b"a")
        check(host.resv(REGISTER, 0, 0, 0xABC) == 0, "Reservation Register")
        check(host.resv(ACQUIRE, WRITE_EXCLUSIVE << 8, 0xABC) == 0, "Reservation Acquire")
        host.close()
        wait_for(lambda: a.controllers() == [], "the host to be gone")
        host = Reserving(b"a")
        before = host.report()
        host.close()
        check_reserved(a, before)
        env, file = hold(a.folder)
        with Successor(a, ready=False, env=env) as b:
            wait_held(file, b)
            b.process.kill()
            a.goes_on()
        check_reserved(a, before)
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            check_reserved(b, before)
            check(b.stop() == 0, b.log())


class Stacked(Target):
    """A volume of a store on a file as namespace 1, and an encrypted file as namespace 2."""

    def __init__(self):
        super().__init__(trtype="TCP")
        try:
            self.add_file("Base", self.folder / "base", 64)
            self.call("bdev_lvol_create_lvstore", bdev_name="Base", lvs_name="store")
            self.call("bdev_lvol_create", lvs_name="store", lvol_name="thin", size_in_mib=16, thin_provision=True)
            self.add_ns("store/thin")
            path = self.folder / "data.key"
            path.touch(mode=0o600)
            path.write_text(bytes(range(32)).hex())
            self.call("keyring_file_add_key", name="data", path=str(path))
            self.call("accel_crypto_key_create", name="xts", cipher="AES_XTS", keyring_key="data")
            self.add_file("Plain", self.folder / "plain", 16)
            self.call("bdev_crypto_create", base_bdev_name="Plain", name="Secret", key_name="xts")
            self.add_ns("Secret")
        except BaseException:
            self.__exit__()
            raise


def test_volumes_and_encrypted_bdevs_are_taken_back_and_taken_over():
    with Stacked() as a, verifying(a, 1, *RECONNECT) as one, verifying(a, 2, *RECONNECT, hostnqn=f"{HOST}2") as two:
        hosts = [one, two]
        wait_io(a, hosts, more=4000)
        before = everything(a)
        env, file = hold(a.folder)
        with Successor(a, ready=False, env=env) as b:
            wait_held(file, b)
            b.process.kill()
            b.process.wait()
            wait_for(lambda: a.log().count("is running, process") == 2, lambda: f"it to go on:\n{a.log()}")
        check(everything(a) == before and a.call("appliance_get_state")["not_taken_back"] == 0, f"{everything(a)}\n{before}\n{a.log()}")
        wait_io(a, hosts, more=4000)
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            check(everything(b) == before, f"{everything(b)}\n{before}")
            wait_io(b, hosts, more=4000)
            for host in hosts:
                host.check_perfect(host.stop(), reconnects=2)
            check("repaired" not in b.log(), b.log())
            b.stop_clean()


def rekey_of(d):
    return d.call("bdev_get_bdevs", name="Secret")[0]["driver_specific"]["crypto"].get("rekey")


def test_a_rekey_goes_on_in_the_successor_and_in_a_process_that_takes_back():
    with Stacked() as a, verifying(a, 2, *RECONNECT) as host:
        path = a.folder / "next.key"
        path.touch(mode=0o600)
        path.write_text(bytes(range(32, 64)).hex())
        a.call("keyring_file_add_key", name="next", path=str(path))
        a.call("accel_crypto_key_create", name="next", cipher="AES_XTS", keyring_key="next")
        a.add_file("Journal", a.folder / "journal", 2)
        a.call("bdev_crypto_rekey", name="Secret", key_name="next", journal_bdev_name="Journal", mib_per_second=1)
        wait_for(lambda: rekey_of(a)["position_blocks"] > 0, lambda: f"the first chunk: {rekey_of(a)}")
        a.call("bdev_crypto_rekey_stop", name="Secret")         # a process that begins goes on with it
        env, file = hold(a.folder)
        with Successor(a, ready=False, env=env) as b:
            wait_held(file, b)
            b.process.kill()
            b.process.wait()
            wait_for(lambda: a.log().count("is running, process") == 2, lambda: f"it to go on:\n{a.log()}")
        wait_for(lambda: rekey_of(a) is None or rekey_of(a)["position_blocks"] > 0, lambda: f"the journal to be read: {rekey_of(a)}")
        check(rekey_of(a) is None or (rekey_of(a)["state"], rekey_of(a)["mib_per_second"]) == ("running", 1), rekey_of(a))
        wait_io(a, [host], more=1000)
        with Successor(a) as b:
            check(a.wait_exit() == 0, a.log())
            wait_for(lambda: rekey_of(b) is None, lambda: f"the end of {rekey_of(b)}")
            wait_io(b, [host], more=1000)
            host.check_perfect(host.stop(), reconnects=2)
            check(b.call("bdev_get_bdevs", name="Secret")[0]["driver_specific"]["crypto"]["key_name"] == "next", "the key")
            b.call("accel_crypto_key_destroy", key_name="xts")
            b.stop_clean()


def test_a_successor_of_a_random_configuration_is_the_same():
    seed = int(os.environ.get("VARVE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"# VARVE_SEED={seed}", flush=True)
    rng = random.Random(seed)
    with Back(), Daemon("-m", "[0-1]", "-s", "512", "--wait-for-rpc", ready=False, env=preload()) as a:
        a.port, a.trtype = PORT, "TCP"
        start(a, rng)
        Maker(a, rng).run()
        before = everything(a)
        with Successor(a, "-m", "[0-1]", "--takeover-force") as b:
            check(a.wait_exit() == 0, a.log())
            check(everything(b) == before, f"{everything(b)}\n{before}")
            check(b.stop() == 0, b.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
