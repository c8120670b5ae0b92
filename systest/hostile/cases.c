/* SPDX-License-Identifier: BSD-3-Clause */
/* The kinds of cases, and what their generators share. */
#include "systest/hostile/cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Weights are parts of their sum. A case with a connection of its own costs a hundred times as much as a capsule. */
const struct kind kinds[] = {
	{"io good", 55, LANE_IO, make_io_good},
	{"io header", 95, LANE_IO, make_io_header},
	{"io range", 95, LANE_IO, make_io_range},
	{"io dataset management", 35, LANE_IO, make_io_dsm},
	{"io copy", 45, LANE_IO, make_io_copy},
	{"io metadata", 60, LANE_IO, make_io_md},
	{"io fused", 75, LANE_IO, make_io_fused},
	{"io fabrics", 20, LANE_IO, make_io_fabrics},
	{"io reservation", 40, LANE_IO, make_io_resv},
	{"sgl type", 85, LANE_IO, make_sgl_type},
	{"sgl length", 55, LANE_IO, make_sgl_length},
	{"sgl in capsule", 70, LANE_IO, make_sgl_capsule},
	{"sgl list", 90, LANE_IO, make_sgl_list},
	{"admin header", 35, LANE_ADMIN, make_admin_header},
	{"admin identify", 30, LANE_ADMIN, make_admin_identify},
	{"admin log page", 30, LANE_ADMIN, make_admin_log},
	{"admin feature", 30, LANE_ADMIN, make_admin_feature},
	{"admin property", 25, LANE_ADMIN, make_admin_property},
	{"admin fabrics", 15, LANE_ADMIN, make_admin_fabrics},
	{"admin abort", 10, LANE_ADMIN, make_admin_abort},
	{"wild io", 55, LANE_WILD_IO, make_wild_io},
	{"wild admin", 20, LANE_WILD_ADMIN, make_wild_admin},
	{"discovery", 35, LANE_DISCOVERY, make_discovery},
	{"ana io", 25, LANE_ANA_IO, make_ana_io},
	{"ana admin", 20, LANE_ANA_ADMIN, make_ana_admin},
	{"connection request", 20, LANE_OWN, run_cm},
	{"connect", 20, LANE_OWN, run_connect},
	{"authentication", 14, LANE_OWN, run_auth},
	{"order", 12, LANE_OWN, run_order},
	{"key", 8, LANE_OWN, run_key},
	{"send", 8, LANE_OWN, run_send},
	{"flood", 5, LANE_OWN, run_flood},
	{"no receive", 5, LANE_OWN, run_no_receive},
	{"midway", 8, LANE_OWN, run_midway},
	{"one-sided", 8, LANE_OWN, run_one_sided},
	{"asynchronous events", 3, LANE_OWN, run_async},
	{"controller state", 5, LANE_OWN, run_state},
	{"discovery controller", 3, LANE_OWN_DISCOVERY, run_discovery},
	{"admin flood", 4, LANE_OWN, run_admin_flood},
	{"half open", 4, LANE_OWN, run_half_open},
	{"reservations", 6, LANE_OWN_RESERVED, run_reservations},
};
const unsigned num_kinds = sizeof(kinds) / sizeof(kinds[0]);

struct step *step_add(struct kase *k, uint8_t opcode, uint32_t nsid)
{
	struct step *s = &k->steps[k->num_steps];

	memset(s, 0, sizeof(*s));
	s->len = SQE_SIZE;
	s->bytes[AT_OPCODE] = opcode;
	s->bytes[AT_FLAGS] = FLAG_SGL;
	put32(s->bytes + AT_NSID, nsid);
	s->slot = k->slot + k->num_steps;
	s->data = link_slot(k->link, s->slot);
	k->step[k->num_steps++] = s;
	return s;
}

void step_expect(struct step *s, ...)
{
	va_list ap;

	s->num_ok = 0;
	va_start(ap, s);
	for (int status; (status = va_arg(ap, int)) >= 0 && s->num_ok < STATUSES;) {
		s->ok[s->num_ok++] = (uint16_t)status;
	}
	va_end(ap);
}

void step_window(struct step *s, uint32_t at, uint32_t len)
{
	if (s->num_windows < WINDOWS) {
		s->window[s->num_windows].at = (uint32_t)(s->slot * SLOT_SIZE) + at;
		s->window[s->num_windows++].len = len;
	}
}

void step_keyed(struct step *s, uint32_t len)
{
	put_keyed(s->bytes + AT_SGL, (uintptr_t)s->data, len, memory.remote->rkey, SUB_ADDRESS);
}

uint64_t any_lba(struct kase *k, uint32_t blocks)
{
	return rng_next(&k->rng) % (k->facts->num_blocks - blocks + 1);
}

uint64_t lba_beyond(struct kase *k, uint32_t blocks)
{
	uint64_t end = k->facts->num_blocks;

	switch (pick(k, 4)) {
	case 0:
		return end - blocks + 1;
	case 1:
		return end + pick(k, 1000);
	case 2:
		return UINT64_MAX - pick(k, 70000);
	default:
		return end + rng_next(&k->rng) % (UINT64_MAX - end);
	}
}

