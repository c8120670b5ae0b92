/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-perf: targets with namespaces; workers, one per lcore; streams, one per queue pair, or per channel of a block
 * device.
 *
 * A stream owns its share of a namespace, `units` ranges of io_size bytes, so that verification needs no lock: no other
 * stream writes there. The control thread opens and closes queue pairs; the worker's thread does the rest.
 *
 *     main.c       the program's life, and its result
 *     targets.c    controllers, and which streams are connected to them
 *     layout.c     how namespaces are shared among streams
 *     run.c        filling, running, stopping, progress
 *     stream.c     a stream as the control thread sees it; worker.c: as its worker's thread does
 *     verify.c     --verify: which data may be read; the files of --ledger and --check-ledger
 *     arrivals.c   --poisson: when I/Os are due
 *     local.c, discover.c, keys.c, report.c, options.c, pattern.c, ledger.c, histogram.c */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include <signal.h>

#include "bdev/bdev.h"
#include "nvme/nvme.h"
#include "thread/thread.h"
#include "tools/perf/arrivals.h"
#include "tools/perf/histogram.h"
#include "tools/perf/ledger.h"
#include "tools/perf/options.h"

struct perf;
struct perf_stream;

#define PERF_SETTLE_US 10000000 /* for outstanding I/O to end when everything stops */

struct perf_io {
	struct perf_stream *stream;
	struct iovec iov;
	uint64_t unit;
	uint64_t start_ticks;
	uint64_t write_number; /* --verify: of a write, in the ledger */
	bool is_read;
	STAILQ_ENTRY(perf_io) link;
	union { /* the last member: memory of the transport or the bdev module follows */
		struct nvme_request req;
		struct bdev_io bio; /* of a target that is a block device */
	};
};
STAILQ_HEAD(perf_io_list, perf_io);

enum stream_phase {
	STREAM_PREFILL, /* --verify: writes every unit once */
	STREAM_FILLED,
	STREAM_RUN,
	STREAM_STOP, /* nothing new is submitted */
};

struct perf_stats {
	uint64_t reads, writes, errors, retries;
	uint64_t late; /* --poisson: I/Os that were due at the end and had not been submitted */
	struct histogram read_ticks, write_ticks;
};

struct perf_target {
	struct perf *perf;
	struct nvme_ctrlr *ctrlr;
	struct bdev_desc *desc; /* instead: a block device of this process */
	const struct perf_options *opts;
	unsigned index;
	bool ready, failed, closed;
	bool told; /* why it could not be connected */
	uint32_t reconnects;
	/* A queue pair was refused after a reconnection, so that the controller is reset soon; how often that was, one
	 * soon after the other, and when it was last. */
	struct thread_timer refused_timer;
	uint32_t refusals;
	uint64_t refused_ticks;
};

struct perf_stream {
	struct perf_target *target;
	struct perf_worker *worker;
	const struct perf_options *opts;
	uint32_t nsid, block_size, blocks_per_unit;
	uint8_t pi_format; /* NVME_PI_GUARD_... */
	/* Of dword 12: the controller inserts and strips protection information; 0: blocks have none. */
	uint32_t prinfo;
	uint64_t first_lba, units;
	uint64_t writer, created_ticks; /* --verify: who writes, and when its clock began */
	/* the worker's thread */
	struct nvme_qpair *qpair;     /* NULL: no connection */
	struct bdev_channel *channel; /* instead */
	struct poller *poller;
	struct perf_io_list idle, retry; /* retry: lost with a connection, to be submitted again */
	uint32_t outstanding;
	enum stream_phase phase; /* written by the control thread in thread_call(); STREAM_FILLED is stored by the
				    worker, atomically */
	uint64_t cursor, random;
	uint64_t budget;          /* I/Os still to be submitted */
	struct arrivals arrivals; /* --poisson, in STREAM_RUN: when they are due */
	struct ledger ledger;     /* --verify: of the units */
	uint32_t *found;          /* --verify: generations of a unit's blocks that a read returned */
	uint64_t *busy;           /* --verify: bitmap of units with I/O outstanding */
	struct perf_stats stats;
	uint64_t miscompares;
	/* the control thread */
	bool wanted; /* to be opened when its turn comes */
	bool opening;
	struct nvme_qpair *closing;
	void *memory, *buffers;
	TAILQ_ENTRY(perf_stream) link;
};
TAILQ_HEAD(perf_stream_list, perf_stream);

struct perf_worker {
	struct thread *thread;
	unsigned lcore;
	struct thread_timer rate_timer; /* with a rate but not --poisson: when the next I/O is due */
	struct poller *arrivals_poller; /* with --poisson */
	double rate;                    /* I/Os per tick; 0: no limit */
	double arrival_rate;            /* --poisson: the same, of each stream */
	uint64_t rate_start;            /* ticks */
	uint64_t rate_issued;
	struct perf_stream_list streams;
};

