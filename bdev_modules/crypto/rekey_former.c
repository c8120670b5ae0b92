/* SPDX-License-Identifier: BSD-3-Clause */
/* A rekey goes on with another journal. What the former one says will not be true any more, and a rekey that went on
 * from there would lose data: it is made void first, if its bdev can be had, and otherwise when that comes back.
 *
 * Others may have used the bdev since, whose data it has then. So only a header of the journal is written over; and on
 * a bdev that has come back, only if it still has both. Nothing is written while the journal counts, by whatever name
 * of its bdev, or may be about to. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "bdev_modules/crypto/rekey_state.h"
#include "thread/worker.h"
#include "util/compiler.h"
#include "util/log.h"

/* One that could not be made void. */
struct lost_former {
	LIST_ENTRY(lost_former) link;
	char name[256]; /* of its bdev */
	char user[256]; /* the crypto bdev */
	uint8_t salt[REKEY_SALT];
};
static LIST_HEAD(, lost_former) lost_formers = LIST_HEAD_INITIALIZER(lost_formers);

struct former {
	struct worker_job job;
	LIST_ENTRY(former) link; /* while it is being made void */
	bool came_back;          /* both headers must be the journal's */
	struct bdev_desc *desc;  /* claimed, unless it is only looked at */
	struct vbdev_meta *meta;
	char user[256]; /* the crypto bdev */
	uint8_t salt[REKEY_SALT];
	uint32_t block;
	uint8_t header[REKEY_HEADER_STRIDE];
	int rc;
	void (*done)(void *arg);
	void *arg;
};
static LIST_HEAD(, former) becoming_void = LIST_HEAD_INITIALIZER(becoming_void);

/* --- Those that are to become void when their bdevs come back --- */

static struct lost_former *lost_former_find(const uint8_t *salt)
{
	struct lost_former *l;

	LIST_FOREACH (l, &lost_formers, link) {
		if (memcmp(l->salt, salt, sizeof(l->salt)) == 0) {
			return l;
		}
	}
	return NULL;
}

void crypto_former_forget(const uint8_t *salt)
{
	struct lost_former *l = lost_former_find(salt);

	if (l != NULL) {
		LIST_REMOVE(l, link);
		free(l);
	}
}

void crypto_former_fini(void)
{
	while (!LIST_EMPTY(&lost_formers)) {
		crypto_former_forget(LIST_FIRST(&lost_formers)->salt);
	}
}

static void former_failed(const char *name, const uint8_t *salt, const char *user, const char *why)
{
	struct lost_former *l = lost_former_find(salt);

	log_warning("bdev %s: the former journal of its rekey, on bdev %s, cannot be made void before that bdev comes "
		    "back: %s",
		    user, name, why);
	if (l == NULL) {
		l = calloc(1, sizeof(*l));
		if (l == NULL) {
			return; /* it has been said that it is not void */
		}
		LIST_INSERT_HEAD(&lost_formers, l, link);
	}
	snprintf(l->name, sizeof(l->name), "%s", name);
	snprintf(l->user, sizeof(l->user), "%s", user);
	memcpy(l->salt, salt, sizeof(l->salt));
}

static bool salt_counts(const uint8_t *salt)
{
	bool counts = false;

	for (const struct crypto_rekey *r = crypto_rekey_next(NULL); r != NULL; r = crypto_rekey_next(r)) {
		counts |= memcmp(r->journal_salt, salt, sizeof(r->journal_salt)) == 0;
	}
	return counts;
}

static bool a_rekey_begins(void)
{
	bool begins = false;

	for (const struct crypto_rekey *r = crypto_rekey_next(NULL); r != NULL; r = crypto_rekey_next(r)) {
		begins |= r->begins;
	}
	return begins;
}

/* --- Worker thread --- */

static int former_run(struct former *f, struct vbdev_meta_op op)
{
	op.timeout_us = crypto_rekey_patience.journal_us;
	return crypto_rekey_io(f->meta, &op);
}

