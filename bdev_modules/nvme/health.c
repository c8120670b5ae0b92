/* SPDX-License-Identifier: BSD-3-Clause */
/* Logs errors and health warnings of controllers, which they report by asynchronous events and the log pages that the
 * events name. Control thread. */
#include "bdev_modules/nvme/internal.h"
#include "util/log.h"

#define ERRORS_MAX (NVME_EVENT_LOG_BYTES / sizeof(struct nvme_error_log_page))

static void health_tell_errors(struct bdev_nvme *c, const struct nvme_error_log_page *entries)
{
	unsigned there = nvme_ctrlr_identify(c->ctrlr)->elpe + 1u;
	unsigned n = nvme_error_log_new(entries, there < ERRORS_MAX ? there : ERRORS_MAX, c->errors_seen);
	char text[NVME_HEALTH_TEXT_MAX];

	for (unsigned i = n; i-- > 0;) { /* the oldest first */
		nvme_error_log_text(&entries[i], text, sizeof(text));
		log_limited(LOG_LEVEL_WARNING, "%s: %s", c->name, text);
	}
	if (n != 0) {
		c->errors_seen = le64toh(entries[0].error_count);
	}
}

static void health_tell_smart(struct bdev_nvme *c, const struct nvme_smart_log *smart)
{
	char text[NVME_HEALTH_TEXT_MAX];

	nvme_smart_text(smart, text, sizeof(text));
	log_limited(LOG_LEVEL_WARNING, "%s: %s", c->name, text);
	bdev_nvme_tell(c, BDEV_NVME_HEALTH, NULL, text);
}

void bdev_nvme_health_event(struct bdev_nvme *c, uint32_t aer)
{
	const void *page = nvme_ctrlr_event_log(c->ctrlr);
	uint8_t lid = (uint8_t)(aer >> 16);

	if (page != NULL && lid == NVME_LOG_LID_ERROR) {
		health_tell_errors(c, page);
	} else if (page != NULL && lid == NVME_LOG_LID_SMART) {
		health_tell_smart(c, page);
	} else {
		log_limited(LOG_LEVEL_WARNING,
			    "%s: asynchronous event of type %u, information 0x%02x, log page 0x%02x%s", c->name,
			    aer & 7, aer >> 8 & 0xff, lid, page != NULL ? "" : ", which cannot be read");
	}
}
