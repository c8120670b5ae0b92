/* SPDX-License-Identifier: BSD-3-Clause */
/* Block devices, as their users see them: find, open, claim, do I/O, watch.
 *
 * A `bdev` is a device in the registry. A `bdev_desc` is one user's open handle on a bdev; it is used on the control
 * thread. A `bdev_channel` is one thread's access to a bdev; it is used on that thread. An I/O is one struct, embedded
 * in the user's own request, and one call:
 *
 *     struct my_request { ...; struct bdev_io io; };	<- last member, with room for bdev_io_size() bytes
 *
 *     bdev_io_init(&req->io, desc, ch, my_done, req);	once per request, and when one of these changes
 *     bdev_io_set_rw(&req->io, BDEV_IO_READ, iovs, iovcnt, lba, nblocks);
 *     bdev_submit(&req->io);	calls my_done(io, req) at the end, perhaps before it returns
 *
 * my_done finds the result in io->status (an NVMe status; 0 is success) and may submit the same io again. */
#ifndef BDEV_BDEV_H
#define BDEV_BDEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "util/iov.h"
#include "util/latency.h"
#include "util/rate.h"

struct bdev;
struct bdev_desc;
struct bdev_channel;
struct bdev_io;

/* Room for the reason that functions with an `error` parameter write. */
#define BDEV_ERROR_MAX 256

/* The end of a deletion: 0 or a negative errno. Control thread. */
typedef void (*bdev_delete_cb)(void *arg, int rc);

/* The numbers are those that scripts know from the `type` argument of BDEV_IO_START. */
enum bdev_io_type {
	BDEV_IO_INVALID = 0,
	BDEV_IO_READ = 1,
	BDEV_IO_WRITE = 2,
	BDEV_IO_UNMAP = 3,
	BDEV_IO_FLUSH = 4,
	BDEV_IO_RESET = 5,
	BDEV_IO_NVME_ADMIN = 6, /* io->nvme.cmd; iovs is the data */
	BDEV_IO_NVME_IO = 7,
	BDEV_IO_NVME_IO_MD = 8,
	BDEV_IO_WRITE_ZEROES = 9,
	BDEV_IO_ZCOPY = 10,
	BDEV_IO_COMPARE = 14,
	BDEV_IO_COMPARE_AND_WRITE = 15,
	BDEV_IO_ABORT = 16,
	BDEV_IO_COPY = 19, /* io->copy; offset_blocks is where to */
	/* Ours: behind the numbers that others use. */
	BDEV_IO_VERIFY = 24,              /* the blocks can be read; no data */
	BDEV_IO_WRITE_UNCORRECTABLE = 25, /* they cannot, until they are written again; no data */
	BDEV_IO_TYPES = 26,
};
/* "read", "write_zeroes" ...: the words of bdev_get_bdevs; NULL for a number that is no type. */
const char *bdev_io_type_name(enum bdev_io_type type);

/* Where an I/O is between bdev_submit() and its callback. */
enum bdev_io_state {
	BDEV_IO_IDLE = 0,    /* with its owner */
	BDEV_IO_ZCOPY_OPEN,  /* between bdev_zcopy_get() and bdev_submit() or bdev_zcopy_put() */
	BDEV_IO_WAIT_FREEZE, /* waits until a reset has ended */
	BDEV_IO_WAIT_QOS,    /* waits for a rate limit */
	BDEV_IO_WAIT_LOCK,   /* waits for a compare-and-write on the same blocks; or is one, and waits for its lock */
	BDEV_IO_WAIT_NOMEM,  /* the module has no room for it at the moment */
	BDEV_IO_WAIT_CHILD,  /* split or emulated: waits for a free child I/O or data buffer */
	BDEV_IO_SPLIT,       /* split or emulated: its child I/Os are with the module */
	BDEV_IO_MODULE,      /* with the module */
	BDEV_IO_DONE,        /* completed, its callback not called yet */
	BDEV_IO_STATES,
};
/* "wait_qos" ...: the words of bdev_get_inflight; NULL for a number that is no state. Any thread. */
const char *bdev_io_state_name(enum bdev_io_state state);

/* The end of an I/O, on the channel's thread; arg is io->cb_arg. io belongs to its owner again, who may submit it anew
 * from here. */
typedef void (*bdev_io_cb)(struct bdev_io *io, void *arg);

/* An I/O. Three cache lines: the fields that every I/O reads; those of accounting and of rare types; those of split and
 * emulated I/O only. The module's context follows (bdev_io_size()). Zero it once, when it is allocated. */
