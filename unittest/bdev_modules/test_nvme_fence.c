/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes that were lost with a controller, which may still carry them out: what holds them, and for how long. Paths to
 * namespace 1 lead through targets 0, 1 and 2 of a fabric. A target that keeps writes carries them out when the test
 * says so. The blocks must never have an old write's data after a newer one was answered. */
#include "bdev_modules/nvme/fence.h"
#include "bdev_modules/nvme/internal.h"
#include "unittest/bdev_modules/fabric.h"
#include "unittest/bdev_modules/nvme_fixture.h"

#define LONG_MS  3600000 /* longer than any test */
#define SHORT_MS 300

static struct fabric_target *const t0 = &fabric_targets[0], *const t1 = &fabric_targets[1];
static uint8_t *old_data, *new_data;

/* What was seen when a fence began or ended. */
static struct {
	unsigned begun, ended;
	bool lands; /* what target 0 has kept lands as the last thing before the end */
	uint32_t writes_before_end;
	char last[256];
} seen;

static void fence_seen(const char *name, const struct nvme_trid *trid, uint16_t cntlid, const char *what)
{
	snprintf(seen.last, sizeof(seen.last), "%s", what);
	if (strncmp(what, "begun", 5) == 0) {
		seen.begun++;
		return;
	}
	seen.ended++;
	seen.writes_before_end = t1->writes + fabric_targets[2].writes;
	if (seen.lands) {
		fabric_land(t0);
	}
}

static struct bdev_nvme_attach target_opts(unsigned i)
{
	struct bdev_nvme_attach a;

	bdev_nvme_attach_default(&a);
	a.name = "Nvme0";
	a.trid = (struct nvme_trid){.trtype = FABRIC, .subnqn = "nqn.2026-11.io.varve:shared"};
	a.trid.traddr[0] = (char)('0' + i);
	a.num_io_queues = 8;
	a.ctrlr_loss_timeout_sec = -1;
	a.reconnect_delay_sec = 1;
	a.fence_timeout_ms = LONG_MS;
	return a;
}

static void fence_begin(void)
{
	struct bdev_nvme_options o;

	memset(&seen, 0, sizeof(seen));
	fabric_init();
	bdev_nvme_default_options(&o);
	o.keep_alive_timeout_ms = 0;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	bdev_nvme_observe_fences(fence_seen);
	old_data = buffer;
	new_data = buffer + 512;
	fill(old_data, 512, 1);
	fill(new_data, 512, 99);
}

static void attach_target(unsigned i, struct bdev_nvme_attach a)
{
	a.trid.traddr[0] = (char)('0' + i);
	CU_ASSERT_EQUAL_FATAL(attach_with(&a), 0);
}

