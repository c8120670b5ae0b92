/* SPDX-License-Identifier: BSD-3-Clause */
/* What Reservation Register, Acquire and Release change: Base 7.2 to 7.5 and 8.19. */
#include <string.h>
#include "nvmf/resv.h"

#define NOBODY UINT8_MAX

static const uint16_t conflict = NVME_ST_DNR(GENERIC, RESERVATION_CONFLICT);

/* ---- Registrants ---- */

static unsigned registrant_find(const struct nvmf_resv *r, const uint8_t *hostid)
{
	for (unsigned i = 0; i < r->num_registrants; i++) {
		if (memcmp(r->registrants[i].hostid, hostid, NVMF_HOSTID_SIZE) == 0) {
			return i;
		}
	}
	return NOBODY;
}

static bool resv_all_hold(uint8_t type)
{
	return type == NVME_RESERVATION_RTYPE_WEAR || type == NVME_RESERVATION_RTYPE_EAAR;
}

/* Whether registrants have more access than other hosts: then they are notified when the reservation ends. */
static bool resv_is_shared_by_registrants(uint8_t type)
{
	return type >= NVME_RESERVATION_RTYPE_WERO;
}

bool nvmf_resv_holds(const struct nvmf_resv *r, unsigned registrant)
{
	return r->type != 0 && (resv_all_hold(r->type) || r->holder == registrant);
}

static void resv_add_notice(struct nvmf_resv_notices *notices, const struct nvmf_registrant *to, uint8_t what)
{
	memcpy(notices->hosts[notices->num].hostid, to->hostid, NVMF_HOSTID_SIZE);
	notices->hosts[notices->num].what = what;
	notices->num++;
}

static void resv_notify_others(const struct nvmf_resv *r, unsigned but, struct nvmf_resv_notices *notices, uint8_t what)
{
	for (unsigned i = 0; i < r->num_registrants; i++) {
		if (i != but) {
			resv_add_notice(notices, &r->registrants[i], what);
		}
	}
}

static void registrant_remove(struct nvmf_resv *r, unsigned i)
{
	r->num_registrants--;
	memmove(&r->registrants[i], &r->registrants[i + 1], (r->num_registrants - i) * sizeof(r->registrants[0]));
	if (r->holder > i) {
		r->holder--;
	}
}

/* ---- Register ---- */

static uint16_t registrant_add(struct nvmf_resv *r, const uint8_t *hostid, uint64_t key)
{
	if (r->num_registrants == NVMF_RESV_REGISTRANTS_MAX) {
		return NVME_ST_DNR(GENERIC, INTERNAL);
	}
	struct nvmf_registrant *new = &r->registrants[r->num_registrants++];
	memcpy(new->hostid, hostid, NVMF_HOSTID_SIZE);
	new->key = key;
	return NVME_ST_SUCCESS;
}

/* A reservation ends with its last holder. */
static void resv_unregister(struct nvmf_resv *r, unsigned me, struct nvmf_resv_notices *notices)
{
	bool releases = resv_all_hold(r->type) ? r->num_registrants == 1 : nvmf_resv_holds(r, me);

	if (releases && resv_is_shared_by_registrants(r->type)) {
		resv_notify_others(r, me, notices, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED);
	}
	if (releases) {
		r->type = 0;
	}
	registrant_remove(r, me);
}

static uint16_t resv_register(struct nvmf_resv *r, const uint8_t *hostid, const struct nvmf_resv_register *cmd,
			      struct nvmf_resv_notices *notices)
{
	unsigned me = registrant_find(r, hostid);
	bool key_is_good = me != NOBODY && (cmd->ignore_key || r->registrants[me].key == cmd->crkey);

	switch (cmd->action) {
	case NVME_RESERVATION_RREGA_REGISTER_KEY:
		if (me != NOBODY) {
			return r->registrants[me].key == cmd->nrkey ? NVME_ST_SUCCESS : conflict;
		}
		return registrant_add(r, hostid, cmd->nrkey);
	case NVME_RESERVATION_RREGA_UNREGISTER_KEY:
		if (!key_is_good) {
			return conflict;
		}
		resv_unregister(r, me, notices);
		return NVME_ST_SUCCESS;
	default:
		if (me == NOBODY && cmd->ignore_key) {
			return registrant_add(r, hostid, cmd->nrkey);
		}
		if (!key_is_good) {
			return conflict;
		}
		r->registrants[me].key = cmd->nrkey;
		return NVME_ST_SUCCESS;
	}
}

uint16_t nvmf_resv_register(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			    const struct nvmf_resv_register *cmd, struct nvmf_resv_notices *notices, uint16_t *where)
{
	notices->num = 0;
	uint16_t status = resv_register(r, hostid, cmd, notices);
	if (status != NVME_ST_SUCCESS) {
		*where = NVMF_WHERE_NOWHERE;
		return status;
	}
	r->generation++;
	if (cmd->change_ptpl != NVME_RESERVATION_CPTPL_NO_CHANGE) {
		r->ptpl = cmd->change_ptpl == NVME_RESERVATION_CPTPL_PERSIST;
	}
	return NVME_ST_SUCCESS;
}

/* ---- Acquire ---- */

static uint16_t resv_acquire(struct nvmf_resv *r, unsigned me, uint8_t type)
{
	if (r->type != 0) {
		return nvmf_resv_holds(r, me) && r->type == type ? NVME_ST_SUCCESS : conflict;
	}
	r->type = type;
	r->holder = (uint8_t)me;
	return NVME_ST_SUCCESS;
}

/* Removes the other registrants with a key, or all others. Returns the index of `me` afterwards: the host that preempts
 * stays registered, whatever its key is. */
