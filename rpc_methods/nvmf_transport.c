/* SPDX-License-Identifier: BSD-3-Clause */
/* Transports. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvmf/transport_options.h"
#include "rpc_methods/nvmf.h"
#include "util/compiler.h"

/* Parameters that are options of transports: each has one place, whichever transport it belongs to. The table of
 * parameters is made of the transports' tables before main(). */
#define MAX_OPTIONS 64
struct create_transport {
	char *trtype, *tgt_name;
	struct {
		uint64_t value[MAX_OPTIONS]; /* of which the first bytes are the option's C type */
		bool given[MAX_OPTIONS];
	} options;
};

/* What files that other programs saved may contain for a transport that does not have it: taken, and not looked at. */
static const struct {
	const char *name;
	enum rpc_type type;
	size_t size;
} foreign_options[] = {
	{"c2h_success", RPC_BOOL, sizeof(bool)},           {"sock_priority", RPC_UINT32, sizeof(uint32_t)},
	{"control_msg_num", RPC_UINT16, sizeof(uint16_t)}, {"no_srq", RPC_BOOL, sizeof(bool)},
	{"no_wr_batching", RPC_BOOL, sizeof(bool)},
};

static const struct rpc_param fixed_params[] = {
	RPC_PARAM(struct create_transport, trtype, RPC_STRING, RPC_REQUIRED, ""),
	RPC_PARAM(struct create_transport, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
};

static const struct rpc_param last_params[] = {
	RPC_NO_EFFECT(disable_mappable_bar0, RPC_BOOL, "false", "there is no vfio-user"),
	RPC_NO_EFFECT(disable_adaptive_irq, RPC_BOOL, "false", "there is no vfio-user"),
	RPC_NO_EFFECT(disable_shadow_doorbells, RPC_BOOL, "false", "there is no vfio-user"),
	RPC_NO_EFFECT(disable_command_passthru, RPC_BOOL, "false",
		      "which commands are passed on is up to each namespace, by default none"),
	RPC_PARAM_END,
};

static struct rpc_param create_transport_params[ARRAY_SIZE(fixed_params) + MAX_OPTIONS + ARRAY_SIZE(last_params)];
static unsigned n_options; /* of them; they begin behind fixed_params */

/* The names of the transports linked in, separated by commas. */
static void list_types(char *text, size_t size)
{
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = 0; nvmf_transport_type(i) != NULL && len < size; i++) {
		len += (size_t)snprintf(text + len, size - len, "%s%s", i != 0 ? ", " : "", nvmf_transport_type(i));
	}
}

/* The number of the option of that name, or n_options: there is none. */
static unsigned find_option_param(const char *name)
{
	unsigned n = 0;

	while (n < n_options && strcmp(create_transport_params[ARRAY_SIZE(fixed_params) + n].name, name) != 0) {
		n++;
	}
	return n;
}

static void add_option_param(const char *name, enum rpc_type type, size_t size, const char *help)
{
	unsigned n = n_options++;

	if (n == MAX_OPTIONS) {
		fprintf(stderr, "nvmf_create_transport: the transports have more than %d options\n", MAX_OPTIONS);
		abort(); /* before main(): whoever adds a transport sees it at once */
	}
	create_transport_params[ARRAY_SIZE(fixed_params) + n] = (struct rpc_param){
		.name = name,
		.type = type,
		.offset = offsetof(struct create_transport, options.value) + n * sizeof(uint64_t),
		.size = size,
		.required = RPC_OPTIONAL,
		.help = help,
		.given_offset = offsetof(struct create_transport, options.given) + n * sizeof(bool),
	};
}

static const struct {
	enum rpc_type type;
	size_t size;
} option_types[NVMF_OPTION_TYPES] = {
	[NVMF_OPTION_BOOL] = {RPC_BOOL, sizeof(bool)},         [NVMF_OPTION_UINT16] = {RPC_UINT16, sizeof(uint16_t)},
	[NVMF_OPTION_UINT32] = {RPC_UINT32, sizeof(uint32_t)}, [NVMF_OPTION_INT32] = {RPC_INT32, sizeof(int32_t)},
	[NVMF_OPTION_BITS] = {RPC_ARRAY, sizeof(json_t *)},
};

/* trtype: whose own it is; NULL: a common one. The texts are made once and stay. */
static void add_transport_option(const struct nvmf_transport_option *o, const char *trtype)
{
	unsigned n = find_option_param(o->name);
	struct rpc_param *known = &create_transport_params[ARRAY_SIZE(fixed_params) + n];
	char *help = NULL;

	if (trtype == NULL) {
		add_option_param(o->name, option_types[o->type].type, option_types[o->type].size, o->help);
	} else if (n == n_options) {
		int len = asprintf(&help, "%s: %s", trtype, o->help);
		add_option_param(o->name, option_types[o->type].type, option_types[o->type].size,
				 len < 0 ? o->help : help);
	} else {
		if (known->type != option_types[o->type].type) {
			fprintf(stderr, "nvmf_create_transport: two transports declare %s with different types\n",
				o->name);
			abort();
		}
		known->help = asprintf(&help, "%s; %s: %s", known->help, trtype, o->help) < 0 ? known->help : help;
	}
	known->own |= o->own;
	known->bytes |= o->bytes;
}

