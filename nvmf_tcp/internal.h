/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of nvmf_tcp/.
 *
 * Two threads work here. The control thread owns listeners, accepts connections, and makes and frees the memory of
 * queue pairs. A poll group's thread owns sockets, requests and all that happens on a connection: whatever is not
 * marked "Control thread" below. Neither waits for the network.
 *
 * A connection begins with one request, which is enough for Connect. Its others are allocated when the size of its
 * queue is known, so that anybody who only connects holds little memory. Neither does anybody who reads the discovery
 * log: those requests have little room for data.
 *
 * A request is sent in up to two steps, and waits in its queue pair's list `out` meanwhile: R2T, then the response.
 * sendmsg() takes what all requests in the list have to send, so that one system call is enough for many responses. */
#ifndef NVMF_TCP_INTERNAL_H
#define NVMF_TCP_INTERNAL_H

#include <sys/queue.h>
#include <sys/socket.h>

#include "nvmf/transport.h"
#include "nvmf/transport_buffers.h"
#include "nvmf_tcp/rules.h"
#include "tcp/digest.h"
#include "tcp/pdu.h"
#include "tcp/receiver.h"
#include "tcp/socket.h"
#include "tcp/zerocopy.h"
#include "thread/thread.h"
#include "tls/session.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/compiler.h"
#include "util/latency.h"
#include "util/log.h"

#define NVMF_TCP_CONTROL_DATA   8192 /* bytes of in-capsule data that fabrics and admin commands may have (TCP 3.3.2) */
#define NVMF_TCP_ANONYMOUS_DATA 512  /* the same, where anybody may connect: enough for Set Features */
#define NVMF_TCP_STAGE          4096 /* bytes that are read at once, besides payload that has its place */
#define NVMF_TCP_SHARED_STAGE   65536 /* the same, where nothing keeps what was read from being handled at once */
#define NVMF_TCP_EVENTS         64    /* sockets that one poll looks at */
#define NVMF_TCP_SEND_IOVS      256   /* pieces of memory of one sendmsg() */
#define NVMF_TCP_READS          4     /* recvmsg() calls for a connection in one poll */
#define NVMF_TCP_UNSENT_MAX     (UINT32_C(1) << 20) /* bytes that wait to be sent before commands are not read any more */

struct nvmf_tcp_group;
struct nvmf_tcp_qpair;

/* The states of a request, with the numbers of their tracepoints. */
enum nvmf_tcp_request_state {
	TCP_REQ_NEW = 0,
	TCP_REQ_NEED_BUFFER = 1,
	TCP_REQ_HAVE_BUFFER = 2,
	TCP_REQ_TX_H_TO_C = 5,
	TCP_REQ_RDY_TO_EXECUTE = 6,
	TCP_REQ_EXECUTING = 7,
	TCP_REQ_EXECUTED = 9,
	TCP_REQ_RDY_TO_COMPLETE = 10, /* its response waits for its turn to be sent */
	TCP_REQ_TRANSFER_C2H = 11,    /* data and response are being sent */
	TCP_REQ_COMPLETED = 13,
	TCP_REQ_AWAIT_R2T_ACK = 16,     /* the R2T has not been sent completely */
	TCP_REQ_HELD = 24,              /* all was sent, or no more will be; the kernel refers to its data still */
	TCP_REQ_FREE = NVMF_STATE_IDLE, /* no tracepoint: COMPLETED was the last */
	TCP_REQ_STATES
};

