/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "rpc/dispatch.h"
#include "rpc/frame.h"
#include "rpc/message.h"
#include "rpc/outq.h"
#include "rpc/registry.h"
#include "thread/thread.h"
#include "util/log.h"
#include "util/secret.h"

LOG_FLAG(rpc_conn)

#define READ_SIZE      (16 * 1024)
#define CALLS_MAX      1024                  /* unanswered calls of a connection; with more, it is not read from */
#define OUT_HIGH_BYTES (1024 * 1024)         /* of queued answers of a connection; with more, it is not read from */
#define OUT_MAX_BYTES  (256 * 1024 * 1024UL) /* ... which may grow to this by calls that were under way */
#define STALL_US       (30 * 1000000ULL)     /* a client that takes no bytes for so long is dropped */
#define TURN_US        500 /* a client's messages are run for so long at a time; then others have their turn */

struct rpc_conn {
	const struct rpc_conn_opts *opts;
	unsigned refs; /* the connection itself, and each call that is not answered */
	int fd;        /* -1: closed */
	uint32_t number;
	struct fd_source *source;
	uint32_t events;
	struct rpc_frame frame;
	char *in;
	size_t in_len, in_size;
	struct rpc_outq out;
	unsigned n_calls;
	bool eof;                  /* the client has closed its side */
	bool closing;              /* nothing more is read from the client */
	bool broken;               /* close as soon as nothing is using it */
	bool more;                 /* messages may be waiting in the buffer for the next turn */
	bool busy;                 /* conn_work() is running, and will call conn_settle() at its end */
	struct conn_call *in_turn; /* is waited for before more is begun */
	/* The message whose calls are being started, if there is one. */
	bool in_message;
	struct rpc_message message;
	size_t message_bytes, next_call;
	struct conn_batch *batch; /* that it is, or NULL */
	uint64_t turn_end;        /* ticks */
	struct thread_timer turn, stall;
};

/* The answers of a batch, which are sent as one array. */
struct conn_batch {
	unsigned pending; /* references: one for each unanswered call, one for the loop that starts them */
	char *text;
	size_t len;
};

struct conn_call {
	struct rpc_conn *conn;
	struct conn_batch *batch; /* or NULL */
	char *id;                 /* NULL: a notification */
};

static void conn_release(struct rpc_conn *c)
{
	if (--c->refs == 0) {
		free(c);
	}
}

static void conn_end_message(struct rpc_conn *c);

void rpc_conn_close(struct rpc_conn *c)
{
	thread_timer_stop(&c->turn);
	thread_timer_stop(&c->stall);
	fd_source_remove(&c->source);
	close(c->fd);
	c->fd = -1;
	c->broken = true;
	if (c->in_message) {
		conn_end_message(c);
	}
	rpc_outq_clear(&c->out);
	secret_wipe_free(c->in);
	c->in = NULL;
	conn_release(c);
}

/* Drops a connection because of a limit of varve or an error of the system. */
static void conn_drop(struct rpc_conn *c, const char *why)
{
	log_limited(LOG_LEVEL_WARNING, "RPC client %d is dropped: %s", c->fd, why);
	c->broken = true;
}

static void conn_failed(struct rpc_conn *c, int error)
{
	if (error == EPIPE || error == ECONNRESET) { /* the client has closed: not worth a line in the log */
		log_info(rpc_conn, "client %d is gone: %s", c->fd, strerror(error));
		c->broken = true;
	} else {
		conn_drop(c, strerror(error));
	}
}

static void conn_flush(struct rpc_conn *c)
{
	int rc = rpc_outq_send(&c->out, c->fd);

	if (rc < 0) {
		conn_failed(c, -rc);
	} else if (rpc_outq_bytes(&c->out) == 0) {
		thread_timer_stop(&c->stall);
	} else if (rc > 0) {
		thread_timer_start(&c->stall, STALL_US); /* the client took some bytes: its time begins again */
	}
}

