/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/console_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "thread/thread.h"

#define PERIOD_US    UINT64_C(1000000)
#define KEEP_SECONDS 3600
#define BUCKETS      2048

static struct {
	bool on;
	struct thread_timer timer;
	uint64_t last_ticks;
	uint64_t seconds; /* samples that were taken: what a series' `seen` is compared with */
	unsigned count, left_out;
	struct console_series *all;
	struct console_series *buckets[BUCKETS];
} history;

/* ---- The table ---- */

static unsigned console_hash(enum console_kind kind, const char *name)
{
	uint64_t h = UINT64_C(14695981039346656037) + (unsigned)kind; /* FNV-1a */

	for (; *name != '\0'; name++) {
		h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
	}
	return (unsigned)(h % BUCKETS);
}

static struct console_series *console_lookup(enum console_kind kind, const char *name)
{
	struct console_series *s = history.buckets[console_hash(kind, name)];

	while (s != NULL && (s->kind != kind || strcmp(s->name, name) != 0)) {
		s = s->next_in_bucket;
	}
	return s;
}

static void console_unlink(struct console_series *s)
{
	struct console_series **at = &history.buckets[console_hash(s->kind, s->name)];

	while (*at != s) {
		at = &(*at)->next_in_bucket;
	}
	*at = s->next_in_bucket;
	for (at = &history.all; *at != s; at = &(*at)->next) {
	}
	*at = s->next;
	history.count--;
	free(s->series);
	free(s->name);
	free(s);
}

/* Frees the series of the object that has been gone for longest. False: all are live. */
static bool console_make_room(void)
{
	struct console_series *oldest = NULL;

	for (struct console_series *s = history.all; s != NULL; s = s->next) {
		if (s->seen + 1 < history.seconds && (oldest == NULL || s->seen < oldest->seen)) {
			oldest = s;
		}
	}
	if (oldest != NULL) {
		console_unlink(oldest);
	}
	return oldest != NULL;
}

static struct console_series *console_add(enum console_kind kind, const char *name)
{
	struct console_series *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		return NULL;
	}
	s->kind = kind;
	s->name = strdup(name);
	s->series = series_create(kind == CONSOLE_NODE ? SERIES_NODE_FINE : SERIES_FINE);
	if (s->name == NULL || s->series == NULL) {
		free(s->series);
		free(s->name);
		free(s);
		return NULL;
	}
	struct console_series **bucket = &history.buckets[console_hash(kind, name)];
	s->next_in_bucket = *bucket;
	*bucket = s;
	s->next = history.all;
	history.all = s;
	history.count++;
	return s;
}

/* The series of an object that is there, with counters of 0 if this is the first look in this second. NULL: it has
 * none. */
static struct console_series *console_see(enum console_kind kind, const char *name)
{
	struct console_series *s = console_lookup(kind, name);

	if (s == NULL && (history.count < CONSOLE_SERIES_MAX || console_make_room())) {
		s = console_add(kind, name);
	}
	if (s == NULL) {
		history.left_out++;
		return NULL;
	}
	if (s->seen != history.seconds) {
		s->seen = history.seconds;
		memset(&s->now, 0, sizeof(s->now));
	}
	return s;
}

/* ---- Samples ---- */

static void console_sample_bdev(struct bdev *b)
{
	struct console_series *s = console_see(CONSOLE_BDEV, bdev_name(b));
	struct bdev_stat stat;
	uint64_t ticks = 0;

	if (s == NULL) {
		return;
	}
	bdev_peek_stat(b, &stat);
	for (unsigned i = 0; i < BDEV_STAT_CLASSES; i++) {
		s->now.ops += stat.class[i].ops;
		s->now.bytes += stat.class[i].bytes;
		ticks += stat.class[i].ticks;
	}
	if (stat.faults > s->faults && s->series->known) {
		s->faults_ticks = env_ticks();
	}
	s->faults = stat.faults;
	s->now.ns = env_ticks_to_ns(ticks);
	s->now.depth = stat.queue_depth;
	latency_histogram_add(&s->now.histogram, &stat.reads);
	latency_histogram_add(&s->now.histogram, &stat.writes);
}

