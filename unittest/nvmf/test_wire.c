/* SPDX-License-Identifier: BSD-3-Clause */
/* Whatever goes to a host was written for it. The loop transport fills each data buffer with LOOP_STALE, which stands
 * for another host's data: no byte of it may arrive. And what the discovery log and Identify announce holds. */
#include "bdev_modules/null/null.h"
#include "bdev_modules/passthru/passthru.h"
#include "nvmf/command_internal.h"
#include "unittest/nvmf/loop.h"

#define BLOCK 4096

static struct loop_conn *admin, *io;
static uint32_t nsid, plain;
static struct testdev *dev;
static uint8_t data[LOOP_MAX_IO];
static struct loop_cmd cmd;

static void attach(void)
{
	struct nvmf_ns_opts opts = {0};

	plain = loop_add_malloc_ns("m", BLOCK, 16);
	dev = testdev_new("dev", BLOCK, 64);
	dev->bdev.io_types |= 1u << BDEV_IO_NVME_IO | 1u << BDEV_IO_NVME_ADMIN;
	CU_ASSERT_EQUAL_FATAL(testdev_register(dev), 0);
	nvmf_passthru_add(&opts.passthru, 0x82, false);
	nvmf_passthru_add(&opts.passthru, 0xc2, true);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "dev", &opts, &nsid), 0);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(admin);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
}

static void detach(void)
{
	loop_close(io);
	loop_close(admin);
	loop_remove_ns(nsid);
	CU_ASSERT_TRUE(testdev_delete(dev));
	loop_remove_malloc_ns(plain, "m");
}

/* Four in a row: a random number may have one. */
static unsigned stale_bytes(uint32_t len)
{
	unsigned n = 0, row = 0;

	for (uint32_t i = 0; i < len; i++) {
		row = data[i] == LOOP_STALE ? row + 1 : 0;
		n += row >= 4;
	}
	return n;
}

/* Sends a command that was prepared, and looks at all that has arrived, whatever its status. */
static uint16_t run_and_look(uint32_t len)
{
	memset(data, 0, sizeof(data));
	loop_cmd_data(&cmd, data, len);
	uint16_t status = loop_run(&cmd);
	CU_ASSERT_EQUAL(stale_bytes(sizeof(data)), 0);
	return status;
}

/* ---- Data ---- */

/* The device has 4096 bytes to give. */
static void test_vendor_read_that_moves_less_than_described(void)
{
	attach();
	for (unsigned admin_too = 0; admin_too < 2; admin_too++) {
		loop_cmd_init(&cmd, admin_too ? admin : io, admin_too ? 0xc2 : 0x82, nsid);
		cmd.sqe.cdw10 = htole32(8192 / 4);
		CU_ASSERT_EQUAL(run_and_look(8192), 0);
	}
	detach();
}

static void read_fails(void)
{
	dev->fail_status = NVME_ST_DNR(MEDIA, READ_ERROR);
	loop_cmd_init(&cmd, io, nvme_cmd_read, nsid);
	cmd.sqe.cdw12 = htole32(7);
	CU_ASSERT_EQUAL(run_and_look(8 * BLOCK), dev->fail_status);
	loop_cmd_init(&cmd, io, 0x82, nsid);
	CU_ASSERT_EQUAL(run_and_look(8192), dev->fail_status);
	dev->fail_status = 0;
}

static void test_reads_that_fail_send_nothing(void)
{
	attach();
	read_fails();
	for (uint32_t i = 0; i < sizeof(data); i++) {
		CU_ASSERT_EQUAL_FATAL(data[i], 0);
	}
	loop_cmd_init(&cmd, io, nvme_cmd_read, plain);
	cmd.sqe.cdw10 = htole32(15);
	cmd.sqe.cdw12 = htole32(1); /* one block too many */
	CU_ASSERT_EQUAL(run_and_look(2 * BLOCK), NVME_ST_DNR(GENERIC, LBA_RANGE));
	detach();
}

