/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/bdev_modules/rbd_fake.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <CUnit/CUnit.h>

#include "util/iov.h"

struct fake fake;

struct fake_completion {
	rbd_callback_t cb;
	void *arg;
	ssize_t result;
	STAILQ_ENTRY(fake_completion) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static STAILQ_HEAD(, fake_completion) ended = STAILQ_HEAD_INITIALIZER(ended);
static bool stop, tell, telling;
static rbd_update_callback_t watcher;
static void *watcher_arg;
static pthread_t thread;

static void hold_while(const atomic_bool *flag)
{
	atomic_fetch_add(&fake.waiting, 1);
	while (atomic_load(flag)) {
		sched_yield();
	}
	atomic_fetch_sub(&fake.waiting, 1);
}

/* --- The library's thread --- */

static bool fake_tell_watcher(void)
{
	rbd_update_callback_t fn = tell ? watcher : NULL;
	void *arg = watcher_arg;

	tell = false;
	if (fn != NULL) {
		telling = true;
		pthread_mutex_unlock(&lock);
		fn(arg);
		pthread_mutex_lock(&lock);
		telling = false;
		pthread_cond_broadcast(&changed);
	}
	return fn != NULL;
}

static bool fake_end_one(void)
{
	struct fake_completion *c = atomic_load(&fake.hold_io) ? NULL : STAILQ_FIRST(&ended);

	if (c == NULL) {
		return false;
	}
	STAILQ_REMOVE_HEAD(&ended, link);
	pthread_mutex_unlock(&lock);
	c->cb(c, c->arg);
	pthread_mutex_lock(&lock);
	return true;
}

static void *fake_thread(void *arg)
{
	pthread_mutex_lock(&lock);
	while (!stop) {
		if (!fake_tell_watcher() && !fake_end_one()) {
			struct timespec at;
			clock_gettime(CLOCK_REALTIME, &at);
			at.tv_nsec += 1000000; /* moods change without a signal */
			at.tv_sec += at.tv_nsec / 1000000000;
			at.tv_nsec %= 1000000000;
			pthread_cond_timedwait(&changed, &lock, &at);
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* --- librados --- */

static int fake_rados_create(rados_t *rados, const char *id)
{
	*rados = malloc(1);
	atomic_fetch_add(&fake.clients, 1);
	return 0;
}

static int fake_rados_conf_read_file(rados_t rados, const char *path)
{
	return path != NULL && strcmp(path, "/none") == 0 ? -ENOENT : 0;
}

static int fake_rados_conf_set(rados_t rados, const char *key, const char *value)
{
	pthread_mutex_lock(&lock);
	size_t n = strlen(fake.settings);
	snprintf(&fake.settings[n], sizeof(fake.settings) - n, "%s=%s ", key, value);
	pthread_mutex_unlock(&lock);
	return strcmp(key, "wrong") == 0 ? -ENOENT : 0;
}

static int fake_rados_connect(rados_t rados)
{
	hold_while(&fake.hold_connect);
	atomic_fetch_add(&fake.connects, 1);
	return atomic_load(&fake.connect_rc);
}

static int fake_rados_blocklist_add(rados_t rados, char *client, uint32_t seconds)
{
	int rc = atomic_load(&fake.break_rc);

	if (rc == 0 && strcmp(client, FAKE_OTHER) == 0 && seconds > 0) {
		atomic_fetch_add(&fake.blocklisted, 1);
	}
	return rc;
}

static int fake_rados_getaddrs(rados_t rados, char **addrs)
{
	/* an address that begins with another client's is another address */
	*addrs = strdup(atomic_load(&fake.addr_is_other) ? "[v2:127.0.0.1:0/22,v1:" FAKE_OTHER "]" : FAKE_OTHER "2");
	return 0;
}

/* Two watchers: another client, and one whose address begins with that one's. */
enum { FAKE_WATCHER = 7, FAKE_COOKIE = 9 };

static int fake_rados_notify2(rados_ioctx_t ioctx, const char *object, const char *data, int len, uint64_t timeout_ms,
			      char **reply, size_t *reply_len)
{
	int rc = atomic_load(&fake.notify_rc);
	unsigned before = atomic_fetch_add(&fake.notifies, 1), times = atomic_load(&fake.silent_times);
	bool silent = atomic_load(&fake.silent) && (times == 0 || before < times);
	uint32_t words[] = {htole32(1), htole32(8),
			    0,          htole32(1),
			    0,          0, /* the other one has answered, without data */
			    htole32(1), htole32(FAKE_WATCHER),
			    0,          htole32(FAKE_COOKIE),
			    0};

	hold_while(&fake.hold_notify);
	if (rc != 0 || strcmp(object, "rbd_header.1a") != 0) {
		*reply = NULL;
		*reply_len = 0;
		return rc != 0 ? rc : -ENOENT;
	}
	words[6] = htole32(silent ? 1 : 0);
	*reply_len = (silent ? 11 : 7) * sizeof(words[0]) - atomic_load(&fake.cut);
	*reply = malloc(*reply_len);
	memcpy(*reply, words, *reply_len);
	return silent ? -ETIMEDOUT : 0;
}

static void fake_rados_buffer_free(char *buffer)
{
	free(buffer);
}

static void fake_rados_shutdown(rados_t rados)
{
	atomic_fetch_add(&fake.shutdowns, 1);
	free(rados);
}

static int fake_rados_ioctx_create(rados_t rados, const char *pool, rados_ioctx_t *ioctx)
{
	if (strcmp(pool, "none") == 0) {
		return -ENOENT;
	}
	atomic_fetch_add(&fake.ioctxs, 1);
	*ioctx = malloc(1);
	return 0;
}

static void fake_rados_ioctx_set_namespace(rados_ioctx_t ioctx, const char *name)
{
}

static void fake_rados_ioctx_destroy(rados_ioctx_t ioctx)
{
	atomic_fetch_sub(&fake.ioctxs, 1);
	free(ioctx);
}

/* --- Images --- */

static int fake_open(rbd_image_t *image)
{
	hold_while(&fake.hold_open);
	int rc = atomic_load(&fake.open_rc);
	if (rc == 0) {
		*image = malloc(1);
		atomic_fetch_add(&fake.opens, 1);
	}
	return rc;
}

static int fake_rbd_open(rados_ioctx_t ioctx, const char *name, rbd_image_t *image, const char *snapshot)
{
	int rc = atomic_load(&fake.rw_open_rc);

	return rc != 0 ? rc : fake_open(image);
}

static int fake_rbd_open_read_only(rados_ioctx_t ioctx, const char *name, rbd_image_t *image, const char *snapshot)
{
	return fake_open(image);
}

static int fake_rbd_close(rbd_image_t image)
{
	hold_while(&fake.hold_close);
	atomic_fetch_add(&fake.closes, 1);
	free(image);
	return 0;
}

/* librbd may have to read the image's header for this, which its own threads do: one of them must not wait for it. */
static void check_may_wait(void)
{
	CU_ASSERT_FALSE(pthread_equal(pthread_self(), thread));
}

static int fake_rbd_get_features(rbd_image_t image, uint64_t *features)
{
	check_may_wait();
	*features = RBD_FEATURE_LAYERING | (atomic_load(&fake.no_lock) ? 0 : RBD_FEATURE_EXCLUSIVE_LOCK);
	return 0;
}

static int fake_rbd_stat(rbd_image_t image, rbd_image_info_t *info, size_t size)
{
	check_may_wait();
	memset(info, 0, size);
	info->size = atomic_load(&fake.size);
	info->obj_size = FAKE_OBJECT_BYTES;
	return atomic_load(&fake.stat_rc);
}

static int fake_rbd_get_stripe_unit(rbd_image_t image, uint64_t *bytes)
{
	*bytes = atomic_load(&fake.stripe_bytes);
	return atomic_load(&fake.stripes_rc);
}

static int fake_rbd_get_stripe_count(rbd_image_t image, uint64_t *count)
{
	*count = atomic_load(&fake.stripe_count);
	return 0;
}

static int fake_rbd_config_image_list(rbd_image_t image, rbd_config_option_t *options, int *max)
{
	const char *cache = atomic_load(&fake.cache), *pwl = atomic_load(&fake.pwl);

	options[0] = (rbd_config_option_t){strdup("rbd_cache"), strdup(cache != NULL ? cache : "false"),
					   RBD_CONFIG_SOURCE_POOL};
	options[1] = (rbd_config_option_t){strdup("rbd_persistent_cache_mode"), strdup(pwl != NULL ? pwl : "disabled"),
					   RBD_CONFIG_SOURCE_IMAGE};
	*max = 2;
	return 0;
}

static void fake_rbd_config_image_list_cleanup(rbd_config_option_t *options, int n)
{
	for (int i = 0; i < n; i++) {
		free(options[i].name);
		free(options[i].value);
	}
}

static int fake_rbd_is_exclusive_lock_owner(rbd_image_t image, int *is_owner)
{
	*is_owner = atomic_load(&fake.lock_owner) == FAKE_LOCK_OWN;
	return 0;
}

static int fake_rbd_lock_get_owners(rbd_image_t image, rbd_lock_mode_t *mode, char **owners, size_t *n)
{
	hold_while(&fake.hold_lock);
	if (atomic_load(&fake.lock_owner) == FAKE_LOCK_FREE) {
		return -ENOENT;
	}
	*mode = RBD_LOCK_MODE_EXCLUSIVE;
	owners[0] = strdup(FAKE_OTHER);
	*n = 1;
	return 0;
}

static void fake_rbd_lock_get_owners_cleanup(char **owners, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(owners[i]);
	}
}

static int fake_rbd_lock_break(rbd_image_t image, rbd_lock_mode_t mode, const char *owner)
{
	atomic_store(&fake.lock_owner, FAKE_LOCK_FREE);
	return 0;
}

static int fake_rbd_lock_acquire(rbd_image_t image, rbd_lock_mode_t mode)
{
	hold_while(&fake.hold_lock);
	int rc = atomic_load(&fake.lock_rc);
	if (rc == 0) {
		atomic_store(&fake.lock_owner, FAKE_LOCK_OWN);
	}
	return rc;
}

static int fake_rbd_get_id(rbd_image_t image, char *id, size_t len)
{
	check_may_wait();
	snprintf(id, len, "1a");
	return atomic_load(&fake.id_rc);
}

static int fake_rbd_watchers_list(rbd_image_t image, rbd_image_watcher_t *watchers, size_t *n)
{
	int rc = atomic_load(&fake.watchers_rc);

	if (rc == 0) {
		watchers[0] = (rbd_image_watcher_t){strdup(FAKE_OTHER "2"), 8, 1};
		watchers[1] = (rbd_image_watcher_t){strdup(FAKE_OTHER), FAKE_WATCHER, FAKE_COOKIE};
		*n = 2;
	}
	return rc;
}

static void fake_rbd_watchers_list_cleanup(rbd_image_watcher_t *watchers, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(watchers[i].addr);
	}
}

static int fake_rbd_lock_release(rbd_image_t image)
{
	atomic_store(&fake.lock_owner, FAKE_LOCK_FREE);
	return 0;
}

static int fake_rbd_resize2(rbd_image_t image, uint64_t size, bool allow_shrink, librbd_progress_fn_t progress,
			    void *arg)
{
	hold_while(&fake.hold_resize);
	int rc = atomic_load(&fake.resize_rc);
	if (rc == 0 && size < atomic_load(&fake.size) && !allow_shrink) {
		rc = -EINVAL;
	}
	if (rc == 0) {
		atomic_store(&fake.size, size);
	}
	return rc;
}

static int fake_rbd_update_watch(rbd_image_t image, uint64_t *handle, rbd_update_callback_t fn, void *arg)
{
	pthread_mutex_lock(&lock);
	watcher = fn;
	watcher_arg = arg;
	pthread_mutex_unlock(&lock);
	*handle = 1;
	return atomic_load(&fake.watch_rc);
}

static int fake_rbd_update_unwatch(rbd_image_t image, uint64_t handle)
{
	pthread_mutex_lock(&lock);
	watcher = NULL;
	while (telling) {
		pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* --- I/O --- */

static int fake_rbd_aio_create_completion(void *arg, rbd_callback_t cb, rbd_completion_t *completion)
{
	struct fake_completion *c = calloc(1, sizeof(*c));

	c->cb = cb;
	c->arg = arg;
	atomic_fetch_add(&fake.completions, 1);
	*completion = c;
	return 0;
}

static ssize_t fake_rbd_aio_get_return_value(rbd_completion_t completion)
{
	return ((struct fake_completion *)completion)->result;
}

static void fake_rbd_aio_release(rbd_completion_t completion)
{
	atomic_fetch_sub(&fake.completions, 1);
	free(completion);
}

static int fake_end(rbd_completion_t completion, ssize_t result)
{
	struct fake_completion *c = completion;

	if (atomic_load(&fake.aio_rc) != 0) {
		return atomic_load(&fake.aio_rc);
	}
	c->result = atomic_load(&fake.io_rc) != 0 ? atomic_load(&fake.io_rc) : result;
	pthread_mutex_lock(&lock);
	STAILQ_INSERT_TAIL(&ended, c, link);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_rbd_aio_readv(rbd_image_t image, const struct iovec *iov, int n, uint64_t at, rbd_completion_t c)
{
	uint64_t start = at, size = atomic_load(&fake.size);

	for (int i = 0; i < n && at < size; i++) {
		uint64_t len = iov[i].iov_len < size - at ? iov[i].iov_len : size - at;
		memcpy(iov[i].iov_base, &fake.memory[at], len);
		at += len;
	}
	return fake_end(c, (ssize_t)(at - start)); /* librbd leaves out what is behind the end, and returns the bytes */
}

static int fake_rbd_aio_writev(rbd_image_t image, const struct iovec *iov, int n, uint64_t at, rbd_completion_t c)
{
	uint64_t size = atomic_load(&fake.size);

	for (int i = 0; i < n && at < size; at += iov[i++].iov_len) {
		memcpy(&fake.memory[at], iov[i].iov_base, iov[i].iov_len < size - at ? iov[i].iov_len : size - at);
	}
	return fake_end(c, 0); /* librbd leaves out what is behind the end, and tells success */
}

static int fake_rbd_aio_discard(rbd_image_t image, uint64_t at, uint64_t len, rbd_completion_t c)
{
	memset(&fake.memory[at], 0, len);
	return fake_end(c, 0);
}

static int fake_rbd_aio_write_zeroes(rbd_image_t image, uint64_t at, size_t len, rbd_completion_t c, int flags, int op)
{
	memset(&fake.memory[at], 0, len);
	return fake_end(c, 0);
}

static int fake_rbd_aio_flush(rbd_image_t image, rbd_completion_t c)
{
	return fake_end(c, 0);
}

static ssize_t fake_rbd_aio_compare_and_write(rbd_image_t image, uint64_t at, size_t len, const char *expected,
					      const char *data, rbd_completion_t c, uint64_t *mismatch, int op)
{
	if (at % 512 + len > 512) { /* as librbd 16 */
		return fake_end(c, -EINVAL);
	}
	if (memcmp(&fake.memory[at], expected, len) != 0) {
		return fake_end(c, -EILSEQ);
	}
	memcpy(&fake.memory[at], data, len);
	return fake_end(c, 0);
}

/* --- For tests --- */

void fake_start(void)
{
#define FAKE_SET(function_) librbd.function_ = fake_##function_;
	RBD_LIBRARY_FUNCTIONS(FAKE_SET)
#undef FAKE_SET
	stop = false;
	fake_reset();
	pthread_create(&thread, NULL, fake_thread, NULL);
}

void fake_stop(void)
{
	pthread_mutex_lock(&lock);
	stop = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
}

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.size = FAKE_IMAGE_BYTES;
	fake.stripe_bytes = FAKE_OBJECT_BYTES;
	fake.stripe_count = 1;
}

void fake_change_size(uint64_t bytes)
{
	atomic_store(&fake.size, bytes);
	pthread_mutex_lock(&lock);
	tell = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
