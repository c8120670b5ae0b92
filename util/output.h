/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program prints for scripts arrives, or its exit status says that it did not. */
#ifndef UTIL_OUTPUT_H
#define UTIL_OUTPUT_H

/* First in main(). Descriptors 0 to 2 that whoever started the program has closed are taken, so that no file, socket or
 * ring of ours gets such a number and then what is printed; reading from or writing to them fails as before. At exit(),
 * and at the return of main(), what is buffered for stdout is written; if that, or an earlier write, failed, program
 * says so on stderr and ends with the status lost. program lives as long as the process. */
void output_guard(const char *program, int lost);

#endif
