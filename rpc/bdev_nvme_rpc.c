/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_nvme_*: options of NVMe controllers; attaching, detaching and resetting them; their configuration. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "rpc/bdev_nvme_rpc.h"
#include "rpc/dhchap_rpc.h"

struct bdev_nvme *rpc_bdev_nvme_find(struct rpc_request *req, const char *name)
{
	struct bdev_nvme *c = bdev_nvme_find(name);

	if (c == NULL) {
		rpc_error(req, -ENODEV, "name: there is no NVMe controller '%s'", name);
	}
	return c;
}

static void answer(void *req, int rc, const char *error)
{
	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", error);
	}
}

/* --- Options --- */

static const struct rpc_enum timeout_actions[] = {
	{"none", BDEV_NVME_TIMEOUT_NONE}, {"reset", BDEV_NVME_TIMEOUT_RESET}, {"abort", BDEV_NVME_TIMEOUT_ABORT}, {NULL, 0}};

struct set_options {
	int action_on_timeout;
	uint64_t timeout_us, timeout_admin_us;
	uint32_t keep_alive_timeout_ms;
	int32_t bdev_retry_count, ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec, fast_io_fail_timeout_sec;
	json_t *dhchap_digests, *dhchap_dhgroups;
};

#define OPTION(field_, type_, help_, ...) RPC_PARAM(struct set_options, field_, type_, RPC_OPTIONAL, help_, ##__VA_ARGS__)
static const struct rpc_param set_options_params[] = {
	OPTION(action_on_timeout, RPC_ENUM, "what to do with I/O that takes too long (default abort, and reset if that does not help)",
	       .enums = timeout_actions),
	OPTION(timeout_us, RPC_UINT64, "how long I/O may take, looked at once a second (default 30000000; 0: any time)", .max = UINT64_C(1) << 42),
	OPTION(timeout_admin_us, RPC_UINT64, "how long an admin command may take (default 0: 30 s)", .max = UINT64_C(1) << 42),
	OPTION(keep_alive_timeout_ms, RPC_UINT32, "keep-alive timeout of controllers over fabrics (default 10000; 0: none)"),
	OPTION(bdev_retry_count, RPC_INT32, "how often I/O is tried again whose status allows it (default 3; -1: no limit)"),
	OPTION(ctrlr_loss_timeout_sec, RPC_INT32, "default for bdev_nvme_attach_controller (0)"),
	OPTION(reconnect_delay_sec, RPC_UINT32, "default for bdev_nvme_attach_controller (0)"),
	OPTION(fast_io_fail_timeout_sec, RPC_UINT32, "default for bdev_nvme_attach_controller (0)"),
	OPTION(dhchap_digests, RPC_ARRAY, RPC_DHCHAP_DIGESTS_HELP),
	OPTION(dhchap_dhgroups, RPC_ARRAY, RPC_DHCHAP_DHGROUPS_HELP),
	RPC_PARAM_END,
};

static void set_options_defaults(void *params)
{
	struct set_options *p = params;
	struct bdev_nvme_options o;

	bdev_nvme_get_options(&o);
	*p = (struct set_options){o.action_on_timeout, o.timeout_us, o.timeout_admin_us, o.keep_alive_timeout_ms, o.bdev_retry_count,
				  o.ctrlr_loss_timeout_sec, o.reconnect_delay_sec, o.fast_io_fail_timeout_sec, NULL, NULL};
}

