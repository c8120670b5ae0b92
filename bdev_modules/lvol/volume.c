/* SPDX-License-Identifier: BSD-3-Clause */
/* The bdevs of volumes, and changes of volumes. A change that has begun may outlive the bdev, if the base is removed
 * meanwhile: the volume's `user` says whether there is one. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <rte_common.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "bdev_modules/lvol/internal.h"
#include "util/log.h"

#define UNMAP_CLUSTERS 4096u /* of one UNMAP or WRITE_ZEROES, which a pause may have to wait for */

static const struct bdev_ops lvol_ops;

struct bdev_lvol *lvol_volume_of(const struct bdev *b)
{
	return b != NULL && b->module == &bdev_lvol_module ? (struct bdev_lvol *)(uintptr_t)b : NULL;
}

void lvol_volume_alias(const char *store, const char *name, char *alias)
{
	snprintf(alias, sizeof(((struct bdev_lvol *)NULL)->alias), "%s/%s", store, name);
}

void lvol_volume_new_uuid(char text[BDEV_UUID_STRLEN])
{
	uint8_t uuid[16];

	if (getrandom(uuid, sizeof(uuid), 0) != sizeof(uuid)) {
		abort(); /* 16 bytes never block and never fail once the system is up: getrandom(2) */
	}
	uuid[6] = (uuid[6] & 0x0f) | 0x40; /* RFC 9562, version 4 */
	uuid[8] = (uuid[8] & 0x3f) | 0x80;
	bdev_uuid_format(uuid, text);
}

/* --- The bdev --- */

static int lvol_channel_create(struct bdev *b, void *channel)
{
	struct bdev_lvol *l = (struct bdev_lvol *)b;
	struct lvol_channel *ch = channel;

	ch->lvol = l;
	TAILQ_INIT(&ch->held);
	STAILQ_INIT(&ch->bounce_waiters);
	ch->io_channel = io_channel_get(&l->store->device);
	if (ch->io_channel == NULL) {
		return -errno;
	}
	ch->sc = io_channel_ctx(ch->io_channel);
	ch->paused = atomic_load(&l->paused);
	if (lvol_external_is_used(l) && lvol_external_pool(ch) == NULL) {
		io_channel_put(ch->io_channel);
		return -ENOMEM;
	}
	return 0;
}

static void lvol_channel_destroy(struct bdev *b, void *channel)
{
	struct lvol_channel *ch = channel;

	bdev_child_pool_destroy(ch->external);
	io_channel_put(ch->io_channel);
}

void lvol_volume_put(struct bdev_lvol *l)
{
	struct bdev_lvol_store *s = l->store;

	if (atomic_fetch_sub(&l->refs, 1) == 1) {
		TAILQ_REMOVE(&s->volumes, l, link);
		bdev_destruct_done(&l->bdev);
		free(l);
		lvol_store_check_closing(s);
	}
}

static void lvol_destruct(struct bdev *b)
{
	struct bdev_lvol *l = (struct bdev_lvol *)b;

	l->v->user = NULL;
	lvol_external_close(l, lvol_volume_put);
}

static json_t *clone_names(const struct bdev_lvol *l)
{
	const struct lvol_live *live = l->v->store;
	const struct lvol_live_volume *v;
	json_t *names = json_array();

	for (v = lvol_live_next(live, NULL); v != NULL; v = lvol_live_next(live, v)) {
		if (v->parent == l->v) {
			json_array_append_new(names, json_string(v->name));
		}
	}
	return names;
}

