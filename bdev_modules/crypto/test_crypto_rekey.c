/* SPDX-License-Identifier: BSD-3-Clause */
/* A rekey's journal and its steps: after a crash at any moment, with any part of what had not been flushed, each block
 * has what was written to it; and so it is after each step that fails. */
#include <errno.h>

#include "bdev_modules/crypto/rekey_engine.h"
#include "unittest/unit.h"

#define BLOCK         512u
#define BLOCKS        22u
#define CHUNK         4u
#define SECTOR        512u
#define JOURNAL_BYTES (REKEY_CHUNK_OFFSET + CHUNK * BLOCK)
#define LOG_MAX       2000u
#define LOG_BYTES     (CHUNK * BLOCK)

static const uint8_t old_key[64] = "the key that was before                        and for its tweak";
static const uint8_t new_key[64] = "the one that comes                         and for this tweak.";

static uint64_t random_state;

static uint32_t rnd(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

/* --- Two devices, all that was done to them, and their user --- */

enum device { BASE, JOURNAL, OTHER_JOURNAL, DEVICES };

struct entry {
	enum device device;
	bool flush;
	uint64_t offset;
	uint32_t bytes;
	uint8_t data[LOG_BYTES];
	uint8_t version[BLOCKS]; /* of the user's data then: what may be there at the latest */
	uint8_t flushed[BLOCKS]; /* and at the earliest */
};

static struct {
	uint8_t at_first[DEVICES][JOURNAL_BYTES]; /* the base is smaller */
	uint8_t now[DEVICES][JOURNAL_BYTES];
	struct entry log[LOG_MAX];
	unsigned logged;
	uint8_t version[BLOCKS], flushed[BLOCKS];
	uint64_t position, held_first, held_end; /* as users see it */
	enum device journal;
	int fails_in; /* so many operations succeed, then one fails; negative: none */
	int stops_in;
	uint32_t blocks;
	uint64_t lost; /* a block that cannot be read; UINT64_MAX: none */
	bool user;
} sim;

static struct crypto_xts user_xts[2];

static void block_fill(uint64_t lba, unsigned version, uint8_t *to)
{
	for (unsigned i = 0; i < BLOCK; i++) {
		to[i] = (uint8_t)(lba * 31 + version * 7 + i);
	}
	to[0] = (uint8_t)version;
}

static struct entry *log_add(enum device device, bool flush, uint64_t offset, uint32_t bytes, const void *data)
{
	struct entry *e = &sim.log[sim.logged++];

	CU_ASSERT_FATAL(sim.logged < LOG_MAX && bytes <= sizeof(e->data));
	*e = (struct entry){.device = device, .flush = flush, .offset = offset, .bytes = bytes};
	if (!flush) {
		memcpy(e->data, data, bytes);
		memcpy(sim.now[device] + offset, data, bytes);
	} else if (device == BASE) {
		memcpy(sim.flushed, sim.version, sizeof(sim.flushed));
	}
	memcpy(e->version, sim.version, sizeof(e->version));
	memcpy(e->flushed, sim.flushed, sizeof(e->flushed));
	return e;
}

static void user_write(uint64_t lba)
{
	uint8_t data[BLOCK];

	block_fill(lba, ++sim.version[lba], data);
	CU_ASSERT_TRUE(crypto_xts_block(user_xts[lba < sim.position].encrypt, lba, data, data, BLOCK));
	(void)log_add(BASE, false, lba * BLOCK, BLOCK, data);
}

/* What the user does meanwhile: writes where it may, and flushes. */
static void user_acts(void)
{
	if (!sim.user || rnd(2) != 0) {
		return;
	}
	uint64_t lba = rnd(sim.blocks);
	if (rnd(5) == 0) {
		(void)log_add(BASE, true, 0, 0, NULL);
	} else if (lba < sim.held_first || lba >= sim.held_end) {
		user_write(lba);
	}
}

static bool op_fails(void)
{
	user_acts();
	return sim.fails_in >= 0 && sim.fails_in-- == 0;
}

static int base_read(void *ctx, uint64_t lba, uint32_t blocks, void *data)
{
	if (op_fails()) {
		return -EIO;
	}
	if (sim.lost >= lba && sim.lost < lba + blocks) {
		return -ENODATA;
	}
	memcpy(data, sim.now[BASE] + lba * BLOCK, (size_t)blocks * BLOCK);
	return 0;
}

/* One that fails may have been carried out in part. */
static int sim_write(enum device device, uint64_t offset, uint32_t bytes, const void *data)
{
	if (op_fails()) {
		(void)log_add(device, false, offset, bytes / SECTOR / 2 * SECTOR, data);
		return -EIO;
	}
	(void)log_add(device, false, offset, bytes, data);
	return 0;
}

static int base_write(void *ctx, uint64_t lba, uint32_t blocks, const void *data)
{
	CU_ASSERT_TRUE(lba >= sim.held_first && lba + blocks <= sim.held_end);
	return sim_write(BASE, lba * BLOCK, blocks * BLOCK, data);
}

static uint64_t base_blocks(void *ctx)
{
	return sim.blocks;
}

static int base_flush(void *ctx)
{
	if (op_fails()) {
		return -EIO;
	}
	(void)log_add(BASE, true, 0, 0, NULL);
	return 0;
}

static int journal_read(void *ctx, uint64_t offset, uint32_t bytes, void *data)
{
	if (op_fails()) {
		return -EIO;
	}
	memcpy(data, sim.now[sim.journal] + offset, bytes);
	return 0;
}

static int journal_write(void *ctx, uint64_t offset, uint32_t bytes, const void *data)
{
	return sim_write(sim.journal, offset, bytes, data);
}

static int journal_flush(void *ctx)
{
	if (op_fails()) {
		return -EIO;
	}
	(void)log_add(sim.journal, true, 0, 0, NULL);
	return 0;
}

static int hold(void *ctx, uint64_t position, uint32_t max_blocks, uint32_t *blocks)
{
	uint64_t left = sim.blocks > position ? sim.blocks - position : 0;

	user_acts();
	*blocks = (uint32_t)(left < max_blocks ? left : max_blocks);
	sim.held_first = position;
	sim.held_end = *blocks != 0 ? position + *blocks : UINT64_MAX;
	return 0;
}

static void moved(void *ctx, uint64_t position)
{
	sim.position = position;
	sim.held_first = sim.held_end = 0;
	user_acts();
}

static int pace(void *ctx, uint32_t bytes)
{
	user_acts();
	return sim.stops_in >= 0 && sim.stops_in-- == 0 ? -ECANCELED : 0;
}

static const struct rekey_ops ops = {.base_read = base_read,
				     .base_write = base_write,
				     .base_flush = base_flush,
				     .base_blocks = base_blocks,
				     .journal_read = journal_read,
				     .journal_write = journal_write,
				     .journal_flush = journal_flush,
				     .hold = hold,
				     .moved = moved,
				     .pace = pace};

/* --- Beginning, and what must be there --- */

static void engine_make(struct rekey_engine *e)
{
	*e = (struct rekey_engine){.ops = &ops,
				   .old_secret = old_key,
				   .new_secret = new_key,
				   .old_bytes = sizeof(old_key),
				   .new_bytes = sizeof(new_key),
				   .block_size = BLOCK,
				   .chunk_blocks = CHUNK,
				   .journal_block = SECTOR,
				   .base_name = "t0"};
	CU_ASSERT_EQUAL_FATAL(rekey_engine_init(e), 0);
}

static void sim_reset(uint64_t seed)
{
	memset(&sim, 0, sizeof(sim));
	random_state = seed;
	sim.fails_in = sim.stops_in = -1;
	sim.blocks = BLOCKS;
	sim.lost = UINT64_MAX;
	sim.journal = JOURNAL;
	sim.user = true;
	for (uint64_t lba = 0; lba < BLOCKS; lba++) {
		user_write(lba);
	}
	(void)log_add(BASE, true, 0, 0, NULL);
	memcpy(sim.at_first, sim.now, sizeof(sim.at_first));
	sim.logged = 0;
}

/* The version of a block: the one that it decrypts to. -1: to none. */
static int block_version(uint64_t lba, bool with_new)
{
	uint8_t plain[BLOCK], expected[BLOCK];

	CU_ASSERT_TRUE(crypto_xts_block(user_xts[with_new].decrypt, lba, sim.now[BASE] + lba * BLOCK, plain, BLOCK));
	block_fill(lba, plain[0], expected);
	return memcmp(plain, expected, BLOCK) == 0 ? plain[0] : -1;
}

/* Each block below `position` has the new key, each other one the old, and what it has is not older than `flushed`, nor
 * younger than what was written. */
static void expect_blocks(uint64_t position, const uint8_t *flushed, const uint8_t *newest)
{
	for (uint64_t lba = 0; lba < BLOCKS; lba++) {
		int version = block_version(lba, lba < position);
		CU_ASSERT_TRUE(version >= flushed[lba] && version <= newest[lba]);
	}
}

static void expect_all_done(void)
{
	CU_ASSERT_EQUAL(sim.position, UINT64_MAX);
	expect_blocks(UINT64_MAX, sim.version, sim.version);
}

/* --- The crash --- */

/* Sectors are written whole or not at all; but nothing is said of those of journals. */
static void apply(const struct entry *e, bool in_part)
{
	uint32_t unit = e->device == BASE ? SECTOR : 16;

	for (uint32_t at = 0; at < e->bytes; at += unit) {
		if (!in_part || rnd(2) != 0) {
			memcpy(sim.now[e->device] + e->offset + at, e->data + at, unit);
		}
	}
}

/* Power fails after n operations: what was flushed is there, of everything else some. */
static void crash_after(unsigned n)
{
	int flushed_at[DEVICES] = {-1, -1, -1};

	memcpy(sim.now, sim.at_first, sizeof(sim.now));
	for (unsigned i = 0; i < n; i++) {
		flushed_at[sim.log[i].device] = sim.log[i].flush ? (int)i : flushed_at[sim.log[i].device];
	}
	for (unsigned i = 0; i < n; i++) {
		const struct entry *e = &sim.log[i];
		bool sure = (int)i < flushed_at[e->device];
		if (!e->flush && (sure || rnd(3) != 0)) {
			apply(e, !sure && rnd(2) == 0);
		}
	}
	if (n > 0) {
		memcpy(sim.version, sim.log[n - 1].version, sizeof(sim.version));
		memcpy(sim.flushed, sim.log[n - 1].flushed, sizeof(sim.flushed));
	}
}

/* Opens it again. Everything is held until the journal has been read. */
static int resume(struct rekey_engine *e)
{
	engine_make(e);
	sim.held_first = 0;
	sim.held_end = UINT64_MAX;
	int rc = rekey_engine_begin(e, REKEY_RESUME);
	if (rc == 0) {
		moved(NULL, e->position);
	}
	return rc;
}

static void crash_is_survived(unsigned n)
{
	uint8_t flushed[BLOCKS], version[BLOCKS];
	struct rekey_engine e;

	crash_after(n);
	memcpy(flushed, sim.flushed, sizeof(flushed));
	memcpy(version, sim.version, sizeof(version));
	sim.user = false;
	int rc = resume(&e);
	if (rc == -EINVAL) { /* nobody was told that it had begun */
		expect_blocks(0, flushed, version);
	} else if (rc == 1) {
		expect_blocks(UINT64_MAX, flushed, version);
	} else {
		CU_ASSERT_EQUAL(rc, 0);
		expect_blocks(e.position, flushed, version);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		expect_blocks(UINT64_MAX, flushed, version);
	}
	rekey_engine_fini(&e);
}

/* Keeps the log of what led here, which a recovery would add to. */
static void crash_between(unsigned first, unsigned last)
{
	for (unsigned n = first; n <= last; n++) {
		sim.fails_in = sim.stops_in = -1;
		crash_is_survived(n);
		sim.logged = last;
	}
}

static void crash_everywhere(unsigned tries)
{
	unsigned logged = sim.logged;

	for (unsigned n = 0; n <= logged; n += unit_stride()) {
		for (unsigned i = 0; i < tries; i++) {
			if (n == 0) {
				memset(sim.version, 1, sizeof(sim.version));
				memset(sim.flushed, 1, sizeof(sim.flushed));
			}
			sim.fails_in = -1;
			crash_is_survived(n);
			sim.logged = logged;
		}
	}
}

/* --- Tests --- */

static void test_all_blocks_get_the_new_key_under_writes(void)
{
	struct rekey_engine e;

	for (uint64_t seed = 1; seed <= 20; seed++) {
		sim_reset(seed);
		engine_make(&e);
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		expect_all_done();
		CU_ASSERT_EQUAL(e.head.state, REKEY_DONE);
		rekey_engine_fini(&e);
	}
}

static void test_a_crash_at_any_moment_loses_nothing(void)
{
	struct rekey_engine e;

	for (uint64_t seed = 1; seed <= 12; seed++) {
		sim_reset(seed);
		engine_make(&e);
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		rekey_engine_fini(&e);
		crash_everywhere(3);
	}
}

static void test_a_crash_while_it_recovers_loses_nothing(void)
{
	struct rekey_engine e;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		sim_reset(seed);
		engine_make(&e);
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		rekey_engine_fini(&e);
		unsigned n = 10 + rnd(sim.logged - 20);
		crash_after(n);
		memcpy(sim.at_first, sim.now, sizeof(sim.at_first));
		for (unsigned lba = 0; lba < BLOCKS; lba++) { /* what has survived once must survive */
			int version = block_version(lba, false);
			version = version > 0 ? version : block_version(lba, true);
			sim.version[lba] = (uint8_t)(version > 0 ? version : sim.version[lba]);
		}
		uint8_t flushed[BLOCKS], version[BLOCKS];
		memcpy(flushed, sim.flushed, sizeof(flushed));
		memcpy(version, sim.version, sizeof(version));
		sim.logged = 0;
		sim.user = false;
		CU_ASSERT_EQUAL_FATAL(resume(&e), 0);
		sim.stops_in = (int)rnd(3);
		(void)rekey_engine_run(&e);
		rekey_engine_fini(&e);
		unsigned logged = sim.logged;
		for (unsigned i = 0; i <= logged; i++) {
			sim.stops_in = -1;
			crash_after(i);
			memcpy(sim.flushed, flushed, sizeof(flushed));
			memcpy(sim.version, version, sizeof(version));
			int rc = resume(&e);
			CU_ASSERT_TRUE(rc == 0 || rc == 1);
			expect_blocks(rc == 1 ? UINT64_MAX : e.position, flushed, version);
			rekey_engine_fini(&e);
			sim.logged = logged;
		}
	}
}

