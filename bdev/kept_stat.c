/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev/kept_stat.h"

#include <errno.h>

#include "env_dpdk/env.h"
#include "thread/thread.h"
#include "util/compiler.h"

static json_t *kept; /* as kept_stat_export() says; NULL: nothing */
static bool keeping;
static unsigned failed;
static struct thread_timer end_timer; /* of what nobody has taken */

/* ---- Values ---- */

/* A nanosecond more, for what is less than one: time that is counted never becomes less. */
/* UINT64_MAX: no time yet. */
static uint64_t kept_ns_of_ticks(uint64_t ticks)
{
	return ticks != 0 && ticks != UINT64_MAX ? env_ticks_to_ns(ticks) + 1 : 0;
}

static uint64_t kept_value_load(const struct kept_stat_field *f, const char *at)
{
	switch (f->type) {
	case KEPT_STAT_U16:
		return *(const uint16_t *)at;
	case KEPT_STAT_TICKS:
		return kept_ns_of_ticks(*(const uint64_t *)at);
	case KEPT_STAT_U64:
		break;
	}
	return *(const uint64_t *)at;
}

static uint64_t kept_ticks_of_ns(uint64_t ns)
{
	double hz = (double)env_ticks_hz();
	uint64_t ticks = 0, reached;

	while ((reached = env_ticks_to_ns(ticks)) < ns) {
		ticks += (uint64_t)((double)(ns - reached) / 1e9 * hz) + 1;
	}
	return ticks;
}

static void kept_value_store(const struct kept_stat_field *f, char *at, uint64_t value)
{
	switch (f->type) {
	case KEPT_STAT_U16:
		*(uint16_t *)at = (uint16_t)value;
		break;
	case KEPT_STAT_TICKS:
		*(uint64_t *)at = kept_ticks_of_ns(value);
		break;
	case KEPT_STAT_U64:
		*(uint64_t *)at = value;
		break;
	}
}

/* A counter beyond what JSON has is no count: UINT64_MAX stands for "none yet". */
static json_t *kept_field_encode(const struct kept_stat_field *f, const char *counters, bool *is_zero)
{
	json_t *values = json_array();

	*is_zero = true;
	for (size_t i = 0; values != NULL && i < f->n; i++) {
		uint64_t value = kept_value_load(f, counters + f->offset + i * f->stride);
		value = value <= INT64_MAX ? value : 0;
		*is_zero = *is_zero && value == 0;
		if (json_array_append_new(values, json_integer((json_int_t)value)) != 0) {
			json_decref(values);
			values = NULL;
		}
	}
	return values;
}

static void kept_field_decode(const struct kept_stat_field *f, const json_t *values, char *counters)
{
	for (size_t i = 0; i < f->n && i < json_array_size(values); i++) {
		json_int_t value = json_integer_value(json_array_get(values, i));
		if (value > 0 && (f->type != KEPT_STAT_U16 || value <= UINT16_MAX)) {
			kept_value_store(f, counters + f->offset + i * f->stride, (uint64_t)value);
		}
	}
}

/* ---- Objects ---- */

static json_t *kept_object_encode(const struct kept_stat_fields *fields, const void *counters)
{
	json_t *o = json_object();
	bool is_zero;

	for (size_t i = 0; o != NULL && i < fields->n; i++) {
		json_t *values = kept_field_encode(&fields->list[i], counters, &is_zero);
		if (values != NULL && is_zero) {
			json_decref(values);
		} else if (json_object_set_new(o, fields->list[i].name, values) != 0) { /* also without values */
			json_decref(o);
			o = NULL;
		}
	}
	return o;
}

/* The set of that name, which is made if need be. NULL: no memory. */
static json_t *kept_set_get(const char *set)
{
	kept = kept != NULL ? kept : json_object();
	json_t *names = json_object_get(kept, set);

	if (names == NULL && json_object_set_new(kept, set, json_object()) == 0) {
		names = json_object_get(kept, set);
	}
	return names;
}

bool kept_stat_note(const char *set, const char *name, const struct kept_stat_fields *fields, const void *counters)
{
	if (!keeping) {
		return false;
	}
	json_t *names = kept_set_get(set), *o = kept_object_encode(fields, counters);
	if (json_object_set_new(names, name, o) != 0) { /* it takes no name that is not UTF-8 */
		failed++;
		return false;
	}
	return true;
}

