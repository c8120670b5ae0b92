/* SPDX-License-Identifier: BSD-3-Clause */
/* The registry: bdevs by name, alias and UUID; their registration and removal; modules. Control thread. */
#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bdev/internal.h"
#include "bdev/dif.h"
#include "bdev/module_util.h"
#include "util/state_machine.h"

LOG_FLAG(bdev)

#define NAME_MAX_BYTES 255
#define CLOSE_CHECK_US 200

struct bdev_opts bdev_options = {.auto_examine = true,
				 .nomem_timeout_ms = 5000,
				 .children = 32,
				 .iobuf_small_cache_size = 128,
				 .iobuf_large_cache_size = 16};

static SLIST_HEAD(, bdev_module) modules = SLIST_HEAD_INITIALIZER(modules);
static TAILQ_HEAD(, bdev_core) bdevs = TAILQ_HEAD_INITIALIZER(bdevs);
static LIST_HEAD(, bdev_observer) observers = LIST_HEAD_INITIALIZER(observers);

/* --- Modules --- */

void bdev_module_register(struct bdev_module *m)
{
	struct bdev_module *before = NULL, *at;

	SLIST_FOREACH (at, &modules, link) {
		if (strcmp(at->name, m->name) > 0) {
			break;
		}
		before = at;
	}
	if (before == NULL) {
		SLIST_INSERT_HEAD(&modules, m, link);
	} else {
		SLIST_INSERT_AFTER(before, m, link);
	}
}

const struct bdev_module *bdev_module_next(const struct bdev_module *after)
{
	return after == NULL ? SLIST_FIRST(&modules) : SLIST_NEXT(after, link);
}

size_t bdev_io_size(void)
{
	static size_t size;

	if (size == 0) {
		const struct bdev_module *m;
		size_t ctx = 0;
		SLIST_FOREACH (m, &modules, link) {
			size_t own = m->io_ctx_room != NULL ? m->io_ctx_room() : m->io_ctx_size;
			ctx = own > ctx ? own : ctx;
		}
		size = sizeof(struct bdev_io) + ((ctx + 63) & ~(size_t)63);
	}
	return size;
}

/* --- Names: a tree of names, aliases and UUIDs (as text) --- */

struct name {
	const char *text;
	struct bdev *bdev;
};
static void *names; /* tsearch(3) */

static int name_compare(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static struct name *name_find(const char *text)
{
	struct name **n = tfind(&(struct name){.text = text}, &names, name_compare);
	return n != NULL ? *n : NULL;
}

static int name_add(struct bdev *b, const char *text)
{
	if (name_find(text) != NULL) {
		return -EEXIST;
	}
	struct name *n = malloc(sizeof(*n));
	char *copy = strdup(text);
	if (n == NULL || copy == NULL) {
		goto fail;
	}
	*n = (struct name){.text = copy, .bdev = b};
	if (tsearch(n, &names, name_compare) == NULL) {
		goto fail;
	}
	return 0;
fail:
	free(n);
	free(copy);
	return -ENOMEM;
}

static void name_remove(const char *text)
{
	struct name *n = name_find(text);

	if (n != NULL) {
		tdelete(n, &names, name_compare);
		free((char *)n->text);
		free(n);
	}
}

struct bdev *bdev_find(const char *text)
{
	const struct name *n = name_find(text);
	uint8_t uuid[16];

	if (n == NULL && bdev_uuid_parse(text, uuid) == 0) {
		char canonical[BDEV_UUID_STRLEN];
		bdev_uuid_format(uuid, canonical);
		n = name_find(canonical);
	}
	return n != NULL ? n->bdev : NULL;
}

struct bdev *bdev_next(const struct bdev *after)
{
	const struct bdev_core *core = after == NULL ? TAILQ_FIRST(&bdevs) : TAILQ_NEXT(after->core, link);
	return core != NULL ? core->bdev : NULL;
}

/* --- Properties --- */

const char *bdev_name(const struct bdev *b)
{
	return b->name;
}

const char *bdev_product_name(const struct bdev *b)
{
	return b->product_name;
}

const uint8_t *bdev_uuid(const struct bdev *b)
{
	return b->uuid;
}

uint32_t bdev_block_size(const struct bdev *b)
{
	return b->block_size;
}

uint32_t bdev_data_block_size(const struct bdev *b)
{
	return b->block_size - b->md.size;
}

const struct bdev_md *bdev_get_md(const struct bdev *b)
{
	return &b->md;
}

uint32_t bdev_physical_block_size(const struct bdev *b)
{
	return b->physical_block_size;
}

uint64_t bdev_num_blocks(const struct bdev *b)
{
	return __atomic_load_n(&b->num_blocks, __ATOMIC_RELAXED); /* pairs with bdev_resize() */
}

uint32_t bdev_optimal_io_boundary(const struct bdev *b)
{
	return b->optimal_io_boundary;
}

uint32_t bdev_buf_align(const struct bdev *b)
{
	return b->buf_align != 0 ? b->buf_align : 1;
}

bool bdev_write_cache(const struct bdev *b)
{
	return b->write_cache;
}

bool bdev_leaves_buffers(const struct bdev *b)
{
	return b->leaves_buffers;
}

bool bdev_read_only(const struct bdev *b)
{
	return b->read_only;
}

enum bdev_state bdev_get_state(const struct bdev *b)
{
	return b->core->state;
}

uint64_t bdev_state_ticks(const struct bdev *b)
{
	return b->core->state_ticks;
}

const struct bdev_hints *bdev_get_hints(const struct bdev *b)
{
	return &b->hints;
}

int bdev_numa_node(const struct bdev *b)
{
	return b->numa_node;
}

void bdev_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	if (b->ops->dump_info != NULL) {
		b->ops->dump_info(b, driver_specific);
	}
}

