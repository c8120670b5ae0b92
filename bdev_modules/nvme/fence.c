/* SPDX-License-Identifier: BSD-3-Clause */
/* Fences (fence.h): their states, their time, and the commands that they hold. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/log.h"
#include "util/state_machine.h"

static TAILQ_HEAD(, bdev_nvme_fence) fences = TAILQ_HEAD_INITIALIZER(fences);
static bdev_nvme_fence_news_fn fence_observer;
static uint64_t serials;
static uint64_t ends[BDEV_NVME_FENCE_ENDS], commands_were_held; /* since the process began */

/* --- The state --- */

const char *bdev_nvme_fence_state_name(unsigned state)
{
	static const char *const names[BDEV_NVME_FENCE_STATES] = {[BDEV_NVME_FENCE_NONE] = "none",
								  [BDEV_NVME_FENCE_DISABLING] = "disabling",
								  [BDEV_NVME_FENCE_CROSS_RESET] = "cross_reset",
								  [BDEV_NVME_FENCE_WAITING] = "waiting",
								  [BDEV_NVME_FENCE_DONE] = "done"};

	return state < BDEV_NVME_FENCE_STATES ? names[state] : "unknown";
}

#define TO(s) (1u << BDEV_NVME_FENCE_##s)
static const uint32_t fence_next_states[BDEV_NVME_FENCE_STATES] = {
	[BDEV_NVME_FENCE_NONE] = TO(DISABLING) | TO(WAITING) | TO(DONE),
	[BDEV_NVME_FENCE_DISABLING] = TO(WAITING) | TO(DONE),
	[BDEV_NVME_FENCE_WAITING] = TO(CROSS_RESET) | TO(DONE),
	[BDEV_NVME_FENCE_CROSS_RESET] = TO(WAITING) | TO(DONE),
	[BDEV_NVME_FENCE_DONE] = 0,
};
STATE_MACHINE(bdev_nvme_fence_machine, "bdev_nvme fence", bdev_nvme_fence_state_name, fence_next_states)

static uint32_t fence_num_held(const struct bdev_nvme_fence *f)
{
	return __atomic_load_n(&f->held, __ATOMIC_SEQ_CST); /* pairs with bdev_nvme_fence_hold() */
}

void bdev_nvme_fence_set_state(struct bdev_nvme_fence *f, enum bdev_nvme_fence_state state)
{
	state_machine_check(&bdev_nvme_fence_machine, f->state, state, f->name);
	USDT(bdev_nvme_fence_state, f->name, f->trid.traddr, f->cntlid, f->state, state);
	TRACE(BDEV_NVME_FENCE, 0, 0, 0, f->state, state, f->cntlid, fence_num_held(f), f->name);
	f->state = state;
}

static void fence_tell(const struct bdev_nvme_fence *f, const char *what)
{
	if (fence_observer != NULL) {
		fence_observer(f->name, &f->trid, f->cntlid, what);
	}
}

void bdev_nvme_observe_fences(bdev_nvme_fence_news_fn fn)
{
	fence_observer = fn;
}

static uint64_t fence_age_ms(const struct bdev_nvme_fence *f)
{
	return env_ticks_to_ns(env_ticks() - f->begun_ticks) / 1000000;
}

/* --- Its end --- */

static void fence_free_if_over(struct bdev_nvme_fence *f)
{
	if (f->state == BDEV_NVME_FENCE_DONE && (f->c == NULL || f->c->fence != f)) {
		TAILQ_REMOVE(&fences, f, link);
		free(f);
	}
}

static void fence_release_channel(struct bdev_nvme_channel *ch, void *fence)
{
	bdev_nvme_channel_release_held(ch, fence);
}

static struct bdev_nvme_ns *subsystem_next_ns(const struct bdev_nvme_subsystem *m, uint32_t after)
{
	struct bdev_nvme_ns *d;

	TAILQ_FOREACH (d, &m->namespaces, link) {
		if (d->ns.nsid > after) {
			break;
		}
	}
	return d;
}

/* Submits or answers what is held in channels. Users who are told of an end may detach controllers and delete bdevs; no
 * controller is freed before the control thread's next turn. */
