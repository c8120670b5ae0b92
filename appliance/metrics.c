/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections, with one request each. Clients can take only a small part of the control thread's time, however slow,
 * many or hostile they are: a connection has one deadline for everything (but for a file, for each piece of it) and a
 * buffer of fixed size; when there are too many connections, the oldest one is closed; an answer is given again for a
 * while (route_fresh_us), and once the answers of a second have taken MAKING_NS, no more are made in it. Files have
 * MAKING_NS of their own, and wait for the next second when these are used up. */
#include "appliance/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "appliance/console_api.h"
#include "appliance/console_files.h"
#include "appliance/console_history.h"
#include "appliance/metrics_http.h"
#include "env_dpdk/env.h"
#include "rpc/dispatch.h"
#include "rpc/rpc.h"
#include "rpc/socket.h"
#include "thread/thread.h"
#include "util/log.h"

#define MAX_CONNECTIONS   16
#define ACCEPTS_PER_EVENT 16
#define DEADLINE_US       10000000
#define ACCEPT_RETRY_US   100000
#define SECOND_US         1000000
#define MAKING_NS         UINT64_C(100000000)
#define KEPT_ANSWERS      9
#define KEPT_QUERY_MAX    1024
#define SOCKET_MODE       0660
#define MAX_DRAINS        64
#define FILE_PIECE        65536   /* bytes of a file that are read and sent at a time */
#define FILE_AHEAD        1048576 /* bytes of a file that the kernel is asked to read ahead */
#define FILES_MAX         4       /* connections that send a file */
_Static_assert(FILES_MAX < MAX_CONNECTIONS, "one connection at least may be closed when there are too many");

/* A text, shared by the connections that send it. */
struct body {
	unsigned users;
	size_t len;
	char *text;
};

/* An answer that may be given again. */
struct kept {
	struct body *body; /* NULL: there is none */
	enum http_route route;
	size_t query_len;
	char query[KEPT_QUERY_MAX];
	uint64_t made_ticks;
};

/* Processor time of the control thread; of files, elapsed time, because a read that waits for the disk takes no
 * processor time. Scrapes, the console and files have one each, so that none uses up another's. */
struct making {
	uint64_t second_ticks; /* when the current second began */
	uint64_t ns;           /* what was spent in it */
};

struct connection {
	int fd;
	struct fd_source *source;
	struct thread_timer deadline;
	char request[METRICS_REQUEST_MAX];
	size_t request_len;
	bool answering;
	char head[METRICS_ANSWER_HEAD_MAX];
	size_t head_len, sent; /* sent: bytes of head and body together */
	size_t body_len;
	const char *body;
	struct body *shared;      /* what was made, or NULL: body is a constant, or comes from file */
	struct console_copy copy; /* copy.fd: the file that is sent, of body_len bytes, or -1 */
	size_t in_time;           /* bytes sent when the deadline was set */
	size_t ahead;             /* bytes of the file that the kernel was asked to read */
	bool waits;               /* for the next second: its deadline, which was left_ticks away, stands still */
	uint64_t left_ticks;
	TAILQ_ENTRY(connection) link, wait_link;
};

static struct {
	bool on, saved, copies;
	bool is_unix;
	struct rpc_socket unix_socket;
	int fd;
	struct fd_source *source;
	struct thread_timer accept_again;
	char address[METRICS_ADDRESS_MAX + 8], given[METRICS_ADDRESS_MAX + 8];
	TAILQ_HEAD(, connection) connections; /* the oldest first */
	unsigned n_connections;
	TAILQ_HEAD(, connection) waiting; /* files that wait for the next second, in the order of its beginning */
	struct thread_timer files_again;
	unsigned n_files;
	uint64_t requests, scrapes, refused, dropped, copies_paused;
	struct kept kept[KEPT_ANSWERS];
	struct making scrapes_making, console_making, files_making;
} server;

/* ---- What is sent ---- */

static void metrics_body_put(struct body *b)
{
	if (b != NULL && --b->users == 0) {
		free(b->text);
		free(b);
	}
}

