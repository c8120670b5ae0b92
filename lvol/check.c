/* SPDX-License-Identifier: BSD-3-Clause */
/* What contradicts itself in a store. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lvol/internal.h"
#include "lvol/reserve.h"

static bool bit_take(uint8_t *bits, uint32_t n)
{
	uint8_t mask = (uint8_t)(1 << n % 8), before = bits[n / 8];

	bits[n / 8] |= mask;
	return (before & mask) == 0;
}

enum { OWNERS_NAMED = 20 };

/* Which other volume has a cluster, for the first messages: the search looks at all before v. */
static const char *check_other_owner(const struct lvol_store *s, const struct lvol_volume *v, uint32_t cluster)
{
	if (s->num_problems >= OWNERS_NAMED) {
		return "another volume";
	}
	for (const struct lvol_volume *o = s->volumes; o <= v; o++) {
		for (size_t i = 0; i < o->num_runs; i++) {
			if (cluster >= o->runs[i].cluster && cluster - o->runs[i].cluster < o->runs[i].count) {
				return o->name;
			}
		}
	}
	return "another volume";
}

static int check_run(struct lvol_store *s, const struct lvol_volume *v, const struct lvol_run *run)
{
	int rc = 0;

	/* An image that somebody forged could have all clusters in each of a million volumes. */
	for (uint32_t i = 0; i < run->count && rc == 0 && s->num_problems < LVOL_PROBLEMS_MAX; i++) {
		if (!bit_take(s->clusters_owned, run->cluster + i)) {
			s->clusters_shared++;
			rc = lvol_problem_add(s, "volume %s: cluster %" PRIu32 " is also that of %s", v->name,
					      run->cluster + i, check_other_owner(s, v, run->cluster + i));
		}
	}
	return rc;
}

static int check_clusters(struct lvol_store *s)
{
	int rc = 0;

	s->clusters_owned = calloc(1, ((size_t)s->geometry.num_clusters + 7) / 8);
	if (s->clusters_owned == NULL) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < s->geometry.num_md_clusters; i++) {
		bit_take(s->clusters_owned, i);
	}
	for (size_t i = 0; i < s->num_volumes && rc == 0 && s->num_problems < LVOL_PROBLEMS_MAX; i++) {
		for (size_t k = 0; k < s->volumes[i].num_runs && rc == 0; k++) {
			rc = check_run(s, &s->volumes[i], &s->volumes[i].runs[k]);
		}
	}
	return rc;
}

/* Compares a mask with what the volumes have. */
static int check_mask(struct lvol_store *s, const char *what, const uint8_t *mask, const uint8_t *owned,
		      uint32_t num_bits)
{
	uint32_t unmarked = 0, unowned = 0, first_unmarked = 0, first_unowned = 0;
	int rc = 0;

	for (uint32_t i = num_bits; i-- > 0;) {
		bool in_mask = lvol_bit(mask, i), in_use = lvol_bit(owned, i);
		if (in_use && !in_mask) {
			unmarked++;
			first_unmarked = i;
		} else if (in_mask && !in_use) {
			unowned++;
			first_unowned = i;
		}
	}
	if (unmarked > 0) {
		rc = lvol_problem_add(s, "%" PRIu32 " %ss in use are not in the mask; the first is %" PRIu32, unmarked,
				      what, first_unmarked);
	}
	if (rc == 0 && unowned > 0) {
		rc = lvol_problem_add(s,
				      "%" PRIu32 " %ss are lost: in the mask, but of no volume; the first is %" PRIu32,
				      unowned, what, first_unowned);
	}
	return rc;
}