/* worker.c. All run on the worker's thread (thread_call()). */

/* Begins to use s->qpair. */
void perf_stream_attach(void *stream);
/* Stops using s->qpair. */
void perf_stream_detach(void *stream);
/* s->closing has stopped: moves outstanding I/Os to the list retry. */
void perf_stream_abort(void *stream);
/* Gets a channel of its block device; s->channel is NULL if there is no memory. */
void perf_stream_attach_local(void *stream);
/* Gives the channel back; no I/O is outstanding. */
void perf_stream_detach_local(void *stream);
/* Begins to limit the rate of the worker's streams; w->rate is set. */
void perf_worker_start_rate(void *worker);
/* Ends that. */
void perf_worker_stop_rate(void *worker);

/* local.c. Control thread: block devices inside the process. */
struct perf_locals {
	struct perf_target targets[PERF_MAX_BDEVS];
	unsigned num;
	bool started;
};
/* Creates and opens the block devices. False: the reason is on stderr, and perf_locals_close() must still be called. */
bool perf_locals_open(struct perf_locals *l, const struct perf_options *o);
/* Closes and deletes them, after their streams have been closed. */
void perf_locals_close(struct perf_locals *l);
/* The block device as if it were a namespace. */
struct nvme_ns perf_local_ns(const struct perf_target *t);

/* stream.c. Control thread. A stream on worker for `units` units of a namespace from first_lba; NULL when out of
 * memory. */
struct perf_stream *perf_stream_create(const struct perf_options *opts, struct perf_target *target,
				       struct perf_worker *worker, const struct nvme_ns *ns, uint64_t first_lba,
				       uint64_t units);
void perf_stream_free(struct perf_stream *s);
void perf_stream_open(struct perf_stream *s); /* its target is ready */
void perf_stream_close(struct perf_stream *s);

/* discover.c. Control thread. Replaces each discovery service among the targets by the subsystems it reports. False:
 * there are none, or no answer came; the reason is on stderr. */
bool perf_discover(struct perf_options *o);

/* keys.c. Control thread. Reads the keys that the options name into c. False: the reason is on stderr. perf_keys_put()
 * must be called in any case, after the controllers have been created. */
bool perf_keys_get(struct nvme_ctrlr_opts *c, const struct perf_options *o);
void perf_keys_put(const struct nvme_ctrlr_opts *c);

/* report.c */
struct perf_result {
	double seconds;
	uint64_t miscompares;
	uint32_t reconnects;
	struct perf_stats stats; /* of all streams */
};
void perf_report_text(const struct perf_options *o, const struct perf_result *r);
void perf_report_json(const struct perf_options *o, const struct perf_result *r);

/* The program. */
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
/* A signal has asked for the end. */
extern volatile sig_atomic_t perf_interrupted;

/* targets.c. Control thread. */

/* Calls fn(stream, arg) for every stream of every worker. */
void perf_for_each_stream(struct perf *p, void (*fn)(struct perf_stream *s, void *arg), void *arg);
/* Whether a controller is lost, or a queue pair could not be connected. */
bool perf_any_target_failed(const struct perf *p);
/* Whether one of the targets is a local drive. */
bool perf_any_drive(const struct perf_options *o);
/* Creates the controllers, and waits until each is ready or has failed. False: said on stderr. */
bool perf_connect_targets(struct perf *p);
/* Connects some of the streams that wait for it: not all at once. */
void perf_open_some_streams(struct perf *p);
void perf_close_streams_of(struct perf *p, struct perf_target *target);
/* A queue pair of a controller that is ready was not connected. After a reconnection the controller is reset soon, for
 * as long as it may be lost; otherwise, the target has failed. */
void perf_target_refuses_queue(struct perf_target *t, int error);
/* Closes all streams of controllers, and waits until the controllers are gone, for PERF_SETTLE_US at most. */
void perf_close_targets(struct perf *p);

/* layout.c. Control thread. Creates the streams of all namespaces. False: said on stderr. */
bool perf_create_streams(struct perf *p);

/* run.c. Control thread. The first two return early once a target has failed or a signal has asked for the
 * end. */

/* Waits until the streams are connected and, for --verify, have written every unit. */
void perf_wait_until_filled(struct perf *p);
/* The measurement, from p->run_start to p->run_end. */
void perf_run(struct perf *p);
/* Waits, without a limit, until no stream has outstanding I/O; nothing new is submitted. */
void perf_stop_streams(struct perf *p);

#endif
