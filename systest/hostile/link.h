/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection to an NVMe-oF target over plain verbs, and the queues and controllers made of them: nothing is checked
 * that a host may do wrong. One thread. */
#ifndef HOSTILE_LINK_H
#define HOSTILE_LINK_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "systest/hostile/spec.h"

#define LINKS        40     /* at most, at a time */
#define SLOTS        24     /* commands with data of a link */
#define SLOT_SIZE    16384u /* bytes of remotely accessible memory of each */
#define CAPSULES     320
#define CAPSULE_SIZE 8192u /* room for one; those beyond SLOTS are short */
#define CANARY       0xc3

/* Where the target is. */
struct address {
	const char *ip, *port, *subnqn, *hostnqn;
	uint8_t hostid[16];
};

struct link {
	bool used;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	uint32_t receives; /* posted at the start, and again as they are used, if repost */
	bool repost;
	bool up, ended;
	int reject;      /* the target's reason (RDMA figure 11), 0: none given, -1: not rejected */
	const char *why; /* it ended */
	uint32_t sent, send_done, send_failed;
	uint8_t inbox[512][CQE_SIZE]; /* responses, in order */
	uint32_t inbox_len;
	bool bad_response; /* one that is not 16 bytes long */
	/* Its memory: of SLOTS pieces that the target may be given keys of, and of capsules that it may not. */
	uint8_t *remote, *local;
};

/* Memory registered once for all links. */
struct memory {
	struct ibv_pd *pd;
	struct ibv_mr *remote, *local;
};
extern struct memory memory;

struct cm_request {
	uint8_t data[56];
	uint8_t len;
	uint8_t initiator_depth, responder_resources;
	uint32_t receives;
	bool repost;
};
/* What a well-behaved host sends: sizes are numbers of entries. */
struct cm_request cm_request(uint16_t qid, uint16_t entries);

/* Makes a connection. 0: l->up, or the target refused: l->reject, or it ended at once: l->ended. A negative errno: no
 * such thing can be tried here at all (said on stderr). */
int link_open(struct link **l, const struct address *at, const struct cm_request *req);
/* Its first half: asks for a connection. 0 or, said on stderr, a negative errno. */
int link_begin(struct link **l, const struct address *at, const struct cm_request *req);
/* Its second half: l->up or l->ended; false: not within the deadline (said on stderr). */
bool link_await(struct link *l);
/* Frees it; unannounced: without telling the other side first. */
void link_close(struct link *l, bool unannounced);

/* Posts a SEND of bytes, from capsule place `place`; opcode: IBV_WR_SEND or another. False: it could not be posted. */
bool link_send(struct link *l, unsigned place, const void *bytes, uint32_t len);
bool link_post(struct link *l, struct ibv_send_wr *wr);
/* Takes what has come. wait: sleeps until something does, at most so many ms. Returns whether anything came. */
bool link_progress(struct link *l, int wait_ms);
/* Until n responses are in the inbox or the link has ended; false: neither within the deadline. */
bool link_wait(struct link *l, uint32_t n);
/* Until it has ended; false: not within the deadline. */
bool link_wait_end(struct link *l);
extern int link_deadline_ms;
int64_t link_now_ms(void);

static inline uint8_t *link_slot(struct link *l, unsigned slot)
{
	return l->remote + (size_t)slot * SLOT_SIZE;
}

/* ---- Queues ---- */

/* Fills in Connect and its data, in slot memory, as it should be. */
void fill_connect(uint8_t *sqe, uint8_t *data, const struct address *at, uint16_t cid, uint16_t qid, uint16_t sqsize,
		  uint16_t cntlid);
/* One command and its response; false: it ended, or there was none. */
bool link_command(struct link *l, const void *sqe, uint32_t len, uint8_t cqe[CQE_SIZE]);
/* Makes a connection and a queue of it, with a good Connect; an admin queue's (0) *cntlid is given, an I/O queue's is
 * taken. *l may be there even if it fails. */
bool link_queue(struct link **l, const struct address *at, uint16_t qid, uint16_t entries, uint32_t kato_ms,
		uint16_t *cntlid);
/* Property Set of CC.EN, likewise. */
bool link_enable(struct link *admin, uint8_t cqe[CQE_SIZE]);

/* A controller of ours: an admin queue, and an I/O queue if it was asked for. */
struct session {
	struct link *admin, *io;
	uint16_t cntlid;
};
enum { ADMIN_ENTRIES = 32, IO_ENTRIES = 64 };
bool session_open(struct session *s, const struct address *at, bool with_io);
void session_close(struct session *s, bool unannounced);

#endif
