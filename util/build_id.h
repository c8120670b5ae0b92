/* SPDX-License-Identifier: BSD-3-Clause */
/* Which build this is: the GNU build id that the linker put into the executable. */
#ifndef UTIL_BUILD_ID_H
#define UTIL_BUILD_ID_H

/* In hexadecimal, or "" if the executable has none. Any thread, also from a signal handler. */
const char *build_id(void);

#endif
