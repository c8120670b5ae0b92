/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/dispatch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rpc/allowed.h"
#include "rpc/params.h"
#include "rpc/refusal.h"
#include "rpc/registry.h"
#include "trace/trace.h"
#include "usdt/usdt.h"
#include "util/log.h"
#include "util/nearest.h"
#include "util/parse.h"

LOG_FLAG(rpc)

/* A method that occupies the control thread for longer, or that answers later than this, is logged. */
#define SLOW_RUN_NS    (100 * 1000 * 1000ULL)
#define SLOW_ANSWER_NS (10 * 1000 * 1000 * 1000ULL)

/* The limit on calls past their deadline, which are kept until they end. Beyond it, calls are not answered at their
 * deadline. Their connections then have unanswered calls and are not read from, so that a client that calls again and
 * again cannot take more memory. */
#define TIMED_OUT_MAX 1024

struct rpc_request {
	const struct rpc_method *method;
	json_t *given; /* the params borrow from it */
	uint64_t begin_ns;
	uint64_t deadline_ns; /* after the beginning; 0: none */
	uint32_t client;
	int fd;    /* of the client's connection, which may have been closed meanwhile, unless the method is running */
	bool slow; /* has been reported */
	bool timed_out; /* answered at the deadline: stays in the list until the method ends the call */
	bool in_method; /* its method is running ... */
	bool answered;  /* ... and has answered: freed when the method returns, because it may use its parameters until
			   then */
	rpc_done_fn done;
	void *arg;
	TAILQ_ENTRY(rpc_request) link;
	uint8_t params[] __attribute__((aligned(16)));
};

static TAILQ_HEAD(, rpc_request) outstanding = TAILQ_HEAD_INITIALIZER(outstanding);
static size_t n_outstanding, n_timed_out;
static uint64_t deadline_ns = RPC_DEFAULT_DEADLINE_S * 1000000000ULL;
static unsigned current_state = RPC_STARTUP;

static uint64_t dispatch_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void rpc_set_state(unsigned state)
{
	current_state = state;
}

unsigned rpc_get_state(void)
{
	return current_state;
}

void rpc_set_deadline(uint32_t seconds)
{
	deadline_ns = seconds * 1000000000ULL;
}

int rpc_request_dup_connection(const struct rpc_request *req)
{
	if (req->client == 0 || !req->in_method || req->answered) {
		return -ENOTCONN;
	}
	int fd = fcntl(req->fd, F_DUPFD_CLOEXEC, 0);
	return fd >= 0 ? fd : -errno;
}

size_t rpc_outstanding(void)
{
	return n_outstanding;
}

/* What a call waits for, as its method tells; NULL: it does not. */
static const char *rpc_request_waits_for(const struct rpc_request *req, char text[RPC_ERROR_TEXT_MAX])
{
	text[0] = 0;
	if (req->method->waits_for != NULL) {
		req->method->waits_for(req->params, text, RPC_ERROR_TEXT_MAX);
	}
	return text[0] != 0 ? text : NULL;
}

void rpc_for_each_call(void (*fn)(void *arg, const struct rpc_call_info *info), void *arg)
{
	struct rpc_request *req;
	uint64_t now = dispatch_now_ns();
	char text[RPC_ERROR_TEXT_MAX];

	TAILQ_FOREACH (req, &outstanding, link) {
		fn(arg, &(struct rpc_call_info){
				.method = req->method->name,
				.client = req->client,
				.age_us = (now - req->begin_ns) / 1000,
				.timed_out = req->timed_out,
				.waits_for = rpc_request_waits_for(req, text),
			});
	}
}

static void rpc_request_unlink(struct rpc_request *req)
{
	TAILQ_REMOVE(&outstanding, req, link);
	n_outstanding--;
	n_timed_out -= req->timed_out;
}

static void rpc_request_free(struct rpc_request *req)
{
	rpc_params_free(req->method->params, req->params);
	json_decref(req->given);
	free(req);
}

