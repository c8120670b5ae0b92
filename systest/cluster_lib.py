# SPDX-License-Identifier: BSD-3-Clause
"""etcd of one member, gateways that share a file, and a front: a varve whose host has paths to all of them."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from appliance_lib import DEADLINE, TOP, Failure, Skip, check, wait_for
from ceph_lib import Ceph
from nvmf_lib import NQN, NUM_CPUS, PORT, Host, Target, wait_io

CLUSTER = TOP / "tools" / "cluster" / "varve-cluster"
GROUPS = (1, 2)
LEASE_S = 8
BEGUN = time.monotonic()        # the times of what gateways say count from then
IN_NETWORK = "VARVE_TEST_IN_NETWORK"


class EtcdServer:
    """Ports and a folder of its own. (A Ceph has the two ports below these.)"""

    def __init__(self, port=PORT + 14):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-etcd-"))
        self.port = port
        self.process = None
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise

    def start(self):
        url, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.port + 1}"
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(["etcd", "--name", "a", "--data-dir", self.folder / "data", "--listen-client-urls", url, "--advertise-client-urls", url,
                                             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"a={peer}"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(self.listens, self.account)

    def endpoints(self):
        return [f"http://127.0.0.1:{self.port}"]

    def account(self):
        return f"etcd: {(self.folder / 'log').read_text()[-2000:]}"

    def listens(self):
        if self.process.poll() is not None:
            raise Failure(f"it has ended with {self.process.returncode}: {self.account()}")
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process is not None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Wire:
    """A gateway's way to etcd, which can be cut: nothing passes on connections that are open, and new ones are not answered. A connection on which the bytes
    `refused` are sent is closed."""
    refused = None

    def __init__(self, to):
        self.to, self.cut = to, False
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.open = set()
        self.accepts = threading.Thread(target=self.accept, daemon=True)
        self.accepts.start()

    def accept(self):
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            self.open.add(near)
            if not self.cut:
                try:
                    far = socket.create_connection(("127.0.0.1", self.to))
                except OSError:
                    near.close()
                    self.open.discard(near)
                    continue
                self.open.add(far)
                threading.Thread(target=self.connect, args=(near, far), daemon=True).start()

    def connect(self, near, far):
        """Until both directions have ended."""
        back = threading.Thread(target=self.pass_on, args=(far, near), daemon=True)
        back.start()
        self.pass_on(near, far)
        back.join()
        for s in (near, far):
            s.close()
            self.open.discard(s)

    def pass_on(self, source, sink):
        silent = False      # it was cut, and stays so
        with contextlib.suppress(OSError):
            while (data := source.recv(65536)) and not (self.refused and self.refused in data):
                silent = silent or self.cut
                if not silent:
                    sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        """A thread that still waits in accept() may go on with the next socket of this number."""
        self.server.shutdown(socket.SHUT_RDWR)
        self.accepts.join()
        self.server.close()
        for s in list(self.open):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


class Gateway(Target):
    """A varve with two groups of one namespace each, in files that all gateways have, and its varve-cluster."""
    trtype = "TCP"
    options = ()            # of varve
    program_of_agent = CLUSTER

    def __init__(self, number, folder, server, **settings):
        self.number, self.name, self.files = number, "abc"[number], folder
        self.wire = Wire(server.port)
        self.agent = None
        super().__init__(*self.options, cores=f"[{number % NUM_CPUS}]", port=PORT + number, listen=False, trtype="TCP")
        try:
            self.call("nvmf_delete_subsystem", nqn=NQN)
            self.add_subsystem(NQN, listen=False, ana_reporting=True, max_namespaces=8, min_cntlid=1 + 1000 * number, max_cntlid=1000 + 1000 * number)
            for n in GROUPS:
                uuid = f"8d1f6c1e-55b1-4a5e-9f0e-00000000000{n}"
                self.add_storage(n, uuid)
                self.add_ns(f"F{n}", nsid=n, anagrpid=n, uuid=uuid)
            self.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=self.listen_address(), ana_state="inaccessible")
            self.config = self.folder / "cluster.json"
            self.config.write_text("# of a test\n" + json.dumps({
                "cluster": "test", "gateway": self.name, "nqn": NQN, "rpc_socket": str(self.path), "lease_s": LEASE_S,
                "etcd": {"endpoints": [f"http://127.0.0.1:{self.wire.port}"]}, **settings}))
            self.start_agent()
        except BaseException:
            self.__exit__()
            raise

    def add_storage(self, n, uuid):
        self.add_file(f"F{n}", self.files / f"disk{n}", mb=4, standby=True, uuid=uuid)

    def start_agent(self):
        timed = {**os.environ, "PYTHONPATH": str(TOP / "systest" / "timed"), "PYTHONDONTWRITEBYTECODE": "1", "VARVE_TEST_BEGUN": str(BEGUN)}
        with open(self.folder / "agent.log", "ab") as log:
            self.agent = subprocess.Popen([sys.executable, self.program_of_agent, "-c", self.config, "serve"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=timed)

    def agent_log(self):
        return (self.folder / "agent.log").read_text()

    def end_agent(self):
        self.agent.terminate()
        check(self.agent.wait(DEADLINE) in (0, -signal.SIGTERM), self.agent_log())     # the signal: it had just begun

    def owned(self):
        return {int(o["name"][1:]) for o in self.call("bdev_get_owners") if o["state"] == "owner"}

    def kill(self):
        """Both programs."""
        for p in (self.agent, self.process):
            p.kill()
            p.wait()

    def pause(self):
        for p in (self.agent, self.process):
            p.send_signal(signal.SIGSTOP)

    def go_on(self):
        for p in (self.agent, self.process):
            p.send_signal(signal.SIGCONT)

    def __exit__(self, *exc):
        if self.agent is not None:
            self.agent.send_signal(signal.SIGCONT)
            self.agent.kill()
            self.agent.wait()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        self.wire.close()
        super().__exit__(*exc)


def tell(etcd, *words):
    """What `varve-cluster WORDS` of an operator prints; it reaches etcd directly."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-tell-"))
    try:
        config = folder / "c.json"
        config.write_text(json.dumps({"cluster": "test", "gateway": "operator", "nqn": NQN, "lease_s": 30, "etcd": {"endpoints": etcd.endpoints()}}))
        return subprocess.run([sys.executable, CLUSTER, "-c", config, *words], capture_output=True, text=True, timeout=DEADLINE, check=False)
    finally:
        shutil.rmtree(folder)


