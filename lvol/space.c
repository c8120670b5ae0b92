/* SPDX-License-Identifier: BSD-3-Clause */
#include "lvol/space.h"

#include <errno.h>
#include <string.h>

#include "lvol/internal.h"

struct lvol_space lvol_space_default(void)
{
	return (struct lvol_space){.num = 3, .percent = {80, 90, 95}};
}

int lvol_space_check(const uint8_t *percent, size_t num, struct lvol_error *e)
{
	if (num > LVOL_SPACE_MAX) {
		lvol_refuse(e, "%zu thresholds: there may be up to %d", num, LVOL_SPACE_MAX);
		return -EINVAL;
	}
	for (size_t i = 0; i < num; i++) {
		if (percent[i] < 1 || percent[i] >= LVOL_SPACE_FULL || (i > 0 && percent[i] <= percent[i - 1])) {
			lvol_refuse(e, "threshold %u: must be 1 to 99, and greater than the one before", percent[i]);
			return -EINVAL;
		}
	}
	return 0;
}

size_t lvol_space_encode(const struct lvol_space *s, uint8_t value[LVOL_SPACE_BYTES])
{
	value[0] = LVOL_SPACE_FORM;
	memcpy(value + 1, s->percent, s->num);
	return 1 + (size_t)s->num;
}

int lvol_space_decode(const void *value, size_t bytes, struct lvol_space *s, struct lvol_error *e)
{
	const uint8_t *v = value;

	*s = lvol_space_default();
	if (value == NULL) {
		return 0;
	}
	if (bytes == 0 || v[0] != LVOL_SPACE_FORM) {
		lvol_refuse(e, "the thresholds have another form than %d", LVOL_SPACE_FORM);
		return -EINVAL;
	}
	int rc = lvol_space_check(v + 1, bytes - 1, e);
	if (rc == 0) {
		*s = (struct lvol_space){.num = (uint8_t)(bytes - 1)};
		memcpy(s->percent, v + 1, bytes - 1);
	}
	return rc;
}

/* So many clusters of total, rounded up. */
static uint64_t space_share(uint64_t total, uint8_t percent)
{
	return (total * percent + 99) / 100;
}

static bool space_is_reached(uint8_t percent, uint8_t before, uint64_t used, uint64_t total)
{
	uint64_t bound = space_share(total, percent), margin = space_share(total, LVOL_SPACE_MARGIN);

	if (percent > before) {
		return used >= bound;
	}
	/* An empty store has left each. */
	return used > 0 && used + margin >= bound;
}

uint8_t lvol_space_reached(const struct lvol_space *s, uint8_t before, uint64_t used, uint64_t total)
{
	uint8_t reached = 0;

	if (total == 0) {
		return 0;
	}
	for (size_t i = 0; i < s->num; i++) {
		if (space_is_reached(s->percent[i], before, used, total)) {
			reached = s->percent[i];
		}
	}
	return used >= total ? LVOL_SPACE_FULL : reached;
}
