/* SPDX-License-Identifier: BSD-3-Clause */
/* Bdevs on namespaces with metadata and protection information: what is passed, made, stripped and checked, and by
 * whom. The model checks as a drive does; a status with DNR would be the bdev layer's, which leaves the checks to it.
 */
#include "bdev_modules/error/error.h"
#include "unittest/bdev_modules/nvme_two.h"

#include "bdev/dif.h"
#include "bdev_modules/nvme/internal.h"
#include "util/log.h"

#define DATA    4096u
#define EXT     (DATA + format.md_size)
#define GUARD   NVME_ST(MEDIA, GUARD_CHECK)
#define APP     NVME_ST(MEDIA, APPTAG_CHECK)
#define REF     NVME_ST(MEDIA, REFTAG_CHECK)
#define CHECKED (BDEV_DIF_TAGS | BDEV_DIF_GUARD | BDEV_DIF_APP | BDEV_DIF_REF)

static struct dif_format format; /* of the namespace under test */
static struct user u;

static void begin_with(uint8_t type, uint16_t md_size, bool interleaved, bool first, enum dif_guard guard,
		       uint8_t storage_bits)
{
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	model.extended_formats = guard != DIF_GUARD_16;
	model.ns[1].pi_format = (uint8_t)guard;
	model.ns[1].storage_bits = storage_bits;
	struct model_ns *ns = &model.ns[1];
	ns->md_size = md_size;
	ns->pi_type = type;
	ns->interleaved = interleaved;
	ns->pi_first = first;
	ns->md = realloc(ns->md, ns->blocks * md_size);
	memset(ns->md, 0xff, ns->blocks * md_size);
	format = (struct dif_format){DATA,
				     md_size,
				     type == 0 || first ? 0 : (uint16_t)(md_size - dif_bytes(guard)),
				     type,
				     (uint8_t)guard,
				     storage_bits,
				     (UINT64_C(1) << storage_bits) - 1};
	a.prchk_guard = a.prchk_reftag = true;
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n2", true, fixture_thread(0)), 0);
}

static void begin(uint8_t type, uint16_t md_size, bool interleaved, bool first)
{
	begin_with(type, md_size, interleaved, first, DIF_GUARD_16, 0);
}

static void end(void)
{
	user_close(&u);
	drive_end();
}

/* iovs of odd lengths, in dwords for a drive, so that some data is copied and some is not. */
static uint16_t run_tagged(enum bdev_io_type type, uint8_t *buf, uint64_t lba, uint64_t blocks, uint8_t flags,
			   uint32_t ref, uint32_t app)
{
	size_t bytes = blocks * (flags & BDEV_DIF_PLAIN ? DATA : EXT), part = (bytes / 3) & ~(size_t)3;
	struct iovec iovs[2] = {{buf, part}, {buf + part, bytes - part}};
	struct request *r = request_new(&u);

	bdev_io_set_rw(r->io, type, iovs, buf != NULL ? 2 : 0, lba, blocks);
	bdev_io_set_dif(r->io, flags, ref, (uint16_t)app, (uint16_t)(app >> 16));
	uint16_t status = request_run(r);
	request_free(r);
	return status;
}

static uint16_t run(enum bdev_io_type type, uint8_t *buf, uint64_t lba, uint64_t blocks, uint8_t flags)
{
	return run_tagged(type, buf, lba, blocks, flags, 0, 0);
}

static void protect(uint8_t *ext, uint32_t blocks, uint32_t ref, uint16_t app)
{
	const struct dif_tags tags = {.ref = ref, .app = app};

	dif_generate(&format, &tags, &(struct iovec){ext, blocks * EXT}, blocks);
}

/* Whether the model has these extended blocks from lba on. */
static bool has_stored(const uint8_t *ext, uint64_t lba, uint32_t blocks)
{
	const struct model_ns *ns = &model.ns[1];
	bool same = true;

	for (uint32_t i = 0; i < blocks; i++, ext += EXT, lba++) {
		same = same && memcmp(ns->data + lba * DATA, ext, DATA) == 0 &&
		       memcmp(ns->md + lba * ns->md_size, ext + DATA, ns->md_size) == 0;
	}
	return same;
}

/* The data of extended blocks, and what is stored of them, where the drive or the layer makes metadata: nothing but PI,
 * of app 0. */
