/* SPDX-License-Identifier: BSD-3-Clause */
#include "unittest/bdev_modules/nvme_fixture.h"

#include "env_dpdk/env.h"

struct model model, second;
static struct poller *model_poller;
uint8_t *buffer, *other;
struct bdev_nvme *nvme;
char last_error[BDEV_ERROR_MAX];

/* --- A controller, attached --- */

/* The control thread polls for it. While the drives have nothing to do it naps between its rounds. */
static int run_model(void *ctx)
{
	unsigned n = model_step(&model);

	if (second.regs != NULL) {
		n += model_step(&second);
	}
	return n > 0 ? POLLER_BUSY : POLLER_IDLE;
}

int drive_setup(void)
{
	int rc = fixture_start();

	nvme_pcie_set_access(&model_access);
	buffer = env_dma_zmalloc(BUFFER, 4096, -1);
	other = env_dma_zmalloc(BUFFER, 4096, -1);
	return rc;
}

int drive_teardown(void)
{
	env_dma_free(buffer);
	env_dma_free(other);
	return fixture_stop();
}

void drive_begin(void)
{
	struct bdev_nvme_options o;

	model_init(&model);
	model.ns[1].md_size = 0;
	model_current = &model;
	bdev_nvme_default_options(&o);
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	model_poller = poller_register(&(struct poller_opts){.name = "model", .fn = run_model, .fd = -1});
}

bool is_done(void *arg)
{
	return ((struct wait *)arg)->done;
}

static void attached(void *arg, int rc, struct bdev_nvme *c, const char *error)
{
	*(struct wait *)arg = (struct wait){.done = true, .rc = rc};
	nvme = c;
	snprintf(last_error, sizeof(last_error), "%s", error ? error : "");
}

void ended(void *arg, int rc, const char *error)
{
	*(struct wait *)arg = (struct wait){.done = true, .rc = rc};
	snprintf(last_error, sizeof(last_error), "%s", error ? error : "");
}

struct bdev_nvme_attach attach_opts(void)
{
	struct bdev_nvme_attach a;