/* After all transports have registered (NVMF_TRANSPORT() has an earlier priority). */
__attribute__((constructor)) static void make_create_transport_params(void)
{
	static char types[256];
	const struct nvmf_transport_option *o;
	const char *type;

	list_types(types, sizeof(types));
	memcpy(create_transport_params, fixed_params, sizeof(fixed_params));
	create_transport_params[0].help = types;
	for (unsigned n = 0; (o = nvmf_transport_common_option(n)) != NULL; n++) {
		add_transport_option(o, NULL);
	}
	for (unsigned t = 0; (type = nvmf_transport_type(t)) != NULL; t++) {
		for (unsigned n = 0; (o = nvmf_transport_own_option(type, n)) != NULL; n++) {
			add_transport_option(o, type);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(foreign_options); i++) {
		if (find_option_param(foreign_options[i].name) == n_options) {
			add_option_param(foreign_options[i].name, foreign_options[i].type, foreign_options[i].size,
					 "of another transport: not looked at");
		}
	}
	memcpy(&create_transport_params[ARRAY_SIZE(fixed_params) + n_options], last_params, sizeof(last_params));
}

static bool is_foreign_option(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(foreign_options); i++) {
		if (strcmp(foreign_options[i].name, name) == 0) {
			return true;
		}
	}
	return false;
}

/* Of options with a number. */
static int64_t option_param_value(const struct create_transport *p, unsigned n)
{
	const void *at = &p->options.value[n];

	switch (create_transport_params[ARRAY_SIZE(fixed_params) + n].type) {
	case RPC_BOOL:
		return *(const bool *)at;
	case RPC_UINT16:
		return *(const uint16_t *)at;
	case RPC_UINT32:
		return *(const uint32_t *)at;
	default:
		return *(const int32_t *)at;
	}
}

static const struct nvmf_transport_option *find_transport_option(const char *trtype, const char *name)
{
	const struct nvmf_transport_option *o;

	for (unsigned n = 0; (o = nvmf_transport_option(trtype, n)) != NULL; n++) {
		if (strcmp(o->name, name) == 0) {
			break;
		}
	}
	return o;
}

/* False: one of the list's names is none of the option's, which has been answered. */
static bool list_bits(struct rpc_request *req, const struct create_transport *p, unsigned n,
		      const struct nvmf_transport_option *o, uint16_t *bits)
{
	const json_t *list = *(json_t *const *)(const void *)&p->options.value[n], *name;
	char known[256];
	size_t i;

	*bits = 0;
	json_array_foreach (list, i, name) {
		uint16_t bit = nvmf_transport_option_bit(o, json_is_string(name) ? json_string_value(name) : "");
		if (bit == 0) {
			rpc_wrong_element(req, o->name, i, name, "are %s",
					  nvmf_transport_option_bit_names(o, known, sizeof(known)));
			return false;
		}
		*bits |= bit;
	}
	return true;
}

/* The lists that were given, before it is known for which transport. False: as list_bits(). */
static bool check_lists(struct rpc_request *req, const struct create_transport *p)
{
	const struct nvmf_transport_option *o;
	uint16_t bits;

	for (unsigned i = 0; (o = nvmf_transport_common_option(i)) != NULL; i++) {
		unsigned n = find_option_param(o->name);
		if (o->type == NVMF_OPTION_BITS && p->options.given[n] && !list_bits(req, p, n, o, &bits)) {
			return false;
		}
	}
	return true;
}

/* False: one was given that this transport does not have, or a wrong list, which has been answered. */
static bool take_given(struct rpc_request *req, const struct create_transport *p, struct nvmf_transport_opts *opts)
{
	if (p->options.given[find_option_param("buf_cache_size")]) {
		opts->iobuf_small_cache_size = opts->iobuf_large_cache_size =
			(uint32_t)option_param_value(p, find_option_param("buf_cache_size"));
	}
	for (unsigned n = 0; n < n_options; n++) {
		const char *name = create_transport_params[ARRAY_SIZE(fixed_params) + n].name;
		const struct nvmf_transport_option *o =
			p->options.given[n] ? find_transport_option(p->trtype, name) : NULL;

		if (o != NULL && o->type == NVMF_OPTION_BITS) {
			uint16_t bits;
			if (!list_bits(req, p, n, o, &bits)) {
				return false;
			}
			nvmf_transport_option_set(opts, o, bits);
		} else if (o != NULL) {
			nvmf_transport_option_set(opts, o, option_param_value(p, n));
		} else if (p->options.given[n] && !is_foreign_option(name)) {
			rpc_error(req, RPC_ERROR_INVALID_PARAMS,
				  "parameter \"%s\" is an option of another transport: transport %s does not have it",
				  name, p->trtype);
			return false;
		}
	}
	return true;
}

