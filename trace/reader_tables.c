/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of a trace file: header, sections, tracepoints, types, owners, and where the rings are. All of it is
 * checked: offsets and counts against the file's length, names for their end, and definitions of tracepoints for
 * consistency. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/reader_internal.h"
#include "util/compiler.h"

static const char *const section_names[TRACE_NUM_SECTIONS] = {
	"MAIN",          "OWNER",  "TPOINT_MASK", "OWNER_TYPE", "OBJECT", "TPOINT",
	"LCORE_OFFSETS", "STAMPS", "INFO",        "LOSS",       "CAUSE",
};

/* ---- Header and section table ---- */

static int header_load(struct trace_reader *r, struct trace_error *err)
{
	struct trace_file_header h = {0};
	size_t fixed = offsetof(struct trace_file_header, section_offset);

	if (trace_source_read(&r->source, 0, &h, fixed) != 0) {
		trace_fail(err, "not a trace file: it has %" PRIu64 " bytes, the header alone has %zu", r->source.size,
			   fixed);
		return -EINVAL;
	}
	if (h.num_sections < TRACE_NUM_STOCK_SECTIONS) {
		trace_fail(err, "not a trace file: num_sections is %u, must be at least %u", h.num_sections,
			   TRACE_NUM_STOCK_SECTIONS);
		return -EINVAL;
	}
	unsigned known = h.num_sections < TRACE_NUM_SECTIONS ? h.num_sections : TRACE_NUM_SECTIONS;
	if (trace_source_read(&r->source, fixed, h.section_offset, known * sizeof(uint64_t)) != 0) {
		trace_fail(err, "the file ends within its section table (at byte %" PRIu64 ")", r->source.size);
		return -EINVAL;
	}
	if (h.file_size > r->source.size) {
		trace_problem(r, "the file is truncated: it has %" PRIu64 " bytes of %" PRIu64, r->source.size,
			      h.file_size);
	} else if (h.file_size != r->source.size) {
		trace_problem(r, "file_size is %" PRIu64 ", but the file has %" PRIu64 " bytes", h.file_size,
			      r->source.size);
	}
	uint64_t table_end = fixed + (uint64_t)h.num_sections * sizeof(uint64_t);
	for (unsigned i = 0; i < known; i++) {
		uint64_t at = h.section_offset[i];
		if (at != 0 && (at < table_end || at >= r->source.size)) {
			trace_problem(r, "section %s: offset %" PRIu64 " is not between %" PRIu64 " and %" PRIu64,
				      section_names[i], at, table_end, r->source.size);
			at = 0;
		}
		r->section[i] = at;
	}
	return 0;
}

static int main_load(struct trace_reader *r, struct trace_error *err)
{
	struct trace_file_main m;

	if (r->section[TRACE_SECTION_MAIN] == 0 ||
	    trace_source_read(&r->source, r->section[TRACE_SECTION_MAIN], &m, 2 * sizeof(uint64_t)) != 0) {
		trace_fail(err, "not a trace file, or a damaged one: section MAIN is missing or cut off");
		return -EINVAL;
	}
	if (m.tsc_rate == 0) {
		trace_fail(err, "not a trace file, or a damaged one: section MAIN: tsc_rate is 0, must be the ticks "
				"per second");
		return -EINVAL;
	}
	r->tsc_rate = m.tsc_rate;
	return 0;
}

/* How many rows of a table there are and fit into the file. *at gets the offset of the first. */
static unsigned table_rows(struct trace_reader *r, unsigned section, unsigned max_rows, size_t row_size, uint64_t *at)
{
	uint16_t count;

	if (r->section[section] == 0) {
		return 0;
	}
	if (trace_source_read(&r->source, r->section[section], &count, sizeof(count)) != 0) {
		trace_problem(r, "section %s is cut off", section_names[section]);
		return 0;
	}
	*at = r->section[section] + sizeof(struct trace_file_table);
	uint64_t room = *at < r->source.size ? (r->source.size - *at) / row_size : 0;
	if (count > max_rows) {
		trace_problem(r, "section %s: count is %u, at most %u are possible", section_names[section], count,
			      max_rows);
		count = (uint16_t)max_rows;
	}
	if (count > room) {
		trace_problem(r, "section %s: only %" PRIu64 " of its %u rows are in the file", section_names[section],
			      room, count);
		count = (uint16_t)room;
	}
	return count;
}

