/* SPDX-License-Identifier: BSD-3-Clause */
/* A discovery controller (Base 3.1.2.3), and a subsystem that reports asymmetric access (Base 8.1): which commands
 * there are, and log pages in pieces of any size and place. */
#include "systest/hostile/cases.h"

#include <stdio.h>

#define PAGE_DISCOVERY 0x70

static const uint8_t zeroes[SLOT_SIZE];

/* A piece of a page (Base 5.16): what comes is what the whole page has there. */
static void log_piece(struct kase *k, uint8_t lid, uint8_t lsp, const struct page *page)
{
	struct step *s = step_add(k, ADM_GET_LOG, 0);
	uint64_t offset = pick(k, page->len / 4 + 1) * UINT64_C(4);
	uint32_t dwords = 1 + pick(k, pick(k, 2) ? 16 : SLOT_SIZE / 4), how = pick(k, 10), cdw14 = 0;

	step_keyed(s, dwords * 4);
	step_expect(s, ST_FIELD, -1);
	switch (how) {
	case 0:
		offset = page->len + 4 + pick(k, 100000) * UINT64_C(4);
		break;
	case 1: /* only its upper half makes it so far */
		offset |= (uint64_t)(1 + pick(k, UINT32_MAX)) << 32;
		break;
	case 2:
		offset |= 1 + pick(k, 3);
		break;
	case 3:
		dwords = k->facts->max_transfer / 4 + 1 + pick(k, 1000000);
		put_keyed(s->bytes + AT_SGL, (uintptr_t)s->data, 0xffffff, memory.remote->rkey, SUB_ADDRESS);
		break;
	case 4:
		step_keyed(s, pick(k, dwords * 4));
		step_expect(s, ST_SGL_LENGTH, -1);
		break;
	case 5: /* an index instead of an offset, or a vendor's page */
		cdw14 = pick(k, 2) ? 1u << 23 : 1 + pick(k, 0x7f);
		break;
	default:
		s->content = page->bytes + offset;
		s->content_len = page->len - offset < dwords * 4 ? (uint32_t)(page->len - offset) : dwords * 4;
		step_window(s, 0, dwords * 4);
		step_expect(s, ST_OK, -1);
		break;
	}
	/* Zeroes are behind its end, for hosts that read it while it gets shorter. */
	if (lid == PAGE_DISCOVERY && how <= 1) {
		s->content = zeroes;
		s->content_len = dwords * 4;
		step_window(s, 0, dwords * 4);
		step_expect(s, ST_OK, -1);
	}
	put32(s->bytes + AT_CDW10, lid | (uint32_t)lsp << 8 | pick(k, 2) << 15 | (dwords - 1) << 16);
	put32(s->bytes + AT_CDW11, (dwords - 1) >> 16 | pick(k, 65536) << 16);
	put64(s->bytes + AT_CDW12, offset);
	put32(s->bytes + AT_CDW14, cdw14);
	kase_describe(k, "page %02x (%02x) from %llx, %u dwords, way %u", lid, lsp, (unsigned long long)offset, dwords,
		      how);
}

/* ---- Discovery ---- */

static void discovery_identify(struct kase *k)
{
	uint8_t cns = (uint8_t)(pick(k, 3) ? pick(k, 0x20) : pick(k, 256));
	struct step *s = step_add(k, ADM_IDENTIFY, pick(k, 2));

	put32(s->bytes + AT_CDW10, cns);
	step_keyed(s, 4096);
	if (cns == 1) {
		step_window(s, 0, 4096);
	}
	step_expect(s, cns == 1 ? ST_OK : ST_FIELD, -1);
	kase_describe(k, "Identify %02x", cns);
}

/* I/O commands among them, and a vendor's. */
static void discovery_opcode(struct kase *k)
{
	struct step *s;
	uint8_t op;

	do {
		op = (uint8_t)(pick(k, 2) ? pick(k, 0x20) : pick(k, 256));
	} while (op == FABRICS || (k->facts->admin_ok[op] & 1) != 0);
	s = step_add(k, op, pick(k, 3));
	step_keyed(s, 512);
	step_expect(s, ST_OPCODE, -1);
	kase_describe(k, "opcode %02x", op);
}

