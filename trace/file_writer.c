/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace/file_writer.h"

enum { BUFFER_ENTRIES = 2048, NUM_SECTIONS = TRACE_SECTION_INFO + 1 };

struct ring {
	struct trace_file_history *head;
	uint64_t at;      /* of the head */
	uint64_t written; /* entries in the file; head->next_entry counts the buffered ones too */
	bool used;
	struct trace_file_entry *buffer;
};

struct trace_file_writer {
	int fd, error;
	uint64_t section[NUM_SECTIONS];
	unsigned num_rings;
	uint64_t entries;  /* of all rings */
	uint64_t rings_at; /* where the first one begins */
	struct ring rings[];
};

static int write_at(struct trace_file_writer *w, uint64_t at, const void *bytes, size_t n)
{
	const uint8_t *from = bytes;

	while (n > 0 && w->error == 0) {
		ssize_t done = pwrite(w->fd, from, n, (off_t)at);
		if (done < 0 && errno == EINTR) {
			continue;
		}
		if (done <= 0) {
			w->error = done < 0 ? -errno : -EIO;
			break;
		}
		from += done;
		at += (uint64_t)done;
		n -= (size_t)done;
	}
	return w->error;
}

/* ---- Layout ---- */

/* Places the sections; returns where the rings begin. */
static uint64_t sections_place(struct trace_file_writer *w, const struct trace_file_tables *t)
{
	const uint64_t head = sizeof(struct trace_file_table);
	const uint64_t size[NUM_SECTIONS] = {
		[TRACE_SECTION_MAIN] = sizeof(struct trace_file_main),
		[TRACE_SECTION_OWNER] = head + TRACE_NUM_OWNERS * sizeof(struct trace_file_owner),
		[TRACE_SECTION_TPOINT_MASK] = head + sizeof(t->masks),
		[TRACE_SECTION_OWNER_TYPE] = head + TRACE_NUM_TYPES * sizeof(struct trace_file_type),
		[TRACE_SECTION_OBJECT] = head + TRACE_NUM_TYPES * sizeof(struct trace_file_type),
		[TRACE_SECTION_TPOINT] = head + sizeof(t->tpoints),
		[TRACE_SECTION_LCORE_OFFSETS] = head + t->num_rings * sizeof(uint64_t),
		[TRACE_SECTION_INFO] = t->info.version != 0 ? sizeof(t->info) : 0,
	};
	uint64_t at = 4096;

	for (unsigned i = 0; i < NUM_SECTIONS; i++) {
		w->section[i] = size[i] > 0 ? at : 0;
		at = (at + size[i] + 63) / 64 * 64;
	}
	return (at + 4095) / 4096 * 4096;
}

static void table_write(struct trace_file_writer *w, unsigned section, unsigned count, const void *rows, size_t size)
{
	struct trace_file_table head = {.count = (uint16_t)count};

	write_at(w, w->section[section], &head, sizeof(head));
	write_at(w, w->section[section] + sizeof(head), rows, size);
}

static void types_write(struct trace_file_writer *w, unsigned section, const char *prefix)
{
	struct trace_file_type types[TRACE_NUM_TYPES];

	for (unsigned i = 0; i < TRACE_NUM_TYPES; i++) {
		types[i] = (struct trace_file_type){(uint8_t)i, prefix[i]};
	}
	table_write(w, section, TRACE_NUM_TYPES, types, sizeof(types));
}

static void sections_write(struct trace_file_writer *w, const struct trace_file_tables *t)
{
	struct trace_file_main main_section = {.tsc_rate = t->tsc_rate};
	struct trace_file_owner_section owners = {TRACE_NUM_OWNERS, TRACE_OWNER_DESCRIPTION_SIZE, {0}};
	struct trace_file_tpoint lost = {
		.name = TRACE_LOST_NAME,
		.tpoint_id = TRACE_LOST_TPOINT,
		.num_args = 1,
		.args = {{"entries", TRACE_ARG_INT, 8}},
	};

	write_at(w, w->section[TRACE_SECTION_MAIN], &main_section, sizeof(main_section));
	write_at(w, w->section[TRACE_SECTION_OWNER], &owners, sizeof(owners));
	table_write(w, TRACE_SECTION_TPOINT_MASK, TRACE_NUM_GROUPS, t->masks, sizeof(t->masks));
	types_write(w, TRACE_SECTION_OWNER_TYPE, t->owner_prefix);
	types_write(w, TRACE_SECTION_OBJECT, t->object_prefix);
	table_write(w, TRACE_SECTION_TPOINT, TRACE_NUM_TPOINTS, t->tpoints, sizeof(t->tpoints));
	write_at(w,
		 w->section[TRACE_SECTION_TPOINT] + sizeof(struct trace_file_table) + TRACE_LOST_TPOINT * sizeof(lost),
		 &lost, sizeof(lost));
	if (w->section[TRACE_SECTION_INFO] != 0) {
		write_at(w, w->section[TRACE_SECTION_INFO], &t->info, sizeof(t->info));
	}
}

