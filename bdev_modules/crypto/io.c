/* SPDX-License-Identifier: BSD-3-Clause */
/* I/O of crypto bdevs. A READ is passed to the base, and decrypted where the reader wants it. A WRITE is encrypted into
 * data buffers, because the writer's memory must not change, and becomes one child for each buffer. All channels of a
 * thread share its buffers. Each channel has one more of its own, so its writes go on, in small pieces, also while
 * others hold all buffers, for example a crypto bdev above or below it.
 *
 * While a rekey is on, channels have two keys, and which one a block has depends on the rekey's position alone: I/O of
 * blocks that it moves over is held before that, so no I/O at the base sees the position pass. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "env_dpdk/env.h"
#include "env_dpdk/iobuf.h"
#include "usdt/usdt.h"
#include "util/iov.h"
#include "util/log.h"

#define CHILDREN   128 /* I/Os that a channel may have at its base; more wait in the pool */
#define SMALL_KEEP 64
#define LARGE_KEEP 16

/* Of an I/O. */
struct crypto_io {
	TAILQ_ENTRY(crypto_io) link; /* waits for a buffer */
	uint64_t next;               /* blocks that have children */
	uint32_t children;           /* at the base */
	bool waits;
	bool is_held; /* with waits, in `held`: waits for a rekey, not for a buffer */
};

struct crypto_channel {
	struct bdev_child_pool *pool;
	const struct crypto_keys *two_keys; /* of a rekey; NULL: there is none */
	struct crypto_xts xts;
	const char *name;           /* of the bdev */
	struct iobuf_channel own;   /* one buffer */
	enum iobuf_class own_class; /* its class */
	struct io_channel *shared;  /* its context: struct crypto_buffers */
	uint32_t block_size;
	bool clears_reads;
	TAILQ_HEAD(waiter_list, crypto_io) waiters;
	TAILQ_ENTRY(crypto_channel) link; /* of those with waiters */
	const struct crypto_key *key;     /* that xts is of */
	struct crypto_xts next_xts;       /* of two_keys->next */
	struct waiter_list held;          /* I/Os that wait for a rekey */
};

/* Buffers that all crypto bdevs of a thread share. */
struct crypto_buffers {
	struct iobuf_channel iobuf;
	TAILQ_HEAD(channel_list, crypto_channel) waiting; /* channels with waiters */
	uint32_t n_waiting;
	uint8_t *block; /* room for one, of those that lie in several parts of memory */
};

/* Where a buffer is from. */
enum source { FROM_SHARED_SMALL = IOBUF_SMALL, FROM_SHARED_LARGE = IOBUF_LARGE, FROM_OWN };

struct piece {
	uint8_t *buffer;
	uint64_t blocks; /* that it has room for, and that are left */
	enum source source;
};

size_t crypto_io_ctx_size(void)
{
	return sizeof(struct crypto_io);
}

/* --- Buffers --- */

static struct iobuf_module iobuf_module = {.name = "crypto"};

static int buffers_channel_create(struct io_device *device, void *ctx)
{
	struct iobuf_channel_opts opts = {.module = &iobuf_module};
	struct crypto_buffers *b = ctx;
	char error[ENV_ERROR_MAX];

	TAILQ_INIT(&b->waiting);
	b->block = crypto_plain_alloc();
	if (b->block == NULL) {
		log_error("crypto bdevs: no memory");
		return -ENOMEM;
	}
	opts.class[IOBUF_SMALL].floor = opts.class[IOBUF_LARGE].floor = 1;
	opts.class[IOBUF_SMALL].keep = SMALL_KEEP;
	opts.class[IOBUF_LARGE].keep = LARGE_KEEP;
	int rc = iobuf_channel_create(&b->iobuf, &opts, error);
	if (rc != 0) {
		log_error("crypto bdevs: %s", error);
		crypto_plain_free(b->block);
	}
	return rc;
}

static void buffers_channel_destroy(struct io_device *device, void *ctx)
{
	struct crypto_buffers *b = ctx;

	iobuf_channel_destroy(&b->iobuf);
	crypto_plain_free(b->block);
}

static struct io_device buffers_device = {.name = "crypto_buffers",
					  .channel_size = sizeof(struct crypto_buffers),
					  .channel_create = buffers_channel_create,
					  .channel_destroy = buffers_channel_destroy};
