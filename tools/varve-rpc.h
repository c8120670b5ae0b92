/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of varve-rpc. */
#ifndef TOOLS_VARVE_RPC_H
#define TOOLS_VARVE_RPC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit status. */
enum {
	RPC_TOOL_OK = 0,
	RPC_TOOL_REFUSED = 1, /* the daemon answered with an error */
	RPC_TOOL_USAGE = 2,
	RPC_TOOL_NO_ANSWER = 3, /* no daemon, or no answer in time */
	RPC_TOOL_LOST = 4,      /* the answer could not be written */
};

struct rpc_client;
/* NULL: the reason is on stderr, unless quiet. timeout_s: for each answer. */
struct rpc_client *rpc_client_open(const char *path, unsigned timeout_s, bool quiet);
void rpc_client_close(struct rpc_client *c);
/* Calls method; params is consumed, NULL for none. Returns an RPC_TOOL_*; *result is the caller's, and set when it is
 * RPC_TOOL_OK. Otherwise the reason is on stderr, unless quiet. */
int rpc_client_call(struct rpc_client *c, const char *method, json_t *params, bool quiet, json_t **result);
/* Whether the last call was refused with an error that asks "did you mean ...?". */
bool rpc_client_proposes(const struct rpc_client *c);
/* Sends text unchanged, tells the daemon that no more follows, and prints all bytes that come back until the daemon
 * closes. */
int rpc_client_raw(struct rpc_client *c, FILE *in, FILE *out);

/* Parameters from key=value arguments. Pure. A number of bytes may be written as 64K or 1G; where a method takes
 * num_blocks and block_size, size is understood too.  description: of the parameters, as rpc_describe_methods has them,
 * or NULL if they are not known: then a number, true, false or null becomes a string where daemons that describe
 * nothing take one. NULL: error says what is wrong. The object is the caller's. */
json_t *rpc_args_parse(int argc, char **argv, const json_t *description, char *error, size_t error_size);

/* Whether a method with these parameters is understood with size in place of num_blocks. description: as above. */
bool rpc_args_takes_size(const json_t *description);
/* After a call was refused: prints which key each argument with an unknown one was probably meant to have. */
void rpc_args_print_hints(int argc, char **argv, const json_t *description, FILE *out);
/* Whether SPDK's daemons take a string for a parameter of this name, which is the same in all of their methods that
 * have it. */
bool rpc_args_is_string_elsewhere(const char *name);

/* Both return an RPC_TOOL_*. file: NULL for stdout or stdin. */
int rpc_save_config(struct rpc_client *c, const char *file);
int rpc_load_config(struct rpc_client *c, const char *file);

/* In texts of the daemon, control characters except newline and tab are printed as in JSON: tools/safe-text.h. */
void rpc_print_json(const json_t *value, FILE *out);
/* Prints the names of the descriptions, one a line. */
void rpc_print_names(const json_t *descriptions, FILE *out);
/* What --help METHOD and the reference in doc/rpc.md are made of; description: one entry of rpc_describe_methods. */
void rpc_print_method(const json_t *description, FILE *out);
/* The reference: the methods of a module of block devices, or with NULL those of none. descriptions: the array that
 * rpc_describe_methods answers with. */
void rpc_print_markdown(const json_t *descriptions, const char *module, FILE *out);

#endif