/* ---- Masks and types ---- */

static void masks_load(struct trace_reader *r)
{
	uint64_t at = 0;
	unsigned n = table_rows(r, TRACE_SECTION_TPOINT_MASK, TRACE_NUM_GROUPS, sizeof(uint64_t), &at);

	if (trace_source_read(&r->source, at, r->masks, n * sizeof(uint64_t)) != 0) {
		memset(r->masks, 0, sizeof(r->masks));
	}
}

static void types_load(struct trace_reader *r, unsigned section, char *prefix)
{
	struct trace_file_type types[TRACE_NUM_TYPES];
	uint64_t at = 0;
	unsigned n = table_rows(r, section, TRACE_NUM_TYPES, sizeof(types[0]), &at);

	if (trace_source_read(&r->source, at, types, n * sizeof(types[0])) != 0) {
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		if (types[i].id_prefix == 0) {
			continue;
		}
		if (types[i].type != i || !isgraph((unsigned char)types[i].id_prefix)) {
			trace_problem(r, "section %s: row %u has type %u and prefix 0x%02x; must be %u and a letter",
				      section_names[section], i, types[i].type, (unsigned char)types[i].id_prefix, i);
			continue;
		}
		prefix[i] = types[i].id_prefix;
	}
}

/* ---- Tracepoints ---- */

/* Copies a name, which must be printable and end with a NUL. */
static bool name_copy(char *to, const char *from, size_t size)
{
	size_t n = strnlen(from, size);

	if (n == 0 || n == size) {
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (!isprint((unsigned char)from[i])) {
			return false;
		}
	}
	memcpy(to, from, n);
	to[n] = '\0';
	return true;
}

static bool arg_size_is_valid(const struct trace_file_arg *a)
{
	switch (a->type) {
	case TRACE_ARG_INT:
	case TRACE_ARG_PTR:
		return a->size == 1 || a->size == 2 || a->size == 4 || a->size == 8;
	case TRACE_ARG_STR:
		return a->size > 0;
	default:
		return false;
	}
}

static bool args_decode(const struct trace_file_tpoint *f, struct trace_tpoint *t, char *why, size_t why_size)
{
	if (f->num_args > TRACE_MAX_ARGS) {
		snprintf(why, why_size, "num_args is %u, at most %u are possible", f->num_args, TRACE_MAX_ARGS);
		return false;
	}
	for (unsigned i = 0; i < f->num_args; i++) {
		const struct trace_file_arg *a = &f->args[i];
		if (!name_copy(t->args[i].name, a->name, sizeof(a->name))) {
			snprintf(why, why_size, "the name of argument %u is empty, unprintable or unterminated", i);
			return false;
		}
		if (!arg_size_is_valid(a)) {
			snprintf(why, why_size,
				 "argument %s has type %u and size %u; numbers (0) and pointers (1) have 1, "
				 "2, 4 or 8, strings (2) 1 to 255",
				 t->args[i].name, a->type, a->size);
			return false;
		}
		t->args[i].type = a->type;
		t->args[i].size = a->size;
		t->args[i].offset = t->arg_bytes;
		t->arg_bytes += a->size;
	}
	t->num_args = f->num_args;
	return true;
}

static bool relations_decode(const struct trace_file_tpoint *f, struct trace_tpoint *t, char *why, size_t why_size)
{
	for (unsigned i = 0; i < TRACE_MAX_RELATIONS && f->related[i].object_type != 0; i++) {
		unsigned arg = f->related[i].arg_index;
		if (arg >= t->num_args || t->args[arg].type == TRACE_ARG_STR) {
			snprintf(why, why_size,
				 "relation %u names argument %u, which is not one of its %u, or a string", i, arg,
				 t->num_args);
			return false;
		}
		t->related[t->num_related++] =
			(struct trace_relation){.object_type = f->related[i].object_type, .arg = (uint8_t)arg};
	}
	return true;
}

