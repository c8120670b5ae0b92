#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# budget: VARVE_FAULTS_SECONDS=40
# long
# beside
"""The sweep of nvmf_faults_host.py with a host whose controllers are reached over TCP."""
import pathlib
import re
import sys
import tempfile

from appliance_lib import check, main
from faults_lib import SEED, sweep  # noqa: F401 (main() names the seed)
from nvmf_faults_host import HOSTNQN, QUICK, Front, Scenario
from nvmf_lib import NQN
from nvmf_tcp_zerocopy import NEVER_COPIED, configured
from nvmf_tls_lib import KERNEL_CALLS, add_keys as add_psks, ktls_options

SECURED = NQN + ":secured"


class FrontTcp(Front):
    """`left` has a subsystem that demands TLS, too. The kernel is asked for the records, and may have no means for them."""
    trtype = "TCP"
    options = ktls_options()

    def secured(self):
        return {**self.left.listen_address(), "trsvcid": str(self.left.port + 5)}

    def begin(self):
        super().begin()
        for d in self, self.left:
            add_psks(d, ["psk"])
        self.left.add_subsystem(SECURED, listen=False, allow_any_host=False)
        self.left.add_malloc("T")
        self.left.add_ns("T", SECURED)
        self.left.call("nvmf_subsystem_add_host", nqn=SECURED, host=HOSTNQN, psk="psk")
        self.left.call("nvmf_subsystem_add_listener", nqn=SECURED, listen_address=self.secured(), secure_channel=True)


class TcpScenario(Scenario):
    ALL = (*Scenario.ALL, "encrypted")

    def encrypted(self, say):
        """A controller over TLS, which is read from, and whose connections are made anew."""
        t = self.t
        say(t, "bdev_nvme_attach_controller", name="R", **t.secured(), subnqn=SECURED, psk="psk", **QUICK)
        say(t, "bdev_nvme_get_controller_health_info", name="R")
        say(t, "bdev_nvme_reset_controller", name="R")
        say(t, "bdev_nvme_get_controllers")
        say(t, "bdev_nvme_detach_controller", name="R")


CALLS = (("socket", "connect.c"), ("setsockopt", "connect.c"), ("connect", "connect.c"), ("getsockopt", "connect.c"), ("epoll_create1", "connect.c"),
         ("epoll_ctl", "connect.c"), ("getaddrinfo", "connect.c"), ("recvmsg", "receiver.c"), ("sendmsg", "send.c"), ("shutdown", "qpair.c"),
         ("send", "session.c"), ("recv", "session.c"), ("calloc", "session.c"), ("malloc", "session.c"), ("calloc", "handshake.c"), ("setsockopt", "kernel.c"),
         *KERNEL_CALLS)
ZEROCOPY_CALLS = (("calloc", "zerocopy.c"), ("setsockopt", "zerocopy.c"), ("sendmsg", "zerocopy.c"), ("recvmsg", "zerocopy.c"))


def check_calls(names, calls):
    missing = [c for c in calls if not any(re.match(rf"{c[0]} in \S+ {c[1]}:", n) for n in names)]
    check(not missing, f"no scenario comes by {missing}")


def test_a_fault_at_every_site_of_a_host_over_tcp_harms_nobody_else():
    check_calls(sweep(FrontTcp, TcpScenario), CALLS)


class FrontWithoutCopies(FrontTcp):
    """Large data are sent without a copy, all the time."""
    libraries = (NEVER_COPIED,)


class ScenarioWithoutCopies(TcpScenario):
    ALL = ("paths", "lost")


def test_a_fault_at_every_site_of_a_host_that_does_not_copy_harms_nobody_else():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        FrontWithoutCopies.options = ("-c", configured(pathlib.Path(folder), 4096))
        check_calls(sweep(FrontWithoutCopies, ScenarioWithoutCopies), ZEROCOPY_CALLS)


if __name__ == "__main__":
    main(sys.modules[__name__])
