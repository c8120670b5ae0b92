/* SPDX-License-Identifier: BSD-3-Clause */
/* Who a client is. All functions may be called from any thread.
 *
 * A password is hashed once; afterwards an HMAC of it, with a key of this process, stands for it for some minutes. At
 * most one hash is computed at a time: the storage node's CPUs have other work, and guesses cannot come faster than
 * that. */
#ifndef TOOLS_GATEWAY_LOGIN_H
#define TOOLS_GATEWAY_LOGIN_H

#include <stdint.h>

#include "tools/gateway/users.h"

#define GATEWAY_ADDRESS_SIZE   16
#define GATEWAY_LOGIN_FAILURES 10   /* of an address in a row, after which the next wait */
#define GATEWAY_LOGIN_WAIT_MS  6000 /* for each further one */

enum gateway_login_result {
	GATEWAY_LOGIN_OK,
	GATEWAY_LOGIN_WRONG,
	GATEWAY_LOGIN_LIMITED, /* too many failures from this address */
	GATEWAY_LOGIN_BUSY,    /* too many passwords wait to be checked */
	GATEWAY_LOGIN_RATE,    /* the user is known, and calls too often */
};

struct gateway_login;

/* rate: requests per second of each user, 0: no limit. NULL: no memory, or no random numbers. */
struct gateway_login *gateway_login_new(uint32_t rate);
/* To be called when no thread uses it any more. NULL is fine. */
void gateway_login_free(struct gateway_login *l);
/* Replaces the users; takes over the list. What was known of passwords is forgotten. */
void gateway_login_set_users(struct gateway_login *l, struct gateway_users *users);
/* Checks credentials from an address (the /64 of an IPv6 address) at the time now_ms, which does not run backwards.
 * *role is set for GATEWAY_LOGIN_OK only. May take some 0.1 s, and as long again for each that waits before it. */
enum gateway_login_result gateway_login_check(struct gateway_login *l, const struct gateway_credentials *c,
					      const uint8_t address[GATEWAY_ADDRESS_SIZE], uint64_t now_ms,
					      enum gateway_role *role);

#endif
