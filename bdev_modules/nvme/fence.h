/* SPDX-License-Identifier: BSD-3-Clause */
/* Fences: what keeps a write that was lost with a controller from landing behind a newer one.
 *
 * A controller over fabrics that the host has lost contact with may still carry out commands, much later. So a command
 * that changes data and was outstanding is neither submitted to another controller nor answered before the lost
 * controller is known to have ended: it was disabled (CC.EN 0, CSTS.RDY 0), or another controller of its subsystem has
 * reset it, or so much time has passed that it must have ended its connections by itself (Keep Alive Timeout, Command
 * Quiesce Time). Until then the command is held in its channel. Reads go elsewhere at once.
 *
 * A fence belongs to one connection of a controller, from its READY on, and outlives the controller while commands are
 * held by it. The control thread owns it. A thread that holds a command reads `done` and counts in `held`. */
#ifndef BDEV_NVME_FENCE_H
#define BDEV_NVME_FENCE_H

#include "bdev/module.h"
#include "bdev_modules/nvme/bdev_nvme.h"
#include "thread/thread.h"

struct bdev_nvme_channel;
struct bdev_nvme_io;
struct bdev_nvme_subsystem;

/* The numbers appear in the probe bdev_nvme_fence_state. */
enum bdev_nvme_fence_state {
	BDEV_NVME_FENCE_NONE,        /* the controller is connected */
	BDEV_NVME_FENCE_DISABLING,   /* the driver has begun to disable it */
	BDEV_NVME_FENCE_CROSS_RESET, /* another controller has been asked to reset it; time counts meanwhile */
	BDEV_NVME_FENCE_WAITING,     /* for time to pass */
	BDEV_NVME_FENCE_DONE,        /* it carries out no command of the connection any more */
	BDEV_NVME_FENCE_STATES,
};

/* Something on the control thread that waits for the end of a fence. */
struct bdev_nvme_fence_wait {
	void (*fn)(void *arg);
	void *arg;
	STAILQ_ENTRY(bdev_nvme_fence_wait) link;
};

#define BDEV_NVME_FENCE_HELPERS 16

struct bdev_nvme_fence {
	bool done;     /* atomic, set once by the control thread */
	uint32_t held; /* atomic: commands held in channels */

	/* The control thread's. Other threads may read them while it waits for them. */
	enum bdev_nvme_fence_state state;
	struct bdev_nvme *c;                   /* NULL: detached */
	struct bdev_nvme_subsystem *subsystem; /* NULL: gone, and nothing is held in channels */
	char name[BDEV_NVME_NAME_MAX];
	struct nvme_trid trid;
	char hostnqn[NVME_NQN_MAX];
	uint16_t cntlid;
	struct nvme_ctrlr_quiesce_info info;
	int32_t timeout_ms;
	uint32_t default_quiesce_time_ms;
	uint64_t begun_ticks; /* when contact was lost, or disabling began; 0: not yet */
	uint64_t until_ticks; /* when time is over; 0: not yet known */
	struct thread_timer timer;
	/* Cross-Controller Reset. A helper is a connection, named by the serial number of its fence. */
	uint64_t serial;                      /* of this one; never 0 */
	struct nvme_cross_reset *cross_reset; /* CROSS_RESET; else NULL */
	uint64_t helper_serial;
	uint16_t helper_cntlid;
	uint64_t tried[BDEV_NVME_FENCE_HELPERS]; /* helpers that could not do it */
	unsigned num_tried;
	struct thread_timer seek_timer;
	STAILQ_HEAD(, bdev_nvme_fence_wait) waits;
	TAILQ_ENTRY(bdev_nvme_fence) link;
};

/* The controller has been connected: makes the fence of the connection. False: out of memory. */
bool bdev_nvme_fence_open(struct bdev_nvme *c);
/* The driver has begun to disable the controller. */
void bdev_nvme_fence_disabling(struct bdev_nvme *c);
/* The connection has ended, and all its queue pairs have, so that every command of it has an answer, is held, or is
 * submitted elsewhere. Does nothing if the fence has begun already. */
void bdev_nvme_fence_begin(struct bdev_nvme *c);
/* A controller was connected: it may help fences that wait. */
void bdev_nvme_fence_helper_came(void);
/* Has another controller reset the one of f, if there is one that may, and f waits. */
void bdev_nvme_fence_seek_helper(void *fence);
/* The controller of f carries out no command any more, or its time is over: how says why. Submits and answers what was
 * held; f may have been freed afterwards. */
void bdev_nvme_fence_end(struct bdev_nvme_fence *f, enum bdev_nvme_fence_end how);
/* Changes the state. */
void bdev_nvme_fence_set_state(struct bdev_nvme_fence *f, enum bdev_nvme_fence_state state);
/* The controller is about to be freed. */
void bdev_nvme_fence_detached(struct bdev_nvme *c);
/* The subsystem is about to be freed. It has no bdevs. */
void bdev_nvme_fence_subsystem_gone(const struct bdev_nvme_subsystem *m);
/* The serial number of the newest fence, which is that of the newest connection. */
uint64_t bdev_nvme_fence_newest(void);
/* A fence of a controller of that subsystem that has begun and is not done, or NULL. newest: of connections that are
 * not newer than the one with this serial number. */
struct bdev_nvme_fence *bdev_nvme_fence_find(const struct bdev_nvme_subsystem *m, uint64_t newest);
/* Calls w->fn(w->arg) when f is done. f is not done yet. */
void bdev_nvme_fence_wait(struct bdev_nvme_fence *f, struct bdev_nvme_fence_wait *w, void (*fn)(void *arg), void *arg);
/* Whether an admin command that was lost with c's connection, or is lost now, has to wait before it is answered: it
 * changes something, and may still be carried out. */
bool bdev_nvme_fence_holds_admin(const struct bdev_nvme *c, uint8_t opcode);

/* The using thread of n's queue pair: n was lost with it. True: n is held, and is submitted again or answered when the
 * fence is done. */
bool bdev_nvme_fence_hold(struct bdev_nvme_io *n);
/* The module's figures: fences since the process began, and what they hold. Control thread. */
void bdev_nvme_fence_figures(bdev_module_figure_fn fn, void *arg);
/* Writes what a held I/O waits for. The thread of its channel, while the control thread waits for it. */
void bdev_nvme_fence_describe(const struct bdev_nvme_io *n, char *text, size_t size);
/* Whether a command may change data or other state of the controller, as far as its opcode says. Pure. */
bool bdev_nvme_opcode_changes(uint8_t opcode, bool admin);
/* How long to wait for a controller that cannot be reached, in ms. Pure. */
uint64_t bdev_nvme_fence_time_ms(int32_t timeout_ms, uint32_t default_quiesce_time_ms,
				 const struct nvme_ctrlr_quiesce_info *info);

#endif
