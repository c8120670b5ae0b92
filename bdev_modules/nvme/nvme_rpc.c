/* SPDX-License-Identifier: BSD-3-Clause */
/* bdev_nvme_*: attach, detach and reset controllers, their keys, hotplug; their configuration and notifications. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bdev_modules/nvme/nvme_rpc.h"
#include "keyring/keyring.h"
#include "util/parse.h"
#include "rpc_methods/bdev_module.h"

struct bdev_nvme *bdev_nvme_rpc_find(struct rpc_request *req, const char *name)
{
	struct bdev_nvme *c = bdev_nvme_find(name);

	if (c == NULL) {
		rpc_error(req, -ENODEV, "name: there is no NVMe controller '%s'", name);
	}
	return c;
}

void bdev_nvme_rpc_answer(void *req, int rc, const char *error)
{
	if (rc == 0) {
		rpc_reply_true(req);
	} else {
		rpc_error(req, rc, "%s", error);
	}
}

/* --- Attach --- */

static const struct rpc_enum multipath_modes[] = {{"multipath", BDEV_NVME_MULTIPATH},
						  {"failover", BDEV_NVME_FAILOVER},
						  {"disable", BDEV_NVME_DISABLE},
						  {NULL, 0}};

struct attach {
	char *name, *trtype, *traddr, *adrfam, *trsvcid, *subnqn, *hostnqn;
	char *hostaddr, *hostsvcid;
	int multipath;
	struct bdev_nvme_rpc_multipath_opts multipath_opts;
	uint64_t fabrics_connect_timeout_us;
	uint32_t num_io_queues;
	int32_t ctrlr_loss_timeout_sec;
	uint32_t reconnect_delay_sec, fast_io_fail_timeout_sec, max_bdevs;
	int32_t fence_timeout_ms;
	uint32_t default_quiesce_time_ms;
	bool prchk_reftag, prchk_guard, hdgst, ddgst, disable_sq_flow_control;
	char *priority;
	char *dhchap_key, *dhchap_ctrlr_key, *psk;
	bool psk_compat, concat;
};

