/* SPDX-License-Identifier: BSD-3-Clause */
/* In-band authentication of hosts by the target, and of the target by hosts: DH-HMAC-CHAP (Base 8.13.5), per queue
 * pair.
 *
 * Tables tell which message the host may send (Authentication Send) or receive (Authentication Receive) in each state.
 * It all runs on the control thread, because it is rare and reads keys. HMACs take microseconds there. Diffie-Hellman
 * takes up to a tenth of a second, so a worker thread computes it while the command waits.
 *
 * The poll group knows only the queue pair's state: AUTHENTICATING, in which it accepts nothing but these two commands,
 * or ENABLED. A host may authenticate again at any time while the queue pair is ENABLED; other commands go on then. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

LOG_FLAG(nvmf)

#define DEFAULT_TIMEOUT_US                                                                                             \
	(120 * UINT64_C(1000000)) /* limit of a step, if the host has no keep-alive timeout (Base 8.13.5.1) */
#define LINGER_US                                                                                                      \
	(200 * UINT64_C(1000)) /* a host that has failed gets this time to read the reason before its queue pair ends  \
				*/

struct nvmf_auth {
	struct nvmf_qpair *qpair;
	enum nvmf_auth_state state;
	bool chosen; /* hash and group have been agreed on */
	uint8_t hash, group;
	uint8_t sc_c; /* enum dhchap_sc_c that the host has asked for */
	uint8_t why;  /* FAILURE1: enum dhchap_why */
	uint16_t t_id;
	uint32_t seqnum;
	bool answers; /* the host has sent a challenge too: `response` goes into Success1 */
	uint8_t challenge[DHCHAP_HASH_MAX], response[DHCHAP_HASH_MAX];
	struct nvmf_psk *psk;                /* the generated PSK, once the host has proved itself; NULL: none */
	struct keyring_key *key, *ctrlr_key; /* the host's keys when the transaction began */
	struct thread_timer timer;           /* limits a step; after a failure, the time until the end */
	/* Used by the worker thread while req waits for it. */
	struct nvmf_request *req;
	struct worker_job job;
	int job_rc;
	struct dhchap_dh *dh;
	struct dhchap_reply reply;    /* points into message */
	uint8_t value[DHCHAP_DH_MAX]; /* the controller's public value; then the shared secret */
	uint8_t message[DHCHAP_MESSAGE_MAX];
};

static const char *const state_names[NVMF_AUTH_STATES] = {
	[NVMF_AUTH_NEGOTIATE] = "negotiate", [NVMF_AUTH_CHALLENGE] = "challenge", [NVMF_AUTH_REPLY] = "reply",
	[NVMF_AUTH_SUCCESS1] = "success1",   [NVMF_AUTH_SUCCESS2] = "success2",   [NVMF_AUTH_FAILURE1] = "failure1",
	[NVMF_AUTH_COMPLETED] = "completed", [NVMF_AUTH_ERROR] = "error",
};

const char *nvmf_auth_state_name(enum nvmf_auth_state state)
{
	return state < NVMF_AUTH_STATES ? state_names[state] : "?";
}

static const uint32_t auth_next_states[NVMF_AUTH_STATES] = {
	[NVMF_AUTH_NEGOTIATE] = 1 << NVMF_AUTH_CHALLENGE | 1 << NVMF_AUTH_FAILURE1 | 1 << NVMF_AUTH_ERROR,
	[NVMF_AUTH_CHALLENGE] = 1 << NVMF_AUTH_REPLY | 1 << NVMF_AUTH_FAILURE1 | 1 << NVMF_AUTH_ERROR,
	[NVMF_AUTH_REPLY] = 1 << NVMF_AUTH_SUCCESS1 | 1 << NVMF_AUTH_FAILURE1 | 1 << NVMF_AUTH_ERROR,
	[NVMF_AUTH_SUCCESS1] =
		1 << NVMF_AUTH_SUCCESS2 | 1 << NVMF_AUTH_COMPLETED | 1 << NVMF_AUTH_FAILURE1 | 1 << NVMF_AUTH_ERROR,
	[NVMF_AUTH_SUCCESS2] = 1 << NVMF_AUTH_COMPLETED | 1 << NVMF_AUTH_FAILURE1 | 1 << NVMF_AUTH_ERROR,
	[NVMF_AUTH_FAILURE1] = 1 << NVMF_AUTH_ERROR,
	[NVMF_AUTH_COMPLETED] = 1 << NVMF_AUTH_CHALLENGE | 1 << NVMF_AUTH_FAILURE1 | 1 << NVMF_AUTH_ERROR,
	[NVMF_AUTH_ERROR] = 0,
};
STATE_MACHINE(auth_machine, "nvmf authentication", nvmf_auth_state_name, auth_next_states);

