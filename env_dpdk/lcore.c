/* SPDX-License-Identifier: BSD-3-Clause */
/* lcores: each is a thread that sleeps until it is given a function. The EAL's own launch spins while it waits for a
 * result, and cannot launch on the main lcore; therefore every lcore runs env_lcore_loop() from the start. */
#include "env_dpdk/env_internal.h"
#include "env_dpdk/startup.h"

#include <errno.h>
#include <pthread.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <string.h>

enum lcore_state {
	LCORE_IDLE,
	LCORE_RUNNING,
	LCORE_DONE, /* the result waits for env_lcore_wait */
	LCORE_QUIT,
};

struct lcore {
	enum lcore_state state;
	int (*fn)(void *arg);
	void *arg;
	int result;
	pthread_cond_t changed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct lcore lcores[RTE_MAX_LCORE];

static void lcore_set_state(struct lcore *l, enum lcore_state state)
{
	l->state = state;
	pthread_cond_broadcast(&l->changed);
}

int env_lcore_loop(void *unused)
{
	struct lcore *l = &lcores[rte_lcore_id()];

	pthread_mutex_lock(&lock);
	while (l->state != LCORE_QUIT) {
		if (l->state != LCORE_RUNNING) {
			pthread_cond_wait(&l->changed, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		int result = l->fn(l->arg);
		pthread_mutex_lock(&lock);
		l->result = result;
		lcore_set_state(l, LCORE_DONE);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Called on the EAL's main lcore, which enters env_lcore_loop itself afterwards. */
int env_lcores_start(void)
{
	unsigned lcore;

	ENV_FOREACH_LCORE (lcore) {
		pthread_cond_init(&lcores[lcore].changed, NULL);
	}
	RTE_LCORE_FOREACH_WORKER (lcore) {
		int rc = rte_eal_remote_launch(env_lcore_loop, NULL, lcore);
		if (rc != 0) {
			return rc;
		}
	}
	return 0;
}

/* Ends all loops. */
void env_lcores_stop(void)
{
	unsigned lcore;

	pthread_mutex_lock(&lock);
	ENV_FOREACH_LCORE (lcore) {
		lcore_set_state(&lcores[lcore], LCORE_QUIT);
	}
	pthread_mutex_unlock(&lock);
}

unsigned env_lcore_count(void)
{
	return rte_lcore_count();
}

unsigned env_lcore_next(unsigned after)
{
	/* UINT32_MAX + 1 is 0: the first. */
	for (unsigned lcore = after + 1; lcore < RTE_MAX_LCORE; lcore++) {
		if (rte_lcore_is_enabled(lcore)) {
			return lcore;
		}
	}
	return ENV_LCORE_NONE;
}

unsigned env_lcore_current(void)
{
	unsigned lcore = rte_lcore_id();

	return lcore < RTE_MAX_LCORE ? lcore : ENV_LCORE_NONE;
}

int env_lcore_cpu(unsigned lcore)
{
	rte_cpuset_t cpus = rte_lcore_cpuset(lcore);
	int cpu = 0;

	if (CPU_COUNT(&cpus) != 1) {
		return -1;
	}
	while (!CPU_ISSET(cpu, &cpus)) {
		cpu++;
	}
	return cpu;
}

int env_lcore_numa_node(unsigned lcore)
{
	return (int)rte_lcore_to_socket_id(lcore);
}

int env_lcore_launch(unsigned lcore, int (*fn)(void *arg), void *arg)
{
	int rc = 0;

	if (lcore >= RTE_MAX_LCORE || !rte_lcore_is_enabled(lcore)) {
		return -ENODEV;
	}
	pthread_mutex_lock(&lock);
	if (lcores[lcore].state == LCORE_IDLE) {
		lcores[lcore].fn = fn;
		lcores[lcore].arg = arg;
		lcore_set_state(&lcores[lcore], LCORE_RUNNING);
	} else {
		rc = -EBUSY;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int env_lcore_wait(unsigned lcore)
{
	struct lcore *l = &lcores[lcore];
	int result = 0;

	pthread_mutex_lock(&lock);
	while (l->state == LCORE_RUNNING) {
		pthread_cond_wait(&l->changed, &lock);
	}
	if (l->state == LCORE_DONE) {
		result = l->result;
		lcore_set_state(l, LCORE_IDLE);
	}
	pthread_mutex_unlock(&lock);
	return result;
}
