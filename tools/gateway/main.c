/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-gateway: JSON-RPC over HTTP, beside the daemon. HTTP, TLS and passwords stay out of the process that serves
 * storage. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/gateway/conns.h"
#include "tools/gateway/gateway.h"
#include "tools/gateway/http.h"
#include "tools/gateway/tls.h"
#include "util/log.h"

#define TURN_MS 250
#define STOP_MS 5000 /* less than what service managers wait */

/* Reads the users and the certificate. Of each, what is in use stays if the new one is wrong. False: something is. */
static bool gateway_load(const struct gateway_options *o, struct gateway_login *login)
{
	struct gateway_users users;
	char why[GATEWAY_WHY_MAX];
	bool good = gateway_users_load(o->users, &users, why) == 0;

	if (!good) {
		log_error("The users: %s", why);
	} else {
		size_t n = users.n;
		gateway_login_set_users(login, &users);
		log_notice("%zu users from %s", n, o->users);
	}
	if (o->cert != NULL && gateway_tls_load(o->cert, o->key, why) != 0) {
		log_error("The certificate: %s", why);
		good = false;
	}
	return good;
}

/* Waits for the signal that ends the program. */
static void gateway_wait(const struct gateway_options *o, struct gateway_login *login, const sigset_t *signals)
{
	const struct timespec turn = {.tv_nsec = TURN_MS * 1000 * 1000};

	for (;;) {
		int number = sigtimedwait(signals, NULL, &turn);
		if (number == SIGTERM || number == SIGINT) {
			return;
		}
		if (number == SIGHUP) {
			log_notice(gateway_load(o, login) ? "Loaded again" : "Not all was loaded again");
		}
		gateway_conns_end_slow((uint64_t)o->client_timeout_s * 1000);
		gateway_tls_collect();
	}
}

static int gateway_open(const struct gateway_options *o)
{
	char why[GATEWAY_WHY_MAX];
	bool local;
	int fd = gateway_listen(o->listen, &local, why);

	if (fd < 0) {
		log_error("--listen: %s", why);
		return -1;
	}
	if (!local && o->cert == NULL && !o->insecure) {
		log_error("--listen: %s can be reached from other machines: passwords would be readable on the way. "
			  "Give --cert "
			  "and --key, or --insecure",
			  o->listen);
		close(fd);
		return -1;
	}
	return fd;
}

static int gateway_run(const struct gateway_options *o, struct gateway_login *login, const sigset_t *signals)
{
	struct gateway_backend backend = {
		.path = o->socket, .timeout_ms = (uint64_t)o->call_timeout_s * 1000, .max_calls = o->max_calls};
	struct gateway_http http = {
		.backend = &backend, .login = login, .max_connections = o->max_connections, .tls = o->cert != NULL};
	int fd = gateway_open(o);
	struct MHD_Daemon *d = fd >= 0 ? gateway_http_start(&http, fd) : NULL;

	if (d == NULL) {
		if (fd >= 0) {
			log_error("The HTTP server cannot start on %s", o->listen);
		}
		return GATEWAY_EXIT_FAIL;
	}
	log_notice("varve-gateway %s listens on %s with %s, the daemon is at %s", VARVE_VERSION, o->listen,
		   http.tls ? "TLS" : "HTTP", o->socket);
	gateway_wait(o, login, signals);
	if (!gateway_http_stop(&http, d, STOP_MS)) {
		log_warning("Ends although calls are under way");
		_exit(0); /* their threads still use what would be freed */
	}
	if (strncmp(o->listen, "unix:", 5) == 0) {
		unlink(o->listen + 5);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct gateway_options o;
	sigset_t signals;
	int status = gateway_options_parse(argc, argv, &o);

	if (status >= 0) {
		return status;
	}
	if (o.add_user != NULL) {
		return gateway_users_store(o.users, o.add_user, o.role);
	}
	/* Before any thread begins, so that all of them leave these to gateway_wait(). */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	struct gateway_login *login = gateway_login_new(o.rate);
	if (login == NULL) {
		log_error("No memory, or no random numbers");
		return GATEWAY_EXIT_FAIL;
	}
	status = gateway_load(&o, login) ? gateway_run(&o, login, &signals) : GATEWAY_EXIT_FAIL;
	gateway_login_free(login);
	return status;
}
