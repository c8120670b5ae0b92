/* SPDX-License-Identifier: BSD-3-Clause */
/* Rekeys of crypto bdevs: the control thread's side of rekey_engine.h. The engine runs on a worker thread of its own,
 * which asks the control thread to hold I/O and to let it go on, and does its own I/O by way of bdev/vbdev/meta.h.
 *
 *     control thread			worker thread
 *     rekey_start()			rekey_work()
 *					rekey_engine_begin()
 *     rekey_begun_message()	<------		the former journal becomes void
 *		    ------>
 *					rekey_engine_run(), for each chunk:
 *     rekey_hold_message()	<------		hold	(channels, until nothing is in flight there)
 *		    ------>
 *     rekey_moved_message()	<------		moved	(channels)
 *		    ------>
 *     rekey_work_done()	<------	 all blocks, stopped, or failed
 *     rekey_closed()		the journal's bdev is free; the rekey has ended, or waits to be continued */
#include "bdev_modules/crypto/crypto.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bdev/vbdev/meta.h"
#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/keys.h"
#include "bdev_modules/crypto/rekey_state.h"
#include "thread/worker.h"
#include "util/compiler.h"
#include "util/log.h"
#include "util/secret.h"

#define DRAIN_POLL_US 500
#define ABORT_TRIES   100 /* a reset of the base ends the I/O of the rekey too: it is tried again */
#define NS_PER_S      1000000000ull

struct crypto_rekey_patience crypto_rekey_patience = {.journal_us = 10000000, .abort_us = 50000};

static TAILQ_HEAD(, crypto_rekey) rekeys = TAILQ_HEAD_INITIALIZER(rekeys);
static LIST_HEAD(, rekey_journal) late_journals = LIST_HEAD_INITIALIZER(late_journals);
static bdev_crypto_rekey_news_fn news_fn;

void bdev_crypto_observe_rekeys(bdev_crypto_rekey_news_fn fn)
{
	news_fn = fn;
}

static const char *rekey_bdev_name(const struct crypto_rekey *r)
{
	return r->c->v.bdev.name;
}

static uint64_t rekey_num_blocks(const struct crypto_rekey *r)
{
	return bdev_num_blocks(&r->c->v.bdev);
}

/* --- Keys of channels. Control thread. --- */

static int rekey_publish(struct crypto_rekey *r, uint64_t position, uint64_t held_first, uint64_t held_end, bool fails)
{
	struct crypto_keys *keys = &r->keys[r->published ^ 1];

	*keys = (struct crypto_keys){.key = r->c->keys->key,
				     .next = r->next,
				     .position = position,
				     .held_first = held_first,
				     .held_end = held_end,
				     .held_fails = fails};
	int rc = crypto_keys_publish(r->c, keys);
	if (rc == 0) {
		r->published ^= 1;
	}
	return rc;
}

/* What is held fails, because nobody knows how long it would wait; or waits again. */
static void rekey_set_held_fails(struct crypto_rekey *r, bool fails)
{
	struct crypto_keys now = *r->c->keys;

	if (now.next != NULL && now.held_first != now.held_end && now.held_fails != fails) {
		(void)rekey_publish(r, now.position, now.held_first, now.held_end, fails);
	}
}

/* --- What the worker asks --- */

static void rekey_ask(struct crypto_rekey *r, void (*fn)(struct thread_msg *msg))
{
	thread_post(thread_control(), &r->msg, fn);
	while (sem_wait(&r->answered) != 0) { /* a signal */
	}
}

static void rekey_answer(struct crypto_rekey *r, int rc)
{
	r->rc = rc;
	sem_post(&r->answered);
}

/* Control thread: until nothing is in flight in the range. */
static void rekey_drain(void *arg)
{
	struct crypto_rekey *r = arg;
	const struct crypto_keys *keys = r->c->keys;

	if (atomic_load(&r->stop)) {
		if (!r->engine.holds) { /* it may, after a failure */
			(void)rekey_publish(r, r->position, 0, 0, false);
		}
		rekey_answer(r, -ECANCELED);
	} else if (crypto_blocks_are_in_use(r->c, keys->held_first, keys->held_end - 1)) {
		thread_timer_start(&r->drain_timer, DRAIN_POLL_US);
	} else {
		rekey_answer(r, 0);
	}
}

static void rekey_hold_message(struct thread_msg *msg)
{
	struct crypto_rekey *r = container_of(msg, struct crypto_rekey, msg);
	uint64_t blocks = rekey_num_blocks(r), left = blocks > r->position ? blocks - r->position : 0;

	r->blocks = left < r->blocks ? (uint32_t)left : r->blocks;
	(void)rekey_publish(r, r->position, r->position, r->blocks != 0 ? r->position + r->blocks : UINT64_MAX, false);
	rekey_drain(r);
}

