/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-rpc: calls the daemon's methods from the shell. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/rpc.h"
#include "tools/known/known.h"
#include "tools/print/print.h"
#include "tools/rpc-socket.h"
#include "tools/safe-text.h"
#include "tools/varve-rpc.h"
#include "util/nearest.h"
#include "util/output.h"
#include "util/parse.h"

#define DEFAULT_TIMEOUT_S 60

struct command_line {
	const char *socket;
	unsigned timeout_s;
	bool socket_given; /* by -s or -p */
	bool json;         /* print strings as JSON too */
	int format;        /* enum print_format; -1: a table for a terminal, otherwise JSON */
	bool list, markdown, help;
	const char *module; /* of --markdown */
};

static void rpc_cli_print_usage(FILE *out)
{
	fprintf(out,
		"Usage: varve-rpc [OPTION...] METHOD [KEY=VALUE...]\n"
		"       varve-rpc [OPTION...] METHOD --help      what a method does and takes\n"
		"       varve-rpc [OPTION...] --list             the methods there are, one a line\n"
		"       varve-rpc [OPTION...] save_config [FILE]\n"
		"       varve-rpc [OPTION...] load_config [FILE]\n"
		"       varve-rpc [OPTION...] -                  raw JSON-RPC from stdin, answers to stdout\n"
		"\n"
		"Without a daemon, --list and --help tell of the varve that was built with this program.\n"
		"\n"
		"A VALUE is JSON if it can be read as such, otherwise a string; where the method takes a "
		"string it is one in\n"
		"any case. A dot in a KEY names a member of an object: listen_address.traddr=192.0.2.1\n"
		"Bytes may be given as 64K, 512M or 1G, and size=1G in place of num_blocks.\n"
		"\n"
		"  -s, --socket PATH      where the daemon listens (default: $VARVE_RPC_SOCKET, or\n"
		"                         " RPC_SERVICE_PATH " if it is there, or " RPC_DEFAULT_PATH ")\n"
		"  -p, --pid PID          the varve of this process id, whatever its socket\n"
		"  -o, --output FORMAT    json, table, wide (all columns) or yaml (default: table on a terminal, json "
		"elsewhere)\n"
		"  -t, --timeout SECONDS  how long to wait for an answer (default 60)\n"
		"  -j, --json             print JSON, in quotes a result that is a string too\n"
		"      --markdown         print the reference in doc/rpc.md: the methods that are not a module's\n"
		"      --module NAME      with --markdown: the methods of a module of block devices\n"
		"  -h, --help             print this, or help for a method\n"
		"  -v, --version          print the version\n"
		"\n"
		"Exit status: 0 done, 1 the daemon answered with an error, 2 wrong usage, 3 no answer, 4 done, "
		"but the output could not\n"
		"be written.\n");
}

static int rpc_cli_find_process(struct command_line *cl, const char *pid)
{
	static char path[RPC_SOCKET_PATH_MAX];
	char why[512];
	int rc = rpc_socket_of_process(pid, path, why, sizeof(why));

	if (rc != 0) {
		fprintf(stderr, "varve-rpc: -p: %s\n", why);
		return rc == -EINVAL ? RPC_TOOL_USAGE : RPC_TOOL_NO_ANSWER;
	}
	cl->socket = path;
	cl->socket_given = true;
	return RPC_TOOL_OK;
}

static int rpc_cli_parse_options(int argc, char **argv, struct command_line *cl)
{
	static const struct option longs[] = {
		{"socket", 1, NULL, 's'},  {"timeout", 1, NULL, 't'},  {"json", 0, NULL, 'j'},
		{"list", 0, NULL, 'l'},    {"markdown", 0, NULL, 'm'}, {"help", 0, NULL, 'h'},
		{"version", 0, NULL, 'v'}, {"module", 1, NULL, 'M'},   {"pid", 1, NULL, 'p'},
		{"output", 1, NULL, 'o'},  {NULL, 0, NULL, 0},
	};
	uint64_t seconds;
	int o, rc;

	while ((o = getopt_long(argc, argv, "s:p:o:t:jhv", longs, NULL)) != -1) {
		switch (o) {
		case 's':
			cl->socket = optarg;
			cl->socket_given = true;
			break;
		case 'p':
			if ((rc = rpc_cli_find_process(cl, optarg)) != RPC_TOOL_OK) {
				return rc;
			}
			break;
		case 'o':
			if ((cl->format = print_format_find(optarg)) < 0) {
				fprintf(stderr, "varve-rpc: -o: \"%s\" is none of json, table, wide, yaml\n", optarg);
				return RPC_TOOL_USAGE;
			}
			cl->json = cl->format == PRINT_JSON;
			break;
		case 't':
			if (parse_uint64(optarg, 1, 1000000, &seconds) != 0) {
				fprintf(stderr,
					"varve-rpc: -t: \"%s\" is not a number of seconds from 1 to "
					"1000000\n",
					optarg);
				return RPC_TOOL_USAGE;
			}
			cl->timeout_s = (unsigned)seconds;
			break;
		case 'j':
			cl->json = true;
			cl->format = PRINT_JSON;
			break;
		case 'l':
			cl->list = true;
			break;
		case 'm':
			cl->markdown = true;
			break;
		case 'M':
			cl->module = optarg;
			break;
		case 'h':
			cl->help = true;
			break;
		case 'v':
			printf("varve-rpc v%s\n", VARVE_VERSION);
			exit(RPC_TOOL_OK);
		default:
			nearest_print_option("varve-rpc", argv[optind - 1], longs);
			fprintf(stderr, "See varve-rpc --help.\n");
			return RPC_TOOL_USAGE;
		}
	}
	return RPC_TOOL_OK;
}

