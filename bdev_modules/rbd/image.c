/* SPDX-License-Identifier: BSD-3-Clause */
/* An image from its opening to its end. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/rbd/internal.h"
#include "trace/trace.h"
#include "util/compiler.h"
#include "util/log.h"

#define IMAGE_OPTIONS_MAX 1024 /* settings of librbd, of which there are about 80 */
/* librbd 16 compares and writes one such sector, and answers EINVAL to more. Of larger blocks it is emulated. */
#define COMPARED_BYTES 512

static void image_stop(void);
static bool image_is_creating(void);
static bool image_is_idle(void);
static void image_fini(void);
struct bdev_module bdev_rbd_module = {.name = "rbd",
				      .io_ctx_size = sizeof(struct rbd_io),
				      .stop = image_stop,
				      .is_creating = image_is_creating,
				      .is_idle = image_is_idle,
				      .fini = image_fini};
BDEV_MODULE_REGISTER(bdev_rbd_module)

/* A cluster that does not answer is waited for so long: for an image to be opened, which is less than the deadline of
 * an RPC; and when the layer stops, for images to be closed. */
#define OPEN_LIMIT_US ((uint64_t)45 * 1000000)
#define STOP_LIMIT_US ((uint64_t)20 * 1000000)

static bool stopping, given_up;
static uint32_t creations;
static LIST_HEAD(, rbd_bdev) ending = LIST_HEAD_INITIALIZER(ending);
static struct thread_timer stop_timer;
static void (*loss_observer)(const char *name, const char *reason);

static void module_check_idle(void)
{
	if (creations == 0 || image_is_idle()) {
		bdev_module_is_idle();
	}
}

/* --- Opening and closing, on worker threads --- */

static void on_update(void *arg);

static int open_say(const struct rbd_bdev *r, int rc, const char *what, char *error)
{
	return bdev_error(
		error, rc, "%s of image '%.80s' of pool '%.80s'%s%.60s%s%.60s: %s", what, r->image_name, r->pool,
		r->rados_namespace != NULL ? ", namespace " : "", r->rados_namespace != NULL ? r->rados_namespace : "",
		r->snapshot != NULL ? ", snapshot " : "", r->snapshot != NULL ? r->snapshot : "", strerror(-rc));
}

/* A cache acknowledges writes before the cluster has them, so the next owner would lack them. */
static int image_check_setting(const struct rbd_bdev *r, const rbd_config_option_t *option, char *error)
{
	static const struct bdev_rbd_setting off[] = {{"rbd_cache", "false"},
						      {"rbd_persistent_cache_mode", "disabled"}};
	const char *of = option->source == RBD_CONFIG_SOURCE_IMAGE  ? "image"
			 : option->source == RBD_CONFIG_SOURCE_POOL ? "pool"
								    : "connection";

	for (size_t k = 0; k < ARRAY_SIZE(off); k++) {
		if (strcmp(option->name, off[k].key) == 0 && strcmp(option->value, off[k].value) != 0) {
			return bdev_error(error, -EINVAL,
					  "standby: %s of image '%.80s' is '%.40s' in the settings of its %s: it must "
					  "be '%s', because the next owner lacks what a cache holds",
					  off[k].key, r->image_name, option->value, of, off[k].value);
		}
	}
	return 0;
}

/* By the settings that are in force: of the image, its pool and the connection together. */
static int image_check_cache(struct rbd_bdev *r, char *error)
{
	rbd_config_option_t options[IMAGE_OPTIONS_MAX];
	int num = IMAGE_OPTIONS_MAX, rc = RBD_WAIT(rbd_config_image_list, r->image.image, options, &num);

	if (rc < 0) {
		return open_say(r, rc, "the settings", error);
	}
	for (int i = 0; i < num && rc == 0; i++) {
		rc = image_check_setting(r, &options[i], error);
	}
	librbd.rbd_config_image_list_cleanup(options, num);
	return rc;
}

/* Somebody may enable or disable the feature while the image is open, too. On a worker thread. */
static int image_read_features(struct rbd_bdev *r)
{
	uint64_t features = 0;
	int rc = RBD_WAIT(rbd_get_features, r->image.image, &features);

	if (rc == 0) {
		bool locks = (features & RBD_FEATURE_EXCLUSIVE_LOCK) != 0 && !r->image.opened_read_only;
		__atomic_store_n(&r->needs_lock, locks, __ATOMIC_RELAXED);
	}
	return rc;
}

