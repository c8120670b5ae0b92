/* SPDX-License-Identifier: BSD-3-Clause */
/* The clients' operations: RPC methods, as the daemon has them, and the few functions of nvmf/nvmf.h that no method
 * calls. */
#include "unittest/overlap/model.h"

#include <stdarg.h>
#include <unistd.h>
#include "bdev/qos_group.h"
#include "bdev/vbdev/vbdev.h"
#include "bdev_modules/error/error.h"
#include "rpc/rpc.h"
#include "unittest/overlap/overlap.h"

struct call {
	TAILQ_ENTRY(call) link;
	struct ov_op op;
	struct model_call model;
	enum model_answer expected;
	bool answered, begun; /* begun: the function that began it has returned */
	char text[768];
	/* bdev_reset */
	struct user user;
	struct request *request;
};
static TAILQ_HEAD(, call) calls = TAILQ_HEAD_INITIALIZER(calls);

static const char *const ana_names[] = {"optimized", "non_optimized", "inaccessible", "change"};

static const char *tgt_name(unsigned t)
{
	static const char *const names[OV_TGTS] = {"T0", "T1"};

	return names[t % OV_TGTS];
}

const char *ov_sub_nqn(unsigned s)
{
	static const char *const nqns[OV_SUBS + 1] = {"nqn.2024-01.io.varve:s0", "nqn.2024-01.io.varve:s1",
						      "nqn.2024-01.io.varve:s2", NVMF_DISCOVERY_NQN};

	return nqns[s];
}

const char *ov_host_nqn(unsigned h)
{
	static const char *const nqns[OV_HOSTS] = {"nqn.2024-01.io.varve:h0", "nqn.2024-01.io.varve:h1",
						   "nqn.2024-01.io.varve:h2"};

	return nqns[h % OV_HOSTS];
}

static const char *bdev_name_of(unsigned b)
{
	static const char *const names[OV_BDEVS + OV_REMOTE_BDEVS] = {
		"b0", "b1", "b2", "b3", "b4", "b5", "d0", "EE_b0", "EE_d0", "p0", "p1", "R0n1", "R0n2", "R1n1", "R1n2"};

	return names[b % (OV_BDEVS + OV_REMOTE_BDEVS)];
}

const char *ov_bdev_name(unsigned bdev)
{
	return bdev_name_of(bdev);
}

bool ov_bdev_is_remote_store(const char *name)
{
	for (unsigned i = 0; i < OV_TGTS * OV_NSIDS; i++) {
		const struct model_ns *ns = &model_tgts[i / OV_NSIDS].sub[OV_BACK].ns[i % OV_NSIDS];
		if (ns->used && strcmp(bdev_name_of(ns->bdev), name) == 0) {
			return true;
		}
	}
	return false;
}

unsigned ov_ns_bdev_of(const struct ov_op *op)
{
	return op->kind == OV_ns_remote ? OV_BDEVS + op->a[3] % OV_REMOTE_BDEVS : op->a[3] % OV_BDEVS;
}

struct nvmf_tgt *ov_tgt(unsigned t)
{
	return nvmf_tgt_find(tgt_name(t));
}

/* ---- Answers ---- */

static void call_free(struct call *c)
{
	TAILQ_REMOVE(&calls, c, link);
	free(c);
}

static void call_end(struct call *c, bool success, int64_t result, const char *message)
{
	static const char *const expected[] = {"must succeed", "must fail", "may do either"};
	bool disturbed = model_is_disturbed(&c->model);

	ov_say("answer: %s: %s (%s)", c->text, success ? "done" : message,
	       disturbed ? "overlapped" : expected[c->expected]);
	if (c->answered) {
		ov_fail("answered twice: %s", c->text);
	}
	if (!disturbed && c->expected != MODEL_EITHER && success != (c->expected == MODEL_OK)) {
		ov_fail("%s %s, and its answer is: %s", c->text, expected[c->expected], success ? "done" : message);
	}
	c->answered = true;
	model_end(&c->model, success, result);
	if (c->begun) {
		call_free(c);
	}
}

static struct call *call_new(const struct ov_op *op)
{
	struct call *c = calloc(1, sizeof(*c));

	c->op = *op;
	model_find(&c->model, &c->op);
	c->expected = model_begin(&c->model);
	TAILQ_INSERT_TAIL(&calls, c, link);
	return c;
}

static void call_begun(struct call *c)
{
	c->begun = true;
	if (c->answered) {
		call_free(c);
	}
}

