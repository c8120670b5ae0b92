/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-gateway's command line, and its parts that run before and beside the HTTP server. */
#ifndef TOOLS_GATEWAY_GATEWAY_H
#define TOOLS_GATEWAY_GATEWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/gateway/users.h"

#define GATEWAY_EXIT_USAGE 2
#define GATEWAY_EXIT_FAIL  1

struct gateway_options {
	const char *socket; /* of the daemon */
	const char *listen; /* ADDRESS:PORT or unix:PATH */
	const char *users;  /* the file */
	const char *cert, *key;
	const char *add_user;
	enum gateway_role role;
	bool role_given;
	bool insecure;
	uint32_t max_connections, max_calls, rate, client_timeout_s, call_timeout_s;
};

/* -1: go on; otherwise the status to exit with. */
int gateway_options_parse(int argc, char **argv, struct gateway_options *o);

/* Opens the listening socket of the text ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH. *local: only this machine can reach
 * it. The descriptor; or -EINVAL or another negative errno, with the reason in why. */
int gateway_listen(const char *text, bool *local, char why[GATEWAY_WHY_MAX]);

/* Reads and checks the file of users. 0; or a negative errno, with the reason in why. */
int gateway_users_load(const char *path, struct gateway_users *users, char why[GATEWAY_WHY_MAX]);
/* Adds a user to the file, or gives the user of this name another password and role; the password comes from the
 * terminal or the standard input. The status to exit with. */
int gateway_users_store(const char *path, const char *name, enum gateway_role role);

#endif
