/* SPDX-License-Identifier: BSD-3-Clause */
/* save_config and load_config: as in stock clients, these are no methods of the daemon but are built here from its
 * methods. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/comments.h"
#include "rpc/own.h"
#include "rpc/subsystems.h"
#include "tools/safe-text.h"
#include "tools/varve-rpc.h"

/* whole: also what only varve has and is as usual: it stands apart in the file. */
static int rpc_save_collect(struct rpc_client *c, json_t *subsystems, bool whole, json_t *list)
{
	const json_t *o;
	size_t i;

	json_array_foreach (subsystems, i, o) {
		const char *name = json_string_value(json_object_get(o, "subsystem"));
		json_t *config;
		int rc = rpc_client_call(
			c, "framework_get_config",
			json_pack("{s:s, s:o*}", "name", name != NULL ? name : "", "whole", whole ? json_true() : NULL),
			false, &config);
		if (rc != RPC_TOOL_OK) {
			return rc;
		}
		json_array_append_new(list, json_pack("{s:s, s:o}", "subsystem", name, "config", config));
	}
	return RPC_TOOL_OK;
}

/* Writes the configuration to fd, and closes it. keep: and writes it back to the disk. 0 or a negative errno. */
static int rpc_save_write_to(int fd, const json_t *config, bool keep)
{
	FILE *f = fdopen(fd, "w");
	int rc = 0;

	if (f == NULL) {
		close(fd);
		return -ENOMEM;
	}
	errno = 0;
	if (json_dumpf(config, f, JSON_INDENT(2)) != 0 || fputc('\n', f) == EOF || fflush(f) != 0 ||
	    (keep && fsync(fd) != 0)) {
		rc = errno != 0 ? -errno : -EIO;
	}
	if (fclose(f) != 0 && rc == 0) {
		rc = -errno;
	}
	return rc;
}

/* Sets the mode of a new file: by the umask, or, if it replaces another file, owner and mode of that one. */
static int rpc_save_set_mode(int fd, const struct stat *old)
{
	if (old == NULL) {
		mode_t mask = umask(0);
		umask(mask);
		return fchmod(fd, 0666 & ~mask) == 0 ? 0 : -errno;
	}
	if (geteuid() == 0 && fchown(fd, old->st_uid, old->st_gid) != 0) {
		return -errno;
	}
	return fchmod(fd, old->st_mode & 07777) == 0 ? 0 : -errno;
}

/* Writes the folder back, so that the new name is on the disk. File systems on which folders cannot be written back
 * (EINVAL) do that by themselves. */
static int rpc_save_sync_folder_of(const char *file)
{
	char folder[PATH_MAX];
	const char *slash = strrchr(file, '/');
	int length = slash != NULL ? (int)(slash - file) + 1 : 0;

	snprintf(folder, sizeof(folder), "%.*s", length, file);
	int fd = open(length != 0 ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		return errno == EACCES ? 0 : -errno; /* a folder may be writable but not readable */
	}
	int rc = fsync(fd) != 0 && errno != EINVAL ? -errno : 0;
	close(fd);
	return rc;
}

/* Writes a temporary file in the same folder, then renames it: a reader sees the old configuration or the new one. */
static int rpc_save_replace_file(const json_t *config, const char *file, const struct stat *old)
{
	char temporary[PATH_MAX];

	if (snprintf(temporary, sizeof(temporary), "%s.XXXXXX", file) >= (int)sizeof(temporary)) {
		return -ENAMETOOLONG;
	}
	int fd = mkstemp(temporary);
	if (fd < 0) {
		return -errno;
	}
	int rc = rpc_save_set_mode(fd, old), written = rpc_save_write_to(fd, config, true);
	rc = rc != 0 ? rc : written;
	if (rc == 0 && rename(temporary, file) != 0) {
		rc = -errno;
	}
	if (rc != 0) {
		unlink(temporary);
		return rc;
	}
	return rpc_save_sync_folder_of(file);
}

static bool rpc_save_is_stdout(const struct stat *st)
{
	struct stat out;

	return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == st->st_dev && out.st_ino == st->st_ino;
}