static void rpc_request_answer(struct rpc_request *req, struct rpc_answer *answer, uint64_t took_ns)
{
	req->answered = true;
	USDT(rpc_end, req->method->name, answer->code, took_ns / 1000);
	req->done(req->arg, answer);
	TRACE(RPC_END, 0, answer->bytes, req, answer->code, took_ns / 1000);
}

static void rpc_request_end(struct rpc_request *req, struct rpc_answer *answer)
{
	uint64_t took_ns = dispatch_now_ns() - req->begin_ns;

	if (req->timed_out) {
		log_notice("RPC %s, whose client was answered with a timeout, ended after %llu ms: %s",
			   req->method->name, (unsigned long long)(took_ns / 1000000),
			   answer->message != NULL ? answer->message : "done");
		rpc_request_unlink(req);
		rpc_request_free(req);
		return;
	}
	if (req->answered) {
		log_error("RPC %s answered twice", req->method->name);
		return;
	}
	if (req->slow) {
		log_notice("RPC %s answered after %llu ms", req->method->name, (unsigned long long)(took_ns / 1000000));
	}
	rpc_request_answer(req, answer, took_ns);
	rpc_request_unlink(req);
	if (!req->in_method) {
		rpc_request_free(req);
	}
}

/* Answers the client at the deadline. The method cannot be stopped: the request and its parameters stay the method's
 * until it ends the call. */
static void rpc_request_time_out(struct rpc_request *req, uint64_t took_ns)
{
	char message[2 * RPC_ERROR_TEXT_MAX], text[RPC_ERROR_TEXT_MAX];
	struct rpc_answer answer = {.code = -ETIMEDOUT, .message = message};
	const char *waits_for = rpc_request_waits_for(req, text);

	snprintf(message, sizeof(message),
		 "%s has not ended within %llu s%s%s; it goes on, and rpc_get_calls lists it until it has ended",
		 req->method->name, (unsigned long long)(req->deadline_ns / 1000000000),
		 waits_for != NULL ? ": it waits for " : "", waits_for != NULL ? waits_for : "");
	log_limited(LOG_LEVEL_WARNING, "RPC %s", message);
	req->timed_out = true;
	n_timed_out++;
	rpc_request_answer(req, &answer, took_ns);
}

static void rpc_request_check(struct rpc_request *req, uint64_t now)
{
	uint64_t age_ns = now - req->begin_ns;

	if (!req->slow && age_ns >= SLOW_ANSWER_NS) {
		req->slow = true;
		log_warning("RPC %s has not been answered for %llu s", req->method->name,
			    (unsigned long long)(age_ns / 1000000000));
	}
	if (!req->timed_out && req->deadline_ns != 0 && age_ns >= req->deadline_ns && n_timed_out < TIMED_OUT_MAX) {
		rpc_request_time_out(req, age_ns);
	}
}

void rpc_check_calls(void)
{
	struct rpc_request *req;
	uint64_t now = dispatch_now_ns();

	/* Neither call removes a request from the list: only its method does that, and no method runs meanwhile. */
	TAILQ_FOREACH (req, &outstanding, link) {
		rpc_request_check(req, now);
	}
}

void rpc_reply(struct rpc_request *req, json_t *result)
{
	struct rpc_answer answer = {.result = result};

	if (rpc_json_was_refused()) {
		log_error("RPC %s: no memory for its result", req->method->name);
		answer = (struct rpc_answer){
			.code = -ENOMEM,
			.message = "what was asked for has been done, but there is no memory for the result"};
	} else if (result == NULL) {
		log_error("RPC %s: its result could not be built", req->method->name);
		answer.code = RPC_ERROR_INTERNAL;
		answer.message = "the result could not be built";
	}
	rpc_request_end(req, &answer);
	json_decref(result);
}

void rpc_reply_true(struct rpc_request *req)
{
	rpc_reply(req, json_true());
}

/* Whether an error means that the machine lacks something, not that the call was wrong: such errors are logged. */
static bool error_is_shortage(int code)
{
	return code == -ENOMEM || code == -ENOSPC || code == -EMFILE || code == -ENFILE || code == -EIO ||
	       code == -EROFS || code == -EAGAIN;
}

