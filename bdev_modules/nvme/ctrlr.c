/* SPDX-License-Identifier: BSD-3-Clause */
/* Controllers: options, the list of them, attach, the driver's events, reset, detach. All on the control thread. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bdev/module_util.h"
#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "usdt/usdt.h"
#include "util/log.h"
#include "util/state_machine.h"

/* for a controller that reports ANA states, but no limit of the time that a transition takes */
#define DEFAULT_ANATT_S 10

static TAILQ_HEAD(, bdev_nvme) controllers = TAILQ_HEAD_INITIALIZER(controllers);
static bool stopping;
static bdev_nvme_news_fn observer;

/* --- Options --- */

#define DEFAULT_OPTIONS                                                                                                \
	{                                                                                                              \
		.action_on_timeout = BDEV_NVME_TIMEOUT_ABORT, .timeout_us = 30000000, .timeout_admin_us = 0,           \
		.keep_alive_timeout_ms = 5000, .bdev_retry_count = 3, .policy = {.rr_min_io = 1},                      \
		.fence_timeout_ms = -1, .default_quiesce_time_ms = 5000, .rdma_retry_count = 7, .enable_flush = true,  \
	}
struct bdev_nvme_options bdev_nvme_options = DEFAULT_OPTIONS;

void bdev_nvme_default_options(struct bdev_nvme_options *opts)
{
	*opts = (struct bdev_nvme_options)DEFAULT_OPTIONS;
}

void bdev_nvme_get_options(struct bdev_nvme_options *opts)
{
	*opts = bdev_nvme_options;
}

int bdev_nvme_check_timeouts(int32_t loss, uint32_t delay, uint32_t fast, char *error)
{
	if (loss < -1) {
		return bdev_error(error, -EINVAL, "ctrlr_loss_timeout_sec %d: must be -1 (no limit) or more", loss);
	}
	if (loss == 0 && (delay != 0 || fast != 0)) {
		return bdev_error(error, -EINVAL,
				  "reconnect_delay_sec %u, fast_io_fail_timeout_sec %u: must be 0 when "
				  "ctrlr_loss_timeout_sec is 0",
				  delay, fast);
	}
	if (loss != 0 && delay == 0) {
		return bdev_error(error, -EINVAL,
				  "reconnect_delay_sec 0: must not be 0 when ctrlr_loss_timeout_sec is %d", loss);
	}
	if (loss > 0 && (delay > (uint32_t)loss || fast > (uint32_t)loss)) {
		return bdev_error(error, -EINVAL,
				  "reconnect_delay_sec %u, fast_io_fail_timeout_sec %u: must not be more than "
				  "ctrlr_loss_timeout_sec (%d)",
				  delay, fast, loss);
	}
	if (fast != 0 && fast < delay) {
		return bdev_error(error, -EINVAL,
				  "fast_io_fail_timeout_sec %u: must be 0 or at least reconnect_delay_sec (%u)", fast,
				  delay);
	}
	return 0;
}

static int check_command_timeouts(const struct bdev_nvme_options *o, char *error)
{
	if (o->timeout_us > BDEV_NVME_TIMEOUT_MAX_US) {
		return bdev_error(error, -EINVAL, "timeout_us %lu: must be 0 to %lu", o->timeout_us,
				  BDEV_NVME_TIMEOUT_MAX_US);
	}
	if (o->timeout_admin_us != 0 &&
	    (o->timeout_admin_us < 1000 || o->timeout_admin_us > BDEV_NVME_TIMEOUT_MAX_US)) {
		return bdev_error(error, -EINVAL, "timeout_admin_us %lu: must be 0 or 1000 to %lu", o->timeout_admin_us,
				  BDEV_NVME_TIMEOUT_MAX_US);
	}
	return 0;
}

int bdev_nvme_set_options(const struct bdev_nvme_options *o, char error[BDEV_ERROR_MAX])
{
	if (!TAILQ_EMPTY(&controllers)) {
		return bdev_error(error, -EBUSY,
				  "the options cannot be changed while controllers are attached ('%s' is)",
				  TAILQ_FIRST(&controllers)->name);
	}
	if (o->bdev_retry_count < -1 || o->bdev_retry_count > 255) {
		return bdev_error(error, -EINVAL, "bdev_retry_count %d: must be -1 (no limit) to 255",
				  o->bdev_retry_count);
	}
	if (o->policy.rr_min_io == 0) {
		return bdev_error(error, -EINVAL, "multipath_opts.min_io 0: must be at least 1");
	}
	int rc = check_command_timeouts(o, error);
	if (rc == 0) {
		rc = bdev_nvme_check_timeouts(o->ctrlr_loss_timeout_sec, o->reconnect_delay_sec,
					      o->fast_io_fail_timeout_sec, error);
	}
	if (rc == 0) {
		rc = bdev_nvme_check_fence(o->fence_timeout_ms, o->default_quiesce_time_ms, error);
	}
	if (rc == 0) {
		bdev_nvme_options = *o;
	}
	return rc;
}

/* --- Lookup --- */

struct bdev_nvme *bdev_nvme_find(const char *name)
{
	struct bdev_nvme *c, *first = NULL;

