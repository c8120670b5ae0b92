/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections to clusters. A registered one has a name, and lives until it is unregistered; images that name none share
 * a connection with those that reach their cluster in the same way, and the last of them closes it. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/rbd/internal.h"
#include "env_dpdk/env.h"
#include "util/compiler.h"
#include "util/log.h"

enum cluster_state { CLUSTER_CONNECTING, CLUSTER_READY, CLUSTER_FAILED, CLUSTER_CLOSING };

struct rbd_cluster {
	struct bdev_rbd_cluster_opts opts; /* the strings are this structure's */
	enum cluster_state state;
	bool registered; /* it has a name by which images may use it */
	uint32_t users;
	rados_t rados; /* the worker's while CONNECTING and CLOSING */
	char *client;  /* its addresses; set before READY */
	cpu_set_t cpus;
	bool pinned; /* `cpus` is set */
	int rc;      /* of FAILED */
	STAILQ_HEAD(, rbd_wait) waiting;
	struct rbd_job job;
	bdev_rbd_cb closed; /* of unregistering */
	void *closed_arg;
	TAILQ_ENTRY(rbd_cluster) link;
	char error[BDEV_ERROR_MAX];
};

static TAILQ_HEAD(, rbd_cluster) clusters = TAILQ_HEAD_INITIALIZER(clusters);
static unsigned cluster_jobs;

/* librados waits for ever otherwise; and a cache that acknowledges early would be lost with the process. Settings of
 * the operator come over these. */
static const struct bdev_rbd_setting defaults[] = {
	{"client_mount_timeout", "30"},
	{"rados_mon_op_timeout", "30"},
	{"rbd_cache", "false"},
};
/* A write that librados gives up may be carried out later, behind others: it is never given up. */
#define OP_TIMEOUT "rados_osd_op_timeout"
/* Has librbd blocklist the client whose lock it breaks. Without that, the client's writes would still be carried out.
 */
#define FENCE "rbd_blocklist_on_break_lock"
/* 0: for the cluster's default time, since librbd 16 cannot ask for another. lock.c has blocklisted the client before,
 * for FENCE_S, and the longer time stays. */
#define FENCE_TIME "rbd_blocklist_expire_seconds"

/* How long a client stays blocklisted. A client that was stopped sends what it had begun when it goes on, however late.
 */
#define FENCE_S ((uint32_t)365 * 86400)

#define ADDRESS_MAX 512 /* bytes; a client has one or two addresses */

/* --- Options --- */

static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_opts(const struct bdev_rbd_cluster_opts *a, const struct bdev_rbd_cluster_opts *b)
{
	if (!same_text(a->name, b->name) || !same_text(a->user_id, b->user_id) ||
	    !same_text(a->config_file, b->config_file) || !same_text(a->key_file, b->key_file) ||
	    !same_text(a->core_mask, b->core_mask) || a->num_settings != b->num_settings) {
		return false;
	}
	for (size_t i = 0; i < a->num_settings; i++) {
		if (!same_text(a->settings[i].key, b->settings[i].key) ||
		    !same_text(a->settings[i].value, b->settings[i].value)) {
			return false;
		}
	}
	return true;
}

static const char *text_copy(const char *text, bool *failed)
{
	char *copy = text != NULL ? strdup(text) : NULL;

	*failed |= text != NULL && copy == NULL;
	return copy;
}

static void opts_free(struct bdev_rbd_cluster_opts *o)
{
	struct bdev_rbd_setting *settings = (struct bdev_rbd_setting *)o->settings;

	for (size_t i = 0; settings != NULL && i < o->num_settings; i++) {
		free((void *)settings[i].key);
		free((void *)settings[i].value);
	}
	free(settings);
	free((void *)o->name);
	free((void *)o->user_id);
	free((void *)o->config_file);
	free((void *)o->key_file);
	free((void *)o->core_mask);
}

