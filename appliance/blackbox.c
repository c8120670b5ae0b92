/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/blackbox.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "rpc/rpc.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/log.h"

#define NOTIFICATION "trace_trigger"

static struct blackbox_triggers triggers = TAILQ_HEAD_INITIALIZER(triggers);
static struct blackbox_opts options = {
	.dir = BLACKBOX_DEFAULT_DIR,
	.max_files = BLACKBOX_DEFAULT_MAX_FILES,
	.max_bytes = BLACKBOX_DEFAULT_MAX_BYTES,
};
static struct blackbox_stats stats;
static const char *app_name; /* NULL: not started */

static uint64_t blackbox_clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t blackbox_now_us(void)
{
	return blackbox_clock_ns(CLOCK_MONOTONIC) / 1000;
}

__attribute__((constructor)) static void blackbox_register_notification(void)
{
	notify_type_register(NOTIFICATION);
}

const char *blackbox_app(void)
{
	return app_name;
}

void blackbox_start(const char *app)
{
	app_name = app;
	blackbox_watch_update(&triggers);
}

void blackbox_stop(void)
{
	blackbox_watch_stop();
	blackbox_copy_stop();
	blackbox_triggers_clear(&triggers);
	app_name = NULL;
}

const struct blackbox_opts *blackbox_get_opts(void)
{
	return &options;
}

int blackbox_set_opts(const struct blackbox_opts *opts, char *why)
{
	struct stat st;

	if (opts->dir[0] != '/' || stat(opts->dir, &st) != 0 || !S_ISDIR(st.st_mode) ||
	    access(opts->dir, W_OK | X_OK) != 0) {
		snprintf(why, BLACKBOX_ERROR_MAX,
			 "directory is \"%.200s\": an existing directory that can be written to, beginning "
			 "with / is needed",
			 opts->dir);
		return -EINVAL;
	}
	options = *opts;
	return 0;
}

static void blackbox_warn_if_nothing_is_recorded(void)
{
	if (trace_get_group_mask() == 0) {
		log_warning("black box: no tracepoint is on, so a trigger will have nothing to copy; see "
			    "trace_enable_tpoint_group");
	}
}

int blackbox_set(const struct blackbox_trigger_opts *opts, char *why)
{
	int rc = blackbox_trigger_set(&triggers, opts, why);

	if (rc == 0 && opts->action != BLACKBOX_NOTIFY) {
		blackbox_warn_if_nothing_is_recorded();
	}
	if (rc == 0 && app_name != NULL) {
		blackbox_watch_update(&triggers);
	}
	return rc;
}

int blackbox_remove(const char *name)
{
	int rc = blackbox_trigger_remove(&triggers, name);

	if (rc == 0 && app_name != NULL) {
		blackbox_watch_update(&triggers);
	}
	return rc;
}

const struct blackbox_triggers *blackbox_triggers(void)
{
	return &triggers;
}

void blackbox_get_stats(struct blackbox_stats *s)
{
	*s = stats;
	s->copying = blackbox_copying();
	s->frozen = stats.frozen && trace_get_group_mask() == 0;
}

/* ---- Firing ---- */

static void blackbox_freeze(void)
{
	struct trace_masks all;

	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		all.group[g] = UINT64_MAX;
	}
	stats.frozen = trace_clear_masks(&all) == 0;
	log_warning("black box: recording is stopped; trace_enable_tpoint_group starts it again");
}

static void blackbox_keep_copy(struct blackbox_trigger *t, const struct trace_file_cause *cause)
{
	t->last_file[0] = '\0';
	if (t->opts.action == BLACKBOX_NOTIFY) {
		return;
	}
	if (t->opts.action == BLACKBOX_FREEZE && trace_get_group_mask() != 0) {
		blackbox_freeze();
	}
	int rc = blackbox_copy_begin(app_name, &options, t->opts.name, cause);
	stats.copies_missed += rc == -EBUSY;
	stats.copies_failed += rc != 0 && rc != -EBUSY && rc != -ENODEV;
}

static void blackbox_fire_trigger(struct blackbox_trigger *t, uint64_t now_us, uint64_t measured_us,
				  struct trace_file_cause *cause)
{
	char text[600];

	t->fired++;
	t->last_us = now_us;
	t->last_realtime_ns = cause->realtime_ns;
	snprintf(t->last_text, sizeof(t->last_text), "%s", cause->text);
	snprintf(cause->trigger, sizeof(cause->trigger), "%s", t->opts.name);
	cause->limit_ticks = env_us_to_ticks(t->opts.limit_us);
	USDT(trace_trigger, t->opts.name, cause->type, cause->object_id, measured_us, cause->text);
	log_warning("black box: trigger %s (%s): %s", t->opts.name, cause->type, cause->text);
	snprintf(text, sizeof(text), "%s %s %s", t->opts.name, cause->type, cause->text);
	notify_send(NOTIFICATION, text);
	blackbox_keep_copy(t, cause);
}

static bool blackbox_trigger_fits(const struct blackbox_trigger *t, enum blackbox_type type, uint64_t now_us,
				  uint64_t measured_us, const struct trace_file_cause *cause)
{
	return t->opts.type == type && blackbox_trigger_is_news(t, now_us, measured_us) &&
	       (t->opts.state[0] == '\0' || strcmp(t->opts.state, cause->state) == 0);
}

void blackbox_fire(enum blackbox_type type, uint64_t measured_us, struct trace_file_cause *cause)
{
	uint64_t now_us = blackbox_now_us();
	struct blackbox_trigger *t;

	cause->tsc = env_ticks_to_tsc(env_ticks());
	cause->realtime_ns = blackbox_clock_ns(CLOCK_REALTIME);
	cause->measured_ticks = env_us_to_ticks(measured_us);
	snprintf(cause->type, sizeof(cause->type), "%s", blackbox_type_name(type));
	TAILQ_FOREACH (t, &triggers, link) {
		if (!blackbox_trigger_fits(t, type, now_us, measured_us, cause)) {
			continue;
		}
		if (blackbox_trigger_ready(t, now_us)) {
			blackbox_fire_trigger(t, now_us, measured_us, cause);
		} else {
			t->held_off++;
		}
	}
}

void blackbox_copied(const char *trigger, const char *path)
{
	struct blackbox_trigger *t = blackbox_trigger_find(&triggers, trigger);

	if (path == NULL) {
		stats.copies_failed++;
		return;
	}
	stats.copies++;
	log_notice("black box: the trace is kept in %s; see varve-trace -f", path);
	if (t != NULL) {
		snprintf(t->last_file, sizeof(t->last_file), "%s", path);
	}
}