struct bdev_io {
	/* Filled in by the submitter, untouched by the bdev layer. */
	struct bdev_channel *ch;
	bdev_io_cb cb;
	void *cb_arg;       /* what BDEV_IO_START records as ctx: the request this I/O serves */
	struct iovec *iovs; /* data; stays the submitter's and valid until cb */
	uint64_t offset_blocks;
	uint64_t num_blocks;
	uint32_t iovcnt;
	uint8_t type; /* enum bdev_io_type */
	/* Result. */
	uint8_t state;   /* enum bdev_io_state; private */
	uint16_t status; /* 0, or NVMe: SCT << 8 | SC | NVME_SC_DNR where a retry is pointless */
	uint32_t cdw0;   /* completion dword 0; ABORT: 0 aborted, 1 not (as the NVMe Abort command has it) */
	uint8_t flags;   /* private from here on */
	uint8_t stage;
	bool sampled; /* with IO_EXACT: its exact time counts for the statistics */
	uint8_t reserved;

	/* Second line. */
	uint64_t submit_ticks __attribute__((aligned(64))); /* the start of the round in which it was submitted */
	TAILQ_ENTRY(bdev_io) link;                          /* the channel's I/Os in flight */
	STAILQ_ENTRY(bdev_io) queue;                        /* the one list an I/O waits in */
	struct bdev_desc *desc;                             /* filled in by the submitter */
	union {
		struct {
			struct iovec *iovs; /* COMPARE_AND_WRITE: what must be there; iovs is what is then
					       written */
			uint32_t iovcnt;
		} compare;
		struct {
			struct bdev_io *target; /* ABORT: an I/O of the same channel */
		} abort;
		struct {
			uint64_t src_offset_blocks; /* COPY: where from; num_blocks of them */
			uint32_t children_reading;  /* private, of an emulated one: children that are being read */
		} copy;
		struct {
			void *md; /* private: what a module whose bdev has md.separate moves beside iovs, which then are
				     the data alone */
		} apart;
		struct {
			void *cmd; /* NVME_*: 64 bytes, struct nvme_sqe of nvme/spec.h; cid and data pointers
				      are the module's */
			void *md;
			uint32_t md_len;
		} nvme;
	};

	/* Third line: the child I/Os of a split or emulated I/O, or those that its module makes for it. */
	uint64_t children_blocks __attribute__((aligned(64))); /* blocks so far */
	struct iov_cursor iov_next;                            /* the memory of the next child */
	uint16_t children;                                     /* with the module; pools are smaller than UINT16_MAX */
	uint16_t child_status;                                 /* the first error of a child */
	uint8_t phase;
	/* The submitter's, for bdevs with metadata only (others do not look): see bdev_io_set_dif(). */
	uint8_t dif_flags; /* enum bdev_dif_flag */
	uint16_t dif_storage, dif_app, dif_app_mask;
	uint32_t exact_ticks; /* private, with IO_EXACT: from submit_ticks to the submission itself */
	uint64_t dif_ref;
	void *lock; /* COMPARE_AND_WRITE: its range lock */
	union {
		/* Private, with IO_NOMEM: the time spent in WAIT_NOMEM; in that state: the present minus that time. */
		uint64_t nomem_ticks;
		/* Private, in WAIT_QOS: since when it has waited for the limits of its bdev's group; 0 or QOS_COUNTED
		 * of qos.c: it waits for the bdev's own. */
		uint64_t qos_since_ticks;
	};
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct bdev_io) == 192, "three cache lines; count before adding one");

/* Bytes that an I/O needs: struct bdev_io and the largest context of all modules in the program, so it is the same for
 * every bdev, and known when main() begins. A multiple of 64; the memory must be aligned to 64 bytes. Any thread. */
size_t bdev_io_size(void);

/* Sets what stays the same from one use of io to the next. io: zeroed before its first use. desc, ch: open while io is
 * in flight. cb(io, cb_arg) is called when io ends. */
static inline void bdev_io_init(struct bdev_io *io, struct bdev_desc *desc, struct bdev_channel *ch, bdev_io_cb cb,
				void *cb_arg)
{
	io->desc = desc;
	io->ch = ch;
	io->cb = cb;
	io->cb_arg = cb_arg;
}

/* Sets what io is to do. iovs must hold num_blocks exactly, and stay valid until io ends; types without data (UNMAP,
 * FLUSH, WRITE_ZEROES, VERIFY, WRITE_UNCORRECTABLE) take none. */
