/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the rbd module have in common, on the library in memory. */
#ifndef UNITTEST_RBD_KIT_H
#define UNITTEST_RBD_KIT_H

#include "unittest/bdev/fixture.h"

#include "unittest/bdev_modules/rbd_fake.h"
#include "bdev/owner.h"
#include "bdev_modules/rbd/rbd.h"
#include "thread/worker.h"

#define BS 4096u

/* For UNIT_MAIN(): the library in memory, and the fixture of bdevs on it. */
int rbd_kit_start(void);
int rbd_kit_end(void);

struct answer {
	atomic_bool done;
	int rc;
	char text[BDEV_ERROR_MAX];
};

/* A bdev_rbd_cb and a bdev_owner_cb; arg: struct answer. */
void on_answer(void *arg, int rc, const char *text);
/* Waits for it. */
int answer_rc(struct answer *a);
/* A bdev_delete_cb; arg: struct answer. */
void note_deleted(void *arg, int rc);

struct bdev_rbd_opts opts_of(const char *name);
int create(const struct bdev_rbd_opts *opts, struct answer *a);
int create_named(const char *name);
int create_standby(const char *name);
/* A call waits because of one of fake.hold_. */
bool lock_waits(void *arg);
/* Nothing of librados and librbd is open any more; for fixture_poll(). */
bool nothing_is_open(void *arg);
/* Waits for that, and checks that no cluster is registered. Then the fake is as at the start. */
void check_nothing_is_left(void);

#endif
