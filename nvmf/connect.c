/* SPDX-License-Identifier: BSD-3-Clause */
/* Connect (Base 6.3): decides which hosts may connect. decode_fabrics.c decodes the command; this file checks its
 * parameters against the target. Control thread, except for the last step. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"
#include "util/parse.h"

/* Whether the bad parameter is in the command or in its data. */
enum { IN_COMMAND = 0, IN_DATA = 1 };

#define IPO_QID     offsetof(struct nvmf_connect_sqe, qid)
#define IPO_SQSIZE  offsetof(struct nvmf_connect_sqe, sqsize)
#define IPO_HOSTID  offsetof(struct nvmf_connect_data, hostid)
#define IPO_CNTLID  offsetof(struct nvmf_connect_data, cntlid)
#define IPO_SUBNQN  offsetof(struct nvmf_connect_data, subsysnqn)
#define IPO_HOSTNQN offsetof(struct nvmf_connect_data, hostnqn)

/* Why a Connect is refused: for the host, and in words for the log and the notification. */
struct connect_refusal {
	struct nvmf_connect_fault fault;
	char why[NVMF_REFUSAL_MAX];
};

static uint16_t __attribute__((format(printf, 3, 4)))
connect_refuse(struct connect_refusal *r, uint16_t status, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, args);
	va_end(args);
	return status;
}

#define SHOWN_MAX 88 /* bytes of a name in a refusal, with quotes and NUL: two of them fit into a notification */

/* A name from outside, for one argument of connect_refuse(). */
struct connect_shown {
	char text[SHOWN_MAX];
};

static struct connect_shown connect_show(const char *nqn)
{
	struct connect_shown shown;

	utf8_quote(nqn, shown.text, sizeof(shown.text));
	return shown;
}

/* To be followed by connect_refuse(), which says what is allowed. */
static uint16_t connect_invalid(struct connect_refusal *r, uint8_t iattr, size_t ipo)
{
	r->fault.iattr = iattr;
	r->fault.ipo = (uint16_t)ipo;
	return NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_PARAM);
}

/* ---- Hosts without a name ---- */

/* No host in the configuration has such a name: it is not an NQN. */
#define UNNAMED "(unnamed)"

static bool connect_is_unnamed(const char *hostnqn)
{
	return strncmp(hostnqn, UNNAMED, strlen(UNNAMED)) == 0;
}

/* A host that gives no name goes by its address, so that whoever looks can tell such hosts from each other. */
static void connect_name_by_address(const struct nvmf_qpair *qpair, char hostnqn[NVMF_NQN_MAX + 1])
{
	snprintf(hostnqn, NVMF_NQN_MAX + 1, UNNAMED " %.200s", qpair->peer_address.traddr);
}

/* ---- Controller ids ---- */

/* The next free controller id; 0: there is none. An id that becomes free is used again as late as possible, so that a
 * host that returns after a break does not find its old id in use by another host. */
static uint16_t connect_next_free_cntlid(struct nvmf_subsystem *s)
{
	uint32_t range = s->max_cntlid - s->min_cntlid + UINT32_C(1);

	if (s->num_ctrlrs == range) {
		return 0;
	}
	for (uint32_t i = 0; i < range; i++) {
		uint16_t cntlid = s->next_cntlid;
		s->next_cntlid = cntlid == s->max_cntlid ? s->min_cntlid : (uint16_t)(cntlid + 1);
		if (nvmf_ctrlr_find(s, cntlid) == NULL) {
			return cntlid;
		}
	}
	return 0;
}

static uint16_t connect_pick_free_cntlid(struct nvmf_subsystem *s, uint16_t *cntlid, struct connect_refusal *r)
{
	*cntlid = connect_next_free_cntlid(s);
	return *cntlid != 0 ? NVME_ST_SUCCESS
			    : connect_refuse(r, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY),
					     "the subsystem has all its controllers, %u to %u", s->min_cntlid,
					     s->max_cntlid);
}

