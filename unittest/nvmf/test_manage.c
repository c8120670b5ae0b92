/* SPDX-License-Identifier: BSD-3-Clause */
/* Every management operation in every state of its target and subsystem; creations that fail half-way; deletions that
 * overlap. */
#include <errno.h>
#include <unistd.h>

#include "unittest/nvmf/loop.h"

#define SUBNQN "nqn.2024-01.io.varve:manage"
#define HOST   "nqn.2024-01.io.varve:allowed"
#define SLOW   1 /* nsid of the namespace whose commands do not end before release() */
#define PLAIN  2 /* nsid of the namespace that HOST sees */

/* ---- Memory that runs out ---- */

static int allocations_left = -1; /* of the control thread; negative: no limit */

static bool allocation_fails(void)
{
	return thread_current() == thread_control() && allocations_left >= 0 && allocations_left-- == 0;
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
	return allocation_fails() ? NULL : __real_malloc(size);
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : __real_calloc(n, size);
}

char *__real_strdup(const char *s);
char *__wrap_strdup(const char *s);
char *__wrap_strdup(const char *s)
{
	return allocation_fails() ? NULL : __real_strdup(s);
}

/* ---- A second target ---- */

static struct nvmf_tgt *tgt;
static struct nvmf_subsystem *s;
static struct testdev *slow;
static struct loop_conn *admin, *io;
static struct loop_cmd held_read;
static struct loop_wait tgt_stopped, subsystem_gone;
static uint8_t buf[4096];

static void tgt_create(void)
{
	struct nvmf_transport_opts topts;
	cpu_set_t cores;

	CPU_ZERO(&cores);
	CPU_SET(1, &cores);
	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "second", .cores = &cores}, &tgt), 0);
	nvmf_transport_opts_init("LOOP", &topts);
	CU_ASSERT_EQUAL_FATAL(nvmf_transport_create(tgt, "loop", &topts, (char[NVMF_ERROR_MAX]){0}), 0);
	atomic_store(&tgt_stopped.status, LOOP_PENDING);
	atomic_store(&subsystem_gone.status, LOOP_PENDING);
}

static void subsystem_create(void)
{
	struct nvmf_subsystem_opts opts = {.allow_any_host = true, .ana_reporting = true};
	char why[NVMF_ERROR_MAX];
	uint32_t nsid;

	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_create(tgt, SUBNQN, &opts, &s), 0);
	slow = testdev_new("slow", 512, 1000);
	slow->hold = true;
	CU_ASSERT_EQUAL_FATAL(testdev_register(slow), 0);
	make_malloc("plain", 512, 1000);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(s, "slow", &(struct nvmf_ns_opts){.nsid = SLOW}, &nsid), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(s, "plain",
						    &(struct nvmf_ns_opts){.nsid = PLAIN, .no_auto_visible = true},
						    &nsid),
			      0);
	CU_ASSERT_EQUAL_FATAL(nvmf_ns_add_host(s, PLAIN, HOST), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_listener(s, &loop_address), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_host(s, HOST, NULL, NULL, why), 0);
}

static void wait_for(struct loop_wait *w)
{
	CU_ASSERT_EQUAL_FATAL(loop_wait_for(w), 0);
}

static bool is_held(void *arg)
{
	return atomic_load(&slow->held) != 0;
}

/* A host with a read under way that does not end. */
static void host_attach(void)
{
	loop_use_tgt = tgt;
	admin = loop_attach(SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
	loop_cmd_init(&held_read, io, nvme_cmd_read, SLOW);
	loop_cmd_data(&held_read, buf, 512);
	loop_submit(&held_read);
	CU_ASSERT_TRUE_FATAL(loop_until(is_held, NULL));
}

static void release(void)
{
	struct user u;

	slow->hold = false;
	if (atomic_load(&slow->held) != 0) {
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "slow", false, io->thread), 0);
		testdev_release(slow, &u, 0);
		user_close(&u);
	}
}

/* ---- The states ---- */