/* Reads n blocks of `bytes` each, as the host sees them, and expects zeroes. */
static void read_zeroes(uint32_t id, uint32_t n, uint32_t bytes)
{
	loop_cmd_init(&cmd, io, nvme_cmd_read, id);
	cmd.sqe.cdw10 = htole32(1);
	cmd.sqe.cdw12 = htole32(n - 1);
	CU_ASSERT_EQUAL(run_and_look(n * bytes), 0);
	for (uint32_t i = 0; i < n * bytes; i++) {
		CU_ASSERT_EQUAL_FATAL(data[i], 0);
	}
}

static void add_null_ns(const char *name, struct bdev_md md, bool hide_metadata, uint32_t *id)
{
	struct bdev_null_opts opts = {.name = name, .block_size = 4096, .num_blocks = 64, .md = md};
	struct nvmf_ns_opts ns = {.hide_metadata = hide_metadata};
	char error[BDEV_ERROR_MAX];

	CU_ASSERT_EQUAL_FATAL(bdev_null_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), name, &ns, id), 0);
}

static void null_deleted(void *arg, int rc)
{
	loop_done(arg, rc);
}

static void remove_null_ns(const char *name, uint32_t id)
{
	struct loop_wait wait = LOOP_WAIT;

	loop_remove_ns(id);
	bdev_null_delete(name, null_deleted, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
}

/* A null bdev stores nothing, and leaves the buffer of a read as it is. */
static void test_null_reads_send_zeroes(void)
{
	uint32_t null, with_md, hidden;

	attach();
	add_null_ns("null", (struct bdev_md){0}, false, &null);
	add_null_ns("md", (struct bdev_md){.size = 64}, false, &with_md);
	add_null_ns("hidden", (struct bdev_md){.size = 64, .dif_type = 1}, true, &hidden);
	for (unsigned zcopy = 0; zcopy < 2; zcopy++) {
		loop_zcopy = zcopy != 0;
		loop_zcopy_requests = 0;
		read_zeroes(null, 1, 4096);
		read_zeroes(null, 32, 4096);
		CU_ASSERT_EQUAL(loop_zcopy_requests, zcopy != 0 ? 2 : 0);
		read_zeroes(with_md, 3, 4096 + 64);
		read_zeroes(hidden, 3, 4096);
	}
	loop_zcopy = false;
	remove_null_ns("hidden", hidden);
	remove_null_ns("md", with_md);
	remove_null_ns("null", null);
	detach();
}

static void test_reads_of_a_bdev_on_a_null_bdev_send_zeroes(void)
{
	struct bdev_null_opts opts = {.name = "null", .block_size = 4096, .num_blocks = 64};
	struct loop_wait wait = LOOP_WAIT;
	char error[BDEV_ERROR_MAX];

	attach();
	CU_ASSERT_EQUAL_FATAL(bdev_null_create(&opts, error), 0);
	CU_ASSERT_EQUAL_FATAL(bdev_passthru_create("on", "null", NULL, error), 0);
	uint32_t on = loop_add_ns("on", 0);
	read_zeroes(on, 3, 4096);
	loop_remove_ns(on);
	bdev_passthru_delete("on", null_deleted, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	wait = (struct loop_wait)LOOP_WAIT;
	bdev_null_delete("null", null_deleted, &wait);
	CU_ASSERT_EQUAL(loop_wait_for(&wait), 0);
	detach();
}

/* What a host writes to a null bdev is gone: the zeroes of its reads are not written to. */
static void test_null_writes_do_not_show_in_reads(void)
{
	uint32_t null;

	attach();
	add_null_ns("null", (struct bdev_md){0}, false, &null);
	loop_zcopy = true;
	memset(data, 0x5a, sizeof(data));
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, null, 1, 31, data, 32 * 4096), 0);
	read_zeroes(null, 32, 4096);
	loop_zcopy = false;
	remove_null_ns("null", null);
	detach();
}

