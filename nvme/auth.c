/* SPDX-License-Identifier: BSD-3-Clause */
/* In-band authentication, the host's side: DH-HMAC-CHAP (Base 8.13.5) on a queue pair that has just been connected, or
 * again on the admin queue. Control thread; Diffie-Hellman arithmetic, which is slow, runs on a worker thread.
 *
 * A transaction is a sequence of commands, each of which is sent when the one before has been answered; states[] names
 * the function that handles each answer. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dhchap/dhchap.h"
#include "env_dpdk/env.h"
#include "keyring/keyring.h"
#include "tls/vault.h"
#include "util/log.h"

LOG_FLAG(nvme)

enum auth_state {
	SEND_NEGOTIATE,
	GET_CHALLENGE,
	COMPUTE, /* no command: a worker thread computes */
	SEND_REPLY,
	GET_SUCCESS1,
	SEND_SUCCESS2,
	SEND_FAILURE2,
	STATES,
};

struct nvme_auth {
	/* NULL: cancelled; it ends when the command or the worker thread that it waits for has ended */
	struct nvme_qpair *qpair;
	enum auth_state state;
	uint8_t sc_c;            /* enum dhchap_sc_c */
	unsigned hashes, groups; /* that were offered */
	bool waits;              /* a command or a job on a worker thread is under way */
	nvme_auth_fn done;
	void *arg;
	struct keyring_key *key, *ctrlr_key; /* this host's; the controller's, or NULL */
	char why[NVME_ERROR_MAX];            /* why it fails */
	uint16_t t_id;
	uint32_t seqnum;                   /* of this host's challenge */
	struct dhchap_challenge challenge; /* points into kept */
	uint8_t our_challenge[DHCHAP_HASH_MAX];
	struct worker_job job;
	int job_rc;
	uint8_t value[DHCHAP_DH_MAX], secret[DHCHAP_DH_MAX];
	uint8_t kept[DHCHAP_MESSAGE_MAX]; /* the Challenge */
	uint8_t *buf;                     /* DMA-able: the message that is under way */
	struct iovec iov;
	struct nvme_request req; /* last: the transport's room follows */
};

static void auth_end(struct nvme_auth *auth, int error)
{
	nvme_auth_fn done = auth->done;
	void *arg = auth->arg;
	char why[NVME_ERROR_MAX];

	if (auth->qpair != NULL) {
		auth->qpair->auth = NULL;
	} else {
		done = NULL;
	}
	memcpy(why, auth->why, sizeof(why));
	keyring_put(auth->key);
	keyring_put(auth->ctrlr_key);
	env_dma_free(auth->buf);
	dhchap_cleanse(auth, sizeof(*auth));
	free(auth);
	if (done != NULL) {
		done(arg, error, why);
	}
}

/* --- Commands --- */

static void auth_command_done(struct nvme_request *req, const struct nvme_cqe *cqe);

static void auth_submit(struct nvme_auth *auth, enum auth_state state, size_t len)
{
	bool send = state != GET_CHALLENGE && state != GET_SUCCESS1;
	struct nvmf_auth_sqe *sqe = (struct nvmf_auth_sqe *)&auth->req.cmd;

	auth->state = state;
	auth->iov = (struct iovec){.iov_base = auth->buf, .iov_len = len};
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = nvme_admin_fabrics;
	sqe->fctype = send ? nvme_fabrics_type_auth_send : nvme_fabrics_type_auth_receive;
	sqe->secp = NVMF_AUTH_SECP;
	sqe->spsp0 = sqe->spsp1 = NVMF_AUTH_SPSP;
	sqe->length = htole32((uint32_t)len);
	auth->req.iovs = &auth->iov;
	auth->req.iovcnt = 1;
	auth->req.data_len = (uint32_t)len;
	auth->req.to_device = send;
	auth->req.cb = auth_command_done;
	auth->req.cb_arg = auth;
	int rc = nvme_qpair_submit(auth->qpair, &auth->req);
	if (rc != 0) {
		snprintf(auth->why, sizeof(auth->why), "%s", strerror(-rc));
		auth_end(auth, rc);
		return;
	}
	auth->waits = true;
	nvme_qpair_flush(auth->qpair);
}

static void auth_receive(struct nvme_auth *auth, enum auth_state state)
{
	memset(auth->buf, 0, DHCHAP_MESSAGE_MAX);
	auth_submit(auth, state, DHCHAP_MESSAGE_MAX);
}

/* Ends the transaction, and tells the controller why. */
static void auth_refuse(struct nvme_auth *auth, uint8_t why, const char *text)
{
	snprintf(auth->why, sizeof(auth->why), "%s", text);
	auth_submit(auth, SEND_FAILURE2, dhchap_encode_failure(auth->buf, auth->t_id, DHCHAP_ID_FAILURE2, why));
}

