/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* Connections from accept() to their end.
 *
 *     control thread                                      poll group's thread
 *     nvmf_tcp_qpair_accept(): memory for one request,
 *         chooses a group
 *                                                         nvmf_tcp_op_qpair_add(): INITIALIZING; epoll
 *                                                         nvmf_tcp_qpair_initialized(): ICReq; SETUP
 *                                                         nvmf_tcp_qpair_connected(): Connect; posts grow_msg
 *     grow_on_control(): the queue's requests;
 *         posts grown_msg
 *                                                         go_live_over_tcp(): Connect has been answered; LIVE
 *                                                         nvmf_tcp_op_qpair_close(): CLOSING; the socket leaves
 *                                                         nvmf_tcp_qpair_check_closed(): the last request has
 *                                                             ended; CLOSED; posts free_msg
 *     free_on_control(): frees the memory;
 *         posts freed_msg
 *                                                         finish_tcp_close(): nvmf_qpair_closed()
 */
/* clang-format on */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "nvmf_tcp/internal.h"
#include "util/state_machine.h"

const char *const nvmf_tcp_qpair_state_names[NVMF_TCP_QPAIR_STATES] = {
	[NVMF_TCP_QPAIR_INITIALIZING] = "INITIALIZING",
	[NVMF_TCP_QPAIR_SETUP] = "SETUP",
	[NVMF_TCP_QPAIR_LIVE] = "LIVE",
	[NVMF_TCP_QPAIR_CLOSING] = "CLOSING",
	[NVMF_TCP_QPAIR_CLOSED] = "CLOSED",
};

static const char *name_tcp_qpair_state(unsigned n)
{
	return n < NVMF_TCP_QPAIR_STATES ? nvmf_tcp_qpair_state_names[n] : "unknown";
}

static const uint32_t next_states[] = {
	[NVMF_TCP_QPAIR_INITIALIZING] = 1u << NVMF_TCP_QPAIR_SETUP | 1u << NVMF_TCP_QPAIR_CLOSING,
	[NVMF_TCP_QPAIR_SETUP] = 1u << NVMF_TCP_QPAIR_LIVE | 1u << NVMF_TCP_QPAIR_CLOSING,
	[NVMF_TCP_QPAIR_LIVE] = 1u << NVMF_TCP_QPAIR_CLOSING,
	[NVMF_TCP_QPAIR_CLOSING] = 1u << NVMF_TCP_QPAIR_CLOSED,
	[NVMF_TCP_QPAIR_CLOSED] = 0,
};
STATE_MACHINE(qpair_machine, "nvmf_tcp connection", name_tcp_qpair_state, next_states)

static void set_tcp_qpair_state(struct nvmf_tcp_qpair *qp, enum nvmf_tcp_qpair_state new)
{
	state_machine_check(&qpair_machine, qp->state, new, qp->base.hostnqn);
	TRACE(TCP_QP_STATE_CHANGE, qp->owner, 0, (uintptr_t)qp, new);
	qp->state = (uint8_t) new;
}

/* ---- The trace owner ---- */

static void write_tcp_trace_owner(const struct nvmf_tcp_qpair *qp, char *text, size_t size)
{
	snprintf(text, size, "%.60s %.40s qid %u at %.40s", qp->base.hostnqn[0] ? qp->base.hostnqn : "(connecting)",
		 qp->base.peer_address.traddr, qp->base.qid, qp->base.listen_address.traddr);
}

static void update_tcp_trace_owner(struct thread_msg *msg)
{
	struct nvmf_tcp_qpair *qp = container_of(msg, struct nvmf_tcp_qpair, describe_msg);
	char text[160];

	write_tcp_trace_owner(qp, text, sizeof(text));
	trace_owner_update(qp->owner, text);
}

void nvmf_tcp_qpair_describe(struct nvmf_tcp_qpair *qp)
{
	qp->described = true;
	thread_post(thread_control(), &qp->describe_msg, update_tcp_trace_owner);
}

/* ---- What epoll looks for ---- */