static inline void bdev_io_set_rw(struct bdev_io *io, enum bdev_io_type type, struct iovec *iovs, uint32_t iovcnt,
				  uint64_t offset_blocks, uint64_t num_blocks)
{
	io->type = type;
	io->iovs = iovs;
	io->iovcnt = iovcnt;
	io->offset_blocks = offset_blocks;
	io->num_blocks = num_blocks;
}

/* Sets io to copy num_blocks from src_offset_blocks to offset_blocks of the same bdev. */
static inline void bdev_io_set_copy(struct bdev_io *io, uint64_t src_offset_blocks, uint64_t offset_blocks,
				    uint64_t num_blocks)
{
	bdev_io_set_rw(io, BDEV_IO_COPY, NULL, 0, offset_blocks, num_blocks);
	io->copy.src_offset_blocks = src_offset_blocks;
}

/* --- Metadata --- */

/* A block of a bdev with metadata is data and metadata, one after the other (an "extended block"); bdev_block_size() is
 * the length of both. Part of the metadata may be protection information: 8 or 16 bytes that say whether the block is
 * what was written, and where. The layer checks it in what is written and in what was read, as the bdev's `checks` say;
 * types without data leave blocks that pass the checks. An I/O may want it otherwise. */
enum bdev_dif_flag {
	BDEV_DIF_GUARD = 1, /* check it; these three and BDEV_DIF_STORAGE are enum dif_check */
	BDEV_DIF_APP = 2,
	BDEV_DIF_REF = 4,
	BDEV_DIF_TAGS = 8, /* the checks and the tags count, not the bdev's own; without it: ref is the LBA, app 0 */
	BDEV_DIF_PLAIN =
		16, /* iovs are data only: metadata is made when it is written, checked and left out when it is read */
	BDEV_DIF_MAKE = 32, /* a write's protection information is made, in its iovs, whatever is there */
	BDEV_DIF_STORAGE = 64,
};

/* How one I/O of a bdev with metadata has it; stays until it is set anew (zeroed: as the bdev wants it). ref: the first
 * block's reference tag, made or expected, behind the storage tag (struct dif_tags); app: the application tag, of which
 * the bits of app_mask are checked. */
static inline void bdev_io_set_dif(struct bdev_io *io, uint8_t flags, uint64_t ref, uint16_t app, uint16_t app_mask)
{
	io->dif_flags = flags;
	io->dif_ref = ref;
	io->dif_storage = 0;
	io->dif_app = app;
	io->dif_app_mask = app_mask;
}

/* Submits io; on the thread of io->ch. Every outcome, errors of the arguments included, comes through io->cb,
 * which may run before this returns: io and what embeds it must not be touched afterwards. A callback that
 * submits does not recurse: completions made inside submit are queued and run by the outermost frame.
 *
 * Errors the layer itself makes (all with DNR unless noted):
 *     LBA Out of Range		beyond the end, or no blocks at all
 *     Data SGL Length Invalid		iovs do not add up to num_blocks
 *     Invalid Command Opcode		neither the module nor an emulation does this type
 *     Operation Denied		a type that writes, on a descriptor opened for reading
 *     Namespace is Write Protected	a type that writes, on a read-only bdev
 *     Invalid Namespace or Format	the bdev is being removed (but see bdev_keep_io())
 *     Command Abort Requested		(no DNR) aborted, or queued when a reset came
 *     Command Interrupted		(no DNR) the module was out of resources for too long
 *     Compare Failure			COMPARE, COMPARE_AND_WRITE: the data differs
 *     Overlapping I/O Range		COPY: from and to have blocks in common
 *     End-to-end Guard, Application Tag, Reference Tag, Storage Tag Check Error
 *     the protection information is not what it should be; the log says more
 * What the module lacks is emulated: WRITE_ZEROES by writes, COMPARE by a read, COMPARE_AND_WRITE by both
 * under a lock on its blocks (atomic against all other users of the bdev); COPY by reads and writes (not atomic: some
 * blocks may have been copied when it fails), VERIFY by reads, both by way of data buffers that they wait for; UNMAP
 * and FLUSH succeed without doing anything where the module has no notion of them. WRITE_UNCORRECTABLE only the module
 * can do. */
