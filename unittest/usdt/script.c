/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of a bpftrace script that is to run on a process. */
#include <stdlib.h>
#include <string.h>

#include "unittest/unit.h"
#include "usdt/bt/script.h"

static struct bt_script values = {.exe = "/usr/bin/varve",
				  .pid = "77",
				  .tsc_khz = "2000000",
				  .begin = "\n\t@t[0] = \"A\";\n",
				  .end = "\n\tclear(@t);\n"};
static struct bt_script nothing = {.exe = "/x", .pid = "1", .tsc_khz = "9", .begin = "", .end = ""};

/* Also checks what is said of the probes that are left out. */
static void check_notes(struct bt_script *script, const char *text, const char *expected, const char *expected_notes)
{
	char *written = NULL, *notes = NULL;
	size_t size;
	FILE *out = open_memstream(&written, &size);

	script->notes = open_memstream(&notes, &size);
	CU_ASSERT_FATAL(out != NULL && script->notes != NULL);
	bt_script_write(out, text, script);
	fclose(out);
	fclose(script->notes);
	CU_ASSERT_STRING_EQUAL(notes, expected_notes);
	CU_ASSERT_STRING_EQUAL(written, expected);
	if (strcmp(written, expected) != 0) {
		printf("got <%s>, expected <%s>\n", written, expected);
	}
	free(written);
	free(notes);
}

static void check_script(struct bt_script *script, const char *text, const char *expected)
{
	check_notes(script, text, expected, "");
}

static void test_placeholders_are_replaced_everywhere(void)
{
	check_script(&nothing,
		     "/* __PID__ */ usdt:__EXE__:x /pid == __PID__/ { printf(\"__PID__\"); @ = __TSC_KHZ__; }",
		     "/* 1 */ usdt:/x:x /pid == 1/ { printf(\"1\"); @ = 9; }");
}

static void test_blocks_come_behind_a_script_without_its_own(void)
{
	check_script(&values, "#include <x.h>\nusdt:__EXE__:x { }",
		     "#include <x.h>\nusdt:/usr/bin/varve:x { }\nBEGIN\n{\n\t@t[0] = "
		     "\"A\";\n}\n\nEND\n{\n\tclear(@t);\n}\n");
	check_script(&nothing, "usdt:__EXE__:x { }", "usdt:/x:x { }");
}

static void test_statements_go_into_blocks_of_the_script(void)
{
	check_script(
		&values, "BEGIN { @a = 1; }\nEND\n{ if (@a) { print(@t); } }\nBEGIN { }",
		"BEGIN {\n\t@t[0] = \"A\";\n @a = 1; }\nEND\n{ if (@a) { print(@t); } \n\tclear(@t);\n}\nBEGIN { }");
	check_script(&values, "END, BEGIN{}", "END, BEGIN{\n\t@t[0] = \"A\";\n}\nEND\n{\n\tclear(@t);\n}\n");
}

static void test_words_that_look_like_blocks_are_none(void)
{
	static const char behind[] = "\nBEGIN\n{\n\t@t[0] = \"A\";\n}\n\nEND\n{\n\tclear(@t);\n}\n";
	static const char *const texts[] = {
		"// BEGIN {\nusdt:a:x { }",
		"/* BEGIN { } */ x { }",
		"x { printf(\"BEGIN {\"); }",
		"x { $BEGIN = 1; } MY_BEGIN { }",
		"#define BEGIN { \\\n BEGIN {\nx { }",
		"x /comm == \"END { \\\" BEGIN {\"/ { }",
		"x { BEGIN { } END { } }",
		"uprobe:/BEGIN/END:f { }",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char expected[256];

		snprintf(expected, sizeof(expected), "%s%s", texts[i], behind);
		check_script(&values, texts[i], expected);
	}
}

static void test_first_line_may_name_the_interpreter(void)
{
	check_script(&nothing, "#!/usr/bin/env bpftrace\n#include <a.h>\nx { }", "\n#include <a.h>\nx { }");
	check_script(&nothing, "#!/usr/bin/bpftrace", "");
}

static void test_provider_spdk_is_ours(void)
{
	check_script(&nothing, "usdt:/opt/spdk_tgt:spdk:a,\nusdt:__EXE__:spdk:b\n{ printf(\"usdt:/p:spdk:c\"); }",
		     "usdt:/x:varve:a,\nusdt:/x:varve:b\n{ printf(\"usdt:/p:spdk:c\"); }");
	check_script(&nothing, "usdt:/p:other:a { } // :spdk:a", "usdt:/p:other:a { } // :spdk:a");
}

#define PAUSE_NOTE  "probe nvmf_tgt_pause_polling is left out: the polling of a target is never paused as a whole\n"
#define RESUME_NOTE "probe nvmf_tgt_resume_polling is left out: the polling of a target is never paused as a whole\n"

