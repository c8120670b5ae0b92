#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""Triggers: something goes wrong, and a file says what."""
import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys

from appliance_lib import BUILD, DEADLINE, Daemon, check, main, wait_for
from nvmf_lib import HOSTNQN, NQN, Host, Target

TRACE = BUILD / "bin" / "varve-trace"
SLOWLY = ("--rate", "50")   # so that a ring of 4096 entries holds some seconds: the copy begins when the control thread has its turn
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


class BlackBox(Target):
    """A target that records everything and keeps its black box's files in a folder of its own."""

    def __init__(self, *options):
        super().__init__("-e", "bdev,nvmf,nvmf_rdma", "--num-trace-entries", "4096", *options)
        self.box = self.folder / "box"
        self.box.mkdir()
        self.call("trace_set_blackbox", directory=str(self.box), max_files=3)

    def trigger(self, name):
        return next(t for t in self.call("trace_get_triggers")["triggers"] if t["name"] == name)

    def wait_fired(self, name, file=True, more_than=0):
        def fired():
            t = self.trigger(name)
            return t if t["fired"] > more_than and (t["last_file"] or not file) else None
        return wait_for(fired, f"the trigger {name}")

    def files(self):
        return sorted(f.name for f in self.box.iterdir())


@contextlib.contextmanager
def busy_host(t, *args, nsid=1, until=None, **kwargs):
    """A host that has done some I/O, or something else."""
    with Host(t, "-w", "randread", "-t", "3600", *args, nsid=nsid, **kwargs) as h:
        before = t.groups("completed_nvme_io")
        done = until or (lambda: t.groups("completed_nvme_io") >= before + 20)
        wait_for(lambda: not h.is_running() or done(), "some I/O")
        check(h.is_running(), f"{h.errors.read_text()}\nthe target:\n{t.log()[-4000:]}")
        yield h


def reads_in_flight(t):
    return [f for f in t.call("nvmf_get_inflight", min_age_us=1000) if f["command"] == "read"]


def inject(t):
    t.call("bdev_error_inject_error", name="EE_M0", io_type="read", error_type="failure", num=1)


def read(path, *options):
    p = subprocess.run([TRACE, "-f", path, *options], capture_output=True, text=True, timeout=DEADLINE)
    check(p.returncode == 0 and "warning" not in p.stderr, p.stderr)
    return p.stdout


def page_of(path, page):
    read(path, "--html", page)
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.S)[1])


def cause_of(path):
    return json.loads(read(path, "-j"))["cause"]


def check_marked(path, word):
    """The culprit is named at the top, and its events, of which some have that word, are marked: in the text and in JSON."""
    text = read(path)
    marked = [x for x in text.splitlines() if x.endswith("<== culprit")]
    check("Culprit: " in text and any(word in x for x in marked), f"{text[:1200]}\n{marked[-3:]}")
    check(len([e for e in json.loads(read(path, "-j"))["entries"] if e.get("culprit")]) == len(marked), "other marks in JSON")


def test_the_beginning_of_a_request_that_is_older_than_the_rings_are_long_is_kept():
    with BlackBox() as t:
        t.add_malloc("M0")
        t.call("bdev_delay_create", base_bdev_name="M0", name="D0", avg_read_latency=4000000, p99_read_latency=4000000,
               avg_write_latency=0, p99_write_latency=0)
        t.add_ns("D0", nsid=1)
        t.add_malloc("M1")
        t.add_ns("M1", nsid=2)
        # The rings cover about 0.5 s: less than the limit, and more than a busy machine keeps the control thread waiting.
        with busy_host(t, "-q", "4", "--rate", "600", nsid=2):
            wait_for(lambda: t.call("trace_get_triggers").get("ring_us", 1 << 62) < 1000000, "the rings to be short")
            t.call("trace_set_trigger", name="slow", type="request_age", limit_us=2000000)
            wait_for(lambda: re.search(r"trigger slow: the trace rings cover about \d+ ms at the present rate, less than the limit of 2000 ms", t.log()),
                     "a warning")
            with busy_host(t, "-q", "1", until=lambda: reads_in_flight(t)):
                path = t.wait_fired("slow")["last_file"]
        text = read(path)
        culprit = text.split("Culprit: ")[1].split(";")[0]
        life = read(path, "--life", culprit)
        check("RDMA_REQ_NEW" in life and "RDMA_REQ_EXECUTING" in life and "BDEV_IO_START" in life and "kept" in text, f"{text[:1500]}\n{life}")
        marked = [x for x in text.splitlines() if x.endswith("<== culprit")]
        check(len(marked) == len(set(marked)), marked)
        page = page_of(path, t.folder / "page.html")
        check(page["lives"][page["cause_life"]][1] == int(culprit[1:]), culprit)
        for export in ("--perfetto", "--ctf"):
            read(path, export, t.folder / export.strip("-"))
        slowest = read(path, "--slowest", "1", "--unfinished")
        check("RDMA_REQ_NEW" in slowest and read(path, "--summary"), slowest)
        t.stop_clean("black box")