static void auth_set_state(struct nvmf_auth *auth, enum nvmf_auth_state state)
{
	const struct nvmf_qpair *qpair = auth->qpair;

	state_machine_check(&auth_machine, auth->state, state, auth->qpair->ctl_ctrlr->hostnqn);
	TRACE(NVMF_AUTH_STATE, qpair->trace_owner, 0, (uintptr_t)qpair, auth->state, state, qpair->ctl_qid, auth->why);
	USDT(nvmf_auth_state, qpair, qpair->ctl_qid, qpair->ctl_ctrlr->hostnqn, usdt_states(auth->state, state),
	     auth->why);
	auth->state = state;
}

/* ---- Life ---- */

static const struct nvmf_host *auth_find_host(const struct nvmf_subsystem *s, const char *hostnqn)
{
	return nvmf_hosts_find(&s->hosts, hostnqn);
}

bool nvmf_auth_required(const struct nvmf_subsystem *s, const char *hostnqn)
{
	const struct nvmf_host *host = auth_find_host(s, hostnqn);

	return host != NULL && host->key != NULL;
}

/* Erases the secrets of the transaction, which has ended or is about to begin. */
static void auth_forget_secrets(struct nvmf_auth *auth)
{
	keyring_put(auth->key);
	keyring_put(auth->ctrlr_key);
	dhchap_dh_free(auth->dh);
	nvmf_psk_discard(auth->psk);
	auth->key = auth->ctrlr_key = NULL;
	auth->psk = NULL;
	auth->dh = NULL;
	auth->answers = false;
	dhchap_cleanse(auth->value, sizeof(auth->value));
	dhchap_cleanse(auth->message, sizeof(auth->message));
	dhchap_cleanse(auth->response, sizeof(auth->response));
}

static void auth_timeout(void *arg);

int nvmf_auth_create(struct nvmf_qpair *qpair)
{
	struct nvmf_auth *auth = calloc(1, sizeof(*auth));

	if (auth == NULL) {
		log_limited(LOG_LEVEL_ERROR, "no memory for a host's authentication");
		return -ENOMEM;
	}
	auth->qpair = qpair;
	auth->timer = (struct thread_timer){.fn = auth_timeout, .arg = auth};
	qpair->auth = auth;
	return 0;
}

void nvmf_auth_destroy(struct nvmf_qpair *qpair)
{
	struct nvmf_auth *auth = qpair->auth;

	if (auth != NULL) {
		thread_timer_stop(&auth->timer);
		auth_forget_secrets(auth);
		free(auth);
		qpair->auth = NULL;
	}
}

/* The limit of a step is the host's keep-alive timeout. */
static uint64_t auth_step_us(const struct nvmf_auth *auth)
{
	const struct nvmf_ctrlr *ctrlr = auth->qpair->ctl_ctrlr;
	uint64_t kato_ms = atomic_load_explicit(&ctrlr->kato_ms, memory_order_relaxed);

	if (ctrlr->subsystem->tgt->auth_timeout_us != 0) {
		return ctrlr->subsystem->tgt->auth_timeout_us;
	}
	return kato_ms != 0 ? kato_ms * 1000 : DEFAULT_TIMEOUT_US;
}

static void auth_restart_timer(struct nvmf_auth *auth)
{
	thread_timer_start(&auth->timer, auth_step_us(auth));
}

void nvmf_auth_begin(struct nvmf_qpair *qpair)
{
	auth_restart_timer(qpair->auth);
}

bool nvmf_auth_computes(const struct nvmf_qpair *qpair)
{
	return qpair->auth != NULL && qpair->auth->req != NULL;
}

