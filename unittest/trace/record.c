/* SPDX-License-Identifier: BSD-3-Clause */
/* Recording: what a TRACE() leaves in the file, byte for byte, and when it leaves nothing. */
#include <pthread.h>

#include "unittest/trace/fixture.h"

static uint8_t *file;
static size_t file_size;
static const struct trace_file_history *ring;

/* Looks at the file as it is now, and at lcore 0's ring in it. */
static void look(void)
{
	file = fixture_read(trace_file_path(), &file_size);
	ring = fixture_history(file, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(ring);
}

static void done(void)
{
	free(file);
	file = NULL;
	fixture_stop();
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

static void test_event_without_arguments_is_one_slot(void)
{
	fixture_start(64);
	uint64_t before = ticks_now();
	TRACE(TEST_NONE, 7, 4096, 0x1122334455667788);
	uint64_t after = ticks_now();
	look();
	const struct trace_file_entry *e = &ring->entries[0];
	CU_ASSERT_EQUAL(ring->next_entry, 1);
	CU_ASSERT(e->tsc >= before && e->tsc <= after);
	CU_ASSERT_EQUAL(e->tpoint_id, 0x13 * 64 + 0);
	CU_ASSERT_EQUAL(e->owner_id, 7);
	CU_ASSERT_EQUAL(e->size, 4096);
	CU_ASSERT_EQUAL(e->object_id, 0x1122334455667788);
	CU_ASSERT_EQUAL(ring->tpoint_count[TRACE_TPOINT_TEST_NONE], 1);
	CU_ASSERT_EQUAL(fixture_stamps(file, 0)[0], e->tsc << 32 | 1);
	CU_ASSERT_EQUAL(ring->entries[1].tsc, 0);
	done();
}

static void test_first_eight_bytes_of_arguments_are_in_the_entry(void)
{
	fixture_start(64);
	TRACE(TEST_ONE, 0, 0, 0, 0xa1a2a3a4a5a6a7a8);
	look();
	CU_ASSERT_EQUAL(ring->next_entry, 1);
	CU_ASSERT_EQUAL(load64(ring->entries[0].args), 0xa1a2a3a4a5a6a7a8);
	done();
}

/* The packed arguments of the event whose entry is in slot `at` of the ring, put together again. */
static void gather(const struct trace_file_history *h, uint64_t at, uint8_t *args, size_t size)
{
	const struct trace_file_entry *e = &h->entries[at & (h->num_entries - 1)];
	size_t have = size < TRACE_ENTRY_ARG_BYTES ? size : TRACE_ENTRY_ARG_BYTES;

	memcpy(args, e->args, have);
	for (uint64_t k = 1; have < size; k++) {
		const struct trace_file_continuation *c = (const void *)&h->entries[(at + k) & (h->num_entries - 1)];
		size_t n = size - have < TRACE_CONTINUATION_ARG_BYTES ? size - have : TRACE_CONTINUATION_ARG_BYTES;
		CU_ASSERT_EQUAL(c->tpoint_id, TRACE_TPOINT_ID_CONTINUATION);
		CU_ASSERT_EQUAL(c->tsc, e->tsc);
		memcpy(args + have, c->args, n);
		have += n;
	}
}

static void test_arguments_continue_22_bytes_per_slot(void)
{
	uint8_t args[32];

	fixture_start(64);
	TRACE(TEST_FOUR, 0, 0, 0, 0x0102030405060708, 0x1112131415161718, 0x2122232425262728, 0x3132333435363738);
	look();
	CU_ASSERT_EQUAL(ring->next_entry, 3);
	gather(ring, 0, args, sizeof(args));
	CU_ASSERT_EQUAL(load64(args), 0x0102030405060708);
	CU_ASSERT_EQUAL(load64(args + 8), 0x1112131415161718);
	CU_ASSERT_EQUAL(load64(args + 16), 0x2122232425262728);
	CU_ASSERT_EQUAL(load64(args + 24), 0x3132333435363738); /* six bytes here, two there */
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(fixture_stamps(file, 0)[i], ring->entries[0].tsc << 32 | (i + 1));
	}
	done();
}

static void test_four_byte_argument_across_two_slots_is_whole(void)
{
	uint8_t args[32];
	uint32_t v[6];

	fixture_start(64);
	TRACE(NVME_PCIE_SUBMIT, 1, 0, 2, (void *)0xc0ffee, 0x11111111, 0x22222222, 0x33333333, 0x44444444, 0x55555555,
	      0x66778899);
	look();
	gather(ring, 0, args, sizeof(args));
	memcpy(v, args + 8, sizeof(v));
	CU_ASSERT_EQUAL(load64(args), 0xc0ffee);
	CU_ASSERT_EQUAL(v[0], 0x11111111);
	CU_ASSERT_EQUAL(v[4], 0x55555555);
	CU_ASSERT_EQUAL(v[5], 0x66778899);
	done();
}

static void test_strings_are_cut_padded_and_counted(void)
{
	const char *exact = "0123456789012345678901234567890", *longer = "0123456789012345678901234567890123";
	uint8_t args[44];

	fixture_start(64);
	TRACE(TEST_STRING, 0, 0, 0, 0xaabbccdd, "short", (void *)0x1234);
	TRACE(TEST_STRING, 0, 0, 0, 0xaabbccdd, exact, (void *)0x1234);
	TRACE(TEST_STRING, 0, 0, 0, 0xaabbccdd, longer, (void *)0x1234);
	TRACE(TEST_STRING, 0, 0, 0, 0xaabbccdd, NULL, (void *)0x1234);
	look();
	const struct trace_file_loss *loss = fixture_section(file, TRACE_SECTION_LOSS);
	const char *expected[] = {"short", exact, exact, ""};
	for (unsigned i = 0; i < 4; i++) {
		uint32_t before;
		gather(ring, 3 * i, args, sizeof(args));
		memcpy(&before, args, sizeof(before));
		CU_ASSERT_EQUAL(before, 0xaabbccdd);
		CU_ASSERT_STRING_EQUAL((char *)args + 4, expected[i]);
		CU_ASSERT_EQUAL(args[35], 0);
		CU_ASSERT_EQUAL(load64(args + 36), 0x1234);
	}
	CU_ASSERT_EQUAL(((const struct trace_file_slot_loss *)(loss + 1))[0].strings_truncated, 1);
	done();
}

static void test_the_longest_event_takes_twelve_slots(void)
{
	char a[128], b[64], c[32], d[16];
	uint8_t args[248];

	memset(a, 'a', sizeof(a) - 1);
	memset(b, 'b', sizeof(b) - 1);
	memset(c, 'c', sizeof(c) - 1);
	memset(d, 'd', sizeof(d) - 1);
	a[127] = b[63] = c[31] = d[15] = '\0';
	fixture_start(64);
	for (unsigned i = 0; i < 11; i++) { /* twice around the ring */
		TRACE(TEST_LONG, 0, i, 0, a, b, c, d, 0x12345678, 0x9abcdef0);
	}
	look();
	CU_ASSERT_EQUAL(ring->next_entry, 11 * 12);
	gather(ring, 10 * 12, args, sizeof(args));
	CU_ASSERT_STRING_EQUAL((char *)args, a);
	CU_ASSERT_STRING_EQUAL((char *)args + 128, b);
	CU_ASSERT_STRING_EQUAL((char *)args + 192, c);
	CU_ASSERT_STRING_EQUAL((char *)args + 224, d);
	CU_ASSERT_EQUAL(load64(args + 240), 0x9abcdef012345678);
	done();
}

static void test_ring_wraps_and_keeps_the_newest(void)
{
	fixture_start(64);
	for (uint64_t i = 0; i < 1000; i++) {
		TRACE(TEST_ONE, 0, 0, i, i);
	}
	look();
	CU_ASSERT_EQUAL(ring->next_entry, 1000);
	CU_ASSERT_EQUAL(ring->tpoint_count[TRACE_TPOINT_TEST_ONE], 1000);
	for (uint64_t i = 1000 - 64; i < 1000; i++) {
		const struct trace_file_entry *e = &ring->entries[i % 64];
		CU_ASSERT_EQUAL(e->object_id, i);
		CU_ASSERT_EQUAL(fixture_stamps(file, 0)[i % 64], e->tsc << 32 | (i + 1));
	}
	struct trace_slot_stats stats;
	CU_ASSERT_TRUE(trace_get_slot_stats(0, &stats));
	CU_ASSERT_EQUAL(stats.recorded, 1000);
	CU_ASSERT_EQUAL(stats.wrapped, 1000 - 64);
	done();
}

static void test_event_of_several_slots_may_wrap(void)
{
	uint8_t args[32];

	fixture_start(64);
	for (unsigned i = 0; i < 62; i++) {
		TRACE(TEST_NONE, 0, 0, 0);
	}
	TRACE(TEST_FOUR, 0, 0, 0, 1, 2, 3, 0x0405060708090a0b); /* slots 62, 63 and 0 */
	look();
	CU_ASSERT_EQUAL(ring->next_entry, 65);
	gather(ring, 62, args, sizeof(args));
	CU_ASSERT_EQUAL(load64(args + 24), 0x0405060708090a0b);
	CU_ASSERT_EQUAL(ring->entries[0].tpoint_id, TRACE_TPOINT_ID_CONTINUATION);
	done();
}

static int evaluated;
static uint64_t evaluate(void)
{
	return (uint64_t)++evaluated;
}

static void test_disabled_tracepoint_evaluates_nothing(void)
{
	fixture_start(64);
	CU_ASSERT_EQUAL(trace_clear_tpoints(TRACE_GROUP_TEST, 1u << 1), 0);
	evaluated = 0;
	TRACE(TEST_ONE, 0, 0, 0, evaluate());
	CU_ASSERT_EQUAL(evaluated, 0);
	CU_ASSERT_FALSE(TRACE_ENABLED(TEST_ONE));
	CU_ASSERT_TRUE(TRACE_ENABLED(TEST_NONE));
	TRACE(TEST_NONE, 0, 0, evaluate());
	CU_ASSERT_EQUAL(evaluated, 1);
	look();
	CU_ASSERT_EQUAL(ring->next_entry, 1);
	done();
}

static void *record_one(void *arg)
{
	TRACE(TEST_ONE, 0, 0, 5, 5);
	return NULL;
}

static void *record_one_registered(void *arg)
{
	*(int *)arg = trace_register_user_thread("user");
	TRACE(TEST_ONE, 0, 0, 6, 6);
	trace_thread_detach();
	return NULL;
}

static void run(void *(*fn)(void *), void *arg)
{
	pthread_t t;

	CU_ASSERT_EQUAL_FATAL(pthread_create(&t, NULL, fn, arg), 0);
	pthread_join(t, NULL);
}

static void test_event_of_a_thread_without_a_ring_is_counted_as_lost(void)
{
	struct trace_file_loss loss;

	fixture_start(64);
	run(record_one, NULL);
	run(record_one, NULL);
	trace_get_loss(&loss);
	CU_ASSERT_EQUAL(loss.no_slot, 2);
	look();
	CU_ASSERT_EQUAL(ring->next_entry, 0);
	done();
}

static void test_user_threads_get_slots_after_the_lcores(void)
{
	struct trace_file_loss loss;
	int rc = -1;

	fixture_start(64);
	for (int i = 0; i < 3; i++) { /* the third takes the slot that has been free for the longest time */
		run(record_one_registered, &rc);
		CU_ASSERT_EQUAL(rc, 0);
	}
	look();
	const struct trace_file_history *user = fixture_history(file, 3);
	CU_ASSERT_PTR_NOT_NULL_FATAL(user); /* lcores 0 and 2 are in use, so slots 3 and 4 are for users */
	CU_ASSERT_PTR_NULL(fixture_history(file, 1));
	CU_ASSERT_EQUAL(user->lcore, 3);
	CU_ASSERT_STRING_EQUAL(user->tname, "user");
	CU_ASSERT_EQUAL(user->next_entry, 2);
	CU_ASSERT_EQUAL(fixture_history(file, 4)->next_entry, 1);
	trace_get_loss(&loss);
	CU_ASSERT_EQUAL(loss.no_slot, 0);
	CU_ASSERT_EQUAL(trace_num_slots(), 5);
	done();
}

struct holder {
	pthread_barrier_t registered, release;
	int rc;
};

static void *hold_slot(void *arg)
{
	struct holder *h = arg;

	h->rc = trace_register_user_thread("holder");
	pthread_barrier_wait(&h->registered);
	pthread_barrier_wait(&h->release);
	trace_thread_detach();
	return NULL;
}

static void test_user_thread_beyond_the_slots_is_refused_and_counted(void)
{
	struct holder h[2];
	struct trace_file_loss loss;
	pthread_t t[2];
	int rc = 0;

	fixture_start(64);
	for (int i = 0; i < 2; i++) {
		pthread_barrier_init(&h[i].registered, NULL, 2);
		pthread_barrier_init(&h[i].release, NULL, 2);
		pthread_create(&t[i], NULL, hold_slot, &h[i]);
		pthread_barrier_wait(&h[i].registered);
		CU_ASSERT_EQUAL(h[i].rc, 0);
	}
	run(record_one_registered, &rc);
	CU_ASSERT_EQUAL(rc, -ENOSPC);
	for (int i = 0; i < 2; i++) {
		pthread_barrier_wait(&h[i].release);
		pthread_join(t[i], NULL);
	}
	trace_get_loss(&loss);
	CU_ASSERT_EQUAL(loss.threads_refused, 1);
	CU_ASSERT_EQUAL(loss.no_slot, 1);
	done();
}

static void *attach_busy(void *arg)
{
	*(int *)arg = trace_thread_attach(0, "second");
	return NULL;
}

static void test_a_ring_has_one_thread(void)
{
	int rc = 0;

	fixture_start(64);
	run(attach_busy, &rc);
	CU_ASSERT_EQUAL(rc, -EBUSY);
	CU_ASSERT_EQUAL(trace_thread_attach(2, "again"), -EEXIST);
	CU_ASSERT_EQUAL(trace_register_user_thread("again"), -EEXIST);
	trace_thread_detach();
	CU_ASSERT_EQUAL(trace_thread_attach(1, "unused lcore"), -ENOENT);
	CU_ASSERT_EQUAL(trace_thread_attach(3, "user slot"), -ENOENT);
	CU_ASSERT_EQUAL(trace_thread_attach(2, "reactor_2"), 0);
	fixture_stop();
}

struct recorder {
	bool stop; /* atomic */
	uint64_t recorded;
};

static void *record_all_the_time(void *arg)
{
	struct recorder *r = arg;

	CU_ASSERT_EQUAL(trace_thread_attach(2, "reactor_2"), 0);
	while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
		TRACE(TEST_ONE, 0, 0, 1, 1);
		TRACE(TEST_FOUR, 0, 0, 1, 1, 1, 1, 1);
	}
	trace_thread_detach();
	return NULL;
}