	bdev_nvme_attach_default(&a);
	a.name = "Nvme0";
	a.trid = (struct nvme_trid){.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	return a;
}

int attach_with(const struct bdev_nvme_attach *a)
{
	struct wait w = {0};

	bdev_nvme_attach(a, attached, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	return w.rc;
}

void drive_begin_attached(void)
{
	struct bdev_nvme_attach a = attach_opts();

	drive_begin();
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
}

int drive_detach(void)
{
	struct wait w = {0};

	bdev_nvme_detach(nvme, ended, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	nvme = NULL;
	return w.rc;
}

int drive_reset(void)
{
	struct wait w = {0};

	bdev_nvme_reset(nvme, ended, &w);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	return w.rc;
}

bool all_detached(void *arg)
{
	return bdev_nvme_next(NULL) == NULL;
}

void drive_end(void)
{
	if (bdev_nvme_next(NULL) != NULL && nvme != NULL) {
		CU_ASSERT_EQUAL(drive_detach(), 0);
	}
	CU_ASSERT(thread_control_wait(all_detached, NULL, WAIT_US));
	poller_unregister(&model_poller);
	CU_ASSERT_STRING_EQUAL(model.violation, "");
	CU_ASSERT(!model.open);
	model_fini(&model);
	nvme = NULL;
}

void set_fault(enum model_fault_kind kind, int opcode, unsigned count, uint16_t status)
{
	model.fault = (struct model_fault){.kind = kind, .qid = -1, .opcode = opcode, .count = count, .status = status};
}

void fill(uint8_t *p, size_t len, uint8_t seed)
{
	for (size_t i = 0; i < len; i++) {
		p[i] = (uint8_t)(seed + i * 7 + (i >> 8));
	}
}

bool model_holds(void *count)
{
	return model.num_held == *(unsigned *)count;
}

bool is_told(void *user)
{
	return ((struct user *)user)->removes == 1;
}

bool is_up(void *arg)
{
	return strcmp(bdev_nvme_state_name(nvme), "enabled") == 0;
}

bool is_up_after(void *resets)
{
	return bdev_nvme_resets(nvme) >= *(unsigned *)resets && is_up(NULL);
}

/* --- Threads that verify what they read --- */

static void slot_next(struct slot *s)
{
	s->reading = !s->reading && s->generation != 0;
	if (s->reading) {
		memset(s->iov.iov_base, 0xee, s->iov.iov_len);
	} else {
		fill(s->iov.iov_base, s->iov.iov_len, (uint8_t)(++s->generation * 13 + s->lba));
	}
	bdev_io_set_rw(s->io, s->reading ? BDEV_IO_READ : BDEV_IO_WRITE, &s->iov, 1, s->lba, 8);
	bdev_submit(s->io);
}

static bool slot_is_right(const struct slot *s)
{
	uint8_t expected[4096];

	fill(expected, sizeof(expected), (uint8_t)(s->generation * 13 + s->lba));
	return memcmp(s->iov.iov_base, expected, sizeof(expected)) == 0;
}

static void slot_done(struct bdev_io *io, void *arg)
{
	struct slot *s = arg;
	struct worker *w = s->w;

	atomic_fetch_add(&w->done, 1);
	if (io->status != 0) {
		atomic_fetch_add(io->status == NVME_ST(PATH, CTRL_PATH_ERROR) ? &w->path_errors : &w->errors, 1);
		s->generation = 0; /* whether it was written is unknown */
	} else if (s->reading && !slot_is_right(s)) {
		atomic_fetch_add(&w->miscompares, 1);
	}
	if (__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		atomic_fetch_sub(&w->outstanding, 1);
		fixture_wake();
	} else {
		slot_next(s);
	}
}

static void worker_go(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < SLOTS; i++) {
		slot_next(&w->slots[i]);
	}
}

static void worker_start(struct worker *w, unsigned n, uint8_t *memory)
{
	memset(w, 0, sizeof(*w));
	CU_ASSERT_EQUAL_FATAL(user_open(&w->u, "Nvme0n1", true, fixture_thread(n)), 0);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *s = &w->slots[i];
		*s = (struct slot){.w = w, .lba = (n * SLOTS + i) * 8, .iov = {memory + i * 4096, 4096}};
		s->io = aligned_alloc(64, bdev_io_size());
		memset(s->io, 0, bdev_io_size());
		bdev_io_init(s->io, w->u.desc, w->u.ch, slot_done, s);
	}
	w->outstanding = SLOTS;
	thread_call(w->u.thread, worker_go, w);
}

static bool worker_idle(void *arg)
{
	return atomic_load(&((struct worker *)arg)->outstanding) == 0;
}

static void worker_stop(struct worker *w)
{
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
	CU_ASSERT_FATAL(fixture_poll(worker_idle, w));
	user_close(&w->u);
	for (unsigned i = 0; i < SLOTS; i++) {
		free(w->slots[i].io);
	}
	CU_ASSERT_EQUAL(w->miscompares, 0);
}

struct worker workers[3];

void workers_start(void)
{
	for (unsigned i = 0; i < 3; i++) {
		worker_start(&workers[i], i, buffer + i * SLOTS * 4096);
	}
}

void workers_stop(void)
{
	for (unsigned i = 0; i < 3; i++) {
		worker_stop(&workers[i]);
	}
}

void workers_progress(unsigned n)
{
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT(fixture_wait_count(&workers[i].done, atomic_load(&workers[i].done) + n));
	}
}

bool workers_told(void *arg)
{
	return is_told(&workers[0].u) && is_told(&workers[1].u) && is_told(&workers[2].u);
}

unsigned count_errors(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 3; i++) {
		n += workers[i].errors + workers[i].path_errors;
	}
	return n;
}

static void count_way(void *arg, const struct bdev_nvme_io_path *path)
{
	*(unsigned *)arg += path->connected && path->accessible;
}

static bool are_usable(void *wanted)
{
	unsigned found = 0;

	bdev_nvme_for_each_io_path(bdev_find("Nvme0n1"), count_way, &found);
	return found == *(unsigned *)wanted;
}

void wait_usable(unsigned paths)
{
	CU_ASSERT_FATAL(fixture_poll(are_usable, &paths));
}
