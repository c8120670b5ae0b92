/* SPDX-License-Identifier: BSD-3-Clause */
#include "appliance/options.h"

#include <errno.h>

#include "unittest/unit.h"

LOG_FLAG(unit_options)

static struct appliance_options o;
static char error[APPLIANCE_ERROR_MAX], line[512];

/* Parses a command line, given without the program's name. */
static int parse(const char *arguments)
{
	char *argv[32] = {"varve"}, *save;
	int argc = 1;

	snprintf(line, sizeof(line), "%s", arguments);
	for (char *a = strtok_r(line, " ", &save); a != NULL; a = strtok_r(NULL, " ", &save)) {
		argv[argc++] = a;
	}
	error[0] = '\0';
	return appliance_options_parse(argc, argv, &o, error);
}

/* Must be refused with an error that holds the words (separated by `|`). */
static void check_refused(const char *arguments, const char *words)
{
	char list[256], *save;

	CU_ASSERT_EQUAL(parse(arguments), -EINVAL);
	snprintf(list, sizeof(list), "%s", words);
	for (char *w = strtok_r(list, "|", &save); w != NULL; w = strtok_r(NULL, "|", &save)) {
		if (strstr(error, w) == NULL) {
			printf("%s: \"%s\" is not in: %s\n", arguments, w, error);
			CU_FAIL("the error lacks a word");
		}
	}
}

static void test_nothing_given_means_the_defaults(void)
{
	CU_ASSERT_EQUAL(parse(""), 0);
	CU_ASSERT_EQUAL(o.command, APPLIANCE_RUN);
	CU_ASSERT_EQUAL(o.env.instance_id, -1);
	CU_ASSERT_PTR_NULL(o.env.cores);
	CU_ASSERT_FALSE(o.env.no_huge);
	CU_ASSERT_STRING_EQUAL(o.rpc_path, "/var/tmp/varve.sock");
	CU_ASSERT_EQUAL(o.trace_entries, 32768);
	CU_ASSERT_EQUAL(o.poll_mode, POLL_MODE_ADAPTIVE);
	CU_ASSERT_EQUAL(o.print_level, LOG_LEVEL_NOTICE);
}

static void test_short_and_long_options_are_the_same(void)
{
	CU_ASSERT_EQUAL(parse("-m 0x3 -s 512 -i 7 -c a.json -r /tmp/s -u"), 0);
	CU_ASSERT_STRING_EQUAL(o.env.cores, "0x3");
	CU_ASSERT_EQUAL(o.env.mem_mb, 512);
	CU_ASSERT_EQUAL(o.env.instance_id, 7);
	CU_ASSERT_STRING_EQUAL(o.config_file, "a.json");
	CU_ASSERT_STRING_EQUAL(o.rpc_path, "/tmp/s");
	CU_ASSERT_TRUE(o.env.no_pci);
	CU_ASSERT_EQUAL(parse("--cpumask [0,2-3] --mem-size=2G --shm-id -1 --json b.json --rpc-socket=/tmp/t "
			      "--no-pci"),
			0);
	CU_ASSERT_STRING_EQUAL(o.env.cores, "[0,2-3]");
	CU_ASSERT_EQUAL(o.env.mem_mb, 2048);
	CU_ASSERT_EQUAL(o.env.instance_id, -1);
	CU_ASSERT_STRING_EQUAL(o.config_file, "b.json");
	CU_ASSERT_STRING_EQUAL(o.rpc_path, "/tmp/t");
	CU_ASSERT_TRUE(o.env.no_pci);
}

static void test_other_options_are_taken(void)
{
	CU_ASSERT_EQUAL(
		parse("--wait-for-rpc --no-huge --poll-mode busy --num-trace-entries 0 --trace-group users "
		      "--rpc-mode 0660 --rpc-deadline 7 --json-ignore-init-errors --oversubscribe -d --log-level info"),
		0);
	CU_ASSERT_TRUE(o.wait_for_rpc);
	CU_ASSERT_TRUE(o.env.no_huge);
	CU_ASSERT_EQUAL(o.poll_mode, POLL_MODE_BUSY);
	CU_ASSERT_EQUAL(o.trace_entries, 0);
	CU_ASSERT_STRING_EQUAL(o.trace_group, "users");
	CU_ASSERT_EQUAL(o.rpc_mode, 0660);
	CU_ASSERT_EQUAL(o.rpc_deadline_s, 7);
	CU_ASSERT_TRUE(o.ignore_init_errors);
	CU_ASSERT_TRUE(o.env.oversubscribe);
	CU_ASSERT_TRUE(o.limit_coredump);
	CU_ASSERT_EQUAL(o.print_level, LOG_LEVEL_INFO);
}

