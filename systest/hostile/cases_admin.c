/* SPDX-License-Identifier: BSD-3-Clause */
/* Admin commands: opcodes, Identify, Get Log Page, features, properties, Abort. */
#include "systest/hostile/cases.h"

static struct step *identify(struct kase *k, uint32_t cns, uint32_t nsid)
{
	struct step *s = step_add(k, ADM_IDENTIFY, nsid);

	put32(s->bytes + AT_CDW10, cns);
	step_keyed(s, 4096);
	return s;
}

void make_admin_header(struct kase *k)
{
	static const uint8_t psdt[] = {0x00, 0x80, 0xc0};
	struct step *s = identify(k, 1, 0);
	uint8_t op;

	switch (pick(k, 3)) {
	case 0:
		s->bytes[AT_FLAGS] = psdt[pick(k, 3)];
		step_expect(s, ST_FIELD, -1);
		break;
	case 1: /* no admin commands can be fused (Base 3.4.2, FUSES) */
		s->bytes[AT_FLAGS] |= (uint8_t)(1 + pick(k, 3));
		step_expect(s, ST_FIELD, ST_FUSED_MISSING, -1);
		step_expect(step_add(k, ADM_KEEP_ALIVE, 0), ST_OK, ST_KATO_INVALID,
			    -1); /* so that a first half is not waited for */
		break;
	default: /* I/O commands among them, and those of queues in memory, which fabrics do not have */
		do {
			op = (uint8_t)(pick(k, 3) == 0 ? pick(k, 6) : pick(k, 256));
		} while (op == FABRICS || (k->facts->admin_ok[op] & 1) != 0);
		s->bytes[AT_OPCODE] = op;
		step_expect(s, ST_OPCODE, -1);
		break;
	}
	kase_describe(k, "opcode %02x flags %02x", s->bytes[0], s->bytes[1]);
}

void make_admin_identify(struct kase *k)
{
	uint32_t invalid = k->facts->nn + 1 + (uint32_t)(rng_next(&k->rng) % (UINT32_MAX - k->facts->nn - 2));
	uint32_t how = pick(k, 7), nsid = pick(k, 3) == 0 ? 0 : invalid;
	struct step *s;

	switch (how) {
	case 0: /* reserved structures */
		s = identify(k, 0x40 + pick(k, 0xc0), 0);
		step_expect(s, ST_FIELD, -1);
		break;
	case 1:
		s = identify(k, pick(k, 2) ? 0 : 3, nsid);
		step_expect(s, ST_NAMESPACE, -1);
		break;
	case 2: /* a list that begins behind the last id there can be */
		s = identify(k, 2, UINT32_MAX - pick(k, 2));
		step_expect(s, ST_NAMESPACE, -1);
		break;
	case 3: /* command sets that the target does not have */
		s = identify(k, 5 + pick(k, 3), k->facts->nsid);
		put32(s->bytes + AT_CDW11, (1 + pick(k, 255)) << 24);
		step_expect(s, ST_FIELD, 0x129, 0x12b, 0x12c, -1);
		break;
	case 4:
		s = identify(k, 1, 0);
		step_keyed(s, pick(k, 4096));
		step_expect(s, ST_SGL_LENGTH, -1);
		break;
	case 5: /* another host's namespace is, for this one, inactive */
		s = identify(k, 0, k->facts->hidden);
		step_window(s, 0, 4096);
		step_expect(s, ST_OK, -1);
		break;
	default:
		s = identify(k, 1, 0);
		step_window(s, 0, 4096);
		step_expect(s, ST_OK, -1);
		break;
	}
	kase_describe(k, "structure %02x nsid %x", s->bytes[AT_CDW10], get32(s->bytes + AT_NSID));
}

static uint8_t unsupported(struct kase *k, const bool *ok)
{
	uint8_t id;

	do {
		id = (uint8_t)pick(k, 256);
	} while (ok[id]);
	return id;
}

void make_admin_log(struct kase *k)
{
	struct step *s = step_add(k, ADM_GET_LOG, UINT32_MAX);
	uint32_t how = pick(k, 6), dwords = 128, lid = 2;

	step_keyed(s, 512);
	switch (how) {
	case 0:
		lid = unsupported(k, k->facts->log_ok);
		step_expect(s, ST_LOG_PAGE, ST_FIELD, -1);
		break;
	case 1: /* dword aligned (Base 5.16) */
		put32(s->bytes + AT_CDW12, pick(k, 127) * 4 + 1 + pick(k, 3));
		step_expect(s, ST_FIELD, -1);
		break;
	case 2: /* longer than the longest transfer */
		dwords = k->facts->max_transfer / 4 + 1 + pick(k, 100000000);
		put_keyed(s->bytes + AT_SGL, (uintptr_t)s->data, 0xffffff, memory.remote->rkey, SUB_ADDRESS);
		step_expect(s, ST_FIELD, dwords * UINT64_C(4) > 0xffffff ? ST_SGL_LENGTH : -1, -1);
		break;
	case 3: /* behind the end */
		put32(s->bytes + AT_CDW12, 516 + pick(k, 100000) * 4);
		put32(s->bytes + AT_CDW13, pick(k, 2) ? (uint32_t)rng_next(&k->rng) : 0);
		step_expect(s, ST_FIELD, -1);
		break;
	case 4:
		step_keyed(s, pick(k, 512));
		step_expect(s, ST_SGL_LENGTH, -1);
		break;
	default:
		step_window(s, 0, 512);
		step_expect(s, ST_OK, -1);
		break;
	}
	put32(s->bytes + AT_CDW10, lid | ((dwords - 1) & 0xffff) << 16);
	put32(s->bytes + AT_CDW11, (dwords - 1) >> 16);
	kase_describe(k, "page %02x, %u dwords, way %u", lid, dwords, how);
}

