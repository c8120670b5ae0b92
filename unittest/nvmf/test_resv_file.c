/* SPDX-License-Identifier: BSD-3-Clause */
/* Reservations that persist: what outlives the target, and what does not when a step of writing it fails. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdarg.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unittest/nvmf/resv_fixture.h"

static void test_reservation_persists_if_it_is_to(void)
{
	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, WE, 0), 0);
	restart(); /* not asked for */
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, WE, 0), 0);
	restart();
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), CONFLICT);
	CU_ASSERT_EQUAL(io(&a, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(report(&b, 128, true), 0);
	CU_ASSERT(le(0, 4) == 0 && data[4] == WE && le(5, 2) == 1 && data[9] == 1 && le(72, 8) == 'a');
	CU_ASSERT_EQUAL(release(&a, 0, WE), 0);
	restart();
	CU_ASSERT_EQUAL(report(&b, 128, true), 0);
	CU_ASSERT(data[4] == 0 && le(5, 2) == 1 && data[9] == 1);
	CU_ASSERT_EQUAL(reg(&b, 2u << 30), 0); /* no longer */
	restart();
	CU_ASSERT_EQUAL(report(&b, 128, true), 0);
	CU_ASSERT(le(5, 2) == 0 && data[9] == 0);
	detach();
}

static void test_persistence_is_a_feature_too(void)
{
	uint32_t value = 0;
	char away[64];

	snprintf(away, sizeof(away), "%s.away", folder);
	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_PERSIST, nsid, 1), 0);
	CU_ASSERT_EQUAL(feature(&a, nvme_admin_get_features, NVME_FEAT_FID_RESV_PERSIST, nsid, &value), 0);
	CU_ASSERT_EQUAL(value, 1);
	value = 0;
	CU_ASSERT_EQUAL(feature(&a, nvme_admin_get_features, NVME_FEAT_FID_RESV_PERSIST | 3 << 8, nsid, &value), 0);
	CU_ASSERT_EQUAL(value, 6); /* changeable, of a namespace */
	restart();
	CU_ASSERT_EQUAL(report(&b, 128, true), 0);
	CU_ASSERT(le(5, 2) == 1 && data[9] == 1);
	/* All namespaces: those that can. */
	uint32_t other = loop_add_malloc_ns("m2", 512, 100);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_PERSIST, NVME_NSID_ALL, 0), 0);
	value = 0;
	CU_ASSERT_EQUAL(feature(&a, nvme_admin_get_features, NVME_FEAT_FID_RESV_PERSIST, nsid, &value), 0);
	CU_ASSERT_EQUAL(value, 0);
	value = 1;
	CU_ASSERT_EQUAL(feature(&a, nvme_admin_set_features, NVME_FEAT_FID_RESV_PERSIST, NVME_NSID_ALL, &value), 0);
	CU_ASSERT_EQUAL(value, 0); /* dword 0 of the answer */
	CU_ASSERT_EQUAL(feature(&a, nvme_admin_get_features, NVME_FEAT_FID_RESV_PERSIST, nsid, &value), 0);
	CU_ASSERT_EQUAL(value, 1);
	CU_ASSERT_EQUAL(rename(folder, away), 0);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_PERSIST, NVME_NSID_ALL, 0), NVME_ST(GENERIC, INTERNAL));
	CU_ASSERT_EQUAL(rename(away, folder), 0);
	loop_remove_malloc_ns(other, "m2");
	detach();
	attach(false);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_PERSIST, nsid, 1), INVALID);
	CU_ASSERT_EQUAL(set_feature(&b, NVME_FEAT_FID_RESV_PERSIST, nsid, 0), 0);
	detach();
}

/* What cannot be kept is not done. */
static void test_change_that_cannot_be_written_fails(void)
{
	char away[64];

	snprintf(away, sizeof(away), "%s.away", folder);
	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	CU_ASSERT_EQUAL(rename(folder, away), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), NVME_ST(GENERIC, INTERNAL));
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
	CU_ASSERT_EQUAL(rename(away, folder), 0);
	CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), 0);
	CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), CONFLICT);
	detach();
}

/* The steps in which the file is written: the calls that are about what is in the folder, in their order, while they
 * are watched. They come from one thread at a time, which the command waits for. */
