/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes: cases that share a controller are sent many at a time, and judged when all have been answered. */
#include "systest/hostile/lane.h"

#include <stdio.h>
#include <string.h>

#define BATCH 16

struct lane_state {
	struct session session;
	struct kase cases[BATCH];
	unsigned num_cases, num_steps;
	struct step steps[SLOTS];
};

static struct lane_state lanes[LANES];
static uint8_t image[SLOTS][SLOT_SIZE];
static uint16_t next_cid;
unsigned lane_sessions;

static bool is_io(enum lane lane)
{
	return lane == LANE_IO || lane == LANE_WILD_IO || lane == LANE_ANA_IO;
}

static bool is_wild(enum lane lane)
{
	return lane == LANE_WILD_IO || lane == LANE_WILD_ADMIN;
}

static struct link *link_of(enum lane lane)
{
	return is_io(lane) ? lanes[lane].session.io : lanes[lane].session.admin;
}

bool lane_add(enum lane lane, const struct kase *k)
{
	struct lane_state *l = &lanes[lane];

	if (l->session.admin == NULL) {
		if (!session_open(&l->session, &k->facts->at, is_io(lane))) {
			return false;
		}
		lane_sessions++;
	}
	struct kase *mine = &l->cases[l->num_cases++];
	*mine = *k;
	mine->link = link_of(lane);
	mine->slot = l->num_steps;
	mine->steps = &l->steps[l->num_steps];
	mine->kind->make(mine);
	for (unsigned i = 0; i < mine->num_steps; i++) {
		/* Connect, for one, has its data where the generator put them; the command id is ours */
		put16(mine->step[i]->bytes + AT_CID, (uint16_t)(next_cid << 5 | (l->num_steps + i)));
	}
	l->num_steps += mine->num_steps;
	if (l->num_cases == BATCH || l->num_steps > SLOTS - STEPS) {
		lane_run(lane);
	}
	return true;
}

/* ---- Judging ---- */

static void judge_status(struct kase *k, struct step *s, unsigned i, bool io)
{
	if (!status_exists(s->status)) {
		kase_fail(k, "command %u: there is no status %03x", i, s->status);
		return;
	}
	if (s->any) {
		if (s->status == ST_OK && wild_must_fail(k->facts, s, io)) {
			kase_fail(k, "command %u: success", i);
		}
		return;
	}
	for (unsigned n = 0; n < s->num_ok; n++) {
		if (s->ok[n] == s->status) {
			if (s->status == ST_OK && s->dw0_bit0 && (s->dw0 & 1) == 0) {
				kase_fail(k, "command %u: dword 0 is %x", i, s->dw0);
			}
			return;
		}
	}
	kase_fail(k, "command %u: %s, expected %s%s%s", i, status_text(s->status), status_text(s->ok[0]),
		  s->num_ok > 1 ? " or " : "", s->num_ok > 1 ? status_text(s->ok[1]) : "");
}

/* Takes over what may have been written: by a command that succeeded, or that was made at random. */
static void open_windows(const struct step *s, const struct link *link)
{
	bool open = s->any || (s->answered && s->status == ST_OK);

	for (unsigned w = 0; open && w < s->num_windows; w++) {
		uint32_t at = s->window[w].at, len = s->window[w].len, size = sizeof(image);
		if (at < size) {
			memcpy((uint8_t *)image + at, link->remote + at, len < size - at ? len : size - at);
		}
	}
}

static void judge_content(struct kase *k, const struct step *s, unsigned i)
{
	if (s->content != NULL && s->status == ST_OK &&
	    memcmp(link_slot(k->link, s->slot), s->content, s->content_len) != 0) {
		kase_fail(k, "command %u: success, with other data", i);
	}
}

/* All the rest is as it was. */
static void judge_memory(struct kase *k, struct step *s, unsigned i)
{
	const uint8_t *was = image[s->slot], *is = link_slot(k->link, s->slot);

	if (memcmp(was, is, SLOT_SIZE) != 0) {
		size_t at = 0;
		while (was[at] == is[at]) {
			at++;
		}
		kase_fail(k, "command %u (%s): memory was written at byte %zu of its slot", i, status_text(s->status),
			  at);
	}
	memset(link_slot(k->link, s->slot), CANARY, SLOT_SIZE);
}

