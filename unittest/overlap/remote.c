/* SPDX-License-Identifier: BSD-3-Clause */
/* Controllers of remote targets: bdev_nvme on the wire of wire.c. Their target is one of this process's, so a write may
 * come from a host through a front, which is one target, to the other one. The rule that no write is carried out after
 * its host has been told that it has ended holds through both. */
#include "unittest/overlap/wire.h"

#include "bdev_modules/nvme/bdev_nvme.h"
#include "unittest/overlap/model.h"

#define IO_BYTES 4096

bool ov_plant_no_fences;

static const char *remote_name(unsigned r)
{
	static const char *const names[OV_REMOTES] = {"R0", "R1"};

	return names[r % OV_REMOTES];
}

static const char *remote_bdev(const struct ov_op *op)
{
	return ov_bdev_name(OV_BDEVS + op->a[0] % OV_REMOTE_BDEVS);
}

static enum model_answer fails_unless(bool truth)
{
	return truth ? MODEL_EITHER : MODEL_FAILS;
}

/* ---- Attach ---- */

/* The key that the host proves to have: mostly the one that the target wants. */
static unsigned attach_key(const struct ov_op *op, unsigned wanted)
{
	unsigned choice = op->a[3] / 4 % 8;

	return choice < OV_KEYS + 1 ? choice : wanted;
}

static const char *attach_key_params(unsigned key, bool both)
{
	static char text[128];

	if (key == 0) {
		return "";
	}
	snprintf(text, sizeof(text), ",'dhchap_key':'%s'%s", ov_key_name(key),
		 both ? ",'dhchap_ctrlr_key':'" OV_CTRLR_KEY "'" : "");
	return text;
}

/* Timeouts are short: everything ends. */
static const char *attach_time_params(const struct ov_op *op)
{
	static const char *const times[] = {
		"'ctrlr_loss_timeout_sec':0,'reconnect_delay_sec':0,'fast_io_fail_timeout_sec':0",
		"'ctrlr_loss_timeout_sec':3,'reconnect_delay_sec':1,'fast_io_fail_timeout_sec':1",
		"'ctrlr_loss_timeout_sec':10,'reconnect_delay_sec':1,'fast_io_fail_timeout_sec':0",
		"'ctrlr_loss_timeout_sec':60,'reconnect_delay_sec':2,'fast_io_fail_timeout_sec':20",
	};

	return times[op->a[4] % 4];
}

static const char *attach_mode_params(const struct ov_op *op)
{
	static const char *const modes[] = {
		"",
		",'multipath':'multipath','multipath_opts':{'policy':'active_active'}",
		",'multipath':'multipath'",
		",'multipath':'multipath'",
		",'multipath':'failover'",
		",'multipath':'disable'",
	};

	return modes[op->a[4] / 4 % (sizeof(modes) / sizeof(modes[0]))];
}

/* It becomes another address of a controller, which is tried when the connection is lost, and not before. */
static bool attach_adds_address(const struct ov_op *op)
{
	return strstr(attach_mode_params(op), "'failover'") != NULL && bdev_nvme_find(remote_name(op->a[0])) != NULL;
}

static void remote_attach(const struct ov_op *op)
{
	unsigned h = op->a[3] % OV_HOSTS, t = op->a[1] % OV_TGTS;
	const struct nvmf_address *address = op->a[2] % OV_ADDRS != 0 ? &loop_other_address : &loop_address;
	struct model_sub *sub = &model_tgts[t].sub[OV_BACK];
	unsigned wanted = sub->keys[h], key = attach_key(op, wanted);
	char traddr[OV_WIRE_ADDRESS_MAX];

	ov_wire_address(t, address, traddr);
	ov_call(op, fails_unless(wanted == 0 || key == wanted || attach_adds_address(op)), &sub->keys_changed[h],
		"bdev_nvme_attach_controller",
		"{'name':'%s','trtype':'LOOP','traddr':'%s','trsvcid':'%s','subnqn':'%s','hostnqn':'%s',%s%s%s%s}",
		remote_name(op->a[0]), traddr, address->trsvcid, ov_sub_nqn(OV_BACK), ov_host_nqn(h),
		attach_time_params(op), attach_mode_params(op), attach_key_params(key, op->a[4] / 64 % 2 != 0),
		ov_plant_no_fences ? ",'fence_timeout_ms':0" : "");
}

