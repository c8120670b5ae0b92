/* SPDX-License-Identifier: BSD-3-Clause */
/* Cross-Controller Reset between processes: the peers of a subsystem, the request that a process sends to them, and the
 * method that it calls there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module.h"
#include "rpc/remote.h"
#include "rpc_methods/nvmf.h"

#define RESET_METHOD "nvmf_subsystem_reset_controller"

/* ---- The list of peers ---- */

struct add_peer {
	struct rpc_nvmf_where where;
	char *path;
	uint32_t timeout_ms;
};

static const struct rpc_param add_peer_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct add_peer),
	RPC_PARAM(struct add_peer, path, RPC_STRING, RPC_REQUIRED,
		  "absolute path of the RPC socket of another varve that exports the same subsystem over the same "
		  "storage"),
	RPC_PARAM(struct add_peer, timeout_ms, RPC_UINT32, RPC_OPTIONAL,
		  "how long it may take to reset a controller; by default 10000", .min = 100, .max = 600000),
	RPC_PARAM_END,
};

static void rpc_add_peer(struct rpc_request *req, void *params)
{
	const struct add_peer *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);

	if (s == NULL) {
		return;
	}
	int rc = nvmf_subsystem_add_peer(s, p->path, p->timeout_ms);
	switch (rc) {
	case 0:
		rpc_reply_true(req);
		break;
	case -EINVAL:
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"path\" is \"%.256s\": allowed is an absolute path of at most %d bytes", p->path,
			  NVMF_PEER_PATH_MAX);
		break;
	case -EEXIST:
		rpc_error(req, rc, "parameter \"path\" is \"%s\": the subsystem has that peer already", p->path);
		break;
	case -EOPNOTSUPP:
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "parameter \"nqn\" is \"%s\": a discovery subsystem has no peers", p->where.nqn);
		break;
	default:
		rpc_error(req, rc, "%s", strerror(-rc));
	}
}
RPC_METHOD(
	"nvmf_subsystem_add_peer", rpc_add_peer, struct add_peer, add_peer_params, RPC_RUNTIME,
	"Name another process that exports the same subsystem: it is asked to reset its controllers when their hosts "
	"ask for that here (Cross-Controller Reset)",
	.own = true, .result = "true")

struct remove_peer {
	struct rpc_nvmf_where where;
	char *path;
};

static const struct rpc_param remove_peer_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct remove_peer),
	RPC_PARAM(struct remove_peer, path, RPC_STRING, RPC_REQUIRED, "as it was added"),
	RPC_PARAM_END,
};

static void rpc_remove_peer(struct rpc_request *req, void *params)
{
	const struct remove_peer *p = params;
	struct nvmf_subsystem *s = rpc_nvmf_subsystem_to_change(req, p->where.tgt_name, p->where.nqn);

	if (s == NULL) {
		return;
	}
	if (nvmf_subsystem_remove_peer(s, p->path) == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, -ENOENT, "parameter \"path\" is \"%.256s\": the subsystem has no such peer", p->path);
	}
}
RPC_METHOD("nvmf_subsystem_remove_peer", rpc_remove_peer, struct remove_peer, remove_peer_params, RPC_RUNTIME,
	   "Forget a peer; the resets that it was asked for fail", .result = "true")

json_t *rpc_nvmf_peers_json(const struct nvmf_subsystem *s)
{
	json_t *list = json_array();

	for (const struct nvmf_peer *p = nvmf_peer_next(s, NULL); p != NULL; p = nvmf_peer_next(s, p)) {
		const struct nvmf_peer_counts *counts = nvmf_peer_get_counts(p);
		json_t *o = json_object();
		json_object_set_new(o, "path", rpc_string(nvmf_peer_path(p)));
		json_object_set_new(o, "timeout_ms", json_integer(nvmf_peer_timeout_ms(p)));
		json_object_set_new(o, "ended", rpc_uint(counts->answers[NVMF_PEER_ENDED]));
		json_object_set_new(o, "unknown", rpc_uint(counts->answers[NVMF_PEER_UNKNOWN]));
		json_object_set_new(o, "failed", rpc_uint(counts->answers[NVMF_PEER_FAILED]));
		json_array_append_new(list, o);
	}
	return list;
}

/* ---- What a peer calls ---- */

struct reset_controller {
	struct rpc_nvmf_where where;
	char *hostnqn, *hostid;
	uint16_t cntlid;
	uint8_t ciu;
	uint64_t cirn;
};