struct nvmf_tcp_request {
	struct nvmf_tcp_qpair *qp;
	uint8_t state;   /* enum nvmf_tcp_request_state; set by set_tcp_request_state() only */
	bool bad_digest; /* the digest of data from the host did not fit */
	bool sends_data, sends_response;
	uint16_t zerocopies;              /* sends of its data that are not notified (tcp/zerocopy.h) */
	uint8_t data_head, response_head; /* bytes of the next two */
	uint16_t buffers;                 /* that it has in req.iov */
	uint16_t ttag;                    /* of its R2T: its index in its array, or that plus the array's count */
	uint16_t late_ttag;               /* of `late` */
	struct nvmf_tcp_awaited late;     /* data that were asked for, of a command that was aborted; length 0: none */
	uint32_t received;                /* bytes of the host's data; H2CData */
	uint32_t data_digest;             /* little-endian, behind the data */
	uint64_t unsent;                  /* bytes that it has in `out`, or had */
	uint64_t state_ticks;             /* thread_now() when the state was entered */
	STAILQ_ENTRY(nvmf_tcp_request) link; /* of free or out */
	struct nvme_sqe sqe;
	uint8_t data_pdu[TCP_HEAD_MAX];     /* head of C2HData, or R2T */
	uint8_t response_pdu[TCP_HEAD_MAX]; /* of CapsuleResp */
	struct iovec place;                 /* of in-capsule data: icd, or setup.icd of its queue pair */
	uint8_t *icd; /* its own room for them, and for few data of H2CData: icd_size bytes of its array */

	struct nvmf_request req __attribute__((aligned(64))); /* last */
};
STAILQ_HEAD(nvmf_tcp_request_list, nvmf_tcp_request);

/* The requests of a connection, with room for in-capsule data. */
struct nvmf_tcp_request_array {
	struct nvmf_request_array base;
	size_t bytes; /* of all of it */
	uint8_t *memory, *icd;
	uint32_t icd_size; /* bytes of each */
	struct iovec *iovs;
};

static inline struct nvmf_tcp_request *nvmf_tcp_request_at(const struct nvmf_tcp_request_array *a, uint32_t i)
{
	return (struct nvmf_tcp_request *)(a->memory + i * a->base.stride);
}

/* The state of a connection. */
enum nvmf_tcp_qpair_state {
	NVMF_TCP_QPAIR_INITIALIZING, /* ICReq has not arrived */
	NVMF_TCP_QPAIR_SETUP, /* one request: until Connect has been answered, and its queue's requests are there */
	NVMF_TCP_QPAIR_LIVE,
	NVMF_TCP_QPAIR_CLOSING, /* its requests end; nothing is received or sent any more */
	NVMF_TCP_QPAIR_CLOSED,  /* no request is left; the control thread frees its memory */
	NVMF_TCP_QPAIR_STATES,
};
extern const char *const nvmf_tcp_qpair_state_names[NVMF_TCP_QPAIR_STATES]; /* "LIVE" */

