/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the TCP transport of the NVMe host (NVMe TCP Transport Specification 1.0c).
 *
 * zerocopy.c: data that the kernel sends without a copy.
 * tcp.c: the controller and the transport's table. connect.c: sockets, and ICReq and ICResp. qpair.c: memory and the
 * end of a queue pair. send.c: commands and the data of writes. receive.c: responses, the data of reads, R2Ts.
 *
 * The control thread connects a queue pair. When ICResp has come, the socket is its user's alone, but for
 * nvme_tcp_qpair_stop(), which shuts the socket down under the user. What is to be sent is a queue of slots; from it a
 * batch of PDUs is made, and sent by one sendmsg(). A command is complete when its response has arrived and all PDUs of
 * it have been sent: until then the batch may refer to its data. */
#ifndef NVME_TCP_H
#define NVME_TCP_H

#include "nvme/transport.h"
#include "tcp/receiver.h"
#include "tcp/zerocopy.h"
#include "tls/handshake.h"

#define NVME_TCP_DEFAULT_TRSVCID "4420"
#define NVME_TCP_R2TS            4   /* that a command may have outstanding: the MAXR2T of this host, 1's based */
#define NVME_TCP_SEGMENTS        256 /* iovs of a command */
#define NVME_TCP_BATCH_PDUS      64
#define NVME_TCP_BATCH_IOVS      1024 /* what one sendmsg() takes */

/* Where the capsule of a slot's command is. */
enum nvme_tcp_phase {
	NVME_TCP_IDLE,   /* no command */
	NVME_TCP_QUEUED, /* to be sent */
	NVME_TCP_BATCH,  /* in the batch, perhaps sent in part */
	NVME_TCP_SENT
};

struct nvme_tcp_r2t {
	uint16_t ttag;
	uint32_t left; /* bytes whose H2CData PDU is still to be made */
};

/* The progress of a slot's command. */
struct nvme_tcp_slot {
	uint8_t phase;            /* enum nvme_tcp_phase */
	bool in_capsule;          /* its data is sent with it */
	bool has_response;        /* `cqe` is what it will be completed with, once all is sent */
	bool data_is_bad;         /* the digest of some of its data did not fit */
	bool last_came;           /* C2HData with LAST_PDU */
	uint8_t r2ts_outstanding; /* those whose data is not sent yet */
	uint8_t r2ts_queued;      /* of these, those for which PDUs are still to be made; from r2t_first on */
	uint8_t r2t_first;
	uint16_t unsent;   /* entries of the send queue, ends of them in the batch, and sends that are unnotified */
	uint32_t received; /* bytes of data that have come */
	uint32_t asked;    /* bytes that R2Ts have asked for */
	uint32_t made;     /* bytes whose H2CData PDUs are made */
	struct nvme_tcp_r2t r2ts[NVME_TCP_R2TS];
	struct nvme_cqe cqe;
};

/* A PDU of the batch. */
struct nvme_tcp_pdu {
	union tcp_header head;
	uint32_t digest; /* of the data, as on the wire */
	uint32_t length; /* bytes of the data */
	uint16_t slot;
	uint16_t iov_begin, iov_end; /* its iovs */
	bool is_capsule;
	bool ends_r2t; /* the last PDU that answers an R2T */
};

/* The progress of a connection. */
enum nvme_tcp_link {
	NVME_TCP_LINK_CONNECTING, /* the socket is */
	NVME_TCP_LINK_TLS,        /* the handshake is being made, and has the socket */
	NVME_TCP_LINK_ICREQ,      /* sent; ICResp is to come */
	NVME_TCP_LINK_UP,
	NVME_TCP_LINK_DOWN
};

struct nvme_tcp_ctrlr {
	struct nvme_ctrlr base;
	uint8_t identity; /* the version of identities of TLS keys that the target takes: its last connection's */
};

struct nvme_tcp_qpair {
	struct nvme_qpair base;
	int fd;                  /* the socket; -1: none */
	int epoll;               /* what users sleep on: it has the socket in it; -1: none */
	uint8_t link;            /* enum nvme_tcp_link; atomic: both threads store DOWN, and the user reads it */
	bool blocked;            /* the socket takes no more bytes now */
	bool wants_out;          /* epoll reports when it does again */
	uint16_t held_due;       /* commands to be completed whose response had come before all was sent */
	uint32_t in_capsule_max; /* bytes of data in the capsule of an I/O command */
	struct tcp_receiver rx;
	struct tcp_piece piece;      /* of the C2HData that is arriving */
	struct nvme_tcp_slot *slots; /* [entries] */
	uint16_t *queue;             /* slots that have something to send: a ring of queue_mask + 1 */
	uint32_t queue_mask, queue_head, queue_tail;
	struct nvme_tcp_pdu *pdus; /* the batch */
	struct iovec *iovs;
	uint16_t num_pdus, first_pdu, num_iovs, first_iov; /* from first_* on: not sent yet */
	bool partly;                                       /* the iov first_iov is what is left of it */
	uint8_t *stage;
	struct tls_session *tls;            /* NULL: it is not encrypted */
	struct nvme_tcp_zerocopy *zerocopy; /* NULL: what is sent is copied */
	/* connecting; control thread */
	struct tls_handshake *handshake; /* while it is being made */
	uint8_t identity;                /* the version that it is tried with */
	bool identity_changed;           /* it was tried with the other one */
	void (*secured)(struct nvme_tcp_qpair *q, int error, const char *why);
	struct fd_source *source;
	struct thread_timer timer; /* the time limit of connecting */
	struct tcp_icreq icreq;
	bool connect_reported;
};

