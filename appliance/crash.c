/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/crash.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "appliance/symbols.h"
#include "trace/trace.h"
#include "util/build_id.h"
#include "util/signal_text.h"

#define STACK_BYTES (64 * 1024)
#define FRAMES_MAX  64

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGQUIT};
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static const char *trace_file;
static char executable[PATH_MAX] = "varve";
static int crashing; /* atomic: the thread that reports */
static sigjmp_buf stack_unreadable;

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

/* Reads the name of a process, if it still exists. It has often ended: kill(1) has when its signal is handled. */
static void crash_read_name(pid_t pid, char name[TRACE_THREAD_NAME_SIZE])
{
	struct report path = {.len = 0};

	name[0] = '\0';
	report_text(&path, "/proc/");
	report_number(&path, (uint64_t)pid, 10);
	report_text(&path, "/comm");
	path.text[path.len] = '\0';
	int fd = open(path.text, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, name, TRACE_THREAD_NAME_SIZE - 1) : 0;
	name[n > 0 ? n : 0] = '\0';
	char *end = strchr(name, '\n');
	if (end != NULL) {
		*end = '\0';
	}
	if (fd >= 0) {
		close(fd);
	}
}

static void crash_describe(const siginfo_t *info, const char *thread, char sender_name[TRACE_THREAD_NAME_SIZE],
			   struct trace_crash *c)
{
	*c = (struct trace_crash){
		.signal = info->si_signo,
		.code = info->si_code,
		.thread = thread,
		.sent = signal_text_is_sent(info->si_code),
		.sender_name = sender_name,
	};
	if (c->sent) {
		c->sender = (uint32_t)info->si_pid;
		c->sender_uid = info->si_uid;
		crash_read_name(info->si_pid, sender_name);
	} else if (signal_text_has_address(info->si_signo, info->si_code)) {
		c->address = info->si_addr;
	}
}

static void report_sender(struct report *r, const struct trace_crash *c)
{
	if (c->sender == (uint32_t)getpid()) {
		report_text(r, " raised by itself");
		return;
	}
	report_text(r, " sent by process ");
	report_number(r, c->sender, 10);
	if (c->sender_name[0] != '\0') {
		report_text(r, " (");
		report_text(r, c->sender_name);
		report_text(r, ")");
	}
	report_text(r, ", uid ");
	report_number(r, c->sender_uid, 10);
}

static void report_fault(struct report *r, const struct trace_crash *c)
{
	const char *why = signal_text_fault(c->signal, c->code);

	if (signal_text_has_address(c->signal, c->code)) {
		report_text(r, " at address ");
		report_number(r, (uint64_t)(uintptr_t)c->address, 16);
	} else {
		report_text(r, " raised by the kernel");
	}
	if (why != NULL) {
		report_text(r, ": ");
		report_text(r, why);
	}
}

static void report_cause(struct report *r, const struct trace_crash *c)
{
	const char *name = signal_text_name(c->signal);

	report_text(r, "varve " VARVE_VERSION " crashed: ");
	report_text(r, name != NULL ? name : "a signal");
	if (c->sent) {
		report_sender(r, c);
	} else {
		report_fault(r, c);
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

/* Where the stack cannot be read: back to the handler, which goes on with the report. */
static void crash_leave_stack(int number)
{
	crash_let_only_one_report(); /* another thread may fault meanwhile */
	siglongjmp(stack_unreadable, 1);
}

/* Follows the frame pointers from where the fault was, because the unwinder knows no function there. Each read may
 * fault; *n counts the frames that were found before. */
static void crash_follow_frames(const void *context, void **frames, volatile int *n)
{
#ifdef __x86_64__
	const greg_t *regs = ((const ucontext_t *)context)->uc_mcontext.gregs;
	const uintptr_t *frame = (const uintptr_t *)regs[REG_RBP];

	frames[(*n)++] = (void *)regs[REG_RIP];
	/* A call of an address that is no function has pushed its return address, and nothing else has changed. */
	frames[*n] = *(void **)regs[REG_RSP];
	(*n)++;
	while (*n < FRAMES_MAX && frame != NULL && ((uintptr_t)frame & 7) == 0 && frame[0] > (uintptr_t)frame) {
		frames[*n] = (void *)frame[1];
		(*n)++;
		frame = (const uintptr_t *)frame[0];
	}
#endif
}

/* The functions on the stack, innermost first; how many. The unwinder reads the instructions at the place of the fault,
 * and faults again if the fault was a jump to an address without instructions. */
static int crash_backtrace(const void *context, void **frames)
{
	struct sigaction leave = {.sa_handler = crash_leave_stack, .sa_flags = SA_NODEFER}, segv, bus;
	volatile int n = 0, attempt = 0;
	sigset_t faults, mask;

	sigemptyset(&leave.sa_mask);
	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &faults, &mask); /* a fault whose signal is blocked ends the process */
	sigaction(SIGSEGV, &leave, &segv);
	sigaction(SIGBUS, &leave, &bus);
	sigsetjmp(stack_unreadable, 1);
	attempt++;
	if (attempt == 1) {
		n = backtrace(frames, FRAMES_MAX);
	} else if (attempt == 2) {
		crash_follow_frames(context, frames, &n);
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return n;
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

static void crash_handler(int number, siginfo_t *info, void *context)
{
	struct report r = {.len = 0};
	char thread[TRACE_THREAD_NAME_SIZE] = "", sender_name[TRACE_THREAD_NAME_SIZE] = "";
	struct trace_crash crash;
	void *frames[FRAMES_MAX];

	crash_let_only_one_report();
	signal(number, SIG_DFL); /* a fault in this handler ends the process */
	prctl(PR_GET_NAME, thread);
	crash_describe(info, thread, sender_name, &crash);
	report_cause(&r, &crash);
	report_thread(&r, thread);
	report_flush(&r);
	trace_note_crash(&crash); /* before the backtrace, which may fault again if the stack is damaged */
	report_backtrace(&r, frames, crash_backtrace(context, frames));
	report_trace_file(&r);
	report_flush(&r);
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
		sigdelset(&action.sa_mask, signals[i]);
	}
	for (size_t i = 0; i < N_SIGNALS; i++) {
		if (sigaction(signals[i], &action, NULL) != 0) {
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
