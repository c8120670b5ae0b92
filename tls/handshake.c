/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/handshake.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tls/wire.h"
#include "util/compiler.h"

#define STOP_WAIT_US (60 * UINT64_C(1000000))
#define STEPS_MAX    64 /* each needs a record; some ten are usual */
#define CLOSED       "TLS: the other side has closed the connection in the handshake"
#define LATE         "TLS: the handshake was not made in time"

struct tls_handshake {
	struct tls_session *session;
	int fd;
	bool is_server;
	bool has_begun; /* a record has been read */
	bool in_step;   /* the worker thread has the session, or will have it */
	_Atomic bool cancelled;
	_Atomic bool late; /* its time was over while in_step */
	unsigned steps;
	enum tls_step step; /* what the last one has returned */
	size_t record;      /* bytes that the next one may read */
	struct fd_source *source;
	struct thread_timer timer;
	uint64_t timeout_us;
	struct worker_job job;
	struct thread_msg begin_msg;
	tls_handshake_fn done;
	void *arg;
};

/* Those of hosts that connect here do not delay those that varve makes as a host. */
static struct worker_queue server_queue = WORKER_QUEUE_INITIALIZER(server_queue),
			   client_queue = WORKER_QUEUE_INITIALIZER(client_queue);

static void stop_waiting(struct tls_handshake *h)
{
	thread_timer_stop(&h->timer);
	if (h->source != NULL) {
		fd_source_remove(&h->source);
	}
}

