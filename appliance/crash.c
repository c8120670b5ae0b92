/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/crash.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "appliance/symbols.h"
#include "trace/trace.h"
#include "util/build_id.h"

#define STACK_BYTES (64 * 1024)
#define FRAMES_MAX  64

static const struct {
	int number;
	const char *name;
} signals[] = {
	{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},   {SIGILL, "SIGILL"},
	{SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"}, {SIGQUIT, "SIGQUIT"},
};
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static const char *trace_file;
static char executable[PATH_MAX] = "varve";
static int crashing; /* atomic: the thread that reports */

/* One report, put together with nothing that is not async-signal-safe. */
struct report {
	char text[8192];
	size_t len;
};

static void put(struct report *r, const char *s)
{
	for (; *s != '\0' && r->len < sizeof(r->text); s++) {
		r->text[r->len++] = *s;
	}
}

static void put_number(struct report *r, uint64_t value, unsigned base)
{
	char digits[24];
	size_t i = sizeof(digits) - 1;

	digits[i] = '\0';
	do {
		digits[--i] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value != 0);
	put(r, base == 16 ? "0x" : "");
	put(r, &digits[i]);
}

static void emit(struct report *r)
{
	ssize_t ignored = write(STDERR_FILENO, r->text, r->len);

	(void)ignored;
	r->len = 0;
}

static const char *signal_name(int number)
{
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (signals[i].number == number) {
			return signals[i].name;
		}
	}
	return "a signal";
}

static void put_cause(struct report *r, const siginfo_t *info)
{
	put(r, "varve " VARVE_VERSION " crashed: ");
	put(r, signal_name(info->si_signo));
	if (info->si_code <= 0 && info->si_pid == getpid()) {
		put(r, " raised by itself");
	} else if (info->si_code <= 0) {
		put(r, " sent by process ");
		put_number(r, (uint64_t)info->si_pid, 10);
	} else {
		put(r, " at address ");
		put_number(r, (uint64_t)(uintptr_t)info->si_addr, 16);
	}
	put(r, "\n  build id: ");
	put(r, build_id()[0] != '\0' ? build_id() : "none");
}

static void put_thread(struct report *r, const char *name)
{
	put(r, "\n  process:  ");
	put_number(r, (uint64_t)getpid(), 10);
	put(r, "\n  thread:   ");
	put(r, name);
	put(r, " (");
	put_number(r, (uint64_t)syscall(SYS_gettid), 10);
	put(r, ")\n  backtrace:\n");
}

/* "    bdev_submit+0x12"; what is not ours the C library may name. */
static void put_frame(struct report *r, void *frame)
{
	uint64_t offset;
	const char *name = symbols_find(frame, &offset);

	put(r, "    ");
	if (name == NULL) {
		emit(r);
		backtrace_symbols_fd(&frame, 1, STDERR_FILENO);
		return;
	}
	put(r, name);
	put(r, "+");
	put_number(r, offset, 16);
	put(r, "\n");
	emit(r);
}

/* With the command that tells the lines. */
static void put_backtrace(struct report *r, void *const *frames, int n)
{
	for (int i = 0; i < n; i++) {
		put_frame(r, frames[i]);
	}
	put(r, "  lines:    addr2line -pfie ");
	put(r, executable);
	for (int i = 0; i < n; i++) {
		uint64_t address = symbols_file_address(frames[i]);
		if (address != 0) {
			put(r, " ");
			put_number(r, address, 16);
		}
	}
	put(r, "\n");
	emit(r);
}

static void put_trace(struct report *r)
{
	if (trace_file == NULL) {
		put(r, "  trace:    none\n");
		return;
	}
	put(r, "  trace:    ");
	put(r, trace_file);
	put(r, "\n            read it with: varve-trace -f ");
	put(r, trace_file);
	put(r, "\n");
}

/* A crash while another thread reports its own: waits for the end of the process. */
static void let_only_one_report(void)
{
	int none = 0, self = (int)syscall(SYS_gettid);

	if (!__atomic_compare_exchange_n(&crashing, &none, self, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
	    none != self) {
		for (;;) {
			pause();
		}
	}
}

static void crash_handler(int number, siginfo_t *info, void *context)
{
	struct report r = {.len = 0};
	char thread[16] = "";
	void *frames[FRAMES_MAX];

	let_only_one_report();
	signal(number, SIG_DFL); /* a fault in here ends it */
	prctl(PR_GET_NAME, thread);
	put_cause(&r, info);
	put_thread(&r, thread);
	emit(&r);
	put_backtrace(&r, frames, backtrace(frames, FRAMES_MAX));
	put_trace(&r);
	emit(&r);
	trace_note_crash(number, info->si_code > 0 ? info->si_addr : NULL, thread);
	/* A fault happens again on return, in its place, for the core dump; a signal that was sent does not. */
	if (info->si_code <= 0) {
		raise(number);
	}
}

void crash_set_trace_file(const char *path)
{
	trace_file = path;
}

static int use_own_stack(void)
{
	/* A thread that runs over its stack has none left for the handler. */
	void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	stack_t s = {.ss_sp = stack, .ss_size = STACK_BYTES};

	return stack != MAP_FAILED && sigaltstack(&s, NULL) == 0 ? 0 : -errno;
}

void crash_thread_init(void)
{
	use_own_stack(); /* without it, all crashes but a stack overflow are still reported */
}

int crash_install(void)
{
	struct sigaction action = {.sa_sigaction = crash_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	void *frame;

	int rc = use_own_stack();
	if (rc != 0) {
		return rc;
	}
	/* Its first call loads a library, which a handler must not. */
	backtrace(&frame, 1);
	build_id();
	symbols_load();
	ssize_t n = readlink("/proc/self/exe", executable, sizeof(executable) - 1);
	executable[n > 0 ? n : 0] = '\0';
	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < N_SIGNALS; i++) {
		sigdelset(&action.sa_mask, signals[i].number);
	}
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (sigaction(signals[i].number, &action, NULL) != 0) {
			return -errno;
		}
	}
	return 0;
}

void crash_prepare_core(bool limited)
{
	struct rlimit limit;

	if (!limited && getrlimit(RLIMIT_CORE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_CORE, &limit);
	}
}
