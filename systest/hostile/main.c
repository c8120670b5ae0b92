/* SPDX-License-Identifier: BSD-3-Clause */
/* hostile-host: a host that keeps to nothing, and knows what the specification wants answered. */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "systest/hostile/lane.h"

#define SHOWN 20

static const char usage[] = "Usage: hostile-host -a ADDRESS -p PORT -n SUBNQN [option...]\n"
			    "Sends malformed connection requests, commands and messages to a target, and "
			    "checks what comes back.\n\n"
			    "  -c, --cases N     how many (default 5000)\n"
			    "  -S, --seed N      of the random numbers (default: the clock)\n"
			    "  -o, --only N      only case N of the seed\n"
			    "  -k, --kind NAME   only cases of this kind\n"
			    "  -i, --nsid N      the namespace to work on (default 2); commands at random go "
			    "to the one after it\n"
			    "  -H, --hidden N    one that this host is not shown (default 1)\n"
			    "      --hostnqn NQN the name of this host\n"
			    "      --keyed NQN   the name of one that has to authenticate, with --key\n"
			    "      --key HEX     its key, as bytes: not transformed\n"
			    "      --ana NQN     a subsystem that reports asymmetric access, and does not change\n"
			    "      --reserved NQN  one whose namespace 1 nobody else uses\n"
			    "      --discovery NQN  a discovery subsystem whose log does not change\n"
			    "      --deadline MS how long to wait for an answer (default 90000)\n"
			    "  -h, --help\n";

static uint64_t seed;
static unsigned failures;
static uint64_t tried[64];

void kase_fail(struct kase *k, const char *format, ...)
{
	char why[256];
	va_list ap;

	if (++failures > SHOWN) {
		return;
	}
	va_start(ap, format);
	vsnprintf(why, sizeof(why), format, ap);
	va_end(ap);
	fprintf(stderr, "seed %llu case %llu, %s (%s): %s\n", (unsigned long long)seed, (unsigned long long)k->number,
		k->kind->name, k->what, why);
	for (unsigned i = 0; i < k->num_steps; i++) {
		fprintf(stderr, "\tcommand %u, %u bytes:", i, k->step[i]->len);
		for (unsigned b = 0; b < SQE_SIZE; b++) {
			fprintf(stderr, "%s%02x", b % 4 == 0 ? " " : "", k->step[i]->bytes[b]);
		}
		fprintf(stderr, "\n");
	}
}

/* Commands at random may reserve a namespace, or change what the others' answers depend on: another host sends them, to
 * a namespace of its own. */
struct targets {
	struct facts tame, wild, discovery, ana, reserved;
};

static const struct facts *facts_of(const struct targets *t, enum lane lane)
{
	switch (lane) {
	case LANE_WILD_IO:
	case LANE_WILD_ADMIN:
		return &t->wild;
	case LANE_DISCOVERY:
	case LANE_OWN_DISCOVERY:
		return &t->discovery;
	case LANE_ANA_IO:
	case LANE_ANA_ADMIN:
		return &t->ana;
	case LANE_OWN_RESERVED:
		return &t->reserved;
	default:
		return &t->tame;
	}
}

/* Of kinds whose target was named. */
static uint32_t weight(const struct targets *t, const struct kind *kind)
{
	return facts_of(t, kind->lane)->at.subnqn != NULL ? kind->weight : 0;
}

static const struct kind *choose_kind(const struct targets *t, struct rng *r)
{
	uint32_t sum = 0, at;

	for (unsigned i = 0; i < num_kinds; i++) {
		sum += weight(t, &kinds[i]);
	}
	at = rng_below(r, sum);
	for (unsigned i = 0;; i++) {
		if (at < weight(t, &kinds[i])) {
			return &kinds[i];
		}
		at -= weight(t, &kinds[i]);
	}
}

static bool run_case(const struct targets *t, uint64_t number, const struct kind *only)
{
	struct kase k = {.number = number, .rng = {seed * UINT64_C(0xd1342543de82ef95) + number}};

	rng_next(&k.rng);
	k.kind = choose_kind(t, &k.rng);
	if (only != NULL && k.kind != only) {
		return true;
	}
	tried[k.kind - kinds]++;
	k.facts = facts_of(t, k.kind->lane);
	if (k.kind->lane < LANES) {
		if (!lane_add(k.kind->lane, &k)) {
			kase_fail(&k, "no controller could be had");
			return false;
		}
		return true;
	}
	k.kind->make(&k);
	return failures < 1000;
}

