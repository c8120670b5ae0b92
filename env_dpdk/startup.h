/* SPDX-License-Identifier: BSD-3-Clause */
/* What an operator may tell the EAL besides struct env_opts. */
#ifndef ENV_DPDK_STARTUP_H
#define ENV_DPDK_STARTUP_H

#include <stdbool.h>
#include <stdint.h>

#include "env_dpdk/env.h"

/* All strings must stay until env_init() has returned. */
struct env_startup {
	const char *lcores; /* see env_lcores_parse; not with cores or oversubscribe; NULL: as cores says */
	bool has_main_core; /* main_core, one of the cores, becomes the EAL's main lcore; otherwise the lowest */
	uint32_t main_core;
	uint64_t base_virtaddr; /* where the EAL reserves its addresses; 0: where it likes */
	const char *eal_words;  /* further options for the EAL, see env_eal_words_check; NULL: none */
};
/* Sets what env_init() does beyond its options; copied. Before env_init(), on its thread. */
void env_startup_set(const struct env_startup *startup);

struct env_lcore_map {
	cpu_set_t lcores; /* their ids */
	cpu_set_t cpus;   /* all on which any of them runs */
	bool shared;      /* some CPU has several lcores */
};
/* Parses lcores with their CPUs as the EAL takes them: LCORES[@CPUS],... where both are a number, a range (0-3) or a
 * group in parentheses. "0@5,1@6": lcore 0 on CPU 5, 1 on 6. "0-3": each on the CPU of its number. "(0-3)": each on
 * all four CPUs. 0; or -EINVAL, and error (ENV_ERROR_MAX bytes) says what is wrong. Any thread. */
int env_lcores_parse(const char *text, struct env_lcore_map *map, char *error);
#define ENV_EAL_WORDS_MAX 16
/* Checks further options for the EAL, separated by spaces: those that do not undo what env_init() sets. 0; or -EINVAL,
 * and error (ENV_ERROR_MAX bytes) names the word and what is allowed. Any thread. */
int env_eal_words_check(const char *words, char *error);

/* The CPU that an lcore is bound to; -1: it runs on several. Any thread. */
int env_lcore_cpu(unsigned lcore);

#endif
