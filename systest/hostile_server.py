#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 900
# sanitize
# beside
"""varve-top and varve-rpc against what listens in a daemon's place and lies: they end with a status of their own, say why, and let no control
character through to the terminal."""
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from appliance_lib import DEADLINE, VARVE_RPC, check, main
from liar_lib import LIES, WRONG, Liar, answer, answering, distortions
from top import TOP, Screen, busy_target

METHODS = ("appliance_get_state", "spdk_get_version", "framework_get_reactors", "thread_get_stats", "thread_get_pollers", "bdev_get_iostat",
           "nvmf_get_subsystems", "nvmf_get_stats", "nvmf_get_inflight", "iobuf_get_stats", "trace_get_stats", "trace_get_triggers",
           "nvmf_get_host_latencies")
DETAILED = ("framework_get_reactors", "thread_get_stats", "thread_get_pollers")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="varve-liar-") as f:
        yield pathlib.Path(f)


def truth():
    """What a daemon under I/O answers to varve-top."""
    with busy_target() as t:
        t.call("trace_set_trigger", name="errors", type="io_error")
        answers = {m: t.call(m, **({"detail": True} if m in DETAILED else {})) for m in METHODS}
        nqn = answers["nvmf_get_subsystems"][-1]["nqn"]
        for m in ("nvmf_subsystem_get_controllers", "nvmf_subsystem_get_qpairs"):
            answers[m] = t.call(m, nqn=nqn)
        answers["rpc_describe_methods"] = t.call("rpc_describe_methods")[:40]
        answers["rpc_get_methods"] = t.call("rpc_get_methods", current=True)
        answers["framework_get_subsystems"] = t.call("framework_get_subsystems")
        answers["framework_get_config"] = t.call("framework_get_config", name="bdev")
        return answers


class Seen:
    """One run of a program against a liar: it neither crashes nor lets anything through, and gives a reason for ending otherwise than well."""

    def __init__(self, lie, program, *arguments, stdin=""):
        p = subprocess.run([program, *map(str, arguments)], input=stdin.encode(), capture_output=True, timeout=3 * DEADLINE)
        self.status, self.out, self.err = p.returncode, p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace")
        said = f"{lie}: {program.name} {arguments[2:]}: {self.status}\n{self.out:.600}\n{self.err:.3000}"
        check(self.status in (0, 1, 2, 3), said)
        check(not CONTROL.search(self.out + self.err), said)
        check(self.status == 0 or self.err.startswith(program.name + ": "), said)


def top(liar, lie, *options):
    return Seen(lie, TOP, "-s", liar.path, "-d", "0.01", *options)


def rpc(liar, lie, *arguments, **kwargs):
    return Seen(lie, VARVE_RPC, "-s", liar.path, *arguments, **kwargs)


def test_a_top_that_is_told_no_answers():
    with folder() as f:
        for lie in LIES:
            with Liar(f, lie) as liar:
                for option in ("-b", "-j"):
                    check(top(liar, f"{lie!r:.60}", option).status == 3, f"{lie!r:.60} passes for a varve")


def test_a_top_that_is_told_wrong_answers():
    answers = truth()
    with folder() as f:
        with Liar(f, answering(answers)) as liar:
            o = json.loads(top(liar, "the truth", "-j").out)
            check(o["state"] == "RUNNING" and all(o[k] for k in ("reactors", "threads", "pollers", "bdevs", "hosts", "trace")), o)
        for lie, results in distortions(answers):
            with Liar(f, answering(results)) as liar:
                text, o = top(liar, lie, "-b"), top(liar, lie, "-j")
                if lie.startswith("[[[[") and text.status == 3:
                    continue            # nothing of ours is that deep
                check(text.out.count("\n") > 20, lie)
                pid = json.loads(o.out)["pid"]
                check(isinstance(pid, int) and 0 <= pid < 2**31, f"{lie}: {pid}")