void nvmf_auth_get_info(const struct nvmf_qpair *qpair, struct nvmf_auth_info *info)
{
	const struct nvmf_auth *auth = qpair->auth;

	*info = (struct nvmf_auth_info){.present = auth != NULL};
	if (auth != NULL) {
		info->state = nvmf_auth_state_name(auth->state);
		info->digest = auth->chosen ? dhchap_hash_name(auth->hash) : "unknown";
		info->dhgroup = auth->chosen ? dhchap_group_name(auth->group) : "unknown";
	}
}

/* ---- The end of a queue pair that is not authenticated ---- */

static void auth_report_failure(const struct nvmf_auth *auth, const char *why)
{
	const struct nvmf_ctrlr *ctrlr = auth->qpair->ctl_ctrlr;

	log_limited(LOG_LEVEL_WARNING,
		    "%s from %s: authentication with %s failed on queue pair %u of controller %u: %s", ctrlr->hostnqn,
		    auth->qpair->peer_address.traddr, ctrlr->subsystem->nqn, auth->qpair->ctl_qid, ctrlr->cntlid, why);
	nvmf_notice_refused(NVMF_NOTICE_AUTH_FAILED, ctrlr->subsystem->nqn, ctrlr->hostnqn, why);
}

/* A failure on an I/O queue ends only that queue pair: a host that does not know the key may have named another host's
 * controller. */
static void auth_end_qpair(struct nvmf_auth *auth)
{
	if (auth->qpair->ctl_qid == 0) {
		nvmf_ctrlr_destroy(auth->qpair->ctl_ctrlr, "authentication failed");
	} else {
		nvmf_ctrlr_quiesce_qpair(auth->qpair);
	}
}

static void auth_timeout(void *arg)
{
	struct nvmf_auth *auth = arg;

	/* In ERROR the host is not expected to send anything; the timer only gave it time to read the failure. */
	if (auth->state != NVMF_AUTH_ERROR && thread_timer_was_absent(&auth->timer, auth_step_us(auth))) {
		auth_restart_timer(auth);
		return;
	}
	if (auth->state != NVMF_AUTH_ERROR) {
		if (auth->state != NVMF_AUTH_FAILURE1) { /* that has been told */
			auth_report_failure(auth, "the host did not go on in time");
		}
		auth_set_state(auth, NVMF_AUTH_ERROR);
	}
	auth_end_qpair(auth);
}

/* ---- Answers ---- */

/* Group. */
static void auth_finish_on_group(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);

	/* The host's keep-alive time begins now: it may have waited for this answer for longer than its timeout. */
	atomic_store_explicit(&req->qpair->last_command_ticks, thread_now(), memory_order_relaxed);
	if (req->authenticated && req->qpair->state == NVMF_QPAIR_AUTHENTICATING) {
		nvmf_qpair_set_state(req->qpair, NVMF_QPAIR_ENABLED);
	}
	nvmf_request_finish(req, req->answer_status);
}

static void auth_answer_at(struct nvmf_auth *auth, struct nvmf_request *req, uint16_t status, uint16_t where)
{
	req->authenticated = auth->state == NVMF_AUTH_COMPLETED;
	req->error_location = where;
	req->answer_status = status;
	if (status == NVME_ST_SUCCESS && auth->state != NVMF_AUTH_COMPLETED && auth->state != NVMF_AUTH_ERROR) {
		auth_restart_timer(auth); /* a command that fails does not count as a step */
	}
	thread_post(req->qpair->group->thread, &req->msg, auth_finish_on_group);
}

static void auth_answer(struct nvmf_auth *auth, struct nvmf_request *req)
{
	auth_answer_at(auth, req, NVME_ST_SUCCESS, NVMF_WHERE_NOWHERE);
}

/* The command succeeds; the host receives the failure with the next one. */
static void auth_fail(struct nvmf_auth *auth, uint8_t why)
{
	auth_report_failure(auth, dhchap_why_text(why));
	auth->why = why;
	auth_set_state(auth, NVMF_AUTH_FAILURE1);
	auth_forget_secrets(auth);
}

