/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev that encrypts what it writes to its base, and decrypts what it reads from there, with a key of
 * bdev_modules/crypto/keys.h. It claims its base, follows each new size of it, and is removed when its base is; when
 * the base comes back, so does the bdev. Control thread. */
#ifndef BDEV_CRYPTO_H
#define BDEV_CRYPTO_H

#include "bdev/bdev.h"

struct vbdev_waiting;

struct bdev_crypto_opts {
	const char *name;           /* copied */
	const char *base_bdev_name; /* copied */
	const char *key_name;       /* of a key that is there */
	const uint8_t *uuid;        /* 16 bytes, copied; NULL: a random one */
	/* Of a bdev in the middle of a rekey, which goes on: NULL and 0 otherwise. */
	const char *rekey_key_name;          /* the new key; key_name is the old one */
	const char *rekey_journal_bdev_name; /* that has the journal of the rekey */
	uint64_t rekey_mib_per_second;
};

/* Makes and registers one, or, if there is no such base, or no bdev with the journal, notes that one is to be made when
 * both are there (bdev/vbdev/waiting.h). 0; or a negative errno, and error (BDEV_ERROR_MAX bytes) names the field, its
 * value, and what is allowed. */
int bdev_crypto_create(const struct bdev_crypto_opts *opts, char *error);

/* As bdev_unregister(), also of one that waits for its base; or cb(arg, -ENODEV) if no crypto bdev has that name. */
void bdev_crypto_delete(const char *name, bdev_delete_cb cb, void *arg);

/* The options that would make b again. Pointers in opts are into b. False: b is of another module. */
bool bdev_crypto_get(const struct bdev *b, struct bdev_crypto_opts *opts);
/* The same of one that waits for its base; uuid is NULL if none was given. */
bool bdev_crypto_get_waiting(const struct vbdev_waiting *w, struct bdev_crypto_opts *opts);
/* The crypto bdev of that name, alias or UUID; NULL: there is none. */
struct bdev *bdev_crypto_find(const char *name);

/* --- Rekey: another key for all blocks, while I/O goes on (rekey_engine.h) --- */

struct bdev_crypto_rekey_opts {
	const char *name;              /* of the crypto bdev */
	const char *key_name;          /* of the new key */
	const char *journal_bdev_name; /* claimed while the rekey runs; at least REKEY_JOURNAL_BYTES */
	uint64_t mib_per_second;       /* at most; 0: no limit; up to BDEV_CRYPTO_REKEY_MIB_MAX */
};
#define BDEV_CRYPTO_REKEY_MIB_MAX 1000000u
/* The answer: 0; or a negative errno, and error says why. */
typedef void (*bdev_crypto_rekey_cb)(void *arg, int rc, const char *error);
/* Begins a rekey, or goes on with one that was stopped or has failed. 0, and begun(arg, ...) is called later: with 0
 * when the journal says that the rekey runs, so that it can be resumed after a crash. Or a negative errno, and the
 * reason in error (BDEV_ERROR_MAX bytes): -EBUSY: one is under way, or one to another key has not ended. */
int bdev_crypto_rekey(const struct bdev_crypto_rekey_opts *opts, bdev_crypto_rekey_cb begun, void *arg, char *error);
/* Stops the rekey of that bdev, which goes on with both keys. 0, and stopped(arg, 0, ...) is called when the chunk that
 * is under way has ended, and the journal's bdev is free, unless it has not answered. Of one that waits for its
 * journal's bdev to come back: it waits no longer, and stopped() is called before this returns. Or a negative errno and
 * the reason in error. */
int bdev_crypto_rekey_stop(const char *name, bdev_crypto_rekey_cb stopped, void *arg, char *error);

enum bdev_crypto_rekey_news { BDEV_CRYPTO_REKEY_ENDED, BDEV_CRYPTO_REKEY_FAILED };
/* What fn is told: the bdev, what has become of its rekey, and why. */
typedef void (*bdev_crypto_rekey_news_fn)(const char *bdev, enum bdev_crypto_rekey_news news, const char *reason);
/* Has fn told of all rekeys. Before main(), or on the control thread. */
void bdev_crypto_observe_rekeys(bdev_crypto_rekey_news_fn fn);

#endif
