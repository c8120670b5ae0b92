/* SPDX-License-Identifier: BSD-3-Clause */
/* The bdev of a namespace: registers it, keeps it up to date, removes it. Control thread, except for its channels. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/nvme/internal.h"
#include "usdt/usdt.h"
#include "util/log.h"

static size_t ns_io_ctx_room(void)
{
	return offsetof(struct bdev_nvme_io, req) + nvme_request_size();
}

static struct bdev_module bdev_nvme_module = {.name = "nvme",
					      .io_ctx_room = ns_io_ctx_room,
					      .stop = bdev_nvme_stop,
					      .is_idle = bdev_nvme_is_idle,
					      .fini = bdev_nvme_fini,
					      .figures = bdev_nvme_fence_figures};
BDEV_MODULE_REGISTER(bdev_nvme_module)

bool bdev_nvme_is(const struct bdev *b)
{
	return b->module == &bdev_nvme_module;
}

uint32_t bdev_nvme_nsid(const struct bdev *b)
{
	return ((const struct bdev_nvme_ns *)b)->ns.nsid;
}

/* --- Channels --- */

static void channel_close_paths(struct bdev_nvme_channel *ch)
{
	for (unsigned i = 0; i < ch->num_paths; i++) {
		if (ch->paths[i].path != NULL) {
			bdev_nvme_channel_path_close(&ch->paths[i]);
		}
	}
}

/* The mutex makes sure that a path that is added meanwhile is either on the list here, or bdev_nvme_path_add() finds
 * this channel. */
static int channel_open_paths(struct bdev_nvme_ns *d, struct bdev_nvme_channel *ch)
{
	struct bdev_nvme_path *path;
	int rc = 0;

	pthread_mutex_lock(&d->mutex);
	ch->policy = d->policy;
	ch->leaving = d->leaving;
	TAILQ_FOREACH (path, &d->paths, link) {
		if (rc == 0 && !path->leaving) {
			rc = bdev_nvme_channel_path_open(ch, path);
		}
	}
	if (rc == 0) {
		TAILQ_INSERT_TAIL(&d->channels, ch, link);
	}
	pthread_mutex_unlock(&d->mutex);
	if (rc != 0) {
		channel_close_paths(ch);
	}
	return rc;
}

static int ns_channel_create(struct bdev *b, void *channel)
{
	struct bdev_nvme_ns *d = (struct bdev_nvme_ns *)b;
	struct bdev_nvme_channel *ch = channel;

	ch->nsid = d->ns.nsid;
	ch->thread = thread_current();
	STAILQ_INIT(&ch->waiting);
	STAILQ_INIT(&ch->held);
	int rc = channel_open_paths(d, ch);
	if (rc != 0) {
		return rc;
	}
	ch->has_md = d->ns.md_size != 0;
	ch->counts = d->path_stat;
	ch->has_extras = ch->has_md || ch->counts;
	return 0;
}

static void ns_channel_destroy(struct bdev *b, void *channel)
{
	struct bdev_nvme_ns *d = (struct bdev_nvme_ns *)b;
	struct bdev_nvme_channel *ch = channel;

	pthread_mutex_lock(&d->mutex);
	bdev_nvme_stat_hand_over(ch);
	TAILQ_REMOVE(&d->channels, ch, link);
	pthread_mutex_unlock(&d->mutex);
	channel_close_paths(ch);
}

static void ns_channel_reset(struct bdev *b, void *channel)
{
	struct bdev_nvme_channel *ch = channel;

	ch->resetting = true;
	bdev_nvme_channel_fail_waiting(ch, NVME_ST(GENERIC, ABORT_REQ));
}

/* --- Answer of bdev_get_bdevs --- */

static json_t *path_trid_json(const struct nvme_trid *t)
{
	json_t *o = json_object();

	json_object_set_new(o, "trtype", json_string(nvme_trtype_name(t->trtype)));
	json_object_set_new(o, "traddr", json_string(t->traddr));
	if (nvme_trtype_is_fabrics(t->trtype)) {
		json_object_set_new(o, "adrfam", json_string(nvme_adrfam_name(t->adrfam)));
		json_object_set_new(o, "trsvcid", json_string(t->trsvcid));
		json_object_set_new(o, "subnqn", json_string(t->subnqn));
	}
	return o;
}