/* Whoever looked at the bdev when it came could not read it, and may have taken it for empty. */
static void rekey_examine_again(struct bdev *b)
{
	struct bdev_opts opts;

	bdev_get_opts(&opts);
	if (opts.auto_examine && bdev_get_state(b) == BDEV_READY) {
		(void)bdev_examine(b->name);
	}
}

static void rekey_moved_message(struct thread_msg *msg)
{
	struct crypto_rekey *r = container_of(msg, struct crypto_rekey, msg);
	struct bdev *unread = r->is_unreadable ? &r->c->v.bdev : NULL;

	r->is_unreadable = false;
	rekey_answer(r, rekey_publish(r, r->position, 0, 0, false));
	if (unread != NULL) {
		rekey_examine_again(unread);
	}
}

static void rekey_tell_begun(struct crypto_rekey *r, int rc)
{
	bdev_crypto_rekey_cb cb = r->begun_cb;

	r->begun_cb = NULL;
	if (cb != NULL) {
		cb(r->begun_arg, rc, r->error);
	}
}

static void rekey_begun(void *arg)
{
	struct crypto_rekey *r = arg;

	r->has_begun = true;
	log_notice("bdev %s: a rekey from key %s to key %s %s at block %lu of %lu; bdev %s has its journal",
		   rekey_bdev_name(r), crypto_key_name(r->c->keys->key), crypto_key_name(r->next),
		   r->how == REKEY_NEW ? "begins" : "goes on", r->engine.position, rekey_num_blocks(r),
		   r->journal_name);
	rekey_tell_begun(r, 0);
	rekey_answer(r, 0);
}

/* A late one can become void when its I/O has ended only. */
static bool journal_is_late(const char *bdev, const uint8_t *salt)
{
	struct rekey_journal *journal;

	LIST_FOREACH (journal, &late_journals, link) {
		if (journal->had_position && memcmp(journal->salt, salt, sizeof(journal->salt)) == 0) {
			log_warning("bdev %s: the former journal of its rekey, on bdev %s, becomes void when its last "
				    "I/O has ended",
				    journal->user, bdev);
			journal->is_former = true;
			return true;
		}
	}
	return false;
}

/* The former journal, of another bdev, has a position that will be wrong: the worker waits until it is void. */
static void rekey_begun_message(struct thread_msg *msg)
{
	struct crypto_rekey *r = container_of(msg, struct crypto_rekey, msg);
	const char *name = bdev_name(bdev_desc_bdev(r->journal->desc));
	char former[sizeof(r->journal_name)];
	uint8_t salt[REKEY_SALT];

	memcpy(former, r->journal_name, sizeof(former));
	memcpy(salt, r->journal_salt, sizeof(salt));
	snprintf(r->journal_name, sizeof(r->journal_name), "%s", name);
	memcpy(r->journal_salt, r->engine.head.salt, sizeof(salt));
	r->begins = false;
	crypto_former_forget(r->journal_salt);
	crypto_journal_warn(r->c, bdev_desc_bdev(r->journal->desc));
	if (strcmp(former, name) != 0) {
		log_warning("bdev %s: its rekey goes on with a journal on bdev %s: save the configuration; the one on "
			    "bdev %s is out of date, and whoever goes on with that loses data",
			    rekey_bdev_name(r), name, former);
	}
	/* Of one that has not begun, nobody knows which of the two is newer. One salt: it is the same journal. */
	if (strcmp(former, name) != 0 && r->has_begun && memcmp(salt, r->journal_salt, sizeof(salt)) != 0 &&
	    !journal_is_late(former, salt)) {
		crypto_journal_make_void(former, salt, rekey_bdev_name(r), rekey_begun, r);
	} else {
		rekey_begun(r);
	}
}

/* --- The engine's functions. Worker thread. --- */

int crypto_rekey_io(struct vbdev_meta *meta, struct vbdev_meta_op *op)
{
	int rc = vbdev_meta_run(meta, op);

	for (unsigned i = 0; i < ABORT_TRIES && (op->status & BDEV_STATUS_MASK) == NVME_SC_ABORT_REQ; i++) {
		nanosleep(&(struct timespec){.tv_nsec = crypto_rekey_patience.abort_us * 1000l}, NULL);
		rc = vbdev_meta_run(meta, op);
	}
	if (op->type == BDEV_IO_READ &&
	    (op->status & BDEV_STATUS_MASK) == BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_READ_ERROR)) {
		rc = -ENODATA;
	}
	return rc == -ECANCELED ? -EIO : rc; /* that would mean a stop, which nobody asked for */
}

