/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of varve-trace share: the options, the choice of events, and the printers. */
#ifndef TOOLS_VARVE_TRACE_H
#define TOOLS_VARVE_TRACE_H

#include <stdio.h>

#include "tools/varve-trace-out.h"
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
	bool by_address; /* the text is 0x7f00 */
	uint64_t address;
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
	bool ticks, json, follow, from_start, list, remove_dead, summary, by_owner, unfinished;
	const char *perfetto, *ctf, *html, *record; /* files to write; NULL: not given */
	uint64_t entries;                           /* of each ring of a capture; 0: not given */
	uint64_t duration_ns;                       /* of following; UINT64_MAX: without end */
	size_t slowest;                             /* 0: not given */
	uint64_t age_ns;                            /* 0: not given */
	uint64_t since_ns, until_ns, last_ns;       /* UINT64_MAX: not given */
	char life_prefix;                           /* 0: not given */
	uint64_t life_index;
	struct filter filter;
};

enum trace_options_result {
	TRACE_OPTIONS_OK,
	TRACE_OPTIONS_HELP,  /* -h: the help text has been printed */
	TRACE_OPTIONS_WRONG, /* a message has been printed */
};
/* Reads the command line into opt. Strings stay those of argv, which is modified. */
enum trace_options_result trace_options_parse(struct trace_options *opt, int argc, char **argv);

/* An owner's description as it is printed. */
struct printed_owner {
	char *name; /* as in the file; NULL: no owner */
	char *text, *json;
	size_t text_length, json_length;
};

/* What a printer needs. */
struct trace_view {
	struct trace_reader *r;
	const char *path; /* of the file that r reads */
	const struct trace_options *opt;
	uint64_t tsc_rate;
	uint64_t base_tsc; /* time 0 of the printed times */
	int owner_width;
	struct out *out;
	struct printed_owner *owners; /* by id, made as they occur; owners_free() */
	bool any;                     /* an entry was printed: JSON needs a comma */
};

/* The "poller" of an event, "t262": its owner's type and id. Into OUT_NUMBER_MAX bytes, not terminated; the number of
 * characters, 0 if its tracepoint has no owner type with a letter. */
size_t event_poller(struct trace_reader *r, const struct trace_event *e, char *to);
/* "r12", likewise. */
size_t object_id_format(const struct trace_reader *r, uint8_t type, uint64_t index, char *to);
/* The owner of an event; empty texts if it has none that is known. Ends the program when memory does. */
const struct printed_owner *owner_printed(struct trace_view *v, uint16_t id, uint64_t tsc);
void owners_free(struct trace_view *v);
/* Copies a text from the file so that a terminal may see it: what is not printable becomes \xNN. */
void text_escape(char *to, size_t size, const char *from, size_t length);
/* Quotes included; `to` has 6 * length + 2 bytes; the number of characters. */
size_t json_escape(char *to, const char *text, size_t length);
/* Microseconds with three decimals, or ticks if -t: into OUT_NUMBER_MAX bytes, not terminated; the number of
 * characters. */
size_t time_format(const struct trace_view *v, uint64_t ticks, char *to);
void time_print(const struct trace_view *v, uint64_t ticks, int width);
/* A time since 1970 as local date and time, without fractions; size at least 20. */
void time_of_day_format(uint64_t ns, char *to, size_t size);
/* running, stopped, crashed, or gone: killed, or the file is a copy of a running one's. */
const char *writer_state_name(enum trace_writer writer, const struct trace_file_info *info);

void text_header(const struct trace_view *v, const struct trace_snapshot *s);
void text_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e);
/* One line on what a ring lost, if anything; `before` (or NULL) holds the counters of the last report. */
void text_lost(const struct trace_view *v, const struct trace_lcore *lc, const struct trace_lcore *before);

/* Why a black box's copy was made; nothing for other files. varve-trace-cause.c. */
void text_cause(const struct trace_view *v, const struct trace_snapshot *s);
/* "cause":{...}, with a comma before it. */
void json_cause(const struct trace_view *v);

/* Pieces of JSON */
void json_string(struct out *out, const char *text, size_t length);
void json_text(struct out *out, const char *text);
void json_member(struct out *out, const char *key, uint64_t value); /* with a comma in front */
void json_object_id(const struct trace_view *v, uint8_t type, uint64_t index);

/* s may be NULL (following). */
void json_begin(struct trace_view *v, const struct trace_snapshot *s);
void json_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e);
void json_end(struct trace_view *v);
/* What comes before the entries, from the opening brace on. */
void json_preamble(struct trace_view *v, const struct trace_snapshot *s);

/* --summary */
void text_report(struct trace_view *v, const struct trace_report *t, const struct trace_lives *l);
void json_report(struct trace_view *v, const struct trace_snapshot *s, const struct trace_report *t,
		 const struct trace_lives *l);
/* --slowest; keep may be NULL. The exit status. */
int slowest_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep);

/* Exports; keep may be NULL. The exit status. */
int perfetto_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
		 struct out *out);
int html_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
	     struct out *out);
int ctf_run(struct trace_view *v, const struct trace_snapshot *s, const bool *keep, const char *dir);
/* Per life: whether one of its events is kept. free() it; NULL: out of memory. */
bool *lives_wanted(const struct trace_batch *b, const struct trace_lives *l, const bool *keep);

/* --record. Errors have been printed. */
struct capture;
int capture_start(struct trace_view *v, const struct trace_lcore *lcores, size_t num_lcores, struct capture **out);
/* What one step of following gave, and the counters after it. */
int capture_batch(struct capture *c, const struct trace_batch *b, const struct trace_lcore *lcores, size_t num_lcores);
int capture_end(struct capture *c);

/* Whether not all events are wanted. */
bool events_are_chosen(const struct trace_options *opt);
/* Sets keep[] for those that are; false, with a message printed, if an option names what is not there. */
bool events_mark(const struct trace_view *v, const struct trace_batch *b, const struct trace_lives *l, bool *keep);

/* -F; the exit status. */
int follow_run(struct trace_view *v);
/* --list and --remove-dead; the exit status. */
int files_list(const struct trace_options *opt);
int files_remove_dead(const struct trace_options *opt);
/* The file that the options name; false, with a message printed, if there is none. */
bool file_choose(const struct trace_options *opt, char *path, size_t size);

void trace_cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
