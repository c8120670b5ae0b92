/* SPDX-License-Identifier: BSD-3-Clause */
/* Small trace files made by hand for the reader's tests: a few tracepoints, two owners, rings of some entries, written
 * in the order in which the recorder writes. */
#ifndef UNITTEST_TRACE_READER_CRAFT_H
#define UNITTEST_TRACE_READER_CRAFT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trace/trace_file.h"

enum {
	CRAFT_TPOINTS = 8,
	CRAFT_OWNERS = 4,
	CRAFT_DESCRIPTION = 23,
	CRAFT_TYPES = 8,
	CRAFT_RATE = 1000000000, /* a tick is a nanosecond */
};

/* Tracepoints, by id. Object types: 2 'r' requests, 3 'i' I/Os done for them, 4 'N' commands done for those. */
enum craft_tpoint {
	CRAFT_PLAIN,    /* no owner, object or arguments */
	CRAFT_REQ_NEW,  /* owner, new r */
	CRAFT_REQ_BUSY, /* owner, r; qd:int4 */
	CRAFT_REQ_DONE, /* owner, r */
	CRAFT_IO_START, /* new i; ctx:ptr8 -> r, offset:int8, text:str16: 32 bytes, 3 slots */
	CRAFT_IO_DONE,  /* i; ctx:ptr8 -> r */
	CRAFT_CMD,      /* new N; ctx:ptr8 -> i */
	CRAFT_UNUSED,
};

struct craft {
	uint8_t *bytes;
	size_t size;
	unsigned lcores, entries;
	bool ours; /* has sections 7 to 9 */
};

static inline void *craft_section(struct craft *c, unsigned section)
{
	return c->bytes + ((struct trace_file_header *)c->bytes)->section_offset[section];
}

static inline struct trace_file_tpoint *craft_tpoint(struct craft *c, unsigned id)
{
	return (struct trace_file_tpoint *)((uint8_t *)craft_section(c, TRACE_SECTION_TPOINT) + 128) + id;
}

/* Only the fixed fields of struct trace_file_history are at their place: there are few counters. */
static inline struct trace_file_history *craft_history(struct craft *c, unsigned lcore)
{
	uint64_t *offsets = (uint64_t *)((uint8_t *)craft_section(c, TRACE_SECTION_LCORE_OFFSETS) + 128);

	return (struct trace_file_history *)(c->bytes + offsets[lcore]);
}

static inline struct trace_file_entry *craft_entries(struct craft *c, unsigned lcore)
{
	return (struct trace_file_entry *)(craft_history(c, lcore)->tpoint_count + CRAFT_TPOINTS);
}

static inline uint64_t *craft_stamps(struct craft *c, unsigned lcore)
{
	uint64_t *offsets = (uint64_t *)((uint8_t *)craft_section(c, TRACE_SECTION_STAMPS) + 128);

	return (uint64_t *)(c->bytes + offsets[lcore]);
}

static inline void craft_arg(struct trace_file_tpoint *t, const char *name, uint8_t type, uint8_t size)
{
	struct trace_file_arg *a = &t->args[t->num_args++];

	strcpy(a->name, name);
	a->type = type;
	a->size = size;
}

static inline struct trace_file_tpoint *craft_define(struct craft *c, unsigned id, const char *name, uint8_t owner_type,
						     uint8_t object_type, uint8_t new_object)
{
	struct trace_file_tpoint *t = craft_tpoint(c, id);

	strcpy(t->name, name);
	t->tpoint_id = (uint16_t)id;
	t->owner_type = owner_type;
	t->object_type = object_type;
	t->new_object = new_object;
	return t;
}

