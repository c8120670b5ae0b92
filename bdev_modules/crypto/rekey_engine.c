/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev_modules/crypto/rekey_engine.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int __attribute__((format(printf, 3, 4))) engine_error(struct rekey_engine *e, int rc, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(e->error, sizeof(e->error), fmt, args);
	va_end(args);
	return rc;
}

static int engine_step_failed(struct rekey_engine *e, int rc, const char *what)
{
	return engine_error(e, rc, "%s at block %" PRIu64 ": %s", what, e->position, strerror(-rc));
}

/* --- Memory --- */

static uint32_t header_bytes(const struct rekey_engine *e)
{
	return rekey_header_io_bytes(e->journal_block);
}

int rekey_engine_init(struct rekey_engine *e)
{
	int rc = crypto_xts_create(&e->old_xts, e->old_secret, e->old_bytes);

	rc = rc != 0 ? rc : crypto_xts_create(&e->new_xts, e->new_secret, e->new_bytes);
	if (rc != 0) {
		return engine_error(e, rc, "OpenSSL cannot make a key schedule: %s", strerror(-rc));
	}
	e->chunk = calloc(1, REKEY_CHUNK_BYTES);
	e->header = calloc(1, REKEY_HEADER_STRIDE);
	e->copy = crypto_plain_alloc();
	if (e->chunk == NULL || e->header == NULL || e->copy == NULL) {
		return engine_error(e, -ENOMEM, "out of memory");
	}
	return 0;
}

void rekey_engine_fini(struct rekey_engine *e)
{
	crypto_xts_destroy(&e->old_xts);
	crypto_xts_destroy(&e->new_xts);
	free(e->chunk);
	free(e->header);
	crypto_plain_free(e->copy);
	e->chunk = e->header = e->copy = NULL;
}

/* --- The journal --- */

static int header_put(struct rekey_engine *e, unsigned slot)
{
	memset(e->header, 0, header_bytes(e));
	rekey_header_encode(&e->head, e->header);
	int rc = e->ops->journal_write(e->ctx, (uint64_t)slot * REKEY_HEADER_STRIDE, header_bytes(e), e->header);
	rc = rc != 0 ? rc : e->ops->journal_flush(e->ctx);
	return rc != 0 ? engine_step_failed(e, rc, "the journal cannot be written") : 0;
}

static bool has_last_salt(const struct rekey_engine *e, const struct rekey_header *h)
{
	return memcmp(h->salt, e->last_salt, sizeof(h->salt)) == 0;
}

/* The slot of a header that was not written for certain is written again: the other one has the last that was. */
static int header_write(struct rekey_engine *e, enum rekey_state state, uint64_t position, uint32_t blocks,
			uint32_t crc)
{
	e->head.generation++;
	if (has_last_salt(e, &e->head)) {
		e->last_generation = e->head.generation;
	}
	e->head.state = state;
	e->head.position = position;
	e->head.chunk_blocks = blocks;
	e->head.chunk_crc = crc;
	int rc = header_put(e, e->slot);
	e->slot ^= rc == 0;
	return rc;
}

/* The header that was read may be in a cache only, and would be gone after a failure of power. It is written again
 * where it is: the same bytes, so that nothing is torn. */
static int header_confirm(struct rekey_engine *e, const struct rekey_header *newest)
{
	e->head = *newest;
	return header_put(e, e->slot ^ 1);
}

static uint32_t copy_bytes(const struct rekey_engine *e, uint32_t blocks)
{
	uint32_t unit = header_bytes(e), bytes = blocks * e->block_size;

	return (bytes + unit - 1) / unit * unit;
}

static int chunk_copy_write(struct rekey_engine *e, uint32_t blocks)
{
	int rc = e->ops->journal_write(e->ctx, REKEY_CHUNK_OFFSET, copy_bytes(e, blocks), e->chunk);

	rc = rc != 0 ? rc : e->ops->journal_flush(e->ctx);
	if (rc != 0) {
		return engine_step_failed(e, rc, "the journal cannot be written");
	}
	e->copied = true;
	return 0;
}

static int chunk_copy_read(struct rekey_engine *e)
{
	uint32_t blocks = e->head.chunk_blocks;
	int rc = e->ops->journal_read(e->ctx, REKEY_CHUNK_OFFSET, copy_bytes(e, blocks), e->chunk);

	if (rc != 0) {
		return engine_step_failed(e, rc, "the journal cannot be read");
	}
	if (rekey_crc(e->chunk, (size_t)blocks * e->block_size) != e->head.chunk_crc) {
		return engine_error(e, -EILSEQ,
				    "the journal's copy of %" PRIu32 " blocks at block %" PRIu64
				    ", of which the base may "
				    "have lost some, is damaged: its CRC is wrong",
				    blocks, e->position);
	}
	e->pending = blocks;
	e->copied = true;
	return 0;
}

