/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/unit.h"

#include "tools/perf/ledger.h"
#include "tools/perf/pattern.h"

#define UNITS    8
#define BLOCKS   4
#define THE_UNIT 3 /* the one that is written */

static struct ledger l;

static int ledger_setup(void)
{
	return ledger_init(&l, UNITS, BLOCKS) ? 0 : -1;
}

static void begin(void)
{
	ledger_fini(&l);
	CU_ASSERT_FATAL(ledger_init(&l, UNITS, BLOCKS));
}

static int ledger_teardown(void)
{
	ledger_fini(&l);
	return 0;
}

/* The n-th write of THE_UNIT is answered. */
static void written(uint32_t n, bool success)
{
	uint64_t number = ledger_issue(&l, THE_UNIT, n * 10);

	CU_ASSERT_EQUAL(l.issued[THE_UNIT], n);
	ledger_answer(&l, THE_UNIT, number, n * 10 + 5, success);
}

static void read_all(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	ledger_note_read(&l, THE_UNIT, (uint32_t[]){a, b, c, d});
}

static void test_only_the_last_acknowledged_write_may_be_read(void)
{
	begin();
	written(1, true);
	written(2, true);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 2), LEDGER_ALLOWED);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 1), LEDGER_STALE);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 3), LEDGER_NEVER_WRITTEN);
}

/* A disk on which an old write lands behind a newer one that was acknowledged: it waited on another path. */
static void test_an_old_write_that_lands_behind_a_newer_one_is_found(void)
{
	uint8_t disk[BLOCKS * 512], late[BLOCKS * 512];
	struct pattern_write w = {.writer = pattern_writer_id("nqn.2026-11.io.varve:host", 7, 0, 1)};
	struct pattern_found found;

	begin();
	uint64_t number = ledger_issue(&l, THE_UNIT, 100);
	w.generation = l.issued[THE_UNIT];
	w.issued_ms = 100;
	pattern_fill(late, 512, BLOCKS, THE_UNIT * BLOCKS, &w);
	pattern_fill(disk, 512, BLOCKS, THE_UNIT * BLOCKS, &w); /* submitted again by the other path */
	ledger_answer(&l, THE_UNIT, number, 7300, true);
	number = ledger_issue(&l, THE_UNIT, 7400);
	w.generation = l.issued[THE_UNIT];
	w.issued_ms = 7400;
	pattern_fill(disk, 512, BLOCKS, THE_UNIT * BLOCKS, &w);
	ledger_answer(&l, THE_UNIT, number, 7410, true);
	CU_ASSERT(pattern_read(disk + 512, 512, &found));
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 1, found.write.generation), LEDGER_ALLOWED);

	memcpy(disk + 512, late + 512, 512);
	CU_ASSERT(pattern_read(disk + 512, 512, &found));
	CU_ASSERT_EQUAL(found.lba, THE_UNIT * BLOCKS + 1);
	CU_ASSERT_EQUAL(found.write.writer, w.writer);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 1, found.write.generation), LEDGER_STALE);
	struct ledger_write stale = ledger_find_write(&l, THE_UNIT, found.write.generation);
	CU_ASSERT_EQUAL(stale.issued_ms, 100);
	CU_ASSERT_EQUAL(stale.answered_ms, 7300);
	CU_ASSERT_EQUAL(stale.fate, LEDGER_ACKNOWLEDGED);
}

static void test_a_write_without_an_answer_may_be_there_or_not(void)
{
	begin();
	written(1, true);
	ledger_issue(&l, THE_UNIT, 20);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 1), LEDGER_ALLOWED);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 2), LEDGER_ALLOWED);
	CU_ASSERT_EQUAL(ledger_find_write(&l, THE_UNIT, 2).fate, LEDGER_OPEN);
}

static void test_failed_writes_may_be_there_or_not_until_a_later_one_is_acknowledged(void)
{
	begin();
	written(1, true);
	written(2, false);
	written(3, false);
	for (uint32_t g = 1; g <= 3; g++) {
		CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, g), LEDGER_ALLOWED);
	}
	CU_ASSERT_EQUAL(ledger_find_write(&l, THE_UNIT, 2).fate, LEDGER_FAILED);
	written(4, true);
	for (uint32_t g = 1; g <= 3; g++) {
		CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, g), LEDGER_STALE);
	}
}

static void test_what_was_read_once_is_never_followed_by_something_older(void)
{
	begin();
	written(1, true);
	written(2, false);
	written(3, false);
	read_all(2, 2, 2, 2);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 1), LEDGER_WENT_BACK);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 2), LEDGER_ALLOWED);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 3), LEDGER_ALLOWED);
	read_all(3, 3, 3, 3);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 2), LEDGER_WENT_BACK);
	CU_ASSERT_EQUAL(l.num_torn, 0);
}

