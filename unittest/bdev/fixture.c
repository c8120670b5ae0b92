/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/bdev/fixture.h"

#include "bdev/module_util.h"
#include "env_dpdk/env.h"
#include "util/log.h"

#define THREADS 4

static struct thread *threads[THREADS];

int fixture_start(void)
{
	const struct env_opts env = {.name = "unit",
				     .cores = "0-3",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE, .idle_spell_us = 50};
	char error[ENV_ERROR_MAX];

	log_set_print_level(getenv("UNIT_LOG") != NULL ? LOG_LEVEL_DEBUG : LOG_LEVEL_DISABLED);
	int rc = env_init(&env, error);
	if (rc != 0) {
		printf("%s\n", error);
		return rc;
	}
	rc = thread_lib_start(&opts);
	if (rc != 0) {
		return rc;
	}
	for (unsigned i = 0; i < THREADS; i++) {
		cpu_set_t mask;
		char name[16];
		CPU_ZERO(&mask);
		CPU_SET(i, &mask);
		snprintf(name, sizeof(name), "user%u", i);
		threads[i] = thread_create(name, &mask);
		if (threads[i] == NULL) {
			return -1;
		}
	}
	return bdev_init();
}

void set_done(void *flag)
{
	atomic_store((atomic_bool *)flag, true);
	fixture_wake();
}

int fixture_stop(void)
{
	atomic_bool done = false;
	int rc = 0;

	bdev_fini(set_done, &done);
	rc |= !fixture_wait(&done);
	for (unsigned i = 0; i < THREADS; i++) {
		rc |= thread_destroy(threads[i]);
	}
	thread_lib_stop();
	env_fini();
	return rc;
}

struct thread *fixture_thread(unsigned i)
{
	return threads[i];
}

static bool is_set(void *flag)
{
	return atomic_load((atomic_bool *)flag);
}

bool fixture_wait(const atomic_bool *flag)
{
	return thread_control_wait(is_set, (void *)flag, WAIT_US);
}

/* For states that nobody announces. */
bool fixture_poll(bool (*fn)(void *arg), void *arg)
{
	for (unsigned i = 0; i < WAIT_US / 500; i++) {
		if (thread_control_wait(fn, arg, 500)) {
			return true;
		}
	}
	return false;
}

struct count_wait {
	const atomic_uint *count;
	unsigned at_least;
};

static bool is_reached(void *arg)
{
	const struct count_wait *w = arg;
	return atomic_load(w->count) >= w->at_least;
}

bool fixture_wait_count(const atomic_uint *count, unsigned at_least)
{
	struct count_wait w = {.count = count, .at_least = at_least};
	return fixture_poll(is_reached, &w);
}

static void nothing(void *arg)
{
}

void fixture_wake(void)
{
	thread_send(thread_control(), nothing, NULL);
}

uint64_t fixture_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* --- Users --- */

static void get_channel(void *arg)
{
	struct user *u = arg;
	u->ch = bdev_channel_get(u->desc);
}

static void put_channel(void *arg)
{
	struct user *u = arg;
	bdev_channel_put(u->ch);
}

static void user_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct user *u = arg;

	u->removes += event == BDEV_EVENT_REMOVE;
	u->resizes += event == BDEV_EVENT_RESIZE;
	if (event == BDEV_EVENT_REMOVE && u->close_on_remove) {
		user_close(u);
	}
}

int user_open(struct user *u, const char *bdev, bool write, struct thread *t)
{
	*u = (struct user){.thread = t};
	int rc = bdev_open(bdev, write, user_event, u, &u->desc);
	if (rc == 0) {
		thread_call(t, get_channel, u);
		if (u->ch == NULL) {
			bdev_close(u->desc);
			rc = -ENOMEM;
		}
	}
	return rc;
}

void user_close(struct user *u)
{
	thread_call(u->thread, put_channel, u);
	bdev_close(u->desc);
	u->desc = NULL;
}

static void request_done(struct bdev_io *io, void *arg)
{
	struct request *r = arg;

	r->status = io->status;
	r->cdw0 = io->cdw0;
	atomic_store(&r->done, true);
	fixture_wake();
}

struct request *request_new(struct user *u)
{
	struct request *r = calloc(1, sizeof(*r));
	r->user = u;
	r->io = aligned_alloc(64, bdev_io_size());
	memset(r->io, 0, bdev_io_size());
	bdev_io_init(r->io, u->desc, u->ch, request_done, r);
	return r;
}

void request_free(struct request *r)
{
	free(r->io);
	free(r);
}

