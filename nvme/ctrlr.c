/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a controller: one table of states, one function that changes the state. All on the control thread.
 *
 * Entering a state starts one operation; its completion enters the next. A failure anywhere goes through ctrlr_fail(),
 * which lets go of the connection from a timer, outside of the callbacks of what it frees, and leads to BACK_OFF or to
 * an end. */
#include "nvme/transport.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "keyring/keyring.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/log.h"

#define CSTS_LOOK_US        1000
#define SHUTDOWN_TIMEOUT_MS 10000 /* or what RTD3E asks for */
#define SHUTDOWN_MAX_MS     60000
#define ADMIN_POLL_US       2000 /* admin queues without a descriptor */
#define BACK_OFF_MAX_FACTOR 8
#define NSSR_MAGIC          UINT32_C(0x4e564d65) /* "NVMe" (Base 3.1.3.7) */

enum deadline {
	DEADLINE_NONE,
	DEADLINE_ADMIN,    /* opts.admin_timeout_ms */
	DEADLINE_CONNECT,  /* opts.connect_timeout_ms */
	DEADLINE_READY,    /* CAP.TO, in units of 500 ms (Base 3.1.3.1) */
	DEADLINE_SHUTDOWN, /* RTD3 Entry Latency (Base 5.17.2.1), and no less than ten seconds */
};

struct state_def {
	const char *name;
	void (*enter)(struct nvme_ctrlr *ctrlr);
	enum deadline deadline;
	uint32_t next; /* states that may follow, besides those that may follow any: see LEAVE */
};

static void enter_connect(struct nvme_ctrlr *ctrlr);
static void enter_authenticate(struct nvme_ctrlr *ctrlr);
static void enter_read_cap(struct nvme_ctrlr *ctrlr);
static void enter_read_vs(struct nvme_ctrlr *ctrlr);
static void enter_check_cc(struct nvme_ctrlr *ctrlr);
static void enter_disable(struct nvme_ctrlr *ctrlr);
static void enter_enable(struct nvme_ctrlr *ctrlr);
static void enter_wait_csts(struct nvme_ctrlr *ctrlr);
static void enter_wait_disabled(struct nvme_ctrlr *ctrlr);
static void enter_identify(struct nvme_ctrlr *ctrlr);
static void enter_set_queues(struct nvme_ctrlr *ctrlr);
static void enter_set_aer(struct nvme_ctrlr *ctrlr);
static void enter_scan_ns(struct nvme_ctrlr *ctrlr);
static void enter_ready(struct nvme_ctrlr *ctrlr);
static void enter_shutdown(struct nvme_ctrlr *ctrlr);
static void enter_back_off(struct nvme_ctrlr *ctrlr);

#define TO(s) (UINT32_C(1) << NVME_CTRLR_##s)
/* Allowed from every state: a connection can end in any. */
#define LEAVE (TO(DISCONNECTED) | TO(BACK_OFF) | TO(FAILED) | TO(REMOVED))

static const struct state_def states[NVME_CTRLR_STATES] = {
	[NVME_CTRLR_DISCONNECTED] = {"disconnected", NULL, DEADLINE_NONE, TO(CONNECT)},
	[NVME_CTRLR_CONNECT] = {"connect", enter_connect, DEADLINE_CONNECT, TO(READ_CAP) | TO(AUTHENTICATE)},
	[NVME_CTRLR_AUTHENTICATE] = {"authenticate", enter_authenticate, DEADLINE_ADMIN, TO(READ_CAP)},
	[NVME_CTRLR_READ_CAP] = {"read CAP", enter_read_cap, DEADLINE_ADMIN, TO(READ_VS)},
	[NVME_CTRLR_READ_VS] = {"read VS", enter_read_vs, DEADLINE_ADMIN, TO(CHECK_CC)},
	[NVME_CTRLR_CHECK_CC] = {"check CC", enter_check_cc, DEADLINE_ADMIN, TO(WAIT_READY_OLD) | TO(WAIT_DISABLED)},
	[NVME_CTRLR_WAIT_READY_OLD] = {"wait for ready before disable", enter_wait_csts, DEADLINE_READY, TO(DISABLE)},
	[NVME_CTRLR_DISABLE] = {"disable", enter_disable, DEADLINE_ADMIN, TO(WAIT_DISABLED)},
	[NVME_CTRLR_WAIT_DISABLED] = {"wait for disabled", enter_wait_disabled, DEADLINE_READY, TO(ENABLE)},
	[NVME_CTRLR_ENABLE] = {"enable", enter_enable, DEADLINE_ADMIN, TO(WAIT_READY)},
	[NVME_CTRLR_WAIT_READY] = {"wait for ready", enter_wait_csts, DEADLINE_READY, TO(IDENTIFY)},
	[NVME_CTRLR_IDENTIFY] = {"identify", enter_identify, DEADLINE_ADMIN, TO(SET_QUEUES) | TO(SET_AER)},
	[NVME_CTRLR_SET_QUEUES] = {"set number of queues", enter_set_queues, DEADLINE_ADMIN, TO(SET_AER)},
	[NVME_CTRLR_SET_AER] = {"set event configuration", enter_set_aer, DEADLINE_ADMIN, TO(SCAN_NS) | TO(READY)},
	[NVME_CTRLR_SCAN_NS] = {"read namespaces", enter_scan_ns, DEADLINE_ADMIN /* of each command */, TO(READY)},
	[NVME_CTRLR_READY] = {"ready", enter_ready, DEADLINE_NONE, TO(SHUTDOWN)},
	[NVME_CTRLR_SHUTDOWN] = {"shutdown", enter_shutdown, DEADLINE_ADMIN, TO(WAIT_SHUTDOWN)},
	[NVME_CTRLR_WAIT_SHUTDOWN] = {"wait for shutdown", enter_wait_csts, DEADLINE_SHUTDOWN, 0},
	[NVME_CTRLR_BACK_OFF] = {"back off", enter_back_off, DEADLINE_NONE, TO(DISCONNECTED)},
	[NVME_CTRLR_FAILED] = {"failed", NULL, DEADLINE_NONE, 0},
	[NVME_CTRLR_REMOVED] = {"removed", NULL, DEADLINE_NONE, 0},
};