static uint16_t connect_pick_static_cntlid(struct nvmf_subsystem *s, uint16_t wanted, uint16_t *cntlid,
					   struct connect_refusal *r)
{
	if (wanted == NVMF_CNTLID_STATIC_ANY) {
		return connect_pick_free_cntlid(s, cntlid, r);
	}
	if (wanted < s->min_cntlid || wanted > s->max_cntlid) {
		return connect_refuse(r, connect_invalid(r, IN_DATA, IPO_CNTLID),
				      "CNTLID is 0x%04x: allowed are %u to %u", wanted, s->min_cntlid, s->max_cntlid);
	}
	*cntlid = wanted;
	return nvmf_ctrlr_find(s, wanted) == NULL
		       ? NVME_ST_SUCCESS
		       : connect_refuse(r, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY),
					"CNTLID is %u: that controller exists already", wanted);
}

static uint16_t connect_pick_cntlid(struct nvmf_subsystem *s, uint16_t wanted, uint16_t *cntlid,
				    struct connect_refusal *r)
{
	if (s->static_ctrlrs) {
		return connect_pick_static_cntlid(s, wanted, cntlid, r);
	}
	if (wanted != NVMF_CNTLID_DYNAMIC) {
		return connect_refuse(r, connect_invalid(r, IN_DATA, IPO_CNTLID),
				      "CNTLID is 0x%04x: allowed is 0xffff (dynamic controllers)", wanted);
	}
	return connect_pick_free_cntlid(s, cntlid, r);
}

/* ---- Admin queues and I/O queues ---- */

/* c->sqsize counts from 1. */
static uint16_t connect_refuse_sqsize(struct connect_refusal *r, uint32_t entries, uint32_t most)
{
	return connect_refuse(r, connect_invalid(r, IN_COMMAND, IPO_SQSIZE),
			      "SQSIZE is %u, for %u entries: allowed are 2 to %u entries", entries - 1, entries, most);
}

/* The controller that a host already has through the address that it connects to, if it may have only one; or NULL. */
static const struct nvmf_ctrlr *connect_find_duplicate(const struct nvmf_subsystem *s, const struct nvmf_qpair *qpair,
						       const struct nvmf_connect *c)
{
	const struct nvmf_ctrlr *ctrlr;

	if (!s->tgt->one_ctrlr_per_listener || s->subtype == NVMF_SUBTYPE_DISCOVERY) {
		return NULL;
	}
	TAILQ_FOREACH (ctrlr, &s->ctrlrs, link) {
		if (ctrlr->state != NVMF_CTRLR_DESTROYING && memcmp(ctrlr->hostid, c->hostid, sizeof(c->hostid)) == 0 &&
		    nvmf_address_equal(&ctrlr->listen_address, &qpair->listen_address)) {
			return ctrlr;
		}
	}
	return NULL;
}

static uint16_t connect_admin(struct nvmf_subsystem *s, struct nvmf_qpair *qpair, const struct nvmf_connect *c,
			      struct connect_refusal *r)
{
	uint16_t cntlid;

	if (c->sqsize > qpair->transport->opts.max_aq_depth) {
		return connect_refuse_sqsize(r, c->sqsize, qpair->transport->opts.max_aq_depth);
	}
	const struct nvmf_ctrlr *other = connect_find_duplicate(s, qpair, c);
	if (other != NULL) {
		return connect_refuse(r, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY),
				      "the host has controller %u through this address already (dup_host_policy is "
				      "restrict_per_listener)",
				      other->cntlid);
	}
	uint16_t status = connect_pick_cntlid(s, c->cntlid, &cntlid, r);
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_create(s, qpair, c, cntlid);
	if (ctrlr == NULL) {
		return connect_refuse(r, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY), "no memory for a controller");
	}
	if (qpair->secured_by != NULL && qpair->secured_by->generated) {
		memcpy(ctrlr->psk_digest, qpair->secured_by->digest, sizeof(ctrlr->psk_digest));
	}
	if (qpair->auth == NULL) {
		nvmf_ctrlr_announce(ctrlr);
	}
	return NVME_ST_SUCCESS;
}