static void submit_here(void *arg)
{
	bdev_submit(((struct request *)arg)->io);
}

void request_submit(struct request *r)
{
	atomic_store(&r->done, false);
	while (thread_send(r->user->thread, submit_here, r) != 0) {
	}
}

static void take_back_here(void *arg)
{
	bdev_io_take_back(((struct request *)arg)->io);
}

void request_take_back(struct request *r)
{
	thread_call(r->user->thread, take_back_here, r);
}

bool request_wait(struct request *r)
{
	return fixture_wait(&r->done);
}

uint16_t request_finish(struct request *r)
{
	uint16_t status = request_wait(r) ? r->status : 0xffff;

	if (status != 0xffff) {
		request_free(r);
	}
	return status;
}

uint16_t request_run(struct request *r)
{
	request_submit(r);
	return request_wait(r) ? r->status : 0xffff;
}

uint16_t user_io(struct user *u, enum bdev_io_type type, void *buf, uint64_t offset, uint64_t num)
{
	struct request *r = request_new(u);
	struct iovec iov = {buf, num * bdev_block_size(bdev_desc_bdev(u->desc))};

	bdev_io_set_rw(r->io, type, &iov, buf != NULL, offset, num);
	request_submit(r);
	return request_finish(r);
}

/* --- Load --- */

static uint8_t load_buf[65536] __attribute__((aligned(4096)));

static void load_next(struct bdev_io *io, void *arg)
{
	struct user_load *l = arg;
	bool ok = io->status == 0;

	if (!ok) {
		CU_FAIL("an I/O of a load has failed");
	}
	atomic_fetch_add(&l->done, ok);
	if (atomic_load(&l->stop) || !ok) {
		atomic_fetch_sub(&l->in_flight, 1);
		fixture_wake();
	} else {
		bdev_submit(io);
	}
}

static void load_go(void *arg)
{
	struct user_load *l = arg;

	for (unsigned i = 0; i < LOAD_DEPTH; i++) {
		bdev_submit(l->io[i]);
	}
}

void user_load_start(struct user_load *l, const char *bdev, enum bdev_io_type even, enum bdev_io_type odd,
		     unsigned thread, uint64_t blocks)
{
	memset(l, 0, sizeof(*l));
	CU_ASSERT_EQUAL_FATAL(user_open(&l->user, bdev, true, fixture_thread(thread)), 0);
	l->iov = (struct iovec){load_buf, blocks * bdev_block_size(bdev_find(bdev))};
	CU_ASSERT_TRUE_FATAL(l->iov.iov_len <= sizeof(load_buf));
	atomic_store(&l->in_flight, LOAD_DEPTH);
	for (unsigned i = 0; i < LOAD_DEPTH; i++) {
		l->io[i] = aligned_alloc(64, bdev_io_size());
		memset(l->io[i], 0, bdev_io_size());
		bdev_io_init(l->io[i], l->user.desc, l->user.ch, load_next, l);
		bdev_io_set_rw(l->io[i], i % 2 == 0 ? even : odd, &l->iov, 1, 0, blocks);
	}
	thread_send(l->user.thread, load_go, l);
}

static bool load_is_over(void *arg)
{
	return atomic_load(&((struct user_load *)arg)->in_flight) == 0;
}

void user_load_stop(struct user_load *l)
{
	atomic_store(&l->stop, true);
	CU_ASSERT_TRUE_FATAL(fixture_poll(load_is_over, l));
	for (unsigned i = 0; i < LOAD_DEPTH; i++) {
		free(l->io[i]);
	}
	user_close(&l->user);
}

/* --- The tests' bdev --- */

struct testdev_channel {
	STAILQ_HEAD(, testdev_ctx) held;
	unsigned depth;
	uint64_t random;
	struct poller *poller;
	bool polling;
};

struct testdev_ctx {
	STAILQ_ENTRY(testdev_ctx) link;
};

static struct bdev_module testdev_module = {.name = "testdev", .io_ctx_size = sizeof(struct testdev_ctx)};
BDEV_MODULE_REGISTER(testdev_module)

static bool keeps_boundary(const struct bdev_io *io, uint32_t boundary)
{
	return io->offset_blocks / boundary == (io->offset_blocks + io->num_blocks - 1) / boundary;
}

static bool keeps_boundaries(const struct testdev *t, const struct bdev_io *io)
{
	if (t->boundaries[0] != 0) {
		return keeps_boundary(io, t->boundaries[0]) || keeps_boundary(io, t->boundaries[1]);
	}
	return !t->bdev.split_on_boundary || keeps_boundary(io, t->bdev.optimal_io_boundary);
}