static bool opts_copy(struct bdev_rbd_cluster_opts *to, const struct bdev_rbd_cluster_opts *from)
{
	struct bdev_rbd_setting *settings = calloc(from->num_settings + 1, sizeof(*settings));
	bool failed = settings == NULL;

	*to = (struct bdev_rbd_cluster_opts){
		.name = text_copy(from->name, &failed),
		.user_id = text_copy(from->user_id, &failed),
		.config_file = text_copy(from->config_file, &failed),
		.key_file = text_copy(from->key_file, &failed),
		.core_mask = text_copy(from->core_mask, &failed),
		.settings = settings,
		.num_settings = settings != NULL ? from->num_settings : 0,
	};
	for (size_t i = 0; i < to->num_settings; i++) {
		settings[i].key = text_copy(from->settings[i].key, &failed);
		settings[i].value = text_copy(from->settings[i].value, &failed);
	}
	return !failed;
}

/* --- The connection, on a worker thread --- */

static int cluster_say(struct rbd_cluster *c, int rc, const char *what, const char *value)
{
	return bdev_error(c->error, rc, "%s%s%.200s%s: %s", what, value != NULL ? " '" : "", value != NULL ? value : "",
			  value != NULL ? "'" : "", strerror(-rc));
}

static int cluster_set(struct rbd_cluster *c, const char *key, const char *value)
{
	int rc = librbd.rados_conf_set(c->rados, key, value);

	/* the value may be a key */
	return rc < 0 ? bdev_error(c->error, rc, "librados does not take the setting '%.100s': %s", key, strerror(-rc))
		      : 0;
}

static bool cluster_has_setting(const struct rbd_cluster *c, const char *key)
{
	for (size_t i = 0; i < c->opts.num_settings; i++) {
		if (strcmp(c->opts.settings[i].key, key) == 0) {
			return true;
		}
	}
	return false;
}

static int cluster_configure(struct rbd_cluster *c)
{
	int rc = 0;

	/* as clients know it: settings take the place of the file, unless both are given */
	if (c->opts.config_file != NULL || c->opts.num_settings == 0) {
		rc = librbd.rados_conf_read_file(c->rados, c->opts.config_file);
		if (rc < 0) {
			return cluster_say(c, rc, "the cluster's configuration cannot be read from config_file",
					   c->opts.config_file != NULL ? c->opts.config_file : "/etc/ceph/ceph.conf");
		}
	}
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(defaults); i++) {
		if (!cluster_has_setting(c, defaults[i].key)) {
			rc = cluster_set(c, defaults[i].key, defaults[i].value);
		}
	}
	for (size_t i = 0; rc == 0 && i < c->opts.num_settings; i++) {
		rc = cluster_set(c, c->opts.settings[i].key, c->opts.settings[i].value);
	}
	if (rc == 0 && c->opts.key_file != NULL) {
		rc = cluster_set(c, "keyring", c->opts.key_file);
	}
	rc = rc != 0 ? rc : cluster_set(c, OP_TIMEOUT, "0");
	rc = rc != 0 ? rc : cluster_set(c, FENCE, "true");
	return rc != 0 ? rc : cluster_set(c, FENCE_TIME, "0");
}

/* Others blocklist this client by its addresses (bdev_rbd_fence_silent()). */
static int cluster_read_address(struct rbd_cluster *c)
{
	int rc = librbd.rados_getaddrs(c->rados, &c->client);

	if (rc < 0) {
		c->client = NULL;
		return cluster_say(c, rc, "no address of this client", NULL);
	}
	size_t len = strnlen(c->client, ADDRESS_MAX + 1), good = 0;
	while (good < len && isgraph((unsigned char)c->client[good])) {
		good++;
	}
	return good == len && len != 0 && len <= ADDRESS_MAX
		       ? 0
		       : cluster_say(c, -EBADMSG, "the address of this client", NULL);
}

