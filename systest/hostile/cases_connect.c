/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections: the private data of a request (RDMA 3.2), Connect (Base 6.3), and what comes before it. */
#include "systest/hostile/cases.h"

#include <stdio.h>

static bool expected(const struct step *s, uint16_t status)
{
	for (unsigned i = 0; i < s->num_ok; i++) {
		if (s->ok[i] == status) {
			return true;
		}
	}
	return false;
}

/* ---- Private data ---- */

/* What must be said of it; the reasons of all that is wrong, as bits. 0: it is to be accepted. */
static uint32_t cm_reasons(const struct facts *f, const struct cm_request *r)
{
	uint16_t qid = get16(r->data + 2), hrqsize = get16(r->data + 4), hsqsize = get16(r->data + 6);
	uint32_t bits = 0;

	/* a connection manager hands over all bytes that its message has room for: those that were not sent are zero */
	bits |= get16(r->data) != 0 ? 1u << CM_RECFMT : 0;
	bits |= hrqsize == 0 ? 1u << CM_HRQSIZE : 0;
	bits |= hsqsize == 0 || hsqsize + 1u > f->max_entries ? 1u << CM_HSQSIZE : 0;
	(void)qid; /* any id may come, Connect says which are good */
	return bits;
}

void run_cm(struct kase *k)
{
	struct cm_request r = cm_request(pick(k, 2) ? 0 : (uint16_t)pick(k, 65536), (uint16_t)(2 + pick(k, 127)));
	struct link *l;

	switch (pick(k, 7)) {
	case 0:
		put16(r.data, (uint16_t)(1 + pick(k, 65535)));
		break;
	case 1:
		put16(r.data + 4, 0);
		break;
	case 2:
		put16(r.data + 6, (uint16_t)(pick(k, 2) ? 0
							: k->facts->max_entries +
								  pick(k, (uint32_t)(65536 - k->facts->max_entries))));
		break;
	case 3:
		r.len = (uint8_t)pick(k, 32);
		memset(r.data + r.len, 0, sizeof(r.data) - r.len);
		break;
	case 4:
		r.len = (uint8_t)(32 + pick(k, 24));
		for (unsigned i = 32; i < r.len; i++) {
			r.data[i] = (uint8_t)rng_next(&k->rng);
		}
		break;
	case 5: /* the reserved part, and the controller id of an I/O queue */
		put16(r.data + 8, (uint16_t)rng_next(&k->rng));
		r.data[10 + pick(k, 22)] = (uint8_t)rng_next(&k->rng);
		break;
	default:
		for (unsigned i = 0; i < 32; i++) {
			r.data[i] = (uint8_t)rng_next(&k->rng);
		}
		break;
	}
	if (pick(k, 3) == 0) { /* how much RDMA READ it wants and grants */
		r.initiator_depth = (uint8_t)rng_next(&k->rng);
		r.responder_resources = (uint8_t)pick(k, 2);
		r.initiator_depth %= 17;
	}
	uint32_t reasons = cm_reasons(k->facts, &r);
	kase_describe(k, "%u bytes, format %u queue %u receives %u sends %u", r.len, get16(r.data), get16(r.data + 2),
		      get16(r.data + 4), get16(r.data + 6));
	if (link_open(&l, &k->facts->at, &r) != 0) {
		kase_fail(k, "the request was not answered");
		return;
	}
	if (reasons == 0 && !l->up) {
		kase_fail(k, "refused with reason %d (%s), though it is good", l->reject, l->why);
	} else if (reasons != 0 && l->up) {
		kase_fail(k, "accepted");
	} else if (reasons != 0 && (l->reject <= 0 || l->reject > 31 || (reasons & 1u << l->reject) == 0)) {
		kase_fail(k, "refused with reason %d, expected one of the bits %x", l->reject, reasons);
	}
	link_close(l, pick(k, 2));
}

/* ---- Connect ---- */