static void test_masks_change_while_others_record(void)
{
	struct recorder r = {0};
	pthread_t t;

	fixture_start(1024);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&t, NULL, record_all_the_time, &r), 0);
	for (int i = 0; i < 1000; i++) {
		CU_ASSERT_EQUAL(trace_clear_tpoints(TRACE_GROUP_TEST, UINT64_MAX), 0);
		CU_ASSERT_EQUAL(trace_set_tpoints(TRACE_GROUP_TEST, 1u << (i % 2 + 1)), 0);
	}
	struct trace_slot_stats s, later;
	do {
		trace_get_slot_stats(2, &s);
	} while (s.recorded == 0);
	do {
		trace_get_slot_stats(2, &later);
	} while (later.recorded == s.recorded);
	__atomic_store_n(&r.stop, true, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	look();
	const struct trace_file_history *h = fixture_history(file, 2);
	CU_ASSERT_EQUAL(h->next_entry,
			h->tpoint_count[TRACE_TPOINT_TEST_ONE] + 3 * h->tpoint_count[TRACE_TPOINT_TEST_FOUR]);
	const struct trace_file_loss *loss = fixture_section(file, TRACE_SECTION_LOSS);
	CU_ASSERT_EQUAL(loss->mask_changes, 2001);
	done();
}