def test_a_request_that_is_too_old_is_kept_with_its_history():
    with BlackBox() as t:
        t.add_malloc("M0")
        t.call("bdev_delay_create", base_bdev_name="M0", name="D0", avg_read_latency=4000000, p99_read_latency=4000000,
               avg_write_latency=0, p99_write_latency=0)
        t.add_ns("D0", nsid=1)
        t.call("trace_set_trigger", name="never", type="request_age", limit_us=86400000000)
        with busy_host(t, "-q", "2", until=lambda: reads_in_flight(t)):
            t.call("trace_set_trigger", name="slow", type="request_age", limit_us=2000000)
            slow = t.wait_fired("slow")
            check(HOSTNQN in slow["last_cause"] and "waits for" in slow["last_cause"], slow)
            path = slow["last_file"]
            check(os.path.basename(path).endswith(f".request_age.pid{t.pid}"), path)
            check(t.trigger("never")["fired"] == 0, "a limit that was not reached")
            events = t.call("notify_get_notifications", all=True)
            told = [e for e in events if e["type"] == "trace_trigger"]
            check(told and told[0]["ctx"].startswith("slow request_age outstanding for "), events)
            text = read(path)
            check("Black box: trigger slow (request_age) at 20" in text and f"Cause: {slow['last_cause']}" in text, text[:1500])
            marked = [x for x in text.splitlines() if x.endswith("<== culprit")]
            check(any("RDMA_REQ_NEW" in x for x in marked) and any("RDMA_REQ_EXECUTING" in x for x in marked), marked)
            culprit = text.split("Culprit: ")[1].split(";")[0]
            check(all(f" {culprit} " in x for x in marked), (culprit, marked))
            check("BDEV_IO_START" in read(path, "--life", culprit), "what was done for it")
            trace = json.loads(read(path, "-j"))
            cause = trace["cause"]
            check(cause["trigger"] == "slow" and cause["type"] == "request_age" and cause["owner"] == HOSTNQN, cause)
            check(cause["measured"] >= cause["limit"] > 0 and cause["state"], cause)
            check([e for e in trace["entries"] if e.get("culprit")], "marked in JSON")
            check(trace["app"]["state"] == "running" and f"process {t.pid} (running)" in text, (trace["app"], text[:300]))
            page = page_of(path, t.folder / "page.html")
            check(page["cause"]["text"] == slow["last_cause"] and page["cause"]["trigger"] == "slow" and "(running)" in page["title"], page["cause"])
            check(page["cause_when"].startswith("20") and page["cause_ns"] > 0 and "crash" not in page, page["title"])
            check(page["lives"][page["cause_life"]][1] == int(culprit[1:]), (culprit, page["cause_life"]))
        t.stop_clean("black box")
        check(json.loads(read(path, "-j"))["app"]["state"] == "gone", "the process has ended, but not in this copy")


def test_a_state_that_lasts_too_long_fires_for_that_state_only():
    with BlackBox() as t:
        t.add_malloc("M0")
        t.call("bdev_delay_create", base_bdev_name="M0", name="D0", avg_read_latency=500000, p99_read_latency=500000,
               avg_write_latency=0, p99_write_latency=0)
        t.add_ns("D0", nsid=1)
        with busy_host(t, "-q", "2", until=lambda: reads_in_flight(t)):
            state = wait_for(lambda: reads_in_flight(t), "a read in flight")[0]["state"]
            t.call("trace_set_trigger", name="other", type="state_age", limit_us=100000, state="PAUSED")
            t.call("trace_set_trigger", name="state", type="state_age", limit_us=100000, state=state, action="notify")
            fired = t.wait_fired("state", file=False)
            check("in one state" in fired["last_cause"] and fired["last_file"] is None, fired)
            check(t.trigger("other")["fired"] == 0 and t.files() == [], t.files())
            t.call("trace_set_trigger", name="kept", type="state_age", limit_us=100000, state=state)
            path = t.wait_fired("kept")["last_file"]
            check(cause_of(path)["type"] == "state_age" and cause_of(path)["state"] == state and cause_of(path)["owner"] == HOSTNQN, cause_of(path))
            check_marked(path, "RDMA_REQ_EXECUTING")


