/* SPDX-License-Identifier: BSD-3-Clause */
/* The file: its layout as a stock reader wants it, its life, and what happens when it cannot be. */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <rte_memzone.h>

#include "trace/trace_def.h"
#include "unittest/trace/fixture.h"
#include "util/build_id.h"

static uint8_t *file;
static size_t file_size;

static void look(const char *path)
{
	file = fixture_read(path, &file_size);
}

static void done(void)
{
	free(file);
	file = NULL;
	fixture_stop();
}

static uint16_t count_of(unsigned section)
{
	return ((const struct trace_file_table *)fixture_section(file, section))->count;
}

static void test_sections_are_where_a_stock_reader_looks(void)
{
	fixture_start(64);
	look(trace_file_path());
	const struct trace_file_header *h = (const void *)file;
	CU_ASSERT_EQUAL(h->file_size, file_size);
	CU_ASSERT_EQUAL(h->num_sections, 11);
	CU_ASSERT_EQUAL(h->section_offset[TRACE_SECTION_CAUSE], 0);
	const struct trace_file_main *m = fixture_section(file, TRACE_SECTION_MAIN);
	CU_ASSERT(m->tsc_rate >= 10000000);
	CU_ASSERT_EQUAL(m->clear_tsc, 0);
	const struct trace_file_owner_section *o = fixture_section(file, TRACE_SECTION_OWNER);
	CU_ASSERT_EQUAL(o->num_owners, 16384);
	CU_ASSERT_EQUAL(o->description_size, 119);
	CU_ASSERT_EQUAL(count_of(TRACE_SECTION_TPOINT_MASK), 20);
	CU_ASSERT_EQUAL(count_of(TRACE_SECTION_OWNER_TYPE), 256);
	CU_ASSERT_EQUAL(count_of(TRACE_SECTION_OBJECT), 256);
	CU_ASSERT_EQUAL(count_of(TRACE_SECTION_TPOINT), 1280);
	CU_ASSERT_EQUAL(count_of(TRACE_SECTION_LCORE_OFFSETS), 5);
	CU_ASSERT_EQUAL(count_of(TRACE_SECTION_STAMPS), 5);
	const struct trace_file_history *ring = fixture_history(file, 2);
	CU_ASSERT_EQUAL(ring->lcore, 2);
	CU_ASSERT_EQUAL(ring->num_entries, 64);
	CU_ASSERT_EQUAL(ring->num_tpoint_ids, 1280);
	CU_ASSERT_STRING_EQUAL(fixture_history(file, 0)->tname, "reactor_0");
	done();
}

static void test_sections_do_not_overlap_and_stamps_come_last(void)
{
	fixture_start(64);
	look(trace_file_path());
	const struct trace_file_header *h = (const void *)file;
	uint64_t last_entry = 0, first_stamp = UINT64_MAX, last_stamp = 0;
	for (unsigned i = 0; i < 5; i++) {
		const struct trace_file_history *ring = fixture_history(file, i);
		if (ring == NULL) {
			continue;
		}
		uint64_t end = (uint64_t)((const uint8_t *)&ring->entries[64] - file);
		uint64_t stamps = (uint64_t)((const uint8_t *)fixture_stamps(file, i) - file);
		CU_ASSERT_EQUAL((uintptr_t)((const uint8_t *)ring->entries - file) % 64, 0);
		CU_ASSERT_EQUAL(stamps % 64, 0);
		last_entry = end > last_entry ? end : last_entry;
		first_stamp = stamps < first_stamp ? stamps : first_stamp;
		last_stamp = stamps + 64 * 8 > last_stamp ? stamps + 64 * 8 : last_stamp;
		for (unsigned s = 0; s < TRACE_NUM_SECTIONS; s++) {
			CU_ASSERT(h->section_offset[s] < (uint64_t)((const uint8_t *)ring - file));
		}
	}
	CU_ASSERT(first_stamp >= last_entry + TRACE_FILE_GAP);
	CU_ASSERT(file_size >= last_stamp + TRACE_FILE_GAP);
	for (unsigned a = 0; a < TRACE_NUM_SECTIONS; a++) {
		for (unsigned b = 0; b < TRACE_NUM_SECTIONS; b++) {
			CU_ASSERT(a == b || h->section_offset[a] != h->section_offset[b]);
		}
	}
	done();
}

