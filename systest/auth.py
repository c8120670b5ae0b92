#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# limit: 300
# sanitize
# beside
"""In-band authentication between two varves over the software device: who gets in, who does not, and what is told of it. (Messages that no
host of ours sends are in unittest/nvmf/test_auth.c.)"""
import base64
import json
import pathlib
import struct
import sys
import zlib

from appliance_lib import Daemon, Failure, RpcError, check, main, wait_for
from nvmf_lib import ADDRESS, HOSTNQN, NQN, PORT, Host as Perf, Target, preload, verifying, wait_io

DIGESTS = ["sha256", "sha384", "sha512"]
GROUPS = ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"]


def secret(seed, length=32, transform=0):
    raw = bytes((seed * 31 + i) & 0xff for i in range(length))
    return f"DHHC-1:{transform:02}:{base64.b64encode(raw + struct.pack('<I', zlib.crc32(raw))).decode()}:"


SECRETS = {"key": secret(1), "ctrlr": secret(2, 64, 3), "other": secret(3, 48, 2), "new": secret(4, 32, 1)}


def add_keys(daemon):
    for name, text in SECRETS.items():
        path = daemon.folder / f"{name}.key"
        path.touch(mode=0o600)
        path.write_text(text + "\n")
        daemon.call("keyring_file_add_key", name=name, path=str(path))


class AuthTarget(Target):
    def __init__(self, *options, **kwargs):
        super().__init__(*options, **kwargs)
        add_keys(self)
        self.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=False)
        self.add_malloc("M0")
        self.add_ns("M0")

    def allow(self, **keys):
        self.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN, **keys)

    def set_keys(self, **keys):
        self.call("nvmf_subsystem_set_keys", nqn=NQN, host=HOSTNQN, **keys)

    def auth(self):
        return [c.get("auth") for c in self.controllers()]


class Host(Daemon):
    def __init__(self, **options):
        super().__init__("-m", "[0]", "-s", "256", env=preload())
        add_keys(self)
        self.call("bdev_nvme_set_options", **options)

    def attach(self, name="R", hostnqn=HOSTNQN, **keys):
        return self.call("bdev_nvme_attach_controller", name=name, trtype="RDMA", traddr=ADDRESS, trsvcid=str(PORT), subnqn=NQN,
                         hostnqn=hostnqn, num_io_queues=1, **keys)

    def refused(self, what, **kwargs):
        try:
            self.attach(**kwargs)
        except RpcError as e:
            check(what in str(e), f"refused for another reason: {e}")
            return
        raise Failure("it was let in")

    def detach(self, name="R"):
        self.call("bdev_nvme_detach_controller", name=name)