static void test_the_file_shows_the_masks(void)
{
	fixture_start(64);
	for (unsigned g = 0; g < TRACE_NUM_GROUPS; g++) {
		trace_clear_tpoints(g, UINT64_MAX);
	}
	CU_ASSERT_EQUAL(trace_get_group_mask(), 0);
	CU_ASSERT_EQUAL(trace_set_tpoints(TRACE_GROUP_BDEV, 0x5), 0);
	CU_ASSERT_EQUAL(trace_set_tpoints(TRACE_GROUP_BDEV, 0x2), 0);
	CU_ASSERT_EQUAL(trace_clear_tpoints(TRACE_GROUP_BDEV, 0x1), 0);
	CU_ASSERT_EQUAL(trace_get_tpoint_mask(TRACE_GROUP_BDEV), 0x6);
	CU_ASSERT_EQUAL(trace_get_group_mask(), 0x8);
	CU_ASSERT_EQUAL(trace_set_tpoints(0, 1), -ENOENT);
	CU_ASSERT_EQUAL(trace_set_tpoints(20, 1), -ENOENT);
	look();
	const struct trace_file_table *t = fixture_section(file, TRACE_SECTION_TPOINT_MASK);
	CU_ASSERT_EQUAL(t->count, 20);
	CU_ASSERT_EQUAL(((const uint64_t *)(t + 1))[TRACE_GROUP_BDEV], 0x6);
	CU_ASSERT_EQUAL(((const uint64_t *)(t + 1))[TRACE_GROUP_TEST], 0);
	done();
}

