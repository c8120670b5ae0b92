#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""A varve that attaches what discovery services list: front -> back, and another one that back refers to."""
import json
import sys

from appliance_lib import BUILD, Daemon, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, NQN, PORT, Target, preload, verifying, wait_io

DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1}


class Back(Target):
    def __init__(self, number=0, nqns=(NQN,)):
        super().__init__(cores="[0]", port=PORT + 20000 + number)
        try:
            self.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=self.listen_address())
            self.call("nvmf_delete_subsystem", nqn=NQN)
            for nqn in nqns:
                self.export(nqn)
        except BaseException:
            self.__exit__()
            raise

    def export(self, nqn):
        name = "M" + nqn[-1]
        self.add_malloc(name)
        self.call("nvmf_create_subsystem", nqn=nqn, serial_number="V1", allow_any_host=True)
        self.add_ns(name, nqn=nqn)
        self.add_listener(nqn)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Sayer(Back):
    """It lists what is at another's port, too: it is to listen there, and listens elsewhere (systest/listen_elsewhere.c)."""

    def __init__(self, other):
        self.other, self.port = other, PORT + 20000
        first, *rest = preload()["LD_PRELOAD"].rsplit(":", 1)
        libraries = [*([first] if rest else []), str(BUILD / "systest" / "liblisten-elsewhere.so"), *(rest or [first])]
        Daemon.__init__(self, "-m", "[0]", "-s", "512", env={
            "LD_PRELOAD": ":".join(libraries), "VARVE_LISTED_PORT": str(other.port), "VARVE_LISTEN_PORT": str(self.port + 8)})
        try:
            self.call("nvmf_create_transport", trtype="RDMA")
            self.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=self.listen_address())
        except BaseException:
            self.__exit__()
            raise

    def list(self, nqn):
        self.call("nvmf_create_subsystem", nqn=nqn, serial_number="V1", allow_any_host=True)
        self.call("nvmf_subsystem_add_listener", nqn=nqn, listen_address=self.other.listen_address())


class Front(Target):
    def __init__(self, *options):
        super().__init__(*options, cores="[1]", port=PORT)

    def start(self, back, name="d", **params):
        return self.call("bdev_nvme_start_discovery", name=name, **back.listen_address(), **{**QUICK, "wait_for_attach": True, **params})

    def bdevs(self):
        return sorted(b["name"] for b in self.call("bdev_get_bdevs"))

    def info(self):
        return self.call("bdev_nvme_get_discovery_info")

    def refused(self, words, method, **params):
        try:
            result = self.call(method, **params)
        except RpcError as e:
            check(all(w in e.message for w in words), f"{method}: \"{e.message}\" does not say {words}")
            return
        check(False, f"{method}({params}) answered {result}")


def test_what_is_listed_is_attached_and_what_is_not_is_detached():
    with Front() as f, Back(nqns=(NQN + "0", NQN + "1")) as b:
        check(f.start(b) is True, "start")
        check(f.bdevs() == ["d0n1", "d1n1"], f.bdevs())
        i, = f.info()
        check(i["name"] == "d" and i["trid"] == {**b.listen_address(), "subnqn": DISCOVERY} and i["referrals"] == [], i)
        check([e["state"] for e in i["entries"]] == ["attached"] * 2, i)
        b.export(NQN + "2")
        wait_for(lambda: len(f.bdevs()) == 3, "the new one to be attached")
        b.call("nvmf_delete_subsystem", nqn=NQN + "0")
        wait_for(lambda: f.bdevs() == ["d1n1", "d2n1"], "the old one to be detached")
        f.refused(["exists already"], "bdev_nvme_start_discovery", name="d", **b.listen_address())
        f.refused(["'d'", "there already"], "bdev_nvme_start_discovery", name="e", **b.listen_address())
        f.refused(["reconnect_delay_sec 0"], "bdev_nvme_start_discovery", name="e", ctrlr_loss_timeout_sec=5,
                  **{**b.listen_address(), "trsvcid": "1"})
        f.refused(["attach_timeout_ms 1500"], "bdev_nvme_start_discovery", name="e", attach_timeout_ms=1500,
                  **{**b.listen_address(), "trsvcid": str(b.port + 1)})
        f.refused(["PCIe"], "bdev_nvme_start_discovery", name="e", trtype="PCIe", traddr="0000:00:04.0")
        f.refused(["no discovery service 'x'"], "bdev_nvme_stop_discovery", name="x")
        check(f.call("bdev_nvme_stop_discovery", name="d") is True, "stop")
        check(f.bdevs() == [] and f.info() == [] and f.call("bdev_nvme_get_controllers") == [], "all is gone")
        wait_for(lambda: b.num_qpairs() == 0, "connections to be gone")


def test_discovery_controller_that_is_lost_is_connected_again():
    with Front() as f:
        b = Back(nqns=(NQN + "0",))
        try:
            f.start(b)
            check(f.bdevs() == ["d0n1"], f.bdevs())
            b.kill()
            wait_for(lambda: f.info()[0]["state"] != "ready", "the loss to be noticed")
            b.__exit__()
            b = Back(nqns=(NQN + "1",))
            wait_for(lambda: f.bdevs() == ["d1n1"], "what is listed now, and nothing else")
        finally:
            b.__exit__()


