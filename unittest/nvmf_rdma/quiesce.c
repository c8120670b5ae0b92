/* SPDX-License-Identifier: BSD-3-Clause */
/* A target that ends a connection, with commands in each state that they have in the transport: what has not begun is
 * answered with a path error and never carried out, what has begun ends, and then the connection does. */
#include <stdatomic.h>

#include "nvmf/nvmf.h"
#include "nvmf/transport.h"
#include "unittest/bdev/fixture.h"
#include "unittest/nvmf_rdma/hosts.h"

#define LBAS    64
#define BUFFERS 20 /* that commands of the only poll group can have; as many again are not there */
#define READS   16 /* RDMA READs that a host allows at once */

static struct nvmf_tgt *tgt;
static struct nvmf_subsystem *subsystem;
static struct testdev *disk;
static struct host host;
static struct nvmf_address at = {.trtype = "RDMA", .adrfam = 1, .traddr = "127.0.0.1", .trsvcid = "4420"};
static atomic_uint good, path_errors, others; /* answers on the I/O queue */

static void count_answer(struct fake_conn *conn, const struct nvme_cqe *cqe)
{
	uint16_t status = nvme_cqe_status(cqe);

	atomic_fetch_add(status == 0 ? &good : status == NVME_ST(PATH, CTRL_PATH_ERROR) ? &path_errors : &others, 1);
	fixture_wake();
}

static void connect_host(void)
{
	host_connect(&host, 0);
	host.io.on_response = count_answer;
	atomic_store(&good, 0);
	atomic_store(&path_errors, 0);
	atomic_store(&others, 0);
}

struct burst {
	uint8_t opcode;
	unsigned first, n;
	bool withhold; /* and then the device completes nothing */
};

static void send_on_group(void *arg)
{
	const struct burst *b = arg;

	for (unsigned i = 0; i < b->n; i++) {
		struct nvme_sqe sqe = host_rw(b->opcode, b->first + i);

		CU_ASSERT(fake_send(&host.io, &sqe, NULL, 0));
	}
	if (b->withhold) {
		fake_withhold(0, true);
	}
}

static void send_burst(struct burst b)
{
	thread_call(host_group_thread, send_on_group, &b);
}

struct wanted {
	const char *state;
	unsigned n;
};

static bool are_in_state(void *arg)
{
	const struct wanted *w = arg;
	struct nvmf_inflight *list = NULL;
	int all = nvmf_tgt_get_inflight(tgt, &list);
	unsigned n = 0;

	for (int i = 0; i < all; i++) {
		n += strcmp(list[i].state, w->state) == 0;
	}
	free(list);
	return n == w->n;
}

static bool wait_in_state(const char *state, unsigned n)
{
	struct wanted w = {.state = state, .n = n};

	return fixture_poll(are_in_state, &w);
}

static unsigned removed;

static void count_removed(void *arg, int status)
{
	removed++;
}

static void remove_listener(void)
{
	removed = 0;
	nvmf_subsystem_remove_listener(subsystem, &at, count_removed, NULL);
}

static bool is_over(void *arg)
{
	return removed == 1 && fake_live.qps == 0;
}

/* The host's connections are gone, and the next one may come. */
static void wait_over(void)
{
	CU_ASSERT(fixture_poll(is_over, NULL));
	CU_ASSERT_EQUAL(fake_delayed_reads, 0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(subsystem, &at), 0);
}

static bool is_disconnected(void)
{
	return __atomic_load_n(&host.io.disconnected, __ATOMIC_ACQUIRE);
}

static void release_all(void)
{
	struct user u;

	CU_ASSERT_EQUAL_FATAL(user_open(&u, "T0", false, host_group_thread), 0);
	disk->hold = false;
	testdev_release(disk, &u, 0);
	user_close(&u);
}

static void finish_reads(void *arg)
{
	fake_finish_reads();
}

/* ---- Tests ---- */

static void test_commands_that_wait_for_a_buffer_are_answered_and_those_with_the_device_end(void)
{
	connect_host();
	disk->hold = true;
	unsigned before = atomic_load(&disk->submitted);
	send_burst((struct burst){.opcode = nvme_cmd_read, .n = BUFFERS + 3});
	CU_ASSERT_FATAL(wait_in_state("need buffer", 3));
	remove_listener();
	CU_ASSERT(fixture_wait_count(&path_errors, 3));
	send_burst((struct burst){.opcode = nvme_cmd_read, .first = BUFFERS + 3, .n = 2}); /* too late */
	CU_ASSERT(fixture_wait_count(&path_errors, 5));
	CU_ASSERT_FALSE(is_disconnected());
	CU_ASSERT_EQUAL(atomic_load(&good), 0);
	release_all();
	wait_over();
	CU_ASSERT_EQUAL(atomic_load(&good), BUFFERS);
	CU_ASSERT_EQUAL(atomic_load(&path_errors), 5);
	CU_ASSERT_EQUAL(atomic_load(&others), 0);
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), before + BUFFERS);
}

