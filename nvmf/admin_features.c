/* SPDX-License-Identifier: BSD-3-Clause */
/* Get and Set Features: Base 5.15, 5.27, NVM 4.1.3. Control thread.
 *
 * Features cannot be saved (ONCS bit 4 is 0), so the saved value of a feature is its default (Base 4.2). */
#include <stdlib.h>
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

#define WHERE_FID  NVMF_WHERE_CDW10
#define WHERE_SAVE NVMF_WHERE(43, 7)

#define DEFAULT_TEMPERATURE_OVER  0xffff /* Kelvin: never */
#define DEFAULT_TEMPERATURE_UNDER 0
/* The asynchronous events that the target raises: hosts can set these bits. */
#define ASYNC_EVENTS_NS        ((uint32_t)NVME_FEATURE_AENCFG_NOTICE_NAMESPACE_ATTRIBUTES)
#define ASYNC_EVENTS_ANA       ((uint32_t)NVME_FEATURE_AENCFG_NOTICE_ANA_CHANGE)
#define ASYNC_EVENTS_CROSS     NVME_AENCFG_NOTICE_CROSS_CTRL_RESET
#define ASYNC_EVENTS_DISCOVERY ((uint32_t)NVME_FEATURE_AENCFG_NOTICE_DISCOVERY_CHANGE)
/* Health warnings, which are never raised; every controller lets hosts configure them. */
#define ASYNC_EVENTS_SMART 0x3f

/* Notices about namespaces are enabled by default; a host may disable them. */
static uint32_t feature_default_async_events(const struct nvmf_ctrlr *ctrlr)
{
	if (ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY) {
		return 0;
	}
	return ASYNC_EVENTS_NS | ASYNC_EVENTS_CROSS | (ctrlr->ana != NULL ? ASYNC_EVENTS_ANA : 0);
}

void nvmf_features_reset(struct nvmf_ctrlr *ctrlr)
{
	ctrlr->features = (struct nvmf_features){
		.temperature_over = DEFAULT_TEMPERATURE_OVER,
		.temperature_under = DEFAULT_TEMPERATURE_UNDER,
		.volatile_write_cache = 1,
		.async_events = feature_default_async_events(ctrlr),
	};
	memset(ctrlr->event_pending, 0, sizeof(ctrlr->event_pending));
	memset(ctrlr->event_masked, 0, sizeof(ctrlr->event_masked));
	ctrlr->num_changed_ns = 0;
	ctrlr->resv_log.num = 0;
	free(ctrlr->resv_mask);
	ctrlr->resv_mask = NULL;
}

/* Gets or sets a feature. Returns a status; *value is dword 0 of the completion. */
typedef uint16_t (*feature_fn)(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
			       uint16_t *where);

/* ---- Features whose value is one dword that the host sets ---- */

static uint32_t *feature_plain_value(struct nvmf_features *features, uint8_t fid)
{
	switch (fid) {
	case NVME_FEAT_FID_ARBITRATION:
		return &features->arbitration;
	case NVME_FEAT_FID_ERR_RECOVERY:
		return &features->error_recovery;
	case NVME_FEAT_FID_VOLATILE_WC:
		return &features->volatile_write_cache;
	default:
		return &features->write_atomicity;
	}
}

static uint16_t feature_get_plain(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				  uint16_t *where)
{
	*value = *feature_plain_value(&nvmf_request_ctrlr(req)->features, f->fid);
	return NVME_ST_SUCCESS;
}

/* Volatile Write Cache: while it is disabled, each write is on the medium when it ends. */
static uint16_t feature_set_write_cache(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					uint16_t *where)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	uint32_t enabled = NVME_GET(f->cdw11, FEAT_VWC_WCE);
	struct nvmf_qpair *qpair;

	ctrlr->features.volatile_write_cache = enabled;
	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		atomic_store_explicit(&qpair->write_through, enabled == 0, memory_order_relaxed);
	}
	return NVME_ST_SUCCESS;
}

/* Error Recovery is set for a namespace. Its value has no effect, so that one is kept for all namespaces. DULBE needs
 * namespaces that report deallocated blocks (NSFEAT bit 2), which these do not. */
