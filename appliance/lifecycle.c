/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/lifecycle.h"

#include <stddef.h>

static const struct transition {
	enum appliance_state from;
	enum appliance_event event;
	enum appliance_state to;
} transitions[] = {
	/* clang-format off */
	{APPLIANCE_INIT,     APPLIANCE_DONE,  APPLIANCE_ENV},
	{APPLIANCE_INIT,     APPLIANCE_ERROR, APPLIANCE_FAILED},
	{APPLIANCE_ENV,      APPLIANCE_DONE,  APPLIANCE_TRACING},
	{APPLIANCE_ENV,      APPLIANCE_ERROR, APPLIANCE_FAILED},
	{APPLIANCE_TRACING,  APPLIANCE_DONE,  APPLIANCE_THREADS},
	{APPLIANCE_THREADS,  APPLIANCE_DONE,  APPLIANCE_RPC},
	{APPLIANCE_THREADS,  APPLIANCE_ERROR, APPLIANCE_FAILED},
	{APPLIANCE_RPC,      APPLIANCE_DONE,  APPLIANCE_CONFIG},
	{APPLIANCE_RPC,      APPLIANCE_PAUSE, APPLIANCE_WAIT},
	{APPLIANCE_RPC,      APPLIANCE_ERROR, APPLIANCE_FAILED},
	{APPLIANCE_WAIT,     APPLIANCE_DONE,  APPLIANCE_CONFIG},
	{APPLIANCE_WAIT,     APPLIANCE_STOP,  APPLIANCE_STOPPING},
	{APPLIANCE_CONFIG,   APPLIANCE_DONE,  APPLIANCE_RUNNING},
	{APPLIANCE_CONFIG,   APPLIANCE_STOP,  APPLIANCE_STOPPING},
	{APPLIANCE_CONFIG,   APPLIANCE_ERROR, APPLIANCE_FAILED},
	{APPLIANCE_RUNNING,  APPLIANCE_STOP,  APPLIANCE_STOPPING},
	{APPLIANCE_STOPPING, APPLIANCE_DONE,  APPLIANCE_STOPPED},
	/* clang-format on */
};

int appliance_next_state(enum appliance_state state, enum appliance_event event)
{
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		if (transitions[i].from == state && transitions[i].event == event) {
			return transitions[i].to;
		}
	}
	return -1;
}

const char *appliance_state_name(enum appliance_state state)
{
	static const char *const names[APPLIANCE_STATES] = {
		[APPLIANCE_INIT] = "INIT",       [APPLIANCE_ENV] = "ENV",         [APPLIANCE_TRACING] = "TRACING",
		[APPLIANCE_THREADS] = "THREADS", [APPLIANCE_RPC] = "RPC",         [APPLIANCE_WAIT] = "WAIT",
		[APPLIANCE_CONFIG] = "CONFIG",   [APPLIANCE_RUNNING] = "RUNNING", [APPLIANCE_STOPPING] = "STOPPING",
		[APPLIANCE_STOPPED] = "STOPPED", [APPLIANCE_FAILED] = "FAILED",
	};
	return names[state];
}