const char *nvme_ctrlr_state_name(enum nvme_ctrlr_state s)
{
	return s < NVME_CTRLR_STATES ? states[s].name : "unknown";
}

static uint64_t shutdown_ms(const struct nvme_ctrlr *ctrlr)
{
	uint32_t ms = le32toh(ctrlr->id.rtd3e) / 1000;

	return ms < SHUTDOWN_TIMEOUT_MS ? SHUTDOWN_TIMEOUT_MS : ms > SHUTDOWN_MAX_MS ? SHUTDOWN_MAX_MS : ms;
}

static uint64_t step_deadline_ms(const struct nvme_ctrlr *ctrlr, enum deadline d)
{
	switch (d) {
	case DEADLINE_ADMIN:
		return ctrlr->opts.admin_timeout_ms;
	case DEADLINE_CONNECT:
		return ctrlr->opts.connect_timeout_ms;
	case DEADLINE_READY:
		return (NVME_CAP_TO(ctrlr->cap) + 1) * UINT64_C(500);
	case DEADLINE_SHUTDOWN:
		return shutdown_ms(ctrlr);
	case DEADLINE_NONE:
		break;
	}
	return 0;
}

/* Nobody answers in such a state: it lasts until CSTS says that it is over. */
static bool step_polls_csts(const struct nvme_ctrlr *ctrlr)
{
	return states[ctrlr->state].deadline == DEADLINE_READY || states[ctrlr->state].deadline == DEADLINE_SHUTDOWN;
}

static void step_deadline_start(struct nvme_ctrlr *ctrlr)
{
	uint64_t ms = step_deadline_ms(ctrlr, states[ctrlr->state].deadline);

	ctrlr->step_deadline = ms ? env_ticks() + ms * env_ticks_hz() / 1000 : 0;
	thread_timer_stop(&ctrlr->step_timer);
	if (ms != 0) {
		thread_timer_start(&ctrlr->step_timer, ms * 1000);
	}
}

void nvme_ctrlr_step_goes_on(struct nvme_ctrlr *ctrlr)
{
	if (!ctrlr->in_failure) {
		step_deadline_start(ctrlr);
	}
}

static void ctrlr_set_state(struct nvme_ctrlr *ctrlr, enum nvme_ctrlr_state state)
{
	const struct state_def *def = &states[state];
	enum nvme_ctrlr_state old = ctrlr->state;

	if (((states[old].next | LEAVE) & (UINT32_C(1) << state)) == 0) {
		log_error("%s: no transition from '%s' to '%s'", ctrlr->trid.traddr, states[old].name, def->name);
		abort(); /* a fault in the table above; input chooses among its rows only */
	}
	ctrlr->state = state;
	ctrlr->state_ticks = env_ticks();
	step_deadline_start(ctrlr);
	TRACE(NVME_CTRLR_STATE, ctrlr->owner, 0, 0, old, state);
	USDT(nvme_ctrlr_state, ctrlr->trid.traddr, ctrlr->trid.subnqn, old, state);
	if (def->enter != NULL) {
		def->enter(ctrlr);
	}
}

static void ctrlr_emit_event(struct nvme_ctrlr *ctrlr, enum nvme_event event)
{
	if (ctrlr->opts.event != NULL && !ctrlr->destroying) {
		ctrlr->opts.event(ctrlr, event, 0, ctrlr->opts.event_arg);
	}
}

/* Failure. */

static void ctrlr_fail(struct nvme_ctrlr *ctrlr, const char *why)
{
	if (ctrlr->in_failure) {
		return; /* the first reason is the one that explains */
	}
	ctrlr->in_failure = true;
	snprintf(ctrlr->last_error, sizeof(ctrlr->last_error), "%s", why);
	thread_timer_stop(&ctrlr->step_timer);
	thread_timer_start(&ctrlr->defer_timer, 0);
}

