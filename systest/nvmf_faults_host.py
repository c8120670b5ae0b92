#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# budget: VARVE_FAULTS_SECONDS=60
# long
# beside
"""The sweep of nvmf_faults.py, of a varve that is a host: its controllers are at two other varves, over the software RDMA device. A fault at
every call, completion and state on the way: the process lives, other bdevs of it and their I/O notice nothing, all that was taken is given back."""
import sys

from appliance_lib import check, main, wait_for
from faults_lib import SEED, Victim, add_keys, sweep, tolerant  # noqa: F401 (main() names the seed)
from nvmf_lib import NQN, Host, Target

SHARED, LOCKED, STEADY, VICTIM = (f"{NQN}:{x}" for x in ("shared", "locked", "steady", "victim"))
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
HOSTNQN = NQN + ":front"
UUID = "8d1f6c1e-55b1-4a5e-9f0e-0123456789ab"
QUICK = {"ctrlr_loss_timeout_sec": -1, "reconnect_delay_sec": 1, "fabrics_connect_timeout_us": 3000000, "num_io_queues": 1, "hostnqn": HOSTNQN}
LATE_US = 3000000       # an answer that does not come is waited for so long


class Back(Target):
    """One of the two that have the shared namespace; and what else the host attaches."""

    def __init__(self, number, port, disk, trtype):
        super().__init__(cores="[1]", port=port, trtype=trtype)
        try:
            self.call("nvmf_delete_subsystem", nqn=NQN)
            self.add_subsystem(SHARED, serial_number="SHARED", ana_reporting=True, min_cntlid=1 + 1000 * number, max_cntlid=1000 + 1000 * number)
            self.add_file("F", disk, shared=True)
            self.add_ns("F", SHARED, uuid=UUID, nsid=1, anagrpid=1)
        except BaseException:
            self.__exit__()
            raise

    def where(self, nqn=SHARED):
        return {**self.listen_address(), "subnqn": nqn}

    def more(self):
        add_keys(self)
        for nqn, bdev in ((STEADY, "S"), (LOCKED, "L")):
            self.add_subsystem(nqn, allow_any_host=nqn == STEADY)
            self.add_malloc(bdev)
            self.add_ns(bdev, nqn)
        self.call("nvmf_subsystem_add_host", nqn=LOCKED, host=HOSTNQN, dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        self.call("nvmf_subsystem_add_listener", nqn=DISCOVERY, listen_address=self.listen_address())


class Front(Victim):
    """The host; it has two namespaces that hosts of its own are at work on: one here, and one at `left`."""

    def __init__(self, worker):
        self.backs = []
        super().__init__(worker)

    def begin(self):
        for i in range(2):
            self.backs.append(Back(i, self.port + 20000 + 8 * i, self.folder / "disk", self.trtype))
        self.left, self.right = self.backs
        self.left.more()
        add_keys(self)
        self.call("bdev_nvme_set_options", timeout_us=LATE_US, timeout_admin_us=LATE_US, action_on_timeout="reset",
                  dhchap_digests=["sha256"], dhchap_dhgroups=["null", "ffdhe2048"])
        bdev, = self.call("bdev_nvme_attach_controller", name="Steady", **self.left.where(STEADY), **QUICK)
        self.add_ns(bdev, nsid=2)
        self.steady.append(self.host(2))

    def __exit__(self, *exc):
        super().__exit__(*exc)
        for b in self.backs:
            b.__exit__(*exc)

    def check_steady(self):
        super().check_steady()
        for b in self.backs:
            check(b.process.poll() is None, f"a target that the host was connected to is gone:\n{b.log()}")


class Scenario:
    def __init__(self, target):
        self.t = target

    def attach(self, say, back, nqn=SHARED, **more):
        say(self.t, "bdev_nvme_attach_controller", name="R", **back.where(nqn), **QUICK, **more)

    def local(self, say):
        """A controller and all that is asked of it."""
        t = self.t
        self.attach(say, t.left)
        for method in ("bdev_nvme_get_controllers", "bdev_nvme_get_io_paths", "bdev_nvme_get_transport_statistics", "bdev_get_bdevs"):
            say(t, method)
        say(t, "bdev_nvme_get_controller_health_info", name="R")
        say(t, "bdev_nvme_set_multipath_policy", name="Rn1", policy="active_active")
        say(t, "framework_get_config", name="bdev")
        say(t, "bdev_nvme_reset_controller", name="R")
        say(t, "bdev_get_iostat", name="Rn1")
        say(t, "bdev_nvme_detach_controller", name="R")

    def at_work(self, say, what):
        """I/O by two paths, and what(host) beside it."""
        t = self.t
        self.attach(say, t.left)
        self.attach(say, t.right)
        say(t, "nvmf_create_subsystem", nqn=VICTIM, serial_number="V2", allow_any_host=True)
        say(t, "nvmf_subsystem_add_listener", nqn=VICTIM, listen_address=t.listen_address())
        say(t, "nvmf_subsystem_add_ns", nqn=VICTIM, namespace={"bdev_name": "Rn1", "nsid": 1})
        with Host(t, "-w", "randrw", "-t", "60", "-q", "8", "--region", "2M", nqn=VICTIM, nsid=1, hostnqn=VICTIM + ":h") as h:
            t.area.set_victim(h.process.pid)
            self.until(lambda: self.moved(t.left, 50), h)
            what(h)
            t.area.set_victim(0)
            h.kill()
        say(t, "nvmf_delete_subsystem", nqn=VICTIM)
        say(t, "bdev_nvme_detach_controller", name="R")

    def paths(self, say):
        """The paths are reset, and one is detached."""
        def change(h):
            say(self.t, "bdev_nvme_reset_controller", name="R")
            say(self.t, "bdev_nvme_detach_controller", name="R", **self.t.left.where())
            self.until(lambda: self.moved(self.t.right, 50), h)
        self.at_work(say, change)

    def lost(self, say):
        """One path is lost, and comes back; by itself, for that takes a second."""
        def change(h):
            t = self.t
            t.left.call("nvmf_subsystem_remove_listener", nqn=SHARED, listen_address=t.left.listen_address())
            self.until(lambda: self.moved(t.right, 50), h)
            t.left.add_listener(SHARED)
            self.until(lambda: self.states() == ["enabled", "enabled"], h)
        self.at_work(say, change)

    def until(self, condition, host):
        """As long as the host is there: the fault may be that it is not."""
        self.base = {}
        wait_for(lambda: not host.is_running() or condition(), "I/O by another path")

    def moved(self, back, n):
        now = back.groups("completed_nvme_io")
        return now - self.base.setdefault(back, now) >= n or not self.states()

    def states(self):
        found = tolerant(self.t, "bdev_nvme_get_controllers") or []
        return [c["state"] for x in found if x["name"] == "R" for c in x["ctrlrs"]]

    def locked(self, say):
        """A controller that asks who is there, and says who it is; then again, with other keys."""
        t = self.t
        self.attach(say, t.left, LOCKED, dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        say(t, "bdev_nvme_set_keys", name="R", dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        say(t, "bdev_nvme_detach_controller", name="R")

    def discovery(self, say):
        t = self.t
        say(t, "bdev_nvme_start_discovery", name="R", **t.left.listen_address(), wait_for_attach=True,
            **{k: v for k, v in QUICK.items() if k in ("ctrlr_loss_timeout_sec", "reconnect_delay_sec", "hostnqn")})
        say(t, "bdev_nvme_get_discovery_info")
        say(t, "bdev_get_bdevs")
        say(t, "bdev_nvme_stop_discovery", name="R")

    ALL = ("local", "locked", "discovery", "paths", "lost")

    def clean(self):
        """Takes away what is left, now that nothing fails any more; returns when all is gone."""
        t = self.t
        at = {"listen_address": t.left.listen_address()}
        if not any(x["address"]["trsvcid"] == str(t.left.port) for x in t.left.call("nvmf_subsystem_get_listeners", nqn=SHARED)):
            t.left.call("nvmf_subsystem_add_listener", nqn=SHARED, **at)
        if VICTIM in [s["nqn"] for s in t.call("nvmf_get_subsystems")]:
            t.call("nvmf_delete_subsystem", nqn=VICTIM)
        for s in t.call("bdev_nvme_get_discovery_info"):
            tolerant(t, "bdev_nvme_stop_discovery", name=s["name"])
        wait_for(self.is_detached, lambda: f"controllers to be gone: {t.call('bdev_nvme_get_controllers')}")
        wait_for(lambda: [b.num_qpairs() for b in t.backs] == [2, 0], lambda: f"connections to be gone: {[b.num_qpairs() for b in t.backs]}")

    def is_detached(self):
        names = [c["name"] for c in self.t.call("bdev_nvme_get_controllers") if c["name"] != "Steady"]
        for name in names:
            tolerant(self.t, "bdev_nvme_detach_controller", name=name)
        return not names and not self.t.call("bdev_nvme_get_discovery_info")


def test_a_fault_at_every_site_of_a_host_harms_nobody_else():
    sweep(Front, Scenario)


if __name__ == "__main__":
    main(sys.modules[__name__])
