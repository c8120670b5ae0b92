/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of varve-top.
 *
 *     client.c	the connection to the daemon
 *     sample.c	a sample: the answers of all methods
 *     views_cpu.c, views_io.c, views_latency.c, views_volumes.c	tables made of two samples
 *     table.c		tables: sorting, filtering, texts of cells
 *     batch.c		tables to stdout, as text or JSON
 *     history.c	the numbers of rows at the last looks
 *     screen.c	tables on a terminal
 *     detail.c	one row on a terminal */
#ifndef TOOLS_TOP_TOP_H
#define TOOLS_TOP_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TOP_WHY_MAX 512

/* ---- client.c ---- */

struct top_client;
/* NULL and why (TOP_WHY_MAX bytes). timeout_ms: for each answer. */
struct top_client *top_client_open(const char *path, unsigned timeout_ms, char *why);
void top_client_close(struct top_client *c);
/* Calls n methods in one message. results[i] is the caller's, or NULL if the daemon answered that call with an error
 * (it may be older, or not running yet). params[i], or NULL, is consumed. 0; or a negative errno and why, and the
 * connection cannot be used any more. */
int top_client_call(struct top_client *c, size_t n, const char *const *methods, json_t **params, json_t **results,
		    char *why);

/* ---- sample.c ---- */

enum top_answer {
	TOP_STATE,
	TOP_VERSION,
	TOP_REACTORS,
	TOP_THREADS,
	TOP_POLLERS,
	TOP_BDEVS,
	TOP_SUBSYSTEMS,
	TOP_TARGET,
	TOP_INFLIGHT,
	TOP_BUFFERS,
	TOP_TRACE,
	TOP_TRIGGERS,
	TOP_TRANSPORT_TYPES, /* of older daemons: NULL */
	TOP_QOS_GROUPS,      /* the same */
	TOP_HOST_LATENCIES,  /* the same */
	TOP_STORES,          /* the same, and of those without the module */
	TOP_VOLUMES,         /* the same */
	TOP_ANSWERS,
};

struct top_sample {
	uint64_t monotonic_ns, realtime_ns;
	uint64_t tick_rate;
	json_int_t pid;               /* 0: not told */
	char *version, *state;        /* safe for a terminal; NULL: not in the answer */
	json_t *answers[TOP_ANSWERS]; /* NULL: none */
	json_t *controllers, *qpairs; /* by NQN */
};
/* 0 and a new sample, or as top_client_call(). */
int top_sample_take(struct top_client *c, struct top_sample **sample, char *why);
void top_sample_free(struct top_sample *s);

/* ---- Tables ---- */

enum top_kind {
	TOP_TEXT,
	TOP_COUNT,   /* a number */
	TOP_RATE,    /* per second */
	TOP_BYTES,   /* per second */
	TOP_PERCENT, /* 0 to 100 */
	TOP_US,      /* microseconds */
};

struct top_column {
	const char *name; /* on the screen */
	const char *key;  /* in JSON */
	enum top_kind kind;
	int width;
};

#define TOP_COLUMNS_MAX 14
struct top_cell {
	bool known;   /* false: "-", null */
	char *text;   /* TOP_TEXT; owned */
	double value; /* other kinds */
};
struct top_row {
	struct top_cell cells[TOP_COLUMNS_MAX];
};
struct top_table {
	const struct top_column *columns;
	unsigned n_columns;
	struct top_row *rows;
	size_t n_rows, room;
};

/* A table; rows are added cell by cell, in the order of the columns. */
void top_table_init(struct top_table *t, const struct top_column *columns, unsigned n);
void top_table_free(struct top_table *t);
struct top_row *top_table_row(struct top_table *t); /* never NULL: out of memory ends the program */
void top_set_text(struct top_row *r, unsigned column, const char *text); /* NULL: unknown */
void top_set(struct top_row *r, unsigned column, double value);          /* negative, not finite: unknown */
/* Removes rows without a text that contains the filter (upper and lower case are the same); an empty filter removes
 * none. */