/* A fixed-width field of Identify without its padding of blanks. Bytes that are not printable ASCII become "?". */
static json_t *identify_text_json(const char *field, size_t size)
{
	char buf[64];
	size_t n = 0;

	for (; n < size && n < sizeof(buf) - 1 && field[n] != '\0'; n++) {
		buf[n] = field[n] >= 0x20 && field[n] < 0x7f ? field[n] : '?';
	}
	while (n > 0 && buf[n - 1] == ' ') {
		n--;
	}
	return json_stringn(buf, n);
}

static json_t *path_ctrlr_json(const struct nvme_ctrlr *ctrlr)
{
	const struct nvme_id_ctrl *id = nvme_ctrlr_identify(ctrlr);
	uint16_t oacs = le16toh(id->oacs);
	json_t *o = json_object(), *oacs_json = json_object();
	char vendor[16];

	snprintf(vendor, sizeof(vendor), "0x%04x", le16toh(id->vid));
	json_object_set_new(o, "cntlid", json_integer(nvme_ctrlr_cntlid(ctrlr)));
	json_object_set_new(o, "vendor_id", json_string(vendor));
	json_object_set_new(o, "model_number", identify_text_json(id->mn, sizeof(id->mn)));
	json_object_set_new(o, "serial_number", identify_text_json(id->sn, sizeof(id->sn)));
	json_object_set_new(o, "firmware_revision", identify_text_json(id->fr, sizeof(id->fr)));
	json_object_set_new(oacs_json, "security", json_integer(oacs & 1));
	json_object_set_new(oacs_json, "format", json_integer(oacs >> 1 & 1));
	json_object_set_new(oacs_json, "firmware", json_integer(oacs >> 2 & 1));
	json_object_set_new(oacs_json, "ns_manage", json_integer(oacs >> 3 & 1));
	json_object_set_new(o, "oacs", oacs_json);
	json_object_set_new(o, "multi_ctrlr", json_boolean(id->cmic & NVME_CTRL_CMIC_MULTI_CTRL));
	json_object_set_new(o, "ana_reporting", json_boolean(id->cmic & NVME_CTRL_CMIC_MULTI_ANA_REPORTING));
	return o;
}

static json_t *path_ns_json(const struct nvme_ns *ns)
{
	static const uint8_t zeroes[16];
	json_t *o = json_object();
	char hex[2 * 16 + 1];

	json_object_set_new(o, "id", json_integer(ns->nsid));
	json_object_set_new(o, "can_share", json_boolean(ns->id.nmic & NVME_NS_NMIC_SHARED));
	if (memcmp(ns->nguid, zeroes, sizeof(ns->nguid)) != 0) {
		for (unsigned i = 0; i < sizeof(ns->nguid); i++) {
			snprintf(hex + 2 * i, 3, "%02X", ns->nguid[i]);
		}
		json_object_set_new(o, "nguid", json_string(hex));
	}
	if (memcmp(ns->eui64, zeroes, sizeof(ns->eui64)) != 0) {
		for (unsigned i = 0; i < sizeof(ns->eui64); i++) {
			snprintf(hex + 2 * i, 3, "%02X", ns->eui64[i]);
		}
		json_object_set_new(o, "eui64", json_string(hex));
	}
	return o;
}

static json_t *path_json(const struct bdev_nvme_path *path)
{
	const struct bdev_nvme_ns *d = path->d;
	const struct bdev_nvme *c = path->c;
	json_t *o = json_object();

	if (c->opts.trid.trtype == NVME_TRTYPE_PCIE) {
		json_object_set_new(o, "pci_address", json_string(c->opts.trid.traddr));
	}
	json_object_set_new(o, "trid", path_trid_json(&c->opts.trid));
	json_object_set_new(o, "controller", json_string(c->name));
	json_object_set_new(o, "state", json_string(bdev_nvme_state_name(c)));
	if (c->ctrlr != NULL) {
		uint32_t vs = nvme_ctrlr_vs(c->ctrlr);
		json_t *version = json_object();

		json_object_set_new(o, "ctrlr_data", path_ctrlr_json(c->ctrlr));
		json_object_set_new(
			version, "nvme_version",
			json_sprintf(vs & 0xff ? "%u.%u.%u" : "%u.%u", vs >> 16, vs >> 8 & 0xff, vs & 0xff));
		json_object_set_new(o, "vs", version);
	}
	json_t *ns = path_ns_json(&d->ns);
	if (c->ctrlr != NULL && nvme_ctrlr_has_ana(c->ctrlr)) {
		json_object_set_new(ns, "ana_state", json_string(bdev_nvme_ana_name(path->ana)));
	}
	json_object_set_new(o, "ns_data", ns);
	return o;
}

