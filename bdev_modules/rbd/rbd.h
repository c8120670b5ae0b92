/* SPDX-License-Identifier: BSD-3-Clause */
/* Images of a Ceph cluster, through librbd. Control thread, unless a function says otherwise. error: BDEV_ERROR_MAX
 * bytes.
 *
 * Whatever waits for the cluster (to connect, to open, to resize, to close) does so on a worker thread. I/O is
 * asynchronous: librbd's threads tell its end, and hand it back to the channel's thread. */
#ifndef BDEV_RBD_H
#define BDEV_RBD_H

#include "bdev/bdev.h"

/* A setting of librados or librbd. */
struct bdev_rbd_setting {
	const char *key, *value;
};

/* How a cluster is reached. All strings are copied; NULL: not given. */
struct bdev_rbd_cluster_opts {
	const char *name;        /* of a registered one; NULL: that of images which name no cluster */
	const char *user_id;     /* "admin" for client.admin, librados' default */
	const char *config_file; /* NULL: librados' own, unless there are settings */
	const char *key_file;    /* a keyring */
	const char *core_mask;   /* CPUs of librados' threads, as of -m; NULL: those without a reactor */
	const struct bdev_rbd_setting *settings;
	size_t num_settings;
};

struct bdev_rbd_opts {
	const char *name; /* NULL: Ceph0, Ceph1 ... */
	const char *pool, *image;
	const char *rados_namespace, *snapshot; /* NULL: none. A snapshot is read-only. */
	const uint8_t *uuid;                    /* 16 bytes; NULL: a random one */
	uint32_t block_size;                    /* bytes */
	bool read_only;
	bool standby;                         /* refuses all I/O until bdev_own() (bdev/owner.h) */
	struct bdev_rbd_cluster_opts cluster; /* with a name: a registered one, and nothing else is given */
};

/* The end of an operation: rc 0, or a negative errno; text: the bdev's or cluster's name, or the error. */
typedef void (*bdev_rbd_cb)(void *arg, int rc, const char *text);

/* Connects to a cluster, and keeps the connection for images that name it. cb may be called before this returns.
 * -EEXIST: the name is taken. */
void bdev_rbd_register_cluster(const struct bdev_rbd_cluster_opts *opts, bdev_rbd_cb cb, void *arg);
/* Ends that. cb is called when the connection is closed; -ENOENT: there is none of that name; -EBUSY: images use it. */
void bdev_rbd_unregister_cluster(const char *name, bdev_rbd_cb cb, void *arg);

/* What there is to tell of a registered cluster. Pointers are valid until the caller returns to the loop. */
struct bdev_rbd_cluster_info {
	struct bdev_rbd_cluster_opts opts;
	uint32_t images; /* that use the connection */
	bool connected;  /* or it is being connected */
};
/* The n-th registered cluster, from 0. False: there are fewer. */
bool bdev_rbd_get_cluster(size_t n, struct bdev_rbd_cluster_info *info);

/* Opens an image and registers a bdev. cb may be called before this returns. */
void bdev_rbd_create(const struct bdev_rbd_opts *opts, bdev_rbd_cb cb, void *arg);
/* As bdev_unregister(); or cb(arg, -ENODEV). */
void bdev_rbd_delete(const char *name, bdev_delete_cb cb, void *arg);
/* Makes the image larger. The bdev follows, as it follows any size that others give the image. bytes: a multiple of the
 * bdev's block size, and not less than the bdev has. */
void bdev_rbd_resize(const char *name, uint64_t bytes, bdev_rbd_cb cb, void *arg);
/* The bytes of the bdev of that name; 0: there is none of this module. */
uint64_t bdev_rbd_bytes(const char *name);

/* Has fn(bdev's name, reason) called when no I/O of a bdev can be carried out any more: Ceph has blocklisted this
 * client, or the image is gone. */
void bdev_rbd_observe_losses(void (*fn)(const char *name, const char *reason));

/* rc 0 and the addresses of the n clients that were blocklisted; or a negative errno, error says why, and the n clients
 * were blocklisted before. Pointers are valid until it returns. */
typedef void (*bdev_rbd_fenced_cb)(void *arg, int rc, const char *error, const char *const *addresses, size_t n);
/* Blocklists those of the named clients of the cluster that watch the image of a bdev, do not have its lock, and twice
 * in a row do not answer within two seconds, as a process that has died or is stopped: the lock of the image is given
 * and taken without waiting for them then. Who has the lock is left alone: bdev_own() takes it away. clients: their
 * addresses, as `client` of bdev_get_bdevs has them, behind each other. until_us: of CLOCK_BOOTTIME; nobody is
 * blocklisted after that. -ENODEV: there is no such bdev of this module; -EBUSY: an earlier call for this bdev has not
 * ended; -ETIME: until_us has passed; errors of the cluster. */
void bdev_rbd_fence_silent(const char *name, const char *clients, uint64_t until_us, bdev_rbd_fenced_cb cb, void *arg);

/* What a worker thread does in Ceph's libraries. */
struct bdev_rbd_job_info {
	const char *name;                /* "connect", "disconnect", "open", "close", "refresh", "resize", "take lock",
					    "give lock", "ask watchers" */
	const char *cluster_name;        /* NULL: the connection has no name */
	const char *bdev, *pool, *image; /* NULL: it is a job of a connection */
	const char *call; /* the function of librados or librbd that it has called last; NULL: none yet */
	uint64_t age_us;
};
/* The n-th of them, the oldest first; also those for which nobody waits any more. Pointers are valid until the caller
 * returns. False: there are fewer. Control thread. */
bool bdev_rbd_get_job(size_t n, struct bdev_rbd_job_info *info);
/* Writes a job as what something else waits for. */
void bdev_rbd_describe_job(const struct bdev_rbd_job_info *info, char *text, size_t size);
/* Writes the oldest job of the bdev of that name; nothing, if it has none. */
void bdev_rbd_waits_for(const char *bdev, char *text, size_t size);

/* What makes b again. Pointers are into b. False: b is of another module. */
bool bdev_rbd_get(const struct bdev *b, struct bdev_rbd_opts *opts);

#endif
