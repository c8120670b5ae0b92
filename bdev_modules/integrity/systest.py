# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with integrity bdevs: systest/module_lib.py says what these names mean."""

PASSING = {"bdev_integrity_scrub_start", "bdev_integrity_scrub_stop"}


class Steps:
    STEPS = ("integrity", "delete_integrity")

    def integrity(self):
        base = self.take()
        if base is not None:
            made = self.call("bdev_integrity_create", name=self.name("I"), base_bdev_name=base, format=True)
            if made is None:
                self.free.append(base)      # it is too small, or its blocks have metadata
            else:
                self.add("integrity", made)

    def new_integrity(self):
        base = self.call("bdev_malloc_create", num_blocks=8192, block_size=512, name=self.name("M"))
        self.add("integrity", self.call("bdev_integrity_create", name=self.name("I"), base_bdev_name=base, format=True))

    def delete_integrity(self):
        self.delete_bdev("integrity", self.new_integrity)


def answers(call, folder):
    call("bdev_malloc_create", name="base0", num_blocks=8192, block_size=512)
    call("bdev_integrity_create", name="integrity0", base_bdev_name="base0", format=True)
    call("bdev_integrity_scrub_start", name="integrity0")
    call("bdev_integrity_get_bdevs", name="integrity0")
    call("bdev_integrity_scrub_stop", name="integrity0")
    call("bdev_get_bdevs", name="integrity0")
    call("bdev_integrity_delete", name="integrity0")
    call("bdev_malloc_delete", name="base0")