static void ns_dump_info(const struct bdev *b, struct json_t *driver_specific)
{
	const struct bdev_nvme_ns *d = (const struct bdev_nvme_ns *)b;
	json_t *list = json_array();
	const struct bdev_nvme_path *path;

	TAILQ_FOREACH (path, &d->paths, link) {
		if (!path->leaving) {
			json_array_append_new(list, path_json(path));
		}
	}
	json_object_set_new(driver_specific, "nvme", list);
	json_object_set_new(driver_specific, "mp_policy",
			    json_string(d->policy.active_active ? "active_active" : "active_passive"));
	if (d->policy.active_active) {
		json_object_set_new(driver_specific, "selector",
				    json_string(d->policy.queue_depth ? "queue_depth" : "round_robin"));
		json_object_set_new(driver_specific, "rr_min_io", json_integer(d->policy.rr_min_io));
	}
}

/* --- Registering and removing --- */

static void ns_destruct(struct bdev *b)
{
	struct bdev_nvme_ns *d = (struct bdev_nvme_ns *)b;
	struct bdev_nvme_subsystem *m = d->subsystem;
	struct bdev_nvme *c, *next;
	struct bdev_nvme_path *path;

	USDT(bdev_nvme_destruct, m->name, d->ns.nsid);
	TAILQ_REMOVE(&m->namespaces, d, link);
	TAILQ_FOREACH (c, &m->ctrlrs, subsystem_link) {
		bdev_nvme_hold(c); /* users who are told of the end may detach them */
	}
	while ((path = TAILQ_FIRST(&d->paths)) != NULL) {
		bdev_nvme_path_free(path);
	}
	bdev_destruct_done(b);
	bdev_nvme_stat_free(d);
	pthread_mutex_destroy(&d->mutex);
	free(d);
	for (c = TAILQ_FIRST(&m->ctrlrs); c != NULL; c = TAILQ_NEXT(c, subsystem_link)) {
		if (c->state == BDEV_NVME_UP) {
			bdev_nvme_ns_sync(c); /* a namespace that was replaced under the same id is registered now */
		}
	}
	/* no controller is freed before the control thread's next turn */
	for (c = TAILQ_FIRST(&m->ctrlrs); c != NULL; c = next) {
		next = TAILQ_NEXT(c, subsystem_link);
		bdev_nvme_release(c);
	}
}

static void ns_describe_io(struct bdev_io *io, char *text, size_t size)
{
	const struct bdev_nvme_io *n = bdev_io_ctx(io);

	if (n->place == BDEV_NVME_IO_HELD) {
		bdev_nvme_fence_describe(n, text, size);
	}
}

static const struct bdev_ops bdev_nvme_ops = {
	.bases = bdev_bases_none,
	.describe_io = ns_describe_io,
	.submit = bdev_nvme_io_submit,
	.channel_create = ns_channel_create,
	.channel_destroy = ns_channel_destroy,
	.channel_size = sizeof(struct bdev_nvme_channel),
	.reset_channel = ns_channel_reset,
	.take_back = bdev_nvme_io_take_back,
	.destruct = ns_destruct,
	.dump_info = ns_dump_info,
	.dump_stat = bdev_nvme_stat_dump,
	.reset_stat = bdev_nvme_stat_reset,
};

/* The largest Copy of one range (NVM 4.1.5.1, MSSRL and MCL); 0: Copy cannot be used. */
static uint32_t ns_max_copy_blocks(const struct nvme_id_ctrl *id, const struct nvme_ns *ns)
{
	uint32_t range = le16toh(ns->id.mssrl), all = le32toh(ns->id.mcl);
	bool has_format_0 = (le16toh(id->ocfs) & 1) != 0;

	return !(le16toh(id->oncs) & NVME_CTRL_ONCS_COPY) || !has_format_0 ? 0 : range < all ? range : all;
}