void bdev_dump_stat(const struct bdev *b, struct json_t *driver_specific)
{
	if (b->ops->dump_stat != NULL) {
		b->ops->dump_stat(b, driver_specific);
	}
}

bool bdev_zcopy_region(const struct bdev *b, void **addr, size_t *len)
{
	*addr = b->zcopy_memory;
	*len = b->zcopy_memory_len;
	return b->zcopy_memory != NULL;
}

/* --- States --- */

static const uint32_t next_states[BDEV_STATES] = {
	[BDEV_NONE] = 1u << BDEV_EXAMINING,      [BDEV_EXAMINING] = 1u << BDEV_READY,
	[BDEV_READY] = 1u << BDEV_UNREGISTERING, [BDEV_UNREGISTERING] = 1u << BDEV_CLOSING,
	[BDEV_CLOSING] = 1u << BDEV_DESTRUCTING, [BDEV_DESTRUCTING] = 1u << BDEV_NONE,
};
STATE_MACHINE(bdev_machine, "bdev", bdev_state_name, next_states)

static void bdev_set_state(struct bdev *b, enum bdev_state state)
{
	struct bdev_core *core = b->core;

	state_machine_check(&bdev_machine, core->state, state, b->name);
	log_info(bdev, "%s: %s -> %s", b->name, bdev_state_name(core->state), bdev_state_name(state));
	TRACE(BDEV_STATE, b->trace_owner, 0, (uintptr_t)b, core->state, state);
	core->state = state;
	core->state_ticks = env_ticks();
}

/* --- Registration --- */

