/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the namespaces: the list of active ones (1024 at a time), then Identify and the descriptors of each. Control
 * thread. */
#include "nvme/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "env_dpdk/env.h"
#include "util/log.h"

#define NSIDS_PER_LIST 1024
#define NAMESPACES_MAX 4096 /* of one controller: each costs 4 KiB, and the target decides how long its list is */
#define VERSION_1_3    0x10300u
#define VERSION_2_0    0x20000u
/* FFFFFFFEh is not allowed in the list (Base 5.17.2.2), FFFFFFFFh means all namespaces. */
#define NSID_INVALID_FROM UINT32_C(0xfffffffe)
#define STATUS_MASK       0x7ff /* SCT and SC */

struct nvme_ns_scan {
	struct nvme_ctrlr *ctrlr;
	void (*done)(struct nvme_ctrlr *ctrlr, int error);
	bool aborted; /* nobody waits for it any more: it ends with its outstanding command */
	uint8_t *buf; /* 4 KiB, DMA-able */
	uint32_t *nsids;
	uint32_t num_nsids, next;
	struct nvme_ns_table *table;
};

static void scan_free(struct nvme_ns_scan *s)
{
	env_dma_free(s->buf);
	free(s->nsids);
	free(s->table);
	free(s);
}

static void scan_end(struct nvme_ns_scan *s, int error)
{
	struct nvme_ctrlr *ctrlr = s->ctrlr;
	void (*done)(struct nvme_ctrlr *, int) = s->done;

	ctrlr->scan = NULL;
	if (error == 0) {
		free(ctrlr->ns);
		ctrlr->ns = s->table;
		s->table = NULL;
	}
	scan_free(s);
	if (error == 0 && ctrlr->scan_again) {
		nvme_ns_scan(ctrlr, done);
		return;
	}
	done(ctrlr, error);
}

/* True: the scan was aborted, and is freed now. */
static bool scan_is_aborted(struct nvme_ns_scan *s)
{
	if (!s->aborted) {
		return false;
	}
	scan_free(s);
	return true;
}

static void scan_send(struct nvme_ns_scan *s, const struct nvme_sqe *cmd, uint32_t bytes, bool to_device,
		      void (*cb)(void *arg, const struct nvme_cqe *cqe))
{
	int rc = nvme_ctrlr_admin(s->ctrlr, cmd, s->buf, bytes, to_device, cb, s);

	/* later scans have the time limit of any admin command (watch.c) */
	if (s->ctrlr->state == NVME_CTRLR_SCAN_NS) {
		nvme_ctrlr_step_goes_on(s->ctrlr);
	}
	if (rc != 0) {
		scan_end(s, rc);
	}
}

static void scan_identify(struct nvme_ns_scan *s, uint8_t cns, uint32_t nsid,
			  void (*cb)(void *arg, const struct nvme_cqe *cqe))
{
	const struct nvme_sqe cmd = {.opcode = nvme_admin_identify, .nsid = htole32(nsid), .cdw10 = htole32(cns)};

	scan_send(s, &cmd, NVME_IDENTIFY_DATA_SIZE, false, cb);
}

static void scan_identify_next(struct nvme_ns_scan *s);

/* The index of the namespace's format. */
static unsigned ns_format(const struct nvme_id_ns *id)
{
	return (id->flbas & 0xf) | (id->flbas >> 1 & 0x30); /* NVM 4.1.5.1, FLBAS */
}

/* False: this driver cannot use the namespace, which is left out. */
static bool ns_parse(struct nvme_ns *ns, uint32_t stripe_bytes)
{
	const struct nvme_id_ns *id = &ns->id;
	unsigned format = ns_format(id);

	if (id->nsze == 0 || format > id->nlbaf + 0u || format >= sizeof(id->lbaf) / sizeof(id->lbaf[0])) {
		return false;
	}
	const struct nvme_lbaf *lbaf = &id->lbaf[format];
	if (lbaf->ds < 9 || lbaf->ds > 16) {
		return false;
	}
	ns->block_size = UINT32_C(1) << lbaf->ds;
	ns->md_size = le16toh(lbaf->ms);
	ns->md_interleaved = (id->flbas & NVME_NS_FLBAS_META_EXT) != 0;
	ns->pi_type = ns->md_size >= NVME_PI_BYTES(NVME_PI_GUARD_16) ? id->dps & NVME_NS_DPS_PI_MASK : 0;
	ns->num_blocks = le64toh(id->nsze);
	ns->optimal_boundary_blocks = le16toh(id->noiob) ? le16toh(id->noiob) : stripe_bytes / ns->block_size;
	ns->anagrpid = le32toh(id->anagrpid);
	memcpy(ns->nguid, id->nguid, sizeof(ns->nguid));
	memcpy(ns->eui64, id->eui64, sizeof(ns->eui64));
	return true;
}

