# SPDX-License-Identifier: BSD-3-Clause
"""The target over NVMe/TCP, on the loopback interface: varve on the first core, hosts on the last, a RAM disk. In turns with the bare engine
(bench/nvmf_tcp_bare.c: a server that only moves the same bytes), by the same light host, and with AES-GCM of OpenSSL.

    nvmf_tcp.read_iops_q1 ...           4 KiB reads and writes, one connection, q1, q32 and q128
    nvmf_tcp.bare_read_iops_q1 ...      the same of the bare engine
    nvmf_tcp.read_ratio_q1 ...          the one by the other, the median of all turns; wanted: 0.75 or more
    nvmf_tcp.read_iops_c16, c256        of 16 and 256 connections, 256 reads outstanding in all; bare_, ratio_: as above
    nvmf_tcp.flat_ratio                 read_ratio_c256 by read_ratio_c16; wanted: 0.8 or more
    nvmf_tcp.read_cpu_ns, write_cpu_ns  of the target's reactor per I/O at q128, kernel included
    nvmf_tcp.read_calls, write_calls    recvmsg() and sendmsg() calls of the target per I/O at q128
    nvmf_tcp.idle_ticks                 of the CPU that the target takes in a second without I/O, with a host connected; wanted: 0
    nvmf_tcp.host_iops_q32              4 KiB random reads by varve-perf
    nvmf_tcp.digest_iops_q32            the same with header and data digests
    nvmf_tcp.read_gbps, write_gbps      GB/s of 128 KiB reads and writes by varve-perf, 32 outstanding
    nvmf_tcp.digest_read_gbps ...       the same with header and data digests
    nvmf_tcp.tls_read_gbps ...          the same over TLS
    nvmf_tcp.aes_gbps                   what AES-128-GCM alone allows a core, 16 KiB at a time (openssl speed)
    nvmf_tcp.tls_read_ratio ...         the one by the other; wanted: 0.7 or more
    nvmf_tcp.tls_read_of_bound, tls_write_of_bound
                                        tls_read_gbps by what a core can do at most if each byte costs it what it costs without TLS, and AES-GCM:
                                        1 / (1 / read_gbps + 1 / aes_gbps)
and what bench-nvmf_tcp_own prints: own_ns (wanted: 250 or less) and its kin.

It takes two minutes. --smoke: each figure once, of a moment: they mean nothing, but all that prints them has run."""
import importlib.util
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from appliance_lib import DEADLINE, Daemon, check  # noqa: E402
from nvmf_lib import PORT  # noqa: E402

BUILD = pathlib.Path(os.environ.get("VARVE_BUILD", TOP / "build"))
BARE = BUILD / "bench" / "nvmf-tcp-bare"
NQN, SECURE_NQN = "nqn.2026-11.io.varve:bench", "nqn.2026-11.io.varve:secure"
HOSTNQN = "nqn.2026-11.io.varve:host"
SECURE_PORT, BARE_PORT = PORT + 1, PORT + 2
CPUS = sorted(os.sched_getaffinity(0))
SMOKE = "--smoke" in sys.argv[1:]
TURNS, DRIVE_SECONDS, PERF_SECONDS = (1, 0.2, 1) if SMOKE else (5, 0.5, 1)
DEPTHS, CONNECTIONS, IN_FLIGHT = (1, 32, 128), (16, 256), 256
SMALL, LARGE = 4096, 131072


def fail(why):
    sys.exit(f"bench nvmf_tcp: {why}")


def key_file(folder):
    spec = importlib.util.spec_from_file_location("tls_vectors", TOP / "unittest/tls/vectors.py")
    vectors = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(vectors)
    path = folder / "key"
    path.touch(mode=0o600)
    path.write_text(vectors.text(bytes(range(32)), 1) + "\n")
    return path