static unsigned registrants_remove_others(struct nvmf_resv *r, unsigned me, bool all, uint64_t key,
					  struct nvmf_resv_notices *notices)
{
	for (unsigned i = r->num_registrants; i-- > 0;) {
		if (i == me || (!all && r->registrants[i].key != key)) {
			continue;
		}
		resv_add_notice(notices, &r->registrants[i], NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED);
		registrant_remove(r, i);
		me -= i < me;
	}
	return me;
}

static bool registrant_key_is_known(const struct nvmf_resv *r, uint64_t key)
{
	for (unsigned i = 0; i < r->num_registrants; i++) {
		if (r->registrants[i].key == key) {
			return true;
		}
	}
	return false;
}

/* Replaces the reservation; the remaining registrants are notified that the old one has ended. */
static void resv_replace(struct nvmf_resv *r, unsigned me, uint8_t type, struct nvmf_resv_notices *notices)
{
	if (r->type != type) {
		resv_notify_others(r, me, notices, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED);
	}
	r->type = type;
	r->holder = (uint8_t)me;
}

/* Base 8.19.7. */
static uint16_t resv_preempt(struct nvmf_resv *r, unsigned me, const struct nvmf_resv_acquire *cmd,
			     struct nvmf_resv_notices *notices)
{
	bool everybody = resv_all_hold(r->type) && cmd->prkey == 0;
	bool from_holder = r->type != 0 && !resv_all_hold(r->type) && r->registrants[r->holder].key == cmd->prkey;

	if (!everybody && !from_holder) {
		if (r->type != 0 && cmd->prkey == 0) {
			return NVME_ST_DNR(GENERIC, INVALID_FIELD);
		}
		if (!registrant_key_is_known(r, cmd->prkey)) {
			return conflict;
		}
	}
	me = registrants_remove_others(r, me, everybody, cmd->prkey, notices);
	if (everybody || from_holder) {
		resv_replace(r, me, cmd->type, notices);
	}
	r->generation++;
	return NVME_ST_SUCCESS;
}

uint16_t nvmf_resv_acquire(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			   const struct nvmf_resv_acquire *cmd, struct nvmf_resv_notices *notices, uint16_t *where)
{
	unsigned me = registrant_find(r, hostid);

	notices->num = 0;
	*where = NVMF_WHERE_NOWHERE;
	if (me == NOBODY || r->registrants[me].key != cmd->crkey) {
		return conflict;
	}
	return cmd->action == NVME_RESERVATION_RACQA_ACQUIRE ? resv_acquire(r, me, cmd->type)
							     : resv_preempt(r, me, cmd, notices);
}

/* ---- Release ---- */

static uint16_t resv_release(struct nvmf_resv *r, unsigned me, uint8_t type, struct nvmf_resv_notices *notices,
			     uint16_t *where)
{
	if (!nvmf_resv_holds(r, me)) {
		return NVME_ST_SUCCESS;
	}
	if (r->type != type) {
		return nvmf_bad_field(where, NVMF_WHERE(41, 0));
	}
	if (resv_is_shared_by_registrants(r->type)) {
		resv_notify_others(r, me, notices, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED);
	}
	r->type = 0;
	return NVME_ST_SUCCESS;
}

static void resv_clear(struct nvmf_resv *r, unsigned me, struct nvmf_resv_notices *notices)
{
	resv_notify_others(r, me, notices, NVME_RESV_NOTIFY_RNLPT_RESERVATION_PREEMPTED);
	r->type = 0;
	r->num_registrants = 0;
	r->generation++;
}

uint16_t nvmf_resv_release(struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE],
			   const struct nvmf_resv_release *cmd, struct nvmf_resv_notices *notices, uint16_t *where)
{
	unsigned me = registrant_find(r, hostid);

	notices->num = 0;
	*where = NVMF_WHERE_NOWHERE;
	if (me == NOBODY || r->registrants[me].key != cmd->crkey) {
		return conflict;
	}
	if (cmd->action == NVME_RESERVATION_RRELA_RELEASE) {
		return resv_release(r, me, cmd->type, notices, where);
	}
	resv_clear(r, me, notices);
	return NVME_ST_SUCCESS;
}

/* ---- Looking ---- */

/* NVM 2.1.1: the access that each type leaves to hosts that do not hold the reservation. */
bool nvmf_resv_conflicts(const struct nvmf_resv *r, const uint8_t hostid[NVMF_HOSTID_SIZE], bool writes)
{
	bool exclusive = r->type == NVME_RESERVATION_RTYPE_EA || r->type == NVME_RESERVATION_RTYPE_EARO ||
			 r->type == NVME_RESERVATION_RTYPE_EAAR;

	if (r->type == 0 || (!exclusive && !writes)) {
		return false;
	}
	if (!resv_is_shared_by_registrants(r->type)) {
		return memcmp(r->registrants[r->holder].hostid, hostid, NVMF_HOSTID_SIZE) != 0;
	}
	return registrant_find(r, hostid) == NOBODY;
}

bool nvmf_resv_equal(const struct nvmf_resv *a, const struct nvmf_resv *b)
{
	if (a->type != b->type || a->ptpl != b->ptpl || a->num_registrants != b->num_registrants ||
	    (a->type != 0 && !resv_all_hold(a->type) && a->holder != b->holder)) {
		return false;
	}
	for (unsigned i = 0; i < a->num_registrants; i++) {
		if (a->registrants[i].key != b->registrants[i].key ||
		    memcmp(a->registrants[i].hostid, b->registrants[i].hostid, NVMF_HOSTID_SIZE) != 0) {
			return false;
		}
	}
	return true;
}
