# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with null bdevs: systest/module_lib.py says what these names mean."""


class Steps:
    STEPS = ("null", "resize_null", "delete_null")

    def null(self):
        metadata = {k: v for k, v in self.metadata().items() if k != "md_interleave"}
        self.add("null", self.call("bdev_null_create", **self.optional(
            "bdev_null_create", "md_size", "md_interleave", "dif_type", "dif_pi_format", name=self.name("N"),
            num_blocks=self.rng.randint(8, 1 << 30) * 8, block_size=4096, **metadata)))

    def resize_null(self):
        if not self.of_kind.get("null"):
            self.null()
        if self.of_kind.get("null"):
            self.call("bdev_null_resize", name=self.rng.choice(self.of_kind["null"]), new_size=self.rng.randint(1, 1 << 20))

    def delete_null(self):
        self.delete_bdev("null", self.null)


def answers(call, folder):
    call("bdev_null_create", name="null0", num_blocks=2048, block_size=512)
    call("bdev_null_resize", name="null0", new_size=2)
    call("bdev_null_delete", name="null0")


def stock(folder):
    return [
        ("bdev_null_create", {"num_blocks": 8192, "block_size": 4096, "name": "N0", "dif_is_head_of_md": False}, "N0"),
        ("bdev_null_create", {"num_blocks": 8192, "block_size": 512, "physical_block_size": 4096, "name": "N1", "md_size": 8, "dif_type": 1,
                              "dif_is_head_of_md": False, "dif_pi_format": 0, "preferred_write_alignment": 1, "preferred_write_granularity": 1,
                              "optimal_write_size": 8, "preferred_unmap_alignment": 1, "preferred_unmap_granularity": 1}, "N1"),
        ("bdev_null_resize", {"name": "N0", "new_size": 64}, True),
        ("bdev_null_delete", {"name": "N0"}, True),
    ]