void rpc_error(struct rpc_request *req, int code, const char *fmt, ...)
{
	char message[RPC_ERROR_TEXT_MAX], text[RPC_ERROR_TEXT_MAX];
	struct rpc_answer answer = {.code = code, .message = message};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	const char *what = rpc_refusal_text(req->given, message, text);
	if (error_is_shortage(code)) {
		log_limited(LOG_LEVEL_NOTICE, "RPC %s failed: %s", req->method->name, what);
	}
	log_info(rpc, "RPC %s: error %d: %s", req->method->name, code, what);
	if (req->client != 0 && rpc_refusal_is_told(code)) {
		rpc_refusal_tell(req->method->name, req->given, code, message);
	}
	rpc_refusal_mask(req->given, message);
	rpc_request_end(req, &answer);
}

void rpc_wrong_element(struct rpc_request *req, const char *name, size_t i, const json_t *value, const char *fmt, ...)
{
	char allowed[RPC_ERROR_TEXT_MAX / 2], text[RPC_VALUE_TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(allowed, sizeof(allowed), fmt, ap);
	va_end(ap);
	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"%s[%zu]\" is %s: allowed %s", name, i,
		  rpc_value_of_text(name, value, text), allowed);
}

/* Creates a request and decodes its parameters. NULL: *code and why say what is wrong. */
static struct rpc_request *rpc_request_create(const struct rpc_method *m, json_t *given, int *code, char *why)
{
	struct rpc_request *req = calloc(1, sizeof(*req) + m->params_size);

	if (req == NULL) {
		*code = -ENOMEM;
		snprintf(why, RPC_ERROR_TEXT_MAX, "no memory for the request");
		return NULL;
	}
	req->method = m;
	req->given = json_incref(given);
	if (m->defaults != NULL) {
		m->defaults(req->params);
	}
	TAILQ_INSERT_TAIL(&outstanding, req, link);
	n_outstanding++;
	int rc = rpc_params_decode(m->params, given, req->params, why, RPC_ERROR_TEXT_MAX);
	if (rc != 0) {
		*code = rc == -ENOMEM ? -ENOMEM : RPC_ERROR_INVALID_PARAMS;
		rpc_request_unlink(req);
		rpc_request_free(req);
		return NULL;
	}
	rpc_params_log_no_effect(m->name, m->params, given);
	return req;
}

/* A call that does not reach its method. */
struct refused_call {
	const struct rpc_origin *origin;
	const char *method;
	const json_t *params;
	rpc_done_fn done;
	void *arg;
};

static void __attribute__((format(printf, 3, 4)))
dispatch_refuse(const struct refused_call *call, int code, const char *fmt, ...)
{
	char message[RPC_ERROR_TEXT_MAX], text[RPC_ERROR_TEXT_MAX];
	struct rpc_answer answer = {.code = code, .message = message};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	const char *what = rpc_refusal_text(call->params, message, text);
	if (error_is_shortage(code)) {
		log_limited(LOG_LEVEL_NOTICE, "an RPC was refused: %s", what);
	}
	log_info(rpc, "RPC refused: error %d: %s", code, what);
	if (call->origin->client != 0 && rpc_refusal_is_told(code)) {
		rpc_refusal_tell(call->method, call->params, code, message);
	}
	rpc_refusal_mask(call->params, message);
	call->done(call->arg, &answer);
}

/* Of the methods that clients may call. */
static void method_not_found_text(const char *name, char *why)
{
	char clean[128], question[NEAREST_TEXT_MAX];
	struct nearest near;

	nearest_begin(&near, name);
	for (const struct rpc_method *m = rpc_method_next(NULL); m != NULL; m = rpc_method_next(m)) {
		if (rpc_method_allowed(m)) {
			nearest_try(&near, m->name);
		}
	}
	utf8_sanitize(name, clean, sizeof(clean));
	snprintf(why, RPC_ERROR_TEXT_MAX, "there is no method \"%s\"%s%s rpc_get_methods lists all methods", clean,
		 nearest_format(&near, question, sizeof(question)), near.name == NULL ? ";" : "");
}