static bool keeps_limits(const struct testdev *t, const struct bdev_io *io)
{
	const struct bdev *b = &t->bdev;
	uint32_t align = b->buf_align != 0 ? b->buf_align : 1;
	uint32_t length_align = align < b->block_size ? align : b->block_size;

	if (io->type == BDEV_IO_COPY || io->type == BDEV_IO_VERIFY || io->type == BDEV_IO_WRITE_UNCORRECTABLE) {
		uint64_t max = io->type == BDEV_IO_COPY     ? b->max_copy_blocks
			       : io->type == BDEV_IO_VERIFY ? b->max_verify_blocks
							    : b->max_uncorrectable_blocks;
		return max == 0 || io->num_blocks <= max;
	}
	if (io->type != BDEV_IO_READ && io->type != BDEV_IO_WRITE && io->type != BDEV_IO_COMPARE) {
		return b->max_unmap_blocks == 0 || io->num_blocks <= b->max_unmap_blocks;
	}
	bool ok = (b->max_rw_blocks == 0 || io->num_blocks <= b->max_rw_blocks) &&
		  (b->max_segments == 0 || io->iovcnt <= b->max_segments) && keeps_boundaries(t, io);
	size_t total = 0;
	for (uint32_t i = 0; i < io->iovcnt; i++) {
		total += io->iovs[i].iov_len;
		ok = ok && (uintptr_t)io->iovs[i].iov_base % align == 0 && io->iovs[i].iov_len != 0 &&
		     io->iovs[i].iov_len % length_align == 0 &&
		     (b->max_segment_bytes == 0 || io->iovs[i].iov_len <= b->max_segment_bytes);
	}
	return ok && total == io->num_blocks * b->block_size;
}

static uint16_t pass(struct testdev *t, struct bdev_io *io)
{
	size_t at = 0;

	t->passed = *(const struct nvme_sqe *)io->nvme.cmd;
	for (uint32_t i = 0; i < io->iovcnt && at + io->iovs[i].iov_len <= sizeof(t->scratch); i++) {
		bool to_device = t->passed.opcode & 1;
		memcpy(to_device ? t->scratch + at : io->iovs[i].iov_base,
		       to_device ? io->iovs[i].iov_base : t->scratch + at, io->iovs[i].iov_len);
		at += io->iovs[i].iov_len;
	}
	io->cdw0 = 0xc0ffee;
	return 0;
}

/* What a read of the bad block ends with; a write of it heals it. */
static uint16_t bad_block(struct testdev *t, const struct bdev_io *io)
{
	unsigned status = atomic_load(&t->bad_status);

	if (status == 0 || t->bad_block < io->offset_blocks || t->bad_block >= io->offset_blocks + io->num_blocks) {
		return 0;
	}
	if (io->type == BDEV_IO_WRITE) {
		atomic_store(&t->bad_status, 0);
	}
	return io->type == BDEV_IO_READ ? (uint16_t)status : 0;
}

static uint16_t execute(struct testdev *t, struct bdev_io *io)
{
	uint8_t *disk = t->memory + io->offset_blocks * t->bdev.block_size;

	if (t->fail_status != 0) {
		return t->fail_status;
	}
	static _Thread_local uint64_t random;
	if (t->fail_one_in != 0 && fixture_random(&random) % t->fail_one_in == 0) {
		return NVME_SC_DATA_XFER_ERROR;
	}
	if (io->type == BDEV_IO_NVME_IO || io->type == BDEV_IO_NVME_ADMIN) {
		return pass(t, io);
	}
	uint16_t bad = bad_block(t, io);
	if (bad != 0) {
		return bad;
	}
	for (uint32_t i = 0; i < io->iovcnt; i++) {
		size_t n = io->iovs[i].iov_len;
		if (io->type == BDEV_IO_READ) {
			memcpy(io->iovs[i].iov_base, disk, n);
		} else if (io->type == BDEV_IO_WRITE) {
			memcpy(disk, io->iovs[i].iov_base, n);
		} else if (io->type == BDEV_IO_COMPARE && memcmp(disk, io->iovs[i].iov_base, n) != 0) {
			return BDEV_STATUS(NVME_SCT_MEDIA, NVME_SC_COMPARE_FAILED) | NVME_SC_DNR;
		}
		disk += n;
	}
	if (io->type == BDEV_IO_COPY) {
		memcpy(disk, t->memory + io->copy.src_offset_blocks * t->bdev.block_size,
		       io->num_blocks * t->bdev.block_size);
	}
	if (io->type == BDEV_IO_WRITE_ZEROES || io->type == BDEV_IO_UNMAP) {
		memset(disk, io->type == BDEV_IO_UNMAP ? 0xee : 0, io->num_blocks * t->bdev.block_size);
	}
	return 0;
}

