/* SPDX-License-Identifier: BSD-3-Clause */
/* What the gateway reads: the first byte chooses. A body that is let through is one message for the daemon's own
 * decoder, with methods that the role may call; users that were read are written and read again the same; credentials
 * stay in their fields. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/message.h"
#include "tools/gateway/request.h"
#include "tools/gateway/users.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_body(const char *text, size_t size, enum gateway_role role)
{
	struct gateway_request r;
	struct rpc_message m;

	if (gateway_request_check(text, size, role, &r) != 200) {
		if (r.why[0] == '\0') {
			abort();
		}
		return;
	}
	if (rpc_message_decode(text + r.begin, r.end - r.begin, &m) != 0) {
		return;
	}
	for (size_t i = 0; i < m.n_calls; i++) {
		if (m.calls[i].method != NULL && gateway_role_needed(m.calls[i].method) > role) {
			abort();
		}
		if (m.calls[i].error == 0 && m.calls[i].id != NULL && !r.answered) {
			abort();
		}
	}
	rpc_message_free(&m);
}

static void check_users(const char *text, size_t size)
{
	char why[GATEWAY_WHY_MAX], line[GATEWAY_LINE_MAX];
	struct gateway_users users, again;

	if (gateway_users_parse(text, size, &users, why) != 0) {
		return;
	}
	for (size_t i = 0; i < users.n; i++) {
		gateway_user_format(&users.list[i], line);
		if (gateway_users_parse(line, strlen(line), &again, why) != 0 || again.n != 1 ||
		    strcmp(again.list[0].name, users.list[i].name) != 0 ||
		    memcmp(again.list[0].hash, users.list[i].hash, GATEWAY_HASH_SIZE) != 0) {
			abort();
		}
		gateway_users_free(&again);
	}
	gateway_users_free(&users);
}

static void check_credentials(const char *text)
{
	struct gateway_credentials c;

	if (gateway_credentials_parse(text, &c) &&
	    (strlen(c.name) > GATEWAY_NAME_MAX || strlen(c.password) > GATEWAY_PASSWORD_MAX)) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0) {
		return 0;
	}
	char *text = malloc(size);

	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 5) {
	case 3:
		check_users(text, size - 1);
		break;
	case 4:
		check_credentials(text);
		break;
	default:
		check_body(text, size - 1, (enum gateway_role)(data[0] % 5));
	}
	free(text);
	return 0;
}