static void test_pci_devices_are_allowed_or_blocked_but_not_both(void)
{
	CU_ASSERT_EQUAL(parse("-A 0000:01:00.0 -A 0000:02:00.0"), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o.env.pci_allowed);
	CU_ASSERT_STRING_EQUAL(o.env.pci_allowed[1], "0000:02:00.0");
	CU_ASSERT_PTR_NULL(o.env.pci_allowed[2]);
	CU_ASSERT_PTR_NULL(o.env.pci_blocked);
	CU_ASSERT_EQUAL(parse("--pci-blocked 0000:01:00.0"), 0);
	CU_ASSERT_PTR_NOT_NULL(o.env.pci_blocked);
	check_refused("-A 0000:01:00.0 -B 0000:02:00.0", "-B|-A|not both");
}

static void test_tracepoints_are_checked_at_once(void)
{
	CU_ASSERT_EQUAL(parse("-e bdev"), 0);
	CU_ASSERT_STRING_EQUAL(o.tracepoints, "bdev");
	CU_ASSERT_EQUAL(parse("-e help"), 0);
	CU_ASSERT_EQUAL(o.command, APPLIANCE_TRACE_HELP);
	check_refused("-e nosuch", "-e|nosuch|bdev");
}

static void test_log_flags_are_checked_and_shown(void)
{
	CU_ASSERT_EQUAL(parse("-L unit_options -L all"), 0);
	CU_ASSERT_STRING_EQUAL(o.log_flags[0], "unit_options");
	CU_ASSERT_PTR_NULL(o.log_flags[2]);
	CU_ASSERT_EQUAL(o.print_level, LOG_LEVEL_DEBUG);
	CU_ASSERT_EQUAL(parse("-L nvmf_auth -L vbdev_lvol"), 0); /* of SPDK's components */
	CU_ASSERT_STRING_EQUAL(o.log_flags[1], "vbdev_lvol");
	check_refused("-L nosuch", "-L|nosuch|unit_options|all");
}

static void test_help_and_version_end_the_parsing(void)
{
	CU_ASSERT_EQUAL(parse("-h --nosuch"), 0);
	CU_ASSERT_EQUAL(o.command, APPLIANCE_HELP);
	CU_ASSERT_EQUAL(parse("--version"), 0);
	CU_ASSERT_EQUAL(o.command, APPLIANCE_VERSION);
}

static void test_wrong_values_are_named(void)
{
	check_refused("-s many", "-s|many|megabytes");
	check_refused("--mem-size 0", "--mem-size|0");
	check_refused("-s 100000000", "-s|100000000|megabytes (1 to 16777216)");
	check_refused("-i 99999", "-i|99999|32767");
	check_refused("-m xyz", "-m|xyz");
	check_refused("--num-trace-entries 1000", "1000|power of two");
	check_refused("--num-trace-entries 32", "32|64");
	check_refused("--poll-mode lazy", "lazy|adaptive|busy");
	check_refused("--log-level loud", "loud|WARNING");
	check_refused("--rpc-mode 0999", "0999|octal");
	check_refused("--rpc-mode 01000", "01000");
	check_refused("--rpc-deadline soon", "soon|86400");
	check_refused("--rpc-deadline 86401", "86401|86400");
	check_refused("--lcores 0@", "--lcores|0@|number");
	check_refused("-p first", "-p|first|1023");
	check_refused("--main-core 1024", "--main-core|1024|1023");
	check_refused("--base-virtaddr 0x123", "0x123|page|0x200000000000");
	check_refused("--base-virtaddr -4096", "-4096|page");
	check_refused("--base-virtaddr 0x800000000000", "0x800000000000|page");
	check_refused("--base-virtaddr 0x20000000000000000", "0x20000000000000000|page");
	check_refused("--iova-mode dc", "dc|pa|va");
	check_refused("--msg-mempool-size 0", "--msg-mempool-size|0|1 to");
	check_refused("--env-context --legacy-mem", "--env-context|--legacy-mem|--log-level=VALUE");
	check_refused("--rpcs-allowed a,,b", "--rpcs-allowed|a,,b|commas");
	check_refused("--rpcs-allowed a,", "a,|commas");
	check_refused("--rpcs-allowed a;b", "a;b|commas");
	check_refused("--pidfile=", "--pidfile|empty");
}

static void test_unknown_options_and_arguments_are_named(void)
{
	check_refused("-x", "-x");
	check_refused("--nosuch", "--nosuch");
	check_refused("-s", "-s|missing");
	check_refused("--config", "--config|missing");
	check_refused("--no-pci=1", "--no-pci=1");
	check_refused("extra", "extra");
}

