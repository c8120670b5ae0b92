/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/rbd/library.h"

struct rbd_library librbd;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;

static int library_fail(char *error)
{
	const char *why = dlerror();

	return bdev_error(error, -ELIBACC, "librbd cannot be used: %.300s (Debian's package is librbd1)",
			  why != NULL ? why : "unknown");
}

/* librbd depends on librados, whose functions are found through it. */
static int library_open(char *error)
{
	void *handle = dlopen("librbd.so.1", RTLD_NOW | RTLD_LOCAL);

	if (handle == NULL) {
		return library_fail(error);
	}
#define RBD_LIBRARY_FIND(function_)                                                                                    \
	if (librbd.function_ == NULL && (*(void **)&librbd.function_ = dlsym(handle, #function_)) == NULL) {           \
		return library_fail(error);                                                                            \
	}
	RBD_LIBRARY_FUNCTIONS(RBD_LIBRARY_FIND)
#undef RBD_LIBRARY_FIND
	return 0;
}

int rbd_library_load(char *error)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!loaded) {
		rc = librbd.rados_create != NULL ? 0 : library_open(error);
		loaded = rc == 0;
		if (rc != 0) { /* one that lacks a function is not used in part */
			memset(&librbd, 0, sizeof(librbd));
		}
	}
	pthread_mutex_unlock(&lock);
	return rc;
}
