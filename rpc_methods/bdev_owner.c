/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that say which of several processes uses what is stored: bdev/owner.h. */
#include "bdev/owner.h"

#include "rpc_methods/bdev_module.h"

struct bdev_own_params {
	char *name;
	uint64_t until_us;
	bool fence;
};
static const struct rpc_param bdev_own_params[] = {
	RPC_PARAM(struct bdev_own_params, name, RPC_STRING, RPC_REQUIRED, "of a bdev that was made with standby"),
	RPC_PARAM(struct bdev_own_params, until_us, RPC_UINT64, RPC_OPTIONAL,
		  "end of the lease, microseconds of CLOCK_BOOTTIME; default: none", .min = 1, .max = INT64_MAX),
	RPC_PARAM(struct bdev_own_params, fence, RPC_BOOL, RPC_OPTIONAL,
		  "if another client of Ceph has the image, blocklist that client first"),
	RPC_PARAM_END};

static void owner_changed(void *req, int rc, const char *error)
{
	rpc_bdev_answer_true(req, rc, error);
}

static void own_waits_for(const void *params, char *text, size_t size)
{
	bdev_owner_waits_for(((const struct bdev_own_params *)params)->name, text, size);
}

static void disown_waits_for(const void *params, char *text, size_t size)
{
	bdev_owner_waits_for(((const struct rpc_bdev_by_name *)params)->name, text, size);
}

static void rpc_bdev_own(struct rpc_request *req, void *params)
{
	const struct bdev_own_params *p = params;

	bdev_own(p->name, p->until_us != 0 ? p->until_us : BDEV_OWN_FOR_EVER, p->fence, owner_changed, req);
}
RPC_METHOD("bdev_own", rpc_bdev_own, struct bdev_own_params, bdev_own_params, RPC_RUNTIME,
	   "Make a standby bdev the owner of what it stores, until the lease ends; again for an owner: set the lease's "
	   "end",
	   .result = "true", .waits_for = own_waits_for)

static void rpc_bdev_disown(struct rpc_request *req, void *params)
{
	bdev_disown(((const struct rpc_bdev_by_name *)params)->name, owner_changed, req);
}
RPC_METHOD("bdev_disown", rpc_bdev_disown, struct rpc_bdev_by_name, rpc_bdev_by_name_params, RPC_RUNTIME,
	   "Make a bdev a standby again; answered when no I/O is under way and others may own what it stores",
	   .result = "true", .waits_for = disown_waits_for)

static void rpc_bdev_get_owners(struct rpc_request *req, void *params)
{
	struct bdev_owner_info info;
	uint64_t now = bdev_owner_now_us();
	json_t *answer = json_array();

	for (size_t n = 0; bdev_owner_get(n, &info); n++) {
		json_t *bdev = rpc_bdev_params("name", info.name);
		json_object_set_new(bdev, "state", json_string(bdev_owner_state_name(info.state)));
		if (info.state == BDEV_OWNER_OWNER && info.until_us != BDEV_OWN_FOR_EVER) {
			rpc_bdev_add_uint(bdev, "lease_us", info.until_us > now ? info.until_us - now : 0);
		}
		if (info.state == BDEV_OWNER_DRAINING) {
			rpc_bdev_add_uint(bdev, "in_flight", info.in_flight);
		}
		json_array_append_new(answer, bdev);
	}
	rpc_reply(req, answer);
}
RPC_METHOD("bdev_get_owners", rpc_bdev_get_owners, struct rpc_no_params, NULL, RPC_RUNTIME,
	   "List the bdevs that were made with standby: whether they own what they store",
	   .result = "[{name: string, state: string, lease_us?: int, in_flight?: int}]")

static void end_notify(const char *name, const char *reason)
{
	notify_send_reason("bdev_owner_ended", name, reason);
}

__attribute__((constructor)) static void notify_of_ends(void)
{
	notify_type_register("bdev_owner_ended");
	bdev_owner_observe_ends(end_notify);
}