static void make_plain(uint8_t *plain, uint8_t *ext, uint32_t blocks, uint32_t ref)
{
	for (uint32_t i = 0; i < blocks; i++) {
		memcpy(plain + i * DATA, ext + i * EXT, DATA);
		memset(ext + i * EXT + DATA, 0, format.md_size);
	}
	protect(ext, blocks, ref, 0);
}

static const struct shape {
	uint8_t type;
	uint16_t md_size;
	bool interleaved, first;
	enum dif_guard guard;
	uint8_t storage_bits;
} shapes[] = {
	{1, 8, true, false},
	{2, 8, true, true},
	{3, 8, true, false},
	{1, 8, false, false},
	{2, 8, false, false},
	{3, 8, false, true},
	{1, 16, true, true},
	{1, 16, true, false},
	{2, 16, false, true},
	{2, 16, false, false},
	{3, 16, true, false},
	{0, 8, true, false},
	{0, 16, false, false},
	{1, 16, true, false, DIF_GUARD_32, 16},
	{2, 16, false, true, DIF_GUARD_32, 40},
	{3, 16, true, false, DIF_GUARD_32, 16},
	{1, 32, true, false, DIF_GUARD_32, 16},
	{2, 32, false, true, DIF_GUARD_32, 32},
	{1, 16, true, false, DIF_GUARD_64, 0},
	{2, 16, false, false, DIF_GUARD_64, 8},
	{3, 16, false, false, DIF_GUARD_64, 0},
	{1, 32, false, false, DIF_GUARD_64, 0},
	{2, 32, true, true, DIF_GUARD_64, 0},
};
#define FOR_EACH_SHAPE(s_)                                                                                             \
	for (const struct shape *s_ = shapes;                                                                          \
	     s_ < shapes + sizeof(shapes) / sizeof(shapes[0]) &&                                                       \
	     (begin_with(s_->type, s_->md_size, s_->interleaved, s_->first, s_->guard, s_->storage_bits), true);       \
	     end(), s_++)

static void test_a_bdev_says_what_its_blocks_carry(void)
{
	FOR_EACH_SHAPE(s)
	{
		const struct bdev *b = bdev_find("Nvme0n2");
		const struct bdev_md *md = bdev_get_md(b);
		uint8_t ref = s->type == 3 ? 0 : BDEV_DIF_REF;
		CU_ASSERT_EQUAL(bdev_block_size(b), EXT);
		CU_ASSERT_EQUAL(bdev_data_block_size(b), DATA);
		CU_ASSERT(md->size == s->md_size && md->dif_type == s->type && md->separate == !s->interleaved &&
			  md->by_device);
		CU_ASSERT_EQUAL(md->checks, s->type == 0 ? 0 : BDEV_DIF_GUARD | ref);
		CU_ASSERT_EQUAL(md->plain_by_device, s->type != 0 && s->md_size == dif_bytes(s->guard));
		CU_ASSERT_EQUAL(md->dif_guard, s->guard);
		CU_ASSERT_EQUAL(md->storage_bits, s->storage_bits);
		CU_ASSERT_EQUAL(md->storage_mask, format.storage_mask);
		CU_ASSERT_EQUAL(md->dif_is_first, s->first);
	}
}

static void test_blocks_pass_with_their_metadata(void)
{
	FOR_EACH_SHAPE(s)
	{
		fill(buffer, 9 * EXT, (uint8_t)s->type);
		protect(buffer, 9, 20, 0x1234);
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 20, 9,
					   s->type == 3 ? CHECKED & ~BDEV_DIF_REF : CHECKED, 20, 0xffff1234),
				0);
		CU_ASSERT(has_stored(buffer, 20, 9));
		memset(other, 0, 9 * EXT);
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 20, 9, 0), 0);
		CU_ASSERT_EQUAL(memcmp(buffer, other, 9 * EXT), 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other + 1, 20, 9, 0),
				0); /* at an address that no drive can transfer to */
		CU_ASSERT_EQUAL(memcmp(buffer, other + 1, 9 * EXT), 0);
	}
}

