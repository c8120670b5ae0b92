/* SPDX-License-Identifier: BSD-3-Clause */
#include "tcp/receiver.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp/digest.h"
#include "util/compiler.h"

enum part { PART_COMMON, PART_HEADER, PART_PADDING, PART_DATA, PART_TRAILER, PART_END };

void tcp_receiver_init(struct tcp_receiver *r, enum tcp_side side, void *stage, uint32_t stage_bytes)
{
	*r = (struct tcp_receiver){.side = side, .stage = stage, .stage_bytes = stage_bytes};
}

void tcp_receiver_set_stage(struct tcp_receiver *r, void *stage, uint32_t stage_bytes)
{
	r->stage = stage;
	r->stage_bytes = stage_bytes;
	r->begin = r->end = 0;
}

/* The place of the rest of the data. */

static void target_advance(struct tcp_receiver *r, size_t n)
{
	r->iov_offset += n;
	while (r->iovcnt > 0 && r->iov_offset >= r->iovs->iov_len) {
		r->iov_offset -= r->iovs->iov_len;
		r->iovs++;
		r->iovcnt--;
	}
}

void tcp_receiver_place(struct tcp_receiver *r, const struct iovec *iovs, unsigned iovcnt, size_t offset)
{
	r->iovs = iovs;
	r->iovcnt = iovcnt;
	r->iov_offset = 0;
	target_advance(r, offset);
}

void tcp_receiver_skip(struct tcp_receiver *r)
{
	r->iovs = NULL;
	r->iovcnt = 0;
}

/* Fills in iovecs for the rest of the data, `max` at most: the number, and their bytes. */
static unsigned target_iovs(const struct tcp_receiver *r, struct iovec *out, unsigned max, size_t *bytes)
{
	size_t offset = r->iov_offset;
	unsigned n = 0;

	*bytes = 0;
	for (unsigned i = 0; i < r->iovcnt && n < max && *bytes < r->data_left; i++) {
		size_t left = r->data_left - *bytes, len = r->iovs[i].iov_len - offset;
		len = len < left ? len : left;
		if (len > 0) {
			out[n++] = (struct iovec){(uint8_t *)r->iovs[i].iov_base + offset, len};
		}
		*bytes += len;
		offset = 0;
	}
	return n;
}

/* n bytes of data have been read to where they belong. */
static void data_arrived(struct tcp_receiver *r, size_t n)
{
	if (r->shape.data_digest) {
		r->digest = tcp_digest_add_iovs(r->digest, r->iovs, r->iovcnt, r->iov_offset, n);
	}
	target_advance(r, n);
	r->data_left -= (uint32_t)n;
}

static int receive(const struct tcp_receiver *r, int fd, struct iovec *iovs, unsigned iovcnt)
{
	if (unlikely(r->read != NULL)) {
		return (int)r->read(r->read_arg, iovs, iovcnt);
	}
	struct msghdr msg = {.msg_iov = iovs, .msg_iovlen = iovcnt};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

	if (n > 0) {
		return (int)n;
	}
	return n == 0 ? -ECONNRESET : -errno;
}

int tcp_receiver_read(struct tcp_receiver *r, int fd)
{
	struct iovec iovs[TCP_READ_IOVS + 1];
	unsigned n = 0;
	size_t direct = 0, room;

	if (r->begin == r->end) {
		r->begin = r->end = 0;
		if (r->part == PART_DATA) {
			n = target_iovs(r, iovs, TCP_READ_IOVS, &direct);
		}
	}
	if (direct == 0 && r->end == r->stage_bytes) {
		return -ENOBUFS;
	}
	room = direct;
	/* behind the data only if all of that is asked for: the bytes come in order */
	if (direct == 0 || direct == r->data_left) {
		iovs[n++] = (struct iovec){r->stage + r->end, r->stage_bytes - r->end};
		room += r->stage_bytes - r->end;
	}
	int rc = receive(r, fd, iovs, n);
	if (rc > 0) {
		r->drained = (size_t)rc < room;
		size_t placed = (size_t)rc < direct ? (size_t)rc : direct;
		if (placed > 0) {
			data_arrived(r, placed);
		}
		r->end += (uint32_t)((size_t)rc - placed);
	}
	return rc;
}