/* ---- What is there ---- */

static unsigned number_of_target(const struct nvme_trid *trid)
{
	return trid->traddr[1] == '1';
}

/* Whether a call that names a controller can work: it exists. */
static enum model_answer if_attached(unsigned r)
{
	return fails_unless(bdev_nvme_find(remote_name(r)) != NULL);
}

static void remote_detach(const struct ov_op *op)
{
	const struct bdev_nvme *c = bdev_nvme_find(remote_name(op->a[0]));
	char traddr[OV_WIRE_ADDRESS_MAX];

	if (op->a[1] % 2 != 0) { /* one path only */
		ov_wire_address(op->a[2], &loop_address, traddr);
		ov_call(op, if_attached(op->a[0]), NULL, "bdev_nvme_detach_controller", "{'name':'%s','traddr':'%s'}",
			remote_name(op->a[0]), traddr);
		return;
	}
	/* bdev_nvme_find() prefers one that is connected */
	bool up = c != NULL && strcmp(bdev_nvme_state_name(c), "enabled") == 0;
	ov_call(op, up ? MODEL_OK : if_attached(op->a[0]), NULL, "bdev_nvme_detach_controller", "{'name':'%s'}",
		remote_name(op->a[0]));
}

static void remote_set_keys(const struct ov_op *op)
{
	const struct bdev_nvme *c = bdev_nvme_find(remote_name(op->a[0]));
	unsigned key = op->a[1] % (OV_KEYS + 1);
	enum model_answer expected = if_attached(op->a[0]);
	const unsigned *counter = NULL;

	for (unsigned h = 0; c != NULL && h < OV_HOSTS; h++) {
		struct model_sub *sub = &model_tgts[number_of_target(&bdev_nvme_attached(c)->trid)].sub[OV_BACK];
		if (strcmp(bdev_nvme_attached(c)->hostnqn, ov_host_nqn(h)) == 0 &&
		    nvme_ctrlr_state(bdev_nvme_ctrlr(c)) == NVME_CTRLR_READY &&
		    !nvme_ctrlr_is_ending(bdev_nvme_ctrlr(c))) {
			/* otherwise the keys are for the next connection, and the answer says nothing of them */
			key = op->a[1] / 4 % 4 != 0 ? sub->keys[h] : key;
			expected = sub->keys[h] != 0 && key != 0 && key != sub->keys[h] ? MODEL_FAILS : MODEL_EITHER;
			counter = &sub->keys_changed[h];
		}
	}
	ov_call(op, expected, counter, "bdev_nvme_set_keys", "{'name':'%s'%s}", remote_name(op->a[0]),
		attach_key_params(key, (op->a[1] & 64) != 0));
}

static void remote_set_policy(const struct ov_op *op)
{
	static const char *const policies[] = {
		"'policy':'active_passive'",
		"'policy':'active_active','selector':'round_robin','rr_min_io':3",
		"'policy':'active_active','selector':'queue_depth'",
	};

	ov_call(op, fails_unless(bdev_find(remote_bdev(op)) != NULL), NULL, "bdev_nvme_set_multipath_policy",
		"{'name':'%s',%s}", remote_bdev(op), policies[op->a[1] % 3]);
}

static void remote_inject(const struct ov_op *op)
{
	static const char *const injections[] = {
		"'cmd_type':'io','opc':1,'err_count':2,'sct':0,'sc':6",
		"'cmd_type':'io','opc':1,'err_count':2,'do_not_submit':true,'sct':3,'sc':112",
		"'cmd_type':'io','opc':2,'err_count':3,'timeout_in_us':3000000,'do_not_submit':true",
		"'cmd_type':'admin','opc':6,'err_count':1,'sct':0,'sc':6",
	};

	ov_call(op, if_attached(op->a[0]), NULL, "bdev_nvme_add_error_injection", "{'name':'%s',%s}",
		remote_name(op->a[0]), injections[op->a[1] % 4]);
}