/* n paths, and a user. */
static void begin_paths(unsigned n, struct bdev_nvme_attach a, struct user *u)
{
	fence_begin();
	for (unsigned i = 0; i < n; i++) {
		attach_target(i, a);
	}
	CU_ASSERT_EQUAL_FATAL(user_open(u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(n);
}

static void end_paths(struct user *u)
{
	if (u != NULL) {
		user_close(u);
	}
	while ((nvme = bdev_nvme_next(NULL)) != NULL) {
		CU_ASSERT_EQUAL(drive_detach(), 0);
	}
	CU_ASSERT(thread_control_wait(all_detached, NULL, WAIT_US));
	bdev_nvme_observe_fences(NULL);
}

static struct request *submit(struct user *u, enum bdev_io_type type, uint8_t *data, uint64_t lba)
{
	static struct iovec iovs[8];
	static unsigned next;
	struct request *r = request_new(u);
	struct iovec *iov = &iovs[next++ % 8];

	*iov = (struct iovec){data, 512};
	bdev_io_set_rw(r->io, type, iov, 1, lba, 1);
	request_submit(r);
	return r;
}

static bool are_kept(void *target)
{
	bool kept;

	fabric_lock();
	kept = ((struct fabric_target *)target)->num_kept != 0;
	fabric_unlock();
	return kept;
}

static struct request *kept_write(struct user *u, struct fabric_target *t, uint64_t lba)
{
	t->keeps = true;
	struct request *r = submit(u, BDEV_IO_WRITE, old_data, lba);
	CU_ASSERT_FATAL(fixture_poll(are_kept, t));
	t->keeps = false;
	return r;
}

static bool is_begun(void *n)
{
	return seen.begun >= *(unsigned *)n;
}

static void wait_begun(unsigned n)
{
	CU_ASSERT_FATAL(fixture_poll(is_begun, &n));
}

static void cut(struct fabric_target *t)
{
	fabric_lock();
	t->broken = t->refuses = true;
	fabric_unlock();
}

/* With two paths: a write that the first controller, which is lost, may still carry out. It is held until the fence of
 * fence_ms ends. lands: as its last act, the first controller carries it out. */
static struct request *held_write(struct user *u, uint32_t fence_ms, bool lands)
{
	struct bdev_nvme_attach a = target_opts(0);

	a.fence_timeout_ms = fence_ms;
	begin_paths(2, a, u);
	seen.lands = lands;
	struct request *old = kept_write(u, t0, 5);
	cut(t0);
	wait_begun(1);
	return old;
}

static bool is_done_now(struct request *r)
{
	return atomic_load(&r->done);
}

/* The write has been answered with success: what was written after it stays, whatever lands now. */
static void expect_no_old_write_lands(struct user *u, struct request *old)
{
	CU_ASSERT(request_wait(old));
	CU_ASSERT_EQUAL(old->status, 0);
	request_free(old);
	CU_ASSERT_EQUAL(memcmp(fabric_store[5], old_data, 512), 0);
	CU_ASSERT_EQUAL(user_io(u, BDEV_IO_WRITE, new_data, 5, 1), 0);
	for (unsigned i = 0; i < FABRIC_TARGETS; i++) {
		fabric_land(&fabric_targets[i]);
	}
	CU_ASSERT_EQUAL(memcmp(fabric_store[5], new_data, 512), 0);
}

/* --- Tests: time --- */

static void test_a_write_waits_until_time_has_passed_and_reads_do_not(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct bdev_nvme_fence_stat before, now;
	struct user u;

	a.fence_timeout_ms = SHORT_MS;
	begin_paths(2, a, &u);
	seen.lands = true;
	struct request *w = kept_write(&u, t0, 5);
	t0->keeps = true;
	struct request *r = submit(&u, BDEV_IO_READ, other, 7);
	cut(t0);
	CU_ASSERT_EQUAL(request_finish(r), 0);
	wait_begun(1);
	bdev_nvme_get_fence_stat(&before);
	expect_no_old_write_lands(&u, w);
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_EQUAL(seen.writes_before_end, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(seen.last, "fence_timeout_ms has passed"));
	bdev_nvme_get_fence_stat(&now);
	CU_ASSERT_EQUAL(before.fences, 1);
	CU_ASSERT_EQUAL(before.held, 1);
	CU_ASSERT_EQUAL(now.fences, 0);
	CU_ASSERT_EQUAL(now.held, 0);
	CU_ASSERT_EQUAL(now.commands_total, before.commands_total);
	CU_ASSERT_EQUAL(now.ends[BDEV_NVME_FENCE_END_TIME], before.ends[BDEV_NVME_FENCE_END_TIME] + 1);
	end_paths(&u);
}

static void test_without_a_fence_old_writes_land_behind_new_ones(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct user u;

	a.fence_timeout_ms = 0;
	begin_paths(2, a, &u);
	struct request *w = kept_write(&u, t0, 5);
	cut(t0);
	CU_ASSERT_EQUAL(request_finish(w), 0);
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, new_data, 5, 1), 0);
	fabric_land(t0);
	CU_ASSERT_EQUAL(memcmp(fabric_store[5], old_data, 512), 0); /* what the option trades */
	CU_ASSERT_EQUAL(seen.begun, 0);
	end_paths(&u);
}

