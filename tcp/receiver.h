/* SPDX-License-Identifier: BSD-3-Clause */
/* The receiving half of a connection: reads a socket and hands out PDUs, one event at a time. It checks the common
 * header and the digests; payload goes straight into the buffers that the caller names once it knows the header.
 *
 * The caller reads, then takes events until TCP_EVENT_NONE:
 *
 *     tcp_receiver_read(r, fd)       one recvmsg(): into the rest of the payload, and what follows it into the stage
 *     tcp_receiver_next(r, &fault)   TCP_EVENT_HEADER  r->header, r->shape: a whole header. If it has data, the caller
 *                                                      calls tcp_receiver_place() or tcp_receiver_skip()
 *                                                      before it takes the next event
 *                                    TCP_EVENT_PDU     the PDU of that header is complete (also one without data);
 *                                                      r->data_is_bad: the data digest does not fit
 *                                    TCP_EVENT_FAULT   the stream is of no use any more; fault says why
 *                                    TCP_EVENT_NONE    read again
 *
 * One thread uses a receiver. It allocates nothing. */
#ifndef TCP_RECEIVER_H
#define TCP_RECEIVER_H

#include <sys/types.h>
#include <sys/uio.h>

#include "tcp/pdu.h"

enum tcp_event { TCP_EVENT_NONE, TCP_EVENT_HEADER, TCP_EVENT_PDU, TCP_EVENT_FAULT };

#define TCP_STAGE_MIN 512 /* bytes */
#define TCP_READ_IOVS 16  /* pieces of payload that one recvmsg() fills, besides the stage */

struct tcp_receiver {
	union tcp_header header;  /* of the PDU under way; valid from TCP_EVENT_HEADER on */
	struct tcp_shape shape;   /* likewise */
	struct tcp_agreed agreed; /* set by the owner, when ICReq and ICResp have passed; `done` is false before */
	enum tcp_side side;       /* the side that receives */
	bool data_is_bad;         /* at TCP_EVENT_PDU */
	bool drained;             /* the last read has brought less than it had room for: the socket is empty */
	/* Set by the owner of a connection over TLS: reads instead of recvmsg(), with the same results as
	 * tcp_receiver_read(). NULL: the socket is read. */
	ssize_t (*read)(void *read_arg, const struct iovec *iovs, unsigned iovcnt);
	void *read_arg;
	/* below: the receiver's own */
	uint8_t part;          /* enum part, of the PDU under way */
	uint16_t header_have;  /* bytes */
	uint16_t trailer_have; /* bytes of the data digest */
	uint32_t padding_left; /* bytes */
	uint32_t data_left;    /* bytes */
	uint32_t digest;       /* of the data so far */
	uint8_t trailer[TCP_DIGEST_BYTES];
	const struct iovec *iovs; /* where the rest of the data goes; NULL: nowhere */
	unsigned iovcnt;
	size_t iov_offset; /* bytes into the first of iovs */
	uint8_t *stage;    /* bytes that were read and not looked at yet: [begin, end) */
	uint32_t stage_bytes, begin, end;
};

/* Makes a receiver. stage: stage_bytes (TCP_STAGE_MIN or more) of the caller's, for as long as the receiver is used. */
void tcp_receiver_init(struct tcp_receiver *r, enum tcp_side side, void *stage, uint32_t stage_bytes);
/* From now on reads into another stage, of which the same holds. Bytes that were read and not looked at are gone: call
 * it while there are none (TCP_EVENT_NONE leaves none), or if they do not matter any more. */
void tcp_receiver_set_stage(struct tcp_receiver *r, void *stage, uint32_t stage_bytes);
/* Reads once, without waiting. The number of bytes, or -EAGAIN: there are none; -ENOBUFS: events are still to be taken,
 * for the stage is full; -ECONNRESET: the other side has closed; or another negative errno. */
int tcp_receiver_read(struct tcp_receiver *r, int fd);
/* The next event. */
enum tcp_event tcp_receiver_next(struct tcp_receiver *r, struct tcp_fault *fault);
/* After TCP_EVENT_HEADER: the data of the PDU goes to iovs, from `offset` bytes into them on; they have room for all of
 * it, and stay valid until TCP_EVENT_PDU, tcp_receiver_skip() or the last call. */
void tcp_receiver_place(struct tcp_receiver *r, const struct iovec *iovs, unsigned iovcnt, size_t offset);
/* From now on data of the PDU under way goes nowhere: the buffers are not written to any more. In any state. The digest
 * is still checked over what comes. */
void tcp_receiver_skip(struct tcp_receiver *r);
/* How many bytes of r->header have come of the PDU under way, or at TCP_EVENT_PDU of the one that is complete. */
static inline uint32_t tcp_receiver_header_bytes(const struct tcp_receiver *r)
{
	return r->header_have > 0 ? r->header_have : r->shape.header;
}
/* Whether bytes were read that were not looked at yet: events may follow without another read. */
static inline bool tcp_receiver_has_bytes(const struct tcp_receiver *r)
{
	return r->begin != r->end;
}

#endif
