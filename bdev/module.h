/* SPDX-License-Identifier: BSD-3-Clause */
/* Block devices, as their modules make them. A module registers itself (BDEV_MODULE_REGISTER), fills in a struct bdev,
 * which it embeds in a structure of its own, and a table of functions, and calls bdev_register(). A module on top of
 * other bdevs finds the rest in bdev/vbdev/vbdev.h.
 *
 * The layer calls ops.submit for each I/O, and guarantees:
 *  - the type is one of those set in io_types, the range lies within the bdev, iovs hold exactly that range, and the
 *    descriptor allows the type;
 *  - the I/O keeps the bdev's limits: boundary, max_rw_blocks, max_segments, max_segment_bytes and buf_align. The layer
 *    has split the I/O, and copied its data into aligned memory, where that was necessary;
 *  - the call is on the channel's thread, and bdev_io_ctx(io) belongs to the module until the module ends the I/O.
 * The module ends each I/O by exactly one bdev_io_complete*(), or gives it back by bdev_io_nomem(), on the same thread,
 * in submit or later. */
#ifndef BDEV_BDEV_MODULE_H
#define BDEV_BDEV_MODULE_H

#include <nvme/types.h>
#include "bdev/bdev.h"
#include "thread/thread.h"

struct json_t;

/* NVMe statuses as in bdev_io.status. */
#define BDEV_STATUS(sct_, sc_) ((uint16_t)(((sct_) << NVME_SCT_SHIFT) | (sc_)))
#define BDEV_STATUS_MASK       ((uint16_t)0x7ff) /* SCT and SC */

/* A number that a module has of its own, for metrics. */
struct bdev_module_figure {
	const char *name;         /* of the metric, as "varve_..."; stays */
	const char *help;         /* a sentence */
	bool grows;               /* it only grows */
	const char *label, *what; /* a label and its value; NULL: none */
	uint64_t value;
};
typedef void (*bdev_module_figure_fn)(void *arg, const struct bdev_module_figure *figure);

/* A kind of bdev. */
struct bdev_module {
	const char *name;
	size_t io_ctx_size; /* bytes of context behind each bdev_io */
	/* The same, if it is known only when all constructors have run; or NULL. */
	size_t (*io_ctx_room)(void);
	/* Looks at a bdev that has been registered, and may register others on top of it. Or NULL. Control thread. */
	void (*examine)(struct bdev *b);
	/* Whether that goes on after examine has returned. When it has ended, the module calls bdev_module_is_idle().
	 * NULL: never. Control thread. */
	bool (*is_examining)(void);
	/* The layer is about to stop: the module makes no more bdevs, and closes the devices that its bdevs stand on.
	 * Or NULL. Control thread. */
	void (*stop)(void);
	/* Whether a bdev of the module is being made on a worker thread, for a call that has not been answered. When
	 * that has ended, the module calls bdev_module_is_idle(). NULL: never. Control thread. */
	bool (*is_creating)(void);
	/* Whether the module has closed them. The layer waits until it has; when that becomes true later, the module
	 * calls bdev_module_is_idle(). NULL: nothing to wait for. Control thread. */
	bool (*is_idle)(void);
	/* Calls fn(arg, ...) for each of the module's figures; those of one name follow each other. Or NULL. Control
	 * thread. */
	void (*figures)(bdev_module_figure_fn fn, void *arg);
	/* Frees what the module still holds when all bdevs are gone; or NULL. Control thread. */
	void (*fini)(void);
	SLIST_ENTRY(bdev_module) link;
};
/* Once per module, at file scope: makes bdev_io_size() count it before main(). */
#define BDEV_MODULE_REGISTER(module_)                                                                                  \
	__attribute__((constructor)) static void bdev_module_register_##module_(void)                                  \
	{                                                                                                              \
		bdev_module_register(&module_);                                                                        \
	}
