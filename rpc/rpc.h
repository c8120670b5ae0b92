/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON-RPC 2.0 on a Unix stream socket. All functions run on the control thread.
 *
 * A method declares its parameters in a table, and the shape of its answer. The decoder, the error for a bad
 * parameter, --help, rpc_describe_methods and doc/rpc.md are all made from these two:
 *
 *     struct malloc_create { char *name; uint32_t block_size; uint64_t num_blocks; };
 *     static const struct rpc_param malloc_create_params[] = {
 *             RPC_PARAM(struct malloc_create, name, RPC_STRING, RPC_OPTIONAL, "name of the new bdev"),
 *             RPC_PARAM(struct malloc_create, block_size, RPC_UINT32, RPC_REQUIRED, "bytes"),
 *             ...
 *             RPC_PARAM_END };
 *     static void rpc_malloc_create(struct rpc_request *req, void *params)
 *     {
 *             ...
 *             rpc_reply(req, rpc_string(name));
 *     }
 *     RPC_METHOD("bdev_malloc_create", rpc_malloc_create, struct malloc_create, malloc_create_params,
 *                RPC_RUNTIME, "Create a RAM disk", .result = "string")
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
	RPC_STRING, /* char *, owned by the params, which are freed after the answer; NULL: not given */
	RPC_BOOL,   /* bool */
	RPC_UINT8,
	RPC_UINT16,
	RPC_INT32,
	RPC_UINT32,
	RPC_UINT64, /* also accepts a string "0x..." */
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
	const char *only;    /* as JSON. RPC_ONLY: the one value that may be given; RPC_NO_EFFECT: the usual one */
	bool no_effect;      /* RPC_NO_EFFECT */
	bool own;            /* SPDK's method of that name lacks it: saved apart (rpc/own.h) */
	bool bytes;          /* integers: a number of bytes, for which people may write 64K or 1G to varve-rpc */
};
#define RPC_PARAM(type_, field_, rpc_type_, required_, help_, ...)                                                     \
	{                                                                                                              \
		.name = #field_, .type = rpc_type_, .offset = offsetof(type_, field_),                                 \
		.size = sizeof(((type_ *)0)->field_), .required = required_, .help = help_, ##__VA_ARGS__              \
	}
/* A parameter that clients of other servers send and varve does not have: only the one value is accepted that asks for
 * what varve does anyway; the value is not stored. why_ says what any other value would need. */
#define RPC_ONLY(name_, rpc_type_, only_, why_)                                                                        \
	{                                                                                                              \
		.name = #name_, .type = rpc_type_, .only = only_, .help = why_                                         \
	}
/* A parameter that clients of other servers send, about something that varve does not have. A value of the type is
 * taken and forgotten, so it is not saved; the log says so once unless it is usual_, which asks for nothing. why_ says
 * why there is no effect. */
#define RPC_NO_EFFECT(name_, rpc_type_, usual_, why_)                                                                  \
	{                                                                                                              \
		.name = #name_, .type = rpc_type_, .only = usual_, .no_effect = true, .size = sizeof(uint64_t),        \
		.help = "no effect: " why_                                                                             \
	}
#define RPC_PARAM_END                                                                                                  \
	{                                                                                                              \
		.name = NULL                                                                                           \
	}

/* When a method may be called. RPC_HANDING_OVER: while another process takes over, no method may be. */
enum { RPC_STARTUP = 1, RPC_RUNTIME = 2, RPC_HANDING_OVER = 4 };