	TAILQ_FOREACH (c, &controllers, link) {
		if (strcmp(c->name, name) == 0 &&
		    (first == NULL || (first->state != BDEV_NVME_UP && c->state == BDEV_NVME_UP))) {
			first = c;
		}
	}
	return first;
}

struct bdev_nvme *bdev_nvme_next(const struct bdev_nvme *after)
{
	return after ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&controllers);
}

const char *bdev_nvme_name(const struct bdev_nvme *c)
{
	return c->name;
}

const char *bdev_nvme_state_name(const struct bdev_nvme *c)
{
	switch (c->state) {
	case BDEV_NVME_ATTACHING:
		return "attaching";
	case BDEV_NVME_UP:
		return "enabled";
	case BDEV_NVME_DOWN:
		return nvme_ctrlr_state(c->ctrlr) == NVME_CTRLR_BACK_OFF ? "reconnect_is_delayed" : "resetting";
	case BDEV_NVME_GIVEN_UP:
		return c->disabled ? "disabled" : "failed";
	default:
		return "deleting";
	}
}

uint64_t bdev_nvme_state_ticks(const struct bdev_nvme *c)
{
	return c->state_ticks;
}

const struct bdev_nvme_attach *bdev_nvme_attached(const struct bdev_nvme *c)
{
	return &c->opts;
}

struct nvme_ctrlr *bdev_nvme_ctrlr(const struct bdev_nvme *c)
{
	return c->ctrlr;
}

bool bdev_nvme_is_first(const struct bdev_nvme *c)
{
	return TAILQ_FIRST(&c->subsystem->ctrlrs) == c;
}

uint32_t bdev_nvme_resets(const struct bdev_nvme *c)
{
	return c->resets;
}

void bdev_nvme_observe(bdev_nvme_news_fn fn)
{
	observer = fn;
}

void bdev_nvme_tell(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path, const char *why)
{
	if (observer != NULL) {
		observer(c, news, path, why);
	}
}

/* --- The state --- */

static const char *ctrlr_machine_state(unsigned state)
{
	static const char *const names[BDEV_NVME_STATES] = {[BDEV_NVME_ATTACHING] = "attaching",
							    [BDEV_NVME_UP] = "up",
							    [BDEV_NVME_DOWN] = "down",
							    [BDEV_NVME_GIVEN_UP] = "given up",
							    [BDEV_NVME_DETACHING] = "detaching"};

	return state < BDEV_NVME_STATES ? names[state] : "unknown";
}

static const uint32_t ctrlr_next_states[BDEV_NVME_STATES] = {
	[BDEV_NVME_ATTACHING] = 1u << BDEV_NVME_UP | 1u << BDEV_NVME_DETACHING,
	[BDEV_NVME_UP] = 1u << BDEV_NVME_DOWN | 1u << BDEV_NVME_GIVEN_UP | 1u << BDEV_NVME_DETACHING,
	[BDEV_NVME_DOWN] = 1u << BDEV_NVME_UP | 1u << BDEV_NVME_GIVEN_UP | 1u << BDEV_NVME_DETACHING,
	[BDEV_NVME_GIVEN_UP] = 1u << BDEV_NVME_DOWN | 1u << BDEV_NVME_DETACHING,
	[BDEV_NVME_DETACHING] = 0,
};
STATE_MACHINE(bdev_nvme_ctrlr_machine, "bdev_nvme controller", ctrlr_machine_state, ctrlr_next_states)

static void bdev_nvme_set_state(struct bdev_nvme *c, enum bdev_nvme_state state)
{
	state_machine_check(&bdev_nvme_ctrlr_machine, c->state, state, c->name);
	USDT(bdev_nvme_state, c->name, c->opts.trid.traddr, c->state, state);
	c->state = state;
	c->state_ticks = env_ticks();
}

/* Logs why a controller is not attached; the caller is told by its callback as well. A discovery service logs its own
 * failures. */
static void attach_log_failure(const struct bdev_nvme_attach *a, const char *why)
{
	const struct nvme_trid *t = &a->trid;

	if (!a->discovered) {
		log_notice("%s: %s at %s%s%s cannot be attached: %s", a->name,
			   t->subnqn[0] != '\0' ? t->subnqn : "the drive", t->traddr, t->trsvcid[0] != '\0' ? ":" : "",
			   t->trsvcid, why);
	}
}

/* --- Detach: first the bdevs are removed, then queue pairs closed, then the controller is destroyed --- */

static void detach_ended(void *arg)
{
	struct bdev_nvme *c = arg;
	struct bdev_nvme_waiters waiters = STAILQ_HEAD_INITIALIZER(waiters);

	c->ctrlr = NULL;
	USDT(bdev_nvme_ctrlr_release, c->name, c->holds);
	io_device_unregister(&c->device);
	TAILQ_REMOVE(&controllers, c, link);
	bdev_nvme_fence_detached(c);
	bdev_nvme_subsystem_leave(c);
	if (c->attached == NULL) {
		bdev_nvme_tell(c, BDEV_NVME_DETACHED, NULL, NULL);
	} else {
		attach_log_failure(&c->opts, c->error);
		c->attached(c->attached_arg, -EIO, NULL, c->error);
	}
	STAILQ_CONCAT(&waiters, &c->detach_waiters);
	thread_timer_stop(&c->fast_fail_timer);
	thread_timer_stop(&c->drain_timer);
	free(c);
	bdev_nvme_waiters_end(&waiters, 0, NULL);
	bdev_nvme_is_idle_now();
}