/* --- The steps --- */

/* The copy goes to the base, as far as this has blocks: it may have become smaller. */
static int chunk_write(struct rekey_engine *e, uint32_t *blocks)
{
	uint64_t all = e->ops->base_blocks(e->ctx), left = all > e->position ? all - e->position : 0;

	*blocks = left < e->pending ? (uint32_t)left : e->pending;
	int rc = *blocks != 0 ? e->ops->base_write(e->ctx, e->position, *blocks, e->chunk) : 0;
	rc = rc != 0 ? rc : e->ops->base_flush(e->ctx);
	return rc != 0 ? engine_step_failed(e, rc, "the base cannot be written") : 0;
}

/* From "under way" on. The range is held; what fails leaves it so. */
static int chunk_carry_out(struct rekey_engine *e)
{
	uint32_t blocks = e->pending;
	int rc = e->copied ? 0 : chunk_copy_write(e, blocks);

	e->holds = true;
	rc = rc != 0 ? rc
		     : header_write(e, REKEY_UNDER_WAY, e->position, blocks,
				    rekey_crc(e->chunk, (size_t)blocks * e->block_size));
	if (rc != 0) {
		return rc;
	}
	rc = chunk_write(e, &blocks);
	rc = rc != 0 ? rc : header_write(e, REKEY_RUNNING, e->position + blocks, 0, 0);
	if (rc != 0) {
		return rc;
	}
	e->position += blocks;
	e->pending = 0;
	e->copied = e->holds = false;
	e->ops->moved(e->ctx, e->position);
	return 0;
}

static bool chunk_encrypt(struct rekey_engine *e, uint32_t blocks)
{
	bool good = true;

	for (uint32_t i = 0; i < blocks && good; i++) {
		uint8_t *at = e->chunk + (size_t)i * e->block_size;
		uint64_t lba = e->position + i;
		good = crypto_xts_block(e->old_xts.decrypt, lba, at, e->copy, e->block_size) &&
		       crypto_xts_block(e->new_xts.encrypt, lba, e->copy, at, e->block_size);
	}
	explicit_bzero(e->copy, e->block_size);
	return good;
}

/* Reads as many blocks as can be read. 0 and *blocks; -ENODATA: not even the first one. */
static int chunk_read(struct rekey_engine *e, uint32_t *blocks)
{
	int rc = e->ops->base_read(e->ctx, e->position, *blocks, e->chunk);

	while (rc == -ENODATA && *blocks > 1) {
		*blocks /= 2;
		rc = e->ops->base_read(e->ctx, e->position, *blocks, e->chunk);
	}
	return rc;
}

/* The chunk stays with the old key, and its I/O goes on. */
static int chunk_give_up(struct rekey_engine *e, int rc)
{
	if (!e->holds) {
		e->ops->moved(e->ctx, e->position);
	}
	return rc;
}

static int chunk_move(struct rekey_engine *e, uint32_t blocks)
{
	int rc = chunk_read(e, &blocks);

	if (rc == -ENODATA) {
		rc = engine_error(e, -EIO,
				  "block %" PRIu64 " of the base cannot be read: the rekey can go on when it has been "
				  "written",
				  e->position);
		return chunk_give_up(e, rc);
	}
	if (rc != 0) {
		return chunk_give_up(e, engine_step_failed(e, rc, "the base cannot be read"));
	}
	if (!chunk_encrypt(e, blocks)) {
		return chunk_give_up(e, engine_error(e, -EIO, "OpenSSL failed to encrypt or decrypt a block"));
	}
	e->copied = false;
	rc = chunk_copy_write(e, blocks);
	if (rc != 0) {
		return chunk_give_up(e, rc);
	}
	e->pending = blocks;
	return chunk_carry_out(e);
}

/* Nothing from here on has the old key, nor will have, if the bdev grows. */
static int engine_end(struct rekey_engine *e)
{
	e->holds = true;
	int rc = header_write(e, REKEY_DONE, e->position, 0, 0);

	if (rc == 0) {
		e->holds = false;
		e->ops->moved(e->ctx, UINT64_MAX);
	}
	return rc;
}

int rekey_engine_run(struct rekey_engine *e)
{
	int rc = e->pending != 0 ? chunk_carry_out(e) : 0;

	while (rc == 0) {
		uint64_t before = e->position;
		uint32_t blocks = 0;
		rc = e->ops->hold(e->ctx, e->position, e->chunk_blocks, &blocks);
		if (rc != 0) {
			return rc;
		}
		if (blocks == 0) {
			return engine_end(e);
		}
		rc = chunk_move(e, blocks);
		if (rc == 0) {
			rc = e->ops->pace(e->ctx, (uint32_t)(e->position - before) * e->block_size);
		}
	}
	return rc;
}