static void offsets_write(struct trace_file_writer *w)
{
	struct trace_file_table head = {.count = (uint16_t)w->num_rings};
	uint64_t at = w->section[TRACE_SECTION_LCORE_OFFSETS];

	write_at(w, at, &head, sizeof(head));
	for (unsigned i = 0; i < w->num_rings; i++) {
		uint64_t offset = w->rings[i].used ? w->rings[i].at : 0;
		write_at(w, at + sizeof(head) + i * sizeof(offset), &offset, sizeof(offset));
	}
}

static void layout_write(struct trace_file_writer *w, const struct trace_file_tables *t)
{
	uint64_t at = sections_place(w, t), ring_size = sizeof(struct trace_file_history) + t->num_entries * 32;
	struct trace_file_header h = {.file_size = at + t->num_rings * ring_size, .num_sections = NUM_SECTIONS};

	w->rings_at = at;
	memcpy(h.section_offset, w->section, sizeof(w->section));
	write_at(w, 0, &h, offsetof(struct trace_file_header, section_offset) + sizeof(w->section));
	sections_write(w, t);
	for (unsigned i = 0; i < t->num_rings && w->error == 0; i++) {
		w->rings[i].head = calloc(1, sizeof(*w->rings[i].head));
		if (w->rings[i].head == NULL) {
			w->error = -ENOMEM;
			return;
		}
		w->rings[i].at = at + i * ring_size;
		w->rings[i].head->lcore = (int32_t)i;
		w->rings[i].head->num_entries = t->num_entries;
		w->rings[i].head->num_tpoint_ids = TRACE_NUM_TPOINTS;
	}
	offsets_write(w);
	if (w->error == 0 && ftruncate(w->fd, (off_t)h.file_size) != 0) {
		w->error = -errno;
	}
}

int trace_file_create(const char *path, const struct trace_file_tables *t, struct trace_file_writer **out)
{
	if (t->num_entries == 0 || (t->num_entries & (t->num_entries - 1)) != 0 || t->tsc_rate == 0 ||
	    t->num_rings > UINT16_MAX) {
		return -EINVAL;
	}
	struct trace_file_writer *w = calloc(1, sizeof(*w) + t->num_rings * sizeof(w->rings[0]));
	if (w == NULL) {
		return -ENOMEM;
	}
	w->num_rings = t->num_rings;
	w->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (w->fd < 0) {
		int rc = -errno;
		free(w);
		return rc;
	}
	flock(w->fd, LOCK_EX | LOCK_NB); /* as the recorder does, so that readers see that it is being written */
	layout_write(w, t);
	if (w->error != 0) {
		unlink(path);
		return trace_file_close(w);
	}
	*out = w;
	return 0;
}

int trace_file_owner(struct trace_file_writer *w, uint16_t id, uint64_t tsc, uint8_t type, const char *description)
{
	struct trace_file_owner o = {.tsc = tsc, .type = type};

	strncpy(o.description, description, sizeof(o.description) - 1);
	return id >= TRACE_NUM_OWNERS ? -EINVAL
				      : write_at(w,
						 w->section[TRACE_SECTION_OWNER] +
							 sizeof(struct trace_file_owner_section) + id * sizeof(o),
						 &o, sizeof(o));
}

/* ---- Entries ---- */