/* The format does not say which event ends an object, so the tracepoint's name decides, varve's or a stock target's. */
static bool name_says_end(const char *name)
{
	static const char *const ends[] = {"_DONE", "_COMPLETE", "_COMPLETED", "_END"};
	size_t n = strlen(name);

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		size_t length = strlen(ends[i]);
		if (n > length && strcmp(name + n - length, ends[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Decodes one definition; false, with the reason, if it is unusable. Pure. */
static bool tpoint_decode(const struct trace_file_tpoint *f, unsigned id, struct trace_tpoint *t, char *why,
			  size_t why_size)
{
	*t = (struct trace_tpoint){.id = (uint16_t)id, .owner_type = f->owner_type, .object_type = f->object_type};
	if (!name_copy(t->name, f->name, sizeof(f->name))) {
		snprintf(why, why_size, "its name is unprintable or unterminated");
		return false;
	}
	if (f->tpoint_id != id) {
		snprintf(why, why_size, "its tpoint_id is %u", f->tpoint_id);
		return false;
	}
	if (f->new_object > 1 || (f->new_object == 1 && f->object_type == 0)) {
		snprintf(why, why_size, "new_object is %u with object type %u; must be 0, or 1 with a type",
			 f->new_object, f->object_type);
		return false;
	}
	t->new_object = f->new_object;
	t->end_object = f->object_type != 0 && name_says_end(t->name);
	if (!args_decode(f, t, why, why_size) || !relations_decode(f, t, why, why_size)) {
		return false;
	}
	t->lost_mark = strcmp(t->name, TRACE_LOST_NAME) == 0 && t->num_args == 1 && t->args[0].type == TRACE_ARG_INT &&
		       t->args[0].size == sizeof(uint64_t);
	unsigned beyond = t->arg_bytes > TRACE_ENTRY_ARG_BYTES ? t->arg_bytes - TRACE_ENTRY_ARG_BYTES : 0;
	t->num_slots = (uint16_t)(1 + (beyond + TRACE_CONTINUATION_ARG_BYTES - 1) / TRACE_CONTINUATION_ARG_BYTES);
	return true;
}

static int tpoints_load(struct trace_reader *r, struct trace_error *err)
{
	uint64_t at = 0;
	unsigned n = table_rows(r, TRACE_SECTION_TPOINT, TRACE_NUM_TPOINTS, sizeof(struct trace_file_tpoint), &at);

	if (n == 0) {
		trace_fail(err, "section TPOINT is missing, empty or cut off: without definitions no event "
				"can be read");
		return -EINVAL;
	}
	struct trace_file_tpoint *rows = malloc(n * sizeof(*rows));
	r->tpoints = calloc(n, sizeof(*r->tpoints));
	if (rows == NULL || r->tpoints == NULL || trace_source_read(&r->source, at, rows, n * sizeof(*rows)) != 0) {
		trace_fail(err, "section TPOINT cannot be read");
		free(rows);
		return -EIO;
	}
	r->num_tpoints = n;
	r->max_slots = 1;
	for (unsigned i = 0; i < n; i++) {
		struct trace_tpoint *t = &r->tpoints[i];
		char why[160];
		if (rows[i].name[0] == '\0') {
			continue;
		}
		if (!tpoint_decode(&rows[i], i, t, why, sizeof(why))) {
			trace_problem(r, "tracepoint %u is left out: %s", i, why);
			t->name[0] = '\0';
			t->num_slots = TRACE_FILE_MAX_SLOTS;
		}
		r->max_slots = t->num_slots > r->max_slots ? t->num_slots : r->max_slots;
	}
	free(rows);
	return 0;
}

/* ---- Owners ---- */

enum { OWNERS_PER_READ = 512 }; /* rows read at a time */

static void owner_table_find(struct trace_reader *r)
{
	struct trace_file_owner_section s;
	uint64_t at = r->section[TRACE_SECTION_OWNER];

	if (at == 0) {
		return;
	}
	if (trace_source_read(&r->source, at, &s, sizeof(s)) != 0) {
		trace_problem(r, "section OWNER is cut off");
		return;
	}
	if (s.description_size == 0 || s.description_size > TRACE_MAX_DESCRIPTION) {
		trace_problem(r, "section OWNER: description_size is %u, must be 1 to %u", s.description_size,
			      TRACE_MAX_DESCRIPTION);
		return;
	}
	r->owner_stride = offsetof(struct trace_file_owner, description) + s.description_size;
	uint64_t room = (r->source.size - at - sizeof(s)) / r->owner_stride;
	r->num_owners = s.num_owners;
	if (s.num_owners > room) {
		trace_problem(r, "section OWNER: only %" PRIu64 " of its %u rows are in the file", room, s.num_owners);
		r->num_owners = (unsigned)room;
	}
}

static uint64_t owner_tsc(const struct trace_reader *r, const uint8_t *owners, unsigned id)
{
	uint64_t tsc;

	memcpy(&tsc, owners + id * r->owner_stride, sizeof(tsc));
	return tsc;
}

/* Takes the rows that are in use out of one part of the table, read twice: the writer sets a row's tsc to 0, rewrites
 * it, and sets the tsc last, so a row whose tsc is the same before and after was not being rewritten. */
static int owners_load_rows(const struct trace_reader *r, uint64_t at, unsigned n, uint8_t *first, uint8_t *second,
			    uint8_t *rows)
{
	size_t size = n * r->owner_stride;
	bool used = false;
	int rc = trace_source_read(&r->source, at, first, size);

	for (unsigned i = 0; rc == 0 && i < n; i++) {
		used = used || owner_tsc(r, first, i) != 0;
	}
	if (rc != 0 || !used) {
		return rc;
	}
	rc = trace_source_read(&r->source, at, second, size);
	for (unsigned i = 0; rc == 0 && i < n; i++) {
		uint64_t tsc = owner_tsc(r, first, i);
		if (tsc != 0 && tsc == owner_tsc(r, second, i)) {
			memcpy(rows + i * r->owner_stride, first + i * r->owner_stride, r->owner_stride);
		}
	}
	return rc;
}

/* The table is large and mostly empty: only what is in use is copied. */
int trace_owners_load(struct trace_reader *r)
{
	uint64_t at = r->section[TRACE_SECTION_OWNER] + sizeof(struct trace_file_owner_section);
	int rc = 0;

	if (r->num_owners == 0) {
		return 0;
	}
	uint8_t *rows = calloc(r->num_owners, r->owner_stride);
	uint8_t *rows_twice = malloc(2 * OWNERS_PER_READ * r->owner_stride);
	if (rows == NULL || rows_twice == NULL) {
		rc = -ENOMEM;
	}
	for (unsigned i = 0; rc == 0 && i < r->num_owners; i += OWNERS_PER_READ) {
		unsigned n = r->num_owners - i < OWNERS_PER_READ ? r->num_owners - i : OWNERS_PER_READ;
		size_t offset = i * r->owner_stride;
		rc = owners_load_rows(r, at + offset, n, rows_twice, rows_twice + OWNERS_PER_READ * r->owner_stride,
				      rows + offset);
	}
	if (rc == 0) {
		uint8_t *old = r->owners;
		r->owners = rows;
		rows = old;
	}
	free(rows);
	free(rows_twice);
	return rc;
}

const char *trace_reader_owner(struct trace_reader *r, uint16_t id, uint64_t tsc)
{
	if (id == 0 || id >= r->num_owners || r->owners == NULL) {
		return NULL;
	}
	uint64_t since = owner_tsc(r, r->owners, id);
	if (since == 0 || since > tsc) {
		return NULL;
	}
	const char *from =
		(const char *)r->owners + id * r->owner_stride + offsetof(struct trace_file_owner, description);
	size_t n = strnlen(from, r->owner_stride - offsetof(struct trace_file_owner, description));
	if (n == 0) {
		return NULL;
	}
	memcpy(r->description, from, n);
	r->description[n] = '\0';
	return r->description;
}

uint64_t trace_reader_owner_since(const struct trace_reader *r, uint16_t id, uint8_t *type)
{
	if (id == 0 || id >= r->num_owners || r->owners == NULL) {
		return 0;
	}
	*type = r->owners[id * r->owner_stride + offsetof(struct trace_file_owner, type)];
	return owner_tsc(r, r->owners, id);
}

unsigned trace_reader_num_owners(const struct trace_reader *r)
{
	return r->owners != NULL ? r->num_owners : 0;
}

/* ---- Rings ---- */

/* The tsc since which the thread that a ring is named after has used it; user threads reuse rings of others. */
static uint64_t attach_tsc_read(const struct trace_reader *r, uint32_t lcore)
{
	struct trace_file_loss loss;
	uint64_t at = r->section[TRACE_SECTION_LOSS], tsc = 0;

	if (at == 0 || trace_source_read(&r->source, at, &loss, sizeof(loss)) != 0 || lcore >= loss.num_slots ||
	    loss.slot_size < sizeof(struct trace_file_slot_loss)) {
		return 0;
	}
	at += sizeof(loss) + (uint64_t)lcore * loss.slot_size + offsetof(struct trace_file_slot_loss, attach_tsc);
	return trace_source_read(&r->source, at, &tsc, sizeof(tsc)) == 0 ? tsc : 0;
}

void trace_history_name(struct trace_reader *r, struct trace_history *h)
{
	char name[TRACE_THREAD_NAME_SIZE];

	h->name[0] = '\0';
	if (trace_source_read(&r->source, h->offset + offsetof(struct trace_file_history, tname), name, sizeof(name)) !=
		    0 ||
	    name[0] == '\0') {
		return;
	}
	if (!name_copy(h->name, name, sizeof(name))) {
		trace_problem(r, "ring of lcore %u: its thread name is unprintable or unterminated", h->lcore);
		h->name[0] = '\0';
	}
	h->attach_tsc = attach_tsc_read(r, h->lcore);
}

const char *trace_reader_thread_name(const struct trace_reader *r, uint32_t lcore, uint64_t tsc)
{
	size_t low = 0, high = r->num_histories;

	while (low < high) {
		size_t middle = (low + high) / 2;
		if (r->histories[middle].lcore < lcore) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	bool found = low < r->num_histories && r->histories[low].lcore == lcore && tsc >= r->histories[low].attach_tsc;
	return found ? r->histories[low].name : "";
}

/* Checks the head of one ring; false, and a problem, if it is unusable. */
static bool history_load(struct trace_reader *r, unsigned lcore, uint64_t at, struct trace_history *h)
{
	struct trace_file_history head;
	size_t head_size = offsetof(struct trace_file_history, tpoint_count);

	if (trace_source_read(&r->source, at, &head, head_size) != 0) {
		trace_problem(r, "ring of lcore %u: its offset %" PRIu64 " is not in the file (%" PRIu64 " bytes)",
			      lcore, at, r->source.size);
		return false;
	}
	if (head.num_entries == 0 || (head.num_entries & (head.num_entries - 1)) != 0 ||
	    head.num_entries > UINT32_MAX) {
		trace_problem(r, "ring of lcore %u: num_entries is %" PRIu64 ", must be a power of two below 2^32",
			      lcore, head.num_entries);
		return false;
	}
	if (head.num_tpoint_ids != r->num_tpoints && head.num_tpoint_ids != TRACE_NUM_TPOINTS) {
		trace_problem(r, "ring of lcore %u: num_tpoint_ids is %" PRIu64 ", must be %u", lcore,
			      head.num_tpoint_ids, r->num_tpoints);
		return false;
	}
	*h = (struct trace_history){
		.lcore = lcore, .offset = at, .num_entries = head.num_entries, .num_tpoint_ids = head.num_tpoint_ids};
	if (head.lcore < 0 || (unsigned)head.lcore != lcore) {
		trace_problem(r, "ring of lcore %u says that it is lcore %d", lcore, head.lcore);
	}
	h->entries_at = at + head_size + head.num_tpoint_ids * sizeof(uint64_t);
	uint64_t room =
		h->entries_at < r->source.size ? (r->source.size - h->entries_at) / sizeof(struct trace_file_entry) : 0;
	h->readable = room < h->num_entries ? room : h->num_entries;
	if (h->readable < h->num_entries) {
		trace_problem(r, "ring of lcore %u: only %" PRIu64 " of its %" PRIu64 " entries are in the file", lcore,
			      h->readable, h->num_entries);
	}
	return true;
}

static int history_by_offset(const void *a, const void *b)
{
	const struct trace_history *x = a, *y = b;

	return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
				      : (x->lcore > y->lcore) - (x->lcore < y->lcore);
}

static int history_by_lcore(const void *a, const void *b)
{
	const struct trace_history *x = a, *y = b;

	return (x->lcore > y->lcore) - (x->lcore < y->lcore);
}

/* Rings that share bytes would let a small file claim any amount of memory. */
static void overlaps_remove(struct trace_reader *r)
{
	uint64_t end = 0;
	size_t kept = 0;

	qsort(r->histories, r->num_histories, sizeof(r->histories[0]), history_by_offset);
	for (size_t i = 0; i < r->num_histories; i++) {
		const struct trace_history *h = &r->histories[i];
		if (h->offset < end) {
			trace_problem(r, "ring of lcore %u is left out: it overlaps that of lcore %u", h->lcore,
				      r->histories[kept - 1].lcore);
			continue;
		}
		end = h->entries_at + h->readable * sizeof(struct trace_file_entry);
		r->histories[kept++] = *h;
	}
	r->num_histories = kept;
	qsort(r->histories, r->num_histories, sizeof(r->histories[0]), history_by_lcore);
}

static void stamps_find(struct trace_reader *r)
{
	uint64_t at = 0;
	unsigned n = table_rows(r, TRACE_SECTION_STAMPS, UINT16_MAX, sizeof(uint64_t), &at);

	for (size_t i = 0; i < r->num_histories; i++) {
		struct trace_history *h = &r->histories[i];
		uint64_t offset = 0;
		if (h->lcore >= n ||
		    trace_source_read(&r->source, at + h->lcore * sizeof(offset), &offset, sizeof(offset)) != 0 ||
		    offset == 0) {
			continue;
		}
		if (offset > r->source.size || h->num_entries > (r->source.size - offset) / sizeof(uint64_t)) {
			trace_problem(
				r, "stamps of lcore %u: %" PRIu64 " of them at offset %" PRIu64 " are not in the file",
				h->lcore, h->num_entries, offset);
			continue;
		}
		h->stamps_at = offset;
	}
}

static int histories_load(struct trace_reader *r, struct trace_error *err)
{
	uint64_t at = 0;
	unsigned n = table_rows(r, TRACE_SECTION_LCORE_OFFSETS, UINT16_MAX, sizeof(uint64_t), &at);

	if (n == 0) {
		trace_fail(err, "section LCORE_OFFSETS is missing, empty or cut off: there is no ring to read");
		return -EINVAL;
	}
	r->histories = calloc(n, sizeof(r->histories[0]));
	if (r->histories == NULL) {
		trace_fail(err, "out of memory");
		return -ENOMEM;
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t offset = 0;
		if (trace_source_read(&r->source, at + i * sizeof(offset), &offset, sizeof(offset)) == 0 &&
		    offset != 0 && history_load(r, i, offset, &r->histories[r->num_histories])) {
			r->num_histories++;
		}
	}
	overlaps_remove(r);
	stamps_find(r);
	return 0;
}

/* ---- Our own sections ---- */

static void info_load(struct trace_reader *r)
{
	struct trace_file_info *i = &r->info;
	uint64_t at = r->section[TRACE_SECTION_INFO];

	if (at == 0) {
		return;
	}
	if (trace_source_read(&r->source, at, i, sizeof(*i)) != 0 || i->version < TRACE_INFO_VERSION) {
		trace_problem(r, "section INFO is cut off or of version 0");
		memset(i, 0, sizeof(*i));
		return;
	}
	i->boot_id[sizeof(i->boot_id) - 1] = '\0';
	i->app_name[sizeof(i->app_name) - 1] = '\0';
	i->app_version[sizeof(i->app_version) - 1] = '\0';
	i->build_id[sizeof(i->build_id) - 1] = '\0';
	i->crash_thread[sizeof(i->crash_thread) - 1] = '\0';
	i->crash_sender_name[sizeof(i->crash_sender_name) - 1] = '\0';
	r->has_info = true;
}

int trace_tables_load(struct trace_reader *r, struct trace_error *err)
{
	int rc = header_load(r, err);

	if (rc == 0) {
		rc = main_load(r, err);
	}
	if (rc == 0) {
		rc = tpoints_load(r, err);
	}
	if (rc == 0) {
		rc = histories_load(r, err);
	}
	if (rc != 0) {
		return rc;
	}
	masks_load(r);
	types_load(r, TRACE_SECTION_OWNER_TYPE, r->owner_prefix);
	types_load(r, TRACE_SECTION_OBJECT, r->object_prefix);
	owner_table_find(r);
	info_load(r);
	trace_cause_load(r);
	return 0;
}

/* ---- Queries ---- */

uint64_t trace_reader_tsc_rate(const struct trace_reader *r)
{
	return r->tsc_rate;
}

const struct trace_file_info *trace_reader_info(const struct trace_reader *r)
{
	return r->has_info ? &r->info : NULL;
}

const struct trace_tpoint *trace_reader_tpoint(const struct trace_reader *r, unsigned id)
{
	return id < r->num_tpoints && r->tpoints[id].name[0] != '\0' ? &r->tpoints[id] : NULL;
}

unsigned trace_reader_num_tpoints(const struct trace_reader *r)
{
	return r->num_tpoints;
}

unsigned trace_reader_num_lcores(const struct trace_reader *r)
{
	return r->num_histories > 0 ? r->histories[r->num_histories - 1].lcore + 1 : 0;
}

uint64_t trace_reader_tpoint_mask(const struct trace_reader *r, unsigned group)
{
	return group < TRACE_NUM_GROUPS ? r->masks[group] : 0;
}

char trace_reader_object_prefix(const struct trace_reader *r, uint8_t type)
{
	return r->object_prefix[type];
}

char trace_reader_owner_prefix(const struct trace_reader *r, uint8_t type)
{
	return r->owner_prefix[type];
}

uint64_t trace_ticks_to_ns(uint64_t ticks, uint64_t tsc_rate)
{
	/* Where the products fit: two 64-bit divisions, several times faster than one of 128 bits, same result. */
	if (ticks <= UINT64_MAX / 1000000000u) {
		return ticks * 1000000000u / tsc_rate;
	}
	if (tsc_rate <= UINT64_MAX / 1000000000u && ticks / tsc_rate < UINT64_MAX / 1000000000u - 1) {
		return ticks / tsc_rate * 1000000000u + ticks % tsc_rate * 1000000000u / tsc_rate;
	}
	unsigned __int128 ns = (unsigned __int128)ticks * 1000000000u / tsc_rate;

	return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

uint64_t trace_ns_to_ticks(uint64_t ns, uint64_t tsc_rate)
{
	unsigned __int128 ticks = (unsigned __int128)ns * tsc_rate / 1000000000u;

	return ticks > UINT64_MAX ? UINT64_MAX : (uint64_t)ticks;
}
