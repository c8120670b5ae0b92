# SPDX-License-Identifier: BSD-3-Clause
"""What system tests do with volumes: systest/module_lib.py says what these names mean."""

# Stores and volumes are on their base, not in a saved configuration: systest/bdev_lvol.py restarts daemons with them.
PASSING = {"bdev_lvol_create_lvstore", "bdev_lvol_delete_lvstore", "bdev_lvol_rename_lvstore", "bdev_lvol_grow_lvstore", "bdev_lvol_create", "bdev_lvol_delete",
           "bdev_lvol_snapshot", "bdev_lvol_clone", "bdev_lvol_rename", "bdev_lvol_resize", "bdev_lvol_set_read_only", "bdev_lvol_inflate",
           "bdev_lvol_decouple_parent", "bdev_lvol_set_parent", "bdev_lvol_clone_bdev", "bdev_lvol_set_parent_bdev", "bdev_lvol_start_shallow_copy",
           "bdev_lvol_check_shallow_copy", "bdev_lvol_set_space_thresholds", "bdev_lvol_set_reservation"}


def answers(call, folder):
    call("bdev_malloc_create", name="base0", num_blocks=16384, block_size=4096)
    call("bdev_lvol_create_lvstore", bdev_name="base0", lvs_name="lvs0", cluster_sz=1048576)
    call("bdev_lvol_rename_lvstore", old_name="lvs0", new_name="lvs1")
    call("bdev_lvol_set_space_thresholds", lvs_name="lvs1", space_thresholds=[50, 75])
    call("bdev_lvol_get_lvstores")
    call("bdev_lvol_create", lvol_name="v0", size_in_mib=4, lvs_name="lvs1", thin_provision=True)
    call("bdev_lvol_set_reservation", name="lvs1/v0", reserved_in_mib=4)
    call("bdev_lvol_snapshot", lvol_name="lvs1/v0", snapshot_name="s0")
    call("bdev_lvol_clone", snapshot_name="lvs1/s0", clone_name="c0")
    call("bdev_lvol_get_lvols", lvs_name="lvs1")
    call("bdev_get_bdevs", name="lvs1/s0")
    call("bdev_lvol_rename", old_name="lvs1/c0", new_name="c1")
    call("bdev_lvol_resize", name="lvs1/c1", size_in_mib=8)
    call("bdev_lvol_decouple_parent", name="lvs1/c1")
    call("bdev_lvol_inflate", name="lvs1/v0")
    call("bdev_lvol_set_read_only", name="lvs1/v0")
    call("bdev_malloc_create", name="image0", num_blocks=1024, block_size=4096, uuid="11111111-2222-4333-8444-555555555555")
    call("bdev_lvol_clone_bdev", bdev="image0", lvs_name="lvs1", clone_name="e0")
    call("bdev_lvol_get_lvols", lvs_name="lvs1")
    call("bdev_get_bdevs", name="lvs1/e0")
    call("bdev_lvol_decouple_parent", name="lvs1/e0")
    call("bdev_lvol_set_parent_bdev", lvol_name="lvs1/e0", parent_name="image0")
    call("bdev_malloc_create", name="copy0", num_blocks=1024, block_size=4096)
    copy = call("bdev_lvol_start_shallow_copy", src_lvol_name="lvs1/s0", dst_bdev_name="copy0")
    call("bdev_lvol_check_shallow_copy", operation_id=copy["operation_id"])
    for name in ("e0", "c1", "v0", "s0"):
        call("bdev_lvol_delete", name=f"lvs1/{name}")
    call("bdev_malloc_delete", name="image0")
    call("bdev_malloc_delete", name="copy0")
    call("bdev_lvol_delete_lvstore", lvs_name="lvs1")
    call("bdev_malloc_delete", name="base0")


def stock(folder):
    return [
        ("bdev_malloc_create", {"num_blocks": 16384, "block_size": 4096, "name": "Base0"}, "Base0"),
        ("bdev_lvol_create_lvstore", {"bdev_name": "Base0", "lvs_name": "lvs0", "cluster_sz": 1048576, "clear_method": "unmap"}, lambda a: len(a) == 36),
        ("bdev_lvol_get_lvstores", {"lvs_name": "lvs0"}, lambda a: a[0]["cluster_size"] == 1048576 and a[0]["base_bdev"] == "Base0"),
        ("bdev_lvol_create", {"lvol_name": "v0", "size_in_mib": 4, "lvs_name": "lvs0", "thin_provision": True, "clear_method": "default"},
         lambda a: len(a) == 36),
        ("bdev_get_bdevs", {"name": "lvs0/v0"}, lambda a: a[0]["product_name"] == "Logical Volume" and a[0]["aliases"] == ["lvs0/v0"]),
        ("bdev_malloc_create", {"num_blocks": 1024, "block_size": 4096, "name": "Image0", "uuid": "11111111-2222-4333-8444-555555555555"}, "Image0"),
        ("bdev_lvol_clone_bdev", {"bdev": "Image0", "lvs_name": "lvs0", "clone_name": "e0"}, lambda a: len(a) == 36),
        ("bdev_lvol_set_parent_bdev", {"lvol_name": "lvs0/v0", "parent_name": "Image0"}, True),
        ("bdev_lvol_delete", {"name": "lvs0/e0"}, True),
        ("bdev_lvol_delete", {"name": "lvs0/v0"}, True),
        ("bdev_malloc_delete", {"name": "Image0"}, True),
        ("bdev_lvol_delete_lvstore", {"lvs_name": "lvs0"}, True),
        ("bdev_malloc_delete", {"name": "Base0"}, True),
    ]
