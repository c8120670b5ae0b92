/* SPDX-License-Identifier: BSD-3-Clause */
/* Crashes. A base with a volatile write cache records all writes and flushes while a user works. Then, for many places
 * in that record, power fails there: what was flushed is on the base, and of the rest a random choice of its sectors.
 * Between there are crashes of varve alone, after which the base still has what it had not made durable, and the record
 * goes on in the next life.
 * The integrity bdev that is opened on that must give all that was durable for its user, must not call right data
 * wrong, and must notice each wrong byte in a unit whose checksum it has. */
#include <pthread.h>

#include "bdev_modules/integrity/test_integrity_kit.h"

#define HOT_UNITS  8u /* of each region, that are written */
#define SECTOR     512u
#define RECORD_MAX 20000u

struct entry {
	bool flush;
	uint64_t offset, bytes;
	uint8_t *data;
};

static struct recorder {
	struct bdev bdev;
	pthread_mutex_t lock;
	uint8_t *memory;
	struct entry record[RECORD_MAX];
	uint32_t entries;
	bool records;
} recorder;

static struct bdev_module recorder_module = {.name = "recorder"};
BDEV_MODULE_REGISTER(recorder_module)

static void recorder_note(bool flush, uint64_t offset, uint64_t bytes)
{
	struct recorder *r = &recorder;

	if (r->records) {
		CU_ASSERT_TRUE_FATAL(r->entries < RECORD_MAX);
		struct entry *e = &r->record[r->entries++];
		*e = (struct entry){.flush = flush, .offset = offset, .bytes = bytes};
		if (!flush) {
			e->data = malloc(bytes);
			memcpy(e->data, r->memory + offset, bytes);
		}
	}
}

static void recorder_submit(void *channel, struct bdev_io *io)
{
	struct recorder *r = &recorder;
	uint64_t offset = io->offset_blocks * SECTOR, bytes = io->num_blocks * SECTOR;
	struct iov_cursor c = {.iov = io->iovs};

	pthread_mutex_lock(&r->lock);
	if (io->type == BDEV_IO_READ) {
		iov_from_buffer(&c, r->memory + offset, bytes);
	} else if (io->type == BDEV_IO_WRITE) {
		iov_to_buffer(&c, r->memory + offset, bytes);
		recorder_note(false, offset, bytes);
	} else {
		recorder_note(true, 0, 0);
	}
	pthread_mutex_unlock(&r->lock);
	bdev_io_complete(io, 0);
}

static void recorder_destruct(struct bdev *b)
{
	bdev_destruct_done(b);
}

static const struct bdev_ops recorder_ops = {.submit = recorder_submit, .destruct = recorder_destruct};

static void recorder_register(void)
{
	struct bdev *b = &recorder.bdev;

	memset(b, 0, sizeof(*b));
	b->name = "m0";
	b->product_name = "recorder";
	b->module = &recorder_module;
	b->ops = &recorder_ops;
	b->num_blocks = (uint64_t)KIT_UNITS * UNIT_BYTES / SECTOR;
	b->block_size = SECTOR;
	b->write_cache = true;
	b->numa_node = -1;
	b->io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_FLUSH;
	CU_ASSERT_EQUAL_FATAL(bdev_register(b), 0);
}

static void recorder_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	bdev_unregister(&recorder.bdev, cb, arg);
}

/* --- What the user has done --- */

struct written {
	uint32_t unit, version;
	uint32_t begun, acked; /* entries of the record at these times */
};
static struct written writes[RECORD_MAX];
static uint32_t flushes[RECORD_MAX]; /* entries of the record when a flush of the user was answered */
static uint32_t flush_begun[RECORD_MAX];
static unsigned num_writes, num_flushes;
static uint32_t life_begun; /* entries of the record when the present life began */

static uint32_t recorded(void)
{
	pthread_mutex_lock(&recorder.lock);
	uint32_t n = recorder.entries;
	pthread_mutex_unlock(&recorder.lock);
	return n;
}

static uint32_t hot_unit(uint32_t n)
{
	return n / HOT_UNITS * INTEGRITY_REGION_UNITS + n % HOT_UNITS;
}

static void user_writes(struct user *u, uint64_t *random, uint32_t version)
{
	uint32_t unit = hot_unit((uint32_t)(fixture_random(random) % (KIT_REGIONS * HOT_UNITS)));
	uint32_t n = unit % INTEGRITY_REGION_UNITS < HOT_UNITS - 1 ? (uint32_t)(fixture_random(random) % 2) + 1 : 1;
	uint32_t begun = recorded();

	CU_ASSERT_EQUAL(kit_write(u, unit, n, version), 0);
	for (uint32_t i = 0; i < n; i++) {
		writes[num_writes++] = (struct written){unit + i, version, begun, recorded()};
	}
}

