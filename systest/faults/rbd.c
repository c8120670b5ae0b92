/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of librados and librbd, which are found when the libraries are loaded: each pointer in the module's table is
 * replaced by a function that fails, is late, or answers nonsense (systest/rbd_faults.py). The functions that return
 * nothing and only free memory are left alone. */
#ifdef WITH_BDEV_RBD

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bdev_modules/rbd/library.h"
#include "systest/faults/faults.h"

enum verdict { VERDICT_PASS, VERDICT_FAIL, VERDICT_LIE };

void *__real_malloc(size_t bytes);
void __real_free(void *p);
int __real_rbd_library_load(char *error);
int __wrap_rbd_library_load(char *error);

static struct rbd_library real;
static bool replaced;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The first number of the fault: milliseconds, or which lie. */
static int number(void)
{
	return atomic_load(&fault_area->victim);
}

static enum verdict rbd_fault_verdict(const char *name, void *pc, void *frame, bool may_wait)
{
	if (!fault_here(name, pc, frame, 0)) {
		return VERDICT_PASS;
	}
	switch (atomic_load(&fault_area->action)) {
	case FAULT_DELAY:
		if (may_wait) {
			struct timespec t = {number() / 1000, number() % 1000 * 1000000L};
			nanosleep(&t, NULL);
		}
		return VERDICT_PASS;
	case FAULT_LIE:
		return VERDICT_LIE;
	default:
		return VERDICT_FAIL;
	}
}

