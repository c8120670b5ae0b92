/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a controller: its creation, how a connection ends and the next attempt begins, its end. Control thread.
 *
 * A failure anywhere goes through nvme_ctrlr_fail(), which ends the connection from a timer, outside of callbacks of
 * objects that it frees, and leads to BACK_OFF or to an end. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dhchap/dhchap.h"
#include "env_dpdk/env.h"
#include "keyring/keyring.h"
#include "nvme/internal.h"
#include "tls/vault.h"
#include "trace/trace.h"
#include "util/log.h"

#define QPAIRS_LOOK_US      1000
#define BACK_OFF_MAX_FACTOR 8
#define BACK_OFF_SOON_PART  4                    /* the delay before the second attempt is so much shorter */
#define NSSR_MAGIC          UINT32_C(0x4e564d65) /* "NVMe" (Base 3.1.3.7) */

void nvme_ctrlr_emit(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer)
{
	if (ctrlr->opts.event != NULL && !ctrlr->destroying) {
		ctrlr->opts.event(ctrlr, event, aer, ctrlr->opts.event_arg);
	}
}

/* Failure. */

void nvme_ctrlr_fail(struct nvme_ctrlr *ctrlr, const char *why)
{
	if (ctrlr->in_failure) {
		return; /* later reasons are mostly consequences of the first */
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
	nvme_ctrlr_fail(ctrlr, why);
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
	nvme_cross_resets_end(ctrlr);
	ctrlr->ops->disconnect(ctrlr);
	ctrlr->admin = NULL;
	ctrlr->aers = ctrlr->aers_wanted = ctrlr->num_unread = 0;
	ctrlr->rescan_due = false;
}

/* Queue pairs that were not handed to a user end here; users end the others. */
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
	uint64_t *qids = ctrlr->qids; /* the transport frees queue pairs in ctrlr_free() */

	thread_timer_stop(&ctrlr->step_timer);
	thread_timer_stop(&ctrlr->defer_timer);
	thread_timer_stop(&ctrlr->watch_timer);
	thread_timer_stop(&ctrlr->disable_timer);
	trace_owner_release(ctrlr->owner);
	env_dma_free(ctrlr->buf);
	free(ctrlr->ns);
	free(ctrlr->ana_groups);
	nvme_alternates_free(ctrlr);
	free(ctrlr->faults);
	keyring_put(ctrlr->opts.dhchap_key);
	keyring_put(ctrlr->opts.dhchap_ctrlr_key);
	keyring_put(ctrlr->opts.tcp_psk);
	tls_vault_put(ctrlr->generated);
	ctrlr->ops->ctrlr_free(ctrlr);
	free(qids);
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
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_REMOVED);
		nvme_ctrlr_emit(ctrlr, NVME_EVENT_REMOVED, 0);
	} else if (ctrlr->stop_asked || loss_timeout_is_over(ctrlr)) {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_FAILED);
		nvme_ctrlr_emit(ctrlr, NVME_EVENT_FAILED, 0);
	} else {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_BACK_OFF);
		nvme_ctrlr_emit(ctrlr, was_ready || ctrlr->attempt_due ? NVME_EVENT_DOWN : NVME_EVENT_RETRY, 0);
	}
}

/* Has what the controller carries out end, as far as possible. The outcome is in ctrlr->has_ended. */
static void ctrlr_quiesce(struct nvme_ctrlr *ctrlr)
{
	ctrlr->quiescing = true;
	nvme_ctrlr_stop_admin(ctrlr);
	if (ctrlr->ops->quiesce != NULL) {
		ctrlr->has_ended = true;
		ctrlr->ops->quiesce(ctrlr);
	} else {
		nvme_ctrlr_emit(ctrlr, NVME_EVENT_ENDING, 0);
		nvme_ctrlr_disable(ctrlr);
	}
}

void nvme_ctrlr_secure(struct nvme_ctrlr *ctrlr)
{
	ctrlr->secures = true;
	thread_timer_start(&ctrlr->defer_timer, 0);
}

/* After a failure, a reset or nvme_ctrlr_destroy(), or for nvme_ctrlr_secure(), outside of every callback. */
static void ctrlr_release_connection(void *arg)
{
	struct nvme_ctrlr *ctrlr = arg;
	bool secures = ctrlr->secures && !ctrlr->in_failure && !ctrlr->destroying;

	ctrlr->secures = false;
	if (secures) {
		connection_drop(ctrlr);
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_CONNECT);
		return;
	}
	ctrlr->in_failure = true;
	if (ctrlr->quiescing) {
		return; /* nvme_ctrlr_quiesced() calls this function again, or has done so */
	}
	if (ctrlr->admin != NULL && !ctrlr->quiesced &&
	    (ctrlr->ops->quiesce != NULL || nvme_ctrlr_disable_is_due(ctrlr))) {
		ctrlr_quiesce(ctrlr);
		return;
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
	nvme_ctrlr_fail(ctrlr, "the device has been removed");
	if (ctrlr->state == NVME_CTRLR_BACK_OFF) {
		/* there is no connection: nvme_ctrlr_start_attempt() announces the removal */
		thread_timer_start(&ctrlr->step_timer, 0);
	} else if (ctrlr->state == NVME_CTRLR_FAILED) {
		thread_timer_start(&ctrlr->defer_timer, 0);
	}
}

