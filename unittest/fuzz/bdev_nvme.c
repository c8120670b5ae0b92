/* SPDX-License-Identifier: BSD-3-Clause */
/* A hostile drive with block devices on it: the input's bytes spoil the data of every admin answer and every completion
 * of the model controller. What is registered must have limits that make sense, what it says of itself must be JSON,
 * and it must go when it is detached. Everything runs on the control thread and time is virtual: the same input is the
 * same run. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/nvme/bdev_nvme.h"
#include "bdev_modules/nvme/internal.h"
#include "unittest/nvme/model.h"
#include "util/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NS_BYTES (256 << 10)
#define STEP_US  3000000 /* more than any of the driver's own deadlines here */
#define IDLE_US  500     /* virtual time of a round of the control thread in which nothing happens */
#define BUSY_US  1
#define EVENTS   2

static struct input {
	const uint8_t *data;
	size_t size, bit;
} input;

static struct model model;
static uint64_t idle_ticks, busy_ticks;
static struct bdev_nvme *nvme;
static bool answered;
static unsigned rounds;

static uint64_t next_bits(void *arg, unsigned bits)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bits; i++, input.bit++) {
		v |= input.bit / 8 < input.size ? (uint64_t)(input.data[input.bit / 8] >> input.bit % 8 & 1) << i : 0;
	}
	return v;
}

static int run_model(void *ctx)
{
	/* in a round in which nothing happens the driver waits for its timers */
	env_ticks_virtual += model_step(&model) == 0 ? idle_ticks : busy_ticks;
	rounds++;
	return POLLER_BUSY;
}

static void start(void)
{
	static bool started;
	const struct env_opts env = {.name = "fuzz",
				     .cores = "[0]",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE};
	char error[BDEV_ERROR_MAX > ENV_ERROR_MAX ? BDEV_ERROR_MAX : ENV_ERROR_MAX];
	struct bdev_nvme_options o;

	if (started) {
		return;
	}
	started = true;
	log_set_print_level(LOG_LEVEL_DISABLED);
	if (env_init(&env, error) != 0 || thread_lib_start(&opts) != 0 || bdev_init() != 0) {
		abort();
	}
	nvme_pcie_set_access(&model_access);
	model_ns_bytes = NS_BYTES;
	bdev_nvme_default_options(&o);
	o.timeout_admin_us = 4000;
	if (bdev_nvme_set_options(&o, error) != 0) {
		abort();
	}
	idle_ticks = env_us_to_ticks(IDLE_US);
	busy_ticks = env_us_to_ticks(BUSY_US);
	env_ticks_virtual = env_ticks(); /* from here on time passes with rounds, and no run waits for real time */
}

static void attached(void *arg, int rc, struct bdev_nvme *c, const char *error)
{
	nvme = rc == 0 ? c : NULL;
	answered = true;
	if ((rc != 0) != (error != NULL)) {
		abort();
	}
}

static void detached(void *arg, int rc, const char *error)
{
	answered = true;
}

static bool is_answered(void *arg)
{
	return answered;
}

static bool is_empty(void *arg)
{
	return bdev_nvme_next(NULL) == NULL;
}

static bool has_run(void *until)
{
	return rounds >= *(unsigned *)until;
}

static void wait_for(bool (*condition)(void *arg), void *arg)
{
	if (!thread_control_wait(condition, arg, STEP_US)) {
		abort(); /* the driver waits without a limit for a drive that does not answer */
	}
}

static void check_limits(const struct bdev *b)
{
	const struct nvme_ctrlr *ctrlr = bdev_nvme_ctrlr(nvme);
	/* One that comes back may say something else by now: the bdev has that when it is ready, and no I/O goes there
	 * before. */
	uint64_t most = nvme_ctrlr_state(ctrlr) == NVME_CTRLR_READY ? nvme_ctrlr_max_transfer(ctrlr) : UINT64_MAX;

	if (b->num_blocks == 0 || b->max_rw_blocks == 0 || b->max_rw_blocks > 65536 || b->max_segments == 0 ||
	    (b->max_rw_blocks > 1 && (uint64_t)b->max_rw_blocks * (b->block_size - b->md.size) > most) ||
	    (b->split_on_boundary && b->optimal_io_boundary == 0)) {
		abort();
	}
}

static void look(void)
{
	for (const struct bdev *b = NULL; (b = bdev_nvme_bdev_next(nvme, b)) != NULL;) {
		json_t *o = json_object();
		char *text;

		check_limits(b);
		b->ops->dump_info(b, o);
		text = json_dumps(o, JSON_COMPACT);
		if (text == NULL) { /* bytes that are no UTF-8, or a NULL where a value should be */
			abort();
		}
		free(text);
		json_decref(o);
	}
}

/* Asynchronous events of all types, valid or not; after each the driver reads a log page of noise. */
static void happen(void)
{
	for (unsigned i = 0; i < EVENTS; i++) {
		unsigned until = rounds + 8;

		model_event(&model, (uint32_t)next_bits(NULL, 24));
		wait_for(has_run, &until);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bdev_nvme_attach a;

	start();
	input = (struct input){.data = data, .size = size};
	model_init(&model);
	model.noise = next_bits;
	model_current = &model;
	*(volatile uint32_t *)model.regs &= 0x00ffffff; /* CAP.TO: shortest timeouts */
	struct poller *p = poller_register(&(struct poller_opts){.name = "model", .fn = run_model, .fd = -1});
	bdev_nvme_attach_default(&a);
	a.name = "Nvme0";
	a.num_io_queues = 2;
	a.trid = (struct nvme_trid){.trtype = NVME_TRTYPE_PCIE, .traddr = "0000:00:04.0"};
	answered = false;
	bdev_nvme_attach(&a, attached, NULL);
	wait_for(is_answered, NULL);
	if (nvme != NULL) {
		look();
		happen();
	}
	nvme = bdev_nvme_next(NULL); /* an event may have led to its end */
	if (nvme != NULL) {
		if (bdev_nvme_ctrlr(nvme) != NULL) {
			look();
		}
		answered = false;
		bdev_nvme_detach(nvme, detached, NULL);
		wait_for(is_answered, NULL);
	}
	wait_for(is_empty, NULL);
	nvme = NULL;
	poller_unregister(&p);
	model_fini(&model);
	return 0;
}
