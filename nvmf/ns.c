/* SPDX-License-Identifier: BSD-3-Clause */
/* Namespaces: bdevs with an nsid and identifiers, which are added, removed and resized while hosts use the subsystem.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvmf/internal.h"

static void ns_resized(struct nvmf_ns *ns)
{
	uint64_t before = ns->geo.num_blocks, now = bdev_num_blocks(ns->bdev);

	ns->geo.num_blocks = now;
	if (ns->subsystem->views_open) {
		nvmf_views_update_ns(ns->subsystem, ns);
	}
	/* The method that shrinks a bdev succeeds even if a namespace uses it: only this line says that data are gone.
	 */
	log_write(now < before ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, __FILE__, __LINE__, __func__,
		  "subsystem %s: namespace %u has %lu blocks now%s", ns->subsystem->nqn, ns->nsid, (unsigned long)now,
		  now < before ? ", fewer than before: hosts have lost the data behind the new end" : "");
	nvmf_notice(NVMF_NOTICE_NS_RESIZE, NULL, "%s %u", ns->subsystem->nqn, ns->nsid);
	nvmf_ns_changed(ns->subsystem, ns);
}

static void ns_remove(struct nvmf_ns *ns, nvmf_done_fn done, void *arg);

/* Who deletes a bdev is answered true, whoever uses it: operators hear of it from here. */
static void ns_tell_loss(const struct nvmf_ns *ns)
{
	const struct nvmf_ctrlr *ctrlr;
	unsigned n = 0;
	char why[512];

	TAILQ_FOREACH (ctrlr, &ns->subsystem->ctrlrs, link) {
		/* the hosts of those that are ending have left */
		n += ctrlr->state != NVMF_CTRLR_DESTROYING && nvmf_ns_visible(ns, ctrlr->hostnqn);
	}
	log_write(n > 0 ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, __FILE__, __LINE__, __func__,
		  "subsystem %s: bdev %s is going, and namespace %u with it; %u connected controllers have it",
		  ns->subsystem->nqn, bdev_name(ns->bdev), ns->nsid, n);
	snprintf(why, sizeof(why), "bdev %s is going; %u connected controllers have the namespace", bdev_name(ns->bdev),
		 n);
	nvmf_notice(NVMF_NOTICE_NS_LOST, why, "%s %u", ns->subsystem->nqn, ns->nsid);
}

static void ns_bdev_event(struct bdev_desc *desc, enum bdev_event event, void *arg)
{
	struct nvmf_ns *ns = arg;

	if (event == BDEV_EVENT_RESIZE) {
		ns_resized(ns);
		return;
	}
	if (!ns->removing) {
		ns_tell_loss(ns);
		ns_remove(ns, NULL, NULL);
	}
}

static bool ns_id_is_zero(const void *bytes, size_t len)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; i < len; i++) {
		if (b[i] != 0) {
			return false;
		}
	}
	return true;
}

/* The bytes that one command may transfer: namespaces do not limit them, but the transport does. */
#define NO_TRANSFER_LIMIT UINT32_MAX

static int ns_open(struct nvmf_ns *ns, const char *bdev_name_)
{
	int rc = bdev_open(bdev_name_, true, ns_bdev_event, ns, &ns->desc);

	if (rc == -EROFS) {
		rc = bdev_open(bdev_name_, false, ns_bdev_event, ns, &ns->desc);
	}
	if (rc != 0) {
		log_error("bdev \"%s\" cannot be opened: %s", bdev_name_, strerror(-rc));
		return rc;
	}
	ns->bdev = bdev_desc_bdev(ns->desc);
	rc = bdev_claim(ns->desc, bdev_read_only(ns->bdev) ? BDEV_CLAIM_READ_MANY_WRITE_NONE : BDEV_CLAIM_EXCL_WRITE, 0,
			"nvmf");
	uint32_t block_size = bdev_data_block_size(ns->bdev);
	if (rc == 0 && (block_size < 512 || (block_size & (block_size - 1)) != 0)) {
		log_error("bdev %s has blocks of %u bytes; a namespace needs a power of two from 512 on", bdev_name_,
			  block_size);
		rc = -EINVAL;
	}
	if (rc == 0) {
		ns->geo = (struct nvmf_geometry){
			.num_blocks = bdev_num_blocks(ns->bdev),
			.max_transfer_bytes = NO_TRANSFER_LIMIT,
			.block_shift = (uint8_t)__builtin_ctz(block_size),
		};
		rc = nvmf_md_geometry(ns, &ns->geo);
	}
	if (rc != 0) {
		bdev_close(ns->desc);
	}
	return rc;
}