void nvme_ctrlr_start_attempt(struct nvme_ctrlr *ctrlr)
{
	if (!TAILQ_EMPTY(&ctrlr->qpairs)) { /* users still have queue pairs: look again soon */
		thread_timer_start(&ctrlr->step_timer, QPAIRS_LOOK_US);
		return;
	}
	if (ctrlr->removed) {
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_REMOVED);
		nvme_ctrlr_emit(ctrlr, NVME_EVENT_REMOVED, 0);
		return;
	}
	if (ctrlr->stop_asked) {
		snprintf(ctrlr->last_error, sizeof(ctrlr->last_error), "its attempts to connect were ended on request");
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_FAILED);
		nvme_ctrlr_emit(ctrlr, NVME_EVENT_FAILED, 0);
		return;
	}
	ctrlr->attempts++;
	ctrlr->attempt_due = false;
	tls_vault_put(ctrlr->generated);
	ctrlr->generated = NULL;
	ctrlr->ana_reading = ctrlr->ana_read_again = ctrlr->ana_due = false;
	nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_DISCONNECTED);
	ctrlr->in_failure = false;
	nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_CONNECT);
}

/* The first attempt is made at once, and often meets a target that is just stopping, for a restart or because another
 * process takes over from it. That one is back within a moment: so the second attempt comes soon.
 *
 * The loss timeout is checked when an attempt has failed, so the last attempt begins when the timeout is over. */
uint64_t nvme_back_off_us(const struct nvme_ctrlr_opts *opts, uint32_t attempts, uint64_t down_us)
{
	uint64_t delay_us = opts->reconnect_delay_s * UINT64_C(1000000),
		 loss_us = (uint64_t)opts->loss_timeout_s * 1000000;
	uint32_t factor = 1;

	for (uint32_t i = 2; i < attempts && factor < BACK_OFF_MAX_FACTOR; i++) {
		factor *= 2;
	}
	delay_us = attempts <= 1 ? delay_us / BACK_OFF_SOON_PART : delay_us * factor;
	if (opts->loss_timeout_s >= 0 && down_us + delay_us > loss_us) {
		delay_us = down_us < loss_us ? loss_us - down_us : 0;
	}
	return delay_us;
}

void nvme_ctrlr_start_back_off(struct nvme_ctrlr *ctrlr)
{
	uint64_t down_us = env_ticks_to_ns(env_ticks() - ctrlr->down_since) / 1000;

	/* no delay after a reset on request, when attempts is 0, nor for an address that has not been tried yet */
	thread_timer_start(&ctrlr->step_timer, ctrlr->attempts && !ctrlr->attempt_due
						       ? nvme_back_off_us(&ctrlr->opts, ctrlr->attempts, down_us)
						       : 0);
}

void nvme_ctrlr_refuse(struct nvme_ctrlr *ctrlr, const char *why)
{
	ctrlr->refused = true;
	nvme_ctrlr_fail(ctrlr, why);
}

/* The interface. */