static int image_read_layout(struct rbd_bdev *r, char *error)
{
	struct rbd_image *i = &r->image;
	rbd_image_info_t info;
	int rc = RBD_WAIT(rbd_stat, i->image, &info, sizeof(info));

	if (rc < 0) {
		return open_say(r, rc, "the size", error);
	}
	i->size = info.size;
	i->layout.object_bytes = info.obj_size;
	rc = RBD_WAIT(rbd_get_stripe_unit, i->image, &i->layout.stripe_bytes);
	rc = rc < 0 ? rc : RBD_WAIT(rbd_get_stripe_count, i->image, &i->layout.stripe_count);
	return rc < 0 ? open_say(r, rc, "the stripes", error) : 0;
}

static int image_open(struct rbd_bdev *r, char *error)
{
	struct rbd_image *i = &r->image;
	rados_t rados = bdev_rbd_cluster_handle(i->cluster);
	int rc = RBD_WAIT(rados_ioctx_create, rados, r->pool, &i->ioctx);

	if (rc < 0) {
		i->ioctx = NULL;
		return bdev_error(error, rc, "pool_name '%.200s': %s", r->pool, strerror(-rc));
	}
	if (r->rados_namespace != NULL) {
		librbd.rados_ioctx_set_namespace(i->ioctx, r->rados_namespace);
	}
	/* Not read-only, where that is possible: librbd tells of changes only to those who may write. */
	rc = r->snapshot == NULL ? RBD_WAIT(rbd_open, i->ioctx, r->image_name, &i->image, NULL) : -EROFS;
	if (r->bdev.read_only && (rc == -EROFS || rc == -EPERM || rc == -EACCES)) {
		rc = RBD_WAIT(rbd_open_read_only, i->ioctx, r->image_name, &i->image, r->snapshot);
		i->opened_read_only = true;
	}
	if (rc < 0) {
		return open_say(r, rc, "opening", error);
	}
	i->opened = true;
	rc = r->standby ? image_check_cache(r, error) : 0;
	if (rc != 0) {
		return rc;
	}
	rc = image_read_features(r);
	if (rc < 0) {
		return open_say(r, rc, "the features", error);
	}
	rc = image_read_layout(r, error);
	if (rc != 0) {
		return rc;
	}
	rc = r->snapshot == NULL ? RBD_WAIT(rbd_update_watch, i->image, &i->watch, on_update, r) : 0;
	if (rc < 0) {
		return open_say(r, rc, "watching for changes", error);
	}
	i->watched = r->snapshot == NULL;
	return 0;
}

/* Returns when librbd's threads have ended what they did for it. */
static void image_close(struct rbd_image *i)
{
	if (i->watched) {
		RBD_WAIT(rbd_update_unwatch, i->image, i->watch);
	}
	if (i->opened) {
		RBD_WAIT(rbd_close, i->image);
	}
	if (i->ioctx != NULL) {
		RBD_WAIT(rados_ioctx_destroy, i->ioctx);
	}
	i->watched = i->opened = false;
	i->ioctx = NULL;
}

/* --- The end --- */

static void image_free(struct rbd_bdev *r)
{
	free(r->pool);
	free(r->image_name);
	free(r->rados_namespace);
	free(r->snapshot);
	free(r);
}

/* The image is closed. Messages of librbd's threads may still be on their way to this thread; they come here, too. */
static void image_check_end(struct rbd_bdev *r)
{
	bool told = __atomic_load_n(&r->change_told, __ATOMIC_ACQUIRE) ||
		    (__atomic_load_n(&r->loss_told, __ATOMIC_ACQUIRE) && r->loss.fn != NULL);

	if (!r->closed || told) {
		return;
	}
	LIST_REMOVE(r, link);
	if (r->registered) {
		bdev_destruct_done(&r->bdev);
	}
	image_free(r);
	module_check_idle();
}

static void creation_answer_failed(struct rbd_bdev *r);

static void close_work(struct worker_job *job)
{
	image_close(&container_of(job, struct rbd_bdev, close_job.worker)->image);
}

static void close_done(struct worker_job *job)
{
	struct rbd_bdev *r = container_of(job, struct rbd_bdev, close_job.worker);

	if (job->error != 0) { /* no thread for it: this one waits then */
		image_close(&r->image);
	}
	bdev_rbd_cluster_put(r->image.cluster);
	r->closed = true;
	if (r->failed != NULL) {
		creation_answer_failed(r);
	}
	image_check_end(r);
}

