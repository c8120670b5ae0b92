/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/gateway/http.h"

#include <microhttpd.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/gateway/conns.h"
#include "tools/gateway/openapi.h"
#include "tools/gateway/request.h"
#include "tools/gateway/tls.h"
#include "tools/safe-text.h"
#include "util/log.h"

#define HEAD_MAX    (32 * 1024) /* bytes; also of the library's other buffers for a connection */
#define DISCARD_MAX (64 * 1024) /* bytes of a refused request that are read, so that the client reads its answer */

/* One request, from the end of its head. */
struct http_request {
	struct gateway_conn *conn;
	struct http_route *route; /* NULL: refused */
	char user[GATEWAY_NAME_MAX + 1];
	enum gateway_role role;
	unsigned refused; /* the status, 0: not refused */
	char method[GATEWAY_METHOD_MAX];
	char why[384];
	char *body;
	size_t len, size;
	size_t discarded;
};

/* What there is. The first row that matches counts. */
struct http_route {
	const char *verb, *url; /* url NULL: any, as in proxies that clients know */
	bool open;              /* without credentials */
	enum MHD_Result (*run)(struct gateway_http *h, struct MHD_Connection *c, struct http_request *r);
};

static void __attribute__((format(printf, 3, 4)))
http_refuse(struct http_request *r, unsigned status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->why, sizeof(r->why), fmt, ap);
	va_end(ap);
	r->refused = status;
}

/* Queues an answer; takes over text, which malloc() has made. */
static enum MHD_Result http_answer(struct MHD_Connection *c, struct http_request *r, unsigned status, char *text,
				   size_t len)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);

	if (response == NULL) {
		free(text);
		return MHD_NO;
	}
	if (status != 204) {
		MHD_add_response_header(response, "Content-Type", "application/json");
	}
	MHD_add_response_header(response, "Cache-Control", "no-store");
	if (status == 401) {
		MHD_add_response_header(response, "WWW-Authenticate", "Basic realm=\"varve\", charset=\"UTF-8\"");
	} else if (status == 405) {
		MHD_add_response_header(response, "Allow", "POST, GET");
	} else if (status == 429 || status == 503) {
		MHD_add_response_header(response, "Retry-After", "1");
	}
	gateway_conn_step(r->conn, GATEWAY_STEP_ANSWER);
	enum MHD_Result result = MHD_queue_response(c, status, response);
	MHD_destroy_response(response);
	return result;
}

/* Takes over value. */
static enum MHD_Result http_answer_json(struct MHD_Connection *c, struct http_request *r, unsigned status,
					json_t *value)
{
	char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;

	json_decref(value);
	return text != NULL ? http_answer(c, r, status, text, strlen(text)) : MHD_NO;
}

/* Logs why a request was refused, and says it to the client. */
static enum MHD_Result http_answer_refused(struct MHD_Connection *c, struct http_request *r)
{
	log_limited(LOG_LEVEL_NOTICE, "%s: user %s, method %s: %u: %s", r->conn->peer,
		    r->user[0] != '\0' ? r->user : "unknown", r->method[0] != '\0' ? r->method : "unknown", r->refused,
		    r->why);
	return http_answer_json(c, r, r->refused,
				json_pack("{s:s, s:n, s:{s:i, s:s%}}", "jsonrpc", "2.0", "id", "error", "code", -32000,
					  "message", r->why, strlen(r->why)));
}

static enum MHD_Result http_run_call(struct gateway_http *h, struct MHD_Connection *c, struct http_request *r)
{
	struct gateway_request request;
	struct gateway_answer a;
	unsigned status = gateway_request_check(r->body != NULL ? r->body : "", r->len, r->role, &request);

	memcpy(r->method, request.method, sizeof(r->method));
	if (status != 200) {
		http_refuse(r, status, "%s", request.why);
		return http_answer_refused(c, r);
	}
	gateway_backend_call(h->backend, r->body + request.begin, request.end - request.begin, request.answered, &a);
	if (a.status == 200 || a.status == 204) {
		return http_answer(c, r, a.status, a.text, a.len);
	}
	http_refuse(r, a.status, "%s", a.why);
	return http_answer_refused(c, r);
}

static enum MHD_Result http_run_openapi(struct gateway_http *h, struct MHD_Connection *c, struct http_request *r)
{
	struct gateway_answer a;
	json_t *methods;

	gateway_backend_method(h->backend, "rpc_describe_methods", &methods, &a);
	if (methods == NULL) {
		http_refuse(r, a.status, "%s", a.why);
		return http_answer_refused(c, r);
	}
	json_t *document = gateway_openapi(methods, r->role);
	json_decref(methods);
	return http_answer_json(c, r, 200, document);
}

