/* SPDX-License-Identifier: BSD-3-Clause */
/* Get Log Page (Base 5.16). Each function writes the part of its page that is in the host's window. Control thread. */
#include <string.h>
#include "nvmf/command_internal.h"
#include "nvmf/internal.h"

#define WHERE_LID NVMF_WHERE_CDW10
#define WHERE_LPO NVMF_WHERE_CDW12

struct log_page {
	/* Writes the page into a window of zeroes, and returns its length in bytes. A larger offset is an error, except
	 * for the discovery log. */
	uint64_t (*put)(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w);
	int event;                                 /* the enum nvmf_event that reading the page clears, or -1 */
	void (*consume)(struct nvmf_ctrlr *ctrlr); /* what reading does besides, unless RAE is set; may be NULL */
	bool discovery, io;
};

static uint64_t admin_log_put_supported(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd,
					struct nvmf_window *w);

static uint64_t admin_log_put_errors(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	struct nvme_error_log_page entry;

	for (unsigned n = 0; n < NVMF_ERROR_LOG_SIZE && nvmf_error_log_get(&ctrlr->error_log, n, &entry); n++) {
		nvmf_window_put(w, n * sizeof(entry), &entry, sizeof(entry));
	}
	return NVMF_ERROR_LOG_SIZE * sizeof(entry);
}

/* 128-bit counters. */
static void admin_log_put_counter(uint8_t field[16], uint64_t value)
{
	uint64_t le = htole64(value);

	memcpy(field, &le, sizeof(le));
}

/* One data unit is 1000 times 512 bytes; rounded up. */
static uint64_t admin_log_data_units(uint64_t blocks)
{
	return (blocks + 999) / 1000;
}

/* The composite temperature is 0 K, which means not reported: the devices under a subsystem have no common temperature,
 * and an invented one would look like a measurement. Identify has no thresholds for it either (WCTEMP, CCTEMP: 0h, Base
 * 5.17.2.1), so hosts do not expect it. */
static uint64_t admin_log_put_smart(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	struct nvmf_subsystem *s = ctrlr->subsystem;
	struct nvme_smart_log smart = {.avail_spare = 100, .spare_thresh = 10};
	uint64_t hours = (env_ticks() - s->created_ticks) / env_ticks_hz() / 3600;
	struct nvmf_io_counters sum = {0};

	if (s->views_open) {
		nvmf_views_sum(s, &sum);
	}
	admin_log_put_counter(smart.data_units_read, admin_log_data_units(sum.read_blocks));
	admin_log_put_counter(smart.data_units_written, admin_log_data_units(sum.written_blocks));
	admin_log_put_counter(smart.host_reads, sum.read_ops);
	admin_log_put_counter(smart.host_writes, sum.write_ops);
	admin_log_put_counter(smart.power_on_hours, hours);
	admin_log_put_counter(smart.num_err_log_entries,
			      atomic_load_explicit(&ctrlr->error_log.count, memory_order_relaxed));
	nvmf_window_put(w, 0, &smart, sizeof(smart));
	return sizeof(smart);
}

static uint64_t admin_log_put_firmware(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	struct nvme_firmware_slot slots = {.afi = 1};

	memset(slots.frs[0], ' ', sizeof(slots.frs[0]));
	memcpy(slots.frs[0], VARVE_VERSION, strlen(VARVE_VERSION));
	nvmf_window_put(w, 0, &slots, sizeof(slots));
	return sizeof(slots);
}

static uint64_t admin_log_put_changed_ns(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd,
					 struct nvmf_window *w)
{
	struct nvme_ns_list list = {0};

	if (ctrlr->num_changed_ns > NVMF_CHANGED_NS_MAX) {
		list.ns[0] = htole32(NVME_NSID_ALL);
	} else {
		for (uint32_t i = 0; i < ctrlr->num_changed_ns; i++) {
			list.ns[i] = htole32(ctrlr->changed_ns[i]);
		}
	}
	nvmf_window_put(w, 0, &list, sizeof(list));
	return sizeof(list);
}

/* Base 5.16.1.5 */
static void admin_log_consume_changed_ns(struct nvmf_ctrlr *ctrlr)
{
	ctrlr->num_changed_ns = 0;
}

static uint64_t admin_log_put_effects(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	struct nvme_cmd_effects_log log = {0};

	nvmf_command_effects(ctrlr, &log);
	nvmf_window_put(w, 0, &log, sizeof(log));
	return sizeof(log);
}

static uint64_t admin_log_put_feature_effects(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd,
					      struct nvmf_window *w)
{
	uint32_t log[256];

	for (unsigned fid = 0; fid < ARRAY_SIZE(log); fid++) {
		log[fid] = htole32(nvmf_feature_effects(ctrlr, (uint8_t)fid));
	}
	nvmf_window_put(w, 0, log, sizeof(log));
	return sizeof(log);
}

static uint64_t admin_log_put_discovery(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	return nvmf_discovery_log(ctrlr, w);
}

static uint64_t admin_log_put_ana(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	return nvmf_ana_log(ctrlr, cmd, w);
}

static uint64_t admin_log_put_resv(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	return nvmf_resv_log(ctrlr, w);
}

