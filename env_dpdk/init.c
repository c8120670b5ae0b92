/* SPDX-License-Identifier: BSD-3-Clause */
/* Start of the EAL, on a thread of our own, with arguments made from env_opts. */
#include "env_dpdk/env_internal.h"
#include "env_dpdk/pci.h"
#include "env_dpdk/startup.h"

#include "util/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EAL_ARGS_MAX 64
#define EAL_ARG_LEN  (ENV_CORES_MAX + 64)

/* The EAL keeps pointers to its arguments, and changes the order of argv. */
struct eal_args {
	int argc;
	char *argv[EAL_ARGS_MAX + 1];
	char text[EAL_ARGS_MAX][EAL_ARG_LEN];
	bool overflow;
};

struct eal_start {
	struct env_memory_plan plan;
	int rc;
	int err; /* rte_errno */
	sem_t done;
};

static pthread_t main_lcore_thread;
static struct eal_args eal_args;
static struct env_memory_plan memory_plan;
static bool oversubscribed;
static cpu_set_t worker_cpus; /* none: not started */
static struct env_startup startup;

int env_fail(char *error, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error, ENV_ERROR_MAX, fmt, args);
	va_end(args);
	return -err;
}

void env_startup_set(const struct env_startup *s)
{
	startup = *s;
}

bool env_has_hugepages(void)
{
	return memory_plan.hugepages;
}

bool env_worker_cpus(cpu_set_t *cpus)
{
	*cpus = worker_cpus;
	return CPU_COUNT(cpus) != 0;
}

static void worker_cpus_set(const cpu_set_t *allowed, const cpu_set_t *used)
{
	cpu_set_t both;

	CPU_AND(&both, allowed, used);
	CPU_XOR(&worker_cpus, allowed, &both);
	if (CPU_COUNT(&worker_cpus) == 0) {
		worker_cpus = *allowed;
	}
}

bool env_oversubscribed(void)
{
	return oversubscribed;
}

static void args_add(struct eal_args *args, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void args_add(struct eal_args *args, const char *fmt, ...)
{
	va_list list;

	if (args->argc == EAL_ARGS_MAX) {
		args->overflow = true;
		return;
	}
	char *text = args->text[args->argc];
	va_start(list, fmt);
	vsnprintf(text, EAL_ARG_LEN, fmt, list);
	va_end(list);
	args->argv[args->argc++] = text;
}

static void cores_present(cpu_set_t *present)
{
	char text[ENV_CORES_MAX] = "", error[ENV_ERROR_MAX];
	FILE *f = fopen("/sys/devices/system/cpu/online", "re");

	if (f != NULL) {
		if (fgets(text, sizeof(text), f) != NULL) {
			text[strcspn(text, "\n")] = '\0';
		}
		fclose(f);
	}
	/* "0" alone would be read as a mask. */
	if (strchr(text, '-') == NULL && strchr(text, ',') == NULL && text[0] != '\0') {
		CPU_ZERO(present);
		CPU_SET(atoi(text) % CPU_SETSIZE, present);
	} else if (env_cores_parse(text, present, error) != 0) {
		CPU_ZERO(present);
		for (long core = 0; core < sysconf(_SC_NPROCESSORS_ONLN) && core < CPU_SETSIZE; core++) {
			CPU_SET(core, present);
		}
	}
}

static void cores_first(const cpu_set_t *allowed, cpu_set_t *cores)
{
	int first = 0;

	while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, allowed)) {
		first++;
	}
	CPU_ZERO(cores);
	CPU_SET(first, cores);
}

/* --lcores, for a text that env_lcores_parse() takes. */
static int args_add_lcores(struct eal_args *args, const struct env_opts *opts, const cpu_set_t *allowed,
			   const cpu_set_t *present, cpu_set_t *cores, char *error)
{
	struct env_lcore_map map;

	if (opts->cores != NULL || opts->oversubscribe) {
		return env_fail(error, EINVAL,
				"lcores: they are given in full by a list, or as a set of CPUs, not both");
	}
	int rc = env_lcores_parse(startup.lcores, &map, error);
	rc = rc != 0 ? rc : env_cores_check(&map.cpus, allowed, present, error);
	if (rc != 0) {
		return rc;
	}
	if (strlen(startup.lcores) >= ENV_CORES_MAX) {
		return env_fail(error, EINVAL, "lcores: a list of at most %d characters is taken", ENV_CORES_MAX - 1);
	}
	args_add(args, "--lcores=%s", startup.lcores);
	oversubscribed = map.shared;
	worker_cpus_set(allowed, &map.cpus);
	*cores = map.lcores;
	return 0;
}