/* The host's next connections are made with the generated PSK. */
static void auth_publish_psk(struct nvmf_auth *auth)
{
	struct nvmf_ctrlr *ctrlr = auth->qpair->ctl_ctrlr;

	const struct nvmf_host *host = auth_find_host(ctrlr->subsystem, ctrlr->hostnqn);
	if (auth->psk == NULL || host == NULL || host->key != auth->key) {
		return; /* the host was removed, or got another key, since it has proved that it has this one */
	}
	if (auth->sc_c == DHCHAP_SC_REPLACE_TLS_PSK) {
		nvmf_psk_replace(auth->psk, host, ctrlr);
	} else {
		nvmf_psk_publish(auth->psk, host);
	}
	auth->psk = NULL;
}

static void auth_complete(struct nvmf_auth *auth)
{
	struct nvmf_ctrlr *ctrlr = auth->qpair->ctl_ctrlr;

	thread_timer_stop(&auth->timer);
	auth_publish_psk(auth);
	if (ctrlr->subsystem->subtype != NVMF_SUBTYPE_DISCOVERY) {
		nvmf_anonymous_remove(auth->qpair);
	}
	if (auth->qpair->ctl_qid == 0) {
		nvmf_ctrlr_announce(ctrlr);
	}
	auth_set_state(auth, NVMF_AUTH_COMPLETED);
	log_info(nvmf, "%s is authenticated with %s on queue pair %u of controller %u: %s, %s%s%s", ctrlr->hostnqn,
		 ctrlr->subsystem->nqn, auth->qpair->ctl_qid, ctrlr->cntlid, dhchap_hash_name(auth->hash),
		 dhchap_group_name(auth->group), auth->answers ? ", both ways" : "",
		 auth->sc_c != DHCHAP_SC_NONE ? ", for TLS" : "");
	auth_forget_secrets(auth);
}

/* ---- Authentication Send ---- */

/* Takes the host's keys. If the host or its key was removed, the authentication fails; an earlier success still holds.
 */
static uint8_t auth_take_keys(struct nvmf_auth *auth)
{
	const struct nvmf_ctrlr *ctrlr = auth->qpair->ctl_ctrlr;
	const struct nvmf_host *host = auth_find_host(ctrlr->subsystem, ctrlr->hostnqn);

	auth_forget_secrets(auth);
	if (host == NULL || host->key == NULL) {
		return DHCHAP_FAILED;
	}
	auth->key = keyring_hold(host->key);
	auth->ctrlr_key = keyring_hold(host->ctrlr_key);
	return DHCHAP_OK;
}

/* Whether secure channel concatenation may be asked for on this queue pair: on an admin queue, where there is TLS. A
 * new PSK is for a connection that has none yet, and only a generated one is replaced. */
static uint8_t auth_check_sc_c(const struct nvmf_auth *auth, const struct dhchap_negotiate *offer)
{
	const struct nvmf_qpair *qpair = auth->qpair;
	const struct tls_identity *by = qpair->secured_by;

	if (offer->sc_c == DHCHAP_SC_NONE) {
		return DHCHAP_OK;
	}
	if (qpair->ctl_qid != 0 || !nvmf_transport_has_tls(qpair->transport) ||
	    (offer->sc_c == DHCHAP_SC_NEW_TLS_PSK ? by != NULL : by == NULL || !by->generated)) {
		return DHCHAP_SCC_MISMATCH;
	}
	return (offer->groups & ~(1u << DHCHAP_GROUP_NULL)) != 0 ? DHCHAP_OK : DHCHAP_SCC_MISMATCH;
}

/* Chooses the strongest hash and group that both sides support. A PSK is generated with one of the hash functions that
 * TLS has, from the shared secret of a group. */
static uint8_t auth_choose_algorithms(struct nvmf_auth *auth, const struct dhchap_negotiate *offer)
{
	const struct nvmf_tgt *tgt = auth->qpair->ctl_ctrlr->subsystem->tgt;
	bool tls = offer->sc_c != DHCHAP_SC_NONE;
	int hash = dhchap_strongest(offer->hashes & tgt->dhchap_hashes & ~(tls ? 1u << DHCHAP_HASH_SHA512 : 0));
	int group = dhchap_strongest(offer->groups & tgt->dhchap_groups & ~(tls ? 1u << DHCHAP_GROUP_NULL : 0));

	if (hash < 0 || group < 0) {
		return hash < 0 ? DHCHAP_HASH_UNUSABLE : DHCHAP_GROUP_UNUSABLE;
	}
	auth->hash = (uint8_t)hash;
	auth->group = (uint8_t)group;
	auth->sc_c = offer->sc_c;
	auth->chosen = true;
	return DHCHAP_OK;
}