static const struct nvme_ns *ns_find_known(const struct nvme_ctrlr *ctrlr, uint32_t nsid)
{
	const struct nvme_ns *ns = nvme_ctrlr_next_ns(ctrlr, nsid - 1);

	return ns != NULL && ns->nsid == nsid ? ns : NULL;
}

/* A controller that gives no access to a namespace (asymmetric access) may report it with size 0: its size has not
 * changed. */
static void ns_restore_size(const struct nvme_ctrlr *ctrlr, uint32_t nsid, struct nvme_id_ns *id)
{
	const struct nvme_ns *old = ns_find_known(ctrlr, nsid);

	if (id->nsze == 0 && nvme_ctrlr_has_ana(ctrlr) && old != NULL) {
		id->nsze = htole64(old->num_blocks);
	}
}

/* Namespace Identification Descriptors (Base 5.17.2.3): type, length, 2 reserved bytes, identifier. */
static void ns_parse_descriptors(struct nvme_ns *ns, const uint8_t *buf, size_t size)
{
	for (size_t at = 0; at + 4 <= size && buf[at + 1] != 0;) {
		uint8_t type = buf[at], len = buf[at + 1];
		const uint8_t *nid = buf + at + 4;

		if (at + 4 + len > size) {
			return;
		}
		if (type == NVME_NIDT_UUID && len == 16) {
			memcpy(ns->uuid, nid, 16);
		} else if (type == NVME_NIDT_NGUID && len == 16) {
			memcpy(ns->nguid, nid, 16);
		} else if (type == NVME_NIDT_EUI64 && len == 8) {
			memcpy(ns->eui64, nid, 8);
		} else if (type == NVME_NIDT_CSI && len == 1) {
			ns->csi = nid[0];
		}
		at += 4u + len;
	}
}

/* The connection is lost, so the failure of the command is not the namespace's. */
static bool scan_is_cut_off(const struct nvme_ns_scan *s)
{
	return s->ctrlr->admin == NULL || s->ctrlr->admin->failed;
}

/* Compares the identifiers in Identify Namespace. If there are none, namespaces of one nsid count as the same only
 * while the connection lasts. */
static bool ns_has_same_ids(const struct nvme_ctrlr *ctrlr, const struct nvme_id_ns *a, const struct nvme_id_ns *b)
{
	static const uint8_t none[sizeof(a->nguid)];
	bool has_id = memcmp(a->nguid, none, sizeof(a->nguid)) != 0 || memcmp(a->eui64, none, sizeof(a->eui64)) != 0;

	return (has_id || ctrlr->state == NVME_CTRLR_READY) && memcmp(a->nguid, b->nguid, sizeof(a->nguid)) == 0 &&
	       memcmp(a->eui64, b->eui64, sizeof(a->eui64)) == 0;
}

/* Whether a retry would not change the answer. */
static bool status_is_final(uint16_t status)
{
	return (status & STATUS_MASK) == NVME_SC_INVALID_FIELD || (status & NVME_SC_DNR) != 0;
}

/* A known namespace keeps the identity that it has: with another one, its users would lose it. For others, the
 * identifiers in Identify Namespace are enough if the controller has no descriptors, as before 1.3, and a retry would
 * not change that. */