struct rpc_method {
	const char *name;
	/* Must call rpc_reply() or rpc_error() exactly once, before it returns or later. */
	void (*fn)(struct rpc_request *req, void *params);
	size_t params_size;
	const struct rpc_param *params; /* NULL: none allowed */
	unsigned states;
	const char *help;
	const char *result; /* the shape of its answer, in the notation below; must be given */
	const char *alias;  /* an older name that still works, or NULL */
	/* Fills in the defaults before decoding, strings by strdup(). NULL: all defaults are zero. */
	void (*defaults)(void *params);
	/* True: rpc_set_deadline() does not apply, because these params say how long the call may take, or because the
	 * purpose of the call is to wait. NULL: the deadline always applies. */
	bool (*has_own_time)(const void *params);
	/* Writes what a call with these params, which has not ended, waits for; "" if it does not know. For the error
	 * at the deadline, and rpc_get_calls. NULL: nothing is told. */
	void (*waits_for)(const void *params, char *text, size_t size);
	const char *module; /* the bdev module that the method belongs to, or NULL; RPC_METHOD has it from the build */
	bool own;           /* SPDK has no such method, and configurations may have it: saved apart (rpc/own.h) */
	bool in_turn;       /* the client's next calls wait until this one is answered: they may use what it creates */
	SLIST_ENTRY(rpc_method) link;
};
/* Adds a method. Called before main(), by RPC_METHOD. A name that is registered twice, or a method without a result,
 * ends the process. */
void rpc_method_register(struct rpc_method *m);

/* The notation of .result. Clients are written against it, and systest/rpc_results.py compares real answers with it:
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

/* Ends a call with a result, which is consumed (NULL: an internal error, which is logged). The call's params stay valid
 * until then, and at least until the method returns. If the deadline has passed, the client has already been answered:
 * then the result is only logged. */
void rpc_reply(struct rpc_request *req, json_t *result);
/* Ends a call with the result `true`. */
void rpc_reply_true(struct rpc_request *req);
/* Ends a call with an error. code: an RPC_ERROR_* or a negative errno. The message should name the parameter, its value
 * and the values that are allowed. */