static uint16_t feature_set_error_recovery(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					   uint16_t *where)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);

	if (f->nsid != 0 && f->nsid != NVME_NSID_ALL &&
	    (nvmf_ns_find(ctrlr->subsystem, f->nsid) == NULL || !nvmf_ctrlr_sees(ctrlr, f->nsid))) {
		*where = NVMF_WHERE_NSID;
		return NVME_ST_DNR(GENERIC, INVALID_NS);
	}
	if (NVME_GET(f->cdw11, FEAT_ERROR_RECOVERY_DULBE)) {
		return nvmf_bad_field(where, NVMF_WHERE(46, 0));
	}
	ctrlr->features.error_recovery = f->cdw11;
	return NVME_ST_SUCCESS;
}

static uint16_t feature_set_plain(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				  uint16_t *where)
{
	*feature_plain_value(&nvmf_request_ctrlr(req)->features, f->fid) = f->cdw11;
	return NVME_ST_SUCCESS;
}

/* ---- Power management: there is one power state ---- */

static uint16_t feature_get_power(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				  uint16_t *where)
{
	*value = nvmf_request_ctrlr(req)->features.power_management;
	return NVME_ST_SUCCESS;
}

static uint16_t feature_set_power(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				  uint16_t *where)
{
	if (NVME_GET(f->cdw11, FEAT_PWRMGMT_PS) != 0) {
		return nvmf_bad_field(where, NVMF_WHERE_CDW11);
	}
	nvmf_request_ctrlr(req)->features.power_management = f->cdw11;
	return NVME_ST_SUCCESS;
}

/* ---- Temperature thresholds: for the composite temperature only ---- */

static uint32_t *feature_threshold(struct nvmf_ctrlr *ctrlr, uint32_t cdw11)
{
	return NVME_GET(cdw11, FEAT_TT_THSEL) == NVME_FEATURE_TEMPTHRESH_THSEL_OVER
		       ? &ctrlr->features.temperature_over
		       : &ctrlr->features.temperature_under;
}

static uint16_t feature_check_threshold(const struct nvmf_feature *f, bool set, uint16_t *where)
{
	uint32_t select = NVME_GET(f->cdw11, FEAT_TT_TMPSEL);

	if (NVME_GET(f->cdw11, FEAT_TT_THSEL) > NVME_FEATURE_TEMPTHRESH_THSEL_UNDER) {
		return nvmf_bad_field(where, NVMF_WHERE(46, 4));
	}
	/* Fh, for Set Features: all sensors. */
	return select == 0 || (set && select == 0xf) ? NVME_ST_SUCCESS : nvmf_bad_field(where, NVMF_WHERE(46, 0));
}

static uint16_t feature_get_temperature(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					uint16_t *where)
{
	uint16_t status = feature_check_threshold(f, false, where);

	if (status == NVME_ST_SUCCESS) {
		*value = *feature_threshold(nvmf_request_ctrlr(req), f->cdw11);
	}
	return status;
}

static uint16_t feature_set_temperature(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					uint16_t *where)
{
	uint16_t status = feature_check_threshold(f, true, where);

	if (status == NVME_ST_SUCCESS) {
		*feature_threshold(nvmf_request_ctrlr(req), f->cdw11) = NVME_GET(f->cdw11, FEAT_TT_TMPTH);
	}
	return status;
}

/* ---- Number of queues: a host gets the maximum, whatever it asks for ---- */

static uint32_t feature_num_queues(const struct nvmf_ctrlr *ctrlr)
{
	uint32_t n = ctrlr->max_io_qpairs - 1;

	return n | n << 16;
}

static uint16_t feature_get_num_queues(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				       uint16_t *where)
{
	*value = feature_num_queues(nvmf_request_ctrlr(req));
	return NVME_ST_SUCCESS;
}

/* An error once there are I/O queues. FFFFh, which would be 65536, is invalid (Base 5.27.1.5). */
static uint16_t feature_set_num_queues(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				       uint16_t *where)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);

	if ((f->cdw11 & 0xffff) == 0xffff || f->cdw11 >> 16 == 0xffff) {
		return nvmf_bad_field(where, NVMF_WHERE_CDW11);
	}
	if (ctrlr->num_io_qpairs != 0) {
		*where = WHERE_FID;
		return NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR);
	}
	*value = feature_num_queues(ctrlr);
	return NVME_ST_SUCCESS;
}

/* ---- Asynchronous events ---- */

static uint16_t feature_get_async_events(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					 uint16_t *where)
{
	*value = nvmf_request_ctrlr(req)->features.async_events;
	return NVME_ST_SUCCESS;
}

