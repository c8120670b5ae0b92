/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the tests of bdevs on NVMe controllers: the driver and the bdev layer are the real ones, the controllers
 * are models, run by a poller of the control thread while users' threads submit I/O. All of it is called on the control
 * thread. */
#ifndef UNITTEST_BDEV_NVME_FIXTURE_H
#define UNITTEST_BDEV_NVME_FIXTURE_H

#include "bdev_modules/nvme/bdev_nvme.h"
#include "unittest/bdev/fixture.h"
#include "unittest/nvme/model.h"

#define BUFFER (1u << 20)

extern struct model model;
extern struct model second;     /* polled if the test has initialized it; the test finalizes it */
extern uint8_t *buffer, *other; /* DMA memory, BUFFER bytes each */
extern struct bdev_nvme *nvme;  /* what was attached last */
extern char last_error[BDEV_ERROR_MAX];

/* Suite setup and teardown. */
int drive_setup(void);
int drive_teardown(void);
/* A model, not yet attached, and default options. */
void drive_begin(void);
void drive_begin_attached(void);
/* Detaches `nvme` if it is still there, and checks that the driver kept to the specification. */
void drive_end(void);

/* The end of an operation, to be waited for: thread_control_wait(is_done, &w, WAIT_US). */
struct wait {
	bool done;
	int rc;
};
bool is_done(void *wait);
void ended(void *wait, int rc, const char *error); /* bdev_nvme_done_cb */

/* Attaches the model as Nvme0. */
struct bdev_nvme_attach attach_opts(void);
/* Attaches: the result, after which nvme or last_error is set. */
int attach_with(const struct bdev_nvme_attach *a);
/* Detaches and resets `nvme`: the result. */
int drive_detach(void);
int drive_reset(void);

/* Sets a fault of `model`, on any queue. */
void set_fault(enum model_fault_kind kind, int opcode, unsigned count, uint16_t status);
void fill(uint8_t *p, size_t len, uint8_t seed);

/* Conditions, for fixture_poll() and thread_control_wait(). */
bool model_holds(void *count); /* unsigned: commands held by a fault */
bool is_told(void *user);      /* the user was told that its bdev is removed */
bool is_up(void *unused);      /* `nvme` */
bool all_detached(void *unused);
bool is_up_after(void *resets); /* unsigned: `nvme` is up, and has been down so often */

/* Waits until so many paths of Nvme0n1, of all threads together, are usable. */
void wait_usable(unsigned paths);

/* Three threads that read and write Nvme0n1 and verify what they read, while a test disturbs the controller. */
#define SLOTS 8
struct worker;
struct slot {
	struct worker *w;
	struct bdev_io *io;
	struct iovec iov;
	uint64_t lba;
	uint32_t generation;
	bool reading;
};
struct worker {
	struct user u;
	struct slot slots[SLOTS];
	bool stop; /* atomic */
	atomic_uint outstanding, done, errors, path_errors, miscompares;
};
extern struct worker workers[3];
void workers_start(void);
void workers_stop(void);           /* checks that what they read was right */
void workers_progress(unsigned n); /* waits until each has completed n more I/Os */
bool workers_told(void *unused);
unsigned count_errors(void);

#endif