void bdev_submit(struct bdev_io *io);
/* Takes back what of io has not begun. An I/O has begun when its module has handed it to the device. If nothing has
 * begun, io ends with Command Abort Requested, its callback runs before this returns (if the caller is in no callback
 * of an I/O), and nothing of it is carried out. If a part has begun, that part ends as usual, nothing more begins, and
 * io ends with Command Abort Requested; if all has begun, io goes on. An I/O that is carried out by a module may be
 * held back again later, so the caller repeats this until io has ended. An emulated
 * COMPARE_AND_WRITE whose range lock others hold or wait for ends when it gets the lock, without doing anything. io has
 * been submitted; one that has ended and was not submitted again is left alone. Sends nothing to the device and does
 * not wait. On the thread of io->ch. */
void bdev_io_take_back(struct bdev_io *io);

/* Takes back the I/Os that were submitted through desc on ch (but ABORTs and RESETs), as bdev_io_take_back() does:
 * those of which nothing has begun; with begun_too also the rest of those that have begun in part. Of the former those
 * that a module holds count as begun. Cheap if nothing of the bdev is in flight on the thread. On the thread of ch. */
void bdev_channel_take_back(struct bdev_channel *ch, const struct bdev_desc *desc, bool begun_too);
/* In the callback of an I/O that has ended with an error: whether it was taken back, or its bdev goes, and nothing of
 * it has been or will be carried out. It may be submitted elsewhere although doing it twice would be wrong. False if
 * that is not known. */
bool bdev_io_was_untouched(const struct bdev_io *io);

/* Zero copy: the blocks of some bdevs (malloc) are memory that a transport may send from and receive into.
 *
 * Begins such an I/O. Fill in io as for bdev_submit() (READ or WRITE, ch, desc, offset_blocks, num_blocks), without
 * iovs. Returns the address of the blocks, which are contiguous, and io is in flight. NULL: io is not in flight; use a
 * buffer and bdev_submit(), which reports what is wrong with io, if anything is. Then move the data: into the memory
 * before bdev_submit() (WRITE), or out of the memory before or after it (READ). Point iovs at the memory and
 * bdev_submit() io, which is checked, counted and traced, and not copied. Or end io by bdev_zcopy_put(). On the thread
 * of io->ch. */
void *bdev_zcopy_get(struct bdev_io *io);
/* Ends an I/O between bdev_zcopy_get() and bdev_submit(), without calling io->cb. On the thread of io->ch. */
void bdev_zcopy_put(struct bdev_io *io);

/* --- Registry. Control thread. --- */

/* Starts the layer, after thread_lib_start(). 0 or a negative errno. */
int bdev_init(void);
/* Calls done(arg) when no bdev is being made on a worker thread: at once, or later. The caller sees to it that no other
 * creation begins. */
void bdev_finish_creations(void (*done)(void *arg), void *arg);
/* Stops the layer: unregisters every bdev, and calls done(arg) when all are gone. Users that still have one open must
 * close it at BDEV_EVENT_REMOVE. */
void bdev_fini(void (*done)(void *arg), void *arg);

/* The bdev of that name, alias or UUID (36 characters, upper or lower case), or NULL. */
struct bdev *bdev_find(const char *name);
/* The bdevs one by one, in the order of registration: NULL for the first; NULL: no more. */
struct bdev *bdev_next(const struct bdev *after);

/* The aliases of b one by one: NULL for the first; NULL: no more. `after` must be a pointer that this returned. */
const char *bdev_alias_next(const struct bdev *b, const char *after);

enum bdev_state {
	BDEV_NONE = 0,  /* not in the registry */
	BDEV_EXAMINING, /* in the registry; modules are looking at it */
	BDEV_READY,
	BDEV_UNREGISTERING, /* users were told to close it; some have not yet */
	BDEV_CLOSING,       /* no descriptor left, channels still are */
	BDEV_DESTRUCTING,   /* the module is taking it down */
	BDEV_STATES,
};
/* "ready" ...; "invalid" for a number that is no state. Any thread. */
const char *bdev_state_name(enum bdev_state state);

/* --- Properties. Any thread, while a descriptor is open. --- */

/* The name; valid as long as the bdev. */
const char *bdev_name(const struct bdev *b);
/* What kind of device it is: "Malloc disk". Valid as long as the bdev. */
const char *bdev_product_name(const struct bdev *b);
/* The UUID: 16 bytes, valid as long as the bdev. */
const uint8_t *bdev_uuid(const struct bdev *b);
/* Bytes of a block, metadata included. */
uint32_t bdev_block_size(const struct bdev *b);
/* Bytes of data in a block. */
uint32_t bdev_data_block_size(const struct bdev *b);
/* Bytes that the device writes at once; a multiple of the data in a block. */
uint32_t bdev_physical_block_size(const struct bdev *b);
/* Size in blocks. It may change: BDEV_EVENT_RESIZE. */
uint64_t bdev_num_blocks(const struct bdev *b);
/* Blocks between boundaries that an I/O had better not cross; 0: there are none. */
uint32_t bdev_optimal_io_boundary(const struct bdev *b);
/* Alignment of data buffers in bytes, at least 1. The layer copies data in buffers that are less aligned. */
uint32_t bdev_buf_align(const struct bdev *b);
/* Whether the device has a volatile write cache, so that FLUSH has something to do. */
bool bdev_write_cache(const struct bdev *b);
/* Whether a READ may succeed and leave its buffer as it is, because the bdev stores nothing (null, and what stands on
 * it). Whoever hands the buffer to somebody else clears it before. */