/* For how long an answer is given again. */
static const uint32_t route_fresh_us[HTTP_ROUTES] = {
	[HTTP_METRICS] = 100000,   [HTTP_STATE] = 500000,    [HTTP_SERIES] = 500000,  [HTTP_HISTORY] = 500000,
	[HTTP_TOPOLOGY] = 1000000, [HTTP_INFLIGHT] = 200000, [HTTP_COPIES] = 1000000, [HTTP_TRACE] = 100000,
};

static struct body *metrics_body_of_text(char *text, size_t len)
{
	struct body *b = text != NULL ? calloc(1, sizeof(*b)) : NULL;

	if (b == NULL) {
		free(text);
		return NULL;
	}
	*b = (struct body){.users = 1, .len = len, .text = text};
	return b;
}

/* Makes the answer to a request. NULL: there is none, and *status says why. */
static struct body *metrics_body_make(const struct metrics_request *r, int *status)
{
	struct metrics_text m = {0};
	size_t len;

	*status = 500;
	if (r->route == HTTP_METRICS) {
		metrics_collect(&m);
		char *text = metrics_take(&m, &len);
		return metrics_body_of_text(text, len);
	}
	rpc_json_was_refused(); /* forgets refusals before this answer */
	json_t *answer = console_answer(r->route, r->query, r->query_len);
	char *text = answer != NULL ? json_dumps(answer, JSON_COMPACT) : NULL;
	json_decref(answer);
	if (rpc_json_was_refused()) { /* then parts of it may be missing */
		free(text);
		return NULL;
	}
	bool may_lack = r->route == HTTP_SERIES || r->route == HTTP_HISTORY || r->route == HTTP_TRACE;
	*status = answer == NULL && may_lack ? 404 : 500;
	return metrics_body_of_text(text, text != NULL ? strlen(text) : 0);
}

static bool kept_is_for(const struct kept *k, const struct metrics_request *r)
{
	return k->body != NULL && k->route == r->route && k->query_len == r->query_len &&
	       (r->query_len == 0 || memcmp(k->query, r->query, r->query_len) == 0);
}

/* The place for an answer to r: that of an older answer to it, or of the oldest of all. The first place is for metrics
 * alone. */
static struct kept *kept_place(const struct metrics_request *r)
{
	struct kept *oldest = &server.kept[1];

	if (r->route == HTTP_METRICS) {
		return &server.kept[0];
	}
	for (unsigned i = 1; i < KEPT_ANSWERS; i++) {
		struct kept *k = &server.kept[i];
		if (kept_is_for(k, r)) {
			return k;
		}
		if (oldest->body != NULL && (k->body == NULL || k->made_ticks < oldest->made_ticks)) {
			oldest = k;
		}
	}
	return oldest;
}

static void kept_forget(struct kept *k)
{
	metrics_body_put(k->body);
	k->body = NULL;
}

/* Whether one more answer may be made in this second. */
static bool making_may_begin(struct making *m, uint64_t now)
{
	if (now - m->second_ticks >= env_us_to_ticks(SECOND_US)) {
		*m = (struct making){.second_ticks = now};
	}
	return m->ns < MAKING_NS;
}

/* Processor time, because elapsed time on a busy machine has the time of other processes in it. */
static uint64_t making_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* What is asked for, as it is now or was a moment ago. NULL: there is none, and *status says why. */
static struct body *metrics_body_get(const struct metrics_request *r, int *status)
{
	struct making *m = r->route == HTTP_METRICS ? &server.scrapes_making : &server.console_making;
	struct kept *k = kept_place(r);
	uint64_t now = env_ticks();
	uint64_t age = kept_is_for(k, r) ? now - k->made_ticks : UINT64_MAX;
	bool may_make = making_may_begin(m, now);

