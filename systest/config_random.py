#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 600
# once
# beside
"""Random valid configurations, saved, loaded into a fresh daemon and saved again, are the same. $VARVE_SEED repeats a run.

Every method that changes what is saved takes part, and every call that a saved file can have is in one that was loaded."""
import json
import os
import random
import re
import sys
import time

from appliance_lib import TOP, Daemon, check, main
from config_random_lib import Back, Maker, start
from config_random_lib import saved as saved_calls
from module_lib import of_modules
from nvmf_lib import preload
from stock_lib import check_stock_takes

SECONDS = 12        # no new round begins after that, if nothing is missing
ROUNDS = 20         # by then nothing may be missing

# Methods that change nothing that is saved, beside those that only tell something: what they set belongs to the moment.
PASSING = {
    *(method for passing in of_modules("PASSING") for method in passing), "bdev_examine", "bdev_wait_for_examine", "bdev_reset_iostat",
    "bdev_nvme_add_error_injection", "bdev_nvme_remove_error_injection", "bdev_nvme_reset_controller", "bdev_nvme_send_cmd", "nvmf_publish_mdns_prr", "nvmf_stop_mdns_prr",
    "bdev_nvme_disable_controller", "bdev_nvme_enable_controller", "bdev_own", "bdev_disown",
    "nvmf_subsystem_reset_controller",
    "bdev_nvme_set_preferred_path",     # names a controller id, which is another after the next connect
    "framework_start_init", "framework_wait_init", "framework_hand_over", "spdk_kill_instance", "framework_enable_cpumask_locks", "framework_disable_cpumask_locks", "rpc_describe_methods",
    "log_clear_flag", "log_enable_timestamps", "log_set_flag", "log_set_level", "log_set_print_level", "thread_set_cpumask",
    "accel_set_options", "bdev_iscsi_set_options", "bdev_raid_set_options",     # no effect
    "framework_monitor_context_switch", "trace_clear", "trace_clear_tpoint_mask", "trace_disable_tpoint_group", "trace_enable_tpoint_group", "trace_set_tpoint_mask",
}

ELSEWHERE = {method for elsewhere in of_modules("ELSEWHERE") for method in elsewhere}


def tells_only(method):
    return "_get_" in method


def written_methods(known):
    """What a saved file can have: the methods that the writers in the source name."""
    names = set()
    for source in [*TOP.glob("rpc_methods/*.c"), *TOP.glob("bdev_modules/*/*.c"), *TOP.glob("appliance/*.c")]:
        for call in re.findall(r"rpc_config_add\(methods,[^;]*;", source.read_text()):
            names.update(n for n in re.findall(r'"(\w+)"', call) if n in known)
    check(len(names) > 20, f"the writers in the source are written otherwise now: {names}")
    return names


def save(d):
    status, out, err = d.rpc("save_config")
    check(status == 0, err)
    return out


def entries(text):
    tree = json.loads(text)
    return [e for s in tree["subsystems"] + tree.get("varve", []) for e in s["config"]]


OVER_TCP = {f"{what} over TCP" for what in ("nvmf_create_transport", "nvmf_subsystem_add_listener", "secure nvmf_subsystem_add_listener",
                                            "bdev_nvme_attach_controller", "bdev_nvme_start_discovery")}


def over_tcp(entries):
    """Those of OVER_TCP that a file has."""
    for e in entries:
        p = e.get("params") or {}
        if "TCP" in (p.get("trtype"), p.get("listen_address", {}).get("trtype")):
            yield f"{'secure ' if p.get('secure_channel') else ''}{e['method']} over TCP"


class Round:
    """One configuration: how many calls it took, the methods that had an effect, and those that the file has, also over TCP."""

    def __init__(self, seed):
        rng = random.Random(seed)
        with Daemon("-m", "[0-1]", "-s", "512", "--wait-for-rpc", ready=False, env=preload()) as d:
            settings = start(d, rng)
            maker = Maker(d, rng)
            maker.run()
            saved = save(d)
            settings.check_saved([e for config in saved_calls(d).values() for e in config])
            check_stock_takes(json.loads(saved))
            config = d.folder / "config.json"
            config.write_text(saved)
            check(d.stop() == 0, d.log())       # gives its ports back
            self.load(config, saved, seed)
        self.calls, self.effective, self.written = maker.made, maker.effective | set(settings.calls), {e["method"] for e in entries(saved)}
        self.over_tcp = set(over_tcp(entries(saved)))
        self.methods = set(maker.params)

    def load(self, config, saved, seed):
        with Daemon("-m", "[0-1]", "-s", "512", "-c", config, env=preload()) as other:
            again = save(other)
            if again != saved:
                different = [(a, b) for a, b in zip(entries(saved), entries(again)) if a != b]
                check(False, f"seed {seed}: {len(entries(saved))} and {len(entries(again))} calls; first: {different[:1]}")
            check(other.stop() == 0, f"seed {seed}: {other.log()}")


def test_saving_loading_and_saving_random_configurations_gives_the_same():
    given = os.environ.get("VARVE_SEED")
    seed = int(given) if given else random.SystemRandom().getrandbits(32)
    end, rounds, missing = time.monotonic() + SECONDS, [], ()
    with Back():
        while not rounds or not given and (missing and len(rounds) < ROUNDS or time.monotonic() < end):
            print(f"# seed {seed}{', for: ' if missing else ''}{', '.join(sorted(missing))}", flush=True)
            rounds.append(Round(seed))
            seed += 1
            methods = rounds[-1].methods
            effective, written = set.union(*(r.effective for r in rounds)), set.union(*(r.written for r in rounds))
            missing = ({m for m in methods - effective - PASSING if not tells_only(m)} | written_methods(methods) - written) - ELSEWHERE
            missing |= OVER_TCP.difference(*(r.over_tcp for r in rounds))
    print(f"# {len(rounds)} configurations of {sum(r.calls for r in rounds)} calls; {len(effective)} methods changed them: {' '.join(sorted(effective))}")
    print(f"# {len(written)} methods were loaded: {' '.join(sorted(written))}")
    check(not effective & PASSING, f"these change what is saved: {effective & PASSING}")
    check(given or not missing, f"these never did what they should have: {missing}")


if __name__ == "__main__":
    main(sys.modules[__name__])