static void console_count_path(enum console_kind kind, const char *name, const struct nvmf_host_latency_info *info)
{
	struct console_series *s = console_see(kind, name);

	if (s == NULL) {
		return;
	}
	s->now.ops += info->commands;
	s->now.bytes += info->latency.bytes;
	s->now.ns += info->latency.ns;
	s->now.depth = SERIES_DEPTH_UNKNOWN;
	latency_histogram_add(&s->now.histogram, &info->latency.histogram);
}

_Static_assert(CONSOLE_NAME_MAX >= 2 * NVMF_NQN_MAX + 2, "a path's name is that of a host and of a subsystem");

static void console_sample_path(void *arg, const struct nvmf_host_latency_info *info)
{
	char name[CONSOLE_NAME_MAX];

	snprintf(name, sizeof(name), "%s %s", info->hostnqn, info->subnqn);
	console_count_path(CONSOLE_NODE, "", info);
	console_count_path(CONSOLE_SUBSYSTEM, info->subnqn, info);
	console_count_path(CONSOLE_HOST, info->hostnqn, info);
	console_count_path(CONSOLE_PATH, name, info);
}

static void console_see_subsystems(struct nvmf_tgt *tgt)
{
	for (struct nvmf_subsystem *s = NULL; (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
		struct console_series *series = nvmf_subsystem_subtype(s) == NVMF_SUBTYPE_NVME
							? console_see(CONSOLE_SUBSYSTEM, nvmf_subsystem_nqn(s))
							: NULL;
		if (series != NULL) {
			series->now.depth = SERIES_DEPTH_UNKNOWN;
		}
	}
}

static void console_sample_all(void)
{
	struct console_series *node = console_see(CONSOLE_NODE, "");

	if (node != NULL) {
		node->now.depth = SERIES_DEPTH_UNKNOWN;
	}
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		console_see_subsystems(tgt);
		nvmf_tgt_for_each_host_latency(tgt, console_sample_path, NULL);
	}
	for (struct bdev *b = bdev_next(NULL); b != NULL; b = bdev_next(b)) {
		console_sample_bdev(b);
	}
}

static void console_store(struct console_series *s, uint64_t us, uint64_t missed)
{
	for (uint64_t i = 0; i < missed; i++) {
		series_skip(s->series);
	}
	if (s->seen == history.seconds) {
		series_add(s->series, &s->now, us);
	} else {
		series_skip(s->series);
	}
}

/* Seconds that were missed, because the process was stopped or the control thread busy, leave a gap: what happened in
 * them is not known by the second. */
static void console_tick(void *arg)
{
	uint64_t now = env_ticks(), us = env_ticks_to_ns(now - history.last_ticks) / 1000;
	uint64_t missed = us / PERIOD_US > 1 ? us / PERIOD_US - 1 : 0;
	struct console_series *next;

	thread_timer_start(&history.timer, PERIOD_US);
	history.seconds++;
	history.left_out = 0;
	console_sample_all();
	for (struct console_series *s = history.all; s != NULL; s = next) {
		next = s->next;
		console_store(s, us, missed < SERIES_NODE_FINE ? missed : SERIES_NODE_FINE);
		if (s->seen + KEEP_SECONDS < history.seconds) {
			console_unlink(s);
		}
	}
	history.last_ticks = now;
}

void console_history_start(void)
{
	memset(&history, 0, sizeof(history));
	history.on = true;
	history.seconds = 1;
	history.last_ticks = env_ticks();
	history.timer.fn = console_tick;
	thread_timer_start(&history.timer, PERIOD_US);
}

void console_history_stop(void)
{
	if (!history.on) {
		return;
	}
	thread_timer_stop(&history.timer);
	while (history.all != NULL) {
		console_unlink(history.all);
	}
	history.on = false;
}

/* ---- Looking ---- */

const struct console_series *console_series_next(const struct console_series *after)
{
	return after == NULL ? history.all : after->next;
}

const struct console_series *console_series_find(enum console_kind kind, const char *name)
{
	return console_lookup(kind, name);
}

bool console_series_is_live(const struct console_series *s)
{
	return s->seen == history.seconds;
}

unsigned console_series_left_out(void)
{
	return history.left_out;
}

size_t console_history_bytes(void)
{
	size_t bytes = sizeof(history);

	for (const struct console_series *s = history.all; s != NULL; s = s->next) {
		bytes += sizeof(*s) + strlen(s->name) + 1 + sizeof(*s->series) +
			 s->series->fine_size * sizeof(s->series->fine[0]);
	}
	return bytes;
}
