/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of bdev/ share: reactors on four lcores, without hugepages, that share the CPUs there are; users of
 * bdevs on threads; and a bdev of the tests' own, whose limits and moods are set by the test. */
#ifndef UNITTEST_BDEV_FIXTURE_H
#define UNITTEST_BDEV_FIXTURE_H

#include <stdatomic.h>

#include "bdev/module.h"
#include "bdev_modules/malloc/malloc.h"
#include "bdev_modules/null/null.h"
#include "nvme/spec.h"
#include "unittest/unit.h"

#define WAIT_US 120000000 /* deadline of what must happen soon */

/* Suite setup and teardown. */
int fixture_start(void);
int fixture_stop(void);
/* Four of them, one per lcore. */
struct thread *fixture_thread(unsigned i);
/* Runs the control loop until *flag; false if that takes too long. Whoever sets it calls fixture_wake(). */
bool fixture_wait(const atomic_bool *flag);
bool fixture_poll(bool (*fn)(void *arg), void *arg); /* what nobody announces */
bool fixture_wait_count(const atomic_uint *count, unsigned at_least);
void fixture_wake(void);
void set_done(void *flag); /* an atomic_bool; and wakes */

/* --- A user: a descriptor and a channel on a thread --- */

struct user {
	struct thread *thread;
	struct bdev_desc *desc;
	struct bdev_channel *ch;
	unsigned removes, resizes; /* events it got */
	bool close_on_remove;
};
/* 0 or bdev_open()'s error. */
int user_open(struct user *u, const char *bdev, bool write, struct thread *t);
void user_close(struct user *u);

/* One I/O of a user. Submitted from the control thread by way of a message; wait for it there. */
struct request {
	struct user *user;
	atomic_bool done;
	uint16_t status;
	uint32_t cdw0;
	struct bdev_io *io;
};
struct request *request_new(struct user *u);
void request_free(struct request *r); /* done or never submitted */
void request_submit(struct request *r);
void request_take_back(struct request *r); /* bdev_io_take_back() on its thread */
bool request_wait(struct request *r);
/* Waits and frees; the status, or 0xffff if it did not end. */
uint16_t request_finish(struct request *r);
/* Submits and waits; the status, or 0xffff if it did not end. */
uint16_t request_run(struct request *r);
/* One whole I/O with one iov (buf NULL: none). */
uint16_t user_io(struct user *u, enum bdev_io_type type, void *buf, uint64_t offset, uint64_t num);

/* --- Load: a user that keeps LOAD_DEPTH I/Os going until it is stopped --- */

#define LOAD_DEPTH 4
struct user_load {
	struct user user;
	struct bdev_io *io[LOAD_DEPTH];
	struct iovec iov;
	atomic_bool stop;
	atomic_uint in_flight, done; /* done: in all */
};
/* Half of them are of one type, half of the other, of so many blocks (64 KiB at most) at the bdev's start. They must
 * succeed; one that does not is not submitted again. */
void user_load_start(struct user_load *l, const char *bdev, enum bdev_io_type even, enum bdev_io_type odd,
		     unsigned thread, uint64_t blocks);
/* Waits for those in flight, and closes the user. */
void user_load_stop(struct user_load *l);

/* --- The tests' own bdev: memory, whose blocks are really read and written --- */

struct testdev {
	struct bdev bdev;
	uint8_t *memory;
	/* Moods; those that are not atomic are set while nothing is in flight. */
	atomic_bool hold;                 /* keeps every I/O until testdev_release() */
	bool deaf;                        /* aborts nothing */
	atomic_uint slots;                /* > 0: a channel takes that many at a time, and more is NOMEM */
	uint32_t boundaries[2];           /* not 0: the boundary changes between them, and each I/O keeps one */
	bool shuffle;                     /* completes later, in an order of its own */
	atomic_uint nomem_type;           /* this type never finds room */
	uint16_t fail_status;             /* every I/O ends so */
	uint16_t untouched_status;        /* ... and nothing of it was carried out */
	unsigned fail_one_in;             /* > 0: about one I/O of so many ends with Data Transfer Error */
	uint64_t bad_block;               /* reads of it end with bad_status, until it is written */
	atomic_uint bad_status;           /* 0: there is no bad block */
	bool (*opens)(struct testdev *t); /* whether a channel can be made, on its thread; NULL: always */
	int open_error;                   /* what a channel that cannot be made fails with; 0: -ENOMEM */
	/* What happened. */
	atomic_uint submitted, held, resets, max_depth;
	struct nvme_sqe passed; /* the last NVME_IO or NVME_ADMIN; the opcode's direction moves data to or from: */
	uint8_t scratch[4096];
	atomic_bool gone_in_poll;  /* a channel was destroyed while its poller ran */
	atomic_bool limits_broken; /* an I/O came that the layer should have split or bounced */
};
/* Registers it; limits and io_types may have been set in t->bdev before. */
struct testdev *testdev_new(const char *name, uint32_t block_size, uint64_t num_blocks);
int testdev_register(struct testdev *t);
/* Completes what is held on u's channel: with status, or if that is 0, by doing it. */
void testdev_release(struct testdev *t, struct user *u, uint16_t status);
/* Gives back what is held on u's channel, for want of room that the device has noticed late. */
void testdev_give_back(struct testdev *t, struct user *u);
/* Unregisters and waits; the memory of t is gone. */
bool testdev_delete(struct testdev *t);

/* Deletes by function (bdev_null_delete ...) and waits: its result. */
int fixture_delete(void (*delete)(const char *name, bdev_delete_cb cb, void *arg), const char *name);
void make_null(const char *name, uint32_t block_size, uint64_t num_blocks);
void make_malloc(const char *name, uint32_t block_size, uint64_t num_blocks);

/* Numbers that look random and are the same each time. */
uint64_t fixture_random(uint64_t *state);

#endif
