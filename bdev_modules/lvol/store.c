/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a store: found on a new bdev or made, opened, closed when its base is removed.
 *
 * A store has its base open and claimed from OPENING on. While it is PROBING, the base is open for reading only, since
 * most bdevs have no store. */
#include <errno.h>
#include <rte_common.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev_modules/lvol/internal.h"
#include "lvol/rescue.h"
#include "util/log.h"
#include "util/state_machine.h"

#define CHILDREN          256u /* I/Os that a thread may have at the base, for all volumes of a store */
#define CHANNELS_CHECK_US 1000u

struct lvol_patience lvol_patience = {.probe_us = 10000000, .open_us = 60000000};

static TAILQ_HEAD(, bdev_lvol_store) stores = TAILQ_HEAD_INITIALIZER(stores);
static bool stopping;

static const char *store_state_name(unsigned state)
{
	static const char *const names[STORE_STATES] = {
		[STORE_PROBING] = "probing", [STORE_OPENING] = "opening", [STORE_OPEN] = "open",
		[STORE_CLOSING] = "closing", [STORE_ENDING] = "ending",
	};

	return state < STORE_STATES ? names[state] : "?";
}

static const uint32_t store_next_states[STORE_STATES] = {
	[STORE_PROBING] = 1u << STORE_OPENING | 1u << STORE_ENDING,
	[STORE_OPENING] = 1u << STORE_OPEN | 1u << STORE_ENDING,
	[STORE_OPEN] = 1u << STORE_CLOSING,
	[STORE_CLOSING] = 1u << STORE_ENDING,
};
STATE_MACHINE(store_machine, "lvol_store", store_state_name, store_next_states)

static void store_set_state(struct bdev_lvol_store *s, enum store_state state)
{
	state_machine_check(&store_machine, s->state, state, s->base_name);
	lvol_events_store_state(s, s->state, state);
	s->state = state;
}

/* --- Channels --- */

static int store_channel_create(struct io_device *device, void *ctx)
{
	struct store_channel *sc = ctx;

	sc->store = container_of(device, struct bdev_lvol_store, device);
	sc->pool = bdev_child_pool_create(sc->store->base, CHILDREN, lvol_io_child_done);
	return sc->pool != NULL ? 0 : -errno;
}

static void store_channel_destroy(struct io_device *device, void *ctx)
{
	struct store_channel *sc = ctx;

	bdev_child_pool_destroy(sc->pool);
}

/* --- The end --- */

static bool store_is_examined(const struct bdev_lvol_store *s)
{
	return s->state != STORE_PROBING && (s->state != STORE_OPENING || s->created || s->is_overdue);
}

static void store_answer(struct bdev_lvol_store *s)
{
	bdev_lvol_cb cb = s->cb;

	s->cb = NULL;
	if (cb != NULL) {
		cb(s->cb_arg, s->error, s->error_text, s->uuid);
	}
}

/* The answer follows when the base has been closed. */
static void store_fail(struct bdev_lvol_store *s, int rc, const char *error)
{
	s->error = rc;
	snprintf(s->error_text, sizeof(s->error_text), "%s", error);
}

/* NULL: there is none. */
static void store_release(struct bdev_lvol_store *s)
{
	if (s != NULL) {
		free(s->reserve_memory);
		free(s->superblock);
		free(s);
	}
}

/* The last part: nothing uses the base any more. */
static void store_free(void *arg)
{
	struct bdev_lvol_store *s = arg;
	struct bdev_desc *base = s->base;

	if (s->device_registered && io_device_unregister(&s->device) != 0) {
		s->timer = (struct thread_timer){.fn = store_free, .arg = s};
		thread_timer_start(&s->timer, CHANNELS_CHECK_US); /* channels are still being put */
		return;
	}
	TAILQ_REMOVE(&stores, s, link);
	bdev_close(base); /* before the answer, which may lead to its removal */
	store_answer(s);
	store_release(s);
	bdev_module_is_idle();
}

static void store_finish(struct bdev_lvol_store *s)
{
	store_set_state(s, STORE_ENDING);
	thread_timer_stop(&s->open_timer);
	vbdev_meta_close(s->meta, store_free, s);
	bdev_module_is_idle(); /* whoever waits for examinations does not wait for the base to end its I/O */
}

