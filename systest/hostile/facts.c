/* SPDX-License-Identifier: BSD-3-Clause */
/* What the target says of itself: Identify, and the log pages of what is supported. */
#include "systest/hostile/cases.h"

#include <stdio.h>

/* One admin command with data, of 4096 bytes or a slot; what came stays in slot 1. */
static bool ask(struct session *s, uint8_t op, uint32_t nsid, uint32_t cdw10, uint8_t *cqe)
{
	uint8_t sqe[SQE_SIZE] = {op, FLAG_SGL, 1};

	put32(sqe + AT_NSID, nsid);
	put32(sqe + AT_CDW10, cdw10);
	put_keyed(sqe + AT_SGL, (uintptr_t)link_slot(s->admin, 1), op == ADM_GET_LOG ? SLOT_SIZE : 4096,
		  memory.remote->rkey, SUB_ADDRESS);
	return link_command(s->admin, sqe, SQE_SIZE, cqe) && get16(cqe + 14) >> 1 == ST_OK;
}

static bool get_log(struct session *s, uint8_t lid, uint32_t bytes, uint8_t *cqe)
{
	return ask(s, ADM_GET_LOG, 0, lid | (bytes / 4 - 1) << 16, cqe);
}

static bool get_ctrlr(struct facts *f, struct session *s, uint8_t *cqe)
{
	const uint8_t *id = link_slot(s->admin, 1);

	if (!ask(s, ADM_IDENTIFY, 0, 1, cqe)) {
		return false;
	}
	f->max_transfer = id[77] != 0 ? 4096u << id[77] : UINT32_MAX;
	f->aer_max = id[259] + 1u;
	f->max_entries = get16(id + 514);
	f->nn = get32(id + 516);
	f->has_pair = get16(id + 522) & 1;
	f->icd_max = get32(id + 1792) * 16 - SQE_SIZE;
	f->max_descs = id[1803];
	if (f->icd_max > CAPSULE_MAX - SQE_SIZE) {
		f->icd_max = CAPSULE_MAX - SQE_SIZE;
	}
	return true;
}

static bool get_supported(struct facts *f, struct session *s, uint8_t *cqe)
{
	const uint8_t *log = link_slot(s->admin, 1);

	if (!get_log(s, 5, 4096, cqe)) { /* Commands Supported and Effects */
		return false;
	}
	for (unsigned i = 0; i < 256; i++) {
		f->admin_ok[i] = get32(log + i * 4);
		f->io_ok[i] = get32(log + 1024 + i * 4);
	}
	if (!get_log(s, 0, 1024, cqe)) { /* Supported Log Pages */
		return false;
	}
	for (unsigned i = 0; i < 256; i++) {
		f->log_ok[i] = get32(log + i * 4) & 1;
	}
	if (!get_log(s, 0x12, 1024, cqe)) { /* Feature Identifiers Supported and Effects */
		return false;
	}
	for (unsigned i = 0; i < 256; i++) {
		f->feature_ok[i] = get32(log + i * 4) & 1;
	}
	return true;
}

static bool get_ns(struct facts *f, struct session *s, uint8_t *cqe)
{
	const uint8_t *id = link_slot(s->admin, 1);

	if (!ask(s, ADM_IDENTIFY, f->nsid, 0, cqe) || get64(id) == 0) {
		return false;
	}
	f->num_blocks = get64(id);
	f->block_size = 1u << id[128 + 4 * (id[26] & 0xf) + 2];
	f->copy_range_blocks = get16(id + 74);
	f->copy_blocks = get32(id + 76);
	f->copy_ranges = id[80] + 1u;
	return true;
}

/* Those of the namespaces that this host is shown. */
static bool get_md(struct facts *f, struct session *s, uint8_t *cqe)
{
	const uint8_t *id = link_slot(s->admin, 1);
	uint8_t list[4096];

	if (!ask(s, ADM_IDENTIFY, 0, 2, cqe)) { /* Active Namespace ID list */
		return false;
	}
	memcpy(list, id, sizeof(list));
	for (unsigned i = 0; i < sizeof(list) && get32(list + i) != 0 && f->num_md < MD_NS_MAX; i += 4) {
		if (!ask(s, ADM_IDENTIFY, get32(list + i), 0, cqe)) {
			return false;
		}
		const uint8_t *format = id + 128 + 4 * (id[26] & 0xf);
		if (get16(format) != 0) {
			f->md[f->num_md++] = (struct md_ns){.nsid = get32(list + i),
							    .num_blocks = get64(id),
							    .block_size = 1u << format[2],
							    .md = get16(format),
							    .pi_type = id[29] & 7,
							    .pi_first = id[29] >> 3 & 1};
		}
	}
	return true;
}

