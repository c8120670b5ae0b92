/* SPDX-License-Identifier: BSD-3-Clause */
/* Files and block devices through io_uring: the bdevs of bdev_uring_create and bdev_aio_create.
 *
 * Each channel has a ring. The channel's poller submits all I/Os of a round of its reactor to the kernel by one system
 * call, and takes completions from the ring. A reactor that wants to sleep watches the ring's descriptor, which is
 * readable while there are completions. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <liburing.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bdev/module_util.h"
#include "bdev/owner.h"
#include "bdev_modules/uring/claim.h"
#include "bdev_modules/uring/uring.h"
#include "util/compiler.h"
#include "util/iov.h"
#include "util/log.h"

#define RING_ENTRIES  256u /* in flight per channel */
#define MAX_SEGMENTS  128u
#define MAX_RW_BYTES  (16u << 20)
#define DEFAULT_BLOCK 512u

struct uring_bdev {
	struct bdev bdev;
	struct uring_claim claim; /* and the descriptor */
	bool aio, fallocate, nowait, shared, standby;
	struct bdev_owner owner;      /* of a standby; it stays one when it is the owner */
	uint32_t block_size_override; /* as given in the options; 0: chosen by uring_choose_block_size() */
	char name[256];
	char filename[];
};

struct uring_channel {
	struct io_uring ring;
	struct poller *poller;
	uint32_t in_flight;
};

/* A bit of a submission's user data, whose other bits are the address of the I/O: the submission was not the I/O's
 * first one, but the rest of a short transfer, or zeroes that are written because no hole could be punched. */
#define AGAIN 1u

/* Used only by READs and WRITEs of which a part has been transferred. */
struct uring_ctx {
	uint64_t moved_bytes;
};

static struct bdev_module bdev_uring_module = {.name = "uring", .io_ctx_size = sizeof(struct uring_ctx)};
BDEV_MODULE_REGISTER(bdev_uring_module)

/* --- I/O --- */

static void uring_prepare(const struct uring_bdev *u, struct io_uring_sqe *sqe, struct bdev_io *io)
{
	uint64_t offset = io->offset_blocks * u->bdev.block_size;
	uint64_t bytes = io->num_blocks * u->bdev.block_size;

	switch (io->type) {
	case BDEV_IO_READ:
		io_uring_prep_readv(sqe, u->claim.fd, io->iovs, io->iovcnt, offset);
		break;
	case BDEV_IO_WRITE:
		io_uring_prep_writev(sqe, u->claim.fd, io->iovs, io->iovcnt, offset);
		break;
	case BDEV_IO_FLUSH:
		io_uring_prep_fsync(sqe, u->claim.fd, IORING_FSYNC_DATASYNC);
		break;
	default: /* UNMAP, WRITE_ZEROES: a hole reads as zeroes */
		io_uring_prep_fallocate(sqe, u->claim.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
					(off_t)bytes);
		break;
	}
	io_uring_sqe_set_data64(sqe, (uintptr_t)io);
}

static const struct uring_bdev *uring_of(const struct bdev_io *io)
{
	return (const struct uring_bdev *)bdev_channel_bdev(io->ch);
}

/* NULL: the ring is full. */
static inline struct io_uring_sqe *uring_try_sqe(struct uring_channel *c)
{
	struct io_uring_sqe *sqe = c->in_flight < RING_ENTRIES ? io_uring_get_sqe(&c->ring) : NULL;

	c->in_flight += sqe != NULL;
	return sqe;
}

/* For an I/O of which a part may have been carried out. NULL: it waits, and will be submitted again from its beginning.
 */
static struct io_uring_sqe *uring_take_sqe(struct uring_channel *c, struct bdev_io *io)
{
	struct io_uring_sqe *sqe = uring_try_sqe(c);

	if (sqe == NULL) {
		bdev_io_nomem(io);
	}
	return sqe;
}

