/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/perf/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/nearest.h"
#include "util/parse.h"

static const char help[] =
	"Usage: varve-perf -r 'trtype:RDMA|TCP traddr:ADDRESS trsvcid:4420 subnqn:NQN' [option...]\n"
	"       varve-perf -b null:SIZE|malloc:SIZE|file:PATH [option...]\n"
	"Drives NVMe-oF targets, local NVMe drives or block devices, and reports throughput and latency.\n"
	"\n"
	"  -r, --target TRID      a target, as 'key:value ...' of trtype adrfam traddr trsvcid subnqn; may be "
	"repeated;\n"
	"                         without subnqn: all that the discovery service there shows; a drive of this machine "
	"that varve\n"
	"                         may use: 'trtype:PCIe traddr:0000:5e:00.0'\n"
	"  -b, --bdev SPEC        a block device inside this process, without any network: null:SIZE, malloc:SIZE (a "
	"RAM disk), or\n"
	"                         file:PATH (a file or block device, by io_uring; with writes it is overwritten); may "
	"be repeated\n"
	"  -n, --nsid N           only this namespace of each target (default: all)\n"
	"  -q, --queue-depth N    I/Os outstanding per queue pair (default 32)\n"
	"  -o, --io-size BYTES    bytes per I/O; k and M are understood (default 4k)\n"
	"  -w, --workload NAME    read write rw randread randwrite randrw (default randread);\n"
	"                         none: connects, and keeps the connections alive\n"
	"  -M, --read-percent N   reads among the I/Os of rw and randrw (default 50)\n"
	"  -t, --time SECONDS     how long (default 10)\n"
	"      --ios N            end after N I/Os in all\n"
	"  -P, --qpairs N         queue pairs per core and namespace (default 1)\n"
	"      --rate N           at most N I/Os per second in all\n"
	"      --poisson          with --rate: I/Os are due at random times, as requests of many users are, N per "
	"second "
	"in the mean,\n"
	"                         whatever becomes of earlier ones. Latencies begin when an I/O is due, also if it has "
	"to "
	"wait\n"
	"                         for its queue; --queue-depth should be large. Workers never sleep\n"
	"      --region BYTES     use only the first BYTES of each namespace\n"
	"      --region-start BYTES\n"
	"                         begin at this byte of each namespace, so that several hosts share one\n"
	"      --verify           every block that is written says by whom, when and for the how-manieth time; a read "
	"may "
	"return the\n"
	"                         last acknowledged write, or a later one without an answer, nothing older; writes the "
	"region first\n"
	"      --ledger FILE      with --verify: write to FILE, at the end, what each block may hold\n"
	"      --check-ledger FILE\n"
	"                         instead of a workload: read all blocks that FILE is about once, and check them\n"
	"      --seed N           of the random numbers (default: the clock)\n"
	"      --hdgst            TCP: a CRC32C with every header\n"
	"      --ddgst            TCP: a CRC32C with all data\n"
	"      --psk FILE         TCP: a TLS key NVMeTLSkey-1:XX:BASE64: by which connections are encrypted\n"
	"      --concat           TCP: connections are encrypted by a key that is generated in the authentication\n"
	"      --hostnqn NQN      the name of this host\n"
	"      --dhchap-key FILE  a secret DHHC-1:XX:BASE64: that proves to the targets who this host is\n"
	"      --dhchap-ctrlr-key FILE\n"
	"                         the secret that each target must prove to have\n"
	"      --kato MS          keep-alive time, 0 for none (default 10000)\n"
	"      --loss-timeout S   reconnect for so long after a connection is lost; -1: for ever (default 0). Writes "
	"that "
	"were\n"
	"                         lost are repeated at once, without waiting until the lost controller has ended: one "
	"that it\n"
	"                         carries out late may be found by --verify as old data\n"
	"  -j, --json             the results as JSON\n"
	"      --quiet            no progress line\n"
	"      --progress         progress lines even where stderr is no terminal\n"
	"  -m, --cores LIST       cores to use: 0x3, 0-1 or [0,1]; one worker each (default: the last CPU)\n"
	"      --oversubscribe    allow more workers than CPUs\n"
	"  -s, --mem MB           memory\n"
	"      --no-huge          use no hugepages\n"
	"      --busy             workers never sleep\n"
	"  -h, --help\n";