def test_an_io_error_names_the_io():
    with BlackBox() as t:
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.add_ns("EE_M0", nsid=1)
        t.call("trace_set_trigger", name="errors", type="io_error", holdoff_us=0)
        with busy_host(t, "-q", "4", *SLOWLY):
            check(t.trigger("errors")["fired"] == 0, "nothing has failed yet")
            inject(t)
            fired = t.wait_fired("errors")
            check("EE_M0: read of" in fired["last_cause"] and "failed with status" in fired["last_cause"], fired)
            cause = cause_of(fired["last_file"])
            check(cause["type"] == "io_error" and cause["status"] != 0 and cause["owner"] == "EE_M0", cause)
            marked = [x for x in read(fired["last_file"]).splitlines() if x.endswith("<== culprit")]
            check(any("BDEV_IO_START" in x for x in marked) and any("BDEV_IO_DONE" in x for x in marked), marked)


def test_files_are_few_and_the_oldest_go():
    with BlackBox() as t:
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.add_ns("EE_M0", nsid=1)
        t.call("trace_set_trigger", name="errors", type="io_error", holdoff_us=0)
        seen = []
        for n in range(5):
            with busy_host(t, "-q", "1", *SLOWLY):
                inject(t)
                seen.append(os.path.basename(t.wait_fired("errors", more_than=n)["last_file"]))
        check(seen == sorted(seen) and len(set(seen)) == 5, seen)
        check(t.files() == seen[-3:], (t.files(), seen))
        t.call("trace_set_blackbox", directory=str(t.box), max_bytes=1000)
        before = t.call("trace_get_triggers")["copies_failed"]
        t.call("trace_set_trigger", name="more", type="io_error", holdoff_us=0)
        t.call("trace_remove_trigger", name="errors")
        with busy_host(t, "-q", "1", *SLOWLY):
            inject(t)
            t.wait_fired("more", file=False)
        check(t.call("trace_get_triggers")["copies_failed"] == before + 1 and t.files() == seen[-3:], "too little room")


def test_freezing_stops_recording():
    with BlackBox() as t:
        t.add_malloc("M0")
        t.call("bdev_error_create", base_name="M0")
        t.add_ns("EE_M0", nsid=1)
        t.call("trace_set_trigger", name="errors", type="io_error", action="freeze")
        with busy_host(t, "-q", "1", *SLOWLY):
            inject(t)
            fired = t.wait_fired("errors")
            check(t.call("trace_get_triggers")["frozen"] is True, "frozen")
            check(int(t.call("trace_get_info")["tpoint_group_mask"], 16) == 0, "nothing is on")
            check("<== culprit" in read(fired["last_file"]), "the culprit is in the copy")
            t.call("trace_enable_tpoint_group", name="bdev")
            check(t.call("trace_get_triggers")["frozen"] is False, "recording again")


def test_a_host_that_is_killed_and_one_that_falls_silent():
    with BlackBox() as t:
        t.add_malloc("M0")
        t.add_malloc("M1")
        t.add_ns("M0", nsid=1)
        t.add_ns("M1", nsid=2)
        t.call("trace_set_trigger", name="broken", type="qpair_error", holdoff_us=0)
        t.call("trace_set_trigger", name="silent", type="keep_alive_loss")
        with busy_host(t, "-q", "4") as h:
            h.stop()
        t.wait_empty()
        good_byes = t.trigger("broken")
        check(good_byes["fired"] == 0 or HOSTNQN not in good_byes["last_cause"] or "retry" in good_byes["last_cause"], good_byes)
        with busy_host(t, "-q", "4", hostnqn=NQN + ":killed") as h:
            h.kill()
            fired = wait_for(lambda: (lambda x: x if x["fired"] and ":killed" in x["last_cause"] and x["last_file"] else None)
                             (t.trigger("broken")), "the trigger broken")
            check(NQN + ":killed" in fired["last_cause"], fired)
            check(cause_of(fired["last_file"])["owner"] == NQN + ":killed", fired)
            check_marked(fired["last_file"], NQN + ":killed")
        with busy_host(t, "-q", "4", "--kato", "5000", hostnqn=NQN + ":frozen", nsid=2) as h:
            h.process.send_signal(signal.SIGSTOP)
            fired = t.wait_fired("silent")
            check(NQN + ":frozen" in fired["last_cause"] and "keep-alive" in fired["last_cause"], fired)
            check_marked(fired["last_file"], NQN + ":frozen")
            h.kill()