static void rpc_bdev_nvme_set_options(struct rpc_request *req, void *params)
{
	const struct set_options *p = params;
	char error[BDEV_ERROR_MAX];
	struct bdev_nvme_options o = {
		.action_on_timeout = (enum bdev_nvme_timeout_action)p->action_on_timeout,
		.timeout_us = p->timeout_us,
		.timeout_admin_us = p->timeout_admin_us,
		.keep_alive_timeout_ms = p->keep_alive_timeout_ms,
		.bdev_retry_count = p->bdev_retry_count,
		.ctrlr_loss_timeout_sec = p->ctrlr_loss_timeout_sec,
		.reconnect_delay_sec = p->reconnect_delay_sec,
		.fast_io_fail_timeout_sec = p->fast_io_fail_timeout_sec,
	};
	struct bdev_nvme_options before;
	bdev_nvme_get_options(&before);
	o.dhchap_hashes = before.dhchap_hashes;
	o.dhchap_groups = before.dhchap_groups;
	if (rpc_dhchap_digests(req, p->dhchap_digests, &o.dhchap_hashes) && rpc_dhchap_dhgroups(req, p->dhchap_dhgroups, &o.dhchap_groups)) {
		answer(req, bdev_nvme_set_options(&o, error), error);
	}
}
RPC_METHOD("bdev_nvme_set_options", rpc_bdev_nvme_set_options, struct set_options, set_options_params, RPC_STARTUP | RPC_RUNTIME,
	   "Set options of the NVMe controllers that will be attached", .defaults = set_options_defaults)

/* --- Attach --- */

static const struct rpc_enum multipath_modes[] = {
	{"multipath", BDEV_NVME_MULTIPATH}, {"failover", BDEV_NVME_FAILOVER}, {"disable", BDEV_NVME_DISABLE}, {NULL, 0}};

struct multipath_opts {
	int policy, selector;
	uint32_t min_io;
};

static const struct rpc_param multipath_opts_object[] = {
	RPC_PARAM(struct multipath_opts, policy, RPC_ENUM, RPC_OPTIONAL, "active_passive (default) or active_active", .enums = rpc_bdev_nvme_policies),
	RPC_PARAM(struct multipath_opts, selector, RPC_ENUM, RPC_OPTIONAL, "active_active: round_robin (default) or queue_depth",
		  .enums = rpc_bdev_nvme_selectors),
	RPC_PARAM(struct multipath_opts, min_io, RPC_UINT32, RPC_OPTIONAL, "round_robin: I/Os in a row by the same path (default 1)"),
	RPC_PARAM_END,
};

struct attach {
	char *name, *trtype, *traddr, *adrfam, *trsvcid, *subnqn, *hostnqn;
	int multipath;
	struct multipath_opts multipath_opts;
	bool multipath_opts_given;
	uint64_t fabrics_connect_timeout_us;
	uint32_t num_io_queues;
	int32_t ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec, fast_io_fail_timeout_sec, max_bdevs;
	bool prchk_reftag, prchk_guard;
	char *dhchap_key, *dhchap_ctrlr_key;
};

#define ATTACH(field_, type_, required_, help_, ...) RPC_PARAM(struct attach, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param attach_params[] = {
	ATTACH(name, RPC_STRING, RPC_REQUIRED, "of the controller; its bdevs are called NAMEn1, NAMEn2 ... by namespace id"),
	ATTACH(trtype, RPC_STRING, RPC_REQUIRED, "RDMA or PCIe"),
	ATTACH(traddr, RPC_STRING, RPC_REQUIRED, "an IP address, or a PCI address"),
	ATTACH(adrfam, RPC_STRING, RPC_OPTIONAL, "IPv4 or IPv6 (default: as traddr looks)"),
	ATTACH(trsvcid, RPC_STRING, RPC_OPTIONAL, "port (default 4420)"),
	ATTACH(subnqn, RPC_STRING, RPC_OPTIONAL, "NQN of the subsystem; required over fabrics"),
	ATTACH(hostnqn, RPC_STRING, RPC_OPTIONAL, "NQN of this host (default: /etc/nvme/hostnqn, or one made from the machine id)"),
	ATTACH(multipath, RPC_ENUM, RPC_OPTIONAL,
	       "if there is a controller of that name: use both (default); use this address when the other does not answer; or refuse",
	       .enums = multipath_modes),
	ATTACH(multipath_opts, RPC_OBJECT, RPC_OPTIONAL, "how the I/O of its bdevs is spread over paths", .object = multipath_opts_object,
	       .given_offset = offsetof(struct attach, multipath_opts_given)),
	ATTACH(fabrics_connect_timeout_us, RPC_UINT64, RPC_OPTIONAL, "for one attempt to connect (default: the driver's)", .max = UINT64_C(1) << 42),
	ATTACH(num_io_queues, RPC_UINT32, RPC_OPTIONAL, "I/O queues to ask for; each thread with I/O needs one (default 128)"),
	ATTACH(ctrlr_loss_timeout_sec, RPC_INT32, RPC_OPTIONAL,
	       "how long to try to reconnect before the controller is detached; -1: for ever; 0: one attempt"),
	ATTACH(reconnect_delay_sec, RPC_UINT32, RPC_OPTIONAL, "between attempts to reconnect"),
	ATTACH(fast_io_fail_timeout_sec, RPC_UINT32, RPC_OPTIONAL, "how long I/O waits for a lost controller before it fails; 0: no limit"),
	ATTACH(max_bdevs, RPC_UINT32, RPC_OPTIONAL, "refuse a controller with more namespaces than this; 0: no limit (default 128)"),
	ATTACH(prchk_reftag, RPC_BOOL, RPC_OPTIONAL, "have the controller check reference tags, where blocks carry protection information"),
	ATTACH(prchk_guard, RPC_BOOL, RPC_OPTIONAL, "have the controller check guards, likewise"),
	ATTACH(dhchap_key, RPC_STRING, RPC_OPTIONAL, "name of a key of the keyring: proves to the controller who this host is"),
	ATTACH(dhchap_ctrlr_key, RPC_STRING, RPC_OPTIONAL, "name of a key of the keyring: the controller has to prove that it has it"),
	RPC_PARAM_END,
};

