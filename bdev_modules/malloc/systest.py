# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with malloc bdevs: systest/module_lib.py says what these names mean."""
from stock_lib import EXISTS, NO_DEVICE, UUID, Error


class Steps:
    STEPS = ("malloc", "delete_malloc")

    def malloc(self):
        size = self.rng.choice((512, 4096))
        self.add("malloc", self.call("bdev_malloc_create", **self.optional(
            "bdev_malloc_create", "md_size", "md_interleave", "dif_type", "dif_pi_format", "numa_id", name=self.name("M"),
            num_blocks=self.rng.choice((8, 64, 2048)) * 8, block_size=size, **self.metadata())))

    def delete_malloc(self):
        self.delete_bdev("malloc", self.malloc)


def answers(call, folder):
    call("bdev_malloc_create", name="malloc0", num_blocks=2048, block_size=512)
    call("bdev_malloc_delete", name="malloc0")


def stock(folder):
    switches = {"md_interleave": False, "dif_is_head_of_md": False}
    return [
        ("bdev_malloc_create", {"num_blocks": 32768, "block_size": 512, **switches}, "Malloc0"),
        ("bdev_malloc_create", {"num_blocks": 8192, "block_size": 4096, "name": "M1", "uuid": UUID, **switches}, "M1"),
        ("bdev_malloc_create", {"num_blocks": 8192, "block_size": 4096, "physical_block_size": 4096, "name": "M2", "optimal_io_boundary": 8,
                                "md_size": 8, "md_interleave": True, "dif_type": 1, "dif_is_head_of_md": False, "dif_pi_format": 0,
                                "numa_id": -1}, "M2"),
        ("bdev_malloc_create", {"num_blocks": 8192, "block_size": 4096, "name": "M3", "md_size": 8, "dif_type": 1, **switches}, "M3"),
        ("bdev_malloc_create", {"num_blocks": 8192, "block_size": 4096, "name": "M4", "md_size": 16, "md_interleave": True, "dif_type": 1,
                                "dif_is_head_of_md": True, "dif_pi_format": 2}, "M4"),
        ("bdev_malloc_create", {"num_blocks": 8192, "block_size": 512, "name": "M1", **switches}, Error(EXISTS, "M1")),
        ("bdev_malloc_delete", {"name": "Malloc0"}, True),
        ("bdev_malloc_delete", {"name": "Malloc0"}, Error(NO_DEVICE, "Malloc0")),
    ]
