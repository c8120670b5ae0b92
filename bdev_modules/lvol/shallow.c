/* SPDX-License-Identifier: BSD-3-Clause */
/* Shallow copies: the clusters that a read-only volume itself has, without those of its snapshots, are written to
 * another bdev, at their places. One piece is under way at a time, on the control thread's own I/O. What goes, the
 * volume or the other bdev, ends the copy with an error. */
#include <errno.h>
#include <rte_common.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "util/log.h"

#define PIECE_BYTES (1u << 20)
#define COPIES      32u /* that are known at a time; of those that have ended the oldest is forgotten */

enum copy_state { COPY_RUNS, COPY_CLOSES, COPY_ENDED };

struct copy {
	uint32_t id;
	enum copy_state state;
	int error;
	struct bdev_desc *from, *to;
	struct vbdev_meta *from_meta, *to_meta;
	unsigned metas; /* that are open, or being closed */
	struct vbdev_meta_op op;
	uint8_t *bytes;
	uint8_t *wanted; /* bits: clusters that the volume had when it began; it is read-only, so it keeps them */
	uint32_t cluster_bytes, from_block, to_block;
	uint64_t num_clusters, n; /* n: the cluster that is being copied */
	uint32_t at, piece;       /* bytes in it */
	uint64_t copied, total;
	TAILQ_ENTRY(copy) link;
};

static TAILQ_HEAD(, copy) copies = TAILQ_HEAD_INITIALIZER(copies);
static unsigned num_copies;
static uint32_t last_id;

/* --- The end --- */

static void copy_free(struct copy *c)
{
	free(c->bytes);
	free(c->wanted);
	free(c);
}

static void copy_forget(struct copy *c)
{
	TAILQ_REMOVE(&copies, c, link);
	num_copies--;
	copy_free(c);
}

static void copy_close_bdevs(struct copy *c)
{
	if (c->to != NULL) {
		bdev_close(c->to);
	}
	if (c->from != NULL) {
		bdev_close(c->from);
	}
	c->from = c->to = NULL;
}

static void copy_meta_closed(void *arg)
{
	struct copy *c = arg;

	if (--c->metas > 0) {
		return;
	}
	copy_close_bdevs(c);
	c->state = COPY_ENDED;
	free(c->bytes);
	free(c->wanted);
	c->bytes = c->wanted = NULL;
}

static void copy_end(struct copy *c, int error)
{
	if (error != 0) {
		log_error("shallow copy %u of volume %s to bdev %s has ended after %lu of %lu clusters: %s", c->id,
			  bdev_desc_bdev(c->from)->name, bdev_desc_bdev(c->to)->name, c->copied, c->total,
			  strerror(-error));
	}
	c->state = COPY_CLOSES;
	c->error = error;
	vbdev_meta_close(c->from_meta, copy_meta_closed, c);
	vbdev_meta_close(c->to_meta, copy_meta_closed, c);
}

static void copy_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct copy *c = arg;

	if (event == BDEV_EVENT_REMOVE && c->state == COPY_RUNS) {
		copy_end(c, -ENODEV);
	}
}

/* --- Copying --- */

static void copy_go_on(struct copy *c);

/* Whether what has been answered counts, and is good. */
static bool copy_has(struct copy *c)
{
	if (c->state == COPY_RUNS && c->op.error != 0) {
		copy_end(c, c->op.error);
	}
	return c->state == COPY_RUNS;
}

static void copy_start(struct copy *c, struct vbdev_meta *meta, enum bdev_io_type type, uint32_t block, uint64_t bytes,
		       void (*done)(struct vbdev_meta_op *op))
{
	c->op = (struct vbdev_meta_op){.type = type,
				       .offset_blocks = (c->n * c->cluster_bytes + c->at) / block,
				       .num_blocks = bytes / block,
				       .data = c->bytes,
				       .done = done};
	vbdev_meta_start(meta, &c->op);
}

static void copy_written(struct vbdev_meta_op *op)
{
	struct copy *c = container_of(op, struct copy, op);

	if (!copy_has(c)) {
		return;
	}
	c->at += c->piece;
	if (c->at == c->cluster_bytes) {
		c->at = 0;
		c->n++;
		c->copied++;
	}
	copy_go_on(c);
}

static void copy_read(struct vbdev_meta_op *op)
{
	struct copy *c = container_of(op, struct copy, op);

	if (copy_has(c)) {
		copy_start(c, c->to_meta, BDEV_IO_WRITE, c->to_block, c->piece, copy_written);
	}
}

static void copy_flushed(struct vbdev_meta_op *op)
{
	struct copy *c = container_of(op, struct copy, op);

	if (copy_has(c)) {
		copy_end(c, 0);
	}
}

/* The next piece; what was copied is durable when the copy is complete. */
static void copy_go_on(struct copy *c)
{
	while (c->n < c->num_clusters && !lvol_bit(c->wanted, c->n)) {
		c->n++;
	}
	if (c->n < c->num_clusters) {
		c->piece = RTE_MIN(c->cluster_bytes - c->at, PIECE_BYTES);
		copy_start(c, c->from_meta, BDEV_IO_READ, c->from_block, c->piece, copy_read);
	} else {
		c->n = 0;
		copy_start(c, c->to_meta, BDEV_IO_FLUSH, c->to_block,
			   bdev_num_blocks(bdev_desc_bdev(c->to)) * c->to_block, copy_flushed);
	}
}

/* --- The beginning --- */