static void store_closed(void *arg, int status)
{
	struct bdev_lvol_store *s = arg;

	s->live = NULL;
	if (status != 0) {
		log_error("lvol store %s on bdev %s was not closed cleanly: %s; it is repaired when it is opened again",
			  s->name, s->base_name, strerror(-status));
	}
	if (s->destroys && status != 0) {
		store_fail(s, status, "the store's superblock could not be overwritten: the store is still there");
	}
	vbdev_meta_close(s->meta, store_free, s);
}

void lvol_store_check_closing(struct bdev_lvol_store *s)
{
	if (s->state != STORE_CLOSING || !TAILQ_EMPTY(&s->volumes)) {
		return;
	}
	store_set_state(s, STORE_ENDING);
	if (s->destroys) {
		lvol_live_destroy(s->live, store_closed, s);
	} else {
		lvol_live_close(s->live, store_closed, s);
	}
}

static void store_close(struct bdev_lvol_store *s)
{
	struct bdev_lvol *l;

	store_set_state(s, STORE_CLOSING);
	lvol_space_stop(s);
	TAILQ_FOREACH (l, &s->volumes, link) {
		if (l->bdev.core != NULL) { /* it is registered */
			bdev_unregister(&l->bdev, NULL, NULL);
		}
	}
	lvol_store_check_closing(s);
}

static void store_base_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct bdev_lvol_store *s = arg;

	if (event != BDEV_EVENT_REMOVE) {
		return; /* bdev_lvol_grow_lvstore uses what was added */
	}
	s->leaving = true;
	if (s->state == STORE_PROBING) {
		store_finish(s);
	} else if (s->state == STORE_OPEN) {
		store_close(s);
	}
}

/* --- The beginning --- */

static struct bdev_lvol_store *store_new(const char *base_name)
{
	struct bdev_lvol_store *s = aligned_alloc(64, (sizeof(*s) + 63) & ~(size_t)63);

	if (s == NULL) {
		return NULL;
	}
	memset(s, 0, sizeof(*s));
	if (lvol_device_init(s) != 0) {
		free(s);
		return NULL;
	}
	TAILQ_INIT(&s->volumes);
	lvol_grace_init(&s->grace);
	snprintf(s->base_name, sizeof(s->base_name), "%s", base_name);
	return s;
}

/* What a store needs of its base. */
static int base_check(const struct bdev *b, char *error)
{
	if (b->md.size != 0) {
		return bdev_error(error, -EINVAL, "bdev '%.150s': a store on blocks with metadata is not supported",
				  b->name);
	}
	if (b->block_size > LVOL_PAGE_BYTES || !rte_is_power_of_2(b->block_size)) {
		return bdev_error(error, -EINVAL,
				  "bdev '%.150s' has blocks of %u bytes: must be a power of two up to 4096", b->name,
				  b->block_size);
	}
	return 0;
}

/* The base is open. After an error the caller closes it. */
static int store_begin(struct bdev_lvol_store *s, char *error)
{
	s->base_block_bytes = bdev_block_size(bdev_desc_bdev(s->base));
	if (vbdev_meta_open(s->base, "lvol store", &s->meta) != 0) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	TAILQ_INSERT_TAIL(&stores, s, link);
	return 0;
}

static void store_set_names(struct bdev_lvol_store *s)
{
	const struct lvol_live_info info = lvol_live_info(s->live);

	snprintf(s->name, sizeof(s->name), "%s", info.name);
	snprintf(s->uuid, sizeof(s->uuid), "%s", info.uuid);
	s->block_bytes = info.io_unit_bytes;
	s->cluster_bytes = info.cluster_bytes;
}

static bool is_same(const char *a, const char *b)
{
	return a[0] != '\0' && strcasecmp(a, b) == 0;
}

/* Names and UUIDs are known from store_may_open() or the creation on; before that they are "". */
static const struct bdev_lvol_store *store_like(const struct bdev_lvol_store *s, const char *name, const char *uuid)
{
	const struct bdev_lvol_store *other;

	TAILQ_FOREACH (other, &stores, link) {
		bool has_name =
			name[0] != '\0' && (strcmp(other->name, name) == 0 || strcmp(other->new_name, name) == 0);
		if (other != s && (has_name || is_same(other->uuid, uuid))) {
			return other;
		}
	}
	return NULL;
}

