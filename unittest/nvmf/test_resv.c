/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations as a machine: decoding its commands, what they do, the file. */
#include <errno.h>
#include "unittest/unit.h"
#include "nvmf/resv.h"

enum { A = 0xa, B = 0xb, C = 0xc, D = 0xd };

#define CONFLICT NVME_ST_DNR(GENERIC, RESERVATION_CONFLICT)
#define INVALID  NVME_ST_DNR(GENERIC, INVALID_FIELD)

static struct nvmf_resv r;
static struct nvmf_resv_notices notices;
static uint16_t where;

static const uint8_t *host(uint8_t who)
{
	static uint8_t id[NVMF_HOSTID_SIZE];

	memset(id, who, sizeof(id));
	return id;
}

static uint16_t reg(uint8_t who, uint8_t action, bool ignore, uint64_t crkey, uint64_t nrkey)
{
	struct nvmf_resv_register cmd = {.action = action, .ignore_key = ignore, .crkey = crkey, .nrkey = nrkey};

	return nvmf_resv_register(&r, host(who), &cmd, &notices, &where);
}

static uint16_t acquire(uint8_t who, uint8_t action, uint8_t type, uint64_t prkey)
{
	struct nvmf_resv_acquire cmd = {.action = action, .type = type, .crkey = who, .prkey = prkey};

	return nvmf_resv_acquire(&r, host(who), &cmd, &notices, &where);
}

static uint16_t release(uint8_t who, uint8_t action, uint8_t type)
{
	struct nvmf_resv_release cmd = {.action = action, .type = type, .crkey = who};

	return nvmf_resv_release(&r, host(who), &cmd, &notices, &where);
}

/* A, B and C are registered with their own numbers as keys. */
static void begin(void)
{
	memset(&r, 0, sizeof(r));
	CU_ASSERT_EQUAL(reg(A, 0, false, 0, A), 0);
	CU_ASSERT_EQUAL(reg(B, 0, false, 0, B), 0);
	CU_ASSERT_EQUAL(reg(C, 0, false, 0, C), 0);
}

static void held_by(uint8_t who, uint8_t type)
{
	begin();
	CU_ASSERT_EQUAL(acquire(who, 0, type, 0), 0);
}

static bool told(uint8_t who, uint8_t what)
{
	for (unsigned i = 0; i < notices.num; i++) {
		if (notices.hosts[i].hostid[0] == who) {
			return notices.hosts[i].what == what;
		}
	}
	return false;
}

static bool is_registered(uint8_t who)
{
	for (unsigned i = 0; i < r.num_registrants; i++) {
		if (r.registrants[i].hostid[0] == who) {
			return true;
		}
	}
	return false;
}

static bool holds(uint8_t who)
{
	for (unsigned i = 0; i < r.num_registrants; i++) {
		if (r.registrants[i].hostid[0] == who) {
			return nvmf_resv_holds(&r, i);
		}
	}
	return false;
}

/* ---- Decoding ---- */

static void test_commands_are_decoded(void)
{
	struct nvme_sqe sqe = {.cdw10 = htole32(2 | 1 << 3 | 3u << 30)};
	uint64_t keys[2] = {htole64(0x1122334455667788), htole64(0x99)};
	struct nvmf_resv_register rg;
	struct nvmf_resv_acquire aq;
	struct nvmf_resv_release rl;
	struct nvmf_resv_report rp;

	CU_ASSERT_EQUAL(nvmf_decode_resv_register(&sqe, keys, &rg, &where), 0);
	CU_ASSERT(rg.action == 2 && rg.ignore_key && rg.change_ptpl == 3);
	CU_ASSERT(rg.crkey == 0x1122334455667788 && rg.nrkey == 0x99);
	sqe.cdw10 = htole32(1 | 6 << 8);
	CU_ASSERT_EQUAL(nvmf_decode_resv_acquire(&sqe, keys, &aq, &where), 0);
	CU_ASSERT(aq.action == 1 && aq.type == 6 && aq.crkey == 0x1122334455667788 && aq.prkey == 0x99);
	sqe.cdw10 = htole32(1 | 9 << 8); /* clear: of no type */
	CU_ASSERT_EQUAL(nvmf_decode_resv_release(&sqe, keys, &rl, &where), 0);
	CU_ASSERT(rl.action == 1 && rl.crkey == 0x1122334455667788);
	sqe.cdw10 = htole32(1 << 3 | 6 << 8); /* IEKEY: Linux before 6.0 */
	CU_ASSERT_EQUAL(nvmf_decode_resv_release(&sqe, keys, &rl, &where), 0);
	CU_ASSERT(rl.action == 0 && rl.type == 6 && rl.crkey == 0x1122334455667788);
	sqe.cdw10 = htole32(UINT32_MAX);
	sqe.cdw11 = htole32(1);
	CU_ASSERT_EQUAL(nvmf_decode_resv_report(&sqe, &rp, &where), 0);
	CU_ASSERT_EQUAL(rp.length, UINT64_C(1) << 34);
}

