# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with passthru bdevs: systest/module_lib.py says what these names mean."""
from stock_lib import NO_DEVICE, OTHER_UUID, Error


class Steps:
    STEPS = ("passthru", "delete_passthru")

    def passthru(self):
        base = self.take()
        if base is not None:
            made = self.call("bdev_passthru_create", **self.optional("bdev_passthru_create", name=self.name("P"), base_bdev_name=base))
            self.add("passthru", made)

    def new_passthru(self):
        self.malloc()
        self.passthru()

    def delete_passthru(self):
        self.delete_bdev("passthru", self.new_passthru)


def answers(call, folder):
    call("bdev_malloc_create", name="base0", num_blocks=2048, block_size=512)
    call("bdev_passthru_create", name="same0", base_bdev_name="base0")
    call("bdev_passthru_delete", name="same0")
    call("bdev_malloc_delete", name="base0")


def stock(folder):
    return [
        ("bdev_malloc_create", {"num_blocks": 32768, "block_size": 512, "name": "Base0"}, "Base0"),
        ("bdev_passthru_create", {"base_bdev_name": "none", "name": "P0"}, Error(NO_DEVICE, "none")),
        ("bdev_passthru_create", {"base_bdev_name": "Base0", "name": "P0"}, "P0"),
        ("bdev_get_bdevs", {"name": "P0"}, lambda a: a[0]["product_name"] == "passthru" and
         a[0]["driver_specific"] == {"passthru": {"name": "P0", "base_bdev_name": "Base0"}}),
        ("bdev_get_bdevs", {"name": "Base0"}, lambda a: a[0]["claimed"]),
        ("bdev_passthru_delete", {"name": "P0"}, True),
        ("bdev_passthru_create", {"base_bdev_name": "Base0", "name": "P0", "uuid": OTHER_UUID}, "P0"),
        ("bdev_get_bdevs", {"name": OTHER_UUID}, lambda a: a[0]["name"] == "P0"),
        ("bdev_passthru_delete", {"name": "P0"}, True),
        ("bdev_passthru_delete", {"name": "P0"}, Error(NO_DEVICE, "P0")),
    ]