static void judge(struct kase *k, bool io, bool ended)
{
	for (unsigned i = 0; i < k->num_steps; i++) {
		struct step *s = k->step[i];

		if (s->answered) {
			judge_status(k, s, i, io);
			judge_content(k, s, i);
		} else if (!s->may_be_held && !(s->any && ended)) {
			kase_fail(k, "command %u: no answer%s%s", i, ended ? ", the connection ended: " : "",
				  ended ? k->link->why : "");
		}
		judge_memory(k, s, i);
	}
	if (k->together && (k->step[0]->status == ST_OK) != (k->step[1]->status == ST_OK)) {
		kase_fail(k, "%s, and the other %s", status_text(k->step[0]->status), status_text(k->step[1]->status));
	}
}

/* ---- Sending ---- */

static struct step *find_step(struct lane_state *l, uint16_t cid)
{
	for (unsigned c = 0; c < l->num_cases; c++) {
		for (unsigned i = 0; i < l->cases[c].num_steps; i++) {
			struct step *s = l->cases[c].step[i];
			if (get16(s->bytes + AT_CID) == cid && !s->answered) {
				return s;
			}
		}
	}
	return NULL;
}

/* Answers to what this batch did not ask are those to event requests of an earlier one. */
static void take_answers(struct lane_state *l, struct link *link, bool wild)
{
	for (uint32_t i = 0; i < link->inbox_len; i++) {
		const uint8_t *cqe = link->inbox[i];
		struct step *s = find_step(l, get16(cqe + 12));

		if (s == NULL) {
			if (!wild && get16(cqe + 12) != 0xffff) {
				kase_fail(&l->cases[0], "an answer to command id %04x, which nobody sent",
					  get16(cqe + 12));
			}
			continue;
		}
		s->answered = true;
		s->status = get16(cqe + 14) >> 1 & 0x7ff;
		s->dw0 = get32(cqe);
	}
	link->inbox_len = 0;
}

static bool all_answered(const struct lane_state *l)
{
	for (unsigned c = 0; c < l->num_cases; c++) {
		for (unsigned i = 0; i < l->cases[c].num_steps; i++) {
			if (!l->cases[c].step[i]->answered && !l->cases[c].step[i]->may_be_held) {
				return false;
			}
		}
	}
	return true;
}

static void send_all(struct lane_state *l, struct link *link, bool io)
{
	uint8_t last[SQE_SIZE] = {io ? IO_FLUSH : ADM_KEEP_ALIVE, FLAG_SGL};
	unsigned place = 1;

	for (unsigned i = 0; i < l->num_steps; i++) {
		memcpy(image[i], link_slot(link, i), SLOT_SIZE);
	}
	for (unsigned c = 0; c < l->num_cases; c++) {
		for (unsigned i = 0; i < l->cases[c].num_steps; i++) {
			struct step *s = l->cases[c].step[i];
			link_send(link, place++, s->bytes, s->len); /* fails if the connection has ended */
		}
	}
	/* What may be the first half of a pair is not waited for any longer when something else follows. */
	put16(last + AT_CID, 0xffff);
	put32(last + AT_NSID, io ? l->cases[0].facts->nsid : 0);
	link_send(link, place, last, SQE_SIZE);
}

void lane_run(enum lane lane)
{
	struct lane_state *l = &lanes[lane];
	struct link *link = link_of(lane);

	if (l->num_cases == 0) {
		return;
	}
	send_all(l, link, is_io(lane));
	while (!all_answered(l)) {
		bool some = link_wait(link, 1);
		take_answers(l, link, is_wild(lane));
		if (!some || link->ended) {
			break;
		}
	}
	if (link->bad_response) {
		kase_fail(&l->cases[0], "a response that is none");
	}
	for (unsigned c = 0; c < l->num_cases; c++) {
		for (unsigned i = 0; i < l->cases[c].num_steps; i++) {
			open_windows(l->cases[c].step[i], link);
		}
	}
	for (unsigned c = 0; c < l->num_cases; c++) {
		judge(&l->cases[c], is_io(lane), link->ended);
	}
	next_cid = (uint16_t)((next_cid + 1) %
			      2047); /* ids below those that a good host would find odd; ffffh is the last command's */
	l->num_cases = l->num_steps = 0;
	if (link->ended || (l->session.io != NULL && l->session.admin->ended)) {
		session_close(&l->session, false);
	}
}

void lanes_end(void)
{
	for (enum lane lane = 0; lane < LANES; lane++) {
		lane_run(lane);
		session_close(&lanes[lane].session, false);
	}
}
