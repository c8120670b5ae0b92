/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/known/known.h"

#include <string.h>

json_t *rpc_known_methods(void)
{
	return json_loadb((const char *)rpc_known_text, rpc_known_size, 0, NULL);
}

static int rpc_known_is(const json_t *description, const char *key, const char *name)
{
	const char *text = json_string_value(json_object_get(description, key));

	return text != NULL && strcmp(text, name) == 0;
}

json_t *rpc_known_method(const char *name)
{
	json_t *all = rpc_known_methods(), *o, *found = NULL;
	size_t i;

	json_array_foreach (all, i, o) {
		if (rpc_known_is(o, "name", name) || rpc_known_is(o, "alias", name)) {
			found = json_pack("[O]", o);
			break;
		}
	}
	json_decref(all);
	return found;
}