static bool is_power_of_2(uint64_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

static bool name_is_fit(const char *name)
{
	size_t n = name != NULL ? strlen(name) : 0;

	for (size_t i = 0; i < n; i++) {
		if (name[i] < ' ' || name[i] > '~') {
			return false;
		}
	}
	return n > 0 && n <= NAME_MAX_BYTES;
}

#define REJECT(...)                                                                                                    \
	do {                                                                                                           \
		log_error(__VA_ARGS__);                                                                                \
		return -EINVAL;                                                                                        \
	} while (0)

static int check_metadata(const struct bdev *b)
{
	bool is_good = b->md.dif_type <= 3 && b->md.dif_guard < DIF_GUARDS &&
		       (b->md.dif_type == 0 || (b->md.size >= dif_bytes(b->md.dif_guard) &&
						dif_storage_bits_are_good(b->md.dif_guard, b->md.storage_bits)));

	if (b->md.size >= b->block_size || !is_good) {
		REJECT("bdev %s: %u bytes of metadata with protection information of type %u do not fit blocks of %u "
		       "bytes",
		       b->name, b->md.size, b->md.dif_type, b->block_size);
	}
	if (b->md.size != 0 && b->buf_align > 1 && b->block_size % b->buf_align != 0) {
		REJECT("bdev %s: buf_align %u: blocks of %u bytes, metadata included, are no multiple of it", b->name,
		       b->buf_align, b->block_size);
	}
	return 0;
}

static int check_properties(const struct bdev *b)
{
	if (!name_is_fit(b->name)) {
		REJECT("a bdev's name must be 1 to %u printable ASCII characters", NAME_MAX_BYTES);
	}
	if (b->block_size == 0 || b->block_size - b->md.size > BDEV_BLOCK_SIZE_MAX) {
		REJECT("bdev %s: block_size %u: must be 1 to %u bytes", b->name, b->block_size,
		       BDEV_BLOCK_SIZE_MAX + b->md.size);
	}
	if (b->num_blocks == 0 || b->num_blocks > INT64_MAX / b->block_size) {
		REJECT("bdev %s: num_blocks %lu: must be 1 to %lu", b->name, b->num_blocks, INT64_MAX / b->block_size);
	}
	if (b->buf_align != 0 && (!is_power_of_2(b->buf_align) || b->buf_align > 4096)) {
		REJECT("bdev %s: buf_align %u: must be a power of two up to 4096", b->name, b->buf_align);
	}
	if (b->max_segment_bytes != 0 && b->max_segment_bytes < b->block_size) {
		REJECT("bdev %s: max_segment_bytes %u: must be 0 or at least a block (%u)", b->name,
		       b->max_segment_bytes, b->block_size);
	}
	return check_metadata(b);
}

static void complete_properties(struct bdev *b)
{
	static const uint8_t none[16];

	if (b->physical_block_size == 0) {
		b->physical_block_size = b->block_size - b->md.size;
	}
	if (b->optimal_io_boundary == 0) {
		b->split_on_boundary = false;
	}
	b->limited = b->max_rw_blocks != 0 || b->split_on_boundary || b->max_segments != 0 ||
		     b->max_segment_bytes != 0 || b->buf_align > 1 || b->max_unmap_blocks != 0 ||
		     b->max_copy_blocks != 0 || b->max_verify_blocks != 0 || b->max_uncorrectable_blocks != 0;
	b->has_random_uuid = memcmp(b->uuid, none, sizeof(none)) == 0;
	if (b->has_random_uuid) {
		if (getrandom(b->uuid, sizeof(b->uuid), 0) != sizeof(b->uuid)) {
			abort(); /* 16 bytes never block and never fail once the system is up: getrandom(2) */
		}
		b->uuid[6] = (b->uuid[6] & 0x0f) | 0x40; /* RFC 9562, version 4 */
		b->uuid[8] = (b->uuid[8] & 0x3f) | 0x80;
	}
}

static int add_names(struct bdev *b)
{
	char uuid[BDEV_UUID_STRLEN];

	bdev_uuid_format(b->uuid, uuid);
	int rc = name_add(b, b->name);
	if (rc != 0) {
		log_error(rc == -EEXIST ? "bdev name %s is taken" : "bdev %s: no memory for its name", b->name);
		return rc;
	}
	rc = strcmp(b->name, uuid) == 0 ? 0 : name_add(b, uuid); /* volumes have their UUID as their name */
	if (rc == -EEXIST) {
		log_error("bdev %s: UUID %s is that of bdev %s", b->name, uuid, bdev_find(uuid)->name);
	} else if (rc != 0) {
		log_error("bdev %s: no memory for its UUID", b->name);
	}
	if (rc != 0) {
		name_remove(b->name);
	}
	return rc;
}

static void remove_names(struct bdev *b)
{
	char uuid[BDEV_UUID_STRLEN];
	struct bdev_alias *a;

	bdev_uuid_format(b->uuid, uuid);
	name_remove(b->name);
	if (strcmp(b->name, uuid) != 0) {
		name_remove(uuid);
	}
	while ((a = TAILQ_FIRST(&b->core->aliases)) != NULL) {
		TAILQ_REMOVE(&b->core->aliases, a, link);
		name_remove(a->name);
		free(a->name);
		free(a);
	}
}

static void modules_examine(struct bdev *b)
{
	const struct bdev_module *m;

	SLIST_FOREACH (m, &modules, link) {
		if (m->examine != NULL && b->core->state == BDEV_READY) {
			m->examine(b);
		}
	}
}

int bdev_examine(const char *name)
{
	struct bdev *b = bdev_find(name);

	if (b == NULL) {
		return -ENODEV;
	}
	b->is_blank = false; /* who asks knows of something */
	modules_examine(b);
	return 0;
}

/* An observer may take itself off the list. */
static void observers_tell(struct bdev *b, bool added)
{
	struct bdev_observer *o, *next;

	for (o = LIST_FIRST(&observers); o != NULL; o = next) {
		next = LIST_NEXT(o, link);
		(added ? o->added : o->removed)(o->ctx, b);
	}
}

int bdev_register(struct bdev *b)
{
	int rc = check_properties(b);

	if (rc != 0) {
		return rc;
	}
	complete_properties(b);
	rc = bdev_core_init(b);
	if (rc != 0) {
		return rc;
	}
	rc = add_names(b);
	if (rc != 0) {
		bdev_core_free(b);
		return rc;
	}
	b->trace_owner = trace_owner_register(TRACE_OWNER_BDEV, b->name);
	bdev_stat_take(b);
	io_device_register(&b->core->dev);
	TAILQ_INSERT_TAIL(&bdevs, b->core, link);
	bdev_set_state(b, BDEV_EXAMINING);
	bdev_set_state(b, BDEV_READY);
	observers_tell(b, true);
	if (bdev_options.auto_examine) {
		modules_examine(b);
	}
	return 0;
}

/* --- Removal --- */

static void fini_step(void);

void bdev_destruct_done(struct bdev *b)
{
	void (*cb)(void *arg, int rc) = b->core->unregister_cb;
	void *arg = b->core->unregister_arg;

	bdev_set_state(b, BDEV_NONE);
	trace_owner_release(b->trace_owner);
	bdev_core_free(b);
	if (cb != NULL) {
		cb(arg, 0);
	}
	fini_step();
}

/* Its own turn of the control loop: whoever closed the last descriptor may still be using the bdev. */
static void close_timer_fired(void *arg)
{
	struct bdev_core *core = arg;
	struct bdev *b = core->bdev;

	if (io_device_unregister(&core->dev) != 0) {
		thread_timer_start(&core->close_timer, CLOSE_CHECK_US); /* channels are still being put */
		return;
	}
	bdev_watch_stop(core);
	bdev_stat_note(b);
	remove_names(b);
	TAILQ_REMOVE(&bdevs, core, link);
	bdev_set_state(b, BDEV_DESTRUCTING);
	b->ops->destruct(b);
}

void bdev_check_close(struct bdev *b)
{
	struct bdev_core *core = b->core;

	if (core->state == BDEV_UNREGISTERING && TAILQ_EMPTY(&core->descs)) {
		bdev_set_state(b, BDEV_CLOSING);
		core->close_timer = (struct thread_timer){.fn = close_timer_fired, .arg = core};
		thread_timer_start(&core->close_timer, 0);
	}
}

/* But for those whose descriptors keep their I/O. */
static void fail_waiting_in(struct bdev_io_queue *q)
{
	struct bdev_io_queue kept = STAILQ_HEAD_INITIALIZER(kept);
	struct bdev_io *io;

	while ((io = STAILQ_FIRST(q)) != NULL) {
		STAILQ_REMOVE_HEAD(q, queue);
		if (io->desc->keeps_io) {
			STAILQ_INSERT_TAIL(&kept, io, queue);
		} else {
			bdev_io_end_waiting(io, STATUS_REMOVED);
		}
	}
	STAILQ_CONCAT(q, &kept);
}

static void visit_fail_waiting(struct bdev_channel *ch, void *arg)
{
	struct bdev_io_queue *queues[] = {&ch->frozen,    &ch->qos_wait[RATE_READS], &ch->qos_wait[RATE_WRITES],
					  &ch->lock_wait, &ch->locks_wait,           &ch->nomem};
	struct bdev_io *io;

	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
		fail_waiting_in(queues[i]);
	}
	TAILQ_FOREACH (io, &ch->inflight, link) {
		if (!io->desc->keeps_io) {
			(void)bdev_lock_cancel(io, STATUS_REMOVED);
		}
	}
	bdev_qos_end_waiting(ch);
}

