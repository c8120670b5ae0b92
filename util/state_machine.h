/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the transitions of every state machine by one rule.
 *
 * A machine declares which state may follow which, and its one function that changes the state asks first:
 *
 *     static const uint32_t next_states[DOOR_STATES] = {
 *         [DOOR_OPEN] = 1u << DOOR_CLOSED,
 *         [DOOR_CLOSED] = 1u << DOOR_OPEN | 1u << DOOR_LOCKED,
 *         [DOOR_LOCKED] = 1u << DOOR_CLOSED,
 *     };
 *     STATE_MACHINE(door_machine, "door", door_state_name, next_states);
 *
 *     static void door_set_state(struct door *d, enum door_state new)
 *     {
 *         state_machine_check(&door_machine, d->state, new, d->name);
 *         TRACE(...);
 *         d->state = new;
 *     }
 *
 * A transition that the table lacks is a fault in varve, never in what a peer sent. It is logged as an error with both
 * states (a line of the log is an event in the trace as well), counted, and then made: the process goes on. Metrics,
 * framework_get_state_machines and varve-doctor show the counts. Unit tests and debug builds (meson -Dbuildtype=debug,
 * or with a sanitizer) abort instead. */
#ifndef UTIL_STATE_MACHINE_H
#define UTIL_STATE_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "util/compiler.h"

struct state_machine {
	const char *name;                          /* "nvmf controller": unique */
	const char *(*state_name)(unsigned state); /* for any number; never NULL */
	const uint32_t *next_states;               /* by state: bit 1u << new for each state that may follow */
	unsigned n_states;                         /* up to 32 */
	uint64_t violations;                       /* any thread, relaxed */
	SLIST_ENTRY(state_machine) link;
};

/* Defines and registers a machine, at file scope. state_name_ takes the machine's enum or an unsigned. */
#define STATE_MACHINE(machine_, name_, state_name_, next_states_)                                                      \
	_Static_assert(ARRAY_SIZE(next_states_) <= 32, "a state is a bit of uint32_t");                                \
	static const char *machine_##_state_name(unsigned state)                                                       \
	{                                                                                                              \
		return state_name_(state);                                                                             \
	}                                                                                                              \
	static struct state_machine machine_ = {.name = name_,                                                         \
						.state_name = machine_##_state_name,                                   \
						.next_states = next_states_,                                           \
						.n_states = ARRAY_SIZE(next_states_)};                                 \
	__attribute__((constructor)) static void machine_##_register(void)                                             \
	{                                                                                                              \
		state_machine_register(&machine_);                                                                     \
	}
/* Before main(). */
void state_machine_register(struct state_machine *m);

/* Logs, counts and, if state_machine_abort is set, aborts. Any thread. */
COLD void state_machine_violation(struct state_machine *m, unsigned old, unsigned new, const char *object);

/* To be called by the machine's one function that changes the state, before it does. object: a name for the log, or
 * NULL. False: the transition is not in the table, which has been reported. Any thread. */
static inline bool state_machine_check(struct state_machine *m, unsigned old, unsigned new, const char *object)
{
	if (likely(old < m->n_states && new < m->n_states && (m->next_states[old] & 1u << new))) {
		return true;
	}
	state_machine_violation(m, old, new, object);
	return false;
}

/* All machines, one by one: NULL for the first; NULL: no more. Any thread. */
const struct state_machine *state_machine_next(const struct state_machine *after);
static inline uint64_t state_machine_violations(const struct state_machine *m)
{
	return __atomic_load_n(&m->violations, __ATOMIC_RELAXED);
}

/* Whether a violation ends the process. Set before threads start. */
extern bool state_machine_abort;

#endif
