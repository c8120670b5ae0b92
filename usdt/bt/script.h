/* SPDX-License-Identifier: BSD-3-Clause */
/* What scripts/bpftrace.sh makes of a bpftrace script before it runs it on a process. */
#ifndef USDT_BT_SCRIPT_H
#define USDT_BT_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What stands for the placeholders of a script, and what is added to it. */
struct bt_script {
	const char *exe;     /* for __EXE__, and for the program of probes whose provider is spdk */
	const char *pid;     /* for __PID__ */
	const char *tsc_khz; /* for __TSC_KHZ__ */
	const char *begin;   /* statements for the start of the BEGIN block; empty: none */
	const char *end;     /* statements for the end of the END block; empty: none */
	FILE *notes;         /* gets a line for each probe that is left out */
};

/* Writes the script `text` with its placeholders replaced. A probe `usdt:PROGRAM:spdk:NAME` becomes one of provider
 * varve in `exe`. A probe that scripts for SPDK know and varve lacks is left out, with its block if that is the block
 * of no other probe. A first line that begins with #! is left empty. The statements go into the script's own BEGIN and
 * END blocks if it has them, otherwise into blocks behind it, so that its line numbers stay. False: all probes have
 * been left out. */
bool bt_script_write(FILE *out, const char *text, const struct bt_script *script);

/* Calls see() for each map (@name) that the script uses outside of comments and strings; a map may come several times.
 * The name is that without the @, and is not NUL-terminated. */
void bt_script_maps(const char *text, void (*see)(void *arg, const char *name, size_t len), void *arg);

#endif