static void fence_release_channels(struct bdev_nvme_fence *f)
{
	struct bdev_nvme_subsystem *m = f->subsystem;
	struct bdev_nvme_ns *d = NULL;
	struct bdev_nvme *c, *next;
	uint32_t nsid = 0;

	TAILQ_FOREACH (c, &m->ctrlrs, subsystem_link) {
		bdev_nvme_hold(c);
	}
	while ((d = subsystem_next_ns(m, nsid)) != NULL) {
		nsid = d->ns.nsid;
		bdev_nvme_ns_visit_channels(d, fence_release_channel, f);
	}
	for (c = TAILQ_FIRST(&m->ctrlrs); c != NULL; c = next) {
		next = TAILQ_NEXT(c, subsystem_link);
		bdev_nvme_release(c);
	}
}

const char *bdev_nvme_fence_end_name(unsigned end)
{
	static const char *const names[BDEV_NVME_FENCE_ENDS] = {[BDEV_NVME_FENCE_END_DISABLED] = "disabled",
								[BDEV_NVME_FENCE_END_CROSS_RESET] = "cross_reset",
								[BDEV_NVME_FENCE_END_TIME] = "time",
								[BDEV_NVME_FENCE_END_NOT_WAITED] = "not_waited",
								[BDEV_NVME_FENCE_END_UNNEEDED] = "unneeded"};

	return end < BDEV_NVME_FENCE_ENDS ? names[end] : "unknown";
}

static const char *fence_end_text(const struct bdev_nvme_fence *f, enum bdev_nvme_fence_end how)
{
	switch (how) {
	case BDEV_NVME_FENCE_END_DISABLED:
		return "the controller was disabled";
	case BDEV_NVME_FENCE_END_CROSS_RESET:
		return "another controller of the subsystem has reset it";
	case BDEV_NVME_FENCE_END_TIME:
		return f->timeout_ms >= 0 ? "the time of fence_timeout_ms has passed"
					  : "the controller's keep-alive and quiesce times have passed";
	case BDEV_NVME_FENCE_END_NOT_WAITED:
		return "it is not waited for (fence_timeout_ms 0)";
	default:
		return "nothing waits for it any more";
	}
}

void bdev_nvme_fence_end(struct bdev_nvme_fence *f, enum bdev_nvme_fence_end how)
{
	struct bdev_nvme_fence_wait *w;
	char text[160];

	snprintf(text, sizeof(text), "ended after %" PRIu64 " ms: %s", fence_age_ms(f), fence_end_text(f, how));
	log_notice("%s: controller %u at %s:%s: fence %s; %u commands were held", f->name, f->cntlid, f->trid.traddr,
		   f->trid.trsvcid, text, fence_num_held(f));
	thread_timer_stop(&f->timer);
	thread_timer_stop(&f->seek_timer);
	if (f->cross_reset != NULL) {
		nvme_cross_reset_cancel(f->cross_reset);
		f->cross_reset = NULL;
	}
	bdev_nvme_fence_set_state(f, BDEV_NVME_FENCE_DONE);
	/* before channels are visited: what is lost later, or meanwhile, is not held any more */
	__atomic_store_n(&f->done, true, __ATOMIC_SEQ_CST); /* pairs with bdev_nvme_fence_hold() */
	ends[how]++;
	commands_were_held += fence_num_held(f);
	fence_tell(f, text);
	if (f->subsystem != NULL && fence_num_held(f) != 0) {
		fence_release_channels(f);
	}
	while ((w = STAILQ_FIRST(&f->waits)) != NULL) {
		STAILQ_REMOVE_HEAD(&f->waits, link);
		w->fn(w->arg);
	}
	fence_free_if_over(f);
}

/* --- Time --- */

int bdev_nvme_check_fence(int32_t timeout_ms, uint32_t default_quiesce_time_ms, char *error)
{
	if (timeout_ms < -1 || timeout_ms > BDEV_NVME_FENCE_MAX_MS) {
		return bdev_error(error, -EINVAL,
				  "fence_timeout_ms %d: must be -1 (the standard's time) or 0 (none) to %d", timeout_ms,
				  BDEV_NVME_FENCE_MAX_MS);
	}
	if (default_quiesce_time_ms > BDEV_NVME_FENCE_MAX_MS) {
		return bdev_error(error, -EINVAL, "default_quiesce_time_ms %u: must be 0 to %d",
				  default_quiesce_time_ms, BDEV_NVME_FENCE_MAX_MS);
	}
	return 0;
}