static void dispatch_run(const struct rpc_origin *origin, const struct rpc_method *m, json_t *params, rpc_done_fn done,
			 void *arg)
{
	char why[RPC_ERROR_TEXT_MAX];
	int code;
	struct rpc_request *req = rpc_request_create(m, params, &code, why);

	if (req == NULL) {
		dispatch_refuse(&(struct refused_call){origin, m->name, params, done, arg}, code, "%s", why);
		return;
	}
	req->done = done;
	req->arg = arg;
	req->client = origin->client;
	req->fd = origin->fd;
	req->begin_ns = dispatch_now_ns();
	/* Calls without a client, those of the configuration file, have no deadline. */
	if (origin->client != 0 && (m->has_own_time == NULL || !m->has_own_time(req->params))) {
		req->deadline_ns = deadline_ns;
	}
	log_info(rpc, "RPC %s", m->name);
	USDT(rpc_begin, m->name);
	TRACE(RPC_BEGIN, 0, origin->bytes, req, m->name, origin->client);
	req->in_method = true;
	rpc_json_was_refused(); /* forgets refusals before this call */
	m->fn(req, req->params);
	req->in_method = false;
	uint64_t ran_ns = dispatch_now_ns() - req->begin_ns;
	if (req->answered) {
		rpc_request_free(req);
	}
	if (ran_ns >= SLOW_RUN_NS) {
		log_warning("RPC %s held the control thread for %llu ms", m->name,
			    (unsigned long long)(ran_ns / 1000000));
	}
}

static void dispatch_run_by_name(const struct rpc_origin *origin, const char *method, json_t *params, rpc_done_fn done,
				 void *arg)
{
	const struct rpc_method *m = rpc_method_find(method);
	char why[RPC_ERROR_TEXT_MAX];

	if (m == NULL) {
		method_not_found_text(method, why);
		dispatch_refuse(&(struct refused_call){origin, method, params, done, arg}, RPC_ERROR_NO_METHOD, "%s",
				why);
		return;
	}
	dispatch_run(origin, m, params, done, arg);
}

void rpc_call_method(const char *method, json_t *params, rpc_done_fn done, void *arg)
{
	dispatch_run_by_name(&(struct rpc_origin){0}, method, params, done, arg);
}

void rpc_dispatch(const struct rpc_origin *origin, const char *method, json_t *params, rpc_done_fn done, void *arg)
{
	const struct rpc_method *m = rpc_method_find(method);
	const struct refused_call call = {origin, method, params, done, arg};

	if (m != NULL && !rpc_method_allowed(m)) {
		dispatch_refuse(&call, RPC_ERROR_NO_METHOD,
				"%s may not be called here: this daemon was started with --rpcs-allowed; "
				"rpc_get_methods, if it is allowed, lists what may be called",
				m->name);
		return;
	}
	if (m != NULL && (m->states & current_state) == 0) {
		if (current_state == RPC_HANDING_OVER) {
			dispatch_refuse(&call, RPC_ERROR_INVALID_STATE,
					"%s was not called: another process is taking over from this one, and answers "
					"soon",
					m->name);
		} else if (current_state == RPC_STARTUP) {
			dispatch_refuse(&call, RPC_ERROR_INVALID_STATE,
					"%s may be called only once the start-up is over: it is not yet, so try again "
					"(framework_wait_init answers then; "
					"after --wait-for-rpc, framework_start_init goes on with it)",
					m->name);
		} else {
			dispatch_refuse(&call, RPC_ERROR_INVALID_STATE,
					"%s may be called only during start-up: start with --wait-for-rpc, and call "
					"it before "
					"framework_start_init",
					m->name);
		}
		return;
	}
	dispatch_run_by_name(origin, method, params, done, arg);
}

int rpc_check_method(const char *method, json_t *params, unsigned *states, char why[RPC_ERROR_TEXT_MAX])
{
	const struct rpc_method *m = rpc_method_find(method);
	int code;

	if (m == NULL) {
		method_not_found_text(method, why);
		return RPC_ERROR_NO_METHOD;
	}
	struct rpc_request *req = rpc_request_create(m, params, &code, why);
	if (req == NULL) {
		return code;
	}
	*states = m->states;
	rpc_request_unlink(req);
	rpc_request_free(req);
	return 0;
}