static void test_wrong_fields_are_named(void)
{
	struct nvme_sqe sqe = {0};
	uint64_t keys[2] = {0};
	struct nvmf_resv_register rg;
	struct nvmf_resv_acquire aq;
	struct nvmf_resv_release rl;
	struct nvmf_resv_report rp;

	sqe.cdw10 = htole32(3);
	CU_ASSERT_EQUAL(nvmf_decode_resv_register(&sqe, keys, &rg, &where), INVALID);
	CU_ASSERT_EQUAL(where, NVMF_WHERE_CDW10);
	CU_ASSERT_EQUAL(nvmf_decode_resv_acquire(&sqe, keys, &aq, &where), INVALID);
	CU_ASSERT_EQUAL(where, NVMF_WHERE_CDW10);
	sqe.cdw10 = htole32(2);
	CU_ASSERT_EQUAL(nvmf_decode_resv_release(&sqe, keys, &rl, &where), INVALID);
	CU_ASSERT_EQUAL(where, NVMF_WHERE_CDW10);
	sqe.cdw10 = htole32(1u << 30);
	CU_ASSERT_EQUAL(nvmf_decode_resv_register(&sqe, keys, &rg, &where), INVALID);
	CU_ASSERT_EQUAL(where, NVMF_WHERE(43, 6));
	sqe.cdw10 = htole32(1 << 3 | 1 << 8);
	CU_ASSERT_EQUAL(nvmf_decode_resv_acquire(&sqe, keys, &aq, &where), INVALID);
	CU_ASSERT_EQUAL(where, NVMF_WHERE(40, 3));
	static const uint8_t bad_types[] = {0, 7, 255};
	for (size_t i = 0; i < sizeof(bad_types); i++) {
		sqe.cdw10 = htole32((uint32_t)bad_types[i] << 8);
		CU_ASSERT_EQUAL(nvmf_decode_resv_acquire(&sqe, keys, &aq, &where), INVALID);
		CU_ASSERT_EQUAL(where, NVMF_WHERE(41, 0));
	}
	CU_ASSERT_EQUAL(nvmf_decode_resv_report(&sqe, &rp, &where), NVME_ST_DNR(GENERIC, HOSTID_FORMAT));
	CU_ASSERT_EQUAL(where, NVMF_WHERE_CDW11);
}

/* ---- Register ---- */

static void test_registering(void)
{
	begin();
	CU_ASSERT_EQUAL(r.generation, 3);
	CU_ASSERT_EQUAL(reg(A, 0, false, 0, A), 0); /* again with the same key */
	CU_ASSERT_EQUAL(reg(A, 0, false, 0, 7), CONFLICT);
	CU_ASSERT_EQUAL(reg(A, 2, false, 9, 7), CONFLICT);
	CU_ASSERT_EQUAL(reg(A, 2, false, A, 7), 0);
	CU_ASSERT_EQUAL(reg(A, 2, true, 9, A), 0);
	CU_ASSERT_EQUAL(reg(D, 2, false, 0, D), CONFLICT);
	CU_ASSERT_EQUAL(reg(D, 2, true, 0, D), 0);
	CU_ASSERT_EQUAL(r.num_registrants, 4);
	CU_ASSERT_EQUAL(reg(D, 1, false, 9, 0), CONFLICT);
	CU_ASSERT_EQUAL(reg(D, 1, false, D, 0), 0);
	CU_ASSERT_EQUAL(reg(D, 1, true, D, 0), CONFLICT);
	CU_ASSERT_EQUAL(r.num_registrants, 3);
	CU_ASSERT_EQUAL(r.generation, 8);
}