static void test_the_time_is_the_standards(void)
{
	struct nvme_ctrlr_quiesce_info i = {.keep_alive_ms = 10000, .quiesce_ms = 700};

	CU_ASSERT_EQUAL(bdev_nvme_fence_time_ms(-1, 5000, &i), 20700);
	i.traffic_based = true;
	CU_ASSERT_EQUAL(bdev_nvme_fence_time_ms(-1, 5000, &i), 30700);
	i.quiesce_ms = 0;
	CU_ASSERT_EQUAL(bdev_nvme_fence_time_ms(-1, 5000, &i), 35000);
	i.keep_alive_ms = 0;
	CU_ASSERT_EQUAL(bdev_nvme_fence_time_ms(-1, 5000, &i), 5000);
	CU_ASSERT_EQUAL(bdev_nvme_fence_time_ms(0, 5000, &i), 0);
	CU_ASSERT_EQUAL(bdev_nvme_fence_time_ms(42, 5000, &i), 42);
}

static void test_options_that_make_no_sense_are_refused(void)
{
	struct bdev_nvme_attach a = target_opts(0);

	fence_begin();
	a.fence_timeout_ms = -2;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "fence_timeout_ms -2"));
	a.fence_timeout_ms = -1;
	a.default_quiesce_time_ms = BDEV_NVME_FENCE_MAX_MS + 1;
	CU_ASSERT_EQUAL(attach_with(&a), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(last_error, "default_quiesce_time_ms 3600001"));
	end_paths(NULL);
}

/* --- Tests: disabling --- */

static void reset_first(struct wait *w)
{
	*w = (struct wait){0};
	bdev_nvme_reset(bdev_nvme_next(NULL), ended, w);
}

static void test_a_reset_disables_first(void)
{
	struct user u;
	struct wait w;

	begin_paths(2, target_opts(0), &u);
	struct request *old = kept_write(&u, t0, 5);
	reset_first(&w);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(w.rc, 0);
	CU_ASSERT_EQUAL(t0->disabled, 1);
	CU_ASSERT_EQUAL(seen.begun, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(seen.last, "disabled"));
	end_paths(&u);
}

static void test_a_reset_with_one_path_disables_first(void)
{
	struct user u;
	struct wait w;

	begin_paths(1, target_opts(0), &u);
	struct request *old = kept_write(&u, t0, 5);
	reset_first(&w);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(t0->connects, 2);
	end_paths(&u);
}

/* So its commands are lost while the fence ends on another thread. */
static void test_commands_that_are_lost_while_the_controller_is_disabled_are_not_forgotten(void)
{
	struct user u;
	struct wait w;

	begin_paths(2, target_opts(0), &u);
	t0->hasty = true;
	for (unsigned i = 0; i < 20; i++) {
		struct request *old = kept_write(&u, t0, 5);
		reset_first(&w);
		CU_ASSERT_FATAL(request_wait(old));
		CU_ASSERT_EQUAL(old->status, 0);
		request_free(old);
		CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
		wait_usable(2);
	}
	end_paths(&u);
}

static void test_a_controller_that_does_not_become_disabled_is_outwaited(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct user u;
	struct wait w;

	a.fence_timeout_ms = SHORT_MS;
	begin_paths(2, a, &u);
	seen.lands = true;
	struct request *old = kept_write(&u, t0, 5);
	t0->busy = true;
	reset_first(&w);
	wait_begun(1);
	t0->busy = false;
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(seen.writes_before_end, 0);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	end_paths(&u);
}

static void test_a_controller_that_does_not_answer_is_outwaited(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct user u;
	struct wait w;

	a.fence_timeout_ms = SHORT_MS;
	begin_paths(2, a, &u);
	seen.lands = true;
	struct request *old = kept_write(&u, t0, 5);
	t0->mute = true;
	reset_first(&w);
	wait_begun(1);
	t0->mute = false;
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(seen.writes_before_end, 0);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	end_paths(&u);
}

static void test_a_detach_disables_what_has_commands(void)
{
	struct user u;
	struct wait w = {0};

	begin_paths(2, target_opts(0), &u);
	struct request *old = kept_write(&u, t0, 5);
	bdev_nvme_detach(bdev_nvme_next(NULL), ended, &w);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(t0->disabled, 1);
	CU_ASSERT_EQUAL(t0->connects, 1);
	end_paths(&u);
}

/* --- Tests: what happens meanwhile --- */

static void inflight_text(struct user *u, char *text);