def test_a_screen_that_is_told_wrong_answers():
    answers = truth()
    wrong = {f"{json.dumps(w):.40} for leaves" for w in WRONG[::3]} | {f"{json.dumps(w):.40} for leaves" for w in (1e308, "\x1b[2J\r\n\x07\x7f\u009b31m")}
    with folder() as f:
        for lie, results in distortions(answers):
            if lie not in wrong:
                continue
            with Liar(f, answering(results)) as liar, Screen("-s", liar.path, "-d", "0.1") as s:
                for key, title in (("1", "LCORE"), ("2", "MESSAGES"), ("3", "POLLER"), ("4", "BDEV"), ("6", "HOST"), ("7", "WAITS FOR"), ("9", "RING")):
                    s.key(key)
                    s.wait(title, "view")
                s.key("q")
                check(s.wait_end() == 0, f"{lie}: {s.status}")
        for lie in (b"", b"[", b"x", answer({}), None):
            with Liar(f, lie) as liar, Screen("-s", liar.path, "-d", "0.1") as s:
                s.wait("No answer")
                s.key("q")
                check(s.wait_end() == 0, f"{lie!r}: {s.status}")


CONFIG = {"subsystems": [{"subsystem": "bdev", "config": [{"method": "bdev_null_create", "params": {"name": "N0"}}]}]}


def calls(liar, lie, config):
    """Every way in which varve-rpc speaks with a daemon."""
    return [rpc(liar, lie, "spdk_get_version"), rpc(liar, lie, "-j", "spdk_get_version"), rpc(liar, lie, "thread_get_stats", "detail=true"),
            rpc(liar, lie, "thread_get_stats", "--help"), rpc(liar, lie, "--list"), rpc(liar, lie, "--markdown"),
            rpc(liar, lie, "save_config"), rpc(liar, lie, "load_config", config)]


def test_an_rpc_client_that_is_told_no_answers():
    with folder() as f:
        config = f / "config"
        config.write_text(json.dumps(CONFIG))
        for lie in LIES:
            with Liar(f, lie) as liar:
                seen = calls(liar, f"{lie!r:.60}", config)
                rpc(liar, f"{lie!r:.60}", "-", stdin='{"jsonrpc":"2.0","id":1,"method":"spdk_get_version"}')
                if b"result" not in lie:
                    check(all(s.status in (1, 3) for s in seen), f"{lie!r:.60}: {[s.status for s in seen]}")


def test_an_rpc_client_that_is_told_wrong_answers():
    answers = truth()
    with folder() as f:
        config = f / "config"
        config.write_text(json.dumps(CONFIG))
        for lie, results in distortions(answers):
            with Liar(f, answering(results)) as liar:
                calls(liar, lie, config)


def test_what_a_daemon_says_cannot_speak_to_the_terminal():
    text = "a\x1b[2J\x07b\x7fc\u009bd\u00e9\ne\tf\u202eg\u2028h\u2069"
    shown = "a\\u001b[2J\\u0007b\\u007fc\\u009bd\u00e9\ne\tf\\u202eg\\u2028h\\u2069"
    with folder() as f:
        with Liar(f, answering({"x": text, "y": {"k": text}})) as liar:
            check(rpc(liar, "text", "x").out == shown + "\n", "a string")
            check(json.loads(rpc(liar, "text", "y").out) == {"k": text}, "JSON stays what it was")
            check("no z\\u001b[31m (-32601)" in rpc(liar, "text", "z").err, "an error")
            check(json.loads(rpc(liar, "text", "-", stdin='{"id": 1, "method": "x"}').out)["result"] == text, "raw")


def test_a_daemon_that_always_waits_to_be_started():
    """load_config starts a daemon once."""
    started = []

    def lie(request):
        started.append(request["method"] == "framework_start_init")
        return answer(["framework_start_init", "bdev_null_create"] if request["method"] == "rpc_get_methods" else True)
    with folder() as f, Liar(f, lie) as liar:
        (f / "config").write_text(json.dumps(CONFIG))
        check(rpc(liar, "restarts", "load_config", f / "config").status == 0 and sum(started) == 1, started)


if __name__ == "__main__":
    main(sys.modules[__name__])
