/* SPDX-License-Identifier: BSD-3-Clause */
#include "systest/hostile/auth.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#define SECP 0xe9 /* the protocols of NVM Express */
#define SPSP 0x01

void auth_begin(struct auth *a, struct link *link, const struct facts *facts)
{
	*a = (struct auth){.link = link, .facts = facts, .t_id = 0x1234, .group = AUTH_GROUP_NULL};
	a->out = link_slot(link, 1);
	a->in = link_slot(link, 2);
}

/* ---- Commands ---- */

static void fill(struct auth *a, uint8_t fctype, const uint8_t *data, uint32_t len)
{
	memset(a->sqe, 0, SQE_SIZE);
	a->sqe[AT_OPCODE] = FABRICS;
	a->sqe[AT_FLAGS] = FLAG_SGL;
	put16(a->sqe + AT_CID, ++a->cid);
	a->sqe[AT_FCTYPE] = fctype;
	put_keyed(a->sqe + AT_SGL, (uintptr_t)data, len, memory.remote->rkey, SUB_ADDRESS);
	a->sqe[AT_SPSP0] = a->sqe[AT_SPSP1] = SPSP;
	a->sqe[AT_SECP] = SECP;
	put32(a->sqe + AT_AUTH_LEN, len);
}

void auth_fill_send(struct auth *a, uint32_t len)
{
	fill(a, FC_AUTH_SEND, a->out, len);
}

void auth_fill_receive(struct auth *a, uint32_t len)
{
	memset(a->in, CANARY, AUTH_MESSAGE_MAX);
	fill(a, FC_AUTH_RECEIVE, a->in, len);
}

uint16_t auth_run(struct auth *a)
{
	uint8_t cqe[CQE_SIZE];

	return link_command(a->link, a->sqe, SQE_SIZE, cqe) ? get16(cqe + 14) >> 1 & 0x7ff : AUTH_NO_ANSWER;
}

uint16_t auth_send(struct auth *a)
{
	auth_fill_send(a, a->len);
	return auth_run(a);
}

uint16_t auth_receive(struct auth *a)
{
	auth_fill_receive(a, AUTH_MESSAGE_MAX);
	return auth_run(a);
}

/* ---- Messages ---- */

static void put_header(struct auth *a, uint8_t type, uint8_t id, uint32_t len)
{
	memset(a->out, 0, AUTH_MESSAGE_MAX);
	a->out[MSG_TYPE] = type;
	a->out[MSG_ID] = id;
	put16(a->out + MSG_T_ID, a->t_id);
	a->len = len;
}

static void negotiate(struct auth *a)
{
	put_header(a, AUTH_TYPE_COMMON, AUTH_NEGOTIATE, NEG_BYTES);
	a->out[NEG_PROTOCOLS] = 1;
	a->out[NEG_AUTH_ID] = AUTH_TYPE_DHCHAP;
	a->out[NEG_HASHES] = 3;
	for (uint8_t id = 1; id <= 3; id++) {
		a->out[NEG_HASH_LIST + id - 1] = id;
	}
	a->out[NEG_GROUPS] = 1;
	a->out[NEG_GROUP_LIST] = a->group;
}

/* Base 8.13.5.5, with the null group. */
static void respond(const struct auth *a, uint8_t *response)
{
	const struct address *at = &a->facts->keyed;
	uint8_t text[64 + 7 + 8 + 2 * 224], *p = text;
	unsigned len;

	memcpy(p, a->challenge, a->hash_len);
	p += a->hash_len;
	put32(p, a->seqnum);
	put16(p + 4, a->t_id);
	p[6] = 0; /* no secure channel */
	memcpy(p + 7, "HostHost", 8);
	p += 15;
	strcpy((char *)p, at->hostnqn); /* with the zero that ends it */
	p += strlen(at->hostnqn) + 1;
	memcpy(p, at->subnqn, strlen(at->subnqn));
	p += strlen(at->subnqn);
	const EVP_MD *md = a->hash_len == 32 ? EVP_sha256() : a->hash_len == 48 ? EVP_sha384() : EVP_sha512();
	HMAC(md, a->facts->key, (int)a->facts->key_len, text, (size_t)(p - text), response, &len);
}

static void reply(struct auth *a)
{
	put_header(a, AUTH_TYPE_DHCHAP, AUTH_REPLY, MSG_VALUES + 2u * a->hash_len);
	a->out[MSG_HASH_LEN] = a->hash_len;
	respond(a, a->out + MSG_VALUES);
	if (a->both) {
		a->out[REP_VALID] = 1;
		put32(a->out + MSG_SEQNUM, 0x55667788);
		memset(a->out + MSG_VALUES + a->hash_len, 0x5a, a->hash_len);
	}
	if (a->group == AUTH_GROUP_2048) { /* in its range, and of no other use */
		put16(a->out + MSG_DH_LEN, 256);
		memset(a->out + a->len, 0x42, 256);
		a->len += 256;
	}
}

void auth_compose(struct auth *a, enum stage stage)
{
	if (stage == STAGE_NEGOTIATE) {
		negotiate(a);
	} else if (stage == STAGE_REPLY) {
		reply(a);
	} else {
		put_header(a, AUTH_TYPE_DHCHAP, AUTH_SUCCESS2, 16);
	}
}

/* ---- What is fetched ---- */

static bool is_message(const struct auth *a, uint8_t type, uint8_t id)
{
	return a->in[MSG_TYPE] == type && a->in[MSG_ID] == id;
}

bool auth_is_failure(const struct auth *a, uint8_t *why)
{
	*why = a->in[FAIL_WHY];
	return is_message(a, AUTH_TYPE_COMMON, AUTH_FAILURE1) && a->in[FAIL_WHY - 1] == 1;
}

static bool take_challenge(struct auth *a)
{
	static const uint8_t lengths[] = {0, 32, 48, 64};

	if (!is_message(a, AUTH_TYPE_DHCHAP, AUTH_CHALLENGE) || get16(a->in + MSG_T_ID) != a->t_id ||
	    a->in[CHA_HASH] == 0 || a->in[CHA_HASH] > 3 || a->in[MSG_HASH_LEN] != lengths[a->in[CHA_HASH]] ||
	    get16(a->in + MSG_DH_LEN) != (a->group == AUTH_GROUP_2048 ? 256 : 0)) {
		return false;
	}
	a->hash_len = a->in[MSG_HASH_LEN];
	a->seqnum = get32(a->in + MSG_SEQNUM);
	memcpy(a->challenge, a->in + MSG_VALUES, a->hash_len);
	return true;
}

static bool take_success1(const struct auth *a)
{
	return is_message(a, AUTH_TYPE_DHCHAP, AUTH_SUCCESS1) && get16(a->in + MSG_T_ID) == a->t_id &&
	       a->in[REP_VALID] == a->both;
}

bool auth_step(struct auth *a)
{
	bool good;

	switch (a->stage) {
	case STAGE_CHALLENGE:
		good = auth_receive(a) == ST_OK && take_challenge(a);
		break;
	case STAGE_SUCCESS1:
		good = auth_receive(a) == ST_OK && take_success1(a);
		break;
	default:
		auth_compose(a, a->stage);
		good = auth_send(a) == ST_OK;
		break;
	}
	a->stage++;
	if (a->stage == STAGE_SUCCESS2 && !a->both) { /* there is nothing to be confirmed */
		a->stage = STAGE_DONE;
	}
	return good;
}