/* Bdevs with other paths stay. Their I/O that is outstanding on this controller may end by itself for up to
 * DRAIN_LIMIT_US; then the queue pairs are closed, and what is left takes other paths, as after any loss of a queue
 * pair. The limit is one of time, not of turns: a turn asks each thread, and on a busy machine a thousand turns took
 * longer than the timeout of I/O, whose commands were then aborted and failed. */
#define DRAIN_TURN_US  2000
#define DRAIN_LIMIT_US 2000000

static bool detach_awaits_bdevs(const struct bdev_nvme *c)
{
	const struct bdev_nvme_path *path;

	TAILQ_FOREACH (path, &c->paths, c_link) {
		if (!path->leaving || path->d->leaving) {
			return true;
		}
	}
	return false;
}

static void drain_timer_fired(void *arg)
{
	bdev_nvme_detach_step(arg);
}

/* Whether outstanding commands still have time to end by themselves. The time begins with the first call. */
static bool drain_goes_on(struct bdev_nvme *c)
{
	uint64_t now = env_ticks();

	if (c->drain_end_ticks == 0) {
		c->drain_end_ticks = now + env_us_to_ticks(DRAIN_LIMIT_US);
	}
	return now < c->drain_end_ticks;
}

/* Commands that are outstanding are not to be carried out after they have been submitted elsewhere: has the driver
 * disable a controller over fabrics before its queue pairs are closed. True: its end follows (driver_gave_up(),
 * driver_down()). */
static bool detach_disables(struct bdev_nvme *c)
{
	if (!c->stop_tried && nvme_trtype_is_fabrics(c->opts.trid.trtype) && bdev_nvme_qpairs_outstanding(c) != 0) {
		c->stop_tried = true;
		(void)nvme_ctrlr_stop(c->ctrlr); /* -EBUSY: it is ending already, or has ended */
	}
	return nvme_ctrlr_state(c->ctrlr) == NVME_CTRLR_READY && nvme_ctrlr_is_ending(c->ctrlr);
}

/* Removes the paths to bdevs that have other paths. False: not yet, commands are outstanding or queue pairs connected.
 */
static bool detach_drop_paths(struct bdev_nvme *c)
{
	struct bdev_nvme_path *path;

	if (!c->ending && drain_goes_on(c) && bdev_nvme_qpairs_outstanding(c) != 0) {
		thread_timer_start(&c->drain_timer, DRAIN_TURN_US);
		return false;
	}
	if (!c->ending && detach_disables(c)) {
		return false;
	}
	c->ending = true;
	c->holds++; /* a queue pair that ends here calls bdev_nvme_detach_step(), which is already running */
	bdev_nvme_qpairs_step(c);
	c->holds--;
	if (!bdev_nvme_qpairs_are_idle(c)) {
		return false;
	}
	c->holds++; /* likewise */
	while ((path = TAILQ_FIRST(&c->paths)) != NULL) {
		bdev_nvme_path_remove(path);
	}
	c->holds--;
	return true;
}

void bdev_nvme_hold(struct bdev_nvme *c)
{
	c->holds++;
}

void bdev_nvme_release(struct bdev_nvme *c)
{
	c->holds--;
	bdev_nvme_detach_step(c);
}

void bdev_nvme_detach_step(struct bdev_nvme *c)
{
	if (c->state != BDEV_NVME_DETACHING || c->ctrlr_leaving || c->holds != 0 || detach_awaits_bdevs(c)) {
		return;
	}
	if (!TAILQ_EMPTY(&c->paths) && !detach_drop_paths(c)) {
		return;
	}
	if (__atomic_load_n(&c->num_qpairs, __ATOMIC_RELAXED) == 0) {
		c->ctrlr_leaving = true;
		nvme_ctrlr_destroy(c->ctrlr, detach_ended, c);
	}
}

static void detach_start(struct bdev_nvme *c)
{
	bool was_up = c->state == BDEV_NVME_UP;

	USDT(bdev_nvme_ctrlr_delete, c->name);
	bdev_nvme_set_state(c, BDEV_NVME_DETACHING);
	thread_timer_stop(&c->fast_fail_timer);
	bdev_nvme_waiters_end(&c->reset_waiters, -ENODEV, "the controller is being detached");
	bdev_nvme_waiters_end(&c->disable_waiters, -ENODEV, "the controller is being detached");
	bdev_nvme_hold(c);
	if (!was_up) {
		bdev_nvme_qpairs_set_fails(c, true); /* it will not be connected again: I/O is not to wait */
	}
	bdev_nvme_ns_leave(c);
	bdev_nvme_release(c);
}

