/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128

struct complaint {
	char *text;
	size_t size;
};

static int __attribute__((format(printf, 3, 4))) socket_error(struct complaint *c, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->text, c->size, fmt, ap);
	va_end(ap);
	return rc;
}

static void socket_lock_path(const char *path, char *lock)
{
	snprintf(lock, PATH_MAX, "%s.lock", path);
}

/* The pid that the holder of the lock has written into it; 0: none. */
static int socket_lock_holder(int fd)
{
	char text[16] = "";

	return pread(fd, text, sizeof(text) - 1, 0) > 0 ? atoi(text) : 0;
}

/* Whether the file that fd locks is still the one at the path: a process that ends removes it. */
static bool socket_lock_is_current(int fd, const char *lock)
{
	struct stat ours, named;

	return fstat(fd, &ours) == 0 && stat(lock, &named) == 0 && ours.st_ino == named.st_ino &&
	       ours.st_dev == named.st_dev;
}

/* Takes the lock. Returns its descriptor or a negative errno. */
static int socket_lock_take(const char *path, struct complaint *c)
{
	char lock[PATH_MAX], pid[16];

	socket_lock_path(path, lock);
	for (;;) {
		int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0) {
			return socket_error(c, -errno, "cannot open the lock file %s: %s", lock, strerror(errno));
		}
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			int rc = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
			socket_error(c, rc,
				     "the RPC socket %s is in use by process %d: stop it, or choose another with "
				     "-r",
				     path, socket_lock_holder(fd));
			close(fd);
			return rc;
		}
		if (socket_lock_is_current(fd, lock)) {
			int n = snprintf(pid, sizeof(pid), "%d\n", getpid());
			if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)n, 0) != n) {
				/* The pid is written for the message above only. */
			}
			return fd;
		}
		close(fd);
	}
}

static void socket_lock_drop(const char *path, int fd)
{
	char lock[PATH_MAX];

	socket_lock_path(path, lock);
	unlink(lock);
	close(fd);
}

/* Removes the socket of a dead process. A live process that does not use the lock answers connect(): its socket stays.
 */
static int socket_remove_stale(int fd, const struct sockaddr_un *addr, struct complaint *c)
{
	struct stat st;

	if (lstat(addr->sun_path, &st) != 0) {
		return errno == ENOENT
			       ? 0
			       : socket_error(c, -errno, "cannot look at %s: %s", addr->sun_path, strerror(errno));
	}
	if (!S_ISSOCK(st.st_mode)) {
		return socket_error(c, -EEXIST,
				    "%s exists and is not a socket: remove it, or choose another path with -r",
				    addr->sun_path);
	}
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0) {
		return socket_error(
			c, -EADDRINUSE,
			"the RPC socket %s is in use by another process: stop it, or choose another with -r",
			addr->sun_path);
	}
	if (unlink(addr->sun_path) != 0) {
		return socket_error(c, -errno, "cannot remove the stale socket %s: %s", addr->sun_path,
				    strerror(errno));
	}
	return 0;
}

static int socket_create(struct complaint *c)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd >= 0 ? fd : socket_error(c, -errno, "cannot make a Unix socket: %s", strerror(errno));
}

static int socket_bind_and_listen(int fd, const struct sockaddr_un *addr, unsigned mode, struct complaint *c)
{
	/* The file is created with the mode of the socket itself, so that other users can never connect in between. */
	if (fchmod(fd, mode) != 0 || bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) != 0) {
		return socket_error(c, -errno, "cannot make the RPC socket %s: %s", addr->sun_path, strerror(errno));
	}
	/* The bits that the umask removed are set again. */
	if (chmod(addr->sun_path, mode) != 0 || listen(fd, BACKLOG) != 0) {
		int rc = socket_error(c, -errno, "cannot listen on %s: %s", addr->sun_path, strerror(errno));
		unlink(addr->sun_path);
		return rc;
	}
	return 0;
}

/* Makes a listening descriptor. The caller holds the lock. */
static int socket_listen_at(const struct sockaddr_un *addr, unsigned mode, struct complaint *c)
{
	int fd = socket_create(c);
	if (fd < 0) {
		return fd;
	}
	int rc = socket_remove_stale(fd, addr, c);
	close(fd); /* a descriptor that has tried to connect is not used to listen */
	if (rc != 0) {
		return rc;
	}
	fd = socket_create(c);
	if (fd < 0) {
		return fd;
	}
	rc = socket_bind_and_listen(fd, addr, mode, c);
	if (rc != 0) {
		close(fd);
		return rc;
	}
	return fd;
}

int rpc_socket_listen(struct rpc_socket *s, const char *path, unsigned mode, char *error, size_t error_size)
{
	struct complaint c = {error, error_size};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	*s = (struct rpc_socket){.fd = -1, .lock_fd = -1};
	if (path[0] != '/' || strlen(path) >= sizeof(addr.sun_path)) {
		return socket_error(&c, -EINVAL,
				    "the RPC socket path \"%s\" must be absolute and shorter than %zu bytes", path,
				    sizeof(addr.sun_path));
	}
	strcpy(addr.sun_path, path);
	s->path = strdup(path);
	if (s->path == NULL) {
		return socket_error(&c, -ENOMEM, "no memory");
	}
	int rc = s->lock_fd = socket_lock_take(path, &c);
	if (rc >= 0) {
		rc = s->fd = socket_listen_at(&addr, mode, &c);
		if (rc < 0) {
			socket_lock_drop(path, s->lock_fd);
		}
	}
	if (rc < 0) {
		free(s->path);
		s->path = NULL;
	}
	return rc < 0 ? rc : 0;
}

void rpc_socket_close(struct rpc_socket *s)
{
	if (s->path == NULL) {
		return;
	}
	close(s->fd);
	unlink(s->path);
	socket_lock_drop(s->path, s->lock_fd);
	free(s->path);
	*s = (struct rpc_socket){.fd = -1, .lock_fd = -1};
}
