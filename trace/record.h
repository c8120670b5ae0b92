/* SPDX-License-Identifier: BSD-3-Clause */
/* The recorder's inline half: from each line of tracepoints.def an id, a mask bit, and a typed function that
 * stores one event into the calling thread's ring. Private to trace.h, which says how to use it; trace_file.h says in
 * which order the stores happen, and why.
 *
 * All offsets and sizes are constants of the tracepoint, so a record compiles to the TSC read and a handful
 * of stores: per slot a stamp, the entry's words and its tsc; then the tracepoint's counter and the ring's index. It
 * has no lock, call or division. */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

#include <stdbool.h>
#include <string.h>

#include "trace/trace_file.h"
#include "util/compiler.h"
#include "util/for_args.h"
#include "util/ticks.h"

/* Numbers from the .def file */
enum trace_group {
#define TRACE_GROUP(id_, number_, ...) TRACE_GROUP_##id_ = number_,
#include "trace/tracepoints.def"
};

enum trace_owner_type {
#define TRACE_OWNER(id_, number_, ...) TRACE_OWNER_##id_ = number_,
#include "trace/tracepoints.def"
};

enum trace_object_type {
#define TRACE_OBJECT(id_, number_, ...) TRACE_OBJECT_##id_ = number_,
#include "trace/tracepoints.def"
};

enum trace_tpoint_id {
#define TRACE_TPOINT(group_, number_, name_, ...)                                                                      \
	TRACE_TPOINT_##name_ = TRACE_GROUP_##group_ * TRACE_TPOINTS_PER_GROUP + number_,
#include "trace/tracepoints.def"
};

/* One word per group, bit n for its tracepoint n. Written by the functions of trace.h under a lock, read by all threads
 * without one (relaxed). */
extern uint64_t trace_group_mask[TRACE_NUM_GROUPS];

/* The calling thread's ring; history is NULL if it has none. In the executable's TLS, so that finding it is one load
 * relative to %fs. */
struct trace_ring {
	struct trace_file_history *history;
	uint64_t *stamps;
	uint64_t index_mask; /* num_entries - 1; not taken from the file, where a fault could change it */
	struct trace_file_slot_loss *loss;
};
extern __thread struct trace_ring trace_ring __attribute__((tls_model("initial-exec")));

/* Counts an event of a thread without a ring. */
COLD void trace_record_no_slot(void);

/* The event being written: its slots are first .. first + n - 1, modulo the ring. */
struct trace_open_event {
	struct trace_file_history *history;
	uint64_t *stamps;
	uint64_t index_mask;
	uint64_t first;
	uint64_t tsc;
};

/* How many slots an event with so many bytes of arguments takes. */
#define TRACE_SLOTS(arg_bytes)                                                                                         \
	((arg_bytes) <= TRACE_ENTRY_ARG_BYTES                                                                          \
		 ? 1u                                                                                                  \
		 : 1u + ((arg_bytes)-TRACE_ENTRY_ARG_BYTES + TRACE_CONTINUATION_ARG_BYTES - 1) /                       \
				   TRACE_CONTINUATION_ARG_BYTES)

static ALWAYS_INLINE struct trace_file_entry *trace_event_slot(const struct trace_open_event *e, unsigned k)
{
	return &e->history->entries[(e->first + k) & e->index_mask];
}

static ALWAYS_INLINE void trace_event_begin_slot(const struct trace_open_event *e, unsigned k)
{
	/* Pairs with the reader's acquire: see (a) in trace_file.h. */
	__atomic_store_n(&e->stamps[(e->first + k) & e->index_mask], TRACE_FILE_STAMP(e->tsc, e->first + k),
			 __ATOMIC_RELAXED);
}

static ALWAYS_INLINE void trace_event_end_slot(const struct trace_open_event *e, unsigned k)
{
	__atomic_store_n(&trace_event_slot(e, k)->tsc, e->tsc, __ATOMIC_RELEASE);
}

