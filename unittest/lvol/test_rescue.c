/* SPDX-License-Identifier: BSD-3-Clause */
/* A superblock that is damaged: what its copy makes of it, and when it is not believed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lvol/live_internal.h"
#include "lvol/rescue.h"
#include "unittest/lvol/world.h"
#include "unittest/unit.h"

enum { CLUSTERS = 64 };
static struct world w;
static struct lvol_error error;

static struct lvol_super *super(void)
{
	return (struct lvol_super *)w.disk.bytes;
}

static struct lvol_md_page *md_page(uint32_t n)
{
	return (struct lvol_md_page *)(w.disk.bytes + (1 + 3 + (uint64_t)n) * LVOL_PAGE_BYTES);
}

/* A closed store with two volumes. */
static void store_begin(void)
{
	world_create(&w, CLUSTERS);
	CU_ASSERT_EQUAL_FATAL(super()->md_first, 4); /* md_page() */
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 6, true), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 3, 300), 0);
	CU_ASSERT_EQUAL_FATAL(world_snapshot(&w, 0, 1), 0);
	CU_ASSERT_EQUAL_FATAL(world_write(&w, 0, 130, 3), 0);
}

/* As if the machine had stopped. */
static void store_stop(void)
{
	world_forget(&w);
	lvol_owner_self(&w.disk.owner);
	w.disk.owner.boot[0] ^= 1;
}

/* By whoever is asked, and nothing is written. */
static void expect_refused_by(int (*open)(struct world *, struct lvol_error *), const char *words)
{
	uint8_t *before = malloc(w.disk.size);

	memcpy(before, w.disk.bytes, w.disk.size);
	CU_ASSERT_EQUAL(open(&w, &error), -EILSEQ);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, words));
	if (strstr(error.text, words) == NULL) {
		printf("not \"%s\" but \"%s\"\n", words, error.text);
	}
	CU_ASSERT_EQUAL(memcmp(before, w.disk.bytes, w.disk.size), 0);
	free(before);
}

static void expect_refused(const char *words)
{
	expect_refused_by(world_open, "");
	expect_refused_by(world_rescue, words);
}

/* It is not opened, but for the word of an operator. */
static void expect_made_anew(void)
{
	expect_refused_by(world_open, "superblock: ");
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "varve-lvol repair --superblock"));
	CU_ASSERT_EQUAL_FATAL(world_rescue(&w, &error), 0);
	CU_ASSERT_TRUE(strstr(error.text, "superblock: ") != NULL && strstr(error.text, "; its copy is used") != NULL);
	world_check(&w, true);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_FALSE(lvol_live_info(w.store).recovered);
}

static void expect_rescued(void)
{
	expect_made_anew();
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_count(&w);
}

/* ---- It is made anew ---- */

static void damage(unsigned kind)
{
	uint8_t *page = w.disk.bytes;

	switch (kind) {
	case 0: /* a bit of it */
		page[28] ^= 1;
		break;
	case 1: /* what other bytes say where the store is */
		memset(page + 8, 0xff, 40);
		break;
	case 2:
		memset(page, 0, sizeof(super()->signature));
		break;
	case 3:
		memset(super()->type, 0, LVOL_PAGE_BYTES - offsetof(struct lvol_super, type));
		break;
	default: /* its crc */
		page[LVOL_PAGE_BYTES - 1] ^= 0x80;
	}
}

enum { DAMAGES = 5 };

static void test_a_damaged_superblock_is_made_from_its_copy(void)
{
	for (unsigned kind = 0; kind < DAMAGES; kind++) {
		uint8_t good[LVOL_PAGE_BYTES];

		store_begin();
		world_close(&w);
		memcpy(good, w.disk.bytes, sizeof(good));
		damage(kind);
		expect_rescued();
		CU_ASSERT_EQUAL(world_write(&w, 0, 700, 30), 0);
		world_close(&w);
		CU_ASSERT_EQUAL(memcmp(good, w.disk.bytes, sizeof(good)), 0);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		world_free(&w);
	}
}

static void test_what_a_crash_left_is_there_too(void)
{
	for (unsigned kind = 0; kind < DAMAGES; kind++) {
		store_begin();
		store_stop();
		damage(kind);
		expect_rescued();
		world_free(&w);
	}
}

