#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""Answers to calls and complaints of tools say what happened, to whom, and what to do: not only the log does."""
import os
import re
import subprocess
import sys

from appliance_lib import BUILD, DEADLINE, Daemon, Failure, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, NUM_CPUS, PERF, PORT, Target, preload
from top import Screen

NAMESPACES = 40


def refused(d, words, method, **params):
    try:
        d.call(method, **params)
    except RpcError as e:
        check(all(w in str(e) for w in words), f"{method}: {e}")
        return
    raise Failure(f"{method} {params} was not refused")


def perf(trid, status=1):
    p = subprocess.run([PERF, "--no-huge", "-m", f"[{NUM_CPUS - 1}]", "-r", trid, "--ios", "2000", "-w", "read", "-q", "1"], capture_output=True, text=True,
                       timeout=2 * DEADLINE, stdin=subprocess.DEVNULL, env={**os.environ, **preload()})
    check(p.returncode == status and "Sanitizer" not in p.stderr, f"{trid}: {p}")
    return p.stdout, p.stderr


def listener(**address):
    return {"nqn": NQN, "listen_address": {"trtype": "TCP", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORT), **address}}


def test_a_listener_that_cannot_be_says_why():
    with Target(trtype="TCP") as t:
        for wrong, words in (({"traddr": "localhost"}, ["listen_address.traddr", "numeric IPv4"]), ({"trsvcid": "abc"}, ["listen_address.trsvcid", "a port"]),
                             ({"traddr": "::1"}, ["listen_address.traddr", "numeric IPv4"]),
                             ({"traddr": "192.0.2.1"}, ["no interface has that address; `ip address` lists them", "Cannot assign requested address"])):
            refused(t, words, "nvmf_subsystem_add_listener", **listener(**wrong))


def test_who_has_a_bdev_is_said():
    with Target(trtype="TCP") as t:
        t.add_malloc("Ram")
        t.add_ns("Ram")
        refused(t, ["it is claimed (exclusive_write) by nvmf", "nvmf_get_subsystems"], "nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "Ram"})


def test_a_file_that_shrinks_under_its_hosts_is_a_warning():
    with Target(trtype="TCP") as t:
        path = t.folder / "disk"
        path.write_bytes(bytes(2 << 20))
        t.call("bdev_uring_create", name="U0", filename=str(path), block_size=4096)
        t.add_ns("U0", nsid=1)
        for size, warned in ((4 << 20, False), (1 << 20, True)):
            os.truncate(path, size)
            t.call("bdev_uring_rescan", name="U0")
            line = next(x for x in t.log().splitlines() if f"has {size // 4096} blocks now" in x)
            check(("*WARNING*" in line and "fewer than before" in line) == warned and ("*NOTICE*" in line) != warned, line)


def test_a_call_too_early_is_to_be_repeated():
    with Daemon("--wait-for-rpc", ready=False) as d:
        client = wait_for(d.connect, "the RPC socket")
        try:
            client.call("bdev_get_bdevs")
        except RpcError as e:
            check("try again" in str(e) and "framework_start_init" in str(e), e)
        else:
            raise Failure("it was not refused")


def test_a_flag_without_effect_is_explained():
    with Daemon() as d:
        d.call("log_set_flag", flag="rpc")
        check("flag rpc is on, but its lines are printed only after log_set_print_level level=DEBUG" in d.log(), d.log())
        d.call("log_set_print_level", level="DEBUG")
        d.call("log_set_flag", flag="bdev")
        check("flag bdev is on" not in d.log(), d.log())


def test_a_host_is_told_what_is_not_there_and_once():
    with Target(trtype="TCP") as t:
        where = f"trtype:TCP adrfam:IPv4 traddr:{ADDRESS} trsvcid:"
        _, err = perf(f"{where}{PORT} subnqn:{NQN}x")
        check(err.count(f"Connect was refused: there is no subsystem {NQN}x at {ADDRESS} port {PORT}") == 1 and err.count("refused") == 1, err)
        t.call("nvmf_subsystem_remove_listener", **listener())
        _, err = perf(f"{where}{PORT} subnqn:{NQN}")
        check(err.count(f"nobody listens at {ADDRESS} port {PORT}") == 1 and err.count("varve-perf:") == 1, err)
    with Target() as t:
        _, err = perf(f"trtype:RDMA adrfam:IPv4 traddr:{ADDRESS} trsvcid:{PORT} subnqn:{NQN}x")
        check(err.count(f"there is no subsystem {NQN}x at {ADDRESS}") == 1, err)
        t.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=t.listen_address())
        _, err = perf(t.trid())
        check(err.count(f"nobody listens at {ADDRESS} port {PORT}") == 1, err)
        _, err = perf(f"trtype:RDMA adrfam:IPv4 traddr:192.0.2.1 trsvcid:{PORT} subnqn:{NQN}")
        check(err.count("no RDMA device of this machine knows a way to 192.0.2.1") == 1 and err.count("varve-perf:") == 1, err)


