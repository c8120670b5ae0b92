/* SPDX-License-Identifier: BSD-3-Clause */
/* Namespaces whose blocks have metadata: extended blocks, protection information by the host and by the controller, and
 * hidden. */
#include "bdev/dif.h"
#include "unittest/nvmf/loop.h"

#define BLOCKS 256
#define EXT    520u
#define DATA   512u
#define GUARD  NVME_ST_DNR(MEDIA, GUARD_CHECK)
#define APP    NVME_ST_DNR(MEDIA, APPTAG_CHECK)
#define REF    NVME_ST_DNR(MEDIA, REFTAG_CHECK)

static struct loop_conn *admin, *io;
static uint32_t nsid;
static uint8_t out[LOOP_MAX_IO], in[LOOP_MAX_IO], ext[LOOP_MAX_IO];
static struct loop_cmd cmd, second;

static bool *transport_strips(void)
{
	const struct nvmf_transport_opts *opts = nvmf_transport_get_opts(nvmf_transport_next(loop_tgt(), NULL));
	return (bool *)(uintptr_t)&opts->dif_insert_or_strip;
}

static void attach(uint32_t block_size, struct bdev_md md, bool hide)
{
	const struct bdev_malloc_opts opts = {
		.name = "m", .block_size = block_size, .num_blocks = BLOCKS, .numa_id = -1, .md = md};
	const struct nvmf_ns_opts ns = {.hide_metadata = hide};
	char error[BDEV_ERROR_MAX];

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "m", &ns, &nsid), 0);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
}

static void detach(void)
{
	loop_close(io);
	loop_close(admin);
	loop_remove_malloc_ns(nsid, "m");
}

static void fill(uint8_t *buf, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++) {
		buf[i] = (uint8_t)fixture_random(&seed);
	}
}

static void protect(uint8_t *blocks, uint32_t n, uint8_t type, uint32_t ref, uint16_t app)
{
	const struct dif_format f = {DATA, 8, 0, type};
	const struct dif_tags tags = {.ref = ref, .app = app};

	dif_generate(&f, &tags, &(struct iovec){blocks, n * EXT}, n);
}

/* prinfo: NVME_PI_*; len: bytes of the data pointer. */
static void md_init(struct loop_cmd *c, uint8_t opcode, uint64_t slba, uint16_t blocks, uint32_t prinfo, uint32_t ref,
		    uint32_t app, void *buf, uint32_t len)
{
	loop_cmd_init(c, io, opcode, nsid);
	c->sqe.cdw10 = htole32((uint32_t)slba);
	c->sqe.cdw12 = htole32((blocks - 1u) | prinfo);
	c->sqe.cdw14 = htole32(ref);
	c->sqe.cdw15 = htole32(app);
	if (buf != NULL) {
		loop_cmd_data(c, buf, len);
	}
}

static uint16_t run(uint8_t opcode, uint64_t slba, uint16_t blocks, uint32_t prinfo, uint32_t ref, uint32_t app,
		    void *buf, uint32_t len)
{
	md_init(&cmd, opcode, slba, blocks, prinfo, ref, app, buf, len);
	return loop_run(&cmd);
}

static void identify(struct nvme_id_ns *id)
{
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_NS, nsid, 0, id), 0);
}

