/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/config.h"

#include <errno.h>
#include <unistd.h>

#include "rpc/rpc.h"
#include "rpc/notify.h"
#include "unittest/allocations.h"
#include "unittest/unit.h"
#include "util/log.h"

struct set {
	uint32_t value;
};

static const struct rpc_param set_params[] = {
	RPC_PARAM(struct set, value, RPC_UINT32, RPC_REQUIRED, "a number", .max = 100),
	RPC_PARAM_END,
};

static char calls[256];

static void note(const char *method, uint32_t value)
{
	snprintf(calls + strlen(calls), sizeof(calls) - strlen(calls), "%s(%u) ", method, value);
}

static void rpc_startup(struct rpc_request *req, void *params)
{
	note("startup", ((struct set *)params)->value);
	rpc_reply_true(req);
}
RPC_METHOD("test_startup", rpc_startup, struct set, set_params, RPC_STARTUP, "Start-up only", .result = "any")

static unsigned busy; /* how often 14 is refused */
static unsigned waits;

bool __wrap_thread_control_wait(bool (*done)(void *arg), void *arg, uint64_t timeout_us);
bool __wrap_thread_control_wait(bool (*done)(void *arg), void *arg, uint64_t timeout_us)
{
	waits++;
	return done(arg);
}

static void rpc_runtime(struct rpc_request *req, void *params)
{
	uint32_t value = ((struct set *)params)->value;

	note("runtime", value);
	if (value == 13) {
		rpc_error(req, -EEXIST, "%u is taken", value);
	} else if (value == 14 && busy > 0) {
		busy--;
		rpc_error(req, -EBUSY, "%u is in use", value);
	} else {
		rpc_reply_true(req);
	}
}
RPC_METHOD("test_runtime", rpc_runtime, struct set, set_params, RPC_RUNTIME, "Not at start-up", .result = "any")

static void rpc_always(struct rpc_request *req, void *params)
{
	note("always", ((struct set *)params)->value);
	rpc_reply_true(req);
}
RPC_METHOD("test_always", rpc_always, struct set, set_params, RPC_STARTUP | RPC_RUNTIME, "Any time", .result = "any")

static void rpc_options(struct rpc_request *req, void *params)
{
	note("options", ((struct set *)params)->value);
	rpc_reply_true(req);
}
RPC_METHOD("test_set_options", rpc_options, struct set, set_params, RPC_STARTUP | RPC_RUNTIME, "Any time",
	   .result = "any")

struct nested {
	struct set inner;
};

static const struct rpc_param nested_params[] = {
	RPC_PARAM(struct nested, inner, RPC_OBJECT, RPC_REQUIRED, "an object", .object = set_params),
	RPC_PARAM_END,
};

static void rpc_nested(struct rpc_request *req, void *params)
{
	note("nested", ((struct nested *)params)->inner.value);
	rpc_reply_true(req);
}
RPC_METHOD("test_nested", rpc_nested, struct nested, nested_params, RPC_RUNTIME, "Any time", .result = "any")

static char error[CONFIG_ERROR_MAX];

static int parse(const char *text, struct config *c)
{
	error[0] = '\0';
	return config_parse("x.json", text, strlen(text), c, error);
}

static void check_error_holds(const char *words)
{
	char list[256], *save;

	snprintf(list, sizeof(list), "%s", words);
	for (char *w = strtok_r(list, "|", &save); w != NULL; w = strtok_r(NULL, "|", &save)) {
		if (strstr(error, w) == NULL) {
			printf("\"%s\" is not in: %s\n", w, error);
			CU_FAIL("the error lacks a word");
		}
	}
}

static void check_malformed(const char *text, const char *words)
{
	struct config c;

	CU_ASSERT_EQUAL(parse(text, &c), -EINVAL);
	check_error_holds(words);
}

static bool never(void)
{
	return false;
}

static bool always(void)
{
	return true;
}

static void test_entries_come_in_order(void)
{
	struct config c;

	CU_ASSERT_EQUAL_FATAL(
		parse("{\"subsystems\":[{\"subsystem\":\"a\",\"config\":[{\"method\":\"m1\",\"params\":{"
		      "\"x\":1}},"
		      "{\"method\":\"m2\"}]},{\"subsystem\":\"b\",\"config\":null},{\"subsystem\":\"n\"},{"
		      "\"subsystem\":\"c\","
		      "\"config\":"
		      "[[{\"method\":\"m3\"},{\"method\":\"m4\",\"params\":null}],{\"method\":\"m5\"}]}]}",
		      &c),
		0);
	CU_ASSERT_EQUAL_FATAL(c.n_entries, 5);
	CU_ASSERT_STRING_EQUAL(c.entries[0].subsystem, "a");
	CU_ASSERT_STRING_EQUAL(c.entries[0].method, "m1");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(c.entries[0].params, "x")), 1);
	CU_ASSERT_EQUAL(c.entries[1].index, 1);
	CU_ASSERT_STRING_EQUAL(c.entries[2].subsystem, "c");
	CU_ASSERT_STRING_EQUAL(c.entries[4].method, "m5");
	config_free(&c);
}

