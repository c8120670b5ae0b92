# SPDX-License-Identifier: BSD-3-Clause
"""A target over the software RDMA device, and hosts, for system tests on one machine."""
import json
import os
import pathlib
import socket
import subprocess

from appliance_lib import BUILD, DEADLINE, Daemon, Failure, check, wait_for

PERF = BUILD / "bin" / "varve-perf"
NQN = "nqn.2026-11.io.varve:test"
HOSTNQN = "nqn.2026-11.io.varve:host"
ADDRESS = "127.0.0.1"
NUM_CPUS = len(os.sched_getaffinity(0))


def claim_ports():
    """The first of 16 ports, and of 16 more 20000 above them, that no other test has: tests run beside each other. They are below those
    that connections are given. The claim is the name of a socket, which goes with the process."""
    for i in range(298):
        number = (os.getpid() + i) % 298
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0varve-test-ports-{number}")
            return 8000 + 16 * number, claim
        except OSError:
            claim.close()
    raise Failure("298 tests run beside this one, and have all the ports")


PORT, PORT_CLAIM = claim_ports()


def preload(*more):
    """The software device, and more libraries; before them, what the sanitized build wants to be first."""
    libraries = [BUILD / "softverbs" / "libsoftverbs.so", *more]
    if os.environ.get("VARVE_SANITIZED"):
        libraries.insert(0, subprocess.check_output(["gcc", "-print-file-name=libasan.so"], text=True).strip())
    return {"LD_PRELOAD": ":".join(str(x) for x in libraries)}


def name_of(task):
    try:
        return (task / "comm").read_text()
    except OSError:     # it has just ended
        return "iou-"


class Target(Daemon):
    """varve with a transport and a subsystem NQN that any host may use. listen: at once; otherwise add_listener() does it."""
    trtype = "RDMA"     # of those that begin as a Daemon
    libraries = ()      # that are preloaded, too

    def __init__(self, *options, cores="[0]", port=PORT, listen=True, trtype="RDMA", env=None, path=None, **transport):
        super().__init__("-m", cores, "-s", "512", *options, path=path, env={**preload(*self.libraries), **(env or {})})
        self.port, self.trtype = port, trtype
        try:
            self.call("nvmf_create_transport", trtype=trtype, **transport)
            self.add_subsystem(NQN, listen)
        except BaseException:
            self.__exit__()
            raise

    def add_subsystem(self, nqn, listen=True, **params):
        self.call("nvmf_create_subsystem", nqn=nqn, **{"serial_number": "V1", "allow_any_host": True, **params})
        if listen:
            self.add_listener(nqn)

    def listen_address(self):
        return {"trtype": self.trtype, "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(self.port)}

    def add_listener(self, nqn=NQN):
        self.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=self.listen_address())

    def add_malloc(self, name, mb=16):
        return self.call("bdev_malloc_create", name=name, block_size=512, num_blocks=mb * 2048)

    def add_file(self, name, path, mb=16, **params):
        with open(path, "ab") as f:
            f.truncate(mb << 20)
        return self.call("bdev_uring_create", name=name, filename=str(path), block_size=512, **params)

    def add_ns(self, bdev, nqn=NQN, **params):
        return self.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": bdev, **params})

    def remove_ns(self, nsid, nqn=NQN):
        return self.call("nvmf_subsystem_remove_ns", nqn=nqn, nsid=nsid)

    def trid(self, nqn=NQN):
        return f"trtype:{self.trtype} adrfam:IPv4 traddr:{ADDRESS} trsvcid:{self.port} subnqn:{nqn}"

    def controllers(self, nqn=NQN):
        return self.call("nvmf_subsystem_get_controllers", nqn=nqn)

    def groups(self, field):
        """The sum of a statistic over all poll groups."""
        return sum(g[field] for g in self.call("nvmf_get_stats")["poll_groups"])

    def num_qpairs(self):
        return self.groups("current_admin_qpairs") + self.groups("current_io_qpairs")

    def held(self):
        """What a target holds: memory regions, descriptors, threads (but those that the kernel makes for io_uring)."""
        devices = [d for g in self.call("nvmf_get_stats")["poll_groups"] for t in g["transports"] for d in t["devices"]]
        names = [name_of(x) for x in pathlib.Path(f"/proc/{self.pid}/task").iterdir()]
        return {"memory regions": max((d.get("memory_regions", 0) for d in devices), default=0),
                "descriptors": len(os.listdir(f"/proc/{self.pid}/fd")), "threads": sum(not n.startswith("iou-") for n in names)}

    def holds_no_more(self, before):
        """A few regions are allowed, for memory in other pieces, each with the descriptor that softverbs keeps of a memfd: a leak comes once per
        connection."""
        now = self.held()
        regions = now["memory regions"] - before["memory regions"]
        return regions <= 4 and now["descriptors"] <= before["descriptors"] + max(regions, 0) and now["threads"] <= before["threads"]

    def wait_empty(self, before=None):
        """Nobody is connected, and nothing of anybody is left; with what held() said before, no more is held."""
        wait_for(lambda: self.num_qpairs() == 0, "all queue pairs to be gone")
        check(self.call("nvmf_get_inflight") == [], "commands are left")
        check(self.groups("pending_bdev_io") == 0, "held back commands are left")
        for group in self.call("nvmf_get_stats")["poll_groups"]:
            for t in group["transports"]:
                check(t["connections"] == 0 and t["connection_bytes"] == 0, f"memory of connections is left: {t}")
        if before is not None:  # softverbs lets go of a dead host's descriptors in its own time
            wait_for(lambda: self.holds_no_more(before), lambda: f"what was held before ({before}); now: {self.held()}")
        for s in self.call("nvmf_get_subsystems"):
            check(self.controllers(s["nqn"]) == [], f"controllers of {s['nqn']} are left")

    def stop_clean(self, *may_complain):
        """Ends it; what was not given back is an error in the log, or of AddressSanitizer. (A busy machine makes RPCs slow.)"""
        check(self.stop() == 0, f"ended with {self.process.returncode}:\n{self.log()}")
        bad = [x for x in self.log().splitlines() if ("*ERROR*" in x or "*WARNING*" in x or "Sanitizer" in x)
               and not any(m in x for m in ("held the control thread", *may_complain))]
        check(not bad, "\n".join(bad))