static void scan_descriptors_refused(struct nvme_ns_scan *s, uint16_t status)
{
	struct nvme_ctrlr *ctrlr = s->ctrlr;
	struct nvme_ns *ns = &s->table->ns[s->table->count - 1];
	const struct nvme_ns *old = ns_find_known(ctrlr, ns->nsid);

	if (scan_is_cut_off(s)) {
		scan_end(s, -ENXIO);
		return;
	}
	if (old != NULL && ns_has_same_ids(ctrlr, &ns->id, &old->id)) {
		memcpy(ns->nguid, old->nguid, sizeof(ns->nguid));
		memcpy(ns->eui64, old->eui64, sizeof(ns->eui64));
		memcpy(ns->uuid, old->uuid, sizeof(ns->uuid));
		ns->csi = old->csi;
	} else if (!status_is_final(status)) {
		log_limited(LOG_LEVEL_WARNING, "%s: namespace %u: its descriptors could not be read: %s",
			    ctrlr->trid.traddr, ns->nsid, nvme_status_text(status));
		/* EAGAIN: the scan is repeated later, and I/O goes on */
		scan_end(s, ctrlr->state == NVME_CTRLR_READY ? -EAGAIN : -EIO);
		return;
	}
	scan_identify_next(s);
}

static void scan_descriptors_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ns_scan *s = arg;

	if (scan_is_aborted(s)) {
		return;
	}
	if (nvme_cqe_status(cqe) != 0) {
		scan_descriptors_refused(s, nvme_cqe_status(cqe));
		return;
	}
	ns_parse_descriptors(&s->table->ns[s->table->count - 1], s->buf, NVME_IDENTIFY_DATA_SIZE);
	scan_identify_next(s);
}

/* The Identify of a namespace failed: the other namespaces can be used nevertheless. One that was known stays as it
 * was, unless the controller says that it does not exist. */
static void scan_identify_refused(struct nvme_ns_scan *s, uint32_t nsid, uint16_t status)
{
	const struct nvme_ctrlr *ctrlr = s->ctrlr;
	const struct nvme_ns *old = ctrlr->state == NVME_CTRLR_READY ? ns_find_known(ctrlr, nsid) : NULL;
	bool stays = old != NULL && (status & STATUS_MASK) != NVME_SC_INVALID_NS;

	log_warning("%s: namespace %u is %s: its Identify failed: %s", ctrlr->trid.traddr, nsid,
		    stays ? "taken to be as it was" : "left out", nvme_status_text(status));
	if (stays) {
		s->table->ns[s->table->count++] = *old;
	}
}

/* What is left of a namespace: the identifiers that NVMe 1.3 has added. */
static void scan_identify_rest(struct nvme_ns_scan *s)
{
	const struct nvme_ns *ns = &s->table->ns[s->table->count - 1];

	if (s->ctrlr->vs < VERSION_1_3) {
		scan_identify_next(s);
		return;
	}
	memset(s->buf, 0, NVME_IDENTIFY_DATA_SIZE);
	scan_identify(s, NVME_IDENTIFY_CNS_NS_DESC_LIST, ns->nsid, scan_descriptors_done);
}

/* NVM 4.1.5.3: the format of its protection information. Controllers differ in the bits of the storage tag's mask that
 * are beyond the tag. */
static void scan_format_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ns_scan *s = arg;

	if (scan_is_aborted(s)) {
		return;
	}
	struct nvme_ns *ns = &s->table->ns[s->table->count - 1];
	if (nvme_cqe_status(cqe) != 0) {
		if (scan_is_cut_off(s)) {
			scan_end(s, -ENXIO);
			return;
		}
		s->table->count--;
		scan_identify_refused(s, ns->nsid, nvme_cqe_status(cqe));
		scan_identify_next(s);
		return;
	}
	const struct nvme_nvm_id_ns *id = (const void *)s->buf;
	uint32_t elbaf = le32toh(id->elbaf[ns_format(&ns->id)]);
	ns->pi_format = (elbaf & NVME_NVM_ELBAF_PIF_MASK) >> NVME_NVM_ELBAF_PIF_SHIFT;
	ns->storage_bits = elbaf & NVME_NVM_ELBAF_STS_MASK;
	ns->storage_mask = le64toh(id->lbstm) & nvme_low_bits(ns->storage_bits);
	scan_identify_rest(s);
}

static bool scan_has_extended_formats(const struct nvme_ns_scan *s)
{
	return (le32toh(s->ctrlr->id.ctratt) & NVME_CTRL_CTRATT_ELBAS) != 0;
}