/* Operation number `at` fails. What the engine does not hold then, users may write. True: there are fewer. */
static bool nothing_is_left_to_fail(int at, struct rekey_engine *e)
{
	sim_reset((uint64_t)at + 1);
	engine_make(e);
	sim.fails_in = at;
	int rc = rekey_engine_begin(e, REKEY_NEW);
	rc = rc != 0 ? rc : rekey_engine_run(e);
	if (rc == 0) {
		rekey_engine_fini(e);
		return true;
	}
	CU_ASSERT_EQUAL(rc, -EIO);
	CU_ASSERT_NOT_EQUAL(e->error[0], 0);
	CU_ASSERT_EQUAL(e->holds, sim.held_end != 0);
	for (unsigned i = 0; i < 20; i++) {
		user_acts();
	}
	return false;
}

static void test_after_a_failure_it_goes_on_where_it_was(void)
{
	struct rekey_engine e;
	int at;

	for (at = 0; !nothing_is_left_to_fail(at, &e); at++) {
		sim.journal = at % 2 != 0 ? OTHER_JOURNAL : JOURNAL;
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		CU_ASSERT_FALSE(e.holds);
		expect_all_done();
		rekey_engine_fini(&e);
	}
	CU_ASSERT_TRUE(at > 50);
}

static void test_a_crash_after_a_failure_loses_nothing(void)
{
	struct rekey_engine e;
	int at;

	for (at = 0; !nothing_is_left_to_fail(at, &e); at++) {
		rekey_engine_fini(&e);
		crash_between(sim.logged > 12 ? sim.logged - 12 : 1, sim.logged);
	}
	CU_ASSERT_TRUE(at > 50);
}