static bool buffers_are_there;

void crypto_buffers_init(void)
{
	if (!buffers_are_there) {
		buffers_are_there = true;
		iobuf_module_register(&iobuf_module);
		io_device_register(&buffers_device);
	}
}

void crypto_buffers_fini(void)
{
	if (buffers_are_there && io_device_unregister(&buffers_device) != 0) {
		log_error("some thread still has buffers of crypto bdevs");
	}
	buffers_are_there = false;
}

static struct crypto_buffers *buffers_of(struct crypto_channel *c)
{
	return io_channel_ctx(c->shared);
}

static struct iobuf_channel *shared_of(struct crypto_channel *c)
{
	return &buffers_of(c)->iobuf;
}

static bool piece_take_from(struct crypto_channel *c, struct iobuf_channel *from, enum iobuf_class class,
			    enum source source, uint64_t blocks, struct piece *p)
{
	uint32_t bytes = from->cache[class].size; /* iobuf_size() takes a lock */

	if (bytes < c->block_size || !iobuf_has(from, class, 1)) {
		return false;
	}
	p->buffer = iobuf_take(from, class);
	p->blocks = RTE_MIN(blocks, bytes / c->block_size);
	p->source = source;
	return true;
}

/* A buffer for the next of so many blocks. False: there is none now. There will be one when the channel's own is given
 * back. */
static ALWAYS_INLINE bool piece_take(struct crypto_channel *c, uint64_t blocks, struct piece *p)
{
	struct iobuf_channel *shared = shared_of(c);
	enum iobuf_class class = iobuf_class_of(shared, blocks * c->block_size);

	return likely(piece_take_from(c, shared, class, (enum source) class, blocks, p)) ||
	       piece_take_from(c, &c->own, c->own_class, FROM_OWN, blocks, p);
}

static ALWAYS_INLINE void piece_put(struct crypto_channel *c, enum source source, void *buffer)
{
	if (likely(source != FROM_OWN)) {
		iobuf_put(shared_of(c), (enum iobuf_class)source, buffer);
	} else {
		iobuf_put(&c->own, c->own_class, buffer);
	}
}

/* --- Encryption --- */

static NOINLINE COLD const struct crypto_xts *xts_of_rekey(const struct crypto_channel *c, uint64_t lba,
							   uint64_t *blocks)
{
	if (lba >= c->two_keys->position) {
		return &c->xts;
	}
	*blocks = RTE_MIN(*blocks, c->two_keys->position - lba);
	return &c->next_xts;
}

/* The key of the block; *blocks: how many of so many, from there on, have it. */
static ALWAYS_INLINE const struct crypto_xts *xts_of(const struct crypto_channel *c, uint64_t lba, uint64_t *blocks)
{
	return likely(c->two_keys == NULL) ? &c->xts : xts_of_rekey(c, lba, blocks);
}

/* Encrypts the next blocks of `from` to a buffer. A block that lies in several parts of memory is put together in the
 * buffer first. */
static bool encrypt_blocks(struct crypto_channel *c, uint64_t lba, struct iov_cursor *from, uint8_t *to,
			   uint64_t blocks)
{
	uint32_t bytes = c->block_size;

	while (blocks > 0) {
		struct iov_cursor at = *from;
		uint64_t same = blocks;
		const struct crypto_xts *xts = xts_of(c, lba, &same);
		size_t run = same * bytes;
		const void *memory = iov_next(from, &run);
		uint64_t whole = run / bytes;
		if (unlikely(whole == 0)) {
			*from = at;
			iov_to_buffer(from, to, bytes);
			memory = to;
			whole = 1;
		} else if (run % bytes != 0) {
			*from = at;
			iov_skip(from, whole * bytes);
		}
		if (unlikely(!crypto_xts_blocks(xts->encrypt, lba, memory, to, bytes, whole))) {
			return false;
		}
		lba += whole;
		to += whole * bytes;
		blocks -= whole;
	}
	return true;
}

static bool decrypt_block_in_parts(struct crypto_channel *c, const struct crypto_xts *xts, uint64_t lba,
				   struct iov_cursor *at)
{
	uint8_t *block = buffers_of(c)->block;
	struct iov_cursor to = *at;