void bdev_nvme_detach(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg)
{
	if (c->state == BDEV_NVME_ATTACHING) {
		cb(arg, -EBUSY, "the controller is still being attached");
		return;
	}
	bdev_nvme_waiter_add(&c->detach_waiters, cb, arg);
	if (c->state != BDEV_NVME_DETACHING) {
		detach_start(c);
	}
}

void bdev_nvme_stop(void)
{
	struct bdev_nvme *c = TAILQ_FIRST(&controllers), *next;

	stopping = true;
	bdev_nvme_set_hotplug(false);
	bdev_nvme_discovery_stop_all();
	for (; c != NULL; c = next) {
		next = TAILQ_NEXT(c, link); /* no controller is freed before the control thread's next turn */
		if (c->state == BDEV_NVME_ATTACHING) {
			snprintf(c->error, sizeof(c->error), "the process stops");
		}
		if (c->state != BDEV_NVME_DETACHING) {
			detach_start(c);
		}
	}
}

bool bdev_nvme_is_idle(void)
{
	return TAILQ_EMPTY(&controllers) && bdev_nvme_discovery_is_idle();
}

void bdev_nvme_fini(void)
{
	stopping = false;
}

bool bdev_nvme_is_stopping(void)
{
	return stopping;
}

void bdev_nvme_is_idle_now(void)
{
	if (bdev_nvme_is_idle()) {
		bdev_module_is_idle();
	}
}

/* --- Events of the driver --- */

static void attach_fail(struct bdev_nvme *c, const char *why)
{
	snprintf(c->error, sizeof(c->error), "%s", why);
	detach_start(c); /* leads to detach_ended(), which calls back */
}

static void fast_fail_timer_fired(void *arg)
{
	struct bdev_nvme *c = arg;

	log_warning("%s: not connected for %u s (fast_io_fail_timeout_sec): its I/O fails from now on", c->name,
		    c->opts.fast_io_fail_timeout_sec);
	bdev_nvme_qpairs_set_fails(c, true);
}

static void attach_ended(struct bdev_nvme *c)
{
	uint32_t n = 0;
	const struct nvme_ns *ns = NULL;

	while ((ns = nvme_ctrlr_next_ns(c->ctrlr, ns ? ns->nsid : 0)) != NULL) {
		n++;
	}
	if (c->opts.max_bdevs != 0 && n > c->opts.max_bdevs) {
		char why[NVME_ERROR_MAX];
		snprintf(why, sizeof(why), "the controller has %u namespaces, and max_bdevs is %u", n,
			 c->opts.max_bdevs);
		attach_fail(c, why);
		return;
	}
	char why[NVME_ERROR_MAX];
	if (!bdev_nvme_subsystem_fits(c, why, sizeof(why))) {
		attach_fail(c, why);
		return;
	}
	bdev_nvme_attached_cb cb = c->attached;
	c->attached = NULL;
	snprintf(c->serial, sizeof(c->serial), "%.20s", nvme_ctrlr_identify(c->ctrlr)->sn);
	bdev_nvme_set_state(c, BDEV_NVME_UP);
	bdev_nvme_ns_sync(c);
	cb(c->attached_arg, 0, c, NULL);
}

static void arbitration_set_done(void *arg, const struct nvme_cqe *cqe)
{
	const struct bdev_nvme *c = arg;

	if (nvme_cqe_status(cqe) != 0) {
		log_warning("%s: Set Features, Arbitration: %s", c->name, nvme_status_text(nvme_cqe_status(cqe)));
	}
}

static void set_arbitration(struct bdev_nvme *c)
{
	const struct bdev_nvme_options *o = &bdev_nvme_options;
	uint32_t value = o->arbitration_burst | (uint32_t)o->low_priority_weight << 8 |
			 (uint32_t)o->medium_priority_weight << 16 | (uint32_t)o->high_priority_weight << 24;
	struct nvme_sqe cmd = {.opcode = nvme_admin_set_features,
			       .cdw10 = htole32(NVME_FEAT_FID_ARBITRATION),
			       .cdw11 = htole32(value)};

	if (value != 0 && nvme_ctrlr_admin(c->ctrlr, &cmd, NULL, 0, false, arbitration_set_done, c) != 0) {
		log_warning("%s: Set Features, Arbitration, could not be sent", c->name);
	}
}

/* Whether a controller with several addresses was connected to another subsystem at one of them. */
static bool is_other_subsystem(const struct bdev_nvme *c)
{
	return c->state == BDEV_NVME_DOWN && nvme_ctrlr_next_alternate(c->ctrlr, NULL) != NULL &&
	       strncmp(c->serial, nvme_ctrlr_identify(c->ctrlr)->sn, sizeof(c->serial) - 1) != 0;
}

static void refuse_other_subsystem(struct bdev_nvme *c)
{
	const struct nvme_trid *t = nvme_ctrlr_trid(c->ctrlr);
	char why[NVME_ERROR_MAX];

	snprintf(why, sizeof(why), "at %.80s:%.20s is a subsystem of serial number '%.20s' instead of '%s'", t->traddr,
		 t->trsvcid, nvme_ctrlr_identify(c->ctrlr)->sn, c->serial);
	log_error("%s: %s", c->name, why);
	nvme_ctrlr_refuse(c->ctrlr, why);
}

