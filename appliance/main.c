/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "appliance/app.h"
#include "appliance/config.h"
#include "bdev/module.h"
#include "rpc/registry.h"
#include "util/build_id.h"
#include "util/log_flags.h"
#include "util/output.h"

static void main_set_up_log(const struct appliance_options *o)
{
	log_set_print_level(o->print_level);
	for (const char *const *flag = o->log_flags; *flag != NULL; flag++) {
		log_set_flag(*flag, true);
		log_other_flag_explain(*flag);
	}
	for (const char *const *note = o->notes; *note != NULL; note++) {
		log_notice("%s", *note);
	}
}

static void main_print_help(void)
{
	appliance_options_help(stdout);
	printf("\nModules of block devices in this program:");
	for (const struct bdev_module *m = NULL; (m = bdev_module_next(m)) != NULL;) {
		printf(" %s", m->name);
	}
	printf("\n");
}

static void main_describe_rpc(void)
{
	json_t *list = json_array();

	for (const struct rpc_method *m = NULL; (m = rpc_method_next(m)) != NULL;) {
		json_array_append_new(list, rpc_method_describe(m));
	}
	json_dumpf(list, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(list);
}

/* --check: all that is wrong is on stderr. */
static int main_check_config(const char *file)
{
	unsigned n = config_examine(file, stderr);

	if (n != 0) {
		fprintf(stderr, "varve: %s: %u error%s\n", file, n, n == 1 ? "" : "s");
		return EXIT_FAILURE;
	}
	printf("%s: no errors\n", file);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	static struct appliance_options options;
	char error[APPLIANCE_ERROR_MAX];

	output_guard("varve", EXIT_FAILURE);
	if (appliance_options_parse(argc, argv, &options, error) != 0) {
		fprintf(stderr, "varve: %s\n", error);
		return 2;
	}
	switch (options.command) {
	case APPLIANCE_HELP:
		main_print_help();
		return EXIT_SUCCESS;
	case APPLIANCE_VERSION:
		printf("varve v%s (build %s)\n", VARVE_VERSION, build_id());
		return EXIT_SUCCESS;
	case APPLIANCE_TRACE_HELP:
		trace_print_help(stdout);
		return EXIT_SUCCESS;
	case APPLIANCE_DESCRIBE:
		main_describe_rpc();
		return EXIT_SUCCESS;
	case APPLIANCE_CHECK:
		return main_check_config(options.config_file);
	default:
		main_set_up_log(&options);
		return app_run(&options);
	}
}
