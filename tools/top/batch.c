/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints tables to stdout. Most numbers are rates, so each turn needs two samples, an interval apart; the second sample
 * is the first of the next turn. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/top/top.h"

#define TIMEOUT_MS 30000

static void top_batch_wait(double seconds)
{
	struct timespec t = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};

	while (nanosleep(&t, &t) != 0 && errno == EINTR) {
	}
}

static void top_batch_build(struct top_table *t, const struct top_view *view, const struct top_options *opt,
			    const struct top_sample *now, const struct top_sample *before)
{
	top_table_init(t, view->columns, view->n_columns);
	view->build(t, now, before);
	top_table_filter(t, opt->filter);
	if (opt->sort_given && opt->view >= 0) {
		top_table_sort(t, opt->sort, opt->reverse);
	} else if (view->sort != UINT_MAX) {
		top_table_sort(t, view->sort, opt->reverse);
	}
}

/* ---- JSON ---- */

static json_t *top_cell_json(const struct top_cell *c, enum top_kind kind)
{
	if (!c->known) {
		return json_null();
	}
	if (kind == TOP_TEXT) {
		json_t *text = json_string(c->text);
		return text != NULL ? text : json_string("?"); /* not UTF-8 */
	}
	return c->value == floor(c->value) && fabs(c->value) < 9e15 ? json_integer((json_int_t)c->value)
								    : json_real(c->value);
}

static json_t *top_table_json(const struct top_table *t)
{
	json_t *list = json_array();

	for (size_t i = 0; i < t->n_rows; i++) {
		json_t *o = json_object();
		for (unsigned c = 0; c < t->n_columns; c++) {
			json_object_set_new(o, t->columns[c].key,
					    top_cell_json(&t->rows[i].cells[c], t->columns[c].kind));
		}
		json_array_append_new(list, o);
	}
	return list;
}

static void top_print_json(const struct top_options *opt, const struct top_sample *now, const struct top_sample *before)
{
	json_t *o = json_object();

	json_object_set_new(o, "time", json_real((double)now->realtime_ns / 1e9));
	json_object_set_new(o, "interval_s", before != NULL ? json_real(top_seconds(now, before)) : json_null());
	json_object_set_new(o, "pid", json_integer(now->pid));
	json_object_set_new(o, "state", now->state != NULL ? json_string(now->state) : json_null());
	json_object_set_new(o, "version", now->version != NULL ? json_string(now->version) : json_null());
	for (unsigned v = 0; v < top_n_views; v++) {
		struct top_table t;
		if (opt->view < 0 || opt->view == (int)v) {
			top_batch_build(&t, top_views[v], opt, now, before);
			json_object_set_new(o, top_views[v]->name, top_table_json(&t));
			top_table_free(&t);
		}
	}
	json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(15));
	putchar('\n');
	json_decref(o);
}

/* ---- Text ---- */

static void top_print_table(const char *title, const struct top_table *t)
{
	char text[1024];

	printf("\n%s\n", title);
	for (unsigned c = 0; c < t->n_columns; c++) {
		bool left = t->columns[c].kind == TOP_TEXT;
		printf(left ? "%s%-*s" : "%s%*s", c > 0 ? "  " : "", t->columns[c].width, t->columns[c].name);
	}
	putchar('\n');
	for (size_t i = 0; i < t->n_rows; i++) {
		for (unsigned c = 0; c < t->n_columns; c++) {
			bool left = t->columns[c].kind == TOP_TEXT;
			top_cell_format(&t->rows[i].cells[c], t->columns[c].kind, text, sizeof(text));
			printf(left ? "%s%-*s" : "%s%*s", c > 0 ? "  " : "", t->columns[c].width, text);
		}
		putchar('\n');
	}
}

static void top_print_text(const struct top_options *opt, const struct top_sample *now, const struct top_sample *before)
{
	time_t seconds = (time_t)(now->realtime_ns / 1000000000u);
	struct tm tm;
	char when[32] = "";

	if (localtime_r(&seconds, &tm) != NULL) {
		strftime(when, sizeof(when), "%F %T", &tm);
	}
	printf("%s  %s  process %lld  %s\n", when, now->version != NULL ? now->version : "?", (long long)now->pid,
	       now->state != NULL ? now->state : "?");
	for (unsigned v = 0; v < top_n_views; v++) {
		struct top_table t;
		if (opt->view < 0 || opt->view == (int)v) {
			top_batch_build(&t, top_views[v], opt, now, before);
			top_print_table(top_views[v]->title, &t);
			top_table_free(&t);
		}
	}
	putchar('\n');
}

/* ---- Turns ---- */

/* Takes a sample; NULL: why says the reason. While more turns are to come, the caller goes on and so waits for a daemon
 * that restarts. */
static struct top_sample *top_batch_take(const struct top_options *opt, struct top_client **c, char *why)
{
	struct top_sample *s = NULL;

	if (*c == NULL) {
		*c = top_client_open(opt->socket, TIMEOUT_MS, why);
	}
	if (*c != NULL && top_sample_take(*c, &s, why) != 0) {
		top_client_close(*c);
		*c = NULL;
	}
	return s;
}

static bool top_is_same_daemon(const struct top_sample *a, const struct top_sample *b)
{
	return a != NULL && b != NULL && a->pid == b->pid;
}

int top_batch_run(const struct top_options *opt)
{
	char why[TOP_WHY_MAX] = "";
	struct top_client *c = NULL;
	struct top_sample *before = top_batch_take(opt, &c, why), *now;
	int status = before != NULL ? TOP_EXIT_OK : TOP_EXIT_NO_ANSWER;

	for (unsigned n = 0; status == TOP_EXIT_OK && (opt->iterations == 0 || n < opt->iterations); n++) {
		top_batch_wait(opt->interval_s);
		now = top_batch_take(opt, &c, why);
		if (now == NULL) {
			fprintf(stderr, "varve-top: %s\n", why);
			status = opt->iterations == 0 || n + 1 < opt->iterations ? TOP_EXIT_OK : TOP_EXIT_NO_ANSWER;
			continue;
		}
		(opt->json ? top_print_json : top_print_text)(opt, now,
							      top_is_same_daemon(now, before) ? before : NULL);
		if (fflush(stdout) != 0) {
			status = TOP_EXIT_LOST; /* the reader of stdout has gone; output_guard() reports it */
		}
		top_sample_free(before);
		before = now;
	}
	if (before == NULL) {
		fprintf(stderr, "varve-top: %s (is varve running? -s chooses another socket)\n", why);
	}
	top_sample_free(before);
	top_client_close(c);
	return status;
}
