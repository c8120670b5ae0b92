#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 1200
# once
# long
# beside
"""A store of 1000 volumes, clones of a few images, served to hosts over RDMA and TCP: some of them do verified I/O, at a bounded rate, while their
volumes get snapshots and clones and grow, and other hosts see the new sizes. Then the daemon is killed, and all is there again."""
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from appliance_lib import check, main, wait_for
from lvol_format_lib import LvolImage
from nvmf_lib import ADDRESS, NQN, PORT, Host, Target, wait_io
from nvmf_tcp_lib import Queue

MIB = 1 << 20
IMAGES, CLONES = 10, 990
SUBSYSTEMS = [(trtype, i) for trtype in ("RDMA", "TCP") for i in range(4)]
PORTS = {"RDMA": PORT, "TCP": PORT + 1}
BUSY = [(trtype, i) for trtype in ("RDMA", "TCP") for i in range(2)]       # subsystems of whose first namespace a host uses 1 MiB
ROUNDS, RATE = 3, 300


def nqn(which):
    return f"{NQN}:{which[0]}{which[1]}".lower()


def address(which):
    return {"trtype": which[0], "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": str(PORTS[which[0]])}


def trid(which):
    return f"trtype:{which[0]} adrfam:IPv4 traddr:{ADDRESS} trsvcid:{PORTS[which[0]]} subnqn:{nqn(which)}"


def start(path, more=()):
    """A target with the store's bdev and all subsystems, without namespaces."""
    d = Target(*more)
    try:
        d.call("nvmf_create_transport", trtype="TCP")
        d.call("bdev_uring_create", name="A0", filename=str(path), block_size=4096)
        d.call("bdev_wait_for_examine")
        for which in SUBSYSTEMS:
            d.call("nvmf_create_subsystem", nqn=nqn(which), allow_any_host=True, serial_number="V1", max_namespaces=256)
            d.call("nvmf_subsystem_add_listener", nqn=nqn(which), listen_address=address(which))
    except BaseException:
        d.__exit__()
        raise
    return d


