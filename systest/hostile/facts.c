/* SPDX-License-Identifier: BSD-3-Clause */
/* What the target says of itself: Identify, and the log pages of what is supported. */
#include "systest/hostile/cases.h"

#include <stdio.h>

/* One admin command with 4096 bytes of data; what came stays in slot 1. */
static bool ask(struct session *s, uint8_t op, uint32_t nsid, uint32_t cdw10, uint8_t *cqe)
{
	uint8_t sqe[SQE_SIZE] = {op, FLAG_SGL, 1};

	put32(sqe + AT_NSID, nsid);
	put32(sqe + AT_CDW10, cdw10);
	put_keyed(sqe + AT_SGL, (uintptr_t)link_slot(s->admin, 1), 4096, memory.remote->rkey, SUB_ADDRESS);
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

int facts_get(struct facts *f, const struct address *at, uint32_t nsid, uint32_t hidden)
{
	uint8_t cqe[CQE_SIZE];
	struct session s;
	int rc = -1;

	*f = (struct facts){.at = *at, .nsid = nsid, .hidden = hidden};
	if (!session_open(&s, at, false)) {
		fprintf(stderr, "no controller of %s at %s port %s\n", at->subnqn, at->ip, at->port);
		return -1;
	}
	if (!get_ctrlr(f, &s, cqe) || !get_supported(f, &s, cqe) || !get_ns(f, &s, cqe) ||
	    !get_md(f, &s, cqe)) {
		fprintf(stderr, "the target did not say what it is\n");
	} else {
		rc = 0;
	}
	session_close(&s, false);
	return rc;
}
