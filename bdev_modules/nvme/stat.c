/* SPDX-License-Identifier: BSD-3-Clause */
/* What the options io_path_stat and nvme_error_stat count: I/O by path, and commands that ended with an error. */
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "util/compiler.h"

int bdev_nvme_stat_init(struct bdev_nvme_ns *d)
{
	d->path_stat = bdev_nvme_options.io_path_stat;
	if (bdev_nvme_options.nvme_error_stat) {
		d->errors = calloc(1, sizeof(*d->errors));
		return d->errors != NULL ? 0 : -ENOMEM;
	}
	return 0;
}

void bdev_nvme_stat_free(struct bdev_nvme_ns *d)
{
	free(d->errors);
	d->errors = NULL;
}

/* --- By path --- */

static void path_stat_clear(struct bdev_stat_ops *stat)
{
	memset(stat, 0, BDEV_STAT_CLASSES * sizeof(*stat));
	for (unsigned i = 0; i < BDEV_STAT_CLASSES; i++) {
		stat[i].min_ticks = UINT64_MAX;
	}
}

struct bdev_stat_ops *bdev_nvme_stat_alloc(void)
{
	struct bdev_stat_ops *stat = malloc(BDEV_STAT_CLASSES * sizeof(*stat));

	if (stat != NULL) {
		path_stat_clear(stat);
	}
	return stat;
}

void bdev_nvme_stat_begin(struct bdev_nvme_io *n, const struct bdev_io *io)
{
	n->counted = bdev_io_stat_class((enum bdev_io_type)io->type) != BDEV_STAT_OTHER;
}

static void path_stat_add(struct bdev_stat_ops *s, const struct bdev_stat_ops *more)
{
	s->ops += more->ops;
	s->bytes += more->bytes;
	s->ticks += more->ticks;
	s->max_ticks = more->max_ticks > s->max_ticks ? more->max_ticks : s->max_ticks;
	s->min_ticks = more->min_ticks < s->min_ticks ? more->min_ticks : s->min_ticks;
}

/* A path that has been removed from the channel meanwhile counts no more. */
void bdev_nvme_stat_io(struct bdev_nvme_io *n)
{
	const struct bdev_io *io = bdev_io_from_ctx(n);
	const struct bdev_nvme_channel *ch = bdev_nvme_io_channel(n);
	uint64_t ticks = env_ticks() - io->submit_ticks;
	const struct bdev_stat_ops one = {.ops = 1,
					  .bytes = io->num_blocks * bdev_channel_bdev(io->ch)->block_size,
					  .ticks = ticks,
					  .max_ticks = ticks,
					  .min_ticks = ticks};

	for (unsigned i = 0; i < ch->num_paths; i++) {
		const struct bdev_nvme_channel_path *cp = &ch->paths[i];
		if (cp->path != NULL && cp->qpair == n->qpair) {
			path_stat_add(&cp->stat[bdev_io_stat_class((enum bdev_io_type)io->type)], &one);
		}
	}
}

void bdev_nvme_stat_hand_over(struct bdev_nvme_channel *ch)
{
	for (unsigned i = 0; i < ch->num_paths; i++) {
		const struct bdev_nvme_channel_path *cp = &ch->paths[i];
		if (cp->path == NULL || cp->stat == NULL) {
			continue;
		}
		for (unsigned class = 0; class < BDEV_STAT_CLASSES; class ++) {
			path_stat_add(&cp->path->stat[class], &cp->stat[class]);
		}
		path_stat_clear(cp->stat);
	}
}

/* Of one thread. The control thread, which frees paths, waits meanwhile. */
static void path_stat_collect(struct bdev_nvme_channel *ch, void *bdev_ns)
{
	struct bdev_nvme_ns *d = bdev_ns;

	pthread_mutex_lock(&d->mutex);
	bdev_nvme_stat_hand_over(ch);
	pthread_mutex_unlock(&d->mutex);
}