void nvme_ctrlr_lost(struct nvme_ctrlr *ctrlr, const char *fmt, ...)
{
	char why[NVME_ERROR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	ctrlr_fail(ctrlr, why);
}

/* A step's operation ended with an error: names the step. */
static void step_failed(struct nvme_ctrlr *ctrlr, const char *what)
{
	nvme_ctrlr_lost(ctrlr, "%s: %s", states[ctrlr->state].name, what);
}

static void connection_drop(struct nvme_ctrlr *ctrlr)
{
	nvme_ctrlr_stop_admin(ctrlr);
	nvme_ns_scan_abort(ctrlr);
	poller_unregister(&ctrlr->admin_poller);
	nvme_rekey_cancel(ctrlr);
	if (ctrlr->admin != NULL) {
		nvme_auth_cancel(ctrlr->admin);
		nvme_qpair_fail(ctrlr->admin);
	}
	ctrlr->ops->disconnect(ctrlr);
	ctrlr->admin = NULL;
	ctrlr->aers = ctrlr->aers_wanted = ctrlr->num_unread = 0;
	ctrlr->rescan_due = false;
}

/* Queue pairs that were not handed out end here; the others are their users'. */
static void unready_qpairs_destroy(struct nvme_ctrlr *ctrlr)
{
	struct nvme_qpair *q = TAILQ_FIRST(&ctrlr->qpairs), *next;

	for (; q != NULL; q = next) {
		next = TAILQ_NEXT(q, link);
		if (!q->created) {
			nvme_qpair_fail(q);
			q->ready(q->ready_arg, NULL, -ECONNRESET);
			nvme_qpair_destroy(q);
		}
	}
}

static void ctrlr_free_memory(struct nvme_ctrlr *ctrlr)
{
	void (*done)(void *) = ctrlr->destroyed;
	void *arg = ctrlr->destroyed_arg;

	thread_timer_stop(&ctrlr->step_timer);
	thread_timer_stop(&ctrlr->defer_timer);
	thread_timer_stop(&ctrlr->watch_timer);
	trace_owner_release(ctrlr->owner);
	env_dma_free(ctrlr->buf);
	free(ctrlr->ns);
	free(ctrlr->ana_groups);
	nvme_alternates_free(ctrlr);
	free(ctrlr->qids);
	free(ctrlr->faults);
	keyring_put(ctrlr->opts.dhchap_key);
	keyring_put(ctrlr->opts.dhchap_ctrlr_key);
	ctrlr->ops->ctrlr_free(ctrlr);
	if (done != NULL) {
		done(arg);
	}
}

static bool loss_timeout_is_over(const struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->opts.loss_timeout_s < 0 || ctrlr->attempt_due) {
		return false;
	}
	return env_ticks() - ctrlr->down_since >= (uint64_t)ctrlr->opts.loss_timeout_s * env_ticks_hz();
}

static void attempt_end(struct nvme_ctrlr *ctrlr)
{
	bool was_ready = ctrlr->was_ready;

	ctrlr->was_ready = false;
	nvme_alternates_turn(ctrlr, was_ready);
	ctrlr->attempt_due |= was_ready;
	log_notice("NVMe controller %s %s: %s", ctrlr->trid.traddr, ctrlr->trid.subnqn, ctrlr->last_error);
	if (ctrlr->removed) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_REMOVED);
		ctrlr_emit_event(ctrlr, NVME_EVENT_REMOVED);
	} else if (loss_timeout_is_over(ctrlr)) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_FAILED);
		ctrlr_emit_event(ctrlr, NVME_EVENT_FAILED);
	} else {
		ctrlr_set_state(ctrlr, NVME_CTRLR_BACK_OFF);
		ctrlr_emit_event(ctrlr, was_ready || ctrlr->attempt_due ? NVME_EVENT_DOWN : NVME_EVENT_RETRY);
	}
}

/* After a failure, a reset or a destroy, outside of every callback. */
static void ctrlr_release_connection(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;

	ctrlr->in_failure = true;
	if (ctrlr->ops->quiesce != NULL && ctrlr->admin != NULL && !ctrlr->quiesced) {
		if (!ctrlr->quiescing) {
			ctrlr->quiescing = true;
			nvme_ctrlr_stop_admin(ctrlr);
			ctrlr->ops->quiesce(ctrlr);
		}
		return; /* nvme_ctrlr_quiesced() comes back here, or has been */
	}
	ctrlr->quiesced = false;
	connection_drop(ctrlr);
	unready_qpairs_destroy(ctrlr);
	if (ctrlr->destroying) {
		ctrlr_free_memory(ctrlr);
		return;
	}
	if (ctrlr->down_since == 0) {
		ctrlr->down_since = env_ticks();
	}
	attempt_end(ctrlr);
}

void nvme_ctrlr_quiesced(struct nvme_ctrlr *ctrlr)
{
	ctrlr->quiescing = false;
	ctrlr->quiesced = true;
	ctrlr_release_connection(ctrlr);
}