enum state {
	CREATED,  /* the target has not been started */
	INACTIVE, /* of the subsystem of a target that runs, from here ... */
	ACTIVE,   /* a host's read is under way */
	PAUSED,
	STOPPING,       /* a host's read is under way, here and below */
	DESTROYING,     /* ... to here */
	TGT_STOPPING,   /* of the target */
	TGT_DESTROYING, /* the read has ended: only the message that frees the target is under way */
	STATES,
};

static void subsystem_start(void)
{
	struct loop_wait started = LOOP_WAIT;

	nvmf_subsystem_start(s, loop_done, &started);
	wait_for(&started);
}

static bool is_destroying(void *arg)
{
	return tgt->state == NVMF_TGT_DESTROY_SUBSYSTEMS;
}

static void state_reach(enum state state, struct loop_wait *stop)
{
	struct loop_wait paused = LOOP_WAIT;

	tgt_create();
	if (state != CREATED) {
		CU_ASSERT_EQUAL_FATAL(nvmf_tgt_start(tgt), 0);
	}
	subsystem_create();
	if (state > INACTIVE) {
		subsystem_start();
	}
	if (state == PAUSED) {
		nvmf_subsystem_pause(s, NVME_NSID_ALL, loop_done, &paused);
		wait_for(&paused);
	} else if (state > INACTIVE) {
		host_attach();
	}
	if (state == STOPPING) {
		nvmf_subsystem_stop(s, loop_done, stop);
	} else if (state == DESTROYING) {
		nvmf_subsystem_destroy(s, loop_done, &subsystem_gone);
	} else if (state >= TGT_STOPPING) {
		nvmf_tgt_stop(tgt, loop_done, &tgt_stopped);
	}
	if (state == TGT_DESTROYING) {
		release();
		CU_ASSERT_TRUE_FATAL(loop_until(is_destroying, NULL));
	}
}

/* From whatever state: nothing is left. */
static void state_leave(enum state state)
{
	struct loop_wait stopped = LOOP_WAIT;

	if (io != NULL) {
		release();
	}
	if (state < TGT_STOPPING) {
		nvmf_tgt_stop(tgt, loop_done, &stopped);
		int rc = loop_wait_for(&stopped);
		CU_ASSERT_TRUE(rc == 0 || rc == -EALREADY);
	}
	if (state >= TGT_STOPPING || atomic_load(&stopped.status) == -EALREADY) {
		CU_ASSERT_EQUAL(loop_wait_for(&tgt_stopped), 0);
	}
	nvmf_tgt_destroy(tgt);
	if (io != NULL) {
		loop_wait(&held_read);
		loop_close(io);
		loop_close(admin);
		io = admin = NULL;
	}
	loop_use_tgt = NULL;
	CU_ASSERT_TRUE(testdev_delete(slow));
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "plain"), 0);
}

/* ---- The operations ---- */

static void run_tgt_start(struct loop_wait *w)
{
	loop_done(w, nvmf_tgt_start(tgt));
}

static void run_tgt_stop(struct loop_wait *w)
{
	nvmf_tgt_stop(tgt, loop_done,
		      atomic_load(&tgt_stopped.status) == LOOP_PENDING && tgt->stop_done == NULL ? &tgt_stopped : w);
	if (tgt->stop_done == loop_done && atomic_load(&w->status) == LOOP_PENDING) {
		loop_done(w, 0);
	}
}

static void run_transport_create(struct loop_wait *w)
{
	struct nvmf_transport_opts topts;

	nvmf_transport_opts_init("LOOP", &topts);
	loop_done(w, nvmf_transport_create(tgt, "loop", &topts, (char[NVMF_ERROR_MAX]){0}));
}

static void run_subsystem_create(struct loop_wait *w)
{
	struct nvmf_subsystem *late;

	loop_done(w, nvmf_subsystem_create(tgt, "nqn.2024-01.io.varve:late", &(struct nvmf_subsystem_opts){0}, &late));
}

static void run_start(struct loop_wait *w)
{
	nvmf_subsystem_start(s, loop_done, w);
}

static void run_pause(struct loop_wait *w)
{
	nvmf_subsystem_pause(s, NVME_NSID_ALL, loop_done, w);
}

static void run_resume(struct loop_wait *w)
{
	nvmf_subsystem_resume(s, loop_done, w);
}