	if (age < env_us_to_ticks(may_make ? route_fresh_us[r->route] : SECOND_US)) {
		k->body->users++;
		return k->body;
	}
	if (!may_make) {
		*status = 503;
		return NULL;
	}
	uint64_t begin_ns = making_clock_ns();
	struct body *b = metrics_body_make(r, status);
	m->ns += making_clock_ns() - begin_ns;
	if (b != NULL && r->query_len <= KEPT_QUERY_MAX) {
		kept_forget(k);
		b->users++;
		*k = (struct kept){.body = b, .route = r->route, .query_len = r->query_len, .made_ticks = env_ticks()};
		memcpy(k->query, r->query_len != 0 ? r->query : "", r->query_len);
	}
	return b;
}

static void metrics_connection_close(struct connection *c)
{
	TAILQ_REMOVE(&server.connections, c, link);
	server.n_connections--;
	thread_timer_stop(&c->deadline);
	fd_source_remove(&c->source);
	close(c->fd);
	if (c->waits) {
		TAILQ_REMOVE(&server.waiting, c, wait_link);
	}
	if (c->copy.fd >= 0) {
		close(c->copy.fd);
		server.n_files--;
	}
	metrics_body_put(c->shared);
	free(c);
}

static int metrics_refuse_copy(struct connection *c, int status, const char *why)
{
	c->body = why;
	return status;
}

static int metrics_find_copy(struct connection *c, const struct metrics_request *request)
{
	if (!server.copies) {
		return metrics_refuse_copy(c, 403,
					   "Copies are handed out only after metrics_start with copies=true.\n");
	}
	if (server.n_files == FILES_MAX) {
		return metrics_refuse_copy(c, 503, "Too many copies are being read: ask again when one has ended.\n");
	}
	int rc = console_copy_open(request->query, request->query_len, c->fd, &c->copy);
	switch (rc) {
	case 0:
		server.n_files++;
		c->body_len = c->copy.bytes;
		return 200;
	case -EPERM:
		return metrics_refuse_copy(c, 403, "Only varve's user, and who may read the file, gets this copy.\n");
	case -ENOENT:
		return metrics_refuse_copy(c, 404, "There is no such copy.\n");
	default:
		log_limited(LOG_LEVEL_WARNING, "cannot open a copy of the black box: %s", strerror(-rc));
		return metrics_refuse_copy(c, 500, "The copy cannot be opened; varve's log says why.\n");
	}
}

/* Finds the body of a request that is well-formed. Returns the status. */
static int metrics_find_body(struct connection *c, const struct metrics_request *request)
{
	int status = 200;

	/* Also on a Unix socket: ssh -L makes a TCP port of it, to which browsers do connect. */
	if (!request->local) {
		return 403;
	}
	const struct console_file *file = &console_files[request->route];
	if (file->bytes != NULL) {
		c->body = (const char *)file->bytes;
		c->body_len = file->size;
		return 200;
	}
	/* Other sites may link to the page. They cannot read answers, but could have the daemon make them. */
	if (request->cross_site) {
		return 403;
	}
	if (request->route == HTTP_COPY) {
		return metrics_find_copy(c, request);
	}
	c->shared = metrics_body_get(request, &status);
	if (c->shared != NULL) {
		c->body = c->shared->text;
		c->body_len = c->shared->len;
		return 200;
	}
	return status;
}

static void metrics_prepare_answer(struct connection *c, const struct metrics_request *request)
{
	int status = request->status;

	server.requests++;
	if (status == 200) {
		status = metrics_find_body(c, request);
	}
	if (status != 200) {
		c->body = c->body != NULL ? c->body : metrics_answer_text(status);
		c->body_len = strlen(c->body);
	}
	const char *name = c->copy.fd >= 0 ? c->copy.name : NULL;
	c->head_len = metrics_answer_head(status, request->route, c->body_len, name, c->head, sizeof(c->head));
	if (request->head) {
		c->body_len = 0;
	}
	c->answering = true;
	server.scrapes += status == 200 && request->route == HTTP_METRICS;
	server.refused += status != 200;
}

/* Asks the kernel to read what comes next, so that reading it seldom waits for the disk. */
static void metrics_file_read_ahead(struct connection *c, size_t at)
{
	if (at + FILE_AHEAD / 2 >= c->ahead && c->ahead < c->body_len) {
		posix_fadvise(c->copy.fd, (off_t)c->ahead, FILE_AHEAD, POSIX_FADV_WILLNEED);
		c->ahead += FILE_AHEAD;
	}
}