bool bdev_leaves_buffers(const struct bdev *b);
/* Whether the bdev refuses everything that changes it. */
bool bdev_read_only(const struct bdev *b);
/* The state in the registry. Control thread. */
enum bdev_state bdev_get_state(const struct bdev *b);
/* When it entered that state, in ticks of the TSC. Control thread. */
uint64_t bdev_state_ticks(const struct bdev *b);
/* The sizes and alignments that the device prefers for writes and unmaps, in blocks; 0: no preference. */
struct bdev_hints {
	uint32_t preferred_write_granularity, preferred_write_alignment, optimal_write_size;
	uint32_t preferred_unmap_granularity, preferred_unmap_alignment;
};
/* The preferences of b; valid as long as the bdev. */
const struct bdev_hints *bdev_get_hints(const struct bdev *b);
/* The metadata that follows the data of each block. */
struct bdev_md {
	uint16_t size;     /* bytes; 0: nothing */
	uint8_t dif_type;  /* protection information of type 1 to 3; 0: none */
	uint8_t dif_guard; /* its format: enum dif_guard */
	uint8_t checks;    /* BDEV_DIF_GUARD, _APP, _REF: the layer makes these for I/O that does not name its own */
	bool dif_is_first; /* it is the first bytes of the metadata, not the last */
	bool kept_apart;   /* the device at the bottom keeps metadata apart from the data; users see extended blocks, as
			      always, and only bdev_get_bdevs shows it */
	/* What the module does itself; the layer does the rest. */
	bool by_device;       /* its device makes the checks: `checks`, or those that an I/O asks for */
	bool plain_by_device; /* READ and WRITE with BDEV_DIF_PLAIN are for the module: its device makes metadata, and
				 leaves it out */
	bool separate;        /* its device wants metadata apart from the data: io->apart.md */
	/* The storage tag in the protection information (struct dif_format). */
	uint8_t storage_bits;
	uint64_t storage_mask;
};
/* The metadata of b's blocks; valid as long as the bdev. */
const struct bdev_md *bdev_get_md(const struct bdev *b);
/* The NUMA node that its device or memory belongs to; -1: none in particular. */
int bdev_numa_node(const struct bdev *b);
struct json_t;
/* Adds the module's description of b to the JSON object driver_specific, as bdev_get_bdevs shows it. Control thread. */
void bdev_dump_info(const struct bdev *b, struct json_t *driver_specific);
/* Adds what the module counts itself to the JSON object driver_specific, as bdev_get_iostat shows it. Control thread.
 */
void bdev_dump_stat(const struct bdev *b, struct json_t *driver_specific);
/* Whether b does I/O of that type, by its module or by emulation in the layer. */
bool bdev_io_type_supported(const struct bdev *b, enum bdev_io_type type);
/* The memory that bdev_zcopy_get() returns addresses in, for registration with a device; false: the bdev has none. */
bool bdev_zcopy_region(const struct bdev *b, void **addr, size_t *len);
#define BDEV_UUID_STRLEN 37
/* Writes a UUID as text, in lower case: BDEV_UUID_STRLEN bytes with the final NUL. */
void bdev_uuid_format(const uint8_t uuid[16], char *text);

/* An observer of all bdevs. Control thread. */
struct bdev_observer {
	void (*added)(void *ctx, struct bdev *b);   /* b has become READY, or was so when the observer was added */
	void (*removed)(void *ctx, struct bdev *b); /* b is about to be removed */
	void (*resized)(void *ctx, struct bdev *b); /* its number of blocks has changed; NULL: no matter */
	void *ctx;
	LIST_ENTRY(bdev_observer) link;
};
/* Adds an observer, and calls o->added for each bdev that is READY. */
void bdev_observe(struct bdev_observer *o);
/* Takes an observer off the list; also from one of its own functions. */
void bdev_unobserve(struct bdev_observer *o);

