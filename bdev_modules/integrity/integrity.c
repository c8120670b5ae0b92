/* SPDX-License-Identifier: BSD-3-Clause */
/* How integrity bdevs are made, wait for their bases, and go. */
#include "bdev_modules/integrity/integrity.h"

#include <errno.h>
#include <jansson.h>
#include <rte_common.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/integrity/internal.h"
#include "util/log.h"
#include "util/state_machine.h"

static LIST_HEAD(, integrity_bdev) all = LIST_HEAD_INITIALIZER(all);
static bool stopping;

static const char *integrity_state_name(unsigned state)
{
	static const char *const names[INTEGRITY_STATES] = {
		[INTEGRITY_OPENING] = "opening", [INTEGRITY_THERE] = "there", [INTEGRITY_LEAVING] = "leaving"};

	return state < INTEGRITY_STATES ? names[state] : "?";
}

static const uint32_t integrity_next_states[INTEGRITY_STATES] = {
	[INTEGRITY_OPENING] = 1u << INTEGRITY_THERE | 1u << INTEGRITY_LEAVING,
	[INTEGRITY_THERE] = 1u << INTEGRITY_LEAVING,
};
STATE_MACHINE(integrity_machine, "integrity", integrity_state_name, integrity_next_states)

static void integrity_set_state(struct integrity_bdev *d, enum integrity_state state)
{
	state_machine_check(&integrity_machine, d->state, state, d->name);
	d->state = (uint8_t)state;
}

/* --- The end --- */

static int integrity_wait(const struct bdev_integrity_opts *opts, char *error)
{
	struct vbdev_waiting *w = calloc(1, sizeof(*w));

	if (w == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	vbdev_waiting_init(w, &bdev_integrity_module, opts->name, opts->base_bdev_name, opts->uuid);
	vbdev_waiting_add(w);
	return 0;
}

static void integrity_wait_again(const struct integrity_bdev *d, const uint8_t *uuid)
{
	const struct bdev_integrity_opts opts = {.name = d->name, .base_bdev_name = d->base_name, .uuid = uuid};
	char error[BDEV_ERROR_MAX];

	if (integrity_wait(&opts, error) != 0) {
		log_error("bdev %s: will not come back with its base: %s", d->name, error);
	}
}

static void integrity_answer(struct integrity_bdev *d)
{
	bdev_integrity_cb cb = d->cb;

	d->cb = NULL;
	if (cb != NULL) {
		cb(d->cb_arg, d->error, d->error_text);
	}
}

static void integrity_examine(struct bdev *b);

static void integrity_retry(void *arg)
{
	for (struct bdev *b = bdev_next(NULL); b != NULL; b = bdev_next(b)) {
		integrity_examine(b);
	}
}

static struct thread_timer retry_timer = {.fn = integrity_retry};

/* What is on the base does not change by itself; whether the base can be read or written may. */
static bool may_pass(int error)
{
	return error != -EILSEQ && error != -EINVAL && error != -EEXIST && error != -ENODEV;
}

/* One that could not be opened has been given up. */
static void integrity_say_why(struct integrity_bdev *d)
{
	bool asked_for = !d->deleted && !stopping;

	if (!d->by_call && asked_for) {
		bool again = may_pass(d->error);
		log_limited(LOG_LEVEL_ERROR, "bdev %s: its base %s is there, but it cannot be made: %s%s", d->name,
			    d->base_name, d->error_text, again ? "; it is tried again" : "");
		integrity_wait_again(d, d->has_uuid ? d->uuid : NULL);
		if (again) {
			thread_timer_start(&retry_timer, integrity_limits.retry_us);
		}
	}
	integrity_answer(d);
	if (d->delete_cb != NULL) {
		d->delete_cb(d->delete_arg, 0);
	}
}

static void integrity_free(struct integrity_bdev *d)
{
	integrity_flush_remember(d);
	integrity_slots_fini(d);
	integrity_scrub_forget(d);
	free(d->buffer);
	free(d);
}

static void integrity_gone(void *arg)
{
	struct integrity_bdev *d = arg;
	struct bdev_desc *base = d->base;
	bool registered = d->registered;

	LIST_REMOVE(d, link);
	if (registered) {
		bdev_destruct_done(&d->bdev);
	} else {
		bdev_close(base); /* before the answer, which may lead to its removal */
		integrity_say_why(d);
	}
	integrity_free(d);
	if (registered) {
		bdev_close(base); /* last: it may be all that a base waits for that is being removed */
	}
	bdev_module_is_idle();
}

static void integrity_give_up(struct integrity_bdev *d, int rc, const char *why)
{
	if (d->error == 0) {
		integrity_refuse(d, rc, "bdev '%.150s': %s", d->base_name, why);
	}
	integrity_set_state(d, INTEGRITY_LEAVING);
	thread_timer_stop(&d->open_op.timer);
	vbdev_meta_close(d->meta, integrity_gone, d);
}

void integrity_closer_ended(struct integrity_bdev *d)
{
	vbdev_meta_close(d->meta, integrity_gone, d);
}

int integrity_bases(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX])
{
	bases[0] = bdev_integrity_base(b);
	return 1;
}