static void attach_defaults(void *params)
{
	struct attach *p = params;
	struct bdev_nvme_attach a;

	bdev_nvme_attach_default(&a);
	p->num_io_queues = a.num_io_queues;
	p->ctrlr_loss_timeout_sec = a.ctrlr_loss_timeout_sec;
	p->reconnect_delay_sec = a.reconnect_delay_sec;
	p->fast_io_fail_timeout_sec = a.fast_io_fail_timeout_sec;
	p->max_bdevs = 128;
	p->multipath_opts.min_io = 1;
}

/* Copies a string into its place, or answers that it does not fit. */
static bool put(struct rpc_request *req, const char *what, char *to, size_t size, const char *text)
{
	if (text != NULL && strlen(text) >= size) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s '%.100s...': has %zu bytes, at most %zu are allowed", what, text, strlen(text), size - 1);
		return false;
	}
	snprintf(to, size, "%s", text ? text : "");
	return true;
}

static bool decode_adrfam(struct rpc_request *req, struct nvme_trid *t, const char *adrfam)
{
	if (adrfam == NULL) {
		t->adrfam = strchr(t->traddr, ':') != NULL ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4;
	} else if (strcasecmp(adrfam, "ipv4") == 0) {
		t->adrfam = NVMF_ADDR_FAMILY_IP4;
	} else if (strcasecmp(adrfam, "ipv6") == 0) {
		t->adrfam = NVMF_ADDR_FAMILY_IP6;
	} else {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "adrfam '%s': must be IPv4 or IPv6", adrfam);
		return false;
	}
	return true;
}

static bool decode_trid(struct rpc_request *req, const struct attach *p, struct bdev_nvme_attach *a)
{
	struct nvme_trid *t = &a->trid;

	if (strcasecmp(p->trtype, "rdma") == 0) {
		t->trtype = NVME_TRTYPE_RDMA;
	} else if (strcasecmp(p->trtype, "pcie") == 0) {
		t->trtype = NVME_TRTYPE_PCIE;
	} else {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "trtype '%s': must be RDMA or PCIe", p->trtype);
		return false;
	}
	bool fabrics = t->trtype != NVME_TRTYPE_PCIE;
	if (fabrics && (p->subnqn == NULL || !nvme_nqn_is_valid(p->subnqn))) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "subnqn '%s': must be the NQN of a subsystem", p->subnqn ? p->subnqn : "");
		return false;
	}
	if (p->hostnqn != NULL && !nvme_nqn_is_valid(p->hostnqn)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "hostnqn '%s': must be an NQN", p->hostnqn);
		return false;
	}
	return put(req, "traddr", t->traddr, sizeof(t->traddr), p->traddr) &&
	       put(req, "trsvcid", t->trsvcid, sizeof(t->trsvcid), p->trsvcid ? p->trsvcid : fabrics ? "4420" : NULL) &&
	       put(req, "subnqn", t->subnqn, sizeof(t->subnqn), p->subnqn) &&
	       put(req, "hostnqn", a->hostnqn, sizeof(a->hostnqn), p->hostnqn) && (!fabrics || decode_adrfam(req, t, p->adrfam));
}