/* Fills in identifiers that the options leave out. Hosts tell namespaces apart by one of the three. */
static void ns_name(struct nvmf_ns *ns)
{
	if (ns_id_is_zero(ns->opts.uuid, sizeof(ns->opts.uuid))) {
		memcpy(ns->opts.uuid, bdev_uuid(ns->bdev), sizeof(ns->opts.uuid));
	}
	if (ns_id_is_zero(ns->opts.nguid, sizeof(ns->opts.nguid))) {
		memcpy(ns->opts.nguid, ns->opts.uuid, sizeof(ns->opts.nguid));
	}
	if (ns->opts.anagrpid == 0) {
		ns->opts.anagrpid = ns->nsid;
	}
	ns->opts.nsid = ns->nsid;
}

static int ns_check_passthru(const struct nvmf_ns *ns)
{
	const struct nvmf_passthru *p = &ns->opts.passthru;

	if (((p->io[0] | p->io[1]) != 0 && !bdev_io_type_supported(ns->bdev, BDEV_IO_NVME_IO)) ||
	    (p->admin != 0 && !bdev_io_type_supported(ns->bdev, BDEV_IO_NVME_ADMIN))) {
		log_error("bdev %s is not on an NVMe controller that commands could be passed to", bdev_name(ns->bdev));
		return -ENOTSUP;
	}
	return 0;
}

static int ns_persist(struct nvmf_ns *ns)
{
	if (ns->opts.ptpl_file != NULL) {
		ns->ptpl_file = strdup(ns->opts.ptpl_file);
		ns->opts.ptpl_file = ns->ptpl_file;
		if (ns->ptpl_file == NULL) {
			return -ENOMEM;
		}
	}
	return nvmf_resv_attach(ns);
}

static int ns_pick_nsid(const struct nvmf_subsystem *s, uint32_t wanted, uint32_t *nsid)
{
	if (wanted > s->max_nsid) {
		log_error("subsystem %s: nsid %u is beyond max_namespaces %u", s->nqn, wanted, s->max_nsid);
		return -EINVAL;
	}
	if (wanted != 0) {
		*nsid = wanted;
		return s->ns[wanted - 1] == NULL ? 0 : -EEXIST;
	}
	for (uint32_t i = 0; i < s->max_nsid; i++) {
		if (s->ns[i] == NULL) {
			*nsid = i + 1;
			return 0;
		}
	}
	log_error("subsystem %s has its %u namespaces (max_namespaces) already", s->nqn, s->max_nsid);
	return -ENOSPC;
}

static void ns_set_visible(struct nvmf_ns *ns)
{
	struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &ns->subsystem->ctrlrs, link) {
		nvmf_ctrlr_set_visible(ctrlr, ns->nsid, nvmf_ns_visible(ns, ctrlr->hostnqn));
	}
}

static int ns_publish(struct nvmf_ns *ns)
{
	struct nvmf_subsystem *s = ns->subsystem;
	int rc;

	s->ns[ns->nsid - 1] = ns;
	ns_set_visible(ns);
	nvmf_ana_join(ns);
	rc = s->views_open ? nvmf_views_add_ns(s, ns) : 0;
	if (rc != 0) {
		log_error("subsystem %s: namespace %u cannot be added: %s", s->nqn, ns->nsid, strerror(-rc));
		nvmf_ana_leave(ns);
		s->ns[ns->nsid - 1] = NULL;
		return rc;
	}
	USDT(nvmf_subsystem_add_ns, s->nqn, ns->nsid);
	nvmf_notice(NVMF_NOTICE_NS_ADD, NULL, "%s %u", s->nqn, ns->nsid);
	nvmf_ns_changed(s, ns);
	return 0;
}