static int former_io(struct former *f, enum bdev_io_type type, unsigned slot)
{
	return former_run(f, (struct vbdev_meta_op){.type = type,
						    .offset_blocks = slot * REKEY_HEADER_STRIDE / f->block,
						    .num_blocks = rekey_header_io_bytes(f->block) / f->block,
						    .data = f->header});
}

static bool former_has(const struct former *f, const struct rekey_header *h)
{
	return h != NULL && memcmp(h->salt, f->salt, sizeof(f->salt)) == 0;
}

/* newest: that of the journal. *slot: of a header of the journal, not of the newest one if it has two. -ESTALE: it is
 * not the journal that was meant, or not all of it is there that must be. */
static int former_read(struct former *f, struct rekey_header *newest, unsigned *slot)
{
	struct rekey_header found[2];
	const struct rekey_header *is[2], *last;

	for (unsigned i = 0; i < 2; i++) {
		int rc = former_io(f, BDEV_IO_READ, i);
		if (rc != 0) {
			return rc;
		}
		is[i] = rekey_header_decode(f->header, &found[i]) ? &found[i] : NULL;
	}
	last = rekey_header_newest(is[0], is[1]);
	bool has_both = former_has(f, is[0]) && former_has(f, is[1]);
	if (!former_has(f, last) || (f->came_back && !has_both)) {
		return -ESTALE;
	}
	*newest = *last;
	*slot = has_both ? last == &found[0] : last == &found[1];
	return 0;
}

/* What the header goes over is one of the journal: if it is the only one and is torn, there is none, which will do. */
static int former_make_void(struct former *f)
{
	struct rekey_header none;
	unsigned slot;
	int rc = former_read(f, &none, &slot);

	if (rc != 0) {
		return rc;
	}
	none.generation++;
	none.state = REKEY_VOID;
	none.chunk_blocks = none.chunk_crc = 0;
	memset(f->header, 0, sizeof(f->header));
	rekey_header_encode(&none, f->header);
	rc = former_io(f, BDEV_IO_WRITE, slot);
	return rc != 0 ? rc
		       : former_run(f, (struct vbdev_meta_op){.type = BDEV_IO_FLUSH,
							      .num_blocks = bdev_num_blocks(bdev_desc_bdev(f->desc))});
}

static void former_work(struct worker_job *job)
{
	struct former *f = container_of(job, struct former, job);

	f->rc = former_make_void(f);
}

static void former_look(struct worker_job *job)
{
	struct former *f = container_of(job, struct former, job);
	struct rekey_header newest;
	unsigned slot;

	f->rc = former_read(f, &newest, &slot);
}

/* --- Control thread --- */

static void former_closed(void *arg)
{
	struct former *f = arg;
	struct bdev_desc *desc = f->desc;

	free(f);
	bdev_close(desc); /* last: it may be all that the removal of its bdev waits for */
}

static void former_is_another(struct former *f)
{
	log_notice("bdev %s: bdev %s does not have the former journal of its rekey any more, or not all of it: it is "
		   "left as it is",
		   f->user, bdev_name(bdev_desc_bdev(f->desc)));
	crypto_former_forget(f->salt);
}

static void former_done(struct worker_job *job)
{
	struct former *f = container_of(job, struct former, job);
	const char *name = bdev_name(bdev_desc_bdev(f->desc));
	int rc = job->error != 0 ? job->error : f->rc;

	LIST_REMOVE(f, link);
	if (rc == 0) {
		log_notice("bdev %s: the former journal of its rekey, on bdev %s, is void", f->user, name);
		crypto_former_forget(f->salt);
	} else if (rc == -ESTALE) {
		former_is_another(f);
	} else {
		former_failed(name, f->salt, f->user, strerror(-rc));
	}
	f->done(f->arg);
	vbdev_meta_close(f->meta, former_closed, f);
}

/* It is closed soon in any case. */
static void former_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
}

