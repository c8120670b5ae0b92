/* SPDX-License-Identifier: BSD-3-Clause */
/* What stores and volumes have, for metrics. Nothing here walks the map of a volume, so a scrape costs the same however
 * large volumes are. */
#include "bdev_modules/lvol/internal.h"

struct store_figure {
	const char *name, *help;
	uint64_t (*value)(const struct bdev_lvol_store *s, const struct lvol_live_info *info);
	bool grows;
};

static uint64_t store_bytes(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	return (uint64_t)info->total_data_clusters * info->cluster_bytes;
}

static uint64_t store_free_bytes(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	return (uint64_t)info->free_clusters * info->cluster_bytes;
}

static uint64_t store_reserved_bytes(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	return (uint64_t)info->reserved_clusters * info->cluster_bytes;
}

static uint64_t store_volumes(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	return info->num_volumes;
}

static uint64_t store_has_failed(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	return info->failed;
}

static uint64_t store_space_reached(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	return s->space_reached;
}

static uint64_t store_metadata_bytes(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	return info->md_bytes;
}

static uint64_t store_degraded(const struct bdev_lvol_store *s, const struct lvol_live_info *info)
{
	const struct lvol_live_volume *v;
	uint64_t n = 0;

	for (v = lvol_live_next(s->live, NULL); v != NULL; v = lvol_live_next(s->live, v)) {
		n += lvol_volume_is_degraded(v);
	}
	return n;
}

static const struct store_figure store_figures[] = {
	{"varve_lvol_store_bytes", "Bytes for data that a volume store has.", store_bytes},
	{"varve_lvol_store_free_bytes", "Bytes of a volume store that no volume has.", store_free_bytes},
	{"varve_lvol_store_reserved_bytes", "Bytes of these that only volumes with reservations may take.",
	 store_reserved_bytes},
	{"varve_lvol_store_space_reached_percent",
	 "The highest threshold of space that a store has reached; 0: none; 100: it is full.", store_space_reached},
	{"varve_lvol_store_volumes", "Volumes of a store, snapshots included.", store_volumes},
	{"varve_lvol_store_degraded_volumes", "Volumes without a bdev, because one that they are clones of is missing.",
	 store_degraded},
	{"varve_lvol_store_failed", "1 after a write of metadata has failed: the store changes nothing more.",
	 store_has_failed},
	{"varve_lvol_store_metadata_bytes_total", "Bytes of metadata and journal written since the store was opened.",
	 store_metadata_bytes, .grows = true},
};

static uint64_t volume_own(const struct lvol_live_volume *v)
{
	return v->num_own;
}

static uint64_t volume_reserved(const struct lvol_live_volume *v)
{
	return v->reserved;
}

static const struct volume_figure {
	const char *name, *help;
	uint64_t (*clusters)(const struct lvol_live_volume *v);
} volume_figures[] = {
	{"varve_lvol_own_bytes", "Bytes of clusters that a volume itself has, without those of its snapshots.",
	 volume_own},
	{"varve_lvol_reserved_bytes", "Bytes that a volume is sure of, those that it has included.", volume_reserved},
};

static void figures_of_volumes(const struct volume_figure *f, const struct bdev_lvol_store *s, bdev_module_figure_fn fn,
			       void *arg)
{
	char name[sizeof(((struct bdev_lvol *)NULL)->alias)];
	const struct lvol_live_volume *v;

	for (v = lvol_live_next(s->live, NULL); v != NULL; v = lvol_live_next(s->live, v)) {
		lvol_volume_alias(s->name, v->name, name);
		fn(arg, &(struct bdev_module_figure){.name = f->name,
						     .help = f->help,
						     .label = "volume",
						     .what = name,
						     .value = f->clusters(v) * s->cluster_bytes});
	}
}

void lvol_figures(bdev_module_figure_fn fn, void *arg)
{
	const struct bdev_lvol_store *s;

	for (size_t i = 0; i < sizeof(store_figures) / sizeof(store_figures[0]); i++) {
		const struct store_figure *f = &store_figures[i];
		for (s = bdev_lvol_store_next(NULL); s != NULL; s = bdev_lvol_store_next(s)) {
			const struct lvol_live_info info = lvol_live_info(s->live);
			fn(arg, &(struct bdev_module_figure){.name = f->name,
							     .help = f->help,
							     .grows = f->grows,
							     .label = "store",
							     .what = s->name,
							     .value = f->value(s, &info)});
		}
	}
	for (size_t i = 0; i < sizeof(volume_figures) / sizeof(volume_figures[0]); i++) {
		for (s = bdev_lvol_store_next(NULL); s != NULL; s = bdev_lvol_store_next(s)) {
			figures_of_volumes(&volume_figures[i], s, fn, arg);
		}
	}
}