static void test_metadata_is_made_and_left_out(void)
{
	FOR_EACH_SHAPE(s)
	{
		uint8_t *plain = other, *back = other + 16 * DATA;
		uint64_t before = model.commands[nvme_cmd_write];
		fill(buffer, 9 * EXT, 77);
		make_plain(plain, buffer, 9, s->type == 3 ? 0 : 40);
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE, plain, 40, 9, BDEV_DIF_PLAIN), 0);
		CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], before + 1);
		CU_ASSERT(has_stored(buffer, 40, 9));
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, back, 40, 9, BDEV_DIF_PLAIN), 0);
		CU_ASSERT_EQUAL(memcmp(plain, back, 9 * DATA), 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_COMPARE, plain, 40, 9, BDEV_DIF_PLAIN), 0);
		plain[5 * DATA] ^= 1;
		CU_ASSERT_EQUAL(run(BDEV_IO_COMPARE, plain, 40, 9, BDEV_DIF_PLAIN) & BDEV_STATUS_MASK,
				NVME_ST(MEDIA, COMPARE_FAILED));
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE, plain + 1, 41, 3, BDEV_DIF_PLAIN), 0); /* copied through a buffer */
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, back + 3, 41, 3, BDEV_DIF_PLAIN), 0);
		CU_ASSERT_EQUAL(memcmp(plain + 1, back + 3, 3 * DATA), 0);
	}
}

static void test_the_drive_makes_and_strips_what_is_nothing_else(void)
{
	begin(1, 8, true, false);
	fill(buffer, 4 * DATA, 1);
	CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 9, 4, BDEV_DIF_PLAIN | BDEV_DIF_TAGS, 9, 0x77), 0);
	CU_ASSERT_EQUAL(model.ns[1].md[12 * 8 + 3], 0x77);
	CU_ASSERT_EQUAL(model.ns[1].md[12 * 8 + 7], 12);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], 1);
	end();
}

static void test_what_the_host_sends_is_checked_by_the_drive(void)
{
	FOR_EACH_SHAPE(s)
	{
		uint8_t no_ref = s->type == 3 ? (uint8_t)~BDEV_DIF_REF : UINT8_MAX;
		if (s->type == 0) {
			continue;
		}
		fill(buffer, 4 * EXT, 3);
		protect(buffer, 4, 60, 5);
		uint64_t before = model.commands[nvme_cmd_write];
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 60, 4, CHECKED & no_ref, 60, 0xffff0006), APP);
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 60, 4, CHECKED & no_ref, 60, 0xfff00006), 0);
		buffer[2 * EXT + 9] ^= 1;
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 60, 4, CHECKED & no_ref, 60, 0xffff0005), GUARD);
		CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], before + 3);
		CU_ASSERT(!has_stored(buffer, 60, 4));
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 60, 4, BDEV_DIF_TAGS, 0, 0), 0); /* checks nothing */
		CU_ASSERT(has_stored(buffer, 60, 4));
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 60, 4, 0), GUARD); /* by prchk_guard */
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 60, 4, BDEV_DIF_PLAIN) & BDEV_STATUS_MASK, GUARD);
		CU_ASSERT_EQUAL(run(BDEV_IO_VERIFY, NULL, 60, 4, 0), GUARD);
		CU_ASSERT_EQUAL(run(BDEV_IO_VERIFY, NULL, 60, 2, 0), 0);
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_READ, other, 60, 4, BDEV_DIF_TAGS, 0, 0), 0);
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_READ, other, 60, 4, BDEV_DIF_TAGS | BDEV_DIF_APP, 60, 0xffff0006),
				APP);
	}
}

static void test_the_right_block_in_the_wrong_place_is_found(void)
{
	for (uint8_t type = 1; type <= 2; type++) {
		begin(type, 8, type == 1, false);
		fill(buffer, 4 * EXT, 4);
		protect(buffer, 4, 100, 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE, buffer, 101, 4, 0), REF); /* by prchk_reftag */
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE, buffer, 100, 4, 0), 0);
		memcpy(model.ns[1].data + 102 * DATA, model.ns[1].data + 101 * DATA, DATA);
		memcpy(model.ns[1].md + 102 * 8, model.ns[1].md + 101 * 8, 8);
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 100, 2, 0), 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 100, 4, 0), REF);
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 100, 4, BDEV_DIF_PLAIN), REF);
		CU_ASSERT_EQUAL(run(BDEV_IO_VERIFY, NULL, 100, 4, 0), REF);
		end();
	}
}

/* MDTS is 128 KiB, and there is a boundary every 16 blocks: 100 of them are many commands, whose reference tags go
 * on. */
