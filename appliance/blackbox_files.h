/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of the black box: their names, and the removal of old ones. No threads and no tracing. */
#ifndef APPLIANCE_BLACKBOX_FILES_H
#define APPLIANCE_BLACKBOX_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes the name "DIR/APP_blackbox.20261121T231502.123456Z.request_age.pid4711". Sorted by name, files are in the order
 * of time, unless the clock has been set back. realtime_ns: since 1970. 0 or -ENAMETOOLONG. */
int blackbox_file_name(char *to, size_t size, const char *dir, const char *app, uint64_t realtime_ns, const char *cause,
		       int pid);
/* The same; but if there is a file of that name already (the clock was set back), with a time some microseconds later,
 * so that there is none. */
int blackbox_file_name_unused(char *to, size_t size, const char *dir, const char *app, uint64_t realtime_ns,
			      const char *cause, int pid);

#define BLACKBOX_COPY_NAME_MAX 256 /* bytes of the name of a copy in its folder, with the NUL */
struct blackbox_copy_info {
	char name[BLACKBOX_COPY_NAME_MAX];
	char time[32];  /* "2026-11-21T23:15:02.123456Z", of the cause */
	char cause[32]; /* "request_age" ... */
	uint64_t bytes;
};
/* Whether name is one that blackbox_file_name() makes in the folder for this app: so it has neither a slash nor a
 * character that means anything to a shell, a browser or an HTTP header. Then *info has name, time and cause. Pure. */
bool blackbox_copy_name_parse(const char *name, const char *app, struct blackbox_copy_info *info);
/* Opens a copy of that name in dir for reading. Neither a link, nor a file of another user or with a second name, nor
 * anything but a file is opened. The descriptor, and *bytes; or -ENOENT: there is no such copy, or another negative
 * errno. */
int blackbox_copy_open(const char *dir, const char *app, const char *name, uint64_t *bytes);
/* A listing looks at so many entries of the folder, where other users may make entries. */
#define BLACKBOX_COPY_ENTRIES_MAX 16384
/* Fills in the newest copies in dir, at most max of them, the newest first. Their number; or a negative errno.
 * *complete: false if the folder has more entries than a listing looks at, among which there may be other copies. */
int blackbox_copy_list(const char *dir, const char *app, uint64_t now_ns, struct blackbox_copy_info *list, size_t max,
		       bool *complete);

struct blackbox_usage {
	uint32_t files;
	uint64_t bytes;
};
/* Makes room in dir for another file of new_bytes bytes: removes the oldest files of APP's black boxes, of whatever
 * process, until max_files and max_bytes will not be exceeded. Files whose names have a time after now_ns count as the
 * oldest: the clock was set back after they were written. Unfinished files whose writer is dead are removed as well.
 * *left, unless it is NULL, says what stays. 0; -EFBIG: new_bytes is more than max_bytes; or the error of opening or
 * reading dir. */
int blackbox_make_room(const char *dir, const char *app, uint32_t max_files, uint64_t max_bytes, uint64_t new_bytes,
		       uint64_t now_ns, struct blackbox_usage *left);

#endif