def test_many_namespaces_are_driven():
    with Target(trtype="TCP") as t:
        t.call("nvmf_create_subsystem", nqn=f"{NQN}m", serial_number="M", allow_any_host=True, max_namespaces=NAMESPACES)
        t.add_listener(f"{NQN}m")
        for i in range(NAMESPACES):
            t.call("bdev_null_create", name=f"N{i}", num_blocks=1024, block_size=512)
            t.add_ns(f"N{i}", f"{NQN}m")
        out, err = perf(t.trid(f"{NQN}m"), status=0)
        check("0 errors" in out, f"{out}{err}")


def test_varve_top_fits_a_small_terminal():
    with Daemon() as d:
        for i in range(3):
            d.call("bdev_null_create", name=f"Null{i}", num_blocks=1024, block_size=512)
        with Screen("-p", d.process.pid, "-d", "0.2", lines=24, columns=80) as s:
            s.wait("1 Reactors", "9 T", "h help  q quit")
            check(s.text().splitlines()[1].lstrip().startswith("1 Reactors") and s.text().splitlines()[3].startswith("LCORE"), s.text())
            s.key("4")
            s.wait("Null2", "4 Bdevs", ">")
            before = s.text().splitlines()[3].split()
            check(before[0] == "BDEV" and before[-1].endswith(">"), before)
            s.key(">>>")
            wait_for(lambda: s.text().splitlines()[3].split()[1] == before[4], lambda: f"other columns: {s.text()}")
            check(s.text().splitlines()[3].split()[0] == "BDEV", s.text())
            s.key("<<<<<")
            wait_for(lambda: s.text().splitlines()[3].split() == before, lambda: f"the first columns: {s.text()}")
            s.key("q")
            check(s.wait_end() == 0, s.status)


def test_rings_of_threads_are_told_from_those_of_reactors():
    with Daemon("-e", "rpc") as d:
        d.call("log_get_level")
        out = subprocess.run([BUILD / "bin/varve-trace", "-p", str(d.process.pid), "-d", "/dev/shm"], capture_output=True, text=True, timeout=DEADLINE).stdout
        sizes = [line for line in out.splitlines() if line.startswith("Trace Size")]
        check(len(sizes) == 2 and re.fullmatch(r"Trace Size of lcore \(\d+\): 32768", sizes[0]), sizes)
        check(re.fullmatch(r"Trace Size of lcore \(\d+\), the thread control: 4096", sizes[1]), sizes)


def test_what_is_no_trace_and_no_tracepoint_is_said():
    def trace(*options):
        p = subprocess.run([BUILD / "bin/varve-trace", *map(str, options)], capture_output=True, text=True, timeout=DEADLINE)
        return p.returncode, p.stdout, p.stderr

    status, out, err = trace("-f", "/etc/passwd")
    check(status == 1 and out == "" and "/etc/passwd: not a trace file" in err, err)
    with Daemon("-e", "rpc") as d:
        d.call("log_get_level")
        status, out, err = trace("-p", d.process.pid, "-d", "/dev/shm", "-l", "tpoint=RPC_BEGN")
        check(status != 0 and out == "" and 'no tracepoint is called "RPC_BEGN"; did you mean "RPC_BEGIN"?' in err, err)
        page = d.folder / "page.html"
        for _ in range(2):  # the second replaces the first
            status, out, err = trace("-p", d.process.pid, "-d", "/dev/shm", "--html", page)
            check(status == 0 and page.stat().st_size > 10000, err)
        page.write_text("mine")
        status, out, err = trace("-p", d.process.pid, "-d", "/dev/shm", "--html", page)
        check(status != 0 and page.read_text() == "mine" and "only a page that varve-trace has made is replaced" in err, err)


if __name__ == "__main__":
    main(sys.modules[__name__])