/* Names the first slots, so that the loop over them is unrolled at every level of optimization that the build uses. */
#define TRACE_EACH_SLOT(fn_, e_, from_, n_)                                                                            \
	do {                                                                                                           \
		if ((from_) < 1) {                                                                                     \
			fn_(e_, 0);                                                                                    \
		}                                                                                                      \
		if ((n_) > 1) {                                                                                        \
			fn_(e_, 1);                                                                                    \
		}                                                                                                      \
		if ((n_) > 2) {                                                                                        \
			fn_(e_, 2);                                                                                    \
		}                                                                                                      \
		for (unsigned k_ = 3; k_ < (n_); k_++) {                                                               \
			fn_(e_, k_);                                                                                   \
		}                                                                                                      \
	} while (0)

static ALWAYS_INLINE void trace_event_mark_continuation(const struct trace_open_event *e, unsigned k)
{
	trace_event_slot(e, k)->tpoint_id = TRACE_TPOINT_ID_CONTINUATION;
}

static ALWAYS_INLINE bool trace_event_begin(struct trace_open_event *e, unsigned slots, uint16_t tpoint_id,
					    uint16_t owner_id, uint32_t size, uint64_t object_id)
{
	struct trace_file_history *h = trace_ring.history;

	if (unlikely(h == NULL)) {
		trace_record_no_slot();
		return false;
	}
	*e = (struct trace_open_event){
		.history = h,
		.stamps = trace_ring.stamps,
		.index_mask = trace_ring.index_mask,
		.first = h->next_entry,
		.tsc = ticks_now(),
	};
	TRACE_EACH_SLOT(trace_event_begin_slot, e, 0, slots);
	/* Stores the stamps before the rest of their slots: on x86 this binds the compiler alone, on arm64 it is a
	 * store barrier. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	struct trace_file_entry *entry = trace_event_slot(e, 0);
	/* One store for tpoint_id, owner_id and size. */
	uint64_t ids = tpoint_id | (uint64_t)owner_id << 16 | (uint64_t)size << 32;
	memcpy((uint8_t *)entry + offsetof(struct trace_file_entry, tpoint_id), &ids, sizeof(ids));
	entry->object_id = object_id;
	TRACE_EACH_SLOT(trace_event_mark_continuation, e, 1, slots);
	return true;
}

static ALWAYS_INLINE void trace_event_end(const struct trace_open_event *e, unsigned slots, uint16_t tpoint_id)
{
	e->history->tpoint_count[tpoint_id]++;
	TRACE_EACH_SLOT(trace_event_end_slot, e, 0, slots);
	/* Pairs with the reader's acquire load: a reader that sees the index sees the whole event. */
	__atomic_store_n(&e->history->next_entry, e->first + slots, __ATOMIC_RELEASE);
}

/* The slot of byte `offset` of the packed arguments, and how many bytes from there are in the same slot. */
static ALWAYS_INLINE unsigned trace_arg_slot(unsigned offset)
{
	return offset < TRACE_ENTRY_ARG_BYTES ? 0 : 1 + (offset - TRACE_ENTRY_ARG_BYTES) / TRACE_CONTINUATION_ARG_BYTES;
}

static ALWAYS_INLINE unsigned trace_arg_room(unsigned offset)
{
	return offset < TRACE_ENTRY_ARG_BYTES
		       ? TRACE_ENTRY_ARG_BYTES - offset
		       : TRACE_CONTINUATION_ARG_BYTES - (offset - TRACE_ENTRY_ARG_BYTES) % TRACE_CONTINUATION_ARG_BYTES;
}

static ALWAYS_INLINE uint8_t *trace_arg_address(const struct trace_open_event *e, unsigned offset)
{
	/* In both kinds of slot the arguments come last, and fill it to its end. */
	return (uint8_t *)(trace_event_slot(e, trace_arg_slot(offset)) + 1) - trace_arg_room(offset);
}

/* Stores the low n <= 8 bytes of value; n is a constant. */
static ALWAYS_INLINE void trace_store(uint8_t *to, uint64_t value, unsigned n)
{
	if (n == 8) {
		memcpy(to, &value, 8);
		return;
	}
	if (n & 4) {
		uint32_t v = (uint32_t)value;
		memcpy(to, &v, 4);
		to += 4;
		value >>= 32;
	}
	if (n & 2) {
		uint16_t v = (uint16_t)value;
		memcpy(to, &v, 2);
		to += 2;
		value >>= 16;
	}
	if (n & 1) {
		*to = (uint8_t)value;
	}
}

