# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with rbd bdevs where there is no cluster: systest/module_lib.py says what these names mean. The rest is in systest/bdev_rbd.py."""
from stock_lib import NO_DEVICE, Error

ELSEWHERE = {"bdev_rbd_create", "bdev_rbd_delete", "bdev_rbd_fence_silent", "bdev_rbd_register_cluster", "bdev_rbd_resize", "bdev_rbd_unregister_cluster"}


def answers(call, folder):
    call("bdev_rbd_get_clusters_info")
    call("bdev_rbd_get_jobs")


def stock(folder):
    return [
        ("bdev_rbd_get_clusters_info", {}, []),
        ("bdev_rbd_delete", {"name": "Ceph0"}, Error(NO_DEVICE, "Ceph0")),
    ]
