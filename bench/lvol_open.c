/* SPDX-License-Identifier: BSD-3-Clause */
/* What it takes to open a large store of volumes, and what changes write, on sparse memory: the engine (lvol/live.h)
 * alone, without bdevs. Medians of several opens.
 *
 *     lvol_open.crash_64g_ms	a store of 64 GiB with clusters of 1 MiB, all of them in use by 64 volumes, not closed
 *     lvol_open.clean_64g_ms	the same, closed
 *     lvol_open.crash_16t_ms	a store of 16 TiB with clusters of 4 MiB and 10000 volumes, with two clusters each
 *     lvol_open.clean_16t_ms	the same, closed
 *     lvol_open.crash_64g_read_mb, lvol_open.crash_64g_reads	what such an open reads, in how many reads
 *     lvol_open.crash_16t_read_mb, lvol_open.crash_16t_reads	the same
 *     lvol_open.create_md_bytes	metadata, with the journal, that one creation of a thin volume writes
 *     lvol_open.snapshot_md_bytes, lvol_open.clone_md_bytes, lvol_open.delete_md_bytes	the same of others, by turns
 *
 * Wanted: crash_64g_ms at most 300, crash_16t_ms at most 3000. The benchmark fails where what the device was given to
 * write is not what the store says that it has written. */
#include <errno.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "lvol/live.h"

enum { TURNS = 5, CHANGES = 100 };

static struct sparse {
	uint8_t *bytes;
	uint64_t size;
	uint64_t reads, bytes_read, bytes_written;
} disk;

/* ---- The device ---- */

static void sparse_read(void *ctx, uint64_t offset, void *to, size_t bytes, lvol_live_done done, void *arg)
{
	struct sparse *d = ctx;

	d->reads++;
	d->bytes_read += bytes;
	memcpy(to, d->bytes + offset, bytes);
	done(arg, 0);
}

static void sparse_write(void *ctx, uint64_t offset, const void *from, size_t bytes, lvol_live_done done, void *arg)
{
	struct sparse *d = ctx;

	d->bytes_written += bytes;
	memcpy(d->bytes + offset, from, bytes);
	done(arg, 0);
}

static void sparse_nothing(void *ctx, lvol_live_done done, void *arg)
{
	(void)ctx;
	done(arg, 0);
}

static void sparse_zeroes(void *ctx, uint64_t offset, uint64_t bytes, lvol_live_done done, void *arg)
{
	struct sparse *d = ctx;

	done(arg, madvise(d->bytes + offset, bytes, MADV_DONTNEED) == 0 ? 0 : -EIO);
}

/* No volume has a user. */
static const struct lvol_live_user user = {.ctx = &disk,
					   .block_bytes = 4096,
					   .read = sparse_read,
					   .write = sparse_write,
					   .flush = sparse_nothing,
					   .write_zeroes = sparse_zeroes,
					   .synchronize = sparse_nothing};

static void disk_make(uint64_t size)
{
	disk = (struct sparse){.size = size};
	disk.bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (disk.bytes == MAP_FAILED) {
		perror("lvol_open: mmap");
		exit(1);
	}
}

/* ---- The store ---- */

static struct lvol_live *store;
static struct lvol_live_volume *made;

static void ended(void *arg, int status)
{
	if (status != 0) {
		fprintf(stderr, "lvol_open: %s: %s\n", (const char *)arg, strerror(-status));
		exit(1);
	}
}

static void volume_made(void *arg, int status, struct lvol_live_volume *v)
{
	ended(arg, status);
	made = v;
}

static void store_opened(void *arg, int status, struct lvol_live *s, const struct lvol_error *e)
{
	if (status != 0) {
		fprintf(stderr, "lvol_open: %s: %s\n", (const char *)arg, e->text);
		exit(1);
	}
	store = s;
}

static const char *uuid_of(unsigned n)
{
	static char text[37];

	snprintf(text, sizeof(text), "00000000-0000-4000-8000-%012u", n);
	return text;
}

/* Returns its name too, until the next call. */
static const char *name_of(const char *kind, unsigned n)
{
	static char text[32];

	snprintf(text, sizeof(text), "%s%u", kind, n);
	return text;
}

static struct lvol_live_user user_now(void)
{
	struct lvol_live_user u = user;

	u.size_bytes = disk.size;
	return u;
}

static void store_make(uint32_t cluster_bytes)
{
	const struct lvol_live_user u = user_now();

	lvol_live_create(
		&u, &(struct lvol_live_create_opts){.name = "lvs", .uuid = uuid_of(0), .cluster_bytes = cluster_bytes},
		store_opened, "lvol_live_create");
}