static void test_the_format_is_told(void)
{
	static const struct {
		uint32_t block;
		struct bdev_md md;
		uint8_t ds, dpc, dps;
	} cases[] = {
		{512, {.size = 8, .dif_type = 1}, 9, 0x11, 1},
		{4096, {.size = 64, .dif_type = 2, .dif_is_first = true}, 12, 0x0a, 0x0a},
		{65536, {.size = 16, .dif_type = 3}, 16, 0x14, 3},
		{4096, {.size = 128}, 12, 0, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (unsigned hide = 0; hide < 3; hide++) {
			struct nvme_id_ns id;
			*transport_strips() = hide == 2;
			attach(cases[i].block, cases[i].md, hide == 1);
			identify(&id);
			CU_ASSERT_EQUAL(le64toh(id.nsze), BLOCKS);
			CU_ASSERT_EQUAL(id.lbaf[0].ds, cases[i].ds);
			CU_ASSERT_EQUAL(le16toh(id.lbaf[0].ms), hide ? 0 : cases[i].md.size);
			CU_ASSERT_EQUAL(id.flbas, hide ? 0 : 0x10);
			CU_ASSERT_EQUAL(id.mc, hide ? 0 : 1);
			CU_ASSERT_EQUAL(id.dpc, hide ? 0 : cases[i].dpc);
			CU_ASSERT_EQUAL(id.dps, hide ? 0 : cases[i].dps);
			detach();
		}
	}
	*transport_strips() = false;
}

static void test_the_hosts_protection_information_passes_through(void)
{
	const uint32_t all = NVME_PI_CHECK_GUARD | NVME_PI_CHECK_APP | NVME_PI_CHECK_REF;

	for (unsigned zcopy = 0; zcopy < 2; zcopy++) {
		attach(DATA, (struct bdev_md){.size = 8, .dif_type = 1}, false);
		atomic_store(&loop_zcopy, zcopy != 0);
		fill(out, 100 * EXT, 1);
		protect(out, 100, 1, 50, 0xabcd);
		CU_ASSERT_EQUAL(run(nvme_cmd_write, 50, 100, all, 50, 0xffffabcd, out, 100 * EXT), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 50, 100, all, 50, 0xffffabcd, in, 100 * EXT), 0);
		CU_ASSERT_EQUAL(memcmp(in, out, 100 * EXT), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_compare, 50, 100, all, 50, 0xffffabcd, out, 100 * EXT), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 60, 1, all, 60, 0xffffabcc, in, EXT), APP);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 60, 1, all, 60, 0xfff0abcc, in, EXT), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 60, 1, all, 61, 0xffffabcd, in, EXT),
				NVME_ST_DNR(CMD_SPECIFIC, INVALID_PI));
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 60, 1, all, 60, 0xffffabcd, in, DATA),
				NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
		atomic_store(&loop_zcopy, false);
		detach();
	}
}

static void test_each_check_has_its_status(void)
{
	attach(DATA, (struct bdev_md){.size = 8, .dif_type = 2}, false);
	fill(out, 4 * EXT, 2);
	protect(out, 4, 2, 1000, 7);
	out[2 * EXT + 5] ^= 1;
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 8, 4, NVME_PI_CHECK_GUARD, 1000, 0, out, 4 * EXT), GUARD);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 8, 4, NVME_PI_CHECK_REF, 1001, 0, out, 4 * EXT), REF);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 8, 4, NVME_PI_CHECK_APP, 0, 0xffff0000, out, 4 * EXT), APP);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 8, 4, 0, 0, 0, out, 4 * EXT),
			0); /* unchecked: the bad block is stored ... */
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 8, 4, 0, 0, 0, in, 4 * EXT), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 8, 4, NVME_PI_CHECK_GUARD, 0, 0, in, 4 * EXT), GUARD); /* ... and found */
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 8, 4, NVME_PI_ACT | NVME_PI_CHECK_GUARD, 0, 0, in, 4 * DATA), GUARD);
	CU_ASSERT_EQUAL(run(nvme_cmd_verify, 8, 4, NVME_PI_CHECK_GUARD, 0, 0, NULL, 0), GUARD);
	CU_ASSERT_EQUAL(run(nvme_cmd_verify, 8, 2, NVME_PI_CHECK_GUARD, 0, 0, NULL, 0), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 8, 4, NVME_PI_CHECK_REF, 1000, 0, in, 4 * EXT), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 8, 4, NVME_PI_CHECK_REF, 1001, 0, in, 4 * EXT), REF);
	memset(in, 0, 32); /* one range: block 0 */
	CU_ASSERT_EQUAL(run(nvme_cmd_copy, 100, 1, 0, 0, 0, in, 32), NVME_ST_DNR(GENERIC, INVALID_FIELD));
	detach();
}

static void test_the_controller_makes_and_strips_what_it_is_asked_to(void)
{
	const uint32_t act = NVME_PI_ACT | NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF;

	attach(DATA, (struct bdev_md){.size = 8, .dif_type = 1}, false);
	fill(out, 200 * DATA, 3);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 20, 200, act, 20, 0x4321, out, 200 * DATA), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 20, 200, act | NVME_PI_CHECK_APP, 20, 0xffff4321, in, 200 * DATA), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, 200 * DATA), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_compare, 20, 200, act, 20, 0, out, 200 * DATA), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 21, 1, 0, 0, 0, ext, EXT), 0);
	CU_ASSERT_EQUAL(ext[512] << 8 | ext[513], dif_crc(DIF_GUARD_16, 0, out + DATA, DATA));
	CU_ASSERT_EQUAL(ext[514] << 8 | ext[515], 0x4321);
	CU_ASSERT_EQUAL(ext[519], 21);
	CU_ASSERT_EQUAL(run(nvme_cmd_write_zeroes, 22, 4, act, 22, 0x77, NULL, 0), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 22, 4, act | NVME_PI_CHECK_APP, 22, 0xffff0077, in, 4 * DATA), 0);
	CU_ASSERT_EQUAL(in[0] | in[4 * DATA - 1], 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_write_zeroes, 22, 4, act, 23, 0, NULL, 0), NVME_ST_DNR(CMD_SPECIFIC, INVALID_PI));
	detach();
}

