/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process as a whole: start-up, and the control thread. The control thread works while the program sleeps or
 * computes: it connects to peers, notices their death, and handles timeouts and the connection manager's messages. It
 * moves no data, except for work requests that had to wait.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "softverbs/softverbs.h"
#include "softverbs/cm.h"

struct sv_process sv = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.table_lock = PTHREAD_MUTEX_INITIALIZER,
	.mr_lock = PTHREAD_MUTEX_INITIALIZER,
	.heap_lock = PTHREAD_MUTEX_INITIALIZER,
	.arena_fd = -1,
	.kick_fd = -1,
	.listen_fd = -1,
	.epoll_fd = -1,
};

static struct sv_source g_listen_source;
static struct sv_source g_kick_source;

/* Sources by descriptor. */
static struct sv_source **g_sources;
static uint32_t g_num_sources;
static uint32_t g_source_gen;

void sv_warn(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "softverbs: %s\n", text);
}

uint64_t sv_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

socklen_t sv_socket_name(struct sockaddr_storage *address, const char *format, ...)
{
	struct sockaddr_un *un = (struct sockaddr_un *)address;
	va_list args;
	int n, m;

	memset(address, 0, sizeof(*address));
	un->sun_family = AF_UNIX;
	/* The user is part of the name, so each user has a fabric of their own. */
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "softverbs/%u/%u/", SV_ARENA_VERSION,
		     (unsigned)geteuid());
	va_start(args, format);
	m = vsnprintf(un->sun_path + 1 + n, sizeof(un->sun_path) - 1 - (size_t)n, format, args);
	va_end(args);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n + (size_t)m);
}

void sv_kick(int kick_fd)
{
	uint64_t one = 1;

	/* A full counter means that the process has been kicked already. */
	if (write(kick_fd, &one, sizeof(one)) < 0) {
		return;
	}
}

void sv_kick_self(void)
{
	sv_kick(sv.kick_fd);
}

static int source_table_grow(int fd)
{
	uint32_t size = sv_pow2((uint32_t)fd + 64);
	struct sv_source **bigger;

	if ((uint32_t)fd < g_num_sources) {
		return 0;
	}
	bigger = realloc(g_sources, size * sizeof(*bigger));
	if (bigger == NULL) {
		return ENOMEM;
	}
	memset(bigger + g_num_sources, 0, (size - g_num_sources) * sizeof(*bigger));
	g_sources = bigger;
	g_num_sources = size;
	return 0;
}

int sv_source_add(struct sv_source *source, uint32_t events)
{
	struct epoll_event e = {.events = events};

	if (source_table_grow(source->fd) != 0) {
		return ENOMEM;
	}
	source->gen = ++g_source_gen;
	e.data.u64 = (uint64_t)source->gen << 32 | (uint32_t)source->fd;
	if (epoll_ctl(sv.epoll_fd, EPOLL_CTL_ADD, source->fd, &e) < 0) {
		return errno;
	}
	g_sources[source->fd] = source;
	return 0;
}

