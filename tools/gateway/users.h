/* SPDX-License-Identifier: BSD-3-Clause */
/* The gateway's users: their file, one line each, and the credentials that a client sends. Pure, apart from the random
 * salt of a new user.
 *
 *     NAME:ROLE:pbkdf2-sha512:ITERATIONS:SALT:HASH       SALT and HASH in hexadecimal
 *
 * Empty lines, and lines that begin with #, have no meaning. */
#ifndef TOOLS_GATEWAY_USERS_H
#define TOOLS_GATEWAY_USERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/gateway/roles.h"

#define GATEWAY_NAME_MAX       64 /* bytes of a user's name */
#define GATEWAY_PASSWORD_MAX   256
#define GATEWAY_USERS_MAX      1024
#define GATEWAY_USERS_FILE_MAX (1u << 20) /* bytes */
#define GATEWAY_LINE_MAX       512
#define GATEWAY_SALT_SIZE      16
#define GATEWAY_HASH_SIZE      32
#define GATEWAY_ITERATIONS     210000 /* of a new user */
#define GATEWAY_ITERATIONS_MIN 10000
#define GATEWAY_ITERATIONS_MAX 10000000
#define GATEWAY_WHY_MAX        512

struct gateway_user {
	char name[GATEWAY_NAME_MAX + 1];
	enum gateway_role role;
	uint32_t iterations;
	uint8_t salt[GATEWAY_SALT_SIZE];
	uint8_t hash[GATEWAY_HASH_SIZE];
};

struct gateway_users {
	size_t n;
	struct gateway_user *list;
};

struct gateway_credentials {
	char name[GATEWAY_NAME_MAX + 1];
	char password[GATEWAY_PASSWORD_MAX + 1];
};

/* Whether name can be that of a user: 1 to GATEWAY_NAME_MAX letters, digits, dots, hyphens and underscores. */
bool gateway_name_is_valid(const char *name);

/* Parses the text of the file. 0; or -EINVAL or -ENOMEM with the line and the reason in why, and users is empty. To be
 * freed with gateway_users_free(). */
int gateway_users_parse(const char *text, size_t len, struct gateway_users *users, char why[GATEWAY_WHY_MAX]);
/* Frees the list; users is empty then. */
void gateway_users_free(struct gateway_users *users);
/* The user with this name, or NULL. */
const struct gateway_user *gateway_users_find(const struct gateway_users *users, const char *name);

/* Derives hash from a password, with the user's salt and iterations. False: the library failed. Takes some 0.1 s. */
bool gateway_user_hash(const struct gateway_user *user, const char *password, uint8_t hash[GATEWAY_HASH_SIZE]);
/* Writes the user's line, with its newline. */
void gateway_user_format(const struct gateway_user *user, char line[GATEWAY_LINE_MAX]);

/* Reads the value of an Authorization header with the scheme Basic (RFC 7617). False: it is none, or the name or the
 * password is too long, or has a NUL byte. */
bool gateway_credentials_parse(const char *value, struct gateway_credentials *c);

#endif