static bool connect_qid_in_use(const struct nvmf_ctrlr *ctrlr, uint16_t qid)
{
	const struct nvmf_qpair *qpair;

	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		if (qpair->ctl_qid == qid) {
			return true;
		}
	}
	return false;
}

static uint16_t connect_refuse_hostid(const struct nvmf_ctrlr *ctrlr, const struct nvmf_connect *c,
				      struct connect_refusal *r)
{
	char given[BDEV_UUID_STRLEN], allowed[BDEV_UUID_STRLEN];

	bdev_uuid_format(c->hostid, given);
	bdev_uuid_format(ctrlr->hostid, allowed);
	return connect_refuse(r, connect_invalid(r, IN_DATA, IPO_HOSTID),
			      "HOSTID is %s: allowed is that of controller %u's host, %s", given, c->cntlid, allowed);
}

/* An I/O queue belongs to the host of its controller, and is encrypted if the admin queue is, and only then. */
static uint16_t connect_check_io_host(const struct nvmf_ctrlr *ctrlr, const struct nvmf_qpair *qpair,
				      const struct nvmf_connect *c, struct connect_refusal *r)
{
	const struct nvmf_qpair *admin = ctrlr->admin_qpair;

	if (strcmp(ctrlr->hostnqn, c->hostnqn) != 0) {
		return connect_refuse(r, connect_invalid(r, IN_DATA, IPO_HOSTNQN),
				      "HOSTNQN is %s: allowed is that of controller %u's host, %s",
				      connect_show(c->hostnqn).text, c->cntlid, connect_show(ctrlr->hostnqn).text);
	}
	if (memcmp(ctrlr->hostid, c->hostid, sizeof(c->hostid)) != 0) {
		return connect_refuse_hostid(ctrlr, c, r);
	}
	if (admin == NULL || (admin->secured_by == NULL) != (qpair->secured_by == NULL)) {
		return connect_refuse(r, NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST),
				      "its connection is %s TLS, other than that of controller %u's admin queue",
				      qpair->secured_by == NULL ? "without" : "over", c->cntlid);
	}
	return NVME_ST_SUCCESS;
}

static uint16_t connect_io(struct nvmf_subsystem *s, struct nvmf_qpair *qpair, const struct nvmf_connect *c,
			   struct connect_refusal *r)
{
	struct nvmf_ctrlr *ctrlr = nvmf_ctrlr_find(s, c->cntlid);

	if (ctrlr == NULL || ctrlr->transport != qpair->transport || ctrlr->state == NVMF_CTRLR_DESTROYING) {
		return connect_refuse(r, connect_invalid(r, IN_DATA, IPO_CNTLID),
				      "CNTLID is %u: the subsystem has no such controller on this transport",
				      c->cntlid);
	}
	uint16_t status = connect_check_io_host(ctrlr, qpair, c, r);
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	if (c->qid > ctrlr->max_io_qpairs) {
		return connect_refuse(r, connect_invalid(r, IN_COMMAND, IPO_QID), "QID is %u: allowed are up to %u",
				      c->qid, ctrlr->max_io_qpairs);
	}
	if (c->sqsize > qpair->transport->opts.max_queue_depth) {
		return connect_refuse_sqsize(r, c->sqsize, qpair->transport->opts.max_queue_depth);
	}
	if (ctrlr->state != NVMF_CTRLR_READY) {
		return connect_refuse(r, NVME_ST(GENERIC, CMD_SEQ_ERROR), "controller %u is %s, not READY", c->cntlid,
				      nvmf_ctrlr_state_name(ctrlr->state));
	}
	if (connect_qid_in_use(ctrlr, c->qid)) {
		return connect_refuse(r, NVME_ST(GENERIC, CMD_SEQ_ERROR),
				      "QID is %u: controller %u has that queue already", c->qid, c->cntlid);
	}
	nvmf_ctrlr_link_qpair(ctrlr, qpair, c->qid);
	return NVME_ST_SUCCESS;
}

