/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-perf: see options.c for what it can do. main() runs as the control thread, top to bottom. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dhchap/dhchap.h"
#include "env_dpdk/env.h"
#include "tools/perf/perf.h"
#include "util/log.h"
#include "util/output.h"

#define OPENING_MAX 32       /* queue pairs that are being connected at a time */
#define SETTLE_US   10000000 /* for outstanding I/O to come back at the end */

struct perf {
	struct perf_options opts;
	struct perf_target targets[PERF_MAX_TARGETS];
	struct perf_locals locals;
	struct perf_worker *workers;
	unsigned num_workers;
	uint64_t run_start, run_end; /* ticks */
	struct thread_timer progress;
	uint64_t progress_ios;
};

static volatile sig_atomic_t interrupted;

static void perf_on_signal(int sig)
{
	interrupted = 1;
	thread_control_exit();
}

/* Goes on with fn for every stream. */
static void perf_for_each_stream(struct perf *p, void (*fn)(struct perf_stream *s, void *arg), void *arg)
{
	for (unsigned i = 0; i < p->num_workers; i++) {
		struct perf_stream *s;
		TAILQ_FOREACH (s, &p->workers[i].streams, link) {
			fn(s, arg);
		}
	}
}

/* Targets. */

static void perf_stream_want_if_of(struct perf_stream *s, void *target)
{
	s->wanted |= s->target == target;
}

static void perf_count_opening(struct perf_stream *s, void *n)
{
	*(unsigned *)n += s->opening;
}

static void perf_stream_open_in_turn(struct perf_stream *s, void *n)
{
	if (s->wanted && *(unsigned *)n < OPENING_MAX) {
		++*(unsigned *)n;
		perf_stream_open(s);
	}
}

/* Not all at once: a target's listener has a backlog. */
static void perf_open_some_streams(struct perf *p)
{
	unsigned n = 0;

	perf_for_each_stream(p, perf_count_opening, &n);
	perf_for_each_stream(p, perf_stream_open_in_turn, &n);
}

static void perf_stream_close_if_of(struct perf_stream *s, void *target)
{
	if (s->target == target) {
		perf_stream_close(s);
	}
}

static struct perf perf;

static void perf_target_on_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	struct perf_target *t = arg;

	switch (event) {
	case NVME_EVENT_READY:
		t->ready = true;
		perf_for_each_stream(&perf, perf_stream_want_if_of, t);
		perf_open_some_streams(&perf);
		break;
	case NVME_EVENT_DOWN:
		t->ready = false;
		t->reconnects++;
		perf_for_each_stream(&perf, perf_stream_close_if_of, t);
		break;
	case NVME_EVENT_FAILED:
	case NVME_EVENT_REMOVED:
		t->failed = true;
		perf_for_each_stream(&perf, perf_stream_close_if_of, t);
		break;
	default:
		break;
	}
}

static bool perf_targets_are_settled(void *arg)
{
	struct perf *p = arg;

	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (!p->targets[i].ready && !p->targets[i].failed) {
			return false;
		}
	}
	return true;
}

static bool perf_any_target_failed(const struct perf *p)
{
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (p->targets[i].failed) {
			return true;
		}
	}
	return false;
}

static bool perf_create_ctrlrs(struct perf *p, struct nvme_ctrlr_opts *o)
{
	char error[NVME_ERROR_MAX];

	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		struct perf_target *t = &p->targets[i];

		*t = (struct perf_target){.opts = &p->opts, .index = i};
		o->event_arg = t;
		t->ctrlr = nvme_ctrlr_create(&p->opts.targets[i], o, error);
		if (t->ctrlr == NULL) {
			fprintf(stderr, "varve-perf: %s\n", error);
			return false;
		}
	}
	return true;
}

