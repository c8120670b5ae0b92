/* SPDX-License-Identifier: BSD-3-Clause */
/* The interfaces between the files of varve-trace: options, the choice of events, printers and exporters. Its functions
 * print their own error messages (trace_cli_error()), and return false or exit status 1 then. */
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
	uint64_t number; /* the group; the lcore; the index of an object given as r12, else TRACE_NO_OBJECT */
	bool by_address; /* the object was given as an address, such as 0x7f00 */
	uint64_t address;
};

/* An event matches if, for each key that has terms, one of its terms matches. */
struct filter {
	struct filter_term terms[TRACE_MAX_FILTERS];
	unsigned n;
};

/* Adds the terms of a -l argument, which is modified and must stay. False if one of them is wrong. */
bool filter_parse(struct filter *f, char *argument);
/* Adds the term object=ID. */
bool filter_add_object(struct filter *f, const char *id);
/* Whether the event matches. */
bool filter_match(const struct filter *f, struct trace_reader *r, const struct trace_event *e);
/* Whether there is a tracepoint for each term that names some; otherwise the message names the nearest. */
bool filter_names_known(const struct filter *f, const struct trace_reader *r);
/* Splits "r12" into 'r' and 12; false if text is no such id. Prints nothing. */
bool object_id_parse(const char *text, char *prefix, uint64_t *index);

struct trace_options {
	const char *dir, *name, *file;
	long pid, instance; /* -1: not given */
	int lcore;
	bool ticks, delta, json, follow, from_start, list, remove_dead, summary, by_owner, unfinished;
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

/* A trace, and how it is to be printed: the first argument of all printers. */
struct trace_view {
	struct trace_reader *r;
	const char *path; /* of the file that r reads */
	const struct trace_options *opt;
	uint64_t tsc_rate;
	uint64_t base_tsc; /* time 0 of the printed times */
	uint64_t last_tsc; /* of the event that was printed last, for -T; 0: none was */
	int owner_width;
	struct out *out;
	struct printed_owner *owners; /* by id, made as they occur; owners_free() */
	bool any;                     /* an entry was printed: JSON needs a comma */
};

/* Writes the "poller" of an event, "t262": its owner's type and id. to: OUT_NUMBER_MAX bytes, without a terminating
 * NUL. Returns the number of characters; 0 if the tracepoint has no owner type with a letter. */
size_t event_poller(struct trace_reader *r, const struct trace_event *e, char *to);
/* Writes an object's id, "r12", in the same way. */
size_t object_id_format(const struct trace_reader *r, uint8_t type, uint64_t index, char *to);
/* The owner with that id at the time tsc; its texts are empty if it is unknown. Ends the program if there is no
 * memory. */
const struct printed_owner *owner_printed(struct trace_view *v, uint16_t id, uint64_t tsc);
/* Frees all that owner_printed() made. */
void owners_free(struct trace_view *v);
/* Copies a text from the file so that it is safe for a terminal: bytes that are not printable become \xNN. */
void text_escape(char *to, size_t size, const char *from, size_t length);
/* Writes a text as a JSON string with its quotes. to: 6 * length + 2 bytes. Returns the number of characters. */
size_t json_escape(char *to, const char *text, size_t length);
/* Writes a time in microseconds with three decimals, or in ticks with -t. to: OUT_NUMBER_MAX bytes, without a
 * terminating NUL. Returns the number of characters. */
size_t time_format(const struct trace_view *v, uint64_t ticks, char *to);
/* Prints that, right-justified in width columns. */
void time_print(const struct trace_view *v, uint64_t ticks, int width);
/* Writes a time since 1970 as local date and time, without fractions. size: at least 20. */
void time_of_day_format(uint64_t ns, char *to, size_t size);
/* "running", "stopped", "crashed", or "gone": the writer was killed, or the file is a copy of a live one. */
const char *writer_state_name(enum trace_writer writer, const struct trace_file_info *info);

/* Runs an exporter that writes one file, which is not there yet, or is an older page of --html if `replace` is set.
 * Returns the exit status. varve-trace-file.c. */
int file_write(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
	       const char *path, bool replace,
	       int (*run)(struct trace_view *, const struct trace_snapshot *, const struct trace_lives *, const bool *,
			  struct out *));

/* Prints what stands above the events. */
void text_header(const struct trace_view *v, const struct trace_snapshot *s);
/* Prints the line of an event. */
void text_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e);
/* Prints a line on the events that a ring lost, if any. before: the counters at the last such line, or NULL. */
void text_lost(const struct trace_view *v, const struct trace_lcore *lc, const struct trace_lcore *before);

