/* SPDX-License-Identifier: BSD-3-Clause */
/* What is found wrong: counted, and told to operators by the control thread, by a line in the log and a notification.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "trace/trace.h"
#include "util/log.h"

static void (*notice_fn)(const char *type, const char *bdev, const char *text);

void bdev_integrity_set_notice_fn(void (*fn)(const char *type, const char *bdev, const char *text))
{
	notice_fn = fn;
}

void integrity_tell(const struct integrity_bdev *d, const char *text)
{
	log_limited(LOG_LEVEL_ERROR, "bdev %s: %s", d->name, text);
	if (notice_fn != NULL) {
		notice_fn("bdev_integrity_error", d->name, text);
	}
}

static void tell_unit(const struct integrity_bdev *d, const struct bdev_integrity_error *e)
{
	char text[BDEV_ERROR_MAX + 128];

	snprintf(text, sizeof(text),
		 "the data of block %" PRIu64 " is wrong (bdev %.200s, block %" PRIu64
		 "): its CRC32C is %08x, it was written with %08x",
		 e->lba, d->base_name, e->base_lba, e->found, e->expected);
	integrity_tell(d, text);
}

static void reports_message(struct thread_msg *msg)
{
	struct integrity_bdev *d = container_of(msg, struct integrity_bdev, reports_msg);
	struct bdev_integrity_error reports[INTEGRITY_REPORTS];

	rte_spinlock_lock(&d->reports_lock);
	uint32_t n = d->num_reports, lost = d->reports_lost;
	memcpy(reports, d->reports, n * sizeof(reports[0]));
	d->num_reports = d->reports_lost = 0;
	d->reporting = false;
	rte_spinlock_unlock(&d->reports_lock);
	for (uint32_t i = 0; i < n; i++) {
		tell_unit(d, &reports[i]);
	}
	if (lost > 0) {
		log_warning("bdev %s: %u more reads of wrong blocks were not told one by one", d->name, lost);
	}
}

void integrity_report(struct integrity_bdev *d, uint64_t unit, uint32_t expected, uint32_t found)
{
	bool first;

	TRACE(INTEGRITY_WRONG_BLOCK, d->bdev.trace_owner, 1, 0, unit, expected, found);
	atomic_fetch_add_explicit(&d->errors, 1, memory_order_relaxed);
	rte_spinlock_lock(&d->reports_lock);
	if (d->num_reports < INTEGRITY_REPORTS) {
		d->reports[d->num_reports++] =
			(struct bdev_integrity_error){.lba = unit,
						      .base_lba = (d->layout.data_first + unit) * d->unit_blocks,
						      .expected = expected,
						      .found = found};
	} else {
		d->reports_lost++;
	}
	first = !d->reporting;
	d->reporting = true;
	rte_spinlock_unlock(&d->reports_lock);
	if (first) {
		thread_post(thread_control(), &d->reports_msg, reports_message);
	}
}

void integrity_report_page(struct integrity_bdev *d, uint32_t region, const char *why)
{
	char text[BDEV_ERROR_MAX + 128];

	d->pages_wrong++;
	TRACE(INTEGRITY_PAGE_WRONG, d->bdev.trace_owner, 0, 0, region);
	snprintf(text, sizeof(text),
		 "blocks %" PRIu64 " to %" PRIu64 " cannot be checked until they are written again: %s (bdev %.100s)",
		 (uint64_t)region << INTEGRITY_REGION_SHIFT,
		 ((uint64_t)region << INTEGRITY_REGION_SHIFT) + INTEGRITY_REGION_UNITS - 1, why, d->base_name);
	integrity_tell(d, text);
}
