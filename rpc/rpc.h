/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON-RPC 2.0 on a Unix stream socket. All on the control thread.
 *
 * A method declares its parameters as a table, and the shape of its answer, so that decoding, the error
 * for a bad parameter, --help, rpc_describe_methods and doc/rpc.md come from one place:
 *
 *     struct malloc_create { char *name; uint32_t block_size; uint64_t num_blocks; };
 *     static const struct rpc_param malloc_create_params[] = {
 *     RPC_PARAM(struct malloc_create, name, RPC_STRING, RPC_OPTIONAL, "name of the new bdev"),
 *     RPC_PARAM(struct malloc_create, block_size, RPC_UINT32, RPC_REQUIRED, "bytes"),
 *     ...
 *     RPC_PARAM_END };
 *     static void rpc_malloc_create(struct rpc_request *req, void *params)
 *     {
 *     ...
 *     rpc_reply(req, rpc_string(name));
 *     }
 *     RPC_METHOD("bdev_malloc_create", rpc_malloc_create, struct malloc_create, malloc_create_params,
 *        RPC_RUNTIME, "Create a RAM disk", .result = "string")
 */
#ifndef RPC_RPC_H
#define RPC_RPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct rpc_request;

enum rpc_type {
	RPC_STRING, /* char * (owned by the params; freed after the method) */
	RPC_BOOL,   /* bool */
	RPC_UINT8,
	RPC_UINT16,
	RPC_INT32,
	RPC_UINT32,
	RPC_UINT64, /* also "0x..." strings */
	RPC_ENUM,   /* int; names in .enums */
	RPC_UUID,   /* char * in canonical form */
	RPC_OBJECT, /* json_t *, borrowed; or with .object a struct, decoded in place */
	RPC_ARRAY,  /* json_t *, borrowed */
};
enum { RPC_OPTIONAL = 0, RPC_REQUIRED = 1 };

struct rpc_enum {
	const char *name;
	int value;
};

struct rpc_param {
	const char *name;
	enum rpc_type type;
	size_t offset;
	size_t size;
	bool required;
	const struct rpc_enum *enums;   /* RPC_ENUM; ends with a NULL name */
	const struct rpc_param *object; /* RPC_OBJECT decoded in place at offset, or NULL */
	const char *help;
	uint64_t min, max;   /* integers: the allowed range when max != 0 */
	size_t given_offset; /* of a bool that is set when the parameter is given; 0: none */
	const char *only;    /* the one value that may be given, as JSON: RPC_ONLY */
};
#define RPC_PARAM(type_, field_, rpc_type_, required_, help_, ...)                                                     \
	{                                                                                                              \
		.name = #field_, .type = rpc_type_, .offset = offsetof(type_, field_),                                 \
		.size = sizeof(((type_ *)0)->field_), .required = required_, .help = help_, ##__VA_ARGS__              \
	}
/* What clients send that know more than there is here: only the value that says what is done anyway is taken, and goes
 * nowhere. why_ says what another one would need. */
#define RPC_ONLY(name_, rpc_type_, only_, why_)                                                                        \
	{                                                                                                              \
		.name = #name_, .type = rpc_type_, .only = only_, .help = why_                                         \
	}
#define RPC_PARAM_END                                                                                                  \
	{                                                                                                              \
		.name = NULL                                                                                           \
	}

/* When a method may be called. */
enum { RPC_STARTUP = 1, RPC_RUNTIME = 2 };

struct rpc_method {
	const char *name;
	/* Must lead to exactly one rpc_reply() or rpc_error(), now or later. */
	void (*fn)(struct rpc_request *req, void *params);
	size_t params_size;
	const struct rpc_param *params; /* NULL: none allowed */
	unsigned states;
	const char *help;
	const char *result; /* the shape of its answer, in the notation below; must be given */
	const char *alias;  /* an older name that still works, or NULL */
	/* Fills in defaults (strings by strdup()) before decoding; NULL: zeroes. */
	void (*defaults)(void *params);
	/* True: these params say how long the call may take, or to wait is what it is for, so rpc_set_deadline() does
	 * not count. NULL: it does. */
	bool (*has_own_time)(const void *params);
	const char
		*module; /* NULL; or the bdev module that the method belongs to: RPC_METHOD knows it from the build */
	bool in_turn;    /* what its client sent behind it waits until it is answered: that may use what it makes */
	SLIST_ENTRY(rpc_method) link;
};
/* Before main(); a method that is registered twice, or without its result, ends the process. */
void rpc_method_register(struct rpc_method *m);

/* The notation of .result, which clients are written against and systest/rpc_results.py holds answers against:
 *
 *     int, string, bool, null, true, any    a value of that type; an int beyond 2^63 - 1 is a string "0x..."
 *     {key: shape, key?: shape}             an object; a key with ? may be missing
 *     {*: shape}                            an object whose other keys are names of something
 *     {key: shape, ...}                     there may be more keys
 *     [shape]                               an array
 *     shape|shape                           either */

/* The build defines it for the methods of a bdev module: "null". */
#ifndef RPC_MODULE
#define RPC_MODULE NULL
#endif