#define ATTACH(field_, type_, required_, help_, ...)                                                                   \
	RPC_PARAM(struct attach, field_, type_, required_, help_, ##__VA_ARGS__)
static const struct rpc_param attach_params[] = {
	ATTACH(name, RPC_STRING, RPC_REQUIRED,
	       "name of the controller; its bdevs are NAMEn1, NAMEn2 ... by namespace id"),
	ATTACH(trtype, RPC_STRING, RPC_REQUIRED, "transport, such as RDMA, TCP or PCIe"),
	ATTACH(traddr, RPC_STRING, RPC_REQUIRED, "an IP address, or a PCI address"),
	ATTACH(adrfam, RPC_STRING, RPC_OPTIONAL, "IPv4 or IPv6 (default: by the form of traddr)"),
	ATTACH(trsvcid, RPC_STRING, RPC_OPTIONAL, "port (default: the transport's, 4420)"),
	ATTACH(subnqn, RPC_STRING, RPC_OPTIONAL, "NQN of the subsystem; required over fabrics"),
	ATTACH(hostnqn, RPC_STRING, RPC_OPTIONAL,
	       "NQN of this host (default: /etc/nvme/hostnqn, or one made from the machine id)"),
	ATTACH(hostaddr, RPC_STRING, RPC_OPTIONAL,
	       "RDMA, TCP: the local address to connect from (default: the one with a route to traddr)"),
	ATTACH(hostsvcid, RPC_STRING, RPC_OPTIONAL,
	       "RDMA, TCP: the local port to connect from, with hostaddr (default: any)"),
	ATTACH(multipath, RPC_ENUM, RPC_OPTIONAL,
	       "if a controller of that name is attached: attach this one as another path (default); use this address "
	       "when its own does not answer; or refuse",
	       .enums = multipath_modes),
	ATTACH(multipath_opts, RPC_OBJECT, RPC_OPTIONAL,
	       "how the I/O of its bdevs is spread over paths (default: as set by bdev_nvme_set_options)",
	       .object = bdev_nvme_rpc_multipath_opts_params),
	ATTACH(fabrics_connect_timeout_us, RPC_UINT64, RPC_OPTIONAL,
	       "time limit of one attempt to connect (default: the driver's)", .max = BDEV_NVME_TIMEOUT_MAX_US),
	ATTACH(num_io_queues, RPC_UINT32, RPC_OPTIONAL,
	       "I/O queues to ask the controller for; each thread with I/O needs one (default 128)"),
	ATTACH(ctrlr_loss_timeout_sec, RPC_INT32, RPC_OPTIONAL,
	       "how long to reconnect a lost controller before it is detached; -1: no limit; 0: one attempt"),
	ATTACH(reconnect_delay_sec, RPC_UINT32, RPC_OPTIONAL, "time between attempts to reconnect"),
	ATTACH(fast_io_fail_timeout_sec, RPC_UINT32, RPC_OPTIONAL,
	       "how long I/O waits for a lost controller before it fails; 0: no limit"),
	ATTACH(fence_timeout_ms, RPC_INT32, RPC_OPTIONAL,
	       "fabrics: how long writes that were lost with a controller wait for the proof that it has ended, before "
	       "they are submitted elsewhere; -1: as long as the standard says, by keep-alive and quiesce times; 0: "
	       "not "
	       "at all, so that old writes may land behind newer ones",
	       .own = true),
	ATTACH(default_quiesce_time_ms, RPC_UINT32, RPC_OPTIONAL,
	       "fabrics: the Command Quiesce Time to assume of a controller that reports none, for fence_timeout_ms -1",
	       .max = BDEV_NVME_FENCE_MAX_MS, .own = true),
	ATTACH(max_bdevs, RPC_UINT32, RPC_OPTIONAL,
	       "refuse a controller with more namespaces than this; 0: no limit (default 128)"),
	ATTACH(prchk_reftag, RPC_BOOL, RPC_OPTIONAL,
	       "let the controller check reference tags of blocks with protection information"),
	ATTACH(prchk_guard, RPC_BOOL, RPC_OPTIONAL,
	       "let the controller check guards of blocks with protection information"),
	ATTACH(dhchap_key, RPC_STRING, RPC_OPTIONAL,
	       "name of a key in the keyring, by which this host is authenticated"),
	ATTACH(dhchap_ctrlr_key, RPC_STRING, RPC_OPTIONAL,
	       "name of a key in the keyring, by which the controller is authenticated"),
	ATTACH(hdgst, RPC_BOOL, RPC_OPTIONAL,
	       "TCP: a CRC32C for each PDU header, which the controller must have too (default false)"),
	ATTACH(ddgst, RPC_BOOL, RPC_OPTIONAL,
	       "TCP: a CRC32C for the data of each PDU, which the controller must have too (default false)"),
	ATTACH(priority, RPC_STRING, RPC_OPTIONAL,
	       "TCP: the priority of packets (SO_PRIORITY), \"0\" to \"15\" (default: the machine's)"),
	ATTACH(psk, RPC_STRING, RPC_OPTIONAL,
	       "TCP: name of a TLS key in the keyring, by which all connections are made (default: they are not "
	       "encrypted)"),
	ATTACH(psk_compat, RPC_BOOL, RPC_OPTIONAL,
	       "TCP: derive from psk as libnvme did before its release 1.16, for a target that does so (default false)",
	       .own = true),
	ATTACH(concat, RPC_BOOL, RPC_OPTIONAL,
	       "TCP: secure channel concatenation: authenticate with dhchap_key, and make all further connections over "
	       "TLS with the key that both sides have generated in that; without psk (default false)",
	       .own = true),
	ATTACH(disable_sq_flow_control, RPC_BOOL, RPC_OPTIONAL,
	       "fabrics: ask the controller for queues without flow control; a TCP target may then leave out the "
	       "responses of reads (default false)"),
	RPC_ONLY(allow_unrecognized_csi, RPC_BOOL, "false", "only namespaces of the NVM command set become bdevs"),
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
	p->fence_timeout_ms = a.fence_timeout_ms;
	p->default_quiesce_time_ms = a.default_quiesce_time_ms;
	p->max_bdevs = 128;
	bdev_nvme_rpc_multipath_opts_default(&p->multipath_opts, &a.policy);
}

/* Copies a parameter; false after answering that it is too long. */
static bool param_copy(struct rpc_request *req, const char *what, char *to, size_t size, const char *text)
{
	if (text != NULL && strlen(text) >= size) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s '%.100s...': has %zu bytes, at most %zu are allowed", what,
			  text, strlen(text), size - 1);
		return false;
	}
	snprintf(to, size, "%s", text ? text : "");
	return true;
}

static bool trid_decode_adrfam(struct rpc_request *req, struct nvme_trid *t, const char *adrfam)
{
	if (adrfam == NULL) {
		t->adrfam = strchr(t->traddr, ':') != NULL ? NVMF_ADDR_FAMILY_IP6 : NVMF_ADDR_FAMILY_IP4;
	} else if (!nvme_adrfam_parse(adrfam, &t->adrfam)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "adrfam '%s': must be IPv4 or IPv6", adrfam);
		return false;
	}
	return true;
}

