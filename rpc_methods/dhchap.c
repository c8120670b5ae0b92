/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc_methods/dhchap.h"

static bool dhchap_names_decode(struct rpc_request *req, const char *what, const json_t *given,
				int (*by_name)(const char *), const char *allowed, unsigned *set)
{
	unsigned found = 0;
	size_t i;
	json_t *one;

	if (given == NULL) {
		return true;
	}
	json_array_foreach (given, i, one) {
		const char *name = json_is_string(one) ? json_string_value(one) : "";
		int id = by_name(name);
		if (id < 0) {
			rpc_wrong_element(req, what, i, one, "are %s", allowed);
			return false;
		}
		found |= 1u << id;
	}
	if (found == 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"%s\" is empty: allowed are one or more of %s",
			  what, allowed);
		return false;
	}
	*set = found;
	return true;
}

bool rpc_dhchap_digests(struct rpc_request *req, const json_t *given, unsigned *set)
{
	return dhchap_names_decode(req, "dhchap_digests", given, dhchap_hash_by_name, "sha256, sha384, sha512", set);
}

bool rpc_dhchap_dhgroups(struct rpc_request *req, const json_t *given, unsigned *set)
{
	return dhchap_names_decode(req, "dhchap_dhgroups", given, dhchap_group_by_name,
				   "null, ffdhe2048, ffdhe3072, ffdhe4096, ffdhe6144, ffdhe8192", set);
}

static json_t *dhchap_names_json(unsigned set, const char *(*name)(unsigned id))
{
	json_t *list = json_array();

	for (unsigned id = 0; id < 32; id++) {
		if (set >> id & 1) {
			json_array_append_new(list, json_string(name(id)));
		}
	}
	return list;
}

json_t *rpc_dhchap_digests_json(unsigned set)
{
	return dhchap_names_json(set, dhchap_hash_name);
}

json_t *rpc_dhchap_dhgroups_json(unsigned set)
{
	return dhchap_names_json(set, dhchap_group_name);
}
