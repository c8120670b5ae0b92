/* SPDX-License-Identifier: BSD-3-Clause */
/* In-band authentication (Base 6.1, 6.2 and 8.13.5): a transaction is led to some step, on an admin or an I/O queue,
 * and there something is wrong: with the command, which is refused, and the transaction goes on; or with the message,
 * which ends it with AUTH_Failure1. */
#include <stdio.h>

#include "systest/hostile/auth.h"

static bool is_send(enum stage stage)
{
	return stage % 2 == 0;
}

static uint16_t status_of(const uint8_t *cqe)
{
	return get16(cqe + 14) >> 1 & 0x7ff;
}

static void want(struct kase *k, const char *what, uint16_t got, uint16_t a, uint16_t b)
{
	if (got == AUTH_NO_ANSWER) {
		kase_fail(k, "%s: no answer (%s)", what, k->link->ended ? k->link->why : "in time");
	} else if (got != a && got != b) {
		kase_fail(k, "%s: %s, expected %s", what, status_text(got), status_text(a));
	}
}

/* ---- Queues ---- */

static bool connect_queue(struct kase *k, struct link **l, const struct address *at, uint16_t qid, uint16_t *cntlid)
{
	struct cm_request r = cm_request(qid, ADMIN_ENTRIES);
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE];

	if (link_open(l, at, &r) != 0 || !(*l)->up) {
		kase_fail(k, "the connection was refused");
		return false;
	}
	fill_connect(sqe, link_slot(*l, 0), at, 1, qid, ADMIN_ENTRIES, *cntlid);
	if (!link_command(*l, sqe, SQE_SIZE, cqe) || status_of(cqe) != ST_OK) {
		kase_fail(k, "Connect failed");
		return false;
	}
	if (qid == 0) {
		*cntlid = get16(cqe);
	}
	if (at == &k->facts->keyed && (cqe[2] & AUTHREQ_ATR) == 0) {
		kase_fail(k, "authentication is not asked for");
	}
	return true;
}

static uint16_t property_set(struct link *l)
{
	uint8_t cqe[CQE_SIZE];

	return link_enable(l, cqe) ? status_of(cqe) : AUTH_NO_ANSWER;
}

static bool walk(struct kase *k, struct auth *a, enum stage to)
{
	while (a->stage < to) {
		enum stage at = a->stage;

		if (!auth_step(a)) {
			kase_fail(k, "step %d as it should be went wrong", at);
			return false;
		}
	}
	return true;
}

/* ---- The command is wrong ---- */

static void fill_command(struct auth *a)
{
	if (is_send(a->stage) && a->stage != STAGE_DONE) {
		auth_compose(a, a->stage);
		auth_fill_send(a, a->len);
	} else {
		auth_fill_receive(a, AUTH_MESSAGE_MAX);
	}
}

static void wrong_field(struct kase *k, struct auth *a)
{
	static const uint8_t places[] = {AT_SECP, AT_SPSP0, AT_SPSP1};

	fill_command(a);
	a->sqe[places[pick(k, 3)]] ^= (uint8_t)(1 + pick(k, 255));
	want(k, "a wrong protocol", auth_run(a), ST_FIELD, ST_FIELD);
}

static void no_length(struct kase *k, struct auth *a)
{
	fill_command(a);
	put32(a->sqe + AT_AUTH_LEN, 0);
	want(k, "no length", auth_run(a), ST_FIELD, ST_FIELD);
}

/* More than any message has; and of what is fetched more than the data pointer has room for. */
static void too_much(struct kase *k, struct auth *a)
{
	fill_command(a);
	put32(a->sqe + AT_AUTH_LEN, pick(k, 2) ? UINT32_MAX - pick(k, 8) : 1u << 20 | pick(k, 1u << 20));
	want(k, "too much", auth_run(a), ST_FIELD, ST_SGL_LENGTH);
}

static void short_list(struct kase *k, struct auth *a)
{
	fill_command(a);
	put_keyed(a->sqe + AT_SGL, (uintptr_t)a->in, pick(k, get32(a->sqe + AT_AUTH_LEN)), memory.remote->rkey,
		  SUB_ADDRESS);
	want(k, "a data pointer that is too short", auth_run(a), ST_SGL_LENGTH, ST_SGL_LENGTH);
}

