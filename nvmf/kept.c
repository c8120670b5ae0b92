/* SPDX-License-Identifier: BSD-3-Clause */
/* What of a target outlives it (bdev/kept_stat.h): its statistics, and which controller ids were given last. Hosts and
 * limits keep their own. Control thread, if nothing else is said. */
#include <stdlib.h>
#include <string.h>
#include "bdev/kept_stat.h"
#include "nvmf/internal.h"

struct nvmf_kept_set nvmf_kept_set(const char *what, const struct nvmf_tgt *tgt, const char *of)
{
	struct nvmf_kept_set set;

	snprintf(set.name, sizeof(set.name), "nvmf %s: %.64s %s", what, tgt->name, of);
	return set;
}

/* ---- Subsystems ---- */

static const struct kept_stat_field subsystem_field_list[] = {
	{.name = "next_cntlid", .type = KEPT_STAT_U16, .offset = offsetof(struct nvmf_subsystem, next_cntlid), .n = 1},
};
static const struct kept_stat_fields subsystem_fields = {subsystem_field_list, ARRAY_SIZE(subsystem_field_list)};

void nvmf_subsystem_note_kept(const struct nvmf_subsystem *s)
{
	struct nvmf_kept_set set = nvmf_kept_set("subsystems", s->tgt, "");

	kept_stat_note(set.name, s->nqn, &subsystem_fields, s);
}

void nvmf_subsystem_take_kept(struct nvmf_subsystem *s)
{
	struct nvmf_kept_set set = nvmf_kept_set("subsystems", s->tgt, "");

	kept_stat_take(set.name, s->nqn, &subsystem_fields, s);
	if (s->next_cntlid < s->min_cntlid || s->next_cntlid > s->max_cntlid) {
		s->next_cntlid = s->min_cntlid;
	}
	nvmf_host_latencies_take(s);
}

/* ---- Poll groups ---- */

static const char group_set[] = "nvmf poll groups";
static const struct kept_stat_field group_field_list[] = {
	KEPT_STAT(struct nvmf_poll_group_stats, "admin_qpairs", admin_qpairs),
	KEPT_STAT(struct nvmf_poll_group_stats, "io_qpairs", io_qpairs),
	KEPT_STAT(struct nvmf_poll_group_stats, "completed", completed_nvme_io),
	KEPT_STAT(struct nvmf_poll_group_stats, "failed", failed_nvme_io),
};
static const struct kept_stat_fields group_fields = {group_field_list, ARRAY_SIZE(group_field_list)};

void nvmf_poll_group_take_kept(struct nvmf_poll_group *group)
{
	static struct nvmf_poll_group_stats stats; /* too large for the control thread's stack */

	stats = (struct nvmf_poll_group_stats){0};
	kept_stat_take(group_set, nvmf_poll_group_name(group), &group_fields, &stats);
	group->admin_qpairs = stats.admin_qpairs;
	group->io_qpairs = stats.io_qpairs;
	group->completed = stats.completed_nvme_io;
	group->failed = stats.failed_nvme_io;
}

/* ---- Transports ---- */

struct nvmf_kept_transport {
	uint64_t pending_data_buffer;
	unsigned num_devices;
	struct nvmf_device_stats devices[NVMF_STATS_DEVICES_MAX];
};

static const char transport_set[] = "nvmf transports";
static const struct kept_stat_field waits_field = {.name = "pending_data_buffer", .n = 1}; /* of a uint64_t */
static const struct kept_stat_fields transport_fields = {&waits_field, 1};

struct part_name {
	char text[THREAD_NAME_MAX + 64];
};

static struct part_name part_name_of(const char *prefix, const struct nvmf_poll_group *group, const char *trtype)
{
	struct part_name name;

	snprintf(name.text, sizeof(name.text), "%s%s %s", prefix, nvmf_poll_group_name(group), trtype);
	return name;
}

static struct part_name device_set_of(const struct nvmf_poll_group *group, const char *trtype)
{
	return part_name_of("nvmf devices: ", group, trtype);
}

/* The counters of a transport's devices. */
struct device_fields {
	struct kept_stat_field list[NVMF_DEVICE_COUNTERS_MAX];
	struct kept_stat_fields fields;
};

