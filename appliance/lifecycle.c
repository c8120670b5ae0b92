/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/lifecycle.h"

#include "util/state_machine.h"

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
	{APPLIANCE_RPC,      APPLIANCE_STOP,  APPLIANCE_STOPPING},
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

const char *appliance_state_name(enum appliance_state state)
{
	static const char *const names[APPLIANCE_STATES] = {
		[APPLIANCE_INIT] = "INIT",       [APPLIANCE_ENV] = "ENV",         [APPLIANCE_TRACING] = "TRACING",
		[APPLIANCE_THREADS] = "THREADS", [APPLIANCE_RPC] = "RPC",         [APPLIANCE_WAIT] = "WAIT",
		[APPLIANCE_CONFIG] = "CONFIG",   [APPLIANCE_RUNNING] = "RUNNING", [APPLIANCE_STOPPING] = "STOPPING",
		[APPLIANCE_STOPPED] = "STOPPED", [APPLIANCE_FAILED] = "FAILED",
	};
	return state < APPLIANCE_STATES ? names[state] : "unknown";
}

#define BIT(state_) (1u << (state_))
/* Which state may follow which: what the table above says, for the checker of all state machines. */
static const uint32_t next_states[APPLIANCE_STATES] = {
	[APPLIANCE_INIT] = BIT(APPLIANCE_ENV) | BIT(APPLIANCE_FAILED),
	[APPLIANCE_ENV] = BIT(APPLIANCE_TRACING) | BIT(APPLIANCE_FAILED),
	[APPLIANCE_TRACING] = BIT(APPLIANCE_THREADS),
	[APPLIANCE_THREADS] = BIT(APPLIANCE_RPC) | BIT(APPLIANCE_FAILED),
	[APPLIANCE_RPC] = BIT(APPLIANCE_CONFIG) | BIT(APPLIANCE_WAIT) | BIT(APPLIANCE_STOPPING) | BIT(APPLIANCE_FAILED),
	[APPLIANCE_WAIT] = BIT(APPLIANCE_CONFIG) | BIT(APPLIANCE_STOPPING),
	[APPLIANCE_CONFIG] = BIT(APPLIANCE_RUNNING) | BIT(APPLIANCE_STOPPING) | BIT(APPLIANCE_FAILED),
	[APPLIANCE_RUNNING] = BIT(APPLIANCE_STOPPING),
	[APPLIANCE_STOPPING] = BIT(APPLIANCE_STOPPED),
};
STATE_MACHINE(appliance_machine, "appliance", appliance_state_name, next_states)

int appliance_next_state(enum appliance_state state, enum appliance_event event)
{
	for (size_t i = 0; i < ARRAY_SIZE(transitions); i++) {
		if (transitions[i].from == state && transitions[i].event == event) {
			return transitions[i].to;
		}
	}
	return -1;
}

bool appliance_state_check(enum appliance_state old, enum appliance_state new)
{
	return state_machine_check(&appliance_machine, old, new, NULL);
}