/* Metadata that is more than protection information is always transferred; what is asked for is made in its place. */
static void test_longer_metadata_is_always_transferred(void)
{
	attach(DATA, (struct bdev_md){.size = 16, .dif_type = 1}, false);
	fill(out, 4 * 528, 4);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 4, 4, NVME_PI_ACT, 4, 0, out, 4 * DATA),
			NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 4, 4, NVME_PI_ACT, 4, 0, out, 4 * 528), 0);
	CU_ASSERT_EQUAL(
		run(nvme_cmd_read, 4, 4, NVME_PI_ACT | NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF, 4, 0, in, 4 * 528), 0);
	CU_ASSERT_EQUAL(in[527], 4);
	CU_ASSERT_EQUAL(memcmp(in + 528, out + 528, 520), 0);
	detach();
}

static void test_hidden_metadata_is_made_and_checked(void)
{
	for (unsigned how = 0; how < 2; how++) {
		attach(DATA, (struct bdev_md){.size = 8, .dif_type = 1}, how == 0);
		*transport_strips() = how == 1;
		fill(out, LOOP_MAX_IO, 5);
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 0, 255, out, LOOP_MAX_IO), 0);
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, 255, in, LOOP_MAX_IO), 0);
		CU_ASSERT_EQUAL(memcmp(in, out, LOOP_MAX_IO), 0);
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_compare, nsid, 0, 255, out, LOOP_MAX_IO), 0);
		out[DATA * 200] ^= 1;
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_compare, nsid, 0, 255, out, LOOP_MAX_IO),
				NVME_ST_DNR(MEDIA, COMPARE_FAILED));
		/* bits that would mean something if there were metadata to be seen */
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, NVME_PI_ACT | NVME_PI_CHECK_REF, 99, 0, in, DATA), 0);
		*transport_strips() = false;
		detach();
	}
}

/* Behind the back of the host that does not see metadata, a block goes bad. */
static void test_corruption_below_hidden_metadata_is_a_guard_error(void)
{
	attach(DATA, (struct bdev_md){.size = 8, .dif_type = 1}, false);
	fill(out, 8 * DATA, 6);
	*transport_strips() = true;
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 8, 7, out, 8 * DATA), 0);
	*transport_strips() = false;
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 8, 8, 0, 0, 0, ext, 8 * EXT), 0);
	ext[4 * EXT + 99] ^= 2;
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 8, 8, 0, 0, 0, ext, 8 * EXT), 0);
	*transport_strips() = true;
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 8, 3, in, 4 * DATA), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 8, 7, in, 8 * DATA), GUARD);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 13, 2, in, 3 * DATA), 0);
	*transport_strips() = false;
	detach();
}

static void test_fused_compare_and_write_with_protection(void)
{
	attach(DATA, (struct bdev_md){.size = 8, .dif_type = 1}, false);
	fill(out, DATA, 7);
	fill(in, DATA, 8);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 9, 1, NVME_PI_ACT, 9, 0, out, DATA), 0);
	for (unsigned round = 0; round < 2; round++) {
		md_init(&cmd, nvme_cmd_compare, 9, 1, NVME_PI_ACT, 9, 0, out, DATA);
		md_init(&second, nvme_cmd_write, 9, 1, NVME_PI_ACT, 9, 0, in, DATA);
		cmd.sqe.flags |= NVME_FUSE_FIRST;
		second.sqe.flags |= NVME_FUSE_SECOND;
		loop_submit(&cmd);
		loop_submit(&second);
		CU_ASSERT_EQUAL(loop_wait(&cmd), round == 0 ? 0 : NVME_ST_DNR(MEDIA, COMPARE_FAILED));
		CU_ASSERT_EQUAL(loop_wait(&second), round == 0 ? 0 : NVME_ST_DNR(GENERIC, FUSED_FAIL));
	}
	CU_ASSERT_EQUAL(
		run(nvme_cmd_read, 9, 1, NVME_PI_ACT | NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF, 9, 0, ext, DATA), 0);
	CU_ASSERT_EQUAL(memcmp(in, ext, DATA), 0);
	detach();
}

