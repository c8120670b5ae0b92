/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of the TCP transport: the socket, then ICReq and ICResp, by the socket's events. Control thread. */
#include "nvme/tcp/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp/socket.h"
#include "util/log.h"

#define WHY_MAX 256

/* The time limit of both steps, as long as this transport has for them: less than the room's, so that the reason is
 * known. */
static uint32_t link_limit_ms(const struct nvme_tcp_qpair *q)
{
	uint32_t ms = q->base.ctrlr->opts.connect_timeout_ms;

	return ms - ms / 10;
}

static void link_report(struct nvme_tcp_qpair *q, int error, const char *why)
{
	q->connect_reported = true;
	thread_timer_stop(&q->timer);
	nvme_tcp_secure_cancel(q);
	if (q->source != NULL) {
		fd_source_remove(&q->source);
	}
	if (q->base.id == 0) {
		nvme_ctrlr_connected(q->base.ctrlr, error, why);
		return;
	}
	if (error != 0) {
		log_warning("%s: queue pair %u: %s", q->base.ctrlr->trid.traddr, q->base.id, why);
	}
	nvme_qpair_transport_connected(&q->base, error);
}

static void link_refuse(struct nvme_tcp_qpair *q, int error, const char *step, const char *reason)
{
	char why[WHY_MAX];

	snprintf(why, sizeof(why), "%s: %s", step, reason);
	nvme_tcp_set_down(q);
	link_report(q, error, why);
}

/* What an error of connect(2) means here, behind its text. */
static const char *link_error_text(const struct nvme_tcp_qpair *q, int error, char text[WHY_MAX])
{
	const struct nvme_trid *t = &q->base.ctrlr->trid;

	snprintf(text, WHY_MAX, "%s", strerror(error));
	size_t n = strlen(text);
	if (error == ECONNREFUSED) {
		snprintf(text + n, WHY_MAX - n, ": nobody listens at %s port %s", t->traddr,
			 t->trsvcid[0] != '\0' ? t->trsvcid : NVME_TCP_DEFAULT_TRSVCID);
	} else if (error == EHOSTUNREACH || error == ENETUNREACH) {
		snprintf(text + n, WHY_MAX - n, ": this machine knows no way to %s", t->traddr);
	}
	return text;
}

static const char *link_step(const struct nvme_tcp_qpair *q)
{
	return q->link == NVME_TCP_LINK_CONNECTING ? "TCP connection"
	       : q->link == NVME_TCP_LINK_TLS      ? "TLS handshake"
						   : "ICResp";
}

static void link_timed_out(void *arg)
{
	struct nvme_tcp_qpair *q = arg;
	uint32_t ms = link_limit_ms(q);
	char reason[32];

	if (thread_timer_was_absent(&q->timer, ms * UINT64_C(1000))) {
		thread_timer_start(&q->timer, ms * UINT64_C(1000)); /* what came meanwhile has not been read yet */
		return;
	}
	snprintf(reason, sizeof(reason), "none within %u ms", ms);
	link_refuse(q, -ETIMEDOUT, link_step(q), reason);
}

/* ICReq and ICResp. */

static void icreq_send(struct nvme_tcp_qpair *q)
{
	const struct nvme_ctrlr_opts *opts = &q->base.ctrlr->opts;
	union tcp_header h;

	q->icreq = (struct tcp_icreq){.header_digest = opts->tcp_header_digest,
				      .data_digest = opts->tcp_data_digest,
				      .max_r2t = NVME_TCP_R2TS};
	uint32_t n = tcp_icreq_encode(&h, &q->icreq);

	if (!nvme_tcp_send_now(q, &h, n)) { /* nothing was sent before: it has room */
		link_refuse(q, -ECONNRESET, "ICReq", errno != 0 ? strerror(errno) : "sent in part");
		return;
	}
	q->link = NVME_TCP_LINK_ICREQ;
	fd_source_modify(q->source, EPOLLIN);
}

/* The descriptor that users sleep on. */
static int link_epoll_make(struct nvme_tcp_qpair *q)
{
	struct epoll_event event = {.events = EPOLLIN};

	q->epoll = epoll_create1(EPOLL_CLOEXEC);
	return q->epoll >= 0 && epoll_ctl(q->epoll, EPOLL_CTL_ADD, q->fd, &event) == 0 ? 0 : -errno;
}

