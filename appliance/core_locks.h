/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks that tell programs which CPUs are in use: files /var/tmp/spdk_cpu_lock_NNN, as SPDK programs make them, so that
 * both see each other. The owner holds a write lock of fcntl(2) on the file, which has its process id as an int. A file
 * without a lock means nothing: its owner was killed. */
#ifndef APPLIANCE_CORE_LOCKS_H
#define APPLIANCE_CORE_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CORE_LOCKS_FOLDER "/var/tmp"

/* Locks a CPU's file in the folder. 0, and *fd is the lock, for core_lock_release(); or -EBUSY, and *holder is the
 * process that has it (0: unknown); or another negative errno. Any thread, no other one for the same CPU meanwhile. */
int core_lock_take(const char *folder, unsigned cpu, int *fd, pid_t *holder);
/* Removes the file and ends the lock. Any thread. */
void core_lock_release(const char *folder, unsigned cpu, int fd);

/* Locks the CPUs of all lcores, as far as nobody else has them; a warning in the log names each that another process
 * has. Control thread, as the others below. */
void core_locks_start(void);
/* Locks those that are not locked yet; all, or none of them. 0; or a negative errno, and error (error_bytes) says
 * which CPU cannot be locked and who has it. */
int core_locks_enable(char *error, size_t error_bytes);
/* Ends all locks. */
void core_locks_stop(void);
/* Whether any are locked. */
bool core_locks_held(void);

#endif