static void get_every_identify_structure(struct loop_conn *c)
{
	for (uint32_t cns = 0; cns <= 0x20; cns++) {
		for (uint32_t n = 0; n <= nsid + 1; n++) {
			loop_cmd_init(&cmd, c, nvme_admin_identify, n);
			cmd.sqe.cdw10 = htole32(cns);
			run_and_look(4096);
		}
	}
}

static void get_every_log(struct loop_conn *c)
{
	for (uint32_t lid = 0; lid <= UINT8_MAX; lid++) {
		for (uint32_t offset = 0; offset <= 8192; offset += 1024) {
			loop_cmd_init(&cmd, c, nvme_admin_get_log_page, 0);
			cmd.sqe.cdw10 = htole32(lid | (16384 / 4 - 1) << 16);
			cmd.sqe.cdw12 = htole32(offset);
			run_and_look(16384);
		}
	}
}

/* Every part of a log page is what the whole page has there. RAE is set, so that reading changes nothing. */
static void get_parts_of_every_log(struct loop_conn *c)
{
	static const uint32_t offsets[] = {4, 60, 516, 1020, 1028, 4092}, lengths[] = {4, 36, 1024, 4100};
	static uint8_t whole[16384];

	for (uint32_t lid = 0; lid <= UINT8_MAX; lid++) {
		if (loop_get_log(c, (uint8_t)lid, true, 0, whole, sizeof(whole)) != 0) {
			continue;
		}
		for (size_t i = 0; i < ARRAY_SIZE(offsets) * ARRAY_SIZE(lengths); i++) {
			uint32_t offset = offsets[i % ARRAY_SIZE(offsets)], len = lengths[i / ARRAY_SIZE(offsets)];
			loop_cmd_init(&cmd, c, nvme_admin_get_log_page, 0);
			cmd.sqe.cdw10 = htole32(lid | 1 << 15 | (len / 4 - 1) << 16);
			cmd.sqe.cdw12 = htole32(offset);
			/* a page that is shorter refuses the offset: an error, which these pages show or count */
			if (run_and_look(len) == 0 && lid != NVME_LOG_LID_ERROR && lid != NVME_LOG_LID_SMART) {
				CU_ASSERT_EQUAL(memcmp(data, whole + offset, len), 0);
			}
			CU_ASSERT_EQUAL(data[len], 0);
		}
	}
}

static void get_every_feature(struct loop_conn *c)
{
	for (uint32_t fid = 0; fid <= UINT8_MAX; fid++) {
		for (uint32_t select = 0; select < 8; select++) {
			for (uint32_t n = 0; n <= nsid; n++) {
				loop_cmd_init(&cmd, c, nvme_admin_get_features, n);
				cmd.sqe.cdw10 = htole32(fid | select << 8);
				cmd.sqe.cdw11 = htole32(1);
				run_and_look(4096);
			}
		}
	}
}

static void test_admin_commands_send_what_they_wrote(void)
{
	attach();
	get_every_identify_structure(admin);
	get_every_log(admin);
	get_parts_of_every_log(admin);
	get_every_feature(admin);
	detach();
	struct loop_conn *d = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	get_every_identify_structure(d);
	get_every_log(d);
	get_parts_of_every_log(d);
	get_every_feature(d);
	loop_close(d);
}

static void test_reservation_report_sends_what_it_wrote(void)
{
	attach();
	for (uint32_t dwords = 1; dwords <= 8192 / 4; dwords += 61) {
		loop_cmd_init(&cmd, io, nvme_cmd_resv_report, plain);
		cmd.sqe.cdw10 = htole32(dwords - 1);
		cmd.sqe.cdw11 = htole32(dwords & 1);
		run_and_look(8192);
	}
	detach();
}

/* Every row that sends data is one of those above, or a Read, whose blocks the bdev has written. */
static void test_no_other_command_sends_data(void)
{
	for (unsigned i = 0; i <= UINT8_MAX; i++) {
		bool to_host = nvmf_io_commands[i].xfer == NVME_DATA_TFR_CTRL_TO_HOST;
		CU_ASSERT(!to_host || i == nvme_cmd_read || i == nvme_cmd_resv_report);
		to_host = nvmf_admin_commands[i].xfer == NVME_DATA_TFR_CTRL_TO_HOST;
		CU_ASSERT(!to_host || i == nvme_admin_identify || i == nvme_admin_get_log_page ||
			  i == nvme_admin_get_features);
	}
}