static void auth_take_negotiate(struct nvmf_auth *auth, struct nvmf_request *req, size_t len)
{
	struct dhchap_negotiate offer;
	uint8_t why;

	auth->t_id = le16toh(((const struct dhchap_header *)auth->message)->t_id);
	why = dhchap_decode_negotiate(auth->message, len, &offer);
	if (why == DHCHAP_OK) {
		why = auth_check_sc_c(auth, &offer);
	}
	if (why == DHCHAP_OK) {
		why = auth_choose_algorithms(auth, &offer);
	}
	if (why == DHCHAP_OK) {
		why = auth_take_keys(auth);
	}
	if (why != DHCHAP_OK) {
		auth_fail(auth, why);
	} else {
		auth_set_state(auth, NVMF_AUTH_CHALLENGE);
	}
	auth_answer(auth, req);
}

static int auth_make_response(const struct nvmf_auth *auth, bool of_host, uint8_t *response)
{
	const struct nvmf_ctrlr *ctrlr = auth->qpair->ctl_ctrlr;

	return dhchap_respond(
		&(struct dhchap_challenge_in){
			.secret = keyring_key_secret(of_host ? auth->key : auth->ctrlr_key),
			.hash = auth->hash,
			.of_host = of_host,
			.hostnqn = ctrlr->hostnqn,
			.subnqn = ctrlr->subsystem->nqn,
			.seqnum = of_host ? auth->seqnum : auth->reply.seqnum,
			.t_id = auth->t_id,
			.challenge = of_host ? auth->challenge : auth->reply.challenge,
			.dh_secret = auth->value,
			.dh_secret_len = dhchap_group_bytes(auth->group),
			.sc_c = auth->sc_c,
		},
		response);
}

/* Handshakes find the PSK when the authentication is complete. False: no room, or the host was removed meanwhile. A
 * host that replaces its key keeps its controller although there is no room: then no handshake finds the new key. */
static bool auth_generate_psk(struct nvmf_auth *auth)
{
	const struct nvmf_ctrlr *ctrlr = auth->qpair->ctl_ctrlr;
	const struct nvmf_host *host = auth_find_host(ctrlr->subsystem, ctrlr->hostnqn);
	bool replaces = auth->sc_c == DHCHAP_SC_REPLACE_TLS_PSK, good = false;
	uint8_t bytes[DHCHAP_HASH_MAX];

	if (host != NULL && dhchap_generate_psk(auth->hash, auth->value, dhchap_group_bytes(auth->group),
						auth->challenge, auth->reply.challenge, bytes) == 0) {
		auth->psk = nvmf_psk_generate(ctrlr->subsystem, host, auth->hash, bytes, replaces ? ctrlr : NULL);
		good = auth->psk != NULL || replaces;
	}
	if (good && auth->psk == NULL) {
		log_limited(LOG_LEVEL_WARNING,
			    "%s: controller %u goes on, but no connection can be made with its new key", ctrlr->hostnqn,
			    ctrlr->cntlid);
	}
	dhchap_cleanse(bytes, sizeof(bytes));
	return good;
}

/* The shared secret of Diffie-Hellman, if there is a group, is in auth->value. */
static uint8_t auth_check_reply(struct nvmf_auth *auth)
{
	uint8_t expected[DHCHAP_HASH_MAX];
	bool right = auth_make_response(auth, true, expected) == 0 &&
		     dhchap_equal(expected, auth->reply.response, dhchap_hash_bytes(auth->hash));

	dhchap_cleanse(expected, sizeof(expected));
	if (!right) {
		return DHCHAP_FAILED;
	}
	if (auth->sc_c != DHCHAP_SC_NONE && !auth_generate_psk(auth)) {
		return DHCHAP_FAILED;
	}
	auth->answers = auth->reply.challenge_valid && auth->reply.seqnum != 0; /* 0: it is for the PSK alone */
	if (auth->answers && (auth->ctrlr_key == NULL || auth_make_response(auth, false, auth->response) != 0)) {
		return DHCHAP_FAILED;
	}
	return DHCHAP_OK;
}

