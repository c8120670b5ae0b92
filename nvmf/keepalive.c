/* SPDX-License-Identifier: BSD-3-Clause */
/* The keep-alive timer, traffic-based (Base 3.9.4.2): any command of any of the controller's queues shows that the host
 * lives. Groups note the time of the last command of each queue pair; when the timer runs out, it looks there and
 * starts again for what is left. Time is the TSC's: the clock of the day may be set as one likes. */
#include <inttypes.h>

#include "nvmf/internal.h"

/* A discovery controller without a keep-alive timer ends after two minutes of silence (Base 3.1.2.3.3). */
#define DISCOVERY_SILENCE_MS 120000

static uint64_t keepalive_last_heard(const struct nvmf_ctrlr *ctrlr)
{
	const struct nvmf_qpair *qpair;
	uint64_t last = 0;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		uint64_t ticks = atomic_load_explicit(&qpair->last_command_ticks, memory_order_relaxed);
		if (ticks > last) {
			last = ticks;
		}
	}
	return last;
}

/* What is watched for, in milliseconds; 0: nothing. */
static uint32_t keepalive_timeout_ms(const struct nvmf_ctrlr *ctrlr)
{
	uint32_t kato = atomic_load_explicit(&ctrlr->kato_ms, memory_order_relaxed);

	return kato == 0 && ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY ? DISCOVERY_SILENCE_MS : kato;
}

/* A quarter more than the timeout. Hosts that count on traffic look twice in that time whether there was any, and send
 * a Keep Alive if not: one that saw the answer to a command just after a look sends it as late as the timeout, and its
 * timers, and the way here, are late too. */
static uint64_t keepalive_patience_us(const struct nvmf_ctrlr *ctrlr)
{
	return keepalive_timeout_ms(ctrlr) * UINT64_C(1250);
}

static void keepalive_expired(void *arg)
{
	struct nvmf_ctrlr *ctrlr = arg;
	uint64_t timeout_us = keepalive_patience_us(ctrlr);
	uint64_t now = env_ticks(), last = keepalive_last_heard(ctrlr);
	uint64_t silent_us = now > last ? (now - last) / (env_ticks_hz() / 1000000) : 0;
	/* A host that has to authenticate has nothing to send while we compute, and there may be a queue of others
	 * before it. */
	bool ours = thread_timer_was_absent(&ctrlr->kato_timer, timeout_us) ||
		    (ctrlr->admin_qpair != NULL && nvmf_auth_computes(ctrlr->admin_qpair));

	if (silent_us < timeout_us || ours) {
		thread_timer_start(&ctrlr->kato_timer, ours ? timeout_us : timeout_us - silent_us);
		return;
	}
	char why[128];
	snprintf(why, sizeof(why), "nothing was heard for %" PRIu64 " ms; the keep-alive timeout is %u ms",
		 silent_us / 1000, keepalive_timeout_ms(ctrlr));
	nvmf_notice(NVMF_NOTICE_KEEP_ALIVE_EXPIRED, why, "%s %s %u", ctrlr->subsystem->nqn, ctrlr->hostnqn,
		    ctrlr->cntlid);
	nvmf_tell_fault(&(struct nvmf_fault){
		.kind = NVMF_FAULT_KEEP_ALIVE,
		.qpair = ctrlr->admin_qpair,
		.cntlid = ctrlr->cntlid,
		.hostnqn = ctrlr->hostnqn,
		.subnqn = ctrlr->subsystem->nqn,
		.why = "nothing was heard of it for its keep-alive timeout",
		.silent_ticks = now > last ? now - last : 0,
		.limit_ticks = env_us_to_ticks(timeout_us),
	});
	nvmf_ctrlr_destroy(ctrlr, "nothing was heard of it for its keep-alive timeout");
}

/* Rounded up to the granularity that Identify tells (KAS), and to the transport's minimum; 0 stays: off. */
static uint32_t keepalive_round(const struct nvmf_ctrlr *ctrlr, uint32_t kato_ms)
{
	const struct nvmf_transport_opts *opts = &ctrlr->transport->opts;
	uint64_t unit = opts->kas != 0 ? opts->kas * UINT64_C(100) : 1;
	uint64_t kato = kato_ms;

	if (kato == 0) {
		return 0;
	}
	if (kato < opts->min_kato_ms) {
		kato = opts->min_kato_ms;
	}
	kato = (kato + unit - 1) / unit * unit;
	return kato <= UINT32_MAX ? (uint32_t)kato : UINT32_MAX;
}

void nvmf_keepalive_set(struct nvmf_ctrlr *ctrlr, uint32_t kato_ms)
{
	atomic_store_explicit(&ctrlr->kato_ms, keepalive_round(ctrlr, kato_ms), memory_order_relaxed);
	ctrlr->kato_timer.fn = keepalive_expired;
	ctrlr->kato_timer.arg = ctrlr;
	if (keepalive_timeout_ms(ctrlr) == 0) {
		thread_timer_stop(&ctrlr->kato_timer);
	} else {
		thread_timer_start(&ctrlr->kato_timer, keepalive_patience_us(ctrlr));
	}
}

void nvmf_keepalive_stop(struct nvmf_ctrlr *ctrlr)
{
	thread_timer_stop(&ctrlr->kato_timer);
}