uint64_t bdev_nvme_fence_time_ms(int32_t timeout_ms, uint32_t default_quiesce_time_ms,
				 const struct nvme_ctrlr_quiesce_info *info)
{
	if (timeout_ms >= 0) {
		return (uint64_t)timeout_ms;
	}
	/* TP4129: the controller notices the loss of contact within two Keep Alive Timeouts (three, if any traffic
	 * restarts its timer), and ends its commands within the Command Quiesce Time after that */
	return (info->traffic_based ? 3u : 2u) * (uint64_t)info->keep_alive_ms +
	       (info->quiesce_ms != 0 ? info->quiesce_ms : default_quiesce_time_ms);
}

static void fence_timer_fired(void *arg)
{
	struct bdev_nvme_fence *f = arg;

	bdev_nvme_fence_end(f, BDEV_NVME_FENCE_END_TIME);
}

static void fence_start_waiting(struct bdev_nvme_fence *f)
{
	uint64_t ms = bdev_nvme_fence_time_ms(f->timeout_ms, f->default_quiesce_time_ms, &f->info);
	char text[160];

	if (ms == 0) {
		bdev_nvme_fence_end(f, BDEV_NVME_FENCE_END_NOT_WAITED);
		return;
	}
	f->until_ticks = env_ticks() + env_us_to_ticks(ms * 1000);
	bdev_nvme_fence_set_state(f, BDEV_NVME_FENCE_WAITING);
	snprintf(text, sizeof(text), "begun: the controller may still carry out commands for up to %" PRIu64 " ms", ms);
	log_warning("%s: controller %u at %s:%s: fence %s; %u commands are held", f->name, f->cntlid, f->trid.traddr,
		    f->trid.trsvcid, text, fence_num_held(f));
	fence_tell(f, text);
	thread_timer_start(&f->timer, ms * 1000);
	bdev_nvme_fence_seek_helper(f);
}

void bdev_nvme_fence_helper_came(void)
{
	struct bdev_nvme_fence *f;

	TAILQ_FOREACH (f, &fences, link) {
		bdev_nvme_fence_seek_helper(f);
	}
}

/* --- What happens to the controller --- */

bool bdev_nvme_fence_open(struct bdev_nvme *c)
{
	struct bdev_nvme_fence *f, *old = c->fence;

	c->fence = NULL;
	if (old != NULL) {
		fence_free_if_over(old);
	}
	if (!nvme_trtype_is_fabrics(c->opts.trid.trtype)) {
		return true; /* commands of a local drive end when its queue or the drive has been stopped */
	}
	f = calloc(1, sizeof(*f));
	if (f == NULL) {
		return false;
	}
	f->c = c;
	f->subsystem = c->subsystem;
	snprintf(f->name, sizeof(f->name), "%s", c->name);
	f->trid = *nvme_ctrlr_trid(c->ctrlr);
	snprintf(f->hostnqn, sizeof(f->hostnqn), "%s", c->opts.hostnqn);
	f->cntlid = nvme_ctrlr_cntlid(c->ctrlr);
	nvme_ctrlr_quiesce_info(c->ctrlr, &f->info);
	f->timeout_ms = c->opts.fence_timeout_ms;
	f->default_quiesce_time_ms = c->opts.default_quiesce_time_ms;
	f->serial = ++serials;
	f->timer = (struct thread_timer){.fn = fence_timer_fired, .arg = f};
	f->seek_timer = (struct thread_timer){.fn = bdev_nvme_fence_seek_helper, .arg = f};
	STAILQ_INIT(&f->waits);
	TAILQ_INSERT_TAIL(&fences, f, link);
	c->fence = f;
	return true;
}

void bdev_nvme_fence_disabling(struct bdev_nvme *c)
{
	if (c->fence != NULL && c->fence->state == BDEV_NVME_FENCE_NONE) {
		c->fence->begun_ticks = env_ticks();
		bdev_nvme_fence_set_state(c->fence, BDEV_NVME_FENCE_DISABLING);
	}
}

