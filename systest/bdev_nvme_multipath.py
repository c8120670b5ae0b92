#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 400
# sanitize
"""A varve that re-exports a namespace which two others have: hosts -> front -> left and right, over the software RDMA device."""
import json
import sys

from appliance_lib import DEADLINE, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT, Target, verifying, wait_io

UUID = "8d1f6c1e-55b1-4a5e-9f0e-0123456789ab"
SHARED = "nqn.2026-11.io.varve:shared"
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1}


class Back(Target):
    """One of the two that have the namespace: the same subsystem, by its NQN, serial number and controller ids."""

    def __init__(self, number, disk, serial="SHARED", **params):
        super().__init__(cores=f"[{number % 2}]", port=PORT + 20000 + number)
        try:
            self.number = number
            self.add_subsystem(SHARED, **{"serial_number": serial, "ana_reporting": True, "max_namespaces": 8,
                                          "min_cntlid": 1 + 1000 * number, "max_cntlid": 1000 + 1000 * number, **params})
            if disk is not None:
                self.add_file("F0", disk, shared=True)
                self.call("nvmf_subsystem_add_ns", nqn=SHARED, namespace={"bdev_name": "F0", "uuid": UUID, "nsid": 1, "anagrpid": 1})
        except BaseException:
            self.__exit__()
            raise

    def where(self):
        return {**self.listen_address(), "subnqn": SHARED}

    def set_ana(self, state, **group):
        self.call("nvmf_subsystem_listener_set_ana_state", nqn=SHARED, listen_address=self.listen_address(), ana_state=state, **group)

    def set_group(self, anagrpid):
        self.call("nvmf_subsystem_set_ns_ana_group", nqn=SHARED, nsid=1, anagrpid=anagrpid)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Front(Target):
    def __init__(self, *options):
        super().__init__(*options, cores="[1]", port=PORT)

    def attach(self, back, name="Nvme0", **params):
        return self.call("bdev_nvme_attach_controller", name=name, **{**back.where(), **QUICK, **params})

    def ctrlrs(self, name="Nvme0"):
        return self.call("bdev_nvme_get_controllers", name=name)[0]["ctrlrs"]

    def states(self):
        return [c["state"] for c in self.ctrlrs()]

    def io_paths(self, bdev="Nvme0n1"):
        return [p for g in self.call("bdev_nvme_get_io_paths", name=bdev)["poll_groups"] for p in g["io_paths"]]

    def current(self):
        """Ports of the paths that I/O takes now."""
        return {int(p["transport"]["trsvcid"]) for p in self.io_paths() if p["current"]}

    def news(self, kind):
        return [n["ctx"] for n in self.call("notify_get_notifications", all=True) if n["type"] == kind]

    def refused(self, words, method, **params):
        try:
            result = self.call(method, **params)
        except RpcError as e:
            check(all(w in e.message for w in words), f"{method}: \"{e.message}\" does not say {words}")
            return
        check(False, f"{method}({params}) answered {result}")


class Three:
    """left, right and front, attached to both."""

    def __init__(self, **params):
        self.params = params
        self.parts = []

    def __enter__(self):
        try:
            front = self.add(Front())
            self.disk = front.folder / "disk"
            left, right = self.add(Back(0, self.disk)), self.add(Back(1, self.disk))
            check(front.attach(left, **self.params) == ["Nvme0n1"], "the first attaches the bdev")
            check(front.attach(right, **self.params) == ["Nvme0n1"], "the second has the same one")
            front.add_ns("Nvme0n1")
            return self, front, left, right
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def add(self, part):
        self.parts.append(part)
        return part

    def replace(self, old, new):
        self.parts[self.parts.index(old)] = new
        return new

    def __exit__(self, *exc):
        for p in self.parts:
            p.__exit__(*exc)


def ios(back):
    return back.groups("completed_nvme_io")


def moves(back, more=50):
    """Waits until a back end has carried out more commands."""
    start = ios(back)
    wait_for(lambda: ios(back) - start >= more, "I/O by that path")