/* Over TLS a host is who its key says, and is connected to the subsystem that the key is for; it may read the discovery
 * log, too. A connection that was accepted before its address became a secure one is not let in. */
static uint16_t connect_check_secure(const struct nvmf_subsystem *s, const struct nvmf_qpair *qpair,
				     const struct nvmf_connect *c, struct connect_refusal *r)
{
	const struct tls_identity *by = qpair->secured_by;

	if (by == NULL) { /* whether the subsystem listens there or not: the discovery subsystem does not */
		return !nvmf_transport_demands_tls(qpair->transport, &qpair->listen_address)
			       ? NVME_ST_SUCCESS
			       : connect_refuse(r, NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST),
						"its connection is not encrypted, which the listener demands");
	}
	if (strcmp(by->hostnqn, c->hostnqn) != 0) {
		return connect_refuse(r, NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST),
				      "HOSTNQN is %s: allowed is %s, whose key its TLS connection was made with",
				      connect_show(c->hostnqn).text, connect_show(by->hostnqn).text);
	}
	if (s->subtype != NVMF_SUBTYPE_DISCOVERY && strcmp(by->subnqn, s->nqn) != 0) {
		return connect_refuse(r, NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST),
				      "its TLS connection was made with its key for %s", connect_show(by->subnqn).text);
	}
	return NVME_ST_SUCCESS;
}

/* A generated PSK proves that the host has authenticated itself. It may have lost its key since the handshake. */
static bool connect_has_authenticated(const struct nvmf_qpair *qpair)
{
	const struct tls_identity *by = qpair->secured_by;
	struct tls_psk psk;

	if (by == NULL || !by->generated) {
		return false;
	}
	bool is_valid = nvmf_psk_find(qpair->transport->tgt, by, &psk);
	dhchap_cleanse(&psk, sizeof(psk));
	return is_valid;
}

/* To a host, a subsystem that does not listen on the host's address does not exist. */
static uint16_t connect_admit(struct nvmf_qpair *qpair, const struct nvmf_connect *c, struct connect_refusal *r)
{
	struct nvmf_subsystem *s = nvmf_subsystem_find(qpair->transport->tgt, c->subnqn);

	if (s == NULL || !nvmf_subsystem_reachable(s, &qpair->listen_address)) {
		return connect_refuse(r, connect_invalid(r, IN_DATA, IPO_SUBNQN),
				      "SUBNQN is %s: allowed are the subsystems that listen at %s port %s",
				      connect_show(c->subnqn).text, qpair->listen_address.traddr,
				      qpair->listen_address.trsvcid);
	}
	if (!nvmf_subsystem_host_allowed(s, c->hostnqn)) {
		return connect_refuse(r, NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST), "%s",
				      connect_is_unnamed(c->hostnqn)
					      ? "HOSTNQN is empty: allowed is that of one of the subsystem's hosts"
					      : "it is not among the subsystem's hosts");
	}
	uint16_t status = connect_check_secure(s, qpair, c, r);
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	if (!s->connectable) {
		return connect_refuse(r, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY),
				      "the subsystem is being started or stopped");
	}
	if (nvmf_auth_required(s, c->hostnqn) && !connect_has_authenticated(qpair) && nvmf_auth_create(qpair) != 0) {
		return connect_refuse(r, NVME_ST(CMD_SPECIFIC, CONNECT_CTRL_BUSY), "no memory for its authentication");
	}
	return c->qid == 0 ? connect_admin(s, qpair, c, r) : connect_io(s, qpair, c, r);
}

/* ---- */