struct nvmf_tcp_qpair {
	struct nvmf_qpair base;
	struct nvmf_tcp_group *tgroup;
	int fd;                        /* -1: closed */
	uint8_t state;                 /* enum nvmf_tcp_qpair_state */
	bool dirty;                    /* in its group's list of those that have something to send or to look at */
	bool look;                     /* dirty, and bytes that were read may be waiting to be looked at */
	bool send_blocked : 1;         /* the socket took no more; EPOLLOUT is awaited */
	bool starved : 1;              /* no request is free, and some are HELD: no command is read until one is free */
	bool growing;                  /* the control thread makes the requests of its queue: */
	bool grow_admin;               /* of an admin queue, and */
	uint16_t grow_count;           /* how many */
	bool described;                /* its trace owner names host and subsystem */
	struct tls_session *tls;       /* NULL: it is not encrypted */
	struct tcp_zerocopy *zerocopy; /* NULL: what is sent is copied */
	bool broken;                   /* the other side has closed, or the socket has an error */
	uint8_t term_bytes;            /* of a TermReq that is sent when it is closed; 0: none */
	uint16_t owner;                /* of trace records */
	uint32_t events;               /* that epoll looks for */
	uint32_t in_use;               /* requests that are not FREE */
	uint32_t held;                 /* requests that are HELD */
	uint32_t transfers;            /* R2Ts whose data have not arrived completely */
	uint64_t unsent;               /* bytes that the requests in `out` have to send */
	uint64_t sent_of_first;        /* of those of the first, how many have been sent */
	struct nvmf_tcp_request_list free, out;
	struct nvmf_tcp_request_array *array; /* setup, then requests */
	struct nvmf_tcp_request_array requests;
	struct tcp_receiver receiver;
	struct nvmf_tcp_request *receiving; /* whose data arrive */
	bool receives_late;                 /* they are its `late` ones, which go nowhere */
	/* An I/O queue's requests have room for in_capsule_data_size bytes, but a fabrics command may have more; those
	 * of an anonymous host's queue have little room. One at a time uses that of the request that Connect came in.
	 */
	struct nvmf_tcp_request *control_data_user;
	struct tcp_piece piece; /* H2CData: of that request */
	STAILQ_ENTRY(nvmf_tcp_qpair) dirty_link;
	TAILQ_ENTRY(nvmf_tcp_qpair) link;
	uint64_t moved;       /* bytes that were sent and read */
	uint64_t moved_seen;  /* of these, those that the host has taken and sent, when last looked at (stall.c) */
	uint64_t progress;    /* what was added to it by that look */
	bool has_to_move;     /* something was under way then */
	uint64_t held_seen;   /* when the request was HELD that was the oldest of these then; 0: none was */
	uint64_t oldest_seen; /* when the transfer began that was the oldest then */
	uint8_t old_looks;    /* how many times in a row it was the same */
	uint8_t stalled;      /* how many times in a row it had moved too little */
	struct nvmf_tcp_request_array setup;
	uint8_t *stage;
	uint64_t bytes; /* of memory, in all */
	uint8_t term_pdu[TCP_TERM_MAX];
	struct thread_timer zerocopy_timer; /* CLOSING: looks for notifications */
	uint32_t zerocopy_looks;
	struct thread_msg grow_msg, grown_msg, free_msg, freed_msg, describe_msg;
};
TAILQ_HEAD(nvmf_tcp_qpair_list, nvmf_tcp_qpair);
STAILQ_HEAD(nvmf_tcp_dirty_list, nvmf_tcp_qpair);

/* What a poll group counts; nvmf_get_stats and metrics name these (transport.c). */
struct nvmf_tcp_counters {
	uint64_t polls, idle_polls, requests, request_latency;
	uint64_t reads, read_bytes, sends, sent_bytes;
	uint64_t r2ts, pending_send, digest_errors, terminations;
	uint64_t zerocopy_sends, zerocopy_copied;
};

/* For the times in request_latency (util/latency.h). */
struct nvmf_tcp_latency {
	uint8_t until_sample; /* I/O commands up to the next one whose exact time is measured */
	uint8_t first_samples_left;
	uint32_t sample_period; /* in which there was one last */
	struct latency_correction correction;
};

/* A socket whose connection has ended on our side: what was sent may still be under way, and closing a socket that has
 * unread data would take it back (RFC 1122 4.2.2.13). So its input is thrown away until the other side closes, for a
 * limited time. */
struct nvmf_tcp_leaver {
	int fd;
	bool known;     /* its host was connected, and not to discovery only */
	uint64_t until; /* thread_now() */
	TAILQ_ENTRY(nvmf_tcp_leaver) link;
};
#define NVMF_TCP_STRANGERS_MAX 256 /* leavers that are not `known`: anybody can make them */

struct nvmf_tcp_group {
	struct nvmf_transport_group base;
	struct nvmf_buffer_group buffers;
	uint64_t waits_seen; /* of these, when connections were last looked at */
	int epoll;
	struct poller *poller, *stall_poller;
	struct nvmf_tcp_dirty_list dirty;
	uint32_t num_dirty;
	struct nvmf_tcp_qpair_list qpairs;
	struct nvmf_tcp_counters counters;
	struct nvmf_tcp_latency latency;
	uint32_t connections;
	uint64_t connection_bytes;
	TAILQ_HEAD(, nvmf_tcp_leaver) leavers;
	uint32_t num_strangers; /* of them */
	struct thread_timer leave_timer;
	struct iovec iovs[NVMF_TCP_SEND_IOVS];
	uint8_t stage[NVMF_TCP_SHARED_STAGE]; /* last; of the connection that is read */
};