void bdev_nvme_fence_begin(struct bdev_nvme *c)
{
	struct bdev_nvme_fence *f = c->fence;

	if (f == NULL || f->state > BDEV_NVME_FENCE_DISABLING) {
		return;
	}
	f->begun_ticks = f->begun_ticks != 0 ? f->begun_ticks : env_ticks();
	if (nvme_ctrlr_has_ended(c->ctrlr)) {
		bdev_nvme_fence_end(f, BDEV_NVME_FENCE_END_DISABLED);
	} else {
		fence_start_waiting(f);
	}
}

/* A connection that ends with its controller's shutdown has no fence, unless commands were lost with it just before. */
static void fence_lose_ctrlr(struct bdev_nvme_fence *f)
{
	bool current = f->c->fence == f;

	f->c = NULL;
	if (!current || f->state > BDEV_NVME_FENCE_DISABLING) {
		fence_free_if_over(f);
	} else if (fence_num_held(f) == 0 && STAILQ_EMPTY(&f->waits)) {
		TAILQ_REMOVE(&fences, f, link);
		free(f);
	} else {
		f->begun_ticks = f->begun_ticks != 0 ? f->begun_ticks : env_ticks();
		fence_start_waiting(f);
	}
}

void bdev_nvme_fence_detached(struct bdev_nvme *c)
{
	struct bdev_nvme_fence *f = TAILQ_FIRST(&fences), *next;

	for (; f != NULL; f = next) {
		next = TAILQ_NEXT(f, link);
		if (f->c == c) {
			fence_lose_ctrlr(f);
		}
	}
	c->fence = NULL;
}

/* Without bdevs there are no channels in which commands could be held. */
void bdev_nvme_fence_subsystem_gone(const struct bdev_nvme_subsystem *m)
{
	struct bdev_nvme_fence *f = TAILQ_FIRST(&fences), *next;

	for (; f != NULL; f = next) {
		next = TAILQ_NEXT(f, link);
		if (f->subsystem == m) {
			f->subsystem = NULL;
			if (f->state != BDEV_NVME_FENCE_DONE && STAILQ_EMPTY(&f->waits)) {
				bdev_nvme_fence_end(f, BDEV_NVME_FENCE_END_UNNEEDED);
			}
		}
	}
}

uint64_t bdev_nvme_fence_newest(void)
{
	return serials;
}

struct bdev_nvme_fence *bdev_nvme_fence_find(const struct bdev_nvme_subsystem *m, uint64_t newest)
{
	struct bdev_nvme_fence *f;

	TAILQ_FOREACH (f, &fences, link) {
		if (f->subsystem == m && f->serial <= newest && f->state != BDEV_NVME_FENCE_NONE &&
		    f->state != BDEV_NVME_FENCE_DONE) {
			break;
		}
	}
	return f;
}

void bdev_nvme_fence_wait(struct bdev_nvme_fence *f, struct bdev_nvme_fence_wait *w, void (*fn)(void *arg), void *arg)
{
	*w = (struct bdev_nvme_fence_wait){.fn = fn, .arg = arg};
	STAILQ_INSERT_TAIL(&f->waits, w, link);
}

const struct bdev_nvme_fence_info *bdev_nvme_fence_next(const struct bdev_nvme_fence_info *after,
							struct bdev_nvme_fence_info *info)
{
	const struct bdev_nvme_fence *f = after != NULL ? after->position : NULL;

	do {
		f = f != NULL ? TAILQ_NEXT(f, link) : TAILQ_FIRST(&fences);
	} while (f != NULL && (f->state == BDEV_NVME_FENCE_NONE || f->state == BDEV_NVME_FENCE_DONE));
	if (f == NULL) {
		return NULL;
	}
	uint64_t now = env_ticks();
	*info = (struct bdev_nvme_fence_info){
		.position = f,
		.name = f->name,
		.trid = &f->trid,
		.cntlid = f->cntlid,
		.state = bdev_nvme_fence_state_name(f->state),
		.held = fence_num_held(f),
		.age_ms = fence_age_ms(f),
		.left_ms = f->until_ticks > now ? env_ticks_to_ns(f->until_ticks - now) / 1000000 : 0};
	return info;
}