void nvmf_tcp_qpair_update_events(struct nvmf_tcp_qpair *qp)
{
	uint32_t events =
		(nvmf_tcp_qpair_reads_nothing(qp) ? 0u : EPOLLIN) | (qp->send_blocked ? (uint32_t)EPOLLOUT : 0u);
	struct epoll_event e = {.events = events, .data.ptr = qp};

	if (events == qp->events || !nvmf_tcp_qpair_is_open(qp)) {
		return;
	}
	if (epoll_ctl(qp->tgroup->epoll, EPOLL_CTL_MOD, qp->fd, &e) != 0) {
		nvmf_qpair_fail(&qp->base, "epoll does not take its socket");
		return;
	}
	if ((events & ~qp->events & EPOLLIN) != 0) { /* what was read before may be waiting */
		nvmf_tcp_qpair_mark_dirty(qp, true);
	}
	qp->events = events;
}

void nvmf_tcp_qpair_mark_dirty(struct nvmf_tcp_qpair *qp, bool look)
{
	qp->look |= look;
	if (!qp->dirty) {
		qp->dirty = true;
		qp->tgroup->num_dirty++;
		STAILQ_INSERT_TAIL(&qp->tgroup->dirty, qp, dirty_link);
	}
}

void nvmf_tcp_qpair_unmark_dirty(struct nvmf_tcp_qpair *qp)
{
	if (qp->dirty) {
		qp->dirty = false;
		qp->tgroup->num_dirty--;
		STAILQ_REMOVE(&qp->tgroup->dirty, qp, nvmf_tcp_qpair, dirty_link);
	}
}

/* ---- The beginning ---- */

int nvmf_tcp_op_qpair_add(struct nvmf_transport_group *tgroup, struct nvmf_qpair *base)
{
	struct nvmf_tcp_qpair *qp = nvmf_tcp_qpair_of(base);
	struct nvmf_tcp_group *g = nvmf_tcp_group_of(tgroup);
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = qp};

	if (epoll_ctl(g->epoll, EPOLL_CTL_ADD, qp->fd, &e) != 0) {
		int rc = -errno;

		log_limited(LOG_LEVEL_WARNING, "a connection from %s ends at once: epoll does not take its socket: %s",
			    base->peer_address.traddr, strerror(-rc));
		return rc;
	}
	qp->tgroup = g;
	qp->events = EPOLLIN;
	base->requests = &qp->setup.base;
	g->connections++;
	g->connection_bytes += qp->bytes;
	TAILQ_INSERT_TAIL(&g->qpairs, qp, link);
	if (qp->tls != NULL) { /* what came before the kernel had the keys may wait without being reported */
		nvmf_tcp_qpair_mark_dirty(qp, true);
	}
	return 0;
}

void nvmf_tcp_qpair_initialized(struct nvmf_tcp_qpair *qp)
{
	set_tcp_qpair_state(qp, NVMF_TCP_QPAIR_SETUP);
}

static void free_array_list(struct nvmf_tcp_qpair *qp, struct nvmf_tcp_request_array *a)
{
	qp->array = a;
	STAILQ_INIT(&qp->free);
	for (uint32_t i = 0; i < a->base.count; i++) {
		STAILQ_INSERT_TAIL(&qp->free, nvmf_tcp_request_at(a, i), link);
	}
}

/* Connect's request has ended, and those of the queue are here. */
static void go_live_over_tcp(struct nvmf_tcp_qpair *qp)
{
	free_array_list(qp, &qp->requests);
	qp->base.requests = &qp->requests.base;
	qp->tgroup->connection_bytes += qp->requests.bytes;
	qp->bytes += qp->requests.bytes;
	set_tcp_qpair_state(qp, NVMF_TCP_QPAIR_LIVE);
	nvmf_tcp_qpair_mark_dirty(qp, true);
}

static void grown_on_group(struct thread_msg *msg)
{
	struct nvmf_tcp_qpair *qp = container_of(msg, struct nvmf_tcp_qpair, grown_msg);

	if (!nvmf_tcp_qpair_is_open(qp)) {
		return;
	}
	if (qp->requests.memory == NULL) {
		nvmf_qpair_fail(&qp->base, "no memory for the requests of its queue");
		return;
	}
	qp->growing = false;
	if (qp->in_use == 0) {
		go_live_over_tcp(qp);
	}
}

