/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON configuration: {"subsystems": [{"subsystem": "bdev", "config": [{"method": ..., "params": {...}}, ...]}]},
 * as save_config writes it, with what is varve's own apart (rpc/own.h), and with comments as C has them, which stock
 * programs allow there, or as the shell has them. The whole of it is parsed and checked before the first method is
 * called. */
#ifndef APPLIANCE_CONFIG_H
#define APPLIANCE_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CONFIG_ERROR_MAX 2048

struct config_entry {
	const json_t *entry;   /* borrowed from the tree */
	unsigned line, column; /* where it begins, from 1; 0: not known */
	const char *subsystem; /* borrowed from the tree, like the next two */
	const char *method;
	json_t *params;  /* or NULL */
	size_t index;    /* in the subsystem's list */
	long in_batch;   /* in the array of entries that stands there; -1: the entry itself does */
	unsigned states; /* where the method may be called */
	bool skip;       /* wrong, and to be left out (config_check() with ignore_errors) */
};

struct config_places;

struct config {
	const char *file;             /* for messages; borrowed */
	char *text;                   /* what the tree was parsed from, without comments */
	struct config_places *places; /* in it (config_place.h) */
	json_t *tree;
	size_t n_entries;
	struct config_entry *entries; /* in order */
	size_t n_failed;              /* of them, with ignore_errors: wrong or refused */
	unsigned busy_rounds; /* config_run(): how often, in all, it repeats an entry that is refused with -EBUSY */
	/* config_parse_all() only. */
	void (*report)(const struct config *c, const char *wrong);
	void *report_arg;
	unsigned line, column; /* of what is wrong, when report() is called; 0: not known */
};

/* Parses the text; whether its methods exist is not looked at. file: for messages; must stay. 0; or -EINVAL or -ENOMEM,
 * and error (CONFIG_ERROR_MAX bytes) says what is wrong. Pure. */
int config_parse(const char *file, const char *text, size_t len, struct config *c, char *error);
/* The same, but report() is called with all that is wrong, not only the first: c->line and c->column say where. 0: the
 * parts that are right are in c, which is to be freed. Pure. */
int config_parse_all(const char *file, const char *text, size_t len, struct config *c,
		     void (*report)(const struct config *c, const char *wrong), void *report_arg, char *error);
/* Reads a file into memory, which the caller frees. 0; or a negative errno, and error says what is wrong. */
int config_read_text(const char *file, char **text, size_t *len, char *error);
/* Checks a file: its form, and that each method exists and accepts its parameters. Calls nothing. Prints all that is
 * wrong, one a line, as FILE:LINE:COLUMN: and the reason. Returns how much that is. */
unsigned config_examine(const char *file, FILE *out);
/* The same of a text. Pure, but for out. */
unsigned config_examine_text(const char *file, const char *text, size_t len, FILE *out);
/* config_parse() of a file's contents. Also fails with the errno of reading it. */
int config_read(const char *file, struct config *c, char *error);
/* Frees what c holds, and zeroes it; also if it holds nothing. */
void config_free(struct config *c);

/* Checks that each method exists and accepts its parameters. 0, or -EINVAL: error is about the first that is wrong, and
 * the log has the others. With ignore_errors all are logged, and config_run() will leave them out. */
int config_check(struct config *c, bool ignore_errors, char *error);

/* Calls the methods of one phase: those that may only be called at start-up, and, of those that may be called then too,
 * *_set_options and those that stand before the first that may not; or (runtime) all others. Each one must be answered
 * before the next one is called. 0; -EINVAL: a method failed (with ignore_errors that is only logged, and at the end of
 * the runtime phase how many entries have been left out or failed); -ECANCELED: cancelled() was true. Control thread,
 * outside of its loop. */
int config_run(struct config *c, bool runtime, bool ignore_errors, bool (*cancelled)(void), char *error);

#endif
