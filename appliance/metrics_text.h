/* SPDX-License-Identifier: BSD-3-Clause */
/* Text in the Prometheus exposition format 0.0.4, written family by family. Needs nothing but env_ticks_to_ns().
 *
 *     metrics_family(m, "varve_bdev_ios_total", METRICS_COUNTER, "I/O that succeeded.");
 *     metrics_uint(m, 17, "bdev", "Malloc0", "op", "read", NULL);
 *
 * A family whose values are a member of some structure is a row of a table, with its help text beside its name:
 *
 *     static const struct metric families[] = {
 *         METRIC("a_bytes_total", METRICS_COUNTER, METRICS_PLAIN, struct ops, bytes, "Bytes moved."),
 *     };
 *     metrics_begin(m, &families[0]);
 *     metrics_sample(m, &families[0], &ops, "bdev", "Malloc0", "op", "read", NULL);
 *
 * Names of metrics and labels, and help texts, are varve's own and contain nothing to escape; label values may be
 * anything: what is not UTF-8 becomes U+FFFD, and what would end the value is escaped. When memory runs out nothing
 * more is added, and metrics_take() says so. One thread at a time for a struct metrics_text. */
#ifndef APPLIANCE_METRICS_TEXT_H
#define APPLIANCE_METRICS_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metrics_type {
	METRICS_COUNTER,
	METRICS_GAUGE,
	METRICS_HISTOGRAM, /* of times in seconds */
};

/* What a member's number counts. Metrics are in seconds, whatever the member is in. */
enum metrics_unit {
	METRICS_PLAIN, /* objects, events, bytes */
	METRICS_TICKS,
	METRICS_JIFFIES, /* the kernel's: a second has sysconf(_SC_CLK_TCK) of them */
	METRICS_MS,
};

/* A family of metrics whose values are a member of a structure. */
struct metric {
	const char *name;
	enum metrics_type type;
	enum metrics_unit unit;
	size_t offset, size; /* of the member: an unsigned integer, or bool */
	const char *help;    /* a sentence */
};
#define METRIC(name_, type_, unit_, struct_, member_, help_)                                                           \
	{                                                                                                              \
		.name = name_, .type = type_, .unit = unit_, .offset = offsetof(struct_, member_),                     \
		.size = sizeof(((struct_ *)NULL)->member_), .help = help_                                              \
	}

/* Zero-initialised by its owner. */
struct metrics_text {
	char *text;
	size_t len, size;
	bool failed;        /* there was no memory */
	const char *family; /* the name that samples get */
};

/* Begins a family: its HELP and TYPE lines. The name must stay until the next family begins. */
void metrics_family(struct metrics_text *m, const char *name, enum metrics_type type, const char *help);
/* A sample of the family that was begun last: pairs of label and value, both const char *, ended by NULL. */
void metrics_uint(struct metrics_text *m, uint64_t value, ...) __attribute__((sentinel));
/* The same for a time, in seconds, exact to the nanosecond. */
void metrics_ns(struct metrics_text *m, uint64_t ns, ...) __attribute__((sentinel));

struct latency_histogram;
/* The same for times: a classic histogram. ns: their sum. At least one label. */
void metrics_histogram(struct metrics_text *m, const struct latency_histogram *h, uint64_t ns, ...)
	__attribute__((sentinel));
/* Begins the family of a table's row. */
void metrics_begin(struct metrics_text *m, const struct metric *family);
/* A sample of that family: the member of object, with labels as for metrics_uint(). */
void metrics_sample(struct metrics_text *m, const struct metric *family, const void *object, ...)
	__attribute__((sentinel));

/* The text, which the caller frees, and its length; NULL when there was no memory for it. m is empty afterwards. */
char *metrics_take(struct metrics_text *m, size_t *len);

#endif