void make_admin_feature(struct kase *k)
{
	bool set = pick(k, 2);
	struct step *s = step_add(k, set ? ADM_SET_FEATURES : ADM_GET_FEATURES, 0);
	uint32_t cdw10 = 4; /* Temperature Threshold */

	step_keyed(s, 4096);
	switch (pick(k, 5)) {
	case 0:
		cdw10 = unsupported(k, k->facts->feature_ok);
		step_expect(s, ST_FIELD, -1);
		break;
	case 1: /* a reserved choice of value; Set has no such field, but nothing can be saved here */
		cdw10 |= set ? UINT32_C(1) << 31 : (4 + pick(k, 4)) << 8;
		step_expect(s, set ? ST_NOT_SAVEABLE : ST_FIELD, -1);
		break;
	case 2: /* a controller's feature for one namespace */
		put32(s->bytes + AT_NSID, k->facts->nsid);
		put32(s->bytes + AT_CDW11, 0x140);
		step_expect(s, set ? ST_NOT_PER_NS : ST_OK, set ? -1 : ST_FIELD, -1);
		break;
	case 3: /* a reserved type of threshold */
		put32(s->bytes + AT_CDW11, (2 + pick(k, 2)) << 20);
		step_expect(s, ST_FIELD, -1);
		break;
	default: /* Host Identifier: its data; it was set by Connect */
		cdw10 = 0x81;
		put32(s->bytes + AT_CDW11, 1);
		step_keyed(s, pick(k, 16));
		step_expect(s, ST_SGL_LENGTH, ST_SEQUENCE, ST_NOT_CHANGEABLE, -1);
		break;
	}
	put32(s->bytes + AT_CDW10, cdw10);
	kase_describe(k, "opcode %02x dword 10 %x", s->bytes[0], cdw10);
}

/* Which there are, and their sizes: Base 3.1.3. */
void make_admin_property(struct kase *k)
{
	static const uint32_t none[] = {0x0c, 0x10, 0x18,   0x24,   0x28,       0x30,
					0x38, 0x40, 0x0fff, 0x1000, 0xfffffffc, 0xffffffff};
	bool set = pick(k, 2);
	struct step *s = step_add(k, FABRICS, 0);
	uint32_t offset = REG_VS, attrib = 0;

	s->bytes[AT_FCTYPE] = set ? FC_PROPERTY_SET : FC_PROPERTY_GET;
	switch (pick(k, 4)) {
	case 0:
		offset = pick(k, 2) ? none[pick(k, sizeof(none) / sizeof(none[0]))]
				    : 0x1000 + (uint32_t)(rng_next(&k->rng) % 0xffffe000);
		step_expect(s, ST_FIELD, -1);
		break;
	case 1: /* sizes that are none, or the other one */
		attrib = pick(k, 2) ? 2 + pick(k, 6) : 1;
		step_expect(s, ST_FIELD, -1);
		break;
	case 2: /* CAP, VS and CSTS can only be read */
		offset = pick(k, 3) == 0 ? REG_CAP : pick(k, 2) ? REG_VS : REG_CSTS;
		attrib = offset == REG_CAP;
		put64(s->bytes + AT_VALUE, rng_next(&k->rng));
		step_expect(s, set ? ST_FIELD : ST_OK, -1);
		break;
	default:
		s->bytes[AT_FLAGS] |= (uint8_t)(1 + pick(k, 3));
		step_expect(s, ST_FIELD, -1);
		break;
	}
	s->bytes[AT_ATTRIB] = (uint8_t)attrib;
	put32(s->bytes + AT_OFST, offset);
	kase_describe(k, "%s %x attributes %x flags %02x", set ? "set" : "get", offset, attrib, s->bytes[1]);
}

/* Connect once more; and types that there are not. (5 and 6 are those of authentication, 8 is Disconnect.) */
void make_admin_fabrics(struct kase *k)
{
	struct step *s = step_add(k, FABRICS, 0);
	uint8_t type = pick(k, 2) ? FC_CONNECT : (uint8_t)(9 + pick(k, 247));

	if (type == FC_CONNECT) {
		fill_connect(s->bytes, s->data, &k->facts->at, 0, (uint16_t)pick(k, 3), 32, 0xffff);
		step_expect(s, ST_SEQUENCE, -1);
	} else {
		s->bytes[AT_FCTYPE] = type;
		step_expect(s, ST_OPCODE, ST_FIELD, -1);
	}
	kase_describe(k, "type %02x", type);
}

/* What is not found was not aborted: a success that says so in bit 0 (Base 5.1), also if the queue is not there. */
void make_admin_abort(struct kase *k)
{
	struct step *s = step_add(k, ADM_ABORT, 0);
	uint32_t sqid = pick(k, 2) ? 0 : pick(k, 65536);

	put32(s->bytes + AT_CDW10, sqid | (0xf000 + pick(k, 0x1000)) << 16);
	step_expect(s, ST_OK, ST_ABORT_LIMIT, -1);
	s->dw0_bit0 = true;
	kase_describe(k, "queue %u", sqid);
}