void integrity_destruct(struct bdev *b)
{
	struct integrity_bdev *d = integrity_of(b);

	integrity_set_state(d, INTEGRITY_LEAVING);
	integrity_closer_end(d);
}

static void integrity_base_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct integrity_bdev *d = arg;

	if (event != BDEV_EVENT_REMOVE) {
		return; /* the next time that it is opened, the last superblock is written at the new end */
	}
	if (d->state == INTEGRITY_OPENING) {
		integrity_give_up(d, -ENODEV, "it is being removed");
	} else if (d->state == INTEGRITY_THERE) {
		if (bdev_get_state(&d->bdev) <= BDEV_READY && !stopping) {
			integrity_wait_again(d, d->bdev.uuid);
		}
		bdev_unregister(&d->bdev, NULL, NULL);
	}
}

/* --- The beginning --- */

/* Bdevs that pass all on offer UNMAP, whatever is below. */
static bool unmaps(const struct bdev *b)
{
	while (b != NULL && b->io_types >> BDEV_IO_UNMAP & 1) {
		b = vbdev_base_of(b);
	}
	return b == NULL;
}

static void integrity_fill_in(struct integrity_bdev *d)
{
	const struct bdev *base = bdev_desc_bdev(d->base);
	struct bdev *b = &d->bdev;

	b->name = d->name;
	b->product_name = "integrity";
	b->module = &bdev_integrity_module;
	b->ops = &integrity_ops;
	b->block_size = INTEGRITY_UNIT_BYTES;
	b->num_blocks = d->layout.data_units;
	b->optimal_io_boundary = INTEGRITY_REGION_UNITS;
	b->split_on_boundary = true;
	b->numa_node = base->numa_node;
	b->write_cache = base->write_cache;
	b->is_blank = d->is_new && d->is_blank;
	/* All other types mean data without a checksum: the layer makes reads and writes of them. */
	b->io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_WRITE_ZEROES | 1u << BDEV_IO_FLUSH |
		      1u << BDEV_IO_ABORT;
	b->io_types |= unmaps(base) ? 1u << BDEV_IO_UNMAP : 0; /* or it would forget checksums of what stays there */
	memcpy(b->uuid, d->layout.uuid, sizeof(b->uuid));
}

void integrity_opened(struct integrity_bdev *d)
{
	if (d->error == 0) {
		integrity_fill_in(d);
		d->error = bdev_register_or_say(&d->bdev, d->error_text);
	}
	if (d->error != 0) {
		integrity_give_up(d, 0, NULL);
		return;
	}
	d->registered = true;
	integrity_set_state(d, INTEGRITY_THERE);
	if (d->regions_unclean > 0) {
		log_warning(
			"bdev %s: it was not closed: %lu regions of 2 MiB were being written, and what was wrong in "
			"them before cannot be noticed",
			d->name, d->regions_unclean);
	}
	integrity_closer_start(d);
	integrity_answer(d);
	bdev_module_is_idle();
}

/* What an integrity bdev needs of its base. Of another owner, whose writes it does not see, it would have old checksums
 * in memory, and call right data wrong. */
static int integrity_base_check(const struct bdev *b, char *error)
{
	if (bdev_get_md(b)->size != 0) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.150s' has %u bytes of metadata per block: a base without metadata is needed",
				  bdev_name(b), bdev_get_md(b)->size);
	}
	if (b->block_size > INTEGRITY_UNIT_BYTES || !rte_is_power_of_2(b->block_size)) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.150s' has blocks of %u bytes: must be a power of two up to 4096",
				  bdev_name(b), b->block_size);
	}
	if (b->read_only || bdev_leaves_buffers(b)) {
		return bdev_error(error, -EINVAL, "bdev '%.150s' cannot be written, or does not keep what is written",
				  bdev_name(b));
	}
	const struct bdev *standby;
	if (vbdev_search_owner(b, &standby) > 0) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.150s' was made with standby: what another owner writes would be called "
				  "wrong, so checksums cannot be kept on it",
				  bdev_name(standby));
	}
	return 0;
}

