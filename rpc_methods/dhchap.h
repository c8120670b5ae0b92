/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of hash functions and DH groups as clients give them: ["sha256", "sha384"], ["null", "ffdhe2048"]. */
#ifndef RPC_DHCHAP_RPC_H
#define RPC_DHCHAP_RPC_H

#include "dhchap/dhchap.h"
#include "rpc/rpc.h"

#define RPC_DHCHAP_DIGESTS_HELP "hash functions for DH-HMAC-CHAP: sha256, sha384, sha512; by default all"
#define RPC_DHCHAP_DHGROUPS_HELP                                                                                       \
	"groups for DH-HMAC-CHAP: null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144, ffdhe8192; by default "            \
	"all"

/* False after answering what is wrong with parameter "dhchap_digests" or "dhchap_dhgroups". given NULL: set stays. */
bool rpc_dhchap_digests(struct rpc_request *req, const json_t *given, unsigned *set);
bool rpc_dhchap_dhgroups(struct rpc_request *req, const json_t *given, unsigned *set);
json_t *rpc_dhchap_digests_json(unsigned set);
json_t *rpc_dhchap_dhgroups_json(unsigned set);

#endif
