/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs on worker threads: their order, their CPUs, and their end. */
#include "unittest/unit.h"

#include <rte_common.h>
#include <sched.h>
#include <semaphore.h>

#include "env_dpdk/env.h"
#include "thread/worker.h"
#include "util/log.h"

#define JOBS    4
#define WAIT_US (60 * UINT64_C(1000000))

static struct worker_queue queue = WORKER_QUEUE_INITIALIZER(queue);
static cpu_set_t allowed;
static cpu_set_t spare;
static sem_t go;

struct numbered {
	struct worker_job job;
	int number;
	bool worked;
	cpu_set_t cpus;
};
static int order[JOBS], num_done;

static int setup(void)
{
	const struct env_opts env = {.name = "unit", .instance_id = -1, .no_huge = true, .no_pci = true};
	const struct thread_lib_opts opts = {.poll_mode = POLL_MODE_ADAPTIVE, .idle_spell_us = 50};
	char error[ENV_ERROR_MAX];

	sem_init(&go, 0, 0);
	log_set_print_level(LOG_LEVEL_DISABLED);
	sched_getaffinity(0, sizeof(allowed), &allowed);
	if (env_worker_cpus(&spare)) { /* not started */
		return -1;
	}
	return env_init(&env, error) != 0 ? -1 : thread_lib_start(&opts);
}

static int teardown(void)
{
	thread_lib_stop();
	env_fini();
	return 0;
}

static void job_work(struct worker_job *job)
{
	struct numbered *n = container_of(job, struct numbered, job);

	while (sem_wait(&go) != 0) {
	}
	n->worked = true;
	sched_getaffinity(0, sizeof(n->cpus), &n->cpus);
}

static void job_done(struct worker_job *job)
{
	struct numbered *n = container_of(job, struct numbered, job);

	CU_ASSERT_EQUAL(job->error, 0);
	CU_ASSERT_TRUE(n->worked);
	order[num_done++] = n->number;
}

static bool all_done(void *arg)
{
	return num_done == JOBS;
}

static void jobs_run(struct worker_queue *q, struct numbered jobs[JOBS])
{
	num_done = 0;
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct numbered){.job = {.work = job_work, .done = job_done}, .number = i};
		worker_run(q, &jobs[i].job);
	}
	CU_ASSERT_EQUAL(num_done, 0);
}

static void jobs_release(int n)
{
	while (n-- > 0) {
		sem_post(&go);
	}
}

static void test_jobs_of_a_queue_are_done_in_turn(void)
{
	struct numbered jobs[JOBS];

	jobs_run(&queue, jobs);
	worker_wait(&queue, 1000);
	CU_ASSERT_EQUAL(num_done, 0); /* the time is over, they are not */
	jobs_release(JOBS);
	worker_wait(&queue, WAIT_US);
	thread_control_wait(all_done, NULL, WAIT_US);
	for (int i = 0; i < JOBS; i++) {
		CU_ASSERT_EQUAL(order[i], i);
	}
	worker_wait(&queue, WAIT_US); /* of nothing */
}

static void test_jobs_without_a_queue_wait_for_no_other(void)
{
	struct numbered jobs[JOBS];
	int waiting = 0;

	jobs_run(NULL, jobs);
	jobs_release(JOBS);
	thread_control_wait(all_done, NULL, WAIT_US);
	CU_ASSERT_EQUAL(num_done, JOBS);
	sem_getvalue(&go, &waiting);
	CU_ASSERT_EQUAL(waiting, 0);
}

static void test_jobs_keep_off_the_reactors(void)
{
	struct numbered jobs[JOBS];
	cpu_set_t expected = allowed;
	int first = 0;

	while (!CPU_ISSET(first, &allowed)) {
		first++;
	}
	if (CPU_COUNT(&allowed) > 1) { /* otherwise there is no other place */
		CPU_CLR(first, &expected);
	}
	CU_ASSERT_TRUE(env_worker_cpus(&spare));
	CU_ASSERT_TRUE(CPU_EQUAL(&spare, &expected));
	jobs_run(NULL, jobs);
	jobs_release(JOBS);
	thread_control_wait(all_done, NULL, WAIT_US);
	for (int i = 0; i < JOBS; i++) {
		CU_ASSERT_TRUE(CPU_EQUAL(&jobs[i].cpus, &expected));
	}
}

static const struct unit_test tests[] = {
	UNIT(test_jobs_of_a_queue_are_done_in_turn),
	UNIT(test_jobs_without_a_queue_wait_for_no_other),
	UNIT(test_jobs_keep_off_the_reactors),
	UNIT_END,
};
UNIT_MAIN("worker", tests, setup, teardown)
