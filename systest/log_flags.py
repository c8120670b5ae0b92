#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# quick
# limit: 120
# beside
"""Log flags: varve's own, and those of SPDK's components, by RPC and by -L, with what the log says of them."""
import sys

from appliance_lib import Daemon, RpcError, check, main


def test_flags_of_other_components_are_taken_and_explained():
    with Daemon() as d:
        flags = d.call("log_get_flags")
        check({"bdev", "nvme", "nvmf", "rpc", "scheduler", "blob", "nvmf_auth"} <= set(flags) and not any(flags.values()), flags)
        check(d.call("log_set_flag", flag="nvmf_auth") is True, "one that stands for another")
        check("log flag nvmf_auth: its messages are those of the flag nvmf here, which is on now" in d.log(), d.log())
        now = d.call("log_get_flags")
        check({k for k, on in now.items() if on} == {"nvmf_auth", "nvmf"}, now)
        check(d.call("log_clear_flag", flag="NVMF_AUTH") is True and not any(d.call("log_get_flags").values()), "off again")
        check("which is off now" in d.log(), d.log())
        check(d.call("log_set_flag", flag="blob") is True and "log flag blob: varve has no messages under it" in d.log(), d.log())
        lines = len(d.log().splitlines())
        check(d.call("log_set_flag", flag="nvmf") is True and len(d.log().splitlines()) == lines + 1, "varve's own needs one explanation")
        check("flag nvmf is on, but its lines are printed only after log_set_print_level level=DEBUG" in d.log().splitlines()[-1], d.log())
        now = d.call("log_get_flags")
        check({k for k, on in now.items() if on} == {"blob", "nvmf"}, now)
        for method, value in (("log_set_flag", True), ("log_clear_flag", False)):
            d.call(method, flag="all")
            check(all(v is value for v in d.call("log_get_flags").values()), d.call("log_get_flags"))
            try:
                d.call(method, flag="nosuch")
                check(False, "it was taken")
            except RpcError as e:
                check(e.code == -32602 and "nosuch" in e.message, e.message)


def test_flags_on_the_command_line():
    with Daemon("-L", "reactor", "-L", "sock") as d:
        now = d.call("log_get_flags")
        check({k for k, on in now.items() if on} == {"reactor", "scheduler", "sock"}, now)
        check("log flag reactor: its messages are those of the flag scheduler" in d.log() and "log flag sock: varve has no messages" in d.log(), d.log())


if __name__ == "__main__":
    main(sys.modules[__name__])
