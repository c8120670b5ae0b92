/* SPDX-License-Identifier: BSD-3-Clause */
/* Namespaces whose blocks have metadata, with protection information in it or without: NVM 5.2. Over fabrics, metadata
 * lie behind the data of each block (Base 3.3.1.2), and the metadata pointer means nothing. No bad block is ever
 * stored, so that checks of what is read pass. */
#include "systest/hostile/cases.h"

#define PI_BYTES 8
#define ESCAPE   0xffff /* an application tag that switches checks off */

/* A command that is good until it is spoilt. */
struct md {
	struct kase *k;
	struct step *s;
	const struct md_ns *ns;
	uint64_t lba;
	uint32_t blocks;
	uint32_t info;     /* of dword 12 */
	uint16_t app;      /* in the blocks */
	uint16_t app_told; /* in the command */
};

static bool is_stripped(const struct md *m)
{
	return (m->info & PI_ACT) != 0 && m->ns->pi_type != 0 && m->ns->md == PI_BYTES;
}

static uint32_t block_bytes(const struct md *m)
{
	return m->ns->block_size + (is_stripped(m) ? 0 : m->ns->md);
}

/* Of T10, bit by bit. */
static uint16_t crc16(const uint8_t *p, uint32_t len)
{
	uint16_t crc = 0;

	for (uint32_t i = 0; i < len; i++) {
		crc ^= (uint16_t)(p[i] << 8);
		for (int bit = 0; bit < 8; bit++) {
			crc = (uint16_t)(crc << 1 ^ (crc & 0x8000 ? 0x8bb7 : 0));
		}
	}
	return crc;
}

static void put_be16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* Where the protection information of a block is. */
static uint8_t *pi_of(const struct md *m, uint32_t block)
{
	return m->s->data + (size_t)block * block_bytes(m) + m->ns->block_size +
	       (m->ns->pi_first ? 0 : m->ns->md - PI_BYTES);
}

static void put_ref(uint8_t *pi, uint32_t ref)
{
	put_be16(pi + 4, (uint16_t)(ref >> 16));
	put_be16(pi + 6, (uint16_t)ref);
}

static void fill(struct md *m)
{
	uint32_t bytes = block_bytes(m);

	memset(m->s->data, (int)pick(m->k, 256), (size_t)m->blocks * bytes);
	if (m->ns->pi_type == 0 || is_stripped(m)) {
		return;
	}
	for (uint32_t i = 0; i < m->blocks; i++) {
		const uint8_t *block = m->s->data + (size_t)i * bytes;
		uint8_t *pi = pi_of(m, i);
		uint32_t guarded = m->ns->block_size + (m->ns->pi_first ? 0 : m->ns->md - PI_BYTES);

		put_be16(pi, crc16(block, guarded));
		put_be16(pi + 2, m->app);
		put_ref(pi, (uint32_t)m->lba + (m->ns->pi_type == 3 ? 0 : i));
	}
}

/* The command, from what has been chosen; its data are filled in if it brings some. */
static void set_command(struct md *m, uint8_t opcode, uint32_t info)
{
	struct step *s = m->s;

	m->info = info;
	s->bytes[AT_OPCODE] = opcode;
	put64(s->bytes + AT_CDW10, m->lba);
	put32(s->bytes + AT_CDW12, (m->blocks - 1) | info);
	put32(s->bytes + AT_CDW14, (uint32_t)m->lba);
	put32(s->bytes + AT_CDW15, UINT32_C(0xffff0000) | m->app_told);
	s->num_windows = 0;
	step_keyed(s, m->blocks * block_bytes(m));
	if (opcode == IO_READ) {
		step_window(s, 0, m->blocks * block_bytes(m));
	} else if (opcode == IO_WRITE || opcode == IO_COMPARE) {
		fill(m);
	}
}

/* What can be asked for of this type: the reference tag of type 3 cannot be checked. */
static uint32_t some_checks(struct md *m)
{
	return (pick(m->k, 2) ? PI_GUARD : 0) | (m->ns->pi_type != 3 && pick(m->k, 2) ? PI_REF : 0);
}

static struct md some_md(struct kase *k)
{
	const struct facts *f = k->facts;
	struct md m = {.k = k, .ns = &f->md[pick(k, f->num_md)]};
	uint32_t most = SLOT_SIZE / (m.ns->block_size + m.ns->md);

	m.s = step_add(k, IO_WRITE, m.ns->nsid);
	m.blocks = 1 + pick(k, most < 4 ? most : 4);
	m.lba = rng_next(&k->rng) % (m.ns->num_blocks - m.blocks + 1);
	m.app = m.app_told = (uint16_t)pick(k, ESCAPE);
	step_expect(m.s, ST_OK, -1);
	return m;
}

/* ---- What is well ---- */

static void good_write(struct md *m)
{
	set_command(m, IO_WRITE, some_checks(m) | (pick(m->k, 2) ? PI_APP : 0));
}