void nvme_ctrlr_removed(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->removed) {
		return;
	}
	ctrlr->removed = true;
	ctrlr_fail(ctrlr, "the device has been removed");
	if (ctrlr->state == NVME_CTRLR_BACK_OFF) {
		thread_timer_start(&ctrlr->step_timer, 0); /* no connection to let go of: attempt_start() ends it */
	} else if (ctrlr->state == NVME_CTRLR_FAILED) {
		thread_timer_start(&ctrlr->defer_timer, 0);
	}
}

static void attempt_start(struct nvme_ctrlr *ctrlr)
{
	if (!TAILQ_EMPTY(&ctrlr->qpairs)) { /* their users have not let go: look again soon */
		thread_timer_start(&ctrlr->step_timer, CSTS_LOOK_US);
		return;
	}
	if (ctrlr->removed) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_REMOVED);
		ctrlr_emit_event(ctrlr, NVME_EVENT_REMOVED);
		return;
	}
	ctrlr->attempts++;
	ctrlr->attempt_due = false;
	ctrlr->ana_reading = ctrlr->ana_read_again = ctrlr->ana_due = false;
	ctrlr_set_state(ctrlr, NVME_CTRLR_DISCONNECTED);
	ctrlr->in_failure = false;
	ctrlr_set_state(ctrlr, NVME_CTRLR_CONNECT);
}

/* The loss timeout is looked at when an attempt has failed: the last one begins when it is over. */
uint64_t nvme_back_off_us(const struct nvme_ctrlr_opts *opts, uint32_t attempts, uint64_t away_us)
{
	uint64_t delay_us = opts->reconnect_delay_s * UINT64_C(1000000),
		 loss_us = (uint64_t)opts->loss_timeout_s * 1000000;
	uint32_t factor = 1;

	for (uint32_t i = 1; i < attempts && factor < BACK_OFF_MAX_FACTOR; i++) {
		factor *= 2;
	}
	delay_us *= factor;
	if (opts->loss_timeout_s >= 0 && away_us + delay_us > loss_us) {
		delay_us = away_us < loss_us ? loss_us - away_us : 0;
	}
	return delay_us;
}

static void enter_back_off(struct nvme_ctrlr *ctrlr)
{
	uint64_t away_us = env_ticks_to_ns(env_ticks() - ctrlr->down_since) / 1000;

	/* attempts is 0 after a reset that somebody asked for: no delay then; nor for an address that has not been
	 * tried yet */
	thread_timer_start(&ctrlr->step_timer, ctrlr->attempts && !ctrlr->attempt_due
						       ? nvme_back_off_us(&ctrlr->opts, ctrlr->attempts, away_us)
						       : 0);
}

/* The steps. A completion that finds the attempt failed leads nowhere. */

static void reg_written(struct nvme_ctrlr *ctrlr, int error, uint64_t value)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	switch (ctrlr->state) {
	case NVME_CTRLR_DISABLE:
		ctrlr_set_state(ctrlr, NVME_CTRLR_WAIT_DISABLED);
		break;
	case NVME_CTRLR_ENABLE:
		ctrlr_set_state(ctrlr, NVME_CTRLR_WAIT_READY);
		break;
	case NVME_CTRLR_SHUTDOWN:
		ctrlr_set_state(ctrlr, NVME_CTRLR_WAIT_SHUTDOWN);
		break;
	default:
		break;
	}
}

static void csts_read(struct nvme_ctrlr *ctrlr, int error, uint64_t csts)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0 || csts == UINT32_MAX) { /* all ones: what a removed PCIe device reads as */
		step_failed(ctrlr, error ? strerror(-error) : "CSTS reads as all ones");
		return;
	}
	bool ready = NVME_CSTS_RDY(csts) != 0;
	if (ctrlr->state == NVME_CTRLR_WAIT_SHUTDOWN) {
		if (NVME_CSTS_SHST(csts) == NVME_CSTS_SHST_CMPLT) {
			ctrlr_fail(ctrlr, "shut down");
			return;
		}
	} else if (ctrlr->state == NVME_CTRLR_WAIT_READY_OLD && (ready || NVME_CSTS_CFS(csts))) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_DISABLE);
		return;
	} else if (NVME_CSTS_CFS(csts) && ctrlr->state != NVME_CTRLR_WAIT_DISABLED) {
		step_failed(ctrlr, "the controller reports a fatal status (CSTS.CFS)");
		return;
	} else if (ctrlr->state == NVME_CTRLR_WAIT_DISABLED && !ready) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_ENABLE);
		return;
	} else if (ctrlr->state == NVME_CTRLR_WAIT_READY && ready) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_IDENTIFY);
		return;
	}
	thread_timer_start(&ctrlr->step_timer, CSTS_LOOK_US);
}

/* A controller that was not ready in the first place says so before it has noticed that it was disabled: it is given
 * time. */
static void enter_wait_disabled(struct nvme_ctrlr *ctrlr)
{
	thread_timer_start(&ctrlr->step_timer, CSTS_LOOK_US);
}

