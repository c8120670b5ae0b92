#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# needs: root gdb
# beside
# limit: 600
# sanitize
"""Encrypted bdevs with the whole daemon: what is in the file is what AES-XTS makes of it, as computed here from AES alone; hosts' data are right under and over volumes
and after a restart; and the key is nowhere but in the memory that is kept out of dumps."""
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from appliance_lib import DEADLINE, Daemon, RpcError, check, main, wait_for
from nvmf_tcp_lib import Queue, TcpTarget, disk, host

MIB = 1 << 20
BLOCK = 4096
SEED = int(os.environ.get("VARVE_SEED") or int.from_bytes(os.urandom(4), "little"))
SLOW = 300              # seconds that a gdb may take on a busy machine


def aes(key, data, decrypt=False):
    """Each 16 bytes of data by themselves."""
    p = subprocess.run(["openssl", "enc", f"-aes-{len(key) * 8}-ecb", "-K", key.hex(), "-nopad", *(["-d"] if decrypt else [])], input=data,
                       capture_output=True, timeout=DEADLINE, check=True)
    check(len(p.stdout) == len(data), p.stderr)
    return p.stdout


def masks(key2, lbas, block):
    """IEEE 1619: the encrypted number of the block, then for each next 16 bytes times x in GF(2^128)."""
    starts = aes(key2, b"".join(lba.to_bytes(16, "little") for lba in lbas))
    for i in range(0, len(starts), 16):
        t = int.from_bytes(starts[i:i + 16], "little")
        for _ in range(block // 16):
            yield t
            t = t << 1 ^ (0x87 if t >> 127 else 0)
            t &= (1 << 128) - 1


def xored(data, lbas, key2, block):
    n = len(data)
    mask = b"".join(t.to_bytes(16, "little") for t in masks(key2, lbas, block))
    return (int.from_bytes(data, "little") ^ int.from_bytes(mask, "little")).to_bytes(n, "little")


def decrypted(data, lba, key, key2, block=BLOCK):
    lbas = range(lba, lba + len(data) // block)
    return xored(aes(key, xored(data, lbas, key2, block), decrypt=True), lbas, key2, block)


def key_file(path, rng, size=64):
    data = rng.randbytes(size)
    path.touch(mode=0o600)
    path.write_text(data.hex() + "\n")
    return data[:size // 2], data[size // 2:]


def attach(d, path, name="A0"):
    d.call("bdev_uring_create", name=name, filename=str(path), block_size=BLOCK)


def write(queue, nsid, lba, data):
    for at in range(0, len(data), 8 * BLOCK):
        part = data[at:at + 8 * BLOCK]
        check(queue.write(lba + at // BLOCK, part, bs=BLOCK, nsid=nsid, in_capsule=False).code == 0, "a write")


def read(queue, nsid, lba, blocks):
    parts = []
    for at in range(0, blocks, 8):
        n = min(8, blocks - at)
        parts.append(queue.good(queue.rw_sqe(2, lba + at, n, nsid), length=n * BLOCK).data)
    return b"".join(parts)


def refused(d, code, words, method, **params):
    try:
        answer = d.call(method, **params)
    except RpcError as e:
        check(e.code == code and all(w in e.message for w in words), f"{method}: {e.code}: {e.message}")
        return e.message
    return check(False, f"{method} answered {answer}")


# ---- What is on the disk ----

def test_the_file_has_what_aes_xts_makes_of_hosts_data():
    rng = random.Random(1)
    for size in (32, 64):
        with disk() as path, TcpTarget() as d:
            key, key2 = key_file(d.folder / "hex", rng, size)
            d.call("accel_crypto_key_create", name="k", cipher="AES_XTS", key=key.hex(), key2=key2.hex())
            attach(d, path)
            check(d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name="k") == "C0", "the name")
            data = rng.randbytes(40 * BLOCK)
            with host(d, "C0") as (queue, nsid):
                write(queue, nsid, 300, data)
                check(read(queue, nsid, 300, 40) == data, "what the host reads")
                queue.good(queue.rw_sqe(8, 310, 5, nsid))       # Write Zeroes
                data = data[:10 * BLOCK] + bytes(5 * BLOCK) + data[15 * BLOCK:]
                check(read(queue, nsid, 300, 40) == data, "what the host reads after Write Zeroes")
            d.call("bdev_crypto_delete", name="C0")
            d.call("bdev_uring_delete", name="A0")
            there = path.read_bytes()
            check(not any(there[:300 * BLOCK]) and not any(there[340 * BLOCK:]), "something else was written")
            stored = there[300 * BLOCK:340 * BLOCK]
            check(decrypted(stored, 300, key, key2) == data, "what is in the file is not the host's data encrypted")
            check(bytes(BLOCK) not in stored, "zeroes are stored as they are")


# ---- Under and over volumes, and after a restart ----

def make(d, path, keys):
    """An encrypted disk, a store on it, and a volume there that is encrypted once more, all by keys of the keyring."""
    attach(d, path)
    for name, file in keys.items():
        d.call("keyring_file_add_key", name=name, path=str(file))
        d.call("accel_crypto_key_create", name=name, cipher="AES_XTS", keyring_key=name)
    d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name="outer")


def test_under_and_over_volumes_and_after_a_restart():
    rng = random.Random(2)
    data = rng.randbytes(64 * BLOCK)
    with disk() as path:
        keys = {name: path.parent / name for name in ("outer", "inner")}
        for file in keys.values():
            key_file(file, rng)
        with TcpTarget() as d:
            make(d, path, keys)
            d.call("bdev_lvol_create_lvstore", bdev_name="C0", lvs_name="s", cluster_sz=1 << 20)
            d.call("bdev_lvol_create", lvs_name="s", lvol_name="v", size_in_mib=8, thin_provision=True)
            d.call("bdev_crypto_create", name="C1", base_bdev_name="s/v", key_name="inner")
            with host(d, "C1") as (queue, nsid):
                write(queue, nsid, 100, data)
            with host(d, "C1") as (queue, nsid):
                check(read(queue, nsid, 100, 64) == data, "through two keys")
            d.call("bdev_lvol_snapshot", lvol_name="s/v", snapshot_name="snap")
            with host(d, "C1") as (queue, nsid):
                write(queue, nsid, 110, data[:8 * BLOCK])
            status, saved, wrong = d.rpc("save_config")
            check(status == 0 and d.stop() == 0, wrong)
        check(b"LVOLSTORE" not in path.read_bytes(), "the store's superblock is readable")
        config = path.parent / "config.json"
        config.write_text(saved)
        with Daemon("-c", config) as d:
            check([k["keyring_key"] for k in d.call("accel_crypto_keys_get")] == ["outer", "inner"], d.call("accel_crypto_keys_get"))
            d.call("bdev_wait_for_examine")
            check({"C0", "C1"} <= {b["name"] for b in d.call("bdev_get_bdevs")}, d.call("bdev_get_bdevs"))
            check(d.stop() == 0, d.log())
        with TcpTarget() as d:
            make(d, path, keys)
            d.call("bdev_crypto_create", name="C1", base_bdev_name="s/v", key_name="inner")
            d.call("bdev_wait_for_examine")
            with host(d, "C1") as (queue, nsid):
                now = data[:10 * BLOCK] + data[:8 * BLOCK] + data[18 * BLOCK:]
                check(read(queue, nsid, 100, 64) == now, "after a restart")


def test_another_key_reads_something_else():
    rng = random.Random(3)
    data = rng.randbytes(8 * BLOCK)
    with disk() as path, TcpTarget() as d:
        attach(d, path)
        for name in ("a", "b"):
            key_file(d.folder / name, rng)
            d.call("keyring_file_add_key", name=name, path=str(d.folder / name))
            d.call("accel_crypto_key_create", name=name, cipher="AES_XTS", keyring_key=name)
        for name in ("a", "b"):
            d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name=name)
            with host(d, "C0") as (queue, nsid):
                if name == "a":
                    write(queue, nsid, 0, data)
                got = read(queue, nsid, 0, 8)
                check((got == data) == (name == "a"), f"by key {name}")
            refused(d, -16, ["in use"], "accel_crypto_key_destroy", key_name=name)
            d.call("bdev_crypto_delete", name="C0")
            d.call("accel_crypto_key_destroy", key_name=name)


# ---- Another key, under I/O ----

REKEY_MB = 12


def rekey_parts(d, path):
    """The disk, and a file for the journal; both keys are in the keyring."""
    attach(d, path)
    attach(d, path.parent / "journal", "J0")
    for name in ("old", "new"):
        d.call("keyring_file_add_key", name=name, path=str(path.parent / name))
        d.call("accel_crypto_key_create", name=name, cipher="AES_XTS", keyring_key=name)


def rekey_of(d):
    return d.call("bdev_get_bdevs", name="C0")[0]["driver_specific"]["crypto"].get("rekey")


def rekey_moves(d, blocks):
    """Waits until so many more blocks have the new key, or all."""
    begin = (rekey_of(d) or {}).get("position_blocks", 0)
    wait_for(lambda: rekey_of(d) is None or rekey_of(d)["position_blocks"] >= begin + blocks, "the rekey to move")


def write_and_read(rng, queue, nsid, plain):
    """Some writes, then some reads, which must be what was written last."""
    for _ in range(20):
        lba, blocks = rng.randrange(len(plain) // BLOCK - 8), rng.randint(1, 8)
        data = rng.randbytes(blocks * BLOCK)
        write(queue, nsid, lba, data)
        plain[lba * BLOCK:(lba + blocks) * BLOCK] = data
    for _ in range(20):
        lba, blocks = rng.randrange(len(plain) // BLOCK - 8), rng.randint(1, 8)
        check(read(queue, nsid, lba, blocks) == plain[lba * BLOCK:(lba + blocks) * BLOCK], f"{blocks} blocks at {lba}")


def test_a_rekey_under_io_is_killed_and_goes_on():
    rng = random.Random(SEED)
    blocks = REKEY_MB * MIB // BLOCK
    plain = bytearray(rng.randbytes(REKEY_MB * MIB))
    with disk(REKEY_MB) as path:
        with open(path.parent / "journal", "wb") as f:
            f.truncate(2 * MIB)
        keys = {name: key_file(path.parent / name, rng) for name in ("old", "new")}
        config = path.parent / "config.json"
        with TcpTarget() as d:
            rekey_parts(d, path)
            d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name="old")
            nsid = d.add_ns("C0")
            with Queue(port=d.port) as admin:
                admin.enable()
                queue = Queue(port=d.port, qid=1, cntlid=admin.cntlid)
                write(queue, nsid, 0, bytes(plain))
                d.call("bdev_crypto_rekey", name="C0", key_name="new", journal_bdev_name="J0", mib_per_second=4)
                refused(d, -16, ["under way"], "bdev_crypto_rekey", name="C0", key_name="new", journal_bdev_name="J0")
                refused(d, -16, ["in use"], "accel_crypto_key_destroy", key_name="new")
                status, saved, err = d.rpc("save_config")
                check(status == 0, err)
                config.write_text(saved)
                while rekey_of(d)["position_blocks"] < blocks // 4:
                    write_and_read(rng, queue, nsid, plain)
                d.stop(signal.SIGKILL)
                queue.close()
        made = {}
        for section in (*json.loads(saved)["subsystems"], *json.loads(saved)["varve"]):     # what others do not know is saved apart
            for entry in section["config"]:
                if entry["method"] == "bdev_crypto_create":
                    made.update(entry["params"])
        check(made["key_name"] == "old" and made["rekey_key_name"] == "new" and made["rekey_journal_bdev_name"] == "J0" and
              made["rekey_mib_per_second"] == 4, made)
        with Daemon("-c", config) as d:                 # the journal says where it was
            d.call("bdev_wait_for_examine")
            rekey_moves(d, 256)
            check(d.stop() == 0, d.log())
        with TcpTarget() as d:
            rekey_parts(d, path)
            d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name="old")
            refused(d, -17, ["rekey_key_name"], "bdev_crypto_rekey", name="C0", key_name="new", journal_bdev_name="J0")
            d.call("bdev_crypto_delete", name="C0")
            d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name="old", rekey_key_name="new", rekey_journal_bdev_name="J0",
                   rekey_mib_per_second=2)
            with host(d, "C0") as (queue, nsid):
                check(read(queue, nsid, 0, blocks) == plain, "after a crash and a stop")
                d.call("bdev_crypto_rekey_stop", name="C0")
                check(rekey_of(d)["state"] == "stopped", rekey_of(d))
                d.call("bdev_crypto_rekey", name="C0", key_name="new", journal_bdev_name="J0")
                while rekey_of(d) is not None:
                    write_and_read(rng, queue, nsid, plain)
                check(read(queue, nsid, 0, blocks) == plain, "with the new key")
            told = [(e["type"], e["ctx"]) for e in d.call("notify_get_notifications", all=True) if e["type"].startswith("bdev_crypto")]
            check(told == [("bdev_crypto_rekey_ended", "C0")], told)
            check(d.call("bdev_get_bdevs", name="C0")[0]["driver_specific"]["crypto"]["key_name"] == "new", "the key of the bdev")
            d.call("accel_crypto_key_destroy", key_name="old")
            status, saved, err = d.rpc("save_config")
            check(status == 0 and "rekey" not in saved and '"old"' in saved, saved)
        stored = path.read_bytes()
        for lba in (0, 1, blocks // 4, blocks // 2, blocks - 8):
            part, there = stored[lba * BLOCK:(lba + 8) * BLOCK], plain[lba * BLOCK:(lba + 8) * BLOCK]
            check(decrypted(part, lba, *keys["new"]) == there, f"the new key does not read block {lba}")
            old = decrypted(part, lba, *keys["old"])
            check(not any(old[i:i + BLOCK] == there[i:i + BLOCK] for i in range(0, len(old), BLOCK)), f"the old key reads block {lba}")
        journal = (path.parent / "journal").read_bytes()
        check(not found_in(journal, [s for k in keys.values() for half in k for s in spellings(half)]), "the journal has a key")


# ---- The secret ----

def spellings(key):
    """All that a key may look like: bytes, and digits."""
    return [key, key.hex().encode(), key.hex().upper().encode()]


def found_in(data, secrets):
    return [s for s in secrets if s in data]


def memory_has(pid, secret):
    """In all of the process's memory, dumped or not: so that a search that finds nothing is known to find something."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            begin, end, mode = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
            if mode.startswith("rw") and "[v" not in line:
                with contextlib.suppress(OSError, ValueError, OverflowError):
                    mem.seek(int(begin, 16))
                    if int(end, 16) - int(begin, 16) <= 1 << 28 and secret in mem.read(int(end, 16) - int(begin, 16)):
                        return True
    return False


def core_of(d):
    """Empty for a sanitized build, of whose memory gdb would write terabytes."""
    if os.environ.get("VARVE_SANITIZED"):
        return b""
    subprocess.run(["gcore", "-o", d.folder / "core", str(d.pid)], check=True, capture_output=True, timeout=SLOW)
    return (d.folder / f"core.{d.pid}").read_bytes()


def test_the_log_warns_of_a_journal_that_will_not_be_there():
    """In memory, and made with a key that is not saved."""
    rng = random.Random(SEED)
    with disk(REKEY_MB) as path, Daemon() as d:
        attach(d, path)
        for name in ("old", "new"):
            d.call("accel_crypto_key_create", name=name, cipher="AES_XTS", key=rng.randbytes(16).hex(), key2=rng.randbytes(16).hex())
        d.call("bdev_malloc_create", name="M0", block_size=BLOCK, num_blocks=2 * MIB // BLOCK)
        d.call("bdev_crypto_create", name="J0", base_bdev_name="M0", key_name="old")
        d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name="old")
        d.call("bdev_crypto_rekey", name="C0", key_name="new", journal_bdev_name="J0", mib_per_second=1)
        d.call("bdev_crypto_rekey_stop", name="C0")
        for words in ("the journal of its rekey is in memory, on bdev J0", "bdev J0, which has the journal of its rekey, is not in the saved configuration"):
            check(words in d.log(), f"the log does not say: {words}")
        check(d.stop() == 0, d.log())


def test_the_key_is_in_no_core_trace_log_answer_or_configuration():
    rng = random.Random(SEED)
    with disk() as path, TcpTarget("-L", "rpc") as d:
        attach(d, path)
        d.call("bdev_malloc_create", name="M0", num_blocks=2048, block_size=BLOCK)
        d.call("bdev_malloc_create", name="M1", num_blocks=2048, block_size=BLOCK)
        ring = key_file(d.folder / "ring", rng)
        named, own = (tuple(rng.randbytes(32) for _ in range(2)) for _ in range(2))
        d.call("keyring_file_add_key", name="ring", path=str(d.folder / "ring"))
        d.call("accel_crypto_key_create", name="of ring", cipher="AES_XTS", keyring_key="ring")
        d.call("accel_crypto_key_create", name="named", cipher="AES_XTS", key=named[0].hex(), key2=named[1].hex())
        d.call("bdev_crypto_create", name="C0", base_bdev_name="A0", key_name="of ring")
        d.call("bdev_crypto_create", name="C1", base_bdev_name="M0", key_name="named")
        d.call("bdev_crypto_create", name="C2", base_bdev_name="M1", key=own[0].hex(), key2=own[1].hex())
        wrong = rng.randbytes(32).hex()
        told = [refused(d, -22, ["are equal"], "accel_crypto_key_create", name="w", cipher="AES_XTS", key=wrong, key2=wrong),
                refused(d, -22, ["no hexadecimal"], "accel_crypto_key_create", name="w", cipher="AES_XTS", key=wrong, key2="x" + wrong[1:]),
                refused(d, -22, ["66 characters"], "accel_crypto_key_create", name="w", cipher="AES_XTS", key=wrong + "00", key2=wrong)]
        secrets = [s for k in (*ring, *named, *own) for s in spellings(k)] + [wrong.encode()]
        with host(d, "C0") as (q0, n0):
            write(q0, n0, 0, rng.randbytes(8 * BLOCK))
            with contextlib.ExitStack() as stack:
                for name in ("C1", "C2"):
                    queue, nsid = stack.enter_context(host(d, name))
                    write(queue, nsid, 0, rng.randbytes(8 * BLOCK))
                check(memory_has(d.pid, ring[0]) and memory_has(d.pid, own[1]), "the search finds keys where they are")
                core = core_of(d)
                check(not core or b"accel_crypto_key_create" in core, "the core is one")
                check(not found_in(core, secrets), f"in the core: {len(found_in(core, secrets))} spellings")
        status, saved, err = d.rpc("save_config")
        check(status == 0, err)
        answers = json.dumps([d.call(m) for m in ("accel_crypto_keys_get", "bdev_get_bdevs", "keyring_get_keys", "notify_get_notifications", "rpc_get_calls")])
        for what, text in (("answers", answers), ("errors", json.dumps(told)), ("save_config", saved), ("log", d.log())):
            check(not found_in(text.encode(), secrets), f"in {what}")
        check(not found_in(d.trace_file.read_bytes(), secrets), "in the trace")
        check('"C0"' in saved and '"C1"' not in saved and '"C2"' not in saved, "what is saved is what can be loaded")
        for name in ("C1", "C2", "named"):
            check(re.search(f"{name} is not in the configuration", d.log()), f"the log does not say that {name} is not saved")
        for name in ("C0", "C1", "C2"):
            d.call("bdev_crypto_delete", name=name)
        for name in ("of ring", "named"):
            d.call("accel_crypto_key_destroy", key_name=name)
        d.call("keyring_file_remove_key", name="ring")
        check(d.call("accel_crypto_keys_get") == [], "a key is left")
        check(not memory_has(d.pid, ring[0]) and not memory_has(d.pid, named[0]) and not memory_has(d.pid, own[1]), "a key is in memory after its end")


def test_what_stands_on_a_bdev_that_is_not_saved_is_not_saved_either():
    """Its key came with the call: a file that named the bdev would be refused when it is loaded."""
    key, key2 = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    with TcpTarget() as d:
        for name in ("M0", "M1"):
            d.call("bdev_malloc_create", name=name, num_blocks=8192, block_size=BLOCK)
        d.call("bdev_crypto_create", name="C0", base_bdev_name="M0", key=key, key2=key2)
        d.call("bdev_crypto_create", name="C1", base_bdev_name="M1", key=key, key2=key2)
        d.call("bdev_passthru_create", name="P0", base_bdev_name="C0")
        d.call("bdev_delay_create", name="D0", base_bdev_name="P0", avg_read_latency=0, p99_read_latency=0, avg_write_latency=0, p99_write_latency=0)
        d.call("bdev_lvol_create_lvstore", bdev_name="C1", lvs_name="s", cluster_sz=1 << 20)
        volume = d.call("bdev_lvol_create", lvs_name="s", lvol_name="v", size_in_mib=4)
        d.call("bdev_malloc_create", name="M2", num_blocks=8192, block_size=BLOCK)
        for name in ("C0", "D0", volume, "M2"):
            d.call("bdev_set_qos_limit", name=name, rw_ios_per_sec=10000)
        for name in ("D0", volume, "M2"):
            d.add_ns(name)
        status, saved, err = d.rpc("save_config")
        check(status == 0, err)
        for name in ("C0", "C1", "P0", "D0", volume):
            check(f'"{name}"' not in saved, f"{name} is saved: {saved}")
            check(re.search(rf"bdev {name} (is not in the configuration|will not be there)", d.log()), f"the log does not say that {name} is not saved")
        check(len(re.findall("namespace [0-9]+ of .* is not in the configuration", d.log())) == 2, "the log does not name the namespaces")
        check(d.stop() == 0, d.log())
        file = d.folder / "config.json"
        file.write_text(saved)
        with Daemon("-c", file) as again:
            check([b["name"] for b in again.call("bdev_get_bdevs")] == ["M0", "M1", "M2"], again.call("bdev_get_bdevs"))
            spaces = [n["bdev_name"] for s in again.call("nvmf_get_subsystems") for n in s.get("namespaces", [])]
            check(spaces == ["M2"], spaces)


def test_a_key_that_was_removed_is_not_saved_and_no_other_takes_its_name():
    rng = random.Random(4)
    with Daemon() as d:
        for name in ("a", "b"):
            key_file(d.folder / name, rng)
        d.call("bdev_malloc_create", name="M0", num_blocks=2048, block_size=BLOCK)
        d.call("keyring_file_add_key", name="ring", path=str(d.folder / "a"))
        d.call("accel_crypto_key_create", name="k", cipher="AES_XTS", keyring_key="ring")
        d.call("bdev_crypto_create", name="C0", base_bdev_name="M0", key_name="k")
        d.call("keyring_file_remove_key", name="ring")
        refused(d, -16, ["ring", "accel_crypto_keys_get"], "keyring_file_add_key", name="ring", path=str(d.folder / "b"))
        status, saved, err = d.rpc("save_config")
        check(status == 0, err)
        check('"C0"' not in saved and '"ring"' not in saved, saved)
        d.call("bdev_crypto_delete", name="C0")
        d.call("accel_crypto_key_destroy", key_name="k")
        d.call("keyring_file_add_key", name="ring", path=str(d.folder / "b"))


def test_a_configuration_of_another_target_is_loaded():
    """As SPDK saves it: the key stands in it."""
    rng = random.Random(SEED)
    key, key2 = rng.randbytes(32), rng.randbytes(32)
    config = {"subsystems": [
        {"subsystem": "accel", "config": [
            {"method": "accel_set_options", "params": {"small_cache_size": 128}},
            {"method": "accel_crypto_key_create", "params": {"name": "k", "cipher": "AES_XTS", "key": key.hex(), "key2": key2.hex(), "tweak_mode": "SIMPLE_LBA"}}]},
        {"subsystem": "bdev", "config": [
            {"method": "bdev_malloc_create", "params": {"name": "M0", "num_blocks": 2048, "block_size": 512}},
            {"method": "bdev_crypto_create", "params": {"base_bdev_name": "M0", "name": "C0", "key_name": "k"}}]}]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config"
        file.write_text(json.dumps(config))
        with Daemon("-c", file) as d:
            check(d.call("bdev_get_bdevs", name="C0")[0]["product_name"] == "crypto", "it is loaded")
            check(memory_has(d.pid, key), "the search finds the key where it is")
            check(not found_in(core_of(d), [*spellings(key), *spellings(key2)]), "the core has the key of the configuration")


if __name__ == "__main__":
    main(sys.modules[__name__])