static void lvol_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	const struct bdev_lvol *l = (const struct bdev_lvol *)b;
	const struct lvol_live_volume *v = l->v;
	json_t *o = json_pack("{s:s, s:s, s:b, s:I, s:I, s:b, s:b, s:b}", "lvol_store_uuid", l->store->uuid,
			      "base_bdev", l->store->base_name, "thin_provision", v->thin, "num_allocated_clusters",
			      (json_int_t)v->num_own, "num_reserved_clusters", (json_int_t)v->reserved, "snapshot",
			      v->num_clones > 0, "clone", v->parent != NULL, "esnap_clone", v->external != NULL);

	if (v->external != NULL) {
		json_object_set_new(o, "external_snapshot_name", json_string(v->external));
	}
	if (v->parent != NULL) {
		json_object_set_new(o, "base_snapshot", json_string(v->parent->name));
	}
	if (v->num_clones > 0) {
		json_object_set_new(o, "clones", clone_names(l));
	}
	json_object_set_new(driver_specific, "lvol", o);
}

static int lvol_bases(const struct bdev *b, const struct bdev *bases[BDEV_BASES_MAX])
{
	bdev_lvol_get_bases(b, bases);
	if (bases[0] == NULL || (bases[1] == NULL && lvol_live_external(lvol_volume_of(b)->v) != NULL)) {
		return -1;
	}
	return bases[1] != NULL ? 2 : 1;
}

static const struct bdev_ops lvol_ops = {
	.bases = lvol_bases,
	.submit = lvol_io_submit,
	.channel_create = lvol_channel_create,
	.channel_destroy = lvol_channel_destroy,
	.channel_size = sizeof(struct lvol_channel),
	.reset_channel = lvol_io_reset_channel,
	.take_back = lvol_io_take_back,
	.destruct = lvol_destruct,
	.child_ops = &lvol_io_child_ops,
	.describe_io = lvol_io_describe,
	.dump_info = lvol_dump_info,
};

static void bdev_fill_in(struct bdev_lvol *l)
{
	const struct bdev *base = bdev_desc_bdev(l->store->base);
	struct bdev *b = &l->bdev;

	b->block_size = l->store->block_bytes;
	b->num_blocks = l->v->num_clusters * l->cluster_blocks;
	b->io_types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_UNMAP | 1u << BDEV_IO_WRITE_ZEROES |
		      1u << BDEV_IO_FLUSH | 1u << BDEV_IO_ABORT;
	b->optimal_io_boundary = l->cluster_blocks;
	b->split_on_boundary = true;
	b->max_unmap_blocks = (uint64_t)UNMAP_CLUSTERS * l->cluster_blocks;
	b->physical_block_size = RTE_MAX(base->physical_block_size, b->block_size);
	b->numa_node = base->numa_node;
	b->write_cache = base->write_cache;
	b->read_only = l->v->read_only;
	b->product_name = "Logical Volume";
	b->module = &bdev_lvol_module;
	b->ops = &lvol_ops;
	b->name = l->name;
}

/* Old stores have volumes without a UUID, and damaged ones two of the same. */
static void lvol_set_name(struct bdev_lvol *l)
{
	bool has_uuid = bdev_uuid_parse(l->v->uuid, l->bdev.uuid) == 0;

	if (has_uuid) {
		bdev_uuid_format(l->bdev.uuid, l->name);
	}
	if (has_uuid && bdev_find(l->name) == NULL) {
		return;
	}
	memset(l->bdev.uuid, 0, sizeof(l->bdev.uuid));
	snprintf(l->name, sizeof(l->name), "%s_%" PRIu64, l->store->uuid, l->v->id);
	if (has_uuid) {
		log_warning("volume %s/%s: another bdev has its UUID %s, so it has the name %s, and a random UUID",
			    l->store->name, l->v->name, l->v->uuid, l->name);
	}
}

static struct bdev_lvol *lvol_new(struct bdev_lvol_store *s, struct lvol_live_volume *v)
{
	struct bdev_lvol *l = aligned_alloc(64, (sizeof(*l) + 63) & ~(size_t)63);

	if (l == NULL) {
		return NULL;
	}
	memset(l, 0, sizeof(*l));
	l->store = s;
	l->v = v;
	l->cluster_blocks = s->cluster_bytes / s->block_bytes;
	l->block_shift = s->block_shift;
	l->cluster_shift = rte_is_power_of_2(l->cluster_blocks) ? (int)rte_log2_u32(l->cluster_blocks) : -1;
	atomic_init(&l->refs, 1);
	/* A change may hold the volume that has begun before its bdev came. */
	atomic_init(&l->paused, lvol_live_volume_is_paused(v));
	lvol_set_name(l);
	bdev_fill_in(l);
	return l;
}

