/* SPDX-License-Identifier: BSD-3-Clause */
/* Words for the signals by which a process crashes. Any thread; async-signal-safe. */
#ifndef UTIL_SIGNAL_TEXT_H
#define UTIL_SIGNAL_TEXT_H

#include <stdbool.h>

/* "SIGSEGV"; NULL for a signal that crash handlers do not handle. */
const char *signal_text_name(int number);
/* Why the kernel raised the signal, by its si_code: "not mapped" for SIGSEGV and SEGV_MAPERR. NULL: not known. */
const char *signal_text_fault(int number, int code);
/* Whether a process sent the signal, by its si_code, so that si_pid and si_uid say which one did. abort() and raise()
 * send one, too. Otherwise the kernel raised it, and for a fault (si_code above 0) si_addr is its address. */
bool signal_text_is_sent(int code);
/* Whether the signal came with the address of a fault: the kernel raised it and has the address. */
bool signal_text_has_address(int number, int code);

#endif