static void test_tables_hold_what_was_declared(void)
{
	fixture_start(64);
	look(trace_file_path());
	const struct trace_file_tpoint *t =
		(const void *)((const struct trace_file_table *)fixture_section(file, TRACE_SECTION_TPOINT) + 1);
	for (unsigned id = 0; id < TRACE_NUM_TPOINTS; id++) {
		const struct trace_tpoint_info *info = trace_tpoint_info(id);
		CU_ASSERT_STRING_EQUAL(t[id].name, info != NULL ? info->def.name : "");
	}
	CU_ASSERT_EQUAL(t[TRACE_TPOINT_BDEV_IO_START].related[0].object_type, 0x40);
	CU_ASSERT_EQUAL(t[TRACE_TPOINT_BDEV_IO_START].related[0].arg_index, 1);
	CU_ASSERT_EQUAL(t[TRACE_TPOINT_BDEV_IO_DONE].related[0].arg_index, 0);
	CU_ASSERT_EQUAL(t[TRACE_TPOINT_NVME_PCIE_COMPLETE].related[0].object_type, 5);
	const struct trace_file_type *owner =
		(const void *)((const struct trace_file_table *)fixture_section(file, TRACE_SECTION_OWNER_TYPE) + 1);
	CU_ASSERT_EQUAL(owner[2].type, 2);
	CU_ASSERT_EQUAL(owner[2].id_prefix, 'b');
	CU_ASSERT_EQUAL(owner[1].type, 0);
	const struct trace_file_type *object =
		(const void *)((const struct trace_file_table *)fixture_section(file, TRACE_SECTION_OBJECT) + 1);
	CU_ASSERT_EQUAL(object[0x40].type, 0x40);
	CU_ASSERT_EQUAL(object[0x40].id_prefix, 'r');
	done();
}

static void test_info_says_whose_trace_it_is(void)
{
	fixture_start(64);
	look(trace_file_path());
	const struct trace_file_info *i = fixture_section(file, TRACE_SECTION_INFO);
	CU_ASSERT_EQUAL(i->version, TRACE_INFO_VERSION);
	CU_ASSERT_EQUAL(i->state, TRACE_INFO_RECORDING);
	CU_ASSERT_EQUAL(i->pid, (uint32_t)getpid());
	CU_ASSERT(i->start_time_ticks != 0);
	CU_ASSERT_EQUAL(strlen(i->boot_id), 36);
	CU_ASSERT_STRING_EQUAL(i->app_name, "unit");
	CU_ASSERT_STRING_EQUAL(i->app_version, "1.2.3");
	CU_ASSERT_STRING_EQUAL(i->build_id, build_id());
	CU_ASSERT_EQUAL(i->num_reactors, 2);
	CU_ASSERT_EQUAL(i->num_user_slots, 2);
	CU_ASSERT(i->start.tsc != 0 && i->start.realtime_ns > i->start.monotonic_ns);
	done();
}

static void test_clock_triples_go_round(void)
{
	fixture_start(64);
	for (unsigned n = 0; n < TRACE_INFO_NUM_CLOCKS + 3; n++) {
		trace_clock_refresh();
	}
	look(trace_file_path());
	const struct trace_file_info *i = fixture_section(file, TRACE_SECTION_INFO);
	CU_ASSERT_EQUAL(i->next_clock, TRACE_INFO_NUM_CLOCKS + 3);
	CU_ASSERT(i->clock[2].tsc > i->clock[1].tsc);
	CU_ASSERT(i->clock[2].tsc > i->clock[3].tsc);
	CU_ASSERT(i->clock[2].monotonic_ns > i->clock[3].monotonic_ns);
	CU_ASSERT(i->clock[3].tsc > i->start.tsc);
	done();
}

static void test_crash_is_noted(void)
{
	fixture_start(64);
	const struct trace_crash crash = {.signal = SIGSEGV,
					  .code = SEGV_MAPERR,
					  .address = (void *)0x1234,
					  .thread = "reactor_0_with_a_long_name",
					  .sender = 7};
	trace_note_crash(&crash);
	look(trace_file_path());
	const struct trace_file_info *i = fixture_section(file, TRACE_SECTION_INFO);
	CU_ASSERT_EQUAL(i->state, TRACE_INFO_CRASHED);
	CU_ASSERT_EQUAL(i->crash_signal, SIGSEGV);
	CU_ASSERT_EQUAL(i->crash_address, 0x1234);
	CU_ASSERT_EQUAL(i->crash_tid, (uint32_t)gettid());
	CU_ASSERT_STRING_EQUAL(i->crash_thread, "reactor_0_with_");
	CU_ASSERT(i->crash_tsc > i->start.tsc);
	CU_ASSERT_EQUAL(i->crash_tsc, i->end.tsc);
	CU_ASSERT_EQUAL(i->crash_flags, TRACE_INFO_CRASH_CODE);
	CU_ASSERT_EQUAL(i->crash_code, SEGV_MAPERR);
	CU_ASSERT_EQUAL(i->crash_sender, 0);
	done();
}