/* ---- What is announced ---- */

static const struct nvmf_disc_log_entry *read_entry(unsigned n)
{
	struct loop_conn *d = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0);

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL(loop_get_log(d, NVME_LOG_LID_DISCOVER, false, 0, data, 16384), 0);
	loop_close(d);
	return (const void *)(data + (n + 1) * sizeof(struct nvmf_disc_log_entry));
}

static void test_listeners_tell_that_flow_control_can_be_disabled(void)
{
	CU_ASSERT_EQUAL(read_entry(0)->treq, NVMF_TREQ_NOT_SPECIFIED | NVMF_TREQ_DISABLE_SQFLOW);
}

static unsigned count_entries(void)
{
	const struct nvmf_discovery_log *log = (const void *)data;

	read_entry(0);
	return (unsigned)le64toh(log->numrec);
}

static void test_referrals_tell_their_subtype_and_whether_the_channel_is_secure(void)
{
	struct nvmf_referral r = {.address = {"LOOP", NVMF_ADDR_FAMILY_IP4, "10.0.0.1", "8009"},
				  .secure_channel = true};
	unsigned at = count_entries();

	CU_ASSERT_EQUAL(nvmf_tgt_add_referral(loop_tgt(), &r), 0);
	const struct nvmf_disc_log_entry *e = read_entry(at);
	CU_ASSERT_EQUAL(e->treq, NVMF_TREQ_REQUIRED);
	CU_ASSERT_EQUAL(e->subtype, NVME_NQN_DISC);
	CU_ASSERT_EQUAL(nvmf_tgt_remove_referral(loop_tgt(), &r.address, NULL), 0);
	r.secure_channel = false;
	strcpy(r.subnqn, "nqn.2024-01.io.varve:elsewhere");
	CU_ASSERT_EQUAL(nvmf_tgt_add_referral(loop_tgt(), &r), 0);
	e = read_entry(at);
	CU_ASSERT_EQUAL(e->treq, NVMF_TREQ_NOT_SPECIFIED);
	CU_ASSERT_EQUAL(e->subtype, NVME_NQN_NVME);
	CU_ASSERT_STRING_EQUAL(e->subnqn, r.subnqn);
	CU_ASSERT_EQUAL(nvmf_tgt_remove_referral(loop_tgt(), &r.address, r.subnqn), 0);
}

/* Hosts send descriptors in the room for in-capsule data, so the two must fit. */
static void test_there_is_room_in_the_capsule_for_the_descriptors_announced(void)
{
	struct nvmf_transport_opts opts;
	struct nvmf_tgt *second;

	CU_ASSERT_EQUAL_FATAL(nvmf_tgt_create(&(struct nvmf_tgt_opts){.name = "second"}, &second), 0);
	CU_ASSERT_EQUAL(nvmf_transport_opts_init("LOOP", &opts), 0);
	opts.in_capsule_data_size = 0;
	CU_ASSERT_EQUAL(nvmf_transport_create(second, "LOOP", &opts, (char[NVMF_ERROR_MAX]){0}), 0);
	const struct nvmf_transport *t = nvmf_transport_find(second, "LOOP");
	CU_ASSERT_EQUAL(t->opts.in_capsule_data_size, t->sgl_rules.max_descs * sizeof(union nvme_sgl_desc));
	nvmf_tgt_destroy(second);
}

/* ---- Who is refused, and what operators are told ---- */

static struct {
	unsigned refused, connected, disconnected;
	char text[2048], why[512];
} told;

static void on_notice(const char *type, const char *text, const char *why)
{
	told.refused += strcmp(type, "nvmf_host_refused") == 0;
	told.connected += strcmp(type, "nvmf_host_connect") == 0;
	told.disconnected += strcmp(type, "nvmf_host_disconnect") == 0;
	snprintf(told.text, sizeof(told.text), "%s", text);
	snprintf(told.why, sizeof(told.why), "%s", why != NULL ? why : "");
}