bool rpc_bdev_nvme_decode_discovery(struct rpc_request *req, const char *trtype, const char *traddr, const char *adrfam, const char *trsvcid,
				    const char *hostnqn, struct bdev_nvme_attach *a)
{
	const struct attach p = {.trtype = (char *)trtype, .traddr = (char *)traddr, .adrfam = (char *)adrfam, .trsvcid = (char *)trsvcid,
				 .hostnqn = (char *)hostnqn, .subnqn = BDEV_NVME_DISCOVERY_NQN};

	bdev_nvme_attach_default(a);
	if (!decode_trid(req, &p, a)) {
		return false;
	}
	if (a->trid.trtype == NVME_TRTYPE_PCIE) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "trtype '%s': must be RDMA, local drives are not discovered", trtype);
		return false;
	}
	return true;
}

static void attached(void *req, int rc, struct bdev_nvme *c, const char *error)
{
	if (rc != 0) {
		rpc_error(req, rc, "%s", error);
		return;
	}
	json_t *names = json_array();
	for (const struct bdev *b = NULL; (b = bdev_nvme_bdev_next(c, b)) != NULL;) {
		json_array_append_new(names, rpc_string(bdev_name(b)));
	}
	rpc_reply(req, names);
}

static void rpc_bdev_nvme_attach_controller(struct rpc_request *req, void *params)
{
	const struct attach *p = params;
	struct bdev_nvme_attach a;

	bdev_nvme_attach_default(&a);
	a.name = p->name;
	a.num_io_queues = p->num_io_queues;
	a.connect_timeout_ms = (uint32_t)((p->fabrics_connect_timeout_us + 999) / 1000);
	a.ctrlr_loss_timeout_sec = p->ctrlr_loss_timeout_sec;
	a.reconnect_delay_sec = p->reconnect_delay_sec;
	a.fast_io_fail_timeout_sec = p->fast_io_fail_timeout_sec;
	a.max_bdevs = p->max_bdevs;
	a.multipath = (enum bdev_nvme_multipath)p->multipath;
	a.policy_given = p->multipath_opts_given;
	a.policy = (struct bdev_nvme_policy){.active_active = p->multipath_opts.policy, .queue_depth = p->multipath_opts.selector,
					     .rr_min_io = p->multipath_opts.min_io};
	a.prchk_reftag = p->prchk_reftag;
	a.prchk_guard = p->prchk_guard;
	if (decode_trid(req, p, &a) && put(req, "dhchap_key", a.dhchap_key, sizeof(a.dhchap_key), p->dhchap_key) &&
	    put(req, "dhchap_ctrlr_key", a.dhchap_ctrlr_key, sizeof(a.dhchap_ctrlr_key), p->dhchap_ctrlr_key)) {
		bdev_nvme_attach(&a, attached, req);
	}
}
RPC_METHOD("bdev_nvme_attach_controller", rpc_bdev_nvme_attach_controller, struct attach, attach_params, RPC_RUNTIME,
	   "Attach an NVMe controller; answered with the names of its bdevs when it is ready", .defaults = attach_defaults)

/* --- Detach, reset --- */

struct detach {
	char *name, *trtype, *traddr, *adrfam, *trsvcid, *subnqn;
};

