/* SPDX-License-Identifier: BSD-3-Clause */
/* What is known of a rekey: of rekey.c and rekey_status.c only. */
#ifndef BDEV_CRYPTO_REKEY_STATE_H
#define BDEV_CRYPTO_REKEY_STATE_H

#include <semaphore.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "bdev_modules/crypto/crypto.h"
#include "bdev_modules/crypto/rekey_engine.h"
#include "thread/worker.h"

struct crypto_bdev;

/* The bdev of a journal, open and claimed. It may outlive the rekey that used it: until an I/O has ended that was given
 * up, nobody else may use the bdev, where that may still land. */
struct rekey_journal {
	struct crypto_rekey *r; /* NULL: that does not wait for it */
	/* Of one that is late: */
	LIST_ENTRY(rekey_journal) link;
	uint8_t salt[REKEY_SALT]; /* of the journal that counted then */
	char user[256];           /* the crypto bdev */
	bool had_position;        /* it was the one that counted */
	bool is_former;           /* and another one does now: it becomes void */
	struct bdev_desc *desc;
	struct vbdev_meta *meta; /* while the worker runs */
};

struct crypto_rekey {
	struct crypto_bdev *c;
	struct rekey_engine engine; /* the worker's, while it runs */
	struct crypto_key *next;    /* held */
	struct crypto_keys keys[2]; /* published in turn */
	unsigned published;
	uint64_t mib_per_second; /* 0: no limit */
	char journal_name[256];  /* of the bdev that the rekey was begun or went on with last */
	uint8_t journal_salt[REKEY_SALT];
	struct rekey_journal *journal; /* while the worker runs */
	struct vbdev_meta *base_meta;
	enum rekey_begin how;
	bool begins;          /* which journal the bdev has is not known yet */
	bool is_active;       /* the worker runs, or what it used is being closed */
	bool has_begun;       /* the journal says so, and the engine knows the position */
	bool runs;            /* the worker's: this start has begun */
	bool is_late;         /* the worker's: an I/O of the journal was given up */
	bool lost_journal;    /* its bdev was removed */
	bool lost_before;     /* the same, before this start */
	bool is_unreadable;   /* all I/O waits or fails, because the journal has told nothing yet */
	bool is_destructing;  /* the bdev goes when the worker has ended */
	atomic_bool stop;     /* asked to */
	int result;           /* of the engine */
	const char *why_ends; /* for the status of one that was stopped; NULL: somebody asked for it */
	char error[BDEV_ERROR_MAX];
	bdev_crypto_rekey_cb begun_cb, stopped_cb; /* or NULL */
	void *begun_arg, *stopped_arg;
	struct worker_job job;
	/* What the worker asks the control thread. */
	struct thread_msg msg;
	sem_t answered;
	uint64_t position;
	uint32_t blocks;
	int rc;
	struct thread_timer drain_timer;
	/* The rate. */
	sem_t pause; /* posted to end a pause */
	uint64_t due_ns;
	TAILQ_ENTRY(crypto_rekey) link;
};

#endif
