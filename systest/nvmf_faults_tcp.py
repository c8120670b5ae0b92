#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# budget: VARVE_FAULTS_SECONDS=40
# once
# long
# beside
"""The sweep of nvmf_faults.py with a target that serves over TCP: a fault at every call on sockets, of memory and of the system on the way."""
import pathlib
import re
import sys
import tempfile

from appliance_lib import check, main, wait_for
from faults_lib import SEED, sweep  # noqa: F401 (main() names the seed)
from nvmf_faults import REPORT, VICTIM, Faulty, Scenario
from nvmf_tcp_zerocopy import NEVER_COPIED, configured
from nvmf_tls_lib import KERNEL_CALLS, KEYS, ktls_options, vectors


class FaultyTcp(Faulty):
    """Both sides may have a key for TLS: its file. The kernel is asked for the records, and may have no means for them."""
    trtype = "TCP"
    options = ktls_options()

    def begin(self):
        super().begin()
        self.psk = self.folder / "psk.tls"
        self.psk.touch(mode=0o600)
        self.psk.write_text(vectors.text(*KEYS["psk"]) + "\n")
        self.initiator.call("keyring_file_add_key", name="psk", path=str(self.psk))


class TcpScenario(Scenario):
    ALL = ("subsystem", "host", "small", "killed", "removed", "unwelcome", "keyed", "encrypted")

    def encrypted(self, say):
        """A host comes over TLS, sends commands, and goes."""
        t = self.t
        at = {**t.listen_address(), "trsvcid": str(t.port + 11)}
        say(t, "keyring_file_add_key", name="psk", path=str(t.psk))
        say(t, "bdev_malloc_create", name="M", block_size=512, num_blocks=16384)
        say(t, "nvmf_create_subsystem", nqn=VICTIM, serial_number="V2")
        say(t, "nvmf_subsystem_add_listener", nqn=VICTIM, listen_address=at, secure_channel=True)
        say(t, "nvmf_subsystem_add_ns", nqn=VICTIM, namespace={"bdev_name": "M", "nsid": 1})
        say(t, "nvmf_subsystem_add_host", nqn=VICTIM, host=VICTIM + ":h", psk="psk")
        say(t.initiator, "bdev_nvme_attach_controller", name="R", **at, subnqn=VICTIM, num_io_queues=1, hostnqn=VICTIM + ":h", psk="psk")
        for _ in range(4):
            self.reserve(say, REPORT, 1023)
        self.detach(say)
        wait_for(lambda: t.process.poll() is not None or self.is_gone(), "the host's connections to be gone")


CALLS = (("socket", "listen.c"), ("setsockopt", "listen.c"), ("bind", "listen.c"), ("listen", "listen.c"), ("getaddrinfo", "listen.c"),
         ("accept4", "listen.c"), ("setsockopt", "qpair.c"), ("getsockname", "qpair.c"), ("getnameinfo", "qpair.c"), ("epoll_ctl", "qpair.c"),
         ("epoll_wait", "group.c"), ("recvmsg", "receiver.c"), ("sendmsg", "send.c"), ("send", "send.c"), ("shutdown", "close.c"), ("epoll_ctl", "close.c"),
         ("recvmsg", "kernel.c"), ("malloc", "close.c"), ("malloc", "qpair.c"), ("calloc", "qpair.c"), ("calloc", "request.c"), ("send", "session.c"), ("recv", "session.c"), ("setsockopt", "handshake.c"),
         ("recv", "handshake.c"), ("calloc", "session.c"), ("malloc", "session.c"), ("setsockopt", "kernel.c"),
         *KERNEL_CALLS)


def test_a_fault_at_every_site_of_a_target_over_tcp_harms_nobody_else():
    names = sweep(FaultyTcp, TcpScenario)
    missing = [c for c in CALLS if not any(re.match(rf"{c[0]} in \S+ {c[1]}:", n) for n in names)]
    check(not missing, f"no scenario comes by {missing}")


class FaultyWithoutCopies(FaultyTcp):
    """Large data are sent without a copy, all the time."""
    libraries = (NEVER_COPIED,)


class ScenarioWithoutCopies(TcpScenario):
    ALL = ("host", "killed", "removed")


ZEROCOPY_CALLS = (("calloc", "zerocopy.c"), ("setsockopt", "zerocopy.c"), ("sendmsg", "zerocopy.c"), ("recvmsg", "zerocopy.c"), ("sendmsg", "send.c"))


def test_a_fault_at_every_site_of_a_target_that_does_not_copy_harms_nobody_else():
    with tempfile.TemporaryDirectory(prefix="varve-test-") as folder:
        FaultyWithoutCopies.options = ("-c", configured(pathlib.Path(folder), 4096))
        names = sweep(FaultyWithoutCopies, ScenarioWithoutCopies)
    missing = [c for c in ZEROCOPY_CALLS if not any(re.match(rf"{c[0]} in \S+ {c[1]}:", n) for n in names)]
    check(not missing, f"no scenario comes by {missing}")


if __name__ == "__main__":
    main(sys.modules[__name__])