static int rekey_base_io(struct crypto_rekey *r, enum bdev_io_type type, uint64_t lba, uint64_t blocks, void *data)
{
	struct vbdev_meta_op op = {.type = type, .offset_blocks = lba, .num_blocks = blocks, .data = data};

	return crypto_rekey_io(r->base_meta, &op);
}

/* It is to stop, and the chunk can be left as it is: the journal does not say yet that it is under way. */
static bool rekey_leaves_chunk(const struct crypto_rekey *r)
{
	return r->runs && !r->engine.holds && atomic_load(&r->stop);
}

static int rekey_base_read(void *ctx, uint64_t lba, uint32_t blocks, void *data)
{
	int rc = rekey_base_io(ctx, BDEV_IO_READ, lba, blocks, data);

	return rc == 0 && rekey_leaves_chunk(ctx) ? -ECANCELED : rc;
}

static int rekey_base_write(void *ctx, uint64_t lba, uint32_t blocks, const void *data)
{
	return rekey_base_io(ctx, BDEV_IO_WRITE, lba, blocks, (void *)(uintptr_t)data);
}

static uint64_t rekey_base_blocks(void *ctx)
{
	const struct crypto_rekey *r = ctx;

	return bdev_num_blocks(bdev_desc_bdev(r->c->v.base));
}

static int rekey_base_flush(void *ctx)
{
	const struct crypto_rekey *r = ctx;

	return rekey_base_io(ctx, BDEV_IO_FLUSH, 0, bdev_num_blocks(bdev_desc_bdev(r->c->v.base)), NULL);
}

/* One that got no answer in time may still be carried out: the journal is not used any more. */
static int rekey_journal_op(struct crypto_rekey *r, struct vbdev_meta_op *op)
{
	op->timeout_us = crypto_rekey_patience.journal_us;
	int rc = r->is_late ? -ETIMEDOUT : crypto_rekey_io(r->journal->meta, op);
	r->is_late |= rc == -ETIMEDOUT;
	return rc;
}

static int rekey_journal_io(struct crypto_rekey *r, enum bdev_io_type type, uint64_t offset, uint32_t bytes, void *data)
{
	uint32_t block = r->engine.journal_block;
	struct vbdev_meta_op op = {
		.type = type, .offset_blocks = offset / block, .num_blocks = bytes / block, .data = data};

	return rekey_journal_op(r, &op);
}

static int rekey_journal_read(void *ctx, uint64_t offset, uint32_t bytes, void *data)
{
	const struct crypto_rekey *r = ctx;

	return atomic_load(&r->stop) ? -ECANCELED : rekey_journal_io(ctx, BDEV_IO_READ, offset, bytes, data);
}

static int rekey_journal_write(void *ctx, uint64_t offset, uint32_t bytes, const void *data)
{
	return rekey_leaves_chunk(ctx) ? -ECANCELED
				       : rekey_journal_io(ctx, BDEV_IO_WRITE, offset, bytes, (void *)(uintptr_t)data);
}

static int rekey_journal_flush(void *ctx)
{
	struct crypto_rekey *r = ctx;
	struct vbdev_meta_op op = {.type = BDEV_IO_FLUSH,
				   .num_blocks = bdev_num_blocks(bdev_desc_bdev(r->journal->desc))};
	int rc = rekey_journal_op(r, &op);

	return rc == 0 && rekey_leaves_chunk(r) ? -ECANCELED : rc;
}

static int rekey_hold(void *ctx, uint64_t position, uint32_t max_blocks, uint32_t *blocks)
{
	struct crypto_rekey *r = ctx;

	r->position = position;
	r->blocks = max_blocks;
	rekey_ask(r, rekey_hold_message);
	*blocks = r->blocks;
	return r->rc;
}

static void rekey_moved(void *ctx, uint64_t position)
{
	struct crypto_rekey *r = ctx;

	r->position = position;
	rekey_ask(r, rekey_moved_message);
}

static uint64_t rekey_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static int rekey_pace(void *ctx, uint32_t bytes)
{
	struct crypto_rekey *r = ctx;
	uint64_t now = rekey_now_ns();

	if (r->mib_per_second != 0) {
		r->due_ns = (r->due_ns > now ? r->due_ns : now) + bytes * NS_PER_S / (r->mib_per_second << 20);
		struct timespec due = {.tv_sec = (time_t)(r->due_ns / NS_PER_S),
				       .tv_nsec = (long)(r->due_ns % NS_PER_S)};
		while (!atomic_load(&r->stop) && sem_clockwait(&r->pause, CLOCK_MONOTONIC, &due) != 0 &&
		       errno == EINTR) {
		}
	}
	return atomic_load(&r->stop) ? -ECANCELED : 0;
}