void top_table_filter(struct top_table *t, const char *filter);
/* Stable. Sorts numbers from large to small, texts from A to Z; reverse: the other way round. Unknown values come last.
 */
void top_table_sort(struct top_table *t, unsigned column, bool reverse);
/* Writes the text of the cell. */
void top_cell_format(const struct top_cell *c, enum top_kind kind, char *to, size_t size);

/* ---- Views ---- */

struct top_view {
	const char *name; /* "bdevs": its key in JSON */
	const char *title;
	const struct top_column *columns;
	unsigned n_columns;
	/* The column of the initial order; UINT_MAX: the order of the daemon's answer. */
	unsigned sort;
	unsigned keys; /* a bit for each column that tells rows apart */
	/* before: the sample before, of the same daemon, or NULL: then rates are unknown. */
	void (*build)(struct top_table *t, const struct top_sample *now, const struct top_sample *before);
};
extern const struct top_view *const top_views[];
extern const unsigned top_n_views;
/* The index, or -1. */
int top_view_find(const char *name);
extern const struct top_view top_view_reactors, top_view_threads, top_view_pollers, top_view_bdevs, top_view_subsystems,
	top_view_hosts, top_view_requests, top_view_buffers, top_view_trace, top_view_latencies, top_view_volumes;

/* ---- history.c ---- */

#define TOP_HISTORY 60  /* looks */
#define TOP_KEY_MAX 512 /* bytes of what tells a row from others */

/* Of the rows of one view. Zeroed: nothing is known. */
struct top_history {
	json_t *index; /* by key: where in rows */
	struct top_history_row **rows;
	size_t n_rows;
	uint64_t looks;
};
/* Writes what tells the row from others of the view, for people, into key. */
void top_row_key(const struct top_view *view, const struct top_row *r, char *key, size_t size);
/* Adds the numbers of a look. Rows that were not seen for TOP_HISTORY looks are forgotten. */
void top_history_add(struct top_history *h, const struct top_view *view, const struct top_table *t);
/* The numbers of a column of the row of that key, the oldest first; NAN where it was not known. Returns how many. */
unsigned top_history_get(const struct top_history *h, const char *key, unsigned column, float values[TOP_HISTORY]);
void top_history_clear(struct top_history *h);
/* Draws n numbers as characters, from "_" for zero to "#" for the largest, into line (n + 1 bytes). Returns the
 * largest. */
float top_spark(const float *values, unsigned n, char *line);

/* ---- detail.c ---- */

/* Draws the row of a view's table that has that key, with its history, from line y on. */
void top_detail_draw(const struct top_view *view, const struct top_table *t, const char *key,
		     const struct top_history *h, int y);

/* For views. Members that are missing or of another type give 0 or NULL. */
double top_number(const json_t *o, const char *key);
const char *top_text(const json_t *o, const char *key);
/* The member of a list whose `key` is the same as that of o; NULL. */
const json_t *top_same(const json_t *list, const json_t *o, const char *key);
/* Seconds between two samples; 0 without one before. */
double top_seconds(const struct top_sample *now, const struct top_sample *before);
/* The growth of a counter per second; negative (unknown) without a sample before, or if the counter was reset. */
double top_rate(const json_t *now, const json_t *before, const char *key, double seconds);
/* The mean latency of the I/Os that ended between two samples, in microseconds; -1: unknown. rate: ticks a second. */
double top_latency_us(const json_t *now, const json_t *before, const char *ticks, const char *ops, uint64_t rate);

/* ---- Output ---- */

struct top_options {
	const char *socket;
	double interval_s;
	unsigned iterations; /* 0: for ever */
	bool batch, json;
	const char *filter;
	int view; /* -1: all (batch), the first (screen) */
	unsigned sort;
	bool sort_given, reverse;
};
/* Both return the exit status. */
int top_batch_run(const struct top_options *opt);
int top_screen_run(const struct top_options *opt);

enum {
	TOP_EXIT_OK = 0,
	TOP_EXIT_LOST = 1, /* the output could not be written */
	TOP_EXIT_USAGE = 2,
	TOP_EXIT_NO_ANSWER = 3, /* no daemon, or no answer in time */
};

#endif
