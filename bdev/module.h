/* SPDX-License-Identifier: BSD-3-Clause */
/* Block devices, as their modules make them. A module is one file: it registers itself, fills in a struct
 * bdev (embedded in its own) and an ops table, and bdev_register()s it.
 *
 * What a module may count on, per I/O it is given:
 *  - the range lies within the bdev, iovs add up to it, it is of a type set in io_types, the descriptor
 * allows it;
 *  - it fits boundary, max_rw_blocks, max_segments, max_segment_bytes and buf_align (the layer split it and
 * copied it into aligned memory where it had to);
 *  - it is on the channel's thread, and bdev_io_ctx(io) is the module's until it completes it.
 * What it owes: exactly one bdev_io_complete*() or bdev_io_nomem() per I/O, on that thread, inside submit or
 * later. */
#ifndef BDEV_BDEV_MODULE_H
#define BDEV_BDEV_MODULE_H

#include <nvme/types.h>
#include "bdev/bdev.h"
#include "thread/thread.h"

struct json_t;

/* NVMe statuses as in bdev_io.status. */
#define BDEV_STATUS(sct_, sc_) ((uint16_t)(((sct_) << NVME_SCT_SHIFT) | (sc_)))
#define BDEV_STATUS_MASK       ((uint16_t)0x7ff) /* SCT and SC */

struct bdev_module {
	const char *name;
	size_t io_ctx_size; /* bytes of context behind each bdev_io */
	/* The same for those who know it only when all constructors have run; or NULL. */
	size_t (*io_ctx_room)(void);
	/* Looks at a bdev that came: may register others on top of it. Control thread; or NULL. */
	void (*examine)(struct bdev *b);
	/* The layer is about to stop: the module makes no more bdevs, and closes the devices that its bdevs stand on.
	 * The layer goes on when is_idle() is true; the module calls bdev_module_is_idle() when it becomes so. Both or
	 * neither; NULL. Control thread. */
	void (*stop)(void);
	bool (*is_idle)(void);
	/* Frees what is left when all bdevs are gone; or NULL. */
	void (*fini)(void);
	SLIST_ENTRY(bdev_module) link;
};
/* Once per module, at file scope: makes bdev_io_size() count it before main(). */
#define BDEV_MODULE_REGISTER(module_)                                                                                  \
	__attribute__((constructor)) static void bdev_module_register_##module_(void)                                  \
	{                                                                                                              \
		bdev_module_register(&module_);                                                                        \
	}
void bdev_module_register(struct bdev_module *m);
/* The modules that this program was built with, by name, one after the other. after NULL: the first; NULL: no more. */
const struct bdev_module *bdev_module_next(const struct bdev_module *after);
/* Control thread: a module's is_idle() has become true. */
void bdev_module_is_idle(void);

struct bdev_child_ops;

struct bdev_ops {
	/* The hot path. channel: the module's context of the I/O's channel. */
	void (*submit)(void *channel, struct bdev_io *io);
	/* For modules that gather what they are given: runs once, before the outermost frame is left, after submit
	 * called bdev_channel_plug(). On the channel's thread; NULL otherwise. */
	void (*unplug)(void *channel);
	/* A thread's channel comes and goes; channel is channel_size zeroed bytes. On that thread; create:
	 * negative errno. NULL where there is nothing to do. */
	int (*channel_create)(struct bdev *b, void *channel);
	void (*channel_destroy)(struct bdev *b, void *channel);
	size_t channel_size;
	/* A reset: complete now, with Command Abort Requested, every I/O of this channel that the module
	 * itself is holding back. On the channel's thread; NULL if it holds none. Afterwards the RESET is
	 * submitted on one channel, where io_types has it; otherwise the layer waits for what is in flight.
	 */
	void (*reset_channel)(struct bdev *b, void *channel);
	/* Takes the device down; no channel or descriptor is left. Ends, now or later, in bdev_destruct_done(b), after
	 * which b's memory is the module's to free. Control thread. */
	void (*destruct)(struct bdev *b);
	/* The address of the blocks, contiguous, in memory of the bdev's own that transports may read and write
	 * (bdev_zcopy_get()); or NULL. Any thread. NULL: never. */
	void *(*zcopy_addr)(struct bdev *b, uint64_t offset_blocks, uint64_t num_blocks);
	/* Of modules that make several child I/Os for one I/O: bdev/vbdev/child.h. NULL otherwise. */
	const struct bdev_child_ops *child_ops;
	/* Adds to driver_specific of bdev_get_bdevs; or NULL. Control thread. */
	void (*dump_info)(const struct bdev *b, struct json_t *driver_specific);
};

struct bdev_core;

/* Embedded in the module's own structure, zeroed. The module fills in the first two groups before
 * bdev_register(). */