/* A symbolic link stays: the file that it names is replaced. /dev/stdout, a pipe or another special file is written to:
 * replacing it by a file would break the machine for others. */
static int rpc_save_write_file(const json_t *config, const char *file)
{
	char target[PATH_MAX];
	struct stat st;
	int rc;

	if (stat(file, &st) != 0) {
		rc = -errno;
		if (rc == -ENOENT && lstat(file, &st) != 0) { /* nor is there a link to a file that does not exist */
			rc = rpc_save_replace_file(config, file, NULL);
		}
	} else if (rpc_save_is_stdout(
			   &st)) { /* also if it is a file: the shell may have redirected stdout to append to it */
		rpc_print_json(config, stdout);
		rc = 0;
	} else if (S_ISREG(st.st_mode)) {
		rc = realpath(file, target) != NULL ? rpc_save_replace_file(config, target, &st) : -errno;
	} else {
		int fd = open(file, O_WRONLY | O_CLOEXEC | O_NOCTTY);
		rc = fd >= 0 ? rpc_save_write_to(fd, config, false) : -errno;
	}
	if (rc == 0) {
		return RPC_TOOL_OK;
	}
	fprintf(stderr, "varve-rpc: cannot write %s: %s\n", file, strerror(-rc));
	return RPC_TOOL_LOST;
}

/* Not of a daemon that is older. */
static bool rpc_save_has_whole(const json_t *methods)
{
	const json_t *m, *p;
	size_t i, k;

	json_array_foreach (methods, i, m) {
		const char *name = json_string_value(json_object_get(m, "name"));
		if (name == NULL || strcmp(name, "framework_get_config") != 0) {
			continue;
		}
		json_array_foreach (json_object_get(m, "params"), k, p) {
			const char *param = json_string_value(json_object_get(p, "name"));
			if (param != NULL && strcmp(param, "whole") == 0) {
				return true;
			}
		}
	}
	return false;
}

int rpc_save_config(struct rpc_client *c, const char *file)
{
	json_t *subsystems = NULL, *methods = NULL, *list = json_array();
	json_t *config = json_pack("{s:o}", "subsystems", list);
	int rc = rpc_client_call(c, "rpc_describe_methods", NULL, false, &methods);

	rc = rc == RPC_TOOL_OK ? rpc_client_call(c, "framework_get_subsystems", NULL, false, &subsystems) : rc;
	rc = rc == RPC_TOOL_OK ? rpc_save_collect(c, subsystems, rpc_save_has_whole(methods), list) : rc;
	if (rc == RPC_TOOL_OK) {
		rpc_own_split(config, methods); /* what an SPDK target would refuse */
	}
	json_decref(subsystems);
	json_decref(methods);
	if (rc == RPC_TOOL_OK && file != NULL) {
		rc = rpc_save_write_file(config, file);
	} else if (rc == RPC_TOOL_OK) {
		rpc_print_json(config, stdout);
	}
	json_decref(config);
	return rc;
}

static bool rpc_load_list_names(const json_t *list, const char *name)
{
	const json_t *o;
	size_t i;

	json_array_foreach (list, i, o) {
		const char *one = json_string_value(o);
		if (name != NULL && one != NULL && strcmp(one, name) == 0) {
			return true;
		}
	}
	return false;
}

static int rpc_load_entry(struct rpc_client *c, const char *subsystem, json_t *entry)
{
	const char *method = json_string_value(json_object_get(entry, "method"));
	json_t *result;
	int rc = rpc_client_call(c, method, json_incref(json_object_get(entry, "params")), false, &result);

	if (rc == RPC_TOOL_OK) {
		json_decref(result);
	} else {
		char *text = json_dumps(entry, JSON_COMPACT);
		fprintf(stderr, "varve-rpc: load_config stopped at subsystem \"%s\": %s\n", subsystem, text);
		free(text);
	}
	return rc;
}

/* Puts entries and arrays of entries into one array. */
static void rpc_load_flatten(const json_t *config, json_t *flat)
{
	json_t *o;
	size_t i;

	json_array_foreach (config, i, o) {
		if (json_is_array(o)) {
			rpc_load_flatten(o, flat);
		} else {
			json_array_append(flat, o);
		}
	}
}

