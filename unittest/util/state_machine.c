/* SPDX-License-Identifier: BSD-3-Clause */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unittest/unit.h"
#include "util/log.h"
#include "util/state_machine.h"

enum door { OPEN, CLOSED, LOCKED, DOORS };

static const char *door_name(enum door d)
{
	static const char *const names[] = {"OPEN", "CLOSED", "LOCKED"};
	return (unsigned)d < DOORS ? names[d] : "?";
}

static const uint32_t next_doors[DOORS] = {
	[OPEN] = 1u << CLOSED, [CLOSED] = 1u << OPEN | 1u << LOCKED, [LOCKED] = 1u << CLOSED};
STATE_MACHINE(door_machine, "door", door_name, next_doors)

static char last_line[256];

static void keep_line(enum log_level level, const char *file, int line, const char *text)
{
	snprintf(last_line, sizeof(last_line), "%s", text);
}

static void test_transitions_of_the_table_pass(void)
{
	state_machine_abort = true;
	CU_ASSERT(state_machine_check(&door_machine, OPEN, CLOSED, NULL));
	CU_ASSERT(state_machine_check(&door_machine, CLOSED, LOCKED, NULL));
	CU_ASSERT_EQUAL(state_machine_violations(&door_machine), 0);
}

static void test_other_transitions_are_logged_and_counted_and_the_process_goes_on(void)
{
	state_machine_abort = false;
	log_set_tap(keep_line);
	CU_ASSERT(!state_machine_check(&door_machine, OPEN, LOCKED, "front"));
	CU_ASSERT(strstr(last_line, "door front") != NULL);
	CU_ASSERT(strstr(last_line, "OPEN to LOCKED") != NULL);
	CU_ASSERT(!state_machine_check(&door_machine, 77, OPEN, NULL));
	CU_ASSERT(!state_machine_check(&door_machine, OPEN, 40, NULL));
	CU_ASSERT_EQUAL(state_machine_violations(&door_machine), 3);
	log_set_tap(NULL);
}

static void test_debug_builds_abort(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		state_machine_abort = true;
		state_machine_check(&door_machine, LOCKED, OPEN, NULL);
		_exit(0);
	}
	int status;
	CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void test_machines_are_listed(void)
{
	const struct state_machine *m = NULL;
	unsigned found = 0;

	while ((m = state_machine_next(m)) != NULL) {
		found += strcmp(m->name, "door") == 0;
	}
	CU_ASSERT_EQUAL(found, 1);
}

static const struct unit_test tests[] = {
	UNIT(test_transitions_of_the_table_pass),
	UNIT(test_other_transitions_are_logged_and_counted_and_the_process_goes_on),
	UNIT(test_debug_builds_abort),
	UNIT(test_machines_are_listed),
	UNIT_END,
};
UNIT_MAIN("state_machine", tests, NULL, NULL)