static void end_one(struct testdev *t, struct testdev_channel *c, struct testdev_ctx *ctx, uint16_t status)
{
	struct bdev_io *io = bdev_io_from_ctx(ctx);

	STAILQ_REMOVE(&c->held, ctx, testdev_ctx, link);
	c->depth--;
	atomic_fetch_sub(&t->held, 1);
	bdev_io_complete(io, status != 0 ? status : execute(t, io));
}

static void abort_one(struct testdev *t, struct testdev_channel *c, struct bdev_io *io)
{
	struct testdev_ctx *ctx = bdev_io_ctx(io->abort.target), *i;

	io->cdw0 = 1;
	STAILQ_FOREACH (i, &c->held, link) {
		if (i == ctx && !t->deaf) {
			end_one(t, c, ctx, NVME_SC_ABORT_REQ);
			io->cdw0 = 0;
			break;
		}
	}
	bdev_io_complete(io, 0);
}

static void keep(struct testdev *t, struct testdev_channel *c, struct bdev_io *io)
{
	struct testdev_ctx *ctx = bdev_io_ctx(io);

	STAILQ_INSERT_TAIL(&c->held, ctx, link);
	c->depth++;
	atomic_fetch_add(&t->held, 1);
	fixture_wake();
}

static void testdev_submit(void *channel, struct bdev_io *io)
{
	struct testdev *t = (struct testdev *)bdev_channel_bdev(io->ch);
	struct testdev_channel *c = channel;

	if ((t->slots != 0 && c->depth >= t->slots) || (t->nomem_type != 0 && io->type == t->nomem_type)) {
		bdev_io_refuse(io);
		return;
	}
	if (io->type == BDEV_IO_ABORT) {
		abort_one(t, c, io);
		return;
	}
	atomic_fetch_add(&t->submitted, 1);
	if (io->type == BDEV_IO_RESET) {
		atomic_fetch_add(&t->resets, 1);
		bdev_io_complete(io, 0);
		return;
	}
	if (t->untouched_status != 0) {
		bdev_io_complete_untouched(io, t->untouched_status);
		return;
	}
	if (!keeps_limits(t, io)) {
		t->limits_broken = true;
	}
	if (c->depth + 1 > atomic_load(&t->max_depth)) {
		atomic_store(&t->max_depth, c->depth + 1);
	}
	if (t->hold || t->shuffle || t->slots != 0) {
		keep(t, c, io);
	} else {
		bdev_io_complete(io, execute(t, io));
	}
}

/* Completes some of what is held, never the oldest first. */
static int shuffle_poll(void *arg)
{
	struct testdev_channel *c = arg;
	struct testdev_ctx *ctx = STAILQ_FIRST(&c->held);

	if (ctx == NULL) {
		return POLLER_IDLE;
	}
	struct testdev *t = (struct testdev *)bdev_channel_bdev(bdev_io_from_ctx(ctx)->ch);
	if (t->hold) {
		return POLLER_IDLE;
	}
	c->polling = true;
	for (unsigned n = fixture_random(&c->random) % 4 + 1; n > 0 && !STAILQ_EMPTY(&c->held); n--) {
		unsigned skip = (unsigned)(fixture_random(&c->random) % c->depth);
		ctx = STAILQ_FIRST(&c->held);
		while (skip-- > 0) {
			ctx = STAILQ_NEXT(ctx, link);
		}
		end_one(t, c, ctx, 0);
	}
	c->polling = false;
	return POLLER_BUSY;
}

static int testdev_channel_create(struct bdev *b, void *channel)
{
	struct testdev *t = (struct testdev *)b;
	struct testdev_channel *c = channel;

	if (t->opens != NULL && !t->opens(t)) {
		return t->open_error != 0 ? t->open_error : -ENOMEM;
	}
	STAILQ_INIT(&c->held);
	c->random = thread_id(thread_current());
	c->poller = poller_register(
		&(struct poller_opts){.name = "testdev", .fn = shuffle_poll, .ctx = c, .period_us = 20, .fd = -1});
	return c->poller != NULL ? 0 : -ENOMEM;
}