#define DETACH(field_, required_, help_) RPC_PARAM(struct detach, field_, RPC_STRING, required_, help_)
static const struct rpc_param detach_params[] = {
	DETACH(name, RPC_REQUIRED, "of the controller"),
	DETACH(trtype, RPC_OPTIONAL, "only paths of this transport"),
	DETACH(traddr, RPC_OPTIONAL, "only paths to this address"),
	DETACH(adrfam, RPC_OPTIONAL, "only paths of this address family"),
	DETACH(trsvcid, RPC_OPTIONAL, "only paths to this port"),
	DETACH(subnqn, RPC_OPTIONAL, "only if this is its subsystem"),
	RPC_PARAM_END,
};

static const char *adrfam_name(const struct nvme_trid *t)
{
	return t->adrfam == NVMF_ADDR_FAMILY_IP6 ? "IPv6" : "IPv4";
}

static bool is(const char *given, const char *has)
{
	return given == NULL || strcasecmp(given, has) == 0;
}

static bool matches(const struct detach *p, const struct nvme_trid *t)
{
	return is(p->trtype, nvme_trtype_name(t->trtype)) && is(p->traddr, t->traddr) && is(p->adrfam, adrfam_name(t)) &&
	       is(p->trsvcid, t->trsvcid) && is(p->subnqn, t->subnqn);
}

/* What is answered when all of several things have ended. */
struct several {
	struct rpc_request *req;
	unsigned left, worked;
	int rc;
	char error[NVME_ERROR_MAX];
};

static void one_ended(void *arg, int rc, const char *error)
{
	struct several *s = arg;

	s->worked += rc == 0;
	if (rc != 0) {
		s->rc = rc;
		snprintf(s->error, sizeof(s->error), "%s", error);
	}
	if (--s->left == 0) {
		answer(s->req, s->worked != 0 ? 0 : s->rc, s->error);
		free(s);
	}
}

static struct several *begin_several(struct rpc_request *req)
{
	struct several *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		rpc_error(req, -ENOMEM, "out of memory");
		return NULL;
	}
	s->req = req;
	s->left = 1;
	return s;
}

/* All have been asked for: what is left of the reason not to is that there were none. */
static void several_begun(struct several *s)
{
	if (--s->left == 0) {
		answer(s->req, s->worked != 0 ? 0 : s->rc, s->error);
		free(s);
	}
}

/* Other addresses of c that match are given up; whether the one in use is one of those. */
static bool drop_alternates(struct bdev_nvme *c, const struct detach *p, struct several *s)
{
	const struct nvme_trid *t = NULL, *next;

	for (t = nvme_ctrlr_next_alternate(bdev_nvme_ctrlr(c), NULL); t != NULL; t = next) {
		next = nvme_ctrlr_next_alternate(bdev_nvme_ctrlr(c), t);
		s->worked += matches(p, t) && bdev_nvme_drop_address(c, t);
	}
	if (!matches(p, nvme_ctrlr_trid(bdev_nvme_ctrlr(c)))) {
		return false;
	}
	struct nvme_trid mine = *nvme_ctrlr_trid(bdev_nvme_ctrlr(c));
	if (bdev_nvme_drop_address(c, &mine)) {
		s->worked++;
		return false;
	}
	return true;
}

static void rpc_bdev_nvme_detach_controller(struct rpc_request *req, void *params)
{
	const struct detach *p = params;
	struct bdev_nvme *c = rpc_bdev_nvme_find(req, p->name), *next;
	struct several *s = c != NULL ? begin_several(req) : NULL;
	bool all = p->trtype == NULL && p->traddr == NULL && p->adrfam == NULL && p->trsvcid == NULL && p->subnqn == NULL;

	if (s == NULL) {
		return;
	}
	s->rc = -ENODEV;
	const struct nvme_trid *t = nvme_ctrlr_trid(bdev_nvme_ctrlr(c));
	snprintf(s->error, sizeof(s->error), "%s '%.90s': the controller of that name has '%.90s'",
		 p->traddr ? "traddr" : p->trsvcid ? "trsvcid" : p->subnqn ? "subnqn" : p->trtype ? "trtype" : "adrfam",
		 p->traddr ? p->traddr : p->trsvcid ? p->trsvcid : p->subnqn ? p->subnqn : p->trtype ? p->trtype : p->adrfam ? p->adrfam : "",
		 p->traddr ? t->traddr : p->trsvcid ? t->trsvcid : p->subnqn ? t->subnqn : p->trtype ? nvme_trtype_name(t->trtype) : adrfam_name(t));
	while (!bdev_nvme_is_first(c)) {
		c = bdev_nvme_previous(c);
	}
	for (; c != NULL; c = next) { /* none is gone before the next turn of the control loop */
		next = bdev_nvme_sibling(c);
		if (all || drop_alternates(c, p, s)) {
			s->left++;
			bdev_nvme_detach(c, one_ended, s);
		}
	}
	several_begun(s);
}
RPC_METHOD("bdev_nvme_detach_controller", rpc_bdev_nvme_detach_controller, struct detach, detach_params, RPC_RUNTIME,
	   "Detach an NVMe controller, or some of the paths of its name; answered when they, and bdevs without a path, are gone")

