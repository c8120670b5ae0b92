/* SPDX-License-Identifier: BSD-3-Clause */
/* The keep-alive timer, traffic-based (Base 3.9.4.2): a command on any of the controller's queues shows that the host
 * is alive. Each group notes when the last command of each queue pair arrived. When the timer expires, it reads those
 * times and starts again for the rest. All times are TSC ticks: changes of the system clock do not matter. */
#include <inttypes.h>

#include "nvmf/internal.h"

/* A discovery controller without a keep-alive timer ends after two minutes of silence (Base 3.1.2.3.3). */
#define DISCOVERY_SILENCE_MS 120000

#define GRACE_MAX_MS 30000
_Static_assert(GRACE_MAX_MS + NVMF_QUIESCE_LIMIT_MAX_MS <= UINT16_MAX, "CQT has 16 bits");

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

/* The timeout that holds, in milliseconds; 0: none. */
static uint32_t keepalive_timeout_ms(const struct nvmf_ctrlr *ctrlr)
{
	uint32_t kato = atomic_load_explicit(&ctrlr->kato_ms, memory_order_relaxed);

	return kato == 0 && ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY ? DISCOVERY_SILENCE_MS : kato;
}

/* A quarter of the timeout, but not more than CQT has room for. */
static uint32_t keepalive_grace_ms(uint32_t timeout_ms)
{
	return timeout_ms / 4 < GRACE_MAX_MS ? timeout_ms / 4 : GRACE_MAX_MS;
}

/* The time of silence after which a host is lost: the timeout and a quarter. Hosts with traffic-based keep-alive look
 * twice per timeout whether there was traffic, and send a Keep Alive if there was none. A host that received a
 * completion just after it looked sends its Keep Alive as late as the timeout, and timers and the network delay it
 * further. */
static uint64_t keepalive_patience_us(const struct nvmf_ctrlr *ctrlr)
{
	uint32_t timeout_ms = keepalive_timeout_ms(ctrlr);

	return (timeout_ms + keepalive_grace_ms(timeout_ms)) * UINT64_C(1000);
}

/* How long after it was last heard of a host may be forgiven its silence at most. With traffic-based keep-alive it
 * waits for three timeouts and CQT before it submits writes elsewhere, and CQT has the grace and the time for
 * quiescing. */
static uint64_t keepalive_last_call_us(const struct nvmf_ctrlr *ctrlr)
{
	uint32_t timeout_ms = keepalive_timeout_ms(ctrlr);

	return (3 * (uint64_t)timeout_ms + keepalive_grace_ms(timeout_ms)) * 1000;
}

uint16_t nvmf_keepalive_cqt_ms(const struct nvmf_ctrlr *ctrlr)
{
	uint32_t cqt = ctrlr->subsystem->tgt->quiesce_limit_ms + keepalive_grace_ms(keepalive_timeout_ms(ctrlr));

	return (uint16_t)(cqt < UINT16_MAX ? cqt : UINT16_MAX);
}

static void keepalive_expired(void *arg)
{
	struct nvmf_ctrlr *ctrlr = arg;
	uint64_t timeout_us = keepalive_patience_us(ctrlr), last_call_us = keepalive_last_call_us(ctrlr);
	uint64_t now = env_ticks(), last = keepalive_last_heard(ctrlr);
	uint64_t silent_us = now > last ? (now - last) / (env_ticks_hz() / 1000000) : 0;
	/* A host that authenticates sends nothing while the target computes, and computations of other hosts may come
	 * first. */
	bool ours = thread_timer_was_absent(&ctrlr->kato_timer, timeout_us) ||
		    (ctrlr->admin_qpair != NULL && nvmf_auth_computes(ctrlr->admin_qpair));

	if (silent_us < timeout_us && !ours) {
		thread_timer_start(&ctrlr->kato_timer, timeout_us - silent_us);
		return;
	}
	if (silent_us < last_call_us && ours) {
		uint64_t rest_us = last_call_us - silent_us;
		thread_timer_start(&ctrlr->kato_timer, rest_us < timeout_us ? rest_us : timeout_us);
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

/* Rounds a timeout up to the granularity that Identify tells (KAS) and to the transport's minimum. 0: off. */
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
