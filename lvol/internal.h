/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef VARVE_LVOL_INTERNAL_H
#define VARVE_LVOL_INTERNAL_H

#include "lvol/decode.h"
#include "lvol/store.h"

/* Writes why. Returns -EILSEQ. */
int lvol_refuse(struct lvol_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Reads from a page on, with what the journal has of them in place of what is there. Returns 0 or a negative errno. */
int lvol_store_pages_read(const struct lvol_store *s, uint64_t page, void *to, size_t bytes);

/* Reads the journal of a store that was open for writing. Of two slots that are valid the newer one counts: the pages
 * of the other are in their places. *journal: that slot, which is to be freed, or NULL. Returns 0 or a negative errno.
 */
int lvol_journal_read(const struct lvol_device *d, const struct lvol_geometry *g, struct lvol_journal_head **journal);

/* Adds a problem that `check` reports. Returns 0 or -ENOMEM. */
int lvol_problem_add(struct lvol_store *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Reads the metadata of the volume whose root page this is; its pages become its own. What is wrong is a problem, and
 * makes the volume damaged. Returns 0 or -ENOMEM. */
int lvol_volume_read(struct lvol_store *s, struct lvol_volume *v, uint32_t root);

/* Whether it is certain what belongs to whom, after lvol_store_check(). Returns 0 or -EILSEQ. */
int lvol_store_certain(const struct lvol_store *s, struct lvol_error *e);

void lvol_volume_clear(struct lvol_volume *v);

#endif