struct nvmf_tcp_listener {
	struct nvmf_tcp_transport *transport;
	struct nvmf_address address;
	int fd;
	bool secure; /* hosts have to begin with TLS */
	struct fd_source *source;
	struct thread_timer again; /* it was paused because no descriptor or memory was left */
	TAILQ_ENTRY(nvmf_tcp_listener) link;
};

struct nvmf_tcp_transport {
	struct nvmf_transport base;
	struct nvmf_buffer_pool buffers;
	TAILQ_HEAD(, nvmf_tcp_listener) listeners;
	TAILQ_HEAD(, nvmf_tcp_handshake) handshakes; /* of its secure listeners */
};

/* The transport's own options (transport.c says what each means). */
struct nvmf_tcp_opts {
	bool c2h_success;
	uint32_t sock_priority;
	uint16_t control_msg_num;
};

static inline struct nvmf_tcp_qpair *nvmf_tcp_qpair_of(struct nvmf_qpair *q)
{
	return (struct nvmf_tcp_qpair *)q;
}

static inline struct nvmf_tcp_transport *nvmf_tcp_transport_of(struct nvmf_transport *t)
{
	return (struct nvmf_tcp_transport *)t;
}

static inline struct nvmf_tcp_group *nvmf_tcp_group_of(struct nvmf_transport_group *g)
{
	return (struct nvmf_tcp_group *)g;
}

static inline const struct nvmf_tcp_opts *nvmf_tcp_opts(const struct nvmf_transport *t)
{
	return (const struct nvmf_tcp_opts *)t->opts.own;
}

static inline struct nvmf_tcp_request *nvmf_tcp_request_of(struct nvmf_request *req)
{
	return container_of(req, struct nvmf_tcp_request, req);
}

static inline struct thread *nvmf_tcp_qpair_thread(const struct nvmf_tcp_qpair *qp)
{
	return nvmf_poll_group_thread(qp->base.group);
}

static inline bool nvmf_tcp_qpair_is_open(const struct nvmf_tcp_qpair *qp)
{
	return qp->state < NVMF_TCP_QPAIR_CLOSING;
}

/* Anybody may be at the other side, for it reads the discovery log: its requests have little room. */
static inline bool nvmf_tcp_qpair_is_of_a_stranger(const struct nvmf_tcp_qpair *qp)
{
	return qp->base.qid == 0 && qp->array->icd_size < NVMF_TCP_CONTROL_DATA;
}

/* listen.c: control thread. */
int nvmf_tcp_op_listen(struct nvmf_transport *t, const struct nvmf_address *address);
int nvmf_tcp_op_listen_secure(struct nvmf_transport *t, const struct nvmf_address *address);
void nvmf_tcp_op_stop_listen(struct nvmf_transport *t, const struct nvmf_address *address);
void nvmf_tcp_op_resume(struct nvmf_transport *t);

/* secure.c: connections over TLS, until their handshake is done. Control thread. */

/* A connection has come in at a secure listener, or at another one while a host may come over TLS with a generated PSK:
 * what it begins with tells. The socket is no longer the caller's. */
void nvmf_tcp_secure_accept(struct nvmf_tcp_listener *l, int fd, const struct sockaddr *peer, size_t peer_bytes);
/* The listener goes, and so do connections whose handshake is not done. */
void nvmf_tcp_secure_stop(struct nvmf_tcp_listener *l);

/* qpair.c: a connection from accept() to its end. */

/* Control thread: writes an IP address and its port as text. */
void nvmf_tcp_name_address(struct nvmf_address *a, const struct sockaddr *sa);
/* Control thread: a connection has come in at a listener, and, at a secure one, its handshake is done; otherwise tls is
 * NULL. Socket and session are the queue pair's from now on, or gone. */