static void test_the_sender_of_a_signal_is_noted(void)
{
	fixture_start(64);
	const struct trace_crash crash = {.signal = SIGABRT,
					  .code = SI_USER,
					  .thread = "t",
					  .sent = true,
					  .sender = 4711,
					  .sender_uid = 1000,
					  .sender_name = "a_name_that_is_longer"};
	trace_note_crash(&crash);
	look(trace_file_path());
	const struct trace_file_info *i = fixture_section(file, TRACE_SECTION_INFO);
	CU_ASSERT_EQUAL(i->crash_flags, TRACE_INFO_CRASH_CODE | TRACE_INFO_CRASH_SENT);
	CU_ASSERT_EQUAL(i->crash_code, SI_USER);
	CU_ASSERT_EQUAL(i->crash_address, 0);
	CU_ASSERT_EQUAL(i->crash_sender, 4711);
	CU_ASSERT_EQUAL(i->crash_sender_uid, 1000);
	CU_ASSERT_STRING_EQUAL(i->crash_sender_name, "a_name_that_is_");
	done();
}

static void test_memzone_is_the_file(void)
{
	fixture_start(64);
	TRACE(TEST_NONE, 0, 0, 0);
	const struct rte_memzone *mz = rte_memzone_lookup("unit_trace");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mz);
	look(trace_file_path());
	CU_ASSERT_EQUAL(mz->len, file_size);
	CU_ASSERT_EQUAL(memcmp(mz->addr, file, file_size), 0);
	done();
}

static void test_file_is_removed_if_nothing_was_recorded(void)
{
	char path[4096];

	fixture_start(64);
	snprintf(path, sizeof(path), "%s", trace_file_path());
	CU_ASSERT_EQUAL(access(path, F_OK), 0);
	trace_stop();
	CU_ASSERT_EQUAL(access(path, F_OK), -1);
	CU_ASSERT_PTR_NULL(rte_memzone_lookup("unit_trace"));
	CU_ASSERT_PTR_NULL(trace_file_path());
}

static void test_file_with_events_stays_whole_after_the_stop(void)
{
	char path[4096];

	fixture_start(64);
	snprintf(path, sizeof(path), "%s", trace_file_path());
	TRACE(TEST_ONE, 0, 0, 1, 0x5555);
	trace_stop();
	look(path);
	CU_ASSERT_EQUAL(fixture_history(file, 0)->next_entry, 1);
	CU_ASSERT_EQUAL(fixture_history(file, 0)->entries[0].args[0], 0x55);
	const struct trace_file_info *i = fixture_section(file, TRACE_SECTION_INFO);
	CU_ASSERT_EQUAL(i->state, TRACE_INFO_STOPPED);
	CU_ASSERT(i->end.tsc > i->start.tsc);
	int fd = open(path, O_RDWR);
	CU_ASSERT_EQUAL(flock(fd, LOCK_EX | LOCK_NB), 0);
	close(fd);
	unlink(path);
	done();
}

static void test_lock_is_held_while_recording(void)
{
	fixture_start(64);
	int fd = open(trace_file_path(), O_RDWR);
	CU_ASSERT_EQUAL(flock(fd, LOCK_SH | LOCK_NB), -1);
	close(fd);
	fixture_stop();
}

static void test_stopped_recorder_records_nothing(void)
{
	fixture_start(64);
	fixture_stop();
	TRACE(TEST_NONE, 0, 0, 0);
	CU_ASSERT_FALSE(TRACE_ENABLED(TEST_NONE));
	CU_ASSERT_EQUAL(trace_set_tpoints(TRACE_GROUP_TEST, 1), -ENODEV);
	CU_ASSERT_EQUAL(trace_clear(), -ENODEV);
	CU_ASSERT_EQUAL(trace_owner_register(TRACE_OWNER_BDEV, "b"), 0);
	CU_ASSERT_EQUAL(trace_register_user_thread("t"), 0);
	trace_owner_release(1);
	trace_owner_update(1, "x");
	trace_clock_refresh();
	trace_note_crash(&(struct trace_crash){.signal = 1, .thread = "t"});
	trace_thread_detach();
	trace_stop();
}