static void driver_ready(struct bdev_nvme *c)
{
	const struct nvme_id_ctrl *id = nvme_ctrlr_identify(c->ctrlr);

	if (is_other_subsystem(c)) {
		refuse_other_subsystem(c);
		return;
	}
	if (!bdev_nvme_fence_open(c)) {
		nvme_ctrlr_refuse(c->ctrlr, "out of memory");
		return;
	}
	c->crdt[0] = le16toh(id->crdt1);
	c->crdt[1] = le16toh(id->crdt2);
	c->crdt[2] = le16toh(id->crdt3);
	c->sizes_vendor_io = (id->icsvscc & 1) != 0;
	c->has_ana = nvme_ctrlr_has_ana(c->ctrlr);
	c->has_cache = (id->vwc & NVME_CTRL_VWC_PRESENT) != 0;
	c->anatt_s = nvme_ctrlr_anatt_s(c->ctrlr) != 0 ? (uint8_t)nvme_ctrlr_anatt_s(c->ctrlr) : DEFAULT_ANATT_S;
	c->opts.trid = *nvme_ctrlr_trid(c->ctrlr); /* it may have been connected at an alternate address */
	thread_timer_stop(&c->fast_fail_timer);
	set_arbitration(c);
	bdev_nvme_hold(c);
	switch (c->state) {
	case BDEV_NVME_ATTACHING:
		attach_ended(c);
		break;
	case BDEV_NVME_DOWN:
		bdev_nvme_set_state(c, BDEV_NVME_UP);
		log_notice("%s: ready again", c->name);
		bdev_nvme_tell(c, BDEV_NVME_PATH_REGAINED, &c->opts.trid, NULL);
		USDT(bdev_nvme_ctrlr_reconnect, c->name);
		bdev_nvme_qpairs_set_fails(c, false);
		bdev_nvme_ns_sync(c);
		bdev_nvme_paths_update_ana(c);
		break;
	default: /* DETACHING */
		break;
	}
	if (c->state == BDEV_NVME_UP) {
		bdev_nvme_tell(c, BDEV_NVME_CONNECTED, NULL, NULL);
	}
	bdev_nvme_qpairs_readmit(c);
	bdev_nvme_qpairs_step(c);
	bdev_nvme_fence_helper_came();
	bdev_nvme_waiters_end(&c->reset_waiters, 0, NULL);
	bdev_nvme_release(c);
}

/* The connection has ended: ends its queue pairs. Commands that were outstanding are completed as lost: they are
 * submitted elsewhere, or held until the controller has ended. */
static void ctrlr_end_qpairs(struct bdev_nvme *c)
{
	if (nvme_ctrlr_has_ended(c->ctrlr)) {
		bdev_nvme_fence_begin(c); /* first: nothing need be held */
	}
	bdev_nvme_qpairs_step(c);
	bdev_nvme_fence_begin(c);
}

/* The driver is about to disable the controller: a command that arrived there from now on would be refused. */
static void driver_ending(struct bdev_nvme *c)
{
	bdev_nvme_hold(c);
	bdev_nvme_fence_disabling(c);
	bdev_nvme_qpairs_suspend(c);
	bdev_nvme_release(c);
}

/* The queue pairs have to be closed before the driver connects again. */
static void driver_down(struct bdev_nvme *c)
{
	bdev_nvme_hold(c);
	if (c->state == BDEV_NVME_UP || c->state == BDEV_NVME_GIVEN_UP) {
		bool was_up = c->state == BDEV_NVME_UP;
		bdev_nvme_set_state(c, BDEV_NVME_DOWN);
		if (was_up) {
			c->resets++;
			USDT(bdev_nvme_ctrlr_reset, c->name);
			bdev_nvme_paths_disconnected(c);
			const char *why = nvme_ctrlr_last_error(c->ctrlr);
			bdev_nvme_tell(c, BDEV_NVME_PATH_LOST, &c->opts.trid, why);
			bdev_nvme_tell(c, BDEV_NVME_LOST, NULL, why);
			if (c->opts.fast_io_fail_timeout_sec != 0) {
				thread_timer_start(&c->fast_fail_timer,
						   c->opts.fast_io_fail_timeout_sec * UINT64_C(1000000));
			}
		}
	} else if (c->state == BDEV_NVME_DETACHING) {
		bdev_nvme_qpairs_set_fails(c, true);
	}
	ctrlr_end_qpairs(c);
	bdev_nvme_release(c);
}

static void driver_retry(struct bdev_nvme *c)
{
	const char *why = nvme_ctrlr_last_error(c->ctrlr);

	if (c->state == BDEV_NVME_ATTACHING) {
		attach_fail(c, why);
	} else {
		USDT(bdev_nvme_ctrlr_reconnect_delay, c->name);
		bdev_nvme_waiters_end(&c->reset_waiters, -EIO, why);
	}
}