/* Before anything is written: the same store may be seen by two ways, and is open by the other one. */
static int store_may_open(void *ctx, const char *name, const char *uuid, struct lvol_error *e)
{
	struct bdev_lvol_store *s = ctx;
	const struct bdev_lvol_store *other = store_like(s, name, uuid);

	if (other != NULL) {
		snprintf(e->text, sizeof(e->text),
			 "the store on bdev %.32s has its name (%.63s) or UUID (%.36s); nothing was written",
			 other->base_name, name, uuid);
		return -EEXIST;
	}
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->uuid, sizeof(s->uuid), "%s", uuid);
	return 0;
}

/* What was opened must be usable. */
static int store_check(struct bdev_lvol_store *s)
{
	if (s->block_bytes % s->base_block_bytes != 0 || s->cluster_bytes % s->block_bytes != 0 ||
	    !rte_is_power_of_2(s->block_bytes / s->base_block_bytes)) {
		log_error("lvol store %s on bdev %s is not used: its blocks of %u bytes do not fit blocks of %u bytes",
			  s->name, s->base_name, s->block_bytes, s->base_block_bytes);
		return -EINVAL;
	}
	s->block_shift = rte_log2_u32(s->block_bytes / s->base_block_bytes);
	return 0;
}

static void store_register_volumes(struct bdev_lvol_store *s)
{
	struct lvol_live_volume *v;
	char error[BDEV_ERROR_MAX];

	for (v = lvol_live_next(s->live, NULL); v != NULL; v = lvol_live_next(s->live, v)) {
		/* What another one had waited for may have come with one before. */
		int rc = v->user != NULL ? 0 : lvol_volume_register(s, v, error);
		if (rc == -ENODEV) {
			log_warning("%s", error); /* the bdev that it is a clone of may come */
		} else if (rc != 0) {
			log_error("%s", error);
		}
	}
}

static void store_opened(void *arg, int status, struct lvol_live *live, const struct lvol_error *e)
{
	struct bdev_lvol_store *s = arg;
	char error[BDEV_ERROR_MAX];

	if (status != 0) {
		bdev_error(error, status, "bdev '%.40s': %s", s->base_name,
			   e->text[0] != '\0' ? e->text : strerror(-status));
		log_error("lvol store: %s", error);
		store_fail(s, status, error);
		s->name[0] = s->uuid[0] = '\0'; /* another may have them */
		store_finish(s);
		return;
	}
	thread_timer_stop(&s->open_timer);
	s->live = live;
	store_set_names(s);
	status = store_check(s);
	store_set_state(s, STORE_OPEN);
	if (status != 0 || s->leaving || stopping) {
		store_fail(s, status != 0 ? status : -ENODEV, "the store cannot be used, the log says why");
		store_close(s);
		return;
	}
	const struct lvol_live_info info = lvol_live_info(live);
	log_notice("lvol store %s on bdev %s is open%s", s->name, s->base_name,
		   info.recovered ? "; it had not been closed, and was repaired" : "");
	lvol_space_open(s);
	store_register_volumes(s);
	store_answer(s);
	bdev_module_is_idle();
}

/* It goes on, and its volumes come when it is open. */
static void store_is_late(void *arg)
{
	struct bdev_lvol_store *s = arg;

	if (thread_timer_was_absent(&s->open_timer, lvol_patience.open_us)) {
		thread_timer_start(&s->open_timer, lvol_patience.open_us);
		return;
	}
	log_warning("lvol store on bdev %s: opening it takes long; nothing waits for its volumes any more",
		    s->base_name);
	s->is_overdue = true;
	bdev_module_is_idle();
}

static void store_device_register(struct bdev_lvol_store *s)
{
	s->device = (struct io_device){.name = s->base_name,
				       .channel_size = sizeof(struct store_channel),
				       .channel_create = store_channel_create,
				       .channel_destroy = store_channel_destroy};
	io_device_register(&s->device);
	s->device_registered = true;
}

/* --- Examination --- */