static void test_it_stops_between_chunks_and_continues(void)
{
	struct rekey_engine e;

	sim_reset(5);
	engine_make(&e);
	sim.stops_in = 1;
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
	CU_ASSERT_EQUAL(rekey_engine_run(&e), -ECANCELED);
	CU_ASSERT_FALSE(e.holds);
	CU_ASSERT_EQUAL(e.position, 2 * CHUNK);
	expect_blocks(e.position, sim.version, sim.version);
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
	CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
	expect_all_done();
	rekey_engine_fini(&e);
}

/* It may be readable later: with the old key. */
static void test_a_block_that_cannot_be_read_is_not_left_behind(void)
{
	struct rekey_engine e;

	for (uint64_t lost = 0; lost < BLOCKS; lost += 5) {
		sim_reset(6);
		sim.user = false;
		sim.lost = lost;
		engine_make(&e);
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), -EIO);
		CU_ASSERT_EQUAL(e.position, lost);
		CU_ASSERT_FALSE(e.holds);
		CU_ASSERT_PTR_NOT_NULL(strstr(e.error, "cannot be read"));
		expect_blocks(e.position, sim.version, sim.version);
		sim.lost = UINT64_MAX;
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		expect_all_done();
		rekey_engine_fini(&e);
	}
}

static void test_a_base_that_has_become_smaller_ends_it_sooner(void)
{
	struct rekey_engine e;

	for (uint32_t blocks = BLOCKS - 2; blocks > BLOCKS - 8; blocks--) {
		for (int resumed = 0; resumed < 2; resumed++) {
			sim_reset(9);
			sim.user = false;
			engine_make(&e);
			CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
			sim.stops_in = 4;
			CU_ASSERT_EQUAL(rekey_engine_run(&e), -ECANCELED);
			CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
			sim.fails_in = 4; /* the write of the last chunk but one bit */
			CU_ASSERT_EQUAL(rekey_engine_run(&e), -EIO);
			CU_ASSERT_TRUE(e.pending != 0 && e.holds);
			sim.blocks = blocks;
			sim.fails_in = sim.stops_in = -1;
			if (resumed) {
				rekey_engine_fini(&e);
				CU_ASSERT_EQUAL(resume(&e), 0);
			} else {
				CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
			}
			CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
			CU_ASSERT_EQUAL(sim.position, UINT64_MAX);
			for (uint64_t lba = 0; lba < blocks; lba++) {
				CU_ASSERT_EQUAL(block_version(lba, true), 1);
			}
			rekey_engine_fini(&e);
		}
	}
}