static void driver_gave_up(struct bdev_nvme *c, bool removed)
{
	const char *why = nvme_ctrlr_last_error(c->ctrlr);

	if (c->state == BDEV_NVME_ATTACHING) {
		attach_fail(c, why);
		return;
	}
	c->disabled = c->disabled && !removed;
	if (c->state != BDEV_NVME_DETACHING && !c->disabled) {
		log_error("%s: %s: %s", c->name, removed ? "removed" : "given up", why);
	}
	thread_timer_stop(&c->fast_fail_timer);
	bdev_nvme_hold(c);
	if (c->state != BDEV_NVME_DETACHING) {
		bdev_nvme_paths_disconnected(c);
		bdev_nvme_set_state(c, BDEV_NVME_GIVEN_UP);
		bdev_nvme_tell(c, c->disabled ? BDEV_NVME_DISABLED : BDEV_NVME_FAILED, NULL, c->disabled ? NULL : why);
	}
	ctrlr_end_qpairs(c);
	bdev_nvme_qpairs_set_fails(c, true);
	bdev_nvme_waiters_end(&c->reset_waiters, -EIO, why);
	if (c->disabled) {
		bdev_nvme_waiters_end(&c->disable_waiters, 0, NULL);
	} else if (c->state == BDEV_NVME_GIVEN_UP && (removed || c->opts.ctrlr_loss_timeout_sec != 0)) {
		detach_start(c);
	}
	bdev_nvme_release(c);
}

static void driver_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	struct bdev_nvme *c = arg;

	switch (event) {
	case NVME_EVENT_READY:
		driver_ready(c);
		break;
	case NVME_EVENT_DOWN:
		driver_down(c);
		break;
	case NVME_EVENT_RETRY:
		driver_retry(c);
		break;
	case NVME_EVENT_FAILED:
	case NVME_EVENT_REMOVED:
		driver_gave_up(c, event == NVME_EVENT_REMOVED);
		break;
	case NVME_EVENT_NS_CHANGED:
		if (c->state == BDEV_NVME_UP) {
			bdev_nvme_ns_sync(c);
			bdev_nvme_paths_update_ana(c);
		}
		break;
	case NVME_EVENT_ANA_CHANGED:
		if (c->state == BDEV_NVME_UP) {
			bdev_nvme_paths_update_ana(c);
		}
		break;
	case NVME_EVENT_ENDING:
		driver_ending(c);
		break;
	case NVME_EVENT_LOG:
		bdev_nvme_health_event(c, aer);
		break;
	case NVME_EVENT_DISCOVERY_CHANGED:
		break;
	}
}

/* --- Reset --- */

void bdev_nvme_recover(struct bdev_nvme *c, const char *why)
{
	if (c->state == BDEV_NVME_UP && nvme_ctrlr_reset(c->ctrlr) == 0) {
		log_warning("%s: %s: the controller is reset", c->name, why);
	}
}

void bdev_nvme_reset(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg)
{
	if (c->state == BDEV_NVME_ATTACHING || c->state == BDEV_NVME_DETACHING) {
		cb(arg, -EBUSY,
		   c->state == BDEV_NVME_ATTACHING ? "the controller is still being attached"
						   : "the controller is being detached");
		return;
	}
	if (c->disabled && c->state == BDEV_NVME_GIVEN_UP) {
		cb(arg, -EALREADY, "the controller is disabled (bdev_nvme_enable_controller)");
		return;
	}
	if (!c->disabled) {                 /* otherwise it is being disabled: its commands have not ended yet */
		nvme_ctrlr_reset(c->ctrlr); /* -EBUSY: a reset is under way, and its end is waited for */
	}
	bdev_nvme_waiter_add(&c->reset_waiters, cb, arg);
}

void bdev_nvme_reset_subsystem(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg)
{
	int rc = c->state == BDEV_NVME_UP && !c->disabled ? nvme_ctrlr_reset_subsystem(c->ctrlr) : -EBUSY;

	if (rc != 0) {
		cb(arg, rc,
		   rc == -ENOTSUP ? "the controller has no NVM subsystem reset (CAP.NSSRS)"
				  : "the controller is not connected, or being reset");
		return;
	}
	bdev_nvme_waiter_add(&c->reset_waiters, cb, arg);
}

/* --- Attach --- */

void bdev_nvme_attach_default(struct bdev_nvme_attach *a)
{
	*a = (struct bdev_nvme_attach){
		.num_io_queues = BDEV_NVME_IO_QUEUES,
		.policy = bdev_nvme_options.policy,
		.ctrlr_loss_timeout_sec = bdev_nvme_options.ctrlr_loss_timeout_sec,
		.reconnect_delay_sec = bdev_nvme_options.reconnect_delay_sec,
		.fast_io_fail_timeout_sec = bdev_nvme_options.fast_io_fail_timeout_sec,
		.fence_timeout_ms = bdev_nvme_options.fence_timeout_ms,
		.default_quiesce_time_ms = bdev_nvme_options.default_quiesce_time_ms,
	};
}

bool bdev_nvme_has_address(const struct bdev_nvme *c, const struct nvme_trid *trid)
{
	const struct nvme_trid *alternate = NULL;

	while ((alternate = nvme_ctrlr_next_alternate(c->ctrlr, alternate)) != NULL) {
		if (nvme_trid_is_same_place(alternate, trid)) {
			return true;
		}
	}
	return nvme_trid_is_same_place(nvme_ctrlr_trid(c->ctrlr), trid);
}

