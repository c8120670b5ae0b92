#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# apart
"""The keys and types of answers, as an SPDK target gives them and its clients decode them.

stock_answers.json has them, by method, and perhaps the name of a parameter that is true: a type (string, integer, bool), an object, or an array whose elements all
have one shape. A key that ends in `?` is not in every element there. Answers of ours may have more keys. The node below has something of each kind: an array of the
table that is not empty is not empty everywhere in the answer, and each key with `?` is somewhere."""
import base64
import json
import os
import sys
import zlib

from appliance_lib import TOP, check, main, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT, Host, Target, wait_io

TYPES = {"string": str, "integer": int, "bool": bool}
PARAMS = {"bdev_get_iostat per_channel": {"name": "M0"}, "bdev_get_histogram": {"name": "M0"}, "nvmf_subsystem_get_listeners": {"nqn": NQN}, "nvmf_subsystem_get_controllers": {"nqn": NQN},
          "nvmf_subsystem_get_qpairs": {"nqn": NQN}}

SECRET = bytes(range(32))
KEY = f"DHHC-1:00:{base64.b64encode(SECRET + zlib.crc32(SECRET).to_bytes(4, 'little')).decode()}:"

# Lists that are empty here, and why: doc/compat.md says the same. If there is something in one, it has that shape; unittest/thread/test_pollers_rpc.c makes one.
EMPTY = {"thread_get_pollers.threads[].timed_pollers": "what waits for a time is a timer"}

# What SPDK's answers have and ours have not, and why: doc/compat.md says the same.
LACKING = {
    "accel_get_opc_assignments": "there is no accel framework",
}


def faults(wanted, got, at, filled):
    """What is wrong with an answer, as texts. filled: shapes of arrays of which there was an element, and objects with their keys that were there."""
    if isinstance(wanted, str):
        return [] if type(got) is TYPES[wanted] else [f"{at} is {json.dumps(got)}: no {wanted}"]
    if type(got) is not type(wanted):
        return [f"{at} is {json.dumps(got)}"]
    if isinstance(wanted, list):
        if wanted and got:
            filled.add(id(wanted))
        return [f for i, x in enumerate(got) if wanted for f in faults(wanted[0], x, f"{at}[{i}]", filled)]
    found = []
    for key, shape in wanted.items():
        name = key.rstrip("?")
        if name in got:
            filled.add((id(wanted), key))
            found += faults(shape, got[name], f"{at}.{name}", filled)
        elif key == name:
            found.append(f"{at} has no {name}")
    return found


def never_filled(wanted, at, filled):
    """The arrays of which there was no element, and the keys that were nowhere."""
    if at in EMPTY:
        return []
    if isinstance(wanted, dict):
        nowhere = [key for key in wanted if key.endswith("?") and (id(wanted), key) not in filled]
        return [f"{at}.{key} was nowhere" for key in nowhere] + [x for key, shape in wanted.items() if key not in nowhere
                                                                   for x in never_filled(shape, f"{at}.{key.rstrip('?')}", filled)]
    if isinstance(wanted, list) and wanted:
        return ([] if id(wanted) in filled else [f"{at} was always empty"]) + never_filled(wanted[0], f"{at}[]", filled)
    return []


def all_faults(wanted, got, at):
    filled = set()
    return faults(wanted, got, at, filled) or never_filled(wanted, at, filled)