/* Modules may wait for a base of that name. */
static void volume_examine_again(const struct bdev_lvol *l)
{
	struct bdev_opts opts;

	bdev_get_opts(&opts);
	if (opts.auto_examine) {
		(void)bdev_examine(l->name);
	}
}

void lvol_volume_renew_alias(struct bdev_lvol *l)
{
	const char *alias;

	if (bdev_get_state(&l->bdev) != BDEV_READY) {
		return; /* it is being removed, and its names with it */
	}
	while ((alias = bdev_alias_next(&l->bdev, NULL)) != NULL) {
		char old[sizeof(l->alias)];
		snprintf(old, sizeof(old), "%s", alias); /* which goes with it */
		(void)bdev_alias_remove(&l->bdev, old);
	}
	lvol_volume_alias(l->store->name, l->v->name, l->alias);
	int rc = bdev_alias_add(&l->bdev, l->alias);
	if (rc == 0) {
		volume_examine_again(l);
	} else { /* it can be used by its UUID */
		log_error("volume %s: cannot have the name %s: %s", l->name, l->alias,
			  rc == -EEXIST ? "another bdev has it" : "out of memory");
	}
}

/* It has never had a bdev. */
static void volume_unmade(struct bdev_lvol *l)
{
	struct bdev_lvol_store *s = l->store;

	TAILQ_REMOVE(&s->volumes, l, link);
	free(l);
	lvol_store_check_closing(s);
}

int lvol_volume_register(struct bdev_lvol_store *s, struct lvol_live_volume *v, char *error)
{
	if (v->num_clusters == 0) {
		return bdev_error(error, -ENOTSUP, "volume %s/%s: it has no blocks", s->name, v->name);
	}
	struct bdev_lvol *l = lvol_new(s, v);
	if (l == NULL) {
		return bdev_error(error, -ENOMEM, "out of memory");
	}
	TAILQ_INSERT_TAIL(&s->volumes, l, link);
	int rc = lvol_external_open(l, error);
	if (rc == 0) {
		v->user = l;
		rc = bdev_register_or_say(&l->bdev, error);
	}
	if (rc != 0) {
		v->user = NULL;
		lvol_external_close(l, volume_unmade);
		return rc;
	}
	lvol_volume_renew_alias(l);
	return 0;
}

/* --- Changes --- */

struct change {
	bdev_lvol_cb cb;
	void *arg;
	struct bdev_lvol_store *store;
	struct lvol_live_volume *v;
	enum bdev_lvol_change change;
	uint64_t reserved;                /* clusters: RESERVE, and of a new thin volume */
	char name[2 * LVOL_NAME_MAX + 2]; /* of the volume: STORE/NAME */
	LIST_ENTRY(change) link;          /* while it is being deleted */
	int rc;                           /* why a new volume is deleted again */
	char error[BDEV_ERROR_MAX];
};

/* Volumes that are being deleted: they have no bdev any more, or will have none soon. */
static LIST_HEAD(, change) deletions = LIST_HEAD_INITIALIZER(deletions);

static const char *change_error(enum bdev_lvol_change change, int rc)
{
	switch (rc) {
	case -EEXIST:
		return change == BDEV_LVOL_SET_PARENT || change == BDEV_LVOL_SET_PARENT_BDEV
			       ? "this is its parent already"
			       : "the name is taken";
	case -EPERM:
		return "a read-only volume cannot be changed, and only a read-only one can be cloned";
	case -EBUSY:
		return "it is being inflated or decoupled, or another change of it came in between";
	case -EIO:
		return "an earlier write of metadata failed, so that the store can only be read and overwritten";
	case -EFBIG:
		return "too large for the store";
	case -ENOMEM:
		return "out of memory";
	case -EILSEQ:
		return "it is damaged";
	case -EINVAL:
		return "its present state, or the name, does not allow that";
	case -ESHUTDOWN:
		return "the store is being closed";
	default:
		return strerror(-rc);
	}
}

