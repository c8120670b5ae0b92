/* SPDX-License-Identifier: BSD-3-Clause */
#include "nvme/nvme.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "util/compiler.h"
#include "util/parse.h"

static int trid_refuse(char error[NVME_ERROR_MAX], const char *key, const char *value, const char *allowed)
{
	snprintf(error, NVME_ERROR_MAX, "%s '%.80s' is not allowed: %s", key, value, allowed);
	return -EINVAL;
}

static int trid_set_trtype(struct nvme_trid *trid, const char *value, char error[NVME_ERROR_MAX])
{
	const struct nvme_transport *t = nvme_transport_find_by_name(value);
	char names[NVME_TRANSPORT_NAMES_MAX];

	if (t == NULL) {
		return trid_refuse(error, "trtype", value, nvme_transport_names(false, names, sizeof(names)));
	}
	trid->trtype = t->trtype;
	return 0;
}

static const struct {
	const char *name;
	uint8_t adrfam;
} adrfams[] = {{"IPv4", NVMF_ADDR_FAMILY_IP4}, {"IPv6", NVMF_ADDR_FAMILY_IP6}};

bool nvme_adrfam_parse(const char *text, uint8_t *adrfam)
{
	for (size_t i = 0; i < ARRAY_SIZE(adrfams); i++) {
		if (strcasecmp(adrfams[i].name, text) == 0) {
			*adrfam = adrfams[i].adrfam;
			return true;
		}
	}
	return false;
}

const char *nvme_adrfam_name(uint8_t adrfam)
{
	for (size_t i = 0; i < ARRAY_SIZE(adrfams); i++) {
		if (adrfams[i].adrfam == adrfam) {
			return adrfams[i].name;
		}
	}
	return adrfams[0].name;
}

static int trid_set_adrfam(struct nvme_trid *trid, const char *value, char error[NVME_ERROR_MAX])
{
	return nvme_adrfam_parse(value, &trid->adrfam) ? 0 : trid_refuse(error, "adrfam", value, "IPv4 or IPv6");
}

static int trid_copy_text(char *to, size_t size, const char *key, const char *value, char error[NVME_ERROR_MAX])
{
	if (strlen(value) >= size) {
		char allowed[48];
		snprintf(allowed, sizeof(allowed), "at most %zu characters", size - 1);
		return trid_refuse(error, key, value, allowed);
	}
	strcpy(to, value);
	return 0;
}

static int trid_set_key(struct nvme_trid *trid, const char *key, const char *value, char error[NVME_ERROR_MAX])
{
	if (strcasecmp(key, "trtype") == 0) {
		return trid_set_trtype(trid, value, error);
	}
	if (strcasecmp(key, "adrfam") == 0) {
		return trid_set_adrfam(trid, value, error);
	}
	if (strcasecmp(key, "traddr") == 0) {
		return trid_copy_text(trid->traddr, sizeof(trid->traddr), key, value, error);
	}
	if (strcasecmp(key, "trsvcid") == 0) {
		return trid_copy_text(trid->trsvcid, sizeof(trid->trsvcid), key, value, error);
	}
	if (strcasecmp(key, "subnqn") == 0) {
		if (!nvme_nqn_is_valid(value)) {
			return trid_refuse(error, key, value,
					   "an NQN, nqn.yyyy-mm.reverse.domain:name, at most 223 bytes");
		}
		return trid_copy_text(trid->subnqn, sizeof(trid->subnqn), key, value, error);
	}
	return trid_refuse(error, "key", key, "trtype, adrfam, traddr, trsvcid, subnqn");
}

