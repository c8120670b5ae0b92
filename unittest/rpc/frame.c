/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/frame.h"
#include "unittest/unit.h"

#define MESSAGES_MAX 16

/* A receiver as the server is one: pieces come in, messages go out, as `message|message|`; a `!` where the
 * stream is lost. */
struct receiver {
	struct rpc_frame frame;
	char buf[512];
	size_t len;
	char out[1024];
};

static void receive(struct receiver *r, const char *piece, size_t len)
{
	size_t begin, end;
	enum rpc_frame_result result;

	memcpy(r->buf + r->len, piece, len);
	r->len += len;
	while ((result = rpc_frame_scan(&r->frame, r->buf, r->len, &begin, &end)) == RPC_FRAME_MESSAGE) {
		strncat(r->out, r->buf + begin, end - begin);
		strcat(r->out, "|");
	}
	if (result != RPC_FRAME_MORE) {
		strcat(r->out, "!");
		return;
	}
	size_t drop = rpc_frame_droppable(&r->frame);
	memmove(r->buf, r->buf + drop, r->len - drop);
	r->len -= drop;
	rpc_frame_dropped(&r->frame, drop);
}

static const char stream[] = "{\"a\":\"}\\\"{\\\\\"}\n [1,{\"b\":[]}]{}\r\n\t{\"\\u00e4\": tru\xff}";
static const char expected[] = "{\"a\":\"}\\\"{\\\\\"}|[1,{\"b\":[]}]|{}|{\"\\u00e4\": tru\xff}|";

static void test_messages_at_once_are_separated(void)
{
	struct receiver r = {0};

	receive(&r, stream, strlen(stream));
	CU_ASSERT_STRING_EQUAL(r.out, expected);
	CU_ASSERT_EQUAL(r.len, 0);
}

static void test_every_split_into_three_gives_the_same_messages(void)
{
	size_t len = strlen(stream);

	for (size_t i = 0; i <= len; i++) {
		for (size_t j = i; j <= len; j++) {
			struct receiver r = {0};
			receive(&r, stream, i);
			receive(&r, stream + i, j - i);
			receive(&r, stream + j, len - j);
			CU_ASSERT_STRING_EQUAL(r.out, expected);
		}
	}
}

static void test_single_bytes_give_the_same_messages(void)
{
	struct receiver r = {0};

	for (size_t i = 0; i < strlen(stream); i++) {
		receive(&r, stream + i, 1);
	}
	CU_ASSERT_STRING_EQUAL(r.out, expected);
}

static void test_what_is_no_object_or_array_is_junk(void)
{
	const char *const junk[] = {"x", "\"text\"", "1", "}", "]", "{}x", "{}:", "\xef\xbb\xbf{}"};

	for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		struct receiver r = {0};
		receive(&r, junk[i], strlen(junk[i]));
		CU_ASSERT_PTR_NOT_NULL(strchr(r.out, '!'));
	}
}

static void test_a_nul_byte_is_junk(void)
{
	struct receiver r = {0};

	receive(&r, "\0", 1);
	CU_ASSERT_STRING_EQUAL(r.out, "!");
}

static void test_nesting_has_a_limit(void)
{
	struct rpc_frame f = {0};
	char deep[2 * RPC_FRAME_DEPTH_MAX + 2];
	size_t begin, end;

	memset(deep, '[', RPC_FRAME_DEPTH_MAX);
	memset(deep + RPC_FRAME_DEPTH_MAX, ']', RPC_FRAME_DEPTH_MAX);
	CU_ASSERT_EQUAL(rpc_frame_scan(&f, deep, 2 * RPC_FRAME_DEPTH_MAX, &begin, &end), RPC_FRAME_MESSAGE);
	CU_ASSERT_EQUAL(end - begin, 2 * RPC_FRAME_DEPTH_MAX);
	memset(&f, 0, sizeof(f));
	memset(deep, '[', RPC_FRAME_DEPTH_MAX + 1);
	CU_ASSERT_EQUAL(rpc_frame_scan(&f, deep, RPC_FRAME_DEPTH_MAX + 1, &begin, &end), RPC_FRAME_DEEP);
}

static const struct unit_test tests[] = {
	UNIT(test_messages_at_once_are_separated),
	UNIT(test_every_split_into_three_gives_the_same_messages),
	UNIT(test_single_bytes_give_the_same_messages),
	UNIT(test_what_is_no_object_or_array_is_junk),
	UNIT(test_a_nul_byte_is_junk),
	UNIT(test_nesting_has_a_limit),
	UNIT_END,
};

UNIT_MAIN("rpc_frame", tests, NULL, NULL)
