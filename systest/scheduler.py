#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 600
# sanitize
# beside
"""The dynamic scheduler: its options, what it refuses, what is saved; threads that move when the load changes, under verified I/O; operators' masks that
it keeps to; two clients that change it at once, and a varve that stops meanwhile."""
import json
import subprocess
import sys
import threading

from appliance_lib import BUILD, DEADLINE, Daemon, Failure, RpcError, Skip, check, main, wait_for
from nvmf_lib import NUM_CPUS, Target, verifying, wait_io

STATIC = {"scheduler_name": "static", "scheduler_period": 0, "isolated_core_mask": "0", "scheduling_core": 0}
USUAL = {"load_limit": 20, "core_limit": 80, "core_busy": 95}
ROUNDS = 6
# Any load is much, so the groups part as soon as both have a little to do: independent of how fast this machine is.
EAGER = {"name": "dynamic", "period": 10000, "load_limit": 0, "core_limit": 0, "core_busy": 0}
LAZY = {"name": "dynamic", "period": 10000, **USUAL}


def refused(d, method, code, *words, **params):
    try:
        answer = d.call(method, **params)
    except RpcError as e:
        check(e.code == code and all(w in e.message for w in words), f"{method} {params}: {e.code} {e.message}")
        return
    check(False, f"{method} {params} answered {answer}")


def test_options_are_checked_and_kept():
    with Daemon("-m", "[0-1]") as d:
        check(d.call("framework_get_scheduler") == STATIC, d.call("framework_get_scheduler"))
        refused(d, "framework_set_scheduler", -22, "gscheduler", "Invalid argument", "static and dynamic", name="gscheduler")
        refused(d, "framework_set_scheduler", -32602, "name")
        for limit in USUAL:
            refused(d, "framework_set_scheduler", -32602, limit, "101", "0 to 100", name="dynamic", **{limit: 101})
        for period in (1, 999, 86400000001):
            refused(d, "framework_set_scheduler", -32602, "period", str(period), name="dynamic", period=period)
        refused(d, "scheduler_set_options", -1, scheduling_core=1)      # too late
        check(d.call("framework_get_scheduler") == STATIC, "what was refused has changed something")
        check(d.call("framework_set_scheduler", name="dynamic", core_limit=70) is True, "dynamic")
        now = {**STATIC, **USUAL, "scheduler_name": "dynamic", "scheduler_period": 1000000, "core_limit": 70}
        check(d.call("framework_get_scheduler") == now, d.call("framework_get_scheduler"))
        check(d.call("framework_set_scheduler", name="dynamic", period=50000) is True, "what is not given stays")
        check(d.call("framework_get_scheduler") == {**now, "scheduler_period": 50000}, d.call("framework_get_scheduler"))
        check(d.call("framework_set_scheduler", name="static", mappings="1:0") is True and '"mappings" has no effect' in d.log(), d.log())
        check(d.call("framework_get_scheduler") == STATIC, "back to what it was")


def test_it_is_saved_and_loaded():
    with Daemon("-m", "[0-1]", "--wait-for-rpc", ready=False) as d:
        wait_for(d.connect, "the RPC socket").close()
        for core, mask, words in ((2, None, ("scheduling_core", "2", "0-1")), (0, "0x1", ("scheduling_core", "0")), (0, "0x4", ("isolated_core_mask", "0x4")),
                                  (1, "0x2", ("scheduling_core", "1")), (0, "x", ("isolated_core_mask",))):
            refused(d, "scheduler_set_options", -32602, *words, scheduling_core=core, **({"isolated_core_mask": mask} if mask else {}))
        check(d.call("framework_get_scheduler") == STATIC, "what was refused has changed something")
        check(d.call("scheduler_set_options", isolated_core_mask="0x2") is True, "isolated")
        check(d.call("scheduler_set_options", isolated_core_mask="0", scheduling_core=1) is True, "another core")
        d.call("framework_set_scheduler", name="dynamic", period=20000, load_limit=5)
        d.call("framework_start_init")
        d.call("framework_wait_init")
        before = d.call("framework_get_scheduler")
        check(before["scheduling_core"] == 1 and before["load_limit"] == 5 and before["isolated_core_mask"] == "0", before)
        status, text, err = d.rpc("save_config")
        check(status == 0, err)
        path = d.folder / "saved.json"
        path.write_text(text)
        with Daemon("-m", "[0-1]", "-c", path) as again:
            check(again.call("framework_get_scheduler") == before, again.call("framework_get_scheduler"))
            check(json.loads(again.rpc("save_config")[1]) == json.loads(text), "saved again")
            wait_for(lambda: lcores(again) == [1, 1], lambda: f"idle threads to gather on core 1: {lcores(again)}")


