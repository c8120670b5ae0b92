/* SPDX-License-Identifier: BSD-3-Clause */
/* What a crypto bdev shows of its rekey, and what its configuration has of it. */
#include <errno.h>
#include <jansson.h>

#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/rekey_state.h"
#include "util/parse.h"

int crypto_bases(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX])
{
	const struct crypto_bdev *c = (const struct crypto_bdev *)b;
	const struct bdev *journal = NULL;

	bases[0] = bdev_desc_bdev(c->v.base);
	if (c->rekey != NULL) {
		journal = c->rekey->journal != NULL ? bdev_desc_bdev(c->rekey->journal->desc)
						    : bdev_find(c->rekey->journal_name);
	}
	bases[1] = journal;
	return journal != NULL ? 2 : 1;
}

void crypto_rekey_get(const struct crypto_bdev *c, struct bdev_crypto_opts *opts)
{
	const struct crypto_rekey *r = c->rekey;

	if (r != NULL && (r->has_begun || r->how == REKEY_RESUME)) {
		opts->rekey_key_name = crypto_key_name(r->next);
		opts->rekey_journal_bdev_name = r->journal_name;
		opts->rekey_mib_per_second = r->mib_per_second;
	}
}

static const char *rekey_state_word(const struct crypto_rekey *r)
{
	if (r->is_active) {
		return atomic_load(&r->stop) ? "stopping" : "running";
	}
	return r->result == -ECANCELED && !r->lost_journal ? "stopped" : "failed";
}

void crypto_rekey_dump_info(const struct crypto_bdev *c, json_t *crypto)
{
	const struct crypto_rekey *r = c->rekey;

	if (r == NULL) {
		return;
	}
	uint64_t position = c->keys->position, blocks = bdev_num_blocks(&c->v.bdev);
	json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "key_name", crypto_key_name(r->next),
			      "journal_bdev_name", r->journal_name, "state", rekey_state_word(r), "position_blocks",
			      (json_int_t)(position < blocks ? position : blocks), "num_blocks", (json_int_t)blocks,
			      "mib_per_second", (json_int_t)r->mib_per_second);
	if (!r->is_active && r->error[0] != 0) {
		char error[BDEV_ERROR_MAX];
		utf8_sanitize(r->error, error, sizeof(error)); /* what a journal has need not be text */
		json_object_set_new(o, "error", json_string(error));
	}
	json_object_set_new(crypto, "rekey", o);
}
