/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lvol/internal.h"
#include "lvol/owner.h"

/* ---- This machine ---- */

/* Reads the beginning of a file. Returns whether there is one. */
static bool owner_file_read(const char *path, char *text, size_t bytes)
{
	FILE *f = fopen(path, "re");
	size_t n = f == NULL ? 0 : fread(text, 1, bytes - 1, f);

	text[n] = '\0';
	if (f != NULL) {
		fclose(f);
	}
	return n > 0;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c == '\0' ? NULL : strchr(digits, c);

	return at == NULL ? -1 : (int)(at - digits);
}

/* 32 hexadecimal digits, perhaps with dashes between them. Returns whether there are as many. */
static bool id_decode(const char *text, uint8_t id[16])
{
	size_t n = 0;

	memset(id, 0, 16);
	for (; n < 32 && (*text == '-' || hex_digit(*text) >= 0); text++) {
		if (*text != '-') {
			id[n / 2] = (uint8_t)(id[n / 2] << 4 | hex_digit(*text));
			n++;
		}
	}
	return n == 32;
}

/* FNV-1a, twice. */
static void id_hash(const char *text, uint8_t id[16])
{
	uint64_t hash[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};

	for (size_t i = 0; i < strlen(text); i++) {
		for (size_t k = 0; k < 2; k++) {
			hash[k] = (hash[k] ^ (uint8_t)text[i]) * 0x100000001b3u;
		}
	}
	memcpy(id, hash, sizeof(hash));
}

void lvol_owner_self(struct lvol_owner *o)
{
	char text[64];

	*o = (struct lvol_owner){.pid = (uint32_t)getpid()};
	o->started = lvol_process_started(o->pid);
	gethostname(o->host, sizeof(o->host) - 1);
	if (!owner_file_read("/etc/machine-id", text, sizeof(text)) || !id_decode(text, o->machine)) {
		id_hash(o->host, o->machine);
	}
	if (!owner_file_read("/proc/sys/kernel/random/boot_id", text, sizeof(text)) || !id_decode(text, o->boot)) {
		memset(o->boot, 0, sizeof(o->boot));
	}
}

/* ---- Processes ---- */

uint64_t lvol_process_stat_decode(const char *line)
{
	/* "pid (name) state ...": the name may have anything in it. The fields behind it, from the third on. */
	const char *at = strrchr(line, ')');
	unsigned long long started;
	long threads;
	char state;

	if (at == NULL ||
	    sscanf(at + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu", &state,
		   &threads, &started) != 3) {
		return 0;
	}
	/* One whose first thread has ended lives while it has others. */
	bool ended = (state == 'Z' || state == 'X') && threads <= 1;
	return ended ? 0 : started;
}

uint64_t lvol_process_started(uint32_t pid)
{
	char path[32], line[1024];

	snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
	return owner_file_read(path, line, sizeof(line)) ? lvol_process_stat_decode(line) : 0;
}

/* ---- What was found ---- */

enum lvol_owner_state lvol_owner_judge(const struct lvol_owner *found, const struct lvol_owner *self, uint64_t started)
{
	if (found->pid == 0) {
		return LVOL_OWNER_UNKNOWN;
	}
	if (memcmp(found->machine, self->machine, sizeof(found->machine)) != 0) {
		return LVOL_OWNER_ELSEWHERE;
	}
	return memcmp(found->boot, self->boot, sizeof(found->boot)) == 0 && started != 0 && found->started == started
		       ? LVOL_OWNER_LIVES
		       : LVOL_OWNER_GONE;
}

void lvol_owner_text(const struct lvol_owner *o, char text[101])
{
	char host[41] = "", id[33];

	memcpy(host, o->host, sizeof(host) - 1);
	for (char *c = host; *c != '\0'; c++) {
		*c = *c >= '!' && *c <= '~' ? *c : '?';
	}
	for (size_t i = 0; i < sizeof(o->machine); i++) {
		snprintf(id + 2 * i, 3, "%02x", o->machine[i]);
	}
	snprintf(text, 101, "machine %s (%s), process %" PRIu32, host, id, o->pid);
}

int lvol_owner_refuse(const struct lvol_owner *found, enum lvol_owner_state state, struct lvol_error *e)
{
	char who[101];

	lvol_owner_text(found, who);
	if (state == LVOL_OWNER_LIVES) {
		lvol_refuse(e, "the store is open: %s", who);
		return -EBUSY;
	}
	if (state == LVOL_OWNER_ELSEWHERE) {
		lvol_refuse(e, "the store is open: %s; if that machine no longer has it, 'varve-lvol repair' closes it",
			    who);
		return -EBUSY;
	}
	return 0;
}
