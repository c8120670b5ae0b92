/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads what is on the base of an integrity bdev, or makes it. Nothing is written to a base that has a superblock, or
 * on which none was asked for. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bdev_modules/integrity/internal.h"
#include "util/log.h"

#define NO_MEMORY_US 10000u /* until an operation is tried again */

/* --- I/O of the module itself --- */

static void op_again(void *arg)
{
	struct integrity_op *o = arg;

	vbdev_meta_start(o->d->meta, &o->op);
}

static void op_ended(struct vbdev_meta_op *op)
{
	struct integrity_op *o = container_of(op, struct integrity_op, op);

	if (op->type == BDEV_IO_FLUSH && op->status != 0) { /* also if nobody waits for it any more */
		integrity_flush_lost(o->d, op->status);
	}
	if (o->d->ended || (o == &o->d->open_op && o->d->state != INTEGRITY_OPENING)) {
		return; /* it was given up */
	}
	if (op->error == -ENOMEM && op->status == 0) {
		o->timer = (struct thread_timer){.fn = op_again, .arg = o};
		thread_timer_start(&o->timer, NO_MEMORY_US);
		return;
	}
	o->done(o, op->error);
}

void integrity_op_start(struct integrity_bdev *d, struct integrity_op *o, enum bdev_io_type type, uint64_t unit,
			uint64_t units, void *data, void (*done)(struct integrity_op *o, int rc))
{
	if (d->ended) {
		return; /* nobody waits for it, and the base is being closed */
	}
	*o = (struct integrity_op){.d = d, .done = done};
	o->op.type = type;
	o->op.offset_blocks = unit * d->unit_blocks;
	o->op.num_blocks = type == BDEV_IO_FLUSH ? bdev_num_blocks(bdev_desc_bdev(d->base)) : units * d->unit_blocks;
	o->op.data = data;
	o->op.done = op_ended;
	d->metadata_bytes += type == BDEV_IO_WRITE ? units * INTEGRITY_UNIT_BYTES : 0;
	vbdev_meta_start(d->meta, &o->op);
}

int integrity_refuse(struct integrity_bdev *d, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(d->error_text, sizeof(d->error_text), fmt, ap);
	va_end(ap);
	d->error = rc;
	return rc;
}

static struct integrity_super *super_buffer(struct integrity_bdev *d, unsigned which)
{
	return (struct integrity_super *)d->buffer + which;
}

static uint64_t base_units(const struct integrity_bdev *d)
{
	return bdev_num_blocks(bdev_desc_bdev(d->base)) / d->unit_blocks;
}

static void open_failed(struct integrity_bdev *d, int rc, const char *what)
{
	integrity_refuse(d, rc, "bdev '%.150s': %s: %s", d->base_name, what, strerror(-rc));
	integrity_opened(d);
}

/* --- The bitmap --- */

static void bitmap_read(struct integrity_bdev *d);
static void bitmap_rewrite(struct integrity_bdev *d);

/* The page that counts. A page with a copy that is lost is made anew, with all regions open. */
static void bitmap_choose(struct integrity_bdev *d, uint32_t index)
{
	const struct integrity_bitmap_page *copies = d->buffer;
	struct integrity_bitmap_page *page = &d->bitmap[index].page;
	struct integrity_error e;

	if (d->unreadable != 0) {
		log_error("bdev %s: bitmap page %u, or its copy, cannot be read (bdev %s): no checksum of its regions "
			  "counts",
			  d->name, index, d->base_name);
		integrity_bitmap_open_all(copies, page);
	} else if (integrity_bitmap_choose(copies, &d->layout, index, page, &e) != 0) {
		log_error("bdev %s: %s, and so is its copy (bdev %s): no checksum of its regions counts", d->name,
			  e.text, d->base_name);
	} else {
		return;
	}
	d->rewrites = 2;
}