	iov_to_buffer(at, block, c->block_size);
	if (!crypto_xts_block(xts->decrypt, lba, block, block, c->block_size)) {
		return false;
	}
	iov_from_buffer(&to, block, c->block_size);
	return true;
}

/* Decrypts what was read, in place. */
static bool decrypt_blocks(struct crypto_channel *c, const struct bdev_io *io)
{
	struct iov_cursor at = {.iov = io->iovs};
	uint64_t lba = io->offset_blocks, left = io->num_blocks;
	uint32_t bytes = c->block_size;

	while (left > 0) {
		struct iov_cursor begin = at;
		uint64_t same = left;
		const struct crypto_xts *xts = xts_of(c, lba, &same);
		size_t run = same * bytes;
		void *memory = iov_next(&at, &run);
		uint64_t whole = run / bytes;
		if (run % bytes != 0) {
			at = begin;
			iov_skip(&at, whole * bytes);
		}
		if (unlikely(whole == 0)) {
			whole = 1;
			if (!decrypt_block_in_parts(c, xts, lba, &at)) {
				return false;
			}
		} else if (unlikely(!crypto_xts_blocks(xts->decrypt, lba, memory, memory, bytes, whole))) {
			return false;
		}
		lba += whole;
		left -= whole;
	}
	return true;
}

static void io_clear(const struct crypto_channel *c, const struct bdev_io *io)
{
	struct iov_cursor at = iov_cursor_at(io->iovs, 0);

	iov_fill(&at, 0, io->num_blocks * c->block_size);
}

static NOINLINE COLD void io_openssl_failed(const struct crypto_channel *c)
{
	log_limited(LOG_LEVEL_ERROR, "bdev %s: OpenSSL failed to encrypt or decrypt a block", c->name);
}

/* --- Waiting for a buffer --- */

static NOINLINE void io_wait(struct crypto_channel *c, struct bdev_io *io)
{
	struct crypto_io *ctx = bdev_io_ctx(io);

	iobuf_waits(&c->own, c->own_class);
	USDT(buffer_wait, "crypto", c->name, (io->num_blocks - ctx->next) * c->block_size);
	ctx->waits = true;
	if (TAILQ_EMPTY(&c->waiters)) {
		TAILQ_INSERT_TAIL(&buffers_of(c)->waiting, c, link);
		buffers_of(c)->n_waiting++;
	}
	TAILQ_INSERT_TAIL(&c->waiters, ctx, link);
}

static void io_stop_waiting(struct crypto_channel *c, struct crypto_io *ctx)
{
	ctx->waits = false;
	if (ctx->is_held) {
		TAILQ_REMOVE(&c->held, ctx, link);
		return;
	}
	TAILQ_REMOVE(&c->waiters, ctx, link);
	if (TAILQ_EMPTY(&c->waiters)) {
		TAILQ_REMOVE(&buffers_of(c)->waiting, c, link);
		buffers_of(c)->n_waiting--;
	}
}

static void write_go_on(struct bdev_io *parent);

/* A buffer is free again: serves those that wait, from the longest on, as long as there are buffers. An I/O that gets
 * none stays the first; one that gets some, but too few, becomes the last. */
static void waiters_serve(struct crypto_channel *c)
{
	struct crypto_io *ctx;

	while ((ctx = TAILQ_FIRST(&c->waiters)) != NULL) {
		uint64_t before = ctx->next;
		io_stop_waiting(c, ctx);
		write_go_on(bdev_io_from_ctx(ctx));
		if (ctx != TAILQ_LAST(&c->waiters, waiter_list)) {
			continue; /* it may have ended */
		}
		if (ctx->next == before) {
			TAILQ_REMOVE(&c->waiters, ctx, link);
			TAILQ_INSERT_HEAD(&c->waiters, ctx, link);
		}
		return;
	}
}

/* A buffer of a channel came free, perhaps a shared one: each channel of the thread that has waiters is served once, in
 * turn. */
static NOINLINE void buffers_serve(struct crypto_buffers *b)
{
	struct crypto_channel *c;

	for (uint32_t n = b->n_waiting; n > 0 && (c = TAILQ_FIRST(&b->waiting)) != NULL; n--) {
		TAILQ_REMOVE(&b->waiting, c, link);
		TAILQ_INSERT_TAIL(&b->waiting, c, link);
		waiters_serve(c);
	}
}