static void run_stop(struct loop_wait *w)
{
	nvmf_subsystem_stop(s, loop_done, w);
}

static void run_destroy(struct loop_wait *w)
{
	nvmf_subsystem_destroy(s, loop_done, w);
}

static void run_allow_any_host(struct loop_wait *w)
{
	loop_done(w, nvmf_subsystem_set_allow_any_host(s, false));
}

static void run_add_host(struct loop_wait *w)
{
	char why[NVMF_ERROR_MAX];

	loop_done(w, nvmf_subsystem_add_host(s, "nqn.2024-01.io.varve:new", NULL, NULL, why));
}

static void run_set_keys(struct loop_wait *w)
{
	char why[NVMF_ERROR_MAX];

	loop_done(w, nvmf_subsystem_set_keys(s, HOST, NULL, NULL, why));
}

static void run_remove_host(struct loop_wait *w)
{
	nvmf_subsystem_remove_host(s, HOST, loop_done, w);
}

static void run_add_listener(struct loop_wait *w)
{
	loop_done(w, nvmf_subsystem_add_listener(s, &loop_other_address));
}

static void run_remove_listener(struct loop_wait *w)
{
	nvmf_subsystem_remove_listener(s, &loop_address, loop_done, w);
}

static void run_set_ana_state(struct loop_wait *w)
{
	loop_done(w, nvmf_listener_set_ana_state(s, &loop_address, 0, NVME_ANA_STATE_INACCESSIBLE));
}

static void run_set_ana_group(struct loop_wait *w)
{
	loop_done(w, nvmf_subsystem_set_ns_ana_group(s, PLAIN, 7));
}

static void run_add_ns(struct loop_wait *w)
{
	uint32_t nsid;

	loop_done(w, nvmf_subsystem_add_ns(s, "spare", &(struct nvmf_ns_opts){0}, &nsid));
}

static void run_remove_ns(struct loop_wait *w)
{
	nvmf_subsystem_remove_ns(s, PLAIN, loop_done, w);
}

static void run_remove_slow_ns(struct loop_wait *w)
{
	nvmf_subsystem_remove_ns(s, SLOW, loop_done, w);
}

static void run_ns_add_host(struct loop_wait *w)
{
	loop_done(w, nvmf_ns_add_host(s, PLAIN, "nqn.2024-01.io.varve:new"));
}

static void run_ns_remove_host(struct loop_wait *w)
{
	loop_done(w, nvmf_ns_remove_host(s, PLAIN, HOST));
}

static const struct nvmf_referral referral = {.address = {"TCP", NVMF_ADDR_FAMILY_IP4, "192.0.2.1", "8009"}};

static void run_add_referral(struct loop_wait *w)
{
	loop_done(w, nvmf_tgt_add_referral(tgt, &referral));
}

static void run_remove_referral(struct loop_wait *w)
{
	loop_done(w, nvmf_tgt_remove_referral(tgt, &referral.address, NULL));
}

#define BUSY    -EBUSY
#define INVALID -EINVAL
#define ALREADY -EALREADY