class Host:
    """varve-perf as an initiator of its own."""

    def __init__(self, target, *args, nqn=NQN, nsid=None, hostnqn=HOSTNQN, env=None):
        self.target = target
        self.output = target.folder / f"perf{id(self)}"
        self.errors = pathlib.Path(f"{self.output}.err")
        command = [PERF, "--no-huge", "-m", f"[{NUM_CPUS - 1}]", "-s", "128", "-j", "--quiet", "--hostnqn", hostnqn]
        if "-r" not in args:
            command += ["-r", target.trid(nqn)]
        if nsid:
            command += ["-n", str(nsid)]
        with open(self.output, "wb") as out, open(self.errors, "wb") as err:
            self.process = subprocess.Popen([*command, *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            env={**os.environ, **(env or preload())})

    def is_running(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait(self, deadline=DEADLINE):
        try:
            status = self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise Failure(f"varve-perf did not end:\n{self.errors.read_text()}") from None
        check("Sanitizer" not in self.errors.read_text(), self.errors.read_text())
        return status

    def stop(self):
        """Ends it early; returns its result."""
        self.process.terminate()
        return self.result()

    def result(self, deadline=DEADLINE):
        status = self.wait(deadline)
        check(status in (0, 1), f"varve-perf ended with {status}:\n{self.errors.read_text()}")
        try:
            return json.loads(self.output.read_text())
        except ValueError:
            raise Failure(f"varve-perf had no result:\n{self.errors.read_text()}") from None

    def check_perfect(self, result, reconnects=0):
        check(result["verified"] and result["miscompares"] == 0 and result["errors"] == 0, f"{result}\n{self.errors.read_text()}")
        if result["reconnects"] != reconnects:      # the target may be another by now, whose log is not at hand
            target = self.target.log()[-3000:] if self.target.log_path.exists() else ""
            raise Failure(f"{result}\n{self.errors.read_text()[-3000:]}\nthe target:\n{target}")
        check(result["read"]["ios"] + result["write"]["ios"] > 0, result)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.is_running():
            self.kill()


def verifying(target, nsid, *args, nqn=NQN, **kwargs):
    """A host that mixes reads and writes over a namespace and checks what it reads."""
    return Host(target, "-w", "randrw", "--verify", "--region", "4M", *args, nqn=nqn, nsid=nsid, **kwargs)


def wait_io(target, hosts, more=200):
    """Until the target has carried out more commands; fails when a host has ended."""
    start = target.groups("completed_nvme_io")

    def done():
        for h in hosts:
            check(h.is_running(), f"varve-perf ended with {h.process.returncode}:\n{h.errors.read_text()}")
        return target.groups("completed_nvme_io") - start >= more
    wait_for(done, "I/O to be carried out")