/* The process ends after n operations: nothing is lost, but what was not flushed is not sure either. */
static void kill_after(unsigned n)
{
	memcpy(sim.now, sim.at_first, sizeof(sim.now));
	for (unsigned i = 0; i < n; i++) {
		if (!sim.log[i].flush) {
			apply(&sim.log[i], false);
		}
	}
	sim.logged = n;
	memcpy(sim.version, sim.log[n - 1].version, sizeof(sim.version));
	memcpy(sim.flushed, sim.log[n - 1].flushed, sizeof(sim.flushed));
}

static void users_write_and_flush(void)
{
	for (unsigned i = 0; i < 20; i++) {
		user_acts();
	}
	(void)log_add(BASE, true, 0, 0, NULL);
}

static void test_a_killed_process_and_then_a_failure_of_power_lose_nothing(void)
{
	struct rekey_engine e;

	for (uint64_t seed = 1; seed <= 60; seed++) {
		sim_reset(seed);
		engine_make(&e);
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
		unsigned begun = sim.logged;
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		rekey_engine_fini(&e);
		unsigned n = begun + rnd(sim.logged - begun);
		kill_after(n);
		int rc = resume(&e);
		CU_ASSERT_TRUE(rc == 0 || rc == 1);
		if (rc == 1) {
			moved(NULL, UINT64_MAX);
		}
		users_write_and_flush();
		sim.stops_in = (int)rnd(2);
		rc = rc == 0 ? rekey_engine_run(&e) : 0;
		rekey_engine_fini(&e);
		crash_between(n + 1, sim.logged);
	}
}