static bool perf_connect_targets(struct perf *p)
{
	struct nvme_ctrlr_opts o;

	nvme_ctrlr_opts_default(&o);
	snprintf(o.hostnqn, sizeof(o.hostnqn), "%s", p->opts.hostnqn);
	o.hostid[0] = 0x76; /* a host of its own; never all zeroes (Base 5.27.1.21) */
	memcpy(o.hostid + 8, &(pid_t){getpid()}, sizeof(pid_t));
	o.keep_alive_ms = p->opts.keep_alive_ms;
	o.loss_timeout_s = p->opts.loss_timeout_s;
	o.reconnect_delay_s = 1;
	o.io_queues = (uint16_t)(p->opts.qpairs * p->num_workers * (p->opts.nsid ? 1 : 16) < 1024
					 ? p->opts.qpairs * p->num_workers * (p->opts.nsid ? 1 : 16)
					 : 1024);
	o.event = perf_target_on_event;
	bool created = perf_keys_get(&o, &p->opts) && perf_create_ctrlrs(p, &o);
	perf_keys_put(&o);
	if (!created) {
		return false;
	}
	thread_control_wait(perf_targets_are_settled, p, 60 * UINT64_C(1000000));
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (!p->targets[i].ready) {
			fprintf(stderr, "varve-perf: %s %s: %s\n", p->opts.targets[i].traddr, p->opts.targets[i].subnqn,
				nvme_ctrlr_last_error(p->targets[i].ctrlr));
			return false;
		}
	}
	return true;
}

/* Streams. */

static bool perf_streams_add(struct perf *p, struct perf_target *t, const struct nvme_ns *ns)
{
	unsigned n = p->num_workers * p->opts.qpairs;
	uint64_t bytes = ns->num_blocks * ns->block_size;
	uint64_t region = p->opts.region_bytes && p->opts.region_bytes < bytes ? p->opts.region_bytes : bytes;
	uint64_t units = region / p->opts.io_size / n;

	uint32_t largest = t->ctrlr ? nvme_ctrlr_max_transfer(t->ctrlr) : UINT32_MAX;

	if (p->opts.io_size % ns->block_size != 0 || p->opts.io_size > largest) {
		fprintf(stderr, "varve-perf: --io-size %u: namespace %u wants a multiple of %u, at most %u\n",
			p->opts.io_size, ns->nsid, ns->block_size, largest);
		return false;
	}
	if (ns->md_size != 0 &&
	    (ns->pi_type == 0 || ns->md_size != NVME_PI_BYTES)) { /* the controller would move it with the data */
		fprintf(stderr,
			"varve-perf: namespace %u: its blocks carry %u bytes of metadata; only 8, of protection "
			"information, are possible\n",
			ns->nsid, ns->md_size);
		return false;
	}
	if (units < p->opts.queue_depth) {
		fprintf(stderr,
			"varve-perf: namespace %u: %llu bytes are too few for %u queue pairs with %u I/Os of %u bytes "
			"each\n",
			ns->nsid, (unsigned long long)region, n, p->opts.queue_depth, p->opts.io_size);
		return false;
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t first = i * units * (p->opts.io_size / ns->block_size);
		struct perf_stream *s =
			perf_stream_create(&p->opts, t, &p->workers[i % p->num_workers], ns, first, units);

		if (s == NULL) {
			fprintf(stderr, "varve-perf: out of memory; --mem gives more\n");
			return false;
		}
		s->wanted = true;
	}
	return true;
}

static bool perf_create_streams(struct perf *p)
{
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		struct perf_target *t = &p->targets[i];
		const struct nvme_ns *ns = NULL;
		unsigned found = 0;

		while ((ns = nvme_ctrlr_next_ns(t->ctrlr, ns ? ns->nsid : 0)) != NULL) {
			if (p->opts.nsid == 0 || ns->nsid == p->opts.nsid) {
				found++;
				if (!perf_streams_add(p, t, ns)) {
					return false;
				}
			}
		}
		if (found == 0) {
			fprintf(stderr, "varve-perf: %s has no %snamespace\n", p->opts.targets[i].subnqn,
				p->opts.nsid ? "such " : "");
			return false;
		}
	}
	for (unsigned i = 0; i < p->locals.num; i++) {
		struct nvme_ns ns = perf_local_ns(&p->locals.targets[i]);

		if (!perf_streams_add(p, &p->locals.targets[i], &ns)) {
			return false;
		}
	}
	return true;
}

struct count {
	unsigned opening, wanted, prefilling, outstanding, unconnected;
	struct perf_stats stats;
	uint64_t miscompares, budget;
};

