/* SPDX-License-Identifier: BSD-3-Clause */
/* DPDK's rte_power does the same, but takes the governor of one core at a time, cannot tell cores that share a
 * frequency (a cpufreq policy), and has its paths built in, so that no test could reach it.
 *
 * Only by the kernel's governor "userspace". Drivers that choose by themselves (intel_pstate, amd-pstate) have none,
 * and are left alone: all that could be set there is an operator's own limit, which a crash would leave lowered. */
#include "thread/governor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env_dpdk/env.h"
#include "util/log.h"

#define FOLDER     "/sys/devices/system/cpu"
#define STEPS_MAX  64
#define STEP_KHZ   100000 /* where the kernel has no list of frequencies */
#define PERCENT    100U   /* a hundredth, in the unit of loads */
#define WORD_BYTES 64
#define LINE_BYTES 1024

/* Those that have one frequency (a cpufreq policy) have one number of a policy: the index of the first of them. */
struct governor_core {
	unsigned lcore, policy;
	/* Of the first one of a policy. */
	bool taken;              /* to be given back */
	uint32_t khz[STEPS_MAX]; /* descending */
	unsigned num_steps, step;
	char old_governor[WORD_BYTES], old_speed[WORD_BYTES]; /* old_speed: if the old governor was userspace */
};

static struct governor_core *cores;
static unsigned num_cores;
static char driver_line[LINE_BYTES];
static const char *cpu_folder;

/* ---- Files ---- */

static void cpufreq_path(char path[PATH_MAX], unsigned lcore, const char *file)
{
	snprintf(path, PATH_MAX, "%s/cpu%u/cpufreq/%s", cpu_folder, lcore, file);
}

/* The first line of a file. 0 or -errno. */
static int cpufreq_read(unsigned lcore, const char *file, char line[LINE_BYTES])
{
	char path[PATH_MAX];

	cpufreq_path(path, lcore, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, LINE_BYTES - 1);
	int rc = n < 0 ? -errno : 0;
	if (fd >= 0) {
		close(fd);
	}
	line[n > 0 ? n : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return rc;
}

static int cpufreq_write(unsigned lcore, const char *file, const char *text)
{
	size_t length = strlen(text);
	char path[PATH_MAX];

	cpufreq_path(path, lcore, file);
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, length);
	int rc = n < 0 ? -errno : n != (ssize_t)length ? -EIO : 0;
	if (fd >= 0) {
		close(fd);
	}
	if (rc != 0) {
		log_warning("the frequency of CPU %u: '%s' cannot be written to %s: %s", lcore, text, path,
			    strerror(-rc));
	}
	return rc;
}

static uint32_t cpufreq_khz(unsigned lcore, const char *file)
{
	char line[LINE_BYTES];

	if (cpufreq_read(lcore, file, line) != 0) {
		return 0;
	}
	unsigned long khz = strtoul(line, NULL, 10);
	return khz <= UINT32_MAX ? (uint32_t)khz : 0;
}

static int write_khz(const struct governor_core *c, uint32_t khz)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", khz);
	return cpufreq_write(c->lcore, "scaling_setspeed", text);
}

/* ---- What there is ---- */

static bool has_word(const char *line, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = line; (at = strstr(at, word)) != NULL; at += length) {
		if ((at == line || at[-1] == ' ') && (at[length] == '\0' || at[length] == ' ')) {
			return true;
		}
	}
	return false;
}

static void step_add(struct governor_core *c, uint32_t khz, uint32_t low, uint32_t high)
{
	unsigned i = c->num_steps;

	if (khz < low || khz > high || i == STEPS_MAX) {
		return;
	}
	for (; i > 0 && c->khz[i - 1] < khz; i--) {
		c->khz[i] = c->khz[i - 1];
	}
	c->khz[i] = khz;
	c->num_steps++;
}

/* The frequencies of the kernel's list, or, without one, from low to high. */
static void steps_read(struct governor_core *c, uint32_t low, uint32_t high)
{
	char line[LINE_BYTES];

	c->num_steps = c->step = 0;
	if (cpufreq_read(c->lcore, "scaling_available_frequencies", line) == 0) {
		for (char *next, *at = line;; at = next) {
			unsigned long khz = strtoul(at, &next, 10);
			if (next == at) {
				break;
			}
			step_add(c, khz <= UINT32_MAX ? (uint32_t)khz : 0, low, high);
		}
	}
	if (c->num_steps == 0) {
		uint32_t by = (high - low) / (STEPS_MAX - 2) > STEP_KHZ ? (high - low) / (STEPS_MAX - 2) : STEP_KHZ;
		for (uint32_t khz = high; khz - low > by; khz -= by) {
			step_add(c, khz, low, high);
		}
		step_add(c, low, low, high);
	}
}

