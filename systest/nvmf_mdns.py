#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root
# limit: 600
# beside
"""The discovery service in multicast DNS: a real avahi-daemon on a D-Bus and in networks of the test's own, and what the machine at the other end of the cable finds.

There are two machines, here and there: network namespaces with a pair of interfaces, each with a D-Bus and an avahi-daemon."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from appliance_lib import Daemon, Failure, RpcError, Skip, check, main, wait_for

NEEDED = ["dbus-daemon", "avahi-daemon", "avahi-browse", "ip", "unshare", "nsenter"]
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
HERE, ALSO_HERE = "10.77.0.1", "10.77.0.2"
BUS = """<busconfig><type>system</type><listen>unix:path={path}</listen><auth>EXTERNAL</auth><policy context="default"><allow user="*"/><allow own="*"/>
<allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>"""
AVAHI = """[server]
host-name={name}
use-ipv4=yes
use-ipv6=no
allow-interfaces={interface}
[wide-area]
enable-wide-area=no
[publish]
publish-hinfo=no
publish-workstation=no
publish-aaaa-on-ipv4=no
"""


def plain(name):
    """avahi-browse writes bytes as \\DDD and some characters with a backslash in front."""
    return re.sub(r"\\(\d\d\d|.)", lambda m: chr(int(m[1])) if len(m[1]) == 3 else m[1], name)


class Machine:
    """Programs in a network of their own, and with a /run of their own: there, and nowhere else, avahi-daemon keeps its process file."""

    def __init__(self, folder, name):
        self.folder, self.name, self.programs = folder / name, name, {}
        self.folder.mkdir()
        self.interface = f"{name}0"
        self.bus = self.folder / "bus"
        self.keeper = subprocess.Popen(["unshare", "-n", "-m", "sh", "-c", "mount -t tmpfs tmpfs /run && mkdir /run/avahi-daemon && ip link set lo up && echo up && exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if self.keeper.stdout.readline() != "up\n":
                raise Skip("network namespaces cannot be made")
            (self.folder / "bus.conf").write_text(BUS.format(path=self.bus))
            self.start_bus()
        except BaseException:
            self.__exit__()
            raise

    def inside(self, *command):
        return ["nsenter", "-t", str(self.keeper.pid), "-n", "-m", "env", f"DBUS_SYSTEM_BUS_ADDRESS=unix:path={self.bus}", *map(str, command)]

    def run(self, *command):
        p = subprocess.run(self.inside(*command), capture_output=True, text=True, timeout=60)
        check(p.returncode == 0, f"{command}: {p.stderr}")
        return p.stdout

    def start(self, program, *options):
        with open(self.folder / f"{program}.log", "ab") as log:
            self.programs[program] = subprocess.Popen(self.inside(program, *options), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self, program):
        return (self.folder / f"{program}.log").read_text(errors="replace")

    def signal(self, program, number):
        """To the program itself: nsenter and env have replaced themselves by it."""
        self.programs[program].send_signal(number)

    def stop(self, program):
        """By SIGTERM: avahi-daemon withdraws its records then. Other machines would believe in them for an hour."""
        p = self.programs.pop(program)
        p.send_signal(signal.SIGCONT)
        p.terminate()
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()

    def start_bus(self):
        self.bus.unlink(missing_ok=True)
        self.start("dbus-daemon", f"--config-file={self.folder / 'bus.conf'}", "--nofork", "--nopidfile")
        wait_for(self.bus.exists, "the D-Bus")

    def start_avahi(self, name=None):
        (self.folder / "avahi.conf").write_text(AVAHI.format(name=name or self.name, interface=self.interface))
        self.run("rm", "-f", "/run/avahi-daemon/pid")
        before = self.log("avahi-daemon").count("Server startup complete") if (self.folder / "avahi-daemon.log").exists() else 0
        self.start("avahi-daemon", "-f", self.folder / "avahi.conf", "--no-drop-root", "--no-chroot", "--no-proc-title", "--no-rlimits")
        wait_for(lambda: self.log("avahi-daemon").count("Server startup complete") > before, lambda: self.log("avahi-daemon"))

    def found(self):
        """The discovery services that this machine finds now: name, host, address, port and texts of each."""
        out = self.run("avahi-browse", "-t", "-r", "-p", "-k", "_nvme-disc._tcp")
        rows = [line.split(";") for line in out.splitlines() if line.startswith("=")]
        return sorted((plain(r[3]), r[6], r[7], int(r[8]), frozenset(r[9].split('" "') if len(r) > 9 else [])) for r in rows)

    def ports(self):
        """Those of the discovery services that this machine finds."""
        return sorted(r[3] for r in self.found())

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for program in list(self.programs):
            self.stop(program)
        self.keeper.kill()
        self.keeper.wait()


class Node(Daemon):
    """varve on a machine, with a TCP transport."""

    def __init__(self, machine, *options):
        self.program = machine.folder / "varve"
        self.program.write_text("#!/bin/sh\nexec " + " ".join(machine.inside(Daemon.program)) + ' "$@"\n')
        self.program.chmod(0o755)
        super().__init__(*options)
        self.call("nvmf_create_transport", trtype="TCP")

    def address(self, port, traddr=HERE):
        return {"trtype": "TCP", "adrfam": "IPv4", "traddr": traddr, "trsvcid": str(port)}

    def listen(self, port, traddr=HERE):
        self.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=self.address(port, traddr))

    def publish(self):
        check(self.call("nvmf_publish_mdns_prr") is True, "nvmf_publish_mdns_prr did not answer true")

    def withdraw(self):
        check(self.call("nvmf_stop_mdns_prr") is True, "nvmf_stop_mdns_prr did not answer true")

    def unlisten(self, port, traddr=HERE):
        self.call("nvmf_subsystem_remove_listener", nqn=DISCOVERY, listen_address=self.address(port, traddr))

    def refused(self, code, *words, method="nvmf_publish_mdns_prr", **params):
        try:
            self.call(method, **params)
        except RpcError as e:
            check(e.code == code and all(w in e.message for w in words), f"{e.code} {e.message}")
            return
        raise Failure(f"{method} was not refused")


@contextlib.contextmanager
def machines():
    missing = [p for p in NEEDED if not shutil.which(p)]
    if missing:
        raise Skip(f"{' and '.join(missing)} missing (Debian's packages are avahi-daemon, avahi-utils, dbus-daemon and iproute2)")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-mdns-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        here, there = (stack.enter_context(Machine(folder, name)) for name in ("here", "there"))
        here.run("ip", "link", "add", "here0", "type", "veth", "peer", "name", "there0", "netns", there.keeper.pid)
        here.run("ip", "addr", "add", f"{HERE}/24", "dev", "here0")
        here.run("ip", "addr", "add", f"{ALSO_HERE}/24", "dev", "here0")
        there.run("ip", "addr", "add", "10.77.0.3/24", "dev", "there0")
        here.run("ip", "link", "set", "here0", "up")
        there.run("ip", "link", "set", "there0", "up")
        yield here, there


@contextlib.contextmanager
def with_avahi():
    """A node here that publishes nothing yet, and avahi-daemon on both machines."""
    with machines() as (here, there):
        here.start_avahi()
        there.start_avahi()
        with Node(here) as n:
            yield here, there, n


@contextlib.contextmanager
def publishing():
    """The same, and the node publishes its listener at port 8009."""
    with with_avahi() as (here, there, n):
        n.listen(8009)
        n.publish()
        yield here, there, n


def test_the_other_machine_finds_the_listeners():
    with with_avahi() as (_, there, n):
        n.refused(-22, "has no listener")
        n.listen(8009)
        n.publish()
        wait_for(there.found, lambda: f"a record: {n.log()}")
        [(name, host, address, port, texts)] = there.found()
        check(host == "here.local" and address in (HERE, ALSO_HERE) and port == 8009, (host, address, port))
        check({t.strip('"') for t in texts} == {"p=tcp", f"nqn={DISCOVERY}"}, texts)
        check(name.startswith("varve ") and name.endswith(f" {HERE}:8009"), name)
        n.refused(-17, "is published already")
        n.call("nvmf_create_target", name="more")
        n.refused(-22, "there can be only one", tgt_name="more")
        n.call("nvmf_stop_mdns_prr", tgt_name="more")
        n.refused(-19, "Unable to find target none", tgt_name="none")
        n.listen(8010)
        wait_for(lambda: there.ports() == [8009, 8010], "one that comes")
        n.unlisten(8009)
        wait_for(lambda: there.ports() == [8010], "one that goes")
        n.unlisten(8010)
        wait_for(lambda: there.ports() == [], "none is left")
        n.listen(8011, traddr="0.0.0.0")
        wait_for(lambda: there.ports() == [8011], "one for all addresses")
        for _ in range(2):
            n.withdraw()
        wait_for(lambda: there.ports() == [], "it is withdrawn")
        check("mdns" not in str(n.call("framework_get_config", name="nvmf")), "as in SPDK's targets, it is not saved")
        n.publish()
        wait_for(lambda: there.ports() == [8011], "published again")
        check(n.stop() == 0, "the end of the daemon")
        wait_for(lambda: there.ports() == [], "it goes with the daemon")


def test_what_cannot_be_found_is_refused():
    with machines() as (here, _):
        with Node(here) as n:
            n.listen(8009, traddr="127.0.0.1")
            n.refused(-22, "127.0.0.1 port 8009", "no other machine reaches it")
            n.listen(8009)
            n.refused(-107, "avahi-daemon does not run")
            here.stop("dbus-daemon")
            n.refused(-107, "D-Bus", "cannot be reached")
            here.start_bus()
            here.start_avahi()
            n.publish()     # nothing is left of the calls that were refused
            check(n.stop() == 0, "the end of the daemon")


def test_avahi_daemon_and_the_bus_go_and_come_back():
    with publishing() as (here, there, n):
        wait_for(lambda: there.ports() == [8009], "the record")
        here.stop("avahi-daemon")
        wait_for(lambda: "until avahi-daemon is there again" in n.log(), "a warning")
        n.listen(8010)
        here.start_avahi()
        wait_for(lambda: n.log().count("hosts find the discovery service") == 2, "it is back")
        wait_for(lambda: there.ports() == [8009, 8010], "with what has come meanwhile")
        here.stop("avahi-daemon")
        here.stop("dbus-daemon")
        wait_for(lambda: n.log().count("until avahi-daemon is there again") == 2, "a warning")
        n.unlisten(8009)
        here.start_bus()
        here.start_avahi()
        wait_for(lambda: there.ports() == [8010], lambda: f"the record after the bus: {here.found()} {there.found()} {n.log()}")
        check(n.stop() == 0, "the end of the daemon")


def test_names_that_others_have():
    with publishing() as (here, there, n):
        wait_for(there.found, "the record")
        name = there.found()[0][0]
        n.withdraw()
        wait_for(lambda: there.found() == [], "it is withdrawn")
        there.start("avahi-publish", "-s", name, "_nvme-disc._tcp", "4420")
        wait_for(lambda: here.ports() == [4420], "the other machine's record")
        n.publish()     # with another name
        wait_for(lambda: there.ports() == [4420, 8009], "both records")
        check(len({r[0] for r in there.found()}) == 2, there.found())
        check(n.stop() == 0, "the end of the daemon")


def test_an_avahi_daemon_that_hangs_holds_nobody_up():
    with publishing() as (here, _, n):
        here.signal("avahi-daemon", signal.SIGSTOP)
        for port in range(8010, 8020):
            n.listen(port)
        n.unlisten(8009)
        n.withdraw()
        asking, other = n.client(), n.client()
        asking.send(b'{"jsonrpc": "2.0", "id": 1, "method": "nvmf_publish_mdns_prr"}')
        wait_for(lambda: any(c["method"] == "nvmf_publish_mdns_prr" for c in other.call("rpc_get_calls")), "the call")
        check(other.call("nvmf_stop_mdns_prr") is True, "others are answered")
        answer = asking.receive()
        check(answer["error"]["code"] == -125 and "stopped before" in answer["error"]["message"], answer)
        check(n.stop() == 0, "the end of the daemon")
        # libdbus waits 25 s for an answer of avahi-daemon; what else holds the thread on a busy machine is far shorter
        held = [int(ms) for ms in re.findall(r"held the control thread for (\d+) ms", n.log())]
        check(all(ms < 10000 for ms in held), n.log())


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIP nvmf_mdns: needs root")
        sys.exit(0)
    main(sys.modules[__name__])