bool kept_stat_take(const char *set, const char *name, const struct kept_stat_fields *fields, void *counters)
{
	json_t *names = json_object_get(kept, set), *o = json_object_get(names, name);

	if (o == NULL) {
		return false;
	}
	for (size_t i = 0; i < fields->n; i++) {
		kept_field_decode(&fields->list[i], json_object_get(o, fields->list[i].name), counters);
	}
	json_object_del(names, name);
	if (json_object_size(names) == 0) {
		json_object_del(kept, set);
	}
	return true;
}

const char *kept_stat_first(const char *set)
{
	return json_object_iter_key(json_object_iter(json_object_get(kept, set)));
}

/* ---- What rate limits have let through ---- */

static const struct kept_stat_field rate_field_list[] = {
	KEPT_STAT_ARRAY(struct rate_counts, "ios", ios[0], ios),
	KEPT_STAT_ARRAY(struct rate_counts, "bytes", bytes[0], bytes),
	KEPT_STAT(struct rate_counts, "waits", waits),
	KEPT_STAT(struct rate_counts, "waited_us", waited_us),
};
static const struct kept_stat_fields rate_fields = {rate_field_list, ARRAY_SIZE(rate_field_list)};

bool kept_stat_note_rates(const char *set, const char *name, const struct rate_counts *counts)
{
	return kept_stat_note(set, name, &rate_fields, counts);
}

void kept_stat_take_rates(const char *set, const char *name, struct rate_counts *counts)
{
	struct rate_counts k = {0};

	kept_stat_take(set, name, &rate_fields, &k);
	for (unsigned i = 0; i < RATE_KINDS; i++) {
		counts->ios[i] += k.ios[i];
		counts->bytes[i] += k.bytes[i];
	}
	counts->waits += k.waits;
	counts->waited_us += k.waited_us;
}

/* ---- All ---- */

void kept_stat_keep(bool on)
{
	keeping = on;
	failed = on ? 0 : failed;
	thread_timer_stop(&end_timer);
}

static void kept_end(void *arg)
{
	kept_stat_clear();
}

void kept_stat_clear_after(uint64_t delay_us)
{
	end_timer.fn = kept_end;
	thread_timer_start(&end_timer, delay_us);
}

json_t *kept_stat_export(void)
{
	return kept != NULL ? json_deep_copy(kept) : json_object();
}

static bool kept_object_has_shape(json_t *o)
{
	const char *name;
	json_t *values, *value;
	size_t i;

	json_object_foreach (o, name, values) {
		if (!json_is_array(values)) {
			return false;
		}
		json_array_foreach (values, i, value) {
			if (!json_is_integer(value) || json_integer_value(value) < 0) {
				return false;
			}
		}
	}
	return json_is_object(o);
}

/* Takes the objects out of a set that have another shape. How many there were. */
static unsigned kept_set_prune(json_t *names)
{
	unsigned n = 0;
	const char *name;
	json_t *o;
	void *next;

	json_object_foreach_safe(names, next, name, o)
	{
		if (!kept_object_has_shape(o)) {
			json_object_del(names, name);
			n++;
		}
	}
	return n;
}

static unsigned kept_prune(json_t *all)
{
	unsigned n = 0;
	const char *set;
	json_t *names;
	void *next;

	json_object_foreach_safe(all, next, set, names)
	{
		n += json_is_object(names) ? kept_set_prune(names) : 1;
		if (json_object_size(names) == 0) {
			json_object_del(all, set);
		}
	}
	return n;
}

int kept_stat_import(const json_t *all, unsigned *left_out)
{
	json_t *copy = json_is_object(all) ? json_deep_copy(all) : NULL;

	*left_out = all != NULL && !json_is_object(all) ? 1 : 0;
	kept_stat_clear();
	if (json_is_object(all) && copy == NULL) {
		return -ENOMEM;
	}
	*left_out += kept_prune(copy);
	kept = copy;
	return 0;
}

unsigned kept_stat_failed(void)
{
	return failed;
}

void kept_stat_clear(void)
{
	thread_timer_stop(&end_timer);
	json_decref(kept);
	kept = NULL;
}
