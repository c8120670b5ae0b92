/* SPDX-License-Identifier: BSD-3-Clause */
/* The files by which others see the daemon: locks of cores, the file with the process id. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "appliance/core_locks.h"
#include "appliance/pid_file.h"
#include "unittest/unit.h"

static char folder[] = "/tmp/varve-unit-claims-XXXXXX", path[128];

static int claims_start(void)
{
	return mkdtemp(folder) == NULL;
}

static int claims_end(void)
{
	return rmdir(folder) != 0; /* nothing may be left in it */
}

static const char *claims_file(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* Takes the lock of core 7 in another process, and returns what it got; *holder: whom it saw. */
static int take_elsewhere(pid_t *holder)
{
	int ends[2], result[2] = {1, 0}, fd;

	CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		pid_t seen = 0;
		result[0] = core_lock_take(folder, 7, &fd, &seen);
		result[1] = seen;
		if (result[0] == 0) {
			core_lock_release(folder, 7, fd);
		}
		_exit(write(ends[1], result, sizeof(result)) == (ssize_t)sizeof(result) ? 0 : 1);
	}
	CU_ASSERT_EQUAL(read(ends[0], result, sizeof(result)), (ssize_t)sizeof(result));
	waitpid(child, NULL, 0);
	close(ends[0]);
	close(ends[1]);
	*holder = result[1];
	return result[0];
}

static void test_a_core_is_locked_until_it_is_released(void)
{
	int fd = -1, pid = 0;
	pid_t holder;

	CU_ASSERT_EQUAL_FATAL(core_lock_take(folder, 7, &fd, &holder), 0);
	CU_ASSERT_EQUAL(pread(fd, &pid, sizeof(pid), 0), (ssize_t)sizeof(pid));
	CU_ASSERT_EQUAL(pid, getpid());
	CU_ASSERT_EQUAL(access(claims_file("spdk_cpu_lock_007"), F_OK), 0);
	CU_ASSERT_EQUAL(take_elsewhere(&holder), -EBUSY);
	CU_ASSERT_EQUAL(holder, getpid());
	core_lock_release(folder, 7, fd);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
	CU_ASSERT_EQUAL(take_elsewhere(&holder), 0);
}

static void test_the_file_of_a_killed_owner_is_taken_over(void)
{
	int fd = open(claims_file("spdk_cpu_lock_007"), O_CREAT | O_WRONLY, 0600), left = 1;
	pid_t holder;

	CU_ASSERT_EQUAL(write(fd, &left, sizeof(left)), (ssize_t)sizeof(left));
	close(fd);
	CU_ASSERT_EQUAL(take_elsewhere(&holder), 0);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
}

static void test_a_link_and_a_pipe_are_no_locks(void)
{
	int fd;
	pid_t holder;

	CU_ASSERT_EQUAL(symlink("/tmp/varve-unit-elsewhere", claims_file("spdk_cpu_lock_007")), 0);
	CU_ASSERT_EQUAL(core_lock_take(folder, 7, &fd, &holder), -ELOOP);
	unlink(path);
	CU_ASSERT_NOT_EQUAL(access("/tmp/varve-unit-elsewhere", F_OK), 0);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	CU_ASSERT_EQUAL(core_lock_take(folder, 7, &fd, &holder), -EINVAL);
	unlink(path);
	CU_ASSERT_EQUAL(core_lock_take("/no/such/folder", 7, &fd, &holder), -ENOENT);
}

static void test_the_process_id_is_written_whole_and_removed(void)
{
	char why[256];
	int pid = 0;

	CU_ASSERT_EQUAL(pid_file_write(claims_file("pid"), why, sizeof(why)), 0);
	CU_ASSERT_EQUAL(pid_file_write(path, why, sizeof(why)), 0); /* over one that is there */
	FILE *f = fopen(path, "re");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(fscanf(f, "%d", &pid), 1);
	fclose(f);
	CU_ASSERT_EQUAL(pid, getpid());
	pid_file_remove(path);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
	pid_file_remove(path);
	CU_ASSERT_EQUAL(pid_file_write("/no/such/folder/pid", why, sizeof(why)), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "/no/such/folder/pid"));
}

static void test_the_process_id_of_another_stays(void)
{
	FILE *f = fopen(claims_file("pid"), "we");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fprintf(f, "1\n");
	fclose(f);
	pid_file_remove(path);
	CU_ASSERT_EQUAL(access(path, F_OK), 0);
	unlink(path);
}

static const struct unit_test tests[] = {
	UNIT(test_a_core_is_locked_until_it_is_released), UNIT(test_the_file_of_a_killed_owner_is_taken_over),
	UNIT(test_a_link_and_a_pipe_are_no_locks),        UNIT(test_the_process_id_is_written_whole_and_removed),
	UNIT(test_the_process_id_of_another_stays),       UNIT_END,
};

UNIT_MAIN("appliance_claims", tests, claims_start, claims_end)