/* Commands that a controller carries out in another way on blocks with protection information than bdev users expect;
 * without them in io_types the bdev layer emulates them. Compare leaves protection information out (NVM 3.2.1), whereas
 * the layer compares whole blocks. A Copy that rewrites reference tags also sets the application tags of all blocks to
 * one value (NVM 3.2.2). */
#define UNPROTECTED (NVME_CTRL_ONCS_COMPARE | NVME_CTRL_ONCS_COPY)

uint32_t bdev_nvme_io_types(const struct nvme_id_ctrl *id, const struct nvme_ns *ns, uint16_t queue_entries)
{
	uint16_t oncs = le16toh(id->oncs) & (uint16_t) ~(ns->pi_type != 0 ? UNPROTECTED : 0);
	uint32_t types = 1u << BDEV_IO_READ | 1u << BDEV_IO_WRITE | 1u << BDEV_IO_RESET | 1u << BDEV_IO_ABORT |
			 1u << BDEV_IO_NVME_ADMIN | 1u << BDEV_IO_NVME_IO;

	types |= id->vwc & NVME_CTRL_VWC_PRESENT ? 1u << BDEV_IO_FLUSH : 0;
	types |= oncs & NVME_CTRL_ONCS_DSM ? 1u << BDEV_IO_UNMAP : 0;
	types |= oncs & NVME_CTRL_ONCS_WRITE_ZEROES ? 1u << BDEV_IO_WRITE_ZEROES : 0;
	types |= oncs & NVME_CTRL_ONCS_COMPARE ? 1u << BDEV_IO_COMPARE : 0;
	types |= oncs & NVME_CTRL_ONCS_VERIFY ? 1u << BDEV_IO_VERIFY : 0;
	types |= oncs & NVME_CTRL_ONCS_WRITE_UNCORRECTABLE ? 1u << BDEV_IO_WRITE_UNCORRECTABLE : 0;
	types |= (oncs & NVME_CTRL_ONCS_COPY) && ns_max_copy_blocks(id, ns) != 0 ? 1u << BDEV_IO_COPY : 0;
	/* Both commands of a fused pair are in the queue at once. */
	if ((oncs & NVME_CTRL_ONCS_COMPARE) && (le16toh(id->fuses) & NVME_CTRL_FUSES_COMPARE_AND_WRITE) &&
	    queue_entries >= 2) {
		types |= 1u << BDEV_IO_COMPARE_AND_WRITE;
	}
	return types;
}

/* Bytes of a block that count against MDTS (Base 5.17.2.1): metadata included, if it is interleaved with the data. */
static uint32_t ns_transfer_size(const struct nvme_ns *ns)
{
	return ns->block_size + (ns->md_interleaved ? ns->md_size : 0u);
}

/* Of Write Zeroes and deallocations: the bdev layer has one limit for both. NLB has 16 bits. Not 0, which would mean no
 * limit. */
static uint32_t ns_max_unmap_blocks(const struct nvme_ns *ns, const struct nvme_ctrlr *ctrlr)
{
	uint64_t blocks = nvme_ctrlr_max_write_zeroes(ctrlr) / ns->block_size;

	blocks = blocks < nvme_ctrlr_max_deallocate_blocks(ctrlr) ? blocks : nvme_ctrlr_max_deallocate_blocks(ctrlr);
	return blocks == 0 ? 1 : blocks < 65536 ? (uint32_t)blocks : 65536;
}

#define VERSION_2_1 0x20100u
#define HINTS_NPDG  1u /* NPDG is valid */
#define HINTS_NPDGL 2u /* NPDGL, in another structure, is */
#define HINTS_SHIFT 4  /* in NSFEAT */

/* Which fields of preferences a namespace has (OPTPERF, NVM 4.1.5.1): two bits since version 2.1, of which both say
 * that those of writes are valid; one bit before. */
static unsigned ns_hints_told(const struct nvme_id_ns *id, uint32_t version)
{
	return id->nsfeat >> HINTS_SHIFT & (version >= VERSION_2_1 ? HINTS_NPDG | HINTS_NPDGL : HINTS_NPDG);
}