/* Adds a module; BDEV_MODULE_REGISTER calls it. Before main(). */
void bdev_module_register(struct bdev_module *m);
/* The modules that this program was built with, by name, one after the other. after NULL: the first; NULL: no more. */
const struct bdev_module *bdev_module_next(const struct bdev_module *after);
/* Tells the layer that a module's is_idle() has become true, or is_creating() or is_examining() false. Control thread.
 */
void bdev_module_is_idle(void);

struct bdev_child_ops;

#define BDEV_BASES_MAX 4

/* What a bdev does. A function whose comment says so may be NULL. */
struct bdev_ops {
	/* Carries out an I/O; the hot path. channel: the module's context of the I/O's channel. */
	void (*submit)(void *channel, struct bdev_io *io);
	/* For modules that gather I/Os and hand them over together: called once after submit has called
	 * bdev_channel_plug(), before the outermost completion frame is left. Otherwise NULL. Channel's thread. */
	void (*unplug)(void *channel);
	/* Makes the module's part of a thread's channel, channel_size zeroed bytes, on that thread. 0 or a negative
	 * errno. Or NULL. channel_destroy undoes it, when no I/O of the channel is in flight. */
	int (*channel_create)(struct bdev *b, void *channel);
	void (*channel_destroy)(struct bdev *b, void *channel);
	size_t channel_size;
	/* A reset has begun: the module completes, with Command Abort Requested, each I/O of this channel that it is
	 * itself holding back. NULL: it holds none back. Channel's thread. Afterwards the layer submits the RESET on
	 * one channel, if io_types has it, or else waits until all I/O in flight has ended. */
	void (*reset_channel)(struct bdev *b, void *channel);
	/* Ends an I/O that the module holds, with Command Abort Requested, if it has not been handed to the device; a
	 * module on other bdevs calls bdev_child_take_back() for it. It neither sends commands nor waits. NULL: every
	 * I/O that the module has is with the device. Channel's thread. */
	void (*take_back)(void *channel, struct bdev_io *io);
	/* Takes the device down, when no channel and no descriptor is left. The module calls bdev_destruct_done(b), now
	 * or later, and may free b after that. Control thread. */
	void (*destruct)(struct bdev *b);
	/* The address of the blocks, contiguous, in memory of the bdev's own that transports may read (type READ) or
	 * write (WRITE) (bdev_zcopy_get()); or NULL. Any thread. NULL: never. */
	void *(*zcopy_addr)(struct bdev *b, enum bdev_io_type type, uint64_t offset_blocks, uint64_t num_blocks);
	/* Fills in the bdevs that b needs for its I/O, and returns how many they are; -1: they are more, or one of
	 * them is not there. bdev_bases_none() (bdev/module_util.h): none. NULL: that by vbdev_open(), or it cannot be
	 * told. Control thread. */
	int (*bases)(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX]);
	/* Of modules that make several child I/Os for one I/O: bdev/vbdev/child.h. NULL otherwise. */
	const struct bdev_child_ops *child_ops;
	/* Writes what an I/O that the module has not ended waits for, other than the device, to text, which is ""
	 * before; or NULL. The I/O's thread. */
	void (*describe_io)(struct bdev_io *io, char *text, size_t size);
	/* Adds the module's description of b to driver_specific of bdev_get_bdevs; or NULL. Control thread. */
	void (*dump_info)(const struct bdev *b, struct json_t *driver_specific);
	/* Adds what the module counts itself to driver_specific of bdev_get_iostat, and sets it back to zero; or NULL.
	 * Control thread. */
	void (*dump_stat)(const struct bdev *b, struct json_t *driver_specific);
	void (*reset_stat)(struct bdev *b);
};

struct bdev_core;

/* A block device, embedded in the module's own structure, which is zeroed and aligned to 64 bytes. The module fills it
 * in before bdev_register(), but for the fields that are private or that bdev_register() sets. */