/* --- The beginning --- */

static int headers_read(struct rekey_engine *e, struct rekey_header found[2], const struct rekey_header **newest)
{
	const struct rekey_header *is[2] = {NULL, NULL};

	for (unsigned i = 0; i < 2; i++) {
		int rc = e->ops->journal_read(e->ctx, (uint64_t)i * REKEY_HEADER_STRIDE, header_bytes(e), e->header);
		if (rc != 0) {
			return engine_step_failed(e, rc, "the journal cannot be read");
		}
		is[i] = rekey_header_decode(e->header, &found[i]) ? &found[i] : NULL;
	}
	*newest = rekey_header_newest(is[0], is[1]);
	e->slot = *newest == &found[0];
	return 0;
}

/* What a header of this rekey has, with that salt. */
static int header_fill_in(struct rekey_engine *e, const uint8_t *salt, struct rekey_header *h)
{
	*h = (struct rekey_header){.block_size = e->block_size};
	memcpy(h->salt, salt, sizeof(h->salt));
	memcpy(h->base_uuid, e->base_uuid, sizeof(h->base_uuid));
	memcpy(h->base_name, e->base_name, sizeof(h->base_name));
	int rc = rekey_key_digest(salt, e->old_secret, e->old_bytes, h->old_key);
	rc = rc != 0 ? rc : rekey_key_digest(salt, e->new_secret, e->new_bytes, h->new_key);
	return rc != 0 ? engine_error(e, rc, "OpenSSL cannot make the digest of a key") : 0;
}

/* The chunk under way goes to a journal that does not have it. Until its copy is there, the journal says nothing of
 * this rekey: nothing of what it could say is true. The base is not written yet: the former journal counts until this
 * one has been taken. */
static int chunk_carry_over(struct rekey_engine *e)
{
	int rc = header_write(e, REKEY_VOID, e->position, 0, 0);

	e->copied = false;
	rc = rc != 0 ? rc : chunk_copy_write(e, e->pending);
	return rc != 0 ? rc
		       : header_write(e, REKEY_UNDER_WAY, e->position, e->pending,
				      rekey_crc(e->chunk, (size_t)e->pending * e->block_size));
}

/* The journal has nothing that is still needed. */
static int begin_anew(struct rekey_engine *e, const struct rekey_header *newest)
{
	uint8_t salt[REKEY_SALT];

	if (RAND_bytes(salt, sizeof(salt)) != 1) {
		return engine_error(e, -EIO, "OpenSSL has no random numbers");
	}
	int rc = header_fill_in(e, salt, &e->head);
	if (rc != 0) {
		return rc;
	}
	e->head.generation = newest != NULL ? newest->generation : 0;
	return e->pending != 0 ? chunk_carry_over(e) : header_write(e, REKEY_RUNNING, e->position, 0, 0);
}

/* Whether the journal says what the engine knows. */
static bool header_is_of_now(const struct rekey_engine *e, const struct rekey_header *h)
{
	if (e->pending == 0) {
		return h->state == REKEY_RUNNING && h->position == e->position;
	}
	return h->state == REKEY_UNDER_WAY && h->position == e->position && h->chunk_blocks == e->pending &&
	       h->chunk_crc == rekey_crc(e->chunk, (size_t)e->pending * e->block_size);
}

/* Whether the journal is the one that counts, and has what it has, but perhaps the last header: with that, its position
 * is the one before the chunk under way or the one behind it, and is true, since nobody else uses that chunk. */
static bool journal_is_the_last(const struct rekey_engine *e, const struct rekey_header *h)
{
	return has_last_salt(e, h) && h->generation + 1 >= e->last_generation &&
	       (h->position == e->position || h->position == e->position + e->pending);
}

static int begin_continue(struct rekey_engine *e, const struct rekey_header *newest)
{
	bool of_now = header_is_of_now(e, newest), is_last = of_now || journal_is_the_last(e, newest);
	int rc = is_last ? header_confirm(e, newest) : 0;

	e->head = *newest;
	e->copied = of_now && e->pending != 0;
	if (rc != 0 || of_now || (is_last && e->pending != 0)) {
		return rc;
	}
	return e->pending != 0 ? chunk_carry_over(e) : header_write(e, REKEY_RUNNING, e->position, 0, 0);
}