static int cluster_connect(struct rbd_cluster *c)
{
	int rc = rbd_library_load(c->error);

	if (rc != 0) {
		return rc;
	}
	/* librados' threads inherit the CPUs of the one that makes them */
	if (c->pinned && (rc = pthread_setaffinity_np(pthread_self(), sizeof(c->cpus), &c->cpus)) != 0) {
		return cluster_say(c, -rc, "core_mask", c->opts.core_mask);
	}
	rc = librbd.rados_create(&c->rados, c->opts.user_id);
	if (rc < 0) {
		c->rados = NULL;
		return cluster_say(c, rc, "no client of librados for user_id",
				   c->opts.user_id != NULL ? c->opts.user_id : "admin");
	}
	rc = cluster_configure(c);
	if (rc == 0 && (rc = RBD_WAIT(rados_connect, c->rados)) < 0) {
		cluster_say(c, rc, "no connection to the cluster", c->opts.name);
	}
	rc = rc != 0 ? rc : cluster_read_address(c);
	if (rc != 0) {
		RBD_WAIT(rados_shutdown, c->rados);
		c->rados = NULL;
	}
	return rc;
}

static void connect_work(struct worker_job *job)
{
	struct rbd_cluster *c = container_of(job, struct rbd_cluster, job.worker);

	c->rc = cluster_connect(c);
}

static void disconnect_work(struct worker_job *job)
{
	struct rbd_cluster *c = container_of(job, struct rbd_cluster, job.worker);

	RBD_WAIT(rados_shutdown, c->rados);
}

/* --- States --- */

static void cluster_free(struct rbd_cluster *c)
{
	TAILQ_REMOVE(&clusters, c, link);
	opts_free(&c->opts);
	free(c->client);
	free(c);
}

static void cluster_job_ended(void)
{
	cluster_jobs--;
	if (cluster_jobs == 0) {
		bdev_module_is_idle();
	}
}

static void disconnect_done(struct worker_job *job)
{
	struct rbd_cluster *c = container_of(job, struct rbd_cluster, job.worker);

	if (job->error != 0) { /* no thread for it: this one waits then */
		RBD_WAIT(rados_shutdown, c->rados);
	}
	if (c->closed != NULL) {
		c->closed(c->closed_arg, 0, c->opts.name);
	}
	cluster_free(c);
	cluster_job_ended();
}

static void cluster_close(struct rbd_cluster *c)
{
	c->state = CLUSTER_CLOSING;
	c->job.work = disconnect_work;
	c->job.done = disconnect_done;
	cluster_jobs++;
	bdev_rbd_job_run(&c->job, RBD_JOB_DISCONNECT, c, NULL);
}

/* One that nobody uses and that has no name goes. */
static void cluster_check_unused(struct rbd_cluster *c)
{
	if (c->users != 0 || c->registered) {
		return;
	}
	if (c->state == CLUSTER_READY) {
		cluster_close(c);
	} else if (c->state == CLUSTER_FAILED) {
		cluster_free(c);
	}
}

static void connect_done(struct worker_job *job)
{
	struct rbd_cluster *c = container_of(job, struct rbd_cluster, job.worker);
	struct rbd_wait *w;

	if (job->error != 0) {
		c->rc = cluster_say(c, job->error, "no thread to connect", NULL);
	}
	c->state = c->rc == 0 ? CLUSTER_READY : CLUSTER_FAILED;
	c->users++; /* so that it stays while those who waited give it back */
	while ((w = STAILQ_FIRST(&c->waiting)) != NULL) {
		STAILQ_REMOVE_HEAD(&c->waiting, link);
		w->connected(w, c->rc, c->error);
	}
	bdev_rbd_cluster_put(c);
	cluster_job_ended();
}