static void test_blocks_of_64_kib(void)
{
	attach(65536, (struct bdev_md){.size = 8, .dif_type = 1}, false);
	fill(out, LOOP_MAX_IO, 9);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 7, 2, NVME_PI_ACT, 7, 0, out, LOOP_MAX_IO), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 7, 2, NVME_PI_ACT | NVME_PI_CHECK_GUARD, 7, 0, in, LOOP_MAX_IO), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, LOOP_MAX_IO), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 8, 1, NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF, 8, 0, ext, 65544), 0);
	CU_ASSERT_EQUAL(memcmp(ext, out + 65536, 65536), 0);
	/* Metadata come on top of MDTS; a data pointer for the data alone is too short then. */
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 7, 2, 0, 0, 0, in, LOOP_MAX_IO), NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
	detach();
	attach(65536, (struct bdev_md){.size = 0}, false);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 254, 1, out, LOOP_MAX_IO), 0);
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 254, 1, in, LOOP_MAX_IO), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, LOOP_MAX_IO), 0);
	detach();
}

/* Linux knows the limit of the data only, and sends their metadata on top of them. */
static void test_metadata_come_on_top_of_the_largest_transfer(void)
{
	static const struct {
		uint32_t block, md;
	} cases[] = {{512, 8}, {4096, 8}, {4096, 64}, {512, 128}};
	static uint8_t wrote[LOOP_MAX_IO / 4 * 5], got[LOOP_MAX_IO / 4 * 5];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t blocks = LOOP_MAX_IO / cases[i].block, bytes = blocks * (cases[i].block + cases[i].md);

		attach(cases[i].block, (struct bdev_md){.size = cases[i].md}, false);
		fill(wrote, bytes, 3);
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 0, (uint16_t)(blocks - 1), wrote, bytes), 0);
		CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_read, nsid, 0, (uint16_t)(blocks - 1), got, bytes), 0);
		CU_ASSERT_EQUAL(memcmp(wrote, got, bytes), 0);
		uint16_t status =
			loop_rw(io, nvme_cmd_read, nsid, 0, (uint16_t)blocks, got, sizeof(got)); /* one more */
		CU_ASSERT(status == NVME_ST_DNR(GENERIC, INVALID_FIELD) || status == NVME_ST_DNR(GENERIC, LBA_RANGE));
		detach();
	}
}

/* The data units of the SMART log do not include metadata (Base 5.16.1.3). */
static void test_data_units_do_not_count_metadata(void)
{
	struct nvmf_io_counters before = {0}, after = {0};

	for (unsigned hide = 0; hide < 2; hide++) {
		attach(4096, (struct bdev_md){.size = 64}, hide != 0);
		nvmf_views_sum(loop_subsystem(), &before);
		uint32_t bytes = 16 * (4096 + (hide ? 0 : 64));
		CU_ASSERT_EQUAL(run(nvme_cmd_write, 0, 16, 0, 0, 0, out, bytes), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 0, 16, 0, 0, 0, in, bytes), 0);
		nvmf_views_sum(loop_subsystem(), &after);
		CU_ASSERT_EQUAL(after.read_blocks - before.read_blocks, 16 * 4096 / 512);
		CU_ASSERT_EQUAL(after.written_blocks - before.written_blocks, 16 * 4096 / 512);
		detach();
		before = after = (struct nvmf_io_counters){0};
	}
}

/* ---- Guards of 32 and 64 bits ---- */

#define EXT_16      (DATA + 16)
#define STORAGE     NVME_ST_DNR(MEDIA, STORAGE_TAG_CHECK)
#define NO_BEHAVIOR NVME_ST_DNR(GENERIC, INVALID_NS)

/* Host Behavior Support: sets LBAFEE. */
static uint16_t set_behavior(uint8_t acre, uint8_t lbafee)
{
	uint8_t data[512] = {acre, 0, lbafee};

	loop_cmd_init(&cmd, admin, nvme_admin_set_features, 0);
	cmd.sqe.cdw10 = htole32(NVME_FEAT_FID_HOST_BEHAVIOR);
	loop_cmd_data(&cmd, data, sizeof(data));
	return loop_run(&cmd);
}

static void get_behavior(uint8_t data[512])
{
	loop_cmd_init(&cmd, admin, nvme_admin_get_features, 0);
	cmd.sqe.cdw10 = htole32(NVME_FEAT_FID_HOST_BEHAVIOR);
	loop_cmd_data(&cmd, data, 512);
	CU_ASSERT_EQUAL(loop_run(&cmd), 0);
}

static void attach_extended(uint16_t md_size, uint8_t type, enum dif_guard guard)
{
	attach(DATA, (struct bdev_md){.size = md_size, .dif_type = type, .dif_guard = (uint8_t)guard}, false);
	CU_ASSERT_EQUAL(set_behavior(0, 1), 0);
}

