/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of thread/ share: reactors on four lcores, without hugepages, that share the CPUs there are. */
#ifndef UNITTEST_THREAD_FIXTURE_H
#define UNITTEST_THREAD_FIXTURE_H

#include "env_dpdk/env.h"
#include "thread/thread.h"
#include "util/log.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#define WAIT_US 120000000 /* deadline of what must happen soon */

static inline int fixture_start(void)
{
	const struct env_opts env = {.name = "unit",
				     .cores = "0-3",
				     .oversubscribe = true,
				     .instance_id = -1,
				     .no_huge = true,
				     .no_pci = true};
	/* A short spell, so that reactors sleep often. */
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE, .idle_spell_us = 50};
	char error[ENV_ERROR_MAX];

	log_set_print_level(LOG_LEVEL_DISABLED);
	int rc = env_init(&env, error);
	if (rc != 0) {
		printf("%s\n", error);
		return rc;
	}
	return thread_lib_start(&opts);
}

static inline int fixture_stop(void)
{
	thread_lib_stop();
	env_fini();
	return 0;
}

static inline cpu_set_t fixture_mask(unsigned lcore)
{
	cpu_set_t mask;

	CPU_ZERO(&mask);
	CPU_SET(lcore, &mask);
	return mask;
}

static inline struct thread *fixture_thread(const char *name, unsigned lcore)
{
	cpu_set_t mask = fixture_mask(lcore);

	return thread_create(name, &mask);
}

#endif