static int cluster_opts_check(const struct bdev_rbd_cluster_opts *opts, char *error)
{
	for (size_t i = 0; i < opts->num_settings; i++) {
		const struct bdev_rbd_setting *s = &opts->settings[i];
		if (strcmp(s->key, OP_TIMEOUT) == 0 && strcmp(s->value, "0") != 0) {
			return bdev_error(error, -EINVAL,
					  "setting " OP_TIMEOUT " '%.40s': must be 0: a write that was given up may be "
					  "carried out later, behind newer ones",
					  s->value);
		}
	}
	return 0;
}

static struct rbd_cluster *cluster_create(const struct bdev_rbd_cluster_opts *opts, int *rc, char *error)
{
	struct rbd_cluster *c;
	char why[BDEV_ERROR_MAX];

	*rc = cluster_opts_check(opts, error);
	if (*rc != 0) {
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (c == NULL || !opts_copy(&c->opts, opts)) {
		*rc = bdev_error(error, -ENOMEM, "out of memory");
		goto fail;
	}
	if (opts->core_mask != NULL) {
		if (env_cores_parse(opts->core_mask, &c->cpus, why) != 0) {
			*rc = bdev_error(error, -EINVAL, "core_mask: %.300s", why);
			goto fail;
		}
		c->pinned = true;
	}
	STAILQ_INIT(&c->waiting);
	TAILQ_INSERT_TAIL(&clusters, c, link);
	c->job.work = connect_work;
	c->job.done = connect_done;
	cluster_jobs++;
	bdev_rbd_job_run(&c->job, RBD_JOB_CONNECT, c, NULL);
	return c;
fail:
	if (c != NULL) {
		opts_free(&c->opts);
	}
	free(c);
	return NULL;
}

static struct rbd_cluster *cluster_find(const char *name)
{
	struct rbd_cluster *c;

	TAILQ_FOREACH (c, &clusters, link) {
		if (c->registered && strcmp(c->opts.name, name) == 0) {
			return c;
		}
	}
	return NULL;
}

static struct rbd_cluster *cluster_find_same(const struct bdev_rbd_cluster_opts *opts)
{
	struct rbd_cluster *c;

	TAILQ_FOREACH (c, &clusters, link) {
		if ((c->state == CLUSTER_CONNECTING || c->state == CLUSTER_READY) && same_opts(&c->opts, opts)) {
			return c;
		}
	}
	return NULL;
}

struct rbd_cluster *bdev_rbd_cluster_get(const struct bdev_rbd_cluster_opts *opts, int *rc, char *error)
{
	struct rbd_cluster *c;

