/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery services. A service keeps its discovery controllers connected, attaches the subsystems that their logs
 * list, and detaches those that are not listed any more. Control thread.
 *
 * A service has sources and entries. A source is a discovery controller: the one that was named, and those that logs
 * refer to. An entry is an address of a subsystem that a log lists; it has a state of its own. Several sources may list
 * the same entry or refer to the same source, which is kept until no source does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bdev/module_util.h"
#include "bdev_modules/nvme/internal.h"
#include "env_dpdk/env.h"
#include "usdt/usdt.h"
#include "util/log.h"
#include "util/state_machine.h"

#define LOOK_US                                                                                                        \
	2000000 /* between attempts to attach entries that have failed, and to read logs that could not be read */
#define ENTRIES_MAX      256
#define SOURCES_MAX      16
#define SUBTYPE_REFERRAL 1
#define SUBTYPE_NVM      2

enum entry_state {
	ENTRY_ATTACHING,
	ENTRY_ATTACHED,
	ENTRY_FAILED,  /* is attached again after LOOK_US */
	ENTRY_FOREIGN, /* attached by a user, who will detach it */
	ENTRY_STATES,
};

static const char *entry_state_name(unsigned state)
{
	static const char *const names[ENTRY_STATES] = {[ENTRY_ATTACHING] = "attaching",
							[ENTRY_ATTACHED] = "attached",
							[ENTRY_FAILED] = "failed",
							[ENTRY_FOREIGN] = "attached by others"};

	return state < ENTRY_STATES ? names[state] : "unknown";
}

static const uint32_t entry_next_states[ENTRY_STATES] = {
	[ENTRY_ATTACHING] = 1u << ENTRY_ATTACHED | 1u << ENTRY_FAILED,
	[ENTRY_ATTACHED] = 1u << ENTRY_FAILED,
	[ENTRY_FAILED] = 1u << ENTRY_ATTACHING | 1u << ENTRY_FOREIGN,
	[ENTRY_FOREIGN] = 1u << ENTRY_FAILED,
};
STATE_MACHINE(bdev_nvme_entry_machine, "bdev_nvme discovery entry", entry_state_name, entry_next_states)

struct entry {
	struct bdev_nvme_discovery *s;
	uint32_t listed_by; /* a bit for each source, by its number; 0: attaching, and to be forgotten afterwards */
	struct nvme_trid trid;
	char name[BDEV_NVME_NAME_MAX];
	enum entry_state state;
	bool seen; /* in the log that is being processed */
	TAILQ_ENTRY(entry) link;
};

struct source {
	struct bdev_nvme_discovery *s;
	unsigned number;      /* below SOURCES_MAX; unique while this source exists */
	bool named;           /* by the user: it is kept without a reference */
	uint32_t referred_by; /* a bit for each source, by its number */
	struct nvme_trid trid;
	struct nvme_ctrlr *ctrlr;
	bool reading, again, leaving;
	bool seen;     /* in the log that is being processed */
	bool unread;   /* its log could not be read, and is to be read again */
	bool answered; /* its log has been read once; or it was referred to, and cannot be connected */
	TAILQ_ENTRY(source) link;
};

struct bdev_nvme_discovery {
	char name[BDEV_NVME_NAME_MAX];
	struct bdev_nvme_discovery_opts opts;
	TAILQ_HEAD(, source) sources; /* the one that was named comes first */
	TAILQ_HEAD(, entry) entries;
	unsigned next_number;
	uint32_t holds; /* discovery_service_hold() */
	bool stopping;
	bdev_nvme_done_cb started, stopped;
	void *started_arg, *stopped_arg;
	struct thread_timer look_timer, deadline_timer;
	TAILQ_ENTRY(bdev_nvme_discovery) link;
};

static TAILQ_HEAD(, bdev_nvme_discovery) services = TAILQ_HEAD_INITIALIZER(services);

static void discovery_service_step(struct bdev_nvme_discovery *s);
static void source_read_log(struct source *src);

/* While a service is held it is not freed: a command has its address, or a function goes on with it after a callback.
 */
static void discovery_service_hold(struct bdev_nvme_discovery *s)
{
	s->holds++;
}

/* s may be freed in here. */
static void discovery_service_release(struct bdev_nvme_discovery *s)
{
	s->holds--;
	discovery_service_step(s);
}