/* --- Descriptors. Control thread. --- */

enum bdev_event {
	BDEV_EVENT_REMOVE, /* the user stops submitting, waits for its I/O, puts its channels, and calls bdev_close() */
	BDEV_EVENT_RESIZE, /* bdev_num_blocks() has changed */
};
/* Tells the user of a descriptor; arg as given to bdev_open(). Control thread. */
typedef void (*bdev_event_cb)(struct bdev_desc *desc, enum bdev_event event, void *arg);

/* Opens a bdev by name, alias or UUID. write: the user submits types that change data. event_cb(arg): required; may
 * close the descriptor. 0 and *desc, which is the caller's until bdev_close(); -ENODEV; -EPERM: a claim allows no other
 * writer (the log names who holds it); -EROFS; -ENOMEM. */
int bdev_open(const char *name, bool write, bdev_event_cb event_cb, void *arg, struct bdev_desc **desc);
/* Closes a descriptor, and ends its claim. All channels got from it must have been put, and none of its I/O may be in
 * flight. */
void bdev_close(struct bdev_desc *desc);
/* Lets I/O through desc go on while its bdev is being removed, until desc is closed: for a module that writes what it
 * keeps on a base before it closes it. What comes from its own users has ended then. The I/O waits for no rate
 * limit meanwhile. Before the first I/O. */
void bdev_keep_io(struct bdev_desc *desc);
/* The bdev that the descriptor is open on. Any thread. */
struct bdev *bdev_desc_bdev(const struct bdev_desc *desc);

/* Claims keep others from opening for writing. */
enum bdev_claim_type {
	BDEV_CLAIM_NONE = 0,
	BDEV_CLAIM_EXCL_WRITE,             /* this descriptor writes, nobody else does */
	BDEV_CLAIM_READ_MANY_WRITE_ONE,    /* the same, as other software calls it */
	BDEV_CLAIM_READ_MANY_WRITE_NONE,   /* nobody writes while it is held; many may hold it */
	BDEV_CLAIM_READ_MANY_WRITE_SHARED, /* those that name the same key write */
};
/* "exclusive_write" ...: the words of bdev_get_bdevs. */
const char *bdev_claim_type_name(enum bdev_claim_type type);
/* Claims the bdev of desc. key: for WRITE_SHARED only. owner: the claimant's name, for messages; copied. A claim that
 * writes makes a descriptor that was opened for reading a writing one. 0; -EPERM: another claim or writer is in the way
 * (the log names it); -EROFS; -EINVAL: no such type, or READ_MANY_WRITE_NONE on a writing descriptor. */
int bdev_claim(struct bdev_desc *desc, enum bdev_claim_type type, uint64_t key, const char *owner);
/* Ends the claim of desc. */
void bdev_unclaim(struct bdev_desc *desc);
/* The claim on b; *owner (owner may be NULL): who holds it. BDEV_CLAIM_NONE and NULL if there is none. */
enum bdev_claim_type bdev_get_claim(const struct bdev *b, const char **owner);

/* --- Channels. The thread that uses it. --- */

/* The calling thread's channel of the bdev, made if it has none, with one more reference. NULL and errno on failure. */
struct bdev_channel *bdev_channel_get(struct bdev_desc *desc);
/* Gives a reference back; the last one destroys the channel, on which no I/O may be in flight then. */
void bdev_channel_put(struct bdev_channel *ch);
/* The number of I/Os in flight on this channel, those waiting included. */
uint32_t bdev_channel_qd(const struct bdev_channel *ch);

/* --- Watching and limiting. Control thread. --- */

/* Statistics per kind of I/O. Times are in ticks. Reading the clock twice for every I/O would cost as much as the rest
 * of the I/O. So the layer reads it for samples only: for each I/O that is neither READ nor WRITE; for the first 64
 * READs and the first 64 WRITEs of a channel and for every 127th of them after those; and for the first I/O in each
 * 2^22 ticks (one or two milliseconds), so that the times of a bdev with little to do are exact. For all others the
 * layer knows in which rounds of the reactor they began and ended, and adds the mean difference that the samples had
 * between this and the exact time. Whether a histogram is on, or a tracer attached, makes no difference. */