static bool core_fails(const struct governor_core *c, const char *file, int rc)
{
	char path[PATH_MAX];

	cpufreq_path(path, c->lcore, file);
	log_limited(LOG_LEVEL_NOTICE, "the frequency of CPUs is left to the kernel: %s: %s", path, strerror(-rc));
	return false;
}

/* 0 or -errno: whether the file may be written. Nothing is. */
static int cpufreq_try(unsigned lcore, const char *file)
{
	char path[PATH_MAX];

	cpufreq_path(path, lcore, file);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	close(fd);
	return 0;
}

static bool is_reactors_cpu(unsigned long cpu)
{
	unsigned lcore;

	ENV_FOREACH_LCORE (lcore) {
		if (lcore == cpu) {
			return true;
		}
	}
	return false;
}

/* Whether all CPUs that have the core's frequency are reactors': what runs on others must not be slowed. */
static bool core_has_own_frequency(const struct governor_core *c)
{
	char line[LINE_BYTES];

	if (cpufreq_read(c->lcore, "affected_cpus", line) != 0) {
		return true;
	}
	for (char *next, *at = line;; at = next) {
		unsigned long cpu = strtoul(at, &next, 10);
		if (next == at) {
			return true;
		}
		if (!is_reactors_cpu(cpu)) {
			log_limited(LOG_LEVEL_NOTICE,
				    "the frequency of CPUs is left to the kernel: CPU %lu, which has no reactor, has "
				    "that of CPU %u",
				    cpu, c->lcore);
			return false;
		}
	}
}

/* Which governor there is, and that it can be replaced. */
static bool core_read_governor(struct governor_core *c)
{
	char line[LINE_BYTES];
	int rc = cpufreq_read(c->lcore, "scaling_governor", line);

	if (rc != 0 || line[0] == '\0' || strlen(line) >= WORD_BYTES) {
		return core_fails(c, "scaling_governor", rc != 0 ? rc : -EINVAL);
	}
	memcpy(c->old_governor, line, strlen(line) + 1);
	if (cpufreq_read(c->lcore, "scaling_available_governors", line) != 0 || !has_word(line, "userspace")) {
		log_limited(LOG_LEVEL_NOTICE,
			    "the frequency of CPUs is left to the kernel: CPU %u has no governor userspace", c->lcore);
		return false;
	}
	rc = cpufreq_try(c->lcore, "scaling_governor");
	if (rc != 0) {
		return core_fails(c, "scaling_governor", rc);
	}
	rc = cpufreq_try(c->lcore, "scaling_setspeed");
	if (rc == 0 && strcmp(c->old_governor, "userspace") == 0) {
		rc = cpufreq_read(c->lcore, "scaling_setspeed", line);
		snprintf(c->old_speed, sizeof(c->old_speed), "%.*s", WORD_BYTES - 1, line);
	}
	return rc == 0 || core_fails(c, "scaling_setspeed", rc);
}

/* Reads what the first core of a policy has. False: it cannot be governed; the log says why. */
static bool core_read(struct governor_core *c)
{
	uint32_t low = cpufreq_khz(c->lcore, "scaling_min_freq"), high = cpufreq_khz(c->lcore, "scaling_max_freq");

	if (!core_read_governor(c) || !core_has_own_frequency(c)) {
		return false;
	}
	if (low == 0 || high < low) {
		return core_fails(c, low == 0 ? "scaling_min_freq" : "scaling_max_freq", -EINVAL);
	}
	steps_read(c, low, high);
	return c->num_steps != 0 || core_fails(c, "scaling_available_frequencies", -EINVAL);
}

/* False: it could not be taken over; the log says why. */
static bool core_take(struct governor_core *c)
{
	c->taken = cpufreq_write(c->lcore, "scaling_governor", "userspace") == 0;
	return c->taken && write_khz(c, c->khz[0]) == 0;
}

static void core_give_back(struct governor_core *c)
{
	cpufreq_write(c->lcore, "scaling_governor", c->old_governor);
	if (c->old_speed[0] != '\0') {
		cpufreq_write(c->lcore, "scaling_setspeed", c->old_speed);
	}
}

