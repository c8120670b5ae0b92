/* SPDX-License-Identifier: BSD-3-Clause */
/* A clock of the day that tests can set for one program: a library to preload. The first 8 bytes of the file
 * $VARVE_CLOCK_FILE are the nanoseconds it is ahead of the kernel's; whoever writes other ones there sets it. The next
 * 8 bytes are the nanoseconds for which the system has been suspended while the TSC stood still: the clock of the day
 * and CLOCK_BOOTTIME are ahead by them. CLOCK_MONOTONIC is left alone. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000

static const int64_t *ahead;
static int (*kernels)(clockid_t id, struct timespec *t);

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("VARVE_CLOCK_FILE");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *map = fd >= 0 ? mmap(NULL, 2 * sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (map == MAP_FAILED) {
		perror("VARVE_CLOCK_FILE");
		_exit(127);
	}
	close(fd);
	ahead = map;
}

static int real_clock(clockid_t id, struct timespec *t)
{
	if (kernels == NULL) { /* programs ask for the time before constructors run */
		kernels = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	}
	return kernels(id, t);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	int rc = real_clock(id, t);

	bool is_day = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_TAI;
	if (rc == 0 && ahead != NULL && (is_day || id == CLOCK_BOOTTIME)) {
		int64_t ns = t->tv_sec * (int64_t)SECOND_NS + t->tv_nsec;
		ns += is_day ? __atomic_load_n(&ahead[0], __ATOMIC_RELAXED) : 0;
		ns += __atomic_load_n(&ahead[1], __ATOMIC_RELAXED);
		t->tv_sec = ns / SECOND_NS;
		t->tv_nsec = ns % SECOND_NS;
	}
	return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec t;
	int rc = clock_gettime(CLOCK_REALTIME, &t);

	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return rc;
}

time_t time(time_t *to)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (to != NULL) {
		*to = t.tv_sec;
	}
	return t.tv_sec;
}