static void bad_flags(struct kase *k, struct auth *a)
{
	static const uint8_t flags[] = {0x00, 0x80, 0xc0, FLAG_SGL | 1, FLAG_SGL | 2, FLAG_SGL | 3};

	fill_command(a);
	a->sqe[AT_FLAGS] = flags[pick(k, 6)];
	want(k, "bad flags", auth_run(a), ST_FIELD, ST_FIELD);
}

static void bad_descriptor(struct kase *k, struct auth *a)
{
	fill_command(a);
	a->sqe[AT_SGL_TYPE] = (uint8_t)((6 + pick(k, 10)) << 4 | pick(k, 16));
	want(k, "a descriptor of no type", auth_run(a), ST_SGL_TYPE, ST_SGL_TYPE);
}

/* Room for less than the message: it can be fetched again with more. */
static void too_little_room(struct kase *k, struct auth *a)
{
	if (a->stage == STAGE_CHALLENGE || a->stage == STAGE_SUCCESS1) {
		auth_fill_receive(a, 1 + pick(k, 15));
		want(k, "too little room", auth_run(a), ST_FIELD, ST_FIELD);
	} else {
		no_length(k, a);
	}
}

/* Before the end of it nothing else is allowed (Base 8.13.5.1). */
static void another_command(struct kase *k, struct auth *a)
{
	static const uint8_t admin[] = {ADM_IDENTIFY, ADM_GET_LOG, ADM_KEEP_ALIVE,
					ADM_ASYNC,    ADM_ABORT,   ADM_GET_FEATURES};
	static const uint8_t io[] = {IO_READ, IO_WRITE, IO_FLUSH, IO_COPY, IO_DSM, IO_RESV_REGISTER};
	bool is_io = a->link != k->link;

	if (a->stage == STAGE_DONE) {
		return;
	}
	auth_fill_receive(a, AUTH_MESSAGE_MAX);
	switch (pick(k, 3)) {
	case 0:
		want(k, "Property Set", property_set(a->link), ST_AUTH_REQUIRED, is_io ? ST_OPCODE : ST_AUTH_REQUIRED);
		break;
	case 1:
		a->sqe[AT_FCTYPE] = FC_CONNECT;
		want(k, "another Connect", auth_run(a), ST_SEQUENCE, ST_SEQUENCE);
		break;
	default:
		a->sqe[AT_OPCODE] = is_io ? io[pick(k, 6)] : admin[pick(k, 6)];
		put32(a->sqe + AT_NSID, k->facts->nsid);
		want(k, "another command", auth_run(a), ST_AUTH_REQUIRED, ST_AUTH_REQUIRED);
		break;
	}
}

/* ---- The message is wrong ---- */

static void bad_negotiate(struct kase *k, struct auth *a, uint8_t *why)
{
	uint8_t *m = a->out;

	*why = WHY_PAYLOAD;
	switch (pick(k, 8)) {
	case 0:
		m[NEG_PROTOCOLS] = (uint8_t)(pick(k, 2) ? 0 : 2 + pick(k, 254));
		break;
	case 1:
		m[NEG_SC_C] = (uint8_t)(1 + pick(k, 255));
		*why = WHY_SCC;
		break;
	case 2: /* another protocol */
		m[NEG_AUTH_ID] = (uint8_t)(2 + pick(k, 254));
		*why = WHY_PROTOCOL;
		break;
	case 3: /* more than the list has room for */
		m[pick(k, 2) ? NEG_HASHES : NEG_GROUPS] = (uint8_t)(31 + pick(k, 225));
		break;
	case 4: /* none that there is, or none at all */
		memset(m + NEG_HASH_LIST, (int)(4 + pick(k, 252)), 30);
		m[NEG_HASHES] = (uint8_t)pick(k, 31);
		*why = WHY_HASH;
		break;
	case 5:
		memset(m + NEG_GROUP_LIST, (int)(6 + pick(k, 250)), 30);
		m[NEG_GROUPS] = (uint8_t)pick(k, 31);
		*why = WHY_GROUP;
		break;
	case 6:
		a->len = pick(k, 2) ? 1 + pick(k, NEG_BYTES - 1) : NEG_BYTES + 1 + pick(k, 1000);
		break;
	default: /* the transaction's number is the host's to choose: nothing is wrong */
		a->t_id = (uint16_t)pick(k, 65536);
		put16(m + MSG_T_ID, a->t_id);
		*why = 0;
		break;
	}
}