static struct {
	bool watched, broken, slow; /* broken: all calls fail from the one that fails on; slow: see __wrap_write() */
	unsigned fails, calls;      /* the call that fails, from 1; 0: none */
	char steps[256];
} disk;

enum { STEPS = 7 }; /* whose failure counts: all but that the folder is closed */

static bool is_in_folder(const char *path)
{
	return disk.watched && strncmp(path, folder, strlen(folder)) == 0;
}

static bool is_file_in_folder(int fd)
{
	char link[32], path[256] = "";

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return disk.watched && readlink(link, path, sizeof(path) - 1) > 0 && is_in_folder(path);
}

static bool strikes(const char *step, int error)
{
	size_t n = strlen(disk.steps);

	snprintf(disk.steps + n, sizeof(disk.steps) - n, "%s ", step);
	disk.calls++;
	errno = error;
	return disk.fails != 0 && (disk.broken ? disk.calls >= disk.fails : disk.calls == disk.fails);
}

static bool lock_may_not_be_opened;

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
	va_list rest;

	if (is_in_folder(path) && strikes("open", EMFILE)) {
		return -1;
	}
	if (lock_may_not_be_opened && strstr(path, ".lock") != NULL) {
		errno = EACCES;
		return -1;
	}
	va_start(rest, flags);
	int fd = __real_open64(path, flags, flags & O_CREAT ? va_arg(rest, mode_t) : 0);
	va_end(rest);
	return fd;
}

ssize_t __real_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n)
{
	if (is_file_in_folder(fd)) {
		if (disk.slow && disk.calls++ % 2 == 0) {
			errno = EINTR;
			return -1;
		}
		if (disk.slow) {
			return __real_write(fd, from, 1 + n / 4);
		}
		if (strikes("write", ENOSPC)) {
			__real_write(fd, from, n / 2);
			return -1;
		}
	}
	return __real_write(fd, from, n);
}

static atomic_bool hold, held; /* the disk takes its time: who waits for it is kept until it does not */
static sem_t let_go;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	if (is_file_in_folder(fd) && atomic_exchange(&hold, false)) {
		atomic_store(&held, true);
		fixture_wake();
		sem_wait(&let_go);
	}
	return is_file_in_folder(fd) && strikes("fsync", EIO) ? -1 : __real_fsync(fd);
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	bool fails = is_file_in_folder(fd) && strikes("close", EIO);
	int error = errno, rc = __real_close(fd);

	errno = error;
	return fails ? -1 : rc;
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
	return is_in_folder(from) && strikes("rename", EIO) ? -1 : __real_rename(from, to);
}

static void disk_fails(unsigned call, bool broken)
{
	memset(&disk, 0, sizeof(disk));
	disk.watched = true;
	disk.fails = call;
	disk.broken = broken;
}

static bool disk_has_failed(void)
{
	bool failed = disk.calls >= disk.fails;

	disk.watched = false;
	return failed;
}

static void read_file(char text[4096])
{
	FILE *f = fopen(file, "r");

	memset(text, 0, 4096);
	if (f != NULL) {
		CU_ASSERT_TRUE(fread(text, 1, 4095, f) > 0);
		fclose(f);
	}
}

/* Nothing else is in the folder but the lock. */
static bool is_alone(void)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	unsigned others = 0;

	while ((e = readdir(dir)) != NULL) {
		others += e->d_name[0] != '.' && strcmp(e->d_name, "resv") != 0 && strcmp(e->d_name, "resv.lock") != 0;
	}
	closedir(dir);
	return others == 0;
}

/* The power may go at any moment: the new text is on the disk before it is the file, and its name before the command
 * ends. */
static void test_text_is_on_the_disk_before_it_is_the_file(void)
{
	attach(true);
	disk_fails(0, false);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	disk.watched = false;
	CU_ASSERT_STRING_EQUAL(disk.steps, "open write fsync close rename open fsync close ");
	detach();
}

