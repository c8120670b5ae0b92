/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of bdev_nvme methods share. Control thread. */
#ifndef RPC_BDEV_NVME_RPC_H
#define RPC_BDEV_NVME_RPC_H

#include "bdev_modules/nvme/bdev_nvme.h"
#include "rpc/rpc.h"

/* The controller, or NULL after answering that there is none. */
struct bdev_nvme *bdev_nvme_rpc_find(struct rpc_request *req, const char *name);
json_t *bdev_nvme_rpc_trid_json(const struct nvme_trid *t);
/* The shape of what it makes, for RPC_METHOD's .result. */
#define RPC_BDEV_NVME_TRID_SHAPE "{trtype: string, adrfam?: string, traddr: string, trsvcid?: string, subnqn?: string}"
/* Decodes what names a discovery controller, or answers what is wrong with it. */
bool bdev_nvme_rpc_decode_discovery(struct rpc_request *req, const char *trtype, const char *traddr, const char *adrfam,
				    const char *trsvcid, const char *hostnqn, struct bdev_nvme_attach *a);
void bdev_nvme_rpc_write_discovery(json_t *methods);
/* multipath_opts and bdev_nvme_set_multipath_policy. */
extern const struct rpc_enum bdev_nvme_rpc_policies[], bdev_nvme_rpc_selectors[];
void bdev_nvme_rpc_write_policies(json_t *methods);
/* multipath_opts; an object without any of them says nothing. */
struct bdev_nvme_rpc_multipath_opts {
	int policy, selector;
	uint32_t min_io;
	bool policy_given, selector_given, min_io_given;
};
extern const struct rpc_param bdev_nvme_rpc_multipath_opts_params[];
void bdev_nvme_rpc_multipath_opts_default(struct bdev_nvme_rpc_multipath_opts *m,
					  const struct bdev_nvme_policy *policy);
/* Adds multipath_opts to params. */
void bdev_nvme_rpc_add_multipath_opts(json_t *params, const struct bdev_nvme_policy *policy);
/* Whether anything was given. */
bool bdev_nvme_rpc_multipath_opts_decode(const struct bdev_nvme_rpc_multipath_opts *m, struct bdev_nvme_policy *policy);
/* Answers true, or the error. */
void bdev_nvme_rpc_answer(void *req, int rc, const char *error);
void bdev_nvme_rpc_write_options(json_t *methods);

#endif