static void test_options_of_scripts_for_other_targets_have_their_effect(void)
{
	CU_ASSERT_EQUAL(parse("--lcores 0@5,1@6 -p 1 --base-virtaddr 0x200000000000 --interrupt-mode -f /tmp/pid "
			      "--rpcs-allowed bdev_get_bdevs,nvmf_get_stats --disable-cpumask-locks "
			      "--env-context --log-level=lib.eal:debug"),
			0);
	CU_ASSERT_STRING_EQUAL(o.startup.lcores, "0@5,1@6");
	CU_ASSERT_TRUE(o.startup.has_main_core);
	CU_ASSERT_EQUAL(o.startup.main_core, 1);
	CU_ASSERT_EQUAL(o.startup.base_virtaddr, 0x200000000000);
	CU_ASSERT_EQUAL(o.poll_mode, POLL_MODE_ADAPTIVE);
	CU_ASSERT_STRING_EQUAL(o.pid_file, "/tmp/pid");
	CU_ASSERT_STRING_EQUAL(o.rpcs_allowed, "bdev_get_bdevs,nvmf_get_stats");
	CU_ASSERT_TRUE(o.no_core_locks);
	CU_ASSERT_STRING_EQUAL(o.startup.eal_words, "--log-level=lib.eal:debug");
	CU_ASSERT_PTR_NULL(o.notes[0]);
	CU_ASSERT_EQUAL(parse("--silence-noticelog"), 0);
	CU_ASSERT_EQUAL(o.print_level, LOG_LEVEL_WARNING);
	CU_ASSERT_EQUAL(parse("--no-rpc-server"), 0);
	CU_ASSERT_PTR_NULL(o.rpc_path);
	CU_ASSERT_FALSE(o.startup.has_main_core);
	CU_ASSERT_FALSE(o.no_core_locks);
}

static void test_options_without_effect_are_noted_once_each(void)
{
	static const char *const words[] = {"--huge-unlink",  "--single-file-segments", "--huge-dir",
					    "--iova-mode pa", "--msg-mempool-size",     "--mem-channels"};

	CU_ASSERT_EQUAL(
		parse("-R --single-file-segments --huge-dir /mnt/huge --iova-mode pa --msg-mempool-size 1024 -n 4 -R "
		      "--iova-mode=pa -g --mem-channels 32"),
		0);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		CU_ASSERT_PTR_NOT_NULL_FATAL(o.notes[i]);
		CU_ASSERT_PTR_EQUAL(strstr(o.notes[i], words[i]), o.notes[i]);
	}
	CU_ASSERT_PTR_NULL(o.notes[6]);
	CU_ASSERT_EQUAL(parse("-n 0"), 0);
	CU_ASSERT_STRING_EQUAL(o.notes[0],
			       "--mem-channels has no effect: no memory of varve's is laid out by channels");
	CU_ASSERT_PTR_NULL(o.notes[1]);
	check_refused("-n -1", "-n|-1|0 to 32");
	check_refused("--mem-channels 33", "--mem-channels|33|0 to 32");
	CU_ASSERT_EQUAL(parse("--iova-mode va"), 0);
	CU_ASSERT_PTR_NULL(o.notes[0]);
}

static void test_options_that_exclude_each_other_are_named(void)
{
	check_refused("--lcores 0@5 -m 1", "--lcores|-m");
	check_refused("-m 1 --lcores 0@5", "--lcores|-m");
	check_refused("--lcores 0@5 --oversubscribe", "--lcores|--oversubscribe");
	check_refused("--interrupt-mode --poll-mode busy", "--interrupt-mode|--poll-mode busy");
	check_refused("--poll-mode busy --interrupt-mode", "--interrupt-mode|--poll-mode busy");
	check_refused("--no-rpc-server --wait-for-rpc", "--no-rpc-server|--wait-for-rpc");
}

static void test_a_takeover_has_its_options(void)
{
	CU_ASSERT_EQUAL(parse(""), 0);
	CU_ASSERT_PTR_NULL(o.takeover);
	CU_ASSERT_EQUAL(o.takeover_s, 60);
	CU_ASSERT_EQUAL(parse("--takeover /a.sock --takeover-timeout 5 --takeover-force -i 7 -c /b.json"), 0);
	CU_ASSERT_STRING_EQUAL(o.takeover, "/a.sock");
	CU_ASSERT_EQUAL(o.takeover_s, 5);
	CU_ASSERT_TRUE(o.takeover_forced);
	CU_ASSERT_EQUAL(o.env.instance_id, -1); /* the trace file of that number is the other process's */
	CU_ASSERT_PTR_NOT_NULL(o.notes[1]);
	check_refused("--takeover a.sock", "--takeover|a.sock");
	check_refused("--takeover /a.sock --takeover-timeout 0", "--takeover-timeout|1 to 3600");
	check_refused("--takeover /a.sock --wait-for-rpc", "--takeover|--wait-for-rpc");
}

static const struct unit_test tests[] = {
	UNIT(test_nothing_given_means_the_defaults),
	UNIT(test_short_and_long_options_are_the_same),
	UNIT(test_other_options_are_taken),
	UNIT(test_pci_devices_are_allowed_or_blocked_but_not_both),
	UNIT(test_tracepoints_are_checked_at_once),
	UNIT(test_log_flags_are_checked_and_shown),
	UNIT(test_help_and_version_end_the_parsing),
	UNIT(test_wrong_values_are_named),
	UNIT(test_unknown_options_and_arguments_are_named),
	UNIT(test_options_of_scripts_for_other_targets_have_their_effect),
	UNIT(test_options_without_effect_are_noted_once_each),
	UNIT(test_options_that_exclude_each_other_are_named),
	UNIT(test_a_takeover_has_its_options),
	UNIT_END,
};

UNIT_MAIN("appliance_options", tests, NULL, NULL)