/* The first core that has the same directory: a policy of several cores is one, which their names link to. */
static unsigned policy_of(unsigned index)
{
	char path[PATH_MAX];
	struct stat own, other;

	cpufreq_path(path, cores[index].lcore, "");
	if (stat(path, &own) != 0) {
		return index;
	}
	for (unsigned i = 0; i < index; i++) {
		cpufreq_path(path, cores[i].lcore, "");
		if (stat(path, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino) {
			return i;
		}
	}
	return index;
}

static bool cores_read(void)
{
	unsigned lcore, n = 0;

	ENV_FOREACH_LCORE (lcore) {
		n++;
	}
	cores = calloc(n, sizeof(cores[0]));
	if (cores == NULL) {
		log_warning("the frequency of CPUs is left to the kernel: out of memory");
		return false;
	}
	ENV_FOREACH_LCORE (lcore) {
		struct governor_core *c = &cores[num_cores];
		c->lcore = lcore;
		c->policy = policy_of(num_cores++);
		if (&cores[c->policy] == c && !core_read(c)) {
			return false;
		}
	}
	return true;
}

/* ---- Use ---- */

enum governor_step governor_decide(const struct balance_limits *limits, uint32_t load, unsigned num_threads)
{
	if (num_threads == 0) {
		return GOVERNOR_LOWEST;
	}
	if (load > limits->core_limit * PERCENT) {
		return GOVERNOR_HIGHEST;
	}
	return load < limits->load_limit * PERCENT ? GOVERNOR_DOWN : GOVERNOR_STAY;
}

void governor_start(void)
{
	if (governor_is_used()) {
		return;
	}
	const char *folder = secure_getenv(GOVERNOR_FOLDER_VARIABLE);
	cpu_folder = folder != NULL ? folder : FOLDER;
	bool good = cores_read();
	for (unsigned i = 0; good && i < num_cores; i++) {
		good = cores[i].policy != i || core_take(&cores[i]);
	}
	if (!good) {
		governor_stop();
		return;
	}
	if (cpufreq_read(cores[0].lcore, "scaling_driver", driver_line) != 0) {
		driver_line[0] = '\0';
	}
	log_limited(LOG_LEVEL_NOTICE, "the dynamic scheduler governs the frequency of %u CPUs, %u to %u kHz (%s)",
		    num_cores, cores[0].khz[cores[0].num_steps - 1], cores[0].khz[0], cpu_folder);
}

void governor_stop(void)
{
	for (unsigned i = 0; i < num_cores; i++) {
		if (cores[i].taken) {
			core_give_back(&cores[i]);
		}
	}
	free(cores);
	cores = NULL;
	num_cores = 0;
}

bool governor_is_used(void)
{
	return num_cores != 0;
}

const char *governor_driver(void)
{
	return driver_line;
}

uint32_t governor_khz(unsigned lcore)
{
	return cpufreq_khz(lcore, "scaling_cur_freq");
}

uint32_t governor_khz_set(unsigned lcore)
{
	for (unsigned i = 0; i < num_cores; i++) {
		if (cores[i].lcore == lcore) {
			const struct governor_core *c = &cores[cores[i].policy];
			return c->khz[c->step];
		}
	}
	return 0;
}

static unsigned step_after(const struct governor_core *c, enum governor_step step)
{
	switch (step) {
	case GOVERNOR_LOWEST:
		return c->num_steps - 1;
	case GOVERNOR_DOWN:
		return c->step + 1 < c->num_steps ? c->step + 1 : c->step;
	case GOVERNOR_HIGHEST:
		return 0;
	default:
		return c->step;
	}
}

static enum governor_step step_wanted(const struct governor_core *c, const unsigned *lcores,
				      const enum governor_step *steps, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (lcores[i] == c->lcore) {
			return steps[i];
		}
	}
	return GOVERNOR_STAY;
}

void governor_apply(const unsigned *lcores, const enum governor_step *steps, unsigned count)
{
	for (unsigned i = 0; i < num_cores; i++) {
		enum governor_step wanted = GOVERNOR_LOWEST;
		for (unsigned n = i; cores[i].policy == i && n < num_cores; n++) {
			enum governor_step one = step_wanted(&cores[n], lcores, steps, count);
			wanted = cores[n].policy == i && one > wanted ? one : wanted;
		}
		unsigned step = cores[i].policy == i ? step_after(&cores[i], wanted) : cores[i].step;
		if (step == cores[i].step) {
			continue;
		}
		if (write_khz(&cores[i], cores[i].khz[step]) != 0) {
			log_warning("the frequency of CPUs is left to the kernel from now on");
			governor_stop();
			return;
		}
		cores[i].step = step;
	}
}