static const struct rekey_ops rekey_engine_ops = {.base_read = rekey_base_read,
						  .base_write = rekey_base_write,
						  .base_flush = rekey_base_flush,
						  .base_blocks = rekey_base_blocks,
						  .journal_read = rekey_journal_read,
						  .journal_write = rekey_journal_write,
						  .journal_flush = rekey_journal_flush,
						  .hold = rekey_hold,
						  .moved = rekey_moved,
						  .pace = rekey_pace};

static int rekey_engine_work(struct crypto_rekey *r)
{
	struct rekey_engine *e = &r->engine;
	int rc = e->chunk != NULL ? 0 : rekey_engine_init(e);

	if (rc != 0) {
		rekey_engine_fini(e);
		return rc;
	}
	rc = rekey_engine_begin(e, r->how);
	if (rc != 0) {
		return rc;
	}
	rekey_ask(r, rekey_begun_message);
	if (!e->holds) {
		rekey_moved(r, e->position); /* everything was held until the position was known */
	}
	r->runs = true;
	return rekey_engine_run(e);
}

static void rekey_work(struct worker_job *job)
{
	struct crypto_rekey *r = container_of(job, struct crypto_rekey, job);

	r->result = rekey_engine_work(r);
}

/* --- The end --- */

static void journal_free(struct rekey_journal *journal)
{
	bdev_close(journal->desc);
	free(journal);
}

static void rekey_free(struct crypto_rekey *r)
{
	TAILQ_REMOVE(&rekeys, r, link);
	crypto_key_put(r->next);
	rekey_engine_fini(&r->engine);
	sem_destroy(&r->answered);
	sem_destroy(&r->pause);
	free(r);
}

static void rekey_tell_stopped(bdev_crypto_rekey_cb cb, void *arg)
{
	if (cb != NULL) {
		cb(arg, 0, "");
	}
}

/* All blocks have the key, or, of one that has not begun, none has. */
static void rekey_settle(struct crypto_rekey *r, struct crypto_key *key)
{
	struct crypto_bdev *c = r->c;
	struct crypto_key *before = c->keys->key;

	c->single = (struct crypto_keys){.key = key};
	crypto_key_hold(key);
	if (crypto_keys_publish(c, &c->single) != 0) {
		/* Cannot be: each has it already. */
		log_error("bdev %s: no memory for a key schedule on some thread", c->v.bdev.name);
	}
	crypto_key_put(before);
	c->rekey = NULL;
	rekey_free(r);
	crypto_key_sweep();
}

static void rekey_news(const struct crypto_rekey *r, enum bdev_crypto_rekey_news news, const char *reason)
{
	if (news_fn != NULL) {
		news_fn(rekey_bdev_name(r), news, reason);
	}
}

static void rekey_succeeded(struct crypto_rekey *r)
{
	char reason[BDEV_ERROR_MAX];

	snprintf(reason, sizeof(reason), "all blocks have key %.200s", crypto_key_name(r->next));
	log_notice("bdev %s: the rekey has ended: %s; save the configuration, which names the old one",
		   rekey_bdev_name(r), reason);
	struct bdev *unread = r->is_unreadable ? &r->c->v.bdev : NULL;
	rekey_news(r, BDEV_CRYPTO_REKEY_ENDED, reason);
	rekey_tell_begun(r, 0);
	rekey_settle(r, r->next);
	if (unread != NULL) {
		rekey_examine_again(unread);
	}
}

/* One that has not begun: no block has the new key, and no configuration may name a journal that may have nothing. */
static void rekey_undo(struct crypto_rekey *r, int rc)
{
	bdev_crypto_rekey_cb cb = r->begun_cb;
	void *arg = r->begun_arg;
	char error[BDEV_ERROR_MAX];

	memcpy(error, r->error, sizeof(error));
	rekey_settle(r, r->c->keys->key);
	if (cb != NULL) {
		cb(arg, rc, error);
	}
}

static bool rekey_has_no_block(const struct crypto_rekey *r)
{
	return r->how == REKEY_NEW && !r->has_begun;
}

static void rekey_stopped(struct crypto_rekey *r)
{
	if (r->why_ends != NULL) {
		snprintf(r->error, sizeof(r->error), "%s", r->why_ends);
	}
	log_notice("bdev %s: the rekey was stopped at block %lu of %lu%s%s", rekey_bdev_name(r), r->engine.position,
		   rekey_num_blocks(r), r->why_ends != NULL ? ": " : "", r->why_ends != NULL ? r->why_ends : "");
	if (rekey_has_no_block(r)) {
		rekey_undo(r, -ECANCELED);
		return;
	}
	rekey_set_held_fails(r, true);
	rekey_tell_begun(r, -ECANCELED);
	if (r->lost_journal) {
		rekey_news(r, BDEV_CRYPTO_REKEY_FAILED, r->error);
	}
}