static void descs_tell(struct bdev *b, enum bdev_event event)
{
	struct bdev_desc *d, *next;

	for (d = TAILQ_FIRST(&b->core->descs); d != NULL; d = next) {
		next = TAILQ_NEXT(d, link); /* d may be closed by its callback, but no other */
		d->event_cb(d, event, d->event_arg);
	}
}

void bdev_unregister(struct bdev *b, void (*cb)(void *arg, int rc), void *arg)
{
	struct bdev_core *core = b->core;

	if (core->state > BDEV_READY && core->unregister_cb == NULL && cb != NULL) {
		core->unregister_cb = cb; /* it goes by itself, for example with its base */
		core->unregister_arg = arg;
		return;
	}
	if (core->state != BDEV_READY) {
		if (cb != NULL) {
			cb(arg, -EBUSY);
		}
		return;
	}
	core->unregister_cb = cb;
	core->unregister_arg = arg;
	bdev_set_state(b, BDEV_UNREGISTERING);
	observers_tell(b, false);
	bdev_set_slow(b, SLOW_REMOVED, 0);
	bdev_visit_channels(b, visit_fail_waiting, NULL);
	descs_tell(b, BDEV_EVENT_REMOVE);
	bdev_check_close(b);
}

/* --- Size, aliases --- */