static void test_reference_tags_go_on_from_piece_to_piece(void)
{
	FOR_EACH_SHAPE(s)
	{
		uint32_t ref = s->type == 1 ? 10 : 0xfffffff0; /* which only type 1 has to be the address */
		uint8_t checks = s->type == 3 ? CHECKED & ~BDEV_DIF_REF : CHECKED;
		struct bdev *b = bdev_find("Nvme0n2");
		uint8_t *plain = other, *back = other + 100 * DATA;
		CU_ASSERT_EQUAL(b->optimal_io_boundary, 0);
		fill(buffer, 100 * EXT, 5);
		protect(buffer, 100, ref, 9);
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 10, 100, checks, ref, 0xffff0009), 0);
		CU_ASSERT(model.commands[nvme_cmd_write] >= 4);
		CU_ASSERT(has_stored(buffer, 10, 100));
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_READ, back, 10, 100, checks, ref, 0xffff0009), 0);
		CU_ASSERT_EQUAL(memcmp(buffer, back, 100 * EXT), 0);
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_READ, back, 10, 100, checks | BDEV_DIF_PLAIN, ref, 0xffff0009), 0);
		make_plain(plain, buffer, 100, ref);
		CU_ASSERT_EQUAL(memcmp(plain, back, 100 * DATA), 0);
		CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, plain, 10, 100, checks | BDEV_DIF_PLAIN, ref, 0), 0);
		CU_ASSERT(has_stored(buffer, 10, 100));
	}
}

static void test_reference_tags_go_on_across_a_boundary(void)
{
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	model.ns[1].md_size = 8;
	model.ns[1].pi_type = 2;
	model.ns[1].interleaved = true;
	model.ns[1].noiob = 8;
	format = (struct dif_format){DATA, 8, 0, 2};
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n2", true, fixture_thread(0)), 0);
	fill(buffer, 20 * EXT, 6);
	protect(buffer, 20, 1000, 0);
	CU_ASSERT_EQUAL(
		run_tagged(BDEV_IO_WRITE, buffer, 5, 20, BDEV_DIF_TAGS | BDEV_DIF_REF | BDEV_DIF_GUARD, 1000, 0), 0);
	CU_ASSERT_EQUAL(model.commands[nvme_cmd_write], 4); /* 3, 8, 8, 1 */
	CU_ASSERT(has_stored(buffer, 5, 20));
	buffer[10 * EXT + DATA + 7] ^= 1; /* in the third child I/O */
	CU_ASSERT_EQUAL(run_tagged(BDEV_IO_WRITE, buffer, 5, 20, BDEV_DIF_TAGS | BDEV_DIF_REF, 1000, 0), REF);
	end();
}

static void test_other_commands_keep_the_protection(void)
{
	FOR_EACH_SHAPE(s)
	{
		uint32_t ref = s->type == 3 ? 0 : 200;
		memset(buffer, 0, 8 * EXT);
		protect(buffer, 8, ref, 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE_ZEROES, NULL, 200, 8, 0), 0);
		CU_ASSERT(has_stored(buffer, 200, 8));
		CU_ASSERT_EQUAL(run(BDEV_IO_COMPARE, buffer, 200, 8, 0), 0);
		buffer[EXT] = 1;
		CU_ASSERT_EQUAL(run(BDEV_IO_COMPARE, buffer, 200, 8, 0) & BDEV_STATUS_MASK,
				NVME_ST(MEDIA, COMPARE_FAILED));
		buffer[EXT] = 0;
		struct request *r = request_new(&u);
		bdev_io_set_copy(r->io, 200, 300, 8);
		CU_ASSERT_EQUAL(request_run(r), 0);
		request_free(r);
		protect(buffer, 8, s->type == 3 ? 0 : 300, 0); /* the tags of where it is now */
		CU_ASSERT(has_stored(buffer, 300, 8));
		CU_ASSERT_EQUAL(model.commands[nvme_cmd_copy], s->type == 0 ? 1 : 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_UNMAP, NULL, 302, 2, 0), 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 300, 8, 0), 0); /* neither of those two is checked */
	}
}

static void test_compare_and_write_is_whole(void)
{
	FOR_EACH_SHAPE(s)
	{
		struct request *r = request_new(&u);
		struct iovec old = {other, 2 * EXT}, new = {buffer, 2 * EXT};
		fill(other, 2 * EXT, 1);
		protect(other, 2, 8, 0);
		fill(buffer, 2 * EXT, 2);
		protect(buffer, 2, 8, 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE, other, 8, 2, 0), 0);
		bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &new, 1, 8, 2);
		r->io->compare.iovs = &old;
		r->io->compare.iovcnt = 1;
		CU_ASSERT_EQUAL(request_run(r), 0);
		CU_ASSERT(has_stored(buffer, 8, 2));
		CU_ASSERT_EQUAL(request_run(r) & BDEV_STATUS_MASK, NVME_ST(MEDIA, COMPARE_FAILED));
		request_free(r);
	}
}