class Target(Daemon):
    def __init__(self):
        super().__init__("-m", f"[{CPUS[0]}]")
        self.key = key_file(self.folder)
        self.call("keyring_file_add_key", name="key", path=str(self.key))
        self.call("nvmf_create_transport", trtype="TCP", max_anonymous=0, max_anonymous_per_host=0)
        for nqn, port, secure in ((NQN, PORT, False), (SECURE_NQN, SECURE_PORT, True)):
            bdev = self.call("bdev_malloc_create", block_size=SMALL, num_blocks=16384)
            self.call("nvmf_create_subsystem", nqn=nqn, allow_any_host=not secure)
            self.call("nvmf_subsystem_add_ns", nqn=nqn, namespace={"bdev_name": bdev})
            self.call("nvmf_subsystem_add_listener", nqn=nqn, secure_channel=secure, listen_address={
                "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": str(port)})
        self.call("nvmf_subsystem_add_host", nqn=SECURE_NQN, host=HOSTNQN, psk="key")

    def reactor(self):
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            if (task / "comm").read_text().startswith("reactor"):
                return task
        fail("the target has no reactor")

    def cpu_ns(self):
        return int((self.reactor() / "schedstat").read_text().split()[0])

    def cpu_ticks(self):
        return sum(map(int, (self.reactor() / "stat").read_text().rsplit(")", 1)[1].split()[11:13]))

    def calls(self):
        device = self.call("nvmf_get_stats")["poll_groups"][0]["transports"][0]["devices"][0]
        return device["reads"] + device["sends"]


def drive(port, operation, connections, depth):
    """The light host: how many I/Os have ended, and in how many seconds."""
    run = subprocess.run([BARE, "drive", str(port), str(CPUS[-1]), operation, str(connections), str(depth), str(DRIVE_SECONDS), NQN],
                         stdout=subprocess.PIPE, text=True, timeout=DEADLINE)
    if run.returncode != 0:
        fail(f"the light host ended with {run.returncode}")
    ios, ns = map(float, run.stdout.split())
    return ios, ns / 1e9


def drive_bare(*args):
    """The same of the bare engine, which polls, and so is there for its turn only."""
    with subprocess.Popen([BARE, "serve", str(BARE_PORT), str(CPUS[0])], stdout=subprocess.PIPE) as server:
        try:
            check(server.stdout.readline() == b"ready\n", "the bare engine does not start")
            ios, seconds = drive(BARE_PORT, *args)
        finally:
            server.kill()
    return ios / seconds


def perf(target, operation, size, *options, secure=False):
    """The result of a run of varve-perf."""
    port, nqn = (SECURE_PORT, SECURE_NQN) if secure else (PORT, NQN)
    keys = ("--psk", target.key, "--hostnqn", HOSTNQN) if secure else ()
    run = subprocess.run([BUILD / "bin" / "varve-perf", "--json", "--quiet", "--busy", "-m", f"[{CPUS[-1]}]", "-w", f"rand{operation}", "-o", str(size),
                          "-q", "32", "-t", str(PERF_SECONDS), *(("--ios", "1000") if SMOKE else ()), *keys, *options, "-r",
                          f"trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{port} subnqn:{nqn}"], stdout=subprocess.PIPE, timeout=DEADLINE)
    if run.returncode != 0:
        fail(f"varve-perf ended with {run.returncode}")
    return json.loads(run.stdout)[operation]


def gbps(target, operation, *options, **kwargs):
    return perf(target, operation, LARGE, *options, **kwargs)["iops"] * LARGE / 1e9


def aes_gbps():
    run = subprocess.run(["openssl", "speed", "-mr", "-seconds", "1", "-bytes", "16384", "-evp", "aes-128-gcm"], capture_output=True, text=True,
                         timeout=DEADLINE, preexec_fn=lambda: os.sched_setaffinity(0, CPUS[:1]))
    found = re.search(r"^\+F:\d+:AES-128-GCM:([0-9.]+)$", run.stdout, re.M | re.I)
    if not found:
        fail(f"openssl speed said: {run.stdout} {run.stderr}")
    return float(found.group(1)) / 1e9