static void user_works(struct user *u, uint64_t *random, uint32_t from, uint32_t to)
{
	for (uint32_t version = from; version <= to; version++) {
		user_writes(u, random, version);
		if (fixture_random(random) % 4 == 0) {
			flush_begun[num_flushes] = recorded();
			CU_ASSERT_EQUAL(user_io(u, BDEV_IO_FLUSH, NULL, 0, 0), 0);
			flushes[num_flushes++] = recorded();
		}
		if (fixture_random(random) % 3 == 0) {
			CU_ASSERT_TRUE(kit_wait_closed());
		}
	}
}

/* The version that a unit must have after a crash at `at`; 0: more than one is possible, or none was written. */
static uint32_t must_have(uint32_t unit, uint32_t at)
{
	uint32_t version = 0, flushed = 0;

	for (unsigned i = 0; i < num_flushes && flushes[i] <= at; i++) {
		flushed = flush_begun[i];
	}
	for (unsigned i = 0; i < num_writes && writes[i].begun < at; i++) {
		if (writes[i].unit == unit) {
			version = writes[i].acked <= flushed ? writes[i].version : 0;
		}
	}
	return version;
}

/* --- Crashes --- */

static void apply(uint8_t *image, const struct entry *e, uint64_t *random, unsigned mode)
{
	bool whole = mode == 1 && fixture_random(random) % 2 == 0;

	for (uint64_t at = 0; at < e->bytes; at += SECTOR) {
		if (mode == 0 || whole || (mode == 2 && fixture_random(random) % 2 == 0)) {
			memcpy(image + e->offset + at, e->data + at, SECTOR);
		}
	}
}

/* mode: 0: nothing is lost; 1: whole writes; 2: sectors. */
static void crash_image(uint8_t *image, const uint8_t *first, uint32_t at, uint64_t *random, unsigned mode)
{
	uint32_t durable = 0;

	for (uint32_t i = 0; i < at; i++) {
		durable = recorder.record[i].flush ? i : durable;
	}
	memcpy(image, first, (size_t)KIT_UNITS * UNIT_BYTES);
	for (uint32_t i = 0; i < at; i++) {
		apply(image, &recorder.record[i], random, i < durable ? 0 : mode);
	}
}

/* What a bitmap page that was written says of a region; NULL: the entry is something else. */
static const struct integrity_bitmap_page *bitmap_of(const struct integrity_layout *l, const struct entry *e)
{
	uint64_t unit = e->offset / UNIT_BYTES;
	bool is_one = !e->flush && unit >= l->bitmap_first && unit < l->sums_first;

	return is_one ? (const struct integrity_bitmap_page *)e->data : NULL;
}

/* Whether the unit was written in this life, and its region has been closed since, whatever of the writes before `at`
 * is lost: then its checksum is known. */
static bool must_be_checked(const struct integrity_layout *l, uint32_t unit, uint32_t at)
{
	uint32_t durable = 0, closed_at = 0, region = unit / INTEGRITY_REGION_UNITS;

	for (uint32_t i = 0; i < at; i++) {
		durable = recorder.record[i].flush ? i : durable;
	}
	for (uint32_t i = life_begun; i < at; i++) {
		const struct integrity_bitmap_page *p = bitmap_of(l, &recorder.record[i]);
		bool open = p != NULL && integrity_bitmap_is_open(p, region);
		if (p != NULL && (open || (i < durable && closed_at == 0))) {
			closed_at = open ? 0 : i;
		}
	}
	for (unsigned i = 0; i < num_writes; i++) {
		if (writes[i].unit == unit && writes[i].begun >= life_begun && writes[i].acked <= closed_at) {
			return true;
		}
	}
	return false;
}

static unsigned places, checked_units, unchecked_units, known_units;

static uint64_t unchecked_now(void)
{
	return kit_info().units_unchecked;
}

static void check_unit(struct user *u, uint32_t unit, uint32_t at)
{
	const struct integrity_bdev *d = integrity_of(bdev_integrity_find("i0"));
	uint8_t *byte = recorder.memory + (d->layout.data_first + unit) * UNIT_BYTES + unit % UNIT_BYTES;
	uint32_t version = must_have(unit, at);
	uint64_t before = unchecked_now();

	CU_ASSERT_EQUAL(kit_read(u, unit, 1), 0);
	CU_ASSERT_TRUE(version == 0 || kit_is(kit_data, unit, version));
	if (must_be_checked(&d->layout, unit, at)) {
		CU_ASSERT_EQUAL(unchecked_now(), before);
		known_units++;
	}
	if (unchecked_now() != before) {
		unchecked_units++;
		return;
	}
	checked_units++;
	*byte ^= 4;
	CU_ASSERT_EQUAL(kit_read(u, unit, 1), STATUS_WRONG);
	*byte ^= 4;
}