/* --- Answers --- */

static void auth_negotiate_sent(struct nvme_auth *auth)
{
	auth_receive(auth, GET_CHALLENGE);
}

/* True if buf holds the message that the controller has to send now. False: the transaction has ended, or ends when the
 * controller has been told why. */
static bool auth_message_is_due(struct nvme_auth *auth, uint8_t id)
{
	struct dhchap_header header;
	struct dhchap_failure failure;

	dhchap_decode_header(auth->buf, DHCHAP_MESSAGE_MAX, &header);
	if (header.type == DHCHAP_TYPE_COMMON && header.id == DHCHAP_ID_FAILURE1) {
		dhchap_decode_failure(auth->buf, DHCHAP_MESSAGE_MAX, &failure);
		snprintf(auth->why, sizeof(auth->why), "the controller says: %s", dhchap_why_text(failure.why));
		auth_end(auth, -EACCES);
		return false;
	}
	if (header.type != DHCHAP_TYPE_DHCHAP || header.id != id || le16toh(header.t_id) != auth->t_id) {
		auth_refuse(auth, DHCHAP_INCORRECT_MESSAGE, "the controller sent a message that was not due");
		return false;
	}
	return true;
}

static int chap_response_compute(const struct nvme_auth *auth, bool of_host, uint8_t *response)
{
	const struct nvme_ctrlr *ctrlr = auth->qpair->ctrlr;

	return dhchap_respond(
		&(struct dhchap_challenge_in){
			.secret = keyring_key_secret(of_host ? auth->key : auth->ctrlr_key),
			.hash = auth->challenge.hash,
			.of_host = of_host,
			.hostnqn = ctrlr->opts.hostnqn,
			.subnqn = ctrlr->trid.subnqn,
			.seqnum = of_host ? auth->challenge.seqnum : auth->seqnum,
			.t_id = auth->t_id,
			.challenge = of_host ? auth->challenge.challenge : auth->our_challenge,
			.dh_secret = auth->secret,
			.dh_secret_len = dhchap_group_bytes(auth->challenge.group),
			.sc_c = auth->sc_c,
		},
		response);
}

static void auth_send_reply(struct nvme_auth *auth)
{
	uint8_t response[DHCHAP_HASH_MAX];
	struct dhchap_reply m = {
		.challenge_valid = auth->ctrlr_key != NULL || auth->sc_c != DHCHAP_SC_NONE,
		.response = response,
		.challenge = auth->our_challenge,
		.dh_value = auth->value,
		.dh_len = (uint16_t)dhchap_group_bytes(auth->challenge.group),
	};

	/* 0 says that the controller need not answer the challenge, which is for the generated PSK alone
	 * (Base 8.13.5.4). Otherwise it must not be 0, even if there is no challenge. */
	m.seqnum = auth->seqnum = auth->ctrlr_key == NULL && auth->sc_c != DHCHAP_SC_NONE ? 0 : dhchap_seqnum();
	if (chap_response_compute(auth, true, response) != 0 ||
	    dhchap_random(auth->our_challenge, sizeof(auth->our_challenge)) != 0) {
		auth_refuse(auth, DHCHAP_FAILED, "the response could not be computed");
		return;
	}
	auth_submit(auth, SEND_REPLY, dhchap_encode_reply(auth->buf, auth->t_id, auth->challenge.hash, &m));
}

/* On a worker thread. */
static void auth_compute_dh(struct worker_job *job)
{
	struct nvme_auth *auth = container_of(job, struct nvme_auth, job);
	struct dhchap_dh *dh;

	auth->job_rc = dhchap_dh_generate(auth->challenge.group, &dh);
	if (auth->job_rc != 0) {
		return;
	}
	auth->job_rc = dhchap_dh_public(dh, auth->value);
	if (auth->job_rc == 0) {
		auth->job_rc = dhchap_dh_secret(dh, auth->challenge.dh_value, auth->challenge.dh_len, auth->secret);
	}
	dhchap_dh_free(dh);
}

static void auth_dh_computed(struct worker_job *job)
{
	struct nvme_auth *auth = container_of(job, struct nvme_auth, job);

	auth->waits = false;
	if (auth->qpair == NULL) {
		auth_end(auth, -ECANCELED);
	} else if (job->error != 0 || auth->job_rc != 0) {
		auth_refuse(auth, auth->job_rc == -EINVAL ? DHCHAP_INCORRECT_PAYLOAD : DHCHAP_FAILED,
			    "the controller's DH value cannot be used");
	} else {
		auth_send_reply(auth);
	}
}