/* A command whose tags are longer than those of run(): ref has 64 bits, in front of which storage stands. */
static uint16_t run_long(uint8_t opcode, uint64_t slba, uint16_t blocks, uint32_t prinfo, uint64_t ref,
			 uint16_t storage, void *buf, uint32_t len)
{
	md_init(&cmd, opcode, slba, blocks, prinfo, (uint32_t)ref, 0xffff0042, buf, len);
	cmd.sqe.cdw3 = htole32((uint32_t)(ref >> 32));
	cmd.sqe.cdw2 = htole32(storage);
	return loop_run(&cmd);
}

static void test_longer_guards_are_told(void)
{
	static const struct {
		struct bdev_md md;
		uint32_t elbaf;
		uint64_t lbstm;
	} cases[] = {
		{{.size = 8, .dif_type = 1}, 0, 0},
		{{.size = 16, .dif_type = 1, .dif_guard = DIF_GUARD_32}, 1 << 7 | 16, 0xffff},
		{{.size = 64, .dif_type = 3, .dif_guard = DIF_GUARD_64, .dif_is_first = true}, 2 << 7, 0},
		{{.size = 16, .dif_type = 0, .dif_guard = DIF_GUARD_64}, 0, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (unsigned hide = 0; hide < 3; hide++) {
			struct nvme_nvm_id_ns nvm;
			struct nvme_id_ctrl ctrlr;
			struct nvme_id_ns id;
			*transport_strips() = hide == 2;
			attach(4096, cases[i].md, hide == 1);
			identify(&id);
			CU_ASSERT_EQUAL(le16toh(id.lbaf[0].ms), hide ? 0 : cases[i].md.size);
			CU_ASSERT_EQUAL(id.dps & NVME_NS_DPS_PI_MASK, hide ? 0 : cases[i].md.dif_type);
			memset(&nvm, 0xff, sizeof(nvm));
			CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_CSI_NS, nsid, 0, &nvm), 0);
			CU_ASSERT_EQUAL(le32toh(nvm.elbaf[0]), hide ? 0 : cases[i].elbaf);
			CU_ASSERT_EQUAL(le64toh(nvm.lbstm), hide ? 0 : cases[i].lbstm);
			CU_ASSERT_EQUAL(nvm.pic, hide || cases[i].elbaf == 0 ? 0 : NVME_NVM_PIC_16BPISTS);
			CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_CTRL, 0, 0, &ctrlr), 0);
			CU_ASSERT_NOT_EQUAL(le32toh(ctrlr.ctratt) & NVME_CTRL_CTRATT_ELBAS, 0);
			detach();
		}
	}
	*transport_strips() = false;
}

/* One that does not know longer guards would look for one of 16 bits. */
static void test_hosts_say_first_that_they_know_longer_guards(void)
{
	uint8_t data[512];

	for (enum dif_guard g = DIF_GUARD_16; g < DIF_GUARDS; g++) {
		const uint16_t refused = g == DIF_GUARD_16 ? 0 : NO_BEHAVIOR;
		attach(DATA, (struct bdev_md){.size = 16, .dif_type = 1, .dif_guard = (uint8_t)g}, false);
		get_behavior(data);
		CU_ASSERT_EQUAL(data[0] | data[2], 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_write, 3, 1, 0, 3, 0, out, EXT_16), refused);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, 0, 3, 0, in, EXT_16), refused);
		CU_ASSERT_EQUAL(run(nvme_cmd_compare, 3, 1, 0, 3, 0, out, EXT_16), refused);
		CU_ASSERT_EQUAL(run(nvme_cmd_write_zeroes, 3, 1, 0, 3, 0, NULL, 0), refused);
		CU_ASSERT_EQUAL(run(nvme_cmd_verify, 3, 1, 0, 3, 0, NULL, 0), refused);
		memset(in, 0, 32); /* one range: block 0 */
		CU_ASSERT_EQUAL(run(nvme_cmd_copy, 100, 1, 0, 0, 0, in, 32), refused);
		CU_ASSERT_EQUAL(run(nvme_cmd_write_uncor, 3, 1, 0, 0, 0, NULL, 0), refused);
		CU_ASSERT_EQUAL(run(nvme_cmd_dsm, UINT64_C(4) << 32, 1, 0, 0, 0, in, 16), refused); /* to deallocate */
		CU_ASSERT_EQUAL(set_behavior(1, 1), 0);
		get_behavior(data);
		CU_ASSERT_EQUAL(data[0], 1);
		CU_ASSERT_EQUAL(data[2], 1);
		CU_ASSERT_EQUAL(run(nvme_cmd_write, 3, 1, 0, 3, 0, out, EXT_16), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, 0, 3, 0, in, EXT_16), 0);
		CU_ASSERT_EQUAL(memcmp(in, out, EXT_16), 0);
		struct loop_conn *another = loop_io_queue(admin, 2); /* connected after that */
		CU_ASSERT_EQUAL(loop_rw(another, nvme_cmd_read, nsid, 3, 0, in, EXT_16), 0);
		CU_ASSERT_EQUAL(set_behavior(0, 0), 0);
		CU_ASSERT_EQUAL(loop_rw(another, nvme_cmd_read, nsid, 3, 0, in, EXT_16), refused);
		CU_ASSERT_EQUAL(set_behavior(0, 2), NVME_ST_DNR(GENERIC, INVALID_FIELD));
		CU_ASSERT_EQUAL(set_behavior(2, 0), NVME_ST_DNR(GENERIC, INVALID_FIELD));
		loop_close(another);
		detach();
	}
	attach(DATA, (struct bdev_md){.size = 16, .dif_type = 1, .dif_guard = DIF_GUARD_64},
	       true); /* sees no metadata */
	CU_ASSERT_EQUAL(loop_rw(io, nvme_cmd_write, nsid, 3, 0, out, DATA), 0);
	detach();
}

