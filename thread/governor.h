/* SPDX-License-Identifier: BSD-3-Clause */
/* The frequencies of the reactors' CPUs, by the kernel's cpufreq files (/sys/devices/system/cpu/cpuN/cpufreq), while
 * the dynamic scheduler is in use: a core with much to do gets the highest, one with little goes down step by step, one
 * without threads has the lowest. The limits that an operator has set there (scaling_min_freq, scaling_max_freq) are
 * kept. Control thread. */
#ifndef THREAD_GOVERNOR_H
#define THREAD_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#include "thread/balance.h"

#define GOVERNOR_NAME "cpufreq"
/* Names another folder than /sys/devices/system/cpu, for tests. */
#define GOVERNOR_FOLDER_VARIABLE "VARVE_SYSFS_CPU"

/* What becomes of a core's frequency. In ascending order: of cores that have one frequency, the last one counts. */
enum governor_step { GOVERNOR_LOWEST, GOVERNOR_DOWN, GOVERNOR_STAY, GOVERNOR_HIGHEST };

/* Decides for a core that will have that load (in ten-thousandths) and so many threads. Pure. */
enum governor_step governor_decide(const struct balance_limits *limits, uint32_t load, unsigned num_threads);

/* Takes the frequencies of all reactors' CPUs over, at the highest. If one of them has no governor "userspace", or the
 * frequency of a CPU without a reactor, or its files may not be written, nothing is changed, and the log says why: the
 * frequencies are left to the kernel. Nothing if it is in use. */
void governor_start(void);
/* Gives them back as they were. Nothing if it is not in use. */
void governor_stop(void);
/* Whether it is in use. */
bool governor_is_used(void);
/* The kernel's driver of the first core ("acpi-cpufreq" ...); "" if it does not say so. */
const char *governor_driver(void);
/* The present frequency of a reactor's core, in kHz; 0: not known. Asking may take the kernel tens of milliseconds. */
uint32_t governor_khz(unsigned lcore);
/* The frequency that was set last; 0: it is not in use. */
uint32_t governor_khz_set(unsigned lcore);
/* Carries a decision for each core out: steps[i] is that of lcores[i]. A write that fails ends the governor. */
void governor_apply(const unsigned *lcores, const enum governor_step *steps, unsigned count);

#endif
