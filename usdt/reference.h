/* SPDX-License-Identifier: BSD-3-Clause */
/* The reference page doc/probes.md, from probes.def and the scripts (paths of .bt files) that use the probes. */
#ifndef USDT_REFERENCE_H
#define USDT_REFERENCE_H

#include <stdio.h>

/* Writes the page. Pure but for out and the scripts, which are read. */
void usdt_print_reference(FILE *out, char *const *scripts, int num_scripts);

#endif
