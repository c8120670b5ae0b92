/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of bdev_modules/rbd/. */
#ifndef BDEV_RBD_INTERNAL_H
#define BDEV_RBD_INTERNAL_H

#include "bdev/module_util.h"
#include "bdev/owner.h"
#include "bdev_modules/rbd/library.h"
#include "bdev_modules/rbd/rbd.h"
#include "thread/worker.h"

extern struct bdev_module bdev_rbd_module;

/* Numbers of tracepoints. */
enum rbd_refused { RBD_REFUSED_STANDBY, RBD_REFUSED_LOST, RBD_REFUSED_NO_LOCK };
enum rbd_lock_step { RBD_LOCK_TAKE, RBD_LOCK_TAKEN, RBD_LOCK_GIVE, RBD_LOCK_GIVEN };

struct rbd_cluster;
struct rbd_bdev;

/* --- jobs.c --- */

enum rbd_job_kind {
	RBD_JOB_CONNECT,
	RBD_JOB_DISCONNECT,
	RBD_JOB_OPEN,
	RBD_JOB_CLOSE,
	RBD_JOB_REFRESH,
	RBD_JOB_RESIZE,
	RBD_JOB_TAKE,
	RBD_JOB_GIVE,
	RBD_JOB_ASK
};

/* What a worker thread does in librados and librbd. The owner sets work and done, which are those of `worker`. */
struct rbd_job {
	struct worker_job worker;
	void (*work)(struct worker_job *worker);
	void (*done)(struct worker_job *worker);
	/* private */
	enum rbd_job_kind kind;
	const struct rbd_cluster *cluster;
	const struct rbd_bdev *r;
	const char *call; /* the library's function that it has called last; NULL: none yet. Atomic */
	uint64_t begin_us;
	TAILQ_ENTRY(rbd_job) link;
};

/* Starts a job, as worker_run() without a queue. Until done is called it is listed, with the names of c and r, which
 * must live as long. r: NULL for one of a cluster. Control thread. */
void bdev_rbd_job_run(struct rbd_job *j, enum rbd_job_kind kind, const struct rbd_cluster *c, const struct rbd_bdev *r);
/* Notes for the list which function the job of this thread, if there is one, calls. */
void bdev_rbd_job_calls(const char *function);
/* Calls a function of librados or librbd that may wait for the cluster. */
#define RBD_WAIT(function_, ...) (bdev_rbd_job_calls(#function_), librbd.function_(__VA_ARGS__))

/* --- cluster.c --- */

/* Who waits for a connection. */
struct rbd_wait {
	void (*connected)(struct rbd_wait *w, int rc, const char *error); /* error: if rc is not 0 */
	STAILQ_ENTRY(rbd_wait) link;
};

/* The cluster of that name, or the one without a name that has these options, which is made if there is none; with one
 * more user. NULL: error says why, *rc is a negative errno. */
struct rbd_cluster *bdev_rbd_cluster_get(const struct bdev_rbd_cluster_opts *opts, int *rc, char *error);
/* Calls w->connected when the connection is made or has failed; at once if that is known. */
void bdev_rbd_cluster_wait(struct rbd_cluster *c, struct rbd_wait *w);
/* Stops waiting. */
void bdev_rbd_cluster_stop_waiting(struct rbd_cluster *c, struct rbd_wait *w);
/* Gives a user back. A connection that has no name and no user is closed. */
void bdev_rbd_cluster_put(struct rbd_cluster *c);
/* The connection; valid while the caller is a user, after rbd_wait.connected with 0. Any thread. */
rados_t bdev_rbd_cluster_handle(const struct rbd_cluster *c);
/* The addresses by which the cluster knows this client, as rados_getaddrs() gives them; valid as the connection is. Any
 * thread. */
const char *bdev_rbd_cluster_client(const struct rbd_cluster *c);
/* Blocklists another client, by one of its addresses. until_us: of CLOCK_BOOTTIME. 0; -ETIME: that has passed; errors
 * of the cluster. A worker thread: it waits for the cluster. */
int bdev_rbd_blocklist(const struct rbd_cluster *c, const char *address, uint64_t until_us);
const struct bdev_rbd_cluster_opts *bdev_rbd_cluster_opts(const struct rbd_cluster *c);
/* Whether connections are being made or closed. */
bool bdev_rbd_clusters_busy(void);
/* The module stops: no connection is made any more, and those that are left are closed. */
void bdev_rbd_clusters_stop(void);

/* --- layout.c --- */

/* How the cluster keeps an image: as librbd says. Its bytes are dealt out to stripe_count objects in turn, stripe_bytes
 * to each, until these are full; then to the next ones. */