static void good_read(struct md *m)
{
	set_command(m, IO_READ, some_checks(m));
}

/* Blocks of another host's making: they may differ in any of their bytes. */
static void good_compare(struct md *m)
{
	set_command(m, IO_COMPARE, some_checks(m));
	step_expect(m->s, ST_OK, ST_COMPARE, -1);
}

static void without_data(struct md *m)
{
	set_command(m, pick(m->k, 2) ? IO_VERIFY : IO_WRITE_ZEROES, some_checks(m));
}

/* The controller makes what is written, so what came in its place is not looked at; and leaves out what is read. */
static void made_or_stripped(struct md *m)
{
	set_command(m, pick(m->k, 2) ? IO_READ : IO_WRITE, PI_ACT | some_checks(m));
	if (m->s->bytes[AT_OPCODE] == IO_WRITE && m->ns->pi_type != 0 && !is_stripped(m)) {
		memset(pi_of(m, 0), 0x11, PI_BYTES);
	}
}

/* Over fabrics, with metadata behind the data, there is nothing that this pointer could point at. */
static void any_metadata_pointer(struct md *m)
{
	good_write(m);
	put64(m->s->bytes + AT_MPTR, rng_next(&m->k->rng));
	put64(m->s->bytes + 8, rng_next(&m->k->rng));
}

/* Whatever the guard and the reference tag are: they are not checked. */
static void escaped(struct md *m)
{
	m->app = ESCAPE;
	set_command(m, IO_WRITE, some_checks(m) | PI_APP);
	if (m->ns->pi_type != 0) {
		put_be16(pi_of(m, 0), (uint16_t)pick(m->k, 65536));
		put_ref(pi_of(m, 0), UINT32_MAX);
	}
	for (uint32_t i = 1; i < m->blocks && m->ns->pi_type == 3; i++) {
		put_ref(pi_of(m, i), UINT32_MAX);
	}
}

/* ---- Wrong tags ---- */

static void wrong_guard(struct md *m)
{
	set_command(m, IO_WRITE, PI_GUARD | some_checks(m));
	if (m->ns->pi_type != 0) {
		m->s->data[pick(m->k, m->blocks) * block_bytes(m) + pick(m->k, m->ns->block_size)] ^= 0x40;
		step_expect(m->s, ST_GUARD, -1);
	}
}

static void wrong_app(struct md *m)
{
	m->app_told = m->app ^ (uint16_t)(1u << pick(m->k, 16));
	set_command(m, IO_WRITE, PI_APP | some_checks(m));
	if (m->ns->pi_type != 0) {
		step_expect(m->s, ST_APP, -1);
	}
}

/* Blocks that are for elsewhere. */
static void wrong_ref(struct md *m)
{
	set_command(m, IO_WRITE, PI_REF | (pick(m->k, 2) ? PI_GUARD : 0));
	if (m->ns->pi_type == 1 || m->ns->pi_type == 2) {
		put_ref(pi_of(m, pick(m->k, m->blocks)), (uint32_t)m->lba + m->blocks + pick(m->k, 1000));
		step_expect(m->s, ST_REF, -1);
	} else if (m->ns->pi_type == 3) {
		step_expect(m->s, ST_INVALID_PI, -1);
	}
}

/* Of type 1 it is the address, and can be no other; a block that nobody has written passes. */
static void wrong_ref_in_command(struct md *m)
{
	static const uint8_t opcodes[] = {IO_READ, IO_WRITE, IO_COMPARE, IO_VERIFY};
	uint8_t op = opcodes[pick(m->k, 4)];

	set_command(m, op, PI_REF);
	put32(m->s->bytes + AT_CDW14, (uint32_t)m->lba + 1 + pick(m->k, 100000));
	if (m->ns->pi_type == 1 || m->ns->pi_type == 3) {
		step_expect(m->s, ST_INVALID_PI, -1);
	} else if (m->ns->pi_type == 2 && op == IO_WRITE) {
		step_expect(m->s, ST_REF, -1);
	} else {
		step_expect(m->s, ST_OK, m->ns->pi_type == 2 ? ST_REF : ST_COMPARE, op == IO_COMPARE ? ST_COMPARE : -1,
			    -1);
	}
}

/* Each of them would be reason enough. */
static void all_wrong(struct md *m)
{
	m->app_told = m->app ^ 1;
	set_command(m, IO_WRITE, PI_GUARD | PI_APP | PI_REF);
	if (m->ns->pi_type == 0) {
		return;
	}
	m->s->data[0] ^= 0x40;
	put_ref(pi_of(m, 0), (uint32_t)m->lba + 77);
	step_expect(m->s, ST_GUARD, ST_APP, ST_REF, m->ns->pi_type == 3 ? ST_INVALID_PI : -1, -1);
}

/* ---- Lengths and places ---- */