/* Of Diffie-Hellman: numbers that are none of the group, and lengths that are none of its numbers. */
static void bad_dh(struct kase *k, struct auth *a, uint8_t *why)
{
	uint8_t *value = a->out + MSG_VALUES + 2u * a->hash_len;
	uint32_t len;

	*why = WHY_PAYLOAD;
	switch (pick(k, 4)) {
	case 0:
		memset(value, pick(k, 2) ? 0xff : 0, 256);
		break;
	case 1:
		memset(value, 0, 256);
		value[255] = 1;
		break;
	case 2:
		len = pick(k, 2) ? 0 : 257 + pick(k, 768);
		put16(a->out + MSG_DH_LEN, (uint16_t)len);
		a->len += len - 256;
		break;
	default: /* well formed: but who does not know the key has no right answer */
		*why = WHY_FAILED;
		break;
	}
}

static void bad_reply(struct kase *k, struct auth *a, uint8_t *why)
{
	uint8_t *m = a->out;

	*why = WHY_PAYLOAD;
	switch (pick(k, 8)) {
	case 0:
		m[MSG_HASH_LEN] ^= (uint8_t)(1 + pick(k, 255));
		break;
	case 1:
		m[REP_VALID] = (uint8_t)(2 + pick(k, 254));
		break;
	case 2: /* a challenge without a number (Base 8.13.5.4) */
		m[REP_VALID] = 1;
		put32(m + MSG_SEQNUM, 0);
		break;
	case 3: /* a value of a group that was not chosen; it may even be there */
		put16(m + MSG_DH_LEN, (uint16_t)(1 + pick(k, 3000)));
		a->len += pick(k, 2) ? get16(m + MSG_DH_LEN) : 0;
		break;
	case 4:
		a->len = pick(k, 2) ? 1 + pick(k, a->len - 1) : a->len + 1 + pick(k, 1000);
		break;
	case 5:
		put16(m + MSG_T_ID, (uint16_t)(a->t_id + 1 + pick(k, 65535)));
		*why = WHY_MESSAGE;
		break;
	default:
		m[MSG_VALUES + pick(k, a->hash_len)] ^= (uint8_t)(1 + pick(k, 255));
		*why = WHY_FAILED;
		break;
	}
}

static void bad_success2(struct kase *k, struct auth *a, uint8_t *why)
{
	if (pick(k, 2)) {
		a->len = pick(k, 2) ? 1 + pick(k, 15) : 17 + pick(k, 1000);
		*why = WHY_PAYLOAD;
	} else {
		put16(a->out + MSG_T_ID, (uint16_t)(a->t_id + 1 + pick(k, 65535)));
		*why = WHY_MESSAGE;
	}
}

/* One that does not come now, or never. */
static void out_of_turn(struct kase *k, struct auth *a, uint8_t *why)
{
	static const uint8_t ids[] = {AUTH_NEGOTIATE, AUTH_CHALLENGE, AUTH_REPLY, AUTH_SUCCESS1,
				      AUTH_SUCCESS2,  AUTH_FAILURE1,  0x77};
	uint8_t id = ids[pick(k, 7)],
		type = id == AUTH_NEGOTIATE || id == AUTH_FAILURE1 ? AUTH_TYPE_COMMON : AUTH_TYPE_DHCHAP;

	auth_compose(a, is_send(a->stage) && a->stage != STAGE_DONE ? a->stage : STAGE_SUCCESS2);
	if (is_send(a->stage) && a->out[MSG_ID] == id && a->out[MSG_TYPE] == type) {
		type = 2; /* which there is not */
	}
	if (a->stage == STAGE_DONE && id == AUTH_NEGOTIATE) {
		id = AUTH_REPLY;
	}
	a->out[MSG_TYPE] = type;
	a->out[MSG_ID] = id;
	*why = WHY_MESSAGE;
}