static void test_a_drive_without_optional_commands_and_sgls(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct bdev_nvme_attach a = attach_opts();
		drive_begin();
		model.oncs = 0;
		model.sgl_offered = false;
		model.ns[1].md_size = 8;
		model.ns[1].pi_type = 1;
		model.ns[1].interleaved = i == 0;
		format = (struct dif_format){DATA, 8, 0, 1};
		a.prchk_guard = a.prchk_reftag = true;
		CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n2", true, fixture_thread(0)), 0);
		memset(other, 0, 50 * EXT);
		protect(other, 50, 70, 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE_ZEROES, NULL, 70, 50, 0), 0); /* written as such */
		CU_ASSERT(has_stored(other, 70, 50));
		fill(buffer, 50 * EXT, 8);
		protect(buffer, 50, 70, 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_WRITE, buffer, 70, 50, 0), 0);
		CU_ASSERT(has_stored(buffer, 70, 50));
		CU_ASSERT_EQUAL(run(BDEV_IO_READ, other, 70, 50, 0), 0);
		CU_ASSERT_EQUAL(memcmp(buffer, other, 50 * EXT), 0);
		CU_ASSERT_EQUAL(run(BDEV_IO_VERIFY, NULL, 70, 50, 0), 0);
		model.ns[1].data[80 * DATA] ^= 1;
		CU_ASSERT_EQUAL(run(BDEV_IO_VERIFY, NULL, 70, 50, 0), GUARD);
		end();
	}
}

static void test_what_stands_on_it_checks_by_itself(void)
{
	char error[BDEV_ERROR_MAX];
	struct user top;

	begin(1, 8, false, false);
	user_close(&u); /* the test needs the bdev for itself */
	CU_ASSERT_EQUAL_FATAL(bdev_error_create("Nvme0n2", NULL, NULL, error), 0);
	CU_ASSERT_EQUAL_FATAL(user_open(&top, "EE_Nvme0n2", true, fixture_thread(1)), 0);
	const struct bdev_md *md = bdev_get_md(bdev_find("EE_Nvme0n2"));
	CU_ASSERT(md->size == 8 && md->dif_type == 1 && !md->by_device && !md->plain_by_device && !md->separate);
	fill(buffer, 4 * EXT, 9);
	protect(buffer, 4, 30, 0);
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_WRITE, buffer, 30, 4), 0);
	CU_ASSERT(has_stored(buffer, 30, 4));
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_READ, other, 30, 4), 0);
	CU_ASSERT_EQUAL(memcmp(buffer, other, 4 * EXT), 0);
	buffer[7] ^= 1;
	CU_ASSERT_EQUAL(user_io(&top, BDEV_IO_WRITE, buffer, 30, 4), GUARD | NVME_SC_DNR);
	user_close(&top);
	CU_ASSERT_EQUAL(fixture_delete(bdev_error_delete, "EE_Nvme0n2"), 0);
	drive_end();
}

static void test_metadata_that_cannot_be_used_is_refused(void)
{
	struct nvme_ns ns = {.block_size = DATA, .md_size = 8, .md_interleaved = true, .pi_type = 1};

	CU_ASSERT_PTR_NULL(bdev_nvme_md_unusable(&ns, true, false));
	ns.pi_type = 4;
	CU_ASSERT_PTR_NOT_NULL(bdev_nvme_md_unusable(&ns, false, false));
	ns.pi_type = 0;
	ns.md_size = 12;
	CU_ASSERT_PTR_NOT_NULL(bdev_nvme_md_unusable(&ns, false, false));
	ns.md_size = 16;
	ns.md_interleaved = false;
	CU_ASSERT_PTR_NULL(bdev_nvme_md_unusable(&ns, false, false));
	CU_ASSERT_PTR_NOT_NULL(bdev_nvme_md_unusable(&ns, true, false)); /* fabrics have no separate metadata */
	ns.md_size = 0;
	CU_ASSERT_PTR_NULL(bdev_nvme_md_unusable(&ns, true, false));
}

