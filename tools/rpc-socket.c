/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/rpc-socket.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/rpc-stream.h"
#include "util/parse.h"

#define LISTENING        "00010000" /* the flags of such a socket in /proc/PID/net/unix */
#define ANSWER_WITHIN_MS 5000

struct search {
	pid_t pid;
	unsigned n_sockets; /* on which it listens, by path */
	char *path;
	char answer_why[256]; /* why the last of them is none */
};

/* Whether the process has the socket of that inode among its descriptors. folder: /proc/PID/fd. */
static bool rpc_socket_is_held(DIR *folder, int folder_fd, unsigned long inode)
{
	char wanted[40], link[40];
	struct dirent *e;

	snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
	rewinddir(folder);
	while ((e = readdir(folder)) != NULL) {
		ssize_t n = readlinkat(folder_fd, e->d_name, link, sizeof(link) - 1);
		if (n > 0) {
			link[n] = '\0';
			if (strcmp(link, wanted) == 0) {
				return true;
			}
		}
	}
	return false;
}

/* Whether what listens there answers as a daemon does: with JSON, also to a method that it may not have. */
static bool rpc_socket_answers(const char *path, char *why, size_t why_size)
{
	static const char request[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"spdk_get_version\"}";
	uint64_t deadline = rpc_stream_deadline(ANSWER_WITHIN_MS);
	struct rpc_stream *s = rpc_stream_open(path, ANSWER_WITHIN_MS, why, why_size);
	json_t *answer = NULL;
	int rc = -ENOTCONN;

	if (s != NULL && (rc = rpc_stream_send(s, request, strlen(request), deadline)) == 0) {
		rc = rpc_stream_receive_json(s, deadline, &answer);
	}
	if (s != NULL && rc != 0) {
		snprintf(why, why_size, "%s: %s", path,
			 rc == -ETIMEDOUT ? "no answer in time"
			 : rc == -EPROTO  ? "its answers are not JSON"
					  : strerror(-rc));
	}
	rpc_stream_close(s);
	json_decref(answer);
	return rc == 0;
}

/* Tries one line of /proc/PID/net/unix: the inode and the path are its last two words. */
static bool rpc_socket_try_line(struct search *s, DIR *folder, char *line)
{
	unsigned long inode;
	char flags[16];
	int at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%*s %*s %*s %15s %*s %*s %lu %n", flags, &inode, &at) != 2 || at == 0 || line[at] == '\0' ||
	    line[at] == '@' || strcmp(flags, LISTENING) != 0 || !rpc_socket_is_held(folder, dirfd(folder), inode)) {
		return false;
	}
	s->n_sockets++;
	int n = line[at] == '/' ? snprintf(s->path, RPC_SOCKET_PATH_MAX, "%s", line + at)
				: snprintf(s->path, RPC_SOCKET_PATH_MAX, "/proc/%d/cwd/%s", (int)s->pid, line + at);
	return n < RPC_SOCKET_PATH_MAX && rpc_socket_answers(s->path, s->answer_why, sizeof(s->answer_why));
}

static bool rpc_socket_search(struct search *s, DIR *folder, FILE *sockets)
{
	char *line = NULL;
	size_t size = 0;
	bool found = false;

	while (!found && getline(&line, &size, sockets) > 0) {
		found = rpc_socket_try_line(s, folder, line);
	}
	free(line);
	return found;
}

int rpc_socket_of_process(const char *pid, char path[RPC_SOCKET_PATH_MAX], char *why, size_t why_size)
{
	char name[64];
	uint64_t number;
	struct search s = {.path = path};

	if (parse_uint64(pid, 1, INT_MAX, &number) != 0) {
		snprintf(why, why_size, "\"%s\" is not the number of a process", pid);
		return -EINVAL;
	}
	s.pid = (pid_t)number;
	snprintf(name, sizeof(name), "/proc/%d/fd", (int)s.pid);
	DIR *folder = opendir(name);
	if (folder == NULL) {
		int rc = errno;
		snprintf(why, why_size, "process %d: %s", (int)s.pid,
			 rc == ENOENT   ? "there is none"
			 : rc == EACCES ? "it is another user's: run this as root"
					: strerror(rc));
		return -rc;
	}
	snprintf(name, sizeof(name), "/proc/%d/net/unix", (int)s.pid);
	FILE *sockets = fopen(name, "re");
	bool found = sockets != NULL && rpc_socket_search(&s, folder, sockets);
	closedir(folder);
	if (sockets != NULL) {
		fclose(sockets);
	}
	if (!found) {
		snprintf(why, why_size, "process %d %s%s", (int)s.pid,
			 s.n_sockets == 0 ? "listens on no Unix socket" : "does not answer: ", s.answer_why);
		return -ENOENT;
	}
	return 0;
}