int nvmf_subsystem_add_ns(struct nvmf_subsystem *s, const char *bdev_name_, const struct nvmf_ns_opts *opts,
			  uint32_t *nsid)
{
	uint32_t picked;
	int rc = nvmf_subsystem_refuse_change(s, "a namespace");

	if (rc == 0) {
		rc = s->subtype == NVMF_SUBTYPE_NVME ? ns_pick_nsid(s, opts->nsid, &picked) : -EINVAL;
	}

	if (rc == 0 && opts->anagrpid > s->max_nsid) {
		log_error("subsystem %s: anagrpid %u is beyond max_namespaces %u", s->nqn, opts->anagrpid, s->max_nsid);
		rc = -EINVAL;
	}
	if (rc != 0) {
		return rc;
	}
	struct nvmf_ns *ns = calloc(1, sizeof(*ns));
	if (ns == NULL || (ns->remove_op = malloc(sizeof(*ns->remove_op))) == NULL) {
		free(ns);
		return -ENOMEM;
	}
	ns->subsystem = s;
	ns->nsid = picked;
	ns->opts = *opts;
	TAILQ_INIT(&ns->hosts);
	rc = ns_open(ns, bdev_name_);
	if (rc != 0) {
		free(ns->remove_op);
		free(ns);
		return rc;
	}
	ns_name(ns);
	rc = ns_check_passthru(ns);
	rc = rc != 0 ? rc : ns_persist(ns);
	rc = rc != 0 ? rc : ns_publish(ns);
	if (rc != 0) {
		nvmf_ns_free(ns);
		return rc;
	}
	*nsid = picked;
	return 0;
}

void nvmf_ns_free(struct nvmf_ns *ns)
{
	nvmf_resv_detach(ns);
	if (ns->ptpl_locked) {
		nvmf_resv_unlock(ns->ptpl_file);
	}
	free(ns->ptpl_file);
	bdev_close(ns->desc);
	nvmf_hosts_free(&ns->hosts);
	ns->subsystem->ns[ns->nsid - 1] = NULL;
	free(ns->remove_op);
	free(ns);
}

/* Hosts hear of it now, so that they submit no more; commands may be under way for a long time. */
static void ns_removal_begins(struct nvmf_subsystem *s, uint32_t nsid)
{
	struct nvmf_ns *ns = s->ns[nsid - 1];

	nvmf_ns_changed(s, ns);
	ns->going = true;
	ns_set_visible(ns);
	nvmf_ana_members_changed(ns);
	/* They were meant for this namespace. */
	nvmf_subsystem_drop_host_ops(s, nsid, -ENOENT);
}

/* No command of the namespace is under way. */
static int ns_remove_apply(struct nvmf_subsystem *s, struct nvmf_op *op)
{
	struct nvmf_ns *ns = s->ns[op->nsid - 1];

	if (s->views_open) {
		nvmf_views_remove_ns(s, ns->nsid);
	}
	USDT(nvmf_subsystem_remove_ns, s->nqn, ns->nsid);
	nvmf_notice(NVMF_NOTICE_NS_REMOVE, NULL, "%s %u", s->nqn, ns->nsid);
	nvmf_ana_leave(ns);
	nvmf_ns_free(ns);
	/* Those that have come since: they were meant for this namespace, and not for the next one of that number. */
	nvmf_subsystem_drop_host_ops(s, op->nsid, -ENOENT);
	return 0;
}

static void ns_remove(struct nvmf_ns *ns, nvmf_done_fn done, void *arg)
{
	struct nvmf_op *op = ns->remove_op;

	*op = (struct nvmf_op){.kind = NVMF_OP_CHANGE,
			       .what = "removal of namespace",
			       .nsid = ns->nsid,
			       .removes = ns_removal_begins,
			       .apply = ns_remove_apply,
			       .done = done,
			       .arg = arg};
	ns->remove_op = NULL;
	ns->removing = true;
	nvmf_subsystem_add_op(ns->subsystem, op);
}

void nvmf_subsystem_remove_ns(struct nvmf_subsystem *s, uint32_t nsid, nvmf_done_fn done, void *arg)
{
	struct nvmf_ns *ns = nvmf_ns_find(s, nsid);
	int rc = nvmf_subsystem_refuse_change(s, "the removal of a namespace");

	if (rc != 0 || ns == NULL || ns->removing) {
		done(arg, rc != 0 ? rc : -ENOENT);
		return;
	}
	ns_remove(ns, done, arg);
}