enum bdev_stat_class {
	BDEV_STAT_OTHER = 0,
	BDEV_STAT_READ,
	BDEV_STAT_WRITE, /* and compare-and-write */
	BDEV_STAT_UNMAP, /* and write zeroes */
	BDEV_STAT_COPY,
	BDEV_STAT_CLASSES,
};
/* The class of a type of I/O. Any thread. */
enum bdev_stat_class bdev_io_stat_class(enum bdev_io_type type);
struct bdev_stat_ops {
	uint64_t ops, bytes;
	/* ticks: the sum of all times, whose mean is right; it never decreases. max_ticks: right to within a round.
	 * min_ticks: the shortest of the exact times; UINT64_MAX when there was none. */
	uint64_t ticks, max_ticks, min_ticks;
	struct latency_correction correction; /* private */
	uint64_t reserved;                    /* an I/O changes one cache line */
};
#define BDEV_STAT_ERRORS 8
struct bdev_stat {
	struct bdev_stat_ops class[BDEV_STAT_CLASSES];
	struct bdev_stat_error {
		uint64_t count;
		uint16_t status; /* without DNR; the last slot stands for all that found no other */
	} errors[BDEV_STAT_ERRORS];
	uint64_t faults;      /* those of the errors for which bdev_status_is_fault() */
	uint64_t queue_depth; /* at the moment */
	uint64_t nomem_waits, qos_waits, child_waits;
	/* The times of READs and WRITEs: as many as their class has ops. Samples only are counted, each for the I/Os
	 * before it. */
	struct latency_histogram reads, writes;
};
/* Collects the sum over all channels that there are and were. Waits for their threads. */
void bdev_get_stat(struct bdev *b, struct bdev_stat *stat);
/* The same for n bdevs, none of them twice: stats[i] is that of list[i]. A thread with channels gets one message for
 * all of them, or one for each 200 us that it takes, and looks only at bdevs of which it has a channel. Nobody is
 * called back meanwhile, so no bdev goes. Control thread. */
void bdev_get_stats(struct bdev *const *list, struct bdev_stat *stats, size_t n);
/* What bdev_get_stat() collects, but without waiting for anybody: what threads do meanwhile may be missing, the
 * histograms may lack the I/Os since the last sample, and least and greatest times are not filled in. */
void bdev_peek_stat(struct bdev *b, struct bdev_stat *stat);
enum bdev_stat_reset {
	BDEV_STAT_RESET_NONE,
	BDEV_STAT_RESET_ALL,
	BDEV_STAT_RESET_MAXMIN,
	BDEV_STAT_RESET_ERROR,
};
/* Sets statistics back to zero: all, the largest and smallest times, or the errors; with all and the errors also what
 * the module counts itself. With NONE it does nothing. */
void bdev_reset_stat(struct bdev *b, enum bdev_stat_reset what);
/* Calls fn(arg, thread id, stat) for each channel, on the channel's thread; returns after the last. */
void bdev_for_each_channel_stat(struct bdev *b, void (*fn)(void *arg, uint64_t thread_id, const struct bdev_stat *stat),
				void *arg);

/* Queue depth by sampling; period 0 stops. */
struct bdev_qd_sampling {
	uint64_t period_us;
	uint64_t queue_depth; /* at the last sample */
	uint64_t io_time_us;  /* time during which something was in flight */
	uint64_t weighted_io_time_us;
};
/* Samples the queue depth every period_us microseconds; 0 stops. */
void bdev_set_qd_sampling_period(struct bdev *b, uint64_t period_us);
/* What the samples were since sampling was started. */
void bdev_get_qd_sampling(const struct bdev *b, struct bdev_qd_sampling *s);

/* Latency histogram: log-linear, 2^granularity buckets per power of two of ticks. type BDEV_IO_INVALID: all
 * types. min_ns, max_ns: the times that matter (0: no bound); shorter ones get coarser buckets, longer ones share the
 * last one. */
struct bdev_histogram_opts {
	enum bdev_io_type type;
	uint8_t granularity; /* 0: the default, 7; at most 9 */
	uint64_t min_ns, max_ns;
};
struct bdev_histogram {
	struct bdev_histogram_opts opts;
	uint8_t shift;                /* the granularity in use */
	uint8_t min_range, max_range; /* powers of two of ticks beyond the granularity; see bdev_histogram.c */
	uint32_t num_buckets;
	uint64_t *buckets;
};
/* Starts a histogram, or starts it anew with other options. 0; -EINVAL: options out of range; -ENOMEM. */
int bdev_enable_histogram(struct bdev *b, const struct bdev_histogram_opts *opts);
/* Stops the histogram and forgets it. */
void bdev_disable_histogram(struct bdev *b);
/* The sum over all channels, to be freed with bdev_histogram_free(). NULL when it is off. */
struct bdev_histogram *bdev_get_histogram(struct bdev *b);
/* Frees what bdev_get_histogram() returned; h may be NULL. */
void bdev_histogram_free(struct bdev_histogram *h);
/* The ticks at which bucket i begins. */
uint64_t bdev_histogram_start(const struct bdev_histogram *h, uint32_t i);
/* The settings in use, or NULL when it is off. */
const struct bdev_histogram_opts *bdev_histogram_settings(const struct bdev *b);

