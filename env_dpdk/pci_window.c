/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers of a device that may be pulled out. The kernel then removes the mapping, and the next access raises SIGBUS.
 * The handler maps memory full of ones in its place, which is what the bus returns for an absent device, and the access
 * continues; the driver recognizes the value. The handler calls only async-signal-safe functions, and reads only
 * atomics. */
#include "env_dpdk/pci_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOWS 256

static struct {
	uintptr_t start; /* 0: free. Stored last, with release: the handler reads it with acquire */
	size_t len;
} windows[WINDOWS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static int ones_fd = -1;
static size_t ones_len;

static bool replace_by_ones(uintptr_t addr)
{
	for (unsigned i = 0; i < WINDOWS; i++) {
		uintptr_t start = __atomic_load_n(&windows[i].start, __ATOMIC_ACQUIRE);

		if (start == 0 || addr < start || addr >= start + windows[i].len) {
			continue;
		}
		int saved = errno;
		void *p = mmap((void *)start, windows[i].len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, ones_fd,
			       0);
		errno = saved;
		return p != MAP_FAILED;
	}
	return false;
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
	if (info->si_code > 0 && replace_by_ones((uintptr_t)info->si_addr)) {
		return;
	}
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(number);
	} else if (info->si_code > 0 || before.sa_handler == SIG_DFL) {
		sigaction(SIGBUS, &before, NULL); /* and the access, repeated, ends the process */
		if (info->si_code <= 0) {
			raise(number); /* a signal that was sent is not repeated by itself */
		}
	}
}

/* Called before the first window is added, since a device may go at any time. The lock is held. The handler that was
 * there reports crashes: it is called as it would be without this one, on the thread's signal stack and with its mask.
 */
static int handler_install(void)
{
	static bool installed;
	struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	if (installed) {
		return 0;
	}
	ones_fd = memfd_create("varve-ones", MFD_CLOEXEC);
	if (ones_fd < 0) {
		return -errno;
	}
	if (sigaction(SIGBUS, NULL, &before) != 0) {
		return -errno;
	}
	action.sa_mask = before.sa_mask;
	if (sigaction(SIGBUS, &action, NULL) != 0) {
		return -errno;
	}
	installed = true;
	return 0;
}

static int ones_grow(size_t len)
{
	uint8_t page[4096];

	memset(page, 0xff, sizeof(page));
	while (ones_len < len) {
		if (pwrite(ones_fd, page, sizeof(page), (off_t)ones_len) != (ssize_t)sizeof(page)) {
			return -EIO;
		}
		ones_len += sizeof(page);
	}
	return 0;
}

int env_pci_window_add(void *start, size_t len)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = handler_install();
	rc = rc != 0 ? rc : ones_grow(len);
	if (rc == 0) {
		rc = -ENOSPC;
		for (unsigned i = 0; i < WINDOWS && rc != 0; i++) {
			if (windows[i].start == 0) {
				windows[i].len = len;
				__atomic_store_n(&windows[i].start, (uintptr_t)start, __ATOMIC_RELEASE);
				rc = 0;
			}
		}
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

void env_pci_window_remove(void *start)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < WINDOWS; i++) {
		if (windows[i].start == (uintptr_t)start) {
			__atomic_store_n(&windows[i].start, 0, __ATOMIC_RELEASE);
		}
	}
	pthread_mutex_unlock(&lock);
}