static void call_rpc_answered(void *arg, struct rpc_answer *answer)
{
	call_end(arg, answer->code == 0, answer->result != NULL ? json_integer_value(answer->result) : 0,
		 answer->message != NULL ? answer->message : "");
}

static void call_answered(void *arg, int status)
{
	call_end(arg, status == 0, 0, strerror(-status));
}

/* ---- RPC ---- */

static void call_method(struct call *c, const char *method, const char *fmt, va_list ap)
{
	size_t at = (size_t)snprintf(c->text, sizeof(c->text), "%s ", method);
	json_error_t error;

	vsnprintf(c->text + at, sizeof(c->text) - at, fmt, ap);
	for (char *q = c->text; (q = strchr(q, '\'')) != NULL;) {
		*q = '"';
	}
	ov_say("call: %s", c->text);
	json_t *params = rpc_json_load(c->text + at, strlen(c->text + at), &error);
	if (params == NULL) {
		ov_fail("%s: %s", c->text, error.text);
	}
	rpc_call_method(method, params, call_rpc_answered, c);
	json_decref(params);
	call_begun(c);
}

static void call_rpc(const struct ov_op *op, const char *method, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void call_rpc(const struct ov_op *op, const char *method, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	call_method(call_new(op), method, fmt, ap);
	va_end(ap);
}

void ov_call(const struct ov_op *op, unsigned expected, const unsigned *counter, const char *method, const char *fmt,
	     ...)
{
	struct call *c = call_new(op);
	va_list ap;

	c->expected = (enum model_answer)expected;
	model_watch(&c->model, counter);
	va_start(ap, fmt);
	call_method(c, method, fmt, ap);
	va_end(ap);
}

struct call *ov_call_begin(const struct ov_op *op, const char *fmt, ...)
{
	struct call *c = call_new(op);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->text, sizeof(c->text), fmt, ap);
	va_end(ap);
	ov_say("call: %s", c->text);
	c->begun = true;
	return c;
}

void ov_call_end(struct call *c, bool success)
{
	call_end(c, success, 0, success ? "" : "no");
}

#define SUB_FMT     "'tgt_name':'%s','nqn':'%s'"
#define SUB_ARGS    tgt_name(op->a[0]), ov_sub_nqn(op->a[1] % OV_SUBS)
#define ADDRESS_FMT "'listen_address':{'trtype':'LOOP','adrfam':'intra-host','traddr':'%s','trsvcid':'%s'}"
#define ADDRESS_ARGS                                                                                                   \
	op->a[2] % OV_ADDRS != 0 ? loop_other_address.traddr : loop_address.traddr,                                    \
		op->a[2] % OV_ADDRS != 0 ? loop_other_address.trsvcid : loop_address.trsvcid

static void control_look(const struct ov_op *op)
{
	static const char *const of_sub[] = {"nvmf_get_subsystems", "nvmf_subsystem_get_controllers",
					     "nvmf_subsystem_get_qpairs", "nvmf_subsystem_get_listeners"};
	static const char *const of_tgt[] = {"nvmf_get_stats", "nvmf_get_inflight", "nvmf_discovery_get_referrals"};
	unsigned n = op->a[2] % 7;

	if (n < 4) {
		call_rpc(op, of_sub[n], "{" SUB_FMT "}", SUB_ARGS);
	} else {
		call_rpc(op, of_tgt[n - 4], "{'tgt_name':'%s'}", tgt_name(op->a[0]));
	}
}

static void control_do_tgt(const struct ov_op *op)
{
	const char *name = tgt_name(op->a[0]);

	switch (op->kind) {
	case OV_tgt_create:
		call_rpc(op, "nvmf_create_target", "{'name':'%s','max_subsystems':8}", name);
		break;
	case OV_tgt_delete:
		call_rpc(op, "nvmf_delete_target", "{'name':'%s'}", name);
		break;
	case OV_transport_create:
		call_rpc(op, "nvmf_create_transport", "{'trtype':'LOOP','tgt_name':'%s'}", name);
		break;
	default:
		call_rpc(op,
			 op->kind == OV_referral_add ? "nvmf_discovery_add_referral" : "nvmf_discovery_remove_referral",
			 "{'tgt_name':'%s','address':{'trtype':'RDMA','traddr':'192.0.2.%u','trsvcid':'4420'}}", name,
			 op->a[1] % 4 + 1);
		break;
	}
}

/* ---- Files of reservations ---- */