/* What a head of the journal says of the pages in use may be old: power failed before the superblock said that the
 * store is open, and then another program had it. */
static void test_a_journal_does_not_say_which_pages_are_in_use(void)
{
	store_begin();
	const struct lvol_geometry g = w.store->geometry;
	store_stop();
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0); /* the journal has no pages now */
	store_stop();
	for (uint32_t slot = 0; slot < LVOL_JOURNAL_SLOTS; slot++) {
		struct lvol_journal_head *h =
			(struct lvol_journal_head *)md_page(g.journal_first + slot * g.journal_slot_pages);
		CU_ASSERT_TRUE_FATAL(h->num_pages == 0 && h->used_below > 1);
		h->used_below = 1;
		h->crc = lvol_crc(h);
	}
	damage(0);
	expect_rescued();
	world_free(&w);
}

/* The root page of the volume that names the store was torn when power failed: the journal has it. */
static void test_the_copy_may_be_in_the_journal(void)
{
	store_begin();
	CU_ASSERT_EQUAL_FATAL(world_threshold(&w, 70), 0);
	store_stop();
	memset(md_page(0)->descriptors + 40, 0xff, 512);
	damage(0);
	expect_rescued();
	world_free(&w);
}

/* Another program made the store larger and its mask of clusters with it; the copy knows nothing of that. */
static void test_a_store_that_another_program_has_grown(void)
{
	const uint32_t more = CLUSTERS + 7;
	struct lvol_mask_head head = {.type = LVOL_MASK_CLUSTERS, .num_bits = more};

	store_begin();
	world_close(&w);
	uint8_t *larger = calloc(2, w.disk.size);
	memcpy(larger, w.disk.bytes, w.disk.size);
	free(w.disk.bytes);
	w.disk.bytes = larger;
	w.disk.size *= 2;
	memcpy(w.disk.bytes + (uint64_t)super()->cluster_mask_first * LVOL_PAGE_BYTES, &head, sizeof(head));
	super()->size_bytes = (uint64_t)more * WORLD_CLUSTER;
	super()->crc = lvol_crc(super());
	damage(0);
	expect_made_anew();
	CU_ASSERT_EQUAL(w.store->geometry.num_clusters, more);
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_free(&w);
}

/* An older varve's store, or another program's, gets its copy when it is opened. */
static void test_a_store_without_a_copy_gets_one(void)
{
	struct outcome o = {.done = false};

	store_begin();
	CU_ASSERT_EQUAL_FATAL(live_xattr_set(&w.store->names, LVOL_DESC_XATTR, LVOL_COPY_XATTR, NULL, 0), 0);
	lvol_live_rename_store(w.store, "other", outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	strcpy(w.model.name, "other");
	world_close(&w);
	uint8_t good[LVOL_PAGE_BYTES];
	memcpy(good, w.disk.bytes, sizeof(good));
	damage(0);
	expect_refused("superblock: crc is ");
	expect_refused("; there is no copy of it");
	memcpy(w.disk.bytes, good, sizeof(good));
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).commits, 1);
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	CU_ASSERT_EQUAL(lvol_live_info(w.store).commits, 0);
	world_close(&w);
	damage(0);
	expect_rescued();
	world_free(&w);
}

static bool unreadable;

static int device_read(void *ctx, uint64_t offset, void *to, size_t bytes)
{
	(void)ctx;
	CU_ASSERT_TRUE_FATAL(offset <= w.disk.size && bytes <= w.disk.size - offset);
	memcpy(to, w.disk.bytes + offset, bytes);
	return unreadable && offset == 0 ? -EIO : 0;
}

static int device_write(void *ctx, uint64_t offset, const void *from, size_t bytes)
{
	(void)ctx;
	CU_ASSERT_TRUE_FATAL(offset <= w.disk.size && bytes <= w.disk.size - offset);
	memcpy(w.disk.bytes + offset, from, bytes);
	return 0;
}

static int device_flush(void *ctx)
{
	(void)ctx;
	return 0;
}

static int store_read(struct lvol_store **s)
{
	const struct lvol_device d = {
		.size_bytes = w.disk.size, .read = device_read, .write = device_write, .flush = device_flush};
	int rc = lvol_store_read(&d, s, &error);

	return rc != 0 ? rc : lvol_store_check(*s);
}

