/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/users.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base64.h"
#include "util/parse.h"

#define KDF_NAME "pbkdf2-sha512"

enum { FIELD_NAME, FIELD_ROLE, FIELD_KDF, FIELD_ITERATIONS, FIELD_SALT, FIELD_HASH, N_FIELDS };

bool gateway_name_is_valid(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= GATEWAY_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

static int gateway_hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Exactly size bytes. */
static bool gateway_hex_parse(const char *text, uint8_t *bytes, size_t size)
{
	if (strlen(text) != 2 * size) {
		return false;
	}
	for (size_t i = 0; i < size; i++) {
		int high = gateway_hex_digit(text[2 * i]), low = gateway_hex_digit(text[2 * i + 1]);
		if (high < 0 || low < 0) {
			return false;
		}
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* Cuts the line at its colons. False: there are not N_FIELDS fields. */
static bool gateway_fields_split(char *line, char *fields[N_FIELDS])
{
	size_t n = 0;

	for (char *at = line; at != NULL; n++) {
		char *colon = strchr(at, ':');
		if (n == N_FIELDS) {
			return false;
		}
		fields[n] = at;
		if (colon != NULL) {
			*colon++ = '\0';
		}
		at = colon;
	}
	return n == N_FIELDS;
}

/* Reads a line, which it changes. NULL, or what is wrong. */
static const char *gateway_user_parse(char *line, struct gateway_user *user)
{
	char *f[N_FIELDS];
	uint64_t iterations;

	if (!gateway_fields_split(line, f)) {
		return "not NAME:ROLE:" KDF_NAME ":ITERATIONS:SALT:HASH";
	}
	if (!gateway_name_is_valid(f[FIELD_NAME])) {
		return "the name must be 1 to 64 letters, digits, '.', '-' or '_'";
	}
	if (!gateway_role_find(f[FIELD_ROLE], &user->role)) {
		return "the role must be read, operate or admin";
	}
	if (strcmp(f[FIELD_KDF], KDF_NAME) != 0) {
		return "the third field must be " KDF_NAME;
	}
	if (parse_uint64(f[FIELD_ITERATIONS], GATEWAY_ITERATIONS_MIN, GATEWAY_ITERATIONS_MAX, &iterations) != 0) {
		return "the iterations must be a number from 10000 to 10000000";
	}
	if (!gateway_hex_parse(f[FIELD_SALT], user->salt, sizeof(user->salt))) {
		return "the salt must be 32 hexadecimal digits in lower case";
	}
	if (!gateway_hex_parse(f[FIELD_HASH], user->hash, sizeof(user->hash))) {
		return "the hash must be 64 hexadecimal digits in lower case";
	}
	user->iterations = (uint32_t)iterations;
	strcpy(user->name, f[FIELD_NAME]);
	return NULL;
}

static const char *gateway_users_add(struct gateway_users *users, char *line)
{
	struct gateway_user *user = &users->list[users->n];
	const char *why = users->n == GATEWAY_USERS_MAX ? "more than 1024 users" : gateway_user_parse(line, user);

	if (why == NULL && gateway_users_find(users, user->name) != NULL) {
		return "this user has a line already";
	}
	users->n += why == NULL;
	return why;
}

static const char *gateway_users_line(struct gateway_users *users, const char *text, size_t len)
{
	char line[GATEWAY_LINE_MAX];

	if (len == 0 || text[0] == '#') {
		return NULL;
	}
	if (len >= sizeof(line) || memchr(text, '\0', len) != NULL) {
		return "too long, or with a NUL byte";
	}
	memcpy(line, text, len);
	line[len] = '\0';
	return gateway_users_add(users, line);
}

int gateway_users_parse(const char *text, size_t len, struct gateway_users *users, char why[GATEWAY_WHY_MAX])
{
	unsigned number = 0;

	/* One more than may be used: the line that is too many is read there before it is refused. */
	*users = (struct gateway_users){.list = calloc(GATEWAY_USERS_MAX + 1, sizeof(*users->list))};
	if (users->list == NULL) {
		snprintf(why, GATEWAY_WHY_MAX, "no memory");
		return -ENOMEM;
	}
	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end != NULL ? (size_t)(end - text) - at : len - at;
		const char *wrong = gateway_users_line(users, text + at, n);
		number++;
		if (wrong != NULL) {
			snprintf(why, GATEWAY_WHY_MAX, "line %u: %s", number, wrong);
			gateway_users_free(users);
			return -EINVAL;
		}
		at += n + 1;
	}
	return 0;
}

void gateway_users_free(struct gateway_users *users)
{
	free(users->list);
	*users = (struct gateway_users){0};
}

const struct gateway_user *gateway_users_find(const struct gateway_users *users, const char *name)
{
	for (size_t i = 0; i < users->n; i++) {
		if (strcmp(users->list[i].name, name) == 0) {
			return &users->list[i];
		}
	}
	return NULL;
}

bool gateway_user_hash(const struct gateway_user *user, const char *password, uint8_t hash[GATEWAY_HASH_SIZE])
{
	return PKCS5_PBKDF2_HMAC(password, (int)strlen(password), user->salt, sizeof(user->salt), (int)user->iterations,
				 EVP_sha512(), GATEWAY_HASH_SIZE, hash) == 1;
}

static void gateway_hex_format(const uint8_t *bytes, size_t size, char *text)
{
	for (size_t i = 0; i < size; i++) {
		sprintf(text + 2 * i, "%02x", bytes[i]);
	}
}

void gateway_user_format(const struct gateway_user *user, char line[GATEWAY_LINE_MAX])
{
	char salt[2 * GATEWAY_SALT_SIZE + 1], hash[2 * GATEWAY_HASH_SIZE + 1];

	gateway_hex_format(user->salt, sizeof(user->salt), salt);
	gateway_hex_format(user->hash, sizeof(user->hash), hash);
	snprintf(line, GATEWAY_LINE_MAX, "%s:%s:" KDF_NAME ":%u:%s:%s\n", user->name, gateway_role_name(user->role),
		 user->iterations, salt, hash);
}

/* text is NAME:PASSWORD, len bytes. */
static bool gateway_credentials_split(const char *text, size_t len, struct gateway_credentials *c)
{
	const char *colon = memchr(text, ':', len);

	if (colon == NULL || memchr(text, '\0', len) != NULL) {
		return false;
	}
	size_t name_len = (size_t)(colon - text), password_len = len - name_len - 1;
	if (name_len > GATEWAY_NAME_MAX || password_len > GATEWAY_PASSWORD_MAX) {
		return false;
	}
	memcpy(c->name, text, name_len);
	c->name[name_len] = '\0';
	memcpy(c->password, colon + 1, password_len);
	c->password[password_len] = '\0';
	return true;
}

bool gateway_credentials_parse(const char *value, struct gateway_credentials *c)
{
	size_t len;

	memset(c, 0, sizeof(*c)); /* the whole of it is compared later */
	if (strncasecmp(value, "Basic ", 6) != 0) {
		return false;
	}
	value += 6 + strspn(value + 6, " ");
	uint8_t *text = base64url_decode(value, &len);
	bool good = text != NULL && gateway_credentials_split((char *)text, len, c);
	if (text != NULL) {
		OPENSSL_cleanse(text, len);
	}
	free(text);
	return good;
}
