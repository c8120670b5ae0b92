/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of the system, and of the libraries that stand for it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "systest/faults/faults.h"

#ifdef WITH_BDEV_URING
#include <liburing.h>
#endif

/* The log: no line is left out, however many faults there are in a second. */
struct log_limit;
bool __wrap_log_limit_pass(struct log_limit *limit, uint32_t *left_out);
bool __wrap_log_limit_pass(struct log_limit *limit, uint32_t *left_out)
{
	*left_out = 0;
	return true;
}

/* Sockets of IP that there were when the test said protect() are those of hosts that are to notice nothing: their calls
 * are no sites. */
#define SOCKETS 65536
static _Atomic uint32_t born[SOCKETS]; /* the generation of each, + 1; 0: not known */

static void born_now(int fd, int family)
{
	if (fault_area != NULL && fd >= 0 && fd < SOCKETS) {
		born[fd] = family == AF_INET || family == AF_INET6 ? fault_area->generation + 1 : 0;
	}
}

static bool spared(int fd)
{
	return fault_area != NULL && fd >= 0 && fd < SOCKETS && fault_area->generation != 0 && born[fd] == 1;
}

#define FAULTY_ON(type, name, bad, error, params, args)                                                                \
	type __real_##name params;                                                                                     \
	type __wrap_##name params;                                                                                     \
	type __wrap_##name params                                                                                      \
	{                                                                                                              \
		if (!spared(fd) && FAULT_HERE(#name, 0)) {                                                             \
			errno = error;                                                                                 \
			return bad;                                                                                    \
		}                                                                                                      \
		return __real_##name args;                                                                             \
	}

/* Files. */
#define FAULTY_OPEN(name, params, args)                                                                                \
	int __real_##name params;                                                                                      \
	int __wrap_##name params;                                                                                      \
	int __wrap_##name params                                                                                       \
	{                                                                                                              \
		va_list rest;                                                                                          \
		mode_t mode = 0;                                                                                       \
		if (FAULT_HERE(#name, 0)) {                                                                            \
			errno = EMFILE;                                                                                \
			return -1;                                                                                     \
		}                                                                                                      \
		if (__OPEN_NEEDS_MODE(flags)) {                                                                        \
			va_start(rest, flags);                                                                         \
			mode = va_arg(rest, mode_t);                                                                   \
			va_end(rest);                                                                                  \
		}                                                                                                      \
		return __real_##name args;                                                                             \
	}
FAULTY_OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
FAULTY_OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
FAULTY(DIR *, opendir, NULL, EMFILE, (const char *path), (path))
FAULTY(FILE *, fopen64, NULL, EMFILE, (const char *path, const char *mode), (path, mode))
FAULTY(FILE *, fdopen, NULL, ENOMEM, (int fd, const char *mode), (fd, mode))
FAULTY(int, ftruncate64, -1, ENOSPC, (int fd, off64_t n), (fd, n))
FAULTY(int, fallocate64, -1, ENOSPC, (int fd, int mode, off64_t at, off64_t n), (fd, mode, at, n))
FAULTY(int, posix_fallocate64, ENOSPC, ENOSPC, (int fd, off64_t at, off64_t n), (fd, at, n))
FAULTY(int, fstat64, -1, EIO, (int fd, struct stat64 *st), (fd, st))
FAULTY(int, fsync, -1, EIO, (int fd), (fd))
FAULTY(int, rename, -1, EIO, (const char *from, const char *to), (from, to))
FAULTY(int, mkdir, -1, ENOSPC, (const char *path, mode_t mode), (path, mode))
FAULTY(int, access, -1, EACCES, (const char *path, int mode), (path, mode))
FAULTY(int, lstat64, -1, EIO, (const char *path, struct stat64 *st), (path, st))
FAULTY(int, statx, -1, EIO, (int dir, const char *path, int flags, unsigned mask, struct statx *st),
       (dir, path, flags, mask, st))
FAULTY(int, chmod, -1, EROFS, (const char *path, mode_t mode), (path, mode))
FAULTY(int, fchmod, -1, EROFS, (int fd, mode_t mode), (fd, mode))
FAULTY(int, fchown, -1, EPERM, (int fd, uid_t uid, gid_t gid), (fd, uid, gid))
FAULTY(int, unlink, -1, EROFS, (const char *path), (path))
FAULTY(int, unlinkat, -1, EROFS, (int dir, const char *path, int flags), (dir, path, flags))
FAULTY(ssize_t, readlink, -1, EIO, (const char *path, char *to, size_t n), (path, to, n))
FAULTY(int, getgrnam_r, EIO, EIO, (const char *name, struct group *g, char *buf, size_t n, struct group **found),
       (name, g, buf, n, found))
FAULTY(int, mlock, -1, ENOMEM, (const void *at, size_t n), (at, n))

int __real_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...);
int __wrap_fcntl64(int fd, int cmd, ...)
{
	va_list rest;

	if (FAULT_HERE("fcntl64", (uint64_t)cmd)) {
		errno = EINVAL;
		return -1;
	}
	va_start(rest, cmd);
	void *arg = va_arg(rest, void *);
	va_end(rest);
	return __real_fcntl64(fd, cmd, arg);
}

FAULTY(int, flock, -1, EINTR, (int fd, int how), (fd, how))
FAULTY(ssize_t, pread64, -1, EIO, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at))
FAULTY(ssize_t, pwrite64, -1, ENOSPC, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at))
FAULTY(ssize_t, read, -1, EIO, (int fd, void *to, size_t n), (fd, to, n))
FAULTY(ssize_t, write, -1, EINTR, (int fd, const void *from, size_t n), (fd, from, n))
FAULTY(void *, mmap64, MAP_FAILED, ENOMEM, (void *at, size_t n, int protection, int flags, int fd, off64_t offset),
       (at, n, protection, flags, fd, offset))
