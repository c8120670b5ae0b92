#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: etcd
# limit: 600
# beside
"""varve-cluster with a real etcd: two gateways own two groups of namespaces, whatever dies, stops or is cut off; a host with paths to both does
verified I/O all the time. Never do both gateways own a group."""
import contextlib
import io
import json
import pathlib
import signal
import subprocess
import sys
import tempfile

from appliance_lib import DEADLINE, Failure, check, main, wait_for
from cluster_lib import CLUSTER, Gateway, Wire, hosts_at_work, scene, status, tell
from nvmf_lib import NQN, NUM_CPUS, PORT, Target

sys.dont_write_bytecode = True
sys.path.insert(0, str(CLUSTER.parent))
from varve_cluster import main as program  # noqa: E402
from varve_cluster.etcd import Etcd  # noqa: E402
from varve_cluster.state import decode_state  # noqa: E402


def test_groups_are_balanced_moved_and_handed_over_in_a_rolling_restart():
    with scene() as s:
        s.wait_settled()
        with hosts_at_work(s) as work:
            wait_for(lambda: [sorted(g["owner"] for g in status(s)["groups"].values() if g["alive"])] == [["a", "b"]], s.account)
            p = tell(s.etcd, "status")
            check(p.returncode == 0 and "1 to 1000" in p.stdout, p.stdout + p.stderr)
            check('masked_oncs=["reservs"]' in s.gateways[0].agent_log(), s.gateways[0].agent_log())
            for name in ("a", "b", "a"):
                check(tell(s.etcd, "move", "1", name).returncode == 0, "move")
                wait_for(lambda name=name: status(s)["groups"]["1"] | {"token": 0} == {"owner": name, "token": 0, "alive": True, "wanted_on": name}
                         and 1 in s.gateways["ab".index(name)].owned(), s.account)
                work()
            check(tell(s.etcd, "move", "1", "any").returncode == 0 and "wanted_on" not in status(s)["groups"]["1"], "anywhere")
            # both on one, although that is not even
            for n in ("1", "2"):
                check(tell(s.etcd, "move", n, "b").returncode == 0, "move")
            s.wait_owned_by(s.gateways[1])
            work()
            for n in ("1", "2"):
                check(tell(s.etcd, "move", n, "any").returncode == 0, "move")
            s.wait_settled()
            for words in (("move", "7", "a"), ("move", "1", "nobody")):
                p = tell(s.etcd, *words)
                check(p.returncode == 1 and words[1 if words[1] == "7" else 2] in p.stderr, p.stderr)
            for i in (0, 1):
                s.gateways[i].end_agent()
                s.wait_owned_by(s.gateways[1 - i])
                work()
                s.gateways[i].stop()
                s.again(i)
                s.wait_settled()
                work()


def test_a_gateway_that_is_killed_and_comes_back():
    with scene() as s:
        s.wait_settled()
        with hosts_at_work(s) as work:
            for i in (0, 1):
                s.gateways[i].kill()
                s.wait_owned_by(s.gateways[1 - i])
                work()
                s.again(i)
                s.wait_settled()
                work()


def test_a_lease_that_etcd_ends_too_early():
    """As a leader does that was stopped, and does not know that there is another one. Nobody takes the groups before their gateway has ceased to serve."""
    with scene() as s:
        s.wait_settled()
        a, b = s.gateways
        n, = a.owned()
        one = Etcd({"endpoints": s.etcd.endpoints()}, DEADLINE)

        def revoke():
            one.revoke(decode_state(one.entries("/varve/test/")).gateways["a"].lease)

        def group():
            return status(s)["groups"][str(n)]
        with hosts_at_work(s) as work:
            before = group()
            revoke()
            wait_for(lambda: "the lease has ended in etcd" in a.agent_log() and a.owned() == {n} and group()["alive"], s.account)
            check(group() == before | {"token": before["token"] + 1}, f"it has gone to another gateway: {s.account()}")
            work()
            a.agent.send_signal(signal.SIGSTOP)
            revoke()
            wait_for(lambda: group()["owner"] == "b", s.account)
            owners = {o["name"]: o for o in a.call("bdev_get_owners")}
            check(owners[f"F{n}"]["state"] != "owner" or owners[f"F{n}"]["lease_us"] <= 0, owners)
            s.wait_owned_by(b)
            work()
            a.agent.send_signal(signal.SIGCONT)
            s.wait_settled()
            work()


