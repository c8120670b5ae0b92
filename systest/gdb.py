#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/gdb on a live daemon under I/O, on a gcore of it, on the core of an abort, on a stripped binary, and on damaged memory. What
the commands say is compared with what the daemon says itself."""
# needs: root gdb
# limit: 600
# beside
import json
import pathlib
import re
import resource
import signal
import struct
import subprocess
import sys

from appliance_lib import BUILD, TOP, VARVE, Daemon, check, main, wait_for
from core_lib import Core
from nvmf_lib import HOSTNQN, NQN, Host, Target, verifying, wait_io
from nvmf_tcp_lib import Queue, TcpTarget

SCRIPT = TOP / "tools" / "gdb" / "varve.py"
SLOW = 240              # seconds that a gdb may take on a busy machine
BOTH = ("print_bdevs", "find_bdev M", "print_io_devices", "print_nvmf_subsystems", "print_threads")
STOCK = ["spdk_" + c for c in BOTH]
COMMANDS = [*("varve_" + c for c in BOTH), "varve_inflight", "varve_qpairs", f"varve_subsystem {NQN}", "varve_trace 20", "varve_doctor 1"]


class Gdb:
    """The outputs of commands, run one after the other on a process or a core."""

    def __init__(self, *where, commands=COMMANDS, load=True):
        arguments = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load no", *map(str, where)]
        for c in ([f"source {SCRIPT}"] if load else []) + list(commands):
            # In one call, so that an error of one command does not end the others.
            arguments += ["-ex", f"echo \\n== {c}\\n", "-ex", c]
        p = subprocess.run([*arguments, "-ex", "echo \\n== end\\n"], capture_output=True, text=True, timeout=SLOW,
                           stdin=subprocess.DEVNULL)
        self.errors, self.all = p.stderr, p.stdout + p.stderr
        self.parts = dict(re.findall(r"\n== (.*)\n([\s\S]*?)(?=\n== )", p.stdout))
        check("Traceback" not in self.all and "Python Exception" not in self.all, self.all[-3000:])

    def __getitem__(self, command):
        check(command in self.parts, f"{command} did not run:\n{self.all[-3000:]}")
        return self.parts[command]

    def rows(self, command):
        """A table's lines as lists of cells."""
        return [re.split(r"  +", line.strip()) for line in self[command].splitlines() if re.search(r"\S  +\S", line)][1:]


class Facts:
    """What the daemon says of what does not change any more: compared with a debugger's view."""

    def __init__(self, t):
        self.pid, self.trtype = t.pid, t.trtype
        self.bdevs = {b["name"]: b for b in t.call("bdev_get_bdevs")}
        self.subsystems = t.call("nvmf_get_subsystems")
        self.qpairs = t.call("nvmf_subsystem_get_qpairs", nqn=NQN)
        self.threads = {x["name"]: x["id"] for x in t.call("thread_get_stats")["threads"]}
        self.channels = {x["name"]: {c["name"]: c["ref"] for c in x["io_channels"]}
                         for x in t.call("thread_get_io_channels")["threads"]}
        self.hung = [r for r in t.call("nvmf_get_inflight") if r["state"] == "BDEV" and r["hostnqn"] == HOSTNQN + ":2"]


def start(*options, trtype="RDMA"):
    """A target with one namespace under load and another that has two reads which never end. Returns it and its hosts."""
    t = Target("-e", f"bdev,nvmf_{trtype.lower()},rpc,nvmf,thread", "-s", "192", *options, trtype=trtype)
    for name in ("M0", "M1"):
        t.add_malloc(name)
    t.call("bdev_error_create", base_name="M1")
    for name in ("M0", "EE_M1"):
        t.add_ns(name)
    return t


def hang(t, busy):
    with Host(t, "-w", "randread", "-q", "2", "-t", "3600", nsid=2, hostnqn=HOSTNQN + ":2") as h:
        wait_io(t, [busy, h])
        t.call("bdev_error_inject_error", name="EE_M1", io_type="read", error_type="pending", num=2)
        wait_for(lambda: sum(r["state"] == "BDEV" and r["age_us"] > 1500000 for r in t.call("nvmf_get_inflight")) >= 2,
                 "two reads to hang", SLOW)
        yield h