enum {
	OPT_IOS = 256,
	OPT_RATE,
	OPT_POISSON,
	OPT_REGION,
	OPT_REGION_START,
	OPT_VERIFY,
	OPT_LEDGER,
	OPT_CHECK_LEDGER,
	OPT_SEED,
	OPT_HOSTNQN,
	OPT_KATO,
	OPT_LOSS,
	OPT_QUIET,
	OPT_PROGRESS,
	OPT_NO_HUGE,
	OPT_BUSY,
	OPT_OVERSUBSCRIBE,
	OPT_DHCHAP_KEY,
	OPT_PSK,
	OPT_CONCAT,
	OPT_DHCHAP_CTRLR_KEY,
	OPT_HDGST,
	OPT_DDGST,
};

static const struct option long_options[] = {
	{"target", required_argument, NULL, 'r'},
	{"bdev", required_argument, NULL, 'b'},
	{"nsid", required_argument, NULL, 'n'},
	{"queue-depth", required_argument, NULL, 'q'},
	{"io-size", required_argument, NULL, 'o'},
	{"workload", required_argument, NULL, 'w'},
	{"read-percent", required_argument, NULL, 'M'},
	{"time", required_argument, NULL, 't'},
	{"ios", required_argument, NULL, OPT_IOS},
	{"qpairs", required_argument, NULL, 'P'},
	{"rate", required_argument, NULL, OPT_RATE},
	{"poisson", no_argument, NULL, OPT_POISSON},
	{"region", required_argument, NULL, OPT_REGION},
	{"region-start", required_argument, NULL, OPT_REGION_START},
	{"verify", no_argument, NULL, OPT_VERIFY},
	{"ledger", required_argument, NULL, OPT_LEDGER},
	{"check-ledger", required_argument, NULL, OPT_CHECK_LEDGER},
	{"seed", required_argument, NULL, OPT_SEED},
	{"hdgst", no_argument, NULL, OPT_HDGST},
	{"ddgst", no_argument, NULL, OPT_DDGST},
	{"hostnqn", required_argument, NULL, OPT_HOSTNQN},
	{"psk", required_argument, NULL, OPT_PSK},
	{"concat", no_argument, NULL, OPT_CONCAT},
	{"dhchap-key", required_argument, NULL, OPT_DHCHAP_KEY},
	{"dhchap-ctrlr-key", required_argument, NULL, OPT_DHCHAP_CTRLR_KEY},
	{"kato", required_argument, NULL, OPT_KATO},
	{"loss-timeout", required_argument, NULL, OPT_LOSS},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, OPT_QUIET},
	{"progress", no_argument, NULL, OPT_PROGRESS},
	{"cores", required_argument, NULL, 'm'},
	{"oversubscribe", no_argument, NULL, OPT_OVERSUBSCRIBE},
	{"mem", required_argument, NULL, 's'},
	{"no-huge", no_argument, NULL, OPT_NO_HUGE},
	{"busy", no_argument, NULL, OPT_BUSY},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static const struct {
	const char *name;
	bool random, fixed;
	uint32_t read_percent;
	bool idle;
} workloads[] = {
	{"read", false, true, 100},     {"write", false, true, 0},    {"rw", false, false, 50},
	{"randread", true, true, 100},  {"randwrite", true, true, 0}, {"randrw", true, false, 50},
	{"none", false, true, 0, true},
};

static bool perf_option_complain(const char *option, const char *value, const char *allowed)
{
	fprintf(stderr, "varve-perf: %s '%s': allowed is %s\n", option, value, allowed);
	return false;
}

static bool perf_option_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	char allowed[64];

	if (parse_size(text, min, max, out) == 0) {
		return true;
	}
	snprintf(allowed, sizeof(allowed), "a number from %llu to %llu", (unsigned long long)min,
		 (unsigned long long)max);
	return perf_option_complain(option, text, allowed);
}

static bool perf_option_number32(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t v;

	if (!perf_option_number(option, text, min, max, &v)) {
		return false;
	}
	*out = (uint32_t)v;
	return true;
}

static bool perf_option_set_workload(struct perf_options *o, const char *name, bool *fixed)
{
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		if (strcmp(name, workloads[i].name) == 0) {
			o->random = workloads[i].random;
			o->read_percent = workloads[i].read_percent;
			o->idle = workloads[i].idle;
			*fixed = workloads[i].fixed;
			return true;
		}
	}
	return perf_option_complain("--workload", name, "read, write, rw, randread, randwrite, randrw or none");
}