/* ---- Log pages ---- */

static bool get_page(struct page *page, struct session *s, uint32_t cdw10, uint8_t *cqe)
{
	if (!ask(s, ADM_GET_LOG, 0, cdw10 | (SLOT_SIZE / 4 - 1) << 16, cqe)) {
		return false;
	}
	memcpy(page->bytes, link_slot(s->admin, 1), sizeof(page->bytes));
	return true;
}

/* Base figure 263: a kilobyte, and one for each entry. */
static bool get_discovery(struct facts *f, struct session *s, uint8_t *cqe)
{
	struct page *page = &f->page[0];
	uint64_t entries = get_page(page, s, 0x70, cqe) ? get64(page->bytes + 8) : 0;

	page->len = (uint32_t)(1024 + entries * 1024);
	return entries != 0 && entries < sizeof(page->bytes) / 1024;
}

/* Base figure 217: groups one after the other, each with the namespaces in it. */
static bool parse_ana(struct facts *f, struct page *page)
{
	uint32_t at = 16;

	for (unsigned groups = get16(page->bytes + 8); groups != 0 && at + 32 <= sizeof(page->bytes); groups--) {
		const uint8_t *group = page->bytes + at;
		for (at += 32; at < (uint32_t)(group - page->bytes) + 32 + get32(group + 4) * 4 && f->num_ana < ANA_MAX;
		     at += 4) {
			f->ana[f->num_ana].nsid = get32(page->bytes + at);
			f->ana[f->num_ana++].state = group[16] & 0xf;
		}
	}
	page->len = at;
	return f->num_ana < ANA_MAX;
}

static bool get_ana(struct facts *f, struct session *s, uint8_t *cqe)
{
	if (!get_page(&f->page[0], s, 0x0c, cqe) || !get_page(&f->page[1], s, 0x0c | 1 << 8, cqe) ||
	    !parse_ana(f, &f->page[1]) || f->num_ana != 0 || !parse_ana(f, &f->page[0]) || f->num_ana == 0) {
		return false;
	}
	f->nsid = f->ana[0].nsid;
	return f->ana[0].state == 1; /* the first can be used: lanes do */
}

/* ---- All together ---- */

typedef bool (*get_fn)(struct facts *f, struct session *s, uint8_t *cqe);

static int get_all(struct facts *f, const get_fn *get)
{
	uint8_t cqe[CQE_SIZE];
	struct session s;
	bool ok = true;

	if (!session_open(&s, &f->at, false)) {
		fprintf(stderr, "no controller of %s at %s port %s\n", f->at.subnqn, f->at.ip, f->at.port);
		return -1;
	}
	for (; ok && *get != NULL; get++) {
		ok = (*get)(f, &s, cqe);
	}
	if (!ok) {
		fprintf(stderr, "%s did not say what it is\n", f->at.subnqn);
	}
	session_close(&s, false);
	return ok ? 0 : -1;
}

int facts_get(struct facts *f, const struct address *at, uint32_t nsid, uint32_t hidden)
{
	static const get_fn get[] = {get_ctrlr, get_supported, get_ns, get_md, NULL};

	*f = (struct facts){.at = *at, .nsid = nsid, .hidden = hidden};
	return get_all(f, get);
}

int facts_get_discovery(struct facts *f, const struct address *at)
{
	static const get_fn get[] = {get_ctrlr, get_supported, get_discovery, NULL};

	*f = (struct facts){.at = *at};
	return get_all(f, get);
}

int facts_get_ana(struct facts *f, const struct address *at)
{
	static const get_fn get[] = {get_ctrlr, get_supported, get_ana, get_ns, NULL};

	*f = (struct facts){.at = *at};
	return get_all(f, get);
}
