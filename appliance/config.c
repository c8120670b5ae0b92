/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "appliance/config_place.h"
#include "rpc/comments.h"
#include "rpc/own.h"
#include "rpc/rpc.h"
#include "rpc/subsystems.h"
#include "thread/thread.h"
#include "util/log.h"
#include "util/secret.h"

#define CONFIG_REFUSED   "config_refused" /* the notification */
#define FILE_MAX_BYTES   (64 * 1024 * 1024)
#define BUSY_ROUND_US    100000   /* config.busy_rounds are so long */
#define ANSWER_REPORT_US 10000000 /* the log names an entry that takes longer, each time this has passed */

static int __attribute__((format(printf, 3, 4))) config_error(char *error, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, CONFIG_ERROR_MAX, fmt, ap);
	va_end(ap);
	return rc;
}

/* Writes an error message that begins with the file and the entry. */
static int __attribute__((format(printf, 4, 5)))
config_entry_error(char *error, const struct config *c, const struct config_entry *e, const char *fmt, ...)
{
	char what[1536], in_batch[24] = "", place[48] = "";
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	snprintf(in_batch, sizeof(in_batch), e->in_batch >= 0 ? "[%ld]" : "", e->in_batch);
	if (e->line != 0) {
		snprintf(place, sizeof(place), "line %u, column %u: ", e->line, e->column);
	}
	return config_error(error, -EINVAL, "%s: %ssubsystem \"%s\", config[%zu]%s%s%s%s: %s", c->file, place,
			    e->subsystem, e->index, in_batch, e->method != NULL ? " (" : "",
			    e->method != NULL ? e->method : "", e->method != NULL ? ")" : "", what);
}

/* After a part of the file was found wrong (rc is not 0): reports it, with its place, and lets the rest be parsed, if
 * all that is wrong is wanted. */
static int config_go_on(struct config *c, const json_t *part, int rc, const char *error)
{
	if (rc != -EINVAL || c->report == NULL) {
		return rc;
	}
	config_place_find(c->places, part, &c->line, &c->column);
	c->report(c, error);
	return 0;
}

/* e: where the entry stands. */
static int config_parse_entry(struct config *c, struct config_entry e, const json_t *o, char *error)
{
	if (!json_is_object(o)) {
		return config_entry_error(error, c, &e, "expected an object with \"method\" and \"params\"");
	}
	e.method = json_string_value(json_object_get(o, "method"));
	if (e.method == NULL) {
		return config_entry_error(error, c, &e, "\"method\" is missing or not a string");
	}
	e.params = json_object_get(o, "params");
	if (json_is_null(e.params)) {
		e.params = NULL;
	}
	if (e.params != NULL && !json_is_object(e.params)) {
		return config_entry_error(error, c, &e, "\"params\" must be an object");
	}
	struct config_entry *more = realloc(c->entries, (c->n_entries + 1) * sizeof(*more));
	if (more == NULL) {
		return config_error(error, -ENOMEM, "%s: no memory", c->file);
	}
	c->entries = more;
	e.entry = o;
	config_place_find(c->places, o, &e.line, &e.column);
	c->entries[c->n_entries++] = e;
	return 0;
}

/* Parses a list of entries. In place of an entry there may be an array of entries, which stock programs run
 * concurrently: here they are called one after the other, as if they stood without the array. */
static int config_parse_list(struct config *c, const char *subsystem, const json_t *list, char *error)
{
	const json_t *o, *inner;
	size_t i, k;
	int rc = 0;

	json_array_foreach (list, i, o) {
		struct config_entry e = {.subsystem = subsystem, .index = i, .in_batch = -1};
		if (!json_is_array(o)) {
			rc = config_go_on(c, o, config_parse_entry(c, e, o, error), error);
		}
		json_array_foreach (o, k, inner) {
			e.in_batch = (long)k;
			rc = rc != 0 ? rc : config_go_on(c, inner, config_parse_entry(c, e, inner, error), error);
		}
		if (rc != 0) {
			return rc;
		}
	}
	return 0;
}