static void finish_handshake(struct tls_handshake *h, int error, const char *why)
{
	static const int one = 1;
	tls_handshake_fn done = h->done;
	struct tls_session *session = h->session;
	void *arg = h->arg;
	char text[512];

	stop_waiting(h);
	(void)setsockopt(h->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
	snprintf(text, sizeof(text), "%s", why);
	free(h);
	done(arg, session, error, text);
}

/* The connection has ended, or its time is over. */
static void finish_unmade(struct tls_handshake *h, int error, const char *why)
{
	uint8_t first;
	bool silent = h->is_server && !h->has_begun && recv(h->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;

	finish_handshake(h, silent ? -ENODATA : error, why);
}

static void drop_handshake(struct tls_handshake *h)
{
	stop_waiting(h);
	tls_session_free(h->session);
	close(h->fd);
	free(h);
}

/* ---- A step ---- */

static void do_step(struct worker_job *job)
{
	struct tls_handshake *h = container_of(job, struct tls_handshake, job);

	/* in its queue it may have waited for so long that nobody waits for it any more */
	if (!atomic_load_explicit(&h->cancelled, memory_order_relaxed) &&
	    !atomic_load_explicit(&h->late, memory_order_relaxed)) {
		h->step = tls_session_step(h->session, h->record);
	}
}

static void wait_for_socket(struct tls_handshake *h, uint32_t events);

static void end_step(struct worker_job *job)
{
	struct tls_handshake *h = container_of(job, struct tls_handshake, job);

	h->in_step = false;
	if (h->cancelled) {
		drop_handshake(h);
	} else if (job->error != 0) {
		finish_handshake(h, job->error, "TLS: no thread for the handshake");
	} else if (h->step == TLS_STEP_DONE) {
		finish_handshake(h, 0, "");
	} else if (h->step == TLS_STEP_FAILED) {
		finish_handshake(h, -EPROTO, tls_session_why(h->session));
	} else if (h->late) {
		finish_handshake(h, -ETIMEDOUT, LATE);
	} else {
		wait_for_socket(h, h->step == TLS_STEP_READ ? EPOLLIN : EPOLLOUT);
	}
}

static void begin_step(struct tls_handshake *h, size_t record)
{
	if (++h->steps > STEPS_MAX) {
		finish_handshake(h, -EPROTO, "TLS: it makes the handshake in more than 64 records");
		return;
	}
	if (h->source != NULL) {
		fd_source_remove(&h->source); /* an error of the socket would be reported again and again */
	}
	h->record = record;
	h->in_step = true;
	h->job.work = do_step;
	h->job.done = end_step;
	worker_run(h->is_server ? &server_queue : &client_queue, &h->job);
}

/* ---- The next record ---- */

/* The socket is reported as readable when it has so many bytes, or its end. False: the handshake is gone. */
static bool wait_for_bytes(struct tls_handshake *h, int bytes)
{
	if (setsockopt(h->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) != 0) {
		finish_handshake(h, -errno, "TLS: SO_RCVLOWAT");
		return false;
	}
	return true;
}

static void look_at_record(struct tls_handshake *h, bool has_ended)
{
	uint8_t head[TLS_RECORD_HEAD];
	ssize_t n = recv(h->fd, head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
	int there = 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	if (n <= 0) {
		finish_unmade(h, -ECONNRESET, CLOSED);
		return;
	}
	int bytes = tls_record_bytes(head, (size_t)n, !h->has_begun);
	if (bytes < 0) {
		finish_handshake(h, h->has_begun || !h->is_server ? -EPROTO : -EPROTONOSUPPORT,
				 h->has_begun ? "TLS: it sends something else than TLS records"
					      : "it does not begin with TLS, which is demanded here (secure_channel)");
	} else if (ioctl(h->fd, FIONREAD, &there) == 0 && there >= bytes) {
		h->has_begun = true;
		begin_step(h, (size_t)bytes);
	} else if (has_ended) {
		finish_handshake(h, -ECONNRESET, CLOSED);
	} else {
		(void)wait_for_bytes(h, bytes);
	}
}

static void handle_handshake_event(void *arg, uint32_t events)
{
	struct tls_handshake *h = arg;

	if (h->step == TLS_STEP_WRITE) {
		begin_step(h, 0);
	} else {
		look_at_record(h, (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
	}
}

static void wait_for_socket(struct tls_handshake *h, uint32_t events)
{
	if (events == EPOLLIN && !wait_for_bytes(h, 1)) {
		return;
	}
	h->source = fd_source_add(h->fd, events == EPOLLIN ? EPOLLIN | EPOLLRDHUP : events, handle_handshake_event, h,
				  "tls_handshake");
	if (h->source == NULL) {
		finish_handshake(h, -ENOMEM, "TLS: epoll does not take the socket");
	}
}

/* ---- From its beginning to its end ---- */

static void end_late_handshake(void *arg)
{
	struct tls_handshake *h = arg;

	if (thread_timer_was_absent(&h->timer, h->timeout_us)) {
		thread_timer_start(&h->timer, h->timeout_us); /* what came meanwhile has not been read yet */
		return;
	}
	if (h->in_step) {
		h->late = true;
		return;
	}
	finish_unmade(h, -ETIMEDOUT, LATE);
}

static void begin_handshake(struct thread_msg *msg)
{
	struct tls_handshake *h = container_of(msg, struct tls_handshake, begin_msg);

	h->in_step = false;
	if (h->cancelled) {
		drop_handshake(h);
	} else if (h->late) {
		finish_unmade(h, -ETIMEDOUT, LATE);
	} else if (h->is_server) {
		wait_for_socket(h, EPOLLIN);
	} else {
		begin_step(h, 0);
	}
}

struct tls_handshake *tls_handshake_start(struct tls_session *session, uint64_t timeout_us, tls_handshake_fn done,
					  void *arg)
{
	struct tls_handshake *h = calloc(1, sizeof(*h));

	if (h == NULL) {
		return NULL;
	}
	h->session = session;
	h->fd = tls_session_fd(session);
	h->is_server = tls_session_is_server(session);
	h->step = TLS_STEP_READ;
	h->done = done;
	h->arg = arg;
	h->timeout_us = timeout_us;
	h->timer.fn = end_late_handshake;
	h->timer.arg = h;
	thread_timer_start(&h->timer, timeout_us);
	h->in_step = true; /* the message is under way */
	thread_post(thread_control(), &h->begin_msg, begin_handshake);
	return h;
}

void tls_handshake_cancel(struct tls_handshake *h)
{
	stop_waiting(h);
	if (h->in_step) {
		h->cancelled = true;
	} else {
		drop_handshake(h);
	}
}

void tls_handshake_stop(void)
{
	worker_wait(&server_queue, STOP_WAIT_US);
	worker_wait(&client_queue, STOP_WAIT_US);
}