def groups(d):
    """The poll groups, by name."""
    return sorted((x for x in d.call("thread_get_stats", detail=True)["threads"] if x["lcore"] is not None), key=lambda x: x["name"])


def lcores(d):
    return [x["lcore"] for x in groups(d)]


def bring_together(t):
    """By their masks, which then allow them both cores again: that moves no thread."""
    for mask in ("1", "3"):
        for x in groups(t):
            check(t.call("thread_set_cpumask", id=x["id"], cpumask=mask) is True, "the mask")


def two_busy_groups(t):
    """Until both have I/O queues with work."""
    before = {g["name"]: g["completed_nvme_io"] for g in t.call("nvmf_get_stats")["poll_groups"]}

    def done():
        now = {g["name"]: g["completed_nvme_io"] for g in t.call("nvmf_get_stats")["poll_groups"]}
        return all(now[name] >= n + 50 for name, n in before.items())
    wait_for(done, "both groups to have I/O")


def test_threads_move_when_the_load_changes_and_no_block_is_lost():
    if NUM_CPUS < 2:
        raise Skip("needs two CPUs")
    with Target(cores="[0-1]") as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        check(lcores(t) == [0, 1], lcores(t))
        t.call("framework_set_scheduler", **LAZY)
        wait_for(lambda: lcores(t) == [0, 0], lambda: f"idle threads to gather: {lcores(t)}")
        with verifying(t, 1, "-q", "8", "-t", "3600", "-P", "4", "--kato", "0") as h:
            wait_io(t, [h], 1000)
            two_busy_groups(t)
            for _ in range(ROUNDS):
                t.call("framework_set_scheduler", name="static")
                bring_together(t)
                check(lcores(t) == [0, 0], f"static: {lcores(t)}")
                wait_io(t, [h])
                t.call("framework_set_scheduler", **EAGER)
                wait_for(lambda: sorted(lcores(t)) == [0, 1], lambda: f"busy threads to part: {lcores(t)}")
                wait_io(t, [h])
            t.call("framework_set_scheduler", name="static")
            before = lcores(t)
            wait_io(t, [h], 1000)
            check(lcores(t) == before, "a thread has moved though the scheduler is static")
            h.check_perfect(h.stop())
        t.wait_empty()
        t.call("framework_set_scheduler", **LAZY)
        wait_for(lambda: lcores(t) == [0, 0], lambda: f"threads to gather when the hosts have gone: {lcores(t)}")
        check(all(x["cpumask"] == "3" for x in groups(t)), "the scheduler has changed a mask")
        t.stop_clean()


def test_masks_of_the_operator_are_kept_to():
    with Daemon("-m", "[0-1]") as d:
        first, second = groups(d)
        d.call("thread_set_cpumask", id=second["id"], cpumask="2")
        d.call("framework_set_scheduler", name="dynamic", period=1000)
        d.call("trace_set_tpoint_mask", name="scheduler", tpoint_mask=0xf)
        d.call("thread_set_cpumask", id=first["id"], cpumask="2")
        check(lcores(d) == [1, 1], "the mask moves it at once")
        d.call("thread_set_cpumask", id=first["id"], cpumask="3")
        wait_for(lambda: lcores(d) == [0, 1], lambda: f"the one that may to go back: {lcores(d)}")
        check([x["cpumask"] for x in groups(d)] == ["3", "2"], groups(d))
        p = subprocess.run([BUILD / "bin/varve-trace", "-f", d.trace_file], capture_output=True, text=True, check=False, timeout=DEADLINE)
        moves = [line for line in p.stdout.splitlines() if "SCHEDULER_MOVE_THREAD" in line and first["name"] in line]
        check(p.returncode == 0 and len(moves) >= 2, f"{moves} {p.stderr}")
        check(d.stop() == 0, d.log())


def test_context_switches_are_logged_while_that_is_asked_for():
    with Daemon("-m", "[0-1]") as d:
        check(d.call("framework_monitor_context_switch") == {"enabled": False}, "at first")
        check(d.call("framework_monitor_context_switch", enabled=True) == {"enabled": True}, "on")
        check(d.call("framework_monitor_context_switch") == {"enabled": True}, "it stays")

        def told():
            d.call("framework_get_reactors")        # wakes them
            return "voluntary context switches and" in d.log()
        wait_for(told, "a line about context switches")
        check(d.call("framework_monitor_context_switch", enabled=False) == {"enabled": False}, "off")
        check(d.stop() == 0, d.log())