	if (opts->name != NULL) {
		c = cluster_find(opts->name);
		if (c == NULL || c->state == CLUSTER_CLOSING) {
			*rc = bdev_error(error, -ENOENT,
					 "cluster_name '%.200s': there is no such cluster: bdev_rbd_register_cluster",
					 opts->name);
			return NULL;
		}
	} else {
		c = cluster_find_same(opts);
		c = c != NULL ? c : cluster_create(opts, rc, error);
	}
	if (c != NULL) {
		c->users++;
	}
	return c;
}

void bdev_rbd_cluster_wait(struct rbd_cluster *c, struct rbd_wait *w)
{
	if (c->state == CLUSTER_CONNECTING) {
		STAILQ_INSERT_TAIL(&c->waiting, w, link);
	} else {
		w->connected(w, c->rc, c->error);
	}
}

void bdev_rbd_cluster_stop_waiting(struct rbd_cluster *c, struct rbd_wait *w)
{
	STAILQ_REMOVE(&c->waiting, w, rbd_wait, link);
}

void bdev_rbd_cluster_put(struct rbd_cluster *c)
{
	c->users--;
	cluster_check_unused(c);
}

rados_t bdev_rbd_cluster_handle(const struct rbd_cluster *c)
{
	return c->rados;
}

const char *bdev_rbd_cluster_client(const struct rbd_cluster *c)
{
	return c->client;
}

int bdev_rbd_blocklist(const struct rbd_cluster *c, const char *address, uint64_t until_us)
{
	/* this process may have been stopped since its lease was looked at */
	return bdev_owner_now_us() >= until_us ? -ETIME
					       : RBD_WAIT(rados_blocklist_add, c->rados, (char *)address, FENCE_S);
}

const struct bdev_rbd_cluster_opts *bdev_rbd_cluster_opts(const struct rbd_cluster *c)
{
	return &c->opts;
}

bool bdev_rbd_clusters_busy(void)
{
	return cluster_jobs != 0;
}

void bdev_rbd_clusters_stop(void)
{
	struct rbd_cluster *c, *next;

	for (c = TAILQ_FIRST(&clusters); c != NULL; c = next) {
		next = TAILQ_NEXT(c, link);
		c->registered = false;
		cluster_check_unused(c);
	}
}

/* --- Registered ones --- */

struct registration {
	struct rbd_wait wait;
	struct rbd_cluster *cluster;
	bdev_rbd_cb cb;
	void *arg;
};

/* A cluster that cannot be reached is not registered. */
static void registration_connected(struct rbd_wait *w, int rc, const char *error)
{
	struct registration *r = container_of(w, struct registration, wait);
	struct rbd_cluster *c = r->cluster;

	if (rc == 0 && !c->registered) {
		rc = -ESHUTDOWN;
		error = "the block devices are being stopped";
	}
	r->cb(r->arg, rc, rc != 0 ? error : c->opts.name);
	if (rc != 0) {
		c->registered = false;
	}
	free(r);
	bdev_rbd_cluster_put(c);
}

void bdev_rbd_register_cluster(const struct bdev_rbd_cluster_opts *opts, bdev_rbd_cb cb, void *arg)
{
	struct registration *r = calloc(1, sizeof(*r));
	char error[BDEV_ERROR_MAX];
	int rc = r == NULL ? bdev_error(error, -ENOMEM, "out of memory") : bdev_check_name(opts->name, error);

	if (rc == 0 && cluster_find(opts->name) != NULL) {
		rc = bdev_error(error, -EEXIST, "name '%.200s': a cluster of that name is registered", opts->name);
	}
	r = rc == 0 ? r : (free(r), NULL);
	struct rbd_cluster *c = rc == 0 ? cluster_create(opts, &rc, error) : NULL;
	if (c == NULL) {
		free(r);
		cb(arg, rc, error);
		return;
	}
	c->users++;
	c->registered = true;
	*r = (struct registration){.wait.connected = registration_connected, .cluster = c, .cb = cb, .arg = arg};
	bdev_rbd_cluster_wait(c, &r->wait);
}

void bdev_rbd_unregister_cluster(const char *name, bdev_rbd_cb cb, void *arg)
{
	struct rbd_cluster *c = cluster_find(name);
	char error[BDEV_ERROR_MAX];

	if (c == NULL || c->state == CLUSTER_CLOSING) {
		bdev_error(error, -ENOENT, "name '%.200s': no cluster of that name is registered", name);
		cb(arg, -ENOENT, error);
	} else if (c->users != 0) {
		bdev_error(error, -EBUSY, "name '%.200s': %u use it: %s", name, c->users,
			   c->state == CLUSTER_CONNECTING ? "it is being connected" : "delete their bdevs first");
		cb(arg, -EBUSY, error);
	} else {
		c->closed = cb;
		c->closed_arg = arg;
		cluster_close(c);
	}
}

bool bdev_rbd_get_cluster(size_t n, struct bdev_rbd_cluster_info *info)
{
	const struct rbd_cluster *c;

	TAILQ_FOREACH (c, &clusters, link) {
		if (c->registered && c->state != CLUSTER_CLOSING && n-- == 0) {
			*info = (struct bdev_rbd_cluster_info){
				.opts = c->opts, .images = c->users, .connected = c->state == CLUSTER_READY};
			return true;
		}
	}
	return false;
}