static void remote_look(const struct ov_op *op)
{
	static const char *const methods[] = {"bdev_nvme_get_controllers", "bdev_nvme_get_io_paths",
					      "bdev_nvme_get_discovery_info", "bdev_get_bdevs"};

	ov_call(op, MODEL_OK, NULL, methods[op->a[0] % 4], "{}");
}

/* ---- I/O of a user of the bdev ---- */

struct remote_io {
	struct call *call;
	struct user user;
	struct request *request;
	struct iovec iov;
	uint32_t write;
	uint8_t data[IO_BYTES] __attribute__((aligned(64)));
};

static void io_closed(void *arg)
{
	struct remote_io *io = arg;

	ov_write_end(io->write);
	user_close(&io->user);
	request_free(io->request);
	ov_call_end(io->call, true);
	free(io);
}

static void io_done(struct bdev_io *bdev_io, void *arg)
{
	if (thread_send(thread_control(), io_closed, arg) != 0) {
		ov_fail("no room for a message");
	}
}

static void io_submit(void *arg)
{
	bdev_submit(((struct remote_io *)arg)->request->io);
}

static void remote_io(const struct ov_op *op)
{
	static const enum bdev_io_type types[] = {BDEV_IO_WRITE, BDEV_IO_READ,  BDEV_IO_WRITE,
						  BDEV_IO_FLUSH, BDEV_IO_RESET, BDEV_IO_WRITE};
	enum bdev_io_type type = types[op->a[2] % (sizeof(types) / sizeof(types[0]))];
	struct remote_io *io = aligned_alloc(64, (sizeof(*io) + 63) & ~(size_t)63);

	memset(io, 0, sizeof(*io));
	if (user_open(&io->user, remote_bdev(op), type == BDEV_IO_WRITE, fixture_thread(op->a[1] % 4)) != 0) {
		free(io); /* it is not there, or a namespace has it */
		return;
	}
	io->call = ov_call_begin(op, "I/O of type %d of %s", type, remote_bdev(op));
	io->request = request_new(&io->user);
	io->iov = (struct iovec){io->data, IO_BYTES};
	if (type == BDEV_IO_WRITE) {
		io->write = ov_write_begin(io->data, IO_BYTES);
	}
	if (type == BDEV_IO_RESET) {
		io->request->io->type = type;
	} else {
		bdev_io_set_rw(io->request->io, type, &io->iov, type != BDEV_IO_FLUSH, op->a[3] % 8 * 8,
			       IO_BYTES / OV_BLOCK);
	}
	io->request->io->cb = io_done;
	io->request->io->cb_arg = io;
	while (thread_send(io->user.thread, io_submit, io) != 0) {
	}
}

/* ---- Operations ---- */

static void discovery_start(const struct ov_op *op)
{
	/* without a limit it may wait for a discovery controller for ever */
	static const char *const waits[] = {"", "", ",'wait_for_attach':true,'attach_timeout_ms':2000",
					    ",'attach_timeout_ms':20000"};
	char traddr[OV_WIRE_ADDRESS_MAX];

	ov_wire_address(0, &loop_address, traddr); /* its log names addresses without targets: the first one's */
	ov_call(op, MODEL_EITHER, NULL, "bdev_nvme_start_discovery",
		"{'name':'D','trtype':'LOOP','traddr':'%s','trsvcid':'1','hostnqn':'%s','ctrlr_loss_timeout_sec':3,"
		"'reconnect_delay_sec':1,'fast_io_fail_timeout_sec':1%s}",
		traddr, ov_host_nqn(op->a[0]), waits[op->a[1] % 4]);
}

static void discovery_stop(const struct ov_op *op)
{
	ov_call(op, fails_unless(bdev_nvme_discovery_find("D") != NULL), NULL, "bdev_nvme_stop_discovery",
		"{'name':'D'}");
}

