/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-lvol: shows what is in a volume store that no program has open, checks it, reads volumes from it, and makes its
 * masks anew. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "lvol/owner.h"
#include "lvol/rescue.h"
#include "lvol/store.h"
#include "util/output.h"
#include "util/nearest.h"
#include "util/parse.h"

enum { EXIT_PROBLEM = 1, EXIT_USAGE = 2, COPY_MAX = 1 << 20 };

static const char usage_text[] =
	"Usage: varve-lvol list [-j] STORE\n"
	"       varve-lvol check STORE\n"
	"       varve-lvol read [-O OFFSET] [-n BYTES] STORE VOLUME\n"
	"       varve-lvol repair [-s] [-d VOLUME] STORE\n"
	"Looks into a volume store. STORE is the file or block device that it is on; no program may have it open.\n"
	"\n"
	"  list    the volumes, with their sizes and what they are clones of\n"
	"  check   whether its metadata is whole and contradicts itself nowhere\n"
	"  read    writes the contents of a volume to stdout, as a host would read them\n"
	"  repair  frees what belongs to no volume, and marks the store as closed, so that it opens at once; changes\n"
	"          nothing if it is not certain what belongs to whom, or if a program of this machine has it open; "
	"that\n"
	"          another machine, which list shows, has it no longer, you have to know\n"
	"\n"
	"VOLUME is its name, STORE/NAME, its UUID or its number (0x...). OFFSET and BYTES may end with k, M or G.\n"
	"\n"
	"  -j, --json           list: JSON, with the keys of bdev_lvol_get_lvols\n"
	"  -O, --offset OFFSET  read: from this byte on\n"
	"  -n, --bytes BYTES    read: so many bytes; by default up to the end\n"
	"  -d, --drop VOLUME    repair: first remove this volume, which is damaged\n"
	"  -s, --superblock     repair: a superblock that is damaged is made anew from its copy; only if nothing else "
	"has\n"
	"                       been put on the device since: what overwrote it would be overwritten\n"
	"  -h, --help           this text\n"
	"\n"
	"The exit status is 0, 1 if something is wrong with the store or a volume, 2 for wrong usage, or if the store\n"
	"cannot be read.\n";

struct options {
	bool json, superblock;
	const char *drop;
	uint64_t offset, bytes;
};

static void lvol_cli_error(const char *store, const char *why)
{
	fprintf(stderr, "varve-lvol: %s: %s\n", store, why);
}

/* ---- The device ---- */

