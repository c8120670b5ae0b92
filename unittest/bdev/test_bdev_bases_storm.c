/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev on three bases under I/O, aborts, resets, errors, refusals, and bases and channels that come and go, all at
 * once: compared with what its blocks must hold. */
#include "unittest/bdev/trio.h"

#include <errno.h>

#define SLOTS        12u /* on three threads */
#define SLOT_BLOCKS  23u /* its own blocks: not whole stripes, so that slots have bases' stripes in common */
#define SLOT_IOS     800u
#define VALUES       256u
#define WORDS        (BLOCK / sizeof(uint32_t))
#define ABORT_ONE_IN 12

/* Does one I/O after the other on blocks of its own, and aborts those of its neighbours. */
struct slot {
	struct user *user;
	struct slot *neighbour; /* on the same thread */
	struct bdev_io *io, *abort;
	bool busy, aborting; /* io, abort: in flight */
	uint64_t first;      /* its blocks */
	uint64_t random;
	unsigned left;
	uint8_t value; /* of the WRITE in flight */
	struct iovec iovs[3];
	uint32_t memory[SLOT_BLOCKS * WORDS];
	/* What a block may hold: several values while a WRITE of it has failed and no I/O since has shown what the
	 * block has. 0: never written. */
	bool may_hold[SLOT_BLOCKS][VALUES];
	unsigned ended[BDEV_IO_TYPES], failed[BDEV_IO_TYPES];
};

static struct slot slots[SLOTS];
static atomic_uint slots_ended, wrong_blocks, wrong_statuses, open_channels;

static uint32_t word_of(uint64_t lba, uint8_t value)
{
	return value == 0 ? 0 : (uint32_t)(lba << 8 | value);
}

static void slot_check_read(struct slot *s, const struct bdev_io *io)
{
	const uint32_t *word = s->memory;

	for (uint64_t lba = io->offset_blocks; lba < io->offset_blocks + io->num_blocks; lba++, word += WORDS) {
		bool *may_hold = s->may_hold[lba - s->first];
		uint8_t value = (uint8_t)*word;
		bool good = may_hold[value];

		for (size_t i = 0; i < WORDS; i++) {
			good = good && word[i] == word_of(lba, value);
		}
		atomic_fetch_add(&wrong_blocks, !good);
		memset(may_hold, 0, VALUES);
		may_hold[value] = true;
	}
}

static void slot_note_write(struct slot *s, const struct bdev_io *io)
{
	for (uint64_t lba = io->offset_blocks; lba < io->offset_blocks + io->num_blocks; lba++) {
		bool *may_hold = s->may_hold[lba - s->first];
		if (io->status == 0) {
			memset(may_hold, 0, VALUES);
		}
		may_hold[s->value] = true;
	}
}

static enum bdev_io_type slot_choose_type(struct slot *s)
{
	unsigned n = fixture_random(&s->random) % 100;

	return n < 45 ? BDEV_IO_READ : n < 95 ? BDEV_IO_WRITE : n < 99 ? BDEV_IO_FLUSH : BDEV_IO_RESET;
}

/* Memory in up to three parts, of any length. */
static uint32_t slot_cut_memory(struct slot *s, size_t bytes)
{
	uint8_t *at = (uint8_t *)s->memory;
	uint32_t n = 0;

	while (bytes > 0) {
		size_t part = n == 2 ? bytes : fixture_random(&s->random) % bytes + 1;
		s->iovs[n++] = (struct iovec){at, part};
		at += part;
		bytes -= part;
	}
	return n;
}

static void slot_fill_memory(struct slot *s, uint64_t offset, uint64_t num)
{
	s->value = (uint8_t)(fixture_random(&s->random) % (VALUES - 1) + 1);
	for (size_t i = 0; i < num * WORDS; i++) {
		s->memory[i] = word_of(offset + i / WORDS, s->value);
	}
}

static void slot_start(void *arg)
{
	struct slot *s = arg;
	enum bdev_io_type type = slot_choose_type(s);
	uint64_t skip = fixture_random(&s->random) % SLOT_BLOCKS;
	uint64_t num = fixture_random(&s->random) % (SLOT_BLOCKS - skip) + 1, offset = s->first + skip;

	if (type == BDEV_IO_READ || type == BDEV_IO_WRITE) {
		bdev_io_set_rw(s->io, type, s->iovs, slot_cut_memory(s, num * BLOCK), offset, num);
		slot_fill_memory(s, offset, type == BDEV_IO_WRITE ? num : 0);
	} else {
		bdev_io_set_rw(s->io, type, NULL, 0, 0, 0);
	}
	s->busy = true;
	bdev_submit(s->io);
}

static void slot_abort_neighbour(struct slot *s)
{
	if (!s->aborting && s->neighbour->busy && fixture_random(&s->random) % ABORT_ONE_IN == 0) {
		s->aborting = true;
		s->abort->type = BDEV_IO_ABORT;
		s->abort->abort.target = s->neighbour->io;
		bdev_submit(s->abort);
	}
}

static void slot_check_end(struct slot *s)
{
	if (s->left == 0 && !s->aborting) {
		atomic_fetch_add(&slots_ended, 1);
		fixture_wake();
	}
}

static void slot_abort_done(struct bdev_io *io, void *arg)
{
	struct slot *s = arg;

	atomic_fetch_add(&wrong_statuses, io->status != 0 || io->cdw0 > 1);
	s->aborting = false;
	slot_check_end(s);
}

static bool is_expected(uint16_t status)
{
	return status == 0 || status == NVME_SC_ABORT_REQ || status == FAULT || status == NVME_SC_INTERNAL;
}