/* ---- It is not ---- */

static void test_a_store_that_was_destroyed_stays_gone(void)
{
	struct outcome o = {.done = false};

	store_begin();
	lvol_live_destroy(w.store, outcome_done, &o);
	CU_ASSERT_EQUAL(world_wait(&w, &o), 0);
	w.store = NULL;
	expect_refused("there is no volume store");
	/* What another program wrote in its place. */
	memset(w.disk.bytes, 0x5a, LVOL_PAGE_BYTES);
	expect_refused("there is no volume store");
	world_free(&w);
}

/* A partition table leaves what is before and behind it. */
static void test_a_disk_that_was_partitioned_is_left_alone(void)
{
	for (int stopped = 0; stopped < 2; stopped++) {
		store_begin();
		if (stopped == 0) {
			world_close(&w);
		} else {
			store_stop();
		}
		memset(w.disk.bytes + 446, 0x83, 64);
		w.disk.bytes[510] = 0x55;
		CU_ASSERT_TRUE(lvol_super_is_damaged(super()));
		w.disk.bytes[511] = 0xaa;
		CU_ASSERT_FALSE(lvol_super_is_damaged(super()));
		expect_refused_by(world_open, "; it has a partition table");
		expect_refused_by(world_rescue, "; it has a partition table");
		world_free(&w);
	}
}

static void test_a_good_superblock_of_something_else_is_left_alone(void)
{
	store_begin();
	world_close(&w);
	super()->version = 9;
	super()->crc = lvol_crc(super());
	CU_ASSERT_FALSE(lvol_super_is_damaged(super()));
	expect_refused("superblock: version 9");
	world_free(&w);
}

static struct lvol_journal_head *journal_head(unsigned slot)
{
	const struct lvol_geometry *g = &w.store->geometry;

	return (struct lvol_journal_head *)md_page(g->journal_first + slot * g->journal_slot_pages);
}

static void test_journals_that_contradict_each_other_are_not_believed(void)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		store_begin();
		struct lvol_journal_head *a = journal_head(0), *b = journal_head(1);
		store_stop();
		switch (kind) {
		case 0: /* an older program's */
			a->open = (struct lvol_super_open){.magic = ""};
			break;
		case 1: /* a head that is too old */
			a->generation += LVOL_JOURNAL_SLOTS;
			b->generation -= b->generation > a->generation ? 0 : LVOL_JOURNAL_SLOTS;
			b->crc = lvol_crc(b);
			break;
		case 2: /* a head of a journal in another place */
			a->open.journal_first++;
			break;
		default: /* and of one without another head */
			memset(b, 0, sizeof(*b));
			a->open.journal_slot_pages++;
			a->open.journal_first--;
		}
		a->crc = lvol_crc(a);
		damage(0);
		expect_refused("; its copies contradict each other");
		world_free(&w);
	}
}

/* Power failed when a store that had not been closed was opened again, between the two heads. */
static void test_of_two_owners_the_newer_counts(void)
{
	for (unsigned more = 0; more < 2; more++) { /* the newer head is the first or the second */
		struct lvol_store *s;

		store_begin();
		CU_ASSERT_EQUAL_FATAL(more == 0 ? 0 : world_threshold(&w, 70), 0);
		struct lvol_journal_head *a = journal_head(0), *b = journal_head(1);
		struct lvol_journal_head *newer = a->generation > b->generation ? a : b;
		store_stop();
		newer->open.owner.started = 12345;
		newer->crc = lvol_crc(newer);
		damage(0);
		CU_ASSERT_EQUAL_FATAL(store_read(&s), 0);
		CU_ASSERT_EQUAL(s->geometry.owner.started, 12345);
		lvol_store_free(s);
		expect_rescued();
		world_free(&w);
	}
}

/* Puts a head of a journal without pages at a metadata page: that of an opening that was cut before the superblock said
 * that the store is open. */
static void head_leave(const struct lvol_journal_head *like, uint32_t journal_first, uint32_t slot_pages)
{
	struct lvol_journal_head *h = (struct lvol_journal_head *)md_page(journal_first + slot_pages);

	*h = *like;
	h->generation = 1;
	h->num_pages = 0;
	h->pages_crc = lvol_journal_crc(h);
	h->open.journal_first = journal_first;
	h->open.journal_slot_pages = slot_pages;
	h->open.owner.started = 1;
	h->crc = lvol_crc(h);
}

