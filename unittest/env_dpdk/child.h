/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests do in children, because a process can start the EAL once. */
#ifndef UNITTEST_ENV_DPDK_CHILD_H
#define UNITTEST_ENV_DPDK_CHILD_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env_dpdk/env.h"

/* In a child: says what is wrong, and the child's exit status tells. */
static int child_failures;
#define CHECK(cond)                                                                                                    \
	do {                                                                                                           \
		if (!(cond)) {                                                                                         \
			printf("in a child: %s:%d: %s\n", __FILE__, __LINE__, #cond);                                  \
			child_failures++;                                                                              \
		}                                                                                                      \
	} while (0)

static inline pid_t child_start(void (*fn)(void))
{
	fflush(stdout);
	pid_t pid = fork();

	if (pid == 0) {
		fn();
		fflush(stdout);
		_exit(child_failures != 0);
	}
	return pid;
}

static inline bool child_passed(pid_t pid)
{
	int status = -1;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static inline struct env_opts opts_for_tests(void)
{
	return (struct env_opts){.name = "unit",
				 .cores = "0-3",
				 .oversubscribe = true,
				 .instance_id = -1,
				 .no_huge = true,
				 .no_pci = true};
}

static inline bool starts(const struct env_opts *opts)
{
	char error[ENV_ERROR_MAX];
	int rc = env_init(opts, error);

	if (rc != 0) {
		printf("env_init: %s\n", error);
	}
	return rc == 0;
}

#endif