static int integrity_begin(struct integrity_bdev *d, char *error)
{
	int rc = integrity_base_check(bdev_desc_bdev(d->base), error);

	if (rc != 0) {
		return rc;
	}
	d->buffer = aligned_alloc(INTEGRITY_UNIT_BYTES, 2ul * INTEGRITY_UNIT_BYTES);
	if (d->buffer == NULL || vbdev_meta_open(d->base, d->name, &d->meta) != 0) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	d->unit_blocks = INTEGRITY_UNIT_BYTES / bdev_block_size(bdev_desc_bdev(d->base));
	d->zero_sum = integrity_sum_of_zeroes();
	rte_spinlock_init(&d->reports_lock);
	rte_spinlock_init(&d->channels_lock);
	return 0;
}

static struct integrity_bdev *integrity_new(const struct bdev_integrity_opts *opts)
{
	struct integrity_bdev *d = aligned_alloc(64, (sizeof(*d) + 63) & ~(size_t)63);

	if (d == NULL) {
		return NULL;
	}
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%s", opts->name);
	snprintf(d->base_name, sizeof(d->base_name), "%s", opts->base_bdev_name);
	d->format = opts->format;
	d->has_uuid = opts->uuid != NULL;
	if (d->has_uuid) {
		memcpy(d->uuid, opts->uuid, sizeof(d->uuid));
	}
	return d;
}