/* The recovery itself fails at operation `at`, and is tried again by the same engine. False: nothing is left to fail.
 */
static bool recovers_after_a_failure(unsigned killed_at, int at)
{
	struct rekey_engine e;

	sim.user = false;
	kill_after(killed_at);
	sim.fails_in = at;
	int rc = resume(&e);
	sim.fails_in = -1;
	bool failed = rc == -EIO;
	if (failed) {
		rc = rekey_engine_begin(&e, REKEY_RESUME);
		if (rc == 0 && !e.holds) {
			moved(NULL, e.position);
		}
	}
	CU_ASSERT_TRUE(rc == 0 || rc == 1);
	if (rc == 0) {
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
	}
	rekey_engine_fini(&e);
	expect_blocks(UINT64_MAX, sim.version, sim.version);
	return failed;
}

static void test_a_recovery_that_fails_can_be_tried_again(void)
{
	struct rekey_engine e;

	sim_reset(3);
	engine_make(&e);
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
	unsigned begun = sim.logged;
	CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
	rekey_engine_fini(&e);
	unsigned logged = sim.logged, failures = 0;
	static struct entry kept[LOG_MAX];
	memcpy(kept, sim.log, sizeof(kept));
	for (unsigned n = begun; n < logged; n++) {
		for (int at = 0; recovers_after_a_failure(n, at); at++, failures++) {
			memcpy(sim.log, kept, sizeof(kept));
		}
		memcpy(sim.log, kept, sizeof(kept));
	}
	CU_ASSERT_TRUE(failures > 100);
}

