/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose a store is: who may open it while somebody else has it open, or had. */
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unittest/lvol/world.h"
#include "unittest/unit.h"

static struct world w, second;
static struct lvol_error error;

static const struct lvol_owner here = {
	.machine = "machine a", .boot = "boot 1", .pid = 10, .started = 500, .host = "a"};

static void test_owners_are_judged(void)
{
	struct lvol_owner found = here;

	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 500), LVOL_OWNER_LIVES); /* this process itself */
	found.pid = 11;
	found.started = 700;
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 700), LVOL_OWNER_LIVES);
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 701), LVOL_OWNER_GONE); /* another one has its pid */
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 0), LVOL_OWNER_GONE);
	found.boot[3]++;
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 700), LVOL_OWNER_GONE);
	found.started = 0;
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 0), LVOL_OWNER_GONE);
	found.boot[3]--;
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 0), LVOL_OWNER_GONE);
	found.machine[15]++;
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 0), LVOL_OWNER_ELSEWHERE);
	found.pid = 0;
	CU_ASSERT_EQUAL(lvol_owner_judge(&found, &here, 0), LVOL_OWNER_UNKNOWN);
}

static void test_owners_are_named(void)
{
	struct lvol_owner found = here;
	char text[101];

	lvol_owner_text(&found, text);
	CU_ASSERT_STRING_EQUAL(text, "machine a (6d616368696e65206100000000000000), process 10");
	CU_ASSERT_EQUAL(lvol_owner_refuse(&found, LVOL_OWNER_LIVES, &error), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, text));
	CU_ASSERT_EQUAL(lvol_owner_refuse(&found, LVOL_OWNER_GONE, &error), 0);
	CU_ASSERT_EQUAL(lvol_owner_refuse(&found, LVOL_OWNER_UNKNOWN, &error), 0);
	/* Whatever bytes there are. */
	memset(&found, 0xff, sizeof(found));
	memset(found.host, '\n', sizeof(found.host));
	lvol_owner_text(&found, text);
	CU_ASSERT_TRUE(strlen(text) <= 100 && strchr(text, '\n') == NULL);
	CU_ASSERT_EQUAL(lvol_owner_refuse(&found, LVOL_OWNER_ELSEWHERE, &error), -EBUSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "'varve-lvol repair' closes it"));
}

static void test_lines_of_processes(void)
{
	static const char rest[] = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 ";
	char line[200];
	static const struct {
		const char *head, *tail;
		uint64_t started;
	} lines[] = {
		{"7 (varve) S", "4 0 777 1000", 777}, {"7 (a) Z (b) c) R", "1 0 778 1000", 778},
		{"7 (varve) Z", "1 0 777 1000", 0}, /* nobody has asked how it ended */
		{"7 (varve) Z", "2 0 777 1000", 777}, {"7 (varve) X", "0 0 777 1000", 0},
		{"7 varve S", "1 0 777 1000", 0},     {"7 (varve) S", "1 0", 0},
		{"7 (varve) S", "x 0 777", 0},
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		snprintf(line, sizeof(line), "%s%s%s", lines[i].head, rest, lines[i].tail);
		CU_ASSERT_EQUAL(lvol_process_stat_decode(line), lines[i].started);
	}
	CU_ASSERT_EQUAL(lvol_process_stat_decode(""), 0);
	CU_ASSERT_EQUAL(lvol_process_stat_decode("7 (varve)"), 0);
}

static void test_processes_of_this_machine(void)
{
	struct lvol_owner self, again;
	siginfo_t ended;

	lvol_owner_self(&self);
	lvol_owner_self(&again);
	CU_ASSERT_EQUAL(memcmp(&self, &again, sizeof(self)), 0);
	CU_ASSERT_TRUE(self.pid == (uint32_t)getpid() && self.started > 0 && self.host[0] != '\0');
	CU_ASSERT_EQUAL(lvol_process_started(self.pid), self.started);
	CU_ASSERT_TRUE(lvol_process_started((uint32_t)getppid()) > 0 || getppid() == 0);
	pid_t child = fork();
	CU_ASSERT_TRUE_FATAL(child >= 0);
	if (child == 0) {
		_exit(0);
	}
	CU_ASSERT_EQUAL_FATAL(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
	CU_ASSERT_EQUAL(lvol_process_started((uint32_t)child), 0);
	CU_ASSERT_EQUAL_FATAL(waitpid(child, NULL, 0), child);
	CU_ASSERT_EQUAL(lvol_process_started((uint32_t)child), 0);
}

/* ---- Stores ---- */

/* A second way to the disk, as it is now. */
static void second_init(void)
{
	second = (struct world){.random = 1};
	disk_init(&second.disk, w.disk.size);
	memcpy(second.disk.bytes, w.disk.bytes, w.disk.size);
	disk_record(&second.disk);
}

static void expect_refused(const char *text)
{
	CU_ASSERT_EQUAL(world_open(&second, &error), -EBUSY);
	CU_ASSERT_PTR_NULL(second.store);
	CU_ASSERT_PTR_NOT_NULL(strstr(error.text, text));
	CU_ASSERT_EQUAL(second.disk.num_log, 0); /* nothing was written */
}

static void expect_recovered(void)
{
	CU_ASSERT_EQUAL_FATAL(world_open(&second, &error), 0);
	CU_ASSERT_TRUE(lvol_live_info(second.store).recovered);
	world_close(&second);
	world_free(&second);
}

static void test_an_open_store_is_refused(void)
{
	char text[64];

	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 3, true), 0);
	second_init();
	snprintf(text, sizeof(text), "process %d", (int)getpid());
	expect_refused(text);
	world_forget(&w);
	/* It has lost it. */
	expect_recovered();
	world_free(&w);
}