#define PTPL_FMT "/dev/shm/varve-overlap-%d-%u-%u-%u"

void ov_ptpl_remove(int pid)
{
	static const char *const suffixes[] = {"", ".new", ".lock"};
	char path[128];

	for (unsigned i = 0; i < OV_TGTS * OV_SUBS * OV_NSIDS * 3; i++) {
		unsigned n = i / 3;
		snprintf(path, sizeof(path), PTPL_FMT "%s", pid, n / OV_NSIDS / OV_SUBS, n / OV_NSIDS % OV_SUBS,
			 n % OV_NSIDS + 1, suffixes[i % 3]);
		unlink(path);
	}
}

static const char *ptpl_params(const struct ov_op *op)
{
	static char text[256];
	unsigned t = op->a[0] % OV_TGTS, s = op->a[1] % OV_SUBS, nsid = op->a[2] % OV_NSIDS + 1;

	if (s == OV_BACK) { /* both targets export the same store */
		snprintf(text, sizeof(text), ",'uuid':'5e5e5e5e-0000-4000-8000-000000000f%u%u'", s, nsid);
		return text;
	}
	snprintf(text, sizeof(text), ",'ptpl_file':'" PTPL_FMT "','uuid':'5e5e5e5e-0000-4000-8000-000000000%u%u%u'",
		 getpid(), t, s, nsid, t, s, nsid);
	return (op->a[4] & 2) != 0 ? text : "";
}

static void control_do_ns(const struct ov_op *op)
{
	unsigned nsid = op->a[2] % OV_NSIDS + 1;

	switch (op->kind) {
	case OV_ns_add:
	case OV_ns_remote:
		call_rpc(op, "nvmf_subsystem_add_ns",
			 "{" SUB_FMT ",'namespace':{'nsid':%u,'bdev_name':'%s','no_auto_visible':%s%s}}", SUB_ARGS,
			 nsid, bdev_name_of(ov_ns_bdev_of(op)), (op->a[4] & 1) != 0 ? "true" : "false",
			 ptpl_params(op));
		break;
	case OV_ns_remove:
		call_rpc(op, "nvmf_subsystem_remove_ns", "{" SUB_FMT ",'nsid':%u}", SUB_ARGS, nsid);
		break;
	case OV_ns_ana_group:
		call_rpc(op, "nvmf_subsystem_set_ns_ana_group", "{" SUB_FMT ",'nsid':%u,'anagrpid':%u}", SUB_ARGS, nsid,
			 op->a[3] % OV_NSIDS + 1);
		break;
	default:
		call_rpc(op, op->kind == OV_ns_host_add ? "nvmf_ns_add_host" : "nvmf_ns_remove_host",
			 "{" SUB_FMT ",'nsid':%u,'host':'%s'}", SUB_ARGS, nsid, ov_host_nqn(op->a[3]));
		break;
	}
}

static const char *host_key_params(const struct ov_op *op)
{
	static char text[128];
	unsigned key = op->a[3] % (OV_KEYS + 1);

	snprintf(text, sizeof(text), ",'dhchap_key':'%s','dhchap_ctrlr_key':'" OV_CTRLR_KEY "'",
		 key != 0 ? ov_key_name(key) : "");
	return key != 0 ? text : "";
}

