/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts from outside: keys of administrators, identities of hosts. */
#include "tls/psk.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "NVMeTLSkey-1:"

/* ---- The interchange format: 3.6.1.5 ---- */

static int psk_refuse(char why[DHCHAP_ERROR_MAX], const char *text)
{
	snprintf(why, DHCHAP_ERROR_MAX, "%s", text);
	return -EINVAL;
}

static void trim_space(const char **text, size_t *len)
{
	while (*len != 0 && isspace((unsigned char)**text)) {
		(*text)++;
		(*len)--;
	}
	while (*len != 0 && isspace((unsigned char)(*text)[*len - 1])) {
		(*len)--;
	}
}

/* A hash function derives keys as long as its hashes. */
static int psk_check_length(const struct tls_psk *psk, char why[DHCHAP_ERROR_MAX])
{
	if (psk->hash == DHCHAP_HASH_NONE ? psk->len == 32 || psk->len == 48
					  : psk->len == dhchap_hash_bytes(psk->hash)) {
		return 0;
	}
	return psk_refuse(
		why, "its key has the wrong length: allowed are 32 or 48 bytes after 00, 32 after 01, 48 after 02");
}

int tls_psk_parse(const char *text, size_t len, struct tls_psk *psk, char why[DHCHAP_ERROR_MAX])
{
	const size_t prefix = strlen(PREFIX);
	uint8_t bytes[DHCHAP_HASH_MAX];

	memset(psk, 0, sizeof(*psk));
	trim_space(&text, &len);
	if (len <= prefix + 3 || memcmp(text, PREFIX, prefix) != 0 || text[prefix + 2] != ':' || text[len - 1] != ':') {
		return psk_refuse(why,
				  "it does not have the form NVMeTLSkey-1:XX:BASE64:, as nvme gen-tls-key makes it");
	}
	if (text[prefix] != '0' || text[prefix + 1] < '0' || text[prefix + 1] > '2') {
		return psk_refuse(why, "its second part is not 00, 01 or 02");
	}
	psk->hash = (uint8_t)(text[prefix + 1] - '0');
	int rc = dhchap_key_decode(text + prefix + 3, len - prefix - 4, bytes, &psk->len, why);
	rc = rc == 0 ? psk_check_length(psk, why) : rc;
	if (rc == 0) {
		memcpy(psk->bytes, bytes, psk->len);
	}
	dhchap_cleanse(bytes, sizeof(bytes));
	return rc;
}

unsigned tls_psk_hash(const struct tls_psk *psk)
{
	if (psk->hash != DHCHAP_HASH_NONE) {
		return psk->hash;
	}
	return psk->len == 48 ? DHCHAP_HASH_SHA384 : DHCHAP_HASH_SHA256;
}

/* ---- Identities: 3.6.1.3 ---- */

/* Copies a name up to a space or the end, and moves behind it. */
static bool take_name(const char **at, const char *end, char name[TLS_NQN_MAX + 1])
{
	size_t n = 0;

	while (*at + n < end && (*at)[n] > ' ' && (*at)[n] < 0x7f) {
		n++;
	}
	if (n == 0 || n > TLS_NQN_MAX || (*at + n < end && (*at)[n] != ' ')) {
		return false;
	}
	memcpy(name, *at, n);
	name[n] = '\0';
	*at += n;
	return true;
}

static bool take_space(const char **at, const char *end)
{
	return *at < end && *(*at)++ == ' ';
}

bool tls_identity_parse(const char *text, size_t len, struct tls_identity *identity)
{
	const size_t head = strlen("NVMe0R01");
	const char *at = text + head, *end = text + len;
	char digest[TLS_NQN_MAX + 1];

	memset(identity, 0, sizeof(*identity));
	if (len <= head || memcmp(text, "NVMe", 4) != 0 || (text[5] != 'R' && text[5] != 'G') || text[6] != '0' ||
	    text[4] < '0' || text[4] >= '0' + TLS_IDENTITY_VERSIONS || (text[7] != '1' && text[7] != '2')) {
		return false;
	}
	identity->version = (uint8_t)(text[4] - '0');
	identity->hash = (uint8_t)(text[7] - '0');
	identity->generated = text[5] == 'G';
	if (identity->generated && identity->version == 0) {
		return false;
	}
	if (!take_space(&at, end) || !take_name(&at, end, identity->hostnqn) || !take_space(&at, end) ||
	    !take_name(&at, end, identity->subnqn)) {
		return false;
	}
	if (identity->version == 1) {
		if (!take_space(&at, end) || !take_name(&at, end, digest) || strlen(digest) > TLS_DIGEST_MAX) {
			return false;
		}
		memcpy(identity->digest, digest, strlen(digest));
	}
	return at == end;
}

bool tls_identity_is_derived_otherwise(const struct tls_identity *identity, const struct tls_psk *psk, const char *text,
				       size_t len)
{
	struct tls_psk other = *psk;
	struct tls_credential c;

	other.compat = !psk->compat;
	bool is = tls_credential_make(&other, identity->hostnqn, identity->subnqn, identity->version, &c) == 0 &&
		  strlen(c.identity) == len && memcmp(c.identity, text, len) == 0;
	dhchap_cleanse(&other, sizeof(other));
	dhchap_cleanse(&c, sizeof(c));
	return is;
}
