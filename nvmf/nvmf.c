/* SPDX-License-Identifier: BSD-3-Clause */
/* What the appliance starts and stops, and notices. */
#include <stdarg.h>
#include <stdio.h>
#include "nvmf/internal.h"

static struct nvmf_config config = {.all_cores = true};

struct nvmf_config *nvmf_config(void)
{
	return &config;
}

int nvmf_init(void)
{
	const struct nvmf_tgt_opts opts = {
		.name = NVMF_DEFAULT_TGT,
		.max_subsystems = config.max_subsystems,
		.discovery_filter = config.discovery_filter,
		.crdt = {config.crdt[0], config.crdt[1], config.crdt[2]},
		.quiesce_limit_ms = config.quiesce_limit_ms,
		.cores = config.all_cores ? NULL : &config.cores,
		.dhchap_hashes = config.dhchap_hashes,
		.one_ctrlr_per_listener = config.one_ctrlr_per_listener,
		.dhchap_groups = config.dhchap_groups,
	};
	struct nvmf_tgt *tgt;
	int rc = nvmf_tgt_create(&opts, &tgt);

	return rc != 0 ? rc : nvmf_tgt_start(tgt);
}

/* ---- Stopping: all targets at once, so that none keeps its hosts because another one takes long ---- */

static void (*fini_done)(void *arg); /* NULL: not stopping */
static void *fini_arg;

static void fini_tgt_stopped(void *arg, int status)
{
	nvmf_tgt_destroy(arg);
}

void nvmf_tgt_destroyed(void)
{
	void (*done)(void *arg) = fini_done;

	if (done != NULL && nvmf_tgt_next(NULL) == NULL) {
		fini_done = NULL;
		done(fini_arg);
	}
}

void nvmf_fini(void (*done)(void *arg), void *arg)
{
	fini_done = done;
	fini_arg = arg;
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		if (tgt->stop_done == NULL) { /* or another caller is stopping it, and destroys it then */
			nvmf_tgt_stop(tgt, fini_tgt_stopped, tgt);
		}
	}
	nvmf_tgt_destroyed(); /* there may be none */
}

/* ---- Notices ---- */

static nvmf_notice_fn notice_fn;

static const char *const notice_types[NVMF_NOTICES] = {
	[NVMF_NOTICE_SUBSYSTEM_CREATE] = "nvmf_subsystem_create",
	[NVMF_NOTICE_SUBSYSTEM_DESTROY] = "nvmf_subsystem_destroy",
	[NVMF_NOTICE_HOST_CONNECT] = "nvmf_host_connect",
	[NVMF_NOTICE_HOST_DISCONNECT] = "nvmf_host_disconnect",
	[NVMF_NOTICE_NS_ADD] = "nvmf_ns_add",
	[NVMF_NOTICE_NS_REMOVE] = "nvmf_ns_remove",
	[NVMF_NOTICE_NS_LOST] = "nvmf_ns_lost",
	[NVMF_NOTICE_NS_RESIZE] = "nvmf_ns_resize",
	[NVMF_NOTICE_ANA_CHANGE] = "nvmf_ana_change",
	[NVMF_NOTICE_HOST_REFUSED] = "nvmf_host_refused",
	[NVMF_NOTICE_AUTH_FAILED] = "nvmf_auth_failed",
	[NVMF_NOTICE_KEEP_ALIVE_EXPIRED] = "nvmf_keep_alive_expired",
	[NVMF_NOTICE_QUIESCE_LATE] = "nvmf_quiesce_late",
	[NVMF_NOTICE_LISTENER_ADD] = "nvmf_listener_add",
	[NVMF_NOTICE_LISTENER_REMOVE] = "nvmf_listener_remove",
	[NVMF_NOTICE_CROSS_RESET] = "nvmf_cross_reset",
	[NVMF_NOTICE_CROSS_RESET_DONE] = "nvmf_cross_reset_done",
	[NVMF_NOTICE_CROSS_RESET_FAILED] = "nvmf_cross_reset_failed",
};

void nvmf_set_notice_fn(nvmf_notice_fn fn)
{
	notice_fn = fn;
}

const char *nvmf_notice_type(unsigned index)
{
	return index < NVMF_NOTICES ? notice_types[index] : NULL;
}

static void (*fault_fn)(const struct nvmf_fault *fault);

void nvmf_set_fault_fn(void (*fn)(const struct nvmf_fault *fault))
{
	fault_fn = fn;
}

void nvmf_tell_fault(const struct nvmf_fault *fault)
{
	if (fault_fn != NULL) {
		fault_fn(fault);
	}
}

void nvmf_notice(enum nvmf_notice notice, const char *why, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	if (notice_fn == NULL) {
		return;
	}
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	notice_fn(notice_types[notice], text, why);
}

/* The ring of notifications keeps the last 1024 (rpc/notify.c). A flood of strangers displaces all of them in no less
 * than half a day. */
#define NOTICES_AT_ONCE  32
#define NOTICE_REFILL_US (60 * UINT64_C(1000000))

bool nvmf_notice_budget(enum nvmf_notice notice, uint32_t *left_out)
{
	static struct {
		uint64_t refilled; /* ticks; 0: never */
		unsigned used;
		uint32_t left_out;
	} budgets[NVMF_NOTICES];
	uint64_t now = env_ticks(), unit = env_us_to_ticks(NOTICE_REFILL_US);
	uint64_t units = (now - budgets[notice].refilled) / unit;

	if (budgets[notice].refilled == 0 || units >= budgets[notice].used) {
		budgets[notice].used = 0;
		budgets[notice].refilled = now;
	} else {
		budgets[notice].used -= (unsigned)units;
		budgets[notice].refilled += units * unit;
	}
	if (budgets[notice].used == NOTICES_AT_ONCE) {
		budgets[notice].left_out++;
		return false;
	}
	budgets[notice].used++;
	*left_out = budgets[notice].left_out;
	budgets[notice].left_out = 0;
	return true;
}

void nvmf_notice_refused(enum nvmf_notice notice, const char *subnqn, const char *hostnqn, const char *why)
{
	uint32_t left_out;
	char text[NVMF_REFUSAL_MAX + 64];

	if (!nvmf_notice_budget(notice, &left_out)) {
		return;
	}
	if (left_out != 0) {
		snprintf(text, sizeof(text), "%s (%u more were not told)", why, left_out);
		why = text;
	}
	nvmf_notice(notice, why, "%s %s", subnqn, hostnqn);
}