static int volume_name_compare(const void *a, const void *b)
{
	const struct lvol_volume *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static int volume_uuid_compare(const void *a, const void *b)
{
	const struct lvol_volume *const *x = a, *const *y = b;

	return strcasecmp((*x)->uuid, (*y)->uuid);
}

static int check_same_names(struct lvol_store *s, const struct lvol_volume *const *sorted)
{
	int rc = 0;

	for (size_t i = 0; i < s->num_volumes && rc == 0; i++) {
		const struct lvol_volume *v = sorted[i];
		if (v->name[0] == 0) {
			rc = v->damaged ? 0 : lvol_problem_add(s, "volume %#" PRIx64 " has no name", v->id);
		} else if (i > 0 && strcmp(v->name, sorted[i - 1]->name) == 0) {
			rc = lvol_problem_add(s, "two volumes have the name %s", v->name);
		}
	}
	return rc;
}

/* Old stores have volumes without a UUID. */
static int check_same_uuids(struct lvol_store *s, const struct lvol_volume *const *sorted)
{
	int rc = 0;

	for (size_t i = 1; i < s->num_volumes && rc == 0; i++) {
		const struct lvol_volume *v = sorted[i], *before = sorted[i - 1];
		if (v->uuid[0] != 0 && strcasecmp(v->uuid, before->uuid) == 0) {
			rc = lvol_problem_add(s, "volumes %s and %s have the same UUID %s", before->name, v->name,
					      v->uuid);
		}
	}
	return rc;
}

static int check_volume_names(struct lvol_store *s)
{
	const struct lvol_volume **sorted = malloc((s->num_volumes + 1) * sizeof(struct lvol_volume *));

	if (sorted == NULL) {
		return -ENOMEM;
	}
	for (size_t i = 0; i < s->num_volumes; i++) {
		sorted[i] = &s->volumes[i];
	}
	qsort(sorted, s->num_volumes, sizeof(sorted[0]), volume_name_compare);
	int rc = check_same_names(s, sorted);
	qsort(sorted, s->num_volumes, sizeof(sorted[0]), volume_uuid_compare);
	rc = rc != 0 ? rc : check_same_uuids(s, sorted);
	free(sorted);
	return rc;
}

static int check_volume(struct lvol_store *s, const struct lvol_volume *v)
{
	int rc = 0;

	if (v->going) {
		rc = lvol_problem_add(s, "volume %s: a snapshot or deletion was not completed", v->name);
	}
	if (rc == 0 && v->parent != NULL && (v->parent->flags.data_ro & LVOL_DATA_RO_READ_ONLY) == 0) {
		rc = lvol_problem_add(s, "volume %s: its snapshot %s may be written", v->name, v->parent->name);
	}
	if (rc == 0 && (v->flags.data_ro & ~LVOL_DATA_RO_KNOWN) != 0) {
		rc = lvol_problem_add(s,
				      "volume %s: data_ro_flags %#" PRIx64 " has bits that are not known (%#llx are)",
				      v->name, v->flags.data_ro, LVOL_DATA_RO_KNOWN);
	}
	return rc;
}

/* So many more clusters of its own it is sure of. */
static uint64_t volume_promise(const struct lvol_volume *v)
{
	uint64_t reserved = lvol_reserve_counts(&v->flags, v->num_clusters, v->reserved);

	return reserved > v->num_allocated ? reserved - v->num_allocated : 0;
}

/* So many more pages for their places, at least. */
static uint64_t volume_pages_promise(const struct lvol_volume *v)
{
	uint64_t reserved = lvol_reserve_counts(&v->flags, v->num_clusters, v->reserved);

	return reserved == 0 ? 0 : lvol_reserve_pages(lvol_tables(v->num_clusters), v->num_tables, 0, 0);
}

static int check_reservation(struct lvol_store *s, const struct lvol_volume *v)
{
	if (v->reserved_bad) {
		return lvol_problem_add(s, "volume %s: its reservation makes no sense, and counts as none", v->name);
	}
	if (v->reserved > v->num_clusters) {
		return lvol_problem_add(s,
					"volume %s: it reserves %" PRIu64 " clusters, more than its size (%" PRIu64 ")",
					v->name, v->reserved, v->num_clusters);
	}
	return 0;
}

static uint64_t count_free(const uint8_t *owned, uint32_t all)
{
	uint64_t left = 0;

	for (uint32_t i = 0; i < all; i++) {
		left += !lvol_bit(owned, i);
	}
	return left;
}

/* Without those of the journal: an open store has one, and one that is closed needs the smallest one at least. */
static uint64_t count_free_pages(const struct lvol_store *s)
{
	uint32_t slot = s->geometry.journal_slot_pages;
	uint64_t journal = LVOL_JOURNAL_SLOTS * (uint64_t)(slot > 0 ? slot : (uint32_t)LVOL_JOURNAL_SLOT_MIN);
	uint64_t left = count_free(s->pages_owned, s->geometry.md.pages);

	return left > journal ? left - journal : 0;
}

/* What volumes are sure of must be free. who: what may have taken the rest because it does not know of reservations;
 * for the message. */
static int check_promises(struct lvol_store *s, const char *what, const char *who, uint64_t need, uint64_t left)
{
	return need <= left ? 0
			    : lvol_problem_add(s,
					       "volumes with reservations may need %" PRIu64 " %s more, %" PRIu64
					       " are free: %s has filled the store",
					       need, what, left, who);
}

static int check_reservations(struct lvol_store *s)
{
	uint64_t clusters = 0, pages = 0;
	int rc = 0;

	for (size_t i = 0; i < s->num_volumes && rc == 0; i++) {
		clusters += volume_promise(&s->volumes[i]);
		pages += volume_pages_promise(&s->volumes[i]);
		rc = check_reservation(s, &s->volumes[i]);
	}
	if (rc == 0 && clusters > 0) {
		rc = check_promises(s, "clusters", "another program", clusters,
				    count_free(s->clusters_owned, s->geometry.num_clusters));
	}
	return rc != 0 || pages == 0 ? rc
				     : check_promises(s, "metadata pages", "another program, or an older varve,", pages,
						      count_free_pages(s));
}

int lvol_store_check(struct lvol_store *s)
{
	int rc = check_clusters(s);

	rc = rc != 0 ? rc : check_volume_names(s);
	for (size_t i = 0; i < s->num_volumes && rc == 0; i++) {
		rc = check_volume(s, &s->volumes[i]);
	}
	rc = rc != 0 ? rc : check_reservations(s);
	if (rc != 0 || s->page_mask == NULL) {
		return rc;
	}
	rc = check_mask(s, "metadata page", s->page_mask, s->pages_owned, s->geometry.md.pages);
	return rc != 0 ? rc : check_mask(s, "cluster", s->cluster_mask, s->clusters_owned, s->geometry.num_clusters);
}