static void compose_bad(struct kase *k, struct auth *a, uint8_t *why)
{
	if (pick(k, 4) == 0 || !is_send(a->stage) || a->stage == STAGE_DONE) {
		out_of_turn(k, a, why);
		return;
	}
	auth_compose(a, a->stage);
	if (a->stage == STAGE_NEGOTIATE) {
		bad_negotiate(k, a, why);
	} else if (a->stage == STAGE_SUCCESS2) {
		bad_success2(k, a, why);
	} else if (a->group == AUTH_GROUP_2048) {
		bad_dh(k, a, why);
	} else {
		bad_reply(k, a, why);
	}
}

/* The message has been taken; what is wrong with it is said in the next, and then the queue ends. */
static void expect_failure(struct kase *k, struct auth *a, uint8_t why, bool fetched)
{
	uint8_t told;

	if (!fetched) {
		if (pick(k, 4) == 0) {
			want(k, "to send when there is something to fetch", auth_send(a), ST_SEQUENCE, ST_SEQUENCE);
		}
		want(k, "the failure", auth_receive(a), ST_OK, ST_OK);
	}
	if (!auth_is_failure(a, &told)) {
		kase_fail(k, "no failure: message %02x%02x", a->in[MSG_TYPE], a->in[MSG_ID]);
	} else if (told != why) {
		kase_fail(k, "failure %u, expected %u", told, why);
	}
	if (pick(k, 32) == 0 && !link_wait_end(a->link)) { /* which takes its time */
		kase_fail(k, "the queue goes on");
	}
}

static void bad_message(struct kase *k, struct auth *a)
{
	uint8_t why;

	compose_bad(k, a, &why);
	want(k, "the bad message", auth_send(a), ST_OK, ST_OK);
	if (why != 0) {
		expect_failure(k, a, why, false);
	}
}

/* To fetch when it is the host's turn. */
static void fetch_out_of_turn(struct kase *k, struct auth *a)
{
	if (is_send(a->stage)) {
		want(k, "to fetch nothing", auth_receive(a), ST_OK, ST_OK);
		expect_failure(k, a, WHY_MESSAGE, true);
	} else {
		bad_message(k, a);
	}
}

/* The host does not accept what it was told, whatever it says of it. */
static void own_failure(struct kase *k, struct auth *a)
{
	if (a->stage != STAGE_REPLY && a->stage != STAGE_SUCCESS2) {
		bad_message(k, a);
		return;
	}
	auth_compose(a, STAGE_SUCCESS2);
	a->out[MSG_TYPE] = AUTH_TYPE_COMMON;
	a->out[MSG_ID] = AUTH_FAILURE2;
	a->out[FAIL_WHY] = (uint8_t)rng_next(&k->rng);
	a->len = pick(k, 2) ? 6 + pick(k, 2) : 8 + pick(k, 1000);
	want(k, "a failure of the host's", auth_send(a), ST_OK, ST_OK);
	if (a->len < 8) {
		expect_failure(k, a, WHY_PAYLOAD, false);
	} else {
		uint16_t status = auth_receive(a); /* there is nothing more to say */
		if (status != ST_SEQUENCE && status != AUTH_NO_ANSWER) {
			kase_fail(k, "after a failure: %s", status_text(status));
		}
	}
}

/* ---- Anything ---- */

static void random_message(struct kase *k, struct auth *a)
{
	uint8_t why;

	compose_bad(k, a, &why);
	for (uint32_t i = 0, n = pick(k, 8); i < n; i++) {
		a->out[pick(k, a->len)] = (uint8_t)rng_next(&k->rng);
	}
	auth_fill_send(a, 1 + pick(k, AUTH_MESSAGE_MAX));
	uint16_t status = auth_run(a);
	if (status != AUTH_NO_ANSWER && !status_exists(status)) {
		kase_fail(k, "there is no status %03x", status);
	}
}

/* Many at once, of both commands: each is answered, or the connection ends. */
static void flood(struct kase *k, struct auth *a)
{
	uint32_t sent = 0, n = 2 + pick(k, ADMIN_ENTRIES - 2);

	for (; sent < n; sent++) {
		if (pick(k, 2)) {
			auth_compose(a, pick(k, 2) ? STAGE_NEGOTIATE : STAGE_SUCCESS2);
			auth_fill_send(a, a->len);
		} else {
			auth_fill_receive(a, AUTH_MESSAGE_MAX);
		}
		if (!link_send(a->link, sent, a->sqe, SQE_SIZE)) {
			break;
		}
	}
	if (!link_wait(a->link, sent)) {
		kase_fail(k, "%u of %u were answered, and the connection goes on", a->link->inbox_len, sent);
	}
	for (uint32_t i = 0; i < a->link->inbox_len; i++) {
		if (!status_exists(status_of(a->link->inbox[i]))) {
			kase_fail(k, "there is no status %03x", status_of(a->link->inbox[i]));
		}
	}
}