static void control_do_sub(const struct ov_op *op)
{
	switch (op->kind) {
	case OV_sub_create:
		call_rpc(op, "nvmf_create_subsystem",
			 "{" SUB_FMT ",'allow_any_host':%s,'ana_reporting':%s,'max_namespaces':%u,'min_cntlid':%u}",
			 SUB_ARGS, (op->a[2] & 3) != 0 ? "true" : "false", (op->a[2] & 4) != 0 ? "true" : "false",
			 OV_NSIDS, op->a[0] % OV_TGTS * 1000 + 1);
		break;
	case OV_sub_delete:
		call_rpc(op, "nvmf_delete_subsystem", "{" SUB_FMT "}", SUB_ARGS);
		break;
	case OV_listener_add:
		call_rpc(op, "nvmf_subsystem_add_listener", "{" SUB_FMT "," ADDRESS_FMT "}", SUB_ARGS, ADDRESS_ARGS);
		break;
	case OV_listener_remove:
		call_rpc(op, "nvmf_subsystem_remove_listener", "{" SUB_FMT "," ADDRESS_FMT "}", SUB_ARGS, ADDRESS_ARGS);
		break;
	case OV_listener_ana:
		call_rpc(op, "nvmf_subsystem_listener_set_ana_state", "{" SUB_FMT "," ADDRESS_FMT ",'ana_state':'%s'}",
			 SUB_ARGS, ADDRESS_ARGS, ana_names[op->a[3] % 4]);
		break;
	case OV_peer_add:
	case OV_peer_remove:
		call_rpc(op, op->kind == OV_peer_add ? "nvmf_subsystem_add_peer" : "nvmf_subsystem_remove_peer",
			 "{" SUB_FMT ",'path':'%s'}", SUB_ARGS, ov_peer_path(op->a[2]));
		break;
	case OV_any_host:
		call_rpc(op, "nvmf_subsystem_allow_any_host", "{" SUB_FMT ",'allow_any_host':%s}", SUB_ARGS,
			 (op->a[2] & 1) != 0 ? "true" : "false");
		break;
	case OV_sub_qos:
		if (op->a[2] % (OV_HOSTS + 1) == OV_HOSTS) {
			call_rpc(op, "nvmf_subsystem_set_qos_limit", "{" SUB_FMT ",'rw_ios_per_sec':%u}", SUB_ARGS,
				 op->a[3] % 3 * 500);
		} else {
			call_rpc(op, "nvmf_subsystem_set_qos_limit",
				 "{" SUB_FMT ",'host':'%s','rw_ios_per_sec':%u,'min_rw_ios_per_sec':%u}", SUB_ARGS,
				 ov_host_nqn(op->a[2] % (OV_HOSTS + 1)), op->a[3] % 3 * 100, op->a[3] / 3 % 2 * 100);
		}
		break;
	case OV_host_add:
	case OV_host_keys:
		call_rpc(op, op->kind == OV_host_add ? "nvmf_subsystem_add_host" : "nvmf_subsystem_set_keys",
			 "{" SUB_FMT ",'host':'%s'%s}", SUB_ARGS, ov_host_nqn(op->a[2]), host_key_params(op));
		break;
	default:
		call_rpc(op, "nvmf_subsystem_remove_host", "{" SUB_FMT ",'host':'%s'}", SUB_ARGS,
			 ov_host_nqn(op->a[2]));
		break;
	}
}

/* ---- States of subsystems: no method changes them ---- */

static void control_do_state(const struct ov_op *op)
{
	struct nvmf_tgt *tgt = ov_tgt(op->a[0]);
	struct nvmf_subsystem *s = tgt != NULL ? nvmf_subsystem_find(tgt, ov_sub_nqn(op->a[1] % OV_SUBS)) : NULL;

	if (s == NULL) {
		return;
	}
	struct call *c = call_new(op);
	snprintf(c->text, sizeof(c->text), "%s %s %s", ov_kind_names[op->kind], tgt_name(op->a[0]), s->nqn);
	ov_say("call: %s", c->text);
	switch (op->kind) {
	case OV_sub_pause:
		nvmf_subsystem_pause(s, op->a[2] % 8 == 7 ? NVME_NSID_ALL : op->a[2] % (OV_NSIDS + 1), call_answered,
				     c);
		break;
	case OV_sub_resume:
		nvmf_subsystem_resume(s, call_answered, c);
		break;
	case OV_sub_stop:
		nvmf_subsystem_stop(s, call_answered, c);
		break;
	default:
		nvmf_subsystem_start(s, call_answered, c);
		break;
	}
	call_begun(c);
}

/* ---- Bdevs ---- */

static void control_create_bdev(const struct ov_op *op)
{
	static const uint32_t latencies[] = {0, 0, 2000, 300000};
	const char *name = bdev_name_of(model_bdev_of(op));

	if (op->a[1] % 4 == 0) {
		call_rpc(op, "bdev_malloc_create", "{'name':'%s','block_size':%u,'num_blocks':%u}", name, OV_BLOCK,
			 OV_BLOCKS);
		return;
	}
	struct call *c = call_new(op);
	snprintf(c->text, sizeof(c->text), "slowdev_create %s, up to %u us", name, latencies[op->a[1] % 4]);
	ov_say("call: %s", c->text);
	call_answered(c, ov_slowdev_create(name, latencies[op->a[1] % 4]));
	call_begun(c);
}