/* The local address and port to connect from. */
static bool trid_decode_host(struct rpc_request *req, const struct attach *p, const struct nvme_transport *transport,
			     struct nvme_trid *t)
{
	if ((transport->keys & NVME_TRID_HOST_TRADDR) == 0 && (p->hostaddr != NULL || p->hostsvcid != NULL)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s '%s': must not be given for trtype %s",
			  p->hostaddr ? "hostaddr" : "hostsvcid", p->hostaddr ? p->hostaddr : p->hostsvcid,
			  transport->name);
		return false;
	}
	if (p->hostaddr == NULL && p->hostsvcid != NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "hostsvcid '%s': must not be given without hostaddr",
			  p->hostsvcid);
		return false;
	}
	return param_copy(req, "hostaddr", t->host_traddr, sizeof(t->host_traddr), p->hostaddr) &&
	       param_copy(req, "hostsvcid", t->host_trsvcid, sizeof(t->host_trsvcid), p->hostsvcid);
}

/* The transport that a call names, or NULL after answering which ones there are. */
static const struct nvme_transport *trid_decode_trtype(struct rpc_request *req, const char *name)
{
	const struct nvme_transport *transport = nvme_transport_find_by_name(name);
	char names[NVME_TRANSPORT_NAMES_MAX];

	if (transport == NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "trtype '%s': must be %s", name,
			  nvme_transport_names(false, names, sizeof(names)));
	}
	return transport;
}

static bool trid_check_address(struct rpc_request *req, const struct nvme_trid *t)
{
	char error[NVME_ERROR_MAX];

	if (nvme_trid_check_address(t, error) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "%s", error);
		return false;
	}
	return true;
}

static bool trid_decode(struct rpc_request *req, const struct attach *p, struct bdev_nvme_attach *a)
{
	struct nvme_trid *t = &a->trid;
	const struct nvme_transport *transport = trid_decode_trtype(req, p->trtype);

	if (transport == NULL) {
		return false;
	}
	t->trtype = transport->trtype;
	if ((transport->keys & NVME_TRID_SUBNQN) && (p->subnqn == NULL || !nvme_nqn_is_valid(p->subnqn))) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "subnqn '%s': must be the NQN of a subsystem",
			  p->subnqn ? p->subnqn : "");
		return false;
	}
	if (p->hostnqn != NULL && !nvme_nqn_is_valid(p->hostnqn)) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "hostnqn '%s': must be an NQN", p->hostnqn);
		return false;
	}
	return param_copy(req, "traddr", t->traddr, sizeof(t->traddr), p->traddr) &&
	       param_copy(req, "trsvcid", t->trsvcid, sizeof(t->trsvcid),
			  p->trsvcid ? p->trsvcid : transport->default_trsvcid) &&
	       param_copy(req, "subnqn", t->subnqn, sizeof(t->subnqn), p->subnqn) &&
	       param_copy(req, "hostnqn", a->hostnqn, sizeof(a->hostnqn), p->hostnqn) &&
	       ((transport->keys & NVME_TRID_ADRFAM) == 0 || trid_decode_adrfam(req, t, p->adrfam)) &&
	       trid_check_address(req, t) && trid_decode_host(req, p, transport, t);
}

bool bdev_nvme_rpc_decode_discovery(struct rpc_request *req, const char *trtype, const char *traddr, const char *adrfam,
				    const char *trsvcid, const char *hostnqn, struct bdev_nvme_attach *a)
{
	const struct attach p = {.trtype = (char *)trtype,
				 .traddr = (char *)traddr,
				 .adrfam = (char *)adrfam,
				 .trsvcid = (char *)trsvcid,
				 .hostnqn = (char *)hostnqn,
				 .subnqn = BDEV_NVME_DISCOVERY_NQN};

	bdev_nvme_attach_default(a);
	if (!trid_decode(req, &p, a)) {
		return false;
	}
	if (!nvme_trtype_is_fabrics(a->trid.trtype)) {
		char names[NVME_TRANSPORT_NAMES_MAX];
		rpc_error(req, RPC_ERROR_INVALID_PARAMS,
			  "trtype '%s': must be %s, since drives have no discovery service", trtype,
			  nvme_transport_names(true, names, sizeof(names)));
		return false;
	}
	return true;
}

static void attach_answer(void *req, int rc, struct bdev_nvme *c, const char *error)
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

static bool priority_decode(struct rpc_request *req, const char *text, int *priority)
{
	uint64_t value = 0;

	if (text != NULL && parse_uint64(text, 0, BDEV_NVME_PRIORITY_MAX, &value) != 0) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "priority '%.20s': must be 0 to %d", text,
			  BDEV_NVME_PRIORITY_MAX);
		return false;
	}
	*priority = (int)value;
	return true;
}

