#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 300
# sanitize
"""Statistics by path, and counts of errors by status: off unless the options ask for them; they agree with what the targets at the other ends have carried out."""
import sys

from appliance_lib import RpcError, check, main
from nvmf_lib import verifying
from bdev_nvme_tcp import Back, Front

CLASSES = ("read", "written", "read_ops", "write_ops")


def numbers(stat):
    return {"read": stat["bytes_read"], "written": stat["bytes_written"], "read_ops": stat["num_read_ops"], "write_ops": stat["num_write_ops"]}


def iostat(d, name, **params):
    return d.call("bdev_get_iostat", name=name, **params)["bdevs"][0]


def paths(f):
    """By port."""
    answer = f.call("bdev_nvme_get_path_iostat", name="Nvme0n1")
    check(answer["name"] == "Nvme0n1", answer)
    return {p["trid"]["trsvcid"]: p["stat"] for p in answer["stats"]}


def run(f, *args):
    with verifying(f, 1, "-q", "8", "--ios", "400", *args) as h:
        h.check_perfect(h.result())


def before_hosts(back):
    """What a target's bdev has done before a host came: new bdevs are read for volume stores."""
    back.call("bdev_wait_for_examine")
    return numbers(iostat(back, "F0"))


def check_paths(f, backs):
    """What each path counts is what its target has carried out for hosts; together it is what the bdev counts. backs: with what was before hosts came."""
    found = paths(f)
    check(set(found) == {str(b.port) for b in backs}, found)
    for b, before in backs.items():
        mine, its = found[str(b.port)], iostat(b, "F0")
        check(numbers(mine) == {k: n - before[k] for k, n in numbers(its).items()}, f"{b.port}: {mine}, {its}, {before}")
        check(mine["min_read_latency_ticks"] <= mine["max_read_latency_ticks"] <= mine["read_latency_ticks"], mine)
    whole = numbers(iostat(f, "Nvme0n1"))
    check({k: sum(numbers(p)[k] for p in found.values()) for k in CLASSES} == whole, f"{found}, {whole}")
    return found


def test_each_path_counts_what_its_target_carries_out():
    with Front() as f:
        disk = f.folder / "disk"
        with Back(0, disk) as a, Back(1, disk) as b:
            f.call("bdev_nvme_set_options", io_path_stat=True)
            backs = {back: before_hosts(back) for back in (a, b)}
            f.attach(a)
            f.attach(b)
            unused = f.call("bdev_nvme_get_io_paths", name="Nvme0n1")
            check(unused["poll_groups"] == [] and "while it uses it" in unused["hint"], unused)
            f.add_ns("Nvme0n1")
            run(f)
            check("hint" not in f.call("bdev_nvme_get_io_paths"), "there are paths")
            found = check_paths(f, backs)
            check(found[str(a.port)]["num_read_ops"] > 0 and found[str(b.port)]["num_read_ops"] == 0, f"active_passive: {found}")
            f.call("bdev_nvme_set_multipath_policy", name="Nvme0n1", policy="active_active")
            run(f, "-o", "16k")
            found = check_paths(f, backs)
            check(all(p["num_read_ops"] > 0 and p["num_write_ops"] > 0 for p in found.values()), f"active_active: {found}")
            f.remove_ns(1)
            check(check_paths(f, backs) == found, "channels that are closed leave their numbers")
            saved = [m["params"] for m in f.call("framework_get_config", name="bdev") if m["method"] == "bdev_nvme_set_options"][0]
            check(saved["io_path_stat"] is True and saved["nvme_error_stat"] is False, saved)


def test_errors_are_counted_by_status():
    with Front() as f, Back(0) as b:
        f.call("bdev_nvme_set_options", nvme_error_stat=True)
        f.attach(b)
        f.add_ns("Nvme0n1")
        check(iostat(f, "Nvme0n1")["driver_specific"] == {"nvme_error": {"status_type": {}, "status_code": {}}}, iostat(f, "Nvme0n1"))
        # Those that are repeated count, although no I/O fails.
        f.call("bdev_nvme_add_error_injection", name="Nvme0", cmd_type="io", opc=2, err_count=3, sct=0, sc=0x22)
        run(f)
        errors = iostat(f, "Nvme0n1", reset_mode="maxmin")["driver_specific"]["nvme_error"]
        check(errors == {"status_type": {"generic": 3}, "status_code": {"command_transient_transport_error": 3}}, errors)
        check(iostat(f, "Nvme0n1")["driver_specific"]["nvme_error"] == errors, "maxmin leaves errors as they are")
        check(iostat(f, "Nvme0n1", reset_mode="error")["driver_specific"]["nvme_error"] == errors, "told, and then reset")
        check(iostat(f, "Nvme0n1")["driver_specific"]["nvme_error"] == {"status_type": {}, "status_code": {}}, "reset")


def test_without_the_options_there_is_nothing():
    with Front() as f, Back(0) as b:
        f.attach(b)
        check(iostat(f, "Nvme0n1")["driver_specific"] == {}, iostat(f, "Nvme0n1"))
        f.add_malloc("M0")
        for name, code, words in (("Nvme0n1", -1, "io_path_stat"), ("M0", -19, "no bdev of an NVMe controller"), ("none", -19, "none")):
            try:
                f.call("bdev_nvme_get_path_iostat", name=name)
            except RpcError as e:
                check(e.code == code and words in str(e), f"{name}: {e}")
            else:
                check(False, f"{name} was answered")


if __name__ == "__main__":
    main(sys.modules[__name__])