static void test_registrants_are_bounded(void)
{
	struct nvmf_resv_register cmd = {.nrkey = 1};
	uint8_t id[NVMF_HOSTID_SIZE] = {1};

	memset(&r, 0, sizeof(r));
	for (unsigned i = 0; i < NVMF_RESV_REGISTRANTS_MAX; i++) {
		id[1] = (uint8_t)i;
		CU_ASSERT_EQUAL(nvmf_resv_register(&r, id, &cmd, &notices, &where), 0);
	}
	id[1] = NVMF_RESV_REGISTRANTS_MAX;
	CU_ASSERT_EQUAL(nvmf_resv_register(&r, id, &cmd, &notices, &where), NVME_ST_DNR(GENERIC, INTERNAL));
	CU_ASSERT_EQUAL(r.generation, NVMF_RESV_REGISTRANTS_MAX);
	cmd.action = 2;
	cmd.ignore_key = true;
	CU_ASSERT_EQUAL(nvmf_resv_register(&r, id, &cmd, &notices, &where), NVME_ST_DNR(GENERIC, INTERNAL));
	/* All of them but one are told at once, and the one is left. */
	struct nvmf_resv_acquire take = {.action = 0, .type = NVME_RESERVATION_RTYPE_EAAR, .crkey = 1};
	id[1] = 20;
	CU_ASSERT_EQUAL(nvmf_resv_acquire(&r, id, &take, &notices, &where), 0);
	take.action = 1;
	CU_ASSERT_EQUAL(nvmf_resv_acquire(&r, id, &take, &notices, &where), 0);
	CU_ASSERT_EQUAL(notices.num, NVMF_RESV_REGISTRANTS_MAX - 1);
	CU_ASSERT(r.num_registrants == 1 && r.registrants[0].hostid[1] == 20 && nvmf_resv_holds(&r, 0));
}

static void test_persistence_is_changed_by_register(void)
{
	struct nvmf_resv_register cmd = {.nrkey = 1, .change_ptpl = 3};

	memset(&r, 0, sizeof(r));
	CU_ASSERT_EQUAL(nvmf_resv_register(&r, host(A), &cmd, &notices, &where), 0);
	CU_ASSERT_TRUE(r.ptpl);
	cmd.change_ptpl = 0;
	CU_ASSERT_EQUAL(nvmf_resv_register(&r, host(A), &cmd, &notices, &where), 0);
	CU_ASSERT_TRUE(r.ptpl);
	cmd.change_ptpl = 2;
	CU_ASSERT_EQUAL(nvmf_resv_register(&r, host(A), &cmd, &notices, &where), 0);
	CU_ASSERT_FALSE(r.ptpl);
}

static void test_reservation_ends_with_its_holders_registration(void)
{
	held_by(B, NVME_RESERVATION_RTYPE_WE);
	CU_ASSERT_EQUAL(reg(A, 1, false, A, 0), 0); /* not the holder, but before it in the list */
	CU_ASSERT_TRUE(holds(B));
	CU_ASSERT_EQUAL(reg(B, 1, false, B, 0), 0);
	CU_ASSERT(r.type == 0 && notices.num == 0);

	held_by(B, NVME_RESERVATION_RTYPE_WERO);
	CU_ASSERT_EQUAL(reg(B, 1, false, B, 0), 0);
	CU_ASSERT(r.type == 0 && notices.num == 2);
	CU_ASSERT(told(A, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED) &&
		  told(C, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED));

	held_by(B, NVME_RESERVATION_RTYPE_EAAR);
	CU_ASSERT_EQUAL(reg(B, 1, false, B, 0), 0);
	CU_ASSERT_EQUAL(reg(A, 1, false, A, 0), 0);
	CU_ASSERT(r.type == NVME_RESERVATION_RTYPE_EAAR && holds(C));
	CU_ASSERT_EQUAL(reg(C, 1, false, C, 0), 0);
	CU_ASSERT_EQUAL(r.type, 0);
}

/* ---- Acquire and release ---- */