/* -ENODEV: there is no such base. 0: integrity_opened() follows. */
static int integrity_make(const struct bdev_integrity_opts *opts, bdev_integrity_cb cb, void *arg, char *error)
{
	struct integrity_bdev *d = integrity_new(opts);

	if (d == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	const struct bdev *base = bdev_find(opts->base_bdev_name);
	d->is_blank = base != NULL && base->is_blank; /* not any more when it is open */
	int rc = vbdev_base_open(opts->base_bdev_name, opts->name, integrity_base_event, d, &d->base, error);
	if (rc == 0 && (rc = integrity_begin(d, error)) != 0) {
		bdev_close(d->base);
	}
	if (rc != 0) {
		free(d->buffer);
		free(d);
		return rc;
	}
	d->cb = cb;
	d->cb_arg = arg;
	d->by_call = cb != NULL;
	LIST_INSERT_HEAD(&all, d, link);
	integrity_open(d);
	return 0;
}

const struct integrity_bdev *integrity_next(const struct integrity_bdev *after)
{
	const struct integrity_bdev *d = after == NULL ? LIST_FIRST(&all) : LIST_NEXT(after, link);

	while (d != NULL && d->state != INTEGRITY_THERE) {
		d = LIST_NEXT(d, link);
	}
	return d;
}

static struct integrity_bdev *integrity_find_opening(const char *name)
{
	struct integrity_bdev *d;

	LIST_FOREACH (d, &all, link) {
		if (d->state == INTEGRITY_OPENING && strcmp(d->name, name) == 0) {
			return d;
		}
	}
	return NULL;
}

static int integrity_check_name(const struct bdev_integrity_opts *opts, char *error)
{
	int rc = bdev_check_name(opts->name, error);

	rc = rc != 0 ? rc : vbdev_waiting_check(opts->name, opts->base_bdev_name, error);
	if (rc == 0 && integrity_find_opening(opts->name) != NULL) {
		return bdev_error(error, -EEXIST, "bdev '%.200s' is being opened", opts->name);
	}
	return rc;
}

void bdev_integrity_create(const struct bdev_integrity_opts *opts, bdev_integrity_cb cb, void *arg)
{
	char error[BDEV_ERROR_MAX] = "";
	int rc = integrity_check_name(opts, error);

	rc = rc != 0 ? rc : integrity_make(opts, cb, arg, error);
	if (rc == 0) {
		return;
	}
	if (rc == -ENODEV && !opts->format) {
		rc = integrity_wait(opts, error);
	}
	cb(arg, rc, error);
}

/* --- Of the module --- */

static int integrity_base_came(const struct vbdev_waiting *w, char *error)
{
	struct bdev_integrity_opts opts;

	bdev_integrity_get_waiting(w, &opts);
	return integrity_make(&opts, NULL, NULL, error);
}

static void integrity_examine(struct bdev *b)
{
	if (!stopping) {
		vbdev_waiting_examine(b, &bdev_integrity_module, integrity_base_came);
	}
}

static bool is_opening(bool by_call)
{
	const struct integrity_bdev *d;

	LIST_FOREACH (d, &all, link) {
		if (!d->registered && d->by_call == by_call) {
			return true;
		}
	}
	return false;
}

static bool integrity_is_examining(void)
{
	return is_opening(false);
}

static bool integrity_is_creating(void)
{
	return is_opening(true);
}

static bool integrity_is_idle(void)
{
	return LIST_EMPTY(&all);
}

static void integrity_stop(void)
{
	struct integrity_bdev *d;

	stopping = true;
	thread_timer_stop(&retry_timer);
	LIST_FOREACH (d, &all, link) {
		if (d->state == INTEGRITY_OPENING) {
			integrity_give_up(d, -ECANCELED, "varve stops");
		}
	}
}

static void integrity_fini(void)
{
	stopping = false;
	vbdev_waiting_free(&bdev_integrity_module);
	integrity_flush_fini();
}

struct bdev_module bdev_integrity_module = {
	.name = "integrity",
	.io_ctx_size = sizeof(struct integrity_io),
	.examine = integrity_examine,
	.is_examining = integrity_is_examining,
	.stop = integrity_stop,
	.is_creating = integrity_is_creating,
	.is_idle = integrity_is_idle,
	.figures = integrity_figures,
	.fini = integrity_fini,
};
BDEV_MODULE_REGISTER(bdev_integrity_module)

/* --- For others --- */

void bdev_integrity_delete(const char *name, bdev_delete_cb cb, void *arg)
{
	struct integrity_bdev *d = integrity_find_opening(name);

	if (d == NULL) {
		vbdev_waiting_delete(name, &bdev_integrity_module, cb, arg);
		return;
	}
	d->deleted = true;
	d->delete_cb = cb;
	d->delete_arg = arg;
	integrity_give_up(d, -ECANCELED, "the bdev was deleted while it was being opened");
}

bool bdev_integrity_get_waiting(const struct vbdev_waiting *w, struct bdev_integrity_opts *opts)
{
	static const uint8_t none[16];

	if (w->module != &bdev_integrity_module) {
		return false;
	}
	*opts = (struct bdev_integrity_opts){.name = w->name, .base_bdev_name = w->base_name};
	opts->uuid = memcmp(w->uuid, none, sizeof(none)) != 0 ? w->uuid : NULL;
	return true;
}

bool bdev_integrity_get(const struct bdev *b, struct bdev_integrity_opts *opts)
{
	if (b->module != &bdev_integrity_module) {
		return false;
	}
	*opts = (struct bdev_integrity_opts){
		.name = b->name, .base_bdev_name = integrity_of(b)->base_name, .uuid = b->uuid};
	return true;
}

const struct bdev *bdev_integrity_base(const struct bdev *b)
{
	return bdev_desc_bdev(integrity_of(b)->base);
}

struct bdev *bdev_integrity_find(const char *name)
{
	return bdev_find_of(name, &bdev_integrity_module);
}

void bdev_integrity_get_info(const struct bdev *b, struct bdev_integrity_info *info)
{
	struct integrity_bdev *d = integrity_of(b);

	*info = (struct bdev_integrity_info){
		.units = d->layout.data_units,
		.regions = d->layout.regions,
		.regions_open = d->slots_open,
		.regions_unknown = d->regions_unknown,
		.regions_unclean = d->regions_unclean,
		.errors = atomic_load_explicit(&d->errors, memory_order_relaxed),
		.checksum_pages_wrong = d->pages_wrong,
		.checksum_pages_failing = d->pages_failing,
		.metadata_bytes = d->metadata_bytes,
		.read_only = atomic_load_explicit(&d->failed, memory_order_relaxed),
	};
	integrity_count(d, &info->units_checked, &info->units_unchecked);
}

void integrity_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	struct bdev_integrity_info info;

	bdev_integrity_get_info(b, &info);
	json_object_set_new(driver_specific, "integrity",
			    json_pack("{s:s, s:s, s:I}", "name", b->name, "base_bdev_name", integrity_of(b)->base_name,
				      "errors", (json_int_t)info.errors));
}