static void test_longer_guards_are_made_checked_and_stripped(void)
{
	const uint32_t act = NVME_PI_ACT | NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF | NVME_PI_CHECK_APP;

	for (enum dif_guard g = DIF_GUARD_32; g < DIF_GUARDS; g++) {
		const unsigned guard_bytes = g == DIF_GUARD_32 ? 4 : 8;
		attach_extended(16, 1, g);
		fill(out, 200 * DATA, 3);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_write, 20, 200, act, 20, 0, out, 200 * DATA), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 20, 200, act, 20, 0, in, 200 * DATA), 0);
		CU_ASSERT_EQUAL(memcmp(in, out, 200 * DATA), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_compare, 20, 200, act, 20, 0, out, 200 * DATA), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 21, 1, 0, 0, 0, ext, EXT_16), 0);
		uint64_t guard = 0;
		for (unsigned i = 0; i < guard_bytes; i++) {
			guard = guard << 8 | ext[DATA + i];
		}
		CU_ASSERT_EQUAL(guard, dif_crc(g, 0, out + DATA, DATA));
		CU_ASSERT_EQUAL(ext[DATA + guard_bytes] << 8 | ext[DATA + guard_bytes + 1], 0x42);
		CU_ASSERT_EQUAL(ext[EXT_16 - 1], 21);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_write_zeroes, 22, 4, act, 22, 0, NULL, 0), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 22, 4, act, 22, 0, in, 4 * DATA), 0);
		CU_ASSERT_EQUAL(in[0] | in[4 * DATA - 1], 0);
		ext[5] ^= 1; /* a write of the host's own protection information */
		CU_ASSERT_EQUAL(run_long(nvme_cmd_write, 21, 1, NVME_PI_CHECK_GUARD, 21, 0, ext, EXT_16), GUARD);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_write, 21, 1, 0, 21, 0, ext, EXT_16), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 20, 3, act, 20, 0, in, 3 * DATA), GUARD);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_verify, 20, 3, NVME_PI_CHECK_GUARD, 20, 0, NULL, 0), GUARD);
		detach();
	}
}

/* The tag of type 1 is the address; a host chooses that of type 2, and each of its bits counts. */
static void test_longer_tags_are_checked(void)
{
	const uint32_t act = NVME_PI_ACT | NVME_PI_CHECK_REF, stc = act | NVME_PI_CHECK_STORAGE;

	for (enum dif_guard g = DIF_GUARD_32; g < DIF_GUARDS; g++) {
		const uint64_t ref = UINT64_C(0x7fffffffffff), bit = UINT64_C(1) << (g == DIF_GUARD_32 ? 63 : 47);
		attach_extended(16, 1, g);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_write, 5, 1, act, UINT64_C(1) << 33 | 5, 0, out, DATA),
				NVME_ST_DNR(CMD_SPECIFIC, INVALID_PI));
		detach();
		attach_extended(16, 2, g);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_write, 5, 2, act, ref, 0x1234, out, 2 * DATA), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 5, 2, act, ref, 0, in, 2 * DATA), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 6, 1, act, ref + 1, 0, in, DATA), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 5, 2, act, ref ^ bit, 0, in, 2 * DATA), REF);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 5, 2, stc, ref, 0x1234, in, 2 * DATA), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 5, 2, stc, ref, 0x1235, in, 2 * DATA),
				g == DIF_GUARD_32 ? STORAGE : 0); /* the other has no storage tag */
		detach();
	}
}