static uint64_t admin_log_put_cross_resets(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd,
					   struct nvmf_window *w)
{
	return nvmf_cross_reset_log(ctrlr, cmd, w);
}

static const struct log_page pages[256] = {
	[NVME_LOG_LID_SUPPORTED_LOG_PAGES] = {admin_log_put_supported, -1, NULL, true, true},
	[NVME_LOG_LID_ERROR] = {admin_log_put_errors, -1, NULL, true, true},
	[NVME_LOG_LID_SMART] = {admin_log_put_smart, -1, NULL, false, true},
	[NVME_LOG_LID_FW_SLOT] = {admin_log_put_firmware, -1, NULL, false, true},
	[NVME_LOG_LID_CHANGED_NS] = {admin_log_put_changed_ns, NVMF_EVENT_NS_CHANGED, admin_log_consume_changed_ns,
				     false, true},
	[NVME_LOG_LID_CMD_EFFECTS] = {admin_log_put_effects, -1, NULL, true, true},
	[NVME_LOG_LID_FID_SUPPORTED_EFFECTS] = {admin_log_put_feature_effects, -1, NULL, true, true},
	[NVME_LOG_LID_ANA] = {admin_log_put_ana, NVMF_EVENT_ANA_CHANGED, NULL, false, true},
	[NVME_LOG_LID_RESERVATION] = {admin_log_put_resv, NVMF_EVENT_RESERVATION, nvmf_resv_log_pop, false, true},
	[NVME_LOG_LID_CROSS_CTRL_RESET] = {admin_log_put_cross_resets, NVMF_EVENT_CROSS_RESET, NULL, false, true},
	[NVME_LOG_LID_DISCOVER] = {admin_log_put_discovery, NVMF_EVENT_DISCOVERY_CHANGED, NULL, true, false},
};

static const struct log_page *admin_log_page_find(const struct nvmf_ctrlr *ctrlr, uint8_t lid)
{
	const struct log_page *page = &pages[lid];
	bool has = ctrlr->subsystem->subtype == NVMF_SUBTYPE_DISCOVERY ? page->discovery : page->io;

	if (lid == NVME_LOG_LID_ANA && ctrlr->ana == NULL) {
		return NULL;
	}
	return has ? page : NULL;
}

/* Bit 0: supported. Bit 1 is 0: no page takes an index as its offset. */
static uint64_t admin_log_put_supported(struct nvmf_ctrlr *ctrlr, const struct nvmf_get_log *cmd, struct nvmf_window *w)
{
	uint32_t log[256] = {0};

	for (unsigned lid = 0; lid < ARRAY_SIZE(log); lid++) {
		log[lid] = htole32(admin_log_page_find(ctrlr, (uint8_t)lid) != NULL);
	}
	nvmf_window_put(w, 0, log, sizeof(log));
	return sizeof(log);
}

/* SMART is a page of the controller (LPA bit 0), not of a namespace. The other pages ignore NSID. */
static bool admin_log_nsid_is_good(const struct nvmf_get_log *cmd)
{
	return cmd->lid != NVME_LOG_LID_SMART || cmd->nsid == 0 || cmd->nsid == NVME_NSID_ALL;
}

/* A host that reads the discovery log in pieces asks for one behind its end if subsystems have been removed since it
 * read the number of entries. It gets zeroes, finds another generation counter when it has all pieces, and reads again;
 * an error would end its discovery. */
static bool admin_log_offset_is_good(const struct nvmf_get_log *cmd, uint64_t length)
{
	return cmd->offset <= length || cmd->lid == NVME_LOG_LID_DISCOVER;
}

void nvmf_get_log_run(struct nvmf_request *req)
{
	struct nvmf_ctrlr *ctrlr = nvmf_request_ctrlr(req);
	struct nvmf_get_log cmd;
	uint16_t where;
	uint16_t status = nvmf_decode_get_log(req->sqe, &cmd, &where);
	const struct log_page *page = admin_log_page_find(ctrlr, cmd.lid);

	if (status == NVME_ST_SUCCESS && page == NULL) {
		status = NVME_ST_DNR(CMD_SPECIFIC, INVALID_LOG_PAGE);
		where = WHERE_LID;
	} else if (status == NVME_ST_SUCCESS && !admin_log_nsid_is_good(&cmd)) {
		status = NVME_ST_DNR(GENERIC, INVALID_FIELD);
		where = NVMF_WHERE_NSID;
	}
	if (status != NVME_ST_SUCCESS) {
		nvmf_request_answer_at(req, status, where);
		return;
	}
	struct nvmf_window w = {.req = req, .start = cmd.offset};
	if (!admin_log_offset_is_good(&cmd, page->put(ctrlr, &cmd, &w))) {
		nvmf_request_answer_at(req, NVME_ST_DNR(GENERIC, INVALID_FIELD), WHERE_LPO);
		return;
	}
	if (page->event >= 0 && !cmd.rae) {
		nvmf_event_clear(ctrlr, (enum nvmf_event)page->event);
		if (page->consume != NULL) {
			page->consume(ctrlr);
		}
	}
	nvmf_request_answer(req, NVME_ST_SUCCESS);
}
