/* SPDX-License-Identifier: BSD-3-Clause */
/* A fabric that is a function call, and targets on it: controllers of one subsystem that share the blocks of namespace
 * 1. A target can keep commands and carry them out later, whatever became of the connection that they came by. */
#ifndef UNITTEST_BDEV_FABRIC_H
#define UNITTEST_BDEV_FABRIC_H

#include "bdev_modules/nvme/bdev_nvme.h"

#define FABRIC          ((enum nvme_trtype)7)
#define FABRIC_TARGETS  3
#define FABRIC_BLOCKS   64
#define FABRIC_KEPT     64
#define FABRIC_CCR_LOGS 4

/* A write that a target has received and not carried out yet. */
struct fabric_write {
	uint64_t lba;
	uint8_t opcode;
	uint8_t data[512];
};

struct fabric_ccr {
	uint16_t icid;
	uint8_t ciu, state; /* state: CCRS */
	uint64_t cirn;
};

/* Set by the test on the control thread, under fabric_lock() where threads use it at the same time. */
struct fabric_target {
	bool mute;    /* answers no admin command */
	bool deaf;    /* answers no Keep Alive */
	bool refuses; /* connections */
	bool keeps;   /* I/O commands are neither answered nor carried out */
	bool busy;    /* does not become disabled: CSTS.RDY stays 1 */
	bool broken;  /* every connection of it is lost at its next poll */
	bool hasty;   /* its I/O connections are lost as soon as it is disabled */
	uint16_t cqt; /* ms */
	bool cache;   /* a volatile write cache */
	bool has_ccr;
	/* what a Cross-Controller Reset does: 0: at once; 1: in progress until fabric_ccr_end(); else its status */
	uint16_t ccr_answer;
	/* what happened */
	uint16_t cntlid;
	uint32_t cc, connects, disabled, writes, reads, flushes, ccr_requests, ccr_looks;
	uint64_t cirn, cirn_before; /* of its controller, and of the one before that */
	struct fabric_write kept[FABRIC_KEPT];
	unsigned num_kept;
	struct fabric_ccr ccr[FABRIC_CCR_LOGS];
	unsigned num_ccr;
	bool notices_asked; /* of ends of Cross-Controller Resets, by the event configuration */
	void *admin;        /* the queue pair; private */
	int aer_cid;        /* of a request for events; -1: none */
};
extern struct fabric_target fabric_targets[FABRIC_TARGETS];
extern uint8_t fabric_store[FABRIC_BLOCKS][512];

/* Registers the transport. Once. */
void fabric_register(void);
/* All targets anew. */
void fabric_init(void);
void fabric_lock(void);
void fabric_unlock(void);
/* Carries out what the target has kept. */
void fabric_land(struct fabric_target *t);
/* Ends the Cross-Controller Resets that are in progress at a helper, with success or not. On success the impacted
 * controller drops what it has kept. notice: the host is told by an event; else it has to look. */
void fabric_ccr_end(struct fabric_target *t, bool success, bool notice);

#endif