/* ---- Who sees it ---- */

bool nvmf_ns_visible(const struct nvmf_ns *ns, const char *hostnqn)
{
	return !ns->going && (!ns->opts.no_auto_visible || nvmf_hosts_find(&ns->hosts, hostnqn) != NULL);
}

static void ns_visibility_changed(struct nvmf_ns *ns, const char *hostnqn)
{
	struct nvmf_ctrlr *ctrlr;

	TAILQ_FOREACH (ctrlr, &ns->subsystem->ctrlrs, link) {
		if (strcmp(ctrlr->hostnqn, hostnqn) == 0) {
			/* so that the event below goes to this host in either case */
			nvmf_ctrlr_set_visible(ctrlr, ns->nsid, true);
		}
	}
	nvmf_ana_members_changed(ns);
	nvmf_ns_changed(ns->subsystem, ns);
	ns_set_visible(ns);
}

int nvmf_ns_add_host(struct nvmf_subsystem *s, uint32_t nsid, const char *hostnqn)
{
	struct nvmf_ns *ns = nvmf_ns_find(s, nsid);

	if (nvmf_subsystem_refuse_change(s, "a host of a namespace") != 0) {
		return -EBUSY;
	}
	if (ns == NULL) {
		return -ENOENT;
	}
	if (!ns->opts.no_auto_visible) {
		return -EPERM;
	}
	int rc = nvmf_hosts_add(&ns->hosts, hostnqn);
	if (rc == 0) {
		USDT(nvmf_ns_add_host, s->nqn, nsid, hostnqn);
		ns_visibility_changed(ns, hostnqn);
	}
	return rc;
}

int nvmf_ns_remove_host(struct nvmf_subsystem *s, uint32_t nsid, const char *hostnqn)
{
	struct nvmf_ns *ns = nvmf_ns_find(s, nsid);
	char nqn[NVMF_NQN_MAX + 1];

	if (nvmf_subsystem_refuse_change(s, "a host of a namespace") != 0) {
		return -EBUSY;
	}
	if (ns == NULL) {
		return -ENOENT;
	}
	strncpy(nqn, hostnqn, NVMF_NQN_MAX); /* hostnqn may be the list entry's own memory */
	nqn[NVMF_NQN_MAX] = 0;
	int rc = nvmf_hosts_remove(&ns->hosts, hostnqn);
	if (rc == 0) {
		USDT(nvmf_ns_remove_host, s->nqn, nsid, nqn);
		ns_visibility_changed(ns, nqn);
	}
	return rc;
}

const char *nvmf_ns_next_host(const struct nvmf_ns *ns, const char *after)
{
	return nvmf_hosts_next(&ns->hosts, after);
}

/* ---- Looking ---- */

struct nvmf_ns *nvmf_ns_find(const struct nvmf_subsystem *s, uint32_t nsid)
{
	return nsid != 0 && nsid <= s->max_nsid ? s->ns[nsid - 1] : NULL;
}

struct nvmf_ns *nvmf_ns_next(const struct nvmf_subsystem *s, const struct nvmf_ns *after)
{
	for (uint32_t i = after == NULL ? 0 : after->nsid; i < s->max_nsid; i++) {
		if (s->ns[i] != NULL) {
			return s->ns[i];
		}
	}
	return NULL;
}

uint32_t nvmf_ns_nsid(const struct nvmf_ns *ns)
{
	return ns->nsid;
}

bool nvmf_ns_is_being_removed(const struct nvmf_ns *ns)
{
	return ns->removing;
}

const char *nvmf_ns_bdev_name(const struct nvmf_ns *ns)
{
	return bdev_name(ns->bdev);
}

const struct nvmf_ns_opts *nvmf_ns_get_opts(const struct nvmf_ns *ns)
{
	return &ns->opts;
}

uint32_t nvmf_ns_block_size(const struct nvmf_ns *ns)
{
	return UINT32_C(1) << ns->geo.block_shift;
}