/* What is asked to be encrypted must be: before anything else. */
bool bdev_nvme_rpc_check_psk(struct rpc_request *req, const char *trtype, const char *psk)
{
	const struct nvme_transport *t = nvme_transport_find_by_name(trtype);
	const char *why = NULL;

	if (psk == NULL) {
		return true;
	}
	struct keyring_key *key = keyring_get_kind(psk, KEYRING_PSK, &why);
	if (key != NULL && t != NULL && !t->tls) {
		why = "it needs TLS, which only TCP has";
	}
	keyring_put(key);
	if (why != NULL) {
		rpc_error(req, RPC_ERROR_INVALID_PARAMS, "parameter \"psk\" is \"%.80s\": %s", psk, why);
	}
	return why == NULL;
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
	a.fence_timeout_ms = p->fence_timeout_ms;
	a.default_quiesce_time_ms = p->default_quiesce_time_ms;
	a.max_bdevs = p->max_bdevs;
	a.hdgst = p->hdgst;
	a.ddgst = p->ddgst;
	a.multipath = (enum bdev_nvme_multipath)p->multipath;
	a.policy_given = bdev_nvme_rpc_multipath_opts_decode(&p->multipath_opts, &a.policy);
	a.prchk_reftag = p->prchk_reftag;
	a.prchk_guard = p->prchk_guard;
	a.disable_sq_flow_control = p->disable_sq_flow_control;
	a.psk_compat = p->psk_compat;
	a.concat = p->concat;
	if (bdev_nvme_rpc_check_psk(req, p->trtype, p->psk) && param_copy(req, "psk", a.psk, sizeof(a.psk), p->psk) &&
	    trid_decode(req, p, &a) && priority_decode(req, p->priority, &a.priority) &&
	    param_copy(req, "dhchap_key", a.dhchap_key, sizeof(a.dhchap_key), p->dhchap_key) &&
	    param_copy(req, "dhchap_ctrlr_key", a.dhchap_ctrlr_key, sizeof(a.dhchap_ctrlr_key), p->dhchap_ctrlr_key)) {
		bdev_nvme_attach(&a, attach_answer, req);
	}
}
RPC_METHOD("bdev_nvme_attach_controller", rpc_bdev_nvme_attach_controller, struct attach, attach_params, RPC_RUNTIME,
	   "Attach an NVMe controller, and answer with the names of its bdevs when it is ready",
	   .defaults = attach_defaults, .result = "[string]")

/* --- Detach, reset --- */

struct detach {
	char *name, *trtype, *traddr, *adrfam, *trsvcid, *subnqn, *hostaddr, *hostsvcid;
};

#define DETACH(field_, required_, help_) RPC_PARAM(struct detach, field_, RPC_STRING, required_, help_)
static const struct rpc_param detach_params[] = {
	DETACH(name, RPC_REQUIRED, "name of the controller"),
	DETACH(trtype, RPC_OPTIONAL, "only paths of this transport"),
	DETACH(traddr, RPC_OPTIONAL, "only paths to this address"),
	DETACH(adrfam, RPC_OPTIONAL, "only paths of this address family"),
	DETACH(trsvcid, RPC_OPTIONAL, "only paths to this port"),
	DETACH(subnqn, RPC_OPTIONAL, "only if this is its subsystem"),
	DETACH(hostaddr, RPC_OPTIONAL, "only paths that were attached from this address"),
	DETACH(hostsvcid, RPC_OPTIONAL, "only paths that were attached from this port"),
	RPC_PARAM_END,
};

static bool param_matches(const char *given, const char *has)
{
	return given == NULL || strcasecmp(given, has) == 0;
}

static bool detach_matches(const struct detach *p, const struct nvme_trid *t)
{
	return param_matches(p->trtype, nvme_trtype_name(t->trtype)) && param_matches(p->traddr, t->traddr) &&
	       param_matches(p->adrfam, nvme_adrfam_name(t->adrfam)) && param_matches(p->trsvcid, t->trsvcid) &&
	       param_matches(p->subnqn, t->subnqn) && param_matches(p->hostaddr, t->host_traddr) &&
	       param_matches(p->hostsvcid, t->host_trsvcid);
}

/* A call that is answered when several operations have ended: with success if one of them succeeded. */
struct several {
	struct rpc_request *req;
	unsigned left, worked;
	int rc;
	char error[NVME_ERROR_MAX];
};

