/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations (Base 8.19, NVM 2.1.1): three hosts register, acquire, preempt and release in any order, with any keys,
 * on a namespace that nobody else uses. A model of it says what each command must end with, and who may read and write.
 */
#include "systest/hostile/cases.h"

#include <stdio.h>

#define HOSTS  3
#define NOBODY HOSTS

enum { WRITE_EXCLUSIVE = 1, EXCLUSIVE_ACCESS, WRITE_REGISTRANTS, ACCESS_REGISTRANTS, WRITE_ALL, ACCESS_ALL };
enum { REGISTER, UNREGISTER, REPLACE };
enum { ACQUIRE, PREEMPT, PREEMPT_AND_ABORT };
enum { RELEASE, CLEAR };
#define IEKEY (1u << 3)

struct model {
	uint64_t key[HOSTS]; /* 0: not registered; no two have the same */
	unsigned holder;     /* of the types that have one */
	uint32_t type;       /* 0: not reserved */
};

static struct session sessions[HOSTS];

/* ---- The model ---- */

static bool all_hold(const struct model *m)
{
	return m->type >= WRITE_ALL;
}

static bool holds(const struct model *m, unsigned host)
{
	return m->type != 0 && (all_hold(m) ? m->key[host] != 0 : m->holder == host);
}

static void drop(struct model *m, unsigned host)
{
	bool held = holds(m, host), last = true;

	m->key[host] = 0;
	for (unsigned i = 0; i < HOSTS; i++) {
		last &= m->key[i] == 0;
	}
	if (held && (!all_hold(m) || last)) {
		m->type = 0;
	}
}

static uint16_t model_register(struct model *m, unsigned me, uint32_t cdw10, uint64_t crkey, uint64_t nrkey)
{
	bool known = m->key[me] != 0, right = known && ((cdw10 & IEKEY) != 0 || m->key[me] == crkey);

	if ((cdw10 & 7) == REGISTER && known) {
		return m->key[me] == nrkey ? ST_OK : ST_RESV_CONFLICT;
	}
	if ((cdw10 & 7) != REGISTER && !right) {
		return ST_RESV_CONFLICT;
	}
	if ((cdw10 & 7) == UNREGISTER) {
		drop(m, me);
	} else {
		m->key[me] = nrkey;
	}
	return ST_OK;
}

/* prkey is another host's, or nobody's (0 only where all hold it). */
static uint16_t model_preempt(struct model *m, unsigned me, uint32_t type, uint64_t prkey)
{
	bool all = all_hold(m) && prkey == 0, from_holder = m->type != 0 && !all_hold(m) && m->key[m->holder] == prkey,
	     any = all;

	for (unsigned i = 0; i < HOSTS; i++) {
		if (i != me && m->key[i] != 0 && (all || m->key[i] == prkey)) {
			any = true;
			drop(m, i);
		}
	}
	if (all || from_holder) {
		m->type = type;
		m->holder = me;
	}
	return any ? ST_OK : ST_RESV_CONFLICT;
}

static uint16_t model_acquire(struct model *m, unsigned me, uint32_t cdw10, uint64_t crkey, uint64_t prkey)
{
	uint32_t type = cdw10 >> 8 & 0xff;

	if (m->key[me] == 0 || m->key[me] != crkey) {
		return ST_RESV_CONFLICT;
	}
	if ((cdw10 & 7) != ACQUIRE) {
		return model_preempt(m, me, type, prkey);
	}
	if (m->type != 0) {
		return holds(m, me) && m->type == type ? ST_OK : ST_RESV_CONFLICT;
	}
	m->type = type;
	m->holder = me;
	return ST_OK;
}

static uint16_t model_release(struct model *m, unsigned me, uint32_t cdw10, uint64_t crkey)
{
	if (m->key[me] == 0 || m->key[me] != crkey) {
		return ST_RESV_CONFLICT;
	}
	if ((cdw10 & 7) == CLEAR) {
		*m = (struct model){.holder = NOBODY};
	} else if (holds(m, me)) {
		if (m->type != (cdw10 >> 8 & 0xff)) {
			return ST_FIELD;
		}
		m->type = 0;
	}
	return ST_OK;
}

/* NVM 2.1.1: what each type leaves to those who do not hold it. */
static bool may(const struct model *m, unsigned me, bool write)
{
	switch (m->type) {
	case WRITE_EXCLUSIVE:
		return !write || m->holder == me;
	case EXCLUSIVE_ACCESS:
		return m->holder == me;
	case WRITE_REGISTRANTS:
	case WRITE_ALL:
		return !write || m->key[me] != 0;
	case ACCESS_REGISTRANTS:
	case ACCESS_ALL:
		return m->key[me] != 0;
	default:
		return true;
	}
}

/* ---- Commands ---- */

static uint16_t run(struct kase *k, unsigned host, uint8_t op, uint32_t cdw10, uint64_t first, uint64_t second)
{
	struct link *l = sessions[host].io;
	uint8_t sqe[SQE_SIZE], cqe[CQE_SIZE], *data = link_slot(l, 0);

	fill_rw(k->facts, sqe, op, 1, any_lba(k, 1), (uintptr_t)data, memory.remote->rkey);
	if (op == IO_RESV_REGISTER || op == IO_RESV_ACQUIRE || op == IO_RESV_RELEASE) {
		put64(data, first);
		put64(data + 8, second);
		put64(sqe + AT_CDW10, cdw10);
		put_keyed(sqe + AT_SGL, (uintptr_t)data, 16, memory.remote->rkey, SUB_ADDRESS);
	} else if (op == IO_RESV_REPORT) { /* of 1024 bytes, extended */
		put64(sqe + AT_CDW10, 255 | (uint64_t)1 << 32);
		put_keyed(sqe + AT_SGL, (uintptr_t)data, 1024, memory.remote->rkey, SUB_ADDRESS);
	}
	return link_command(l, sqe, SQE_SIZE, cqe) ? get16(cqe + 14) >> 1 & 0x7ff : UINT16_MAX;
}

