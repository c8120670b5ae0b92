/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata: I/O commands on namespaces whose blocks have it, apart from the code that all others run. Hosts see
 * extended blocks, or plain blocks if the transport or the namespace hides the metadata. The poll group's thread. */
#include <errno.h>
#include "nvmf/io_internal.h"

static bool md_is_hidden(const struct nvmf_transport *t, const struct nvmf_geometry *geo)
{
	return geo->md_hidden || t->opts.dif_insert_or_strip;
}

struct nvmf_geometry nvmf_md_seen(const struct nvmf_transport *t, const struct nvmf_geometry *geo)
{
	struct nvmf_geometry seen = *geo;

	if (md_is_hidden(t, geo)) {
		seen.md_eighths = seen.pi_type = seen.pi_format = seen.storage_bits = 0;
	}
	return seen;
}

/* An extended LBA format: its guard has more than 16 bits, or there is a storage tag. */
static bool md_is_extended(const struct nvmf_geometry *geo)
{
	return geo->pi_format != NVME_PI_GUARD_16 || geo->storage_bits != 0;
}

/* A host that has not said (by Host Behavior Support) that it knows extended formats takes such a namespace for one
 * with a guard of 16 bits and nothing but a reference tag. It is told so before the fields that it fills in wrongly for
 * that reason are looked at. */
static uint16_t md_check_host(const struct nvmf_request *req, const struct nvmf_geometry *seen, uint16_t *where)
{
	if (!md_is_extended(seen) || atomic_load_explicit(&req->qpair->extended_formats, memory_order_relaxed)) {
		return NVME_ST_SUCCESS;
	}
	*where = NVMF_WHERE_NSID;
	return NVME_ST_DNR(GENERIC, INVALID_NS);
}

uint16_t nvmf_md_decode_rw(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, struct nvmf_lba_range *range,
			   uint64_t *bytes, uint16_t *where)
{
	struct nvmf_geometry seen = nvmf_md_seen(req->qpair->transport, &nsv->geo);
	struct nvmf_pi pi;
	uint16_t status = md_check_host(req, &seen, where);

	return status == NVME_ST_SUCCESS ? nvmf_decode_rw_md(req->sqe, &seen, range, &pi, bytes, where) : status;
}

uint16_t nvmf_md_check(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint16_t *where)
{
	struct nvmf_geometry seen = nvmf_md_seen(req->qpair->transport, &nsv->geo);
	struct nvmf_pi pi;
	uint16_t status = md_check_host(req, &seen, where);

	return status == NVME_ST_SUCCESS ? nvmf_decode_pi(req->sqe, &seen, &pi, where) : status;
}

uint16_t nvmf_md_check_host(const struct nvmf_request *req, const struct nvmf_ns_view *nsv, uint16_t *where)
{
	struct nvmf_geometry seen = nvmf_md_seen(req->qpair->transport, &nsv->geo);

	return md_check_host(req, &seen, where);
}

/* Copy has a reference tag for each range, and the blocks that it writes get the tags of their new place. With type 2
 * the host chooses the tags, and these would be different ones. */
uint16_t nvmf_md_check_copy(const struct nvmf_request *req, const struct nvmf_ns_view *nsv,
			    const struct nvmf_copy *copy, uint16_t *where)
{
	struct nvmf_geometry seen = nvmf_md_seen(req->qpair->transport, &nsv->geo);
	uint16_t status = md_check_host(req, &seen, where);

	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	return seen.pi_type == 2 ? nvmf_bad_field(where, NVMF_WHERE_OPCODE)
				 : nvmf_decode_copy_format(copy, seen.pi_format, where);
}

/* What the bdev layer does with protection information for a command with PRACT: it generates it for a Write and checks
 * it for a Read; if there is no other metadata, hosts see plain blocks. */
static uint8_t md_pi_action(const struct nvmf_request *req, const struct nvmf_geometry *geo, const struct nvmf_pi *pi)
{
	if (!pi->act) {
		return 0;
	}
	if (geo->md_eighths * 8u == NVME_PI_BYTES(geo->pi_format)) {
		return BDEV_DIF_PLAIN;
	}
	return nvmf_io_command(req)->bdev_type == BDEV_IO_WRITE ? BDEV_DIF_MAKE : 0;
}