static void test_blocks_of_a_write_that_was_carried_out_in_part_are_followed_one_by_one(void)
{
	begin();
	written(1, true);
	written(2, false);
	read_all(2, 1, 1, 2);
	CU_ASSERT_EQUAL(l.num_torn, 1);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 1), LEDGER_WENT_BACK);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 1, 1), LEDGER_ALLOWED);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 1, 2), LEDGER_ALLOWED);
	read_all(2, 2, 1, 2);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 1, 1), LEDGER_WENT_BACK);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 2, 1), LEDGER_ALLOWED);
	written(3, true);
	CU_ASSERT_EQUAL(l.num_torn, 0);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 2), LEDGER_STALE);
}

static void test_a_stale_block_does_not_change_what_is_allowed(void)
{
	begin();
	written(1, true);
	written(2, true);
	written(3, false);
	read_all(1, 1, 1, 1);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 1), LEDGER_STALE);
	read_all(1, 3, 9, 2);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 0, 2), LEDGER_ALLOWED);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 1, 2), LEDGER_WENT_BACK);
	CU_ASSERT_EQUAL(ledger_judge(&l, THE_UNIT, 2, 2), LEDGER_ALLOWED);
}

static void test_memory_is_bounded(void)
{
	static struct ledger many;

	CU_ASSERT_FATAL(ledger_init(&many, LEDGER_TORN_MAX + 10, 2));
	for (uint64_t u = 0; u < many.units; u++) {
		ledger_answer(&many, u, ledger_issue(&many, u, 0), 1, true);
		ledger_answer(&many, u, ledger_issue(&many, u, 2), 3, false);
		ledger_note_read(&many, u, (uint32_t[]){1, 2});
	}
	CU_ASSERT_EQUAL(many.num_torn, LEDGER_TORN_MAX);
	CU_ASSERT_EQUAL(many.torn_dropped, 10);
	CU_ASSERT_EQUAL(ledger_judge(&many, many.units - 1, 1, 1), LEDGER_ALLOWED); /* weaker, never wrong */
	CU_ASSERT_EQUAL(ledger_judge(&many, 0, 1, 1), LEDGER_WENT_BACK);
	uint64_t first = ledger_issue(&many, 0, 5);
	for (unsigned i = 0; i < LEDGER_HISTORY; i++) {
		ledger_answer(&many, 1, ledger_issue(&many, 1, i), i, true);
	}
	CU_ASSERT_EQUAL(ledger_find_write(&many, 0, 3).generation, 0); /* forgotten */
	ledger_answer(&many, 0, first, 6, true);
	CU_ASSERT_EQUAL(ledger_judge(&many, 0, 0, 3), LEDGER_ALLOWED);
	CU_ASSERT_EQUAL(ledger_judge(&many, 0, 0, 2), LEDGER_STALE);
	ledger_fini(&many);
}

static void test_a_restored_ledger_judges_as_the_saved_one(void)
{
	static struct ledger again;

	begin();
	written(1, true);
	written(2, false);
	read_all(1, 2, 1, 2);
	CU_ASSERT_FATAL(ledger_init(&again, UNITS, BLOCKS));
	for (uint32_t b = 0; b < BLOCKS; b++) {
		ledger_restore_block(&again, THE_UNIT, b, ledger_block_floor(&l, THE_UNIT, b), l.issued[THE_UNIT]);
	}
	for (uint32_t b = 0; b < BLOCKS; b++) {
		for (uint32_t g = 0; g <= 3; g++) {
			CU_ASSERT_EQUAL(ledger_judge(&again, THE_UNIT, b, g) == LEDGER_ALLOWED,
					ledger_judge(&l, THE_UNIT, b, g) == LEDGER_ALLOWED);
		}
	}
	ledger_fini(&again);
}

static const struct unit_test tests[] = {
	UNIT(test_only_the_last_acknowledged_write_may_be_read),
	UNIT(test_an_old_write_that_lands_behind_a_newer_one_is_found),
	UNIT(test_a_write_without_an_answer_may_be_there_or_not),
	UNIT(test_failed_writes_may_be_there_or_not_until_a_later_one_is_acknowledged),
	UNIT(test_what_was_read_once_is_never_followed_by_something_older),
	UNIT(test_blocks_of_a_write_that_was_carried_out_in_part_are_followed_one_by_one),
	UNIT(test_a_stale_block_does_not_change_what_is_allowed),
	UNIT(test_memory_is_bounded),
	UNIT(test_a_restored_ledger_judges_as_the_saved_one),
	UNIT_END,
};
UNIT_MAIN("perf_ledger", tests, ledger_setup, ledger_teardown)
