# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with error bdevs: systest/module_lib.py says what these names mean."""

PASSING = {"bdev_error_inject_error", "bdev_error_resume_pending"}


class Steps:
    STEPS = ("error", "delete_error")

    def error(self):
        base = self.take()
        if base is not None and base.startswith("EE_EE"):
            self.free.append(base)
        elif base is not None and self.call("bdev_error_create", **self.optional("bdev_error_create", base_name=base)) is not None:
            self.add("error", f"EE_{base}")

    def new_error(self):
        self.malloc()
        self.error()

    def delete_error(self):
        self.delete_bdev("error", self.new_error)


def answers(call, folder):
    call("bdev_malloc_create", name="base0", num_blocks=2048, block_size=512)
    call("bdev_error_create", base_name="base0")
    call("bdev_error_inject_error", name="EE_base0", io_type="clear", error_type="failure")
    call("bdev_error_resume_pending", name="EE_base0")
    call("bdev_error_delete", name="EE_base0")
    call("bdev_malloc_delete", name="base0")


def stock(folder):
    return [
        ("bdev_malloc_create", {"num_blocks": 32768, "block_size": 512, "name": "Base0"}, "Base0"),
        ("bdev_error_create", {"base_name": "Base0"}, lambda a: a in (True, "EE_Base0")),
        ("bdev_error_inject_error", {"name": "EE_Base0", "io_type": "read", "error_type": "failure"}, True),
        ("bdev_error_inject_error", {"name": "EE_Base0", "io_type": "write", "error_type": "corrupt_data", "num": 2, "queue_depth": 1,
                                     "corrupt_offset": 4, "corrupt_value": 7}, True),
        ("bdev_error_inject_error", {"name": "EE_Base0", "io_type": "clear", "error_type": "failure"}, True),
        ("bdev_error_delete", {"name": "EE_Base0"}, True),
    ]