/* Each spoils one thing, or nothing, and says what is to come of it if that is not ST_CONNECT_PARAM. */

static void bad_format(struct kase *k, struct step *s)
{
	put16(s->bytes + AT_RECFMT, (uint16_t)(1 + pick(k, 65535)));
	step_expect(s, ST_CONNECT_FORMAT, -1);
}

static void unknown_controller(struct kase *k, struct step *s)
{
	put16(s->bytes + AT_QID, (uint16_t)(1 + pick(k, 65535)));
	put16(s->data + DATA_CNTLID, (uint16_t)(0xfff0 - pick(k, 100)));
}

static void no_entries(struct kase *k, struct step *s)
{
	put16(s->bytes + AT_SQSIZE, 0);
}

static void too_many_entries(struct kase *k, struct step *s)
{
	uint32_t most = k->facts->max_entries;

	put16(s->bytes + AT_SQSIZE, (uint16_t)(most + pick(k, 65536 - most)));
}

static void bad_subnqn(struct kase *k, struct step *s)
{
	uint8_t *nqn = s->data + DATA_SUBNQN;

	switch (pick(k, 4)) {
	case 0:
		memset(nqn, 0, 256);
		break;
	case 1: /* without an end, and longer than a name can be (Base 4.5: 223 bytes) */
		memset(nqn, 'a', 224 + pick(k, 33));
		break;
	case 2: /* no UTF-8, or a control character */
		nqn[pick(k, 8)] = pick(k, 2) ? (uint8_t)(0xf8 + pick(k, 8)) : (uint8_t)(1 + pick(k, 31));
		break;
	default:
		nqn[pick(k, 8)] ^= 0x15;
		break;
	}
}

static void bad_hostnqn(struct kase *k, struct step *s)
{
	memset(s->data + DATA_HOSTNQN, 'a', 256);
}

/* Taken where any host may come. */
static void no_hostnqn(struct kase *k, struct step *s)
{
	memset(s->data + DATA_HOSTNQN, 0, 256);
	step_expect(s, ST_OK, -1);
}

/* The target gives them out. */
static void own_controller_id(struct kase *k, struct step *s)
{
	put16(s->data + DATA_CNTLID, (uint16_t)pick(k, 0xfff0));
}

static void short_data(struct kase *k, struct step *s)
{
	step_keyed(s, pick(k, CONNECT_DATA));
	step_expect(s, ST_SGL_LENGTH, -1);
}

static void bad_flags(struct kase *k, struct step *s)
{
	s->bytes[AT_FLAGS] = (uint8_t)(pick(k, 4) << 6);
	if (s->bytes[AT_FLAGS] == FLAG_SGL) {
		s->bytes[AT_FLAGS] |= (uint8_t)(1 + pick(k, 3));
	}
	step_expect(s, ST_FIELD, -1);
}

/* Any type but keyed data; the capsule carries nothing. */
static void bad_descriptor(struct kase *k, struct step *s)
{
	unsigned t = pick(k, 15), type = t < SGL_KEYED ? t : t + 1;

	s->bytes[AT_SGL_TYPE] = (uint8_t)(type << 4 | pick(k, 16));
	step_expect(s, ST_SGL_TYPE, ST_SGL_OFFSET, ST_SGL_LENGTH, ST_SGL_SEGMENT, ST_SGL_COUNT, -1);
}

/* As it may be, or cut off. */
static void data_in_capsule(struct kase *k, struct step *s)
{
	bool whole = pick(k, 2);

	memcpy(s->bytes + SQE_SIZE, s->data, CONNECT_DATA);
	put_plain(s->bytes + AT_SGL, SGL_DATA, SUB_OFFSET, 0, CONNECT_DATA);
	s->len = SQE_SIZE + (whole ? CONNECT_DATA : pick(k, CONNECT_DATA));
	if (whole) {
		step_expect(s, ST_OK, -1);
	} else {
		step_expect(s, ST_SGL_LENGTH, ST_SGL_OFFSET, -1);
	}
}