static inline void craft_define_all(struct craft *c)
{
	craft_define(c, CRAFT_PLAIN, "PLAIN", 0, 0, 0);
	craft_define(c, CRAFT_REQ_NEW, "REQ_NEW", 5, 2, 1);
	craft_arg(craft_define(c, CRAFT_REQ_BUSY, "REQ_BUSY", 5, 2, 0), "qd", TRACE_ARG_INT, 4);
	craft_define(c, CRAFT_REQ_DONE, "REQ_DONE", 5, 2, 0);
	struct trace_file_tpoint *t = craft_define(c, CRAFT_IO_START, "IO_START", 0, 3, 1);
	craft_arg(t, "ctx", TRACE_ARG_PTR, 8);
	craft_arg(t, "offset", TRACE_ARG_INT, 8);
	craft_arg(t, "text", TRACE_ARG_STR, 16);
	t->related[0] = (struct trace_file_relation){2, 0};
	t = craft_define(c, CRAFT_IO_DONE, "IO_DONE", 0, 3, 0);
	craft_arg(t, "ctx", TRACE_ARG_PTR, 8);
	t->related[0] = (struct trace_file_relation){2, 0};
	t = craft_define(c, CRAFT_CMD, "CMD", 0, 4, 1);
	craft_arg(t, "ctx", TRACE_ARG_PTR, 8);
	t->related[0] = (struct trace_file_relation){3, 0};
}

static inline void craft_owner(struct craft *c, unsigned id, uint64_t tsc, const char *description)
{
	uint8_t *o = (uint8_t *)craft_section(c, TRACE_SECTION_OWNER) + 128 + id * (9 + CRAFT_DESCRIPTION);

	memcpy(o, &tsc, sizeof(tsc));
	o[8] = 5;
	strcpy((char *)o + 9, description);
}

static inline void craft_types(struct craft *c, unsigned section, const char *prefixes)
{
	uint16_t *count = craft_section(c, section);
	struct trace_file_type *t = (struct trace_file_type *)((uint8_t *)count + 128);

	*count = CRAFT_TYPES;
	for (unsigned i = 0; i < CRAFT_TYPES; i++) {
		t[i] = (struct trace_file_type){prefixes[i] == '-' ? 0 : (uint8_t)i,
						prefixes[i] == '-' ? 0 : prefixes[i]};
	}
}

/* Gives out `size` bytes at the end of what is laid out so far. */
static inline uint64_t craft_place(size_t *end, size_t size)
{
	uint64_t at = (*end + 7) & ~(size_t)7;

	*end = at + size;
	return at;
}

static inline void craft_histories(struct craft *c, size_t *end)
{
	uint64_t *offsets = (uint64_t *)((uint8_t *)craft_section(c, TRACE_SECTION_LCORE_OFFSETS) + 128);

	*(uint16_t *)craft_section(c, TRACE_SECTION_LCORE_OFFSETS) = (uint16_t)c->lcores;
	for (unsigned i = 0; i < c->lcores; i++) {
		offsets[i] = craft_place(end, 48 + 8 * CRAFT_TPOINTS + c->entries * sizeof(struct trace_file_entry));
		struct trace_file_history *h = craft_history(c, i);
		h->lcore = (int32_t)i;
		h->num_entries = c->entries;
		h->num_tpoint_ids = CRAFT_TPOINTS;
	}
}

static inline void craft_our_sections(struct craft *c, size_t *end)
{
	uint64_t *offsets = (uint64_t *)((uint8_t *)craft_section(c, TRACE_SECTION_STAMPS) + 128);

	*(uint16_t *)craft_section(c, TRACE_SECTION_STAMPS) = (uint16_t)c->lcores;
	for (unsigned i = 0; i < c->lcores; i++) {
		offsets[i] = craft_place(end, c->entries * sizeof(uint64_t));
	}
	struct trace_file_info *info = craft_section(c, TRACE_SECTION_INFO);
	info->version = TRACE_INFO_VERSION;
	info->num_clocks = TRACE_INFO_NUM_CLOCKS;
	info->flags = TRACE_INFO_TSO;
	strcpy(info->app_name, "craft");
	info->start = (struct trace_file_clock){.tsc = 1000, .realtime_ns = 1700000000000000000u};
	info->clock[0] = (struct trace_file_clock){.tsc = 1001000, .realtime_ns = 1700000000001000000u};
	struct trace_file_loss *loss = craft_section(c, TRACE_SECTION_LOSS);
	loss->num_slots = (uint16_t)c->lcores;
	loss->slot_size = sizeof(struct trace_file_slot_loss);
	loss->no_slot = 7;
}