/* Queues text, which it owns from then on, and sends as much as the socket takes. */
static void conn_send(struct rpc_conn *c, char *text, size_t len)
{
	bool was_empty = rpc_outq_bytes(&c->out) == 0;

	if (c->broken) {
		free(text);
		return;
	}
	if (text == NULL || rpc_outq_add(&c->out, text, len) != 0) {
		conn_drop(c, "no memory for an answer to it");
		free(text);
		return;
	}
	if (was_empty) {
		thread_timer_start(&c->stall, STALL_US);
	}
	conn_flush(c);
	if (rpc_outq_bytes(&c->out) > OUT_MAX_BYTES) {
		log_warning("RPC client %d does not read its answers: it is dropped with %zu bytes queued", c->fd,
			    rpc_outq_bytes(&c->out));
		c->broken = true;
	}
}

static void conn_send_error(struct rpc_conn *c, const char *id, int code, const char *message)
{
	struct rpc_answer answer = {.code = code, .message = message};
	size_t len = 0;
	char *text = rpc_answer_text(id, &answer, &len);

	conn_send(c, text, len);
}

static int conn_batch_append(struct conn_batch *b, const char *text, size_t len)
{
	char *longer = realloc(b->text, b->len + len + 2);

	if (longer == NULL) {
		return -ENOMEM;
	}
	b->text = longer;
	b->text[b->len] = b->len == 0 ? '[' : ',';
	memcpy(b->text + b->len + 1, text, len);
	b->len += len + 1;
	return 0;
}

/* Releases a reference to the batch, that of a call or of the loop that starts them; the last one sends the answers. */
static void conn_batch_release(struct rpc_conn *c, struct conn_batch *b)
{
	if (--b->pending > 0) {
		return;
	}
	if (b->len != 0) {
		b->text[b->len++] = ']';
		conn_send(c, b->text, b->len);
	}
	free(b);
}

static void conn_call_deliver(struct conn_call *call, char *text, size_t len)
{
	struct rpc_conn *c = call->conn;

	if (call->batch == NULL) {
		conn_send(c, text, len);
		return;
	}
	if (text == NULL || conn_batch_append(call->batch, text, len) != 0) {
		conn_drop(c, "no memory for an answer to it");
	}
	free(text);
}

/* Called when a method has answered: within conn_work(), or later. */
static void conn_call_done(void *arg, struct rpc_answer *answer)
{
	struct conn_call *call = arg;
	struct rpc_conn *c = call->conn;
	size_t len = 0;

	c->n_calls--;
	c->in_turn = c->in_turn == call ? NULL : c->in_turn;
	if (call->id != NULL && !c->broken) {
		char *text = rpc_answer_text(call->id, answer, &len);
		answer->bytes = len;
		conn_call_deliver(call, text, len);
	}
	if (call->batch != NULL) {
		conn_batch_release(c, call->batch);
	}
	free(call->id);
	free(call);
	/* A later answer is given in the middle of some other work of the control thread: the next request must not run
	 * there. */
	if (c->fd >= 0 && !c->busy) {
		thread_timer_start(&c->turn, 0);
	}
	conn_release(c);
}

static void conn_start_call(struct rpc_conn *c, struct rpc_call *decoded, struct conn_batch *batch, size_t bytes)
{
	struct conn_call *call = calloc(1, sizeof(*call));

	if (call == NULL) {
		conn_drop(c, "no memory for a request of it");
		return;
	}
	call->conn = c;
	call->batch = batch;
	call->id = decoded->id;
	decoded->id = NULL;
	c->refs++;
	c->n_calls++;
	if (batch != NULL) {
		batch->pending++;
	}
	if (decoded->error != 0) {
		conn_call_done(call, &(struct rpc_answer){.code = decoded->error, .message = decoded->why});
	} else {
		const struct rpc_method *m = rpc_method_find(decoded->method);
		/* No other call is in turn: while one is unanswered, none is started. */
		c->in_turn = m != NULL && m->in_turn ? call : NULL;
		rpc_dispatch(&(struct rpc_origin){c->number, (uint32_t)bytes, c->fd}, decoded->method, decoded->params,
			     conn_call_done, call);
	}
}

static void conn_end_message(struct rpc_conn *c)
{
	if (c->batch != NULL) {
		conn_batch_release(c, c->batch);
	}
	c->batch = NULL;
	c->in_message = false;
	rpc_message_free(&c->message);
}