static void uring_submit(void *channel, struct bdev_io *io)
{
	const struct uring_bdev *u = uring_of(io);

	if (unlikely(bdev_owner_refuses(&u->owner))) {
		bdev_io_complete_untouched(
			io, BDEV_OWNER_STATUS); /* if no earlier try may have written a part, which the layer knows */
		return;
	}
	struct io_uring_sqe *sqe = uring_try_sqe(channel);
	if (sqe != NULL) {
		uring_prepare(u, sqe, io);
	} else {
		bdev_io_refuse(io);
	}
}

/* Transfers one iov, or the rest of it: short transfers are rare, and need no list of iovs of their own this way. */
static void uring_prepare_rest(const struct uring_bdev *u, struct io_uring_sqe *sqe, struct bdev_io *io, uint64_t moved)
{
	uint64_t offset = io->offset_blocks * u->bdev.block_size + moved;
	struct iov_cursor c = iov_cursor_at(io->iovs, moved);
	size_t bytes = SIZE_MAX;
	void *at = iov_next(&c, &bytes);
	if (io->type == BDEV_IO_READ) {
		io_uring_prep_read(sqe, u->claim.fd, at, (unsigned)bytes, offset);
	} else {
		io_uring_prep_write(sqe, u->claim.fd, at, (unsigned)bytes, offset);
	}
	io_uring_sqe_set_data64(sqe, (uintptr_t)io | AGAIN);
}

/* A signal, a full file system or an error in a later block can end a transfer early. The rest is submitted again: it
 * succeeds, or it returns the error. */
static void uring_submit_rest(struct uring_channel *c, struct bdev_io *io, uint64_t moved)
{
	struct io_uring_sqe *sqe = uring_take_sqe(c, io);

	if (sqe != NULL) {
		((struct uring_ctx *)bdev_io_ctx(io))->moved_bytes = moved;
		uring_prepare_rest(uring_of(io), sqe, io, moved);
	}
}

/* For a block device that cannot punch holes: with ZERO_RANGE the kernel writes zeroes if the device cannot zero
 * blocks. */
static void uring_write_zeroes(struct uring_channel *c, struct bdev_io *io)
{
	const struct uring_bdev *u = uring_of(io);
	struct io_uring_sqe *sqe = uring_take_sqe(c, io);

	if (sqe != NULL) {
		io_uring_prep_fallocate(sqe, u->claim.fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
					(off_t)(io->offset_blocks * u->bdev.block_size),
					(off_t)(io->num_blocks * u->bdev.block_size));
		io_uring_sqe_set_data64(sqe, (uintptr_t)io | AGAIN);
	}
}

/* The kernel reports data that it could not write only to the first fdatasync() afterwards; the next one succeeds. So a
 * FLUSH that failed has DNR: a host that tried it again would take lost data for written. */
static void uring_fail(struct bdev_io *io, int rc)
{
	uint16_t final = io->type == BDEV_IO_FLUSH ? NVME_SC_DNR : 0;

	log_limited(LOG_LEVEL_ERROR, "bdev %s: %s of %lu blocks at %lu failed: %s",
		    bdev_name(bdev_channel_bdev(io->ch)), bdev_io_type_name(io->type), io->num_blocks,
		    io->offset_blocks, strerror(-rc));
	bdev_io_complete(io, bdev_status_from_errno(rc) | final);
}

/* Whether the file ends at this byte, because somebody has truncated it. Direct I/O that begins in the middle of a
 * sector there fails with EINVAL. */
static bool uring_is_at_end(const struct bdev_io *io, int result, uint64_t moved)
{
	return result == 0 || (result == -EINVAL && moved % bdev_channel_bdev(io->ch)->block_size != 0);
}

