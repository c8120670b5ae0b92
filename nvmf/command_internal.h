/* SPDX-License-Identifier: BSD-3-Clause */
/* The commands that hosts can send, one row each: I/O commands, admin commands, fabrics commands. Nothing else in the
 * target knows opcodes: arrival, execution, reservations, the Commands Supported and Effects log, Identify Controller's
 * ONCS and the list of outstanding commands all read these rows.
 *
 * A new command is a row in command.c, a function that finds its data length (unless one of enum nvmf_command_data says
 * it) and a function that carries it out. */
#ifndef NVMF_COMMAND_INTERNAL_H
#define NVMF_COMMAND_INTERNAL_H

#include <stdint.h>
#include "nvmf/transport.h"

struct nvmf_ns_view;
struct nvme_cmd_effects_log;

/* How many bytes a command transfers. */
enum nvmf_command_data {
	NVMF_DATA_NONE,   /* none */
	NVMF_DATA_BLOCKS, /* blocks: NLB in dword 12, with metadata where the host sees it */
	NVMF_DATA_FIXED,  /* data_bytes */
	NVMF_DATA_LENGTH, /* length() finds it in the command */
	NVMF_DATA_SGL,    /* what the data pointer describes: vendor specific commands */
};

/* What a command needs, and what it does. */
enum nvmf_command_flag {
	/* I/O commands. Reservations (Base figure "Command Behavior in the Presence of a Reservation"): which hosts may
	 * send it while the namespace is reserved. With neither flag the command is not checked against the
	 * reservation. */
	NVMF_CMD_RESV_READ = 1 << 0,  /* those that may read */
	NVMF_CMD_RESV_WRITE = 1 << 1, /* those that may write */
	/* What it does to the blocks, and which fields it has. */
	NVMF_CMD_CHANGES_BLOCKS = 1 << 2, /* Logical Block Content Change */
	NVMF_CMD_FUA = 1 << 3,            /* dword 12 bit 30: on the medium before it ends */
	NVMF_CMD_SLBA = 1 << 4,           /* dwords 10 and 11 are an LBA */
	NVMF_CMD_NLB = 1 << 5,            /* dword 12 bits 15:0 are a number of blocks, 0's based */
	NVMF_CMD_FUSE_FIRST = 1 << 6,  /* may be the first of a fused pair; io.c carries out only Compare and Write */
	NVMF_CMD_FUSE_SECOND = 1 << 7, /* may be the second */
	NVMF_CMD_ZERO_COPY = 1 << 8,   /* its data may be in memory of the bdev */
	NVMF_CMD_IF_BDEV_CAN = 1 << 9, /* announced only while the bdev of some namespace supports bdev_type */
	NVMF_CMD_ALWAYS = 1 << 16,     /* no controller may lack it: it has no ONCS bit, and is never masked */
	/* Admin and fabrics commands. */
	NVMF_CMD_DISCOVERY = 1 << 10,       /* discovery controllers have it too */
	NVMF_CMD_RESERVED_LANE = 1 << 11,   /* never waits for ordinary buffers */
	NVMF_CMD_WAITS_FOR_EVENT = 1 << 12, /* may be outstanding for ever */
	/* Fabrics commands. */
	NVMF_CMD_UNCONNECTED = 1 << 13,     /* only before the queue is connected; all others only after */
	NVMF_CMD_UNAUTHENTICATED = 1 << 14, /* also while the host has yet to prove who it is */
	NVMF_CMD_ADMIN_QUEUE = 1 << 15,     /* not on I/O queues */
};

/* A command. One cache line, so that arrival and execution of a Read touch one of them. */
struct nvmf_command {
	const char *name; /* as nvmf_get_inflight tells it: "write_zeroes". NULL: there is no such command */
	/* Poll group: carries it out; ends in nvmf_request_finish(), perhaps before it returns. nsv: its namespace,
	 * which exists and may be accessed; NULL for admin commands. NULL: run does. Commands of NVMF_DATA_BLOCKS have
	 * nvmf_rw_exec(), which is called without a look at this pointer. */
	void (*exec)(struct nvmf_request *req, struct nvmf_ns_view *nsv);
	/* Control thread: carries it out; ends in nvmf_request_answer(). */
	void (*run)(struct nvmf_request *req);
	/* NVMF_DATA_LENGTH; poll group, on arrival: how many bytes the command transfers (0: none). Returns a status,
	 * with the place of the bad field in *where; checks only what the command itself tells. */
	uint16_t (*length)(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);
	uint32_t flags;      /* enum nvmf_command_flag */
	uint16_t data_bytes; /* NVMF_DATA_FIXED */
	uint16_t oncs;       /* the bit of Identify Controller's ONCS that announces it (NVME_CTRL_ONCS_...), or 0 */
	uint8_t data;        /* enum nvmf_command_data */
	uint8_t xfer;        /* enum nvme_data_tfr: the direction of its data; bits 1:0 of the opcode (Base 3.3.3.1) */
	uint8_t bdev_type;   /* enum bdev_io_type that carries it out, or BDEV_IO_INVALID */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct nvmf_command) == 64, "one cache line");

