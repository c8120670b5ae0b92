/* SPDX-License-Identifier: BSD-3-Clause */
/* librados and librbd in memory, for the module's tests: one cluster, one pool, a few images, and a thread that ends
 * I/O. Tests say what goes wrong. */
#ifndef UNITTEST_RBD_FAKE_H
#define UNITTEST_RBD_FAKE_H

#include <stdatomic.h>

#include "bdev_modules/rbd/library.h"

#define FAKE_OBJECT_BYTES 65536
#define FAKE_IMAGE_BYTES  (1u << 20)

/* Who has the exclusive lock of the image. */
enum fake_lock { FAKE_LOCK_FREE, FAKE_LOCK_OWN, FAKE_LOCK_OTHER };
#define FAKE_OTHER "127.0.0.1:0/2"

struct fake {
	atomic_int rw_open_rc; /* what opening, unless it is read-only, returns, if not 0 */
	atomic_int connect_rc, open_rc, stat_rc, watch_rc, io_rc, aio_rc,
		resize_rc; /* what these functions return, if not 0 */
	atomic_bool hold_connect, hold_open, hold_close, hold_io, hold_resize;        /* these wait until it is false */
	atomic_uint clients, connects, shutdowns, opens, closes, ioctxs, completions; /* that exist, or calls so far */
	atomic_int lock_rc, break_rc;             /* what taking the lock, and blocklisting its owner, return */
	atomic_int lock_owner;                    /* enum fake_lock */
	atomic_uint blocklisted;                  /* other clients, so far */
	atomic_bool addr_is_other;                /* this client has the address of who has the lock */
	_Atomic(const char *) cache, pwl;         /* the effective rbd_cache and rbd_persistent_cache_mode; NULL: off */
	atomic_bool no_lock;                      /* the image lacks the feature exclusive-lock */
	atomic_bool hold_lock;                    /* reading who has it, and taking it, wait */
	atomic_int notify_rc, id_rc, watchers_rc; /* what these return, if not 0 */
	atomic_bool silent;                       /* the client FAKE_OTHER does not answer notifications */
	atomic_uint silent_times;                 /* it answers after so many; 0: it does not */
	atomic_uint notifies;                     /* so far */
	atomic_uint cut;                          /* bytes that a reply to a notification lacks */
	atomic_bool hold_notify;                  /* notifications wait */
	atomic_uint waiting;                      /* calls that wait because of hold_ */
	uint8_t memory[2 * FAKE_IMAGE_BYTES];
	atomic_ulong size, stripe_bytes, stripe_count;
	atomic_int stripes_rc; /* what telling the size of a stripe returns */
	char settings[1024];   /* "key=value " of each rados_conf_set() */
};
extern struct fake fake;

/* Puts the functions into the module's table, and starts the thread. */
void fake_start(void);
void fake_stop(void);
/* Moods and counts as at the start; the image is zeroes. */
void fake_reset(void);
/* Somebody else has changed the image: its watchers are told, on a thread of the library's. */
void fake_change_size(uint64_t bytes);

#endif
