/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers of a subsystem, and the requests that they are sent. All peers get a request at the same time; the first one
 * that proves the end of the controller decides it, and it fails when all others have answered or were given up. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

/* How many requests of one subsystem may be under way: a host may not keep all of the peers' RPC connections. */
#define REQUESTS_MAX 32

struct nvmf_peer {
	struct nvmf_subsystem *subsystem;
	char path[NVMF_PEER_PATH_MAX + 1];
	uint32_t timeout_ms;
	struct nvmf_peer_counts counts;
	TAILQ_HEAD(, peer_call) calls;
	TAILQ_ENTRY(nvmf_peer) link;
};

/* A request to one peer. */
struct peer_call {
	struct nvmf_peer *peer;
	struct nvmf_peer_request *request;
	void *handle; /* what nvmf_peer_ops.ask returned */
	TAILQ_ENTRY(peer_call) peer_link;
	TAILQ_ENTRY(peer_call) request_link;
};

/* A request to all peers. */
struct nvmf_peer_request {
	TAILQ_HEAD(, peer_call) calls; /* under way */
	nvmf_peers_done_fn done;
	void *arg;
	struct nvmf_subsystem *subsystem;
	char why[NVMF_ERROR_MAX]; /* of the failure that was last */
};

static const struct nvmf_peer_ops *peer_ops;

void nvmf_set_peer_ops(const struct nvmf_peer_ops *ops)
{
	peer_ops = ops;
}

/* ---- Requests ---- */

static void peer_call_free(struct peer_call *call)
{
	TAILQ_REMOVE(&call->peer->calls, call, peer_link);
	TAILQ_REMOVE(&call->request->calls, call, request_link);
	free(call);
}

static void peer_request_free(struct nvmf_peer_request *request)
{
	struct peer_call *call;

	while ((call = TAILQ_FIRST(&request->calls)) != NULL) {
		peer_ops->cancel(call->handle);
		peer_call_free(call);
	}
	request->subsystem->peer_requests--;
	free(request);
}

void nvmf_peers_cancel(struct nvmf_peer_request *request)
{
	peer_request_free(request);
}

static void peer_request_finish(struct nvmf_peer_request *request, bool ended)
{
	nvmf_peers_done_fn done = request->done;
	void *arg = request->arg;
	char why[NVMF_ERROR_MAX];

	strcpy(why, request->why);
	peer_request_free(request);
	done(arg, ended, why);
}

static void peer_call_answered(void *arg, enum nvmf_peer_answer answer, const char *why)
{
	struct peer_call *call = arg;
	struct nvmf_peer_request *request = call->request;
	struct nvmf_peer *peer = call->peer;

	peer->counts.answers[answer]++;
	if (answer != NVMF_PEER_ENDED) {
		snprintf(request->why, sizeof(request->why), "peer %s: %.140s", peer->path, why);
	}
	if (answer == NVMF_PEER_FAILED) {
		log_limited(LOG_LEVEL_WARNING, "%s: peer %s: %s", peer->subsystem->nqn, peer->path, why);
	}
	peer_call_free(call);
	if (answer == NVMF_PEER_ENDED) {
		peer_request_finish(request, true);
	} else if (TAILQ_EMPTY(&request->calls)) {
		peer_request_finish(request, false);
	}
}

static void peer_ask(struct nvmf_peer *peer, struct nvmf_peer_request *request, const struct nvmf_peer_question *q)
{
	struct nvmf_peer_question question = *q;
	struct peer_call *call = calloc(1, sizeof(*call));

	question.path = peer->path;
	question.timeout_ms = peer->timeout_ms;
	if (call != NULL) {
		call->peer = peer;
		call->request = request;
		call->handle = peer_ops->ask(&question, peer_call_answered, call);
	}
	if (call == NULL || call->handle == NULL) {
		free(call);
		peer->counts.answers[NVMF_PEER_FAILED]++;
		return;
	}
	TAILQ_INSERT_TAIL(&peer->calls, call, peer_link);
	TAILQ_INSERT_TAIL(&request->calls, call, request_link);
}