/* Room for in-capsule data of each request. A host that has yet to authenticate is anonymous, too. */
static uint32_t icd_size_of_queue(const struct nvmf_tcp_qpair *qp)
{
	uint32_t bytes = qp->base.transport->opts.in_capsule_data_size;

	if (!qp->grow_admin) {
		return bytes;
	}
	if (qp->base.anonymous && qp->base.auth == NULL) {
		return NVMF_TCP_ANONYMOUS_DATA;
	}
	return bytes > NVMF_TCP_CONTROL_DATA ? bytes : NVMF_TCP_CONTROL_DATA;
}

static void grow_on_control(struct thread_msg *msg)
{
	struct nvmf_tcp_qpair *qp = container_of(msg, struct nvmf_tcp_qpair, grow_msg);

	(void)nvmf_tcp_request_array_create(&qp->requests, qp, qp->grow_count, icd_size_of_queue(qp));
	thread_post(nvmf_tcp_qpair_thread(qp), &qp->grown_msg, grown_on_group);
}

void nvmf_tcp_qpair_connected(struct nvmf_tcp_qpair *qp)
{
	if (qp->growing || qp->requests.memory != NULL) {
		return;
	}
	qp->growing = true;
	qp->grow_admin = qp->base.qid == 0;
	qp->grow_count = qp->base.sq_size;
	thread_post(thread_control(), &qp->grow_msg, grow_on_control);
}

void nvmf_tcp_qpair_request_freed(struct nvmf_tcp_qpair *qp)
{
	if (!nvmf_tcp_qpair_is_open(qp)) {
		nvmf_tcp_qpair_check_closed(qp);
	} else if (!qp->growing && qp->requests.memory != NULL) { /* the control thread's, while it grows */
		go_live_over_tcp(qp);
	} else {
		nvmf_tcp_qpair_mark_dirty(qp, true);
	}
}

void nvmf_tcp_name_address(struct nvmf_address *a, const struct sockaddr *sa)
{
	char port[16];

	snprintf(a->trtype, sizeof(a->trtype), "TCP");
	a->adrfam = sa->sa_family == AF_INET6 ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4;
	if (getnameinfo(sa, sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
			a->traddr, sizeof(a->traddr), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		snprintf(a->trsvcid, sizeof(a->trsvcid), "%s", port);
	}
}

static void name_local_address(struct nvmf_tcp_qpair *qp)
{
	struct sockaddr_storage local = {0};
	socklen_t length = sizeof(local);

	if (getsockname(qp->fd, (struct sockaddr *)&local, &length) == 0) {
		nvmf_tcp_name_address(&qp->base.local_address, (struct sockaddr *)&local);
	}
}

/* A host that has vanished and has nothing under way is noticed, also without a keep-alive timeout. */
static void set_tcp_keepalive(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, 60}, /* seconds, as the next */
		{IPPROTO_TCP, TCP_KEEPINTVL, 10},
		{IPPROTO_TCP, TCP_KEEPCNT, 6},
	};

	for (unsigned i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int)) != 0) {
			log_limited(LOG_LEVEL_WARNING, "TCP keepalive: %s", strerror(errno));
			return;
		}
	}
}

/* Options that fail are no reason to refuse a host: it is served, more slowly or without priority. */
static void set_socket_options(int fd, const struct nvmf_tcp_opts *o)
{
	int on = 1, priority = (int)o->sock_priority;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) {
		log_limited(LOG_LEVEL_WARNING, "TCP_NODELAY: %s", strerror(errno));
	}
	set_tcp_keepalive(fd);
	if (priority != 0 && setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority)) != 0) {
		log_limited(LOG_LEVEL_WARNING, "sock_priority %d: %s (above 6 it needs CAP_NET_ADMIN)", priority,
			    strerror(errno));
	}
}

static void free_memory(struct nvmf_tcp_qpair *qp)
{
	nvmf_tcp_request_array_destroy(&qp->requests);
	nvmf_tcp_request_array_destroy(&qp->setup);
	free(qp->stage);
	free(qp->zerocopy);
	qp->stage = NULL;
	qp->zerocopy = NULL;
	trace_owner_release(qp->owner);
	qp->owner = 0;
}

static ssize_t read_decrypted(void *tls, const struct iovec *iovs, unsigned iovcnt)
{
	return tls_session_read(tls, iovs, iovcnt);
}

static void take_tls_session(struct nvmf_tcp_qpair *qp, struct tls_session *tls)
{
	qp->tls = tls;
	qp->base.secured_by = tls_session_identity(tls);
	qp->base.tls_records = tls_records_name(tls_session_records(tls));
	qp->receiver.read = read_decrypted;
	qp->receiver.read_arg = tls;
}