/* The end of a submission of a READ or WRITE. */
static void uring_complete_transfer(struct uring_channel *c, struct bdev_io *io, int result, bool again)
{
	const struct bdev *b = bdev_channel_bdev(io->ch);
	uint64_t moved = again ? ((const struct uring_ctx *)bdev_io_ctx(io))->moved_bytes : 0;

	if (uring_is_at_end(io, result, moved)) {
		log_limited(LOG_LEVEL_ERROR, "bdev %s: %s of %lu blocks at %lu moved only %lu bytes: was the file cut?",
			    b->name, bdev_io_type_name(io->type), io->num_blocks, io->offset_blocks, moved);
		bdev_io_complete(io, NVME_SC_INTERNAL);
	} else if (result < 0) {
		uring_fail(io, result);
	} else if (moved + (uint64_t)result < io->num_blocks * b->block_size) {
		uring_submit_rest(c, io, moved + (uint64_t)result);
	} else {
		bdev_io_complete(io, 0);
	}
}

static void uring_complete(struct uring_channel *c, uint64_t data, int result)
{
	struct bdev_io *io = (struct bdev_io *)(uintptr_t)(data & ~(uint64_t)AGAIN);
	bool again = (data & AGAIN) != 0;

	if (result == -EAGAIN || result == -EINTR) {
		bdev_io_nomem(io);
	} else if (io->type == BDEV_IO_READ || io->type == BDEV_IO_WRITE) {
		uring_complete_transfer(c, io, result, again);
	} else if (result == -EOPNOTSUPP && io->type == BDEV_IO_UNMAP) {
		bdev_io_complete(io, 0); /* Deallocate is advisory */
	} else if (result == -EOPNOTSUPP && io->type == BDEV_IO_WRITE_ZEROES && !again) {
		uring_write_zeroes(c, io);
	} else if (result < 0) {
		uring_fail(io, result);
	} else {
		bdev_io_complete(io, 0);
	}
}

/* Submissions that the kernel cannot take now stay in the ring for the next round. A negative errno: it will not take
 * them at all. */
static int uring_submit_prepared(struct uring_channel *c)
{
	int rc = io_uring_sq_ready(&c->ring) != 0 ? io_uring_submit(&c->ring) : 0;

	return rc >= 0 || rc == -EAGAIN || rc == -EBUSY || rc == -EINTR ? 0 : rc;
}

/* Empties the submission queue, and returns the number of entries whose user data is in `data`. The kernel reads the
 * queue only within io_uring_submit(). */
static unsigned uring_take_prepared(struct uring_channel *c, uint64_t data[RING_ENTRIES])
{
	struct io_uring_sq *sq = &c->ring.sq;
	unsigned n = io_uring_sq_ready(&c->ring), head = sq->sqe_tail - n;

	for (unsigned i = 0; i < n; i++) {
		data[i] = sq->sqes[(head + i) & *sq->kring_mask].user_data;
	}
	*sq->ktail = sq->sqe_head = sq->sqe_tail = head;
	return n;
}

NOINLINE static void uring_fail_prepared(struct uring_channel *c, int rc)
{
	uint64_t data[RING_ENTRIES];
	unsigned n = uring_take_prepared(c, data);

	log_limited(LOG_LEVEL_ERROR, "io_uring_submit failed: %s: %u I/Os fail", strerror(-rc), n);
	c->in_flight -= n;
	for (unsigned i = 0; i < n; i++) {
		uring_fail((struct bdev_io *)(uintptr_t)(data[i] & ~(uint64_t)AGAIN), rc);
	}
}

static int uring_poll(void *ctx)
{
	struct uring_channel *c = ctx;
	struct io_uring_cqe *cqes[64];

	int rc = uring_submit_prepared(c);
	if (unlikely(rc != 0)) {
		uring_fail_prepared(c, rc);
	}
	unsigned n = io_uring_peek_batch_cqe(&c->ring, cqes, 64);
	if (n == 0) {
		return POLLER_IDLE;
	}
	struct {
		uint64_t data;
		int result;
	} done[64];
	for (unsigned i = 0; i < n; i++) {
		done[i].data = io_uring_cqe_get_data64(cqes[i]);
		done[i].result = cqes[i]->res;
	}
	io_uring_cq_advance(&c->ring, n); /* before the callbacks, which submit I/Os and may poll the ring */
	c->in_flight -= n;
	for (unsigned i = 0; i < n; i++) {
		uring_complete(c, done[i].data, done[i].result);
	}
	return POLLER_BUSY;
}

