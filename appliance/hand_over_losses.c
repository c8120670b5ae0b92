/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/hand_over_losses.h"

#include <inttypes.h>
#include <stdio.h>

#include "bdev/kept_ram.h"
#include "bdev/module.h"
#include "env_dpdk/env.h"
#include "keyring/keyring.h"
#include "nvmf/nvmf.h"
#include "rpc_methods/bdev_module.h"

#define LATE_S 5 /* a command that has been under way for so long may never end */

static uint64_t losses_bytes_to_copy(void)
{
	uint64_t bytes = 0;

	for (const struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		bytes += b->hand_over_bytes;
	}
	return bytes;
}

/* What is copied has a place of its own in the file, all of it present, with room for a bit for each block that is bad.
 */
static uint64_t losses_memory_to_copy(void)
{
	uint64_t bytes = 0;

	for (const struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		if (b->hand_over_bytes != 0) {
			bytes += kept_ram_round(b->hand_over_bytes + b->num_blocks / 8 + 2 * sizeof(uint64_t));
		}
	}
	return bytes;
}

/* The copy is in ordinary pages, also where there are hugepages. */
static bool losses_of_memory(char text[HAND_OVER_LOSSES_MAX])
{
	uint64_t bytes = losses_memory_to_copy(), available = env_available_ordinary_bytes();

	if (bytes <= available) {
		return false;
	}
	snprintf(text, HAND_OVER_LOSSES_MAX,
		 "the copy of RAM disks takes %" PRIu64 " MB of memory, and %" PRIu64 " MB are available", bytes >> 20,
		 available >> 20);
	return true;
}

static bool losses_of_copies(char text[HAND_OVER_LOSSES_MAX])
{
	uint64_t bytes = losses_bytes_to_copy();

	if (bytes <= HAND_OVER_RAM_MAX) {
		return false;
	}
	snprintf(text, HAND_OVER_LOSSES_MAX,
		 "RAM disks of %" PRIu64 " MB would be copied while nothing is served, and more than %" PRIu64
		 " MB take longer than hosts should wait",
		 bytes >> 20, (uint64_t)HAND_OVER_RAM_MAX >> 20);
	return true;
}

static bool losses_of_bdevs(bool ram, char text[HAND_OVER_LOSSES_MAX])
{
	for (const struct bdev *b = NULL; (b = bdev_next(b)) != NULL;) {
		if (b->in_memory && !ram) {
			snprintf(text, HAND_OVER_LOSSES_MAX,
				 "what is on bdev %s (%s) is in this process's memory, and would be lost", bdev_name(b),
				 b->product_name);
			return true;
		}
		if (!rpc_bdev_is_saved(b)) {
			snprintf(text, HAND_OVER_LOSSES_MAX, "bdev %s is not in the configuration, and would be lost",
				 bdev_name(b));
			return true;
		}
	}
	return false;
}

/* The other process reads each key from its file: one that is another now would shut hosts out, and one for data would
 * make what was written with the old one unreadable. */
static bool losses_of_keys(bool data_only, char text[HAND_OVER_LOSSES_MAX])
{
	char why[KEYRING_ERROR_MAX];

	for (struct keyring_key *key = keyring_next(NULL); key != NULL; key = keyring_next(key)) {
		if (data_only && !(keyring_key_kind(key) == KEYRING_DATA && keyring_key_is_saved(key))) {
			continue;
		}
		if (keyring_key_check_file(key, why) != 0) {
			snprintf(text, HAND_OVER_LOSSES_MAX,
				 "another process would not get key \"%s\" as this one has it: %.600s",
				 keyring_key_name(key), why);
			return true;
		}
	}
	return false;
}

static bool losses_of_time(struct nvmf_tgt *tgt, char text[HAND_OVER_LOSSES_MAX])
{
	struct nvmf_inflight late;

	if (nvmf_tgt_get_late(tgt, env_us_to_ticks(LATE_S * 1000000), 1, &late) == 0) {
		return false;
	}
	snprintf(text, HAND_OVER_LOSSES_MAX,
		 "a command (%s) on namespace %" PRIu32
		 " of %s has been under way for %d s: it is waited for, and nothing is served meanwhile",
		 late.command != NULL ? late.command : "unknown", late.nsid, late.subnqn, LATE_S);
	return true;
}

bool hand_over_spoils_data(bool ram, char text[HAND_OVER_LOSSES_MAX])
{
	return losses_of_keys(true, text) || (ram && losses_of_memory(text));
}

bool hand_over_losses(bool ram, char text[HAND_OVER_LOSSES_MAX])
{
	if (losses_of_bdevs(ram, text) || (ram && losses_of_copies(text)) || losses_of_keys(false, text)) {
		return true;
	}
	for (struct nvmf_tgt *tgt = nvmf_tgt_next(NULL); tgt != NULL; tgt = nvmf_tgt_next(tgt)) {
		if (losses_of_time(tgt, text)) {
			return true;
		}
	}
	return false;
}