void nvme_ctrlr_opts_default(struct nvme_ctrlr_opts *opts)
{
	*opts = (struct nvme_ctrlr_opts){
		.io_queue_entries = 128,   /* at most as many as the controller allows */
		.admin_queue_entries = 31, /* 32 with the one that stays free, which every target accepts */
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
	nvme_cross_resets_init(ctrlr);
	ctrlr->step_timer.fn = nvme_ctrlr_step_timer_fired;
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

/* What is asked to be encrypted must be. A PSK is generated with a hash function that TLS has, and from a group. */
static bool ctrlr_concat_is_possible(const struct nvme_ctrlr_opts *opts, const struct nvme_transport_ops *ops,
				     char error[NVME_ERROR_MAX])
{
	unsigned hashes = opts->dhchap_hashes != 0 ? opts->dhchap_hashes : DHCHAP_ALL_HASHES,
		 groups = opts->dhchap_groups != 0 ? opts->dhchap_groups : DHCHAP_ALL_GROUPS;
	const char *why = !ops->transport.tls                           ? "the transport has no TLS"
			  : opts->tcp_psk != NULL                       ? "psk must not be given with it"
			  : opts->dhchap_key == NULL                    ? "it needs dhchap_key"
			  : (hashes & ~(1u << DHCHAP_HASH_SHA512)) == 0 ? "it needs sha256 or sha384"
			  : (groups & ~(1u << DHCHAP_GROUP_NULL)) == 0  ? "it needs a Diffie-Hellman group"
									: NULL;

	if (why != NULL) {
		snprintf(error, NVME_ERROR_MAX, "concat: %s", why);
	}
	return why == NULL;
}

struct nvme_ctrlr *nvme_ctrlr_create(const struct nvme_trid *trid, const struct nvme_ctrlr_opts *opts,
				     char error[NVME_ERROR_MAX])
{
	const struct nvme_transport_ops *ops = nvme_transport_ops_find(trid->trtype);

	if (ops == NULL) {
		char names[NVME_TRANSPORT_NAMES_MAX];

		snprintf(error, NVME_ERROR_MAX, "trtype %d is none of this program's, which are %s", (int)trid->trtype,
			 nvme_transport_names(false, names, sizeof(names)));
		errno = EINVAL;
		return NULL;
	}
	if (opts->tcp_concat && !ctrlr_concat_is_possible(opts, ops, error)) {
		errno = EINVAL;
		return NULL;
	}
	if (opts->tcp_psk != NULL && !ops->transport.tls) {
		snprintf(error, NVME_ERROR_MAX, "psk: %s has no TLS, and what is asked to be encrypted must be",
			 ops->transport.name);
		errno = EINVAL;
		return NULL;
	}
	struct nvme_ctrlr_opts o = *opts;
	ctrlr_opts_set_host(&o);
	o.dhchap_hashes = o.dhchap_hashes != 0 ? o.dhchap_hashes : DHCHAP_ALL_HASHES;
	o.dhchap_groups = o.dhchap_groups != 0 ? o.dhchap_groups : DHCHAP_ALL_GROUPS;
	if (ops->transport.fabrics && (!nvme_nqn_is_valid(trid->subnqn) || !nvme_nqn_is_valid(o.hostnqn))) {
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
	keyring_hold(o.tcp_psk);
	if (ctrlr_init(ctrlr) != 0) {
		snprintf(error, NVME_ERROR_MAX, "out of memory");
		ctrlr_free_memory(ctrlr);
		errno = ENOMEM;
		return NULL;
	}
	ctrlr->owner = trace_owner_register(TRACE_OWNER_NVME_CTRLR, trid->traddr);
	ctrlr->down_since = env_ticks();
	ctrlr->state_ticks = ctrlr->down_since;
	nvme_ctrlr_start_attempt(ctrlr);
	return ctrlr;
}

void nvme_ctrlr_destroy(struct nvme_ctrlr *ctrlr, void (*done)(void *arg), void *arg)
{
	ctrlr->destroying = true;
	ctrlr->destroyed = done;
	ctrlr->destroyed_arg = arg;
	if (ctrlr->state == NVME_CTRLR_READY && !ctrlr->in_failure) {
		nvme_ctrlr_stop_admin(ctrlr);
		nvme_ctrlr_set_state(ctrlr, NVME_CTRLR_SHUTDOWN);
	} else {
		thread_timer_start(&ctrlr->defer_timer, 0);
	}
}

int nvme_ctrlr_reset(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->state == NVME_CTRLR_FAILED) {
		ctrlr->down_since = env_ticks();
		ctrlr->in_failure = false;
		ctrlr->stop_asked = false;
	} else if (ctrlr->state != NVME_CTRLR_READY || ctrlr->in_failure) {
		return -EBUSY;
	}
	ctrlr->attempts = 0;
	ctrlr->attempt_due = true;
	nvme_ctrlr_fail(ctrlr, "reset on request");
	return 0;
}

int nvme_ctrlr_stop(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->state != NVME_CTRLR_READY || ctrlr->in_failure) {
		return -EBUSY;
	}
	ctrlr->stop_asked = true;
	nvme_ctrlr_fail(ctrlr, "its connection was ended on request");
	return 0;
}

int nvme_ctrlr_give_up(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->destroying || ctrlr->removed) {
		return -EBUSY;
	}
	ctrlr->stop_asked = true;
	if (ctrlr->state == NVME_CTRLR_FAILED) {
		thread_timer_stop(&ctrlr->defer_timer); /* of nvme_ctrlr_reset() */
		return -EBUSY;
	}
	if (ctrlr->state == NVME_CTRLR_BACK_OFF) {
		thread_timer_start(&ctrlr->step_timer,
				   0); /* there is no connection: nvme_ctrlr_start_attempt() ends it */
	} else {
		nvme_ctrlr_fail(ctrlr, "its connection was ended on request");
	}
	return 0;
}

static void nssr_written(struct nvme_ctrlr *ctrlr, int error, uint64_t value)
{
	ctrlr->attempts = 0;
	ctrlr->attempt_due = true;
	nvme_ctrlr_fail(ctrlr, error == 0 ? "subsystem reset on request" : "the subsystem reset could not be written");
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