def test_referrals_are_followed():
    with Front() as f, Back(nqns=(NQN + "0",)) as b, Back(1, nqns=(NQN + "1",)) as c:
        refer = {"address": c.listen_address()}
        b.call("nvmf_discovery_add_referral", **refer)
        c.call("nvmf_discovery_add_referral", address=b.listen_address())
        f.start(b)
        wait_for(lambda: f.bdevs() == ["d0n1", "d1n1"], "both")
        i, = f.info()
        check([r["trid"]["trsvcid"] for r in i["referrals"]] == [str(c.port)], i)
        b.call("nvmf_discovery_remove_referral", **refer)
        wait_for(lambda: f.bdevs() == ["d0n1"], "what the other lists to go")
        check(f.info()[0]["referrals"] == [], f.info())


def at_work(f):
    """A host of f whose I/O is by what has been discovered."""
    f.add_ns("d0n1")
    h = verifying(f, 1, "-q", "8", "-t", "3600")
    wait_io(f, [h], 1500)       # what is to be read is written first
    return h


def test_what_two_sources_list_stays_as_long_as_one_does():
    nqn = NQN + "0"
    with Back(1, nqns=(nqn,)) as c, Sayer(c) as b, Front() as f:
        b.list(nqn)
        refer = {"address": c.listen_address()}
        b.call("nvmf_discovery_add_referral", **refer)
        f.start(b)      # both logs have been read then
        check(f.bdevs() == ["d0n1"], f.bdevs())
        with at_work(f) as h:
            b.call("nvmf_delete_subsystem", nqn=nqn)
            b.export(NQN + "1")
            wait_for(lambda: "d1n1" in f.bdevs(), "the log to be read again")
            check(f.bdevs() == ["d0n1", "d1n1"], f.bdevs())
            wait_io(f, [h])
            h.check_perfect(h.stop())
        f.remove_ns(1)
        b.call("nvmf_discovery_remove_referral", **refer)
        wait_for(lambda: f.bdevs() == ["d1n1"], "what nobody lists any more to go")


def test_what_a_referral_listed_stays_if_another_source_lists_it():
    nqn = NQN + "0"
    with Back(1, nqns=(nqn,)) as c, Sayer(c) as b, Front() as f:
        refer = {"address": c.listen_address()}
        b.call("nvmf_discovery_add_referral", **refer)
        f.start(b)
        check(f.bdevs() == ["d0n1"], f.bdevs())
        b.list(nqn)
        b.export(NQN + "1")
        wait_for(lambda: f.bdevs() == ["d0n1", "d1n1"], "the log to be read again")
        with at_work(f) as h:
            b.call("nvmf_discovery_remove_referral", **refer)
            wait_for(lambda: f.info()[0]["referrals"] == [], "the referral to go")
            check(f.bdevs() == ["d0n1", "d1n1"], f.bdevs())
            wait_io(f, [h])
            h.check_perfect(h.stop())
        f.remove_ns(1)
        b.call("nvmf_delete_subsystem", nqn=nqn)
        wait_for(lambda: f.bdevs() == ["d1n1"], "what nobody lists any more to go")


def test_source_that_two_refer_to_stays_as_long_as_one_does():
    with Front() as f, Back(nqns=()) as b, Back(1, nqns=()) as c, Back(2, nqns=(NQN + "2",)) as d:
        to_c, to_d = ({"address": x.listen_address()} for x in (c, d))
        b.call("nvmf_discovery_add_referral", **to_c)
        for x in (b, c):
            x.call("nvmf_discovery_add_referral", **to_d)
        d.call("nvmf_discovery_add_referral", **to_c)       # they refer to each other, and nobody to them in the end
        f.start(b)
        check(f.bdevs() == ["d0n1"], f.bdevs())
        b.call("nvmf_discovery_remove_referral", **to_d)
        b.export(NQN + "1")
        wait_for(lambda: "d1n1" in f.bdevs(), "the log to be read again")
        check(f.bdevs() == ["d0n1", "d1n1"] and len(f.info()[0]["referrals"]) == 2, f.info())
        b.call("nvmf_discovery_remove_referral", **to_c)
        wait_for(lambda: f.bdevs() == ["d1n1"] and f.info()[0]["referrals"] == [], "both to go")


def test_discovered_namespace_is_exported_and_the_service_saved():
    with Back(nqns=(NQN + "0",)) as b:
        with Front() as f:
            f.start(b)
            f.add_ns("d0n1")
            with verifying(f, 1, "-q", "8", "-t", "60") as h:
                wait_io(f, [h], 1500)
                h.check_perfect(h.stop())
            saved = f.call("framework_get_config", name="bdev")
            methods = [m["method"] for m in saved]
            check("bdev_nvme_start_discovery" in methods and "bdev_nvme_attach_controller" not in methods, methods)
            path = b.folder / "config.json"
            path.write_text(json.dumps({"subsystems": [{"subsystem": "bdev", "config": saved}]}))
            f.stop_clean()
        with Front("-c", str(path)) as f:
            check(f.bdevs() == ["d0n1"], f.bdevs())
            check(f.call("framework_get_config", name="bdev") == saved, "saved again, it is the same")
            check(ADDRESS in json.dumps(f.info()), f.info())


if __name__ == "__main__":
    main(sys.modules[__name__])