static uint16_t feature_set_async_events(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					 uint16_t *where)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	uint32_t possible = ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY
				    ? ASYNC_EVENTS_DISCOVERY
				    : feature_default_async_events(ctrlr) | ASYNC_EVENTS_SMART;

	ctrlr->features.async_events = f->cdw11 & possible;
	return NVME_ST_SUCCESS;
}

/* ---- Keep-alive timer ---- */

static uint16_t feature_get_kato(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				 uint16_t *where)
{
	*value = atomic_load_explicit(&nvmf_request_ctrlr(req)->kato_ms, memory_order_relaxed);
	return NVME_ST_SUCCESS;
}

static uint16_t feature_set_kato(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				 uint16_t *where)
{
	nvmf_keepalive_set(nvmf_request_ctrlr(req), f->cdw11);
	return NVME_ST_SUCCESS;
}

/* ---- Host identifier: Connect sets it, and it cannot be changed (Base 5.27.1.25) ---- */

static uint16_t feature_get_host_id(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				    uint16_t *where)
{
	struct nvmf_window w = {.req = req};

	if (!NVME_GET(f->cdw11, FEAT_HOSTID_EXHID)) {
		return nvmf_bad_field(where, NVMF_WHERE_CDW11);
	}
	nvmf_window_put(&w, 0, nvmf_request_ctrlr(req)->hostid, sizeof(nvmf_request_ctrlr(req)->hostid));
	return NVME_ST_SUCCESS;
}

static uint16_t feature_set_host_id(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				    uint16_t *where)
{
	*where = WHERE_FID;
	return NVME_ST_DNR(GENERIC, CMD_SEQ_ERROR);
}

/* ---- Host behavior support ---- */

_Static_assert(sizeof(struct nvme_feat_host_behavior) == 512 && offsetof(struct nvme_feat_host_behavior, acre) == 0,
	       "Base 5.27.1.18");

static uint16_t feature_get_behavior(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				     uint16_t *where)
{
	const struct nvmf_features *features = &nvmf_request_ctrlr(req)->features;
	uint8_t behavior[sizeof(struct nvme_feat_host_behavior)] = {features->advanced_retry};
	struct nvmf_window w = {.req = req};

	behavior[NVME_HOST_BEHAVIOR_LBAFEE] = features->extended_formats;
	nvmf_window_put(&w, 0, behavior, sizeof(behavior));
	return NVME_ST_SUCCESS;
}

static uint16_t feature_set_behavior(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				     uint16_t *where)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	uint8_t behavior[sizeof(struct nvme_feat_host_behavior)] = {0};
	struct nvmf_qpair *qpair;

	nvmf_request_copy_data(req, behavior, sizeof(behavior));
	if (behavior[0] > NVME_ENABLE_ACRE || behavior[NVME_HOST_BEHAVIOR_LBAFEE] > 1) {
		return nvmf_bad_field(where, NVMF_WHERE_NOWHERE);
	}
	ctrlr->features.advanced_retry = behavior[0] != 0;
	ctrlr->features.extended_formats = behavior[NVME_HOST_BEHAVIOR_LBAFEE] != 0;
	TAILQ_FOREACH (qpair, &ctrlr->qpairs, ctrlr_link) {
		atomic_store_explicit(&qpair->extended_formats, ctrlr->features.extended_formats, memory_order_relaxed);
	}
	return NVME_ST_SUCCESS;
}

/* ---- Reservations: features of a namespace (Base 5.27.1.26 and 27) ---- */

#define RESV_MASK_BITS (NVME_FEAT_RESV_NOTIFY_REGPRE | NVME_FEAT_RESV_NOTIFY_RESREL | NVME_FEAT_RESV_NOTIFY_RESPRE)

/* The ANA state has to allow access to the namespace (Base 8.1.3). */
static uint16_t feature_find_resv_ns(const struct nvmf_request *req, const struct nvmf_feature *f, struct nvmf_ns **ns,
				     uint16_t *where)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);

	*ns = nvmf_ctrlr_visible_ns(ctrlr, f->nsid);
	*where = NVMF_WHERE_NSID;
	if (f->nsid == NVME_NSID_ALL) {
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
	return *ns == NULL ? NVME_ST_DNR(GENERIC, INVALID_NS) : nvmf_ana_status(nvmf_ana_of(ctrlr, *ns));
}

