/* SPDX-License-Identifier: BSD-3-Clause */
/* Other clients that watch an image and do not answer: their processes have died, or are stopped. Ceph waits for such a
 * client whenever the lock of the image changes, for 5 seconds each time, until it gives the client up after 30
 * seconds. A client that is blocklisted is not waited for.
 *
 * A notification without data is how librbd tells of a change of the image's header: all watchers read it again, and
 * answer. The cluster says who has not answered in time. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/rbd/internal.h"
#include "util/compiler.h"
#include "util/log.h"

#define ANSWER_MS    2000 /* Ceph counts whole seconds */
#define WATCHERS_MAX 256
#define HEADER       "rbd_header."

struct silent_search {
	struct rbd_job job;
	struct rbd_bdev *r;
	char *clients;
	uint64_t until_us;
	bdev_rbd_fenced_cb cb;
	void *arg;
	int rc;
	size_t num_fenced;
	char *fenced[WATCHERS_MAX];
	char error[BDEV_ERROR_MAX];
};

/* --- What the cluster answers to a notification --- */

struct reply {
	const uint8_t *at;
	size_t left;
};

static bool reply_take(struct reply *reply, void *to, size_t len)
{
	if (reply->left < len) {
		return false;
	}
	if (to != NULL) {
		memcpy(to, reply->at, len);
	}
	reply->at += len;
	reply->left -= len;
	return true;
}

static bool reply_skip_answers(struct reply *reply)
{
	uint32_t n, len;

	if (!reply_take(reply, &n, sizeof(n))) {
		return false;
	}
	for (n = le32toh(n); n != 0; n--) {
		if (!reply_take(reply, NULL, 16) || !reply_take(reply, &len, sizeof(len)) ||
		    !reply_take(reply, NULL, le32toh(len))) {
			return false;
		}
	}
	return true;
}

int bdev_rbd_reply_lacks(const void *data, size_t len, uint64_t client, uint64_t cookie)
{
	struct reply reply = {data, len};
	uint32_t n;
	int found = 0;

	if (!reply_skip_answers(&reply) || !reply_take(&reply, &n, sizeof(n))) {
		return -EBADMSG;
	}
	for (n = le32toh(n); n != 0; n--) {
		uint64_t one[2];
		if (!reply_take(&reply, one, sizeof(one))) {
			return -EBADMSG;
		}
		found |= le64toh(one[0]) == client && le64toh(one[1]) == cookie;
	}
	return found;
}

/* --- The search, on a worker thread --- */

static int silent_say(struct silent_search *s, int rc, const char *what)
{
	return bdev_error(s->error, rc, "bdev '%.80s': %s image '%.80s': %s", s->r->name, what, s->r->image_name,
			  strerror(-rc));
}

static bool silent_is_fenced(const struct silent_search *s, const char *address)
{
	for (size_t i = 0; i < s->num_fenced; i++) {
		if (strcmp(s->fenced[i], address) == 0) {
			return true;
		}
	}
	return false;
}

static int silent_fence(struct silent_search *s, const char *address)
{
	char *copy = strdup(address);

	if (copy == NULL) {
		return silent_say(s, -ENOMEM, "a watcher of");
	}
	int rc = bdev_rbd_blocklist(s->r->image.cluster, address, s->until_us);
	if (rc < 0) {
		free(copy);
		return silent_say(s, rc, "blocklisting a client that watches");
	}
	log_notice("bdev %s: client %.80s, which watches image %s and does not answer, is blocklisted", s->r->name,
		   address, s->r->image_name);
	s->fenced[s->num_fenced++] = copy;
	return 0;
}

/* --- Which of n watchers are left to be blocklisted: these are moved to the front. How many; or a negative errno ---
 */

static int silent_keep(rbd_image_watcher_t *w, int kept, size_t i)
{
	rbd_image_watcher_t one = w[i];

	w[i] = w[kept];
	w[kept] = one;
	return kept + 1;
}

/* Those that were asked for, without this client. */
static int silent_named(struct silent_search *s, rbd_image_watcher_t *w, size_t n)
{
	const char *own = bdev_rbd_cluster_client(s->r->image.cluster);
	int kept = 0;

	for (size_t i = 0; i < n; i++) {
		if (bdev_rbd_address_is_in(w[i].addr, s->clients) && !bdev_rbd_address_is_in(w[i].addr, own)) {
			kept = silent_keep(w, kept, i);
		}
	}
	return kept;
}

/* Without the one that has the image's lock: it is for bdev_own() to take the lock away. */
static int silent_without_lock(struct silent_search *s, rbd_image_watcher_t *w, size_t n)
{
	rbd_lock_mode_t mode;
	char *owners[1];
	size_t num_owners = 1;
	int kept = 0, rc = RBD_WAIT(rbd_lock_get_owners, s->r->image.image, &mode, owners, &num_owners);

	if (rc == -ENOENT || (rc == 0 && num_owners == 0)) {
		return (int)n;
	}
	if (rc < 0) {
		return silent_say(s, rc, "who has the lock of");
	}
	for (size_t i = 0; i < n; i++) {
		if (!bdev_rbd_address_is_in(w[i].addr, owners[0])) {
			kept = silent_keep(w, kept, i);
		}
	}
	librbd.rbd_lock_get_owners_cleanup(owners, num_owners);
	return kept;
}