static void test_extended_formats_need_a_controller_that_takes_lbafee(void)
{
	static const struct {
		uint8_t type, format, storage_bits;
		bool needs;
	} cases[] = {{1, NVME_PI_GUARD_16, 0, false},
		     {1, NVME_PI_GUARD_16, 8, true},
		     {1, NVME_PI_GUARD_32, 16, true},
		     {3, NVME_PI_GUARD_64, 0, true},
		     {0, NVME_PI_GUARD_64, 0, false}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nvme_ns ns = {.block_size = DATA,
				     .md_size = 16,
				     .md_interleaved = true,
				     .pi_type = cases[i].type,
				     .pi_format = cases[i].format,
				     .storage_bits = cases[i].storage_bits};
		CU_ASSERT_PTR_NULL(bdev_nvme_md_unusable(&ns, true, true));
		const char *why = bdev_nvme_md_unusable(&ns, true, false);
		CU_ASSERT_EQUAL(why != NULL, cases[i].needs);
		CU_ASSERT(why == NULL || strstr(why, "LBAFEE") != NULL);
	}
}

static void test_dwords_of_a_command(void)
{
	static const struct {
		uint8_t type, checks, flags;
		bool act;
		uint32_t prinfo, ref, app;
	} cases[] = {
		{1, BDEV_DIF_GUARD | BDEV_DIF_REF, 0, true, NVME_PI_ACT | NVME_PI_CHECK_GUARD | NVME_PI_CHECK_REF,
		 0x23456789, 0},
		{1, BDEV_DIF_GUARD, BDEV_DIF_TAGS, false, 0, 77, 0x00ff1234},
		{2, 0, CHECKED, false, NVME_PI_CHECK_GUARD | NVME_PI_CHECK_APP | NVME_PI_CHECK_REF, 77, 0x00ff1234},
		{3, BDEV_DIF_GUARD, 0, false, NVME_PI_CHECK_GUARD, 0, 0},
		{3, 0, CHECKED, false, NVME_PI_CHECK_GUARD | NVME_PI_CHECK_APP, 77, 0x00ff1234},
		{1, 0, 0, false, 0, 0x23456789, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct bdev_md md = {.size = 8, .dif_type = cases[i].type, .checks = cases[i].checks};
		struct nvme_sqe cmd = {.cdw12 = htole32(7)};
		struct bdev_io io = {.offset_blocks = 0x123456789};
		bdev_io_set_dif(&io, cases[i].flags, 77, 0x1234, 0xff);
		bdev_nvme_md_set_pi(&cmd, &md, &io, cases[i].act);
		CU_ASSERT_EQUAL(le32toh(cmd.cdw12), 7 | cases[i].prinfo);
		CU_ASSERT_EQUAL(le32toh(cmd.cdw14), cases[i].ref);
		CU_ASSERT_EQUAL(le32toh(cmd.cdw15), cases[i].app);
	}
}

static void test_dwords_of_longer_tags(void)
{
	const uint64_t lba = UINT64_C(0x123456789abcdef0);
	struct bdev_md md = {.size = 16, .dif_type = 1, .checks = BDEV_DIF_REF, .dif_guard = DIF_GUARD_64};
	struct bdev_io io = {.offset_blocks = lba};

	for (unsigned i = 0; i < 4; i++) {
		struct nvme_sqe cmd = {0};
		bool is_32 = i % 2 == 1, tagged = i >= 2;
		md.dif_guard = is_32 ? DIF_GUARD_32 : DIF_GUARD_64;
		md.storage_bits = is_32 ? 16 : 0;
		bdev_io_set_dif(&io, tagged ? BDEV_DIF_TAGS | BDEV_DIF_STORAGE : 0, lba + 1, 0, 0);
		io.dif_storage = 0xabcd;
		bdev_nvme_md_set_pi(&cmd, &md, &io, false);
		CU_ASSERT_EQUAL(le32toh(cmd.cdw12), tagged ? NVME_PI_CHECK_STORAGE : NVME_PI_CHECK_REF);
		CU_ASSERT_EQUAL(le32toh(cmd.cdw14), tagged ? 0x9abcdef1 : 0x9abcdef0);
		CU_ASSERT_EQUAL(le32toh(cmd.cdw3), is_32 ? 0x12345678 : 0x5678);
		CU_ASSERT_EQUAL(le32toh(cmd.cdw2), is_32 && tagged ? 0xabcd : 0);
	}
}

/* The drive compares it, if the I/O asks for that. */
static void test_storage_tags_reach_the_drive(void)
{
	begin_with(1, 16, true, false, DIF_GUARD_32, 16);
	struct request *r = request_new(&u);
	struct iovec iov = {buffer, 2 * DATA};

	fill(buffer, 2 * DATA, 1);
	for (unsigned i = 0; i < 3; i++) {
		bdev_io_set_rw(r->io, i == 0 ? BDEV_IO_WRITE : BDEV_IO_READ, &iov, 1, 9, 2);
		bdev_io_set_dif(r->io, BDEV_DIF_PLAIN | CHECKED | BDEV_DIF_STORAGE, 9, 0, 0xffff);
		r->io->dif_storage = i < 2 ? 0x4711 : 0x4710;
		CU_ASSERT_EQUAL(request_run(r), i < 2 ? 0 : NVME_ST(MEDIA, STORAGE_TAG_CHECK));
	}
	CU_ASSERT_EQUAL(model.ns[1].md[9 * 16 + 6] << 8 | model.ns[1].md[9 * 16 + 7], 0x4711);
	request_free(r);
	end();
}

/* A format that the driver does not know, or that is no format. */
static void test_unknown_formats_are_left_alone(void)
{
	static const struct {
		uint8_t pi_format, storage_bits;
		uint16_t md_size;
	} bad[] = {{3, 0, 16}, {NVME_PI_GUARD_32, 15, 16}, {NVME_PI_GUARD_64, 48, 16}, {NVME_PI_GUARD_64, 0, 8}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct bdev_nvme_attach a = attach_opts();
		drive_begin();
		model.extended_formats = true;
		model.ns[1].md_size = bad[i].md_size;
		model.ns[1].interleaved = true;
		model.ns[1].pi_type = 1;
		model.ns[1].pi_format = bad[i].pi_format;
		model.ns[1].storage_bits = bad[i].storage_bits;
		CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
		CU_ASSERT_PTR_NULL(bdev_find("Nvme0n2"));
		CU_ASSERT_PTR_NOT_NULL(bdev_find("Nvme0n1"));
		drive_end();
	}
}

/* The operator is told whether the drive or varve is to blame. */
static void test_storage_tags_that_cannot_be_used_are_named(void)
{
	static const struct {
		uint8_t format, storage_bits;
		const char *why;
	} cases[] = {{NVME_PI_GUARD_16, 31, NULL},
		     {NVME_PI_GUARD_16, 32, "no room for a reference tag"},
		     {NVME_PI_GUARD_16, 33, "the size of its storage tag"},
		     {NVME_PI_GUARD_32, 15, "the size of its storage tag"},
		     {NVME_PI_GUARD_32, 64, NULL},
		     {NVME_PI_GUARD_32, 65, "the size of its storage tag"},
		     {NVME_PI_GUARD_32, 80, "the size of its storage tag"},
		     {NVME_PI_GUARD_64, 47, NULL},
		     {NVME_PI_GUARD_64, 48, "no room for a reference tag"},
		     {NVME_PI_GUARD_64, 49, "the size of its storage tag"},
		     {3, 0, "is unknown"}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct nvme_ns ns = {.block_size = DATA,
					   .md_size = 16,
					   .md_interleaved = true,
					   .pi_type = 1,
					   .pi_format = cases[i].format,
					   .storage_bits = cases[i].storage_bits};
		const char *why = bdev_nvme_md_unusable(&ns, true, true);
		CU_ASSERT_EQUAL(why == NULL, cases[i].why == NULL);
		CU_ASSERT(why == NULL || cases[i].why == NULL || strstr(why, cases[i].why) != NULL);
	}
}

/* Lines of the log that name the reason. */
static unsigned reasons;

static void count_reasons(enum log_level level, const char *file, int line, const char *text)
{
	(void)file;
	(void)line;
	reasons += level == LOG_LEVEL_WARNING && strstr(text, "is left out") != NULL && strstr(text, "LBAFEE") != NULL;
}

/* A bdev on such a namespace would fail all I/O. */
static void test_a_controller_that_refuses_lbafee_has_no_bdev_of_such_namespaces(void)
{
	enum log_level printed = log_get_print_level();

	log_set_print_level(LOG_LEVEL_WARNING); /* or the tap would not be called */
	for (unsigned i = 0; i < 3; i++) {
		struct bdev_nvme_attach a = attach_opts();
		drive_begin();
		model.extended_formats = true;
		model.ns[1].md_size = 16;
		model.ns[1].interleaved = true;
		model.ns[1].pi_type = 1;
		model.ns[1].pi_format = i == 0 ? NVME_PI_GUARD_64 : NVME_PI_GUARD_16;
		model.ns[1].storage_bits = i == 1 ? 8 : 0;
		model.behavior_status = NVME_ST_DNR(GENERIC, INVALID_FIELD);
		reasons = 0;
		log_set_tap(count_reasons);
		CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
		log_set_tap(NULL);
		CU_ASSERT_PTR_NOT_NULL(bdev_find("Nvme0n1"));
		CU_ASSERT_EQUAL(bdev_find("Nvme0n2") != NULL, i == 2); /* a format that is no extended one */
		CU_ASSERT_EQUAL(reasons, i == 2 ? 0 : 1);
		drive_end();
	}
	log_set_print_level(printed);
}

static void test_a_passing_refusal_of_lbafee_ends_the_attempt(void)
{
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	model.extended_formats = true;
	model.behavior_status = NVME_ST(GENERIC, INTERNAL);
	CU_ASSERT_NOT_EQUAL(attach_with(&a), 0);
	CU_ASSERT_PTR_NULL(bdev_find("Nvme0n1"));
	model.behavior_status = 0;
	CU_ASSERT_EQUAL(attach_with(&a), 0);
	CU_ASSERT_PTR_NOT_NULL(bdev_find("Nvme0n1"));
	drive_end();
}

/* What is beyond the tag is nobody's: it does not tell one path's namespace from another's. */
static void test_paths_may_differ_in_bits_beyond_the_storage_tag(void)
{
	for (unsigned bits = 0; bits <= 8; bits += 8) {
		struct model *both[] = {&model, &second};
		begin_apart();
		for (unsigned i = 0; i < 2; i++) {
			both[i]->extended_formats = true;
			both[i]->ns[0].md_size = 16;
			both[i]->ns[0].interleaved = true;
			both[i]->ns[0].pi_type = 1;
			both[i]->ns[0].pi_format = NVME_PI_GUARD_64;
			both[i]->ns[0].storage_bits = (uint8_t)bits;
		}
		second.ns[0].mask_rest = UINT64_MAX;
		CU_ASSERT_EQUAL_FATAL(attach_first(path_opts()), 0);
		CU_ASSERT_EQUAL_FATAL(attach_second(path_opts()), 0);
		CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
		wait_usable(2);
		CU_ASSERT_EQUAL(bdev_get_md(bdev_find("Nvme0n1"))->storage_mask, bits == 0 ? 0 : 0xff);
		user_close(&u);
		end_two();
	}
}

static const struct unit_test tests[] = {
	UNIT(test_a_bdev_says_what_its_blocks_carry),
	UNIT(test_blocks_pass_with_their_metadata),
	UNIT(test_metadata_is_made_and_left_out),
	UNIT(test_the_drive_makes_and_strips_what_is_nothing_else),
	UNIT(test_what_the_host_sends_is_checked_by_the_drive),
	UNIT(test_the_right_block_in_the_wrong_place_is_found),
	UNIT(test_reference_tags_go_on_from_piece_to_piece),
	UNIT(test_reference_tags_go_on_across_a_boundary),
	UNIT(test_other_commands_keep_the_protection),
	UNIT(test_compare_and_write_is_whole),
	UNIT(test_a_drive_without_optional_commands_and_sgls),
	UNIT(test_what_stands_on_it_checks_by_itself),
	UNIT(test_metadata_that_cannot_be_used_is_refused),
	UNIT(test_dwords_of_a_command),
	UNIT(test_dwords_of_longer_tags),
	UNIT(test_storage_tags_reach_the_drive),
	UNIT(test_unknown_formats_are_left_alone),
	UNIT(test_storage_tags_that_cannot_be_used_are_named),
	UNIT(test_extended_formats_need_a_controller_that_takes_lbafee),
	UNIT(test_a_controller_that_refuses_lbafee_has_no_bdev_of_such_namespaces),
	UNIT(test_a_passing_refusal_of_lbafee_ends_the_attempt),
	UNIT(test_paths_may_differ_in_bits_beyond_the_storage_tag),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_md", tests, drive_setup, drive_teardown)