struct bdev {
	/* The fields that every I/O reads: one cache line, written by the control thread only. */
	uint64_t num_blocks;          /* bdev_resize() changes it */
	uint32_t block_size;          /* bytes, metadata included */
	uint32_t io_types;            /* 1u << enum bdev_io_type, for each type that the module does itself */
	uint32_t max_rw_blocks;       /* per READ, WRITE, COMPARE; 0: no limit */
	uint32_t optimal_io_boundary; /* blocks; a power of two is cheaper; 0: none */
	uint32_t max_segments;        /* iovs; 0: no limit */
	uint32_t max_segment_bytes;   /* 0: no limit */
	uint32_t buf_align;           /* of each iov's address and length, bytes, a power of two up to 4096; 0: any */
	uint16_t trace_owner;         /* set by bdev_register() */
	bool split_on_boundary;       /* no READ or WRITE may cross optimal_io_boundary */
	bool read_only;
	bool limited; /* private: any of the limits is set */

	const char *name; /* the module's memory until destruct; [1, 255] bytes of printable ASCII */
	const char *product_name;
	const struct bdev_ops *ops;
	const struct bdev_module *module;
	void *ctx;
	uint8_t uuid[16];             /* all zero: bdev_register() makes a random one */
	bool has_random_uuid;         /* set by bdev_register(): it has another one when it is made again */
	uint32_t physical_block_size; /* bytes; 0: block_size */
	uint64_t max_unmap_blocks;    /* per UNMAP, WRITE_ZEROES; 0: no limit */
	/* Per I/O of those types that the module does itself; 0: no limit. */
	uint32_t max_copy_blocks, max_verify_blocks, max_uncorrectable_blocks;
	int numa_node; /* -1: none in particular (0 is a node) */
	bool write_cache;
	bool in_memory; /* what is written is gone when the process ends, unless another one takes over from it */
	uint64_t hand_over_bytes; /* how much memory is copied then, while nobody is served */
	bool leaves_buffers;      /* READ succeeds and leaves iovs as they are: bdev_leaves_buffers() */
	/* No block has ever been written when it is registered, so that nothing can be found on it. The layer clears
	 * it when somebody opens it for writing, and in bdev_examine(). */
	bool is_blank;
	struct bdev_hints hints;
	struct bdev_md md;  /* a module that does WRITE_ZEROES or UNMAP itself uses bdev_dif_put_*() for its blocks */
	void *zcopy_memory; /* all that ops->zcopy_addr returns lies in it */
	size_t zcopy_memory_len;

	struct bdev_core *core; /* private to the layer */
};

/* --- Registration. Control thread. --- */

/* Puts b into the registry, and has the modules examine it. 0; -EEXIST: the name or UUID is taken; -EINVAL: the log
 * says which field; -ENOMEM. */
int bdev_register(struct bdev *b);
/* Takes b out again. Users get BDEV_EVENT_REMOVE, and new I/O fails. When the last descriptor and channel are gone,
 * ops.destruct is called, and after bdev_destruct_done() cb(arg, 0), on the control thread. cb may be NULL. If b is
 * being removed already and nobody has given a cb, as when its base is removed, cb is called at the end of that
 * removal. cb(arg, -EBUSY), before this returns: another cb is called then. */
void bdev_unregister(struct bdev *b, void (*cb)(void *arg, int rc), void *arg);
/* Ends the removal of b: calls the callback of bdev_unregister(). From ops.destruct or later; b belongs to the module
 * afterwards. */
void bdev_destruct_done(struct bdev *b);
/* Gives b another name. 0; -EEXIST: the name is taken; -ENOMEM. */
int bdev_alias_add(struct bdev *b, const char *alias);
/* Takes it away. 0; -ENOENT: b has no such alias. */
int bdev_alias_remove(struct bdev *b, const char *alias);
/* Changes the size of b; its users get BDEV_EVENT_RESIZE. The module itself must fail I/O in flight beyond a smaller
 * end. 0; -EINVAL: 0 blocks, or more than can be addressed. */
int bdev_resize(struct bdev *b, uint64_t num_blocks);
/* Reads a UUID from text of 36 characters. 0 and uuid; or -EINVAL. Any thread. */
int bdev_uuid_parse(const char *text, uint8_t uuid[16]);

/* Calls fn(b, module's channel context, arg) for each channel of b, one after the other, on the channel's thread;
 * returns after the last. fn may complete and submit I/O. Control thread. */