void bdev_nvme_set_hints(struct bdev *b, const struct nvme_ns *ns, uint32_t version)
{
	const struct nvme_id_ns *id = &ns->id;
	unsigned told = ns_hints_told(id, version);
	uint64_t granularity = (uint64_t)(le16toh(id->npwg) + UINT32_C(1)) * ns->block_size;

	b->physical_block_size = told != 0 && granularity <= UINT32_MAX ? (uint32_t)granularity : ns->block_size;
	b->hints = (struct bdev_hints){0};
	if (told == 0) {
		return;
	}
	b->hints.preferred_write_granularity = le16toh(id->npwg) + UINT32_C(1);
	b->hints.preferred_write_alignment = le16toh(id->npwa) + UINT32_C(1);
	b->hints.optimal_write_size = id->nows != 0 ? le16toh(id->nows) + UINT32_C(1) : 0;
	b->hints.preferred_unmap_granularity = told & HINTS_NPDG ? le16toh(id->npdg) + UINT32_C(1) : 0;
	b->hints.preferred_unmap_alignment = le16toh(id->npda) + UINT32_C(1);
}

/* Sets the limits of one controller; after a reconnect they may be different. */
static void limits_set(struct bdev *b, const struct nvme_ns *ns, const struct nvme_ctrlr *ctrlr)
{
	uint32_t blocks = nvme_ctrlr_max_transfer(ctrlr) / ns_transfer_size(ns);

	b->io_types = bdev_nvme_io_types(nvme_ctrlr_identify(ctrlr), ns, nvme_ctrlr_io_queue_entries(ctrlr));
	b->write_cache = (b->io_types & 1u << BDEV_IO_FLUSH) != 0;
	b->read_only = (ns->id.nsattr & 1) != 0; /* NVM 4.1.5.1: currently write protected */
	/* NLB has 16 bits. Not 0, which would mean no limit: ns_why_unusable() refuses a controller that cannot
	 * transfer one block, but a disconnected one of several may say so after its next connection. */
	b->max_rw_blocks = blocks == 0 ? 1 : blocks < 65536 ? blocks : 65536;
	b->max_unmap_blocks = ns_max_unmap_blocks(ns, ctrlr);
	b->max_copy_blocks = ns_max_copy_blocks(nvme_ctrlr_identify(ctrlr), ns);
	/* Their own limits (VSL, WUSL) are in a structure that old controllers lack. The limit of transfers is not
	 * larger. */
	b->max_verify_blocks = b->max_uncorrectable_blocks = b->max_rw_blocks;
	b->max_segments = nvme_ctrlr_max_segments(ctrlr);
	b->buf_align = nvme_ctrlr_buf_align(ctrlr);
	b->optimal_io_boundary = ns->optimal_boundary_blocks;
	b->split_on_boundary = ns->optimal_boundary_blocks != 0;
	bdev_nvme_set_hints(b, ns, le32toh(nvme_ctrlr_identify(ctrlr)->ver));
}

static bool ns_has_id(const uint8_t id[16])
{
	static const uint8_t zeroes[16];

	return memcmp(id, zeroes, 16) != 0;
}

static bool ns_id_is_taken(const uint8_t id[16])
{
	char text[BDEV_UUID_STRLEN];

	bdev_uuid_format(id, text);
	return bdev_find(text) != NULL;
}

/* The NGUID, if the namespace has one, as SPDK's hosts have it: programs that know a bdev by its UUID find the same
 * one. Some drives give all their namespaces the same NGUID: these are told apart by their UUIDs. */
static void ns_bdev_set_uuid(struct bdev *b, const struct nvme_ns *ns)
{
	const uint8_t *ids[] = {ns->nguid, ns->uuid};
	const char *taken = NULL;

	for (unsigned i = 0; i < 2; i++) {
		if (ns_has_id(ids[i]) && !ns_id_is_taken(ids[i])) {
			memcpy(b->uuid, ids[i], 16);
			break;
		}
		if (ns_has_id(ids[i]) && taken == NULL) {
			taken = i == 0 ? "NGUID" : "UUID";
		}
	}
	if (taken != NULL) {
		log_notice("%s: the %s of its namespace is the UUID of another bdev: it gets %s", b->name, taken,
			   ns_has_id(b->uuid) ? "the namespace's UUID" : "a random one");
	}
}

