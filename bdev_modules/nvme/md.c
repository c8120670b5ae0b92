/* SPDX-License-Identifier: BSD-3-Clause */
/* Namespaces whose blocks carry metadata: how the bdev describes it, and what commands need for it. Other namespaces do
 * not come here. */
#include "bdev/dif.h"
#include "bdev_modules/nvme/internal.h"

_Static_assert(DIF_GUARD_16 == NVME_PI_GUARD_16 && DIF_GUARD_32 == NVME_PI_GUARD_32 && DIF_GUARD_64 == NVME_PI_GUARD_64,
	       "NVM 4.1.5.3, PIF");

/* --- Control thread --- */

static const char *md_why_pi_unusable(const struct nvme_ns *ns, bool extended)
{
	if (ns->pi_format >= DIF_GUARDS || ns->md_size < dif_bytes(ns->pi_format)) {
		return "the format of its protection information is unknown";
	}
	if (ns->pi_format != DIF_GUARD_32 && ns->storage_bits == dif_space_bits(ns->pi_format)) {
		return "its storage tag leaves no room for a reference tag, which is not supported";
	}
	if (!dif_storage_bits_are_good(ns->pi_format, ns->storage_bits)) {
		return "the size of its storage tag is none that its format can have";
	}
	if (!extended && (ns->pi_format != DIF_GUARD_16 || ns->storage_bits != 0)) {
		return "its controller did not take Host Behavior Support (LBAFEE), without which it refuses I/O on "
		       "this format";
	}
	return NULL;
}

const char *bdev_nvme_md_unusable(const struct nvme_ns *ns, bool fabrics, bool extended)
{
	if (ns->md_size == 0) {
		return NULL;
	}
	if (ns->md_size % 8 != 0 || ns->pi_type > 3) {
		return "the size of its metadata is not a multiple of 8 bytes, or the type of its protection "
		       "information is unknown";
	}
	const char *why = ns->pi_type != 0 ? md_why_pi_unusable(ns, extended) : NULL;
	if (why != NULL) {
		return why;
	}
	/* Base 3.3.1.2: over fabrics a command has no buffer but that of its data */
	if (fabrics && !ns->md_interleaved) {
		return "its metadata is separate from the data, which is not possible over fabrics";
	}
	return NULL;
}

struct bdev_md bdev_nvme_md_of(const struct nvme_ns *ns, const struct bdev_nvme_attach *a)
{
	struct bdev_md md = {.size = ns->md_size, .dif_type = ns->pi_type};

	if (md.size == 0) {
		return md;
	}
	md.by_device = true;
	md.separate = !ns->md_interleaved;
	if (md.dif_type != 0) {
		md.dif_guard = ns->pi_format;
		md.storage_bits = ns->storage_bits;
		md.storage_mask = ns->storage_mask;
		md.dif_is_first = (ns->id.dps & NVME_NS_DPS_PI_FIRST) != 0;
		/* NVM 5.2.2.1: with PRACT the controller generates and strips protection information, but only if the
		 * metadata has nothing else */
		md.plain_by_device = md.size == dif_bytes(md.dif_guard);
		md.checks = a->prchk_guard ? BDEV_DIF_GUARD : 0;
		md.checks |= a->prchk_reftag && md.dif_type != 3 ? BDEV_DIF_REF : 0;
	}
	return md;
}

/* --- I/O. The channel's thread. --- */

static uint32_t md_prinfo(uint8_t checks)
{
	return (checks & BDEV_DIF_GUARD ? NVME_PI_CHECK_GUARD : 0) | (checks & BDEV_DIF_APP ? NVME_PI_CHECK_APP : 0) |
	       (checks & BDEV_DIF_REF ? NVME_PI_CHECK_REF : 0) |
	       (checks & BDEV_DIF_STORAGE ? NVME_PI_CHECK_STORAGE : 0);
}

void bdev_nvme_md_set_pi(struct nvme_sqe *cmd, const struct bdev_md *md, const struct bdev_io *io, bool act)
{
	bool has_tags = (io->dif_flags & BDEV_DIF_TAGS) != 0;
	uint64_t ref = has_tags ? io->dif_ref : bdev_dif_default_ref(md, io->offset_blocks);
	uint8_t checks = has_tags ? io->dif_flags : md->checks;

	/* Type 3 has no expected reference tag: the controller would refuse a command that asks to check it
	 * (NVM 5.2.3). */
	checks &= md->dif_type == 3 ? (uint8_t)~BDEV_DIF_REF : UINT8_MAX;
	cmd->cdw12 |= htole32(md_prinfo(checks) | (act ? NVME_PI_ACT : 0));
	nvme_pi_space_set(cmd, md->dif_guard, has_tags ? io->dif_storage : 0, ref);
	cmd->cdw15 = has_tags ? htole32((uint32_t)io->dif_app_mask << 16 | io->dif_app) : 0;
}

/* Lengths of data and metadata, and the buffer of separate metadata. */
static void md_set_data(struct bdev_nvme_io *n, const struct bdev *b, const struct bdev_io *io, bool plain)
{
	uint32_t blocks = (uint32_t)io->num_blocks;

	if (plain || b->md.separate) {
		n->req.data_len = blocks * (b->block_size - b->md.size);
	}
	if (!plain && b->md.separate) {
		n->req.md = io->apart.md;
		n->req.md_len = blocks * b->md.size;
	}
}

void bdev_nvme_md_set(struct bdev_nvme_io *n, const struct bdev_io *io)
{
	const struct bdev *b = bdev_channel_bdev(io->ch);
	bool plain = (io->dif_flags & BDEV_DIF_PLAIN) != 0, has_pi = b->md.dif_type != 0;

	switch (io->type) {
	case BDEV_IO_READ:
	case BDEV_IO_WRITE:
	case BDEV_IO_COMPARE:
		md_set_data(n, b, io, plain);
		if (has_pi) {
			bdev_nvme_md_set_pi(&n->req.cmd, &b->md, io, plain);
		}
		break;
	case BDEV_IO_WRITE_ZEROES: /* PRACT: protection information of zeroes would fail the next check */
	case BDEV_IO_VERIFY:       /* checks what is stored, and transfers nothing */
		if (has_pi) {
			bdev_nvme_md_set_pi(&n->req.cmd, &b->md, io, io->type == BDEV_IO_WRITE_ZEROES);
		}
		break;
	default:
		break;
	}
}