/* What each operation answers in each state. */
static const struct operation {
	const char *name;
	void (*run)(struct loop_wait *w);
	int status[STATES];
} operations[] = {
	/*                                         CREATED   INACTIVE ACTIVE   PAUSED   STOPPING DESTROYING
	   TGT_STOPPING, TGT_DESTROYING */
	{"start the target", run_tgt_start, {0, INVALID, INVALID, INVALID, INVALID, INVALID, INVALID, INVALID}},
	{"stop the target", run_tgt_stop, {0, 0, 0, 0, 0, 0, ALREADY, ALREADY}},
	{"create a transport",
	 run_transport_create,
	 {-EEXIST, -EEXIST, -EEXIST, -EEXIST, -EEXIST, -EEXIST, BUSY, BUSY}},
	{"create a subsystem", run_subsystem_create, {0, 0, 0, 0, 0, 0, BUSY, BUSY}},
	/* STOPPING: its turn comes after the stop, when the test has begun to stop the target. */
	{"start", run_start, {0, 0, INVALID, INVALID, BUSY, BUSY, BUSY, BUSY}},
	{"pause", run_pause, {INVALID, INVALID, 0, INVALID, INVALID, INVALID, INVALID, INVALID}},
	{"resume", run_resume, {INVALID, INVALID, INVALID, 0, INVALID, INVALID, INVALID, INVALID}},
	{"stop", run_stop, {0, 0, 0, 0, 0, 0, 0, 0}},
	{"destroy", run_destroy, {0, 0, 0, 0, 0, ALREADY, BUSY, BUSY}},
	{"allow any host", run_allow_any_host, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"add a host", run_add_host, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"set keys", run_set_keys, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"remove a host", run_remove_host, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"add a listener", run_add_listener, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"remove a listener", run_remove_listener, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"set an ANA state", run_set_ana_state, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"set an ANA group", run_set_ana_group, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"add a namespace", run_add_ns, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"remove a namespace", run_remove_ns, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"remove the slow namespace", run_remove_slow_ns, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"show a namespace to a host", run_ns_add_host, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"hide a namespace from a host", run_ns_remove_host, {0, 0, 0, 0, 0, BUSY, BUSY, BUSY}},
	{"add a referral", run_add_referral, {0, 0, 0, 0, 0, 0, BUSY, BUSY}},
	{"remove a referral", run_remove_referral, {-ENOENT, -ENOENT, -ENOENT, -ENOENT, -ENOENT, -ENOENT, BUSY, BUSY}},
};

static void run_operation(const struct operation *op, enum state state)
{
	struct loop_wait w = LOOP_WAIT, stop = LOOP_WAIT;

	state_reach(state, &stop);
	op->run(&w);
	state_leave(state);
	int status = loop_wait_for(&w);
	if (status != op->status[state]) {
		printf("%s in state %d: %d, expected %d\n", op->name, state, status, op->status[state]);
	}
	CU_ASSERT_EQUAL(status, op->status[state]);
	if (state == STOPPING) {
		CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
	} else if (state == DESTROYING) {
		CU_ASSERT_EQUAL(loop_wait_for(&subsystem_gone), 0);
	}
}

static void test_every_operation_in_every_state(void)
{
	make_malloc("spare", 512, 1000);
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
		for (enum state state = 0; state < STATES; state++) {
			run_operation(&operations[i], state);
		}
	}
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "spare"), 0);
}

/* Two operations, of which the second comes when the first has begun. All is over in the end, whatever they answer. */
static void run_pair(const struct operation *first, const struct operation *second, enum state state)
{
	struct loop_wait w[2] = {LOOP_WAIT, LOOP_WAIT}, stop = LOOP_WAIT;

	state_reach(state, &stop);
	first->run(&w[0]);
	second->run(&w[1]);
	state_leave(state);
	CU_ASSERT_NOT_EQUAL(loop_wait_for(&w[0]), LOOP_PENDING);
	CU_ASSERT_NOT_EQUAL(loop_wait_for(&w[1]), LOOP_PENDING);
}

static void test_every_two_operations_at_once(void)
{
	make_malloc("spare", 512, 1000);
	for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(operations); k++) {
			run_pair(&operations[i], &operations[k], ACTIVE);
		}
	}
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "spare"), 0);
}

static void test_error_names_the_state(void)
{
	char why[NVMF_ERROR_MAX];

	state_reach(TGT_STOPPING, NULL);
	CU_ASSERT_EQUAL(nvmf_tgt_check_open(tgt, why), -EBUSY);
	CU_ASSERT_STRING_EQUAL(
		why, "target second is in state STOP_SUBSYSTEMS: it is being deleted, with all that belongs to it");
	state_leave(TGT_STOPPING);
	state_reach(DESTROYING, NULL);
	CU_ASSERT_EQUAL(nvmf_subsystem_check_open(s, why), -EBUSY);
	CU_ASSERT_STRING_EQUAL(why, "subsystem " SUBNQN " is in state ACTIVE: it is being deleted");
	CU_ASSERT_EQUAL(nvmf_tgt_check_open(tgt, why), 0);
	state_leave(DESTROYING);
}

/* ---- Changes that wait ---- */