static void answer_unknown_type(struct rpc_request *req, const char *trtype)
{
	char known[256];

	list_types(known, sizeof(known));
	rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"trtype\" is \"%s\": this program has %s", trtype,
		  known[0] != 0 ? known : "no transport");
}

static void rpc_create_transport(struct rpc_request *req, void *params)
{
	const struct create_transport *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt_to_change(req, p->tgt_name);
	struct nvmf_transport_opts opts;
	char why[NVMF_ERROR_MAX] = "";

	if (tgt == NULL || !check_lists(req, p)) {
		return;
	}
	if (nvmf_transport_opts_init(p->trtype, &opts) != 0) {
		answer_unknown_type(req, p->trtype);
		return;
	}
	if (!take_given(req, p, &opts)) {
		return;
	}
	if (nvmf_transport_opts_check(p->trtype, &opts, why) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter %s", why);
		return;
	}
	int rc = nvmf_transport_create(tgt, p->trtype, &opts, why);
	if (rc == -EEXIST) { /* in these words: clients that make one in any case look for them */
		rpc_error(req, rc, "Transport type '%s' already exists", p->trtype);
		return;
	}
	if (rc != 0) {
		rpc_error(req, rc, "transport %s cannot be made: %s", p->trtype, why);
		return;
	}
	rpc_reply_true(req);
}
RPC_METHOD("nvmf_create_transport", rpc_create_transport, struct create_transport, create_transport_params, RPC_RUNTIME,
	   "Make a transport, so that subsystems can listen", .result = "true")

struct get_transports {
	char *tgt_name, *trtype;
};

static const struct rpc_param get_transports_params[] = {
	RPC_PARAM(struct get_transports, tgt_name, RPC_STRING, RPC_OPTIONAL,
		  "name of the target; the default one if not given"),
	RPC_PARAM(struct get_transports, trtype, RPC_STRING, RPC_OPTIONAL, "only this one"),
	RPC_PARAM_END,
};

static json_t *option_bits_json(const struct nvmf_transport_option *o, int64_t value)
{
	json_t *list = json_array();

	for (const struct nvmf_option_bit *b = o->bits; b->name != NULL; b++) {
		if ((value & b->bit) != 0) {
			json_array_append_new(list, rpc_string(b->name));
		}
	}
	return list;
}

static json_t *option_json(const struct nvmf_transport_option *o, int64_t value)
{
	switch (o->type) {
	case NVMF_OPTION_BOOL:
		return json_boolean(value != 0);
	case NVMF_OPTION_BITS:
		return option_bits_json(o, value);
	default:
		return json_integer(value);
	}
}

/* Lists without names are left out: SPDK's targets do not tell them either. */
json_t *rpc_nvmf_transport_json(const struct nvmf_transport *t)
{
	const struct nvmf_transport_opts *opts = nvmf_transport_get_opts(t);
	const struct nvmf_transport_option *option;
	json_t *o = json_object();

	json_object_set_new(o, "trtype", rpc_string(nvmf_transport_name(t)));
	for (unsigned n = 0; (option = nvmf_transport_option(nvmf_transport_name(t), n)) != NULL; n++) {
		int64_t value = nvmf_transport_option_get(opts, option);

		if (option->type != NVMF_OPTION_BITS || value != 0) {
			json_object_set_new(o, option->name, option_json(option, value));
		}
	}
	return o;
}

static void rpc_get_transports(struct rpc_request *req, void *params)
{
	const struct get_transports *p = params;
	struct nvmf_tgt *tgt = rpc_nvmf_tgt(req, p->tgt_name);
	json_t *list;

	if (tgt == NULL) {
		return;
	}
	if (p->trtype != NULL && nvmf_transport_find(tgt, p->trtype) == NULL) {
		rpc_error(req, -ENODEV, "parameter \"trtype\" is \"%s\": the target has no such transport", p->trtype);
		return;
	}
	list = json_array();
	for (struct nvmf_transport *t = nvmf_transport_next(tgt, NULL); t != NULL; t = nvmf_transport_next(tgt, t)) {
		if (p->trtype == NULL || nvmf_transport_find(tgt, p->trtype) == t) {
			json_t *o = rpc_nvmf_transport_json(t);
			json_object_set_new(o, "disable_command_passthru", json_false()); /* as it may be set */
			json_array_append_new(list, o);
		}
	}
	rpc_reply(req, list);
}
RPC_METHOD("nvmf_get_transports", rpc_get_transports, struct get_transports, get_transports_params, RPC_RUNTIME,
	   "List a target's transports and their options",
	   .result = "[{trtype: string, max_queue_depth: int, max_io_qpairs_per_ctrlr: int, "
		     "in_capsule_data_size: int, max_io_size: int, io_unit_size: int, max_aq_depth: int, "
		     "num_shared_buffers: int, buf_cache_size: int, ...}]")