/* Checks a further controller with the name of c. */
static int attach_check_sibling(const struct bdev_nvme_attach *a, const struct bdev_nvme *c, char *error)
{
	if (c->state == BDEV_NVME_DETACHING) {
		return TAILQ_FIRST(&c->subsystem->ctrlrs) == c && TAILQ_NEXT(c, subsystem_link) == NULL
			       ? bdev_error(
					 error, -EEXIST,
					 "name '%s': a controller of that name exists already, and is being detached",
					 a->name)
			       : 0;
	}
	if (bdev_nvme_has_address(c, &a->trid)) {
		return bdev_error(error, -EALREADY,
				  "name '%s': a controller of that name exists already, by the same path", a->name);
	}
	if (a->multipath == BDEV_NVME_DISABLE || c->opts.multipath == BDEV_NVME_DISABLE) {
		return bdev_error(error, -EALREADY,
				  "name '%s': a controller of that name exists already, and multipath is disabled",
				  a->name);
	}
	if (strcmp(a->trid.subnqn, c->opts.trid.subnqn) != 0) {
		return bdev_error(error, -EINVAL, "subnqn '%s': the controller of the name '%s' is of '%s'",
				  a->trid.subnqn, a->name, c->opts.trid.subnqn);
	}
	if (strcmp(a->hostnqn, c->opts.hostnqn) != 0) {
		return bdev_error(error, -EINVAL, "hostnqn '%s': the controller of the name '%s' has '%s'", a->hostnqn,
				  a->name, c->opts.hostnqn);
	}
	return 0;
}

static int attach_check(const struct bdev_nvme_attach *a, char *error)
{
	if (stopping) {
		return bdev_error(error, -ESHUTDOWN, "no controllers are attached any more: the process stops");
	}
	if (a->name == NULL || a->name[0] == '\0' || strlen(a->name) >= BDEV_NVME_NAME_MAX) {
		return bdev_error(error, -EINVAL, "name: must have 1 to %d bytes", BDEV_NVME_NAME_MAX - 1);
	}
	const struct bdev_nvme *c;
	TAILQ_FOREACH (c, &controllers, link) {
		int rc = strcmp(c->name, a->name) == 0 ? attach_check_sibling(a, c, error) : 0;
		if (rc != 0) {
			return rc;
		}
	}
	if (a->policy.rr_min_io == 0) {
		return bdev_error(error, -EINVAL, "multipath_opts.min_io 0: must be at least 1");
	}
	if (a->num_io_queues == 0 || a->num_io_queues > BDEV_NVME_IO_QUEUES_MAX) {
		return bdev_error(error, -EINVAL, "num_io_queues %u: must be 1 to %d", a->num_io_queues,
				  BDEV_NVME_IO_QUEUES_MAX);
	}
	int rc = bdev_nvme_check_fence(a->fence_timeout_ms, a->default_quiesce_time_ms, error);
	return rc != 0 ? rc
		       : bdev_nvme_check_timeouts(a->ctrlr_loss_timeout_sec, a->reconnect_delay_sec,
						  a->fast_io_fail_timeout_sec, error);
}

static struct bdev_nvme *attach_alloc(const struct bdev_nvme_attach *a)
{
	struct bdev_nvme *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		return NULL;
	}
	snprintf(c->name, sizeof(c->name), "%s", a->name);
	c->opts = *a;
	c->opts.name = c->name;
	c->state_ticks = env_ticks();
	c->fast_fail_timer = (struct thread_timer){.fn = fast_fail_timer_fired, .arg = c};
	c->drain_timer = (struct thread_timer){.fn = drain_timer_fired, .arg = c};
	TAILQ_INIT(&c->paths);
	TAILQ_INIT(&c->qpairs);
	STAILQ_INIT(&c->reset_waiters);
	STAILQ_INIT(&c->detach_waiters);
	STAILQ_INIT(&c->disable_waiters);
	c->device = (struct io_device){.name = c->name,
				       .channel_size = sizeof(void *),
				       .channel_create = bdev_nvme_qpair_create,
				       .channel_destroy = bdev_nvme_qpair_destroy};
	return c;
}