/* Has a worker thread work on what is open. -ENOMEM: it is closed. */
static int former_start(struct former *f, const uint8_t *salt, const char *user, void (*work)(struct worker_job *),
			void (*done)(struct worker_job *))
{
	if (vbdev_meta_open(f->desc, user, &f->meta) != 0) {
		bdev_close(f->desc);
		return -ENOMEM;
	}
	snprintf(f->user, sizeof(f->user), "%s", user);
	memcpy(f->salt, salt, sizeof(f->salt));
	f->block = bdev_block_size(bdev_desc_bdev(f->desc));
	f->job = (struct worker_job){.work = work, .done = done};
	worker_run(NULL, &f->job);
	return 0;
}

static int former_open(struct former *f, const char *name, const char *user, char *error)
{
	const struct bdev *b = bdev_find(name);
	int rc = b != NULL ? crypto_journal_check_room(b, error) : 0;

	return rc != 0 ? rc : vbdev_base_open(name, user, former_event, NULL, &f->desc, error);
}

static void former_becomes_void(const char *name, const uint8_t *salt, const char *user, bool came_back,
				void (*done)(void *arg), void *arg)
{
	char error[BDEV_ERROR_MAX] = "out of memory";
	struct former *f = calloc(1, sizeof(*f));
	int rc = f != NULL ? former_open(f, name, user, error) : -ENOMEM;

	if (rc == 0) {
		f->came_back = came_back;
		f->done = done;
		f->arg = arg;
		rc = former_start(f, salt, user, former_work, former_done);
	}
	if (rc == 0) {
		LIST_INSERT_HEAD(&becoming_void, f, link);
	} else {
		former_failed(name, salt, user, error);
		free(f);
		done(arg);
	}
}

void crypto_journal_make_void(const char *name, const uint8_t *salt, const char *user, void (*done)(void *arg),
			      void *arg)
{
	if (salt_counts(salt)) { /* by another name of its bdev */
		done(arg);
	} else {
		former_becomes_void(name, salt, user, false, done, arg);
	}
}

unsigned crypto_former_salts(uint8_t (*salts)[REKEY_SALT], unsigned max)
{
	const struct former *f;
	unsigned n = 0;

	LIST_FOREACH (f, &becoming_void, link) {
		if (n < max) {
			memcpy(salts[n], f->salt, sizeof(f->salt));
		}
		n++;
	}
	return n;
}

/* --- A bdev has come back. It may be another one by the same name: only that which has the journal is claimed. --- */

static void lost_former_is_void(void *arg)
{
}

static void former_look_closed(void *arg)
{
	struct former *f = arg;
	char name[256];

	snprintf(name, sizeof(name), "%s", bdev_name(bdev_desc_bdev(f->desc)));
	bdev_close(f->desc);
	/* Meanwhile it may have become the journal that counts, or is about to. */
	if (f->rc == 0 && lost_former_find(f->salt) != NULL) {
		if (a_rekey_begins()) {
			former_failed(name, f->salt, f->user, "a rekey is beginning, perhaps with it");
		} else {
			former_becomes_void(name, f->salt, f->user, true, lost_former_is_void, NULL);
		}
	} else if (f->rc != 0 && f->rc != -ESTALE) {
		former_failed(name, f->salt, f->user, strerror(-f->rc));
	}
	free(f);
}

static void former_looked_at(struct worker_job *job)
{
	struct former *f = container_of(job, struct former, job);

	f->rc = job->error != 0 ? job->error : f->rc;
	if (f->rc == -ESTALE) {
		former_is_another(f);
	}
	vbdev_meta_close(f->meta, former_look_closed, f);
}

void crypto_former_examine(const struct bdev *b)
{
	char error[BDEV_ERROR_MAX];
	const struct lost_former *l;

	LIST_FOREACH (l, &lost_formers, link) {
		struct former *f;
		if (bdev_find(l->name) != b || crypto_journal_check_room(b, error) != 0 ||
		    (f = calloc(1, sizeof(*f))) == NULL) {
			continue;
		}
		f->came_back = true;
		if (bdev_open(l->name, false, former_event, NULL, &f->desc) != 0 ||
		    former_start(f, l->salt, l->user, former_look, former_looked_at) != 0) {
			free(f);
			log_warning("bdev %s: whether bdev %s has the former journal of its rekey cannot be told: it "
				    "cannot be opened",
				    l->user, l->name);
		}
	}
}
