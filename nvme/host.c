/* SPDX-License-Identifier: BSD-3-Clause */
/* The default NQN and id of this host: those that nvme-cli has written for the machine, or else made from its machine
 * id. They are the same at each start, so that targets can allow the host. */
#include "nvme/nvme.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define HOSTNQN_FILE    "/etc/nvme/hostnqn"
#define HOSTID_FILE     "/etc/nvme/hostid"
#define MACHINE_ID_FILE "/etc/machine-id"
#define UUID_TEXT       36

/* The first line without its end; false if there is none. */
static bool host_file_read_line(const char *file, char *buf, size_t size)
{
	FILE *f = fopen(file, "re");

	if (f == NULL) {
		return false;
	}
	bool ok = fgets(buf, (int)size, f) != NULL;
	fclose(f);
	if (ok) {
		buf[strcspn(buf, "\r\n")] = '\0';
	}
	return ok && buf[0] != '\0';
}

static bool hostid_parse(const char *text, uint8_t uuid[16])
{
	unsigned digits = 0;

	for (; *text != '\0'; text++) {
		const char *hex = "0123456789abcdef", *d = strchr(hex, *text | 0x20);
		if (*text == '-') {
			continue;
		}
		if (d == NULL || digits == 32) {
			return false;
		}
		uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | (d - hex));
		digits++;
	}
	return digits == 32;
}

/* The machine id must not be shown to others (machine-id(5)), so its 128-bit FNV-1a hash is used, as a UUID of version
 * 8 (RFC 9562). */
static void hash_to_uuid(const char *text, uint8_t uuid[16])
{
	const unsigned __int128 prime = (unsigned __int128)1 << 88 | 0x13b;
	unsigned __int128 h = (unsigned __int128)0x6c62272e07bb0142 << 64 | 0x62b821756295c58d;
	const char *salt = "varve";

	for (; *salt != '\0'; salt++) {
		h = (h ^ (uint8_t)*salt) * prime;
	}
	for (; *text != '\0'; text++) {
		h = (h ^ (uint8_t)*text) * prime;
	}
	memcpy(uuid, &h, 16);
	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

static void hostnqn_format(const uint8_t u[16], char nqn[NVME_NQN_MAX])
{
	snprintf(nqn, NVME_NQN_MAX,
		 "nqn.2014-08.org.nvmexpress:uuid:%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

void nvme_host_default(char hostnqn[NVME_NQN_MAX], uint8_t hostid[16])
{
	static char nqn[NVME_NQN_MAX];
	static uint8_t id[16];
	char line[NVME_NQN_MAX];

	if (nqn[0] == '\0') {
		if (host_file_read_line(MACHINE_ID_FILE, line, sizeof(line))) {
			hash_to_uuid(line, id);
		} else if (getrandom(id, sizeof(id), 0) != sizeof(id)) {
			memset(id, 0x76, sizeof(id)); /* never all zeroes (Base 5.27.1.21) */
		}
		hostnqn_format(id, nqn);
		if (host_file_read_line(HOSTNQN_FILE, line, sizeof(line)) && nvme_nqn_is_valid(line)) {
			snprintf(nqn, sizeof(nqn), "%s", line);
		}
		uint8_t parsed[16];
		if (host_file_read_line(HOSTID_FILE, line, sizeof(line)) && strlen(line) <= UUID_TEXT &&
		    hostid_parse(line, parsed)) {
			memcpy(id, parsed, sizeof(id));
		}
	}
	memcpy(hostnqn, nqn, sizeof(nqn));
	memcpy(hostid, id, sizeof(id));
}
