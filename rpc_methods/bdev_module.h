/* SPDX-License-Identifier: BSD-3-Clause */
/* For the methods of a bdev module: answers, deletion, common parameters, and the calls in a saved configuration that
 * make its bdevs again. Control thread. */
#ifndef RPC_METHODS_BDEV_MODULE_H
#define RPC_METHODS_BDEV_MODULE_H

#include <sys/queue.h>

#include "bdev/bdev.h"
#include "rpc/rpc.h"

/* Answers with the name of a bdev that was made; or with the error rc and its text. */
void rpc_bdev_answer_name(struct rpc_request *req, int rc, const char *name, const char *error);
/* Answers true, or with the error rc and its text. */
void rpc_bdev_answer_true(struct rpc_request *req, int rc, const char *error);

/* The 16 bytes of an RPC_UUID parameter, in uuid; NULL if it was not given. */
const uint8_t *rpc_bdev_uuid(const char *text, uint8_t uuid[16]);
/* Decodes the parameters that say which metadata the blocks of a new bdev have. They are wider than the members of md,
 * so that an error shows the value that the client sent. False: the request has been answered with the error. */
bool rpc_bdev_decode_md(struct rpc_request *req, uint32_t md_size, int32_t dif_type, bool dif_is_head_of_md,
			uint32_t dif_pi_format, struct bdev_md *md);

/* The parameters of a method that needs only the bdev's name. */
struct rpc_bdev_by_name {
	char *name;
};
extern const struct rpc_param rpc_bdev_by_name_params[];

/* The parameters of a method that deletes a bdev. */
struct rpc_bdev_delete {
	char *name;
	bool force;
	struct rpc_request *req; /* not a parameter */
};
extern const struct rpc_param rpc_bdev_delete_params[];
/* force is true: clients of SPDK's targets expect that a bdev that is in use is deleted. */
void rpc_bdev_delete_defaults(void *params);
/* Whether the bdev may be deleted. False: it is in use and force is false; req has been answered with that error. */
bool rpc_bdev_may_delete(struct rpc_request *req, const struct rpc_bdev_delete *p);
/* A bdev_delete_cb that answers the request of arg, a struct rpc_bdev_delete. */
void rpc_bdev_deleted(void *arg, int rc);
/* Defines the method bdev_KIND_delete, which calls bdev_KIND_delete(name, bdev_delete_cb, arg). what_: "a null bdev".
 */
#define RPC_BDEV_DELETE_METHOD(kind_, what_, ...)                                                                      \
	static void rpc_bdev_##kind_##_delete(struct rpc_request *req, void *params)                                   \
	{                                                                                                              \
		struct rpc_bdev_delete *p = params;                                                                    \
		p->req = req;                                                                                          \
		if (rpc_bdev_may_delete(req, p)) {                                                                     \
			bdev_##kind_##_delete(p->name, rpc_bdev_deleted, p);                                           \
		}                                                                                                      \
	}                                                                                                              \
	RPC_METHOD("bdev_" #kind_ "_delete", rpc_bdev_##kind_##_delete, struct rpc_bdev_delete,                        \
		   rpc_bdev_delete_params, RPC_RUNTIME,                                                                \
		   "Delete " what_ "; answered when all its users have closed it",                                     \
		   .defaults = rpc_bdev_delete_defaults, .result = "true", ##__VA_ARGS__)

struct vbdev_waiting;

/* A module's part of the saved configuration. */
struct rpc_bdev_config {
	const char *module; /* the name in its struct bdev_module */
	/* Appends the calls that rebuild the module's options, and its bdevs that were not made one by one; or NULL.
	 * What it makes may be the base of other bdevs, so it comes before all of these. */
	void (*write_module)(json_t *methods);
	/* Appends the call that makes b, a bdev of this module, again; or NULL: write_module has done so. Called for
	 * one bdev after the other in the order in which they were made, so that a base comes before what is built on
	 * it. */
	void (*write_bdev)(json_t *methods, const struct bdev *b);
	/* Whether b, a bdev of this module, is there when the configuration has been loaded. write_bdev leaves out one
	 * that is not, and warns of it. NULL: all are whose base is, if they are on one (vbdev_base_of()). */
	bool (*is_saved)(const struct bdev *b);
	/* Appends the call that asks again for a bdev of this module that waits for its base (bdev/vbdev/waiting.h), if
	 * the module has such; behind all bdevs that there are. */
	void (*write_waiting)(json_t *methods, const struct vbdev_waiting *w);
	SLIST_ENTRY(rpc_bdev_config) link;
};
/* Registers it before main(): RPC_BDEV_CONFIG(null, .write_bdev = bdev_null_write_config) */
#define RPC_BDEV_CONFIG(module_, ...)                                                                                  \
	static struct rpc_bdev_config rpc_bdev_config_##module_ = {.module = #module_, ##__VA_ARGS__};                 \
	__attribute__((constructor)) static void rpc_bdev_config_register_##module_(void)                              \
	{                                                                                                              \
		rpc_bdev_config_register(&rpc_bdev_config_##module_);                                                  \
	}
/* Whether b is there when the saved configuration has been loaded: it is not being deleted, its module saves it, and
 * what it stands on is saved. Calls that need the bdev are left out otherwise: they would be refused, and the file with
 * them. */
bool rpc_bdev_is_saved(const struct bdev *b);
/* Called before main(), by RPC_BDEV_CONFIG. */
void rpc_bdev_config_register(struct rpc_bdev_config *c);
/* By the module's name. NULL: the module cannot save its bdevs, which is an error of the module. */
const struct rpc_bdev_config *rpc_bdev_config_find(const char *module);

/* For writers: an object with the one member key, a string. */
json_t *rpc_bdev_params(const char *key, const char *value);
/* Adds a number. */
void rpc_bdev_add_uint(json_t *params, const char *key, uint64_t value);
/* Adds a number unless it is 0, the default. */
void rpc_bdev_add_nonzero(json_t *params, const char *key, uint64_t value);
/* Adds true if value is; false is the default. */
void rpc_bdev_add_true(json_t *params, const char *key, bool value);
/* Adds "uuid". */
void rpc_bdev_add_uuid(json_t *params, const uint8_t *uuid);
/* Adds what rpc_bdev_decode_md() decodes, unless blocks have no metadata. interleave: and md_interleave. */
void rpc_bdev_add_md(json_t *params, const struct bdev_md *md, bool interleave);

#endif
