/* SPDX-License-Identifier: BSD-3-Clause */
/* Latency histograms: log-linear, in the shape that clients decode. Range 0 covers [0, 2^(g + min_range)) ticks in 2^g
 * equal buckets; each range r above it the power of two [2^(g + min_range + r - 1), 2^(g + min_range + r)), in as many.
 * g is the granularity; there are max_range - min_range ranges; what is longer is counted in the last bucket. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/internal.h"

#define DEFAULT_SHIFT 7
#define MAX_SHIFT     9

static unsigned bits_of(uint64_t n)
{
	return n != 0 ? 64u - (unsigned)__builtin_clzll(n) : 0;
}

static uint32_t index_of(const struct bdev_histogram *h, uint64_t ticks)
{
	unsigned bits = bits_of(ticks), linear_bits = (unsigned)h->shift + h->min_range;

	if (bits <= linear_bits) {
		return (uint32_t)(ticks >> h->min_range);
	}
	unsigned range = bits - linear_bits;
	if (range >= (unsigned)(h->max_range - h->min_range)) {
		return h->num_buckets - 1;
	}
	uint32_t within = (uint32_t)(ticks >> (h->min_range + range - 1)) & ((1u << h->shift) - 1);
	return (range << h->shift) + within;
}

uint64_t bdev_histogram_start(const struct bdev_histogram *h, uint32_t i)
{
	uint32_t range = i >> h->shift;
	uint64_t within = i & ((1u << h->shift) - 1);

	return range == 0 ? within << h->min_range : ((1ull << h->shift) + within) << (h->min_range + range - 1);
}

void bdev_histogram_tally(struct bdev_histogram *h, const struct bdev_io *io, uint64_t ticks)
{
	if (h->opts.type == BDEV_IO_INVALID || h->opts.type == io->type) {
		h->buckets[index_of(h, ticks)]++;
	}
}

void bdev_histogram_free(struct bdev_histogram *h)
{
	if (h != NULL) {
		free(h->buckets);
		free(h);
	}
}

struct bdev_histogram *bdev_histogram_copy(const struct bdev_histogram *from)
{
	struct bdev_histogram *h = malloc(sizeof(*h));

	if (h == NULL) {
		return NULL;
	}
	*h = *from;
	h->buckets = calloc(h->num_buckets, sizeof(*h->buckets));
	if (h->buckets == NULL) {
		free(h);
		return NULL;
	}
	return h;
}

void bdev_histogram_sum(struct bdev_histogram *sum, const struct bdev_histogram *h)
{
	for (uint32_t i = 0; i < sum->num_buckets; i++) {
		sum->buckets[i] += h->buckets[i];
	}
}

/* --- Control thread --- */

static uint64_t ns_to_ticks(uint64_t ns)
{
	unsigned __int128 ticks = (unsigned __int128)ns * env_ticks_hz() / 1000000000u;
	return ticks > UINT64_MAX ? UINT64_MAX : (uint64_t)ticks;
}

static int shape(struct bdev_histogram *h, const struct bdev_histogram_opts *opts)
{
	if (opts->granularity > MAX_SHIFT || (opts->max_ns != 0 && opts->min_ns >= opts->max_ns) ||
	    (opts->type != BDEV_IO_INVALID && bdev_io_type_name(opts->type) == NULL)) {
		return -EINVAL;
	}
	h->opts = *opts;
	h->shift = opts->granularity != 0 ? opts->granularity : DEFAULT_SHIFT;
	unsigned min_bits = bits_of(ns_to_ticks(opts->min_ns)), max_bits = 64;
	if (opts->max_ns != 0) {
		max_bits = bits_of(ns_to_ticks(opts->max_ns));
	}
	/* The linear range ends at or below the shortest time that matters, the last one above the longest. */
	h->min_range = (uint8_t)(min_bits > h->shift + 1u ? min_bits - h->shift - 1u : 0);
	h->max_range = (uint8_t)(max_bits > h->shift + h->min_range ? max_bits - h->shift + 1u : h->min_range + 1u);
	h->num_buckets = (uint32_t)(h->max_range - h->min_range) << h->shift;
	return 0;
}

struct attach {
	struct bdev_histogram *shape;
	int rc;
};

/* The control thread waits, so its allocator is as good as ours. */
static void visit_attach(struct bdev_channel *ch, void *arg)
{
	struct attach *a = arg;

	if (ch->histogram == NULL) {
		ch->histogram = bdev_histogram_copy(a->shape);
	}
	if (ch->histogram == NULL) {
		a->rc = -ENOMEM;
	}
}

static void visit_detach(struct bdev_channel *ch, void *arg)
{
	bdev_histogram_free(ch->histogram);
	ch->histogram = NULL;
}

void bdev_disable_histogram(struct bdev *b)
{
	struct bdev_core *core = b->core;

	bdev_set_slow(b, 0, SLOW_EXACT);
	pthread_mutex_lock(&core->mutex);
	struct bdev_histogram *h = core->histogram;
	core->histogram = NULL;
	pthread_mutex_unlock(&core->mutex);
	bdev_visit_channels(b, visit_detach, NULL);
	bdev_histogram_free(h);
}

int bdev_enable_histogram(struct bdev *b, const struct bdev_histogram_opts *opts)
{
	struct bdev_core *core = b->core;
	struct bdev_histogram wanted = {0};
	int rc = shape(&wanted, opts);

	if (rc != 0) {
		return rc;
	}
	bdev_disable_histogram(b);
	struct bdev_histogram *h = bdev_histogram_copy(&wanted);
	if (h == NULL) {
		return -ENOMEM;
	}
	pthread_mutex_lock(&core->mutex);
	core->histogram = h;
	pthread_mutex_unlock(&core->mutex);
	struct attach a = {.shape = h};
	bdev_visit_channels(b, visit_attach, &a);
	if (a.rc != 0) {
		bdev_disable_histogram(b);
		return a.rc;
	}
	bdev_set_slow(b, SLOW_EXACT, 0);
	return 0;
}

static void visit_sum(struct bdev_channel *ch, void *arg)
{
	if (ch->histogram != NULL) {
		bdev_histogram_sum(arg, ch->histogram);
	}
}

struct bdev_histogram *bdev_get_histogram(struct bdev *b)
{
	struct bdev_core *core = b->core;

	if (core->histogram == NULL) {
		return NULL;
	}
	struct bdev_histogram *sum = bdev_histogram_copy(core->histogram);
	if (sum != NULL) {
		pthread_mutex_lock(&core->mutex);
		bdev_histogram_sum(sum, core->histogram);
		pthread_mutex_unlock(&core->mutex);
		bdev_visit_channels(b, visit_sum, sum);
	}
	return sum;
}

const struct bdev_histogram_opts *bdev_histogram_settings(const struct bdev *b)
{
	return b->core->histogram != NULL ? &b->core->histogram->opts : NULL;
}