int bdev_nvme_for_each_path_stat(struct bdev *b,
				 void (*fn)(void *arg, const struct nvme_trid *trid,
					    const struct bdev_stat_ops class[BDEV_STAT_CLASSES]),
				 void *arg)
{
	struct bdev_nvme_ns *d = (struct bdev_nvme_ns *)b;
	struct bdev_stat_ops stat[BDEV_STAT_CLASSES];
	const struct bdev_nvme_path *path;

	if (!d->path_stat) {
		return -EPERM;
	}
	bdev_nvme_ns_visit_channels(d, path_stat_collect, d);
	TAILQ_FOREACH (path, &d->paths, link) {
		pthread_mutex_lock(&d->mutex); /* a channel that is closed hands over at any time */
		memcpy(stat, path->stat, sizeof(stat));
		pthread_mutex_unlock(&d->mutex);
		fn(arg, &path->c->opts.trid, stat);
	}
	return 0;
}

/* --- Errors --- */

/* The names of a status code type's codes as SPDK's targets tell them: clients look for them. */
struct code_name {
	uint8_t code;
	const char *name; /* NULL ends a table */
};

static const struct code_name generic_names[] = {
	{0x01, "invalid_opcode"},
	{0x02, "invalid_field"},
	{0x03, "command_id_conflict"},
	{0x04, "data_transfer_error"},
	{0x05, "aborted_power_loss"},
	{0x06, "internal_device_error"},
	{0x07, "aborted_by_request"},
	{0x08, "aborted_sq_deletion"},
	{0x09, "aborted_failed_fused"},
	{0x0a, "aborted_missing_fused"},
	{0x0b, "invalid_namespace_or_format"},
	{0x0c, "command_sequence_error"},
	{0x0d, "invalid_sgl_segment_descriptor"},
	{0x0e, "invalid_number_of_sgl_descriptors"},
	{0x0f, "data_sgl_length_invalid"},
	{0x10, "metadata_sgl_length_invalid"},
	{0x11, "sgl_descriptor_type_invalid"},
	{0x12, "invalid_controller_memory_buffer"},
	{0x13, "invalid_prp_offset"},
	{0x14, "atomic_write_unit_exceeded"},
	{0x15, "operation_denied"},
	{0x16, "invalid_sgl_offset"},
	{0x18, "hostid_inconsistent_format"},
	{0x19, "keep_alive_expired"},
	{0x1a, "keep_alive_invalid"},
	{0x1b, "aborted_preempt_and_abort"},
	{0x1c, "sanitize_failed"},
	{0x1d, "sanitize_in_progress"},
	{0x1e, "data_block_granularity_invalid"},
	{0x1f, "command_not_supported_for_queue_in_cmb"},
	{0x20, "command_namespace_is_protected"},
	{0x21, "command_interrupted"},
	{0x22, "command_transient_transport_error"},
	{0x80, "lba_out_of_range"},
	{0x81, "capacity_exceeded"},
	{0x82, "namespace_not_ready"},
	{0x83, "reservation_conflict"},
	{0x84, "format_in_progress"},
	{0, NULL},
};
static const struct code_name specific_names[] = {
	{0x80, "conflicting_attributes"},
	{0x81, "invalid_protection_info"},
	{0x82, "write_to_ro_range"},
	{0x83, "cmd_size_limit_size_exceeded"},
	{0, NULL},
};
static const struct code_name media_names[] = {
	{0x80, "write_faults"},
	{0x81, "unrecovered_read_error"},
	{0x82, "guard_check_error"},
	{0x83, "application_tag_check_error"},
	{0x84, "reference_tag_check_error"},
	{0x85, "compare_failure"},
	{0x86, "access_denied"},
	{0x87, "deallocated_or_unwritten_block"},
	{0x88, "end_to_end_storage_tag_check_error"},
	{0, NULL},
};
static const struct code_name path_names[] = {
	{0x00, "internal_path_error"},
	{0x01, "asymmetric_access_persistent_loss"},
	{0x02, "asymmetric_access_inaccessible"},
	{0x03, "asymmetric_access_transition"},
	{0x60, "controller_path_error"},
	{0x70, "host_path_error"},
	{0x71, "aborted_by_host"},
	{0, NULL},
};

