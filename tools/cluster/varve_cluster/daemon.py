# SPDX-License-Identifier: BSD-3-Clause
"""The varve beside this program, by its RPC socket."""
import errno
import json
import socket
import time

from .state import ADDRESS

DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
ASK_S = 10      # the clients are asked twice, and have 2 s to answer


class DaemonError(Exception):
    """The daemon has refused, or cannot be reached."""


class NoDevice(DaemonError):
    """The daemon has no such bdev."""


class NoDaemon(DaemonError):
    """Nobody is at its socket: a process that has ended serves nothing."""


def boottime_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Daemon:
    """Threads may use it at once: each call has a connection of its own."""

    def __init__(self, path, nqn, timeout_s):
        self.path, self.nqn, self.timeout_s = path, nqn, timeout_s

    def call(self, method, timeout_s=None, **params):
        request = {"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {})}
        end = time.monotonic() + (timeout_s or self.timeout_s)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.settimeout(self.timeout_s)
                s.connect(self.path)
                s.sendall(json.dumps(request).encode())
                answer = self.receive(s, end)
        except (OSError, ValueError) as e:
            kind = NoDaemon if isinstance(e, (ConnectionRefusedError, FileNotFoundError)) else DaemonError
            raise kind(f"{method}: {self.path}: {str(e) or type(e).__name__}") from None
        if "result" not in answer:
            error = answer.get("error")
            kind = NoDevice if isinstance(error, dict) and error.get("code") == -errno.ENODEV else DaemonError
            raise kind(f"{method}: {error.get('message') if isinstance(error, dict) else answer}")
        return answer["result"]

    @staticmethod
    def receive(s, end):
        data = b""
        while True:
            s.settimeout(max(end - time.monotonic(), 0.001))
            more = s.recv(1 << 16)
            if not more:
                raise ValueError("it closed the connection")
            data += more
            try:
                answer = json.loads(data)
            except ValueError:
                continue
            if not isinstance(answer, dict):
                raise ValueError("its answer is no object")
            return answer

    def facts(self):
        """What other gateways must know of this one; and for each ANA group that standbys are in, its bdevs, with the numbers of their namespaces."""
        standbys = {o["name"] for o in self.call("bdev_get_owners")}
        s, groups, namespaces = self.subsystem(), {}, {}
        if not s.get("ana_reporting"):
            raise DaemonError(f"nqn: subsystem {self.nqn} was made without ana_reporting")
        for ns in s.get("namespaces", []):
            if ns["bdev_name"] not in standbys:
                raise DaemonError(f"namespace {ns['nsid']}: its bdev {ns['bdev_name']} was made without standby")
            groups.setdefault(ns["anagrpid"], {})[ns["bdev_name"]] = str(ns["nsid"])
            namespaces[str(ns["nsid"])] = {"nguid": ns["nguid"], "anagrpid": ns["anagrpid"], **self.size(self.bdev(ns["bdev_name"]))}
        return {"nqn": self.nqn, "min_cntlid": s["min_cntlid"], "max_cntlid": s["max_cntlid"], "namespaces": namespaces}, groups

    def subsystem(self):
        found = [s for s in self.call("nvmf_get_subsystems") if s["nqn"] == self.nqn]
        if not found:
            raise DaemonError(f"nqn: the daemon at {self.path} has no subsystem {self.nqn}")
        return found[0]

    def reserved(self):
        """The ANA groups with namespaces that hosts have registered with for reservations."""
        return {ns["anagrpid"] for ns in self.subsystem().get("namespaces", []) if "reservation" in ns}

    def offers_reservations(self):
        """The transports whose hosts may use reservations, which each daemon keeps for itself."""
        used = {listener["address"]["trtype"].upper() for listener in self.listeners()}
        return sorted(t["trtype"] for t in self.call("nvmf_get_transports") if t["trtype"].upper() in used and "reservs" not in t.get("masked_oncs", []))

    def bdev(self, name):
        return self.call("bdev_get_bdevs", name=name)[0]

    @staticmethod
    def size(bdev):
        return {"block_size": bdev["block_size"], "blocks": bdev["num_blocks"]}

    @staticmethod
    def is_lost(bdev):
        """Whether it can do no I/O any more: Ceph has blocklisted this client, which all of a connection share."""
        return bool(bdev.get("driver_specific", {}).get("rbd", {}).get("lost"))

    @staticmethod
    def client(bdev):
        """The client of Ceph by which it is reached; or None."""
        return bdev.get("driver_specific", {}).get("rbd", {}).get("client")

    def fence_silent(self, name, clients, until_us):
        """Those of the clients that watch the image of a bdev, do not have its lock and do not answer: they are blocklisted. Not when this has given up."""
        until_us = min(max(until_us, 1), boottime_us() + ASK_S * 1000000)
        return self.call("bdev_rbd_fence_silent", ASK_S, name=name, clients=",".join(clients), until_us=until_us)

    def listeners(self):
        return self.call("nvmf_subsystem_get_listeners", nqn=self.nqn)

    @staticmethod
    def addresses(listeners):
        """Those that hosts can be told of, in an order that does not change."""
        found = [{name: listener["address"].get(name, "") for name in ADDRESS} for listener in listeners]
        return sorted((a for a in found if a["traddr"] not in ("0.0.0.0", "::")), key=lambda a: [a[name] for name in ADDRESS])

    def referrals(self):
        """The addresses of other discovery services that hosts are told of."""
        return {tuple(r["address"].get(name, "") for name in ADDRESS) for r in self.call("nvmf_discovery_get_referrals") if r["subnqn"] == DISCOVERY}

    def refer(self, address):
        self.call("nvmf_discovery_add_referral", address=dict(zip(ADDRESS, address)))

    def stop_referring(self, address):
        self.call("nvmf_discovery_remove_referral", address=dict(zip(ADDRESS, address)))

    @staticmethod
    def states(listener, group):
        return [s["ana_state"] for s in listener["ana_states"] if s["ana_group"] == group]

    def set_ana(self, group, state, listeners=None):
        """Where it is not that already."""
        for listener in self.listeners() if listeners is None else listeners:
            if self.states(listener, group) != [state]:
                self.call("nvmf_subsystem_listener_set_ana_state", nqn=self.nqn, listen_address=listener["address"], ana_state=state, anagrpid=group)

    def is_optimized(self, group, listeners):
        """Whether all listeners say so of a group."""
        return all(self.states(listener, group) == ["optimized"] for listener in listeners)

    def own(self, bdevs, until_us, timeout_s=None, **params):
        for bdev in bdevs:
            self.call("bdev_own", timeout_s, name=bdev, until_us=until_us, **params)

    def disown(self, bdevs, timeout_s):
        """All of them, whatever is said of one; a bdev that is not there owns nothing."""
        failed, end = None, time.monotonic() + timeout_s
        for bdev in bdevs:
            try:
                self.call("bdev_disown", max(end - time.monotonic(), 0.001), name=bdev)
            except NoDevice:
                pass
            except DaemonError as e:
                failed = failed or e
        if failed is not None:
            raise failed

    def may_serve(self, bdevs):
        """Whether I/O of one of them may begin, for all that is known. That of one which is being given up only ends."""
        try:
            return any(o["name"] in bdevs and o["state"] not in ("standby", "draining", "giving") for o in self.call("bdev_get_owners"))
        except NoDaemon:
            return False
        except DaemonError:
            return True