static void attach_fill_driver_opts(struct nvme_ctrlr_opts *o, struct bdev_nvme *c)
{
	const struct bdev_nvme_attach *a = &c->opts;

	nvme_ctrlr_opts_default(o);
	memcpy(o->hostnqn, a->hostnqn, sizeof(o->hostnqn));
	o->io_queues = (uint16_t)a->num_io_queues;
	o->keep_alive_ms = bdev_nvme_options.keep_alive_timeout_ms;
	o->io_timeout_ms = bdev_nvme_options.action_on_timeout == BDEV_NVME_TIMEOUT_NONE
				   ? 0
				   : (uint32_t)((bdev_nvme_options.timeout_us + 999) / 1000);
	o->io_timeout_resets = bdev_nvme_options.action_on_timeout == BDEV_NVME_TIMEOUT_RESET;
	if (bdev_nvme_options.timeout_admin_us != 0) {
		o->admin_timeout_ms = (uint32_t)(bdev_nvme_options.timeout_admin_us / 1000);
	}
	if (a->connect_timeout_ms != 0) {
		o->connect_timeout_ms = a->connect_timeout_ms;
	}
	o->loss_timeout_s = a->ctrlr_loss_timeout_sec;
	o->reconnect_delay_s = a->reconnect_delay_sec;
	o->admin_poll_us = bdev_nvme_options.adminq_poll_period_us < UINT32_MAX
				   ? (uint32_t)bdev_nvme_options.adminq_poll_period_us
				   : UINT32_MAX;
	o->rdma_retry_count = bdev_nvme_options.rdma_retry_count;
	o->rdma_ack_timeout = bdev_nvme_options.rdma_ack_timeout;
	o->rdma_tos = bdev_nvme_options.rdma_tos;
	o->rdma_cm_timeout_ms = bdev_nvme_options.rdma_cm_timeout_ms;
	o->tcp_header_digest = a->hdgst;
	o->tcp_data_digest = a->ddgst;
	o->tcp_priority = a->priority;
	o->tcp_psk_compat = a->psk_compat;
	o->tcp_concat = a->concat;
	o->disable_sq_flow_control = a->disable_sq_flow_control;
	o->event = driver_event;
	o->event_arg = c;
}

/* Adds an alternate address to a controller, which is tried when the one in use does not answer. */
static int attach_add_address(struct bdev_nvme *c, const struct bdev_nvme_attach *a, char *error)
{
	if (bdev_nvme_sibling(c) != NULL || TAILQ_FIRST(&c->subsystem->ctrlrs) != c) {
		return bdev_error(error, -EINVAL, "multipath failover: '%s' has several controllers (multipath)",
				  c->name);
	}
	if (a->trid.trtype != c->opts.trid.trtype) {
		return bdev_error(error, -EINVAL, "trtype %s: the controller of the name '%s' has %s",
				  nvme_trtype_name(a->trid.trtype), c->name, nvme_trtype_name(c->opts.trid.trtype));
	}
	if (c->state == BDEV_NVME_ATTACHING) {
		return bdev_error(error, -EBUSY, "name '%s': the controller is still being attached", c->name);
	}
	return nvme_ctrlr_add_alternate(c->ctrlr, &a->trid) == 0 ? 0 : bdev_error(error, -ENOMEM, "out of memory");
}

bool bdev_nvme_drop_address(struct bdev_nvme *c, const struct nvme_trid *trid)
{
	if (nvme_ctrlr_next_alternate(c->ctrlr, NULL) == NULL) {
		return false;
	}
	if (nvme_trid_is_same_place(nvme_ctrlr_trid(c->ctrlr), trid)) {
		nvme_ctrlr_switch(c->ctrlr); /* the address in use is an alternate one from now on */
		if (!c->disabled) {
			nvme_ctrlr_reset(c->ctrlr); /* -EBUSY: it is being connected already */
		}
	}
	return nvme_ctrlr_remove_alternate(c->ctrlr, trid) == 0;
}

void bdev_nvme_attach(const struct bdev_nvme_attach *a, bdev_nvme_attached_cb cb, void *arg)
{
	char error[NVME_ERROR_MAX > BDEV_ERROR_MAX ? NVME_ERROR_MAX : BDEV_ERROR_MAX];
	struct nvme_ctrlr_opts opts;
	int rc = attach_check(a, error);
	struct bdev_nvme *c = rc == 0 && a->multipath == BDEV_NVME_FAILOVER ? bdev_nvme_find(a->name) : NULL;

	if (c != NULL && c->state != BDEV_NVME_DETACHING) {
		rc = attach_add_address(c, a, error);
		cb(arg, rc, rc == 0 ? c : NULL, rc == 0 ? NULL : error);
		return;
	}
	c = rc == 0 ? attach_alloc(a) : NULL;

	if (rc == 0 && c == NULL) {
		rc = bdev_error(error, -ENOMEM, "out of memory");
		attach_log_failure(a, error);
	}
	if (rc != 0) { /* the caller reports wrong arguments, and nothing is logged */
		cb(arg, rc, NULL, error);
		return;
	}
	c->attached = cb;
	c->attached_arg = arg;
	attach_fill_driver_opts(&opts, c);
	rc = bdev_nvme_keys_get(&c->opts, &opts, error);
	if (rc == 0) {
		c->ctrlr = nvme_ctrlr_create(&c->opts.trid, &opts, error);
		rc = c->ctrlr != NULL ? 0 : -errno;
		bdev_nvme_keys_put(&opts);
	}
	if (rc == 0 && bdev_nvme_subsystem_join(c) != 0) {
		nvme_ctrlr_destroy(c->ctrlr, NULL, NULL); /* without a callback: c is freed before its end */
		rc = bdev_error(error, -ENOMEM, "out of memory");
	}
	if (rc != 0) {
		attach_log_failure(a, error);
		free(c);
		cb(arg, rc, NULL, error);
		return;
	}
	io_device_register(&c->device);
	TAILQ_INSERT_TAIL(&controllers, c, link);
}