static void test_acquiring(void)
{
	held_by(A, NVME_RESERVATION_RTYPE_WE);
	CU_ASSERT_EQUAL(r.generation, 3); /* not counted */
	CU_ASSERT(holds(A) && !holds(B));
	CU_ASSERT_EQUAL(acquire(A, 0, NVME_RESERVATION_RTYPE_WE, 0), 0);
	CU_ASSERT_EQUAL(acquire(A, 0, NVME_RESERVATION_RTYPE_EA, 0), CONFLICT);
	CU_ASSERT_EQUAL(acquire(B, 0, NVME_RESERVATION_RTYPE_WE, 0), CONFLICT);
	CU_ASSERT_EQUAL(acquire(D, 0, NVME_RESERVATION_RTYPE_WE, 0), CONFLICT); /* not registered */
	CU_ASSERT_EQUAL(reg(C, 2, true, 0, 9), 0);
	CU_ASSERT_EQUAL(release(C, 0, NVME_RESERVATION_RTYPE_WE), CONFLICT); /* not its key */
	held_by(A, NVME_RESERVATION_RTYPE_WEAR);
	CU_ASSERT(holds(A) && holds(B) && holds(C));
	CU_ASSERT_EQUAL(acquire(B, 0, NVME_RESERVATION_RTYPE_WEAR, 0), 0);
	CU_ASSERT_EQUAL(acquire(B, 0, NVME_RESERVATION_RTYPE_EAAR, 0), CONFLICT);
}

static void test_releasing(void)
{
	for (uint8_t type = 1; type <= 6; type++) {
		held_by(A, type);
		CU_ASSERT_EQUAL(release(A, 0, type % 6 + 1), INVALID);
		CU_ASSERT_EQUAL(where, NVMF_WHERE(41, 0));
		if (type < 5) {
			CU_ASSERT_EQUAL(release(B, 0, type), 0); /* of no effect */
			CU_ASSERT_EQUAL(r.type, type);
		}
		CU_ASSERT_EQUAL(release(D, 0, type), CONFLICT);
		CU_ASSERT_EQUAL(release(A, 0, type), 0);
		CU_ASSERT(r.type == 0 && r.num_registrants == 3);
		CU_ASSERT_EQUAL(notices.num, type >= 3 ? 2 : 0);
		CU_ASSERT_EQUAL(told(B, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED), type >= 3);
		CU_ASSERT_EQUAL(release(A, 0, type), 0); /* nothing is held */
	}
}

static void test_clearing(void)
{
	held_by(A, NVME_RESERVATION_RTYPE_EA);
	CU_ASSERT_EQUAL(release(D, 1, 0), CONFLICT);
	CU_ASSERT_EQUAL(release(B, 1, 0), 0);
	CU_ASSERT(r.type == 0 && r.num_registrants == 0 && r.generation == 4);
	CU_ASSERT(notices.num == 2 && told(A, NVME_RESV_NOTIFY_RNLPT_RESERVATION_PREEMPTED) &&
		  told(C, NVME_RESV_NOTIFY_RNLPT_RESERVATION_PREEMPTED));
}

/* ---- Preempt ---- */

static void test_preempting_the_holder(void)
{
	held_by(A, NVME_RESERVATION_RTYPE_WERO);
	CU_ASSERT_EQUAL(acquire(B, 1, NVME_RESERVATION_RTYPE_EA, A), 0);
	CU_ASSERT(r.type == NVME_RESERVATION_RTYPE_EA && holds(B) && !is_registered(A) && is_registered(C));
	CU_ASSERT(notices.num == 2 && told(A, NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED) &&
		  told(C, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED));
	CU_ASSERT_EQUAL(r.generation, 4);

	held_by(A, NVME_RESERVATION_RTYPE_WERO); /* the same type: nobody else notices */
	CU_ASSERT_EQUAL(acquire(C, 2, NVME_RESERVATION_RTYPE_WERO, A), 0);
	CU_ASSERT(holds(C) && notices.num == 1);

	held_by(A, NVME_RESERVATION_RTYPE_WE); /* itself: another type */
	CU_ASSERT_EQUAL(acquire(A, 1, NVME_RESERVATION_RTYPE_EA, A), 0);
	CU_ASSERT(r.type == NVME_RESERVATION_RTYPE_EA && holds(A) && r.num_registrants == 3);
}