static void entry_set_state(struct entry *e, enum entry_state state)
{
	state_machine_check(&bdev_nvme_entry_machine, e->state, state, e->trid.subnqn);
	USDT(bdev_nvme_discovery_state, e->s->name, e->trid.subnqn, e->state, state);
	e->state = state;
}

/* --- Entries --- */

static bool entry_is_at(const struct nvme_trid *a, const struct nvme_trid *b)
{
	return nvme_trid_is_same_place(a, b) && strcmp(a->subnqn, b->subnqn) == 0;
}

static struct bdev_nvme *entry_find_ctrlr(const struct nvme_trid *trid, const char *name)
{
	struct bdev_nvme *c = NULL;

	while ((c = bdev_nvme_next(c)) != NULL) {
		if (strcmp(c->opts.trid.subnqn, trid->subnqn) == 0 && c->state != BDEV_NVME_DETACHING &&
		    bdev_nvme_has_address(c, trid) && (name == NULL || strcmp(c->name, name) == 0)) {
			return c;
		}
	}
	return NULL;
}

static void entry_detached(void *arg, int rc, const char *error)
{
	struct bdev_nvme_discovery *s = arg;

	if (rc != 0) { /* the controller is detached all the same, but the service does not wait for it */
		log_limited(LOG_LEVEL_NOTICE, "%s: stops without waiting for the end of a controller: %s", s->name,
			    error);
	}
	discovery_service_release(s);
}

static void entry_detach(struct entry *e)
{
	struct bdev_nvme *c = entry_find_ctrlr(&e->trid, e->name);

	if (c != NULL) {
		log_notice("%s: %s at %s:%s is not listed any more: detached", e->s->name, e->trid.subnqn,
			   e->trid.traddr, e->trid.trsvcid);
		discovery_service_hold(e->s);
		bdev_nvme_detach(c, entry_detached, e->s);
	}
}

static uint32_t source_bit(const struct source *src)
{
	return UINT32_C(1) << src->number;
}

static void entry_forget(struct entry *e)
{
	TAILQ_REMOVE(&e->s->entries, e, link);
	if (e->state == ENTRY_ATTACHED) {
		entry_detach(e);
	}
	free(e);
}

static void entry_attached(void *arg, int rc, struct bdev_nvme *c, const char *error)
{
	struct entry *e = arg;
	struct bdev_nvme_discovery *s = e->s;

	if (rc != 0) {
		log_warning("%s: %s at %s:%s cannot be attached: %s", s->name, e->trid.subnqn, e->trid.traddr,
			    e->trid.trsvcid, error);
	} else {
		log_notice("%s: %s at %s:%s is attached as %s", s->name, e->trid.subnqn, e->trid.traddr,
			   e->trid.trsvcid, e->name);
	}
	entry_set_state(e, rc == 0 ? ENTRY_ATTACHED : ENTRY_FAILED);
	if (e->listed_by == 0) {
		entry_forget(e);
	}
	discovery_service_release(s);
}

/* src does not list its entries any more; with seen_counts, except those in the log that is being processed. Entries
 * that no other source lists are forgotten, and their controllers detached. */
