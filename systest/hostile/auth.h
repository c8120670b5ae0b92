/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's side of DH-HMAC-CHAP (Base 8.13.5), step by step, so that each step can be spoilt. Of the DH groups it can
 * finish only with the null group. */
#ifndef HOSTILE_AUTH_H
#define HOSTILE_AUTH_H

#include "systest/hostile/cases.h"

enum {
	AUTH_NO_ANSWER = 0xffff, /* in place of a status: the connection has ended, or time is over */
	AUTH_MESSAGE_MAX = 4096, /* that the target takes */
	AUTH_TYPE_COMMON = 0,
	AUTH_TYPE_DHCHAP = 1,
	AUTH_NEGOTIATE = 0x00,
	AUTH_CHALLENGE = 0x01,
	AUTH_REPLY = 0x02,
	AUTH_SUCCESS1 = 0x03,
	AUTH_SUCCESS2 = 0x04,
	AUTH_FAILURE2 = 0xf0,
	AUTH_FAILURE1 = 0xf1,
	AUTH_GROUP_NULL = 0,
	AUTH_GROUP_2048 = 1,
};

/* Reason code explanations of AUTH_Failure1. */
enum {
	WHY_FAILED = 1,
	WHY_PROTOCOL = 2,
	WHY_SCC = 3,
	WHY_HASH = 4,
	WHY_GROUP = 5,
	WHY_PAYLOAD = 6,
	WHY_MESSAGE = 7,
};

/* Places in the messages. */
enum {
	MSG_TYPE = 0,
	MSG_ID = 1,
	MSG_T_ID = 4,
	NEG_SC_C = 6,
	NEG_PROTOCOLS = 7,
	NEG_AUTH_ID = 8,
	NEG_HASHES = 10,
	NEG_GROUPS = 11,
	NEG_HASH_LIST = 12,
	NEG_GROUP_LIST = 42,
	NEG_BYTES = 72,
	CHA_HASH = 8,
	REP_VALID = 8,
	MSG_HASH_LEN = 6,
	MSG_DH_LEN = 10,
	MSG_SEQNUM = 12,
	MSG_VALUES = 16,
	FAIL_WHY = 7,
};

/* What comes next. Even ones are sent, odd ones fetched. */
enum stage {
	STAGE_NEGOTIATE,
	STAGE_CHALLENGE,
	STAGE_REPLY,
	STAGE_SUCCESS1,
	STAGE_SUCCESS2,
	STAGE_DONE,
};

struct auth {
	struct link *link;
	const struct facts *facts;
	uint16_t t_id, cid;
	uint8_t group; /* the only one that is offered */
	bool both;     /* the target has to prove who it is, too */
	enum stage stage;
	uint8_t hash_len;
	uint32_t seqnum;
	uint8_t challenge[64];
	uint8_t *out, *in; /* what is sent, what was fetched: in the link's memory */
	uint32_t len;      /* bytes of out */
	uint8_t sqe[SQE_SIZE];
};

void auth_begin(struct auth *a, struct link *link, const struct facts *facts);
/* The command for len bytes of out (Authentication Send) or of in (Authentication Receive). */
void auth_fill_send(struct auth *a, uint32_t len);
void auth_fill_receive(struct auth *a, uint32_t len);
/* Runs a->sqe: its status. */
uint16_t auth_run(struct auth *a);
uint16_t auth_send(struct auth *a);
uint16_t auth_receive(struct auth *a);
/* The message of a stage in which something is sent. */
void auth_compose(struct auth *a, enum stage stage);
/* The next step as it should be; false: the target did not do its part. */
bool auth_step(struct auth *a);
/* Whether in is an AUTH_Failure1; its explanation in *why. */
bool auth_is_failure(const struct auth *a, uint8_t *why);

#endif