/* Events. */

/* Moves bytes of the stage into a field of `size` bytes, of which *have are there. True if it is complete. */
static bool field_fill(struct tcp_receiver *r, uint8_t *field, uint16_t *have, uint32_t size)
{
	uint32_t n = r->end - r->begin, left = size - *have;

	n = n < left ? n : left;
	memcpy(field + *have, r->stage + r->begin, n);
	r->begin += n;
	*have = (uint16_t)(*have + n);
	return *have == size;
}

static void padding_drop(struct tcp_receiver *r)
{
	uint32_t n = r->end - r->begin;

	n = n < r->padding_left ? n : r->padding_left;
	r->begin += n;
	r->padding_left -= n;
}

static void data_copy(struct tcp_receiver *r)
{
	uint32_t staged = r->end - r->begin, take = staged < r->data_left ? staged : r->data_left, done = 0;

	if (r->shape.data_digest) {
		r->digest = tcp_digest_add(r->digest, r->stage + r->begin, take);
	}
	while (done < take && r->iovcnt > 0) {
		size_t room = r->iovs->iov_len - r->iov_offset, n = take - done < room ? take - done : room;
		memcpy((uint8_t *)r->iovs->iov_base + r->iov_offset, r->stage + r->begin + done, n);
		target_advance(r, n);
		done += (uint32_t)n;
	}
	r->begin += take;
	r->data_left -= take;
}

static void trailer_compare(struct tcp_receiver *r)
{
	uint32_t wire;

	memcpy(&wire, r->trailer, sizeof(wire));
	r->data_is_bad = le32toh(wire) != tcp_digest_end(r->digest);
}

static enum tcp_event header_end(struct tcp_receiver *r, struct tcp_fault *fault)
{
	if (!tcp_header_digest_check(&r->header, &r->shape, fault)) {
		return TCP_EVENT_FAULT;
	}
	r->padding_left = r->shape.padding;
	r->data_left = r->shape.data;
	r->digest = TCP_DIGEST_START;
	r->trailer_have = 0;
	r->data_is_bad = false;
	tcp_receiver_skip(r);
	r->part = r->shape.data == 0 ? PART_END : r->shape.padding > 0 ? PART_PADDING : PART_DATA;
	return TCP_EVENT_HEADER;
}

/* The parts from the padding on. */
static enum tcp_event payload_next(struct tcp_receiver *r)
{
	if (r->part == PART_PADDING) {
		padding_drop(r);
		if (r->padding_left > 0) {
			return TCP_EVENT_NONE;
		}
		r->part = PART_DATA;
	}
	if (r->part == PART_DATA) {
		data_copy(r);
		if (r->data_left > 0) {
			return TCP_EVENT_NONE;
		}
		r->part = r->shape.data_digest ? PART_TRAILER : PART_END;
	}
	if (r->part == PART_TRAILER) {
		if (!field_fill(r, r->trailer, &r->trailer_have, sizeof(r->trailer))) {
			return TCP_EVENT_NONE;
		}
		trailer_compare(r);
	}
	r->part = PART_COMMON;
	r->header_have = 0;
	return TCP_EVENT_PDU;
}

enum tcp_event tcp_receiver_next(struct tcp_receiver *r, struct tcp_fault *fault)
{
	if (r->part == PART_COMMON) {
		if (!field_fill(r, r->header.bytes, &r->header_have, sizeof(r->header.common))) {
			return TCP_EVENT_NONE;
		}
		if (!tcp_common_check(&r->header.common, r->side, &r->agreed, &r->shape, fault)) {
			return TCP_EVENT_FAULT;
		}
		r->part = PART_HEADER;
	}
	if (r->part == PART_HEADER) {
		if (!field_fill(r, r->header.bytes, &r->header_have, r->shape.header)) {
			return TCP_EVENT_NONE;
		}
		return header_end(r, fault);
	}
	return payload_next(r);
}