/* A piece of the file, and its length. NULL: the file has become shorter, or cannot be read. */
static const char *metrics_file_piece(struct connection *c, size_t *len)
{
	static char piece[FILE_PIECE]; /* sent before the next one is read; what was not sent is read again */
	size_t at = c->sent - c->head_len;

	metrics_file_read_ahead(c, at);
	ssize_t n = pread(c->copy.fd, piece, *len < FILE_PIECE ? *len : FILE_PIECE, (off_t)at);
	if (n <= 0) { /* the peer sees that the answer is shorter than its head says */
		log_limited(LOG_LEVEL_WARNING, "the answer with %s ends after %zu of %zu bytes: %s", c->copy.name, at,
			    c->body_len, n < 0 ? strerror(errno) : "the file has become shorter");
		server.dropped++;
		return NULL;
	}
	*len = (size_t)n;
	return piece;
}

static bool metrics_sends_file(const struct connection *c)
{
	return c->copy.fd >= 0 && c->sent >= c->head_len;
}

/* The bytes that come next: the rest of the head, then of the body. NULL: they cannot be had. */
static const char *metrics_answer_rest(struct connection *c, size_t *len)
{
	if (c->sent < c->head_len) {
		*len = c->head_len - c->sent;
		return c->head + c->sent;
	}
	*len = c->head_len + c->body_len - c->sent;
	return c->copy.fd >= 0 ? metrics_file_piece(c, len) : c->body + (c->sent - c->head_len);
}