/* Why a namespace cannot be a bdev, or NULL. */
static const char *ns_why_unusable(const struct nvme_ns *ns, const struct nvme_ctrlr *ctrlr)
{
	const char *why = bdev_nvme_md_unusable(ns, nvme_trtype_is_fabrics(nvme_ctrlr_trid(ctrlr)->trtype),
						nvme_ctrlr_has_extended_formats(ctrlr));

	if (why != NULL) {
		return why;
	}
	if (ns->csi != 0) {
		return "its command set is not the NVM command set";
	}
	if (nvme_ctrlr_max_transfer(ctrlr) < ns_transfer_size(ns)) {
		return "its blocks are larger than the largest transfer";
	}
	return NULL;
}

static void ns_insert(struct bdev_nvme_subsystem *m, struct bdev_nvme_ns *d)
{
	struct bdev_nvme_ns *before;

	TAILQ_FOREACH (before, &m->namespaces, link) {
		if (before->ns.nsid > d->ns.nsid) {
			TAILQ_INSERT_BEFORE(before, d, link);
			return;
		}
	}
	TAILQ_INSERT_TAIL(&m->namespaces, d, link);
}

static void ns_bdev_add(struct bdev_nvme *c, const struct nvme_ns *ns)
{
	const char *why = ns_why_unusable(ns, c->ctrlr);
	char error[BDEV_ERROR_MAX];

	if (why != NULL) {
		log_warning("%s: namespace %u is left out: %s", c->name, ns->nsid, why);
		return;
	}
	struct bdev_nvme_ns *d = aligned_alloc(64, (sizeof(*d) + 63) & ~(size_t)63);
	if (d == NULL) {
		log_error("%s: namespace %u is left out: out of memory", c->name, ns->nsid);
		return;
	}
	memset(d, 0, sizeof(*d));
	d->subsystem = c->subsystem;
	d->attach = c->opts;
	d->policy = c->subsystem->policy;
	d->ns = *ns;
	pthread_mutex_init(&d->mutex, NULL);
	TAILQ_INIT(&d->paths);
	TAILQ_INIT(&d->channels);
	snprintf(d->name, sizeof(d->name), "%sn%u", c->name, ns->nsid);
	d->bdev = (struct bdev){.name = d->name,
				.product_name = "NVMe disk",
				.ops = &bdev_nvme_ops,
				.module = &bdev_nvme_module,
				.num_blocks = ns->num_blocks,
				.block_size = ns->block_size + ns->md_size,
				.numa_node = -1,
				.md = bdev_nvme_md_of(ns, &c->opts)};
	limits_set(&d->bdev, ns, c->ctrlr);
	ns_bdev_set_uuid(&d->bdev, ns);
	ns_insert(c->subsystem, d);
	struct bdev_nvme_path *path = bdev_nvme_stat_init(d) == 0 ? bdev_nvme_path_add(d, c, ns) : NULL;
	if (path == NULL || bdev_register_or_say(&d->bdev, error) != 0) {
		log_error("%s: namespace %u is left out: %s", c->name, ns->nsid,
			  path == NULL ? "out of memory" : error);
		if (path != NULL) {
			bdev_nvme_path_free(path);
		}
		TAILQ_REMOVE(&c->subsystem->namespaces, d, link);
		bdev_nvme_stat_free(d);
		pthread_mutex_destroy(&d->mutex);
		free(d);
	}
}

static void channel_leave(struct bdev_nvme_channel *ch, void *arg)
{
	ch->leaving = true;
	bdev_nvme_channel_paths_changed(ch);
}

/* I/O that waits for a path to become usable ends: its users wait for it before they close the bdev, and the path may
 * never become usable again. */
static void ns_bdev_remove(struct bdev_nvme_ns *d)
{
	if (!d->leaving) {
		pthread_mutex_lock(&d->mutex);
		d->leaving = true;
		pthread_mutex_unlock(&d->mutex);
		bdev_nvme_ns_visit_channels(d, channel_leave, NULL);
		bdev_unregister(&d->bdev, NULL, NULL);
	}
}

static const struct nvme_ns *ns_find_in_ctrlr(const struct nvme_ctrlr *ctrlr, uint32_t nsid)
{
	const struct nvme_ns *ns = nvme_ctrlr_next_ns(ctrlr, nsid - 1);

	return ns != NULL && ns->nsid == nsid ? ns : NULL;
}