static void image_check_close(struct rbd_bdev *r)
{
	if (r->closing && r->jobs == 0) {
		r->close_job.work = close_work;
		r->close_job.done = close_done;
		bdev_rbd_job_run(&r->close_job, RBD_JOB_CLOSE, r->image.cluster, r);
	}
}

void bdev_rbd_job_ended(struct rbd_bdev *r)
{
	r->jobs--;
	image_check_close(r);
}

/* Begins to wait for the end of an image. When the layer stops, that has a limit. */
static void image_begin_end(struct rbd_bdev *r)
{
	LIST_INSERT_HEAD(&ending, r, link);
	if (stopping) {
		given_up = false;
		thread_timer_start(&stop_timer, STOP_LIMIT_US);
	}
}

static void image_begin_close(struct rbd_bdev *r)
{
	r->closing = true;
	image_check_close(r);
}

static void image_destruct(struct bdev *b)
{
	struct rbd_bdev *r = (struct rbd_bdev *)b;

	bdev_owner_fini(&r->owner);
	image_begin_end(r);
	image_begin_close(r);
}

/* --- Losses --- */

static void loss_tell(struct thread_msg *msg)
{
	struct rbd_bdev *r = container_of(msg, struct rbd_bdev, loss);

	msg->fn = NULL; /* it has come: image_check_end() */
	TRACE(RBD_LOST, r->bdev.trace_owner, 0, 0, r->why_lost);
	log_error("bdev %s: %s; all its I/O fails from now on. Delete the bdev, and create it again", r->name,
		  r->why_lost);
	if (loss_observer != NULL) {
		loss_observer(r->name, r->why_lost);
	}
	bdev_owner_end(&r->owner, r->why_lost);
	image_check_end(r);
}

void bdev_rbd_bdev_lost(struct rbd_bdev *r, const char *why)
{
	if (__atomic_exchange_n(&r->lost, true, __ATOMIC_ACQ_REL)) {
		return;
	}
	r->why_lost = why;
	r->loss.fn = loss_tell;
	__atomic_store_n(&r->loss_told, true, __ATOMIC_RELEASE);
	thread_post(thread_control(), &r->loss, loss_tell);
}

void bdev_rbd_observe_losses(void (*fn)(const char *name, const char *reason))
{
	loss_observer = fn;
}

/* --- Changes of the size --- */

static void image_refresh(struct rbd_bdev *r);

static void refresh_work(struct worker_job *job)
{
	struct rbd_bdev *r = container_of(job, struct rbd_bdev, refresh_job.worker);
	rbd_image_info_t info;

	r->refresh_rc = image_read_features(r);
	if (r->refresh_rc == 0) {
		r->refresh_rc = RBD_WAIT(rbd_stat, r->image.image, &info, sizeof(info));
	}
	r->refreshed_size = r->refresh_rc == 0 ? info.size : 0;
}

static void image_take_size(struct rbd_bdev *r, uint64_t size)
{
	uint64_t blocks = size / r->bdev.block_size;

	__atomic_store_n(&r->image.size, size, __ATOMIC_RELAXED); /* before I/O up to it may come */
	if (blocks == r->bdev.num_blocks) {
		return;
	}
	if (blocks == 0) {
		bdev_rbd_bdev_lost(r, "its image was made smaller than a block");
		return;
	}
	int rc = bdev_resize(&r->bdev, blocks);
	if (rc != 0) {
		log_error("bdev %s: its image has %lu bytes now, which the bdev cannot have: %s", r->name, size,
			  strerror(-rc));
	}
}

static void refresh_done(struct worker_job *job)
{
	struct rbd_bdev *r = container_of(job, struct rbd_bdev, refresh_job.worker);
	int rc = job->error != 0 ? job->error : r->refresh_rc;

	r->refreshing = false;
	r->jobs--;
	if (r->closing) {
		image_check_close(r);
		return;
	}
	if (rc == -ENOENT) {
		bdev_rbd_bdev_lost(r, "its image was removed");
	} else if (rc == -ESHUTDOWN) {
		bdev_rbd_bdev_lost(r, "Ceph has blocklisted this client");
	} else if (rc != 0) {
		log_warning("bdev %s: the size and the features of its image, which was changed, cannot be read: %s",
			    r->name, strerror(-rc));
	} else {
		image_take_size(r, r->refreshed_size);
	}
	if (r->again) {
		r->again = false;
		image_refresh(r);
	}
}