static int ring_flush(struct trace_file_writer *w, struct ring *ring)
{
	if (!ring->used) {
		return w->error;
	}
	uint64_t mask = ring->head->num_entries - 1;

	while (ring->written < ring->head->next_entry && w->error == 0) {
		uint64_t slot = ring->written & mask, n = ring->head->next_entry - ring->written;
		uint64_t from = ring->written % BUFFER_ENTRIES;
		n = n < mask + 1 - slot ? n : mask + 1 - slot;
		n = n < BUFFER_ENTRIES - from ? n : BUFFER_ENTRIES - from;
		write_at(w, ring->at + sizeof(*ring->head) + slot * 32, ring->buffer + from, n * 32);
		ring->written += n;
	}
	return write_at(w, ring->at, ring->head, sizeof(*ring->head));
}

/* Adds a ring to the file, with its first entry or name. */
static int ring_use(struct trace_file_writer *w, struct ring *ring)
{
	if (ring->used) {
		return 0;
	}
	ring->buffer = malloc(BUFFER_ENTRIES * sizeof(ring->buffer[0]));
	if (ring->buffer == NULL) {
		return w->error = -ENOMEM;
	}
	write_at(w, ring->at, ring->head, sizeof(*ring->head));
	ring->used = true;
	offsets_write(w);
	return w->error;
}

void trace_file_ring_name(struct trace_file_writer *w, unsigned ring, const char *name)
{
	memset(w->rings[ring].head->tname, 0, sizeof(w->rings[ring].head->tname));
	strncpy(w->rings[ring].head->tname, name, sizeof(w->rings[ring].head->tname) - 1);
}

static int slot_put(struct trace_file_writer *w, struct ring *ring, const void *slot)
{
	memcpy(&ring->buffer[ring->head->next_entry++ % BUFFER_ENTRIES], slot, sizeof(ring->buffer[0]));
	w->entries++;
	return ring->head->next_entry - ring->written == BUFFER_ENTRIES ? ring_flush(w, ring) : w->error;
}

int trace_file_put(struct trace_file_writer *w, unsigned ring, const struct trace_file_entry *head, const void *args,
		   size_t arg_bytes)
{
	struct ring *to = &w->rings[ring];
	struct trace_file_entry e = *head;
	const uint8_t *from = args;
	size_t part = arg_bytes < sizeof(e.args) ? arg_bytes : sizeof(e.args);

	if (ring_use(w, to) != 0) {
		return w->error;
	}
	memset(e.args, 0, sizeof(e.args));
	if (part > 0) {
		memcpy(e.args, from, part);
	}
	to->head->tpoint_count[head->tpoint_id % TRACE_NUM_TPOINTS]++;
	slot_put(w, to, &e);
	while ((arg_bytes -= part) > 0) {
		struct trace_file_continuation c = {.tsc = e.tsc, .tpoint_id = TRACE_TPOINT_ID_CONTINUATION};
		from += part;
		part = arg_bytes < sizeof(c.args) ? arg_bytes : sizeof(c.args);
		memcpy(c.args, from, part);
		slot_put(w, to, &c);
	}
	return w->error;
}

int trace_file_lost(struct trace_file_writer *w, unsigned ring, uint64_t tsc, uint64_t entries)
{
	struct trace_file_entry e = {.tsc = tsc, .tpoint_id = TRACE_LOST_TPOINT};

	return trace_file_put(w, ring, &e, &entries, sizeof(entries));
}

int trace_file_flush(struct trace_file_writer *w)
{
	for (unsigned i = 0; i < w->num_rings; i++) {
		ring_flush(w, &w->rings[i]);
	}
	return w->error;
}

uint64_t trace_file_bytes(const struct trace_file_writer *w)
{
	return w->entries * sizeof(struct trace_file_entry);
}

/* ---- The end ---- */

enum { COPY_BYTES = 65536, MIN_ENTRIES = 64 };

static int bytes_move(struct trace_file_writer *w, uint64_t from, uint64_t to, uint64_t n)
{
	char *piece = malloc(COPY_BYTES);

	if (piece == NULL) {
		w->error = -ENOMEM;
	}
	while (n > 0 && w->error == 0) { /* upwards: the places may overlap, and to is the lower one */
		ssize_t done = pread(w->fd, piece, n < COPY_BYTES ? n : COPY_BYTES, (off_t)from);
		if (done <= 0) {
			w->error = done < 0 ? -errno : -EIO;
			break;
		}
		write_at(w, to, piece, (size_t)done);
		from += (uint64_t)done;
		to += (uint64_t)done;
		n -= (uint64_t)done;
	}
	free(piece);
	return w->error;
}

