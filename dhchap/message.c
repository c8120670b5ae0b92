/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages, to and from bytes. */
#include "dhchap/dhchap.h"

#include <string.h>

/* ---- Decoding ---- */

bool dhchap_decode_header(const void *data, size_t len, struct dhchap_header *header)
{
	if (len < sizeof(*header)) {
		return false;
	}
	memcpy(header, data, sizeof(*header));
	return true;
}

/* The set of those ids of a list that we know. */
static unsigned ids_to_mask(const uint8_t *ids, size_t n, unsigned all)
{
	unsigned set = 0;

	for (size_t i = 0; i < n; i++) {
		set |= ids[i] < 32 ? 1u << ids[i] & all : 0;
	}
	return set;
}

uint8_t dhchap_decode_negotiate(const void *data, size_t len, struct dhchap_negotiate *out)
{
	const struct dhchap_negotiate_wire *m = data;

	*out = (struct dhchap_negotiate){0};
	if (len < sizeof(*m) || m->num_protocols == 0 ||
	    len != sizeof(*m) + m->num_protocols * sizeof(struct dhchap_protocol_wire)) {
		return DHCHAP_INCORRECT_PAYLOAD;
	}
	if (m->sc_c != DHCHAP_SC_NONE && m->sc_c != DHCHAP_SC_NEW_TLS_PSK && m->sc_c != DHCHAP_SC_REPLACE_TLS_PSK) {
		return DHCHAP_SCC_MISMATCH;
	}
	out->sc_c = m->sc_c;
	for (unsigned i = 0; i < m->num_protocols; i++) {
		const struct dhchap_protocol_wire *p = &m->protocols[i];

		if (p->auth_id != DHCHAP_TYPE_DHCHAP) {
			continue;
		}
		if (p->num_hashes > sizeof(p->hashes) || p->num_groups > sizeof(p->groups)) {
			return DHCHAP_INCORRECT_PAYLOAD;
		}
		out->hashes = ids_to_mask(p->hashes, p->num_hashes, DHCHAP_ALL_HASHES);
		out->groups = ids_to_mask(p->groups, p->num_groups, DHCHAP_ALL_GROUPS);
		return DHCHAP_OK;
	}
	return DHCHAP_PROTOCOL_UNUSABLE;
}

/* With a group there is a DH value, without one there is none. Some peers omit leading zeroes. */
static bool dh_len_is_good(unsigned group, size_t dh_len)
{
	return group == DHCHAP_GROUP_NULL ? dh_len == 0 : dh_len != 0 && dh_len <= dhchap_group_bytes(group);
}

uint8_t dhchap_decode_reply(const void *data, size_t len, unsigned hash, unsigned group, uint8_t sc_c,
			    struct dhchap_reply *out)
{
	const struct dhchap_reply_wire *m = data;
	size_t hash_len = dhchap_hash_bytes(hash);

	if (len < sizeof(*m) || m->hash_len != hash_len || len != sizeof(*m) + 2 * hash_len + le16toh(m->dh_len) ||
	    !dh_len_is_good(group, le16toh(m->dh_len)) || m->challenge_valid > 1 ||
	    (sc_c != DHCHAP_SC_NONE ? !m->challenge_valid : m->challenge_valid && m->seqnum == 0)) {
		return DHCHAP_INCORRECT_PAYLOAD;
	}
	*out = (struct dhchap_reply){
		.challenge_valid = m->challenge_valid != 0,
		.seqnum = le32toh(m->seqnum),
		.response = m->values,
		.challenge = m->values + hash_len,
		.dh_value = m->values + 2 * hash_len,
		.dh_len = le16toh(m->dh_len),
	};
	return DHCHAP_OK;
}

uint8_t dhchap_decode_success2(const void *data, size_t len)
{
	return len == sizeof(struct dhchap_success2_wire) ? DHCHAP_OK : DHCHAP_INCORRECT_PAYLOAD;
}

uint8_t dhchap_decode_failure(const void *data, size_t len, struct dhchap_failure *out)
{
	const struct dhchap_failure_wire *m = data;

	if (len < sizeof(*m)) {
		return DHCHAP_INCORRECT_PAYLOAD;
	}
	*out = (struct dhchap_failure){.reason = m->reason, .why = m->why};
	return DHCHAP_OK;
}

uint8_t dhchap_decode_challenge(const void *data, size_t len, struct dhchap_challenge *out)
{
	const struct dhchap_challenge_wire *m = data;

	if (len < sizeof(*m)) {
		return DHCHAP_INCORRECT_PAYLOAD;
	}
	if (dhchap_hash_bytes(m->hash) == 0) {
		return DHCHAP_HASH_UNUSABLE;
	}
	if (m->group >= DHCHAP_GROUPS) {
		return DHCHAP_GROUP_UNUSABLE;
	}
	if (m->hash_len != dhchap_hash_bytes(m->hash) || !dh_len_is_good(m->group, le16toh(m->dh_len)) ||
	    len < sizeof(*m) + m->hash_len + le16toh(m->dh_len)) {
		return DHCHAP_INCORRECT_PAYLOAD;
	}
	*out = (struct dhchap_challenge){
		.hash = m->hash,
		.group = m->group,
		.seqnum = le32toh(m->seqnum),
		.challenge = m->values,
		.dh_value = m->values + m->hash_len,
		.dh_len = le16toh(m->dh_len),
	};
	return DHCHAP_OK;
}