static void source_unlist(struct source *src, bool seen_counts)
{
	struct entry *e, *next;

	for (e = TAILQ_FIRST(&src->s->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if ((e->listed_by & source_bit(src)) == 0 || (e->seen && seen_counts)) {
			continue;
		}
		e->listed_by &= ~source_bit(src);
		if (e->listed_by == 0 && e->state != ENTRY_ATTACHING) {
			entry_forget(e);
		}
	}
}

/* All entries of one subsystem have one name, so that their controllers are paths to the same bdevs. */
static void entry_choose_name(struct entry *e)
{
	const struct entry *o;

	if (e->name[0] != '\0') {
		return;
	}
	TAILQ_FOREACH (o, &e->s->entries, link) {
		if (o != e && o->name[0] != '\0' && strcmp(o->trid.subnqn, e->trid.subnqn) == 0) {
			memcpy(e->name, o->name, sizeof(e->name));
			return;
		}
	}
	do {
		snprintf(e->name, sizeof(e->name), "%.50s%u", e->s->name, e->s->next_number++);
	} while (bdev_nvme_find(e->name) != NULL);
}

static void entry_attach(struct entry *e)
{
	struct bdev_nvme_attach a;
	const struct bdev_nvme_discovery_opts *o = &e->s->opts;

	if (entry_find_ctrlr(&e->trid, NULL) != NULL) {
		entry_set_state(e, ENTRY_FOREIGN);
		return;
	}
	entry_choose_name(e);
	bdev_nvme_attach_default(&a);
	a.name = e->name;
	a.trid = e->trid;
	memcpy(a.hostnqn, o->hostnqn, sizeof(a.hostnqn));
	a.ctrlr_loss_timeout_sec = o->ctrlr_loss_timeout_sec;
	a.reconnect_delay_sec = o->reconnect_delay_sec;
	a.fast_io_fail_timeout_sec = o->fast_io_fail_timeout_sec;
	a.hdgst = o->hdgst;
	a.ddgst = o->ddgst;
	memcpy(a.psk, o->psk, sizeof(a.psk));
	a.discovered = true;
	entry_set_state(e, ENTRY_ATTACHING);
	discovery_service_hold(e->s);
	bdev_nvme_attach(&a, entry_attached, e);
}

/* Every LOOK_US: attaches listed entries again that have failed or whose controller was given up, and reads logs again
 * that could not be read. */
static void discovery_service_retry(void *arg)
{
	struct bdev_nvme_discovery *s = arg;
	struct entry *e, *next;
	struct source *src;

	discovery_service_hold(s);
	TAILQ_FOREACH (src, &s->sources, link) {
		if (src->unread && !src->leaving && nvme_ctrlr_state(src->ctrlr) == NVME_CTRLR_READY) {
			source_read_log(src);
		}
	}
	for (e = TAILQ_FIRST(&s->entries); e != NULL; e = next) {
		next = TAILQ_NEXT(e, link);
		if ((e->state == ENTRY_ATTACHED && entry_find_ctrlr(&e->trid, e->name) == NULL) ||
		    (e->state == ENTRY_FOREIGN && entry_find_ctrlr(&e->trid, NULL) == NULL)) {
			entry_set_state(e, ENTRY_FAILED);
		}
		if (e->state == ENTRY_FAILED) {
			entry_attach(e);
		}
	}
	thread_timer_start(&s->look_timer, LOOK_US);
	discovery_service_release(s);
}

/* --- Sources --- */

static struct source *source_add(struct bdev_nvme_discovery *s, const struct nvme_trid *trid, const struct source *by,
				 char *error);

static void source_destroyed(void *arg)
{
	struct source *src = arg;
	struct bdev_nvme_discovery *s = src->s;

	TAILQ_REMOVE(&s->sources, src, link);
	free(src);
	discovery_service_step(s);
}

/* Ends a source: it lists no entries and refers to no sources any more. */
static void source_leave(struct source *src)
{
	struct source *o;

	src->leaving = true;
	source_unlist(src, false);
	TAILQ_FOREACH (o, &src->s->sources, link) {
		o->referred_by &= ~source_bit(src);
	}
	nvme_ctrlr_destroy(src->ctrlr, source_destroyed, src);
}

/* A bit for each source that references lead to, beginning with the one that was named. Two sources that only refer to
 * each other are not among them. */
static uint32_t sources_reached(const struct bdev_nvme_discovery *s)
{
	uint32_t found = 0, before;
	const struct source *src;

	do {
		before = found;
		TAILQ_FOREACH (src, &s->sources, link) {
			if (!src->leaving && (src->named || (src->referred_by & found) != 0)) {
				found |= source_bit(src);
			}
		}
	} while (found != before);
	return found;
}

static void sources_leave_unreached(struct bdev_nvme_discovery *s)
{
	uint32_t found = sources_reached(s);
	struct source *src;

	TAILQ_FOREACH (src, &s->sources, link) {
		if (!src->leaving && (found & source_bit(src)) == 0) {
			source_leave(src);
		}
	}
}

static void source_found_subsystem(struct source *src, const struct nvme_discovered *d)
{
	struct bdev_nvme_discovery *s = src->s;
	struct entry *e;
	unsigned n = 0;

	TAILQ_FOREACH (e, &s->entries, link) {
		n++;
		if (entry_is_at(&e->trid, &d->trid)) {
			e->listed_by |= source_bit(src);
			e->seen = true;
			return;
		}
	}
	e = n < ENTRIES_MAX ? calloc(1, sizeof(*e)) : NULL;
	if (e == NULL) {
		log_limited(LOG_LEVEL_ERROR,
			    "%s: more than %d subsystems are listed, or there is no memory for another one", s->name,
			    ENTRIES_MAX);
		return;
	}
	*e = (struct entry){.s = s, .listed_by = source_bit(src), .trid = d->trid, .state = ENTRY_FAILED, .seen = true};
	TAILQ_INSERT_TAIL(&s->entries, e, link);
	entry_attach(e);
}

static void source_found_referral(struct source *src, const struct nvme_discovered *d)
{
	struct bdev_nvme_discovery *s = src->s;
	char error[NVME_ERROR_MAX];
	struct source *o;
	unsigned n = 0;

	TAILQ_FOREACH (o, &s->sources, link) {
		n++;
		if (!o->leaving && nvme_trid_is_same_place(&o->trid, &d->trid)) {
			o->referred_by |= source_bit(src);
			o->seen = true;
			return; /* known, for example because two sources refer to each other */
		}
	}
	if (n == SOURCES_MAX) {
		log_limited(LOG_LEVEL_ERROR, "%s: more than %d discovery services refer to each other", s->name,
			    SOURCES_MAX);
	} else if (source_add(s, &d->trid, src, error) == NULL) {
		log_warning("%s: the discovery service at %s:%s cannot be asked: %s", s->name, d->trid.traddr,
			    d->trid.trsvcid, error);
	}
}

static void source_drop_unseen(struct source *src)
{
	struct source *o;

	source_unlist(src, true);
	TAILQ_FOREACH (o, &src->s->sources, link) {
		if (!o->seen) {
			o->referred_by &= ~source_bit(src);
		}
	}
	sources_leave_unreached(src->s);
}

static void source_log_read(void *arg, int error, const struct nvme_discovered *found, uint32_t n)
{
	struct source *src = arg;
	struct bdev_nvme_discovery *s = src->s;
	struct entry *e;
	struct source *o;

	src->reading = false;
	src->unread = error != 0;
	if (src->leaving) {
		return; /* source_destroyed() will be called */
	}
	discovery_service_hold(s);
	if (error != 0) {
		log_warning("%s: the discovery log of %s:%s cannot be read: %s", s->name, src->trid.traddr,
			    src->trid.trsvcid, strerror(-error));
	} else {
		TAILQ_FOREACH (e, &s->entries, link) {
			e->seen = false;
		}
		TAILQ_FOREACH (o, &s->sources, link) {
			o->seen = false;
		}
		for (uint32_t i = 0; i < n; i++) {
			if (found[i].subtype == SUBTYPE_NVM) {
				source_found_subsystem(src, &found[i]);
			} else if (found[i].subtype == SUBTYPE_REFERRAL) {
				source_found_referral(src, &found[i]);
			}
		}
		source_drop_unseen(src);
		src->answered = true;
	}
	if (src->again && !src->leaving) {
		source_read_log(src);
	}
	discovery_service_release(s);
}

static void source_read_log(struct source *src)
{
	src->again = src->reading;
	if (!src->reading) {
		src->reading = true;
		nvme_discovery_read(src->ctrlr, source_log_read, src);
	}
}

static void source_event(struct nvme_ctrlr *ctrlr, enum nvme_event event, uint32_t aer, void *arg)
{
	struct source *src = arg;

	switch (event) {
	case NVME_EVENT_READY: /* also after a reconnection, since changes were not reported meanwhile */
	case NVME_EVENT_DISCOVERY_CHANGED:
		source_read_log(src);
		break;
	case NVME_EVENT_RETRY:
		src->answered |= !src->named; /* the start does not wait for a source that was only referred to */
		discovery_service_step(src->s);
		break;
	default: /* DOWN: the driver connects it again; FAILED: does not happen without a loss timeout */
		break;
	}
}

static unsigned source_free_number(const struct bdev_nvme_discovery *s)
{
	const struct source *src;
	uint32_t taken = 0;

	TAILQ_FOREACH (src, &s->sources, link) {
		taken |= source_bit(src);
	}
	return (unsigned)__builtin_ctz(~taken); /* one is free: there are at most SOURCES_MAX sources */
}

/* by: NULL for the one that was named. */
static struct source *source_add(struct bdev_nvme_discovery *s, const struct nvme_trid *trid, const struct source *by,
				 char *error)
{
	struct source *src = calloc(1, sizeof(*src));
	struct nvme_ctrlr_opts o;
	int rc;

	if (src == NULL) {
		snprintf(error, NVME_ERROR_MAX, "out of memory");
		return NULL; /* calloc() has set errno, as nvme_ctrlr_create() does */
	}
	*src = (struct source){.s = s,
			       .number = source_free_number(s),
			       .named = by == NULL,
			       .referred_by = by != NULL ? source_bit(by) : 0,
			       .trid = *trid,
			       .seen = true};
	nvme_ctrlr_opts_default(&o);
	memcpy(o.hostnqn, s->opts.hostnqn, sizeof(o.hostnqn));
	o.discovery = true;
	o.loss_timeout_s = -1;
	o.reconnect_delay_s = s->opts.reconnect_delay_sec != 0 ? s->opts.reconnect_delay_sec : o.reconnect_delay_s;
	if (bdev_nvme_options.keep_alive_timeout_ms !=
	    0) { /* needed: without keep-alive the controller does not report changes */
		o.keep_alive_ms = bdev_nvme_options.keep_alive_timeout_ms;
	}
	o.tcp_header_digest = s->opts.hdgst;
	o.tcp_data_digest = s->opts.ddgst;
	o.event = source_event;
	o.event_arg = src;
	src->ctrlr = nvme_ctrlr_create(trid, &o, error);
	if (src->ctrlr == NULL) {
		rc = errno;
		free(src);
		errno = rc;
		return NULL;
	}
	TAILQ_INSERT_TAIL(&s->sources, src, link);
	return src;
}

/* --- Services --- */

static bool discovery_service_is_settled(const struct bdev_nvme_discovery *s)
{
	const struct source *src;
	const struct entry *e;

	TAILQ_FOREACH (src, &s->sources, link) {
		if (!src->answered) {
			return false;
		}
	}
	TAILQ_FOREACH (e, &s->entries, link) {
		if (e->state == ENTRY_ATTACHING) {
			return false;
		}
	}
	return true;
}

/* To be called after the end of anything: calls back if the start is complete, and frees a stopping service of which
 * nothing is left. s may have been freed afterwards. */
static void discovery_service_step(struct bdev_nvme_discovery *s)
{
	if (s->started != NULL && !s->stopping && discovery_service_is_settled(s)) {
		bdev_nvme_done_cb cb = s->started;
		s->started = NULL;
		thread_timer_stop(&s->deadline_timer);
		s->holds++; /* a call of this function from cb does not free s */
		cb(s->started_arg, 0, NULL);
		s->holds--;
	}
	if (!s->stopping || s->holds != 0 || !TAILQ_EMPTY(&s->sources)) {
		return;
	}
	bdev_nvme_done_cb cb = s->stopped;
	void *arg = s->stopped_arg;
	TAILQ_REMOVE(&services, s, link);
	free(s);
	if (cb != NULL) {
		cb(arg, 0, NULL);
	}
	bdev_nvme_is_idle_now();
}

static void discovery_service_stop(struct bdev_nvme_discovery *s, const char *why)
{
	s->stopping = true;
	thread_timer_stop(&s->look_timer);
	thread_timer_stop(&s->deadline_timer);
	discovery_service_hold(s);
	if (s->started != NULL) {
		bdev_nvme_done_cb cb = s->started;
		s->started = NULL;
		cb(s->started_arg, -ETIMEDOUT, why);
	}
	TAILQ_FIRST(&s->sources)->named = false; /* no source is reached from a named one any more: all end */
	sources_leave_unreached(s);
	discovery_service_release(s);
}

static void discovery_service_deadline_passed(void *arg)
{
	struct bdev_nvme_discovery *s = arg;
	char why[NVME_ERROR_MAX + 64];

	snprintf(why, sizeof(why), "not attached within attach_timeout_ms %lu: %s", s->opts.attach_timeout_ms,
		 nvme_ctrlr_last_error(TAILQ_FIRST(&s->sources)->ctrlr));
	discovery_service_stop(s, why);
}

struct bdev_nvme_discovery *bdev_nvme_discovery_find(const char *name)
{
	struct bdev_nvme_discovery *s;

	TAILQ_FOREACH (s, &services, link) {
		if (strcmp(s->name, name) == 0) {
			return s;
		}
	}
	return NULL;
}

struct bdev_nvme_discovery *bdev_nvme_discovery_next(const struct bdev_nvme_discovery *after)
{
	return after != NULL ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&services);
}