/* Makes a ring as short as its entries allow, unless it is full, and moves it down to `at`. Returns its end. */
static uint64_t ring_shrink(struct trace_file_writer *w, struct ring *ring, uint64_t at)
{
	struct trace_file_history *h = ring->head;
	uint64_t entries = MIN_ENTRIES < h->num_entries ? MIN_ENTRIES : h->num_entries;

	while (entries < h->next_entry && entries < h->num_entries) {
		entries *= 2;
	}
	if (entries == h->num_entries) {
		return ring->at + sizeof(*h) + entries * 32; /* to move it may take long, and would spare little */
	}
	if (at < ring->at) {
		bytes_move(w, ring->at + sizeof(*h), at + sizeof(*h), h->next_entry * 32);
		ring->at = at;
	}
	h->num_entries = entries;
	write_at(w, ring->at, h, sizeof(*h));
	return ring->at + sizeof(*h) + entries * 32;
}

/* Cuts off what rings have not used. Until then a file of a few events has the nominal size of full rings, and what
 * copies files without regard to holes makes that size real. */
static void file_shrink(struct trace_file_writer *w)
{
	uint64_t end = w->rings_at;

	for (unsigned i = 0; i < w->num_rings && w->error == 0; i++) {
		if (w->rings[i].used) {
			end = ring_shrink(w, &w->rings[i], (end + 4095) / 4096 * 4096);
		}
	}
	offsets_write(w);
	write_at(w, offsetof(struct trace_file_header, file_size), &end, sizeof(end));
	if (w->error == 0 && ftruncate(w->fd, (off_t)end) != 0) {
		w->error = -errno;
	}
}

int trace_file_close(struct trace_file_writer *w)
{
	int rc = trace_file_flush(w);

	if (rc == 0) {
		file_shrink(w);
		rc = w->error;
	}
	for (unsigned i = 0; i < w->num_rings; i++) {
		free(w->rings[i].buffer);
		free(w->rings[i].head);
	}
	if (close(w->fd) != 0 && rc == 0) {
		rc = -errno;
	}
	free(w);
	return rc;
}

/* ---- Tables of another file ---- */

static void tpoint_copy(const struct trace_tpoint *from, struct trace_file_tpoint *to)
{
	*to = (struct trace_file_tpoint){
		.tpoint_id = from->id,
		.owner_type = from->owner_type,
		.object_type = from->object_type,
		.new_object = from->new_object,
		.num_args = from->num_args,
	};
	memcpy(to->name, from->name, sizeof(to->name));
	for (unsigned i = 0; i < from->num_args; i++) {
		memcpy(to->args[i].name, from->args[i].name, sizeof(to->args[i].name));
		to->args[i].type = from->args[i].type;
		to->args[i].size = from->args[i].size;
	}
	for (unsigned i = 0; i < from->num_related; i++) {
		to->related[i] = (struct trace_file_relation){from->related[i].object_type, from->related[i].arg};
	}
}

void trace_file_tables_copy(struct trace_reader *r, struct trace_file_tables *t)
{
	const struct trace_file_info *info = trace_reader_info(r);

	*t = (struct trace_file_tables){.tsc_rate = trace_reader_tsc_rate(r)};
	for (unsigned id = 0; id < TRACE_NUM_TPOINTS; id++) {
		const struct trace_tpoint *from = trace_reader_tpoint(r, id);
		if (from != NULL) {
			tpoint_copy(from, &t->tpoints[id]);
		}
	}
	for (unsigned i = 0; i < TRACE_NUM_GROUPS; i++) {
		t->masks[i] = trace_reader_tpoint_mask(r, i);
	}
	for (unsigned i = 0; i < TRACE_NUM_TYPES; i++) {
		t->owner_prefix[i] = trace_reader_owner_prefix(r, (uint8_t)i);
		t->object_prefix[i] = trace_reader_object_prefix(r, (uint8_t)i);
	}
	if (info != NULL) {
		t->info = *info;
	}
	t->num_rings = trace_reader_num_lcores(r);
}