static void device_fields_fill(struct device_fields *f, const char *trtype)
{
	const struct nvmf_device_counter *c;

	f->fields = (struct kept_stat_fields){.list = f->list};
	for (unsigned n = 0; (c = nvmf_transport_counter(trtype, n)) != NULL; n++) {
		if (!c->is_level) {
			f->list[f->fields.n++] = (struct kept_stat_field){
				.name = c->name, .offset = offsetof(struct nvmf_device_stats, counters[n]), .n = 1};
		}
	}
}

static void transport_note_kept(const struct nvmf_poll_group *group, const struct nvmf_transport_stats *ts)
{
	struct part_name name = part_name_of("", group, ts->trtype), set = device_set_of(group, ts->trtype);
	struct device_fields f;

	kept_stat_note(transport_set, name.text, &transport_fields, &ts->pending_data_buffer);
	device_fields_fill(&f, ts->trtype);
	for (unsigned d = 0; d < ts->num_devices; d++) {
		kept_stat_note(set.text, ts->devices[d].name, &f.fields, &ts->devices[d]);
	}
}

void nvmf_poll_group_note_kept(struct nvmf_poll_group *group)
{
	static struct nvmf_poll_group_stats stats; /* too large for the control thread's stack */

	nvmf_poll_group_get_stats(group, &stats);
	kept_stat_note(group_set, nvmf_poll_group_name(group), &group_fields, &stats);
	for (unsigned t = 0; t < stats.num_transports; t++) {
		transport_note_kept(group, &stats.transports[t]);
	}
}

static void transport_take_devices(struct nvmf_kept_transport *kept, const char *set, const char *trtype)
{
	struct device_fields f;
	const char *device;

	device_fields_fill(&f, trtype);
	while ((device = kept_stat_first(set)) != NULL) {
		unsigned n =
			kept->num_devices < NVMF_STATS_DEVICES_MAX ? kept->num_devices++ : NVMF_STATS_DEVICES_MAX - 1;
		struct nvmf_device_stats *d = &kept->devices[n];
		snprintf(d->name, sizeof(d->name), "%s", device);
		kept_stat_take(set, device, &f.fields, d);
	}
}

struct nvmf_kept_transport *nvmf_transport_take_kept(const struct nvmf_poll_group *group,
						     const struct nvmf_transport *transport)
{
	const char *trtype = transport->ops->name;
	struct part_name name = part_name_of("", group, trtype), set = device_set_of(group, trtype);
	uint64_t waits = 0;

	if (!kept_stat_take(transport_set, name.text, &transport_fields, &waits) && kept_stat_first(set.text) == NULL) {
		return NULL;
	}
	struct nvmf_kept_transport *kept = calloc(1, sizeof(*kept));
	if (kept == NULL) {
		log_error("%s: no memory for the statistics of %s, which begin anew", nvmf_poll_group_name(group),
			  trtype);
		return NULL;
	}
	kept->pending_data_buffer = waits;
	transport_take_devices(kept, set.text, trtype);
	return kept;
}

static const struct nvmf_device_stats *kept_device_find(const struct nvmf_kept_transport *kept, const char *name)
{
	for (unsigned i = 0; i < kept->num_devices; i++) {
		if (strcmp(kept->devices[i].name, name) == 0) {
			return &kept->devices[i];
		}
	}
	return NULL;
}

void nvmf_transport_add_kept(const struct nvmf_transport_group *tgroup, struct nvmf_transport_stats *stats)
{
	const struct nvmf_kept_transport *kept = tgroup->kept;

	if (kept == NULL) {
		return;
	}
	stats->pending_data_buffer += kept->pending_data_buffer;
	for (unsigned i = 0; i < stats->num_devices; i++) {
		struct nvmf_device_stats *d = &stats->devices[i];
		const struct nvmf_device_stats *k = kept_device_find(kept, d->name);
		for (unsigned c = 0; k != NULL && c < NVMF_DEVICE_COUNTERS_MAX; c++) {
			d->counters[c] += k->counters[c];
		}
	}
}