void nvmf_tcp_qpair_accept(struct nvmf_tcp_listener *l, int fd, const struct sockaddr *peer, struct tls_session *tls);
int nvmf_tcp_op_qpair_add(struct nvmf_transport_group *tgroup, struct nvmf_qpair *base);
bool nvmf_tcp_op_qpair_is_idle(const struct nvmf_qpair *base);
void nvmf_tcp_op_qpair_close(struct nvmf_qpair *base);
void nvmf_tcp_op_qpair_destroy(struct nvmf_qpair *base);
/* ICReq has been answered. */
void nvmf_tcp_qpair_initialized(struct nvmf_tcp_qpair *qp);
/* A request has become free. */
void nvmf_tcp_qpair_request_freed(struct nvmf_tcp_qpair *qp);
/* Connect has been successful, and is being answered. */
void nvmf_tcp_qpair_connected(struct nvmf_tcp_qpair *qp);
/* A request has ended: the last one of a CLOSING queue pair ends it. */
void nvmf_tcp_qpair_check_closed(struct nvmf_tcp_qpair *qp);
/* The stream of PDUs cannot go on: has a TermReq sent, and ends the connection. */
void nvmf_tcp_qpair_terminate(struct nvmf_tcp_qpair *qp, const struct tcp_fault *fault);
/* The connection has ended, and nothing refers to what was sent any more: the socket leaves. */
void nvmf_tcp_qpair_release_socket(struct nvmf_tcp_qpair *qp);
/* Has epoll look for what the connection can take now. */
void nvmf_tcp_qpair_update_events(struct nvmf_tcp_qpair *qp);
/* Has the group's poller send what is in `out`, and, with look, go on with bytes that were read before. */
void nvmf_tcp_qpair_mark_dirty(struct nvmf_tcp_qpair *qp, bool look);
/* Its turn has come, or it ends. */
void nvmf_tcp_qpair_unmark_dirty(struct nvmf_tcp_qpair *qp);
/* Names the queue pair in traces, once its host is known. */
void nvmf_tcp_qpair_describe(struct nvmf_tcp_qpair *qp);

/* close.c: sockets after their connections. */

/* Takes a socket that epoll does not look at any more: closes it when the other side does, or after a while. known: as
 * in struct nvmf_tcp_leaver. */
void nvmf_tcp_socket_leave(struct nvmf_tcp_group *g, int fd, bool known);
/* epoll says that there is something to be read, or an error. */
void nvmf_tcp_leaver_readable(struct nvmf_tcp_group *g, struct nvmf_tcp_leaver *leaver);
/* Closes all: the group is destroyed. */
void nvmf_tcp_leavers_close(struct nvmf_tcp_group *g);
/* What epoll gives back for a leaver, and not for a queue pair, has this bit. */
#define NVMF_TCP_LEAVER_BIT UINT64_C(1)

/* group.c */
struct nvmf_transport_group *nvmf_tcp_op_group_create(struct nvmf_transport *base, struct nvmf_poll_group *group,
						      char why[NVMF_ERROR_MAX]);
void nvmf_tcp_op_group_destroy(struct nvmf_transport_group *base);

/* stall.c */

/* A poller's: looks at all connections, and ends those of hosts that take or send too little. */
int nvmf_tcp_group_poll_stalled(void *group);
/* How often. */
uint64_t nvmf_tcp_stall_poll_us(const struct nvmf_transport *t);

/* receive.c */

/* Reads what there is, up to a budget. */
void nvmf_tcp_qpair_receive(struct nvmf_tcp_qpair *qp);
/* Tells operators what a host's TLS records have ended the connection for; of all other ends nothing. */
void nvmf_tcp_tell_tls_failure(const struct nvmf_tcp_qpair *qp);
/* Whether nothing is read at present, although there may be something. */
bool nvmf_tcp_qpair_reads_nothing(const struct nvmf_tcp_qpair *qp);

/* send.c */

/* Puts a request that has something to send behind the others. */
void nvmf_tcp_qpair_queue(struct nvmf_tcp_qpair *qp, struct nvmf_tcp_request *r);
/* Sends what is in `out`, as far as the socket takes it. */
void nvmf_tcp_qpair_send(struct nvmf_tcp_qpair *qp);
/* Sends bytes of which all must fit into an empty socket buffer. False: they did not. */
bool nvmf_tcp_qpair_send_now(struct nvmf_tcp_qpair *qp, const void *bytes, size_t length);
/* The connection ends: nothing in `out` is sent any more. */
void nvmf_tcp_qpair_drop_unsent(struct nvmf_tcp_qpair *qp);

