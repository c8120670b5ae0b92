/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations of memory that take long: a library to preload, before the software RDMA device. While the file
 * $VARVE_HOLD exists, the registration of 32 MB or more does not return; it has begun when the file $VARVE_HOLD.held
 * is there. */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGE_BYTES (UINT64_C(32) << 20)

static void hold(size_t length)
{
	const char *file = getenv("VARVE_HOLD");
	char held[4096];

	if (file == NULL || length < LARGE_BYTES || access(file, F_OK) != 0) {
		return;
	}
	snprintf(held, sizeof(held), "%s.held", file);
	FILE *f = fopen(held, "w");
	if (f != NULL) {
		fclose(f);
	}
	while (access(file, F_OK) == 0) {
		usleep(10000);
	}
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int) =
		(struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int))
			dlsym(RTLD_NEXT, "ibv_reg_mr_iova2");

	if (real == NULL) {
		errno = ENOSYS;
		return NULL;
	}
	hold(length);
	return real(pd, addr, length, iova, access);
}