static void check_change(unsigned n, const char *what, bool begun, const char *waits_for)
{
	struct nvmf_change_info info;

	CU_ASSERT_TRUE_FATAL(nvmf_subsystem_get_change(s, n, &info));
	CU_ASSERT_STRING_EQUAL(info.what, what);
	CU_ASSERT_EQUAL(info.begun, begun);
	CU_ASSERT_PTR_NOT_NULL(strstr(info.waits_for, waits_for));
	if (strstr(info.waits_for, waits_for) == NULL) {
		printf("%s waits for %s, not %s\n", info.what, info.waits_for, waits_for);
	}
}

/* A namespace whose bdev ends no I/O is being removed: changes of others go on, and what waits tells for what. */
static void test_a_stuck_removal_holds_up_no_change_of_other_namespaces(void)
{
	struct loop_wait gone = LOOP_WAIT, plain = LOOP_WAIT, pause = LOOP_WAIT, listener = LOOP_WAIT, stop = LOOP_WAIT;
	struct nvmf_change_info info;
	char text[NVMF_ERROR_MAX];

	state_reach(ACTIVE, NULL);
	CU_ASSERT_FALSE(nvmf_subsystem_get_change(s, 0, &info));
	CU_ASSERT_FALSE(nvmf_subsystem_waits_for(s, 0, text, sizeof(text)));
	nvmf_subsystem_remove_ns(s, SLOW, loop_done, &gone);
	nvmf_subsystem_pause(s, SLOW, loop_done, &pause);
	nvmf_subsystem_remove_ns(s, PLAIN, loop_done, &plain);
	CU_ASSERT_EQUAL(loop_wait_for(&plain), 0);
	check_change(0, "removal of namespace 1", true, "the end of 1 commands of namespace 1 (bdev slow)");
	check_change(1, "pause of namespaces", false, "the removal of namespace 1 before it");
	CU_ASSERT_FALSE(nvmf_subsystem_get_change(s, 2, &info));
	CU_ASSERT_TRUE(nvmf_subsystem_waits_for(s, 0, text, sizeof(text)));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "bdev slow"));
	CU_ASSERT_FALSE(nvmf_subsystem_waits_for(s, PLAIN, text, sizeof(text)));

	nvmf_subsystem_remove_listener(s, &loop_address, loop_done, &listener);
	check_change(2, "disconnection of hosts (its listener was removed)", true, "the end of 1 controllers");
	nvmf_subsystem_stop(s, loop_done, &stop);
	check_change(2, "stop", false, "the pause of namespaces before it");
	CU_ASSERT_TRUE(nvmf_tgt_waits_for(tgt, text, sizeof(text)));
	release();
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	CU_ASSERT_EQUAL(loop_wait_for(&pause), 0);
	CU_ASSERT_EQUAL(loop_wait_for(&listener), 0);
	CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
	state_leave(ACTIVE);
}

/* A stop does not wait in the queue for a removal that is stuck: it ends the host, and so what the removal waits for.
 */
static void test_a_stop_begins_beside_a_stuck_removal(void)
{
	struct loop_wait gone = LOOP_WAIT, stop = LOOP_WAIT;

	state_reach(ACTIVE, NULL);
	nvmf_subsystem_remove_ns(s, SLOW, loop_done, &gone);
	nvmf_subsystem_stop(s, loop_done, &stop);
	check_change(1, "stop", true, "the end of 1 controllers");
	CU_ASSERT_FALSE(s->connectable);
	release();
	CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
	CU_ASSERT_EQUAL(atomic_load(&gone.status), 0); /* the removal came first */
	state_leave(ACTIVE);
}

/* ---- Discovery ---- */

static uint64_t log_field(struct loop_conn *d, size_t offset)
{
	uint64_t v;

	CU_ASSERT_EQUAL(loop_get_log(d, NVME_LOG_LID_DISCOVER, false, 0, buf, sizeof(buf)), 0);
	memcpy(&v, buf + offset, sizeof(v));
	return le64toh(v);
}