/* Over fabrics this look is a command, which may have no answer either. */
static void enter_wait_csts(struct nvme_ctrlr *ctrlr)
{
	uint64_t now = env_ticks(), left = ctrlr->step_deadline > now ? ctrlr->step_deadline - now : 0;

	thread_timer_start(&ctrlr->step_timer, env_ticks_to_ns(left) / 1000 + 1);
	nvme_reg_read(ctrlr, NVME_REG_CSTS, 4, csts_read);
}

/* An answer may have come while this thread was away (thread_timer_was_absent). */
static void step_handle_timeout(struct nvme_ctrlr *ctrlr)
{
	uint64_t ms = step_deadline_ms(ctrlr, states[ctrlr->state].deadline);
	char what[64];

	if (thread_timer_was_absent(&ctrlr->step_timer, ms * 1000)) {
		step_deadline_start(ctrlr);
		if (step_polls_csts(ctrlr)) {
			enter_wait_csts(ctrlr);
		}
	} else if (ctrlr->state == NVME_CTRLR_WAIT_READY_OLD) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_DISABLE); /* whoever enabled it did not get far: it will not become
							 ready by itself */
	} else {
		snprintf(what, sizeof(what), "no answer within %llu ms", (unsigned long long)ms);
		step_failed(ctrlr, what);
	}
}

static void step_timer_fired(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (ctrlr->state == NVME_CTRLR_BACK_OFF) {
		attempt_start(ctrlr);
	} else if (env_ticks() >= ctrlr->step_deadline) {
		step_handle_timeout(ctrlr);
	} else {
		enter_wait_csts(ctrlr);
	}
}

static int admin_queue_poll(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;
	int n = nvme_qpair_poll(ctrlr->admin, 0);

	if (n == -ENXIO) {
		ctrlr_fail(ctrlr, "the connection of the admin queue is lost");
	}
	return n > 0 ? POLLER_BUSY : POLLER_IDLE;
}

static void enter_connect(struct nvme_ctrlr *ctrlr)
{
	ctrlr->ops->connect(ctrlr);
}

static void ctrlr_fabrics_connected(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;
	uint16_t status = nvme_cqe_status(cqe);

	if (ctrlr->in_failure) {
		return;
	}
	if (status != 0) {
		nvme_ctrlr_lost(ctrlr, "Connect was refused: %s (dword 0: 0x%08x)", nvme_status_text(status),
				le32toh(cqe->dw0));
		return;
	}
	ctrlr->cntlid = (uint16_t)le32toh(cqe->dw0);
	ctrlr_set_state(ctrlr, nvme_auth_needed(ctrlr, cqe) ? NVME_CTRLR_AUTHENTICATE : NVME_CTRLR_READ_CAP);
}

static void ctrlr_authenticated(void *arg, int error, const char *why)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, why);
		return;
	}
	ctrlr_set_state(ctrlr, NVME_CTRLR_READ_CAP);
}

static void enter_authenticate(struct nvme_ctrlr *ctrlr)
{
	int rc = nvme_auth_start(ctrlr->admin, ctrlr->opts.dhchap_key, ctrlr->opts.dhchap_ctrlr_key,
				 ctrlr_authenticated, ctrlr);

	if (rc != 0) {
		step_failed(ctrlr,
			    rc == -ENOKEY ? "the controller asks for it, and there is no dhchap_key" : strerror(-rc));
	}
}

static bool admin_queue_arm(void *arg)
{
	return nvme_qpair_arm(((struct nvme_ctrlr *)arg)->admin);
}

void nvme_ctrlr_connected(struct nvme_ctrlr *ctrlr, int error, const char *why)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, why);
		return;
	}
	nvme_qpair_set_state(ctrlr->admin, NVME_QPAIR_READY);
	int fd = nvme_qpair_fd(ctrlr->admin);
	uint32_t poll_us = ctrlr->opts.admin_poll_us;
	poll_us = poll_us == 0 || poll_us > ADMIN_POLL_US ? ADMIN_POLL_US
							  : poll_us; /* commands would end late, not only events */
	ctrlr->admin_poller = poller_register(&(struct poller_opts){.name = "nvme_admin",
								    .fn = admin_queue_poll,
								    .ctx = ctrlr,
								    .fd = fd,
								    .arm = fd >= 0 ? admin_queue_arm : NULL,
								    .period_us = fd >= 0 ? 0 : poll_us});
	if (ctrlr->admin_poller == NULL) {
		step_failed(ctrlr, "out of memory");
	} else if (!ctrlr->ops->fabrics) {
		ctrlr_set_state(ctrlr, NVME_CTRLR_READ_CAP);
	} else if (nvme_fabrics_connect(ctrlr->admin, ctrlr_fabrics_connected, ctrlr) != 0) {
		step_failed(ctrlr, "Connect could not be sent");
	}
}

