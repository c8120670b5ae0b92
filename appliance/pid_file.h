/* SPDX-License-Identifier: BSD-3-Clause */
/* The file that tells scripts the daemon's process id (-f). */
#ifndef APPLIANCE_PID_FILE_H
#define APPLIANCE_PID_FILE_H

#include <stddef.h>

/* Writes this process's id and a line feed to a file, which is replaced whole if it exists: readers see the old content
 * or the new one. 0; or a negative errno, and error (error_bytes) says why. Any thread. */
int pid_file_write(const char *path, char *error, size_t error_bytes);
/* Removes the file, if it still has this process's id: otherwise another daemon has replaced it. Any thread. */
void pid_file_remove(const char *path);

#endif