int nvme_trid_check_address(const struct nvme_trid *trid, char error[NVME_ERROR_MAX])
{
	const struct nvme_transport *t = nvme_transport_find(trid->trtype);
	bool v4 = trid->adrfam != NVMF_ADDR_FAMILY_IP6, v6 = trid->adrfam != NVMF_ADDR_FAMILY_IP4;

	if (t == NULL || (t->keys & NVME_TRID_ADRFAM) == 0) {
		return 0;
	}
	if (!(v4 && parse_is_ip_address(trid->traddr, false)) && !(v6 && parse_is_ip_address(trid->traddr, true))) {
		return trid_refuse(error, "traddr", trid->traddr,
				   v4 && v6 ? "a numeric IP address"
				   : v4     ? "a numeric IPv4 address"
					    : "a numeric IPv6 address");
	}
	if (trid->trsvcid[0] != '\0' && !parse_is_port(trid->trsvcid)) {
		return trid_refuse(error, "trsvcid", trid->trsvcid, "a port, 1 to 65535");
	}
	return 0;
}

static int trid_check_complete(const struct nvme_trid *trid, bool has_trtype, char error[NVME_ERROR_MAX])
{
	if (!has_trtype) {
		char names[NVME_TRANSPORT_NAMES_MAX], allowed[NVME_TRANSPORT_NAMES_MAX + 16];

		snprintf(allowed, sizeof(allowed), "%s must be given",
			 nvme_transport_names(false, names, sizeof(names)));
		return trid_refuse(error, "trtype", "", allowed);
	}
	if (trid->traddr[0] == '\0') {
		return trid_refuse(error, "traddr", "", "an address must be given");
	}
	return nvme_trid_check_address(trid, error);
}

int nvme_trid_parse(struct nvme_trid *trid, const char *text, char error[NVME_ERROR_MAX])
{
	bool has_trtype = false;

	memset(trid, 0, sizeof(*trid));
	while (*(text += strspn(text, " \t\n")) != '\0') {
		char key[16], value[NVME_TRADDR_MAX + 1];
		size_t token = strcspn(text, " \t\n"), name = strcspn(text, ": \t\n");

		if (name == 0 || name == token || name >= sizeof(key)) {
			snprintf(error, NVME_ERROR_MAX, "'%.*s' is not key:value", (int)(token < 80 ? token : 80),
				 text);
			return -EINVAL;
		}
		if (token - name - 1 >= sizeof(value)) {
			snprintf(error, NVME_ERROR_MAX,
				 "the value of '%.*s' has %zu characters; at most %zu are allowed", (int)name, text,
				 token - name - 1, sizeof(value) - 1);
			return -EINVAL;
		}
		snprintf(key, sizeof(key), "%.*s", (int)name, text);
		snprintf(value, sizeof(value), "%.*s", (int)(token - name - 1), text + name + 1);
		int rc = trid_set_key(trid, key, value, error);
		if (rc != 0) {
			return rc;
		}
		has_trtype |= strcasecmp(key, "trtype") == 0;
		text += token;
	}
	return trid_check_complete(trid, has_trtype, error);
}

bool nvme_trid_is_same_place(const struct nvme_trid *a, const struct nvme_trid *b)
{
	return a->trtype == b->trtype && a->adrfam == b->adrfam && strcasecmp(a->traddr, b->traddr) == 0 &&
	       strcmp(a->trsvcid, b->trsvcid) == 0 && strcasecmp(a->host_traddr, b->host_traddr) == 0 &&
	       strcmp(a->host_trsvcid, b->host_trsvcid) == 0;
}

static bool all_digits(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)s[i])) {
			return false;
		}
	}
	return true;
}

/* NVMe Base 2.0, 4.5: "nqn." yyyy "-" mm "." reverse domain [":" text]; UTF-8, of which we ask that it is printable. */
bool nvme_nqn_is_valid(const char *nqn)
{
	size_t len = strnlen(nqn, NVME_NQN_MAX);

	if (len < 14 || len >= NVME_NQN_MAX || strncmp(nqn, "nqn.", 4) != 0) {
		return false;
	}
	if (!all_digits(nqn + 4, 4) || nqn[8] != '-' || !all_digits(nqn + 9, 2) || nqn[11] != '.') {
		return false;
	}
	if (!isalnum((unsigned char)nqn[12])) {
		return false;
	}
	for (size_t i = 12, n; i < len; i += n) {
		n = utf8_printable(nqn + i, len - i);
		if (n == 0 || nqn[i] == ' ') {
			return false;
		}
	}
	return true;
}