static bool perf_option_add_target(struct perf_options *o, const char *text)
{
	char error[NVME_ERROR_MAX];

	if (o->num_targets == PERF_MAX_TARGETS) {
		return perf_option_complain("--target", text, "at most 64 targets");
	}
	if (nvme_trid_parse(&o->targets[o->num_targets], text, error) != 0) {
		fprintf(stderr, "varve-perf: --target: %s\n", error);
		return false;
	}
	o->num_targets++;
	return true;
}

static bool perf_option_add_bdev(struct perf_options *o, const char *text)
{
	struct perf_bdev *b = &o->bdevs[o->num_bdevs];

	if (o->num_bdevs == PERF_MAX_BDEVS) {
		return perf_option_complain("--bdev", text, "at most 16 block devices");
	}
	if (strncmp(text, "file:", 5) == 0 && text[5] != '\0') {
		*b = (struct perf_bdev){.kind = PERF_BDEV_FILE, .path = text + 5};
	} else if (strncmp(text, "null:", 5) == 0 && parse_size(text + 5, 1 << 20, UINT64_C(1) << 60, &b->bytes) == 0) {
		b->kind = PERF_BDEV_NULL;
	} else if (strncmp(text, "malloc:", 7) == 0 &&
		   parse_size(text + 7, 1 << 20, UINT64_C(1) << 40, &b->bytes) == 0) {
		b->kind = PERF_BDEV_MALLOC;
	} else {
		return perf_option_complain("--bdev", text, "null:SIZE, malloc:SIZE (1M or more) or file:PATH");
	}
	o->num_bdevs++;
	return true;
}

static bool perf_option_set_loss_timeout(struct perf_options *o, const char *text)
{
	uint64_t v;

	if (strcmp(text, "-1") == 0) {
		o->loss_timeout_s = -1;
		return true;
	}
	if (!perf_option_number("--loss-timeout", text, 0, INT32_MAX, &v)) {
		return false;
	}
	o->loss_timeout_s = (int32_t)v;
	return true;
}

static bool perf_option_set_hostnqn(struct perf_options *o, const char *text)
{
	if (!nvme_nqn_is_valid(text)) {
		return perf_option_complain("--hostnqn", text,
					    "an NQN, nqn.yyyy-mm.reverse.domain:name, at most 223 bytes");
	}
	snprintf(o->hostnqn, sizeof(o->hostnqn), "%s", text);
	return true;
}

/* text: NULL for --poisson. */
static bool perf_option_set_rate(struct perf_options *o, const char *text)
{
	if (text == NULL) {
		o->poisson = true;
		return true;
	}
	return perf_option_number("--rate", text, 1, UINT32_MAX, &o->rate);
}

struct parse {
	bool workload_fixed, has_mix;
	uint32_t mix;
};

/* Options without an argument. */
static bool perf_option_set_flag(struct perf_options *o, int c)
{
	switch (c) {
	case OPT_VERIFY:
		return o->verify = true;
	case OPT_HDGST:
		return o->hdgst = true;
	case OPT_DDGST:
		return o->ddgst = true;
	case 'j':
		return o->json = true;
	case OPT_QUIET:
		return o->quiet = true;
	case OPT_PROGRESS:
		return o->progress = true;
	case OPT_OVERSUBSCRIBE:
		return o->oversubscribe = true;
	case OPT_NO_HUGE:
		return o->no_huge = true;
	case OPT_BUSY:
		return o->busy = true;
	default:
		return false; /* getopt_long has said what is wrong */
	}
}