static bool superblock_is_of_store(const struct lvol_super *super)
{
	return (memcmp(super->signature, LVOL_SIGNATURE, sizeof(super->signature)) == 0 &&
		strncmp(super->type, LVOL_STORE_TYPE, sizeof(super->type)) == 0) ||
	       lvol_super_is_damaged(super);
}

static void probe_done(struct vbdev_meta_op *op)
{
	struct bdev_lvol_store *s = container_of(op, struct bdev_lvol_store, probe);
	struct lvol_live_user user;

	if (s->state != STORE_PROBING) {
		return; /* the base is being removed */
	}
	if (op->error != 0 || !superblock_is_of_store(s->superblock)) {
		store_finish(s);
		return;
	}
	if (bdev_claim(s->base, BDEV_CLAIM_EXCL_WRITE, 0, "lvol") != 0) {
		log_error("the lvol store on bdev %s is not opened: the bdev cannot be claimed", s->base_name);
		store_finish(s);
		return;
	}
	store_set_state(s, STORE_OPENING);
	s->open_timer = (struct thread_timer){.fn = store_is_late, .arg = s};
	thread_timer_start(&s->open_timer, lvol_patience.open_us);
	store_device_register(s);
	lvol_device_fill_in(s, &user);
	user.may_open = store_may_open;
	lvol_live_open(&user, store_opened, s);
}

static bool is_known(const struct bdev *b)
{
	const struct bdev_lvol_store *s;

	TAILQ_FOREACH (s, &stores, link) {
		if (bdev_desc_bdev(s->base) == b) {
			return true;
		}
	}
	return false;
}

/* The blocks of a volume are its hosts' own: what looks like a store there is none of ours. */
static bool may_have_store(const struct bdev *b)
{
	char error[BDEV_ERROR_MAX];

	return !stopping && b->module != &bdev_lvol_module && !b->read_only && !b->leaves_buffers && !b->is_blank &&
	       base_check(b, error) == 0 && bdev_get_claim(b, NULL) == BDEV_CLAIM_NONE && !is_known(b) &&
	       b->num_blocks * b->block_size >= LVOL_PAGE_BYTES;
}

static void lvol_examine(struct bdev *b)
{
	if (!stopping) {
		lvol_external_examine(b); /* first: what is in it is no store for us, then */
	}
	struct bdev_lvol_store *s = may_have_store(b) ? store_new(b->name) : NULL;
	char error[BDEV_ERROR_MAX];

	if (s == NULL) {
		return;
	}
	s->superblock = aligned_alloc(LVOL_PAGE_BYTES, LVOL_PAGE_BYTES);
	if (s->superblock == NULL || bdev_open(b->name, false, store_base_event, s, &s->base) != 0) {
		store_release(s);
		return;
	}
	bdev_keep_io(s->base);
	if (store_begin(s, error) != 0) {
		bdev_close(s->base);
		store_release(s);
		return;
	}
	s->probe = (struct vbdev_meta_op){.type = BDEV_IO_READ,
					  .num_blocks = LVOL_PAGE_BYTES / s->base_block_bytes,
					  .data = s->superblock,
					  .timeout_us = lvol_patience.probe_us,
					  .done = probe_done};
	vbdev_meta_start(s->meta, &s->probe);
}

static bool lvol_is_examining(void)
{
	const struct bdev_lvol_store *s;

	TAILQ_FOREACH (s, &stores, link) {
		if (!store_is_examined(s)) {
			return true;
		}
	}
	return false;
}

static void lvol_stop(void)
{
	stopping = true;
}

static void lvol_fini(void)
{
	stopping = false;
	lvol_shallow_fini();
}

static size_t lvol_io_room(void)
{
	return lvol_io_ctx_size;
}

struct bdev_module bdev_lvol_module = {
	.name = "lvol",
	.io_ctx_room = lvol_io_room,
	.examine = lvol_examine,
	.is_examining = lvol_is_examining,
	.stop = lvol_stop,
	.figures = lvol_figures,
	.fini = lvol_fini,
};
BDEV_MODULE_REGISTER(bdev_lvol_module)

/* --- Operations --- */

bool lvol_store_is_usable(const struct bdev_lvol_store *s)
{
	return s->state == STORE_OPEN;
}