static void test_time_with_everything_off_is_accounted(void)
{
	struct trace_file_loss loss;
	struct trace_opts opts = fixture_opts(64);
	char error[TRACE_ERROR_MAX];

	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	trace_get_loss(&loss);
	CU_ASSERT(loss.off_since_tsc != 0);
	trace_set_tpoints(TRACE_GROUP_BDEV, 1);
	trace_get_loss(&loss);
	CU_ASSERT_EQUAL(loss.off_since_tsc, 0);
	CU_ASSERT_EQUAL(loss.off_count, 0);
	CU_ASSERT(loss.off_ticks > 0);
	trace_clear_tpoints(TRACE_GROUP_BDEV, 1);
	trace_get_loss(&loss);
	CU_ASSERT_EQUAL(loss.off_count, 1);
	CU_ASSERT(loss.off_since_tsc != 0);
	fixture_stop();
}

static void test_clear_hides_what_was_before(void)
{
	fixture_start(64);
	TRACE(TEST_NONE, 0, 0, 1);
	CU_ASSERT_EQUAL(trace_clear(), 0);
	TRACE(TEST_NONE, 0, 0, 2);
	look();
	const struct trace_file_main *m = fixture_section(file, TRACE_SECTION_MAIN);
	CU_ASSERT(ring->entries[0].tsc <= m->clear_tsc);
	CU_ASSERT(ring->entries[1].tsc >= m->clear_tsc);
	CU_ASSERT_EQUAL(ring->next_entry, 2);
	done();
}