/* The status code types; those with codes are the first four. */
static const struct {
	const char *name;
	const struct code_name *codes;
	const char *other; /* the name of all codes that have none */
} types[8] = {
	{"generic", generic_names, "generic"},
	{"command_specific", specific_names, "command_specific"},
	{"media_error", media_names, "media_error"},
	{"path", path_names, "path_error"},
	{"reserved", NULL, NULL},
	{"reserved", NULL, NULL},
	{"reserved", NULL, NULL},
	{"vendor_specific", NULL, NULL},
};

void bdev_nvme_stat_error(struct bdev_nvme_io *n, uint16_t status)
{
	const struct bdev_io *io = bdev_io_from_ctx(n);
	struct bdev_nvme_error_stat *errors = ((struct bdev_nvme_ns *)bdev_channel_bdev(io->ch))->errors;
	unsigned type = status >> NVME_SCT_SHIFT & 7, code = status & 0xff;

	if (errors == NULL) {
		return;
	}
	atomic_fetch_add_explicit(&errors->type[type], 1, memory_order_relaxed);
	if (type < ARRAY_SIZE(errors->code)) {
		atomic_fetch_add_explicit(&errors->code[type][code], 1, memory_order_relaxed);
	}
}

static const char *code_name(unsigned type, unsigned code)
{
	const struct code_name *c = types[type].codes;

	while (c->name != NULL && c->code != code) {
		c++;
	}
	return c->name != NULL ? c->name : types[type].other;
}

/* Several codes may have one name. */
static void count_add(json_t *o, const char *name, uint32_t count)
{
	if (count != 0) {
		json_int_t before = json_integer_value(json_object_get(o, name));
		json_object_set_new(o, name, json_integer(before + count));
	}
}

void bdev_nvme_stat_dump(const struct bdev *b, struct json_t *driver_specific)
{
	const struct bdev_nvme_error_stat *errors = ((const struct bdev_nvme_ns *)b)->errors;

	if (errors == NULL) {
		return;
	}
	json_t *o = json_object(), *by_type = json_object(), *by_code = json_object();
	for (unsigned type = 0; type < ARRAY_SIZE(errors->type); type++) {
		count_add(by_type, types[type].name, atomic_load_explicit(&errors->type[type], memory_order_relaxed));
	}
	for (unsigned type = 0; type < ARRAY_SIZE(errors->code); type++) {
		for (unsigned code = 0; code < ARRAY_SIZE(errors->code[type]); code++) {
			count_add(by_code, code_name(type, code),
				  atomic_load_explicit(&errors->code[type][code], memory_order_relaxed));
		}
	}
	json_object_set_new(o, "status_type", by_type);
	json_object_set_new(o, "status_code", by_code);
	json_object_set_new(driver_specific, "nvme_error", o);
}

void bdev_nvme_stat_reset(struct bdev *b)
{
	struct bdev_nvme_error_stat *errors = ((struct bdev_nvme_ns *)b)->errors;

	if (errors == NULL) {
		return;
	}
	for (unsigned type = 0; type < ARRAY_SIZE(errors->type); type++) {
		atomic_store_explicit(&errors->type[type], 0, memory_order_relaxed);
	}
	for (unsigned type = 0; type < ARRAY_SIZE(errors->code); type++) {
		for (unsigned code = 0; code < ARRAY_SIZE(errors->code[type]); code++) {
			atomic_store_explicit(&errors->code[type][code], 0, memory_order_relaxed);
		}
	}
}