static enum MHD_Result http_run_health(struct gateway_http *h, struct MHD_Connection *c, struct http_request *r)
{
	bool alive = gateway_backend_is_alive(h->backend);

	return http_answer_json(c, r, alive ? 200 : 503, json_pack("{s:b}", "daemon_answers", alive));
}

static struct http_route http_routes[] = {
	{"POST", NULL, false, http_run_call},
	{"GET", "/openapi.json", false, http_run_openapi},
	{"GET", "/healthz", true, http_run_health},
};

static struct http_route *http_route_find(const char *verb, const char *url)
{
	for (size_t i = 0; i < sizeof(http_routes) / sizeof(http_routes[0]); i++) {
		struct http_route *route = &http_routes[i];
		if (strcmp(route->verb, verb) == 0 && (route->url == NULL || strcmp(route->url, url) == 0)) {
			return route;
		}
	}
	return NULL;
}

static void http_login_failed(struct http_request *r, enum gateway_login_result result)
{
	switch (result) {
	case GATEWAY_LOGIN_OK:
		return;
	case GATEWAY_LOGIN_WRONG:
		http_refuse(r, 401, "no such user, or a wrong password");
		return;
	case GATEWAY_LOGIN_LIMITED:
		http_refuse(r, 429, "too many wrong passwords from this address");
		return;
	case GATEWAY_LOGIN_BUSY:
		http_refuse(r, 429, "too many passwords wait to be checked");
		return;
	case GATEWAY_LOGIN_RATE:
		http_refuse(r, 429, "too many requests of this user in a second");
		return;
	}
}

static void http_login(struct gateway_http *h, struct MHD_Connection *c, struct http_request *r)
{
	const char *value = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
	struct gateway_credentials credentials;

	if (value == NULL) {
		http_refuse(r, 401, "credentials are needed");
		return;
	}
	if (!gateway_credentials_parse(value, &credentials)) {
		http_refuse(r, 401, "the Authorization header is not Basic with a name and a password");
		return;
	}
	enum gateway_login_result result =
		gateway_login_check(h->login, &credentials, r->conn->address, gateway_now_ms(), &r->role);
	memcpy(r->user, credentials.name, sizeof(r->user));
	safe_text_line(r->user);
	OPENSSL_cleanse(&credentials, sizeof(credentials));
	http_login_failed(r, result);
}

/* Whether a page of another site makes a browser send this. The browser adds the credentials that it knows for the
 * gateway. It says in these fields, which no page can set, where the request comes from. */
static bool http_is_of_another_site(struct MHD_Connection *c)
{
	const char *site = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Sec-Fetch-Site");

	if (site != NULL) {
		return strcmp(site, "none") != 0 && strcmp(site, "same-origin") != 0;
	}
	/* Old browsers, and others without TLS, send only this with a POST. The gateway has no pages of its own. */
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin") != NULL;
}

/* Who asks, and whether he may ask anything at all. */
static void http_admit(struct gateway_http *h, struct MHD_Connection *c, struct http_request *r)
{
	if (http_is_of_another_site(c)) {
		http_refuse(r, 403, "a page of another site has sent this (Sec-Fetch-Site or Origin)");
		return;
	}
	http_login(h, c, r);
}

static bool http_length(struct MHD_Connection *c, unsigned long long *length)
{
	const char *text = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");

	*length = text != NULL ? strtoull(text, NULL, 10) : 0; /* the library has checked it */
	return text != NULL;
}

/* The head has arrived. */
static enum MHD_Result http_begin(struct gateway_http *h, struct MHD_Connection *c, const char *url, const char *verb,
				  struct http_request *r)
{
	unsigned long long length;