struct bdev_lvol_store *bdev_lvol_store_next(const struct bdev_lvol_store *after)
{
	struct bdev_lvol_store *s = after != NULL ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&stores);

	while (s != NULL && s->state != STORE_OPEN) {
		s = TAILQ_NEXT(s, link);
	}
	return s;
}

struct bdev_lvol_store *bdev_lvol_store_find(const char *uuid, const char *name, int *rc, char *error)
{
	struct bdev_lvol_store *s;

	if ((uuid != NULL) == (name != NULL)) {
		*rc = bdev_error(error, -EINVAL, "either the UUID or the name of the store must be given");
		return NULL;
	}
	for (s = bdev_lvol_store_next(NULL); s != NULL; s = bdev_lvol_store_next(s)) {
		if (uuid != NULL ? strcasecmp(uuid, s->uuid) == 0 : strcmp(name, s->name) == 0) {
			return s;
		}
	}
	*rc = bdev_error(error, -ENODEV, "there is no lvol store '%.200s'", uuid != NULL ? uuid : name);
	return NULL;
}

const char *bdev_lvol_store_base(const struct bdev_lvol_store *s)
{
	return s->base_name;
}

struct lvol_live *bdev_lvol_store_live(const struct bdev_lvol_store *s)
{
	return s->live;
}

/* The device has been cleared as far as that was asked for. */
static void create_cleared(struct vbdev_meta_op *op)
{
	struct bdev_lvol_store *s = container_of(op, struct bdev_lvol_store, probe);
	struct lvol_live_user user;

	if (op->error != 0 && op->type == BDEV_IO_WRITE_ZEROES) {
		store_fail(s, op->error, "the bdev could not be overwritten with zeroes");
		store_finish(s);
		return;
	}
	lvol_device_fill_in(s, &user);
	lvol_live_create(&user, &s->create, store_opened, s);
}

static void create_begin(struct bdev_lvol_store *s, enum bdev_lvol_clear clear)
{
	const struct bdev *base = bdev_desc_bdev(s->base);

	s->probe = (struct vbdev_meta_op){.type = clear == BDEV_LVOL_CLEAR_WRITE_ZEROES ? BDEV_IO_WRITE_ZEROES
						  : clear == BDEV_LVOL_CLEAR_NONE       ? BDEV_IO_FLUSH
											: BDEV_IO_UNMAP,
					  .num_blocks = bdev_num_blocks(base),
					  .done = create_cleared};
	store_device_register(s);
	vbdev_meta_start(s->meta, &s->probe);
}

static int store_create_check(const char *name, char *error)
{
	int rc = lvol_name_check(name, error);
	const struct bdev_lvol_store *s;

	TAILQ_FOREACH (s, &stores, link) {
		if (rc == 0 && (strcmp(s->name, name) == 0 || strcmp(s->new_name, name) == 0)) {
			rc = bdev_error(error, -EEXIST, "there is an lvol store '%.60s' already", name);
		}
	}
	return rc;
}

static int create_open_base(struct bdev_lvol_store *s, char *error)
{
	int rc = vbdev_base_open(s->base_name, "lvol", store_base_event, s, &s->base, error);

	if (rc != 0) {
		return rc;
	}
	const struct bdev *b = bdev_desc_bdev(s->base);
	rc = base_check(b, error);
	if (rc == 0 && b->module == &bdev_lvol_module) { /* see may_have_store() */
		rc = bdev_error(error, -EINVAL,
				"bdev '%.150s' is a volume: no store is looked for on one, so a store "
				"there would not be found again",
				s->base_name);
	}
	if (rc == 0 && b->read_only) {
		rc = bdev_error(error, -EROFS, "bdev '%.150s' is read-only", s->base_name);
	}
	rc = rc != 0 ? rc : store_begin(s, error);
	if (rc != 0) {
		bdev_close(s->base);
	}
	return rc;
}