static void several_one_ended(void *arg, int rc, const char *error)
{
	struct several *s = arg;

	s->worked += rc == 0;
	if (rc != 0) {
		s->rc = rc;
		snprintf(s->error, sizeof(s->error), "%s", error);
	}
	if (--s->left == 0) {
		bdev_nvme_rpc_answer(s->req, s->worked != 0 ? 0 : s->rc, s->error);
		free(s);
	}
}

static struct several *several_begin(struct rpc_request *req)
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

/* All operations have been begun. Answers if all have ended already, or with s->error if there was none. */
static void several_begun(struct several *s)
{
	if (--s->left == 0) {
		bdev_nvme_rpc_answer(s->req, s->worked != 0 ? 0 : s->rc, s->error);
		free(s);
	}
}

/* Removes the addresses of c that match. True: the last one matches, so c is to be detached. */
static bool detach_drop_alternates(struct bdev_nvme *c, const struct detach *p, struct several *s)
{
	const struct nvme_trid *t = NULL, *next;

	for (t = nvme_ctrlr_next_alternate(bdev_nvme_ctrlr(c), NULL); t != NULL; t = next) {
		next = nvme_ctrlr_next_alternate(bdev_nvme_ctrlr(c), t);
		s->worked += detach_matches(p, t) && bdev_nvme_drop_address(c, t);
	}
	if (!detach_matches(p, nvme_ctrlr_trid(bdev_nvme_ctrlr(c)))) {
		return false;
	}
	struct nvme_trid mine = *nvme_ctrlr_trid(bdev_nvme_ctrlr(c));
	if (bdev_nvme_drop_address(c, &mine)) {
		s->worked++;
		return false;
	}
	return true;
}

/* The error for a call whose parameters match no controller: names the given parameter that says most. False: none was
 * given, so all controllers of the name are meant. */
static bool detach_say_difference(const struct detach *p, const struct nvme_trid *t, char error[NVME_ERROR_MAX])
{
	const struct {
		const char *name, *given, *has;
	} fields[] = {
		{"traddr", p->traddr, t->traddr},
		{"trsvcid", p->trsvcid, t->trsvcid},
		{"subnqn", p->subnqn, t->subnqn},
		{"trtype", p->trtype, nvme_trtype_name(t->trtype)},
		{"adrfam", p->adrfam, nvme_adrfam_name(t->adrfam)},
		{"hostaddr", p->hostaddr, t->host_traddr},
		{"hostsvcid", p->hostsvcid, t->host_trsvcid},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].given != NULL) {
			snprintf(error, NVME_ERROR_MAX, "%s '%.90s': the controller of that name has '%.90s'",
				 fields[i].name, fields[i].given, fields[i].has);
			return true;
		}
	}
	return false;
}

static void rpc_bdev_nvme_detach_controller(struct rpc_request *req, void *params)
{
	const struct detach *p = params;
	struct bdev_nvme *c = bdev_nvme_rpc_find(req, p->name), *next;
	struct several *s = c != NULL ? several_begin(req) : NULL;

	if (s == NULL) {
		return;
	}
	s->rc = -ENODEV;
	bool all = !detach_say_difference(p, nvme_ctrlr_trid(bdev_nvme_ctrlr(c)), s->error);
	while (!bdev_nvme_is_first(c)) {
		c = bdev_nvme_previous(c);
	}
	for (; c != NULL; c = next) { /* no controller is freed before the control thread's next turn */
		next = bdev_nvme_sibling(c);
		if (all || detach_drop_alternates(c, p, s)) {
			s->left++;
			bdev_nvme_detach(c, several_one_ended, s);
		}
	}
	several_begun(s);
}
RPC_METHOD("bdev_nvme_detach_controller", rpc_bdev_nvme_detach_controller, struct detach, detach_params, RPC_RUNTIME,
	   "Detach the NVMe controllers of a name, or some of them, and answer when they and the bdevs that have no "
	   "path left are "
	   "removed",
	   .result = "true")

struct reset {
	char *name;
	uint16_t cntlid;
	bool cntlid_given, subsystem;
};

static const struct rpc_param reset_params[] = {
	RPC_PARAM(struct reset, name, RPC_STRING, RPC_REQUIRED, "name of the controller"),
	RPC_PARAM(struct reset, cntlid, RPC_UINT16, RPC_OPTIONAL, "only the controller of this id",
		  .given_offset = offsetof(struct reset, cntlid_given)),
	RPC_PARAM(struct reset, subsystem, RPC_BOOL, RPC_OPTIONAL,
		  "by an NVM subsystem reset, which also resets the controllers of other hosts (default false)"),
	RPC_PARAM_END,
};

