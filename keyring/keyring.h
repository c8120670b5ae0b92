/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets for DH-HMAC-CHAP, pre-shared keys for TLS, and keys that encrypt data, by name. A key is read from a file
 * that only its owner can read. Its secret stays in memory until the key has been removed and its last reference given
 * back, and is overwritten then. Logs, traces, RPC answers and saved configurations contain the name and the path of a
 * key, never the secret. All functions: control thread. */
#ifndef KEYRING_KEYRING_H
#define KEYRING_KEYRING_H

#include <stdbool.h>

#include "dhchap/dhchap.h"
#include "tls/psk.h"

#define KEYRING_NAME_MAX  64 /* with the NUL, as all of these */
#define KEYRING_PATH_MAX  1024
#define KEYRING_ERROR_MAX 1400

struct keyring_key;

/* Reads a key from a file and adds it to the keyring. path is absolute, and names a regular file that belongs to the
 * process's user or root, that neither group nor others may read or write, and that holds one secret
 * (dhchap_secret_parse()), one TLS key (tls_psk_parse()), or one key for data: 64 or 128 hexadecimal digits, with white
 * space around them. 0; or a negative errno, and error says what is wrong: -EINVAL, -EEXIST (the name is taken), -EBUSY
 * (a key for data of that name was removed, and somebody still has a reference), -EPERM (mode or owner of the file),
 * -ESTALE (it is not the one that is expected), -ENOMEM, or an errno of open(). */
int keyring_file_add(const char *name, const char *path, char error[KEYRING_ERROR_MAX]);
/* Removes a key from the keyring. Whoever has a reference keeps the key. Its name is free; that of a key for data only
 * when nobody has a reference any more, because data that were encrypted by one key are lost under another. 0 or
 * -ENOENT. */
int keyring_file_remove(const char *name);
/* Removes all keys. When all references were given back before, no secret is left in memory. */
void keyring_clear(void);
/* Removes all keys, but keeps each secret for keyring_file_add() with the same name and path, which does not look at
 * the file then: for a process that gives up everything, and may have to be again what it was, whatever has become of
 * the files meanwhile. */
void keyring_set_aside(void);
/* Before that, while those who use them still do: keeps removed keys that keyring_key_is_saved() in the same way, which
 * would otherwise be gone with the last reference. */
void keyring_keep_removed(void);
/* Overwrites and frees what these kept and nobody has added again, and expects nothing any more (keyring_expect());
 * keyring_clear() does so too. */
void keyring_forget_set_aside(void);

#define KEYRING_SALT   32 /* bytes */
#define KEYRING_DIGEST 32
/* Calculates SHA-256 of the salt and all that the key consists of. 0 or -EIO. */
int keyring_key_digest(const struct keyring_key *key, const uint8_t salt[KEYRING_SALT], uint8_t digest[KEYRING_DIGEST]);
/* From now on, keyring_file_add() reads for this name no key but the one with that digest: otherwise -ESTALE. The first
 * one for a name counts. 0; -EINVAL: no key can have that name; -ENOMEM. */
int keyring_expect(const char *name, const uint8_t salt[KEYRING_SALT], const uint8_t digest[KEYRING_DIGEST]);
/* Whether another process would read the same key from the file. 0; -ESTALE: another one is in it now; or an error of
 * keyring_file_add(); error says what is wrong. */
int keyring_key_check_file(const struct keyring_key *key, char error[KEYRING_ERROR_MAX]);

/* What a key is for. */
enum keyring_kind { KEYRING_DHCHAP, KEYRING_PSK, KEYRING_DATA };
/* A reference to the key of that name, to be given back by keyring_put(); NULL: no such key. Whoever uses what is in it
 * looks at its kind first. */
struct keyring_key *keyring_get(const char *name);
/* The same, and NULL if the key is of another kind. Whenever it returns NULL, *why says what is wrong, to be put behind
 * the name: "the keyring has no such key". */
struct keyring_key *keyring_get_kind(const char *name, enum keyring_kind kind, const char **why);
/* One more reference to a key, to be given back by keyring_put(). NULL in, NULL out. */
struct keyring_key *keyring_hold(struct keyring_key *key);
/* Gives a reference back; the last one of a removed key overwrites and frees its secret. NULL is ignored. */
void keyring_put(struct keyring_key *key);

/* The name; valid as long as the reference is held. */
const char *keyring_key_name(const struct keyring_key *key);
/* The path of the file that it was read from; valid as long as the reference is held. */
const char *keyring_key_path(const struct keyring_key *key);
/* What it is for. */
enum keyring_kind keyring_key_kind(const struct keyring_key *key);
/* The secret, of a key for DH-HMAC-CHAP; valid as long as the reference is held. */
const struct dhchap_secret *keyring_key_secret(const struct keyring_key *key);
/* The pre-shared key, of a key for TLS; valid as long as the reference is held. */
const struct tls_psk *keyring_key_psk(const struct keyring_key *key);
/* The *len bytes, 32 or 64, of a key for data, in memory of secret_alloc(); valid as long as the reference is held. */
const uint8_t *keyring_key_data(const struct keyring_key *key, size_t *len);
/* How many references there are, the keyring's own included. */
unsigned keyring_key_refs(const struct keyring_key *key);
/* Whether the key has been removed from the keyring, and exists only because somebody has a reference. */
bool keyring_key_removed(const struct keyring_key *key);
/* Whether a configuration is to have the key. It refers to keys by name, so it has a removed key that is still in use
 * as well, but not one for data: its file may have another key by now, under which data would be destroyed. Of several
 * keys of one name it has only one: the one in the keyring, or, if all have been removed, the last one. */
bool keyring_key_is_saved(const struct keyring_key *key);
/* All keys, in the order in which they were added, removed ones with references included. NULL for the first; NULL: no
 * more. */
struct keyring_key *keyring_next(const struct keyring_key *after);

#endif