static void icresp_accept(struct nvme_tcp_qpair *q, const struct tcp_icresp *resp)
{
	if (q->icreq.header_digest != resp->header_digest || q->icreq.data_digest != resp->data_digest) {
		link_refuse(q, -EPROTO, "ICResp",
			    q->icreq.header_digest != resp->header_digest
				    ? "the controller has no header digest, which hdgst asks for"
				    : "the controller has no data digest, which ddgst asks for");
		return;
	}
	int rc = link_epoll_make(q);
	if (rc != 0) {
		link_refuse(q, rc, "epoll", strerror(-rc));
		return;
	}
	q->rx.agreed = tcp_agree(&q->icreq, resp);
	nvme_tcp_zerocopy_begin(q);
	q->link = NVME_TCP_LINK_UP;
	link_report(q, 0, "");
}

static void icresp_handle(struct nvme_tcp_qpair *q)
{
	char text[TCP_FAULT_TEXT_MAX];
	struct tcp_icresp resp;
	struct tcp_fault fault;
	struct tcp_term term;

	if (q->rx.header.common.type == TCP_PDU_C2H_TERM) {
		tcp_term_decode(&q->rx.header, &q->rx.shape, &term);
		link_refuse(q, -ECONNREFUSED, "C2HTermReq", tcp_term_text(&term, TCP_CONTROLLER, text));
	} else if (tcp_icresp_decode(&q->rx.header.icresp, &q->icreq, &resp, &fault)) {
		icresp_accept(q, &resp);
	} else {
		nvme_tcp_terminate(q, &fault);
		link_refuse(q, -EPROTO, "ICResp", tcp_fault_text(&fault, text));
	}
}

static void icresp_read(struct nvme_tcp_qpair *q)
{
	char text[TCP_FAULT_TEXT_MAX];
	struct tcp_fault fault;
	int rc;

	do {
		rc = tcp_receiver_read(&q->rx, q->fd);
	} while (rc == -EAGAIN && q->tls != NULL && tls_session_has_more(q->tls)); /* epoll does not tell of that */
	if (rc == -EAGAIN) {
		return;
	}
	if (rc < 0) {
		link_refuse(q, rc, "ICResp",
			    rc == -ECONNRESET                 ? "the controller has closed the connection"
			    : q->tls != NULL && rc == -EPROTO ? tls_session_why(q->tls)
							      : strerror(-rc));
		return;
	}
	enum tcp_event e = tcp_receiver_next(&q->rx, &fault);

	e = e == TCP_EVENT_HEADER ? tcp_receiver_next(&q->rx, &fault) : e; /* no PDU that may come now has data */
	if (e == TCP_EVENT_PDU) {
		icresp_handle(q);
	} else if (e == TCP_EVENT_FAULT) {
		nvme_tcp_terminate(q, &fault);
		link_refuse(q, -EPROTO, "ICResp", tcp_fault_text(&fault, text));
	}
}

/* TLS, before ICReq. A target may know one version of identities only. Of an identity that it does not know, some tell
 * by an alert, and some close the connection. */

static void link_begin(struct nvme_tcp_qpair *q);

static void link_event(void *arg, uint32_t events);

static void link_secured(struct nvme_tcp_qpair *q, int error, const char *why)
{
	if ((error == -EPROTO || error == -ECONNRESET) && !q->identity_changed) {
		q->identity_changed = true;
		q->identity ^= 1;
		link_begin(q);
		return;
	}
	if (error != 0) {
		link_refuse(q, error == -EPROTO ? -EACCES : error, link_step(q), why);
		return;
	}
	nvme_tcp_ctrlr_of(q)->identity = q->identity;
	q->source = fd_source_add(q->fd, EPOLLIN, link_event, q, "nvme_tcp_connect");
	if (q->source == NULL) {
		link_refuse(q, -ENOMEM, "epoll", strerror(errno));
		return;
	}
	icreq_send(q);
}