/* A name that is like a known one is likely to be a mistake, which would otherwise show only when the configuration is
 * saved. Any other may be a newer program's: its entries say whether they can be used. */
static int config_doubt_name(struct config *c, const json_t *o, const char *name, char *error)
{
	const char *near = rpc_subsystem_nearest(name);

	if (near != NULL) {
		config_error(error, -EINVAL, "%s: there is no subsystem \"%s\"; did you mean \"%s\"?", c->file, name,
			     near);
		return config_go_on(c, json_object_get(o, "subsystem"), -EINVAL, error);
	}
	if (c->report == NULL) {
		log_warning("%s: subsystem \"%s\" is not known; its entries are loaded", c->file, name);
	}
	return 0;
}

static int config_parse_subsystem(struct config *c, size_t index, const json_t *o, char *error)
{
	const char *name = json_string_value(json_object_get(o, "subsystem"));
	const json_t *list = json_object_get(o, "config");

	if (name == NULL) {
		return config_error(error, -EINVAL, "%s: subsystems[%zu]: \"subsystem\" is missing or not a string",
				    c->file, index);
	}
	if (!rpc_subsystem_is_known(name)) {
		int rc = config_doubt_name(c, o, name, error);
		if (rc != 0) {
			return rc;
		}
	}
	if (list == NULL || json_is_null(list)) { /* a stock subsystem that has nothing to save */
		return 0;
	}
	if (!json_is_array(list)) {
		return config_error(error, -EINVAL, "%s: subsystem \"%s\": \"config\" must be an array", c->file, name);
	}
	return config_parse_list(c, name, list, error);
}

/* Keeps the text without its comments, to tell places in it, and parses it. */
static int config_load_json(struct config *c, const char *text, size_t len, char *error)
{
	json_error_t wrong = {.text = "no memory"};

	c->text = malloc(len + 1);
	if (c->text != NULL) {
		memcpy(c->text, text, len);
		rpc_comments_blank(c->text, len);
		c->tree = rpc_json_load(c->text, len, &wrong);
	}
	if (c->tree == NULL) {
		c->line = wrong.line > 0 ? (unsigned)wrong.line : 0;
		c->column = wrong.column > 0 ? (unsigned)wrong.column : 0;
		return config_error(error, -EINVAL, "%s: line %d, column %d: %s", c->file, wrong.line, wrong.column,
				    wrong.text);
	}
	c->places = config_places_create(c->text, len, c->tree);
	return c->places != NULL ? 0 : config_error(error, -ENOMEM, "%s: no memory", c->file);
}

static int config_parse_tree(struct config *c, char *error)
{
	const json_t *subsystems = json_object_get(c->tree, "subsystems"), *o;
	size_t i;
	int rc = 0;

	if (!json_is_array(subsystems)) {
		return config_go_on(c, c->tree,
				    config_error(error, -EINVAL, "%s: expected {\"subsystems\": [...]}", c->file),
				    error);
	}
	const char *wrong = rpc_own_merge(c->tree);
	if (wrong != NULL) {
		rc = config_go_on(c, c->tree, config_error(error, -EINVAL, "%s: %s", c->file, wrong), error);
	}
	json_array_foreach (subsystems, i, o) {
		if (rc == 0) {
			rc = config_go_on(c, o, config_parse_subsystem(c, i, o, error), error);
		}
	}
	return rc;
}

int config_parse_all(const char *file, const char *text, size_t len, struct config *c,
		     void (*report)(const struct config *c, const char *wrong), void *report_arg, char *error)
{
	*c = (struct config){.file = file, .report = report, .report_arg = report_arg};
	int rc = config_load_json(c, text, len, error);

	if (rc != 0 && report != NULL) {
		report(c, error);
	}
	rc = rc == 0 ? config_parse_tree(c, error) : rc;
	if (rc != 0) {
		config_free(c);
	}
	return rc;
}