static void perf_count_stream(struct perf_stream *s, void *arg)
{
	struct count *c = arg;

	c->opening += s->opening;
	c->wanted += s->wanted;
	c->unconnected += s->qpair == NULL && s->channel == NULL;
	c->prefilling += __atomic_load_n(&s->phase, __ATOMIC_ACQUIRE) == STREAM_PREFILL; /* pairs with stream_poll() */
	/* the rest is a look from outside: exact once the streams have stopped */
	c->outstanding += __atomic_load_n(&s->outstanding, __ATOMIC_RELAXED);
	c->stats.reads += __atomic_load_n(&s->stats.reads, __ATOMIC_RELAXED);
	c->stats.writes += __atomic_load_n(&s->stats.writes, __ATOMIC_RELAXED);
	c->stats.errors += __atomic_load_n(&s->stats.errors, __ATOMIC_RELAXED);
	c->stats.retries += __atomic_load_n(&s->stats.retries, __ATOMIC_RELAXED);
	c->miscompares += __atomic_load_n(&s->miscompares, __ATOMIC_RELAXED);
	c->budget += __atomic_load_n(&s->budget, __ATOMIC_RELAXED);
}

static struct count perf_count(struct perf *p)
{
	struct count c = {0};

	perf_for_each_stream(p, perf_count_stream, &c);
	return c;
}

static bool perf_streams_are_open(void *arg)
{
	struct perf *p = arg;

	struct count c = perf_count(p);

	return interrupted || perf_any_target_failed(p) || c.opening + c.wanted == 0;
}

static bool perf_streams_are_filled(void *arg)
{
	struct perf *p = arg;

	return interrupted || perf_any_target_failed(p) || perf_count(p).prefilling == 0;
}

struct phase {
	struct perf_stream *stream;
	enum stream_phase phase;
	uint64_t budget;
};

static void perf_phase_set(void *arg)
{
	struct phase *ph = arg;

	ph->stream->phase = ph->phase;
	ph->stream->budget = ph->budget;
}

static void perf_stream_set_phase(struct perf_stream *s, void *arg)
{
	struct phase *ph = arg;

	ph->stream = s;
	thread_call(s->worker->thread, perf_phase_set, ph);
}

static bool perf_is_drained(void *arg)
{
	struct count c = perf_count(arg);

	return c.outstanding == 0;
}

static bool perf_run_is_over(void *arg)
{
	struct perf *p = arg;

	if (interrupted || perf_any_target_failed(p)) {
		return true;
	}
	if (p->opts.ios != 0) {
		struct count c = perf_count(p);
		return c.budget == 0 && c.outstanding == 0 && c.unconnected == 0;
	}
	return env_ticks() >= p->run_end;
}

static void perf_show_progress(void *arg)
{
	struct perf *p = arg;
	struct count c = perf_count(p);
	uint64_t ios = c.stats.reads + c.stats.writes;

	/* on a terminal in one place, elsewhere a line each */
	bool terminal = isatty(STDERR_FILENO);
	fprintf(stderr, "%s%4llu s  %9llu IOPS  %llu errors%s%s", terminal ? "\r" : "",
		(unsigned long long)((env_ticks() - p->run_start) / env_ticks_hz()),
		(unsigned long long)(ios - p->progress_ios), (unsigned long long)c.stats.errors,
		c.unconnected ? "  (reconnecting)"
		: terminal    ? "               "
			      : "",
		terminal ? "" : "\n");
	p->progress_ios = ios;
	thread_timer_start(&p->progress, 1000000);
}

static void perf_run(struct perf *p)
{
	unsigned n = 0;
	struct phase ph = {.phase = STREAM_RUN};

	for (unsigned i = 0; i < p->num_workers; i++) {
		struct perf_stream *s;
		TAILQ_FOREACH (s, &p->workers[i].streams, link) {
			n++;
		}
		if (p->opts.rate != 0) {
			p->workers[i].rate = (double)p->opts.rate / p->num_workers / (double)env_ticks_hz();
			thread_call(p->workers[i].thread, perf_worker_start_rate, &p->workers[i]);
		}
	}
	ph.budget = p->opts.idle ? 0 : p->opts.ios ? (p->opts.ios + n - 1) / n : UINT64_MAX;
	p->run_start = env_ticks();
	p->run_end = p->run_start + p->opts.seconds * env_ticks_hz();
	perf_for_each_stream(p, perf_stream_set_phase, &ph);
	if (p->opts.progress || (!p->opts.quiet && !p->opts.json && isatty(STDERR_FILENO))) {
		p->progress.fn = perf_show_progress;
		p->progress.arg = p;
		thread_timer_start(&p->progress, 1000000);
	}
	thread_control_wait(perf_run_is_over, p, UINT64_MAX);
	p->run_end = env_ticks();
	thread_timer_stop(&p->progress);
	if (p->progress.fn != NULL && isatty(STDERR_FILENO)) {
		fprintf(stderr, "\r%60s\r", "");
	}
	ph.phase = STREAM_STOP;
	ph.budget = 0;
	perf_for_each_stream(p, perf_stream_set_phase, &ph);
	thread_control_wait(perf_is_drained, p, SETTLE_US);
	for (unsigned i = 0; i < p->num_workers && p->opts.rate != 0; i++) {
		thread_call(p->workers[i].thread, perf_worker_stop_rate, &p->workers[i]);
	}
}