static void volume_make(const char *kind, unsigned n, uint64_t clusters, bool thin)
{
	const struct lvol_live_volume_opts o = {
		.name = name_of(kind, n), .uuid = uuid_of(n), .num_clusters = clusters, .thin = thin};

	made = NULL;
	lvol_live_volume_create(store, &o, volume_made, "lvol_live_volume_create");
	if (made == NULL) {
		fprintf(stderr, "lvol_open: a volume is not made at once\n");
		exit(1);
	}
}

static void store_open(void)
{
	const struct lvol_live_user u = user_now();

	disk.reads = disk.bytes_read = disk.bytes_written = 0;
	lvol_live_open(&u, store_opened, "lvol_live_open");
}

/* ---- Opens ---- */

static double open_ms(bool crash)
{
	if (crash) {
		lvol_live_abandon(store);
	} else {
		lvol_live_close(store, ended, "lvol_live_close");
	}
	double start = bench_now_ns();
	store_open();
	double ms = (bench_now_ns() - start) / 1e6;
	if (lvol_live_info(store).recovered != crash) {
		fprintf(stderr, "lvol_open: the store was %sclosed\n", crash ? "" : "not ");
		exit(1);
	}
	return ms;
}

static double turn_crash(void *arg)
{
	(void)arg;
	return open_ms(true);
}

static double turn_clean(void *arg)
{
	(void)arg;
	return open_ms(false);
}

/* Its figures have this word in their names. */
static void measure_opens(const char *word)
{
	char names[4][64];

	snprintf(names[0], sizeof(names[0]), "lvol_open.crash_%s_ms", word);
	snprintf(names[1], sizeof(names[1]), "lvol_open.clean_%s_ms", word);
	snprintf(names[2], sizeof(names[2]), "lvol_open.crash_%s_read_mb", word);
	snprintf(names[3], sizeof(names[3]), "lvol_open.crash_%s_reads", word);
	const struct bench_variant variants[] = {{names[0], "ms", turn_crash, NULL},
						 {names[1], "ms", turn_clean, NULL}};
	bench_run(variants, 2, TURNS, NULL);
	open_ms(true);
	bench_print(names[2], (double)disk.bytes_read / 1e6, "MB");
	bench_print(names[3], (double)disk.reads, "reads");
}

static void store_end(void)
{
	lvol_live_close(store, ended, "lvol_live_close");
	munmap(disk.bytes, disk.size);
}

/* ---- Changes ---- */

static uint64_t told_bytes(void)
{
	const struct lvol_live_info info = lvol_live_info(store);

	return info.md_bytes;
}

static void change_create(unsigned n)
{
	volume_make("thin", n, 64, true);
}

static void change_snapshot(unsigned n)
{
	struct lvol_live_volume *v = lvol_live_find(store, name_of("thin", n));

	lvol_live_volume_snapshot(v, name_of("snap", n), uuid_of(20000 + n), volume_made, "snapshot");
}

static void change_clone(unsigned n)
{
	struct lvol_live_volume *v = lvol_live_find(store, name_of("snap", n));

	lvol_live_volume_clone(v, name_of("clone", n), uuid_of(40000 + n), volume_made, "clone");
}

static void change_delete(unsigned n)
{
	lvol_live_volume_delete(lvol_live_find(store, name_of("clone", n)), ended, "delete");
}

/* What the device was given is what the store has counted. */
static void measure_changes(void)
{
	static const struct {
		const char *name;
		void (*change)(unsigned n);
	} changes[] = {{"lvol_open.create_md_bytes", change_create},
		       {"lvol_open.snapshot_md_bytes", change_snapshot},
		       {"lvol_open.clone_md_bytes", change_clone},
		       {"lvol_open.delete_md_bytes", change_delete}};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		uint64_t before = disk.bytes_written, told = told_bytes();
		for (unsigned n = 0; n < CHANGES; n++) {
			changes[i].change(n + 10001);
		}
		uint64_t bytes = disk.bytes_written - before;
		if (bytes != told_bytes() - told) {
			fprintf(stderr, "lvol_open: %s: the device was given %lu bytes, the store tells of %lu\n",
				changes[i].name, (unsigned long)bytes, (unsigned long)(told_bytes() - told));
			exit(1);
		}
		bench_print(changes[i].name, (double)bytes / CHANGES, "bytes");
	}
}

int main(void)
{
	disk_make(64ull << 30);
	store_make(1u << 20);
	for (unsigned i = 1; i <= 63; i++) {
		volume_make("thick", i, 1024, false);
	}
	volume_make("thick", 64, lvol_live_info(store).free_clusters, false);
	measure_opens("64g");
	store_end();
	disk_make(16ull << 40);
	store_make(4u << 20);
	for (unsigned i = 1; i <= 10000; i++) {
		volume_make("thick", i, 2, false);
	}
	measure_opens("16t");
	measure_changes();
	store_end();
	return 0;
}
