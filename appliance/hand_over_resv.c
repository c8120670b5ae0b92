/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/hand_over_resv.h"

#include <errno.h>
#include <string.h>

#include "bdev/module.h"
#include "nvmf/resv_kept.h"

#define UUID_TEXT 37 /* with the NUL */

static int resv_export_one(void *list, const struct nvmf_resv_kept *k)
{
	char text[NVMF_RESV_FILE_MAX], uuid[UUID_TEXT];
	size_t len = nvmf_resv_file_encode(k->state, k->uuid, text);

	bdev_uuid_format(k->uuid, uuid);
	json_t *o = json_pack("{s:s,s:s,s:I,s:s,s:I,s:s%}", "tgt_name", k->tgt_name, "nqn", k->nqn, "nsid",
			      (json_int_t)k->nsid, "uuid", uuid, "generation", (json_int_t)k->state->generation, "text",
			      text, len);
	return o != NULL && json_array_append_new(list, o) == 0 ? 0 : -ENOMEM;
}

json_t *hand_over_resv_export(void)
{
	json_t *list = json_array();

	if (list != NULL && nvmf_resv_kept_for_each(resv_export_one, list) != 0) {
		json_decref(list);
		list = NULL;
	}
	return list;
}

static int resv_import_one(const json_t *o)
{
	const char *uuid = json_string_value(json_object_get(o, "uuid"));
	const json_t *text = json_object_get(o, "text");
	json_int_t nsid = json_integer_value(json_object_get(o, "nsid"));
	json_int_t generation = json_integer_value(json_object_get(o, "generation"));
	struct nvmf_resv state;
	struct nvmf_resv_kept k = {.tgt_name = json_string_value(json_object_get(o, "tgt_name")),
				   .nqn = json_string_value(json_object_get(o, "nqn")),
				   .state = &state};
	unsigned line;

	if (k.tgt_name == NULL || k.nqn == NULL || uuid == NULL || !json_is_string(text) || nsid < 1 ||
	    nsid > UINT32_MAX || generation < 0 || generation > UINT32_MAX || bdev_uuid_parse(uuid, k.uuid) != 0) {
		return -EBADMSG;
	}
	if (nvmf_resv_file_decode(json_string_value(text), json_string_length(text), k.uuid, &state, &line) != 0) {
		return -EBADMSG;
	}
	k.nsid = (uint32_t)nsid;
	state.generation = (uint32_t)generation;
	return nvmf_resv_kept_add(&k);
}

int hand_over_resv_import(const json_t *list)
{
	const json_t *o;
	size_t i;
	int rc = list == NULL || json_is_array(list) ? 0 : -EBADMSG;

	json_array_foreach (list, i, o) {
		rc = rc == 0 ? resv_import_one(o) : rc;
	}
	if (rc != 0) {
		nvmf_resv_kept_clear();
	}
	return rc;
}