static bool is_told(void *arg)
{
	return told.refused == *(unsigned *)arg;
}

/* Sends a Connect that change() has spoilt: it is refused, and the notification has these words. */
static void expect_refusal(void (*change)(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d), const char *words)
{
	static struct nvmf_connect_data d;
	struct loop_conn *c = loop_open(&loop_address, 0);
	unsigned wanted = told.refused + 1;

	CU_ASSERT_PTR_NOT_NULL_FATAL(c);
	loop_connect_init(&cmd, c, &d, 0, NVMF_CNTLID_DYNAMIC);
	change((struct nvmf_connect_sqe *)&cmd.sqe, &d);
	CU_ASSERT_NOT_EQUAL(loop_run(&cmd), 0);
	CU_ASSERT_TRUE(loop_until(is_told, &wanted));
	CU_ASSERT_PTR_NOT_NULL(strstr(told.why, words));
	loop_close(c);
}

static void unknown_subsystem(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	strcpy(d->subsysnqn, "nqn.2024-01.io.varve:none");
}

static void bad_name(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	strcpy(d->hostnqn, "nqn.\n");
}

static void large_queue(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	sqe->sqsize = htole16(32);
}

static void no_queue(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	sqe->sqsize = 0;
}

static void other_format(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	sqe->recfmt = htole16(7);
}

static void own_cntlid(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	d->cntlid = htole16(9);
}

static void unknown_cntlid(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	sqe->qid = htole16(1);
	d->cntlid = htole16(77);
}

static void short_data(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	loop_cmd_data(&cmd, d, sizeof(*d) - 1);
}

static void stranger(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	strcpy(d->hostnqn, "nqn.2024-01.io.varve:stranger");
}

static void unnamed(struct nvmf_connect_sqe *sqe, struct nvmf_connect_data *d)
{
	memset(d->hostnqn, 0, sizeof(d->hostnqn));
}

static void test_each_refused_connect_is_told_with_the_field(void)
{
	nvmf_set_notice_fn(on_notice);
	expect_refusal(unknown_subsystem,
		       "SUBNQN is \"nqn.2024-01.io.varve:none\": allowed are the subsystems that listen at");
	expect_refusal(bad_name, "HOSTNQN is not a name");
	expect_refusal(large_queue, "SQSIZE is 32, for 33 entries: allowed are 2 to 32 entries");
	expect_refusal(no_queue, "SQSIZE is 0");
	expect_refusal(other_format, "RECFMT is 7: allowed is 0");
	expect_refusal(own_cntlid, "CNTLID is 0x0009: allowed is 0xffff");
	expect_refusal(unknown_cntlid, "CNTLID is 77: the subsystem has no such controller");
	expect_refusal(short_data, "byte 32 of the command");
	CU_ASSERT_PTR_EQUAL(strstr(told.text, "(unknown) "), told.text);
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), false), 0);
	expect_refusal(stranger, "it is not among the subsystem's hosts");
	CU_ASSERT_STRING_EQUAL(told.text, LOOP_SUBNQN " nqn.2024-01.io.varve:stranger");
	expect_refusal(unnamed, "HOSTNQN is empty: allowed is that of one of the subsystem's hosts");
	CU_ASSERT_STRING_EQUAL(told.text, LOOP_SUBNQN " (unnamed) here");
	CU_ASSERT_EQUAL(nvmf_subsystem_set_allow_any_host(loop_subsystem(), true), 0);
	nvmf_set_notice_fn(NULL);
}

