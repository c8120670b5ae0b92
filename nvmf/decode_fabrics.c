/* SPDX-License-Identifier: BSD-3-Clause */
/* Connect and the property commands, Base 6.3 to 6.6, and NQNs, Base 4.5. */
#include <ctype.h>
#include <string.h>
#include "nvmf/decode.h"
#include "util/parse.h"

bool nvmf_nqn_is_printable(const char *nqn, size_t size)
{
	size_t len = strnlen(nqn, size);

	if (len == 0 || len == size || len > NVMF_NQN_MAX) {
		return false;
	}
	for (size_t i = 0, n; i < len; i += n) {
		n = utf8_printable(nqn + i, len - i);
		if (n == 0) {
			return false;
		}
	}
	return true;
}

/* "yyyy-mm." */
static bool nqn_date_is_valid(const char *s)
{
	static const char form[] = "dddd-dd.";

	for (size_t i = 0; form[i] != 0; i++) {
		if (form[i] == 'd' ? !isdigit((unsigned char)s[i]) : s[i] != form[i]) {
			return false;
		}
	}
	int month = (s[5] - '0') * 10 + s[6] - '0';
	return month >= 1 && month <= 12;
}

/* Whether a name is labels of letters, digits and inner hyphens, separated by dots, up to ':' or the end. */
static bool nqn_domain_is_valid(const char *s)
{
	char before = '.';

	for (; *s != 0 && *s != ':'; s++) {
		bool alnum = isalnum((unsigned char)*s) != 0;

		if (!alnum && *s != '.' && *s != '-') {
			return false;
		}
		if (!alnum && (before == '.' || (before == '-' && *s == '.'))) {
			return false;
		}
		before = *s;
	}
	return before != '.' && before != '-';
}

bool nvmf_nqn_is_valid(const char *nqn)
{
	static const char prefix[] = "nqn.";

	if (!nvmf_nqn_is_printable(nqn, NVMF_NQN_MAX + 1) || strncmp(nqn, prefix, strlen(prefix)) != 0) {
		return false;
	}
	const char *date = nqn + strlen(prefix);
	if (!nqn_date_is_valid(date)) {
		return false;
	}
	const char *domain = date + strlen("yyyy-mm.");
	const char *colon = strchr(domain, ':');
	return nqn_domain_is_valid(domain) && (colon == NULL || colon[1] != 0);
}

static uint16_t connect_bad_parameter(struct nvmf_connect_fault *fault, uint8_t iattr, size_t ipo)
{
	fault->iattr = iattr;
	fault->ipo = (uint16_t)ipo;
	return NVME_ST_DNR(CMD_SPECIFIC, CONNECT_INVALID_PARAM);
}

static uint16_t decode_connect_data(const struct nvmf_connect_data *data, struct nvmf_connect *out,
				    struct nvmf_connect_fault *fault)
{
	if (!nvmf_nqn_is_printable(data->subsysnqn, sizeof(data->subsysnqn))) {
		return connect_bad_parameter(fault, 1, offsetof(struct nvmf_connect_data, subsysnqn));
	}
	/* No name at all is for whoever admits the host: SPDK's perf and identify send none unless they are told one.
	 */
	if (data->hostnqn[0] != 0 && !nvmf_nqn_is_printable(data->hostnqn, sizeof(data->hostnqn))) {
		return connect_bad_parameter(fault, 1, offsetof(struct nvmf_connect_data, hostnqn));
	}
	memcpy(out->hostid, data->hostid, sizeof(out->hostid));
	out->cntlid = le16toh(data->cntlid);
	strcpy(out->subnqn, data->subsysnqn);
	strcpy(out->hostnqn, data->hostnqn);
	return NVME_ST_SUCCESS;
}

uint16_t nvmf_decode_connect(const struct nvmf_connect_sqe *sqe, const void *data, size_t data_len,
			     struct nvmf_connect *out, struct nvmf_connect_fault *fault)
{
	*fault = (struct nvmf_connect_fault){0};
	if (sqe->recfmt != 0) {
		fault->ipo = offsetof(struct nvmf_connect_sqe, recfmt);
		return NVME_ST_DNR(CMD_SPECIFIC, CONNECT_FORMAT);
	}
	if (data_len < sizeof(struct nvmf_connect_data)) {
		fault->ipo = NVMF_WHERE_SGL_LENGTH;
		return NVME_ST_DNR(GENERIC, SGL_INVALID_DATA);
	}
	if (sqe->sqsize == 0) {
		return connect_bad_parameter(fault, 0, offsetof(struct nvmf_connect_sqe, sqsize));
	}
	out->qid = le16toh(sqe->qid);
	out->sqsize = le16toh(sqe->sqsize) + UINT32_C(1);
	out->kato_ms = le32toh(sqe->kato);
	out->no_sq_flow_control = (sqe->cattr & NVMF_CATTR_DISABLE_SQ_FLOW) != 0;
	return decode_connect_data(data, out, fault);
}

uint16_t nvmf_decode_auth(const struct nvmf_auth_sqe *sqe, uint32_t max, uint32_t *length, uint16_t *where)
{
	size_t bad = 0;

	*length = le32toh(sqe->length);
	if (sqe->secp != NVMF_AUTH_SECP) {
		bad = offsetof(struct nvmf_auth_sqe, secp);
	} else if (sqe->spsp0 != NVMF_AUTH_SPSP) {
		bad = offsetof(struct nvmf_auth_sqe, spsp0);
	} else if (sqe->spsp1 != NVMF_AUTH_SPSP) {
		bad = offsetof(struct nvmf_auth_sqe, spsp1);
	} else if (*length == 0 || *length > max) {
		bad = offsetof(struct nvmf_auth_sqe, length);
	}
	*where = NVMF_WHERE(bad, 0);
	return bad == 0 ? NVME_ST_SUCCESS : NVME_ST_DNR(GENERIC, INVALID_FIELD);
}

static uint16_t decode_property_size(uint8_t attrib, struct nvmf_property *out, uint16_t *where)
{
	switch (attrib & NVMF_PROPERTY_SIZE_MASK) {
	case NVMF_PROPERTY_SIZE_4:
		out->size = 4;
		return NVME_ST_SUCCESS;
	case NVMF_PROPERTY_SIZE_8:
		out->size = 8;
		return NVME_ST_SUCCESS;
	default:
		*where = NVMF_WHERE(offsetof(struct nvmf_property_get_sqe, attrib), 0);
		return NVME_ST_DNR(GENERIC, INVALID_FIELD);
	}
}

uint16_t nvmf_decode_property_get(const struct nvmf_property_get_sqe *sqe, struct nvmf_property *out, uint16_t *where)
{
	out->offset = le32toh(sqe->ofst);
	out->value = 0;
	return decode_property_size(sqe->attrib, out, where);
}

uint16_t nvmf_decode_property_set(const struct nvmf_property_set_sqe *sqe, struct nvmf_property *out, uint16_t *where)
{
	out->offset = le32toh(sqe->ofst);
	out->value = le64toh(sqe->value);
	uint16_t status = decode_property_size(sqe->attrib, out, where);
	if (status == NVME_ST_SUCCESS && out->size == 4) {
		out->value = (uint32_t)out->value;
	}
	return status;
}