static void test_a_wrong_shape_is_named(void)
{
	check_malformed("", "x.json|line 1");
	check_malformed("{", "x.json|line 1");
	check_malformed("[]", "x.json|subsystems");
	check_malformed("{\"subsystems\":{}}", "subsystems");
	check_malformed("{\"subsystems\":[1]}", "subsystems[0]");
	check_malformed("{\"subsystems\":[{\"subsystem\":\"a\",\"config\":5}]}", "\"a\"|array");
	check_malformed("{\"subsystems\":[1,{\"subsystem\":\"b\",\"config\":5}]}", "subsystems[0]");
	check_malformed("{\"subsystems\":[{\"subsystem\":\"a\",\"config\":[5]}]}", "\"a\"|config[0]");
	check_malformed("{\"subsystems\":[{\"subsystem\":\"a\",\"config\":[{\"method\":\"m\"},{}]}]}",
			"\"a\"|config[1]|method");
	check_malformed("{\"subsystems\":[{\"subsystem\":\"a\",\"config\":[{\"method\":\"m\",\"params\":[]}]}]}",
			"config[0]|(m)|params");
	check_malformed("{\"subsystems\":[{\"subsystem\":\"a\",\"config\":[[[]]]}]}", "config[0]");
	check_malformed("{\"subsystems\":[{\"subsystem\":\"a\",\"config\":[[5,6]]}]}", "config[0]");
	check_malformed("{\"subsystems\":[],\"varve\":{}}", "x.json|\"varve\" must be an array");
	check_malformed("{\"subsystems\":[],\"varve\":[{}]}", "x.json|\"varve\" must have a \"subsystem\"");
}

static void test_comments_are_passed_over(void)
{
	struct config c;

	CU_ASSERT_EQUAL_FATAL(parse("// the\"first\n{/* {* \n ** "
				    "*/\"subsystems\"/**/:[{\"subsystem\":\"a/*b*/\\\"//c\",\"config\":[//\n"
				    "{\"method\":\"m\",\"params\":{\"x\":1/*\xff*/}}]}/**\\\"*/]}//",
				    &c),
			      0);
	CU_ASSERT_EQUAL_FATAL(c.n_entries, 1);
	CU_ASSERT_STRING_EQUAL(c.entries[0].subsystem, "a/*b*/\"//c");
	CU_ASSERT_EQUAL(json_integer_value(json_object_get(c.entries[0].params, "x")), 1);
	config_free(&c);
	check_malformed("{\n/*\n*/ /* */ nonsense}", "line 3, column ");
	check_malformed("{\"subsystems\":[]} /* never closed", "line 1");
	check_malformed("{\"subsystems\":[]} /*/", "line 1");
	check_malformed("{\"subsystems\":[]} /", "line 1");
	check_malformed("{\"subsystems\":[]} /x", "line 1");
	check_malformed("//", "line ");
	CU_ASSERT_EQUAL_FATAL(parse("#a\n{\"subsystems\"#\"\n:[]#\n}#", &c), 0);
	config_free(&c);
	CU_ASSERT_EQUAL_FATAL(parse("{\"subsystems\":[{\"subsystem\":\"#\"}]}", &c), 0);
	config_free(&c);
}

#define ENTRY(method_, params_) "{\"method\":\"" method_ "\",\"params\":{" params_ "}}"
#define FILE_OF(entries_)       "{\"subsystems\":[{\"subsystem\":\"s\",\"config\":[" entries_ "]}]}"

static void test_unknown_methods_and_parameters_are_found_before_any_is_called(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(parse(FILE_OF(ENTRY("test_runtime", "\"value\":1") "," ENTRY("nosuch", "")), &c), 0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), -EINVAL);
	check_error_holds("x.json|\"s\"|config[1]|nosuch|--json-ignore-init-errors");
	config_free(&c);
	CU_ASSERT_EQUAL(parse(FILE_OF(ENTRY("test_runtime", "\"value\":101")), &c), 0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), -EINVAL);
	check_error_holds("config[0]|test_runtime|\"value\"|101|100");
	config_free(&c);
	CU_ASSERT_STRING_EQUAL(calls, "");
}