static void test_discovery_tells_of_a_stop_when_it_begins(void)
{
	static struct loop_cmd aer;
	struct loop_wait stop = LOOP_WAIT;

	state_reach(ACTIVE, NULL);
	struct loop_conn *d = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL(loop_set_feature(d, NVME_FEAT_FID_ASYNC_EVENT, 1u << 31, NULL), 0);
	uint64_t generation = log_field(d, 0), records = log_field(d, 8);
	loop_cmd_init(&aer, d, nvme_admin_async_event, 0);
	loop_submit(&aer);
	CU_ASSERT_EQUAL(log_field(d, 0), generation); /* the request has arrived */
	nvmf_subsystem_stop(s, loop_done, &stop);
	CU_ASSERT_EQUAL(loop_wait(&aer), 0);
	CU_ASSERT_EQUAL(log_field(d, 8), records - 1);
	CU_ASSERT_EQUAL(log_field(d, 0), generation + 1);
	CU_ASSERT_EQUAL(atomic_load(&stop.status), LOOP_PENDING);
	release();
	CU_ASSERT_EQUAL(loop_wait_for(&stop), 0);
	CU_ASSERT_EQUAL(log_field(d, 0), generation + 1);
	loop_close(d);
	state_leave(ACTIVE);
}

/* Statistics of latency begin with the event. */
static void test_time_until_an_event_is_not_latency(void)
{
	static struct loop_cmd aer;

	state_reach(ACTIVE, NULL);
	struct loop_conn *d = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL(loop_set_feature(d, NVME_FEAT_FID_ASYNC_EVENT, 1u << 31, NULL), 0);
	CU_ASSERT_EQUAL(log_field(d, 0), nvmf_tgt_generation(tgt));
	loop_cmd_init(&aer, d, nvme_admin_async_event, 0);
	loop_submit(&aer);
	uint64_t submitted = env_ticks();
	for (unsigned i = 0; i < 10; i++) { /* the group has made rounds since */
		log_field(d, 0);
	}
	CU_ASSERT_EQUAL(nvmf_tgt_add_referral(tgt, &referral), 0);
	CU_ASSERT_EQUAL(loop_wait(&aer), 0);
	CU_ASSERT(atomic_load(&loop_last_start) > submitted);
	loop_close(d);
	state_leave(ACTIVE);
}

/* ---- Creations that fail half-way ---- */

static unsigned num_subsystems(struct nvmf_tgt *of)
{
	unsigned n = 0;

	for (struct nvmf_subsystem *x = nvmf_subsystem_next(of, NULL); x != NULL; x = nvmf_subsystem_next(of, x)) {
		n++;
	}
	return n;
}

/* As nvmf_create_subsystem does: what cannot be started is destroyed. */
static int create_and_start(struct nvmf_subsystem **created)
{
	struct nvmf_subsystem_opts opts = {.allow_any_host = true, .ana_reporting = true};
	struct loop_wait started = LOOP_WAIT, gone = LOOP_WAIT;
	int rc = nvmf_subsystem_create(loop_tgt(), SUBNQN, &opts, created);

	if (rc != 0) {
		return rc;
	}
	nvmf_subsystem_start(*created, loop_done, &started);
	rc = loop_wait_for(&started);
	if (rc != 0) {
		nvmf_subsystem_destroy(*created, loop_done, &gone);
		allocations_left = -1;
		CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
	}
	return rc;
}

static void test_subsystem_that_cannot_be_made_leaves_nothing(void)
{
	unsigned before = num_subsystems(loop_tgt());
	struct loop_wait gone = LOOP_WAIT;
	struct nvmf_subsystem *created;
	int rc = -ENOMEM;

	for (int n = 0; rc != 0 && n < 100; n++) {
		allocations_left = n;
		rc = create_and_start(&created);
		allocations_left = -1;
		CU_ASSERT_TRUE_FATAL(rc == 0 || rc == -ENOMEM);
		CU_ASSERT_EQUAL(num_subsystems(loop_tgt()), before + (rc == 0));
	}
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	nvmf_subsystem_destroy(created, loop_done, &gone);
	CU_ASSERT_EQUAL(loop_wait_for(&gone), 0);
}

