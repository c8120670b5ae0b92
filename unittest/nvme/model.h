/* SPDX-License-Identifier: BSD-3-Clause */
/* A model of an NVMe controller, for the driver's tests: registers in memory, admin and I/O commands, completion queues
 * with their phase, and faults on demand. The driver under test is the real one; only the PCI access layer
 * (nvme/pcie/pcie.h) is the model's.
 *
 * The model runs when model_step() is called: from a poller of the thread that drives the queues, or from a loop of the
 * test. It reads doorbells, and reads and writes queues and data as a drive does by DMA: through pointers in the
 * process's address space, which the PCI access layer's translation does not change. */
#ifndef UNITTEST_NVME_MODEL_H
#define UNITTEST_NVME_MODEL_H

#include "nvme/pcie/pcie.h"

#define MODEL_QUEUES     5 /* admin and four for I/O */
#define MODEL_NAMESPACES 4
#define MODEL_AERS       4

/* What a fault does to a command. */
enum model_fault_kind {
	MODEL_FAULT_NONE,
	MODEL_FAULT_NO_ANSWER,   /* it is never completed (an Abort does complete it) */
	MODEL_FAULT_DEAF,        /* it is never completed, and its Abort is not either */
	MODEL_FAULT_LATE,        /* completed when model_release() is called */
	MODEL_FAULT_STATUS,      /* completed with `status` */
	MODEL_FAULT_BAD_PHASE,   /* its completion has the phase of the old entry, so the driver does not see it */
	MODEL_FAULT_UNKNOWN_CID, /* its completion is for another command id, which is not outstanding */
	MODEL_FAULT_HUGE_CID,    /* ... which is beyond the queue */
	MODEL_FAULT_DUPLICATE,   /* completed twice */
	MODEL_FAULT_CFS,         /* CSTS.CFS is set instead */
	MODEL_FAULT_REMOVED,     /* the device is pulled out instead */
};
struct model_fault {
	enum model_fault_kind kind;
	int qid;        /* -1: any */
	int opcode;     /* -1: any */
	unsigned skip;  /* so many commands that fit pass first */
	unsigned count; /* then so many are hit */
	uint16_t status;
};

struct model_queue {
	uint64_t sq, cq; /* addresses; 0: not there */
	uint16_t sq_size, cq_size, sq_head, cq_tail;
	bool phase;
	uint32_t last_tail, last_head; /* of the doorbells */
	bool fused;                    /* the first of a pair came: its status and command id */
	uint16_t fused_status, fused_cid;
};

struct model_held {
	uint16_t qid, cid;
	struct nvme_sqe sqe;
	enum model_fault_kind kind;
};

struct model_ns {
	bool active;
	uint64_t blocks;
	uint8_t block_shift;
	uint16_t md_size;
	bool interleaved;            /* metadata is moved as part of the data */
	uint8_t pi_type;             /* protection information: 0: none */
	uint8_t pi_format;           /* NVME_PI_GUARD_... */
	uint8_t storage_bits;        /* of the storage tag in it */
	uint64_t mask_rest;          /* LBSTM: bits besides those of the tag */
	bool pi_first;               /* at the beginning of the metadata, not at its end */
	uint16_t noiob;              /* blocks: a boundary that I/O should not cross; 0: none */
	uint16_t mssrl;              /* Copy: blocks of a range; 0: the limits are not told */
	uint32_t mcl;                /* of all ranges together */
	uint8_t msrc;                /* ranges, 0's based */
	bool shared;                 /* NMIC: with other controllers */
	bool no_nguid;               /* its identity is its UUID */
	uint8_t nguid;               /* the first byte of its NGUID; 0: its id */
	uint32_t anagrpid;           /* 0: its id */
	enum nvme_ana_state ana;     /* of the group of its id; 0: optimized. Read if the controller's cmic says so */
	uint64_t bad_first, bad_end; /* the last Write Uncorrectable, unless it was written over; fails to be read */
	uint8_t *data, *md;          /* NULL: reads give what lies there, writes go nowhere */
};

struct model {
	volatile uint8_t *regs; /* a page of registers and one of doorbells */
	size_t regs_len;
	bool open, removed, bus_master, ready;
	bool refuse_disable;  /* CSTS.RDY stays set */
	bool refuse_enable;   /* ... stays clear */
	bool refuse_shutdown; /* CSTS.SHST stays what it is */
	bool shadow_offered, sgl_offered, no_open;
	uint8_t mdts;
	uint16_t oncs, ocfs;         /* Identify Controller */
	bool extended_formats;       /* it says that there are guards of 32 and 64 bits */
	bool extended_formats_known; /* the host has said that it knows them */
	uint16_t behavior_status;    /* what it is answered with (Host Behavior Support) */
	uint16_t cntlid;
	uint8_t cmic, anatt;
	const char *serial;
	bool no_vendor_sizes; /* vendor specific commands do not say how much they move */
	uint8_t vendor[4096]; /* what they write (admin C1h, I/O 81h) and read (C2h, 82h); C4h and 84h clear it */
	struct nvme_sqe last_vendor;
	struct nvme_error_log_page errors[8];                       /* log page 1 */
	struct nvme_smart_log smart;                                /* log page 2 */
	unsigned subsystem_resets, resets, vectors_wanted, vectors; /* vectors: how many there are */
	int vector_fds[MODEL_QUEUES];
	bool vector_on[MODEL_QUEUES];
	unsigned vector_switches;
	uint32_t cc;
	struct model_queue queues[MODEL_QUEUES];
	uint64_t shadow, event_idx;
	struct model_ns ns[MODEL_NAMESPACES]; /* [0]: nsid 1 */
	struct model_fault fault;
	struct model_held held[256];
	unsigned num_held;
	uint16_t aer_cids[MODEL_AERS];
	unsigned num_aers;
	uint64_t commands[256], admin_commands[256]; /* by opcode */
	uint64_t prp_commands, sgl_commands;
	uint64_t doorbells;  /* changes of the doorbells seen */
	char violation[128]; /* what the driver did against the specification; "" so far nothing */
	uint64_t (*noise)(void *arg, unsigned bits); /* fuzzing: random bits for every answer; NULL: none */
	void *noise_arg;
	uint32_t vendor_device;
};

/* A fresh one, as after power-on: 2 namespaces of 512 and 4096 bytes per block, each with model_ns_bytes (4 MiB) of
 * data. */
extern size_t model_ns_bytes;
void model_init(struct model *m);
void model_fini(struct model *m);
extern struct model *model_current; /* what model_access opens */
extern const struct nvme_pcie_access model_access;

/* Does what there is to do; the number of commands taken and answered. */
unsigned model_step(struct model *m);
/* Completes what a fault has held back. */
void model_release(struct model *m);
/* The registers read as all ones from now on. */
void model_remove(struct model *m);
/* An asynchronous event (dword 0 of its completion), if the host has asked for one. */
bool model_event(struct model *m, uint32_t dw0);
/* Completes a command; the driver's view of a completion can be forged by calling it with anything. */
void model_complete(struct model *m, unsigned qid, uint16_t cid, uint16_t status, uint32_t dw0);

#endif