def test_a_gateway_that_is_stopped_beyond_its_lease():
    with scene() as s:
        s.wait_settled()
        with hosts_at_work(s) as work:
            a, b = s.gateways
            # the program alone: the daemon ends by itself
            a.agent.send_signal(signal.SIGSTOP)
            s.wait_owned_by(b)
            check(a.owned() == set(), a.owned())
            work()
            a.agent.send_signal(signal.SIGCONT)
            s.wait_settled()
            # both: a file's lock cannot be broken, so the group waits, and says for what
            a.pause()
            wait_for(lambda: any("in use by process" in g.get("waits", "") for g in status(s)["groups"].values()), s.account)
            a.go_on()
            s.wait_settled()
            work()


def test_a_gateway_that_is_cut_off_from_etcd_stops_when_its_lease_ends():
    with scene() as s:
        s.wait_settled()
        with hosts_at_work(s) as work:
            a, b = s.gateways
            a.wire.cut = True
            s.wait_owned_by(b)
            check(a.owned() == set(), a.owned())
            work()
            a.wire.cut = False
            s.wait_settled()
            work()


def test_etcd_is_restarted():
    with scene() as s:
        s.wait_settled()
        with hosts_at_work(s) as work:
            s.etcd.stop()
            s.etcd.start()
            s.wait_settled()
            work()
            # for longer than a lease: nobody serves, and then all is as before
            s.etcd.stop()
            wait_for(lambda: not any(g.owned() for g in s.gateways), s.account)
            s.etcd.start()
            s.wait_settled()
            work()
            for g in s.gateways:
                wait_for(lambda g=g: "etcd cannot be watched" in g.agent_log() and "etcd is watched again" in g.agent_log(), g.agent_log)


def test_an_etcd_that_cannot_be_watched():
    Wire.refused = b"/v3/watch"
    try:
        with scene() as s:
            s.wait_settled()
            for g in s.gateways:
                wait_for(lambda g=g: "etcd cannot be watched" in g.agent_log(), g.agent_log)
            for i in (0, 1, 0):
                check(tell(s.etcd, "move", "1", "ab"[i]).returncode == 0, "move")
                wait_for(lambda i=i: 1 in s.gateways[i].owned(), s.account)
            check(not any("watched again" in g.agent_log() for g in s.gateways), s.account())
    finally:
        Wire.refused = None


def told_of(gateway):
    return {int(r["address"]["trsvcid"]) for r in gateway.call("nvmf_discovery_get_referrals")}


def test_hosts_find_all_gateways_by_asking_one():
    with scene() as s, Target(cores=f"[{NUM_CPUS - 1}]", port=PORT + 10, trtype="TCP") as front:
        a, b = s.gateways
        wait_for(lambda: told_of(a) == {b.port} and told_of(b) == {a.port}, s.account)
        front.call("bdev_nvme_start_discovery", name="d", ctrlr_loss_timeout_sec=-1, reconnect_delay_sec=1, **a.listen_address())
        wait_for(lambda: {c["trid"]["trsvcid"] for n in front.call("bdev_nvme_get_controllers") for c in n["ctrlrs"]} == {str(a.port), str(b.port)},
                 lambda: front.call("bdev_nvme_get_controllers"))
        c = Gateway(2, s.folder, s.etcd)
        try:
            wait_for(lambda: told_of(a) == {b.port, c.port} and told_of(c) == {a.port, b.port}, s.account)
        finally:
            c.__exit__()
        check(told_of(a) == {b.port, c.port}, "it may come back")


def test_listeners_that_were_made_inaccessible_are_optimized_again():
    with scene() as s:
        s.wait_settled()
        a = s.gateways[0]
        a.call("nvmf_subsystem_listener_set_ana_state", nqn=NQN, listen_address=a.listen_address(), ana_state="inaccessible")
        wait_for(lambda: {x["ana_group"] for x in a.call("nvmf_subsystem_get_listeners", nqn=NQN)[0]["ana_states"] if x["ana_state"] == "optimized"}
                 == a.owned() != set(), s.account)
        s.wait_settled()