void bdev_lvol_store_create(const struct bdev_lvol_store_opts *o, bdev_lvol_cb cb, void *arg)
{
	char error[BDEV_ERROR_MAX];
	int rc = store_create_check(o->name, error);
	struct bdev_lvol_store *s = rc == 0 ? store_new(o->bdev_name) : NULL;

	if (rc == 0 && s == NULL) {
		rc = bdev_error(error, -ENOMEM, "out of memory");
	}
	rc = rc != 0 ? rc : create_open_base(s, error);
	if (rc != 0) {
		store_release(s);
		cb(arg, rc, error, "");
		return;
	}
	s->state = STORE_OPENING;
	s->created = true;
	s->cb = cb;
	s->cb_arg = arg;
	snprintf(s->name, sizeof(s->name), "%s", o->name);
	lvol_volume_new_uuid(s->uuid);
	s->create = (struct lvol_live_create_opts){
		.name = s->name, .uuid = s->uuid, .cluster_bytes = o->cluster_bytes, .md_ratio = o->md_ratio};
	if (o->space != NULL) {
		s->space = *o->space;
		s->create.space = &s->space;
	}
	create_begin(s, o->clear);
}

struct store_rename {
	bdev_lvol_cb cb;
	void *arg;
	struct bdev_lvol_store *store;
};

/* Volumes may have been made, renamed and deleted since the rename began, which added names to some. */
static void rename_renew_aliases(struct bdev_lvol_store *s)
{
	struct bdev_lvol *l;

	TAILQ_FOREACH (l, &s->volumes, link) {
		lvol_volume_renew_alias(l);
	}
}

/* Takes the new names, so that nobody else can. */
static int rename_add_aliases(struct bdev_lvol_store *s, const char *name)
{
	char alias[sizeof(((struct bdev_lvol *)NULL)->alias)];
	struct bdev_lvol *l;

	TAILQ_FOREACH (l, &s->volumes, link) {
		if (bdev_get_state(&l->bdev) != BDEV_READY) {
			continue;
		}
		lvol_volume_alias(name, l->v->name, alias);
		int rc = bdev_alias_add(&l->bdev, alias);
		if (rc != 0) {
			rename_renew_aliases(s);
			return rc;
		}
	}
	return 0;
}

static void rename_store_done(void *arg, int status)
{
	struct store_rename *r = arg;
	struct bdev_lvol_store *s = r->store;

	if (status == 0) {
		snprintf(s->name, sizeof(s->name), "%s", s->new_name);
	}
	s->new_name[0] = '\0';
	rename_renew_aliases(s);
	r->cb(r->arg, status, status != 0 ? "the store's metadata could not be changed" : "", s->uuid);
	free(r);
}

static int store_rename_begin(struct bdev_lvol_store *s, const char *name, char *error)
{
	if (s->new_name[0] != '\0') {
		return bdev_error(error, -EBUSY, "store '%.60s' is being renamed to '%.60s'", s->name, s->new_name);
	}
	int rc = store_create_check(name, error);
	if (rc != 0) {
		return rc;
	}
	rc = rename_add_aliases(s, name);
	return rc == 0 ? 0
		       : bdev_error(error, rc, "store '%.60s' cannot have the name '%.60s': %s", s->name, name,
				    rc == -EEXIST ? "a bdev has a name that a volume would have" : "out of memory");
}

void bdev_lvol_store_rename(struct bdev_lvol_store *s, const char *name, bdev_lvol_cb cb, void *arg)
{
	char error[BDEV_ERROR_MAX];

	if (strcmp(s->name, name) == 0 && s->new_name[0] == '\0') {
		cb(arg, 0, "", s->uuid);
		return;
	}
	struct store_rename *r = calloc(1, sizeof(*r));
	int rc = r != NULL ? store_rename_begin(s, name, error) : bdev_error(error, -ENOMEM, "out of memory");
	if (rc != 0) {
		free(r);
		cb(arg, rc, error, s->uuid);
		return;
	}
	r->cb = cb;
	r->arg = arg;
	r->store = s;
	snprintf(s->new_name, sizeof(s->new_name), "%s", name);
	lvol_live_rename_store(s->live, name, rename_store_done, r);
}

void bdev_lvol_store_delete(struct bdev_lvol_store *s, bdev_lvol_cb cb, void *arg)
{
	s->destroys = true;
	s->cb = cb;
	s->cb_arg = arg;
	store_close(s);
}

void bdev_lvol_store_grow(struct bdev_lvol_store *s, lvol_live_done done, void *arg)
{
	lvol_live_grow(s->live, bdev_num_blocks(bdev_desc_bdev(s->base)) * s->base_block_bytes, done, arg);
}