static void test_change_with_a_step_that_fails_is_none(void)
{
	char old[4096], now[4096];

	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	read_file(old);
	for (unsigned step = 1; step <= STEPS; step++) {
		disk_fails(step, false);
		CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), NVME_ST(GENERIC, INTERNAL));
		CU_ASSERT_TRUE(disk_has_failed());
		read_file(now);
		CU_ASSERT_STRING_EQUAL(now, old);
		CU_ASSERT_TRUE(is_alone());
		CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
		restart();
		CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
		CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), 0);
		CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), CONFLICT);
		CU_ASSERT_EQUAL(release(&a, 0, EA), 0);
	}
	detach();
}

static void test_first_change_with_a_step_that_fails_is_none(void)
{
	for (unsigned step = 1; step <= STEPS; step++) {
		attach(true);
		disk_fails(step, false);
		CU_ASSERT_EQUAL(reg(&a, 3u << 30), NVME_ST(GENERIC, INTERNAL));
		CU_ASSERT_TRUE(disk_has_failed());
		CU_ASSERT_TRUE(is_alone());
		restart();
		CU_ASSERT_EQUAL(report(&b, 128, true), 0);
		CU_ASSERT(le(5, 2) == 0 && data[9] == 0);
		CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
		restart();
		CU_ASSERT_EQUAL(report(&b, 128, true), 0);
		CU_ASSERT(le(5, 2) == 1 && data[9] == 1);
		detach();
	}
}

/* From some step on nothing works any more: the file is the old one or the new one, as a whole, and the disk's return
 * is enough. */
static void test_disk_that_breaks_leaves_a_whole_file(void)
{
	char old[4096], new[4096], now[4096];

	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	read_file(old);
	CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), 0);
	read_file(new);
	CU_ASSERT_STRING_NOT_EQUAL(old, new);
	CU_ASSERT_EQUAL(release(&a, 0, EA), 0);
	for (unsigned step = 1; step <= STEPS; step++) {
		disk_fails(step, true);
		CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), NVME_ST(GENERIC, INTERNAL));
		CU_ASSERT_TRUE(disk_has_failed());
		read_file(now);
		CU_ASSERT_STRING_EQUAL(now, step <= 5 ? old : new); /* the fifth is that it is renamed */
		CU_ASSERT_TRUE(is_alone());
		CU_ASSERT_EQUAL(io(&b, nvme_cmd_write), 0);
		CU_ASSERT_EQUAL(acquire(&a, 0, EA, 0), 0);
		read_file(now);
		CU_ASSERT_STRING_EQUAL(now, new);
		CU_ASSERT_EQUAL(release(&a, 0, EA), 0);
		read_file(now);
		CU_ASSERT_STRING_EQUAL(now, old);
	}
	detach();
}

static void test_text_that_is_written_in_pieces_is_whole(void)
{
	char whole[4096], now[4096];

	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	read_file(whole);
	CU_ASSERT_EQUAL(reg(&b, 0), 0);
	disk_fails(0, false);
	disk.slow = true;
	CU_ASSERT_EQUAL(reg(&b, 1), 0); /* no longer */
	disk.watched = false;
	CU_ASSERT_TRUE(disk.calls > 4);
	read_file(now);
	CU_ASSERT_STRING_EQUAL(now, whole);
	detach();
}

static void write_file(const char *text)
{
	FILE *f = fopen(file, "w");

	fputs(text, f);
	fclose(f);
}

