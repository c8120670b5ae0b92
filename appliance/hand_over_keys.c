/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/hand_over_keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "keyring/keyring.h"
#include "util/secret.h"

#define HEX_TEXT (2 * KEYRING_DIGEST + 1) /* with the NUL */
_Static_assert(KEYRING_SALT == KEYRING_DIGEST, "texts are equally long");

static void keys_to_hex(const uint8_t bytes[KEYRING_DIGEST], char text[HEX_TEXT])
{
	for (size_t i = 0; i < KEYRING_DIGEST; i++) {
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	}
}

static bool keys_from_hex(const json_t *o, const char *name, uint8_t bytes[KEYRING_DIGEST])
{
	const char *text = json_string_value(json_object_get(o, name));

	return text != NULL && strlen(text) == HEX_TEXT - 1 && secret_from_hex(text, bytes, KEYRING_DIGEST);
}

static bool keys_export_one(json_t *list, const struct keyring_key *key)
{
	uint8_t salt[KEYRING_SALT], digest[KEYRING_DIGEST];
	char salt_text[HEX_TEXT], digest_text[HEX_TEXT];

	if (dhchap_random(salt, sizeof(salt)) != 0 || keyring_key_digest(key, salt, digest) != 0) {
		return false;
	}
	keys_to_hex(salt, salt_text);
	keys_to_hex(digest, digest_text);
	json_t *o = json_pack("{s:s,s:s,s:s}", "name", keyring_key_name(key), "salt", salt_text, "digest", digest_text);
	return o != NULL && json_array_append_new(list, o) == 0;
}

json_t *hand_over_keys_export(bool force)
{
	json_t *list = json_array();
	bool good = list != NULL;

	for (struct keyring_key *key = keyring_next(NULL); key != NULL; key = keyring_next(key)) {
		if (keyring_key_is_saved(key) && (!force || keyring_key_kind(key) == KEYRING_DATA)) {
			good = good && keys_export_one(list, key);
		}
	}
	if (!good) {
		json_decref(list);
		list = NULL;
	}
	return list;
}

static int keys_import_one(const json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	uint8_t salt[KEYRING_SALT], digest[KEYRING_DIGEST];

	if (name == NULL || !keys_from_hex(o, "salt", salt) || !keys_from_hex(o, "digest", digest)) {
		return -EBADMSG;
	}
	return keyring_expect(name, salt, digest);
}

int hand_over_keys_import(const json_t *list)
{
	const json_t *o;
	size_t i;
	int rc = list == NULL || json_is_array(list) ? 0 : -EBADMSG;

	json_array_foreach (list, i, o) {
		rc = rc == 0 ? keys_import_one(o) : rc;
	}
	return rc;
}