FAULTY(int, madvise, -1, ENOMEM, (void *at, size_t n, int advice), (at, n, advice))

/* Descriptors to wait for. */
FAULTY(int, eventfd, -1, EMFILE, (unsigned n, int flags), (n, flags))
FAULTY(int, timerfd_create, -1, EMFILE, (int clock, int flags), (clock, flags))
FAULTY(int, timerfd_settime, -1, EINVAL, (int fd, int flags, const struct itimerspec *t, struct itimerspec *old),
       (fd, flags, t, old))
FAULTY(int, epoll_create1, -1, EMFILE, (int flags), (flags))

/* The kernel always lets go of a descriptor that it watches. */
int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *e)
{
	if (op != EPOLL_CTL_DEL && !spared(fd) && FAULT_HERE("epoll_ctl", 0)) {
		errno = ENOMEM;
		return -1;
	}
	return __real_epoll_ctl(ep, op, fd, e);
}
FAULTY(int, epoll_wait, -1, EINTR, (int ep, struct epoll_event *e, int most, int ms), (ep, e, most, ms))
FAULTY(int, epoll_pwait2, -1, EINTR,
       (int ep, struct epoll_event *e, int most, const struct timespec *t, const sigset_t *mask),
       (ep, e, most, t, mask))

/* Sockets. */
int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
	int fd = -1;

	if (FAULT_HERE("socket", 0)) {
		errno = EMFILE;
	} else {
		fd = __real_socket(domain, type, protocol);
		born_now(fd, domain);
	}
	return fd;
}

int __real_accept4(int fd, struct sockaddr *at, socklen_t *n, int flags);
int __wrap_accept4(int fd, struct sockaddr *at, socklen_t *n, int flags);
int __wrap_accept4(int fd, struct sockaddr *at, socklen_t *n, int flags)
{
	int taken = -1;

	if (FAULT_HERE("accept4", 0)) {
		errno = EMFILE;
	} else {
		taken = __real_accept4(fd, at, n, flags);
		born_now(taken, at != NULL ? at->sa_family : AF_UNSPEC);
	}
	return taken;
}

FAULTY(int, accept, -1, EMFILE, (int fd, struct sockaddr *at, socklen_t *n), (fd, at, n))
FAULTY(int, bind, -1, EADDRINUSE, (int fd, const struct sockaddr *at, socklen_t n), (fd, at, n))
FAULTY(int, listen, -1, EADDRINUSE, (int fd, int backlog), (fd, backlog))
FAULTY(int, connect, -1, ECONNREFUSED, (int fd, const struct sockaddr *at, socklen_t n), (fd, at, n))
FAULTY_ON(ssize_t, recv, -1, ECONNRESET, (int fd, void *to, size_t n, int flags), (fd, to, n, flags))
FAULTY_ON(ssize_t, send, -1, EPIPE, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags))
FAULTY(ssize_t, sendto, -1, EPIPE,
       (int fd, const void *from, size_t n, int flags, const struct sockaddr *at, socklen_t at_n),
       (fd, from, n, flags, at, at_n))
FAULTY_ON(int, setsockopt, -1, ENOPROTOOPT, (int fd, int level, int name, const void *value, socklen_t n),
	  (fd, level, name, value, n))
FAULTY(int, getsockname, -1, ENOBUFS, (int fd, struct sockaddr *at, socklen_t *n), (fd, at, n))
FAULTY_ON(ssize_t, sendmsg, -1, EPIPE, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
FAULTY_ON(ssize_t, recvmsg, -1, ECONNRESET, (int fd, struct msghdr *m, int flags), (fd, m, flags))
FAULTY_ON(int, shutdown, -1, ENOTCONN, (int fd, int how), (fd, how))
FAULTY_ON(int, getsockopt, -1, ENOBUFS, (int fd, int level, int name, void *value, socklen_t *n),
	  (fd, level, name, value, n))
FAULTY(int, getaddrinfo, EAI_MEMORY, ENOMEM,
       (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out),
       (node, service, hints, out))
FAULTY(int, getnameinfo, EAI_MEMORY, ENOMEM,
       (const struct sockaddr *at, socklen_t n, char *host, socklen_t hosts, char *service, socklen_t services,
	int flags),
       (at, n, host, hosts, service, services, flags))

FAULTY(int, pthread_create, EAGAIN, EAGAIN, (pthread_t * t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg),
       (t, attr, fn, arg))

#ifdef WITH_BDEV_URING
FAULTY(int, io_uring_queue_init, -ENOMEM, ENOMEM, (unsigned entries, struct io_uring *ring, unsigned flags),
       (entries, ring, flags))
FAULTY(int, io_uring_submit, -EAGAIN, EAGAIN, (struct io_uring * ring), (ring))

/* What the kernel says of an I/O. */
unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned most);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned most);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned most)
{
	unsigned n = __real_io_uring_peek_batch_cqe(ring, cqes, most);

	for (unsigned i = 0; i < n; i++) {
		if (FAULT_HERE("io_uring completion", 0)) {
			cqes[i]->res = -EIO;
		}
	}
	return n;
}
#endif