static int discovery_service_check(const struct bdev_nvme_discovery_opts *o, char *error)
{
	const struct bdev_nvme_discovery *s;

	if (bdev_nvme_is_stopping()) {
		return bdev_error(error, -ESHUTDOWN, "no discovery services are started any more: the process stops");
	}
	if (o->name[0] == '\0' || strlen(o->name) > 50) {
		return bdev_error(error, -EINVAL, "name: must have 1 to 50 bytes");
	}
	TAILQ_FOREACH (s, &services, link) {
		if (strcmp(s->name, o->name) == 0) {
			return bdev_error(error, -EEXIST, "name '%s': a discovery service of that name exists already",
					  o->name);
		}
		if (nvme_trid_is_same_place(&s->opts.trid, &o->trid)) {
			return bdev_error(error, -EEXIST,
					  "traddr '%s', trsvcid '%s': the discovery service '%s' is there already",
					  o->trid.traddr, o->trid.trsvcid, s->name);
		}
	}
	return bdev_nvme_check_timeouts(o->ctrlr_loss_timeout_sec, o->reconnect_delay_sec, o->fast_io_fail_timeout_sec,
					error);
}

void bdev_nvme_discovery_start(const struct bdev_nvme_discovery_opts *o, bdev_nvme_done_cb cb, void *arg)
{
	char error[NVME_ERROR_MAX > BDEV_ERROR_MAX ? NVME_ERROR_MAX : BDEV_ERROR_MAX];
	int rc = discovery_service_check(o, error);
	struct bdev_nvme_discovery *s = rc == 0 ? calloc(1, sizeof(*s)) : NULL;

	if (s == NULL) {
		cb(arg, rc != 0 ? rc : -ENOMEM, rc != 0 ? error : "out of memory");
		return;
	}
	snprintf(s->name, sizeof(s->name), "%s", o->name);
	s->opts = *o;
	s->opts.name = s->name;
	TAILQ_INIT(&s->sources);
	TAILQ_INIT(&s->entries);
	s->look_timer = (struct thread_timer){.fn = discovery_service_retry, .arg = s};
	s->deadline_timer = (struct thread_timer){.fn = discovery_service_deadline_passed, .arg = s};
	if (source_add(s, &o->trid, NULL, error) == NULL) {
		rc = -errno;
		log_error("discovery service %s: %s", s->name, error);
		free(s);
		cb(arg, rc, error);
		return;
	}
	TAILQ_INSERT_TAIL(&services, s, link);
	thread_timer_start(&s->look_timer, LOOK_US);
	if (o->attach_timeout_ms != 0) {
		thread_timer_start(&s->deadline_timer, o->attach_timeout_ms * 1000);
	}
	s->started = cb;
	s->started_arg = arg;
	if (!o->wait_for_attach && o->attach_timeout_ms == 0) {
		s->started = NULL;
		cb(arg, 0, NULL);
	}
}