/* A read that the device has keeps the connection, whatever time the host takes for its data. */
static void test_writes_whose_data_have_not_come_are_answered_and_not_carried_out(void)
{
	unsigned waiting = BUFFERS - 1 - READS + 2; /* for a READ credit, and two for a buffer */

	connect_host();
	fake_delay_reads = true;
	disk->hold = true;
	unsigned before = atomic_load(&disk->submitted);
	send_burst((struct burst){.opcode = nvme_cmd_read, .n = 1});
	send_burst((struct burst){.opcode = nvme_cmd_write, .first = 1, .n = READS + waiting});
	CU_ASSERT_FATAL(wait_in_state("transferring host to controller", READS));
	CU_ASSERT_FATAL(wait_in_state("transfer host to controller pending", waiting - 2));
	CU_ASSERT_FATAL(wait_in_state("need buffer", 2));
	remove_listener();
	CU_ASSERT(fixture_wait_count(&path_errors, waiting)); /* their answers wait for nothing */
	fake_delay_reads = false;
	thread_call(host_group_thread, finish_reads, NULL);
	CU_ASSERT(fixture_wait_count(&path_errors, waiting + READS));
	CU_ASSERT_FALSE(is_disconnected());
	release_all();
	wait_over();
	CU_ASSERT_EQUAL(atomic_load(&good), 1);
	CU_ASSERT_EQUAL(atomic_load(&others), 0);
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), before + 1);
}

static void send_to_memory(void *opcode)
{
	struct nvme_sqe sqe = host_rw(*(uint8_t *)opcode, 1);

	sqe.nsid = htole32(2);
	CU_ASSERT(fake_send(&host.io, &sqe, NULL, 0));
}

static bool are_answered(void *count)
{
	return atomic_load(&good) + atomic_load(&path_errors) + atomic_load(&others) == *(unsigned *)count;
}

/* Its data are in the bdev's memory before it is carried out: it has begun. */
static void test_write_straight_to_a_bdevs_memory_ends(void)
{
	uint8_t write = nvme_cmd_write, read = nvme_cmd_read;
	unsigned reads = 0;

	connect_host();
	fake_delay_reads = true;
	disk->hold = true;
	send_burst((struct burst){.opcode = nvme_cmd_read, .first = 2, .n = 1}); /* keeps the connection */
	thread_call(host_group_thread, send_to_memory, &write);
	CU_ASSERT_FATAL(wait_in_state("transferring host to controller", 1));
	remove_listener();
	while (atomic_load(&path_errors) == 0) { /* until the queue pair is ending */
		thread_call(host_group_thread, send_to_memory, &read);
		reads++;
		CU_ASSERT_FATAL(fixture_poll(are_answered, &reads));
	}
	fake_delay_reads = false;
	thread_call(host_group_thread, finish_reads, NULL);
	CU_ASSERT(fixture_wait_count(&good, reads)); /* the last one of them was too late, and the write ends */
	release_all();
	wait_over();
	CU_ASSERT_EQUAL(atomic_load(&good), reads + 1);
	CU_ASSERT_EQUAL(atomic_load(&path_errors), 1);
	CU_ASSERT_EQUAL(atomic_load(&others), 0);
}

/* Nothing is answered then, and nothing carried out. */
static void test_a_connection_that_breaks_meanwhile_ends_what_waits(void)
{
	connect_host();
	fake_delay_reads = true;
	disk->hold = true;
	unsigned before = atomic_load(&disk->submitted);
	send_burst((struct burst){.opcode = nvme_cmd_read, .n = 2});
	send_burst((struct burst){.opcode = nvme_cmd_write, .first = 2, .n = BUFFERS});
	CU_ASSERT_FATAL(wait_in_state("need buffer", 2));
	CU_ASSERT_FATAL(wait_in_state("transferring host to controller", READS));
	remove_listener();
	CU_ASSERT(fixture_wait_count(&path_errors, BUFFERS - READS));
	fake_disconnect(&host.io);
	fake_disconnect(&host.admin);
	CU_ASSERT(wait_in_state("transferring host to controller", 0));
	CU_ASSERT(wait_in_state("BDEV", 2)); /* what never ends keeps its memory */
	release_all();
	wait_over();
	fake_delay_reads = false;
	CU_ASSERT_EQUAL(atomic_load(&good) + atomic_load(&others), 0);
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), before + 2);
}

static bool listens(void *arg)
{
	return fake_listens(0);
}

static bool listens_no_more(void *arg)
{
	return !fake_listens(0) && fake_live.pds == 0;
}

static void pull_and_put_back(void)
{
	fake_remove(0);
	CU_ASSERT_FATAL(fixture_poll(listens_no_more, NULL));
	fake_return(0);
	CU_ASSERT_FATAL(fixture_poll(listens, NULL));
}

