/* SPDX-License-Identifier: BSD-3-Clause */
/* Injected errors: completions whose status is forged, of commands that are sent or held back.
 *
 * The control thread sets a rule for an opcode; the using thread of each queue pair carries it out. A rule is a number
 * of times and one word, both atomic, so there is no lock; rules live as long as the controller. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"

#define STATUS_BITS 15
#define HOLD_BIT    (UINT64_C(1) << STATUS_BITS)
#define DELAY_SHIFT (STATUS_BITS + 1)

struct rule {
	uint32_t times; /* atomic; 0: none */
	uint64_t what;  /* atomic: status, HOLD_BIT, delay in us from DELAY_SHIFT on */
};

struct nvme_faults {
	struct rule admin[256], io[256];
};

/* The control thread. */

int nvme_ctrlr_inject(struct nvme_ctrlr *ctrlr, const struct nvme_injection *i)
{
	struct nvme_qpair *q;

	if (i->delay_us > NVME_INJECTION_DELAY_MAX_US) {
		return -EINVAL;
	}
	if (ctrlr->faults == NULL) {
		ctrlr->faults = calloc(1, sizeof(*ctrlr->faults));
	}
	if (ctrlr->faults == NULL) {
		return -ENOMEM;
	}
	struct rule *r = i->io ? &ctrlr->faults->io[i->opcode] : &ctrlr->faults->admin[i->opcode];
	uint64_t what = (i->status & ((UINT64_C(1) << STATUS_BITS) - 1)) | (i->hold ? HOLD_BIT : 0) |
			i->delay_us << DELAY_SHIFT;
	__atomic_store_n(&r->times, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&r->what, what, __ATOMIC_RELAXED);
	__atomic_store_n(&r->times, i->times, __ATOMIC_RELEASE); /* pairs with fault_take() */
	TAILQ_FOREACH (q, &ctrlr->qpairs, link) {
		__atomic_store_n(&q->injecting, true, __ATOMIC_RELEASE);
	}
	if (ctrlr->admin != NULL) {
		ctrlr->admin->injecting = true;
	}
	return 0;
}

int nvme_ctrlr_inject_end(struct nvme_ctrlr *ctrlr, bool io, uint8_t opcode)
{
	if (ctrlr->faults == NULL) {
		return -ENOENT;
	}
	struct rule *r = io ? &ctrlr->faults->io[opcode] : &ctrlr->faults->admin[opcode];
	return __atomic_exchange_n(&r->times, 0, __ATOMIC_RELAXED) != 0 ? 0 : -ENOENT;
}

/* The using thread. */

static bool fault_take(struct rule *r, uint64_t *what)
{
	uint32_t times = __atomic_load_n(&r->times, __ATOMIC_ACQUIRE);

	while (times != 0) {
		if (__atomic_compare_exchange_n(&r->times, &times, times - 1, true, __ATOMIC_ACQUIRE,
						__ATOMIC_ACQUIRE)) {
			*what = __atomic_load_n(&r->what, __ATOMIC_RELAXED);
			return true;
		}
	}
	return false;
}

/* The first held command that is due. NULL: none is, and *next is the time when one will be (UINT64_MAX: there is
 * none). */
static struct nvme_request *held_find_due(const struct nvme_qpair *qpair, uint64_t now, uint64_t *next)
{
	struct nvme_request *req;

	*next = UINT64_MAX;
	TAILQ_FOREACH (req, &qpair->held, link) {
		if (req->due_ticks <= now) {
			return req;
		}
		*next = req->due_ticks < *next ? req->due_ticks : *next;
	}
	return NULL;
}

/* The search begins anew after each command, whose callback may have changed the list, or had the queue pair fail. */
static void held_timer_fired(void *arg)
{
	struct nvme_qpair *qpair = arg;
	struct nvme_request *req;
	uint64_t now = env_ticks(), next;

	while ((req = held_find_due(qpair, now, &next)) != NULL) {
		struct nvme_cqe cqe = {.cid = req->cmd.cid, .sqid = htole16(qpair->id)};
		nvme_qpair_complete(qpair, &cqe); /* sets the forged status, and removes req from the list */
	}
	if (next != UINT64_MAX) {
		thread_timer_start(&qpair->held_timer, env_ticks_to_ns(next - now) / 1000 + 1);
	}
}

static void fault_hold(struct nvme_qpair *qpair, struct nvme_request *req, uint64_t delay_us)
{
	req->forged = NVME_FORGED_HELD;
	req->due_ticks = env_ticks() + env_us_to_ticks(delay_us);
	TAILQ_INSERT_TAIL(&qpair->held, req, link);
	qpair->held_timer.fn = held_timer_fired;
	qpair->held_timer.arg = qpair;
	/* if others are held, the timer is fired at once to find out which is due next */
	thread_timer_start(&qpair->held_timer, TAILQ_FIRST(&qpair->held) == req ? delay_us : 0);
}

bool nvme_fault_apply(struct nvme_qpair *qpair, struct nvme_request *req)
{
	struct nvme_faults *f = qpair->ctrlr->faults;
	uint64_t what;

	req->forged = NVME_GENUINE;
	if (!fault_take(qpair->id == 0 ? &f->admin[req->cmd.opcode] : &f->io[req->cmd.opcode], &what)) {
		return false;
	}
	req->forged = NVME_FORGED;
	req->forged_status = (uint16_t)(what & (HOLD_BIT - 1));
	if (what & HOLD_BIT) {
		fault_hold(qpair, req, what >> DELAY_SHIFT);
	}
	return (what & HOLD_BIT) != 0;
}

void nvme_fault_clear_data(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	bool carried_out = req->forged == NVME_FORGED && nvme_cqe_status(cqe) == 0;
	uint64_t left = req->data_len;

	if (carried_out || req->to_device || req->forged_status != 0) {
		return;
	}
	for (uint32_t i = 0; i < req->iovcnt && left != 0; i++) {
		size_t n = req->iovs[i].iov_len < left ? req->iovs[i].iov_len : (size_t)left;
		memset(req->iovs[i].iov_base, 0, n);
		left -= n;
	}
}

void nvme_fault_forget(struct nvme_qpair *qpair)
{
	TAILQ_INIT(&qpair->held);
	thread_timer_stop(&qpair->held_timer);
}