static void control_delete_bdev(const struct ov_op *op)
{
	const char *name = bdev_name_of(model_bdev_of(op));

	if (model_bdevs[model_bdev_of(op)].is_malloc) {
		call_rpc(op, "bdev_malloc_delete", "{'name':'%s'}", name);
		return;
	}
	struct call *c = call_new(op);
	snprintf(c->text, sizeof(c->text), "slowdev_delete %s", name);
	ov_say("call: %s", c->text);
	ov_slowdev_delete(name, call_answered, c);
	call_begun(c);
}

static void reset_closed(void *arg)
{
	struct call *c = arg;

	user_close(&c->user);
	request_free(c->request);
	call_end(c, true, 0, "");
}

static void reset_done(struct bdev_io *io, void *arg)
{
	if (thread_send(thread_control(), reset_closed, arg) != 0) {
		ov_fail("no room for a message");
	}
}

static void reset_submit(void *arg)
{
	bdev_submit(((struct call *)arg)->request->io);
}

static void control_reset_bdev(const struct ov_op *op)
{
	struct call *c = call_new(op);

	snprintf(c->text, sizeof(c->text), "reset of %s", bdev_name_of(model_bdev_of(op)));
	int rc = user_open(&c->user, bdev_name_of(model_bdev_of(op)), false, fixture_thread(op->a[0] % 4));
	if (rc != 0) {
		call_answered(c, rc);
		call_begun(c);
		return;
	}
	c->request = request_new(&c->user);
	c->request->io->type = BDEV_IO_RESET;
	c->request->io->cb = reset_done;
	c->request->io->cb_arg = c;
	c->begun = true;
	ov_say("call: %s", c->text);
	while (thread_send(c->user.thread, reset_submit, c) != 0) {
	}
}

/* ---- Bdevs on others ---- */

bool ov_bdev_is_on(unsigned bdev, unsigned base)
{
	const struct bdev *b = bdev_find(bdev_name_of(bdev));

	return b != NULL && bdev_get_state(b) == BDEV_READY &&
	       strcmp(vbdev_base_name((const struct vbdev *)b), bdev_name_of(base)) == 0;
}

static bool bdev_waits(unsigned bdev)
{
	const struct vbdev_waiting *w = NULL;

	while ((w = vbdev_waiting_next(w)) != NULL && strcmp(w->name, bdev_name_of(bdev)) != 0) {
	}
	return w != NULL;
}

static void control_create_stack(const struct ov_op *op)
{
	const char *name = bdev_name_of(model_bdev_of(op)), *base = bdev_name_of(model_base_of(op));

	switch (op->a[0] % OV_STACKED) {
	case OV_STACKED_DELAY:
		call_rpc(op, "bdev_delay_create",
			 "{'name':'%s','base_bdev_name':'%s','avg_read_latency':0,'avg_write_latency':%u,"
			 "'p99_read_latency':9000,'p99_write_latency':400000}",
			 name, base, op->a[1] % 3 * 700);
		break;
	case OV_STACKED_ERROR:
	case OV_STACKED_ERROR_ON_DELAY:
		call_rpc(op, "bdev_error_create", "{'base_name':'%s'}", base);
		break;
	default:
		call_rpc(op, "bdev_passthru_create", "{'name':'%s','base_bdev_name':'%s'}", name, base);
		break;
	}
}

static void control_delete_stack(const struct ov_op *op)
{
	static const char *const methods[OV_STACKED] = {"bdev_delay_delete", "bdev_error_delete", "bdev_error_delete",
							"bdev_passthru_delete", "bdev_passthru_delete"};

	call_rpc(op, methods[op->a[0] % OV_STACKED], "{'name':'%s'}", bdev_name_of(model_bdev_of(op)));
}

static void control_fault_stack(const struct ov_op *op)
{
	static const char *const faults[] = {"failure", "pending", "nomem"};
	const char *name = bdev_name_of(model_bdev_of(op));

	if (op->a[0] % OV_STACKED == OV_STACKED_DELAY) {
		call_rpc(op, "bdev_delay_update_latency",
			 "{'delay_bdev_name':'%s','latency_type':'%s','latency_us':%u}", name,
			 (op->a[1] & 1) != 0 ? "avg_write" : "avg_read", op->a[1] % 4 * 50000);
	} else if (op->a[1] % 4 == 3) {
		call_rpc(op, "bdev_error_resume_pending", "{'name':'%s'}", name);
	} else {
		call_rpc(op, "bdev_error_inject_error", "{'name':'%s','io_type':'all','error_type':'%s','num':%u}",
			 name, faults[op->a[1] % 4], op->a[1] / 4 % 8 + 1);
	}
}