static void test_probes_that_varve_lacks_are_left_out_and_named(void)
{
	check_notes(&nothing, "usdt:__EXE__:spdk:nvmf_tgt_pause_polling /arg1/ { if (1) { printf(\"}\"); } }\nx { }",
		    "\nx { }", PAUSE_NOTE);
	check_notes(
		&nothing,
		"a { }\nusdt:__EXE__:nvmf_tgt_pause_polling, // {\nusdt:p:spdk:nvmf_tgt_resume_polling\n{\n}\nb { }",
		"a { }\n\n\n\n\nb { }", PAUSE_NOTE RESUME_NOTE);
	/* The block stays that of the others. */
	check_notes(&nothing,
		    "usdt:__EXE__:spdk:a, usdt:__EXE__:spdk:nvmf_tgt_pause_polling /* , */ , BEGIN { @ = 1; }",
		    "usdt:/x:varve:a, BEGIN { @ = 1; }", PAUSE_NOTE);
	check_notes(&nothing, "usdt:__EXE__:nvmf_tgt_resume_polling,\ninterval:s:1 { }", "\ninterval:s:1 { }",
		    RESUME_NOTE);
	check_notes(&nothing, "struct s { int x; };\nusdt:x:nvmf_tgt_resume_polling { }", "struct s { int x; };\n",
		    RESUME_NOTE);
	check_notes(&values, "BEGIN, usdt:x:nvmf_tgt_resume_polling { }",
		    "BEGIN {\n\t@t[0] = \"A\";\n }\nEND\n{\n\tclear(@t);\n}\n", RESUME_NOTE);
}

static void test_ends_of_a_lacking_probe_are_seen(void)
{
	static const char *const texts[] = {
		"usdt:/x:spdk:nvmf_tgt_pause_polling/arg1/ { }",
		"usdt:/x:nvmf_tgt_pause_polling/arg1 == 1 ? @a:nvmf_tgt_x/ { }",
		"usdt:/x:spdk:nvmf_tgt_pause_polling/* c { */{ }",
		"usdt:/x:spdk:nvmf_tgt_pause_polling// c {\n{ }",
		"usdt:\"/x y, {\\\" z\":spdk:nvmf_tgt_pause_polling { }",
		"usdt:\"/x:y\":nvmf_tgt_pause_polling{ }",
		"usdt:/a//b/*/c:spdk:nvmf_tgt_pause_polling { }",
		"usdt::nvmf_tgt_pause_polling { }",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char text[128], expected[64];

		snprintf(text, sizeof(text), "%s b { @ = 1; }", texts[i]);
		snprintf(expected, sizeof(expected), "%s b { @ = 1; }", strchr(text, '\n') != NULL ? "\n" : "");
		check_notes(&nothing, text, expected, PAUSE_NOTE);
	}
	check_notes(&nothing, "usdt:\"/x y\":spdk:a, usdt:/x:nvmf_tgt_pause_polling/arg1/ { }",
		    "usdt:/x:varve:a/arg1/ { }", PAUSE_NOTE);
	check_notes(&nothing, "usdt:/x:nvmf_tgt_pause_polling, uprobe:\"/x, y\":f/arg1/ { }",
		    "uprobe:\"/x, y\":f/arg1/ { }", PAUSE_NOTE);
}

static void test_paths_in_quotes_are_replaced_whole(void)
{
	check_script(&values, "usdt:\"/x y\":spdk:a { printf(\"BEGIN {\"); } BEGIN { } END { }",
		     "usdt:/usr/bin/varve:varve:a { printf(\"BEGIN {\"); } BEGIN {\n\t@t[0] = \"A\";\n } END { "
		     "\n\tclear(@t);\n}");
	check_script(&nothing, "usdt:/p:spdk:a/str(arg1) == \"{\"/{ }", "usdt:/x:varve:a/str(arg1) == \"{\"/{ }");
}

static void test_indented_preprocessor_lines_are_no_code(void)
{
	check_notes(&nothing, " \t#define X 1\nusdt:/x:nvmf_tgt_pause_polling { }\nb { }", " \t#define X 1\n\nb { }",
		    PAUSE_NOTE);
	check_notes(&nothing, "/* x */ # define X { \\\n{\nusdt:/x:nvmf_tgt_pause_polling { }\nb { }",
		    "/* x */ # define X { \\\n{\n\nb { }", PAUSE_NOTE);
	check_notes(&nothing, "usdt:/x:nvmf_tgt_pause_polling {\n  #define Q }\n#define R {\n x; }\nb { }",
		    "\n\n\n\nb { }", PAUSE_NOTE);
	/* $# is the number of arguments. */
	check_notes(&nothing, "usdt:/x:nvmf_tgt_pause_polling { if ($# > 1) { } }b { }", "b { }", PAUSE_NOTE);
}