void sv_source_remove(struct sv_source *source)
{
	if (source->fd >= 0 && (uint32_t)source->fd < g_num_sources && g_sources[source->fd] == source) {
		g_sources[source->fd] = NULL;
		epoll_ctl(sv.epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	}
}

static void source_dispatch(const struct epoll_event *e)
{
	uint32_t fd = (uint32_t)e->data.u64;

	if (fd < g_num_sources && g_sources[fd] != NULL && g_sources[fd]->gen == (uint32_t)(e->data.u64 >> 32)) {
		g_sources[fd]->ready(g_sources[fd], e->events);
	}
}

static void attend_srq(struct sv_srq *srq)
{
	if (atomic_exchange(&srq->shm->limit_reached, 0) != 0) {
		sv_async_raise(srq->ibv.context, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	}
	/* The word does not say which sender waits for a receive, so all are kicked. */
	if (atomic_load(&srq->shm->tail) != atomic_load(&srq->shm->head) && atomic_exchange(&srq->shm->want, 0) != 0) {
		sv_peer_kick_all();
		sv_kick_self();
	}
}

/* Looks at all queues. Returns when (sv_now_ns()) to look again; UINT64_MAX: at the next kick. */
static uint64_t attend_all(void)
{
	uint64_t next = UINT64_MAX;

	pthread_mutex_lock(&sv.table_lock);
	for (uint32_t i = 0; i < SV_MAX_QP; i++) {
		if (sv.qp[i] != NULL) {
			sv_qp_attend(sv.qp[i]);
			pthread_mutex_lock(&sv.qp[i]->lock);
			if (sv.qp[i]->blocked != SV_BLOCK_NONE && sv.qp[i]->deadline_ns < next) {
				next = sv.qp[i]->deadline_ns;
			}
			pthread_mutex_unlock(&sv.qp[i]->lock);
		}
	}
	for (uint32_t i = 0; i < SV_MAX_CQ; i++) {
		if (sv.cq[i] != NULL && atomic_load(&sv.cq[i]->shm->overrun) != 0 && !sv.cq[i]->overrun_reported) {
			sv.cq[i]->overrun_reported = true;
			sv_async_raise(sv.cq[i]->ex.context, IBV_EVENT_CQ_ERR, sv.cq[i]);
		}
	}
	for (uint32_t i = 0; i < SV_MAX_SRQ; i++) {
		if (sv.srq[i] != NULL) {
			attend_srq(sv.srq[i]);
		}
	}
	pthread_mutex_unlock(&sv.table_lock);
	sv_peer_sweep();
	return next;
}

static void kick_ready(struct sv_source *source, uint32_t events)
{
	uint64_t count;

	if (read(source->fd, &count, sizeof(count)) < 0) {
		return;
	}
}

static int epoll_timeout_ms(uint64_t deadline)
{
	uint64_t now = sv_now_ns(), ms;

	if (deadline == UINT64_MAX) {
		return -1;
	}
	ms = deadline <= now ? 0 : (deadline - now + 999999) / 1000000;
	return ms > 60000 ? 60000 : (int)ms;
}

static void *control_thread(void *unused)
{
	struct epoll_event events[32];
	int n;

	for (;;) {
		uint64_t next, cm;

		pthread_mutex_lock(&sv.lock);
		next = attend_all();
		cm = sv_cm_timers();
		pthread_mutex_unlock(&sv.lock);
		n = epoll_wait(sv.epoll_fd, events, 32, epoll_timeout_ms(next < cm ? next : cm));
		pthread_mutex_lock(&sv.lock);
		for (int i = 0; i < n; i++) {
			source_dispatch(&events[i]);
		}
		pthread_mutex_unlock(&sv.lock);
	}
	return NULL;
}

/* Claims a slot by binding a socket to its name; the kernel frees the name however the process ends. */
static int claim_slot(void)
{
	struct sockaddr_storage address;
	uint32_t first = (uint32_t)getpid() % (SV_MAX_SLOTS - 1);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0) {
		return errno;
	}
	for (uint32_t i = 0; i < SV_MAX_SLOTS - 1; i++) {
		uint32_t slot = 1 + (first + i) % (SV_MAX_SLOTS - 1);
		socklen_t length = sv_socket_name(&address, "p%u", slot);

		if (bind(fd, (struct sockaddr *)&address, length) == 0) {
			if (listen(fd, 4096) < 0) {
				break;
			}
			sv.slot = sv.arena->slot = slot;
			sv.listen_fd = fd;
			return 0;
		}
		if (errno != EADDRINUSE) {
			break;
		}
	}
	sv_warn("no room for another process: %s", strerror(errno));
	close(fd);
	return EAGAIN;
}

static int start_thread(void)
{
	pthread_t thread;
	pthread_attr_t attr;
	sigset_t all, old;
	int rc;

	/* Signals are left to the program's threads. Detached, since the thread ends with the process. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, control_thread, NULL);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0) {
		pthread_setname_np(thread, "softverbs");
	}
	return rc;
}

static int process_start_locked(void)
{
	int rc = sv_arena_create();

	if (rc != 0) {
		return rc;
	}
	/* If yama allows only tracing of descendants (ptrace_scope 1), this permits peers of the same user. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	sv.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	sv.kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sv.epoll_fd < 0 || sv.kick_fd < 0) {
		return errno;
	}
	rc = claim_slot();
	if (rc != 0) {
		return rc;
	}
	g_listen_source = (struct sv_source){.fd = sv.listen_fd, .ready = sv_peer_listen_ready};
	g_kick_source = (struct sv_source){.fd = sv.kick_fd, .ready = kick_ready};
	rc = sv_source_add(&g_listen_source, EPOLLIN);
	if (rc == 0) {
		rc = sv_source_add(&g_kick_source, EPOLLIN);
	}
	return rc != 0 ? rc : start_thread();
}

int sv_process_start(void)
{
	static bool started;
	static int result;

	pthread_mutex_lock(&sv.lock);
	if (!started) {
		started = true;
		result = process_start_locked();
		if (result != 0) {
			sv_warn("cannot start: %s", strerror(result));
		}
	}
	pthread_mutex_unlock(&sv.lock);
	return result;
}