/* Asks all watchers of the image. The cluster's reply, also if some do not answer. */
static int silent_ask(struct silent_search *s, char **reply, size_t *len)
{
	char object[128] = HEADER;
	int rc = RBD_WAIT(rbd_get_id, s->r->image.image, object + strlen(HEADER), sizeof(object) - strlen(HEADER));

	if (rc < 0) {
		return silent_say(s, rc, "the id of");
	}
	rc = RBD_WAIT(rados_notify2, s->r->image.ioctx, object, "", 0, ANSWER_MS, reply, len);
	if (rc == -ETIMEDOUT) { /* some have not answered: the reply says who */
		rc = 0;
	}
	return rc < 0 ? silent_say(s, rc, "asking the watchers of") : 0;
}

/* Those that do not answer now. */
static int silent_without_answer(struct silent_search *s, rbd_image_watcher_t *w, size_t n)
{
	char *reply = NULL;
	size_t len = 0;
	int kept = 0, rc = silent_ask(s, &reply, &len);

	for (size_t i = 0; rc >= 0 && i < n; i++) {
		rc = bdev_rbd_reply_lacks(reply, len, (uint64_t)w[i].id, w[i].cookie);
		if (rc < 0) {
			silent_say(s, rc, "the answers of the watchers of");
		} else if (rc > 0) {
			kept = silent_keep(w, kept, i);
		}
	}
	librbd.rados_buffer_free(reply);
	return rc < 0 ? rc : kept;
}

/* A client that lives may answer late once, because the cluster is slow. The lock is looked at first, so that nobody
 * waits for the answer of a client that has it, and last, because it may have changed. */
static int (*const silent_steps[])(struct silent_search *, rbd_image_watcher_t *, size_t) = {
	silent_named, silent_without_lock, silent_without_answer, silent_without_answer, silent_without_lock};

static int silent_search_and_fence(struct silent_search *s, rbd_image_watcher_t *w, size_t n)
{
	int left = (int)n, rc = 0;

	for (size_t i = 0; left > 0 && i < ARRAY_SIZE(silent_steps); i++) {
		left = silent_steps[i](s, w, (size_t)left);
	}
	for (int i = 0; rc == 0 && i < left; i++) {
		rc = silent_is_fenced(s, w[i].addr) ? 0 : silent_fence(s, w[i].addr);
	}
	return left < 0 ? left : rc;
}

static void silent_work(struct worker_job *job)
{
	struct silent_search *s = container_of(job, struct silent_search, job.worker);
	rbd_image_watcher_t watchers[WATCHERS_MAX];
	size_t n = WATCHERS_MAX;
	int rc = RBD_WAIT(rbd_watchers_list, s->r->image.image, watchers, &n);

	if (rc < 0) {
		s->rc = silent_say(s, rc, "the watchers of");
		return;
	}
	s->rc = silent_search_and_fence(s, watchers, n);
	librbd.rbd_watchers_list_cleanup(watchers, n);
}

/* --- On the control thread --- */

static void silent_free(struct silent_search *s)
{
	for (size_t i = 0; i < s->num_fenced; i++) {
		free(s->fenced[i]);
	}
	free(s->clients);
	free(s);
}

static void silent_done(struct worker_job *job)
{
	struct silent_search *s = container_of(job, struct silent_search, job.worker);

	if (job->error != 0) {
		s->rc = silent_say(s, job->error, "no thread to ask the watchers of");
	}
	s->cb(s->arg, s->rc, s->error, (const char *const *)s->fenced, s->num_fenced);
	s->r->searching = false;
	bdev_rbd_job_ended(s->r);
	silent_free(s);
}

void bdev_rbd_fence_silent(const char *name, const char *clients, uint64_t until_us, bdev_rbd_fenced_cb cb, void *arg)
{
	struct rbd_bdev *r = (struct rbd_bdev *)bdev_find_of(name, &bdev_rbd_module);
	struct silent_search *s = NULL;
	char error[BDEV_ERROR_MAX];
	int rc = 0;

	if (r == NULL) {
		rc = bdev_error(error, -ENODEV, "name: there is no rbd bdev '%.200s'", name);
	} else if (r->searching) { /* each search that does not end has a thread */
		rc = bdev_error(error, -EBUSY, "bdev '%.80s': the watchers of image '%.80s' are being asked already",
				r->name, r->image_name);
	} else if ((s = calloc(1, sizeof(*s))) == NULL || (s->clients = strdup(clients)) == NULL) {
		rc = bdev_error(error, -ENOMEM, "out of memory");
	}
	if (rc != 0) {
		free(s);
		cb(arg, rc, error, NULL, 0);
		return;
	}
	s->job.work = silent_work;
	s->job.done = silent_done;
	s->r = r;
	s->until_us = until_us;
	s->cb = cb;
	s->arg = arg;
	r->searching = true;
	r->jobs++;
	bdev_rbd_job_run(&s->job, RBD_JOB_ASK, r->image.cluster, r);
}
