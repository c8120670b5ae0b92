/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and lengths of hash functions and groups, and words for failures. */
#include "dhchap/dhchap.h"

#include <errno.h>
#include <string.h>

#include "util/compiler.h"

static const struct {
	const char *name;
	size_t bytes;
} hashes[DHCHAP_HASHES] =
	{
		[DHCHAP_HASH_SHA256] = {"sha256", 32},
		[DHCHAP_HASH_SHA384] = {"sha384", 48},
		[DHCHAP_HASH_SHA512] = {"sha512", 64},
},
  groups[DHCHAP_GROUPS] = {
	  [DHCHAP_GROUP_NULL] = {"null", 0},        [DHCHAP_GROUP_2048] = {"ffdhe2048", 256},
	  [DHCHAP_GROUP_3072] = {"ffdhe3072", 384}, [DHCHAP_GROUP_4096] = {"ffdhe4096", 512},
	  [DHCHAP_GROUP_6144] = {"ffdhe6144", 768}, [DHCHAP_GROUP_8192] = {"ffdhe8192", 1024},
};

size_t dhchap_hash_bytes(unsigned hash)
{
	return hash < DHCHAP_HASHES ? hashes[hash].bytes : 0;
}

size_t dhchap_group_bytes(unsigned group)
{
	return group < DHCHAP_GROUPS ? groups[group].bytes : 0;
}

const char *dhchap_hash_name(unsigned hash)
{
	return hash < DHCHAP_HASHES && hashes[hash].name != NULL ? hashes[hash].name : "unknown";
}

const char *dhchap_group_name(unsigned group)
{
	return group < DHCHAP_GROUPS ? groups[group].name : "unknown";
}

int dhchap_hash_by_name(const char *name)
{
	for (int i = DHCHAP_HASH_SHA256; i < DHCHAP_HASHES; i++) {
		if (strcmp(hashes[i].name, name) == 0) {
			return i;
		}
	}
	return -EINVAL;
}

int dhchap_group_by_name(const char *name)
{
	for (int i = 0; i < DHCHAP_GROUPS; i++) {
		if (strcmp(groups[i].name, name) == 0) {
			return i;
		}
	}
	return -EINVAL;
}

/* Both are numbered from the weakest to the strongest. */
int dhchap_strongest(unsigned set)
{
	return set == 0 ? -1 : 31 - __builtin_clz(set);
}

const char *dhchap_why_text(unsigned why)
{
	static const char *const texts[] = {
		[DHCHAP_OK] = "nothing",
		[DHCHAP_FAILED] = "authentication failed",
		[DHCHAP_PROTOCOL_UNUSABLE] = "authentication protocol not usable",
		[DHCHAP_SCC_MISMATCH] = "secure channel concatenation mismatch",
		[DHCHAP_HASH_UNUSABLE] = "hash function not usable",
		[DHCHAP_GROUP_UNUSABLE] = "DH group not usable",
		[DHCHAP_INCORRECT_PAYLOAD] = "incorrect payload",
		[DHCHAP_INCORRECT_MESSAGE] = "incorrect protocol message",
	};

	return why < ARRAY_SIZE(texts) ? texts[why] : "a reason that is not in the specification";
}