/* Group: copies to the queue pair what Connect has set on the control thread, and finishes the command. */
static void connect_finish_on_group(struct thread_msg *msg)
{
	struct nvmf_request *req = container_of(msg, struct nvmf_request, msg);
	struct nvmf_qpair *qpair = req->qpair;
	const struct nvmf_connect_sqe *sqe = (const void *)req->sqe;
	uint16_t status = req->answer_status;

	if (status == NVME_ST_SUCCESS && qpair->state == NVMF_QPAIR_CONNECTING) {
		qpair->ctrlr = qpair->ctl_ctrlr;
		strcpy(qpair->hostnqn, qpair->ctrlr->hostnqn);
		qpair->view = qpair->group->views[qpair->ctl_ctrlr->subsystem->index];
		qpair->qid = le16toh(sqe->qid);
		qpair->sq_size = (uint16_t)(le16toh(sqe->sqsize) + 1);
		qpair->sq_flow_control = (sqe->cattr & NVMF_CATTR_DISABLE_SQ_FLOW) == 0;
		qpair->sq_head = 1;
		nvmf_qpair_connected(qpair);
	}
	nvmf_request_finish(req, status);
}

/* Sets dword 0 of the response, which also tells a host that it has to authenticate. */
static void connect_accept(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;
	uint32_t authreq = 0;

	if (qpair->auth == NULL && qpair->ctl_ctrlr->subsystem->subtype != NVMF_SUBTYPE_DISCOVERY) {
		nvmf_anonymous_remove(qpair);
	}
	if (qpair->auth != NULL) {
		qpair->auth_required = true;
		authreq = NVMF_AUTHREQ_ATR;
		nvmf_auth_begin(qpair);
	}
	req->cqe.dw0 = htole32(qpair->ctl_ctrlr->cntlid | authreq << 16);
}

static void connect_set_fault(struct nvmf_request *req, const struct nvmf_connect_fault *fault)
{
	req->cqe.dw0 = htole32(fault->ipo | (uint32_t)fault->iattr << 16);
	req->error_location = fault->iattr == IN_COMMAND ? fault->ipo : NVMF_WHERE_NOWHERE;
}

static const char *connect_printable(const char *nqn, size_t size)
{
	return nvmf_nqn_is_printable(nqn, size) ? nqn : "(no name)";
}

/* What nvmf_decode_connect() has found, in words. */
static void connect_explain_decoding(const struct nvmf_connect_sqe *sqe, uint16_t status, struct connect_refusal *r)
{
	static const struct {
		size_t ipo;
		uint8_t iattr;
		const char *name;
	} names[] = {{IPO_SUBNQN, IN_DATA, "SUBNQN"}, {IPO_HOSTNQN, IN_DATA, "HOSTNQN"}};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (r->fault.ipo == names[i].ipo && r->fault.iattr == names[i].iattr) {
			connect_refuse(r, status,
				       "%s is not a name: allowed are up to %d bytes of UTF-8 without control "
				       "characters",
				       names[i].name, NVMF_NQN_MAX);
			return;
		}
	}
	if (r->fault.iattr == IN_COMMAND && r->fault.ipo == IPO_SQSIZE) {
		connect_refuse(r, status, "SQSIZE is 0: allowed are 2 entries (1) or more");
	} else if (sqe->recfmt != 0) {
		connect_refuse(r, status, "RECFMT is %u: allowed is 0", le16toh(sqe->recfmt));
	} else {
		connect_refuse(r, status, "its data are shorter than %zu bytes", sizeof(struct nvmf_connect_data));
	}
}