static void check_after_crash(uint32_t at)
{
	struct user u;

	bool learns = at % 8 == 4;

	recorder_register();
	integrity_limits.learns = learns;
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", false), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(at % 4)), 0);
	if (learns) {
		CU_ASSERT_TRUE(kit_wait_closed());
	}
	for (uint32_t n = 0; n < KIT_REGIONS * HOT_UNITS; n++) {
		check_unit(&u, hot_unit(n), at);
	}
	if (at % 8 == 0) { /* and it can be used */
		CU_ASSERT_EQUAL(kit_write(&u, 2, 4, 1000), 0);
		CU_ASSERT_TRUE(kit_wait_closed());
		CU_ASSERT_TRUE(kit_reads(&u, 2, 4, 1000));
	}
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(recorder_delete, "m0"), 0);
}

static uint8_t first_image[KIT_UNITS * UNIT_BYTES];

static void life(bool is_new, uint64_t *random, uint32_t from, uint32_t to)
{
	struct user u;

	recorder_register();
	recorder.records = !is_new;
	CU_ASSERT_EQUAL_FATAL(kit_create("m0", is_new), 0);
	if (is_new) {
		memcpy(first_image, recorder.memory, sizeof(first_image));
	}
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "i0", true, fixture_thread(0)), 0);
	recorder.records = true;
	user_works(&u, random, from, to);
	recorder.records = false;
	user_close(&u);
	CU_ASSERT_EQUAL(fixture_delete(bdev_integrity_delete, "i0"), 0);
	CU_ASSERT_EQUAL(fixture_delete(recorder_delete, "m0"), 0);
}

static void power_fails(uint32_t from, uint64_t *random)
{
	for (uint32_t at = from; at <= recorder.entries; at += unit_stride()) {
		crash_image(recorder.memory, first_image, at, random, at % 3);
		check_after_crash(at);
	}
	places += recorder.entries - from + 1;
}

static void print_counts(void)
{
	printf("%u places, %u units checked, %u of them must be, %u not\n", places, checked_units, known_units,
	       unchecked_units);
}

static void test_power_may_fail_at_any_time(void)
{
	uint64_t random = 11;

	pthread_mutex_init(&recorder.lock, NULL);
	recorder.memory = calloc(KIT_UNITS, UNIT_BYTES);
	kit_close_soon(true);
	life(true, &random, 1, 150);
	power_fails(0, &random);
	print_counts();
	CU_ASSERT_TRUE(checked_units > unchecked_units / 4); /* not all was unknown */
	CU_ASSERT_TRUE(known_units > 100);
}

/* Forgets what the record has from `at` on: varve has crashed there, and the base has all that it was sent. */
static void record_ends(uint32_t at)
{
	while (recorder.entries > at) {
		free(recorder.record[--recorder.entries].data);
	}
	while (num_writes > 0 && writes[num_writes - 1].begun >= at) {
		num_writes--;
	}
	for (unsigned i = 0; i < num_writes; i++) {
		writes[i].acked = writes[i].acked > at ? UINT32_MAX : writes[i].acked;
	}
	while (num_flushes > 0 && flushes[num_flushes - 1] > at) {
		num_flushes--;
	}
	life_begun = at;
}

/* A page of the bitmap has been written, and is not durable yet, when varve crashes. */
static void test_power_may_fail_after_a_crash_of_varve(void)
{
	struct integrity_layout l;
	struct integrity_error e;
	uint64_t random = 12;
	unsigned lives = 0;

	kit_close_soon(true);
	CU_ASSERT_EQUAL_FATAL(integrity_layout_make(&l, KIT_UNITS, &e), 0);
	for (uint32_t at = recorder.entries; at > 100 && lives < 40 / unit_stride(); at--) {
		if (bitmap_of(&l, &recorder.record[at - 1]) == NULL) {
			continue;
		}
		record_ends(at);
		crash_image(recorder.memory, first_image, at, &random, 0);
		lives++;
		life(false, &random, 1000 + lives * 100, 1006 + lives * 100);
		power_fails(at, &random);
	}
	CU_ASSERT_TRUE(lives > 0);
	print_counts();
	record_ends(0);
	free(recorder.memory);
}

static const struct unit_test tests[] = {
	UNIT(test_power_may_fail_at_any_time),
	UNIT(test_power_may_fail_after_a_crash_of_varve),
	UNIT_END,
};
UNIT_MAIN("bdev_integrity_crash", tests, fixture_start, fixture_stop)