static void short_list(struct md *m)
{
	uint32_t whole;

	set_command(m, pick(m->k, 2) ? IO_READ : IO_WRITE, some_checks(m) | (pick(m->k, 3) == 0 ? PI_ACT : 0));
	whole = m->blocks * block_bytes(m);
	step_keyed(m->s, pick(m->k, 2) && !is_stripped(m) ? m->blocks * m->ns->block_size : pick(m->k, whole));
	step_expect(m->s, ST_SGL_LENGTH, -1);
}

static void long_list(struct md *m)
{
	set_command(m, pick(m->k, 2) ? IO_READ : IO_WRITE, some_checks(m) | (pick(m->k, 3) == 0 ? PI_ACT : 0));
	uint32_t whole = m->blocks * block_bytes(m);
	step_keyed(m->s, whole + pick(m->k, SLOT_SIZE - whole));
}

static void bad_flags(struct md *m)
{
	static const uint8_t psdt[] = {0x00, 0x80, 0xc0}; /* 80h: metadata by a list of their own */

	good_write(m);
	m->s->bytes[AT_FLAGS] = psdt[pick(m->k, 3)];
	put64(m->s->bytes + AT_MPTR, (uintptr_t)m->s->data);
	step_expect(m->s, ST_FIELD, -1);
}

static void beyond(struct md *m)
{
	static const uint8_t opcodes[] = {IO_READ, IO_WRITE, IO_COMPARE, IO_VERIFY, IO_WRITE_ZEROES};
	uint8_t op = opcodes[pick(m->k, 5)];

	m->lba = m->ns->num_blocks - m->blocks + 1 + (pick(m->k, 2) ? rng_next(&m->k->rng) >> 1 : 0);
	set_command(m, op, some_checks(m));
	m->s->num_windows = 0;
	step_expect(m->s, ST_LBA_RANGE, -1);
}

/* MDTS counts data; metadata come on top of them. */
static void too_long(struct md *m)
{
	uint32_t blocks = m->k->facts->max_transfer / m->ns->block_size;

	set_command(m, pick(m->k, 2) ? IO_READ : IO_WRITE, 0);
	m->s->num_windows = 0;
	put64(m->s->bytes + AT_CDW10, 0);
	put32(m->s->bytes + AT_CDW12, blocks); /* one more than fits */
	put_keyed(m->s->bytes + AT_SGL, (uintptr_t)m->s->data, 0xffffff, memory.remote->rkey, SUB_ADDRESS);
	step_expect(m->s, ST_FIELD, -1);
}

/* Data and metadata in the capsule, as they may be, or cut off. */
static void in_capsule(struct md *m)
{
	uint32_t whole, here;

	m->blocks = 1;
	good_write(m);
	whole = here = m->blocks * block_bytes(m);
	if (whole > m->k->facts->icd_max) {
		return;
	}
	if (pick(m->k, 2)) {
		here = pick(m->k, 2) ? m->ns->block_size : pick(m->k, whole);
		step_expect(m->s, ST_SGL_LENGTH, -1);
	}
	memcpy(m->s->bytes + SQE_SIZE, m->s->data, here);
	m->s->len = SQE_SIZE + here;
	put_plain(m->s->bytes + AT_SGL, SGL_DATA, SUB_OFFSET, 0, here);
}

/* Without metadata, the fields of protection information mean nothing. */
static void plain(struct kase *k)
{
	uint32_t blocks = 1 + pick(k, 4);
	struct step *s = step_rw(k, pick(k, 2) ? IO_READ : IO_WRITE, any_lba(k, blocks), blocks);

	put32(s->bytes + AT_CDW12, (blocks - 1) | pick(k, 16) << 26);
	put32(s->bytes + AT_CDW14, (uint32_t)rng_next(&k->rng));
	put32(s->bytes + AT_CDW15, (uint32_t)rng_next(&k->rng));
	put64(s->bytes + AT_MPTR, rng_next(&k->rng));
	step_expect(s, ST_OK, -1);
	kase_describe(k, "plain blocks");
}

void make_io_md(struct kase *k)
{
	static void (*const spoil[])(struct md *) = {
		good_write, good_read,  good_compare, without_data, made_or_stripped, any_metadata_pointer,
		escaped,    wrong_app,  wrong_guard,  wrong_guard,  wrong_ref,        wrong_ref_in_command,
		all_wrong,  short_list, long_list,    bad_flags,    beyond,           too_long,
		in_capsule};
	unsigned how = pick(k, sizeof(spoil) / sizeof(spoil[0]) + 1);

	if (how == sizeof(spoil) / sizeof(spoil[0]) || k->facts->num_md == 0) {
		plain(k);
		return;
	}
	struct md m = some_md(k);
	spoil[how](&m);
	kase_describe(k, "way %u, opcode %02x of namespace %u: %u+%u bytes, type %u", how, m.s->bytes[0], m.ns->nsid,
		      m.ns->block_size, m.ns->md, m.ns->pi_type);
}