/* --- Waiting for a rekey --- */

static bool keys_hold(const struct crypto_channel *c, uint64_t first, uint64_t blocks)
{
	return first < c->two_keys->held_end && first + blocks > c->two_keys->held_first;
}

static void held_io_add(struct crypto_channel *c, struct bdev_io *io)
{
	struct crypto_io *ctx = bdev_io_ctx(io);

	ctx->waits = ctx->is_held = true;
	TAILQ_INSERT_TAIL(&c->held, ctx, link);
}

/* What is left of a WRITE. True: it waits, or makes no more children. */
static NOINLINE COLD bool write_is_held(struct crypto_channel *c, struct bdev_io *io)
{
	const struct crypto_io *ctx = bdev_io_ctx(io);

	if (!keys_hold(c, io->offset_blocks + ctx->next, io->num_blocks - ctx->next)) {
		return false;
	}
	if (c->two_keys->held_fails) {
		bdev_children_fail(io, NVME_SC_NS_NOT_READY);
		bdev_children_sent(io);
	} else {
		held_io_add(c, io);
	}
	return true;
}

/* An I/O of another type. True: it waits, or has ended. */
static NOINLINE COLD bool io_is_held(struct crypto_channel *c, struct bdev_io *io)
{
	if (io->type == BDEV_IO_FLUSH || io->type == BDEV_IO_RESET ||
	    !keys_hold(c, io->offset_blocks, io->num_blocks)) {
		return false;
	}
	if (c->two_keys->held_fails) {
		bdev_io_complete_untouched(io, NVME_SC_NS_NOT_READY);
	} else {
		held_io_add(c, io);
	}
	return true;
}

/* Only WRITEs have a context when they are not held. */
static bool held_io_has(const struct crypto_channel *c, struct bdev_io *io)
{
	const struct crypto_io *ctx;

	TAILQ_FOREACH (ctx, &c->held, link) {
		if (ctx == bdev_io_ctx(io)) {
			return true;
		}
	}
	return false;
}

/* Ends an I/O that is no WRITE, if it is held. */
static bool held_io_end(struct crypto_channel *c, struct bdev_io *io)
{
	struct crypto_io *ctx = bdev_io_ctx(io);

	if (io->type == BDEV_IO_WRITE || !held_io_has(c, io)) {
		return false;
	}
	TAILQ_REMOVE(&c->held, ctx, link);
	bdev_io_complete_untouched(io, NVME_SC_ABORT_REQ);
	return true;
}

static void crypto_submit(void *channel, struct bdev_io *io);

/* The keys have changed: those that wait try again. */
static void held_serve(struct crypto_channel *c)
{
	struct waiter_list list = TAILQ_HEAD_INITIALIZER(list);
	struct crypto_io *ctx;

	TAILQ_CONCAT(&list, &c->held, link);
	while ((ctx = TAILQ_FIRST(&list)) != NULL) {
		struct bdev_io *io = bdev_io_from_ctx(ctx);
		TAILQ_REMOVE(&list, ctx, link);
		ctx->waits = ctx->is_held = false;
		if (io->type == BDEV_IO_WRITE) {
			write_go_on(io);
		} else {
			crypto_submit(c, io);
		}
	}
}

/* --- READ --- */

static void child_done(struct bdev_io *child, void *arg)
{
	struct bdev_io *io = arg;
	struct crypto_channel *c = bdev_channel_ctx(io->ch);

	if (io->type != BDEV_IO_READ || unlikely(child->status != 0)) {
		bdev_io_complete_as(io, child);
	} else if (likely(decrypt_blocks(c, io))) {
		bdev_io_complete(io, 0);
	} else {
		io_openssl_failed(c);
		io_clear(c, io);
		bdev_io_complete(io, NVME_SC_INTERNAL);
	}
}

/* --- WRITE --- */

