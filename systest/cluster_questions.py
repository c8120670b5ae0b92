#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 120
# quick
# beside
"""What varve-cluster does while Ceph does not answer its questions about gateways that have gone, turn by turn, with an etcd and daemons in memory."""
import contextlib
import sys
import threading
import time
import types

from appliance_lib import DEADLINE, check, main, wait_for
from cluster_agent import PREFIX, owner, three_in_ceph
from varve_cluster import agent, daemon, state


@contextlib.contextmanager
def without_answers(gateway):
    """Ceph does not answer; when this is left, the questions fail. The names of the bdevs by which clients have been asked."""
    over, asked = threading.Event(), []

    def wait(name, clients, until_us):
        asked.append(name)
        over.wait(DEADLINE)
        raise daemon.DaemonError("timed out")
    usual, gateway.daemon.bdev_rbd_fence_silent = gateway.daemon.bdev_rbd_fence_silent, wait
    try:
        yield asked
    finally:
        over.set()
        wait_for(lambda: gateway.agent.questions.answers.qsize() == len(gateway.agent.questions.under_way), "the end of the questions")
        gateway.daemon.bdev_rbd_fence_silent = usual


def test_a_question_without_an_answer_holds_up_nothing_but_its_group():
    store, a, b, c = three_in_ceph()
    token = owner(store, 2)["token"]
    c.end_lease()
    with without_answers(a) as asked:
        for _ in range(3):
            check(not a.agent.try_turn(), "nothing was done")
        wait_for(lambda: asked == ["G1"], lambda: f"one question at a time: {asked}")
        # a group of which it is not known whether somebody is waited for is not taken yet, and claimed once
        b.end_lease()
        for _ in range(4):
            a.agent.try_turn()
        wait_for(lambda: asked == ["G1", "F2"], lambda: f"the question for the group: {asked}")
        check(owner(store, 2)["owner"] == "a" and a.agent.lease.owned.keys() == {1}, asked)
        # what needs no question goes on
        a.daemon.told.clear()
        a.daemon.blocks += 8
        a.agent.try_turn()
        check(state.decode_state(store.entries(PREFIX)).gateways["a"].facts["namespaces"]["2"]["blocks"] == a.daemon.blocks, "it tells the new size")
        check(owner(store, 2)["token"] == token + 1, "and claims the group once")
    check(not a.daemon.owned_groups() & {2}, "not yet")
    a.agent.try_turn()
    a.check_serves({1, 2})
    check(asked == ["G1", "F2"], f"once: {asked}")


def test_a_group_is_given_when_clients_were_asked():
    store, a, b, c = three_in_ceph()
    c.end_lease()
    store.keys[f"{PREFIX}moves/1"] = ("b", 1, 0, 1)
    with without_answers(a):
        for _ in range(3):
            a.agent.try_turn()
        a.check_serves({1})
        check(owner(store, 1)["owner"] == "a", "it is served here until then")
        # the operator has thought better of it
        store.keys[f"{PREFIX}moves/1"] = ("a", 2, 0, 1)
    a.turn(2)
    a.check_serves({1})
    store.keys[f"{PREFIX}moves/1"] = ("b", 3, 0, 1)
    a.turn()
    check(owner(store, 1)["owner"] == "b" and a.daemon.owned_groups() == set(), "it is given")


def test_a_lease_that_ends_during_a_question_ends_the_take_over():
    store, a, b, c = three_in_ceph()
    b.end_lease()
    c.end_lease()
    with without_answers(a) as asked:
        for _ in range(2):
            a.agent.try_turn()
        wait_for(lambda: asked == ["F2"], lambda: f"the question: {asked}")
        check(owner(store, 2)["owner"] == "a", owner(store, 2))
        a.end_lease()
    a.agent.try_turn()
    check(a.agent.lease.owned == {} and a.daemon.owned == set(), "the claim was another lease's")
    a.agent.lease.keep()
    a.turn(4)
    a.check_serves({1, 2})


def test_an_answer_after_the_end_is_not_waited_for():
    _, a, _, c = three_in_ceph()
    c.end_lease()
    with without_answers(a) as asked:
        a.agent.try_turn()
        wait_for(lambda: asked == ["G1"], lambda: f"the question: {asked}")
        stop = threading.Event()
        a.agent.lease.start = a.agent.watch.start = a.agent.leases.start = a.agent.lease.join = lambda *_: None
        stop.set()
        a.agent.run(stop)       # returns
        a.check_serves(set())


def test_an_answer_is_of_one_absence_only():
    """It answered then; the next time it may be silent."""
    for comes_back in (True, False):
        store, a, b, c = three_in_ceph()
        over, ask = threading.Event(), a.daemon.bdev_rbd_fence_silent

        def ask_late(name, clients, until_us, ask=ask, over=over):
            found = ask(name, clients, until_us)
            over.wait(DEADLINE)
            return found
        a.daemon.bdev_rbd_fence_silent = ask_late
        c.end_lease()
        a.agent.try_turn()
        wait_for(lambda a=a: [name for name, _ in a.daemon.asked] == ["G1"], "a question")
        if comes_back:
            c.agent.lease.keep()
            c.turn(2)
            a.agent.try_turn()
            check(a.agent.clients.gone == {}, "it is back")
        over.set()
        wait_for(lambda a=a: not a.agent.questions.answers.empty(), "an answer")
        if comes_back:
            a.turn(2)
            c.end_lease()
        else:
            a.agent.note_answers()
            agent.time = types.SimpleNamespace(monotonic=lambda: time.monotonic() + daemon.ASK_S)       # its group is elsewhere, or waits, so long
        try:
            a.daemon.silent = {"127.0.0.1:0/2"}
            a.daemon.asked.clear()
            store.keys[f"{PREFIX}moves/1"] = ("b", 1, 0, 1)
            a.turn(2)
        finally:
            agent.time = time
        check(a.daemon.asked[:1] == [("G1", "127.0.0.1:0/2")] and not a.daemon.silent, f"{comes_back}: {a.daemon.asked}")
        check(owner(store, 1)["owner"] == "b", owner(store, 1))


def test_whatever_ends_a_question_is_an_answer():
    _, a, _, c = three_in_ceph()
    c.end_lease()
    a.daemon.errors["bdev_rbd_fence_silent", "G1"] = KeyError("of the test")
    a.turn()
    check("KeyError" in a.agent.not_fenced and not a.agent.questions.under_way, a.agent.not_fenced)
    a.turn()
    check(a.agent.not_fenced is None and [name for name, _ in a.daemon.asked] == ["F2"], a.daemon.asked)


if __name__ == "__main__":
    main(sys.modules[__name__])