static struct nvmf_tcp_qpair *make_tcp_qpair(struct nvmf_tcp_listener *l, int fd, const struct sockaddr *peer,
					     struct tls_session *tls)
{
	struct nvmf_tcp_qpair *qp = calloc(1, sizeof(*qp));
	char text[160];

	if (qp == NULL) {
		return NULL;
	}
	qp->base.transport = &l->transport->base;
	qp->fd = fd;
	qp->stage = malloc(NVMF_TCP_STAGE);
	if (qp->stage == NULL || nvmf_tcp_request_array_create(&qp->setup, qp, 1, NVMF_TCP_CONTROL_DATA) != 0) {
		free_memory(qp);
		free(qp);
		return NULL;
	}
	qp->bytes = sizeof(*qp) + NVMF_TCP_STAGE + qp->setup.bytes;
	STAILQ_INIT(&qp->out);
	free_array_list(qp, &qp->setup);
	tcp_receiver_init(&qp->receiver, TCP_CONTROLLER, qp->stage, NVMF_TCP_STAGE);
	if (tls != NULL) {
		qp->bytes += tls_session_bytes(tls);
		take_tls_session(qp, tls);
	}
	qp->base.listen_address = l->address;
	nvmf_tcp_name_address(&qp->base.peer_address, peer);
	name_local_address(qp);
	write_tcp_trace_owner(qp, text, sizeof(text));
	qp->owner = trace_owner_register(TRACE_OWNER_NVMF_TCP_QP, text);
	qp->base.trace_owner = qp->owner;
	return qp;
}

static void tell_tcp_not_passed(const struct nvmf_address *peer, const struct nvmf_transport_opts *o, int rc)
{
	char why[NVMF_REFUSAL_MAX];

	switch (-rc) {
	case ENOSPC:
		snprintf(why, sizeof(why), "there are %u connections of hosts that are not known (max_anonymous)",
			 o->max_anonymous);
		break;
	case EUSERS:
		snprintf(why, sizeof(why),
			 "there are %u connections from this address of hosts that are not known "
			 "(max_anonymous_per_host)",
			 o->max_anonymous_per_host);
		break;
	case ENOMEM:
		snprintf(why, sizeof(why), "no memory");
		break;
	default:
		snprintf(why, sizeof(why), "the target is being started or stopped");
		break;
	}
	nvmf_connection_refused(peer->traddr, why);
}

void nvmf_tcp_qpair_accept(struct nvmf_tcp_listener *l, int fd, const struct sockaddr *peer, struct tls_session *tls)
{
	struct nvmf_tcp_qpair *qp = make_tcp_qpair(l, fd, peer, tls);
	struct nvmf_address unmade = {.traddr = "an unknown address"};
	int rc = -ENOMEM;

	if (qp != NULL) {
		set_socket_options(fd, nvmf_tcp_opts(qp->base.transport));
		nvmf_tcp_zerocopy_begin(qp);
		qp->base.placement = tcp_socket_placement(fd);
		TRACE(TCP_QP_CREATE, qp->owner, 0, (uintptr_t)qp);
		rc = nvmf_qpair_accept(&qp->base, 0);
		unmade = qp->base.peer_address;
	} else {
		nvmf_tcp_name_address(&unmade, peer);
	}
	if (rc == 0) {
		return;
	}
	tell_tcp_not_passed(&unmade, &l->transport->base.opts, rc);
	tls_session_free(tls);
	close(fd);
	if (qp != NULL) {
		free_memory(qp);
		free(qp);
	}
}

/* ---- The end ---- */

bool nvmf_tcp_op_qpair_is_idle(const struct nvmf_qpair *base)
{
	return ((const struct nvmf_tcp_qpair *)base)->in_use == 0;
}