void ov_stacks_release(void)
{
	const struct bdev_error_injection none = {.clear = true};
	char error[BDEV_ERROR_MAX];

	for (unsigned b = OV_DISKS + OV_STACKED_ERROR; b <= OV_DISKS + OV_STACKED_ERROR_ON_DELAY; b++) {
		if (bdev_find(bdev_name_of(b)) != NULL) {
			bdev_error_inject(bdev_name_of(b), &none, error);
			bdev_error_resume_pending(bdev_name_of(b), error);
		}
	}
}

/* Groups of bdevs that share limits, or what a bdev is to be in one of them. */
static void control_group_bdev(const struct ov_op *op, const char *name)
{
	static const unsigned minimums[] = {0, 300, 1000, 2000}, limits[] = {0, 1, 1000, 2000};
	unsigned group = op->a[1] % OV_GROUPS;

	switch (model_group_what_of(op)) {
	case MODEL_GROUP_CREATE:
		call_rpc(op, "bdev_qos_group_create", "{'name':'g%u','rw_ios_per_sec':2000}", group);
		break;
	case MODEL_GROUP_DELETE:
		call_rpc(op, "bdev_qos_group_delete", "{'name':'g%u'}", group);
		break;
	case MODEL_GROUP_LIMIT:
		call_rpc(op, "bdev_qos_group_set_limit", "{'name':'g%u','rw_ios_per_sec':%u}", group,
			 limits[op->a[2] / 8 % 4]);
		break;
	case MODEL_GROUP_LEAVE:
		call_rpc(op, "bdev_set_qos_group", "{'name':'%s','group':''}", name);
		break;
	default:
		call_rpc(op, "bdev_set_qos_group", "{'name':'%s','group':'g%u','min_rw_ios_per_sec':%u}", name, group,
			 minimums[op->a[2] / 8 % 4]);
	}
}

static void control_do_bdev(const struct ov_op *op)
{
	const char *name = bdev_name_of(model_bdev_of(op));

	switch (op->kind) {
	case OV_stack_create:
		control_create_stack(op);
		break;
	case OV_stack_delete:
		control_delete_stack(op);
		break;
	case OV_stack_fault:
		control_fault_stack(op);
		break;
	case OV_bdev_create:
		control_create_bdev(op);
		break;
	case OV_bdev_delete:
		control_delete_bdev(op);
		break;
	case OV_bdev_resize:
		ov_slowdev_resize(name, OV_BLOCKS + op->a[1] % OV_BLOCKS);
		break;
	case OV_bdev_qos:
		call_rpc(op, "bdev_set_qos_limit", "{'name':'%s','rw_ios_per_sec':%u}", name, op->a[1] % 3 * 1000);
		break;
	case OV_bdev_group:
		control_group_bdev(op, name);
		break;
	case OV_bdev_timeout:
		call_rpc(op, "bdev_set_timeout", "{'name':'%s','timeout_us':%u}", name, op->a[1] % 4 * 500000);
		break;
	case OV_bdev_stick:
		ov_slowdev_stick(name, op->a[1] % 3 == 2 ? OV_STICK_DEAF : OV_STICK_ABORTABLE);
		break;
	case OV_bdev_unstick:
		ov_slowdev_unstick(name);
		break;
	default:
		control_reset_bdev(op);
		break;
	}
}

/* Most of what is added is a bdev that no namespace has. */
static void control_pick_bdev(struct ov_op *op)
{
	for (unsigned i = 0; i < OV_BDEVS; i++) {
		unsigned b = (op->a[3] + i) % OV_BDEVS;
		if (model_bdevs[b].exists && !model_bdevs[b].deleting && !model_bdevs[b].leaving &&
		    !model_bdev_in_use(b)) {
			op->a[3] = (uint8_t)b;
			return;
		}
	}
}