static int copy_check(const struct bdev_lvol *l, const struct bdev *to, const char *to_name, char *error)
{
	if (to == NULL) {
		return bdev_error(error, -ENODEV, "there is no bdev '%.200s'", to_name);
	}
	if (!l->v->read_only) {
		return bdev_error(error, -EPERM, "volume %s/%s may be written: only a read-only one can be copied",
				  l->store->name, l->v->name);
	}
	if (to->read_only) {
		return bdev_error(error, -EROFS, "bdev '%.150s' is read-only", to_name);
	}
	/* Pieces begin at multiples of PIECE_BYTES. */
	if (to->md.size != 0 || l->store->cluster_bytes % to->block_size != 0 || PIECE_BYTES % to->block_size != 0) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.100s' has blocks of %u bytes, %u of them metadata: clusters of %u bytes do "
				  "not fit",
				  to_name, to->block_size, to->md.size, l->store->cluster_bytes);
	}
	if (bdev_num_blocks(to) * to->block_size < l->bdev.num_blocks * l->bdev.block_size) {
		return bdev_error(error, -EINVAL, "bdev '%.100s' has %lu bytes: volume %s/%s needs %lu", to_name,
				  bdev_num_blocks(to) * to->block_size, l->store->name, l->v->name,
				  l->bdev.num_blocks * l->bdev.block_size);
	}
	return 0;
}

/* Room for one more; forgets the oldest that has ended. */
static int copies_make_room(char *error)
{
	struct copy *c;

	if (num_copies < COPIES) {
		return 0;
	}
	TAILQ_FOREACH (c, &copies, link) {
		if (c->state == COPY_ENDED) {
			copy_forget(c);
			return 0;
		}
	}
	return bdev_error(error, -EBUSY, "%u shallow copies are under way, and no more are allowed", COPIES);
}

static int copy_prepare(struct copy *c, const struct bdev_lvol *l)
{
	c->cluster_bytes = l->store->cluster_bytes;
	c->num_clusters = l->v->num_clusters;
	c->from_block = l->bdev.block_size;
	c->bytes = aligned_alloc(LVOL_PAGE_BYTES, PIECE_BYTES);
	c->wanted = calloc(1, c->num_clusters / 8 + 1);
	if (c->bytes == NULL || c->wanted == NULL) {
		return -ENOMEM;
	}
	for (uint64_t n = 0; n < c->num_clusters; n++) {
		if (lvol_live_entry(l->v, n) & LVOL_LIVE_OWN) {
			c->wanted[n / 8] |= (uint8_t)(1u << n % 8);
			c->total++;
		}
	}
	return 0;
}

static int copy_open(struct copy *c, struct bdev_lvol *l, const char *to, char *error)
{
	int rc = copy_prepare(c, l);

	rc = rc != 0 ? rc : bdev_open(l->bdev.name, false, copy_event, c, &c->from);
	if (rc != 0) {
		return bdev_error(error, rc, "volume %s/%s: %s", l->store->name, l->v->name, strerror(-rc));
	}
	struct bdev_desc *desc; /* which vbdev_base_open() may set although it fails */
	rc = vbdev_base_open(to, "shallow copy", copy_event, c, &desc, error);
	if (rc != 0) {
		return rc;
	}
	c->to = desc;
	c->to_block = bdev_block_size(bdev_desc_bdev(c->to));
	if (vbdev_meta_open(c->from, "shallow copy", &c->from_meta) != 0) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	c->metas = 1;
	if (vbdev_meta_open(c->to, "shallow copy", &c->to_meta) != 0) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	c->metas = 2;
	return 0;
}

static void copy_unmade(void *arg)
{
	struct copy *c = arg;

	copy_close_bdevs(c);
	copy_free(c);
}

int bdev_lvol_shallow_copy_start(const char *name, const char *to, uint32_t *id, char *error)
{
	struct bdev_lvol *l = lvol_volume_of(bdev_find(name));

	if (l == NULL || bdev_get_state(&l->bdev) != BDEV_READY) {
		return bdev_error(error, -ENODEV, "there is no volume '%.200s', or it is being removed", name);
	}
	int rc = copy_check(l, bdev_find(to), to, error);
	rc = rc != 0 ? rc : copies_make_room(error);
	if (rc != 0) {
		return rc;
	}
	struct copy *c = calloc(1, sizeof(*c));
	rc = c == NULL ? bdev_error(error, -ENOMEM, "out of memory") : copy_open(c, l, to, error);
	if (rc != 0) {
		if (c != NULL && c->metas > 0) {
			c->state = COPY_CLOSES;
			vbdev_meta_close(c->from_meta, copy_unmade, c);
		} else if (c != NULL) {
			copy_unmade(c);
		}
		return rc;
	}
	c->id = *id = ++last_id;
	TAILQ_INSERT_TAIL(&copies, c, link);
	num_copies++;
	copy_go_on(c);
	return 0;
}

bool bdev_lvol_shallow_copy_get(uint32_t id, struct bdev_lvol_shallow_copy *copy)
{
	const struct copy *c;

	TAILQ_FOREACH (c, &copies, link) {
		if (c->id == id) {
			*copy = (struct bdev_lvol_shallow_copy){.has_ended = c->state == COPY_ENDED,
								.error = c->error,
								.copied_clusters = c->copied,
								.total_clusters = c->total};
			return true;
		}
	}
	return false;
}

void lvol_shallow_fini(void)
{
	struct copy *c;

	while ((c = TAILQ_FIRST(&copies)) != NULL) {
		copy_forget(c); /* all bdevs are gone, so it has ended */
	}
}
