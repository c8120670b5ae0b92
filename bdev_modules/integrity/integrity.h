/* SPDX-License-Identifier: BSD-3-Clause */
/* A bdev that keeps a checksum (CRC32C) of each 4096 bytes of data on its base, and checks what is read. It claims its
 * base, and is removed when its base is; when the base comes back, so does the bdev. Control thread. */
#ifndef BDEV_INTEGRITY_H
#define BDEV_INTEGRITY_H

#include "bdev/bdev.h"

struct vbdev_waiting;

struct bdev_integrity_opts {
	const char *name;           /* copied */
	const char *base_bdev_name; /* copied */
	/* 16 bytes, copied. It stands on the base: a base with another one is refused. NULL: whatever is there; with
	 * format a random one. */
	const uint8_t *uuid;
	/* Make one on a base that has none; what was on the base is lost. A base that has one is refused. Without it, a
	 * base that has none is refused, unless nothing was ever written to it, as to a new RAM disk. */
	bool format;
};

/* rc: 0; or a negative errno, and error names the field or the base, and what is wrong with it. */
typedef void (*bdev_integrity_cb)(void *arg, int rc, const char *error);

/* Makes and registers one; or, if there is no such base and it is not to be formatted, notes that one is to be made
 * when the base comes (bdev/vbdev/waiting.h). Calls cb, perhaps before it returns. */
void bdev_integrity_create(const struct bdev_integrity_opts *opts, bdev_integrity_cb cb, void *arg);

/* As bdev_unregister(), also of one that waits for its base or is being opened; or cb(arg, -ENODEV) if no integrity
 * bdev has that name. Its open regions are closed first. */
void bdev_integrity_delete(const char *name, bdev_delete_cb cb, void *arg);

/* The options that would make b again. Pointers in opts are into b. False: b is of another module. */
bool bdev_integrity_get(const struct bdev *b, struct bdev_integrity_opts *opts);
/* The same of one that waits for its base; uuid is NULL if none was given. */
bool bdev_integrity_get_waiting(const struct vbdev_waiting *w, struct bdev_integrity_opts *opts);
/* The base of an integrity bdev. */
const struct bdev *bdev_integrity_base(const struct bdev *b);
/* The integrity bdev of that name, alias or UUID; NULL: there is none. */
struct bdev *bdev_integrity_find(const char *name);

/* What it counts. */
struct bdev_integrity_info {
	uint64_t units, regions;
	uint64_t regions_open;
	/* That were being written when it stopped without being closed, and have not been closed since; and how many
	 * there were when it was opened. */
	uint64_t regions_unknown, regions_unclean;
	uint64_t errors;                 /* reads that found a wrong unit */
	uint64_t checksum_pages_wrong;   /* whose checksums are not known, therefore */
	uint64_t units_unchecked;        /* that were read while their checksum was not known */
	uint64_t units_checked;          /* that were read and checked */
	uint64_t checksum_pages_failing; /* that could not be written the last time */
	uint64_t metadata_bytes;         /* written to the base since the bdev was opened */
	bool read_only;                  /* what is kept on the base could not be written */
};
/* Fills in what there is of an integrity bdev. */
void bdev_integrity_get_info(const struct bdev *b, struct bdev_integrity_info *info);

/* A unit whose data is wrong: its number, which is the LBA; where it is on the base, in blocks of the base. */
struct bdev_integrity_error {
	uint64_t lba, base_lba;
	uint32_t expected, found; /* CRC32C, as it is kept */
};

/* --- Scrub: reads all of the bdev, so that what is wrong is found --- */

#define BDEV_INTEGRITY_SCRUB_LIST 64

struct bdev_integrity_scrub {
	bool running, ever; /* ever: there was one */
	bool completed;     /* the last one reached the end */
	uint32_t mib_per_second;
	uint64_t units_done;
	uint64_t units_bad;       /* whose data is wrong, or that the base cannot read any more */
	uint64_t units_failed;    /* that could not be read for another reason: nothing is known about them */
	uint64_t units_unchecked; /* whose checksum is not known */
	uint64_t bad[BDEV_INTEGRITY_SCRUB_LIST]; /* the first of them, by LBA */
};
/* Starts a scrub from the beginning, or changes the rate of one that runs. mib_per_second: from 1 to 100000. 0; or a
 * negative errno, and the reason in error (BDEV_ERROR_MAX bytes). */
int bdev_integrity_scrub_start(struct bdev *b, uint32_t mib_per_second, char *error);
/* Ends it; does nothing if none runs. */
void bdev_integrity_scrub_stop(struct bdev *b);
/* How far it is, or how the last one ended. */
void bdev_integrity_scrub_get(const struct bdev *b, struct bdev_integrity_scrub *s);

/* Has fn(type, bdev, text) called when a unit or a checksum page is found wrong: "bdev_integrity_error". At most 64
 * errors that come at once are told. */
void bdev_integrity_set_notice_fn(void (*fn)(const char *type, const char *bdev, const char *text));

#endif