static const struct rpc_param reset_controller_params[] = {
	RPC_NVMF_WHERE_PARAMS(struct reset_controller),
	RPC_PARAM(struct reset_controller, hostnqn, RPC_STRING, RPC_REQUIRED, "NQN of the controller's host"),
	RPC_PARAM(struct reset_controller, hostid, RPC_UUID, RPC_REQUIRED, "the host's identifier"),
	RPC_PARAM(struct reset_controller, cntlid, RPC_UINT16, RPC_REQUIRED, "the controller's id"),
	RPC_PARAM(struct reset_controller, ciu, RPC_UINT8, RPC_REQUIRED, "its Controller Instance Uniquifier", .min = 1,
		  .max = UINT8_MAX),
	RPC_PARAM(struct reset_controller, cirn, RPC_UINT64, RPC_REQUIRED, "its Controller Instance Random Number"),
	RPC_PARAM_END,
};

static void rpc_reset_controller(struct rpc_request *req, void *params)
{
	const struct reset_controller *p = params;
	const struct nvmf_ctrlr_name name = {.cntlid = p->cntlid, .ciu = p->ciu, .cirn = p->cirn};
	struct nvmf_subsystem *s = rpc_nvmf_subsystem(req, p->where.tgt_name, p->where.nqn);
	uint8_t hostid[16];

	if (s == NULL) {
		return;
	}
	int rc = bdev_uuid_parse(p->hostid, hostid);
	rc = rc != 0 ? rc : nvmf_subsystem_reset_ctrlr(s, &name, p->hostnqn, hostid, rpc_nvmf_answer, req);
	switch (rc) {
	case 0:
		break;
	case -ENOENT:
		rpc_error(req, rc, "controller %u with CIRN 0x%llx never was one of this process's", p->cntlid,
			  (unsigned long long)p->cirn);
		break;
	case -EACCES:
		rpc_error(req, rc, "controller %u is not a controller of that host", p->cntlid);
		break;
	case -EINVAL:
		rpc_error(req, rc, "a controller has a part of the name %u, CIU %u, CIRN 0x%llx only", p->cntlid,
			  p->ciu, (unsigned long long)p->cirn);
		break;
	case -EBUSY:
		rpc_error(req, rc, "too many wait for the end of controller %u already", p->cntlid);
		break;
	default:
		rpc_error(req, rc, "%s", strerror(-rc));
	}
}
RPC_METHOD(RESET_METHOD, rpc_reset_controller, struct reset_controller, reset_controller_params, RPC_RUNTIME,
	   "End a controller whose host has lost it; answers when none of its commands is carried out any more. Peers "
	   "call "
	   "this (nvmf_subsystem_add_peer)",
	   .result = "true")

/* ---- Calling it ---- */

struct peer_question {
	void (*done)(void *arg, enum nvmf_peer_answer answer, const char *why);
	void *arg;
	struct rpc_remote *call;
};

static void peer_question_answered(void *arg, const struct rpc_remote_answer *answer)
{
	struct peer_question q = *(struct peer_question *)arg;

	free(arg);
	if (answer->code == 0 && json_is_true(answer->result)) {
		q.done(q.arg, NVMF_PEER_ENDED, NULL);
	} else if (answer->code == -ENOENT) {
		q.done(q.arg, NVMF_PEER_UNKNOWN, "the controller never was one of its own");
	} else {
		q.done(q.arg, NVMF_PEER_FAILED, answer->code != 0 ? answer->message : "its answer is not \"true\"");
	}
}

static void *peer_question_ask(const struct nvmf_peer_question *question,
			       void (*done)(void *arg, enum nvmf_peer_answer answer, const char *why), void *arg)
{
	struct peer_question *q = calloc(1, sizeof(*q));
	json_t *params = json_object();
	char hostid[BDEV_UUID_STRLEN];

	if (q == NULL) {
		json_decref(params);
		return NULL;
	}
	bdev_uuid_format(question->hostid, hostid);
	json_object_set_new(params, "nqn", rpc_string(question->nqn));
	json_object_set_new(params, "hostnqn", rpc_string(question->hostnqn));
	json_object_set_new(params, "hostid", json_string(hostid));
	json_object_set_new(params, "cntlid", json_integer(question->name.cntlid));
	json_object_set_new(params, "ciu", json_integer(question->name.ciu));
	json_object_set_new(params, "cirn", rpc_hex(question->name.cirn));
	q->done = done;
	q->arg = arg;
	q->call =
		rpc_remote_call(question->path, RESET_METHOD, params, question->timeout_ms, peer_question_answered, q);
	if (q->call == NULL) {
		free(q);
		return NULL;
	}
	return q;
}

static void peer_question_cancel(void *handle)
{
	struct peer_question *q = handle;

	rpc_remote_cancel(q->call);
	free(q);
}

static const struct nvmf_peer_ops peer_ops = {.ask = peer_question_ask, .cancel = peer_question_cancel};

__attribute__((constructor)) static void rpc_nvmf_set_peer_ops(void)
{
	nvmf_set_peer_ops(&peer_ops);
}