uint8_t dhchap_decode_success1(const void *data, size_t len, unsigned hash, struct dhchap_success1 *out)
{
	const struct dhchap_success1_wire *m = data;
	size_t hash_len = dhchap_hash_bytes(hash);

	if (len < sizeof(*m) || m->response_valid > 1) {
		return DHCHAP_INCORRECT_PAYLOAD;
	}
	if (m->response_valid && (m->hash_len != hash_len || len < sizeof(*m) + hash_len)) {
		return DHCHAP_INCORRECT_PAYLOAD;
	}
	*out = (struct dhchap_success1){.response_valid = m->response_valid != 0, .response = m->values};
	return DHCHAP_OK;
}

/* ---- Encoding ---- */

static void header_fill(struct dhchap_header *h, uint8_t type, uint8_t id, uint16_t t_id)
{
	h->type = type;
	h->id = id;
	h->t_id = htole16(t_id);
}

static uint8_t ids_fill(uint8_t *ids, unsigned set)
{
	uint8_t n = 0;

	for (uint8_t id = 0; id < 32; id++) {
		if (set >> id & 1) {
			ids[n++] = id;
		}
	}
	return n;
}

size_t dhchap_encode_negotiate(void *to, uint16_t t_id, uint8_t sc_c, unsigned hashes, unsigned groups)
{
	struct dhchap_negotiate_wire *m = to;
	struct dhchap_protocol_wire *p = m->protocols;
	size_t len = sizeof(*m) + sizeof(*p);

	memset(m, 0, len);
	header_fill(&m->header, DHCHAP_TYPE_COMMON, DHCHAP_ID_NEGOTIATE, t_id);
	m->sc_c = sc_c;
	m->num_protocols = 1;
	p->auth_id = DHCHAP_TYPE_DHCHAP;
	p->num_hashes = ids_fill(p->hashes, hashes & DHCHAP_ALL_HASHES);
	p->num_groups = ids_fill(p->groups, groups & DHCHAP_ALL_GROUPS);
	return len;
}

size_t dhchap_encode_challenge(void *to, uint16_t t_id, const struct dhchap_challenge *in)
{
	struct dhchap_challenge_wire *m = to;
	size_t hash_len = dhchap_hash_bytes(in->hash);

	memset(m, 0, sizeof(*m));
	header_fill(&m->header, DHCHAP_TYPE_DHCHAP, DHCHAP_ID_CHALLENGE, t_id);
	m->hash_len = (uint8_t)hash_len;
	m->hash = in->hash;
	m->group = in->group;
	m->dh_len = htole16(in->dh_len);
	m->seqnum = htole32(in->seqnum);
	memcpy(m->values, in->challenge, hash_len);
	if (in->dh_len != 0) {
		memcpy(m->values + hash_len, in->dh_value, in->dh_len);
	}
	return sizeof(*m) + hash_len + in->dh_len;
}

size_t dhchap_encode_reply(void *to, uint16_t t_id, unsigned hash, const struct dhchap_reply *in)
{
	struct dhchap_reply_wire *m = to;
	size_t hash_len = dhchap_hash_bytes(hash);

	memset(m, 0, sizeof(*m) + 2 * hash_len);
	header_fill(&m->header, DHCHAP_TYPE_DHCHAP, DHCHAP_ID_REPLY, t_id);
	m->hash_len = (uint8_t)hash_len;
	m->challenge_valid = in->challenge_valid;
	m->dh_len = htole16(in->dh_len);
	m->seqnum = htole32(in->seqnum);
	memcpy(m->values, in->response, hash_len);
	if (in->challenge_valid) {
		memcpy(m->values + hash_len, in->challenge, hash_len);
	}
	if (in->dh_len != 0) {
		memcpy(m->values + 2 * hash_len, in->dh_value, in->dh_len);
	}
	return sizeof(*m) + 2 * hash_len + in->dh_len;
}

size_t dhchap_encode_success1(void *to, uint16_t t_id, unsigned hash, const uint8_t *response)
{
	struct dhchap_success1_wire *m = to;
	size_t hash_len = dhchap_hash_bytes(hash);

	memset(m, 0, sizeof(*m));
	header_fill(&m->header, DHCHAP_TYPE_DHCHAP, DHCHAP_ID_SUCCESS1, t_id);
	m->hash_len = (uint8_t)hash_len; /* also without a response: the kernel's host looks at it */
	if (response == NULL) {
		return sizeof(*m);
	}
	m->response_valid = 1;
	memcpy(m->values, response, hash_len);
	return sizeof(*m) + hash_len;
}

size_t dhchap_encode_success2(void *to, uint16_t t_id)
{
	struct dhchap_success2_wire *m = to;

	memset(m, 0, sizeof(*m));
	header_fill(&m->header, DHCHAP_TYPE_DHCHAP, DHCHAP_ID_SUCCESS2, t_id);
	return sizeof(*m);
}

size_t dhchap_encode_failure(void *to, uint16_t t_id, uint8_t id, uint8_t why)
{
	struct dhchap_failure_wire *m = to;

	memset(m, 0, sizeof(*m));
	header_fill(&m->header, DHCHAP_TYPE_COMMON, id, t_id);
	m->reason = DHCHAP_REASON_FAILURE;
	m->why = why;
	return sizeof(*m);
}
