/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of hash functions and DH groups in requests and answers: ["sha256", "sha384"], ["null", "ffdhe2048"]. A set has
 * bit 1 << id for each member. Control thread. */
#ifndef RPC_DHCHAP_RPC_H
#define RPC_DHCHAP_RPC_H

#include "dhchap/dhchap.h"
#include "rpc/rpc.h"

#define RPC_DHCHAP_DIGESTS_HELP "hash functions for DH-HMAC-CHAP: sha256, sha384, sha512; by default all"
#define RPC_DHCHAP_DHGROUPS_HELP                                                                                       \
	"groups for DH-HMAC-CHAP: null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144, ffdhe8192; by default "            \
	"all"

/* Decodes the parameter "dhchap_digests" into *set, which stays as it is if given is NULL. False: the request has been
 * answered with what is wrong. */
bool rpc_dhchap_digests(struct rpc_request *req, const json_t *given, unsigned *set);
/* The same for "dhchap_dhgroups". */
bool rpc_dhchap_dhgroups(struct rpc_request *req, const json_t *given, unsigned *set);
/* The names of a set of hash functions. */
json_t *rpc_dhchap_digests_json(unsigned set);
/* The names of a set of DH groups. */
json_t *rpc_dhchap_dhgroups_json(unsigned set);

#endif
