/* SPDX-License-Identifier: BSD-3-Clause */
/* Targets that are block devices inside this process. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/malloc/malloc.h"
#include "bdev_modules/null/null.h"
#ifdef WITH_BDEV_URING
#include "bdev_modules/uring/uring.h"
#endif
#include "tools/perf/perf.h"

#define BLOCK_SIZE 512

static void perf_local_on_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	/* the devices are deleted only by perf_locals_close(), which closes the descriptors first */
}

static int perf_local_create(const struct perf_bdev *b, const char *name, bool writes, char *error)
{
	switch (b->kind) {
	case PERF_BDEV_NULL:
		return bdev_null_create(&(struct bdev_null_opts){.name = name,
								 .block_size = BLOCK_SIZE,
								 .num_blocks = b->bytes / BLOCK_SIZE},
					error);
	case PERF_BDEV_MALLOC:
		return bdev_malloc_create(&(struct bdev_malloc_opts){.name = name,
								     .block_size = BLOCK_SIZE,
								     .num_blocks = b->bytes / BLOCK_SIZE,
								     .numa_id = -1},
					  NULL, error);
	case PERF_BDEV_FILE:
#ifdef WITH_BDEV_URING
		return bdev_uring_create(
			&(struct bdev_uring_opts){.name = name, .filename = b->path, .readonly = !writes}, error);
#else
		snprintf(error, BDEV_ERROR_MAX, "this program was built without the uring module");
		return -ENOTSUP;
#endif
	}
	return -1;
}

bool perf_locals_open(struct perf_locals *l, const struct perf_options *o)
{
	if (o->num_bdevs == 0) {
		return true;
	}
	int rc = bdev_init();
	if (rc != 0) {
		fprintf(stderr, "varve-perf: block devices: %s\n", strerror(-rc));
		return false;
	}
	l->started = true;
	for (unsigned i = 0; i < o->num_bdevs; i++) {
		struct perf_target *t = &l->targets[i];
		bool writes = o->verify || o->read_percent < 100;
		char name[16], error[BDEV_ERROR_MAX] = "";

		snprintf(name, sizeof(name), "bdev%u", i);
		*t = (struct perf_target){.opts = o, .index = i, .ready = true};
		rc = perf_local_create(&o->bdevs[i], name, writes, error);
		if (rc == 0) {
			l->num++;
			rc = bdev_open(name, writes, perf_local_on_event, t, &t->desc);
		}
		if (rc != 0) {
			fprintf(stderr, "varve-perf: %s\n", error[0] ? error : strerror(-rc));
			return false;
		}
	}
	return true;
}

struct nvme_ns perf_local_ns(const struct perf_target *t)
{
	const struct bdev *b = bdev_desc_bdev(t->desc);

	return (struct nvme_ns){
		.nsid = t->index + 1, .num_blocks = bdev_num_blocks(b), .block_size = bdev_block_size(b)};
}

static void perf_locals_on_end(void *arg)
{
	((struct perf_locals *)arg)->started = false;
}

static bool perf_locals_are_ended(void *arg)
{
	return !((struct perf_locals *)arg)->started;
}

void perf_locals_close(struct perf_locals *l)
{
	if (!l->started) {
		return;
	}
	for (unsigned i = 0; i < l->num; i++) {
		if (l->targets[i].desc != NULL) {
			bdev_close(l->targets[i].desc);
		}
	}
	bdev_fini(perf_locals_on_end, l);
	thread_control_wait(perf_locals_are_ended, l, UINT64_MAX);
}