def check_bdevs(gdb, facts):
    rows = {r[0]: r for r in gdb.rows("varve_print_bdevs")}
    check(set(rows) == set(facts.bdevs), f"{set(rows)} against {set(facts.bdevs)}")
    for name, b in facts.bdevs.items():
        check(rows[name][1:5] == [b["product_name"], "ready", str(b["num_blocks"]), str(b["block_size"])], rows[name])
    check("M1: " in gdb["varve_find_bdev M"] and facts.bdevs["M0"]["uuid"] in gdb["varve_find_bdev M"], gdb["varve_find_bdev M"])


def check_threads(gdb, facts):
    text = gdb["varve_print_threads"]
    check(dict((n, int(i)) for n, i in re.findall(r"^(\S+): id (\d+), on ", text, re.M)) == facts.threads, text)
    seen, thread = {}, None
    for line in text.splitlines():
        thread = re.match(r"^(\S+): id", line)[1] if re.match(r"^\S+: id", line) else thread
        m = re.match(r"    channel of (.*), references (\d+), ", line)
        if m:
            seen.setdefault(thread, {})[m[1]] = int(m[2])
    check(seen == {n: c for n, c in facts.channels.items() if c}, f"{seen} against {facts.channels}")
    for name in {n for c in facts.channels.values() for n in c}:
        total = sum(c.get(name, 0) for c in facts.channels.values())
        check(f"{name}: channels " in gdb["varve_print_io_devices"]
              and f"references {total}, struct io_device" in gdb["varve_print_io_devices"], gdb["varve_print_io_devices"])


def check_target(gdb, facts):
    rows = gdb.rows("varve_print_nvmf_subsystems")
    check([r[-1] for r in rows] == [s["nqn"] for s in facts.subsystems], rows)
    check([int(r[3]) for r in rows] == [len(s.get("namespaces", [])) for s in facts.subsystems], rows)
    text = gdb[f"varve_subsystem {NQN}"]
    for word in ("state ACTIVE", "hosts: any", "namespace 1: bdev M0", "namespace 2: bdev EE_M1", HOSTNQN + ":2", "READY", "outstanding 2"):
        check(word in text, f"{word} is not in\n{text}")
    rows = [(r[1], r[2], r[-3]) for r in gdb.rows("varve_qpairs")]
    check(sorted(rows) == sorted((str(q["qid"]), "ENABLED", q["hostnqn"]) for q in facts.qpairs), f"{rows} against {facts.qpairs}")


def check_inflight(gdb, facts):
    rows = [r for r in gdb.rows("varve_inflight") if r[1] == "BDEV" and r[7] == "EE_M1"]
    want = sorted((r["command"], r["qid"], r["cid"], r["lba"], r["num_blocks"], r["hostnqn"], r["object"]) for r in facts.hung)
    seen = sorted((r[4], int(r[5]), int(r[6]), int(r[8]), int(r[9]), r[10], r[12]) for r in rows)
    check(len(want) == 2 and seen == want, f"{seen} against {want}")
    check(all(r[3] == "bdev: module" for r in rows), rows)


def check_doctor(gdb):
    text = gdb["varve_doctor 1"]
    check(text.count("FOUND: read of host " + HOSTNQN + ":2") == 2 and "bdev EE_M1" in text and "next: varve_bdev_io 0x" in text, text)
    check("all lists are whole" in text and "makes no sense" not in text and "data buffers of 1 poll groups looked at" in text, text)
    return text


def check_trace(gdb):
    text = gdb["varve_trace 20"]
    check(re.search(r"^Events: 20; ", text, re.M) and text.count("\n") == 21, text)
    check(any(word in text for word in ("RDMA_REQ_", "TCP_REQ_", "BDEV_IO_", "RPC_")), text)


def check_everything(gdb, facts):
    check_bdevs(gdb, facts)
    check_threads(gdb, facts)
    check_target(gdb, facts)
    check_inflight(gdb, facts)
    check_trace(gdb)
    return check_doctor(gdb)


def drill_commands(facts):
    """From a hung command to its I/O, its events and its structures."""
    request = f"(struct nvmf_request *){facts.hung[0]['object']}"
    return [f"varve_bdev_io &({request})->bdev_io", f"varve_trace 9 {facts.hung[0]['object']}", f"print *({request})->sqe",
            f"print *{request}", "print 'bdev/bdev.c'::bdevs", f"print ({request})->cqe", f"print ({request})->sqe->sgl1"]