static int device_read(void *ctx, uint64_t offset, void *to, size_t bytes)
{
	const int *fd = ctx;
	char *at = to;

	while (bytes > 0) {
		ssize_t n = pread(*fd, at, bytes, (off_t)offset);
		if (n <= 0) {
			if (n < 0 && errno == EINTR) {
				continue;
			}
			return n < 0 ? -errno : -EIO;
		}
		at += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int device_write(void *ctx, uint64_t offset, const void *from, size_t bytes)
{
	const int *fd = ctx;
	const char *at = from;

	while (bytes > 0) {
		ssize_t n = pwrite(*fd, at, bytes, (off_t)offset);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return n < 0 ? -errno : -EIO;
		}
		at += n;
		offset += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int device_flush(void *ctx)
{
	const int *fd = ctx;

	return fsync(*fd) == 0 ? 0 : -errno;
}

/* Keeps others from writing to it as long as it is open. Returns the descriptor or a negative errno. */
static int store_device_open(const char *path, bool write, uint64_t *bytes)
{
	struct flock lock = {.l_type = write ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
	struct stat st;

	if (stat(path, &st) != 0) {
		return -errno;
	}
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
		return -ENOTBLK;
	}
	int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | (S_ISBLK(st.st_mode) ? O_EXCL : 0));
	if (fd < 0) {
		return -errno;
	}
	*bytes = (uint64_t)st.st_size;
	if (fcntl(fd, F_OFD_SETLK, &lock) != 0 || (S_ISBLK(st.st_mode) && ioctl(fd, BLKGETSIZE64, bytes) != 0)) {
		int rc = errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static const char *device_error_text(int rc)
{
	return rc == -EBUSY     ? "another program has it open: stop it, or detach the store there"
	       : rc == -ENOTBLK ? "it is neither a file nor a block device"
				: strerror(-rc);
}

static const struct lvol_owner *lvol_cli_owner(const struct lvol_store *s, enum lvol_owner_state *state)
{
	const struct lvol_owner *found = &s->geometry.owner;
	struct lvol_owner self;

	lvol_owner_self(&self);
	*state = lvol_owner_judge(found, &self, found->pid == 0 ? 0 : lvol_process_started(found->pid));
	return found;
}

/* Whose a store is that was not closed. */
static void lvol_cli_owner_print(const struct lvol_store *s)
{
	enum lvol_owner_state state;
	const struct lvol_owner *found = lvol_cli_owner(s, &state);
	char who[101];

	lvol_owner_text(found, who);
	if (state != LVOL_OWNER_UNKNOWN) {
		printf("opened by %s, %s\n", who,
		       state == LVOL_OWNER_LIVES  ? "which lives"
		       : state == LVOL_OWNER_GONE ? "which has ended"
						  : "which may have it open");
	}
}

/* ---- list ---- */

static const char *volume_kind(const struct lvol_volume *v)
{
	bool thin = (v->flags.invalid & LVOL_INVALID_THIN) != 0;

	return v->damaged                                                                ? "damaged"
	       : (v->flags.data_ro & LVOL_DATA_RO_READ_ONLY) != 0 && (v->clones || thin) ? "snapshot"
	       : v->parent != NULL || v->external != NULL                                ? "clone"
	       : thin                                                                    ? "thin"
											 : "thick";
}

static bool volume_is_snapshot(const struct lvol_volume *v)
{
	return strcmp(volume_kind(v), "snapshot") == 0;
}

static json_t *volume_json(const struct lvol_store *s, const struct lvol_volume *v)
{
	char alias[2 * LVOL_NAME_MAX + 2];

	snprintf(alias, sizeof(alias), "%s/%s", s->name, v->name);
	json_t *j = json_pack(
		"{s:s, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:I, s:I, s:{s:s, s:s}}", "alias", alias, "uuid", v->uuid,
		"name", v->name, "is_thin_provisioned", (v->flags.invalid & LVOL_INVALID_THIN) != 0, "is_snapshot",
		volume_is_snapshot(v), "is_clone", v->parent_id != LVOL_ID_NONE, "is_esnap_clone", v->external != NULL,
		"is_degraded", v->damaged, "num_allocated_clusters", (json_int_t)v->num_allocated,
		"num_reserved_clusters", (json_int_t)v->reserved, "lvs", "name", s->name, "uuid", s->uuid);
	if (j != NULL && v->parent != NULL) {
		json_object_set_new(j, "base_snapshot", json_string(v->parent->name));
	}
	if (j != NULL && v->external != NULL) {
		json_object_set_new(j, "external_snapshot_name", json_string(v->external));
	}
	return j;
}

static int list_json(const struct lvol_store *s)
{
	json_t *all = json_array();

	for (size_t i = 0; i < s->num_volumes; i++) {
		if (json_array_append_new(all, volume_json(s, &s->volumes[i])) != 0) {
			fprintf(stderr, "varve-lvol: out of memory\n");
			json_decref(all);
			return EXIT_USAGE;
		}
	}
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
	return 0;
}

static int list_text(const struct lvol_store *s)
{
	const struct lvol_geometry *g = &s->geometry;

	printf("store %s, UUID %s, %" PRIu32 " clusters of %" PRIu32 " KiB, %s\n", s->name, s->uuid,
	       g->num_clusters - g->num_md_clusters, g->cluster_bytes / 1024, g->clean ? "closed" : "was not closed");
	lvol_cli_owner_print(s);
	printf("%-24s %-36s %10s %10s %-9s %s\n", "NAME", "UUID", "MiB", "OWN MiB", "KIND", "OF");
	for (size_t i = 0; i < s->num_volumes; i++) {
		const struct lvol_volume *v = &s->volumes[i];
		printf("%-24s %-36s %10.1f %10.1f %-9s %s\n", v->name, v->uuid,
		       (double)v->num_clusters * g->cluster_bytes / (1 << 20),
		       (double)v->num_allocated * g->cluster_bytes / (1 << 20), volume_kind(v),
		       v->external != NULL ? v->external
		       : v->parent != NULL ? v->parent->name
					   : "");
	}
	return 0;
}

static int lvol_cli_problems_print(const struct lvol_store *s, const char *path)
{
	for (size_t i = 0; i < s->num_problems && i < LVOL_PROBLEMS_MAX; i++) {
		lvol_cli_error(path, s->problems[i]);
	}
	if (s->num_problems > LVOL_PROBLEMS_MAX) {
		fprintf(stderr, "varve-lvol: %s: and %zu more\n", path, s->num_problems - LVOL_PROBLEMS_MAX);
	}
	return s->num_problems > 0 ? EXIT_PROBLEM : 0;
}

static int cmd_list(struct lvol_store *s, const struct options *o, char **args)
{
	int rc = o->json ? list_json(s) : list_text(s);
	int problems = lvol_cli_problems_print(s, args[0]);

	return rc != 0 ? rc : problems;
}

/* ---- check ---- */

static int cmd_check(struct lvol_store *s, const struct options *o, char **args)
{
	if (lvol_store_check(s) != 0) {
		lvol_cli_error(args[0], strerror(ENOMEM));
		return EXIT_USAGE;
	}
	int rc = lvol_cli_problems_print(s, args[0]);
	struct lvol_super_copy copy;
	uint64_t own = 0;
	for (size_t i = 0; i < s->num_volumes; i++) {
		own += s->volumes[i].num_allocated;
	}
	printf("store %s: %zu volumes, %" PRIu64 " of %" PRIu32 " clusters in use, %zu problems%s\n", s->name,
	       s->num_volumes, own, s->geometry.num_clusters - s->geometry.num_md_clusters, s->num_problems,
	       s->geometry.clean ? "" : "; it was not closed: whoever opens it next makes its masks anew");
	if (!s->super_copied) {
		printf("its superblock has no copy%s\n",
		       lvol_super_copy_make(s->super, &copy)
			       ? ": varve makes one when it opens the store"
			       : ", and can have none: its areas do not lie as programs lay them");
	}
	lvol_cli_owner_print(s);
	return rc;
}

/* ---- read ---- */

static int volume_part_write(const struct lvol_store *s, const struct lvol_volume *v, uint64_t at, size_t bytes,
			     const char *path)
{
	static char buffer[COPY_MAX];
	int rc = lvol_volume_data(s, v, at, buffer, bytes);

	if (rc != 0) {
		fprintf(stderr, "varve-lvol: %s: %s at byte %" PRIu64 ": %s\n", path, v->name, at,
			rc == -ENXIO    ? "it is in an external snapshot, outside of the store"
			: rc == -EILSEQ ? "the volume or a snapshot of it is damaged"
					: strerror(-rc));
		return EXIT_PROBLEM;
	}
	return fwrite(buffer, 1, bytes, stdout) == bytes ? 0 : EXIT_USAGE;
}

static int cmd_read(struct lvol_store *s, const struct options *o, char **args)
{
	const struct lvol_volume *v = lvol_store_find(s, args[1]);
	uint64_t cluster_bytes = s->geometry.cluster_bytes;

	if (v == NULL) {
		fprintf(stderr, "varve-lvol: %s: there is no volume %s; 'varve-lvol list' shows those that are there\n",
			args[0], args[1]);
		return EXIT_PROBLEM;
	}
	uint64_t size = v->num_clusters * cluster_bytes;
	if (o->offset > size || (o->bytes != UINT64_MAX && o->bytes > size - o->offset)) {
		fprintf(stderr, "varve-lvol: %s has %" PRIu64 " bytes\n", v->name, size);
		return EXIT_USAGE;
	}
	uint64_t end = o->bytes == UINT64_MAX ? size : o->offset + o->bytes;
	int rc = 0;
	for (uint64_t at = o->offset, n; at < end && rc == 0; at += n) {
		uint64_t in_cluster = cluster_bytes - at % cluster_bytes;
		n = end - at < in_cluster ? end - at : in_cluster;
		n = n < COPY_MAX ? n : COPY_MAX;
		rc = volume_part_write(s, v, at, n, args[0]);
	}
	return rc;
}

/* ---- repair ---- */

/* By name, or by number where it has no name that can be read. */
static const struct lvol_volume *volume_to_drop_find(const struct lvol_store *s, const char *name)
{
	uint64_t id;

	for (size_t i = 0; parse_uint64(name, 0, UINT64_MAX, &id) == 0 && i < s->num_volumes; i++) {
		if (s->volumes[i].id == id) {
			return &s->volumes[i];
		}
	}
	return lvol_store_find(s, name);
}

/* The store has to be read again then. Returns the exit status. */
static int repair_drop(struct lvol_store *s, const char *name, const char *path)
{
	const struct lvol_volume *v = volume_to_drop_find(s, name);
	int rc = v == NULL ? -ENOENT : lvol_volume_drop(s, v);

	if (rc != 0) {
		fprintf(stderr, "varve-lvol: %s: %s is not dropped: %s\n", path, name,
			rc == -ENOENT  ? "there is no such volume"
			: rc == -EBUSY ? "it is not damaged, or is the snapshot of a volume that is not"
				       : strerror(-rc));
		return EXIT_PROBLEM;
	}
	printf("dropped %s\n", name);
	return 0;
}

static int cmd_repair(struct lvol_store *s, const struct options *o, char **args)
{
	struct lvol_store *again = NULL;
	struct lvol_error e = {""};
	enum lvol_owner_state state;
	const struct lvol_owner *found = lvol_cli_owner(s, &state);

	/* That another machine has it no longer is the word of whoever calls for a repair. */
	if (state == LVOL_OWNER_LIVES) {
		lvol_owner_refuse(found, state, &e);
		fprintf(stderr, "varve-lvol: %s: not repaired: %s\n", args[0], e.text);
		return EXIT_PROBLEM;
	}
	if (s->geometry.rescued && !o->superblock) {
		lvol_cli_problems_print(s, args[0]);
		lvol_cli_error(args[0], "not repaired: use --superblock if nothing else has been put on it since");
		return EXIT_PROBLEM;
	}
	if (o->drop != NULL && repair_drop(s, o->drop, args[0]) != 0) {
		return EXIT_PROBLEM;
	}
	int rc = lvol_store_read(&s->device, &again, &e);
	rc = rc != 0 ? rc : lvol_store_check(again);
	if (again != NULL) {
		lvol_cli_problems_print(again, args[0]);
	}
	rc = rc != 0 ? rc : lvol_store_close_write(again, &e);
	if (rc != 0) {
		fprintf(stderr, "varve-lvol: %s: not repaired: %s\n", args[0], rc == -EILSEQ ? e.text : strerror(-rc));
	} else {
		printf("store %s: its %smasks were made anew, and it is marked as closed\n", again->name,
		       s->geometry.rescued ? "superblock and " : "");
	}
	if (again != NULL) {
		lvol_store_free(again);
	}
	return rc != 0 ? EXIT_PROBLEM : 0;
}

/* ---- The command line ---- */

static const struct command {
	const char *name;
	int num_args;
	bool writes;
	const char *options; /* which ones it takes */
	int (*run)(struct lvol_store *s, const struct options *o, char **args);
} commands[] = {
	{"list", 1, false, "j", cmd_list},
	{"check", 1, false, "", cmd_check},
	{"read", 2, false, "On", cmd_read},
	{"repair", 1, true, "ds", cmd_repair},
};

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; name != NULL && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(name, commands[i].name) == 0) {
			return &commands[i];
		}
	}
	return NULL;
}

static int lvol_cli_usage(const char *fmt, const char *what)
{
	fputs("varve-lvol: ", stderr);
	fprintf(stderr, fmt, what);
	fputs("; 'varve-lvol -h' shows what is allowed\n", stderr);
	return EXIT_USAGE;
}

static int command_run(const struct command *c, const struct options *o, char **args)
{
	struct lvol_store *s = NULL;
	struct lvol_device d = {.read = device_read, .write = device_write, .flush = device_flush};
	struct lvol_error e;
	int fd = store_device_open(args[0], c->writes, &d.size_bytes);

	if (fd < 0) {
		lvol_cli_error(args[0], device_error_text(fd));
		return EXIT_USAGE;
	}
	d.ctx = &fd;
	int rc = lvol_store_read(&d, &s, &e);
	if (rc != 0) {
		lvol_cli_error(args[0], e.text);
		rc = rc == -EILSEQ ? EXIT_PROBLEM : EXIT_USAGE;
	} else {
		rc = c->run(s, o, args);
		lvol_store_free(s);
	}
	close(fd);
	return rc;
}

/* Returns the letter of the first option given that the command does not take, or 0. */
static char option_foreign(const struct command *c, const char *given)
{
	size_t n = strspn(given, c->options);

	return given[n];
}

/* Returns -1, or the exit status. given: the letters of the options, up to 15. */
static int options_parse(int argc, char **argv, struct options *o, char given[16])
{
	static const struct option long_options[] = {
		{"json", no_argument, NULL, 'j'},
		{"offset", required_argument, NULL, 'O'},
		{"bytes", required_argument, NULL, 'n'},
		{"drop", required_argument, NULL, 'd'},
		{"superblock", no_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*o = (struct options){.bytes = UINT64_MAX};
	while ((c = getopt_long(argc, argv, "jO:n:d:sh", long_options, NULL)) != -1) {
		size_t n = strlen(given);
		if (c == 'h') {
			fputs(usage_text, stdout);
			return 0;
		}
		if (c == '?') {
			nearest_print_option("varve-lvol", argv[optind - 1], long_options);
			fputs("See varve-lvol --help.\n", stderr);
			return EXIT_USAGE;
		}
		if (c == 'd') {
			o->drop = optarg;
		} else if (c != 'j' && c != 's' &&
			   parse_size(optarg, 0, INT64_MAX, c == 'O' ? &o->offset : &o->bytes) != 0) {
			return lvol_cli_usage("'%s' is not a number of bytes", optarg);
		}
		o->json |= c == 'j';
		o->superblock |= c == 's';
		if (n < 15) {
			given[n] = (char)c;
		}
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct options o;
	char given[16] = "", foreign[2] = "";

	output_guard("varve-lvol", EXIT_USAGE);
	int rc = options_parse(argc, argv, &o, given);
	if (rc >= 0) {
		return rc;
	}
	const struct command *c = command_find(argv[optind]);
	if (c == NULL) {
		return argv[optind] == NULL ? lvol_cli_usage("a command is missing%s", "")
					    : lvol_cli_usage("there is no command '%s'", argv[optind]);
	}
	if ((foreign[0] = option_foreign(c, given)) != 0) {
		return lvol_cli_usage("the command does not take -%s", foreign);
	}
	if (argc - optind - 1 != c->num_args) {
		return lvol_cli_usage("%s has another number of arguments", c->name);
	}
	return command_run(c, &o, argv + optind + 1);
}