static void observers_tell_resize(struct bdev *b)
{
	struct bdev_observer *o, *next;

	for (o = LIST_FIRST(&observers); o != NULL; o = next) {
		next = LIST_NEXT(o, link);
		if (o->resized != NULL) {
			o->resized(o->ctx, b);
		}
	}
}

int bdev_resize(struct bdev *b, uint64_t num_blocks)
{
	if (num_blocks == 0 || num_blocks > INT64_MAX / b->block_size) {
		return -EINVAL;
	}
	if (num_blocks != b->num_blocks) {
		/* I/O checked against the old size may still be on its way: its module has the last word. */
		__atomic_store_n(&b->num_blocks, num_blocks, __ATOMIC_RELAXED);
		descs_tell(b, BDEV_EVENT_RESIZE);
		observers_tell_resize(b);
	}
	return 0;
}

int bdev_alias_add(struct bdev *b, const char *alias)
{
	struct bdev_alias *a = malloc(sizeof(*a));
	int rc = -ENOMEM;

	if (a == NULL || (a->name = strdup(alias)) == NULL) {
		free(a);
		return rc;
	}
	rc = name_add(b, alias);
	if (rc != 0) {
		free(a->name);
		free(a);
		return rc;
	}
	TAILQ_INSERT_TAIL(&b->core->aliases, a, link);
	return 0;
}

int bdev_alias_remove(struct bdev *b, const char *alias)
{
	struct bdev_alias *a;

	TAILQ_FOREACH (a, &b->core->aliases, link) {
		if (strcmp(a->name, alias) == 0) {
			TAILQ_REMOVE(&b->core->aliases, a, link);
			name_remove(a->name);
			free(a->name);
			free(a);
			return 0;
		}
	}
	return -ENOENT;
}

const char *bdev_alias_next(const struct bdev *b, const char *after)
{
	const struct bdev_alias *a = TAILQ_FIRST(&b->core->aliases);

	while (after != NULL && a != NULL && a->name != after) {
		a = TAILQ_NEXT(a, link);
	}
	if (after != NULL && a != NULL) {
		a = TAILQ_NEXT(a, link);
	}
	return a != NULL ? a->name : NULL;
}

/* --- Observers, options, life of the layer --- */

void bdev_observe(struct bdev_observer *o)
{
	struct bdev_core *core;

	LIST_INSERT_HEAD(&observers, o, link);
	TAILQ_FOREACH (core, &bdevs, link) {
		if (core->state == BDEV_READY) {
			o->added(o->ctx, core->bdev);
		}
	}
}

void bdev_unobserve(struct bdev_observer *o)
{
	LIST_REMOVE(o, link);
}