static uint16_t feature_get_resv_mask(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				      uint16_t *where)
{
	const struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	struct nvmf_ns *ns;
	uint16_t status = feature_find_resv_ns(req, f, &ns, where);

	if (status == NVME_ST_SUCCESS) {
		*value = ctrlr->resv_mask != NULL ? ctrlr->resv_mask[f->nsid - 1] : 0;
	}
	return status;
}

static uint16_t feature_set_resv_mask(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
				      uint16_t *where)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	uint8_t mask = f->cdw11 & RESV_MASK_BITS;
	struct nvmf_ns *ns;
	uint16_t status = f->nsid == NVME_NSID_ALL ? NVME_ST_SUCCESS : feature_find_resv_ns(req, f, &ns, where);

	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	if (ctrlr->resv_mask == NULL) {
		ctrlr->resv_mask = calloc(ctrlr->subsystem->max_nsid, 1);
	}
	if (ctrlr->resv_mask == NULL) {
		*where = NVMF_WHERE_NOWHERE;
		return NVME_ST(GENERIC, INTERNAL);
	}
	if (f->nsid == NVME_NSID_ALL) {
		memset(ctrlr->resv_mask, mask, ctrlr->subsystem->max_nsid);
	} else {
		ctrlr->resv_mask[f->nsid - 1] = mask;
	}
	return NVME_ST_SUCCESS;
}

static uint16_t feature_get_resv_persist(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					 uint16_t *where)
{
	struct nvmf_ns *ns;
	uint16_t status = feature_find_resv_ns(req, f, &ns, where);

	if (status == NVME_ST_SUCCESS) {
		*value = nvmf_ns_resv_state(ns)->ptpl;
	}
	return status;
}

#define ANSWERED UINT16_MAX /* or will be */

static uint16_t feature_set_resv_persist(struct nvmf_request *req, const struct nvmf_feature *f, uint32_t *value,
					 uint16_t *where)
{
	struct nvmf_ns *ns;

	if (f->nsid == NVME_NSID_ALL) {
		nvmf_resv_persist_all(req);
		return ANSWERED;
	}
	uint16_t status = feature_find_resv_ns(req, f, &ns, where);
	if (status != NVME_ST_SUCCESS) {
		return status;
	}
	nvmf_resv_persist(req, ns);
	return ANSWERED;
}

/* ---- The table ---- */

static const struct feature {
	feature_fn get, set;
	uint32_t initial; /* the default value */
	bool discovery;
	bool per_ns;
} features[256] = {
	[NVME_FEAT_FID_ARBITRATION] = {feature_get_plain, feature_set_plain, 0, false},
	[NVME_FEAT_FID_POWER_MGMT] = {feature_get_power, feature_set_power, 0, false},
	[NVME_FEAT_FID_TEMP_THRESH] = {feature_get_temperature, feature_set_temperature, DEFAULT_TEMPERATURE_OVER,
				       false},
	[NVME_FEAT_FID_ERR_RECOVERY] = {feature_get_plain, feature_set_error_recovery, 0, false, true},
	[NVME_FEAT_FID_VOLATILE_WC] = {feature_get_plain, feature_set_write_cache, 1, false},
	[NVME_FEAT_FID_NUM_QUEUES] = {feature_get_num_queues, feature_set_num_queues, 0, false},
	[NVME_FEAT_FID_WRITE_ATOMIC] = {feature_get_plain, feature_set_plain, 0, false},
	[NVME_FEAT_FID_ASYNC_EVENT] = {feature_get_async_events, feature_set_async_events, 0, true},
	[NVME_FEAT_FID_KATO] = {feature_get_kato, feature_set_kato, 0, true},
	[NVME_FEAT_FID_HOST_BEHAVIOR] = {feature_get_behavior, feature_set_behavior, 0, false},
	[NVME_FEAT_FID_HOST_ID] = {feature_get_host_id, feature_set_host_id, 0, false},
	[NVME_FEAT_FID_RESV_MASK] = {feature_get_resv_mask, feature_set_resv_mask, 0, false, true},
	[NVME_FEAT_FID_RESV_PERSIST] = {feature_get_resv_persist, feature_set_resv_persist, 0, false, true},
};

