/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/rpc.h"
#include "util/secret.h"

#define FIRST_BYTES 65536

static int rpc_stream_in_grow(struct rpc_stream_in *s, size_t need)
{
	size_t size = s->size != 0 ? s->size : FIRST_BYTES;

	while (size < need) {
		size *= 2;
	}
	char *buf = malloc(size);
	if (buf == NULL) {
		return -ENOMEM;
	}
	if (s->len != 0) {
		memcpy(buf, s->buf, s->len);
	}
	secret_wipe_free(s->buf);
	s->buf = buf;
	s->size = size;
	return 0;
}

int rpc_stream_in_room(struct rpc_stream_in *s, size_t n)
{
	if (n > RPC_STREAM_MESSAGE_MAX - s->len) {
		return -EMSGSIZE;
	}
	return s->len + n > s->size ? rpc_stream_in_grow(s, s->len + n) : 0;
}

int rpc_stream_in_add(struct rpc_stream_in *s, const char *bytes, size_t n)
{
	int rc = rpc_stream_in_room(s, n);

	if (rc == 0 && n != 0) {
		memcpy(s->buf + s->len, bytes, n);
		s->len += n;
	}
	return rc;
}

int rpc_stream_in_next(struct rpc_stream_in *s, const char **text, size_t *len)
{
	size_t begin, end;

	if (s->len == 0) {
		return -EAGAIN;
	}
	switch (rpc_frame_scan(&s->frame, s->buf, s->len, &begin, &end)) {
	case RPC_FRAME_MORE:
		return -EAGAIN;
	case RPC_FRAME_MESSAGE:
		*text = s->buf + begin;
		*len = end - begin;
		return 0;
	default:
		return -EBADMSG;
	}
}

void rpc_stream_in_drop(struct rpc_stream_in *s)
{
	size_t n = rpc_frame_droppable(&s->frame);

	memmove(s->buf, s->buf + n, s->len - n);
	s->len -= n;
	explicit_bzero(s->buf + s->len, n);
	rpc_frame_dropped(&s->frame, n);
}

int rpc_stream_in_take(struct rpc_stream_in *s, json_t **message)
{
	json_error_t wrong;
	const char *text;
	size_t len;
	int rc = rpc_stream_in_next(s, &text, &len);

	*message = NULL;
	if (rc != 0) {
		return rc;
	}
	*message = rpc_json_load(text, len, &wrong);
	rpc_stream_in_drop(s);
	if (!json_is_object(*message)) {
		json_decref(*message);
		*message = NULL;
		return -EBADMSG;
	}
	return 0;
}

void rpc_stream_in_free(struct rpc_stream_in *s)
{
	secret_wipe_free(s->buf);
	*s = (struct rpc_stream_in){0};
}