def cpufreq(folder, cpus):
    """A folder like the kernel's, with a governor that takes a speed."""
    files = {"scaling_driver": "acpi-cpufreq", "scaling_governor": "schedutil", "scaling_available_governors": "performance userspace schedutil",
             "scaling_available_frequencies": "2400000 1800000 1200000", "scaling_min_freq": "1200000", "scaling_max_freq": "2400000",
             "scaling_cur_freq": "1800000", "scaling_setspeed": "<unsupported>"}
    for cpu in range(cpus):
        path = folder / f"cpu{cpu}" / "cpufreq"
        path.mkdir(parents=True)
        for name, text in files.items():
            (path / name).write_text(text + "\n")
    return folder


def test_the_frequency_of_cpus_goes_by_the_load_while_the_scheduler_is_dynamic():
    with Daemon("--wait-for-rpc", ready=False) as holder:
        folder = cpufreq(holder.folder / "sys", 2)

        def read(name):
            return [(folder / f"cpu{i}" / "cpufreq" / name).read_text().strip() for i in range(2)]
        with Daemon("-m", "[0-1]", env={"VARVE_SYSFS_CPU": str(folder)}) as d:
            check(d.call("framework_get_governor") == {} and read("scaling_governor") == ["schedutil"] * 2, "static: the kernel's")
            d.call("framework_set_scheduler", **LAZY)
            check("the dynamic scheduler governs the frequency of 2 CPUs, 1200000 to 2400000 kHz" in d.log(), d.log())
            check(d.call("framework_get_governor") == {"governor_name": "cpufreq", "module_specific": {"env": "acpi-cpufreq"}, "cores": [
                {"lcore_id": i, "current_frequency": 1800000} for i in range(2)]}, d.call("framework_get_governor"))
            check(d.call("framework_get_scheduler")["governor_name"] == "cpufreq", "named by the scheduler, too")
            check({r["core_freq"] for r in d.call("framework_get_reactors")["reactors"]} <= {2400, 1800, 1200}, "in MHz, as it was set")
            wait_for(lambda: read("scaling_setspeed") == ["1200000"] * 2, "idle CPUs to go down")
            d.call("framework_set_scheduler", **EAGER)  # any load is much
            wait_for(lambda: d.call("thread_get_stats") and "2400000" in read("scaling_setspeed"), "a CPU to go up")
            d.call("framework_set_scheduler", name="static")
            check(d.call("framework_get_governor") == {} and read("scaling_governor") == ["schedutil"] * 2, "given back")
            d.call("framework_set_scheduler", **LAZY)
            check(read("scaling_governor") == ["userspace"] * 2, "taken again")
            check(d.stop() == 0 and read("scaling_governor") == ["schedutil"] * 2, "given back at the end")
        with Daemon("-m", "[0-1]", env={"VARVE_SYSFS_CPU": str(folder / "none")}) as d:
            d.call("framework_set_scheduler", **LAZY)
            check(f"left to the kernel: {folder}/none/cpu0/cpufreq/scaling_governor: No such file" in d.log(), d.log())
            check(d.call("framework_get_governor") == {} and "governor_name" not in d.call("framework_get_scheduler"), "there is none")


def test_two_clients_change_it_at_once_while_hosts_do_io_and_varve_stops():
    if NUM_CPUS < 2:
        raise Skip("needs two CPUs")
    with Target(cores="[0-1]") as t:
        t.add_ns(t.add_malloc("M0"), nsid=1)
        wrong, stop = [], threading.Event()

        def change(calls):
            c = t.client()
            try:
                while not stop.is_set():
                    for method, params in calls:
                        c.call(method, **params)
            except (OSError, Failure, RpcError) as e:
                wrong.append(e)
            finally:
                c.close()
        ids = [x["id"] for x in groups(t)]
        clients = [threading.Thread(target=change, args=(calls,)) for calls in (
            [("framework_set_scheduler", {**EAGER, "period": 1000}), ("framework_get_scheduler", {}), ("framework_set_scheduler", {"name": "static"})],
            [("thread_set_cpumask", {"id": ids[0], "cpumask": "1"}), ("framework_set_scheduler", {**LAZY, "period": 1000}),
             ("thread_set_cpumask", {"id": ids[0], "cpumask": "3"}), ("thread_set_cpumask", {"id": ids[1], "cpumask": "2"}),
             ("thread_get_stats", {}), ("thread_set_cpumask", {"id": ids[1], "cpumask": "3"})])]
        with verifying(t, 1, "-q", "8", "-t", "3600", "-P", "4", "--kato", "0") as h:
            for c in clients:
                c.start()
            try:
                wait_io(t, [h], 5000)
            finally:
                stop.set()
                for c in clients:
                    c.join()
            check(not wrong, wrong)
            h.check_perfect(h.stop())
        t.wait_empty()
        t.call("framework_set_scheduler", **{**EAGER, "period": 1000})
        t.stop_clean()


if __name__ == "__main__":
    main(sys.modules[__name__])