def make_one_of_each(t, back):
    back.add_malloc("B0")
    back.add_ns("B0", nsid=1)
    back.call("nvmf_discovery_add_referral", address={**back.listen_address(), "trsvcid": "9"}, secure_channel=False)
    key = t.folder / "key"
    key.write_text(KEY)
    os.chmod(key, 0o600)
    t.call("keyring_file_add_key", name="key0", path=str(key))
    t.call("bdev_nvme_attach_controller", name="Nvme0", **back.listen_address(), subnqn=NQN)
    t.call("bdev_nvme_start_discovery", name="d", **back.listen_address())
    wait_for(lambda: t.call("bdev_nvme_get_discovery_info")[0]["referrals"], "the referral")
    t.add_ns("Nvme0n1", nsid=2)
    t.add_malloc("M0")
    t.add_ns("M0", nsid=1)
    t.call("bdev_malloc_create", name="PI", num_blocks=64, block_size=512, md_size=8, md_interleave=True, dif_type=1)
    with open(t.folder / "file", "wb") as f:
        f.truncate(1 << 20)
    t.call("bdev_uring_create", name="U", filename=str(t.folder / "file"), block_size=512)
    t.call("bdev_null_create", name="N", num_blocks=64, block_size=512, preferred_write_granularity=1, preferred_write_alignment=2, optimal_write_size=3,
           preferred_unmap_granularity=4, preferred_unmap_alignment=5)
    t.add_malloc("LB", mb=64)
    t.call("bdev_lvol_create_lvstore", bdev_name="LB", lvs_name="lvs")
    t.call("bdev_lvol_create", lvs_name="lvs", lvol_name="v", size_in_mib=8, thin_provision=True)
    t.call("bdev_error_create", base_name="N")
    t.call("bdev_delay_create", name="D", base_bdev_name="EE_N", avg_read_latency=1, p99_read_latency=1, avg_write_latency=1, p99_write_latency=1)
    t.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN)
    t.call("nvmf_discovery_add_referral", address={"trtype": "RDMA", "adrfam": "IPv4", "traddr": ADDRESS, "trsvcid": "9"})
    t.call("bdev_enable_histogram", name="M0", enable=True)


def test_the_checker_finds_what_is_wrong():
    shape = {"a": "integer", "b?": "string", "c": [{"d": "bool"}]}
    good = {"a": 1, "b": "text", "c": [{"d": True, "more": None}], "more": 1}
    check(not all_faults(shape, good, "x"), all_faults(shape, good, "x"))
    check(all_faults(shape, {"a": 1, "c": [{"d": True}]}, "x") == ["x.b? was nowhere"], "a key that may be missing, but not everywhere")
    check(not all_faults([shape], [good, {"a": 1, "c": []}], "x"), "once is enough")
    for change in ({"a": True}, {"a": "1"}, {"b": 1}, {"c": []}, {"c": [{}]}, {"c": [{"d": 0}]}, {"c": {}}, {"c": [{"d": True}, {}]}):
        check(len(all_faults(shape, {**good, **change}, "x")) == 1, f"{change} is not found")
    check(all_faults(shape, {"c": [{"d": True}]}, "x") == ["x has no a"], "a missing key")


def ask(t, key):
    method, *switches = key.split()
    return t.call(method, **PARAMS.get(key, {}), **dict.fromkeys(switches, True))


class WithPci(Target):
    """Tests leave the machine's PCI devices alone; to list them does them no harm."""
    base = [x for x in Target.base if x != "--no-pci"]


def test_answers_have_the_keys_and_types_that_clients_decode():
    table = json.loads((TOP / "systest/stock_answers.json").read_text())
    if not os.path.isdir("/sys/bus/pci/devices") or not os.listdir("/sys/bus/pci/devices"):
        del table["framework_get_pci_devices"]      # there is none to look at
    with Target(port=PORT + 20000) as back, WithPci() as t:
        make_one_of_each(t, back)
        with Host(t, "-w", "randread", "-q", "4", "-t", "600") as h:
            wait_io(t, [h])
            found = [f for key, shape in table.items() for f in all_faults(shape, ask(t, key), key)]
        check(not found, "\n".join(found))
        methods = t.call("rpc_get_methods")
        check(not set(LACKING) & set(methods), f"they are there now: move them to the table: {set(LACKING) & set(methods)}")


def test_a_size_that_changes_is_told():
    with Target() as t:
        t.call("bdev_null_create", name="N", num_blocks=64, block_size=512)
        t.call("bdev_null_resize", name="N", new_size=2)
        t.call("nvmf_create_subsystem", nqn=NQN + ":more", serial_number="1")
        check(t.call("notify_get_types") == ["bdev_register", "bdev_unregister", "bdev_resize"], "the types that clients know")
        common = t.call("notify_get_notifications")
        check([(n["type"], n["ctx"], n["id"]) for n in common] == [("bdev_register", "N", 0), ("bdev_resize", "N", 1)], common)
        check([n["type"] for n in t.call("notify_get_notifications", all=True)][-1] == "nvmf_subsystem_create", "all of them")


if __name__ == "__main__":
    main(sys.modules[__name__])