static void auth_challenge_received(struct nvme_auth *auth)
{
	uint8_t why;

	if (!auth_message_is_due(auth, DHCHAP_ID_CHALLENGE)) {
		return;
	}
	memcpy(auth->kept, auth->buf, sizeof(auth->kept));
	why = dhchap_decode_challenge(auth->kept, sizeof(auth->kept), &auth->challenge);
	if (why == DHCHAP_OK && (auth->hashes >> auth->challenge.hash & 1) == 0) {
		why = DHCHAP_HASH_UNUSABLE; /* this host has not offered it */
	}
	if (why == DHCHAP_OK && (auth->groups >> auth->challenge.group & 1) == 0) {
		why = DHCHAP_GROUP_UNUSABLE;
	}
	if (why != DHCHAP_OK) {
		auth_refuse(auth, why, dhchap_why_text(why));
	} else if (auth->challenge.group == DHCHAP_GROUP_NULL) {
		auth_send_reply(auth);
	} else {
		auth->state = COMPUTE;
		auth->waits = true;
		auth->job = (struct worker_job){.work = auth_compute_dh, .done = auth_dh_computed};
		dhchap_run(&auth->job);
	}
}

static void auth_reply_sent(struct nvme_auth *auth)
{
	auth_receive(auth, GET_SUCCESS1);
}

static bool auth_response_is_right(const struct nvme_auth *auth, const struct dhchap_success1 *success)
{
	uint8_t expected[DHCHAP_HASH_MAX];
	bool right = success->response_valid && chap_response_compute(auth, false, expected) == 0 &&
		     dhchap_equal(expected, success->response, dhchap_hash_bytes(auth->challenge.hash));

	dhchap_cleanse(expected, sizeof(expected));
	return right;
}

/* With it the next queue pairs are connected over TLS. */
static bool auth_keep_psk(struct nvme_auth *auth)
{
	struct nvme_ctrlr *ctrlr = auth->qpair->ctrlr;
	struct tls_psk *psk = tls_vault_get();
	uint8_t bytes[DHCHAP_HASH_MAX];

	if (psk == NULL ||
	    dhchap_generate_psk(auth->challenge.hash, auth->secret, dhchap_group_bytes(auth->challenge.group),
				auth->challenge.challenge, auth->our_challenge, bytes) != 0) {
		tls_vault_put(psk);
		return false;
	}
	psk->hash = auth->challenge.hash;
	psk->len = (uint8_t)dhchap_hash_bytes(psk->hash);
	psk->generated = true;
	memcpy(psk->bytes, bytes, psk->len);
	dhchap_cleanse(bytes, sizeof(bytes));
	tls_vault_put(ctrlr->generated);
	ctrlr->generated = psk;
	return true;
}

static void auth_succeed(struct nvme_auth *auth)
{
	if (auth->sc_c != DHCHAP_SC_NONE && !auth_keep_psk(auth)) {
		snprintf(auth->why, sizeof(auth->why), "the key for TLS could not be generated");
		auth_end(auth, -ENOMEM);
		return;
	}
	log_info(nvme, "%s %s: authenticated on queue pair %u: %s, %s%s", auth->qpair->ctrlr->trid.traddr,
		 auth->qpair->ctrlr->trid.subnqn, auth->qpair->id, dhchap_hash_name(auth->challenge.hash),
		 dhchap_group_name(auth->challenge.group), auth->ctrlr_key != NULL ? ", both ways" : "");
	auth_end(auth, 0);
}

static void auth_success1_received(struct nvme_auth *auth)
{
	struct dhchap_success1 success;

	if (!auth_message_is_due(auth, DHCHAP_ID_SUCCESS1)) {
		return;
	}
	if (dhchap_decode_success1(auth->buf, DHCHAP_MESSAGE_MAX, auth->challenge.hash, &success) != DHCHAP_OK) {
		auth_refuse(auth, DHCHAP_INCORRECT_PAYLOAD, "the controller sent a message of a wrong form");
	} else if (auth->ctrlr_key == NULL) {
		auth_succeed(auth);
	} else if (!auth_response_is_right(auth, &success)) {
		auth_refuse(auth, DHCHAP_FAILED, "the controller does not know its key (dhchap_ctrlr_key)");
	} else {
		auth_submit(auth, SEND_SUCCESS2, dhchap_encode_success2(auth->buf, auth->t_id));
	}
}

static void auth_failure2_sent(struct nvme_auth *auth)
{
	auth_end(auth, -EACCES);
}

