/* SPDX-License-Identifier: BSD-3-Clause */
/* The file's INFO section: which process wrote it, and readings of its clocks. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "trace/trace_internal.h"
#include "util/build_id.h"

/* At most size - 1 bytes of a small file, NUL-terminated; an empty string if it cannot be read. */
static void info_read_file(const char *path, char *to, size_t size)
{
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		n = read(fd, to, size - 1);
		close(fd);
	}
	to[n > 0 ? n : 0] = '\0';
}

/* Field 22 of /proc/self/stat; field 2, the name, may contain anything, so count from its closing bracket. */
static uint64_t process_start_time(void)
{
	char stat[1024], *p;

	info_read_file("/proc/self/stat", stat, sizeof(stat));
	p = strrchr(stat, ')');
	for (int field = 2; p != NULL && field < 22; field++) {
		p = strchr(p + 1, ' ');
	}
	return p != NULL ? strtoull(p, NULL, 10) : 0;
}

static uint64_t info_clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct trace_file_clock trace_clock_read(void)
{
	struct trace_file_clock best = {0};
	uint64_t best_gap = UINT64_MAX;

	/* Uses the attempt that was disturbed least; the tsc is the middle of it. */
	for (int i = 0; i < 8; i++) {
		struct trace_file_clock c;
		uint64_t before = ticks_now();
		c.realtime_ns = info_clock_ns(CLOCK_REALTIME);
		c.monotonic_ns = info_clock_ns(CLOCK_MONOTONIC);
		uint64_t gap = ticks_now() - before;
		c.tsc = before + gap / 2;
		if (gap < best_gap) {
			best_gap = gap;
			best = c;
		}
	}
	return best;
}

void trace_info_init(struct trace_file_info *info, const struct trace_opts *opts)
{
	info->version = TRACE_INFO_VERSION;
	info->num_clocks = TRACE_INFO_NUM_CLOCKS;
	info->pid = (uint32_t)getpid();
	info->start_time_ticks = process_start_time();
	info_read_file("/proc/sys/kernel/random/boot_id", info->boot_id, sizeof(info->boot_id));
	info->boot_id[strcspn(info->boot_id, "\n")] = '\0';
	snprintf(info->app_name, sizeof(info->app_name), "%s", opts->name);
	snprintf(info->app_version, sizeof(info->app_version), "%s", opts->version != NULL ? opts->version : "");
	snprintf(info->build_id, sizeof(info->build_id), "%s", build_id());
#ifdef __x86_64__
	info->flags |= TRACE_INFO_TSO;
#endif
	info->start = trace_clock_read();
	info->state = TRACE_INFO_RECORDING;
}

void trace_clock_refresh(void)
{
	pthread_mutex_lock(&trace_lock);
	if (trace_state.on) {
		struct trace_file_info *info = trace_state.info;
		struct trace_file_clock *to = &info->clock[info->next_clock % TRACE_INFO_NUM_CLOCKS];
		struct trace_file_clock now = trace_clock_read();
		__atomic_store_n(&to->tsc, 0, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_RELEASE);
		to->realtime_ns = now.realtime_ns;
		to->monotonic_ns = now.monotonic_ns;
		__atomic_store_n(&to->tsc, now.tsc, __ATOMIC_RELEASE);
		__atomic_store_n(&info->next_clock, info->next_clock + 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&trace_lock);
}

/* As snprintf() with "%s" would, but async-signal-safe. The rest of to is 0. */
static void crash_text_copy(char to[TRACE_THREAD_NAME_SIZE], const char *text)
{
	for (size_t i = 0; text != NULL && i < TRACE_THREAD_NAME_SIZE - 1 && text[i] != '\0'; i++) {
		to[i] = text[i];
	}
}

/* Takes no lock, since the thread that crashed may hold it. So a crash during trace_stop() may not be noted. */
void trace_note_crash(const struct trace_crash *crash)
{
	struct trace_file_info *info = __atomic_load_n(&trace_state.info, __ATOMIC_ACQUIRE);

	if (info == NULL) {
		return;
	}
	info->end = trace_clock_read();
	info->crash_signal = crash->signal;
	info->crash_address = (uint64_t)(uintptr_t)crash->address;
	info->crash_tid = (uint32_t)syscall(SYS_gettid);
	crash_text_copy(info->crash_thread, crash->thread);
	info->crash_code = crash->code;
	info->crash_flags = TRACE_INFO_CRASH_CODE | (crash->sent ? TRACE_INFO_CRASH_SENT : 0u);
	if (crash->sent) {
		info->crash_sender = crash->sender;
		info->crash_sender_uid = crash->sender_uid;
		crash_text_copy(info->crash_sender_name, crash->sender_name);
	}
	info->crash_tsc = info->end.tsc;
	__atomic_store_n(&info->state, TRACE_INFO_CRASHED, __ATOMIC_RELEASE);
}