/* Somebody who has put a file there first, or holds it open, has no part in the reservation. */
static void test_what_has_the_new_name_already_is_not_written_to(void)
{
	char new[80];
	struct stat theirs, ours;

	snprintf(new, sizeof(new), "%s.new", file);
	attach(true);
	int fd = open(new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	CU_ASSERT_EQUAL(fstat(fd, &theirs), 0);
	CU_ASSERT(theirs.st_size == 0 && theirs.st_nlink == 0);
	CU_ASSERT_EQUAL_FATAL(stat(file, &ours), 0);
	CU_ASSERT(ours.st_size != 0 && (ours.st_mode & 0777) == 0600);
	close(fd);
	detach();
}

static void test_files_that_cannot_be_are_refused(void)
{
	char other[96];
	uint32_t second;

	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 3u << 30), 0);
	struct nvmf_ns_opts opts = {.ptpl_file = file};
	make_malloc("m2", 512, 100);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "m2", &opts, &second), -EBUSY);
	detach_host(&a);
	detach_host(&b);
	loop_remove_ns(nsid);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "m2", &opts, &second), -EINVAL); /* another's */
	write_file("varve-reservation 1\nnonsense\n");
	CU_ASSERT_EQUAL(add_ns(file), -EBADMSG);
	CU_ASSERT_EQUAL(add_ns("relative"), -EINVAL);
	CU_ASSERT_EQUAL(add_ns("/no/such/folder/file"), -ENOENT);
	CU_ASSERT_EQUAL(add_ns(folder), -EINVAL); /* no file */
	snprintf(other, sizeof(other), "%s/resv/", folder);
	CU_ASSERT_EQUAL(add_ns(other), -EINVAL);
	snprintf(other, sizeof(other), "%s/fifo", folder);
	CU_ASSERT_EQUAL(mkfifo(other, 0600), 0);
	CU_ASSERT_EQUAL(add_ns(other), -EINVAL);
	unlink(other);
	unlink(file);
	CU_ASSERT_EQUAL(add_ns(file), 0);
	loop_remove_malloc_ns(nsid, "m");
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m2"), 0);
	unlink(file);
}

/* A namespace is refused with what the other's file is, or with what a new text of it is called for a moment. */
static void test_one_file_is_not_that_of_two_namespaces_by_whatever_name(void)
{
	/* of the first, and of the second; what makes them one is the folder */
	static const char *const clashes[][2] = {
		{"/resv", "/resv"},     {"/resv", "//resv"},    {"/resv", "/./resv"},         {"/link/resv", "/resv"},
		{"/resv", "/resv.new"}, {"/resv.new", "/resv"}, {"/link/resv.new", "//resv"}, {"/resv", "/resv.lock"},
	};
	char link[96], first[96], second[96];
	uint32_t other;
	struct nvmf_ns_opts opts = {.ptpl_file = second, .uuid = {1, 2, 3}};

	make_malloc("m", 512, 100);
	make_malloc("m2", 512, 100);
	snprintf(link, sizeof(link), "%s/link", folder);
	CU_ASSERT_EQUAL(symlink(folder, link), 0);
	for (size_t i = 0; i < ARRAY_SIZE(clashes); i++) {
		snprintf(first, sizeof(first), "%s%s", folder, clashes[i][0]);
		snprintf(second, sizeof(second), "%s%s", folder, clashes[i][1]);
		CU_ASSERT_EQUAL_FATAL(add_ns(first), 0);
		CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "m2", &opts, &other), -EBUSY);
		loop_remove_ns(nsid);
	}
	snprintf(first, sizeof(first), "%s/resv", folder);
	CU_ASSERT_EQUAL_FATAL(add_ns(first), 0);
	snprintf(second, sizeof(second), "%s/resv.newer", folder);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_ns(loop_subsystem(), "m2", &opts, &other), 0);
	loop_remove_ns(other);
	loop_remove_malloc_ns(nsid, "m");
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "m2"), 0);
	unlink(link);
}

/* Two processes would overwrite each other's registrants. */
static void test_one_file_is_not_that_of_two_processes(void)
{
	char lock[96];
	int pipes[2];
	char byte = 0;

	snprintf(lock, sizeof(lock), "%s.lock", file);
	CU_ASSERT_EQUAL_FATAL(pipe(pipes), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(lock, O_RDWR | O_CREAT, 0600);
		struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
		byte = fcntl(fd, F_OFD_SETLK, &whole) == 0;
		while (write(pipes[1], &byte, 1) == 1) {
			pause();
		}
		_exit(0);
	}
	CU_ASSERT_EQUAL(read(pipes[0], &byte, 1), 1);
	CU_ASSERT_EQUAL(byte, 1);
	make_malloc("m", 512, 100);
	CU_ASSERT_EQUAL(add_ns(file), -EBUSY);
	kill(pid, SIGKILL);
	CU_ASSERT_EQUAL(waitpid(pid, NULL, 0), pid);
	CU_ASSERT_EQUAL(add_ns(file), 0);
	CU_ASSERT_EQUAL(access(lock, F_OK), 0);
	loop_remove_malloc_ns(nsid, "m");
	CU_ASSERT_NOT_EQUAL(access(lock, F_OK), 0);
	close(pipes[0]);
	close(pipes[1]);
	unlink(file);
}