static void test_zero_entries_means_no_file(void)
{
	struct trace_opts opts = fixture_opts(0);
	char error[TRACE_ERROR_MAX] = "";

	CU_ASSERT_EQUAL(trace_start(&opts, error), 0);
	CU_ASSERT_FALSE(trace_is_on());
	CU_ASSERT_PTR_NULL(trace_file_path());
	CU_ASSERT_EQUAL(trace_num_slots(), 0);
}

static int start_with(struct trace_opts opts, char *error)
{
	int rc = trace_start(&opts, error);
	if (rc == 0) {
		fixture_stop();
	}
	return rc;
}

static void test_bad_options_are_rejected_with_their_value(void)
{
	struct trace_opts o;
	char error[TRACE_ERROR_MAX];

	CU_ASSERT_EQUAL(start_with(fixture_opts(1000), error), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "1000"));
	CU_ASSERT_EQUAL(start_with(fixture_opts(32), error), -EINVAL);
	CU_ASSERT_EQUAL(start_with(fixture_opts(1u << 25), error), -EINVAL);
	o = fixture_opts(64);
	o.name = "a/b";
	CU_ASSERT_EQUAL(start_with(o, error), -EINVAL);
	o.name = "";
	CU_ASSERT_EQUAL(start_with(o, error), -EINVAL);
	o = fixture_opts(64);
	o.num_user_threads = 257;
	CU_ASSERT_EQUAL(start_with(o, error), -EINVAL);
	o = fixture_opts(64);
	o.num_user_entries = 65;
	CU_ASSERT_EQUAL(start_with(o, error), -EINVAL);
	o = fixture_opts(64);
	o.group = "no such group";
	CU_ASSERT_EQUAL(start_with(o, error), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "no such group"));
	o = fixture_opts(64);
	o.dir = "/nowhere";
	CU_ASSERT_EQUAL(start_with(o, error), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "/nowhere/unit_trace.pid"));
}

static mode_t mode_of(const char *path)
{
	struct stat st = {0};

	stat(path, &st);
	return st.st_mode & 0777;
}

static void test_only_the_owner_reads_it_or_a_named_group(void)
{
	struct trace_opts opts = fixture_opts(64);
	char error[TRACE_ERROR_MAX];
	struct group *g = getgrgid(getgid());

	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	CU_ASSERT_EQUAL(mode_of(trace_file_path()), 0600);
	fixture_stop();
	CU_ASSERT_PTR_NOT_NULL_FATAL(g);
	opts.group = g->gr_name;
	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	CU_ASSERT_EQUAL(mode_of(trace_file_path()), 0640);
	fixture_stop();
}

static void test_second_start_is_refused(void)
{
	struct trace_opts opts = fixture_opts(64);
	char error[TRACE_ERROR_MAX];

	fixture_start(64);
	CU_ASSERT_EQUAL(trace_start(&opts, error), -EALREADY);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, trace_file_path()));
	fixture_stop();
}

static void test_user_rings_may_be_smaller(void)
{
	struct trace_opts opts = fixture_opts(256);
	char error[TRACE_ERROR_MAX];

	opts.num_user_entries = 64;
	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	look(trace_file_path());
	CU_ASSERT_EQUAL(fixture_history(file, 0)->num_entries, 256);
	CU_ASSERT_EQUAL(fixture_history(file, 3)->num_entries, 64);
	done();
}

static void test_instance_id_names_the_file(void)
{
	struct trace_opts opts = fixture_opts(64);
	char error[TRACE_ERROR_MAX];

	opts.instance_id = 7;
	CU_ASSERT_EQUAL_FATAL(trace_start(&opts, error), 0);
	CU_ASSERT_STRING_EQUAL(strrchr(trace_file_path(), '/'), "/unit_trace.7");
	fixture_stop();
}