/* Why a volume cannot be deleted now. */
static const char *delete_error(const struct lvol_live_volume *v)
{
	const struct lvol_live_volume *clone = lvol_live_next(v->store, NULL);

	if (v->num_clones > 1) {
		return "it is a snapshot with several clones";
	}
	while (clone != NULL && clone->parent != v) {
		clone = lvol_live_next(v->store, clone);
	}
	if (clone != NULL && clone->num_clusters > v->num_clusters && v->parent != NULL &&
	    v->parent->num_clusters > v->num_clusters) {
		return "its clone is longer, and would read there what is in the snapshot behind it";
	}
	return clone != NULL ? "it or its clone is being inflated or decoupled" : "it is being inflated or decoupled";
}

static void reserve_size_error(const struct change *c, uint64_t size_clusters, char *error)
{
	bdev_error(error, -EINVAL,
		   "volume %s: reserved_in_mib: %lu clusters of %u KiB: at most its size, %lu, is allowed", c->name,
		   c->reserved, c->store->cluster_bytes >> 10, size_clusters);
}

/* Whether there is too little room for a reservation: error says so then. */
static bool lacks_reserve(const struct change *c, char *error)
{
	const struct lvol_live_volume *v = c->v; /* NULL: a new one */
	uint32_t kib = c->store->cluster_bytes >> 10;
	uint64_t most = lvol_live_reservable(c->store->live, v), open = lvol_live_reservable(c->store->live, NULL);
	/* Of what it has reserved, the clusters that it has go to the snapshot, and may be wanted again. */
	uint64_t again = c->change == BDEV_LVOL_SNAPSHOT ? RTE_MIN(v->reserved, v->num_own) : 0;

	if (again > open) {
		bdev_error(error, -ENOSPC,
			   "volume %s: it has reserved %lu clusters of %u KiB, and would need %lu free ones above a "
			   "snapshot: %lu are free and not reserved",
			   c->name, v->reserved, kib, again, open);
		return true;
	}
	if (c->reserved > most) {
		bdev_error(error, -ENOSPC,
			   "volume %s: reserved_in_mib: %lu clusters of %u KiB: at most %lu are allowed, those that it "
			   "has and those that are free and not reserved",
			   c->name, c->reserved, kib, most);
	}
	return c->reserved > most;
}

/* Why a store has too little room. */
static void room_error(const struct change *c, char *error)
{
	const struct lvol_live_info info = lvol_live_info(c->store->live);

	if (!lacks_reserve(c, error)) {
		bdev_error(error, -ENOSPC,
			   "volume %s: the store has no room: %u clusters of %u KiB are free, %u are reserved for "
			   "volumes, and %u of %u metadata pages are free, of which %lu are reserved",
			   c->name, info.free_clusters + info.coming_clusters, info.cluster_bytes >> 10,
			   info.reserved_clusters, info.free_md_pages, info.md_pages, info.reserved_md_pages);
	}
}

static void change_end(struct change *c, int rc, const char *uuid)
{
	char error[BDEV_ERROR_MAX] = "";

	if (rc == -ENOSPC) {
		room_error(c, error);
	} else if (rc == -EINVAL && c->change == BDEV_LVOL_RESERVE) {
		reserve_size_error(c, c->v->num_clusters, error);
	} else if (rc != 0) {
		bool busy = rc == -EBUSY && c->change == BDEV_LVOL_DELETE;
		bdev_error(error, rc, "volume %s: %s", c->name,
			   busy ? delete_error(c->v) : change_error(c->change, rc));
	}
	c->cb(c->arg, rc, error, uuid);
	free(c);
}

/* The error has its own words. */
static void change_refuse(struct change *c, int rc, const char *error)
{
	c->cb(c->arg, rc, error, "");
	free(c);
}

