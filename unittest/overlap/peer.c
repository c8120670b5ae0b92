/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers: the two targets of this process play two processes that export the same subsystems. A question reaches the
 * other one when the test says so, or never. */
#include <errno.h>
#include "unittest/overlap/overlap.h"

struct question {
	TAILQ_ENTRY(question) link;
	unsigned tgt;
	char nqn[NVMF_NQN_MAX + 1], hostnqn[NVMF_NQN_MAX + 1];
	uint8_t hostid[16];
	struct nvmf_ctrlr_name name;
	void (*done)(void *arg, enum nvmf_peer_answer answer, const char *why);
	void *arg;
	bool under_way; /* the other target ends the controller */
	bool given_up;  /* whoever asked does not wait any more */
};
static TAILQ_HEAD(, question) questions = TAILQ_HEAD_INITIALIZER(questions);

static const char *const paths[OV_TGTS] = {"/T0", "/T1"};

const char *ov_peer_path(unsigned p)
{
	return paths[p % OV_TGTS];
}

static void *peer_ask(const struct nvmf_peer_question *asked,
		      void (*done)(void *arg, enum nvmf_peer_answer answer, const char *why), void *arg)
{
	struct question *q = calloc(1, sizeof(*q));

	q->tgt = strcmp(asked->path, paths[0]) != 0;
	strcpy(q->nqn, asked->nqn);
	strcpy(q->hostnqn, asked->hostnqn);
	memcpy(q->hostid, asked->hostid, sizeof(q->hostid));
	q->name = asked->name;
	q->done = done;
	q->arg = arg;
	TAILQ_INSERT_TAIL(&questions, q, link);
	return q;
}

static void question_free(struct question *q)
{
	TAILQ_REMOVE(&questions, q, link);
	free(q);
}

static void peer_cancel(void *handle)
{
	struct question *q = handle;

	if (q->given_up) {
		ov_fail("a question to a peer is given up twice");
	}
	q->given_up = true;
	if (!q->under_way) {
		question_free(q);
	}
}

static const struct nvmf_peer_ops ops = {.ask = peer_ask, .cancel = peer_cancel};

void ov_peers_start(void)
{
	nvmf_set_peer_ops(&ops);
}

static void question_answer(struct question *q, enum nvmf_peer_answer answer)
{
	if (!q->given_up) {
		q->given_up = true;
		q->done(q->arg, answer, "so it is");
	}
}

static void question_carried_out(void *arg, int status)
{
	struct question *q = arg;

	question_answer(q, NVMF_PEER_ENDED);
	question_free(q);
}

static void question_carry_out(struct question *q)
{
	struct nvmf_tgt *tgt = ov_tgt(q->tgt);
	struct nvmf_subsystem *s = tgt != NULL ? nvmf_subsystem_find(tgt, q->nqn) : NULL;

	q->under_way = true;
	int rc = s != NULL ? nvmf_subsystem_reset_ctrlr(s, &q->name, q->hostnqn, q->hostid, question_carried_out, q)
			   : -ENOENT;
	if (rc != 0) {
		question_answer(q, rc == -ENOENT ? NVMF_PEER_UNKNOWN : NVMF_PEER_FAILED);
		question_free(q);
	}
}

void ov_peer_answer(unsigned number, unsigned how)
{
	struct question *q = TAILQ_FIRST(&questions);

	for (number %= 8; number > 0 && q != NULL; number--) {
		q = TAILQ_NEXT(q, link);
	}
	if (q == NULL) {
		return;
	}
	if (how % 4 == 0) { /* no answer in time; the peer may go on with it */
		question_answer(q, NVMF_PEER_FAILED);
		if (!q->under_way) {
			question_free(q);
		}
	} else if (!q->under_way) {
		question_carry_out(q);
	}
}

void ov_peers_end(void)
{
	struct question *q, *next;

	for (q = TAILQ_FIRST(&questions); q != NULL; q = next) {
		next = TAILQ_NEXT(q, link);
		if (!q->under_way) {
			question_carry_out(q);
			next = TAILQ_FIRST(&questions); /* one answer may have ended other questions */
			while (next != NULL && next->under_way) {
				next = TAILQ_NEXT(next, link);
			}
		}
	}
}

bool ov_peers_are_asked(void)
{
	return !TAILQ_EMPTY(&questions);
}
