/* SPDX-License-Identifier: BSD-3-Clause */
/* What the EAL prints. While the EAL starts, its messages (from its log, stdout and stderr) are collected, so that a
 * start that succeeds prints nothing and one that fails can say why. Later the EAL's warnings go to our log. */
#include "env_dpdk/env_internal.h"

#include "util/log.h"
#include <errno.h>
#include <rte_log.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define COMPLAINT_MAX 240

static char complaint[COMPLAINT_MAX];
static FILE *sink;
static FILE *real_stdout, *real_stderr;
static atomic_bool started;
static bool panicking;

static bool text_has(const char *text, size_t len, const char *what)
{
	return memmem(text, len, what, strlen(what)) != NULL;
}

/* Keeps the first complaint: the EAL says what is wrong in several lines, of which the first is the most specific. */
static void complaint_keep(const char *text, size_t len)
{
	if (text_has(text, len, ENV_EAL_RUNTIME_DIRECTORY)) {
		return; /* as meant */
	}
	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' ')) {
		len--;
	}
	if (len >= 5 && memcmp(text, "EAL: ", 5) == 0) {
		text += 5;
		len -= 5;
	}
	if (complaint[0] == '\0' && len > 0) {
		snprintf(complaint, sizeof(complaint), "%.*s", (int)len, text);
	}
}

static ssize_t sink_write(void *cookie, const char *text, size_t len)
{
	int level = rte_log_cur_msg_loglevel();

	panicking |= text_has(text, len, "PANIC in");
	if (panicking) {
		/* abort() follows, so the message must be printed now. */
		ssize_t ignored = write(STDERR_FILENO, text, len);
		(void)ignored;
	}
	if (!atomic_load_explicit(&started, memory_order_relaxed)) {
		if (level > 0 && level <= (int)RTE_LOG_ERR) {
			complaint_keep(text, len);
		}
	} else if (level > 0 && level <= (int)RTE_LOG_WARNING) {
		int n = (int)len;
		while (n > 0 && text[n - 1] == '\n') {
			n--;
		}
		log_warning("DPDK: %.*s", n, text);
	}
	return (ssize_t)len;
}

int env_eal_log_open(void)
{
	sink = fopencookie(NULL, "w", (cookie_io_functions_t){.write = sink_write});
	if (sink == NULL) {
		return -errno;
	}
	setvbuf(sink, NULL, _IOLBF, 0);
	rte_openlog_stream(sink);
	/* The usage text (stdout) and "FATAL" lines (stderr) bypass the log. Only this thread runs now. */
	real_stdout = stdout;
	real_stderr = stderr;
	stdout = sink;
	stderr = sink;
	return 0;
}

void env_eal_log_started(void)
{
	fflush(sink);
	stdout = real_stdout;
	stderr = real_stderr;
	atomic_store_explicit(&started, true, memory_order_relaxed);
}

const char *env_eal_log_complaint(void)
{
	return complaint;
}
