/* SPDX-License-Identifier: BSD-3-Clause */
/* A rekey goes on with another journal. What the former one says will not be true any more, and a rekey that went on
 * from there would lose data: it is made void first, if its bdev can be had. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/crypto/internal.h"
#include "bdev_modules/crypto/rekey_journal.h"
#include "thread/worker.h"
#include "util/compiler.h"
#include "util/log.h"

struct former {
	struct worker_job job;
	struct bdev_desc *desc; /* claimed */
	struct vbdev_meta *meta;
	char user[256]; /* the crypto bdev */
	uint8_t salt[REKEY_SALT];
	uint32_t block;
	uint8_t header[REKEY_HEADER_STRIDE];
	int rc;
	void (*done)(void *arg);
	void *arg;
};

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

/* The header goes where the newest one is not. -ESTALE: it is not the journal that was meant. */
static int former_make_void(struct former *f)
{
	struct rekey_header found[2];
	const struct rekey_header *is[2];

	for (unsigned i = 0; i < 2; i++) {
		int rc = former_io(f, BDEV_IO_READ, i);
		if (rc != 0) {
			return rc;
		}
		is[i] = rekey_header_decode(f->header, &found[i]) ? &found[i] : NULL;
	}
	const struct rekey_header *newest = rekey_header_newest(is[0], is[1]);
	if (newest == NULL || memcmp(newest->salt, f->salt, sizeof(f->salt)) != 0) {
		return -ESTALE;
	}
	struct rekey_header none = *newest;
	none.generation++;
	none.state = REKEY_VOID;
	none.chunk_blocks = none.chunk_crc = 0;
	memset(f->header, 0, sizeof(f->header));
	rekey_header_encode(&none, f->header);
	int rc = former_io(f, BDEV_IO_WRITE, newest == &found[0]);
	return rc != 0 ? rc
		       : former_run(f, (struct vbdev_meta_op){.type = BDEV_IO_FLUSH,
							      .num_blocks = bdev_num_blocks(bdev_desc_bdev(f->desc))});
}

static void former_work(struct worker_job *job)
{
	struct former *f = container_of(job, struct former, job);

	f->rc = former_make_void(f);
}

static void former_closed(void *arg)
{
	struct former *f = arg;
	struct bdev_desc *desc = f->desc;

	free(f);
	bdev_close(desc); /* last: it may be all that the removal of its bdev waits for */
}

static void former_done(struct worker_job *job)
{
	struct former *f = container_of(job, struct former, job);
	const char *name = bdev_name(bdev_desc_bdev(f->desc));
	int rc = job->error != 0 ? job->error : f->rc;

	if (rc == 0) {
		log_notice("bdev %s: the former journal of its rekey, on bdev %s, is void", f->user, name);
	} else if (rc == -ESTALE) {
		log_notice("bdev %s: bdev %s does not have the former journal of its rekey any more", f->user, name);
	} else {
		log_warning("bdev %s: the former journal of its rekey, on bdev %s, cannot be made void: %s", f->user,
			    name, strerror(-rc));
	}
	f->done(f->arg);
	vbdev_meta_close(f->meta, former_closed, f);
}

/* It is closed soon in any case. */
static void former_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
}

void crypto_journal_make_void(const char *name, const uint8_t *salt, const char *user, void (*done)(void *arg),
			      void *arg)
{
	char error[BDEV_ERROR_MAX] = "out of memory";
	struct former *f = calloc(1, sizeof(*f));
	int rc = f != NULL ? vbdev_base_open(name, user, former_event, NULL, &f->desc, error) : -ENOMEM;

	if (rc == 0 && (rc = vbdev_meta_open(f->desc, user, &f->meta)) != 0) {
		bdev_close(f->desc);
	}
	if (rc != 0) {
		log_warning("bdev %s: the former journal of its rekey, on bdev %s, cannot be made void: %s", user, name,
			    error);
		free(f);
		done(arg);
		return;
	}
	snprintf(f->user, sizeof(f->user), "%s", user);
	memcpy(f->salt, salt, sizeof(f->salt));
	f->block = bdev_block_size(bdev_desc_bdev(f->desc));
	f->done = done;
	f->arg = arg;
	f->job = (struct worker_job){.work = former_work, .done = former_done};
	worker_run(NULL, &f->job);
}