	gateway_conn_step(r->conn, GATEWAY_STEP_CALL);
	r->route = http_route_find(verb, url);
	if (r->route == NULL || !r->route->open) { /* what there is, is told to users only */
		http_admit(h, c, r);
	}
	if (r->refused == 0 && r->route == NULL) {
		bool known = strcmp(verb, "GET") == 0 || strcmp(verb, "HEAD") == 0;
		http_refuse(r, known ? 404 : 405, known ? "there is nothing of this name" : "POST and GET are allowed");
	}
	http_length(c, &length);
	if (r->refused == 0 && length > GATEWAY_BODY_MAX) {
		http_refuse(r, 413, "a body of %llu bytes: at most %u are allowed", length, GATEWAY_BODY_MAX);
	}
	if (r->refused != 0 &&
	    (length > DISCARD_MAX || MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Expect") != NULL)) {
		return http_answer_refused(c, r); /* the library closes the connection then */
	}
	gateway_conn_step(r->conn, GATEWAY_STEP_BODY);
	return MHD_YES;
}

/* Makes room for n more bytes and the NUL byte behind them. */
static bool http_body_grow(struct http_request *r, size_t n)
{
	size_t size = r->size != 0 ? r->size : 4096;

	while (size < r->len + n + 1) {
		size *= 2;
	}
	if (size == r->size) {
		return true;
	}
	char *body = realloc(r->body, size);
	if (body == NULL) {
		http_refuse(r, 503, "no memory for the body");
		return false;
	}
	r->body = body;
	r->size = size;
	return true;
}

/* A part of the body. MHD_NO: ends the connection. */
static enum MHD_Result http_more(struct http_request *r, const char *data, size_t n)
{
	if (r->refused == 0 && r->len + n > GATEWAY_BODY_MAX) {
		http_refuse(r, 413, "the body has more than %u bytes", GATEWAY_BODY_MAX);
	}
	if (r->refused == 0 && http_body_grow(r, n)) {
		memcpy(r->body + r->len, data, n);
		r->len += n;
		r->body[r->len] = '\0';
		return MHD_YES;
	}
	r->discarded += n;
	if (r->discarded <= DISCARD_MAX) {
		return MHD_YES;
	}
	log_limited(LOG_LEVEL_NOTICE, "%s: ended: sends on after %u: %s", r->conn->peer, r->refused, r->why);
	return MHD_NO;
}

static struct http_request *http_request_new(struct gateway_http *h, struct MHD_Connection *c)
{
	struct gateway_conn *conn = gateway_conn_get(c);
	struct http_request *r = conn != NULL ? calloc(1, sizeof(*r)) : NULL;

	if (r != NULL) {
		r->conn = conn;
		__atomic_add_fetch(&h->busy, 1, __ATOMIC_ACQ_REL);
	}
	return r;
}

/* Called by the library at the end of the head, for each part of the body, and at the end of the body. */
static enum MHD_Result http_handle(void *arg, struct MHD_Connection *c, const char *url, const char *verb,
				   const char *version, const char *data, size_t *data_size, void **context)
{
	struct gateway_http *h = arg;
	struct http_request *r = *context;

	if (r == NULL) {
		*context = r = http_request_new(h, c);
		return r != NULL ? http_begin(h, c, url, verb, r) : MHD_NO;
	}
	if (*data_size != 0) {
		size_t n = *data_size;
		*data_size = 0;
		return http_more(r, data, n);
	}
	gateway_conn_step(r->conn, GATEWAY_STEP_CALL);
	return r->refused != 0 ? http_answer_refused(c, r) : r->route->run(h, c, r);
}

/* The request has ended, with an answer or without. */
static void http_completed(void *arg, struct MHD_Connection *c, void **context, enum MHD_RequestTerminationCode code)
{
	struct gateway_http *h = arg;
	struct http_request *r = *context;

	if (r == NULL) {
		return;
	}
	gateway_conn_step(r->conn, GATEWAY_STEP_HEAD);
	free(r->body);
	free(r);
	*context = NULL;
	__atomic_sub_fetch(&h->busy, 1, __ATOMIC_ACQ_REL);
}

/* The library refuses what is not HTTP, or breaks off a handshake. */
static void http_library_says(void *arg, const char *fmt, va_list ap)
{
	char text[256];

	vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	safe_text_line(text);
	log_limited(LOG_LEVEL_NOTICE, "HTTP: %s", text);
}

struct MHD_Daemon *gateway_http_start(struct gateway_http *h, int fd)
{
	struct MHD_OptionItem tls[] = {
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)GATEWAY_TLS_PRIORITIES},
		{MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)gateway_tls_retrieve},
		{MHD_OPTION_END, 0, NULL},
	};
	unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC |
			 MHD_USE_ERROR_LOG | (h->tls ? MHD_USE_TLS : 0);

	return MHD_start_daemon(flags, 0, NULL, NULL, http_handle, h, MHD_OPTION_EXTERNAL_LOGGER, http_library_says,
				NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, h->max_connections,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_MAX, MHD_OPTION_NOTIFY_COMPLETED,
				http_completed, h, MHD_OPTION_NOTIFY_CONNECTION, gateway_conns_notify, NULL,
				MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, h->tls ? tls : &tls[2],
				MHD_OPTION_END);
}

bool gateway_http_stop(struct gateway_http *h, struct MHD_Daemon *d, unsigned limit_ms)
{
	uint64_t end_ms = gateway_now_ms() + limit_ms;
	MHD_socket fd = MHD_quiesce_daemon(d);

	while (__atomic_load_n(&h->busy, __ATOMIC_ACQUIRE) != 0) {
		if (gateway_now_ms() >= end_ms) {
			return false;
		}
		nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
	}
	if (fd != MHD_INVALID_SOCKET) {
		close(fd);
	}
	MHD_stop_daemon(d);
	return true;
}