struct reset {
	char *name;
	uint16_t cntlid;
	bool cntlid_given, subsystem;
};

static const struct rpc_param reset_params[] = {
	RPC_PARAM(struct reset, name, RPC_STRING, RPC_REQUIRED, "of the controller"),
	RPC_PARAM(struct reset, cntlid, RPC_UINT16, RPC_OPTIONAL, "only if this is its controller id",
		  .given_offset = offsetof(struct reset, cntlid_given)),
	RPC_PARAM(struct reset, subsystem, RPC_BOOL, RPC_OPTIONAL,
		  "by an NVM subsystem reset, which resets all of its controllers, other hosts' too (default false)"),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_reset_controller(struct rpc_request *req, void *params)
{
	const struct reset *p = params;
	struct bdev_nvme *c = rpc_bdev_nvme_find(req, p->name);
	struct several *s = c != NULL ? begin_several(req) : NULL;

	if (s == NULL) {
		return;
	}
	s->rc = -ENODEV;
	snprintf(s->error, sizeof(s->error), "cntlid %u: the controller has %u", p->cntlid, nvme_ctrlr_cntlid(bdev_nvme_ctrlr(c)));
	while (!bdev_nvme_is_first(c)) {
		c = bdev_nvme_previous(c);
	}
	for (; c != NULL; c = bdev_nvme_sibling(c)) {
		if (!p->cntlid_given || p->cntlid == nvme_ctrlr_cntlid(bdev_nvme_ctrlr(c))) {
			s->left++;
			(p->subsystem ? bdev_nvme_reset_subsystem : bdev_nvme_reset)(c, one_ended, s);
		}
	}
	several_begun(s);
}
RPC_METHOD("bdev_nvme_reset_controller", rpc_bdev_nvme_reset_controller, struct reset, reset_params, RPC_RUNTIME,
	   "Reset an NVMe controller; answered when it is ready again, or has failed to be")

/* --- Other keys --- */

struct set_keys {
	char *name, *dhchap_key, *dhchap_ctrlr_key;
};

static const struct rpc_param set_keys_params[] = {
	RPC_PARAM(struct set_keys, name, RPC_STRING, RPC_REQUIRED, "of the controller"),
	RPC_PARAM(struct set_keys, dhchap_key, RPC_STRING, RPC_OPTIONAL,
		  "name of a key of the keyring: proves to the controller who this host is; none if not given"),
	RPC_PARAM(struct set_keys, dhchap_ctrlr_key, RPC_STRING, RPC_OPTIONAL,
		  "name of a key of the keyring: the controller has to prove that it has it; none if not given"),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_set_keys(struct rpc_request *req, void *params)
{
	const struct set_keys *p = params;
	struct bdev_nvme *c = rpc_bdev_nvme_find(req, p->name);

	if (c != NULL) {
		bdev_nvme_set_keys(c, p->dhchap_key != NULL ? p->dhchap_key : "", p->dhchap_ctrlr_key != NULL ? p->dhchap_ctrlr_key : "", answer,
				   req);
	}
}
RPC_METHOD("bdev_nvme_set_keys", rpc_bdev_nvme_set_keys, struct set_keys, set_keys_params, RPC_RUNTIME,
	   "Give a controller other keys and authenticate with them, beside its I/O")

/* --- Hotplug --- */

struct set_hotplug {
	bool enable;
	uint64_t period_us;
};

static const struct rpc_param set_hotplug_params[] = {
	RPC_PARAM(struct set_hotplug, enable, RPC_BOOL, RPC_REQUIRED, "attach drives that are bound to vfio-pci or uio_pci_generic, now and later"),
	RPC_PARAM(struct set_hotplug, period_us, RPC_UINT64, RPC_OPTIONAL, "for clients that know a period: not used, the kernel tells at once"),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_set_hotplug(struct rpc_request *req, void *params)
{
	const struct set_hotplug *p = params;
	int rc = bdev_nvme_set_hotplug(p->enable);

	answer(req, rc, rc == 0 ? NULL : "the kernel's news of devices (NETLINK_KOBJECT_UEVENT) cannot be had");
}
RPC_METHOD("bdev_nvme_set_hotplug", rpc_bdev_nvme_set_hotplug, struct set_hotplug, set_hotplug_params, RPC_RUNTIME,
	   "Attach NVMe drives by themselves when they are plugged in, as HotInNvme0, HotInNvme1 ...")

/* --- Configuration --- */

json_t *rpc_bdev_nvme_trid_json(const struct nvme_trid *t)
{
	json_t *o = json_object();

	json_object_set_new(o, "trtype", json_string(nvme_trtype_name(t->trtype)));
	if (t->trtype != NVME_TRTYPE_PCIE) {
		json_object_set_new(o, "adrfam", json_string(adrfam_name(t)));
	}
	json_object_set_new(o, "traddr", rpc_string(t->traddr));
	if (t->trtype != NVME_TRTYPE_PCIE) {
		json_object_set_new(o, "trsvcid", rpc_string(t->trsvcid));
		json_object_set_new(o, "subnqn", rpc_string(t->subnqn));
	}
	return o;
}

static const char *action_name(enum bdev_nvme_timeout_action action)
{
	const struct rpc_enum *e = timeout_actions;

	while (e->value != (int)action) {
		e++;
	}
	return e->name;
}

static void write_options(json_t *methods)
{
	struct bdev_nvme_options o;
	json_t *params = json_object();

	bdev_nvme_get_options(&o);
	json_object_set_new(params, "action_on_timeout", json_string(action_name(o.action_on_timeout)));
	json_object_set_new(params, "timeout_us", rpc_uint(o.timeout_us));
	json_object_set_new(params, "timeout_admin_us", rpc_uint(o.timeout_admin_us));
	json_object_set_new(params, "keep_alive_timeout_ms", rpc_uint(o.keep_alive_timeout_ms));
	json_object_set_new(params, "bdev_retry_count", json_integer(o.bdev_retry_count));
	json_object_set_new(params, "ctrlr_loss_timeout_sec", json_integer(o.ctrlr_loss_timeout_sec));
	json_object_set_new(params, "reconnect_delay_sec", rpc_uint(o.reconnect_delay_sec));
	json_object_set_new(params, "fast_io_fail_timeout_sec", rpc_uint(o.fast_io_fail_timeout_sec));
	if (o.dhchap_hashes != 0) {
		json_object_set_new(params, "dhchap_digests", rpc_dhchap_digests_json(o.dhchap_hashes));
	}
	if (o.dhchap_groups != 0) {
		json_object_set_new(params, "dhchap_dhgroups", rpc_dhchap_dhgroups_json(o.dhchap_groups));
	}
	rpc_config_add(methods, "bdev_nvme_set_options", params);
}

static const char *multipath_name(enum bdev_nvme_multipath mode)
{
	const struct rpc_enum *e = multipath_modes;

	while (e->value != (int)mode) {
		e++;
	}
	return e->name;
}

static void write_controller(json_t *methods, const struct bdev_nvme *c, const struct nvme_trid *trid, enum bdev_nvme_multipath mode)
{
	const struct bdev_nvme_attach *a = bdev_nvme_attached(c);
	json_t *params = rpc_bdev_nvme_trid_json(trid);

	json_object_set_new(params, "name", rpc_string(bdev_nvme_name(c)));
	json_object_set_new(params, "multipath", json_string(multipath_name(mode)));
	if (a->hostnqn[0] != '\0') {
		json_object_set_new(params, "hostnqn", rpc_string(a->hostnqn));
	}
	if (a->connect_timeout_ms != 0) {
		json_object_set_new(params, "fabrics_connect_timeout_us", rpc_uint(a->connect_timeout_ms * UINT64_C(1000)));
	}
	json_object_set_new(params, "num_io_queues", rpc_uint(a->num_io_queues));
	json_object_set_new(params, "ctrlr_loss_timeout_sec", json_integer(a->ctrlr_loss_timeout_sec));
	json_object_set_new(params, "reconnect_delay_sec", rpc_uint(a->reconnect_delay_sec));
	json_object_set_new(params, "fast_io_fail_timeout_sec", rpc_uint(a->fast_io_fail_timeout_sec));
	json_object_set_new(params, "max_bdevs", rpc_uint(a->max_bdevs));
	if (a->prchk_reftag) {
		json_object_set_new(params, "prchk_reftag", json_true());
	}
	if (a->prchk_guard) {
		json_object_set_new(params, "prchk_guard", json_true());
	}
	if (a->dhchap_key[0] != '\0') {
		json_object_set_new(params, "dhchap_key", rpc_string(a->dhchap_key));
	}
	if (a->dhchap_ctrlr_key[0] != '\0') {
		json_object_set_new(params, "dhchap_ctrlr_key", rpc_string(a->dhchap_ctrlr_key));
	}
	rpc_config_add(methods, "bdev_nvme_attach_controller", params);
}

void rpc_bdev_nvme_write_config(json_t *methods)
{
	write_options(methods);
	for (const struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		if (!bdev_nvme_attached(c)->discovered && strcmp(bdev_nvme_state_name(c), "deleting") != 0 && strcmp(bdev_nvme_state_name(c), "attaching") != 0) {
			const struct nvme_trid *t = NULL;
			write_controller(methods, c, nvme_ctrlr_trid(bdev_nvme_ctrlr(c)), bdev_nvme_attached(c)->multipath);
			while ((t = nvme_ctrlr_next_alternate(bdev_nvme_ctrlr(c), t)) != NULL) {
				write_controller(methods, c, t, BDEV_NVME_FAILOVER);
			}
		}
	}
	rpc_bdev_nvme_write_policies(methods);
	rpc_bdev_nvme_write_discovery(methods);
	if (bdev_nvme_hotplug()) {
		json_t *params = json_object();
		json_object_set_new(params, "enable", json_true());
		rpc_config_add(methods, "bdev_nvme_set_hotplug", params);
	}
}

/* --- Events --- */

static const char *const news_types[] = {
	[BDEV_NVME_CONNECTED] = "bdev_nvme_connected",
	[BDEV_NVME_LOST] = "bdev_nvme_lost",
	[BDEV_NVME_FAILED] = "bdev_nvme_failed",
	[BDEV_NVME_DETACHED] = "bdev_nvme_detached",
	[BDEV_NVME_PATH_LOST] = "bdev_nvme_path_lost",
	[BDEV_NVME_PATH_REGAINED] = "bdev_nvme_path_regained",
	[BDEV_NVME_HEALTH] = "bdev_nvme_health",
};

static void on_news(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path, const char *why)
{
	char text[768];

	if (path == NULL) {
		notify_send_reason(news_types[news], bdev_nvme_name(c), why);
		return;
	}
	snprintf(text, sizeof(text), "%s %s %s%s%s", bdev_nvme_name(c), nvme_trtype_name(path->trtype), path->traddr,
		 path->trsvcid[0] != '\0' ? " " : "", path->trsvcid);
	notify_send_reason(news_types[news], text, why);
}

__attribute__((constructor)) static void notify_of_controllers(void)
{
	for (size_t i = 0; i < sizeof(news_types) / sizeof(news_types[0]); i++) {
		notify_type_register(news_types[i]);
	}
	bdev_nvme_observe(on_news);
}