static int tgt_create_and_start(struct nvmf_tgt **created)
{
	struct loop_wait stopped = LOOP_WAIT;
	int rc = nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "half"}, created);

	if (rc != 0) {
		return rc;
	}
	rc = nvmf_tgt_start(*created);
	if (rc != 0) {
		nvmf_tgt_stop(*created, loop_done, &stopped); /* while there is no memory */
		CU_ASSERT_EQUAL(loop_wait_for(&stopped), 0);
		nvmf_tgt_destroy(*created);
	}
	return rc;
}

static void test_target_that_cannot_be_made_leaves_nothing(void)
{
	struct loop_wait stopped = LOOP_WAIT;
	struct nvmf_tgt *created;
	int rc = -ENOMEM;

	for (int n = 0; rc != 0 && n < 200; n++) {
		allocations_left = n;
		rc = tgt_create_and_start(&created);
		allocations_left = -1;
		CU_ASSERT_TRUE_FATAL(rc == 0 || rc == -ENOMEM);
		CU_ASSERT_EQUAL(nvmf_tgt_find("half") != NULL, rc == 0);
	}
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	CU_ASSERT_TRUE(created->discovery->connectable);
	nvmf_tgt_stop(created, loop_done, &stopped);
	CU_ASSERT_EQUAL(loop_wait_for(&stopped), 0);
	nvmf_tgt_destroy(created);
}

/* ---- Changes that fail half-way ---- */

#define PTPL "/var/tmp/unit-nvmf-manage-resv"

static int change_add_listener(struct loop_wait *w)
{
	return nvmf_subsystem_add_listener_ana(s, &loop_other_address, NVME_ANA_STATE_NONOPTIMIZED);
}

static int change_remove_listener(struct loop_wait *w)
{
	nvmf_subsystem_remove_listener(s, &loop_other_address, loop_done, w);
	return LOOP_PENDING;
}

static int change_add_host(struct loop_wait *w)
{
	char why[NVMF_ERROR_MAX];

	return nvmf_subsystem_add_host(s, HOST "2", NULL, NULL, why);
}

static int change_remove_host(struct loop_wait *w)
{
	nvmf_subsystem_remove_host(s, HOST "2", loop_done, w);
	return LOOP_PENDING;
}

static int change_add_ns(struct loop_wait *w)
{
	const struct nvmf_ns_opts opts = {.nsid = 7, .no_auto_visible = true, .ptpl_file = PTPL};
	uint32_t nsid;

	return nvmf_subsystem_add_ns(s, "extra", &opts, &nsid);
}

static int change_remove_ns(struct loop_wait *w)
{
	nvmf_subsystem_remove_ns(s, 7, loop_done, w);
	return LOOP_PENDING;
}

static int change_show_ns(struct loop_wait *w)
{
	return nvmf_ns_add_host(s, 7, HOST);
}

static int change_set_ana_group(struct loop_wait *w)
{
	return nvmf_subsystem_set_ns_ana_group(s, 7, 5);
}

static int change_set_ana_state(struct loop_wait *w)
{
	return nvmf_listener_set_ana_state(s, &loop_other_address, 5, NVME_ANA_STATE_INACCESSIBLE);
}

static int change_add_peer(struct loop_wait *w)
{
	return nvmf_subsystem_add_peer(s, "/var/tmp/unit-nvmf-manage.sock", 1000);
}

static int change_add_referral(struct loop_wait *w)
{
	const struct nvmf_referral r = {.address = {"LOOP", NVMF_ADDR_FAMILY_IP4, "10.0.0.1", "8009"}};

	return nvmf_tgt_add_referral(tgt, &r);
}

static int change_allow_no_other_host(struct loop_wait *w)
{
	return nvmf_subsystem_set_allow_any_host(s, false);
}

static size_t put_hosts(char *text, size_t size, const struct nvmf_hosts *hosts)
{
	const char *h = NULL;
	size_t n = 0;

	while ((h = nvmf_hosts_next(hosts, h)) != NULL) {
		n += (size_t)snprintf(text + n, size - n, "%s ", h);
	}
	return n;
}

