/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/takeover_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/rpc.h"
#include "util/secret.h"

#define FIRST_BYTES 65536

static int takeover_stream_grow(struct takeover_stream *s, size_t need)
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

int takeover_stream_add(struct takeover_stream *s, const char *bytes, size_t n)
{
	if (n > TAKEOVER_MESSAGE_MAX - s->len) {
		return -EMSGSIZE;
	}
	if (s->len + n > s->size) {
		int rc = takeover_stream_grow(s, s->len + n);
		if (rc != 0) {
			return rc;
		}
	}
	if (n != 0) {
		memcpy(s->buf + s->len, bytes, n);
	}
	s->len += n;
	return 0;
}

static void takeover_stream_drop(struct takeover_stream *s)
{
	size_t n = rpc_frame_droppable(&s->frame);

	memmove(s->buf, s->buf + n, s->len - n);
	s->len -= n;
	explicit_bzero(s->buf + s->len, n);
	rpc_frame_dropped(&s->frame, n);
}

int takeover_stream_take(struct takeover_stream *s, json_t **message)
{
	json_error_t wrong;
	size_t begin, end;

	*message = NULL;
	if (s->len == 0) {
		return -EAGAIN;
	}
	switch (rpc_frame_scan(&s->frame, s->buf, s->len, &begin, &end)) {
	case RPC_FRAME_MORE:
		return -EAGAIN;
	case RPC_FRAME_MESSAGE:
		*message = rpc_json_load(s->buf + begin, end - begin, &wrong);
		takeover_stream_drop(s);
		break;
	default:
		break;
	}
	if (!json_is_object(*message)) {
		json_decref(*message);
		*message = NULL;
		return -EBADMSG;
	}
	return 0;
}

void takeover_stream_free(struct takeover_stream *s)
{
	secret_wipe_free(s->buf);
	*s = (struct takeover_stream){0};
}