static const struct {
	const char *name;
	void (*answered)(struct nvme_auth *auth);
} states[STATES] = {
	[SEND_NEGOTIATE] = {"AUTH_Negotiate", auth_negotiate_sent},
	[GET_CHALLENGE] = {"DH-HMAC-CHAP_Challenge", auth_challenge_received},
	[COMPUTE] = {"Diffie-Hellman", NULL},
	[SEND_REPLY] = {"DH-HMAC-CHAP_Reply", auth_reply_sent},
	[GET_SUCCESS1] = {"DH-HMAC-CHAP_Success1", auth_success1_received},
	[SEND_SUCCESS2] = {"DH-HMAC-CHAP_Success2", auth_succeed},
	[SEND_FAILURE2] = {"AUTH_Failure2", auth_failure2_sent},
};

static void auth_command_done(struct nvme_request *req, const struct nvme_cqe *cqe)
{
	struct nvme_auth *auth = req->cb_arg;
	uint16_t status = nvme_cqe_status(cqe);

	auth->waits = false;
	if (auth->qpair == NULL) {
		auth_end(auth, -ECANCELED);
	} else if (status != 0 && auth->state != SEND_FAILURE2) {
		snprintf(auth->why, sizeof(auth->why), "%s: %s", states[auth->state].name, nvme_status_text(status));
		auth_end(auth, -EIO);
	} else {
		states[auth->state].answered(auth);
	}
}

/* --- The interface --- */

bool nvme_auth_needed(const struct nvme_ctrlr *ctrlr, const struct nvme_cqe *connect)
{
	uint16_t authreq = (uint16_t)(le32toh(connect->dw0) >> 16);

	if ((authreq & (NVMF_AUTHREQ_ATR | NVMF_AUTHREQ_ASCR)) != 0) {
		return true;
	}
	/* A host that has a key for the controller must insist: else the other side could avoid its proof. It has given
	 * it before a PSK was generated. */
	return ctrlr->generated == NULL && (ctrlr->opts.dhchap_ctrlr_key != NULL || ctrlr->opts.tcp_concat);
}

/* On the admin queue alone: for a connection over TLS; or, of a controller that is in use over TLS, again. */
static uint8_t auth_choose_sc_c(const struct nvme_qpair *qpair)
{
	const struct nvme_ctrlr *ctrlr = qpair->ctrlr;

	if (!ctrlr->opts.tcp_concat || qpair->id != 0) {
		return DHCHAP_SC_NONE;
	}
	if (ctrlr->generated == NULL) {
		return DHCHAP_SC_NEW_TLS_PSK;
	}
	return ctrlr->state == NVME_CTRLR_READY ? DHCHAP_SC_REPLACE_TLS_PSK : DHCHAP_SC_NONE;
}

static int auth_alloc(struct nvme_qpair *qpair, struct nvme_auth **auth)
{
	*auth = calloc(1, offsetof(struct nvme_auth, req) + nvme_request_size());
	if (*auth == NULL) {
		return -ENOMEM;
	}
	(*auth)->buf = env_dma_zmalloc(DHCHAP_MESSAGE_MAX, 0, -1);
	if ((*auth)->buf == NULL) {
		free(*auth);
		return -ENOMEM;
	}
	return 0;
}

int nvme_auth_start(struct nvme_qpair *qpair, struct keyring_key *key, struct keyring_key *ctrlr_key, nvme_auth_fn done,
		    void *arg)
{
	static uint16_t last_t_id;
	const struct nvme_ctrlr_opts *opts = &qpair->ctrlr->opts;
	struct nvme_auth *auth;

	if (key == NULL || qpair->auth != NULL) {
		return key == NULL ? -ENOKEY : -EBUSY;
	}
	int rc = auth_alloc(qpair, &auth);
	if (rc != 0) {
		return rc;
	}
	auth->qpair = qpair;
	auth->done = done;
	auth->arg = arg;
	auth->key = keyring_hold(key);
	auth->ctrlr_key = keyring_hold(ctrlr_key);
	auth->t_id = ++last_t_id;
	qpair->auth = auth;
	auth->state = SEND_NEGOTIATE;
	auth->sc_c = auth_choose_sc_c(qpair);
	auth->hashes = opts->dhchap_hashes & ~(auth->sc_c != DHCHAP_SC_NONE ? 1u << DHCHAP_HASH_SHA512 : 0);
	auth->groups = opts->dhchap_groups & ~(auth->sc_c != DHCHAP_SC_NONE ? 1u << DHCHAP_GROUP_NULL : 0);
	auth_submit(auth, SEND_NEGOTIATE,
		    dhchap_encode_negotiate(auth->buf, auth->t_id, auth->sc_c, auth->hashes, auth->groups));
	return 0;
}

void nvme_auth_cancel(struct nvme_qpair *qpair)
{
	struct nvme_auth *auth = qpair->auth;

	if (auth == NULL) {
		return;
	}
	qpair->auth = NULL;
	auth->qpair = NULL;
	if (!auth->waits) {
		auth_end(auth, -ECANCELED);
	}
}