/* All that the changes above change. */
static void describe_all(char *text, size_t size)
{
	size_t n = (size_t)snprintf(text, size, "%lu %d ", (unsigned long)tgt->generation, s->allow_any_host);

	n += put_hosts(text + n, size - n, &s->hosts);
	for (struct nvmf_listener *l = nvmf_listener_next(s, NULL); l != NULL; l = nvmf_listener_next(s, l)) {
		n += (size_t)snprintf(text + n, size - n, "%s:%d:%d ", l->listen->address.trsvcid,
				      nvmf_listener_ana_state(l, 5), nvmf_listener_ana_state(l, 7));
	}
	for (struct nvmf_ns *ns = nvmf_ns_next(s, NULL); ns != NULL; ns = nvmf_ns_next(s, ns)) {
		n += (size_t)snprintf(text + n, size - n, "%u %s %u ", ns->nsid, bdev_name(ns->bdev),
				      ns->opts.anagrpid);
		n += put_hosts(text + n, size - n, &ns->hosts);
	}
	for (const struct nvmf_peer *p = NULL; (p = nvmf_peer_next(s, p)) != NULL;) {
		n += (size_t)snprintf(text + n, size - n, "%s ", nvmf_peer_path(p));
	}
	for (const struct nvmf_referral *r = NULL; (r = nvmf_referral_next(tgt, r)) != NULL;) {
		n += (size_t)snprintf(text + n, size - n, "%s ", r->address.traddr);
	}
	snprintf(text + n, size - n, "%s", access(PTPL ".lock", F_OK) == 0 ? "locked" : "");
}

static void change_with_little_memory(const char *name, int (*change)(struct loop_wait *w))
{
	char before[4096], after[4096];
	int rc = -ENOMEM, n;

	describe_all(before, sizeof(before));
	for (n = 0; rc != 0 && n < 100; n++) {
		struct loop_wait w = LOOP_WAIT;
		allocations_left = n;
		rc = change(&w);
		allocations_left = -1;
		rc = rc == LOOP_PENDING ? loop_wait_for(&w) : rc;
		describe_all(after, sizeof(after));
		if (rc != 0 && (rc != -ENOMEM || strcmp(before, after) != 0)) {
			printf("%s without memory from allocation %d on: %d\n%s\n%s\n", name, n, rc, before, after);
			CU_FAIL("a change that fails has changed something");
		}
	}
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_STRING_NOT_EQUAL(before, after);
}

static void test_change_that_fails_changes_nothing(void)
{
	static const struct {
		const char *name;
		int (*change)(struct loop_wait *w);
	} changes[] = {
		{"add_listener", change_add_listener},
		{"add_host", change_add_host},
		{"add_ns", change_add_ns},
		{"show_ns", change_show_ns},
		{"set_ana_group", change_set_ana_group},
		{"set_ana_state", change_set_ana_state},
		{"add_peer", change_add_peer},
		{"add_referral", change_add_referral},
		{"remove_ns", change_remove_ns},
		{"remove_host", change_remove_host},
		{"remove_listener", change_remove_listener},
		{"allow_no_other_host", change_allow_no_other_host},
	};

	unlink(PTPL);
	make_malloc("extra", 512, 100);
	state_reach(ACTIVE, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		change_with_little_memory(changes[i].name, changes[i].change);
	}
	state_leave(ACTIVE);
	CU_ASSERT_EQUAL(fixture_delete(bdev_malloc_delete, "extra"), 0);
	unlink(PTPL);
}

static const struct unit_test tests[] = {
	UNIT(test_every_operation_in_every_state),
	UNIT(test_every_two_operations_at_once),
	UNIT(test_error_names_the_state),
	UNIT(test_a_stuck_removal_holds_up_no_change_of_other_namespaces),
	UNIT(test_a_stop_begins_beside_a_stuck_removal),
	UNIT(test_discovery_tells_of_a_stop_when_it_begins),
	UNIT(test_time_until_an_event_is_not_latency),
	UNIT(test_subsystem_that_cannot_be_made_leaves_nothing),
	UNIT(test_target_that_cannot_be_made_leaves_nothing),
	UNIT(test_change_that_fails_changes_nothing),
	UNIT_END,
};
UNIT_MAIN("nvmf_manage", tests, loop_start, loop_stop)
