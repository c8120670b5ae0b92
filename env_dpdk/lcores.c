/* SPDX-License-Identifier: BSD-3-Clause */
/* Further start-up options of the EAL, as people write them: lcores with their CPUs, and words that go to it as they
 * are. */
#include "env_dpdk/env_internal.h"
#include "env_dpdk/startup.h"

#include <ctype.h>
#include <errno.h>
#include <rte_lcore.h>
#include <string.h>

/* Reads a number or a range at *p into *set and moves past it. */
static int lcores_parse_range(const char *text, const char **p, cpu_set_t *set, char *error)
{
	unsigned bounds[2] = {0}, n = 0;

	do {
		*p += n; /* the dash */
		if (!isdigit((unsigned char)**p)) {
			return env_fail(error, EINVAL, "lcores '%.64s': expected a number at '%.16s'", text, *p);
		}
		for (; isdigit((unsigned char)**p) && bounds[n] < CPU_SETSIZE; (*p)++) {
			bounds[n] = bounds[n] * 10 + (unsigned)(**p - '0');
		}
		if (bounds[n] >= CPU_SETSIZE) {
			return env_fail(error, EINVAL, "lcores '%.64s': a number above the highest possible, %d", text,
					CPU_SETSIZE - 1);
		}
	} while (n++ == 0 && **p == '-');
	if (n == 1) {
		bounds[1] = bounds[0];
	}
	if (bounds[1] < bounds[0]) {
		return env_fail(error, EINVAL, "lcores '%.64s': the range %u-%u runs backwards", text, bounds[0],
				bounds[1]);
	}
	for (unsigned i = bounds[0]; i <= bounds[1]; i++) {
		CPU_SET(i, set);
	}
	return 0;
}

/* Reads a number, a range or a group at *p. */
static int lcores_parse_set(const char *text, const char **p, cpu_set_t *set, bool *group, char *error)
{
	int rc;

	CPU_ZERO(set);
	*group = **p == '(';
	*p += *group;
	while ((rc = lcores_parse_range(text, p, set, error)) == 0 && *group && **p == ',') {
		(*p)++;
	}
	if (rc == 0 && *group) {
		if (**p != ')') {
			return env_fail(error, EINVAL, "lcores '%.64s': the closing ) is missing at '%.16s'", text, *p);
		}
		(*p)++;
	}
	return rc;
}

/* Adds lcores that run on the CPUs: each on all of them, or each on the one of its number. */
static int lcores_add(const char *text, struct env_lcore_map *map, const cpu_set_t *lcores, const cpu_set_t *cpus,
		      bool own, char *error)
{
	cpu_set_t both;

	CPU_AND(&both, &map->lcores, lcores);
	if (CPU_COUNT(&both) != 0) {
		return env_fail(error, EINVAL, "lcores '%.64s': an lcore is named twice", text);
	}
	CPU_AND(&both, &map->cpus, cpus);
	if (CPU_COUNT(&both) != 0 || (!own && CPU_COUNT(lcores) > 1)) {
		map->shared = true;
	}
	CPU_OR(&map->lcores, &map->lcores, lcores);
	CPU_OR(&map->cpus, &map->cpus, cpus);
	return 0;
}

int env_lcores_parse(const char *text, struct env_lcore_map *map, char *error)
{
	const char *p = text;

	memset(map, 0, sizeof(*map));
	for (;; p++) {
		cpu_set_t lcores, cpus;
		bool group, unused;
		int rc = lcores_parse_set(text, &p, &lcores, &group, error);
		bool own = *p != '@' && !group;
		cpus = lcores;
		if (rc == 0 && *p == '@') {
			p++;
			rc = lcores_parse_set(text, &p, &cpus, &unused, error);
		}
		rc = rc != 0 ? rc : lcores_add(text, map, &lcores, &cpus, own, error);
		if (rc != 0) {
			return rc;
		}
		if (*p != ',') {
			break;
		}
	}
	if (*p != '\0') {
		return env_fail(error, EINVAL,
				"lcores '%.64s': '%.16s' does not belong there; LCORES[@CPUS],... are taken, where "
				"both are a number, a range (0-3) or a group, (0,2)",
				text, p);
	}
	for (int i = RTE_MAX_LCORE; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &map->lcores)) {
			return env_fail(error, EINVAL, "lcores '%.64s': lcore %d: DPDK is built for 0 to %d", text, i,
					RTE_MAX_LCORE - 1);
		}
	}
	return 0;
}

/* Each with an argument behind an equals sign, which the EAL checks. */
static const char *const eal_words[] = {
	"--log-level",         "--vfio-intr",    "--vfio-vf-token", "--force-max-simd-bitwidth",
	"--huge-worker-stack", "--socket-limit",
};

static bool eal_word_known(const char *word, size_t len)
{
	for (size_t i = 0; i < sizeof(eal_words) / sizeof(eal_words[0]); i++) {
		size_t n = strlen(eal_words[i]);
		if (len > n + 1 && strncmp(word, eal_words[i], n) == 0 && word[n] == '=') {
			return true;
		}
	}
	return false;
}

int env_eal_words_check(const char *words, char *error)
{
	char known[256] = "";
	unsigned count = 0;

	for (size_t i = 0, used = 0; i < sizeof(eal_words) / sizeof(eal_words[0]); i++) {
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s=VALUE", i == 0 ? "" : ", ",
					 eal_words[i]);
	}
	for (const char *p = words + strspn(words, " "); *p != '\0'; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");
		if (!eal_word_known(p, len)) {
			return env_fail(error, EINVAL,
					"'%.*s' is not among the EAL's options that may be given: %s; the others "
					"follow from options of this program",
					len > 64 ? 64 : (int)len, p, known);
		}
		if (len >= ENV_CORES_MAX || ++count > ENV_EAL_WORDS_MAX) {
			return env_fail(error, EINVAL, "'%.64s': at most %d options of at most %d characters are taken",
					p, ENV_EAL_WORDS_MAX, ENV_CORES_MAX - 1);
		}
		p += len;
	}
	return 0;
}