static struct change *change_new(struct bdev_lvol_store *s, const char *name, bdev_lvol_cb cb, void *arg)
{
	struct change *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		cb(arg, -ENOMEM, "out of memory", "");
		return NULL;
	}
	c->cb = cb;
	c->arg = arg;
	c->store = s;
	lvol_volume_alias(s->name, name, c->name);
	return c;
}

static void change_undone(void *arg, int status)
{
	struct change *c = arg;

	LIST_REMOVE(c, link);
	if (status != 0) {
		log_error("volume %s: its bdev could not be made, and it was not deleted: %s", c->name,
			  strerror(-status));
	}
	change_refuse(c, c->rc, c->error);
}

/* A new volume is there. */
static void change_made(void *arg, int status, struct lvol_live_volume *v)
{
	struct change *c = arg;

	if (status != 0) {
		change_end(c, status, "");
		return;
	}
	if (!lvol_store_is_usable(c->store)) {
		change_end(c, 0, v->uuid); /* its bdev comes when the store is opened again */
		return;
	}
	c->rc = lvol_volume_register(c->store, v, c->error);
	if (c->rc == 0) {
		change_end(c, 0, ((struct bdev_lvol *)v->user)->name);
		return;
	}
	c->v = v;
	LIST_INSERT_HEAD(&deletions, c, link);
	lvol_live_volume_delete(c->v, change_undone, c);
}

/* Its parent may be another one. */
static void change_done(void *arg, int status)
{
	struct change *c = arg;

	if (c->v->user != NULL) {
		lvol_external_settle(c->v->user, c);
	}
	change_end(c, status, "");
}

static void resize_done(void *arg, int status)
{
	struct change *c = arg;
	struct bdev_lvol *l = c->v->user;

	if (l != NULL) {
		bdev_resize(&l->bdev, c->v->num_clusters * l->cluster_blocks);
	}
	change_end(c, status, "");
}

static void read_only_done(void *arg, int status)
{
	struct change *c = arg;
	struct bdev_lvol *l = c->v->user;

	if (l != NULL) {
		l->bdev.read_only = c->v->read_only;
	}
	change_end(c, status, "");
}

static void reserve_done(void *arg, int status)
{
	change_end(arg, status, "");
}

/* The new alias was added before, so that nobody else can take it. The store may have been renamed meanwhile. */
static void rename_done(void *arg, int status)
{
	struct change *c = arg;
	struct bdev_lvol *l = c->v->user;

	if (l != NULL) {
		lvol_volume_renew_alias(l);
	}
	change_end(c, status, "");
}

static void delete_done(void *arg, int status)
{
	struct change *c = arg;
	char error[BDEV_ERROR_MAX];

	LIST_REMOVE(c, link);
	/* It is still there, and so is its bdev again. */
	if (status != 0 && lvol_store_is_usable(c->store) && lvol_volume_register(c->store, c->v, error) != 0) {
		log_error("%s", error);
	}
	change_end(c, status, "");
}

static void delete_unregistered(void *arg, int rc)
{
	struct change *c = arg;

	if (rc != 0) {
		LIST_REMOVE(c, link);
		change_end(c, rc, "");
		return;
	}
	lvol_live_volume_delete(c->v, delete_done, c);
}

/* Its users are told to go only if it can be deleted, as far as that can be seen now. It counts as being deleted from
 * then on: while its bdev goes, nobody takes it for one that has none, and deletes it, too. */
static void change_delete(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	int rc = lvol_live_volume_may_delete(l->v);

	if (rc != 0) {
		change_end(c, rc, "");
	} else {
		LIST_INSERT_HEAD(&deletions, c, link);
		bdev_unregister(&l->bdev, delete_unregistered, c);
	}
}

static void change_snapshot(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	char uuid[BDEV_UUID_STRLEN];

	lvol_volume_new_uuid(uuid);
	lvol_live_volume_snapshot(l->v, o->new_name, uuid, change_made, c);
}