bool ov_control_do(const struct ov_op *given)
{
	struct ov_op picked = *given, *op = &picked;

	bool back = op->a[1] % OV_SUBS == OV_BACK;
	if (op->kind == OV_ns_add && op->a[4] % 8 > 1) {
		control_pick_bdev(op);
	}
	if (op->kind == OV_ns_add && back) { /* error bdevs may keep I/O for ever */
		op->a[3] = (uint8_t)(op->a[3] % OV_BDEVS % OV_DISKS);
	}
	if (op->kind == OV_ns_remote) { /* a target's subsystem that is its own remote would be a circle */
		op->a[1] = op->a[1] % OV_SUBS % OV_BACK;
	}
	if ((op->kind == OV_host_add || op->kind == OV_host_keys) && !back) {
		op->a[3] = 0; /* the hosts of host.c know no keys */
	}
	if (op->kind <= OV_transport_create || op->kind == OV_referral_add || op->kind == OV_referral_remove) {
		control_do_tgt(op);
	} else if (op->kind == OV_look) {
		control_look(op);
	} else if (op->kind >= OV_sub_pause && op->kind <= OV_sub_start) {
		control_do_state(op);
	} else if (op->kind >= OV_ns_add && op->kind <= OV_ns_host_remove) {
		control_do_ns(op);
	} else if (op->kind < OV_look) {
		control_do_sub(op);
	} else if (op->kind <= OV_stack_fault) {
		control_do_bdev(op);
	} else {
		return ov_remote_do(op);
	}
	return true;
}

/* ---- Looking ---- */

void ov_control_reset(void)
{
	model_reset();
	ov_ptpl_remove(getpid());
}

unsigned ov_control_outstanding(void)
{
	struct call *c;
	unsigned n = 0;

	TAILQ_FOREACH (c, &calls, link) {
		n++;
	}
	return n;
}

void ov_control_print(void)
{
	struct call *c;

	TAILQ_FOREACH (c, &calls, link) {
		fprintf(stderr, "  not answered: %s\n", c->text);
	}
}

static void compare_ns(const struct nvmf_subsystem *s, unsigned n, const struct model_ns *m)
{
	const struct nvmf_ns *ns = nvmf_ns_find(s, n + 1);

	if (ns == NULL && m->used && m->bdev >= OV_BDEVS) {
		return; /* the remote target has taken its bdev away */
	}
	if ((ns != NULL) != m->used) {
		ov_fail("namespace %u of %s %s", n + 1, s->nqn,
			ns != NULL ? "is there, although it was removed" : "is not there, although nobody removed it");
	}
	if (ns == NULL) {
		return;
	}
	if (strcmp(nvmf_ns_bdev_name(ns), bdev_name_of(m->bdev)) != 0) {
		ov_fail("namespace %u of %s has bdev %s instead of %s", n + 1, s->nqn, nvmf_ns_bdev_name(ns),
			bdev_name_of(m->bdev));
	}
	if (ns->removing || ns->opts.no_auto_visible != m->listed || ns->opts.anagrpid != m->group) {
		ov_fail("namespace %u of %s: removing %d, no_auto_visible %d, ANA group %u instead of 0, %d, %u", n + 1,
			s->nqn, ns->removing, ns->opts.no_auto_visible, ns->opts.anagrpid, m->listed, m->group);
	}
	for (unsigned h = 0; h < OV_HOSTS; h++) {
		if ((nvmf_hosts_find(&ns->hosts, ov_host_nqn(h)) != NULL) != ((m->hosts >> h & 1) != 0)) {
			ov_fail("namespace %u of %s: host %u of its list", n + 1, s->nqn, h);
		}
	}
}

static void compare_sub(const struct nvmf_subsystem *s, const struct model_sub *m)
{
	static const struct nvmf_address *const addresses[OV_ADDRS] = {&loop_address, &loop_other_address};

	for (unsigned n = 0; n < OV_NSIDS; n++) {
		compare_ns(s, n, &m->ns[n]);
	}
	for (unsigned a = 0; a < OV_ADDRS; a++) {
		if ((nvmf_subsystem_find_listener(s, addresses[a]) != NULL) != ((m->listeners >> a & 1) != 0)) {
			ov_fail("%s: listener %u is not what the answers say", s->nqn, a);
		}
	}
	for (unsigned h = 0; h < OV_HOSTS; h++) {
		if ((nvmf_hosts_find(&s->hosts, ov_host_nqn(h)) != NULL) != ((m->hosts >> h & 1) != 0)) {
			ov_fail("%s: host %u is not what the answers say", s->nqn, h);
		}
	}
	unsigned peers = 0;
	for (const struct nvmf_peer *p = nvmf_peer_next(s, NULL); p != NULL; p = nvmf_peer_next(s, p)) {
		peers |= 1u << (strcmp(nvmf_peer_path(p), ov_peer_path(0)) != 0);
	}
	if (peers != m->peers || s->peer_requests != 0) {
		ov_fail("%s: peers 0x%x instead of 0x%x, %u requests to them", s->nqn, peers, m->peers,
			s->peer_requests);
	}
	if (s->allow_any_host != m->any || !STAILQ_EMPTY(&s->ops) || !TAILQ_EMPTY(&s->waiters)) {
		ov_fail("%s: allow_any_host %d instead of %d; %s", s->nqn, s->allow_any_host, m->any,
			!STAILQ_EMPTY(&s->ops)      ? "operations wait"
			: !TAILQ_EMPTY(&s->waiters) ? "somebody waits for controllers to go"
						    : "");
	}
}