static void image_refresh(struct rbd_bdev *r)
{
	if (r->refreshing) {
		r->again = true;
		return;
	}
	r->refreshing = true;
	r->jobs++;
	r->refresh_job.work = refresh_work;
	r->refresh_job.done = refresh_done;
	bdev_rbd_job_run(&r->refresh_job, RBD_JOB_REFRESH, r->image.cluster, r);
}

static void image_changed(struct thread_msg *msg)
{
	struct rbd_bdev *r = container_of(msg, struct rbd_bdev, changed);

	__atomic_store_n(&r->change_told, false, __ATOMIC_RELEASE);
	if (r->closed) {
		image_check_end(r);
	} else if (r->registered && !r->closing) {
		image_refresh(r);
	} /* before it is registered: creation_done() looks */
}

/* On a thread of librbd's: the header of the image was changed, by whomever. */
static void on_update(void *arg)
{
	struct rbd_bdev *r = arg;

	if (!__atomic_exchange_n(&r->change_told, true, __ATOMIC_ACQ_REL)) {
		thread_post(thread_control(), &r->changed, image_changed);
	}
}

struct resize {
	struct rbd_job job;
	struct rbd_bdev *r;
	uint64_t bytes;
	int rc;
	bdev_rbd_cb cb;
	void *arg;
};

static int resize_progress(uint64_t offset, uint64_t total, void *arg)
{
	return 0; /* go on */
}

static void image_resize_work(struct worker_job *job)
{
	struct resize *z = container_of(job, struct resize, job.worker);

	/* never smaller, whatever others have made of it since */
	z->rc = RBD_WAIT(rbd_resize2, z->r->image.image, z->bytes, false, resize_progress, NULL);
}

static void image_resize_done(struct worker_job *job)
{
	struct resize *z = container_of(job, struct resize, job.worker);
	struct rbd_bdev *r = z->r;
	char error[BDEV_ERROR_MAX];
	int rc = job->error != 0 ? job->error : z->rc;

	r->jobs--;
	if (r->closing) {
		rc = rc != 0 ? rc : -ENODEV;
	} else if (rc == 0) {
		image_take_size(r, z->bytes);
		image_refresh(r); /* others may have changed it, too */
	}
	if (rc != 0) {
		bdev_error(error, rc, "the image of bdev '%.100s' cannot have %lu bytes: %s", r->name, z->bytes,
			   strerror(-rc));
	}
	z->cb(z->arg, rc, rc != 0 ? error : r->name);
	free(z);
	image_check_close(r);
}

static int image_resize_check(const struct rbd_bdev *r, const char *name, uint64_t bytes, char *error)
{
	if (r == NULL) {
		return bdev_error(error, -ENODEV, "name: there is no rbd bdev '%.200s'", name);
	}
	if (r->bdev.read_only) {
		return bdev_error(error, -EROFS, "name '%.100s': the bdev is read-only", name);
	}
	uint64_t now = r->bdev.num_blocks * r->bdev.block_size;
	if (bytes < now || bytes % r->bdev.block_size != 0) {
		return bdev_error(
			error, -EINVAL,
			"new size %lu bytes: must be a multiple of the block size, %u, and not less than what the "
			"bdev has, %lu",
			bytes, r->bdev.block_size, now);
	}
	return 0;
}

static struct rbd_bdev *image_find(const char *name)
{
	return (struct rbd_bdev *)bdev_find_of(name, &bdev_rbd_module);
}

void bdev_rbd_resize(const char *name, uint64_t bytes, bdev_rbd_cb cb, void *arg)
{
	struct rbd_bdev *r = image_find(name);
	struct resize *z = NULL;
	char error[BDEV_ERROR_MAX];
	int rc = image_resize_check(r, name, bytes, error);

	if (rc == 0 && (z = calloc(1, sizeof(*z))) == NULL) {
		rc = bdev_error(error, -ENOMEM, "out of memory");
	}
	if (rc != 0) {
		cb(arg, rc, error);
		return;
	}
	*z = (struct resize){.job = {.work = image_resize_work, .done = image_resize_done},
			     .r = r,
			     .bytes = bytes,
			     .cb = cb,
			     .arg = arg};
	r->jobs++;
	bdev_rbd_job_run(&z->job, RBD_JOB_RESIZE, r->image.cluster, r);
}