static bool ns_is_same(const struct nvme_ns *a, const struct nvme_ns *b)
{
	return a->block_size == b->block_size && a->md_size == b->md_size && a->pi_type == b->pi_type &&
	       a->pi_format == b->pi_format && a->storage_bits == b->storage_bits &&
	       a->storage_mask == b->storage_mask && a->md_interleaved == b->md_interleaved && a->id.dps == b->id.dps &&
	       a->csi == b->csi && memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 &&
	       memcmp(a->nguid, b->nguid, sizeof(a->nguid)) == 0 && memcmp(a->eui64, b->eui64, sizeof(a->eui64)) == 0;
}

void bdev_nvme_limits_narrow(struct bdev *b, const struct bdev *one)
{
	/* A Flush is needed if one of them has a cache: it goes to each that has one (bdev_nvme_channel_flush_next()).
	 * Those without one carry it out as well (NVM 3.2.2). */
	uint32_t flush = (b->io_types | one->io_types) & 1u << BDEV_IO_FLUSH;

	b->io_types = (b->io_types & one->io_types) | flush;
	b->write_cache |= one->write_cache;
	b->max_rw_blocks = one->max_rw_blocks < b->max_rw_blocks ? one->max_rw_blocks : b->max_rw_blocks;
	b->max_copy_blocks = one->max_copy_blocks < b->max_copy_blocks ? one->max_copy_blocks : b->max_copy_blocks;
	b->max_verify_blocks = b->max_uncorrectable_blocks = b->max_rw_blocks;
	b->max_segments = one->max_segments < b->max_segments ? one->max_segments : b->max_segments;
	b->buf_align = one->buf_align > b->buf_align ? one->buf_align : b->buf_align;
}

/* Copies what limits_set() sets. Reactors read the limits meanwhile, so each value is stored once, without intermediate
 * values. */
static void limits_store(struct bdev *b, const struct bdev *from)
{
	b->io_types = from->io_types;
	b->write_cache = from->write_cache;
	b->read_only = from->read_only;
	b->max_rw_blocks = from->max_rw_blocks;
	b->max_unmap_blocks = from->max_unmap_blocks;
	b->max_copy_blocks = from->max_copy_blocks;
	b->max_verify_blocks = from->max_verify_blocks;
	b->max_uncorrectable_blocks = from->max_uncorrectable_blocks;
	b->max_segments = from->max_segments;
	b->buf_align = from->buf_align;
	b->optimal_io_boundary = from->optimal_io_boundary;
	b->split_on_boundary = from->split_on_boundary;
	b->physical_block_size = from->physical_block_size;
	b->hints = from->hints;
}

/* Sets the limits that all paths have in common. */
static void limits_set_common(struct bdev_nvme_ns *d)
{
	struct bdev one = d->bdev, all = d->bdev;
	const struct bdev_nvme_path *path;
	bool first = true;

	TAILQ_FOREACH (path, &d->paths, link) {
		if (path->leaving || path->c->ctrlr == NULL || path->c->state == BDEV_NVME_ATTACHING) {
			continue;
		}
		limits_set(&one, &d->ns, path->c->ctrlr);
		if (first) {
			limits_store(&all, &one);
		} else {
			bdev_nvme_limits_narrow(&all, &one);
		}
		first = false;
	}
	limits_store(&d->bdev, &all);
}

/* c does not have the namespace of d any more, or has another one under its id: d loses the path through c. */
static void ns_bdev_lose_path(struct bdev_nvme *c, struct bdev_nvme_ns *d, const char *what)
{
	struct bdev_nvme_path *path = bdev_nvme_path_find(d, c);

	if (!path->leaving) {
		log_notice("%s: namespace %u %s", c->name, d->ns.nsid, what);
	}
	if (bdev_nvme_path_count(d) > !path->leaving) {
		bdev_nvme_path_set_leaving(path, true);
	} else {
		ns_bdev_remove(d);
	}
}