static void testdev_channel_destroy(struct bdev *b, void *channel)
{
	struct testdev_channel *c = channel;

	if (c->polling) {
		((struct testdev *)b)->gone_in_poll = true;
	}
	poller_unregister(&c->poller);
}

static void testdev_reset_channel(struct bdev *b, void *channel)
{
	struct testdev_channel *c = channel;

	while (!STAILQ_EMPTY(&c->held)) {
		end_one((struct testdev *)b, c, STAILQ_FIRST(&c->held), NVME_SC_ABORT_REQ);
	}
}

static void testdev_destruct(struct bdev *b)
{
	struct testdev *t = (struct testdev *)b;

	bdev_destruct_done(b);
	free(t->memory);
	free((char *)t->bdev.name);
	free(t);
}

static const struct bdev_ops testdev_ops = {
	.bases = bdev_bases_none,
	.submit = testdev_submit,
	.channel_create = testdev_channel_create,
	.channel_destroy = testdev_channel_destroy,
	.channel_size = sizeof(struct testdev_channel),
	.reset_channel = testdev_reset_channel,
	.destruct = testdev_destruct,
};

struct testdev *testdev_new(const char *name, uint32_t block_size, uint64_t num_blocks)
{
	struct testdev *t = aligned_alloc(64, (sizeof(*t) + 63) & ~(size_t)63);

	memset(t, 0, sizeof(*t));
	t->memory = calloc(num_blocks, block_size);
	t->bdev.name = strdup(name);
	t->bdev.product_name = "Test disk";
	t->bdev.module = &testdev_module;
	t->bdev.ops = &testdev_ops;
	t->bdev.block_size = block_size;
	t->bdev.num_blocks = num_blocks;
	t->bdev.numa_node = -1;
	t->bdev.io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_ABORT;
	return t;
}

int testdev_register(struct testdev *t)
{
	return bdev_register(&t->bdev);
}

struct release {
	struct testdev *t;
	struct user *user;
	uint16_t status;
};

static void release_here(void *arg)
{
	const struct release *r = arg;
	struct testdev_channel *c = bdev_channel_ctx(r->user->ch);

	for (unsigned n = c->depth; n > 0; n--) { /* not what comes meanwhile */
		end_one(r->t, c, STAILQ_FIRST(&c->held), r->status);
	}
}

void testdev_release(struct testdev *t, struct user *u, uint16_t status)
{
	struct release r = {.t = t, .user = u, .status = status};
	thread_call(u->thread, release_here, &r);
}

static void give_back_here(void *arg)
{
	const struct release *r = arg;
	struct testdev_channel *c = bdev_channel_ctx(r->user->ch);

	while (!STAILQ_EMPTY(&c->held)) {
		struct bdev_io *io = bdev_io_from_ctx(STAILQ_FIRST(&c->held));
		STAILQ_REMOVE_HEAD(&c->held, link);
		c->depth--;
		atomic_fetch_sub(&r->t->held, 1);
		bdev_io_nomem(io);
	}
}

void testdev_give_back(struct testdev *t, struct user *u)
{
	struct release r = {.t = t, .user = u};
	thread_call(u->thread, give_back_here, &r);
}

static void unregistered(void *flag, int rc)
{
	set_done(flag);
}

bool testdev_delete(struct testdev *t)
{
	atomic_bool done = false;

	bdev_unregister(&t->bdev, unregistered, &done);
	return fixture_wait(&done);
}

struct deletion {
	atomic_bool done;
	int rc;
};

static void deleted(void *arg, int rc)
{
	struct deletion *d = arg;
	d->rc = rc;
	set_done(&d->done);
}

int fixture_delete(void (*delete)(const char *name, bdev_delete_cb cb, void *arg), const char *name)
{
	struct deletion d = {0};
	delete (name, deleted, &d);
	return fixture_wait(&d.done) ? d.rc : -ETIME;
}

void make_null(const char *name, uint32_t block_size, uint64_t num_blocks)
{
	char error[BDEV_ERROR_MAX];
	const struct bdev_null_opts opts = {.name = name, .block_size = block_size, .num_blocks = num_blocks};
	CU_ASSERT_EQUAL_FATAL(bdev_null_create(&opts, error), 0);
}

void make_malloc(const char *name, uint32_t block_size, uint64_t num_blocks)
{
	char error[BDEV_ERROR_MAX], got[256];
	const struct bdev_malloc_opts opts = {
		.name = name, .block_size = block_size, .num_blocks = num_blocks, .numa_id = -1};
	CU_ASSERT_EQUAL_FATAL(bdev_malloc_create(&opts, got, error), 0);
}