static void expect(struct kase *k, unsigned host, const char *what, uint16_t status, uint16_t wanted)
{
	if (status != wanted) {
		kase_fail(k, "host %u, %s: %s, expected %s", host, what, status_text(status), status_text(wanted));
	}
}

/* Hosts have keys of their own; now and then it is another's, or none that there is. */
static uint64_t any_key(struct kase *k, const struct model *m, unsigned host)
{
	return pick(k, 5) ? m->key[host] : rng_next(&k->rng) | 1;
}

static uint64_t other_key(struct kase *k, const struct model *m, unsigned me)
{
	uint64_t key = m->key[(me + 1 + pick(k, HOSTS - 1)) % HOSTS];

	return key != 0 && pick(k, 5) ? key : all_hold(m) && pick(k, 2) ? 0 : rng_next(&k->rng) | 1;
}

static void change(struct kase *k, struct model *m, unsigned me)
{
	uint64_t crkey = any_key(k, m, me), other;
	uint32_t cdw10;

	switch (pick(k, 4)) {
	case 0:
	case 1:
		other = pick(k, 4) && m->key[me] != 0 ? m->key[me] : rng_next(&k->rng) | 1;
		cdw10 = pick(k, 5) < 3 ? REGISTER : 1 + pick(k, 2);
		cdw10 |= cdw10 == UNREGISTER && pick(k, 2) ? IEKEY : 0;
		kase_describe(k, " %u:r%x", me, cdw10);
		expect(k, me, "register", run(k, me, IO_RESV_REGISTER, cdw10, crkey, other),
		       model_register(m, me, cdw10, crkey, other));
		break;
	case 2:
		other = other_key(k, m, me);
		cdw10 = pick(k, 3) | (1 + pick(k, 6)) << 8;
		kase_describe(k, " %u:a%x", me, cdw10);
		expect(k, me, "acquire", run(k, me, IO_RESV_ACQUIRE, cdw10, crkey, other),
		       model_acquire(m, me, cdw10, crkey, other));
		break;
	default:
		cdw10 = (pick(k, 5) == 0 ? CLEAR : RELEASE) | (pick(k, 3) && m->type ? m->type : 1 + pick(k, 6)) << 8;
		cdw10 |= pick(k, 3) ? 0 : IEKEY; /* which makes no difference: the key is checked */
		kase_describe(k, " %u:l%x", me, cdw10);
		expect(k, me, "release", run(k, me, IO_RESV_RELEASE, cdw10, crkey, 0),
		       model_release(m, me, cdw10, crkey));
		break;
	}
}

/* Who may do what, and the report: anybody may ask for it. */
static void look(struct kase *k, const struct model *m, unsigned me)
{
	static const uint8_t ops[] = {IO_READ, IO_WRITE, IO_COMPARE, IO_FLUSH};
	uint8_t op = ops[pick(k, 4)];
	uint16_t wanted = may(m, me, op == IO_WRITE || op == IO_FLUSH) ? ST_OK : ST_RESV_CONFLICT;
	uint16_t status = run(k, me, op, 0, 0, 0), registered = 0;

	expect(k, me, "I/O", op == IO_COMPARE && status == ST_COMPARE ? ST_OK : status, wanted);
	for (unsigned i = 0; i < HOSTS; i++) {
		registered += m->key[i] != 0;
	}
	if (pick(k, 3) == 0) {
		const uint8_t *report = link_slot(sessions[me].io, 0);
		expect(k, me, "report", run(k, me, IO_RESV_REPORT, 0, 0, 0), ST_OK);
		if (report[4] != m->type || get16(report + 5) != registered) {
			kase_fail(k, "the report has type %u of %u registrants, not %u of %u", report[4],
				  get16(report + 5), m->type, registered);
		}
	}
}

/* Three hosts, which stay, and of which none is registered. */
static bool begin(struct kase *k)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		struct address at = k->facts->at;

		at.hostid[15] = (uint8_t)(0x10 + i);
		if (sessions[i].admin == NULL && !session_open(&sessions[i], &at, true)) {
			kase_fail(k, "a controller could not be had");
			return false;
		}
		uint16_t status = run(k, i, IO_RESV_REGISTER, UNREGISTER | IEKEY, 0, 0);
		if (status != ST_OK && status != ST_RESV_CONFLICT) {
			expect(k, i, "the first unregister", status, ST_OK);
			return false;
		}
	}
	return true;
}

static void register_some(struct kase *k, struct model *m)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		uint64_t key = rng_next(&k->rng) | 1;
		if (pick(k, 4)) {
			expect(k, i, "the first register", run(k, i, IO_RESV_REGISTER, REGISTER, 0, key),
			       model_register(m, i, REGISTER, 0, key));
		}
	}
}

void run_reservations(struct kase *k)
{
	struct model m = {.holder = NOBODY};

	if (begin(k)) {
		register_some(k, &m);
		for (unsigned n = 6 + pick(k, 12); n > 0; n--) {
			change(k, &m, pick(k, HOSTS));
			look(k, &m, pick(k, HOSTS));
		}
	}
}

void reservations_end(void)
{
	for (unsigned i = 0; i < HOSTS; i++) {
		session_close(&sessions[i], false);
	}
}
