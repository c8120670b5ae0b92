/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files that carry out I/O share: io.c, and io_external.c for what is in a bdev outside of the store. */
#ifndef BDEV_LVOL_IO_H
#define BDEV_LVOL_IO_H

#include "bdev_modules/lvol/internal.h"
#include "util/compiler.h"

#define STEPS 3u

enum lvol_io_stage {
	STAGE_BASE,     /* at the base */
	STAGE_HELD,     /* the volume is paused */
	STAGE_WAIT,     /* for a cluster that another I/O fills or gives up */
	STAGE_EXTERNAL, /* at the bdev that its volume is a clone of */
	STAGE_FILL,     /* its cluster is being made whole */
	STAGE_COMMIT,   /* its cluster is being published */
	STAGE_RELEASE,  /* its clusters are being given up */
};

/* One I/O on the base; blocks are the base's. */
struct lvol_step {
	enum bdev_io_type type;
	uint64_t offset, source, blocks; /* source: of a COPY */
};

/* Whose an I/O's slow part is while it waits for a cluster: whoever leaves second, the I/O or the waiter, frees it. */
enum lvol_wait {
	WAIT_BOTH,
	WAIT_WOKEN,     /* the message to the I/O's thread has been posted */
	WAIT_ABANDONED, /* the I/O has ended, and its thread may be gone */
};

/* What an I/O needs that is not just one I/O on the base. */
struct lvol_slow {
	struct bdev_io *io; /* NULL: it has ended, while its cluster was waited for */
	struct bdev_lvol *lvol;
	struct thread *thread;
	struct thread_msg msg;
	struct lvol_live_fill fill;
	struct lvol_live_waiter waiter;
	_Atomic enum lvol_wait wait;
	uint64_t cluster, count; /* of the volume: that is waited for; that are given up */
	uint64_t at;             /* WRITE_ZEROES, UNMAP: how far it has come, in blocks */
	uint64_t piece;          /* WRITE_ZEROES: blocks that the first write is for */
	uint16_t status;         /* of a first write or a release; WRITE_ZEROES, UNMAP: of what has ended so far */
	bool running, ended;     /* WRITE_ZEROES, UNMAP: in range_go_on(); a piece has ended meanwhile */
	struct lvol_step steps[STEPS];
	unsigned num_steps, step;
	uint32_t place;             /* of the external snapshot that is read */
	struct lvol_bounce *bounce; /* what is read of an external snapshot in order to be copied; or NULL */
	STAILQ_ENTRY(lvol_slow) bounce_link;
};

/* A copy from the external snapshot through a buffer, piece by piece: of a cluster, for a first write; or of what a
 * READ reads. */
struct lvol_bounce {
	uint8_t *bytes;                    /* the buffer */
	bool waits;                        /* for a buffer, in the channel's list */
	void (*go_on)(struct bdev_io *io); /* begins the next piece */
	struct iovec iov;                  /* the part of the buffer that is read or written now */
	uint64_t at, blocks, all;          /* blocks of the volume: where the piece begins, its length; of all pieces */
	uint64_t within, own;              /* of a first write: where its own blocks begin in the cluster, how many */
};

static inline struct lvol_channel *io_channel_of(const struct bdev_io *io)
{
	return bdev_channel_ctx(io->ch);
}

static ALWAYS_INLINE void grace_enter(struct store_channel *sc, struct lvol_io *ctx)
{
	ctx->in_grace = true;
	ctx->parity = sc->parity;
	sc->inflight[ctx->parity]++;
}

/* --- Places --- */

static ALWAYS_INLINE uint64_t cluster_of(const struct bdev_lvol *l, uint64_t block)
{
	return likely(l->cluster_shift >= 0) ? block >> l->cluster_shift : block / l->cluster_blocks;
}

static ALWAYS_INLINE uint64_t within_cluster(const struct bdev_lvol *l, uint64_t block)
{
	return likely(l->cluster_shift >= 0) ? block & (l->cluster_blocks - 1) : block % l->cluster_blocks;
}

/* The base's block of a volume's block that lies in a cluster of the store. */
static ALWAYS_INLINE uint64_t base_block(const struct bdev_lvol *l, uint32_t cluster, uint64_t within)
{
	return ((uint64_t)cluster * l->cluster_blocks + within) << l->block_shift;
}

/* --- io.c --- */

/* An I/O's slow part; NULL: no memory, and the I/O has ended. */
struct lvol_slow *lvol_io_get_slow(struct bdev_io *io);
/* One more I/O on a base; nothing if it has no blocks. */
void lvol_io_add_step(struct lvol_slow *slow, enum bdev_io_type type, uint64_t offset, uint64_t source,
		      uint64_t blocks);
/* Carries out the steps, all at once; then the I/O's stage says what follows. */
void lvol_io_steps_begin(struct bdev_io *io);
/* Begins an I/O, or one that has waited. */
void lvol_io_run(struct bdev_io *io);
/* Ends one that is in no list. */
void lvol_io_end(struct bdev_io *io, uint16_t status);
void lvol_io_end_errno(struct bdev_io *io, int rc); /* the same */
/* The cluster of a first write has been made whole, or not: it is committed. */
void lvol_io_filled(struct bdev_io *io, uint16_t status);

/* --- io_external.c --- */

/* A READ where neither the volume nor a snapshot has a cluster. */
void lvol_io_read_external(struct bdev_io *io);
/* Copies the cluster of a first write from the external snapshot, with the I/O's own `blocks` from `within` on in it;
 * lvol_io_filled() follows. */
void lvol_bounce_begin(struct bdev_io *io, uint64_t within, uint64_t blocks);
/* A piece of that has been written. */
void lvol_bounce_written(struct bdev_io *io, uint16_t status);
/* Frees the buffer of a copy, if there is one, and gives its place to an I/O that waits. I/O's thread. */
void lvol_bounce_free(struct lvol_slow *slow);
/* Ends an I/O that waits for a buffer. False: it does not. I/O's thread. */
bool lvol_bounce_end_waiting(struct bdev_io *io, uint16_t status);
/* Ends all I/Os of a channel that wait for a buffer. The channel's thread. */
void lvol_bounce_end_all_waiting(struct lvol_channel *ch, uint16_t status);
/* What was read of an external snapshot is there. If a change has taken that one away, it is read anew. */
void lvol_io_external_ended(struct bdev_io *io, uint16_t status);

#endif
