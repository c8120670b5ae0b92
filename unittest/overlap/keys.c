/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys for in-band authentication, which are in the keyring as long as the program runs. */
#include <fcntl.h>
#include <unistd.h>

#include "keyring/keyring.h"
#include "unittest/overlap/overlap.h"

static const struct {
	const char *name, *secret;
} keys[] = {
	{OV_CTRLR_KEY, "DHHC-1:03:wX+rrb7CNu6eP33j6zVkFZfhVr1LMDDO3PPqlJV+Ih8TQfE/7w/HYypHdgclJuLUxePSGAg9SaZyHBp0/"
		       "IP2Hz21o80=:"},
	{"host1", "DHHC-1:01:Ri/aOmYf2dlR6skXAxhXB9TG90MtSxXxfeVxBOhYCRGHzziV:"},
	{"host2", "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"},
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))
_Static_assert(KEYS == 1 + OV_KEYS, "a key for each number");

const char *ov_key_name(unsigned key)
{
	return keys[key % KEYS].name;
}

static void key_add(const char *name, const char *secret)
{
	char path[] = "/tmp/varve-overlap-key-XXXXXX", error[KEYRING_ERROR_MAX] = "";
	int fd = mkstemp(path);
	bool written = fd >= 0 && write(fd, secret, strlen(secret)) == (ssize_t)strlen(secret);

	if (fd >= 0) {
		close(fd);
	}
	if (!written || keyring_file_add(name, path, error) != 0) {
		ov_fail("key %s: %s", name, error);
	}
	unlink(path);
}

void ov_keys_start(void)
{
	for (unsigned i = 0; i < KEYS; i++) {
		key_add(keys[i].name, keys[i].secret);
	}
}

void ov_keys_stop(void)
{
	for (unsigned i = 0; i < KEYS; i++) {
		keyring_file_remove(keys[i].name);
	}
}