/* In words: the blocks whose I/O fails. */
static void rekey_say_held(const struct crypto_rekey *r, char *text, size_t size)
{
	const struct crypto_keys *keys = r->c->keys;
	uint64_t blocks = rekey_num_blocks(r), end = keys->held_end < blocks ? keys->held_end : blocks;

	text[0] = 0;
	if (keys->held_first < end) {
		snprintf(text, size, ", and I/O of blocks %lu to %lu fails", keys->held_first, end - 1);
	}
}

static void rekey_failed(struct crypto_rekey *r, int rc)
{
	char held[96];

	snprintf(r->error, sizeof(r->error), "%s", r->engine.error[0] != 0 ? r->engine.error : strerror(-rc));
	rekey_say_held(r, held, sizeof(held));
	log_error("bdev %s: the rekey has failed%s: %s", rekey_bdev_name(r), held, r->error);
	if (rekey_has_no_block(r)) {
		rekey_undo(r, rc);
		return;
	}
	rekey_set_held_fails(r, true);
	rekey_news(r, BDEV_CRYPTO_REKEY_FAILED, r->error);
	rekey_tell_begun(r, rc);
}

/* The worker has ended, and the base is free; journal: what is to be closed last, or NULL. */
static void rekey_closed(struct crypto_rekey *r, struct rekey_journal *journal)
{
	struct crypto_bdev *c = r->c;
	bdev_crypto_rekey_cb cb = r->stopped_cb;
	void *arg = r->stopped_arg;
	bool destructs = r->is_destructing;

	r->stopped_cb = NULL;
	r->journal = NULL;
	if (journal != NULL) {
		journal->r = NULL; /* which may be gone soon */
	}
	r->is_active = r->begins = false;
	if (!r->runs) { /* the journal that counts is the one before, and may be lost */
		r->lost_journal |= r->lost_before && (r->result != -ECANCELED || r->why_ends != NULL);
	}
	if (r->result >= 0) {
		rekey_succeeded(r);
	} else if (r->result == -ECANCELED) {
		rekey_stopped(r);
	} else {
		rekey_failed(r, r->result);
	}
	rekey_tell_stopped(cb, arg);
	if (destructs) {
		vbdev_destruct_end(&c->v);
	}
	if (journal != NULL) {
		journal_free(journal); /* last: it may be all that the removal of its bdev waits for */
	}
}

static void journal_is_void(void *arg)
{
}

/* The I/O of a journal has ended that was late: its rekey goes on with it, or has another one. */
static void late_journal_closed(struct rekey_journal *journal)
{
	struct rekey_journal late = *journal;
	char name[256];

	snprintf(name, sizeof(name), "%s", bdev_name(bdev_desc_bdev(journal->desc)));
	LIST_REMOVE(journal, link);
	journal_free(journal);
	const struct bdev *b = bdev_find(name);
	if (late.is_former) {
		crypto_journal_make_void(name, late.salt, late.user, journal_is_void, NULL);
	} else if (b != NULL && bdev_get_state(b) == BDEV_READY) {
		crypto_rekey_examine(b);
	}
}

static void rekey_journal_meta_closed(void *arg)
{
	struct rekey_journal *journal = arg;

	if (journal->r != NULL) {
		rekey_closed(journal->r, journal);
	} else {
		late_journal_closed(journal);
	}
}

/* Its I/O may end late, or never: the rekey does not wait for that, but goes on when it has ended, unless it was asked
 * to stop. */
static void journal_leave(struct crypto_rekey *r, struct rekey_journal *journal)
{
	journal->r = NULL;
	journal->had_position = strcmp(bdev_name(bdev_desc_bdev(journal->desc)), r->journal_name) == 0;
	memcpy(journal->salt, r->journal_salt, sizeof(journal->salt));
	snprintf(journal->user, sizeof(journal->user), "%s", rekey_bdev_name(r));
	LIST_INSERT_HEAD(&late_journals, journal, link);
	r->lost_journal |= journal->had_position && !atomic_load(&r->stop);
	rekey_closed(r, NULL);
}

static void rekey_base_meta_closed(void *arg)
{
	struct crypto_rekey *r = arg;
	struct rekey_journal *journal = r->journal;

	vbdev_meta_close(journal->meta, rekey_journal_meta_closed, journal);
	if (r->is_late) {
		journal_leave(r, journal);
	}
}