static void auth_finish_reply(struct nvmf_auth *auth, struct nvmf_request *req)
{
	uint8_t why = auth_check_reply(auth);

	if (why != DHCHAP_OK) {
		auth_fail(auth, why);
	} else {
		auth_set_state(auth, NVMF_AUTH_SUCCESS1);
	}
	auth_answer(auth, req);
}

/* Helper thread. */
static void auth_derive_secret(struct worker_job *job)
{
	struct nvmf_auth *auth = container_of(job, struct nvmf_auth, job);

	auth->job_rc = dhchap_dh_secret(auth->dh, auth->reply.dh_value, auth->reply.dh_len, auth->value);
}

static struct nvmf_request *auth_take_request(struct nvmf_auth *auth)
{
	struct nvmf_request *req = auth->req;

	auth->req = NULL;
	return req;
}

static void auth_secret_derived(struct worker_job *job)
{
	struct nvmf_auth *auth = container_of(job, struct nvmf_auth, job);
	struct nvmf_request *req = auth_take_request(auth);

	if (job->error != 0 || auth->job_rc != 0) {
		auth_fail(auth, auth->job_rc == -EINVAL ? DHCHAP_INCORRECT_PAYLOAD : DHCHAP_FAILED);
		auth_answer(auth, req);
	} else {
		auth_finish_reply(auth, req);
	}
}

static void auth_run_job(struct nvmf_auth *auth, struct nvmf_request *req, void (*work)(struct worker_job *),
			 void (*done)(struct worker_job *))
{
	auth->req = req;
	auth->job_rc = 0;
	auth->job.work = work;
	auth->job.done = done;
	thread_timer_stop(&auth->timer); /* the host is not the one who is late */
	dhchap_run(&auth->job);
}

static void auth_take_reply(struct nvmf_auth *auth, struct nvmf_request *req, size_t len)
{
	uint8_t why = dhchap_decode_reply(auth->message, len, auth->hash, auth->group, auth->sc_c, &auth->reply);

	if (why != DHCHAP_OK) {
		auth_fail(auth, why);
		auth_answer(auth, req);
	} else if (auth->group == DHCHAP_GROUP_NULL) {
		auth_finish_reply(auth, req);
	} else {
		auth_run_job(auth, req, auth_derive_secret, auth_secret_derived);
	}
}

static void auth_take_success2(struct nvmf_auth *auth, struct nvmf_request *req, size_t len)
{
	uint8_t why = dhchap_decode_success2(auth->message, len);

	if (why != DHCHAP_OK) {
		auth_fail(auth, why);
	} else {
		auth_complete(auth);
	}
	auth_answer(auth, req);
}

static void auth_linger(struct nvmf_auth *auth)
{
	auth_set_state(auth, NVMF_AUTH_ERROR);
	auth_forget_secrets(auth);
	thread_timer_start(&auth->timer, LINGER_US);
}

/* The host has refused the challenge or the response. */
static void auth_take_failure2(struct nvmf_auth *auth, struct nvmf_request *req, size_t len)
{
	struct dhchap_failure failure;

	if (dhchap_decode_failure(auth->message, len, &failure) != DHCHAP_OK) {
		auth_fail(auth, DHCHAP_INCORRECT_PAYLOAD);
		auth_answer(auth, req);
		return;
	}
	auth->why = failure.why;
	auth_report_failure(auth, failure.why == DHCHAP_FAILED ? "the host does not accept the controller's key"
							       : dhchap_why_text(failure.why));
	auth_linger(auth);
	auth_answer(auth, req);
}

static const struct {
	uint8_t type, id;
	uint16_t states;
	bool first; /* it begins a transaction and sets its id */
	void (*take)(struct nvmf_auth *auth, struct nvmf_request *req, size_t len);
} sends[] = {
	{DHCHAP_TYPE_COMMON, DHCHAP_ID_NEGOTIATE, 1 << NVMF_AUTH_NEGOTIATE | 1 << NVMF_AUTH_COMPLETED, true,
	 auth_take_negotiate},
	{DHCHAP_TYPE_DHCHAP, DHCHAP_ID_REPLY, 1 << NVMF_AUTH_REPLY, false, auth_take_reply},
	{DHCHAP_TYPE_DHCHAP, DHCHAP_ID_SUCCESS2, 1 << NVMF_AUTH_SUCCESS2, false, auth_take_success2},
	{DHCHAP_TYPE_COMMON, DHCHAP_ID_FAILURE2, 1 << NVMF_AUTH_REPLY | 1 << NVMF_AUTH_SUCCESS2, false,
	 auth_take_failure2},
};

