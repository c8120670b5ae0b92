/* SPDX-License-Identifier: BSD-3-Clause */
/* Parameters of a call, against a table with every type. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/message.h"
#include "rpc/params.h"
#include "util/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct inner {
	char *s;
	uint16_t u16;
};

struct outer {
	char *s, *uuid;
	bool b, b_given;
	uint8_t u8;
	int32_t i32;
	uint32_t u32;
	uint64_t u64;
	int e;
	json_t *o, *a;
	struct inner in;
};

static const struct rpc_enum names[] = {{"one", 1}, {"two", 2}, {NULL, 0}};
static const struct rpc_param inner_params[] = {
	RPC_PARAM(struct inner, s, RPC_STRING, RPC_REQUIRED, ""),
	RPC_PARAM(struct inner, u16, RPC_UINT16, RPC_OPTIONAL, ""),
	RPC_PARAM_END,
};
static const struct rpc_param outer_params[] = {
	RPC_PARAM(struct outer, s, RPC_STRING, RPC_OPTIONAL, ""),
	RPC_PARAM(struct outer, uuid, RPC_UUID, RPC_OPTIONAL, ""),
	RPC_PARAM(struct outer, b, RPC_BOOL, RPC_OPTIONAL, "", .given_offset = offsetof(struct outer, b_given)),
	RPC_PARAM(struct outer, u8, RPC_UINT8, RPC_OPTIONAL, "", .min = 3, .max = 200),
	RPC_PARAM(struct outer, i32, RPC_INT32, RPC_OPTIONAL, "", .min = (uint64_t)-7, .max = 7),
	RPC_PARAM(struct outer, u32, RPC_UINT32, RPC_OPTIONAL, ""),
	RPC_PARAM(struct outer, u64, RPC_UINT64, RPC_OPTIONAL, ""),
	RPC_PARAM(struct outer, e, RPC_ENUM, RPC_OPTIONAL, "", .enums = names),
	RPC_PARAM(struct outer, o, RPC_OBJECT, RPC_OPTIONAL, ""),
	RPC_PARAM(struct outer, a, RPC_ARRAY, RPC_OPTIONAL, ""),
	RPC_PARAM(struct outer, in, RPC_OBJECT, RPC_OPTIONAL, "", .object = inner_params),
	RPC_PARAM_END,
};

static void check(const struct outer *p, int rc, const char *why)
{
	if (rc != 0 && (why[0] == '\0' || !utf8_valid(why, strlen(why)))) {
		abort();
	}
	if (p->i32 < -7 || p->i32 > 7 || (p->u8 != 0 && (p->u8 < 3 || p->u8 > 200)) || p->e < 0 || p->e > 2) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char head[] = "{\"method\":\"m\",\"params\":";
	char *text = malloc(sizeof(head) + size);
	struct rpc_message m;

	memcpy(text, head, sizeof(head) - 1);
	memcpy(text + sizeof(head) - 1, data, size);
	text[sizeof(head) - 1 + size] = '}';
	if (rpc_message_decode(text, sizeof(head) + size, &m) == 0) {
		for (size_t i = 0; i < m.n_calls; i++) {
			struct outer p = {0};
			char why[RPC_ERROR_TEXT_MAX] = "";
			int rc = rpc_params_decode(outer_params, m.calls[i].params, &p, why, sizeof(why));
			check(&p, rc, why);
			rpc_params_free(outer_params, &p);
		}
		rpc_message_free(&m);
	}
	free(text);
	return 0;
}
