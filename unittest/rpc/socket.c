/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/socket.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unittest/unit.h"

static char folder[] = "/tmp/varve-unit-XXXXXX", path[64], lock[80], error[1024];

static int set_up(void)
{
	if (mkdtemp(folder) == NULL) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/rpc.sock", folder);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	return 0;
}

static int tear_down(void)
{
	return rmdir(folder);
}

static void test_socket_is_for_its_owner_only_by_default(void)
{
	struct rpc_socket s;
	struct stat st;
	mode_t old = umask(0);

	CU_ASSERT_EQUAL_FATAL(rpc_socket_listen(&s, path, 0600, error, sizeof(error)), 0);
	CU_ASSERT_EQUAL(stat(path, &st), 0);
	CU_ASSERT_EQUAL(st.st_mode & 0777, 0600);
	rpc_socket_close(&s);
	umask(0077);
	CU_ASSERT_EQUAL_FATAL(rpc_socket_listen(&s, path, 0660, error, sizeof(error)), 0);
	CU_ASSERT_EQUAL(stat(path, &st), 0);
	CU_ASSERT_EQUAL(st.st_mode & 0777, 0660);
	rpc_socket_close(&s);
	umask(old);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
	CU_ASSERT_NOT_EQUAL(access(lock, F_OK), 0);
}

static void test_a_socket_in_use_is_an_error_that_names_the_process(void)
{
	struct rpc_socket first, second;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	CU_ASSERT_EQUAL_FATAL(rpc_socket_listen(&first, path, 0600, error, sizeof(error)), 0);
	CU_ASSERT_EQUAL(rpc_socket_listen(&second, path, 0600, error, sizeof(error)), -EADDRINUSE);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, path));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, pid));
	CU_ASSERT_EQUAL(access(path, F_OK), 0);
	rpc_socket_close(&first);
}

static void test_the_socket_of_a_dead_process_is_replaced(void)
{
	struct rpc_socket s;
	int status;
	pid_t child = fork();

	if (child == 0) {
		rpc_socket_listen(&s, path, 0600, error, sizeof(error));
		raise(SIGKILL);
	}
	waitpid(child, &status, 0);
	CU_ASSERT_EQUAL(access(path, F_OK), 0);
	CU_ASSERT_EQUAL_FATAL(rpc_socket_listen(&s, path, 0600, error, sizeof(error)), 0);
	rpc_socket_close(&s);
}

static void test_a_listener_that_knows_no_lock_is_respected(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct rpc_socket s;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	CU_ASSERT_EQUAL_FATAL(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
	CU_ASSERT_EQUAL(rpc_socket_listen(&s, path, 0600, error, sizeof(error)), -EADDRINUSE);
	close(fd);
	CU_ASSERT_EQUAL_FATAL(rpc_socket_listen(&s, path, 0600, error, sizeof(error)), 0);
	rpc_socket_close(&s);
}

static void test_what_is_no_socket_is_never_removed(void)
{
	struct rpc_socket s;
	FILE *f = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fclose(f);
	CU_ASSERT_EQUAL(rpc_socket_listen(&s, path, 0600, error, sizeof(error)), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "not a socket"));
	CU_ASSERT_EQUAL(unlink(path), 0);
	CU_ASSERT_NOT_EQUAL(access(lock, F_OK), 0);
	/* nor a link, to whatever it leads */
	CU_ASSERT_EQUAL(symlink(lock, path), 0);
	CU_ASSERT_EQUAL(rpc_socket_listen(&s, path, 0600, error, sizeof(error)), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "not a socket"));
	CU_ASSERT_EQUAL(unlink(path), 0);
	/* nor is a link followed where the lock is made */
	CU_ASSERT_EQUAL(symlink(path, lock), 0);
	CU_ASSERT_EQUAL(rpc_socket_listen(&s, path, 0600, error, sizeof(error)), -ELOOP);
	CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
	CU_ASSERT_EQUAL(unlink(lock), 0);
}

static void test_wrong_paths_are_refused(void)
{
	struct rpc_socket s;
	char longer[200];

	memset(longer, 'x', sizeof(longer));
	longer[0] = '/';
	longer[sizeof(longer) - 1] = '\0';
	CU_ASSERT_EQUAL(rpc_socket_listen(&s, longer, 0600, error, sizeof(error)), -EINVAL);
	CU_ASSERT_EQUAL(rpc_socket_listen(&s, "relative", 0600, error, sizeof(error)), -EINVAL);
	CU_ASSERT_EQUAL(rpc_socket_listen(&s, "/no/such/folder/s", 0600, error, sizeof(error)), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "/no/such/folder/s"));
}

static const struct unit_test tests[] = {
	UNIT(test_socket_is_for_its_owner_only_by_default),
	UNIT(test_a_socket_in_use_is_an_error_that_names_the_process),
	UNIT(test_the_socket_of_a_dead_process_is_replaced),
	UNIT(test_a_listener_that_knows_no_lock_is_respected),
	UNIT(test_what_is_no_socket_is_never_removed),
	UNIT(test_wrong_paths_are_refused),
	UNIT_END,
};

UNIT_MAIN("rpc_socket", tests, set_up, tear_down)