static void test_phases_run_what_belongs_to_them(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(parse(FILE_OF(ENTRY("test_runtime", "\"value\":1") "," ENTRY(
				      "test_startup", "\"value\":2") "," ENTRY("test_runtime", "\"value\":3")),
			      &c),
			0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, false, false, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "startup(2) ");
	CU_ASSERT_EQUAL(config_run(&c, true, false, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "startup(2) runtime(1) runtime(3) ");
	config_free(&c);
}

static void test_a_method_of_both_states_keeps_its_place_in_the_file(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(
		parse(FILE_OF(ENTRY("test_always", "\"value\":1") "," ENTRY("test_runtime", "\"value\":2") "," ENTRY(
			      "test_always", "\"value\":3") "," ENTRY("test_startup", "\"value\":4")),
		      &c),
		0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, false, false, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "always(1) startup(4) ");
	CU_ASSERT_EQUAL(config_run(&c, true, false, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "always(1) startup(4) runtime(2) always(3) ");
	config_free(&c);
}

static void test_options_are_set_first_wherever_they_stand(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(
		parse(FILE_OF(ENTRY("test_runtime", "\"value\":1") "," ENTRY("test_set_options", "\"value\":2")), &c),
		0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, false, false, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "options(2) ");
	CU_ASSERT_EQUAL(config_run(&c, true, false, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "options(2) runtime(1) ");
	config_free(&c);
}

static void test_entries_of_a_batch_are_named_by_both_places(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(parse(FILE_OF(ENTRY("test_runtime", "\"value\":1") ",[" ENTRY(
				      "test_runtime", "\"value\":2") "," ENTRY("test_runtime", "\"value\":13") "],[]"),
			      &c),
			0);
	CU_ASSERT_EQUAL(c.n_entries, 3);
	CU_ASSERT_EQUAL(config_check(&c, false, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, true, false, never, error), -EINVAL);
	CU_ASSERT_STRING_EQUAL(calls, "runtime(1) runtime(2) runtime(13) ");
	check_error_holds("config[1][1] (test_runtime)|13 is taken");
	config_free(&c);
	check_malformed(FILE_OF("[5]"), "config[0][0]:");
	check_malformed(FILE_OF("[[]]"), "config[0][0]:");
}

static void test_a_failing_method_ends_the_loading_unless_errors_are_ignored(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(
		parse(FILE_OF(ENTRY("test_runtime", "\"value\":13") "," ENTRY("test_runtime", "\"value\":2")), &c), 0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, true, false, never, error), -EINVAL);
	check_error_holds("x.json|\"s\"|config[0]|test_runtime|13 is taken");
	CU_ASSERT_STRING_EQUAL(calls, "runtime(13) ");
	CU_ASSERT_EQUAL(config_run(&c, true, true, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "runtime(13) runtime(13) runtime(2) ");
	config_free(&c);
}

static unsigned count_refusals(void)
{
	const struct notify_event *e;
	unsigned n = 0;

	for (uint64_t id = notify_first(NOTIFY_ALL); (e = notify_get(NOTIFY_ALL, id)) != NULL; id++) {
		n += strcmp(e->type, "config_refused") == 0;
	}
	return n;
}

static bool after_a_wait(void)
{
	return waits > 0;
}

static void test_what_is_in_use_is_tried_again_while_there_are_rounds(void)
{
	const struct {
		unsigned busy, rounds;
		bool (*cancelled)(void);
		int rc;
		unsigned waits, left;
		const char *calls;
	} cases[] = {
		{2, 3, never, 0, 2, 1, "runtime(14) runtime(14) runtime(14) runtime(2) "},
		{3, 3, never, 0, 3, 0, "runtime(14) runtime(14) runtime(14) runtime(14) runtime(2) "},
		{9, 3, never, -EBUSY, 3, 0, "runtime(14) runtime(14) runtime(14) runtime(14) "},
		{1, 0, never, -EBUSY, 0, 0, "runtime(14) "},
		{9, 3, after_a_wait, -ECANCELED, 1, 2, "runtime(14) "},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config c;
		unsigned before = count_refusals();

		CU_ASSERT_EQUAL(
			parse(FILE_OF(ENTRY("test_runtime", "\"value\":14") "," ENTRY("test_runtime", "\"value\":2")),
			      &c),
			0);
		CU_ASSERT_EQUAL(config_check(&c, false, error), 0);
		calls[0] = '\0';
		busy = cases[i].busy;
		waits = 0;
		c.busy_rounds = cases[i].rounds;
		CU_ASSERT_EQUAL(config_run(&c, true, false, cases[i].cancelled, error), cases[i].rc);
		CU_ASSERT_EQUAL(waits, cases[i].waits);
		CU_ASSERT_EQUAL(c.busy_rounds, cases[i].left);
		CU_ASSERT_STRING_EQUAL(calls, cases[i].calls);
		CU_ASSERT_EQUAL(count_refusals() - before, cases[i].rc == -EBUSY);
		config_free(&c);
	}
	busy = 0;
}

static void test_what_is_wrong_can_be_left_out(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(parse(FILE_OF(ENTRY("nosuch", "") "," ENTRY("test_runtime", "\"value\":2")), &c), 0);
	CU_ASSERT_EQUAL(config_check(&c, true, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, true, true, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "runtime(2) ");
	config_free(&c);
}

/* A file may have thousands of wrong entries: they are left out and logged, but do not flush the list of events. */
static void test_of_many_wrong_entries_some_are_notified(void)
{
	static char text[8192];
	size_t at = (size_t)snprintf(text, sizeof(text), "{\"subsystems\":[{\"subsystem\":\"s\",\"config\":[");
	struct config c;
	unsigned before = count_refusals();

	for (unsigned i = 0; i < 100; i++) {
		at += (size_t)snprintf(text + at, sizeof(text) - at, ENTRY("nosuch", "") ",");
	}
	snprintf(text + at, sizeof(text) - at, ENTRY("test_runtime", "\"value\":3") "]}]}");
	calls[0] = '\0';
	CU_ASSERT_EQUAL(parse(text, &c), 0);
	CU_ASSERT_EQUAL(config_check(&c, true, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, true, true, never, error), 0);
	CU_ASSERT_STRING_EQUAL(calls, "runtime(3) ");
	CU_ASSERT_TRUE(count_refusals() - before < 100);
	config_free(&c);
}

static void test_a_stop_ends_the_loading(void)
{
	struct config c;

	calls[0] = '\0';
	CU_ASSERT_EQUAL(parse(FILE_OF(ENTRY("test_runtime", "\"value\":1")), &c), 0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), 0);
	CU_ASSERT_EQUAL(config_run(&c, true, false, always, error), -ECANCELED);
	CU_ASSERT_STRING_EQUAL(calls, "");
	config_free(&c);
}

static void test_a_missing_file_is_named(void)
{
	struct config c;

	CU_ASSERT_EQUAL(config_read("/no/such/file.json", &c, error), -ENOENT);
	check_error_holds("/no/such/file.json");
	CU_ASSERT_EQUAL(config_read("/tmp", &c, error), -EINVAL);
}

static void test_a_file_is_read_unless_it_is_too_long(void)
{
	static const char text[] = FILE_OF(ENTRY("test_runtime", "\"value\":1"));
	char path[] = "/tmp/varve-unit-config-XXXXXX";
	int fd = mkstemp(path);
	struct config c;

	CU_ASSERT_EQUAL_FATAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	CU_ASSERT_EQUAL_FATAL(config_read(path, &c, error), 0);
	CU_ASSERT(c.n_entries == 1 && strcmp(c.entries[0].method, "test_runtime") == 0);
	config_free(&c);
	CU_ASSERT_EQUAL_FATAL(ftruncate(fd, INT32_MAX), 0);
	CU_ASSERT_EQUAL(config_read(path, &c, error), -EINVAL);
	check_error_holds("/tmp/varve-unit-config-|at most");
	close(fd);
	unlink(path);
}

/* What is wrong with a text, as --check prints it. */
static void check_examined(const char *text, unsigned n, const char *expected)
{
	char *found = NULL;
	size_t len;
	FILE *out = open_memstream(&found, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	CU_ASSERT_EQUAL(config_examine_text("x.json", text, strlen(text), out), n);
	fclose(out);
	if (strcmp(found, expected) != 0) {
		printf("%s", found);
		CU_FAIL("not what was expected");
	}
	free(found);
}

static void test_all_that_is_wrong_is_found_with_its_place(void)
{
	calls[0] = '\0';
	check_examined(FILE_OF(ENTRY("test_runtime", "\"value\":1")), 0, "");
	check_examined(
		"# a comment\n{\"subsystems\": [\n  {\"subsystem\": \"bdevv\", /* x */ \"config\": [\n"
		"    {\"method\": \"test_runtime\", \"params\": {\"valeu\": 1, \"value\": 101}},\n"
		"    {\"method\": \"test_runtme\"}, 5, [{\"method\": \"test_always\", \"params\": {}}],\n"
		"    {\"method\": \"test_startup\", \"params\": 7}, {\"params\": {}}]},\n"
		"  {\"subsystem\": \"s\", \"config\": {}}, true, {}]}\n",
		11,
		"x.json:3:17: there is no subsystem \"bdevv\"; did you mean \"bdev\"?\n"
		"x.json:5:32: subsystem \"bdevv\", config[2]: expected an object with \"method\" and \"params\"\n"
		"x.json:6:5: subsystem \"bdevv\", config[4] (test_startup): \"params\" must be an object\n"
		"x.json:6:46: subsystem \"bdevv\", config[5]: \"method\" is missing or not a string\n"
		"x.json:7:3: subsystem \"s\": \"config\" must be an array\n"
		"x.json:0:0: subsystems[2]: \"subsystem\" is missing or not a string\n"
		"x.json:7:43: subsystems[3]: \"subsystem\" is missing or not a string\n"
		"x.json:4:43: test_runtime: parameter \"valeu\" is unknown: known ones are value\n"
		"x.json:4:55: test_runtime: parameter \"value\" is 101: expected an integer from 0 to 100\n"
		"x.json:5:6: test_runtme: there is no method \"test_runtme\"; did you mean \"test_runtime\"? "
		"rpc_get_methods lists all methods\n"
		"x.json:5:62: test_always: parameter \"value\" (uint32) is missing\n");
	check_examined("{\n  nonsense", 1, "x.json:2:10: string or '}' expected near 'nonsense'\n");
	check_examined("[1]", 1, "x.json:1:1: expected {\"subsystems\": [...]}\n");
	check_examined("{\"subsystems\": [], \"varve\": 1}", 1,
		       "x.json:1:1: \"varve\" must be an array, of the form of \"subsystems\"\n");
	check_examined("", 1, "x.json:1:0: '[' or '{' expected near end of file\n");
	check_examined(FILE_OF(ENTRY("test_runtime", "\"o\":{\"i\":1}, \"value\":-1")), 2,
		       "x.json:1:78: test_runtime: parameter \"o\" is unknown: known ones are value\n"
		       "x.json:1:91: test_runtime: parameter \"value\" is -1: expected an integer from 0 to 100\n");
	CU_ASSERT_STRING_EQUAL(calls, "");
}

static void test_parameters_in_objects_and_odd_names_have_places(void)
{
	char text[1024], name[301];

	check_examined(
		FILE_OF(ENTRY("test_nested", "\"inner\":{\"value\":true,\"x\":[]}")), 2,
		"x.json:1:99: test_nested: parameter \"inner.x\" is unknown: known ones are value\n"
		"x.json:1:86: test_nested: parameter \"inner.value\" is true: expected an integer from 0 to 100\n");
	check_examined(FILE_OF(ENTRY("test_nested", "\"inner\":true")), 1,
		       "x.json:1:77: test_nested: parameter \"inner\" is true: expected an object\n");
	check_examined(FILE_OF(ENTRY("test_runtime", "\"value\":1, \"\":2")), 1,
		       "x.json:1:44: test_runtime: parameter \"\" is unknown: known ones are value\n");
	/* a method that is named like the file */
	check_examined(FILE_OF(ENTRY("x.jsonz", "")), 1,
		       "x.json:1:44: x.jsonz: there is no method \"x.jsonz\"; rpc_get_methods lists all methods\n");
	for (size_t length = 60; length <= 300; length += 120) {
		memset(name, 'n', length);
		name[length] = '\0';
		snprintf(text, sizeof(text), FILE_OF(ENTRY("test_runtime", "\"value\":1, \"%s\":2")), name);
		char *found = NULL;
		size_t len;
		FILE *out = open_memstream(&found, &len);
		CU_ASSERT_EQUAL(config_examine_text("x.json", text, strlen(text), out), 1);
		fclose(out);
		CU_ASSERT_PTR_NOT_NULL(strstr(found, "nnn"));
		CU_ASSERT(strncmp(found, "x.json:1:", 9) == 0);
		free(found);
	}
}

static void test_of_one_entry_so_many_mistakes_are_told(void)
{
	char text[2048] = "{\"subsystems\":[{\"subsystem\":\"s\",\"config\":[{\"method\":\"test_runtime\",\"params\":{"
			  "\"value\":1";
	FILE *nowhere = fopen("/dev/null", "w");

	for (unsigned i = 0; i < 50; i++) {
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ",\"p%u\":0", i);
	}
	strcat(text, "}}]}]}");
	CU_ASSERT_EQUAL(config_examine_text("x.json", text, strlen(text), nowhere), 32);
	fclose(nowhere);
}

static void test_a_file_is_examined(void)
{
	static const char text[] = FILE_OF(ENTRY("test_runtime", "\"value\":1"));
	char path[] = "/tmp/varve-unit-config-XXXXXX";
	int fd = mkstemp(path);

	CU_ASSERT_EQUAL_FATAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	CU_ASSERT_EQUAL(config_examine(path, stdout), 0);
	unlink(path);
	CU_ASSERT_EQUAL(config_examine(path, stdout), 1);
}

static void test_a_misspelt_subsystem_is_refused(void)
{
	struct config c;

	check_malformed("{\"subsystems\":[{\"subsystem\":\"bdevv\",\"config\":[]}]}",
			"\"bdevv\"|did you mean \"bdev\"?");
	check_malformed("{\"subsystems\":[{\"subsystem\":\"nvfm\"}]}", "\"nvfm\"|did you mean \"nvmf\"?");
	/* one that a newer program may have */
	CU_ASSERT_EQUAL_FATAL(parse("{\"subsystems\":[{\"subsystem\":\"of_the_future\"},{\"subsystem\":\"vmd\"}]}", &c),
			      0);
	config_free(&c);
}

static void test_an_entry_that_is_wrong_is_named_by_its_place(void)
{
	struct config c;

	CU_ASSERT_EQUAL(
		parse("{\"subsystems\":[{\"subsystem\":\"s\",\"config\":[\n # x\n " ENTRY("nosuch", "") "]}]}", &c), 0);
	CU_ASSERT_EQUAL(config_check(&c, false, error), -EINVAL);
	check_error_holds("x.json: line 3, column 2: subsystem \"s\"|nosuch");
	config_free(&c);
}

static int quiet(void)
{
	log_set_print_level(LOG_LEVEL_DISABLED);
	return 0;
}

static void test_each_allocation_may_fail(void)
{
	int rc = -1;
	unsigned n = 0;

	for (; rc != 0 && n < 100; n++) {
		struct config c;

		allocations_left = n;
		rc = parse("{\"subsystems\": [{\"subsystem\": \"bdev\", \"config\": [{\"method\": \"test_always\", "
			   "\"params\": {\"value\": 1}}]}]}",
			   &c);
		allocations_left = -1;
		CU_ASSERT(rc == 0 || (rc < 0 && error[0] != '\0'));
		if (rc == 0) {
			config_free(&c);
		}
	}
	CU_ASSERT(rc == 0 && n > 3);
}

static const struct unit_test tests[] = {
	UNIT(test_entries_come_in_order),
	UNIT(test_each_allocation_may_fail),
	UNIT(test_a_wrong_shape_is_named),
	UNIT(test_comments_are_passed_over),
	UNIT(test_unknown_methods_and_parameters_are_found_before_any_is_called),
	UNIT(test_phases_run_what_belongs_to_them),
	UNIT(test_a_method_of_both_states_keeps_its_place_in_the_file),
	UNIT(test_options_are_set_first_wherever_they_stand),
	UNIT(test_entries_of_a_batch_are_named_by_both_places),
	UNIT(test_a_failing_method_ends_the_loading_unless_errors_are_ignored),
	UNIT(test_what_is_in_use_is_tried_again_while_there_are_rounds),
	UNIT(test_what_is_wrong_can_be_left_out),
	UNIT(test_of_many_wrong_entries_some_are_notified),
	UNIT(test_a_stop_ends_the_loading),
	UNIT(test_all_that_is_wrong_is_found_with_its_place),
	UNIT(test_parameters_in_objects_and_odd_names_have_places),
	UNIT(test_of_one_entry_so_many_mistakes_are_told),
	UNIT(test_a_file_is_examined),
	UNIT(test_a_misspelt_subsystem_is_refused),
	UNIT(test_an_entry_that_is_wrong_is_named_by_its_place),
	UNIT(test_a_missing_file_is_named),
	UNIT(test_a_file_is_read_unless_it_is_too_long),
	UNIT_END,
};

UNIT_MAIN("appliance_config", tests, quiet, NULL)
