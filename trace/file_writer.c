/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
	char *path;
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
	w->path = strdup(path);
	w->fd = w->path != NULL ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
	if (w->fd < 0) {
		int rc = w->path != NULL ? -errno : -ENOMEM;
		free(w->path);
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

enum { PIECE_BYTES = 16384, MIN_ENTRIES = 64 };

/* Copies bytes of the old file to w's, and leaves holes where there are only zeros. */
static void bytes_copy(struct trace_file_writer *w, int old, uint64_t from, uint64_t to, uint64_t n)
{
	char piece[PIECE_BYTES];

	while (n > 0 && w->error == 0) {
		ssize_t done = pread(old, piece, n < PIECE_BYTES ? n : PIECE_BYTES, (off_t)from);
		if (done <= 0) {
			w->error = done < 0 ? -errno : -EIO;
			break;
		}
		if (piece[0] != 0 || memcmp(piece, piece + 1, (size_t)done - 1) != 0) {
			write_at(w, to, piece, (size_t)done);
		}
		from += (uint64_t)done;
		to += (uint64_t)done;
		n -= (uint64_t)done;
	}
}

/* The shortest ring that holds the entries. */
static uint64_t ring_slots_needed(const struct trace_file_history *h)
{
	uint64_t entries = MIN_ENTRIES < h->num_entries ? MIN_ENTRIES : h->num_entries;

	while (entries < h->next_entry && entries < h->num_entries) {
		entries *= 2;
	}
	return entries;
}

/* Where a ring begins in the small file, if the one before it ends at `end`. */
static uint64_t ring_begin(uint64_t end)
{
	return (end + 4095) / 4096 * 4096;
}

static uint64_t small_size(const struct trace_file_writer *w)
{
	uint64_t end = w->rings_at;

	for (unsigned i = 0; i < w->num_rings; i++) {
		const struct trace_file_history *h = w->rings[i].head;
		end = w->rings[i].used ? ring_begin(end) + sizeof(*h) + ring_slots_needed(h) * 32 : end;
	}
	return end;
}

/* Writes the small file, w's, from the old one. The heads and places of the rings are those of the small file then. */
static int small_write(struct trace_file_writer *w, int old, uint64_t size)
{
	uint64_t end = w->rings_at;

	bytes_copy(w, old, 0, 0, w->rings_at);
	for (unsigned i = 0; i < w->num_rings && w->error == 0; i++) {
		struct ring *ring = &w->rings[i];
		struct trace_file_history *h = ring->head;
		if (!ring->used) {
			continue;
		}
		uint64_t at = ring_begin(end), entries = ring_slots_needed(h);
		uint64_t filled = h->next_entry < entries ? h->next_entry : entries;
		bytes_copy(w, old, ring->at + sizeof(*h), at + sizeof(*h), filled * 32);
		h->num_entries = entries;
		write_at(w, at, h, sizeof(*h));
		ring->at = at;
		end = at + sizeof(*h) + entries * 32;
	}
	offsets_write(w);
	write_at(w, offsetof(struct trace_file_header, file_size), &size, sizeof(size));
	if (w->error == 0 && (ftruncate(w->fd, (off_t)size) != 0 || fdatasync(w->fd) != 0)) {
		w->error = -errno;
	}
	return w->error;
}

/* Whether the path still names the file: others may have moved or replaced it meanwhile. */
static bool path_is_ours(const struct trace_file_writer *w)
{
	struct stat file, named;

	return fstat(w->fd, &file) == 0 && lstat(w->path, &named) == 0 && file.st_dev == named.st_dev &&
	       file.st_ino == named.st_ino;
}

/* Puts a copy in the file's place that lacks what rings have not used, if that is the larger part. Until then a file of
 * a few events has the nominal size of full rings, and what copies files without regard to holes makes that size real.
 * The file itself is not touched: who reads it goes on to read it, and it stays if the copy fails or is killed. */
static void file_shrink(struct trace_file_writer *w)
{
	int old = w->fd;
	struct stat st;
	char *name = NULL;
	uint64_t size = small_size(w);

	if (fstat(old, &st) != 0 || size > (uint64_t)st.st_size / 2 || !path_is_ours(w) ||
	    asprintf(&name, "%s.XXXXXX", w->path) < 0) {
		return;
	}
	w->fd = mkostemp(name, O_CLOEXEC);
	if (w->fd >= 0) {
		if (small_write(w, old, size) != 0 || rename(name, w->path) != 0) {
			unlink(name);
		}
		close(w->fd);
	}
	w->fd = old;
	free(name);
}

int trace_file_close(struct trace_file_writer *w)
{
	int rc = trace_file_flush(w);

	if (rc == 0) {
		file_shrink(w);
	}
	for (unsigned i = 0; i < w->num_rings; i++) {
		free(w->rings[i].buffer);
		free(w->rings[i].head);
	}
	if (close(w->fd) != 0 && rc == 0) {
		rc = -errno;
	}
	free(w->path);
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