/* Encrypts the next piece for a child, and sends it. */
static void piece_send(struct crypto_channel *c, struct bdev_io *parent, struct bdev_io *child, const struct piece *p)
{
	struct crypto_io *ctx = bdev_io_ctx(parent);
	uint64_t lba = parent->offset_blocks + ctx->next;
	struct iov_cursor from = iov_cursor_at(parent->iovs, ctx->next * c->block_size);
	enum bdev_io_type type = BDEV_IO_WRITE;

	if (unlikely(!encrypt_blocks(c, lba, &from, p->buffer, p->blocks))) {
		/* The child must be sent all the same, and what is in the buffer must not be written. */
		io_openssl_failed(c);
		bdev_children_fail(parent, NVME_SC_INTERNAL);
		type = BDEV_IO_READ;
	}
	child->iovs[0] = (struct iovec){p->buffer, p->blocks * c->block_size};
	child->iovs[1].iov_len = p->source; /* not of the I/O: a note for child_ended */
	bdev_io_set_rw(child, type, child->iovs, 1, lba, p->blocks);
	ctx->next = type == BDEV_IO_WRITE ? ctx->next + p->blocks : parent->num_blocks;
	ctx->children++;
	bdev_child_send(child);
}

static void write_go_on(struct bdev_io *parent)
{
	struct crypto_channel *c = bdev_channel_ctx(parent->ch);
	struct crypto_io *ctx = bdev_io_ctx(parent);

	while (ctx->next < parent->num_blocks) {
		struct bdev_io *child;
		struct piece p;
		if (unlikely(c->two_keys != NULL) && write_is_held(c, parent)) {
			return;
		}
		if (unlikely(!piece_take(c, parent->num_blocks - ctx->next, &p))) {
			io_wait(c, parent);
			return;
		}
		int rc = bdev_child_get(c->pool, 0, parent, &child);
		if (unlikely(rc != 0)) {
			piece_put(c, p.source, p.buffer);
			if (rc == -EAGAIN) {
				return;
			}
			if (rc != -ECANCELED) {
				bdev_children_fail(parent, NVME_SC_INVALID_NS | NVME_SC_DNR);
			}
			break;
		}
		piece_send(c, parent, child, &p);
	}
	bdev_children_sent(parent);
}

static uint16_t write_child_ended(struct bdev_io *child, struct bdev_io *parent)
{
	struct crypto_channel *c = bdev_channel_ctx(parent->ch);
	struct crypto_io *ctx = bdev_io_ctx(parent);
	uint16_t status = child->status;

	ctx->children--;
	piece_put(c, (enum source)child->iovs[1].iov_len, child->iovs[0].iov_base);
	if (unlikely(buffers_of(c)->n_waiting != 0)) {
		buffers_serve(buffers_of(c));
	}
	return status;
}

static const struct bdev_child_ops crypto_child_ops = {.resume = write_go_on, .child_ended = write_child_ended};

/* --- All types --- */

/* Ends the part of an I/O that has not begun, if the I/O waits for a buffer. */
static bool io_end_waiting(struct crypto_channel *c, struct bdev_io *io)
{
	struct crypto_io *ctx = bdev_io_ctx(io);

	if (io->type != BDEV_IO_WRITE || !ctx->waits) {
		return false;
	}
	io_stop_waiting(c, ctx);
	bdev_children_fail(io, NVME_SC_ABORT_REQ);
	return true;
}

static void crypto_abort(struct crypto_channel *c, struct bdev_io *abort)
{
	struct bdev_io *target = abort->abort.target;
	if (held_io_end(c, target)) {
		bdev_io_complete_cdw0(abort, 0, 0);
		return;
	}
	bool waited = io_end_waiting(c, target);
	bool all = waited && ((struct crypto_io *)bdev_io_ctx(target))->children == 0;

	if (!all) {
		bdev_child_abort(c->pool, abort);
	}
	if (waited) {
		bdev_children_sent(target);
	}
	if (all) {
		bdev_io_complete_cdw0(abort, 0, 0);
	}
}