/* What the log page of features names can be read, all else cannot. A mask of events may have any bits. */
static void discovery_feature(struct kase *k)
{
	bool set = pick(k, 3) == 0;
	uint8_t fid = set ? 0x0b : (uint8_t)(pick(k, 2) ? pick(k, 0x20) : pick(k, 256));
	struct step *s = step_add(k, set ? ADM_SET_FEATURES : ADM_GET_FEATURES, 0);

	put32(s->bytes + AT_CDW10, fid | (set ? 0 : pick(k, 4) << 8));
	put32(s->bytes + AT_CDW11, set ? (uint32_t)rng_next(&k->rng) : 0);
	step_keyed(s, 4096);
	step_expect(s, k->facts->feature_ok[fid] ? ST_OK : ST_FIELD, -1);
	kase_describe(k, "feature %02x", fid);
}

static void discovery_no_page(struct kase *k)
{
	struct step *s = step_add(k, ADM_GET_LOG, 0);
	uint8_t lid;

	do {
		lid = (uint8_t)pick(k, 256);
	} while (k->facts->log_ok[lid]);
	put32(s->bytes + AT_CDW10, lid | 127 << 16);
	step_keyed(s, 512);
	step_expect(s, ST_LOG_PAGE, ST_FIELD, -1);
	kase_describe(k, "page %02x", lid);
}

void make_discovery(struct kase *k)
{
	static void (*const others[])(struct kase *) = {discovery_identify, discovery_opcode,    discovery_feature,
							discovery_no_page,  make_admin_property, make_admin_fabrics};

	if (pick(k, 2)) {
		log_piece(k, PAGE_DISCOVERY, (uint8_t)pick(k, 128), &k->facts->page[0]);
	} else {
		others[pick(k, sizeof(others) / sizeof(others[0]))](k);
	}
}

/* ---- A discovery controller of its own ---- */

static uint16_t one_status(struct link *l, uint8_t opcode, uint32_t cdw10, uint32_t cdw11)
{
	uint8_t sqe[SQE_SIZE] = {opcode, FLAG_SGL}, cqe[CQE_SIZE];

	put16(sqe + AT_CID, 0xfffe);
	put32(sqe + AT_CDW10, cdw10);
	put32(sqe + AT_CDW11, cdw11);
	return link_command(l, sqe, SQE_SIZE, cqe) ? get16(cqe + 14) >> 1 & 0x7ff : UINT16_MAX;
}

/* The number of answers with a status, of those that came; the inbox is empty after it. */
static uint32_t count_answers(struct link *l, uint16_t status)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->inbox_len; i++) {
		n += (get16(l->inbox[i] + 14) >> 1 & 0x7ff) == status;
	}
	l->inbox_len = 0;
	return n;
}

/* It has no I/O queues (Base 3.1.2.3). */
static void refuses_queue(struct kase *k, uint16_t cntlid)
{
	uint16_t qid = (uint16_t)(1 + pick(k, pick(k, 2) ? 4 : 65535));
	struct cm_request r = cm_request(qid, IO_ENTRIES);
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE];
	struct link *l;

	if (link_open(&l, &k->facts->at, &r) != 0 || !l->up) {
		kase_fail(k, "the connection was refused");
		link_close(l, false);
		return;
	}
	fill_connect(sqe, link_slot(l, 0), &k->facts->at, 1, qid, IO_ENTRIES, cntlid);
	if (!link_command(l, sqe, SQE_SIZE, cqe) || (get16(cqe + 14) >> 1 & 0x7ff) != ST_CONNECT_PARAM) {
		kase_fail(k, "I/O queue %u: %s", qid, l->ended ? l->why : status_text(get16(cqe + 14) >> 1 & 0x7ff));
	}
	link_close(l, pick(k, 2));
}

/* Events that are held, and those too many; a reset ends all that are held. */
static void event_requests(struct kase *k, struct link *l)
{
	uint8_t off[SQE_SIZE] = {FABRICS, FLAG_SGL, [AT_FCTYPE] = FC_PROPERTY_SET},
		sqe[SQE_SIZE] = {ADM_ASYNC, FLAG_SGL};
	uint32_t n = 1 + pick(k, 20), most = k->facts->aer_max, more = n > most ? n - most : 0;

	for (uint32_t i = 0; i < n; i++) {
		put16(sqe + AT_CID, (uint16_t)i);
		link_send(l, i, sqe, SQE_SIZE);
	}
	if (!link_wait(l, more) || count_answers(l, ST_ASYNC_LIMIT) != more) {
		kase_fail(k, "of %u event requests not %u were too many", n, more);
		return;
	}
	put16(off + AT_CID, 0xfffd);
	put32(off + AT_OFST, REG_CC);
	link_send(l, 0, off, SQE_SIZE);
	if (!link_wait(l, n - more + 1) || count_answers(l, ST_SQ_DELETED) != n - more) {
		kase_fail(k, "a reset did not end %u held event requests", n - more);
	}
}