def text(image):
    return bytes([image + 1, 0xA5]) * (4 * 4096 // 2)


def make_volumes(d):
    d.call("bdev_lvol_create_lvstore", bdev_name="A0", lvs_name="lvs", cluster_sz=65536)
    for i in range(IMAGES):
        d.call("bdev_lvol_create", lvs_name="lvs", lvol_name=f"image{i}", size_in_mib=4, thin_provision=True)
        nsid = d.add_ns(f"lvs/image{i}", nqn=nqn(("TCP", 0)))
        with Queue(port=PORTS["TCP"], nqn=nqn(("TCP", 0))) as admin:
            admin.enable()
            with Queue(port=PORTS["TCP"], nqn=nqn(("TCP", 0)), qid=1, cntlid=admin.cntlid) as queue:
                for lba in (0, 512, 1020):
                    check(queue.write(lba, text(i), 4096, nsid, in_capsule=False).status == 0, "a write of an image")
        d.remove_ns(nsid, nqn=nqn(("TCP", 0)))
        d.call("bdev_lvol_set_read_only", name=f"lvs/image{i}")
    for i in range(CLONES):
        d.call("bdev_lvol_clone", snapshot_name=f"lvs/image{i % IMAGES}", clone_name=f"c{i}")


def serve_all(d):
    for i in range(CLONES):
        d.add_ns(f"lvs/c{i}", nqn=nqn(SUBSYSTEMS[i % len(SUBSYSTEMS)]), nsid=i // len(SUBSYSTEMS) + 1)


def check_clones(numbers):
    """Of clones of subsystem TCP 0: that they hold what their image does."""
    which = ("TCP", 0)
    with Queue(port=PORTS["TCP"], nqn=nqn(which)) as admin:
        admin.enable()
        with Queue(port=PORTS["TCP"], nqn=nqn(which), qid=1, cntlid=admin.cntlid) as queue:
            for i in numbers:
                check(SUBSYSTEMS[i % len(SUBSYSTEMS)] == which, i)
                nsid = i // len(SUBSYSTEMS) + 1
                check(queue.read(1020, 4, 4096, nsid).data == text(i % IMAGES), f"c{i} differs from its image")
                check(queue.read(600, 4, 4096, nsid).data == bytes(4 * 4096), f"c{i} has data in a hole")


def volume_of(which):
    return SUBSYSTEMS.index(which)


@contextlib.contextmanager
def front():
    """A host of all busy subsystems: each namespace is a bdev there."""
    with Target(cores="[1]", port=PORT + 20000) as f:
        for which in BUSY:
            f.call("bdev_nvme_attach_controller", name=f"{which[0]}{which[1]}", subnqn=nqn(which), **address(which))
        yield f


def bytes_seen(f, which):
    [b] = f.call("bdev_get_bdevs", name=f"{which[0]}{which[1]}n1")
    return b["num_blocks"] * b["block_size"]


def change_under_load(d, f, hosts):
    for n in range(ROUNDS):
        for which in BUSY:
            name = f"c{volume_of(which)}"
            d.call("bdev_lvol_snapshot", lvol_name=f"lvs/{name}", snapshot_name=f"{name}-s{n}")
            d.call("bdev_lvol_clone", snapshot_name=f"lvs/{name}-s{n}", clone_name=f"{name}-c{n}")
            d.call("bdev_lvol_resize", name=f"lvs/{name}", size_in_mib=5 + n)
            wait_for(lambda which=which, n=n: bytes_seen(f, which) == (5 + n) * MIB, f"the host of {nqn(which)} to see {5 + n} MiB")
            if n > 0:
                d.call("bdev_lvol_delete", name=f"lvs/{name}-c{n - 1}")
                d.call("bdev_lvol_delete", name=f"lvs/{name}-s{n - 1}")
        wait_io(d, hosts)


def ledger(folder, which):
    return Path(folder) / f"ledger{volume_of(which)}"


def busy_host(d, folder, which):
    return Host(d, "-r", trid(which), "-w", "randrw", "--verify", "--region", "1M", "-q", "8", "--rate", str(RATE), "-t", "3600", "--ledger", str(ledger(folder, which)), nsid=1)


def check_after_a_kill(path, folder):
    with start(path) as d:
        names = {v["name"]: v for v in d.call("bdev_lvol_get_lvols")}
        check(len(names) == IMAGES + CLONES + 2 * len(BUSY), f"{len(names)} volumes")
        serve_all(d)
        for which in BUSY:
            with Host(d, "-r", trid(which), "--check-ledger", str(ledger(folder, which)), nsid=1) as reader:
                result = reader.result()
            check(result["errors"] == 0 and result["miscompares"] == 0 and result["read"]["ios"] > 0, f"{result}\n{reader.errors.read_text()}")
            [b] = d.call("bdev_get_bdevs", name=f"lvs/c{volume_of(which)}")
            check(b["num_blocks"] * b["block_size"] == (4 + ROUNDS) * MIB, b)
        check_clones(range(4 + 8, CLONES, 80))
        check(d.stop() == 0, d.log())
    store = LvolImage(path)
    check(not store.faults and set(store.volumes) == set(names), store.faults[:5])


def test_a_thousand_volumes_are_served_while_they_change():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with open(path, "wb") as file:
            file.truncate(1024 * MIB)
        with start(path) as d:
            make_volumes(d)
            serve_all(d)
            check(len(d.call("bdev_lvol_get_lvols")) == IMAGES + CLONES, "all are there")
            check_clones(range(4, CLONES, 80))
            with contextlib.ExitStack() as stack:
                hosts = [stack.enter_context(busy_host(d, folder, which)) for which in BUSY]
                wait_io(d, hosts, more=1500)
                f = stack.enter_context(front())
                change_under_load(d, f, hosts)
                for host in hosts:
                    host.check_perfect(host.stop())
            check_clones(range(4 + 8, CLONES, 80))
            d.stop(signal.SIGKILL)
        check_after_a_kill(path, folder)


if __name__ == "__main__":
    main(sys.modules[__name__])