/* --lcores, for a set of CPUs. */
static int args_add_cpus(struct eal_args *args, const struct env_opts *opts, const cpu_set_t *allowed,
			 const cpu_set_t *present, cpu_set_t *cores, char *error)
{
	char list[ENV_CORES_MAX], cpus[ENV_CORES_MAX];
	int rc;

	if (opts->cores == NULL) {
		cores_first(allowed, cores);
	} else if ((rc = env_cores_parse(opts->cores, cores, error)) != 0) {
		return rc;
	}
	/* Oversubscribed lcores are only names; DPDK's limit still holds. */
	rc = opts->oversubscribe ? env_cores_check(cores, cores, cores, error)
				 : env_cores_check(cores, allowed, present, error);
	if (rc != 0) {
		return rc;
	}
	env_cores_format(cores, list);
	if (opts->oversubscribe) {
		env_cores_format(allowed, cpus);
		args_add(args, "--lcores=(%s)@(%s)", list, cpus);
	} else {
		args_add(args, "--lcores=%s", list);
	}
	oversubscribed = CPU_COUNT(cores) > CPU_COUNT(allowed);
	worker_cpus_set(allowed, opts->oversubscribe ? allowed : cores); /* oversubscribed lcores are anywhere */
	return 0;
}

static int args_add_cores(struct eal_args *args, const struct env_opts *opts, char *error)
{
	cpu_set_t allowed, present, cores;
	char list[ENV_CORES_MAX];

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
		return env_fail(error, errno, "cannot tell which CPUs may be used: %s", strerror(errno));
	}
	cores_present(&present);
	int rc = startup.lcores != NULL ? args_add_lcores(args, opts, &allowed, &present, &cores, error)
					: args_add_cpus(args, opts, &allowed, &present, &cores, error);
	if (rc != 0 || !startup.has_main_core) {
		return rc;
	}
	if (startup.main_core >= CPU_SETSIZE || !CPU_ISSET(startup.main_core, &cores)) {
		env_cores_format(&cores, list);
		return env_fail(error, EINVAL, "the main core (-p) %u is none of the cores in use: %.200s",
				startup.main_core, list);
	}
	args_add(args, "--main-lcore=%u", startup.main_core);
	return 0;
}

static int args_add_eal_words(struct eal_args *args, char *error)
{
	if (startup.base_virtaddr != 0) {
		args_add(args, "--base-virtaddr=%#" PRIx64, startup.base_virtaddr);
	}
	if (startup.eal_words == NULL) {
		return 0;
	}
	int rc = env_eal_words_check(startup.eal_words, error);
	for (const char *p = startup.eal_words; rc == 0 && *(p += strspn(p, " ")) != '\0'; p += strcspn(p, " ")) {
		args_add(args, "%.*s", (int)strcspn(p, " "), p);
	}
	return rc;
}

static int args_add_pci(struct eal_args *args, const struct env_opts *opts, char *error)
{
	if (opts->pci_allowed != NULL && opts->pci_blocked != NULL) {
		return env_fail(error, EINVAL, "PCI devices: give a list of allowed ones or of blocked ones, not both");
	}
	if (opts->no_pci) {
		args_add(args, "--no-pci");
	}
	const char *const *list = opts->pci_allowed != NULL ? opts->pci_allowed : opts->pci_blocked;
	for (; list != NULL && *list != NULL; list++) {
		char bdf[16];
		if (env_pci_parse(*list, bdf) != 0) {
			return env_fail(error, EINVAL,
					"PCI device '%.32s': not an address like 0000:5e:00.0 or 5e:00.0", *list);
		}
		args_add(args, opts->pci_allowed != NULL ? "--allow=%s" : "--block=%s", bdf);
	}
	return 0;
}

static int args_make(struct eal_args *args, const struct env_opts *opts, const struct env_memory_plan *plan,
		     char *error)
{
	args->argc = 0;
	args->overflow = false;
	args_add(args, "%s", opts->name);
	int rc = args_add_cores(args, opts, error);
	if (rc != 0) {
		return rc;
	}
	/* The same addresses for the CPU and for devices, in all modes. */
	args_add(args, "--iova-mode=va");
	args_add(args, "--no-telemetry");
	if (plan->hugepages) {
		/* No file in hugetlbfs or /var/run, so that processes do not collide and leave nothing behind.
		 * Allocations are added and freed as a whole, so that a region's removal matches its addition. */
		args_add(args, "--in-memory");
		args_add(args, "--match-allocations");
	} else {
		args_add(args, "--no-huge");
		args_add(args, "--no-shconf");
	}
	if (plan->mem_mb != 0) {
		args_add(args, "-m");
		args_add(args, "%u", plan->mem_mb);
	}
	rc = args_add_pci(args, opts, error);
	rc = rc != 0 ? rc : args_add_eal_words(args, error);
	if (rc == 0 && args->overflow) {
		rc = env_fail(error, E2BIG, "too many arguments for the EAL: more than %d", EAL_ARGS_MAX);
	}
	return rc;
}

/* The thread that becomes the EAL's main lcore. */
static void *main_lcore(void *arg)
{
	struct eal_start *start = arg;

	start->rc = rte_eal_init(eal_args.argc, eal_args.argv);
	start->err = rte_errno;
	if (start->rc >= 0) {
		start->rc = env_lcores_start();
	}
	bool failed = start->rc != 0;
	sem_post(&start->done); /* the caller frees `start` after this */
	if (!failed) {
		env_lcore_loop(NULL);
		rte_eal_mp_wait_lcore();
		rte_eal_cleanup();
	}
	return NULL;
}