/* Sends what comes next. The number of bytes, or a negative errno. */
static ssize_t metrics_send_some(struct connection *c)
{
	uint64_t begin = env_ticks();
	bool file = metrics_sends_file(c);
	size_t len;
	const char *at = metrics_answer_rest(c, &len);
	ssize_t n = at == NULL ? -EIO : send(c->fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (at != NULL && n < 0) {
		n = -errno;
	}
	if (file) {
		server.files_making.ns += env_ticks_to_ns(env_ticks() - begin);
	}
	return n;
}

/* Lets files go on whose second had no time left. */
static void metrics_files_again(void *arg)
{
	struct connection *c;

	while ((c = TAILQ_FIRST(&server.waiting)) != NULL) {
		TAILQ_REMOVE(&server.waiting, c, wait_link);
		c->waits = false;
		fd_source_modify(c->source, EPOLLOUT);
		thread_timer_start(&c->deadline, env_ticks_to_ns(c->left_ticks) / 1000 + 1);
	}
}

/* Whether a file waits for the next second, because those that are sent have used up this one. The wait does not count
 * against the peer. */
static bool metrics_file_pauses(struct connection *c)
{
	uint64_t now = env_ticks();

	if (!metrics_sends_file(c) || making_may_begin(&server.files_making, now)) {
		return false;
	}
	uint64_t end = server.files_making.second_ticks + env_us_to_ticks(SECOND_US);
	c->waits = true;
	TAILQ_INSERT_TAIL(&server.waiting, c, wait_link);
	c->left_ticks = c->deadline.deadline > now ? c->deadline.deadline - now : 0;
	thread_timer_stop(&c->deadline);
	fd_source_modify(c->source, 0);
	thread_timer_start(&server.files_again, env_ticks_to_ns(end - now) / 1000 + 1);
	server.copies_paused++;
	return true;
}

/* After a piece of a file: the rest is sent when the peer has room, after other work. A peer that takes a piece within
 * the deadline has it anew for the next one. */
static bool metrics_file_waits(struct connection *c)
{
	if (c->copy.fd < 0 || c->sent <= c->head_len || c->sent == c->head_len + c->body_len) {
		return false;
	}
	if (c->sent - c->in_time >= FILE_PIECE) {
		c->in_time = c->sent;
		thread_timer_start(&c->deadline, DEADLINE_US);
	}
	fd_source_modify(c->source, EPOLLOUT);
	return true;
}

/* False: the connection is gone. */
static bool metrics_connection_send(struct connection *c)
{
	while (c->sent < c->head_len + c->body_len) {
		if (metrics_file_pauses(c)) {
			return true;
		}
		ssize_t n = metrics_send_some(c);
		if (n == -EAGAIN || n == -EINTR) {
			fd_source_modify(c->source, EPOLLOUT);
			return true;
		}
		if (n < 0) {
			metrics_connection_close(c);
			return false;
		}
		c->sent += (size_t)n;
		if (metrics_file_waits(c)) {
			return true;
		}
	}
	/* If bytes from the peer were left unread, close() would send a reset, and the peer could lose the answer. */
	shutdown(c->fd, SHUT_WR);
	for (int i = 0; i < MAX_DRAINS && recv(c->fd, c->request, sizeof(c->request), MSG_DONTWAIT) > 0; i++) {
	}
	metrics_connection_close(c);
	return false;
}

/* ---- What comes ---- */

static void metrics_connection_receive(struct connection *c)
{
	ssize_t n = recv(c->fd, c->request + c->request_len, sizeof(c->request) - c->request_len, MSG_DONTWAIT);
	struct metrics_request request;

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (n <= 0) {
		metrics_connection_close(c);
		return;
	}
	c->request_len += (size_t)n;
	if (metrics_request_parse(c->request, c->request_len, &request)) {
		metrics_prepare_answer(c, &request);
		metrics_connection_send(c);
	}
}

static void metrics_connection_event(void *arg, uint32_t events)
{
	struct connection *c = arg;

	/* A source that waits for nothing is told of a peer that has gone, again and again. */
	if ((events & EPOLLERR) || (c->waits && (events & EPOLLHUP))) {
		metrics_connection_close(c);
	} else if (c->waits) {
		return;
	} else if (c->answering) {
		metrics_connection_send(c);
	} else {
		metrics_connection_receive(c);
	}
}

static void metrics_connection_time_out(void *arg)
{
	server.dropped++;
	metrics_connection_close(arg);
}

/* The oldest connection, but none with a file: these are few, are the oldest because they take long, and end by their
 * deadline if they make no progress. */
static struct connection *metrics_connection_to_close(void)
{
	struct connection *c;

	TAILQ_FOREACH (c, &server.connections, link) {
		if (c->copy.fd < 0) {
			break;
		}
	}
	return c;
}

static void metrics_connection_add(int fd)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (server.n_connections == MAX_CONNECTIONS) {
		server.dropped++;
		metrics_connection_close(metrics_connection_to_close());
	}
	if (c != NULL) {
		c->source = fd_source_add(fd, EPOLLIN, metrics_connection_event, c, "metrics connection");
	}
	if (c == NULL || c->source == NULL) {
		close(fd);
		free(c);
		return;
	}
	c->fd = fd;
	c->copy.fd = -1;
	c->deadline = (struct thread_timer){.fn = metrics_connection_time_out, .arg = c};
	thread_timer_start(&c->deadline, DEADLINE_US);
	TAILQ_INSERT_TAIL(&server.connections, c, link);
	server.n_connections++;
}

static void metrics_accept_again(void *arg)
{
	fd_source_modify(server.source, EPOLLIN);
}

static void metrics_accept(void *arg, uint32_t events)
{
	for (unsigned n = 0; n < ACCEPTS_PER_EVENT; n++) {
		int fd = accept4(server.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			metrics_connection_add(fd);
		} else if (errno != ECONNABORTED && errno != EINTR) {
			if (errno != EAGAIN) { /* out of descriptors: the connection stays in the backlog, and would
						  wake the loop again and again */
				log_limited(LOG_LEVEL_ERROR, "cannot accept a connection for metrics: %s",
					    strerror(errno));
				fd_source_modify(server.source, 0);
				thread_timer_start(&server.accept_again, ACCEPT_RETRY_US);
			}
			return;
		}
	}
}

/* ---- Start and stop ---- */