static void bitmap_take(struct integrity_bdev *d, uint32_t index)
{
	const struct integrity_bitmap_page *page = &d->bitmap[index].page;
	uint64_t first = (uint64_t)index * INTEGRITY_BITMAP_REGIONS;

	d->rewrites = 0;
	bitmap_choose(d, index);
	d->page_again = d->rewrites == 0 && atomic_load(&d->flush_untold) != 0;
	d->unreadable = 0;
	for (uint32_t i = 0; i < INTEGRITY_BITMAP_REGIONS && first + i < d->layout.regions; i++) {
		if (integrity_bitmap_is_open(page, i)) {
			d->unknown[(first + i) / 8] |= (uint8_t)(1u << (first + i) % 8);
		}
	}
	d->regions_unknown += integrity_bitmap_count(page, &d->layout, index);
	d->regions_unclean = d->regions_unknown;
	bitmap_rewrite(d);
}

static void bitmap_rewritten(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		open_failed(o->d, rc, "the bitmap of open regions cannot be written");
		return;
	}
	bitmap_rewrite(o->d);
}

static void bitmap_copy_written(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		bitmap_rewritten(o, rc);
		return;
	}
	integrity_op_start(o->d, o, BDEV_IO_FLUSH, 0, 0, NULL, bitmap_rewritten);
}

/* Writes a page that was made anew to both of its places, before a write of a user relies on it. Over the copy that
 * could be read goes the first: were it torn, no copy would be right, and all regions open.
 *
 * After a FLUSH that failed, what was read may be in a cache only, and the next FLUSH would succeed without writing it.
 * It is written where it was, as the other copy may be the only durable one. */
static void bitmap_rewrite(struct integrity_bdev *d)
{
	uint32_t index = d->step / 2 - 1;
	struct integrity_bitmap_page *page = &d->bitmap[index].page;

	if (d->page_again) {
		d->page_again = false;
	} else if (d->rewrites > 0) {
		d->rewrites--;
		page->sequence++;
	} else {
		bitmap_read(d);
		return;
	}
	integrity_bitmap_seal(page, &d->layout, index);
	integrity_op_start(d, &d->open_op, BDEV_IO_WRITE,
			   d->layout.bitmap_first + (page->sequence & 1) * d->layout.bitmap_pages + index, 1, page,
			   bitmap_copy_written);
}

static void bitmap_page_read(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;

	if (rc != 0 && !integrity_op_is_unreadable(o)) {
		open_failed(d, rc, "the bitmap of open regions cannot be read");
		return;
	}
	if (rc != 0) {
		d->unreadable++;
		memset(super_buffer(d, d->step % 2), 0, INTEGRITY_UNIT_BYTES);
	}
	if (d->step++ % 2 == 1) {
		bitmap_take(d, d->step / 2 - 1);
	} else {
		bitmap_read(d);
	}
}

static void bitmap_is_durable(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		open_failed(o->d, rc, "the bitmap of open regions cannot be made durable");
		return;
	}
	integrity_opened(o->d);
}

/* Step by step: both copies of one page after the other. */
static void bitmap_read(struct integrity_bdev *d)
{
	const struct integrity_layout *l = &d->layout;
	uint32_t index = d->step / 2, copy = d->step % 2;

	if (index == l->bitmap_pages) {
		/* What was read may be in the base's cache only, from before a crash of varve: a region that is open in
		 * that is written to at once, and the next write of the page goes over the other copy. */
		integrity_op_start(d, &d->open_op, BDEV_IO_FLUSH, 0, 0, NULL, bitmap_is_durable);
		return;
	}
	integrity_op_start(d, &d->open_op, BDEV_IO_READ, l->bitmap_first + (uint64_t)copy * l->bitmap_pages + index, 1,
			   super_buffer(d, copy), bitmap_page_read);
}

/* --- Making one --- */

static void made(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		open_failed(o->d, rc, "it cannot be formatted");
		return;
	}
	integrity_opened(o->d);
}

static void first_super_written(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		made(o, rc);
		return;
	}
	integrity_op_start(o->d, o, BDEV_IO_FLUSH, 0, 0, NULL, made);
}

static void last_super_written(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		made(o, rc);
		return;
	}
	integrity_op_start(o->d, o, BDEV_IO_WRITE, 0, 1, super_buffer(o->d, 0), first_super_written);
}