/* In the log and as a notification, both limited in number. */
static void connect_tell_refusal(const struct nvmf_qpair *qpair, const struct nvmf_connect_sqe *sqe,
				 const struct nvmf_connect_data *data, uint16_t status, const struct connect_refusal *r)
{
	const char *hostnqn = connect_printable(data->hostnqn, sizeof(data->hostnqn));
	const char *subnqn = connect_printable(data->subsysnqn, sizeof(data->subsysnqn));
	char unnamed[NVMF_NQN_MAX + 1];

	if (data->hostnqn[0] == 0) {
		connect_name_by_address(qpair, unnamed);
		hostnqn = unnamed;
	}
	if (status == NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_HOST)) {
		log_limited(LOG_LEVEL_WARNING, "%s from %s is not allowed to connect to %s: %s", hostnqn,
			    qpair->peer_address.traddr, subnqn, r->why);
	} else { /* a host that tries again, or is at fault itself */
		log_limited(LOG_LEVEL_NOTICE, "%s from %s is refused by %s, queue %u: %s (status 0x%04x)", hostnqn,
			    qpair->peer_address.traddr, subnqn, le16toh(sqe->qid), r->why, status);
	}
	nvmf_notice_refused(NVMF_NOTICE_HOST_REFUSED, subnqn, hostnqn, r->why);
}

static uint16_t connect_decide(struct nvmf_qpair *qpair, const struct nvmf_connect_sqe *sqe,
			       const struct nvmf_connect_data *data, size_t len, struct connect_refusal *r)
{
	struct nvmf_connect c;

	if (qpair->linked) { /* a host may send a second Connect before the first is answered */
		return connect_refuse(r, NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR), "the queue is connected already");
	}
	uint16_t status = nvmf_decode_connect(sqe, data, len, &c, &r->fault);
	if (status != NVME_ST_SUCCESS) {
		connect_explain_decoding(sqe, status, r);
		return status;
	}
	if (c.hostnqn[0] == 0) {
		connect_name_by_address(qpair, c.hostnqn);
	}
	status = connect_admit(qpair, &c, r);
	if (status != NVME_ST_SUCCESS) {
		nvmf_auth_destroy(qpair);
	}
	return status;
}

void nvmf_connect_run(struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;
	const struct nvmf_connect_sqe *sqe = (const void *)req->sqe;
	struct connect_refusal r = {.why = ""};
	struct nvmf_connect_data data = {.cntlid = 0};
	size_t len = nvmf_request_copy_data(req, &data, sizeof(data));
	uint16_t status = connect_decide(qpair, sqe, &data, len, &r);

	if (status == NVME_ST_SUCCESS) {
		connect_accept(req);
	} else {
		connect_tell_refusal(qpair, sqe, &data, status, &r);
		if (r.fault.ipo != 0 || r.fault.iattr != 0) {
			connect_set_fault(req, &r.fault);
		}
	}
	req->answer_status = status;
	thread_post(qpair->group->thread, &req->msg, connect_finish_on_group);
}

/* ---- A Connect that the poll group refuses: its data were not read, so nobody knows who sent it ---- */

static void connect_refused_on_control(struct thread_msg *msg)
{
	struct nvmf_qpair *qpair = container_of(msg, struct nvmf_qpair, refused_msg);
	char why[NVMF_REFUSAL_MAX];

	snprintf(why, sizeof(why), "its Connect is malformed or out of order: status 0x%04x, byte %u of the command",
		 qpair->refused_status, qpair->refused_where);
	nvmf_connection_refused(qpair->peer_address.traddr, why);
	atomic_store_explicit(&qpair->refused_posted, false, memory_order_release);
}

void nvmf_connect_rejected(const struct nvmf_request *req)
{
	struct nvmf_qpair *qpair = req->qpair;

	if (atomic_load_explicit(&qpair->refused_posted, memory_order_acquire)) {
		return; /* another one is being told */
	}
	atomic_store_explicit(&qpair->refused_posted, true, memory_order_relaxed);
	qpair->refused_status = nvmf_request_status(req);
	qpair->refused_where = req->error_location;
	thread_post(thread_control(), &qpair->refused_msg, connect_refused_on_control);
}

void nvmf_connection_refused(const char *traddr, const char *why)
{
	log_limited(LOG_LEVEL_NOTICE, "a connection from %s is refused: %s", traddr, why);
	nvmf_notice_refused(NVMF_NOTICE_HOST_REFUSED, "(unknown)", traddr, why);
}
