# SPDX-License-Identifier: BSD-3-Clause
"""A process that runs: the whole decision tree."""
from . import control, environment, rpc, work
from .report import Unable, seconds


def check_process(report, process):
    """False if it cannot answer anything."""
    if process.field("State")[:1] == "Z":
        report.found("process", "it is dead, and its parent has not fetched its status", f"ps -o ppid= -p {process.pid}")
        return False
    if process.field("CoreDumping") == "1":
        report.found("process", "it has crashed, and the kernel writes its core", f"wait until it is gone, then: varve-doctor -p {process.pid}")
        return False
    report.ok("process", f"runs for {seconds(process.age_s() * 1e6)}, {process.field('Threads')} threads, "
              f"{process.field('VmRSS') or '0 kB'} resident")
    return True


def check_work(report, process, client, options):
    """The checks by RPC. They end at the first call that is not answered."""
    old_us = int(options.age * 1e6)
    inflight = []
    checks = (("RPC calls", lambda r: control.check_calls(r, client, old_us)),
              ("states", lambda r: control.check_states(r, client)),
              ("reactors", lambda r: work.check_reactors(r, process, client, 1.0)),
              ("I/O", lambda r: inflight.extend(work.check_commands(r, process, client, old_us))),
              ("changes", lambda r: work.check_changes(r, client, old_us)),
              ("buffers", lambda r: work.check_buffers(r, client, inflight)),
              ("bdev I/O", lambda r: work.check_bdev_io(r, process, client, old_us, {x.get("object") for x in inflight})),
              ("controllers", lambda r: work.check_controllers(r, client)),
              ("stores", lambda r: work.check_stores(r, client)),
              ("rekeys", lambda r: work.check_rekeys(r, client)),
              ("integrity", lambda r: work.check_integrity(r, client)),
              ("tracing", lambda r: work.check_tracing(r, client)))
    for name, check in checks:
        try:
            work.ask(report, name, check)
        except rpc.NoAnswer as e:
            control.explain_silence(report, process, f"{name}: {e}")
            return


def examine(report, process, options):
    report.title = f"varve-doctor: process {process.pid}, {process.program}"
    if check_process(report, process):
        moving = control.check_threads(report, process)
        client = control.check_rpc(report, process, options.rpc_socket, options.wait)
        if client is not None and moving:
            check_work(report, process, client, options)
    for check in (environment.check_libraries, environment.check_hugepages, environment.check_cores):
        try:
            check(report, process)
        except (OSError, Unable) as e:
            report.unknown(check.__name__[len("check_"):].replace("_", " "), str(e))
    environment.check_probes(report, process)
    environment.check_shm(report, options.dir)
