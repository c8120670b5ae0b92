# SPDX-License-Identifier: BSD-3-Clause
"""The varve beside this program, by its RPC socket."""
import json
import socket
import time


class DaemonError(Exception):
    """The daemon has refused, or cannot be reached."""


def boottime_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Daemon:
    """To be used by one thread; each call has a connection of its own."""

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
            raise DaemonError(f"{method}: {self.path}: {str(e) or type(e).__name__}") from None
        if "result" not in answer:
            error = answer.get("error")
            raise DaemonError(f"{method}: {error.get('message') if isinstance(error, dict) else answer}")
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
        """What other gateways must know of this one; and the bdevs of each ANA group that standbys are in."""
        standbys = {o["name"] for o in self.call("bdev_get_owners")}
        found = [s for s in self.call("nvmf_get_subsystems") if s["nqn"] == self.nqn]
        if not found:
            raise DaemonError(f"nqn: the daemon at {self.path} has no subsystem {self.nqn}")
        s, groups = found[0], {}
        if not s.get("ana_reporting"):
            raise DaemonError(f"nqn: subsystem {self.nqn} was made without ana_reporting")
        for ns in s.get("namespaces", []):
            if ns["bdev_name"] not in standbys:
                raise DaemonError(f"namespace {ns['nsid']}: its bdev {ns['bdev_name']} was made without standby")
            groups.setdefault(ns["anagrpid"], []).append(ns["bdev_name"])
        return {"nqn": self.nqn, "min_cntlid": s["min_cntlid"], "max_cntlid": s["max_cntlid"],
                "namespaces": {str(ns["nsid"]): ns["nguid"] for ns in s.get("namespaces", [])}}, groups

    def lost(self, bdevs):
        """One of them that can do no I/O any more: Ceph has blocklisted this client, which all of a connection share."""
        for bdev in bdevs:
            for found in self.call("bdev_get_bdevs", name=bdev):
                if found.get("driver_specific", {}).get("rbd", {}).get("lost"):
                    return bdev
        return None

    def set_ana(self, group, state):
        for listener in self.call("nvmf_subsystem_get_listeners", nqn=self.nqn):
            self.call("nvmf_subsystem_listener_set_ana_state", nqn=self.nqn, listen_address=listener["address"], ana_state=state, anagrpid=group)

    def is_optimized(self, group):
        """Whether all listeners say so of a group."""
        listeners = self.call("nvmf_subsystem_get_listeners", nqn=self.nqn)
        states = [s["ana_state"] for listener in listeners for s in listener["ana_states"] if s["ana_group"] == group]
        return len(states) == len(listeners) and all(s == "optimized" for s in states)

    def own(self, bdevs, until_us, timeout_s=None, **params):
        for bdev in bdevs:
            self.call("bdev_own", timeout_s, name=bdev, until_us=until_us, **params)

    def disown(self, bdevs, timeout_s):
        for bdev in bdevs:
            self.call("bdev_disown", timeout_s, name=bdev)