static bool uring_arm(void *ctx)
{
	struct uring_channel *c = ctx;

	uring_submit_prepared(c); /* if it fails, the queue is not empty, and uring_poll() ends the I/Os */
	return io_uring_cq_ready(&c->ring) != 0 || io_uring_sq_ready(&c->ring) != 0;
}

static int uring_channel_create(struct bdev *b, void *channel)
{
	struct uring_channel *c = channel;
	int rc = io_uring_queue_init(RING_ENTRIES, &c->ring, 0);

	if (rc != 0) {
		log_error("bdev %s: no io_uring: %s", b->name, strerror(-rc));
		return rc;
	}
	c->poller = poller_register(&(struct poller_opts){
		.name = "bdev_uring", .fn = uring_poll, .ctx = c, .fd = c->ring.ring_fd, .arm = uring_arm});
	if (c->poller == NULL) {
		io_uring_queue_exit(&c->ring);
		return -ENOMEM;
	}
	return 0;
}

static void uring_channel_destroy(struct bdev *b, void *channel)
{
	struct uring_channel *c = channel;

	poller_unregister(&c->poller);
	io_uring_queue_exit(&c->ring);
}

/* --- Creation --- */

static void uring_own(struct bdev_owner *o, uint64_t until_us, bool fence)
{
	struct uring_bdev *u = container_of(o, struct uring_bdev, owner);
	char error[BDEV_ERROR_MAX];
	int rc = uring_claim_take(&u->claim, u->filename, error);

	bdev_owner_taken(o, rc, error);
}

static void uring_disown(struct bdev_owner *o)
{
	uring_claim_give(&container_of(o, struct uring_bdev, owner)->claim);
	bdev_owner_given(o, 0, NULL);
}

static uint32_t uring_in_flight(const void *channel)
{
	return ((const struct uring_channel *)channel)->in_flight;
}

static const struct bdev_owner_ops uring_owner_ops = {
	.take = uring_own, .give = uring_disown, .in_flight = uring_in_flight};

static void uring_free(struct uring_bdev *u)
{
	bdev_owner_fini(&u->owner);
	uring_claim_close(&u->claim);
	free(u);
}

/* The file is closed before the deletion is answered: the client may want to use it, or to unmount its file system. */
static void uring_destruct(struct bdev *b)
{
	struct uring_bdev *u = (struct uring_bdev *)b;

	bdev_owner_fini(&u->owner);
	uring_claim_close(&u->claim);
	bdev_destruct_done(b);
	free(u);
}

static void uring_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	const struct uring_bdev *u = (const struct uring_bdev *)b;
	json_t *info = json_pack("{s:s?, s:b, s:b, s:b}", "filename", u->filename, "readonly", b->read_only, "shared",
				 u->shared, "fallocate", u->fallocate);

	if (u->aio && info != NULL) {
		json_object_set_new(info, "block_size_override", json_boolean(u->block_size_override != 0));
	}
	if (info != NULL) {
		json_object_set_new(info, "direct", json_boolean(b->buf_align > 1));
	}
	json_object_set_new(driver_specific, u->aio ? "aio" : "uring", info);
}

static const struct bdev_ops uring_ops = {
	.bases = bdev_bases_none,
	.submit = uring_submit,
	.channel_create = uring_channel_create,
	.channel_destroy = uring_channel_destroy,
	.channel_size = sizeof(struct uring_channel),
	.destruct = uring_destruct,
	.dump_info = uring_dump_info,
};

/* Size of the file, and alignment that it needs. */
struct geometry {
	uint64_t bytes;
	uint32_t logical_block;              /* of a block device; 0: a regular file */
	uint32_t memory_align, offset_align; /* for direct I/O; 0: not possible */
};

static int file_get_size(int fd, const struct stat *st, uint64_t *bytes)
{
	if (S_ISBLK(st->st_mode)) {
		return ioctl(fd, BLKGETSIZE64, bytes) == 0 ? 0 : -errno;
	}
	*bytes = (uint64_t)st->st_size;
	return 0;
}

