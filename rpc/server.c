/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/conn.h"
#include "rpc/dispatch.h"
#include "rpc/rpc.h"
#include "rpc/socket.h"
#include "thread/thread.h"
#include "util/log.h"

#define DEFAULT_MODE         0600
#define DEFAULT_CLIENTS      64
#define DEFAULT_MESSAGE_SIZE (4 * 1024 * 1024)
#define ACCEPTS_PER_EVENT    16
#define ACCEPT_RETRY_US      100000
#define SLOW_CHECK_US        1000000

static struct server {
	struct rpc_socket socket;
	struct fd_source *source;
	struct rpc_conn_opts conn_opts;
	unsigned max_clients, n_clients;
	struct rpc_conn **clients;        /* max_clients slots */
	struct thread_timer accept_again; /* after the process ran out of descriptors */
	struct thread_timer slow_check;   /* runs while calls are unanswered */
	bool slow_check_on;
} server;

static void server_client_closed(struct rpc_conn *c, void *arg)
{
	for (unsigned i = 0; i < server.max_clients; i++) {
		if (server.clients[i] == c) {
			server.clients[i] = NULL;
			server.n_clients--;
			return;
		}
	}
}

static void server_start_slow_check(void)
{
	server.slow_check_on = rpc_outstanding() != 0;
	if (server.slow_check_on) {
		thread_timer_start(&server.slow_check, SLOW_CHECK_US);
	}
}

static void server_client_called(void *arg)
{
	if (!server.slow_check_on) {
		server_start_slow_check();
	}
}

static void server_check_slow_calls(void *arg)
{
	rpc_check_calls();
	server_start_slow_check();
}

/* There are too many clients: answers so, and closes, so that the client does not wait. */
static void server_client_refuse(int fd)
{
	char why[96];
	struct rpc_answer answer = {.code = -EMFILE, .message = why};
	size_t len;

	snprintf(why, sizeof(why), "there are %u clients already, and no more are served at once", server.max_clients);
	char *text = rpc_answer_text("null", &answer, &len);
	if (text != NULL && send(fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		/* The client has closed already. */
	}
	free(text);
	close(fd);
	log_limited(LOG_LEVEL_WARNING, "RPC client refused: %s", why);
}

static void server_client_add(int fd)
{
	unsigned i = 0;

	if (server.n_clients == server.max_clients) {
		server_client_refuse(fd);
		return;
	}
	while (server.clients[i] != NULL) {
		i++;
	}
	server.clients[i] = rpc_conn_open(fd, &server.conn_opts);
	if (server.clients[i] != NULL) {
		server.n_clients++;
	}
}

/* accept() failed. If the process has run out of descriptors or memory, the connection stays in the backlog and would
 * wake the loop again and again: stop to listen for a while. */
static void server_cannot_accept(int why)
{
	if (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM) {
		log_limited(LOG_LEVEL_ERROR, "cannot accept an RPC client: %s", strerror(why));
		fd_source_modify(server.source, 0);
		thread_timer_start(&server.accept_again, ACCEPT_RETRY_US);
	}
}

static void server_accept(void *arg, uint32_t events)
{
	for (unsigned n = 0; n < ACCEPTS_PER_EVENT; n++) {
		int fd = accept4(server.socket.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			server_cannot_accept(errno);
			return;
		}
		server_client_add(fd);
	}
}

static void server_accept_again(void *arg)
{
	fd_source_modify(server.source, EPOLLIN);
}

int rpc_server_start(const struct rpc_server_opts *opts, char *error)
{
	memset(&server, 0, sizeof(server));
	server.max_clients = opts->max_clients != 0 ? opts->max_clients : DEFAULT_CLIENTS;
	server.conn_opts = (struct rpc_conn_opts){
		.max_message_size = opts->max_message_size != 0 ? opts->max_message_size : DEFAULT_MESSAGE_SIZE,
		.closed = server_client_closed,
		.called = server_client_called,
	};
	server.accept_again = (struct thread_timer){.fn = server_accept_again};
	server.slow_check = (struct thread_timer){.fn = server_check_slow_calls};
	server.clients = calloc(server.max_clients, sizeof(struct rpc_conn *));
	if (server.clients == NULL) {
		snprintf(error, RPC_ERROR_TEXT_MAX, "no memory for %u clients", server.max_clients);
		return -ENOMEM;
	}
	int rc = rpc_socket_listen(&server.socket, opts->path, opts->mode != 0 ? opts->mode : DEFAULT_MODE, error,
				   RPC_ERROR_TEXT_MAX);
	if (rc == 0) {
		server.source = fd_source_add(server.socket.fd, EPOLLIN, server_accept, NULL, "rpc_server");
		if (server.source == NULL) {
			rc = -ENOMEM;
			snprintf(error, RPC_ERROR_TEXT_MAX, "no memory for the RPC server");
			rpc_socket_close(&server.socket);
		}
	}
	if (rc != 0) {
		free(server.clients);
		server.clients = NULL;
	}
	return rc;
}

void rpc_server_stop(void)
{
	if (server.clients == NULL) {
		return;
	}
	thread_timer_stop(&server.accept_again);
	thread_timer_stop(&server.slow_check);
	fd_source_remove(&server.source);
	for (unsigned i = 0; i < server.max_clients; i++) {
		if (server.clients[i] != NULL) {
			rpc_conn_close(server.clients[i]);
		}
	}
	rpc_socket_close(&server.socket);
	free(server.clients);
	server.clients = NULL;
}