struct nvmf_peer_request *nvmf_peers_ask(const struct nvmf_ctrlr *asker, const struct nvmf_ctrlr_name *name,
					 nvmf_peers_done_fn done, void *arg, const char **why)
{
	struct nvmf_subsystem *s = asker->subsystem;
	const struct nvmf_peer_question question = {
		.nqn = s->nqn, .hostnqn = asker->hostnqn, .hostid = asker->hostid, .name = *name};
	struct nvmf_peer *peer;

	if (TAILQ_EMPTY(&s->peers) || peer_ops == NULL) {
		*why = "the controller is not this process's, and the subsystem has no peers";
		return NULL;
	}
	if (s->peer_requests >= REQUESTS_MAX) {
		*why = "the controller is not this process's, and too many requests to the peers are under way";
		return NULL;
	}
	struct nvmf_peer_request *request = calloc(1, sizeof(*request));
	*why = "no memory to ask the subsystem's peers";
	if (request == NULL) {
		return NULL;
	}
	TAILQ_INIT(&request->calls);
	request->done = done;
	request->arg = arg;
	request->subsystem = s;
	s->peer_requests++;
	TAILQ_FOREACH (peer, &s->peers, link) {
		peer_ask(peer, request, &question);
	}
	if (TAILQ_EMPTY(&request->calls)) {
		peer_request_free(request);
		return NULL;
	}
	return request;
}

/* ---- The list ---- */

static struct nvmf_peer *peer_find(const struct nvmf_subsystem *s, const char *path)
{
	struct nvmf_peer *peer;

	TAILQ_FOREACH (peer, &s->peers, link) {
		if (strcmp(peer->path, path) == 0) {
			return peer;
		}
	}
	return NULL;
}

int nvmf_subsystem_add_peer(struct nvmf_subsystem *s, const char *path, uint32_t timeout_ms)
{
	if (s->subtype == NVMF_SUBTYPE_DISCOVERY) {
		return -EOPNOTSUPP;
	}
	if (path[0] != '/' || strlen(path) > NVMF_PEER_PATH_MAX) {
		return -EINVAL;
	}
	if (peer_find(s, path) != NULL) {
		return -EEXIST;
	}
	struct nvmf_peer *peer = calloc(1, sizeof(*peer));
	if (peer == NULL) {
		return -ENOMEM;
	}
	peer->subsystem = s;
	strcpy(peer->path, path);
	peer->timeout_ms = timeout_ms != 0 ? timeout_ms : NVMF_PEER_TIMEOUT_MS;
	TAILQ_INIT(&peer->calls);
	TAILQ_INSERT_TAIL(&s->peers, peer, link);
	return 0;
}

static void peer_free(struct nvmf_peer *peer)
{
	struct peer_call *call;

	TAILQ_REMOVE(&peer->subsystem->peers, peer, link);
	while ((call = TAILQ_FIRST(&peer->calls)) != NULL) {
		peer_ops->cancel(call->handle);
		peer_call_answered(call, NVMF_PEER_FAILED, "it was removed from the subsystem while it was asked");
	}
	free(peer);
}

int nvmf_subsystem_remove_peer(struct nvmf_subsystem *s, const char *path)
{
	struct nvmf_peer *peer = peer_find(s, path);

	if (peer == NULL) {
		return -ENOENT;
	}
	peer_free(peer);
	return 0;
}

void nvmf_peers_free(struct nvmf_subsystem *s)
{
	while (!TAILQ_EMPTY(&s->peers)) {
		peer_free(TAILQ_FIRST(&s->peers));
	}
}

const struct nvmf_peer *nvmf_peer_next(const struct nvmf_subsystem *s, const struct nvmf_peer *after)
{
	return after == NULL ? TAILQ_FIRST(&s->peers) : TAILQ_NEXT(after, link);
}

const char *nvmf_peer_path(const struct nvmf_peer *peer)
{
	return peer->path;
}

uint32_t nvmf_peer_timeout_ms(const struct nvmf_peer *peer)
{
	return peer->timeout_ms;
}

const struct nvmf_peer_counts *nvmf_peer_get_counts(const struct nvmf_peer *peer)
{
	return &peer->counts;
}