static void scan_identify_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ns_scan *s = arg;

	if (scan_is_aborted(s)) {
		return;
	}
	uint32_t nsid = s->nsids[s->next - 1];
	if (nvme_cqe_status(cqe) != 0) {
		if (scan_is_cut_off(s)) {
			scan_end(s, -ENXIO);
			return;
		}
		scan_identify_refused(s, nsid, nvme_cqe_status(cqe));
		scan_identify_next(s);
		return;
	}
	struct nvme_ns *ns = &s->table->ns[s->table->count];
	*ns = (struct nvme_ns){.nsid = nsid};
	memcpy(&ns->id, s->buf, sizeof(ns->id)); /* copied first: the controller can still write to the buffer */
	ns_restore_size(s->ctrlr, nsid, &ns->id);
	if (!ns_parse(ns, s->ctrlr->stripe_bytes)) {
		scan_identify_next(s);
		return;
	}
	s->table->count++;
	if (ns->pi_type != 0 && scan_has_extended_formats(s)) {
		memset(s->buf, 0, NVME_IDENTIFY_DATA_SIZE);
		scan_identify(s, NVME_IDENTIFY_CNS_CSI_NS, nsid, scan_format_done); /* CSI 0: of NVM */
	} else {
		scan_identify_rest(s);
	}
}

static void scan_identify_next(struct nvme_ns_scan *s)
{
	if (s->next == s->num_nsids) {
		scan_end(s, 0);
		return;
	}
	scan_identify(s, NVME_IDENTIFY_CNS_NS, s->nsids[s->next++], scan_identify_done);
}

static void scan_list_complete(struct nvme_ns_scan *s)
{
	s->table = calloc(1, sizeof(*s->table) + s->num_nsids * sizeof(s->table->ns[0]));
	if (s->table == NULL) {
		scan_end(s, -ENOMEM);
		return;
	}
	scan_identify_next(s);
}

static bool scan_append_nsid(struct nvme_ns_scan *s, uint32_t nsid)
{
	if (s->num_nsids % NSIDS_PER_LIST == 0) {
		uint32_t *more = realloc(s->nsids, (s->num_nsids + NSIDS_PER_LIST) * sizeof(*more));
		if (more == NULL) {
			return false;
		}
		s->nsids = more;
	}
	s->nsids[s->num_nsids++] = nsid;
	return true;
}

static void scan_list_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ns_scan *s = arg;
	const uint32_t *list;
	uint32_t last, n;

	if (scan_is_aborted(s)) {
		return;
	}
	if (nvme_cqe_status(cqe) != 0) {
		log_warning("%s: the list of namespaces could not be read: %s", s->ctrlr->trid.traddr,
			    nvme_status_text(nvme_cqe_status(cqe)));
		scan_end(s, -EIO);
		return;
	}
	list = (const uint32_t *)s->buf;
	last = s->num_nsids ? s->nsids[s->num_nsids - 1] : 0;
	for (n = 0; n < NSIDS_PER_LIST && list[n] != 0 && s->num_nsids < NAMESPACES_MAX; n++) {
		uint32_t nsid = le32toh(list[n]);

		/* the ids must ascend, as specified, or the list would never end. NN is not compared: it may have grown
		 * since it was read. */
		if (nsid <= last || nsid >= NSID_INVALID_FROM) {
			log_limited(LOG_LEVEL_WARNING, "%s: the list of namespaces has %u after %u",
				    s->ctrlr->trid.traddr, nsid, last);
			scan_end(s, -EPROTO);
			return;
		}
		if (!scan_append_nsid(s, nsid)) {
			scan_end(s, -ENOMEM);
			return;
		}
		last = nsid;
	}
	if (s->num_nsids == NAMESPACES_MAX) {
		log_limited(LOG_LEVEL_WARNING, "%s: %u namespaces are used, those after namespace %u are left out",
			    s->ctrlr->trid.traddr, NAMESPACES_MAX, last);
	} else if (n == NSIDS_PER_LIST) {
		scan_identify(s, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, last, scan_list_done);
		return;
	}
	scan_list_complete(s);
}

static void scan_list(struct nvme_ns_scan *s)
{
	scan_identify(s, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST, 0, scan_list_done);
}