/* Limits the rate of a bdev, over all channels together, at once, also for I/O that waits already. 0 or -ENOMEM. */
int bdev_set_qos_limits(struct bdev *b, const struct rate_limits *limits);
/* The limits in force. */
void bdev_get_qos_limits(const struct bdev *b, struct rate_limits *limits);

#define BDEV_INFLIGHT_TEXT 120
/* One I/O in flight, as bdev_for_each_inflight() shows it. */
struct bdev_inflight {
	const struct bdev_io *io; /* an identity, the trace's object id; not to be read */
	const void *ctx;          /* its cb_arg */
	uint64_t thread_id;
	uint64_t age_ticks; /* precise to a round */
	uint64_t offset_blocks, num_blocks;
	enum bdev_io_type type;
	enum bdev_io_state state;
	uint32_t children; /* of a split or emulated one: child I/Os with the module; of one that the module carries out
			      by child I/Os: what the I/O waits for */
	/* With the module: what it waits for other than the device; in WAIT_QOS: whose rate limit; "": nothing. */
	char waits_for[BDEV_INFLIGHT_TEXT];
};
/* Calls fn(arg, one) for each I/O in flight, the oldest first in each channel, on the channel's thread; returns after
 * the last. fn returning false ends the walk of a channel. */
void bdev_for_each_inflight(struct bdev *b, bool (*fn)(void *arg, const struct bdev_inflight *one), void *arg);

/* The timeout_us that is set; 0: none. */
uint64_t bdev_get_timeout(const struct bdev *b);
/* Calls fn(arg, b, one) on the control thread for each I/O that has been in flight for timeout_us, and again
 * each time that timeout_us more has passed. A line in the log names the I/O, too. timeout_us 0 stops. A bdev has one
 * setting: the last one counts. */
void bdev_set_timeout(struct bdev *b, uint64_t timeout_us,
		      void (*fn)(void *arg, struct bdev *b, const struct bdev_inflight *one), void *arg);

/* An I/O that failed for what the device or the path to it did; not one that was wrong itself, compared unequal, or was
 * aborted. */
struct bdev_error {
	char bdev[128];
	const struct bdev_io *io; /* an identity, as in struct bdev_inflight */
	const void *ctx;
	uint64_t thread_id, submit_ticks, done_ticks;
	uint64_t offset_blocks, num_blocks;
	enum bdev_io_type type;
	uint16_t status;
};
/* Has the next such error of any bdev reported, by one call of fn on the control thread; those after it are not, until
 * this is called again. So errors, however many there are, cost who has them nothing more than before. NULL: none is
 * reported. Control thread. */
void bdev_report_next_error(void (*fn)(const struct bdev_error *e));
/* Whether a status is of that kind. Pure. */
bool bdev_status_is_fault(uint16_t status);

/* Process-wide options. */
struct bdev_opts {
	bool auto_examine;         /* modules look at every new bdev by themselves; otherwise at bdev_examine() */
	uint32_t nomem_timeout_ms; /* how long an I/O may wait for a module's resources */
	uint32_t children;         /* child I/Os of split I/O that a channel may have with its module at a time */
	/* Buffers for bouncing and comparing that a thread keeps at hand; of threads that have none yet. */
	uint32_t iobuf_small_cache_size, iobuf_large_cache_size;
};
/* The options in force. */
void bdev_get_opts(struct bdev_opts *opts);
/* Sets them. 0; -EINVAL: a value is out of range; -EBUSY: `children` cannot change once a bdev is registered. */
int bdev_set_opts(const struct bdev_opts *opts);
/* Has the modules look at a bdev, as they do by themselves with auto_examine. 0 or -ENODEV. */
int bdev_examine(const char *name);
/* Who waits until modules have looked at the bdevs that there are. The caller's until done is called. */
struct bdev_examine_waiter {
	void (*done)(void *arg);
	void *arg;
	STAILQ_ENTRY(bdev_examine_waiter) link; /* private */
};
/* Calls w->done(w->arg) when no module is looking at a bdev: at once, or later. */
void bdev_wait_for_examine(struct bdev_examine_waiter *w);

#endif