static void auth_take_message(struct nvmf_auth *auth, struct nvmf_request *req, size_t len)
{
	struct dhchap_header header;

	if (!dhchap_decode_header(auth->message, len, &header)) {
		auth_fail(auth, DHCHAP_INCORRECT_PAYLOAD);
		auth_answer(auth, req);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(sends); i++) {
		if (sends[i].type != header.type || sends[i].id != header.id ||
		    (sends[i].states >> auth->state & 1) == 0) {
			continue;
		}
		if (!sends[i].first && le16toh(header.t_id) != auth->t_id) {
			break;
		}
		sends[i].take(auth, req, len);
		return;
	}
	auth_fail(auth, DHCHAP_INCORRECT_MESSAGE);
	auth_answer(auth, req);
}

/* ---- Authentication Receive ---- */

/* True if the host's buffer is large enough for a message. Otherwise the command fails, and the host may send it again
 * with a larger buffer. */
static bool auth_has_room(struct nvmf_auth *auth, struct nvmf_request *req, size_t len)
{
	if (req->length >= len) {
		return true;
	}
	auth_answer_at(auth, req, NVME_ST_DNR(GENERIC, INVALID_FIELD),
		       NVMF_WHERE(offsetof(struct nvmf_auth_sqe, length), 0));
	return false;
}

/* The rest of the host's buffer is zeroed. */
static void auth_put_data(struct nvmf_request *req, const void *message, size_t len)
{
	struct nvmf_window w = {.req = req};

	nvmf_window_put(&w, 0, message, len);
}

static void auth_put_failure1(struct nvmf_auth *auth, struct nvmf_request *req)
{
	uint8_t message[sizeof(struct dhchap_failure_wire)];

	if (auth_has_room(auth, req, sizeof(message))) {
		auth_put_data(req, message, dhchap_encode_failure(message, auth->t_id, DHCHAP_ID_FAILURE1, auth->why));
		auth_linger(auth);
		auth_answer(auth, req);
	}
}

static void auth_finish_challenge(struct nvmf_auth *auth, struct nvmf_request *req)
{
	struct dhchap_challenge c = {
		.hash = auth->hash,
		.group = auth->group,
		.challenge = auth->challenge,
		.dh_value = auth->value,
		.dh_len = (uint16_t)dhchap_group_bytes(auth->group),
	};

	if (dhchap_random(auth->challenge, dhchap_hash_bytes(auth->hash)) != 0) {
		auth_fail(auth, DHCHAP_FAILED);
		auth_put_failure1(auth, req);
		return;
	}
	c.seqnum = auth->seqnum = dhchap_seqnum();
	auth_put_data(req, auth->message, dhchap_encode_challenge(auth->message, auth->t_id, &c));
	auth_set_state(auth, NVMF_AUTH_REPLY);
	auth_answer(auth, req);
}

/* Helper thread. */
static void auth_generate_dh(struct worker_job *job)
{
	struct nvmf_auth *auth = container_of(job, struct nvmf_auth, job);

	auth->job_rc = dhchap_dh_generate(auth->group, &auth->dh);
	if (auth->job_rc != 0) {
		auth->dh = NULL;
		return;
	}
	auth->job_rc = dhchap_dh_public(auth->dh, auth->value);
}

static void auth_dh_generated(struct worker_job *job)
{
	struct nvmf_auth *auth = container_of(job, struct nvmf_auth, job);
	struct nvmf_request *req = auth_take_request(auth);

	if (job->error != 0 || auth->job_rc != 0) {
		auth_fail(auth, DHCHAP_FAILED);
		auth_put_failure1(auth, req);
	} else {
		auth_finish_challenge(auth, req);
	}
}