static void run_on(struct rekey_engine *e, enum device journal, enum rekey_begin how, int stops_in)
{
	sim.journal = journal;
	CU_ASSERT_EQUAL(rekey_engine_begin(e, how), 0);
	sim.stops_in = stops_in;
	CU_ASSERT_EQUAL(rekey_engine_run(e), stops_in >= 0 ? -ECANCELED : 0);
}

/* A journal that has an older position of the same rekey says the present one before anybody relies on it. */
static void test_a_journal_that_had_the_rekey_before_is_brought_up_to_date(void)
{
	struct rekey_engine e;

	for (uint64_t seed = 1; seed <= 10; seed++) {
		sim_reset(seed);
		engine_make(&e);
		run_on(&e, JOURNAL, REKEY_NEW, 0);
		run_on(&e, OTHER_JOURNAL, REKEY_CONTINUE, 1);
		sim.journal = JOURNAL;
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
		unsigned begun = sim.logged;
		sim.stops_in = -1;
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		rekey_engine_fini(&e);
		crash_between(begun, sim.logged);
	}
}

/* The chunk was under way when the first journal failed; the other one has been used before, for an earlier chunk. */
static void test_a_chunk_under_way_goes_to_a_journal_that_has_another(void)
{
	struct rekey_engine e;

	for (int at = 0; at < 8; at++) {
		sim_reset((uint64_t)at + 1);
		engine_make(&e);
		run_on(&e, JOURNAL, REKEY_NEW, 0);
		run_on(&e, OTHER_JOURNAL, REKEY_CONTINUE, 1);
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
		sim.fails_in = at;
		CU_ASSERT_EQUAL(rekey_engine_run(&e), -EIO);
		sim.fails_in = sim.stops_in = -1;
		sim.journal = JOURNAL;
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
		unsigned begun = sim.logged;
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		expect_all_done();
		rekey_engine_fini(&e);
		crash_between(begun, sim.logged);
	}
}