/* Anybody may read the discovery log, over and over; the notifications that operators wait for are not displaced. */
static void test_strangers_do_not_flush_the_notifications(void)
{
	static struct nvmf_connect_data d;

	told.refused = told.connected = told.disconnected = 0;
	nvmf_set_notice_fn(on_notice);
	for (unsigned i = 0; i < 100; i++) {
		struct loop_conn *c = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(c);
		loop_close(c);
		c = loop_open(&loop_address, 0);
		loop_connect_init(&cmd, c, &d, 0, NVMF_CNTLID_DYNAMIC);
		unknown_subsystem(NULL, &d);
		loop_run(&cmd);
		loop_close(c);
	}
	CU_ASSERT(told.connected > 0 && told.connected <= 40);
	CU_ASSERT_EQUAL(told.disconnected, told.connected);
	CU_ASSERT(told.refused > 0 && told.refused <= 40);
	struct loop_conn *c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0); /* those of a subsystem's hosts are all told */
	unsigned before = told.connected;
	loop_close(c);
	c = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	CU_ASSERT_EQUAL(told.connected, before + 1);
	loop_close(c);
	nvmf_set_notice_fn(NULL);
}

static bool nobody_is_anonymous(void *arg)
{
	struct nvmf_transport *t = nvmf_transport_find(loop_tgt(), "LOOP");
	struct nvmf_qpair q = {.transport = t, .peer_address = loop_address};
	bool room = nvmf_anonymous_add(&q) == 0;

	nvmf_anonymous_remove(&q);
	return room;
}

/* Whether n more connections are taken; they are closed again. */
static unsigned open_many(unsigned n, const struct nvmf_address *address)
{
	struct loop_conn *c[8];
	unsigned taken = 0;

	for (unsigned i = 0; i < n; i++) {
		c[taken] = loop_open(address, 0);
		taken += c[taken] != NULL;
	}
	for (unsigned i = 0; i < taken; i++) {
		loop_close(c[i]);
	}
	return taken;
}

static void test_connections_of_hosts_that_are_not_known_are_limited(void)
{
	struct nvmf_transport_opts *o = &nvmf_transport_find(loop_tgt(), "LOOP")->opts;
	struct nvmf_transport_opts before = *o;

	o->max_anonymous_per_host = 3;
	o->max_anonymous = 5;
	CU_ASSERT_EQUAL(open_many(8, &loop_address), 3);
	struct loop_conn *d = loop_attach(NVMF_DISCOVERY_NQN, LOOP_HOSTNQN, 0); /* whoever reads the log is not known */
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT_EQUAL(open_many(8, &loop_address), 2);
	/* hosts of a subsystem are known, however many */
	struct loop_conn *known[6];
	for (unsigned i = 0; i < 6; i++) {
		known[i] = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(known[i]);
	}
	CU_ASSERT_EQUAL(open_many(8, &loop_address), 2);
	o->max_anonymous = 2; /* those of other addresses count too */
	CU_ASSERT_EQUAL(open_many(8, &loop_other_address), 1);
	for (unsigned i = 0; i < 6; i++) {
		loop_close(known[i]);
	}
	loop_close(d);
	o->max_anonymous = 1;
	CU_ASSERT_TRUE(loop_until(nobody_is_anonymous, NULL));
	*o = before;
}

static const struct unit_test tests[] = {
	UNIT(test_vendor_read_that_moves_less_than_described),
	UNIT(test_reads_that_fail_send_nothing),
	UNIT(test_null_reads_send_zeroes),
	UNIT(test_reads_of_a_bdev_on_a_null_bdev_send_zeroes),
	UNIT(test_null_writes_do_not_show_in_reads),
	UNIT(test_admin_commands_send_what_they_wrote),
	UNIT(test_reservation_report_sends_what_it_wrote),
	UNIT(test_no_other_command_sends_data),
	UNIT(test_listeners_tell_that_flow_control_can_be_disabled),
	UNIT(test_referrals_tell_their_subtype_and_whether_the_channel_is_secure),
	UNIT(test_there_is_room_in_the_capsule_for_the_descriptors_announced),
	UNIT(test_each_refused_connect_is_told_with_the_field),
	UNIT(test_strangers_do_not_flush_the_notifications),
	UNIT(test_connections_of_hosts_that_are_not_known_are_limited),
	UNIT_END,
};
UNIT_MAIN("nvmf_wire", tests, loop_start, loop_stop)
