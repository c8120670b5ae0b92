# SPDX-License-Identifier: BSD-3-Clause
"""What hosts cost the target when they do nothing, over softverbs on one core without hugepages:

    idle.hosts64_cpu_percent            of one CPU, all of the target's threads; 64 hosts, keep-alives only (every 5 s each)
    nvmf.group_mb                       what the first connection of a poll group adds to its resident memory
    nvmf.connection_kb                  what each further one adds
    nvmf.connections1000_mb             the target's resident memory with 1000 connections"""
import pathlib
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "systest"))
from nvmf_lib import Host, Target  # noqa: E402
from appliance_lib import wait_for  # noqa: E402

IDLE_SECONDS = 20
HOSTS, CONNECTIONS = 64, 1000


def cpu_seconds(pid):
    """Of all its threads: nanoseconds on a CPU, in the first field."""
    tasks = pathlib.Path(f"/proc/{pid}/task")
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks.iterdir()) / 1e9


def resident_mb(target):
    stats = target.call("env_dpdk_get_mem_stats")
    pathlib.Path(stats["filename"]).unlink(missing_ok=True)
    return stats["resident_bytes"] / 2**20


def make_target(**transport):
    t = Target(**transport)
    t.call("bdev_null_create", name="N0", block_size=512, num_blocks=1 << 22)
    t.add_ns("N0", nsid=1)
    return t


def connected(target, qpairs, *args):
    host = Host(target, "-w", "none", "-t", "600", *args)
    wait_for(lambda: target.num_qpairs() == qpairs, f"{qpairs} queue pairs", 120)
    return host


def idle():
    with make_target() as t:
        more = [x for _ in range(HOSTS - 1) for x in ("-r", t.trid())]
        with connected(t, 2 * HOSTS, "-r", t.trid(), *more):
            before, start = cpu_seconds(t.pid), time.monotonic()
            time.sleep(IDLE_SECONDS)
            used = (cpu_seconds(t.pid) - before) / (time.monotonic() - start)
        print(f"idle.hosts{HOSTS}_cpu_percent {used * 100:.3f} %", flush=True)


def memory():
    with make_target(max_io_qpairs_per_ctrlr=CONNECTIONS) as t:
        empty = resident_mb(t)
        with connected(t, 2, "-q", "16"):
            one = resident_mb(t)
        wait_for(lambda: t.num_qpairs() == 0, "the host to be gone")
        with connected(t, CONNECTIONS, "-q", "16", "-P", str(CONNECTIONS - 1)):
            all_of_them = resident_mb(t)
            told = t.call("nvmf_get_stats")["poll_groups"][0]["transports"][0]
    print(f"nvmf.group_mb {one - empty:.1f} MB")
    print(f"nvmf.connection_kb {(all_of_them - one) * 1024 / (CONNECTIONS - 2):.1f} kB")
    print(f"nvmf.connections{CONNECTIONS}_mb {all_of_them:.1f} MB")
    print(f"# nvmf_get_stats: group_bytes {told['group_bytes']}, connection_bytes {told['connection_bytes']} of "
          f"{told['connections']}", file=sys.stderr)


idle()
memory()