static void crypto_submit(void *channel, struct bdev_io *io)
{
	struct crypto_channel *c = channel;
	struct crypto_io *ctx;

	switch (io->type) {
	case BDEV_IO_WRITE:
		ctx = bdev_io_ctx(io);
		ctx->next = 0;
		ctx->children = 0;
		ctx->waits = ctx->is_held = false;
		bdev_children_begin(io);
		write_go_on(io);
		break;
	case BDEV_IO_ABORT:
		crypto_abort(c, io);
		break;
	case BDEV_IO_READ:
		if (unlikely(c->two_keys != NULL) && io_is_held(c, io)) {
			break;
		}
		if (unlikely(c->clears_reads)) {
			io_clear(c, io);
		}
		bdev_child_submit(c->pool, io);
		break;
	default:
		if (c->two_keys == NULL || !io_is_held(c, io)) {
			bdev_child_submit(c->pool, io);
		}
		break;
	}
}

/* I/Os at the base are ended by the RESET that follows, which is passed to the base like any other I/O. */
static void crypto_reset_channel(struct bdev *b, void *channel)
{
	struct crypto_channel *c = channel;
	struct crypto_io *ctx;

	bdev_child_fail_waiting(c->pool, NVME_SC_ABORT_REQ);
	while ((ctx = TAILQ_FIRST(&c->waiters)) != NULL) {
		struct bdev_io *io = bdev_io_from_ctx(ctx);
		(void)io_end_waiting(c, io);
		bdev_children_sent(io);
	}
	while ((ctx = TAILQ_FIRST(&c->held)) != NULL) {
		struct bdev_io *io = bdev_io_from_ctx(ctx);
		if (!held_io_end(c, io)) {
			(void)io_end_waiting(c, io);
			bdev_children_sent(io);
		}
	}
}

static void crypto_take_back(void *channel, struct bdev_io *io)
{
	struct crypto_channel *c = channel;

	if (held_io_end(c, io)) {
		return;
	}
	bool waited = io_end_waiting(c, io);
	bdev_child_take_back(c->pool, io);
	if (waited) {
		bdev_children_sent(io);
	}
}

static void crypto_describe_io(struct bdev_io *io, char *text, size_t size)
{
	const struct crypto_channel *c = bdev_channel_ctx(io->ch);

	if (held_io_has(c, io)) {
		snprintf(text, size, "a rekey: its blocks are getting the new key");
	} else if (io->type == BDEV_IO_WRITE && ((const struct crypto_io *)bdev_io_ctx(io))->waits) {
		snprintf(text, size, "a buffer to encrypt its data into");
	}
}

/* --- Channels --- */

static void crypto_channel_destroy(struct bdev *b, void *channel)
{
	struct crypto_channel *c = channel;

	bdev_child_pool_destroy(c->pool);
	crypto_xts_destroy(&c->xts);
	crypto_xts_destroy(&c->next_xts);
	iobuf_channel_destroy(&c->own);
	if (c->shared != NULL) {
		io_channel_put(c->shared);
	}
}

static int channel_get_buffers(struct crypto_channel *c)
{
	struct iobuf_channel_opts opts = {.module = &iobuf_module};
	char error[ENV_ERROR_MAX];

	if (c->block_size > iobuf_size(IOBUF_LARGE)) {
		log_error("bdev %s: blocks of %u bytes do not fit into data buffers of %u: raise large_bufsize "
			  "(iobuf_set_options)",
			  c->name, c->block_size, iobuf_size(IOBUF_LARGE));
		return -EINVAL;
	}
	c->own_class = c->block_size <= iobuf_size(IOBUF_SMALL) ? IOBUF_SMALL : IOBUF_LARGE;
	opts.class[c->own_class].floor = 1;
	int rc = iobuf_channel_create(&c->own, &opts, error);
	if (rc != 0) {
		log_error("bdev %s: %s", c->name, error);
		return rc;
	}
	c->shared = io_channel_get(&buffers_device);
	return c->shared != NULL ? 0 : -errno;
}

static int channel_make_key(const struct crypto_channel *c, const struct crypto_key *k, struct crypto_xts *xts)
{
	size_t bytes;
	const uint8_t *key = crypto_key_secret(k, &bytes);
	int rc = crypto_xts_create(xts, key, bytes);

	if (rc != 0) {
		log_error("bdev %s: OpenSSL cannot make a key schedule: %s", c->name, strerror(-rc));
	}
	return rc;
}