static void rekey_work_done(struct worker_job *job)
{
	struct crypto_rekey *r = container_of(job, struct crypto_rekey, job);

	if (job->error != 0) {
		r->result = job->error;
	}
	if (r->result < 0) {
		rekey_set_held_fails(r, true);
	}
	vbdev_meta_close(r->base_meta, rekey_base_meta_closed, r);
}

/* --- The beginning --- */

/* False: it was asked to already, for another reason, which counts. */
static bool rekey_stop(struct crypto_rekey *r, const char *why)
{
	if (atomic_exchange(&r->stop, true)) {
		return false;
	}
	r->why_ends = why;
	sem_post(&r->pause);
	return true;
}

static void rekey_journal_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct crypto_rekey *r = ((const struct rekey_journal *)arg)->r;

	if (event == BDEV_EVENT_REMOVE && r != NULL) {
		/* One that was stopped does not go on when the journal comes back. */
		if (!r->is_active || rekey_stop(r, "the bdev of its journal was removed")) {
			r->lost_journal = true;
		}
	}
}

/* Gives the journal's bdev back. */
static void journal_close(struct crypto_rekey *r)
{
	if (r->journal != NULL) {
		journal_free(r->journal);
		r->journal = NULL;
	}
}

static int journal_open(struct crypto_rekey *r, const char *name, char *error)
{
	const struct bdev *journal = bdev_find(name);
	int rc = journal != NULL ? crypto_journal_check_place(r->c, journal, error) : 0;

	rc = rc != 0 ? rc : crypto_rekey_check_base(r->c, error);
	if (rc != 0) {
		return rc;
	}
	r->journal = calloc(1, sizeof(*r->journal));
	if (r->journal == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	r->journal->r = r;
	rc = vbdev_base_open(name, rekey_bdev_name(r), rekey_journal_event, r->journal, &r->journal->desc, error);
	if (rc != 0) {
		free(r->journal);
		r->journal = NULL;
		return rc;
	}
	const struct bdev *opened = bdev_desc_bdev(r->journal->desc);
	rc = crypto_journal_check(r->c, opened, error);
	if (rc != 0) {
		journal_close(r);
		return rc;
	}
	if (r->journal_name[0] == 0) {
		snprintf(r->journal_name, sizeof(r->journal_name), "%s", bdev_name(opened));
	}
	r->engine.journal_block = bdev_block_size(opened);
	r->lost_before = r->lost_journal;
	r->lost_journal = false;
	return 0;
}

static struct crypto_rekey *rekey_new(struct crypto_bdev *c, struct crypto_key *next)
{
	const struct bdev *base = bdev_desc_bdev(c->v.base);
	struct crypto_rekey *r = calloc(1, sizeof(*r));

	if (r == NULL) {
		return NULL;
	}
	r->c = c;
	r->next = next;
	crypto_key_hold(next);
	r->engine = (struct rekey_engine){.ops = &rekey_engine_ops,
					  .ctx = r,
					  .block_size = bdev_block_size(base),
					  .chunk_blocks = REKEY_CHUNK_BYTES / bdev_block_size(base)};
	r->engine.old_secret = crypto_key_secret(c->keys->key, &r->engine.old_bytes);
	r->engine.new_secret = crypto_key_secret(next, &r->engine.new_bytes);
	if (!base->has_random_uuid) {
		memcpy(r->engine.base_uuid, base->uuid, sizeof(r->engine.base_uuid));
	}
	snprintf(r->engine.base_name, sizeof(r->engine.base_name), "%.*s", (int)sizeof(r->engine.base_name) - 1,
		 bdev_name(base));
	sem_init(&r->answered, 0, 0);
	sem_init(&r->pause, 0, 0);
	r->drain_timer = (struct thread_timer){.fn = rekey_drain, .arg = r};
	TAILQ_INSERT_TAIL(&rekeys, r, link);
	return r;
}

/* Of journals that somebody else still writes to, which may be found by another name. */
static int rekey_note_written(struct rekey_engine *e)
{
	const struct rekey_journal *journal;
	unsigned n = crypto_former_salts(e->written, REKEY_WRITTEN_MAX);

	LIST_FOREACH (journal, &late_journals, link) {
		if (journal->had_position && n < REKEY_WRITTEN_MAX) {
			memcpy(e->written[n], journal->salt, sizeof(journal->salt));
		}
		n += journal->had_position;
	}
	e->num_written = n;
	return n <= REKEY_WRITTEN_MAX ? 0 : -EBUSY;
}

/* The journal is open. On failure it is not any more. */
static int rekey_start(struct crypto_rekey *r, enum rekey_begin how, char *error)
{
	int rc = rekey_note_written(&r->engine);

	if (rc != 0) {
		journal_close(r);
		return bdev_error(error, rc, "more than %u journals of rekeys do not answer", REKEY_WRITTEN_MAX);
	}
	rc = vbdev_meta_open(r->c->v.base, rekey_bdev_name(r), &r->base_meta);
	if (rc == 0 && (rc = vbdev_meta_open(r->journal->desc, rekey_bdev_name(r), &r->journal->meta)) != 0) {
		vbdev_meta_close(r->base_meta, free, NULL);
	}
	if (rc != 0) {
		journal_close(r);
		return bdev_error(error, rc, "out of memory");
	}
	const char *name = bdev_name(bdev_desc_bdev(r->journal->desc));
	r->engine.is_elsewhere =
		r->has_begun && strcmp(name, r->journal_name) != 0 && bdev_find(r->journal_name) != NULL;
	r->how = how;
	r->is_active = r->begins = true;
	r->runs = r->is_late = false;
	r->why_ends = NULL;
	r->error[0] = r->engine.error[0] = 0;
	r->due_ns = 0;
	atomic_store(&r->stop, false);
	while (sem_trywait(&r->pause) == 0) { /* of an earlier stop */
	}
	rekey_set_held_fails(r, false);
	r->job = (struct worker_job){.work = rekey_work, .done = rekey_work_done};
	worker_run(NULL, &r->job);
	return 0;
}

static struct crypto_bdev *rekey_find_bdev(const char *name, char *error)
{
	struct bdev *b = bdev_crypto_find(name);

	if (b == NULL || bdev_get_state(b) > BDEV_READY) {
		(void)bdev_error(error, -ENODEV, "there is no crypto bdev '%.200s'", name);
		return NULL;
	}
	return (struct crypto_bdev *)b;
}

static bool keys_are_the_same(const struct crypto_key *a, const struct crypto_key *b)
{
	size_t a_bytes, b_bytes;
	const uint8_t *a_secret = crypto_key_secret(a, &a_bytes), *b_secret = crypto_key_secret(b, &b_bytes);

	return a_bytes == b_bytes && secret_equal(a_secret, b_secret, a_bytes);
}

static int rekey_check(const struct crypto_bdev *c, const struct crypto_key *next, char *error)
{
	const struct crypto_rekey *r = c->rekey;

	if (r != NULL && r->is_active) {
		return bdev_error(error, -EBUSY, "bdev '%.100s' has a rekey under way, to key '%.100s'", c->v.bdev.name,
				  crypto_key_name(r->next));
	}
	if (r != NULL && r->next != next) {
		return bdev_error(error, -EBUSY,
				  "bdev '%.80s' has a rekey to key '%.80s' that has not ended: only that can go on",
				  c->v.bdev.name, crypto_key_name(r->next));
	}
	if (c->keys->key != next && keys_are_the_same(c->keys->key, next)) {
		return bdev_error(error, -EEXIST,
				  "keys '%.100s' and '%.100s' are the same: whoever knows the one has the other",
				  crypto_key_name(c->keys->key), crypto_key_name(next));
	}
	if (c->keys->key == next) {
		return bdev_error(error, -EEXIST, "bdev '%.100s' has key '%.100s' already", c->v.bdev.name,
				  crypto_key_name(next));
	}
	return 0;
}

/* A first one: no block has the new key. */
static int rekey_start_new(struct crypto_bdev *c, struct crypto_key *next, const struct bdev_crypto_rekey_opts *opts,
			   char *error)
{
	struct crypto_rekey *r = rekey_new(c, next);

	if (r == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	int rc = journal_open(r, opts->journal_bdev_name, error);
	if (rc == 0 && (rc = rekey_publish(r, 0, 0, 0, false)) != 0) {
		journal_close(r);
		(void)bdev_error(error, rc, "no memory for a key schedule on some thread");
	}
	if (rc != 0) {
		rekey_free(r);
		return rc;
	}
	c->rekey = r;
	rc = rekey_start(r, REKEY_NEW, error);
	if (rc != 0) {
		rekey_settle(r, c->keys->key);
	}
	return rc;
}

int bdev_crypto_rekey(const struct bdev_crypto_rekey_opts *opts, bdev_crypto_rekey_cb begun, void *arg, char *error)
{
	struct crypto_bdev *c = rekey_find_bdev(opts->name, error);
	struct crypto_key *next = crypto_key_find(opts->key_name);

	if (c == NULL) {
		return -ENODEV;
	}
	if (next == NULL) {
		return bdev_error(error, -ENOENT, "key_name '%.150s': there is no such key (accel_crypto_key_create)",
				  opts->key_name);
	}
	int rc = rekey_check(c, next, error);
	if (rc == 0 && c->rekey == NULL) {
		rc = rekey_start_new(c, next, opts, error);
	} else if (rc == 0) {
		rc = journal_open(c->rekey, opts->journal_bdev_name, error);
		rc = rc != 0 ? rc : rekey_start(c->rekey, c->rekey->has_begun ? REKEY_CONTINUE : REKEY_RESUME, error);
	}
	if (rc == 0) {
		c->rekey->mib_per_second = opts->mib_per_second;
		c->rekey->begun_cb = begun;
		c->rekey->begun_arg = arg;
	}
	return rc;
}

int bdev_crypto_rekey_stop(const char *name, bdev_crypto_rekey_cb stopped, void *arg, char *error)
{
	struct crypto_bdev *c = rekey_find_bdev(name, error);

	if (c == NULL) {
		return -ENODEV;
	}
	struct crypto_rekey *r = c->rekey;
	if (r != NULL && !r->is_active && r->lost_journal) {
		r->lost_journal = false;
		log_notice("bdev %s: the rekey does not wait for its journal any more", name);
		rekey_tell_stopped(stopped, arg);
		return 0;
	}
	if (r == NULL || !r->is_active) {
		return bdev_error(error, -ENOENT, "bdev '%.150s' has no rekey under way", name);
	}
	if (r->stopped_cb != NULL) {
		return bdev_error(error, -EBUSY, "the rekey of bdev '%.150s' is being stopped already", name);
	}
	r->stopped_cb = stopped;
	r->stopped_arg = arg;
	rekey_stop(r, NULL);
	return 0;
}

/* --- For the bdev --- */

int crypto_rekey_prepare(struct crypto_bdev *c, const struct bdev_crypto_opts *opts, char *error)
{
	struct crypto_key *next = crypto_key_find(opts->rekey_key_name);

	if (next == NULL) {
		return bdev_error(error, -ENOENT,
				  "rekey_key_name '%.150s': there is no such key (accel_crypto_key_create)",
				  opts->rekey_key_name);
	}
	struct crypto_rekey *r = rekey_new(c, next);
	if (r == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	r->mib_per_second = opts->rekey_mib_per_second;
	r->how = REKEY_RESUME;
	int rc = journal_open(r, opts->rekey_journal_bdev_name, error);
	if (rc != 0) {
		rekey_free(r);
		return rc;
	}
	c->rekey = r;
	/* Which blocks have which key is not known before the journal has been read. */
	return rekey_publish(r, 0, 0, UINT64_MAX, false);
}

void crypto_rekey_resume(struct crypto_bdev *c)
{
	char error[BDEV_ERROR_MAX];
	struct crypto_rekey *r = c->rekey;

	r->is_unreadable = true;
	if (r->lost_journal) { /* as soon as it was open */
		journal_close(r);
		rekey_set_held_fails(r, true);
	} else if (rekey_start(r, REKEY_RESUME, error) != 0) {
		snprintf(r->engine.error, sizeof(r->engine.error), "%s", error);
		rekey_failed(r, -ENOMEM);
	}
}

bool crypto_rekey_is_busy(struct vbdev *v)
{
	struct crypto_rekey *r = ((struct crypto_bdev *)v)->rekey;

	if (r == NULL || !r->is_active) {
		return false;
	}
	r->is_destructing = true;
	rekey_stop(r, "the bdev was deleted");
	return true;
}

void crypto_rekey_free(struct crypto_bdev *c)
{
	if (c->rekey != NULL) {
		journal_close(c->rekey);
		rekey_free(c->rekey);
		c->rekey = NULL;
	}
}

void crypto_rekey_base_removed(const struct crypto_bdev *c)
{
	if (c->rekey != NULL && c->rekey->is_active) {
		rekey_stop(c->rekey, "the base was removed");
	}
}

void crypto_rekey_examine(const struct bdev *b)
{
	char error[BDEV_ERROR_MAX];
	struct crypto_rekey *r;

	TAILQ_FOREACH (r, &rekeys, link) {
		if (r->is_active || !r->lost_journal || bdev_find(r->journal_name) != b ||
		    bdev_get_state(&r->c->v.bdev) > BDEV_READY) {
			continue;
		}
		int rc = journal_open(r, r->journal_name, error);
		rc = rc != 0 ? rc : rekey_start(r, r->has_begun ? REKEY_RETURN : REKEY_RESUME, error);
		if (rc != 0) {
			log_error("bdev %s: the rekey cannot go on, although its journal is there: %s",
				  rekey_bdev_name(r), error);
		}
	}
}

const struct crypto_rekey *crypto_rekey_next(const struct crypto_rekey *after)
{
	return after == NULL ? TAILQ_FIRST(&rekeys) : TAILQ_NEXT(after, link);
}
