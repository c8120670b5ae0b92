/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets after their connections: see struct nvmf_tcp_leaver. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "nvmf_tcp/internal.h"
#include "tls/kernel.h"

#define LEAVE_US    UINT64_C(5000000) /* that the other side has for closing */
#define LEAVE_READS 4                 /* in one poll */

static void leaver_close(struct nvmf_tcp_group *g, struct nvmf_tcp_leaver *leaver)
{
	close(leaver->fd);
	TAILQ_REMOVE(&g->leavers, leaver, link);
	g->num_strangers -= !leaver->known;
	free(leaver);
}

/* The first has been here for longest. */
static void close_late_leavers(void *arg)
{
	struct nvmf_tcp_group *g = arg;
	struct nvmf_tcp_leaver *leaver;

	while ((leaver = TAILQ_FIRST(&g->leavers)) != NULL && leaver->until <= env_ticks()) {
		leaver_close(g, leaver);
	}
	if (leaver != NULL) {
		thread_timer_start(&g->leave_timer, LEAVE_US);
	}
}

void nvmf_tcp_leavers_close(struct nvmf_tcp_group *g)
{
	struct nvmf_tcp_leaver *leaver;

	thread_timer_stop(&g->leave_timer);
	while ((leaver = TAILQ_FIRST(&g->leavers)) != NULL) {
		leaver_close(g, leaver);
	}
}

void nvmf_tcp_socket_leave(struct nvmf_tcp_group *g, int fd, bool known)
{
	bool may_stay = known || g->num_strangers < NVMF_TCP_STRANGERS_MAX;
	struct nvmf_tcp_leaver *leaver = may_stay ? malloc(sizeof(*leaver)) : NULL;
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uintptr_t)leaver | NVMF_TCP_LEAVER_BIT};

	if (leaver == NULL || shutdown(fd, SHUT_WR) != 0 || epoll_ctl(g->epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
		free(leaver);
		close(fd);
		return;
	}
	*leaver = (struct nvmf_tcp_leaver){.fd = fd, .known = known, .until = env_ticks() + env_us_to_ticks(LEAVE_US)};
	TAILQ_INSERT_TAIL(&g->leavers, leaver, link);
	g->num_strangers += !known;
	if (!g->leave_timer.running) {
		g->leave_timer.fn = close_late_leavers;
		g->leave_timer.arg = g;
		thread_timer_start(&g->leave_timer, LEAVE_US);
	}
}

/* With room for the type of a record, also where there are none: a kernel that decrypts them refuses to give one that
 * is no payload otherwise. The number of bytes, or a negative errno. */
static ssize_t drop_input(int fd)
{
	char nothing[4096];
	struct iovec iov = {nothing, sizeof(nothing)};
	uint8_t type;

	return tls_kernel_receive(fd, &iov, 1, &type);
}

void nvmf_tcp_leaver_readable(struct nvmf_tcp_group *g, struct nvmf_tcp_leaver *leaver)
{
	for (unsigned i = 0; i < LEAVE_READS; i++) {
		ssize_t n = drop_input(leaver->fd);

		if (n == -EAGAIN || n == -EINTR) {
			return;
		}
		if (n <= 0) {
			leaver_close(g, leaver);
			return;
		}
	}
}