/* Begins an operation on the controllers of a name, or on the one of that id. */
static void ctrlrs_begin(struct rpc_request *req, const struct reset *p,
			 void (*fn)(struct bdev_nvme *c, bdev_nvme_done_cb cb, void *arg))
{
	struct bdev_nvme *c = bdev_nvme_rpc_find(req, p->name);
	struct several *s = c != NULL ? several_begin(req) : NULL;

	if (s == NULL) {
		return;
	}
	s->rc = -ENODEV;
	snprintf(s->error, sizeof(s->error), "cntlid %u: the controller has %u", p->cntlid,
		 nvme_ctrlr_cntlid(bdev_nvme_ctrlr(c)));
	while (!bdev_nvme_is_first(c)) {
		c = bdev_nvme_previous(c);
	}
	for (; c != NULL; c = bdev_nvme_sibling(c)) {
		if (!p->cntlid_given || p->cntlid == nvme_ctrlr_cntlid(bdev_nvme_ctrlr(c))) {
			s->left++;
			fn(c, several_one_ended, s);
		}
	}
	several_begun(s);
}

static void rpc_bdev_nvme_reset_controller(struct rpc_request *req, void *params)
{
	const struct reset *p = params;

	ctrlrs_begin(req, p, p->subsystem ? bdev_nvme_reset_subsystem : bdev_nvme_reset);
}
RPC_METHOD("bdev_nvme_reset_controller", rpc_bdev_nvme_reset_controller, struct reset, reset_params, RPC_RUNTIME,
	   "Reset an NVMe controller, and answer when it is ready again or could not be connected", .result = "true")