static void slot_io_done(struct bdev_io *io, void *arg)
{
	struct slot *s = arg;

	s->busy = false;
	s->ended[io->type]++;
	s->failed[io->type] += io->status != 0;
	atomic_fetch_add(&wrong_statuses, !is_expected(io->status));
	if (io->type == BDEV_IO_WRITE) {
		slot_note_write(s, io);
	} else if (io->type == BDEV_IO_READ && io->status == 0) {
		slot_check_read(s, io);
	}
	slot_abort_neighbour(s);
	if (--s->left != 0) {
		slot_start(s);
	} else {
		slot_check_end(s);
	}
}

static struct bdev_io *slot_io_new(struct slot *s, bdev_io_cb cb)
{
	struct bdev_io *io = aligned_alloc(64, bdev_io_size());

	memset(io, 0, bdev_io_size());
	bdev_io_init(io, s->user->desc, s->user->ch, cb, s);
	return io;
}

static void slot_init(unsigned i, struct user *user)
{
	struct slot *s = &slots[i];

	*s = (struct slot){.user = user, .left = SLOT_IOS, .first = i * SLOT_BLOCKS, .random = i};
	s->neighbour = &slots[i % 4 == 3 ? i - 3 : i + 1];
	s->io = slot_io_new(s, slot_io_done);
	s->abort = slot_io_new(s, slot_abort_done);
	for (unsigned b = 0; b < SLOT_BLOCKS; b++) {
		s->may_hold[b][0] = true;
	}
}

static void nothing(void *arg)
{
}

/* A channel that comes at any time, and goes at once; on its thread. */
static void channel_come_and_go(void *arg)
{
	struct bdev_channel *ch = bdev_channel_get(arg);

	if (ch != NULL) {
		bdev_channel_put(ch);
		atomic_fetch_add(&open_channels, 1);
	}
}

static void ignore_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
}

static bool have_slots_ended(void *arg)
{
	return atomic_load(&slots_ended) == SLOTS;
}

static void change_a_base(uint64_t *random, struct bdev_desc *bystander)
{
	unsigned base = fixture_random(random) % BASES, detached = atomic_load(&the->detached);

	thread_send(fixture_thread(3), channel_come_and_go, bystander);
	vbdev_bases_detach(&the->bases, base);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, base, disk_names[base], "trio", error), -EBUSY);
	trio_wait_detached(detached + 1);
	thread_control_wait(have_slots_ended, NULL, fixture_random(random) % 300);
	thread_send(fixture_thread(3), channel_come_and_go, bystander);
	CU_ASSERT_EQUAL(vbdev_bases_attach(&the->bases, base, disk_names[base], "trio", error), 0);
	thread_control_wait(have_slots_ended, NULL, fixture_random(random) % 5000);
}

static void check_slots(void)
{
	unsigned ended[BDEV_IO_TYPES] = {0}, failed[BDEV_IO_TYPES] = {0};

	for (unsigned i = 0; i < SLOTS; i++) {
		for (unsigned type = 0; type < BDEV_IO_TYPES; type++) {
			ended[type] += slots[i].ended[type];
			failed[type] += slots[i].failed[type];
		}
		free(slots[i].io);
		free(slots[i].abort);
	}
	CU_ASSERT_EQUAL(atomic_load(&wrong_blocks), 0);
	CU_ASSERT_EQUAL(atomic_load(&wrong_statuses), 0);
	CU_ASSERT_TRUE(ended[BDEV_IO_RESET] > 0);
	CU_ASSERT_TRUE(failed[BDEV_IO_READ] > 0 && failed[BDEV_IO_READ] < ended[BDEV_IO_READ]);
	CU_ASSERT_TRUE(failed[BDEV_IO_WRITE] > 0 && failed[BDEV_IO_WRITE] < ended[BDEV_IO_WRITE]);
	if (getenv("UNIT_LOG") != NULL) {
		printf("reads %u failed %u, writes %u failed %u, resets %u, detached %u, channels %u\n",
		       ended[BDEV_IO_READ], failed[BDEV_IO_READ], ended[BDEV_IO_WRITE], failed[BDEV_IO_WRITE],
		       ended[BDEV_IO_RESET], atomic_load(&the->detached), atomic_load(&open_channels));
	}
}

static void test_everything_at_once_keeps_the_data(void)
{
	struct bdev_desc *bystander;
	struct user users[3];
	uint64_t random = 1;

	trio_start(2);
	the->tries = 2;
	disk[0]->slots = 2;
	disk[0]->shuffle = disk[1]->shuffle = true;
	disk[1]->fail_one_in = 40;
	CU_ASSERT_EQUAL_FATAL(bdev_open("trio", false, ignore_event, NULL, &bystander), 0);
	for (unsigned i = 0; i < SLOTS; i++) {
		if (i % 4 == 0) {
			CU_ASSERT_EQUAL_FATAL(user_open(&users[i / 4], "trio", true, fixture_thread(i / 4)), 0);
		}
		slot_init(i, &users[i / 4]);
	}
	for (unsigned i = 0; i < SLOTS; i++) {
		thread_call(slots[i].user->thread, slot_start, &slots[i]);
	}
	while (atomic_load(&slots_ended) < SLOTS && atomic_load(&the->detached) < 10000) {
		change_a_base(&random, bystander);
	}
	check_slots();
	for (unsigned i = 0; i < 3; i++) {
		user_close(&users[i]);
	}
	thread_call(fixture_thread(3), nothing, NULL); /* its last channel has gone */
	bdev_close(bystander);
	trio_delete();
	for (unsigned i = 0; i < BASES; i++) {
		CU_ASSERT_FALSE(disk[i]->gone_in_poll);
	}
	disks_delete();
}

static const struct unit_test tests[] = {UNIT(test_everything_at_once_keeps_the_data), UNIT_END};
UNIT_MAIN("bdev_bases_storm", tests, fixture_start, fixture_stop)
