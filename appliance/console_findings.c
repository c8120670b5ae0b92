/* SPDX-License-Identifier: BSD-3-Clause */
/* What is wrong now, from what the daemon knows itself. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "appliance/app.h"
#include "appliance/blackbox.h"
#include "appliance/console_api.h"
#include "appliance/console_history.h"
#include "appliance/hand_over_config.h"
#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "rpc/rpc.h"
#include "util/state_machine.h"

#define LATE_US        UINT64_C(10000000)
#define RECENT_US      UINT64_C(300000000)
#define MAX_LATE       4
#define MAX_PER_RULE   8
#define FINDING_LENGTH 1024

enum severity { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_INFO };

static void finding_add(json_t *list, enum severity severity, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void finding_add(json_t *list, enum severity severity, const char *next, const char *fmt, ...)
{
	static const char *const severities[] = {"error", "warning", "info"};
	char text[FINDING_LENGTH];
	json_t *o = json_object();
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	json_object_set_new(o, "severity", json_string(severities[severity]));
	json_object_set_new(o, "text", rpc_string(text));
	json_object_set_new(o, "next", json_string(next));
	json_array_append_new(list, o);
}

static void find_violations(json_t *list)
{
	for (const struct state_machine *m = NULL; (m = state_machine_next(m)) != NULL;) {
		if (state_machine_violations(m) != 0) {
			finding_add(list, SEVERITY_ERROR, "varve-doctor",
				    "%" PRIu64 " changes of state of %s that must not be: a fault in varve",
				    state_machine_violations(m), m->name);
		}
	}
}

static void find_late_commands(json_t *list)
{
	struct nvmf_inflight late[MAX_LATE];

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		size_t n = nvmf_tgt_get_late(tgt, env_us_to_ticks(LATE_US), MAX_LATE, late);
		for (size_t i = 0; i < n && i < MAX_LATE; i++) {
			finding_add(list, SEVERITY_ERROR, "varve-rpc nvmf_get_inflight",
				    "a command of %s has been outstanding for %" PRIu64
				    " s in state %s, waiting for %s",
				    late[i].hostnqn, env_ticks_to_ns(late[i].age_ticks) / 1000000000, late[i].state,
				    late[i].waits_for != NULL ? late[i].waits_for : "nothing known");
		}
	}
}

static void find_faults(json_t *list)
{
	uint64_t now = env_ticks();
	unsigned n = 0;

	for (const struct console_series *s = NULL; (s = console_series_next(s)) != NULL;) {
		uint64_t ago_us = env_ticks_to_ns(now - s->faults_ticks) / 1000;
		if (s->faults_ticks == 0 || ago_us > RECENT_US) {
			continue;
		}
		if (n++ == MAX_PER_RULE) {
			finding_add(list, SEVERITY_WARNING, "varve-rpc bdev_get_iostat", "and more bdevs had errors");
			return;
		}
		finding_add(list, SEVERITY_WARNING, "varve-rpc bdev_get_iostat",
			    "I/O on %s failed %" PRIu64 " s ago; %" PRIu64 " in all", s->name, ago_us / 1000000,
			    s->faults);
	}
}

static void find_subsystems(json_t *list)
{
	unsigned n = 0;

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_subsystem *s = NULL; (s = nvmf_subsystem_next(tgt, s)) != NULL && n < MAX_PER_RULE;) {
			enum nvmf_subsystem_state state = nvmf_subsystem_get_state(s);
			if (nvmf_subsystem_subtype(s) != NVMF_SUBTYPE_NVME) {
				continue;
			}
			if (state != NVMF_SUBSYSTEM_ACTIVE) {
				n++;
				finding_add(list, SEVERITY_WARNING, "varve-rpc nvmf_get_subsystems",
					    "subsystem %s has been %s for %" PRIu64 " s", nvmf_subsystem_nqn(s),
					    nvmf_subsystem_state_name(state),
					    env_ticks_to_ns(env_ticks() - nvmf_subsystem_state_ticks(s)) / 1000000000);
			} else if (nvmf_listener_next(s, NULL) == NULL) {
				n++;
				finding_add(list, SEVERITY_INFO, "varve-rpc nvmf_subsystem_add_listener --help",
					    "subsystem %s has no listener: no host can connect", nvmf_subsystem_nqn(s));
			}
		}
	}
}

static void find_triggers(json_t *list)
{
	const struct blackbox_trigger *t;

	TAILQ_FOREACH (t, blackbox_triggers(), link) {
		if (t->fired != 0 && blackbox_now_us() - t->last_us < RECENT_US) {
			finding_add(list, SEVERITY_WARNING, "varve-rpc trace_get_triggers", "trigger %s fired: %s",
				    t->opts.name, t->last_text);
		}
	}
}

json_t *console_findings(void)
{
	json_t *list = json_array();

	if (app_state() != APPLIANCE_RUNNING) {
		finding_add(list, SEVERITY_WARNING, "varve-rpc appliance_get_state", "the daemon is %s",
			    appliance_state_name(app_state()));
	}
	if (hand_over_config_not_taken_back() != 0) {
		finding_add(list, SEVERITY_WARNING, "varve-rpc appliance_get_state",
			    "a take-over has failed, and not all is as before: the log names what (not taken back)");
	}
	find_violations(list);
	find_late_commands(list);
	find_faults(list);
	find_subsystems(list);
	find_triggers(list);
	if (console_series_left_out() != 0) {
		finding_add(list, SEVERITY_INFO, "varve-top", "%u objects have no history here: there is room for %u",
			    console_series_left_out(), CONSOLE_SERIES_MAX);
	}
	return list;
}
