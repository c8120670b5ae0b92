/* SPDX-License-Identifier: BSD-3-Clause */
/* Words for numbers, and UUIDs as text. */
#include <ctype.h>
#include <errno.h>
#include <rte_uuid.h>
#include <string.h>

#include "bdev/module.h"

const char *bdev_io_state_name(enum bdev_io_state state)
{
	static const char *const names[BDEV_IO_STATES] = {
		[BDEV_IO_IDLE] = "idle",
		[BDEV_IO_ZCOPY_OPEN] = "zcopy",
		[BDEV_IO_WAIT_FREEZE] = "wait_freeze",
		[BDEV_IO_WAIT_QOS] = "wait_qos",
		[BDEV_IO_WAIT_LOCK] = "wait_lock",
		[BDEV_IO_WAIT_NOMEM] = "wait_nomem",
		[BDEV_IO_WAIT_CHILD] = "wait_child",
		[BDEV_IO_SPLIT] = "split",
		[BDEV_IO_MODULE] = "module",
		[BDEV_IO_DONE] = "done",
	};
	return (unsigned)state < BDEV_IO_STATES ? names[state] : NULL;
}

const char *bdev_state_name(enum bdev_state state)
{
	static const char *const names[BDEV_STATES] = {
		[BDEV_NONE] = "none",       [BDEV_EXAMINING] = "examining",
		[BDEV_READY] = "ready",     [BDEV_UNREGISTERING] = "unregistering",
		[BDEV_CLOSING] = "closing", [BDEV_DESTRUCTING] = "destructing",
	};
	return (unsigned)state < BDEV_STATES ? names[state] : "invalid";
}

const char *bdev_claim_type_name(enum bdev_claim_type type)
{
	switch (type) {
	case BDEV_CLAIM_NONE:
		return "not_claimed";
	case BDEV_CLAIM_EXCL_WRITE:
		return "exclusive_write";
	case BDEV_CLAIM_READ_MANY_WRITE_ONE:
		return "read_many_write_one";
	case BDEV_CLAIM_READ_MANY_WRITE_NONE:
		return "read_many_write_none";
	case BDEV_CLAIM_READ_MANY_WRITE_SHARED:
		return "read_many_write_shared";
	}
	return NULL;
}

void bdev_uuid_format(const uint8_t uuid[16], char *text)
{
	rte_uuid_unparse(uuid, text, BDEV_UUID_STRLEN);
	for (char *c = text; *c != '\0'; c++) {
		*c = (char)tolower((unsigned char)*c);
	}
}

int bdev_uuid_parse(const char *text, uint8_t uuid[16])
{
	rte_uuid_t parsed;
	if (strlen(text) != BDEV_UUID_STRLEN - 1 || rte_uuid_parse(text, parsed) != 0) {
		return -EINVAL;
	}
	memcpy(uuid, parsed, sizeof(parsed));
	return 0;
}