static void change_clone(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	char uuid[BDEV_UUID_STRLEN];

	lvol_volume_new_uuid(uuid);
	lvol_live_volume_clone(l->v, o->new_name, uuid, change_made, c);
}

static void change_rename(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	char alias[sizeof(l->alias)];

	if (strcmp(l->v->name, o->new_name) == 0) {
		change_end(c, 0, "");
		return;
	}
	lvol_volume_alias(l->store->name, o->new_name, alias);
	int rc = bdev_alias_add(&l->bdev, alias);
	if (rc != 0) {
		change_end(c, rc, "");
	} else {
		lvol_live_volume_rename(l->v, o->new_name, rename_done, c);
	}
}

static uint64_t clusters_of(const struct bdev_lvol_store *s, uint64_t bytes)
{
	return bytes / s->cluster_bytes + (bytes % s->cluster_bytes != 0);
}

static void change_resize(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	uint64_t clusters = clusters_of(l->store, o->size_bytes);
	char error[BDEV_ERROR_MAX];
	const char *owner;

	if (clusters == 0 || clusters > UINT32_MAX) {
		change_end(c, clusters == 0 ? -EINVAL : -EFBIG, "");
		return;
	}
	if (l->v->read_only) {
		change_end(c, -EPERM, "");
		return;
	}
	if (bdev_get_claim(&l->bdev, &owner) == BDEV_CLAIM_READ_MANY_WRITE_NONE) {
		bdev_error(
			error, -EBUSY,
			"volume %s keeps its size: %.80s has claimed that nobody changes it, as an external snapshot "
			"for example",
			c->name, owner);
		change_refuse(c, -EBUSY, error);
		return;
	}
	if (clusters < l->v->num_clusters) {
		bdev_resize(&l->bdev, clusters * l->cluster_blocks); /* nobody reads behind the new end any more */
	}
	lvol_live_volume_resize(l->v, clusters, resize_done, c);
}

static void change_reserve(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	c->reserved = clusters_of(l->store, o->size_bytes);
	lvol_live_volume_reserve(l->v, c->reserved, reserve_done, c);
}

static void change_set_read_only(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	lvol_live_volume_set_read_only(l->v, read_only_done, c);
}

static void change_inflate(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	lvol_live_volume_inflate(l->v, change_done, c);
}

static void change_decouple(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	lvol_live_volume_decouple(l->v, change_done, c);
}

static void change_set_parent(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	const struct bdev_lvol *parent = lvol_volume_of(bdev_find(o->new_name));
	char error[BDEV_ERROR_MAX];

	if (parent == NULL || parent->store != l->store || bdev_get_state(&parent->bdev) != BDEV_READY) {
		change_end(c, -ENODEV, "");
		return;
	}
	int rc = lvol_external_prepare(l, lvol_live_external(parent->v), c, error);
	if (rc != 0) {
		change_refuse(c, rc, error);
	} else {
		lvol_live_volume_set_parent(l->v, parent->v, change_done, c);
	}
}

static void change_set_parent_bdev(struct bdev_lvol *l, struct change *c, const struct bdev_lvol_change_opts *o)
{
	const struct bdev *base = bdev_find(o->new_name);
	char error[BDEV_ERROR_MAX], name[LVOL_EXTERNAL_BYTES];
	int rc = lvol_external_check(l->store, o->new_name, error);
	uint64_t clusters = rc != 0 ? 0 : clusters_of(l->store, bdev_num_blocks(base) * bdev_block_size(base));

	if (rc == 0 && clusters != l->v->num_clusters) {
		rc = bdev_error(error, -EINVAL,
				"bdev '%.100s' has %lu clusters of %u bytes, and volume %s has %lu: they must be equal",
				o->new_name, clusters, l->store->cluster_bytes, c->name, l->v->num_clusters);
	}
	if (rc == 0) {
		lvol_external_name(base, name);
		rc = lvol_external_prepare(l, name, c, error);
	}
	if (rc != 0) {
		change_refuse(c, rc, error);
	} else {
		lvol_live_volume_set_parent_external(l->v, name, change_done, c);
	}
}

