/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes one copy at a time, a step in each round of the control thread's loop, so that RPCs and keep-alives are served
 * meanwhile. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "appliance/blackbox.h"
#include "appliance/blackbox_files.h"
#include "thread/thread.h"
#include "trace/trace.h"
#include "util/log.h"

#define STEP_BYTES (1024 * 1024)

static struct trace_copy *copy;
static char path[BLACKBOX_FILE_MAX], trigger_name[BLACKBOX_NAME_MAX];
static struct thread_timer timer;

static void blackbox_copy_step(void *arg)
{
	char error[TRACE_ERROR_MAX];
	int rc = trace_copy_step(copy, STEP_BYTES, error);

	if (rc == 1) {
		thread_timer_start(&timer, 0);
		return;
	}
	copy = NULL;
	if (rc != 0) {
		log_error("black box: %s", error);
	}
	blackbox_copied(trigger_name, rc == 0 ? path : NULL);
}

int blackbox_copy_begin(const char *app, const struct blackbox_opts *opts, const char *trigger,
			const struct trace_file_cause *cause)
{
	char error[TRACE_ERROR_MAX];
	uint64_t size = trace_copy_size();

	if (copy != NULL) {
		return -EBUSY;
	}
	if (size == 0) {
		return -ENODEV; /* nothing is recorded; the log says so since the start */
	}
	int rc = blackbox_make_room(opts->dir, app, opts->max_files, opts->max_bytes, size, cause->realtime_ns, NULL);
	if (rc != 0) {
		log_error("black box: no room for a copy of %llu bytes in %s, with max_files %u and "
			  "max_bytes %llu: %s",
			  (unsigned long long)size, opts->dir, opts->max_files, (unsigned long long)opts->max_bytes,
			  strerror(-rc));
		return rc;
	}
	rc = blackbox_file_name_unused(path, sizeof(path), opts->dir, app, cause->realtime_ns, cause->type, getpid());
	if (rc == 0) {
		/* Times in the copy are computed from the last noted clock: note it now. */
		trace_clock_refresh();
		snprintf(error, sizeof(error), "%s", "");
		rc = trace_copy_begin(path, cause, &copy, error);
		if (rc != 0) {
			log_error("black box: %s", error);
		}
	}
	if (rc != 0) {
		return rc;
	}
	snprintf(trigger_name, sizeof(trigger_name), "%s", trigger);
	timer.fn = blackbox_copy_step;
	thread_timer_start(&timer, 0);
	return 0;
}

bool blackbox_copying(void)
{
	return copy != NULL;
}

void blackbox_copy_complete(void)
{
	while (copy != NULL) {
		thread_timer_stop(&timer);
		blackbox_copy_step(NULL);
	}
}

void blackbox_copy_stop(void)
{
	if (copy != NULL) {
		thread_timer_stop(&timer);
		trace_copy_abandon(copy);
		copy = NULL;
	}
}