static void link_secure(struct nvme_tcp_qpair *q)
{
	fd_source_remove(&q->source);
	q->link = NVME_TCP_LINK_TLS;
	nvme_tcp_secure_begin(q, link_secured);
}

static void link_event(void *arg, uint32_t events)
{
	struct nvme_tcp_qpair *q = arg;
	int error = 0;
	socklen_t size = sizeof(error);
	char text[WHY_MAX];

	if (q->link == NVME_TCP_LINK_ICREQ) {
		icresp_read(q);
		return;
	}
	if (getsockopt(q->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
		error = errno;
	}
	if (error != 0) {
		link_refuse(q, -error, link_step(q), link_error_text(q, error, text));
	} else if (q->base.ctrlr->opts.tcp_psk != NULL || q->base.ctrlr->generated != NULL) {
		link_secure(q);
	} else {
		icreq_send(q);
	}
}

/* The socket. */

static int numeric_address_parse(const char *traddr, const char *trsvcid, uint8_t adrfam, struct addrinfo **out)
{
	struct addrinfo hints = {
		.ai_family = adrfam == NVMF_ADDR_FAMILY_IP6   ? AF_INET6
			     : adrfam == NVMF_ADDR_FAMILY_IP4 ? AF_INET
							      : 0,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, /* no names: they would be looked up on the network */
	};

	return getaddrinfo(traddr, trsvcid, &hints, out);
}

/* Makes the socket and begins to connect it. from: the source address, or NULL. step: what has failed. */
static int socket_connect(struct nvme_tcp_qpair *q, const struct addrinfo *from, const struct addrinfo *to,
			  const char **step)
{
	int on = 1, priority = q->base.ctrlr->opts.tcp_priority;

	*step = "socket";
	q->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (q->fd < 0 || setsockopt(q->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
		return -errno;
	}
	tcp_socket_configure(q->fd);
	*step = "priority";
	if (priority != 0 && setsockopt(q->fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority)) != 0) {
		return -errno;
	}
	*step = "source address";
	if (from != NULL && (setsockopt(q->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
			     bind(q->fd, from->ai_addr, from->ai_addrlen) != 0)) {
		return -errno;
	}
	*step = "TCP connection";
	if (connect(q->fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS) {
		return -errno;
	}
	*step = "epoll";
	q->source = fd_source_add(q->fd, EPOLLOUT, link_event, q, "nvme_tcp_connect");
	return q->source != NULL ? 0 : -errno;
}

static void link_begin(struct nvme_tcp_qpair *q)
{
	const struct nvme_trid *t = &q->base.ctrlr->trid;
	struct addrinfo *to = NULL, *from = NULL;
	const char *step = "address";
	char text[WHY_MAX];
	int rc =
		numeric_address_parse(t->traddr, t->trsvcid[0] ? t->trsvcid : NVME_TCP_DEFAULT_TRSVCID, t->adrfam, &to);

	if (rc == 0 && t->host_traddr[0] != '\0') {
		rc = numeric_address_parse(t->host_traddr, t->host_trsvcid[0] ? t->host_trsvcid : NULL, t->adrfam,
					   &from);
	}
	q->link = NVME_TCP_LINK_CONNECTING;
	if (rc != 0) {
		link_refuse(q, -EINVAL, step, gai_strerror(rc));
	} else {
		rc = socket_connect(q, from, to, &step);
		if (rc != 0) {
			link_refuse(q, rc, step, link_error_text(q, -rc, text));
		}
	}
	if (from != NULL) {
		freeaddrinfo(from);
	}
	if (to != NULL) {
		freeaddrinfo(to);
	}
}

void nvme_tcp_qpair_connect(struct nvme_qpair *base)
{
	struct nvme_tcp_qpair *q = nvme_tcp_qpair_of(base);

	q->identity_changed = base->ctrlr->generated != NULL; /* a generated PSK has identities of version 1 only */
	q->identity = q->identity_changed ? 1 : nvme_tcp_ctrlr_of(q)->identity;
	q->timer.fn = link_timed_out;
	q->timer.arg = q;
	thread_timer_start(&q->timer, link_limit_ms(q) * UINT64_C(1000));
	link_begin(q);
}