int config_parse(const char *file, const char *text, size_t len, struct config *c, char *error)
{
	return config_parse_all(file, text, len, c, NULL, NULL, error);
}

int config_read_text(const char *file, char **text, size_t *len, char *error)
{
	FILE *f = fopen(file, "re");
	struct stat st;

	if (f == NULL) {
		return config_error(error, -errno, "cannot open the configuration %s: %s", file, strerror(errno));
	}
	int rc = 0;
	setvbuf(f, NULL, _IONBF, 0); /* no copy of keys stays in a buffer */
	if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES) {
		rc = config_error(error, -EINVAL, "the configuration %s is not a file of at most %d MB", file,
				  FILE_MAX_BYTES >> 20);
	} else {
		*text = malloc((size_t)st.st_size + 1);
		*len = *text != NULL ? fread(*text, 1, (size_t)st.st_size, f) : 0;
		if (*text == NULL || ferror(f)) {
			rc = config_error(error, -EIO, "cannot read the configuration %s", file);
			secret_wipe_free(*text);
		}
	}
	fclose(f);
	return rc;
}

int config_read(const char *file, struct config *c, char *error)
{
	char *text = NULL;
	size_t len = 0;

	*c = (struct config){0};
	int rc = config_read_text(file, &text, &len, error);
	if (rc != 0) {
		return rc;
	}
	rc = config_parse(file, text, len, c, error);
	secret_wipe_free(text);
	return rc;
}

void config_free(struct config *c)
{
	config_places_free(c->places);
	secret_wipe_free(c->text); /* a configuration of another target may have keys */
	json_decref(c->tree);
	free(c->entries);
	*c = (struct config){0};
}

/* Notifies of an entry that was refused, of at most ten in a second: a file may have many. what: as it is logged. */
static void config_notify_refused(const struct config_entry *e, const char *what)
{
	static struct log_limit limit;
	uint32_t left_out;

	if (log_limit_pass(&limit, &left_out)) {
		notify_send_reason(CONFIG_REFUSED, e->method, what);
	}
}

__attribute__((constructor)) static void config_register_notification(void)
{
	notify_type_register(CONFIG_REFUSED);
}

int config_check(struct config *c, bool ignore_errors, char *error)
{
	char wrong[RPC_ERROR_TEXT_MAX], text[RPC_ERROR_TEXT_MAX], later[CONFIG_ERROR_MAX];
	size_t n_wrong = 0;

	for (size_t i = 0; i < c->n_entries; i++) {
		struct config_entry *e = &c->entries[i];
		if (rpc_check_method(e->method, e->params, &e->states, wrong) == 0) {
			continue;
		}
		const char *why = rpc_refusal_text(e->params, wrong, text);
		e->skip = true;
		config_entry_error(later, c, e, "%s", why);
		config_notify_refused(e, later);
		if (ignore_errors) {
			log_warning("left out: %s", later);
		} else if (n_wrong == 0) {
			config_entry_error(error, c, e, "%s (--json-ignore-init-errors loads the rest)", why);
		} else { /* whoever mends the file wants to know all of them */
			log_error("wrong as well: %s", later);
		}
		n_wrong++;
	}
	c->n_failed += n_wrong;
	return n_wrong != 0 && !ignore_errors ? -EINVAL : 0;
}

struct call {
	bool answered;
	bool abandoned; /* config_run_entry() has stopped waiting: the answer frees it */
	bool (*cancelled)(void);
	int code;
	char message[RPC_ERROR_TEXT_MAX];
};

static void config_call_done(void *arg, struct rpc_answer *answer)
{
	struct call *call = arg;

	if (call->abandoned) {
		free(call);
		return;
	}
	call->answered = true;
	call->code = answer->code;
	snprintf(call->message, sizeof(call->message), "%s", answer->message != NULL ? answer->message : "");
}