static void test_a_fence_outlives_its_controller(void)
{
	struct bdev_nvme_fence_info info;
	struct user u;
	char text[BDEV_INFLIGHT_TEXT] = "";

	struct request *old = held_write(&u, 3000, true);
	inflight_text(&u, text);
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "fence of controller 1 of Nvme0 (waiting"));
	CU_ASSERT_PTR_NOT_NULL_FATAL(bdev_nvme_fence_next(NULL, &info));
	CU_ASSERT_EQUAL(info.held, 1);
	CU_ASSERT_STRING_EQUAL(info.state, "waiting");
	nvme = bdev_nvme_next(NULL);
	CU_ASSERT_EQUAL(drive_detach(), 0);
	CU_ASSERT(!is_done_now(old));
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_PTR_NULL(bdev_nvme_fence_next(NULL, &info));
	end_paths(&u);
}

static bool copy_text(void *arg, const struct bdev_inflight *one)
{
	if (one->waits_for[0] != '\0') {
		snprintf(arg, BDEV_INFLIGHT_TEXT, "%s", one->waits_for);
	}
	return true;
}

static void inflight_text(struct user *u, char *text)
{
	bdev_for_each_inflight(bdev_find("Nvme0n1"), copy_text, text);
}

static void test_an_error_is_not_reported_before_the_fence(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct user u;

	a.fence_timeout_ms = 3000;
	a.ctrlr_loss_timeout_sec = 0; /* given up after one attempt */
	a.reconnect_delay_sec = 0;
	begin_paths(1, a, &u);
	seen.lands = true;
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	wait_begun(1);
	CU_ASSERT(request_wait(old));
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_EQUAL(old->status, NVME_ST(PATH, CTRL_PATH_ERROR));
	request_free(old);
	CU_ASSERT_EQUAL(t0->num_kept, 0); /* it has landed before */
	end_paths(&u);
}

static void test_a_bdev_that_is_removed_waits_for_what_is_held(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct user u;
	struct wait w = {0};

	a.fence_timeout_ms = 3000;
	begin_paths(1, a, &u);
	seen.lands = true;
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	wait_begun(1);
	bdev_nvme_detach(bdev_nvme_next(NULL), ended, &w);
	CU_ASSERT(request_wait(old));
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_NOT_EQUAL(old->status, 0);
	request_free(old);
	user_close(&u);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	end_paths(NULL);
}