static void report(double seconds)
{
	uint64_t sum = 0;

	printf("{\"seed\": %llu, \"seconds\": %.2f, \"failures\": %u, \"controllers\": %u, \"kinds\": {",
	       (unsigned long long)seed, seconds, failures, lane_sessions);
	for (unsigned i = 0; i < num_kinds; i++) {
		sum += tried[i];
		printf("%s\"%s\": %llu", i ? ", " : "", kinds[i].name, (unsigned long long)tried[i]);
	}
	printf("}, \"cases\": %llu}\n", (unsigned long long)sum);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct options {
	struct address at;
	uint64_t cases, only;
	bool has_only;
	const struct kind *kind;
	uint32_t nsid, hidden;
	const char *keyed, *ana, *discovery, *reserved;
	uint8_t key[64];
	size_t key_len;
};

static void parse_key(struct options *o, const char *hex)
{
	unsigned byte;

	for (; o->key_len < sizeof(o->key) && sscanf(hex, "%2x", &byte) == 1 && strlen(hex) >= 2; hex += 2) {
		o->key[o->key_len++] = (uint8_t)byte;
	}
	if (*hex != 0 || o->key_len == 0) {
		fprintf(stderr, "hostile-host: --key: two hexadecimal digits for each of 1 to %zu bytes\n",
			sizeof(o->key));
		exit(2);
	}
}

static const struct kind *find_kind(const char *name)
{
	for (unsigned i = 0; i < num_kinds; i++) {
		if (strcmp(kinds[i].name, name) == 0) {
			return &kinds[i];
		}
	}
	fprintf(stderr, "hostile-host: no kind '%s'; there are:", name);
	for (unsigned i = 0; i < num_kinds; i++) {
		fprintf(stderr, "%s %s", i ? "," : "", kinds[i].name);
	}
	fprintf(stderr, "\n");
	exit(2);
}

static bool too_long(const char *nqn)
{
	return nqn != NULL && strlen(nqn) > 223;
}

static void parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{"address", 1, NULL, 'a'},   {"port", 1, NULL, 'p'},     {"nqn", 1, NULL, 'n'},
		{"cases", 1, NULL, 'c'},     {"seed", 1, NULL, 'S'},     {"only", 1, NULL, 'o'},
		{"kind", 1, NULL, 'k'},      {"nsid", 1, NULL, 'i'},     {"hidden", 1, NULL, 'H'},
		{"help", 0, NULL, 'h'},      {"hostnqn", 1, NULL, 256},  {"deadline", 1, NULL, 257},
		{"keyed", 1, NULL, 258},     {"key", 1, NULL, 259},      {"ana", 1, NULL, 260},
		{"discovery", 1, NULL, 261}, {"reserved", 1, NULL, 262}, {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "a:p:n:c:S:o:k:i:H:h", longs, NULL)) != -1) {
		switch (c) {
		case 'a':
			o->at.ip = optarg;
			break;
		case 'p':
			o->at.port = optarg;
			break;
		case 'n':
			o->at.subnqn = optarg;
			break;
		case 'c':
			o->cases = strtoull(optarg, NULL, 0);
			break;
		case 'S':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			o->only = strtoull(optarg, NULL, 0), o->has_only = true;
			break;
		case 'k':
			o->kind = find_kind(optarg);
			break;
		case 'i':
			o->nsid = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'H':
			o->hidden = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 256:
			o->at.hostnqn = optarg;
			break;
		case 257:
			link_deadline_ms = atoi(optarg);
			break;
		case 258:
			o->keyed = optarg;
			break;
		case 259:
			parse_key(o, optarg);
			break;
		case 260:
			o->ana = optarg;
			break;
		case 261:
			o->discovery = optarg;
			break;
		case 262:
			o->reserved = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			exit(2);
		}
	}
	if (o->at.ip == NULL || o->at.port == NULL || o->at.subnqn == NULL || too_long(o->at.subnqn) ||
	    too_long(o->at.hostnqn) || too_long(o->keyed) || too_long(o->ana) || too_long(o->discovery) ||
	    too_long(o->reserved) || (o->keyed == NULL) != (o->key_len == 0)) {
		fputs(usage, stderr);
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct options o = {
		.at = {.hostnqn = "nqn.2026-11.io.varve:hostile", .hostid = {0x68, 0x6f, 0x73, 0x74, [15] = 1}},
		.cases = 5000,
		.nsid = 2,
		.hidden = 1};
	static struct targets t;
	double start = now();

	seed = (uint64_t)time(NULL);
	parse(argc, argv, &o);
	fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
	struct address other = o.at, discovery = o.at, ana = o.at, reserved = o.at;
	other.hostid[15] = 2;
	discovery.subnqn = o.discovery;
	ana.subnqn = o.ana;
	reserved.subnqn = o.reserved;
	if (facts_get(&t.tame, &o.at, o.nsid, o.hidden) != 0 || facts_get(&t.wild, &other, o.nsid + 1, o.hidden) != 0 ||
	    (o.discovery != NULL && facts_get_discovery(&t.discovery, &discovery) != 0) ||
	    (o.ana != NULL && facts_get_ana(&t.ana, &ana) != 0) ||
	    (o.reserved != NULL && facts_get(&t.reserved, &reserved, 1, 0) != 0)) {
		return 2;
	}
	if (o.keyed != NULL) {
		t.tame.keyed = o.at;
		t.tame.keyed.hostnqn = o.keyed;
		t.tame.keyed.hostid[15] = 3;
		memcpy(t.tame.key, o.key, o.key_len);
		t.tame.key_len = o.key_len;
	}
	if (o.has_only) {
		run_case(&t, o.only, NULL);
	}
	for (uint64_t n = 0; n < o.cases && !o.has_only; n++) {
		if (!run_case(&t, n, o.kind)) {
			break;
		}
	}
	lanes_end();
	half_open_end();
	reservations_end();
	report(now() - start);
	return failures != 0;
}
