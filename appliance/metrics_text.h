/* SPDX-License-Identifier: BSD-3-Clause */
/* Text in the Prometheus exposition format 0.0.4, written a family at a time. Pure.
 *
 *     metrics_family(m, "varve_bdev_ios_total", METRICS_COUNTER, "I/O that succeeded.");
 *     metrics_uint(m, 17, "bdev", "Malloc0", "op", "read", NULL);
 *
 * Names and help are ours and plain; label values may be anything: what is not UTF-8 becomes U+FFFD, and what would end
 * the value is escaped. When memory runs out nothing more is added, and metrics_take() says so. */
#ifndef APPLIANCE_METRICS_TEXT_H
#define APPLIANCE_METRICS_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metrics_type {
	METRICS_COUNTER,
	METRICS_GAUGE,
};

struct metrics_text {
	char *text;
	size_t len, size;
	bool failed;
	const char *family; /* the name that samples get */
};

void metrics_family(struct metrics_text *m, const char *name, enum metrics_type type, const char *help);
/* A sample of the family: pairs of label and value, both const char *, ended by NULL. */
void metrics_uint(struct metrics_text *m, uint64_t value, ...) __attribute__((sentinel));
/* In seconds, exact to the nanosecond. */
void metrics_ns(struct metrics_text *m, uint64_t ns, ...) __attribute__((sentinel));
/* The text, the caller's, and its length; NULL when there was no memory for it. m is empty afterwards. */
char *metrics_take(struct metrics_text *m, size_t *len);

#endif