void run_discovery(struct kase *k)
{
	uint32_t kato = pick(k, 2) ? 60000 + pick(k, 60000) : 0;
	uint16_t cntlid = 0xffff, status, alive;
	uint8_t cqe[CQE_SIZE];
	struct link *l = NULL;

	kase_describe(k, "keep-alive %u", kato);
	if (!link_queue(&l, &k->facts->at, 0, ADMIN_ENTRIES, kato, &cntlid) || !link_enable(l, cqe)) {
		kase_fail(k, "no controller could be had");
		link_close(l, false);
		return;
	}
	if (pick(k, 2)) { /* KATO by Set Features */
		kato = pick(k, 2) ? 60000 + pick(k, 60000) : 0;
		status = one_status(l, ADM_SET_FEATURES, 0x0f, kato);
		if (status != ST_OK) {
			kase_fail(k, "the keep-alive time: %s", status_text(status));
		}
	}
	alive = kato != 0 ? ST_OK : ST_KATO_INVALID;
	status = one_status(l, ADM_KEEP_ALIVE, 0, 0);
	if (status != alive) {
		kase_fail(k, "Keep Alive with %u ms: %s", kato, status_text(status));
	}
	if (pick(k, 2)) {
		refuses_queue(k, cntlid);
	}
	event_requests(k, l);
	link_close(l, pick(k, 2));
}

/* ---- Asymmetric access ---- */

static const struct {
	uint8_t state;
	uint16_t status;
} access_states[] = {{1, ST_OK}, {2, ST_OK}, {3, ST_ANA_INACCESSIBLE}, {4, ST_ANA_LOSS}, {0xf, ST_ANA_TRANSITION}};

static uint16_t access_status(uint8_t state)
{
	for (size_t i = 0; i < sizeof(access_states) / sizeof(access_states[0]); i++) {
		if (access_states[i].state == state) {
			return access_states[i].status;
		}
	}
	return UINT16_MAX;
}

/* Commands that are good by themselves: their namespace's group says what comes of them. */
void make_ana_io(struct kase *k)
{
	static const uint8_t ops[] = {IO_READ,   IO_WRITE, IO_COMPARE, IO_WRITE_ZEROES,
				      IO_VERIFY, IO_FLUSH, IO_DSM,     IO_RESV_REPORT};
	uint8_t op = ops[pick(k, sizeof(ops))];
	uint32_t at = pick(k, k->facts->num_ana), blocks = 1 + pick(k, 8);
	uint16_t status = access_status(k->facts->ana[at].state);
	struct step *s = step_rw(k, op, any_lba(k, blocks), blocks);

	put32(s->bytes + AT_NSID, k->facts->ana[at].nsid);
	if (op == IO_FLUSH || op == IO_WRITE_ZEROES || op == IO_VERIFY) {
		memset(s->bytes + AT_SGL, 0, 16);
	} else if (op == IO_DSM) {
		memset(s->data, 0, 16);
		put64(s->bytes + AT_CDW10, (uint64_t)1 << 34); /* one range of no blocks, to be deallocated */
		put32(s->bytes + AT_CDW12, 0);
		step_keyed(s, 16);
	} else if (op == IO_RESV_REPORT) {
		put32(s->bytes + AT_CDW10, 15);
		put32(s->bytes + AT_CDW11, 1);
		put32(s->bytes + AT_CDW12, 0);
		step_keyed(s, 64);
		step_window(s, 0, 64);
	}
	step_expect(s, status, status == ST_OK && op == IO_COMPARE ? ST_COMPARE : -1, -1);
	kase_describe(k, "opcode %02x to namespace %u in state %x", op, k->facts->ana[at].nsid,
		      k->facts->ana[at].state);
}

void make_ana_admin(struct kase *k)
{
	uint32_t groups_only = pick(k, 2);

	if (pick(k, 4) != 0) { /* RGO is bit 0; the others are reserved */
		log_piece(k, 0x0c, (uint8_t)groups_only, &k->facts->page[groups_only]);
		return;
	}
	struct step *s = step_add(k, ADM_IDENTIFY, k->facts->ana[pick(k, k->facts->num_ana)].nsid);
	step_keyed(s, 4096);
	step_window(s, 0, 4096);
	step_expect(s, ST_OK, -1);
	kase_describe(k, "Identify namespace %u", get32(s->bytes + AT_NSID));
}
