/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of varve-trace share: the options, the choice of events, and the printers. */
#ifndef TOOLS_VARVE_TRACE_H
#define TOOLS_VARVE_TRACE_H

#include <stdio.h>

#include "trace/reader.h"

enum { TRACE_MAX_FILTERS = 64 };

enum filter_key {
	FILTER_ANY,
	FILTER_TPOINT,
	FILTER_GROUP,
	FILTER_OWNER,
	FILTER_OBJECT,
	FILTER_LCORE,
	FILTER_KEYS,
};

struct filter_term {
	enum filter_key key;
	const char *text;
	uint64_t number; /* group and lcore; the index of an object given as r12, else TRACE_NO_OBJECT */
};

/* Terms of one key are alternatives; all keys that have terms must match. */
struct filter {
	struct filter_term terms[TRACE_MAX_FILTERS];
	unsigned n;
};

/* Adds the terms of a -l argument (modified, and kept). false, with a message printed, if one is wrong. */
bool filter_parse(struct filter *f, char *argument);
/* The same as -l object=ID. */
bool filter_add_object(struct filter *f, const char *id);
bool filter_match(const struct filter *f, struct trace_reader *r, const struct trace_event *e);
/* "r12" gives 'r' and 12. */
bool object_id_parse(const char *text, char *prefix, uint64_t *index);

struct trace_options {
	const char *dir, *name, *file;
	long pid, instance; /* -1: not given */
	int lcore;
	bool ticks, json, follow, from_start, list, remove_dead, summary;
	uint64_t since_ns, until_ns, last_ns; /* UINT64_MAX: not given */
	char life_prefix;                     /* 0: not given */
	uint64_t life_index;
	struct filter filter;
};

/* What a printer needs. */
struct trace_view {
	struct trace_reader *r;
	const struct trace_options *opt;
	uint64_t tsc_rate;
	uint64_t base_tsc; /* time 0 of the printed times */
	int owner_width;
	FILE *out;
	bool any; /* an entry was printed: JSON needs a comma */
};

/* The "poller" of an event, "t262": its owner's type and id; false if its tracepoint has no owner type with a
 * letter. */
bool event_poller(struct trace_reader *r, const struct trace_event *e, char *to, size_t size);
/* "r12"; size at least 24. */
void object_id_format(struct trace_reader *r, uint8_t type, uint64_t index, char *to, size_t size);
/* How many bytes the UTF-8 character at s has, or 0 if there is none or it is a control character. */
size_t utf8_char_length(const unsigned char *s, size_t n);
/* Copies a text from the file so that a terminal may see it: what is not printable becomes \xNN. */
void text_escape(char *to, size_t size, const char *from, size_t length);
/* Microseconds with three decimals, or ticks if -t. */
void time_format(const struct trace_view *v, uint64_t ticks, char *to, size_t size);

/* A time since 1970 as local date and time, without fractions; size at least 20. */
void time_of_day_format(uint64_t ns, char *to, size_t size);
/* running, stopped, crashed, or gone: killed, or the file is a copy of a running one's. */
const char *writer_state_name(enum trace_writer writer, const struct trace_file_info *info);

void text_header(const struct trace_view *v, const struct trace_snapshot *s);
void text_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e);
void text_summary(const struct trace_view *v, const struct trace_dwell *rows, size_t n);
/* One line on what a ring lost, if anything; `before` (or NULL) holds the counters of the last report. */
void text_lost(const struct trace_view *v, const struct trace_lcore *lc, const struct trace_lcore *before);

/* s may be NULL (following). */
void json_begin(struct trace_view *v, const struct trace_snapshot *s);
void json_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e);
void json_end(struct trace_view *v);
void json_summary(struct trace_view *v, const struct trace_snapshot *s, const struct trace_dwell *rows,
		  size_t n);

/* -F; the exit status. */
int follow_run(struct trace_view *v);
/* --list and --remove-dead; the exit status. */
int files_list(const struct trace_options *opt);
int files_remove_dead(const struct trace_options *opt);
/* The file that the options name; false, with a message printed, if there is none. */
bool file_choose(const struct trace_options *opt, char *path, size_t size);

void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