/* A file of `lcores` rings of `entries` slots; with our sections, or as stock has it. craft_free() it. */
static inline struct craft craft_new(unsigned lcores, unsigned entries, bool ours)
{
	struct craft c = {.lcores = lcores, .entries = entries, .ours = ours};
	size_t end = 16 + 8 * TRACE_NUM_SECTIONS, table = 128;
	uint64_t at[TRACE_NUM_SECTIONS] = {
		[TRACE_SECTION_MAIN] = craft_place(&end, sizeof(struct trace_file_main)),
		[TRACE_SECTION_OWNER] = craft_place(&end, table + CRAFT_OWNERS * (9 + CRAFT_DESCRIPTION)),
		[TRACE_SECTION_TPOINT_MASK] = craft_place(&end, table + 8),
		[TRACE_SECTION_OWNER_TYPE] = craft_place(&end, table + 2 * CRAFT_TYPES),
		[TRACE_SECTION_OBJECT] = craft_place(&end, table + 2 * CRAFT_TYPES),
		[TRACE_SECTION_TPOINT] = craft_place(&end, table + CRAFT_TPOINTS * sizeof(struct trace_file_tpoint)),
		[TRACE_SECTION_LCORE_OFFSETS] = craft_place(&end, table + 8 * lcores),
	};
	if (ours) {
		at[TRACE_SECTION_STAMPS] = craft_place(&end, table + 8 * lcores);
		at[TRACE_SECTION_INFO] = craft_place(&end, sizeof(struct trace_file_info));
		at[TRACE_SECTION_LOSS] = craft_place(&end, 128 + lcores * sizeof(struct trace_file_slot_loss));
	}
	size_t room = end + lcores * (64 + 8 * CRAFT_TPOINTS + entries * 40);
	c.bytes = calloc(1, room);
	struct trace_file_header *h = (struct trace_file_header *)c.bytes;
	h->num_sections = ours ? TRACE_NUM_SECTIONS : TRACE_NUM_STOCK_SECTIONS;
	memcpy(h->section_offset, at, sizeof(at));
	((struct trace_file_main *)craft_section(&c, TRACE_SECTION_MAIN))->tsc_rate = CRAFT_RATE;
	struct trace_file_owner_section *o = craft_section(&c, TRACE_SECTION_OWNER);
	o->num_owners = CRAFT_OWNERS;
	o->description_size = CRAFT_DESCRIPTION;
	*(uint16_t *)craft_section(&c, TRACE_SECTION_TPOINT_MASK) = 1;
	*(uint16_t *)craft_section(&c, TRACE_SECTION_TPOINT) = CRAFT_TPOINTS;
	craft_types(&c, TRACE_SECTION_OWNER_TYPE, "-----c--");
	craft_types(&c, TRACE_SECTION_OBJECT, "--riN---");
	craft_define_all(&c);
	craft_histories(&c, &end);
	if (ours) {
		craft_our_sections(&c, &end);
	}
	c.size = end;
	h->file_size = end;
	return c;
}

static inline void craft_free(struct craft *c)
{
	free(c->bytes);
}

/* The first `n` bytes in a block of their own, so that a sanitizer sees every step over the end. */
static inline uint8_t *craft_cut(const struct craft *c, size_t n)
{
	uint8_t *p = malloc(n > 0 ? n : 1);

	memcpy(p, c->bytes, n);
	return p;
}