void bdev_visit_module_channels(struct bdev *b, void (*fn)(struct bdev *b, void *channel, void *arg), void *arg);

/* --- I/O. The channel's thread. --- */

/* The module's context of an I/O: io_ctx_size bytes, which are not zeroed. */
static inline void *bdev_io_ctx(struct bdev_io *io)
{
	return io + 1;
}
/* The I/O that a context belongs to. */
static inline struct bdev_io *bdev_io_from_ctx(void *ctx)
{
	return (struct bdev_io *)ctx - 1;
}
/* The bdev of a channel. */
struct bdev *bdev_channel_bdev(const struct bdev_channel *ch);
/* The module's context of a channel. */
void *bdev_channel_ctx(struct bdev_channel *ch);

/* Has ops->unplug called before the outermost completion frame is left, so that the I/Os submitted in the frame can be
 * handed over together. From ops.submit. The module may use the `queue` link of each I/O that it has. */
void bdev_channel_plug(struct bdev_channel *ch);

/* Ends io with an NVMe status, in submit or later. The callback of io runs when the outermost completion frame on this
 * thread is left; at once if there is no frame. */
void bdev_io_complete(struct bdev_io *io, uint16_t status);
/* The same, with completion dword 0. */
void bdev_io_complete_cdw0(struct bdev_io *io, uint16_t status, uint32_t cdw0);
/* The same, with the status that bdev_status_from_errno() has for a negative errno. */
void bdev_io_complete_errno(struct bdev_io *io, int rc);
/* The NVMe status for a negative errno of a file or block device; 0 for 0. Any thread. */
uint16_t bdev_status_from_errno(int rc);
/* The negative errno for an NVMe status, for the control path; 0 for 0, and -EIO where no other one fits. Any thread.
 */
int bdev_status_to_errno(uint16_t status);
/* Gives io back, because the module has no room for it now. The layer submits it again when another I/O of the channel
 * has ended, or a millisecond later; after nomem_timeout_ms io fails. */
void bdev_io_nomem(struct bdev_io *io);
/* The same, from ops.submit, if the module has not begun io in this call: io may be taken back then as one of which
 * nothing has been carried out. */
void bdev_io_refuse(struct bdev_io *io);
/* Ends an I/O of which the module has carried out nothing, and which others may therefore carry out:
 * bdev_io_was_untouched(). */
void bdev_io_complete_untouched(struct bdev_io *io, uint16_t status);
/* Ends io as an I/O on another bdev has ended that was all there was to carry out of it: with its status and dword 0,
 * and untouched if that was. */
void bdev_io_complete_as(struct bdev_io *io, const struct bdev_io *other);

/* --- For modules that keep metadata --- */

/* Writes zeroes to io's blocks in memory, with the protection information that io asks for. */
void bdev_dif_put_zeroes(const struct bdev_io *io, void *blocks);
/* Makes blocks in memory look as if they had never been written: zeroes, and protection information of ones, which says
 * that the block is not to be checked (NVM 5.2). */
void bdev_dif_put_unwritten(const struct bdev *b, void *blocks, uint64_t num_blocks);
/* As bdev_dif_put_zeroes(), for a module that keeps the data of its blocks in one place, and their metadata in another.
 */
void bdev_dif_put_zeroes_apart(const struct bdev_io *io, void *data, void *md);
/* As bdev_dif_put_unwritten(), for such a module. */
void bdev_dif_put_unwritten_apart(const struct bdev *b, void *data, void *md, uint64_t num_blocks);
/* The dif_ref of an I/O that does not name its own. */
uint64_t bdev_dif_default_ref(const struct bdev_md *md, uint64_t lba);
/* The dif_ref of the part of an I/O that begins `blocks` behind the first one, whose dif_ref is ref. */
uint64_t bdev_dif_ref_after(const struct bdev_md *md, uint64_t ref, uint64_t blocks);
/* Makes protection information for the blocks in io's iovs: for a module that stores none. */
void bdev_dif_make(const struct bdev_io *io);

#endif