int lvol_name_check(const char *name, char *error)
{
	if (strlen(name) >= LVOL_NAME_MAX) {
		return bdev_error(error, -EINVAL, "name '%.80s': at most %u characters are allowed", name,
				  LVOL_NAME_MAX - 1);
	}
	if (name[0] == '\0') {
		return bdev_error(error, -EINVAL, "a name must have at least one character");
	}
	for (const char *c = name; *c != '\0'; c++) {
		if (*c < ' ' || *c > '~') {
			return bdev_error(error, -EINVAL, "name: only printable ASCII characters are allowed");
		}
	}
	return 0;
}

bool lvol_volume_is_degraded(const struct lvol_live_volume *v)
{
	const struct change *c;

	LIST_FOREACH (c, &deletions, link) {
		if (c->v == v) {
			return false;
		}
	}
	return v->user == NULL && v->external_clusters != 0;
}

/* Whether a volume has a bdev, or had one that has not quite gone, which still uses the volume. */
static bool has_bdev(const struct bdev_lvol_store *s, const struct lvol_live_volume *v)
{
	const struct bdev_lvol *l;

	TAILQ_FOREACH (l, &s->volumes, link) {
		if (l->v == v) {
			return true;
		}
	}
	return false;
}

struct lvol_live_volume *lvol_volume_find_degraded(const char *name, struct bdev_lvol_store **store)
{
	char alias[sizeof(((struct bdev_lvol *)NULL)->alias)];
	struct bdev_lvol_store *s;
	struct lvol_live_volume *v;

	for (s = bdev_lvol_store_next(NULL); s != NULL; s = bdev_lvol_store_next(s)) {
		for (v = lvol_live_next(s->live, NULL); v != NULL; v = lvol_live_next(s->live, v)) {
			lvol_volume_alias(s->name, v->name, alias);
			bool is_it = strcmp(alias, name) == 0 || strcasecmp(v->uuid, name) == 0;
			if (is_it && lvol_volume_is_degraded(v) && !has_bdev(s, v)) {
				*store = s;
				return v;
			}
		}
	}
	return NULL;
}

/* Whether a volume of that name can be made. */
static int new_name_check(const struct bdev_lvol_store *s, const char *name, char *error)
{
	char alias[sizeof(((struct bdev_lvol *)NULL)->alias)];
	int rc = lvol_name_check(name, error);

	lvol_volume_alias(s->name, name, alias);
	if (rc == 0 && (bdev_find(alias) != NULL || lvol_live_find(s->live, name) != NULL)) {
		return bdev_error(error, -EEXIST, "volume %s: the name is taken", alias);
	}
	return rc;
}

/* One that has no bdev, because the bdev that it is a clone of is not there. False: there is none of that name. */
static bool change_delete_degraded(const char *name, bdev_lvol_cb cb, void *arg)
{
	struct bdev_lvol_store *s;
	struct lvol_live_volume *v = lvol_volume_find_degraded(name, &s);
	struct change *c = v != NULL ? change_new(s, v->name, cb, arg) : NULL;

	if (c != NULL) {
		c->v = v;
		c->change = BDEV_LVOL_DELETE;
		LIST_INSERT_HEAD(&deletions, c, link);
		lvol_live_volume_delete(c->v, delete_done, c);
	}
	return v != NULL;
}