/* zerocopy.c: what the kernel sends without a copy. A request whose data it refers to does not end before it says that
 * it does not any more: the host could otherwise get what has come into its buffer since. */

/* Control thread: a socket that is not encrypted, as the options of sockets say. */
void nvmf_tcp_zerocopy_begin(struct nvmf_tcp_qpair *qp);
/* As sendmsg() of data of a request, with more flags. The number of bytes or a negative errno. */
ssize_t nvmf_tcp_zerocopy_send(struct nvmf_tcp_qpair *qp, struct nvmf_tcp_request *r, const struct msghdr *msg,
			       int flags);
/* All of a request was sent, or nothing more of it will be, and it has zerocopies: it ends with the last of them. */
void nvmf_tcp_zerocopy_hold(struct nvmf_tcp_request *r);
/* epoll says that there is something in the error queue. False: there was no notification. */
bool nvmf_tcp_zerocopy_notified(struct nvmf_tcp_qpair *qp);
/* A connection is CLOSING. True: its socket is kept until all is notified. */
bool nvmf_tcp_zerocopy_end(struct nvmf_tcp_qpair *qp);

/* request.c */
extern const struct nvmf_transport_state nvmf_tcp_request_states[TCP_REQ_STATES];
/* Control thread. */
int nvmf_tcp_request_array_create(struct nvmf_tcp_request_array *a, struct nvmf_tcp_qpair *qp, uint32_t count,
				  uint32_t icd_size);
void nvmf_tcp_request_array_destroy(struct nvmf_tcp_request_array *a);
/* A command is arriving: its header is here. NULL: there is no free request. */
struct nvmf_tcp_request *nvmf_tcp_request_begin(struct nvmf_tcp_qpair *qp, const void *sqe);
/* Has a request use the room for control data, if it may have so many there and nobody else does. */
bool nvmf_tcp_request_take_control_room(struct nvmf_tcp_request *r, uint32_t bytes);
/* The whole capsule is here, with icd_len bytes of data; bad_digest: their digest does not fit. */
void nvmf_tcp_request_received(struct nvmf_tcp_request *r, uint32_t icd_len, bool bad_digest);
/* All of it was sent, or nothing more will be, and it has zerocopies. */
void nvmf_tcp_request_hold(struct nvmf_tcp_request *r);
/* The capsule does not arrive completely. */
void nvmf_tcp_request_drop(struct nvmf_tcp_request *r);
/* Part of its data has arrived with H2CData. */
void nvmf_tcp_request_data_received(struct nvmf_tcp_request *r, const struct tcp_piece *piece);
/* The request that has sent an R2T with this tag and waits for data, and what is awaited next. *late: the command has
 * been aborted since, and the data go nowhere. NULL: there is none. */
struct nvmf_tcp_request *nvmf_tcp_request_awaiting(const struct nvmf_tcp_qpair *qp, uint16_t ttag,
						   struct nvmf_tcp_awaited *awaited, bool *late);
/* Part of its `late` data has arrived. */
void nvmf_tcp_request_late_data_received(struct nvmf_tcp_request *r, const struct tcp_piece *piece);
/* Sending of what it has in `out` begins. */
void nvmf_tcp_request_sending(struct nvmf_tcp_request *r);
/* All of it was sent. */
void nvmf_tcp_request_sent(struct nvmf_tcp_request *r);
/* The connection ends, and `out` is empty: ends requests that wait for a buffer, for the host's data, or were in `out`.
 */
void nvmf_tcp_qpair_fail_waiting(struct nvmf_tcp_qpair *qp);
/* Gives buffers to requests that wait for them. */
void nvmf_tcp_group_run_waiting(struct nvmf_tcp_group *g);
void nvmf_tcp_op_request_complete(struct nvmf_request *req);
void nvmf_tcp_op_request_continue(struct nvmf_request *req, enum nvmf_next next);
bool nvmf_tcp_op_request_abort(struct nvmf_request *req, uint16_t status);

#endif