uint64_t bdev_rbd_bytes(const char *name)
{
	const struct rbd_bdev *r = image_find(name);

	return r != NULL ? r->bdev.num_blocks * r->bdev.block_size : 0;
}

/* --- Creation --- */

struct creation {
	struct rbd_wait wait;
	struct rbd_job job;
	struct thread_timer timer;
	struct rbd_bdev *r;
	bool connected; /* the worker opens the image */
	bool answered;  /* the limit has passed */
	int rc;
	bdev_rbd_cb cb;
	void *arg;
	char error[BDEV_ERROR_MAX];
};

static void image_dump_info(const struct bdev *b, struct json_t *driver_specific);

static const struct bdev_ops rbd_ops = {
	.bases = bdev_bases_none,
	.submit = bdev_rbd_submit,
	.channel_create = bdev_rbd_channel_create,
	.channel_destroy = bdev_rbd_channel_destroy,
	.channel_size = sizeof(struct rbd_channel),
	.destruct = image_destruct,
	.describe_io = bdev_rbd_describe_io,
	.dump_info = image_dump_info,
};

static void creation_answer(struct creation *c, int rc)
{
	thread_timer_stop(&c->timer);
	c->cb(c->arg, rc, rc == 0 ? c->r->name : c->error);
	creations--;
	module_check_idle();
}

static void creation_answer_failed(struct rbd_bdev *r)
{
	struct creation *c = r->failed;

	r->failed = NULL;
	creation_answer(c, c->rc);
	free(c);
}

/* Nobody waits for the image any more. If a worker is opening it, it is closed when that has ended. */
static void creation_timeout(void *arg)
{
	struct creation *c = arg;
	struct rbd_bdev *r = c->r;
	char error[BDEV_ERROR_MAX];

	if (r->failed != NULL) { /* closing takes so long */
		creation_answer_failed(r);
		return;
	}
	c->answered = true;
	if (c->connected) {
		image_begin_end(r);
	} else {
		bdev_rbd_cluster_stop_waiting(r->image.cluster, &c->wait);
		bdev_rbd_cluster_put(r->image.cluster);
	}
	/* c->error is the worker's */
	int rc = bdev_error(error, -ETIMEDOUT,
			    "%s image '%.80s' of pool '%.80s' has not ended for %u s: the cluster does not answer",
			    c->connected ? "opening" : "connecting for", r->image_name, r->pool,
			    (unsigned)(OPEN_LIMIT_US / 1000000));
	c->cb(c->arg, rc, error);
	if (!c->connected) {
		image_free(r);
		free(c);
	}
	creations--;
	module_check_idle();
}

static void image_fill_in(struct rbd_bdev *r)
{
	struct bdev *b = &r->bdev;

	b->num_blocks = r->image.size / b->block_size;
	b->io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_FLUSH | 1u << BDEV_IO_UNMAP |
		      1u << BDEV_IO_WRITE_ZEROES;
	if (b->block_size == COMPARED_BYTES) {
		b->io_types |= 1u << BDEV_IO_COMPARE_AND_WRITE;
	}
	bdev_rbd_set_limits(b, &r->image.layout);
	b->write_cache = true; /* settings in the pool or the image may give it one, and flushes cost little without */
}

static int image_register(struct rbd_bdev *r, char *error)
{
	struct bdev *b = &r->bdev;

	if (stopping) {
		return bdev_error(error, -ESHUTDOWN, "the block devices are being stopped");
	}
	if (r->image.size < b->block_size) {
		return bdev_error(error, -EINVAL, "image '%.100s' has %lu bytes, less than a block of %u",
				  r->image_name, r->image.size, b->block_size);
	}
	if (r->image.size % b->block_size != 0) {
		log_notice("bdev %s: the last %lu bytes of image %s are no whole block, and are left out", r->name,
			   r->image.size % b->block_size, r->image_name);
	}
	image_fill_in(r);
	if (r->standby) {
		bdev_owner_init(&r->owner, b, &bdev_rbd_owner_ops);
	}
	int rc = bdev_register_or_say(b, error);
	r->registered = rc == 0;
	if (rc != 0) {
		bdev_owner_fini(&r->owner);
	}
	return rc;
}

static void creation_work(struct worker_job *job)
{
	struct creation *c = container_of(job, struct creation, job.worker);

	c->rc = image_open(c->r, c->error);
}

