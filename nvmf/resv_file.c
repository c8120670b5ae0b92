/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a namespace's reservation: text lines in one order and one spelling, so that everything else is an error.
 * The last line shows that none is missing.
 *
 *     varve-reservation 1
 *     namespace 11111111222233334444555555555555
 *     persist 1
 *     type 3
 *     registrant 0123456789abcdef0123456789abcdef 00000000000000a1 holder
 *     end
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "nvmf/resv.h"

static size_t resv_file_put_hex(char *to, const uint8_t *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		to[2 * i] = digits[bytes[i] >> 4];
		to[2 * i + 1] = digits[bytes[i] & 0xf];
	}
	to[2 * len] = 0;
	return 2 * len;
}

size_t nvmf_resv_file_encode(const struct nvmf_resv *r, const uint8_t uuid[16], char text[NVMF_RESV_FILE_MAX])
{
	char hex[2 * NVMF_HOSTID_SIZE + 1];
	int at;

	resv_file_put_hex(hex, uuid, 16);
	at = snprintf(text, NVMF_RESV_FILE_MAX, "varve-reservation 1\nnamespace %s\npersist %u\ntype %u\n", hex,
		      r->ptpl, r->type);
	for (unsigned i = 0; i < r->num_registrants; i++) {
		resv_file_put_hex(hex, r->registrants[i].hostid, NVMF_HOSTID_SIZE);
		at += snprintf(text + at, NVMF_RESV_FILE_MAX - (size_t)at, "registrant %s %016llx%s\n", hex,
			       (unsigned long long)r->registrants[i].key, nvmf_resv_holds(r, i) ? " holder" : "");
	}
	at += snprintf(text + at, NVMF_RESV_FILE_MAX - (size_t)at, "end\n");
	return (size_t)at;
}

_Static_assert(20 + 43 + 10 + 7 + 4 + NVMF_RESV_REGISTRANTS_MAX * 68 < NVMF_RESV_FILE_MAX, "the longest text");

/* ---- Reading ---- */

struct text {
	const char *at, *end;
	unsigned line;
};

static bool resv_file_take(struct text *t, const char *words)
{
	size_t len = strlen(words);

	if ((size_t)(t->end - t->at) < len || memcmp(t->at, words, len) != 0) {
		return false;
	}
	t->at += len;
	t->line += words[len - 1] == '\n';
	return true;
}

static int resv_file_hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool resv_file_take_hex(struct text *t, uint8_t *bytes, size_t len)
{
	if ((size_t)(t->end - t->at) < 2 * len) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		int high = resv_file_hex_digit(t->at[2 * i]), low = resv_file_hex_digit(t->at[2 * i + 1]);
		if (high < 0 || low < 0) {
			return false;
		}
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	t->at += 2 * len;
	return true;
}

static bool resv_file_take_digit(struct text *t, uint8_t max, uint8_t *value)
{
	if (t->at == t->end || *t->at < '0' || *t->at > '0' + max) {
		return false;
	}
	*value = (uint8_t)(*t->at++ - '0');
	return true;
}

static bool resv_file_take_head(struct text *t, uint8_t uuid[16], struct nvmf_resv *r)
{
	uint8_t persist = 0;
	bool good = resv_file_take(t, "varve-reservation 1\n") && resv_file_take(t, "namespace ") &&
		    resv_file_take_hex(t, uuid, 16) && resv_file_take(t, "\n") && resv_file_take(t, "persist ") &&
		    resv_file_take_digit(t, 1, &persist) && resv_file_take(t, "\n") && resv_file_take(t, "type ") &&
		    resv_file_take_digit(t, NVME_RESERVATION_RTYPE_EAAR, &r->type) && resv_file_take(t, "\n");

	r->ptpl = persist != 0;
	return good;
}

static bool resv_file_is_registered(const struct nvmf_resv *r, const uint8_t *hostid)
{
	for (unsigned i = 0; i < r->num_registrants; i++) {
		if (memcmp(r->registrants[i].hostid, hostid, NVMF_HOSTID_SIZE) == 0) {
			return true;
		}
	}
	return false;
}

/* The rest of a line after "registrant ". */
static bool resv_file_take_registrant(struct text *t, struct nvmf_resv *r, unsigned *holders)
{
	struct nvmf_registrant new = {0};
	uint8_t key[8];

	if (r->num_registrants == NVMF_RESV_REGISTRANTS_MAX || !resv_file_take_hex(t, new.hostid, sizeof(new.hostid)) ||
	    resv_file_is_registered(r, new.hostid) || !resv_file_take(t, " ") ||
	    !resv_file_take_hex(t, key, sizeof(key))) {
		return false;
	}
	for (size_t i = 0; i < sizeof(key); i++) {
		new.key = new.key << 8 | key[i];
	}
	if (resv_file_take(t, " holder")) {
		r->holder = r->num_registrants;
		++*holders;
	}
	r->registrants[r->num_registrants++] = new;
	return resv_file_take(t, "\n");
}

/* Whether the number of holders fits the type: all registrants, one, or none. */
static bool resv_file_holders_are_good(const struct nvmf_resv *r, unsigned holders)
{
	if (r->type == 0) {
		return holders == 0;
	}
	if (r->type >= NVME_RESERVATION_RTYPE_WEAR) {
		return holders == r->num_registrants && holders != 0;
	}
	return holders == 1;
}

int nvmf_resv_file_decode(const char *text, size_t len, const uint8_t uuid[16], struct nvmf_resv *r, unsigned *line)
{
	struct text t = {.at = text, .end = text + len, .line = 1};
	uint8_t whose[16];
	unsigned holders = 0;

	memset(r, 0, sizeof(*r));
	bool good = resv_file_take_head(&t, whose, r);
	while (good && resv_file_take(&t, "registrant ")) {
		good = resv_file_take_registrant(&t, r, &holders);
	}
	if (!good || !resv_file_take(&t, "end\n") || t.at != t.end || !resv_file_holders_are_good(r, holders)) {
		*line = t.line;
		return -EBADMSG;
	}
	return memcmp(whose, uuid, sizeof(whose)) == 0 ? 0 : -EINVAL;
}