void bdev_get_opts(struct bdev_opts *opts)
{
	*opts = bdev_options;
}

int bdev_set_opts(const struct bdev_opts *opts)
{
	if (opts->children < 1 || opts->children > 4096 || opts->nomem_timeout_ms < 1) {
		return -EINVAL;
	}
	if (opts->children != bdev_options.children && !TAILQ_EMPTY(&bdevs)) {
		return -EBUSY;
	}
	bdev_options = *opts;
	return 0;
}

int bdev_init(void)
{
	int rc = bdev_split_init();

	if (rc == 0) {
		bdev_channels_init();
	}
	return rc;
}

static void (*fini_done)(void *arg);
static bool stopping;
static void *fini_arg;
static struct thread_timer fini_timer;

/* All bdevs are gone. A turn of the control loop later, since the last one's removal is still on the stack. */
static void fini_end(void *unused)
{
	const struct bdev_module *m;
	void (*done)(void *arg) = fini_done;

	SLIST_FOREACH (m, &modules, link) {
		if (m->fini != NULL) {
			m->fini();
		}
	}
	bdev_qos_groups_fini();
	bdev_channels_fini();
	bdev_split_fini();
	fini_done = NULL;
	stopping = false;
	fini_timer.fn = NULL;
	done(fini_arg);
}

bool bdev_is_stopping(void)
{
	return stopping;
}

static bool modules_are_idle(void)
{
	const struct bdev_module *m;

	SLIST_FOREACH (m, &modules, link) {
		if (m->is_idle != NULL && !m->is_idle()) {
			return false;
		}
	}
	return true;
}

static void (*creations_done)(void *arg);
static void *creations_arg;

static bool modules_are_creating(void)
{
	const struct bdev_module *m;

	SLIST_FOREACH (m, &modules, link) {
		if (m->is_creating != NULL && m->is_creating()) {
			return true;
		}
	}
	return false;
}

static void creations_step(void)
{
	void (*done)(void *arg) = creations_done;

	if (done != NULL && !modules_are_creating()) {
		creations_done = NULL;
		done(creations_arg);
	}
}

void bdev_finish_creations(void (*done)(void *arg), void *arg)
{
	creations_done = done;
	creations_arg = arg;
	creations_step();
}

static STAILQ_HEAD(, bdev_examine_waiter) examine_waiters = STAILQ_HEAD_INITIALIZER(examine_waiters);

static bool modules_are_examining(void)
{
	const struct bdev_module *m;

	SLIST_FOREACH (m, &modules, link) {
		if (m->is_examining != NULL && m->is_examining()) {
			return true;
		}
	}
	return false;
}

/* What a waiter does may have modules look at further bdevs. */
static void examinations_step(void)
{
	struct bdev_examine_waiter *w;

	while ((w = STAILQ_FIRST(&examine_waiters)) != NULL && !modules_are_examining()) {
		STAILQ_REMOVE_HEAD(&examine_waiters, link);
		w->done(w->arg);
	}
}

void bdev_wait_for_examine(struct bdev_examine_waiter *w)
{
	STAILQ_INSERT_TAIL(&examine_waiters, w, link);
	examinations_step();
}

void bdev_module_is_idle(void)
{
	creations_step();
	examinations_step();
	fini_step();
}

static void fini_step(void)
{
	if (fini_done != NULL && fini_timer.fn == NULL && TAILQ_EMPTY(&bdevs) && modules_are_idle()) {
		fini_timer = (struct thread_timer){.fn = fini_end};
		thread_timer_start(&fini_timer, 0);
	}
}

/* A removal may take others with it, so each step looks at the list anew. */
void bdev_fini(void (*done)(void *arg), void *arg)
{
	struct bdev_core *core;
	const struct bdev_module *m;

	stopping = true;
	SLIST_FOREACH (m, &modules, link) {
		if (m->stop != NULL) {
			m->stop();
		}
	}
	fini_done = done;
	fini_arg = arg;
	do {
		TAILQ_FOREACH (core, &bdevs, link) {
			if (core->state == BDEV_READY) {
				bdev_unregister(core->bdev, NULL, NULL);
				break;
			}
		}
	} while (core != NULL);
	fini_step();
}
