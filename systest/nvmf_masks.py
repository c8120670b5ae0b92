#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# beside
# limit: 240
# sanitize
"""Commands that a transport masks: hosts do not see them in Identify and the Commands Supported log, and are refused; all others work. Another transport of the same
target has them."""
import base64
import struct
import sys

from appliance_lib import RpcError, check, main
from nvmf_lib import NQN, PORT, Target

# Names, their bits of ONCS, and a command of each: opcode, data.
ONCS = {"nvmcmps": (1 << 0, 0x05, 512), "nvmdsmsv": (1 << 2, 0x09, 16), "nvmwzsv": (1 << 3, 0x08, 0), "reservs": (1 << 5, 0x0D, 16),
        "nvmcpys": (1 << 8, 0x19, 32)}
INVALID_OPCODE, INVALID_FIELD = (0, 0x01), (0, 0x02)
READ, WRITE = 0x02, 0x01


def command(opcode, nsid=1, cdw10=0, cdw11=0, cdw12=0):
    sqe = struct.pack("<BBHI32xIII12x", opcode, 0, 0, nsid, cdw10, cdw11, cdw12)
    return base64.urlsafe_b64encode(sqe).decode()


def send(host, kind, opcode, out=0, into=0, name="Nvme0", **words):
    """The status, and the data."""
    more = {"data": base64.urlsafe_b64encode(bytes(out)).decode()} if out else {}
    more.update({"data_len": into} if into else {})
    a = host.call("bdev_nvme_send_cmd", name=name, cmd_type=kind, data_direction="c2h" if into else "h2c", cmdbuf=command(opcode, **words), **more)
    status = struct.unpack("<H", base64.urlsafe_b64decode(a["cpl"])[14:16])[0] >> 1
    return (status >> 8 & 7, status & 0xFF), base64.urlsafe_b64decode(a.get("data", ""))


def identify(host, name="Nvme0"):
    """ONCS, FUSES, and the opcodes of the Commands Supported and Effects log."""
    status, data = send(host, "admin", 0x06, into=4096, name=name, nsid=0, cdw10=1)
    check(status == (0, 0), status)
    oncs, fuses = struct.unpack_from("<HH", data, 520)
    status, log = send(host, "admin", 0x02, into=4096, name=name, nsid=0, cdw10=1023 << 16 | 5)
    check(status == (0, 0), status)
    return oncs, fuses, {i for i in range(256) if log[1024 + 4 * i] & 1}


def attach(host, back, name="Nvme0", port=None):
    where = {**back.listen_address(), **({"trsvcid": str(port)} if port else {})}
    host.call("bdev_nvme_attach_controller", name=name, subnqn=NQN, **where)


def check_each(host, masked, name="Nvme0"):
    oncs, fuses, supported = identify(host, name)
    for word, (bit, opcode, size) in ONCS.items():
        check(bool(oncs & bit) is (word not in masked), f"{word}: ONCS {oncs:#x}")
        check((opcode in supported) is (word not in masked), f"{word}: {supported}")
        status, _ = send(host, "io", opcode, out=size, name=name)
        check((status == INVALID_OPCODE) is (word in masked), f"{word}: {status}")
    check(bool(fuses & 1) is not ({"fcws", "nvmcmps"} & set(masked) != set()), f"FUSES {fuses:#x}")
    check(send(host, "io", WRITE, out=512, name=name)[0] == (0, 0) and send(host, "io", READ, into=512, name=name)[0] == (0, 0), "I/O")
    check({READ, WRITE, 0} <= supported, supported)


def run(oncs, fuses=()):
    with Target(cores="[0]", port=PORT + 20000, trtype="TCP", masked_oncs=list(oncs), masked_fuses=list(fuses)) as back, \
            Target(cores="[1]", port=PORT, listen=False) as host:
        back.add_malloc("M0")
        back.add_ns("M0")
        t, = back.call("nvmf_get_transports")
        check(t.get("masked_oncs", []) == list(oncs) and t.get("masked_fuses", []) == list(fuses), t)
        attach(host, back)
        check_each(host, {*oncs, *fuses})
        # A host of another transport of the same target has all of them.
        back.call("nvmf_create_transport", trtype="RDMA")
        back.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address={**back.listen_address(), "trtype": "RDMA", "trsvcid": str(PORT + 20001)})
        host.call("bdev_nvme_detach_controller", name="Nvme0")
        back.trtype = "RDMA"
        attach(host, back, "Other", PORT + 20001)
        check_each(host, set(), "Other")


def test_each_mask_hides_its_command_alone():
    run(["nvmwzsv"])
    run(["nvmcmps"])


def test_all_masks():
    run(list(ONCS), ["fcws"])


def test_a_masked_fused_command_leaves_compare():
    run([], ["fcws"])


def test_wrong_masks_are_refused():
    with Target() as t:
        for name, value, words in (("masked_oncs", ["nvmcmps", "all"], ["masked_oncs[1]", '"all"', "nvmcmps, nvmdsmsv, nvmwzsv, reservs and nvmcpys"]),
                                   ("masked_oncs", [7], ["masked_oncs[0]", "7"]), ("masked_oncs", "nvmcmps", ["masked_oncs", "an array"]),
                                   ("masked_fuses", ["nvmcmps"], ["masked_fuses[0]", "fcws"])):
            try:
                t.call("nvmf_create_transport", trtype="TCP", **{name: value})
            except RpcError as e:
                check(e.code == -32602 and all(w in str(e) for w in words), f"{value}: {e}")
            else:
                check(False, f"{value} was taken")
        check(len(t.call("nvmf_get_transports")) == 1, "a transport was left")


if __name__ == "__main__":
    main(sys.modules[__name__])