/* ---- Cases ---- */

/* What ends a transaction, and what does not. */
static void spoil(struct kase *k, struct auth *a)
{
	static void (*const refused[])(struct kase *, struct auth *) = {wrong_field,    no_length,      too_much,
									short_list,     bad_flags,      too_little_room,
									bad_descriptor, another_command};
	static void (*const fatal[])(struct kase *, struct auth *) = {
		bad_message, bad_message, bad_message, fetch_out_of_turn, own_failure, random_message, flood};
	unsigned how = pick(k, 16);

	kase_describe(k, ", way %u", how);
	if (how == 15) {
		return; /* the end, midway */
	}
	if (how >= 8) {
		fatal[how - 8](k, a);
		return;
	}
	refused[how](k, a);
	if (a->group == AUTH_GROUP_NULL && !k->link->ended) {
		walk(k, a, STAGE_DONE);
		if (a->link == k->link) {
			want(k, "to enable", property_set(a->link), ST_OK, ST_OK);
		}
	}
}

/* A host that need not prove anything cannot: there is no transaction, and its queue goes on. */
static void without_key(struct kase *k)
{
	uint16_t cntlid = 0xffff;
	struct auth a;

	kase_describe(k, "without a key");
	if (connect_queue(k, &k->link, &k->facts->at, 0, &cntlid)) {
		auth_begin(&a, k->link, k->facts);
		for (unsigned i = 0, n = 1 + pick(k, 4); i < n; i++) {
			auth_compose(&a, pick(k, 2) ? STAGE_NEGOTIATE : STAGE_SUCCESS2);
			want(k, "a message", pick(k, 2) ? auth_send(&a) : auth_receive(&a), ST_SEQUENCE, ST_SEQUENCE);
		}
		wrong_field(k, &a);
		want(k, "to enable", property_set(k->link), ST_OK, ST_OK);
	}
	link_close(k->link, pick(k, 4) == 0);
}

/* An I/O queue, whose controller has authenticated. */
static void on_io_queue(struct kase *k, struct auth *a, struct link **io, uint16_t cntlid)
{
	if (!walk(k, a, STAGE_DONE)) {
		return;
	}
	want(k, "to enable", property_set(k->link), ST_OK, ST_OK);
	if (connect_queue(k, io, &k->facts->keyed, 1, &cntlid)) {
		bool both = a->both;

		auth_begin(a, *io, k->facts);
		a->both = both;
		if (walk(k, a, pick(k, STAGE_DONE + 1))) {
			spoil(k, a);
		}
	}
}

void run_auth(struct kase *k)
{
	struct link *io = NULL;
	uint16_t cntlid = 0xffff;
	struct auth a;

	if (k->facts->key_len == 0 || pick(k, 8) == 0) {
		without_key(k);
		return;
	}
	bool both = pick(k, 2), is_io = pick(k, 5) == 0;
	enum stage stage = pick(k, STAGE_DONE + 1);
	if (stage == STAGE_SUCCESS2) {
		both = true;
	}
	kase_describe(k, "step %d of an %s queue%s", stage, is_io ? "I/O" : "admin", both ? ", both ways" : "");
	if (connect_queue(k, &k->link, &k->facts->keyed, 0, &cntlid)) {
		auth_begin(&a, k->link, k->facts);
		a.both = both;
		if (is_io) {
			on_io_queue(k, &a, &io, cntlid);
		} else {
			a.group = stage == STAGE_REPLY && pick(k, 4) == 0 ? AUTH_GROUP_2048 : AUTH_GROUP_NULL;
			if (walk(k, &a, stage)) {
				spoil(k, &a);
			}
		}
	}
	link_close(io, pick(k, 4) == 0);
	link_close(k->link, pick(k, 4) == 0);
}