static const struct feature *feature_find(const struct nvmf_ctrlr *ctrlr, uint8_t fid)
{
	bool discovery = ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY;
	const struct feature *feature = &features[fid];

	return feature->get != NULL && (!discovery || feature->discovery) ? feature : NULL;
}

uint32_t nvmf_feature_effects(const struct nvmf_ctrlr *ctrlr, uint8_t fid)
{
	const struct feature *feature = feature_find(ctrlr, fid);

	return feature == NULL ? 0 : 1u | (feature->per_ns ? 1u << 20 : 1u << 21);
}

static uint32_t feature_default_value(const struct nvmf_ctrlr *ctrlr, const struct feature *feature,
				      const struct nvmf_feature *f)
{
	switch (f->fid) {
	case NVME_FEAT_FID_NUM_QUEUES:
		return feature_num_queues(ctrlr);
	case NVME_FEAT_FID_ASYNC_EVENT:
		return feature_default_async_events(ctrlr);
	case NVME_FEAT_FID_TEMP_THRESH:
		return NVME_GET(f->cdw11, FEAT_TT_THSEL) == 0 ? DEFAULT_TEMPERATURE_OVER : DEFAULT_TEMPERATURE_UNDER;
	default:
		return feature->initial;
	}
}

/* Capabilities: bit 2 changeable, bit 1 per namespace, bit 0 saveable (Base 5.15). */
static uint32_t feature_capabilities(const struct nvmf_feature *f)
{
	uint32_t per_ns = features[f->fid].per_ns ? 1 << 1 : 0;

	return f->fid == NVME_FEAT_FID_HOST_ID ? 0 : 1 << 2 | per_ns;
}

static uint16_t feature_get_selected(struct nvmf_request *req, const struct feature *feature,
				     const struct nvmf_feature *f, uint32_t *value, uint16_t *where)
{
	switch (f->select) {
	case NVME_GET_FEATURES_SEL_SUPPORTED:
		*value = feature_capabilities(f);
		return NVME_ST_SUCCESS;
	case NVME_GET_FEATURES_SEL_CURRENT:
		return feature->get(req, f, value, where);
	default:
		*value = feature_default_value(nvmf_request_ctrlr(req), feature, f);
		return NVME_ST_SUCCESS;
	}
}

static void feature_answer(struct nvmf_request *req, uint16_t status, uint32_t value, uint16_t where)
{
	if (status == ANSWERED) {
		return;
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_answer_at(req, status, where);
		return;
	}
	req->cqe.dw0 = htole32(value);
	nvmf_request_answer(req, status);
}

void nvmf_get_features_run(struct nvmf_request *req)
{
	struct nvmf_feature f;
	uint32_t value = 0;
	uint16_t where;
	uint16_t status = nvmf_decode_get_features(req->sqe, &f, &where);
	const struct feature *feature = feature_find(nvmf_request_ctrlr(req), f.fid);

	if (status == NVME_ST_SUCCESS && feature == NULL) {
		status = nvmf_bad_field(&where, WHERE_FID);
	}
	if (status == NVME_ST_SUCCESS) {
		status = feature_get_selected(req, feature, &f, &value, &where);
	}
	feature_answer(req, status, value, where);
}

/* Features whose scope is the controller may not be set for a namespace (Base 5.27). */
void nvmf_set_features_run(struct nvmf_request *req)
{
	struct nvmf_feature f;
	uint32_t value = 0;
	uint16_t where;
	uint16_t status = nvmf_decode_set_features(req->sqe, &f, &where);
	const struct feature *feature = feature_find(nvmf_request_ctrlr(req), f.fid);

	if (status == NVME_ST_SUCCESS && feature == NULL) {
		status = nvmf_bad_field(&where, WHERE_FID);
	} else if (status == NVME_ST_SUCCESS && f.save) {
		where = WHERE_SAVE;
		status = NVME_ST_DNR(CMD_SPECIFIC, FEATURE_NOT_SAVEABLE);
	} else if (status == NVME_ST_SUCCESS && !feature->per_ns && f.nsid != 0 && f.nsid != NVME_NSID_ALL) {
		where = NVMF_WHERE_NSID;
		status = NVME_ST_DNR(CMD_SPECIFIC, FEATURE_NOT_PER_NS);
	}
	if (status == NVME_ST_SUCCESS) {
		status = feature->set(req, &f, &value, &where);
	}
	feature_answer(req, status, value, where);
}