static void test_heads_that_a_cut_opening_has_left_count_for_nothing(void)
{
	for (unsigned kind = 0; kind < 3; kind++) {
		store_begin();
		CU_ASSERT_EQUAL_FATAL(world_threshold(&w, 70), 0); /* so that the journal has pages */
		const struct lvol_journal_head like = *journal_head(0);
		CU_ASSERT_TRUE_FATAL(!lvol_bit(w.store->pages, 9) && lvol_bit(w.store->pages, 1));
		CU_ASSERT_TRUE_FATAL(w.store->geometry.journal_first > 16);
		CU_ASSERT_TRUE_FATAL(journal_head(0)->num_pages + journal_head(1)->num_pages > 0);
		if (kind == 0) {
			store_stop();
			head_leave(&like, 8, 4); /* beside the journal that counts */
		} else {
			world_close(&w);
			head_leave(&like, kind == 1 ? 8 : 1, kind == 1 ? 4 : 8); /* and where volumes have pages now */
		}
		damage(0);
		expect_rescued();
		world_free(&w);
	}
}

/* The attribute in a page: NULL if it has none. */
static struct lvol_super_copy *copy_in(struct lvol_md_page *p)
{
	for (size_t at = 0; at < sizeof(p->descriptors) - sizeof(LVOL_COPY_XATTR); at++) {
		if (memcmp(p->descriptors + at, LVOL_COPY_XATTR, sizeof(LVOL_COPY_XATTR) - 1) == 0) {
			return (struct lvol_super_copy *)(p->descriptors + at + sizeof(LVOL_COPY_XATTR) - 1);
		}
	}
	return NULL;
}

/* Another program may have put the attributes in another order: the search looks at root pages only. */
static void test_a_copy_behind_the_root_page_is_none(void)
{
	enum { FREE_PAGE = 20, BEFORE = 5 + 4 + sizeof(LVOL_COPY_XATTR) - 1 };
	struct lvol_md_page *root, *next;
	struct lvol_store *s;

	store_begin();
	CU_ASSERT_FALSE_FATAL(lvol_bit(w.store->pages, FREE_PAGE));
	world_close(&w);
	CU_ASSERT_EQUAL_FATAL(store_read(&s), 0);
	CU_ASSERT_TRUE(s->super_copied);
	lvol_store_free(s);
	root = md_page(0);
	next = md_page(FREE_PAGE);
	uint8_t *at = (uint8_t *)copy_in(root) - BEFORE;
	*next = (struct lvol_md_page){.id = root->id, .sequence = 1, .next = LVOL_PAGE_NONE};
	memcpy(next->descriptors, at, BEFORE + sizeof(struct lvol_super_copy));
	at[BEFORE - 1] ^= 1; /* another name */
	root->next = FREE_PAGE;
	root->crc = lvol_crc(root);
	next->crc = lvol_crc(next);
	CU_ASSERT_EQUAL_FATAL(store_read(&s), 0);
	CU_ASSERT_TRUE(s->named && !s->super_copied);
	lvol_store_free(s);
	damage(0);
	expect_refused("; there is no copy of it");
	world_free(&w);
}

static void test_copies_that_do_not_fit_are_not_believed(void)
{
	for (unsigned kind = 0; kind < 6; kind++) {
		store_begin();
		CU_ASSERT_EQUAL_FATAL(world_threshold(&w, 70), 0); /* so that the journal has that page, too */
		store_stop();
		struct lvol_super_copy *c = copy_in(md_page(0));
		CU_ASSERT_PTR_NOT_NULL_FATAL(c);
		switch (kind) {
		case 0:
			c->cluster_bytes *= 2;
			break;
		case 1:
			c->io_unit_bytes *= 2;
			break;
		case 2: /* it does not fit the masks: the one in the journal does */
			c->md_first++;
			break;
		case 3:
			c->form++;
			break;
		case 4:
			c->cluster_mask_pages++;
			break;
		default:
			c->id_mask_first++;
		}
		md_page(0)->crc = lvol_crc(md_page(0));
		damage(0);
		if (kind < 2) {
			expect_refused("; its copies contradict each other");
		} else {
			/* The journal replaces the page. */
			expect_rescued();
		}
		world_free(&w);
	}
}

