# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with uring bdevs: systest/module_lib.py says what these names mean."""
from stock_lib import OTHER_UUID

PASSING = {"bdev_aio_rescan", "bdev_uring_rescan"}


class Steps:
    STEPS = ("uring", "aio", "delete_uring", "delete_aio")

    def file(self, kind):
        name = self.name("F")
        path = self.d.folder / name
        path.write_bytes(bytes(self.rng.choice((1, 4)) << 20))
        self.add(kind, self.call(f"bdev_{kind}_create", **self.optional(f"bdev_{kind}_create", name=name, filename=str(path), block_size=512)))

    def uring(self):
        self.file("uring")

    def aio(self):
        self.file("aio")

    def delete_uring(self):
        self.delete_bdev("uring", self.uring)

    def delete_aio(self):
        self.delete_bdev("aio", self.aio)


def new_file(folder):
    path = folder / "disk"
    path.write_bytes(bytes(4 << 20))
    return str(path)


def answers(call, folder):
    path = new_file(folder)
    for kind in ("uring", "aio"):
        call(f"bdev_{kind}_create", name="file0", filename=path)
        call(f"bdev_{kind}_rescan", name="file0")
        call(f"bdev_{kind}_delete", name="file0")


def stock(folder):
    path = new_file(folder)
    return [
        ("bdev_aio_create", {"filename": path, "name": "A0", "readonly": False, "fallocate": False, "nowait": False}, "A0"),
        ("bdev_aio_rescan", {"name": "A0"}, True),
        ("bdev_aio_delete", {"name": "A0"}, True),
        ("bdev_aio_create", {"filename": path, "name": "A0", "block_size": 512, "readonly": True, "fallocate": False, "uuid": OTHER_UUID,
                             "nowait": False}, "A0"),
        ("bdev_get_bdevs", {"name": "A0"}, lambda a: a[0]["product_name"] == "AIO disk" and a[0]["driver_specific"]["aio"]["filename"] == path),
        ("bdev_aio_delete", {"name": "A0"}, True),
        ("bdev_uring_create", {"filename": path, "name": "U0"}, "U0"),
        ("bdev_uring_rescan", {"name": "U0"}, True),
        ("bdev_uring_delete", {"name": "U0"}, True),
        ("bdev_uring_create", {"filename": path, "name": "U0", "block_size": 4096, "uuid": OTHER_UUID}, "U0"),
        ("bdev_uring_delete", {"name": "U0"}, True),
    ]
