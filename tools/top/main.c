/* SPDX-License-Identifier: BSD-3-Clause */
/* varve-top: shows the activity of a running varve. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/rpc.h"
#include "tools/rpc-socket.h"
#include "tools/top/top.h"
#include "util/nearest.h"
#include "util/output.h"
#include "util/parse.h"

static void top_print_usage(FILE *out)
{
	fprintf(out, "Usage: varve-top [OPTION...]\n"
		     "Shows reactors, threads, pollers, bdevs, subsystems, hosts and their queue pairs, "
		     "outstanding commands, buffers and\n"
		     "waits for them, the trace, and volumes, of a running varve.\n"
		     "\n"
		     "  -s, --socket PATH       where the daemon listens (default: $VARVE_RPC_SOCKET, or\n"
		     "                          " RPC_SERVICE_PATH " if it is there, or " RPC_DEFAULT_PATH ")\n"
		     "  -p, --pid PID           the varve of this process id, whatever its socket\n"
		     "  -d, --delay SECONDS     time between two samples (default 2)\n"
		     "  -n, --iterations N      end after N samples (batch and JSON: default 1); 0: never\n"
		     "  -b, --batch             print text instead of filling the screen\n"
		     "  -j, --json              print a JSON object per sample, on a line of its own\n"
		     "  -v, --view NAME         only this (batch, JSON), or begin with it:");
	for (unsigned v = 0; v < top_n_views; v++) {
		fprintf(out, "%s %s", v > 0 ? "," : "", top_views[v]->name);
	}
	fprintf(out, "\n"
		     "  -f, --filter TEXT       only rows that contain TEXT\n"
		     "  -o, --sort COLUMN       of the view (-v), by its name in JSON\n"
		     "  -r, --reverse           sort the other way round\n"
		     "  -h, --help              print this\n"
		     "      --version           print the version\n"
		     "\n"
		     "Exit status: 0 done, 1 the output could not be written, 2 wrong usage, 3 no answer.\n");
}

static bool top_parse_number(const char *option, const char *text, double min, double max, double *value)
{
	char *end;

	errno = 0;
	*value = strtod(text, &end);
	if (end == text || *end != '\0' || errno != 0 || !(*value >= min && *value <= max)) {
		fprintf(stderr, "varve-top: %s: \"%s\" is not a number from %g to %g\n", option, text, min, max);
		return false;
	}
	return true;
}

static bool top_parse_iterations(const char *text, unsigned *iterations)
{
	uint64_t number;

	if (parse_uint64(text, 0, UINT_MAX, &number) != 0) {
		fprintf(stderr, "varve-top: -n: \"%s\" is not a whole number from 0 to %u\n", text, UINT_MAX);
		return false;
	}
	*iterations = (unsigned)number;
	return true;
}

static bool top_parse_view(const char *text, int *view)
{
	*view = top_view_find(text);
	if (*view >= 0) {
		return true;
	}
	fprintf(stderr, "varve-top: -v: there is no view \"%s\"; there are", text);
	for (unsigned v = 0; v < top_n_views; v++) {
		fprintf(stderr, "%s %s", v > 0 ? "," : "", top_views[v]->name);
	}
	fputc('\n', stderr);
	return false;
}

static bool top_parse_sort(struct top_options *o, const char *text)
{
	const struct top_view *view = top_views[o->view >= 0 ? o->view : 0];

	for (unsigned c = 0; c < view->n_columns; c++) {
		if (strcmp(view->columns[c].key, text) == 0) {
			o->sort = c;
			o->sort_given = true;
			return true;
		}
	}
	fprintf(stderr, "varve-top: -o: the view %s has no column \"%s\"; it has", view->name, text);
	for (unsigned c = 0; c < view->n_columns; c++) {
		fprintf(stderr, "%s %s", c > 0 ? "," : "", view->columns[c].key);
	}
	fputc('\n', stderr);
	return false;
}

static bool top_find_process(struct top_options *o, const char *pid)
{
	static char path[RPC_SOCKET_PATH_MAX];
	char why[TOP_WHY_MAX];

	if (rpc_socket_of_process(pid, path, why, sizeof(why)) != 0) {
		fprintf(stderr, "varve-top: -p: %s\n", why);
		return false;
	}
	o->socket = path;
	return true;
}

/* Takes an option. False: it is wrong, and the reason is on stderr. */
static bool top_option_take(struct top_options *o, int option, const char **sort, bool *iterations_given)
{
	switch (option) {
	case 's':
		o->socket = optarg;
		return true;
	case 'p':
		return top_find_process(o, optarg);
	case 'd':
		return top_parse_number("-d", optarg, 0.01, 86400, &o->interval_s);
	case 'n':
		*iterations_given = top_parse_iterations(optarg, &o->iterations);
		return *iterations_given;
	case 'b':
		o->batch = true;
		return true;
	case 'j':
		o->json = true;
		return true;
	case 'v':
		return top_parse_view(optarg, &o->view);
	case 'f':
		o->filter = optarg;
		return true;
	case 'o':
		*sort = optarg;
		return true;
	case 'r':
		o->reverse = true;
		return true;
	case 'h':
		top_print_usage(stdout);
		exit(TOP_EXIT_OK);
	case 'V':
		printf("varve-top v%s\n", VARVE_VERSION);
		exit(TOP_EXIT_OK);
	default:
		return false;
	}
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"socket", 1, NULL, 's'},     {"pid", 1, NULL, 'p'},    {"delay", 1, NULL, 'd'},
		{"iterations", 1, NULL, 'n'}, {"batch", 0, NULL, 'b'},  {"json", 0, NULL, 'j'},
		{"view", 1, NULL, 'v'},       {"filter", 1, NULL, 'f'}, {"sort", 1, NULL, 'o'},
		{"reverse", 0, NULL, 'r'},    {"help", 0, NULL, 'h'},   {"version", 0, NULL, 'V'},
		{NULL, 0, NULL, 0},
	};
	const char *sort = NULL;
	struct top_options o = {.socket = rpc_client_path(), .interval_s = 2, .view = -1};
	bool iterations_given = false;
	int option;

	output_guard("varve-top", TOP_EXIT_LOST);
	while ((option = getopt_long(argc, argv, "s:p:d:n:bjv:f:o:rh", longs, NULL)) != -1) {
		if (option == '?') {
			nearest_print_option("varve-top", argv[optind - 1], longs);
			fprintf(stderr, "See varve-top --help.\n");
		}
		if (!top_option_take(&o, option, &sort, &iterations_given)) {
			return TOP_EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "varve-top: \"%s\": only options are taken; see --help\n", argv[optind]);
		return TOP_EXIT_USAGE;
	}
	if (sort != NULL && !top_parse_sort(&o, sort)) {
		return TOP_EXIT_USAGE;
	}
	if (o.batch || o.json) {
		o.iterations = iterations_given ? o.iterations : 1;
		return top_batch_run(&o);
	}
	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
		fprintf(stderr, "varve-top: %s is no terminal; --batch or --json print\n",
			isatty(STDOUT_FILENO) ? "stdin" : "stdout");
		return TOP_EXIT_USAGE;
	}
	return top_screen_run(&o);
}