static void cap_read(struct nvme_ctrlr *ctrlr, int error, uint64_t cap)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0 || cap == UINT64_MAX) {
		step_failed(ctrlr, error ? strerror(-error) : "CAP reads as all ones");
		return;
	}
	if (NVME_CAP_MPSMIN(cap) != 0) { /* memory pages above 4 KiB only */
		step_failed(ctrlr, "the controller cannot use 4 KiB memory pages (CAP.MPSMIN)");
		return;
	}
	if (NVME_CAP_MQES(cap) == 0) { /* 0's based, and a queue has two entries at least (Base 3.1.3.1) */
		step_failed(ctrlr, "CAP.MQES is 0, and must be 1 at least");
		return;
	}
	ctrlr->cap = cap;
	ctrlr_set_state(ctrlr, NVME_CTRLR_READ_VS);
}

static void enter_read_cap(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_read(ctrlr, NVME_REG_CAP, 8, cap_read);
}

static void vs_read(struct nvme_ctrlr *ctrlr, int error, uint64_t vs)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	ctrlr->vs = (uint32_t)vs;
	ctrlr_set_state(ctrlr, NVME_CTRLR_CHECK_CC);
}

static void enter_read_vs(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_read(ctrlr, NVME_REG_VS, 4, vs_read);
}

static void cc_read(struct nvme_ctrlr *ctrlr, int error, uint64_t cc)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	ctrlr->cc = (uint32_t)cc;
	/* an enabled controller must be ready before it may be disabled (Base 3.1.3.5, CC.EN) */
	ctrlr_set_state(ctrlr, NVME_CC_EN(ctrlr->cc) ? NVME_CTRLR_WAIT_READY_OLD : NVME_CTRLR_WAIT_DISABLED);
}

static void enter_check_cc(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_read(ctrlr, NVME_REG_CC, 4, cc_read);
}

static void enter_disable(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_write(ctrlr, NVME_REG_CC, 4, ctrlr->cc & ~UINT32_C(1), reg_written);
}

static void enter_enable(struct nvme_ctrlr *ctrlr)
{
	int rc = ctrlr->ops->before_enable ? ctrlr->ops->before_enable(ctrlr) : 0;

	if (rc != 0) {
		step_failed(ctrlr, strerror(-rc));
		return;
	}
	/* NVM command set, 4 KiB pages, round robin, 64-byte SQ and 16-byte CQ entries */
	ctrlr->cc = 1 | 6 << NVME_CC_IOSQES_SHIFT | 4 << NVME_CC_IOCQES_SHIFT;
	nvme_reg_write(ctrlr, NVME_REG_CC, 4, ctrlr->cc, reg_written);
}

/* True when an admin step's command succeeded. */
static bool step_command_succeeded(struct nvme_ctrlr *ctrlr, const struct nvme_cqe *cqe)
{
	if (ctrlr->in_failure) {
		return false;
	}
	if (nvme_cqe_status(cqe) != 0) {
		step_failed(ctrlr, nvme_status_text(nvme_cqe_status(cqe)));
		return false;
	}
	return true;
}

static void step_command_send(struct nvme_ctrlr *ctrlr, const struct nvme_sqe *cmd, void *data, uint32_t len,
			      void (*cb)(void *arg, const struct nvme_cqe *cqe))
{
	int rc = nvme_ctrlr_admin(ctrlr, cmd, data, len, false, cb, ctrlr);

	if (rc != 0) {
		step_failed(ctrlr, strerror(-rc));
	}
}

static void ctrlr_identified(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (step_command_succeeded(ctrlr, cqe)) {
		memcpy(&ctrlr->id, ctrlr->buf, sizeof(ctrlr->id));
		if (!ctrlr->ops->fabrics) { /* where there is a Connect, that has said it */
			ctrlr->cntlid = le16toh(ctrlr->id.cntlid);
		}
		if (ctrlr->ops->identified != NULL) {
			ctrlr->ops->identified(ctrlr);
		} else {
			nvme_ctrlr_configured(ctrlr, 0);
		}
	}
}

void nvme_ctrlr_configured(struct nvme_ctrlr *ctrlr, int error)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	ctrlr_set_state(ctrlr, ctrlr->opts.discovery ? NVME_CTRLR_SET_AER : NVME_CTRLR_SET_QUEUES);
}

static void enter_identify(struct nvme_ctrlr *ctrlr)
{
	struct nvme_sqe cmd = {.opcode = nvme_admin_identify, .cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL)};

	step_command_send(ctrlr, &cmd, ctrlr->buf, NVME_IDENTIFY_DATA_SIZE, ctrlr_identified);
}

static void queues_set(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;

	if (step_command_succeeded(ctrlr, cqe)) {
		uint32_t sq = (le32toh(cqe->dw0) & 0xffff) + 1, cq = (le32toh(cqe->dw0) >> 16) + 1;
		uint32_t granted = sq < cq ? sq : cq;

		ctrlr->io_queues = (uint16_t)(granted < ctrlr->opts.io_queues ? granted : ctrlr->opts.io_queues);
		ctrlr_set_state(ctrlr, NVME_CTRLR_SET_AER);
	}
}