struct bdev {
	/* What every I/O reads: one cache line, written only on the control thread. */
	uint64_t num_blocks;          /* bdev_resize() changes it */
	uint32_t block_size;          /* bytes, metadata included */
	uint32_t io_types;            /* 1u << enum bdev_io_type, what the module does itself */
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
	uint32_t physical_block_size; /* bytes; 0: block_size */
	uint64_t max_unmap_blocks;    /* per UNMAP, WRITE_ZEROES; 0: no limit */
	/* Of the module's own; 0: no limit. */
	uint32_t max_copy_blocks, max_verify_blocks, max_uncorrectable_blocks;
	int numa_node; /* -1: none in particular (0 is a node) */
	bool write_cache;
	struct bdev_hints hints;
	struct bdev_md md;  /* of WRITE_ZEROES and UNMAP, what the module does it does with the functions below */
	void *zcopy_memory; /* all that ops->zcopy_addr returns lies in it */
	size_t zcopy_memory_len;

	struct bdev_core *core; /* private to the layer */
};

/* --- Registration. Control thread. --- */

/* Puts b into the registry and lets modules examine it. 0, -EEXIST (name or UUID taken), -EINVAL (the log
 * says which field), -ENOMEM. */
int bdev_register(struct bdev *b);
/* Takes it out again: users get BDEV_EVENT_REMOVE, new I/O fails; when the last descriptor and channel are
 * gone the module destructs it and cb(arg, 0) runs, on the control thread, perhaps before this returns. cb
 * may be NULL. -EBUSY to cb: it is on its way already. */
void bdev_unregister(struct bdev *b, void (*cb)(void *arg, int rc), void *arg);
/* Ends the removal: runs its callback. */
void bdev_destruct_done(struct bdev *b);
/* 0, -EEXIST, -ENOMEM; -ENOENT. */
int bdev_alias_add(struct bdev *b, const char *alias);
int bdev_alias_remove(struct bdev *b, const char *alias);
/* New size; descriptors get BDEV_EVENT_RESIZE. I/O in flight beyond a smaller end is the module's to fail. 0,
 * or -EINVAL for 0 blocks. */
int bdev_resize(struct bdev *b, uint64_t num_blocks);
/* 0 and 16 bytes, or -EINVAL. */
int bdev_uuid_parse(const char *text, uint8_t uuid[16]);

/* Control thread: runs fn(b, module's channel context, arg) on the thread of each channel, one after the other, and
 * waits. I/O may be completed and submitted there. */
void bdev_visit_module_channels(struct bdev *b, void (*fn)(struct bdev *b, void *channel, void *arg), void *arg);

/* --- I/O. The channel's thread. --- */

/* The module's own part of an I/O: io_ctx_size bytes, whatever the last module left in them. */
static inline void *bdev_io_ctx(struct bdev_io *io)
{
	return io + 1;
}
static inline struct bdev_io *bdev_io_from_ctx(void *ctx)
{
	return (struct bdev_io *)ctx - 1;
}
struct bdev *bdev_channel_bdev(const struct bdev_channel *ch);
/* The module's context of a channel, and back. */
void *bdev_channel_ctx(struct bdev_channel *ch);

/* From submit: has ops->unplug run when the outermost frame is about to be left, so that what was submitted in it can
 * be handed over in one go. While a module has an I/O, its `queue` link is the module's. */
void bdev_channel_plug(struct bdev_channel *ch);

/* Ends io with an NVMe status; inside submit or later. The callback runs when the outermost frame of the
 * layer on this thread is left, at once if there is none. */
void bdev_io_complete(struct bdev_io *io, uint16_t status);
/* The same with completion dword 0. */
void bdev_io_complete_cdw0(struct bdev_io *io, uint16_t status, uint32_t cdw0);
/* The same with a negative errno turned into a status (bdev_status_from_errno). */
void bdev_io_complete_errno(struct bdev_io *io, int rc);
uint16_t bdev_status_from_errno(int rc);
/* The negative errno for an NVMe status, for the control path; 0 for 0, and -EIO where no other one fits. Any thread.
 */
int bdev_status_to_errno(uint16_t status);
/* The module has no room for io now: the layer submits it again when one of the channel's completes, or a
 * moment later. */
void bdev_io_nomem(struct bdev_io *io);

/* For modules that keep metadata. Blocks of zeroes with protection information as io wants it; blocks that were never
 * written, or unmapped: zeroes, whose protection information is all ones, as that of deallocated blocks, which says not
 * to check them; and protection information for what io has read, where nothing was stored. */
void bdev_dif_put_zeroes(const struct bdev_io *io, void *blocks);
void bdev_dif_put_unwritten(const struct bdev *b, void *blocks, uint64_t num_blocks);
void bdev_dif_make(const struct bdev_io *io);

#endif