/* Everything at its end. */

static void perf_target_on_gone(void *arg)
{
	((struct perf_target *)arg)->ctrlr = NULL;
}

static bool perf_targets_are_gone(void *arg)
{
	struct perf *p = arg;

	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		if (p->targets[i].ctrlr != NULL) {
			return false;
		}
	}
	return true;
}

/* Unlike those of a connection, I/Os of a block device cannot be given up: they end. */
static void perf_close_locals(struct perf *p)
{
	struct phase stop = {.phase = STREAM_STOP};

	if (p->locals.num != 0) {
		perf_for_each_stream(p, perf_stream_set_phase, &stop);
		thread_control_wait(perf_is_drained, p, UINT64_MAX);
	}
	for (unsigned i = 0; i < p->locals.num; i++) {
		perf_for_each_stream(p, perf_stream_close_if_of, &p->locals.targets[i]);
	}
	perf_locals_close(&p->locals);
}

static void perf_close(struct perf *p)
{
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		p->targets[i].closed = true;
		perf_for_each_stream(p, perf_stream_close_if_of, &p->targets[i]);
		if (p->targets[i].ctrlr != NULL) {
			nvme_ctrlr_destroy(p->targets[i].ctrlr, perf_target_on_gone, &p->targets[i]);
		}
	}
	if (!thread_control_wait(perf_targets_are_gone, p, SETTLE_US)) {
		fprintf(stderr, "varve-perf: a controller did not shut down in time\n");
	}
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

static void perf_result_add(struct perf_stream *s, void *arg)
{
	struct perf_result *r = arg;

	r->miscompares += s->miscompares;
	r->stats.reads += s->stats.reads;
	r->stats.writes += s->stats.writes;
	r->stats.errors += s->stats.errors;
	r->stats.retries += s->stats.retries;
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

/* Opens what is to be opened, and has the conditions of thread_control_wait() looked at when nothing else happens. */
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
		thread_control_wait(perf_streams_are_open, p, UINT64_MAX);
		thread_control_wait(perf_streams_are_filled, p, UINT64_MAX);
		if (!perf_any_target_failed(p) && !interrupted) {
			perf_run(p);
			status = perf_report(p);
		}
	}
	for (unsigned i = 0; i < p->opts.num_targets; i++) {
		const struct perf_target *t = &p->targets[i];

		if (t->ctrlr != NULL && t->failed &&
		    nvme_ctrlr_last_error(t->ctrlr)[0] != 0) { /* else the log has said it */
			fprintf(stderr, "varve-perf: %s: %s\n", p->opts.targets[i].subnqn,
				nvme_ctrlr_last_error(t->ctrlr));
		}
	}
	perf_close(p);
	poller_unregister(&ticker);
	return status;
}

/* The target is likely to sit on the first CPUs: the worker takes the last one. */
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

static bool perf_any_drive(const struct perf_options *o)
{
	bool any = false;

	for (unsigned i = 0; i < o->num_targets; i++) {
		any |= !nvme_trtype_is_fabrics(o->targets[i].trtype);
	}
	return any;
}

/* For RAM disks, where the user has not said how much memory there shall be. */
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
	dhchap_stop();           /* a controller that went in the middle of it has left a job behind */
	signal(SIGINT, SIG_IGN); /* the handler needs the control thread, and all is done */
	signal(SIGTERM, SIG_IGN);
	thread_lib_stop();
	env_fini();
	return rc;
}