static void creation_done(struct worker_job *job)
{
	struct creation *c = container_of(job, struct creation, job.worker);
	struct rbd_bdev *r = c->r;
	int rc = c->rc;

	if (c->answered) {
		image_begin_close(r);
		free(c);
		return;
	}
	if (job->error != 0) {
		rc = bdev_error(c->error, job->error, "no thread to open the image: %s", strerror(-job->error));
	}
	c->rc = rc != 0 ? rc : image_register(r, c->error);
	if (c->rc != 0) {
		r->failed = c; /* until then the image uses the cluster */
		image_begin_end(r);
		image_begin_close(r);
		return;
	}
	image_refresh(r); /* it may have changed before it could be told */
	creation_answer(c, 0);
	free(c);
}

static void creation_connected(struct rbd_wait *w, int rc, const char *error)
{
	struct creation *c = container_of(w, struct creation, wait);

	if (rc != 0) {
		snprintf(c->error, sizeof(c->error), "%s", error);
		bdev_rbd_cluster_put(c->r->image.cluster);
		image_free(c->r);
		creation_answer(c, rc);
		free(c);
		return;
	}
	c->connected = true;
	c->job.work = creation_work;
	c->job.done = creation_done;
	bdev_rbd_job_run(&c->job, RBD_JOB_OPEN, c->r->image.cluster, c->r);
}

static int image_check_opts(const struct bdev_rbd_opts *opts, char *error)
{
	int rc = opts->name != NULL ? bdev_check_name(opts->name, error) : 0;

	rc = rc != 0 ? rc : bdev_check_blocks(opts->block_size, 0, 1, error);
	if (rc == 0 && (opts->pool[0] == '\0' || opts->image[0] == '\0')) {
		rc = bdev_error(error, -EINVAL, "%s: must not be empty",
				opts->pool[0] == '\0' ? "pool_name" : "rbd_name");
	}
	if (rc == 0 && opts->standby && (opts->read_only || opts->snapshot != NULL)) {
		rc = bdev_error(error, -EINVAL, "standby: not together with %s",
				opts->read_only ? "read_only" : "snapshot");
	}
	if (rc == 0 && stopping) {
		rc = bdev_error(error, -ESHUTDOWN, "the block devices are being stopped");
	}
	return rc;
}

static char *copy_or_null(const char *text, bool *failed)
{
	char *copy = text != NULL && text[0] != '\0' ? strdup(text) : NULL;

	*failed |= text != NULL && text[0] != '\0' && copy == NULL;
	return copy;
}

/* "Ceph0", "Ceph1" ...: the first that is free. */
static void image_choose_name(char name[256])
{
	unsigned n = 0;

	do {
		snprintf(name, 256, "Ceph%u", n++);
	} while (bdev_find(name) != NULL);
}

static struct rbd_bdev *image_allocate(const struct bdev_rbd_opts *opts)
{
	struct rbd_bdev *r = aligned_alloc(64, (sizeof(*r) + 63) & ~(size_t)63);
	bool failed = false;

	if (r == NULL) {
		return NULL;
	}
	memset(r, 0, sizeof(*r));
	r->pool = copy_or_null(opts->pool, &failed);
	r->image_name = copy_or_null(opts->image, &failed);
	r->rados_namespace = copy_or_null(opts->rados_namespace, &failed);
	r->snapshot = copy_or_null(opts->snapshot, &failed);
	if (failed) {
		image_free(r);
		return NULL;
	}
	if (opts->name != NULL) {
		snprintf(r->name, sizeof(r->name), "%s", opts->name);
	}
	r->bdev = (struct bdev){
		.name = r->name,
		.product_name = "Ceph Rbd Disk",
		.ops = &rbd_ops,
		.module = &bdev_rbd_module,
		.block_size = opts->block_size,
		.numa_node = -1,
		.read_only = opts->read_only || r->snapshot != NULL,
	};
	r->standby = opts->standby;
	if (opts->uuid != NULL) {
		memcpy(r->bdev.uuid, opts->uuid, sizeof(r->bdev.uuid));
	}
	return r;
}