static void test_file_of_a_dead_process_is_kept_aside(void)
{
	struct trace_opts opts = fixture_opts(64);
	char error[TRACE_ERROR_MAX], path[4096], old[4200];
	FILE *f;

	opts.instance_id = 8;
	snprintf(path, sizeof(path), "%s/unit_trace.8", fixture_dir);
	snprintf(old, sizeof(old), "%s.old", path);
	f = fopen(path, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs("a trace of before", f);
	fclose(f);
	CU_ASSERT_EQUAL(trace_start(&opts, error), 0);
	look(old);
	CU_ASSERT_EQUAL(file_size, strlen("a trace of before"));
	unlink(old);
	done();
}

static void test_file_of_a_live_process_is_left_alone(void)
{
	struct trace_opts opts = fixture_opts(64);
	char error[TRACE_ERROR_MAX], path[4096];

	opts.instance_id = 9;
	snprintf(path, sizeof(path), "%s/unit_trace.9", fixture_dir);
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	CU_ASSERT_EQUAL(flock(fd, LOCK_EX), 0);
	CU_ASSERT_EQUAL(trace_start(&opts, error), -EEXIST);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "still runs"));
	CU_ASSERT_EQUAL(access(path, F_OK), 0);
	close(fd);
	unlink(path);
}

static void test_symbolic_link_in_its_place_is_not_followed(void)
{
	struct trace_opts opts = fixture_opts(64);
	char error[TRACE_ERROR_MAX], path[4096], target[4096];

	opts.instance_id = 10;
	snprintf(path, sizeof(path), "%s/unit_trace.10", fixture_dir);
	snprintf(target, sizeof(target), "%s/target", fixture_dir);
	int fd = open(target, O_CREAT | O_RDWR, 0600);
	close(fd);
	CU_ASSERT_EQUAL(symlink(target, path), 0);
	CU_ASSERT_EQUAL(trace_start(&opts, error), -ELOOP);
	unlink(path);
	unlink(target);
}

static void test_full_file_system_is_an_error_that_says_what_to_do(void)
{
	struct trace_opts opts = fixture_opts(1u << 16);
	char error[TRACE_ERROR_MAX] = "", dir[4096];

	snprintf(dir, sizeof(dir), "%s/small", fixture_dir);
	mkdir(dir, 0700);
	if (mount("tmpfs", dir, "tmpfs", 0, "size=1m") != 0) {
		rmdir(dir);
		UNIT_SKIP("a file system cannot be mounted here");
	}
	opts.dir = dir;
	CU_ASSERT_EQUAL(trace_start(&opts, error), -ENOSPC);
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "KiB are free"));
	CU_ASSERT_PTR_NOT_NULL(strstr(error, "--num-trace-entries"));
	CU_ASSERT_FALSE(trace_is_on());
	CU_ASSERT_EQUAL(umount(dir), 0);
	CU_ASSERT_EQUAL(rmdir(dir), 0);
}

static void test_forked_child_does_not_write_into_it(void)
{
	fixture_start(64);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		TRACE(TEST_NONE, 0, 0, 0);
		_exit(TRACE_ENABLED(TEST_NONE) || trace_is_on());
	}
	int status = -1;
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT_EQUAL(status, 0);
	look(trace_file_path());
	CU_ASSERT_EQUAL(fixture_history(file, 0)->next_entry, 0);
	done();
}

static const struct unit_test tests[] = {
	UNIT(test_sections_are_where_a_stock_reader_looks),
	UNIT(test_sections_do_not_overlap_and_stamps_come_last),
	UNIT(test_tables_hold_what_was_declared),
	UNIT(test_info_says_whose_trace_it_is),
	UNIT(test_clock_triples_go_round),
	UNIT(test_crash_is_noted),
	UNIT(test_the_sender_of_a_signal_is_noted),
	UNIT(test_memzone_is_the_file),
	UNIT(test_file_is_removed_if_nothing_was_recorded),
	UNIT(test_file_with_events_stays_whole_after_the_stop),
	UNIT(test_lock_is_held_while_recording),
	UNIT(test_stopped_recorder_records_nothing),
	UNIT(test_zero_entries_means_no_file),
	UNIT(test_bad_options_are_rejected_with_their_value),
	UNIT(test_only_the_owner_reads_it_or_a_named_group),
	UNIT(test_second_start_is_refused),
	UNIT(test_user_rings_may_be_smaller),
	UNIT(test_instance_id_names_the_file),
	UNIT(test_file_of_a_dead_process_is_kept_aside),
	UNIT(test_file_of_a_live_process_is_left_alone),
	UNIT(test_symbolic_link_in_its_place_is_not_followed),
	UNIT(test_full_file_system_is_an_error_that_says_what_to_do),
	UNIT(test_forked_child_does_not_write_into_it),
	UNIT_END,
};
UNIT_MAIN("trace_file", tests, fixture_setup, fixture_teardown)