/* On failure the channel stays as it was. */
static int channel_take_keys(struct crypto_channel *c, const struct crypto_keys *keys)
{
	if (c->key != keys->key && c->next_xts.encrypt != NULL) { /* a rekey has ended */
		crypto_xts_destroy(&c->xts);
		c->xts = c->next_xts;
		c->next_xts = (struct crypto_xts){0};
		c->key = keys->key;
	}
	int rc = c->xts.encrypt != NULL ? 0 : channel_make_key(c, keys->key, &c->xts);
	if (rc == 0 && keys->next != NULL && c->next_xts.encrypt == NULL) {
		rc = channel_make_key(c, keys->next, &c->next_xts);
	}
	if (rc == 0) {
		c->key = keys->key;
		c->two_keys = keys->next != NULL ? keys : NULL;
	}
	if (rc == 0 && keys->next == NULL) {
		crypto_xts_destroy(&c->next_xts);
	}
	return rc;
}

struct keys_visit {
	const struct crypto_keys *keys;
	int rc;
};

static void channel_visit_keys(struct bdev *b, void *channel, void *arg)
{
	struct keys_visit *v = arg;
	int rc = channel_take_keys(channel, v->keys);

	if (rc == 0) {
		held_serve(channel);
	} else {
		v->rc = rc;
	}
}

/* A channel that is being made meanwhile has read the one or the other. After a grace period it is made, and the visit
 * reaches it too. */
static int keys_hand_out(struct crypto_bdev *c, const struct crypto_keys *keys)
{
	struct keys_visit v = {.keys = keys};

	/* Release: pairs with the acquire in crypto_channel_create(). */
	__atomic_store_n(&c->keys, keys, __ATOMIC_RELEASE);
	if (c->v.bdev.core != NULL) { /* registered: there may be channels */
		thread_synchronize();
		bdev_visit_module_channels(&c->v.bdev, channel_visit_keys, &v);
	}
	return v.rc;
}

int crypto_keys_publish(struct crypto_bdev *c, const struct crypto_keys *keys)
{
	const struct crypto_keys *before = c->keys;
	int rc = keys_hand_out(c, keys);

	if (rc != 0) {
		(void)keys_hand_out(c, before); /* which makes nothing, so it cannot fail */
	}
	return rc;
}

struct range_visit {
	uint64_t first, last;
	bool found;
};

static void channel_visit_range(struct bdev *b, void *channel, void *arg)
{
	const struct crypto_channel *c = channel;
	struct range_visit *v = arg;

	v->found |= bdev_child_pool_touches(c->pool, v->first, v->last);
}

bool crypto_blocks_are_in_use(struct crypto_bdev *c, uint64_t first, uint64_t last)
{
	struct range_visit v = {first, last, false};

	bdev_visit_module_channels(&c->v.bdev, channel_visit_range, &v);
	return v.found;
}

static int crypto_channel_create(struct bdev *b, void *channel)
{
	const struct crypto_bdev *own = (const struct crypto_bdev *)b;
	struct crypto_channel *c = channel;

	TAILQ_INIT(&c->waiters);
	TAILQ_INIT(&c->held);
	c->name = b->name;
	c->block_size = b->block_size;
	c->clears_reads = own->clears_reads;
	int rc = channel_get_buffers(c);
	/* Acquire: pairs with the release in keys_hand_out(). */
	rc = rc != 0 ? rc : channel_take_keys(c, __atomic_load_n(&own->keys, __ATOMIC_ACQUIRE));
	if (rc == 0) {
		c->pool = bdev_child_pool_create_for(&(struct bdev_child_pool_opts){
			.bases = &own->v.base, .n_bases = 1, .count = CHILDREN, .iovs = 2, .done = child_done});
		rc = c->pool != NULL ? 0 : -errno;
	}
	if (rc != 0) {
		crypto_channel_destroy(b, channel);
	}
	return rc;
}

const struct bdev_ops crypto_ops = {
	.bases = crypto_bases,
	.submit = crypto_submit,
	.channel_create = crypto_channel_create,
	.channel_destroy = crypto_channel_destroy,
	.channel_size = sizeof(struct crypto_channel),
	.reset_channel = crypto_reset_channel,
	.take_back = crypto_take_back,
	.destruct = vbdev_destruct,
	.child_ops = &crypto_child_ops,
	.describe_io = crypto_describe_io,
	.dump_info = crypto_dump_info,
};