static void test_a_copy_that_makes_no_sense_is_refused(void)
{
	static const uint32_t sizes[] = {0, 4097, 1u << 31};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		store_begin();
		world_close(&w);
		struct lvol_super_copy *c = copy_in(md_page(0));
		CU_ASSERT_PTR_NOT_NULL_FATAL(c);
		c->cluster_bytes = sizes[i];
		md_page(0)->crc = lvol_crc(md_page(0));
		damage(0);
		expect_refused("; of its copy: superblock: ");
		world_free(&w);
	}
}

/* The heads of the masks lead to it: without them it is not found, and nothing outside of the device is read. */
static void test_masks_that_are_damaged_lead_nowhere(void)
{
	static const struct lvol_mask_head bad[] = {{0, 0},        {9, CLUSTERS}, {0, UINT32_MAX}, {1, UINT32_MAX},
						    {0, 1 << 24},  {1, 1 << 24},  {2, 1 << 24},    {2, CLUSTERS + 1},
						    {1, 1u << 31}, {0, 3}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (uint64_t page = 1; page <= 3; page++) {
			store_begin();
			world_close(&w);
			damage(0);
			memcpy(w.disk.bytes + page * LVOL_PAGE_BYTES, &bad[i], sizeof(bad[i]));
			expect_refused("; there is no copy of it");
			world_free(&w);
		}
	}
}

/* ---- What is a copy ---- */

static void test_layouts_that_can_be_found(void)
{
	struct lvol_super s = {.super_id = LVOL_ID_HIGH,
			       .cluster_bytes = 1 << 20,
			       .size_bytes = 40000ull << 20,
			       .page_mask_first = 1,
			       .page_mask_pages = 1,
			       .cluster_mask_first = 2,
			       .cluster_mask_pages = 2,
			       .id_mask_first = 4,
			       .id_mask_pages = 1,
			       .md_first = 5,
			       .md_pages = 1000};
	struct lvol_super_copy c;

	CU_ASSERT_TRUE(lvol_super_copy_make(&s, &c) && c.size_bytes == s.size_bytes && c.cluster_mask_pages == 2);
	/* The mask of clusters has room for as many as there are metadata pages, and does not use it yet. */
	s.size_bytes = 100ull << 20;
	s.md_pages = 40000;
	s.page_mask_pages = s.id_mask_pages = 2;
	s.cluster_mask_first = 3;
	s.cluster_mask_pages = 1;
	s.id_mask_first = 5;
	s.md_first = 7;
	CU_ASSERT_TRUE(lvol_super_copy_make(&s, &c));
	/* It has no room. */
	s.id_mask_first = 4;
	s.md_first = 6;
	CU_ASSERT_TRUE(lvol_super_copy_make(&s, &c));
	s.cluster_mask_pages = 2;
	CU_ASSERT_FALSE(lvol_super_copy_make(&s, &c));
	s.cluster_mask_pages = 1;
	s.md_first = 7;
	CU_ASSERT_FALSE(lvol_super_copy_make(&s, &c));
	s.md_first = 6;
	s.super_id++;
	CU_ASSERT_FALSE(lvol_super_copy_make(&s, &c));
}

static void test_whose_copy_it_is(void)
{
	struct lvol_super_copy c;

	store_begin();
	CU_ASSERT_TRUE_FATAL(lvol_super_copy_make(super(), &c));
	CU_ASSERT_TRUE(lvol_super_copy_is_of(super(), LVOL_ID_HIGH, &c, sizeof(c)));
	c.size_bytes -= WORLD_CLUSTER;
	CU_ASSERT_TRUE(lvol_super_copy_is_of(super(), LVOL_ID_HIGH, &c, sizeof(c)));
	CU_ASSERT_FALSE(lvol_super_copy_is_of(super(), LVOL_ID_HIGH | 1, &c, sizeof(c)));
	CU_ASSERT_FALSE(lvol_super_copy_is_of(super(), LVOL_ID_HIGH, &c, sizeof(c) - 1));
	c.md_pages++;
	CU_ASSERT_FALSE(lvol_super_copy_is_of(super(), LVOL_ID_HIGH, &c, sizeof(c)));
	super()->md_first++;
	CU_ASSERT_FALSE(lvol_super_copy_is_of(super(), LVOL_ID_HIGH, &c, sizeof(c)));
	world_free(&w);
}