void ov_control_compare(void)
{
	for (unsigned t = 0; t < OV_TGTS; t++) {
		struct nvmf_tgt *tgt = ov_tgt(t);
		if ((tgt != NULL) != model_tgts[t].exists) {
			ov_fail("target %s is %sthere", tgt_name(t), tgt != NULL ? "" : "not ");
		}
		for (unsigned s = 0; tgt != NULL && s < OV_SUBS; s++) {
			const struct nvmf_subsystem *sub = nvmf_subsystem_find(tgt, ov_sub_nqn(s));
			if ((sub != NULL) != model_tgts[t].sub[s].exists) {
				ov_fail("subsystem %s of %s is %sthere", ov_sub_nqn(s), tgt_name(t),
					sub != NULL ? "" : "not ");
			}
			if (sub != NULL) {
				compare_sub(sub, &model_tgts[t].sub[s]);
			}
		}
	}
	for (unsigned g = 0; g < OV_GROUPS; g++) {
		const char name[] = {'g', (char)('0' + g), '\0'};
		if ((bdev_qos_group_find(name) != NULL) != model_groups[g].exists) {
			ov_fail("QoS group %s is %sthere", name, model_groups[g].exists ? "not " : "");
		}
	}
	for (unsigned b = 0; b < OV_BDEVS; b++) {
		if ((bdev_find(bdev_name_of(b)) != NULL) != model_bdevs[b].exists) {
			ov_fail("bdev %s is %sthere", bdev_name_of(b), model_bdevs[b].exists ? "not " : "");
		}
		if (bdev_waits(b) != (model_bdevs[b].promised && !model_bdevs[b].exists)) {
			ov_fail("bdev %s %s", bdev_name_of(b),
				bdev_waits(b) ? "waits for its base, and nobody wants it"
					      : "is neither there nor waits");
		}
	}
}

void ov_control_delete_groups(void)
{
	for (unsigned g = 0; g < OV_GROUPS; g++) {
		if (model_groups[g].exists) {
			control_group_bdev(
				&(struct ov_op){.kind = OV_bdev_group, .a = {0, (uint8_t)g, MODEL_GROUP_DELETE}}, "");
		}
	}
}

void ov_control_lift_limits(void)
{
	static const struct rate_limits none;
	enum rate_bucket_id id;

	for (struct bdev_qos_group *g = NULL; (g = bdev_qos_group_next(g)) != NULL;) {
		if (bdev_qos_group_set_limits(g, &none, &id) != 0) {
			ov_fail("the limits of group %s are not lifted", bdev_qos_group_name(g));
		}
	}
}

void ov_control_give_access(void)
{
	for (unsigned i = 0; i < OV_TGTS * OV_ADDRS; i++) {
		uint8_t t = (uint8_t)(i / OV_ADDRS), a = (uint8_t)(i % OV_ADDRS);
		const struct model_sub *s = &model_tgts[t].sub[OV_BACK];
		if (s->exists && s->ana && (s->listeners >> a & 1) != 0) {
			control_do_sub(&(struct ov_op){.kind = OV_listener_ana, .a = {t, OV_BACK, a}});
		}
	}
}

void ov_control_delete_targets(void)
{
	for (unsigned t = 0; t < OV_TGTS; t++) {
		if (model_tgts[t].exists && !model_tgts[t].deleting) {
			control_do_tgt(&(struct ov_op){.kind = OV_tgt_delete, .a = {(uint8_t)t}});
		}
	}
}

void ov_control_delete_bdevs(void)
{
	for (unsigned b = 0; b < OV_BDEVS; b++) {
		const struct model_bdev *m = &model_bdevs[b];
		if (b < OV_DISKS && m->exists && !m->deleting) {
			control_do_bdev(&(struct ov_op){.kind = OV_bdev_delete, .a = {(uint8_t)b}});
		} else if (b >= OV_DISKS && m->promised && !m->deleting) {
			control_do_bdev(&(struct ov_op){.kind = OV_stack_delete, .a = {(uint8_t)(b - OV_DISKS)}});
		}
	}
}