static void test_a_store_of_another_machine_is_refused(void)
{
	world_create(&w, 64);
	world_close(&w);
	lvol_owner_self(&w.disk.owner);
	w.disk.owner.machine[0] ^= 1;
	memcpy(w.disk.owner.host, "elsewhere", sizeof("elsewhere"));
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	second_init();
	expect_refused("machine elsewhere");
	world_forget(&w);
	expect_refused("machine elsewhere"); /* nobody here can know */
	world_free(&second);
	second_init();
	second.disk.owner = w.disk.owner;
	second.disk.owner.boot[0]++; /* started anew, over there */
	expect_recovered();
	world_free(&w);
}

static void test_a_store_of_a_process_that_lives_is_refused(void)
{
	world_create(&w, 64);
	world_close(&w);
	lvol_owner_self(&w.disk.owner);
	w.disk.owner.pid = (uint32_t)getppid();
	w.disk.owner.started = lvol_process_started(w.disk.owner.pid);
	CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	second_init();
	if (w.disk.owner.started != 0) {
		expect_refused("the store is open: machine");
	}
	((struct lvol_super *)second.disk.bytes)->open.owner.started++; /* another one has its pid now */
	((struct lvol_super *)second.disk.bytes)->crc = lvol_crc(second.disk.bytes);
	expect_recovered();
	world_free(&w);
}

static void test_older_programs_do_not_say_who_they_are(void)
{
	world_create(&w, 64);
	second_init();
	struct lvol_super *super = (struct lvol_super *)second.disk.bytes;
	super->open.owner = (struct lvol_owner){.pid = 0};
	super->crc = lvol_crc(super);
	expect_recovered();
	world_free(&w);
}

/* ---- Asking the user ---- */

static char asked_name[LVOL_NAME_MAX + 1], asked_uuid[LVOL_UUID_TEXT];
static bool says_why;

static int refuse(void *ctx, const char *name, const char *uuid, struct lvol_error *e)
{
	(void)ctx;
	strcpy(asked_name, name);
	strcpy(asked_uuid, uuid);
	if (says_why) {
		strcpy(e->text, "another store has its name");
	}
	return -EEXIST;
}

static void test_the_user_may_refuse_a_store_by_its_names(void)
{
	world_create(&w, 64);
	CU_ASSERT_EQUAL_FATAL(world_volume_create(&w, 0, 3, true), 0);
	for (int lost = 0; lost < 2; lost++) {
		if (lost == 0) {
			world_close(&w);
		} else {
			world_forget(&w);
		}
		w.disk.may_open = refuse;
		disk_record(&w.disk);
		for (int why = 0; why < 2; why++) {
			says_why = why == 1;
			CU_ASSERT_EQUAL(world_open(&w, &error), -EEXIST);
			CU_ASSERT_PTR_NOT_NULL(strstr(error.text, why == 1 ? "has its name" : "cannot be opened"));
			CU_ASSERT_STRING_EQUAL(asked_name, "s");
			CU_ASSERT_STRING_EQUAL(asked_uuid, "00000000-0000-0000-0000-0000000000ff");
			CU_ASSERT_EQUAL(w.disk.num_log, 0);
		}
		w.disk.may_open = NULL;
		CU_ASSERT_EQUAL_FATAL(world_open(&w, &error), 0);
	}
	CU_ASSERT_PTR_NULL(world_differs(&w, &w.model, NULL));
	world_close(&w);
	world_free(&w);
}

static const struct unit_test tests[] = {
	UNIT(test_owners_are_judged),
	UNIT(test_owners_are_named),
	UNIT(test_lines_of_processes),
	UNIT(test_processes_of_this_machine),
	UNIT(test_an_open_store_is_refused),
	UNIT(test_a_store_of_another_machine_is_refused),
	UNIT(test_a_store_of_a_process_that_lives_is_refused),
	UNIT(test_older_programs_do_not_say_who_they_are),
	UNIT(test_the_user_may_refuse_a_store_by_its_names),
	UNIT_END,
};
UNIT_MAIN("lvol_owner", tests, NULL, NULL)