static void file_find_alignment(const char *filename, int fd, struct geometry *g)
{
	struct statx sx = {0};

#ifdef STATX_DIOALIGN
	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN)) {
		g->memory_align = sx.stx_dio_mem_align;
		g->offset_align = sx.stx_dio_offset_align;
		return;
	}
#else
	(void)sx;
#endif
	/* An older kernel or C library: the alignment of a logical block is always sufficient; 4096 if that is unknown.
	 */
	g->memory_align = g->offset_align = g->logical_block != 0 ? g->logical_block : 4096;
	/* open() fails if the file system has no direct I/O. */
	int direct = open(filename, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (direct < 0) {
		g->memory_align = g->offset_align = 0;
	} else {
		close(direct);
	}
}

/* Checked before the file is opened, because open() would wait at a FIFO, and rewind a tape. */
static int file_check_kind(const char *filename, char *error)
{
	struct stat st;

	if (stat(filename, &st) != 0) {
		return bdev_error(error, -errno, "filename '%.150s': %s", filename, strerror(errno));
	}
	if (S_ISDIR(st.st_mode)) {
		return bdev_error(error, -EISDIR, "filename '%.150s': %s", filename, strerror(EISDIR));
	}
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
		return bdev_error(error, -EINVAL, "filename '%.150s': neither a regular file nor a block device",
				  filename);
	}
	return 0;
}

static int file_get_geometry(const char *filename, int fd, struct geometry *g, char *error)
{
	struct stat st;
	int logical = 0;

	if (fstat(fd, &st) != 0) {
		return bdev_error(error, -errno, "filename '%.150s': %s", filename, strerror(errno));
	}
	if (S_ISBLK(st.st_mode) && ioctl(fd, BLKSSZGET, &logical) != 0) {
		return bdev_error(error, -errno, "filename '%.150s': its block size cannot be read: %s", filename,
				  strerror(errno));
	}
	g->logical_block = (uint32_t)logical;
	int rc = file_get_size(fd, &st, &g->bytes);
	if (rc != 0) {
		return bdev_error(error, rc, "filename '%.150s': its size cannot be read: %s", filename, strerror(-rc));
	}
	file_find_alignment(filename, fd, g);
	return 0;
}

static int uring_choose_block_size(struct bdev *b, const struct bdev_uring_opts *opts, const struct geometry *g,
				   char *error)
{
	uint32_t least = g->logical_block != 0             ? g->logical_block
			 : g->offset_align > DEFAULT_BLOCK ? g->offset_align
							   : DEFAULT_BLOCK;

	b->block_size = opts->block_size != 0 ? opts->block_size : least;
	if (b->block_size < 512 || b->block_size > 65536 || (b->block_size & (b->block_size - 1)) != 0) {
		return bdev_error(error, -EINVAL, "block_size %u: must be a power of two from 512 to 65536",
				  b->block_size);
	}
	if (g->logical_block != 0 && b->block_size < g->logical_block) {
		return bdev_error(error, -EINVAL, "block_size %u: must be at least the device's, %u", b->block_size,
				  g->logical_block);
	}
	if (g->bytes < b->block_size || g->bytes % b->block_size != 0) {
		return bdev_error(error, -EINVAL,
				  "filename '%.120s': its size, %lu bytes, is not a multiple of the block size, %u",
				  opts->filename, g->bytes, b->block_size);
	}
	b->num_blocks = g->bytes / b->block_size;
	return 0;
}

