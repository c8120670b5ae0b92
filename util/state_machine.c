/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/state_machine.h"

#include <stdlib.h>

#include "util/log.h"

#ifdef VARVE_STATE_ABORT
bool state_machine_abort = true;
#else
bool state_machine_abort;
#endif

static SLIST_HEAD(, state_machine) machines = SLIST_HEAD_INITIALIZER(machines);

void state_machine_register(struct state_machine *m)
{
	SLIST_INSERT_HEAD(&machines, m, link);
}

const struct state_machine *state_machine_next(const struct state_machine *after)
{
	return after == NULL ? SLIST_FIRST(&machines) : SLIST_NEXT(after, link);
}

COLD void state_machine_violation(struct state_machine *m, unsigned old, unsigned new, const char *object)
{
	__atomic_fetch_add(&m->violations, 1, __ATOMIC_RELAXED);
	log_limited(LOG_LEVEL_ERROR,
		    "%s%s%s went from state %s to %s, which must not follow: a fault in varve, please report it",
		    m->name, object != NULL ? " " : "", object != NULL ? object : "", m->state_name(old),
		    m->state_name(new));
	if (state_machine_abort) {
		abort();
	}
}
