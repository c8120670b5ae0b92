/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of librados and librbd that the module uses. The libraries are loaded when the first cluster is
 * connected, because their start costs 30 ms and 18 MiB, and few nodes have a Ceph. */
#ifndef BDEV_RBD_LIBRARY_H
#define BDEV_RBD_LIBRARY_H

#include <rbd/librbd.h>

#define RBD_LIBRARY_FUNCTIONS(X)                                                                                       \
	X(rados_create)                                                                                                \
	X(rados_conf_read_file)                                                                                        \
	X(rados_conf_set)                                                                                              \
	X(rados_connect)                                                                                               \
	X(rados_blocklist_add)                                                                                         \
	X(rados_getaddrs)                                                                                              \
	X(rados_notify2)                                                                                               \
	X(rados_buffer_free)                                                                                           \
	X(rados_shutdown)                                                                                              \
	X(rados_ioctx_create)                                                                                          \
	X(rados_ioctx_set_namespace)                                                                                   \
	X(rados_ioctx_destroy)                                                                                         \
	X(rbd_open)                                                                                                    \
	X(rbd_open_read_only)                                                                                          \
	X(rbd_close)                                                                                                   \
	X(rbd_get_features)                                                                                            \
	X(rbd_stat)                                                                                                    \
	X(rbd_get_stripe_unit)                                                                                         \
	X(rbd_get_stripe_count)                                                                                        \
	X(rbd_resize2)                                                                                                 \
	X(rbd_update_watch)                                                                                            \
	X(rbd_update_unwatch)                                                                                          \
	X(rbd_config_image_list)                                                                                       \
	X(rbd_config_image_list_cleanup)                                                                               \
	X(rbd_lock_get_owners)                                                                                         \
	X(rbd_lock_get_owners_cleanup)                                                                                 \
	X(rbd_is_exclusive_lock_owner)                                                                                 \
	X(rbd_lock_break)                                                                                              \
	X(rbd_lock_acquire)                                                                                            \
	X(rbd_lock_release)                                                                                            \
	X(rbd_get_id)                                                                                                  \
	X(rbd_watchers_list)                                                                                           \
	X(rbd_watchers_list_cleanup)                                                                                   \
	X(rbd_aio_create_completion)                                                                                   \
	X(rbd_aio_get_return_value)                                                                                    \
	X(rbd_aio_release)                                                                                             \
	X(rbd_aio_readv)                                                                                               \
	X(rbd_aio_writev)                                                                                              \
	X(rbd_aio_discard)                                                                                             \
	X(rbd_aio_write_zeroes)                                                                                        \
	X(rbd_aio_flush)                                                                                               \
	X(rbd_aio_compare_and_write)

struct rbd_library {
#define RBD_LIBRARY_MEMBER(function_) __typeof__(&(function_)) function_;
	RBD_LIBRARY_FUNCTIONS(RBD_LIBRARY_MEMBER)
#undef RBD_LIBRARY_MEMBER
};

/* Valid after rbd_library_load() has returned 0; does not change then. */
extern struct rbd_library librbd;

/* Loads the libraries, once; functions that are there already (of a test) are left. 0; or -ELIBACC, and error
 * (BDEV_ERROR_MAX bytes) says what is missing. Any thread; takes some 30 ms. */
int rbd_library_load(char *error);

#endif
