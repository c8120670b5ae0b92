/* SPDX-License-Identifier: BSD-3-Clause */
/* Several processes have a bdev for the same file or Ceph image, and one of them at a time may use it: the owner. A
 * bdev that was made as a standby refuses all I/O with Controller Pathing Error, so that hosts try another controller.
 * When it is made the owner, it takes a lock that the other processes see (of the file, or of Ceph), and serves I/O.
 *
 *              bdev_own()              lock taken
 *     STANDBY ------------> TAKING ------------------> OWNER
 *        ^                    | failed                  |  bdev_disown(), or the lease has ended
 *        +--------------------+                         v
 *        |        lock given back           no I/O is under way
 *        +------------------- GIVING <--------------- DRAINING      (bdev_own(): OWNER again)
 *
 * From DRAINING on new I/O is refused. The lock is given back when no I/O is under way any more, so no write of this
 * process can land behind one of the next owner. If I/O does not end, the bdev stays in DRAINING and keeps the lock.
 *
 * An owner may have a lease, which ends by itself: whoever decides about owners (varve-cluster) may die or be stopped.
 * Control thread, unless a function says otherwise. error: BDEV_ERROR_MAX bytes. */
#ifndef BDEV_OWNER_H
#define BDEV_OWNER_H

#include <sys/queue.h>

#include "bdev/module.h"

#define BDEV_OWN_FOR_EVER UINT64_MAX

enum bdev_owner_state {
	BDEV_OWNER_STANDBY,
	BDEV_OWNER_TAKING,
	BDEV_OWNER_OWNER,
	BDEV_OWNER_DRAINING,
	BDEV_OWNER_GIVING
};

struct bdev_owner;

/* What a module does for it. */
struct bdev_owner_ops {
	/* Takes the lock, and calls bdev_owner_taken(), now or later. fence: if another client has it, that client is
	 * first kept from ever writing again (Ceph's blocklist), unless until_us, the end of the lease, has passed: it
	 * may be the rightful owner then. */
	void (*take)(struct bdev_owner *o, uint64_t until_us, bool fence);
	/* Gives the lock back, and calls bdev_owner_given(), now or later. */
	void (*give)(struct bdev_owner *o);
	/* How many I/Os of a channel (the module's context) are under way. Channel's thread. */
	uint32_t (*in_flight)(const void *channel);
	/* Writes what take or give, which has not ended, waits for; nothing, if it does not know. NULL: it never knows.
	 */
	void (*waits_for)(const struct bdev_owner *o, char *text, size_t size);
};

/* rc 0; or a negative errno, and error says why. */
typedef void (*bdev_owner_cb)(void *arg, int rc, const char *error);

/* Embedded in the module's bdev. All fields are private. */
struct bdev_owner {
	bool refuses; /* atomic; read for each I/O */
	bool is_set;  /* bdev_owner_init() was called */
	enum bdev_owner_state state;
	struct bdev *bdev;
	const struct bdev_owner_ops *ops;
	uint64_t until_us;  /* of the lease */
	uint32_t in_flight; /* when it was last counted, in DRAINING */
	struct thread_timer timer;
	bdev_owner_cb cb; /* of bdev_own() in TAKING, of bdev_disown() in DRAINING and GIVING; or NULL */
	void *arg;
	LIST_ENTRY(bdev_owner) link;
};

/* --- For modules --- */

/* Makes a bdev, which has not been registered yet, a standby. */
void bdev_owner_init(struct bdev_owner *o, struct bdev *b, const struct bdev_owner_ops *ops);
/* The bdev goes: ends what is under way (cb gets -ENODEV). The module gives back the lock itself, and does not call the
 * two functions below any more. For one that was not initialized, too. */
void bdev_owner_fini(struct bdev_owner *o);
/* An owner can carry out no I/O any more, because of `why`, which stays. */
void bdev_owner_end(struct bdev_owner *o, const char *why);
/* The end of ops->take. */
void bdev_owner_taken(struct bdev_owner *o, int rc, const char *error);
/* The end of ops->give. */
void bdev_owner_given(struct bdev_owner *o, int rc, const char *error);

/* Whether an I/O must be refused, with BDEV_OWNER_STATUS. Any thread. */
static inline bool bdev_owner_refuses(const struct bdev_owner *o)
{
	return __atomic_load_n(&o->refuses, __ATOMIC_RELAXED);
}
#define BDEV_OWNER_STATUS BDEV_STATUS(NVME_SCT_PATH, NVME_SC_CTRL_PATH_ERROR)

/* --- For users --- */

/* Makes the bdev of that name the owner until until_us, microseconds of CLOCK_BOOTTIME; BDEV_OWN_FOR_EVER: without an
 * end. If it is the owner, the lease gets this end. cb may be called before this returns. -ENODEV: no standby has the
 * name; -ETIME: until_us has passed; -EBUSY: another one is the owner, or an operation is under way; -EROFS: the lock
 * can be had by no one. */
void bdev_own(const char *name, uint64_t until_us, bool fence, bdev_owner_cb cb, void *arg);
/* Ends that: cb when no I/O is under way and the lock has been given back; -ECANCELED: bdev_own() was called meanwhile.
 * At once for a bdev that is a standby. */
void bdev_disown(const char *name, bdev_owner_cb cb, void *arg);

/* Writes what an operation on the bdev of that name waits for; nothing, if none is under way or that is not known. */
void bdev_owner_waits_for(const char *name, char *text, size_t size);

struct bdev_owner_info {
	const char *name; /* of the bdev */
	enum bdev_owner_state state;
	uint64_t until_us;  /* in OWNER */
	uint32_t in_flight; /* in DRAINING: I/Os that it waits for */
};
/* The n-th bdev that was made as a standby, from 0. False: there are fewer. */
bool bdev_owner_get(size_t n, struct bdev_owner_info *info);
/* "standby", "taking", "owner", "draining", "giving" */
const char *bdev_owner_state_name(enum bdev_owner_state state);
/* Whether b was made as a standby, so that it may have other owners in other processes. */
bool bdev_has_owner(const struct bdev *b);
/* The present time as of until_us. Any thread. */
uint64_t bdev_owner_now_us(void);

/* Has fn(bdev's name, reason) called when a bdev is no longer the owner although nobody called bdev_disown(). */
void bdev_owner_observe_ends(void (*fn)(const char *name, const char *reason));

#endif
