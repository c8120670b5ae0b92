/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of the black box: what they are called, and that they stay few. No threads and no tracing in here. */
#ifndef APPLIANCE_BLACKBOX_FILES_H
#define APPLIANCE_BLACKBOX_FILES_H

#include <stddef.h>
#include <stdint.h>

/* "DIR/APP_blackbox.20261121T231502.123456Z.request_age.pid4711": in the order of time when sorted by name, as long as
 * the clock is not set back. realtime_ns: since 1970. 0 or -ENAMETOOLONG. */
int blackbox_file_name(char *to, size_t size, const char *dir, const char *app, uint64_t realtime_ns, const char *cause,
		       int pid);
/* The same, with a time so many microseconds later that there is no such file: a clock that was set back comes to the
 * same time again. */
int blackbox_file_name_unused(char *to, size_t size, const char *dir, const char *app, uint64_t realtime_ns,
			      const char *cause, int pid);

struct blackbox_usage {
	uint32_t files;
	uint64_t bytes;
};
/* Removes the oldest files that APP's black boxes have left in dir, of whatever process, until one of new_bytes more
 * fits into max_files and max_bytes, those first whose names are of a time after now_ns (they are from before the clock
 * was set back); and unfinished ones whose writer is dead. *left (or NULL): what stays. 0, -EFBIG: one of new_bytes
 * does not fit at all, or what opening or reading dir said. */
int blackbox_make_room(const char *dir, const char *app, uint32_t max_files, uint64_t max_bytes, uint64_t new_bytes,
		       uint64_t now_ns, struct blackbox_usage *left);

#endif