static void rpc_cli_print_result(const struct command_line *cl, const json_t *result)
{
	unsigned width = print_terminal_width();
	int format = cl->format >= 0 ? cl->format : width != 0 ? PRINT_TABLE : PRINT_JSON;

	if (json_is_string(result) && !cl->json && format != PRINT_YAML) {
		safe_text_print(stdout, json_string_value(result), json_string_length(result));
		putchar('\n');
		return;
	}
	print_value(result, (enum print_format)format, width, stdout);
}

static int rpc_cli_list_methods(struct rpc_client *c)
{
	json_t *methods;
	const json_t *name;
	size_t i;
	int rc = rpc_client_call(c, "rpc_get_methods", NULL, false, &methods);

	if (rc == RPC_TOOL_OK) {
		json_array_foreach (methods, i, name) {
			const char *text = json_is_string(name) ? json_string_value(name) : "?";
			safe_text_print(stdout, text, strlen(text));
			putchar('\n');
		}
		json_decref(methods);
	}
	return rc;
}

/* The daemon's description of one method (NULL: of all); NULL: it gives none. */
static json_t *rpc_cli_describe(struct rpc_client *c, const char *method, bool quiet, int *rc)
{
	json_t *list = NULL;

	*rc = rpc_client_call(c, "rpc_describe_methods", method != NULL ? json_pack("{s:s}", "method", method) : NULL,
			      quiet, &list);
	return list;
}

/* methods: an array of names, or of descriptions. */
static void rpc_cli_print_nearest(const json_t *methods, const char *method)
{
	const json_t *o;
	struct nearest near;
	size_t i;

	nearest_begin(&near, method);
	json_array_foreach (methods, i, o) {
		const json_t *name = json_is_object(o) ? json_object_get(o, "name") : o;
		if (json_is_string(name)) {
			nearest_try(&near, json_string_value(name));
		}
	}
	if (near.name != NULL && near.distance > 0) {
		fprintf(stderr, "varve-rpc: did you mean ");
		safe_text_print(stderr, near.name, strlen(near.name));
		fprintf(stderr, "?\n");
	}
}

/* After a call was refused: the method that was probably meant, if the daemon has none of that name. */
static void rpc_cli_print_method_hint(struct rpc_client *c, const char *method)
{
	json_t *methods = NULL;

	if (rpc_client_call(c, "rpc_get_methods", NULL, true, &methods) == RPC_TOOL_OK) {
		rpc_cli_print_nearest(methods, method);
		json_decref(methods);
	}
}

static int rpc_cli_help_method(struct rpc_client *c, const char *method)
{
	int rc;
	json_t *list = rpc_cli_describe(c, method, false, &rc);

	if (list != NULL) {
		rpc_print_method(json_array_get(list, 0), stdout);
		json_decref(list);
	} else if (rc == RPC_TOOL_REFUSED) {
		rpc_cli_print_method_hint(c, method);
	}
	return rc;
}

static int rpc_cli_print_reference(struct rpc_client *c, const char *module)
{
	int rc;
	json_t *list = rpc_cli_describe(c, NULL, false, &rc);

	if (list != NULL) {
		rpc_print_markdown(list, module, stdout);
		json_decref(list);
	}
	return rc;
}