/* Any time-out is one; and any priority. */
static void any_timeout(struct kase *k, struct step *s)
{
	put32(s->bytes + AT_KATO, pick(k, 2) ? UINT32_MAX - pick(k, 10) : 60000 + pick(k, 100000000));
	s->bytes[AT_CATTR] = (uint8_t)pick(k, 8);
	step_expect(s, ST_OK, -1);
}

/* Reserved fields mean nothing. */
static void reserved_fields(struct kase *k, struct step *s)
{
	put32(s->bytes + AT_CDW15, (uint32_t)rng_next(&k->rng));
	s->data[18 + pick(k, 200)] = (uint8_t)rng_next(&k->rng);
	step_expect(s, ST_OK, -1);
}

/* An I/O queue of somebody's controller: this host's name is another one. */
static void another_hosts_queue(struct kase *k, struct step *s)
{
	put16(s->bytes + AT_QID, (uint16_t)(1 + pick(k, 4)));
	put16(s->data + DATA_CNTLID, (uint16_t)(1 + pick(k, 8)));
	memset(s->data + DATA_HOSTID, 0x77, 16);
	step_expect(s, ST_CONNECT_PARAM, ST_CONNECT_HOST, -1);
}

static void random_data(struct kase *k, struct step *s)
{
	for (unsigned i = 0; i < CONNECT_DATA; i += 8) {
		put64(s->data + i, rng_next(&k->rng));
	}
}

static void nothing(struct kase *k, struct step *s)
{
	step_expect(s, ST_OK, -1);
}

static void spoil_connect(struct kase *k, struct step *s)
{
	static void (*const spoil[])(struct kase *, struct step *) = {
		bad_format,  unknown_controller, no_entries,  too_many_entries, bad_subnqn,         bad_hostnqn,
		no_hostnqn,  own_controller_id,  short_data,  bad_flags,        bad_descriptor,     data_in_capsule,
		any_timeout, reserved_fields,    random_data, nothing,          another_hosts_queue};
	unsigned how = pick(k, sizeof(spoil) / sizeof(spoil[0]));

	step_expect(s, ST_CONNECT_PARAM, -1);
	spoil[how](k, s);
	kase_describe(k, "way %u", how);
}

void run_connect(struct kase *k)
{
	struct cm_request r = cm_request(0, ADMIN_ENTRIES);
	static struct step step;
	uint8_t cqe[CQE_SIZE], before[CONNECT_DATA];

	if (link_open(&k->link, &k->facts->at, &r) != 0 || !k->link->up) {
		kase_fail(k, "the connection was refused");
		link_close(k->link, false);
		return;
	}
	k->steps = &step;
	k->slot = 0;
	struct step *s = step_add(k, FABRICS, 0);
	fill_connect(s->bytes, s->data, &k->facts->at, 0x4711, 0, ADMIN_ENTRIES, 0xffff);
	spoil_connect(k, s);
	memcpy(before, s->data, CONNECT_DATA);
	if (!link_command(k->link, s->bytes, s->len, cqe)) {
		kase_fail(k, "no answer (%s)", k->link->ended ? k->link->why : "in time");
	} else if (!expected(s, get16(cqe + 14) >> 1 & 0x7ff)) {
		kase_fail(k, "%s, expected %s", status_text(get16(cqe + 14) >> 1 & 0x7ff), status_text(s->ok[0]));
	} else if (memcmp(before, s->data, CONNECT_DATA) != 0) {
		kase_fail(k, "the target wrote over Connect's data");
	}
	link_close(k->link, pick(k, 4) == 0);
}

/* ---- Before Connect ---- */

