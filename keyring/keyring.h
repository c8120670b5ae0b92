/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets for DH-HMAC-CHAP by name. A key comes from a file that only its owner can read; its secret is in memory until
 * the key has been removed and nobody uses it any more, and is cleansed then. What is logged, traced, shown and saved
 * of a key is its name and its path. Control thread. */
#ifndef KEYRING_KEYRING_H
#define KEYRING_KEYRING_H

#include <stdbool.h>

#include "dhchap/dhchap.h"

#define KEYRING_NAME_MAX  64 /* with the NUL, as all of these */
#define KEYRING_PATH_MAX  1024
#define KEYRING_ERROR_MAX 1400

struct keyring_key;

/* Reads a key: path is absolute, of a regular file of the process's user or root that neither group nor others may read
 * or write, and that holds one secret (dhchap_secret_parse()). Or a negative errno and error: -EINVAL, -EEXIST, -EPERM
 * (its mode or owner), -ENOMEM, or what open says. */
int keyring_file_add(const char *name, const char *path, char error[KEYRING_ERROR_MAX]);
/* Takes it out of the ring: its name is free. Who uses it keeps it. -ENOENT. */
int keyring_file_remove(const char *name);

/* A reference to the key of that name, for keyring_put(); NULL: there is none. */
struct keyring_key *keyring_get(const char *name);
/* One reference more; of NULL: NULL. */
struct keyring_key *keyring_hold(struct keyring_key *key);
void keyring_put(struct keyring_key *key); /* NULL: nothing */

const char *keyring_key_name(const struct keyring_key *key);
const char *keyring_key_path(const struct keyring_key *key);
/* As long as the reference is held. */
const struct dhchap_secret *keyring_key_secret(const struct keyring_key *key);
/* References, that of the ring included; whether it has been removed and is still used. */
unsigned keyring_key_refs(const struct keyring_key *key);
bool keyring_key_removed(const struct keyring_key *key);
/* All keys, removed ones that are used included, in the order they were added; NULL: the first; NULL: no more. */
struct keyring_key *keyring_next(const struct keyring_key *after);

#endif