class Scene:
    """Gateways that have the same files."""

    def __init__(self, etcd, folder, kind, number=2):
        self.etcd, self.folder, self.kind = etcd, folder, kind
        self.gateways = []
        try:
            for i in range(number):
                self.gateways.append(kind(i, folder, etcd))
        except BaseException:
            self.close()
            raise

    def settled(self):
        """Each group has one owner; of two gateways each has one."""
        return [sorted(n for g in self.gateways for n in g.owned())] == [list(GROUPS)] and all(len(g.owned()) == 1 for g in self.gateways)

    def wait_settled(self):
        wait_for(self.settled, self.account)

    def wait_owned_by(self, gateway, groups=GROUPS):
        wait_for(lambda: gateway.owned() == set(groups), self.account)

    def account(self):
        return "the groups to be owned:\n" + "\n".join(f"{g.name}:\n{g.agent_log()[-3000:]}" for g in self.gateways)

    def again(self, number):
        """A gateway whose programs have ended."""
        self.gateways[number].__exit__()
        self.gateways[number] = self.kind(number, self.folder, self.etcd)

    def close(self):
        for g in self.gateways:
            g.__exit__()


class CephGateway(Gateway):
    """On images of Ceph."""
    ceph = None

    def add_storage(self, n, uuid):
        if n == GROUPS[0]:
            self.call("bdev_rbd_register_cluster", name="c", config_file=str(self.ceph.conf))
        self.call("bdev_rbd_create", name=f"F{n}", pool_name="rbd", rbd_name=f"image{n}", block_size=512, cluster_name="c", standby=True, uuid=uuid)


def enter_network():
    """The script again, in a network of its own, if there can be one."""
    if IN_NETWORK not in os.environ and subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0:
        os.environ[IN_NETWORK] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    if IN_NETWORK in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=DEADLINE)


def need_network():
    if IN_NETWORK not in os.environ:
        raise Skip("needs a network of its own (unshare -n)")


@contextlib.contextmanager
def scene(kind=Gateway, number=2, store=EtcdServer):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="varve-test-cluster-"))
    with store() as etcd:
        s = None
        try:
            s = Scene(etcd, folder, kind, number)
            yield s
        finally:
            if s is not None:
                s.close()
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def ceph_scene(kind=CephGateway, number=2):
    """Gateways to images of a Ceph of their own."""
    with Ceph() as ceph:
        kind.ceph = ceph
        for n in GROUPS:
            ceph.image(f"rbd/image{n}", 4)
        with scene(kind, number) as s:
            yield s


@contextlib.contextmanager
def hosts_at_work(s, patient=True):
    """Gives a function that waits until both namespaces have done I/O. At the end all that was read must be right. Without patient, a host may have aborted
    commands that nobody answered for 30 s."""
    with Target(cores=f"[{NUM_CPUS - 1}]", port=PORT + 10, trtype="TCP") as front:
        for g in s.gateways:
            front.call("bdev_nvme_attach_controller", name="N", ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, subnqn=NQN, **g.listen_address())
        for n in GROUPS:
            front.add_ns(f"Nn{n}", nsid=n)
        with contextlib.ExitStack() as stack:
            hosts = [stack.enter_context(Host(front, "-w", "randrw", "--verify", "-q", "4", "--region", "256k", "--rate", "500", "-t", "3600", nsid=n)) for n in GROUPS]
            wait_io(front, hosts)
            yield lambda: wait_io(front, hosts)
            wait_io(front, hosts)
            for h in hosts:
                if patient:
                    h.check_perfect(h.stop())
                else:
                    check_aborted_only(h, h.stop())


def check_aborted_only(host, result):
    check(result["verified"] and result["miscompares"] == 0, result)
    wrong = [x for x in host.errors.read_text().splitlines() if "*ERROR*" in x and not x.endswith("abort requested")]
    check(not wrong and result["read"]["ios"] + result["write"]["ios"] > 0, wrong)


def status(s):
    p = tell(s.etcd, "status", "--json")
    check(p.returncode == 0, p.stderr)
    return json.loads(p.stdout)