static int begin_resume(struct rekey_engine *e, const struct rekey_header *newest)
{
	int rc = header_confirm(e, newest);

	if (rc != 0) {
		return rc;
	}
	e->position = newest->position;
	switch (newest->state) {
	case REKEY_DONE:
		return 1;
	case REKEY_UNDER_WAY:
		rc = chunk_copy_read(e);
		return rc != 0 ? rc : chunk_carry_out(e);
	default:
		return 0;
	}
}

static bool position_is_known(enum rekey_begin how)
{
	return how == REKEY_CONTINUE || how == REKEY_RETURN;
}

static int begin_with(struct rekey_engine *e, enum rekey_begin how, const struct rekey_header *newest)
{
	struct rekey_header wanted;
	int rc = header_fill_in(e, newest->salt, &wanted);

	rc = rc != 0 ? rc : rekey_header_check(newest, &wanted, e->error);
	if (rc != 0) {
		return rc;
	}
	return position_is_known(how) ? begin_continue(e, newest) : begin_resume(e, newest);
}

static int begin_with_none(struct rekey_engine *e, enum rekey_begin how, const struct rekey_header *newest)
{
	if (how == REKEY_RESUME) {
		return engine_error(e, -EINVAL, "the bdev that should have the journal has none%s",
				    newest != NULL ? " that counts: another bdev has the journal, given to the rekey "
						     "after this one, or before it if the rekey could not go on here"
						   : "");
	}
	return begin_anew(e, newest);
}

/* Nobody has said that what the bdev has may be overwritten: the journal must be one of this rekey. */
static int check_own(struct rekey_engine *e, const struct rekey_header *newest)
{
	struct rekey_header wanted;
	int rc = newest != NULL ? 0 : -EINVAL;

	if (rc == 0 && !has_last_salt(e, newest)) {
		rc = header_fill_in(e, newest->salt, &wanted);
		rc = rc != 0 ? rc : rekey_header_check(newest, &wanted, e->error);
	}
	return rc == -EINVAL
		       ? engine_error(e, rc,
				      "a bdev has come with the name of the journal's, and has no journal of this "
				      "rekey: it is left as it is")
		       : rc;
}

static bool is_written(const struct rekey_engine *e, const struct rekey_header *h)
{
	bool is = false;

	for (unsigned i = 0; i < e->num_written; i++) {
		is |= memcmp(h->salt, e->written[i], sizeof(h->salt)) == 0;
	}
	return is;
}

/* What may not be written, whoever asks. */
static int check_place(struct rekey_engine *e, enum rekey_begin how, const struct rekey_header *newest)
{
	if (newest != NULL && is_written(e, newest)) {
		return engine_error(e, -EEXIST,
				    "it is a journal that the rekey has had, by another name, and what was sent to it "
				    "there may still be written: go on when that has ended, or with another one");
	}
	if (how == REKEY_RETURN) {
		return check_own(e, newest);
	}
	return how == REKEY_CONTINUE && newest != NULL && e->is_elsewhere && has_last_salt(e, newest)
		       ? engine_error(e, -EEXIST,
				      "it is the journal that the rekey has, by another name: delete the bdev that it "
				      "has used first")
		       : 0;
}

static int engine_begin(struct rekey_engine *e, enum rekey_begin how)
{
	struct rekey_header found[2];
	const struct rekey_header *newest = NULL;

	if (!position_is_known(how)) { /* an attempt before this one may have left something */
		e->position = e->pending = 0;
		e->copied = e->holds = false;
	}
	int rc = headers_read(e, found, &newest);
	rc = rc != 0 ? rc : check_place(e, how, newest);
	if (rc != 0) {
		return rc;
	}
	if (newest == NULL || newest->state == REKEY_VOID) {
		return begin_with_none(e, how, newest);
	}
	if (newest->state == REKEY_DONE && how != REKEY_RESUME) {
		return begin_anew(e, newest);
	}
	if (how != REKEY_NEW) {
		return begin_with(e, how, newest);
	}
	/* Of one that has begun, but whose beginning nobody was told of. */
	if (newest->state == REKEY_RUNNING && newest->position == 0 &&
	    (rc = begin_with(e, how, newest)) != -EINVAL) { /* which says that it is of another one */
		return rc;
	}
	return engine_error(e, -EEXIST,
			    "it has the journal of a rekey of bdev %s that has not ended: create the crypto bdev "
			    "with rekey_key_name, or, if nobody needs that any more, overwrite it",
			    newest->base_name);
}

int rekey_engine_begin(struct rekey_engine *e, enum rekey_begin how)
{
	int rc = engine_begin(e, how);

	if (rc == 0) {
		memcpy(e->last_salt, e->head.salt, sizeof(e->last_salt));
		e->last_generation = e->head.generation;
	}
	return rc;
}