DATA_POINTER = {"RDMA": "keyed data block", "TCP": "transport data block"}


def check_drill(g, facts):
    said = [g[c] for c in drill_commands(facts)]
    hung = facts.hung[0]
    for word in ("read, state module", "bdev EE_M1", f"ends in nvmf_io_done({hung['object']})", f"blocks {hung['lba']} to "):
        check(word in said[0], f"{word} is not in\n{said[0]}")
    check("Events: " in said[1] or "No event is recorded of" in said[1], said[1])   # the ring may have gone round
    check(f"cid {hung['cid']}, opcode 0x2 (read" in said[2] and f"LBA {hung['lba']}, " in said[2], said[2])
    check("where = NVMF_REQUEST_BDEV" in said[3] and "state = BDEV_IO_MODULE" in said[3], said[3])
    check("list of 3 struct bdev_core" in said[4] and "success" in said[5] and DATA_POINTER[facts.trtype] in said[6], g.all)


def macros(folder):
    """The commands by which guides for SPDK's users load theirs."""
    return f"python import sys; sys.path.append('{folder}'); import gdb_macros"


def check_macros(folder, *where):
    """Those commands, and what they define, say what ours say."""
    ours = Gdb(*where)
    load = macros(folder)
    g = Gdb(*where, commands=["spdk_print_bdevs", load, "spdk_load_macros", *STOCK, "spdk_load_macros --reload", "spdk_load_macros x",
                              "spdk_find_bdev EE_M1"], load=False)
    check('Undefined command: "spdk_print_bdevs"' in g.errors and "takes --reload or nothing, not 'x'" in g.errors, g.errors)
    check(g.errors.count("\n") == 2 + ours.errors.count("\n"), f"{g.errors}\nbut ours:\n{ours.errors}")
    for stock, own in zip(STOCK, BOTH):
        check(g[stock].strip() and ("-p" in where or g[stock] == ours["varve_" + own]), f"{stock} says\n{g[stock]}")
    check("EE_M1: " in g["spdk_find_bdev EE_M1"], g.all)


def look(facts, *where):
    """All commands in one session: between two, a busy machine may let hosts time out. What varve_doctor says."""
    g = Gdb(*where, commands=COMMANDS + drill_commands(facts) + STOCK)
    check_drill(g, facts)
    if "-p" not in where:       # of a process, counts go on between two commands
        for stock, ours in zip(STOCK, BOTH):
            check(g[stock] == g["varve_" + ours] and g[stock].strip(), f"{stock} says\n{g[stock]}")
    return check_everything(g, facts), g


def test_a_live_daemon_under_io():
    with start() as t, verifying(t, 1, "-t", "3600", "-q", "8") as busy:
        for _ in hang(t, busy):
            facts = Facts(t)
            text, _ = look(facts, "-p", t.pid)
            check(text.startswith(f"Process {t.pid}; ages as of now"), text)
            g = Gdb("-p", t.pid, commands=["info probes stap varve", "shell true", *STOCK])
            for name in ("bdev_io_submit", "nvmf_req_state", "rpc_begin"):
                check(re.search(rf"^stap +varve +{name} ", g["info probes stap varve"], re.M), g.all)
            for c in STOCK:
                check(g[c].strip(), f"{c} says nothing")
            check_macros(TOP / "tools/gdb", "-p", t.pid)
            check(t.call("appliance_get_state")["state"] == "RUNNING", "it runs on after all of that")


def test_a_live_daemon_over_tcp():
    with start(trtype="TCP") as t, verifying(t, 1, "-t", "3600", "-q", "8") as busy:
        for _ in hang(t, busy):
            facts = Facts(t)
            look(facts, "-p", t.pid)
            events = Gdb("-p", t.pid, commands=[f"varve_trace 30000 {facts.hung[0]['object']}", "varve_qpairs"])
            check(" TCP_REQ_EXECUTING " in events.all or "No event is recorded of" in events.all, events.all[-3000:])
            check("LIVE" in events["varve_qpairs"], events["varve_qpairs"])