static void enter_set_queues(struct nvme_ctrlr *ctrlr)
{
	uint32_t n = ctrlr->opts.io_queues - 1u;
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_set_features,
		.cdw10 = htole32(NVME_FEAT_FID_NUM_QUEUES),
		.cdw11 = htole32(n | n << 16),
	};

	step_command_send(ctrlr, &cmd, NULL, 0, queues_set);
}

static void events_set(struct nvme_ctrlr *ctrlr)
{
	ctrlr_set_state(ctrlr, ctrlr->opts.discovery ? NVME_CTRLR_READY : NVME_CTRLR_SCAN_NS);
}

static void aer_set(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ctrlr *ctrlr = arg;
	uint16_t status = nvme_cqe_status(cqe);

	if (ctrlr->in_failure || (ctrlr->admin->failed && !step_command_succeeded(ctrlr, cqe))) {
		return;
	}
	if (status != 0) { /* it does I/O all the same, and may send what it sends by default */
		log_warning("%s: the event configuration was refused: %s", ctrlr->trid.traddr,
			    nvme_status_text(status));
	}
	nvme_ctrlr_start_aers(ctrlr);
	events_set(ctrlr);
}

static void enter_set_aer(struct nvme_ctrlr *ctrlr)
{
	/* every SMART warning, and of the notices those that the controller offers (OAES) and we act on */
	uint32_t notices = le32toh(ctrlr->id.oaes) & (UINT32_C(1) << 8 | UINT32_C(1) << 11 | UINT32_C(1) << 31);
	struct nvme_sqe cmd = {
		.opcode = nvme_admin_set_features,
		.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT),
		.cdw11 = htole32((ctrlr->opts.discovery ? 0 : 0x1f) | notices),
	};

	if (cmd.cdw11 == 0) { /* a discovery controller without notices, which need not have either command */
		events_set(ctrlr);
		return;
	}
	step_command_send(ctrlr, &cmd, NULL, 0, aer_set);
}

static void scan_ana_read(struct nvme_ctrlr *ctrlr, int error)
{
	if (ctrlr->in_failure) {
		return;
	}
	if (error != 0) {
		step_failed(ctrlr, strerror(-error));
		return;
	}
	ctrlr_set_state(ctrlr, NVME_CTRLR_READY);
}

/* The namespaces are known; which of them this controller gives access to belongs to the same step. */
static void namespaces_scanned(struct nvme_ctrlr *ctrlr, int error)
{
	if (error != 0 || ctrlr->in_failure || !nvme_ctrlr_has_ana(ctrlr)) {
		scan_ana_read(ctrlr, error);
	} else {
		nvme_ctrlr_step_goes_on(ctrlr);
		nvme_ana_read(ctrlr, scan_ana_read);
	}
}

static void enter_scan_ns(struct nvme_ctrlr *ctrlr)
{
	nvme_ns_scan(ctrlr, namespaces_scanned);
}

static void enter_ready(struct nvme_ctrlr *ctrlr)
{
	ctrlr->last_error[0] = '\0';
	ctrlr->last_qid = 0;
	ctrlr->refused = false;
	nvme_ctrlr_start_keep_alive(ctrlr);
	nvme_ctrlr_start_watch(ctrlr);
	ctrlr_emit_event(ctrlr, NVME_EVENT_READY);
	if (!ctrlr->refused) {
		ctrlr->attempts = 0;
		ctrlr->down_since = 0;
		ctrlr->was_ready = true;
	}
}

void nvme_ctrlr_refuse(struct nvme_ctrlr *ctrlr, const char *why)
{
	ctrlr->refused = true;
	ctrlr_fail(ctrlr, why);
}

static void enter_shutdown(struct nvme_ctrlr *ctrlr)
{
	nvme_reg_write(ctrlr, NVME_REG_CC, 4, ctrlr->cc | NVME_CC_SHN_NORMAL << NVME_CC_SHN_SHIFT, reg_written);
}

/* The interface. */

void nvme_ctrlr_opts_default(struct nvme_ctrlr_opts *opts)
{
	*opts = (struct nvme_ctrlr_opts){
		.io_queue_entries = 128,   /* capped by what the controller takes */
		.admin_queue_entries = 31, /* 32 with the one that stays free: what every target takes */
		.keep_alive_ms = 10000,
		.connect_timeout_ms = 10000,
		.admin_timeout_ms = 30000,
		.io_timeout_ms = 30000,
		.reconnect_delay_s = 2,
		.rdma_retry_count = 7,
	};
}