static void zeroes_are_durable(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		made(o, rc);
		return;
	}
	integrity_super_encode(super_buffer(o->d, 0), &o->d->layout);
	integrity_op_start(o->d, o, BDEV_IO_WRITE, o->d->layout.size_units - 1, 1, super_buffer(o->d, 0),
			   last_super_written);
}

/* Step by step: both copies of one page of the bitmap after the other, without open regions. */
static void bitmap_make(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;
	uint32_t index = d->step / 2;

	if (rc != 0) {
		made(o, rc);
		return;
	}
	if (index == d->layout.bitmap_pages) {
		integrity_op_start(d, o, BDEV_IO_FLUSH, 0, 0, NULL, zeroes_are_durable);
		return;
	}
	struct integrity_bitmap_page *page = &d->bitmap[index].page;
	page->sequence = 1 + d->step++ % 2;
	integrity_bitmap_seal(page, &d->layout, index);
	integrity_op_start(d, o, BDEV_IO_WRITE,
			   d->layout.bitmap_first + (page->sequence & 1) * d->layout.bitmap_pages + index, 1, page,
			   bitmap_make);
}

static bool random_bytes(void *to, size_t n)
{
	return getrandom(to, n, 0) == (ssize_t)n;
}

static int layout_new(struct integrity_bdev *d)
{
	struct integrity_layout *l = &d->layout;
	struct integrity_error e;

	if (integrity_layout_make(l, base_units(d), &e) != 0) {
		return integrity_refuse(d, -EINVAL, "bdev '%.80s': %s", d->base_name, e.text);
	}
	if (!random_bytes(&l->id, sizeof(l->id)) || !random_bytes(l->uuid, sizeof(l->uuid))) {
		return integrity_refuse(d, -EIO, "no random bytes");
	}
	l->uuid[6] = (uint8_t)((l->uuid[6] & 0x0f) | 0x40); /* RFC 9562, 5.4: a random UUID */
	l->uuid[8] = (uint8_t)((l->uuid[8] & 0x3f) | 0x80);
	if (d->has_uuid) {
		memcpy(l->uuid, d->uuid, sizeof(l->uuid));
	}
	return 0;
}

static int slots_new(struct integrity_bdev *d)
{
	return integrity_slots_init(d) == 0 ? 0 : integrity_refuse(d, -ENOMEM, "out of memory");
}

static void make_new(struct integrity_bdev *d)
{
	d->is_new = true;
	d->step = 0;
	if (layout_new(d) != 0 || slots_new(d) != 0) {
		integrity_opened(d);
		return;
	}
	integrity_op_start(d, &d->open_op, BDEV_IO_WRITE_ZEROES, 1, d->layout.data_first - 1, NULL, bitmap_make);
}

/* --- What is there --- */

/* A superblock that is there, but not right, is one as well: it may be what is left of somebody's data. */
static int may_make_new(struct integrity_bdev *d, const struct integrity_error *e)
{
	bool is_one = integrity_super_is_one(super_buffer(d, 0)) || integrity_super_is_one(super_buffer(d, 1));

	if (is_one) {
		return integrity_refuse(
			d, d->format ? -EEXIST : -EILSEQ,
			"bdev '%.50s' has an integrity bdev that cannot be used (%.100s); nothing was written",
			d->base_name, e->text);
	}
	if (!d->format && !d->is_blank) {
		return integrity_refuse(d, -EINVAL,
					"bdev '%.40s': %.100s; format: true makes a new one, and what is on "
					"the bdev is lost",
					d->base_name, e->text);
	}
	return 0;
}

static int may_use(struct integrity_bdev *d)
{
	char uuid[BDEV_UUID_STRLEN];

	bdev_uuid_format(d->layout.uuid, uuid);
	if (d->format) {
		return integrity_refuse(d, -EEXIST,
					"bdev '%.60s' has the integrity bdev %s; it is used without format: true, and "
					"nothing was written",
					d->base_name, uuid);
	}
	if (d->has_uuid && memcmp(d->uuid, d->layout.uuid, sizeof(d->uuid)) != 0) {
		return integrity_refuse(d, -EINVAL,
					"bdev '%.80s' has the integrity bdev %s, which is not the one asked for",
					d->base_name, uuid);
	}
	return slots_new(d);
}

