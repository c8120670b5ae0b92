/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of every write to a range of units, and which data a read may therefore return. Pure functions; one
 * thread uses a ledger at a time.
 *
 * A unit is written for the first time with generation 1, then 2, and so on; no two I/Os of a unit are outstanding at a
 * time. A read of a block may return
 *
 *     the last write that was acknowledged,
 *     or any later one: it has no answer yet, or ended with an error, and may or may not have been carried out.
 *
 * Once a read has returned one of the later ones, older ones are stale. So what is allowed is a range of generations,
 * from the block's floor to the last one issued.
 *
 * Memory: 12 bytes per unit; LEDGER_HISTORY writes are remembered with their times; for at most LEDGER_TORN_MAX units
 * the floors of single blocks are kept, which differ after a write that was carried out in part. Where there are more,
 * the check is weaker (torn_dropped counts), and never wrong. */
#ifndef PERF_LEDGER_H
#define PERF_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define LEDGER_HISTORY  65536
#define LEDGER_TORN_MAX 256

enum ledger_fate {
	LEDGER_OPEN,         /* no answer yet */
	LEDGER_ACKNOWLEDGED, /* answered with success */
	LEDGER_FAILED,       /* answered with an error: it may or may not have been carried out */
};

/* Times are ms since the run began. */
struct ledger_write {
	uint64_t unit;
	uint32_t generation; /* 0: nothing is known of the write */
	uint32_t issued_ms, answered_ms;
	enum ledger_fate fate;
};

struct ledger_torn {
	uint64_t unit;
	TAILQ_ENTRY(ledger_torn) link;
	uint32_t floor[]; /* by block of the unit */
};

struct ledger {
	uint64_t units;
	uint32_t blocks_per_unit;
	uint32_t *issued, *acknowledged, *floor; /* generations, by unit; floor: not below acknowledged */
	TAILQ_HEAD(, ledger_torn) torn;
	uint32_t num_torn;
	uint64_t torn_dropped;
	struct ledger_write *history; /* a ring */
	uint64_t num_writes;          /* so far; the ring's next place is this modulo LEDGER_HISTORY */
};

enum ledger_verdict {
	LEDGER_ALLOWED,
	LEDGER_STALE,         /* older than a write that was acknowledged */
	LEDGER_WENT_BACK,     /* older than what an earlier read returned */
	LEDGER_NEVER_WRITTEN, /* no write of this generation has been issued */
};

/* False: out of memory; ledger_fini() must be called in any case. */
bool ledger_init(struct ledger *l, uint64_t units, uint32_t blocks_per_unit);
void ledger_fini(struct ledger *l);

/* A write of unit begins; no I/O of it is outstanding. Returns the write's number for ledger_answer(); its generation
 * is l->issued[unit]. */
uint64_t ledger_issue(struct ledger *l, uint64_t unit, uint32_t now_ms);
/* The write with that number, the last one of unit, has been answered. */
void ledger_answer(struct ledger *l, uint64_t unit, uint64_t number, uint32_t now_ms, bool success);

/* The oldest generation that a read of a block of unit may return; the youngest one is l->issued[unit]. */
uint32_t ledger_block_floor(const struct ledger *l, uint64_t unit, uint32_t block);
/* What a read returned in one block. Changes nothing. */
enum ledger_verdict ledger_judge(const struct ledger *l, uint64_t unit, uint32_t block, uint32_t generation);
/* A read has returned these generations, one per block of unit. Blocks that are not LEDGER_ALLOWED are ignored. */
void ledger_note_read(struct ledger *l, uint64_t unit, const uint32_t *generations);
/* What is remembered of a write; its generation is 0 if nothing is. Slow: for messages. */
struct ledger_write ledger_find_write(const struct ledger *l, uint64_t unit, uint32_t generation);

/* For a ledger that is continued: what was known of a block when the ledger was saved. Blocks of a unit are given in
 * order. */
void ledger_restore_block(struct ledger *l, uint64_t unit, uint32_t block, uint32_t floor, uint32_t issued);

#endif
