/* SPDX-License-Identifier: BSD-3-Clause */
/* What tells a process that takes over whether the keys that it reads from their files are those that are in use
 * (keyring_expect()). No secret is told. Control thread. */
#ifndef APPLIANCE_HAND_OVER_KEYS_H
#define APPLIANCE_HAND_OVER_KEYS_H

#include <jansson.h>
#include <stdbool.h>

/* Of each key that is saved: [{"name", "salt", "digest"}], both as hexadecimal digits. force: of keys for data alone,
 * since other ones may be read as they are now. NULL: no memory, or no random bytes. */
json_t *hand_over_keys_export(bool force);
/* Expects what the other process has said; list may be NULL: nothing. 0; -EBADMSG, or another negative errno; what was
 * expected up to then stays so. */
int hand_over_keys_import(const json_t *list);

#endif