void rpc_error(struct rpc_request *req, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Ends a call with RPC_ERROR_INVALID_PARAMS because of element i of the array parameter `name`. The message shows value
 * as the client wrote it; fmt says which values are allowed. */
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

/* Parts of answers. They fail only for lack of memory, never because of the text or number that they are given. */

/* A string, in which invalid UTF-8 (host names, NQNs and paths may have it) becomes U+FFFD; null for NULL. */
json_t *rpc_string(const char *text);
/* The same, formatted as by printf(). */
json_t *rpc_string_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A string "0x1f". */
json_t *rpc_hex(uint64_t value);
/* An integer; one beyond 2^63 - 1 becomes a string "0x...", as clients expect of 64-bit masks and ids. */
json_t *rpc_uint(uint64_t value);
/* To be called when a part of a result could not be made for lack of memory: rpc_reply() then answers with that error
 * instead of an incomplete result. */
void rpc_result_lacks_memory(void);

/* A part of the saved configuration ("subsystem" in its file format): registered by a room that has state to save. */
struct rpc_config {
	const char *name;  /* "bdev" */
	const char *after; /* the one that must be loaded before this one, or NULL */
	/* Appends {"method", "params"} objects that rebuild the state. Called by framework_get_config. */
	void (*write)(json_t *methods);
	SLIST_ENTRY(rpc_config) link;
};
/* Before main(). A name that is registered twice ends the process. */
void rpc_config_register(struct rpc_config *c);
/* For write(): whether a parameter that only varve has is to be left out because its value is the usual one, or because
 * without it the entry says nearly the same. SPDK's targets refuse such parameters, and their clients save the answer
 * of framework_get_config as it is. Not where the caller has asked for the whole: it compares. */
bool rpc_config_leaves_out(bool is_usual);
/* Appends {"method": method, "params": params} to methods; params is consumed, NULL for none. */
void rpc_config_add(json_t *methods, const char *method, json_t *params);

/* Declares a type of event that notify_get_notifications shows to those who ask for all, such as "nvmf_ns_add". The
 * text must stay. Before main(), or on the control thread. */
void notify_type_register(const char *type);
/* The same, of a type that SPDK's targets have, such as "bdev_register". Everybody is shown those, and clients count
 * them: numbered apart, they have no gaps. */
void notify_type_register_common(const char *type);
/* Records an event. context: the name of the object that it happened to; copied. */
void notify_send(const char *type, const char *context);
/* The same, with the reason as a text for people; NULL: unknown or obvious. */
void notify_send_reason(const char *type, const char *context, const char *reason);

/* What follows is used by the appliance only. */

#define RPC_ERROR_TEXT_MAX 1024

/* Parses text by the same rules as a client's message: numbers that the JSON library cannot represent are kept, for
 * the decoder of params alone; an object that has a key twice is an error. NULL: *error says what is wrong. */
json_t *rpc_json_load(const char *text, size_t len, json_error_t *error);

/* How a call ended. */
struct rpc_answer {
	int code;            /* 0, or as in rpc_error() */
	json_t *result;      /* borrowed; NULL for an error */
	const char *message; /* NULL for a result */
	size_t bytes;        /* may be set by the receiver: the length of the answer's text, for the trace */
};
typedef void (*rpc_done_fn)(void *arg, struct rpc_answer *answer);
/* Calls a method without a socket, in any state: for the configuration file. params is borrowed. done is called exactly
 * once, perhaps before rpc_call_method() returns. */
void rpc_call_method(const char *method, json_t *params, rpc_done_fn done, void *arg);
/* Checks a call without making it. 0: the method exists and accepts these params; *states says when it may be called.
 * Otherwise the error's code, and its text in why. */
int rpc_check_method(const char *method, json_t *params, unsigned *states, char why[RPC_ERROR_TEXT_MAX]);

/* The message of an error as it may be logged and told to others: without the value of a parameter that is, or may be,
 * a secret. params: of the call; may be NULL. Returns message, or text. Pure. */
const char *rpc_refusal_text(const json_t *params, const char *message, char text[RPC_ERROR_TEXT_MAX]);

#define RPC_DEFAULT_DEADLINE_S 50 /* less than the 60 s after which stock clients hang up */
#define RPC_MAX_DEADLINE_S     86400
/* After so many seconds a client's call is answered with -ETIMEDOUT, while the method goes on; 0: never. Applies to
 * calls that begin later. */
void rpc_set_deadline(uint32_t seconds);

/* A descriptor of one's own of the connection that a call came over; -ENOTCONN: it came over none; or another negative
 * errno. Before the call is answered. What is sent over it mixes with answers until the server has stopped. */
int rpc_request_dup_connection(const struct rpc_request *req);

/* Sets which methods clients may call: those of RPC_STARTUP or of RPC_RUNTIME, or none (RPC_HANDING_OVER). */
void rpc_set_state(unsigned state);
/* One of them. */
unsigned rpc_get_state(void);

struct rpc_server_opts {
	const char *path;        /* of the socket */
	unsigned mode;           /* of the socket; 0: 0600 */
	unsigned max_clients;    /* 0: 64 */
	size_t max_message_size; /* bytes; 0: 4 MiB */
};
#define RPC_DEFAULT_PATH "/var/tmp/varve.sock"
#define RPC_SERVICE_PATH "/run/varve/varve.sock" /* of varve.service, in a folder that no other user can write to */
/* The socket of a client that was given none: $VARVE_RPC_SOCKET, or RPC_SERVICE_PATH if it exists, or
 * RPC_DEFAULT_PATH. Any thread. */
const char *rpc_client_path(void);
/* Starts to listen. 0; or a negative errno, and error (RPC_ERROR_TEXT_MAX bytes) says why. -EADDRINUSE: another process
 * listens there. */
int rpc_server_start(const struct rpc_server_opts *opts, char *error);
/* Removes the socket and closes every connection, after one attempt to send the answers that are queued. Answers of
 * methods that end later are dropped. */
void rpc_server_stop(void);

#endif