static inline struct nvme_tcp_qpair *nvme_tcp_qpair_of(const struct nvme_qpair *q)
{
	return container_of(q, struct nvme_tcp_qpair, base);
}

static inline bool nvme_tcp_is_down(const struct nvme_tcp_qpair *q)
{
	return __atomic_load_n(&q->link, __ATOMIC_RELAXED) == NVME_TCP_LINK_DOWN;
}

/* The next poll fails the queue pair. Any thread. */
static inline void nvme_tcp_set_down(struct nvme_tcp_qpair *q)
{
	__atomic_store_n(&q->link, NVME_TCP_LINK_DOWN, __ATOMIC_RELAXED);
}

static inline struct nvme_tcp_ctrlr *nvme_tcp_ctrlr_of(const struct nvme_tcp_qpair *q)
{
	return container_of(q->base.ctrlr, struct nvme_tcp_ctrlr, base);
}

/* zerocopy.c: what the kernel sends without a copy, on I/O queues. A command is not completed before the kernel has
 * told that it does not refer to its data any more, and neither is one that is lost with its connection: the controller
 * could otherwise write something else. */

/* The connection is up: as the options of sockets say. Control thread. */
void nvme_tcp_zerocopy_begin(struct nvme_tcp_qpair *q);
/* The batch has to be cut for nvme_tcp_zerocopy_send(). The using thread, as the next two. */
bool nvme_tcp_zerocopy_is_on(const struct nvme_tcp_qpair *q);
/* As sendmsg() of what is left of the batch, up to or from the next large data. */
ssize_t nvme_tcp_zerocopy_send(struct nvme_tcp_qpair *q);
/* Notes what the kernel does not refer to any more. */
void nvme_tcp_zerocopy_read(struct nvme_tcp_qpair *q);
/* The connection is down: this host sends nothing more, and it is returned whether the kernel refers to nothing now. If
 * not, to be called again. Any thread. */
bool nvme_tcp_zerocopy_end(struct nvme_tcp_qpair *q);
/* The same from now on, on the control thread, until it has ended: then calls done(arg). What waits in the socket has a
 * moment to arrive, the reason why this host ends the connection, too; then it is not sent any more. */
void nvme_tcp_zerocopy_stop(struct nvme_tcp_qpair *q, void (*done)(void *arg), void *arg);
/* The socket has been closed. Control thread. */
void nvme_tcp_zerocopy_free(struct nvme_tcp_qpair *q);

/* send.c: the operations of struct nvme_transport_ops of these names (nvme/transport.h). The using thread, as all of
 * send.c and receive.c. */
int nvme_tcp_submit(struct nvme_qpair *qpair, struct nvme_request *req);
/* See there. */
void nvme_tcp_flush(struct nvme_qpair *qpair);
/* Queues a slot to be sent: its capsule, or the data for one R2T more. */
void nvme_tcp_queue(struct nvme_tcp_qpair *q, uint16_t index);
/* Whether something is left to be sent. */
bool nvme_tcp_has_output(const struct nvme_tcp_qpair *q);
/* Ends the connection over a PDU that breaks a rule: logs the fault, and tells the controller by a TermReq if the
 * socket takes it now. */
void nvme_tcp_terminate(struct nvme_tcp_qpair *q, const struct tcp_fault *fault);

/* receive.c: the operations of these names. */
int nvme_tcp_poll(struct nvme_qpair *qpair, uint32_t max);
/* See there. */
bool nvme_tcp_arm(struct nvme_qpair *qpair);
/* The operation `shut`: buffers of commands are not written to any more. */
void nvme_tcp_shut(struct nvme_qpair *qpair);
/* Logs a TermReq that has come: q->rx has it. */
void nvme_tcp_term_log(const struct nvme_tcp_qpair *q);

/* qpair.c: the operations of these names. Control thread, as all of qpair.c and connect.c; nvme_tcp_fd(): any. */
struct nvme_qpair *nvme_tcp_qpair_alloc(struct nvme_ctrlr *ctrlr, uint16_t id, uint16_t entries,
					const struct nvme_qpair_opts *opts);
/* See there. */
void nvme_tcp_qpair_stop(struct nvme_qpair *qpair, void (*done)(void *arg), void *arg);
/* See there. */
void nvme_tcp_qpair_free(struct nvme_qpair *qpair);
/* See there. */
int nvme_tcp_fd(const struct nvme_qpair *qpair);

/* connect.c: connects the queue pair, also the admin queue, to the address in ctrlr->trid. */
void nvme_tcp_qpair_connect(struct nvme_qpair *qpair);

/* secure.c: TLS. Control thread. How a handshake has ended: fn(q, 0, ""), and the queue pair's bytes are encrypted from
 * now on; or with another error, and the socket is closed. */
typedef void (*nvme_tcp_secure_fn)(struct nvme_tcp_qpair *q, int error, const char *why);
/* The socket is connected: makes the handshake. */
void nvme_tcp_secure_begin(struct nvme_tcp_qpair *q, nvme_tcp_secure_fn fn);
/* Ends a handshake that is being made, if one is, and closes its socket: fn is not called. */
void nvme_tcp_secure_cancel(struct nvme_tcp_qpair *q);
/* Sends a few bytes at once. The using thread, or, before there is one, the control thread. False: the socket did not
 * take all of them, and errno says why; 0: it took some. */
bool nvme_tcp_send_now(struct nvme_tcp_qpair *q, const void *bytes, size_t length);

#endif