/* Reads that are carried out, and whose answers find no room in the send queue. */
static void test_a_device_that_goes_meanwhile_ends_what_waits_for_room(void)
{
	fake_max_qp_wr = 8;
	pull_and_put_back();
	connect_host();
	unsigned before = atomic_load(&disk->submitted);
	send_burst((struct burst){.opcode = nvme_cmd_read, .n = 7, .withhold = true});
	CU_ASSERT_FATAL(wait_in_state("completing with data", 4));
	CU_ASSERT_FATAL(wait_in_state("transfer controller to host pending", 3));
	remove_listener();
	fake_remove(0);
	CU_ASSERT(fixture_poll(is_over, NULL));
	CU_ASSERT_EQUAL(atomic_load(&good) + atomic_load(&path_errors) + atomic_load(&others), 0);
	CU_ASSERT_EQUAL(atomic_load(&disk->submitted), before + 7);
	fake_max_qp_wr = 8192;
	fake_return(0);
	CU_ASSERT_EQUAL(nvmf_subsystem_add_listener(subsystem, &at), 0);
	connect_host();
	send_burst((struct burst){.opcode = nvme_cmd_read, .n = BUFFERS}); /* no buffer was lost */
	CU_ASSERT(fixture_wait_count(&good, BUFFERS));
	remove_listener();
	wait_over();
}

/* ---- Set-up ---- */

static atomic_int state;

static void set_state(void *arg, int status)
{
	atomic_store(&state, status == 0 ? 1 : -1);
	fixture_wake();
}

static bool has_state(void *arg)
{
	return atomic_load(&state) != 0;
}

static int wait_state(void)
{
	int rc = fixture_poll(has_state, NULL) && atomic_load(&state) > 0 ? 0 : -1;

	atomic_store(&state, 0);
	return rc;
}

static struct thread *find_group_thread(void)
{
	struct thread *t = thread_next(NULL);

	while (t != NULL && strcmp(thread_name(t), nvmf_poll_group_name(nvmf_poll_group_next(tgt, NULL))) != 0) {
		t = thread_next(t);
	}
	return t;
}

static int setup(void)
{
	struct nvmf_tgt_opts opts = {.name = "quiesce"};
	struct nvmf_subsystem_opts sopts = {.serial_number = "1", .allow_any_host = true};
	struct nvmf_transport_opts topts;
	const struct bdev_malloc_opts memory = {.name = "M0", .block_size = 4096, .num_blocks = LBAS, .numa_id = -1};
	char why[NVMF_ERROR_MAX], name[256], error[BDEV_ERROR_MAX];
	cpu_set_t cores;
	uint32_t nsid;
	int rc = fixture_start();

	CPU_ZERO(&cores);
	CPU_SET(1, &cores);
	opts.cores = &cores;
	if (rc != 0 || (disk = testdev_new("T0", 4096, LBAS)) == NULL || testdev_register(disk) != 0 ||
	    bdev_malloc_create(&memory, name, error) != 0) {
		return -1;
	}
	nvmf_transport_opts_init("RDMA", &topts);
	topts.num_shared_buffers = 1;
	topts.iobuf_small_cache_size = topts.iobuf_large_cache_size = 0;
	if (nvmf_tgt_create(&opts, &tgt) != 0 || nvmf_transport_create(tgt, "RDMA", &topts, why) != 0 ||
	    nvmf_tgt_start(tgt) != 0 || nvmf_subsystem_create(tgt, HOST_SUBNQN, &sopts, &subsystem) != 0 ||
	    nvmf_subsystem_add_ns(subsystem, "T0", &(struct nvmf_ns_opts){0}, &nsid) != 0 ||
	    nvmf_subsystem_add_ns(subsystem, "M0", &(struct nvmf_ns_opts){0}, &nsid) != 0 ||
	    nvmf_subsystem_add_listener(subsystem, &at) != 0) {
		return -1;
	}
	nvmf_subsystem_start(subsystem, set_state, NULL);
	host_group_thread = find_group_thread();
	return host_group_thread != NULL ? wait_state() : -1;
}

static int teardown(void)
{
	nvmf_tgt_stop(tgt, set_state, NULL);
	int rc = wait_state();
	nvmf_tgt_destroy(tgt);
	rc |= fixture_delete(bdev_malloc_delete, "M0");
	return rc | (testdev_delete(disk) ? 0 : -1) | fixture_stop();
}

static const struct unit_test tests[] = {
	UNIT(test_commands_that_wait_for_a_buffer_are_answered_and_those_with_the_device_end),
	UNIT(test_writes_whose_data_have_not_come_are_answered_and_not_carried_out),
	UNIT(test_write_straight_to_a_bdevs_memory_ends),
	UNIT(test_a_connection_that_breaks_meanwhile_ends_what_waits),
	UNIT(test_a_device_that_goes_meanwhile_ends_what_waits_for_room),
	UNIT_END,
};

UNIT_MAIN("nvmf_rdma_quiesce", tests, setup, teardown)
