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

/* A report, built with async-signal-safe functions only. */
struct report {
	char text[8192];
	size_t len;
};

static void report_text(struct report *r, const char *s)
{
	for (; *s != '\0' && r->len < sizeof(r->text); s++) {
		r->text[r->len++] = *s;
	}
}

static void report_number(struct report *r, uint64_t value, unsigned base)
{
	char digits[24];
	size_t i = sizeof(digits) - 1;

	digits[i] = '\0';
	do {
		digits[--i] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value != 0);
	report_text(r, base == 16 ? "0x" : "");
	report_text(r, &digits[i]);
}

static void report_flush(struct report *r)
{
	ssize_t ignored = write(STDERR_FILENO, r->text, r->len);

	(void)ignored;
	r->len = 0;
}

static const char *crash_signal_name(int number)
{
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (signals[i].number == number) {
			return signals[i].name;
		}
	}
	return "a signal";
}

static void report_cause(struct report *r, const siginfo_t *info)
{
	report_text(r, "varve " VARVE_VERSION " crashed: ");
	report_text(r, crash_signal_name(info->si_signo));
	if (info->si_code <= 0 && info->si_pid == getpid()) {
		report_text(r, " raised by itself");
	} else if (info->si_code <= 0) {
		report_text(r, " sent by process ");
		report_number(r, (uint64_t)info->si_pid, 10);
	} else {
		report_text(r, " at address ");
		report_number(r, (uint64_t)(uintptr_t)info->si_addr, 16);
	}
	report_text(r, "\n  build id: ");
	report_text(r, build_id()[0] != '\0' ? build_id() : "none");
}

static void report_thread(struct report *r, const char *name)
{
	report_text(r, "\n  process:  ");
	report_number(r, (uint64_t)getpid(), 10);
	report_text(r, "\n  thread:   ");
	report_text(r, name);
	report_text(r, " (");
	report_number(r, (uint64_t)syscall(SYS_gettid), 10);
	report_text(r, ")\n  backtrace:\n");
}

/* "    bdev_submit+0x12"; a function outside of the executable is named by the C library, if it can. */
static void report_frame(struct report *r, void *frame)
{
	uint64_t offset;
	const char *name = symbols_find(frame, &offset);

	report_text(r, "    ");
	if (name == NULL) {
		report_flush(r);
		backtrace_symbols_fd(&frame, 1, STDERR_FILENO);
		return;
	}
	report_text(r, name);
	report_text(r, "+");
	report_number(r, offset, 16);
	report_text(r, "\n");
	report_flush(r);
}

/* Ends with the command that prints the source lines. */
static void report_backtrace(struct report *r, void *const *frames, int n)
{
	for (int i = 0; i < n; i++) {
		report_frame(r, frames[i]);
	}
	report_text(r, "  lines:    addr2line -pfie ");
	report_text(r, executable);
	for (int i = 0; i < n; i++) {
		uint64_t address = symbols_file_address(frames[i]);
		if (address != 0) {
			report_text(r, " ");
			report_number(r, address, 16);
		}
	}
	report_text(r, "\n");
	report_flush(r);
}

static void report_trace_file(struct report *r)
{
	if (trace_file == NULL) {
		report_text(r, "  trace:    none\n");
		return;
	}
	report_text(r, "  trace:    ");
	report_text(r, trace_file);
	report_text(r, "\n            read it with: varve-trace -f ");
	report_text(r, trace_file);
	report_text(r, "\n");
}

/* If another thread is reporting its own crash, waits for the end of the process. */
static void crash_let_only_one_report(void)
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

	crash_let_only_one_report();
	signal(number, SIG_DFL); /* a fault in this handler ends the process */
	prctl(PR_GET_NAME, thread);
	report_cause(&r, info);
	report_thread(&r, thread);
	report_flush(&r);
	report_backtrace(&r, frames, backtrace(frames, FRAMES_MAX));
	report_trace_file(&r);
	report_flush(&r);
	trace_note_crash(number, info->si_code > 0 ? info->si_addr : NULL, thread);
	/* After a fault, returning repeats it at its place, for the core dump. A signal that was sent must be raised
	 * again. */
	if (info->si_code <= 0) {
		raise(number);
	}
}

void crash_set_trace_file(const char *path)
{
	trace_file = path;
}

static int crash_use_own_stack(void)
{
	/* A thread whose stack has overflowed cannot run the handler on it. */
	void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	stack_t s = {.ss_sp = stack, .ss_size = STACK_BYTES};

	return stack != MAP_FAILED && sigaltstack(&s, NULL) == 0 ? 0 : -errno;
}

void crash_thread_init(void)
{
	crash_use_own_stack(); /* without it, all crashes but a stack overflow are still reported */
}

int crash_install(void)
{
	struct sigaction action = {.sa_sigaction = crash_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	void *frame;

	int rc = crash_use_own_stack();
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