def spell(t):
    """How long the reactor polls without work before it sleeps, as a part of the longest that it may."""
    g = Gdb("-p", t.pid, commands=["print reactors[0].spell.ticks", "print reactors[0].spell.max"], load=False)
    ticks, most = (int(g[c].split("=")[1]) for c in ("print reactors[0].spell.ticks", "print reactors[0].spell.max"))
    return ticks / most


def sleeps(t):
    return t.call("framework_get_reactors", detail=True)["reactors"][0]["sleeps"]


def test_how_long_a_tcp_targets_reactor_polls_follows_its_host():
    with TcpTarget() as t:
        t.add_malloc("M0")
        t.add_ns("M0")
        with Queue() as admin:
            admin.enable()
            with Queue(qid=1, cntlid=admin.cntlid) as q:
                def rarely():
                    for _ in range(8):
                        wait_for(lambda before=sleeps(t): sleeps(t) >= before + 2, "the reactor to sleep")  # asking wakes it
                        check(q.read(0, 8).status == 0, "read")
                    return True

                def again_and_again():
                    return all(q.read(0, 8).status == 0 for _ in range(300))

                for _ in range(2):
                    wait_for(lambda: rarely() and spell(t) < 1 / 15, "the least spell", SLOW)
                    wait_for(lambda: again_and_again() and spell(t) > 1 / 9, "a longer spell", SLOW)


def test_a_gcore():
    with start() as t, verifying(t, 1, "-t", "3600", "-q", "8") as busy:
        for _ in hang(t, busy):
            facts = Facts(t)
            core = t.folder / f"core.{t.pid}"
            subprocess.run(["gcore", "-o", t.folder / "core", str(t.pid)], check=True, capture_output=True, timeout=SLOW)
            size = core.stat().st_blocks * 512
            check(size < 1 << 30, f"the core has {size >> 20} MB")
            t.trace_file.unlink()   # the core alone has to do
            look(facts, VARVE, core)
            check_macros(TOP / "scripts", VARVE, core)


def test_macros_without_their_folder_say_so():
    with Daemon() as t:
        alone = t.folder / "gdb_macros.py"
        alone.write_text((TOP / "tools/gdb/gdb_macros.py").read_text())
        g = Gdb("-p", t.pid, commands=[macros(t.folder), "spdk_load_macros"], load=False)
        check(f"{t.folder}/varve.py is not there: gdb_macros.py needs the whole folder" in g.errors, g.errors)


def core_of(t, number):
    """Of a daemon that died; None if this system puts cores elsewhere."""
    if pathlib.Path("/proc/sys/kernel/core_pattern").read_text()[0] in "|/" or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        return None
    t.process.send_signal(number)
    t.process.wait(SLOW)
    return next(t.folder.glob("core*"), None)


def test_the_core_of_an_abort():
    with start() as t, verifying(t, 1, "-t", "3600", "-q", "8") as busy:
        for _ in hang(t, busy):
            facts = Facts(t)
            core = core_of(t, signal.SIGABRT)
            if core is None:
                print("SKIP core_pattern sends cores elsewhere")
                return
            file_says = events_of(t.trace_file)
            t.trace_file.unlink()
            text, g = look(facts, VARVE, core)
            check("FOUND: it crashed: SIGABRT" in text and "ages as of the crash" in text, text)
            names = re.findall(r"^\S+ +\d+ +[\d.]+  (\S+)", g["varve_trace 20"], re.M)
            check(names == [name for _, name in file_says[-20:]], f"{names}\n{file_says[-20:]}")
            check_save(t, core, file_says)
            check_stripped(t, core)


def events_of(path):
    """(tsc, tracepoint) of a trace file's events."""
    p = subprocess.run([BUILD / "bin" / "varve-trace", "-j", "-f", path], capture_output=True, text=True, timeout=SLOW)
    check(p.returncode == 0, p.stderr)
    trace = json.loads(p.stdout)
    names = {x["id"]: x["name"] for x in trace["tpoints"]}
    return [(e["tsc"], names[e["tpoint"]]) for e in trace["entries"]]


def check_save(t, core, file_says):
    """The recorder's memory out of the core is the file that was lost."""
    saved = t.folder / "saved"
    command = f"varve_trace save {saved}"
    g = Gdb(VARVE, core, commands=[command])
    check("Read it with: varve-trace -f" in g.all, g.all)
    check(events_of(saved) == file_says, "the saved file has other events")
    check("File exists" in Gdb(VARVE, core, commands=[command]).errors, "it wrote over a file")


