/* SPDX-License-Identifier: BSD-3-Clause */
/* A byte stream from a client: framed, decoded, and each call answered. The first byte says where the stream
 * is cut; the messages found must not depend on it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/dispatch.h"
#include "rpc/frame.h"
#include "rpc/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void answer_call(const struct rpc_call *c)
{
	struct rpc_answer answer = {.code = c->error != 0 ? c->error : -1, .message = c->why};
	size_t len;

	if (c->id == NULL) {
		return;
	}
	char *text = rpc_answer_text(c->id, &answer, &len);
	if (text == NULL) {
		abort();
	}
	json_t *back = json_loadb(text, len, 0, NULL);
	/* Only an id that is itself beyond the library's numbers makes the answer unreadable for it. */
	if (back == NULL && strpbrk(c->id, "0123456789") == NULL) {
		abort();
	}
	json_decref(back);
	free(text);
}

static void decode(const char *text, size_t len)
{
	struct rpc_message m;
	char *exact = malloc(len != 0 ? len : 1);

	memcpy(exact, text, len);
	if (rpc_message_decode(exact, len, &m) == 0) {
		for (size_t i = 0; i < m.n_calls; i++) {
			answer_call(&m.calls[i]);
		}
		rpc_message_free(&m);
	}
	free(exact);
}

/* Frames buf[0..len), of which the first cut bytes come first; returns a digest of what came out. */
static uint64_t frame(const char *buf, size_t len, size_t cut, int decode_too)
{
	struct rpc_frame f = {0};
	size_t begin, end, pieces[] = {cut, len};
	uint64_t digest = 0;

	for (int i = 0; i < 2; i++) {
		enum rpc_frame_result r;
		while ((r = rpc_frame_scan(&f, buf, pieces[i], &begin, &end)) == RPC_FRAME_MESSAGE) {
			digest = digest * 31 + begin * 7 + end;
			if (decode_too) {
				decode(buf + begin, end - begin);
			}
		}
		if (r != RPC_FRAME_MORE) {
			return digest * 31 + r;
		}
		if (rpc_frame_droppable(&f) > pieces[i]) {
			abort();
		}
	}
	return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0) {
		return 0;
	}
	const char *buf = (const char *)data + 1;
	size_t len = size - 1, cut = data[0] % (len + 1);

	if (frame(buf, len, len, 1) != frame(buf, len, cut, 0)) {
		abort();
	}
	decode(buf, len); /* also what framing would never hand on */
	return 0;
}
