/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the parts of a JSON text stand, which a parsed tree does not say. Pure. */
#ifndef APPLIANCE_CONFIG_PLACE_H
#define APPLIANCE_CONFIG_PLACE_H

#include <jansson.h>
#include <stddef.h>

struct config_places;

/* Notes where each object, array, number and string of the tree begins. text: what the tree was parsed from, without
 * comments; it must stay. NULL: no memory. To be freed with config_places_free(). */
struct config_places *config_places_create(const char *text, size_t len, const json_t *tree);
/* NULL is fine. */
void config_places_free(struct config_places *p);

/* Where a value of the tree begins: a line and a byte of it, both from 1. Both 0: the place is not known (true, false
 * and null are one value each in the whole tree). */
void config_place_find(const struct config_places *p, const json_t *value, unsigned *line, unsigned *column);
/* Where the member is named to which a path like params.host.name leads in an object; the object itself if it has no
 * such member. */
void config_place_find_member(const struct config_places *p, const json_t *object, const char *path, unsigned *line,
			      unsigned *column);

#endif