/* Such a host fills in fields as for a guard of 16 bits: what is wrong with them would be no help to it. */
static void test_hosts_that_do_not_know_longer_guards_are_told_first(void)
{
	for (enum dif_guard g = DIF_GUARD_32; g < DIF_GUARDS; g++) {
		attach(DATA, (struct bdev_md){.size = 16, .dif_type = 1, .dif_guard = (uint8_t)g}, false);
		const uint64_t wrong = 99; /* no reference tag of block 3 */
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, NVME_PI_CHECK_REF, wrong, 0, in, EXT_16), NO_BEHAVIOR);
		CU_ASSERT_EQUAL(run(nvme_cmd_verify, 3, 1, NVME_PI_CHECK_REF, wrong, 0, NULL, 0), NO_BEHAVIOR);
		CU_ASSERT_EQUAL(run(nvme_cmd_write_zeroes, 3, 1, NVME_PI_CHECK_REF, wrong, 0, NULL, 0), NO_BEHAVIOR);
		memset(in, 0, 32); /* one range: block 0; format 0 */
		CU_ASSERT_EQUAL(run(nvme_cmd_copy, BLOCKS, 1, 0, 0, 0, in, 32), NO_BEHAVIOR);
		CU_ASSERT_EQUAL(set_behavior(0, 1), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, NVME_PI_CHECK_REF, wrong, 0, in, EXT_16),
				NVME_ST_DNR(CMD_SPECIFIC, INVALID_PI));
		detach();
	}
}

/* As a drive may have it: of the 32 bits of the reference tag, the first 8 are a storage tag. */
static void test_a_storage_tag_with_a_guard_of_16_bits_is_an_extended_format(void)
{
	const uint32_t act = NVME_PI_ACT | NVME_PI_CHECK_REF | NVME_PI_CHECK_STORAGE;
	const struct bdev_malloc_opts opts = {
		.name = "m", .block_size = DATA, .num_blocks = BLOCKS, .numa_id = -1, .md = {.size = 8, .dif_type = 1}};
	const struct nvmf_ns_opts ns = {.hide_metadata = false};
	struct nvme_nvm_id_ns nvm;
	char error[BDEV_ERROR_MAX];

	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, NULL, error), 0);
	struct bdev_md *md = (struct bdev_md *)(uintptr_t)bdev_get_md(bdev_find("m"));
	md->storage_bits = 8;
	md->storage_mask = 0xff;
	CU_ASSERT_EQUAL_FATAL(nvmf_subsystem_add_ns(loop_subsystem(), "m", &ns, &nsid), 0);
	admin = loop_attach(LOOP_SUBNQN, LOOP_HOSTNQN, 0);
	io = loop_io_queue(admin, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(io);
	CU_ASSERT_EQUAL(loop_identify(admin, NVME_IDENTIFY_CNS_CSI_NS, nsid, 0, &nvm), 0);
	CU_ASSERT_EQUAL(nvm.pic, 1);
	CU_ASSERT_EQUAL(le32toh(nvm.elbaf[0]), 8);
	CU_ASSERT_EQUAL(le64toh(nvm.lbstm), 0xff);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 3, 1, 0, 3, 0, out, EXT), NO_BEHAVIOR);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, 0, 3, 0, in, EXT), NO_BEHAVIOR);
	CU_ASSERT_EQUAL(run(nvme_cmd_write_zeroes, 3, 1, 0, 3, 0, NULL, 0), NO_BEHAVIOR);
	CU_ASSERT_EQUAL(set_behavior(0, 1), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_write, 3, 1, act, 0xab000003, 0, out, DATA), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, act, 0xab000003, 0, in, DATA), 0);
	CU_ASSERT_EQUAL(memcmp(in, out, DATA), 0);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, act, 0xac000003, 0, in, DATA), STORAGE);
	CU_ASSERT_EQUAL(run(nvme_cmd_read, 3, 1, 0, 3, 0, ext, EXT), 0);
	CU_ASSERT(ext[DATA + 4] == 0xab && ext[DATA + 7] == 3);
	detach();
}

