/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes sure that what a program prints for scripts has been written, or that its exit status says otherwise. */
#ifndef UTIL_OUTPUT_H
#define UTIL_OUTPUT_H

/* To be called first in main(). If descriptor 0, 1 or 2 is closed, it is occupied, so that no file or socket that the
 * program opens gets that number and receives what is printed; reading from and writing to it still fails. When the
 * program ends (exit() or return from main()), buffered output to stdout is written; if that or an earlier write has
 * failed, a line on stderr that begins with program says so, and the exit status is lost. program must live as long as
 * the process. */
void output_guard(const char *program, int lost);

#endif