def idle_ticks(target):
    """While the host is connected that `with` has."""
    before = target.cpu_ticks()
    time.sleep(1)
    return target.cpu_ticks() - before


class Figures:
    def __init__(self):
        self.found = {}

    def add(self, name, value):
        self.found.setdefault(name, []).append(value)

    def print(self):
        for name, values in self.found.items():
            print(f"nvmf_tcp.{name} {statistics.median(values):.3f} {unit_of(name)}", flush=True)


def unit_of(name):
    for part, unit in (("ratio", "ratio"), ("of_bound", "ratio"), ("iops", "IOPS"), ("gbps", "GB/s"), ("_ns", "ns"), ("_calls", "calls"), ("ticks", "ticks")):
        if part in name:
            return unit
    raise ValueError(name)


def turn_of_light_host(target, figures):
    shapes = [(op, 1, q, f"q{q}") for q in DEPTHS for op in ("read", "write")] + [("read", c, IN_FLIGHT // c, f"c{c}") for c in CONNECTIONS]
    ratios = {}
    for operation, connections, depth, name in shapes:
        cpu, calls = target.cpu_ns(), target.calls()
        ios, seconds = drive(PORT, operation, connections, depth)
        if name == "q128":
            figures.add(f"{operation}_cpu_ns", (target.cpu_ns() - cpu) / ios)
            figures.add(f"{operation}_calls", (target.calls() - calls) / ios)
        bare = drive_bare(operation, connections, depth)
        ratios[name] = ios / seconds / bare
        figures.add(f"{operation}_iops_{name}", ios / seconds)
        figures.add(f"bare_{operation}_iops_{name}", bare)
        figures.add(f"{operation}_ratio_{name}", ratios[name])
    figures.add("flat_ratio", ratios["c256"] / ratios["c16"])


def turn_of_host(target, figures):
    both = ("--hdgst", "--ddgst")
    figures.add("host_iops_q32", perf(target, "read", SMALL)["iops"])
    figures.add("digest_iops_q32", perf(target, "read", SMALL, *both)["iops"])
    aes = aes_gbps()
    figures.add("aes_gbps", aes)
    for operation in ("read", "write"):
        plain = gbps(target, operation)
        figures.add(f"{operation}_gbps", plain)
        figures.add(f"digest_{operation}_gbps", gbps(target, operation, *both))
        secure = gbps(target, operation, secure=True)
        figures.add(f"tls_{operation}_gbps", secure)
        figures.add(f"tls_{operation}_ratio", secure / aes)
        figures.add(f"tls_{operation}_of_bound", secure * (1 / plain + 1 / aes))


class Guest:
    """A host that is connected, and does nothing: its commands wait for their time."""

    def __init__(self, target):
        self.process = subprocess.Popen([BUILD / "bin" / "varve-perf", "--quiet", "-m", f"[{CPUS[-1]}]", "-q", "1", "--rate", "1", "-t", "600", "-r",
                                         f"trtype:TCP adrfam:IPv4 traddr:127.0.0.1 trsvcid:{PORT} subnqn:{NQN}"], stdout=subprocess.DEVNULL)
        end = time.monotonic() + DEADLINE
        while target.call("nvmf_get_stats")["poll_groups"][0]["current_io_qpairs"] == 0:
            check(time.monotonic() < end and self.process.poll() is None, "varve-perf does not connect")
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def main():
    own = subprocess.run([BUILD / "bench" / "bench-nvmf_tcp_own"], stdout=subprocess.PIPE, check=True, text=True).stdout
    print(own, end="", flush=True)
    figures = Figures()
    with Target() as target:
        for _ in range(TURNS):
            turn_of_light_host(target, figures)
            turn_of_host(target, figures)
        with Guest(target):
            for _ in range(1 if SMOKE else 3):
                figures.add("idle_ticks", idle_ticks(target))
    figures.print()


main()
