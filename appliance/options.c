/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "appliance/metrics_address.h"
#include "rpc/rpc.h"
#include "util/log_flags.h"
#include "util/nearest.h"
#include "util/parse.h"

struct parser {
	struct appliance_options *o;
	char *error;
	char given[64]; /* the option that is being parsed, as the user wrote it */
	unsigned n_pci, n_flags;
	bool no_rpc_server, interrupt_mode;
};

static int __attribute__((format(printf, 2, 3))) option_reject(struct parser *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->error, APPLIANCE_ERROR_MAX, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static int option_take_number(struct parser *p, const char *arg, uint64_t min, uint64_t max, uint64_t *value)
{
	if (parse_uint64(arg, min, max, value) != 0) {
		return option_reject(p, "%s: \"%s\" is not a number from %llu to %llu", p->given, arg,
				     (unsigned long long)min, (unsigned long long)max);
	}
	return 0;
}

static int option_set_cores(struct parser *p, const char *arg)
{
	char why[ENV_ERROR_MAX];
	cpu_set_t cores;

	if (env_cores_parse(arg, &cores, why) != 0) {
		return option_reject(p, "%s: %s", p->given, why);
	}
	p->o->env.cores = arg;
	return 0;
}

static int option_set_lcores(struct parser *p, const char *arg)
{
	char why[ENV_ERROR_MAX];
	struct env_lcore_map map;

	if (env_lcores_parse(arg, &map, why) != 0) {
		return option_reject(p, "%s: %s", p->given, why);
	}
	p->o->startup.lcores = arg;
	return 0;
}

static int option_set_main_core(struct parser *p, const char *arg)
{
	uint64_t core;
	int rc = option_take_number(p, arg, 0, CPU_SETSIZE - 1, &core);

	if (rc == 0) {
		p->o->startup.has_main_core = true;
		p->o->startup.main_core = (uint32_t)core;
	}
	return rc;
}

static int option_set_base_virtaddr(struct parser *p, const char *arg)
{
	const uint64_t highest = 1ULL << 47; /* of a process's addresses, on x86-64 */
	uint64_t address;
	char *end;

	errno = 0;
	address = strtoull(arg, &end, 0);
	if (arg[0] < '0' || arg[0] > '9' || *end != '\0' || errno != 0 || address == 0 || address % 4096 != 0 ||
	    address >= highest) {
		return option_reject(
			p, "%s: \"%s\" is not an address of a page below 0x%" PRIx64 ", such as 0x200000000000",
			p->given, arg, highest);
	}
	p->o->startup.base_virtaddr = address;
	return 0;
}

static int option_set_env_context(struct parser *p, const char *arg)
{
	char why[ENV_ERROR_MAX];

	if (env_eal_words_check(arg, why) != 0) {
		return option_reject(p, "%s: %s", p->given, why);
	}
	p->o->startup.eal_words = arg;
	return 0;
}

/* Takes note of an option without effect; the text is a constant. */
static int option_note(struct parser *p, const char *text)
{
	unsigned n = 0;

	while (n < APPLIANCE_NOTES_MAX && p->o->notes[n] != NULL) {
		if (p->o->notes[n++] == text) {
			return 0;
		}
	}
	if (n < APPLIANCE_NOTES_MAX) {
		p->o->notes[n] = text;
	}
	return 0;
}

static int option_set_huge_unlink(struct parser *p, const char *arg)
{
	static const char note[] = "--huge-unlink has no effect: varve makes no files of hugepages";

	return option_note(p, note);
}

static int option_set_single_file(struct parser *p, const char *arg)
{
	static const char note[] = "--single-file-segments has no effect: varve makes no files of hugepages";

	return option_note(p, note);
}

static int option_set_huge_dir(struct parser *p, const char *arg)
{
	static const char note[] = "--huge-dir has no effect: varve takes hugepages without a mounted hugetlbfs";

	return option_note(p, note);
}

static int option_set_iova_mode(struct parser *p, const char *arg)
{
	static const char note[] = "--iova-mode pa has no effect: devices behind an IOMMU are given virtual addresses, "
				   "those without one physical addresses";

	if (strcmp(arg, "pa") == 0) {
		return option_note(p, note);
	}
	return strcmp(arg, "va") == 0 ? 0 : option_reject(p, "%s: \"%s\" is neither \"pa\" nor \"va\"", p->given, arg);
}

static int option_set_msg_mempool(struct parser *p, const char *arg)
{
	static const char note[] = "--msg-mempool-size has no effect: messages between threads need no pool of memory";
	uint64_t n;
	int rc = option_take_number(p, arg, 1, UINT32_MAX, &n);

	return rc != 0 ? rc : option_note(p, note);
}

static int option_set_mem_channels(struct parser *p, const char *arg)
{
	static const char note[] = "--mem-channels has no effect: no memory of varve's is laid out by channels";
	uint64_t n;
	int rc = option_take_number(p, arg, 0, 32, &n); /* 0: as for SPDK's targets, DPDK chooses */

	return rc != 0 ? rc : option_note(p, note);
}

static int option_set_silence_notices(struct parser *p, const char *arg)
{
	p->o->print_level = LOG_LEVEL_WARNING;
	return 0;
}

static int option_set_no_core_locks(struct parser *p, const char *arg)
{
	p->o->no_core_locks = true;
	return 0;
}

static int option_set_interrupt_mode(struct parser *p, const char *arg)
{
	p->interrupt_mode = true;
	return 0;
}

static int option_set_pid_file(struct parser *p, const char *arg)
{
	if (arg[0] == '\0') {
		return option_reject(p, "%s: the name of the file is empty", p->given);
	}
	p->o->pid_file = arg;
	return 0;
}

static int option_set_no_rpc_server(struct parser *p, const char *arg)
{
	p->no_rpc_server = true;
	return 0;
}

static int option_set_rpcs_allowed(struct parser *p, const char *arg)
{
	static const char valid[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

	for (const char *at = arg;; at++) {
		size_t n = strspn(at, valid);
		at += n;
		if (n == 0 || (*at != ',' && *at != '\0')) {
			return option_reject(p,
					     "%s: \"%s\" is not a list of methods, separated by commas, such as "
					     "bdev_get_bdevs,nvmf_get_subsystems",
					     p->given, arg);
		}
		if (*at == '\0') {
			break;
		}
	}
	p->o->rpcs_allowed = arg;
	return 0;
}

static int option_set_memory(struct parser *p, const char *arg)
{
	const uint64_t max_mb = 16 * 1024 * 1024;
	uint64_t mb, bytes;

	if (parse_uint64(arg, 1, max_mb, &mb) != 0) {
		/* a number without a unit is megabytes, however large it is */
		if (arg[strspn(arg, "0123456789")] == '\0' || parse_size(arg, 1024 * 1024, max_mb << 20, &bytes) != 0) {
			return option_reject(p,
					     "%s: \"%s\" is neither a number of megabytes (1 to %" PRIu64
					     ") nor a size such as 512M or 2G",
					     p->given, arg, max_mb);
		}
		mb = bytes >> 20;
	}
	p->o->env.mem_mb = (uint32_t)mb;
	return 0;
}

static int option_set_instance(struct parser *p, const char *arg)
{
	uint64_t id;

	/* Stock programs take -1 for "none". */
	if (strcmp(arg, "-1") == 0) {
		p->o->env.instance_id = -1;
		return 0;
	}
	int rc = option_take_number(p, arg, 0, INT16_MAX, &id);
	if (rc == 0) {
		p->o->env.instance_id = (int)id;
	}
	return rc;
}

static int option_add_pci(struct parser *p, const char *arg, const char *const **list)
{
	const char *const **other = list == &p->o->env.pci_allowed ? &p->o->env.pci_blocked : &p->o->env.pci_allowed;

	if (*other != NULL) {
		return option_reject(p, "%s: PCI devices are either allowed (-A) or blocked (-B), not both", p->given);
	}
	if (p->n_pci == APPLIANCE_PCI_MAX) {
		return option_reject(p, "%s: at most %d PCI devices may be named", p->given, APPLIANCE_PCI_MAX);
	}
	p->o->pci[p->n_pci++] = arg;
	*list = p->o->pci;
	return 0;
}

static int option_allow_pci(struct parser *p, const char *arg)
{
	return option_add_pci(p, arg, &p->o->env.pci_allowed);
}

static int option_block_pci(struct parser *p, const char *arg)
{
	return option_add_pci(p, arg, &p->o->env.pci_blocked);
}

static int option_set_no_pci(struct parser *p, const char *arg)
{
	p->o->env.no_pci = true;
	return 0;
}

static int option_set_no_huge(struct parser *p, const char *arg)
{
	p->o->env.no_huge = true;
	return 0;
}

static int option_set_oversubscribe(struct parser *p, const char *arg)
{
	p->o->env.oversubscribe = true;
	return 0;
}

static int option_set_config(struct parser *p, const char *arg)
{
	p->o->config_file = arg;
	return 0;
}

static int option_set_ignore_errors(struct parser *p, const char *arg)
{
	p->o->ignore_init_errors = true;
	return 0;
}

static int option_set_takeover(struct parser *p, const char *arg)
{
	if (arg[0] != '/') {
		return option_reject(p, "%s: \"%s\" is not the absolute path of an RPC socket", p->given, arg);
	}
	p->o->takeover = arg;
	return 0;
}

static int option_set_takeover_timeout(struct parser *p, const char *arg)
{
	uint64_t seconds;
	int rc = option_take_number(p, arg, 1, APPLIANCE_TAKEOVER_MAX_S, &seconds);

	if (rc == 0) {
		p->o->takeover_s = (uint32_t)seconds;
	}
	return rc;
}

static int option_set_takeover_force(struct parser *p, const char *arg)
{
	p->o->takeover_forced = true;
	return 0;
}

static int option_set_rpc_path(struct parser *p, const char *arg)
{
	p->o->rpc_path = arg;
	return 0;
}

static int option_set_rpc_mode(struct parser *p, const char *arg)
{
	char octal[8];
	unsigned mode;
	int end = 0;

	if (sscanf(arg, "%7[0-7]%n", octal, &end) != 1 || arg[end] != '\0' || sscanf(octal, "%o", &mode) != 1 ||
	    mode == 0 || mode > 0777) {
		return option_reject(p, "%s: \"%s\" is not a file mode in octal, such as 0660", p->given, arg);
	}
	p->o->rpc_mode = mode;
	return 0;
}

static int option_set_rpc_deadline(struct parser *p, const char *arg)
{
	uint64_t seconds;
	int rc = option_take_number(p, arg, 0, RPC_MAX_DEADLINE_S, &seconds);

	if (rc == 0) {
		p->o->rpc_deadline_s = (uint32_t)seconds;
	}
	return rc;
}

static int option_set_wait(struct parser *p, const char *arg)
{
	p->o->wait_for_rpc = true;
	return 0;
}

static int option_set_tracepoints(struct parser *p, const char *arg)
{
	char why[TRACE_ERROR_MAX];
	int rc = trace_spec_parse(arg, &p->o->trace_masks, why);

	if (rc == TRACE_SPEC_HELP) {
		p->o->command = APPLIANCE_TRACE_HELP;
		return 0;
	}
	if (rc != 0) {
		return option_reject(p, "%s: %s", p->given, why);
	}
	p->o->tracepoints = arg;
	return 0;
}

static int option_set_trace_entries(struct parser *p, const char *arg)
{
	uint64_t n;

	if (parse_uint64(arg, 0, 1 << 24, &n) != 0 || (n & (n - 1)) != 0 || (n != 0 && n < 64)) {
		return option_reject(p, "%s: \"%s\" is neither a power of two from 64 to 16777216 nor 0 (no tracing)",
				     p->given, arg);
	}
	p->o->trace_entries = (uint32_t)n;
	return 0;
}

static int option_set_trace_group(struct parser *p, const char *arg)
{
	p->o->trace_group = arg;
	return 0;
}

static int option_set_metrics(struct parser *p, const char *arg)
{
	char why[METRICS_ERROR_MAX];
	struct metrics_address address;

	if (metrics_address_parse(arg, &address, why) != 0) {
		return option_reject(p, "%s: %s", p->given, why);
	}
	p->o->metrics = arg;
	return 0;
}

static int option_set_poll_mode(struct parser *p, const char *arg)
{
	if (strcmp(arg, "adaptive") == 0) {
		p->o->poll_mode = POLL_MODE_ADAPTIVE;
	} else if (strcmp(arg, "busy") == 0) {
		p->o->poll_mode = POLL_MODE_BUSY;
	} else {
		return option_reject(p, "%s: \"%s\" is neither \"adaptive\" nor \"busy\"", p->given, arg);
	}
	return 0;
}

static int option_set_limit_coredump(struct parser *p, const char *arg)
{
	p->o->limit_coredump = true;
	return 0;
}

static int option_set_log_level(struct parser *p, const char *arg)
{
	if (log_level_parse(arg, &p->o->print_level) != 0) {
		return option_reject(p, "%s: \"%s\" is none of DISABLED, ERROR, WARNING, NOTICE, INFO, DEBUG", p->given,
				     arg);
	}
	return 0;
}

static int option_add_log_flag(struct parser *p, const char *arg)
{
	char names[APPLIANCE_ERROR_MAX / 2] = "";
	size_t used = 0;

	for (const struct log_flag *f = log_first_flag(); f != NULL && used < sizeof(names); f = SLIST_NEXT(f, link)) {
		used += (size_t)snprintf(names + used, sizeof(names) - used, ", %s", f->name);
	}
	if (!log_flag_is_known(arg)) {
		return option_reject(
			p, "%s: there is no log flag \"%s\"; there are: all%s, and those of SPDK's components",
			p->given, arg, names);
	}
	if (p->n_flags == APPLIANCE_FLAGS_MAX) {
		return option_reject(p, "%s: at most %d flags may be named; \"all\" means every one", p->given,
				     APPLIANCE_FLAGS_MAX);
	}
	p->o->log_flags[p->n_flags++] = arg;
	p->o->print_level = LOG_LEVEL_DEBUG; /* otherwise the flag would have no effect */
	return 0;
}

static int option_set_help(struct parser *p, const char *arg)
{
	p->o->command = APPLIANCE_HELP;
	return 0;
}

static int option_set_check(struct parser *p, const char *arg)
{
	p->o->command = APPLIANCE_CHECK;
	p->o->config_file = arg;
	return 0;
}

static int option_set_describe(struct parser *p, const char *arg)
{
	p->o->command = APPLIANCE_DESCRIBE;
	return 0;
}

static int option_set_version(struct parser *p, const char *arg)
{
	p->o->command = APPLIANCE_VERSION;
	return 0;
}

/* Letters and long names are those of stock programs, as far as they have the option. */
static const struct option_spec {
	char letter; /* 0: none */
	const char *name;
	const char *arg; /* NULL: takes none */
	int (*set)(struct parser *p, const char *arg);
	const char *help; /* NULL: another name of the one before */
} specs[] = {
	{'c', "config", "FILE", option_set_config, "load this JSON configuration (as varve-rpc save_config writes it)"},
	{0, "json", "FILE", option_set_config, NULL},
	{0, "check", "FILE", option_set_check,
	 "check this configuration, print all that is wrong in it with line and column, and exit; start nothing"},
	{0, "json-ignore-init-errors", NULL, option_set_ignore_errors,
	 "continue when a method in the configuration is unknown or fails"},
	{0, "takeover", "SOCKET", option_set_takeover,
	 "take the place of the varve whose RPC socket this is: load what it has, not the file of -c; it stops to "
	 "serve "
	 "when this one is ready, and goes on if this one fails"},
	{0, "takeover-timeout", "SECONDS", option_set_takeover_timeout,
	 "how long that may take; then the other one ends this one and goes on (default 60)"},
	{0, "takeover-force", NULL, option_set_takeover_force,
	 "take its place even if something is lost with it, or hosts wait for long"},
	{'r', "rpc-socket", "PATH", option_set_rpc_path, "listen for JSON-RPC here (default " RPC_DEFAULT_PATH ")"},
	{0, "rpc-mode", "OCTAL", option_set_rpc_mode, "permissions of the RPC socket (default 0600)"},
	{0, "rpc-deadline", "SECONDS", option_set_rpc_deadline,
	 "answer a call with an error after so long, while it goes on (default 50; 0: never)"},
	{0, "rpcs-allowed", "LIST", option_set_rpcs_allowed,
	 "let clients call these methods only, separated by commas; the configuration may call all"},
	{0, "no-rpc-server", NULL, option_set_no_rpc_server, "do not listen for JSON-RPC"},
	{0, "wait-for-rpc", NULL, option_set_wait, "do not start subsystems before framework_start_init is called"},
	{'m', "cpumask", "CORES", option_set_cores,
	 "run reactors on these CPUs: 0x3, [0,2-3] or 0-1 (default: the first)"},
	{0, "lcores", "LIST", option_set_lcores,
	 "run reactors N on CPUs M: N@M,...; 0-3 or (0,1)@(2-5) too; instead of -m"},
	{'p', "main-core", "CORE", option_set_main_core,
	 "which of the cores is DPDK's main lcore (default: the lowest)"},
	{0, "disable-cpumask-locks", NULL, option_set_no_core_locks,
	 "neither lock cores for other programs to see, nor look at their locks"},
	{'s', "mem-size", "MB", option_set_memory, "memory to take at the start; also 512M, 2G"},
	{0, "no-huge", NULL, option_set_no_huge, "use no hugepages, even if there are some"},
	{'R', "huge-unlink", NULL, option_set_huge_unlink, "taken, without effect: there are no files of hugepages"},
	{'g', "single-file-segments", NULL, option_set_single_file, "the same"},
	{0, "huge-dir", "PATH", option_set_huge_dir, "the same"},
	{0, "iova-mode", "MODE", option_set_iova_mode, "pa or va: taken, without effect"},
	{0, "msg-mempool-size", "N", option_set_msg_mempool, "taken, without effect: messages need no pool"},
	{'n', "mem-channels", "N", option_set_mem_channels, "taken, without effect: no memory is laid out by channels"},
	{0, "base-virtaddr", "ADDRESS", option_set_base_virtaddr,
	 "where DPDK reserves its addresses, such as 0x200000000000"},
	{0, "env-context", "OPTIONS", option_set_env_context,
	 "further options for DPDK, separated by spaces, such as --log-level=lib.eal:debug"},
	{'i', "shm-id", "ID", option_set_instance, "name shared files by this number instead of the process id"},
	{'u', "no-pci", NULL, option_set_no_pci, "use no PCI device"},
	{'A', "pci-allowed", "BDF", option_allow_pci, "use this PCI device only (may be repeated)"},
	{'B', "pci-blocked", "BDF", option_block_pci, "do not use this PCI device (may be repeated)"},
	{0, "poll-mode", "MODE", option_set_poll_mode,
	 "adaptive: reactors sleep when idle (default); busy: they do not, unless the dynamic scheduler leaves one "
	 "without threads"},
	{0, "interrupt-mode", NULL, option_set_interrupt_mode, "the same as --poll-mode adaptive"},
	{0, "oversubscribe", NULL, option_set_oversubscribe, "for tests: allow more reactors than there are CPUs"},
	{'e', "tpoint-group", "SPEC", option_set_tracepoints, "record these tracepoints; -e help lists them"},
	{0, "num-trace-entries", "N", option_set_trace_entries,
	 "events kept per core (default 32768; 0: no tracing, no file)"},
	{0, "trace-group", "GROUP", option_set_trace_group, "let this Unix group read the trace file"},
	{0, "metrics", "ADDRESS", option_set_metrics,
	 "serve metrics for Prometheus, and the console, at unix:PATH, 127.0.0.1:PORT or [::1]:PORT"},
	{'L', "logflag", "FLAG", option_add_log_flag, "print a component's debug messages (may be repeated; all)"},
	{0, "log-level", "LEVEL", option_set_log_level,
	 "print messages down to ERROR, WARNING, NOTICE (default), INFO or DEBUG"},
	{0, "silence-noticelog", NULL, option_set_silence_notices, "the same as --log-level WARNING"},
	{'d', "limit-coredump", NULL, option_set_limit_coredump, "leave the size limit of core dumps as it is"},
	{'f', "pidfile", "FILE", option_set_pid_file, "write the process id here, while it runs"},
	{0, "describe-rpc", NULL, option_set_describe, "print all RPC methods with their parameters as JSON and exit"},
	{'h', "help", NULL, option_set_help, "print this and exit"},
	{'v', "version", NULL, option_set_version, "print the version and exit"},
};
#define N_SPECS   (sizeof(specs) / sizeof(specs[0]))
#define LONG_BASE 256 /* getopt_long()'s value of specs[i] is LONG_BASE + i */

static void option_make_getopt_tables(char *letters, struct option *longs)
{
	*letters++ = '+'; /* stop at the first argument that is no option */
	*letters++ = ':';
	for (size_t i = 0; i < N_SPECS; i++) {
		const struct option_spec *s = &specs[i];
		longs[i] = (struct option){s->name, s->arg != NULL, NULL, LONG_BASE + (int)i};
		if (s->letter != 0) {
			*letters++ = s->letter;
			if (s->arg != NULL) {
				*letters++ = ':';
			}
		}
	}
	*letters = '\0';
	longs[N_SPECS] = (struct option){0};
}

static const struct option_spec *option_spec_of(int value)
{
	if (value >= LONG_BASE) {
		return &specs[value - LONG_BASE];
	}
	for (size_t i = 0; i < N_SPECS; i++) {
		if (specs[i].letter == value) {
			return &specs[i];
		}
	}
	return NULL;
}

static int option_reject_unknown(struct parser *p, const char *given)
{
	char word[72], hint[NEAREST_TEXT_MAX];
	struct nearest near;

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(given + 2, "="), given + 2);
	nearest_begin(&near, word);
	for (size_t i = 0; i < N_SPECS; i++) {
		nearest_try(&near, specs[i].name);
	}
	if (near.name != NULL && near.distance == 0) {
		return option_reject(p, "%s: it is ambiguous or takes no argument; see --help", given);
	}
	return option_reject(p, "%s: there is no such option%s (see --help)", given,
			     nearest_format(&near, hint, sizeof(hint)));
}

static int option_parse(struct parser *p, int value, char **argv)
{
	if (value == '?') {
		if (optopt != 0 && optopt < LONG_BASE) {
			return option_reject(p, "-%c: there is no such option; see --help", optopt);
		}
		return option_reject_unknown(p, argv[optind - 1]);
	}
	if (value == ':') {
		return option_reject(p, "%s: an argument is missing; see --help", argv[optind - 1]);
	}
	const struct option_spec *s = option_spec_of(value);
	if (value >= LONG_BASE) {
		snprintf(p->given, sizeof(p->given), "--%s", s->name);
	} else {
		snprintf(p->given, sizeof(p->given), "-%c", s->letter);
	}
	return s->set(p, optarg);
}

static void option_prepare_takeover(struct parser *p)
{
	static const char no_file[] = "the configuration is that of the process to take over from, not the file of -c";
	static const char no_id[] = "-i has no effect together with --takeover: the other process may use the number";

	if (p->o->config_file != NULL) {
		option_note(p, no_file);
	}
	if (p->o->env.instance_id >= 0) {
		option_note(p, no_id);
		p->o->env.instance_id = -1;
	}
}

/* Checks options against each other. */
static int option_check_together(struct parser *p)
{
	struct appliance_options *o = p->o;

	if (o->startup.lcores != NULL && (o->env.cores != NULL || o->env.oversubscribe)) {
		return option_reject(p, "--lcores: give either it, or %s",
				     o->env.cores != NULL ? "-m (--cpumask)" : "--oversubscribe");
	}
	if (p->interrupt_mode && o->poll_mode == POLL_MODE_BUSY) {
		return option_reject(p, "--interrupt-mode: reactors cannot sleep with --poll-mode busy");
	}
	if (p->no_rpc_server && o->wait_for_rpc) {
		return option_reject(p, "--no-rpc-server: nobody could call framework_start_init, which "
					"--wait-for-rpc waits for");
	}
	if (o->takeover != NULL && o->wait_for_rpc) {
		return option_reject(p,
				     "--takeover: it does not go with --wait-for-rpc: the process that it takes over "
				     "from serves nothing meanwhile");
	}
	if (p->no_rpc_server) {
		o->rpc_path = NULL;
	}
	if (o->takeover != NULL) {
		option_prepare_takeover(p);
	}
	return 0;
}

int appliance_options_parse(int argc, char **argv, struct appliance_options *o, char *error)
{
	char letters[2 * N_SPECS + 3];
	struct option longs[N_SPECS + 1];
	struct parser p = {.o = o, .error = error};
	int value, rc;

	*o = (struct appliance_options){
		.env = {.name = "varve", .instance_id = -1},
		.rpc_path = RPC_DEFAULT_PATH,
		.rpc_deadline_s = RPC_DEFAULT_DEADLINE_S,
		.takeover_s = APPLIANCE_TAKEOVER_DEFAULT_S,
		.trace_entries = TRACE_DEFAULT_ENTRIES,
		.poll_mode = POLL_MODE_ADAPTIVE,
		.print_level = LOG_LEVEL_NOTICE,
	};
	option_make_getopt_tables(letters, longs);
	optind = 0; /* start over: getopt keeps state between calls */
	opterr = 0;
	while ((value = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		rc = option_parse(&p, value, argv);
		if (rc != 0 || (o->command != APPLIANCE_RUN && o->command != APPLIANCE_CHECK)) {
			return rc;
		}
	}
	if (optind < argc) {
		return option_reject(&p, "\"%s\": only options are taken; see --help", argv[optind]);
	}
	return option_check_together(&p);
}

void appliance_options_help(FILE *out)
{
	fprintf(out, "Usage: varve [OPTION...]\n\nA storage node: serves block devices over NVMe-oF and "
		     "records what it does.\n\n");
	for (size_t i = 0; i < N_SPECS; i++) {
		const struct option_spec *s = &specs[i];
		char names[48];
		if (s->help == NULL) {
			continue;
		}
		snprintf(names, sizeof(names), "--%s%s%s", s->name, s->arg != NULL ? " " : "",
			 s->arg != NULL ? s->arg : "");
		if (s->letter != 0) {
			fprintf(out, "  -%c, %-25s %s\n", s->letter, names, s->help);
		} else {
			fprintf(out, "      %-25s %s\n", names, s->help);
		}
	}
	fprintf(out, "\nSignals: INT, TERM and HUP stop it cleanly, a second one at once; USR1 logs its "
		     "state; QUIT aborts with a\n"
		     "backtrace and a core dump.\n");
}
