/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a bdev can have the journal of a rekey, and whether a base can have another key. */
#include <errno.h>

#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "util/log.h"

static bool is_bdev(const struct bdev *one, const void *b)
{
	return one == b;
}

/* Its I/O would wait for the rekey, which waits for it; and nobody could make the one without the other again. */
int crypto_journal_check_place(const struct crypto_bdev *c, const struct bdev *journal, char *error)
{
	int found = vbdev_search_down(journal, is_bdev, &c->v.bdev);

	if (found > 0) {
		return bdev_error(error, -EINVAL, "bdev '%.150s' stands on the crypto bdev, whose I/O the rekey holds",
				  bdev_name(journal));
	}
	if (found < 0) {
		return bdev_error(
			error, -EINVAL,
			"it cannot be told what bdev '%.110s' stands on: perhaps on the crypto bdev, whose I/O "
			"the rekey holds",
			bdev_name(journal));
	}
	return 0;
}

static bool is_in_memory(const struct bdev *one, const void *arg)
{
	return one->in_memory;
}

void crypto_journal_warn(const struct crypto_bdev *c, const struct bdev *journal)
{
	if (vbdev_search_down(journal, is_in_memory, NULL) > 0 &&
	    vbdev_search_down(bdev_desc_bdev(c->v.base), is_in_memory, NULL) == 0) {
		log_warning(
			"bdev %s: the journal of its rekey is in memory, on bdev %s: if varve ends before the rekey, "
			"nobody knows which blocks have which key, and the data are lost",
			c->v.bdev.name, bdev_name(journal));
	}
}

/* Another process with the same blocks would know nothing of the new key, and read and write with the old one. */
int crypto_rekey_check_base(const struct crypto_bdev *c, char *error)
{
	return vbdev_search_owner(bdev_desc_bdev(c->v.base), NULL) != 0
		       ? bdev_error(
				 error, -ENOTSUP,
				 "base bdev '%.100s' was made with standby, or stands on one that was or is not there: "
				 "other processes that use it would go on with the old key",
				 vbdev_base_name(&c->v))
		       : 0;
}

int crypto_journal_check_room(const struct bdev *journal, char *error)
{
	uint32_t block = bdev_block_size(journal);

	if (bdev_get_md(journal)->size != 0 || block < REKEY_HEADER_BYTES || block > REKEY_HEADER_STRIDE ||
	    (block & (block - 1)) != 0) {
		return bdev_error(
			error, -EINVAL,
			"bdev '%.100s' cannot have the journal: its blocks have %u bytes, %u of them metadata; "
			"512 to 65536 bytes without metadata are needed",
			bdev_name(journal), block, bdev_get_md(journal)->size);
	}
	if (bdev_num_blocks(journal) * block < REKEY_JOURNAL_BYTES) {
		return bdev_error(error, -ENOSPC,
				  "bdev '%.100s' cannot have the journal: it has %lu bytes, %u are needed",
				  bdev_name(journal), bdev_num_blocks(journal) * block, REKEY_JOURNAL_BYTES);
	}
	return 0;
}

int crypto_journal_check(const struct crypto_bdev *c, const struct bdev *journal, char *error)
{
	int rc = crypto_journal_check_room(journal, error);

	if (rc != 0) {
		return rc;
	}
	if (journal->read_only || bdev_desc_bdev(c->v.base)->read_only) {
		return bdev_error(error, -EROFS, "bdev '%.100s' or the base of the crypto bdev is read-only",
				  bdev_name(journal));
	}
	return 0;
}
