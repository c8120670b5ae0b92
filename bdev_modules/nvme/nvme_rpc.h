/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the module's RPC methods. Control thread. */
#ifndef BDEV_NVME_RPC_H
#define BDEV_NVME_RPC_H

#include "bdev_modules/nvme/bdev_nvme.h"
#include "rpc/rpc.h"

/* The controller, or NULL after answering that there is none. */
struct bdev_nvme *bdev_nvme_rpc_find(struct rpc_request *req, const char *name);
/* An address of a controller as answers and the configuration have it. */
json_t *bdev_nvme_rpc_trid_json(const struct nvme_trid *t);
/* The shape of what it makes, for RPC_METHOD's .result. */
#define RPC_BDEV_NVME_TRID_SHAPE "{trtype: string, adrfam?: string, traddr: string, trsvcid?: string, subnqn?: string}"
/* Decodes the parameters that name a discovery controller; false after answering what is wrong with them. */
bool bdev_nvme_rpc_decode_discovery(struct rpc_request *req, const char *trtype, const char *traddr, const char *adrfam,
				    const char *trsvcid, const char *hostnqn, struct bdev_nvme_attach *a);
/* Whether the key that a parameter psk names can be used by connections of that transport, or none is named (NULL);
 * false after answering why not. */
bool bdev_nvme_rpc_check_psk(struct rpc_request *req, const char *trtype, const char *psk);
/* Appends the calls that start the discovery services again. */
void bdev_nvme_rpc_write_discovery(json_t *methods);
/* Values of multipath_opts and of bdev_nvme_set_multipath_policy. */
extern const struct rpc_enum bdev_nvme_rpc_policies[], bdev_nvme_rpc_selectors[];
/* Appends a call for each bdev whose policy differs from that of its controller's attach call. */
void bdev_nvme_rpc_write_policies(json_t *methods);
/* The object multipath_opts, all of whose members are optional. */
struct bdev_nvme_rpc_multipath_opts {
	int policy, selector;
	uint32_t min_io;
	bool policy_given, selector_given, min_io_given;
};
extern const struct rpc_param bdev_nvme_rpc_multipath_opts_params[];
/* Fills in the defaults. */
void bdev_nvme_rpc_multipath_opts_default(struct bdev_nvme_rpc_multipath_opts *m,
					  const struct bdev_nvme_policy *policy);
/* Adds multipath_opts to params. */
void bdev_nvme_rpc_add_multipath_opts(json_t *params, const struct bdev_nvme_policy *policy);
/* Makes a policy of it; whether a member was given. */
bool bdev_nvme_rpc_multipath_opts_decode(const struct bdev_nvme_rpc_multipath_opts *m, struct bdev_nvme_policy *policy);
/* Answers req (struct rpc_request *) with true, or with the error. A bdev_nvme_done_cb. */
void bdev_nvme_rpc_answer(void *req, int rc, const char *error);
/* Appends the call that sets the options. */
void bdev_nvme_rpc_write_options(json_t *methods);

#endif