void bdev_rbd_create(const struct bdev_rbd_opts *opts, bdev_rbd_cb cb, void *arg)
{
	char error[BDEV_ERROR_MAX];
	struct creation *c = NULL;
	struct rbd_bdev *r = NULL;
	int rc = image_check_opts(opts, error);

	if (rc == 0 && ((c = calloc(1, sizeof(*c))) == NULL || (r = image_allocate(opts)) == NULL)) {
		rc = bdev_error(error, -ENOMEM, "out of memory");
	}
	if (rc == 0) {
		r->image.cluster = bdev_rbd_cluster_get(&opts->cluster, &rc, error);
	}
	if (rc != 0) {
		if (r != NULL) {
			image_free(r);
		}
		free(c);
		cb(arg, rc, error);
		return;
	}
	if (opts->name == NULL) {
		image_choose_name(r->name);
	}
	*c = (struct creation){.wait.connected = creation_connected,
			       .timer = {.fn = creation_timeout, .arg = c},
			       .r = r,
			       .cb = cb,
			       .arg = arg};
	creations++;
	thread_timer_start(&c->timer, OPEN_LIMIT_US);
	bdev_rbd_cluster_wait(r->image.cluster, &c->wait);
}

void bdev_rbd_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	bdev_delete_of(name, &bdev_rbd_module, cb, arg);
}

/* --- What there is to tell --- */

bool bdev_rbd_get(const struct bdev *b, struct bdev_rbd_opts *opts)
{
	const struct rbd_bdev *r = (const struct rbd_bdev *)b;

	if (b->module != &bdev_rbd_module) {
		return false;
	}
	*opts = (struct bdev_rbd_opts){
		.name = r->name,
		.pool = r->pool,
		.image = r->image_name,
		.rados_namespace = r->rados_namespace,
		.snapshot = r->snapshot,
		.uuid = b->uuid,
		.block_size = b->block_size,
		.read_only = b->read_only,
		.standby = r->standby,
		.cluster = *bdev_rbd_cluster_opts(r->image.cluster),
	};
	return true;
}

static void image_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	const struct rbd_bdev *r = (const struct rbd_bdev *)b;
	const struct bdev_rbd_cluster_opts *cluster = bdev_rbd_cluster_opts(r->image.cluster);
	json_t *info = json_pack("{s:s, s:s, s:s*, s:s*, s:s*, s:s*}", "pool_name", r->pool, "rbd_name", r->image_name,
				 "namespace", r->rados_namespace, "snapshot", r->snapshot, "cluster_name",
				 cluster->name, "user_id", cluster->user_id);

	if (info != NULL) {
		const struct rbd_layout *l = &r->image.layout;
		json_object_set_new(info, "object_bytes", json_integer((json_int_t)l->object_bytes));
		json_object_set_new(info, "stripe_bytes", json_integer((json_int_t)l->stripe_bytes));
		json_object_set_new(info, "stripe_count", json_integer((json_int_t)l->stripe_count));
		json_object_set_new(info, "client", json_string(bdev_rbd_cluster_client(r->image.cluster)));
		json_object_set_new(info, "lost", json_boolean(__atomic_load_n(&r->lost, __ATOMIC_RELAXED)));
	}
	json_object_set_new(driver_specific, "rbd", info);
}

/* --- The module --- */

/* All I/O has ended, so nothing can be lost: the process goes, and the cluster forgets its client. */
static void stop_give_up(void *arg)
{
	struct rbd_bdev *r;

	if (LIST_EMPTY(&ending) && !bdev_rbd_clusters_busy()) {
		return; /* I/O is still under way: image_begin_end() starts the timer again */
	}
	LIST_FOREACH (r, &ending, link) {
		if (r->failed != NULL) {
			creation_answer_failed(r);
		}
	}
	given_up = true;
	LIST_FOREACH (r, &ending, link) {
		log_error("image '%s' of pool '%s': it could not be closed within %u s, and is left as it is",
			  r->image_name, r->pool, (unsigned)(STOP_LIMIT_US / 1000000));
		if (r->registered && !r->closed) {
			r->registered = false;
			bdev_destruct_done(&r->bdev);
		}
	}
	bdev_module_is_idle();
}

static void image_stop(void)
{
	stopping = true;
	stop_timer = (struct thread_timer){.fn = stop_give_up};
	thread_timer_start(&stop_timer, STOP_LIMIT_US);
	bdev_rbd_clusters_stop();
}

static bool image_is_creating(void)
{
	return creations != 0;
}

static bool image_is_idle(void)
{
	return creations == 0 && (given_up || (LIST_EMPTY(&ending) && !bdev_rbd_clusters_busy()));
}

static void image_fini(void)
{
	thread_timer_stop(&stop_timer);
	stopping = given_up = false;
}
