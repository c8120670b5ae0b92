/* SPDX-License-Identifier: BSD-3-Clause */
/* Who uses what: hosts, subsystems, namespaces, bdevs and what these stand on; and the commands under way. */
#include <stdlib.h>
#include <string.h>

#include "appliance/console_api.h"
#include "bdev/bdev.h"
#include "env_dpdk/env.h"
#include "nvmf/nvmf.h"
#include "rpc/rpc.h"

#define MAX_CONTROLLERS 256 /* of a subsystem */
#define MAX_INFLIGHT    256
#define MAX_DEPTH       4 /* of a bdev's description */

/* ---- Subsystems ---- */

static json_t *topology_controllers(const struct nvmf_subsystem *s)
{
	json_t *list = json_array();
	struct nvmf_ctrlr_info info;
	unsigned n = 0;

	for (struct nvmf_ctrlr *c = NULL; n < MAX_CONTROLLERS && (c = nvmf_ctrlr_next(s, c)) != NULL; n++) {
		json_t *o = json_object();
		nvmf_ctrlr_get_info(c, &info);
		json_object_set_new(o, "host", rpc_string(info.hostnqn));
		json_object_set_new(o, "cntlid", json_integer(info.cntlid));
		json_object_set_new(o, "state", rpc_string(nvmf_ctrlr_state_name(info.state)));
		json_object_set_new(o, "queues", json_integer(info.num_io_qpairs));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *topology_namespaces(const struct nvmf_subsystem *s)
{
	json_t *list = json_array();

	for (struct nvmf_ns *ns = NULL; (ns = nvmf_ns_next(s, ns)) != NULL;) {
		json_t *o = json_object();
		json_object_set_new(o, "nsid", json_integer(nvmf_ns_nsid(ns)));
		json_object_set_new(o, "bdev", rpc_string(nvmf_ns_bdev_name(ns)));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *topology_listeners(const struct nvmf_subsystem *s)
{
	json_t *list = json_array();

	for (struct nvmf_listener *l = NULL; (l = nvmf_listener_next(s, l)) != NULL;) {
		const struct nvmf_address *a = nvmf_listener_address(l);
		json_array_append_new(list, rpc_string_format("%s %s:%s", a->trtype, a->traddr, a->trsvcid));
	}
	return list;
}

static json_t *topology_subsystems(void)
{
	json_t *list = json_array();

	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		for (struct nvmf_subsystem *s = NULL; (s = nvmf_subsystem_next(tgt, s)) != NULL;) {
			if (nvmf_subsystem_subtype(s) != NVMF_SUBTYPE_NVME) {
				continue;
			}
			json_t *o = json_object();
			json_object_set_new(o, "nqn", rpc_string(nvmf_subsystem_nqn(s)));
			json_object_set_new(o, "state",
					    rpc_string(nvmf_subsystem_state_name(nvmf_subsystem_get_state(s))));
			json_object_set_new(o, "listeners", topology_listeners(s));
			json_object_set_new(o, "controllers", topology_controllers(s));
			json_object_set_new(o, "namespaces", topology_namespaces(s));
			json_array_append_new(list, o);
		}
	}
	return list;
}

/* ---- Bdevs ---- */

/* The members of a module's description that name a bdev. Elsewhere the name of a bdev may be that of a volume or a
 * controller, too. */
static bool topology_is_base_key(const char *key)
{
	static const char *const keys[] = {"base_bdev", "base_bdev_name", "external_snapshot_name"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strcmp(key, keys[i]) == 0) {
			return true;
		}
	}
	return false;
}

/* Adds to bases the bdevs that a module's description of b names as what b stands on. */
static void topology_find_bases(json_t *bases, const struct bdev *b, json_t *value, unsigned depth)
{
	const char *key;
	json_t *member;
	size_t i;

	if (json_is_object(value) && depth < MAX_DEPTH) {
		json_object_foreach (value, key, member) {
			struct bdev *base = json_is_string(member) && topology_is_base_key(key)
						    ? bdev_find(json_string_value(member))
						    : NULL;
			if (base != NULL && base != b) {
				json_array_append_new(bases, rpc_string(bdev_name(base)));
			}
			topology_find_bases(bases, b, member, depth + 1);
		}
	} else if (json_is_array(value) && depth < MAX_DEPTH) {
		json_array_foreach (value, i, member) {
			topology_find_bases(bases, b, member, depth + 1);
		}
	}
}

static json_t *topology_bases(const struct bdev *b)
{
	json_t *bases = json_array(), *description = json_object();

	bdev_dump_info(b, description);
	topology_find_bases(bases, b, description, 0);
	json_decref(description);
	return bases;
}

static json_t *topology_bdevs(void)
{
	json_t *list = json_array();

	for (struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		json_t *o = json_object();
		const char *alias = bdev_alias_next(b, NULL), *owner = NULL;
		bdev_get_claim(b, &owner);
		json_object_set_new(o, "name", rpc_string(bdev_name(b)));
		json_object_set_new(o, "product", rpc_string(bdev_product_name(b)));
		json_object_set_new(o, "bytes", rpc_uint(bdev_num_blocks(b) * bdev_data_block_size(b)));
		json_object_set_new(o, "bases", topology_bases(b));
		if (alias != NULL) {
			json_object_set_new(o, "alias", rpc_string(alias));
		}
		if (owner != NULL) {
			json_object_set_new(o, "claimed_by", rpc_string(owner));
		}
		json_array_append_new(list, o);
	}
	return list;
}

json_t *console_topology(void)
{
	json_t *o = json_object();

	json_object_set_new(o, "subsystems", topology_subsystems());
	json_object_set_new(o, "bdevs", topology_bdevs());
	return o;
}

/* ---- Commands under way ---- */

static int inflight_compare(const void *a, const void *b)
{
	const struct nvmf_inflight *x = a, *y = b;

	return x->age_ticks < y->age_ticks ? 1 : x->age_ticks > y->age_ticks ? -1 : 0;
}

/* At most MAX_INFLIGHT. Looks for old ones first: if there are more, young ones are missing. found: room for as many.
 */
static size_t inflight_get_oldest(struct nvmf_tgt *tgt, struct nvmf_inflight *list, struct nvmf_inflight *found)
{
	static const uint64_t ages_us[] = {10000000, 1000000, 100000, 10000, 1000, 0};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(ages_us) / sizeof(ages_us[0]) && n < MAX_INFLIGHT / 4; i++) {
		size_t n_found = nvmf_tgt_get_late(tgt, env_us_to_ticks(ages_us[i]), MAX_INFLIGHT, found);
		n = console_inflight_merge(list, n, found, n_found, MAX_INFLIGHT);
	}
	qsort(list, n, sizeof(*list), inflight_compare);
	return n;
}

static json_t *inflight_describe(const struct nvmf_inflight *f)
{
	json_t *o = json_object();

	json_object_set_new(o, "host", rpc_string(f->hostnqn));
	json_object_set_new(o, "subsystem", rpc_string(f->subnqn));
	json_object_set_new(o, "qid", json_integer(f->qid));
	json_object_set_new(o, "cid", json_integer(f->cid));
	json_object_set_new(o, "command", rpc_string(f->command));
	json_object_set_new(o, "nsid", rpc_uint(f->nsid));
	json_object_set_new(o, "lba", rpc_uint(f->slba));
	json_object_set_new(o, "blocks", rpc_uint(f->num_blocks));
	json_object_set_new(o, "bdev", rpc_string(f->bdev));
	json_object_set_new(o, "state", rpc_string(f->state));
	json_object_set_new(o, "waits_for", rpc_string(f->waits_for));
	json_object_set_new(o, "age_us", rpc_uint(env_ticks_to_ns(f->age_ticks) / 1000));
	json_object_set_new(o, "state_us", rpc_uint(env_ticks_to_ns(f->state_age_ticks) / 1000));
	return o;
}

json_t *console_inflight(void)
{
	struct nvmf_tgt *tgt = nvmf_tgt_next(NULL);
	struct nvmf_inflight *found = calloc(2 * MAX_INFLIGHT, sizeof(*found));
	json_t *o = json_object(), *list = json_array();
	/* The first target is the default one; only tests make others. */
	size_t n = tgt != NULL && found != NULL ? inflight_get_oldest(tgt, found, found + MAX_INFLIGHT) : 0;

	for (size_t i = 0; i < n; i++) {
		json_array_append_new(list, inflight_describe(&found[i]));
	}
	free(found);
	json_object_set_new(o, "commands", list);
	json_object_set_new(o, "max", json_integer(MAX_INFLIGHT));
	return o;
}