/* The chunk under way fails on a journal, and beginnings on both journals fail, too. One of them always counts: the one
 * of the last beginning that has succeeded. */
static void test_beginnings_that_fail_leave_the_journal_that_counts(void)
{
	static const enum device begins[2] = {JOURNAL, OTHER_JOURNAL};
	struct rekey_engine e;

	for (int at = 0; at < 512; at += (int)unit_stride()) {
		sim_reset((uint64_t)at + 1);
		engine_make(&e);
		run_on(&e, JOURNAL, REKEY_NEW, 0);
		run_on(&e, OTHER_JOURNAL, REKEY_CONTINUE, 1);
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
		enum device counts = OTHER_JOURNAL;
		sim.fails_in = at / (int)unit_stride() % 8;
		sim.stops_in = -1;
		CU_ASSERT_EQUAL(rekey_engine_run(&e), -EIO);
		for (int i = 0; i < 3; i++) {
			sim.journal = begins[at / (8 << i) % 2];
			sim.fails_in = (int)rnd(7);
			int rc = rekey_engine_begin(&e, REKEY_CONTINUE);
			sim.fails_in = -1;
			counts = rc == 0 ? sim.journal : counts;
			unsigned logged = sim.logged;
			enum device last = sim.journal;
			sim.journal = counts;
			struct rekey_engine kept = e;
			crash_is_survived(logged);
			e = kept;
			kill_after(logged); /* it goes on as if nothing had been */
			sim.position = e.position;
			sim.held_first = e.position;
			sim.held_end = e.position + e.pending;
			sim.user = true;
			sim.journal = last;
		}
		sim.journal = counts;
		CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_CONTINUE), 0);
		CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
		expect_all_done();
		rekey_engine_fini(&e);
	}
}

/* A rekey has begun, and its process has ended before anybody was told of it; e is another engine. */
static void begun_untold(struct rekey_engine *e)
{
	sim_reset(11);
	sim.user = false;
	engine_make(e);
	CU_ASSERT_EQUAL(rekey_engine_begin(e, REKEY_NEW), 0);
	rekey_engine_fini(e);
	engine_make(e);
}

static void test_a_beginning_that_nobody_was_told_of_is_taken(void)
{
	struct rekey_engine e;

	begun_untold(&e);
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
	CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
	expect_all_done();
	rekey_engine_fini(&e);
}

static void test_a_beginning_that_cannot_be_taken_says_why(void)
{
	struct rekey_engine e;

	begun_untold(&e);
	sim.fails_in = 2; /* after the headers */
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.error, "the journal cannot be written"));
	rekey_engine_fini(&e);
}

/* Nobody has asked: what is no journal of this rekey is left as it is. */
static void test_a_bdev_that_comes_back_is_written_only_if_it_has_the_rekey(void)
{
	struct rekey_engine e;

	sim_reset(12);
	sim.user = false;
	engine_make(&e);
	run_on(&e, JOURNAL, REKEY_NEW, 0);
	unsigned logged = sim.logged;
	sim.journal = OTHER_JOURNAL;
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_RETURN), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.error, "is left as it is"));
	CU_ASSERT_EQUAL(sim.logged, logged);
	run_on(&e, OTHER_JOURNAL, REKEY_CONTINUE, 0);
	sim.journal = JOURNAL; /* it had it before */
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_RETURN), 0);
	logged = sim.logged;
	sim.now[OTHER_JOURNAL][0] ^= 1; /* both headers are none */
	sim.now[OTHER_JOURNAL][REKEY_HEADER_STRIDE] ^= 1;
	sim.journal = OTHER_JOURNAL;
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_RETURN), -EINVAL);
	CU_ASSERT_EQUAL(sim.logged, logged);
	run_on(&e, JOURNAL, REKEY_RETURN, -1);
	rekey_engine_fini(&e);
	expect_all_done();
}