def test_who_gets_in():
    with AuthTarget() as t, Host(dhchap_dhgroups=["null", "ffdhe2048"]) as h:
        t.allow(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        check(h.attach(dhchap_key="key") == ["Rn1"], "the right key")
        check(t.auth() == [{"state": "completed", "digest": "sha512", "dhgroup": "ffdhe2048"}], t.auth())
        # The host has the controller; its queue pair for I/O may still be on its way.
        wait_for(lambda: all(q["auth"]["state"] == "completed" and q["state"] == "enabled" for q in t.call("nvmf_subsystem_get_qpairs", nqn=NQN)),
                 "all queue pairs to be authenticated")
        h.detach()
        check(h.attach(dhchap_key="key", dhchap_ctrlr_key="ctrlr") == ["Rn1"], "both ways")
        h.detach()
        h.refused("authentication failed", dhchap_key="other")
        h.refused("no dhchap_key")
        h.refused("the controller does not know its key", dhchap_key="key", dhchap_ctrlr_key="other")
        h.refused("Connect was refused", hostnqn="nqn.2026-11.io.varve:stranger", dhchap_key="key")
        t.set_keys(dhchap_key="key")
        h.refused("authentication failed", dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        t.set_keys()
        check(h.attach(dhchap_key="key") == ["Rn1"] and t.auth() == [None], "no key is asked for")
        h.detach()
        h.refused("AUTH_Negotiate", dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        t.wait_empty()
        events = [e for e in t.call("notify_get_notifications", id=0, max=1000, all=True) if e["type"] == "nvmf_auth_failed"]
        check(events and events[0]["ctx"].startswith(f"{NQN} {HOSTNQN}"), events)
        check(not any(s.split(":")[2] in t.log() + h.log() for s in SECRETS.values()), "a secret is in the log")
        check(h.stop() == 0, h.log())
        t.stop_clean("authentication with", "is not allowed", "leaves controller")


def test_every_digest_and_group():
    with AuthTarget() as t:
        t.allow(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        for digest in DIGESTS:
            with Host(dhchap_digests=[digest]) as h:
                h.attach(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
                check(t.auth() == [{"state": "completed", "digest": digest, "dhgroup": "ffdhe8192"}], t.auth())
        for group in GROUPS:
            with Host(dhchap_dhgroups=[group]) as h:
                h.attach(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
                check(t.auth() == [{"state": "completed", "digest": "sha512", "dhgroup": group}], t.auth())
        t.wait_empty()
        t.stop_clean()


def test_again_beside_io_with_keys_that_change():
    with AuthTarget() as t, Host(dhchap_dhgroups=["ffdhe4096"]) as h:
        t.allow(dhchap_key="key")
        h.attach(dhchap_key="key", ctrlr_loss_timeout_sec=60, reconnect_delay_sec=1)
        path = h.folder / "config.json"
        # varve-perf needs a target: the host exports what it has attached
        h.call("nvmf_create_transport", trtype="RDMA")
        h.call("nvmf_create_subsystem", nqn=NQN, serial_number="V2", allow_any_host=True)
        h.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address={**t.listen_address(), "trsvcid": str(PORT + 20000)})
        h.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "Rn1"})
        h.port = PORT + 20000
        h.trid = lambda nqn=NQN: t.trid(nqn).replace(f"trsvcid:{t.port}", f"trsvcid:{PORT + 20000}")
        with verifying(h, 1, "-t", "600") as load:
            wait_io(t, [load], more=3000)       # it has written its region, and reads
            for _ in range(3):
                for name in ("new", "key"):
                    t.set_keys(dhchap_key=name, dhchap_ctrlr_key="ctrlr")
                    h.call("bdev_nvme_set_keys", name="R", dhchap_key=name, dhchap_ctrlr_key="ctrlr")
            t.call("keyring_file_remove_key", name="new")
            check("new" not in [k["name"] for k in t.call("keyring_get_keys")], "the removed key is listed, and nobody uses it")
            t.call("keyring_file_remove_key", name="key")     # in use: it stays until it is not
            check([k["removed"] for k in t.call("keyring_get_keys") if k["name"] == "key"] == [True], "the key in use")
            h.call("bdev_nvme_set_keys", name="R", dhchap_key="key", dhchap_ctrlr_key="ctrlr")
            wait_io(t, [load])
            check(h.call("bdev_nvme_get_controllers")[0]["name"] == "R" and load.is_running(), "the controller")
            load.check_perfect(load.stop())
        path.write_text(json.dumps(h.call("framework_get_config", name="bdev")))
        check("dhchap_key" in path.read_text() and "DHHC" not in path.read_text(), "what is saved")
        h.call("nvmf_delete_subsystem", nqn=NQN)
        h.detach()
        check(h.stop() == 0, h.log())
        t.wait_empty()
        t.stop_clean()


def test_keys_are_saved_by_name_and_loaded():
    with AuthTarget() as t:
        t.allow(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        saved = {x: t.call("framework_get_config", name=x) for x in ("keyring", "nvmf")}
        text = json.dumps(saved)
        check("DHHC" not in text and str(t.folder / "key.key") in text, text)
        host = [m for m in saved["nvmf"] if m["method"] == "nvmf_subsystem_add_host"]
        check(host[0]["params"] == {"nqn": NQN, "host": HOSTNQN, "dhchap_key": "key", "dhchap_ctrlr_key": "ctrlr"}, host)
        file = t.folder / "saved.json"
        order = [x["subsystem"] for x in t.call("framework_get_subsystems")]
        check(order.index("keyring") < order.index("bdev") < order.index("nvmf"), order)
        file.write_text(json.dumps({"subsystems": [{"subsystem": x, "config": t.call("framework_get_config", name=x)} for x in order]}))
        check(t.stop() == 0, t.log())
        with Daemon("-m", "[0]", "-s", "512", "-c", str(file), env=preload()) as again:
            check(again.call("framework_get_config", name="nvmf") == saved["nvmf"], "saved again")
            check(again.call("framework_get_config", name="keyring") == saved["keyring"], "saved again")
            with Host(dhchap_dhgroups=["null"]) as h:
                h.attach(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
            check(again.stop() == 0, again.log())


def saved_path(daemon, name):
    """The files that a saved configuration has a key of that name read from."""
    return [m["params"]["path"] for m in daemon.call("framework_get_config", name="keyring") if m["params"]["name"] == name]


def test_a_removed_key_is_saved_as_long_as_it_is_used():
    with AuthTarget() as t:
        first, second = (str(t.folder / f"{name}.key") for name in ("key", "other"))
        t.allow(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        for name in ("key", "ctrlr", "new"):
            t.call("keyring_file_remove_key", name=name)
        check(saved_path(t, "key") == [first] and len(saved_path(t, "ctrlr")) == 1 and not saved_path(t, "new"), "removed, and used or not")
        file = t.folder / "saved.json"
        saved = {x["subsystem"]: t.call("framework_get_config", name=x["subsystem"]) for x in t.call("framework_get_subsystems")}
        t.call("keyring_file_add_key", name="key", path=second)
        check(saved_path(t, "key") == [second], "the one that has the name now")
        t.call("keyring_file_remove_key", name="key")
        check(saved_path(t, "key") == [first], "nobody uses the second one")
        t.call("keyring_file_add_key", name="key", path=second)
        t.call("nvmf_subsystem_add_host", nqn=NQN, host=HOSTNQN + ":second", dhchap_key="key")
        t.call("keyring_file_remove_key", name="key")
        check(saved_path(t, "key") == [second], "both are removed and used: the last one")
        t.call("nvmf_subsystem_remove_host", nqn=NQN, host=HOSTNQN + ":second")
        t.set_keys()
        check(not saved_path(t, "key") and not saved_path(t, "ctrlr"), "nobody uses them")
        file.write_text(json.dumps({"subsystems": [{"subsystem": name, "config": config} for name, config in saved.items()]}))
        check(t.stop() == 0, t.log())
        with Daemon("-m", "[0]", "-s", "512", "-c", str(file), env=preload()) as again:
            check({name: again.call("framework_get_config", name=name) for name in saved} == saved, "saved again")
            with Host(dhchap_dhgroups=["null"]) as h:
                h.attach(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
            check(again.stop() == 0, again.log())


def test_varve_perf_authenticates():
    with AuthTarget() as t:
        file = {name: str(t.folder / f"{name}.key") for name in (*SECRETS, "loose")}
        pathlib.Path(file["loose"]).touch()
        pathlib.Path(file["loose"]).chmod(0o640)
        t.allow(dhchap_key="key", dhchap_ctrlr_key="ctrlr")
        right = ("--dhchap-key", file["key"], "--dhchap-ctrlr-key", file["ctrlr"])
        with verifying(t, 1, "--ios", "2000", *right) as load:
            load.check_perfect(load.result())
        with Perf(t, "-t", "600", *right) as load:
            wait_io(t, [load])
            qpairs = t.call("nvmf_subsystem_get_qpairs", nqn=NQN)
            check(len(qpairs) == 2 and all(q["auth"]["state"] == "completed" for q in qpairs), qpairs)
            load.stop()
        for what, args in (("there is no dhchap_key", ()),
                           ("authenticate: the controller says: authentication failed", ("--dhchap-key", file["other"])),
                           ("the controller does not know its key", (*right[:3], file["new"])),
                           ("has mode 0640", (*right[:3], file["loose"]))):
            with Perf(t, "--ios", "10", *args) as load:
                check(load.wait() == 1, f"{args}: it ended with {load.process.returncode}")
                errors = load.errors.read_text()
                check(what in errors and not any(s.split(":")[2] in errors for s in SECRETS.values()), f"{args}: {errors}")
        t.wait_empty()
        t.stop_clean("authentication with", "leaves controller")


if __name__ == "__main__":
    main(sys.modules[__name__])