/* Whether more may be read, or begun. */
static bool conn_may_read(const struct rpc_conn *c)
{
	return !c->broken && !c->closing && c->n_calls < CALLS_MAX && c->in_turn == NULL &&
	       rpc_outq_bytes(&c->out) < OUT_HIGH_BYTES;
}

/* Starts the calls of the message, until one must be answered before the next may start, or the turn has ended. */
static void conn_run_message(struct rpc_conn *c)
{
	while (c->next_call < c->message.n_calls && conn_may_read(c)) {
		conn_start_call(c, &c->message.calls[c->next_call++], c->batch, c->message_bytes);
		if (env_ticks() >= c->turn_end) {
			break;
		}
	}
	if (c->next_call == c->message.n_calls || c->broken) {
		conn_end_message(c);
	}
}

static void conn_take_message(struct rpc_conn *c, const char *text, size_t len)
{
	if (rpc_message_decode(text, len, &c->message) != 0) {
		log_limited(LOG_LEVEL_WARNING, "no memory for a request of RPC client %d", c->fd);
		conn_send_error(c, "null", -ENOMEM, "no memory for the request");
		return;
	}
	if (c->message.batch) {
		c->batch = calloc(1, sizeof(*c->batch));
		if (c->batch == NULL) {
			conn_drop(c, "no memory for a batch of its");
			rpc_message_free(&c->message);
			return;
		}
		c->batch->pending = 1;
	}
	c->in_message = true;
	c->message_bytes = len;
	c->next_call = 0;
	conn_run_message(c);
}

/* The rest of the stream cannot be decoded: answers so, and closes when that, and the answers to earlier calls, have
 * been sent. */
static void conn_give_up(struct rpc_conn *c, int code, const char *message)
{
	c->closing = true;
	conn_send_error(c, "null", code, message);
}

static void conn_too_long(struct rpc_conn *c)
{
	char why[96];

	snprintf(why, sizeof(why), "the message is too long: at most %zu bytes are allowed", c->opts->max_message_size);
	conn_give_up(c, RPC_ERROR_INVALID_REQUEST, why);
}

static void conn_drop_input(struct rpc_conn *c)
{
	size_t drop = rpc_frame_droppable(&c->frame);

	if (drop != 0) {
		memmove(c->in, c->in + drop, c->in_len - drop);
		c->in_len -= drop;
		explicit_bzero(c->in + c->in_len, drop); /* what has moved, or has been a call: perhaps with a key */
		rpc_frame_dropped(&c->frame, drop);
	}
	if (c->in_len == 0 && c->in_size > READ_SIZE) {
		secret_wipe_free(c->in);
		c->in = NULL;
		c->in_size = 0;
	}
}

/* Continues with the current message, or takes the next one from the buffer. False: the buffer has no complete message.
 */
static bool conn_next_message(struct rpc_conn *c)
{
	size_t begin, end;

	if (c->in_message) {
		conn_run_message(c);
		return true;
	}
	switch (rpc_frame_scan(&c->frame, c->in, c->in_len, &begin, &end)) {
	case RPC_FRAME_MORE:
		if (c->in_len - rpc_frame_droppable(&c->frame) > c->opts->max_message_size) {
			conn_too_long(c);
		} else if (c->eof && c->frame.depth != 0) {
			conn_give_up(c, RPC_ERROR_PARSE, "the stream ends inside a message");
		}
		return false;
	case RPC_FRAME_MESSAGE:
		if (end - begin > c->opts->max_message_size) {
			conn_too_long(c);
			return false;
		}
		conn_take_message(c, c->in + begin, end - begin);
		return true;
	case RPC_FRAME_DEEP:
		conn_give_up(c, RPC_ERROR_PARSE, "the message is nested deeper than 64 levels");
		return false;
	default:
		conn_give_up(c, RPC_ERROR_PARSE, "a message must be a JSON object or array");
		return false;
	}
}

/* Runs messages from the buffer, up to the limit of a turn. */
static void conn_work(struct rpc_conn *c)
{
	c->turn_end = env_ticks() + env_us_to_ticks(TURN_US);
	c->busy = true;
	c->more = false;
	while (conn_may_read(c) && conn_next_message(c)) {
		if (env_ticks() >= c->turn_end) {
			c->more = true;
			thread_timer_start(&c->turn, 0);
			break;
		}
	}
	conn_drop_input(c);
	c->busy = false;
	c->opts->called(c->opts->arg);
}