static void test_object_may_be_a_pointer(void)
{
	int object;

	fixture_start(64);
	TRACE(TEST_NONE, 0, 0, &object);
	look();
	CU_ASSERT_EQUAL(ring->entries[0].object_id, (uint64_t)(uintptr_t)&object);
	done();
}

static const struct unit_test tests[] = {
	UNIT(test_event_without_arguments_is_one_slot),
	UNIT(test_first_eight_bytes_of_arguments_are_in_the_entry),
	UNIT(test_arguments_continue_22_bytes_per_slot),
	UNIT(test_four_byte_argument_across_two_slots_is_whole),
	UNIT(test_strings_are_cut_padded_and_counted),
	UNIT(test_the_longest_event_takes_twelve_slots),
	UNIT(test_ring_wraps_and_keeps_the_newest),
	UNIT(test_event_of_several_slots_may_wrap),
	UNIT(test_disabled_tracepoint_evaluates_nothing),
	UNIT(test_event_of_a_thread_without_a_ring_is_counted_as_lost),
	UNIT(test_user_threads_get_slots_after_the_lcores),
	UNIT(test_user_thread_beyond_the_slots_is_refused_and_counted),
	UNIT(test_a_ring_has_one_thread),
	UNIT(test_masks_change_while_others_record),
	UNIT(test_the_file_shows_the_masks),
	UNIT(test_time_with_everything_off_is_accounted),
	UNIT(test_clear_hides_what_was_before),
	UNIT(test_object_may_be_a_pointer),
	UNIT_END,
};
UNIT_MAIN("trace_record", tests, fixture_setup, fixture_teardown)