void bdev_nvme_discovery_stop(struct bdev_nvme_discovery *s, bdev_nvme_done_cb cb, void *arg)
{
	if (s->stopping) {
		cb(arg, -EBUSY, "the discovery service is being stopped already");
		return;
	}
	s->stopped = cb;
	s->stopped_arg = arg;
	discovery_service_stop(s, "the discovery service was stopped");
}

void bdev_nvme_discovery_stop_all(void)
{
	struct bdev_nvme_discovery *s = TAILQ_FIRST(&services), *next;

	for (; s != NULL; s = next) {
		next = TAILQ_NEXT(s, link);
		if (!s->stopping) {
			discovery_service_stop(s, "the process stops");
		}
	}
}

bool bdev_nvme_discovery_is_idle(void)
{
	return TAILQ_EMPTY(&services);
}

const struct bdev_nvme_discovery_opts *bdev_nvme_discovery_opts(const struct bdev_nvme_discovery *s)
{
	return &s->opts;
}

void bdev_nvme_discovery_for_each_source(const struct bdev_nvme_discovery *s,
					 void (*fn)(void *arg, const struct nvme_trid *trid,
						    const struct nvme_ctrlr *ctrlr, bool referral),
					 void *arg)
{
	const struct source *src;

	TAILQ_FOREACH (src, &s->sources, link) {
		if (!src->leaving) {
			fn(arg, &src->trid, src->ctrlr, !src->named);
		}
	}
}

void bdev_nvme_discovery_for_each_entry(const struct bdev_nvme_discovery *s,
					void (*fn)(void *arg, const struct nvme_trid *trid, const char *name,
						   const char *state),
					void *arg)
{
	const struct entry *e;

	TAILQ_FOREACH (e, &s->entries, link) {
		fn(arg, &e->trid, e->name, entry_state_name(e->state));
	}
}
