/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-perf: options.c says what it can do. main() is straight-line code of the control thread. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dhchap/dhchap.h"
#include "env_dpdk/env.h"
#include "tls/handshake.h"
#include "tools/perf/perf.h"
#include "tools/perf/verify.h"
#include "util/log.h"
#include "util/output.h"

static struct perf perf;
volatile sig_atomic_t perf_interrupted;

static void perf_on_signal(int sig)
{
	perf_interrupted = 1;
	thread_control_exit();
}

static void perf_result_add(struct perf_stream *s, void *arg)
{
	struct perf_result *r = arg;

	r->miscompares += s->miscompares;
	r->stats.reads += s->stats.reads;
	r->stats.writes += s->stats.writes;
	r->stats.errors += s->stats.errors;
	r->stats.retries += s->stats.retries;
	r->stats.late += s->stats.late;
	histogram_merge(&r->stats.read_ticks, &s->stats.read_ticks);
	histogram_merge(&r->stats.write_ticks, &s->stats.write_ticks);
}

static int perf_report(struct perf *p)
{
	struct perf_result *r = calloc(1, sizeof(*r));
	int status;

	if (r == NULL) {
		return EXIT_FAILURE;
	}
	r->seconds = (double)(p->run_end - p->run_start) / (double)env_ticks_hz();
	perf_for_each_stream(p, perf_result_add, r);
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		r->reconnects += p->targets[i].reconnects;
	}
	(p->opts.json ? perf_report_json : perf_report_text)(&p->opts, r);
	status = r->stats.errors || r->miscompares || perf_any_target_failed(p) ? EXIT_FAILURE : EXIT_SUCCESS;
	free(r);
	return status;
}

static bool perf_create_workers(struct perf *p)
{
	unsigned lcore;

	p->workers = calloc(env_lcore_count(), sizeof(*p->workers));
	if (p->workers == NULL) {
		return false;
	}
	ENV_FOREACH_LCORE (lcore) {
		struct perf_worker *w = &p->workers[p->num_workers];
		char name[32];
		cpu_set_t mask;

		CPU_ZERO(&mask);
		CPU_SET(lcore, &mask);
		snprintf(name, sizeof(name), "perf_%u", lcore);
		w->lcore = lcore;
		w->thread = thread_create(name, &mask);
		TAILQ_INIT(&w->streams);
		if (w->thread == NULL) {
			return false;
		}
		p->num_workers++;
	}
	return true;
}

/* The I/Os of a connection may be abandoned; those of a block device must end first. */
static void perf_close_locals(struct perf *p)
{
	if (p->locals.num != 0) {
		perf_stop_streams(p);
	}
	for (unsigned i = 0; i < p->locals.num; i++) {
		perf_close_streams_of(p, &p->locals.targets[i]);
	}
	perf_locals_close(&p->locals);
}

static void perf_close(struct perf *p)
{
	perf_close_targets(p);
	perf_close_locals(p);
	for (unsigned i = 0; i < p->num_workers; i++) {
		struct perf_stream *s;
		while ((s = TAILQ_FIRST(&p->workers[i].streams)) != NULL) {
			TAILQ_REMOVE(&p->workers[i].streams, s, link);
			perf_stream_free(s);
		}
		thread_destroy(p->workers[i].thread);
	}
	free(p->workers);
}

/* Opens streams that wait for their turn. The control loop that runs it also asks the conditions of
 * thread_control_wait(), which clocks and signals change without waking it. */
static int perf_tick(void *ctx)
{
	perf_open_some_streams(ctx);
	return POLLER_IDLE;
}

