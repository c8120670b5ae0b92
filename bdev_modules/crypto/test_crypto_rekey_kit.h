/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of rekeys under I/O share: a crypto bdev "c0" with users on several threads, and what happens to its
 * rekey. */
#ifndef BDEV_CRYPTO_TEST_CRYPTO_REKEY_KIT_H
#define BDEV_CRYPTO_TEST_CRYPTO_REKEY_KIT_H

#include "bdev_modules/crypto/test_crypto_kit.h"
#include "bdev_modules/error/error.h"

#define BLOCK  4096u
#define BLOCKS 1280u /* five chunks */
#define USERS  3u

extern struct user users[USERS];
extern uint8_t plain[BLOCKS * 2][BLOCK]; /* what must be there */

/* A rekey's answers and news, since the last rekey(). */
extern struct told {
	atomic_bool begun, stopped;
	int rc;
	unsigned ended, failed;
	char error[BDEV_ERROR_MAX];
} told;

/* The keys, and short waits. 0, or it failed. */
int rekey_kit_start(void);

/* For fixture_poll(). */
bool has_ended(void *arg);
bool has_failed(void *arg);
bool has_moved(void *blocks);
bool crypto_is_there(void *arg);

/* Begins it: 0, or a negative errno, and error says why. */
int rekey(const char *key, const char *journal, uint64_t mib_per_second);
void rekey_stop(void);
/* A bdev_crypto_rekey_cb: sets told.stopped. */
void told_stopped(void *arg, int rc, const char *why);
/* What bdev_get_bdevs says of it: "" if there is none. */
const char *rekey_shown(const char *member);
uint64_t rekey_position(void);
/* Lets it go on, slowly, until so many blocks have the new key, and stops it. */
void rekey_until(uint64_t blocks);
/* Lets it go on until all blocks have the new key. */
void rekey_to_the_end(const char *journal);
/* Begins one, and waits until it holds the first chunk; or until the base keeps what it reads of that. */
void rekey_holds(uint64_t mib_per_second);
void rekey_reads(uint64_t mib_per_second);
/* The saved configuration names that journal; NULL: it has no rekey. */
void expect_saved_journal(const char *name);

/* "c0" on "EE_m0" on "m0", and "j0" for a journal, with data. */
void make_all(void);
void make_all_of(uint64_t blocks);
void unmake_all(void);
int make_crypto(const char *key, const char *rekey_key);
/* Makes it in the middle of the rekey, with "j0", and opens its users. */
void make_crypto_again(void);
void delete_crypto(void);
void users_open(void);
/* A user writes somewhere, or reads and compares; from block `first` on. */
void user_acts(unsigned i, uint64_t blocks);
void user_acts_from(unsigned i, uint64_t first, uint64_t blocks);
void expect_plain(uint64_t blocks);
/* All blocks have that key and no other. */
void expect_key(const char *key, const char *other);

/* Failures of bdevs of the module error: the base is "EE_m0", a journal may be "EE_j0". */
void make_journal_that_fails(void);
void unmake_journal_that_fails(void);
void fail_writes(uint32_t num);
void base_keeps_next(enum bdev_io_type type);
void inject(const char *name, const struct bdev_error_injection *injection);
void abort_writes(const char *name, uint32_t num);
void clear_errors(const char *name);

#endif