/* A lock that another user's process has left behind is in nobody's use: that is another thing to mend. */
static void test_lock_that_may_not_be_opened_is_not_said_to_be_in_use(void)
{
	make_malloc("m", 512, 100);
	lock_may_not_be_opened = true;
	CU_ASSERT_EQUAL(add_ns(file), -EACCES);
	lock_may_not_be_opened = false;
	CU_ASSERT_EQUAL(add_ns(file), 0);
	loop_remove_malloc_ns(nsid, "m");
	unlink(file);
}

/* Somebody has tidied up, and another process has made the lock anew. */
static void test_lock_of_another_process_is_not_removed(void)
{
	char lock[96];

	snprintf(lock, sizeof(lock), "%s.lock", file);
	make_malloc("m", 512, 100);
	CU_ASSERT_EQUAL_FATAL(add_ns(file), 0);
	CU_ASSERT_EQUAL(unlink(lock), 0);
	int fd = open(lock, O_RDWR | O_CREAT, 0600);
	CU_ASSERT_FATAL(fd >= 0);
	loop_remove_malloc_ns(nsid, "m");
	CU_ASSERT_EQUAL(access(lock, F_OK), 0);
	close(fd);
	unlink(lock);
	unlink(file);
}

static bool is_held(void *arg)
{
	return atomic_load(&held);
}

/* What a Set Features has on its way to the disk is not waited for by a removal; it would be lost on, or mixed with,
 * what comes next. */
static void test_file_that_is_being_written_is_not_another_namespaces_yet(void)
{
	struct loop_cmd cmd;

	attach(true);
	CU_ASSERT_EQUAL(reg(&a, 0), 0);
	disk_fails(0, false);
	atomic_store(&hold, true);
	loop_cmd_init(&cmd, a.admin, nvme_admin_set_features, nsid);
	cmd.sqe.cdw10 = htole32(NVME_FEAT_FID_RESV_PERSIST);
	cmd.sqe.cdw11 = htole32(1);
	loop_submit(&cmd);
	CU_ASSERT_TRUE_FATAL(loop_until(is_held, NULL));
	loop_remove_ns(nsid);
	CU_ASSERT_FALSE(atomic_load(&cmd.done));
	CU_ASSERT_EQUAL(add_ns(file), -EBUSY);
	sem_post(&let_go);
	CU_ASSERT_EQUAL(loop_wait(&cmd), NVME_ST_DNR(GENERIC, INVALID_NS));
	disk.watched = false;
	CU_ASSERT_EQUAL(add_ns(file), 0); /* with what was written */
	CU_ASSERT_EQUAL(report(&b, 128, true), 0);
	CU_ASSERT(le(5, 2) == 1 && data[9] == 1);
	detach();
}

static const struct unit_test tests[] = {
	UNIT(test_reservation_persists_if_it_is_to),
	UNIT(test_persistence_is_a_feature_too),
	UNIT(test_change_that_cannot_be_written_fails),
	UNIT(test_text_is_on_the_disk_before_it_is_the_file),
	UNIT(test_change_with_a_step_that_fails_is_none),
	UNIT(test_first_change_with_a_step_that_fails_is_none),
	UNIT(test_disk_that_breaks_leaves_a_whole_file),
	UNIT(test_text_that_is_written_in_pieces_is_whole),
	UNIT(test_what_has_the_new_name_already_is_not_written_to),
	UNIT(test_files_that_cannot_be_are_refused),
	UNIT(test_one_file_is_not_that_of_two_namespaces_by_whatever_name),
	UNIT(test_one_file_is_not_that_of_two_processes),
	UNIT(test_lock_that_may_not_be_opened_is_not_said_to_be_in_use),
	UNIT(test_lock_of_another_process_is_not_removed),
	UNIT(test_file_that_is_being_written_is_not_another_namespaces_yet),
	UNIT_END,
};
static int start(void)
{
	return sem_init(&let_go, 0, 0) | resv_start();
}

UNIT_MAIN("nvmf_resv_file", tests, start, resv_stop)