static const struct rpc_param by_cntlid_params[] = {
	RPC_PARAM(struct reset, name, RPC_STRING, RPC_REQUIRED, "name of the controller"),
	RPC_PARAM(struct reset, cntlid, RPC_UINT16, RPC_OPTIONAL, "only the controller of this id",
		  .given_offset = offsetof(struct reset, cntlid_given)),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_disable_controller(struct rpc_request *req, void *params)
{
	ctrlrs_begin(req, params, bdev_nvme_disable);
}
RPC_METHOD("bdev_nvme_disable_controller", rpc_bdev_nvme_disable_controller, struct reset, by_cntlid_params,
	   RPC_RUNTIME,
	   "Take an NVMe controller out of use: its I/O takes other paths, or fails; answers when its connection has "
	   "ended. It stays attached, and a configuration that is saved has it enabled",
	   .result = "true")

static void rpc_bdev_nvme_enable_controller(struct rpc_request *req, void *params)
{
	ctrlrs_begin(req, params, bdev_nvme_enable);
}
RPC_METHOD("bdev_nvme_enable_controller", rpc_bdev_nvme_enable_controller, struct reset, by_cntlid_params, RPC_RUNTIME,
	   "Connect an NVMe controller again that was disabled, and answer when it is ready or could not be connected",
	   .result = "true")

/* --- Keys --- */

struct set_keys {
	char *name, *dhchap_key, *dhchap_ctrlr_key;
};

static const struct rpc_param set_keys_params[] = {
	RPC_PARAM(struct set_keys, name, RPC_STRING, RPC_REQUIRED, "name of the controller"),
	RPC_PARAM(struct set_keys, dhchap_key, RPC_STRING, RPC_OPTIONAL,
		  "name of a key in the keyring, by which this host is authenticated; none if not given"),
	RPC_PARAM(struct set_keys, dhchap_ctrlr_key, RPC_STRING, RPC_OPTIONAL,
		  "name of a key in the keyring, by which the controller is authenticated; none if not given"),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_set_keys(struct rpc_request *req, void *params)
{
	const struct set_keys *p = params;
	struct bdev_nvme *c = bdev_nvme_rpc_find(req, p->name);

	if (c != NULL) {
		bdev_nvme_set_keys(c, p->dhchap_key != NULL ? p->dhchap_key : "",
				   p->dhchap_ctrlr_key != NULL ? p->dhchap_ctrlr_key : "", bdev_nvme_rpc_answer, req);
	}
}
RPC_METHOD("bdev_nvme_set_keys", rpc_bdev_nvme_set_keys, struct set_keys, set_keys_params, RPC_RUNTIME,
	   "Give a controller other keys and authenticate with them, while its I/O goes on", .result = "true")

/* --- Hotplug --- */

struct set_hotplug {
	bool enable;
	uint64_t period_us;
};

static const struct rpc_param set_hotplug_params[] = {
	RPC_PARAM(struct set_hotplug, enable, RPC_BOOL, RPC_REQUIRED,
		  "attach drives that are bound to vfio-pci or uio_pci_generic, now and later"),
	RPC_PARAM(struct set_hotplug, period_us, RPC_UINT64, RPC_OPTIONAL,
		  "no effect, accepted for clients that set it: the kernel reports drives at once"),
	RPC_PARAM_END,
};

static void rpc_bdev_nvme_set_hotplug(struct rpc_request *req, void *params)
{
	const struct set_hotplug *p = params;
	int rc = bdev_nvme_set_hotplug(p->enable);

	bdev_nvme_rpc_answer(
		req, rc, rc == 0 ? NULL : "events of the kernel's devices (NETLINK_KOBJECT_UEVENT) cannot be received");
}
RPC_METHOD("bdev_nvme_set_hotplug", rpc_bdev_nvme_set_hotplug, struct set_hotplug, set_hotplug_params, RPC_RUNTIME,
	   "Attach NVMe drives as HotInNvme0, HotInNvme1 ... as soon as they are plugged in", .result = "true")

/* --- Configuration --- */

json_t *bdev_nvme_rpc_trid_json(const struct nvme_trid *t)
{
	const struct nvme_transport *transport = nvme_transport_find(t->trtype);
	unsigned keys = transport != NULL ? transport->keys : 0;
	json_t *o = json_object();

	json_object_set_new(o, "trtype", json_string(nvme_trtype_name(t->trtype)));
	if (keys & NVME_TRID_ADRFAM) {
		json_object_set_new(o, "adrfam", json_string(nvme_adrfam_name(t->adrfam)));
	}
	json_object_set_new(o, "traddr", rpc_string(t->traddr));
	if (keys & NVME_TRID_TRSVCID) {
		json_object_set_new(o, "trsvcid", rpc_string(t->trsvcid));
	}
	if (keys & NVME_TRID_SUBNQN) {
		json_object_set_new(o, "subnqn", rpc_string(t->subnqn));
	}
	return o;
}

static const char *multipath_name(enum bdev_nvme_multipath mode)
{
	const struct rpc_enum *e = multipath_modes;

	while (e->value != (int)mode) {
		e++;
	}
	return e->name;
}

/* Left out is what bdev_nvme_set_options, which comes first in a configuration, does not change either. */
static void config_write_fence(json_t *params, const struct bdev_nvme_attach *a, const struct bdev_nvme_options *now)
{
	struct bdev_nvme_options usual;

	bdev_nvme_default_options(&usual);
	if (!rpc_config_leaves_out(a->fence_timeout_ms == usual.fence_timeout_ms &&
				   now->fence_timeout_ms == usual.fence_timeout_ms)) {
		json_object_set_new(params, "fence_timeout_ms", json_integer(a->fence_timeout_ms));
	}
	if (!rpc_config_leaves_out(a->default_quiesce_time_ms == usual.default_quiesce_time_ms &&
				   now->default_quiesce_time_ms == usual.default_quiesce_time_ms)) {
		json_object_set_new(params, "default_quiesce_time_ms", rpc_uint(a->default_quiesce_time_ms));
	}
}

static void config_write_ctrlr(json_t *methods, const struct bdev_nvme *c, const struct nvme_trid *trid,
			       enum bdev_nvme_multipath mode)
{
	const struct bdev_nvme_attach *a = bdev_nvme_attached(c);
	json_t *params = bdev_nvme_rpc_trid_json(trid);
	struct bdev_nvme_options o;

	json_object_set_new(params, "name", rpc_string(bdev_nvme_name(c)));
	json_object_set_new(params, "multipath", json_string(multipath_name(mode)));
	if (a->hostnqn[0] != '\0') {
		json_object_set_new(params, "hostnqn", rpc_string(a->hostnqn));
	}
	bdev_nvme_get_options(&o);
	if (!bdev_nvme_policy_equal(bdev_nvme_policy_to_come(c), &o.policy)) {
		bdev_nvme_rpc_add_multipath_opts(params, bdev_nvme_policy_to_come(c));
	}
	if (trid->host_traddr[0] != '\0') {
		json_object_set_new(params, "hostaddr", rpc_string(trid->host_traddr));
	}
	if (trid->host_trsvcid[0] != '\0') {
		json_object_set_new(params, "hostsvcid", rpc_string(trid->host_trsvcid));
	}
	if (a->connect_timeout_ms != 0) {
		json_object_set_new(params, "fabrics_connect_timeout_us",
				    rpc_uint(a->connect_timeout_ms * UINT64_C(1000)));
	}
	json_object_set_new(params, "num_io_queues", rpc_uint(a->num_io_queues));
	json_object_set_new(params, "ctrlr_loss_timeout_sec", json_integer(a->ctrlr_loss_timeout_sec));
	json_object_set_new(params, "reconnect_delay_sec", rpc_uint(a->reconnect_delay_sec));
	json_object_set_new(params, "fast_io_fail_timeout_sec", rpc_uint(a->fast_io_fail_timeout_sec));
	config_write_fence(params, a, &o);
	json_object_set_new(params, "max_bdevs", rpc_uint(a->max_bdevs));
	if (a->prchk_reftag) {
		json_object_set_new(params, "prchk_reftag", json_true());
	}
	if (a->prchk_guard) {
		json_object_set_new(params, "prchk_guard", json_true());
	}
	if (a->hdgst) {
		json_object_set_new(params, "hdgst", json_true());
	}
	if (a->ddgst) {
		json_object_set_new(params, "ddgst", json_true());
	}
	if (a->disable_sq_flow_control) {
		json_object_set_new(params, "disable_sq_flow_control", json_true());
	}
	if (a->priority != 0) {
		char text[16];
		snprintf(text, sizeof(text), "%d", a->priority);
		json_object_set_new(params, "priority", json_string(text));
	}
	if (a->dhchap_key[0] != '\0') {
		json_object_set_new(params, "dhchap_key", rpc_string(a->dhchap_key));
	}
	if (a->dhchap_ctrlr_key[0] != '\0') {
		json_object_set_new(params, "dhchap_ctrlr_key", rpc_string(a->dhchap_ctrlr_key));
	}
	if (a->psk[0] != '\0') {
		json_object_set_new(params, "psk", rpc_string(a->psk));
	}
	if (a->psk_compat) {
		json_object_set_new(params, "psk_compat", json_true());
	}
	if (a->concat) {
		json_object_set_new(params, "concat", json_true());
	}
	rpc_config_add(methods, "bdev_nvme_attach_controller", params);
}

static void bdev_nvme_write_config(json_t *methods)
{
	bdev_nvme_rpc_write_options(methods);
	for (const struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		if (!bdev_nvme_attached(c)->discovered && strcmp(bdev_nvme_state_name(c), "deleting") != 0 &&
		    strcmp(bdev_nvme_state_name(c), "attaching") != 0) {
			const struct nvme_trid *t = NULL;
			config_write_ctrlr(methods, c, nvme_ctrlr_trid(bdev_nvme_ctrlr(c)),
					   bdev_nvme_attached(c)->multipath);
			while ((t = nvme_ctrlr_next_alternate(bdev_nvme_ctrlr(c), t)) != NULL) {
				config_write_ctrlr(methods, c, t, BDEV_NVME_FAILOVER);
			}
		}
	}
	bdev_nvme_rpc_write_policies(methods);
	bdev_nvme_rpc_write_discovery(methods);
	if (bdev_nvme_hotplug()) {
		json_t *params = json_object();
		json_object_set_new(params, "enable", json_true());
		rpc_config_add(methods, "bdev_nvme_set_hotplug", params);
	}
}
RPC_BDEV_CONFIG(nvme, .write_module = bdev_nvme_write_config)

/* --- Events --- */

static const char *const news_types[] = {
	[BDEV_NVME_CONNECTED] = "bdev_nvme_connected", [BDEV_NVME_LOST] = "bdev_nvme_lost",
	[BDEV_NVME_FAILED] = "bdev_nvme_failed",       [BDEV_NVME_DETACHED] = "bdev_nvme_detached",
	[BDEV_NVME_PATH_LOST] = "bdev_nvme_path_lost", [BDEV_NVME_PATH_REGAINED] = "bdev_nvme_path_regained",
	[BDEV_NVME_HEALTH] = "bdev_nvme_health",       [BDEV_NVME_DISABLED] = "bdev_nvme_disabled",
};

static void news_notify(const struct bdev_nvme *c, enum bdev_nvme_news news, const struct nvme_trid *path,
			const char *why)
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

static void fence_notify(const char *name, const struct nvme_trid *trid, uint16_t cntlid, const char *what)
{
	char text[768];

	snprintf(text, sizeof(text), "%s %s %s%s%s %u", name, nvme_trtype_name(trid->trtype), trid->traddr,
		 trid->trsvcid[0] != '\0' ? " " : "", trid->trsvcid, cntlid);
	notify_send_reason("bdev_nvme_fence", text, what);
}

__attribute__((constructor)) static void notify_of_controllers(void)
{
	notify_type_register("bdev_nvme_fence");
	bdev_nvme_observe_fences(fence_notify);
	for (size_t i = 0; i < sizeof(news_types) / sizeof(news_types[0]); i++) {
		notify_type_register(news_types[i]);
	}
	bdev_nvme_observe(news_notify);
}