static void test_an_abort_does_not_end_what_is_held(void)
{
	struct user u;

	struct request *old = held_write(&u, 3000, false);
	struct request *abort = request_new(&u);
	abort->io->type = BDEV_IO_ABORT;
	abort->io->abort.target = old->io;
	request_submit(abort);
	CU_ASSERT(request_wait(abort));
	CU_ASSERT_EQUAL(abort->cdw0, 1); /* not aborted */
	request_free(abort);
	CU_ASSERT(request_wait(old));
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_EQUAL(old->status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(t1->writes, 0);
	request_free(old);
	end_paths(&u);
}

/* The queue pair of the submitter is being ended. The lost controller may still carry the write out, so it has not
 * ended before its fence has. */
static void test_a_held_write_that_is_taken_back_ends_with_its_fence_and_goes_nowhere(void)
{
	struct user u;

	struct request *old = held_write(&u, 8000, false);
	request_take_back(old);
	CU_ASSERT(request_wait(old));
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_EQUAL(old->status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_FALSE(bdev_io_was_untouched(old->io));
	CU_ASSERT_EQUAL(t1->writes, 0);
	request_free(old);
	end_paths(&u);
}

static void test_a_bdev_reset_ends_after_the_fence(void)
{
	struct user u;

	struct request *old = held_write(&u, 3000, false);
	struct request *reset = request_new(&u);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	CU_ASSERT(request_wait(reset));
	CU_ASSERT_EQUAL(seen.ended >= 1, true);
	CU_ASSERT_EQUAL(reset->status, 0);
	request_free(reset);
	CU_ASSERT(request_wait(old));
	CU_ASSERT_EQUAL(old->status, NVME_ST(GENERIC, ABORT_REQ));
	CU_ASSERT_EQUAL(t1->writes, 0);
	request_free(old);
	end_paths(&u);
}

static void restore(struct fabric_target *t)
{
	fabric_lock();
	t->broken = t->refuses = false;
	fabric_unlock();
}

static void test_two_fences_of_one_controller_hold_their_own(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct user u;

	a.fence_timeout_ms = 4000;
	begin_paths(1, a, &u);
	seen.lands = true;
	struct request *first = kept_write(&u, t0, 5);
	cut(t0);
	wait_begun(1);
	restore(t0);
	wait_usable(1);
	t0->keeps = true;
	struct request *again = submit(&u, BDEV_IO_WRITE, old_data, 6);
	cut(t0);
	wait_begun(2);
	t0->keeps = false;
	restore(t0);
	CU_ASSERT(request_wait(first));
	CU_ASSERT_EQUAL(first->status, 0);
	CU_ASSERT(request_wait(again));
	CU_ASSERT_EQUAL(again->status, 0);
	CU_ASSERT_EQUAL(seen.ended, 2);
	request_free(first);
	request_free(again);
	end_paths(&u);
}

static bool is_ended(void *n)
{
	return seen.ended >= *(unsigned *)n;
}

static void test_a_bdev_reset_does_not_wait_for_connections_that_came_later(void)
{
	struct user u;
	unsigned one = 1;

	struct request *old = held_write(&u, LONG_MS, false);
	struct bdev_nvme *c = bdev_nvme_next(NULL);
	struct bdev_nvme_fence *first = bdev_nvme_fence_find(c->subsystem, bdev_nvme_fence_newest());
	struct request *reset = request_new(&u);
	reset->io->type = BDEV_IO_RESET;
	request_submit(reset);
	CU_ASSERT_TRUE_FATAL(fixture_poll(is_ended, &one)); /* the fence of target 1, which the reset has disabled */
	restore(t0);
	wait_usable(2);
	cut(t0);
	wait_begun(2);
	CU_ASSERT_FALSE(is_done_now(reset));
	CU_ASSERT_PTR_NOT_NULL_FATAL(first);
	bdev_nvme_fence_end(first, BDEV_NVME_FENCE_END_TIME); /* that of the second connection goes on */
	CU_ASSERT(request_wait(reset));
	CU_ASSERT_EQUAL(reset->status, 0);
	CU_ASSERT_EQUAL(seen.ended, 2);
	request_free(reset);
	CU_ASSERT(request_wait(old));
	request_free(old);
	restore(t0);
	end_paths(&u);
}

static struct nvme_cqe raw_cqe;

static void raw_ended(void *wait, int rc, const struct nvme_cqe *cqe)
{
	*(struct wait *)wait = (struct wait){.done = true, .rc = rc};
	raw_cqe = cqe != NULL ? *cqe : (struct nvme_cqe){0};
}

static bool are_two_kept(void *target)
{
	unsigned n;

	fabric_lock();
	n = ((struct fabric_target *)target)->num_kept;
	fabric_unlock();
	return n == 2;
}

static void test_commands_that_are_not_repeated_fail_after_the_fence(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct iovec iovs[2] = {{other, 512}, {old_data, 512}};
	struct wait raw = {0}, admin = {0}, log = {0};
	struct bdev_nvme_raw cmd = {.cmd = {.opcode = nvme_cmd_write, .nsid = htole32(1), .cdw10 = htole32(6)},
				    .io = true,
				    .to_device = true,
				    .data = buffer,
				    .data_len = 512};
	struct user u;

	a.fence_timeout_ms = 3000;
	begin_paths(2, a, &u);
	iovs[1].iov_base = old_data;
	seen.lands = true;
	t0->keeps = true;
	struct request *r = request_new(&u);
	bdev_io_set_rw(r->io, BDEV_IO_COMPARE_AND_WRITE, &iovs[1], 1, 5, 1);
	r->io->compare.iovs = &iovs[0];
	r->io->compare.iovcnt = 1;
	request_submit(r);
	CU_ASSERT_FATAL(fixture_poll(are_kept, t0));
	bdev_nvme_send(bdev_nvme_next(NULL), &cmd, raw_ended, &raw);
	CU_ASSERT_FATAL(fixture_poll(are_two_kept, t0));
	fabric_lock();
	t0->mute = true;
	fabric_unlock();
	cmd = (struct bdev_nvme_raw){.cmd = {.opcode = nvme_admin_format_nvm, .nsid = htole32(1)}};
	bdev_nvme_send(bdev_nvme_next(NULL), &cmd, raw_ended, &admin);
	cmd = (struct bdev_nvme_raw){.cmd = {.opcode = nvme_admin_get_features, .cdw10 = htole32(7)}};
	bdev_nvme_send(bdev_nvme_next(NULL), &cmd, raw_ended, &log);
	cut(t0);
	wait_begun(1);
	CU_ASSERT(thread_control_wait(is_done, &log, WAIT_US));
	CU_ASSERT(request_wait(r));
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_EQUAL(r->status, NVME_ST(PATH, CTRL_PATH_ERROR));
	CU_ASSERT(thread_control_wait(is_done, &raw, WAIT_US));
	CU_ASSERT(thread_control_wait(is_done, &admin, WAIT_US));
	CU_ASSERT_NOT_EQUAL(nvme_cqe_status(&raw_cqe), 0);
	CU_ASSERT_EQUAL(t1->writes, 0);
	request_free(r);
	t0->keeps = t0->mute = false;
	end_paths(&u);
}

/* The reset is answered when the controller is connected again: its successor is another controller. */
static void test_a_reset_while_a_fence_waits_does_not_end_it(void)
{
	struct user u;
	struct wait w;

	struct request *old = held_write(&u, 3000, true);
	reset_first(&w);
	restore(t0);
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	wait_usable(2);
	CU_ASSERT(!is_done_now(old));
	reset_first(&w); /* and of the successor, which has no commands */
	CU_ASSERT(thread_control_wait(is_done, &w, WAIT_US));
	CU_ASSERT_EQUAL(w.rc, 0);
	CU_ASSERT(!is_done_now(old));
	CU_ASSERT_EQUAL(seen.ended, 1); /* of the successor */
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(seen.ended, 2);
	CU_ASSERT_EQUAL(seen.writes_before_end, 0);
	end_paths(&u);
}

static void test_a_controller_that_answers_no_keep_alive_is_disabled_first(void)
{
	struct bdev_nvme_options o;
	struct user u;

	fence_begin();
	bdev_nvme_default_options(&o);
	o.keep_alive_timeout_ms = 400;
	CU_ASSERT_EQUAL(bdev_nvme_set_options(&o, last_error), 0);
	attach_target(0, target_opts(0));
	attach_target(1, target_opts(1));
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(2);
	struct request *old = kept_write(&u, t0, 5);
	fabric_lock();
	t0->deaf = true;
	fabric_unlock();
	expect_no_old_write_lands(&u, old);
	CU_ASSERT(t0->disabled >= 1);
	CU_ASSERT_EQUAL(seen.begun, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(seen.last, "disabled"));
	end_paths(&u);
}

static bool is_module_idle(void *unused)
{
	return bdev_nvme_is_idle();
}

/* The last test: nothing can be attached afterwards. */
static void test_the_end_of_the_process_waits_for_what_is_held(void)
{
	struct user u;

	struct request *old = held_write(&u, 3000, true);
	bdev_nvme_stop();
	CU_ASSERT(!is_done_now(old));
	CU_ASSERT(request_wait(old));
	CU_ASSERT_EQUAL(seen.ended, 1);
	CU_ASSERT_EQUAL(t0->num_kept, 0); /* it has landed before */
	request_free(old);
	user_close(&u);
	CU_ASSERT(thread_control_wait(is_module_idle, NULL, WAIT_US));
	bdev_nvme_observe_fences(NULL);
}

/* --- Tests: Cross-Controller Reset --- */

static void begin_with_helpers(unsigned n, struct user *u)
{
	struct bdev_nvme_attach a = target_opts(0);

	fence_begin();
	for (unsigned i = 0; i < n; i++) {
		fabric_targets[i].has_ccr = true;
		attach_target(i, a);
	}
	CU_ASSERT_EQUAL_FATAL(user_open(u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(n);
}

static bool is_asked(void *target)
{
	return ((struct fabric_target *)target)->ccr_requests != 0;
}

static void test_another_controller_resets_the_lost_one_at_once(void)
{
	struct user u;

	begin_with_helpers(2, &u);
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(t1->ccr_requests, 1);
	CU_ASSERT_EQUAL(seen.writes_before_end, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(seen.last, "has reset it"));
	end_paths(&u);
}

static void expect_reset_that_takes_time(bool notice)
{
	struct user u;

	begin_with_helpers(2, &u);
	t1->ccr_answer = 1;
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	CU_ASSERT_FATAL(fixture_poll(is_asked, t1));
	CU_ASSERT_EQUAL(t1->notices_asked, true);
	CU_ASSERT_EQUAL(t1->writes, 0);
	fabric_ccr_end(t1, true, notice);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(seen.writes_before_end, 0);
	end_paths(&u);
}

static void test_a_reset_that_takes_time_ends_by_a_notice(void)
{
	expect_reset_that_takes_time(true);
}

static void test_a_reset_that_takes_time_is_looked_for(void)
{
	expect_reset_that_takes_time(false);
}

static bool is_looked_for(void *target)
{
	bool looked;

	fabric_lock();
	looked = ((struct fabric_target *)target)->ccr_looks >= 2;
	fabric_unlock();
	return looked;
}

/* The log page names a controller by numbers that are used again. */
static void test_an_old_entry_of_the_log_does_not_end_a_fence(void)
{
	struct user u;

	begin_with_helpers(2, &u);
	t1->ccr_answer = 1;
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	CU_ASSERT_FATAL(fixture_poll(is_asked, t1));
	fabric_lock();
	t1->ccr[t1->num_ccr] = t1->ccr[0];
	t1->ccr[t1->num_ccr++].state = 1;
	t1->ccr_looks = 0;
	fabric_unlock();
	CU_ASSERT(fixture_poll(is_looked_for, t1));
	CU_ASSERT_EQUAL(seen.ended, 0);
	CU_ASSERT(!is_done_now(old));
	fabric_ccr_end(t1, true, true);
	expect_no_old_write_lands(&u, old);
	end_paths(&u);
}

static void test_a_reset_that_fails_is_tried_by_the_next_controller(void)
{
	struct user u;

	begin_with_helpers(3, &u);
	t1->ccr_answer = 1;
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	CU_ASSERT_FATAL(fixture_poll(is_asked, t1));
	fabric_ccr_end(t1, false, true);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(t1->ccr_requests, 1);
	CU_ASSERT_EQUAL(fabric_targets[2].ccr_requests, 1);
	end_paths(&u);
}

static void test_a_controller_that_refuses_to_reset_is_not_asked_twice(void)
{
	struct bdev_nvme_fence_info info;
	struct user u;

	begin_with_helpers(2, &u);
	t1->ccr_answer = NVME_ST_DNR(GENERIC, INVALID_FIELD);
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	CU_ASSERT_FATAL(fixture_poll(is_asked, t1));
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_WRITE, new_data, 9, 1), 0); /* others go on meanwhile */
	CU_ASSERT_PTR_NOT_NULL(bdev_nvme_fence_next(NULL, &info));
	CU_ASSERT(!is_done_now(old));
	restore(t0); /* connected again, it can reset its predecessor */
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(t1->ccr_requests, 1);
	CU_ASSERT_EQUAL(t0->ccr_requests, 1);
	end_paths(&u);
}

static void test_a_busy_controller_is_asked_again(void)
{
	struct user u;

	begin_with_helpers(2, &u);
	t1->ccr_answer = NVME_ST(CMD_SPECIFIC, CROSS_CTRL_RESET_LIMIT);
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	CU_ASSERT_FATAL(fixture_poll(is_asked, t1));
	t1->ccr_answer = 0;
	expect_no_old_write_lands(&u, old);
	CU_ASSERT(t1->ccr_requests >= 2);
	end_paths(&u);
}

static void test_a_helper_that_is_lost_too_is_replaced(void)
{
	struct user u;

	begin_with_helpers(3, &u);
	t1->ccr_answer = 1;
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	CU_ASSERT_FATAL(fixture_poll(is_asked, t1));
	struct request *also = kept_write(&u, t1, 6);
	cut(t1);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT(request_wait(also));
	CU_ASSERT_EQUAL(also->status, 0);
	request_free(also);
	CU_ASSERT_EQUAL(fabric_targets[2].ccr_requests, 2);
	CU_ASSERT_EQUAL(seen.ended, 2);
	end_paths(&u);
}

static void test_a_helper_that_is_silent_is_outwaited(void)
{
	struct bdev_nvme_attach a = target_opts(0);
	struct user u;

	fence_begin();
	a.fence_timeout_ms = 1000;
	for (unsigned i = 0; i < 2; i++) {
		fabric_targets[i].has_ccr = true;
		attach_target(i, a);
	}
	CU_ASSERT_EQUAL_FATAL(user_open(&u, "Nvme0n1", true, fixture_thread(0)), 0);
	wait_usable(2);
	seen.lands = true;
	t1->ccr_answer = 1;
	struct request *old = kept_write(&u, t0, 5);
	cut(t0);
	expect_no_old_write_lands(&u, old);
	CU_ASSERT_EQUAL(t1->ccr_requests, 1);
	CU_ASSERT_EQUAL(seen.writes_before_end, 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(seen.last, "has passed"));
	fabric_ccr_end(t1, true, true); /* has no effect any more */
	CU_ASSERT_EQUAL(user_io(&u, BDEV_IO_READ, other, 5, 1), 0);
	end_paths(&u);
}

static int setup(void)
{
	int rc = drive_setup();

	fabric_register();
	return rc;
}

static const struct unit_test tests[] = {
	UNIT(test_a_write_waits_until_time_has_passed_and_reads_do_not),
	UNIT(test_without_a_fence_old_writes_land_behind_new_ones),
	UNIT(test_the_time_is_the_standards),
	UNIT(test_options_that_make_no_sense_are_refused),
	UNIT(test_a_reset_disables_first),
	UNIT(test_a_reset_with_one_path_disables_first),
	UNIT(test_commands_that_are_lost_while_the_controller_is_disabled_are_not_forgotten),
	UNIT(test_a_controller_that_does_not_become_disabled_is_outwaited),
	UNIT(test_a_controller_that_does_not_answer_is_outwaited),
	UNIT(test_a_detach_disables_what_has_commands),
	UNIT(test_a_fence_outlives_its_controller),
	UNIT(test_an_error_is_not_reported_before_the_fence),
	UNIT(test_a_bdev_that_is_removed_waits_for_what_is_held),
	UNIT(test_an_abort_does_not_end_what_is_held),
	UNIT(test_a_held_write_that_is_taken_back_ends_with_its_fence_and_goes_nowhere),
	UNIT(test_a_bdev_reset_ends_after_the_fence),
	UNIT(test_two_fences_of_one_controller_hold_their_own),
	UNIT(test_a_bdev_reset_does_not_wait_for_connections_that_came_later),
	UNIT(test_commands_that_are_not_repeated_fail_after_the_fence),
	UNIT(test_a_reset_while_a_fence_waits_does_not_end_it),
	UNIT(test_a_controller_that_answers_no_keep_alive_is_disabled_first),
	UNIT(test_another_controller_resets_the_lost_one_at_once),
	UNIT(test_a_reset_that_takes_time_ends_by_a_notice),
	UNIT(test_a_reset_that_takes_time_is_looked_for),
	UNIT(test_an_old_entry_of_the_log_does_not_end_a_fence),
	UNIT(test_a_reset_that_fails_is_tried_by_the_next_controller),
	UNIT(test_a_controller_that_refuses_to_reset_is_not_asked_twice),
	UNIT(test_a_busy_controller_is_asked_again),
	UNIT(test_a_helper_that_is_lost_too_is_replaced),
	UNIT(test_a_helper_that_is_silent_is_outwaited),
	UNIT(test_the_end_of_the_process_waits_for_what_is_held),
	UNIT_END,
};
UNIT_MAIN("bdev_nvme_fence", tests, setup, drive_teardown)