/* ---- Offline ---- */

/* Another machine has it open. */
static void test_the_owner_is_known_without_the_superblock(void)
{
	struct lvol_store *s;

	store_begin();
	const uint8_t machine = w.store->owner.machine[3];
	world_forget(&w);
	for (unsigned slot = 0; slot < 2; slot++) {
		/* One of them may have been torn. */
		struct lvol_journal_head *h = (struct lvol_journal_head *)md_page(
			super()->open.journal_first + slot * super()->open.journal_slot_pages);
		h->open.owner.machine[3] ^= 1;
		h->crc = lvol_crc(h);
	}
	damage(1);
	CU_ASSERT_EQUAL_FATAL(store_read(&s), 0);
	CU_ASSERT_EQUAL(s->geometry.owner.machine[3], machine ^ 1);
	lvol_store_free(s);
	world_free(&w);
}

static void test_it_is_named_and_repaired_offline(void)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		struct lvol_store *s;

		store_begin();
		if (kind % 2 == 0) {
			world_close(&w);
		} else {
			store_stop();
		}
		damage(0);
		unreadable = kind >= 2;
		CU_ASSERT_EQUAL_FATAL(store_read(&s), 0);
		CU_ASSERT_EQUAL_FATAL(s->num_problems, 1);
		CU_ASSERT_PTR_NOT_NULL(strstr(s->problems[0], kind < 2 ? "superblock: crc is" : "superblock: Input"));
		CU_ASSERT_PTR_NOT_NULL(strstr(s->problems[0], "; its copy is used"));
		CU_ASSERT_TRUE(s->super_copied && !s->geometry.clean);
		CU_ASSERT_EQUAL(lvol_store_close_write(s, &error), 0);
		lvol_store_free(s);
		unreadable = false;
		world_check(&w, true);
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
		CU_ASSERT_FALSE(lvol_live_info(w.store).recovered);
		CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
		world_free(&w);
	}
}

static void test_one_that_cannot_be_read_and_has_no_copy_is_an_error(void)
{
	struct lvol_store *s;

	store_begin();
	world_close(&w);
	memset(md_page(0), 0, LVOL_PAGE_BYTES);
	unreadable = true;
	CU_ASSERT_EQUAL(store_read(&s), -EIO);
	unreadable = false;
	world_free(&w);
}

static const struct unit_test tests[] = {
	UNIT(test_a_damaged_superblock_is_made_from_its_copy),
	UNIT(test_what_a_crash_left_is_there_too),
	UNIT(test_a_journal_does_not_say_which_pages_are_in_use),
	UNIT(test_the_copy_may_be_in_the_journal),
	UNIT(test_a_store_that_another_program_has_grown),
	UNIT(test_a_store_without_a_copy_gets_one),
	UNIT(test_a_store_that_was_destroyed_stays_gone),
	UNIT(test_a_disk_that_was_partitioned_is_left_alone),
	UNIT(test_a_good_superblock_of_something_else_is_left_alone),
	UNIT(test_journals_that_contradict_each_other_are_not_believed),
	UNIT(test_of_two_owners_the_newer_counts),
	UNIT(test_heads_that_a_cut_opening_has_left_count_for_nothing),
	UNIT(test_a_copy_behind_the_root_page_is_none),
	UNIT(test_copies_that_do_not_fit_are_not_believed),
	UNIT(test_a_copy_that_makes_no_sense_is_refused),
	UNIT(test_the_owner_is_known_without_the_superblock),
	UNIT(test_masks_that_are_damaged_lead_nowhere),
	UNIT(test_layouts_that_can_be_found),
	UNIT(test_whose_copy_it_is),
	UNIT(test_it_is_named_and_repaired_offline),
	UNIT(test_one_that_cannot_be_read_and_has_no_copy_is_an_error),
	UNIT_END,
};
UNIT_MAIN("lvol_rescue", tests, NULL, NULL)
