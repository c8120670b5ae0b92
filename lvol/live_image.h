/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata of a store, read into memory: what is in use, in large reads, several at once. */
#ifndef VARVE_LVOL_LIVE_IMAGE_H
#define VARVE_LVOL_LIVE_IMAGE_H

#include "lvol/live_internal.h"

/* Pages of the store up to the end of its metadata; those that it does not have are zeroes. */
struct live_image;

/* Called with NULL and an error, or with the image, which is to be freed. */
typedef void (*live_image_done)(void *arg, int status, struct live_image *m, const struct lvol_error *e);

/* Reads the superblock, and the metadata that is in use. done is called once, at once or later. */
void live_image_read(const struct lvol_live_user *user, live_image_done done, void *arg);
/* Frees it. */
void live_image_free(struct live_image *m);
/* The superblock, with all of its sectors from one write. */
const struct lvol_super *live_image_super(const struct live_image *m);
/* Where its areas are. */
const struct lvol_geometry *live_image_geometry(const struct live_image *m);
/* A device that reads from it. */
struct lvol_device live_image_device(struct live_image *m);

#endif