static void expect_begin(enum rekey_begin how, int rc, const char *words)
{
	struct rekey_engine e;

	engine_make(&e);
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, how), rc);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.error, words));
	rekey_engine_fini(&e);
}

static void test_a_journal_of_another_rekey_is_refused(void)
{
	struct rekey_engine e;

	sim_reset(7);
	sim.user = false;
	expect_begin(REKEY_RESUME, -EINVAL, "has none");
	engine_make(&e);
	sim.stops_in = 0;
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
	CU_ASSERT_EQUAL(rekey_engine_run(&e), -ECANCELED);
	rekey_engine_fini(&e);
	expect_begin(REKEY_NEW, -EEXIST, "bdev t0 that has not ended");
	engine_make(&e);
	e.old_secret = new_key;
	e.new_secret = old_key;
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_RESUME), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.error, "key_name is wrong"));
	rekey_engine_fini(&e);
	engine_make(&e);
	e.new_secret = old_key;
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_RESUME), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.error, "the new key is wrong"));
	rekey_engine_fini(&e);
	engine_make(&e);
	snprintf(e.base_name, sizeof(e.base_name), "t1");
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_RESUME), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.error, "of bdev t0"));
	rekey_engine_fini(&e);
	engine_make(&e);
	e.block_size = 2 * BLOCK;
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_RESUME), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(e.error, "blocks of 512 bytes"));
	rekey_engine_fini(&e);
}

static void test_a_copy_that_is_damaged_is_not_written(void)
{
	struct rekey_engine e;
	unsigned n;

	sim_reset(8);
	sim.user = false;
	engine_make(&e);
	CU_ASSERT_EQUAL(rekey_engine_begin(&e, REKEY_NEW), 0);
	CU_ASSERT_EQUAL(rekey_engine_run(&e), 0);
	rekey_engine_fini(&e);
	for (n = 0; sim.log[n].device != BASE; n++) {
	}
	crash_after(n);
	sim.now[JOURNAL][REKEY_CHUNK_OFFSET + 5] ^= 1;
	expect_begin(REKEY_RESUME, -EILSEQ, "is damaged");
}

static int start(void)
{
	return crypto_xts_create(&user_xts[0], old_key, sizeof(old_key)) != 0 ||
	       crypto_xts_create(&user_xts[1], new_key, sizeof(new_key)) != 0;
}

static int stop(void)
{
	crypto_xts_destroy(&user_xts[0]);
	crypto_xts_destroy(&user_xts[1]);
	return 0;
}

static const struct unit_test tests[] = {
	UNIT(test_all_blocks_get_the_new_key_under_writes),
	UNIT(test_a_crash_at_any_moment_loses_nothing),
	UNIT(test_a_crash_while_it_recovers_loses_nothing),
	UNIT(test_after_a_failure_it_goes_on_where_it_was),
	UNIT(test_a_crash_after_a_failure_loses_nothing),
	UNIT(test_it_stops_between_chunks_and_continues),
	UNIT(test_a_block_that_cannot_be_read_is_not_left_behind),
	UNIT(test_a_base_that_has_become_smaller_ends_it_sooner),
	UNIT(test_a_killed_process_and_then_a_failure_of_power_lose_nothing),
	UNIT(test_a_recovery_that_fails_can_be_tried_again),
	UNIT(test_a_journal_that_had_the_rekey_before_is_brought_up_to_date),
	UNIT(test_a_chunk_under_way_goes_to_a_journal_that_has_another),
	UNIT(test_beginnings_that_fail_leave_the_journal_that_counts),
	UNIT(test_a_beginning_that_nobody_was_told_of_is_taken),
	UNIT(test_a_beginning_that_cannot_be_taken_says_why),
	UNIT(test_a_bdev_that_comes_back_is_written_only_if_it_has_the_rekey),
	UNIT(test_a_journal_of_another_rekey_is_refused),
	UNIT(test_a_copy_that_is_damaged_is_not_written),
	UNIT_END,
};
UNIT_MAIN("bdev_crypto_rekey", tests, start, stop)