static bool conn_is_finished(const struct rpc_conn *c)
{
	if (c->broken) {
		return true;
	}
	/* The calls that came before the end, or before something that cannot be decoded, are answered first. */
	return rpc_outq_bytes(&c->out) == 0 && c->n_calls == 0 && (c->closing || (c->eof && !c->more));
}

/* To be called after each event of a connection: continues with input that waits, sets the events to wait for, or
 * closes the connection. */
static void conn_settle(struct rpc_conn *c)
{
	if (!c->more && (c->in_len != 0 || c->in_message) && conn_may_read(c)) {
		conn_work(c);
	}
	if (conn_is_finished(c)) {
		c->opts->closed(c, c->opts->arg);
		rpc_conn_close(c);
		return;
	}
	uint32_t events = !c->eof && !c->more && conn_may_read(c) ? EPOLLIN : 0;
	events |= rpc_outq_bytes(&c->out) != 0 ? EPOLLOUT : 0;
	if (events != c->events) {
		c->events = events;
		fd_source_modify(c->source, events);
	}
}

static int conn_grow_input(struct rpc_conn *c)
{
	size_t size = c->in_size == 0 ? READ_SIZE : 2 * c->in_size;
	char *in = malloc(size);

	if (in == NULL) {
		return -ENOMEM;
	}
	if (c->in_len != 0) {
		memcpy(in, c->in, c->in_len);
	}
	secret_wipe_free(c->in);
	c->in = in;
	c->in_size = size;
	return 0;
}

static void conn_read(struct rpc_conn *c)
{
	if (c->in_len == c->in_size && conn_grow_input(c) != 0) {
		conn_drop(c, "no memory for what it sends");
		return;
	}
	ssize_t n = recv(c->fd, c->in + c->in_len, c->in_size - c->in_len, MSG_DONTWAIT);
	if (n > 0) {
		c->in_len += (size_t)n;
	} else if (n == 0) {
		c->eof = true;
	} else if (errno != EAGAIN && errno != EINTR) {
		conn_failed(c, errno);
	}
}

static void conn_event(void *arg, uint32_t events)
{
	struct rpc_conn *c = arg;

	if (events & EPOLLOUT) {
		conn_flush(c);
	}
	if (events & EPOLLIN) {
		conn_read(c);
	} else if ((events & (EPOLLHUP | EPOLLERR)) && !c->more) {
		c->broken = true; /* both directions are closed: there is no client to answer. Bytes that came before
				     are read first. */
	}
	conn_settle(c);
}

static void conn_turn(void *arg)
{
	struct rpc_conn *c = arg;

	c->more = false;
	conn_settle(c);
}

static void conn_stalled(void *arg)
{
	struct rpc_conn *c = arg;

	log_warning("RPC client %d has not read any bytes for %llu s: it is dropped with %zu bytes queued", c->fd,
		    STALL_US / 1000000, rpc_outq_bytes(&c->out));
	c->broken = true;
	conn_settle(c);
}

static void conn_refuse_without_memory(int fd)
{
	log_limited(LOG_LEVEL_WARNING, "RPC client %d is disconnected: no memory for its connection", fd);
	close(fd);
}

struct rpc_conn *rpc_conn_open(int fd, const struct rpc_conn_opts *opts)
{
	static uint32_t last_number;
	struct rpc_conn *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		conn_refuse_without_memory(fd);
		return NULL;
	}
	c->opts = opts;
	c->refs = 1;
	c->fd = fd;
	c->number = ++last_number;
	c->events = EPOLLIN;
	rpc_outq_init(&c->out);
	c->turn = (struct thread_timer){.fn = conn_turn, .arg = c};
	c->stall = (struct thread_timer){.fn = conn_stalled, .arg = c};
	c->source = fd_source_add(fd, c->events, conn_event, c, "rpc_client");
	if (c->source == NULL) {
		conn_refuse_without_memory(fd);
		free(c);
		return NULL;
	}
	return c;
}
