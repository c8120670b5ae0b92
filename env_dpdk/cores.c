/* SPDX-License-Identifier: BSD-3-Clause */
/* Core sets as people write them. */
#include "env_dpdk/env_internal.h"

#include <ctype.h>
#include <errno.h>
#include <rte_lcore.h>
#include <stdlib.h>
#include <string.h>

static int cores_parse_mask(const char *text, cpu_set_t *cores, char *error)
{
	const char *digits = strncasecmp(text, "0x", 2) == 0 ? text + 2 : text;
	size_t n = strlen(digits);

	for (size_t i = 0; i < n; i++) {
		if (!isxdigit((unsigned char)digits[i])) {
			return env_fail(error, EINVAL,
					"cores '%.64s': neither a hexadecimal mask (0x3) nor a list ([0,2-3])", text);
		}
	}
	for (size_t i = 0; i < n; i++) {
		char digit[2] = {digits[n - 1 - i], '\0'};
		unsigned long value = strtoul(digit, NULL, 16);
		for (unsigned bit = 0; bit < 4; bit++) {
			size_t core = i * 4 + bit;
			if ((value >> bit & 1) == 0) {
				continue;
			}
			if (core >= CPU_SETSIZE) {
				return env_fail(error, EINVAL,
						"cores '%.64s': core %zu is above the highest possible, %d", text, core,
						CPU_SETSIZE - 1);
			}
			CPU_SET(core, cores);
		}
	}
	return 0;
}

/* Reads one number at *p and moves past it. */
static int cores_parse_number(const char *text, const char **p, unsigned *number, char *error)
{
	unsigned value = 0;

	if (!isdigit((unsigned char)**p)) {
		return env_fail(error, EINVAL, "cores '%.64s': expected a core number at '%.16s'", text, *p);
	}
	for (; isdigit((unsigned char)**p); (*p)++) {
		value = value * 10 + (unsigned)(**p - '0');
		if (value >= CPU_SETSIZE) {
			return env_fail(error, EINVAL, "cores '%.64s': a core number above the highest possible, %d",
					text, CPU_SETSIZE - 1);
		}
	}
	*number = value;
	return 0;
}

static int cores_parse_range(const char *text, const char **p, cpu_set_t *cores, char *error)
{
	unsigned first, last;
	int rc = cores_parse_number(text, p, &first, error);

	if (rc != 0) {
		return rc;
	}
	last = first;
	if (**p == '-') {
		(*p)++;
		rc = cores_parse_number(text, p, &last, error);
		if (rc != 0) {
			return rc;
		}
	}
	if (last < first) {
		return env_fail(error, EINVAL, "cores '%.64s': the range %u-%u runs backwards", text, first, last);
	}
	for (unsigned core = first; core <= last; core++) {
		CPU_SET(core, cores);
	}
	return 0;
}

static int cores_parse_list(const char *text, cpu_set_t *cores, char *error)
{
	bool bracket = *text == '[';
	const char *p = text + bracket;

	for (;;) {
		int rc = cores_parse_range(text, &p, cores, error);
		if (rc != 0) {
			return rc;
		}
		if (*p != ',') {
			break;
		}
		p++;
	}
	if (bracket && *p != ']') {
		return env_fail(error, EINVAL, "cores '%.64s': the closing ] is missing", text);
	}
	if (p[bracket] != '\0') {
		return env_fail(error, EINVAL, "cores '%.64s': '%.16s' does not belong there", text, p + bracket);
	}
	return 0;
}

int env_cores_parse(const char *text, cpu_set_t *cores, char *error)
{
	int rc;

	CPU_ZERO(cores);
	if (strpbrk(text, "[],-") != NULL) {
		rc = cores_parse_list(text, cores, error);
	} else {
		rc = cores_parse_mask(text, cores, error);
	}
	if (rc == 0 && CPU_COUNT(cores) == 0) {
		rc = env_fail(error, EINVAL, "cores '%.64s': no core in it", text);
	}
	return rc;
}

void env_cores_format(const cpu_set_t *cores, char *buf)
{
	size_t n = 0;

	buf[0] = '\0';
	for (int core = 0; core < CPU_SETSIZE && n < ENV_CORES_MAX - 12; core++) {
		int last = core;
		if (!CPU_ISSET(core, cores)) {
			continue;
		}
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores)) {
			last++;
		}
		n += (size_t)snprintf(buf + n, ENV_CORES_MAX - n, last > core ? "%s%d-%d" : "%s%d", n > 0 ? "," : "",
				      core, last);
		core = last;
	}
}

void env_cores_format_mask(const cpu_set_t *cores, char *buf)
{
	size_t n = 0;

	for (int base = CPU_SETSIZE - 4; base >= 0; base -= 4) {
		unsigned digit = 0;
		for (int bit = 0; bit < 4; bit++) {
			digit |= (CPU_ISSET(base + bit, cores) ? 1U : 0U) << bit;
		}
		if (digit != 0 || n > 0 || base == 0) {
			buf[n++] = "0123456789abcdef"[digit];
		}
	}
	buf[n] = '\0';
}

int env_cores_check(const cpu_set_t *cores, const cpu_set_t *allowed, const cpu_set_t *present, char *error)
{
	char list[ENV_CORES_MAX];

	for (unsigned core = 0; core < CPU_SETSIZE; core++) {
		if (!CPU_ISSET(core, cores)) {
			continue;
		}
		if (!CPU_ISSET(core, present)) {
			env_cores_format(present, list);
			return env_fail(error, EINVAL,
					"core %u does not exist: this machine has %.200s; choose among those with -m",
					core, list);
		}
		if (!CPU_ISSET(core, allowed)) {
			env_cores_format(allowed, list);
			return env_fail(error, EINVAL,
					"core %u is not allowed for this process (taskset or cgroup): it may "
					"use %.200s; choose "
					"among those with -m",
					core, list);
		}
		if (core >= RTE_MAX_LCORE) {
			return env_fail(error, EINVAL, "core %u: DPDK is built for the cores 0 to %u", core,
					RTE_MAX_LCORE - 1);
		}
	}
	return 0;
}
