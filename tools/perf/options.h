/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/nvme.h"
#include "tools/perf/verify.h"

#define PERF_MAX_TARGETS 64
#define PERF_MAX_BDEVS   16

enum perf_bdev_kind { PERF_BDEV_NULL, PERF_BDEV_MALLOC, PERF_BDEV_FILE };

/* A block device inside this process. */
struct perf_bdev {
	enum perf_bdev_kind kind;
	uint64_t bytes;   /* null, malloc */
	const char *path; /* file */
};

struct perf_options {
	struct nvme_trid targets[PERF_MAX_TARGETS]; /* -r */
	unsigned num_targets;
	struct perf_bdev bdevs[PERF_MAX_BDEVS]; /* -b */
	unsigned num_bdevs;
	uint32_t nsid;            /* -n; 0: every namespace */
	uint32_t queue_depth;     /* -q: outstanding per queue pair */
	uint32_t io_size;         /* -o: bytes */
	bool random;              /* of -w */
	uint32_t read_percent;    /* of -w and -M */
	bool idle;                /* of -w: connects and sends nothing but keep-alives */
	uint32_t seconds;         /* -t; 0: until --ios */
	uint64_t ios;             /* --ios: in all; 0: until -t */
	uint32_t qpairs;          /* -P: per core and namespace */
	uint64_t rate;            /* --rate: I/O per second in all; 0: as fast as they complete */
	bool poisson;             /* --poisson: an open loop of that rate */
	uint64_t region_bytes;    /* --region: so many bytes of each namespace; 0: all of it */
	uint64_t region_start;    /* --region-start: from this byte on */
	bool verify;              /* --verify */
	const char *ledger;       /* --ledger: the file to write at the end; NULL: none */
	const char *check_ledger; /* --check-ledger: the file to check against; NULL: none */
	int checked_fd;           /* of that */
	struct perf_ledger_header checked;
	uint64_t seed;          /* --seed */
	uint32_t keep_alive_ms; /* --kato */
	int32_t loss_timeout_s; /* --loss-timeout */
	bool hdgst, ddgst;
	bool json, quiet, progress;
	char hostnqn[NVME_NQN_MAX];
	const char *dhchap_key, *dhchap_ctrlr_key; /* files; NULL: none */
	bool concat;
	const char *psk; /* the same */
	const char *cores;
	uint32_t mem_mb;
	bool no_huge, busy, oversubscribe;
};

enum perf_parse { PERF_RUN, PERF_EXIT_OK, PERF_EXIT_USAGE };
/* Reads the command line; prints help or what is wrong (option, value, what is allowed). */
enum perf_parse perf_options_parse(struct perf_options *o, int argc, char **argv);

#endif