/* Chooses direct I/O if the block size allows it; otherwise logs that the file goes through the page cache. */
static void uring_choose_direct(struct uring_bdev *u, const struct geometry *g)
{
	int flags = fcntl(u->claim.fd, F_GETFL);

	if (g->offset_align == 0 || u->bdev.block_size % g->offset_align != 0) {
		log_notice("bdev %s: %s goes through the page cache: its file system %s", u->name, u->filename,
			   g->offset_align == 0 ? "has no direct I/O" : "has direct I/O for larger blocks only");
		u->bdev.buf_align = 1;
	} else if (flags < 0 || fcntl(u->claim.fd, F_SETFL, flags | O_DIRECT) != 0) {
		log_notice("bdev %s: %s goes through the page cache: %s", u->name, u->filename, strerror(errno));
		u->bdev.buf_align = 1;
	} else {
		u->bdev.buf_align = g->memory_align > 1 ? g->memory_align : 4;
	}
}

static int uring_check_opts(const struct bdev_uring_opts *opts, char *error)
{
	int rc = bdev_check_name(opts->name, error);

	if (rc != 0) {
		return rc;
	}
	if (opts->filename == NULL || opts->filename[0] == '\0') {
		return bdev_error(error, -EINVAL, "filename: must not be empty");
	}
	if (opts->readonly && opts->fallocate) {
		return bdev_error(error, -EINVAL, "fallocate: not together with readonly");
	}
	if (opts->standby && (opts->readonly || opts->shared)) {
		return bdev_error(error, -EINVAL, "standby: not together with %s",
				  opts->readonly ? "readonly" : "shared");
	}
	return 0;
}

static int uring_probe(char *error)
{
	struct io_uring ring;
	int rc = io_uring_queue_init(2, &ring, 0);

	if (rc != 0) {
		return bdev_error(error, rc,
				  "io_uring is not available: %s (sysctl kernel.io_uring_disabled, or a seccomp "
				  "filter of a container?)",
				  strerror(-rc));
	}
	io_uring_queue_exit(&ring);
	return 0;
}

static void uring_fill_in(struct uring_bdev *u, const struct bdev_uring_opts *opts, const struct geometry *g)
{
	struct bdev *b = &u->bdev;

	b->product_name = opts->aio ? "AIO disk" : "URING bdev";
	b->module = &bdev_uring_module;
	b->ops = &uring_ops;
	b->numa_node = -1;
	b->write_cache = true;
	b->read_only = opts->readonly;
	b->max_segments = MAX_SEGMENTS;
	b->max_rw_blocks = MAX_RW_BYTES / b->block_size;
	b->io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_FLUSH;
	if (opts->fallocate) {
		b->io_types |= 1u << BDEV_IO_UNMAP | 1u << BDEV_IO_WRITE_ZEROES;
	}
	if (opts->uuid != NULL) {
		memcpy(b->uuid, opts->uuid, sizeof(b->uuid));
	}
	uring_choose_direct(u, g);
}

/* An absolute name stays as the client wrote it, with its links. A relative one is continued from the real path of its
 * folder, so that it means the same file for a daemon that is started elsewhere with the saved configuration. */
static int file_make_absolute(const char *filename, char absolute[PATH_MAX])
{
	const char *slash = strrchr(filename, '/'), *base = slash != NULL ? slash + 1 : filename;
	char folder[PATH_MAX], real[PATH_MAX];

	if (filename[0] == '/') {
		return snprintf(absolute, PATH_MAX, "%s", filename) < PATH_MAX ? 0 : -ENAMETOOLONG;
	}
	snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - filename) : 1,
		 slash != NULL ? filename : ".");
	if (realpath(folder, real) == NULL) {
		return -errno;
	}
	int len = snprintf(absolute, PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real, base);
	return len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static struct uring_bdev *uring_allocate(const struct bdev_uring_opts *opts, const char *filename)
{
	size_t name_bytes = strlen(opts->name) + 1, file_bytes = strlen(filename) + 1;
	struct uring_bdev *u = aligned_alloc(64, (sizeof(*u) + file_bytes + 63) & ~(size_t)63);

	if (u == NULL) {
		return NULL;
	}
	memset(u, 0, sizeof(*u));
	memcpy(u->name, opts->name, name_bytes);
	memcpy(u->filename, filename, file_bytes);
	u->bdev.name = u->name;
	u->claim.fd = -1;
	u->aio = opts->aio;
	u->shared = opts->shared;
	u->standby = opts->standby;
	if (u->standby) {
		bdev_owner_init(&u->owner, &u->bdev, &uring_owner_ops);
	}
	u->fallocate = opts->fallocate;
	u->nowait = opts->nowait;
	u->block_size_override = opts->block_size;
	return u;
}