static void test_preempting_a_registration(void)
{
	held_by(A, NVME_RESERVATION_RTYPE_WE);
	CU_ASSERT_EQUAL(acquire(C, 1, NVME_RESERVATION_RTYPE_EA, B), 0);
	CU_ASSERT(r.type == NVME_RESERVATION_RTYPE_WE && holds(A) && !is_registered(B) && is_registered(C));
	CU_ASSERT_EQUAL(acquire(C, 1, NVME_RESERVATION_RTYPE_EA, B), CONFLICT); /* nobody has that key */
	CU_ASSERT_EQUAL(acquire(C, 1, NVME_RESERVATION_RTYPE_EA, 0), INVALID);
	CU_ASSERT_EQUAL(acquire(D, 1, NVME_RESERVATION_RTYPE_EA, A), CONFLICT);

	begin(); /* nobody holds anything, nor will */
	CU_ASSERT_EQUAL(reg(D, 0, false, 0, B), 0);
	CU_ASSERT_EQUAL(acquire(A, 1, NVME_RESERVATION_RTYPE_WE, B), 0);
	CU_ASSERT(r.type == 0 && r.num_registrants == 2 && is_registered(A) && is_registered(C));
	CU_ASSERT_EQUAL(acquire(A, 1, NVME_RESERVATION_RTYPE_WE, 0x99), CONFLICT);
}

static void test_preempting_all_registrants(void)
{
	held_by(A, NVME_RESERVATION_RTYPE_EAAR);
	CU_ASSERT_EQUAL(acquire(C, 1, NVME_RESERVATION_RTYPE_WE, A), 0); /* one of many */
	CU_ASSERT(r.type == NVME_RESERVATION_RTYPE_EAAR && !is_registered(A) && holds(B) && holds(C));
	CU_ASSERT_EQUAL(acquire(C, 1, NVME_RESERVATION_RTYPE_WE, 0), 0); /* all others */
	CU_ASSERT(r.type == NVME_RESERVATION_RTYPE_WE && r.num_registrants == 1 && holds(C));
	CU_ASSERT(notices.num == 1 && told(B, NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED));
}

/* ---- Who may do what (NVM 2.1.1) ---- */

static void test_types_leave_to_others_what_they_say(void)
{
	static const struct {
		bool other_reads, other_writes, registrant_reads, registrant_writes;
	} allowed[] = {
		[0] = {true, true, true, true},
		[NVME_RESERVATION_RTYPE_WE] = {true, false, true, false},
		[NVME_RESERVATION_RTYPE_EA] = {false, false, false, false},
		[NVME_RESERVATION_RTYPE_WERO] = {true, false, true, true},
		[NVME_RESERVATION_RTYPE_EARO] = {false, false, true, true},
		[NVME_RESERVATION_RTYPE_WEAR] = {true, false, true, true},
		[NVME_RESERVATION_RTYPE_EAAR] = {false, false, true, true},
	};

	for (uint8_t type = 0; type <= 6; type++) {
		begin();
		if (type != 0) {
			held_by(A, type);
		}
		CU_ASSERT_FALSE(nvmf_resv_conflicts(&r, host(A), false));
		CU_ASSERT_FALSE(nvmf_resv_conflicts(&r, host(A), true));
		CU_ASSERT_EQUAL(nvmf_resv_conflicts(&r, host(B), false), !allowed[type].registrant_reads);
		CU_ASSERT_EQUAL(nvmf_resv_conflicts(&r, host(B), true), !allowed[type].registrant_writes);
		CU_ASSERT_EQUAL(nvmf_resv_conflicts(&r, host(D), false), !allowed[type].other_reads);
		CU_ASSERT_EQUAL(nvmf_resv_conflicts(&r, host(D), true), !allowed[type].other_writes);
	}
}

/* ---- The file ---- */

static const uint8_t uuid[16] = {0x11, 0x22, 0x33};
static char text[NVMF_RESV_FILE_MAX];

static void test_file_brings_everything_back(void)
{
	struct nvmf_resv got;
	unsigned line;

	for (uint8_t type = 0; type <= 6; type++) {
		begin();
		if (type != 0) {
			held_by(B, type);
		}
		r.ptpl = true;
		size_t len = nvmf_resv_file_encode(&r, uuid, text);
		CU_ASSERT_EQUAL(nvmf_resv_file_decode(text, len, uuid, &got, &line), 0);
		CU_ASSERT_TRUE(nvmf_resv_equal(&r, &got));
		CU_ASSERT_EQUAL(got.generation, 0); /* it counts anew after a restart */
	}
	const uint8_t other[16] = {9};
	CU_ASSERT_EQUAL(nvmf_resv_file_decode(text, strlen(text), other, &got, &line), -EINVAL);
	/* Cut anywhere: not accepted. */
	size_t len = strlen(text);
	for (size_t n = 0; n < len; n++) {
		CU_ASSERT_EQUAL(nvmf_resv_file_decode(text, n, uuid, &got, &line), -EBADMSG);
	}
}

