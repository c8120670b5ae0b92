/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of crypto bdevs share: a key, a crypto bdev on the tests' disk, and failures on demand. */
#ifndef BDEV_CRYPTO_TEST_CRYPTO_KIT_H
#define BDEV_CRYPTO_TEST_CRYPTO_KIT_H

#include "unittest/bdev/fixture.h"

#define KEY_A "2718281828459045235360287471352662497757247093699959574966967627"
#define KEY_B "3141592653589793238462643383279502884197169399375105820974944592"

extern char error[BDEV_ERROR_MAX];
extern struct testdev *crypto_disk; /* "t0" */
extern struct user crypto_user;     /* of "c0" on it, on the first thread */

/* Makes what crypto_expect_on_base() decrypts with, and the key "k". 0, or it failed. */
int crypto_kit_start(void);
/* The key "k", of KEY_A and KEY_B. 0 or a negative errno. */
int crypto_kit_make_key(void);

/* The disk, the crypto bdev and its user. */
void crypto_make_on_testdev(uint32_t block_size, uint64_t num_blocks);
void crypto_unmake(void);
/* Carries out what the disk holds. */
void crypto_release(void);
/* Fills memory with bytes that depend on seed. */
void crypto_fill(void *to, size_t bytes, uint64_t seed);
/* Decrypts the blocks on the disk, without the module's code for I/O, and compares. */
void crypto_expect_on_base(uint64_t lba, const void *data, uint64_t blocks);
/* Returns when the user's thread has done what it was sent. */
void crypto_sync(void);
/* A bdev_delete_cb: sets the atomic_bool. */
void crypto_deleted(void *flag, int rc);
/* For crypto_release() after the disk's removal has begun: until crypto_let_go(), it is kept. */
void crypto_hold_on(void);
void crypto_let_go(void);

/* So many calls of OpenSSL for a block succeed, the next one fails, and those after it succeed. Negative: all do. */
extern atomic_int crypto_openssl_left;
/* So many allocations succeed, on any thread, the next one fails. Negative: none does. */
void crypto_allocations_left(long n);

#endif