/* A controller that does not have the structure has no such limits. */
static void scan_limits_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ns_scan *s = arg;

	if (scan_is_aborted(s)) {
		return;
	}
	if (nvme_cqe_status(cqe) == 0) {
		const struct nvme_id_ctrl_nvm *id = (const void *)s->buf;

		s->ctrlr->wzsl = id->wzsl;
		s->ctrlr->dmrsl = le32toh(id->dmrsl);
	}
	memset(s->buf, 0, NVME_IDENTIFY_DATA_SIZE);
	scan_list(s);
}

/* Controllers before NVMe 2.0 are not asked: they lack the structure, and drives count the question as an error. */
static void scan_limits(struct nvme_ns_scan *s)
{
	s->ctrlr->wzsl = 0;
	s->ctrlr->dmrsl = 0;
	if (s->ctrlr->vs < VERSION_2_0) {
		scan_list(s);
	} else {
		scan_identify(s, NVME_IDENTIFY_CNS_CSI_CTRL, 0, scan_limits_done);
	}
}

/* Without it the controller refuses I/O on the namespaces concerned. */
static void scan_behavior_done(void *arg, const struct nvme_cqe *cqe)
{
	struct nvme_ns_scan *s = arg;

	if (scan_is_aborted(s)) {
		return;
	}
	uint16_t status = nvme_cqe_status(cqe);
	if (status != 0 && scan_is_cut_off(s)) {
		scan_end(s, -ENXIO);
		return;
	}
	if (status != 0) {
		log_warning("%s: Host Behavior Support (LBAFEE) could not be set, which namespaces with extended "
			    "protection information need: %s",
			    s->ctrlr->trid.traddr, nvme_status_text(status));
	}
	if (status != 0 && !status_is_final(status)) {
		scan_end(s, -EIO);
		return;
	}
	s->ctrlr->extended_formats = status == 0;
	memset(s->buf, 0, NVME_IDENTIFY_DATA_SIZE);
	scan_limits(s);
}

static void scan_set_behavior(struct nvme_ns_scan *s)
{
	const struct nvme_sqe cmd = {.opcode = nvme_admin_set_features, .cdw10 = htole32(NVME_FEAT_FID_HOST_BEHAVIOR)};

	s->buf[NVME_HOST_BEHAVIOR_LBAFEE] = 1;
	scan_send(s, &cmd, sizeof(struct nvme_feat_host_behavior), true, scan_behavior_done);
}

/* What belongs to the connection is asked and set once for each, as it does not change meanwhile. */
static void scan_begin(struct nvme_ns_scan *s)
{
	if (s->ctrlr->state != NVME_CTRLR_SCAN_NS) {
		scan_list(s);
		return;
	}
	s->ctrlr->extended_formats = false;
	if (scan_has_extended_formats(s)) {
		scan_set_behavior(s);
	} else {
		scan_limits(s);
	}
}

void nvme_ns_scan(struct nvme_ctrlr *ctrlr, void (*done)(struct nvme_ctrlr *ctrlr, int error))
{
	if (ctrlr->scan != NULL) { /* the scan under way may have passed the namespace that changed */
		ctrlr->scan_again = true;
		return;
	}
	ctrlr->scan_again = false;
	struct nvme_ns_scan *s = calloc(1, sizeof(*s));
	if (s != NULL) {
		s->buf = env_dma_zmalloc(NVME_IDENTIFY_DATA_SIZE, NVME_IDENTIFY_DATA_SIZE, -1);
	}
	if (s == NULL || s->buf == NULL) {
		free(s);
		done(ctrlr, -ENOMEM);
		return;
	}
	s->ctrlr = ctrlr;
	s->done = done;
	ctrlr->scan = s;
	scan_begin(s);
}

void nvme_ns_scan_abort(struct nvme_ctrlr *ctrlr)
{
	if (ctrlr->scan != NULL) {
		ctrlr->scan->aborted = true;
		ctrlr->scan = NULL;
	}
	ctrlr->scan_again = false;
}

const struct nvme_ns *nvme_ctrlr_next_ns(const struct nvme_ctrlr *ctrlr, uint32_t after)
{
	const struct nvme_ns_table *t = ctrlr->ns;
	uint32_t low = 0, high = t != NULL ? t->count : 0;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (t->ns[middle].nsid > after) {
			high = middle;
		} else {
			low = middle + 1;
		}
	}
	return t != NULL && low < t->count ? &t->ns[low] : NULL;
}