static void auth_put_challenge(struct nvmf_auth *auth, struct nvmf_request *req)
{
	size_t len =
		sizeof(struct dhchap_challenge_wire) + dhchap_hash_bytes(auth->hash) + dhchap_group_bytes(auth->group);

	if (!auth_has_room(auth, req, len)) {
		return;
	}
	if (auth->group == DHCHAP_GROUP_NULL) {
		auth_finish_challenge(auth, req);
	} else {
		auth_run_job(auth, req, auth_generate_dh, auth_dh_generated);
	}
}

static void auth_put_success1(struct nvmf_auth *auth, struct nvmf_request *req)
{
	size_t len = sizeof(struct dhchap_success1_wire) + (auth->answers ? dhchap_hash_bytes(auth->hash) : 0);

	if (!auth_has_room(auth, req, len)) {
		return;
	}
	auth_put_data(
		req, auth->message,
		dhchap_encode_success1(auth->message, auth->t_id, auth->hash, auth->answers ? auth->response : NULL));
	if (auth->answers) {
		auth_set_state(auth, NVMF_AUTH_SUCCESS2);
	} else {
		auth_complete(auth);
	}
	auth_answer(auth, req);
}

static void auth_put_incorrect_message(struct nvmf_auth *auth, struct nvmf_request *req)
{
	if (auth_has_room(auth, req, sizeof(struct dhchap_failure_wire))) {
		auth_fail(auth, DHCHAP_INCORRECT_MESSAGE);
		auth_put_failure1(auth, req);
	}
}

static void auth_put_message(struct nvmf_auth *auth, struct nvmf_request *req)
{
	static void (*const gives[NVMF_AUTH_STATES])(struct nvmf_auth * auth, struct nvmf_request * req) = {
		[NVMF_AUTH_CHALLENGE] = auth_put_challenge,
		[NVMF_AUTH_SUCCESS1] = auth_put_success1,
		[NVMF_AUTH_FAILURE1] = auth_put_failure1,
	};

	(gives[auth->state] != NULL ? gives[auth->state] : auth_put_incorrect_message)(auth, req);
}

/* ---- The commands ---- */

/* The authentication of a command's queue pair. NULL: the command was refused, because the host need not authenticate,
 * the queue pair is ending, or another such command is under way. */
static struct nvmf_auth *auth_find(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;
	const struct nvmf_ctrlr *ctrlr = qpair->ctl_ctrlr;

	if (qpair->auth == NULL && nvmf_auth_required(ctrlr->subsystem, ctrlr->hostnqn) &&
	    nvmf_auth_create(qpair) != 0) { /* the host got its keys after it connected */
		nvmf_request_answer_at(req, NVME_ST(GENERIC, INTERNAL), NVMF_WHERE_NOWHERE);
		return NULL;
	}
	struct nvmf_auth *auth = qpair->auth;
	if (auth == NULL || auth->req != NULL || auth->state == NVMF_AUTH_ERROR ||
	    ctrlr->state == NVMF_CTRLR_DESTROYING) {
		nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_FCTYPE);
		return NULL;
	}
	return auth;
}

void nvmf_auth_send_run(struct nvmf_request *req)
{
	struct nvmf_auth *auth = auth_find(req);

	if (auth == NULL) {
		return;
	}
	if (auth->state == NVMF_AUTH_FAILURE1) { /* the failure that the host has to receive stays the same */
		nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), NVMF_WHERE_FCTYPE);
		return;
	}
	auth_take_message(auth, req, nvmf_request_copy_data(req, auth->message, sizeof(auth->message)));
}

void nvmf_auth_receive_run(struct nvmf_request *req)
{
	struct nvmf_auth *auth = auth_find(req);

	if (auth != NULL) {
		auth_put_message(auth, req);
	}
}

/* Group. */
uint16_t nvmf_auth_length(const struct nvmf_request *req, uint64_t *bytes, uint16_t *where)
{
	const struct nvmf_auth_sqe *sqe = (const void *)req->sqe;
	uint32_t length = 0;
	uint16_t status = nvmf_decode_auth(
		sqe, sqe->fctype == nvme_fabrics_type_auth_send ? DHCHAP_MESSAGE_MAX : UINT32_MAX, &length, where);

	*bytes = length;
	return status;
}