#define RPC_METHOD(name_, fn_, params_type_, params_, states_, help_, ...)                                             \
	static struct rpc_method rpc_method_##fn_ = {.name = name_,                                                    \
						     .fn = fn_,                                                        \
						     .params_size = sizeof(params_type_),                              \
						     .params = params_,                                                \
						     .states = states_,                                                \
						     .help = help_,                                                    \
						     .module = RPC_MODULE,                                             \
						     ##__VA_ARGS__};                                                   \
	__attribute__((constructor)) static void rpc_method_register_##fn_(void)                                       \
	{                                                                                                              \
		rpc_method_register(&rpc_method_##fn_);                                                                \
	}
struct rpc_no_params {
	char none;
};

/* Answers. result is consumed (NULL: internal error, logged). The params given to the method stay valid until
 * the answer, and at least until the method returns. After the deadline the client has got another answer; this one is
 * logged, and ends the call. */
void rpc_reply(struct rpc_request *req, json_t *result);
void rpc_reply_true(struct rpc_request *req);
/* code: an RPC_ERROR_* or a negative errno. The message names the parameter, its value and what is
 * allowed. */
void rpc_error(struct rpc_request *req, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same for element i of the array parameter name: RPC_ERROR_INVALID_PARAMS, with value as the client wrote it; fmt
 * says what is allowed. */
void rpc_wrong_element(struct rpc_request *req, const char *name, size_t i, const json_t *value, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
enum {
	RPC_ERROR_PARSE = -32700,
	RPC_ERROR_INVALID_REQUEST = -32600,
	RPC_ERROR_NO_METHOD = -32601,
	RPC_ERROR_INVALID_PARAMS = -32602,
	RPC_ERROR_INTERNAL = -32603,
	RPC_ERROR_INVALID_STATE = -1, /* the method exists but not in this state (start-up or run time) */
};

/* Parts of answers. None of them fails for odd contents: invalid UTF-8 (host names, NQNs, paths) shows as
 * U+FFFD, and an integer beyond int64_t as a string "0x...", as clients expect of 64-bit masks and ids. */
json_t *rpc_string(const char *text); /* NULL: JSON's null */
json_t *rpc_string_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
json_t *rpc_hex(uint64_t value);
json_t *rpc_uint(uint64_t value);
/* A part of the result could not be made for want of memory: rpc_reply() will say so in its place. */
void rpc_result_lacks_memory(void);

/* Configuration: a room that has state to save registers a subsystem; framework_get_config calls write, which
 * appends {"method", "params"} objects that rebuild the state. Order of loading: `after` names the one that
 * comes before. */
struct rpc_config {
	const char *name;  /* "bdev" */
	const char *after; /* or NULL */
	void (*write)(json_t *methods);
	SLIST_ENTRY(rpc_config) link;
};
void rpc_config_register(struct rpc_config *c);
/* Appends {"method": method, "params": params} to methods; params is consumed, NULL for none. */
void rpc_config_add(json_t *methods, const char *method, json_t *params);

/* Events for notify_get_notifications, e.g. notify_send("bdev_register", name). Control thread. */
void notify_type_register(const char *type);
void notify_send(const char *type, const char *context);
/* The same with why it happened, for people; NULL: that is not known, or goes without saying. */
void notify_send_reason(const char *type, const char *context, const char *reason);

/* What follows is for the appliance. */

#define RPC_ERROR_TEXT_MAX 1024

/* Parses text as a message from a client is parsed: numbers beyond the library's are kept (only this room's decoding
 * understands them), keys that are given twice are an error. NULL and *error. */
json_t *rpc_json_load(const char *text, size_t len, json_error_t *error);

/* Methods without a socket, as the configuration file needs them. */
struct rpc_answer {
	int code;            /* 0, or as in rpc_error() */
	json_t *result;      /* borrowed; NULL for an error */
	const char *message; /* NULL for a result */
	size_t bytes;        /* may be set by who takes the answer: how long its text became */
};
typedef void (*rpc_done_fn)(void *arg, struct rpc_answer *answer);
/* Calls a method whatever the state; done is called exactly once, now or later. */
void rpc_call_method(const char *method, json_t *params, rpc_done_fn done, void *arg);
/* 0 if the method exists and takes these params (states: where it may be called); otherwise the code and text
 * it would answer. */
int rpc_check_method(const char *method, json_t *params, unsigned *states, char why[RPC_ERROR_TEXT_MAX]);

/* After how many seconds a client's call that is not answered is answered with -ETIMEDOUT, while what it asked for goes
 * on; 0: never. Counts for calls that begin later. */
#define RPC_DEFAULT_DEADLINE_S 50 /* stock clients hang up after 60 s, and would never know */
#define RPC_MAX_DEADLINE_S     86400
void rpc_set_deadline(uint32_t seconds);

/* Which methods clients may call: RPC_STARTUP or RPC_RUNTIME. */
void rpc_set_state(unsigned state);
unsigned rpc_get_state(void);

struct rpc_server_opts {
	const char *path;        /* of the socket */
	unsigned mode;           /* of the socket; 0: 0600 */
	unsigned max_clients;    /* 0: 64 */
	size_t max_message_size; /* bytes; 0: 4 MiB */
};
#define RPC_DEFAULT_PATH "/var/tmp/varve.sock"
#define RPC_SERVICE_PATH "/run/varve/varve.sock" /* of varve.service: nobody else can make a file there first */
/* Where a client looks that was told nothing: $VARVE_RPC_SOCKET, the service's socket if there is one,
 * RPC_DEFAULT_PATH. */
const char *rpc_client_path(void);
/* Listens. 0, or a negative errno and error (RPC_ERROR_TEXT_MAX bytes) says why: -EADDRINUSE when another
 * process listens there. */
int rpc_server_start(const struct rpc_server_opts *opts, char *error);
/* Closes every connection, after one try to send what is queued, and removes the socket. Answers that come
 * later are dropped. */
void rpc_server_stop(void);

#endif