void bdev_lvol_change(const struct bdev_lvol_change_opts *o, bdev_lvol_cb cb, void *arg)
{
	static void (*const changes[])(struct bdev_lvol *, struct change *, const struct bdev_lvol_change_opts *) = {
		[BDEV_LVOL_DELETE] = change_delete,         [BDEV_LVOL_SNAPSHOT] = change_snapshot,
		[BDEV_LVOL_CLONE] = change_clone,           [BDEV_LVOL_RENAME] = change_rename,
		[BDEV_LVOL_RESIZE] = change_resize,         [BDEV_LVOL_SET_READ_ONLY] = change_set_read_only,
		[BDEV_LVOL_INFLATE] = change_inflate,       [BDEV_LVOL_DECOUPLE] = change_decouple,
		[BDEV_LVOL_SET_PARENT] = change_set_parent, [BDEV_LVOL_SET_PARENT_BDEV] = change_set_parent_bdev,
		[BDEV_LVOL_RESERVE] = change_reserve,
	};
	struct bdev_lvol *l = lvol_volume_of(bdev_find(o->name));
	char error[BDEV_ERROR_MAX];

	if (l == NULL && o->change == BDEV_LVOL_DELETE && change_delete_degraded(o->name, cb, arg)) {
		return;
	}
	if (l == NULL || bdev_get_state(&l->bdev) != BDEV_READY || !lvol_store_is_usable(l->store)) {
		bdev_error(error, -ENODEV, "there is no volume '%.200s', or it is being removed", o->name);
		cb(arg, -ENODEV, error, "");
		return;
	}
	bool makes = o->change == BDEV_LVOL_SNAPSHOT || o->change == BDEV_LVOL_CLONE;
	bool renames = o->change == BDEV_LVOL_RENAME && strcmp(o->new_name, l->v->name) != 0;
	int rc = makes || renames ? new_name_check(l->store, o->new_name, error) : 0;
	if (rc != 0) {
		cb(arg, rc, error, "");
		return;
	}
	struct change *c = change_new(l->store, l->v->name, cb, arg);
	if (c != NULL) {
		c->v = l->v;
		c->change = o->change;
		changes[o->change](l, c, o);
	}
}

void bdev_lvol_clone_bdev(struct bdev_lvol_store *s, const char *bdev_name, const char *name, bdev_lvol_cb cb,
			  void *arg)
{
	const struct bdev *base = bdev_find(bdev_name);
	char error[BDEV_ERROR_MAX], uuid[BDEV_UUID_STRLEN], external[LVOL_EXTERNAL_BYTES];
	int rc = new_name_check(s, name, error);

	rc = rc != 0 ? rc : lvol_external_check(s, bdev_name, error);
	if (rc != 0) {
		cb(arg, rc, error, "");
		return;
	}
	struct change *c = change_new(s, name, cb, arg);
	if (c != NULL) {
		lvol_volume_new_uuid(uuid);
		lvol_external_name(base, external);
		lvol_live_volume_create(
			s->live,
			&(struct lvol_live_volume_opts){
				.name = name,
				.uuid = uuid,
				.num_clusters = clusters_of(s, bdev_num_blocks(base) * bdev_block_size(base)),
				.external = external},
			change_made, c);
	}
}

void bdev_lvol_create(const struct bdev_lvol_opts *o, bdev_lvol_cb cb, void *arg)
{
	uint64_t clusters = clusters_of(o->store, o->size_bytes);
	char error[BDEV_ERROR_MAX], uuid[BDEV_UUID_STRLEN];
	int rc = new_name_check(o->store, o->name, error);

	if (rc == 0 && clusters == 0) {
		rc = bdev_error(error, -EINVAL, "volume %s: a size of 0 is not allowed", o->name);
	}
	if (rc != 0) {
		cb(arg, rc, error, "");
		return;
	}
	struct change *c = change_new(o->store, o->name, cb, arg);
	if (c == NULL) {
		return;
	}
	uint64_t reserved = c->reserved = clusters_of(o->store, o->reserved_bytes);
	if (reserved > clusters) {
		reserve_size_error(c, clusters, error);
		change_refuse(c, -EINVAL, error);
		return;
	}
	/* A thick one needs its size, whatever it reserves. */
	c->reserved = o->thin ? reserved : 0;
	lvol_volume_new_uuid(uuid);
	lvol_live_volume_create(
		o->store->live,
		&(struct lvol_live_volume_opts){
			.name = o->name, .uuid = uuid, .num_clusters = clusters, .thin = o->thin, .reserved = reserved},
		change_made, c);
}