/* Runs those entries of a subsystem whose methods may be called now, and removes them from the list. */
static int rpc_load_allowed(struct rpc_client *c, const char *subsystem, json_t *entries, const json_t *allowed,
			    size_t *done)
{
	for (size_t i = 0; i < json_array_size(entries);) {
		json_t *entry = json_array_get(entries, i);
		if (!rpc_load_list_names(allowed, json_string_value(json_object_get(entry, "method")))) {
			i++;
			continue;
		}
		int rc = rpc_load_entry(c, subsystem, entry);
		if (rc != RPC_TOOL_OK) {
			return rc;
		}
		json_array_remove(entries, i);
		(*done)++;
	}
	return RPC_TOOL_OK;
}

struct loader {
	struct rpc_client *client;
	json_t *lists; /* of {"subsystem", "entries"}: entries that have not been run */
	bool started;  /* only once: a daemon that says again that it waits would make this loop endless */
};

/* Goes once over all entries that are left. *starting: the daemon waited for framework_start_init, which has been
 * called now. */
static int rpc_load_round(struct loader *l, size_t *done, bool *starting)
{
	json_t *allowed, *o, *result;
	size_t i;
	int rc = rpc_client_call(l->client, "rpc_get_methods",
				 json_pack("{s:b, s:b}", "current", 1, "include_aliases", 1), false, &allowed);

	if (rc != RPC_TOOL_OK) {
		return rc;
	}
	*done = 0;
	json_array_foreach (l->lists, i, o) {
		if (rc == RPC_TOOL_OK) {
			rc = rpc_load_allowed(l->client, json_string_value(json_object_get(o, "subsystem")),
					      json_object_get(o, "entries"), allowed, done);
		}
	}
	*starting = !l->started && rpc_load_list_names(allowed, "framework_start_init");
	l->started |= *starting;
	json_decref(allowed);
	if (rc == RPC_TOOL_OK && *starting) {
		rc = rpc_client_call(l->client, "framework_start_init", NULL, false, &result);
		if (rc == RPC_TOOL_OK) {
			json_decref(result);
		}
	}
	return rc;
}

/* An entry that is left has a method that this daemon lacks, which is an error, or one that may only be called before
 * its start, which is over. The latter is only reported, as stock clients do, so that a configuration can be loaded
 * again. */
static int rpc_load_report_left(const struct loader *l)
{
	const json_t *o, *entry;
	json_t *known;
	size_t i, j, unknown = 0;
	int rc = rpc_client_call(l->client, "rpc_get_methods",
				 json_pack("{s:b, s:b}", "current", 0, "include_aliases", 1), false, &known);

	if (rc != RPC_TOOL_OK) {
		return rc;
	}
	json_array_foreach (l->lists, i, o) {
		json_array_foreach (json_object_get(o, "entries"), j, entry) {
			const char *method = json_string_value(json_object_get(entry, "method"));
			const bool late = rpc_load_list_names(known, method);
			fprintf(stderr, "varve-rpc: subsystem \"%s\": %s \"%s\"%s\n",
				json_string_value(json_object_get(o, "subsystem")),
				late ? "left out" : "there is no method", method != NULL ? method : "?",
				late ? ", which is for the time before the start" : "");
			unknown += !late;
		}
	}
	json_decref(known);
	return unknown == 0 ? RPC_TOOL_OK : RPC_TOOL_REFUSED;
}

static int rpc_load_all(struct rpc_client *c, const json_t *subsystems)
{
	struct loader l = {c, json_array(), false};
	const json_t *o;
	size_t i, done;
	bool starting;
	int rc;

	json_array_foreach (subsystems, i, o) {
		const char *name = json_string_value(json_object_get(o, "subsystem"));
		json_t *flat = json_array();
		rpc_load_flatten(json_object_get(o, "config"), flat);
		json_array_append_new(l.lists,
				      json_pack("{s:s, s:o}", "subsystem", name != NULL ? name : "?", "entries", flat));
	}
	do {
		rc = rpc_load_round(&l, &done, &starting);
	} while (rc == RPC_TOOL_OK && (done > 0 || starting));
	if (rc == RPC_TOOL_OK) {
		rc = rpc_load_report_left(&l);
	}
	json_decref(l.lists);
	return rc;
}