def test_gateways_that_do_not_fit_are_refused():
    with scene() as s:
        s.wait_settled()
        c = Gateway(2, s.folder, s.etcd)
        try:
            wait_for(lambda: 2 in c.owned() or 1 in c.owned() or "c" in status(s)["gateways"], c.agent_log)
            c.end_agent()
            c.call("nvmf_delete_subsystem", nqn=NQN)
            c.add_subsystem(NQN, listen=False, ana_reporting=True, max_namespaces=8, min_cntlid=900, max_cntlid=950)
            c.start_agent()
            check(c.agent.wait(DEADLINE) == 1 and "min_cntlid" in c.agent_log() and "1 to 1000" in c.agent_log(), c.agent_log())
        finally:
            c.__exit__()


def test_wrong_configurations_name_the_field():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "c"
        good = {"cluster": "t", "gateway": "a", "nqn": "n", "etcd": {"endpoints": ["http://127.0.0.1:1"]}}
        for change, word in (({"cluster": ""}, "cluster"), ({"gateway": "a/b"}, "gateway"), ({"lease_s": 1}, "lease_s"), ({"lease_s": True}, "lease_s"),
                             ({"etcd": {}}, "etcd.endpoints"), ({"etcd": {"endpoints": ["ftp://x"]}}, "etcd.endpoints"), ({"nqn": None}, "nqn"),
                             ({"etcd": {"endpoints": ["http://x"], "cacert": "x"}}, "etcd.cacert"), ({"leases": 1}, "leases")):
            path.write_text("/* a comment */ " + json.dumps({**good, **change}))
            p = subprocess.run([sys.executable, CLUSTER, "-c", path, "status"], capture_output=True, text=True, timeout=DEADLINE, check=False)
            check(p.returncode == 1 and word in p.stderr and "Traceback" not in p.stderr, p.stderr)


def test_what_was_probably_meant_is_named():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "c"
        good = {"cluster": "t", "gateway": "a", "nqn": "n", "etcd": {"endpoints": ["http://127.0.0.1:1"]}}
        path.write_text(json.dumps(good))
        for words, name in ((["statsu"], "status"), (["status", "--jsno"], "--json"), (["--confg=x", "status"], "--config")):
            p = subprocess.run([sys.executable, CLUSTER, *words], capture_output=True, text=True, timeout=DEADLINE, check=False)
            check(p.returncode == 2 and f'did you mean "{name}"?' in p.stderr, p.stderr)
        for change, name in (({"leases": 1}, "lease_s"), ({"etcd": {**good["etcd"], "endpoint": 1}}, "endpoints"), ({"rpcsocket": "x"}, "rpc_socket")):
            path.write_text(json.dumps({**good, **change}))
            p = subprocess.run([sys.executable, CLUSTER, "-c", path, "status"], capture_output=True, text=True, timeout=DEADLINE, check=False)
            check(p.returncode == 1 and f'did you mean "{name}"?' in p.stderr, p.stderr)


def refused(parser, *words):
    """What it says on standard error."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            program.parse(parser, list(words))
    except SystemExit as e:
        check(e.code == 2, e.code)
        return said.getvalue()
    raise Failure(f"{words} are taken")


def test_options_that_are_added_later_are_named_too():
    parser = program.parser()
    parser.add_argument("--timeout")
    o = program.parse(parser, ["--timeout", "1", "status"])
    o.parser.add_argument("--limit")
    for words, name in ((["--tmieout=1", "status"], "--timeout"), (["status", "--tmieout=1"], "--timeout"), (["status", "--lmiit=1"], "--limit")):
        said = refused(parser, *words)
        check(f'did you mean "{name}"?' in said, said)
    said = refused(parser, "serve", "--lmiit=1")
    check("did you mean" not in said, f"of another word: {said}")


if __name__ == "__main__":
    main(sys.modules[__name__])
