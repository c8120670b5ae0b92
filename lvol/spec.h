/* SPDX-License-Identifier: BSD-3-Clause */
/* The on-disk format of an existing kind of volume store ("SPDKBLOB" with the type "LVOLSTORE"), little endian, without
 * padding.
 *
 * A store is made of clusters. The first ones hold metadata: page 0 is the superblock; three masks say which metadata
 * pages, clusters and volumes are in use; then come the metadata pages. All are pages of 4 KiB. A volume's metadata
 * begins in the page that its number names (the root page) and goes on in the pages that `next` names; it consists of
 * descriptors. */
#ifndef VARVE_LVOL_SPEC_H
#define VARVE_LVOL_SPEC_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define LVOL_SIGNATURE  "SPDKBLOB"
#define LVOL_STORE_TYPE "LVOLSTORE"
#define LVOL_ID_NONE    UINT64_MAX
#define LVOL_ID_HIGH    (1ull << 32) /* a volume's number is this and the number of its root page */
#define LVOL_PAGE_NONE  UINT32_MAX

enum {
	LVOL_PAGE_BYTES = 4096,
	LVOL_VERSION_CLOSED = 3,
	LVOL_VERSION_OPEN = 4, /* ours: a program has it open for writing, and a journal counts */
	LVOL_EXTENT_PAGE_CLUSTERS = 512,
};

#define LVOL_OPEN_MAGIC "VARVEOPN"

/* Ours: who has a store open. With pid 0 nobody has said so. */
struct lvol_owner {
	uint8_t machine[16]; /* /etc/machine-id, or a hash of the host's name if there is none */
	uint8_t boot[16];    /* another one each time that the machine starts */
	uint64_t started;    /* when the process was, in clock ticks since the boot */
	uint64_t opening;    /* counts what the process opens */
	uint32_t pid;
	char host[64]; /* the machine's name, for people */
} __attribute__((packed));

/* Ours, in the last sector of the superblock while the store is open for writing, zeroes else. A sector is written
 * whole or not at all, so this fits the crc behind it even where power failed between the sectors of the superblock: it
 * has what the others should say. */
struct lvol_super_open {
	char magic[8];
	uint32_t version, clean;
	uint64_t size_bytes;
	uint32_t journal_first;      /* metadata page */
	uint32_t journal_slot_pages; /* pages of each of its two slots; the slots lie behind each other */
	struct lvol_owner owner;     /* zeroes: an older program opened it */
} __attribute__((packed));

struct lvol_super {
	char signature[8];
	uint32_t version;
	uint32_t length;   /* of this structure */
	uint32_t clean;    /* 1: the store was closed, and its masks hold */
	uint64_t super_id; /* the volume whose extended attributes name the store */
	uint32_t cluster_bytes;
	uint32_t page_mask_first, page_mask_pages;
	uint32_t cluster_mask_first, cluster_mask_pages;
	uint32_t md_first, md_pages;
	char type[16];
	uint32_t id_mask_first, id_mask_pages;
	uint64_t size_bytes;
	uint32_t io_unit_bytes;
	uint32_t md_page_bytes;
	uint8_t reserved[3488];
	struct lvol_super_open open;
	uint8_t reserved_open[360];
	uint32_t crc;
} __attribute__((packed));
static_assert(sizeof(struct lvol_super) == LVOL_PAGE_BYTES, "the superblock");
static_assert(offsetof(struct lvol_super, open) == LVOL_PAGE_BYTES - 512, "the last sector of the superblock");

enum lvol_mask_type { LVOL_MASK_PAGES, LVOL_MASK_CLUSTERS, LVOL_MASK_IDS };

/* Before the bits of a mask. */
struct lvol_mask_head {
	uint8_t type;
	uint32_t num_bits;
} __attribute__((packed));
static_assert(sizeof(struct lvol_mask_head) == 5, "the head of a mask");

struct lvol_md_page {
	uint64_t id;       /* of the volume; of a page of extents perhaps that of a clone, for which it was written */
	uint32_t sequence; /* 0 in the root page, then 1 more in each next page; 0 in a page of extents */
	uint32_t reserved;
	uint8_t descriptors[4072];
	uint32_t next; /* LVOL_PAGE_NONE: the last */
	uint32_t crc;
} __attribute__((packed));
static_assert(sizeof(struct lvol_md_page) == LVOL_PAGE_BYTES, "a metadata page");

enum lvol_desc_type {
	LVOL_DESC_PADDING,
	LVOL_DESC_EXTENTS_RLE,
	LVOL_DESC_XATTR,
	LVOL_DESC_FLAGS,
	LVOL_DESC_XATTR_INTERNAL,
	LVOL_DESC_EXTENT_TABLE,
	LVOL_DESC_EXTENT_PAGE,
};

struct lvol_desc_head {
	uint8_t type;
	uint32_t length; /* of what follows */
} __attribute__((packed));

/* Whoever does not know a bit of the first word must not use the volume, of the second not write its data, of the third
 * not change it. */
struct lvol_desc_flags {
	uint64_t invalid, data_ro, md_ro;
} __attribute__((packed));

#define LVOL_INVALID_THIN              (1ull << 0)
#define LVOL_INVALID_XATTR_INTERNAL    (1ull << 1)
#define LVOL_INVALID_EXTENT_TABLE      (1ull << 2)
#define LVOL_INVALID_EXTERNAL_SNAPSHOT (1ull << 3)
#define LVOL_INVALID_KNOWN             0xfull
#define LVOL_DATA_RO_READ_ONLY         (1ull << 0)
#define LVOL_DATA_RO_KNOWN             1ull
#define LVOL_MD_RO_KNOWN               3ull /* how clusters are to be cleared */

struct lvol_desc_rle {
	uint32_t cluster; /* 0: not allocated */
	uint32_t count;
} __attribute__((packed));

struct lvol_desc_table_entry {
	uint32_t page;  /* of 512 clusters; 0: not allocated */
	uint32_t count; /* of such pages; 1 where there is a page */
} __attribute__((packed));

#define LVOL_JOURNAL_MAGIC "VARVEJNL"
enum {
	LVOL_JOURNAL_SLOTS = 2,
	LVOL_JOURNAL_SLOT_MIN = 4,
	LVOL_JOURNAL_SLOT_MAX = 128, /* pages, with the head */
};

/* Ours: the first page of a slot of the journal, of slot generation % LVOL_JOURNAL_SLOTS. Pages follow that are to be
 * written to their places. Of two valid slots the one with the higher generation counts; what the other one says is in
 * place. */
struct lvol_journal_head {
	char magic[8];
	uint64_t generation;
	uint32_t num_pages;
	uint32_t pages_crc;                         /* CRC32C of all that follow, each without its last 4 bytes */
	uint32_t places[LVOL_JOURNAL_SLOT_MAX - 1]; /* metadata pages */
	uint32_t used_below;         /* no metadata page from here on is in use, but for the journal's; 0: any may be */
	struct lvol_super_open open; /* as the superblock has it: lvol/rescue.h. Zeroes: an older program wrote it */
	uint8_t reserved[3408];
	uint32_t crc;
} __attribute__((packed));
static_assert(sizeof(struct lvol_journal_head) == LVOL_PAGE_BYTES, "the head of a slot of the journal");

#endif