void fill_rw(const struct facts *f, uint8_t *sqe, uint8_t op, uint16_t cid, uint64_t slba, uint64_t address,
	     uint32_t key)
{
	memset(sqe, 0, SQE_SIZE);
	sqe[AT_OPCODE] = op;
	sqe[AT_FLAGS] = FLAG_SGL;
	put16(sqe + AT_CID, cid);
	put32(sqe + AT_NSID, f->nsid);
	put64(sqe + AT_CDW10, slba);
	put_keyed(sqe + AT_SGL, address, f->block_size, key, SUB_ADDRESS);
}

struct step *step_rw(struct kase *k, uint8_t opcode, uint64_t slba, uint32_t blocks)
{
	struct step *s = step_add(k, opcode, k->facts->nsid);
	uint32_t len = blocks * k->facts->block_size;

	put64(s->bytes + AT_CDW10, slba);
	put32(s->bytes + AT_CDW12, (blocks - 1) & 0xffff);
	if (opcode == IO_READ) {
		step_window(s, 0, len);
	} else {
		uint8_t fill = (uint8_t)pick(k, 3);
		memset(s->data, fill, len < SLOT_SIZE ? len : SLOT_SIZE);
	}
	step_keyed(s, len);
	return s;
}

void kase_describe(struct kase *k, const char *format, ...)
{
	size_t at = strlen(k->what);
	va_list ap;

	va_start(ap, format);
	vsnprintf(k->what + at, sizeof(k->what) - at, format, ap);
	va_end(ap);
}

/* Every status that a target of NVM namespaces may answer with (Base figures 95 to 98, NVM figures 16 and 17). */
static const struct {
	uint16_t from, to;
} defined[] = {{0x000, 0x016}, {0x018, 0x024}, {0x080, 0x084}, {0x100, 0x103}, {0x105, 0x130},
	       {0x180, 0x187}, {0x190, 0x192}, {0x280, 0x288}, {0x300, 0x303}, {0x360, 0x370}};

bool status_exists(uint16_t status)
{
	for (size_t i = 0; i < sizeof(defined) / sizeof(defined[0]); i++) {
		if (status >= defined[i].from && status <= defined[i].to) {
			return true;
		}
	}
	return false;
}

const char *status_text(uint16_t status)
{
	static const struct {
		uint16_t status;
		const char *text;
	} names[] = {
		{ST_OK, "Success"},
		{ST_OPCODE, "Invalid Opcode"},
		{ST_FIELD, "Invalid Field"},
		{ST_NAMESPACE, "Invalid Namespace"},
		{ST_SEQUENCE, "Command Sequence Error"},
		{ST_SGL_SEGMENT, "Invalid SGL Segment"},
		{ST_SGL_COUNT, "Invalid SGL Count"},
		{ST_SGL_LENGTH, "SGL Length Invalid"},
		{ST_SGL_TYPE, "SGL Type Invalid"},
		{ST_SGL_OFFSET, "SGL Offset Invalid"},
		{ST_LBA_RANGE, "LBA Out of Range"},
		{ST_FUSED_FAILED, "Failed Fused"},
		{ST_FUSED_MISSING, "Missing Fused"},
		{ST_COMPARE, "Compare Failure"},
		{ST_ANA_LOSS, "Asymmetric Access Persistent Loss"},
		{ST_ANA_INACCESSIBLE, "Asymmetric Access Inaccessible"},
		{ST_ANA_TRANSITION, "Asymmetric Access Transition"},
		{ST_RESV_CONFLICT, "Reservation Conflict"},
		{ST_COPY_LIMIT, "Command Size Limit Exceeded"},
		{ST_INVALID_PI, "Invalid Protection Information"},
		{ST_GUARD, "End-to-end Guard Check Error"},
		{ST_APP, "End-to-end Application Tag Check Error"},
		{ST_REF, "End-to-end Reference Tag Check Error"},
		{ST_OVERLAP, "Overlapping I/O Range"},
		{ST_LOG_PAGE, "Invalid Log Page"},
		{ST_CONNECT_FORMAT, "Connect Incompatible Format"},
		{ST_CONNECT_PARAM, "Connect Invalid Parameters"},
		{ST_CONNECT_HOST, "Connect Invalid Host"},
		{ST_NOT_SAVEABLE, "Not Saveable"},
		{ST_NOT_PER_NS, "Not Namespace Specific"},
		{ST_ASYNC_LIMIT, "Asynchronous Event Limit"},
		{ST_ABORT_LIMIT, "Abort Limit"},
		{ST_AUTH_REQUIRED, "Authentication Required"},
		{ST_HOSTID_FORMAT, "Host Id Format"},
	};
	static char number[4][16];
	static unsigned next;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].status == status) {
			return names[i].text;
		}
	}
	char *text = number[next++ % 4];
	snprintf(text, sizeof(number[0]), "status %03x", status);
	return text;
}