void bdev_nvme_get_fence_stat(struct bdev_nvme_fence_stat *stat)
{
	const struct bdev_nvme_fence *f;

	*stat = (struct bdev_nvme_fence_stat){.commands_total = commands_were_held};
	memcpy(stat->ends, ends, sizeof(ends));
	TAILQ_FOREACH (f, &fences, link) {
		if (f->state != BDEV_NVME_FENCE_NONE && f->state != BDEV_NVME_FENCE_DONE) {
			stat->fences++;
			stat->held += fence_num_held(f);
		}
	}
	stat->commands_total += stat->held;
}

void bdev_nvme_fence_figures(bdev_module_figure_fn fn, void *arg)
{
	struct bdev_nvme_fence_stat stat;

	bdev_nvme_get_fence_stat(&stat);
	const struct bdev_module_figure figures[] = {
		{"varve_nvme_fences", "Lost controllers of remote targets that may still carry out commands.",
		 .value = stat.fences},
		{"varve_nvme_fence_held_commands",
		 "Commands that change data, and wait until the controller that they were lost with has ended.",
		 .value = stat.held},
		{"varve_nvme_fence_held_commands_total", "Commands that have waited so, or wait now.", .grows = true,
		 .value = stat.commands_total},
	};
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		fn(arg, &figures[i]);
	}
	for (unsigned i = 0; i < BDEV_NVME_FENCE_ENDS; i++) {
		fn(arg, &(struct bdev_module_figure){
				.name = "varve_nvme_fences_ended_total",
				.help = "Fences that have ended, by how: not_waited is less safe than the others.",
				.grows = true,
				.label = "result",
				.what = bdev_nvme_fence_end_name(i),
				.value = stat.ends[i]});
	}
}

/* --- Commands --- */

bool bdev_nvme_opcode_changes(uint8_t opcode, bool admin)
{
	if (admin) {
		return opcode != nvme_admin_get_log_page && opcode != nvme_admin_identify &&
		       opcode != nvme_admin_get_features && opcode != nvme_admin_get_lba_status &&
		       opcode != nvme_admin_directive_recv && opcode != nvme_admin_security_recv;
	}
	/* a flush makes durable what was written before it: carried out late, it changes nothing */
	return opcode != nvme_cmd_read && opcode != nvme_cmd_compare && opcode != nvme_cmd_verify &&
	       opcode != nvme_cmd_flush && opcode != nvme_cmd_resv_report;
}

bool bdev_nvme_fence_holds_admin(const struct bdev_nvme *c, uint8_t opcode)
{
	return c->fence != NULL && c->fence->state != BDEV_NVME_FENCE_DONE && nvme_ctrlr_is_ending(c->ctrlr) &&
	       bdev_nvme_opcode_changes(opcode, true);
}

bool bdev_nvme_fence_hold(struct bdev_nvme_io *n)
{
	struct bdev_nvme_fence *f = n->qpair->fence;

	if (f == NULL || !(n->fused || bdev_nvme_opcode_changes(n->req.cmd.opcode, false))) {
		return false;
	}
	if (n->raw) { /* on the control thread */
		if (!f->done) {
			bdev_nvme_cmd_raw_hold(n, f);
		}
		return !f->done;
	}
	/* The command is counted first. So either this thread sees the end here, or bdev_nvme_fence_end(), which stores
	 * and loads in the other order, sees the count: then it visits this thread, after this function has ended. */
	__atomic_fetch_add(&f->held, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&f->done, __ATOMIC_SEQ_CST)) {
		__atomic_fetch_sub(&f->held, 1, __ATOMIC_RELAXED);
		n->unfenced = f->timeout_ms == 0;
		return false;
	}
	bdev_nvme_channel_hold(bdev_nvme_io_channel(n), n, f);
	return true;
}

void bdev_nvme_fence_describe(const struct bdev_nvme_io *n, char *text, size_t size)
{
	const struct bdev_nvme_fence *f = n->fence;
	uint64_t now = env_ticks(), left = f->until_ticks > now ? env_ticks_to_ns(f->until_ticks - now) / 1000000 : 0;

	if (f->until_ticks == 0) {
		snprintf(text, size, "fence of controller %u of %.40s (%s)", f->cntlid, f->name,
			 bdev_nvme_fence_state_name(f->state));
	} else {
		snprintf(text, size, "fence of controller %u of %.40s (%s, %" PRIu64 " ms at most)", f->cntlid, f->name,
			 bdev_nvme_fence_state_name(f->state), left);
	}
}