/* By opcode. */
extern const struct nvmf_command nvmf_io_commands[256];
extern const struct nvmf_command nvmf_admin_commands[256];
/* By fabrics command type. */
#define NVMF_FABRICS_COMMANDS 7
extern const struct nvmf_command nvmf_fabrics_commands[NVMF_FABRICS_COMMANDS];

/* The row of a request's command, whatever the queue and the state of its queue pair; one without a name if there is no
 * such command. Any thread; not for the hot path. */
const struct nvmf_command *nvmf_command_of(const struct nvmf_request *req);

/* Poll group: the arrival of a command whose data length does not depend on a namespace (NONE, FIXED, LENGTH). */
enum nvmf_next nvmf_command_start(struct nvmf_request *req, const struct nvmf_command *cmd);
/* Poll group: an Asynchronous Event Request will wait for an event. False: there are too many. */
bool nvmf_aer_hold(struct nvmf_request *req);
/* Poll group: a Connect was refused on arrival. Tells operators. */
void nvmf_connect_rejected(const struct nvmf_request *req);
/* Poll group: hands a command to the control thread, which calls cmd->run(). */
void nvmf_command_post(struct nvmf_request *req, const struct nvmf_command *cmd);

/* Control thread: what a controller announces. */

/* Identify Controller, ONCS: the optional I/O commands that the controller has now. */
uint16_t nvmf_ctrlr_oncs(const struct nvmf_ctrlr *ctrlr);
/* Identify Controller, FUSES: the fused commands that it has. */
uint16_t nvmf_ctrlr_fuses(const struct nvmf_ctrlr *ctrlr);
/* Fills in the Commands Supported and Effects log of a controller (Base 5.16.1.6). */
void nvmf_command_effects(const struct nvmf_ctrlr *ctrlr, struct nvme_cmd_effects_log *log);

/* ---- The functions of the rows, each in the file of its subject ---- */

/* Lengths: io.c, io_ranges.c, resv_ns.c, admin.c, auth.c. */
uint16_t nvmf_dsm_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);
uint16_t nvmf_copy_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);
uint16_t nvmf_resv_report_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);
uint16_t nvmf_get_log_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);
uint16_t nvmf_get_features_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);
uint16_t nvmf_set_features_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);
uint16_t nvmf_auth_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where);

/* Poll group: io.c, io_ranges.c, passthru.c, admin.c. */
void nvmf_rw_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);
void nvmf_flush_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);
void nvmf_write_zeroes_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);
void nvmf_blocks_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);
void nvmf_dsm_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);
void nvmf_copy_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);
void nvmf_passthru_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);
void nvmf_keep_alive_exec(struct nvmf_request *req, struct nvmf_ns_view *nsv);

/* Control thread: resv_ns.c, admin_*.c, connect.c, property.c, auth.c, abort.c, aer.c, cross_reset.c,
 * passthru.c. */
void nvmf_resv_register_run(struct nvmf_request *req);
void nvmf_resv_acquire_run(struct nvmf_request *req);
void nvmf_resv_release_run(struct nvmf_request *req);
void nvmf_resv_report_run(struct nvmf_request *req);
void nvmf_identify_run(struct nvmf_request *req);
void nvmf_get_log_run(struct nvmf_request *req);
void nvmf_get_features_run(struct nvmf_request *req);
void nvmf_set_features_run(struct nvmf_request *req);
void nvmf_abort_run(struct nvmf_request *req);
void nvmf_aer_run(struct nvmf_request *req);
void nvmf_cross_reset_run(struct nvmf_request *req);
void nvmf_passthru_admin_run(struct nvmf_request *req);
void nvmf_connect_run(struct nvmf_request *req);
void nvmf_property_get_run(struct nvmf_request *req);
void nvmf_property_set_run(struct nvmf_request *req);
void nvmf_auth_send_run(struct nvmf_request *req);
void nvmf_auth_receive_run(struct nvmf_request *req);

#endif
