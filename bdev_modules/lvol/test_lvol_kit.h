/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of volumes as bdevs share: a store with volumes, changes of them, and I/O. */
#ifndef BDEV_LVOL_TEST_KIT_H
#define BDEV_LVOL_TEST_KIT_H

#include "bdev_modules/lvol/bdev_lvol.h"
#include "unittest/bdev/fixture.h"

#define BLOCK          4096u
#define CLUSTER        (64u << 10)
#define CLUSTER_BLOCKS (CLUSTER / BLOCK)
#define BASE_BLOCKS    4096u /* 16 MiB */
#define VOLUME_BYTES   (32 * CLUSTER)
#define VOLUME_BLOCKS  (VOLUME_BYTES / BLOCK)

extern uint8_t data[CLUSTER], other_data[BLOCK];
extern struct iovec one_block, other_block; /* of them */
extern char error[BDEV_ERROR_MAX];

/* --- Operations, and waiting for them --- */

struct operation {
	atomic_bool done;
	int rc;
	char uuid[64], why[BDEV_ERROR_MAX];
};
/* A bdev_lvol_cb; arg: a struct operation. */
void operation_ended(void *arg, int rc, const char *why, const char *uuid);
/* Its result. */
int operation_wait(struct operation *op);
/* A store "lvs" on a bdev; the result. */
int store_make(const char *bdev);
/* It, or NULL. */
struct bdev_lvol_store *the_store(void);
int store_delete(void);
/* A volume of the store; the result. */
int volume_make(const char *name, uint64_t bytes, bool thin);
/* op must live until it has ended. */
void change_start(struct operation *op, enum bdev_lvol_change change, const char *name, const char *new_name,
		  uint64_t bytes);
/* The same, and waits; the result. */
int change_run(enum bdev_lvol_change change, const char *name, const char *new_name, uint64_t bytes);
void wait_for_examine(void);
/* Of the store. */
uint32_t free_clusters(void);
/* Whether that is *arg, a uint32_t; for fixture_poll(). */
bool has_free_clusters(void *arg);

/* --- I/O --- */

/* Writes that byte everywhere; the status. */
uint16_t fill(struct user *u, uint8_t byte, uint64_t block, uint64_t blocks);
/* Whether all bytes are that one. */
bool holds(struct user *u, uint8_t byte, uint64_t block, uint64_t blocks);
/* A malloc bdev full of somebody's old data, with a store on it; and their end. */
void store_on_malloc(void);
void store_off_malloc(void);
/* Of one block of `data`. */
struct request *write_start(struct user *u, uint64_t block);
/* A store on the testdev t0 with a thin volume, whose first cluster is written and which is open; and their end. */
struct testdev *store_on_testdev(struct user *u);
void store_off_testdev(struct testdev *t, struct user *u);
/* Opens the base's channel of the first thread, to release what is held there. */
void watch_base(struct user *base);
/* Whether describe_io() has these words about some I/O of the volume; for fixture_poll(). */
bool something_waits(void *for_what);
/* An ABORT that is yet to be submitted. */
struct request *abort_of(struct user *u, struct request *target);

#endif
