/* SPDX-License-Identifier: BSD-3-Clause */
/* Log flags that SPDK's components have and varve has not under that name: scripts set them, so they are taken. Some
 * stand for a flag of ours that has messages of the same matter; the others have no messages. Control thread. */
#ifndef UTIL_LOG_FLAGS_H
#define UTIL_LOG_FLAGS_H

#include <stdbool.h>

struct log_other_flag {
	const char *name;
	const char *ours; /* the flag that it stands for; NULL: none */
	bool enabled;
};

/* All of them, by name, one by one: NULL for the first; NULL: no more. */
const struct log_other_flag *log_other_flag_next(const struct log_other_flag *after);
/* Turns one on or off, or with "all" every one; and with it the flag of ours that it stands for. 0, or -ENOENT: there
 * is none of that name. */
int log_other_flag_set(const char *name, bool on);
/* Logs in a line what one of these flags means here; nothing for a name that is none of them. */
void log_other_flag_explain(const char *name);
/* Whether log_set_flag() takes that name: that of a flag, of one of these, or "all". */
bool log_flag_is_known(const char *name);

#endif