def check_stripped(t, core):
    stripped = t.folder / "varve-stripped"
    subprocess.run(["strip", "-s", "-o", stripped, VARVE], check=True)
    g = Gdb(stripped, core, commands=COMMANDS + STOCK)
    for c in COMMANDS + STOCK:
        check(g[c] == "", f"{c} said {g[c]}")
    check(g.errors.count("has no debug information (it is stripped, or not varve)") == len(COMMANDS + STOCK), g.errors)
    build = subprocess.run([VARVE, "--version"], capture_output=True, text=True).stdout
    check(re.search(r"with build id ([0-9a-f]+)", g.errors)[1] in build, g.errors)


def test_wrong_arguments_and_nothing_to_look_at_are_said_so():
    with Daemon() as t:
        wrong = {"varve_find_bdev": "Usage: varve_find_bdev SUBSTRING", "varve_find_bdev zz": "No bdev has \"zz\"",
                 "varve_bdev_io 0": "ADDR is NULL", "varve_bdev_io 0x1234": "wild pointer 0x1234",
                 "varve_bdev_io nosuch": "\"nosuch\" is no address", "varve_bdev_io 0x7000": "not in this process",
                 "varve_subsystem zz": "No subsystem's NQN contains", "varve_doctor x": "no number of seconds",
                 "varve_print_bdevs x": "Usage: varve_print_bdevs", "varve_trace 1 2 3": "is no address"}
        g = Gdb("-p", t.pid, commands=list(wrong))
        for command, why in wrong.items():
            check(why in g.errors, f"{command}: {why} is not in\n{g.errors}")
    g = Gdb(VARVE)
    check(g.errors.count("There is no process and no core") == len(COMMANDS), g.errors)
    g = Gdb()
    check(g.errors.count("No program is loaded") == len(COMMANDS), g.errors)


DAMAGE = {
    "a list that loops": "set var ((struct thread *)$first)->link.tqe_next = (struct thread *)$first",
    "a wild pointer": "set var ((struct thread *)$first)->channels.tqh_first = (struct io_channel *)0x4141414141414141",
    "an unmapped pointer": "set var 'bdev/bdev.c'::bdevs.tqh_first->bdev = (struct bdev *)0x7f00dead0000",
    "a name that is no text": "set var 'bdev/bdev.c'::bdevs.tqh_first->bdev->name = (char *)8",
    "a count beyond reason": "set var 'nvmf/tgt.c'::tgts.tqh_first->max_subsystems = 0xffffffff",
    "no reactors where there were": "set var 'thread/reactor.c'::reactor_count = 0x7fffffff",
    "a damaged recorder": "set var trace_state.map.size = 1 << 20",
    "a state that is none": "set var 'nvmf/tgt.c'::tgts.tqh_first->subsystems[0]->state = 77",
}


def test_damaged_memory_gives_errors_and_no_endless_loop():
    for what, how in DAMAGE.items():
        with Daemon("-e", "rpc") as t:
            t.call("bdev_malloc_create", name="M0", block_size=512, num_blocks=2048)
            g = Gdb("-p", t.pid, commands=["set var $first = 'thread/thread.c'::threads.tqh_first", how, *COMMANDS, "kill"])
            said = g.all[g.all.index("== varve_print_bdevs"):]
            check(re.search(r"error: |^varve_\w+: |memory is damaged|no such state|makes no sense", said, re.M), f"{what}: {said[-3000:]}")
            check("end" in g.all.rsplit("== ", 1)[1], f"{what}: {g.all[-2000:]}")


