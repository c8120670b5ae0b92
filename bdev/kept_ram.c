/* SPDX-License-Identifier: BSD-3-Clause */
#include "bdev/kept_ram.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bdev/module.h"
#include "env_dpdk/env.h"

#define WRITE_BYTES ((uint64_t)16 << 20) /* at a time: a signal that ends the process is not kept waiting */

TAILQ_HEAD(kept_ram_list, kept_ram);
static struct kept_ram_list kept = TAILQ_HEAD_INITIALIZER(kept);
static enum kept_ram_mode mode;
static int file = -1;
static bool owner;

void kept_ram_set_mode(enum kept_ram_mode m)
{
	mode = m;
}

enum kept_ram_mode kept_ram_get_mode(void)
{
	return mode;
}

/* ---- Places in the file ---- */

uint64_t kept_ram_round(uint64_t bytes)
{
	return (bytes + KEPT_RAM_ALIGN - 1) & ~(KEPT_RAM_ALIGN - 1);
}

bool kept_ram_place_is_valid(uint64_t offset, uint64_t bytes, uint64_t file_bytes)
{
	return bytes != 0 && offset % KEPT_RAM_ALIGN == 0 && offset < file_bytes && bytes <= file_bytes - offset &&
	       kept_ram_round(bytes) <= file_bytes - offset;
}

/* Its size, or a negative errno. */
static int64_t kept_ram_file_bytes(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? (int64_t)st.st_size : -errno;
}

/* Nobody can make it shorter: memory that is mapped stays there. */
static int kept_ram_open_file(void)
{
	if (file >= 0) {
		return 0;
	}
	int fd = memfd_create("varve_ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		return -errno;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	file = fd;
	owner = true;
	return 0;
}

int kept_ram_reserve(struct kept_ram *k, uint64_t bytes)
{
	int rc = kept_ram_open_file();
	int64_t end = rc == 0 ? kept_ram_file_bytes(file) : rc;

	if (end < 0) {
		return (int)end;
	}
	if (ftruncate(file, end + (int64_t)kept_ram_round(bytes)) != 0) {
		return -errno;
	}
	k->offset = (uint64_t)end;
	k->bytes = bytes;
	return 0;
}

int kept_ram_write(const struct kept_ram *k, uint64_t at, const void *from, uint64_t bytes)
{
	for (uint64_t done = 0; done < bytes;) {
		uint64_t n = bytes - done < WRITE_BYTES ? bytes - done : WRITE_BYTES;
		ssize_t written = pwrite(file, (const uint8_t *)from + done, n, (off_t)(k->offset + at + done));
		if (written < 0 && errno != EINTR) {
			return -errno;
		}
		done += written > 0 ? (uint64_t)written : 0;
	}
	return 0;
}

void *kept_ram_map(const struct kept_ram *k)
{
	return env_dma_map_file(file, (off_t)k->offset, k->bytes);
}

void kept_ram_unreserve(struct kept_ram *k)
{
	if (owner && k->bytes != 0) { /* if it fails, only memory is lost, until the process ends */
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)k->offset,
			  (off_t)kept_ram_round(k->bytes));
	}
	k->bytes = 0;
}

void kept_ram_own(bool own)
{
	owner = own;
}

int kept_ram_fd(void)
{
	return file;
}

/* ---- What is kept ---- */

static struct kept_ram *kept_ram_find(const uint8_t uuid[16])
{
	struct kept_ram *k;

	TAILQ_FOREACH (k, &kept, link) {
		if (memcmp(k->uuid, uuid, sizeof(k->uuid)) == 0) {
			return k;
		}
	}
	return NULL;
}

struct kept_ram *kept_ram_take(const uint8_t uuid[16])
{
	struct kept_ram *k = kept_ram_find(uuid);

	if (k != NULL) {
		TAILQ_REMOVE(&kept, k, link);
	}
	return k;
}

void kept_ram_free(struct kept_ram *k)
{
	if (k == NULL) {
		return;
	}
	kept_ram_unreserve(k);
	env_dma_free(k->memory);
	free(k->more);
	free(k);
}

void kept_ram_note(struct kept_ram *k)
{
	kept_ram_free(kept_ram_take(k->uuid));
	TAILQ_INSERT_TAIL(&kept, k, link);
}

void kept_ram_clear(void)
{
	struct kept_ram *k;

	while ((k = TAILQ_FIRST(&kept)) != NULL) {
		TAILQ_REMOVE(&kept, k, link);
		kept_ram_free(k);
	}
}

/* ---- All ---- */

static json_t *kept_ram_encode(const struct kept_ram *k)
{
	char uuid[BDEV_UUID_STRLEN];

	bdev_uuid_format(k->uuid, uuid);
	return k->bytes != 0 ? json_pack("{s:s,s:I,s:I}", "uuid", uuid, "offset", (json_int_t)k->offset, "bytes",
					 (json_int_t)k->bytes)
			     : NULL;
}

json_t *kept_ram_export(void)
{
	json_t *all = json_array();
	const struct kept_ram *k;

	TAILQ_FOREACH (k, &kept, link) {
		if (json_array_append_new(all, kept_ram_encode(k)) != 0) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

/* Whether it has no byte in common with another one's. */
static bool kept_ram_is_apart(const struct kept_ram *k)
{
	const struct kept_ram *other;

	TAILQ_FOREACH (other, &kept, link) {
		if (k->offset < other->offset + other->bytes && other->offset < k->offset + k->bytes) {
			return false;
		}
	}
	return true;
}

static int kept_ram_decode(const json_t *o, uint64_t file_bytes, struct kept_ram *k)
{
	const char *uuid = json_string_value(json_object_get(o, "uuid"));
	json_int_t offset = json_integer_value(json_object_get(o, "offset"));
	json_int_t bytes = json_integer_value(json_object_get(o, "bytes"));

	if (uuid == NULL || bdev_uuid_parse(uuid, k->uuid) != 0 || offset < 0 || bytes <= 0 ||
	    !kept_ram_place_is_valid((uint64_t)offset, (uint64_t)bytes, file_bytes)) {
		return -EBADMSG;
	}
	k->offset = (uint64_t)offset;
	k->bytes = (uint64_t)bytes;
	return kept_ram_find(k->uuid) == NULL && kept_ram_is_apart(k) ? 0 : -EBADMSG;
}

static int kept_ram_import_one(const json_t *o, uint64_t file_bytes)
{
	struct kept_ram *k = calloc(1, sizeof(*k));
	int rc = k != NULL ? kept_ram_decode(o, file_bytes, k) : -ENOMEM;

	if (rc != 0) {
		free(k);
		return rc;
	}
	TAILQ_INSERT_TAIL(&kept, k, link);
	return 0;
}

/* The size of a file that may be mapped: one that nobody can make shorter. */
static int64_t kept_ram_check_file(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 ? kept_ram_file_bytes(fd) : -EBADMSG;
}

int kept_ram_import(const json_t *all, int fd)
{
	int64_t file_bytes = fd >= 0 ? kept_ram_check_file(fd) : 0;
	int rc = file_bytes < 0 || (all != NULL && !json_is_array(all)) ? -EBADMSG : 0;
	size_t i;
	json_t *o;

	kept_ram_clear();
	if (file >= 0) {
		close(file);
	}
	file = fd;
	owner = false;
	json_array_foreach (all, i, o) {
		rc = rc == 0 ? kept_ram_import_one(o, (uint64_t)file_bytes) : rc;
	}
	if (rc != 0) {
		kept_ram_clear();
	}
	return rc;
}