static int perf_measure(struct perf *p)
{
	int status = EXIT_FAILURE;
	struct poller *ticker = poller_register(
		&(struct poller_opts){.name = "perf_tick", .fn = perf_tick, .ctx = p, .period_us = 10000, .fd = -1});

	if (perf_create_workers(p) && perf_discover(&p->opts) && perf_connect_targets(p) &&
	    perf_locals_open(&p->locals, &p->opts) && perf_create_streams(p)) {
		perf_wait_until_filled(p);
		if (!perf_any_target_failed(p) && !perf_interrupted) {
			perf_run(p);
			status = perf_report(p);
			status = perf_ledger_save(p) ? status : EXIT_FAILURE;
		}
	}
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		const struct perf_target *t = &p->targets[i];

		if (t->ctrlr != NULL && t->failed && !t->told &&
		    nvme_ctrlr_last_error(t->ctrlr)[0] != 0) { /* otherwise the log has the reason */
			fprintf(stderr, "varve-perf: %s: %s\n", p->opts.targets[i].subnqn,
				nvme_ctrlr_last_error(t->ctrlr));
		}
	}
	perf_close(p);
	poller_unregister(&ticker);
	return status;
}

/* The last CPU, because a target on this machine is likely to use the first ones. */
static const char *perf_default_cores(char *buf, size_t size)
{
	cpu_set_t set;
	int last = 0;

	if (sched_getaffinity(0, sizeof(set), &set) == 0) {
		for (int i = 0; i < CPU_SETSIZE; i++) {
			last = CPU_ISSET(i, &set) ? i : last;
		}
	}
	snprintf(buf, size, "[%d]", last);
	return buf;
}

bool perf_any_drive(const struct perf_options *o)
{
	bool any = false;

	for (unsigned i = 0; i < o->num_targets; i++) {
		any |= !nvme_trtype_is_fabrics(o->targets[i].trtype);
	}
	return any;
}

/* If the user did not say how much memory is wanted: enough for the RAM disks. */
static void perf_make_room(struct perf_options *o)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < o->num_bdevs; i++) {
		bytes += o->bdevs[i].kind == PERF_BDEV_MALLOC ? o->bdevs[i].bytes : 0;
	}
	if (bytes != 0 && o->mem_mb == 0) {
		o->mem_mb = (uint32_t)(bytes >> 20) + 256;
	}
}

int main(int argc, char **argv)
{
	struct perf *p = &perf;
	char error[ENV_ERROR_MAX], cores[16];

	output_guard("varve-perf", EXIT_FAILURE);
	switch (perf_options_parse(&p->opts, argc, argv)) {
	case PERF_EXIT_OK:
		return EXIT_SUCCESS;
	case PERF_EXIT_USAGE:
		return EXIT_FAILURE;
	case PERF_RUN:
		break;
	}
	if (!perf_ledger_open(&p->opts)) {
		return EXIT_FAILURE;
	}
	log_set_print_level(LOG_LEVEL_WARNING);
	perf_make_room(&p->opts);
	struct env_opts e = {.name = "varve-perf",
			     .cores = p->opts.cores ? p->opts.cores : perf_default_cores(cores, sizeof(cores)),
			     .oversubscribe = p->opts.oversubscribe,
			     .mem_mb = p->opts.mem_mb,
			     .instance_id = -1,
			     .no_huge = p->opts.no_huge,
			     .no_pci = !perf_any_drive(&p->opts)};
	if (env_init(&e, error) != 0) {
		fprintf(stderr, "varve-perf: %s\n", error);
		return EXIT_FAILURE;
	}
	struct thread_lib_opts t = {.poll_mode = p->opts.busy ? POLL_MODE_BUSY : POLL_MODE_ADAPTIVE};
	int rc = thread_lib_start(&t);
	if (rc != 0) {
		fprintf(stderr, "varve-perf: threads: %s\n", strerror(-rc));
		env_fini();
		return EXIT_FAILURE;
	}
	signal(SIGINT, perf_on_signal);
	signal(SIGTERM, perf_on_signal);
	signal(SIGPIPE, SIG_IGN);
	rc = perf_measure(p);
	tls_handshake_stop();    /* so may one that ended during a handshake */
	dhchap_stop();           /* a controller that ended during its authentication has left a job behind */
	signal(SIGINT, SIG_IGN); /* the handler uses the control thread, which ends now */
	signal(SIGTERM, SIG_IGN);
	thread_lib_stop();
	env_fini();
	return rc;
}