/* --- The superblocks --- */

static uint64_t super_unit(const struct integrity_bdev *d, unsigned which)
{
	return which == 0 ? 0 : base_units(d) - 1;
}

static void supers_mend(struct integrity_bdev *d);

static void super_mended(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;

	if (rc != 0 && o->op.type == BDEV_IO_FLUSH) { /* the other one may not be durable either */
		open_failed(d, rc, "the superblock cannot be made durable");
		return;
	}
	if (rc != 0) {
		log_warning("bdev %s: the %s superblock on bdev %s cannot be written: %s", d->name,
			    d->step == 1 ? "first" : "last", d->base_name, strerror(-rc));
	}
	supers_mend(d);
}

static void super_written(struct integrity_op *o, int rc)
{
	if (rc != 0) {
		super_mended(o, rc);
		return;
	}
	integrity_op_start(o->d, o, BDEV_IO_FLUSH, 0, 0, NULL, super_mended);
}

/* Step by step: writes the superblock where it is not right. Where it could not be read, only if it is lost there. */
static void supers_mend(struct integrity_bdev *d)
{
	struct integrity_super right;

	integrity_super_encode(&right, &d->layout);
	while (d->step < 2) {
		unsigned which = d->step++;
		struct integrity_super *s = super_buffer(d, which);
		bool unknown = d->super_errors[which] != 0 && !d->supers_lost[which];
		bool is_right = memcmp(s, &right, sizeof(right)) == 0;
		if (unknown || (is_right && !d->supers_again)) {
			continue;
		}
		if (!is_right) {
			log_warning("bdev %s: the %s superblock on bdev %s is not right, and is written anew", d->name,
				    which == 0 ? "first" : "last", d->base_name);
		}
		*s = right;
		integrity_op_start(d, &d->open_op, BDEV_IO_WRITE, super_unit(d, which), 1, s, super_written);
		return;
	}
	d->step = 0;
	bitmap_read(d);
}

static void supers_are_none(struct integrity_bdev *d, const struct integrity_error *e)
{
	for (unsigned i = 0; i < 2; i++) {
		if (d->super_errors[i] != 0) {
			open_failed(d, d->super_errors[i],
				    i == 0 ? "its first blocks cannot be read" : "its last blocks cannot be read");
			return;
		}
	}
	if (may_make_new(d, e) == 0) {
		make_new(d);
	} else {
		integrity_opened(d);
	}
}

static void supers_read(struct integrity_bdev *d)
{
	struct integrity_error e[2];
	bool first = integrity_super_decode(super_buffer(d, 0), base_units(d), &d->layout, &e[0]) == 0;

	if (!first && integrity_super_decode(super_buffer(d, 1), base_units(d), &d->layout, &e[1]) != 0) {
		supers_are_none(d, &e[integrity_super_is_one(super_buffer(d, 1))]);
		return;
	}
	if (may_use(d) != 0) {
		integrity_opened(d);
		return;
	}
	integrity_flush_recall(d);
	d->supers_again = atomic_load(&d->flush_untold) != 0;
	d->step = 0;
	supers_mend(d);
}

/* One of both that cannot be read is as one that is not there, as long as the other one is. */
static void super_was_read(struct integrity_op *o, int rc)
{
	struct integrity_bdev *d = o->d;
	unsigned which = d->step++;

	d->super_errors[which] = rc;
	d->supers_lost[which] = integrity_op_is_unreadable(o);
	if (rc != 0) {
		memset(super_buffer(d, which), 0, sizeof(struct integrity_super));
	}
	if (which == 0) {
		integrity_op_start(d, o, BDEV_IO_READ, super_unit(d, 1), 1, super_buffer(d, 1), super_was_read);
	} else {
		supers_read(d);
	}
}

void integrity_open(struct integrity_bdev *d)
{
	integrity_op_start(d, &d->open_op, BDEV_IO_READ, 0, 1, super_buffer(d, 0), super_was_read);
}