static int metrics_listen_tcp(const struct metrics_address *a, const char *text, char *error)
{
	int one = 1, fd = socket(a->tcp.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	}
	if (fd < 0 || bind(fd, (const struct sockaddr *)&a->tcp, a->tcp_len) != 0 || listen(fd, 64) != 0) {
		int rc = -errno;
		snprintf(error, METRICS_ERROR_MAX, "cannot listen on %.200s: %s", text, strerror(-rc));
		if (fd >= 0) {
			close(fd);
		}
		return rc;
	}
	return fd;
}

/* Stores the address with the port that the kernel chose. */
static void metrics_note_address(void)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	char host[INET6_ADDRSTRLEN];

	snprintf(server.address, sizeof(server.address), "%s", server.given);
	if (server.is_unix || getsockname(server.fd, (struct sockaddr *)&a, &len) != 0) {
		return;
	}
	if (a.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&a;
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(server.address, sizeof(server.address), "%s:%u", host, ntohs(in->sin_port));
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a;
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(server.address, sizeof(server.address), "[%s]:%u", host, ntohs(in6->sin6_port));
	}
}

static void metrics_close_listener(void)
{
	if (server.is_unix) {
		rpc_socket_close(&server.unix_socket);
	} else {
		close(server.fd);
	}
}

int metrics_start(const char *text, bool saved, bool copies, char *error)
{
	struct metrics_address a;
	int rc = metrics_address_parse(text, &a, error);

	if (rc != 0) {
		return rc;
	}
	if (copies && a.path == NULL) {
		snprintf(error, METRICS_ERROR_MAX,
			 "copies: only with an address unix:PATH, because every user of this machine reaches %.200s",
			 text);
		return -EINVAL;
	}
	if (server.on) {
		snprintf(error, METRICS_ERROR_MAX, "metrics are served already, on %s; metrics_stop ends that",
			 server.address);
		return -EALREADY;
	}
	memset(&server, 0, sizeof(server));
	TAILQ_INIT(&server.connections);
	TAILQ_INIT(&server.waiting);
	server.saved = saved;
	server.copies = copies;
	server.is_unix = a.path != NULL;
	if (server.is_unix) {
		rc = rpc_socket_listen(&server.unix_socket, a.path, SOCKET_MODE, error, METRICS_ERROR_MAX);
		server.fd = server.unix_socket.fd;
	} else {
		server.fd = metrics_listen_tcp(&a, text, error);
		rc = server.fd < 0 ? server.fd : 0;
	}
	if (rc != 0) {
		return rc;
	}
	server.source = fd_source_add(server.fd, EPOLLIN, metrics_accept, NULL, "metrics");
	if (server.source == NULL) {
		snprintf(error, METRICS_ERROR_MAX, "no memory to serve metrics");
		metrics_close_listener();
		return -ENOMEM;
	}
	server.accept_again.fn = metrics_accept_again;
	server.files_again.fn = metrics_files_again;
	snprintf(server.given, sizeof(server.given), "%s", text);
	metrics_note_address();
	server.on = true;
	console_history_start();
	log_notice("Metrics are at %s%s", server.address, copies ? ", with the copies of the black box" : "");
	return 0;
}

int metrics_stop(void)
{
	struct connection *c;

	if (!server.on) {
		return -ENOENT;
	}
	while ((c = TAILQ_FIRST(&server.connections)) != NULL) {
		metrics_connection_close(c);
	}
	thread_timer_stop(&server.accept_again);
	thread_timer_stop(&server.files_again);
	fd_source_remove(&server.source);
	metrics_close_listener();
	for (unsigned i = 0; i < KEPT_ANSWERS; i++) {
		kept_forget(&server.kept[i]);
	}
	console_history_stop();
	console_trace_stop();
	server.on = false;
	return 0;
}

void metrics_get_status(struct metrics_status *s)
{
	*s = (struct metrics_status){
		.address = server.on ? server.address : NULL,
		.saved = server.on && server.saved,
		.copies = server.on && server.copies,
		.saved_address = server.given,
		.connections = server.n_connections,
		.requests = server.requests,
		.scrapes = server.scrapes,
		.refused = server.refused,
		.dropped = server.dropped,
		.copies_paused = server.copies_paused,
	};
}
