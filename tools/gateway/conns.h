/* SPDX-License-Identifier: BSD-3-Clause */
/* The gateway's connections: where they come from, and how long each step of theirs may take. The HTTP library's own
 * limit counts from the last byte, so a client that sends one byte after the other could stay for ever. */
#ifndef TOOLS_GATEWAY_CONNS_H
#define TOOLS_GATEWAY_CONNS_H

#include <microhttpd.h>
#include <stdint.h>
#include <sys/queue.h>

#include "tools/gateway/login.h"

/* Steps of a connection. Each but the last may take as long as the limit. */
enum gateway_step {
	GATEWAY_STEP_HEAD,   /* from the connection, TLS included, or from the last answer, to the end of a head */
	GATEWAY_STEP_BODY,   /* to the end of the body */
	GATEWAY_STEP_ANSWER, /* to the end of the answer */
	GATEWAY_STEP_CALL,   /* the gateway or the daemon works */
};

struct gateway_conn {
	TAILQ_ENTRY(gateway_conn) link;
	int fd;
	enum gateway_step step;
	uint64_t since_ms;
	uint8_t address[GATEWAY_ADDRESS_SIZE]; /* for gateway_login_check() */
	char peer[64];                         /* for the log */
	unsigned certificate;                  /* gateway_tls_generation() when it began */
};

/* For MHD_OPTION_NOTIFY_CONNECTION: the socket's context is its struct gateway_conn, or NULL without memory. */
void gateway_conns_notify(void *arg, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode code);
/* The connection's structure, which lives as long as the connection; NULL: there was no memory for it. Any thread. */
struct gateway_conn *gateway_conn_get(struct MHD_Connection *connection);
/* The next step begins. Called by the connection's thread. */
void gateway_conn_step(struct gateway_conn *c, enum gateway_step step);
/* Ends the connections whose step has taken more than limit_ms. Any thread. */
void gateway_conns_end_slow(uint64_t limit_ms);
/* The lowest `certificate` of all connections, or UINT_MAX. Any thread. */
unsigned gateway_conns_oldest_certificate(void);
/* Milliseconds of a clock that does not run backwards. Any thread. */
uint64_t gateway_now_ms(void);

#endif
