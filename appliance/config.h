/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON configuration: {"subsystems": [{"subsystem": "bdev", "config": [{"method": ..., "params": {...}}, ...]}]},
 * as save_config writes it, and with comments as C has them, which stock programs allow there. It is understood and
 * checked whole before any of it is done. */
#ifndef APPLIANCE_CONFIG_H
#define APPLIANCE_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define CONFIG_ERROR_MAX 2048

struct config_entry {
	const char *subsystem; /* borrowed from the tree, like the next two */
	const char *method;
	json_t *params;  /* or NULL */
	size_t index;    /* in the subsystem's list */
	unsigned states; /* where the method may be called */
	bool skip;       /* it is wrong, and that is to be ignored */
};

struct config {
	const char *file; /* for messages; borrowed */
	json_t *tree;
	size_t n_entries;
	struct config_entry *entries; /* in order */
};

/* Pure: the shape of the text, without a look at methods. 0, or -EINVAL and error (CONFIG_ERROR_MAX bytes). */
int config_parse(const char *file, const char *text, size_t len, struct config *c, char *error);
/* config_parse() of a file's contents; also a negative errno of reading. */
int config_read(const char *file, struct config *c, char *error);
void config_free(struct config *c);

/* Looks each method and its parameters up in the registry. 0, or -EINVAL for the first that is wrong; with
 * ignore_errors those are only logged, and will be left out. */
int config_check(struct config *c, bool ignore_errors, char *error);

/* Calls the methods that belong to the phase: those that may only be called at start-up, or (runtime) all others. Each
 * is answered before the next one begins. Control thread, outside of callbacks. 0; -EINVAL if one failed (with
 * ignore_errors it is logged); -ECANCELED as soon as cancelled() is true. */
int config_run(const struct config *c, bool runtime, bool ignore_errors, bool (*cancelled)(void), char *error);

#endif