static int rpc_cli_call_method(struct rpc_client *c, const struct command_line *cl, int argc, char **argv)
{
	char error[512];
	int rc = RPC_TOOL_OK;
	json_t *list = NULL, *result;

	if (argc > 1) { /* methods can be called even if the daemon cannot describe them */
		list = rpc_cli_describe(c, argv[0], true, &rc);
	}
	if (rc == RPC_TOOL_NO_ANSWER) {
		return rc;
	}
	const json_t *description = json_object_get(json_array_get(list, 0), "params");
	json_t *params = rpc_args_parse(argc - 1, argv + 1, description, error, sizeof(error));
	if (params == NULL) {
		json_decref(list);
		fprintf(stderr, "varve-rpc: %s: %s\n", argv[0], error);
		return RPC_TOOL_USAGE;
	}
	rc = rpc_client_call(c, argv[0], params, false, &result);
	if (rc == RPC_TOOL_OK) {
		rpc_cli_print_result(cl, result);
		json_decref(result);
	} else if (rc == RPC_TOOL_REFUSED && description != NULL) {
		rpc_args_print_hints(argc - 1, argv + 1, description, stderr);
	} else if (rc == RPC_TOOL_REFUSED && !rpc_client_proposes(c)) {
		rpc_cli_print_method_hint(c, argv[0]);
	}
	json_decref(list);
	return rc;
}

/* Whether a command is built here, not a method of the daemon. */
static bool rpc_cli_is_made_here(const char *command)
{
	return strcmp(command, "save_config") == 0 || strcmp(command, "load_config") == 0;
}

/* The first argument that would not be used, or NULL: such an argument is likely to be a mistake. */
static const char *rpc_cli_first_superfluous(const struct command_line *cl, int argc, char **argv)
{
	int taken = argc;

	if (cl->list || cl->markdown) {
		taken = 0;
	} else if (cl->help || strcmp(argv[0], "-") == 0) {
		taken = 1;
	} else if (rpc_cli_is_made_here(argv[0])) {
		taken = 2;
	}
	return taken < argc ? argv[taken] : NULL;
}

static int rpc_cli_run(struct rpc_client *c, const struct command_line *cl, int argc, char **argv)
{
	if (cl->list) {
		return rpc_cli_list_methods(c);
	}
	if (cl->markdown) {
		return rpc_cli_print_reference(c, cl->module);
	}
	if (cl->help) {
		return rpc_cli_help_method(c, argv[0]);
	}
	if (strcmp(argv[0], "-") == 0) {
		return rpc_client_raw(c, stdin, stdout);
	}
	if (strcmp(argv[0], "save_config") == 0) {
		return rpc_save_config(c, argv[1]);
	}
	if (strcmp(argv[0], "load_config") == 0) {
		return rpc_load_config(c, argv[1]);
	}
	return rpc_cli_call_method(c, cl, argc, argv);
}

/* --list and --help METHOD without a daemon. */
static int rpc_cli_tell_what_is_known(const struct command_line *cl, const char *method)
{
	json_t *list = cl->list ? rpc_known_methods() : rpc_known_method(method);
	int rc = RPC_TOOL_OK;

	fprintf(stderr,
		"varve-rpc: no varve answers at %s; this is of the varve that was built with this program, %s\n",
		cl->socket, VARVE_VERSION);
	if (cl->list) {
		rpc_print_names(list, stdout);
	} else if (list != NULL) {
		rpc_print_method(json_array_get(list, 0), stdout);
	} else {
		fprintf(stderr, "varve-rpc: it has no method \"%s\"\n", method);
		list = rpc_known_methods();
		rpc_cli_print_nearest(list, method);
		rc = RPC_TOOL_REFUSED;
	}
	json_decref(list);
	return rc;
}

int main(int argc, char **argv)
{
	struct command_line cl = {.socket = rpc_client_path(), .timeout_s = DEFAULT_TIMEOUT_S, .format = -1};
	output_guard("varve-rpc", RPC_TOOL_LOST);
	int rc = rpc_cli_parse_options(argc, argv, &cl);

	if (rc != RPC_TOOL_OK) {
		return rc;
	}
	if (cl.help && optind < argc && (rpc_cli_is_made_here(argv[optind]) || strcmp(argv[optind], "-") == 0)) {
		rpc_cli_print_usage(stdout);
		return RPC_TOOL_OK;
	}
	if (optind == argc && !cl.list && !cl.markdown) {
		rpc_cli_print_usage(cl.help ? stdout : stderr);
		return cl.help ? RPC_TOOL_OK : RPC_TOOL_USAGE;
	}
	const char *word = rpc_cli_first_superfluous(&cl, argc - optind, argv + optind);
	if (word != NULL) {
		fprintf(stderr, "varve-rpc: \"%s\" is one argument too many; see --help\n", word);
		return RPC_TOOL_USAGE;
	}
	const bool can_do_without = (cl.list || cl.help) && !cl.socket_given;
	struct rpc_client *c = rpc_client_open(cl.socket, cl.timeout_s, can_do_without);
	if (c == NULL) {
		return can_do_without ? rpc_cli_tell_what_is_known(&cl, argv[optind]) : RPC_TOOL_NO_ANSWER;
	}
	rc = rpc_cli_run(c, &cl, argc - optind, argv + optind);
	rpc_client_close(c);
	return rc;
}
