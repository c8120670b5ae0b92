/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of states and of address families, and the comparison of addresses. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "nvmf/internal.h"
#include "util/parse.h"

#define NAME_OF(names_, i_) ((size_t)(i_) < ARRAY_SIZE(names_) ? names_[i_] : "?")

const char *nvmf_tgt_state_name(enum nvmf_tgt_state state)
{
	static const char *const names[NVMF_TGT_STATES] = {
		[NVMF_TGT_NONE] = "NONE",
		[NVMF_TGT_CREATE_TARGET] = "CREATE_TARGET",
		[NVMF_TGT_CREATE_POLL_GROUPS] = "CREATE_POLL_GROUPS",
		[NVMF_TGT_START_SUBSYSTEMS] = "START_SUBSYSTEMS",
		[NVMF_TGT_RUNNING] = "RUNNING",
		[NVMF_TGT_STOP_SUBSYSTEMS] = "STOP_SUBSYSTEMS",
		[NVMF_TGT_DESTROY_SUBSYSTEMS] = "DESTROY_SUBSYSTEMS",
		[NVMF_TGT_DESTROY_POLL_GROUPS] = "DESTROY_POLL_GROUPS",
		[NVMF_TGT_STOPPED] = "STOPPED",
		[NVMF_TGT_ERROR] = "ERROR",
	};

	return NAME_OF(names, state);
}

const char *nvmf_subsystem_state_name(enum nvmf_subsystem_state state)
{
	static const char *const names[NVMF_SUBSYSTEM_STATES] = {
		[NVMF_SUBSYSTEM_INACTIVE] = "INACTIVE",
		[NVMF_SUBSYSTEM_ACTIVE] = "ACTIVE",
		[NVMF_SUBSYSTEM_PAUSED] = "PAUSED",
	};

	return NAME_OF(names, state);
}

const char *nvmf_ctrlr_state_name(enum nvmf_ctrlr_state state)
{
	static const char *const names[NVMF_CTRLR_STATES] = {
		[NVMF_CTRLR_DISABLED] = "DISABLED",     [NVMF_CTRLR_READY] = "READY",
		[NVMF_CTRLR_RESETTING] = "RESETTING",   [NVMF_CTRLR_SHUTTING_DOWN] = "SHUTTING_DOWN",
		[NVMF_CTRLR_SHUT_DOWN] = "SHUT_DOWN",   [NVMF_CTRLR_FAILED] = "FAILED",
		[NVMF_CTRLR_DESTROYING] = "DESTROYING",
	};

	return NAME_OF(names, state);
}

const char *nvmf_qpair_state_name(enum nvmf_qpair_state state)
{
	static const char *const names[NVMF_QPAIR_STATES] = {
		[NVMF_QPAIR_NEW] = "NEW",
		[NVMF_QPAIR_CONNECTING] = "CONNECTING",
		[NVMF_QPAIR_ENABLED] = "ENABLED",
		[NVMF_QPAIR_DISCONNECTING] = "DISCONNECTING",
		[NVMF_QPAIR_CLOSED] = "CLOSED",
		[NVMF_QPAIR_AUTHENTICATING] = "AUTHENTICATING",
		[NVMF_QPAIR_QUIESCING] = "QUIESCING",
	};

	return NAME_OF(names, state);
}

static const struct {
	uint8_t adrfam;
	const char *name;
} adrfams[] = {
	{NVMF_ADDR_FAMILY_IP4, "IPv4"}, {NVMF_ADDR_FAMILY_IP6, "IPv6"},        {NVMF_ADDR_FAMILY_IB, "IB"},
	{NVMF_ADDR_FAMILY_FC, "FC"},    {NVMF_ADDR_FAMILY_LOOP, "intra-host"},
};

const char *nvmf_adrfam_name(uint8_t adrfam)
{
	for (size_t i = 0; i < ARRAY_SIZE(adrfams); i++) {
		if (adrfams[i].adrfam == adrfam) {
			return adrfams[i].name;
		}
	}
	return "?";
}

int nvmf_adrfam_parse(const char *name, uint8_t *adrfam)
{
	for (size_t i = 0; i < ARRAY_SIZE(adrfams); i++) {
		if (strcasecmp(adrfams[i].name, name) == 0) {
			*adrfam = adrfams[i].adrfam;
			return 0;
		}
	}
	return -EINVAL;
}

static int address_refuse(const char **field, const char *name, char allowed[NVMF_ERROR_MAX], const char *text)
{
	*field = name;
	snprintf(allowed, NVMF_ERROR_MAX, "%s", text);
	return -EINVAL;
}

int nvmf_address_check(const struct nvmf_address *a, const char **field, char allowed[NVMF_ERROR_MAX])
{
	bool v6 = a->adrfam == NVMF_ADDR_FAMILY_IP6;

	if (!v6 && a->adrfam != NVMF_ADDR_FAMILY_IP4) {
		return 0;
	}
	if (!parse_is_ip_address(a->traddr, v6)) {
		return address_refuse(field, "traddr", allowed,
				      v6 ? "allowed is a numeric IPv6 address (adrfam IPv6)"
					 : "allowed is a numeric IPv4 address (adrfam IPv4)");
	}
	if (!parse_is_port(a->trsvcid)) {
		return address_refuse(field, "trsvcid", allowed, "allowed is a port, 1 to 65535");
	}
	return 0;
}

int nvmf_tgt_check_listen_address(struct nvmf_tgt *tgt, const struct nvmf_address *a, const char **field,
				  char allowed[NVMF_ERROR_MAX])
{
	const struct nvmf_transport *t = nvmf_transport_find(tgt, a->trtype);

	if (t == NULL) {
		return address_refuse(field, "trtype", allowed,
				      "the target has no such transport; nvmf_create_transport makes one");
	}
	if (t->ops->ip_only && a->adrfam != NVMF_ADDR_FAMILY_IP4 && a->adrfam != NVMF_ADDR_FAMILY_IP6) {
		return address_refuse(field, "adrfam", allowed, "this transport listens on IPv4 and IPv6");
	}
	return nvmf_address_check(a, field, allowed);
}

const char *nvmf_address_field(const struct nvmf_address *a, const char *field)
{
	return strcmp(field, "trtype") == 0   ? a->trtype
	       : strcmp(field, "adrfam") == 0 ? nvmf_adrfam_name(a->adrfam)
	       : strcmp(field, "traddr") == 0 ? a->traddr
					      : a->trsvcid;
}

bool nvmf_address_equal(const struct nvmf_address *a, const struct nvmf_address *b)
{
	return strcasecmp(a->trtype, b->trtype) == 0 && a->adrfam == b->adrfam &&
	       strcasecmp(a->traddr, b->traddr) == 0 && strcmp(a->trsvcid, b->trsvcid) == 0;
}