bool ov_remote_do(const struct ov_op *op)
{
	switch (op->kind) {
	case OV_remote_attach:
		remote_attach(op);
		break;
	case OV_remote_detach:
		remote_detach(op);
		break;
	case OV_remote_reset:
		ov_call(op, if_attached(op->a[0]), NULL, "bdev_nvme_reset_controller", "{'name':'%s'}",
			remote_name(op->a[0]));
		break;
	case OV_remote_policy:
		remote_set_policy(op);
		break;
	case OV_remote_keys:
		remote_set_keys(op);
		break;
	case OV_remote_inject:
		remote_inject(op);
		break;
	case OV_remote_look:
		remote_look(op);
		break;
	case OV_remote_io:
		remote_io(op);
		break;
	case OV_remote_lose:
		ov_wire_lose(op->a[0], (enum ov_loss)(op->a[1] % OV_LOSSES), op->a[2] % 4 != 0);
		break;
	case OV_remote_heal:
		ov_wire_heal();
		break;
	case OV_discovery_start:
		discovery_start(op);
		break;
	case OV_discovery_stop:
		discovery_stop(op);
		break;
	default:
		return false;
	}
	return true;
}

/* ---- The end ---- */

void ov_remotes_release(void)
{
	ov_wire_heal();
}

/* Whether the controller knows the namespaces that its target has, and no others. */
static bool ctrlr_agrees(const struct bdev_nvme *c)
{
	const struct nvme_trid *trid = &bdev_nvme_attached(c)->trid;
	struct nvmf_tgt *tgt = ov_tgt(number_of_target(trid));
	const struct nvmf_subsystem *s = tgt != NULL ? nvmf_subsystem_find(tgt, trid->subnqn) : NULL;
	const struct nvme_ns *ns = NULL;
	unsigned known = 0, there = 0;

	if (strcmp(bdev_nvme_state_name(c), "enabled") != 0) {
		return true;
	}
	while ((ns = nvme_ctrlr_next_ns(bdev_nvme_ctrlr(c), ns != NULL ? ns->nsid : 0)) != NULL) {
		known |= 1u << ns->nsid;
	}
	for (unsigned n = 1; s != NULL && n <= OV_NSIDS; n++) {
		const struct nvmf_ns *remote = nvmf_ns_find(s, n);
		bool visible =
			remote != NULL && (!remote->opts.no_auto_visible ||
					   nvmf_hosts_find(&remote->hosts, bdev_nvme_attached(c)->hostnqn) != NULL);
		there |= visible ? 1u << n : 0;
	}
	return known == there;
}

bool ov_remotes_agree(void)
{
	for (const struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		if (!ctrlr_agrees(c)) {
			return false;
		}
	}
	return true;
}

void ov_remotes_delete(void)
{
	if (bdev_nvme_discovery_find("D") != NULL) {
		discovery_stop(&(struct ov_op){.kind = OV_discovery_stop});
	}
	for (unsigned r = 0; r < OV_REMOTES; r++) {
		if (bdev_nvme_find(remote_name(r)) != NULL) {
			remote_detach(&(struct ov_op){.kind = OV_remote_detach, .a = {(uint8_t)r}});
		}
	}
}

bool ov_remotes_gone(void)
{
	struct bdev_nvme_fence_info info;

	return bdev_nvme_next(NULL) == NULL && bdev_nvme_discovery_next(NULL) == NULL && ov_wire_is_gone() &&
	       bdev_nvme_fence_next(NULL, &info) == NULL;
}

void ov_remotes_print(void)
{
	for (const struct bdev_nvme *c = NULL; (c = bdev_nvme_next(c)) != NULL;) {
		fprintf(stderr, "  controller %s at %s: %s, %s\n", bdev_nvme_name(c),
			bdev_nvme_attached(c)->trid.traddr, bdev_nvme_state_name(c),
			ctrlr_agrees(c) ? "its namespaces are the target's" : "its namespaces are not the target's");
	}
	ov_wire_print();
}