static bool one_command(struct kase *k, struct link *l, uint8_t op, uint8_t fctype, unsigned n)
{
	uint8_t sqe[SQE_SIZE] = {op, FLAG_SGL}, cqe[CQE_SIZE];

	put16(sqe + AT_CID, (uint16_t)n);
	if (op == FABRICS) {
		sqe[AT_FCTYPE] = fctype;
	} else {
		put32(sqe + AT_NSID, k->facts->nsid);
	}
	put_keyed(sqe + AT_SGL, (uintptr_t)link_slot(l, n), 4096, memory.remote->rkey, SUB_ADDRESS);
	if (!link_command(l, sqe, SQE_SIZE, cqe)) {
		if (!l->ended) {
			kase_fail(k, "opcode %02x was not answered", op);
		}
		return false; /* to end the connection is an answer too */
	}
	uint16_t status = get16(cqe + 14) >> 1 & 0x7ff;
	if (status != ST_SEQUENCE && !(op == FABRICS && (status == ST_OPCODE || status == ST_FIELD))) {
		kase_fail(k, "opcode %02x before Connect: %s", op, status_text(status));
		return false;
	}
	return true;
}

/* An I/O queue that is connected although its controller is not enabled. */
static void io_before_enable(struct kase *k)
{
	struct cm_request admin = cm_request(0, ADMIN_ENTRIES), io = cm_request(1, IO_ENTRIES);
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE];
	struct link *a = NULL, *q = NULL;

	kase_describe(k, "an I/O queue before the controller is enabled");
	if (link_open(&a, &k->facts->at, &admin) != 0 || link_open(&q, &k->facts->at, &io) != 0) {
		kase_fail(k, "the connection was refused");
		goto out;
	}
	fill_connect(sqe, link_slot(a, 0), &k->facts->at, 1, 0, ADMIN_ENTRIES, 0xffff);
	if (!link_command(a, sqe, SQE_SIZE, cqe) || get16(cqe + 14) >> 1 != ST_OK) {
		kase_fail(k, "Connect failed");
		goto out;
	}
	fill_connect(sqe, link_slot(q, 0), &k->facts->at, 2, 1, IO_ENTRIES, get16(cqe));
	uint16_t status = link_command(q, sqe, SQE_SIZE, cqe) ? get16(cqe + 14) >> 1 & 0x7ff : 0xffff;
	if (status != ST_SEQUENCE && status != ST_CONNECT_PARAM && status != ST_CONNECT_BUSY) {
		kase_fail(k, "%s", status_text(status));
	}
out:
	link_close(q, false);
	link_close(a, false);
}

void run_order(struct kase *k)
{
	static const uint8_t admin[] = {ADM_IDENTIFY, ADM_GET_LOG, ADM_KEEP_ALIVE, ADM_ASYNC, ADM_GET_FEATURES,
					ADM_ABORT,    0x55};
	static const uint8_t io[] = {IO_READ, IO_WRITE, IO_FLUSH, IO_DSM, IO_COMPARE, IO_RESV_REGISTER, 0x55};
	static const uint8_t fabrics[] = {FC_PROPERTY_SET, FC_PROPERTY_GET, 5, 6, 8, 0xc0};
	bool is_io = pick(k, 2);
	struct cm_request r = cm_request(is_io ? 1 : 0, ADMIN_ENTRIES);
	struct link *l;

	if (pick(k, 6) == 0) {
		io_before_enable(k);
		return;
	}
	kase_describe(k, "commands before Connect on an %s queue", is_io ? "I/O" : "admin");
	if (link_open(&l, &k->facts->at, &r) != 0 || !l->up) {
		kase_fail(k, "the connection was refused");
		link_close(l, false);
		return;
	}
	for (unsigned i = 1, n = 1 + pick(k, 6); i <= n; i++) {
		bool f = pick(k, 3) == 0;
		if (!one_command(k, l,
				 f       ? FABRICS
				 : is_io ? io[pick(k, 7)]
					 : admin[pick(k, 7)],
				 fabrics[pick(k, 6)], i)) {
			break;
		}
	}
	link_close(l, pick(k, 4) == 0);
}
