/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics that outlive the objects that count them: those of a process that another one takes over, or that starts
 * again what it has handed over. An object that goes leaves its counters here, and the object of the same name that is
 * made later begins with them, here or in the other process. Counters have names, because the other process may be of
 * another version: one that it does not know is left out, and one that is missing begins with what the object had. An
 * object whose counters cannot be read begins anew, alone.
 *
 * Control thread. */
#ifndef BDEV_KEPT_STAT_H
#define BDEV_KEPT_STAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/rate.h"

enum kept_stat_type {
	KEPT_STAT_U64,
	KEPT_STAT_U16,
	KEPT_STAT_TICKS, /* a uint64_t; kept in nanoseconds, because the other process may measure another tick rate */
};

/* A counter, or n of them at a distance of stride bytes. */
struct kept_stat_field {
	const char *name;
	enum kept_stat_type type;
	size_t offset, n, stride;
};
#define KEPT_STAT(struct_, name_, member_)                                                                             \
	{                                                                                                              \
		.name = name_, .offset = offsetof(struct_, member_), .n = 1, .stride = 0                               \
	}
/* member_: the first of them, such as class[0].ops; of_: the array that they are members of. */
#define KEPT_STAT_ARRAY(struct_, name_, member_, of_, ...)                                                             \
	{                                                                                                              \
		.name = name_, .offset = offsetof(struct_, member_),                                                   \
		.n = sizeof(((struct_ *)0)->of_) / sizeof(((struct_ *)0)->of_[0]),                                     \
		.stride = sizeof(((struct_ *)0)->of_[0]), ##__VA_ARGS__                                                \
	}

/* The fields of a struct, of which tables are made. */
struct kept_stat_fields {
	const struct kept_stat_field *list;
	size_t n;
};

/* From now on, objects that go leave their counters here; false: no more. */
void kept_stat_keep(bool on);
/* Keeps the counters of an object that goes, unless nothing is to be kept: instead of those that were kept under that
 * name of the set. Counters that are 0 are left out. True: they are kept. */
bool kept_stat_note(const char *set, const char *name, const struct kept_stat_fields *fields, const void *counters);
/* Sets the counters to what is kept under that name, which is kept no longer. Those that are not, and values that are
 * none, are left as they are. False: nothing was kept. */
bool kept_stat_take(const char *set, const char *name, const struct kept_stat_fields *fields, void *counters);
/* A name of a set under which something is kept; NULL: nothing is. Valid until that is taken. */
const char *kept_stat_first(const char *set);

/* As kept_stat_note(), for what rate limits have let through. */
bool kept_stat_note_rates(const char *set, const char *name, const struct rate_counts *counts);
/* Adds what is kept under that name, which is kept no longer, to the counts. */
void kept_stat_take_rates(const char *set, const char *name, struct rate_counts *counts);

/* A copy of all that is kept: {set: {name: {counter: [values]}}}. NULL: no memory. */
json_t *kept_stat_export(void);
/* Keeps that of another process instead of what is kept; NULL: nothing. Objects and sets that have another shape are
 * left out; *left_out: how many. 0; -ENOMEM: nothing is kept. */
int kept_stat_import(const json_t *all, unsigned *left_out);
/* How many objects' counters could not be kept since kept_stat_keep(true), because there was no memory. */
unsigned kept_stat_failed(void);
/* Drops all that is kept. */
void kept_stat_clear(void);
/* Does so after that time, unless kept_stat_keep() or kept_stat_clear() is called before. For objects that come late.
 */
void kept_stat_clear_after(uint64_t delay_us);

#endif