void nvmf_tcp_qpair_terminate(struct nvmf_tcp_qpair *qp, const struct tcp_fault *fault)
{
	char text[TCP_FAULT_TEXT_MAX];

	if (!nvmf_tcp_qpair_is_open(qp)) {
		return;
	}
	log_limited(LOG_LEVEL_NOTICE, "host %s at %s breaks the rules of NVMe/TCP: %s",
		    qp->base.hostnqn[0] != '\0' ? qp->base.hostnqn : "(unknown)", qp->base.peer_address.traddr,
		    tcp_fault_text(fault, text));
	qp->tgroup->counters.terminations++;
	qp->term_bytes = (uint8_t)tcp_term_encode(qp->term_pdu, TCP_CONTROLLER, fault, qp->receiver.header.bytes,
						  tcp_receiver_header_bytes(&qp->receiver));
	nvmf_qpair_fail(&qp->base, "it breaks the rules of NVMe/TCP");
}

static void send_term(struct nvmf_tcp_qpair *qp)
{
	if (qp->term_bytes == 0 || qp->broken) {
		return;
	}
	nvmf_tcp_qpair_send(qp); /* a TermReq in the middle of another PDU would be data */
	if (STAILQ_EMPTY(&qp->out)) {
		(void)nvmf_tcp_qpair_send_now(qp, qp->term_pdu, qp->term_bytes);
	}
}

void nvmf_tcp_qpair_release_socket(struct nvmf_tcp_qpair *qp)
{
	if (qp->broken) {
		close(qp->fd);
	} else {
		nvmf_tcp_socket_leave(qp->tgroup, qp->fd,
				      qp->base.hostnqn[0] != '\0' && !nvmf_tcp_qpair_is_of_a_stranger(qp));
	}
	qp->fd = -1;
}

static void let_socket_leave(struct nvmf_tcp_qpair *qp)
{
	(void)epoll_ctl(qp->tgroup->epoll, EPOLL_CTL_DEL, qp->fd, NULL);
	if (qp->tls != NULL && !qp->broken) {
		tls_session_end(qp->tls);
	}
	if (!nvmf_tcp_zerocopy_end(qp)) {
		nvmf_tcp_qpair_release_socket(qp);
	}
}

void nvmf_tcp_op_qpair_close(struct nvmf_qpair *base)
{
	struct nvmf_tcp_qpair *qp = nvmf_tcp_qpair_of(base);
	struct nvmf_tcp_group *g = qp->tgroup;

	TRACE(TCP_QP_DISCONNECT, qp->owner, 0, (uintptr_t)qp);
	qp->in_use++; /* ours, while requests end */
	send_term(qp);
	set_tcp_qpair_state(qp, NVMF_TCP_QPAIR_CLOSING);
	let_socket_leave(qp);
	nvmf_tcp_qpair_unmark_dirty(qp);
	nvmf_tcp_qpair_drop_unsent(qp);
	nvmf_tcp_qpair_fail_waiting(qp);
	TAILQ_REMOVE(&g->qpairs, qp, link);
	g->connections--;
	g->connection_bytes -= qp->bytes;
	qp->in_use--;
	nvmf_tcp_qpair_check_closed(qp);
}

/* All messages that the control thread has sent before have arrived, so the queue pair may be freed. */
static void finish_tcp_close(struct thread_msg *msg)
{
	nvmf_qpair_closed(&container_of(msg, struct nvmf_tcp_qpair, freed_msg)->base);
}

static void free_on_control(struct thread_msg *msg)
{
	struct nvmf_tcp_qpair *qp = container_of(msg, struct nvmf_tcp_qpair, free_msg);

	TRACE(TCP_QP_DESTROY, qp->owner, 0, (uintptr_t)qp);
	free_memory(qp);
	thread_post(nvmf_tcp_qpair_thread(qp), &qp->freed_msg, finish_tcp_close);
}

void nvmf_tcp_qpair_check_closed(struct nvmf_tcp_qpair *qp)
{
	if (qp->state == NVMF_TCP_QPAIR_CLOSING && qp->in_use == 0) {
		set_tcp_qpair_state(qp, NVMF_TCP_QPAIR_CLOSED);
		qp->base.requests = NULL;
		thread_post(thread_control(), &qp->free_msg, free_on_control);
	}
}

/* One that was never added has its socket and memory still. */
void nvmf_tcp_op_qpair_destroy(struct nvmf_qpair *base)
{
	struct nvmf_tcp_qpair *qp = nvmf_tcp_qpair_of(base);

	if (qp->fd >= 0) {
		close(qp->fd);
	}
	tls_session_free(qp->tls); /* base.secured_by is its memory */
	free_memory(qp);
	free(qp);
}