static int ctrlr_init(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->opts.io_queues == 0) {
		ctrlr->opts.io_queues = (uint16_t)env_lcore_count();
	}
	ctrlr->buf = env_dma_zmalloc(NVME_IDENTIFY_DATA_SIZE, NVME_IDENTIFY_DATA_SIZE, -1);
	ctrlr->qids = calloc((ctrlr->opts.io_queues + 64u) / 64, sizeof(uint64_t));
	TAILQ_INIT(&ctrlr->qpairs);
	TAILQ_INIT(&ctrlr->alternates);
	ctrlr->step_timer.fn = step_timer_fired;
	ctrlr->step_timer.arg = ctrlr;
	ctrlr->defer_timer.fn = ctrlr_release_connection;
	ctrlr->defer_timer.arg = ctrlr;
	return ctrlr->buf != NULL && ctrlr->qids != NULL ? 0 : -ENOMEM;
}

static void ctrlr_opts_set_host(struct nvme_ctrlr_opts *opts)
{
	static const uint8_t none[sizeof(opts->hostid)];
	char hostnqn[NVME_NQN_MAX];
	uint8_t hostid[sizeof(opts->hostid)];

	nvme_host_default(hostnqn, hostid);
	if (opts->hostnqn[0] == '\0') {
		memcpy(opts->hostnqn, hostnqn, sizeof(hostnqn));
	}
	if (memcmp(opts->hostid, none, sizeof(none)) == 0) {
		memcpy(opts->hostid, hostid, sizeof(hostid));
	}
}

struct nvme_ctrlr *nvme_ctrlr_create(const struct nvme_trid *trid, const struct nvme_ctrlr_opts *opts,
				     char error[NVME_ERROR_MAX])
{
	const struct nvme_transport_ops *ops = nvme_transport_find(trid->trtype);

	if (ops == NULL) {
		snprintf(error, NVME_ERROR_MAX, "trtype %s is not part of this build", nvme_trtype_name(trid->trtype));
		errno = EINVAL;
		return NULL;
	}
	struct nvme_ctrlr_opts o = *opts;
	ctrlr_opts_set_host(&o);
	o.dhchap_hashes = o.dhchap_hashes != 0 ? o.dhchap_hashes : DHCHAP_ALL_HASHES;
	o.dhchap_groups = o.dhchap_groups != 0 ? o.dhchap_groups : DHCHAP_ALL_GROUPS;
	if (ops->fabrics && (!nvme_nqn_is_valid(trid->subnqn) || !nvme_nqn_is_valid(o.hostnqn))) {
		snprintf(error, NVME_ERROR_MAX, "subnqn '%.90s' and hostnqn '%.90s' must both be NQNs", trid->subnqn,
			 o.hostnqn);
		errno = EINVAL;
		return NULL;
	}
	struct nvme_ctrlr *ctrlr = ops->ctrlr_alloc(trid, error);
	if (ctrlr == NULL) {
		return NULL;
	}
	ctrlr->ops = ops;
	ctrlr->trid = *trid;
	ctrlr->opts = o;
	keyring_hold(o.dhchap_key);
	keyring_hold(o.dhchap_ctrlr_key);
	if (ctrlr_init(ctrlr) != 0) {
		snprintf(error, NVME_ERROR_MAX, "out of memory");
		ctrlr_free_memory(ctrlr);
		errno = ENOMEM;
		return NULL;
	}
	ctrlr->owner = trace_owner_register(TRACE_OWNER_NVME_CTRLR, trid->traddr);
	ctrlr->down_since = env_ticks();
	ctrlr->state_ticks = ctrlr->down_since;
	attempt_start(ctrlr);
	return ctrlr;
}

void nvme_ctrlr_destroy(struct nvme_ctrlr *ctrlr, void (*done)(void *arg), void *arg)
{
	ctrlr->destroying = true;
	ctrlr->destroyed = done;
	ctrlr->destroyed_arg = arg;
	if (ctrlr->state == NVME_CTRLR_READY && !ctrlr->in_failure) {
		nvme_ctrlr_stop_admin(ctrlr);
		ctrlr_set_state(ctrlr, NVME_CTRLR_SHUTDOWN);
	} else {
		thread_timer_start(&ctrlr->defer_timer, 0);
	}
}

int nvme_ctrlr_reset(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->state == NVME_CTRLR_FAILED) {
		ctrlr->down_since = env_ticks();
		ctrlr->in_failure = false;
	} else if (ctrlr->state != NVME_CTRLR_READY || ctrlr->in_failure) {
		return -EBUSY;
	}
	ctrlr->attempts = 0;
	ctrlr->attempt_due = true;
	ctrlr_fail(ctrlr, "reset on request");
	return 0;
}

static void nssr_written(struct nvme_ctrlr *ctrlr, int error, uint64_t value)
{
	ctrlr->attempts = 0;
	ctrlr->attempt_due = true;
	ctrlr_fail(ctrlr, error == 0 ? "subsystem reset on request" : "the subsystem reset could not be written");
}

int nvme_ctrlr_reset_subsystem(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->state != NVME_CTRLR_READY || ctrlr->in_failure) {
		return -EBUSY;
	}
	if (!NVME_CAP_NSSRC(ctrlr->cap)) {
		return -ENOTSUP;
	}
	nvme_reg_write(ctrlr, NVME_REG_NSSR, 4, NSSR_MAGIC, nssr_written);
	return 0;
}
