/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/core_locks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env_dpdk/startup.h"
#include "util/log.h"

#define TAKE_TRIES 100 /* each time, another process has removed or made the file meanwhile */

static int lock_fds[CPU_SETSIZE]; /* of CPUs in `locked` */
static cpu_set_t locked;

static void core_lock_path(const char *folder, unsigned cpu, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/spdk_cpu_lock_%03u", folder, cpu);
}

/* The folder is everybody's: no link is followed. Without O_CREAT first, because the kernel may refuse it for a file of
 * somebody else (fs.protected_regular). */
static int core_lock_open(const char *path)
{
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
	int fd = open(path, flags);

	return fd >= 0 || errno != ENOENT ? fd : open(path, flags | O_CREAT | O_EXCL, 0600);
}

static pid_t core_lock_holder(int fd, const struct flock *lock)
{
	struct flock other = *lock;
	int pid = 0;

	if (fcntl(fd, F_GETLK, &other) == 0 && other.l_type != F_UNLCK && other.l_pid > 0) {
		return other.l_pid;
	}
	/* in another namespace, or gone by now */
	return pread(fd, &pid, sizeof(pid), 0) == (ssize_t)sizeof(pid) && pid > 0 ? pid : 0;
}

/* True: the file that is open is the one that has the name. */
static bool core_lock_is_current(int fd, const char *path)
{
	struct stat open_file, named;

	return fstat(fd, &open_file) == 0 && lstat(path, &named) == 0 && open_file.st_ino == named.st_ino &&
	       open_file.st_dev == named.st_dev;
}

/* As core_lock_take(); -EAGAIN: once more. */
static int core_lock_try(const char *path, int *result, pid_t *holder)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct stat st;
	int pid = getpid(), rc = 0;
	int fd = core_lock_open(path);

	if (fd < 0) {
		return errno == EEXIST ? -EAGAIN : -errno; /* somebody has made it meanwhile */
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		rc = -EINVAL;
	} else if (fcntl(fd, F_SETLK, &lock) != 0) {
		rc = errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
		*holder = rc == -EBUSY ? core_lock_holder(fd, &lock) : 0;
	} else if (!core_lock_is_current(fd, path)) {
		rc = -EAGAIN; /* its owner removed it before ending the lock */
	} else if (ftruncate(fd, 0) != 0 || pwrite(fd, &pid, sizeof(pid), 0) != (ssize_t)sizeof(pid)) {
		rc = -EIO;
	}
	if (rc != 0) {
		close(fd);
		return rc;
	}
	*result = fd;
	return 0;
}

int core_lock_take(const char *folder, unsigned cpu, int *fd, pid_t *holder)
{
	char path[PATH_MAX];
	int rc = -EAGAIN;

	*holder = 0;
	core_lock_path(folder, cpu, path);
	for (int i = 0; i < TAKE_TRIES && rc == -EAGAIN; i++) {
		rc = core_lock_try(path, fd, holder);
	}
	return rc;
}

void core_lock_release(const char *folder, unsigned cpu, int fd)
{
	char path[PATH_MAX];

	core_lock_path(folder, cpu, path);
	/* While it is locked: afterwards it could be another's. */
	if (core_lock_is_current(fd, path)) {
		unlink(path);
	}
	close(fd);
}

/* "process 123 (nvmf_tgt)" */
static void core_lock_describe(pid_t pid, char *text, size_t bytes)
{
	char path[64], name[32] = "";

	if (pid == 0) {
		snprintf(text, bytes, "another process");
		return;
	}
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	FILE *f = fopen(path, "re");
	if (f != NULL) {
		if (fgets(name, sizeof(name), f) == NULL) {
			name[0] = '\0';
		}
		fclose(f);
	}
	name[strcspn(name, "\n")] = '\0';
	snprintf(text, bytes, name[0] != '\0' ? "process %d (%s)" : "process %d", pid, name);
}

/* The CPUs to lock: those that have an lcore of their own. */
static void core_locks_wanted(cpu_set_t *cpus)
{
	unsigned lcore;

	CPU_ZERO(cpus);
	ENV_FOREACH_LCORE (lcore) {
		int cpu = env_lcore_cpu(lcore);
		if (cpu >= 0) {
			CPU_SET(cpu, cpus);
		}
	}
}

static int core_locks_take(unsigned cpu, pid_t *holder)
{
	int rc = core_lock_take(CORE_LOCKS_FOLDER, cpu, &lock_fds[cpu], holder);

	if (rc == 0) {
		CPU_SET(cpu, &locked);
	}
	return rc;
}

static void core_locks_release(const cpu_set_t *cpus)
{
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, cpus) && CPU_ISSET(cpu, &locked)) {
			core_lock_release(CORE_LOCKS_FOLDER, cpu, lock_fds[cpu]);
			CPU_CLR(cpu, &locked);
		}
	}
}

void core_locks_start(void)
{
	cpu_set_t wanted;
	char who[64];
	pid_t holder;

	core_locks_wanted(&wanted);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		int rc = CPU_ISSET(cpu, &wanted) ? core_locks_take(cpu, &holder) : 0;
		if (rc == -EBUSY) {
			core_lock_describe(holder, who, sizeof(who));
			log_warning("CPU core %u is used by %s too: they take time from each other; give them other "
				    "cores (-m)",
				    cpu, who);
		} else if (rc != 0) {
			log_notice("CPU core %u: its lock in %s cannot be taken (%s): other programs do not see that "
				   "it is in use",
				   cpu, CORE_LOCKS_FOLDER, strerror(-rc));
		}
	}
}

int core_locks_enable(char *error, size_t error_bytes)
{
	cpu_set_t wanted, taken;
	char who[64];
	pid_t holder;

	core_locks_wanted(&wanted);
	CPU_ZERO(&taken);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &wanted) || CPU_ISSET(cpu, &locked)) {
			continue;
		}
		int rc = core_locks_take(cpu, &holder);
		if (rc == -EBUSY) {
			core_lock_describe(holder, who, sizeof(who));
			snprintf(error, error_bytes, "Failed to claim CPU core: %u: %s has it", cpu, who);
		} else if (rc != 0) {
			snprintf(error, error_bytes, "Failed to claim CPU core: %u: its lock in %s: %s", cpu,
				 CORE_LOCKS_FOLDER, strerror(-rc));
		}
		if (rc != 0) {
			core_locks_release(&taken);
			return rc;
		}
		CPU_SET(cpu, &taken);
	}
	return 0;
}

bool core_locks_held(void)
{
	return CPU_COUNT(&locked) != 0;
}

void core_locks_stop(void)
{
	cpu_set_t all = locked;

	core_locks_release(&all);
}