#define HEAD   "varve-reservation 1\nnamespace 11223300000000000000000000000000\npersist 1\n"
#define HOST_A "registrant 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a 000000000000000a"
#define HOST_B "registrant 0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b 000000000000000b"

static void test_damaged_files_are_refused_with_the_line(void)
{
	static const struct {
		const char *text;
		unsigned line;
	} cases[] = {
		{"", 1},
		{"end\n", 1},
		{"varve-reservation 2\n", 1},
		{"varve-reservation 1\nnamespace 1122\n", 2},
		{"varve-reservation 1\nnamespace 112233000000000000000000000000zz\n", 2},
		{HEAD "type 7\nend\n", 4},
		{HEAD "type 0\nend", 5},
		{HEAD "type 0\nend\n\n", 6},
		{HEAD "type 0\nend\nend\n", 6},
		{HEAD "type 0\n" HOST_A " holder\nend\n", 7},                    /* of nothing */
		{HEAD "type 1\n" HOST_A "\nend\n", 7},                           /* by nobody */
		{HEAD "type 1\n" HOST_A " holder\n" HOST_B " holder\nend\n", 8}, /* by two */
		{HEAD "type 5\n" HOST_A " holder\n" HOST_B "\nend\n", 8},        /* not by all */
		{HEAD "type 6\nend\n", 6},
		{HEAD "type 0\n" HOST_A "\n" HOST_A "\nend\n", 6}, /* twice */
		{HEAD "type 0\n" HOST_A "0\nend\n", 5},
		{HEAD "type 0\nregistrant 0A0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a 000000000000000a\nend\n", 5},
		{HEAD "type 0\n" HOST_A " owner\nend\n", 5},
	};
	struct nvmf_resv got;
	unsigned line;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		line = 0;
		CU_ASSERT_EQUAL(nvmf_resv_file_decode(cases[i].text, strlen(cases[i].text), uuid, &got, &line),
				-EBADMSG);
		CU_ASSERT_EQUAL(line, cases[i].line);
		if (line != cases[i].line) {
			printf("case %zu: line %u\n", i, line);
		}
	}
}

static void test_file_with_too_many_registrants_is_refused(void)
{
	static char big[NVMF_RESV_FILE_MAX * 2];
	struct nvmf_resv got;
	unsigned line;
	int at = sprintf(big, "%s", HEAD "type 0\n");

	for (unsigned i = 0; i <= NVMF_RESV_REGISTRANTS_MAX; i++) {
		at += sprintf(big + at, "registrant %032x %016x\n", i, 1);
	}
	at += sprintf(big + at, "end\n");
	CU_ASSERT_EQUAL(nvmf_resv_file_decode(big, (size_t)at, uuid, &got, &line), -EBADMSG);
	CU_ASSERT_EQUAL(line, 5 + NVMF_RESV_REGISTRANTS_MAX);
}

static const struct unit_test tests[] = {
	UNIT(test_commands_are_decoded),
	UNIT(test_wrong_fields_are_named),
	UNIT(test_registering),
	UNIT(test_registrants_are_bounded),
	UNIT(test_persistence_is_changed_by_register),
	UNIT(test_reservation_ends_with_its_holders_registration),
	UNIT(test_acquiring),
	UNIT(test_releasing),
	UNIT(test_clearing),
	UNIT(test_preempting_the_holder),
	UNIT(test_preempting_a_registration),
	UNIT(test_preempting_all_registrants),
	UNIT(test_types_leave_to_others_what_they_say),
	UNIT(test_file_brings_everything_back),
	UNIT(test_damaged_files_are_refused_with_the_line),
	UNIT(test_file_with_too_many_registrants_is_refused),
	UNIT_END,
};
UNIT_MAIN("nvmf_resv", tests, NULL, NULL)