static ALWAYS_INLINE void trace_put_number(const struct trace_open_event *e, unsigned offset, unsigned size,
					   uint64_t value)
{
	unsigned room = trace_arg_room(offset);

	if (size <= room) {
		trace_store(trace_arg_address(e, offset), value, size);
	} else {
		trace_store(trace_arg_address(e, offset), value, room);
		trace_store(trace_arg_address(e, offset + room), value >> (8 * room), size - room);
	}
}

/* Stores at most size - 1 bytes of text, and NULs behind them; NULL is stored as an empty string. Counts texts that
 * were cut. */
void trace_put_string(const struct trace_open_event *e, unsigned offset, uint8_t size, const char *text);

/* What the .def file's argument kinds mean in C. */
#define TRACE_CTYPE_INT_8   uint64_t
#define TRACE_CTYPE_INT_4   uint32_t
#define TRACE_CTYPE_PTR_8   const void *
#define TRACE_CTYPE_PTR_4   uint32_t
#define TRACE_CTYPE_STR_16  const char *
#define TRACE_CTYPE_STR_24  const char *
#define TRACE_CTYPE_STR_32  const char *
#define TRACE_CTYPE_STR_64  const char *
#define TRACE_CTYPE_STR_128 const char *

#define TRACE_PUT_INT(e_, offset_, size_, value_) trace_put_number(e_, offset_, size_, value_)
#define TRACE_PUT_PTR(e_, offset_, size_, value_) trace_put_number(e_, offset_, size_, (uint64_t)(value_))
#define TRACE_PUT_STR(e_, offset_, size_, value_) trace_put_string(e_, offset_, size_, value_)

/* struct trace_args_NAME: the packed arguments' sizes and offsets (all members are bytes: no padding). */
#define TRACE_ARG_MEMBER(c_, kind_, size_, name_) uint8_t name_[size_];
#define TRACE_TPOINT(group_, number_, name_, owner_, object_, new_, help_, ...)                                        \
	struct trace_args_##name_ {                                                                                    \
		FOR_ARGS(TRACE_ARG_MEMBER, , ##__VA_ARGS__)                                                            \
	};                                                                                                             \
	_Static_assert(sizeof(struct trace_args_##name_) <= TRACE_FILE_MAX_ARG_BYTES, #name_ ": arguments");           \
	_Static_assert(sizeof(#name_) <= TRACE_TPOINT_NAME_SIZE, #name_ ": name");                                     \
	_Static_assert(number_ < TRACE_TPOINTS_PER_GROUP, #name_ ": number");
#include "trace/tracepoints.def"

/* void trace_record_NAME(owner_id, size, object_id, arguments ...) */
#define TRACE_ARG_PARAM(c_, kind_, size_, name_) , TRACE_CTYPE_##kind_##_##size_ arg_##name_
#define TRACE_ARG_PUT(tpoint_, kind_, size_, name_)                                                                    \
	TRACE_PUT_##kind_(&e_, offsetof(struct trace_args_##tpoint_, name_), size_, arg_##name_);
#define TRACE_TPOINT(group_, number_, name_, owner_, object_, new_, help_, ...)                                        \
	static ALWAYS_INLINE void trace_record_##name_(uint16_t owner_id_, uint32_t size_,                             \
						       uint64_t object_id_ FOR_ARGS(TRACE_ARG_PARAM, , ##__VA_ARGS__)) \
	{                                                                                                              \
		enum { slots_ = TRACE_SLOTS(sizeof(struct trace_args_##name_)) };                                      \
		struct trace_open_event e_;                                                                            \
		if (trace_event_begin(&e_, slots_, TRACE_TPOINT_##name_, owner_id_, size_, object_id_)) {              \
			FOR_ARGS(TRACE_ARG_PUT, name_, ##__VA_ARGS__)                                                  \
			trace_event_end(&e_, slots_, TRACE_TPOINT_##name_);                                            \
		}                                                                                                      \
	}
#include "trace/tracepoints.def"

#endif