#define VERDICT(name, may_wait)                                                                                        \
	rbd_fault_verdict(#name, __builtin_return_address(0), __builtin_frame_address(0), may_wait)

/* Fails with `error` before it is done. */
#define RBD_FAULTY(name, error, params, args)                                                                          \
	static int rbd_faulty_##name params                                                                            \
	{                                                                                                              \
		return VERDICT(name, true) == VERDICT_FAIL ? error : real.name args;                                   \
	}
/* The same on a reactor: it is never late, because librbd only queues it. */
#define RBD_FAULTY_AIO(name, params, args)                                                                             \
	static int rbd_faulty_##name params                                                                            \
	{                                                                                                              \
		return VERDICT(name, false) == VERDICT_FAIL ? -EIO : (int)real.name args;                              \
	}
/* It is done in any case. */
#define RBD_FAULTY_END(name, params, args)                                                                             \
	static int rbd_faulty_##name params                                                                            \
	{                                                                                                              \
		bool fails = VERDICT(name, true) == VERDICT_FAIL;                                                      \
		int rc = real.name args;                                                                               \
		return fails ? -EIO : rc;                                                                              \
	}
#define RBD_FAULTY_VOID(name, params, args)                                                                            \
	static void rbd_faulty_##name params                                                                           \
	{                                                                                                              \
		VERDICT(name, true);                                                                                   \
		real.name args;                                                                                        \
	}

RBD_FAULTY(rados_create, -ENOMEM, (rados_t * r, const char *id), (r, id))
RBD_FAULTY(rados_conf_read_file, -EACCES, (rados_t r, const char *path), (r, path))
RBD_FAULTY(rados_conf_set, -EINVAL, (rados_t r, const char *key, const char *value), (r, key, value))
RBD_FAULTY(rados_connect, -ETIMEDOUT, (rados_t r), (r))
RBD_FAULTY(rados_blocklist_add, -EPERM, (rados_t r, char *client, uint32_t seconds), (r, client, seconds))
RBD_FAULTY(rados_ioctx_create, -EIO, (rados_t r, const char *pool, rados_ioctx_t *io), (r, pool, io))
RBD_FAULTY(rbd_open, -EIO, (rados_ioctx_t io, const char *name, rbd_image_t *i, const char *snap), (io, name, i, snap))
RBD_FAULTY(rbd_open_read_only, -EIO, (rados_ioctx_t io, const char *name, rbd_image_t *i, const char *snap),
	   (io, name, i, snap))
RBD_FAULTY(rbd_resize2, -ENOSPC, (rbd_image_t i, uint64_t size, bool shrink, librbd_progress_fn_t fn, void *arg),
	   (i, size, shrink, fn, arg))
RBD_FAULTY(rbd_update_watch, -EIO, (rbd_image_t i, uint64_t *handle, rbd_update_callback_t fn, void *arg),
	   (i, handle, fn, arg))
RBD_FAULTY(rbd_config_image_list, -EIO, (rbd_image_t i, rbd_config_option_t *options, int *n), (i, options, n))
RBD_FAULTY(rbd_is_exclusive_lock_owner, -EIO, (rbd_image_t i, int *is), (i, is))
RBD_FAULTY(rbd_lock_break, -EIO, (rbd_image_t i, rbd_lock_mode_t mode, const char *owner), (i, mode, owner))
RBD_FAULTY(rbd_lock_acquire, -EIO, (rbd_image_t i, rbd_lock_mode_t mode), (i, mode))
RBD_FAULTY(rbd_get_id, -EINVAL, (rbd_image_t i, char *id, size_t n), (i, id, n))
RBD_FAULTY(rbd_watchers_list, -EIO, (rbd_image_t i, rbd_image_watcher_t *w, size_t *n), (i, w, n))
RBD_FAULTY(rbd_lock_release, -EIO, (rbd_image_t i), (i))
RBD_FAULTY_AIO(rbd_aio_readv, (rbd_image_t i, const struct iovec *v, int n, uint64_t at, rbd_completion_t c),
	       (i, v, n, at, c))
RBD_FAULTY_AIO(rbd_aio_writev, (rbd_image_t i, const struct iovec *v, int n, uint64_t at, rbd_completion_t c),
	       (i, v, n, at, c))
RBD_FAULTY_AIO(rbd_aio_discard, (rbd_image_t i, uint64_t at, uint64_t n, rbd_completion_t c), (i, at, n, c))
RBD_FAULTY_AIO(rbd_aio_write_zeroes, (rbd_image_t i, uint64_t at, size_t n, rbd_completion_t c, int flags, int op),
	       (i, at, n, c, flags, op))
RBD_FAULTY_AIO(rbd_aio_flush, (rbd_image_t i, rbd_completion_t c), (i, c))
RBD_FAULTY_END(rbd_close, (rbd_image_t i), (i))
RBD_FAULTY_END(rbd_update_unwatch, (rbd_image_t i, uint64_t handle), (i, handle))
RBD_FAULTY_VOID(rados_shutdown, (rados_t r), (r))
RBD_FAULTY_VOID(rados_ioctx_destroy, (rados_ioctx_t io), (io))

static ssize_t rbd_faulty_rbd_aio_compare_and_write(rbd_image_t i, uint64_t at, size_t n, const char *expected,
						    const char *data, rbd_completion_t c, uint64_t *mismatch, int flags)
{
	if (VERDICT(rbd_aio_compare_and_write, false) == VERDICT_FAIL) {
		return -EIO;
	}
	return real.rbd_aio_compare_and_write(i, at, n, expected, data, c, mismatch, flags);
}

/* --- Answers of a cluster that is out of its mind --- */

static int rbd_faulty_rbd_stat(rbd_image_t i, rbd_image_info_t *info, size_t bytes)
{
	static const struct {
		uint64_t size, object;
	} lies[] = {{0, 1 << 22}, {UINT64_MAX, 1 << 22}, {1 << 24, 0}, {1 << 24, 12345}, {100, 1 << 22}};
	enum verdict v = VERDICT(rbd_stat, true);
	int rc = v == VERDICT_FAIL ? -EIO : real.rbd_stat(i, info, bytes);

	if (v == VERDICT_LIE) {
		info->size = lies[number() % 5].size;
		info->obj_size = lies[number() % 5].object;
	}
	return rc;
}

static void rbd_lie_stripes(uint64_t *value)
{
	static const uint64_t lies[] = {0, 3, 1 << 23, UINT64_MAX};

	*value = lies[number() % 4];
}

static int rbd_faulty_rbd_get_stripe_unit(rbd_image_t i, uint64_t *bytes)
{
	enum verdict v = VERDICT(rbd_get_stripe_unit, true);
	int rc = v == VERDICT_FAIL ? -EIO : real.rbd_get_stripe_unit(i, bytes);

	if (v == VERDICT_LIE) {
		rbd_lie_stripes(bytes);
	}
	return rc;
}

static int rbd_faulty_rbd_get_stripe_count(rbd_image_t i, uint64_t *count)
{
	enum verdict v = VERDICT(rbd_get_stripe_count, true);
	int rc = v == VERDICT_FAIL ? -EIO : real.rbd_get_stripe_count(i, count);

	if (v == VERDICT_LIE) {
		rbd_lie_stripes(count);
	}
	return rc;
}

static int rbd_faulty_rbd_get_features(rbd_image_t i, uint64_t *features)
{
	enum verdict v = VERDICT(rbd_get_features, true);
	int rc = v == VERDICT_FAIL ? -EIO : real.rbd_get_features(i, features);

	if (v == VERDICT_LIE) {
		*features = number() % 2 == 0 ? 0 : UINT64_MAX;
	}
	return rc;
}

/* A text in the place of another one that the caller frees. */
static void rbd_lie_text(char **text)
{
	size_t n = number() % 2 == 0 ? 0 : 5000;
	char *lie = __real_malloc(n + 1);

	memset(lie, 0x1b, n);
	lie[n] = '\0';
	__real_free(*text);
	*text = lie;
}

static int rbd_faulty_rados_getaddrs(rados_t r, char **addresses)
{
	enum verdict v = VERDICT(rados_getaddrs, true);
	int rc = v == VERDICT_FAIL ? -EIO : real.rados_getaddrs(r, addresses);

	if (v == VERDICT_LIE && rc >= 0) {
		rbd_lie_text(addresses);
	}
	return rc;
}

static int rbd_faulty_rados_notify2(rados_ioctx_t io, const char *object, const char *data, int n, uint64_t ms,
				    char **reply, size_t *len)
{
	enum verdict v = VERDICT(rados_notify2, true);

	*reply = NULL;
	*len = 0;
	int rc = v == VERDICT_FAIL ? -EIO : real.rados_notify2(io, object, data, n, ms, reply, len);
	if (v == VERDICT_LIE && *len != 0) {
		if (number() % 2 == 0) {
			*len -= 1;
		} else {
			memset(*reply, 0xff, *len);
		}
	}
	return rc;
}

static int rbd_faulty_rbd_lock_get_owners(rbd_image_t i, rbd_lock_mode_t *mode, char **owners, size_t *n)
{
	enum verdict v = VERDICT(rbd_lock_get_owners, true);
	int rc = v == VERDICT_FAIL ? -EIO : real.rbd_lock_get_owners(i, mode, owners, n);

	if (v == VERDICT_LIE && rc == 0 && *n == 1) {
		rbd_lie_text(&owners[0]);
	}
	return rc;
}

/* --- The end of I/O --- */

struct rbd_faulty_end {
	rbd_callback_t fn;
	void *arg;
};

static void rbd_faulty_complete(rbd_completion_t c, void *arg)
{
	struct rbd_faulty_end *e = arg;
	struct rbd_faulty_end end = *e;

	__real_free(e);
	VERDICT(rbd completion, true);
	end.fn(c, end.arg);
}

static int rbd_faulty_rbd_aio_create_completion(void *arg, rbd_callback_t fn, rbd_completion_t *c)
{
	if (VERDICT(rbd_aio_create_completion, false) == VERDICT_FAIL) {
		return -ENOMEM;
	}
	struct rbd_faulty_end *e = __real_malloc(sizeof(*e));
	*e = (struct rbd_faulty_end){fn, arg};
	int rc = real.rbd_aio_create_completion(e, rbd_faulty_complete, c);
	if (rc < 0) {
		__real_free(e);
	}
	return rc;
}

static ssize_t rbd_faulty_rbd_aio_get_return_value(rbd_completion_t c)
{
	static const ssize_t errors[] = {-EIO, -ESHUTDOWN, -EROFS, -ENOSPC, -EBUSY, -ETIMEDOUT};
	static const ssize_t lies[] = {INT64_MAX, INT64_MIN, -100000, 1};
	enum verdict v = VERDICT(rbd_aio_get_return_value, false);
	ssize_t result = real.rbd_aio_get_return_value(c);

	return v == VERDICT_FAIL ? errors[number() % 6] : v == VERDICT_LIE ? lies[number() % 4] : result;
}

/* These cannot fail. */
#define rbd_faulty_rados_ioctx_set_namespace     real.rados_ioctx_set_namespace
#define rbd_faulty_rbd_config_image_list_cleanup real.rbd_config_image_list_cleanup
#define rbd_faulty_rbd_lock_get_owners_cleanup   real.rbd_lock_get_owners_cleanup
#define rbd_faulty_rbd_watchers_list_cleanup     real.rbd_watchers_list_cleanup
#define rbd_faulty_rados_buffer_free             real.rados_buffer_free
#define rbd_faulty_rbd_aio_release               real.rbd_aio_release

static void rbd_replace_all(void)
{
	real = librbd;
#define RBD_REPLACE(name_) .name_ = rbd_faulty_##name_,
	librbd = (struct rbd_library){RBD_LIBRARY_FUNCTIONS(RBD_REPLACE)};
}

int __wrap_rbd_library_load(char *error)
{
	pthread_mutex_lock(&lock);
	int rc = __real_rbd_library_load(error);
	if (rc == 0 && !replaced && fault_area != NULL) {
		rbd_replace_all();
		replaced = true;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

#endif