int bdev_uring_create(const struct bdev_uring_opts *opts, char *error)
{
	struct geometry g = {0};
	char filename[PATH_MAX];
	int rc = uring_check_opts(opts, error);

	rc = rc != 0 ? rc : file_check_kind(opts->filename, error);
	rc = rc != 0 ? rc : uring_probe(error);
	if (rc != 0) {
		return rc;
	}
	rc = file_make_absolute(opts->filename, filename);
	if (rc != 0) {
		return bdev_error(error, rc, "filename '%.150s': %s", opts->filename, strerror(-rc));
	}
	struct uring_bdev *u = uring_allocate(opts, filename);
	if (u == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	rc = uring_claim_open(&u->claim,
			      &(struct uring_claim_opts){.name = u->name,
							 .filename = u->filename,
							 .readonly = opts->readonly,
							 .shared = opts->shared,
							 .standby = opts->standby},
			      error);
	rc = rc != 0 ? rc : file_get_geometry(u->filename, u->claim.fd, &g, error);
	rc = rc != 0 ? rc : uring_choose_block_size(&u->bdev, opts, &g, error);
	if (rc != 0) {
		goto fail;
	}
	uring_fill_in(u, opts, &g);
	rc = bdev_register_or_say(&u->bdev, error);
	if (rc == 0) {
		return 0;
	}
fail:
	uring_free(u);
	return rc;
}

static struct uring_bdev *uring_find(const char *name, bool aio)
{
	struct uring_bdev *u = (struct uring_bdev *)bdev_find_of(name, &bdev_uring_module);
	return u != NULL && u->aio == aio ? u : NULL;
}

static void uring_delete(const char *name, bool aio, bdev_delete_cb cb, void *arg)
{
	struct uring_bdev *u = uring_find(name, aio);

	if (u != NULL) {
		bdev_unregister(&u->bdev, cb, arg);
	} else {
		cb(arg, -ENODEV);
	}
}

void bdev_uring_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	uring_delete(name, false, cb, arg);
}

void bdev_aio_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	uring_delete(name, true, cb, arg);
}

int bdev_uring_rescan(const char *name, bool aio, char *error)
{
	struct uring_bdev *u = uring_find(name, aio);
	uint64_t bytes = 0;
	struct stat st;

	if (u == NULL) {
		return bdev_error(error, -ENODEV, "name: there is no %s bdev '%.200s'", aio ? "aio" : "uring", name);
	}
	int rc = fstat(u->claim.fd, &st) != 0 ? -errno : file_get_size(u->claim.fd, &st, &bytes);
	if (rc != 0) {
		return bdev_error(error, rc, "filename '%.150s': its size cannot be read: %s", u->filename,
				  strerror(-rc));
	}
	if (bytes < u->bdev.block_size) {
		return bdev_error(error, -EINVAL, "filename '%.150s': its size, %lu bytes, is less than a block, %u",
				  u->filename, bytes, u->bdev.block_size);
	}
	return bdev_resize(&u->bdev, bytes / u->bdev.block_size);
}

bool bdev_uring_get(const struct bdev *b, struct bdev_uring_opts *opts)
{
	if (b->module != &bdev_uring_module) {
		return false;
	}
	const struct uring_bdev *u = (const struct uring_bdev *)b;
	*opts = (struct bdev_uring_opts){.name = b->name,
					 .filename = u->filename,
					 .uuid = b->uuid,
					 .block_size = u->block_size_override,
					 .readonly = b->read_only,
					 .shared = u->shared,
					 .standby = u->standby,
					 .fallocate = u->fallocate,
					 .nowait = u->nowait,
					 .aio = u->aio};
	return true;
}