static void ns_bdev_update(struct bdev_nvme *c, struct bdev_nvme_ns *d)
{
	const struct nvme_ns *ns = ns_find_in_ctrlr(c->ctrlr, d->ns.nsid);

	if (ns == NULL || !ns_is_same(ns, &d->ns) || ns_why_unusable(ns, c->ctrlr) != NULL) {
		ns_bdev_lose_path(c, d, ns == NULL ? "is gone" : "is another one now");
		return;
	}
	d->ns = *ns;
	bdev_nvme_path_set_leaving(bdev_nvme_path_find(d, c), false);
	limits_set_common(d);
	if (d->bdev.num_blocks != ns->num_blocks) {
		log_notice("%s: namespace %u has %lu blocks now", c->name, ns->nsid, ns->num_blocks);
		bdev_resize(&d->bdev, ns->num_blocks);
	}
}

static struct bdev_nvme_ns *ns_bdev_find(const struct bdev_nvme *c, uint32_t nsid)
{
	struct bdev_nvme_ns *d;

	TAILQ_FOREACH (d, &c->subsystem->namespaces, link) {
		if (d->ns.nsid == nsid) {
			return d;
		}
	}
	return NULL;
}

/* Adds a path through c to a bdev that another controller of the name has, if c has the same namespace under that id.
 */
static void ns_bdev_join(struct bdev_nvme *c, struct bdev_nvme_ns *d, const struct nvme_ns *ns)
{
	const char *why = ns_why_unusable(ns, c->ctrlr);

	if (d->leaving || bdev_nvme_path_find(d, c) != NULL) {
		return; /* ns_destruct() calls bdev_nvme_ns_sync() again */
	}
	if (why == NULL && !ns_is_same(ns, &d->ns)) {
		why = "it is not the one that the other controllers have";
	} else if (why == NULL && !(ns->id.nmic & d->ns.id.nmic & NVME_NS_NMIC_SHARED)) {
		why = "it is not a namespace that controllers share (Identify, NMIC)";
	} else if (why == NULL && bdev_nvme_path_add(d, c, ns) == NULL) {
		why = "there is no memory, or there are too many paths";
	}
	if (why != NULL) {
		log_error("%s: namespace %u at %s is not used as a path: %s", c->name, ns->nsid, c->opts.trid.traddr,
			  why);
		return;
	}
	limits_set_common(d);
	log_notice("%s: %s:%s is a path to it, %s", d->name, c->opts.trid.traddr, c->opts.trid.trsvcid,
		   bdev_nvme_ana_name(bdev_nvme_path_find(d, c)->ana));
}

static void ns_sync_once(struct bdev_nvme *c)
{
	struct bdev_nvme_path *path = TAILQ_FIRST(&c->paths), *next;
	const struct nvme_ns *ns = NULL;

	for (; path != NULL; path = next) {
		next = TAILQ_NEXT(path, c_link);
		if (!path->d->leaving) {
			ns_bdev_update(c, path->d);
		}
	}
	while ((ns = nvme_ctrlr_next_ns(c->ctrlr, ns ? ns->nsid : 0)) != NULL) {
		struct bdev_nvme_ns *d = ns_bdev_find(c, ns->nsid);
		if (d == NULL) {
			ns_bdev_add(c, ns);
		} else {
			ns_bdev_join(c, d, ns);
		}
	}
}

void bdev_nvme_ns_sync(struct bdev_nvme *c)
{
	if (c->syncing) { /* called from within: the removal of a bdev may have ended at once */
		c->sync_again = true;
		return;
	}
	c->syncing = true;
	bdev_nvme_hold(c);
	do {
		c->sync_again = false;
		ns_sync_once(c);
	} while (c->sync_again);
	c->syncing = false;
	bdev_nvme_release(c);
}

void bdev_nvme_ns_leave(struct bdev_nvme *c)
{
	struct bdev_nvme_path *path = TAILQ_FIRST(&c->paths), *next;

	for (; path != NULL; path = next) {
		next = TAILQ_NEXT(path, c_link);
		if (bdev_nvme_path_count(path->d) > !path->leaving && !path->d->leaving) {
			bdev_nvme_path_set_leaving(path, true);
		} else {
			ns_bdev_remove(path->d);
		}
	}
}

const struct bdev *bdev_nvme_bdev_next(const struct bdev_nvme *c, const struct bdev *after)
{
	const struct bdev_nvme_ns *d =
		after ? TAILQ_NEXT((const struct bdev_nvme_ns *)after, link) : TAILQ_FIRST(&c->subsystem->namespaces);

	return d != NULL ? &d->bdev : NULL;
}