/* Source ranges are of format 0 with a guard of 16 bits, and of format 1 with others. */
static void test_copy_has_ranges_of_the_namespaces_format(void)
{
	const uint32_t act = NVME_PI_ACT | NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF;
	uint8_t ranges[80];

	for (enum dif_guard g = DIF_GUARD_16; g < DIF_GUARDS; g++) {
		const uint32_t bytes = g == DIF_GUARD_16 ? 32 : 40, good = g == DIF_GUARD_16 ? 0 : 1 << 8;
		attach_extended((uint16_t)dif_bytes(g), 1, g);
		fill(out, 5 * DATA, 7);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_write, 20, 5, act, 20, 0, out, 5 * DATA), 0);
		memset(ranges, 0, sizeof(ranges)); /* blocks 22 to 24, then 20 and 21 */
		ranges[8] = 22;
		ranges[16] = 2;
		ranges[bytes + 8] = 20;
		ranges[bytes + 16] = 1;
		CU_ASSERT_EQUAL(run(nvme_cmd_copy, 100, 2, good, 0, 0, ranges, 2 * bytes), 0);
		CU_ASSERT_EQUAL(run_long(nvme_cmd_read, 100, 5, act, 100, 0, in, 5 * DATA), 0);
		CU_ASSERT_EQUAL(memcmp(in, out + 2 * DATA, 3 * DATA), 0);
		CU_ASSERT_EQUAL(memcmp(in + 3 * DATA, out, 2 * DATA), 0);
		CU_ASSERT_EQUAL(run(nvme_cmd_copy, 100, 2, good ^ 1 << 8, 0, 0, ranges, 2 * (72 - bytes)),
				NVME_ST_DNR(GENERIC, INVALID_NS));
		CU_ASSERT_EQUAL(run(nvme_cmd_copy, 100, 2, good, 0, 0, ranges, 2 * bytes - 1),
				NVME_ST_DNR(GENERIC, SGL_INVALID_DATA));
		CU_ASSERT_EQUAL(run(nvme_cmd_copy, 100, 2, 2 << 8, 0, 0, ranges, 2 * bytes),
				NVME_ST_DNR(GENERIC, INVALID_FIELD));
		detach();
	}
}

static void test_formats_of_copy_go_with_guards(void)
{
	for (uint8_t format = 0; format < 2; format++) {
		const struct nvmf_copy copy = {.format = format};
		for (uint8_t guard = NVME_PI_GUARD_16; guard <= NVME_PI_GUARD_64; guard++) {
			bool is_good = format == (guard == NVME_PI_GUARD_16 ? 0 : 1);
			uint16_t where = 0, status = nvmf_decode_copy_format(&copy, guard, &where);
			CU_ASSERT_EQUAL(status, is_good ? 0 : NVME_ST_DNR(GENERIC, INVALID_NS));
			CU_ASSERT_EQUAL(where, is_good ? 0 : NVMF_WHERE(49, 0));
		}
	}
}

static void test_ranges_of_format_1_are_longer(void)
{
	static const struct nvmf_geometry geo = {.num_blocks = 1000, .block_shift = 9};
	struct nvme_copy_range_f1 ranges[3];
	const struct nvmf_copy copy = {.to = 500, .num_ranges = 3, .format = 1, .range_bytes = sizeof(ranges[0])};
	uint16_t where;

	memset(ranges, 0xff, sizeof(ranges)); /* the tags may be any */
	for (unsigned i = 0; i < 3; i++) {
		ranges[i].slba = htole64(i * 100);
		ranges[i].nlb = htole16(9);
	}
	CU_ASSERT_EQUAL(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), 0);
	ranges[2].slba = htole64(991);
	CU_ASSERT_EQUAL(nvmf_decode_copy_ranges(ranges, &copy, &geo, &where), NVME_ST_DNR(GENERIC, LBA_RANGE));
}

static const struct unit_test tests[] = {
	UNIT(test_the_format_is_told),
	UNIT(test_metadata_come_on_top_of_the_largest_transfer),
	UNIT(test_the_hosts_protection_information_passes_through),
	UNIT(test_each_check_has_its_status),
	UNIT(test_the_controller_makes_and_strips_what_it_is_asked_to),
	UNIT(test_longer_metadata_is_always_transferred),
	UNIT(test_hidden_metadata_is_made_and_checked),
	UNIT(test_corruption_below_hidden_metadata_is_a_guard_error),
	UNIT(test_fused_compare_and_write_with_protection),
	UNIT(test_blocks_of_64_kib),
	UNIT(test_data_units_do_not_count_metadata),
	UNIT(test_longer_guards_are_told),
	UNIT(test_hosts_say_first_that_they_know_longer_guards),
	UNIT(test_longer_guards_are_made_checked_and_stripped),
	UNIT(test_longer_tags_are_checked),
	UNIT(test_hosts_that_do_not_know_longer_guards_are_told_first),
	UNIT(test_a_storage_tag_with_a_guard_of_16_bits_is_an_extended_format),
	UNIT(test_copy_has_ranges_of_the_namespaces_format),
	UNIT(test_formats_of_copy_go_with_guards),
	UNIT(test_ranges_of_format_1_are_longer),
	UNIT_END,
};
UNIT_MAIN("nvmf_md", tests, loop_start, loop_stop)