def damage_under_io(hung):
    """Of a daemon with hung commands: (what, the address of what is overwritten, with which bytes or expression, which command must complain,
    with which words)."""
    request = f"((struct nvmf_request *){hung['object']})"
    qpair, view, channel, io = f"{request}->qpair", f"{request}->ns_view", f"{request}->bdev_io.ch", f"(&{request}->bdev_io)"
    requests = f"{qpair}->requests"
    wild, unmapped = b"A" * 8, struct.pack("<Q", 0x7f00dead0000)
    drill = f"varve_bdev_io {io}"
    return [
        ("queue pair: a state that is none", f"&{qpair}->state", b"\x4d", "varve_doctor 1", "is in state 77 (no such state)"),
        ("queue pair: a list that loops", f"&{qpair}->group_link.tqe_next", qpair, "varve_qpairs", "queue pairs of a poll group: after "),
        ("queue pair: a wild transport", f"&{qpair}->transport", wild, "varve_inflight", "a queue pair's transport is the wild pointer"),
        ("queue pair: an unmapped view", f"&{qpair}->view", unmapped, "varve_qpairs", "at 0x7f00dead0000 are not in this process or core"),
        ("queue pair: wild requests", f"&{requests}", wild, "varve_inflight", "a queue pair's array of requests is the wild pointer"),
        ("requests: a wild array", f"&{requests}->first", wild, "varve_inflight", "the array of requests is the wild pointer"),
        ("requests: too many", f"&{requests}->count", b"\xff\xff\xff\x7f", "varve_inflight", "error: there cannot be 2147483647 requests"),
        ("requests: of no size", f"&{requests}->stride", bytes(4), "varve_inflight", "requests of 0 bytes"),
        ("request: a place that is none", f"&{request}->where", b"\x4d", "varve_inflight", "77 (no such state)"),
        ("request: a wild command", f"&{request}->sqe", wild, "varve_inflight", "a request's command is the wild pointer"),
        ("request: a wild namespace", f"&{request}->ns_view", wild, "varve_inflight", "a request's namespace is the wild pointer"),
        ("namespace: an unmapped channel", f"&{view}->ch", unmapped, "varve_inflight", "at 0x7f00dead0000 are not in this process or core"),
        ("controller: a state that is none", f"&{qpair}->ctrlr->state", struct.pack("<I", 77), f"varve_subsystem {NQN}", "77 (no such state)"),
        ("controller: a list that loops", f"&{qpair}->ctrlr->link.tqe_next", f"{qpair}->ctrlr", f"varve_subsystem {NQN}", f"controllers of {NQN}: after "),
        ("controller: a wild list", f"&{qpair}->ctrlr->link.tqe_next", wild, "varve_print_nvmf_subsystems", f"controllers of {NQN}: element "),
        ("channel: another count", f"&{channel}->qd", struct.pack("<I", 7), "varve_doctor 1", "bdev EE_M1 counts 7 I/Os in flight on "),
        ("channel: a wild thread", f"&{channel}->thread", wild, "varve_find_bdev M", "a bdev channel's thread is the wild pointer"),
        ("channel: a wild list of I/O", f"&{channel}->inflight.tqh_first", wild, "varve_inflight", "I/O in flight on "),
        ("channel: a wild bdev", f"&{channel}->bdev", wild, drill, "its bdev is the wild pointer"),
        ("I/O: a state that is none", f"&{io}->state", b"\x4d", drill, "state 77 (no such state)"),
    ]


def test_damage_of_queue_pairs_requests_controllers_and_channels():
    with start() as t, verifying(t, 1, "-t", "3600", "-q", "8") as busy:
        for _ in hang(t, busy):
            check_damage_under_io(Facts(t).hung[0], Core(t))


def check_damage_under_io(hung, core):
    cases = damage_under_io(hung)
    values = core.evaluate([e for _, where, what, _, _ in cases for e in (where, what) if isinstance(e, str)])
    for name, where, what, command, words in cases:
        with core.overwritten(values[where], struct.pack("<Q", values[what]) if isinstance(what, str) else what):
            g = Gdb(VARVE, core.path, commands=dict.fromkeys(["varve_inflight", command]))
        said = g[command] + g.errors
        check(words in said, f"{name}: {command} does not complain of it:\n{said[-2000:]}")
        check("Outstanding: " in g["varve_inflight"], f"{name}: varve_inflight gave up:\n{g.all[-2000:]}")


def test_the_binary_loads_the_commands_by_itself():
    safe = BUILD / "bin"
    p = subprocess.run(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", f"add-auto-load-safe-path {safe}",
                        "-ex", "varve_print_bdevs", VARVE], capture_output=True, text=True, timeout=SLOW, stdin=subprocess.DEVNULL)
    check("There is no process and no core" in p.stderr, p.stderr)


if __name__ == "__main__":
    main(sys.modules[__name__])