/* All signals but those that report a fault of the thread itself. */
static void signals_of_threads(sigset_t *set)
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};

	sigfillset(set);
	for (size_t i = 0; i < RTE_DIM(faults); i++) {
		sigdelset(set, faults[i]);
	}
}

static int eal_start(struct eal_start *start)
{
	sigset_t blocked, mask;
	/* The EAL makes its runtime folder even if it will put nothing there, and never removes it. A path where no
	 * folder can be made prevents that; without shared configuration the EAL ignores the failure. */
	const char *before = getenv("RUNTIME_DIRECTORY");
	char *saved = before != NULL ? strdup(before) : NULL;

	setenv("RUNTIME_DIRECTORY", ENV_EAL_RUNTIME_DIRECTORY, 1);
	sem_init(&start->done, 0, 0);
	/* Signals are for the caller's thread: they interrupt neither lcores nor threads of the EAL. */
	signals_of_threads(&blocked);
	pthread_sigmask(SIG_BLOCK, &blocked, &mask);
	int rc = -pthread_create(&main_lcore_thread, NULL, main_lcore, start);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (rc == 0) {
		while (sem_wait(&start->done) != 0) {
		}
		rc = start->rc;
		if (rc != 0) {
			pthread_join(main_lcore_thread, NULL);
		}
	}
	sem_destroy(&start->done);
	if (saved != NULL) {
		setenv("RUNTIME_DIRECTORY", saved, 1);
		free(saved);
	} else {
		unsetenv("RUNTIME_DIRECTORY");
	}
	return rc;
}

static int eal_explain(const struct eal_start *start, char *error)
{
	const char *complaint = env_eal_log_complaint();
	/* The EAL does not always set it. */
	int err = start->err > 0 ? start->err : EIO;
	const char *advice = "";

	if (err == ENOMEM) {
		advice = start->plan.hugepages ? "; set more hugepages aside (sysctl vm.nr_hugepages), or use --no-huge"
					       : "; ask for less memory (-s)";
	} else if (start->plan.hugepages) {
		advice = "; --no-huge does without hugepages";
	}
	return env_fail(error, err, "DPDK's EAL does not start%s%s (%s memory, %u MB)%s",
			complaint[0] != '\0' ? ": " : "", complaint, start->plan.hugepages ? "hugepage" : "ordinary",
			start->plan.mem_mb, advice);
}

/* Bits of coredump_filter(5): 3, files that are mapped shared, for the recorder's memory, so that a core tells what
 * happened without the file in /dev/shm; 6, shared hugepages. */
#define COREDUMP_WANTED (1 << 3 | 1 << 6)

static void coredump_include_memory(void)
{
	char text[16];
	int fd = open("/proc/self/coredump_filter", O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		return; /* kernels without core dumps */
	}
	ssize_t n = read(fd, text, sizeof(text) - 1);
	if (n > 0) {
		text[n] = '\0';
		int len = snprintf(text, sizeof(text), "%#lx", strtoul(text, NULL, 16) | COREDUMP_WANTED);
		ssize_t ignored = pwrite(fd, text, (size_t)len, 0);
		(void)ignored;
	}
	close(fd);
}

static int memory_choose(const struct env_opts *opts, struct env_memory_plan *plan, char *error)
{
	struct env_hugepages h;
	uint64_t total, available;

	env_hugepages_read("/sys/kernel/mm/hugepages", &h);
	env_memory_read("/proc/meminfo", &total, &available);
	return env_memory_plan(opts, &h, total, available, plan, error);
}

int env_init(const struct env_opts *opts, char *error)
{
	static bool called;
	struct eal_start start = {0};

	error[0] = '\0';
	if (called) {
		return env_fail(error, EALREADY, "the EAL can be started once per process");
	}
	int rc = memory_choose(opts, &start.plan, error);
	rc = rc != 0 ? rc : args_make(&eal_args, opts, &start.plan, error);
	if (rc != 0) {
		return rc;
	}
	called = true;
	coredump_include_memory();
	rc = env_eal_log_open();
	if (rc != 0) {
		return env_fail(error, -rc, "cannot collect the EAL's messages: %s", strerror(-rc));
	}
	env_ticks_calibrate_begin();
	rc = eal_start(&start);
	env_eal_log_started();
	if (rc != 0) {
		return eal_explain(&start, error);
	}
	env_ticks_calibrate_end();
	memory_plan = start.plan;
	rc = env_memory_start(memory_plan.hugepages);
	if (rc != 0) {
		env_fini();
		return env_fail(error, -rc, "cannot set up DMA memory: %s", strerror(-rc));
	}
	env_pci_start(opts);
	log_notice("Memory: %s (%s)", memory_plan.hugepages ? "hugepages" : "ordinary pages, no hugepages",
		   memory_plan.why);
	return 0;
}

void env_fini(void)
{
	env_memory_stop();
	env_lcores_stop();
	pthread_join(main_lcore_thread, NULL);
}