static void rpc_load_complain_of(const char *file, const json_error_t *error)
{
	if (error->line < 0) { /* no line: the file could not be opened or read, and the text names it */
		fprintf(stderr, "varve-rpc: %s\n", error->text);
	} else {
		fprintf(stderr, "varve-rpc: %s: line %d, column %d: %s\n", file, error->line, error->column,
			error->text);
	}
}

/* Reads all of a file, of which *len bytes are at *text, the caller's. 0 or a negative errno. */
static int rpc_load_read(FILE *f, char **text, size_t *len)
{
	char block[4096];
	size_t n;
	FILE *memory = open_memstream(text, len);

	if (memory == NULL) {
		return -ENOMEM;
	}
	errno = 0;
	while ((n = fread(block, 1, sizeof(block), f)) > 0) {
		fwrite(block, 1, n, memory);
	}
	int rc = ferror(f) ? -(errno != 0 ? errno : EIO) : 0;
	return fclose(memory) != 0 && rc == 0 ? -ENOMEM : rc;
}

/* A configuration, in which there may be comments. NULL: error says why. */
static json_t *rpc_load_parse(const char *file, json_error_t *error)
{
	FILE *f = file != NULL ? fopen(file, "re") : stdin;
	char *text = NULL;
	size_t len = 0;
	int rc = f != NULL ? rpc_load_read(f, &text, &len) : -errno;
	json_t *config = NULL;

	*error = (json_error_t){.line = -1};
	if (rc != 0) {
		snprintf(error->text, sizeof(error->text), "unable to %s %.100s: %s", f == NULL ? "open" : "read",
			 file != NULL ? file : "stdin", strerror(-rc));
	} else {
		rpc_comments_blank(text, len);
		config = json_loadb(text, len, JSON_REJECT_DUPLICATES, error);
	}
	if (file != NULL && f != NULL) {
		fclose(f);
	}
	free(text);
	return config;
}

/* Whether a name is like that of a known subsystem, and therefore wrong. */
static bool rpc_load_doubts(const char *file, const json_t *subsystems)
{
	const json_t *o;
	size_t i;
	bool wrong = false;

	json_array_foreach (subsystems, i, o) {
		const char *name = json_string_value(json_object_get(o, "subsystem"));
		const char *near = name != NULL && !rpc_subsystem_is_known(name) ? rpc_subsystem_nearest(name) : NULL;
		if (near != NULL) {
			fprintf(stderr, "varve-rpc: %s: there is no subsystem \"", file);
			safe_text_print(stderr, name, strlen(name));
			fprintf(stderr, "\"; did you mean \"%s\"?\n", near);
			wrong = true;
		}
	}
	return wrong;
}

int rpc_load_config(struct rpc_client *c, const char *file)
{
	json_error_t error;
	json_t *config = rpc_load_parse(file, &error);
	const json_t *subsystems = json_object_get(config, "subsystems");

	if (!json_is_array(subsystems)) {
		if (config == NULL) {
			rpc_load_complain_of(file != NULL ? file : "stdin", &error);
		} else {
			fprintf(stderr, "varve-rpc: %s: expected {\"subsystems\": [...]}\n",
				file != NULL ? file : "stdin");
		}
		json_decref(config);
		return RPC_TOOL_USAGE;
	}
	const char *wrong = rpc_own_merge(config);
	if (wrong != NULL) {
		fprintf(stderr, "varve-rpc: %s: %s\n", file != NULL ? file : "stdin", wrong);
		json_decref(config);
		return RPC_TOOL_USAGE;
	}
	if (rpc_load_doubts(file != NULL ? file : "stdin", subsystems)) {
		json_decref(config);
		return RPC_TOOL_USAGE;
	}
	int rc = rpc_load_all(c, subsystems);
	json_decref(config);
	return rc;
}