/* Prints why a black box's copy was made; nothing for other files. varve-trace-cause.c. */
void text_cause(const struct trace_view *v, const struct trace_snapshot *s);
/* The same as JSON: "cause":{...}, with a comma before it. */
void json_cause(const struct trace_view *v);
#define CRASH_TEXT_MAX 256
/* Writes by which signal the writer crashed, and who sent it or where the fault was: "SIGSEGV sent by process 4711
 * (bash), uid 0". size: CRASH_TEXT_MAX. varve-trace-cause.c. */
void crash_format(const struct trace_file_info *info, char *to, size_t size);

/* Prints a JSON string of length bytes. */
void json_string(struct out *out, const char *text, size_t length);
/* Prints a JSON string. */
void json_text(struct out *out, const char *text);
/* Prints a comma, and a member with a number. */
void json_member(struct out *out, const char *key, uint64_t value);
/* Prints an object's id as a JSON string. */
void json_object_id(const struct trace_view *v, uint8_t type, uint64_t index);

/* Prints a whole JSON document: json_begin(), an event at a time, json_end(). s: NULL when following. */
void json_begin(struct trace_view *v, const struct trace_snapshot *s);
void json_event(struct trace_view *v, const struct trace_batch *b, const struct trace_event *e);
void json_end(struct trace_view *v);
/* Prints what comes before the events, from the opening brace on. */
void json_preamble(struct trace_view *v, const struct trace_snapshot *s);

/* --summary: how long objects were in each state, and lived. */
void text_report(struct trace_view *v, const struct trace_report *t, const struct trace_lives *l);
void json_report(struct trace_view *v, const struct trace_snapshot *s, const struct trace_report *t,
		 const struct trace_lives *l);
/* --slowest. keep: by event, whether it was chosen; NULL: all. Returns the exit status. */
int slowest_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep);

/* Exporters. keep: as above. They return the exit status. */
int perfetto_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
		 struct out *out);
int html_run(struct trace_view *v, const struct trace_snapshot *s, const struct trace_lives *l, const bool *keep,
	     struct out *out);
int ctf_run(struct trace_view *v, const struct trace_snapshot *s, const bool *keep, const char *dir);
/* An array, to be freed, that says for each life whether one of its events is kept. NULL: out of memory. */
bool *lives_wanted(const struct trace_batch *b, const struct trace_lives *l, const bool *keep);

/* --record: follows a trace and writes a trace file of its own. All return 0 or a negative errno; errors have been
 * printed. */
struct capture;
/* Creates the file, with a ring for each of lcores. */
int capture_start(struct trace_view *v, const struct trace_lcore *lcores, size_t num_lcores, struct capture **out);
/* Writes the events of one step of following. lcores: the counters after it. */
int capture_batch(struct capture *c, const struct trace_batch *b, const struct trace_lcore *lcores, size_t num_lcores);
/* Completes the file, and frees c. */
int capture_end(struct capture *c);

/* Whether the options choose some of the events, not all. */
bool events_are_chosen(const struct trace_options *opt);
/* Sets keep[i] for each event i that the options choose. False if an option names something that is not in the trace.
 */
bool events_mark(const struct trace_view *v, const struct trace_batch *b, const struct trace_lives *l, bool *keep);

/* -F and --record. Returns the exit status. */
int follow_run(struct trace_view *v);
/* --list. Returns the exit status. */
int files_list(const struct trace_options *opt);
/* --remove-dead. Returns the exit status. */
int files_remove_dead(const struct trace_options *opt);
/* Writes the path of the file that the options name into path. False if there is none. */
bool file_choose(const struct trace_options *opt, char *path, size_t size);

/* Prints "varve-trace: " and a message to stderr. */
void trace_cli_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