static void test_a_script_without_a_probe_that_is_left_is_told(void)
{
	static const struct {
		const char *text;
		bool left;
	} scripts[] = {
		{"usdt:/x:nvmf_tgt_pause_polling { @t = 1; }\n// end", false},
		{" #include <x.h>\nstruct s { int x; };\n/* c */ usdt:/x:nvmf_tgt_pause_polling { } ;", false},
		{"struct s { int x; }\nunion u { int x; }\nenum e { A }\nusdt:/x:nvmf_tgt_pause_polling { }", false},
		{"structure { } usdt:/x:nvmf_tgt_pause_polling { }", true},
		{"usdt:/x:nvmf_tgt_pause_polling { } b { }", true},
		{"BEGIN { } usdt:/x:nvmf_tgt_pause_polling { }", true},
		{"usdt:/x:nvmf_tgt_pause_polling, b { }", true},
		{"b { }", true},
		{"// nothing is left out", true},
		{"", true},
	};

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		char *written = NULL;
		size_t size;
		struct bt_script script = values;
		FILE *out = open_memstream(&written, &size);

		script.notes = fopen("/dev/null", "w");
		CU_ASSERT_FATAL(out != NULL && script.notes != NULL);
		CU_ASSERT_EQUAL(bt_script_write(out, scripts[i].text, &script), scripts[i].left);
		fclose(out);
		fclose(script.notes);
		free(written);
	}
}

static void test_names_that_only_look_like_lacking_probes_stay(void)
{
	static const char *const texts[] = {
		"usdt:/x:nvmf_tgt_pause_polling_more { }", "usdt:/x:my_nvmf_tgt_pause_polling { }",
		"uprobe:/x:nvmf_tgt_pause_polling { }",    "x { printf(\"usdt:/x:nvmf_tgt_pause_polling { }\"); }",
		"// usdt:/x:nvmf_tgt_pause_polling { }\n", "x /1/ { @nvmf_tgt_pause_polling = 1; }",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		check_script(&nothing, texts[i], texts[i]);
	}
}

static void test_lacking_probes_of_scripts_that_end_in_the_middle(void)
{
	static const char *const behind[] = {"", " ", ",", " /", " /* ", " {", " { \"", " { {", " // ", " }"};

	for (size_t i = 0; i < sizeof(behind) / sizeof(behind[0]); i++) {
		char text[64];

		snprintf(text, sizeof(text), "usdt:/x:nvmf_tgt_pause_polling%s", behind[i]);
		check_notes(&nothing, text, "", PAUSE_NOTE);
	}
}

static void test_scripts_that_end_in_the_middle(void)
{
	static const char *const texts[] = {"/* x", "\"x", "\"x\\", "// x", "#x\\", "}",
					    "}}{",  "{",   "/*",    "/",    "@",    "usdt:"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		check_script(&nothing, texts[i], texts[i]);
	}
	check_script(&nothing, "", "");
}

static void see_map(void *arg, const char *name, size_t len)
{
	char *seen = arg;

	snprintf(seen + strlen(seen), 64 - strlen(seen), "%.*s ", (int)len, name);
}

static void test_maps_are_found_in_code(void)
{
	char seen[64] = "";

	bt_script_maps("#define A @no\nx { @one[@two_2] = 1; @ = 2; /* @no */ \"@no\"; print(@one); } // @no", see_map,
		       seen);
	CU_ASSERT_STRING_EQUAL(seen, "one two_2 one ");
}

static const struct unit_test tests[] = {
	UNIT(test_placeholders_are_replaced_everywhere),
	UNIT(test_blocks_come_behind_a_script_without_its_own),
	UNIT(test_statements_go_into_blocks_of_the_script),
	UNIT(test_words_that_look_like_blocks_are_none),
	UNIT(test_first_line_may_name_the_interpreter),
	UNIT(test_provider_spdk_is_ours),
	UNIT(test_probes_that_varve_lacks_are_left_out_and_named),
	UNIT(test_ends_of_a_lacking_probe_are_seen),
	UNIT(test_paths_in_quotes_are_replaced_whole),
	UNIT(test_indented_preprocessor_lines_are_no_code),
	UNIT(test_a_script_without_a_probe_that_is_left_is_told),
	UNIT(test_names_that_only_look_like_lacking_probes_stay),
	UNIT(test_lacking_probes_of_scripts_that_end_in_the_middle),
	UNIT(test_scripts_that_end_in_the_middle),
	UNIT(test_maps_are_found_in_code),
	UNIT_END,
};
UNIT_MAIN("usdt_script", tests, NULL, NULL)
