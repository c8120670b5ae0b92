/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration that is handed over, and whether all of it has come back if that failed. Control thread. */
#ifndef APPLIANCE_HAND_OVER_CONFIG_H
#define APPLIANCE_HAND_OVER_CONFIG_H

#include <jansson.h>
#include <stddef.h>

/* All that framework_get_config has, with what is as usual: {"subsystems": [...]}, to be released. NULL: no memory. */
json_t *hand_over_config(void);

/* How many entries of one configuration the other one lacks; report, or NULL, is called with each. Pure. */
size_t hand_over_config_missing(const json_t *of, const json_t *in,
				void (*report)(const char *subsystem, const json_t *entry));

/* This process goes on: hand_over_config_check() will compare what it has then with that. text: of the configuration;
 * it is taken over, and overwritten in the end. */
void hand_over_config_expect(char *text);
/* Says in the log, by a notification and to the service manager if something was not taken back; once after each
 * hand_over_config_expect(). */
void hand_over_config_check(void);
/* Parts of the process that hosts do not need: it goes on without those that cannot be started again. */
enum hand_over_part {
	HAND_OVER_METRICS,
	HAND_OVER_PID_FILE,
	HAND_OVER_RPC,
	HAND_OVER_RESERVATIONS, /* of namespaces that are lost */
	HAND_OVER_PARTS,
};
/* Such a part is lost: why says how, for the log. NULL: it is there. */
void hand_over_note_part(enum hand_over_part part, const char *why);
/* How much is missing, or is there that was not, since attempts to take over that failed: entries of the configuration
 * and parts. What is as it was again does not count any more; but lost reservations count until the process ends, and
 * the file with the process id until the next time. */
size_t hand_over_config_not_taken_back(void);

#endif