def ptrace(request, tid, data=0):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    return 0 if libc.ptrace(request, tid, None, data) == 0 else ctypes.get_errno()


def test_a_reactor_that_does_not_poll_is_named():
    """A tracer holds one thread of the process; the control thread waits for it, and tells all the same."""
    with BlackBox("--poll-mode", "busy") as t:
        t.call("trace_set_trigger", name="stall", type="reactor_stall", limit_us=5000000)
        tid = t.call("framework_get_reactors")["reactors"][0]["tid"]
        check(t.trigger("stall")["fired"] == 0, t.trigger("stall"))
        why = ptrace(PTRACE_SEIZE, tid)
        if why:
            print(f"SKIP blackbox.a_reactor_that_does_not_poll: this machine allows no ptrace: {os.strerror(why)}")
            return
        try:
            check(ptrace(PTRACE_INTERRUPT, tid) == 0, "ptrace")
            os.waitpid(tid, 0x40000000)     # __WALL
            waiting = t.client()
            waiting.send({"jsonrpc": "2.0", "id": 1, "method": "thread_get_stats"})
            wait_for(t.files, "the file of the trigger")
            wait_for(lambda: [f for f in t.files() if not f.startswith(".")], "its name")
        finally:
            ptrace(PTRACE_DETACH, tid)
        stall = t.wait_fired("stall")
        check("lcore 0" in stall["last_cause"] and str(tid) in stall["last_cause"], stall)
        check("Culprit: the reactor on lcore 0" in read(stall["last_file"]), "in the file")
        waiting.close()


def test_triggers_are_saved_and_loaded():
    with BlackBox() as t:
        t.call("trace_set_trigger", name="a", type="request_age", limit_us=1000000)
        t.call("trace_set_trigger", name="b", type="state_age", limit_us=5000, state="need buffer", action="freeze", holdoff_us=7)
        t.call("trace_set_trigger", name="c", type="io_error", action="notify")
        t.call("trace_set_trigger", name="c", type="qpair_error")
        saved = t.call("framework_get_config", name="trace")
        check([e["method"] for e in saved] == ["trace_set_blackbox"] + 3 * ["trace_set_trigger"], saved)
        path = t.folder / "config.json"
        path.write_text(json.dumps({"subsystems": [{"subsystem": "trace", "config": saved}]}))
        with Daemon("-c", path) as other:
            check(other.call("framework_get_config", name="trace") == saved, saved)
            other.call("trace_remove_trigger", name="b")
            check([x["name"] for x in other.call("trace_get_triggers")["triggers"]] == ["a", "c"], "b is gone")


def test_wrong_triggers_are_refused():
    with BlackBox() as t:
        for params, word in [({"name": "x", "type": "nosuch"}, "keep_alive_loss"),
                             ({"name": "", "type": "io_error"}, "name"),
                             ({"name": "x" * 40, "type": "io_error"}, "31"),
                             ({"name": "x", "type": "request_age"}, "limit_us"),
                             ({"name": "x", "type": "request_age", "limit_us": 5}, "1000"),
                             ({"name": "x", "type": "io_error", "limit_us": 5000}, "takes none"),
                             ({"name": "x", "type": "state_age", "limit_us": 5000, "state": "exceuting"}, '"executing"'),
                             ({"name": "x", "type": "io_error", "state": "executing"}, "state_age")]:
            status, _, err = t.rpc("trace_set_trigger", *(f"{k}={v}" for k, v in params.items()))
            check(status == 1 and word in err, (params, err))
        status, _, err = t.rpc("trace_remove_trigger", "name=none")
        check(status == 1 and "none" in err, err)
        status, _, err = t.rpc("trace_set_blackbox", "directory=/no/such")
        check(status == 1 and "/no/such" in err, err)
        check(t.call("trace_get_triggers")["triggers"] == [], "none was set")


if __name__ == "__main__":
    main(sys.modules[__name__])