static inline void craft_slot(struct craft *c, unsigned lcore, uint64_t number, uint64_t tsc, const void *rest)
{
	struct trace_file_entry *e = &craft_entries(c, lcore)[number & (c->entries - 1)];

	if (c->ours) {
		craft_stamps(c, lcore)[number & (c->entries - 1)] = TRACE_FILE_STAMP(tsc, number);
	}
	memcpy((uint8_t *)e + 8, rest, 24);
	e->tsc = tsc;
}

/* Records an event with `length` bytes of arguments, as the recorder does. */
static inline void craft_record(struct craft *c, unsigned lcore, uint64_t tsc, struct trace_file_entry e,
				const void *args, size_t length)
{
	struct trace_file_history *h = craft_history(c, lcore);
	const uint8_t *p = args;
	size_t part = length < 8 ? length : 8;

	if (part > 0) {
		memcpy(e.args, p, part);
	}
	craft_slot(c, lcore, h->next_entry, tsc, (uint8_t *)&e + 8);
	uint64_t number = h->next_entry + 1;
	for (size_t at = part; at < length; at += part) {
		struct trace_file_continuation more = {.tpoint_id = TRACE_TPOINT_ID_CONTINUATION};
		part = length - at < 22 ? length - at : 22;
		memcpy(more.args, p + at, part);
		craft_slot(c, lcore, number++, tsc, (uint8_t *)&more + 8);
	}
	h->tpoint_count[e.tpoint_id % CRAFT_TPOINTS]++;
	h->next_entry = number;
}

/* ---- The tracepoints above ---- */

static inline void craft_plain(struct craft *c, unsigned lcore, uint64_t tsc)
{
	craft_record(c, lcore, tsc, (struct trace_file_entry){.tpoint_id = CRAFT_PLAIN}, NULL, 0);
}

static inline void craft_req(struct craft *c, unsigned lcore, uint64_t tsc, enum craft_tpoint id, uint64_t object)
{
	uint32_t qd = 9;

	craft_record(c, lcore, tsc, (struct trace_file_entry){.tpoint_id = id, .owner_id = 1, .object_id = object}, &qd,
		     id == CRAFT_REQ_BUSY ? 4 : 0);
}

static inline void craft_io_start(struct craft *c, unsigned lcore, uint64_t tsc, uint64_t object, uint64_t ctx)
{
	struct {
		uint64_t ctx, offset;
		char text[16];
	} args = {ctx, 4096 + tsc, "some words"};

	craft_record(c, lcore, tsc,
		     (struct trace_file_entry){.tpoint_id = CRAFT_IO_START, .size = 8, .object_id = object}, &args,
		     sizeof(args));
}

static inline void craft_child(struct craft *c, unsigned lcore, uint64_t tsc, enum craft_tpoint id, uint64_t object,
			       uint64_t ctx)
{
	craft_record(c, lcore, tsc, (struct trace_file_entry){.tpoint_id = id, .object_id = object}, &ctx, sizeof(ctx));
}

/* A file with a bit of everything in two rings that have not wrapped. */
static inline struct craft craft_sample(bool ours)
{
	struct craft c = craft_new(2, 16, ours);

	craft_owner(&c, 1, 50, "host a qid 1");
	craft_plain(&c, 1, 100);
	craft_req(&c, 0, 110, CRAFT_REQ_NEW, 0x1000);
	craft_req(&c, 0, 120, CRAFT_REQ_BUSY, 0x1000);
	craft_io_start(&c, 1, 130, 0x2000, 0x1000);
	craft_child(&c, 1, 140, CRAFT_CMD, 0x3000, 0x2000);
	craft_child(&c, 1, 170, CRAFT_IO_DONE, 0x2000, 0x1000);
	craft_req(&c, 0, 180, CRAFT_REQ_DONE, 0x1000);
	craft_req(&c, 0, 200, CRAFT_REQ_NEW, 0x1000);
	craft_plain(&c, 1, 200);
	return c;
}

#endif