def test_second_controller_of_a_name_is_a_path():
    with Three() as (_, f, left, right):
        check([b["name"] for b in f.call("bdev_get_bdevs")] == ["Nvme0n1"], "one bdev")
        check([c["trid"]["trsvcid"] for c in f.ctrlrs()] == [str(left.port), str(right.port)], f.ctrlrs())
        check([c["cntlid"] // 1000 for c in f.ctrlrs()] == [0, 1], f.ctrlrs())
        check(len(f.call("bdev_nvme_get_controllers")) == 1, "one name")
        d, = f.call("bdev_get_bdevs")
        check(len(d["driver_specific"]["nvme"]) == 2 and d["driver_specific"]["mp_policy"] == "active_passive", d)
        check(d["driver_specific"]["nvme"][0]["ns_data"]["ana_state"] == "optimized", d)
        attach = {"name": "Nvme0", **QUICK}
        f.refused(["exists already", "same path"], "bdev_nvme_attach_controller", **attach, **left.where())
        other = {**left.where(), "trsvcid": str(left.port + 5)}
        f.refused(["multipath is disabled"], "bdev_nvme_attach_controller", **attach, **other, multipath="disable")
        f.refused(["subnqn"], "bdev_nvme_attach_controller", **attach, **{**other, "subnqn": NQN})
        f.refused(["hostnqn"], "bdev_nvme_attach_controller", **attach, **other, hostnqn="nqn.2026-11.io.varve:other")
        f.refused(["several controllers"], "bdev_nvme_attach_controller", **attach, **other, multipath="failover")
        f.refused(["min_io"], "bdev_nvme_attach_controller", **attach, **other, multipath_opts={"min_io": 0})
        f.refused(["cntlid 4711"], "bdev_nvme_set_preferred_path", name="Nvme0n1", cntlid=4711)
        f.refused(["rr_min_io 0"], "bdev_nvme_set_multipath_policy", name="Nvme0n1", policy="active_active", rr_min_io=0)
        f.refused(["active_active"], "bdev_nvme_set_multipath_policy", name="Nvme0n1", policy="active_passive", selector="queue_depth")
        with Back(2, None, serial="OTHER") as b:
            f.refused(["serial number"], "bdev_nvme_attach_controller", **attach, **b.where())
        with Back(2, None, min_cntlid=1, max_cntlid=1) as b:
            f.refused(["controller id 1 "], "bdev_nvme_attach_controller", **attach, **b.where())
        check(len(f.ctrlrs()) == 2, "those that were refused are gone")
        f.stop_clean("controller at", "NVMe controller")


def test_killed_paths_are_survived_without_an_error():
    with Three() as (three, f, left, right):
        with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            check(f.current() == {left.port}, f.io_paths())
            left.kill()
            wait_for(lambda: f.current() == {right.port}, "I/O to go by the other path")
            moves(right)
            left.__exit__()
            left = three.replace(left, Back(0, three.disk))
            wait_for(lambda: f.states() == ["enabled", "enabled"], "the first path to be back")
            wait_for(lambda: f.current() == {left.port}, "I/O to go back to the first path")
            moves(left)
            left.kill()
            right.kill()
            wait_for(lambda: "enabled" not in f.states(), "both losses to be noticed")
            check(h.is_running(), "I/O waits")
            right.__exit__()
            right = three.replace(right, Back(1, three.disk))
            wait_for(lambda: f.current() == {right.port}, "I/O to go by what has come back")
            wait_io(f, [h])
            h.check_perfect(h.stop())
        lost = f.news("bdev_nvme_path_lost")
        check(len(lost) == 3 and lost[0] == f"Nvme0 RDMA {ADDRESS} {left.port}", lost)
        back = f.news("bdev_nvme_path_regained")
        check(len(back) == 2 and back[0] == f"Nvme0 RDMA {ADDRESS} {left.port}", back)


def test_access_states_move_io():
    with Three() as (_, f, left, right):
        with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            for _ in range(3):
                left.set_ana("inaccessible")
                moves(right)
                check(f.current() == {right.port}, f.io_paths())
                right.set_ana("inaccessible")
                left.set_ana("non_optimized")
                moves(left)
                right.set_ana("non_optimized")
                wait_for(lambda: all(p["accessible"] for p in f.io_paths()), "both to be accessible")
                right.set_ana("optimized")
                wait_for(lambda: f.current() == {right.port}, "the optimized one to be chosen")
                left.set_ana("optimized")
                wait_for(lambda: f.current() == {left.port}, "the first of two alike")
            left.set_ana("inaccessible")
            right.set_ana("inaccessible")
            wait_for(lambda: f.current() == set(), "no path")
            check(h.is_running(), "I/O waits")
            right.set_ana("optimized")
            wait_io(f, [h])
            h.check_perfect(h.stop())


def test_namespace_that_moves_to_another_group_is_followed():
    with Three() as (_, f, left, right):
        with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            old = 1
            for new in (2, 3, 2):
                left.set_ana("non_optimized", anagrpid=new)
                right.set_ana("inaccessible", anagrpid=new)
                left.set_group(new)
                right.set_group(new)
                for back in (left, right):  # where nothing is any more
                    back.set_ana("inaccessible", anagrpid=old)
                wait_for(lambda: [p["ana_state"] for p in f.io_paths()] == ["non_optimized", "inaccessible"], "the states of the new group")
                moves(left)
                right.set_ana("optimized", anagrpid=new)
                wait_for(lambda: f.current() == {right.port}, "the optimized one to be chosen")
                moves(right)
                old = new
            h.check_perfect(h.stop())


def test_policies_spread_io():
    with Three(multipath_opts={"policy": "active_active"}) as (_, f, left, right):
        def policy(name, **params):
            f.call("bdev_nvme_set_multipath_policy", name="Nvme0n1", policy=name, **params)
        with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            check(f.current() == {left.port, right.port}, f.io_paths())
            moves(left)
            moves(right)
            policy("active_active", selector="queue_depth")
            moves(left)
            moves(right)
            policy("active_active", selector="round_robin", rr_min_io=7)
            moves(left)
            moves(right)
            left.set_ana("non_optimized")
            wait_for(lambda: f.io_paths()[0]["ana_state"] == "non_optimized", "the news")
            moves(right)
            left.set_ana("optimized")
            policy("active_passive")
            wait_for(lambda: f.current() == {left.port}, "one path")
            f.call("bdev_nvme_set_preferred_path", name="Nvme0n1", cntlid=f.ctrlrs()[1]["cntlid"])
            check(f.current() == {right.port}, f.io_paths())
            moves(right)
            h.check_perfect(h.stop())


def test_paths_are_attached_and_detached_under_io():
    with Three() as (_, f, left, right):
        with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            for back in (left, right) * 2:
                where = back.where()
                check(f.call("bdev_nvme_detach_controller", name="Nvme0", **where) is True, "detach")
                check(len(f.ctrlrs()) == 1, "one path is left")
                wait_for(lambda b=back: b.num_qpairs() == 0, "its connections to be gone")
                wait_io(f, [h])
                f.attach(back)
                wait_io(f, [h])
            f.refused(["192.0.2.1"], "bdev_nvme_detach_controller", name="Nvme0", traddr="192.0.2.1")
            h.check_perfect(h.stop())
        f.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=1)
        check(f.call("bdev_nvme_detach_controller", name="Nvme0") is True, "detach both")
        check(f.call("bdev_get_bdevs") == [] and f.call("bdev_nvme_get_controllers") == [], "all is gone")
        f.stop_clean()
        left.stop_clean()
        right.stop_clean()


def test_paths_are_disabled_and_enabled_under_io():
    with Three() as (_, f, left, right):
        ids = [c["cntlid"] for c in f.ctrlrs()]
        with verifying(f, 1, "-q", "32", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            for at, back in [(0, left), (1, right)] * 3:
                ids[at] = f.ctrlrs()[at]["cntlid"]
                check(f.call("bdev_nvme_disable_controller", name="Nvme0", cntlid=ids[at]) is True, "disable")
                check(f.states()[at] == "disabled" and f.states()[1 - at] == "enabled", f.states())
                check(f.current() == {(left, right)[1 - at].port}, f.io_paths())
                wait_for(lambda b=back: b.num_qpairs() == 0, "its connections to be gone")
                moves((left, right)[1 - at])
                f.refused(["disabled already"], "bdev_nvme_disable_controller", name="Nvme0", cntlid=ids[at])
                f.refused(["bdev_nvme_enable_controller"], "bdev_nvme_reset_controller", name="Nvme0", cntlid=ids[at])
                check(f.states()[at] == "disabled", "it stays so")
                check(f.call("bdev_nvme_reset_controller", name="Nvme0") is True, "of both, the other is reset")
                check(f.call("bdev_nvme_enable_controller", name="Nvme0", cntlid=ids[at]) is True, "enable")
                check(f.states() == ["enabled", "enabled"], f.states())
                wait_io(f, [h])
            h.check_perfect(h.stop())
        f.refused(["is not disabled"], "bdev_nvme_enable_controller", name="Nvme0")
        f.refused(["cntlid 4711"], "bdev_nvme_disable_controller", name="Nvme0", cntlid=4711)
        check(f.news("bdev_nvme_disabled") == ["Nvme0"] * 6, f.news("bdev_nvme_disabled"))
        before = f.rpc("save_config")[1]
        check(f.call("bdev_nvme_disable_controller", name="Nvme0") is True and f.states() == ["disabled", "disabled"], f.states())
        check(f.rpc("save_config")[1] == before, "a saved configuration has it enabled")
        f.stop_clean("controller at", "NVMe controller")
        left.stop_clean()
        right.stop_clean()


def test_path_that_is_away_is_disabled_and_stays_so_when_it_is_back():
    with Three() as (three, f, left, right):
        with verifying(f, 1, "-q", "8", "-t", str(3 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            left.kill()
            wait_for(lambda: f.states()[0] != "enabled", "the loss to be noticed")
            cntlid = f.ctrlrs()[0]["cntlid"]
            check(f.call("bdev_nvme_disable_controller", name="Nvme0", cntlid=cntlid) is True and f.states()[0] == "disabled", f.states())
            left.__exit__()
            left = three.replace(left, Back(0, three.disk))
            moves(right, 500)
            check(f.states() == ["disabled", "enabled"] and left.num_qpairs() == 0, "nobody connects it")
            check(f.call("bdev_nvme_enable_controller", name="Nvme0", cntlid=cntlid) is True, "enable")
            wait_for(lambda: f.current() == {left.port}, "I/O to go back to the first path")
            wait_io(f, [h])
            h.check_perfect(h.stop())


def test_path_that_stays_away_is_given_up_and_the_bdev_stays():
    with Three(ctrlr_loss_timeout_sec=3, fast_io_fail_timeout_sec=1) as (_, f, left, right):
        with verifying(f, 1, "-q", "8", "-t", str(2 * DEADLINE)) as h:
            wait_io(f, [h], 1500)
            left.kill()
            wait_for(lambda: len(f.ctrlrs()) == 1, "the path to be given up")
            wait_io(f, [h])
            h.check_perfect(h.stop())
        check([b["name"] for b in f.call("bdev_get_bdevs")] == ["Nvme0n1"], "the bdev")
        check(f.call("bdev_nvme_detach_controller", name="Nvme0") is True, "detach")
        check(f.call("bdev_get_bdevs") == [], "and with the last path it goes")


def test_failover_tries_another_address_of_the_controller():
    with Front() as f:
        disk = f.folder / "disk"
        with Back(0, disk) as left, Back(1, disk) as right:
            f.add_ns(f.attach(left, multipath="failover")[0])
            check(f.attach(right, multipath="failover") == ["Nvme0n1"], "another address")
            c, = f.ctrlrs()
            check(c["trid"] == left.where() and c["alternate_trids"] == [right.where()], c)
            with verifying(f, 1, "-q", "8", "-t", str(2 * DEADLINE)) as h:
                wait_io(f, [h], 1500)
                left.kill()
                wait_for(lambda: f.states() == ["enabled"] and f.ctrlrs()[0]["trid"] == right.where(), "the other address")
                wait_io(f, [h])
                h.check_perfect(h.stop())
            check(f.ctrlrs()[0]["alternate_trids"] == [left.where()], f.ctrlrs())
            check(f.call("bdev_nvme_detach_controller", name="Nvme0", **left.where()) is True, "an address")
            check(f.ctrlrs()[0]["alternate_trids"] == [] and f.states() == ["enabled"], f.ctrlrs())


def test_configuration_brings_paths_back():
    with Front() as f:
        disk = f.folder / "disk"
        with Back(0, disk) as left, Back(1, disk) as right:
            f.attach(left)
            f.attach(right)
            f.call("bdev_nvme_set_multipath_policy", name="Nvme0n1", policy="active_active", rr_min_io=3)
            saved = f.call("framework_get_config", name="bdev")
            path = left.folder / "config.json"
            path.write_text(json.dumps({"subsystems": [{"subsystem": "bdev", "config": saved}]}))
            f.stop_clean()
            with Front("-c", str(path)) as again:
                check(again.call("framework_get_config", name="bdev") == saved, "saved again, it is the same")
                check(len(again.ctrlrs()) == 2, again.ctrlrs())


if __name__ == "__main__":
    main(sys.modules[__name__])