static bool perf_option_set(struct perf_options *o, int c, const char *arg, struct parse *p)
{
	switch (c) {
	case 'r':
		return perf_option_add_target(o, arg);
	case 'b':
		return perf_option_add_bdev(o, arg);
	case 'n':
		return perf_option_number32("--nsid", arg, 1, UINT32_MAX - 1, &o->nsid);
	case 'q':
		return perf_option_number32("--queue-depth", arg, 1, 4096, &o->queue_depth);
	case 'o':
		return perf_option_number32("--io-size", arg, 512, 1 << 24, &o->io_size);
	case 'w':
		return perf_option_set_workload(o, arg, &p->workload_fixed);
	case 'M':
		p->has_mix = true;
		return perf_option_number32("--read-percent", arg, 0, 100, &p->mix);
	case 't':
		return perf_option_number32("--time", arg, 1, 1 << 30, &o->seconds);
	case OPT_IOS:
		o->seconds = 0;
		return perf_option_number("--ios", arg, 1, UINT64_MAX >> 1, &o->ios);
	case 'P':
		return perf_option_number32("--qpairs", arg, 1, 1024, &o->qpairs);
	case OPT_RATE:
	case OPT_POISSON:
		return perf_option_set_rate(o, arg);
	case OPT_REGION:
		return perf_option_number("--region", arg, 512, UINT64_MAX >> 1, &o->region_bytes);
	case OPT_REGION_START:
		return perf_option_number("--region-start", arg, 0, UINT64_MAX >> 1, &o->region_start);
	case OPT_LEDGER:
		o->ledger = arg;
		return true;
	case OPT_CHECK_LEDGER:
		o->check_ledger = arg;
		return true;
	case OPT_SEED:
		return perf_option_number("--seed", arg, 0, UINT64_MAX >> 1, &o->seed);
	case OPT_HOSTNQN:
		return perf_option_set_hostnqn(o, arg);
	case OPT_DHCHAP_KEY:
		o->dhchap_key = arg;
		return true;
	case OPT_PSK:
		o->psk = arg;
		return true;
	case OPT_CONCAT:
		o->concat = true;
		return true;
	case OPT_DHCHAP_CTRLR_KEY:
		o->dhchap_ctrlr_key = arg;
		return true;
	case OPT_KATO:
		return perf_option_number32("--kato", arg, 0, 1 << 30, &o->keep_alive_ms);
	case OPT_LOSS:
		return perf_option_set_loss_timeout(o, arg);
	case 'm':
		o->cores = arg;
		return true;
	case 's':
		return perf_option_number32("--mem", arg, 16, 1 << 24, &o->mem_mb);
	default:
		return perf_option_set_flag(o, c);
	}
}

static bool perf_options_check(struct perf_options *o, const struct parse *p)
{
	if (p->has_mix) {
		if (p->workload_fixed) {
			fprintf(stderr, "varve-perf: --read-percent goes with the workloads rw and randrw\n");
			return false;
		}
		o->read_percent = p->mix;
	}
	if (o->poisson && o->rate == 0) {
		fprintf(stderr, "varve-perf: --poisson goes with --rate: how many I/Os per second\n");
		return false;
	}
	if (o->dhchap_ctrlr_key != NULL && o->dhchap_key == NULL) {
		fprintf(stderr, "varve-perf: --dhchap-ctrlr-key goes with --dhchap-key: a controller proves who it is "
				"only to a host that does the same\n");
		return false;
	}
	if (o->ledger != NULL && !o->verify) {
		fprintf(stderr, "varve-perf: --ledger goes with --verify: nothing is known of writes that are not "
				"followed\n");
		return false;
	}
	if (o->check_ledger != NULL &&
	    (o->verify || o->ledger != NULL || o->region_bytes != 0 || o->region_start != 0)) {
		fprintf(stderr, "varve-perf: --check-ledger goes without --verify, --ledger, --region and "
				"--region-start: the file says what is read\n");
		return false;
	}
	for (unsigned i = 0; i < o->num_bdevs; i++) {
		if (o->verify && o->bdevs[i].kind == PERF_BDEV_NULL) {
			fprintf(stderr, "varve-perf: --verify: a null device keeps nothing; malloc and file do\n");
			return false;
		}
	}
	if (o->num_targets + o->num_bdevs == 0) {
		fprintf(stderr, "varve-perf: no target; --target 'trtype:RDMA traddr:... trsvcid:4420 subnqn:...' "
				"names one, or --bdev\n");
		return false;
	}
	return true;
}

enum perf_parse perf_options_parse(struct perf_options *o, int argc, char **argv)
{
	struct parse p = {.workload_fixed = true};
	int c;

	*o = (struct perf_options){.queue_depth = 32,
				   .io_size = 4096,
				   .random = true,
				   .read_percent = 100,
				   .seconds = 10,
				   .qpairs = 1,
				   .keep_alive_ms = 10000,
				   .seed = (uint64_t)time(NULL)};
	snprintf(o->hostnqn, sizeof(o->hostnqn), "nqn.2026-11.io.varve:perf");
	while ((c = getopt_long(argc, argv, "r:b:n:q:o:w:M:t:P:jm:s:h", long_options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return PERF_EXIT_OK;
		}
		if (c == '?') {
			nearest_print_option("varve-perf", argv[optind - 1], long_options);
			fputs("See varve-perf --help.\n", stderr);
		}
		if (!perf_option_set(o, c, optarg, &p)) {
			return PERF_EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "varve-perf: '%s' is not an option; --help lists them\n", argv[optind]);
		return PERF_EXIT_USAGE;
	}
	return perf_options_check(o, &p) ? PERF_RUN : PERF_EXIT_USAGE;
}