static bool config_call_is_over(void *arg)
{
	struct call *call = arg;

	return call->answered || call->cancelled();
}

static int config_run_entry(const struct config *c, const struct config_entry *e, bool (*cancelled)(void), char *error)
{
	struct call *call = calloc(1, sizeof(*call));
	int rc = 0;

	if (call == NULL) {
		return config_error(error, -ENOMEM, "%s: no memory", c->file);
	}
	call->cancelled = cancelled;
	rpc_call_method(e->method, e->params, config_call_done, call);
	while (!config_call_is_over(call) && !thread_control_wait(config_call_is_over, call, ANSWER_REPORT_US)) {
		config_entry_error(error, c, e, "still waiting for its answer");
		log_warning("%s", error);
	}
	if (!call->answered) {
		call->abandoned = true;
		return -ECANCELED;
	}
	if (call->code != 0) {
		char text[RPC_ERROR_TEXT_MAX];
		config_entry_error(error, c, e, "%s (%d)", rpc_refusal_text(e->params, call->message, text),
				   call->code);
		rc = call->code == -EBUSY ? -EBUSY : -EINVAL;
	}
	free(call);
	return rc;
}

static bool config_stop_is_wanted(void *cancelled)
{
	return (*(bool (**)(void))cancelled)();
}

/* Runs an entry, as often as c->busy_rounds says. */
static int config_repeat_entry(struct config *c, const struct config_entry *e, bool (*cancelled)(void), char *error)
{
	int rc = config_run_entry(c, e, cancelled, error);

	if (rc == -EBUSY && c->busy_rounds != 0) {
		log_warning("repeated for some seconds: %s", error);
	}
	while (rc == -EBUSY && c->busy_rounds != 0) {
		c->busy_rounds--;
		if (thread_control_wait(config_stop_is_wanted, &cancelled, BUSY_ROUND_US)) {
			return -ECANCELED;
		}
		rc = config_run_entry(c, e, cancelled, error);
	}
	if (rc != 0 && rc != -ECANCELED && rc != -ENOMEM) {
		config_notify_refused(e, error);
	}
	return rc;
}

static bool config_sets_options(const char *method)
{
	static const char end[] = "_set_options";
	size_t len = strlen(method);

	return len >= strlen(end) && strcmp(method + len - strlen(end), end) == 0;
}

/* Whether the entry is called before clients are. Those that are allowed in both states keep their place in the file:
 * once an entry needs the subsystems, they come after it. Only options are set before all others, wherever they stand:
 * stock programs save them between bdevs, and what a client sets before framework_start_init is to come over them. */
static bool config_entry_is_early(const struct config_entry *e, bool *needs_subsystems)
{
	if ((e->states & RPC_STARTUP) != 0 && config_sets_options(e->method)) {
		return true;
	}
	*needs_subsystems |= (e->states & RPC_STARTUP) == 0;
	return (e->states & RPC_RUNTIME) == 0 || !*needs_subsystems;
}

int config_run(struct config *c, bool runtime, bool ignore_errors, bool (*cancelled)(void), char *error)
{
	bool needs_subsystems = false;

	for (size_t i = 0; i < c->n_entries; i++) {
		const struct config_entry *e = &c->entries[i];
		if (e->skip || config_entry_is_early(e, &needs_subsystems) == runtime) {
			continue;
		}
		if (cancelled()) {
			return -ECANCELED;
		}
		int rc = config_repeat_entry(c, e, cancelled, error);
		if (rc == -ECANCELED || (rc != 0 && !ignore_errors)) {
			return rc;
		}
		if (rc != 0) {
			log_warning("ignored: %s", error);
			c->n_failed++;
		}
	}
	if (runtime && c->n_failed != 0) {
		log_warning("%s: %zu of %zu entries were left out or failed; the log names each", c->file, c->n_failed,
			    c->n_entries);
	}
	return 0;
}
