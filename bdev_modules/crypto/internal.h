/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the module share. */
#ifndef BDEV_CRYPTO_INTERNAL_H
#define BDEV_CRYPTO_INTERNAL_H

#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "bdev_modules/crypto/xts.h"

struct crypto_key;
struct bdev_crypto_opts;

/* Which blocks have which key. Channels read it; the control thread changes it by publishing another one
 * (crypto_keys_publish()). */
struct crypto_keys {
	struct crypto_key *key;
	struct crypto_key *next; /* blocks below `position` have this one; NULL: there is no rekey */
	uint64_t position;
	uint64_t held_first, held_end; /* I/O of these blocks waits; equal: of none */
	bool held_fails;               /* it fails instead */
};

struct crypto_rekey;

struct crypto_bdev {
	struct vbdev v;
	const struct crypto_keys *keys; /* published; its keys are held */
	struct crypto_keys single;      /* without a rekey */
	struct crypto_rekey *rekey;     /* one that has not ended; or NULL */
	/* The base leaves the buffers of a READ as they are, which must not be decrypted: what is there belongs to
	 * others. */
	bool clears_reads;
};

/* The name of a bdev that waits for its base, and is to use that key; NULL: there is none. Control thread. */
const char *crypto_waiting_for_key(const char *key_name);

/* --- rekey.c --- */

/* How long a rekey waits. Tests shorten it. */
struct crypto_rekey_patience {
	uint64_t journal_us; /* for an I/O of the journal; then the rekey fails */
	uint32_t abort_us;   /* before an I/O is tried again that was aborted, by a reset of the base; below a second */
};
extern struct crypto_rekey_patience crypto_rekey_patience;

struct vbdev_meta;
struct vbdev_meta_op;
/* vbdev_meta_run(), again and again while a reset of the bdev ends it. -ENODATA: blocks cannot be read. Worker thread.
 */
int crypto_rekey_io(struct vbdev_meta *meta, struct vbdev_meta_op *op);
/* vbdev.is_busy: has a rekey stop, whose worker thread still uses the base. */
bool crypto_rekey_is_busy(struct vbdev *v);
/* The bdev goes: what is left of a rekey that does not run. */
void crypto_rekey_free(struct crypto_bdev *c);
/* The base is being removed: a rekey stops. */
void crypto_rekey_base_removed(const struct crypto_bdev *c);
/* What a bdev needs that is made in the middle of a rekey: before it is registered, and after that. opts has
 * rekey_key_name. 0, or a negative errno and the reason in error; -ENODEV: the journal's bdev is not there. */
int crypto_rekey_prepare(struct crypto_bdev *c, const struct bdev_crypto_opts *opts, char *error);
void crypto_rekey_resume(struct crypto_bdev *c);
/* A bdev has come, or has ended I/O that was late: a rekey that lost its journal goes on with it. */
void crypto_rekey_examine(const struct bdev *b);
/* The rekeys, one after the other. after NULL: the first; NULL: no more. Control thread. */
const struct crypto_rekey *crypto_rekey_next(const struct crypto_rekey *after);

/* --- rekey_status.c --- */

/* Adds what there is of a rekey to the module's description of the bdev. */
void crypto_rekey_dump_info(const struct crypto_bdev *c, struct json_t *crypto);
/* The base, and the bdev that has the journal of a rekey: ops.bases. */
int crypto_bases(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX]);
/* Fills in the options that are of a rekey, if there is one. */
void crypto_rekey_get(const struct crypto_bdev *c, struct bdev_crypto_opts *opts);

/* --- rekey_place.c. 0; or a negative errno, and the reason in error (BDEV_ERROR_MAX bytes). Control thread. --- */

/* Whether the journal's I/O can be carried out while the rekey of c holds I/O. -EINVAL. */
int crypto_journal_check_place(const struct crypto_bdev *c, const struct bdev *journal, char *error);
/* Whether that bdev has room for one. -EINVAL, -ENOSPC. */
int crypto_journal_check_room(const struct bdev *journal, char *error);
/* The same, and whether it and the base can be written. -EINVAL, -ENOSPC, -EROFS. */
int crypto_journal_check(const struct crypto_bdev *c, const struct bdev *journal, char *error);
/* Says in the log if what it stores is gone when varve ends, and what the base has is not. */
void crypto_journal_warn(const struct crypto_bdev *c, const struct bdev *journal);
/* Whether no other process can get the base of c. -ENOTSUP. */
int crypto_rekey_check_base(const struct crypto_bdev *c, char *error);

/* --- rekey_former.c --- */

/* Has the journal on that bdev, if it has this salt, say nothing any more. user: the crypto bdev. done(arg) follows on
 * the control thread, perhaps before this has returned: that is durable, or not possible, as the log says; then it
 * is tried again when a bdev of that name comes. Control thread. */
void crypto_journal_make_void(const char *name, const uint8_t *salt, const char *user, void (*done)(void *arg),
			      void *arg);
/* The salts of those that are being made void just now. Returns how many there are, perhaps more than max. Control
 * thread. */
unsigned crypto_former_salts(uint8_t (*salts)[REKEY_SALT], unsigned max);
/* A bdev has come: if it has a former journal that could not be made void, that is done now. Control thread. */
void crypto_former_examine(const struct bdev *b);
/* The journal with this salt counts: it does not become void when its bdev comes back. Control thread. */
void crypto_former_forget(const uint8_t *salt);
/* At the end of the module: nothing becomes void any more. */
void crypto_former_fini(void);

/* --- io.c --- */

/* Has all channels use `keys`, which stays as it is until another one is published; when this returns, nobody uses the
 * one before it any more, and I/O that is not held goes on. 0; or a negative errno: a thread can have no key schedule
 * of keys->next, and the one before it counts. */
int crypto_keys_publish(struct crypto_bdev *c, const struct crypto_keys *keys);
/* Whether some channel has an I/O of these blocks at the base. */
bool crypto_blocks_are_in_use(struct crypto_bdev *c, uint64_t first, uint64_t last);

extern const struct bdev_ops crypto_ops;
/* What the module needs behind each I/O. */
size_t crypto_io_ctx_size(void);
/* The buffers that all crypto bdevs of a thread share: before the first one is made; after the last one is gone.
 * Control thread. */
void crypto_buffers_init(void);
void crypto_buffers_fini(void);
/* Adds the module's description of b: ops.dump_info, in crypto.c. */
void crypto_dump_info(const struct bdev *b, struct json_t *driver_specific);

#endif
