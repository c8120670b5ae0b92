/* SPDX-License-Identifier: BSD-3-Clause */
/* What integrity bdevs count, for metrics. */
#include "bdev_modules/integrity/internal.h"

struct integrity_counts {
	struct bdev_integrity_info info;
	struct bdev_integrity_scrub scrub;
};

static uint64_t count_checked(const struct integrity_counts *c)
{
	return c->info.units_checked;
}

static uint64_t count_unchecked(const struct integrity_counts *c)
{
	return c->info.units_unchecked;
}

static uint64_t count_wrong(const struct integrity_counts *c)
{
	return c->info.errors;
}

static uint64_t count_pages_wrong(const struct integrity_counts *c)
{
	return c->info.checksum_pages_wrong;
}

static uint64_t count_pages_failing(const struct integrity_counts *c)
{
	return c->info.checksum_pages_failing;
}

static uint64_t count_open(const struct integrity_counts *c)
{
	return c->info.regions_open;
}

static uint64_t count_unknown(const struct integrity_counts *c)
{
	return c->info.regions_unknown;
}

static uint64_t count_read_only(const struct integrity_counts *c)
{
	return c->info.read_only;
}

static uint64_t count_metadata(const struct integrity_counts *c)
{
	return c->info.metadata_bytes;
}

static uint64_t count_scrub_running(const struct integrity_counts *c)
{
	return c->scrub.running;
}

static uint64_t count_scrubbed(const struct integrity_counts *c)
{
	return c->scrub.units_done;
}

static const struct {
	const char *name, *help;
	uint64_t (*value)(const struct integrity_counts *c);
	bool grows;
} integrity_figure_table[] = {
	{"varve_integrity_checked_blocks_total", "Blocks of 4096 bytes that were read and checked.", count_checked,
	 .grows = true},
	{"varve_integrity_unchecked_blocks_total", "Blocks that were read without a check.", count_unchecked,
	 .grows = true},
	{"varve_integrity_wrong_blocks_total", "Blocks that were read and are wrong, again for each read.", count_wrong,
	 .grows = true},
	{"varve_integrity_wrong_checksum_pages_total", "Pages of checksums that were wrong or could not be read.",
	 count_pages_wrong, .grows = true},
	{"varve_integrity_metadata_bytes_total", "Bytes of checksums and of the bitmap written to the base.",
	 count_metadata, .grows = true},
	{"varve_integrity_failing_checksum_pages", "Pages of checksums that could not be written the last time.",
	 count_pages_failing},
	{"varve_integrity_open_regions", "Regions of 2 MiB that are open for writes.", count_open},
	{"varve_integrity_unknown_regions", "Regions that were open at a crash and have still to be read.",
	 count_unknown},
	{"varve_integrity_read_only", "1 while only regions that are open can be written.", count_read_only},
	{"varve_integrity_scrub_running", "1 while the bdev is scrubbed.", count_scrub_running},
	{"varve_integrity_scrubbed_blocks", "Blocks that the scrub, or the last one, has read.", count_scrubbed},
};

void integrity_figures(bdev_module_figure_fn fn, void *arg)
{
	const size_t n = sizeof(integrity_figure_table) / sizeof(integrity_figure_table[0]);
	struct integrity_counts c;

	for (size_t i = 0; i < n; i++) {
		for (const struct integrity_bdev *d = integrity_next(NULL); d != NULL; d = integrity_next(d)) {
			bdev_integrity_get_info(&d->bdev, &c.info);
			bdev_integrity_scrub_get(&d->bdev, &c.scrub);
			fn(arg, &(struct bdev_module_figure){.name = integrity_figure_table[i].name,
							     .help = integrity_figure_table[i].help,
							     .grows = integrity_figure_table[i].grows,
							     .label = "bdev",
							     .what = d->name,
							     .value = integrity_figure_table[i].value(&c)});
		}
	}
}