/* The command has been decoded without an error, so the status is not looked at. */
void nvmf_md_set(struct nvmf_request *req, const struct nvmf_ns_view *nsv)
{
	const struct nvmf_geometry *geo = &nsv->geo;
	struct nvmf_pi pi;
	uint16_t where;

	if (md_is_hidden(req->qpair->transport, geo)) {
		bdev_io_set_dif(&req->bdev_io, BDEV_DIF_PLAIN, 0, 0, 0);
		return;
	}
	nvmf_decode_pi(req->sqe, geo, &pi, &where);
	/* a Write Zeroes without PRACT writes protection information that passes all checks */
	if (geo->pi_type == 0 || (nvmf_io_command(req)->bdev_type == BDEV_IO_WRITE_ZEROES && !pi.act)) {
		bdev_io_set_dif(&req->bdev_io, 0, 0, 0, 0);
		return;
	}
	uint8_t checks = (uint8_t)((pi.check_guard ? BDEV_DIF_GUARD : 0) | (pi.check_app ? BDEV_DIF_APP : 0) |
				   (pi.check_ref ? BDEV_DIF_REF : 0) | (pi.check_storage ? BDEV_DIF_STORAGE : 0));
	bdev_io_set_dif(&req->bdev_io, (uint8_t)(BDEV_DIF_TAGS | checks | md_pi_action(req, geo, &pi)), pi.ref, pi.app,
			pi.app_mask);
	req->bdev_io.dif_storage = pi.storage;
}

void nvmf_md_identify(const struct nvmf_transport *t, const struct nvmf_ns *ns, struct nvme_id_ns *id)
{
	struct nvmf_geometry seen = nvmf_md_seen(t, &ns->geo);
	bool first = bdev_get_md(ns->bdev)->dif_is_first;

	if (seen.md_eighths == 0) {
		return;
	}
	id->lbaf[0].ms = htole16((uint16_t)(seen.md_eighths * 8));
	id->flbas |= NVME_NS_FLBAS_META_EXT; /* fabrics have no other way (Base 3.3.1.2) */
	id->mc = NVME_NS_MC_EXTENDED;
	if (seen.pi_type != 0) {
		id->dpc = (uint8_t)(1u << (seen.pi_type - 1) | (first ? NVME_NS_DPC_PI_FIRST : NVME_NS_DPC_PI_LAST));
		id->dps = (uint8_t)(seen.pi_type | (first ? NVME_NS_DPS_PI_FIRST : 0));
	}
}

void nvmf_md_identify_nvm(const struct nvmf_transport *t, const struct nvmf_ns *ns, struct nvme_nvm_id_ns *id)
{
	struct nvmf_geometry seen = nvmf_md_seen(t, &ns->geo);

	if (seen.pi_type != 0) {
		id->lbstm = htole64(bdev_get_md(ns->bdev)->storage_mask);
		id->pic = md_is_extended(&seen) ? NVME_NVM_PIC_16BPISTS : 0;
		id->elbaf[0] = htole32(seen.storage_bits | (uint32_t)seen.pi_format << NVME_NVM_ELBAF_PIF_SHIFT);
	}
}

int nvmf_md_geometry(const struct nvmf_ns *ns, struct nvmf_geometry *geo)
{
	const struct bdev_md *md = bdev_get_md(ns->bdev);

	if (md->size % 8 != 0 || md->size / 8 > UINT8_MAX) {
		log_error("bdev %s has %u bytes of metadata per block; a namespace needs a multiple of 8",
			  bdev_name(ns->bdev), md->size);
		return -EINVAL;
	}
	if (md->size > bdev_data_block_size(ns->bdev) / NVMF_MD_SHARE) {
		log_error(
			"bdev %s has %u bytes of metadata per block of %u; a namespace may have a quarter of the block",
			bdev_name(ns->bdev), md->size, bdev_data_block_size(ns->bdev));
		return -EINVAL;
	}
	geo->md_eighths = (uint8_t)(md->size / 8);
	geo->pi_type = md->dif_type;
	geo->pi_format = md->dif_type != 0 ? md->dif_guard : NVME_PI_GUARD_16;
	geo->storage_bits = md->dif_type != 0 ? md->storage_bits : 0;
	geo->md_hidden = ns->opts.hide_metadata;
	return 0;
}