struct rbd_layout {
	uint64_t object_bytes, stripe_bytes, stripe_count;
};

/* Sets the limits, hints and optimal boundary of b, whose block_size is set, by the layout of its image. A layout that
 * cannot be gives none, but for the size of a READ or WRITE. Pure. */
void bdev_rbd_set_limits(struct bdev *b, const struct rbd_layout *l);

/* --- image.c --- */

/* What librbd has open. */
struct rbd_image {
	struct rbd_cluster *cluster;
	rados_ioctx_t ioctx;
	rbd_image_t image;
	uint64_t watch; /* of changes */
	bool opened, opened_read_only, watched;
	uint64_t size; /* bytes, as they were read last. Atomic from then on; written by the control thread */
	struct rbd_layout layout;
};

/* What a worker does with the lock of an image, and what came of it. */
struct rbd_lock_change {
	bool fence;
	uint64_t until_us; /* of the lease */
	int rc;
	char error[BDEV_ERROR_MAX];
};

struct creation;

struct rbd_bdev {
	struct bdev bdev;
	struct rbd_image image;
	/* A client that may write needs the exclusive lock: the image has that feature, and was not opened
	 * read-only. Atomic */
	bool needs_lock;
	bool lost;            /* no I/O is begun any more: bdev_rbd_bdev_lost(). Atomic */
	bool change_told;     /* `changed` is on its way. Atomic */
	bool loss_told;       /* `loss` is on its way, or has come. Atomic */
	const char *why_lost; /* set before loss_told; stays */
	struct thread_msg changed, loss;
	struct bdev_owner owner; /* of a standby */
	bool standby;
	bool registered;           /* as a bdev */
	bool searching;            /* a worker looks for watchers that do not answer */
	bool refreshing, again;    /* a worker looks at the size; and must do so once more */
	bool closing;              /* the bdev is gone; the image is closed when no worker uses it any more */
	bool closed;               /* it is */
	struct creation *failed;   /* is answered when the image is closed; NULL: there is none */
	uint32_t jobs;             /* of workers, which use the image */
	LIST_ENTRY(rbd_bdev) link; /* of images that are being closed, or opened although nobody waits any more */
	struct rbd_job close_job, refresh_job, lock_job;
	struct rbd_lock_change lock_change; /* lock_job's */
	uint64_t refreshed_size;            /* bytes; refresh_job's */
	int refresh_rc;
	char name[256];
	char *pool, *image_name, *rados_namespace, *snapshot; /* the last two may be NULL */
};

struct rbd_channel {
	struct thread *thread;
	uint32_t outstanding;    /* I/Os that librbd's threads will touch this channel for. Atomic */
	uint64_t last_end_ticks; /* of an I/O: the start of that round of the channel's thread; 0: none has ended */
};

/* Context of an I/O. */
struct rbd_io {
	struct rbd_channel *channel;
	struct thread_msg msg;
	uint64_t end; /* of one that changes blocks: bytes, behind its last block; 0: of others */
	ssize_t result;
	uint64_t end_ticks; /* when librbd told the end, as ticks_now() */
	uint64_t mismatch;  /* of a compare-and-write: where */
	char *bounce;       /* its data, one piece; or NULL */
};

/* Notes that no I/O of the bdev can be carried out any more, and tells it once. why: stays. Any thread. */
void bdev_rbd_bdev_lost(struct rbd_bdev *r, const char *why);

/* A job that used the image has ended: closes the image if it only waits for that. */
void bdev_rbd_job_ended(struct rbd_bdev *r);

/* --- lock.c --- */

extern const struct bdev_owner_ops bdev_rbd_owner_ops;

/* Whether client, "IP:PORT/NONCE", is one of the addresses in a text such as "[v2:IP:PORT/NONCE,v1:IP:PORT/NONCE]".
 * Pure. */
bool bdev_rbd_address_is_in(const char *client, const char *addresses);

/* --- silent.c --- */

/* Whether a watcher is among those who have not answered, by the cluster's reply to a notification (rados_notify2()).
 * 1, 0, or -EBADMSG: it is no such reply. Pure. */
int bdev_rbd_reply_lacks(const void *data, size_t len, uint64_t client, uint64_t cookie);

/* --- io.c --- */

/* ops.submit, ops.channel_create, ops.channel_destroy */
void bdev_rbd_submit(void *channel, struct bdev_io *io);
/* ops.describe_io */
void bdev_rbd_describe_io(struct bdev_io *io, char *text, size_t size);
int bdev_rbd_channel_create(struct bdev *b, void *channel);
void bdev_rbd_channel_destroy(struct bdev *b, void *channel);

#endif
